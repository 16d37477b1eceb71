/* Recurrent layers: one op runs a whole sequence in one direction. The input's product is one matrix product for all steps; each
** step adds the state's product and runs its gates in one loop. Gates are kept for backward, which walks the steps the other
** way and leaves the weights' gradients to one product over all steps.
**
** x [T, N, I], states [N, H], w_ih [G H, I], w_hh [G H, H], b_ih and b_hh [G H]; y [T, N, H]. G: gates, lstm 4 (i f g o), gru 3 (r z n),
** plain 1. `reverse` runs from the last step to the first. Where gradients will be differentiated, backward takes those of single steps. Source: the equations of PyTorch's LSTM, GRU and RNN. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "../kernels/neural.h"
#include "../kernels/tile.h"
#include "calc.h"
#include "neural.h"

#include <string.h>

typedef enum cell { LSTM, GRU, TANH, RELU } cell;

typedef struct layer {
  sc_context *ctx;
  const sc_neural *k;
  cell kind;
  sc_dtype type;
  int64_t T, N, I, H, G, z;
  bool reverse;
} layer;

static sc_status gemm(const layer *l, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb, bool add,
                      void *c, int64_t ldc) {
  if (lda < 1) lda = 1;
  if (ldb < 1) ldb = 1;
  if (l->type == SC_FLOAT32) return sc__gemm_f32(l->ctx, ta, tb, m, n, k, 1, a, lda, b, ldb, add, c, ldc);
  return sc__gemm_f64(l->ctx, ta, tb, m, n, k, 1, a, lda, b, ldb, add, c, ldc);
}

/* A weight that every step multiplies by: packed once where that pays (float32, a few rows), else as it is. With one sample a step is as
** fast as the weight comes, and one that is a little larger than the L2 cache would miss all of it by being read in the same order
** every time; so every other step reads it from its end (blocks of rows, each result the same sum; larger ones are worth several threads). */
enum { TURN_BYTES = 64 * 1024, TURN_MOST = 4 << 20 };
typedef struct recurrent { bool packed, backwards; sc_panels panels; const void *w; bool transposed; int64_t K, n, ld; } recurrent;

static sc_status recurrent_new(const layer *l, bool transposed, int64_t K, int64_t n, const void *w, int64_t ld, recurrent *r) {
  *r = (recurrent){.w = w, .transposed = transposed, .K = K, .n = n, .ld = ld, .packed = l->type == SC_FLOAT32 && l->N > 2 && l->N <= 128 && l->T > 2 && K > 0 && n > 0};
  return r->packed ? sc__panels_new(l->ctx, transposed, K, n, w, ld, l->N, &r->panels) : SC_OK;
}

/* One sample: c [n] = w a (+ c), w [n, K], in blocks from the first to the last or the other way. */
static sc_status recurrent_rows(const layer *l, recurrent *r, const void *a, bool add, void *c) {
  int64_t rows = TURN_BYTES / (r->ld * l->z) / 4 * 4, blocks;
  if (rows < 4) rows = 4;
  blocks = (r->n + rows - 1) / rows;
  for (int64_t b = 0; b < blocks; b++) {
    int64_t from = (r->backwards ? blocks - 1 - b : b) * rows, n = r->n - from < rows ? r->n - from : rows;
    SC_TRY(gemm(l, false, true, 1, n, r->K, a, r->K, (const char *)r->w + from * r->ld * l->z, r->ld, add, (char *)c + from * l->z, r->n));
  }
  r->backwards = !r->backwards;
  return SC_OK;
}

/* c [N, n] = a [N, K] w (+ c) */
static sc_status recurrent_times(const layer *l, recurrent *r, const void *a, bool add, void *c) {
  if (l->N == 1 && r->transposed && r->ld > 0 && r->n * r->ld * l->z <= TURN_MOST) return recurrent_rows(l, r, a, add, c);
  if (!r->packed) return gemm(l, false, r->transposed, l->N, r->n, r->K, a, r->K, r->w, r->ld, add, c, r->n);
  sc__panels_times(l->ctx, &r->panels, l->N, a, r->K, add, c, r->n);
  return SC_OK;
}

static void recurrent_free(const layer *l, recurrent *r) { if (r->packed) sc__panels_free(l->ctx, &r->panels); }

/* rows of n: y[r] = b1 + b2 (NULL: zeros). The first row is made, the others are copies. */
static void spread_bias(sc_dtype type, int64_t rows, int64_t n, const void *b1, const void *b2, void *y) {
  size_t bytes = (size_t)n * sc_dtype_size(type);
  if (rows == 0) return;
  for (int64_t i = 0; i < n; i++)
    if (type == SC_FLOAT32) ((float *)y)[i] = (b1 ? ((const float *)b1)[i] : 0) + (b2 ? ((const float *)b2)[i] : 0);
    else ((double *)y)[i] = (b1 ? ((const double *)b1)[i] : 0) + (b2 ? ((const double *)b2)[i] : 0);
  for (int64_t r = 1; r < rows; r++) memcpy((char *)y + (size_t)r * bytes, y, bytes);
}

static layer layer_of(const sc_call *c, cell kind, const sc_tensor *x, const sc_tensor *w_hh, bool reverse) {
  layer l = {.ctx = c->ctx, .kind = kind, .type = (sc_dtype)x->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32, .T = x->dim[0], .N = x->dim[1], .I = x->dim[2],
             .H = w_hh->dim[1], .G = kind == LSTM ? 4 : kind == GRU ? 3 : 1, .reverse = reverse};
  l.z = (int64_t)sc_dtype_size(l.type);
  l.k = sc__neural(c->ctx->isa, l.type);
  return l;
}

/* ---- checks: inputs x, h0, (c0,) w_ih, w_hh, bias?, bias_hh? ---- */
static sc_status check_shape(sc_call *c, int slot, int ndim, const int64_t *want) {
  const sc_tensor *t = c->in[slot];
  char a[200], b[200];
  if (!t) return SC_OK;
  if (t->dtype != c->in[0]->dtype)
    return sc__bad_input(c, slot, "expected %s as for the input, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype), sc_dtype_name((sc_dtype)t->dtype));
  if (t->ndim != ndim || memcmp(t->dim, want, (size_t)ndim * 8) != 0)
    return sc__bad_input(c, slot, "expected shape %s, got %s", sc__shape_text(ndim, want, a, sizeof a), sc__shape_text(t->ndim, t->dim, b, sizeof b));
  return SC_OK;
}

static sc_status layer_infer(sc_call *c, cell kind) {
  const sc_tensor *x = c->in[0];
  int w = 2;                                           /* the slot of w_ih */
  int64_t G = kind == LSTM ? 4 : kind == GRU ? 3 : 1, GH, H;
  char t[200];
  if (!sc__is_float((sc_dtype)x->dtype)) return sc__bad_input(c, 0, "expected floats, got %s", sc_dtype_name((sc_dtype)x->dtype));
  if (x->ndim != 3) return sc__bad_input(c, 0, "expected 3 dimensions (steps, batch, features), got shape %s", sc__shape_text(x->ndim, x->dim, t, sizeof t));
  const sc_tensor *hh = c->in[w + 1];
  if (hh->ndim != 2 || !sc__mul(hh->dim[1], G, &GH)) return sc__bad_input(c, w + 1, "expected 2 dimensions, got shape %s", sc__shape_text(hh->ndim, hh->dim, t, sizeof t));
  H = hh->dim[1];
  int64_t state[2] = {x->dim[1], H}, double_state[3] = {2, x->dim[1], H}, ih[2] = {GH, x->dim[2]}, hs[2] = {GH, H};
  if (kind == LSTM) SC_TRY(check_shape(c, 1, 3, double_state)); else SC_TRY(check_shape(c, 1, 2, state));
  SC_TRY(check_shape(c, w, 2, ih));
  SC_TRY(check_shape(c, w + 1, 2, hs));
  SC_TRY(check_shape(c, w + 2, 1, &GH));
  SC_TRY(check_shape(c, w + 3, 1, &GH));
  int64_t y[3] = {x->dim[0], x->dim[1], H};
  sc_dtype work = (sc_dtype)x->dtype == SC_FLOAT64 ? SC_FLOAT64 : SC_FLOAT32;
  sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, 3, y);
  if (kind == LSTM) sc__meta_set(&c->meta[1], (sc_dtype)x->dtype, 3, double_state);
  else sc__meta_set(&c->meta[1], (sc_dtype)x->dtype, 2, state);
  /* kept for backward, a row per step and sample. lstm: gates 4 H, c H, tanh c H; gru: 4 H; plain: nothing */
  y[2] = kind == LSTM ? 6 * H : kind == GRU ? 4 * H : 0;
  sc__meta_set(&c->meta[2], work, 3, y);
  c->n_out = 3;
  return SC_OK;
}

/* ---- forward ---- */

/* keep [T, N, 6H]: gates, then c and tanh c, as planes of the step: [N, 4H], [N, H], [N, H] */
static sc_status layer_run(sc_call *c, cell kind) {
  layer l = layer_of(c, kind, c->in[0], c->in[3], c->attr[0].i);
  sc_work w;
  int64_t GH = l.G * l.H, NH = l.N * l.H, z = l.z;
  sc_status s = sc__work_begin(&w, c, l.type, 0);
  size_t bytes = (size_t)(l.T * l.N * GH + (kind == GRU ? l.N * GH : 0) + 16) * (size_t)z;
  char *gates = s == SC_OK ? sc__alloc(c->ctx, bytes) : NULL;
  if (s == SC_OK && !gates) s = sc__no_memory(c->ctx, bytes);
  if (s != SC_OK) return sc__work_end(&w, s);
  char *hidden = gates + l.T * l.N * GH * z, *keep = w.out[2]->data, *y = w.out[0]->data;
  const char *x = w.in[0]->data, *h0 = w.in[1]->data, *ih = w.in[2]->data, *hh = w.in[3]->data, *b_ih = sc__data(w.in[4]), *b_hh = sc__data(w.in[5]);
  spread_bias(l.type, l.T * l.N, GH, b_ih, kind == GRU ? NULL : b_hh, gates);
  s = gemm(&l, false, true, l.T * l.N, GH, l.I, x, l.I, ih, l.I, true, gates, GH);
  const char *h = h0, *cell_state = h0 + NH * z;
  recurrent r = {0};
  if (s == SC_OK) s = recurrent_new(&l, true, l.H, GH, hh, l.H, &r);
  for (int64_t i = 0; i < l.T && s == SC_OK; i++) {
    int64_t t = l.reverse ? l.T - 1 - i : i;
    char *g = gates + t * l.N * GH * z, *out = y + t * NH * z, *k = keep + t * l.N * z * (kind == LSTM ? 6 * l.H : kind == GRU ? 4 * l.H : 0);
    if (kind == GRU) {
      spread_bias(l.type, l.N, GH, b_hh, NULL, hidden);
      s = recurrent_times(&l, &r, h, true, hidden);
    } else {
      s = recurrent_times(&l, &r, h, true, g);
    }
    if (s != SC_OK) break;
    char *k_c = k + 4 * NH * z, *k_tc = k + 5 * NH * z;
    for (int64_t n = 0; n < l.N; n++) {
      int64_t at = n * l.H * z;
      if (kind == LSTM) {
        memcpy(k + n * GH * z, g + n * GH * z, (size_t)(GH * z));
        l.k->lstm(l.H, k + n * GH * z, cell_state + at, k_c + at, out + at, k_tc + at);
      } else if (kind == GRU) {
        l.k->gru(l.H, g + n * GH * z, hidden + n * GH * z, h + at, out + at, k + 4 * at);
      } else {
        l.k->rnn(l.H, kind == RELU, g + n * GH * z, out + at);
      }
    }
    h = out;
    if (kind == LSTM) cell_state = k_c;
  }
  recurrent_free(&l, &r);
  if (s == SC_OK) {
    memcpy(w.out[1]->data, h, (size_t)(NH * z));
    if (kind == LSTM) memcpy(w.out[1]->data + NH * z, cell_state, (size_t)(NH * z));
  }
  sc__release(c->ctx, gates, bytes);
  return sc__work_end(&w, s);
}

/* ---- backward: inputs dy, dstate, x, state, w_ih, w_hh, y, keep as a list; results dx, dstate0, dw_ih and dw_hh side by side, db ---- */

static void column_sums(sc_dtype type, int64_t rows, int64_t n, const void *x, double *sum) {
  for (int64_t i = 0; i < n; i++) sum[i] = 0;
  for (int64_t r = 0; r < rows; r++) {
    const float *f = (const float *)x + r * n;
    const double *d = (const double *)x + r * n;
    if (type == SC_FLOAT32) for (int64_t i = 0; i < n; i++) sum[i] += (double)f[i];
    else for (int64_t i = 0; i < n; i++) sum[i] += d[i];
  }
}

static void add_to(sc_dtype type, int64_t n, const void *x, void *y) {
  if (type == SC_FLOAT32) for (int64_t i = 0; i < n; i++) ((float *)y)[i] += ((const float *)x)[i];
  else for (int64_t i = 0; i < n; i++) ((double *)y)[i] += ((const double *)x)[i];
}

enum { B_DY, B_DSTATE, B_X, B_STATE, B_IH, B_HH, B_Y, B_KEEP, B_INPUTS };

static sc_status back_infer(sc_call *c) {
  if (c->n_in != B_INPUTS) return sc__bad_call(c, "expected %d tensors, got %d", B_INPUTS, c->n_in);
  const sc_tensor *x = c->in[B_X], *state = c->in[B_STATE], *ih = c->in[B_IH], *hh = c->in[B_HH];
  int64_t kind = c->attr[1].i, G = kind == LSTM ? 4 : kind == GRU ? 3 : 1, GH, kept;
  if (x->ndim != 3 || hh->ndim != 2 || kind < 0 || kind > RELU || !sc__mul(hh->dim[1], G, &GH)) return sc__bad_call(c, "the operands are not those of a recurrent layer");
  int64_t T = x->dim[0], N = x->dim[1], H = hh->dim[1], y[3] = {T, N, H};
  SC_TRY(sc__want(c, B_IH, 2, (int64_t[]){GH, x->dim[2]}));
  SC_TRY(sc__want(c, B_HH, 2, (int64_t[]){GH, H}));
  SC_TRY(sc__want(c, B_DY, 3, y));
  SC_TRY(sc__want(c, B_Y, 3, y));
  for (int i = B_DSTATE; i <= B_STATE; i += B_STATE - B_DSTATE)
    SC_TRY(kind == LSTM ? sc__want(c, i, 3, (int64_t[]){2, N, H}) : sc__want(c, i, 2, (int64_t[]){N, H}));
  if (!sc__mul(T * N, H * (kind == LSTM ? 6 : kind == GRU ? 4 : 0), &kept) || c->in[B_KEEP]->numel < kept) return sc__bad_call(c, "what was kept has the wrong size");
  int64_t w[1] = {ih->numel + hh->numel}, b[2] = {2, ih->dim[0]};
  sc__meta_like(&c->meta[0], x);
  sc__meta_like(&c->meta[1], state);
  sc__meta_set(&c->meta[2], (sc_dtype)x->dtype, 1, w);
  sc__meta_set(&c->meta[3], (sc_dtype)x->dtype, 2, b);
  c->n_out = 4;
  return SC_OK;
}

typedef struct back {
  const layer *l;
  const char *dy, *dstate, *h0, *hh, *y, *keep;
  char *dgi, *dgh, *dh, *dc;           /* dgi, dgh [T, N, GH] (the same but for gru); dh, dc [N, H] */
} back;

/* The gates' gradients, step by step from the end; dh and dc end as the first state's. */
static sc_status back_steps(const back *b, recurrent *r) {
  const layer *l = b->l;
  int64_t GH = l->G * l->H, NH = l->N * l->H, z = l->z, kept = l->kind == LSTM ? 6 : l->kind == GRU ? 4 : 0;
  for (int64_t i = l->T - 1; i >= 0; i--) {
    int64_t t = l->reverse ? l->T - 1 - i : i, before = l->reverse ? t + 1 : t - 1;
    const char *h_old = i == 0 ? b->h0 : b->y + before * NH * z, *k = b->keep + t * kept * NH * z;
    const char *c_old = i == 0 ? b->h0 + NH * z : b->keep + (before * kept + 4) * NH * z;
    char *gi = b->dgi + t * l->N * GH * z, *gh = b->dgh + t * l->N * GH * z;
    add_to(l->type, NH, b->dy + t * NH * z, b->dh);
    for (int64_t n = 0; n < l->N; n++) {
      int64_t at = n * l->H * z;
      if (l->kind == LSTM) l->k->lstm_back(l->H, k + 4 * at, k + 5 * NH * z + at, c_old + at, b->dh + at, b->dc + at, gi + n * GH * z);
      else if (l->kind == GRU) l->k->gru_back(l->H, k + 4 * at, h_old + at, b->dh + at, gi + n * GH * z, gh + n * GH * z);
      else l->k->rnn_back(l->H, l->kind == RELU, b->y + t * NH * z + at, b->dh + at, gi + n * GH * z);
    }
    SC_TRY(recurrent_times(l, r, gh, l->kind == GRU, b->dh));
  }
  return SC_OK;
}

/* dw_hh = sum over steps of dgh[t]' h[before t]; all steps but the first are one product, as their states lie side by side in y. */
static sc_status hidden_weight(const back *b, char *dw) {
  const layer *l = b->l;
  int64_t GH = l->G * l->H, NH = l->N * l->H, z = l->z, first = l->reverse ? l->T - 1 : 0;
  SC_TRY(gemm(l, true, false, GH, l->H, l->N, b->dgh + first * l->N * GH * z, GH, b->h0, l->H, false, dw, l->H));
  if (l->T < 2) return SC_OK;
  const char *g = b->dgh + (l->reverse ? 0 : l->N * GH * z), *h = b->y + (l->reverse ? NH * z : 0);
  return gemm(l, true, false, GH, l->H, (l->T - 1) * l->N, g, GH, h, l->H, true, dw, l->H);
}

static sc_status back_products(const back *b, const char *x, const char *ih, char *dx, char *dw, double *sums, char *db) {
  const layer *l = b->l;
  int64_t GH = l->G * l->H, rows = l->T * l->N, z = l->z;
  SC_TRY(gemm(l, false, false, rows, l->I, GH, b->dgi, GH, ih, l->I, false, dx, l->I));
  SC_TRY(gemm(l, true, false, GH, l->I, rows, b->dgi, GH, x, l->I, false, dw, l->I));
  if (l->T == 0) memset(dw + GH * l->I * z, 0, (size_t)(GH * l->H * z));
  else SC_TRY(hidden_weight(b, dw + GH * l->I * z));
  for (int k = 0; k < 2; k++) {
    if (k == 0 || l->kind == GRU) column_sums(l->type, rows, GH, k ? b->dgh : b->dgi, sums);   /* the others share them */
    sc__convert(GH, l->type, db + k * GH * z, 1, SC_FLOAT64, sums, 1);
  }
  return SC_OK;
}

static sc_status back_run(sc_call *c) {
  layer l = layer_of(c, (cell)c->attr[1].i, c->in[B_X], c->in[B_HH], c->attr[0].i);
  sc_tensor *in[B_INPUTS] = {0}, *out[4] = {0};
  int64_t GH = l.G * l.H, NH = l.N * l.H, z = l.z;
  sc_status s = SC_OK;
  for (int i = 0; i < B_INPUTS && s == SC_OK; i++) s = sc__packed_as(c->in[i], l.type, &in[i]);
  for (int i = 0; i < 4 && s == SC_OK; i++) {
    if ((sc_dtype)c->out[i]->dtype == l.type) out[i] = sc_tensor_retain(c->out[i]);
    else s = sc_tensor_new(c->ctx, l.type, c->out[i]->ndim, c->out[i]->dim, &out[i]);
  }
  int64_t both = l.kind == GRU ? 2 : 1, gates = l.T * l.N * GH;
  size_t bytes = (size_t)(both * gates * z + (2 * NH + 16) * z + (GH + 8) * 8);
  char *room = s == SC_OK ? sc__alloc(c->ctx, bytes) : NULL;
  if (s == SC_OK && !room) s = sc__no_memory(c->ctx, bytes);
  if (s == SC_OK) {
    double *sums = (double *)room;
    char *from = room + (GH + 8) * 8;
    back b = {.l = &l, .dy = in[B_DY]->data, .dstate = in[B_DSTATE]->data, .h0 = in[B_STATE]->data, .hh = in[B_HH]->data, .y = in[B_Y]->data,
              .keep = in[B_KEEP]->data, .dgi = from, .dgh = from + (both - 1) * gates * z, .dh = from + both * gates * z, .dc = from + (both * gates + NH) * z};
    memcpy(b.dh, b.dstate, (size_t)(NH * z));
    if (l.kind == LSTM) memcpy(b.dc, b.dstate + NH * z, (size_t)(NH * z));
    recurrent r = {0};
    s = recurrent_new(&l, false, GH, l.H, b.hh, l.H, &r);
    if (s == SC_OK) s = back_steps(&b, &r);
    recurrent_free(&l, &r);
    if (s == SC_OK) s = back_products(&b, in[B_X]->data, in[B_IH]->data, out[0]->data, out[2]->data, sums, out[3]->data);
    if (s == SC_OK) {
      memcpy(out[1]->data, b.dh, (size_t)(NH * z));
      if (l.kind == LSTM) memcpy(out[1]->data + NH * z, b.dc, (size_t)(NH * z));
    }
  }
  if (room) sc__release(c->ctx, room, bytes);
  for (int i = 0; i < 4; i++) {
    if (s == SC_OK && out[i] && out[i]->data != c->out[i]->data) s = sc__tensor_copy(c->out[i], out[i]);
    sc_tensor_release(out[i]);
  }
  for (int i = 0; i < B_INPUTS; i++) sc_tensor_release(in[i]);
  return s;
}

/* A part of the flat weight gradient, or one of the two rows of the bias', as an input's shape. */
static sc_status part(sc_grad_call *g, sc_tensor *all, int64_t offset, int input) {
  int ndim;
  const int64_t *dim = sc__grad_shape(g, input, &ndim);
  int64_t stride[2];
  sc__contiguous_strides(ndim, dim, stride);
  sc_attr attr[3] = {sc__ints(dim, ndim), sc__ints(stride, ndim), sc__int(offset)};
  return sc__op(g->ctx, "as_strided", &all, 1, attr, 3, &g->dx[input]);
}

/* ---- gradients that are differentiated again: the layer once more as ops of single steps, and the gradients of that ---- */

/* One step: gates from the input gi [N, G H] and the state h [N, H] (lstm: c too), which are replaced. */
static sc_status step_again(sc_context *ctx, cell kind, int64_t H, sc_tensor *gi, sc_tensor *w_hh, sc_tensor *b_hh, sc_tensor **h, sc_tensor **c) {
  sc_calc k = {.ctx = ctx};
  sc_tensor *gh = sc__calc(&k, "nn.functional.linear", (sc_tensor *[]){*h, w_hh, b_hh}, 3, NULL, 0), *cell_state = NULL, *out, *done = NULL;
#define PART(of, i) sc__calc_narrow(&k, of, -1, (i) * H, H)
#define BOTH(i) sc__calc2(&k, "add", PART(gi, i), PART(gh, i))
  if (kind == LSTM) {
    sc_tensor *in = sc__calc1(&k, "sigmoid", BOTH(0)), *keep = sc__calc1(&k, "sigmoid", BOTH(1)), *new = sc__calc1(&k, "tanh", BOTH(2));
    cell_state = sc__calc2(&k, "add", sc__calc2(&k, "mul", keep, *c), sc__calc2(&k, "mul", in, new));
    out = sc__calc2(&k, "mul", sc__calc1(&k, "sigmoid", BOTH(3)), sc__calc1(&k, "tanh", cell_state));
  } else if (kind == GRU) {
    sc_tensor *r = sc__calc1(&k, "sigmoid", BOTH(0)), *z = sc__calc1(&k, "sigmoid", BOTH(1));
    sc_tensor *new = sc__calc1(&k, "tanh", sc__calc2(&k, "add", PART(gi, 2), sc__calc2(&k, "mul", r, PART(gh, 2))));
    out = sc__calc2(&k, "add", new, sc__calc2(&k, "mul", z, sc__calc2(&k, "sub", *h, new)));
  } else {
    out = sc__calc1(&k, kind == TANH ? "tanh" : "relu", sc__calc2(&k, "add", gi, gh));
  }
#undef PART
#undef BOTH
  if (cell_state) sc_tensor_retain(cell_state);
  sc_status s = sc__calc_end(&k, out, &done);
  if (s != SC_OK) { sc_tensor_release(cell_state); return s; }
  sc_tensor_release(*h);
  *h = done;
  if (kind == LSTM) { sc_tensor_release(*c); *c = cell_state; }
  return SC_OK;
}

/* y [T, N, H] and the last state, from inputs that stand for the layer's. */
static sc_status layer_again(sc_context *ctx, cell kind, bool reverse, sc_tensor **in, sc_tensor **out) {
  int64_t T = in[0]->dim[0], H = in[3]->dim[1];
  size_t bytes = (size_t)T * sizeof(sc_tensor *);
  sc_tensor *gates = NULL, *h = NULL, *c = NULL, **y = sc__alloc_zero(ctx, bytes);
  if (!y) return sc__no_memory(ctx, bytes);
  sc_status s = sc__op(ctx, "nn.functional.linear", (sc_tensor *[]){in[0], in[2], in[4]}, 3, NULL, 0, &gates);
  if (kind == LSTM) {
    if (s == SC_OK) s = sc__op(ctx, "select", &in[1], 1, (sc_attr[]){sc__int(0), sc__int(0)}, 2, &h);
    if (s == SC_OK) s = sc__op(ctx, "select", &in[1], 1, (sc_attr[]){sc__int(0), sc__int(1)}, 2, &c);
  } else {
    h = sc_tensor_retain(in[1]);
  }
  for (int64_t i = 0; i < T && s == SC_OK; i++) {
    int64_t t = reverse ? T - 1 - i : i;
    sc_tensor *gi = NULL;
    s = sc__op(ctx, "select", &gates, 1, (sc_attr[]){sc__int(0), sc__int(t)}, 2, &gi);
    if (s == SC_OK) s = step_again(ctx, kind, H, gi, in[3], in[5], &h, &c);
    sc_tensor_release(gi);
    if (s == SC_OK) y[t] = sc_tensor_retain(h);
  }
  sc_attr first = sc__int(0);
  if (s == SC_OK) s = sc__op(ctx, "stack", y, (int)T, &first, 1, &out[0]);
  if (s == SC_OK && kind == LSTM) s = sc__op(ctx, "stack", (sc_tensor *[]){h, c}, 2, &first, 1, &out[1]);
  else if (s == SC_OK) out[1] = sc_tensor_retain(h);
  for (int64_t t = 0; t < T; t++) sc_tensor_release(y[t]);
  sc__release(ctx, y, bytes);
  sc_tensor_release(gates);
  sc_tensor_release(h);
  sc_tensor_release(c);
  return s;
}

/* The inputs get headers of their own, so that two that are one tensor, or one made from another, are told apart. */
static sc_status backward_again(sc_grad_call *g, cell kind) {
  sc_context *ctx = g->ctx;
  sc_tensor *in[6] = {0}, *out[2] = {0}, *y[2], *dy[2], *x[6], *dx[6] = {0};
  int n_y = 0, n_x = 0, place[6];
  if (sc__is_symbolic(g->in[0]) && ctx->symbolic_size && ctx->symbolic_size(g->in[0]->dim[0]))
    return sc__fail(ctx, SC_EINVAL, "a recurrent layer: gradients of its gradients need a number of steps that is known");
  sc_status s = SC_OK;
  for (int i = 0; i < 6 && s == SC_OK; i++) {
    if (!g->in[i]) continue;
    sc_attr size = sc__ints(g->in[i]->dim, g->in[i]->ndim);
    s = sc__op(ctx, "view", &g->in[i], 1, &size, 1, &in[i]);
    if (s == SC_OK && g->wanted[i]) { place[n_x] = i; x[n_x++] = in[i]; }
  }
  if (s == SC_OK) s = layer_again(ctx, kind, g->attr[0].i, in, out);
  for (int i = 0; i < 2 && s == SC_OK; i++) if (g->dy[i]) { y[n_y] = out[i]; dy[n_y++] = g->dy[i]; }
  if (s == SC_OK && n_y && n_x) s = ctx->gradients(ctx, y, dy, n_y, x, n_x, dx);
  for (int i = 0; i < n_x; i++) g->dx[place[i]] = dx[i];
  for (int i = 0; i < 6; i++) sc_tensor_release(in[i]);
  for (int i = 0; i < 2; i++) sc_tensor_release(out[i]);
  return s;
}

static sc_status layer_backward(sc_grad_call *g, cell kind) {
  if (g->ctx->grad_enabled && g->in[0]->dim[0] > 0) return backward_again(g, kind);
  sc_tensor *in[B_INPUTS] = {g->dy[0], g->dy[1], g->in[0], g->in[1], g->in[2], g->in[3], g->out[0], g->out[2]}, *out[4];
  sc_attr attr[2] = {g->attr[0], sc__int(kind)};
  int n, ndim;
  SC_TRY(sc__emit(g->ctx, sc__op_find(g->ctx, "recurrent_backward"), in, B_INPUTS, attr, g->base, out, &n));
  sc_status s = SC_OK;
  for (int i = 0; i < 2; i++) if (g->wanted[i]) g->dx[i] = sc_tensor_retain(out[i]);
  const int64_t *ih = sc__grad_shape(g, 2, &ndim);
  int64_t w_numel = ih[0] * ih[1], rows = ih[0];
  if (g->wanted[2]) s = part(g, out[2], 0, 2);
  if (s == SC_OK && g->wanted[3]) s = part(g, out[2], w_numel, 3);
  if (s == SC_OK && g->wanted[4]) s = part(g, out[3], 0, 4);
  if (s == SC_OK && g->wanted[5]) s = part(g, out[3], rows, 5);
  for (int i = 0; i < 4; i++) sc_tensor_release(out[i]);
  return s;
}

#define LAYER(name, kind) \
  static sc_status name##_infer(sc_call *c) { return layer_infer(c, kind); } \
  static sc_status name##_run(sc_call *c) { return layer_run(c, kind); } \
  static sc_status name##_backward(sc_grad_call *g) { return layer_backward(g, kind); }
LAYER(lstm, LSTM) LAYER(gru, GRU) LAYER(tanh, TANH) LAYER(relu, RELU)
#undef LAYER

/* lstm_layer packs h0 and c0 into one state. */
static sc_status lstm_layer(sc_call *c) {
  sc_ex e = {.ctx = c->ctx};
  sc_tensor *state[2] = {c->in[1], c->in[2]}, *packed = NULL, *out[3] = {0};
  char a[200], b[200];
  if (state[0]->ndim != 2 || state[1]->ndim != 2 || memcmp(state[0]->dim, state[1]->dim, 16) != 0)
    return sc__bad_input(c, 2, "expected two states of the same 2 dimensions, got shapes %s and %s", sc__shape_text(state[0]->ndim, state[0]->dim, a, sizeof a),
                         sc__shape_text(state[1]->ndim, state[1]->dim, b, sizeof b));
  sc_attr dim = sc__int(0);
  e.s = sc__op(c->ctx, "stack", state, 2, &dim, 1, &packed);
  if (e.s == SC_OK) e.own[e.n++] = packed;
  sc_tensor *in[6] = {c->in[0], packed, c->in[3], c->in[4], c->in[5], c->n_in > 6 ? c->in[6] : NULL};
  int n = 0;
  if (e.s == SC_OK) e.s = sc__emit(c->ctx, sc__op_find(c->ctx, "lstm_sequence"), in, 6, c->attr, c->base, out, &n);
  for (int i = 0; i < n; i++) e.own[e.n++] = out[i];
  for (int i = 0; i < 2 && e.s == SC_OK; i++) {
    sc_attr at[2] = {sc__int(0), sc__int(i)};
    sc_tensor *t = sc__ex(&e, "select", out[1], NULL, at, 2);
    if (t) c->out[1 + i] = sc_tensor_retain(t);
  }
  if (e.s == SC_OK) c->out[0] = sc_tensor_retain(out[0]);
  sc_status s = sc__ex_end(&e, NULL, NULL);
  c->n_out = 3;
  if (s != SC_OK) for (int i = 0; i < 3; i++) { sc_tensor_release(c->out[i]); c->out[i] = NULL; }
  if (s != SC_OK) c->n_out = 0;
  return s;
}

static sc_status drop_kept(sc_call *c, const char *name) {
  int n;
  SC_TRY(sc__emit(c->ctx, sc__op_find(c->ctx, name), c->in, 6, c->attr, c->base, c->out, &n));
  sc_tensor_release(c->out[2]);
  c->out[2] = NULL;
  c->n_out = 2;
  return SC_OK;
}
static sc_status gru_layer(sc_call *c) { return drop_kept(c, "gru_sequence"); }
static sc_status tanh_layer(sc_call *c) { return drop_kept(c, "rnn_tanh_sequence"); }
static sc_status relu_layer(sc_call *c) { return drop_kept(c, "rnn_relu_sequence"); }

#define SEQUENCE(name, stem, help) \
  {name "(x, state, w_ih, w_hh, b_ih: tensor?, b_hh: tensor?, reverse: bool = false) -> y, state, kept", help, SC_OP_INTERNAL, .infer = stem##_infer, .run = stem##_run, .cost = sc__cost_recurrent, \
   .backward = stem##_backward, .saves = 63, .saves_out = 5}
#define LAYER_HELP "Shapes: x [T, N, I]; h0 [N, H]; w_ih [gates H, I]; w_hh [gates H, H]; biases [gates H]; y [T, N, H]; hT [N, H].\n" \
  "reverse: from the last step to the first."

const sc_op sc__ops_rnn[] = {
  SEQUENCE("lstm_sequence", lstm, "An LSTM over a sequence; state [2, N, H] holds h and c."),
  SEQUENCE("gru_sequence", gru, "A GRU over a sequence."),
  SEQUENCE("rnn_tanh_sequence", tanh, "A plain recurrent net with tanh over a sequence."),
  SEQUENCE("rnn_relu_sequence", relu, "A plain recurrent net with relu over a sequence."),
  {"recurrent_backward(inputs: tensor[], reverse: bool, kind: int) -> dx, dstate, dweights, dbiases", "The gradients of a recurrent layer.", SC_OP_INTERNAL,
   .infer = back_infer, .run = back_run, .cost = sc__cost_recurrent_backward, .no_grad = "gradients of gradients are those of the layer as single steps"},
  {"nn.functional.lstm_layer(x, h0, c0, w_ih, w_hh, b_ih: tensor?, b_hh: tensor?, reverse: bool = false) -> y, hT, cT",
   "One direction of one LSTM layer over a sequence; gates i f g o.\n" LAYER_HELP, SC_OP_FUNCTION, .compose = lstm_layer},
  {"nn.functional.gru_layer(x, h0, w_ih, w_hh, b_ih: tensor?, b_hh: tensor?, reverse: bool = false) -> y, hT",
   "One direction of one GRU layer over a sequence; gates r z n.\n" LAYER_HELP, SC_OP_FUNCTION, .compose = gru_layer},
  {"nn.functional.rnn_tanh_layer(x, h0, w_ih, w_hh, b_ih: tensor?, b_hh: tensor?, reverse: bool = false) -> y, hT",
   "One direction of one plain recurrent layer with tanh.\n" LAYER_HELP, SC_OP_FUNCTION, .compose = tanh_layer},
  {"nn.functional.rnn_relu_layer(x, h0, w_ih, w_hh, b_ih: tensor?, b_hh: tensor?, reverse: bool = false) -> y, hT",
   "One direction of one plain recurrent layer with relu.\n" LAYER_HELP, SC_OP_FUNCTION, .compose = relu_layer},
};
const int sc__ops_rnn_count = SC_COUNT(sc__ops_rnn);
