/* What the linear algebra rows share: batches of matrices in and out of LAPACK's column-major work space. */
#ifndef SC_LINALG_H
#define SC_LINALG_H

#include "../kernels/lapack.h"
#include "calc.h"

/* Input `slot` is a batch of matrices (square: of square ones) of float32 or float64. */
sc_status sc__check_matrix(sc_call *c, int slot, bool square);
static inline int64_t sc__rows(const sc_tensor *t) { return t->dim[t->ndim - 2]; }
static inline int64_t sc__cols(const sc_tensor *t) { return t->dim[t->ndim - 1]; }
/* Product of all dims but the last two. */
int64_t sc__batches(const sc_tensor *t);
/* meta[i]: t's batch dims, then these (negative: left out). */
void sc__batch_meta(sc_meta *m, const sc_tensor *t, sc_dtype dtype, int64_t rows, int64_t cols);
/* Matrix number i of t into dst, column-major; and back into a packed out. `shape`: the batch dims i counts in, t's own when NULL. */
void sc__load_matrix(const sc_tensor *t, int64_t i, sc_dtype type, void *dst, const sc_meta *shape);
void sc__store_matrix(sc_tensor *out, int64_t i, sc_dtype type, const void *src, int64_t ld);
bool sc__all_finite(sc_dtype type, int64_t n, const void *p);

/* One block of work space, cut into pieces. Sizes that do not fit are refused when it is opened. */
typedef struct sc_space { sc_context *ctx; char *block; size_t bytes, at; } sc_space;
/* n pieces of these many elements of z bytes each. */
sc_status sc__space_open(sc_context *ctx, sc_space *s, const int64_t *elements, const size_t *size, void **piece, int n);
void sc__space_close(sc_space *s);
sc_status sc__too_large(sc_call *c);

#endif
