/* Reductions, softmax, running sums and sorting over strided data: what csrc/ops asks of these kernels. */
#ifndef SC_KERNEL_REDUCE_H
#define SC_KERNEL_REDUCE_H

#include "kernels.h"

typedef enum sc_reduce_kind {
  SC_RED_SUM, SC_RED_PROD, SC_RED_MAX, SC_RED_MIN, SC_RED_COUNT /* of what is not 0 */,
  SC_RED_QUICK /* a sum whose result is rounded to float32 again */,
  SC_RED_SQUARES, SC_RED_ABS, SC_RED_NANSUM, SC_RED_DEV2 /* sum of (x - m)^2 */, SC_RED_MAXABS, SC_RED_MINABS,
  SC_RED_EXP /* sum of e^(x - m) */, SC_RED_POWER /* sum of |x|^p */, SC_RED_ARGMAX, SC_RED_ARGMIN, SC_RED_KINDS
} sc_reduce_kind;

/* Loops for one element type: float32 and float64 keep double accumulators, integers int64. */
typedef struct sc_reduce_loops {
  void (*row[SC_RED_KINDS])(int64_t n, const void *x, void *acc, double m);
  void (*col[SC_RED_KINDS])(int64_t n, const void *x, void *acc, const double *m);
  void (*col16[SC_RED_KINDS])(int64_t n, const void *x, int64_t step, void *acc);   /* sixteen rows at once; may be NULL */
  int64_t (*find)(int64_t n, const void *x, const void *value);
  void (*col_argmax)(int64_t n, const void *x, void *acc, int64_t *index, int64_t r);
  void (*col_argmin)(int64_t n, const void *x, void *acc, int64_t *index, int64_t r);
  void (*map_exp)(int64_t n, const void *x, void *d, double m);
  void (*map_exp_cols)(int64_t n, const void *x, void *d, const double *m);
} sc_reduce_loops;

/* Rows of n packed elements; y may be x. */
enum { SC_SOFTMAX_COLUMNS = 256 };
typedef struct sc_softmax_loops {
  void (*softmax)(int64_t n, const void *x, void *y, bool logarithm);
  void (*backward)(int64_t n, const void *g, const void *y, void *d, bool logarithm);
  /* down the columns: n rows of w <= SC_SOFTMAX_COLUMNS columns, `step` apart */
  void (*softmax_columns)(int64_t n, int64_t w, int64_t step, const void *x, void *y, bool logarithm);
  void (*backward_columns)(int64_t n, int64_t w, int64_t step, const void *g, const void *y, void *d, bool logarithm);
} sc_softmax_loops;

/* Running sums: of a packed row; down the columns of n rows that are `step` apart. */
typedef struct sc_scan_loops {
  void (*cumsum_row)(int64_t n, const void *x, void *y);
  void (*cumsum_columns)(int64_t n, int64_t w, int64_t step, const void *x, void *y, void *acc);
} sc_scan_loops;

typedef struct sc_reduce_table {
  const sc_reduce_loops *f32, *f64, *i64;
  const sc_softmax_loops *softmax_f32, *softmax_f64;
  const sc_scan_loops *scan_f32, *scan_f64, *scan_i64;
} sc_reduce_table;
const sc_reduce_table *sc__reduce_table(sc_isa isa);

/* acc[k] (double for float dtypes, int64 for the rest; one per output, row-major over the dims that mask leaves) = the reduction of
** x over the dims in mask. index: of ARGMAX and ARGMIN, row-major over the reduced dims, from 0. m: the parameter of DEV2 and EXP,
** one per output; p: the exponent of POWER. An empty reduction leaves the neutral element. The bits do not depend on threads.
** POWER takes float dtypes only, as do SQUARES, ABS, NANSUM, DEV2, MAXABS, MINABS, EXP. uint64 orders as unsigned. */
sc_status sc__reduce(sc_context *ctx, sc_reduce_kind kind, const sc_tensor *x, const bool *mask, void *acc, int64_t *index,
                     const double *m, double p);

/* What an accumulator of that kind begins with. Of rows, the loops are called for blocks of at most 4096 elements. */
void sc__reduce_neutral(sc_reduce_kind kind, bool integer, void *acc);

typedef enum sc_scan_kind {
  SC_SCAN_SUM, SC_SCAN_PROD, SC_SCAN_MAX, SC_SCAN_MIN /* values and positions, the last of equals */, SC_SCAN_LOGSUMEXP,
  SC_SCAN_LINEAR /* y[k] = x[k] + a[k] y[k - 1] */
} sc_scan_kind;
/* A running reduction along the middle of packed [outer, n, inner] x, of float32, float64 or int64, into y of the same type.
** reverse: from the end. index: of MAX and MIN, from `base`. a: of LINEAR. LOGSUMEXP takes floats. */
void sc__scan(sc_context *ctx, sc_scan_kind kind, sc_dtype dtype, bool reverse, int64_t outer, int64_t n, int64_t inner, const void *x,
              const void *a, void *y, int64_t *index, int64_t base);

#endif
