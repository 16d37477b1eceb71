/* Views: ops whose result shares the input's storage, and the few that put a view's gradient back. */
#include "ops.h"

#include <string.h>

static void view_of(sc_meta *m, const sc_tensor *t) {
  sc__meta_like(m, t);
  memcpy(m->stride, sc__stride(t), (size_t)t->ndim * 8);
  m->offset = 0;
}

/* ---- expand(x, size) ---- */
static sc_status expand_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  const sc_attr *size = &c->attr[0];
  sc_meta *m = &c->meta[0];
  char a[200];
  if (size->n < x->ndim || size->n > SC_MAX_DIMS)
    return sc__bad_attr(c, 0, "expected at least %d sizes, got %d", x->ndim, size->n);
  m->dtype = (sc_dtype)x->dtype;
  m->ndim = size->n;
  m->offset = 0;
  for (int i = 0; i < size->n; i++) {
    int d = i - (size->n - x->ndim);
    int64_t want = size->v[i], have = d < 0 ? 1 : x->dim[d];
    if (want == -1 && d >= 0) want = have;
    if (want < 0 || (have != want && have != 1))
      return sc__bad_attr(c, 0, "size %lld at dimension %d does not fit the shape %s", (long long)want, i + c->ctx->index_base,
                          sc__shape_text(x->ndim, x->dim, a, sizeof a));
    m->dim[i] = want;
    m->stride[i] = have == 1 && want != 1 ? 0 : d < 0 ? 0 : sc__stride(x)[d];
  }
  int64_t numel;
  return sc__numel(c->ctx, c->op->name, m->dtype, m->ndim, m->dim, &numel);
}

/* ---- unreduce(dy, size, dim, keepdim): expands a reduction's gradient over the dims that were reduced; size: of the input ---- */
static sc_status unreduce_infer(sc_call *c) {
  const sc_tensor *dy = c->in[0];
  const sc_attr *size = &c->attr[0];
  sc_meta *m = &c->meta[0];
  bool reduced[SC_MAX_DIMS];
  SC_TRY(sc__dims(c, 1, size->n, reduced));
  bool keep = c->attr[2].i;
  m->dtype = (sc_dtype)dy->dtype;
  m->ndim = size->n;
  m->offset = 0;
  int at = 0;
  for (int i = 0; i < size->n; i++) {
    m->dim[i] = size->v[i];
    bool present = !reduced[i] || keep;
    if (present && at >= dy->ndim) return sc__bad_call(c, "the gradient has too few dimensions");
    if (present && dy->dim[at] != 1 && (reduced[i] || dy->dim[at] != size->v[i])) return sc__bad_call(c, "the gradient does not fit the sizes");
    m->stride[i] = reduced[i] || dy->dim[at] == 1 ? 0 : sc__stride(dy)[at];
    if (present) at++;
  }
  return at == dy->ndim ? SC_OK : sc__bad_call(c, "the gradient has too many dimensions");
}

/* ---- transpose(x, dim0, dim1), permute(x, dims) ---- */
static sc_status transpose_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  int a, b;
  SC_TRY(sc__dim(c, 0, x->ndim, &a));
  SC_TRY(sc__dim(c, 1, x->ndim, &b));
  view_of(m, x);
  if (x->ndim == 0) return SC_OK;
  int64_t d = m->dim[a], s = m->stride[a];
  m->dim[a] = m->dim[b]; m->stride[a] = m->stride[b];
  m->dim[b] = d; m->stride[b] = s;
  return SC_OK;
}

/* ---- reshape(x, shape), view(x, shape) ---- */

/* Sizes with at most one -1 worked out. */
static sc_status resolve(sc_call *c, int64_t numel, sc_meta *m) {
  const sc_attr *size = &c->attr[0];
  char a[200];
  int open = -1;
  int64_t known = 1;
  m->ndim = size->n;
  if (size->n > SC_MAX_DIMS) return sc__bad_attr(c, 0, "at most %d dimensions", SC_MAX_DIMS);
  for (int i = 0; i < size->n; i++) {
    m->dim[i] = size->v[i];
    if (size->v[i] == -1 && open < 0) { open = i; continue; }
    if (size->v[i] < 0 || !sc__mul(known, size->v[i], &known))
      return sc__bad_attr(c, 0, "shape %s is not possible", sc__shape_text(size->n, size->v, a, sizeof a));
  }
  if (open >= 0) {
    if (known == 0 || numel % known != 0)
      return sc__bad_attr(c, 0, "shape %s does not fit %lld elements", sc__shape_text(size->n, size->v, a, sizeof a), (long long)numel);
    m->dim[open] = numel / known;
  } else if (known != numel) {
    return sc__bad_attr(c, 0, "shape %s does not fit %lld elements", sc__shape_text(size->n, size->v, a, sizeof a), (long long)numel);
  }
  return SC_OK;
}

/* Strides that give x's elements the new sizes without a copy; false: there are none. Groups of x's dims that run on into each
** other are matched with groups of new dims of the same product. */
static bool restride(const sc_tensor *x, sc_meta *m) {
  if (x->numel == 0) { sc__contiguous_strides(m->ndim, m->dim, m->stride); return true; }
  int d = m->ndim - 1;
  int64_t group = 1, fill = 1, base = 1;
  bool fresh = true;
  for (int i = x->ndim - 1; i >= -1; i--) {
    if (i >= 0 && x->dim[i] == 1) continue;
    bool runs_on = i >= 0 && !fresh && sc__stride(x)[i] == base * group;
    if (!runs_on && !fresh) {                         /* the group is complete: hand it out */
      while (d >= 0 && (fill < group || m->dim[d] == 1)) {
        m->stride[d] = base * fill;
        fill *= m->dim[d--];
      }
      if (fill != group) return false;
    }
    if (i < 0) break;
    if (!runs_on) { base = sc__stride(x)[i]; group = 1; fill = 1; fresh = false; }
    group *= x->dim[i];
  }
  for (; d >= 0; d--) m->stride[d] = 1;
  return true;
}

static sc_status view_infer(sc_call *c) {
  sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  m->dtype = (sc_dtype)x->dtype;
  m->offset = 0;
  SC_TRY(resolve(c, x->numel, m));
  char a[200];
  if (!restride(x, m))
    return sc__bad_attr(c, 0, "the strides of a tensor of shape %s that is not contiguous do not allow this view; use reshape or contiguous",
                        sc__shape_text(x->ndim, x->dim, a, sizeof a));
  return SC_OK;
}

/* view(x, "int32"): the same bytes as another dtype. */
static sc_status view_compose(sc_call *c) {
  sc_dtype d;
  if (c->attr[0].kind != SC_ATTR_STRING) return SC_OK;
  if (!sc__dtype_from_name(c->attr[0].s, &d)) return sc__bad_attr(c, 0, "expected sizes or a dtype such as \"float32\", got \"%.40s\"", c->attr[0].s);
  SC_TRY(sc__op(c->ctx, "view_dtype", c->in, 1, (sc_attr[]){sc__dtype(d)}, 1, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

static sc_status view_dtype_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  sc_dtype from = (sc_dtype)x->dtype, to = (sc_dtype)c->attr[0].i;
  int64_t have = (int64_t)sc_dtype_size(from), want = (int64_t)sc_dtype_size(to);
  int last = x->ndim - 1;
  view_of(m, x);
  m->dtype = to;
  if (to == SC_BOOL && from != SC_BOOL) return sc__bad_call(c, "bytes of %s are no truth values; use x:ne(0)", sc_dtype_name(from));
  if (have == want) return SC_OK;
  if (last < 0 || m->stride[last] != 1)
    return sc__bad_call(c, "%s as %s, of another size, needs a last dimension that is contiguous", sc_dtype_name(from), sc_dtype_name(to));
  int64_t grow = have > want ? have / want : 1, shrink = want > have ? want / have : 1;
  bool fits = x->dim[last] % shrink == 0 && (x->data - (x->storage ? (char *)x->storage->data : NULL)) % want == 0;
  for (int i = 0; i < last; i++) {
    fits = fits && m->stride[i] % shrink == 0;
    m->stride[i] = m->stride[i] / shrink * grow;
  }
  if (!fits) return sc__bad_call(c, "the last size, the strides and the place in the storage must be whole numbers of %s", sc_dtype_name(to));
  m->dim[last] = m->dim[last] / shrink * grow;
  return SC_OK;
}

static sc_status reshape_compose(sc_call *c) {
  sc_tensor *x = c->in[0], *packed = NULL;
  sc_meta m;
  SC_TRY(resolve(c, x->numel, &m));
  if (!restride(x, &m)) SC_TRY(sc__op1(c->ctx, "clone", x, &packed));
  sc_attr size = sc__ints(m.dim, m.ndim);
  sc_tensor *src = packed ? packed : x;
  sc_status s = sc__op(c->ctx, "view", &src, 1, &size, 1, &c->out[0]);
  sc_tensor_release(packed);
  c->n_out = s == SC_OK;
  return s;
}

/* ---- as_strided(x, size, stride, storage_offset) ---- */
static sc_status as_strided_infer(sc_call *c) {
  sc_tensor *x = c->in[0];
  const sc_attr *size = &c->attr[0], *stride = &c->attr[1];
  sc_meta *m = &c->meta[0];
  if (size->n != stride->n) return sc__bad_attr(c, 1, "expected as many strides as sizes (%d), got %d", size->n, stride->n);
  if (size->n > SC_MAX_DIMS) return sc__bad_attr(c, 0, "at most %d dimensions", SC_MAX_DIMS);
  m->dtype = (sc_dtype)x->dtype;
  m->ndim = size->n;
  m->offset = c->attr[2].i;
  int64_t z = (int64_t)sc_dtype_size(m->dtype), reach = 0, numel;
  SC_TRY(sc__numel(c->ctx, c->op->name, m->dtype, size->n, size->v, &numel));
  for (int i = 0; i < size->n; i++) {
    int64_t far;
    m->dim[i] = size->v[i];
    m->stride[i] = stride->v[i];
    if (stride->v[i] < 0) return sc__bad_attr(c, 1, "negative strides are not supported");
    if (size->v[i] < 2) continue;
    if (!sc__mul(size->v[i] - 1, stride->v[i], &far) || __builtin_add_overflow(reach, far, &reach))
      return sc__bad_attr(c, 1, "the view lies outside the storage");
  }
  /* offset counts from x's first element; the storage's own begin and end are the limits */
  int64_t before = x->storage ? (x->data - (char *)x->storage->data) / z : 0;
  int64_t whole = x->storage ? (int64_t)x->storage->bytes / z : x->numel;
  int64_t first, end;
  if (m->offset < 0 || __builtin_add_overflow(before, m->offset, &first) || __builtin_add_overflow(first, reach, &end) ||
      (numel ? end >= whole : first > whole))
    return sc__bad_call(c, "the view lies outside the storage of %lld elements", (long long)whole);
  return SC_OK;
}

/* ---- as_strided_scatter(x, src, size, stride, offset): a copy of x with a region replaced ---- */
/* The region must lie within a packed tensor of `numel` elements. */
static sc_status region_fits(sc_call *c, int slot, int64_t numel) {
  const sc_attr *size = &c->attr[slot], *stride = &c->attr[slot + 1];
  int64_t last = c->attr[slot + 2].i, far;
  bool ok = size->n == stride->n && size->n <= SC_MAX_DIMS && last >= 0, empty = false;
  for (int i = 0; i < size->n && ok; i++) {
    if (size->v[i] == 0) empty = true;
    ok = size->v[i] >= 0 && stride->v[i] >= 0;
    if (ok && size->v[i] > 1) ok = sc__mul(size->v[i] - 1, stride->v[i], &far) && !__builtin_add_overflow(last, far, &last);
  }
  if (ok && (empty ? last <= numel : last < numel)) return SC_OK;
  return sc__bad_call(c, "the region lies outside the tensor of %lld elements", (long long)numel);
}

static sc_status scatter_infer(sc_call *c) {
  const sc_tensor *src = c->in[1];
  const sc_attr *size = &c->attr[0];
  bool fits = src->ndim <= size->n;
  for (int i = 0; i < src->ndim && fits; i++) fits = src->dim[i] == 1 || src->dim[i] == size->v[size->n - src->ndim + i];
  if (!fits) return sc__bad_input(c, 1, "its shape does not fit the region's");
  sc__meta_like(&c->meta[0], c->in[0]);
  return region_fits(c, 0, c->in[0]->numel);
}

static sc_status scatter_run(sc_call *c) {
  SC_TRY(sc__tensor_copy(c->out[0], c->in[0]));
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)c->in[0]->dtype, c->attr[0].n, c->attr[0].v);
  memcpy(m.stride, c->attr[1].v, (size_t)c->attr[1].n * 8);
  m.offset = c->attr[2].i;
  sc_tensor *region;
  SC_TRY(sc__tensor_view(c->out[0], &m, &region));
  sc_status s = sc__tensor_copy(region, c->in[1]);
  sc_tensor_release(region);
  return s;
}

static sc_status scatter_backward(sc_grad_call *g) {
  sc_status s = SC_OK;
  if (g->wanted[0]) {
    sc_tensor *zero;
    sc_attr full[3] = {sc__ints(g->attr[0].v, g->attr[0].n), sc__float(0), sc__dtype((sc_dtype)g->dy[0]->dtype)};
    SC_TRY(sc__op(g->ctx, "full", NULL, 0, full, 3, &zero));
    s = sc__op(g->ctx, "as_strided_scatter", (sc_tensor *[]){g->dy[0], zero}, 2, g->attr, 3, &g->dx[0]);
    sc_tensor_release(zero);
  }
  if (s == SC_OK && g->wanted[1]) {
    sc_tensor *packed;
    SC_TRY(sc__op1(g->ctx, "contiguous", g->dy[0], &packed));
    s = sc__op(g->ctx, "as_strided", &packed, 1, g->attr, 3, &g->dx[1]);
    sc_tensor_release(packed);
  }
  return s;
}

/* ---- as_strided_backward(dy, size, stride, offset): dy added into zeros of the input's size, where as_strided had read ---- */
static sc_status unstride_infer(sc_call *c) {
  int64_t numel;
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->attr[0].n, c->attr[0].v);
  SC_TRY(sc__numel(c->ctx, c->op->name, SC_BOOL, c->attr[0].n, c->attr[0].v, &numel));
  sc_attr attr[3] = {sc__ints(c->in[0]->dim, c->in[0]->ndim), c->attr[1], c->attr[2]};
  sc_call region = *c;
  region.attr = attr;
  return region_fits(&region, 0, numel);
}

static void add_elements(sc_tensor *into, const sc_tensor *from, int d, char *to, const char *at) {
  int64_t z = (int64_t)sc_dtype_size((sc_dtype)into->dtype);
  if (d == into->ndim) {
    sc_scalar a = sc__load((sc_dtype)into->dtype, to), b = sc__load((sc_dtype)from->dtype, at);
    sc__store((sc_dtype)into->dtype, to, a.is_int ? sc__scalar_int((int64_t)((uint64_t)a.i + (uint64_t)b.i)) : sc__scalar_float(a.f + b.f));
    return;
  }
  for (int64_t i = 0; i < into->dim[d]; i++)
    add_elements(into, from, d + 1, to + i * sc__stride(into)[d] * z, at + i * sc__stride(from)[d] * z);
}

static sc_status unstride_run(sc_call *c) {
  sc_tensor *out = c->out[0], *dy = c->in[0], *region;
  memset(out->data, 0, (size_t)out->numel * sc_dtype_size((sc_dtype)out->dtype));
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)dy->dtype, dy->ndim, dy->dim);
  memcpy(m.stride, c->attr[1].v, (size_t)c->attr[1].n * 8);
  m.offset = c->attr[2].i;
  SC_TRY(sc__tensor_view(out, &m, &region));
  sc_status s = SC_OK;
  if (sc__tensor_self_overlap(region)) add_elements(region, dy, 0, region->data, dy->data);
  else s = sc__tensor_copy(region, dy);
  sc_tensor_release(region);
  return s;
}

/* ---- names for what view, reshape, expand and transpose do ---- */

static sc_status by_size(sc_call *c, const char *op, const int64_t *dim, int n) {
  sc_status s = sc__op(c->ctx, op, c->in, 1, (sc_attr[]){sc__ints(dim, n)}, 1, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

static sc_status itself(sc_call *c) {
  c->out[0] = sc_tensor_retain(c->in[0]);
  c->n_out = 1;
  return SC_OK;
}

static sc_status flatten_compose(sc_call *c) {
  const sc_tensor *x = c->in[0];
  int from, to, n = 0;
  int64_t dim[SC_MAX_DIMS] = {1};
  SC_TRY(sc__dim(c, 0, x->ndim, &from));
  SC_TRY(sc__dim(c, 1, x->ndim, &to));
  if (from > to) return sc__bad_attr(c, 1, "the last dimension, %d, comes before the first, %d", to + c->ctx->index_base, from + c->ctx->index_base);
  if (x->ndim == 0) return by_size(c, "reshape", dim, 1);
  if (from == to) return itself(c);
  for (int i = 0; i < x->ndim; i++) {
    if (i > from && i <= to) { if (!sc__mul(dim[n - 1], x->dim[i], &dim[n - 1])) return sc__bad_call(c, "the result is too large"); }
    else dim[n++] = x->dim[i];
  }
  return by_size(c, "reshape", dim, n);
}

static sc_status unflatten_compose(sc_call *c) {
  const sc_tensor *x = c->in[0];
  const sc_attr *sizes = &c->attr[1];
  int d, open = -1;
  int64_t dim[SC_MAX_DIMS], known = 1;
  char a[200];
  SC_TRY(sc__dim(c, 0, x->ndim, &d));
  if (x->ndim == 0) return sc__bad_input(c, 0, "a 0-dimensional tensor has no dimension to unflatten");
  if (sizes->n == 0) return sc__bad_attr(c, 1, "expected at least one size");
  if (x->ndim - 1 + sizes->n > SC_MAX_DIMS) return sc__bad_call(c, "at most %d dimensions", SC_MAX_DIMS);
  memcpy(dim, x->dim, (size_t)d * 8);
  memcpy(dim + d, sizes->v, (size_t)sizes->n * 8);
  memcpy(dim + d + sizes->n, x->dim + d + 1, (size_t)(x->ndim - d - 1) * 8);
  bool ok = true;
  for (int i = 0; i < sizes->n; i++) {
    if (sizes->v[i] == -1 && open < 0) { open = d + i; continue; }
    ok = ok && sc__mul(known, sizes->v[i], &known);
  }
  if (ok && open >= 0 && known > 0 && x->dim[d] % known == 0) { dim[open] = x->dim[d] / known; known = x->dim[d]; }
  if (!ok || known != x->dim[d] || (open >= 0 && dim[open] < 0))
    return sc__bad_attr(c, 1, "the sizes %s do not fit the dimension's size %lld", sc__shape_text(sizes->n, sizes->v, a, sizeof a), (long long)x->dim[d]);
  return by_size(c, "view", dim, x->ndim - 1 + sizes->n);
}

static sc_status ravel_compose(sc_call *c) { return by_size(c, "reshape", &c->in[0]->numel, 1); }
static sc_status view_as_compose(sc_call *c) { return by_size(c, "view", c->in[1]->dim, c->in[1]->ndim); }
static sc_status reshape_as_compose(sc_call *c) { return by_size(c, "reshape", c->in[1]->dim, c->in[1]->ndim); }
static sc_status expand_as_compose(sc_call *c) { return by_size(c, "expand", c->in[1]->dim, c->in[1]->ndim); }
static sc_status broadcast_to_compose(sc_call *c) { return by_size(c, "expand", c->attr[0].v, c->attr[0].n); }

static sc_status swap_last(sc_call *c) {
  sc_status s = sc__op(c->ctx, "transpose", c->in, 1, (sc_attr[]){sc__int(-2), sc__int(-1)}, 2, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

static sc_status t_compose(sc_call *c) {
  if (c->in[0]->ndim > 2) return sc__bad_input(c, 0, "expected at most 2 dimensions, got %d; use transpose or permute", c->in[0]->ndim);
  return c->in[0]->ndim < 2 ? itself(c) : swap_last(c);
}

static sc_status swap_compose(sc_call *c) {
  sc_status s = sc__op(c->ctx, "transpose", c->in, 1, c->attr, 2, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

static sc_status positive_compose(sc_call *c) {
  if (c->in[0]->dtype == SC_BOOL) return sc__bad_input(c, 0, "not defined for bool");
  return itself(c);
}

/* movedim(x, source, destination): the dims named go to those places, the others keep their order */
static sc_status movedim_compose(sc_call *c) {
  const sc_attr *from = &c->attr[0], *to = &c->attr[1];
  int n = c->in[0]->ndim;
  int64_t order[SC_MAX_DIMS];
  bool taken[SC_MAX_DIMS] = {false}, moved[SC_MAX_DIMS] = {false};
  if (from->n != to->n) return sc__bad_attr(c, 1, "expected as many places as dimensions, %d, got %d", from->n, to->n);
  if (from->n && n) { SC_TRY(sc__dims(c, 0, n, moved)); SC_TRY(sc__dims(c, 1, n, taken)); }
  if (n == 0) return itself(c);
  for (int i = 0; i < from->n; i++) order[to->v[i] < 0 ? to->v[i] + n : to->v[i]] = from->v[i] < 0 ? from->v[i] + n : from->v[i];
  if (!from->n) memset(moved, 0, sizeof moved);
  for (int i = 0, k = 0; i < n; i++) {
    if (taken[i]) continue;
    while (moved[k]) k++;
    order[i] = k++;
  }
  return by_size(c, "permute", order, n);
}

static sc_status alias_infer(sc_call *c) { view_of(&c->meta[0], c->in[0]); return SC_OK; }

const sc_op sc__ops_view[] = {
  {"expand(x, size: shape)", "x with dims of size 1 (and new leading dims) repeated, as a view. -1 keeps a size.", SC_OP_VIEW,
   .infer = expand_infer, .grad = {"sum_to_size(dy, shape(x))"}},
  {"unreduce(dy, size: shape, dim: dim[]?, keepdim: bool = false)", "A reduction's gradient, expanded to the input's size.",
   SC_OP_VIEW | SC_OP_INTERNAL, .infer = unreduce_infer, .grad = {"sum(dy, dim, keepdim)"}},
  {"transpose(x, dim0: dim, dim1: dim)", "x with two dimensions swapped, as a view.", SC_OP_VIEW, .infer = transpose_infer,
   .grad = {"transpose(dy, dim0, dim1)"}},
  {"view(x, size: shape|str)",
   "x with other sizes and the same elements, never a copy; one size may be -1. With a dtype in place of sizes: the same bytes read as that dtype.\n"
   "Errors: x's strides do not allow it; the last dimension does not hold whole elements of the dtype.\nExample: sc.ones(2, 3):view(3, 2)",
   SC_OP_VIEW, .infer = view_infer, .compose = view_compose, .grad = {"reshape(dy, shape(x))"}},
  {"view_dtype(x, dtype: dtype)", "x's bytes as another dtype.", SC_OP_VIEW | SC_OP_INTERNAL | SC_OP_DETACH, .infer = view_dtype_infer,
   .no_grad = "bytes have no derivative"},
  {"reshape(x, shape: shape)", "x with other sizes and the same elements: a view where possible, else a copy; one size may be -1.", 0,
   .compose = reshape_compose},
  {"as_strided(x, size: shape, stride: int[], storage_offset: int = 0)",
   "A view with these sizes and strides (in elements), offset from x's first element.\nErrors: the view reaches outside the storage.",
   SC_OP_VIEW, .infer = as_strided_infer, .grad = {"as_strided_backward(dy, shape(x), stride, storage_offset)"}},
  {"as_strided_backward(dy, size: shape, stride: int[], storage_offset: int = 0)", "as_strided's gradient.", SC_OP_INTERNAL,
   .infer = unstride_infer, .run = unstride_run, .grad = {"as_strided(contiguous(dy), shape(dy), stride, storage_offset)"}},
  {"as_strided_scatter(x, src, size: shape, stride: int[], storage_offset: int = 0)", "A copy of x with the elements that as_strided names replaced by src.",
   SC_OP_SAVE_NO_IN | SC_OP_SAVE_NO_OUT, .infer = scatter_infer, .run = scatter_run, .backward = scatter_backward},
  {"flatten(x, start_dim: dim = 0, end_dim: dim = -1)", "x with the dimensions from start_dim to end_dim made one: a view where possible.\nExample: x:flatten(2)", 0,
   .compose = flatten_compose},
  {"unflatten(x, dim: dim, sizes: shape)", "x with one dimension cut into several, as a view; one size may be -1.\nErrors: the sizes do not fit.", 0, .compose = unflatten_compose},
  {"ravel(x)", "x as a list: a view where possible.", 0, .compose = ravel_compose},
  {"view_as(x, other)", "x:view with other's shape.", 0, .compose = view_as_compose},
  {"reshape_as(x, other)", "x:reshape with other's shape.", 0, .compose = reshape_as_compose},
  {"expand_as(x, other)", "x:expand to other's shape.", 0, .compose = expand_as_compose},
  {"broadcast_to(x, size: shape)", "expand.", 0, .compose = broadcast_to_compose},
  {"t(x)", "The transpose of a matrix, as a view; lists and numbers stay as they are.\nErrors: more than 2 dimensions.", 0, .compose = t_compose},
  {"swapaxes(x, axis0: dim, axis1: dim)", "transpose.", 0, .compose = swap_compose},
  {"swapdims(x, dim0: dim, dim1: dim)", "transpose.", 0, .compose = swap_compose},
  {"movedim(x, source: dim[], destination: dim[])", "x with some dimensions moved to other places, the rest keeping their order, as a view.\nErrors: a dimension is named twice; the lists differ in length.\nExample: x:movedim(2, -1)",
   0, .compose = movedim_compose},
  {"moveaxis(x, source: dim[], destination: dim[])", "movedim.", 0, .compose = movedim_compose},
  {"adjoint(x)", "The transposes of matrices, as a view.", 0, .compose = swap_last},
  {"positive(x)", "x itself.\nErrors: x is bool.", 0, .compose = positive_compose},
  {"detach(x)", "x without its history; shares memory.", SC_OP_VIEW | SC_OP_DETACH, .infer = alias_infer, .no_grad = "it is what cuts the history"},
};
const int sc__ops_view_count = SC_COUNT(sc__ops_view);
