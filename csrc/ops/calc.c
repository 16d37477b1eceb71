/* Arithmetic over ops in C; see calc.h. */
#include "calc.h"

#include <string.h>

static void hold(sc_calc *k, sc_tensor *t) {
  if (k->n < SC_CALC_MAX) { k->held[k->n++] = t; return; }
  sc_tensor_release(t);
  k->status = sc__fail(k->ctx, SC_EINVAL, "an expression over ops is too long");
}

void sc__calc_all(sc_calc *k, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr, sc_tensor **out, int n) {
  for (int i = 0; i < n; i++) out[i] = NULL;
  if (k->status != SC_OK) return;
  const sc_opinfo *op = sc__op_find(k->ctx, name);
  if (!op) { k->status = sc__fail(k->ctx, SC_EINVAL, "there is no op named %s", name); return; }
  sc_attr all[SC_MAX_ATTRS];
  sc__attr_defaults(op, all);
  for (int i = 0; i < n_attr; i++) all[i] = attr[i];
  sc_tensor *given[SC_MAX_INPUTS] = {0};
  if (!op->variadic) {
    for (int i = 0; i < n_in; i++) given[i] = in[i];
    in = given;
    n_in = op->n_in;
  }
  sc_tensor *res[SC_MAX_OUTPUTS];
  int got = 0;
  k->status = sc__emit(k->ctx, op, in, n_in, all, k->ctx->index_base, res, &got);
  if (k->status != SC_OK) return;
  for (int i = 0; i < got; i++) {
    if (i >= n) { sc_tensor_release(res[i]); continue; }
    hold(k, res[i]);
    out[i] = res[i];
  }
  if (k->status != SC_OK) for (int i = 0; i < n; i++) out[i] = NULL;
}

sc_tensor *sc__calc(sc_calc *k, const char *op, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr) {
  sc_tensor *r;
  sc__calc_all(k, op, in, n_in, attr, n_attr, &r, 1);
  return r;
}

sc_tensor *sc__calc1(sc_calc *k, const char *op, sc_tensor *a) { return sc__calc(k, op, &a, 1, NULL, 0); }
sc_tensor *sc__calc2(sc_calc *k, const char *op, sc_tensor *a, sc_tensor *b) { return sc__calc(k, op, (sc_tensor *[]){a, b}, 2, NULL, 0); }

sc_tensor *sc__calc_number(sc_calc *k, double v) {
  sc_tensor *t = NULL;
  if (k->status == SC_OK) k->status = sc__tensor_scalar(k->ctx, false, 0, v, &t);
  if (k->status != SC_OK) return NULL;
  hold(k, t);
  return k->status == SC_OK ? t : NULL;
}

sc_tensor *sc__calc_scaled(sc_calc *k, sc_tensor *a, double factor) { return sc__calc2(k, "mul", a, sc__calc_number(k, factor)); }

sc_tensor *sc__calc_t(sc_calc *k, sc_tensor *a) { return sc__calc(k, "transpose", &a, 1, (sc_attr[]){sc__int(-2), sc__int(-1)}, 2); }

sc_tensor *sc__calc_reshape(sc_calc *k, sc_tensor *a, int n, const int64_t *dim) {
  return sc__calc(k, "reshape", &a, 1, (sc_attr[]){sc__ints(dim, n)}, 1);
}

sc_tensor *sc__calc_unsqueeze(sc_calc *k, sc_tensor *a, int before_end) {
  if (k->status != SC_OK || !a) return NULL;
  int64_t dim[SC_MAX_DIMS + 1];
  int n = 0;
  for (int i = 0; i <= a->ndim; i++) {
    if (i == a->ndim - before_end) dim[n++] = 1;
    if (i < a->ndim) dim[n++] = a->dim[i];
  }
  return sc__calc_reshape(k, a, n, dim);
}

sc_tensor *sc__calc_narrow(sc_calc *k, sc_tensor *a, int dim, int64_t start, int64_t length) {
  if (k->status != SC_OK || !a) return NULL;
  if (dim < 0) dim += a->ndim;
  if (start == 0 && length == a->dim[dim]) return a;
  return sc__calc(k, "narrow", &a, 1, (sc_attr[]){sc__int(dim), sc__int(start), sc__int(length)}, 3);
}

sc_tensor *sc__calc_tri(sc_calc *k, sc_tensor *a, bool upper, int diagonal) {
  return sc__calc(k, upper ? "triu" : "tril", &a, 1, (sc_attr[]){sc__int(diagonal)}, 1);
}

sc_status sc__calc_end(sc_calc *k, sc_tensor *result, sc_tensor **out) {
  if (k->status == SC_OK && result) *out = sc_tensor_retain(result);
  for (int i = k->n - 1; i >= 0; i--) sc_tensor_release(k->held[i]);
  k->n = 0;
  return k->status;
}
