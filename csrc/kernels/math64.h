/* Elementary functions in double, straight-line code that compilers turn into vector instructions, as math.h has them in float: the same
** reductions, series of Taylor long enough for the reduced range. Errors as measured against long double, in units of the last place.
** Every function is right for NaN, infinities, zeros and subnormals. Included by math.h. */
#ifndef SC_MATH64_H
#define SC_MATH64_H

#define SC_LN2_HI64 6.93147180369123816490e-01      /* 32 bits, so that n * SC_LN2_HI64 is exact */
#define SC_LN2_LO64 1.90821492927058770002e-10

/* y 2^k: see sc_scale_f32 */
static inline double sc_scale_f64(double y, double t) {
  uint64_t k = (uint64_t)sc_f64_bits(t), half = k << 51 & 0xfff0000000000000u;
  double p1 = sc_bits_f64((int64_t)(half + 0x3ff0000000000000u)), p2 = sc_bits_f64((int64_t)((k << 52) - half + 0x3ff0000000000000u));
  return y * p1 * p2;
}

/* (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2: 1 / (i + 2)! */
static inline double sc_exp_poly64(double r) {
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  return p * r + 0.5;
}

/* within 1 ulp */
static inline double sc_exp_f64(double x) {
  double xc = x < -746.0 ? -746.0 : x;
  xc = xc > 710.0 ? 710.0 : xc;
  double t = xc * 1.4426950408889634074 + SC_ROUND64, n = t - SC_ROUND64;
  double r = (xc - n * SC_LN2_HI64) - n * SC_LN2_LO64;
  return sc_scale_f64(sc_exp_poly64(r) * r * r + r + 1.0, t);
}

/* within 2 ulp */
static inline double sc_expm1_f64(double x) {
  double xc = x < -45.0 ? -45.0 : x;
  xc = xc > 710.0 ? 710.0 : xc;
  double t = xc * 1.4426950408889634074 + SC_ROUND64, n = t - SC_ROUND64;
  double r = (xc - n * SC_LN2_HI64) - n * SC_LN2_LO64;
  double p = sc_exp_poly64(r) * r * r + r;
  double h = sc_bits_f64((int64_t)(((uint64_t)sc_f64_bits(t) << 52) + 0x3fe0000000000000u));
  double y = (h * p + (h - 0.5)) * 2.0;
  return copysign(n == 0.0 ? p : y, x);
}

/* x = m 2^e with m in [sqrt 1/2, sqrt 2); returns m - 1. The exponent is made a double through the bits of 2^52 + e. */
static inline double sc_log_split64(double x, double *e) {
  int small = x < 2.2250738585072014e-308;
  uint64_t i = (uint64_t)sc_f64_bits(small ? x * 18014398509481984.0 : x);
  uint64_t k = (i - 0x3fe6a09e667f3bcdu + 0x4000000000000000u) >> 52;          /* e + 1024 */
  *e = sc_bits_f64((int64_t)(k | 0x4330000000000000u)) - (small ? 4503599627371574.0 : 4503599627371520.0);
  return sc_bits_f64((int64_t)(i - (k << 52) + 0x4000000000000000u)) - 1.0;
}

/* log(1 + f) + e ln 2 + extra by s = f / (2 + f): log(1 + f) = 2s + 2s^3/3 + 2s^5/5 … = f - f^2/2 + s (f^2/2 + R) */
static inline double sc_log_sum64(double f, double e, double extra) {
  double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f, p = 2.0 / 23.0;
  p = p * z + 2.0 / 21.0;
  p = p * z + 2.0 / 19.0;
  p = p * z + 2.0 / 17.0;
  p = p * z + 2.0 / 15.0;
  p = p * z + 2.0 / 13.0;
  p = p * z + 2.0 / 11.0;
  p = p * z + 2.0 / 9.0;
  p = p * z + 2.0 / 7.0;
  p = p * z + 2.0 / 5.0;
  p = p * z + 2.0 / 3.0;
  return e * SC_LN2_HI64 - ((half - (s * (half + p * z) + (e * SC_LN2_LO64 + extra))) - f);
}

static inline double sc_log_ends64(double x, double y) {
  y = x == INFINITY ? (double)INFINITY : y;
  y = x == 0 ? -(double)INFINITY : y;
  y = x < 0 ? (double)NAN : y;
  return x != x ? x : y;
}

/* within 1 ulp */
static inline double sc_log_f64(double x) {
  double e, f = sc_log_split64(x, &e);
  return sc_log_ends64(x, sc_log_sum64(f, e, 0));
}

/* within 2 ulp: see sc_log1p_f32 */
static inline double sc_log1p_f64(double x) {
  double u = 1.0 + x, c = x - (u - 1.0), e, f = sc_log_split64(u, &e);
  double y = sc_log_sum64(f, e, u > 1e300 ? 0.0 : c / u);
  return x == 0 ? x : sc_log_ends64(u, y);
}

/* within 3.1 ulp */
static inline double sc_tanh_f64(double x) {
  double t = sc_expm1_f64(-2.0 * fabs(x));
  return copysign(t / (t + 2.0), x);
}

/* within 3.1 ulp */
static inline double sc_sinh_f64(double x) {
  double a = fabs(x), t = sc_expm1_f64(a > 23.0 ? 23.0 : a), h = sc_exp_f64(a * 0.5);
  return copysign(a > 22.0 ? 0.5 * h * h : 0.5 * (t + t / (t + 1.0)), x);
}
static inline double sc_cosh_f64(double x) {
  double a = fabs(x), h = sc_exp_f64(a * 0.5), e = h * h;
  return a > 22.0 ? 0.5 * h * h : 0.5 * (e + 1.0 / e);
}

/* sqrt(x^2 + y^2) without overflow, within 2 ulp; an infinity wins over NaN */
static inline double sc_hypot_f64(double x, double y) {
  double a = fabs(x), b = fabs(y), big = a > b ? a : b, small = a > b ? b : a;
  double q = big == 0 ? 0.0 : small / big, r = big * sqrt(1.0 + q * q);
  r = (x != x) | (y != y) ? x + y : r;
  return (a == INFINITY) | (b == INFINITY) ? (double)INFINITY : r;
}

/* ---- circular functions, within 2 ulp for |x| <= SC_CIRCULAR_MAX64, above which loops call the C library. n pi/2 is taken away in three
** parts; the first two products are exact, and what rounding loses is kept in *low. ---- */
#define SC_CIRCULAR_MAX64 1.0e5
static inline double sc_circular64(double x, double *low, uint64_t *quadrant) {
  double t = x * 0.63661977236758134308 + SC_ROUND64, n = t - SC_ROUND64;
  double a = x - n * 1.57079632673412561417, b = n * 6.07710050630396597660e-11, r = a - b;
  double rest = ((a - r) - b) - n * 2.02226624879595063154e-21, y = r + rest;
  *low = (r - y) + rest;
  *quadrant = (uint64_t)sc_f64_bits(t);
  return y;
}
static inline double sc_sin_poly64(double r, double low) {
  double z = r * r, p = 1.0 / 355687428096000.0;
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return r + sc_madd_f64(p * z, r, low * (1.0 - 0.5 * z));
}
static inline double sc_cos_poly64(double r, double low) {
  double z = r * r, half = 0.5 * z, w = 1.0 - half, p = 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  return w + (((1.0 - w) - half) + sc_madd_f64(z * z, p, -(r * low)));
}
static inline double sc_sin_f64(double x) {
  uint64_t q;
  double low, r = sc_circular64(x, &low, &q), y = q & 1 ? sc_cos_poly64(r, low) : sc_sin_poly64(r, low);
  y = q & 2 ? -y : y;
  return x == 0 ? x : y;
}
static inline double sc_cos_f64(double x) {
  uint64_t q;
  double low, r = sc_circular64(x, &low, &q), y = q & 1 ? sc_sin_poly64(r, low) : sc_cos_poly64(r, low);
  return (q + 1) & 2 ? -y : y;
}
static inline double sc_tan_f64(double x) {
  uint64_t q;
  double low, r = sc_circular64(x, &low, &q), s = sc_sin_poly64(r, low), c = sc_cos_poly64(r, low);
  double y = q & 1 ? -c / s : s / c;
  return x == 0 ? x : y;
}
#endif
