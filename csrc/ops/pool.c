/* Pooling. Averages are sums over windows, taken dim by dim, divided by a count; their adjoint spreads the divided gradient over the
** same windows. Max pooling returns positions within a plane (the trailing spatial dims, flat); its gradient scatters by them,
** unpooling puts by them, and both have a gather for a gradient. Source: PyTorch's definitions of sizes and counts. */
#include "../kernels/separable.h"
#include "neural.h"

#include <string.h>

/* ---- geometry shared by all ---- */

static int64_t pooled_size(int64_t in, int64_t k, int64_t s, int64_t p, int64_t d, bool ceil) {
  int64_t room = in + 2 * p - d * (k - 1) - 1;
  if (room < 0 && !(ceil && room > -s)) return room < 0 ? 0 : 1;
  int64_t out = (room + (ceil ? s - 1 : 0)) / s + 1;
  if (ceil && (out - 1) * s >= in + p) out--;
  return out;
}

static sc_status check_positive(sc_call *c, int slot, int nd, int64_t least, const char *name) {
  const sc_attr *a = &c->attr[slot];
  for (int i = 0; i < nd; i++)
    if (a->v[i] < least || a->v[i] > INT32_MAX)
      return sc__bad_attr(c, slot, "%s must be between %lld and %d, got %lld", name, (long long)least, INT32_MAX, (long long)a->v[i]);
  return SC_OK;
}

/* x has nd spatial dims and one or two before them; all but the batch are not empty. */
static sc_status check_x(sc_call *c, int nd) {
  const sc_tensor *x = c->in[0];
  char t[200];
  if (x->ndim != nd + 1 && x->ndim != nd + 2)
    return sc__bad_input(c, 0, "expected %d or %d dimensions, got shape %s", nd + 1, nd + 2, sc__shape_text(x->ndim, x->dim, t, sizeof t));
  for (int i = x->ndim == nd + 2 ? 1 : 0; i < x->ndim; i++)
    if (x->dim[i] == 0) return sc__bad_input(c, 0, "expected sizes above 0 in all but the batch dimension, got shape %s", sc__shape_text(x->ndim, x->dim, t, sizeof t));
  if (x->dtype == SC_BOOL) return sc__bad_input(c, 0, "not defined for bool");
  return SC_OK;
}

/* The result's shape: x's with the last nd sizes pooled. */
static sc_status pooled_shape(sc_call *c, int nd, const int64_t *k, const int64_t *s, const int64_t *p, const int64_t *d, bool ceil, int64_t *size) {
  const sc_tensor *x = c->in[0];
  char t[200];
  for (int i = 0; i < x->ndim; i++) size[i] = x->dim[i];
  for (int i = 0; i < nd; i++) {
    int64_t at = x->ndim - nd + i;
    int64_t reach, room;
    if (!sc__mul(k[i] - 1, d ? d[i] : 1, &reach) || __builtin_add_overflow(x->dim[at], 2 * p[i], &room)) return sc__bad_call(c, "the window is too large");
    size[at] = pooled_size(x->dim[at], k[i], s[i], p[i], d ? d[i] : 1, ceil);
    if (size[at] < 1)
      return sc__bad_call(c, "a window of %lld does not fit into the input of shape %s padded by %lld", (long long)k[i],
                          sc__shape_text(x->ndim, x->dim, t, sizeof t), (long long)p[i]);
  }
  return SC_OK;
}

/* Windows over the last nd dims of `in`, as many as `out` says: the pools ask for what fits, a graph that was read from a file for anything. */
static sc_status check_windows(sc_call *c, const int64_t *in, const int64_t *out, int ndim, int64_t nd, const sc_attr *kernel, const sc_attr *stride,
                               const sc_attr *padding, const sc_attr *dilation) {
  const sc_attr *lists[4] = {kernel, stride, padding, dilation};
  bool adaptive = kernel->n == 0, fits = nd >= 1 && nd <= 3 && nd <= ndim;
  for (int i = 0; i < 4 && fits && !adaptive; i++) {
    if (!lists[i]) continue;
    fits = lists[i]->n == nd;
    for (int k = 0; k < nd && fits; k++) fits = lists[i]->v[k] >= (i != 2) && lists[i]->v[k] <= INT32_MAX;
  }
  for (int i = 0; i < ndim && fits; i++) {
    int k = i - (ndim - (int)nd);
    int64_t last;
    fits = in[i] >= 0 && out[i] >= 0 && (k >= 0 || in[i] == out[i]);
    if (fits && k >= 0 && adaptive) fits = out[i] <= INT32_MAX;
    else if (fits && k >= 0 && out[i] > 0) fits = sc__mul(out[i] - 1, stride->v[k], &last) && in[i] < INT64_MAX / 4 && last < in[i] + 2 * padding->v[k] + stride->v[k];
  }
  return fits ? SC_OK : sc__bad_call(c, "the windows do not fit the shapes");
}

static sc_ctype work_ctype(sc_dtype d) { return d == SC_FLOAT64 ? SC_C_F64 : sc__is_float(d) ? SC_C_F32 : SC_C_I64; }

/* ---- averages: avg_windows(x, size, kernel, stride, padding, include_pad, divisor) and its adjoint ----
** size: the whole shape of the result. An empty kernel list means adaptive windows. */
enum { A_SIZE, A_KERNEL, A_STRIDE, A_PADDING, A_INCLUDE, A_DIVISOR, A_DIMS };

static sc_status avg_infer(sc_call *c, bool adjoint) {
  const sc_attr *a = c->attr, *size = &a[A_SIZE];
  const sc_tensor *x = c->in[0];
  if (size->n != x->ndim) return sc__bad_call(c, "the shapes do not belong together");
  if (a[A_DIVISOR].kind == SC_ATTR_INT && a[A_DIVISOR].i == 0) return sc__bad_attr(c, A_DIVISOR, "must not be 0");
  SC_TRY(check_windows(c, adjoint ? size->v : x->dim, adjoint ? x->dim : size->v, x->ndim, (int64_t)a[A_DIMS].i, &a[A_KERNEL], &a[A_STRIDE], &a[A_PADDING], NULL));
  sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, size->n, size->v);
  return SC_OK;
}
static sc_status avg_windows_infer(sc_call *c) { return avg_infer(c, false); }
static sc_status avg_adjoint_infer(sc_call *c) { return avg_infer(c, true); }

/* The table of one dim and the number each sum is divided by. */
static sc_status avg_taps(sc_context *ctx, const sc_attr *a, int i, int64_t in, int64_t out, sc_taps *t, sc_taps *count) {
  bool adaptive = a[A_KERNEL].n == 0;
  int64_t k = adaptive ? (out ? in / out + 2 : 1) : a[A_KERNEL].v[i];
  if (k > in) k = in;
  SC_TRY(sc__taps_new(ctx, in, out, k, t));
  SC_TRY(sc__taps_new(ctx, 1, out, 1, count));
  for (int64_t j = 0; j < out; j++) {
    int64_t from, to, whole;
    if (adaptive) {
      from = (int64_t)(((__int128)j * in) / out);
      to = (int64_t)(((__int128)(j + 1) * in + out - 1) / out);
      whole = to - from;
    } else {
      int64_t pad = a[A_PADDING].v[i];
      from = j * a[A_STRIDE].v[i] - pad;
      to = from + a[A_KERNEL].v[i] < in + pad ? from + a[A_KERNEL].v[i] : in + pad;
      whole = to - from;
      if (from < 0) from = 0;
      if (to > in) to = in;
      if (!a[A_INCLUDE].i) whole = to - from;
    }
    count->weight[j] = whole > 0 ? (double)whole : 1;
    for (int64_t m = from; m < to; m++) { t->index[j * k + m - from] = m; t->weight[j * k + m - from] = 1; }
  }
  return SC_OK;
}

/* y / counts, over [planes, out…] */
static void divide(sc_ctype type, int64_t planes, int nd, const sc_taps *count, const sc_attr *divisor, const void *x, void *y) {
  int64_t n[3] = {1, 1, 1}, at = 0;
  const double one = 1, *w[3] = {&one, &one, &one};
  for (int i = 0; i < nd; i++) { n[3 - nd + i] = count[i].n_out; w[3 - nd + i] = count[i].weight; }
  bool fixed = divisor->kind == SC_ATTR_INT;
  for (int64_t p = 0; p < planes; p++)
    for (int64_t a = 0; a < n[0]; a++)
      for (int64_t b = 0; b < n[1]; b++)
        for (int64_t e = 0; e < n[2]; e++, at++) {
          double by = fixed ? (double)divisor->i : w[0][a] * w[1][b] * w[2][e];
          if (type == SC_C_F32) ((float *)y)[at] = ((const float *)x)[at] / (float)by;
          else if (type == SC_C_F64) ((double *)y)[at] = ((const double *)x)[at] / by;
          else ((int64_t *)y)[at] = ((const int64_t *)x)[at] / (int64_t)by;
        }
}

static sc_status avg_maps(sc_call *c, bool adjoint) {
  const sc_tensor *x = c->in[0], *y = c->out[0];
  const sc_attr *a = c->attr;
  int nd = (int)a[A_DIMS].i, from = x->ndim - nd;
  sc_taps t[3] = {0}, count[3] = {0};
  sc_work w;
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)x->dtype), 0);
  for (int i = 0; i < nd && s == SC_OK; i++) {
    int64_t in = adjoint ? y->dim[from + i] : x->dim[from + i], out = adjoint ? x->dim[from + i] : y->dim[from + i];
    s = avg_taps(c->ctx, a, i, in, out, &t[i], &count[i]);
  }
  if (s == SC_OK && y->numel) {
    sc_ctype type = work_ctype((sc_dtype)x->dtype);
    int64_t planes = sc__product(x->dim, from);
    if (!adjoint) {
      s = sc__separable(c->ctx, type, planes, nd, t, false, w.in[0]->data, w.out[0]->data);
      if (s == SC_OK) divide(type, planes, nd, count, &a[A_DIVISOR], w.out[0]->data, w.out[0]->data);
    } else {
      sc_tensor *g;
      s = sc_tensor_new(c->ctx, w.type, x->ndim, x->dim, &g);
      if (s == SC_OK) {
        divide(type, planes, nd, count, &a[A_DIVISOR], w.in[0]->data, g->data);
        s = sc__separable(c->ctx, type, planes, nd, t, true, g->data, w.out[0]->data);
        sc_tensor_release(g);
      }
    }
  }
  sc__taps_free(c->ctx, t, 3);
  sc__taps_free(c->ctx, count, 3);
  return sc__work_end(&w, s);
}
static sc_status avg_run(sc_call *c) { return avg_maps(c, false); }
static sc_status avg_adjoint_run(sc_call *c) { return avg_maps(c, true); }

/* slots: kernel_size 0, stride 1, padding 2, ceil_mode 3, count_include_pad 4, divisor_override 5 (not in 1d) */
static sc_status avg_pool(sc_call *c, int nd) {
  SC_TRY(check_x(c, nd));
  const int64_t *k = c->attr[0].v, *s = sc__has(c, 1) ? c->attr[1].v : k, *p = c->attr[2].v;
  SC_TRY(check_positive(c, 0, nd, 1, "kernel_size"));
  if (sc__has(c, 1)) SC_TRY(check_positive(c, 1, nd, 1, "stride"));
  SC_TRY(check_positive(c, 2, nd, 0, "padding"));
  for (int i = 0; i < nd; i++)
    if (p[i] > k[i] / 2) return sc__bad_attr(c, 2, "padding %lld is more than half of the window, %lld", (long long)p[i], (long long)k[i]);
  if (nd > 1 && sc__has(c, 5) && c->attr[5].i == 0) return sc__bad_attr(c, 5, "divisor_override must not be 0");
  int64_t size[SC_MAX_DIMS];
  SC_TRY(pooled_shape(c, nd, k, s, p, NULL, c->attr[3].i, size));
  sc_attr a[7] = {sc__ints(size, c->in[0]->ndim), sc__ints(k, nd), sc__ints(s, nd), sc__ints(p, nd), c->attr[4], nd > 1 ? c->attr[5] : sc__none(), sc__int(nd)};
  SC_TRY(sc__op(c->ctx, "avg_windows", c->in, 1, a, 7, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

static sc_status adaptive_shape(sc_call *c, int nd, int64_t *size) {
  SC_TRY(check_x(c, nd));
  const sc_tensor *x = c->in[0];
  for (int i = 0, lead = x->ndim - nd; i < x->ndim; i++) {
    int64_t v = i < lead || c->attr[0].v[i - lead] == SC_HOLE ? x->dim[i] : c->attr[0].v[i - lead];
    if (i >= lead && (v < 0 || v > INT32_MAX)) return sc__bad_attr(c, 0, "output_size must be between 0 and %d, got %lld", INT32_MAX, (long long)v);
    size[i] = v;
  }
  return SC_OK;
}

static sc_status adaptive_avg(sc_call *c, int nd) {
  int64_t size[SC_MAX_DIMS];
  SC_TRY(adaptive_shape(c, nd, size));
  sc_attr none = sc__ints(size, 0);
  sc_attr a[7] = {sc__ints(size, c->in[0]->ndim), none, none, none, sc__bool(true), sc__none(), sc__int(nd)};
  SC_TRY(sc__op(c->ctx, "avg_windows", c->in, 1, a, 7, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

/* ---- max_windows(x, size, kernel, stride, padding, dilation, dims) -> values, indices; max_window_values gives the first alone.
** size: the whole shape of the result. An empty kernel list means adaptive windows. ---- */
enum { M_SIZE, M_KERNEL, M_STRIDE, M_PADDING, M_DILATION, M_DIMS };

static sc_status max_infer(sc_call *c) {
  const sc_attr *a = c->attr;
  const sc_tensor *x = c->in[0];
  if (a[M_SIZE].n != x->ndim) return sc__bad_call(c, "the shapes do not belong together");
  SC_TRY(check_windows(c, x->dim, a[M_SIZE].v, x->ndim, a[M_DIMS].i, &a[M_KERNEL], &a[M_STRIDE], &a[M_PADDING], &a[M_DILATION]));
  sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, a[M_SIZE].n, a[M_SIZE].v);
  sc__meta_set(&c->meta[1], SC_INT64, a[M_SIZE].n, a[M_SIZE].v);
  c->n_out = 2;
  return SC_OK;
}

static sc_status max_values_infer(sc_call *c) {
  SC_TRY(max_infer(c));
  c->n_out = 1;
  return SC_OK;
}

static void max_window(const sc_attr *a, int i, int64_t in, int64_t out, int64_t *start, int64_t *count) {
  for (int64_t j = 0; j < out; j++) {
    if (a[M_KERNEL].n == 0) {
      start[j] = (int64_t)(((__int128)j * in) / out);
      count[j] = (int64_t)(((__int128)(j + 1) * in + out - 1) / out) - start[j];
      continue;
    }
    int64_t d = a[M_DILATION].v[i], k = a[M_KERNEL].v[i], from = j * a[M_STRIDE].v[i] - a[M_PADDING].v[i], skip = from < 0 ? (-from + d - 1) / d : 0;
    start[j] = from + skip * d;
    count[j] = start[j] >= in ? 0 : (in - start[j] + d - 1) / d;
    if (count[j] > k - skip) count[j] = k - skip;
    if (count[j] < 0) count[j] = 0;
  }
}

static sc_status max_run(sc_call *c) {
  const sc_tensor *x = c->in[0], *y = c->out[0];
  int nd = (int)c->attr[M_DIMS].i, from = x->ndim - nd;
  sc_windows dim[3];
  sc_work w;
  int64_t total = 3;
  for (int i = 0; i < nd; i++) total += y->dim[from + i];
  int64_t *table = sc__alloc(c->ctx, (size_t)total * 16);
  if (!table) return sc__no_memory(c->ctx, (size_t)total * 16);
  int64_t *at = table;
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - nd);
    int64_t n = d < 0 ? 1 : y->dim[from + d];
    dim[i] = (sc_windows){.n_in = d < 0 ? 1 : x->dim[from + d], .n_out = n, .dilation = 1, .start = at, .count = at + n};
    if (d < 0) { at[0] = 0; at[1] = 1; }
    else max_window(c->attr, d, dim[i].n_in, n, at, at + n);
    if (d >= 0 && c->attr[M_KERNEL].n) dim[i].dilation = c->attr[M_DILATION].v[d];
    at += 2 * n;
  }
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)x->dtype), 0);
  if (s == SC_OK && y->numel)
    sc__max_windows(c->ctx, work_ctype((sc_dtype)x->dtype), sc__product(x->dim, from), dim, c->base, w.in[0]->data, w.out[0]->data,
                    c->n_out > 1 ? (int64_t *)c->out[1]->data : NULL);
  sc__release(c->ctx, table, (size_t)total * 16);
  return sc__work_end(&w, s);
}

static sc_status emit_max(sc_call *c, const sc_attr *a, bool indices) {
  int n;
  bool alone = !indices && !c->ctx->grad_enabled && !sc__is_symbolic(c->in[0]);     /* graphs keep the public face; passes drop positions */
  SC_TRY(sc__emit(c->ctx, sc__op_find(c->ctx, alone ? "max_window_values" : "max_windows"), c->in, 1, a, c->base, c->out, &n));
  c->n_out = n;
  if (n > 1 && !indices) { sc_tensor_release(c->out[1]); c->out[1] = NULL; c->n_out = 1; }
  return SC_OK;
}

/* slots: kernel_size 0, stride 1, padding 2, dilation 3, ceil_mode 4, return_indices 5 */
static sc_status max_pool(sc_call *c, int nd) {
  SC_TRY(check_x(c, nd));
  const int64_t *k = c->attr[0].v, *s = sc__has(c, 1) ? c->attr[1].v : k, *p = c->attr[2].v, *d = c->attr[3].v;
  SC_TRY(check_positive(c, 0, nd, 1, "kernel_size"));
  if (sc__has(c, 1)) SC_TRY(check_positive(c, 1, nd, 1, "stride"));
  SC_TRY(check_positive(c, 2, nd, 0, "padding"));
  SC_TRY(check_positive(c, 3, nd, 1, "dilation"));
  for (int i = 0; i < nd; i++)
    if (p[i] > k[i] / 2) return sc__bad_attr(c, 2, "padding %lld is more than half of the window, %lld", (long long)p[i], (long long)k[i]);
  int64_t size[SC_MAX_DIMS];
  SC_TRY(pooled_shape(c, nd, k, s, p, d, c->attr[4].i, size));
  sc_attr a[6] = {sc__ints(size, c->in[0]->ndim), sc__ints(k, nd), sc__ints(s, nd), sc__ints(p, nd), sc__ints(d, nd), sc__int(nd)};
  return emit_max(c, a, c->attr[5].i);
}

static sc_status adaptive_max(sc_call *c, int nd) {
  int64_t size[SC_MAX_DIMS];
  SC_TRY(adaptive_shape(c, nd, size));
  sc_attr none = sc__ints(size, 0);
  sc_attr a[6] = {sc__ints(size, c->in[0]->ndim), none, none, none, none, sc__int(nd)};
  return emit_max(c, a, c->attr[1].i);
}

/* ---- by position within a plane: plane_scatter adds, plane_put writes, plane_gather reads ---- */
static sc_status plane_infer(sc_call *c) {
  const sc_tensor *x = c->in[0], *at = c->in[1];
  const sc_attr *size = &c->attr[0];
  char a[200], b[200];
  if (at->dtype != SC_INT64) return sc__bad_input(c, 1, "expected int64, got %s", sc_dtype_name((sc_dtype)at->dtype));
  int64_t nd = c->attr[1].i;
  bool fits = size->n == at->ndim && nd >= 1 && nd <= 3 && nd <= at->ndim && x->ndim == at->ndim;
  for (int i = 0; i < at->ndim && fits; i++) fits = size->v[i] >= 0 && (i >= at->ndim - nd || (size->v[i] == at->dim[i] && x->dim[i] == at->dim[i]));
  if (!fits) return sc__bad_call(c, "the shapes do not belong together");
  bool gather = c->op->def->signature[6] == 'g';
  const sc_tensor *like = gather ? NULL : x;
  if (like && (like->ndim != at->ndim || memcmp(like->dim, at->dim, (size_t)at->ndim * 8) != 0))
    return sc__bad_input(c, 1, "expected indices of the input's shape %s, got %s", sc__shape_text(x->ndim, x->dim, a, sizeof a),
                         sc__shape_text(at->ndim, at->dim, b, sizeof b));
  if (gather) sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, at->ndim, at->dim);
  else sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, size->n, size->v);
  return SC_OK;
}

static sc_status check_positions(sc_call *c, const int64_t *at, int64_t n, int64_t plane) {
  for (int64_t i = 0; i < n; i++) {
    int64_t k = sc__position(at[i], c->base);
    if (k < 0 || k >= plane)
      return sc__bad_input(c, 1, "index %lld is out of range for a plane of %lld elements (expected %d to %lld)", (long long)at[i], (long long)plane,
                           c->base, (long long)plane - 1 + c->base);
  }
  return SC_OK;
}

typedef enum plane_kind { PLANE_ADD, PLANE_PUT, PLANE_GATHER } plane_kind;

#define MOVE(T) \
  for (int64_t p = 0; p < planes; p++) { \
    const T *x = (const T *)w.in[0]->data + p * (kind == PLANE_GATHER ? large : small); \
    T *y = (T *)w.out[0]->data + p * (kind == PLANE_GATHER ? small : large); \
    const int64_t *k = index + p * small; \
    for (int64_t i = 0; i < small; i++) \
      if (kind == PLANE_ADD) y[k[i] - base] += x[i]; \
      else if (kind == PLANE_PUT) y[k[i] - base] = x[i]; \
      else y[i] = x[k[i] - base]; \
  }

static sc_status plane_move(sc_call *c, plane_kind kind) {
  const sc_tensor *many = kind == PLANE_GATHER ? c->in[0] : c->out[0], *at = c->in[1];
  int nd = (int)c->attr[1].i;
  int64_t large = sc__product(many->dim + many->ndim - nd, nd), small = sc__product(at->dim + at->ndim - nd, nd), planes = sc__product(at->dim, at->ndim - nd);
  int64_t base = c->base;
  sc_work w;
  sc_tensor *packed = NULL;
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)c->in[0]->dtype), 2);
  if (s == SC_OK) s = sc__packed_as(c->in[1], SC_INT64, &packed);
  if (s == SC_OK) s = check_positions(c, (const int64_t *)packed->data, at->numel, large);
  if (s == SC_OK) {
    const int64_t *index = (const int64_t *)packed->data;
    if (kind != PLANE_GATHER) memset(w.out[0]->data, 0, (size_t)w.out[0]->numel * sc_dtype_size((sc_dtype)w.out[0]->dtype));
    if (w.type == SC_FLOAT32) { MOVE(float) } else if (w.type == SC_FLOAT64) { MOVE(double) } else { MOVE(uint64_t) }
  }
  sc_tensor_release(packed);
  return sc__work_end(&w, s);
}
#undef MOVE
static sc_status plane_add_run(sc_call *c) { return plane_move(c, PLANE_ADD); }
static sc_status plane_put_run(sc_call *c) { return plane_move(c, PLANE_PUT); }
static sc_status plane_gather_run(sc_call *c) { return plane_move(c, PLANE_GATHER); }

/* slots: kernel_size 0, stride 1, padding 2, output_size 3 */
static sc_status unpool(sc_call *c, int nd) {
  SC_TRY(check_x(c, nd));
  const sc_tensor *x = c->in[0];
  const int64_t *k = c->attr[0].v, *s = sc__has(c, 1) ? c->attr[1].v : k, *p = c->attr[2].v;
  SC_TRY(check_positive(c, 0, nd, 1, "kernel_size"));
  if (sc__has(c, 1)) SC_TRY(check_positive(c, 1, nd, 1, "stride"));
  SC_TRY(check_positive(c, 2, nd, 0, "padding"));
  const sc_attr *want = &c->attr[3];
  if (want->kind == SC_ATTR_INTS && want->n != nd && want->n != nd + 1 && want->n != nd + 2)
    return sc__bad_attr(c, 3, "expected %d sizes, got %d", nd, want->n);
  int64_t size[SC_MAX_DIMS];
  int from = x->ndim - nd;
  for (int i = 0; i < from; i++) size[i] = x->dim[i];
  for (int i = 0; i < nd; i++) {
    int64_t span;
    if (!sc__mul(x->dim[from + i] - 1, s[i], &span)) return sc__bad_call(c, "the result is too large");
    size[from + i] = span - 2 * p[i] + k[i];
    if (want->kind != SC_ATTR_INTS) continue;
    int64_t v = want->v[want->n - nd + i];
    if (v <= size[from + i] - s[i] || v >= size[from + i] + s[i])
      return sc__bad_attr(c, 3, "size %lld is not between %lld and %lld", (long long)v, (long long)(size[from + i] - s[i]), (long long)(size[from + i] + s[i]));
    size[from + i] = v;
  }
  sc_attr a[2] = {sc__ints(size, x->ndim), sc__int(nd)};
  SC_TRY(sc__op(c->ctx, "plane_put", c->in, 2, a, 2, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

#define OF(f) \
  static sc_status f##1(sc_call *c) { return f(c, 1); } \
  static sc_status f##2(sc_call *c) { return f(c, 2); } \
  static sc_status f##3(sc_call *c) { return f(c, 3); }
OF(max_pool) OF(avg_pool) OF(adaptive_avg) OF(adaptive_max) OF(unpool)
#undef OF

#define MAX_ROW(n, fn) \
  {"nn.functional.max_pool" n "d(x, kernel_size: int[" n "], stride: int[" n "]?, padding: int[" n "] = 0, dilation: int[" n "] = 1, ceil_mode: bool = false, return_indices: bool = false)", \
   "The largest element of each window; padding counts as -infinity, stride is kernel_size unless given.\n" \
   "return_indices: the flat positions within a plane as well.\nErrors: padding above half of the window; a window that does not fit.", \
   SC_OP_FUNCTION, .compose = fn}
#define AVG_HELP "The mean of each window.\nceil_mode: windows may reach over the end. count_include_pad: zeros of the padding count.\nErrors: padding above half of the window."
#define ADAPTIVE_AVG(n, fn) \
  {"nn.functional.adaptive_avg_pool" n "d(x, output_size: int?[" n "])", "Means of windows placed so that the result has that size; nil in the list keeps x's.", SC_OP_FUNCTION, .compose = fn}
#define ADAPTIVE_MAX(n, fn) \
  {"nn.functional.adaptive_max_pool" n "d(x, output_size: int?[" n "], return_indices: bool = false)", \
   "Largest elements of windows placed so that the result has that size; with return_indices their flat positions as well.", SC_OP_FUNCTION, .compose = fn}
#define UNPOOL(n, fn) \
  {"nn.functional.max_unpool" n "d(x, indices, kernel_size: int[" n "], stride: int[" n "]?, padding: int[" n "] = 0, output_size: int[]?)", \
   "Puts x where max pooling had found it, zeros elsewhere.\nErrors: an index outside its plane.", SC_OP_FUNCTION, .compose = fn}

const sc_op sc__ops_pool[] = {
  {"avg_windows(x, size: int[], kernel: int[], stride: int[], padding: int[], include_pad: bool, divisor: int?, dims: int)",
   "Means of windows over the last dims; without a kernel the windows are adaptive.", SC_OP_INTERNAL, .infer = avg_windows_infer, .run = avg_run,
   .grad = {"avg_windows_adjoint(dy, shape(x), kernel, stride, padding, include_pad, divisor, dims)"}},
  {"avg_windows_adjoint(x, size: int[], kernel: int[], stride: int[], padding: int[], include_pad: bool, divisor: int?, dims: int)",
   "avg_windows' adjoint.", SC_OP_INTERNAL, .infer = avg_adjoint_infer, .run = avg_adjoint_run,
   .grad = {"avg_windows(dy, shape(x), kernel, stride, padding, include_pad, divisor, dims)"}},
  {"max_windows(x, size: int[], kernel: int[], stride: int[], padding: int[], dilation: int[], dims: int) -> values, indices",
   "Largest elements of windows over the last dims and their positions.", SC_OP_INTERNAL, .infer = max_infer, .run = max_run,
   .grad = {"plane_scatter(dy, y2, shape(x), dims)"}},
  {"max_window_values(x, size: int[], kernel: int[], stride: int[], padding: int[], dilation: int[], dims: int)",
   "max_windows without positions, where nothing reads them.", SC_OP_INTERNAL, .infer = max_values_infer, .run = max_run,
   .no_grad = "passes make it, after gradients have been recorded"},
  {"plane_scatter(x, indices, size: int[], dims: int)", "x added into zeros of that size at positions within planes.", SC_OP_INTERNAL,
   .infer = plane_infer, .run = plane_add_run, .grad = {"plane_gather(dy, indices, shape(x), dims)"}},
  {"plane_put(x, indices, size: int[], dims: int)", "x put into zeros of that size at positions within planes; the last of equal positions stays.",
   SC_OP_INTERNAL, .infer = plane_infer, .run = plane_put_run, .grad = {"plane_gather(dy, indices, shape(x), dims)"}},
  {"plane_gather(x, indices, size: int[], dims: int)", "Elements of x at positions within planes.", SC_OP_INTERNAL, .infer = plane_infer,
   .run = plane_gather_run, .grad = {"plane_scatter(dy, indices, shape(x), dims)"}},
  MAX_ROW("1", max_pool1), MAX_ROW("2", max_pool2), MAX_ROW("3", max_pool3),
  {"nn.functional.avg_pool1d(x, kernel_size: int[1], stride: int[1]?, padding: int[1] = 0, ceil_mode: bool = false, count_include_pad: bool = true)",
   AVG_HELP, SC_OP_FUNCTION, .compose = avg_pool1},
  {"nn.functional.avg_pool2d(x, kernel_size: int[2], stride: int[2]?, padding: int[2] = 0, ceil_mode: bool = false, count_include_pad: bool = true, divisor_override: int?)",
   AVG_HELP, SC_OP_FUNCTION, .compose = avg_pool2},
  {"nn.functional.avg_pool3d(x, kernel_size: int[3], stride: int[3]?, padding: int[3] = 0, ceil_mode: bool = false, count_include_pad: bool = true, divisor_override: int?)",
   AVG_HELP, SC_OP_FUNCTION, .compose = avg_pool3},
  ADAPTIVE_AVG("1", adaptive_avg1), ADAPTIVE_AVG("2", adaptive_avg2), ADAPTIVE_AVG("3", adaptive_avg3),
  ADAPTIVE_MAX("1", adaptive_max1), ADAPTIVE_MAX("2", adaptive_max2), ADAPTIVE_MAX("3", adaptive_max3),
  UNPOOL("1", unpool1), UNPOOL("2", unpool2), UNPOOL("3", unpool3),
};
const int sc__ops_pool_count = SC_COUNT(sc__ops_pool);
