/* Runs of halves to and from float32 by the processor's own conversion (F16C), the tail too, so that NaN bits never depend on a
** run's length. Called where the processor has AVX2, which comes with it. Empty elsewhere. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define F16C __attribute__((target("avx,f16c")))

void sc__halves_to_floats(int64_t n, float *d, const uint16_t *s);
F16C void sc__halves_to_floats(int64_t n, float *d, const uint16_t *s) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(d + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(s + i))));
  if (i == n) return;
  uint16_t in[8] = {0};
  float out[8];
  memcpy(in, s + i, (size_t)(n - i) * sizeof *s);
  _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)in)));
  memcpy(d + i, out, (size_t)(n - i) * sizeof *d);
}

void sc__floats_to_halves(int64_t n, uint16_t *d, const float *s);
F16C void sc__floats_to_halves(int64_t n, uint16_t *d, const float *s) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i *)(d + i), _mm256_cvtps_ph(_mm256_loadu_ps(s + i), _MM_FROUND_TO_NEAREST_INT));
  if (i == n) return;
  float in[8] = {0};
  uint16_t out[8];
  memcpy(in, s + i, (size_t)(n - i) * sizeof *s);
  _mm_storeu_si128((__m128i *)out, _mm256_cvtps_ph(_mm256_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT));
  memcpy(d + i, out, (size_t)(n - i) * sizeof *d);
}
#else
typedef int sc__halves_is_empty;
#endif
