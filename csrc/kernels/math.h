/* Elementary functions as straight-line code that compilers turn into vector instructions: no calls, no branches, tables or loops
** in the float32 versions marked "vector". Coefficients are minimax fits made for these ranges; each function states its error as
** measured against double precision (in units of the last place, ulp). The same in float64 is in math64.h; rare functions go through
** the C library. Every function is right for NaN, infinities, zeros and subnormals.
**
** Static functions only, included once by each stamp. */
#ifndef SC_MATH_H
#define SC_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "special.h"

static inline float sc_bits_f32(int32_t i) { float f; memcpy(&f, &i, 4); return f; }
static inline int32_t sc_f32_bits(float f) { int32_t i; memcpy(&i, &f, 4); return i; }
static inline double sc_bits_f64(int64_t i) { double f; memcpy(&f, &i, 8); return f; }
static inline int64_t sc_f64_bits(double f) { int64_t i; memcpy(&i, &f, 8); return i; }

#define SC_LN2_HI 0.693359375f          /* few bits, so that n * SC_LN2_HI is exact */
#define SC_LN2_LO -2.12194440e-4f
#define SC_ROUND32 12582912.0f          /* adding and subtracting it rounds to a whole number, ties to even */
#define SC_ROUND64 6755399441055744.0

/* a b + c, rounded once where the instruction set has that. A sum of two products is written with it: a compiler that joins products
** and sums may take either product, one in vector code and the other in what is left over, and bits would depend on an element's place.
** For the same reason no product is a choice's result that is then added to something. */
#if defined(SC_FUSED_MULTIPLY) || defined(__FMA__) || defined(__aarch64__)
static inline float sc_madd_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double sc_madd_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
static inline float sc_madd_f32(float a, float b, float c) { return a * b + c; }
static inline double sc_madd_f64(double a, double b, double c) { return a * b + c; }
#endif

#include "math64.h"

/* y 2^k for y near 1 and |k| <= 252, k the whole number in t = k + SC_ROUND32, whose last bits are k's: in two steps, so that subnormal
** results come out and those too large become infinite. NaN stays. */
static inline float sc_scale_f32(float y, float t) {
  uint32_t k = (uint32_t)sc_f32_bits(t), half = k << 22 & 0xff800000u;         /* the rest of SC_ROUND32 is shifted out */
  float p1 = sc_bits_f32((int32_t)(half + 0x3f800000u)), p2 = sc_bits_f32((int32_t)((k << 23) - half + 0x3f800000u));
  return y * p1 * p2;
}

/* (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2 */
static inline float sc_exp_poly(float r) {
  float p = 1.991653801e-4f;
  p = p * r + 1.394595611e-3f;
  p = p * r + 8.333267942e-3f;
  p = p * r + 4.166627244e-2f;
  p = p * r + 1.666666684e-1f;
  return p * r + 5.000000077e-1f;
}

/* exp, vector, within 1 ulp: x = n ln 2 + r with |r| <= ln 2 / 2, then a polynomial for exp r. The bounds give 0 and infinity. */
static inline float sc_exp_f32(float x) {
  float xc = x < -104.0f ? -104.0f : x;
  xc = xc > 89.0f ? 89.0f : xc;
  float t = xc * 1.44269504f + SC_ROUND32, n = t - SC_ROUND32;
  float r = (xc - n * SC_LN2_HI) - n * SC_LN2_LO;
  return sc_scale_f32(sc_exp_poly(r) * r * r + r + 1.0f, t);
}

/* 2^x, vector, within 1 ulp */
static inline float sc_exp2_f32(float x) {
  float xc = x < -151.0f ? -151.0f : x;
  xc = xc > 129.0f ? 129.0f : xc;
  float t = xc + SC_ROUND32, r = (xc - (t - SC_ROUND32)) * 0.693147181f;
  return sc_scale_f32(sc_exp_poly(r) * r * r + r + 1.0f, t);
}
static inline double sc_exp2_f64(double x) { return exp2(x); }

/* e^x - 1, vector, within 2 ulp: 2^n (e^r - 1) + (2^n - 1), halved so that 2^n does not overflow. It has x's sign, zeros too. */
static inline float sc_expm1_f32(float x) {
  float xc = x < -20.0f ? -20.0f : x;
  xc = xc > 89.0f ? 89.0f : xc;
  float t = xc * 1.44269504f + SC_ROUND32, n = t - SC_ROUND32;
  float r = (xc - n * SC_LN2_HI) - n * SC_LN2_LO;
  float p = sc_exp_poly(r) * r * r + r;
  float h = sc_bits_f32((int32_t)(((uint32_t)sc_f32_bits(t) << 23) + 0x3f000000u));
  float y = (h * p + (h - 0.5f)) * 2.0f;
  return copysignf(n == 0.0f ? p : y, x);
}

/* x = m 2^e with m in [sqrt 1/2, sqrt 2): r = m - 1 */
static inline float sc_log_split(float x, float *e) {
  int small = x < 1.17549435e-38f;
  int32_t i = sc_f32_bits(small ? x * 8388608.0f : x);
  int32_t k = (int32_t)((uint32_t)i - 0x3f3504f3u) >> 23;
  *e = (float)k - (small ? 23.0f : 0.0f);
  return sc_bits_f32((int32_t)((uint32_t)i - ((uint32_t)k << 23))) - 1.0f;
}

/* (log(1 + r) - r) / r^2 there */
static inline float sc_log_poly(float r) {
  float p = 6.726041077e-2f;
  p = p * r + -1.167782193e-1f;
  p = p * r + 1.190148826e-1f;
  p = p * r + -1.240710312e-1f;
  p = p * r + 1.421758314e-1f;
  p = p * r + -1.666769769e-1f;
  p = p * r + 2.000222473e-1f;
  p = p * r + -2.500002563e-1f;
  p = p * r + 3.333331075e-1f;
  return p * r + -4.999999975e-1f;
}

static inline float sc_log_ends(float x, float y) {
  y = x == INFINITY ? INFINITY : y;
  y = x == 0 ? -INFINITY : y;
  y = x < 0 ? NAN : y;
  return x != x ? x : y;
}

/* log, vector, within 1 ulp */
static inline float sc_log_f32(float x) {
  float e, r = sc_log_split(x, &e);
  float y = sc_madd_f32(sc_log_poly(r) * r, r, e * SC_LN2_LO);
  return sc_log_ends(x, y + r + e * SC_LN2_HI);
}

/* log2 and log10, vector, within 2 ulp */
static inline float sc_log2_f32(float x) {
  float e, r = sc_log_split(x, &e), q = sc_log_poly(r) * r * r;
  float y = sc_madd_f32(r, 4.42695041e-1f, q * 1.44269504f);
  return sc_log_ends(x, y + r + e);
}
static inline double sc_log2_f64(double x) { return log2(x); }
static inline float sc_log10_f32(float x) {
  float e, r = sc_log_split(x, &e), q = sc_log_poly(r) * r * r;
  float y = sc_madd_f32(q + r, 4.342944819e-1f, e * 4.605038981e-6f);   /* log10 2 in two parts */
  return sc_log_ends(x, y + e * 3.01025390625e-1f);
}
static inline double sc_log10_f64(double x) { return log10(x); }

/* log(1 + x), vector, within 2 ulp: u = 1 + x rounded; what was rounded off is added back, divided by u. */
static inline float sc_log1p_f32(float x) {
  float u = 1.0f + x, c = x - (u - 1.0f);
  float e, r = sc_log_split(u, &e);
  float y = sc_madd_f32(sc_log_poly(r) * r, r, e * SC_LN2_LO) + (u > 1e30f ? 0.0f : c / u);
  return x == 0 ? x : sc_log_ends(u, y + r + e * SC_LN2_HI);
}

/* log(1 + e) for 0 <= e <= 1, vector, within 2 ulp: no division, as 1 / u need not be exact here */
static inline float sc_log1p_unit_f32(float e) {
  float u = 1.0f + e, c = e - (u - 1.0f);
  int upper = u > 1.41421356f;
  float r = upper ? u * 0.5f - 1.0f : u - 1.0f, k = upper ? 0.693147181f : 0.0f;
  return sc_madd_f32(sc_log_poly(r) * r, r, c * (1.0f - e * (1.0f - 0.5f * e))) + r + k;
}
static inline double sc_log1p_unit_f64(double e) { return sc_log1p_f64(e); }

/* tanh, vector, within 2.5 ulp: -t / (t + 2) with t = e^(-2|x|) - 1 */
static inline float sc_tanh_f32(float x) {
  float t = sc_expm1_f32(-2.0f * fabsf(x));
  return copysignf(t / (t + 2.0f), x);
}

/* 1 / (1 + e^-x), vector, within 2.5 ulp on both sides */
static inline float sc_sigmoid_f32(float x) {
  float z = sc_exp_f32(-fabsf(x));
  return (x < 0 ? z : 1.0f) / (1.0f + z);
}
static inline double sc_sigmoid_f64(double x) {
  double z = sc_exp_f64(-fabs(x));
  return (x < 0 ? z : 1.0) / (1.0 + z);
}

/* log(1 + e^(b x)) / b, x where b x is above t */
static inline float sc_softplus_f32(float x, float b, float t) {
  float z = x * b, y = (z > 0 ? z : 0.0f) + sc_log1p_unit_f32(sc_exp_f32(-fabsf(z)));
  y = y * (1.0f / b);
  y = z > t ? x : y;
  return x != x ? x : y;
}
static inline double sc_softplus_f64(double x, double b, double t) { double z = x * b; return z > t ? x : sc_log1p_f64(sc_exp_f64(z)) / b; }
static inline float sc_logsigmoid_f32(float x) { return (x < 0 ? x : (x != x ? x : 0)) - sc_log1p_unit_f32(sc_exp_f32(-fabsf(x))); }
static inline double sc_logsigmoid_f64(double x) { return (x < 0 ? x : (x != x ? x : 0)) - sc_log1p_f64(sc_exp_f64(-fabs(x))); }

/* erf, vector, within 2 ulp: a polynomial in x^2 near 0, else 1 - exp(a polynomial). */
static inline float sc_erf_f32(float x) {
  float a = fabsf(x), s = x * x;
  float p = 8.215419975e-5f;
  p = p * s + -8.105964109e-4f;
  p = p * s + 5.197797065e-3f;
  p = p * s + -2.685810424e-2f;
  p = p * s + 1.128367254e-1f;
  p = p * s + -3.761263229e-1f;
  p = p * s + 1.283791660e-1f;                       /* 2 / sqrt(pi) - 1: the 1 is added exactly */
  float b = a > 4.0f ? 4.0f : a;
  float q = 6.627549867e-7f;
  q = q * b + 1.233076978e-5f;
  q = q * b + -3.847900399e-4f;
  q = q * b + 4.013411064e-3f;
  q = q * b + -2.481282356e-2f;
  q = q * b + 1.079057403e-1f;
  q = q * b + 6.336272877e-1f;
  q = q * b + 1.129397075f;
  q = q * b + -1.533843341e-4f;
  float big = copysignf(1.0f - sc_exp_f32(-q), x);
  float y = a < 0.92f ? p * x + x : big;
  return x != x ? x : y;
}
static inline double sc_erf_f64(double x) { return erf(x); }

/* e^(a^2) erfc(a) (1 + 2a) for 0 <= a <= 10.1, in t = (a - 3) / (a + 3) */
static inline float sc_erfc_poly(float t) {
  float p = -2.681310671e-4f;
  p = p * t + -7.775901354e-4f;
  p = p * t + 2.001810603e-3f;
  p = p * t + 2.567381371e-3f;
  p = p * t + -2.379752860e-2f;
  p = p * t + 6.829576663e-2f;
  p = p * t + -1.192709756e-1f;
  p = p * t + 1.296464146e-1f;
  p = p * t + -4.756239942e-2f;
  p = p * t + -1.356211393e-1f;
  return p * t + 1.253008059f;
}

/* erfc, vector, within 4 ulp: a^2 in two parts, since the exponential doubles its error many times. */
static inline float sc_erfc_f32(float x) {
  float a = fabsf(x) > 10.1f ? 10.1f : fabsf(x);
  float hi = sc_bits_f32(sc_f32_bits(a) & ~0xfff), lo = (a - hi) * (a + hi);     /* hi * hi is exact */
  float e = sc_exp_f32(-hi * hi) * sc_exp_f32(-lo);
  float y = e * sc_erfc_poly((a - 3.0f) / (a + 3.0f)) / (1.0f + 2.0f * a);
  y = x < 0 ? 2.0f - y : y;
  return x != x ? x : y;
}
static inline double sc_erfc_f64(double x) { return erfc(x); }

/* In float32 these are in vector_math.h. */
static inline double sc_gelu_f64(double x) { return 0.5 * x * (1.0 + erf(x * M_SQRT1_2)); }
static inline double sc_gelu_tanh_f64(double x) { return 0.5 * x * (1.0 + sc_tanh_f64(0.7978845608028653559 * (x + 0.044715 * x * x * x))); }
static inline double sc_silu_f64(double x) { return x * sc_sigmoid_f64(x); }
/* x tanh(log(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2); vector */
static inline float sc_mish_f32(float x) {
  float e = sc_exp_f32(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);
  return x * (n / (n + 2.0f));
}
static inline double sc_mish_f64(double x) { double e = sc_exp_f64(x > 40 ? 40 : x), n = e * (e + 2); return x * (n / (n + 2)); }

/* ---- circular functions, vector, within 2 ulp for |x| <= SC_CIRCULAR_MAX: the reduction x - n pi/2 is done in double. Loops give
** larger arguments to the C library. ---- */
#ifdef STAMP_ALL
#define SC_CIRCULAR_MAX 1.0e6f          /* where products are rounded, n times the first part of pi / 2 must be exact */
#else
#define SC_CIRCULAR_MAX 1.0e9f
#endif
static inline float sc_circular(float x, int32_t *quadrant) {
  double d = (double)x, n = (d * 0.63661977236758134308 + SC_ROUND64) - SC_ROUND64;
  double r = d - n * 1.57079632673412561417 - n * 6.07710050650619224932e-11;     /* pi / 2: 33 bits, then the rest */
  *quadrant = (int32_t)n;
  return (float)r;
}
static inline float sc_sin_poly(float r, float s) {
  return (((2.718237075e-6f * s + -1.983932711e-4f) * s + 8.333329362e-3f) * s + -1.666666664e-1f) * s * r + r;
}
static inline float sc_cos_poly(float s) {
  return ((((-2.720954429e-7f * s + 2.479951172e-5f) * s + -1.388888372e-3f) * s + 4.166666662e-2f) * s - 0.5f) * s + 1.0f;
}
static inline float sc_sin_f32(float x) {
  int32_t q;
  float r = sc_circular(x, &q), s = r * r;
  float y = q & 1 ? sc_cos_poly(s) : sc_sin_poly(r, s);
  y = q & 2 ? -y : y;
  return x == 0 ? x : y;
}
static inline float sc_cos_f32(float x) {
  int32_t q;
  float r = sc_circular(x, &q), s = r * r;
  float y = q & 1 ? sc_sin_poly(r, s) : sc_cos_poly(s);
  return (q + 1) & 2 ? -y : y;
}
static inline float sc_tan_f32(float x) {
  int32_t q;
  float r = sc_circular(x, &q), s = r * r, a = sc_sin_poly(r, s), b = sc_cos_poly(s);
  float y = q & 1 ? -b / a : a / b;
  return x == 0 ? x : y;
}

/* ---- inverse functions, vector ---- */
/* asin for |x| <= 0.5, x^3 in the polynomial */
static inline float sc_asin_poly(float x, float s) {
  return ((((4.223050199e-2f * s + 2.414101273e-2f) * s + 4.547833933e-2f) * s + 7.495232683e-2f) * s + 1.666675413e-1f) * s * x + x;
}
/* within 2 ulp: above 1/2, pi/2 - 2 asin sqrt((1 - x) / 2) */
static inline float sc_asin_f32(float x) {
  float a = fabsf(x), s = a > 0.5f ? 0.5f * (1.0f - a) : a * a, r = a > 0.5f ? sqrtf(s) : a;
  float p = sc_asin_poly(r, s);
  return copysignf(a > 0.5f ? 1.57079633f - 2.0f * p : p, x);
}
static inline float sc_acos_f32(float x) {
  float a = fabsf(x), s = a > 0.5f ? 0.5f * (1.0f - a) : a * a, r = a > 0.5f ? sqrtf(s) : x;
  float p = sc_asin_poly(r, s);
  float far = x < 0 ? 3.14159265f - 2.0f * p : 2.0f * p;
  return a > 0.5f ? far : 1.57079633f - p;
}
/* within 2 ulp: above 1, pi/2 - atan(1/x) */
static inline float sc_atan_f32(float x) {
  float a = fabsf(x), r = a > 1.0f ? 1.0f / a : a, s = r * r;
  float p = -1.827148300e-3f;
  p = p * s + 1.106415298e-2f;
  p = p * s + -3.145516865e-2f;
  p = p * s + 5.823402041e-2f;
  p = p * s + -8.419428611e-2f;
  p = p * s + 1.095756598e-1f;
  p = p * s + -1.426524350e-1f;
  p = p * s + 1.999863845e-1f;
  p = p * s + -3.333330186e-1f;
  p = p * s * r + r;
  return copysignf(a > 1.0f ? 1.57079633f - p : p, x);
}
/* The angle of (x, y), within 3 ulp: atan of the smaller coordinate over the larger, then the octant. */
static inline float sc_atan2_f32(float y, float x) {
  float a = fabsf(x), b = fabsf(y), big = a > b ? a : b, small = a > b ? b : a;
  float q = big == 0 ? 0.0f : (small == INFINITY ? 1.0f : small / big), p = sc_atan_f32(q);
  p = b > a ? 1.57079633f - p : p;
  p = sc_f32_bits(x) < 0 ? 3.14159265f - p : p;
  return x != x || y != y ? x + y : copysignf(p, y);
}
/* asinh, acosh, atanh by log1p, within 4 ulp; for large x, log 2x */
static inline float sc_asinh_f32(float x) {
  float a = fabsf(x), s = a * a;
  float near = sc_log1p_f32(a + s / (1.0f + sqrtf(1.0f + s))), far = sc_log_f32(a) + 0.693147181f;
  return copysignf(a > 1e8f ? far : near, x);
}
static inline float sc_acosh_f32(float x) {
  float t = x - 1.0f, near = sc_log1p_f32(t + sqrtf(t * (2.0f + t))), far = sc_log_f32(x) + 0.693147181f;
  float y = x > 1e8f ? far : near;
  return x < 1.0f ? NAN : y;
}
static inline float sc_atanh_f32(float x) {
  float a = fabsf(x);
  return copysignf(0.5f * sc_log1p_f32(2.0f * a / (1.0f - a)), x);
}
/* sinh from e^x - 1, above 9 half of e^x in two factors, since it may overflow before its half does; within 3 ulp */
static inline float sc_sinh_f32(float x) {
  float a = fabsf(x), t = sc_expm1_f32(a > 10.0f ? 10.0f : a), h = sc_exp_f32(a * 0.5f);
  float near = 0.5f * (t + t / (t + 1.0f)), far = 0.5f * h * h;
  float y = copysignf(a > 9.0f ? far : near, x);
  return x != x ? x : y;
}
static inline float sc_cosh_f32(float x) {
  float a = fabsf(x), h = sc_exp_f32(a * 0.5f), e = h * h;
  return a > 9.0f ? 0.5f * h * h : 0.5f * (e + 1.0f / e);
}

/* ---- pow, vector: log2 and exp2 in double, so that the result is right to about 0.5 ulp ---- */
static inline float sc_pow_f32(float x, float y) {
  double a = fabs((double)x);
  int64_t i = sc_f64_bits(a), k = (i - 0x3fe6a09e667f3bcdll) >> 52;
  double m = sc_bits_f64((int64_t)((uint64_t)i - ((uint64_t)k << 52))), s = (m - 1.0) / (m + 1.0), u = s * s;
  double p = 8.41759980098058663e-02;
  p = p * u + 9.06120589852577873e-02;
  p = p * u + 1.11117040150035304e-01;
  p = p * u + 1.42857083236672233e-01;
  p = p * u + 2.00000000275177836e-01;
  p = p * u + 3.33333333332910708e-01;
  double l = (double)(int32_t)k + (s + s * u * p) * 2.88539008177792681472;     /* 2 / ln 2 */
  double e = l * (double)y;
  e = e < -200.0 ? -200.0 : (e > 200.0 ? 200.0 : e);
  double n = (e + SC_ROUND64) - SC_ROUND64, f = e - n;
  double q = 1.53149434966826670e-05;
  q = q * f + 1.54671105975438735e-04;
  q = q * f + 1.33334308002022511e-03;
  q = q * f + 9.61803690990353788e-03;
  q = q * f + 5.55041096255844829e-02;
  q = q * f + 2.40226510758615175e-01;
  q = q * f + 6.93147180541656027e-01;
  q = q * f + 1.0;
  float z = (float)(q * sc_bits_f64((int64_t)((uint64_t)(int64_t)((int32_t)n + 1023) << 52)));
  float b = fabsf(y);
  z = a == 0.0 ? (y < 0 ? INFINITY : 0.0f) : z;
  z = a == (double)INFINITY ? (y < 0 ? 0.0f : INFINITY) : z;
  z = b == INFINITY ? (a == 1.0 ? 1.0f : ((a > 1.0) == (y > 0) ? INFINITY : 0.0f)) : z;
  float h = y * 0.5f;
  int whole = b >= 8388608.0f || y == truncf(y), odd = b < 16777216.0f && whole && h != truncf(h);
  z = odd ? copysignf(z, x) : z;
  z = x < 0 && !whole && x != -INFINITY ? NAN : z;
  z = x != x || y != y ? NAN : z;
  return y == 0 || x == 1.0f ? 1.0f : z;
}
static inline double sc_pow_f64(double x, double y) { return pow(x, y); }

/* sqrt(x^2 + y^2), vector, within 1 ulp: in double nothing overflows; an infinity wins over NaN */
static inline float sc_hypot_f32(float x, float y) {
  float r = (float)sqrt((double)x * (double)x + (double)y * (double)y);
  return (fabsf(x) == INFINITY) | (fabsf(y) == INFINITY) ? INFINITY : r;
}
static inline int sc_negative_f32(float x) { return sc_f32_bits(x) < 0; }      /* -0 included */
static inline int sc_negative_f64(double x) { return sc_f64_bits(x) < 0; }

/* ---- the C library's ---- */
#define SC_LIBM_64(fn) static inline double sc_##fn##_f64(double x) { return fn(x); }
#define SC_LIBM(fn) static inline float sc_##fn##_f32(float x) { return fn##f(x); } SC_LIBM_64(fn)
SC_LIBM_64(asin) SC_LIBM_64(acos) SC_LIBM_64(atan)
SC_LIBM_64(acosh) SC_LIBM_64(asinh) SC_LIBM_64(atanh) SC_LIBM(sqrt) SC_LIBM(ceil) SC_LIBM(floor) SC_LIBM(trunc) SC_LIBM(rint) SC_LIBM(fabs)
#define SC_LIBM_2(fn) \
  static inline float sc_##fn##_f32(float x, float y) { return fn##f(x, y); } \
  static inline double sc_##fn##_f64(double x, double y) { return fn(x, y); }
static inline double sc_atan2_f64(double y, double x) { return atan2(y, x); }
SC_LIBM_2(fmod) SC_LIBM_2(copysign) SC_LIBM_2(nextafter)
#undef SC_LIBM_64
#undef SC_LIBM
#undef SC_LIBM_2

/* ---- special functions: double, see special.c ---- */
#define SC_SPECIAL_1(f) \
  static inline double sc_##f##_f64(double x) { return sc__##f(x); } static inline float sc_##f##_f32(float x) { return (float)sc__##f(x); }
#define SC_SPECIAL_2(f) \
  static inline double sc_##f##_f64(double x, double y) { return sc__##f(x, y); } \
  static inline float sc_##f##_f32(float x, float y) { return (float)sc__##f(x, y); }
SC_SPECIAL_FUNCTIONS
static inline double sc_polygamma_f64(double n, double x) { return sc__polygamma(n, x); }
static inline float sc_polygamma_f32(float n, float x) { return sc__polygamma_f32(n, x); }
#undef SC_SPECIAL_1
#undef SC_SPECIAL_2

/* ---- division with whole quotients ----
** float32, vector: in double a quotient below SC_QUOTIENT_MAX is far enough from any whole number that it is not to be cut right,
** and what is left is exact. Loops give larger ones, and zeros, infinities and NaN, to the plain versions below. */
#define SC_QUOTIENT_MAX 2.0e8
static inline float sc_fmod_fast(float a, float b) { return copysignf((float)((double)a - trunc((double)a / (double)b) * (double)b), a); }
static inline float sc_remainder_fast(float a, float b) {
  float m = (float)((double)a - trunc((double)a / (double)b) * (double)b);
  return (m < 0) & (b > 0) ? m + b : (m > 0) & (b < 0) ? m + b : copysignf(m, m == 0 ? a : m);
}
static inline float sc_floordiv_fast(float a, float b) {
  double q = (double)a / (double)b;
  return (float)copysign(floor(q), q);
}

/* That rounds down, as in Lua. */
static inline double sc_remainder_f64(double a, double b) { double m = fmod(a, b); return m != 0 && (b < 0) != (m < 0) ? m + b : m; }
static inline float sc_remainder_f32(float a, float b) { float m = fmodf(a, b); return m != 0 && (b < 0) != (m < 0) ? m + b : m; }
/* The quotient of what fmod leaves is whole but for its rounding: the nearest whole number below is the right one. */
static inline double sc_floordiv_f64(double a, double b) {
  if (b == 0) return a / b;
  double m = fmod(a, b), q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return copysign(0.0, a / b);
  double f = floor(q);
  return q - f > 0.5 ? f + 1 : f;
}
static inline float sc_floordiv_f32(float a, float b) {
  if (b == 0) return a / b;
  float m = fmodf(a, b), q = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) q -= 1;
  if (q == 0) return copysignf(0.0f, a / b);
  float f = floorf(q);
  return q - f > 0.5f ? f + 1 : f;
}

/* To a number of decimals, ties to even; negative ones round to tens, hundreds … */
static inline double sc_ten(int64_t n) { return pow(10.0, n > 400 || n < -400 ? 400 : (double)(n < 0 ? -n : n)); }   /* to |n| */
static inline double sc_decimals_f64(double x, int64_t n) { return n >= 0 ? rint(x * sc_ten(n)) / sc_ten(n) : rint(x / sc_ten(n)) * sc_ten(n); }
static inline float sc_decimals_f32(float x, int64_t n) {
  float t = (float)sc_ten(n);
  return n >= 0 ? rintf(x * t) / t : rintf(x / t) * t;
}

/* ---- small ones for both types ---- */
#define SC_BOTH(T, s, e) \
  static inline T sc_max_##s(T a, T b) { return (a > b) | (a != a) ? a : b; } \
  static inline T sc_min_##s(T a, T b) { return (a < b) | (a != a) ? a : b; } \
  static inline T sc_clamp_##s(T a, T b, T c) {     /* one comparison a choice: only those become vector code */ \
    T t = !(b <= a) ? b : a; \
    t = !(c >= t) ? c : t; \
    return a != a ? a : t; \
  } \
  /* from the nearer end, so that both ends are exact */ \
  static inline T sc_lerp_##s(T a, T b, T w) { return sc_fabs_##s(w) < (T)0.5 ? a + w * (b - a) : b - (b - a) * (1 - w); } \
  static inline T sc_logaddexp_##s(T a, T b) { return a == b ? a + (T)0.69314718055994530942 : sc_max_##s(a, b) + sc_log1p_unit_##s(sc_exp_##s(-sc_fabs_##s(a - b))); } \
  static inline T sc_logaddexp2_##s(T a, T b) { \
    return a == b ? a + 1 : sc_max_##s(a, b) + (T)1.44269504088896340736 * sc_log1p_unit_##s(sc_exp2_##s(-sc_fabs_##s(a - b))); \
  } \
  static inline T sc_xlogy_##s(T a, T b) { return b != b ? b : a == 0 ? 0 : a * sc_log_##s(b); } \
  static inline T sc_xlog1py_##s(T a, T b) { return b != b ? b : a == 0 ? 0 : a * sc_log1p_##s(b); } \
  static inline T sc_entr_##s(T a) { return a > 0 ? -a * sc_log_##s(a) : a == 0 ? 0 : a != a ? a : -INFINITY; } \
  static inline T sc_mantissa_##s(T a) { int k; return frexp##e(a, &k); } \
  static inline T sc_exponent_##s(T a) { int k = 0; if (isfinite(a)) (void)frexp##e(a, &k); return (T)k; } \
  static inline int sc_isclose_##s(T a, T b, T rtol, T atol, T equal_nan) { \
    T d = sc_fabs_##s(a - b); \
    return (a == b) | ((equal_nan != 0) & (a != a) & (b != b)) | ((d < INFINITY) & (d <= atol + sc_fabs_##s(rtol * b))); \
  } \
  /* the normal distribution's share below x, plus x times its density */ \
  static inline T sc_gelu_slope_##s(T x) { \
    T share = (T)0.5 * (1 + sc_erf_##s(x * (T)0.70710678118654752440)); \
    return sc_madd_##s(x * (T)0.39894228040143267794, sc_exp_##s(x * x * (T)-0.5), share); \
  } \
  /* x s(u), s the sigmoid and u = c (x + k x^3): its first and second derivatives; far out s is 0 or 1 and its slope is 0 */ \
  static inline T sc_gelu_tanh_slope_##s(T x) { \
    x = x < -30 ? -30 : x > 30 ? 30 : x; \
    T s = sc_sigmoid_##s((T)1.5957691216057307 * (x + (T)0.044715 * x * x * x)); \
    T d = s * (1 - s) * ((T)1.5957691216057307 + (T)0.2140644488178 * x * x); \
    return sc_madd_##s(x, d, s); \
  } \
  static inline T sc_gelu_tanh_curve_##s(T x) { \
    x = x < -30 ? -30 : x > 30 ? 30 : x; \
    T s = sc_sigmoid_##s((T)1.5957691216057307 * (x + (T)0.044715 * x * x * x)), d = s * (1 - s); \
    T u = (T)1.5957691216057307 + (T)0.2140644488178 * x * x; \
    return d * (2 * sc_madd_##s(x, sc_madd_##s((1 - 2 * s) * u, (T)0.5 * u, (T)0.2140644488178 * x), u)); \
  }
SC_BOTH(float, f32, f)
SC_BOTH(double, f64, )
#undef SC_BOTH
/* The derivative of sinc: (cos(pi x) - sinc(x)) / x, its series near 0. */
static inline double sc_sinc_slope_f64(double x) {
  if (fabs(x) < 1e-3) return x * (-3.2898681336964528729 + 3.2469697011334145746 * x * x);
  double r = x - 2 * rint(x / 2);
  return (cos(3.14159265358979323846 * r) - sc__sinc(x)) / x;
}
static inline float sc_sinc_slope_f32(float x) { return (float)sc_sinc_slope_f64(x); }

/* ---- integers in 64 bits: i signed, u unsigned. Division by zero cannot happen: run has refused it. ---- */
static inline int64_t sc_idiv(int64_t a, int64_t b) { return b == -1 ? (int64_t)(0 - (uint64_t)a) : b ? a / b : 0; }
static inline int64_t sc_imod(int64_t a, int64_t b) { return b == -1 || b == 0 ? 0 : a % b; }
static inline int64_t sc_ifloordiv(int64_t a, int64_t b) { int64_t q = sc_idiv(a, b); return sc_imod(a, b) != 0 && (a < 0) != (b < 0) ? q - 1 : q; }
static inline int64_t sc_iremainder(int64_t a, int64_t b) { int64_t m = sc_imod(a, b); return m != 0 && (m < 0) != (b < 0) ? m + b : m; }
static inline uint64_t sc_udiv(uint64_t a, uint64_t b) { return b ? a / b : 0; }
static inline uint64_t sc_umod(uint64_t a, uint64_t b) { return b ? a % b : 0; }
static inline uint64_t sc_ufloordiv(uint64_t a, uint64_t b) { return sc_udiv(a, b); }
static inline uint64_t sc_uremainder(uint64_t a, uint64_t b) { return sc_umod(a, b); }
static inline uint64_t sc_iabs(int64_t a) { return a < 0 ? 0 - (uint64_t)a : (uint64_t)a; }
static inline uint64_t sc_uabs(uint64_t a) { return a; }
static inline int64_t sc_isign(int64_t a) { return (a > 0) - (a < 0); }
static inline uint64_t sc_usign(uint64_t a) { return a != 0; }
static inline int sc_ineg(int64_t a) { return a < 0; }
static inline int sc_uneg(uint64_t a) { (void)a; return 0; }
/* of integers of up to 32 bits */
static inline uint32_t sc_nabs(int32_t a) { return a < 0 ? 0 - (uint32_t)a : (uint32_t)a; }
static inline int32_t sc_nsign(int32_t a) { return (a > 0) - (a < 0); }
static inline int32_t sc_nneg(int32_t a) { return a < 0; }
static inline int32_t sc_nmax(int32_t a, int32_t b) { return a > b ? a : b; }
static inline int32_t sc_nmin(int32_t a, int32_t b) { return a < b ? a : b; }
static inline int64_t sc_imax(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t sc_imin(int64_t a, int64_t b) { return a < b ? a : b; }
static inline uint64_t sc_umax(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline uint64_t sc_umin(uint64_t a, uint64_t b) { return a < b ? a : b; }
/* Shifts by less than nothing, or by the width or more, shift everything out. */
static inline uint64_t sc_shl(uint64_t a, int64_t n) { return n < 0 || n > 63 ? 0 : a << n; }
static inline int64_t sc_ishr(int64_t a, int64_t n) { return n < 0 || n > 63 ? (a < 0 ? -1 : 0) : a >> n; }
static inline uint64_t sc_ushr(uint64_t a, int64_t n) { return n < 0 || n > 63 ? 0 : a >> n; }
static inline uint64_t sc_upow(uint64_t a, int64_t n) {
  uint64_t y = 1;
  for (uint64_t e = (uint64_t)n; e; e >>= 1) {
    if (e & 1) y *= a;
    a *= a;
  }
  return y;
}
/* A negative exponent leaves 0, but for the bases 1 and -1. */
static inline uint64_t sc_ipow(uint64_t a, int64_t n) {
  if (n < 0) return a == 1 ? 1 : a == (uint64_t)-1 ? (n & 1 ? (uint64_t)-1 : 1) : 0;
  return sc_upow(a, n);
}
static inline uint64_t sc_gcd(uint64_t a, uint64_t b) { while (b) { uint64_t t = a % b; a = b; b = t; } return a; }
static inline uint64_t sc_lcm(uint64_t a, uint64_t b) { return a && b ? a / sc_gcd(a, b) * b : 0; }
static inline int sc_iclose(double a, double b, double rtol, double atol) { return fabs(a - b) <= atol + fabs(rtol * b); }

#endif
