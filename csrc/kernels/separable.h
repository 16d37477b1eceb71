/* Linear maps that act on each spatial dim on its own: sums over windows, and interpolation. */
#ifndef SC_SEPARABLE_H
#define SC_SEPARABLE_H

#include "kernels.h"

/* One dim: result j is the sum over t < taps of weight[j * taps + t] * x[index[j * taps + t]]; an index of -1 is left out. */
typedef struct sc_taps {
  int64_t n_in, n_out, taps;
  int64_t *index;
  double *weight;
  void *block;              /* of both, from sc__taps_new */
  size_t bytes;
} sc_taps;

/* Room for a table, every index -1. May fail. */
sc_status sc__taps_new(sc_context *ctx, int64_t n_in, int64_t n_out, int64_t taps, sc_taps *out);
void sc__taps_free(sc_context *ctx, sc_taps *t, int n);
/* y = the map of x, [planes, in…] to [planes, out…]; adjoint: x is [planes, out…] and y [planes, in…]. */
sc_status sc__separable(sc_context *ctx, sc_ctype type, int64_t planes, int nd, const sc_taps *dim, bool adjoint, const void *x, void *y);

/* Max pooling: value and flat position (from `base`) of the largest element of each window; windows start at start[j] and have
** count[j] elements `dilation` apart, all inside. NaN wins, the first of equal ones is taken. at: NULL when positions are not wanted. */
typedef struct sc_windows { int64_t n_in, n_out, dilation; const int64_t *start, *count; } sc_windows;
void sc__max_windows(sc_context *ctx, sc_ctype type, int64_t planes, const sc_windows dim[3], int64_t base, const void *x, void *y, int64_t *at);

#endif
