/* Running sums over packed memory, for the type that the including file defines (as in reduce_body.h). Sums are kept in A: float32
** in double, so that a million terms lose nothing. */

/* v with its prefix sums, by log2(lanes) shifts and adds; then only the carry is sequential. */
static inline AVEC RN(prefix)(AVEC v) {
  const AVEC zero = {0};
#if VEC_BYTES == 64
  v += __builtin_shufflevector(zero, v, 0, 8, 9, 10, 11, 12, 13, 14);
  v += __builtin_shufflevector(zero, v, 0, 1, 8, 9, 10, 11, 12, 13);
  v += __builtin_shufflevector(zero, v, 0, 1, 2, 3, 8, 9, 10, 11);
#elif VEC_BYTES == 32
  v += __builtin_shufflevector(zero, v, 0, 4, 5, 6);
  v += __builtin_shufflevector(zero, v, 0, 1, 4, 5);
#else
  v += __builtin_shufflevector(zero, v, 0, 2);
#endif
  return v;
}

static inline void RN(narrow)(T *y, AVEC v) {
#if FLOATING == 32
  typedef float half_vector __attribute__((vector_size(VEC_BYTES / 2)));
  half_vector h = __builtin_convertvector(v, half_vector);
  memcpy(y, &h, sizeof h);
#else
  memcpy(y, &v, sizeof v);
#endif
}

static void RN(cumsum_row)(int64_t n, const void *xv, void *yv) {
  const T *x = xv;
  T *y = yv;
  UA carry = 0;
  int64_t i = 0;
  enum { W = VEC_BYTES / 8 };
  for (; i + 2 * W <= n; i += 2 * W) {
    AVEC a = RN(prefix)(RN(widen)(x + i)), b = RN(prefix)(RN(widen)(x + i + W));
    UA middle = carry + a[W - 1];
    RN(narrow)(y + i, a + carry);
    RN(narrow)(y + i + W, b + middle);
    carry = middle + b[W - 1];
  }
  for (; i < n; i++) { carry += (UA)x[i]; y[i] = (T)carry; }
}

/* The same down the columns: n rows of w columns, `step` apart; acc: one sum a column, 0 at the start. */
static void RN(cumsum_columns)(int64_t n, int64_t w, int64_t step, const void *xv, void *yv, void *acc) {
  UA *s = acc;
  for (int64_t r = 0; r < n; r++) {
    const T *x = (const T *)xv + r * step;
    T *y = (T *)yv + r * step;
    for (int64_t i = 0; i < w; i++) { s[i] += (UA)x[i]; y[i] = (T)s[i]; }
  }
}

static const sc_scan_loops RN(scan_loops) = {.cumsum_row = RN(cumsum_row), .cumsum_columns = RN(cumsum_columns)};
