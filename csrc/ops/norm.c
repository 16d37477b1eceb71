/* Reductions that look twice or finish with a function: variance (around the mean, so nothing cancels), vector norms, logsumexp.
** Squares and powers of halves and float32 are summed in double, so they neither overflow nor vanish. */
#include "reduce.h"

#include <math.h>
#include <string.h>

/* ---- var, std(x, dim, unbiased, keepdim, correction) ---- */

static double correction_of(const sc_call *c) {
  return sc__has(c, 3) ? sc__number(&c->attr[3]) : c->attr[1].i ? 1 : 0;
}

static sc_status floating_infer(sc_call *c, int dim_slot, int keep_slot, bool *mask) {
  SC_TRY(sc__reduced_meta(c, dim_slot, keep_slot, mask, &c->meta[0]));
  sc_dtype d = (sc_dtype)c->in[0]->dtype;
  if (!sc__is_float(d)) return sc__bad_input(c, 0, "expected a floating-point tensor, got %s", sc_dtype_name(d));
  c->meta[0].dtype = d;
  return SC_OK;
}

static sc_status var_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  return floating_infer(c, 0, 2, mask);
}


/* 0/0 of one element is NaN; less freedom than none counts as none, as in PyTorch. */
static double variance(double v, double free) { return v / free; }
static double deviation(double v, double free) { return sqrt(v / free); }

static sc_status var_to(sc_call *c, sc_finish_fn finish) {
  bool mask[SC_MAX_DIMS];
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__dims(c, 0, x->ndim, mask));
  double count = (double)sc__reduced_count(x, mask), few[64], *mean = few;
  int64_t n = c->out[0]->numel;
  size_t bytes = (size_t)n * 8;
  if (n > SC_COUNT(few) && !(mean = sc__alloc(c->ctx, bytes))) return sc__no_memory(c->ctx, bytes);
  sc_status s = sc__reduce(c->ctx, SC_RED_SUM, x, mask, mean, NULL, NULL, 0);
  for (int64_t i = 0; i < n; i++) mean[i] /= count;
  double free = count - correction_of(c);
  if (s == SC_OK) s = sc__reduce_to(c->ctx, SC_RED_DEV2, x, mask, mean, 0, finish, free > 0 ? free : 0, c->out[0]);
  if (mean != few) sc__release(c->ctx, mean, bytes);
  return s;
}
static sc_status var_run(sc_call *c) { return var_to(c, variance); }
static sc_status std_run(sc_call *c) { return var_to(c, deviation); }

/* var_backward(dy, x, dim, unbiased, keepdim, correction) = unreduce(dy) * (x - mean(x)) * 2 / (n - correction) */
static sc_status var_backward_compose(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  sc_tensor *dy = c->in[0], *x = c->in[1], *mean = NULL, *off = NULL, *small = NULL, *wide = NULL;
  SC_TRY(sc__dims(c, 0, x->ndim, mask));
  double free = (double)sc__reduced_count(x, mask) - correction_of(c);
  sc_attr mean_attr[2] = {c->attr[0], sc__bool(true)}, wide_attr[3] = {sc__ints(x->dim, x->ndim), c->attr[0], c->attr[2]};
  sc_status s = sc__make(c, "mean", &x, 1, mean_attr, 2, &mean);
  if (s == SC_OK) s = sc__make(c, "sub", (sc_tensor *[]){x, mean}, 2, NULL, 0, &off);
  if (s == SC_OK) s = sc__scaled(c, dy, 2 / free, &small);
  if (s == SC_OK) s = sc__make(c, "unreduce", &small, 1, wide_attr, 3, &wide);
  if (s == SC_OK) s = sc__become(c, "mul", (sc_tensor *[]){wide, off}, 2, NULL, 0);
  sc_tensor_release(mean);
  sc_tensor_release(off);
  sc_tensor_release(small);
  sc_tensor_release(wide);
  return s;
}

/* var_mean, std_mean -> var, mean */
static sc_status with_mean(sc_call *c, const char *name) {
  sc_tensor *first, *mean;
  sc_attr mean_attr[2] = {c->attr[0], c->attr[2]};
  SC_TRY(sc__make(c, name, c->in, 1, c->attr, 4, &first));
  sc_status s = sc__make(c, "mean", c->in, 1, mean_attr, 2, &mean);
  if (s != SC_OK) { sc_tensor_release(first); return s; }
  c->out[0] = first;
  c->out[1] = mean;
  c->n_out = 2;
  return SC_OK;
}
static sc_status var_mean_compose(sc_call *c) { return with_mean(c, "var"); }
static sc_status std_mean_compose(sc_call *c) { return with_mean(c, "std"); }

/* ---- linalg.vector_norm(x, ord, dim, keepdim, dtype) ---- */

static sc_status norm_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(floating_infer(c, 1, 2, mask));
  if (sc__has(c, 3)) {
    if (!sc__is_float((sc_dtype)c->attr[3].i)) return sc__bad_attr(c, 3, "expected a floating-point dtype, got %s", sc_dtype_name((sc_dtype)c->attr[3].i));
    c->meta[0].dtype = (sc_dtype)c->attr[3].i;
  }
  double p = sc__number(&c->attr[0]);
  if (p != p) return sc__bad_attr(c, 0, "NaN is not an order of a norm");
  if (p < 0 || isinf(p)) SC_TRY(sc__not_empty(c, mask));
  return SC_OK;
}

static double root(double v, double p) { return p == 2 ? sqrt(v) : p == 3 ? cbrt(v) : pow(v, 1 / p); }

static sc_status norm_run(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__dims(c, 1, x->ndim, mask));
  double p = sc__number(&c->attr[0]);
  sc_reduce_kind kind = p == 2 ? SC_RED_SQUARES : p == 1 ? SC_RED_ABS : p == 0 ? SC_RED_COUNT : p == INFINITY ? SC_RED_MAXABS
                        : p == -INFINITY ? SC_RED_MINABS : SC_RED_POWER;
  bool plain = p == 1 || p == 0 || isinf(p);
  return sc__reduce_to(c->ctx, kind, x, mask, NULL, p, plain ? NULL : root, p, c->out[0]);
}

/* What a composed gradient holds on the way; let go all together. */
typedef struct steps { sc_call *c; sc_tensor *held[16]; int n; sc_status s; } steps;

static sc_tensor *step(steps *w, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr) {
  if (w->s != SC_OK) return NULL;
  sc_tensor *y = NULL;
  w->s = sc__make(w->c, name, in, n_in, attr, n_attr, &y);
  if (w->s != SC_OK) return NULL;
  return w->held[w->n++] = y;
}
static sc_tensor *one(steps *w, const char *name, sc_tensor *a) { return step(w, name, &a, 1, NULL, 0); }
static sc_tensor *two(steps *w, const char *name, sc_tensor *a, sc_tensor *b) { return step(w, name, (sc_tensor *[]){a, b}, 2, NULL, 0); }
static sc_tensor *number(steps *w, double v) {
  sc_tensor *t = NULL;
  if (w->s == SC_OK) w->s = sc__tensor_scalar(w->c->ctx, false, 0, v, &t);
  return w->s == SC_OK ? (w->held[w->n++] = t) : NULL;
}
static sc_tensor *choose(steps *w, sc_tensor *cond, sc_tensor *a, sc_tensor *b) {
  return step(w, "where", (sc_tensor *[]){cond, a, b}, 3, NULL, 0);
}

/* norm_backward(dy, x, y, ord, dim, keepdim). Where the derivative has no limit (the origin, an element of 0) it is 0.
**   p = 1      sign(x)                       p = 2    x / y
**   p = ±inf   sign(x), shared by the equal  else     sign(x) |x|^(p-1) / y^(p-1)
** Divisors and bases that are 0 are replaced by 1 before they are used, so that second derivatives stay finite. */
static sc_status norm_backward_compose(sc_call *c) {
  steps w = {.c = c, .s = SC_OK};
  sc_tensor *x = c->in[1];
  double p = sc__number(&c->attr[0]);
  sc_attr wide[3] = {sc__ints(x->dim, x->ndim), c->attr[1], c->attr[2]};
  sc_tensor *dy = step(&w, "unreduce", &c->in[0], 1, wide, 3), *y = step(&w, "unreduce", &c->in[2], 1, wide, 3);
  sc_tensor *zero = number(&w, 0), *unit = number(&w, 1), *last[2] = {dy, NULL};
  if (p == 0) {
    last[0] = dy;
    last[1] = zero;
  } else if (p == 1) {
    last[1] = one(&w, "sign", x);
  } else if (isinf(p)) {
    sc_tensor *a = one(&w, "abs", x);
    sc_tensor *share = step(&w, "tie_share", (sc_tensor *[]){a, c->in[2]}, 2, c->attr + 1, 2);
    last[0] = two(&w, "mul", dy, share);
    last[1] = one(&w, "sign", x);
  } else {
    sc_tensor *flat = two(&w, "eq", y, zero), *safe = choose(&w, flat, unit, y);
    sc_tensor *scaled = p == 2 ? two(&w, "div", x, safe) : NULL;
    if (p != 2) {
      sc_tensor *a = one(&w, "abs", x), *none = two(&w, "eq", a, zero);
      sc_tensor *ratio = two(&w, "div", choose(&w, none, unit, a), safe);
      sc_tensor *powered = two(&w, "pow", ratio, number(&w, p - 1));
      scaled = two(&w, "mul", one(&w, "sign", x), powered);
    }
    last[1] = choose(&w, flat, zero, scaled);
  }
  if (w.s == SC_OK) w.s = sc__become(c, "mul", last, 2, NULL, 0);
  for (int i = 0; i < w.n; i++) sc_tensor_release(w.held[i]);
  return w.s;
}

/* ---- logsumexp ---- */

static sc_status logsumexp_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__reduced_meta(c, 0, 1, mask, &c->meta[0]));
  c->meta[0].dtype = sc__is_float((sc_dtype)c->in[0]->dtype) ? (sc_dtype)c->in[0]->dtype : SC_FLOAT32;
  return SC_OK;
}

static sc_status logsumexp_run(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  sc_tensor *x = NULL;
  SC_TRY(sc__dims(c, 0, c->in[0]->ndim, mask));
  int64_t n = c->out[0]->numel;
  size_t bytes = (size_t)n * 16;
  double few[64], *top = few;
  SC_TRY(sc__converted(c->in[0], c->in[0]->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32, &x));
  if (n > 32 && !(top = sc__alloc(c->ctx, bytes))) { sc_tensor_release(x); return sc__no_memory(c->ctx, bytes); }
  double *sum = top + n;
  sc_status s = sc__reduce(c->ctx, SC_RED_MAX, x, mask, top, NULL, NULL, 0);
  for (int64_t i = 0; i < n && s == SC_OK; i++) if (isinf(top[i])) top[i] = 0;      /* then the sum alone tells */
  if (s == SC_OK) s = sc__reduce(c->ctx, SC_RED_EXP, x, mask, sum, NULL, top, 0);
  for (int64_t i = 0; i < n && s == SC_OK; i++) sum[i] = log(sum[i]) + top[i];
  if (s == SC_OK) sc__convert(n, (sc_dtype)c->out[0]->dtype, c->out[0]->data, 1, SC_FLOAT64, sum, 1);
  sc_tensor_release(x);
  if (top != few) sc__release(c->ctx, top, bytes);
  return s;
}

#define VAR_ATTRS "dim: dim[]?, unbiased: bool = true, keepdim: bool = false, correction: number?"
#define VAR_HELP \
  "dim: one, a list, or none for all. The divisor is n - 1, n where unbiased is false, or n - correction; of one element it is NaN.\n" \
  "Centred first, so a large mean costs no digits. In Lua var(x, false) reads false as unbiased."

const sc_op sc__ops_norm[] = {
  {"var(x, " VAR_ATTRS ")", "Variance over all elements or over dims.\n" VAR_HELP, 0, .infer = var_infer, .run = var_run,
   .grad = {"var_backward(dy, x, dim, unbiased, keepdim, correction)"}},
  {"std(x, " VAR_ATTRS ")", "Standard deviation over all elements or over dims; where it is 0 its gradient is 0.\n" VAR_HELP, 0,
   .infer = var_infer, .run = std_run,
   .grad = {"var_backward(where(eq(y, 0), 0, dy / where(eq(y, 0), 1, y * 2)), x, dim, unbiased, keepdim, correction)"}},
  {"var_backward(dy, x, " VAR_ATTRS ")", "var's gradient.", SC_OP_INTERNAL, .compose = var_backward_compose},
  {"var_mean(x, " VAR_ATTRS ") -> var, mean", "Variance and mean.\n" VAR_HELP, SC_OP_FUNCTION, .compose = var_mean_compose},
  {"std_mean(x, " VAR_ATTRS ") -> std, mean", "Standard deviation and mean.\n" VAR_HELP, SC_OP_FUNCTION, .compose = std_mean_compose},
  {"linalg.vector_norm(x, ord: number = 2, dim: dim[]?, keepdim: bool = false, dtype: dtype?)",
   "(sum |x|^ord)^(1/ord) over all elements or over dims; ord 0 counts what is not 0, inf and -inf give the largest and smallest |x|.\n"
   "The gradient is 0 where it has no limit, at the origin for one.\nErrors: an empty dim for a negative or infinite ord.", 0,
   .infer = norm_infer, .run = norm_run, .grad = {"norm_backward(dy, x, y, ord, dim, keepdim)"}},
  {"norm_backward(dy, x, y, ord: number = 2, dim: dim[]?, keepdim: bool = false)", "vector_norm's gradient.", SC_OP_INTERNAL,
   .compose = norm_backward_compose},
  {"logsumexp(x, dim: dim[]?, keepdim: bool = false)",
   "log(sum(exp(x))) over dims, without overflow; of nothing or only -inf: -inf, with gradient 0. Integers give float32.", 0, .infer = logsumexp_infer,
   .run = logsumexp_run, .grad = {"unreduce(dy, shape(x), dim, keepdim) * exp_diff(x, unreduce(y, shape(x), dim, keepdim))"}},
};
const int sc__ops_norm_count = SC_COUNT(sc__ops_norm);
