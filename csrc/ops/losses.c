/* The element-wise losses that training loops live in: an element op of kernels/pointwise_losses.h, a weight perhaps, a reduction.
** Shapes must be equal: a loss that broadcasts is nearly always a mistake. The rarer losses are in lua/sconce/ops/losses.lua. */
#include "ops.h"

#include <string.h>

static sc_status same_shape(sc_call *c, const sc_tensor *x, const sc_tensor *target) {
  char a[200], b[200];
  if (x->ndim == target->ndim && memcmp(x->dim, target->dim, (size_t)x->ndim * 8) == 0) return SC_OK;
  return sc__bad_input(c, 1, "the target's shape %s differs from the input's shape %s; a loss does not broadcast",
                       sc__shape_text(target->ndim, target->dim, b, sizeof b), sc__shape_text(x->ndim, x->dim, a, sizeof a));
}

typedef enum reduction { NONE, MEAN, SUM, BATCHMEAN } reduction;

static sc_status reduction_of(sc_call *c, int slot, bool batchmean, reduction *r) {
  const char *s = c->attr[slot].s;
  if (strcmp(s, "none") == 0) *r = NONE;
  else if (strcmp(s, "mean") == 0) *r = MEAN;
  else if (strcmp(s, "sum") == 0) *r = SUM;
  else if (batchmean && strcmp(s, "batchmean") == 0) *r = BATCHMEAN;
  else {
    char shown[80];
    return sc__bad_attr(c, slot, "expected \"none\", \"mean\"%s or \"sum\", got \"%s\"", batchmean ? ", \"batchmean\"" : "",
                        sc__printable(s, strlen(s), shown, sizeof shown));
  }
  return SC_OK;
}

/* Takes loss; the reduced one becomes the call's result. */
static sc_status finish(sc_call *c, sc_tensor *loss, reduction r) {
  sc_status s = SC_OK;
  if (r == NONE) {
    c->out[0] = loss;
  } else {
    int64_t batch = loss->ndim ? loss->dim[0] : 1;
    sc_tensor *y = NULL;
    s = sc__op1(c->ctx, r == MEAN ? "mean" : "sum", loss, &y);
    sc_tensor_release(loss);
    if (s == SC_OK && r == BATCHMEAN) {
      sc_tensor *n = NULL, *mean = NULL;
      s = sc__tensor_scalar(c->ctx, false, 0, (double)batch, &n);
      if (s == SC_OK) s = sc__op2(c->ctx, "div", y, n, &mean);
      sc_tensor_release(n);
      sc_tensor_release(y);
      y = mean;
    }
    c->out[0] = y;
  }
  c->n_out = s == SC_OK;
  return s;
}

/* Replaces *loss by *loss * weight, where 0 weighs an infinite loss as 0. */
static sc_status weigh(sc_call *c, sc_tensor *weight, sc_tensor **loss) {
  sc_tensor *y = NULL;
  sc_status s = sc__op2(c->ctx, "zero_mul", weight, *loss, &y);
  sc_tensor_release(*loss);
  *loss = y;
  return s;
}

static sc_status mse_compose(sc_call *c) {
  reduction r;
  sc_tensor *loss;
  SC_TRY(reduction_of(c, 0, false, &r));
  SC_TRY(same_shape(c, c->in[0], c->in[1]));
  SC_TRY(sc__op2(c->ctx, "squared_difference", c->in[0], c->in[1], &loss));
  return finish(c, loss, r);
}

static sc_status smooth_l1(sc_call *c, int reduction_slot, double beta, double scale) {
  reduction r;
  sc_tensor *loss;
  sc_attr b = sc__float(beta);
  SC_TRY(reduction_of(c, reduction_slot, false, &r));
  SC_TRY(same_shape(c, c->in[0], c->in[1]));
  SC_TRY(sc__op(c->ctx, "smooth_l1_element", c->in, 2, &b, 1, &loss));
  if (scale != 1) {
    sc_tensor *k, *y = NULL;
    sc_status s = sc__tensor_scalar(c->ctx, false, 0, scale, &k);
    if (s == SC_OK) { s = sc__op2(c->ctx, "mul", loss, k, &y); sc_tensor_release(k); }
    sc_tensor_release(loss);
    SC_TRY(s);
    loss = y;
  }
  return finish(c, loss, r);
}

static sc_status smooth_l1_compose(sc_call *c) {
  double beta = sc__number(&c->attr[1]);
  if (!(beta >= 0)) return sc__bad_attr(c, 1, "expected a number from 0, got %g", beta);
  return smooth_l1(c, 0, beta, 1);
}

static sc_status huber_compose(sc_call *c) {
  double delta = sc__number(&c->attr[1]);
  if (!(delta > 0)) return sc__bad_attr(c, 1, "expected a positive number, got %g", delta);
  return smooth_l1(c, 0, delta, delta);
}

static sc_status l1_compose(sc_call *c) { return smooth_l1(c, 0, 0, 1); }

/* Whether all values lie in [0, 1]; NaN does not. */
static sc_status probabilities(sc_call *c, int slot) {
  sc_tensor *t = c->in[slot], *packed = NULL, *as_double = t;
  if (!t->storage) return SC_OK;                         /* while a graph is recorded there are no values to look at */
  bool direct = t->contiguous && (t->dtype == SC_FLOAT32 || t->dtype == SC_FLOAT64);
  if (!direct) {
    SC_TRY(sc_tensor_new(c->ctx, SC_FLOAT64, t->ndim, t->dim, &packed));
    sc_status s = sc__tensor_copy(packed, t);
    if (s != SC_OK) { sc_tensor_release(packed); return s; }
    as_double = packed;
  }
  int64_t bad = 0;
  double seen = 0;
  if (as_double->dtype == SC_FLOAT32) {
    const float *v = (const float *)as_double->data;
    for (int64_t i = 0; i < t->numel; i++) bad += !(v[i] >= 0 && v[i] <= 1);
    for (int64_t i = 0; bad && i < t->numel; i++) if (!(v[i] >= 0 && v[i] <= 1)) { seen = v[i]; break; }
  } else {
    const double *v = (const double *)as_double->data;
    for (int64_t i = 0; i < t->numel; i++) bad += !(v[i] >= 0 && v[i] <= 1);
    for (int64_t i = 0; bad && i < t->numel; i++) if (!(v[i] >= 0 && v[i] <= 1)) { seen = v[i]; break; }
  }
  sc_tensor_release(packed);
  if (bad) return sc__bad_input(c, slot, "expected probabilities, from 0 to 1, got %g; for logits there is binary_cross_entropy_with_logits", seen);
  return SC_OK;
}

static sc_status bce_compose(sc_call *c) {
  reduction r;
  sc_tensor *loss;
  SC_TRY(reduction_of(c, 0, false, &r));
  SC_TRY(same_shape(c, c->in[0], c->in[1]));
  SC_TRY(probabilities(c, 0));
  SC_TRY(sc__op2(c->ctx, "bce_element", c->in[0], c->in[1], &loss));
  if (c->in[2]) SC_TRY(weigh(c, c->in[2], &loss));
  return finish(c, loss, r);
}

static sc_status bce_logits_compose(sc_call *c) {
  reduction r;
  sc_tensor *loss, *with[3] = {c->in[0], c->in[1], c->in[3]};
  SC_TRY(reduction_of(c, 0, false, &r));
  SC_TRY(same_shape(c, c->in[0], c->in[1]));
  if (c->in[3]) {
    int64_t dim[SC_MAX_DIMS];
    int n;
    char a[200], b[200];
    const sc_tensor *x = c->in[0], *w = c->in[3];
    if (!sc__broadcast(x->ndim, x->dim, w->ndim, w->dim, &n, dim) || n != x->ndim || memcmp(dim, x->dim, (size_t)n * 8) != 0)
      return sc__bad_input(c, 3, "shape %s does not broadcast to the input's shape %s", sc__shape_text(w->ndim, w->dim, b, sizeof b),
                           sc__shape_text(x->ndim, x->dim, a, sizeof a));
  }
  SC_TRY(sc__op(c->ctx, c->in[3] ? "bce_logits_weighted" : "bce_logits_element", with, c->in[3] ? 3 : 2, NULL, 0, &loss));
  if (c->in[2]) SC_TRY(weigh(c, c->in[2], &loss));
  return finish(c, loss, r);
}

static sc_status kl_compose(sc_call *c) {
  reduction r;
  sc_tensor *loss;
  SC_TRY(reduction_of(c, 0, true, &r));
  SC_TRY(same_shape(c, c->in[0], c->in[1]));
  SC_TRY(sc__op2(c->ctx, c->attr[1].i ? "kl_log_element" : "kl_element", c->in[0], c->in[1], &loss));
  return finish(c, loss, r);
}

#define REDUCTIONS "\nreduction: \"mean\", \"sum\" or \"none\". Errors: shapes differ."
const sc_op sc__ops_losses[] = {
  {"nn.functional.mse_loss(x, target, reduction: str = \"mean\")", "Squared differences." REDUCTIONS
   "\nExample: sc.nn.functional.mse_loss(sc.zeros(3), sc.ones(3))", SC_OP_FUNCTION, .compose = mse_compose},
  {"nn.functional.l1_loss(x, target, reduction: str = \"mean\")", "Absolute differences; the gradient at 0 is 0." REDUCTIONS
   "\nExample: sc.nn.functional.l1_loss(sc.zeros(3), sc.ones(3))", SC_OP_FUNCTION, .compose = l1_compose},
  {"nn.functional.smooth_l1_loss(x, target, reduction: str = \"mean\", beta: number = 1.0)",
   "(x - target)^2 / (2 beta) within beta of the target, |x - target| - beta / 2 beyond." REDUCTIONS
   "\nExample: sc.nn.functional.smooth_l1_loss(sc.zeros(3), sc.ones(3))\nSource: Girshick 2015, \"Fast R-CNN\".", SC_OP_FUNCTION,
   .compose = smooth_l1_compose},
  {"nn.functional.huber_loss(x, target, reduction: str = \"mean\", delta: number = 1.0)",
   "(x - target)^2 / 2 within delta of the target, delta (|x - target| - delta / 2) beyond." REDUCTIONS
   "\nExample: sc.nn.functional.huber_loss(sc.zeros(3), sc.ones(3))\nSource: Huber 1964, \"Robust estimation of a location parameter\".",
   SC_OP_FUNCTION, .compose = huber_compose},
  {"nn.functional.binary_cross_entropy(x, target, weight: tensor?, reduction: str = \"mean\")",
   "-target log x - (1 - target) log(1 - x) for probabilities x; logarithms are kept above -100." REDUCTIONS " A value of x outside 0 to 1."
   "\nExample: sc.nn.functional.binary_cross_entropy(sc.full({3}, 0.5), sc.ones(3))", SC_OP_FUNCTION, .compose = bce_compose},
  {"nn.functional.binary_cross_entropy_with_logits(x, target, weight: tensor?, reduction: str = \"mean\", pos_weight: tensor?)",
   "-pos_weight target log sigmoid(x) - (1 - target) log(1 - sigmoid(x)), safe for any x: a logit of -inf with target 0 costs 0." REDUCTIONS
   "\nExample: sc.nn.functional.binary_cross_entropy_with_logits(sc.zeros(3), sc.ones(3))", SC_OP_FUNCTION, .compose = bce_logits_compose},
  {"nn.functional.kl_div(x, target, reduction: str = \"mean\", log_target: bool = false)",
   "target (log target - x) for log-probabilities x; a target of 0 costs 0. log_target: the target is a logarithm too." REDUCTIONS
   " \"batchmean\" sums and divides by the first size.\nExample: sc.nn.functional.kl_div(sc.zeros(3), sc.ones(3))", SC_OP_FUNCTION,
   .compose = kl_compose},
};
#undef REDUCTIONS
const int sc__ops_losses_count = SC_COUNT(sc__ops_losses);
