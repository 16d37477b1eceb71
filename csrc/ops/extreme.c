/* Largest and smallest with their positions, and the pair of ops that every "values, indices" op has its gradient from: `pick` reads
** elements along a dim, `pick_backward` adds into zeros where pick had read. */
#include "reduce.h"

#include <string.h>

/* ---- argmax, argmin, and max and min over one dim ---- */

static sc_status arg_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__reduced_meta(c, 0, 1, mask, &c->meta[0]));
  SC_TRY(sc__not_empty(c, mask));
  if (!sc__has(c, 0) && c->attr[1].i && c->in[0]->ndim)      /* over everything, dims kept */
    for (int i = 0; i < c->in[0]->ndim; i++) c->meta[0].dim[i] = 1;
  c->meta[0].dtype = SC_INT64;
  return SC_OK;
}

static sc_status locate(sc_call *c, sc_reduce_kind kind, sc_tensor *values, sc_tensor *indices) {
  bool mask[SC_MAX_DIMS];
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__dims(c, 0, x->ndim, mask));
  int64_t few[64], *acc = few, n = indices->numel, *index = (int64_t *)indices->data;
  size_t bytes = (size_t)n * 8;
  if (n > SC_COUNT(few) && !(acc = sc__alloc(c->ctx, bytes))) return sc__no_memory(c->ctx, bytes);
  sc_status s = sc__reduce(c->ctx, kind, x, mask, acc, index, NULL, 0);
  for (int64_t i = 0; s == SC_OK && i < n; i++) index[i] += c->base;
  if (s == SC_OK && values)
    sc__convert(n, (sc_dtype)values->dtype, values->data, 1, sc__is_float((sc_dtype)x->dtype) ? SC_FLOAT64 : SC_INT64, acc, 1);
  if (acc != few) sc__release(c->ctx, acc, bytes);
  return s;
}

static sc_status argmax_run(sc_call *c) { return locate(c, SC_RED_ARGMAX, NULL, c->out[0]); }
static sc_status argmin_run(sc_call *c) { return locate(c, SC_RED_ARGMIN, NULL, c->out[0]); }

static sc_status max_dim_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__reduced_meta(c, 0, 1, mask, &c->meta[0]));
  SC_TRY(sc__not_empty(c, mask));
  sc__meta_set(&c->meta[1], SC_INT64, c->meta[0].ndim, c->meta[0].dim);
  c->meta[0].dtype = (sc_dtype)c->in[0]->dtype;
  c->n_out = 2;
  return SC_OK;
}
static sc_status max_dim_run(sc_call *c) { return locate(c, SC_RED_ARGMAX, c->out[0], c->out[1]); }
static sc_status min_dim_run(sc_call *c) { return locate(c, SC_RED_ARGMIN, c->out[0], c->out[1]); }

static sc_status max_or_min(sc_call *c, const char *whole, const char *along) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__dims(c, 0, c->in[0]->ndim, mask));
  SC_TRY(sc__not_empty(c, mask));
  if (sc__has(c, 0)) return sc__become(c, along, c->in, 1, c->attr, 2);
  return sc__become(c, whole, c->in, 1, NULL, 0);
}
static sc_status max_compose(sc_call *c) { return max_or_min(c, "amax", "max_dim"); }
static sc_status min_compose(sc_call *c) { return max_or_min(c, "amin", "min_dim"); }

/* ---- pick(x, index, dim, keepdim), pick_backward(dy, index, size, dim, keepdim) ----
** index: x's shape with any size along dim, or (keepdim false) without dim. */

typedef struct lines { int64_t outer, n, k, inner; } lines;   /* big: [outer, n, inner]; picked: [outer, k, inner] */

static sc_status picked_shape(sc_call *c, const sc_tensor *index, int ndim, const int64_t *size, int dim_slot, int keep_slot, lines *l) {
  int d;
  SC_TRY(sc__dim(c, dim_slot, ndim, &d));
  bool keep = c->attr[keep_slot].i || ndim == 0;
  if (index->ndim != ndim - !keep) return sc__bad_input(c, 1, "has %d dimensions, expected %d", index->ndim, ndim - !keep);
  if (index->dtype != SC_INT64) return sc__bad_input(c, 1, "expected int64, got %s", sc_dtype_name((sc_dtype)index->dtype));
  *l = (lines){1, ndim ? size[d] : 1, keep && ndim ? index->dim[d] : 1, 1};
  for (int i = 0; i < ndim; i++) {
    if (i == d) continue;
    if (index->dim[i - (!keep && i > d)] != size[i]) return sc__bad_input(c, 1, "its sizes do not fit");
    *(i < d ? &l->outer : &l->inner) *= size[i];
  }
  return SC_OK;
}

static sc_status pick_infer(sc_call *c) {
  lines l;
  SC_TRY(picked_shape(c, c->in[1], c->in[0]->ndim, c->in[0]->dim, 0, 1, &l));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->in[1]->ndim, c->in[1]->dim);
  return SC_OK;
}

static sc_status check_range(sc_call *c, const sc_tensor *index, int64_t n) {
  const int64_t *v = (const int64_t *)index->data;
  for (int64_t i = 0; i < index->numel; i++)
    if (v[i] < c->base || v[i] - c->base >= n) return sc__bad_input(c, 1, "index %lld is out of range", (long long)v[i]);
  return SC_OK;
}

static void pick_lines(const lines *l, size_t z, const char *x, const int64_t *index, int64_t base, char *y) {
  for (int64_t o = 0; o < l->outer; o++)
    for (int64_t k = 0; k < l->k; k++)
      for (int64_t i = 0; i < l->inner; i++) {
        int64_t at = (o * l->k + k) * l->inner + i;
        memcpy(y + at * (int64_t)z, x + ((o * l->n + index[at] - base) * l->inner + i) * (int64_t)z, z);
      }
}

static void add_lines(const lines *l, sc_dtype d, char *x, const int64_t *index, int64_t base, const char *dy) {
  int64_t z = (int64_t)sc_dtype_size(d);
  for (int64_t o = 0; o < l->outer; o++)
    for (int64_t k = 0; k < l->k; k++)
      for (int64_t i = 0; i < l->inner; i++) {
        int64_t at = (o * l->k + k) * l->inner + i, to = (o * l->n + index[at] - base) * l->inner + i;
        if (d == SC_FLOAT32) ((float *)x)[to] += ((const float *)dy)[at];
        else if (d == SC_FLOAT64) ((double *)x)[to] += ((const double *)dy)[at];
        else {
          sc_scalar a = sc__load(d, x + to * z), b = sc__load(d, dy + at * z);
          sc__store(d, x + to * z, a.is_int ? sc__scalar_int((int64_t)((uint64_t)a.i + (uint64_t)b.i)) : sc__scalar_float(a.f + b.f));
        }
      }
}

static sc_status pick_run(sc_call *c) {
  lines l;
  sc_tensor *x = NULL, *index = NULL;
  SC_TRY(picked_shape(c, c->in[1], c->in[0]->ndim, c->in[0]->dim, 0, 1, &l));
  sc_status s = sc__tensor_packed(c->in[0], &x);
  if (s == SC_OK) s = sc__tensor_packed(c->in[1], &index);
  if (s == SC_OK) s = check_range(c, index, l.n);
  if (s == SC_OK) pick_lines(&l, sc_dtype_size((sc_dtype)x->dtype), x->data, (const int64_t *)index->data, c->base, c->out[0]->data);
  sc_tensor_release(x);
  sc_tensor_release(index);
  return s;
}

static sc_status pick_backward_infer(sc_call *c) {
  lines l;
  SC_TRY(picked_shape(c, c->in[1], c->attr[0].n, c->attr[0].v, 1, 2, &l));
  SC_TRY(sc__want(c, 0, c->in[1]->ndim, c->in[1]->dim));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->attr[0].n, c->attr[0].v);
  return SC_OK;
}

static sc_status pick_backward_run(sc_call *c) {
  lines l;
  sc_tensor *dy = NULL, *index = NULL, *out = c->out[0];
  SC_TRY(picked_shape(c, c->in[1], c->attr[0].n, c->attr[0].v, 1, 2, &l));
  sc_status s = sc__tensor_packed(c->in[0], &dy);
  if (s == SC_OK) s = sc__tensor_packed(c->in[1], &index);
  if (s == SC_OK) s = check_range(c, index, l.n);
  if (s == SC_OK) {
    memset(out->data, 0, (size_t)out->numel * sc_dtype_size((sc_dtype)out->dtype));
    add_lines(&l, (sc_dtype)out->dtype, out->data, (const int64_t *)index->data, c->base, dy->data);
  }
  sc_tensor_release(dy);
  sc_tensor_release(index);
  return s;
}

#define PICKED .grad = {"pick_backward(dy, y2, shape(x), dim, keepdim)"}

const sc_op sc__ops_extreme[] = {
  {"argmax(x, dim: dim?, keepdim: bool = false)",
   "Where the largest element is: along dim, or in the flattened tensor. The first of equals; a NaN is largest.\nErrors: an empty dim.", 0,
   .infer = arg_infer, .run = argmax_run, .no_grad = "positions have no derivative"},
  {"argmin(x, dim: dim?, keepdim: bool = false)",
   "Where the smallest element is: along dim, or in the flattened tensor. The first of equals; a NaN is smallest.\nErrors: an empty dim.", 0,
   .infer = arg_infer, .run = argmin_run, .no_grad = "positions have no derivative"},
  {"max(x, dim: dim?, keepdim: bool = false) -> values, indices",
   "Without dim the largest element (equal ones share the gradient); with dim the largest along it and where it is (the first of equals, "
   "which gets all of the gradient). A NaN is largest. In Lua, max(x, other) of two tensors is maximum.\nErrors: an empty dim.\n"
   "Example: local v, i = sc.tensor{{1, 3}, {5, 2}}:max(2)", 0, .compose = max_compose},
  {"min(x, dim: dim?, keepdim: bool = false) -> values, indices",
   "Without dim the smallest element (equal ones share the gradient); with dim the smallest along it and where it is (the first of equals, "
   "which gets all of the gradient). A NaN is smallest. In Lua, min(x, other) of two tensors is minimum.\nErrors: an empty dim.", 0,
   .compose = min_compose},
  {"max_dim(x, dim: dim, keepdim: bool = false) -> values, indices", "max along dim.", SC_OP_INTERNAL, .fold = &sc__fold_amax, .infer = max_dim_infer,
   .run = max_dim_run, PICKED},
  {"min_dim(x, dim: dim, keepdim: bool = false) -> values, indices", "min along dim.", SC_OP_INTERNAL, .fold = &sc__fold_amin, .infer = max_dim_infer,
   .run = min_dim_run, PICKED},
  {"pick(x, index, dim: dim, keepdim: bool = true)", "Elements of x along dim at index.", SC_OP_INTERNAL, .infer = pick_infer, .run = pick_run,
   .grad = {"pick_backward(dy, index, shape(x), dim, keepdim)"}},
  {"pick_backward(dy, index, size: shape, dim: dim, keepdim: bool = true)", "dy added into zeros where pick had read.", SC_OP_INTERNAL,
   .infer = pick_backward_infer, .run = pick_backward_run, .grad = {"pick(dy, index, dim, keepdim)"}},
};
const int sc__ops_extreme_count = SC_COUNT(sc__ops_extreme);
