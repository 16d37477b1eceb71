/* Special functions in double precision, one element at a time; special.c says how each is computed. */
#ifndef SC_SPECIAL_H
#define SC_SPECIAL_H

#define SC_SPECIAL_FUNCTIONS \
  SC_SPECIAL_1(lgamma) SC_SPECIAL_1(digamma) SC_SPECIAL_2(zeta) SC_SPECIAL_1(erfinv) SC_SPECIAL_1(erfcx) \
  SC_SPECIAL_1(ndtri) SC_SPECIAL_1(ndtr) SC_SPECIAL_1(log_ndtr) SC_SPECIAL_1(i0) SC_SPECIAL_1(i0e) SC_SPECIAL_1(i1) SC_SPECIAL_1(i1e) \
  SC_SPECIAL_1(k0) SC_SPECIAL_1(k1) SC_SPECIAL_1(k0e) SC_SPECIAL_1(k1e) SC_SPECIAL_1(bessel_j0) SC_SPECIAL_1(bessel_j1) \
  SC_SPECIAL_1(bessel_y0) SC_SPECIAL_1(bessel_y1) SC_SPECIAL_1(spherical_j0) SC_SPECIAL_1(airy_ai) SC_SPECIAL_1(sinc) \
  SC_SPECIAL_2(igamma) SC_SPECIAL_2(igammac) SC_SPECIAL_2(chebyshev_t) SC_SPECIAL_2(chebyshev_u) SC_SPECIAL_2(hermite_h) \
  SC_SPECIAL_2(hermite_he) SC_SPECIAL_2(laguerre_l) SC_SPECIAL_2(legendre_p)

#define SC_SPECIAL_1(f) double sc__##f(double x);
#define SC_SPECIAL_2(f) double sc__##f(double x, double y);
SC_SPECIAL_FUNCTIONS
#undef SC_SPECIAL_1
#undef SC_SPECIAL_2
double sc__polygamma(double n, double x);
float sc__polygamma_f32(float n, float x);

#endif
