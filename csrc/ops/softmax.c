/* softmax, log_softmax, softmin: packed float32 and float64 go through kernels/softmax_body.h, row by row, or in chunks of columns when
** dim is not the last. Strided inputs, halves and narrow columns are first copied into rows of float32 or float64, and back. */
#include "reduce.h"

#include <string.h>

typedef struct rows { sc_softmax_loops l; int64_t n, inner; size_t z; const char *a, *b; char *d; bool logarithm; } rows;

static void forward_rows(void *arg, int64_t begin, int64_t end) {
  const rows *r = arg;
  int64_t step = r->n * (int64_t)r->z;
  for (int64_t i = begin; i < end; i++) r->l.softmax(r->n, r->a + i * step, r->d + i * step, r->logarithm);
}

static void backward_rows(void *arg, int64_t begin, int64_t end) {
  const rows *r = arg;
  int64_t step = r->n * (int64_t)r->z;
  for (int64_t i = begin; i < end; i++) r->l.backward(r->n, r->a + i * step, r->b + i * step, r->d + i * step, r->logarithm);
}

/* Units: (outer, chunk of columns). */
static void run_columns(void *arg, int64_t begin, int64_t end) {
  const rows *r = arg;
  int64_t chunks = (r->inner + SC_SOFTMAX_COLUMNS - 1) / SC_SOFTMAX_COLUMNS;
  for (int64_t u = begin; u < end; u++) {
    int64_t c0 = u % chunks * SC_SOFTMAX_COLUMNS, w = r->inner - c0 < SC_SOFTMAX_COLUMNS ? r->inner - c0 : SC_SOFTMAX_COLUMNS;
    int64_t at = (u / chunks * r->n * r->inner + c0) * (int64_t)r->z;
    if (r->b) r->l.backward_columns(r->n, w, r->inner, r->a + at, r->b + at, r->d + at, r->logarithm);
    else r->l.softmax_columns(r->n, w, r->inner, r->a + at, r->d + at, r->logarithm);
  }
}

/* t as packed rows of `type` with dim last; new. Itself when it is that already. */
static sc_status as_rows(sc_tensor *t, int dim, sc_dtype type, sc_tensor **out) {
  if (t->contiguous && dim >= t->ndim - 1 && (sc_dtype)t->dtype == type) { *out = sc_tensor_retain(t); return SC_OK; }
  sc_meta turned, packed;
  sc__meta_set(&turned, (sc_dtype)t->dtype, t->ndim, t->dim);
  memcpy(turned.stride, sc__stride(t), (size_t)t->ndim * 8);
  turned.offset = 0;
  for (int i = dim; i + 1 < t->ndim; i++) {
    int64_t d = turned.dim[i], s = turned.stride[i];
    turned.dim[i] = turned.dim[i + 1]; turned.stride[i] = turned.stride[i + 1];
    turned.dim[i + 1] = d; turned.stride[i + 1] = s;
  }
  sc_tensor *view;
  SC_TRY(sc__tensor_view(t, &turned, &view));
  sc__meta_set(&packed, type, turned.ndim, turned.dim);
  sc_status s = sc__tensor_like_meta(t->ctx, "softmax", &packed, out);
  if (s == SC_OK && (s = sc__tensor_copy(*out, view)) != SC_OK) sc_tensor_release(*out);
  sc_tensor_release(view);
  return s;
}

/* rows with dim last back into t, where dim is where it was */
static sc_status from_rows(sc_tensor *r, int dim, sc_tensor *t) {
  sc_meta turned;
  sc__meta_set(&turned, (sc_dtype)r->dtype, t->ndim, t->dim);
  for (int i = 0; i < t->ndim; i++) turned.stride[i] = i == dim ? 1 : sc__stride(r)[i < dim ? i : i - 1];
  turned.offset = 0;
  sc_tensor *view;
  SC_TRY(sc__tensor_view(r, &turned, &view));
  sc_status s = sc__tensor_copy(t, view);
  sc_tensor_release(view);
  return s;
}

/* a (and b) through the rows into out. */
static sc_status through(sc_call *c, int dim, bool logarithm, sc_tensor *a, sc_tensor *b) {
  sc_tensor *out = c->out[0], *ra = NULL, *rb = NULL, *to = NULL;
  if (out->numel == 0) return SC_OK;
  sc_dtype type = out->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32;
  const sc_reduce_table *t = sc__reduce_table(c->ctx->isa);
  double cost = type == SC_FLOAT64 ? 6 : 0.7;
  int64_t inner = 1, n = out->ndim ? out->dim[dim] : 1;
  for (int i = dim + 1; i < out->ndim; i++) inner *= out->dim[i];
  bool direct = (sc_dtype)out->dtype == type && (sc_dtype)a->dtype == type && a->contiguous && (!b || ((sc_dtype)b->dtype == type && b->contiguous));
  rows r = {*(type == SC_FLOAT64 ? t->softmax_f64 : t->softmax_f32), n, inner, sc_dtype_size(type), a->data, b ? b->data : NULL, out->data, logarithm};
  if (direct && inner >= 16) {
    int64_t chunks = (inner + SC_SOFTMAX_COLUMNS - 1) / SC_SOFTMAX_COLUMNS;
    sc__parallel(c->ctx, out->numel / n / inner * chunks, 1, cost * (double)n * (double)(inner / chunks), run_columns, &r);
    return SC_OK;
  }
  bool straight = (sc_dtype)out->dtype == type && inner == 1;
  sc_status s = as_rows(a, dim, type, &ra);
  if (s == SC_OK && b) s = as_rows(b, dim, type, &rb);
  if (s == SC_OK) {
    sc_meta m;
    sc__meta_set(&m, type, ra->ndim, ra->dim);
    if (straight) to = sc_tensor_retain(out);
    else s = sc__tensor_like_meta(c->ctx, c->op->name, &m, &to);
  }
  if (s == SC_OK) {
    r.a = ra->data;
    r.b = rb ? rb->data : NULL;
    r.d = to->data;
    sc__parallel(c->ctx, out->numel / n, 1, (double)n * cost + 20, b ? backward_rows : forward_rows, &r);
    if (!straight) s = from_rows(to, dim, out);
  }
  sc_tensor_release(ra);
  sc_tensor_release(rb);
  sc_tensor_release(to);
  return s;
}

static sc_status softmax_infer(sc_call *c) {
  int dim;
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &dim));
  sc_dtype d = sc__dtype_or(&c->attr[1], (sc_dtype)c->in[0]->dtype);
  if (!sc__is_float(d)) {
    if (sc__has(c, 1)) return sc__bad_attr(c, 1, "expected a floating-point dtype, got %s", sc_dtype_name(d));
    return sc__bad_input(c, 0, "expected a floating-point tensor, got %s; give a dtype to convert to", sc_dtype_name(d));
  }
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = d;
  return SC_OK;
}

static sc_status forward(sc_call *c, bool logarithm) {
  int dim;
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &dim));
  return through(c, dim, logarithm, c->in[0], NULL);
}
static sc_status softmax_run(sc_call *c) { return forward(c, false); }
static sc_status log_softmax_run(sc_call *c) { return forward(c, true); }

static sc_status softmin_compose(sc_call *c) {
  sc_tensor *x;
  SC_TRY(sc__make(c, "neg", c->in, 1, NULL, 0, &x));
  sc_status s = sc__become(c, "softmax", &x, 1, c->attr, 2);
  sc_tensor_release(x);
  return s;
}

static sc_status backward_infer(sc_call *c) {
  const sc_tensor *g = c->in[0], *y = c->in[1];
  if (g->ndim != y->ndim || memcmp(g->dim, y->dim, (size_t)g->ndim * 8) != 0) return sc__bad_input(c, 0, "its shape differs from the result's");
  int dim;
  SC_TRY(sc__dim(c, 0, y->ndim, &dim));
  sc__meta_like(&c->meta[0], y);
  return SC_OK;
}

static sc_status backward(sc_call *c, bool logarithm) {
  int dim;
  SC_TRY(sc__dim(c, 0, c->in[1]->ndim, &dim));
  return through(c, dim, logarithm, c->in[0], c->in[1]);
}
static sc_status softmax_backward_run(sc_call *c) { return backward(c, false); }
static sc_status log_softmax_backward_run(sc_call *c) { return backward(c, true); }

const sc_op sc__ops_softmax[] = {
  {"softmax(x, dim: dim, dtype: dtype?)", "exp(x) / sum(exp(x)) along dim, without overflow. dtype: what to convert x to first.\n"
   "Errors: an integer tensor without a floating-point dtype.\nExample: sc.randn(2, 3):softmax(-1)", 0, .infer = softmax_infer, .run = softmax_run, .cost = sc__cost_bytes, .over = 1,
   .grad = {"softmax_backward(dy, y, dim)"}},
  {"log_softmax(x, dim: dim, dtype: dtype?)", "log(softmax(x)) along dim, exact where softmax would round to 0. dtype: what to convert x to first.", 0,
   .infer = softmax_infer, .run = log_softmax_run, .cost = sc__cost_bytes, .over = 1, .grad = {"log_softmax_backward(dy, y, dim)"}},
  {"nn.functional.softmin(x, dim: dim, dtype: dtype?)", "softmax(-x) along dim.", 0, .compose = softmin_compose},
  {"softmax_backward(g, s, dim: dim)", "softmax's gradient: s * (g - sum(g * s)).", SC_OP_INTERNAL, .infer = backward_infer,
   .run = softmax_backward_run, .cost = sc__cost_bytes,
   .grad = {"softmax_backward(dy, s, dim)", "dy * (g - sum(g * s, dim, true)) - g * sum(dy * s, dim, true)"}},
  {"log_softmax_backward(g, s, dim: dim)", "log_softmax's gradient: g - exp(s) * sum(g).", SC_OP_INTERNAL, .infer = backward_infer,
   .run = log_softmax_backward_run, .cost = sc__cost_bytes, .over = 3, .grad = {"dy - sum(dy * exp(s), dim, true)", "-dy * exp(s) * sum(g, dim, true)"}},
};
const int sc__ops_softmax_count = SC_COUNT(sc__ops_softmax);
