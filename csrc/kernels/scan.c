/* Running reductions along one dim of packed data. Columns are taken in chunks whose state lies on the stack; cumsum has loops of
** its own in scan_body.h. A line is walked in order, so the bits do not depend on threads. */
#include "reduce.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256, SUM_CHUNK = 1024 };

typedef struct scan {
  sc_scan_kind kind;
  sc_dtype dtype;
  bool reverse;
  int64_t n, inner, base;
  const char *x, *a;
  char *y;
  int64_t *index;
  const sc_scan_loops *loops;
} scan;

static double log_add(double a, double b) {
  double top = a > b ? a : b, low = a > b ? b : a;
  if (a != a || b != b) return a + b;
  if (isinf(top) && top == low) return top;
  return top + log1p(exp(low - top));
}

/* LATER(v, best): v takes the place of best. */
#define LINES(NAME, T, A, NANS) \
  static void NAME(const scan *s, int64_t off, int64_t w) { \
    const T *x = (const T *)s->x + off, *m = s->a ? (const T *)s->a + off : NULL; \
    T *y = (T *)s->y + off; \
    int64_t *index = s->index ? s->index + off : NULL; \
    A acc[CHUNK]; \
    int64_t where[CHUNK]; \
    for (int64_t k = 0; k < s->n; k++) { \
      int64_t r = s->reverse ? s->n - 1 - k : k, at = r * s->inner; \
      switch (s->kind) { \
        case SC_SCAN_SUM: for (int64_t i = 0; i < w; i++) y[at + i] = (T)(acc[i] = k ? acc[i] + (A)x[at + i] : (A)x[at + i]); break; \
        case SC_SCAN_PROD: for (int64_t i = 0; i < w; i++) y[at + i] = (T)(acc[i] = k ? acc[i] * (A)x[at + i] : (A)x[at + i]); break; \
        case SC_SCAN_LINEAR: \
          for (int64_t i = 0; i < w; i++) y[at + i] = (T)(acc[i] = k ? (A)x[at + i] + (A)m[at + i] * acc[i] : (A)x[at + i]); \
          break; \
        case SC_SCAN_LOGSUMEXP: \
          for (int64_t i = 0; i < w; i++) y[at + i] = (T)(acc[i] = k ? (A)log_add((double)acc[i], (double)x[at + i]) : (A)x[at + i]); \
          break; \
        default: \
          for (int64_t i = 0; i < w; i++) { \
            T v = x[at + i], b = k ? y[at - s->inner + i] : v; \
            bool later = NANS(v) || (!NANS(b) && (s->kind == SC_SCAN_MAX ? LESS_EQUAL(b, v) : LESS_EQUAL(v, b))); \
            if (later) where[i] = r; \
            y[at + i] = later ? v : b; \
            index[at + i] = where[i] + s->base; \
          } \
      } \
    } \
  }
#define IS_NAN(v) ((v) != (v))
#define NEVER(v) false
#define LESS_EQUAL(a, b) ((a) <= (b))
LINES(lines_f32, float, double, IS_NAN)
LINES(lines_f64, double, double, IS_NAN)
#undef LESS_EQUAL
#define LESS_EQUAL(a, b) ((int64_t)(a) <= (int64_t)(b))
LINES(lines_i64, uint64_t, uint64_t, NEVER)
#undef LESS_EQUAL
#undef IS_NAN
#undef NEVER
#undef LINES

static void run(void *arg, int64_t begin, int64_t end) {
  const scan *s = arg;
  int64_t chunk = s->loops ? SUM_CHUNK : CHUNK, chunks = (s->inner + chunk - 1) / chunk, z = (int64_t)sc_dtype_size(s->dtype);
  for (int64_t u = begin; u < end; u++) {
    int64_t c0 = u % chunks * chunk, w = s->inner - c0 < chunk ? s->inner - c0 : chunk, off = u / chunks * s->n * s->inner + c0;
    if (s->loops && s->inner == 1) {
      s->loops->cumsum_row(s->n, s->x + off * z, s->y + off * z);
    } else if (s->loops) {
      int64_t acc[SUM_CHUNK];
      memset(acc, 0, (size_t)w * 8);
      s->loops->cumsum_columns(s->n, w, s->inner, s->x + off * z, s->y + off * z, acc);
    } else if (s->dtype == SC_FLOAT32) {
      lines_f32(s, off, w);
    } else if (s->dtype == SC_FLOAT64) {
      lines_f64(s, off, w);
    } else {
      lines_i64(s, off, w);
    }
  }
}

void sc__scan(sc_context *ctx, sc_scan_kind kind, sc_dtype dtype, bool reverse, int64_t outer, int64_t n, int64_t inner, const void *x,
              const void *a, void *y, int64_t *index, int64_t base) {
  if (outer <= 0 || n <= 0 || inner <= 0) return;
  const sc_reduce_table *t = sc__reduce_table(ctx->isa);
  scan s = {kind, dtype, reverse, n, inner, base, x, a, y, index, NULL};
  if (kind == SC_SCAN_SUM && !reverse) s.loops = dtype == SC_FLOAT32 ? t->scan_f32 : dtype == SC_FLOAT64 ? t->scan_f64 : t->scan_i64;
  int64_t chunk = s.loops ? SUM_CHUNK : CHUNK;
  int64_t chunks = (inner + chunk - 1) / chunk;
  double cost = kind == SC_SCAN_LOGSUMEXP ? 30 : kind == SC_SCAN_SUM && !reverse ? 0.5 : 2;
  sc__parallel(ctx, outer * chunks, 1, cost * (double)n * (double)(inner < chunk ? inner : chunk), run, &s);
}
