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
    if ((sc_dtype)o->dtype == type || !sc__is_float((sc_dtype)o->dtype)) w->out[i] = sc_tensor_retain(o);
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

/* Calls an op with one result and lets go of `a` (also on failure): for chains of ops written down in C. */
static inline sc_status sc__then(sc_context *ctx, const char *name, sc_tensor **a, sc_tensor *b, const sc_attr *attr, int n_attr) {
  sc_tensor *in[2] = {*a, b}, *out = NULL;
  sc_status s = sc__op(ctx, name, in, b ? 2 : 1, attr, n_attr, &out);
  sc_tensor_release(*a);
  *a = s == SC_OK ? out : NULL;
  return s;
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

#endif
