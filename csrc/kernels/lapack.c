/* LAPACK, which is inside OpenBLAS, declared by hand; see lapack.h. Fortran passes everything by address, and the lengths of strings
** behind all other arguments. */
#include "lapack.h"

typedef size_t len;                                  /* of a string argument */

#define DECLARE(T, p) \
  extern void p##potrf_(const char *, const int *, T *, const int *, int *, len); \
  extern void p##getrf_(const int *, const int *, T *, const int *, int *, int *); \
  extern void p##getri_(const int *, T *, const int *, const int *, T *, const int *, int *); \
  extern void p##geqrf_(const int *, const int *, T *, const int *, T *, T *, const int *, int *); \
  extern void p##orgqr_(const int *, const int *, const int *, T *, const int *, const T *, T *, const int *, int *); \
  extern void p##syevd_(const char *, const char *, const int *, T *, const int *, T *, T *, const int *, int *, const int *, int *, len, len); \
  extern void p##gesdd_(const char *, const int *, const int *, T *, const int *, T *, T *, const int *, T *, const int *, T *, const int *, \
                        int *, int *, len); \
  extern void p##trsm_(const char *, const char *, const char *, const char *, const int *, const int *, const T *, const T *, const int *, \
                       T *, const int *, len, len, len, len);
DECLARE(float, s)
DECLARE(double, d)
#undef DECLARE

static int ld(int64_t rows) { return rows > 1 ? (int)rows : 1; }
static int clipped(int64_t room) { return room > INT32_MAX ? INT32_MAX : (int)room; }

bool sc__lapack_room(sc_lapack what, sc_dtype type, int64_t m, int64_t n, bool vectors, bool full, sc_lapack_room *room) {
  const int64_t most = 1 << 15;                      /* squares of sizes, and work of a few squares, stay below 2^31 */
  int64_t k = m < n ? m : n, big = m > n ? m : n;
  (void)type;
  room->iwork = 8 * k + 16;
  room->work = 64 * big + 64;                        /* blocks of up to 64 columns */
  if (m < 0 || n < 0 || big > INT32_MAX / 256) return false;
  switch (what) {
    case SC_LAPACK_LU: case SC_LAPACK_QR: return big <= most || m * n < INT32_MAX;
    case SC_LAPACK_EIGH:
      if (n > most / 2) return false;
      room->work = vectors ? 1 + 6 * n + 2 * n * n + 64 * n : 2 * n + 64 * n + 64;
      room->iwork = 3 + 5 * n + 16;
      return true;
    case SC_LAPACK_SVD:                              /* the largest of the documented needs, and room for blocking */
      if (k > most / 4 || big * 64 > INT32_MAX / 4 || (full && big > most)) return false;
      room->work = (vectors ? 6 * k * k + 8 * k : 8 * k) + 2 * big + 64 * (m + n) + (full ? big : 0) + 64;
      return true;
  }
  return false;
}

int sc__potrf(sc_dtype type, bool upper, int64_t size, void *a) {
  int n = (int)size, l = ld(size), info = 0;
  if (n == 0) return 0;
  if (type == SC_FLOAT32) spotrf_(upper ? "U" : "L", &n, a, &l, &info, 1);
  else dpotrf_(upper ? "U" : "L", &n, a, &l, &info, 1);
  return info;
}

int sc__getrf(sc_dtype type, int64_t rows, int64_t cols, void *a, int *pivots) {
  int m = (int)rows, n = (int)cols, l = ld(rows), info = 0;
  if (m == 0 || n == 0) return 0;
  if (type == SC_FLOAT32) sgetrf_(&m, &n, a, &l, pivots, &info);
  else dgetrf_(&m, &n, a, &l, pivots, &info);
  return info;
}

int sc__getri(sc_dtype type, int64_t size, void *a, const int *pivots, void *work, int64_t room) {
  int n = (int)size, l = ld(size), lwork = clipped(room), info = 0;
  if (n == 0) return 0;
  if (type == SC_FLOAT32) sgetri_(&n, a, &l, pivots, work, &lwork, &info);
  else dgetri_(&n, a, &l, pivots, work, &lwork, &info);
  return info;
}

void sc__trsm(sc_dtype type, bool left, bool upper, bool transposed, bool unit, int64_t rows, int64_t cols, const void *a, int64_t lda, void *b,
              int64_t ldb) {
  int m = (int)rows, n = (int)cols, la = ld(lda), lb = ld(ldb);
  const char *side = left ? "L" : "R", *uplo = upper ? "U" : "L", *trans = transposed ? "T" : "N", *diag = unit ? "U" : "N";
  const float one_s = 1;
  const double one_d = 1;
  if (m == 0 || n == 0) return;
  if (type == SC_FLOAT32) strsm_(side, uplo, trans, diag, &m, &n, &one_s, a, &la, b, &lb, 1, 1, 1, 1);
  else dtrsm_(side, uplo, trans, diag, &m, &n, &one_d, a, &la, b, &lb, 1, 1, 1, 1);
}

int sc__geqrf(sc_dtype type, int64_t rows, int64_t cols, void *a, void *tau, void *work, int64_t room) {
  int m = (int)rows, n = (int)cols, l = ld(rows), lwork = clipped(room), info = 0;
  if (m == 0 || n == 0) return 0;
  if (type == SC_FLOAT32) sgeqrf_(&m, &n, a, &l, tau, work, &lwork, &info);
  else dgeqrf_(&m, &n, a, &l, tau, work, &lwork, &info);
  return info;
}

int sc__orgqr(sc_dtype type, int64_t rows, int64_t cols, int64_t reflectors, void *a, const void *tau, void *work, int64_t room) {
  int m = (int)rows, n = (int)cols, k = (int)reflectors, l = ld(rows), lwork = clipped(room), info = 0;
  if (m == 0 || n == 0) return 0;
  if (type == SC_FLOAT32) sorgqr_(&m, &n, &k, a, &l, tau, work, &lwork, &info);
  else dorgqr_(&m, &n, &k, a, &l, tau, work, &lwork, &info);
  return info;
}

int sc__syevd(sc_dtype type, bool vectors, bool upper, int64_t size, void *a, void *w, void *work, int64_t room, int *iwork, int64_t iroom) {
  int n = (int)size, l = ld(size), lwork = clipped(room), liwork = clipped(iroom), info = 0;
  const char *job = vectors ? "V" : "N", *uplo = upper ? "U" : "L";
  if (n == 0) return 0;
  if (type == SC_FLOAT32) ssyevd_(job, uplo, &n, a, &l, w, work, &lwork, iwork, &liwork, &info, 1, 1);
  else dsyevd_(job, uplo, &n, a, &l, w, work, &lwork, iwork, &liwork, &info, 1, 1);
  return info;
}

int sc__gesdd(sc_dtype type, char job, int64_t rows, int64_t cols, void *a, void *s, void *u, int64_t ldu, void *vt, int64_t ldvt, void *work,
              int64_t room, int *iwork) {
  int m = (int)rows, n = (int)cols, l = ld(rows), lu = ld(ldu), lv = ld(ldvt), lwork = clipped(room), info = 0;
  if (m == 0 || n == 0) return 0;
  if (type == SC_FLOAT32) sgesdd_(&job, &m, &n, a, &l, s, u, &lu, vt, &lv, work, &lwork, iwork, &info, 1);
  else dgesdd_(&job, &m, &n, a, &l, s, u, &lu, vt, &lv, work, &lwork, iwork, &info, 1);
  return info;
}
