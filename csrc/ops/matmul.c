/* Matrix products. The primitive is a batch of products of matrices, with the batch dims broadcast; everything else is put on top.
** A transposed operand is recognised by its strides and passed to BLAS as a flag, so `x:matmul(w:t())` copies nothing. */
#include "ops.h"

#include <string.h>

static sc_status bmm_infer(sc_call *c) {
  const sc_tensor *a = c->in[0], *b = c->in[1];
  char s[200], t[200];
  sc_meta *m = &c->meta[0];
  if (a->dtype != b->dtype)
    return sc__bad_input(c, 1, "expected %s as for the first, got %s", sc_dtype_name((sc_dtype)a->dtype), sc_dtype_name((sc_dtype)b->dtype));
  int64_t batch[SC_MAX_DIMS];
  int nb;
  if (a->ndim < 2 || b->ndim < 2 || a->dim[a->ndim - 1] != b->dim[b->ndim - 2] ||
      !sc__broadcast(a->ndim - 2, a->dim, b->ndim - 2, b->dim, &nb, batch))
    return sc__bad_input(c, 1, "shapes %s and %s cannot be multiplied", sc__shape_text(a->ndim, a->dim, s, sizeof s),
                         sc__shape_text(b->ndim, b->dim, t, sizeof t));
  sc__meta_set(m, (sc_dtype)a->dtype, nb, batch);
  m->dim[nb] = a->dim[a->ndim - 2];
  m->dim[nb + 1] = b->dim[b->ndim - 1];
  m->ndim = nb + 2;
  return SC_OK;
}

/* A matrix as BLAS wants it. */
typedef struct operand { sc_tensor *t; bool transposed; int64_t ld; } operand;

static sc_status operand_of(sc_tensor *t, sc_dtype type, operand *o) {
  int n = t->ndim;
  int64_t rows = t->dim[n - 2], cols = t->dim[n - 1], sr = sc__stride(t)[n - 2], sk = sc__stride(t)[n - 1];
  if ((sc_dtype)t->dtype == type) {
    if ((sk == 1 || cols == 1) && (sr >= cols || rows == 1)) { *o = (operand){sc_tensor_retain(t), false, rows == 1 ? cols : sr}; goto ok; }
    if ((sr == 1 || rows == 1) && (sk >= rows || cols == 1)) { *o = (operand){sc_tensor_retain(t), true, cols == 1 ? rows : sk}; goto ok; }
  }
  *o = (operand){NULL, false, cols};
  SC_TRY(sc_tensor_new(t->ctx, type, n, t->dim, &o->t));
  SC_TRY(sc__tensor_copy(o->t, t));
ok:
  if (o->ld < 1) o->ld = 1;
  return SC_OK;
}

static int64_t batch_offset(const sc_tensor *t, const sc_tensor *out, int64_t k) {
  int64_t off = 0;
  for (int i = out->ndim - 3; i >= 0; i--) {
    int64_t x = k % out->dim[i];
    k /= out->dim[i];
    int d = i - (out->ndim - t->ndim);
    if (d >= 0 && t->dim[d] != 1) off += x * sc__stride(t)[d];
  }
  return off;
}

static sc_status products(sc_call *c, sc_dtype type, const operand *a, const operand *b, sc_tensor *out) {
  int64_t m = out->dim[out->ndim - 2], n = out->dim[out->ndim - 1], k = a->t->dim[a->t->ndim - 1];
  int64_t batches = m * n > 0 ? out->numel / (m * n) : 0, z = (int64_t)sc_dtype_size(type);
  for (int64_t i = 0; i < batches; i++) {
    const void *pa = a->t->data + batch_offset(a->t, out, i) * z, *pb = b->t->data + batch_offset(b->t, out, i) * z;
    void *pc = out->data + i * m * n * z;
    if (type == SC_FLOAT32) SC_TRY(sc__gemm_f32(c->ctx, a->transposed, b->transposed, m, n, k, 1, pa, a->ld, pb, b->ld, 0, pc, n));
    else if (type == SC_FLOAT64) SC_TRY(sc__gemm_f64(c->ctx, a->transposed, b->transposed, m, n, k, 1, pa, a->ld, pb, b->ld, 0, pc, n));
    else sc__gemm_i64(a->transposed, b->transposed, m, n, k, pa, a->ld, pb, b->ld, pc, n);
  }
  return SC_OK;
}

static sc_status bmm_run(sc_call *c) {
  sc_dtype d = (sc_dtype)c->out[0]->dtype, type = d == SC_FLOAT64 ? d : sc__is_float(d) ? SC_FLOAT32 : SC_INT64;
  operand a = {0}, b = {0};
  sc_tensor *out = c->out[0], *wide = NULL;
  sc_status s = operand_of(c->in[0], type, &a);
  if (s == SC_OK) s = operand_of(c->in[1], type, &b);
  if (s == SC_OK && d != type) { s = sc_tensor_new(c->ctx, type, out->ndim, out->dim, &wide); out = wide; }
  if (s == SC_OK) s = products(c, type, &a, &b, out);
  if (s == SC_OK && wide) s = sc__tensor_copy(c->out[0], wide);
  sc_tensor_release(wide);
  sc_tensor_release(a.t);
  sc_tensor_release(b.t);
  return s;
}

/* matmul(x, other): vectors become matrices first. */
static sc_status with_dim(sc_context *ctx, sc_tensor *t, bool front, sc_tensor **out) {
  int64_t size[2] = {front ? 1 : t->dim[0], front ? t->dim[0] : 1};
  sc_attr a = sc__ints(size, 2);
  return sc__op(ctx, "reshape", &t, 1, &a, 1, out);
}

static sc_status matmul_compose(sc_call *c) {
  sc_tensor *x = c->in[0], *other = c->in[1], *a = NULL, *b = NULL, *y = NULL;
  if (x->ndim == 0 || other->ndim == 0) return sc__bad_input(c, x->ndim == 0 ? 0 : 1, "expected at least 1 dimension, got a 0-dimensional tensor");
  sc_status s = SC_OK;
  if (x->ndim == 1) s = with_dim(c->ctx, x, true, &a); else a = sc_tensor_retain(x);
  if (s == SC_OK) { if (other->ndim == 1) s = with_dim(c->ctx, other, false, &b); else b = sc_tensor_retain(other); }
  if (s == SC_OK) s = sc__op2(c->ctx, "matmul_batched", a, b, &y);
  if (s == SC_OK && (x->ndim == 1 || other->ndim == 1)) {
    int64_t dim[SC_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < y->ndim; i++) {
      if (x->ndim == 1 && i == y->ndim - 2) continue;
      if (other->ndim == 1 && i == y->ndim - 1) continue;
      dim[n++] = y->dim[i];
    }
    sc_attr size = sc__ints(dim, n);
    s = sc__op(c->ctx, "reshape", &y, 1, &size, 1, &c->out[0]);
    sc_tensor_release(y);
  } else {
    c->out[0] = y;
  }
  sc_tensor_release(a);
  sc_tensor_release(b);
  c->n_out = s == SC_OK;
  return s;
}

const sc_op sc__ops_matmul[] = {
  {"matmul_batched(x, other)", "Products of the matrices in the last two dims, batch dims broadcast.", SC_OP_INTERNAL, .infer = bmm_infer,
   .run = bmm_run, .grad = {"matmul_batched(dy, transpose(other, -2, -1))", "matmul_batched(transpose(x, -2, -1), dy)"}},
  {"matmul(x, other)",
   "Matrix product.\nShapes: [n] x [n] gives a number; [m, k] x [k, n] gives [m, n]; leading dims are a batch and broadcast.\n"
   "Errors: the inner sizes differ.\nExample: sc.ones(2, 3):matmul(sc.ones(3, 4))", 0, .compose = matmul_compose},
};
const int sc__ops_matmul_count = SC_COUNT(sc__ops_matmul);
