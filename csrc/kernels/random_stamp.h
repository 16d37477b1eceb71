/* Random bits and what is made of them, stamped per instruction set (`ISA` is set by the including file). No include guard.
**
** The stream: a *group* is 64 words of 32 bits from 16 successive counters of Philox 4x32-10. Word j of counter k stands at
** place 16 j + k, so that sixteen lanes work side by side and nothing is shuffled. Every instruction set and every split of
** the work gives the same words, since a group depends on the seed and its counter only.
** Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

#define RANDOM_ISA_base 0
#define RANDOM_ISA_avx2 1
#define RANDOM_ISA_avx512 2
#define RCAT_(a, b) a##_##b
#define RCAT(a, b) RCAT_(a, b)
#define RNAME(name) RCAT(name, ISA)
enum { RNAME(LANES) = 16 };
#define L RNAME(LANES)
#define RANDOM_ISA RCAT(RANDOM_ISA, ISA)
#if RANDOM_ISA > 0
#include <immintrin.h>
#endif

/* A vector of SC_V 64-bit lanes. Only the low halves count: the product reads no more, and what stands above is never stored. */
#if RANDOM_ISA == 2
#define SC_V 8
typedef __m512i RNAME(vec);
#define V_SET(x) _mm512_set1_epi64((long long)(x))
#define V_LOAD(p) _mm512_loadu_si512(p)
#define V_MUL(x, y) _mm512_mul_epu32(x, y)
#define V_HIGH(x) _mm512_srli_epi64(x, 32)
#define V_XOR3(x, y, z) _mm512_ternarylogic_epi64(x, y, z, 0x96)
#define V_STORE(p, x) _mm256_storeu_si256((__m256i *)(p), _mm512_cvtepi64_epi32(x))
#elif RANDOM_ISA == 1
#define SC_V 4
typedef __m256i RNAME(vec);
#define V_SET(x) _mm256_set1_epi64x((long long)(x))
#define V_LOAD(p) _mm256_loadu_si256((const __m256i *)(p))
#define V_MUL(x, y) _mm256_mul_epu32(x, y)
#define V_HIGH(x) _mm256_srli_epi64(x, 32)
#define V_XOR3(x, y, z) _mm256_xor_si256(_mm256_xor_si256(x, y), z)
#define V_STORE(p, x) _mm_storeu_si128((__m128i *)(p), _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6))))
#else
#define SC_V 1
typedef uint64_t RNAME(vec);
#define V_SET(x) ((uint64_t)(x))
#define V_LOAD(p) (*(p))
#define V_MUL(x, y) ((uint64_t)(uint32_t)(x) * (uint32_t)(y))
#define V_HIGH(x) ((x) >> 32)
#define V_XOR3(x, y, z) ((x) ^ (y) ^ (z))
#define V_STORE(p, x) (*(p) = (uint32_t)(x))
#endif

static void RNAME(words)(uint64_t seed, uint64_t counter, int64_t groups, uint32_t *restrict out) {
  const RNAME(vec) m0 = V_SET(0xD2511F53u), m1 = V_SET(0xCD9E8D57u);
  for (int64_t g = 0; g < groups; g++, out += 64) {
    RNAME(vec) a[L / SC_V], b[L / SC_V], c[L / SC_V], d[L / SC_V];
    for (int h = 0; h < L / SC_V; h++) {
      uint64_t at[SC_V];
      for (int k = 0; k < SC_V; k++) at[k] = counter + (uint64_t)(g * L + h * SC_V + k);
      a[h] = V_LOAD(at);
      b[h] = V_HIGH(a[h]);
      c[h] = d[h] = V_SET(0);
    }
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
      for (int h = 0; h < L / SC_V; h++) {
        RNAME(vec) p0 = V_MUL(a[h], m0), p1 = V_MUL(c[h], m1);
        a[h] = V_XOR3(V_HIGH(p1), b[h], V_SET(k0));
        b[h] = p1;
        c[h] = V_XOR3(V_HIGH(p0), d[h], V_SET(k1));
        d[h] = p0;
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int h = 0; h < L / SC_V; h++) {
      V_STORE(out + h * SC_V, a[h]);
      V_STORE(out + L + h * SC_V, b[h]);
      V_STORE(out + 2 * L + h * SC_V, c[h]);
      V_STORE(out + 3 * L + h * SC_V, d[h]);
    }
  }
}
#undef SC_V
#undef V_SET
#undef V_LOAD
#undef V_MUL
#undef V_HIGH
#undef V_XOR3
#undef V_STORE

/* low + u * range with u in [0, 1) in steps of 2^-24; never `low + range` itself. */
static void RNAME(uniform)(int64_t n, const uint32_t *restrict w, float low, float range, float *restrict out) {
  float high = low + range, last = range > 0 ? nextafterf(high, low) : low;
  for (int64_t i = 0; i < n; i++) {
    float v = (float)(int32_t)(w[i] >> 8) * 5.9604644775390625e-8f * range + low;
    out[i] = v >= high ? last : v;
  }
}

/* ln x for x in [2^-32, 1], within 2 ulp: the mantissa in [sqrt(1/2), sqrt 2), a polynomial in t = m - 1. */
static inline float RNAME(log_unit)(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23;
  uint32_t mu = u - ((uint32_t)e << 23);
  float m, fe = (float)e;
  memcpy(&m, &mu, 4);
  float t = m - 1.0f, z = t * t;
  float p = 7.0376836292e-2f;
  p = p * t - 1.1514610310e-1f;
  p = p * t + 1.1676998740e-1f;
  p = p * t - 1.2420140846e-1f;
  p = p * t + 1.4249322787e-1f;
  p = p * t - 1.6668057665e-1f;
  p = p * t + 2.0000714765e-1f;
  p = p * t - 2.4999993993e-1f;
  p = p * t + 3.3333331174e-1f;
  float y = t * z * p + fe * -2.12194440e-4f;
  y = y - 0.5f * z;
  return t + y + fe * 0.693359375f;
}

/* Normal numbers by Box and Muller: of each group the first 16 words give radii and the next 16 angles, and so the other half.
** The radius' uniform number is in (0, 1] in steps of 2^-31, the smallest 2^-32, hence |z| <= 6.66. */
static void RNAME(normal)(int64_t groups, const uint32_t *restrict w, float mean, float std, float *restrict out) {
  for (int64_t h = 0; h < groups * 2; h++, w += 2 * L, out += 2 * L) {
    float r[L], re[L], im[L];
    for (int k = 0; k < L; k++)
      r[k] = -2.0f * RNAME(log_unit)((float)(int32_t)(w[k] >> 1) * 4.656612873077393e-10f + 2.3283064365386963e-10f);
#if RANDOM_ISA == 2                    /* compilers keep a call of sqrtf for its errno */
    _mm512_storeu_ps(r, _mm512_sqrt_ps(_mm512_loadu_ps(r)));
#elif RANDOM_ISA == 1
    _mm256_storeu_ps(r, _mm256_sqrt_ps(_mm256_loadu_ps(r)));
    _mm256_storeu_ps(r + 8, _mm256_sqrt_ps(_mm256_loadu_ps(r + 8)));
#else
    for (int k = 0; k < L; k++) r[k] = sqrtf(r[k]);
#endif
    for (int k = 0; k < L; k++) {
      /* the angle as a quadrant and a rest: sign and exchange from the one, polynomials for |x| <= pi / 4 from the other */
      int32_t turn = (int32_t)w[L + k];
      int32_t q = (int32_t)(((uint32_t)turn + 0x20000000u) >> 30);
      float x = (float)(int32_t)((uint32_t)turn - ((uint32_t)q << 30)) * 1.4629180792671596e-9f;
      float s = x * x;
      float sn = ((-1.9515295891e-4f * s + 8.3321608736e-3f) * s - 1.6666654611e-1f) * s * x + x;
      float cs = ((2.443315711809948e-5f * s - 1.388731625493765e-3f) * s + 4.166664568298827e-2f) * s * s - 0.5f * s + 1.0f;
      float c1 = q & 1 ? sn : cs, s1 = q & 1 ? cs : sn, rs = r[k] * std;
      re[k] = rs * ((q + 1) & 2 ? -c1 : c1) + mean;
      im[k] = rs * (q & 2 ? -s1 : s1) + mean;
    }
    memcpy(out, re, sizeof re);
    memcpy(out + L, im, sizeof im);
  }
}

/* A bit per word: w >= threshold. Bit i of the group's 8 bytes stands for word i. */
static void RNAME(keep)(int64_t groups, const uint32_t *restrict w, uint32_t threshold, uint8_t *restrict bits) {
  for (int64_t g = 0; g < groups; g++, w += 64, bits += 8) {
    uint8_t one[64];
    for (int i = 0; i < 64; i++) one[i] = w[i] >= threshold;
    for (int i = 0; i < 8; i++) {
      uint64_t v;
      memcpy(&v, one + 8 * i, 8);
      bits[i] = (uint8_t)(v * 0x0102040810204080u >> 56);
    }
  }
}

#define MASKED(T, name) \
  static void RNAME(name)(int64_t n, const T *x, const uint8_t *restrict bits, T scale, T *y) { \
    int64_t i = 0; \
    for (; i + 32 <= n; i += 32) { \
      uint32_t m; \
      memcpy(&m, bits + i / 8, 4); \
      SC_IVDEP for (int k = 0; k < 32; k++) y[i + k] = m >> k & 1 ? x[i + k] * scale : 0; \
    } \
    for (; i < n; i++) y[i] = bits[i / 8] >> (i & 7) & 1 ? x[i] * scale : 0; \
  }
MASKED(float, masked_f32)
MASKED(double, masked_f64)
#undef MASKED

const sc_random_kernels RCAT(sc__random_kernels, ISA) = {
  RNAME(words), RNAME(uniform), RNAME(normal), RNAME(keep), RNAME(masked_f32), RNAME(masked_f64)};
#undef RCAT_
#undef RCAT
#undef RNAME
#undef L
#undef RANDOM_ISA
