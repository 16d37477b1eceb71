/* Matrix products over OpenBLAS, which is declared here by hand so that no header of it is needed.
**
** OpenBLAS is used in one way only: a single thread inside (unless the host keeps its setting), our pool around it, each thread one
** piece of the result. Three of its habits are kept away from the host:
**   - a bad argument makes it print and return: sizes and leading dimensions are checked before every call;
**   - a thread's first larger product maps 128 MiB of address space, and when that is refused it spins for ever or ends the process. So
**     before the first such product the address space is probed, and then a product of that size runs on all threads at the same time
**     (one after another they would share a buffer). Later products ask for nothing;
**   - small products need no such memory and skip this, so that start-up costs nothing.
**
** Products that fit into the caches go through kernels/skinny_stamp.h, which packs less than the library; the figures are at `own`.
** Products with a vector go at the speed of memory through kernels/gemv_stamp.h; BLAS is no better there, and sgemm with one row a lot
** worse. Products of integers are blocked loops that wrap. */
#include "kernels.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

extern void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                        float beta, float *c, int ldc);
extern void cblas_dgemm(int order, int ta, int tb, int m, int n, int k, double alpha, const double *a, int lda, const double *b, int ldb,
                        double beta, double *c, int ldc);
extern void openblas_set_num_threads(int n);

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, WARM_SIZE = 304 };
#define SMALL (64.0 * 64 * 64)                 /* multiplications up to which OpenBLAS's small kernels work without memory */
#define BUFFER ((size_t)144 << 20)             /* what a thread's first product may map, and some */
#define BLOCK_NS 100e3                         /* under a clock: of a product, by the cost below, which is rather high */
#define PARALLEL_ABOVE 200e3                   /* nanoseconds, as in base/thread.c */

extern const sc_gemv_kernels sc__gemv_f32_base, sc__gemv_f64_base;
#if defined(__x86_64__)
extern const sc_gemv_kernels sc__gemv_f32_avx2, sc__gemv_f64_avx2, sc__gemv_f32_avx512, sc__gemv_f64_avx512;
void sc__gemm_i64_avx2(const sc_gemm *g, int64_t row, int64_t end);
void sc__gemm_i64_avx512(const sc_gemm *g, int64_t row, int64_t end);
#endif
void sc__gemm_i64_base(const sc_gemm *g, int64_t row, int64_t end);
#if defined(__x86_64__)
void sc__skinny_avx2(const sc_gemm *g, float *rows_room);
void sc__skinny_avx512(const sc_gemm *g, float *rows_room);
#endif

static void (*integer_kernel(sc_isa isa))(const sc_gemm *, int64_t, int64_t) {
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) return sc__gemm_i64_avx512;
  if (isa == SC_ISA_AVX2) return sc__gemm_i64_avx2;
#endif
  (void)isa;
  return sc__gemm_i64_base;
}

const sc_gemv_kernels *sc__gemv_kernels(sc_isa isa, sc_dtype type) {
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) return type == SC_FLOAT32 ? &sc__gemv_f32_avx512 : &sc__gemv_f64_avx512;
  if (isa == SC_ISA_AVX2) return type == SC_FLOAT32 ? &sc__gemv_f32_avx2 : &sc__gemv_f64_avx2;
#endif
  (void)isa;
  return type == SC_FLOAT32 ? &sc__gemv_f32_base : &sc__gemv_f64_base;
}

/* ---- warming up ---- */

static sc_status probe(sc_context *ctx, int threads) {
  size_t bytes = BUFFER * (size_t)threads;
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return sc__no_memory(ctx, bytes);
  munmap(p, bytes);
  return SC_OK;
}

typedef struct warm_up { atomic_int arrived, late; int threads; const float *a, *b; float *c; } warm_up;

/* One product per thread; nobody begins before all are here, so all buffers are held at the same time. Threads that do not come within
** a second (a host's own may be busy) are not counted on: products then stay on one. */
static void warm_piece(void *arg, int64_t begin, int64_t end) {
  warm_up *w = arg;
  atomic_fetch_add(&w->arrived, (int)(end - begin));
  int64_t until = sc__now_ns() + 1000000000;
  while (atomic_load(&w->arrived) < w->threads && sc__now_ns() < until) sched_yield();
  if (atomic_load(&w->arrived) < w->threads) { atomic_store(&w->late, 1); if (begin) return; }
  int n = WARM_SIZE;
  cblas_sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, n, n, n, 1, w->a, n, w->b, n, 0, w->c + begin * n * n, n);
}

sc_status sc__blas_ready(sc_context *ctx, int threads) {
  if (!ctx->blas_used) {
    if (!ctx->keep_blas_threads) openblas_set_num_threads(1);
    ctx->blas_used = true;
  }
  if (threads <= ctx->blas_warm || sc__in_worker()) return SC_OK;
  if (threads > 1) threads = sc__thread_count(ctx);
  if (threads <= ctx->blas_warm) return SC_OK;
  if (threads > 1 && probe(ctx, threads) != SC_OK) threads = 1;   /* then products stay on one thread */
  if (threads <= ctx->blas_warm) return SC_OK;
  SC_TRY(probe(ctx, threads));
  sc_slice *slice = ctx->slice;                  /* all pieces at the same time, not one after another under a clock */
  size_t square = (size_t)WARM_SIZE * WARM_SIZE, bytes = (2 + (size_t)threads) * square * sizeof(float);
  float *m = sc__alloc_zero(ctx, bytes);
  if (!m) return sc__no_memory(ctx, bytes);
  warm_up w = {.threads = threads, .a = m, .b = m + square, .c = m + 2 * square};
  ctx->slice = NULL;
  if (threads == 1) warm_piece(&w, 0, 1);
  else sc__parallel(ctx, threads, 1, 1e9, warm_piece, &w);
  ctx->slice = slice;
  sc__release(ctx, m, bytes);
  ctx->blas_warm = atomic_load(&w.late) ? 1 : threads;
  return SC_OK;
}

/* ---- what a product is ---- */

typedef void (*own_fn)(const sc_gemm *g, float *rows_room);

typedef enum shape { BLAS, ROWS, COLUMNS, OUTER, INTEGER, ZERO, NOTHING } shape;

static shape shape_of(const sc_gemm *g) {
  if (g->m == 0 || g->n == 0) return NOTHING;
  if (g->k == 0) return ZERO;
  if (g->type == SC_INT64) return INTEGER;
  if (g->m == 1) {                               /* c = x b: x is a's only row, with step lda where a is stored transposed */
    if (!g->tb) return COLUMNS;
    if (!g->ta || g->lda == 1) return ROWS;
  }
  if (g->n == 1) {                               /* c = a x */
    bool packed = g->tb || g->ldb == 1;
    if (!g->ta && packed) return ROWS;
    if (g->ta && g->ldc == 1) return COLUMNS;
  }
  if (g->k == 1 && (!g->tb || g->ldb == 1)) return OUTER;
  return BLAS;
}

static double numbers_of(const sc_gemm *g) { return (double)g->m * (double)g->k + (double)g->k * (double)g->n + (double)g->m * (double)g->n; }

/* The product in our own tiles, or NULL for the library's. They give an element the same bits at every place, which OpenBLAS does not (its
** kernels sum in another order at the edges of a block). Time of the library's over theirs, OpenBLAS 0.3.21, one thread:
** AVX-512 (Zen 4): 64x784x256 transposed 1.12, 256x64x784 1.10, 64x128x256 1.15, 128, 256, 512 cubed 1.14, 1.08, 1.03, 1024x512x128 1.13,
** 1024x1024x256 with a transposed 1.09, 32x1024x1024 1.25, transposed 1.57, 4x1024x1024 transposed 2.6; but 1024 cubed 0.95, ten columns 0.6.
** AVX2 (Zen 3): 64 and 128 cubed 1.35, 1.15, 256 cubed 1.0, 576x784x64 1.2, 4x1000x1000 1.6, 1000x10x128 1.2, but 2 to 9
** columns of short sums 0.7 to 1.1, 512 and 1024 cubed into memory out of the cache 0.85. */
static own_fn own(sc_isa isa, const sc_gemm *g) {
#if defined(__x86_64__)
  if (g->type != SC_FLOAT32 || isa < SC_ISA_AVX2 || g->alpha == 0) return NULL;
  double numbers = numbers_of(g);
  if (isa == SC_ISA_AVX2) return numbers > 7.8e5 && (g->m > 8 || !g->tb) ? NULL : sc__skinny_avx2;
  int64_t filled = (g->n + 15) / 16 * 16;
  if (g->n < 32 || g->n * 8 < filled * 7) return NULL;
  return numbers > 2e6 && (g->m > 8 || !g->tb) ? NULL : sc__skinny_avx512;
#else
  (void)isa;
  (void)g;
  return NULL;
#endif
}

/* Whether packing the left operand pays: it does where that is read many times, sooner where its rows are not. */
static bool packs_rows(sc_isa isa, const sc_gemm *g) {
  double numbers = numbers_of(g);
  return isa == SC_ISA_AVX512 ? numbers > 1.2e6 : g->m >= 12 && numbers > (g->ta ? 3e4 : 2e5);
}

static double multiplications(const sc_gemm *g) { return (double)g->m * (double)g->n * (double)g->k; }

double sc__gemm_cost(const sc_gemm *g) {
  double f = multiplications(g);
  switch (shape_of(g)) {
    case BLAS: return 100 + f * (g->type == SC_FLOAT32 ? 0.015 : 0.03);
    case ROWS: case COLUMNS: return 30 + f * (g->type == SC_FLOAT32 ? 0.1 : 0.2);
    case OUTER: return 30 + f * (g->type == SC_FLOAT32 ? 0.2 : 0.4);
    case INTEGER: return 30 + f * 0.2;
    default: return 30;
  }
}

sc_status sc__gemm_ready(sc_context *ctx, const sc_gemm *g) {
  const int64_t most = INT32_MAX - 64;           /* OpenBLAS rounds sizes up */
  if (shape_of(g) != BLAS || own(ctx->isa, g)) return SC_OK;
  if (g->m > most || g->n > most || g->k > most || g->lda > most || g->ldb > most || g->ldc > most)
    return sc__fail(ctx, SC_EINVAL, "matrix product: sizes above %lld are not supported (%lld x %lld x %lld)", (long long)most,
                    (long long)g->m, (long long)g->k, (long long)g->n);
  if (g->lda < (g->ta ? g->m : g->k) || g->ldb < (g->tb ? g->k : g->n) || g->ldc < g->n)
    return sc__fail(ctx, SC_EINVAL, "matrix product: a leading dimension is too small");
  if (SC_LIKELY(ctx->blas_warm >= ctx->threads)) return SC_OK;
  double f = multiplications(g);
  if (f > SMALL) return sc__blas_ready(ctx, ctx->threads > 1 && f > SMALL * 8 ? ctx->threads : 1);
  if (!ctx->blas_used) SC_TRY(probe(ctx, 1));    /* a processor without small kernels maps its buffer now */
  return sc__blas_ready(ctx, 0);
}

/* ---- running ---- */

typedef struct job { const sc_gemm *g; const sc_gemv_kernels *v; size_t size; void (*integers)(const sc_gemm *, int64_t, int64_t); own_fn own; sc_context *ctx; } job;

#define AT(base, elements) ((const char *)(base) + (elements) * (int64_t)j->size)

/* A piece in our own tiles. Large ones pack their left operand, where there is memory for that. */
static void run_own(const job *j, const sc_gemm *part) {
  const size_t bytes = SC_SKINNY_ROOM * sizeof(float);
  float *room = packs_rows(j->ctx->isa, part) ? sc__alloc(j->ctx, bytes) : NULL;
  j->own(part, room);
  sc__release(j->ctx, room, bytes);
}

/* Rows [begin, end) of c. */
static void blas_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const sc_gemm *g = j->g;
  const void *a = AT(g->a, g->ta ? begin : begin * g->lda);
  void *c = (char *)g->c + begin * g->ldc * (int64_t)j->size;
  int ta = g->ta ? TRANS : NO_TRANS, tb = g->tb ? TRANS : NO_TRANS, m = (int)(end - begin), n = (int)g->n, k = (int)g->k;
  if (g->type == SC_FLOAT32)
    cblas_sgemm(ROW_MAJOR, ta, tb, m, n, k, (float)g->alpha, a, (int)g->lda, g->b, (int)g->ldb, (float)g->beta, c, (int)g->ldc);
  else
    cblas_dgemm(ROW_MAJOR, ta, tb, m, n, k, g->alpha, a, (int)g->lda, g->b, (int)g->ldb, g->beta, c, (int)g->ldc);
}

/* Columns [begin, end) of c. */
static void product_columns(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  sc_gemm part = *j->g;
  part.n = end - begin;
  part.b = AT(part.b, part.tb ? begin * part.ldb : begin);
  part.c = (char *)part.c + begin * (int64_t)j->size;
  if (j->own) run_own(j, &part);
  else blas_rows(&(job){.g = &part, .size = j->size}, 0, part.m);
}

static void own_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  sc_gemm part = *j->g;
  part.m = end - begin;
  part.a = AT(part.a, part.ta ? begin : begin * part.lda);
  part.c = (char *)part.c + begin * part.ldc * (int64_t)j->size;
  run_own(j, &part);
}

static void vector_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const sc_gemm *g = j->g;
  bool one = g->m == 1;                          /* c is a row: b's rows (it is stored transposed) by a; else a's rows by b */
  const void *matrix = one ? g->b : g->a, *x = one ? g->a : g->b;
  int64_t ld = one ? g->ldb : g->lda, step = one ? 1 : g->ldc;
  j->v->rows(end - begin, g->k, g->alpha, AT(matrix, begin * ld), ld, x, g->beta, (char *)g->c + begin * step * (int64_t)j->size, step);
}

static void vector_columns(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const sc_gemm *g = j->g;
  bool one = g->m == 1;
  const void *matrix = one ? g->b : g->a, *x = one ? g->a : g->b;
  int64_t ld = one ? g->ldb : g->lda, step = one ? (g->ta ? g->lda : 1) : g->tb ? 1 : g->ldb;
  for (int64_t at = begin; at < end; at += 2048) {   /* the results stay in the L1 cache */
    int64_t n = end - at < 2048 ? end - at : 2048;
    j->v->columns(n, g->k, g->alpha, x, step, AT(matrix, at), ld, g->beta, (char *)g->c + at * (int64_t)j->size);
  }
}

static void outer_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const sc_gemm *g = j->g;
  int64_t step = g->ta ? 1 : g->lda;
  j->v->outer(end - begin, g->n, g->alpha, AT(g->a, begin * step), step, g->b, g->beta, (char *)g->c + begin * g->ldc * (int64_t)j->size, g->ldc);
}

static void integer_rows(void *arg, int64_t begin, int64_t end) { ((const job *)arg)->integers(((const job *)arg)->g, begin, end); }

/* An empty sum: beta * c. */
static void zero_rows(const sc_gemm *g) {
  for (int64_t i = 0; i < g->m; i++)
    for (int64_t q = 0; q < g->n; q++) {
      int64_t at = i * g->ldc + q;
      if (g->type == SC_FLOAT32) { float *c = g->c; c[at] = g->beta == 0 ? 0 : (float)g->beta * c[at]; }
      else if (g->type == SC_FLOAT64) { double *c = g->c; c[at] = g->beta == 0 ? 0 : g->beta * c[at]; }
      else ((int64_t *)g->c)[at] = 0;
    }
}

bool sc__blas_parallel(sc_context *ctx) { return ctx->threads > 1 && ctx->blas_warm > 1 && ctx->blas_warm >= sc__thread_count(ctx); }

/* Pieces of [0, n), one per thread and as equal as multiples of `unit` allow: BLAS packs the other operand again for each piece. */
static void split(sc_context *ctx, int64_t n, int64_t unit, double cost, sc_range_fn fn, const job *j) {
  if (ctx->slice && cost > BLOCK_NS) { sc__parallel(ctx, n, unit, cost / (double)n, fn, (void *)(uintptr_t)j); return; }
  if (cost < PARALLEL_ABOVE || ctx->threads <= 1) { fn((void *)(uintptr_t)j, 0, n); return; }
  int64_t threads = ctx->threads, grain = (n + threads - 1) / threads;
  grain = (grain + unit - 1) / unit * unit;
  sc__parallel(ctx, n, grain, cost / (double)n, fn, (void *)(uintptr_t)j);
}

/* ---- under a clock ---- */

typedef struct grid { const job *j; int64_t rows, cols, across; } grid;    /* blocks of c: their size, how many lie side by side */

static void grid_blocks(void *arg, int64_t begin, int64_t end) {
  const grid *d = arg;
  const job *j = d->j;
  for (int64_t at = begin; at < end; at++) {
    sc_gemm part = *j->g;
    int64_t r = at / d->across * d->rows, q = at % d->across * d->cols;
    part.m = part.m - r < d->rows ? part.m - r : d->rows;
    part.n = part.n - q < d->cols ? part.n - q : d->cols;
    part.a = AT(part.a, part.ta ? r : r * part.lda);
    part.b = AT(part.b, part.tb ? q * part.ldb : q);
    part.c = (char *)part.c + (r * part.ldc + q) * (int64_t)j->size;
    if (j->own) run_own(j, &part);
    else blas_rows(&(job){.g = &part, .size = j->size}, 0, part.m);
  }
}

/* c in blocks nearly square, of so much work that packing costs a tenth; where the sum is long, part of it after part, added up in c.
** So each element is the same sum, of parts of K_PART terms at the least: within K / K_PART roundings of the whole product. */
static void blas_grid(sc_context *ctx, const job *j, double cost) {
  enum { SIDE = 64, K_PART = 1536 };
  sc_gemm part = *j->g;
  int64_t k = part.k, whole = k <= K_PART * 3 / 2 ? k : K_PART;
  double each = cost / multiplications(j->g), cells = BLOCK_NS / (each * (double)whole), side = sqrt(cells);
  int64_t rows = (int64_t)(side / 32) * 32, cols;
  if (rows < SIDE) rows = SIDE;
  if (rows > part.m) rows = part.m;
  cols = (int64_t)(cells / (double)rows / 32) * 32;
  if (cols < SIDE) cols = SIDE;
  if (cols > part.n) { cols = part.n; rows = (int64_t)(cells / (double)cols / 32) * 32; }
  if (rows < SIDE) rows = SIDE;
  if (rows > part.m) rows = part.m;
  job piece = {.g = &part, .size = j->size, .own = j->own, .ctx = ctx};
  bool spread = j->own || sc__blas_parallel(ctx);
  grid d = {&piece, rows, cols, (part.n + cols - 1) / cols};
  int64_t blocks = d.across * ((part.m + rows - 1) / rows);
  for (int64_t at = 0; at < k && !sc__slice_dropping(ctx); at += whole) {
    part.k = k - at < whole ? k - at : whole;
    part.a = (const char *)j->g->a + (part.ta ? at * part.lda : at) * (int64_t)j->size;
    part.b = (const char *)j->g->b + (part.tb ? at : at * part.ldb) * (int64_t)j->size;
    if (at) part.beta = 1;
    double block = each * (double)rows * (double)cols * (double)part.k;
    for (int64_t i = 0; i < blocks && !spread; i++) { sc__slice_look(ctx, (int64_t)block); grid_blocks(&d, i, i + 1); }
    if (!spread) continue;
    sc__slice_look(ctx, 0);
    sc__parallel(ctx, blocks, 1, block, grid_blocks, &d);
  }
}

#undef AT

static void run(sc_context *ctx, const sc_gemm *g) {
  job j = {.g = g, .size = sc_dtype_size(g->type), .ctx = ctx, .integers = integer_kernel(ctx->isa)};
  shape s = shape_of(g);
  if (s == BLAS) {
    double cost = sc__gemm_cost(g);
    j.own = own(ctx->isa, g);
    if (ctx->slice && cost > BLOCK_NS * 3 / 2 && !sc__in_worker()) { blas_grid(ctx, &j, cost); return; }
    if (j.own && g->m > g->n) split(ctx, g->m, 28, cost, own_rows, &j);
    else if (j.own) split(ctx, g->n, 32, cost, product_columns, &j);
    else if (cost < PARALLEL_ABOVE || !sc__blas_parallel(ctx)) blas_rows(&j, 0, g->m);
    else if (g->m >= g->n || g->m >= 32 * (int64_t)ctx->threads) split(ctx, g->m, 16, cost, blas_rows, &j);
    else split(ctx, g->n, 16, cost, product_columns, &j);
    return;
  }
  if (s == NOTHING) return;
  if (s == ZERO) { zero_rows(g); return; }
  double cost = sc__gemm_cost(g);
  if (s == INTEGER) { split(ctx, g->m, 1, cost, integer_rows, &j); return; }
  j.v = sc__gemv_kernels(ctx->isa, g->type);
  if (s == ROWS) split(ctx, g->m == 1 ? g->n : g->m, 4, cost, vector_rows, &j);
  else if (s == COLUMNS) split(ctx, g->m == 1 ? g->n : g->m, 64, cost, vector_columns, &j);
  else split(ctx, g->m, 1, cost, outer_rows, &j);
}

/* ---- with an epilogue ---- */

enum { EPILOGUE_BYTES = 128 * 1024 };          /* of c that are still in the L2 cache when they are looked at again */

static void finish_rows(void *arg, int64_t begin, int64_t end) {
  const sc_gemm *g = ((const job *)arg)->g;
  char *c = (char *)g->c + begin * g->ldc * (int64_t)((const job *)arg)->size;
  if (g->ldc == g->n) { sc__epilogue(g->then, (end - begin) * g->n, c); return; }
  for (int64_t i = begin; i < end; i++, c += g->ldc * (int64_t)((const job *)arg)->size) sc__epilogue(g->then, g->n, c);
}

/* Our own tiles give the same bits however the rows are cut, so a piece of them is finished while it is in the cache. */
static void finished_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  int64_t step = EPILOGUE_BYTES / (j->g->n * (int64_t)j->size) / 28 * 28;
  if (step < 56) step = 56;
  for (int64_t i = begin; i < end; i += step) {
    int64_t to = i + step < end ? i + step : end;
    own_rows(arg, i, to);
    finish_rows(arg, i, to);
  }
}

void sc__gemm_run(sc_context *ctx, const sc_gemm *g) {
  if (!g->then || g->m == 0 || g->n == 0) { run(ctx, g); return; }
  job j = {.g = g, .size = sc_dtype_size(g->type), .ctx = ctx};
  if (!ctx->slice && shape_of(g) == BLAS && g->m > g->n && g->m * g->n * (int64_t)j.size > EPILOGUE_BYTES && (j.own = own(ctx->isa, g)) != NULL) {
    split(ctx, g->m, 28, sc__gemm_cost(g), finished_rows, &j);
    return;
  }
  run(ctx, g);
  sc__parallel(ctx, g->m, 1, (double)g->n * g->then->cost, finish_rows, &j);
}

sc_status sc__gemm_f32(sc_context *ctx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                       const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  sc_gemm g = {SC_FLOAT32, ta, tb, m, n, k, alpha, beta, a, lda, b, ldb, c, ldc, NULL};
  SC_TRY(sc__gemm_ready(ctx, &g));
  sc__gemm_run(ctx, &g);
  return SC_OK;
}

sc_status sc__gemm_f64(sc_context *ctx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                       const double *b, int64_t ldb, double beta, double *c, int64_t ldc) {
  sc_gemm g = {SC_FLOAT64, ta, tb, m, n, k, alpha, beta, a, lda, b, ldb, c, ldc, NULL};
  SC_TRY(sc__gemm_ready(ctx, &g));
  sc__gemm_run(ctx, &g);
  return SC_OK;
}

void sc__gemm_i64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const int64_t *a, int64_t lda, const int64_t *b, int64_t ldb,
                  int64_t *c, int64_t ldc) {
  sc_gemm g = {SC_INT64, ta, tb, m, n, k, 1, 0, a, lda, b, ldb, c, ldc, NULL};
  if (m == 0 || n == 0) return;
  if (k == 0) zero_rows(&g);
  else integer_kernel(sc__cpu_isa())(&g, 0, m);
}

/* ---- a matrix of halves ---- */

typedef void (*half_fn)(sc_dtype type, int64_t m, int64_t k, const uint16_t *a, int64_t lda, const float *x, bool add, float *y);
void sc__half_rows_base(sc_dtype type, int64_t m, int64_t k, const uint16_t *a, int64_t lda, const float *x, bool add, float *y);
#if defined(__x86_64__)
void sc__half_rows_avx2(sc_dtype type, int64_t m, int64_t k, const uint16_t *a, int64_t lda, const float *x, bool add, float *y);
void sc__half_rows_avx512(sc_dtype type, int64_t m, int64_t k, const uint16_t *a, int64_t lda, const float *x, bool add, float *y);
#endif

typedef struct half_job { half_fn fn; sc_dtype type; int64_t rows, k, lda, ldx, ldy; const uint16_t *a; const float *x; bool add; float *y; } half_job;

static void half_piece(void *arg, int64_t begin, int64_t end) {
  const half_job *j = arg;
  for (int64_t r = 0; r < j->rows; r++)
    j->fn(j->type, end - begin, j->k, j->a + begin * j->lda, j->lda, j->x + r * j->ldx, j->add, j->y + r * j->ldy + begin);
}

void sc__half_rows(sc_context *ctx, sc_dtype type, int64_t rows, int64_t m, int64_t k, const uint16_t *a, int64_t lda, const float *x, int64_t ldx,
                   bool add, float *y, int64_t ldy) {
  half_job j = {sc__half_rows_base, type, rows, k, lda, ldx, ldy, a, x, add, y};
#if defined(__x86_64__)
  if (ctx->isa == SC_ISA_AVX512) j.fn = sc__half_rows_avx512;
  else if (ctx->isa == SC_ISA_AVX2) j.fn = sc__half_rows_avx2;
#endif
  sc__parallel(ctx, m, 4, (double)(rows * k) * 0.06, half_piece, &j);
}
