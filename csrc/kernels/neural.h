/* Row loops of normalisation, softmax, cross entropy and recurrent cells, stamped per instruction set for float and double.
** Pointers are to elements of the table's type; NULL where something is absent. */
#ifndef SC_NEURAL_KERNELS_H
#define SC_NEURAL_KERNELS_H

#include "kernels.h"

typedef struct sc_neural {
  /* y = (x - mean) / sqrt(var + eps) * w + b over a row of n; mean and 1/sqrt(var + eps) into *mean, *rstd */
  void (*norm_row)(int64_t n, const void *x, const void *w, const void *b, double eps, void *y, void *mean, void *rstd);
  /* dx of that row (may be NULL); dw += dy * xhat, db += dy where not NULL */
  void (*norm_row_back)(int64_t n, const void *dy, const void *x, const void *w, const void *mean, const void *rstd, void *dx, void *dw, void *db);
  /* sum of x and of (x - shift)^2 over n */
  void (*moments)(int64_t n, const void *x, double shift, double *sum, double *squares);
  /* sum of dy and of dy * (x - shift) */
  void (*cross_moments)(int64_t n, const void *dy, const void *x, double shift, double *sum, double *product);
  /* y = x * a + b; y = dy * a + x * b + c */
  void (*affine)(int64_t n, const void *x, double a, double b, void *y);
  void (*affine2)(int64_t n, const void *dy, const void *x, double a, double b, double c, void *y);
  double (*max)(int64_t n, const void *x);
  /* the sum of e = exp(x * scale - shift), stored in e when it is not NULL */
  double (*exp_sum)(int64_t n, const void *x, double scale, double shift, void *e);
  double (*dot)(int64_t n, const void *a, const void *b);
  /* y = exp(x - shift) * a */
  void (*exp_scaled)(int64_t n, const void *x, double shift, double a, void *y);
  /* x = seen ? x : -infinity; x += a */
  void (*hide)(int64_t n, const uint8_t *seen, void *x);
  void (*add)(int64_t n, const void *a, void *x);
  /* ds = p * (dp - delta) * scale */
  void (*softmax_back)(int64_t n, const void *p, const void *dp, double delta, double scale, void *ds);
  /* One step of H cells. gate [4H]: i f g o before activation, after it on return; c, h: the new state; tc = tanh(c), kept for backward. */
  void (*lstm)(int64_t H, void *gate, const void *c_old, void *c, void *h, void *tc);
  /* dh, dc arrive; dgate [4H] leaves, dc becomes the gradient of c_old */
  void (*lstm_back)(int64_t H, const void *gate, const void *tc, const void *c_old, const void *dh, void *dc, void *dgate);
  /* gi, gh [3H]: r z n of the input and of the state; h_old. keep [4H]: r z n and gh's n part */
  void (*gru)(int64_t H, const void *gi, const void *gh, const void *h_old, void *h, void *keep);
  /* dgi, dgh [3H]; dh becomes the direct part of h_old's gradient */
  void (*gru_back)(int64_t H, const void *keep, const void *h_old, void *dh, void *dgi, void *dgh);
  /* h = tanh(a) or relu(a); da = dh * derivative, from h */
  void (*rnn)(int64_t H, bool relu, const void *a, void *h);
  void (*rnn_back)(int64_t H, bool relu, const void *h, const void *dh, void *da);
} sc_neural;

/* type: SC_FLOAT32 or SC_FLOAT64 */
const sc_neural *sc__neural(sc_isa isa, sc_dtype type);

#endif
