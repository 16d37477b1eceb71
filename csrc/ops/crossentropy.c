/* Cross entropy and negative log likelihood: losses over classes.
**
** With class indices both are linear in the log-probabilities: element i costs the sum over c of -a[i, c] logp[i, c] with
** a[i, c] = (1 - smoothing) w[t_i] (c = t_i) + smoothing / C w[c], nothing where t_i is ignored. `nll_map` is that map and `nll_map_adjoint`
** its adjoint, each the other's gradient. `cross_entropy_index` fuses it with log_softmax; its gradient is one kernel, or, when it will be
** differentiated itself, softmax and the adjoint.
**
** The classes are the second dim (the first of a single sample). Work is done on rows of C classes; other layouts are brought to it. */
#include "../kernels/neural.h"
#include "neural.h"

#include <math.h>
#include <string.h>

typedef enum reduction { RED_NONE, RED_MEAN, RED_SUM } reduction;

static sc_status reduction_of(sc_call *c, int slot, reduction *out) {
  const char *s = c->attr[slot].s;
  if (strcmp(s, "mean") == 0) *out = RED_MEAN;
  else if (strcmp(s, "sum") == 0) *out = RED_SUM;
  else if (strcmp(s, "none") == 0) *out = RED_NONE;
  else return sc__bad_attr(c, slot, "expected \"none\", \"mean\" or \"sum\", got \"%.40s\"", s);
  return SC_OK;
}

/* Attributes of every internal op here. */
enum { L_IGNORE, L_REDUCTION, L_SMOOTHING, L_SIZE };

/* What a call works on. x [N, C, inner] seen as N * inner rows. */
typedef struct losses {
  int64_t N, C, inner, rows;
  const int64_t *target;      /* [rows] */
  const char *weight;         /* [C] of `type`, or NULL */
  int64_t ignore, base;
  double smoothing, weight_sum;
  reduction red;
  sc_dtype type;
  sc_tensor *packed_target, *packed_weight;
} losses;

static double at(sc_dtype type, const void *v, int64_t i) { return type == SC_FLOAT32 ? (double)((const float *)v)[i] : ((const double *)v)[i]; }
static void set(sc_dtype type, void *v, int64_t i, double f) { if (type == SC_FLOAT32) ((float *)v)[i] = (float)f; else ((double *)v)[i] = f; }

static void sizes(losses *l, int ndim, const int64_t *dim) {
  l->N = ndim > 1 ? dim[0] : 1;
  l->C = ndim > 1 ? dim[1] : dim[0];
  l->inner = ndim > 2 ? sc__product(dim + 2, ndim - 2) : 1;
  l->rows = l->N * l->inner;
}

static sc_status begin(sc_call *c, losses *l, sc_dtype type, int ndim, const int64_t *dim, sc_tensor *target, sc_tensor *weight, int target_slot) {
  *l = (losses){.ignore = c->attr[L_IGNORE].i, .base = c->base, .smoothing = c->attr[L_SMOOTHING].f, .type = type};
  sizes(l, ndim, dim);
  SC_TRY(reduction_of(c, L_REDUCTION, &l->red));
  SC_TRY(sc__packed_as(target, SC_INT64, &l->packed_target));
  SC_TRY(sc__packed_as(weight, type, &l->packed_weight));
  l->target = (const int64_t *)l->packed_target->data;
  l->weight = sc__data(l->packed_weight);
  l->weight_sum = (double)l->C;
  if (l->weight) {
    l->weight_sum = 0;
    for (int64_t i = 0; i < l->C; i++) l->weight_sum += at(type, l->weight, i);
  }
  for (int64_t i = 0; i < l->rows; i++) {
    int64_t t = l->target[i];
    if (t == l->ignore || (t >= l->base && t < l->C + l->base)) continue;
    return sc__bad_input(c, target_slot, "class %lld is out of range for %lld classes (expected %lld to %lld, or ignore_index %lld)", (long long)t, (long long)l->C,
                         (long long)l->base, (long long)(l->C - 1 + l->base), (long long)l->ignore);
  }
  return SC_OK;
}

static void end(losses *l) {
  sc_tensor_release(l->packed_target);
  sc_tensor_release(l->packed_weight);
}

static double weight_of(const losses *l, int64_t row) {
  int64_t t = l->target[row];
  return t == l->ignore ? 0 : l->weight ? at(l->type, l->weight, t - l->base) : 1;
}

/* What the mean divides by. */
static double total_weight(const losses *l) {
  double sum = 0;
  for (int64_t i = 0; i < l->rows; i++) sum += weight_of(l, i);
  return sum;
}

/* x [N, C, inner] as packed rows: x itself when inner is 1. new */
static sc_status to_rows(sc_tensor *x, const losses *l, sc_tensor **out) {
  if (l->inner == 1) return sc__packed_as(x, l->type, out);
  sc_tensor *packed, *view;
  SC_TRY(sc__packed_as(x, l->type, &packed));
  sc_meta m = {.dtype = l->type, .ndim = 3, .dim = {l->N, l->inner, l->C}, .stride = {l->C * l->inner, 1, l->inner}};
  sc_status s = sc__tensor_view(packed, &m, &view);
  sc_tensor_release(packed);
  SC_TRY(s);
  s = sc_tensor_new(x->ctx, l->type, 3, m.dim, out);
  if (s == SC_OK) s = sc__tensor_copy(*out, view);
  sc_tensor_release(view);
  return s;
}

/* rows into y [N, C, inner], packed. */
static sc_status from_rows(sc_tensor *rows, const losses *l, sc_tensor *y) {
  if (rows == y) return SC_OK;
  sc_meta m = {.dtype = (sc_dtype)y->dtype, .ndim = 3, .dim = {l->N, l->inner, l->C}, .stride = {l->C * l->inner, 1, l->inner}};
  sc_tensor *view;
  SC_TRY(sc__tensor_view(y, &m, &view));
  sc_meta n = {.dtype = l->type, .ndim = 3, .dim = {l->N, l->inner, l->C}, .stride = {l->C * l->inner, l->C, 1}};
  sc_tensor *shaped;
  sc_status s = sc__tensor_view(rows, &n, &shaped);
  if (s == SC_OK) { s = sc__tensor_copy(view, shaped); sc_tensor_release(shaped); }
  sc_tensor_release(view);
  return s;
}

/* A buffer of rows to fill for y: y itself where that does. new */
static sc_status rows_for(sc_tensor *y, const losses *l, sc_tensor **out) {
  if (l->inner == 1 && (sc_dtype)y->dtype == l->type) { *out = sc_tensor_retain(y); return SC_OK; }
  int64_t dim[2] = {l->rows, l->C};
  return sc_tensor_new(y->ctx, l->type, 2, dim, out);
}

static sc_dtype loss_type(const sc_tensor *t) { return (sc_dtype)t->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32; }

/* Losses per row (in `each`) into the result. */
static void reduce_into(sc_call *c, const losses *l, const double *each) {
  sc_tensor *y = c->out[0];
  if (l->red == RED_NONE) { sc__convert(l->rows, (sc_dtype)y->dtype, y->data, 1, SC_FLOAT64, each, 1); return; }
  double sum = 0;
  for (int64_t i = 0; i < l->rows; i++) sum += each[i];
  if (l->red == RED_MEAN) sum /= total_weight(l);
  sc__store((sc_dtype)y->dtype, y->data, sc__scalar_float(sum));
}

/* The gradient that arrives at row i: dy, or dy / the mean's divisor. */
static double arriving(const losses *l, const sc_tensor *dy, int64_t row, double divisor) {
  const char *p = dy->data + (l->red == RED_NONE ? row : 0) * (int64_t)sc_dtype_size((sc_dtype)dy->dtype);
  double g = sc__load((sc_dtype)dy->dtype, p).f;
  return l->red == RED_MEAN ? g / divisor : g;
}

/* ---- checks shared by all ---- */
static sc_status check_sizes(sc_call *c, int ndim, const int64_t *dim, const sc_tensor *target, const sc_tensor *weight) {
  char a[200], b[200];
  if (ndim < 1) return sc__bad_input(c, 0, "expected at least 1 dimension, got a single number");
  if (target->dtype != SC_INT64 && target->dtype != SC_UINT8)
    return sc__bad_input(c, 1, "expected class indices of int64, got %s", sc_dtype_name((sc_dtype)target->dtype));
  bool fits = target->ndim == ndim - 1;
  if (ndim == 1) fits = target->ndim == 0;
  else if (fits) {
    fits = target->dim[0] == dim[0];
    for (int i = 1; i < target->ndim; i++) fits = fits && target->dim[i] == dim[i + 1];
  }
  if (!fits)
    return sc__bad_input(c, 1, "a target of shape %s does not fit an input of shape %s (the second dimension holds the classes)",
                         sc__shape_text(target->ndim, target->dim, a, sizeof a), sc__shape_text(ndim, dim, b, sizeof b));
  int64_t C = dim[ndim > 1 ? 1 : 0];
  if (weight && (weight->ndim != 1 || weight->dim[0] != C))
    return sc__bad_input(c, 2, "expected %lld weights, one per class, got shape %s", (long long)C, sc__shape_text(weight->ndim, weight->dim, a, sizeof a));
  return SC_OK;
}

static sc_status check_shapes(sc_call *c, const sc_tensor *x, const sc_tensor *target, const sc_tensor *weight) {
  if (!sc__is_float((sc_dtype)x->dtype)) return sc__bad_input(c, 0, "expected floats, got %s", sc_dtype_name((sc_dtype)x->dtype));
  return check_sizes(c, x->ndim, x->dim, target, weight);
}

static sc_status loss_meta(sc_call *c, const sc_tensor *x, const sc_tensor *target) {
  reduction red;
  SC_TRY(reduction_of(c, L_REDUCTION, &red));
  sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, red == RED_NONE ? target->ndim : 0, target->dim);
  return SC_OK;
}

/* ---- nll_map(logp, target, weight?) ---- */
static sc_status nll_infer(sc_call *c) {
  SC_TRY(check_shapes(c, c->in[0], c->in[1], c->in[2]));
  return loss_meta(c, c->in[0], c->in[1]);
}

static double row_loss(const losses *l, const char *logp, int64_t row, double shift) {
  int64_t t = l->target[row];
  if (t == l->ignore) return 0;
  double w = weight_of(l, row), loss = 0;
  if (l->smoothing != 1) loss = -(1 - l->smoothing) * w * (at(l->type, logp, t - l->base) - shift);
  if (l->smoothing == 0) return loss;
  double smooth = 0;
  for (int64_t k = 0; k < l->C; k++) smooth -= (l->weight ? at(l->type, l->weight, k) : 1) * (at(l->type, logp, k) - shift);
  return loss + l->smoothing / (double)l->C * smooth;
}

static sc_status nll_run(sc_call *c) {
  losses l;
  sc_tensor *x = NULL;
  double *each = NULL;
  sc_status s = begin(c, &l, loss_type(c->in[0]), c->in[0]->ndim, c->in[0]->dim, c->in[1], c->in[2], 1);
  if (s == SC_OK) s = to_rows(c->in[0], &l, &x);
  if (s == SC_OK && !(each = sc__alloc(c->ctx, (size_t)l.rows * 8 + 8))) s = sc__no_memory(c->ctx, (size_t)l.rows * 8);
  if (s == SC_OK) {
    size_t z = sc_dtype_size(l.type);
    for (int64_t i = 0; i < l.rows; i++) each[i] = row_loss(&l, x->data + (size_t)(i * l.C) * z, i, 0);
    reduce_into(c, &l, each);
  }
  if (each) sc__release(c->ctx, each, (size_t)l.rows * 8 + 8);
  sc_tensor_release(x);
  end(&l);
  return s;
}

static sc_status nll_adjoint_infer(sc_call *c) {
  if (!sc__is_float((sc_dtype)c->in[0]->dtype)) return sc__bad_input(c, 0, "expected floats, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype));
  SC_TRY(check_sizes(c, c->attr[L_SIZE].n, c->attr[L_SIZE].v, c->in[1], c->in[2]));
  SC_TRY(loss_meta(c, c->in[0], c->in[1]));
  SC_TRY(sc__want(c, 0, c->meta[0].ndim, c->meta[0].dim));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->attr[L_SIZE].n, c->attr[L_SIZE].v);
  return SC_OK;
}

static sc_status nll_adjoint_run(sc_call *c) {
  losses l;
  sc_tensor *rows = NULL, *dy = NULL;
  sc_status s = begin(c, &l, loss_type(c->in[0]), c->attr[L_SIZE].n, c->attr[L_SIZE].v, c->in[1], c->in[2], 1);
  if (s == SC_OK) s = rows_for(c->out[0], &l, &rows);
  if (s == SC_OK) s = sc__packed_as(c->in[0], (sc_dtype)c->in[0]->dtype, &dy);
  if (s == SC_OK) {
    double divisor = l.red == RED_MEAN ? total_weight(&l) : 1;
    for (int64_t i = 0; i < l.rows; i++) {
      char *d = rows->data + (size_t)(i * l.C) * sc_dtype_size(l.type);
      bool ignored = l.target[i] == l.ignore;
      double g = ignored ? 0 : arriving(&l, dy, i, divisor);
      for (int64_t k = 0; k < l.C; k++)
        set(l.type, d, k, ignored || l.smoothing == 0 ? 0 : -g * l.smoothing / (double)l.C * (l.weight ? at(l.type, l.weight, k) : 1));
      if (ignored) continue;
      int64_t t = l.target[i] - l.base;
      set(l.type, d, t, at(l.type, d, t) - g * (1 - l.smoothing) * weight_of(&l, i));
    }
    s = from_rows(rows, &l, c->out[0]);
  }
  sc_tensor_release(dy);
  sc_tensor_release(rows);
  end(&l);
  return s;
}

/* ---- cross_entropy_index(x, target, weight?) -> loss, stats; stats [rows, 2]: the maximum and the log of the sum of exp(x - max) ---- */
static sc_status ce_infer(sc_call *c) {
  losses l;
  SC_TRY(check_shapes(c, c->in[0], c->in[1], c->in[2]));
  SC_TRY(loss_meta(c, c->in[0], c->in[1]));
  sizes(&l, c->in[0]->ndim, c->in[0]->dim);
  int64_t dim[2] = {l.rows, 2};
  sc__meta_set(&c->meta[1], loss_type(c->in[0]), 2, dim);
  c->n_out = 2;
  return SC_OK;
}

typedef struct ce_job {
  const sc_neural *k;
  const losses *l;
  const char *x;
  char *stats, *dx;
  double *each;
  const sc_tensor *dy;
  double divisor;
} ce_job;

static void ce_rows(void *arg, int64_t begin_row, int64_t end_row) {
  const ce_job *j = arg;
  const losses *l = j->l;
  for (int64_t i = begin_row; i < end_row; i++) {
    const char *x = j->x + (size_t)(i * l->C) * sc_dtype_size(l->type);
    double m = j->k->max(l->C, x), shift = isinf(m) ? 0 : m, ls = log(j->k->exp_sum(l->C, x, 1, shift, NULL));
    set(l->type, j->stats, 2 * i, shift);
    set(l->type, j->stats, 2 * i + 1, ls);
    j->each[i] = row_loss(l, x, i, shift + ls);
  }
}

static sc_status ce_run(sc_call *c) {
  losses l;
  sc_tensor *x = NULL;
  double *each = NULL;
  sc_status s = begin(c, &l, loss_type(c->in[0]), c->in[0]->ndim, c->in[0]->dim, c->in[1], c->in[2], 1);
  if (s == SC_OK) s = to_rows(c->in[0], &l, &x);
  if (s == SC_OK && !(each = sc__alloc(c->ctx, (size_t)l.rows * 8 + 8))) s = sc__no_memory(c->ctx, (size_t)l.rows * 8);
  if (s == SC_OK) {
    ce_job j = {.k = sc__neural(c->ctx->isa, l.type), .l = &l, .x = x->data, .stats = c->out[1]->data, .each = each};
    sc__parallel(c->ctx, l.rows, 16, (double)l.C * 1.0 + 20, ce_rows, &j);
    reduce_into(c, &l, each);
  }
  if (each) sc__release(c->ctx, each, (size_t)l.rows * 8 + 8);
  sc_tensor_release(x);
  end(&l);
  return s;
}

static sc_status ce_back_infer(sc_call *c) {
  losses l;
  const sc_tensor *x = c->in[1];
  SC_TRY(check_shapes(c, x, c->in[2], c->in[4]));
  SC_TRY(loss_meta(c, x, c->in[2]));
  SC_TRY(sc__want(c, 0, c->meta[0].ndim, c->meta[0].dim));
  sizes(&l, x->ndim, x->dim);
  SC_TRY(sc__want(c, 3, 2, (int64_t[]){l.rows, 2}));
  if (c->in[3]->dtype != loss_type(x)) return sc__bad_input(c, 3, "has the wrong dtype");
  sc__meta_like(&c->meta[0], x);
  return SC_OK;
}

/* dx = g (p * sum of a - a) */
static void ce_back_rows(void *arg, int64_t begin_row, int64_t end_row) {
  const ce_job *j = arg;
  const losses *l = j->l;
  size_t z = sc_dtype_size(l->type);
  for (int64_t i = begin_row; i < end_row; i++) {
    char *d = j->dx + (size_t)(i * l->C) * z;
    if (l->target[i] == l->ignore) { memset(d, 0, (size_t)l->C * z); continue; }
    double g = arriving(l, j->dy, i, j->divisor), w = weight_of(l, i), e = l->smoothing / (double)l->C;
    double a = (1 - l->smoothing) * w + e * l->weight_sum;
    j->k->exp_scaled(l->C, j->x + (size_t)(i * l->C) * z, at(l->type, j->stats, 2 * i),
                     g * a * exp(-at(l->type, j->stats, 2 * i + 1)), d);
    if (e != 0) for (int64_t k = 0; k < l->C; k++) set(l->type, d, k, at(l->type, d, k) - g * e * (l->weight ? at(l->type, l->weight, k) : 1));
    int64_t t = l->target[i] - l->base;
    set(l->type, d, t, at(l->type, d, t) - g * (1 - l->smoothing) * w);
  }
}

static sc_status ce_back_run(sc_call *c) {
  losses l;
  sc_tensor *x = NULL, *rows = NULL, *dy = NULL;
  sc_status s = begin(c, &l, loss_type(c->in[1]), c->in[1]->ndim, c->in[1]->dim, c->in[2], c->in[4], 2);
  if (s == SC_OK) s = to_rows(c->in[1], &l, &x);
  if (s == SC_OK) s = rows_for(c->out[0], &l, &rows);
  if (s == SC_OK) s = sc__packed_as(c->in[0], (sc_dtype)c->in[0]->dtype, &dy);
  if (s == SC_OK) {
    ce_job j = {.k = sc__neural(c->ctx->isa, l.type), .l = &l, .x = x->data, .stats = c->in[3]->data, .dx = rows->data, .dy = dy,
                .divisor = l.red == RED_MEAN ? total_weight(&l) : 1};
    sc__parallel(c->ctx, l.rows, 16, (double)l.C * 1.0 + 20, ce_back_rows, &j);
    s = from_rows(rows, &l, c->out[0]);
  }
  sc_tensor_release(dy);
  sc_tensor_release(rows);
  sc_tensor_release(x);
  end(&l);
  return s;
}

static sc_status ce_backward(sc_grad_call *g) {
  sc_tensor *x = g->in[0];
  if (!g->wanted[0]) return SC_OK;
  if (!g->ctx->grad_enabled)
    return sc__grad_op(g, "cross_entropy_backward", (sc_tensor *[]){g->dy[0], x, g->in[1], g->out[1], g->in[2]}, 5, g->attr, 3, &g->dx[0]);
  sc_ex e = {.ctx = g->ctx};
  int64_t dim = x->ndim > 1 ? 1 : 0;
  sc_attr over[2] = {sc__int(dim), sc__none()}, attr[4] = {g->attr[0], g->attr[1], g->attr[2], sc__ints(x->dim, x->ndim)};
  sc_tensor *p = sc__ex(&e, "softmax", x, NULL, over, 1), *a = NULL;
  if (e.s == SC_OK) e.s = sc__grad_op(g, "nll_map_adjoint", (sc_tensor *[]){g->dy[0], g->in[1], g->in[2]}, 3, attr, 4, &a);
  if (e.s == SC_OK) e.own[e.n++] = a;
  sc_tensor *dx = a ? sc__ex2(&e, "sub", a, sc__ex2(&e, "mul", p, sc__ex_sum(&e, a, &dim, 1, true))) : NULL;
  return sc__ex_end(&e, dx, &g->dx[0]);
}

/* ---- what people call ---- */

/* nll_loss: ignore_index 0, reduction 1 */
static sc_status nll_loss(sc_call *c) {
  reduction red;
  SC_TRY(reduction_of(c, 1, &red));
  SC_TRY(check_shapes(c, c->in[0], c->in[1], c->in[2]));
  sc_attr attr[3] = {c->attr[0], c->attr[1], sc__float(0)};
  SC_TRY(sc__op(c->ctx, "nll_map", c->in, 3, attr, 3, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

/* Targets that are probabilities: -sum of w t' logp with t' = (1 - smoothing) t + smoothing / C; a class ruled out by a logit of -inf costs
** nothing where t' is 0. */
static sc_status soft_targets(sc_call *c, reduction red) {
  sc_tensor *x = c->in[0], *t = c->in[1], *w = c->in[2];
  int64_t dim = x->ndim > 1 ? 1 : 0, C = x->dim[dim], shape[SC_MAX_DIMS], N = C ? x->numel / C : 0;
  double smoothing = c->attr[2].f;
  sc_ex e = {.ctx = c->ctx};
  sc_attr over[1] = {sc__int(dim)};
  sc_tensor *logp = sc__ex(&e, "log_softmax", x, NULL, over, 1), *zero = NULL, *cost = NULL, *in[3];
  if (smoothing > 0) t = sc__exn(&e, "add", sc__exn(&e, "mul", t, 1 - smoothing), smoothing / (double)(C ? C : 1));
  in[0] = sc__ex2(&e, "logical_and", sc__exn(&e, "eq", t, 0), sc__exn(&e, "eq", logp, -INFINITY));
  if (e.s == SC_OK) e.s = sc__tensor_scalar(c->ctx, false, 0, 0, &zero);
  if (e.s == SC_OK) e.own[e.n++] = zero;
  in[1] = zero; in[2] = logp;
  if (e.s == SC_OK) e.s = sc__op(c->ctx, "where", in, 3, NULL, 0, &cost);
  if (e.s == SC_OK) e.own[e.n++] = cost;
  sc_tensor *kept = sc__ex2(&e, "mul", t, cost);
  if (w && kept) {
    for (int i = 0; i < x->ndim; i++) shape[i] = i == dim ? C : 1;
    kept = sc__ex2(&e, "mul", kept, sc__ex_shape(&e, "reshape", w, shape, x->ndim));
  }
  sc_tensor *y = NULL;
  if (e.s == SC_OK) {
    if (red == RED_NONE) y = sc__ex1(&e, "neg", sc__ex_sum(&e, kept, &dim, 1, false));
    else y = sc__ex1(&e, "neg", sc__ex1(&e, "sum", kept));
    if (red == RED_MEAN) y = sc__exn(&e, "div", y, (double)N);
  }
  sc_status s = sc__ex_end(&e, y, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

/* cross_entropy: ignore_index 0, reduction 1, label_smoothing 2 */
static sc_status cross_entropy(sc_call *c) {
  sc_tensor *x = c->in[0], *t = c->in[1], *w = c->in[2];
  char a[200];
  reduction red;
  SC_TRY(reduction_of(c, 1, &red));
  double smoothing = c->attr[2].f;
  if (!(smoothing >= 0 && smoothing <= 1)) return sc__bad_attr(c, 2, "expected a number between 0 and 1, got %g", smoothing);
  if (x->ndim >= 1 && t->ndim == x->ndim && memcmp(t->dim, x->dim, (size_t)x->ndim * 8) == 0) {
    if (!sc__is_float((sc_dtype)x->dtype)) return sc__bad_input(c, 0, "expected floats, got %s", sc_dtype_name((sc_dtype)x->dtype));
    if (!sc__is_float((sc_dtype)t->dtype))
      return sc__bad_input(c, 1, "a target of the input's shape holds probabilities and must be of floats, got %s", sc_dtype_name((sc_dtype)t->dtype));
    if (c->attr[0].i >= 0) return sc__bad_attr(c, 0, "ignore_index goes with class indices, not with probabilities");
    int64_t C = x->dim[x->ndim > 1 ? 1 : 0];
    if (w && (w->ndim != 1 || w->dim[0] != C))
      return sc__bad_input(c, 2, "expected %lld weights, one per class, got shape %s", (long long)C, sc__shape_text(w->ndim, w->dim, a, sizeof a));
    return soft_targets(c, red);
  }
  SC_TRY(check_shapes(c, x, t, w));
  sc_attr attr[3] = {c->attr[0], c->attr[1], c->attr[2]};
  SC_TRY(sc__op(c->ctx, "cross_entropy_index", c->in, 3, attr, 3, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

const sc_op sc__ops_crossentropy[] = {
  {"nll_map(x, target, weight: tensor?, ignore_index: int, reduction: str, smoothing: float)", "The loss of log-probabilities, linear in them.", SC_OP_INTERNAL,
   .infer = nll_infer, .run = nll_run, .grad = {"nll_map_adjoint(dy, target, weight, ignore_index, reduction, smoothing, shape(x))"}},
  {"nll_map_adjoint(x, target, weight: tensor?, ignore_index: int, reduction: str, smoothing: float, size: int[])", "nll_map's adjoint.", SC_OP_INTERNAL,
   .infer = nll_adjoint_infer, .run = nll_adjoint_run, .grad = {"nll_map(dy, target, weight, ignore_index, reduction, smoothing)"}},
  {"cross_entropy_index(x, target, weight: tensor?, ignore_index: int, reduction: str, smoothing: float) -> loss, stats",
   "log_softmax and nll_map in one.", SC_OP_INTERNAL, .infer = ce_infer, .run = ce_run, .backward = ce_backward, .saves = 7, .saves_out = 2},
  {"cross_entropy_backward(dy, x, target, stats, weight: tensor?, ignore_index: int, reduction: str, smoothing: float)", "cross_entropy_index' gradient.",
   SC_OP_INTERNAL, .infer = ce_back_infer, .run = ce_back_run, .no_grad = "for gradients of gradients cross_entropy_index writes its gradient with plain ops"},
  {"nn.functional.nll_loss(x, target, weight: tensor?, ignore_index: int = -100, reduction: str = \"mean\")",
   "Negative log likelihood of log-probabilities x for class indices.\nShapes: x [C], [N, C] or [N, C, …]; target [], [N] or [N, …]; weight [C].\n"
   "Errors: a class outside 1 … C that is not ignore_index.\nExample: sc.nn.functional.nll_loss(x:log_softmax(2), sc.tensor{1, 3})", SC_OP_FUNCTION,
   .compose = nll_loss},
  {"nn.functional.cross_entropy(x, target, weight: tensor?, ignore_index: int = -100, reduction: str = \"mean\", label_smoothing: float = 0)",
   "Cross entropy of logits x with class indices, or with probabilities of x's shape.\nShapes: x [C], [N, C] or [N, C, …]; target without C, or x's shape; weight [C].\n"
   "Errors: a class outside 1 … C that is not ignore_index.\nExample: sc.nn.functional.cross_entropy(logits, sc.tensor{1, 3})", SC_OP_FUNCTION, .compose = cross_entropy},
};
const int sc__ops_crossentropy_count = SC_COUNT(sc__ops_crossentropy);
