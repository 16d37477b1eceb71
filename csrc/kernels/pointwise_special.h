/* Rows of the pointwise table: special functions. See pointwise_table.h. */

SC_PW_ROW(erf, 1, FLOAT, 0, F, VECTOR32, 0.7f, M(erf)(a), 0, "erf(x)", SC_OP_INPLACE, "Error function.", GRAD("dy * 1.1283791670955125739 * exp(-square(x))"))
SC_PW_ROW(erfc, 1, FLOAT, 0, F, VEC32, 1.2f, M(erfc)(a), 0, "erfc(x)", SC_OP_INPLACE, "1 - erf(x), exact for large x.", GRAD("dy * -1.1283791670955125739 * exp(-square(x))"))
SC_PW_ROW(erfinv, 1, FLOAT, 0, F, ONE, 120, M(erfinv)(a), 0, "erfinv(x)", SC_OP_INPLACE, "The inverse of erf; NaN outside [-1, 1].", GRAD("dy * 0.88622692545275801365 * exp(square(y))"))
SC_PW_ROW(erfcx, 1, FLOAT, 0, F, ONE, 40, M(erfcx)(a), 0, "special.erfcx(x)", 0, "exp(x^2) * erfc(x).", GRAD("dy * (2 * x * y - 1.1283791670955125739)"))
SC_PW_ROW(lgamma, 1, FLOAT, 0, F, ONE, 30, M(lgamma)(a), 0, "lgamma(x)", SC_OP_INPLACE, "log |gamma(x)|.", GRAD("dy * digamma(x)"))
SC_PW_ROW(digamma, 1, FLOAT, 0, F, ONE, 40, M(digamma)(a), 0, "digamma(x)", SC_OP_INPLACE, "The derivative of lgamma.", GRAD("dy * polygamma(1, x)"))
SC_PW_ROW(polygamma, 1, FLOAT, 0, F, ONE, 200, M(polygamma)(P(0), a), 0, "polygamma(n: int, x)", SC_OP_FUNCTION, "The n-th derivative of digamma. As a method: x:polygamma(n).",
          .backward = sc__polygamma_backward, .compose = sc__polygamma_compose)
SC_PW_ROW(zeta, 2, FLOAT, 0, F, ONE, 200, M(zeta)(a, b), 0, "special.zeta(x, other)", 0, "Hurwitz's zeta function: the sum over k >= 0 of (k + other)^-x.",
          GRAD(NULL, "-dy * x * special.zeta(x + 1, other)"))
SC_PW_ROW(sinc, 1, FLOAT, 0, F, ONE, 20, M(sinc)(a), 0, "sinc(x)", SC_OP_INPLACE, "sin(pi x) / (pi x), 1 at 0.", GRAD("dy * sinc_slope(x)"))
SC_PW_ROW(sinc_slope, 1, FLOAT, 0, F, ONE, 30, M(sinc_slope)(a), 0, "sinc_slope(x)", SC_OP_INTERNAL, "The derivative of sinc.",
          GRAD("dy * where(eq(x, 0), -3.2898681336964528729, -9.8696044010893586188 * sinc(x) - 2 * y / where(eq(x, 0), 1, x))"))
SC_PW_ROW(entr, 1, FLOAT, 0, F, VEC32, 0.7f, M(entr)(a), 0, "special.entr(x)", 0, "-x log x, 0 at 0, -infinity below.", GRAD("dy * (-1 - log(x))"))
SC_PW_ROW(ndtr, 1, FLOAT, 0, F, ONE, 20, M(ndtr)(a), 0, "special.ndtr(x)", 0, "The share of the normal distribution below x.", GRAD("dy * 0.39894228040143267794 * exp(-0.5 * square(x))"))
SC_PW_ROW(ndtri, 1, FLOAT, 0, F, ONE, 200, M(ndtri)(a), 0, "special.ndtri(x)", 0, "The inverse of ndtr.", GRAD("dy * 2.5066282746310005024 * exp(0.5 * square(y))"))
SC_PW_ROW(log_ndtr, 1, FLOAT, 0, F, ONE, 50, M(log_ndtr)(a), 0, "special.log_ndtr(x)", 0, "log(ndtr(x)), exact for small x.",
          GRAD("dy * 0.79788456080286535588 / special.erfcx(x * -0.70710678118654752440)"))
SC_PW_ROW(i0, 1, FLOAT, 0, F, ONE, 60, M(i0)(a), 0, "i0(x)", SC_OP_INPLACE, "Modified Bessel function of the first kind, order 0.", GRAD("dy * special.i1(x)"))
SC_PW_ROW(i0e, 1, FLOAT, 0, F, ONE, 60, M(i0e)(a), 0, "special.i0e(x)", 0, "exp(-|x|) * i0(x).", GRAD("dy * (special.i1e(x) - sign(x) * y)"))
SC_PW_ROW(i1, 1, FLOAT, 0, F, ONE, 60, M(i1)(a), 0, "special.i1(x)", 0, "Modified Bessel function of the first kind, order 1.",
          GRAD("dy * where(eq(x, 0), 0.5, i0(x) - y / where(eq(x, 0), 1, x))"))
SC_PW_ROW(i1e, 1, FLOAT, 0, F, ONE, 60, M(i1e)(a), 0, "special.i1e(x)", 0, "exp(-|x|) * i1(x).",
          GRAD("dy * where(eq(x, 0), 0.5, special.i0e(x) - y * (sign(x) + 1 / where(eq(x, 0), 1, x)))"))
SC_PW_ROW(modified_bessel_i0, 1, FLOAT, 0, F, ONE, 60, M(i0)(a), 0, "special.modified_bessel_i0(x)", 0, "The modified Bessel function of the first kind and order 0, as i0.", GRAD("dy * special.i1(x)"))
SC_PW_ROW(modified_bessel_i1, 1, FLOAT, 0, F, ONE, 60, M(i1)(a), 0, "special.modified_bessel_i1(x)", 0, "The modified Bessel function of the first kind and order 1, as i1.", GRAD("dy * where(eq(x, 0), 0.5, i0(x) - y / where(eq(x, 0), 1, x))"))
SC_PW_ROW(modified_bessel_k0, 1, FLOAT, 0, F, ONE, 500, M(k0)(a), 0, "special.modified_bessel_k0(x)", 0, "Modified Bessel function of the second kind, order 0; NaN below 0.",
          GRAD("-dy * special.modified_bessel_k1(x)"))
SC_PW_ROW(modified_bessel_k1, 1, FLOAT, 0, F, ONE, 500, M(k1)(a), 0, "special.modified_bessel_k1(x)", 0, "Modified Bessel function of the second kind, order 1; NaN below 0.",
          GRAD("-dy * (special.modified_bessel_k0(x) + y / x)"))
SC_PW_ROW(scaled_modified_bessel_k0, 1, FLOAT, 0, F, ONE, 500, M(k0e)(a), 0, "special.scaled_modified_bessel_k0(x)", 0, "exp(x) * modified_bessel_k0(x).",
          GRAD("dy * (y - special.scaled_modified_bessel_k1(x))"))
SC_PW_ROW(scaled_modified_bessel_k1, 1, FLOAT, 0, F, ONE, 500, M(k1e)(a), 0, "special.scaled_modified_bessel_k1(x)", 0, "exp(x) * modified_bessel_k1(x).",
          GRAD("dy * (y - special.scaled_modified_bessel_k0(x) - y / x)"))
SC_PW_ROW(bessel_j0, 1, FLOAT, 0, F, ONE, 50, M(bessel_j0)(a), 0, "special.bessel_j0(x)", 0, "Bessel function of the first kind, order 0.", GRAD("-dy * special.bessel_j1(x)"))
SC_PW_ROW(bessel_j1, 1, FLOAT, 0, F, ONE, 50, M(bessel_j1)(a), 0, "special.bessel_j1(x)", 0, "Bessel function of the first kind, order 1.",
          GRAD("dy * where(eq(x, 0), 0.5, special.bessel_j0(x) - y / where(eq(x, 0), 1, x))"))
SC_PW_ROW(bessel_y0, 1, FLOAT, 0, F, ONE, 50, M(bessel_y0)(a), 0, "special.bessel_y0(x)", 0, "Bessel function of the second kind, order 0; NaN below 0.", GRAD("-dy * special.bessel_y1(x)"))
SC_PW_ROW(bessel_y1, 1, FLOAT, 0, F, ONE, 50, M(bessel_y1)(a), 0, "special.bessel_y1(x)", 0, "Bessel function of the second kind, order 1; NaN below 0.",
          GRAD("dy * (special.bessel_y0(x) - y / x)"))
SC_PW_ROW(spherical_bessel_j0, 1, FLOAT, 0, F, ONE, 20, M(spherical_j0)(a), 0, "special.spherical_bessel_j0(x)", 0, "sin(x) / x, 1 at 0.",
          GRAD("dy * where(eq(x, 0), 0, (cos(x) - y) / where(eq(x, 0), 1, x))"))
SC_PW_ROW(airy_ai, 1, FLOAT, 0, F, ONE, 300, M(airy_ai)(a), 0, "special.airy_ai(x)", 0, "Airy's function Ai.", NOGRAD("Ai' is not among the ops"))
SC_PW_ROW(igamma, 2, SAME, 0, F, ONE, 300, M(igamma)(a, b), 0, "igamma(x, other)", SC_OP_INPLACE, "The regularised lower incomplete gamma function P(x, other); floats only.",
          GRAD(NULL, "dy * exp((x - 1) * log(other) - other - lgamma(x))"))
SC_PW_ROW(igammac, 2, SAME, 0, F, ONE, 300, M(igammac)(a, b), 0, "igammac(x, other)", SC_OP_INPLACE, "The regularised upper incomplete gamma function Q(x, other); floats only.",
          GRAD(NULL, "-dy * exp((x - 1) * log(other) - other - lgamma(x))"))
SC_PW_ROW(chebyshev_polynomial_t, 2, FLOAT, 0, F, ONE, 50, M(chebyshev_t)(a, b), 0, "special.chebyshev_polynomial_t(x, n)", 0, "Chebyshev's polynomial of the first kind, of degree n.", NOGRAD("as in PyTorch"))
SC_PW_ROW(chebyshev_polynomial_u, 2, FLOAT, 0, F, ONE, 50, M(chebyshev_u)(a, b), 0, "special.chebyshev_polynomial_u(x, n)", 0, "Chebyshev's polynomial of the second kind, of degree n.", NOGRAD("as in PyTorch"))
SC_PW_ROW(hermite_polynomial_h, 2, FLOAT, 0, F, ONE, 50, M(hermite_h)(a, b), 0, "special.hermite_polynomial_h(x, n)", 0, "Hermite's polynomial of degree n, as physicists write it.", NOGRAD("as in PyTorch"))
SC_PW_ROW(hermite_polynomial_he, 2, FLOAT, 0, F, ONE, 50, M(hermite_he)(a, b), 0, "special.hermite_polynomial_he(x, n)", 0, "Hermite's polynomial of degree n, as statisticians write it.", NOGRAD("as in PyTorch"))
SC_PW_ROW(laguerre_polynomial_l, 2, FLOAT, 0, F, ONE, 50, M(laguerre_l)(a, b), 0, "special.laguerre_polynomial_l(x, n)", 0, "Laguerre's polynomial of degree n.", NOGRAD("as in PyTorch"))
SC_PW_ROW(legendre_polynomial_p, 2, FLOAT, 0, F, ONE, 50, M(legendre_p)(a, b), 0, "special.legendre_polynomial_p(x, n)", 0, "Legendre's polynomial of degree n.", NOGRAD("as in PyTorch"))
