/* What a call takes, about: for executors that run steps beside each other. A row with a `cost` says besides that its run may be called on
** any thread while others run: it touches its operands, memory and the thread's error text, nothing else of the context.
**
** Nanoseconds on one thread of an AMD EPYC (Zen 4, AVX-512), where a product of 128 cubed takes 38 us, one of 64 cubed 6 us, a step that moves
** 64 KB 7 us. `spread` is the part that the kernel divides among the threads by itself: loops worth 200 us, as base/thread.c has it. */
#include "ops.h"

enum { SPREAD_FROM = 200000 };

static int64_t last_size(const sc_tensor *t) { return t->ndim ? t->dim[t->ndim - 1] : 1; }

static void set(sc_cost *out, double ns) { *out = (sc_cost){ns, ns >= SPREAD_FROM ? ns : 0}; }

/* Of one product with that many multiplications; thin: an operand is a vector, so that memory sets the pace. */
static double product(sc_dtype dtype, double multiplications, bool thin) {
  double each = thin ? 0.08 : 0.018;
  return 400 + multiplications * (dtype == SC_FLOAT32 ? each : sc__is_float(dtype) ? each * 2 : 0.2);
}

static bool thin(const sc_tensor *x, const sc_tensor *out, int64_t k) {
  int64_t n = last_size(out);
  return k == 1 || n == 1 || x->ndim < 2 || out->numel == n;
}

/* matmul and its relatives: the last operands are the factors. */
void sc__cost_product(const sc_call *c, sc_cost *out) {
  const sc_tensor *x = c->in[c->n_in - 2], *y = c->out[0];
  int64_t k = last_size(x);
  set(out, product((sc_dtype)y->dtype, (double)y->numel * (double)k, thin(x, y, k)));
}

/* linear(x, weight, …) */
void sc__cost_linear(const sc_call *c, sc_cost *out) {
  const sc_tensor *x = c->in[0], *y = c->out[0];
  *out = (sc_cost){0};
  if (!sc__is_float((sc_dtype)x->dtype)) return;       /* integers add their bias by another op */
  set(out, product((sc_dtype)y->dtype, (double)y->numel * (double)last_size(x), thin(x, y, last_size(x))));
}

/* linear_dweight(g, x): a sum over all rows. */
void sc__cost_dweight(const sc_call *c, sc_cost *out) {
  const sc_tensor *x = c->in[1], *y = c->out[0];
  int64_t rows = last_size(x) ? x->numel / last_size(x) : 0;
  set(out, product((sc_dtype)y->dtype, (double)y->numel * (double)rows, rows == 1));
}

/* Convolutions and their adjoints: each element of the result (the gradient) y takes one output channel's kernel of w. */
static void convolution(sc_cost *out, const sc_tensor *y, const sc_tensor *w) {
  double each = w->dim[0] ? (double)(w->numel / w->dim[0]) : 0;
  set(out, 1000 + (double)y->numel * each * (y->dtype == SC_FLOAT32 ? 0.03 : 0.06));
}

void sc__cost_convolution(const sc_call *c, sc_cost *out) { convolution(out, c->out[0], c->in[1]); }
void sc__cost_convolution_input(const sc_call *c, sc_cost *out) { convolution(out, c->in[0], c->in[1]); }
void sc__cost_convolution_weight(const sc_call *c, sc_cost *out) { convolution(out, c->in[0], c->out[0]); }

/* A layer over a sequence: x [T, N, I], w_hh [G H, H]. The input's product is divided, the steps are not. */
static void recurrent(sc_cost *out, const sc_tensor *x, const sc_tensor *hh, double times) {
  double rows = (double)(x->dim[0] * x->dim[1]), gates = (double)hh->dim[0];
  double input = product((sc_dtype)x->dtype, rows * gates * (double)x->dim[2], rows == 1);
  double steps = rows * gates * ((double)hh->dim[1] * (x->dim[1] > 2 ? 0.02 : 0.06) + 2);
  *out = (sc_cost){times * (input + steps), input >= SPREAD_FROM ? times * input : 0};
}

void sc__cost_recurrent(const sc_call *c, sc_cost *out) { recurrent(out, c->in[0], c->in[3], 1); }
void sc__cost_recurrent_backward(const sc_call *c, sc_cost *out) { recurrent(out, c->in[2], c->in[5], 2); }

/* q [..., T, E], k [..., S, E] */
void sc__cost_attention(const sc_call *c, sc_cost *out) {
  const sc_tensor *q = c->in[0], *k = c->in[1];
  double keys = k->ndim > 1 ? (double)k->dim[k->ndim - 2] : 1;
  set(out, 1000 + (double)q->numel * keys * 0.06 + (last_size(q) ? (double)q->numel / (double)last_size(q) : 0) * keys * 0.7);
}

/* What only goes through its results, as one that picks rows. */
void sc__cost_results(const sc_call *c, sc_cost *out) {
  double bytes = 0;
  for (int i = 0; i < c->n_out; i++) bytes += (double)c->out[i]->numel * (double)sc_dtype_size((sc_dtype)c->out[i]->dtype);
  set(out, 500 + bytes * 0.2);
}

/* What goes through its operands once or twice. */
void sc__cost_bytes(const sc_call *c, sc_cost *out) {
  double bytes = 0;
  for (int i = 0; i < c->n_in; i++) if (c->in[i]) bytes += (double)c->in[i]->numel * (double)sc_dtype_size((sc_dtype)c->in[i]->dtype);
  for (int i = 0; i < c->n_out; i++) bytes += (double)c->out[i]->numel * (double)sc_dtype_size((sc_dtype)c->out[i]->dtype);
  set(out, 300 + bytes * 0.1);
}
