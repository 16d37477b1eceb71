/* The pointwise ops, one row each: everything about them is decided here.
**
**   SC_PW_ROW(name, arity, rule, flags, types, isa, cost, float expression, integer expression, signature, op flags, help, gradient)
**
** Expressions are over a, b, c (the operands' elements, of type T; with SC_PW_COND a is a truth value) and P(i), the i-th attribute.
** M(f) is our f for T (kernels/math.h). Integer expressions compute in uint64_t (so that overflow wraps); sa, sb, sc are the
** same operands with their sign, PI(i) and PS(i) the attribute.
** types: FI both, F floats only, I integers only (write 0 for the other expression).
** isa: VEC stamps a loop per instruction set, ONE a single one (for calls that do not vectorise).
** cost: about, nanoseconds an element.
** GRAD: a formula per tensor input (see autodiff/formula.c); NOGRAD: why there is none.
** No include guard: it is included once per thing stamped from it. */

SC_PW_ROW(add, 2, SAME, 0, FI, VEC, 0.3f, a + P(0) * b, a + PI(0) * b, "add(x, other, alpha: number = 1)", SC_OP_INPLACE,
          "x + alpha * other, broadcast.\nExample: sc.tensor{1, 2}:add(sc.tensor{3, 4})", GRAD("dy", "dy * alpha"))
SC_PW_ROW(sub, 2, SAME, 0, FI, VEC, 0.3f, a - P(0) * b, a - PI(0) * b, "sub(x, other, alpha: number = 1)", SC_OP_INPLACE,
          "x - alpha * other, broadcast.", GRAD("dy", "-dy * alpha"))
SC_PW_ROW(mul, 2, SAME, 0, FI, VEC, 0.3f, a * b, a * b, "mul(x, other)", SC_OP_INPLACE | SC_OP_COMMUTATIVE, "x * other, broadcast.",
          GRAD("dy * other", "dy * x"))
SC_PW_ROW(div, 2, FLOAT, 0, F, VEC, 0.4f, a / b, 0, "div(x, other)", SC_OP_INPLACE, "x / other, broadcast; integers give floats.",
          GRAD("dy / other", "-dy * y / other"))
SC_PW_ROW(neg, 1, SAME, 0, FI, VEC, 0.3f, -a, 0 - a, "neg(x)", SC_OP_INPLACE, "-x.", GRAD("-dy"))
SC_PW_ROW(exp, 1, FLOAT, 0, F, VEC, 0.5f, M(exp)(a), 0, "exp(x)", SC_OP_INPLACE, "e to the power of x.", GRAD("dy * y"))
SC_PW_ROW(tanh, 1, FLOAT, 0, F, VEC, 0.6f, M(tanh)(a), 0, "tanh(x)", SC_OP_INPLACE, "Hyperbolic tangent.", GRAD("dy * (1 - y * y)"))
SC_PW_ROW(relu, 1, SAME, 0, FI, VEC, 0.3f, a > 0 ? a : (a != a ? a : 0), sa > 0 ? a : 0, "relu(x)", SC_OP_INPLACE,
          "max(x, 0); the gradient at 0 is 0.", GRAD("where(gt(y, 0), dy, 0)"))
SC_PW_ROW(gt, 2, BOOL, 0, FI, VEC, 0.3f, a > b, sa > sb, "gt(x, other)", 0, "x > other, as bool.",
          NOGRAD("a truth value has no derivative"))
SC_PW_ROW(where, 3, SAME, SC_PW_COND, FI, VEC, 0.3f, a ? b : c, a ? b : c, "where(condition, x, other)", 0,
          "x where condition is true, else other.", GRAD(NULL, "where(condition, dy, 0)", "where(condition, 0, dy)"))
/* e^(a - b) in gradients of logsumexp and its kin: equal infinities give their limits. */
SC_PW_ROW(exp_diff, 2, FLOAT, 0, F, VEC, 0.8f, a == b ? (T)(a != -INFINITY) : M(exp)(a - b), 0, "exp_diff(x, other)", SC_OP_INTERNAL,
          "exp(x - other); of two infinities 1, of two negative ones 0.", GRAD("dy * y", "-dy * y"))
