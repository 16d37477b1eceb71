/* Numbers of 8, 4 and 2 bits, as OCP's "8-bit Floating Point" and "Microscaling Formats", ONNX and PyTorch have them. A float is sign, exponent and
** mantissa; "fn": no infinities, one NaN; "uz": no -0, whose code is the NaN; e8m0: powers of two without a sign. They are read and written
** by arithmetic in double, which holds all of them and every float exactly. */
#include "tensor.h"

#include <math.h>

typedef struct narrow { int8_t mantissa, bias; bool infinite, uz; uint8_t nan, most; } narrow;   /* nan, most: codes of NaN (0: none) and the largest */

static const narrow *format_of(sc_dtype d) {
  static const narrow E4M3FN = {3, 7, false, false, 0x7f, 0x7e}, E4M3FNUZ = {3, 8, false, true, 0x80, 0x7f}, E5M2 = {2, 15, true, false, 0x7f, 0x7b},
    E5M2FNUZ = {2, 16, false, true, 0x80, 0x7f}, E2M1 = {1, 1, false, false, 0, 0x7};
  switch (d) {
    case SC_FLOAT8E4M3FN: return &E4M3FN;
    case SC_FLOAT8E4M3FNUZ: return &E4M3FNUZ;
    case SC_FLOAT8E5M2: return &E5M2;
    case SC_FLOAT8E5M2FNUZ: return &E5M2FNUZ;
    default: return &E2M1;
  }
}

/* The number of a code without its sign. */
static double magnitude(const narrow *f, int code) {
  int e = code >> f->mantissa, m = code & ((1 << f->mantissa) - 1);
  return e ? ldexp((1 << f->mantissa) + m, e - f->bias - f->mantissa) : ldexp(m, 1 - f->bias - f->mantissa);
}

double sc__narrow_load(sc_dtype d, uint8_t bits) {
  if (sc__category(d) == SC_CAT_INT) return d == SC_UINT4 || d == SC_UINT2 ? bits : (double)(int8_t)bits;
  if (d == SC_FLOAT8E8M0) return bits == 0xff ? (double)NAN : ldexp(1, bits - 127);
  const narrow *f = format_of(d);
  int sign = d == SC_FLOAT4E2M1 ? 8 : 0x80, code = bits & (sign - 1);
  double v = code > f->most || (f->uz && bits == f->nan) ? (f->infinite && code == f->most + 1 ? (double)INFINITY : (double)NAN) : magnitude(f, code);
  return bits & sign ? -v : v;
}

/* The nearest power of two, halves up; by the bits of a float, as others do it: signs are dropped, infinities become NaN. */
static uint8_t power_of_two(double v) {
  union { float f; uint32_t u; } x = {(float)v};
  uint32_t e = x.u >> 23 & 0xff, m = x.u & 0x7fffff;
  if (e == 0xff) return 0xff;
  return (uint8_t)(e + (m > 0x400000 || (m == 0x400000 && e > 0)));
}

uint8_t sc__narrow_code(sc_dtype d, int bits) {
  int top = d == SC_INT4 ? 8 : d == SC_INT2 ? 2 : 0;    /* the sign, repeated above */
  return (uint8_t)(bits & top ? bits - 2 * top : bits);
}

uint8_t sc__narrow_store(sc_dtype d, double v) {
  if (sc__category(d) == SC_CAT_INT) return sc__narrow_code(d, (int)(sc__f64_to_i64(v) & (d == SC_INT4 || d == SC_UINT4 ? 15 : 3)));   /* wraps */
  if (d == SC_FLOAT8E8M0) return power_of_two(v);
  const narrow *f = format_of(d);
  uint8_t sign = signbit(v) ? (d == SC_FLOAT4E2M1 ? 8 : 0x80) : 0;
  double a = fabs(v);
  if (a != a) return f->nan ? (uint8_t)(f->nan | (f->uz ? 0 : sign)) : 8;         /* float4e2m1 has no NaN: -0 */
  int e = 0;
  if (a > 0 && a <= 1e300) { frexp(a, &e); e--; }
  if (a > 1e300 || e < 1 - f->bias) e = a > 1e300 ? 1000 : 1 - f->bias;
  double step = ldexp(1, e - f->mantissa), r = a > 1e300 ? a : rint(a / step) * step;
  if (r > magnitude(f, f->most)) return f->infinite ? (uint8_t)((f->most + 1) | sign) : f->uz ? f->nan : f->nan ? (uint8_t)(f->nan | sign) : (uint8_t)(f->most | sign);
  int code = (int)(r / step);                            /* counted in steps: 2^mantissa and more is a normal number */
  if (code >> f->mantissa > 1) { code >>= 1; e++; }      /* rounded up to a power of two */
  if (code >> f->mantissa) code += (e + f->bias - 1) << f->mantissa;
  return (uint8_t)(code | (f->uz && code == 0 ? 0 : sign));
}
