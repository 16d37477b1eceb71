/* Reductions. */
#include "ops.h"

#include <string.h>

/* ---- the shape of a reduction: attr[dim_slot] dims, attr[keep_slot] keepdim ---- */
static sc_status reduced_shape(sc_call *c, int dim_slot, int keep_slot, bool *mask) {
  const sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  SC_TRY(sc__dims(c, dim_slot, x->ndim, mask));
  bool keep = c->attr[keep_slot].i;
  m->ndim = 0;
  for (int i = 0; i < x->ndim; i++) {
    if (!mask[i]) m->dim[m->ndim++] = x->dim[i];
    else if (keep) m->dim[m->ndim++] = 1;
  }
  return SC_OK;
}

static sc_status sum_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(reduced_shape(c, 0, 1, mask));
  sc_dtype d = (sc_dtype)c->in[0]->dtype;
  c->meta[0].dtype = sc__dtype_or(&c->attr[2], sc__is_float(d) ? d : SC_INT64);
  return SC_OK;
}

/* Plain and exact enough: float64 or int64 accumulators, elements visited in row-major order of the input. */
static sc_status sum_dims(sc_context *ctx, const sc_tensor *x, const bool *mask, sc_tensor *out) {
  bool integer = !sc__is_float((sc_dtype)out->dtype);
  int64_t n = out->numel, step[SC_MAX_DIMS], s = 1;
  double *acc = sc__alloc_zero(ctx, (size_t)n * 8 + 8);
  if (!acc) return sc__no_memory(ctx, (size_t)n * 8);
  for (int i = x->ndim - 1; i >= 0; i--) {
    step[i] = mask[i] ? 0 : s;
    if (!mask[i]) s *= x->dim[i];
  }
  int64_t index[SC_MAX_DIMS] = {0}, at = 0, to = 0, z = (int64_t)sc_dtype_size((sc_dtype)x->dtype);
  for (int64_t k = 0; k < x->numel; k++) {
    sc_scalar v = sc__load((sc_dtype)x->dtype, x->data + at * z);
    if (integer) ((int64_t *)acc)[to] = (int64_t)((uint64_t)((int64_t *)acc)[to] + (uint64_t)(v.is_int ? v.i : sc__f64_to_i64(v.f)));
    else acc[to] += v.f;
    for (int i = x->ndim - 1; i >= 0; i--) {
      at += sc__stride(x)[i];
      to += step[i];
      if (++index[i] < x->dim[i]) break;
      at -= sc__stride(x)[i] * x->dim[i];
      to -= step[i] * x->dim[i];
      index[i] = 0;
    }
  }
  sc__convert(n, (sc_dtype)out->dtype, out->data, 1, integer ? SC_INT64 : SC_FLOAT64, acc, 1);
  sc__release(ctx, acc, (size_t)n * 8 + 8);
  return SC_OK;
}

static sc_status sum_run(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__dims(c, 0, c->in[0]->ndim, mask));
  return sum_dims(c->ctx, c->in[0], mask, c->out[0]);
}

/* ---- sum_to_size(x, size): the reverse of broadcasting ---- */
static sc_status to_size_mask(sc_call *c, bool *mask) {
  const sc_tensor *x = c->in[0];
  const sc_attr *size = &c->attr[0];
  char a[200], b[200];
  int lead = x->ndim - size->n;
  bool fits = lead >= 0;
  for (int i = 0; i < x->ndim && fits; i++) {
    mask[i] = i < lead || (size->v[i - lead] == 1 && x->dim[i] != 1);
    fits = mask[i] || size->v[i - lead] == x->dim[i];
  }
  if (!fits)
    return sc__bad_attr(c, 0, "shape %s does not broadcast to %s", sc__shape_text(size->n, size->v, a, sizeof a),
                        sc__shape_text(x->ndim, x->dim, b, sizeof b));
  return SC_OK;
}

static sc_status to_size_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(to_size_mask(c, mask));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->attr[0].n, c->attr[0].v);
  return SC_OK;
}

static sc_status to_size_run(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(to_size_mask(c, mask));
  return sum_dims(c->ctx, c->in[0], mask, c->out[0]);
}

const sc_op sc__ops_reduce[] = {
  {"sum(x, dim: dim[]?, keepdim: bool = false, dtype: dtype?)",
   "Sum over all elements or over dims. Integers and bools sum in int64.\nExample: sc.ones(2, 3):sum(1)", 0, .infer = sum_infer, .run = sum_run,
   .grad = {"unreduce(dy, shape(x), dim, keepdim)"}},
  {"sum_to_size(x, size: shape)", "x summed to a shape that broadcasts to x's.", 0, .infer = to_size_infer, .run = to_size_run,
   .grad = {"expand(dy, shape(x))"}},
};
const int sc__ops_reduce_count = SC_COUNT(sc__ops_reduce);
