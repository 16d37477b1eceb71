/* Products in register tiles where a library's matrix product spends its time on packing: direct convolutions, whose columns are rows of the
** image itself, and the same matrix times a few rows again and again. float32 only. */
#ifndef SC_TILE_H
#define SC_TILE_H

#include "conv.h"

typedef struct sc_tile {
  int mr, nr;                            /* rows and columns of a tile */
  /* c [mr, nr] = sum over k of a[k * mr + row] * b[offset[k] + column] */
  void (*tile)(int64_t K, const float *a, const float *b, const int64_t *offset, float *c);
  /* c [n] = sum over k of a[k] * b[offset[k] + column]; may read and write up to a vector of 64 floats beyond n */
  void (*row)(int64_t K, const float *a, const float *b, const int64_t *offset, int64_t n, float *c);
} sc_tile;
const sc_tile *sc__tile(sc_isa isa);

/* Channels in the lanes of vectors, see lanes_stamp.h; not for every instruction set. A panel of weights is [K, 2 vectors]. */
typedef struct sc_lanes {
  int most, lanes;                       /* positions of a tile at the most; floats of a vector */
  /* [positions - 1]: out [positions, 2 vectors] = bias + sum over k of x[offset[k] + position] * w[k]; wide: both vectors, else the first */
  void (*tile[14])(bool wide, int64_t K, const float *w, const float *x, const int64_t *offset, const float *bias, float *out);
  /* y[channel * plane + i] = tile[i, channel]; the tile has room for n rounded up to 4 */
  void (*spread)(int64_t n, int64_t channels, const float *tile, float *y, int64_t plane);
  void (*pack)(int64_t K, int64_t n, const float *w, float *panel);      /* of n rows of w [n, K] */
} sc_lanes;

/* Whether the direct kernel does the convolution (float32, stride 1); then forward and to the input. May fail. */
bool sc__direct_fits(const sc_conv *p);
sc_status sc__direct_forward(sc_context *ctx, const sc_conv *p, const float *x, const float *w, const float *bias, float *y);
sc_status sc__direct_input(sc_context *ctx, const sc_conv *p, const float *dy, const float *w, const float *bias, float *dx);

/* A matrix b [K, n] laid out for products with few rows. */
typedef struct sc_panels { int64_t K, n, blocks; float *data; int64_t *offset; float *rows; size_t bytes; int64_t max_rows; } sc_panels;
/* transposed: b is stored [n, K]. max_rows: of the products to come. May fail. */
sc_status sc__panels_new(sc_context *ctx, bool transposed, int64_t K, int64_t n, const float *b, int64_t ldb, int64_t max_rows, sc_panels *out);
void sc__panels_free(sc_context *ctx, sc_panels *p);
/* c [m, n] = a [m, K] b (+ c when add) */
void sc__panels_times(sc_context *ctx, sc_panels *p, int64_t m, const float *a, int64_t lda, bool add, float *c, int64_t ldc);

#endif
