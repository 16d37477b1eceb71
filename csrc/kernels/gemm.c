/* Matrix products over OpenBLAS, which is declared here by hand so that no header of it is needed.
**
** OpenBLAS prints and returns on a bad argument, so sizes and leading dimensions are checked before every call; its own threads
** are switched off once per process (unless the host keeps them) and our pool splits the rows instead. */
#include "kernels.h"

extern void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                        float beta, float *c, int ldc);
extern void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda, const double *b, int ldb,
                        double beta, double *c, int ldc);
extern void openblas_set_num_threads(int n);

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };

static sc_status check(sc_context *ctx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  int64_t most = INT32_MAX;
  if (m > most || n > most || k > most || lda > most || ldb > most || ldc > most)
    return sc__fail(ctx, SC_EINVAL, "matmul: sizes above %lld are not supported", (long long)most);
  if (lda < (ta ? m : k) || ldb < (tb ? k : n) || ldc < n || lda < 1 || ldb < 1 || ldc < 1)
    return sc__fail(ctx, SC_EINVAL, "matmul: a leading dimension is too small");
  if (!ctx->blas_warm) {
    if (!ctx->keep_blas_threads) openblas_set_num_threads(1);
    ctx->blas_warm = true;
  }
  return SC_OK;
}

typedef struct gemm_job {
  bool ta, tb;
  int64_t n, k, lda, ldb, ldc;
  double alpha, beta;
  const void *a, *b;
  void *c;
} gemm_job;

static void rows_f32(void *arg, int64_t begin, int64_t end) {
  const gemm_job *j = arg;
  const float *a = (const float *)j->a + (j->ta ? begin : begin * j->lda);
  cblas_sgemm(ROW_MAJOR, j->ta ? TRANS : NO_TRANS, j->tb ? TRANS : NO_TRANS, (int)(end - begin), (int)j->n, (int)j->k, (float)j->alpha, a,
              (int)j->lda, j->b, (int)j->ldb, (float)j->beta, (float *)j->c + begin * j->ldc, (int)j->ldc);
}

static void rows_f64(void *arg, int64_t begin, int64_t end) {
  const gemm_job *j = arg;
  const double *a = (const double *)j->a + (j->ta ? begin : begin * j->lda);
  cblas_dgemm(ROW_MAJOR, j->ta ? TRANS : NO_TRANS, j->tb ? TRANS : NO_TRANS, (int)(end - begin), (int)j->n, (int)j->k, j->alpha, a,
              (int)j->lda, j->b, (int)j->ldb, j->beta, (double *)j->c + begin * j->ldc, (int)j->ldc);
}

sc_status sc__gemm_f32(sc_context *ctx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                       const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  if (m == 0 || n == 0) return SC_OK;
  if (k == 0) {
    for (int64_t i = 0; i < m; i++) for (int64_t q = 0; q < n; q++) c[i * ldc + q] = beta == 0 ? 0 : beta * c[i * ldc + q];
    return SC_OK;
  }
  SC_TRY(check(ctx, ta, tb, m, n, k, lda, ldb, ldc));
  gemm_job j = {ta, tb, n, k, lda, ldb, ldc, alpha, beta, a, b, c};
  sc__parallel(ctx, m, 16, (double)n * (double)k * 0.02, rows_f32, &j);
  return SC_OK;
}

sc_status sc__gemm_f64(sc_context *ctx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                       const double *b, int64_t ldb, double beta, double *c, int64_t ldc) {
  if (m == 0 || n == 0) return SC_OK;
  if (k == 0) {
    for (int64_t i = 0; i < m; i++) for (int64_t q = 0; q < n; q++) c[i * ldc + q] = beta == 0 ? 0 : beta * c[i * ldc + q];
    return SC_OK;
  }
  SC_TRY(check(ctx, ta, tb, m, n, k, lda, ldb, ldc));
  gemm_job j = {ta, tb, n, k, lda, ldb, ldc, alpha, beta, a, b, c};
  sc__parallel(ctx, m, 16, (double)n * (double)k * 0.04, rows_f64, &j);
  return SC_OK;
}

void sc__gemm_i64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const int64_t *a, int64_t lda, const int64_t *b, int64_t ldb,
                  int64_t *c, int64_t ldc) {
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) c[i * ldc + j] = 0;
    for (int64_t p = 0; p < k; p++) {
      uint64_t v = (uint64_t)a[ta ? p * lda + i : i * lda + p];
      for (int64_t j = 0; j < n; j++)
        c[i * ldc + j] = (int64_t)((uint64_t)c[i * ldc + j] + v * (uint64_t)b[tb ? j * ldb + p : p * ldb + j]);
    }
  }
}
