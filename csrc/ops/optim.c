/* The steps of optimisers: each row updates one parameter and its state tensors in one pass over memory.
**
** Every row takes (x, grad, states …, counter?): x is the parameter, the states have its shape and dtype, the counter is a 0-d float32
** tensor that the row itself counts up. State lives in tensors and hyperparameters in attributes, so that a recorded step is a node
** like any other. `prepare` turns attributes and counter into the numbers the kernel wants (kernels/optim_loops.h). A recorded step
** gets its hyperparameters by reference instead, so that changing one makes no new trace: `hyper` holds a float64 for each attribute
** that is a number, in their order, and the attributes are not looked at.
**
** Elements of float16 and bfloat16, and tensors that are not packed, go through packed copies; everything is allocated before the first
** write. Definitions: PyTorch's torch.optim; the papers are named in lua/sconce/optim. */
#include "../kernels/optim.h"
#include "ops.h"

#include <math.h>
#include <string.h>

typedef void (*prepare_fn)(const sc_call *c, double t, double *h);
/* n_states: state slots after x and grad; counter: whether a counter follows them. */
typedef struct step_row { int kernel, n_states; bool counter; prepare_fn prepare; } step_row;

/* Rows have `hyper` as their last input; called from C it may not be there. */
static const sc_tensor *hyper_of(const sc_call *c) { return c->n_in == c->op->n_in ? c->in[c->n_in - 1] : NULL; }
static double number(const sc_call *c, int slot) {
  const sc_tensor *h = hyper_of(c);
  return h ? ((const double *)h->data)[slot] : sc__number(&c->attr[slot]);
}
static double sign_of(const sc_call *c, int slot) { return c->attr[slot].i ? -1 : 1; }

/* ---- what the rows share ---- */

static int numbers_of(const sc_opinfo *op) {
  int n = 0;
  while (n < op->n_attr && op->param[op->attr_param[n]].type == SC_P_NUMBER) n++;
  return n;
}

static sc_status step_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  char a[200], b[200];
  sc__meta_like(&c->meta[0], x);
  if (!sc__is_float((sc_dtype)x->dtype)) return sc__bad_input(c, 0, "expected a tensor of floats, got %s", sc_dtype_name((sc_dtype)x->dtype));
  for (int i = 1; i < c->n_in; i++) {
    const sc_tensor *t = c->in[i];
    if (!t) continue;
    if (t == hyper_of(c)) {
      if (t->ndim != 1 || t->dtype != SC_FLOAT64 || !t->contiguous || t->numel != numbers_of(c->op))
        return sc__bad_input(c, i, "expected %d packed float64", numbers_of(c->op));
      continue;
    }
    if (strcmp(c->op->param[c->op->in_param[i]].name, "counter") == 0) {
      if (t->numel != 1 || t->dtype != SC_FLOAT32) return sc__bad_input(c, i, "expected one float32");
      continue;
    }
    if (t->dtype != x->dtype)
      return sc__bad_input(c, i, "expected %s as the parameter, got %s", sc_dtype_name((sc_dtype)x->dtype), sc_dtype_name((sc_dtype)t->dtype));
    if (t->ndim != x->ndim || memcmp(t->dim, x->dim, (size_t)x->ndim * 8) != 0)
      return sc__bad_input(c, i, "expected the parameter's shape %s, got %s", sc__shape_text(x->ndim, x->dim, a, sizeof a),
                           sc__shape_text(t->ndim, t->dim, b, sizeof b));
    for (int k = 0; k < i && i > 1; k++)
      if (c->in[k] && t->storage && c->in[k]->storage == t->storage && sc__tensor_may_overlap(t, c->in[k]))
        return sc__bad_input(c, i, "shares memory with another argument");
  }
  return SC_OK;
}

typedef struct pass { sc_step_fn fn; char *at[5]; int64_t size; const double *h; } pass;

static void pass_range(void *arg, int64_t begin, int64_t end) {
  const pass *p = arg;
  char *at[5];
  for (int i = 0; i < 5; i++) at[i] = p->at[i] ? p->at[i] + begin * p->size : NULL;
  p->fn(end - begin, at[0], at[1], at[2], at[3], at[4], p->h);
}

/* The same where the gradient is an outer product: it is made block by block and never stored as a whole. Blocks are cut as the pieces of
** pass_range are, so the bits are the same. */
enum { OUTER_BLOCK = 1024 };
typedef struct outer_pass { pass p; const sc_gemv_kernels *k; const char *g, *x; int64_t cols; } outer_pass;

/* Elements [at, at + n) of the product, row-major. */
static void outer_block(const outer_pass *o, int64_t at, int64_t n, char *grad) {
  int64_t z = o->p.size, row = at / o->cols, col = at % o->cols;
  while (n > 0) {
    int64_t whole = col == 0 && n >= o->cols ? n / o->cols : 1, width = whole > 1 ? o->cols : o->cols - col < n ? o->cols - col : n;
    o->k->outer(whole, width, 1, o->g + row * z, 1, o->x + col * z, 0, grad, width);
    row += whole;
    col = 0;
    grad += whole * width * z;
    n -= whole * width;
  }
}

static void outer_range(void *arg, int64_t begin, int64_t end) {
  const outer_pass *o = arg;
  _Alignas(64) char grad[OUTER_BLOCK * 8];
  for (int64_t at = begin; at < end; at += OUTER_BLOCK) {
    int64_t n = end - at < OUTER_BLOCK ? end - at : OUTER_BLOCK;
    char *to[5];
    for (int i = 0; i < 5; i++) to[i] = o->p.at[i] ? o->p.at[i] + at * o->p.size : NULL;
    outer_block(o, at, n, grad);
    o->p.fn(n, to[0], grad, to[2], to[3], to[4], o->p.h);
  }
}

static sc_status step_with(sc_call *c, const step_row *row, const sc_tensor *outer_g, const sc_tensor *outer_x) {
  sc_tensor *x = c->in[0], *packed[5] = {0};
  sc_dtype type = x->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32;
  int n = 2 + row->n_states;
  sc_tensor *counter = row->counter ? c->in[n] : NULL;
  double h[SC_STEP_HYPERS] = {0}, t = counter ? sc__load(SC_FLOAT32, counter->data).f + 1 : 0;
  pass p = {.size = (int64_t)sc_dtype_size(type), .h = h};
  sc_status s = SC_OK;
  for (int i = 0; i < n && s == SC_OK; i++) {
    sc_tensor *v = c->in[i];
    if (!v || (i == 1 && outer_g)) continue;
    if (!v->contiguous || (sc_dtype)v->dtype != type) {
      s = sc_tensor_new(c->ctx, type, v->ndim, v->dim, &packed[i]);
      if (s == SC_OK) s = sc__tensor_copy(packed[i], v);
      v = packed[i];
    }
    if (s == SC_OK) p.at[i] = v->data;
  }
  if (s == SC_OK) {
    row->prepare(c, t, h);
    p.fn = sc__step_kernel(c->ctx->isa, row->kernel, type);
    if (outer_g) {
      outer_pass o = {p, sc__gemv_kernels(c->ctx->isa, type), outer_g->data, outer_x->data, outer_x->numel};
      sc__parallel(c->ctx, x->numel, 4096, 1.0, outer_range, &o);
    } else {
      sc__parallel(c->ctx, x->numel, 4096, 1.0, pass_range, &p);
    }
    for (int i = 0; i < n; i++)
      if (packed[i] && i != 1) sc__tensor_copy(c->in[i], packed[i]);
    if (counter) sc__store(SC_FLOAT32, counter->data, sc__scalar_float(t));
  }
  for (int i = 0; i < n; i++) sc_tensor_release(packed[i]);
  return s;
}

/* ---- the rows ---- */

static void sgd_prepare(const sc_call *c, double t, double *h) {
  (void)t;
  h[0] = number(c, 0);
  h[1] = sign_of(c, 5);
  h[2] = number(c, 3);
  h[3] = number(c, 1);
  h[4] = c->attr[6].i ? 1 : 1 - number(c, 2);
  h[5] = (double)c->attr[4].i;
}

static void adam_prepare(const sc_call *c, double t, double *h) {
  double lr = number(c, 0), beta1 = number(c, 1), beta2 = number(c, 2), wd = number(c, 4);
  bool decoupled = c->attr[5].i;
  h[0] = lr;
  h[1] = sign_of(c, 6);
  h[2] = decoupled ? 0 : wd;
  h[3] = beta1;
  h[4] = beta2;
  h[5] = number(c, 3);
  h[6] = lr / (1 - pow(beta1, t));
  h[7] = sqrt(1 - pow(beta2, t));
  h[8] = decoupled ? 1 - lr * wd : 1;
  h[9] = 1 - beta1;
  h[10] = 1 - beta2;
}

static void rmsprop_prepare(const sc_call *c, double t, double *h) {
  (void)t;
  h[0] = number(c, 0);
  h[1] = sign_of(c, 5);
  h[2] = number(c, 3);
  h[3] = number(c, 1);
  h[4] = number(c, 2);
  h[5] = number(c, 4);
  h[6] = 1 - h[3];
}

static void adagrad_prepare(const sc_call *c, double t, double *h) {
  h[0] = number(c, 0);
  h[1] = sign_of(c, 4);
  h[2] = number(c, 2);
  h[3] = h[0] / (1 + (t - 1) * number(c, 1));
  h[4] = number(c, 3);
}

static void adadelta_prepare(const sc_call *c, double t, double *h) {
  (void)t;
  h[0] = number(c, 0);
  h[1] = sign_of(c, 4);
  h[2] = number(c, 3);
  h[3] = number(c, 1);
  h[4] = number(c, 2);
  h[5] = 1 - h[3];
}

static void adamax_prepare(const sc_call *c, double t, double *h) {
  h[0] = number(c, 0);
  h[1] = sign_of(c, 5);
  h[2] = number(c, 4);
  h[3] = number(c, 1);
  h[4] = number(c, 2);
  h[5] = number(c, 3);
  h[6] = h[0] / (1 - pow(h[3], t));
  h[7] = 1 - h[3];
}

/* The product of the momentum's schedule over the steps so far is worked out anew: a few hundred multiplications at most before it
** is too small to matter, and no further state. */
static void nadam_prepare(const sc_call *c, double t, double *h) {
  double lr = number(c, 0), beta1 = number(c, 1), beta2 = number(c, 2), wd = number(c, 4), decay = number(c, 5), product = 1;
  bool decoupled = c->attr[6].i;
  for (double k = 1; k <= t && product > 1e-300; k++) product *= beta1 * (1 - 0.5 * pow(0.96, k * decay));
  double mu = beta1 * (1 - 0.5 * pow(0.96, t * decay)), next = beta1 * (1 - 0.5 * pow(0.96, (t + 1) * decay));
  h[0] = lr;
  h[1] = sign_of(c, 7);
  h[2] = decoupled ? 0 : wd;
  h[3] = beta1;
  h[4] = beta2;
  h[5] = number(c, 3);
  h[6] = lr * (1 - mu) / (1 - product);
  h[7] = lr * next / (1 - product * next);
  h[8] = 1 - pow(beta2, t);
  h[9] = 1 - beta1;
  h[10] = 1 - beta2;
  h[11] = decoupled ? 1 - lr * wd : 1;
}

static void radam_prepare(const sc_call *c, double t, double *h) {
  double lr = number(c, 0), beta1 = number(c, 1), beta2 = number(c, 2), wd = number(c, 4);
  bool decoupled = c->attr[5].i;
  double limit = 2 / (1 - beta2) - 1, b2t = pow(beta2, t), rho = limit - 2 * t * b2t / (1 - b2t);
  h[0] = lr;
  h[1] = sign_of(c, 6);
  h[2] = decoupled ? 0 : wd;
  h[3] = beta1;
  h[4] = beta2;
  h[5] = number(c, 3);
  h[6] = lr / (1 - pow(beta1, t));
  h[7] = sqrt(1 - b2t);
  h[8] = rho > 5 ? sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)) : -1;
  h[9] = 1 - beta1;
  h[10] = 1 - beta2;
  h[11] = decoupled ? 1 - lr * wd : 1;
}

#define ROW(name, n_states, counter) \
  static sc_status name##_run(sc_call *c) { \
    static const step_row row = {SC_STEP_##name, n_states, counter, name##_prepare}; \
    return step_with(c, &row, NULL, NULL); \
  } \
  static sc_status name##_outer(sc_call *c, sc_tensor *g, sc_tensor *x) { \
    static const step_row row = {SC_STEP_##name, n_states, counter, name##_prepare}; \
    return step_with(c, &row, g, x); \
  }
ROW(sgd, 1, false)
ROW(adam, 3, true)
ROW(rmsprop, 3, false)
ROW(adagrad, 1, true)
ROW(adadelta, 2, false)
ROW(adamax, 2, true)
ROW(nadam, 2, true)
ROW(radam, 2, true)
#undef ROW

#define STEP(name_, writes_) \
  SC_OP_INPLACE_ONLY | SC_OP_DIRECT | SC_OP_DETACH | SC_OP_FUNCTION | SC_OP_INTERNAL, .infer = step_infer, .run = name_##_run, .run_outer = name_##_outer, .writes = writes_, \
  .no_grad = "an update of parameters has no derivative"
const sc_op sc__ops_optim[] = {
  {"sgd_step_(x, grad, momentum_buffer: tensor?, lr: number, momentum: number = 0, dampening: number = 0, weight_decay: number = 0, "
   "nesterov: bool = false, maximize: bool = false, first: bool = false, hyper: tensor?)",
   "One step of stochastic gradient descent. first: the buffer is new, so its first gradient is not dampened.", STEP(sgd, 1 << 2)},
  {"adam_step_(x, grad, exp_avg, exp_avg_sq, max_exp_avg_sq: tensor?, counter, lr: number, beta1: number, beta2: number, eps: number, "
   "weight_decay: number = 0, decoupled: bool = false, maximize: bool = false, hyper: tensor?)",
   "One step of Adam, or AdamW (decoupled).", STEP(adam, 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5)},
  {"rmsprop_step_(x, grad, square_avg, momentum_buffer: tensor?, grad_avg: tensor?, lr: number, alpha: number, eps: number, "
   "weight_decay: number = 0, momentum: number = 0, maximize: bool = false, hyper: tensor?)",
   "One step of RMSprop; grad_avg: the centered form.", STEP(rmsprop, 1 << 2 | 1 << 3 | 1 << 4)},
  {"adagrad_step_(x, grad, sum, counter, lr: number, lr_decay: number, weight_decay: number, eps: number, maximize: bool = false, hyper: tensor?)",
   "One step of Adagrad.", STEP(adagrad, 1 << 2 | 1 << 3)},
  {"adadelta_step_(x, grad, square_avg, acc_delta, lr: number, rho: number, eps: number, weight_decay: number = 0, maximize: bool = false, hyper: tensor?)",
   "One step of Adadelta.", STEP(adadelta, 1 << 2 | 1 << 3)},
  {"adamax_step_(x, grad, exp_avg, exp_inf, counter, lr: number, beta1: number, beta2: number, eps: number, weight_decay: number = 0, "
   "maximize: bool = false, hyper: tensor?)", "One step of Adamax.", STEP(adamax, 1 << 2 | 1 << 3 | 1 << 4)},
  {"nadam_step_(x, grad, exp_avg, exp_avg_sq, counter, lr: number, beta1: number, beta2: number, eps: number, weight_decay: number = 0, "
   "momentum_decay: number = 0.004, decoupled: bool = false, maximize: bool = false, hyper: tensor?)",
   "One step of NAdam.", STEP(nadam, 1 << 2 | 1 << 3 | 1 << 4)},
  {"radam_step_(x, grad, exp_avg, exp_avg_sq, counter, lr: number, beta1: number, beta2: number, eps: number, weight_decay: number = 0, "
   "decoupled: bool = false, maximize: bool = false, hyper: tensor?)", "One step of RAdam.", STEP(radam, 1 << 2 | 1 << 3 | 1 << 4)},
};
#undef STEP
const int sc__ops_optim_count = SC_COUNT(sc__ops_optim);
