/* Views that pick or rearrange elements, and what belongs to each: its gradient and its `_scatter` form.
**
** Each view is one *geometry*: a function from a source tensor and the attributes from `at` on to sizes, strides and offset. The
** same geometry serves three ops: the view of x; the view's gradient, which lays out zeros of x's size and copies dy into that
** view of them (attributes: the size first, then the view's own); and view_scatter, a copy of x with src in that view. */
#include "ops.h"

#include <string.h>

typedef sc_status (*geometry)(sc_call *c, const sc_tensor *x, int at, sc_meta *m);

static void whole(sc_meta *m, const sc_tensor *x) {
  sc__meta_like(m, x);
  memcpy(m->stride, sc__stride(x), (size_t)x->ndim * 8);
  m->offset = 0;
}

static void drop(sc_meta *m, int d) {
  m->ndim--;
  memmove(&m->dim[d], &m->dim[d + 1], (size_t)(m->ndim - d) * 8);
  memmove(&m->stride[d], &m->stride[d + 1], (size_t)(m->ndim - d) * 8);
}

static sc_status out_of_range(sc_call *c, int slot, int64_t i, int64_t n) {
  int base = c->ctx->index_base;
  if (n == 0) return sc__bad_attr(c, slot, "index %lld is out of range: the dimension is empty", (long long)(i < 0 ? i : i + base));
  return sc__bad_attr(c, slot, "index %lld is out of range %d..%lld", (long long)(i < 0 ? i : i + base), base, (long long)(n - 1 + base));
}

/* ---- select(dim, index) ---- */
static sc_status select_at(sc_call *c, const sc_tensor *x, int at, sc_meta *m) {
  int d;
  if (x->ndim == 0) return sc__bad_input(c, 0, "a 0-dimensional tensor has no dimension to select from");
  SC_TRY(sc__dim(c, at, x->ndim, &d));
  int64_t i = c->attr[at + 1].i, n = x->dim[d];
  if (i < -n || i >= n) return out_of_range(c, at + 1, i, n);
  whole(m, x);
  m->offset = (i < 0 ? i + n : i) * m->stride[d];
  drop(m, d);
  return SC_OK;
}

/* A range of a dimension: `length` elements from `first` on, every `step`. */
static void take_range(sc_meta *m, int d, int64_t first, int64_t length, int64_t step) {
  m->offset += length ? first * m->stride[d] : 0;
  m->dim[d] = length;
  if (length > 1) m->stride[d] *= step;
}

/* ---- slice(dim, start, end, step): inclusive, clamped, as string.sub; start and end are in the face of c->base ---- */
static sc_status slice_at(sc_call *c, const sc_tensor *x, int at, sc_meta *m) {
  int d;
  if (x->ndim == 0) return sc__bad_input(c, 0, "a 0-dimensional tensor cannot be sliced");
  SC_TRY(sc__dim(c, at, x->ndim, &d));
  const sc_attr *from = &c->attr[at + 1], *to = &c->attr[at + 2];
  int64_t n = x->dim[d], step = c->attr[at + 3].i, first = 0, stop = n;
  if (step < 1) return sc__bad_attr(c, at + 3, "the step must be positive, got %lld", (long long)step);
  if (from->kind != SC_ATTR_NONE) {
    first = from->i < 0 ? from->i + n : from->i - c->base;
    first = first < 0 ? 0 : first > n ? n : first;
  }
  if (to->kind != SC_ATTR_NONE) {
    if (to->i < 0) stop = to->i + n + 1;
    else if (to->i < n) stop = to->i - c->base + 1;
    stop = stop < 0 ? 0 : stop > n ? n : stop;
  }
  whole(m, x);
  take_range(m, d, first, stop > first ? (stop - first - 1) / step + 1 : 0, step);
  return SC_OK;
}

/* ---- narrow(dim, start, length) ---- */
static sc_status narrow_at(sc_call *c, const sc_tensor *x, int at, sc_meta *m) {
  int d;
  if (x->ndim == 0) return sc__bad_input(c, 0, "a 0-dimensional tensor cannot be narrowed");
  SC_TRY(sc__dim(c, at, x->ndim, &d));
  int64_t first = c->attr[at + 1].i, length = c->attr[at + 2].i, n = x->dim[d];
  if (length < 0) return sc__bad_attr(c, at + 2, "the length must not be negative, got %lld", (long long)length);
  if (first < -n || first > n) return out_of_range(c, at + 1, first, n);
  if (first < 0) first += n;
  bool open = c->ctx->building && c->ctx->symbolic_size(length) && !c->ctx->symbolic_size(n);     /* checked when the size is known */
  if (length > n - first && !open)
    return sc__bad_attr(c, at + 2, "%lld elements from index %lld on do not fit the dimension's size %lld", (long long)length,
                        (long long)first + c->ctx->index_base, (long long)n);
  whole(m, x);
  take_range(m, d, first, length, 1);
  return SC_OK;
}

/* ---- getview(plan): several of select, range and new axis at once, four numbers each, in the order of x's dims. All resolved:
** {0, index, 0, 0}, {1, first, length, step}, {2, 0, 0, 0} a new axis, {3, 0, 0, 0} a whole dim. What x[{…}] compiles to. ---- */
enum { PLAN_SELECT, PLAN_RANGE, PLAN_NEW, PLAN_ALL };

static sc_status getview_at(sc_call *c, const sc_tensor *x, int at, sc_meta *m) {
  const sc_attr *plan = &c->attr[at];
  int d = 0;
  m->dtype = (sc_dtype)x->dtype;
  m->ndim = 0;
  m->offset = 0;
  for (int k = 0; k + 3 < plan->n; k += 4) {
    const int64_t *p = &plan->v[k];
    if (p[0] != PLAN_NEW && d == x->ndim) return sc__bad_call(c, "too many indices for %d dimensions", x->ndim);
    if (p[0] != PLAN_SELECT && m->ndim == SC_MAX_DIMS) return sc__bad_call(c, "at most %d dimensions", SC_MAX_DIMS);
    int64_t n = p[0] == PLAN_NEW ? 1 : x->dim[d], s = p[0] == PLAN_NEW ? 0 : sc__stride(x)[d], first = p[1];
    bool fits = true;
    if (p[0] == PLAN_SELECT) fits = first >= 0 && first < n;
    if (p[0] == PLAN_RANGE) fits = first >= 0 && p[2] >= 0 && p[3] >= 1 && (p[2] == 0 || (first < n && (p[2] - 1) <= (n - 1 - first) / p[3]));
    if (!fits) return sc__bad_call(c, "the indices do not fit the size %lld of dimension %d", (long long)n, d + c->ctx->index_base);
    if (p[0] != PLAN_SELECT) {
      m->dim[m->ndim] = n;
      m->stride[m->ndim++] = s;
    }
    if (p[0] == PLAN_SELECT) m->offset += first * s;
    if (p[0] == PLAN_RANGE) take_range(m, m->ndim - 1, first, p[2], p[3]);
    if (p[0] != PLAN_NEW) d++;
  }
  for (; d < x->ndim; d++) {
    if (m->ndim == SC_MAX_DIMS) return sc__bad_call(c, "at most %d dimensions", SC_MAX_DIMS);
    m->dim[m->ndim] = x->dim[d];
    m->stride[m->ndim++] = sc__stride(x)[d];
  }
  return SC_OK;
}

/* ---- diagonal(offset, dim1, dim2): the diagonal becomes the last dim ---- */
static sc_status diagonal_at(sc_call *c, const sc_tensor *x, int at, sc_meta *m) {
  int a, b;
  if (x->ndim < 2) return sc__bad_input(c, 0, "expected at least 2 dimensions, got %d", x->ndim);
  SC_TRY(sc__dim(c, at + 1, x->ndim, &a));
  SC_TRY(sc__dim(c, at + 2, x->ndim, &b));
  if (a == b) return sc__bad_attr(c, at + 2, "the two dimensions must differ, both are %d", a + c->ctx->index_base);
  int64_t off = c->attr[at].i, length;
  whole(m, x);
  if (off >= 0) length = off >= m->dim[b] ? 0 : m->dim[a] < m->dim[b] - off ? m->dim[a] : m->dim[b] - off;
  else length = off <= -m->dim[a] ? 0 : m->dim[a] + off < m->dim[b] ? m->dim[a] + off : m->dim[b];
  if (length) m->offset = off >= 0 ? off * m->stride[b] : -off * m->stride[a];
  int64_t stride = m->stride[a] + m->stride[b];
  drop(m, a > b ? a : b);
  drop(m, a > b ? b : a);
  m->dim[m->ndim] = length;
  m->stride[m->ndim++] = stride;
  return SC_OK;
}

/* ---- unfold(dimension, size, step): windows; the elements of a window become the last dim ---- */
static sc_status unfold_at(sc_call *c, const sc_tensor *x, int at, sc_meta *m) {
  int d;
  SC_TRY(sc__dim(c, at, x->ndim, &d));
  int64_t size = c->attr[at + 1].i, step = c->attr[at + 2].i, n = x->ndim ? x->dim[d] : 1;
  if (size < 0 || size > n) return sc__bad_attr(c, at + 1, "the window's size %lld does not fit the dimension's size %lld", (long long)size, (long long)n);
  if (step < 1) return sc__bad_attr(c, at + 2, "the step must be positive, got %lld", (long long)step);
  if (x->ndim == SC_MAX_DIMS) return sc__bad_call(c, "at most %d dimensions", SC_MAX_DIMS);
  whole(m, x);
  int64_t stride = 1;
  if (x->ndim) {
    stride = m->stride[d];
    m->dim[d] = (n - size) / step + 1;
    if (m->dim[d] > 1) m->stride[d] *= step;
  }
  m->dim[m->ndim] = size;
  m->stride[m->ndim++] = stride;
  return SC_OK;
}

/* ---- the three uses of a geometry ---- */

static sc_status backward_infer(sc_call *c) {
  if (c->attr[0].n > SC_MAX_DIMS) return sc__bad_attr(c, 0, "at most %d dimensions", SC_MAX_DIMS);
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->attr[0].n, c->attr[0].v);
  return SC_OK;
}

/* src into that view of out; windows that overlap add up. */
static sc_status put(sc_call *c, geometry where, int at, const sc_tensor *src, bool broadcast) {
  sc_tensor *out = c->out[0], *region;
  sc_meta m;
  char a[200], b[200];
  SC_TRY(where(c, out, at, &m));
  if (!broadcast && (m.ndim != src->ndim || memcmp(m.dim, src->dim, (size_t)m.ndim * 8) != 0))
    return sc__bad_call(c, "expected shape %s, got %s", sc__shape_text(m.ndim, m.dim, a, sizeof a), sc__shape_text(src->ndim, src->dim, b, sizeof b));
  SC_TRY(sc__tensor_view(out, &m, &region));
  sc_status s = sc__tensor_copy(region, src);
  sc_tensor_release(region);
  return s;
}

static sc_status into_zeros(sc_call *c, geometry where) {
  memset(c->out[0]->data, 0, (size_t)c->out[0]->numel * sc_dtype_size((sc_dtype)c->out[0]->dtype));
  return put(c, where, 1, c->in[0], false);
}

static sc_status scatter_infer(sc_call *c, geometry where) {
  const sc_tensor *x = c->in[0], *src = c->in[1];
  sc_meta m;
  char a[200], b[200];
  SC_TRY(where(c, x, 0, &m));
  if (!(src->flags & SC_T_WRAPPED) && (m.ndim != src->ndim || memcmp(m.dim, src->dim, (size_t)m.ndim * 8) != 0))
    return sc__bad_input(c, 1, "expected shape %s, got %s", sc__shape_text(m.ndim, m.dim, a, sizeof a), sc__shape_text(src->ndim, src->dim, b, sizeof b));
  sc__meta_like(&c->meta[0], x);
  return SC_OK;
}

static sc_status scatter_run(sc_call *c, geometry where) {
  SC_TRY(sc__tensor_copy(c->out[0], c->in[0]));
  return put(c, where, 0, c->in[1], true);
}

#define VIEW_OPS(name) \
  static sc_status name##_infer(sc_call *c) { return name##_at(c, c->in[0], 0, &c->meta[0]); } \
  static sc_status name##_backward_run(sc_call *c) { return into_zeros(c, name##_at); }
#define SCATTER_OPS(name) \
  static sc_status name##_scatter_infer(sc_call *c) { return scatter_infer(c, name##_at); } \
  static sc_status name##_scatter_run(sc_call *c) { return scatter_run(c, name##_at); }
VIEW_OPS(select) VIEW_OPS(slice) VIEW_OPS(narrow) VIEW_OPS(getview) VIEW_OPS(diagonal)
SCATTER_OPS(select) SCATTER_OPS(slice) SCATTER_OPS(diagonal)
#undef VIEW_OPS
#undef SCATTER_OPS

static sc_status unfold_infer(sc_call *c) { return unfold_at(c, c->in[0], 0, &c->meta[0]); }

/* Windows may overlap: one pass per place in the window, each of which touches an element at most once. */
static sc_status unfold_backward_run(sc_call *c) {
  sc_tensor *out = c->out[0], *dy = c->in[0];
  sc_meta m, part;
  memset(out->data, 0, (size_t)out->numel * sc_dtype_size((sc_dtype)out->dtype));
  SC_TRY(unfold_at(c, out, 1, &m));
  if (m.ndim != dy->ndim || memcmp(m.dim, dy->dim, (size_t)m.ndim * 8) != 0) return sc__bad_input(c, 0, "its shape does not fit");
  sc_status s = SC_OK;
  const sc_opinfo *add = sc__op_find(c->ctx, "add");
  sc_attr one = sc__int(1);
  for (int64_t k = 0; k < m.dim[m.ndim - 1] && s == SC_OK; k++) {
    sc_tensor *to = NULL, *from = NULL;
    part = m;
    part.ndim--;
    part.offset = k * m.stride[part.ndim];
    s = sc__tensor_view(out, &part, &to);
    for (int i = 0; i < part.ndim; i++) part.stride[i] = sc__stride(dy)[i];
    part.offset = k * sc__stride(dy)[part.ndim];
    if (s == SC_OK) s = sc__tensor_view(dy, &part, &from);
    if (s == SC_OK) {
      sc_tensor *in[2] = {to, from};
      sc_call sum = {.ctx = c->ctx, .op = add, .in = in, .n_in = 2, .attr = &one, .n_out = 1, .out = {to}, .meta = &part};
      s = add->def->infer(&sum);
      if (s == SC_OK) s = add->def->run(&sum);
    }
    sc_tensor_release(to);
    sc_tensor_release(from);
  }
  return s;
}

/* ---- diag_embed(x, offset, dim1, dim2): zeros with x on the diagonal ---- */
static sc_status diag_embed_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  int a, b;
  if (x->ndim == 0) return sc__bad_input(c, 0, "expected at least 1 dimension");
  if (x->ndim == SC_MAX_DIMS) return sc__bad_call(c, "at most %d dimensions", SC_MAX_DIMS);
  SC_TRY(sc__dim(c, 1, x->ndim + 1, &a));
  SC_TRY(sc__dim(c, 2, x->ndim + 1, &b));
  if (a == b) return sc__bad_attr(c, 2, "the two dimensions must differ, both are %d", a + c->ctx->index_base);
  int64_t off = c->attr[0].i, side;
  if (off == INT64_MIN || __builtin_add_overflow(x->dim[x->ndim - 1], off < 0 ? -off : off, &side))
    return sc__bad_attr(c, 0, "%lld is too large", (long long)off);
  m->dtype = (sc_dtype)x->dtype;
  m->ndim = x->ndim + 1;
  for (int i = 0, k = 0; i < m->ndim; i++) m->dim[i] = i == a || i == b ? side : x->dim[k++];
  return SC_OK;
}

static sc_status diag_embed_run(sc_call *c) {
  memset(c->out[0]->data, 0, (size_t)c->out[0]->numel * sc_dtype_size((sc_dtype)c->out[0]->dtype));
  return put(c, diagonal_at, 0, c->in[0], false);
}

static sc_status diag_compose(sc_call *c) {
  sc_attr attr[3] = {c->attr[0], sc__int(-2), sc__int(-1)};
  int n = c->in[0]->ndim;
  if (n != 1 && n != 2) return sc__bad_input(c, 0, "expected a vector or a matrix, got %d dimensions", n);
  sc_tensor *v;
  SC_TRY(sc__op(c->ctx, n == 1 ? "diag_embed" : "diagonal", c->in, 1, attr, 3, &v));
  c->n_out = 1;
  if (n == 1) { c->out[0] = v; return SC_OK; }
  sc_status s = sc__op1(c->ctx, "clone", v, &c->out[0]);
  sc_tensor_release(v);
  c->n_out = s == SC_OK;
  return s;
}

/* ---- rearranging dims ---- */
static sc_status unsqueeze_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  int d;
  if (x->ndim == SC_MAX_DIMS) return sc__bad_call(c, "at most %d dimensions", SC_MAX_DIMS);
  SC_TRY(sc__dim(c, 0, x->ndim + 1, &d));
  m->dtype = (sc_dtype)x->dtype;
  m->ndim = x->ndim + 1;
  m->offset = 0;
  for (int i = 0, k = 0; i < m->ndim; i++) {
    m->dim[i] = i == d ? 1 : x->dim[k];
    m->stride[i] = i == d ? (k < x->ndim ? x->dim[k] * sc__stride(x)[k] : 1) : sc__stride(x)[k];
    if (i != d) k++;
  }
  return SC_OK;
}

static sc_status squeeze_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__dims(c, 0, x->ndim, mask));
  whole(&c->meta[0], x);
  for (int i = x->ndim - 1; i >= 0; i--) if (mask[i] && x->dim[i] == 1) drop(&c->meta[0], i);
  return SC_OK;
}

/* `of[i]`: the source's dim at place i. */
static sc_status permutation(sc_call *c, int *of) {
  const sc_attr *a = &c->attr[0];
  bool seen[SC_MAX_DIMS];
  int n = c->in[0]->ndim;
  if (a->n != n) return sc__bad_attr(c, 0, "expected %d dimensions, got %d", n, a->n);
  if (n) SC_TRY(sc__dims(c, 0, n, seen));            /* checks range and repetition */
  for (int i = 0; i < n; i++) of[i] = (int)(a->v[i] < 0 ? a->v[i] + n : a->v[i]);
  return SC_OK;
}

static sc_status permute_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  int of[SC_MAX_DIMS];
  SC_TRY(permutation(c, of));
  whole(m, x);
  for (int i = 0; i < x->ndim; i++) { m->dim[i] = x->dim[of[i]]; m->stride[i] = sc__stride(x)[of[i]]; }
  return SC_OK;
}

static sc_status permute_inverse_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  int of[SC_MAX_DIMS];
  SC_TRY(permutation(c, of));
  whole(m, x);
  for (int i = 0; i < x->ndim; i++) { m->dim[of[i]] = x->dim[i]; m->stride[of[i]] = sc__stride(x)[i]; }
  return SC_OK;
}

#define OFFSET_DIMS "offset: int = 0, dim1: dim = 0, dim2: dim = 1"
const sc_op sc__ops_slice[] = {
  {"select(x, dim: dim, index: index)", "The part of x at one index of a dimension, as a view without that dimension.\nErrors: the index is out of range.\nExample: sc.eye(3):select(1, 2)",
   SC_OP_VIEW, .infer = select_infer, .grad = {"select_backward(dy, shape(x), dim, index)"}},
  {"select_backward(dy, size: shape, dim: dim, index: index)", "select's gradient.", SC_OP_INTERNAL, .infer = backward_infer,
   .run = select_backward_run, .cost = sc__cost_bytes, .grad = {"select(dy, dim, index)"}},
  {"select_scatter(x, src, dim: dim, index: index)", "A copy of x with src at one index of a dimension.\nErrors: src has another shape than x:select(dim, index).",
   0, .infer = select_scatter_infer, .run = select_scatter_run, .grad = {"select_scatter(dy, 0, dim, index)", "select(dy, dim, index)"}},
  {"slice(x, dim: dim = 0, start: int?, end: int?, step: int = 1)",
   "x from start to end (both included) of a dimension, every step elements, as a view. Ends out of range are clamped, as in string.sub; negative ones count from the end.\nErrors: step is not positive.\nExample: sc.arange(10):slice(1, 2, -2, 3)",
   SC_OP_VIEW, .infer = slice_infer, .grad = {"slice_backward(dy, shape(x), dim, start, end, step)"}},
  {"slice_backward(dy, size: shape, dim: dim, start: int?, end: int?, step: int)", "slice's gradient.", SC_OP_INTERNAL, .infer = backward_infer,
   .run = slice_backward_run, .grad = {"slice(dy, dim, start, end, step)"}},
  {"slice_scatter(x, src, dim: dim = 0, start: int?, end: int?, step: int = 1)",
   "A copy of x with src where slice would read.\nErrors: src has another shape than that slice.", 0, .infer = slice_scatter_infer,
   .run = slice_scatter_run, .grad = {"slice_scatter(dy, 0, dim, start, end, step)", "slice(dy, dim, start, end, step)"}},
  {"narrow(x, dim: dim, start: index, length: int)", "length elements of a dimension from start on, as a view.\nErrors: they do not fit the dimension.",
   SC_OP_VIEW, .infer = narrow_infer, .grad = {"narrow_backward(dy, shape(x), dim, start, length)"}},
  {"narrow_backward(dy, size: shape, dim: dim, start: index, length: int)", "narrow's gradient.", SC_OP_INTERNAL, .infer = backward_infer,
   .run = narrow_backward_run, .cost = sc__cost_bytes, .grad = {"narrow(dy, dim, start, length)"}},
  {"getview(x, plan: int[])", "Selects, ranges and new axes at once: what x[{…}] becomes.", SC_OP_VIEW | SC_OP_INTERNAL, .infer = getview_infer,
   .grad = {"getview_backward(dy, shape(x), plan)"}},
  {"getview_backward(dy, size: shape, plan: int[])", "getview's gradient.", SC_OP_INTERNAL, .infer = backward_infer, .run = getview_backward_run, .cost = sc__cost_bytes,
   .grad = {"getview(dy, plan)"}},
  {"diagonal(x, " OFFSET_DIMS ")", "The diagonal of two dimensions, `offset` above the main one, as a view; it becomes the last dimension.\nErrors: dim1 and dim2 are the same.",
   SC_OP_VIEW, .infer = diagonal_infer, .grad = {"diagonal_backward(dy, shape(x), offset, dim1, dim2)"}},
  {"diagonal_backward(dy, size: shape, " OFFSET_DIMS ")", "diagonal's gradient.", SC_OP_INTERNAL, .infer = backward_infer,
   .run = diagonal_backward_run, .grad = {"diagonal(dy, offset, dim1, dim2)"}},
  {"diagonal_scatter(x, src, " OFFSET_DIMS ")", "A copy of x with src on that diagonal.\nErrors: src has another shape than the diagonal.", 0,
   .infer = diagonal_scatter_infer, .run = diagonal_scatter_run, .grad = {"diagonal_scatter(dy, 0, offset, dim1, dim2)", "diagonal(dy, offset, dim1, dim2)"}},
  {"diag_embed(x, offset: int = 0, dim1: dim = -2, dim2: dim = -1)", "Zeros with x's last dimension on the diagonal of two new dimensions.", 0,
   .infer = diag_embed_infer, .run = diag_embed_run, .grad = {"diagonal(dy, offset, dim1, dim2)"}},
  {"diag(x, diagonal: int = 0)", "A vector becomes a matrix with it on the diagonal; of a matrix, a copy of the diagonal.\nErrors: x is neither.", 0,
   .compose = diag_compose},
  {"unfold(x, dimension: dim, size: int, step: int)", "Windows of `size` elements, `step` apart, of a dimension, as a view; a window's elements become the last dimension.\nErrors: the window does not fit; step is not positive.",
   SC_OP_VIEW, .infer = unfold_infer, .grad = {"unfold_backward(dy, shape(x), dimension, size, step)"}},
  {"unfold_backward(dy, input_size: shape, dimension: dim, size: int, step: int)", "unfold's gradient.", SC_OP_INTERNAL, .infer = backward_infer,
   .run = unfold_backward_run, .grad = {"unfold(dy, dimension, size, step)"}},
  {"unsqueeze(x, dim: dim)", "x with a dimension of size 1 put in at dim, as a view.\nExample: sc.ones(2, 3):unsqueeze(1)", SC_OP_VIEW, .infer = unsqueeze_infer,
   .grad = {"reshape(dy, shape(x))"}},
  {"squeeze(x, dim: dim[]?)", "x without its dimensions of size 1, or without those named if they have size 1, as a view.", SC_OP_VIEW, .infer = squeeze_infer,
   .grad = {"reshape(dy, shape(x))"}},
  {"permute(x, dims: dim[])", "x with its dimensions in another order, as a view.\nErrors: dims is not a permutation of x's dimensions.\nExample: x:permute(3, 1, 2)",
   SC_OP_VIEW, .infer = permute_infer, .grad = {"permute_inverse(dy, dims)"}},
  {"permute_inverse(x, dims: dim[])", "Undoes permute.", SC_OP_VIEW | SC_OP_INTERNAL, .infer = permute_inverse_infer, .grad = {"permute(dy, dims)"}},
};
const int sc__ops_slice_count = SC_COUNT(sc__ops_slice);
