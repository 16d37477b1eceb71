/* Maps that act on each spatial dim on its own, a pass per dim over [outer, n, inner]; and max pooling, which does not split that way
** because it must say where the largest element is. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "separable.h"

#include <math.h>
#include <string.h>

typedef struct pass { const sc_taps *t; const void *x; void *y; int64_t inner; } pass;

#define T float
#define A double
#define N(name) name##_f32
#include "separable_stamp.h"
#undef T
#undef A
#undef N
#define T double
#define A double
#define N(name) name##_f64
#include "separable_stamp.h"
#undef T
#undef A
#undef N
#define T int64_t
#define A uint64_t
#define N(name) name##_i64
#include "separable_stamp.h"
#undef T
#undef A
#undef N

sc_status sc__taps_new(sc_context *ctx, int64_t n_in, int64_t n_out, int64_t taps, sc_taps *out) {
  int64_t n, bytes;
  if (taps < 1) taps = 1;
  if (!sc__mul(n_out, taps, &n) || !sc__mul(n, 16, &bytes)) return sc__fail(ctx, SC_EINVAL, "pooling: the windows are too large");
  *out = (sc_taps){.n_in = n_in, .n_out = n_out, .taps = taps, .bytes = (size_t)bytes + 16};
  out->block = sc__alloc(ctx, out->bytes);
  if (!out->block) return sc__no_memory(ctx, out->bytes);
  out->index = out->block;
  out->weight = (double *)(out->index + n);
  for (int64_t i = 0; i < n; i++) { out->index[i] = -1; out->weight[i] = 0; }
  return SC_OK;
}

void sc__taps_free(sc_context *ctx, sc_taps *t, int n) {
  for (int i = 0; i < n; i++) if (t[i].block) sc__release(ctx, t[i].block, t[i].bytes);
}

static bool identity(const sc_taps *t) {
  if (t->taps != 1 || t->n_in != t->n_out) return false;
  for (int64_t k = 0; k < t->n_out; k++) if (t->index[k] != k || t->weight[k] != 1) return false;
  return true;
}

static int64_t numel(int64_t planes, const int64_t *size, int nd) {
  for (int i = 0; i < nd; i++) planes *= size[i];
  return planes;
}

sc_status sc__separable(sc_context *ctx, sc_ctype type, int64_t planes, int nd, const sc_taps *dim, bool adjoint, const void *x, void *y) {
  sc_range_fn fn = type == SC_C_F32 ? (adjoint ? spread_f32 : gather_f32) : type == SC_C_F64 ? (adjoint ? spread_f64 : gather_f64)
                   : adjoint ? spread_i64 : gather_i64;
  int64_t size[8];
  size_t z = sc__ctype_size(type), have[2] = {0, 0};
  void *buffer[2] = {NULL, NULL};
  const void *from = x;
  int last = -1, turn = 0;
  for (int i = 0; i < nd; i++) {
    size[i] = adjoint ? dim[i].n_out : dim[i].n_in;
    if (!identity(&dim[i])) last = i;
  }
  if (last < 0) { memcpy(y, x, (size_t)numel(planes, size, nd) * z); return SC_OK; }
  sc_status s = SC_OK;
  for (int i = 0; i <= last && s == SC_OK; i++) {
    if (identity(&dim[i])) continue;
    pass p = {.t = &dim[i], .x = from, .y = y, .inner = numel(1, size + i + 1, nd - i - 1)};
    int64_t outer = numel(planes, size, i);
    size[i] = adjoint ? dim[i].n_in : dim[i].n_out;
    if (i != last) {
      sc__release(ctx, buffer[turn], have[turn]);
      have[turn] = (size_t)numel(planes, size, nd) * z + 16;
      buffer[turn] = sc__alloc(ctx, have[turn]);
      if (!buffer[turn]) { s = sc__no_memory(ctx, have[turn]); have[turn] = 0; break; }
      p.y = buffer[turn];
    }
    sc__parallel(ctx, outer, 1, (double)(dim[i].n_out * dim[i].taps * p.inner) * 0.5, fn, &p);
    from = p.y;
    turn = 1 - turn;
  }
  for (int i = 0; i < 2; i++) if (buffer[i]) sc__release(ctx, buffer[i], have[i]);
  return s;
}

/* ---- max pooling ---- */

typedef struct max_job { const sc_windows *dim; sc_ctype type; int64_t base; const void *x; void *y; int64_t *at; } max_job;

/* One window. takes: v takes the place of best. A window that dilation leaves nothing of gives the lowest value. */
#define WINDOW(T, lowest, takes) { \
    const T *x = (const T *)j->x + plane * D->n_in * H->n_in * W->n_in; \
    T best = 0; \
    int64_t where = -1; \
    for (int64_t a = 0; a < D->count[d]; a++) \
      for (int64_t b = 0; b < H->count[h]; b++) { \
        int64_t row = ((D->start[d] + a * D->dilation) * H->n_in + H->start[h] + b * H->dilation) * W->n_in + W->start[w]; \
        for (int64_t e = 0; e < W->count[w]; e++, row += W->dilation) { \
          T v = x[row]; \
          if (where < 0 || (takes)) { best = v; where = row; } \
        } \
      } \
    if (where < 0) { best = lowest; where = 0; } \
    ((T *)j->y)[to] = best; \
    if (j->at) j->at[to] = where + j->base; \
    break; }

/* Windows of 2 by 2, side by side and all inside: four loads and no loop. The order of comparison is that of the rows, so that the first
** of equal elements is taken, and a NaN. */
static void max_rows_2x2(void *arg, int64_t begin, int64_t end) {
  const max_job *j = arg;
  const sc_windows *H = &j->dim[1], *W = &j->dim[2];
  for (int64_t r = begin; r < end; r++) {
    int64_t h = r % H->n_out, plane = r / H->n_out, first = H->start[h] * W->n_in;
    const float *restrict x = (const float *)j->x + plane * H->n_in * W->n_in + first, *restrict below = x + W->n_in;
    float *restrict y = (float *)j->y + r * W->n_out;
    int64_t *restrict at = j->at + r * W->n_out;
    for (int64_t w = 0; w < W->n_out; w++) {
      float best = x[2 * w], b = x[2 * w + 1], c = below[2 * w], d = below[2 * w + 1];
      int64_t where = 2 * w;
      bool take = (b > best) | (b != b);
      best = take ? b : best; where = take ? 2 * w + 1 : where;
      take = (c > best) | (c != c);
      best = take ? c : best; where = take ? 2 * w + W->n_in : where;
      take = (d > best) | (d != d);
      best = take ? d : best; where = take ? 2 * w + W->n_in + 1 : where;
      y[w] = best;
      at[w] = first + where + j->base;
    }
  }
}

/* The same without positions: loops of one row, which compilers make into vectors. */
static void max_values_2x2(void *arg, int64_t begin, int64_t end) {
  const max_job *j = arg;
  const sc_windows *H = &j->dim[1], *W = &j->dim[2];
  for (int64_t r = begin; r < end; r++) {
    int64_t h = r % H->n_out, plane = r / H->n_out;
    const float *restrict x = (const float *)j->x + (plane * H->n_in + H->start[h]) * W->n_in, *restrict below = x + W->n_in;
    float *restrict y = (float *)j->y + r * W->n_out;
    for (int64_t w = 0; w < W->n_out; w++) {
      float a = x[2 * w], b = x[2 * w + 1], c = below[2 * w], d = below[2 * w + 1], best = a;
      best = (b > best) | (b != b) ? b : best;
      best = (c > best) | (c != c) ? c : best;
      y[w] = (d > best) | (d != d) ? d : best;
    }
  }
}

static bool pairs(const sc_windows *d) {
  for (int64_t i = 0; i < d->n_out; i++) if (d->start[i] != 2 * i || d->count[i] != 2) return false;
  return d->dilation == 1;
}

static void max_rows(void *arg, int64_t begin, int64_t end) {
  const max_job *j = arg;
  const sc_windows *D = &j->dim[0], *H = &j->dim[1], *W = &j->dim[2];
  for (int64_t r = begin; r < end; r++) {
    int64_t h = r % H->n_out, d = r / H->n_out % D->n_out, plane = r / H->n_out / D->n_out;
    for (int64_t w = 0; w < W->n_out; w++) {
      int64_t to = r * W->n_out + w;
      switch (j->type) {
        case SC_C_F32: WINDOW(float, -INFINITY, v > best || v != v)
        case SC_C_F64: WINDOW(double, -INFINITY, v > best || v != v)
        default: WINDOW(int64_t, INT64_MIN, v > best)
      }
    }
  }
}

void sc__max_windows(sc_context *ctx, sc_ctype type, int64_t planes, const sc_windows dim[3], int64_t base, const void *x, void *y, int64_t *at) {
  max_job j = {dim, type, base, x, y, at};
  int64_t window = 1;
  for (int i = 0; i < 3; i++) window *= dim[i].n_out ? dim[i].count[dim[i].n_out / 2] : 1;
  bool fast = type == SC_C_F32 && dim[0].n_in == 1 && dim[0].n_out == 1 && pairs(&dim[1]) && pairs(&dim[2]);
  sc__parallel(ctx, planes * dim[0].n_out * dim[1].n_out, 1, (double)dim[2].n_out * (double)window * 1.0,
              !fast ? max_rows : at ? max_rows_2x2 : max_values_2x2, &j);
}
