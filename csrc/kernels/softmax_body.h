/* softmax and its gradient over packed rows, for the type that the including file defines (as in reduce_body.h).
**
** Three passes over a row that stays in cache: the maximum, e^(x - max) with its sum (kept in double lanes), the scaling. */

/* y = e^(x - m); its sum */
static double RN(exp_less)(int64_t n, const T *x, T m, T *y) {
#if FLOATING == 32
  return VM(exps)(n, x, 1, m, 1, y);
#else
  double total = 0;
  SC_IVDEP for (int64_t i = 0; i < n; i++) y[i] = EXP(x[i] - m);
  RN(row_sum)(n, y, &total, 0);
  return total;
#endif
}

/* The maximum. NaN need not win: it comes back in the sum. */
static T RN(top)(int64_t n, const T *x) {
#if FLOATING == 32
  return VM(largest)(n, x);
#else
  double top = -INFINITY;
  RN(row_max)(n, x, &top, 0);
  return top;
#endif
}

static void RN(softmax)(int64_t n, const void *xv, void *yv, bool logarithm) {
  const T *x = xv;
  T *y = yv;
  T m = RN(top)(n, x);
  if (logarithm) {
    enum { CHUNK = 256 };
    T e[CHUNK];
    double total = 0;
    for (int64_t at = 0; at < n; at += CHUNK) total += RN(exp_less)(n - at < CHUNK ? n - at : CHUNK, x + at, m, e);
    /* x - max is exact where it matters; the logarithm of a sum between 1 and n is small */
    T shift = (T)log(total);
    SC_IVDEP for (int64_t i = 0; i < n; i++) y[i] = (x[i] - m) - shift;
    return;
  }
  T scale = (T)(1 / RN(exp_less)(n, x, m, y));
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
    SC_IVDEP for (int64_t i = 0; i < n; i++) d[i] = g[i] - EXP(y[i]) * s;
    return;
  }
  for (int64_t i = 0; i < n; i++) d[i] = g[i] * y[i];
  RN(row_sum)(n, d, &total, 0);
  T s = (T)total;
  for (int64_t i = 0; i < n; i++) d[i] = y[i] * (g[i] - s);
}

static void RN(softmax_columns)(int64_t n, int64_t w, int64_t step, const void *xv, void *yv, bool logarithm) {
  const T *x = xv;
  T *y = yv, m[SC_SOFTMAX_COLUMNS], scale[SC_SOFTMAX_COLUMNS];
  double total[SC_SOFTMAX_COLUMNS];
  for (int64_t i = 0; i < w; i++) { m[i] = x[i]; total[i] = 0; }
  for (int64_t r = 1; r < n; r++)
    for (int64_t i = 0; i < w; i++) { T v = x[r * step + i]; m[i] = ((v > m[i]) | (v != v)) ? v : m[i]; }
  for (int64_t r = 0; r < n; r++) {
    T e[SC_SOFTMAX_COLUMNS], *d = y + r * step;
    const T *c = x + r * step;
    for (int64_t i = 0; i < w; i++) e[i] = EXP(c[i] - m[i]);
    for (int64_t i = 0; i < w; i++) total[i] += (double)e[i];
    if (logarithm) { SC_IVDEP for (int64_t i = 0; i < w; i++) d[i] = c[i] - m[i]; }
    else memcpy(d, e, (size_t)w * sizeof *d);
  }
  for (int64_t i = 0; i < w; i++) scale[i] = (T)(logarithm ? log(total[i]) : 1 / total[i]);
  for (int64_t r = 0; r < n; r++) {
    T *d = y + r * step;
    if (logarithm) for (int64_t i = 0; i < w; i++) d[i] -= scale[i];
    else for (int64_t i = 0; i < w; i++) d[i] *= scale[i];
  }
}

static void RN(softmax_backward_columns)(int64_t n, int64_t w, int64_t step, const void *gv, const void *yv, void *dv, bool logarithm) {
  const T *g = gv, *y = yv;
  T *d = dv, s[SC_SOFTMAX_COLUMNS];
  double total[SC_SOFTMAX_COLUMNS];
  for (int64_t i = 0; i < w; i++) total[i] = 0;
  for (int64_t r = 0; r < n; r++) {
    const T *gr = g + r * step, *yr = y + r * step;
    if (logarithm) for (int64_t i = 0; i < w; i++) total[i] += (double)gr[i];
    else for (int64_t i = 0; i < w; i++) total[i] += (double)gr[i] * (double)yr[i];
  }
  for (int64_t i = 0; i < w; i++) s[i] = (T)total[i];
  for (int64_t r = 0; r < n; r++) {
    const T *gr = g + r * step, *yr = y + r * step;
    T *dr = d + r * step;
    if (logarithm) for (int64_t i = 0; i < w; i++) dr[i] = gr[i] - EXP(yr[i]) * s[i];
    else for (int64_t i = 0; i < w; i++) dr[i] = yr[i] * (gr[i] - s[i]);
  }
}

static const sc_softmax_loops RN(softmax_loops) = {
  .softmax = RN(softmax), .backward = RN(softmax_backward), .softmax_columns = RN(softmax_columns),
  .backward_columns = RN(softmax_backward_columns),
};
