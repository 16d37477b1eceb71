/* Rows of the pointwise table: activations. See pointwise_table.h. */

SC_PW_ROW(relu, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, a > 0 ? a : (a != a ? a : 0), sa > 0 ? a : 0, "relu(x)", SC_OP_INPLACE, "max(x, 0); the gradient at 0 is 0.",
          GRAD("where(le(y, 0), 0, dy)"))
SC_PW_ROW(relu6, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, a < 0 ? 0 : a > 6 ? 6 : a, MI(min)(MI(max)(sa, 0), 6), "relu6(x)", SC_OP_INPLACE, "x limited to 0 … 6.",
          GRAD("where(logical_or(le(x, 0), ge(x, 6)), 0, dy)"))
SC_PW_ROW(hardtanh, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, M(clamp)(a, P(0), P(1)), MI(min)(MI(max)(sa, PS(0)), PS(1)),
          "hardtanh(x, min_val: number = -1, max_val: number = 1)", SC_OP_INPLACE, "x limited to min_val … max_val; no gradient passes at the bounds.",
          GRAD("where(logical_or(le(x, min_val), ge(x, max_val)), 0, dy)"))
SC_PW_ROW(threshold, 1, SAME, SC_PW_NO_BOOL, FI, VEC, 0.3f, a <= P(0) ? P(1) : a, sa <= PS(0) ? PI(1) : a, "threshold(x, threshold: number, value: number)", SC_OP_INPLACE,
          "x where it is above threshold, else value.", GRAD("where(le(x, threshold), 0, dy)"))
SC_PW_ROW(leaky_relu, 1, SAME, 0, F, VEC, 0.3f, a > 0 ? a : a * P(0), 0, "leaky_relu(x, negative_slope: float = 0.01)", SC_OP_INPLACE, "x above 0, else negative_slope * x.",
          GRAD("where(gt(x, 0), dy, dy * negative_slope)"))
SC_PW_ROW(prelu_kernel, 2, SAME, 0, F, VEC, 0.3f, a > 0 ? a : a * b, 0, "prelu_kernel(x, weight)", SC_OP_INTERNAL, "x above 0, else weight * x, broadcast.",
          GRAD("where(gt(x, 0), dy, dy * weight)", "where(gt(x, 0), 0, dy * x)"))
SC_PW_ROW(elu, 1, SAME, 0, F, VEC, 0.6f, a > 0 ? a : P(0) * M(expm1)(a), 0, "elu(x, alpha: number = 1)", SC_OP_INPLACE, "x above 0, else alpha * (exp(x) - 1).",
          GRAD("where(le(x, 0), dy * alpha * exp(clamp_max(x, 0)), dy)"))
SC_PW_ROW(celu, 1, SAME, 0, F, VEC, 0.6f, a > 0 ? a : P(0) * M(expm1)(a / P(0)), 0, "celu(x, alpha: number = 1)", SC_OP_INPLACE, "x above 0, else alpha * (exp(x / alpha) - 1).",
          GRAD("where(le(x, 0), dy * exp(clamp_max(x, 0) / alpha), dy)"), .compose = sc__celu_compose)
SC_PW_ROW(selu, 1, SAME, 0, F, VEC, 0.6f, a > 0 ? (T)1.0507009873554804934 * a : (T)1.7580993408473768600 * M(expm1)(a), 0, "selu(x)", SC_OP_INPLACE,
          "1.0507 * elu(x, 1.6733).\nSource: Klambauer et al. 2017, \"Self-Normalizing Neural Networks\".",
          GRAD("where(le(x, 0), dy * 1.7580993408473768600 * exp(clamp_max(x, 0)), dy * 1.0507009873554804934)"))
SC_PW_ROW(gelu, 1, SAME, 0, F, VECTOR32, 0.8f, M(gelu)(a), 0, "gelu(x, approximate: str = \"none\")", SC_OP_INPLACE,
          "x times the normal distribution's share below x; approximate = \"tanh\" takes tanh(sqrt(2 / pi) (x + 0.044715 x^3)) for it.\n"
          "Source: Hendrycks and Gimpel 2016, \"Gaussian Error Linear Units\".",
          GRAD("gelu_slope(x, dy)"), .compose = sc__gelu_compose)
SC_PW_ROW(gelu_tanh, 1, SAME, 0, F, VECTOR, 0.8f, M(gelu_tanh)(a), 0, "gelu_tanh(x)", SC_OP_INPLACE | SC_OP_INTERNAL, "gelu by its tanh approximation.", GRAD("gelu_tanh_slope(x, dy)"))
SC_PW_ROW(gelu_slope, 2, SAME, 0, F, VEC32, 1, M(gelu_slope)(a) * b, 0, "gelu_slope(x, g)", SC_OP_INTERNAL, "The derivative of gelu times g.",
          GRAD("dy * g * (0.39894228040143267794 * exp(-0.5 * square(x)) * (2 - square(x)))", "gelu_slope(x, dy)"))
SC_PW_ROW(gelu_tanh_slope, 2, SAME, 0, F, VEC32, 1, M(gelu_tanh_slope)(a) * b, 0, "gelu_tanh_slope(x, g)", SC_OP_INTERNAL, "The derivative of gelu_tanh times g.",
          GRAD("dy * g * gelu_tanh_curve(x)", "gelu_tanh_slope(x, dy)"))
SC_PW_ROW(gelu_tanh_curve, 1, SAME, 0, F, VEC32, 1, M(gelu_tanh_curve)(a), 0, "gelu_tanh_curve(x)", SC_OP_INTERNAL, "The second derivative of gelu_tanh.",
          NOGRAD("third derivatives of the approximation are not offered"))
SC_PW_ROW(silu, 1, SAME, 0, F, VECTOR, 0.6f, M(silu)(a), 0, "silu(x)", SC_OP_INPLACE, "x * sigmoid(x).", GRAD("dy * (sigmoid(x) * (1 + x * (1 - sigmoid(x))))"))
SC_PW_ROW(mish, 1, SAME, 0, F, VEC, 0.6f, M(mish)(a), 0, "mish(x)", SC_OP_INPLACE, "x * tanh(softplus(x)).",
          GRAD("dy * (tanh(softplus(x)) + x * sigmoid(x) * (1 - square(tanh(softplus(x)))))"))
SC_PW_ROW(sigmoid, 1, FLOAT, 0, F, VECTOR, 0.6f, M(sigmoid)(a), 0, "sigmoid(x)", SC_OP_INPLACE, "1 / (1 + exp(-x)).", GRAD("dy * ((1 - y) * y)"))
SC_PW_ROW(logsigmoid, 1, SAME, 0, F, VEC, 0.8f, M(logsigmoid)(a), 0, "logsigmoid(x)", 0, "log(sigmoid(x)) without overflow.", GRAD("dy * sigmoid(-x)"))
SC_PW_ROW(logit, 1, FLOAT, 0, F, VEC32, 0.8f, M(log)(a / (1 - a)), 0, "logit(x, eps: float?)", SC_OP_INPLACE,
          "log(x / (1 - x)); with eps x is first limited to eps … 1 - eps.", GRAD("where(isnan(y), y, dy / (x * (1 - x)))"), .compose = sc__logit_compose)
SC_PW_ROW(softplus, 1, SAME, 0, F, VEC, 0.9f, M(softplus)(a, P(0), P(1)), 0, "softplus(x, beta: number = 1, threshold: number = 20)", 0,
          "log(1 + exp(beta * x)) / beta; x itself where beta * x is above threshold.", GRAD("where(gt(x * beta, threshold), dy, dy * sigmoid(x * beta))"))
SC_PW_ROW(softsign, 1, FLOAT, SC_PW_NO_BOOL, F, VEC, 0.4f, a / (1 + M(fabs)(a)), 0, "softsign(x)", 0, "x / (1 + |x|).", GRAD("dy / square(1 + abs(x))"))
SC_PW_ROW(tanhshrink, 1, FLOAT, SC_PW_NO_BOOL, F, VEC, 0.6f, a - M(tanh)(a), 0, "tanhshrink(x)", 0, "x - tanh(x).", GRAD("dy * square(tanh(x))"))
SC_PW_ROW(hardsigmoid, 1, SAME, 0, F, VEC, 0.3f, a < -3 ? 0 : a > 3 ? 1 : a / 6 + (T)0.5, 0, "hardsigmoid(x)", SC_OP_INPLACE, "x / 6 + 1/2 limited to 0 … 1.",
          GRAD("where(logical_and(gt(x, -3), lt(x, 3)), dy / 6, 0)"))
SC_PW_ROW(hardswish, 1, SAME, 0, F, VEC, 0.3f, a * (a < -3 ? 0 : a > 3 ? 6 : a + 3) / 6, 0, "hardswish(x)", SC_OP_INPLACE, "x * (x + 3 limited to 0 … 6) / 6.",
          GRAD("where(le(x, -3), 0, where(lt(x, 3), dy * (x / 3 + 0.5), dy))"))
SC_PW_ROW(hardshrink, 1, SAME, 0, F, VEC, 0.3f, a >= -P(0) && a <= P(0) ? 0 : a, 0, "hardshrink(x, lambd: number = 0.5)", 0, "0 where |x| <= lambd, else x.",
          GRAD("where(logical_and(ge(x, -lambd), le(x, lambd)), 0, dy)"))
SC_PW_ROW(softshrink, 1, SAME, 0, F, VEC, 0.3f, a > P(0) ? a - P(0) : a < -P(0) ? a + P(0) : 0, 0, "softshrink(x, lambd: number = 0.5)", 0,
          "x moved lambd towards 0, 0 where |x| <= lambd.", GRAD("where(logical_and(ge(x, -lambd), le(x, lambd)), 0, dy)"), .compose = sc__softshrink_compose)
