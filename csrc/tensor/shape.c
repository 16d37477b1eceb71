/* Shapes: products checked for overflow, strides, broadcasting, text. */
#include "tensor.h"

#include <stdio.h>

sc_status sc__numel(sc_context *ctx, const char *op, sc_dtype dtype, int ndim, const int64_t *dim, int64_t *numel) {
  char text[256];
  int64_t n = 1;
  bool empty = false, fits = true;
  for (int i = 0; i < ndim; i++) {
    if (dim[i] < 0)
      return sc__fail(ctx, SC_EINVAL, "%s: negative size %lld in shape %s", op, (long long)dim[i], sc__shape_text(ndim, dim, text, sizeof text));
    if (dim[i] == 0) empty = true;
    else fits = fits && sc__mul(n, dim[i], &n);
  }
  int64_t bytes;
  if (!fits || !sc__mul(n, (int64_t)sc_dtype_size(dtype), &bytes) || bytes > INT64_MAX / 4)
    return sc__fail(ctx, SC_EINVAL, "%s: shape %s of %s is too large", op, sc__shape_text(ndim, dim, text, sizeof text), sc_dtype_name(dtype));
  *numel = empty ? 0 : n;
  return SC_OK;
}

void sc__contiguous_strides(int ndim, const int64_t *dim, int64_t *stride) {
  uint64_t s = 1;                                        /* may wrap for sizes that are refused elsewhere */
  for (int i = ndim - 1; i >= 0; i--) {
    stride[i] = (int64_t)s;
    s *= dim[i] > 1 ? (uint64_t)dim[i] : 1;
  }
}

const char *sc__shape_text(int ndim, const int64_t *dim, char *out, size_t size) {
  size_t at = (size_t)snprintf(out, size, "{");
  for (int i = 0; i < ndim && at + 32 < size; i++) at += (size_t)snprintf(out + at, size - at, i ? ", %lld" : "%lld", (long long)dim[i]);
  snprintf(out + at, size - at, "}");
  return out;
}

bool sc__broadcast(int na, const int64_t *a, int nb, const int64_t *b, int *n, int64_t *out) {
  int nd = na > nb ? na : nb;
  for (int i = 0; i < nd; i++) {                     /* from the last dimension */
    int64_t da = i < na ? a[na - 1 - i] : 1, db = i < nb ? b[nb - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) return false;
    out[nd - 1 - i] = da == 1 ? db : da;
  }
  *n = nd;
  return true;
}
