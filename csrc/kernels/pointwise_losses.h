/* The elements of losses, rows of pointwise_table.h. They are primitives so that a loss is two ops, and so that infinities take their
** limits: a term whose factor is 0 is 0, whatever the other factor. No include guard: part of the table. */

SC_PW_ROW(squared_difference, 2, FLOAT, 0, F, VEC, 0.3f, (a - b) * (a - b), 0, "squared_difference(x, target)", SC_OP_INTERNAL | SC_OP_COMMUTATIVE,
          "(x - target)^2.", GRAD("dy * 2 * (x - target)", "dy * 2 * (target - x)"))
SC_PW_ROW(smooth_l1_element, 2, FLOAT, 0, F, VEC, 0.4f,
          ((a < b ? b - a : a - b) < P(0) ? (T)0.5 * (a - b) * (a - b) / P(0) : (a < b ? b - a : a - b) - (T)0.5 * P(0)), 0,
          "smooth_l1_element(x, target, beta: number)", SC_OP_INTERNAL, "Squares within beta of the target, distances beyond.",
          GRAD("dy * smooth_l1_slope(x, target, beta)", "-dy * smooth_l1_slope(x, target, beta)"))
SC_PW_ROW(smooth_l1_slope, 2, FLOAT, 0, F, VEC, 0.4f,
          a - b > P(0) ? 1 : a - b < -P(0) ? -1 : a - b == 0 ? 0 : (a - b) / P(0), 0, "smooth_l1_slope(x, target, beta: number)", SC_OP_INTERNAL,
          "The derivative of smooth_l1_element by x.", GRAD("dy * smooth_l1_bend(x, target, beta)", "-dy * smooth_l1_bend(x, target, beta)"))
SC_PW_ROW(smooth_l1_bend, 2, FLOAT, 0, F, VEC, 0.4f, (a < b ? b - a : a - b) < P(0) ? 1 / P(0) : 0, 0, "smooth_l1_bend(x, target, beta: number)",
          SC_OP_INTERNAL, "The second derivative of smooth_l1_element.", NOGRAD("piecewise constant"))
SC_PW_ROW(zero_mul, 2, SAME, 0, FI, VEC, 0.3f, a == 0 ? 0 : a * b, a * b, "zero_mul(x, other)", SC_OP_INTERNAL,
          "x * other, where 0 times infinity is 0.", GRAD("dy * other", "zero_mul(x, dy)"))
SC_PW_ROW(bce_logits_element, 2, FLOAT, 0, F, VEC32, 1.0f,
          (a > 0 ? (b == 1 ? 0 : (1 - b) * a) : (b == 0 ? 0 : -b * a)) + M(log1p)(M(exp)(a > 0 ? -a : a)), 0,
          "bce_logits_element(x, target)", SC_OP_INTERNAL, "-target log sigmoid(x) - (1 - target) log(1 - sigmoid(x)).",
          GRAD("dy * (sigmoid(x) - target)", "zero_mul(dy, -x)"))
SC_PW_ROW(bce_logits_weighted, 3, FLOAT, 0, F, VEC32, 1.0f,
          (b == 1 ? 0 : (1 - b) * ((a > 0 ? a : 0) + M(log1p)(M(exp)(a > 0 ? -a : a)))) +
          (b * c == 0 ? 0 : b * c * ((a > 0 ? 0 : -a) + M(log1p)(M(exp)(a > 0 ? -a : a)))), 0,
          "bce_logits_weighted(x, target, pos_weight)", SC_OP_INTERNAL, "-pos_weight target log sigmoid(x) - (1 - target) log(1 - sigmoid(x)).",
          GRAD("dy * ((1 - target) * sigmoid(x) - pos_weight * target * sigmoid(-x))",
               "dy * (pos_weight * bce_logits_element(x, 1) - bce_logits_element(x, 0))", "zero_mul(dy * target, bce_logits_element(x, 1))"))
/* Logarithms are kept above -100, as in PyTorch, so that a loss is never infinite. */
SC_PW_ROW(bce_element, 2, FLOAT, 0, F, VEC32, 1.0f,
          M(madd)(b - 1, M(log1p)(-a) < -100 ? -100 : M(log1p)(-a), -b * (M(log)(a) < -100 ? -100 : M(log)(a))), 0, "bce_element(x, target)",
          SC_OP_INTERNAL, "-target log x - (1 - target) log(1 - x), for probabilities x.",
          GRAD("dy * (x - target) / clamp_min((1 - x) * x, 1e-12)", "dy * (clamp_min(log1p(-x), -100) - clamp_min(log(x), -100))"))
SC_PW_ROW(kl_element, 2, FLOAT, 0, F, VEC32, 0.8f, b == 0 ? 0 : b * (M(log)(b) - a), 0, "kl_element(x, target)", SC_OP_INTERNAL,
          "target (log target - x).", GRAD("-dy * target", "dy * (log(target) + 1 - x)"))
SC_PW_ROW(kl_log_element, 2, FLOAT, 0, F, VEC32, 0.8f, M(exp)(b) == 0 ? 0 : M(exp)(b) * (b - a), 0, "kl_log_element(x, target)", SC_OP_INTERNAL,
          "exp(target) (target - x).", GRAD("-dy * exp(target)", "dy * (y + exp(target))"))
