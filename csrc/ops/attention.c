/* Scaled dot-product attention, softmax(scale q k' + mask) v, in blocks of query rows, so that the scores of one head at a time are all
** that is ever in memory; with `causal` the keys after the block are never touched. Kept for backward: the log of each row's sum of
** exponentials. A row with nothing to look at gives zeros. Source: Vaswani et al. 2017; Dao et al. 2022 for recomputing in backward.
**
** When the gradient will itself be differentiated, or the mask wants one, or with dropout, it is written with plain ops. */
#include "../kernels/neural.h"
#include "neural.h"

#include <math.h>
#include <string.h>

enum { ROWS = 64, SLOTS = 32, A_CAUSAL = 0, A_SCALE = 1, A_NAN_ROWS = 2 };

/* The last two dims of a tensor [heads…, rows, cols] whose columns lie side by side. */
typedef struct heads {
  sc_tensor *t;                        /* owned */
  int64_t ld;
} heads;

static sc_status heads_of(sc_tensor *t, sc_dtype type, heads *h) {
  int n = t->ndim;
  if ((sc_dtype)t->dtype == type && (sc__stride(t)[n - 1] == 1 || t->dim[n - 1] == 1) && (sc__stride(t)[n - 2] >= t->dim[n - 1] || t->dim[n - 2] == 1)) {
    h->t = sc_tensor_retain(t);
    h->ld = t->dim[n - 2] == 1 ? t->dim[n - 1] : sc__stride(t)[n - 2];
  } else {
    SC_TRY(sc__packed_as(t, type, &h->t));
    h->ld = t->dim[n - 1];
  }
  if (h->ld < 1) h->ld = 1;
  return SC_OK;
}

/* The element offset of head k. */
static int64_t head_offset(const sc_tensor *t, int64_t k) {
  int64_t off = 0;
  for (int i = t->ndim - 3; i >= 0; i--) { off += k % t->dim[i] * sc__stride(t)[i]; k /= t->dim[i]; }
  return off;
}

typedef struct job {
  sc_context *ctx;
  const sc_neural *k;
  sc_dtype type;
  int64_t L, S, E, Ev, z, n_heads, blocks, slots, per_slot, slot_bytes;
  bool causal, nan_rows;
  double scale;
  heads q, key, v, y, dy;
  const sc_tensor *mask;               /* expanded to [heads…, L, S]; NULL: none */
  char *lse, *buffer, *dq, *dk, *dv;
  sc_status status[SLOTS];
} job;

static sc_status gemm(const job *j, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const void *a, int64_t lda, const void *b, int64_t ldb,
                      bool add, void *c, int64_t ldc) {
  if (ldc < 1) ldc = 1;
  if (j->type == SC_FLOAT32) return sc__gemm_f32(j->ctx, ta, tb, m, n, k, (float)alpha, a, lda, b, ldb, add, c, ldc);
  return sc__gemm_f64(j->ctx, ta, tb, m, n, k, alpha, a, lda, b, ldb, add, c, ldc);
}

static double get(const job *j, const char *v, int64_t i) { return j->type == SC_FLOAT32 ? (double)((const float *)v)[i] : ((const double *)v)[i]; }
static void put(const job *j, char *v, int64_t i, double f) { if (j->type == SC_FLOAT32) ((float *)v)[i] = (float)f; else ((double *)v)[i] = f; }

/* A row of scores, masked: bools say what may be looked at, numbers are added. */
static void mask_row(const job *j, sc_dtype type, int64_t n, const char *mask, int64_t step, char *row) {
  int64_t z = (int64_t)sc_dtype_size(type);
  if (step == 1 && type == SC_BOOL) j->k->hide(n, (const uint8_t *)mask, row);
  else if (step == 1 && type == j->type) j->k->add(n, mask, row);
  else
    for (int64_t i = 0; i < n; i++) {
      double v = sc__load(type, mask + i * step * z).f;
      if (type != SC_BOOL) put(j, row, i, get(j, row, i) + v);
      else if (v == 0) put(j, row, i, -INFINITY);
    }
}

/* Keys that rows r0 … r1 can see. */
static int64_t visible(const job *j, int64_t r1) { return j->causal && r1 < j->S ? r1 : j->S; }

/* Scores of rows r0 … r1 of a head into s [r1 - r0, n], masked. */
static sc_status scores(const job *j, int64_t head, int64_t r0, int64_t r1, int64_t n, char *s) {
  const char *q = j->q.t->data + (head_offset(j->q.t, head) + r0 * j->q.ld) * j->z, *k = j->key.t->data + head_offset(j->key.t, head) * j->z;
  SC_TRY(gemm(j, false, true, r1 - r0, n, j->E, j->scale, q, j->q.ld, k, j->key.ld, false, s, n));
  if (j->E == 0) memset(s, 0, (size_t)((r1 - r0) * n * j->z));
  for (int64_t r = r0; r < r1; r++) {
    char *row = s + (r - r0) * n * j->z;
    if (j->mask) {
      const sc_tensor *m = j->mask;
      int64_t z = (int64_t)sc_dtype_size((sc_dtype)m->dtype), step = sc__stride(m)[m->ndim - 1];
      const char *at = m->data + (head_offset(m, head) + r * sc__stride(m)[m->ndim - 2]) * z;
      mask_row(j, (sc_dtype)m->dtype, n, at, step, row);
    }
    if (j->causal) for (int64_t i = r + 1; i < n; i++) put(j, row, i, -INFINITY);
  }
  return SC_OK;
}

/* unit: (head, block of rows) */
static sc_status forward_unit(const job *j, int64_t unit, char *s) {
  int64_t head = unit / j->blocks, r0 = unit % j->blocks * ROWS, r1 = r0 + ROWS < j->L ? r0 + ROWS : j->L, n = visible(j, r1), z = j->z;
  SC_TRY(scores(j, head, r0, r1, n, s));
  double scale[ROWS];
  for (int64_t r = r0; r < r1; r++) {
    char *row = s + (r - r0) * n * z;
    double m = j->k->max(n, row), sum = 0;
    if (m != -INFINITY) sum = j->k->exp_sum(n, row, 1, m, row);
    else {                                             /* nothing to look at; a NaN is not nothing */
      bool nan = j->nan_rows;
      for (int64_t i = 0; i < n && !nan; i++) nan = isnan(get(j, row, i));
      if (nan) sum = NAN;
      else memset(row, 0, (size_t)(n * z));
    }
    put(j, j->lse, head * j->L + r, sum == 0 ? INFINITY : (m == -INFINITY ? NAN : m) + log(sum));
    scale[r - r0] = sum == 0 ? 0 : 1 / sum;
  }
  char *y = j->y.t->data + (head * j->L + r0) * j->Ev * z;
  const char *v = j->v.t->data + head_offset(j->v.t, head) * z;
  SC_TRY(gemm(j, false, false, r1 - r0, j->Ev, n, 1, s, n > 0 ? n : 1, v, j->v.ld, false, y, j->Ev));
  for (int64_t r = r0; r < r1; r++) j->k->affine(j->Ev, y + (r - r0) * j->Ev * z, scale[r - r0], 0, y + (r - r0) * j->Ev * z);
  return SC_OK;
}

/* One head: p recomputed, dp = dy v', ds = p (dp - sum of dy y), dq = ds k, dk = ds' q, dv = p' dy */
static sc_status backward_unit(const job *j, int64_t head, char *p) {
  int64_t z = j->z;
  const char *q = j->q.t->data + head_offset(j->q.t, head) * z, *k = j->key.t->data + head_offset(j->key.t, head) * z;
  const char *v = j->v.t->data + head_offset(j->v.t, head) * z, *dy = j->dy.t->data + head_offset(j->dy.t, head) * z, *y = j->y.t->data + head_offset(j->y.t, head) * z;
  char *dp = p + ROWS * j->S * z, *dq = j->dq + head * j->L * j->E * z, *dk = j->dk + head * j->S * j->E * z, *dv = j->dv + head * j->S * j->Ev * z;
  memset(dk, 0, (size_t)(j->S * j->E * z));
  memset(dv, 0, (size_t)(j->S * j->Ev * z));
  for (int64_t r0 = 0; r0 < j->L; r0 += ROWS) {
    int64_t r1 = r0 + ROWS < j->L ? r0 + ROWS : j->L, R = r1 - r0, n = visible(j, r1), ld = n > 0 ? n : 1;
    sc__slice_look(j->ctx, 0);
    if (sc__slice_dropping(j->ctx)) return SC_OK;
    SC_TRY(scores(j, head, r0, r1, n, p));
    for (int64_t r = 0; r < R; r++) j->k->exp_scaled(n, p + r * n * z, get(j, j->lse, head * j->L + r0 + r), 1, p + r * n * z);
    SC_TRY(gemm(j, false, true, R, n, j->Ev, 1, dy + r0 * j->dy.ld * z, j->dy.ld, v, j->v.ld, false, dp, ld));
    SC_TRY(gemm(j, true, false, n, j->Ev, R, 1, p, ld, dy + r0 * j->dy.ld * z, j->dy.ld, true, dv, j->Ev));
    for (int64_t r = 0; r < R; r++) {
      double delta = j->k->dot(j->Ev, dy + (r0 + r) * j->dy.ld * z, y + (r0 + r) * j->y.ld * z);
      j->k->softmax_back(n, p + r * n * z, dp + r * n * z, delta, j->scale, dp + r * n * z);
    }
    SC_TRY(gemm(j, false, false, R, j->E, n, 1, dp, ld, k, j->key.ld, false, dq + r0 * j->E * z, j->E));
    SC_TRY(gemm(j, true, false, n, j->E, R, 1, dp, ld, q + r0 * j->q.ld * z, j->q.ld, true, dk, j->E));
  }
  return SC_OK;
}

static void forward_slots(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  for (int64_t s = begin; s < end; s++)
    for (int64_t u = s * j->per_slot; u < (s + 1) * j->per_slot && u < j->n_heads * j->blocks && j->status[s] == SC_OK; u++) {
      sc__slice_look(j->ctx, 0);
      if (!sc__slice_dropping(j->ctx)) j->status[s] = forward_unit(j, u, j->buffer + s * j->slot_bytes);
    }
}

static void backward_slots(void *arg, int64_t begin, int64_t end) {
  job *j = arg;
  for (int64_t s = begin; s < end; s++)
    for (int64_t u = s * j->per_slot; u < (s + 1) * j->per_slot && u < j->n_heads && j->status[s] == SC_OK; u++)
      j->status[s] = backward_unit(j, u, j->buffer + s * j->slot_bytes);
}

static sc_status in_slots(job *j, int64_t units, int64_t matrices, sc_range_fn fn) {
  if (units == 0) return SC_OK;
  int64_t most = j->ctx->threads > 1 && !j->ctx->slice ? SLOTS : 1, bytes;      /* under a clock: one slot, cut between its units */
  j->per_slot = (units + most - 1) / most;
  j->slots = (units + j->per_slot - 1) / j->per_slot;
  if (!sc__mul(j->S + 16, ROWS * matrices * j->z, &j->slot_bytes) || !sc__mul(j->slot_bytes, j->slots, &bytes))
    return sc__fail(j->ctx, SC_EINVAL, "scaled_dot_product_attention: too many keys");
  j->buffer = sc__alloc(j->ctx, (size_t)bytes);
  if (!j->buffer) return sc__no_memory(j->ctx, (size_t)bytes);
  double flops = (double)j->n_heads * (double)j->L * (double)j->S * (double)(j->E + j->Ev) * (double)matrices;
  sc__parallel(j->ctx, j->slots, 1, flops * 0.03 / (double)j->slots, fn, j);
  sc__release(j->ctx, j->buffer, (size_t)bytes);
  for (int64_t s = 0; s < j->slots; s++) SC_TRY(j->status[s]);
  return SC_OK;
}

static job job_of(sc_call *c, const sc_tensor *q, const sc_tensor *k, const sc_tensor *v, const sc_tensor *mask) {
  job j = {.ctx = c->ctx, .type = (sc_dtype)q->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32, .L = q->dim[q->ndim - 2], .S = k->dim[k->ndim - 2],
           .E = q->dim[q->ndim - 1], .Ev = v->dim[v->ndim - 1], .causal = c->attr[A_CAUSAL].i, .scale = c->attr[A_SCALE].f, .mask = mask};
  j.k = sc__neural(c->ctx->isa, j.type);
  j.z = (int64_t)sc_dtype_size(j.type);
  j.n_heads = sc__product(q->dim, q->ndim - 2);
  j.blocks = (j.L + ROWS - 1) / ROWS;
  return j;
}

/* ---- attention(q, k, v, mask?) -> y, lse: all with the same leading dims ---- */
static bool belong(const sc_tensor *q, const sc_tensor *k, const sc_tensor *v, const sc_tensor *m) {
  int n = q->ndim;
  bool fits = n >= 2 && k->ndim == n && v->ndim == n && (!m || m->ndim == n) && k->dim[n - 1] == q->dim[n - 1] && v->dim[n - 2] == k->dim[n - 2];
  for (int i = 0; i < n - 2 && fits; i++) fits = k->dim[i] == q->dim[i] && v->dim[i] == q->dim[i] && (!m || m->dim[i] == q->dim[i]);
  return fits && (!m || (m->dim[n - 2] == q->dim[n - 2] && m->dim[n - 1] == k->dim[n - 2]));
}

static sc_status attention_infer(sc_call *c) {
  const sc_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2], *m = c->in[3];
  int n = q->ndim;
  if (!belong(q, k, v, m)) return sc__bad_call(c, "the shapes do not belong together");
  sc__meta_like(&c->meta[0], q);
  c->meta[0].dim[n - 1] = v->dim[n - 1];
  sc__meta_set(&c->meta[1], (sc_dtype)q->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32, n - 1, q->dim);
  c->n_out = 2;
  return SC_OK;
}

static sc_status attention_run(sc_call *c) {
  job j = job_of(c, c->in[0], c->in[1], c->in[2], c->in[3]);
  j.nan_rows = c->attr[A_NAN_ROWS].i;
  sc_tensor *y = NULL;
  sc_status s = heads_of(c->in[0], j.type, &j.q);
  if (s == SC_OK) s = heads_of(c->in[1], j.type, &j.key);
  if (s == SC_OK) s = heads_of(c->in[2], j.type, &j.v);
  if (s == SC_OK) {
    if ((sc_dtype)c->out[0]->dtype == j.type) y = sc_tensor_retain(c->out[0]);
    else s = sc_tensor_new(c->ctx, j.type, c->out[0]->ndim, c->out[0]->dim, &y);
  }
  if (s == SC_OK) {
    j.y.t = y;
    j.lse = c->out[1]->data;
    s = in_slots(&j, j.n_heads * j.blocks, 1, forward_slots);
  }
  if (s == SC_OK && y->data != c->out[0]->data) s = sc__tensor_copy(c->out[0], y);
  sc_tensor_release(y);
  sc_tensor_release(j.q.t);
  sc_tensor_release(j.key.t);
  sc_tensor_release(j.v.t);
  return s;
}

/* attention_backward(inputs: dy, q, k, v, y, lse, mask?) -> dq, dk, dv */
static sc_status back_infer(sc_call *c) {
  if (c->n_in < 6 || c->n_in > 7) return sc__bad_call(c, "expected 6 or 7 tensors, got %d", c->n_in);
  const sc_tensor *q = c->in[1], *v = c->in[3], *lse = c->in[5];
  if (!belong(q, c->in[2], v, c->n_in > 6 ? c->in[6] : NULL)) return sc__bad_call(c, "the shapes do not belong together");
  int64_t y[SC_MAX_DIMS];
  memcpy(y, q->dim, (size_t)q->ndim * 8);
  y[q->ndim - 1] = v->dim[q->ndim - 1];
  SC_TRY(sc__want(c, 0, q->ndim, y));
  SC_TRY(sc__want(c, 4, q->ndim, y));
  SC_TRY(sc__want(c, 5, q->ndim - 1, q->dim));
  if (lse->dtype != (q->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32)) return sc__bad_call(c, "operand 6 has the wrong dtype");
  for (int i = 0; i < 3; i++) sc__meta_like(&c->meta[i], c->in[1 + i]);
  c->n_out = 3;
  return SC_OK;
}

static sc_status back_run(sc_call *c) {
  job j = job_of(c, c->in[1], c->in[2], c->in[3], c->n_in > 6 ? c->in[6] : NULL);
  heads *from[5] = {&j.dy, &j.q, &j.key, &j.v, &j.y};
  sc_tensor *out[3] = {0};
  sc_status s = SC_OK;
  for (int i = 0; i < 5 && s == SC_OK; i++) s = heads_of(c->in[i], j.type, from[i]);
  for (int i = 0; i < 3 && s == SC_OK; i++) {
    if ((sc_dtype)c->out[i]->dtype == j.type) out[i] = sc_tensor_retain(c->out[i]);
    else s = sc_tensor_new(c->ctx, j.type, c->out[i]->ndim, c->out[i]->dim, &out[i]);
  }
  if (s == SC_OK) {
    j.lse = c->in[5]->data;
    j.dq = out[0]->data; j.dk = out[1]->data; j.dv = out[2]->data;
    s = in_slots(&j, j.n_heads, 2, backward_slots);
  }
  for (int i = 0; i < 3; i++) {
    if (s == SC_OK && out[i]->data != c->out[i]->data) s = sc__tensor_copy(c->out[i], out[i]);
    sc_tensor_release(out[i]);
  }
  for (int i = 0; i < 5; i++) sc_tensor_release(from[i]->t);
  return s;
}

/* ---- with plain ops ---- */

/* What the rows may look at beyond the mask: bool [L, S], true on and below the diagonal. */
static sc_tensor *lower_triangle(sc_ex *e, int64_t L, int64_t S) {
  int64_t dim[2] = {L, S};
  sc_tensor *t = NULL;
  if (e->s == SC_OK) e->s = sc_tensor_new(e->ctx, SC_BOOL, 2, dim, &t);
  if (e->s != SC_OK) return NULL;
  for (int64_t i = 0; i < L; i++)
    for (int64_t k = 0; k < S; k++) ((uint8_t *)t->data)[i * S + k] = k <= i;
  return e->own[e->n++] = t;
}

static sc_tensor *where(sc_ex *e, sc_tensor *cond, sc_tensor *a, double a_number, sc_tensor *b, double b_number) {
  sc_tensor *k = NULL, *out = NULL;
  if (e->s != SC_OK || !cond) return NULL;
  e->s = sc__tensor_scalar(e->ctx, false, 0, a ? b_number : a_number, &k);
  if (e->s == SC_OK) e->s = sc__op(e->ctx, "where", (sc_tensor *[]){cond, a ? a : k, b ? b : k}, 3, NULL, 0, &out);
  sc_tensor_release(k);
  return e->s == SC_OK ? (e->own[e->n++] = out) : NULL;
}

static sc_tensor *swapped(sc_ex *e, sc_tensor *t) {
  sc_attr swap[2] = {sc__int(-1), sc__int(-2)};
  return sc__ex(e, "transpose", t, NULL, swap, 2);
}

static sc_tensor *probabilities(sc_ex *e, sc_tensor *q, sc_tensor *k, sc_tensor *mask, bool causal, double scale) {
  sc_tensor *s = sc__exn(e, "mul", sc__ex2(e, "matmul", q, swapped(e, k)), scale);
  if (mask) s = mask->dtype == SC_BOOL ? where(e, mask, s, 0, NULL, -INFINITY) : sc__ex2(e, "add", s, mask);
  if (causal) s = where(e, lower_triangle(e, q->dim[q->ndim - 2], k->dim[k->ndim - 2]), s, 0, NULL, -INFINITY);
  if (e->s != SC_OK || !s) return NULL;
  if (!mask && !(causal && k->dim[k->ndim - 2] == 0)) {
    sc_attr last[1] = {sc__int(-1)};
    return sc__ex(e, "softmax", s, NULL, last, 1);
  }
  int64_t last_dim = -1;
  sc_attr over[2] = {sc__ints(&last_dim, 1), sc__bool(true)}, last[1] = {sc__int(-1)};
  if (k->dim[k->ndim - 2] == 0) return sc__ex(e, "softmax", s, NULL, last, 1);
  sc_tensor *dead = sc__exn(e, "eq", sc__ex(e, "amax", s, NULL, over, 2), -INFINITY);
  return where(e, dead, NULL, 0, sc__ex(e, "softmax", where(e, dead, NULL, 0, s, 0), NULL, last, 1), 0);
}

static sc_status attention_backward(sc_grad_call *g) {
  sc_tensor *q = g->in[0], *k = g->in[1], *v = g->in[2], *mask = g->in[3], *dy = g->dy[0];
  if (!dy) return SC_OK;                              /* lse is for this function alone */
  if (!g->ctx->grad_enabled) {
    sc_tensor *in[7] = {dy, q, k, v, g->out[0], g->out[1], mask}, *out[3];
    int n;
    SC_TRY(sc__emit(g->ctx, sc__op_find(g->ctx, "attention_backward"), in, mask ? 7 : 6, g->attr, g->base, out, &n));
    for (int i = 0; i < 3; i++) if (g->wanted[i]) g->dx[i] = out[i]; else sc_tensor_release(out[i]);
    return SC_OK;
  }
  sc_ex e = {.ctx = g->ctx};
  int64_t last = -1;
  double scale = g->attr[A_SCALE].f;
  sc_tensor *p = probabilities(&e, q, k, mask, g->attr[A_CAUSAL].i, scale), *d[3] = {NULL};
  if (g->wanted[2]) d[2] = sc__ex2(&e, "matmul", swapped(&e, p), dy);
  if (g->wanted[0] || g->wanted[1]) {
    sc_tensor *dp = sc__ex2(&e, "matmul", dy, swapped(&e, v));
    sc_tensor *ds = sc__ex2(&e, "mul", p, sc__ex2(&e, "sub", dp, sc__ex_sum(&e, sc__ex2(&e, "mul", dp, p), &last, 1, true)));
    ds = sc__exn(&e, "mul", ds, scale);
    if (g->wanted[0]) d[0] = sc__ex2(&e, "matmul", ds, k);
    if (g->wanted[1]) d[1] = sc__ex2(&e, "matmul", swapped(&e, ds), q);
  }
  for (int i = 0; i < 3; i++) if (e.s == SC_OK && d[i]) g->dx[i] = sc_tensor_retain(d[i]);
  return sc__ex_end(&e, NULL, NULL);
}

/* ---- what people call: dropout_p 0, is_causal 1, scale 2 ---- */

/* t expanded to the leading dims `lead`; mask: its last two dims as well. new */
static sc_tensor *expanded(sc_ex *e, sc_tensor *t, int n_lead, const int64_t *lead, int64_t rows, int64_t cols) {
  int64_t dim[SC_MAX_DIMS];
  for (int i = 0; i < n_lead; i++) dim[i] = lead[i];
  dim[n_lead] = rows;
  dim[n_lead + 1] = cols;
  if (t->ndim == n_lead + 2 && memcmp(t->dim, dim, (size_t)t->ndim * 8) == 0) return t;
  return sc__ex_shape(e, "expand", t, dim, n_lead + 2);
}

static sc_status check_attention(sc_call *c, int *n_lead, int64_t *lead) {
  sc_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2], *m = c->in[3];
  char a[200], b[200];
  for (int i = 0; i < 3; i++) {
    if (!sc__is_float((sc_dtype)c->in[i]->dtype)) return sc__bad_input(c, i, "expected floats, got %s", sc_dtype_name((sc_dtype)c->in[i]->dtype));
    if (c->in[i]->ndim < 2) return sc__bad_input(c, i, "expected at least 2 dimensions, got shape %s", sc__shape_text(c->in[i]->ndim, c->in[i]->dim, a, sizeof a));
    if (c->in[i]->dtype != q->dtype)
      return sc__bad_input(c, i, "expected %s as for the query, got %s", sc_dtype_name((sc_dtype)q->dtype), sc_dtype_name((sc_dtype)c->in[i]->dtype));
  }
  if (q->dim[q->ndim - 1] != k->dim[k->ndim - 1])
    return sc__bad_input(c, 1, "query and key differ in their last size (shapes %s and %s)", sc__shape_text(q->ndim, q->dim, a, sizeof a), sc__shape_text(k->ndim, k->dim, b, sizeof b));
  if (k->dim[k->ndim - 2] != v->dim[v->ndim - 2])
    return sc__bad_input(c, 2, "key and value differ in their length (shapes %s and %s)", sc__shape_text(k->ndim, k->dim, a, sizeof a), sc__shape_text(v->ndim, v->dim, b, sizeof b));
  int64_t both[SC_MAX_DIMS];
  int n;
  if (!sc__broadcast(q->ndim - 2, q->dim, k->ndim - 2, k->dim, &n, both) || !sc__broadcast(n, both, v->ndim - 2, v->dim, n_lead, lead))
    return sc__bad_input(c, 1, "the batch dimensions do not broadcast (shapes %s and %s)", sc__shape_text(q->ndim, q->dim, a, sizeof a), sc__shape_text(k->ndim, k->dim, b, sizeof b));
  if (!m) return SC_OK;
  int64_t full[SC_MAX_DIMS], got[SC_MAX_DIMS];
  for (int i = 0; i < *n_lead; i++) full[i] = lead[i];
  full[*n_lead] = q->dim[q->ndim - 2];
  full[*n_lead + 1] = k->dim[k->ndim - 2];
  if (m->dtype != SC_BOOL && m->dtype != q->dtype)
    return sc__bad_input(c, 3, "expected bool or %s, got %s", sc_dtype_name((sc_dtype)q->dtype), sc_dtype_name((sc_dtype)m->dtype));
  if (!sc__broadcast(*n_lead + 2, full, m->ndim, m->dim, &n, got) || n != *n_lead + 2 || memcmp(got, full, (size_t)n * 8) != 0)
    return sc__bad_input(c, 3, "a mask of shape %s does not broadcast to the scores, %s", sc__shape_text(m->ndim, m->dim, a, sizeof a),
                         sc__shape_text(*n_lead + 2, full, b, sizeof b));
  return SC_OK;
}

static sc_status sdpa(sc_call *c) {
  sc_tensor *q = c->in[0], *k = c->in[1], *v = c->in[2], *m = c->in[3], *y = NULL;
  int n_lead;
  int64_t lead[SC_MAX_DIMS];
  SC_TRY(check_attention(c, &n_lead, lead));
  double dropout = c->attr[0].f;
  bool causal = c->attr[1].i;
  if (!(dropout >= 0 && dropout <= 1)) return sc__bad_attr(c, 0, "expected a probability, got %g", dropout);
  if (causal && m) return sc__bad_attr(c, 1, "is_causal and attn_mask exclude each other");
  int64_t L = q->dim[q->ndim - 2], S = k->dim[k->ndim - 2], E = q->dim[q->ndim - 1];
  double scale = sc__has(c, 2) ? c->attr[2].f : E ? 1 / sqrt((double)E) : 1;
  sc_ex e = {.ctx = c->ctx};
  if (dropout > 0 || (m && m->dtype != SC_BOOL && c->ctx->grad_enabled && sc_requires_grad(m))) {
    sc_tensor *p = probabilities(&e, q, k, m, causal, scale);
    sc_attr attr[2] = {sc__float(dropout), sc__bool(true)};
    if (dropout > 0) p = sc__ex(&e, "nn.functional.dropout", p, NULL, attr, 2);
    y = sc__ex2(&e, "matmul", p, v);
  } else {
    sc_tensor *in[4] = {expanded(&e, q, n_lead, lead, L, E), expanded(&e, k, n_lead, lead, S, E), expanded(&e, v, n_lead, lead, S, v->dim[v->ndim - 1]),
                        m ? expanded(&e, m, n_lead, lead, L, S) : NULL};
    sc_attr attr[2] = {sc__bool(causal), sc__float(scale)};
    if (e.s == SC_OK) e.s = sc__op(c->ctx, "attention", in, 4, attr, 2, &y);
    if (e.s == SC_OK) e.own[e.n++] = y;
  }
  sc_status s = sc__ex_end(&e, y, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

const sc_op sc__ops_attention[] = {
  {"attention(q, k, v, mask: tensor?, causal: bool, scale: float, nan_rows: bool = false) -> y, lse", "softmax(scale q k' + mask) v over heads of equal leading dims. nan_rows: a row with nothing to look at gives NaN, as a softmax of it does.", SC_OP_INTERNAL,
   .infer = attention_infer, .run = attention_run, .cost = sc__cost_attention, .backward = attention_backward, .saves = 15},
  {"attention_backward(inputs: tensor[], causal: bool, scale: float) -> dq, dk, dv", "attention's gradient.", SC_OP_INTERNAL, .infer = back_infer,
   .run = back_run, .no_grad = "for gradients of gradients attention writes its gradient with plain ops"},
  {"nn.functional.scaled_dot_product_attention(query, key, value, attn_mask: tensor?, dropout_p: float = 0, is_causal: bool = false, scale: float?)",
   "softmax(query key' / sqrt(E)) value.\nShapes: query [N, …, L, E]; key [N, …, S, E]; value [N, …, S, Ev]; attn_mask broadcasts to [N, …, L, S]: true means look, or a number that is added.\n"
   "is_causal: row i sees keys 1 to i. A row that may look at nothing gives zeros.\nErrors: query and key differ in E; key and value differ in S; dropout_p outside [0, 1].\n"
   "Source: Vaswani et al. 2017, \"Attention Is All You Need\", section 3.2.1.", SC_OP_FUNCTION, .compose = sdpa},
};
const int sc__ops_attention_count = SC_COUNT(sc__ops_attention);
