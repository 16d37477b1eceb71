/* Convolutions over raw memory: three maps of one another's adjoints (forward, to the input, to the weight). */
#ifndef SC_CONV_H
#define SC_CONV_H

#include "kernels.h"

enum { SC_CONV_DIMS = 3 };

/* x [N, G*C, in…], w [G*O, C, k…], y [N, G*O, out…], always with three spatial dims (leading ones of size 1 for fewer). */
typedef struct sc_conv {
  sc_ctype type;                       /* SC_C_F32, SC_C_F64, SC_C_I64 */
  int64_t N, G, C, O;                  /* batch, groups, channels of a group: in, out */
  int64_t in[3], out[3], k[3], stride[3], dilation[3], pad[3];
  const sc_epilogue *then;             /* of the forward map; NULL: nothing */
} sc_conv;

/* y = w * x + bias (bias NULL: none). */
sc_status sc__conv_forward(sc_context *ctx, const sc_conv *p, const void *x, const void *w, const void *bias, void *y);
/* dx = the adjoint in x, plus bias per input channel (NULL: none). */
sc_status sc__conv_input(sc_context *ctx, const sc_conv *p, const void *dy, const void *w, const void *bias, void *dx);
/* dw = the adjoint in w. */
sc_status sc__conv_weight(sc_context *ctx, const sc_conv *p, const void *dy, const void *x, void *dw);

/* cols [C*k, positions] of one image of C channels, for output rows r0 … r1 (of out[0]*out[1]) and columns w0 … w1. */
void sc__im2col(const sc_conv *p, const void *x, int64_t r0, int64_t r1, int64_t w0, int64_t w1, void *cols);
/* The adjoint: cols added into x. */
void sc__col2im(const sc_conv *p, const void *cols, int64_t r0, int64_t r1, int64_t w0, int64_t w1, void *x);

#endif
