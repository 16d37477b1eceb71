/* Making tensors, copying and converting them. */
#include "ops.h"

static sc_status full_infer(sc_call *c) {
  if (c->attr[0].n > SC_MAX_DIMS) return sc__bad_attr(c, 0, "at most %d dimensions", SC_MAX_DIMS);
  const sc_attr *v = &c->attr[1];
  sc_dtype d = v->kind == SC_ATTR_FLOAT ? SC_FLOAT32 : v->kind == SC_ATTR_BOOL ? SC_BOOL : SC_INT64;
  sc__meta_set(&c->meta[0], sc__dtype_or(&c->attr[2], d), c->attr[0].n, c->attr[0].v);
  return SC_OK;
}

static sc_status fill(sc_tensor *t, sc_scalar v) {
  union { int64_t i; double f; } bits;
  sc__store((sc_dtype)t->dtype, &bits, v);
  sc__convert(t->numel, (sc_dtype)t->dtype, t->data, 1, (sc_dtype)t->dtype, &bits, 0);
  return SC_OK;
}

static sc_scalar scalar_of(const sc_attr *a) { return a->kind == SC_ATTR_FLOAT ? sc__scalar_float(a->f) : sc__scalar_int(a->i); }

static sc_status full_run(sc_call *c) { return fill(c->out[0], scalar_of(&c->attr[1])); }

static sc_status like_infer(sc_call *c) { sc__meta_like(&c->meta[0], c->in[0]); return SC_OK; }
static sc_status copy_run(sc_call *c) { return sc__tensor_copy(c->out[0], c->in[0]); }

static sc_status to_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = (sc_dtype)c->attr[0].i;
  return SC_OK;
}

static sc_status to_compose(sc_call *c) {
  c->n_out = 1;
  if ((sc_dtype)c->attr[0].i == (sc_dtype)c->in[0]->dtype) { c->out[0] = sc_tensor_retain(c->in[0]); return SC_OK; }
  sc_status s = sc__op(c->ctx, "cast", c->in, 1, c->attr, 1, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

static sc_status contiguous_compose(sc_call *c) {
  c->n_out = 1;
  if (c->in[0]->contiguous) { c->out[0] = sc_tensor_retain(c->in[0]); return SC_OK; }
  sc_status s = sc__op1(c->ctx, "clone", c->in[0], &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

const sc_op sc__ops_create[] = {
  {"full(size: shape, fill_value: number, dtype: dtype?)", "A tensor of that shape filled with a number; the dtype is the number's unless named.",
   SC_OP_FUNCTION, .infer = full_infer, .run = full_run, .no_grad = "its value does not depend on tensors"},
  {"clone(x)", "A packed copy.", 0, .infer = like_infer, .run = copy_run, .grad = {"dy"}},
  {"cast(x, dtype: dtype)", "A copy converted to dtype.", SC_OP_INTERNAL, .infer = to_infer, .run = copy_run, .grad = {"dy"}},
  {"to(x, dtype: dtype)", "x as dtype: x itself when it has that dtype already.", 0, .compose = to_compose},
  {"contiguous(x)", "x itself when its elements are packed in row-major order, else a packed copy.", 0, .compose = contiguous_compose},
};
const int sc__ops_create_count = SC_COUNT(sc__ops_create);
