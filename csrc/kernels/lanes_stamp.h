/* Convolution with channels in the lanes of vectors, stamped per instruction set after skinny_stamp.h, whose sizes and packing it uses.
** A tile is up to SKINNY_M positions of one output row by two vectors of output channels, in registers while the sum over input channels and
** taps runs: each term is one number of the image, spread, times two vectors of weights. So no position between rows is computed and
** rows may be short; what is left over is channels that do not fill a vector. No include guard: each instruction set has a file. */
#include "tile.h"

#include <string.h>

#define LN_CAT_(a, b) a##_##b
#define LN_CAT(a, b) LN_CAT_(a, b)
#define LN(name) LN_CAT(name, ISA)

typedef float LN(lanes_v) __attribute__((vector_size(SKINNY_LANES * 4), aligned(4), may_alias));
typedef float LN(lanes_quad) __attribute__((vector_size(16), aligned(4), may_alias));

/* out [N, 2 vectors] = bias + sum over k of x[offset[k] + position] * w[k]; V: how many of the vectors */
static inline __attribute__((always_inline)) void LN(lanes_tile)(const int N, const int V, int64_t K, const float *w, const float *x,
                                                                 const int64_t *offset, const float *bias, float *out) {
  LN(lanes_v) sum[SKINNY_M][2], zero = {0};
#pragma GCC unroll 16
  for (int i = 0; i < N; i++)
#pragma GCC unroll 2
    for (int j = 0; j < V; j++) sum[i][j] = zero;
  for (int64_t k = 0; k < K; k++, w += 2 * SKINNY_LANES) {
    const float *at = x + offset[k];
    LN(lanes_v) f[2];
#pragma GCC unroll 2
    for (int j = 0; j < V; j++) f[j] = *(const LN(lanes_v) *)(w + j * SKINNY_LANES);
#pragma GCC unroll 16
    for (int i = 0; i < N; i++) {
      LN(lanes_v) q = at[i] - zero;
#pragma GCC unroll 2
      for (int j = 0; j < V; j++) sum[i][j] += f[j] * q;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < N; i++)
#pragma GCC unroll 2
    for (int j = 0; j < V; j++)
      *(LN(lanes_v) *)(out + (2 * i + j) * SKINNY_LANES) = sum[i][j] + *(const LN(lanes_v) *)(bias + j * SKINNY_LANES);
}

#define LN_ROWS(N) \
  static __attribute__((noinline)) void LN(lanes_##N)(bool wide, int64_t K, const float *w, const float *x, const int64_t *offset, const float *bias, \
                                                      float *out) { \
    if (wide) LN(lanes_tile)(N, 2, K, w, x, offset, bias, out); \
    else LN(lanes_tile)(N, 1, K, w, x, offset, bias, out); \
  }
LN_ROWS(1) LN_ROWS(2) LN_ROWS(3) LN_ROWS(4) LN_ROWS(5) LN_ROWS(6)
#if SKINNY_M > 6
LN_ROWS(7) LN_ROWS(8) LN_ROWS(9) LN_ROWS(10) LN_ROWS(11) LN_ROWS(12) LN_ROWS(13) LN_ROWS(14)
#endif

/* y[channel * plane + i] = tile [n, 2 vectors], turned round four by four. tile has room for the last four. */
static void LN(lanes_spread)(int64_t n, int64_t channels, const float *tile, float *y, int64_t plane) {
  enum { W = 2 * SKINNY_LANES };
  typedef int mask __attribute__((vector_size(16)));
  typedef LN(lanes_quad) Q;
#if defined(__clang__)
#define LN_MIX(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d)
#else
#define LN_MIX(x, y, a, b, c, d) __builtin_shuffle(x, y, (mask){a, b, c, d})
#endif
  for (int64_t o = 0; o < channels; o += 4)
    for (int64_t i = 0; i < n; i += 4) {
      const float *t = tile + i * W + o;
      Q x0 = *(const Q *)t, x1 = *(const Q *)(t + W), x2 = *(const Q *)(t + 2 * W), x3 = *(const Q *)(t + 3 * W);
      Q low01 = LN_MIX(x0, x1, 0, 4, 1, 5), high01 = LN_MIX(x0, x1, 2, 6, 3, 7), low23 = LN_MIX(x2, x3, 0, 4, 1, 5), high23 = LN_MIX(x2, x3, 2, 6, 3, 7);
      Q r[4] = {LN_MIX(low01, low23, 0, 1, 4, 5), LN_MIX(low01, low23, 2, 3, 6, 7), LN_MIX(high01, high23, 0, 1, 4, 5), LN_MIX(high01, high23, 2, 3, 6, 7)};
      float *to = y + o * plane + i;
      int64_t most = channels - o < 4 ? channels - o : 4;
      if (n - i >= 4 && most == 4) {
        *(Q *)to = r[0]; *(Q *)(to + plane) = r[1]; *(Q *)(to + 2 * plane) = r[2]; *(Q *)(to + 3 * plane) = r[3];
      } else {
        for (int64_t c = 0; c < most; c++) memcpy(to + c * plane, &r[c], (size_t)(n - i < 4 ? n - i : 4) * sizeof(float));
      }
    }
#undef LN_MIX
}

static void LN(lanes_pack)(int64_t K, int64_t n, const float *w, float *panel) { LN(skinny_pack)(true, K, n, w, K, panel); }

const sc_lanes LN(sc__lanes) = {
  SKINNY_M, SKINNY_LANES, {
    LN(lanes_1), LN(lanes_2), LN(lanes_3), LN(lanes_4), LN(lanes_5), LN(lanes_6),
#if SKINNY_M > 6
    LN(lanes_7), LN(lanes_8), LN(lanes_9), LN(lanes_10), LN(lanes_11), LN(lanes_12), LN(lanes_13), LN(lanes_14),
#endif
  }, LN(lanes_spread), LN(lanes_pack)};
#undef LN_ROWS
#undef LN
#undef LN_CAT
#undef LN_CAT_
