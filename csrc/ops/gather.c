/* Reading and writing along one dimension through an index tensor: gather and the scatters (an index as large as the values), and
** the index_ ops (a list of indices for a whole dimension). All of them are one walk of kernels/index.c.
**
** Indices are checked as a whole before anything is written. Repeated indices are combined in row-major order. */
#include "../kernels/index.h"
#include "gather.h"
#include "ops.h"

#include <math.h>
#include <string.h>

static int rank(const sc_tensor *t) { return t->ndim ? t->ndim : 1; }   /* a number counts as a list of one */
static int64_t size_of(const sc_tensor *t, int d) { return t->ndim ? t->dim[d] : 1; }
static int64_t stride_of(const sc_tensor *t, int d) { return t->ndim ? sc__stride(t)[d] : 0; }

/* ---- index tensors ---- */

sc_status sc__index_dtype(sc_call *c, int slot, bool also_int32) {
  sc_dtype d = (sc_dtype)c->in[slot]->dtype;
  if (d == SC_INT64 || (also_int32 && d == SC_INT32) || c->in[slot]->numel == 0) return SC_OK;
  return sc__bad_input(c, slot, "expected an int64 tensor%s of indices, got %s", also_int32 ? " (or int32)" : "", sc_dtype_name(d));
}

sc_status sc__index_read(sc_call *c, int slot, int64_t n, bool negative, sc_tensor **packed) {
  sc_tensor *t = c->in[slot];
  bool ours = t->dtype == SC_INT64 && t->contiguous && !(c->inplace && sc__tensor_may_overlap(t, c->in[0]));
  if (ours) *packed = sc_tensor_retain(t);
  else SC_TRY(sc_tensor_new(c->ctx, SC_INT64, t->ndim, t->dim, packed));
  sc_status s = ours ? SC_OK : sc__tensor_copy(*packed, t);
  const int64_t *v = (const int64_t *)(*packed)->data;
  int64_t count = (*packed)->numel, base = c->base, bad = 0;
  for (int64_t i = 0; i < count; i++) bad |= (uint64_t)v[i] - (uint64_t)base >= (uint64_t)n && !(negative && v[i] < 0 && v[i] >= -n);
  for (int64_t i = 0; i < count && bad && s == SC_OK; i++) {
    if ((uint64_t)v[i] - (uint64_t)base < (uint64_t)n || (negative && v[i] < 0 && v[i] >= -n)) continue;
    if (n == 0) s = sc__bad_input(c, slot, "index %lld is out of range: the dimension is empty", (long long)v[i]);
    else s = sc__bad_input(c, slot, "index %lld is out of range %lld..%lld", (long long)v[i], (long long)base, (long long)(n - 1 + base));
  }
  if (s != SC_OK) { sc_tensor_release(*packed); *packed = NULL; }
  return s;
}

/* t in that dtype, packed enough to be read while `out` is written: new. */
static sc_status readable(sc_call *c, sc_tensor *t, sc_dtype dtype, sc_tensor **out) {
  if ((sc_dtype)t->dtype == dtype && !(c->inplace && sc__tensor_may_overlap(t, c->in[0]))) { *out = sc_tensor_retain(t); return SC_OK; }
  SC_TRY(sc_tensor_new(c->ctx, dtype, t->ndim, t->dim, out));
  return sc__tensor_copy(*out, t);
}

/* Positions with the sizes of `shape`; list: the index is one-dimensional, along d. values may be NULL. */
static sc_index_walk walk_along(const sc_call *c, const sc_tensor *table, int d, const sc_tensor *index, bool list, int nd,
                                const int64_t *dim, const sc_tensor *values) {
  sc_index_walk w = {.nd = nd, .n = size_of(table, d), .step = table->ndim ? sc__stride(table)[d] : 1, .base = c->base, .indexed = d,
                     .index = (const int64_t *)index->data, .table = table->data, .values = values ? values->data : NULL};
  for (int i = 0; i < nd; i++) {
    w.dim[i] = dim[i];
    w.is[i] = list ? i == d : stride_of(index, i);
    w.xs[i] = i == d ? 0 : stride_of(table, i);
    w.vs[i] = values ? stride_of(values, i) : 0;
  }
  return w;
}

/* ---- gather(x, dim, index) ---- */

/* The index must lie within x in all dims but d. */
static sc_status fits(sc_call *c, int slot, const sc_tensor *outer, int d) {
  const sc_tensor *index = c->in[slot];
  char a[200], b[200];
  bool ok = rank(index) == rank(outer);
  for (int i = 0; i < rank(index) && ok; i++) ok = i == d || size_of(index, i) <= size_of(outer, i);
  if (ok) return SC_OK;
  return sc__bad_input(c, slot, "shape %s does not fit %s", sc__shape_text(index->ndim, index->dim, a, sizeof a),
                       sc__shape_text(outer->ndim, outer->dim, b, sizeof b));
}

static sc_status gather_infer(sc_call *c) {
  int d;
  SC_TRY(sc__index_dtype(c, 1, false));
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &d));
  SC_TRY(fits(c, 1, c->in[0], d));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->in[1]->ndim, c->in[1]->dim);
  return SC_OK;
}

static const int64_t ONE[1] = {1};
static const int64_t *sizes(const sc_tensor *t) { return t->ndim ? t->dim : ONE; }

static sc_status gather_run(sc_call *c) {
  int d;
  sc_tensor *x = c->in[0], *index;
  SC_TRY(sc__dim(c, 0, x->ndim, &d));
  SC_TRY(sc__index_read(c, 1, size_of(x, d), false, &index));
  sc_index_walk w = walk_along(c, x, d, index, false, rank(index), sizes(index), c->out[0]);
  sc__index_gather(c->ctx, &w, sc_dtype_size((sc_dtype)x->dtype));
  sc_tensor_release(index);
  return SC_OK;
}

static void clear(sc_tensor *t) { memset(t->data, 0, (size_t)t->numel * sc_dtype_size((sc_dtype)t->dtype)); }

/* gather_backward(dy, index, size, dim): dy added into zeros */
static sc_status sized_infer(sc_call *c) {
  if (c->attr[0].n > SC_MAX_DIMS) return sc__bad_attr(c, 0, "at most %d dimensions", SC_MAX_DIMS);
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->attr[0].n, c->attr[0].v);
  return sc__index_dtype(c, 1, true);
}

static sc_status gather_backward_run(sc_call *c) {
  int d;
  sc_tensor *out = c->out[0], *index;
  SC_TRY(sc__dim(c, 1, out->ndim, &d));
  if (rank(c->in[0]) != rank(out)) return sc__bad_input(c, 0, "its dimensions do not fit");
  SC_TRY(fits(c, 1, out, d));
  for (int i = 0; i < rank(out); i++)
    if (size_of(c->in[0], i) != size_of(c->in[1], i)) return sc__bad_input(c, 0, "its shape is not the index's");
  SC_TRY(sc__index_read(c, 1, size_of(out, d), false, &index));
  clear(out);
  sc_index_walk w = walk_along(c, out, d, index, false, rank(index), sizes(index), c->in[0]);
  sc__index_scatter(c->ctx, &w, (sc_dtype)out->dtype, SC_COMBINE_ADD);
  sc_tensor_release(index);
  return SC_OK;
}

/* ---- scatters: x, index, src; attr[0] dim ---- */

static sc_status scatter_shapes(sc_call *c) {
  const sc_tensor *x = c->in[0], *index = c->in[1], *src = c->in[2];
  int d;
  SC_TRY(sc__index_dtype(c, 1, false));
  SC_TRY(sc__dim(c, 0, x->ndim, &d));
  sc__meta_like(&c->meta[0], x);
  bool number = (src->flags & SC_T_WRAPPED) != 0;
  if (!number && src->dtype != x->dtype)
    return sc__bad_input(c, 2, "expected %s as for the first, got %s", sc_dtype_name((sc_dtype)x->dtype), sc_dtype_name((sc_dtype)src->dtype));
  if (index->numel == 0) return SC_OK;
  SC_TRY(fits(c, 1, x, d));
  if (!number) SC_TRY(fits(c, 1, src, -1));
  return SC_OK;
}

/* Whether the tensor written to counts: where it does not, the places named by the index begin with the operation's neutral value. */
static sc_status scatter_with(sc_call *c, sc_combine_kind kind, bool include_self, sc_tensor **kept_index) {
  int d;
  sc_tensor *x = c->in[0], *out = c->out[0], *index, *src = NULL;
  sc_dtype t = (sc_dtype)x->dtype;
  SC_TRY(sc__dim(c, 0, x->ndim, &d));
  if (c->in[1]->numel == 0) return c->inplace ? SC_OK : sc__tensor_copy(out, x);
  SC_TRY(sc__index_read(c, 1, size_of(x, d), false, &index));
  sc_status s = readable(c, c->in[2], t, &src);
  if (s == SC_OK && !c->inplace) s = sc__tensor_copy(out, x);
  if (s == SC_OK) {
    sc_index_walk w = walk_along(c, out, d, index, false, rank(index), sizes(index), src);
    if (src->ndim == 0 && index->ndim) for (int i = 0; i < w.nd; i++) w.vs[i] = 0;
    if (!include_self) {
      sc_index_walk first = w;
      char neutral[8];
      double v = kind == SC_COMBINE_MUL ? 1 : 0;
      if (kind == SC_COMBINE_MAX) v = sc__is_float(t) || t == SC_BOOL ? -INFINITY : -ldexp(1, 8 * (int)sc_dtype_size(t) - 1);
      if (kind == SC_COMBINE_MIN) v = INFINITY;
      if (t == SC_BOOL || !sc__is_float(t)) {
        bool is_unsigned = t == SC_UINT8 || t == SC_UINT16 || t == SC_UINT32 || t == SC_UINT64 || t == SC_BOOL;
        int bits = 8 * (int)sc_dtype_size(t);
        int64_t lowest = is_unsigned ? 0 : (int64_t)(UINT64_MAX << (bits - 1)), highest = t == SC_BOOL ? 1 : is_unsigned ? -1 : ~lowest;
        sc__store(t, neutral, sc__scalar_int(kind == SC_COMBINE_MAX ? lowest : kind == SC_COMBINE_MIN ? highest : (int64_t)v));
      } else {
        sc__store(t, neutral, sc__scalar_float(v));
      }
      first.values = neutral;
      for (int i = 0; i < w.nd; i++) first.vs[i] = 0;
      sc__index_scatter(c->ctx, &first, t, SC_COMBINE_COPY);
    }
    sc__index_scatter(c->ctx, &w, t, kind);
  }
  sc_tensor_release(src);
  if (kept_index && s == SC_OK) *kept_index = index; else sc_tensor_release(index);
  return s;
}

static sc_status scatter_infer(sc_call *c) {
  if (sc__has(c, 1) && strcmp(c->attr[1].s, "add") != 0 && strcmp(c->attr[1].s, "multiply") != 0)
    return sc__bad_attr(c, 1, "expected \"add\" or \"multiply\", got \"%s\"", c->attr[1].s);
  return scatter_shapes(c);
}

static sc_status scatter_run(sc_call *c) {
  sc_combine_kind k = !sc__has(c, 1) ? SC_COMBINE_COPY : strcmp(c->attr[1].s, "add") == 0 ? SC_COMBINE_ADD : SC_COMBINE_MUL;
  return scatter_with(c, k, true, NULL);
}

static sc_status scatter_backward(sc_grad_call *g) {
  const sc_attr *reduce = &g->attr[1];
  bool adds = reduce->kind != SC_ATTR_NONE && strcmp(reduce->s, "add") == 0;
  if (reduce->kind != SC_ATTR_NONE && !adds)
    return sc__fail(g->ctx, SC_EINVAL, "scatter: reduce = \"multiply\" has no gradient; use scatter_reduce with \"prod\"");
  if (g->wanted[0] && adds) g->dx[0] = sc_tensor_retain(g->dy[0]);
  if (g->wanted[0] && !adds) {
    sc_tensor *zero;
    SC_TRY(sc__tensor_scalar(g->ctx, true, 0, 0, &zero));
    sc_status s = sc__grad_op(g, "scatter", (sc_tensor *[]){g->dy[0], g->in[1], zero}, 3, g->attr, 1, &g->dx[0]);
    sc_tensor_release(zero);
    SC_TRY(s);
  }
  if (!g->wanted[2]) return SC_OK;
  int n;
  const int64_t *size = sc__grad_shape(g, 2, &n);
  return sc__grad_op(g, "scatter_src_backward", (sc_tensor *[]){g->dy[0], g->in[1]}, 2, (sc_attr[]){sc__ints(size, n), g->attr[0]}, 2, &g->dx[2]);
}

/* scatter_src_backward(dy, index, size, dim): what gather reads, in zeros of the source's size (a source may be larger than the index) */
static sc_status src_backward_run(sc_call *c) {
  int d;
  sc_tensor *dy = c->in[0], *out = c->out[0], *index;
  SC_TRY(sc__dim(c, 1, dy->ndim, &d));
  clear(out);
  if (c->in[1]->numel == 0) return SC_OK;
  SC_TRY(fits(c, 1, dy, d));
  SC_TRY(fits(c, 1, out, -1));
  SC_TRY(sc__index_read(c, 1, size_of(dy, d), false, &index));
  sc_index_walk w = walk_along(c, dy, d, index, false, rank(index), sizes(index), out);
  sc__index_gather(c->ctx, &w, sc_dtype_size((sc_dtype)dy->dtype));
  sc_tensor_release(index);
  return SC_OK;
}

/* The gradient of that: what was read is written back. */
static sc_status src_backward_backward(sc_grad_call *g) {
  int n;
  const int64_t *s = sc__grad_shape(g, 0, &n);
  sc_tensor *part;
  sc_attr region[2] = {sc__ints(g->in[1]->dim, g->in[1]->ndim), sc__none()};
  if (!g->wanted[0]) return SC_OK;
  SC_TRY(sc__grad_op(g, "crop", &g->dy[0], 1, region, 1, &part));
  sc_status status = sc__grad_op(g, "gather_backward", (sc_tensor *[]){part, g->in[1]}, 2, (sc_attr[]){sc__ints(s, n), g->attr[1]}, 2, &g->dx[0]);
  sc_tensor_release(part);
  return status;
}

/* crop(x, size): the leading corner of x */
static sc_status crop_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  sc__meta_like(m, x);
  m->offset = 0;
  if (c->attr[0].n != x->ndim) return sc__bad_attr(c, 0, "expected %d sizes", x->ndim);
  for (int i = 0; i < x->ndim; i++) {
    m->dim[i] = c->attr[0].v[i];
    m->stride[i] = sc__stride(x)[i];
    if (m->dim[i] < 0 || m->dim[i] > x->dim[i]) return sc__bad_attr(c, 0, "the part does not fit");
  }
  return SC_OK;
}

static sc_status crop_backward(sc_grad_call *g) {
  int n;
  int64_t pad[2 * SC_MAX_DIMS];
  const int64_t *s = sc__grad_shape(g, 0, &n);
  for (int i = 0; i < n; i++) { pad[2 * (n - 1 - i)] = 0; pad[2 * (n - 1 - i) + 1] = s[i] - g->dy[0]->dim[i]; }
  return sc__grad_op(g, "constant_pad", &g->dy[0], 1, (sc_attr[]){sc__ints(pad, 2 * n), sc__int(0)}, 2, &g->dx[0]);
}

static sc_status add_run(sc_call *c) { return scatter_with(c, SC_COMBINE_ADD, true, NULL); }
static sc_status sum_run(sc_call *c) { return scatter_with(c, SC_COMBINE_ADD, c->attr[1].i, NULL); }
static sc_status prod_run(sc_call *c) { return scatter_with(c, SC_COMBINE_MUL, c->attr[1].i, NULL); }
static sc_status amax_run(sc_call *c) { return scatter_with(c, SC_COMBINE_MAX, c->attr[1].i, NULL); }
static sc_status amin_run(sc_call *c) { return scatter_with(c, SC_COMBINE_MIN, c->attr[1].i, NULL); }

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }     /* b > 0 */

/* Sums, then each place divided by how many values met there; integers round down. */
static sc_status mean_run(sc_call *c) {
  sc_tensor *index = NULL, *out = c->out[0], *count;
  sc_meta m;
  int d;
  sc__meta_set(&m, SC_INT64, out->ndim, out->dim);
  SC_TRY(sc__tensor_like_meta(c->ctx, c->op->name, &m, &count));
  sc_status s = scatter_with(c, SC_COMBINE_ADD, c->attr[1].i, &index);
  if (s == SC_OK && index) {
    int64_t one = 1, self = c->attr[1].i ? 1 : 0, *n = (int64_t *)count->data, k = 0;
    for (int64_t i = 0; i < count->numel; i++) n[i] = self;
    s = sc__dim(c, 0, out->ndim, &d);
    sc_index_walk w = walk_along(c, count, d, index, false, rank(index), sizes(index), NULL);
    w.values = (char *)&one;
    sc__index_scatter(c->ctx, &w, SC_INT64, SC_COMBINE_ADD);
    int64_t at[SC_MAX_DIMS] = {0}, z = (int64_t)sc_dtype_size((sc_dtype)out->dtype), o = 0;
    for (k = 0; k < count->numel; k++) {
      if (n[k] > 1) {
        sc_scalar v = sc__load((sc_dtype)out->dtype, out->data + o * z);
        if (!v.is_int) v.f /= (double)n[k];
        else if (v.is_unsigned) v.i = (int64_t)((uint64_t)v.i / (uint64_t)n[k]);
        else v.i = floor_div(v.i, n[k]);
        sc__store((sc_dtype)out->dtype, out->data + o * z, v);
      }
      for (int i = out->ndim - 1; i >= 0; i--) {
        o += sc__stride(out)[i];
        if (++at[i] < out->dim[i]) break;
        o -= sc__stride(out)[i] * out->dim[i];
        at[i] = 0;
      }
    }
  }
  sc_tensor_release(index);
  sc_tensor_release(count);
  return s;
}

/* Which of the rows below a reduction's word means. */
static const char *reduction(sc_call *c, int slot, bool sum) {
  static const char *const WORDS[] = {"sum", "prod", "mean", "amax", "amin"};
  static const char *const OPS[][2] = {{"scatter_sum", "scatter_sum_"}, {"scatter_prod", "scatter_prod_"}, {"scatter_mean", "scatter_mean_"},
                                       {"scatter_amax", "scatter_amax_"}, {"scatter_amin", "scatter_amin_"}};
  for (int i = sum ? 0 : 1; i < SC_COUNT(WORDS); i++) if (strcmp(c->attr[slot].s, WORDS[i]) == 0) return OPS[i][c->inplace];
  return NULL;
}

static sc_status scatter_reduce_compose(sc_call *c) {
  const char *name = reduction(c, 1, true);
  if (!name) return sc__bad_attr(c, 1, "expected \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\", got \"%s\"", c->attr[1].s);
  sc_tensor *index = c->in[1], *src = c->in[2], *part = NULL;
  sc_meta like, *was = c->meta;
  c->meta = &like;
  sc_status s = scatter_shapes(c);
  c->meta = was;
  SC_TRY(s);
  if (src->ndim == index->ndim && src->ndim && memcmp(src->dim, index->dim, (size_t)src->ndim * 8) != 0 && index->numel) {
    SC_TRY(sc__op(c->ctx, "crop", &src, 1, (sc_attr[]){sc__ints(index->dim, index->ndim)}, 1, &part));   /* what lies beyond the index takes no part */
    src = part;
  }
  s = sc__op(c->ctx, name, (sc_tensor *[]){c->in[0], index, src}, 3, (sc_attr[]){c->attr[0], c->attr[2]}, 2, &c->out[0]);
  sc_tensor_release(part);
  c->n_out = s == SC_OK;
  return s;
}

/* ---- the index_ ops: x, index (a list), source; attr[0] dim ---- */

static sc_status list_infer(sc_call *c, int slot, bool also_int32) {
  if (c->in[slot]->ndim > 1) return sc__bad_input(c, slot, "expected a list of indices, got %d dimensions", c->in[slot]->ndim);
  return sc__index_dtype(c, slot, also_int32);
}

static sc_status index_select_infer(sc_call *c) {
  int d;
  SC_TRY(list_infer(c, 1, true));
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &d));
  sc__meta_like(&c->meta[0], c->in[0]);
  if (c->in[0]->ndim) c->meta[0].dim[d] = c->in[1]->numel;
  else if (c->in[1]->numel != 1) return sc__bad_input(c, 1, "a number has one element, got %lld indices", (long long)c->in[1]->numel);
  return SC_OK;
}

static sc_status select_with(sc_call *c, bool negative) {
  int d;
  sc_tensor *x = c->in[0], *index;
  SC_TRY(sc__dim(c, 0, x->ndim, &d));
  SC_TRY(sc__index_read(c, 1, size_of(x, d), negative, &index));
  sc_index_walk w = walk_along(c, x, d, index, true, rank(x), sizes(c->out[0]), c->out[0]);
  sc__index_gather(c->ctx, &w, sc_dtype_size((sc_dtype)x->dtype));
  sc_tensor_release(index);
  return SC_OK;
}

static sc_status index_select_run(sc_call *c) { return select_with(c, false); }
static sc_status index_read_run(sc_call *c) { return select_with(c, true); }

/* x gets `source` at the places of the list; both as large as `dim` says. Takes nothing. */
static sc_status list_write(sc_call *c, sc_tensor *out, int d, bool negative, sc_tensor *source, int nd, const int64_t *dim, sc_combine_kind kind) {
  sc_tensor *index, *src;
  SC_TRY(sc__index_read(c, 1, size_of(out, d), negative, &index));
  sc_status s = readable(c, source, (sc_dtype)out->dtype, &src);
  if (s == SC_OK && out != c->in[0] && c->op->n_in > 2) s = sc__tensor_copy(out, c->in[0]);
  if (s == SC_OK) {
    sc_index_walk w = walk_along(c, out, d, index, true, nd, dim, src);
    sc__index_scatter(c->ctx, &w, (sc_dtype)out->dtype, kind);
    sc_tensor_release(src);
  }
  sc_tensor_release(index);
  return s;
}

static sc_status index_select_backward_run(sc_call *c) {
  int d;
  sc_tensor *out = c->out[0], *dy = c->in[0];
  SC_TRY(sc__dim(c, 1, out->ndim, &d));
  bool ok = rank(dy) == rank(out);
  for (int i = 0; i < rank(dy) && ok; i++) ok = size_of(dy, i) == (i == d ? c->in[1]->numel : size_of(out, i));
  if (!ok) return sc__bad_input(c, 0, "its shape does not fit");
  clear(out);
  return list_write(c, out, d, true, dy, rank(dy), sizes(dy), SC_COMBINE_ADD);
}

static sc_status index_copy_run(sc_call *c);

/* x, index, source */
static sc_status index_source_infer(sc_call *c) {
  const sc_tensor *x = c->in[0], *src = c->in[2];
  int d;
  char a[200], b[200];
  SC_TRY(list_infer(c, 1, c->op->def->run != index_copy_run));
  SC_TRY(sc__dim(c, 0, x->ndim, &d));
  sc__meta_like(&c->meta[0], x);
  if (src->dtype != x->dtype)
    return sc__bad_input(c, 2, "expected %s as for the first, got %s", sc_dtype_name((sc_dtype)x->dtype), sc_dtype_name((sc_dtype)src->dtype));
  bool ok = rank(x) == rank(src);
  for (int i = 0; i < rank(x) && ok; i++) ok = size_of(src, i) == (i == d ? c->in[1]->numel : size_of(x, i));
  if (!ok)
    return sc__bad_input(c, 2, "shape %s does not fit %lld indices into %s", sc__shape_text(src->ndim, src->dim, a, sizeof a),
                         (long long)c->in[1]->numel, sc__shape_text(x->ndim, x->dim, b, sizeof b));
  return SC_OK;
}

static sc_status index_copy_run(sc_call *c) {
  int d;
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &d));
  return list_write(c, c->out[0], d, false, c->in[2], rank(c->in[2]), sizes(c->in[2]), SC_COMBINE_COPY);
}

static sc_status index_add_run(sc_call *c) {
  int d;
  sc_tensor *source = c->in[2], *scaled = NULL;
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &d));
  if (sc__number(&c->attr[1]) != 1) {                  /* alpha, in the tensor's own dtype */
    sc_tensor *alpha;
    bool was = c->ctx->grad_enabled, whole = c->attr[1].kind != SC_ATTR_FLOAT;
    if (!whole && !sc__is_float((sc_dtype)source->dtype))
      return sc__bad_attr(c, 1, "%s needs an integer", sc_dtype_name((sc_dtype)source->dtype));
    SC_TRY(sc__tensor_scalar(c->ctx, whole, c->attr[1].i, sc__number(&c->attr[1]), &alpha));
    c->ctx->grad_enabled = false;
    sc_status s = sc__op2(c->ctx, "mul", source, alpha, &scaled);
    c->ctx->grad_enabled = was;
    sc_tensor_release(alpha);
    SC_TRY(s);
    source = scaled;
  }
  sc_status s = list_write(c, c->out[0], d, false, source, rank(source), sizes(source), SC_COMBINE_ADD);
  sc_tensor_release(scaled);
  return s;
}

static sc_status index_fill_infer(sc_call *c) {
  int d;
  SC_TRY(list_infer(c, 1, false));
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &d));
  if (c->in[2]->ndim) return sc__bad_input(c, 2, "expected a number, got %d dimensions", c->in[2]->ndim);
  sc__meta_like(&c->meta[0], c->in[0]);
  return SC_OK;
}

static sc_status index_fill_run(sc_call *c) {
  const sc_tensor *x = c->in[0];
  int d;
  int64_t dim[SC_MAX_DIMS];
  SC_TRY(sc__dim(c, 0, x->ndim, &d));
  memcpy(dim, sizes(x), (size_t)rank(x) * 8);
  dim[d] = c->in[1]->numel;
  return list_write(c, c->out[0], d, true, c->in[2], rank(x), dim, SC_COMBINE_COPY);
}

static sc_status index_reduce_compose(sc_call *c) {
  const char *name = reduction(c, 1, false);
  if (!name) return sc__bad_attr(c, 1, "expected \"prod\", \"mean\", \"amax\" or \"amin\", got \"%s\"", c->attr[1].s);
  const sc_tensor *src = c->in[2];
  sc_meta like;
  sc_meta *was = c->meta;
  int d;
  c->meta = &like;
  sc_status s = index_source_infer(c);                 /* the same checks */
  c->meta = was;
  SC_TRY(s);
  SC_TRY(sc__dim(c, 0, src->ndim, &d));
  sc_tensor *index = NULL, *wide = NULL, *full = NULL;
  int64_t dim[SC_MAX_DIMS];
  for (int i = 0; i < src->ndim; i++) dim[i] = i == d ? c->in[1]->numel : 1;
  s = sc__op(c->ctx, "to", &c->in[1], 1, (sc_attr[]){sc__dtype(SC_INT64)}, 1, &index);
  if (s == SC_OK) s = sc__op(c->ctx, "reshape", &index, 1, (sc_attr[]){sc__ints(dim, src->ndim)}, 1, &wide);
  if (s == SC_OK) s = sc__op(c->ctx, "expand", &wide, 1, (sc_attr[]){sc__ints(src->dim, src->ndim)}, 1, &full);
  if (s == SC_OK) s = sc__op(c->ctx, name, (sc_tensor *[]){c->in[0], full, c->in[2]}, 3, (sc_attr[]){c->attr[0], c->attr[2]}, 2, &c->out[0]);
  sc_tensor_release(index);
  sc_tensor_release(wide);
  sc_tensor_release(full);
  c->n_out = s == SC_OK;
  return s;
}

/* drop_written(x, index, dim, include_self): what is left of x's part when the places written to do not count */
static sc_status drop_written_compose(sc_call *c) {
  c->n_out = 1;
  if (c->attr[1].i) { c->out[0] = sc_tensor_retain(c->in[0]); return SC_OK; }
  sc_tensor *zero;
  SC_TRY(sc__tensor_scalar(c->ctx, true, 0, 0, &zero));
  sc_status s = sc__op(c->ctx, "scatter", (sc_tensor *[]){c->in[0], c->in[1], zero}, 3, c->attr, 1, &c->out[0]);
  sc_tensor_release(zero);
  c->n_out = s == SC_OK;
  return s;
}

#define INPLACE (SC_OP_INPLACE | SC_OP_DIRECT)
#define REDUCED(op) "scatter_" op "(x, dim: dim, index, src, include_self: bool = true)"
/* How many values met at each place, for gradients that are shared out. */
#define COUNT_MEAN "scatter_add(drop_written(where(eq(x, x), 1.0, 1.0), index, dim, include_self), dim, index, where(eq(src, src), 1.0, 1.0))"
#define COUNT_TIES \
  "scatter_add(drop_written(where(eq(x, y), 1.0, 0.0), index, dim, include_self), dim, index, where(eq(src, gather(y, dim, index)), 1.0, 0.0))"
#define TIES {"drop_written(where(eq(x, y), dy / " COUNT_TIES ", 0), index, dim, include_self)", NULL, \
              "where(eq(src, gather(y, dim, index)), gather(dy / " COUNT_TIES ", dim, index), 0)"}
#define SRC_OR_1 "where(eq(src, 0), 1, src)"

const sc_op sc__ops_gather[] = {
  {"gather(x, dim: dim, index, sparse_grad: bool = false)",
   "Values of x at the indices given along dim; the result has the index's shape.\nErrors: index is not int64, larger than x in another dimension, or holds a value that is out of range.\nExample: sc.tensor{{1, 2}, {3, 4}}:gather(2, sc.tensor{{1}, {2}})",
   0, .infer = gather_infer, .run = gather_run, .grad = {"gather_backward(dy, index, shape(x), dim)"}},
  {"gather_backward(dy, index, size: shape, dim: dim)", "gather's gradient.", SC_OP_INTERNAL, .infer = sized_infer, .run = gather_backward_run,
   .grad = {"gather(dy, dim, index)"}},
  {"scatter(x, dim: dim, index, src, reduce: str?)",
   "A copy of x with src (a tensor or a number) written at the indices given along dim. reduce: \"add\" or \"multiply\" combines instead. The last of repeated indices wins.\nErrors: as gather; src has another dtype or is smaller than the index.",
   INPLACE, .infer = scatter_infer, .run = scatter_run, .backward = scatter_backward, .saves = 2},
  {"scatter_src_backward(dy, index, size: shape, dim: dim)", "The gradient of a scatter's source.", SC_OP_INTERNAL, .infer = sized_infer,
   .run = src_backward_run, .backward = src_backward_backward, .saves = 2},
  {"crop(x, size: shape)", "The leading corner of x, as a view.", SC_OP_VIEW | SC_OP_INTERNAL | SC_OP_SAVE_NO_IN | SC_OP_SAVE_NO_OUT, .infer = crop_infer,
   .backward = crop_backward},
  {"scatter_add(x, dim: dim, index, src)", "A copy of x with src added at the indices given along dim; repeated indices add up.\nErrors: as scatter.",
   INPLACE, .infer = scatter_shapes, .run = add_run, .grad = {"dy", NULL, "scatter_src_backward(dy, index, shape(src), dim)"}},
  {"scatter_reduce(x, dim: dim, index, src, reduce: str, include_self: bool = true)",
   "A copy of x with src combined in at the indices given along dim: \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\". Without include_self, x's own values at those places do not count.\nErrors: as scatter.",
   SC_OP_INPLACE, .compose = scatter_reduce_compose},
  {REDUCED("sum"), "scatter_reduce with \"sum\".", INPLACE | SC_OP_INTERNAL, .infer = scatter_shapes, .run = sum_run,
   .grad = {"drop_written(dy, index, dim, include_self)", NULL, "scatter_src_backward(dy, index, shape(src), dim)"}},
  {REDUCED("prod"), "scatter_reduce with \"prod\".", INPLACE | SC_OP_INTERNAL, .infer = scatter_shapes, .run = prod_run,
   .grad = {"drop_written(dy * scatter_prod(where(eq(x, 0), 1, x), dim, index, src, include_self) / where(eq(x, 0), 1, x), index, dim, include_self)",
            NULL,
            "where(eq(src, 0), where(eq(gather(scatter_add(where(eq(x, 0), 0.0, 0.0), dim, index, where(eq(src, 0), 1.0, 0.0)), dim, index), 1), "
            "gather(dy * scatter_prod(x, dim, index, " SRC_OR_1 ", include_self), dim, index), 0), gather(dy * y, dim, index) / " SRC_OR_1 ")"}},
  {REDUCED("mean"), "scatter_reduce with \"mean\".", INPLACE | SC_OP_INTERNAL, .infer = scatter_shapes, .run = mean_run,
   .grad = {"drop_written(dy, index, dim, include_self) / " COUNT_MEAN, NULL, "gather(dy / " COUNT_MEAN ", dim, index)"}},
  {REDUCED("amax"), "scatter_reduce with \"amax\"; ties share the gradient.", INPLACE | SC_OP_INTERNAL, .infer = scatter_shapes, .run = amax_run, .grad = TIES},
  {REDUCED("amin"), "scatter_reduce with \"amin\"; ties share the gradient.", INPLACE | SC_OP_INTERNAL, .infer = scatter_shapes, .run = amin_run, .grad = TIES},
  {"drop_written(x, index, dim: dim, include_self: bool)", "x with zeros at the indices, unless include_self.", SC_OP_INTERNAL, .compose = drop_written_compose},

  {"index_select(x, dim: dim, index)", "The parts of x at a list of indices of a dimension.\nErrors: index is not int64 or int32, not a list, or out of range.\nExample: x:index_select(1, sc.tensor{3, 1})",
   0, .infer = index_select_infer, .run = index_select_run, .grad = {"index_select_backward(dy, index, shape(x), dim)"}},
  {"index_read(x, dim: dim, index)", "index_select with negative indices, too.", SC_OP_INTERNAL, .infer = index_select_infer, .run = index_read_run,
   .grad = {"index_select_backward(dy, index, shape(x), dim)"}},
  {"index_select_backward(dy, index, size: shape, dim: dim)", "index_select's gradient.", SC_OP_INTERNAL, .infer = sized_infer,
   .run = index_select_backward_run, .grad = {"index_read(dy, dim, index)"}},
  {"index_add(x, dim: dim, index, source, alpha: number = 1)",
   "A copy of x with alpha * source added to its parts at a list of indices of a dimension; repeated indices add up.\nErrors: as index_select; source does not have x's shape with the list's length at dim.",
   INPLACE, .infer = index_source_infer, .run = index_add_run, .grad = {"dy", NULL, "index_select(dy, dim, index) * alpha"}},
  {"index_copy(x, dim: dim, index, source)", "A copy of x with its parts at a list of indices of a dimension replaced by source's.\nErrors: as index_add.",
   INPLACE, .infer = index_source_infer, .run = index_copy_run, .grad = {"index_fill(dy, dim, index, 0)", NULL, "index_select(dy, dim, index)"}},
  {"index_fill(x, dim: dim, index, value)", "A copy of x with its parts at a list of indices of a dimension set to a number.\nErrors: as index_select.",
   INPLACE, .infer = index_fill_infer, .run = index_fill_run, .grad = {"index_fill(dy, dim, index, 0)", NULL, "sum(index_read(dy, dim, index))"}},
  {"index_reduce(x, dim: dim, index, source, reduce: str, include_self: bool = true)",
   "A copy of x with source combined into its parts at a list of indices: \"prod\", \"mean\", \"amax\" or \"amin\".\nErrors: as index_add.",
   SC_OP_INPLACE, .compose = index_reduce_compose},
};
const int sc__ops_gather_count = SC_COUNT(sc__ops_gather);
