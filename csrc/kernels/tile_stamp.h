/* The register tile for one instruction set: TILE_M rows by TILE_V vectors of TILE_LANES floats, all of it in registers. */
#include "tile.h"

#include <string.h>

#define TK2_(a, b) a##_##b
#define TK2(a, b) TK2_(a, b)
#define TK(name) TK2(name, ISA)

typedef float TK(tile_v) __attribute__((vector_size(TILE_LANES * 4)));

static inline TK(tile_v) TK(tile_load)(const float *p) { TK(tile_v) v; memcpy(&v, p, sizeof v); return v; }
static inline void TK(tile_store)(float *p, TK(tile_v) v) { memcpy(p, &v, sizeof v); }
static inline TK(tile_v) TK(tile_all)(float f) { TK(tile_v) zero = {0}; return f - zero; }

static void TK(tile_run)(int64_t K, const float *a, const float *b, const int64_t *offset, float *c) {
  TK(tile_v) sum[TILE_M][TILE_V];
#pragma GCC unroll 16
  for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 8
    for (int j = 0; j < TILE_V; j++) sum[i][j] = TK(tile_all)(0);
  for (int64_t k = 0; k < K; k++, a += TILE_M) {
    const float *at = b + offset[k];
    TK(tile_v) x[TILE_V];
#pragma GCC unroll 8
    for (int j = 0; j < TILE_V; j++) x[j] = TK(tile_load)(at + j * TILE_LANES);
#pragma GCC unroll 16
    for (int i = 0; i < TILE_M; i++) {
      TK(tile_v) w = TK(tile_all)(a[i]);
#pragma GCC unroll 8
      for (int j = 0; j < TILE_V; j++) sum[i][j] += w * x[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < TILE_M; i++)
#pragma GCC unroll 8
    for (int j = 0; j < TILE_V; j++) TK(tile_store)(c + (i * TILE_V + j) * TILE_LANES, sum[i][j]);
}

static void TK(tile_row)(int64_t K, const float *a, const float *b, const int64_t *offset, int64_t n, float *c) {
  for (int64_t i = 0; i < n; i += 4 * TILE_LANES) {
    TK(tile_v) s0 = TK(tile_all)(0), s1 = s0, s2 = s0, s3 = s0;
    for (int64_t k = 0; k < K; k++) {
      const float *at = b + offset[k] + i;
      TK(tile_v) w = TK(tile_all)(a[k]);
      s0 += w * TK(tile_load)(at);
      s1 += w * TK(tile_load)(at + TILE_LANES);
      s2 += w * TK(tile_load)(at + 2 * TILE_LANES);
      s3 += w * TK(tile_load)(at + 3 * TILE_LANES);
    }
    TK(tile_store)(c + i, s0);
    TK(tile_store)(c + i + TILE_LANES, s1);
    TK(tile_store)(c + i + 2 * TILE_LANES, s2);
    TK(tile_store)(c + i + 3 * TILE_LANES, s3);
  }
}

const sc_tile TK(sc__tile) = {TILE_M, TILE_V * TILE_LANES, TK(tile_run), TK(tile_row)};
#undef TK
#undef TK2
#undef TK2_
