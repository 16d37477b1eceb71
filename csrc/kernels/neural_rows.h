/* Stamped by neural_stamp.h: T the element type, NK(name) the name, NK_EXP and NK_TANH the functions of T. No include guard. */

enum { NK(LANES) = 32, NK(BLOCK) = 512 };

/* expr over x[i] (and others) summed into `total`, a double */
#define NK_SUM(total, expr) \
  for (int64_t at_ = 0; at_ < n; at_ += NK(BLOCK)) { \
    int64_t end_ = n - at_ < NK(BLOCK) ? n : at_ + NK(BLOCK), i = at_; \
    T lane_[NK(LANES)] = {0}; \
    for (; i + NK(LANES) <= end_; i += NK(LANES)) { \
      const int64_t b_ = i; \
      for (int k_ = 0; k_ < NK(LANES); k_++) { const int64_t i = b_ + k_; lane_[k_] += (expr); } \
    } \
    T half_[NK(LANES) / 4]; \
    for (int k_ = 0; k_ < NK(LANES) / 4; k_++) \
      half_[k_] = (lane_[k_] + lane_[k_ + NK(LANES) / 4]) + (lane_[k_ + NK(LANES) / 2] + lane_[k_ + NK(LANES) / 4 * 3]); \
    double s_ = 0; \
    for (int k_ = 0; k_ < NK(LANES) / 4; k_++) s_ += (double)half_[k_]; \
    for (; i < end_; i++) s_ += (double)(expr); \
    total += s_; \
  }

/* ---- what rows of float32 have vector code for ---- */
#ifdef NK_VECTORS
static double NK(sum)(int64_t n, const T *x) { return VM(sum)(n, x); }
static double NK(about)(int64_t n, const T *x, T m, double *squares) { return VM(moments)(n, x, m, squares); }
static double NK(max)(int64_t n, const void *x) { return (double)VM(largest)(n, x); }
static double NK(exps)(int64_t n, const T *x, T scale, T shift, T factor, T *y) { return VM(exps)(n, x, scale, shift, factor, y); }
static void NK(sigmoids)(int64_t n, T *x) { VM(sigmoids)(n, x, x); }
static void NK(tanhs)(int64_t n, const T *x, T *y) { VM(tanhs)(n, x, y); }
#else
static double NK(sum)(int64_t n, const T *x) {
  double total = 0;
  NK_SUM(total, x[i])
  return total;
}

/* The sum of x - m, and of its squares. */
static double NK(about)(int64_t n, const T *x, T m, double *squares) {
  double a = 0, b = 0;
  NK_SUM(a, x[i] - m)
  NK_SUM(b, (x[i] - m) * (x[i] - m))
  *squares = b;
  return a;
}

static double NK(max)(int64_t n, const void *xv) {
  const T *x = xv;
  T lane[NK(LANES)];
  int64_t i = 0;
  for (int k = 0; k < NK(LANES); k++) lane[k] = (T)-INFINITY;
  for (; i + NK(LANES) <= n; i += NK(LANES))
    for (int k = 0; k < NK(LANES); k++) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
  T m = (T)-INFINITY;
  for (int k = 0; k < NK(LANES); k++) m = lane[k] > m ? lane[k] : m;
  for (; i < n; i++) m = x[i] > m ? x[i] : m;
  return (double)m;
}

/* y = e^(x scale - shift) factor; its sum */
static double NK(exps)(int64_t n, const T *x, T scale, T shift, T factor, T *y) {
  double total = 0;
  for (int64_t i = 0; i < n; i++) y[i] = NK_EXP(x[i] * scale - shift) * factor;
  NK_SUM(total, y[i])
  return total;
}

static void NK(sigmoids)(int64_t n, T *x) { for (int64_t k = 0; k < n; k++) x[k] = 1 / (1 + NK_EXP(-x[k])); }
static void NK(tanhs)(int64_t n, const T *x, T *y) { for (int64_t k = 0; k < n; k++) y[k] = NK_TANH(x[k]); }
#endif

static void NK(moments)(int64_t n, const void *xv, double shift, double *sum, double *squares) {
  const T *x = xv;
  T m = (T)shift;
  *sum = NK(about)(n, x, m, squares) + (double)n * (double)m;
}

static void NK(cross_moments)(int64_t n, const void *dyv, const void *xv, double shift, double *sum, double *product) {
  const T *dy = dyv, *x = xv;
  T m = (T)shift;
  double a = 0, b = 0;
  NK_SUM(a, dy[i])
  NK_SUM(b, dy[i] * (x[i] - m))
  *sum = a;
  *product = b;
}

static void NK(affine)(int64_t n, const void *xv, double a, double b, void *yv) {
  const T *x = xv, p = (T)a, q = (T)b;
  T *y = yv;
  SC_IVDEP for (int64_t i = 0; i < n; i++) y[i] = x[i] * p + q;
}

static void NK(affine2)(int64_t n, const void *dyv, const void *xv, double a, double b, double c, void *yv) {
  const T *dy = dyv, *x = xv, p = (T)a, q = (T)b, r = (T)c;
  T *y = yv;
  for (int64_t i = 0; i < n; i++) y[i] = NK_MADD(dy[i], p, x[i] * q) + r;
}

static void NK(norm_row)(int64_t n, const void *xv, const void *wv, const void *bv, double eps, void *yv, void *mean, void *rstd) {
  const T *x = xv, *w = wv, *b = bv;
  T *y = yv;
  T m = (T)(n ? NK(sum)(n, x) / (double)n : 0);
  double squares, rest = NK(about)(n, x, m, &squares);     /* rest: what rounding the mean to T left over */
  double left = n ? rest / (double)n : 0, var = n ? squares / (double)n - left * left : 0;
  T r = (T)(1 / sqrt((var > 0 ? var : var == var ? 0 : var) + eps)), shift = (T)left;
  *(T *)mean = (T)((double)m + left);
  *(T *)rstd = r;
  if (w && b) { SC_IVDEP for (int64_t i = 0; i < n; i++) y[i] = ((x[i] - m) - shift) * r * w[i] + b[i]; }
  else if (w) { SC_IVDEP for (int64_t i = 0; i < n; i++) y[i] = ((x[i] - m) - shift) * r * w[i]; }
  else if (b) { SC_IVDEP for (int64_t i = 0; i < n; i++) y[i] = ((x[i] - m) - shift) * r + b[i]; }
  else { SC_IVDEP for (int64_t i = 0; i < n; i++) y[i] = ((x[i] - m) - shift) * r; }
}

static void NK(norm_row_back)(int64_t n, const void *dyv, const void *xv, const void *wv, const void *mean, const void *rstd, void *dxv,
                              void *dwv, void *dbv) {
  const T *dy = dyv, *x = xv, *w = wv, m = *(const T *)mean, r = *(const T *)rstd;
  T *restrict dx = dxv, *restrict dw = dwv, *restrict db = dbv;
  if (dx) {
    double s1 = 0, s2 = 0;
    if (w) {
      NK_SUM(s1, dy[i] * w[i])
      NK_SUM(s2, dy[i] * w[i] * (x[i] - m))
    } else {
      NK_SUM(s1, dy[i])
      NK_SUM(s2, dy[i] * (x[i] - m))
    }
    T a = (T)(s1 / (double)n), b = (T)(s2 / (double)n * (double)r * (double)r);
    if (w) for (int64_t i = 0; i < n; i++) dx[i] = (dy[i] * w[i] - a - (x[i] - m) * b) * r;
    else for (int64_t i = 0; i < n; i++) dx[i] = (dy[i] - a - (x[i] - m) * b) * r;
  }
  if (dw) for (int64_t i = 0; i < n; i++) dw[i] += dy[i] * (x[i] - m) * r;
  if (db) for (int64_t i = 0; i < n; i++) db[i] += dy[i];
}

static double NK(exp_sum)(int64_t n, const void *xv, double scale, double shift, void *ev) {
  const T *x = xv;
  T *e = ev, tile[NK(BLOCK)];
  double total = 0;
  for (int64_t at = 0; at < n; at += NK(BLOCK)) {
    int64_t k = n - at < NK(BLOCK) ? n - at : NK(BLOCK);
    total += NK(exps)(k, x + at, (T)scale, (T)shift, 1, e ? e + at : tile);
  }
  return total;
}

static double NK(dot)(int64_t n, const void *av, const void *bv) {
  const T *a = av, *b = bv;
  double total = 0;
  NK_SUM(total, a[i] * b[i])
  return total;
}

static void NK(hide)(int64_t n, const uint8_t *restrict seen, void *xv) {
  T *restrict x = xv;
  for (int64_t i = 0; i < n; i++) x[i] = seen[i] ? x[i] : (T)-INFINITY;
}

static void NK(add)(int64_t n, const void *av, void *xv) {
  const T *restrict a = av;
  T *restrict x = xv;
  for (int64_t i = 0; i < n; i++) x[i] += a[i];
}

static void NK(exp_scaled)(int64_t n, const void *xv, double shift, double a, void *yv) {
  (void)NK(exps)(n, xv, 1, (T)shift, (T)a, yv);
}

static void NK(softmax_back)(int64_t n, const void *pv, const void *dpv, double delta, double scale, void *dsv) {
  const T *p = pv, *dp = dpv, d = (T)delta, s = (T)scale;
  T *ds = dsv;
  for (int64_t i = 0; i < n; i++) ds[i] = p[i] * (dp[i] - d) * s;
}

/* ---- recurrent cells ---- */

/* In short passes: a single loop over all gates is too much for vectorisers. */
static void NK(lstm)(int64_t H, void *gatev, const void *c_oldv, void *cv, void *hv, void *tcv) {
  T *g = gatev;
  NK(sigmoids)(2 * H, g);
  NK(tanhs)(H, g + 2 * H, g + 2 * H);
  NK(sigmoids)(H, g + 3 * H);
  const T *restrict i = g, *restrict f = g + H, *restrict a = g + 2 * H, *restrict o = g + 3 * H, *restrict c_old = c_oldv;
  T *restrict c = cv, *restrict h = hv, *restrict tc = tcv;
  for (int64_t k = 0; k < H; k++) c[k] = NK_MADD(f[k], c_old[k], i[k] * a[k]);
  NK(tanhs)(H, c, tc);
  for (int64_t k = 0; k < H; k++) h[k] = o[k] * tc[k];
}

static void NK(lstm_back)(int64_t H, const void *gatev, const void *tcv, const void *c_oldv, const void *dhv, void *dcv, void *dgatev) {
  const T *g = gatev, *restrict tc = tcv, *restrict c_old = c_oldv, *restrict dh = dhv;
  const T *restrict gi = g, *restrict gf = g + H, *restrict ga = g + 2 * H, *restrict go = g + 3 * H;
  T *dg = dgatev, *restrict dc = dcv, *restrict di = dg, *restrict df = dg + H, *restrict da = dg + 2 * H, *restrict dout = dg + 3 * H;
  for (int64_t k = 0; k < H; k++) {
    T d = dc[k] + dh[k] * go[k] * (1 - tc[k] * tc[k]);
    di[k] = d * ga[k] * gi[k] * (1 - gi[k]);
    df[k] = d * c_old[k] * gf[k] * (1 - gf[k]);
    da[k] = d * gi[k] * (1 - ga[k] * ga[k]);
    dout[k] = dh[k] * tc[k] * go[k] * (1 - go[k]);
    dc[k] = d * gf[k];
  }
}

static void NK(gru)(int64_t H, const void *giv, const void *ghv, const void *h_oldv, void *hv, void *keepv) {
  const T *restrict gi = giv, *restrict gh = ghv, *restrict h_old = h_oldv;
  T *restrict h = hv, *keep = keepv, *restrict r = keep, *restrict z = keep + H, *restrict n = keep + 2 * H, *restrict q = keep + 3 * H;
  for (int64_t k = 0; k < 2 * H; k++) r[k] = gi[k] + gh[k];
  NK(sigmoids)(2 * H, keep);
  for (int64_t k = 0; k < H; k++) {
    q[k] = gh[2 * H + k];
    n[k] = gi[2 * H + k] + r[k] * q[k];
  }
  NK(tanhs)(H, keep + 2 * H, keep + 2 * H);
  for (int64_t k = 0; k < H; k++) h[k] = (h_old[k] - n[k]) * z[k] + n[k];
}

static void NK(gru_back)(int64_t H, const void *keepv, const void *h_oldv, void *dhv, void *dgiv, void *dghv) {
  const T *restrict keep = keepv, *restrict h_old = h_oldv;
  T *restrict dh = dhv, *restrict dgi = dgiv, *restrict dgh = dghv;
  for (int64_t k = 0; k < H; k++) {
    T r = keep[k], z = keep[H + k], n = keep[2 * H + k], q = keep[3 * H + k], d = dh[k];
    T dn = d * (1 - z) * (1 - n * n), dr = dn * q * r * (1 - r), dz = d * (h_old[k] - n) * z * (1 - z);
    dgi[k] = dr; dgi[H + k] = dz; dgi[2 * H + k] = dn;
    dgh[k] = dr; dgh[H + k] = dz; dgh[2 * H + k] = dn * r;
    dh[k] = d * z;
  }
}

static void NK(rnn)(int64_t H, bool relu, const void *av, void *hv) {
  const T *a = av;
  T *h = hv;
  if (relu) for (int64_t k = 0; k < H; k++) h[k] = a[k] > 0 ? a[k] : (a[k] != a[k] ? a[k] : 0);
  else NK(tanhs)(H, a, h);
}

static void NK(rnn_back)(int64_t H, bool relu, const void *hv, const void *dhv, void *dav) {
  const T *h = hv, *dh = dhv;
  T *da = dav;
  if (relu) for (int64_t k = 0; k < H; k++) da[k] = h[k] > 0 ? dh[k] : 0;
  else for (int64_t k = 0; k < H; k++) da[k] = dh[k] * (1 - h[k] * h[k]);
}

#undef NK_SUM

const sc_neural NK3(sc__neural, T, ISA) = {
  .norm_row = NK(norm_row), .norm_row_back = NK(norm_row_back), .moments = NK(moments), .cross_moments = NK(cross_moments), .affine = NK(affine),
  .affine2 = NK(affine2), .max = NK(max), .exp_sum = NK(exp_sum), .hide = NK(hide), .add = NK(add), .dot = NK(dot), .exp_scaled = NK(exp_scaled), .softmax_back = NK(softmax_back),
  .lstm = NK(lstm), .lstm_back = NK(lstm_back), .gru = NK(gru), .gru_back = NK(gru_back), .rnn = NK(rnn), .rnn_back = NK(rnn_back),
};
