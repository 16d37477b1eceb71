/* The pointwise ops, one row each: everything about them is decided here.
**
**   SC_PW_ROW(name, arity, rule, flags, types, isa, cost, float expression, integer expression, signature, op flags, help, gradient)
**
** Expressions are over a, b, c (the operands' elements, of type T; with rule PICK a is a truth value) and P(i), the i-th attribute.
** M(f) is our f for T (kernels/math.h). Integer expressions compute in uint64_t (so that overflow wraps); sa, sb, sc are the
** same operands with their sign, PI(i) and PS(i) the attribute, MI(f) our f for signed or unsigned numbers.
** rule, flags: see kernels.h.
** types: F floats, I integers (write 0 for the other expression), B bools by the integer expression over bytes of 0 and 1; without
** B bools are computed as int64, and whatever is not 0 is true.
** isa: VEC stamps a loop per instruction set, VEC32 only in float32, VECTOR and VECTOR32 the same, but float32 is the function of that
** name in vector_math.h; WIDE and QUOTIENT are VEC for functions whose large arguments the plain version must take, COPIES for
** those that vectorise only over packed operands, ONE stamps a single loop (for calls that do not vectorise).
** cost: about, nanoseconds an element.
** GRAD: a formula per tensor input (see autodiff/formula.c); NOGRAD: why there is none. In formulas the values of the branch of
** `where` that is not taken must stay finite, or the derivative of the derivative makes 0 * infinity of them.
** No include guard: it is included once per thing stamped from it. Activations, special functions and losses have files of their own. */

/* ---- arithmetic ---- */
SC_PW_ROW(add, 2, SAME, SC_PW_ALPHA, FIB, VEC, 0.3f, a + P(0) * b, a + PI(0) * b, "add(x, other, alpha: number = 1)", SC_OP_INPLACE,
          "x + alpha * other, broadcast.\nExample: sc.tensor{1, 2}:add(sc.tensor{3, 4})", GRAD("dy", "dy * alpha"))
SC_PW_ROW(sub, 2, SAME, SC_PW_ALPHA | SC_PW_NO_BOOLS, FI, VEC, 0.3f, a - P(0) * b, a - PI(0) * b, "sub(x, other, alpha: number = 1)", SC_OP_INPLACE,
          "x - alpha * other, broadcast. Bools cannot be subtracted.", GRAD("dy", "-dy * alpha"))
SC_PW_ROW(rsub, 2, SAME, SC_PW_ALPHA | SC_PW_NO_BOOLS, FI, VEC, 0.3f, b - P(0) * a, b - PI(0) * a, "rsub(x, other, alpha: number = 1)", 0,
          "other - alpha * x, broadcast.", GRAD("-dy * alpha", "dy"))
SC_PW_ROW(mul, 2, SAME, 0, FIB, VEC, 0.3f, a * b, a * b, "mul(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "x * other, broadcast.",
          GRAD("dy * other", "dy * x"))
SC_PW_ROW(div, 2, FLOAT, 0, F, VEC, 0.4f, a / b, 0, "div(x, other, rounding_mode: str?)", SC_OP_INPLACE,
          "x / other, broadcast; integers give floats.\nrounding_mode \"floor\" rounds down, \"trunc\" towards zero, and keeps integers.\n"
          "Example: sc.tensor{7}:div(sc.tensor{-2}, {rounding_mode = \"floor\"})", GRAD("dy / other", "-dy * y / other"), .compose = sc__div_compose)
SC_PW_ROW(floor_divide, 2, SAME, SC_PW_NO_BOOL | SC_PW_NO_ZERO, FI, QUOTIENT, 1, M(floordiv)(a, b), MI(floordiv)(sa, sb), "floor_divide(x, other)", SC_OP_INPLACE,
          "x / other rounded down. Integers: other = 0 is an error, and the smallest number by -1 wraps.", GRAD("zero_of(dy)", "zero_of(dy)"))
SC_PW_ROW(trunc_divide, 2, SAME, SC_PW_NO_BOOL | SC_PW_NO_ZERO, FI, ONE, 1, M(trunc)(a / b), MI(div)(sa, sb), "trunc_divide(x, other)", SC_OP_INPLACE | SC_OP_INTERNAL,
          "x / other rounded towards zero.", GRAD("zero_of(dy)", "zero_of(dy)"))
SC_PW_ROW(remainder, 2, SAME, SC_PW_NO_BOOL | SC_PW_NO_ZERO, FI, QUOTIENT, 1, M(remainder)(a, b), MI(remainder)(sa, sb), "remainder(x, other)", SC_OP_INPLACE,
          "x - other * floor(x / other): it has other's sign, as Lua's %. Integers: other = 0 is an error.", GRAD("dy", "-dy * floor_divide(x, other)"))
SC_PW_ROW(fmod, 2, SAME, SC_PW_NO_BOOL | SC_PW_NO_ZERO, FI, QUOTIENT, 1, M(fmod)(a, b), MI(mod)(sa, sb), "fmod(x, other)", SC_OP_INPLACE,
          "x - other * trunc(x / other): it has x's sign. Integers: other = 0 is an error.", GRAD("dy", "-dy * trunc_divide(x, other)"))
SC_PW_ROW(neg, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, -a, 0 - a, "neg(x)", SC_OP_INPLACE, "-x. Not for bools: logical_not.", GRAD("-dy"))
SC_PW_ROW(abs, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, M(fabs)(a), MI(abs)(sa), "abs(x)", SC_OP_INPLACE, "Absolute value; the gradient at 0 is 0.",
          GRAD("dy * sign(x)"))
SC_PW_ROW(sign, 1, SAME, 0, FIB, VEC, 0.3f, (T)(a > 0) - (T)(a < 0), MI(sign)(sa), "sign(x)", SC_OP_INPLACE, "1, 0 or -1; 0 for NaN.",
          GRAD("zero_of(dy)"))
SC_PW_ROW(square, 1, SAME, SC_PW_BOOL_INT, FI, VEC, 0.3f, a * a, a * a, "square(x)", SC_OP_INPLACE, "x * x.", GRAD("dy * 2 * x"))
SC_PW_ROW(cube, 1, SAME, 0, F, VEC, 0.3f, a * a * a, 0, "cube(x)", SC_OP_INTERNAL, "x to the power of 3.", GRAD("dy * 3 * square(x)"))
SC_PW_ROW(inverse_square, 1, SAME, 0, F, VEC, 0.4f, 1 / (a * a), 0, "inverse_square(x)", SC_OP_INTERNAL, "x to the power of -2.", GRAD("dy * -2 * y / x"))
SC_PW_ROW(reciprocal, 1, FLOAT, 0, F, VEC, 0.4f, 1 / a, 0, "reciprocal(x)", SC_OP_INPLACE, "1 / x.", GRAD("-dy * y * y"))
SC_PW_ROW(sqrt, 1, FLOAT, 0, F, VEC, 0.4f, M(sqrt)(a), 0, "sqrt(x)", SC_OP_INPLACE, "Square root; NaN below 0.", GRAD("dy / (2 * y)"))
SC_PW_ROW(rsqrt, 1, FLOAT, 0, F, VEC, 0.6f, 1 / M(sqrt)(a), 0, "rsqrt(x)", SC_OP_INPLACE, "1 / sqrt(x).", GRAD("-0.5 * dy * y * y * y"))
SC_PW_ROW(pow, 2, SAME, SC_PW_NO_BOOL, FI, COPIES, 2, M(pow)(a, b), MI(pow)(a, (int64_t)b), "pow(x, exponent)", SC_OP_INPLACE,
          "x to the power of exponent, broadcast. An integer to a negative whole number is an error.\nExample: sc.tensor{1.0, 2.0} ^ 2",
          GRAD("dy * (exponent * pow(where(eq(exponent, 0), 1, x), exponent - 1))",
               "dy * y * log(where(logical_and(eq(x, 0), ge(exponent, 0)), 1, x))"), .compose = sc__pow_compose)
SC_PW_ROW(addcmul, 3, SAME, SC_PW_NO_BOOL, FI, VEC, 0.4f, a + P(0) * b * c, a + PI(0) * b * c, "addcmul(x, tensor1, tensor2, value: number = 1)", SC_OP_INPLACE,
          "x + value * tensor1 * tensor2.", GRAD("dy", "dy * (tensor2 * value)", "dy * (tensor1 * value)"))
SC_PW_ROW(addcdiv, 3, SAME, 0, F, VEC, 0.5f, a + P(0) * (b / c), 0, "addcdiv(x, tensor1, tensor2, value: number = 1)", SC_OP_INPLACE,
          "x + value * tensor1 / tensor2; floats only.", GRAD("dy", "dy * value / tensor2", "-dy * value * tensor1 / (tensor2 * tensor2)"))
SC_PW_ROW(lerp, 3, SAME, 0, F, VEC, 0.4f, M(lerp)(a, b, c), 0, "lerp(x, end, weight)", SC_OP_INPLACE,
          "x + weight * (end - x), exact at both ends; weight is a number or a tensor.", GRAD("dy * (1 - weight)", "dy * weight", "dy * (end - x)"), .compose = sc__lerp_compose)
SC_PW_ROW(gcd, 2, SAME, SC_PW_NO_BOOL, I, ONE, 30, 0, sc_gcd(MI(abs)(sa), MI(abs)(sb)), "gcd(x, other)", SC_OP_INPLACE, "Greatest common divisor of integers.",
          NOGRAD("of integers"))
SC_PW_ROW(lcm, 2, SAME, SC_PW_NO_BOOL, I, ONE, 30, 0, sc_lcm(MI(abs)(sa), MI(abs)(sb)), "lcm(x, other)", SC_OP_INPLACE, "Least common multiple of integers.",
          NOGRAD("of integers"))
SC_PW_ROW(zero_of, 1, SAME, 0, FI, VEC, 0.3f, 0, 0, "zero_of(x)", SC_OP_INTERNAL, "Zeros in x's shape: the gradient of what is piecewise constant.", GRAD("zero_of(dy)"))

/* ---- rounding ---- */
SC_PW_ROW(ceil, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, M(ceil)(a), a, "ceil(x)", SC_OP_INPLACE, "Rounded up.", GRAD("zero_of(dy)"))
SC_PW_ROW(floor, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, M(floor)(a), a, "floor(x)", SC_OP_INPLACE, "Rounded down.", GRAD("zero_of(dy)"))
SC_PW_ROW(trunc, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, M(trunc)(a), a, "trunc(x)", SC_OP_INPLACE, "Rounded towards zero.", GRAD("zero_of(dy)"))
SC_PW_ROW(round, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, M(rint)(a), a, "round(x, decimals: int = 0)", SC_OP_INPLACE,
          "Rounded to the nearest whole number, or to that many decimals (negative: tens, hundreds …); ties go to the even one.", GRAD("zero_of(dy)"),
          .compose = sc__round_compose)
SC_PW_ROW(round_decimals, 1, SAME, 0, F, ONE, 30, M(decimals)(a, i0), 0, "round_decimals(x, decimals: int)", SC_OP_INPLACE | SC_OP_INTERNAL,
          "Rounded to that many decimals.", GRAD("zero_of(dy)"))
SC_PW_ROW(frac, 1, SAME, 0, F, VEC, 0.3f, a - M(trunc)(a), 0, "frac(x)", SC_OP_INPLACE, "x - trunc(x); floats only.", GRAD("dy"))

/* ---- exponentials and logarithms ---- */
SC_PW_ROW(exp, 1, FLOAT, 0, F, VECTOR, 0.5f, M(exp)(a), 0, "exp(x)", SC_OP_INPLACE, "e to the power of x.", GRAD("dy * y"))
SC_PW_ROW(exp2, 1, FLOAT, 0, F, VEC32, 0.5f, M(exp2)(a), 0, "exp2(x)", SC_OP_INPLACE, "2 to the power of x.", GRAD("dy * y * 0.69314718055994530942"))
SC_PW_ROW(expm1, 1, FLOAT, 0, F, VEC, 0.5f, M(expm1)(a), 0, "expm1(x)", SC_OP_INPLACE, "exp(x) - 1, exact near 0.", GRAD("dy * (y + 1)"))
SC_PW_ROW(log, 1, FLOAT, 0, F, VEC, 0.6f, M(log)(a), 0, "log(x)", SC_OP_INPLACE, "Natural logarithm.", GRAD("dy / x"))
SC_PW_ROW(log2, 1, FLOAT, 0, F, VEC32, 0.6f, M(log2)(a), 0, "log2(x)", SC_OP_INPLACE, "Logarithm to the base 2.", GRAD("dy / (x * 0.69314718055994530942)"))
SC_PW_ROW(log10, 1, FLOAT, 0, F, VEC32, 0.6f, M(log10)(a), 0, "log10(x)", SC_OP_INPLACE, "Logarithm to the base 10.", GRAD("dy / (x * 2.3025850929940456840)"))
SC_PW_ROW(log1p, 1, FLOAT, 0, F, VEC, 0.7f, M(log1p)(a), 0, "log1p(x)", SC_OP_INPLACE, "log(1 + x), exact near 0.", GRAD("dy / (x + 1)"))
SC_PW_ROW(logaddexp, 2, SAME, 0, F, VEC, 1, M(logaddexp)(a, b), 0, "logaddexp(x, other)", 0, "log(exp(x) + exp(other)) without overflow; floats only.",
          GRAD("where(isneginf(y), 0, dy * sigmoid(where(isneginf(y), 0, x - other)))", "where(isneginf(y), 0, dy * sigmoid(where(isneginf(y), 0, other - x)))"))
SC_PW_ROW(logaddexp2, 2, SAME, 0, F, VEC32, 1, M(logaddexp2)(a, b), 0, "logaddexp2(x, other)", 0, "log2(2^x + 2^other) without overflow; floats only.",
          GRAD("where(isneginf(y), 0, dy * sigmoid(0.69314718055994530942 * where(isneginf(y), 0, x - other)))",
               "where(isneginf(y), 0, dy * sigmoid(0.69314718055994530942 * where(isneginf(y), 0, other - x)))"))
SC_PW_ROW(xlogy, 2, FLOAT, 0, F, VEC, 0.7f, M(xlogy)(a, b), 0, "xlogy(x, other)", SC_OP_INPLACE, "x * log(other), 0 where x is 0 and other is not NaN.",
          GRAD("dy * log(where(logical_and(eq(x, 0), le(other, 0)), 1, other))", "dy * x / other"))
SC_PW_ROW(xlog1py, 2, FLOAT, 0, F, VEC, 0.8f, M(xlog1py)(a, b), 0, "special.xlog1py(x, other)", 0, "x * log1p(other), 0 where x is 0 and other is not NaN.",
          GRAD("dy * log1p(where(logical_and(eq(x, 0), le(other, -1)), 0, other))", "dy * x / (other + 1)"))

/* ---- circular and hyperbolic functions ---- */
SC_PW_ROW(sin, 1, FLOAT, 0, F, WIDE, 0.8f, M(sin)(a), 0, "sin(x)", SC_OP_INPLACE, "Sine of x in radians.", GRAD("dy * cos(x)"))
SC_PW_ROW(cos, 1, FLOAT, 0, F, WIDE, 0.8f, M(cos)(a), 0, "cos(x)", SC_OP_INPLACE, "Cosine of x in radians.", GRAD("-dy * sin(x)"))
SC_PW_ROW(tan, 1, FLOAT, 0, F, WIDE, 1, M(tan)(a), 0, "tan(x)", SC_OP_INPLACE, "Tangent of x in radians.", GRAD("dy * (1 + y * y)"))
SC_PW_ROW(asin, 1, FLOAT, 0, F, VEC32, 0.6f, M(asin)(a), 0, "asin(x)", SC_OP_INPLACE, "Inverse sine, in radians.", GRAD("dy * rsqrt(1 - x * x)"))
SC_PW_ROW(acos, 1, FLOAT, 0, F, VEC32, 0.6f, M(acos)(a), 0, "acos(x)", SC_OP_INPLACE, "Inverse cosine, in radians.", GRAD("-dy * rsqrt(1 - x * x)"))
SC_PW_ROW(atan, 1, FLOAT, 0, F, VEC32, 0.6f, M(atan)(a), 0, "atan(x)", SC_OP_INPLACE, "Inverse tangent, in radians.", GRAD("dy / (x * x + 1)"))
SC_PW_ROW(atan2, 2, FLOAT, 0, F, VEC32, 1, M(atan2)(a, b), 0, "atan2(x, other)", SC_OP_INPLACE, "Angle of the point (other, x), in radians.",
          GRAD("dy * (other / (x * x + other * other))", "-dy * (x / (x * x + other * other))"))
SC_PW_ROW(sinh, 1, FLOAT, 0, F, VEC, 1, M(sinh)(a), 0, "sinh(x)", SC_OP_INPLACE, "Hyperbolic sine.", GRAD("dy * cosh(x)"))
SC_PW_ROW(cosh, 1, FLOAT, 0, F, VEC, 1, M(cosh)(a), 0, "cosh(x)", SC_OP_INPLACE, "Hyperbolic cosine.", GRAD("dy * sinh(x)"))
SC_PW_ROW(tanh, 1, FLOAT, 0, F, VECTOR, 0.6f, M(tanh)(a), 0, "tanh(x)", SC_OP_INPLACE, "Hyperbolic tangent.", GRAD("dy * (1 - y * y)"))
SC_PW_ROW(asinh, 1, FLOAT, 0, F, VEC32, 1, M(asinh)(a), 0, "asinh(x)", SC_OP_INPLACE, "Inverse hyperbolic sine.", GRAD("dy * rsqrt(x * x + 1)"))
SC_PW_ROW(acosh, 1, FLOAT, 0, F, VEC32, 1, M(acosh)(a), 0, "acosh(x)", SC_OP_INPLACE, "Inverse hyperbolic cosine; NaN below 1.", GRAD("dy * rsqrt(x * x - 1)"))
SC_PW_ROW(atanh, 1, FLOAT, 0, F, VEC32, 1, M(atanh)(a), 0, "atanh(x)", SC_OP_INPLACE, "Inverse hyperbolic tangent.", GRAD("dy / (1 - x * x)"))
SC_PW_ROW(deg2rad, 1, FLOAT, 0, F, VEC, 0.3f, a * (T)0.017453292519943295769, 0, "deg2rad(x)", SC_OP_INPLACE, "Degrees to radians.", GRAD("deg2rad(dy)"))
SC_PW_ROW(rad2deg, 1, FLOAT, 0, F, VEC, 0.3f, a * (T)57.295779513082320877, 0, "rad2deg(x)", SC_OP_INPLACE, "Radians to degrees.", GRAD("rad2deg(dy)"))
SC_PW_ROW(hypot, 2, SAME, 0, F, VEC, 0.5f, M(hypot)(a, b), 0, "hypot(x, other)", SC_OP_INPLACE, "sqrt(x^2 + other^2) without overflow; the gradient at the origin is 0.",
          GRAD("dy * (x / where(eq(y, 0), 1, y))", "dy * (other / where(eq(y, 0), 1, y))"))
SC_PW_ROW(angle, 1, FLOAT, 0, F, VEC, 0.3f, a < 0 ? (T)3.14159265358979323846 : a != a ? a : 0, 0, "angle(x)", 0, "Pi below 0, else 0.", GRAD("zero_of(dy)"))

/* ---- the bits of a number ---- */
SC_PW_ROW(signbit, 1, BOOL, 0, FI, VEC, 0.3f, M(negative)(a), MI(neg)(sa), "signbit(x)", 0, "Whether the sign is negative, -0 included.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(copysign, 2, FLOAT, 0, F, VEC, 0.3f, M(copysign)(a, b), 0, "copysign(x, other)", SC_OP_INPLACE, "x with other's sign.",
          GRAD("dy * (sign(y) * sign(x))", "zero_of(dy)"))
SC_PW_ROW(nextafter, 2, SAME, 0, F, ONE, 5, M(nextafter)(a, b), 0, "nextafter(x, other)", SC_OP_INPLACE, "The number next to x in other's direction; floats only.",
          NOGRAD("a step of one unit in the last place"))
SC_PW_ROW(frexp_mantissa, 1, SAME, 0, F, ONE, 5, M(mantissa)(a), 0, "frexp_mantissa(x)", SC_OP_INTERNAL, "m of x = m * 2^e with 0.5 <= |m| < 1.", GRAD("dy / exp2(frexp_exponent(x))"))
SC_PW_ROW(frexp_exponent, 1, EXPONENT, 0, F, ONE, 5, M(exponent)(a), 0, "frexp_exponent(x)", SC_OP_INTERNAL, "e of x = m * 2^e, as int32.", NOGRAD("an integer"))
SC_PW_ROW(heaviside, 2, SAME, 0, FIB, VEC, 0.3f, a == 0 ? b : (T)(a > 0), sa == 0 ? b : (T)(sa > 0), "heaviside(x, values)", SC_OP_INPLACE, "0 below 0, 1 above, values at 0.",
          NOGRAD("piecewise constant"))
SC_PW_ROW(nan_to_num, 1, SAME, 0, FIB, VEC, 0.4f, a != a ? P(0) : a == INFINITY ? P(1) : a == -INFINITY ? P(2) : a, a,
          "nan_to_num(x, nan: float = 0, posinf: float?, neginf: float?)", SC_OP_INPLACE,
          "NaN replaced by nan, the infinities by posinf and neginf (unless given the largest and smallest number of the dtype).", GRAD("where(isfinite(x), dy, 0)"),
          .compose = sc__nan_to_num_compose)

/* ---- extremes ---- */
SC_PW_ROW(maximum, 2, SAME, 0, FIB, VEC, 0.3f, M(max)(a, b), sa > sb ? a : b, "maximum(x, other)", SC_OP_COMMUTATIVE,
          "The larger of two, broadcast; NaN wins. At ties the gradient is split evenly.",
          GRAD("where(lt(x, other), 0, where(eq(x, other), dy * 0.5, dy))", "where(gt(x, other), 0, where(eq(x, other), dy * 0.5, dy))"))
SC_PW_ROW(minimum, 2, SAME, 0, FIB, VEC, 0.3f, M(min)(a, b), sa < sb ? a : b, "minimum(x, other)", SC_OP_COMMUTATIVE,
          "The smaller of two, broadcast; NaN wins. At ties the gradient is split evenly.",
          GRAD("where(gt(x, other), 0, where(eq(x, other), dy * 0.5, dy))", "where(lt(x, other), 0, where(eq(x, other), dy * 0.5, dy))"))
SC_PW_ROW(fmax, 2, SAME, 0, FIB, VEC, 0.3f, a >= b || b != b ? a : b, sa > sb ? a : b, "fmax(x, other)", 0, "The larger of two; a number wins over NaN.",
          GRAD("where(logical_or(ge(x, other), isnan(other)), dy, 0)", "where(logical_or(ge(x, other), isnan(other)), 0, dy)"))
SC_PW_ROW(fmin, 2, SAME, 0, FIB, VEC, 0.3f, a <= b || b != b ? a : b, sa < sb ? a : b, "fmin(x, other)", 0, "The smaller of two; a number wins over NaN.",
          GRAD("where(logical_or(le(x, other), isnan(other)), dy, 0)", "where(logical_or(le(x, other), isnan(other)), 0, dy)"))
SC_PW_ROW(clamp_min, 2, SAME, 0, FIB, VEC, 0.3f, M(max)(a, b), sa > sb ? a : b, "clamp_min(x, min)", SC_OP_INPLACE,
          "x, at least min (a number or a tensor). NaN stays; a value at the bound passes its gradient.", GRAD("where(ge(x, min), dy, 0)", "where(lt(x, min), dy, 0)"))
SC_PW_ROW(clamp_max, 2, SAME, 0, FIB, VEC, 0.3f, M(min)(a, b), sa < sb ? a : b, "clamp_max(x, max)", SC_OP_INPLACE,
          "x, at most max (a number or a tensor). NaN stays; a value at the bound passes its gradient.", GRAD("where(le(x, max), dy, 0)", "where(gt(x, max), dy, 0)"))
SC_PW_ROW(clamp, 3, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, M(clamp)(a, b, c), MI(min)(MI(max)(sa, sb), sc), "clamp(x, min: tensor?, max: tensor?)", SC_OP_INPLACE,
          "x limited to min … max, numbers or tensors, of which one may be missing; max wins. NaN stays; a value at a bound passes its gradient.\n"
          "Example: x:clamp(0, 1); x:clamp{max = 6}",
          GRAD("where(logical_and(ge(x, min), le(x, max)), dy, 0)", "where(logical_and(lt(min, max), lt(x, min)), dy, 0)", "where(logical_or(gt(min, max), gt(x, max)), dy, 0)"),
          .compose = sc__clamp_compose)
SC_PW_ROW(where, 3, PICK, 0, FIB, VEC, 0.3f, a ? b : c, a ? b : c, "where(condition, x, other)", 0,
          "x where condition is true, else other. As a method: x:where(condition, other).", GRAD(NULL, "where(condition, dy, 0)", "where(condition, 0, dy)"))

/* ---- comparisons: a number of the script counts by its mathematical value ---- */
SC_PW_ROW(eq, 2, BOOL, SC_PW_COMPARE, FIB, VEC, 0.3f, a == b, sa == sb, "eq(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "x == other, as bool.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(ne, 2, BOOL, SC_PW_COMPARE, FIB, VEC, 0.3f, a != b, sa != sb, "ne(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "x ~= other, as bool.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(lt, 2, BOOL, SC_PW_COMPARE, FIB, VEC, 0.3f, a < b, sa < sb, "lt(x, other)", SC_OP_INPLACE, "x < other, as bool.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(le, 2, BOOL, SC_PW_COMPARE, FIB, VEC, 0.3f, a <= b, sa <= sb, "le(x, other)", SC_OP_INPLACE, "x <= other, as bool.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(gt, 2, BOOL, SC_PW_COMPARE, FIB, VEC, 0.3f, a > b, sa > sb, "gt(x, other)", SC_OP_INPLACE, "x > other, as bool.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(ge, 2, BOOL, SC_PW_COMPARE, FIB, VEC, 0.3f, a >= b, sa >= sb, "ge(x, other)", SC_OP_INPLACE, "x >= other, as bool.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(isnan, 1, BOOL, 0, FI, VEC, 0.3f, a != a, 0, "isnan(x)", 0, "Whether x is NaN.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(isinf, 1, BOOL, 0, FI, VEC, 0.3f, M(fabs)(a) == INFINITY, 0, "isinf(x)", 0, "Whether x is infinite.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(isfinite, 1, BOOL, 0, FI, VEC, 0.3f, M(fabs)(a) < INFINITY, 1, "isfinite(x)", 0, "Whether x is neither infinite nor NaN.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(isposinf, 1, BOOL, 0, FI, VEC, 0.3f, a == INFINITY, 0, "isposinf(x)", 0, "Whether x is +infinity.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(isneginf, 1, BOOL, 0, FI, VEC, 0.3f, a == -INFINITY, 0, "isneginf(x)", 0, "Whether x is -infinity.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(isreal, 1, BOOL, 0, FI, VEC, 0.3f, a == a || a != a, 1, "isreal(x)", 0, "True: all our numbers are real.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(isclose, 2, BOOL, 0, FI, VEC, 0.5f, M(isclose)(a, b, P(0), P(1), P(2)), sa == sb || sc_iclose((double)sa, (double)sb, p[0].f, p[1].f),
          "isclose(x, other, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = false)", 0, "|x - other| <= atol + rtol * |other|, as bool.",
          NOGRAD("a truth value has no derivative"), .compose = sc__isclose_compose)

/* ---- logic and bits ---- */
SC_PW_ROW(logical_not, 1, BOOL, 0, FIB, VEC, 0.3f, a == 0, a == 0, "logical_not(x)", SC_OP_INPLACE, "Whether x is 0.", NOGRAD("a truth value has no derivative"))
SC_PW_ROW(logical_and, 2, BOOL, 0, FIB, VEC, 0.3f, (a != 0) & (b != 0), (a != 0) & (b != 0), "logical_and(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "Whether both are not 0.",
          NOGRAD("a truth value has no derivative"))
SC_PW_ROW(logical_or, 2, BOOL, 0, FIB, VEC, 0.3f, (a != 0) | (b != 0), (a != 0) | (b != 0), "logical_or(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "Whether one is not 0.",
          NOGRAD("a truth value has no derivative"))
SC_PW_ROW(logical_xor, 2, BOOL, 0, FIB, VEC, 0.3f, (a != 0) != (b != 0), (a != 0) != (b != 0), "logical_xor(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "Whether exactly one is not 0.",
          NOGRAD("a truth value has no derivative"))
SC_PW_ROW(bitwise_not, 1, SAME, 0, IB, ONE, 0.3f, 0, BITS_NOT(a), "bitwise_not(x)", SC_OP_INPLACE, "~x of integers; not x of bools.", NOGRAD("of integers"))
SC_PW_ROW(bitwise_and, 2, SAME, 0, IB, ONE, 0.3f, 0, a & b, "bitwise_and(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "x & other of integers or bools.", NOGRAD("of integers"))
SC_PW_ROW(bitwise_or, 2, SAME, 0, IB, ONE, 0.3f, 0, a | b, "bitwise_or(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "x | other of integers or bools.", NOGRAD("of integers"))
SC_PW_ROW(bitwise_xor, 2, SAME, 0, IB, ONE, 0.3f, 0, a ^ b, "bitwise_xor(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "x ~ other of integers or bools.", NOGRAD("of integers"))
SC_PW_ROW(bitwise_left_shift, 2, SAME, SC_PW_NO_BOOL, I, ONE, 0.5f, 0, sc_shl(a, (int64_t)b), "bitwise_left_shift(x, other)", SC_OP_INPLACE,
          "x << other; 0 when other is negative or not less than the width.", NOGRAD("of integers"))
SC_PW_ROW(bitwise_right_shift, 2, SAME, SC_PW_NO_BOOL, I, ONE, 0.5f, 0, MI(shr)(sa, (int64_t)b), "bitwise_right_shift(x, other)", SC_OP_INPLACE,
          "x >> other, keeping the sign; 0 or -1 when other is negative or not less than the width.", NOGRAD("of integers"))

/* e^(a - b) in gradients of logsumexp and its kin: equal infinities give their limits. */
SC_PW_ROW(exp_diff, 2, FLOAT, 0, F, VEC, 0.8f, a == b ? (T)(a != -INFINITY) : M(exp)(a - b), 0, "exp_diff(x, other)", SC_OP_INTERNAL,
          "exp(x - other); of two infinities 1, of two negative ones 0.", GRAD("dy * y", "-dy * y"))

#include "pointwise_activations.h"
#include "pointwise_special.h"
#include "pointwise_losses.h"
