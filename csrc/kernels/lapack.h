/* The parts of LAPACK that ops use, for float32 and float64. Matrices are column-major and packed unless a leading dimension is given.
** Every argument is valid by construction, so LAPACK's error handler, which prints, is never reached: callers check that sizes fit
** (sc__lapack_size) and that sc__blas_ready succeeded. Results are LAPACK's info: 0, or the place where it stopped. */
#ifndef SC_LAPACK_H
#define SC_LAPACK_H

#include "kernels.h"

/* Room for any of these functions on an m x n matrix: elements of `work` and of `iwork`. vectors: also for eigen- or singular vectors;
** full: all of them. False: too large for LAPACK's 32-bit sizes. */
typedef struct sc_lapack_room { int64_t work, iwork; } sc_lapack_room;
typedef enum sc_lapack { SC_LAPACK_LU, SC_LAPACK_QR, SC_LAPACK_EIGH, SC_LAPACK_SVD } sc_lapack;
bool sc__lapack_room(sc_lapack what, sc_dtype type, int64_t m, int64_t n, bool vectors, bool full, sc_lapack_room *room);

int sc__potrf(sc_dtype type, bool upper, int64_t n, void *a);
int sc__getrf(sc_dtype type, int64_t m, int64_t n, void *a, int *pivots);                       /* pivots from 1, [min(m, n)] */
int sc__getri(sc_dtype type, int64_t n, void *a, const int *pivots, void *work, int64_t room);  /* a: LU with no zero on its diagonal */
/* b [m, n] = op(a)^-1 b, or b op(a)^-1 when !left */
void sc__trsm(sc_dtype type, bool left, bool upper, bool transposed, bool unit, int64_t m, int64_t n, const void *a, int64_t lda, void *b,
              int64_t ldb);
int sc__geqrf(sc_dtype type, int64_t m, int64_t n, void *a, void *tau, void *work, int64_t room);
int sc__orgqr(sc_dtype type, int64_t m, int64_t n, int64_t k, void *a, const void *tau, void *work, int64_t room);
/* Symmetric; the named triangle is read. vectors: a becomes them. */
int sc__syevd(sc_dtype type, bool vectors, bool upper, int64_t n, void *a, void *w, void *work, int64_t room, int *iwork, int64_t iroom);
/* job: 'N' values only, 'S' min(m, n) vectors, 'A' all. */
int sc__gesdd(sc_dtype type, char job, int64_t m, int64_t n, void *a, void *s, void *u, int64_t ldu, void *vt, int64_t ldvt, void *work,
              int64_t room, int *iwork);

#endif
