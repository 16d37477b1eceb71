/* Square products of float32 through cblas_sgemm, called from C with nothing in the way: the limit that matmul rows are held against.
**
**   cc -O2 bench/peer_blas.c -o peer_blas -lopenblas;  OPENBLAS_NUM_THREADS=1 ./peer_blas [words, such as "cblas_256"] [budget in seconds]
**
** Prints a JSON line a workload: the median of seconds of CPU time per call, in the same batches as bench/harness.lua. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                        float *c, int ldc);

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int chosen(const char *name, const char *words) {
  char copy[512];
  if (!*words) return 1;
  snprintf(copy, sizeof copy, "%s", words);
  for (char *w = strtok(copy, "|"); w; w = strtok(NULL, "|")) if (strstr(name, w)) return 1;
  return 0;
}

int main(int argc, char **argv) {
  const char *words = argc > 1 ? argv[1] : "";
  double budget = argc > 2 ? atof(argv[2]) : 0.3;
  static double samples[100000];
  for (int n = 256; n <= 2048; n *= 2) {
    char name[64];
    snprintf(name, sizeof name, "matmul_cblas_%d", n);
    if (!chosen(name, words)) continue;
    size_t bytes = (size_t)n * (size_t)n * sizeof(float);
    float *a = aligned_alloc(64, bytes), *b = aligned_alloc(64, bytes), *c = aligned_alloc(64, bytes);
    if (!a || !b || !c) return 1;
    for (size_t i = 0; i < bytes / sizeof(float); i++) { a[i] = (float)rand() / (float)RAND_MAX; b[i] = (float)rand() / (float)RAND_MAX; }
    memset(c, 0, bytes);
    int taken = 0, calls = 1;
    for (double stop = 0; taken < 5 || (now() < stop && taken < 100000); ) {
      double t = now();
      for (int i = 0; i < calls; i++) cblas_sgemm(101, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n);
      t = now() - t;
      if (t < 1e-3) { calls *= 2; continue; }
      if (stop == 0) { stop = now() + budget; continue; }       /* the first full batch is the warm-up */
      samples[taken++] = t / calls;
    }
    qsort(samples, (size_t)taken, sizeof samples[0], by_value);
    printf("{\"peer\":\"openblas\",\"workload\":\"%s\",\"seconds\":%.6g}\n", name, samples[taken / 2]);
    fflush(stdout);
    free(a);
    free(b);
    free(c);
  }
  return 0;
}
