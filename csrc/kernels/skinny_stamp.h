/* Products of float32 matrices that the library packs longer than it computes: few rows, few columns or a short inner size. Stamped per
** instruction set. No include guard: each instruction set has a file.
**
** c is computed in tiles of SKINNY_M rows by two vectors, kept in registers while k runs. The left operand is read where it lies, an
** element at a time (its rows side by side are as many streams). The right one is read where it lies when it is stored by rows; stored
** transposed, [n, k], a panel of it is turned round into a buffer on the stack. Every element is summed over k in order, in
** blocks of SKINNY_K that depend on k only: cutting m or n into pieces changes no bits. */
#include <string.h>

#define SK_CAT_(a, b) a##_##b
#define SK_CAT(a, b) SK_CAT_(a, b)
#define SK(name) SK_CAT(name, ISA)

typedef float SK(skinny_v) __attribute__((vector_size(SKINNY_LANES * 4), aligned(4), may_alias));
typedef float SK(skinny_oct) __attribute__((vector_size(32), aligned(4), may_alias));
typedef int SK(skinny_mask) __attribute__((vector_size(32)));

/* c [M, V vectors] = alpha * a b (+ beta c, read when beta is not 0). a: element (i, k) at i * as + k * ak, and one of the steps is 1. */
static inline __attribute__((always_inline)) void SK(skinny_tile)(const int M, const int V, int64_t K, const float *a, int64_t as, int64_t ak,
                                                                  const float *b, int64_t ldb, float alpha, float beta, float *c, int64_t ldc) {
  SK(skinny_v) sum[SKINNY_M][2], zero = {0};
#pragma GCC unroll 16
  for (int i = 0; i < M; i++)
#pragma GCC unroll 2
    for (int j = 0; j < V; j++) sum[i][j] = zero;
  const float *a3 = a + 3 * as, *a6 = a3 + 3 * as, *a9 = a6 + 3 * as, *a12 = a9 + 3 * as;
  for (int64_t k = 0; k < K; k++, b += ldb) {
    SK(skinny_v) x[2];
#pragma GCC unroll 2
    for (int j = 0; j < V; j++) x[j] = *(const SK(skinny_v) *)(b + j * SKINNY_LANES);
#pragma GCC unroll 16
    for (int i = 0; i < M; i++) {
      const float *row = i < 3 ? a : i < 6 ? a3 : i < 9 ? a6 : i < 12 ? a9 : a12;      /* three rows a pointer: registers are few */
      SK(skinny_v) w = row[i % 3 * as] - zero;
#pragma GCC unroll 2
      for (int j = 0; j < V; j++) sum[i][j] += w * x[j];
    }
    a += ak; a3 += ak; a6 += ak; a9 += ak; a12 += ak;
  }
#pragma GCC unroll 16
  for (int i = 0; i < M; i++)
#pragma GCC unroll 2
    for (int j = 0; j < V; j++) {
      float *to = c + i * ldc + j * SKINNY_LANES;
      SK(skinny_v) v = alpha * sum[i][j];
      if (beta != 0) v += beta * *(const SK(skinny_v) *)to;
      *(SK(skinny_v) *)to = v;
    }
}

#define SK_ROWS(M) \
  static __attribute__((noinline)) void SK(skinny_##M)(int wide, int64_t K, const float *a, int64_t as, int64_t ak, const float *b, int64_t ldb, \
                                                       float alpha, float beta, float *c, int64_t ldc) { \
    if (wide) { \
      if (ak == 1) SK(skinny_tile)(M, 2, K, a, as, 1, b, ldb, alpha, beta, c, ldc); \
      else SK(skinny_tile)(M, 2, K, a, 1, ak, b, ldb, alpha, beta, c, ldc); \
    } else { \
      SK(skinny_tile)(M, 1, K, a, as, ak, b, ldb, alpha, beta, c, ldc); \
    } \
  }
SK_ROWS(1) SK_ROWS(2) SK_ROWS(3) SK_ROWS(4) SK_ROWS(5) SK_ROWS(6)
#if SKINNY_M > 6
SK_ROWS(7) SK_ROWS(8) SK_ROWS(9) SK_ROWS(10) SK_ROWS(11) SK_ROWS(12) SK_ROWS(13) SK_ROWS(14)
#endif

typedef void (*SK(skinny_fn))(int, int64_t, const float *, int64_t, int64_t, const float *, int64_t, float, float, float *, int64_t);
static const SK(skinny_fn) SK(skinny_rows)[SKINNY_M] = {
  SK(skinny_1), SK(skinny_2), SK(skinny_3), SK(skinny_4), SK(skinny_5), SK(skinny_6),
#if SKINNY_M > 6
  SK(skinny_7), SK(skinny_8), SK(skinny_9), SK(skinny_10), SK(skinny_11), SK(skinny_12), SK(skinny_13), SK(skinny_14),
#endif
};

#if defined(__clang__)
#define SK_PAIRS(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d, (a) + 4, (b) + 4, (c) + 4, (d) + 4)
#define SK_FOUR(x, y, a, b, c, d) __builtin_shufflevector(x, y, a, b, c, d)
#else
#define SK_PAIRS(x, y, a, b, c, d) __builtin_shuffle(x, y, (SK(skinny_mask)){a, b, c, d, (a) + 4, (b) + 4, (c) + 4, (d) + 4})
#define SK_FOUR(x, y, a, b, c, d) __builtin_shuffle(x, y, (mask){a, b, c, d})
#endif
/* Eight rows of b, K long, become eight columns of a panel: blocks of eight by four, row i beside row i + 4. */
static inline void SK(skinny_turn)(int64_t K, const float *b, int64_t ldb, float *to, const int64_t W) {
  typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
  const float *b4 = b + 4 * ldb;
  int64_t k = 0;
  for (; k + 4 <= K; k += 4, to += 4 * W) {
    SK(skinny_oct) x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
      x[i] = __builtin_shufflevector(*(const quad *)(b + i * ldb + k), *(const quad *)(b4 + i * ldb + k), 0, 1, 2, 3, 4, 5, 6, 7);
    SK(skinny_oct) low01 = SK_PAIRS(x[0], x[1], 0, 8, 1, 9), high01 = SK_PAIRS(x[0], x[1], 2, 10, 3, 11);
    SK(skinny_oct) low23 = SK_PAIRS(x[2], x[3], 0, 8, 1, 9), high23 = SK_PAIRS(x[2], x[3], 2, 10, 3, 11);
    *(SK(skinny_oct) *)to = SK_PAIRS(low01, low23, 0, 1, 8, 9);
    *(SK(skinny_oct) *)(to + W) = SK_PAIRS(low01, low23, 2, 3, 10, 11);
    *(SK(skinny_oct) *)(to + 2 * W) = SK_PAIRS(high01, high23, 0, 1, 8, 9);
    *(SK(skinny_oct) *)(to + 3 * W) = SK_PAIRS(high01, high23, 2, 3, 10, 11);
  }
  for (; k < K; k++, to += W) for (int i = 0; i < 8; i++) to[i] = b[i * ldb + k];
}
/* A panel [K, 2 vectors] of b, from n <= 2 vectors columns at b; what is beyond n is 0. */
static void SK(skinny_pack)(bool transposed, int64_t K, int64_t n, const float *b, int64_t ldb, float *panel) {
  enum { W = 2 * SKINNY_LANES };
  if (n < W) memset(panel, 0, (size_t)(K * W) * sizeof(float));
  if (!transposed) {
    if (n < W) for (int64_t k = 0; k < K; k++) memcpy(panel + k * W, b + k * ldb, (size_t)n * sizeof(float));
    else for (int64_t k = 0; k < K; k++) memcpy(panel + k * W, b + k * ldb, W * sizeof(float));
    return;
  }
  int64_t j = 0;
  for (; j + 8 <= n; j += 8) SK(skinny_turn)(K, b + j * ldb, ldb, panel + j, W);
  for (; j < n; j++) for (int64_t k = 0; k < K; k++) panel[k * W + j] = b[j * ldb + k];
}

/* One panel's tiles: rows [0, m) of c in `count` tiles of nearly equal height. a: element (i, k) at i * as + k * ak; or, packed, tile after tile,
** each as [K, height]. */
static inline void SK(skinny_column)(const sc_gemm *g, int64_t m, int64_t count, int64_t n, int64_t K, const float *a, int64_t as, int64_t ak, bool packed,
                                     const float *b, int64_t ldb, float beta, float *c) {
  enum { W = 2 * SKINNY_LANES };
  _Alignas(64) float edge[SKINNY_M * W];
  bool whole = n == W || n == SKINNY_LANES;
  for (int64_t r = 0; r < count; r++) {
    int64_t i = m * r / count, M = m * (r + 1) / count - i;
    float *to = c + i * g->ldc;
    if (!whole && beta != 0) for (int64_t p = 0; p < M; p++) memcpy(edge + p * W, to + p * g->ldc, (size_t)n * sizeof(float));
    SK(skinny_rows)[M - 1](n > SKINNY_LANES, K, packed ? a + i * K : a + i * as, packed ? 1 : as, packed ? M : ak, b, ldb, (float)g->alpha, beta,
                           whole ? to : edge, whole ? g->ldc : W);
    if (!whole) for (int64_t p = 0; p < M; p++) memcpy(to + p * g->ldc, edge + p * W, (size_t)n * sizeof(float));
  }
}

/* The same of four rows. */
static inline void SK(skinny_turn_four)(int64_t K, const float *b, int64_t ldb, float *to, const int64_t W) {
  typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
  typedef int mask __attribute__((vector_size(16)));
  int64_t k = 0;
  for (; k + 4 <= K; k += 4, to += 4 * W) {
    quad x[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) x[i] = *(const quad *)(b + i * ldb + k);
    quad low01 = SK_FOUR(x[0], x[1], 0, 4, 1, 5), high01 = SK_FOUR(x[0], x[1], 2, 6, 3, 7);
    quad low23 = SK_FOUR(x[2], x[3], 0, 4, 1, 5), high23 = SK_FOUR(x[2], x[3], 2, 6, 3, 7);
    *(quad *)to = SK_FOUR(low01, low23, 0, 1, 4, 5);
    *(quad *)(to + W) = SK_FOUR(low01, low23, 2, 3, 6, 7);
    *(quad *)(to + 2 * W) = SK_FOUR(high01, high23, 0, 1, 4, 5);
    *(quad *)(to + 3 * W) = SK_FOUR(high01, high23, 2, 3, 6, 7);
  }
  for (; k < K; k++, to += W) for (int i = 0; i < 4; i++) to[i] = b[i * ldb + k];
}

/* M rows of the left operand as [K, M]: what is M high goes by eights or fours, the last of which overlaps. */
static void SK(skinny_pack_rows)(bool transposed, int64_t M, int64_t K, const float *a, int64_t lda, float *to) {
  typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
  if (M < 4) {
    for (int64_t k = 0; k < K; k++) for (int64_t i = 0; i < M; i++) to[k * M + i] = transposed ? a[k * lda + i] : a[i * lda + k];
  } else if (M < 8 && transposed) {
    for (int64_t k = 0; k < K; k++, to += M, a += lda) {
      quad first = *(const quad *)a, last = *(const quad *)(a + M - 4);
      *(quad *)to = first;
      *(quad *)(to + M - 4) = last;
    }
  } else if (M < 8) {
    SK(skinny_turn_four)(K, a, lda, to, M);
    if (M > 4) SK(skinny_turn_four)(K, a + (M - 4) * lda, lda, to + M - 4, M);
  } else if (transposed) {
    for (int64_t k = 0; k < K; k++, to += M, a += lda) {
      SK(skinny_oct) first = *(const SK(skinny_oct) *)a, last = *(const SK(skinny_oct) *)(a + M - 8);
      *(SK(skinny_oct) *)to = first;
      *(SK(skinny_oct) *)(to + M - 8) = last;
    }
  } else {
    SK(skinny_turn)(K, a, lda, to, M);
    if (M > 8) SK(skinny_turn)(K, a + (M - 8) * lda, lda, to + M - 8, M);
  }
}

/* Larger products: blocks of rows outside, packed so that they are read in a row from the L2 cache; panels within. */
static void SK(skinny_blocked)(const sc_gemm *g, float *rows) {
  enum { W = 2 * SKINNY_LANES, MOST = SC_SKINNY_ROOM / SKINNY_K / SKINNY_M * SKINNY_M };
  _Alignas(64) float panel[SKINNY_K * W];
  int64_t blocks = (g->k + SKINNY_K - 1) / SKINNY_K, parts = (g->m + MOST - 1) / MOST;
  for (int64_t r = 0; r < parts; r++) {
    int64_t i = g->m * r / parts, m = g->m * (r + 1) / parts - i, count = (m + SKINNY_M - 1) / SKINNY_M;
    for (int64_t q = 0; q < blocks; q++) {
      int64_t k0 = g->k * q / blocks, K = g->k * (q + 1) / blocks - k0;
      const float *a = (const float *)g->a + (g->ta ? k0 * g->lda + i : i * g->lda + k0);
      for (int64_t t = 0; t < count; t++) {
        int64_t at = m * t / count;
        SK(skinny_pack_rows)(g->ta, m * (t + 1) / count - at, K, a + (g->ta ? at : at * g->lda), g->lda, rows + at * K);
      }
      for (int64_t j = 0; j < g->n; j += W) {
        int64_t n = g->n - j < W ? g->n - j : W;
        const float *b = (const float *)g->b + (g->tb ? j * g->ldb + k0 : k0 * g->ldb + j);
        SK(skinny_pack)(g->tb, K, n, b, g->ldb, panel);
        SK(skinny_column)(g, m, count, n, K, rows, 1, 0, true, panel, W, q == 0 ? (float)g->beta : 1, (float *)g->c + i * g->ldc + j);
      }
    }
  }
}

/* c, all of it: panels of columns outside, so that one is turned round once; blocks of k; rows in tiles of nearly equal height. rows_room: room for
** SC_SKINNY_ROOM numbers, for large products, or NULL; the bits are the same. */
void SK(sc__skinny)(const sc_gemm *g, float *rows_room);
void SK(sc__skinny)(const sc_gemm *g, float *rows_room) {
  enum { W = 2 * SKINNY_LANES };
  if (rows_room) { SK(skinny_blocked)(g, rows_room); return; }
  _Alignas(64) float panel[SKINNY_K * W];
  int64_t blocks = (g->k + SKINNY_K - 1) / SKINNY_K, rows = (g->m + SKINNY_M - 1) / SKINNY_M, as = g->ta ? 1 : g->lda, ak = g->ta ? g->lda : 1;
  for (int64_t j = 0; j < g->n; j += W) {
    int64_t n = g->n - j < W ? g->n - j : W;
    bool packed = g->tb || (n != W && n != SKINNY_LANES);
    for (int64_t q = 0; q < blocks; q++) {
      int64_t k0 = g->k * q / blocks, K = g->k * (q + 1) / blocks - k0;
      const float *b = (const float *)g->b + (g->tb ? j * g->ldb + k0 : k0 * g->ldb + j);
      if (packed) SK(skinny_pack)(g->tb, K, n, b, g->ldb, panel);
      SK(skinny_column)(g, g->m, rows, n, K, (const float *)g->a + k0 * ak, as, ak, false, packed ? panel : b, packed ? W : g->ldb,
                        q == 0 ? (float)g->beta : 1, (float *)g->c + j);
    }
  }
}
#undef SK_PAIRS
#undef SK_FOUR
#undef SK_ROWS
#undef SK
#undef SK_CAT
#undef SK_CAT_
