/* Shared by the families of neural-network ops: the type a kernel computes in, packed inputs of that type, spatial sizes. */
#ifndef SC_NEURAL_H
#define SC_NEURAL_H

#include "ops.h"

/* Halves compute in float32, integers in int64. */
static inline sc_dtype sc__work_dtype(sc_dtype d) {
  return d == SC_FLOAT64 ? SC_FLOAT64 : sc__is_float(d) ? SC_FLOAT32 : SC_INT64;
}

/* new: t itself when it is packed and of that dtype, else a packed, converted copy. NULL for NULL. */
static inline sc_status sc__packed_as(sc_tensor *t, sc_dtype dtype, sc_tensor **out) {
  *out = NULL;
  if (!t) return SC_OK;
  if (t->contiguous && (sc_dtype)t->dtype == dtype) { *out = sc_tensor_retain(t); return SC_OK; }
  sc_tensor *copy;
  SC_TRY(sc_tensor_new(t->ctx, dtype, t->ndim, t->dim, &copy));
  sc_status s = sc__tensor_copy(copy, t);
  if (s != SC_OK) { sc_tensor_release(copy); return s; }
  *out = copy;
  return SC_OK;
}

/* A call's inputs packed in the type of the work, and results to write into: the call's own, or wide ones copied back by
** `sc__work_end`, which also lets go of everything (call it after a failure too). */
typedef struct sc_work {
  sc_call *c;
  sc_dtype type;
  sc_tensor *in[SC_MAX_INPUTS], *out[SC_MAX_OUTPUTS];
} sc_work;

/* keep: bits of inputs left as they are (indices, statistics written in place); they are found in c->in only. */
static inline sc_status sc__work_begin(sc_work *w, sc_call *c, sc_dtype type, uint32_t keep) {
  *w = (sc_work){.c = c, .type = type};
  for (int i = 0; i < c->n_in; i++)
    if (!(keep >> i & 1)) SC_TRY(sc__packed_as(c->in[i], type, &w->in[i]));
  for (int i = 0; i < c->n_out; i++) {
    sc_tensor *o = c->out[i];
    if ((sc_dtype)o->dtype == type || (type != SC_INT64 && !sc__is_float((sc_dtype)o->dtype))) w->out[i] = sc_tensor_retain(o);   /* positions stay as they are */
    else SC_TRY(sc_tensor_new(c->ctx, type, o->ndim, o->dim, &w->out[i]));
  }
  return SC_OK;
}

static inline sc_status sc__work_end(sc_work *w, sc_status s) {
  sc_call *c = w->c;
  for (int i = 0; i < c->n_out; i++) {
    if (s == SC_OK && w->out[i] && w->out[i]->data != c->out[i]->data) s = sc__tensor_copy(c->out[i], w->out[i]);
    sc_tensor_release(w->out[i]);
  }
  for (int i = 0; i < c->n_in && i < SC_MAX_INPUTS; i++) sc_tensor_release(w->in[i]);
  return s;
}

static inline void *sc__data(const sc_tensor *t) { return t ? t->data : NULL; }

/* Expressions over ops, for what is written down in C: each step returns a tensor that the expression owns, NULL once something
** has failed (then further steps do nothing). `sc__ex_end` lets everything go except `keep`, which becomes the caller's. */
typedef struct sc_ex { sc_context *ctx; sc_status s; int n; sc_tensor *own[48]; } sc_ex;

static inline sc_tensor *sc__ex(sc_ex *e, const char *op, sc_tensor *a, sc_tensor *b, const sc_attr *attr, int n_attr) {
  sc_tensor *in[2] = {a, b}, *out = NULL;
  if (e->s != SC_OK || !a) return NULL;
  if (e->n == 48) { e->s = sc__fail(e->ctx, SC_EINVAL, "an expression is too long"); return NULL; }
  e->s = sc__op(e->ctx, op, in, b ? 2 : 1, attr, n_attr, &out);
  if (e->s != SC_OK) return NULL;
  return e->own[e->n++] = out;
}
static inline sc_tensor *sc__ex1(sc_ex *e, const char *op, sc_tensor *a) { return sc__ex(e, op, a, NULL, NULL, 0); }
static inline sc_tensor *sc__ex2(sc_ex *e, const char *op, sc_tensor *a, sc_tensor *b) { return a && b ? sc__ex(e, op, a, b, NULL, 0) : NULL; }
/* a op number */
static inline sc_tensor *sc__exn(sc_ex *e, const char *op, sc_tensor *a, double number) {
  sc_tensor *k = NULL;
  if (e->s != SC_OK || !a) return NULL;
  e->s = sc__tensor_scalar(e->ctx, false, 0, number, &k);
  sc_tensor *out = e->s == SC_OK ? sc__ex2(e, op, a, k) : NULL;
  sc_tensor_release(k);
  return out;
}
static inline sc_tensor *sc__ex_sum(sc_ex *e, sc_tensor *a, const int64_t *dims, int n, bool keep) {
  sc_attr attr[2] = {sc__ints(dims, n), sc__bool(keep)};
  return n ? sc__ex(e, "sum", a, NULL, attr, 2) : a;
}
static inline sc_tensor *sc__ex_shape(sc_ex *e, const char *op, sc_tensor *a, const int64_t *dim, int n) {
  sc_attr attr = sc__ints(dim, n);
  return sc__ex(e, op, a, NULL, &attr, 1);
}
static inline sc_status sc__ex_end(sc_ex *e, sc_tensor *keep, sc_tensor **out) {
  if (out) *out = e->s == SC_OK && keep ? sc_tensor_retain(keep) : NULL;
  for (int i = 0; i < e->n; i++) sc_tensor_release(e->own[i]);
  e->n = 0;
  return e->s;
}

/* x with a leading dim of 1, or without it. new */
static inline sc_status sc__batched(sc_context *ctx, sc_tensor *x, bool add, sc_tensor **out) {
  int64_t dim[SC_MAX_DIMS + 1] = {1};
  int n = 0;
  if (add) { if (x->ndim >= SC_MAX_DIMS) return sc__fail(ctx, SC_EINVAL, "too many dimensions"); n = 1; }
  for (int i = add ? 0 : 1; i < x->ndim; i++) dim[n++] = x->dim[i];
  sc_attr a = sc__ints(dim, n);
  return sc__op(ctx, "reshape", &x, 1, &a, 1, out);
}

static inline int64_t sc__product(const int64_t *v, int n) {
  int64_t p = 1;
  for (int i = 0; i < n; i++) p *= v[i];
  return p;
}

/* linear and convolution with something done to each result before it is left (NULL: nothing); see epilogue.c. */
sc_status sc__linear_infer(sc_call *c);
sc_status sc__linear_run(sc_call *c, const sc_epilogue *then);
sc_status sc__convolution_infer(sc_call *c);
sc_status sc__convolution_run(sc_call *c, const sc_epilogue *then);

#endif
