/* Elementary functions as straight-line code that compilers turn into vector instructions. Each states its error.
** No include guard needed: static functions only, included once by each stamp. */
#ifndef SC_MATH_H
#define SC_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float sc_bits_f32(int32_t i) { float f; memcpy(&f, &i, 4); return f; }
static inline int32_t sc_f32_bits(float f) { int32_t i; memcpy(&i, &f, 4); return i; }

/* exp, within 1 ulp or so: x = n ln 2 + r with |r| <= ln 2 / 2, then a polynomial of degree 6 for exp r. */
static inline float sc_exp_f32(float x) {
  float xc = x < -104.0f ? -104.0f : (x > 89.0f ? 89.0f : x);
  float n = (xc * 1.44269504f + 12582912.0f) - 12582912.0f;
  float r = (xc - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t k = (int32_t)n, k1 = k >> 1, k2 = k - k1;              /* two steps, so that subnormal results come out */
  float y = p * sc_bits_f32((k1 + 127) << 23) * sc_bits_f32((k2 + 127) << 23);
  y = x > 88.72284f ? INFINITY : y;
  y = x < -104.0f ? 0.0f : y;
  return x != x ? x : y;
}
static inline double sc_exp_f64(double x) { return exp(x); }

/* tanh, within 2 ulp: near 0 a polynomial, else from exp. */
static inline float sc_tanh_f32(float x) {
  float a = fabsf(x);
  float s = x * x;
  float p = -5.70498872745e-3f;
  p = p * s + 2.06390887954e-2f;
  p = p * s + -5.37397155531e-2f;
  p = p * s + 1.33314422036e-1f;
  p = p * s + -3.33332819422e-1f;
  float small = p * s * x + x;
  float e = sc_exp_f32(2.0f * (a > 20.0f ? 20.0f : a));
  float big = 1.0f - 2.0f / (e + 1.0f);
  float y = a < 0.625f ? small : (x < 0 ? -big : big);
  return x != x ? x : y;
}
static inline double sc_tanh_f64(double x) { return tanh(x); }

#endif
