/* Products with a vector, stamped per instruction set and type. All of them run at the speed of memory, so the one thing that matters is
** to read the matrix once, in order, with several rows in flight. No include guard: each instruction set has a file.
**
**   rows     y[i] = sum over p of a[i, p] * x[p]       a row of the matrix per result
**   columns  y[j] = sum over p of x[p] * b[p, j]       a row of the matrix per term
**   outer    c[i, j] = a[i] * b[j]
** each times alpha, with beta * y added (beta 0: y is not read). Every result is summed in one order that depends on the sizes only. */
#include <string.h>

#define GV_CAT3_(a, b, c) a##_##b##_##c
#define GV_CAT3(a, b, c) GV_CAT3_(a, b, c)

/* Vectors of the instruction set's own width; GV_PARTS of them are 64 bytes of a row, so that eight sums at the least are under way. */
enum { GV_CAT3(gv, parts, ISA) = 64 / VEC_BYTES };
#define GV_PARTS GV_CAT3(gv, parts, ISA)
typedef float GV_CAT3(gv, float, ISA) __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));
typedef double GV_CAT3(gv, double, ISA) __attribute__((vector_size(VEC_BYTES), aligned(8), may_alias));

typedef float GV_CAT3(gv, quad, ISA) __attribute__((vector_size(16), may_alias));
typedef double GV_CAT3(gv, pair, ISA) __attribute__((vector_size(16), may_alias));
#if defined(__clang__)
#define GV_MIX(I, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define GV_MIX(I, a, b, ...) __builtin_shuffle(a, b, (I){__VA_ARGS__})
#endif

/* The sum of a vector's quarters, halves or itself: 16 bytes. */
static inline GV_CAT3(gv, quad, ISA) GV_CAT3(quarter, float, ISA)(GV_CAT3(gv, float, ISA) v) {
#if VEC_BYTES == 64
  typedef float half __attribute__((vector_size(32)));
  half h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  return __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
#elif VEC_BYTES == 32
  return __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
#else
  return v;
#endif
}

static inline double GV_CAT3(quarter, double, ISA)(GV_CAT3(gv, double, ISA) v) {
#if VEC_BYTES == 64
  typedef double half __attribute__((vector_size(32)));
  half h = __builtin_shufflevector(v, v, 0, 1, 2, 3) + __builtin_shufflevector(v, v, 4, 5, 6, 7);
  GV_CAT3(gv, pair, ISA) q = __builtin_shufflevector(h, h, 0, 1) + __builtin_shufflevector(h, h, 2, 3);
#elif VEC_BYTES == 32
  GV_CAT3(gv, pair, ISA) q = __builtin_shufflevector(v, v, 0, 1) + __builtin_shufflevector(v, v, 2, 3);
#else
  GV_CAT3(gv, pair, ISA) q = v;
#endif
  return q[0] + q[1];
}

/* t[r] = the sum of v[r]'s lanes: in vectors of 16 bytes, then by turning four of them round. */
static inline void GV_CAT3(fold, float, ISA)(const GV_CAT3(gv, float, ISA) *v, float *t) {
  typedef GV_CAT3(gv, quad, ISA) Q;
  typedef int I __attribute__((vector_size(16)));
  Q q[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; r++) q[r] = GV_CAT3(quarter, float, ISA)(v[r]);
  Q low01 = GV_MIX(I, q[0], q[1], 0, 4, 1, 5), high01 = GV_MIX(I, q[0], q[1], 2, 6, 3, 7);
  Q low23 = GV_MIX(I, q[2], q[3], 0, 4, 1, 5), high23 = GV_MIX(I, q[2], q[3], 2, 6, 3, 7), a = low01 + high01, b = low23 + high23;
  Q sum = GV_MIX(I, a, b, 0, 1, 4, 5) + GV_MIX(I, a, b, 2, 3, 6, 7);
  memcpy(t, &sum, sizeof sum);
}

static inline void GV_CAT3(fold, double, ISA)(const GV_CAT3(gv, double, ISA) *v, double *t) {
  for (int r = 0; r < 4; r++) t[r] = GV_CAT3(quarter, double, ISA)(v[r]);
}

/* The sum of each row's parts into the first of them. */
#define GV_JOIN(s) do { \
    _Pragma("GCC unroll 4") \
    for (int r_ = 0; r_ < 4; r_++) for (int o_ = GV_PARTS / 2; o_; o_ /= 2) for (int c_ = 0; c_ < o_; c_++) s[c_][r_] += s[c_ + o_][r_]; \
  } while (0)

#define GV_TERM(V, s, at) do { \
    V q_ = *(const V *)(x + (at)); \
    s[0] += *(const V *)(a + (at)) * q_; s[1] += *(const V *)(a1 + (at)) * q_; s[2] += *(const V *)(a2 + (at)) * q_; s[3] += *(const V *)(a3 + (at)) * q_; \
  } while (0)
#define GV_STAMP(T, V, W) \
  static T GV_CAT3(dot, T, ISA)(int64_t k, const T *a, const T *x) { \
    V s[GV_PARTS * 2] = {{0}}; \
    int64_t p = 0; \
    for (; p + 2 * GV_PARTS * W <= k; p += 2 * GV_PARTS * W) \
      _Pragma("GCC unroll 8") for (int c = 0; c < 2 * GV_PARTS; c++) s[c] += *(const V *)(a + p + c * W) * *(const V *)(x + p + c * W); \
    for (; p + W <= k; p += W) s[0] += *(const V *)(a + p) * *(const V *)(x + p); \
    for (int o = GV_PARTS; o; o /= 2) for (int c = 0; c < o; c++) s[c] += s[c + o]; \
    T sum = 0; \
    for (int i = 0; i < W; i++) sum += s[0][i]; \
    for (; p < k; p++) sum += a[p] * x[p]; \
    return sum; \
  } \
  static void GV_CAT3(rows, T, ISA)(int64_t m, int64_t k, double alpha, const void *av, int64_t lda, const void *xv, double beta, void *yv, \
                                    int64_t incy) { \
    const T *a = av, *x = xv; \
    T *y = yv; \
    int64_t i = 0; \
    for (; i + 4 <= m; i += 4, a += 4 * lda) { \
      const T *a1 = a + lda, *a2 = a1 + lda, *a3 = a2 + lda; \
      V s[GV_PARTS][4] = {{{0}, {0}, {0}, {0}}}; \
      int64_t p = 0; \
      for (; p + GV_PARTS * W <= k; p += GV_PARTS * W) \
        _Pragma("GCC unroll 4") for (int c = 0; c < GV_PARTS; c++) GV_TERM(V, s[c], p + c * W); \
      for (; p + W <= k; p += W) GV_TERM(V, s[0], p); \
      GV_JOIN(s); \
      T t[4]; \
      GV_CAT3(fold, T, ISA)(s[0], t); \
      for (; p < k; p++) { t[0] += a[p] * x[p]; t[1] += a1[p] * x[p]; t[2] += a2[p] * x[p]; t[3] += a3[p] * x[p]; } \
      for (int r = 0; r < 4; r++) { T *d = y + (i + r) * incy; *d = (T)alpha * t[r] + (beta == 0 ? 0 : (T)beta * *d); } \
    } \
    for (; i < m; i++, a += lda) { T *d = y + i * incy; *d = (T)alpha * GV_CAT3(dot, T, ISA)(k, a, x) + (beta == 0 ? 0 : (T)beta * *d); } \
  } \
  static void GV_CAT3(columns, T, ISA)(int64_t n, int64_t k, double alpha, const void *xv, int64_t incx, const void *bv, int64_t ldb, \
                                       double beta, void *yv) { \
    const T *x = xv, *b = bv; \
    T *restrict y = yv; \
    if (beta == 0) for (int64_t j = 0; j < n; j++) y[j] = 0; \
    else if (beta != 1) for (int64_t j = 0; j < n; j++) y[j] *= (T)beta; \
    int64_t p = 0; \
    for (; p + 8 <= k; p += 8, b += 8 * ldb) { \
      const T *b1 = b + ldb, *b2 = b1 + ldb, *b3 = b2 + ldb, *b4 = b3 + ldb, *b5 = b4 + ldb, *b6 = b5 + ldb, *b7 = b6 + ldb; \
      T q[8]; \
      for (int r = 0; r < 8; r++) q[r] = (T)alpha * x[(p + r) * incx]; \
      for (int64_t j = 0; j < n; j++) \
        y[j] += ((q[0] * b[j] + q[1] * b1[j]) + (q[2] * b2[j] + q[3] * b3[j])) + ((q[4] * b4[j] + q[5] * b5[j]) + (q[6] * b6[j] + q[7] * b7[j])); \
    } \
    for (; p < k; p++, b += ldb) { \
      T q = (T)alpha * x[p * incx]; \
      for (int64_t j = 0; j < n; j++) y[j] += q * b[j]; \
    } \
  } \
  static void GV_CAT3(outer, T, ISA)(int64_t m, int64_t n, double alpha, const void *av, int64_t inca, const void *bv, double beta, void *cv, \
                                     int64_t ldc) { \
    const T *a = av, *restrict b = bv; \
    for (int64_t i = 0; i < m; i++) { \
      T *restrict c = (T *)cv + i * ldc, q = (T)alpha * a[i * inca]; \
      if (beta == 0) for (int64_t j = 0; j < n; j++) c[j] = q * b[j]; \
      else for (int64_t j = 0; j < n; j++) c[j] = q * b[j] + (T)beta * c[j]; \
    } \
  }

GV_STAMP(float, GV_CAT3(gv, float, ISA), (VEC_BYTES / 4))
GV_STAMP(double, GV_CAT3(gv, double, ISA), (VEC_BYTES / 8))

const sc_gemv_kernels GV_CAT3(sc__gemv, f32, ISA) = {GV_CAT3(rows, float, ISA), GV_CAT3(columns, float, ISA), GV_CAT3(outer, float, ISA)};
const sc_gemv_kernels GV_CAT3(sc__gemv, f64, ISA) = {GV_CAT3(rows, double, ISA), GV_CAT3(columns, double, ISA), GV_CAT3(outer, double, ISA)};

/* y[i] (+)= sum over p of a[i, p] * x[p] for a matrix of halves, widened in registers: half the bytes of float32, so twice the speed where
** memory is the limit. float16: the exponent is shifted into place by a multiplication, which is exact; infinities and NaN are put back. */
typedef uint16_t GV_CAT3(gv, u16, ISA) __attribute__((vector_size(VEC_BYTES / 2), aligned(2), may_alias));
typedef uint32_t GV_CAT3(gv, u32, ISA) __attribute__((vector_size(VEC_BYTES), may_alias));
#define GV_WIDE(at) __builtin_convertvector(*(const GV_CAT3(gv, u16, ISA) *)(at), GV_CAT3(gv, u32, ISA))
#define GV_BF16(f, at) (f) = (GV_CAT3(gv, float, ISA))(GV_WIDE(at) << 16)
#define GV_F16(f, at) do { \
    GV_CAT3(gv, u32, ISA) h_ = GV_WIDE(at); \
    (f) = (GV_CAT3(gv, float, ISA))((h_ & 0x7fff) << 13) * 0x1p112f; \
    GV_CAT3(gv, u32, ISA) special_ = (GV_CAT3(gv, u32, ISA))((h_ & 0x7c00) == 0x7c00); \
    (f) = (GV_CAT3(gv, float, ISA))((GV_CAT3(gv, u32, ISA))(f) | (special_ & 0x7f800000u) | (h_ & 0x8000) << 16); \
  } while (0)
#define GV_HALF_ROWS(name, LOAD, one) \
  static void GV_CAT3(name, rows, ISA)(int64_t m, int64_t k, const uint16_t *a, int64_t lda, const float *x, bool add, float *y) { \
    typedef GV_CAT3(gv, float, ISA) V; \
    for (int64_t i = 0; i < m; i += 4) { \
      int64_t rows = m - i < 4 ? m - i : 4, p = 0; \
      const uint16_t *r[4]; \
      for (int q = 0; q < 4; q++) r[q] = a + (i + (q < rows ? q : 0)) * lda; \
      V s[4] = {{0}, {0}, {0}, {0}}; \
      for (; p + VEC_BYTES / 4 <= k; p += VEC_BYTES / 4) { \
        V w = *(const V *)(x + p), f; \
        LOAD(f, r[0] + p); s[0] += f * w; \
        LOAD(f, r[1] + p); s[1] += f * w; \
        LOAD(f, r[2] + p); s[2] += f * w; \
        LOAD(f, r[3] + p); s[3] += f * w; \
      } \
      float t[4]; \
      GV_CAT3(fold, float, ISA)(s, t); \
      for (; p < k; p++) for (int q = 0; q < 4; q++) t[q] += one(r[q][p]) * x[p]; \
      for (int64_t q = 0; q < rows; q++) y[i + q] = add ? y[i + q] + t[q] : t[q]; \
    } \
  }
GV_HALF_ROWS(bf16, GV_BF16, sc__bf16_to_float)
GV_HALF_ROWS(f16, GV_F16, sc__half_to_float)
void GV_CAT3(sc__half, rows, ISA)(sc_dtype type, int64_t m, int64_t k, const uint16_t *a, int64_t lda, const float *x, bool add, float *y);
void GV_CAT3(sc__half, rows, ISA)(sc_dtype type, int64_t m, int64_t k, const uint16_t *a, int64_t lda, const float *x, bool add, float *y) {
  if (type == SC_BFLOAT16) GV_CAT3(bf16, rows, ISA)(m, k, a, lda, x, add, y);
  else GV_CAT3(f16, rows, ISA)(m, k, a, lda, x, add, y);
}
#undef GV_HALF_ROWS
#undef GV_F16
#undef GV_BF16
#undef GV_WIDE

/* Rows [row, end) of c = a b in integers that wrap. A [64, 32] block of b stays in the L1 cache, turned round first when it is stored
** transposed; four rows of it are added at a time. */
void GV_CAT3(sc__gemm, i64, ISA)(const sc_gemm *g, int64_t row, int64_t end);
void GV_CAT3(sc__gemm, i64, ISA)(const sc_gemm *g, int64_t row, int64_t end) {
  enum { KB = 64, NB = 32 };
  const uint64_t *a = g->a, *b = g->b;
  uint64_t *c = g->c, turned[KB * NB];
  for (int64_t i = row; i < end; i++) memset(c + i * g->ldc, 0, (size_t)g->n * 8);
  for (int64_t p0 = 0; p0 < g->k; p0 += KB)
    for (int64_t j0 = 0; j0 < g->n; j0 += g->tb ? NB : 512) {
      int64_t most = g->tb ? NB : 512, kb = g->k - p0 < KB ? g->k - p0 : KB, nb = g->n - j0 < most ? g->n - j0 : most, ld = g->tb ? NB : g->ldb;
      const uint64_t *piece = b + p0 * g->ldb + j0;
      if (g->tb) {
        for (int64_t j = 0; j < nb; j++) for (int64_t p = 0; p < kb; p++) turned[p * NB + j] = b[(j0 + j) * g->ldb + p0 + p];
        piece = turned;
      }
      for (int64_t i = row; i < end; i++) {
        uint64_t *restrict d = c + i * g->ldc + j0;
        const uint64_t *ai = g->ta ? a + p0 * g->lda + i : a + i * g->lda + p0;
        int64_t step = g->ta ? g->lda : 1, p = 0;
        for (; p + 4 <= kb; p += 4) {
          const uint64_t *r0 = piece + p * ld, *r1 = r0 + ld, *r2 = r1 + ld, *r3 = r2 + ld;
          uint64_t v0 = ai[p * step], v1 = ai[(p + 1) * step], v2 = ai[(p + 2) * step], v3 = ai[(p + 3) * step];
          for (int64_t j = 0; j < nb; j++) d[j] += v0 * r0[j] + v1 * r1[j] + v2 * r2[j] + v3 * r3[j];
        }
        for (; p < kb; p++) {
          const uint64_t *r0 = piece + p * ld;
          uint64_t v0 = ai[p * step];
          for (int64_t j = 0; j < nb; j++) d[j] += v0 * r0[j];
        }
      }
    }
}
#undef GV_STAMP
#undef GV_TERM
#undef GV_JOIN
#undef GV_PARTS
#undef GV_MIX
#undef GV_CAT3
#undef GV_CAT3_
