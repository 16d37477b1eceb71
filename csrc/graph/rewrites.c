/* The table of rewrites. Rules of one op are tried in this order and the first that fits is taken; every rule leaves fewer nodes, or
** cheaper ones, and what it emits is not tried again, so rewriting ends.
**
** A rule is exact, NaN, infinities and the sign of zero included, unless it says SC_RW_ROUNDS; then its comment states a bound. */
#include "rewrite.h"

#include <math.h>
#include <string.h>

/* ---- guards ---- */

static bool zero_is_positive(sc_match *m) {
  double v;
  return sc__rw_number(m, "z", &v) && v == 0 && !signbit(v);
}
static bool zero_is_negative(sc_match *m) {
  double v;
  return sc__rw_number(m, "z", &v) && v == 0 && signbit(v);
}
static bool of_integers(sc_match *m) {
  double v;
  return sc__rw_number(m, "z", &v) && v == 0 && !sc__is_float((sc_dtype)sc__rw_value(m, "x")->dtype);
}

/* Every number of `from` is one of `to`. */
static bool holds(sc_dtype to, sc_dtype from) {
  if (to == from) return true;
  if (sc__is_stored(to) || sc__is_stored(from)) return false;
  if (sc__is_float(from)) return to == SC_FLOAT64 || (to == SC_FLOAT32 && from != SC_FLOAT64);
  if (from == SC_BOOL) return true;
  int bits = 8 * (int)sc_dtype_size(from);
  if (sc__is_float(to)) return (to == SC_FLOAT64 && bits <= 32) || (to == SC_FLOAT32 && bits <= 16) || bits <= 8;
  return false;
}
static bool widens(sc_match *m) { return holds((sc_dtype)sc__rw_attr(m, "middle")->i, (sc_dtype)sc__rw_value(m, "x")->dtype); }

/* ---- guards of idioms ---- */

static bool plain_float(const sc_value *v) { return v->dtype == SC_FLOAT32 || v->dtype == SC_FLOAT64; }

/* `along` is one dim. */
static bool one_dim(sc_match *m) { return plain_float(sc__rw_value(m, "x")) && sc__rw_attr(m, "along")->kind == SC_ATTR_INT; }

/* `along` is the last dims of x, which have elements: `dims` of them; `e` is a number. */
static bool rows(sc_match *m) {
  const sc_value *x = sc__rw_value(m, "x");
  const sc_attr *along = sc__rw_attr(m, "along");
  double eps;
  int n = along->kind == SC_ATTR_INTS ? along->n : 1;
  if (!plain_float(x) || !sc__rw_number(m, "e", &eps) || !(eps >= 0) || n < 1 || n > x->ndim) return false;
  if (along->kind == SC_ATTR_INT ? along->i != x->ndim - 1 : along->kind != SC_ATTR_INTS || along->v[0] != x->ndim - n) return false;
  for (int i = x->ndim - n; i < x->ndim; i++) if (x->dim[i] == 0) return false;
  sc__rw_set(m, "dims", sc__int(n));
  sc__rw_set(m, "eps", sc__float(eps));
  return true;
}

static bool fits_rows(sc_match *m, const char *name) {
  const sc_value *x = sc__rw_value(m, "x"), *w = sc__rw_value(m, name);
  int n = (int)sc__rw_attr(m, "dims")->i;
  return w->dtype == x->dtype && w->ndim == n && memcmp(w->dim, x->dim + x->ndim - n, (size_t)n * 8) == 0;
}
static bool weight_fits_rows(sc_match *m) { return fits_rows(m, "w"); }
static bool bias_fits_rows(sc_match *m) { return fits_rows(m, "b"); }

/* The classes are where a loss over class indices looks for them. */
static bool over_classes(sc_match *m) { return one_dim(m) && sc__rw_attr(m, "along")->i == (sc__rw_value(m, "x")->ndim > 1); }

/* q [heads…, L, E], k [heads…, E, S] as a transpose of what lies in memory, v [heads…, S, Ev]; softmax over the last dim. */
static bool heads(sc_match *m, double scale) {
  const sc_value *q = sc__rw_value(m, "q"), *k = sc__rw_value(m, "k"), *v = sc__rw_value(m, "v");
  int n = q->ndim;
  const sc_attr *along = sc__rw_attr(m, "along");
  if (n < 3 || k->ndim != n || v->ndim != n || !plain_float(q) || q->dtype != k->dtype || q->dtype != v->dtype) return false;
  if (along->kind != SC_ATTR_INT || along->i != n - 1 || k->dim[n - 2] == 0 || k->dim[n - 1] == 0) return false;
  if (memcmp(q->dim, k->dim, (size_t)(n - 2) * 8) != 0 || memcmp(q->dim, v->dim, (size_t)(n - 2) * 8) != 0) return false;
  if (k->dim[n + n - 2] != 1 && k->dim[n - 2] != 1) return false;      /* else it would have to be packed */
  sc__rw_set(m, "scale", sc__float(scale));
  return true;
}
static bool heads_plain(sc_match *m) { return heads(m, 1); }
static bool heads_times(sc_match *m) {
  double s;
  return sc__rw_number(m, "s", &s) && heads(m, s);
}
static bool heads_over(sc_match *m) {
  double s;
  return sc__rw_number(m, "s", &s) && s != 0 && heads(m, 1 / s);
}

/* The mask is to be seen as [heads…, L, S]. bools: a mask of bools, and `f`, what is written where it says so, is minus infinity. */
static bool mask_fits(sc_match *m, bool bools) {
  const sc_value *q = sc__rw_value(m, "q"), *k = sc__rw_value(m, "k"), *mask = sc__rw_value(m, "m");
  int64_t dim[SC_MAX_DIMS], got[SC_MAX_DIMS];
  int n = q->ndim, n_got;
  double f;
  memcpy(dim, q->dim, (size_t)n * 8);
  dim[n - 1] = k->dim[n - 1];
  if (!sc__broadcast(n, dim, mask->ndim, mask->dim, &n_got, got) || n_got != n || memcmp(dim, got, (size_t)n * 8) != 0) return false;
  if (bools ? mask->dtype != SC_BOOL || !sc__rw_number(m, "f", &f) || f != -INFINITY : mask->dtype != q->dtype || mask->ndim == 0) return false;
  sc__rw_set_list(m, "size", dim, n);
  return true;
}
#define MASKED(how) \
  static bool how##_added(sc_match *m) { return how(m) && mask_fits(m, false); } \
  static bool how##_filled(sc_match *m) { return how(m) && mask_fits(m, true); }
MASKED(heads_plain)
MASKED(heads_times)
MASKED(heads_over)
#undef MASKED

/* ---- guards of products and norms ---- */

static int64_t count(const sc_value *v) {
  int64_t n = 1;
  for (int i = 0; i < v->ndim; i++) n *= v->dim[i];
  return n;
}

/* w is a matrix [in, out] and b one number for each of its columns; x has more than a few rows, whose products are as fast with w as it lies. */
static bool matrix_and_row(sc_match *m) {
  const sc_value *x = sc__rw_value(m, "x"), *w = sc__rw_value(m, "w"), *b = sc__rw_value(m, "b");
  return w->ndim == 2 && x->ndim > 1 && count(x) > 4 * w->dim[0] && sc__is_float((sc_dtype)w->dtype) && b->ndim == 1 && b->dim[0] == w->dim[1] &&
         b->dtype == w->dtype;
}
/* The same for w [out, in]. */
static bool weight_and_row(sc_match *m) {
  const sc_value *w = sc__rw_value(m, "w"), *b = sc__rw_value(m, "b");
  return w->ndim == 2 && sc__is_float((sc_dtype)w->dtype) && b->ndim == 1 && b->dim[0] == w->dim[0] && b->dtype == w->dtype;
}

/* Scaling the weight w [out, …] is less work than scaling the results: `size` is how the scale is seen there. */
static bool scales_less(sc_match *m, int ndim) {
  const sc_value *w = sc__rw_value(m, "w"), *s = sc__rw_value(m, "s"), *t = sc__rw_value(m, "t"), *b = sc__rw_value(m, "b");
  const sc_value *y = &m->w->from->value[m->root->out[0]];
  int64_t size[SC_MAX_DIMS] = {-1};
  if (!plain_float(w) || w->ndim != ndim || s->ndim != 1 || s->dim[0] != w->dim[0] || s->dtype != w->dtype || t->dtype != w->dtype || t->ndim != 1) return false;
  if (b && (b->ndim != 1 || b->dtype != w->dtype)) return false;
  bool once = w->captured && w->captured->flags & SC_T_CONSTANT;
  if (count(w) > count(y) && !once) return false;
  for (int i = 1; i < w->ndim; i++) size[i] = 1;
  sc__rw_set_list(m, "size", size, w->ndim);
  return true;
}
static bool conv_scales_less(sc_match *m) { return scales_less(m, sc__rw_value(m, "x")->ndim); }
static bool linear_scales_less(sc_match *m) { return sc__rw_value(m, "x")->ndim == 2 && scales_less(m, 2); }

/* All that read the result are pointwise: they run as one program with it, which is as cheap. */
static bool joins_program(const sc_match *m) {
  const sc_graph *g = m->w->from;
  int32_t y = m->root->out[0];
  int readers = 0;
  for (size_t i = 0; i < g->n_outputs; i++) if (g->output[i].value == y) return false;
  for (size_t k = (size_t)g->value[y].node + 1; k < g->n_nodes; k++)
    for (int i = 0; i < g->node[k].n_in; i++) {
      if (g->node[k].in[i] != y) continue;
      if (!g->node[k].op->def->pw || g->node[k].inplace) return false;
      readers++;
    }
  return readers > 0;
}

/* The activation is done on the way: floats that kernels compute in, `numbers` from its attributes. */
static bool on_the_way(sc_match *m) {
  static const char *const NAMES[] = {"first", "second"};
  double numbers[2];
  int n = 0;
  if (!plain_float(sc__rw_value(m, "x")) || joins_program(m)) return false;
  for (; n < 2 && sc__rw_attr(m, NAMES[n]); n++) numbers[n] = sc__number(sc__rw_attr(m, NAMES[n]));
  sc__rw_set_numbers(m, "numbers", numbers, n);
  return true;
}

#define ALGEBRA(from, to, ...) {.pattern = from, .replacement = to, .pass = SC_PASS_ALGEBRA, __VA_ARGS__}
#define OWNING(group, from, to, ...) {.pattern = from, .replacement = to, .pass = group, .flags = SC_RW_ROUNDS | SC_RW_OWNS, __VA_ARGS__}
#define IDIOM(...) OWNING(SC_PASS_IDIOMS, __VA_ARGS__)

const sc_rewrite sc__rewrites[] = {
  /* ---- algebra ---- */
  ALGEBRA("mul(x, 1)", "x"),
  ALGEBRA("div(x, 1)", "x"),
  ALGEBRA("add(x, z)", "x", .guard = zero_is_negative),          /* x + 0 turns -0 into 0 */
  ALGEBRA("add(x, z)", "x", .guard = of_integers),
  ALGEBRA("sub(x, z)", "x", .guard = zero_is_positive),          /* x - -0 too */
  ALGEBRA("mul(x, -1)", "neg(x)"),
  ALGEBRA("neg(neg(x))", "x"),
  ALGEBRA("abs(neg(x))", "abs(x)"),
  ALGEBRA("abs(abs(x))", "abs(x)"),
  ALGEBRA("square(neg(x))", "square(x)"),
  ALGEBRA("square(abs(x))", "square(x)"),
  ALGEBRA("relu(relu(x))", "relu(x)"),
  ALGEBRA("mul(x, x)", "square(x)"),
  ALGEBRA("pow(x, 2)", "square(x)"),                             /* what its kernel does anyway */
  ALGEBRA("pow(x, 0.5)", "sqrt(x)"),
  ALGEBRA("pow(x, -0.5)", "rsqrt(x)"),
  ALGEBRA("pow(x, -1)", "reciprocal(x)"),
  ALGEBRA("maximum(x, x)", "x"),
  ALGEBRA("minimum(x, x)", "x"),
  ALGEBRA("where(c, x, x)", "x"),
  ALGEBRA("logical_not(logical_not(x))", "x"),
  ALGEBRA("cast(x, dtype)", "x"),
  ALGEBRA("cast(cast(x, middle), dtype)", "cast(x, dtype)", .guard = widens),
  ALGEBRA("clone(x)", "x"),
  ALGEBRA("clone(clone(x))", "clone(x)"),
  ALGEBRA("transpose(transpose(x, first, second), first, second)", "x"),
  ALGEBRA("transpose(transpose(x, first, second), second, first)", "x"),
  ALGEBRA("view(x, size)", "x"),
  ALGEBRA("view(view(x, middle), size)", "x"),
  ALGEBRA("view(view(x, middle), size)", "view(x, size)"),
  ALGEBRA("detach(x)", "x"),
  ALGEBRA("max_windows(x, size, kernel, stride, padding, dilation, dims)", "max_window_values(x, size, kernel, stride, padding, dilation, dims)"),
  ALGEBRA("unsqueeze(sum(x, along), place)", "sum(x, along, true)"),       /* of one shape, so in one order, or not at all */
  ALGEBRA("unsqueeze(mean(x, along), place)", "mean(x, along, true)"),
  ALGEBRA("unsqueeze(amax(x, along), place)", "amax(x, along, true)"),
  ALGEBRA("view(sum(x, along), size)", "sum(x, along, true)"),
  ALGEBRA("view(mean(x, along), size)", "mean(x, along, true)"),
  ALGEBRA("view(amax(x, along), size)", "amax(x, along, true)"),

  /* ---- softmax: both ways of computing it are within n / 8 + 8 units in the last place of the truth, n the length of a row ---- */
#define EXP(max) "exp(sub(x, " max "(x, along, true)))"
  IDIOM("div(" EXP("amax") ", sum(" EXP("amax") ", along, true))", "softmax(x, along)", .guard = one_dim),
  IDIOM("div(" EXP("max_dim") ", sum(" EXP("max_dim") ", along, true))", "softmax(x, along)", .guard = one_dim),
  IDIOM("sub(sub(x, amax(x, along, true)), log(sum(" EXP("amax") ", along, true)))", "log_softmax(x, along)", .guard = one_dim),
  IDIOM("sub(sub(x, max_dim(x, along, true)), log(sum(" EXP("max_dim") ", along, true)))", "log_softmax(x, along)", .guard = one_dim),
  IDIOM("sub(x, logsumexp(x, along, true))", "log_softmax(x, along)", .guard = one_dim),
#undef EXP

  /* ---- layer-norm: within 8 eps max|x| / sqrt(var + e) of what is written, eps the dtype's; the weight and bias one rounding each ---- */
#define CENTRED "sub(x, mean(x, along, true))"
#define NORM "normalize_rows(x, nil, nil, nil, nil, dims, 0.1, eps)"
  IDIOM("div(" CENTRED ", sqrt(add(mean(square(" CENTRED "), along, true), e)))", NORM, .guard = rows),
  IDIOM("mul(" CENTRED ", rsqrt(add(mean(square(" CENTRED "), along, true), e)))", NORM, .guard = rows),
  IDIOM("div(" CENTRED ", sqrt(add(var(x, along, false, true), e)))", NORM, .guard = rows),
  IDIOM("mul(" CENTRED ", rsqrt(add(var(x, along, false, true), e)))", NORM, .guard = rows),
  IDIOM("mul(normalize_rows(x, nil, nil, nil, nil, dims, momentum, eps), w)", "normalize_rows(x, w, nil, nil, nil, dims, momentum, eps)",
        .guard = weight_fits_rows),
  IDIOM("add(normalize_rows(x, w?, nil, nil, nil, dims, momentum, eps), b)", "normalize_rows(x, w, b, nil, nil, dims, momentum, eps)",
        .guard = bias_fits_rows),
#undef CENTRED
#undef NORM

  /* ---- attention: within (E + S) eps of the largest |score| and |value| of what is written. A row in which all is masked is NaN ---- */
#define ATTENTION(scores, how) \
  IDIOM("matmul(softmax(" scores ", along), v)", "attention(q, transpose(k, -2, -1), v, nil, false, scale, true)", .guard = how), \
  IDIOM("matmul(softmax(add(" scores ", m), along), v)", "attention(q, transpose(k, -2, -1), v, expand(m, size), false, scale, true)", \
        .guard = how##_added), \
  IDIOM("matmul(softmax(masked_fill(" scores ", m, f), along), v)", \
        "attention(q, transpose(k, -2, -1), v, expand(logical_not(m), size), false, scale, true)", .guard = how##_filled), \
  IDIOM("matmul(softmax(where(m, " scores ", f), along), v)", "attention(q, transpose(k, -2, -1), v, expand(m, size), false, scale, true)", \
        .guard = how##_filled)
  ATTENTION("mul(matmul(q, k), s)", heads_times),
  ATTENTION("div(matmul(q, k), s)", heads_over),
  ATTENTION("matmul(mul(q, s), k)", heads_times),
  ATTENTION("matmul(div(q, s), k)", heads_over),
  ATTENTION("matmul(q, k)", heads_plain),
#undef ATTENTION

  /* ---- cross-entropy: the logarithm of the sum is rounded once less or more ---- */
  IDIOM("nll_map(log_softmax(x, along), t, w?, ignored, reduction, smoothing)", "cross_entropy_index(x, t, w, ignored, reduction, smoothing)",
        .guard = over_classes),

  /* ---- batch-norm, by its running statistics, into the weights before it: within 4 eps of the sum of the products' sizes ---- */
#define CONV(x, w, b) "convolution(" x ", " w ", " b ", stride, padding, dilation, groups)"
  OWNING(SC_PASS_NORMS, "channel_affine(" CONV("x", "w", "nil") ", s, t)", CONV("x", "w * view(s, size)", "t"), .guard = conv_scales_less),
  OWNING(SC_PASS_NORMS, "channel_affine(" CONV("x", "w", "b") ", s, t)", CONV("x", "w * view(s, size)", "b * s + t"), .guard = conv_scales_less),
#undef CONV
  OWNING(SC_PASS_NORMS, "channel_affine(nn.functional.linear(x, w, nil), s, t)", "nn.functional.linear(x, w * view(s, size), t)", .guard = linear_scales_less),
  OWNING(SC_PASS_NORMS, "channel_affine(nn.functional.linear(x, w, b), s, t)", "nn.functional.linear(x, w * view(s, size), b * s + t)",
         .guard = linear_scales_less),

  /* ---- products: the bias is added first, not last: within k eps of the sum of the products' sizes ---- */
  OWNING(SC_PASS_EPILOGUES, "add(matmul(x, w), b)", "nn.functional.linear(x, transpose(w, 0, 1), b)", .guard = matrix_and_row),
  OWNING(SC_PASS_EPILOGUES, "add(nn.functional.linear(x, w, nil), b)", "nn.functional.linear(x, w, b)", .guard = weight_and_row),

  /* ---- activations ---- */
#define ACT(name, attributes) \
  {.pattern = #name "(nn.functional.linear(x, w, b?)" attributes ")", .replacement = "linear_act(x, w, b, \"" #name "\", numbers)", \
   .pass = SC_PASS_EPILOGUES, .flags = SC_RW_OWNS, .guard = on_the_way}, \
  {.pattern = #name "(convolution(x, w, b?, stride, padding, dilation, groups)" attributes ")", \
   .replacement = "convolution_act(x, w, b, stride, padding, dilation, groups, \"" #name "\", numbers)", \
   .pass = SC_PASS_EPILOGUES, .flags = SC_RW_OWNS, .guard = on_the_way}
  ACT(relu, ""), ACT(relu6, ""), ACT(gelu, ""), ACT(gelu_tanh, ""), ACT(sigmoid, ""), ACT(tanh, ""), ACT(silu, ""), ACT(mish, ""), ACT(selu, ""),
  ACT(hardsigmoid, ""), ACT(hardswish, ""), ACT(logsigmoid, ""), ACT(softsign, ""), ACT(exp, ""), ACT(square, ""), ACT(abs, ""),
  ACT(leaky_relu, ", first"), ACT(elu, ", first"), ACT(hardtanh, ", first, second"), ACT(softplus, ", first, second"),
#undef ACT
};
const int sc__rewrites_count = SC_COUNT(sc__rewrites);
