/* Conversion between dtypes over strided runs. Every pair of the machine's own types has a loop of its own; the two halves go
** through float, and float to integer goes through one documented rule so that all lengths agree. */
#include "tensor.h"

#include <string.h>

#define F2I(x) sc__f64_to_i64((double)(x))
#define SAME(x) (x)
#define NZ(x) ((x) != 0)

#define PAIR(D, S, f) { D *dp = d; const S *sp = s; for (int64_t i = 0; i < n; i++) dp[i * ds] = (D)f(sp[i * ss]); break; }
#define FROM(S, to_int) \
  switch (dt) { \
    case SC_FLOAT32: PAIR(float, S, SAME) case SC_FLOAT64: PAIR(double, S, SAME) \
    case SC_INT8: case SC_UINT8: PAIR(uint8_t, S, to_int) case SC_INT16: case SC_UINT16: PAIR(uint16_t, S, to_int) \
    case SC_INT32: case SC_UINT32: PAIR(uint32_t, S, to_int) case SC_INT64: case SC_UINT64: PAIR(int64_t, S, to_int) \
    case SC_BOOL: PAIR(uint8_t, S, NZ) \
    case SC_FLOAT16: { uint16_t *dp = d; const S *sp = s; for (int64_t i = 0; i < n; i++) dp[i * ds] = sc__float_to_half((float)sp[i * ss]); break; } \
    case SC_BFLOAT16: { uint16_t *dp = d; const S *sp = s; for (int64_t i = 0; i < n; i++) dp[i * ds] = sc__float_to_bf16((float)sp[i * ss]); break; } \
    default: break; \
  } \
  break;

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

void sc__convert(int64_t n, sc_dtype dt, void *d, int64_t ds, sc_dtype st, const void *s, int64_t ss) {
  if (dt == st) { copy_run(n, sc_dtype_size(dt), d, ds, s, ss); return; }
  size_t dsize = sc_dtype_size(dt);
  if (st == SC_FLOAT16 || st == SC_BFLOAT16) {       /* a buffer of floats in between */
    float tile[256];
    const uint16_t *sp = s;
    for (int64_t at = 0; at < n; at += 256) {
      int64_t m = n - at < 256 ? n - at : 256;
      if (st == SC_FLOAT16) for (int64_t i = 0; i < m; i++) tile[i] = sc__half_to_float(sp[(at + i) * ss]);
      else for (int64_t i = 0; i < m; i++) tile[i] = sc__bf16_to_float(sp[(at + i) * ss]);
      sc__convert(m, dt, (char *)d + at * ds * (int64_t)dsize, ds, SC_FLOAT32, tile, 1);
    }
    return;
  }
  switch (st) {
    case SC_FLOAT32: FROM(float, F2I)
    case SC_FLOAT64: FROM(double, F2I)
    case SC_INT8: FROM(int8_t, SAME)
    case SC_UINT8: case SC_BOOL: FROM(uint8_t, SAME)
    case SC_INT16: FROM(int16_t, SAME)
    case SC_INT32: FROM(int32_t, SAME)
    case SC_INT64: FROM(int64_t, SAME)
    case SC_UINT16: FROM(uint16_t, SAME)
    case SC_UINT32: FROM(uint32_t, SAME)
    case SC_UINT64: FROM(uint64_t, SAME)
    default: break;
  }
}
