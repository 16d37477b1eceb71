/* Special functions in double precision, worked out for one element at a time. Methods, chosen for being short and good to about
** 1e-13: power series where their terms do not cancel, asymptotic series beyond, Euler-Maclaurin for zeta, Newton's method for
** inverses, and the trapezoidal rule for the integral representations of the modified Bessel functions of the second kind (their
** integrands die out doubly exponentially, so that a few dozen points give every digit).
** Source: Abramowitz and Stegun, "Handbook of Mathematical Functions"; DLMF, https://dlmf.nist.gov. */
#include "special.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define PI 3.14159265358979323846
#define SQRT_2 1.41421356237309504880
#define SQRT_PI 1.77245385090551602730

double sc__lgamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

/* ---- digamma, zeta, polygamma ---- */

double sc__digamma(double x) {
  if (x == 0) return copysign(INFINITY, -x);
  if (x == INFINITY) return x;
  double y = 0;
  if (x < 0) {                                       /* psi(1 - x) - pi / tan(pi x) */
    double f = remainder(x, 1);                      /* exact also just below 0, where x - floor(x) rounds to 1 */
    if (f == 0 || x == -INFINITY) return NAN;
    y = -PI / tan(PI * f);
    x = 1 - x;
  }
  for (; x < 12; x++) y -= 1 / x;
  double z = 1 / (x * x);                            /* Bernoulli numbers over 2k */
  double s = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return y + log(x) - 0.5 / x - s;
}

/* Hurwitz's zeta, sum of (q + k)^-x. At q <= 0 as the same sum gives it; too far below (1e5 terms): NaN. */
double sc__zeta(double x, double q) {
  static const double B[] = {12, -720, 30240, -1209600, 47900160, -1307674368000 / 691.0, 74724249600.0, -10670622842880000.0 / 3617,
                             5109094217170944000.0 / 43867, -802857662698291200000.0 / 174611};   /* (2j)! / B2j */
  if (x == 1) return INFINITY;
  if (!(x > 1)) return NAN;
  if (q <= 0) {
    if (q == floor(q)) return INFINITY;
    if (x != floor(x) || q < -1e5) return NAN;
  }
  double s = 0;
  for (; q < 12; q++) s += pow(q, -x);
  double t = pow(q, -x);
  s += t * q / (x - 1) + 0.5 * t;
  double f = x, p = t / q;
  for (int j = 0; j < 10; j++) {
    double d = f * p / B[j];
    s += d;
    if (fabs(d) < 1e-17 * fabs(s)) break;
    f *= (x + 2 * j + 1) * (x + 2 * j + 2);
    p /= q * q;
  }
  return s;
}

/* pi^2 / sin^2(pi x) - psi'(1 - x). As in PyTorch pi x is rounded, so that whole numbers are near a pole, not at it. */
static double trigamma_below(double x, double pi_x) {
  double s = sin(pi_x);
  return PI * PI / (s * s) - sc__zeta(2, 1 - x);
}

float sc__polygamma_f32(float n, float x) {
  return (float)(n == 1 && x < 0 ? trigamma_below(x, (double)((float)PI * x)) : sc__polygamma(n, x));
}

double sc__polygamma(double n, double x) {
  if (n == 0) return sc__digamma(x);
  if (x == INFINITY) return 0;
  if (n == 1 && x < 0) return trigamma_below(x, PI * x);
  return (fmod(n, 2) == 0 ? -1 : 1) * exp(sc__lgamma(n + 1)) * sc__zeta(n + 1, x);
}

/* ---- the error function's relatives ---- */

/* First guess from log((1 - x)(1 + x)) (Winitzki 2008), good to 2e-3 relative */
static double erfinv_guess(double l) {
  double a = 0.147, b = 2 / (PI * a) + l / 2;
  return sqrt(sqrt(b * b - l / a) - b);
}

double sc__erfinv(double x) {
  double a = fabs(x);
  if (!(a < 1)) return a == 1 ? copysign(INFINITY, x) : NAN;
  if (a < 1e-9) return x * SQRT_PI / 2;
  double y = erfinv_guess(log1p(-a * a));
  for (int i = 0; i < 3; i++) {                      /* Halley's step; from the side that does not cancel */
    double e = a < 0.5 ? erf(y) - a : (1 - a) - erfc(y), u = e * SQRT_PI / 2 * exp(y * y);
    y -= u / (1 + y * u);
  }
  return copysign(y, x);
}

double sc__erfcx(double x) {
  if (x < 0) return x < -26.7 ? INFINITY : 2 * exp(x * x) - sc__erfcx(-x);
  if (x < 10) return exp(x * x) * erfc(x);
  double z = 1 / (2 * x * x), t = 1, s = 1;
  for (int k = 1; k < 20; k++) s += t *= -(2 * k - 1) * z;
  return s / (x * SQRT_PI);
}

double sc__ndtr(double x) { return 0.5 * erfc(-x / SQRT_2); }

double sc__log_ndtr(double x) {
  return x < -1 ? log(0.5 * sc__erfcx(-x / SQRT_2)) - 0.5 * x * x : log1p(-0.5 * erfc(x / SQRT_2));
}

double sc__ndtri(double p) {
  if (!(p > 0 && p < 1)) return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
  if (p > 0.25 && p < 0.75) return SQRT_2 * sc__erfinv(2 * p - 1);
  double z = 2 * (p < 0.5 ? p : 1 - p), y = erfinv_guess(log(z * (2 - z)));
  for (int i = 0; i < 5; i++) {                      /* Newton on log erfc y = log z */
    double c = sc__erfcx(y);
    y += (log(c) - y * y - log(z)) * c * SQRT_PI / 2;
  }
  return p < 0.5 ? -SQRT_2 * y : SQRT_2 * y;
}

/* ---- Bessel functions ---- */

/* e^-|x| I_v(|x|), v = 0 or 1: the power series has no cancellation, the asymptotic one is exact to 1e-17 from 20 on. */
static double bessel_ie(int v, double x) {
  x = fabs(x);
  if (x < 20) {
    double z = x * x / 4, t = v ? x / 2 : 1, s = t;
    for (int k = 1; k < 80 && t > 1e-18 * s; k++) s += t *= z / ((double)k * (k + v));
    return s * exp(-x);
  }
  double t = 1, s = 1;
  for (int k = 1; k < 30; k++) s += t *= -(4.0 * v * v - (2 * k - 1.0) * (2 * k - 1.0)) / (k * 8 * x);
  return x == INFINITY ? 0 : s / sqrt(2 * PI * x);
}

static double grown(double e, double x) { return x < 700 ? e * exp(x) : e * exp(x / 2) * exp(x / 2); }

double sc__i0e(double x) { return x != x ? x : bessel_ie(0, x); }
double sc__i1e(double x) { return x != x ? x : copysign(bessel_ie(1, x), x); }
double sc__i0(double x) { return x != x ? x : isinf(x) ? INFINITY : grown(bessel_ie(0, x), fabs(x)); }
double sc__i1(double x) { return x != x ? x : isinf(x) ? x : copysign(grown(bessel_ie(1, x), fabs(x)), x); }

/* e^x K_v(x) = integral over t >= 0 of exp(-x (cosh t - 1)) cosh(v t) */
static double bessel_ke(double v, double x) {
  if (!(x > 0)) return x == 0 ? INFINITY : NAN;
  if (x == INFINITY) return 0;
  double h = fmin(0.2, 0.65 / sqrt(x)), s = 0.5;
  for (int i = 1; i < 8000; i++) {
    double t = i * h, q = sinh(t / 2), d = 2 * x * q * q;
    if (d > 745) break;
    s += exp(-d) * cosh(v * t);
  }
  return s * h;
}

double sc__k0e(double x) { return bessel_ke(0, x); }
/* K1's integrand grows too large for tiny x, where K1 is 1 / x. */
double sc__k1e(double x) { return x > 0 && x < 1e-8 ? 1 / x : bessel_ke(1, x); }
double sc__k0(double x) { return bessel_ke(0, x) * exp(-x); }
double sc__k1(double x) { return sc__k1e(x) * exp(-x); }

double sc__bessel_j0(double x) { return j0(x); }
double sc__bessel_j1(double x) { return j1(x); }
double sc__bessel_y0(double x) { return x < 0 ? NAN : x == 0 ? -INFINITY : y0(x); }
double sc__bessel_y1(double x) { return x < 0 ? NAN : x == 0 ? -INFINITY : y1(x); }
double sc__spherical_j0(double x) { return isinf(x) ? 0 : fabs(x) < 0.01 ? 1 - x * x / 6 * (1 - x * x / 20) : sin(x) / x; }

/* sin(pi x) / (pi x), exactly 0 at whole numbers */
double sc__sinc(double x) {
  if (x == 0) return 1;
  if (isinf(x)) return NAN;
  double r = x - 2 * rint(x / 2);
  return (fabs(r) == 1 ? 0 : sin(PI * r)) / (PI * x);
}

/* Ai: its power series around 0, for x > 1 by K_1/3, for x < -8 the asymptotic series. */
static double airy_series(double x) {
  long double f = 1, g = x, tf = 1, tg = x, z = (long double)x * x * x;
  for (int k = 1; k < 200; k++) {
    tf *= z / ((3.0L * k - 1) * (3.0L * k));
    tg *= z / ((3.0L * k) * (3.0L * k + 1));
    f += tf;
    g += tg;
    if (fabsl(tf) + fabsl(tg) < 1e-22L) break;
  }
  return (double)(0.355028053887817239260L * f - 0.258819403792806798405L * g);
}

double sc__airy_ai(double x) {
  if (x != x || isinf(x)) return NAN;
  double a = fabs(x), z = 2.0 / 3 * a * sqrt(a);
  if (x > 1) return z > 745 ? 0 : sqrt(a / 3) / PI * bessel_ke(1.0 / 3, z) * exp(-z);
  if (x > -8) return airy_series(x);
  double u = 1, even = 1, odd = 0;
  for (int k = 1; k < 24; k++) {
    u *= (6 * k - 5.0) * (6 * k - 3.0) * (6 * k - 1.0) / ((2 * k - 1.0) * 216 * k * z);
    double t = (k / 2) % 2 ? -u : u;
    if (k % 2) odd += t; else even += t;
  }
  return (sin(z + PI / 4) * even - cos(z + PI / 4) * odd) / (SQRT_PI * sqrt(sqrt(a)));
}

/* ---- incomplete gamma ---- */

/* For large a: half of erfc and one term more of Temme's uniform expansion, whose next one is below 1e-11 from a = 1e5 on.
** Source: Temme 1979, "The asymptotic expansion of the incomplete gamma functions". */
static double gamma_part_large(double a, double x, bool upper) {
  double m = (x - a) / a;
  double d = fabs(m) < 1e-3 ? m * m * (0.5 - m * (1.0 / 3 - m * (0.25 - m * (0.2 - m / 6)))) : m - log1p(m);     /* eta^2 / 2 */
  double eta = (m < 0 ? -1 : 1) * sqrt(2 * d), c = fabs(eta) < 1e-3 ? -1.0 / 3 + eta * (1.0 / 12 - eta * 2 / 135) : 1 / m - 1 / eta;
  double rest = exp(-a * d) / sqrt(2 * PI * a) * c;
  return upper ? 0.5 * erfc(eta * sqrt(a / 2)) + rest : 0.5 * erfc(-eta * sqrt(a / 2)) - rest;
}

/* The lower one by its series (x < a + 1) or 1 - the upper one by its continued fraction (Lentz's method). */
static double gamma_part(double a, double x, bool upper) {
  if (!(x >= 0) || !(a >= 0)) return NAN;
  if (a == 0) return x > 0 ? (upper ? 0 : 1) : NAN;
  if (isinf(a)) return isinf(x) ? NAN : (upper ? 1 : 0);
  if (x == 0 || isinf(x)) return (x == 0) == upper ? 1 : 0;
  if (a > 1e5) return gamma_part_large(a, x, upper);
  double front = exp(a * log(x) - x - sc__lgamma(a));
  if (x < a + 1) {
    double t = 1 / a, s = t;
    for (int k = 1; k < 1000000 && t > 1e-17 * s; k++) s += t *= x / (a + k);
    return upper ? 1 - front * s : front * s;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, h = d;
  for (int k = 1; k < 1000000; k++) {
    double n = -k * (k - a);
    b += 2;
    d = n * d + b; d = fabs(d) < 1e-300 ? 1e300 : 1 / d;
    c = b + n / c; c = fabs(c) < 1e-300 ? 1e-300 : c;
    double step = c * d;
    h *= step;
    if (fabs(step - 1) < 1e-16) break;
  }
  return upper ? front * h : 1 - front * h;
}

double sc__igamma(double a, double x) { return gamma_part(a, x, false); }
double sc__igammac(double a, double x) { return gamma_part(a, x, true); }

/* ---- orthogonal polynomials of degree n (towards zero): their three-term recurrences ---- */
enum { MAX_DEGREE = 10000000 };   /* beyond: NaN */

static bool degree(double x, double n, double first, int64_t *k, double *y) {
  *y = x != x || n != n || n > MAX_DEGREE ? NAN : n <= -1 ? 0 : n < 1 ? 1 : first;
  if (*y != *y || n < 2) return false;
  *k = (int64_t)n;
  return true;
}
#define RECURRENCE(name, first, next) \
  double sc__##name(double x, double n) { \
    int64_t m; \
    double y; \
    if (!degree(x, n, first, &m, &y)) return y; \
    double p = 1, q = first; \
    for (int64_t k = 1; k < m && isfinite(q); k++) { double r = next; p = q; q = r; } \
    return q; \
  }
RECURRENCE(chebyshev_t, x, 2 * x * q - p)
RECURRENCE(chebyshev_u, 2 * x, 2 * x * q - p)
RECURRENCE(hermite_h, 2 * x, 2 * x * q - 2 * (double)k * p)
RECURRENCE(hermite_he, x, x * q - (double)k * p)
RECURRENCE(laguerre_l, 1 - x, (((double)(2 * k + 1) - x) * q - (double)k * p) / (double)(k + 1))
RECURRENCE(legendre_p, x, ((double)(2 * k + 1) * x * q - (double)k * p) / (double)(k + 1))
#undef RECURRENCE
