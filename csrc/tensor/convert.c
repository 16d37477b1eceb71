/* Conversion between dtypes over strided runs. Every pair of the machine's own types has a loop of its own, a packed one that
** vectorises and one for any steps. The two halves go through tiles of float. Float to integer goes through one documented rule, so
** that all lengths agree; the shortcut for numbers that fit 32 bits gives what the rule gives. */
#include "tensor.h"

#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3,no-trapping-math")
#define IVDEP _Pragma("GCC ivdep")
#else
#define IVDEP
#endif

enum { TILE = 256 };

#define SAME(x) (x)
#define NZ(x) ((x) != 0)
#define EACH(e) IVDEP for (int64_t i = 0; i < n; i++) e
#define PAIR(D, S, f) { \
    D *dp = d; \
    const S *sp = s; \
    if (ds == 1 && ss == 1) EACH(dp[i] = (D)f(sp[i])); \
    else EACH(dp[i * ds] = (D)f(sp[i * ss])); \
    break; \
  }
#define FROM(S, NUMBER) \
  switch (dt) { \
    case SC_FLOAT32: PAIR(float, S, SAME) case SC_FLOAT64: PAIR(double, S, SAME) \
    case SC_INT8: case SC_UINT8: NUMBER(uint8_t, S) case SC_INT16: case SC_UINT16: NUMBER(uint16_t, S) \
    case SC_INT32: case SC_UINT32: NUMBER(uint32_t, S) case SC_INT64: case SC_UINT64: NUMBER(int64_t, S) \
    case SC_BOOL: PAIR(uint8_t, S, NZ) \
    default: break; \
  } \
  break;
#define FROM_INT(D, S) PAIR(D, S, SAME)
/* A tile whose numbers are all within 32 bits needs no limits. */
#define FROM_FLOAT(D, S) { \
    D *dp = d; \
    const S *sp = s; \
    for (int64_t at = 0; at < n; at += TILE) { \
      int64_t m = n - at < TILE ? n - at : TILE; \
      int fits = ds == 1 && ss == 1; \
      if (fits) for (int64_t i = 0; i < m; i++) fits &= (sp[at + i] > (S)-2147483648.0) & (sp[at + i] < (S)2147483648.0); \
      if (fits) for (int64_t i = 0; i < m; i++) dp[at + i] = (D)(int32_t)sp[at + i]; \
      else for (int64_t i = at; i < at + m; i++) dp[i * ds] = (D)sc__f64_to_i64((double)sp[i * ss]); \
    } \
    break; \
  }

static void copy_run(int64_t n, size_t size, char *d, int64_t ds, const char *s, int64_t ss) {
  if (ds == 1 && ss == 1) { memcpy(d, s, (size_t)n * size); return; }
  switch (size) {
#define RUN(T) { T *dp = (T *)d; const T *sp = (const T *)s; for (int64_t i = 0; i < n; i++) dp[i * ds] = sp[i * ss]; break; }
    case 1: RUN(uint8_t)
    case 2: RUN(uint16_t)
    case 4: RUN(uint32_t)
    case 8: RUN(uint64_t)
#undef RUN
    default: break;
  }
}

/* ---- the halves ---- */

#if defined(__x86_64__)
void sc__halves_to_floats(int64_t n, float *d, const uint16_t *s);        /* kernels/halves.c */
void sc__floats_to_halves(int64_t n, uint16_t *d, const float *s);
#endif

static inline uint16_t bf16_of(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16, nan = u >> 16 | 0x40;
  return (uint16_t)(f != f ? nan : rounded);
}

static inline float of_bf16(uint16_t h) {
  uint32_t u = (uint32_t)h << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static void half_to_float(int64_t n, sc_dtype dtype, float *d, const uint16_t *s, int64_t ss) {
  if (dtype == SC_BFLOAT16) {
    if (ss == 1) EACH(d[i] = of_bf16(s[i]));
    else EACH(d[i] = of_bf16(s[i * ss]));
    return;
  }
#if defined(__x86_64__)
  if (sc__cpu_isa() != SC_ISA_BASE) {
    uint16_t tile[TILE];
    if (ss == 1) { sc__halves_to_floats(n, d, s); return; }
    for (int64_t at = 0; at < n; at += TILE) {
      int64_t m = n - at < TILE ? n - at : TILE;
      for (int64_t i = 0; i < m; i++) tile[i] = s[(at + i) * ss];
      sc__halves_to_floats(m, d + at, tile);
    }
    return;
  }
#endif
  EACH(d[i] = sc__half_to_float(s[i * ss]));
}

static void float_to_half(int64_t n, sc_dtype dtype, uint16_t *d, int64_t ds, const float *s) {
  if (dtype == SC_BFLOAT16) {
    if (ds == 1) EACH(d[i] = bf16_of(s[i]));
    else EACH(d[i * ds] = bf16_of(s[i]));
    return;
  }
#if defined(__x86_64__)
  if (sc__cpu_isa() != SC_ISA_BASE) {
    uint16_t tile[TILE];
    if (ds == 1) { sc__floats_to_halves(n, d, s); return; }
    for (int64_t at = 0; at < n; at += TILE) {
      int64_t m = n - at < TILE ? n - at : TILE;
      sc__floats_to_halves(m, tile, s + at);
      for (int64_t i = 0; i < m; i++) d[(at + i) * ds] = tile[i];
    }
    return;
  }
#endif
  EACH(d[i * ds] = sc__float_to_half(s[i]));
}

static bool is_half(sc_dtype d) { return d == SC_FLOAT16 || d == SC_BFLOAT16; }

/* One side is a half: packed floats are converted at once, others tile by tile. */
static void by_float(int64_t n, sc_dtype dt, void *d, int64_t ds, sc_dtype st, const void *s, int64_t ss) {
  if (dt == SC_FLOAT32 && ds == 1) { half_to_float(n, st, d, s, ss); return; }
  if (st == SC_FLOAT32 && ss == 1) { float_to_half(n, dt, d, ds, s); return; }
  int64_t dz = (int64_t)sc_dtype_size(dt) * ds, sz = (int64_t)sc_dtype_size(st) * ss;
  float tile[TILE];
  for (int64_t at = 0; at < n; at += TILE) {
    int64_t m = n - at < TILE ? n - at : TILE;
    if (is_half(st)) half_to_float(m, st, tile, (const uint16_t *)s + at * ss, ss);
    else sc__convert(m, SC_FLOAT32, tile, 1, st, (const char *)s + at * sz, ss);
    if (is_half(dt)) float_to_half(m, dt, (uint16_t *)d + at * ds, ds, tile);
    else sc__convert(m, dt, (char *)d + at * dz, ds, SC_FLOAT32, tile, 1);
  }
}

/* One side is only stored: by way of double, out of a table where that pays. */
static void by_narrow(int64_t n, sc_dtype dt, uint8_t *d, int64_t ds, sc_dtype st, const uint8_t *s, int64_t ss) {
  int64_t dz = (int64_t)sc_dtype_size(dt) * ds, sz = (int64_t)sc_dtype_size(st) * ss;
  double tile[TILE], table[256];
  bool look_up = sc__is_stored(st) && n >= 256;
  for (int i = 0; look_up && i < 256; i++) table[i] = sc__narrow_load(st, (uint8_t)i);
  for (int64_t at = 0; at < n; at += TILE) {
    int64_t m = n - at < TILE ? n - at : TILE;
    const uint8_t *from = s + at * sz;
    uint8_t *to = d + at * dz;
    if (look_up) for (int64_t i = 0; i < m; i++) tile[i] = table[from[i * ss]];
    else if (sc__is_stored(st)) for (int64_t i = 0; i < m; i++) tile[i] = sc__narrow_load(st, from[i * ss]);
    else sc__convert(m, SC_FLOAT64, tile, 1, st, from, ss);
    if (sc__is_stored(dt)) for (int64_t i = 0; i < m; i++) to[i * ds] = sc__narrow_store(dt, tile[i]);
    else sc__convert(m, dt, to, ds, SC_FLOAT64, tile, 1);
  }
}

void sc__convert(int64_t n, sc_dtype dt, void *d, int64_t ds, sc_dtype st, const void *s, int64_t ss) {
  if (dt == st) { copy_run(n, sc_dtype_size(dt), d, ds, s, ss); return; }
  if (sc__is_stored(st) || sc__is_stored(dt)) { by_narrow(n, dt, d, ds, st, s, ss); return; }
  if (is_half(st) || is_half(dt)) { by_float(n, dt, d, ds, st, s, ss); return; }
  switch (st) {
    case SC_FLOAT32: FROM(float, FROM_FLOAT)
    case SC_FLOAT64: FROM(double, FROM_FLOAT)
    case SC_INT8: FROM(int8_t, FROM_INT)
    case SC_UINT8: case SC_BOOL: FROM(uint8_t, FROM_INT)
    case SC_INT16: FROM(int16_t, FROM_INT)
    case SC_INT32: FROM(int32_t, FROM_INT)
    case SC_INT64: FROM(int64_t, FROM_INT)
    case SC_UINT16: FROM(uint16_t, FROM_INT)
    case SC_UINT32: FROM(uint32_t, FROM_INT)
    case SC_UINT64: FROM(uint64_t, FROM_INT)
    default: break;
  }
}
