/* Normalisation: over rows (layer_norm, group_norm, instance_norm) and over channels (batch_norm in training). Each keeps the mean and
** 1/deviation it used; their gradients are one kernel. When the gradient itself will be differentiated, it is written with plain
** ops instead, the statistics worked out again from the input.
** Means are exact to the last bit or so: sums run in blocks, and the variance is that of the differences from the mean. */
#include "../kernels/neural.h"
#include "neural.h"

#include <math.h>
#include <string.h>

static sc_dtype float_dtype(const sc_tensor *t) { return (sc_dtype)t->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32; }

/* ---- the second way, with ops: x over dims `over`, weight shaped to broadcast ---- */

static sc_status composed_backward(sc_grad_call *g, const int64_t *over, int n_over, const int64_t *w_shape, int w_dims, int64_t count, double eps) {
  sc_ex e = {.ctx = g->ctx};
  sc_tensor *x = g->in[0], *w = g->in[1], *dy = g->dy[0];
  double n = (double)(count > 0 ? count : 1);
  sc_tensor *mean = sc__exn(&e, "div", sc__ex_sum(&e, x, over, n_over, true), n);
  sc_tensor *xc = sc__ex2(&e, "sub", x, mean);
  sc_tensor *var = sc__exn(&e, "div", sc__ex_sum(&e, sc__ex2(&e, "mul", xc, xc), over, n_over, true), n);
  sc_tensor *rstd = sc__ex1(&e, "rsqrt", sc__exn(&e, "add", var, eps));
  sc_tensor *xhat = sc__ex2(&e, "mul", xc, rstd);
  if (g->wanted[0]) {
    sc_tensor *p = w ? sc__ex2(&e, "mul", dy, sc__ex_shape(&e, "reshape", w, w_shape, w_dims)) : dy;
    sc_tensor *a = sc__exn(&e, "div", sc__ex_sum(&e, p, over, n_over, true), n);
    sc_tensor *b = sc__exn(&e, "div", sc__ex_sum(&e, sc__ex2(&e, "mul", p, xhat), over, n_over, true), n);
    sc_tensor *dx = sc__ex2(&e, "mul", sc__ex2(&e, "sub", sc__ex2(&e, "sub", p, a), sc__ex2(&e, "mul", xhat, b)), rstd);
    g->dx[0] = dx ? sc_tensor_retain(dx) : NULL;
  }
  if (w && g->wanted[1]) {
    sc_tensor *dw = sc__ex_shape(&e, "reshape", sc__ex_shape(&e, "sum_to_size", sc__ex2(&e, "mul", dy, xhat), w_shape, w_dims), w->dim, w->ndim);
    g->dx[1] = dw ? sc_tensor_retain(dw) : NULL;
  }
  if (g->wanted[2]) {
    int ndim;
    const int64_t *dim = sc__grad_shape(g, 2, &ndim);
    sc_tensor *db = sc__ex_shape(&e, "reshape", sc__ex_shape(&e, "sum_to_size", dy, w_shape, w_dims), dim, ndim);
    g->dx[2] = db ? sc_tensor_retain(db) : NULL;
  }
  return sc__ex_end(&e, NULL, NULL);
}

static sc_status fused_backward(sc_grad_call *g, const char *name, const sc_attr *attr) {
  sc_tensor *in[5] = {g->dy[0], g->in[0], g->in[1], g->out[1], g->out[2]}, *out[3];
  int n;
  SC_TRY(sc__emit(g->ctx, sc__op_find(g->ctx, name), in, 5, attr, g->base, out, &n));
  for (int i = 0; i < 3; i++) {
    if (g->wanted[i]) g->dx[i] = out[i];
    else sc_tensor_release(out[i]);
  }
  return SC_OK;
}

/* Running statistics of any float dtype, one channel: new = (1 - momentum) old + momentum value. */
static void update_running(sc_tensor *running, int64_t channel, double momentum, double value) {
  char *at = running->data + channel * sc__stride(running)[0] * (int64_t)sc_dtype_size((sc_dtype)running->dtype);
  double old = sc__load((sc_dtype)running->dtype, at).f;
  sc__store((sc_dtype)running->dtype, at, sc__scalar_float((1 - momentum) * old + momentum * value));
}

static sc_status check_channel_vector(sc_call *c, int slot, int64_t channels) {
  const sc_tensor *t = c->in[slot];
  char text[200];
  if (!t) return SC_OK;
  if (t->ndim != 1 || t->dim[0] != channels)
    return sc__bad_input(c, slot, "expected %lld elements, one per channel, got shape %s", (long long)channels, sc__shape_text(t->ndim, t->dim, text, sizeof text));
  if (!sc__is_float((sc_dtype)t->dtype)) return sc__bad_input(c, slot, "expected floats, got %s", sc_dtype_name((sc_dtype)t->dtype));
  return SC_OK;
}

static sc_status check_float(sc_call *c) {
  if (!sc__is_float((sc_dtype)c->in[0]->dtype)) return sc__bad_input(c, 0, "expected floats, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype));
  return SC_OK;
}

/* ---- rows: normalize_rows(x, weight?, bias?, running_mean?, running_var?, dims, momentum, eps) -> y, mean, rstd ----
** A row is the last `dims` dims. Running statistics are those of the dim before the row, averaged over the dims before that. */

static void rows_of(const sc_tensor *x, int dims, int64_t *rows, int64_t *n) {
  *rows = sc__product(x->dim, x->ndim - dims);
  *n = sc__product(x->dim + x->ndim - dims, dims);
}

static sc_status rows_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  int dims = (int)c->attr[0].i;
  SC_TRY(check_float(c));
  if (c->attr[0].i < 1 || c->attr[0].i > x->ndim) return sc__bad_call(c, "expected between 1 and %d dimensions of a row, got %lld", x->ndim, (long long)c->attr[0].i);
  for (int i = 1; i < 3; i++) SC_TRY(sc__want(c, i, dims, x->dim + x->ndim - dims));
  for (int i = 3; i < 5; i++) SC_TRY(check_channel_vector(c, i, x->ndim > dims ? x->dim[x->ndim - dims - 1] : 0));
  sc__meta_like(&c->meta[0], x);
  for (int i = 1; i < 3; i++) sc__meta_set(&c->meta[i], float_dtype(x), x->ndim - dims, x->dim);
  c->n_out = 3;
  return SC_OK;
}

typedef struct rows_job {
  const sc_neural *k;
  int64_t n, z, rows, block;
  const char *x, *w, *b, *dy;
  double eps;
  char *y, *mean, *rstd, *dx, *dw, *db;
} rows_job;

static void rows_forward(void *arg, int64_t begin, int64_t end) {
  const rows_job *j = arg;
  for (int64_t r = begin; r < end; r++)
    j->k->norm_row(j->n, j->x + r * j->n * j->z, j->w, j->b, j->eps, j->y + r * j->n * j->z, j->mean + r * j->z, j->rstd + r * j->z);
}

static void rows_running(sc_call *c, const sc_work *w, int64_t rows, int64_t n) {
  sc_tensor *rm = c->in[3], *rv = c->in[4];
  int64_t C = rm ? rm->dim[0] : rv ? rv->dim[0] : 0, N = C ? rows / C : 0;
  double momentum = c->attr[1].f, eps = c->attr[2].f;
  for (int64_t ch = 0; ch < C && N; ch++) {
    double mean = 0, var = 0;
    for (int64_t i = 0; i < N; i++) {
      size_t at = (size_t)(i * C + ch) * sc_dtype_size(w->type);
      double r = sc__load(w->type, w->out[2]->data + at).f;
      mean += sc__load(w->type, w->out[1]->data + at).f;
      var += (1 / (r * r) - eps) * (double)n / (double)(n - 1);
    }
    if (rm) update_running(rm, ch, momentum, mean / (double)N);
    if (rv) update_running(rv, ch, momentum, var / (double)N);
  }
}

static sc_status rows_run(sc_call *c) {
  int64_t rows, n;
  sc_work w;
  rows_of(c->in[0], (int)c->attr[0].i, &rows, &n);
  sc_status s = sc__work_begin(&w, c, float_dtype(c->in[0]), 0x18);
  if (s == SC_OK) {
    rows_job j = {.k = sc__neural(c->ctx->isa, w.type), .n = n, .z = (int64_t)sc_dtype_size(w.type), .rows = rows, .x = w.in[0]->data, .w = sc__data(w.in[1]),
                  .b = sc__data(w.in[2]), .eps = c->attr[2].f, .y = w.out[0]->data, .mean = w.out[1]->data, .rstd = w.out[2]->data};
    sc__parallel(c->ctx, rows, 1, (double)n * 0.5, rows_forward, &j);
    rows_running(c, &w, rows, n);
  }
  return sc__work_end(&w, s);
}

static sc_status rows_back_infer(sc_call *c) {
  const sc_tensor *x = c->in[1];
  int dims = (int)c->attr[0].i;
  if (c->attr[0].i < 1 || c->attr[0].i > x->ndim) return sc__bad_call(c, "expected between 1 and %d dimensions of a row, got %lld", x->ndim, (long long)c->attr[0].i);
  SC_TRY(sc__want(c, 0, x->ndim, x->dim));
  SC_TRY(sc__want(c, 2, dims, x->dim + x->ndim - dims));
  for (int i = 3; i < 5; i++) SC_TRY(sc__want(c, i, x->ndim - dims, x->dim));
  sc__meta_like(&c->meta[0], x);
  for (int i = 1; i < 3; i++) sc__meta_set(&c->meta[i], (sc_dtype)(c->in[2] ? c->in[2]->dtype : x->dtype), dims, x->dim + x->ndim - dims);
  c->n_out = 3;
  return SC_OK;
}

static void rows_backward_blocks(void *arg, int64_t begin, int64_t end) {
  const rows_job *j = arg;
  for (int64_t k = begin; k < end; k++) {
    char *dw = j->dw + k * j->n * j->z * 2, *db = dw + j->n * j->z;
    int64_t last = (k + 1) * j->block < j->rows ? (k + 1) * j->block : j->rows;
    for (int64_t r = k * j->block; r < last; r++)
      j->k->norm_row_back(j->n, j->dy + r * j->n * j->z, j->x + r * j->n * j->z, j->w, j->mean + r * j->z, j->rstd + r * j->z,
                          j->dx + r * j->n * j->z, dw, db);
  }
}

static void add_up(sc_dtype type, int64_t n, int64_t blocks, const void *parts, void *dw, void *db) {
  for (int64_t i = 0; i < n; i++) {
    double a = 0, b = 0;
    for (int64_t k = 0; k < blocks; k++)
      if (type == SC_FLOAT32) { a += ((const float *)parts)[k * n * 2 + i]; b += ((const float *)parts)[k * n * 2 + n + i]; }
      else { a += ((const double *)parts)[k * n * 2 + i]; b += ((const double *)parts)[k * n * 2 + n + i]; }
    if (type == SC_FLOAT32) { ((float *)dw)[i] = (float)a; ((float *)db)[i] = (float)b; }
    else { ((double *)dw)[i] = a; ((double *)db)[i] = b; }
  }
}

static sc_status rows_back_run(sc_call *c) {
  int64_t rows, n;
  sc_work w;
  rows_of(c->in[1], (int)c->attr[0].i, &rows, &n);
  sc_status s = sc__work_begin(&w, c, float_dtype(c->in[1]), 0);
  int64_t block = rows / 16 > 32 ? (rows + 15) / 16 : 32, blocks = (rows + block - 1) / block;   /* fixed by the shape alone */
  size_t z = sc_dtype_size(w.type), bytes = (size_t)(blocks ? blocks : 1) * (size_t)n * 2 * z + 16;
  char *parts = s == SC_OK ? sc__alloc_zero(c->ctx, bytes) : NULL;
  if (s == SC_OK && !parts) s = sc__no_memory(c->ctx, bytes);
  if (s == SC_OK) {
    rows_job j = {.k = sc__neural(c->ctx->isa, w.type), .n = n, .z = (int64_t)z, .rows = rows, .block = block, .x = w.in[1]->data, .w = sc__data(w.in[2]),
                  .dy = w.in[0]->data, .mean = w.in[3]->data, .rstd = w.in[4]->data, .dx = w.out[0]->data, .dw = parts};
    sc__parallel(c->ctx, blocks, 1, (double)(n * block) * 1.0, rows_backward_blocks, &j);
    add_up(w.type, n, blocks, parts, w.out[1]->data, w.out[2]->data);
  }
  if (parts) sc__release(c->ctx, parts, bytes);
  return sc__work_end(&w, s);
}

static sc_status rows_backward(sc_grad_call *g) {
  const sc_tensor *x = g->in[0];
  int dims = (int)g->attr[0].i;
  if (!g->ctx->grad_enabled) return fused_backward(g, "normalize_rows_backward", g->attr);
  int64_t over[SC_MAX_DIMS], rows, n;
  rows_of(x, dims, &rows, &n);
  for (int i = 0; i < dims; i++) over[i] = x->ndim - dims + i;
  return composed_backward(g, over, dims, x->dim + x->ndim - dims, dims, n, g->attr[2].f);
}

/* ---- channels: batch_norm_train(x, weight?, bias?, running_mean?, running_var?, momentum, eps) -> y, mean, rstd ---- */

static sc_status channels_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  SC_TRY(check_float(c));
  if (x->ndim < 2) return sc__bad_input(c, 0, "expected at least 2 dimensions, got %d", x->ndim);
  for (int i = 1; i < 5; i++) SC_TRY(check_channel_vector(c, i, x->dim[1]));
  sc__meta_like(&c->meta[0], x);
  for (int i = 1; i < 3; i++) sc__meta_set(&c->meta[i], float_dtype(x), 1, &x->dim[1]);
  c->n_out = 3;
  return SC_OK;
}

typedef struct channels_job {
  const sc_neural *k;
  sc_dtype type;
  int64_t N, C, L, z;
  const char *x, *w, *b, *dy, *mean_in, *rstd_in;
  double eps;
  char *y, *mean, *rstd, *dw, *db;
  sc_tensor *rm, *rv;
  double momentum;
} channels_job;

static double get(const channels_job *j, const char *v, int64_t i) {
  return j->type == SC_FLOAT32 ? (double)((const float *)v)[i] : ((const double *)v)[i];
}
static void put(const channels_job *j, char *v, int64_t i, double f) {
  if (j->type == SC_FLOAT32) ((float *)v)[i] = (float)f; else ((double *)v)[i] = f;
}

static void channels_forward(void *arg, int64_t begin, int64_t end) {
  const channels_job *j = arg;
  double count = (double)(j->N * j->L);
  for (int64_t c = begin; c < end; c++) {
    double total = 0, squares = 0, rest = 0, a, b;
    for (int64_t n = 0; n < j->N; n++) {
      j->k->moments(j->L, j->x + (n * j->C + c) * j->L * j->z, 0, &a, &b);
      total += a;
    }
    double mean = j->type == SC_FLOAT32 ? (double)(float)(total / count) : total / count;
    for (int64_t n = 0; n < j->N; n++) {
      j->k->moments(j->L, j->x + (n * j->C + c) * j->L * j->z, mean, &a, &b);
      rest += a - (double)j->L * mean;
      squares += b;
    }
    double left = rest / count, var = squares / count - left * left;
    if (var < 0) var = 0;
    double r = 1 / sqrt(var + j->eps), scale = (j->w ? get(j, j->w, c) : 1) * r, m = total / count;
    put(j, j->mean, c, m);
    put(j, j->rstd, c, r);
    for (int64_t n = 0; n < j->N; n++) {
      int64_t at = (n * j->C + c) * j->L * j->z;
      j->k->affine(j->L, j->x + at, scale, (j->b ? get(j, j->b, c) : 0) - m * scale, j->y + at);
    }
    if (j->rm) update_running(j->rm, c, j->momentum, m);
    if (j->rv) update_running(j->rv, c, j->momentum, var * count / (count - 1));
  }
}

static sc_status channels_run(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_work w;
  sc_status s = sc__work_begin(&w, c, float_dtype(x), 0x18);
  if (s == SC_OK && x->numel) {
    channels_job j = {.k = sc__neural(c->ctx->isa, w.type), .type = w.type, .N = x->dim[0], .C = x->dim[1], .L = sc__product(x->dim + 2, x->ndim - 2),
                      .z = (int64_t)sc_dtype_size(w.type), .x = w.in[0]->data, .w = sc__data(w.in[1]), .b = sc__data(w.in[2]), .eps = c->attr[1].f,
                      .y = w.out[0]->data, .mean = w.out[1]->data, .rstd = w.out[2]->data, .rm = c->in[3], .rv = c->in[4], .momentum = c->attr[0].f};
    sc__parallel(c->ctx, j.C, 1, (double)(j.N * j.L) * 0.5, channels_forward, &j);
  } else if (s == SC_OK) {
    for (int i = 1; i < 3; i++) memset(w.out[i]->data, 0, (size_t)w.out[i]->numel * sc_dtype_size(w.type));
  }
  return sc__work_end(&w, s);
}

static sc_status channels_back_infer(sc_call *c) {
  const sc_tensor *x = c->in[1];
  if (x->ndim < 2) return sc__bad_input(c, 1, "expected at least 2 dimensions, got %d", x->ndim);
  SC_TRY(sc__want(c, 0, x->ndim, x->dim));
  for (int i = 2; i < 5; i++) SC_TRY(sc__want(c, i, 1, &x->dim[1]));
  sc__meta_like(&c->meta[0], x);
  for (int i = 1; i < 3; i++) sc__meta_set(&c->meta[i], (sc_dtype)(c->in[2] ? c->in[2]->dtype : x->dtype), 1, &x->dim[1]);
  c->n_out = 3;
  return SC_OK;
}

static void channels_backward_piece(void *arg, int64_t begin, int64_t end) {
  const channels_job *j = arg;
  double count = (double)(j->N * j->L);
  for (int64_t c = begin; c < end; c++) {
    double s1 = 0, s2 = 0, a, b, mean = get(j, j->mean_in, c), r = get(j, j->rstd_in, c);
    for (int64_t n = 0; n < j->N; n++) {
      int64_t at = (n * j->C + c) * j->L * j->z;
      j->k->cross_moments(j->L, j->dy + at, j->x + at, mean, &a, &b);
      s1 += a;
      s2 += b;
    }
    if (j->type == SC_FLOAT32) s2 += s1 * ((double)(float)mean - mean);   /* the kernel's shift is the rounded mean */
    put(j, j->db, c, s1);
    put(j, j->dw, c, s2 * r);
    double scale = (j->w ? get(j, j->w, c) : 1) * r, q = -scale * r * r * s2 / count, k = -scale * s1 / count - q * mean;
    for (int64_t n = 0; n < j->N; n++) {
      int64_t at = (n * j->C + c) * j->L * j->z;
      j->k->affine2(j->L, j->dy + at, j->x + at, scale, q, k, j->y + at);
    }
  }
}

static sc_status channels_back_run(sc_call *c) {
  const sc_tensor *x = c->in[1];
  sc_work w;
  sc_status s = sc__work_begin(&w, c, float_dtype(x), 0);
  if (s == SC_OK && x->numel) {
    channels_job j = {.k = sc__neural(c->ctx->isa, w.type), .type = w.type, .N = x->dim[0], .C = x->dim[1], .L = sc__product(x->dim + 2, x->ndim - 2),
                      .z = (int64_t)sc_dtype_size(w.type), .dy = w.in[0]->data, .x = w.in[1]->data, .w = sc__data(w.in[2]), .mean_in = w.in[3]->data,
                      .rstd_in = w.in[4]->data, .y = w.out[0]->data, .dw = w.out[1]->data, .db = w.out[2]->data};
    sc__parallel(c->ctx, j.C, 1, (double)(j.N * j.L) * 1.0, channels_backward_piece, &j);
  } else if (s == SC_OK) {
    for (int i = 1; i < 3; i++) memset(w.out[i]->data, 0, (size_t)w.out[i]->numel * sc_dtype_size((sc_dtype)w.out[i]->dtype));
  }
  return sc__work_end(&w, s);
}

static sc_status channels_backward(sc_grad_call *g) {
  const sc_tensor *x = g->in[0];
  if (!g->ctx->grad_enabled) return fused_backward(g, "batch_norm_backward", NULL);
  int64_t over[SC_MAX_DIMS], shape[SC_MAX_DIMS];
  int n = 0;
  for (int i = 0; i < x->ndim; i++) {
    shape[i] = i == 1 ? x->dim[1] : 1;
    if (i != 1) over[n++] = i;
  }
  int64_t count = x->dim[1] ? x->numel / x->dim[1] : 0;
  return composed_backward(g, over, n, shape, x->ndim, count, g->attr[1].f);
}

/* ---- channel_affine(x, scale, shift?): x * scale + shift with a value per channel ---- */
static sc_status affine_infer(sc_call *c) {
  if (c->in[0]->ndim < 2) return sc__bad_input(c, 0, "expected at least 2 dimensions, got %d", c->in[0]->ndim);
  for (int i = 1; i < 3; i++) SC_TRY(check_channel_vector(c, i, c->in[0]->dim[1]));
  sc__meta_like(&c->meta[0], c->in[0]);
  return SC_OK;
}

static void affine_planes(void *arg, int64_t begin, int64_t end) {
  const channels_job *j = arg;
  for (int64_t p = begin; p < end; p++) {
    int64_t c = p % j->C;
    j->k->affine(j->L, j->x + p * j->L * j->z, get(j, j->w, c), j->b ? get(j, j->b, c) : 0, j->y + p * j->L * j->z);
  }
}

static sc_status affine_run(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_work w;
  sc_status s = sc__work_begin(&w, c, float_dtype(x), 0);
  if (s == SC_OK && x->numel) {
    channels_job j = {.k = sc__neural(c->ctx->isa, w.type), .type = w.type, .N = x->dim[0], .C = x->dim[1], .L = sc__product(x->dim + 2, x->ndim - 2),
                      .z = (int64_t)sc_dtype_size(w.type), .x = w.in[0]->data, .w = w.in[1]->data, .b = sc__data(w.in[2]), .y = w.out[0]->data};
    sc__parallel(c->ctx, j.N * j.C, 1, (double)j.L * 0.3, affine_planes, &j);
  }
  return sc__work_end(&w, s);
}

/* ---- what people call ---- */

/* layer_norm: shape 0, eps 1 */
static sc_status layer_norm(sc_call *c) {
  const sc_tensor *x = c->in[0];
  const sc_attr *shape = &c->attr[0];
  char a[200], b[200];
  SC_TRY(check_float(c));
  if (shape->n < 1) return sc__bad_attr(c, 0, "expected at least one size");
  if (shape->n > x->ndim || memcmp(shape->v, x->dim + x->ndim - shape->n, (size_t)shape->n * 8) != 0)
    return sc__bad_attr(c, 0, "normalized_shape %s is not the end of the input's shape %s", sc__shape_text(shape->n, shape->v, a, sizeof a),
                        sc__shape_text(x->ndim, x->dim, b, sizeof b));
  for (int i = 1; i < 3; i++)
    if (c->in[i] && (c->in[i]->ndim != shape->n || memcmp(c->in[i]->dim, shape->v, (size_t)shape->n * 8) != 0))
      return sc__bad_input(c, i, "expected normalized_shape %s, got shape %s", sc__shape_text(shape->n, shape->v, a, sizeof a),
                           sc__shape_text(c->in[i]->ndim, c->in[i]->dim, b, sizeof b));
  sc_tensor *in[5] = {c->in[0], c->in[1], c->in[2]};
  sc_attr attr[3] = {sc__int(shape->n), sc__float(0), c->attr[1]};
  SC_TRY(sc__op(c->ctx, "normalize_rows", in, 5, attr, 3, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

/* y * weight + bias per channel, where given; takes y. */
static sc_status channel_tail(sc_call *c, sc_tensor *y, sc_tensor *weight, sc_tensor *bias) {
  sc_ex e = {.ctx = c->ctx};
  sc_tensor *r = y;
  if (weight) {
    sc_tensor *in[3] = {y, weight, bias}, *out = NULL;
    e.s = sc__op(c->ctx, "channel_affine", in, 3, NULL, 0, &out);
    if (e.s == SC_OK) r = e.own[e.n++] = out;
  } else if (bias) {
    int64_t shape[SC_MAX_DIMS];
    for (int i = 0; i < y->ndim; i++) shape[i] = i == 1 ? y->dim[1] : 1;
    r = sc__ex2(&e, "add", y, sc__ex_shape(&e, "reshape", bias, shape, y->ndim));
  }
  sc_status s = sc__ex_end(&e, r, &c->out[0]);
  sc_tensor_release(y);
  c->n_out = s == SC_OK;
  return s;
}

/* group_norm: num_groups 0, eps 1 */
static sc_status group_norm(sc_call *c) {
  sc_tensor *x = c->in[0];
  int64_t groups = c->attr[0].i;
  SC_TRY(check_float(c));
  if (x->ndim < 2) return sc__bad_input(c, 0, "expected at least 2 dimensions, got %d", x->ndim);
  if (groups < 1 || x->dim[1] % groups) return sc__bad_attr(c, 0, "%lld groups do not divide %lld channels", (long long)groups, (long long)x->dim[1]);
  for (int i = 1; i < 3; i++) SC_TRY(check_channel_vector(c, i, x->dim[1]));
  int64_t shape[3] = {x->dim[0], groups, x->dim[0] ? x->numel / x->dim[0] / groups : sc__product(x->dim + 1, x->ndim - 1) / groups};
  sc_ex e = {.ctx = c->ctx};
  sc_tensor *in[5] = {sc__ex_shape(&e, "reshape", x, shape, 3)}, *y = NULL;
  sc_attr attr[3] = {sc__int(1), sc__float(0), c->attr[1]};
  if (e.s == SC_OK) e.s = sc__op(c->ctx, "normalize_rows", in, 5, attr, 3, &y);
  if (e.s == SC_OK) e.own[e.n++] = y;
  sc_tensor *back = e.s == SC_OK ? sc__ex_shape(&e, "reshape", y, x->dim, x->ndim) : NULL;
  SC_TRY(sc__ex_end(&e, back, &y));
  return channel_tail(c, y, c->in[1], c->in[2]);
}

/* (x - running_mean) / sqrt(running_var + eps) * weight + bias */
static sc_status with_running(sc_call *c, sc_tensor *rm, sc_tensor *rv, sc_tensor *weight, sc_tensor *bias, double eps) {
  sc_ex e = {.ctx = c->ctx};
  sc_tensor *scale = sc__ex1(&e, "rsqrt", sc__exn(&e, "add", rv, eps)), *out = NULL;
  if (weight) scale = sc__ex2(&e, "mul", scale, weight);
  sc_tensor *shift = sc__ex2(&e, "mul", rm, scale);
  shift = bias ? sc__ex2(&e, "sub", bias, shift) : sc__ex1(&e, "neg", shift);
  sc_tensor *in[3] = {c->in[0], scale, shift};
  if (e.s == SC_OK) e.s = sc__op(c->ctx, "channel_affine", in, 3, NULL, 0, &out);
  if (e.s == SC_OK) e.own[e.n++] = out;
  sc_status s = sc__ex_end(&e, out, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

/* batch_norm: training 0, momentum 1, eps 2 */
static sc_status batch_norm(sc_call *c) {
  sc_tensor *x = c->in[0];
  char t[200];
  SC_TRY(check_float(c));
  if (x->ndim == 1 && x->numel == 0) {                     /* nothing at all: no channels either */
    for (int i = 1; i < 5; i++) SC_TRY(check_channel_vector(c, i, 0));
    SC_TRY(sc__op1(c->ctx, "clone", x, &c->out[0]));
    c->n_out = 1;
    return SC_OK;
  }
  if (x->ndim < 2) return sc__bad_input(c, 0, "expected at least 2 dimensions, got %d", x->ndim);
  for (int i = 1; i < 5; i++) SC_TRY(check_channel_vector(c, i, x->dim[1]));
  if (!c->attr[0].i) {
    if (!c->in[1] || !c->in[2]) return sc__bad_input(c, c->in[1] ? 2 : 1, "outside training the running statistics are needed");
    return with_running(c, c->in[1], c->in[2], c->in[3], c->in[4], c->attr[2].f);
  }
  if (x->dim[1] && x->numel / x->dim[1] == 1)
    return sc__bad_input(c, 0, "expected more than one value per channel in training, got shape %s", sc__shape_text(x->ndim, x->dim, t, sizeof t));
  sc_tensor *in[5] = {x, c->in[3], c->in[4], c->in[1], c->in[2]};
  sc_attr attr[2] = {c->attr[1], c->attr[2]};
  SC_TRY(sc__op(c->ctx, "batch_norm_train", in, 5, attr, 2, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

/* instance_norm: use_input_stats 0, momentum 1, eps 2 */
static sc_status instance_norm(sc_call *c) {
  sc_tensor *x = c->in[0];
  char t[200];
  SC_TRY(check_float(c));
  if (x->ndim < 2) return sc__bad_input(c, 0, "expected at least 2 dimensions, got %d", x->ndim);
  for (int i = 1; i < 5; i++) SC_TRY(check_channel_vector(c, i, x->dim[1]));
  if (!c->attr[0].i) {
    if (!c->in[1] || !c->in[2]) return sc__bad_input(c, c->in[1] ? 2 : 1, "without the input's own statistics the running ones are needed");
    return with_running(c, c->in[1], c->in[2], c->in[3], c->in[4], c->attr[2].f);
  }
  int64_t n = sc__product(x->dim + 2, x->ndim - 2);
  if (n == 1 || x->ndim == 2)
    return sc__bad_input(c, 0, "expected more than one value per channel, got shape %s", sc__shape_text(x->ndim, x->dim, t, sizeof t));
  sc_tensor *in[5] = {x, NULL, NULL, c->in[1], c->in[2]}, *y;
  sc_attr attr[3] = {sc__int(x->ndim - 2), c->attr[1], c->attr[2]};
  SC_TRY(sc__op(c->ctx, "normalize_rows", in, 5, attr, 3, &y));
  return channel_tail(c, y, c->in[3], c->in[4]);
}

/* local_response_norm: size 0, alpha 1, beta 2, k 3. The mean of squares over neighbouring channels, zeros beyond the ends. */
static sc_status local_response_norm(sc_call *c) {
  sc_tensor *x = c->in[0];
  int64_t size = c->attr[0].i;
  if (x->ndim < 3) return sc__bad_input(c, 0, "expected at least 3 dimensions, got %d", x->ndim);
  if (size < 1 || size > INT32_MAX) return sc__bad_attr(c, 0, "expected a size of at least 1, got %lld", (long long)size);
  if (x->numel == 0) { c->out[0] = sc_tensor_retain(x); c->n_out = 1; return SC_OK; }
  sc_ex e = {.ctx = c->ctx};
  /* channels go last, so that a window over them is a window over the last dim */
  sc_attr swap[2] = {sc__int(1), sc__int(-1)};
  sc_tensor *sq = sc__ex(&e, "transpose", sc__ex2(&e, "mul", x, x), NULL, swap, 2), *mean = sq;
  if (sq) {
    int64_t kernel = size, one = 1, before = size / 2;
    sc_attr attr[7] = {sc__ints(sq->dim, sq->ndim), sc__ints(&kernel, 1), sc__ints(&one, 1), sc__ints(&before, 1), sc__bool(true), sc__int(size), sc__int(1)};
    mean = sc__ex(&e, "avg_windows", sq, NULL, attr, 7);
  }
  sc_tensor *base = sc__exn(&e, "add", sc__exn(&e, "mul", sc__ex(&e, "transpose", mean, NULL, swap, 2), c->attr[1].f), c->attr[3].f);
  sc_tensor *y = sc__ex2(&e, "div", x, sc__exn(&e, "pow", base, c->attr[2].f));
  sc_status s = sc__ex_end(&e, y, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

const sc_op sc__ops_normalize[] = {
  {"normalize_rows(x, weight: tensor?, bias: tensor?, running_mean: tensor?, running_var: tensor?, dims: int, momentum: float, eps: float) -> y, mean, rstd",
   "Rows (the last dims) brought to mean 0 and variance 1.", SC_OP_INTERNAL, .infer = rows_infer, .run = rows_run, .cost = sc__cost_bytes, .backward = rows_backward, .saves = 3,
   .saves_out = 6, .writes = 0x18, .over = 1},
  {"normalize_rows_backward(dy, x, weight: tensor?, mean, rstd, dims: int, momentum: float, eps: float) -> dx, dweight, dbias", "normalize_rows' gradient.",
   SC_OP_INTERNAL, .infer = rows_back_infer, .run = rows_back_run, .cost = sc__cost_bytes, .no_grad = "for gradients of gradients normalize_rows writes its gradient with plain ops"},
  {"batch_norm_train(x, weight: tensor?, bias: tensor?, running_mean: tensor?, running_var: tensor?, momentum: float, eps: float) -> y, mean, rstd",
   "Channels brought to mean 0 and variance 1.", SC_OP_INTERNAL, .infer = channels_infer, .run = channels_run, .backward = channels_backward,
   .saves = 3, .saves_out = 6, .writes = 0x18},
  {"batch_norm_backward(dy, x, weight: tensor?, mean, rstd) -> dx, dweight, dbias", "batch_norm_train's gradient.", SC_OP_INTERNAL,
   .infer = channels_back_infer, .run = channels_back_run, .no_grad = "for gradients of gradients batch_norm_train writes its gradient with plain ops"},
  {"channel_affine(x, scale, shift: tensor?)", "x * scale + shift, with a value per channel (the second dim).", SC_OP_INTERNAL, .infer = affine_infer,
   .run = affine_run, .cost = sc__cost_bytes, .over = 1, .grad = {"channel_affine(dy, scale)", "channel_sum(dy * x)", "channel_sum(dy)"}},
  {"nn.functional.layer_norm(x, normalized_shape: int[], weight: tensor?, bias: tensor?, eps: float = 1e-5)",
   "x normalised over its last dims, normalized_shape, then scaled and shifted.\nShapes: weight and bias have normalized_shape.\n"
   "Example: sc.nn.functional.layer_norm(sc.ones(2, 3), {3})\nSource: Ba et al. 2016, \"Layer Normalization\".", SC_OP_FUNCTION, .compose = layer_norm},
  {"nn.functional.group_norm(x, num_groups: int, weight: tensor?, bias: tensor?, eps: float = 1e-5)",
   "x [N, C, …] normalised over groups of channels.\nErrors: groups that do not divide the channels.\nSource: Wu and He 2018, \"Group Normalization\".",
   SC_OP_FUNCTION, .compose = group_norm},
  {"nn.functional.batch_norm(x, running_mean: tensor?, running_var: tensor?, weight: tensor?, bias: tensor?, training: bool = false, momentum: float = 0.1, eps: float = 1e-5)",
   "x [N, C, …] normalised per channel: in training by the batch's statistics, which also move the running ones; else by the running ones.\n"
   "Source: Ioffe and Szegedy 2015, \"Batch Normalization\".", SC_OP_FUNCTION, .compose = batch_norm},
  {"nn.functional.instance_norm(x, running_mean: tensor?, running_var: tensor?, weight: tensor?, bias: tensor?, use_input_stats: bool = true, momentum: float = 0.1, eps: float = 1e-5)",
   "x [N, C, …] normalised per sample and channel.", SC_OP_FUNCTION, .compose = instance_norm},
  {"nn.functional.local_response_norm(x, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0)",
   "x / (k + alpha * mean of squares over `size` neighbouring channels) ^ beta.", SC_OP_FUNCTION, .compose = local_response_norm},
};
const int sc__ops_normalize_count = SC_COUNT(sc__ops_normalize);
