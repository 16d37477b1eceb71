/* The loops of reductions for one element type. The including file defines T (the elements), A (accumulators: double
** or int64_t), UA (A, integers as unsigned so that sums wrap), FLOATING, VEC, AVEC and MASK (vectors of T, of A and of T's comparison results) and RN(name).
**
** `row` folds n packed elements into one accumulator. `col` folds a packed row of n elements into n accumulators, one each.
** Sums of float32 are kept in double, so neither length nor order is felt; vectors of lanes are folded in a fixed order. */

#define LANES (int)(VEC_BYTES / sizeof(T))
#define ALANES (int)(VEC_BYTES / sizeof(A))

/* Neighbours first. */
static inline UA RN(lane_sum)(AVEC v) {
  UA s[ALANES];
  memcpy(s, &v, sizeof s);
  for (int w = 1; w < ALANES; w *= 2) for (int k = 0; k < ALANES; k += 2 * w) s[k] += s[k + w];
  return s[0];
}

/* A sum of an expression of d, the element as A; m is the call's parameter. */
#define ROW_SUM(name, e, ve) \
  static void RN(row_##name)(int64_t n, const void *xv, void *acc, double m) { \
    const T *x = xv; \
    AVEC s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}; \
    int64_t i = 0; \
    (void)m; \
    for (; i + 4 * ALANES <= n; i += 4 * ALANES) { \
      AVEC d; \
      d = RN(widen)(x + i); s0 += ve; \
      d = RN(widen)(x + i + ALANES); s1 += ve; \
      d = RN(widen)(x + i + 2 * ALANES); s2 += ve; \
      d = RN(widen)(x + i + 3 * ALANES); s3 += ve; \
    } \
    for (; i + ALANES <= n; i += ALANES) { AVEC d = RN(widen)(x + i); s0 += ve; } \
    s0 = (s0 + s1) + (s2 + s3); \
    UA total = RN(lane_sum)(s0); \
    for (; i < n; i++) { UA d = (UA)x[i]; total += e; } \
    *(UA *)acc += total; \
  } \
  static void RN(col_##name)(int64_t n, const void *xv, void *acc, const double *mv) { \
    const T *x = xv; \
    UA *a = acc; \
    (void)mv; \
    for (int64_t i = 0; i < n; i++) { UA d = (UA)x[i]; PARAMETER(mv, i) a[i] += e; } \
  }

static inline AVEC RN(widen)(const T *x) {
#if FLOATING == 32
  typedef float half_vector __attribute__((vector_size(VEC_BYTES / 2)));
  half_vector h;
  memcpy(&h, x, sizeof h);
  return __builtin_convertvector(h, AVEC);
#else
  AVEC v;
  memcpy(&v, x, sizeof v);
  return v;
#endif
}

static inline VEC RN(load)(const T *x) { VEC v; memcpy(&v, x, sizeof v); return v; }

#define PARAMETER(mv, i)
ROW_SUM(sum, d, d)
#if FLOATING
#undef PARAMETER
#define PARAMETER(mv, i) double m = mv[i];
ROW_SUM(dev2, (d - m) * (d - m), (d - m) * (d - m))
#undef PARAMETER
#define PARAMETER(mv, i)
ROW_SUM(squares, d * d, d * d)
ROW_SUM(abs, fabs(d), (AVEC)((AMASK)d & INT64_MAX))
ROW_SUM(nansum, (d == d ? d : 0), (AVEC)((AMASK)d & (AMASK)(d == d)))
ROW_SUM(count, (d != 0), __builtin_convertvector(-(d != 0), AVEC))
#else
ROW_SUM(count, (d != 0), (AVEC)-(d != 0))
#endif
#undef PARAMETER

#if FLOATING == 32
/* The lanes of v into two vectors of doubles. */
static inline void RN(add_wide)(VEC v, AVEC *s0, AVEC *s1) {
  typedef float half_vector __attribute__((vector_size(VEC_BYTES / 2)));
#if VEC_BYTES == 64
  half_vector low = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), high = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#elif VEC_BYTES == 32
  half_vector low = __builtin_shufflevector(v, v, 0, 1, 2, 3), high = __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
  half_vector low = __builtin_shufflevector(v, v, 0, 1), high = __builtin_shufflevector(v, v, 2, 3);
#endif
  *s0 += __builtin_convertvector(low, AVEC);
  *s1 += __builtin_convertvector(high, AVEC);
}

static inline VEC RN(four_rows)(const T *x, int64_t step) {
  return (RN(load)(x) + RN(load)(x + step)) + (RN(load)(x + 2 * step) + RN(load)(x + 3 * step));
}

/* Sums whose result is float32 (or a half) again: eight vectors are added in float, as a tree of depth three, and that sum goes into
** double lanes. At most four roundings more than in double all the way, at a third of its cost. */
static void RN(row_quick)(int64_t n, const void *xv, void *acc, double m) {
  const T *x = xv;
  AVEC s0 = {0}, s1 = {0};
  int64_t i = 0;
  (void)m;
  for (; i + 8 * LANES <= n; i += 8 * LANES) {
    RN(add_wide)(RN(four_rows)(x + i, LANES) + RN(four_rows)(x + i + 4 * LANES, LANES), &s0, &s1);
  }
  for (; i + 4 * LANES <= n; i += 4 * LANES) RN(add_wide)(RN(four_rows)(x + i, LANES), &s0, &s1);
  for (; i + LANES <= n; i += LANES) RN(add_wide)(RN(load)(x + i), &s0, &s1);
  if (i + ALANES <= n) { s0 += RN(widen)(x + i); i += ALANES; }
  s0 += s1;
  A total = RN(lane_sum)(s0);
  for (; i < n; i++) total += (A)x[i];
  *(A *)acc += total;
}

/* The same down the columns: sixteen rows of n, `step` apart. */
static void RN(col_quick16)(int64_t n, const void *xv, int64_t step, void *acc) {
  const T *x0 = xv, *x4 = x0 + 4 * step, *x8 = x4 + 4 * step, *x12 = x8 + 4 * step;
  A *a = acc;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    VEC v = (RN(four_rows)(x0 + i, step) + RN(four_rows)(x4 + i, step)) + (RN(four_rows)(x8 + i, step) + RN(four_rows)(x12 + i, step));
    AVEC s0, s1;
    memcpy(&s0, a + i, sizeof s0);
    memcpy(&s1, a + i + ALANES, sizeof s1);
    RN(add_wide)(v, &s0, &s1);
    memcpy(a + i, &s0, sizeof s0);
    memcpy(a + i + ALANES, &s1, sizeof s1);
  }
  for (; i < n; i++) {
    T sum[4];
    for (int k = 0; k < 4; k++) {
      const T *c = x0 + i + 4 * k * step;
      sum[k] = (c[0] + c[step]) + (c[2 * step] + c[3 * step]);
    }
    a[i] += (A)((sum[0] + sum[1]) + (sum[2] + sum[3]));
  }
}
#endif

static void RN(row_prod)(int64_t n, const void *xv, void *acc, double m) {
  const T *x = xv;
  (void)m;
#if FLOATING
  AVEC s0 = {0}, s1 = {0};
  s0 += 1;
  s1 += 1;
  int64_t i = 0;
  for (; i + 2 * ALANES <= n; i += 2 * ALANES) { s0 *= RN(widen)(x + i); s1 *= RN(widen)(x + i + ALANES); }
  s0 *= s1;
  A total = 1;
  for (int k = 0; k < ALANES; k++) total *= s0[k];
  for (; i < n; i++) total *= x[i];
  *(A *)acc *= total;
#else
  uint64_t total = 1;
  for (int64_t i = 0; i < n; i++) total *= (uint64_t)x[i];
  *(uint64_t *)acc *= total;
#endif
}

static void RN(col_prod)(int64_t n, const void *xv, void *acc, const double *m) {
  const T *x = xv;
  (void)m;
#if FLOATING
  A *a = acc;
#else
  uint64_t *a = acc;
#endif
  for (int64_t i = 0; i < n; i++) a[i] *= x[i];
}

/* Largest and smallest; a NaN wins. Comparisons with NaN are false, so NaNs are only counted in the loop and win at its end. */
#define SELECT(mask, a, b) (VEC)(((MASK)(mask) & (MASK)(a)) | (~(MASK)(mask) & (MASK)(b)))
#define EXTREME(name, op, prepare, vprepare) \
  static void RN(row_##name)(int64_t n, const void *xv, void *acc, double m) { \
    const T *x = xv; \
    (void)m; \
    A best = *(A *)acc; \
    int64_t i = 0; \
    if (n >= 4 * LANES) { \
      VEC b0, b1, b2, b3; \
      MASK odd = {0}; \
      b0 = RN(load)(x); \
      odd |= ODD(b0); \
      b0 = vprepare(b0); \
      b1 = b2 = b3 = b0; \
      for (; i + 4 * LANES <= n; i += 4 * LANES) { \
        VEC v0 = vprepare(RN(load)(x + i)), v1 = vprepare(RN(load)(x + i + LANES)); \
        VEC v2 = vprepare(RN(load)(x + i + 2 * LANES)), v3 = vprepare(RN(load)(x + i + 3 * LANES)); \
        odd |= ODD(v0) | ODD(v1) | ODD(v2) | ODD(v3); \
        b0 = SELECT(v0 op b0, v0, b0); \
        b1 = SELECT(v1 op b1, v1, b1); \
        b2 = SELECT(v2 op b2, v2, b2); \
        b3 = SELECT(v3 op b3, v3, b3); \
      } \
      b0 = SELECT(b1 op b0, b1, b0); \
      b2 = SELECT(b3 op b2, b3, b2); \
      b0 = SELECT(b2 op b0, b2, b0); \
      bool any = false; \
      for (int k = 0; k < LANES; k++) any |= odd[k] != 0; \
      if (any) { *(A *)acc = RN(odd)(); return; } \
      for (int k = 0; k < LANES; k++) { A v = (A)b0[k]; if (v op best) best = v; } \
    } \
    for (; i < n; i++) { A v = (A)prepare(x[i]); if (v op best || ODDONE(v)) best = v; } \
    *(A *)acc = best; \
  } \
  static void RN(col_##name)(int64_t n, const void *xv, void *acc, const double *m) { \
    const T *x = xv; \
    A *a = acc; \
    (void)m; \
    for (int64_t i = 0; i < n; i++) { A v = (A)prepare(x[i]), b = a[i]; a[i] = ((v op b) | ODDONE(v)) ? v : b; } \
  }
#if FLOATING == 32
/* Down the columns, sixteen rows at once, `step` apart: in vectors of T, so that the wide accumulators are touched once. */
#define EXTREME16(name, op, prepare, vprepare) \
  static void RN(col16_##name)(int64_t n, const void *xv, int64_t step, void *acc) { \
    const T *x = xv; \
    A *a = acc; \
    int64_t i = 0; \
    for (; i + LANES <= n; i += LANES) { \
      VEC b = vprepare(RN(load)(x + i)); \
      for (int k = 1; k < 16; k++) { \
        VEC v = vprepare(RN(load)(x + k * step + i)); \
        b = SELECT((v op b) | (v != v), v, b); \
      } \
      T best[LANES]; \
      memcpy(best, &b, sizeof b); \
      for (int k = 0; k < LANES; k++) { A v = (A)best[k], old = a[i + k]; a[i + k] = ((v op old) | (v != v)) ? v : old; } \
    } \
    for (int k = 0; k < 16 && i < n; k++) RN(col_##name)(n - i, x + k * step + i, a + i, NULL); \
  }
#else
#define EXTREME16(name, op, prepare, vprepare)
#endif
#if FLOATING
static inline A RN(odd)(void) { return (A)NAN; }
#define ODD(v) ((v) != (v))
#define ODDONE(v) ((v) != (v))
#define VABS(v) (VEC)((MASK)(v) & SIGNLESS)
#else
static inline A RN(odd)(void) { return 0; }
#define ODD(v) ((MASK){0})
#define ODDONE(v) 0
#endif
#define AS_IT_IS(v) (v)
EXTREME(max, >, AS_IT_IS, AS_IT_IS)
EXTREME(min, <, AS_IT_IS, AS_IT_IS)
EXTREME16(max, >, AS_IT_IS, AS_IT_IS)
EXTREME16(min, <, AS_IT_IS, AS_IT_IS)
#if FLOATING
EXTREME(maxabs, >, fabs, VABS)
EXTREME(minabs, <, fabs, VABS)
#undef VABS
#endif

/* The first element equal to value (or the first NaN, when value is one); n when there is none. */
static int64_t RN(find)(int64_t n, const void *xv, const void *value) {
  const T *x = xv;
  T v = (T)*(const A *)value;
  int64_t i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES) {
    int hit = 0;
    if (!ODDONE(v)) for (int k = 0; k < 4 * LANES; k++) hit |= x[i + k] == v;
    else for (int k = 0; k < 4 * LANES; k++) hit |= ODDONE(x[i + k]);
    if (hit) break;
  }
  for (; i < n; i++) if (x[i] == v || (ODDONE(v) && ODDONE(x[i]))) return i;
  return n;
}

/* Best of each column and where; r: this row's number. The first of equals stays, a NaN wins. */
#define COL_ARG(name, op) \
  static void RN(col_##name)(int64_t n, const void *xv, void *acc, int64_t *index, int64_t r) { \
    const T *x = xv; \
    A *a = acc; \
    for (int64_t i = 0; i < n; i++) { \
      A v = (A)x[i], b = a[i]; \
      int better = ((v op b) | (ODDONE(v))) & (!ODDONE(b)); \
      a[i] = better ? v : b; \
      index[i] = better ? r : index[i]; \
    } \
  }
COL_ARG(argmax, >)
COL_ARG(argmin, <)

#if FLOATING
/* d = e ^ (x - m) into packed T; returns nothing: the sum is taken of d. */
static void RN(map_exp)(int64_t n, const void *xv, void *dv, double m) {
  const T *x = xv;
  T *d = dv, mm = (T)m;
  for (int64_t i = 0; i < n; i++) d[i] = EXP(x[i] - mm);
}
static void RN(map_exp_cols)(int64_t n, const void *xv, void *dv, const double *m) {
  const T *x = xv;
  T *d = dv;
  for (int64_t i = 0; i < n; i++) d[i] = EXP(x[i] - (T)m[i]);
}
#endif

static const sc_reduce_loops RN(loops) = {
  .row = {[SC_RED_SUM] = RN(row_sum), [SC_RED_PROD] = RN(row_prod), [SC_RED_MAX] = RN(row_max), [SC_RED_MIN] = RN(row_min),
          [SC_RED_COUNT] = RN(row_count),
#if FLOATING == 32
          [SC_RED_QUICK] = RN(row_quick),
#else
          [SC_RED_QUICK] = RN(row_sum),
#endif
#if FLOATING
          [SC_RED_SQUARES] = RN(row_squares), [SC_RED_ABS] = RN(row_abs), [SC_RED_NANSUM] = RN(row_nansum), [SC_RED_DEV2] = RN(row_dev2),
          [SC_RED_MAXABS] = RN(row_maxabs), [SC_RED_MINABS] = RN(row_minabs), [SC_RED_EXP] = RN(row_sum),
#endif
  },
  .col = {[SC_RED_SUM] = RN(col_sum), [SC_RED_PROD] = RN(col_prod), [SC_RED_MAX] = RN(col_max), [SC_RED_MIN] = RN(col_min),
          [SC_RED_COUNT] = RN(col_count), [SC_RED_QUICK] = RN(col_sum),
#if FLOATING
          [SC_RED_SQUARES] = RN(col_squares), [SC_RED_ABS] = RN(col_abs), [SC_RED_NANSUM] = RN(col_nansum), [SC_RED_DEV2] = RN(col_dev2),
          [SC_RED_MAXABS] = RN(col_maxabs), [SC_RED_MINABS] = RN(col_minabs), [SC_RED_EXP] = RN(col_sum),
#endif
  },
#if FLOATING == 32
  .col16 = {[SC_RED_QUICK] = RN(col_quick16), [SC_RED_MAX] = RN(col16_max), [SC_RED_MIN] = RN(col16_min)},
#endif
  .find = RN(find), .col_argmax = RN(col_argmax), .col_argmin = RN(col_argmin),
#if FLOATING
  .map_exp = RN(map_exp), .map_exp_cols = RN(map_exp_cols),
#endif
};
#undef ODD
#undef ODDONE
#undef EXTREME
#undef EXTREME16
#undef SELECT
#undef COL_ARG
#undef ROW_SUM
#undef AS_IT_IS
#undef LANES
#undef ALANES
