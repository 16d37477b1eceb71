/* softmax and its gradient over packed rows, for the type that the including file defines (as in reduce_body.h).
**
** Three passes over a row that stays in cache: the maximum, e^(x - max) with its sum (kept in double lanes), the scaling. */

static void RN(softmax)(int64_t n, const void *xv, void *yv, bool logarithm) {
  const T *x = xv;
  T *y = yv;
  double top = -INFINITY;
  RN(row_max)(n, x, &top, 0);
  T m = (T)top;
  double total = 0;
  if (logarithm) {
    enum { CHUNK = 256 };
    T e[CHUNK];
    for (int64_t at = 0; at < n; at += CHUNK) {
      int64_t k = n - at < CHUNK ? n - at : CHUNK;
      for (int64_t i = 0; i < k; i++) e[i] = EXP(x[at + i] - m);
      RN(row_sum)(k, e, &total, 0);
    }
    /* x - max is exact where it matters; the logarithm of a sum between 1 and n is small */
    T shift = (T)log(total);
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) - shift;
    return;
  }
  for (int64_t i = 0; i < n; i++) y[i] = EXP(x[i] - m);
  RN(row_sum)(n, y, &total, 0);
  T scale = (T)(1 / total);
  for (int64_t i = 0; i < n; i++) y[i] *= scale;
}

/* softmax: d = y * (g - sum(g * y)); log_softmax: d = g - e^y * sum(g) */
static void RN(softmax_backward)(int64_t n, const void *gv, const void *yv, void *dv, bool logarithm) {
  const T *g = gv, *y = yv;
  T *d = dv;
  double total = 0;
  if (logarithm) {
    RN(row_sum)(n, g, &total, 0);
    T s = (T)total;
    for (int64_t i = 0; i < n; i++) d[i] = g[i] - EXP(y[i]) * s;
    return;
  }
  for (int64_t i = 0; i < n; i++) d[i] = g[i] * y[i];
  RN(row_sum)(n, d, &total, 0);
  T s = (T)total;
  for (int64_t i = 0; i < n; i++) d[i] = y[i] * (g[i] - s);
}

static const sc_softmax_loops RN(softmax_loops) = {.softmax = RN(softmax), .backward = RN(softmax_backward)};
