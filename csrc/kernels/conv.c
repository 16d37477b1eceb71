/* Convolution by matrix products (those of stride 1 in float32 go to the direct kernel in tile.c): the columns of a tile of output positions (im2col) are laid out in a buffer that stays in the
** L2 cache and multiplied by the weights. The adjoint to the input runs the product the other way and adds the columns back
** (col2im); the adjoint to the weight sums products over images and tiles. 1x1 kernels of stride 1 need no columns.
** Work is cut into a fixed number of slots, each with a buffer of its own, and the slots run in parallel. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "tile.h"

#include <string.h>

#define T float
#define N(name) name##_f32
#include "conv_cols.h"
#undef T
#undef N
#define T double
#define N(name) name##_f64
#include "conv_cols.h"
#undef T
#undef N
#define T uint64_t
#define N(name) name##_i64
#include "conv_cols.h"
#undef T
#undef N

enum { TILE_BYTES = 512 * 1024, MAX_SLOTS = 64 };

static int64_t positions(const sc_conv *p) { return p->out[0] * p->out[1] * p->out[2]; }
static int64_t pixels(const sc_conv *p) { return p->in[0] * p->in[1] * p->in[2]; }
static int64_t taps(const sc_conv *p) { return p->k[0] * p->k[1] * p->k[2]; }

void sc__im2col(const sc_conv *p, const void *x, int64_t r0, int64_t r1, int64_t w0, int64_t w1, void *cols) {
  if (p->type == SC_C_F32) im2col_f32(p, x, r0, r1, w0, w1, cols);
  else if (p->type == SC_C_F64) im2col_f64(p, x, r0, r1, w0, w1, cols);
  else im2col_i64(p, x, r0, r1, w0, w1, cols);
}

void sc__col2im(const sc_conv *p, const void *cols, int64_t r0, int64_t r1, int64_t w0, int64_t w1, void *x) {
  if (p->type == SC_C_F32) col2im_f32(p, cols, r0, r1, w0, w1, x);
  else if (p->type == SC_C_F64) col2im_f64(p, cols, r0, r1, w0, w1, x);
  else col2im_i64(p, cols, r0, r1, w0, w1, x);
}

static void fill(const sc_conv *p, int64_t rows, int64_t n, const void *bias, void *y) {
  if (p->type == SC_C_F32) fill_rows_f32(rows, n, bias, y);
  else if (p->type == SC_C_F64) fill_rows_f64(rows, n, bias, y);
  else fill_rows_i64(rows, n, bias, y);
}

/* c = a b (+ c). Integers have no accumulating product: through `spare` [m, n]. */
static sc_status product(sc_context *ctx, sc_ctype type, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
                         const void *b, int64_t ldb, bool add, void *c, int64_t ldc, void *spare) {
  if (type == SC_C_F32) return sc__gemm_f32(ctx, ta, tb, m, n, k, 1, a, lda, b, ldb, add, c, ldc);
  if (type == SC_C_F64) return sc__gemm_f64(ctx, ta, tb, m, n, k, 1, a, lda, b, ldb, add, c, ldc);
  if (!add) { sc__gemm_i64(ta, tb, m, n, k, a, lda, b, ldb, c, ldc); return SC_OK; }
  sc__gemm_i64(ta, tb, m, n, k, a, lda, b, ldb, spare, n);
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) ((uint64_t *)c)[i * ldc + j] += ((uint64_t *)spare)[i * n + j];
  return SC_OK;
}

/* ---- tiles: whole output rows, as many as fit; or pieces of one row when that is long ---- */
typedef struct tiling { int64_t rows, step_rows, step_cols, tiles_down, tiles_across; } tiling;

static tiling tile(const sc_context *ctx, const sc_conv *p) {
  int64_t tile_bytes = ctx->slice ? TILE_BYTES / 16 : TILE_BYTES, K = p->C * taps(p), z = (int64_t)sc__ctype_size(p->type), row = K * p->out[2] * z;
  tiling t = {.rows = p->out[0] * p->out[1], .step_rows = 1, .step_cols = p->out[2]};
  if (row > 0 && row <= tile_bytes) {
    t.step_rows = tile_bytes / row;
    if (t.step_rows > t.rows) t.step_rows = t.rows > 0 ? t.rows : 1;
  } else if (row > 0) {
    t.step_cols = tile_bytes / (K * z) / 16 * 16;
    if (t.step_cols < 16) t.step_cols = 16;
    if (t.step_cols > p->out[2]) t.step_cols = p->out[2];
  }
  t.tiles_down = (t.rows + t.step_rows - 1) / t.step_rows;
  t.tiles_across = t.step_cols ? (p->out[2] + t.step_cols - 1) / t.step_cols : 0;
  return t;
}

static bool pointwise(const sc_conv *p) {
  for (int i = 0; i < 3; i++)
    if (p->k[i] != 1 || p->stride[i] != 1 || p->pad[i] != 0 || p->in[i] != p->out[i]) return false;
  return true;
}

typedef struct job {
  sc_context *ctx;
  const sc_conv *p;
  tiling t;
  const char *a, *w, *bias;            /* forward: x; to the input: dy; to the weight: dy and x */
  const char *x;
  char *out, *buffer;
  size_t slot_bytes;                   /* of the buffer, for a slot */
  int64_t slots, units, slot_units;
  bool direct;                         /* no columns */
  sc_status status[MAX_SLOTS];
} job;

/* The tile's place: first row, last, first column, last. */
static void place(const job *j, int64_t k, int64_t at[4]) {
  int64_t down = k / j->t.tiles_across, across = k % j->t.tiles_across;
  at[0] = down * j->t.step_rows;
  at[1] = at[0] + j->t.step_rows < j->t.rows ? at[0] + j->t.step_rows : j->t.rows;
  at[2] = across * j->t.step_cols;
  at[3] = at[2] + j->t.step_cols < j->p->out[2] ? at[2] + j->t.step_cols : j->p->out[2];
}

/* unit: (image, group, tile) */
static sc_status forward_unit(const job *j, int64_t unit, char *cols) {
  const sc_conv *p = j->p;
  int64_t z = (int64_t)sc__ctype_size(p->type), K = p->C * taps(p), L = positions(p);
  int64_t tiles = j->t.tiles_down * j->t.tiles_across, k = unit % tiles, g = unit / tiles % p->G, n = unit / tiles / p->G;
  int64_t at[4];
  place(j, k, at);
  int64_t first = at[0] * p->out[2] + at[2], width = (at[1] - at[0] - 1) * p->out[2] + at[3] - at[2];
  const char *x = j->a + (n * p->G + g) * p->C * pixels(p) * z, *w = j->w + g * p->O * K * z;
  char *y = j->out + ((n * p->G + g) * p->O * L + first) * z, *spare = cols + K * j->t.step_rows * j->t.step_cols * z;
  if (j->bias)
    for (int64_t o = 0; o < p->O; o++) fill(p, 1, width, j->bias + (g * p->O + o) * z, y + o * L * z);
  if (j->direct) {
    SC_TRY(product(j->ctx, p->type, false, false, p->O, width, K, w, K, x + first * z, L, j->bias, y, L, spare));
  } else {
    sc__im2col(p, x, at[0], at[1], at[2], at[3], cols);
    SC_TRY(product(j->ctx, p->type, false, false, p->O, width, K, w, K, cols, width, j->bias, y, L, spare));
  }
  for (int64_t o = 0; o < p->O && p->then; o++) sc__epilogue(p->then, width, y + o * L * z);
  return SC_OK;
}

/* unit: (image, group) */
static sc_status input_unit(const job *j, int64_t unit, char *cols) {
  const sc_conv *p = j->p;
  int64_t z = (int64_t)sc__ctype_size(p->type), K = p->C * taps(p), L = positions(p), g = unit % p->G;
  const char *dy = j->a + unit * p->O * L * z, *w = j->w + g * p->O * K * z;
  char *dx = j->out + unit * p->C * pixels(p) * z;
  if (!j->direct || j->bias) fill(p, p->C, pixels(p), j->bias ? j->bias + g * p->C * z : NULL, dx);
  if (j->direct) return product(j->ctx, p->type, true, false, K, L, p->O, w, K, dy, L, j->bias, dx, L, cols);
  for (int64_t k = 0; k < j->t.tiles_down * j->t.tiles_across; k++) {
    int64_t at[4];
    sc__slice_look(j->ctx, 0);
    place(j, k, at);
    int64_t first = at[0] * p->out[2] + at[2], width = (at[1] - at[0] - 1) * p->out[2] + at[3] - at[2];
    SC_TRY(product(j->ctx, p->type, true, false, K, width, p->O, w, K, dy + first * z, L, false, cols, width, NULL));
    sc__col2im(p, cols, at[0], at[1], at[2], at[3], dx);
  }
  return SC_OK;
}

/* unit: (group, image): a slot sums its images into its own part */
static sc_status weight_unit(const job *j, int64_t slot, int64_t g, int64_t n, char *cols) {
  const sc_conv *p = j->p;
  int64_t z = (int64_t)sc__ctype_size(p->type), K = p->C * taps(p), L = positions(p);
  const char *dy = j->a + (n * p->G + g) * p->O * L * z, *x = j->x + (n * p->G + g) * p->C * pixels(p) * z;
  char *dw = j->out + (slot * p->G + g) * p->O * K * z, *spare = cols + K * j->t.step_rows * j->t.step_cols * z;
  if (j->direct) return product(j->ctx, p->type, false, true, p->O, K, L, dy, L, x, L, true, dw, K, spare);
  for (int64_t k = 0; k < j->t.tiles_down * j->t.tiles_across; k++) {
    int64_t at[4];
    sc__slice_look(j->ctx, 0);
    place(j, k, at);
    int64_t first = at[0] * p->out[2] + at[2], width = (at[1] - at[0] - 1) * p->out[2] + at[3] - at[2];
    sc__im2col(p, x, at[0], at[1], at[2], at[3], cols);
    SC_TRY(product(j->ctx, p->type, false, true, p->O, K, width, dy + first * z, L, cols, width, true, dw, K, spare));
  }
  return SC_OK;
}

/* Between units, which a slice may end at; false: the work is being dropped. */
static bool next(const job *j) {
  sc__slice_look(j->ctx, 0);
  return !sc__slice_dropping(j->ctx);
}

static void forward_slots(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  for (int64_t s = begin; s < end; s++)
    for (int64_t u = s * j->slot_units; u < (s + 1) * j->slot_units && u < j->units && j->status[s] == SC_OK; u++) {
      if (next(j)) j->status[s] = forward_unit(j, u, j->buffer + (size_t)s * j->slot_bytes);
    }
}

static void input_slots(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  for (int64_t s = begin; s < end; s++)
    for (int64_t u = s * j->slot_units; u < (s + 1) * j->slot_units && u < j->units && j->status[s] == SC_OK; u++) {
      if (next(j)) j->status[s] = input_unit(j, u, j->buffer + (size_t)s * j->slot_bytes);
    }
}

static void weight_slots(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  for (int64_t s = begin; s < end; s++)
    for (int64_t n = s * j->slot_units; n < (s + 1) * j->slot_units && n < j->units; n++)
      for (int64_t g = 0; g < j->p->G && j->status[s] == SC_OK; g++) {
        if (next(j)) j->status[s] = weight_unit(j, s, g, n, j->buffer + (size_t)s * j->slot_bytes);
      }
}

/* Cuts `units` into slots, makes the buffers, runs. spare: elements of a slot's buffer besides the columns. */
static sc_status run(job *j, int64_t units, int64_t spare, sc_range_fn fn) {
  const sc_conv *p = j->p;
  /* Under a clock: one slot, cut between its units and inside their products, which then have all threads. */
  int64_t most = j->ctx->threads > 1 && !j->ctx->slice ? 4 * j->ctx->threads : 1, K = p->C * taps(p), z = (int64_t)sc__ctype_size(p->type), cols, bytes;
  if (most > MAX_SLOTS) most = MAX_SLOTS;
  j->units = units;
  j->slots = units < most ? units : most;
  if (j->slots == 0) return SC_OK;
  j->slot_units = (units + j->slots - 1) / j->slots;
  j->slots = (units + j->slot_units - 1) / j->slot_units;
  int64_t tile_size = j->t.step_rows * j->t.step_cols;
  if (!sc__mul(K, tile_size, &cols) || !sc__mul(cols + spare, z, &bytes) || !sc__mul(bytes + 64, j->slots, &bytes))
    return sc__fail(j->ctx, SC_EINVAL, "convolution: the kernel is too large");
  j->slot_bytes = ((size_t)(cols + spare) * (size_t)z + 63) & ~(size_t)63;
  j->buffer = sc__alloc(j->ctx, j->slot_bytes * (size_t)j->slots);
  if (!j->buffer) return sc__no_memory(j->ctx, j->slot_bytes * (size_t)j->slots);
  double flops = (double)p->O * (double)K * (double)positions(p) * (double)p->N * (double)p->G;
  sc__parallel(j->ctx, j->slots, 1, flops / (double)j->slots * 0.02, fn, j);
  sc__release(j->ctx, j->buffer, j->slot_bytes * (size_t)j->slots);
  for (int64_t s = 0; s < j->slots; s++) SC_TRY(j->status[s]);
  return SC_OK;
}

static bool is_integer(const sc_conv *p) { return p->type == SC_C_I64; }

sc_status sc__conv_forward(sc_context *ctx, const sc_conv *p, const void *x, const void *w, const void *bias, void *y) {
  if (sc__direct_fits(p) && (p->O == 1 || p->C * taps(p) >= 32)) return sc__direct_forward(ctx, p, x, w, bias, y);
  job j = {.ctx = ctx, .p = p, .t = tile(ctx, p), .a = x, .w = w, .bias = bias, .out = y, .direct = pointwise(p)};
  int64_t width = j.t.step_rows * j.t.step_cols;
  return run(&j, p->N * p->G * j.t.tiles_down * j.t.tiles_across, is_integer(p) ? p->O * width : 0, forward_slots);
}

sc_status sc__conv_input(sc_context *ctx, const sc_conv *p, const void *dy, const void *w, const void *bias, void *dx) {
  if (sc__direct_fits(p) && (p->C == 1 || p->O * taps(p) >= 32)) return sc__direct_input(ctx, p, dy, w, bias, dx);
  job j = {.ctx = ctx, .p = p, .t = tile(ctx, p), .a = dy, .w = w, .bias = bias, .out = dx, .direct = pointwise(p)};
  return run(&j, p->N * p->G, is_integer(p) && j.direct ? p->C * positions(p) : 0, input_slots);
}

static void add_parts(const sc_conv *p, int64_t n, void *dw, const void *part) {
  if (p->type == SC_C_F32) for (int64_t i = 0; i < n; i++) ((float *)dw)[i] += ((const float *)part)[i];
  else if (p->type == SC_C_F64) for (int64_t i = 0; i < n; i++) ((double *)dw)[i] += ((const double *)part)[i];
  else for (int64_t i = 0; i < n; i++) ((uint64_t *)dw)[i] += ((const uint64_t *)part)[i];
}

sc_status sc__conv_weight(sc_context *ctx, const sc_conv *p, const void *dy, const void *x, void *dw) {
  int64_t K = p->C * taps(p), n = p->G * p->O * K;
  size_t z = sc__ctype_size(p->type), bytes = (size_t)n * z;
  memset(dw, 0, bytes);
  if (n == 0 || p->N == 0 || positions(p) == 0) return SC_OK;
  int64_t most = ctx->threads > 1 && !ctx->slice ? 4 * ctx->threads : 1;
  if (most > MAX_SLOTS) most = MAX_SLOTS;
  if (most > p->N) most = p->N;
  char *parts = dw;
  if (most > 1) {
    int64_t total;
    if (!sc__mul(n * (int64_t)z, most, &total)) return sc__fail(ctx, SC_EINVAL, "convolution: the kernel is too large");
    parts = sc__alloc_zero(ctx, (size_t)total);
    if (!parts) return sc__no_memory(ctx, (size_t)total);
  }
  job j = {.ctx = ctx, .p = p, .t = tile(ctx, p), .a = dy, .x = x, .out = parts, .direct = pointwise(p)};
  sc_status s = run(&j, p->N, is_integer(p) ? p->O * K : 0, weight_slots);
  if (parts != (char *)dw) {
    for (int64_t k = 0; k < j.slots && s == SC_OK; k++) add_parts(p, n, dw, parts + (size_t)k * bytes);
    sc__release(ctx, parts, bytes * (size_t)most);
  }
  return s;
}
