/* Boolean masks (masked_fill, masked_select, masked_scatter, nonzero) and indexing by several tensors at once (index, index_put),
** which x[…] with tensors in the key and embedding become.
**
** Ops whose result's size depends on data count in infer, so that a symbolic tensor, which has no data, is refused there. */
#include "../kernels/index.h"
#include "gather.h"
#include "ops.h"

#include <string.h>

static sc_status mask_dtype(sc_call *c, int slot) {
  sc_dtype d = (sc_dtype)c->in[slot]->dtype;
  return d == SC_BOOL || d == SC_UINT8 ? SC_OK : sc__bad_input(c, slot, "expected a bool tensor, got %s", sc_dtype_name(d));
}

static sc_status has_data(sc_call *c, int slot) {
  if (!sc__is_symbolic(c->in[slot])) return SC_OK;
  return sc__bad_call(c, "the size of its result depends on data, so it cannot be recorded in a graph; use where or masked_fill, whose results have a fixed size");
}

/* Input `slot` broadcast to the shape of meta[0], packed: new. */
static sc_status spread(sc_call *c, int slot, int nd, const int64_t *dim, sc_tensor **out) {
  sc_tensor *t = c->in[slot], *wide;
  if (t->contiguous && t->ndim == nd && memcmp(t->dim, dim, (size_t)nd * 8) == 0) { *out = sc_tensor_retain(t); return SC_OK; }
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)t->dtype, nd, dim);
  SC_TRY(sc__tensor_like_meta(c->ctx, c->op->name, &m, &wide));
  *out = wide;
  return sc__tensor_copy(wide, t);
}

/* Truth values of a packed tensor, a byte each: new. */
static sc_status truths(sc_call *c, sc_tensor *t, sc_tensor **out) {
  SC_TRY(sc_tensor_new(c->ctx, SC_BOOL, t->ndim, t->dim, out));
  SC_TRY(sc__tensor_copy(*out, t));
  uint8_t *b = (uint8_t *)(*out)->data;
  if (t->dtype == SC_BOOL) for (int64_t i = 0; i < t->numel; i++) b[i] = b[i] != 0;
  return SC_OK;
}

static int64_t count(const sc_tensor *mask) {
  const uint8_t *b = (const uint8_t *)mask->data;
  int64_t n = 0, k = 0;
  for (; k + 128 <= mask->numel; k += 128) {           /* in bytes, so that the loop runs in vectors */
    uint8_t some = 0;
    for (int i = 0; i < 128; i++) some = (uint8_t)(some + (b[k + i] != 0));
    n += some;
  }
  for (; k < mask->numel; k++) n += b[k] != 0;
  return n;
}

static sc_status sized_infer(sc_call *c) {
  const sc_attr *size = &c->attr[0];
  if (size->n > SC_MAX_DIMS) return sc__bad_attr(c, 0, "at most %d dimensions", SC_MAX_DIMS);
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, size->n, size->v);
  return mask_dtype(c, 1);
}

/* ---- masked_fill(x, mask, value) ---- */
static sc_status fill_infer(sc_call *c) {
  SC_TRY(mask_dtype(c, 1));
  if (c->in[2]->ndim) return sc__bad_input(c, 2, "expected a number, got a tensor of %d dimensions", c->in[2]->ndim);
  SC_TRY(sc__broadcast_inputs(c, 0));
  c->meta[0].dtype = (sc_dtype)c->in[0]->dtype;
  return SC_OK;
}

static sc_status fill_run(sc_call *c) {
  sc_ctype type = sc__ctype((sc_dtype)c->in[0]->dtype);
  sc_program p = {.n_in = 3, .n_instr = 1, .cost = 0.3, .in_type = {SC_C_BOOL, (uint8_t)type, (uint8_t)type}};
  p.instr[0] = (sc_instr){.fn = sc__pw_kernel(c->ctx->isa, SC_PW_where, type), .type = (uint8_t)type, .arity = 3, .src = {0, 1, 2}};
  sc__program_run(c->ctx, &p, c->out[0], (sc_tensor *[]){c->in[1], c->in[2], c->in[0]});
  return SC_OK;
}

/* ---- masked_select(x, mask) ---- */

/* k packed elements of s where the mask holds, at most `n` of them: the loop without branches writes one place too many. */
#define SELECT(T) { \
    const T *s = from; T *d = to; int64_t k = 0, i = 0; \
    for (; k < n; i++) { d[k] = s[i]; k += mask[i] != 0; } \
    break; }
static void select_where(int64_t n, size_t z, const uint8_t *mask, const void *from, void *to) {
  switch (z) { case 1: SELECT(uint8_t) case 2: SELECT(uint16_t) case 4: SELECT(uint32_t) default: SELECT(uint64_t) }
}
#undef SELECT

#define SCATTER(T) { \
    const T *s = from; T *d = to; \
    for (int64_t i = 0, k = 0; k < n; i++) if (mask[i]) d[i] = s[k++]; \
    break; }
/* d[i] = the next of n values, where the mask holds */
static void scatter_where(int64_t n, size_t z, const uint8_t *mask, const void *from, void *to) {
  switch (z) { case 1: SCATTER(uint8_t) case 2: SCATTER(uint16_t) case 4: SCATTER(uint32_t) default: SCATTER(uint64_t) }
}
#undef SCATTER

static sc_status select_infer(sc_call *c) {
  sc_tensor *mask;
  SC_TRY(mask_dtype(c, 1));
  SC_TRY(sc__broadcast_inputs(c, 0));
  for (int i = 0; i < 2; i++) SC_TRY(has_data(c, i));
  SC_TRY(spread(c, 1, c->meta[0].ndim, c->meta[0].dim, &mask));
  c->note[0] = count(mask);
  c->note[1] = c->meta[0].ndim;
  sc_tensor_release(mask);
  c->meta[0].dtype = (sc_dtype)c->in[0]->dtype;
  c->meta[0].ndim = 1;
  c->meta[0].dim[0] = c->note[0];
  return SC_OK;
}

static sc_status select_run(sc_call *c) {
  sc_tensor *mask = NULL, *x = NULL;
  sc_meta m;
  int nd;
  sc__broadcast(c->in[0]->ndim, c->in[0]->dim, c->in[1]->ndim, c->in[1]->dim, &nd, m.dim);
  sc_status s = spread(c, 1, nd, m.dim, &mask);
  if (s == SC_OK) s = spread(c, 0, nd, m.dim, &x);
  if (s == SC_OK) select_where(c->note[0], sc_dtype_size((sc_dtype)x->dtype), (const uint8_t *)mask->data, x->data, c->out[0]->data);
  sc_tensor_release(mask);
  sc_tensor_release(x);
  return s;
}

/* masked_put(g, mask, size): zeros of that size with g's elements, in order, where the mask (which broadcasts) holds */
static sc_status put_run(sc_call *c) {
  sc_tensor *out = c->out[0], *mask, *wide = NULL, *g = NULL, *full = NULL;
  int nd;
  int64_t dim[SC_MAX_DIMS];
  if (!sc__broadcast(out->ndim, out->dim, c->in[1]->ndim, c->in[1]->dim, &nd, dim)) return sc__bad_input(c, 1, "its shape does not fit");
  SC_TRY(spread(c, 1, nd, dim, &mask));
  int64_t n = count(mask), z = (int64_t)sc_dtype_size((sc_dtype)out->dtype);
  bool same = nd == out->ndim && memcmp(dim, out->dim, (size_t)nd * 8) == 0;
  sc_status s = n > c->in[0]->numel ? sc__bad_input(c, 0, "%lld elements for %lld places", (long long)c->in[0]->numel, (long long)n) : SC_OK;
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)out->dtype, nd, dim);
  if (s == SC_OK && !same) s = sc__tensor_like_meta(c->ctx, c->op->name, &m, &wide);
  if (s == SC_OK) s = sc__tensor_packed(c->in[0], &g);
  if (s == SC_OK) {
    sc_tensor *to = same ? out : wide;
    memset(to->data, 0, (size_t)(to->numel * z));
    scatter_where(n, (size_t)z, (const uint8_t *)mask->data, g->data, to->data);
  }
  if (s == SC_OK && !same) {                           /* x itself was broadcast: its gradient is summed back */
    bool was = c->ctx->grad_enabled;
    c->ctx->grad_enabled = false;
    s = sc__op(c->ctx, "sum_to_size", &wide, 1, (sc_attr[]){c->attr[0]}, 1, &full);
    c->ctx->grad_enabled = was;
    if (s == SC_OK) s = sc__tensor_copy(out, full);
  }
  sc_tensor_release(mask);
  sc_tensor_release(wide);
  sc_tensor_release(g);
  sc_tensor_release(full);
  return s;
}

/* ---- masked_scatter(x, mask, source) ---- */
static sc_status scatter_infer(sc_call *c) {
  SC_TRY(mask_dtype(c, 1));
  if (c->in[2]->dtype != c->in[0]->dtype)
    return sc__bad_input(c, 2, "expected %s as for the first, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype), sc_dtype_name((sc_dtype)c->in[2]->dtype));
  int n = c->n_in;
  c->n_in = 2;
  sc_status s = sc__broadcast_inputs(c, 0);
  c->n_in = n;
  c->meta[0].dtype = (sc_dtype)c->in[0]->dtype;
  return s;
}

static sc_status scatter_run(sc_call *c) {
  sc_tensor *out = c->out[0], *mask, *source = NULL;
  SC_TRY(spread(c, 1, out->ndim, out->dim, &mask));
  int64_t n = count(mask);
  sc_status s = n > c->in[2]->numel ? sc__bad_input(c, 2, "expected at least %lld elements, one for each place, got %lld", (long long)n, (long long)c->in[2]->numel) : SC_OK;
  if (s == SC_OK) s = sc__tensor_packed(c->in[2], &source);
  if (s == SC_OK) s = sc__tensor_copy(out, c->in[0]);
  if (s == SC_OK) scatter_where(n, sc_dtype_size((sc_dtype)out->dtype), (const uint8_t *)mask->data, source->data, out->data);
  sc_tensor_release(mask);
  sc_tensor_release(source);
  return s;
}

/* masked_take(g, mask, size): the gradient of masked_scatter's source: g where the mask holds, in order, then zeros */
static sc_status take_run(sc_call *c) {
  sc_tensor *out = c->out[0], *mask, *g = NULL;
  int nd;
  int64_t dim[SC_MAX_DIMS];
  size_t z = sc_dtype_size((sc_dtype)out->dtype);
  if (!sc__broadcast(c->in[0]->ndim, c->in[0]->dim, c->in[1]->ndim, c->in[1]->dim, &nd, dim)) return sc__bad_input(c, 1, "its shape does not fit");
  SC_TRY(spread(c, 1, nd, dim, &mask));
  sc_status s = spread(c, 0, nd, dim, &g);
  int64_t n = count(mask);
  if (s == SC_OK && n > out->numel) s = sc__bad_call(c, "the mask has more places than the source elements");
  if (s == SC_OK) {
    memset(out->data, 0, (size_t)out->numel * z);
    select_where(n, z, (const uint8_t *)mask->data, g->data, out->data);
  }
  sc_tensor_release(mask);
  sc_tensor_release(g);
  return s;
}

/* ---- nonzero(x): int64 [n, ndim] ---- */
static sc_status nonzero_infer(sc_call *c) {
  sc_tensor *t;
  SC_TRY(has_data(c, 0));
  SC_TRY(truths(c, c->in[0], &t));
  c->note[0] = count(t);
  sc_tensor_release(t);
  sc__meta_set(&c->meta[0], SC_INT64, 2, (int64_t[]){c->note[0], c->in[0]->ndim});
  return SC_OK;
}

static sc_status nonzero_run(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_tensor *t;
  int nd = x->ndim;
  if (c->note[0] == 0 || nd == 0) return SC_OK;
  SC_TRY(truths(c, c->in[0], &t));
  int64_t *to = (int64_t *)c->out[0]->data, at[SC_MAX_DIMS], n = x->dim[nd - 1];
  for (int i = 0; i < nd; i++) at[i] = c->base;
  const uint8_t *b = (const uint8_t *)t->data;
  for (int64_t row = 0; row < t->numel / n; row++, b += n) {
    for (int64_t k = 0; k < n; k++) {
      if (!b[k]) continue;
      for (int i = 0; i < nd - 1; i++) *to++ = at[i];
      *to++ = k + c->base;
    }
    for (int i = nd - 2; i >= 0; i--) {
      if (++at[i] < x->dim[i] + c->base) break;
      at[i] = c->base;
    }
  }
  sc_tensor_release(t);
  return SC_OK;
}

/* ---- index(x, indices, dims), index_put(x, values, indices, dims, accumulate) ---- */

/* The indices broadcast together to `common`; they stand where the indexed dims were when those are neighbours, else in front. */
typedef struct layout {
  int n, nd, first;                                    /* indices; their common shape's dims; where those begin in the result */
  int dim[SC_MAX_DIMS];                                /* the table's dims that are indexed */
  bool indexed[SC_MAX_DIMS];
  int64_t common[SC_MAX_DIMS];
  int result_nd;
  int64_t result[SC_MAX_DIMS];
  int from[SC_MAX_DIMS];                               /* the table's dim of each of the result's; -1: of the indices */
} layout;

static sc_status lay_out(sc_call *c, int dims_slot, int first_index, int ndim, const int64_t *dim, layout *l) {
  const sc_attr *dims = &c->attr[dims_slot];
  char a[200], b[200];
  *l = (layout){.n = c->n_in - first_index};
  if (l->n < 1 || dims->n != l->n) return sc__bad_attr(c, dims_slot, "expected one dimension per index tensor");
  for (int i = 0; i < l->n; i++) {
    const sc_tensor *t = c->in[first_index + i];
    SC_TRY(sc__index_dtype(c, first_index + i, false));
    int64_t d = dims->v[i] < 0 ? dims->v[i] + ndim : dims->v[i], joint[SC_MAX_DIMS];
    if (d < 0 || d >= ndim || l->indexed[d]) return sc__bad_attr(c, dims_slot, "too many indices for %d dimensions", ndim);
    l->dim[i] = (int)d;
    l->indexed[d] = true;
    int n;
    if (!sc__broadcast(l->nd, l->common, t->ndim, t->dim, &n, joint))
      return sc__bad_call(c, "the index tensors' shapes %s and %s do not broadcast", sc__shape_text(l->nd, l->common, a, sizeof a),
                          sc__shape_text(t->ndim, t->dim, b, sizeof b));
    l->nd = n;
    memcpy(l->common, joint, (size_t)n * 8);
  }
  int low = ndim, high = -1;
  for (int d = 0; d < ndim; d++) if (l->indexed[d]) { low = d < low ? d : low; high = d; }
  if (high - low + 1 != l->n) low = 0;                 /* not neighbours */
  l->result_nd = ndim - l->n + l->nd;
  if (l->result_nd > SC_MAX_DIMS) return sc__bad_call(c, "at most %d dimensions", SC_MAX_DIMS);
  int at = 0;
  for (int d = 0; d < ndim; d++) {
    if (d == low) {
      l->first = at;
      for (int i = 0; i < l->nd; i++) { l->from[at] = -1; l->result[at++] = l->common[i]; }
    }
    if (l->indexed[d]) continue;
    l->from[at] = d;
    l->result[at++] = dim[d];
  }
  return SC_OK;
}

/* One offset into the table per position of the indices, in elements: new, int64, of the common shape. For a single index
** tensor, that itself: the walk does the rest. */
static sc_status offsets(sc_call *c, int first_index, const layout *l, const sc_tensor *table, sc_tensor **out) {
  if (l->n == 1) return sc__index_read(c, first_index, table->dim[l->dim[0]], true, out);   /* the index itself will do */
  SC_TRY(sc_tensor_new(c->ctx, SC_INT64, l->nd, l->common, out));
  int64_t *off = (int64_t *)(*out)->data, total = (*out)->numel;
  memset(off, 0, (size_t)total * 8);
  for (int i = 0; i < l->n; i++) {
    sc_tensor *index, *wide;
    int64_t n = table->dim[l->dim[i]], step = sc__stride(table)[l->dim[i]];
    SC_TRY(sc__index_read(c, first_index + i, n, true, &index));
    sc_status s = sc_tensor_new(c->ctx, SC_INT64, l->nd, l->common, &wide);
    if (s == SC_OK) {
      s = sc__tensor_copy(wide, index);
      const int64_t *v = (const int64_t *)wide->data;
      for (int64_t k = 0; k < total; k++) off[k] += (v[k] < 0 ? v[k] + n : v[k] - c->base) * step;
      sc_tensor_release(wide);
    }
    sc_tensor_release(index);
    SC_TRY(s);
  }
  return SC_OK;
}

static sc_index_walk walk_of(const layout *l, const sc_tensor *table, const sc_tensor *off, const sc_tensor *values, int64_t base) {
  sc_index_walk w = {.nd = l->result_nd, .n = 1, .step = 1, .base = 0, .index = (const int64_t *)off->data, .table = table->data,
                     .values = values->data, .indexed = -1};
  if (l->n == 1) { w.n = table->dim[l->dim[0]]; w.step = sc__stride(table)[l->dim[0]]; w.base = base; }
  int lead = l->result_nd - values->ndim;
  for (int i = 0; i < l->result_nd; i++) {
    w.dim[i] = l->result[i];
    w.is[i] = l->from[i] < 0 ? sc__stride(off)[i - l->first] : 0;
    w.xs[i] = l->from[i] < 0 ? 0 : sc__stride(table)[l->from[i]];
    w.vs[i] = i < lead || values->dim[i - lead] == 1 ? 0 : sc__stride(values)[i - lead];
  }
  return w;
}

static sc_status index_infer(sc_call *c) {
  layout l;
  SC_TRY(lay_out(c, 0, 1, c->in[0]->ndim, c->in[0]->dim, &l));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, l.result_nd, l.result);
  return SC_OK;
}

static sc_status index_run(sc_call *c) {
  layout l;
  sc_tensor *off = NULL;
  SC_TRY(lay_out(c, 0, 1, c->in[0]->ndim, c->in[0]->dim, &l));
  sc_status s = offsets(c, 1, &l, c->in[0], &off);
  if (s == SC_OK) {
    sc_index_walk w = walk_of(&l, c->in[0], off, c->out[0], c->base);
    sc__index_gather(c->ctx, &w, sc_dtype_size((sc_dtype)c->in[0]->dtype));
  }
  sc_tensor_release(off);
  return s;
}

static sc_status index_backward(sc_grad_call *g) {
  if (!g->wanted[0]) return SC_OK;
  sc_tensor *few[18], **in = g->n_in + 1 <= 18 ? few : sc__alloc(g->ctx, (size_t)(g->n_in + 1) * sizeof *in), *zeros;
  if (!in) return sc__no_memory(g->ctx, 256);
  int n;
  const int64_t *size = sc__grad_shape(g, 0, &n);
  sc_attr full[3] = {sc__ints(size, n), sc__float(0), sc__dtype((sc_dtype)g->dy[0]->dtype)};
  sc_status s = sc__grad_op(g, "full", NULL, 0, full, 3, &zeros);
  if (s == SC_OK) {
    in[0] = zeros;
    in[1] = g->dy[0];
    for (int i = 1; i < g->n_in; i++) in[i + 1] = g->in[i];
    s = sc__grad_op(g, "index_write", in, g->n_in + 1, (sc_attr[]){g->attr[0], sc__bool(true)}, 2, &g->dx[0]);
    sc_tensor_release(zeros);
  }
  if (in != few) sc__release(g->ctx, in, (size_t)(g->n_in + 1) * sizeof *in);
  return s;
}

static sc_status write_infer(sc_call *c) {
  layout l;
  const sc_tensor *x = c->in[0], *v = c->in[1];
  char a[200], b[200];
  SC_TRY(lay_out(c, 0, 2, x->ndim, x->dim, &l));
  sc__meta_like(&c->meta[0], x);
  if (v->dtype != x->dtype && !(v->flags & SC_T_WRAPPED))
    return sc__bad_input(c, 1, "expected %s as for the first, got %s", sc_dtype_name((sc_dtype)x->dtype), sc_dtype_name((sc_dtype)v->dtype));
  bool fits = v->ndim <= l.result_nd;
  for (int i = 0; i < v->ndim && fits; i++) fits = v->dim[i] == 1 || v->dim[i] == l.result[l.result_nd - v->ndim + i];
  if (!fits)
    return sc__bad_input(c, 1, "shape %s does not broadcast to the indexed places, %s", sc__shape_text(v->ndim, v->dim, a, sizeof a),
                         sc__shape_text(l.result_nd, l.result, b, sizeof b));
  return SC_OK;
}

static sc_status write_run(sc_call *c) {
  layout l;
  sc_tensor *out = c->out[0], *off = NULL, *values = NULL;
  bool convert = c->in[1]->dtype != out->dtype || (c->inplace && sc__tensor_may_overlap(c->in[1], out));
  SC_TRY(lay_out(c, 0, 2, out->ndim, out->dim, &l));
  sc_status s = offsets(c, 2, &l, out, &off);          /* checks every index first */
  if (s == SC_OK && convert) {
    s = sc_tensor_new(c->ctx, (sc_dtype)out->dtype, c->in[1]->ndim, c->in[1]->dim, &values);
    if (s == SC_OK) s = sc__tensor_copy(values, c->in[1]);
  } else if (s == SC_OK) {
    values = sc_tensor_retain(c->in[1]);
  }
  if (s == SC_OK && !c->inplace) s = sc__tensor_copy(out, c->in[0]);
  if (s == SC_OK) {
    sc_index_walk w = walk_of(&l, out, off, values, c->base);
    sc__index_scatter(c->ctx, &w, (sc_dtype)out->dtype, c->attr[1].i ? SC_COMBINE_ADD : SC_COMBINE_COPY);
  }
  sc_tensor_release(off);
  sc_tensor_release(values);
  return s;
}

static sc_status write_backward(sc_grad_call *g) {
  if (g->wanted[0] && g->attr[1].i) g->dx[0] = sc_tensor_retain(g->dy[0]);
  sc_tensor *few[18], **in = g->n_in <= 18 ? few : sc__alloc(g->ctx, (size_t)g->n_in * sizeof *in), *zero = NULL;
  if (!in) return sc__no_memory(g->ctx, 256);
  for (int i = 2; i < g->n_in; i++) in[i] = g->in[i];
  sc_status s = SC_OK;
  if (g->wanted[0] && !g->attr[1].i) {
    s = sc__tensor_scalar(g->ctx, true, 0, 0, &zero);
    in[0] = g->dy[0];
    in[1] = zero;
    if (s == SC_OK) s = sc__grad_op(g, "index_write", in, g->n_in, g->attr, 2, &g->dx[0]);
    sc_tensor_release(zero);
  }
  if (s == SC_OK && g->wanted[1]) {
    in[1] = g->dy[0];
    s = sc__grad_op(g, "index_at", in + 1, g->n_in - 1, g->attr, 1, &g->dx[1]);
  }
  if (in != few) sc__release(g->ctx, in, (size_t)g->n_in * sizeof *in);
  return s;
}

/* ---- take, put: x as a list ---- */
static sc_status flat(sc_call *c, sc_tensor *x, const char *op, sc_tensor **out) {
  return sc__op(c->ctx, op, &x, 1, (sc_attr[]){sc__ints(&x->numel, 1)}, 1, out);
}

static const int64_t FIRST[1] = {0};

static sc_status take_compose(sc_call *c) {
  sc_tensor *list;
  SC_TRY(sc__index_dtype(c, 1, false));
  SC_TRY(flat(c, c->in[0], "reshape", &list));
  sc_status s = sc__op(c->ctx, "index_at", (sc_tensor *[]){list, c->in[1]}, 2, (sc_attr[]){sc__ints(FIRST, 1)}, 1, &c->out[0]);
  sc_tensor_release(list);
  c->n_out = s == SC_OK;
  return s;
}

static sc_status put_compose(sc_call *c) {
  sc_tensor *x = c->in[0], *list = NULL, *source = NULL, *y = NULL;
  SC_TRY(sc__index_dtype(c, 1, false));
  if (c->in[1]->numel != c->in[2]->numel)
    return sc__bad_input(c, 2, "expected as many elements as there are indices, %lld, got %lld", (long long)c->in[1]->numel, (long long)c->in[2]->numel);
  SC_TRY(flat(c, x, c->inplace ? "view" : "reshape", &list));
  sc_attr like = sc__ints(c->in[1]->dim, c->in[1]->ndim);
  sc_status s = sc__op(c->ctx, "reshape", &c->in[2], 1, &like, 1, &source);
  if (s == SC_OK)
    s = sc__op(c->ctx, c->inplace ? "index_write_" : "index_write", (sc_tensor *[]){list, source, c->in[1]}, 3,
               (sc_attr[]){sc__ints(FIRST, 1), c->attr[0]}, 2, &y);
  if (s == SC_OK && c->inplace) c->out[0] = sc_tensor_retain(x);
  else if (s == SC_OK) s = sc__op(c->ctx, "reshape", &y, 1, (sc_attr[]){sc__ints(x->dim, x->ndim)}, 1, &c->out[0]);
  sc_tensor_release(list);
  sc_tensor_release(source);
  sc_tensor_release(y);
  c->n_out = s == SC_OK;
  return s;
}

const sc_op sc__ops_mask[] = {
  {"masked_fill(x, mask, value)", "A copy of x with a number where the mask is true; x and mask broadcast.\nErrors: mask is not bool.\nExample: x:masked_fill(x:lt(0), 0.0)",
   SC_OP_INPLACE | SC_OP_DIRECT, .infer = fill_infer, .run = fill_run, .over = 1, .grad = {"masked_fill(dy, mask, 0)", NULL, "sum(where(mask, dy, 0))"}},
  {"masked_select(x, mask)", "The elements of x where the mask is true, in row-major order, as a list; x and mask broadcast.\nErrors: mask is not bool.",
   0, .infer = select_infer, .run = select_run, .grad = {"masked_put(dy, mask, shape(x))"}},
  {"masked_put(g, mask, size: shape)", "masked_select's gradient.", SC_OP_INTERNAL, .infer = sized_infer, .run = put_run, .grad = {"masked_take(dy, mask, shape(g))"}},
  {"masked_scatter(x, mask, source)", "A copy of x with source's elements, one after another, where the mask is true; x and mask broadcast.\nErrors: mask is not bool; source has fewer elements or another dtype.",
   SC_OP_INPLACE, .infer = scatter_infer, .run = scatter_run, .grad = {"masked_fill(dy, mask, 0)", NULL, "masked_take(dy, mask, shape(source))"}},
  {"masked_take(g, mask, size: shape)", "The gradient of masked_scatter's source.", SC_OP_INTERNAL, .infer = sized_infer, .run = take_run,
   .grad = {"masked_put(dy, mask, shape(g))"}},
  {"argwhere(x)", "Indices of the elements that are not zero, a row each: int64 {n, dimensions}.", 0, .infer = nonzero_infer, .run = nonzero_run,
   .no_grad = "indices have no derivative"},
  {"index_at(x, indices: tensor[], dims: dim[])", "Elements of x at indices that broadcast together, one tensor per dim in dims: what x[{…}] with tensors becomes.",
   SC_OP_INTERNAL | SC_OP_SAVE_NO_OUT, .infer = index_infer, .run = index_run, .backward = index_backward, .saves = ~1u},
  {"index_write(x, values, indices: tensor[], dims: dim[], accumulate: bool = false)",
   "A copy of x with values written, or added, where index_at reads.", SC_OP_INTERNAL | SC_OP_INPLACE | SC_OP_DIRECT | SC_OP_SAVE_NO_OUT, .infer = write_infer,
   .run = write_run, .backward = write_backward, .saves = ~3u},
  {"take(x, index)", "Elements of x, seen as a list, at these indices; the result has the index's shape.\nErrors: index is not int64 or out of range.",
   0, .compose = take_compose},
  {"put(x, index, source, accumulate: bool = false)", "A copy of x with source's elements written (or added) at these indices of x seen as a list.\nErrors: as take; another number of elements; another dtype.",
   SC_OP_INPLACE, .compose = put_compose},
};
const int sc__ops_mask_count = SC_COUNT(sc__ops_mask);
