/* Running sums, products, extremes. Gradients are running reductions too:
**   cumsum        dx = cumsum from the end of dy
**   cumprod       dx[j] = (x[1] … x[j-1]) s[j] with s[j] = dy[j] + x[j+1] s[j+1], exact where elements are 0
**   logcumsumexp  dx[j] = e^(x[j] - y[j]) s[j] with s[j] = dy[j] + e^(y[j] - y[j+1]) s[j+1], whose factors are at most 1
** linear_scan computes such an s, and its own gradient is a linear_scan from the other end. */
#include "reduce.h"

static sc_dtype working(sc_dtype d) { return d == SC_FLOAT64 ? SC_FLOAT64 : sc__is_float(d) ? SC_FLOAT32 : SC_INT64; }

static void split_at(const sc_tensor *x, int dim, int64_t *outer, int64_t *n, int64_t *inner) {
  *outer = *inner = 1;
  *n = x->ndim ? x->dim[dim] : 1;
  for (int i = 0; i < x->ndim; i++) if (i != dim) *(i < dim ? outer : inner) *= x->dim[i];
}

/* x packed in `type`; new. through: a dtype to convert to on the way (the dtype option), as it may cut digits. */
static sc_status prepared(sc_tensor *x, sc_dtype through, sc_dtype type, sc_tensor **out) {
  sc_tensor *a, *b;
  SC_TRY(sc__converted(x, through, &a));
  sc_status s = sc__converted(a, type, &b);
  sc_tensor_release(a);
  SC_TRY(s);
  s = sc__tensor_packed(b, out);
  sc_tensor_release(b);
  return s;
}

static sc_status scan_to(sc_call *c, sc_scan_kind kind, int dim_slot, bool reverse, sc_tensor *x, sc_tensor *factor) {
  int dim;
  sc_tensor *out = c->out[0], *in = NULL, *a = NULL, *y = NULL;
  SC_TRY(sc__dim(c, dim_slot, x->ndim, &dim));
  int64_t outer, n, inner;
  split_at(x, dim, &outer, &n, &inner);
  sc_dtype type = working((sc_dtype)out->dtype);
  bool integral = !sc__is_float((sc_dtype)out->dtype);
  sc_status s = prepared(x, integral ? (sc_dtype)out->dtype : (sc_dtype)x->dtype, type, &in);
  if (s == SC_OK && factor) s = prepared(factor, (sc_dtype)factor->dtype, type, &a);
  if (s == SC_OK) {
    sc_meta m;
    sc__meta_set(&m, type, out->ndim, out->dim);
    if ((sc_dtype)out->dtype == type) y = sc_tensor_retain(out);
    else s = sc__tensor_like_meta(c->ctx, c->op->name, &m, &y);
  }
  if (s == SC_OK) {
    int64_t *index = c->n_out > 1 ? (int64_t *)c->out[1]->data : NULL;
    sc__scan(c->ctx, kind, type, reverse, outer, n, inner, in->data, a ? a->data : NULL, y->data, index, c->base);
    if (y != out) s = sc__tensor_copy(out, y);
  }
  sc_tensor_release(in);
  sc_tensor_release(a);
  sc_tensor_release(y);
  return s;
}

static sc_status sum_infer(sc_call *c) {
  int dim;
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &dim));
  sc_dtype d = (sc_dtype)c->in[0]->dtype;
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = sc__dtype_or(&c->attr[1], c->inplace || sc__is_float(d) ? d : SC_INT64);
  return SC_OK;
}
static sc_status cumsum_run(sc_call *c) { return scan_to(c, SC_SCAN_SUM, 0, false, c->in[0], NULL); }
static sc_status cumprod_run(sc_call *c) { return scan_to(c, SC_SCAN_PROD, 0, false, c->in[0], NULL); }

static sc_status same_infer(sc_call *c) {
  int dim;
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &dim));
  sc__meta_like(&c->meta[0], c->in[0]);
  return SC_OK;
}
static sc_status cumsum_reverse_run(sc_call *c) { return scan_to(c, SC_SCAN_SUM, 0, true, c->in[0], NULL); }
static sc_status cumprod_reverse_run(sc_call *c) { return scan_to(c, SC_SCAN_PROD, 0, true, c->in[0], NULL); }

static sc_status logcumsumexp_infer(sc_call *c) {
  if (!sc__is_float((sc_dtype)c->in[0]->dtype))
    return sc__bad_input(c, 0, "expected a floating-point tensor, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype));
  return same_infer(c);
}
static sc_status logcumsumexp_run(sc_call *c) { return scan_to(c, SC_SCAN_LOGSUMEXP, 0, false, c->in[0], NULL); }

static sc_status cummax_infer(sc_call *c) {
  SC_TRY(same_infer(c));
  sc__meta_set(&c->meta[1], SC_INT64, c->in[0]->ndim, c->in[0]->dim);
  c->n_out = 2;
  return SC_OK;
}
static sc_status cummax_run(sc_call *c) { return scan_to(c, SC_SCAN_MAX, 0, false, c->in[0], NULL); }
static sc_status cummin_run(sc_call *c) { return scan_to(c, SC_SCAN_MIN, 0, false, c->in[0], NULL); }

/* linear_scan(a, b, dim, reverse): s[k] = b[k] + a[k] s[k-1] (reverse: s[k+1]); what lies before the first is 0 */
static sc_status linear_infer(sc_call *c) {
  const sc_tensor *a = c->in[0], *b = c->in[1];
  bool same = a->ndim == b->ndim;
  for (int i = 0; same && i < a->ndim; i++) same = a->dim[i] == b->dim[i];
  if (!same) return sc__bad_input(c, 1, "its shape differs from the first's");
  SC_TRY(same_infer(c));
  c->meta[0].dtype = sc__promote((sc_dtype)a->dtype, (sc_dtype)b->dtype);
  return SC_OK;
}
static sc_status linear_run(sc_call *c) { return scan_to(c, SC_SCAN_LINEAR, 0, c->attr[1].i, c->in[1], c->in[0]); }

/* da[k] = ds[k] s[k-1], where ds[k] = dy[k] + a[k+1] ds[k+1], and db = ds. The scan from the other end does it in one row, since
** the directions are attributes: both are written for `reverse` false and true. */
static sc_status linear_backward(sc_grad_call *g) {
  sc_call c = {.ctx = g->ctx, .op = g->op, .base = g->base};
  bool reverse = g->attr[1].i;
  sc_tensor *moved = NULL, *ds = NULL, *before = NULL;
  sc_attr toward[3] = {g->attr[0], sc__int(reverse ? 1 : -1), sc__float(0)}, away[3] = {g->attr[0], sc__int(reverse ? -1 : 1), sc__float(0)};
  sc_attr opposite[2] = {g->attr[0], sc__bool(!reverse)};
  sc_status s = sc__make(&c, "shift", &g->in[0], 1, toward, 3, &moved);
  if (s == SC_OK) s = sc__make(&c, "linear_scan", (sc_tensor *[]){moved, g->dy[0]}, 2, opposite, 2, &ds);
  if (s == SC_OK && g->wanted[0]) {
    s = sc__make(&c, "shift", &g->out[0], 1, away, 3, &before);
    if (s == SC_OK) s = sc__make(&c, "mul", (sc_tensor *[]){ds, before}, 2, NULL, 0, &g->dx[0]);
  }
  if (s == SC_OK && g->wanted[1]) g->dx[1] = sc_tensor_retain(ds);
  sc_tensor_release(moved);
  sc_tensor_release(ds);
  sc_tensor_release(before);
  return s;
}

/* ---- shift(x, dim, n, fill): y[k] = x[k - n]; what comes from outside is fill ---- */

static sc_status shift_by(sc_call *c, int64_t by, double fill) {
  int dim;
  sc_tensor *x = NULL, *out = c->out[0];
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &dim));
  SC_TRY(sc__tensor_packed(c->in[0], &x));
  int64_t outer, n, inner, value = 0, z = (int64_t)sc_dtype_size((sc_dtype)x->dtype);
  split_at(x, dim, &outer, &n, &inner);
  by = by > n ? n : by < -n ? -n : by;
  sc__store((sc_dtype)x->dtype, &value, sc__is_float((sc_dtype)x->dtype) ? sc__scalar_float(fill) : sc__scalar_int((int64_t)fill));
  for (int64_t o = 0; o < outer && x->numel; o++)
    for (int64_t k = 0; k < n; k++) {
      bool inside = k - by >= 0 && k - by < n;
      const void *from = inside ? (const void *)(x->data + (o * n + k - by) * inner * z) : &value;
      sc__convert(inner, (sc_dtype)x->dtype, out->data + (o * n + k) * inner * z, 1, (sc_dtype)x->dtype, from, inside);
    }
  sc_tensor_release(x);
  return SC_OK;
}
static sc_status shift_run(sc_call *c) { return shift_by(c, c->attr[1].i, sc__number(&c->attr[2])); }
static sc_status shift_back_run(sc_call *c) { return shift_by(c, c->attr[1].i == INT64_MIN ? INT64_MAX : -c->attr[1].i, 0); }

#define RUNNING "The result has x's shape; integers and bools give int64 unless dtype says otherwise."

const sc_op sc__ops_scan[] = {
  {"cumsum(x, dim: dim, dtype: dtype?)", "Running sum along dim; float32 is summed in double.\n" RUNNING, SC_OP_INPLACE, .infer = sum_infer,
   .run = cumsum_run, .grad = {"cumsum_reverse(dy, dim)"}},
  {"cumsum_reverse(x, dim: dim)", "Running sum from the end.", SC_OP_INTERNAL, .infer = same_infer, .run = cumsum_reverse_run,
   .grad = {"cumsum(dy, dim)"}},
  {"cumprod(x, dim: dim, dtype: dtype?)", "Running product along dim; its gradient is exact also where elements are 0.\n" RUNNING, SC_OP_INPLACE,
   .infer = sum_infer, .run = cumprod_run,
   .grad = {"shift(cumprod(x, dim), dim, 1, 1) * linear_scan(shift(x, dim, -1, 0), dy, dim, true)"}},
  {"cumprod_reverse(x, dim: dim)", "Running product from the end.", SC_OP_INTERNAL, .infer = same_infer, .run = cumprod_reverse_run,
   .grad = {"shift(cumprod_reverse(x, dim), dim, -1, 1) * linear_scan(shift(x, dim, 1, 0), dy, dim, false)"}},
  {"logcumsumexp(x, dim: dim)", "log(cumsum(exp(x))) along dim, without overflow.", 0, .infer = logcumsumexp_infer, .run = logcumsumexp_run,
   .grad = {"exp_diff(x, y) * linear_scan(exp_diff(y, shift(y, dim, -1, 1e30)), dy, dim, true)"}},
  {"cummax(x, dim: dim) -> values, indices", "Running maximum along dim and where it is, the last of equals; a NaN stays.", 0,
   .infer = cummax_infer, .run = cummax_run, .grad = {"pick_backward(dy, y2, shape(x), dim, true)"}},
  {"cummin(x, dim: dim) -> values, indices", "Running minimum along dim and where it is, the last of equals; a NaN stays.", 0,
   .infer = cummax_infer, .run = cummin_run, .grad = {"pick_backward(dy, y2, shape(x), dim, true)"}},
  {"linear_scan(a, b, dim: dim, reverse: bool = false)", "s[k] = b[k] + a[k] s[k - 1] along dim (reverse: s[k + 1]), from 0.", SC_OP_INTERNAL,
   .infer = linear_infer, .run = linear_run, .backward = linear_backward},
  {"shift(x, dim: dim, n: int, fill: number = 0)", "y[k] = x[k - n] along dim; fill where that is outside.", SC_OP_INTERNAL, .infer = same_infer,
   .run = shift_run, .grad = {"shift_back(dy, dim, n)"}},
  {"shift_back(x, dim: dim, n: int)", "y[k] = x[k + n] along dim; 0 where that is outside.", SC_OP_INTERNAL, .infer = same_infer,
   .run = shift_back_run, .grad = {"shift(dy, dim, n, 0)"}},
};
const int sc__ops_scan_count = SC_COUNT(sc__ops_scan);
