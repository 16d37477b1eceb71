/* CTC loss: the sum over all alignments of a target, with blanks between, to the steps of log-probabilities, in the log domain.
** Forward fills alpha [T, 2 S + 1] per sample; backward runs beta the other way. The gradient is the one that is right when the
** log-probabilities come from log_softmax, as is the custom. Source: Graves et al. 2006, "Connectionist Temporal Classification". */
#include "neural.h"

#include <math.h>
#include <string.h>

enum { C_BLANK, C_REDUCTION, C_ZERO };

typedef struct ctc {
  int64_t T, N, C, S, blank, base;     /* S: the longest target */
  sc_dtype type;
  sc_tensor *lp, *targets, *in_len, *out_len;
  bool rows;                           /* targets [N, S]; else one after the other */
  int64_t total;                       /* of targets */
} ctc;

static int64_t at64(const sc_tensor *t, int64_t i) { return ((const int64_t *)t->data)[i]; }
static double lp_at(const ctc *k, int64_t t, int64_t n, int64_t c) {
  int64_t i = (t * k->N + n) * k->C + c;
  return k->type == SC_FLOAT32 ? (double)((const float *)k->lp->data)[i] : ((const double *)k->lp->data)[i];
}

static void ctc_end(ctc *k) {
  sc_tensor_release(k->lp);
  sc_tensor_release(k->targets);
  sc_tensor_release(k->in_len);
  sc_tensor_release(k->out_len);
}

/* in: log_probs, targets, input_lengths, target_lengths. Checks what depends on the data. */
static sc_status ctc_begin(sc_call *c, sc_tensor **in, int slot, ctc *k) {
  const sc_tensor *x = in[0];
  *k = (ctc){.T = x->dim[0], .N = x->dim[1], .C = x->dim[2], .base = c->base, .type = (sc_dtype)x->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32,
             .rows = in[1]->ndim == 2, .total = in[1]->numel};
  k->blank = sc__position(c->attr[C_BLANK].i, c->base);
  SC_TRY(sc__packed_as(in[0], k->type, &k->lp));
  SC_TRY(sc__packed_as(in[1], SC_INT64, &k->targets));
  SC_TRY(sc__packed_as(in[2], SC_INT64, &k->in_len));
  SC_TRY(sc__packed_as(in[3], SC_INT64, &k->out_len));
  int64_t used = 0;
  for (int64_t n = 0; n < k->N; n++) {
    int64_t steps = at64(k->in_len, n), length = at64(k->out_len, n), room = k->rows ? in[1]->dim[1] : k->total - used;
    if (steps < 0 || steps > k->T) return sc__bad_input(c, slot + 2, "length %lld is not between 0 and the %lld steps", (long long)steps, (long long)k->T);
    if (length < 0 || length > room) return sc__bad_input(c, slot + 3, "length %lld is not between 0 and the target's %lld", (long long)length, (long long)room);
    int64_t from = k->rows ? n * in[1]->dim[1] : used;
    for (int64_t s = 0; s < length; s++) {
      int64_t v = sc__position(at64(k->targets, from + s), c->base);
      if (v < 0 || v >= k->C)
        return sc__bad_input(c, slot + 1, "class %lld is out of range for %lld classes", (long long)at64(k->targets, from + s), (long long)k->C);
    }
    used += length;
    if (length > k->S) k->S = length;
  }
  return SC_OK;
}

/* The label at position s of sample n's target with blanks between; `from`: where its target begins. */
static int64_t label(const ctc *k, int64_t from, int64_t s) { return s % 2 == 0 ? k->blank : at64(k->targets, from + s / 2) - k->base; }
static int64_t begins(const ctc *k, int64_t n, const sc_tensor *targets) {
  if (k->rows) return n * targets->dim[1];
  int64_t from = 0;
  for (int64_t i = 0; i < n; i++) from += at64(k->out_len, i);
  return from;
}

static double log_add(double a, double b) {
  if (a == -INFINITY) return b;
  if (b == -INFINITY) return a;
  double m = a > b ? a : b;
  return m + log(exp(a - m) + exp(b - m));
}

/* alpha [T, W], W = 2 length + 1; returns the negative log likelihood. */
static double forward(const ctc *k, int64_t n, int64_t from, double *alpha) {
  int64_t L = at64(k->out_len, n), W = 2 * L + 1, T = at64(k->in_len, n);
  if (T == 0) return L == 0 ? 0 : INFINITY;
  for (int64_t s = 0; s < W; s++) alpha[s] = s < 2 ? lp_at(k, 0, n, label(k, from, s)) : -INFINITY;
  for (int64_t t = 1; t < T; t++)
    for (int64_t s = 0; s < W; s++) {
      const double *old = alpha + (t - 1) * W;
      double a = old[s];
      if (s > 0) a = log_add(a, old[s - 1]);
      if (s > 1 && label(k, from, s) != k->blank && label(k, from, s) != label(k, from, s - 2)) a = log_add(a, old[s - 2]);
      alpha[t * W + s] = a + lp_at(k, t, n, label(k, from, s));
    }
  const double *last = alpha + (T - 1) * W;
  return -(W > 1 ? log_add(last[W - 1], last[W - 2]) : last[0]);
}

static double share(const ctc *k, const char *reduction, int64_t n) {   /* of sample n in the result */
  if (strcmp(reduction, "mean") != 0) return 1;
  int64_t L = at64(k->out_len, n);
  return 1.0 / (double)(L > 0 ? L : 1) / (double)k->N;
}

/* What ctc_loss has seen to; a graph that was read from a file has not. */
static sc_status ctc_operands(sc_call *c, sc_tensor **in) {
  const sc_tensor *x = in[0];
  if (x->ndim != 3 || !sc__is_float((sc_dtype)x->dtype)) return sc__bad_call(c, "expected floats [steps, batch, classes]");
  if (in[1]->ndim != 1 && !(in[1]->ndim == 2 && in[1]->dim[0] == x->dim[1])) return sc__bad_call(c, "the targets do not fit");
  for (int i = 1; i < 4; i++)
    if (sc__category((sc_dtype)in[i]->dtype) != SC_CAT_INT || (i > 1 && in[i]->numel != x->dim[1])) return sc__bad_call(c, "the lengths do not fit");
  int64_t blank = sc__position(c->attr[C_BLANK].i, c->base);
  if (blank < 0 || blank >= x->dim[2]) return sc__bad_attr(c, C_BLANK, "class %lld is out of range for %lld classes", (long long)c->attr[C_BLANK].i, (long long)x->dim[2]);
  return SC_OK;
}

static sc_status ctc_infer(sc_call *c) {
  SC_TRY(ctc_operands(c, c->in));
  const sc_tensor *x = c->in[0];
  int64_t N = x->dim[1];
  sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, strcmp(c->attr[C_REDUCTION].s, "none") == 0 ? 1 : 0, &N);
  return SC_OK;
}

static size_t table_bytes(const ctc *k) { return (size_t)k->T * (size_t)(2 * k->S + 1) * 8 + 64; }

static sc_status ctc_run(sc_call *c) {
  ctc k;
  sc_tensor *y = c->out[0];
  sc_status s = ctc_begin(c, c->in, 0, &k);
  double *alpha = s == SC_OK ? sc__alloc(c->ctx, table_bytes(&k)) : NULL, sum = 0;
  if (s == SC_OK && !alpha) s = sc__no_memory(c->ctx, table_bytes(&k));
  for (int64_t n = 0; n < k.N && s == SC_OK; n++) {
    double loss = forward(&k, n, begins(&k, n, c->in[1]), alpha);
    if (c->attr[C_ZERO].i && loss == INFINITY) loss = 0;
    if (y->ndim) sc__store((sc_dtype)y->dtype, y->data + (size_t)n * sc_dtype_size((sc_dtype)y->dtype), sc__scalar_float(loss));
    sum += loss * share(&k, c->attr[C_REDUCTION].s, n);
  }
  if (s == SC_OK && !y->ndim) sc__store((sc_dtype)y->dtype, y->data, sc__scalar_float(k.N == 0 && strcmp(c->attr[C_REDUCTION].s, "mean") == 0 ? NAN : sum));
  if (alpha) sc__release(c->ctx, alpha, table_bytes(&k));
  ctc_end(&k);
  return s;
}

static sc_status back_infer(sc_call *c) {
  SC_TRY(ctc_operands(c, c->in + 1));
  SC_TRY(sc__want(c, 0, strcmp(c->attr[C_REDUCTION].s, "none") == 0 ? 1 : 0, c->in[1]->dim + 1));
  if (!sc__is_float((sc_dtype)c->in[0]->dtype)) return sc__bad_call(c, "expected a gradient of floats");
  sc__meta_like(&c->meta[0], c->in[1]);
  return SC_OK;
}

/* dx [T, N, C] of sample n, times g; `both` [C] collects log(alpha beta) per class of a step, beta [W] two rows. */
static void backward(const ctc *k, int64_t n, int64_t from, double nll, double g, const double *alpha, double *beta, double *both, double *dx) {
  int64_t L = at64(k->out_len, n), W = 2 * L + 1, T = at64(k->in_len, n);
  for (int64_t t = T - 1; t >= 0; t--) {
    double *now = beta + (t & 1) * W, *next = beta + ((t + 1) & 1) * W;
    for (int64_t s = W - 1; s >= 0; s--) {
      double b = -INFINITY;
      if (t == T - 1) {
        if (s >= W - 2) b = 0;
      } else {
        b = next[s];
        if (s + 1 < W) b = log_add(b, next[s + 1]);
        if (s + 2 < W && label(k, from, s + 2) != k->blank && label(k, from, s) != label(k, from, s + 2)) b = log_add(b, next[s + 2]);
      }
      now[s] = b + lp_at(k, t, n, label(k, from, s));
    }
    for (int64_t c = 0; c < k->C; c++) both[c] = -INFINITY;
    for (int64_t s = 0; s < W; s++) both[label(k, from, s)] = log_add(both[label(k, from, s)], alpha[t * W + s] + now[s]);
    for (int64_t c = 0; c < k->C; c++) {
      double lp = lp_at(k, t, n, c);
      dx[(t * k->N + n) * k->C + c] = g * (exp(lp) - exp(both[c] + nll - lp));
    }
  }
}

static sc_status back_run(sc_call *c) {
  ctc k;
  sc_tensor *dy = c->in[0], *out = c->out[0];
  sc_status s = ctc_begin(c, c->in + 1, 1, &k);
  size_t bytes = table_bytes(&k) + (size_t)(2 * (2 * k.S + 1) + k.C) * 8 + (size_t)out->numel * 8 + 64;
  double *alpha = s == SC_OK ? sc__alloc_zero(c->ctx, bytes) : NULL;
  if (s == SC_OK && !alpha) s = sc__no_memory(c->ctx, bytes);
  if (s == SC_OK) {
    double *beta = alpha + table_bytes(&k) / 8, *both = beta + 2 * (2 * k.S + 1), *dx = both + k.C;
    for (int64_t n = 0; n < k.N; n++) {
      int64_t from = begins(&k, n, c->in[2]), step = dy->ndim ? sc__stride(dy)[0] : 0;
      double nll = forward(&k, n, from, alpha), g = sc__load((sc_dtype)dy->dtype, dy->data + n * step * (int64_t)sc_dtype_size((sc_dtype)dy->dtype)).f;
      if (nll == INFINITY && c->attr[C_ZERO].i) continue;
      backward(&k, n, from, nll, g * share(&k, c->attr[C_REDUCTION].s, n), alpha, beta, both, dx);
    }
    sc__convert(out->numel, (sc_dtype)out->dtype, out->data, 1, SC_FLOAT64, dx, 1);
    sc__release(c->ctx, alpha, bytes);
  }
  ctc_end(&k);
  return s;
}

static sc_status ctc_backward(sc_grad_call *g) {
  if (!g->wanted[0]) return SC_OK;
  if (g->ctx->grad_enabled) return sc__fail(g->ctx, SC_EINVAL, "ctc_loss: gradients of its gradients are not available");
  return sc__grad_op(g, "ctc_backward", (sc_tensor *[]){g->dy[0], g->in[0], g->in[1], g->in[2], g->in[3]}, 5, g->attr, 3, &g->dx[0]);
}

/* blank 0, reduction 1, zero_infinity 2 */
static sc_status ctc_loss(sc_call *c) {
  sc_tensor *x = c->in[0];
  char t[200];
  const char *r = c->attr[1].s;
  if (strcmp(r, "none") != 0 && strcmp(r, "mean") != 0 && strcmp(r, "sum") != 0) return sc__bad_attr(c, 1, "expected \"none\", \"mean\" or \"sum\", got \"%.40s\"", r);
  if (!sc__is_float((sc_dtype)x->dtype) || (x->ndim != 3 && x->ndim != 2))
    return sc__bad_input(c, 0, "expected floats [steps, batch, classes] or [steps, classes], got %s of shape %s", sc_dtype_name((sc_dtype)x->dtype), sc__shape_text(x->ndim, x->dim, t, sizeof t));
  for (int i = 1; i < 4; i++)
    if (sc__category((sc_dtype)c->in[i]->dtype) != SC_CAT_INT) return sc__bad_input(c, i, "expected integers, got %s", sc_dtype_name((sc_dtype)c->in[i]->dtype));
  int64_t N = x->ndim == 3 ? x->dim[1] : 1, C = x->dim[x->ndim - 1];
  sc_attr attr[3] = {sc__has(c, 0) ? c->attr[0] : sc__int(c->base), c->attr[1], c->attr[2]};
  if (sc__position(attr[0].i, c->base) < 0 || sc__position(attr[0].i, c->base) >= C)
    return sc__bad_attr(c, 0, "class %lld is out of range for %lld classes", (long long)attr[0].i, (long long)C);
  if (c->in[1]->ndim != 1 && !(c->in[1]->ndim == 2 && c->in[1]->dim[0] == N))
    return sc__bad_input(c, 1, "expected %lld rows or one row of all targets, got shape %s", (long long)N, sc__shape_text(c->in[1]->ndim, c->in[1]->dim, t, sizeof t));
  for (int i = 2; i < 4; i++)
    if (c->in[i]->numel != N) return sc__bad_input(c, i, "expected %lld lengths, got shape %s", (long long)N, sc__shape_text(c->in[i]->ndim, c->in[i]->dim, t, sizeof t));
  sc_ex e = {.ctx = c->ctx};
  bool single = x->ndim == 2;
  int64_t dim[3] = {x->dim[0], 1, C};
  if (single) x = sc__ex_shape(&e, "reshape", x, dim, 3);
  sc_tensor *in[4] = {x, c->in[1], c->in[2], c->in[3]}, *y = NULL;
  if (e.s == SC_OK) e.s = sc__op(c->ctx, "ctc", in, 4, attr, 3, &y);
  if (e.s == SC_OK) e.own[e.n++] = y;
  if (e.s == SC_OK && single && y->ndim) y = sc__ex_shape(&e, "reshape", y, dim, 0);
  sc_status s = sc__ex_end(&e, y, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

const sc_op sc__ops_ctc[] = {
  {"ctc(x, targets, input_lengths, target_lengths, blank: int, reduction: str, zero_infinity: bool)", "The CTC loss of a batch.", SC_OP_INTERNAL | SC_OP_SAVE_NO_OUT,
   .infer = ctc_infer, .run = ctc_run, .backward = ctc_backward},
  {"ctc_backward(dy, x, targets, input_lengths, target_lengths, blank: int, reduction: str, zero_infinity: bool)", "ctc's gradient.", SC_OP_INTERNAL, .infer = back_infer,
   .run = back_run, .no_grad = "gradients of gradients of ctc_loss are not available"},
  {"nn.functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, blank: int?, reduction: str = \"mean\", zero_infinity: bool = false)",
   "The negative log likelihood of targets over all alignments to the steps.\nShapes: log_probs [T, N, C] or [T, C]; targets [N, S] or one after the other; lengths [N].\n"
   "blank: the first class unless given. mean divides by the target's length first.\nErrors: a class or a length out of range.", SC_OP_FUNCTION, .compose = ctc_loss},
};
const int sc__ops_ctc_count = SC_COUNT(sc__ops_ctc);
