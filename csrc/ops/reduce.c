/* Sums and their kin: each is a pass of kernels/reduce.c and a word about dtypes. Integers and bools are summed in int64; halves and
** float32 in double. */
#include "reduce.h"

#include <math.h>
#include <string.h>

/* ---- shared with the other families of reductions ---- */

sc_status sc__reduced_meta(sc_call *c, int dim_slot, int keep_slot, bool *mask, sc_meta *m) {
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__dims(c, dim_slot, x->ndim, mask));
  bool keep = keep_slot >= 0 && c->attr[keep_slot].i;
  m->ndim = 0;
  for (int i = 0; i < x->ndim; i++) {
    if (!mask[i]) m->dim[m->ndim++] = x->dim[i];
    else if (keep) m->dim[m->ndim++] = 1;
  }
  return SC_OK;
}

sc_status sc__not_empty(sc_call *c, const bool *mask) {
  const sc_tensor *x = c->in[0];
  char shape[200];
  for (int i = 0; i < x->ndim; i++)
    if (mask[i] && x->dim[i] == 0)
      return sc__bad_input(c, 0, "dimension %d of shape %s is empty, so there is no value to give", i + c->ctx->index_base,
                           sc__shape_text(x->ndim, x->dim, shape, sizeof shape));
  return SC_OK;
}

int64_t sc__reduced_count(const sc_tensor *x, const bool *mask) {
  int64_t n = 1;
  for (int i = 0; i < x->ndim; i++) if (mask[i]) n *= x->dim[i];
  return n;
}

sc_status sc__reduce_to(sc_context *ctx, sc_reduce_kind kind, const sc_tensor *x, const bool *mask, const double *m, double p,
                        sc_finish_fn finish, double arg, sc_tensor *out) {
  bool floating = sc__is_float((sc_dtype)x->dtype);
  int64_t few[64], *acc = few, n = out->numel;
  size_t bytes = (size_t)n * 8;
  if (n > SC_COUNT(few) && !(acc = sc__alloc(ctx, bytes))) return sc__no_memory(ctx, bytes);
  sc_status s = sc__reduce(ctx, kind, x, mask, acc, NULL, m, p);
  if (s == SC_OK && finish)
    for (int64_t i = 0; i < n; i++) {
      double v;
      if (floating) memcpy(&v, &acc[i], 8); else v = (double)acc[i];
      v = finish(v, arg);
      memcpy(&acc[i], &v, 8);
    }
  if (s == SC_OK) sc__convert(n, (sc_dtype)out->dtype, out->data, 1, floating || finish ? SC_FLOAT64 : SC_INT64, acc, 1);
  if (acc != few) sc__release(ctx, acc, bytes);
  return s;
}

sc_status sc__converted(sc_tensor *x, sc_dtype dtype, sc_tensor **out) {
  if ((sc_dtype)x->dtype == dtype) { *out = sc_tensor_retain(x); return SC_OK; }
  sc_meta m;
  sc__meta_set(&m, dtype, x->ndim, x->dim);
  SC_TRY(sc__tensor_like_meta(x->ctx, "cast", &m, out));
  sc_status s = sc__tensor_copy(*out, x);
  if (s != SC_OK) { sc_tensor_release(*out); *out = NULL; }
  return s;
}

sc_status sc__become(sc_call *c, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr) {
  const sc_opinfo *op = sc__op_find(c->ctx, name);
  if (!op) return sc__fail(c->ctx, SC_EINVAL, "there is no op named %s", name);
  sc_attr all[SC_MAX_ATTRS];
  sc__attr_defaults(op, all);
  for (int i = 0; i < n_attr; i++) all[i] = attr[i];
  return sc__emit(c->ctx, op, in, n_in, all, c->base, c->out, &c->n_out);
}

sc_status sc__make(sc_call *c, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr, sc_tensor **out) {
  sc_call inner = *c;
  SC_TRY(sc__become(&inner, name, in, n_in, attr, n_attr));
  for (int i = 1; i < inner.n_out; i++) sc_tensor_release(inner.out[i]);
  *out = inner.out[0];
  return SC_OK;
}

sc_status sc__scaled(sc_call *c, sc_tensor *x, double f, sc_tensor **out) {
  sc_tensor *number;
  SC_TRY(sc__tensor_scalar(c->ctx, false, 0, f, &number));
  sc_status s = sc__make(c, "mul", (sc_tensor *[]){x, number}, 2, NULL, 0, out);
  sc_tensor_release(number);
  return s;
}

/* ---- sum, nansum, mean ---- */

static sc_status sum_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__reduced_meta(c, 0, 1, mask, &c->meta[0]));
  sc_dtype d = (sc_dtype)c->in[0]->dtype;
  c->meta[0].dtype = sc__dtype_or(&c->attr[2], sc__is_float(d) ? d : SC_INT64);
  return SC_OK;
}

/* Floats summed into an integer dtype are converted one by one first, as the dtype option promises. */
static sc_status accumulate(sc_call *c, sc_reduce_kind kind) {
  bool mask[SC_MAX_DIMS];
  sc_tensor *x, *out = c->out[0];
  SC_TRY(sc__dims(c, 0, c->in[0]->ndim, mask));
  bool convert = sc__is_float((sc_dtype)c->in[0]->dtype) && !sc__is_float((sc_dtype)out->dtype);
  SC_TRY(sc__converted(c->in[0], convert ? (sc_dtype)out->dtype : (sc_dtype)c->in[0]->dtype, &x));
  if (kind == SC_RED_NANSUM && !sc__is_float((sc_dtype)x->dtype)) kind = SC_RED_SUM;
  sc_status s = sc__reduce_to(c->ctx, kind, x, mask, NULL, 0, NULL, 0, out);
  sc_tensor_release(x);
  return s;
}
/* A sum asked for in float64 is kept in double all the way. */
static sc_reduce_kind sum_kind(const sc_tensor *out) { return out->dtype == SC_FLOAT64 ? SC_RED_SUM : SC_RED_QUICK; }
static sc_status sum_run(sc_call *c) { return accumulate(c, sum_kind(c->out[0])); }
static sc_status nansum_run(sc_call *c) { return accumulate(c, SC_RED_NANSUM); }

static sc_status mean_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__reduced_meta(c, 0, 1, mask, &c->meta[0]));
  sc_dtype d = sc__dtype_or(&c->attr[2], (sc_dtype)c->in[0]->dtype);
  if (!sc__is_float(d)) {
    if (sc__has(c, 2)) return sc__bad_attr(c, 2, "expected a floating-point dtype, got %s", sc_dtype_name(d));
    return sc__bad_input(c, 0, "expected a floating-point tensor, got %s; give a dtype to convert to", sc_dtype_name(d));
  }
  c->meta[0].dtype = d;
  return SC_OK;
}

static double divided(double v, double n) { return v / n; }

static sc_status mean_run(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__dims(c, 0, c->in[0]->ndim, mask));
  return sc__reduce_to(c->ctx, sum_kind(c->out[0]), c->in[0], mask, NULL, 0, divided, (double)sc__reduced_count(c->in[0], mask), c->out[0]);
}

/* mean_backward(dy, size, dim, keepdim) */
static sc_status mean_backward_compose(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  const sc_attr *size = &c->attr[0];
  SC_TRY(sc__dims(c, 1, size->n, mask));
  double n = 1;
  for (int i = 0; i < size->n; i++) if (mask[i]) n *= (double)size->v[i];
  sc_tensor *small;
  SC_TRY(sc__scaled(c, c->in[0], 1 / n, &small));
  sc_status s = sc__become(c, "unreduce", &small, 1, c->attr, 3);
  sc_tensor_release(small);
  return s;
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
  sc_dtype d = (sc_dtype)c->in[0]->dtype;
  bool sums = c->attr[0].n == 0;                        /* sums of integers are int64; what stays as it is keeps its dtype */
  for (int i = 0; i < c->in[0]->ndim; i++) sums = sums || mask[i];
  sc__meta_set(&c->meta[0], sums && !sc__is_float(d) ? SC_INT64 : d, c->attr[0].n, c->attr[0].v);
  return SC_OK;
}

static sc_status to_size_run(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  sc_tensor *x = c->in[0], *out = c->out[0];
  if (x->numel == out->numel && x->contiguous) {       /* nothing but dims of one goes; floats as a sum gives them, 0 for -0 */
    int64_t n = x->numel;
    if (x->dtype == SC_FLOAT32) { for (int64_t i = 0; i < n; i++) ((float *)out->data)[i] = ((const float *)x->data)[i] + 0.0f; return SC_OK; }
    if (!sc__is_float((sc_dtype)x->dtype)) { sc__convert(n, (sc_dtype)out->dtype, out->data, 1, (sc_dtype)x->dtype, x->data, 1); return SC_OK; }
  }
  SC_TRY(to_size_mask(c, mask));
  return sc__reduce_to(c->ctx, sum_kind(c->out[0]), c->in[0], mask, NULL, 0, NULL, 0, c->out[0]);
}

/* ---- prod: over everything it is prod over the one dim of the flattened tensor ---- */

static sc_status prod_compose(sc_call *c) {
  sc_tensor *x = c->in[0], *flat = NULL;
  sc_attr attr[3] = {c->attr[0], c->attr[1], c->attr[2]};
  if (sc__has(c, 0)) {
    int d;
    SC_TRY(sc__dim(c, 0, x->ndim, &d));
    attr[0] = sc__int(d);
  } else {
    int64_t one = -1;
    sc_attr size = sc__ints(&one, 1);
    if (x->numel == 0) one = 0;
    SC_TRY(sc__make(c, "reshape", &x, 1, &size, 1, &flat));
    attr[0] = sc__int(0);
    attr[1] = sc__bool(false);
  }
  sc_status s = sc__become(c, "prod_dim", flat ? &flat : &x, 1, attr, 3);
  sc_tensor_release(flat);
  return s;
}

static sc_status prod_run(sc_call *c) { return accumulate(c, SC_RED_PROD); }

/* ---- amax, amin ---- */

static sc_status extreme_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__reduced_meta(c, 0, 1, mask, &c->meta[0]));
  SC_TRY(sc__not_empty(c, mask));
  c->meta[0].dtype = (sc_dtype)c->in[0]->dtype;
  return SC_OK;
}

static sc_status extreme_run(sc_call *c, sc_reduce_kind kind) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__dims(c, 0, c->in[0]->ndim, mask));
  return sc__reduce_to(c->ctx, kind, c->in[0], mask, NULL, 0, NULL, 0, c->out[0]);
}
static sc_status amax_run(sc_call *c) { return extreme_run(c, SC_RED_MAX); }
static sc_status amin_run(sc_call *c) { return extreme_run(c, SC_RED_MIN); }

/* tie_share(x, y, dim, keepdim): 1 / (number of equals) where x is the extreme value y, else 0. A NaN is equal to a NaN. */
static sc_status tie_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  bool mask[SC_MAX_DIMS];
  int64_t want[SC_MAX_DIMS];
  int n = 0;
  SC_TRY(sc__dims(c, 0, x->ndim, mask));
  for (int i = 0; i < x->ndim; i++)
    if (!mask[i] || c->attr[1].i) want[n++] = mask[i] ? 1 : x->dim[i];
  if (x->ndim) SC_TRY(sc__want(c, 1, n, want));
  else if (c->in[1]->numel != 1) return sc__bad_input(c, 1, "expected one value");
  sc__meta_like(&c->meta[0], c->in[0]);
  return SC_OK;
}

static sc_status tie_run(sc_call *c) {
  const sc_tensor *x = c->in[0], *y = c->in[1];
  sc_tensor *out = c->out[0];
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__dims(c, 0, x->ndim, mask));
  size_t bytes = (size_t)y->numel * 8 + 8;
  int64_t *count = sc__alloc_zero(c->ctx, bytes);
  if (!count) return sc__no_memory(c->ctx, bytes);
  int64_t step[SC_MAX_DIMS], size = 1, z = (int64_t)sc_dtype_size((sc_dtype)x->dtype), yz = (int64_t)sc_dtype_size((sc_dtype)y->dtype);
  sc_tensor *packed = NULL;
  sc_status s = sc__tensor_packed((sc_tensor *)y, &packed);
  if (s != SC_OK) { sc__release(c->ctx, count, bytes); return s; }
  for (int i = x->ndim - 1; i >= 0; i--) {
    step[i] = mask[i] ? 0 : size;
    if (!mask[i]) size *= x->dim[i];
  }
  for (int pass = 0; pass < 2; pass++) {
    int64_t index[SC_MAX_DIMS] = {0}, at = 0, to = 0;
    for (int64_t k = 0; k < x->numel; k++) {
      sc_scalar a = sc__load((sc_dtype)x->dtype, x->data + at * z), b = sc__load((sc_dtype)y->dtype, packed->data + to * yz);
      bool equal = a.f == b.f || (a.f != a.f && b.f != b.f);
      if (pass == 0) count[to] += equal;
      else sc__store((sc_dtype)out->dtype, out->data + k * z, sc__scalar_float(equal ? 1.0 / (double)count[to] : 0));
      for (int i = x->ndim - 1; i >= 0; i--) {
        at += sc__stride(x)[i];
        to += step[i];
        if (++index[i] < x->dim[i]) break;
        at -= sc__stride(x)[i] * x->dim[i];
        to -= step[i] * x->dim[i];
        index[i] = 0;
      }
    }
  }
  sc_tensor_release(packed);
  sc__release(c->ctx, count, bytes);
  return SC_OK;
}

/* aminmax(x, dim, keepdim) -> min, max */
static sc_status aminmax_compose(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__dims(c, 0, c->in[0]->ndim, mask));
  SC_TRY(sc__not_empty(c, mask));
  sc_tensor *low, *high;
  SC_TRY(sc__make(c, "amin", c->in, 1, c->attr, 2, &low));
  sc_status s = sc__make(c, "amax", c->in, 1, c->attr, 2, &high);
  if (s != SC_OK) { sc_tensor_release(low); return s; }
  c->out[0] = low;
  c->out[1] = high;
  c->n_out = 2;
  if (c->in[0]->ndim == 0 && sc__has(c, 0) && c->attr[1].i)      /* as in PyTorch: a named dim of a 0-d tensor is kept as one */
    for (int i = 0; i < 2; i++) {
      int64_t one = 1;
      sc_attr size = sc__ints(&one, 1);
      sc_tensor *y;
      SC_TRY(sc__make(c, "reshape", &c->out[i], 1, &size, 1, &y));
      sc_tensor_release(c->out[i]);
      c->out[i] = y;
    }
  return SC_OK;
}

/* ---- counting: all, any, count_nonzero ---- */

static sc_status truth_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__reduced_meta(c, 0, 1, mask, &c->meta[0]));
  c->meta[0].dtype = c->in[0]->dtype == SC_UINT8 ? SC_UINT8 : SC_BOOL;
  return SC_OK;
}
static double is_all(double v, double n) { return v == n; }
static double is_any(double v, double n) { (void)n; return v > 0; }
static sc_status count_to(sc_call *c, sc_finish_fn finish) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__dims(c, 0, c->in[0]->ndim, mask));
  return sc__reduce_to(c->ctx, SC_RED_COUNT, c->in[0], mask, NULL, 0, finish, (double)sc__reduced_count(c->in[0], mask), c->out[0]);
}
static sc_status all_run(sc_call *c) { return count_to(c, is_all); }
static sc_status any_run(sc_call *c) { return count_to(c, is_any); }

static sc_status count_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__reduced_meta(c, 0, -1, mask, &c->meta[0]));
  c->meta[0].dtype = SC_INT64;
  return SC_OK;
}
static sc_status count_run(sc_call *c) { return count_to(c, NULL); }

static const sc_fold SUM = {SC_RED_QUICK, SC_RED_SUM, NULL}, MEAN = {SC_RED_QUICK, SC_RED_SUM, divided};
const sc_fold sc__fold_amax = {SC_RED_MAX, SC_RED_MAX, NULL}, sc__fold_amin = {SC_RED_MIN, SC_RED_MIN, NULL};

#define DIMS_HELP "dim: one, a list, or none for all; keepdim keeps reduced dims as size 1.\n"

const sc_op sc__ops_reduce[] = {
  {"sum(x, dim: dim[]?, keepdim: bool = false, dtype: dtype?)",
   "Sum over all elements or over dims.\n" DIMS_HELP
   "Integers and bools sum in int64, halves and float32 in double; the bits do not depend on threads.\nExample: sc.ones(2, 3):sum(1)",
   0, .infer = sum_infer, .run = sum_run, .cost = sc__cost_bytes, .fold = &SUM, .grad = {"unreduce(dy, shape(x), dim, keepdim)"}},
  {"nansum(x, dim: dim[]?, keepdim: bool = false, dtype: dtype?)", "Sum with NaN counting as 0.\n" DIMS_HELP, 0, .infer = sum_infer,
   .run = nansum_run, .grad = {"where(eq(x, x), unreduce(dy, shape(x), dim, keepdim), 0)"}},
  {"mean(x, dim: dim[]?, keepdim: bool = false, dtype: dtype?)",
   "Mean over all elements or over dims; of nothing: NaN.\n" DIMS_HELP "Errors: an integer tensor without a floating-point dtype.", 0,
   .infer = mean_infer, .run = mean_run, .cost = sc__cost_bytes, .fold = &MEAN, .grad = {"mean_backward(dy, shape(x), dim, keepdim)"}},
  {"mean_backward(dy, size: shape, dim: dim[]?, keepdim: bool = false)", "mean's gradient.", SC_OP_INTERNAL, .compose = mean_backward_compose},
  {"sum_to_size(x, size: shape)", "x summed to a shape that broadcasts to x's.", 0, .infer = to_size_infer, .run = to_size_run, .cost = sc__cost_bytes,
   .grad = {"expand(dy, shape(x))"}},
  {"prod(x, dim: dim?, keepdim: bool = false, dtype: dtype?)",
   "Product over all elements or over one dim; its gradient is exact also where elements are 0.", 0, .compose = prod_compose},
  {"prod_dim(x, dim: dim, keepdim: bool = false, dtype: dtype?)", "prod over one dim.", SC_OP_INTERNAL, .infer = sum_infer, .run = prod_run,
   .grad = {"unreduce(dy, shape(x), dim, keepdim) * shift(cumprod(x, dim), dim, 1, 1) * shift(cumprod_reverse(x, dim), dim, -1, 1)"}},
  {"amax(x, dim: dim[]?, keepdim: bool = false)",
   "Largest element over dims; a NaN is largest. Equal elements share the gradient evenly.\n" DIMS_HELP "Errors: an empty dim.", 0,
   .infer = extreme_infer, .run = amax_run, .cost = sc__cost_bytes, .fold = &sc__fold_amax, .grad = {"unreduce(dy, shape(x), dim, keepdim) * tie_share(x, y, dim, keepdim)"}},
  {"amin(x, dim: dim[]?, keepdim: bool = false)",
   "Smallest element over dims; a NaN is smallest. Equal elements share the gradient evenly.\n" DIMS_HELP "Errors: an empty dim.", 0,
   .infer = extreme_infer, .run = amin_run, .cost = sc__cost_bytes, .fold = &sc__fold_amin, .grad = {"unreduce(dy, shape(x), dim, keepdim) * tie_share(x, y, dim, keepdim)"}},
  {"tie_share(x, y, dim: dim[]?, keepdim: bool = false)", "1 / (number of equals) where x equals its extreme value y, else 0.", SC_OP_INTERNAL,
   .infer = tie_infer, .run = tie_run, .no_grad = "piecewise constant"},
  {"aminmax(x, dim: dim?, keepdim: bool = false) -> min, max", "Smallest and largest element, over all or one dim.\nErrors: an empty dim.", 0,
   .compose = aminmax_compose},
  {"all(x, dim: dim[]?, keepdim: bool = false)", "Whether all elements are true (not 0; NaN is not 0); of none: true.\n" DIMS_HELP, 0,
   .infer = truth_infer, .run = all_run, .no_grad = "a truth value has no derivative"},
  {"any(x, dim: dim[]?, keepdim: bool = false)", "Whether any element is true (not 0); of none: false.\n" DIMS_HELP, 0, .infer = truth_infer,
   .run = any_run, .no_grad = "a truth value has no derivative"},
  {"count_nonzero(x, dim: dim[]?)", "How many elements are not 0, as int64.", 0, .infer = count_infer, .run = count_run,
   .no_grad = "piecewise constant"},
};
const int sc__ops_reduce_count = SC_COUNT(sc__ops_reduce);
