/* kernels: loops over raw pointers. Knows nothing of tensors' owners, of graphs or Lua. */
#ifndef SC_KERNELS_H
#define SC_KERNELS_H

#include "../tensor/tensor.h"

/* Types that kernels compute in: the halves as float, every integer as 64 bits. */
typedef enum sc_ctype { SC_C_F32, SC_C_F64, SC_C_I64, SC_C_U64, SC_C_BOOL, SC_CTYPES } sc_ctype;
static inline size_t sc__ctype_size(sc_ctype c) { return c == SC_C_F32 ? 4 : c == SC_C_BOOL ? 1 : 8; }
sc_dtype sc__ctype_dtype(sc_ctype c);

/* n results of a pointwise op. Steps in elements: 1 packed, 0 one value for all, else strided. d is packed and may be equal to
** a source that is packed too. p: the op's attributes. */
typedef void (*sc_pw_fn)(int64_t n, void *d, const void *a, int64_t as, const void *b, int64_t bs, const void *c, int64_t cs,
                         const sc_scalar *p);

typedef enum sc_pw_rule {
  SC_PW_SAME,      /* the promoted dtype */
  SC_PW_FLOAT,     /* the promoted dtype, integers become float32 */
  SC_PW_BOOL,      /* computed in the promoted dtype, the result is bool */
  SC_PW_PICK,      /* the first operand is a bool and takes no part in promotion, else SAME */
  SC_PW_EXPONENT   /* computed in the promoted dtype, the result is int32 */
} sc_pw_rule;

enum {
  SC_PW_COND = 1,        /* set for PICK */
  SC_PW_NO_BOOL = 2,     /* not for a promoted dtype of bool */
  SC_PW_NO_BOOLS = 4,    /* not when any operand is bool */
  SC_PW_BOOL_INT = 8,    /* bools count as int64 */
  SC_PW_ALPHA = 16,      /* attribute 0 must not be of a higher category than the result */
  SC_PW_NO_ZERO = 32,    /* integers: a second operand of 0 is an error, found before anything is written */
  SC_PW_COMPARE = 64     /* a number of the script counts by its mathematical value, also beyond what the other operand's dtype holds */
};

typedef struct sc_pw {
  const char *name;
  uint8_t id, arity, rule, flags;
  float cost;                              /* about, nanoseconds an element in float32 */
} sc_pw;

/* One row per pointwise op in kernels/pointwise_table.h, which this enum, the kernels and the op table are stamped from. */
enum {
#define SC_PW_ROW(name, ...) SC_PW_##name,
#include "pointwise_table.h"
#undef SC_PW_ROW
  SC_PW_COUNT
};
extern const sc_pw sc__pw[SC_PW_COUNT];
/* NULL: the op does not exist in that type. Bools without b8 are computed as int64. */
typedef struct sc_pw_kernels { sc_pw_fn f32, f64, i64, u64, b8, i8, u8, i16, i32; } sc_pw_kernels;
sc_pw_fn sc__pw_kernel(sc_isa isa, int id, sc_ctype type);
/* The loop over elements of that dtype as they lie in memory, integers of 8 to 32 bits included; NULL: there is none. */
sc_pw_fn sc__pw_packed_kernel(sc_isa isa, int id, sc_dtype dtype);

#include "program.h"

/* What happens to each result of a product or convolution before it is left: y = fn(y), for packed stretches of them. */
typedef struct sc_epilogue { sc_pw_fn fn; sc_scalar p[SC_PROGRAM_PARAMS]; double cost; } sc_epilogue;   /* cost: nanoseconds an element */
static inline void sc__epilogue(const sc_epilogue *e, int64_t n, void *y) { e->fn(n, y, y, 1, NULL, 0, NULL, 0, e->p); }

/* Before a loop whose iterations may run in any order, also where what it writes is what it reads at the same place. */
#if defined(__clang__)
#define SC_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define SC_IVDEP _Pragma("GCC ivdep")
#endif

/* ---- matrix products ---- */
/* c[m, n] = alpha * a[m, k] b[k, n] + beta * c, row-major with leading dimensions; ta: a is stored [k, m], tb: b is stored [n, k]. beta 0:
** c is not read. type: float32, float64, or int64, which wraps and knows alpha 1 and beta 0 only. */
typedef struct sc_gemm {
  sc_dtype type;
  bool ta, tb;
  int64_t m, n, k;
  double alpha, beta;
  const void *a;
  int64_t lda;
  const void *b;
  int64_t ldb;
  void *c;
  int64_t ldc;
  const sc_epilogue *then;               /* NULL: nothing */
} sc_gemm;
enum { SC_SKINNY_ROOM = 32 * 14 * 224 };    /* numbers of a packed left operand: 400 KB, most of an L2 cache (kernels/skinny_stamp.h) */
/* Checks sizes and makes BLAS fit for this product (may fail); then sc__gemm_run cannot fail. Call it before the pieces of a parallel
** loop that run products. sc__gemm_run splits over the context's threads unless it is inside such a piece. */
sc_status sc__gemm_ready(sc_context *ctx, const sc_gemm *g);
void sc__gemm_run(sc_context *ctx, const sc_gemm *g);
double sc__gemm_cost(const sc_gemm *g);                  /* about, nanoseconds on one thread */
/* Both in one. */
sc_status sc__gemm_f32(sc_context *ctx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                       const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
sc_status sc__gemm_f64(sc_context *ctx, bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                       const double *b, int64_t ldb, double beta, double *c, int64_t ldc);
void sc__gemm_i64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const int64_t *a, int64_t lda, const int64_t *b, int64_t ldb,
                  int64_t *c, int64_t ldc);
/* Before anything else of OpenBLAS (LAPACK): its memory is there on `threads` threads at once, and it will not ask for more. */
sc_status sc__blas_ready(sc_context *ctx, int threads);
/* Whether products may run on all threads at once: false when there was too little address space for that. */
bool sc__blas_parallel(sc_context *ctx);

/* y[r, i] (+)= sum over p of a[i, p] * x[r, p] for a matrix a of float16 or bfloat16, read as it is; for a few rows x. */
void sc__half_rows(sc_context *ctx, sc_dtype type, int64_t rows, int64_t m, int64_t k, const uint16_t *a, int64_t lda, const float *x, int64_t ldx,
                   bool add, float *y, int64_t ldy);

/* Products with a vector (kernels/gemv_stamp.h), per instruction set. */
typedef struct sc_gemv_kernels {
  void (*rows)(int64_t m, int64_t k, double alpha, const void *a, int64_t lda, const void *x, double beta, void *y, int64_t incy);
  void (*columns)(int64_t n, int64_t k, double alpha, const void *x, int64_t incx, const void *b, int64_t ldb, double beta, void *y);
  void (*outer)(int64_t m, int64_t n, double alpha, const void *a, int64_t inca, const void *b, double beta, void *c, int64_t ldc);
} sc_gemv_kernels;
const sc_gemv_kernels *sc__gemv_kernels(sc_isa isa, sc_dtype type);   /* SC_FLOAT32 or SC_FLOAT64 */

/* ---- random numbers: see random_stamp.h. A group is 64 words. ---- */
typedef struct sc_random_kernels {
  void (*words)(uint64_t seed, uint64_t counter, int64_t groups, uint32_t *out);
  void (*uniform)(int64_t n, const uint32_t *words, float low, float range, float *out);
  void (*normal)(int64_t groups, const uint32_t *words, float mean, float std, float *out);
  void (*keep)(int64_t groups, const uint32_t *words, uint32_t threshold, uint8_t *bits);
  void (*masked_f32)(int64_t n, const float *x, const uint8_t *bits, float scale, float *y);     /* bit ? x * scale : 0 */
  void (*masked_f64)(int64_t n, const double *x, const uint8_t *bits, double scale, double *y);
} sc_random_kernels;
extern const sc_random_kernels sc__random_kernels_base, sc__random_kernels_avx2, sc__random_kernels_avx512;
static inline const sc_random_kernels *sc__random_kernels(sc_isa isa) {
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) return &sc__random_kernels_avx512;
  if (isa == SC_ISA_AVX2) return &sc__random_kernels_avx2;
#endif
  (void)isa;
  return &sc__random_kernels_base;
}

#endif
