/* calc: arithmetic over ops in C, for rows defined by other ops and for gradients that a formula's text cannot say. Every call gives a
** tensor that the calc holds until it ends; after a failure every further call gives NULL and does nothing, so that expressions nest:
**
**     sc_calc k = {.ctx = c->ctx};
**     sc_tensor *r = sc__calc2(&k, "matmul", sc__calc_t(&k, x), y);
**     return sc__calc_end(&k, r, &c->out[0]);
*/
#ifndef SC_CALC_H
#define SC_CALC_H

#include "ops.h"

enum { SC_CALC_MAX = 128 };

typedef struct sc_calc {
  sc_context *ctx;
  sc_status status;
  int n;
  sc_tensor *held[SC_CALC_MAX];
} sc_calc;

/* The first result of an op; attributes in the signature's order, the rest at their defaults. NULL inputs of optional parameters
** are passed by sc__calc only. */
sc_tensor *sc__calc(sc_calc *k, const char *op, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr);
/* All results: out[n]. */
void sc__calc_all(sc_calc *k, const char *op, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr, sc_tensor **out, int n);
sc_tensor *sc__calc1(sc_calc *k, const char *op, sc_tensor *a);
sc_tensor *sc__calc2(sc_calc *k, const char *op, sc_tensor *a, sc_tensor *b);
sc_tensor *sc__calc_number(sc_calc *k, double v);                             /* takes part in promotion as a number of the script does */
sc_tensor *sc__calc_scaled(sc_calc *k, sc_tensor *a, double factor);
sc_tensor *sc__calc_t(sc_calc *k, sc_tensor *a);                              /* the last two dims swapped */
sc_tensor *sc__calc_reshape(sc_calc *k, sc_tensor *a, int n, const int64_t *dim);
sc_tensor *sc__calc_unsqueeze(sc_calc *k, sc_tensor *a, int before_end);      /* a dim of 1 with that many dims behind it */
sc_tensor *sc__calc_narrow(sc_calc *k, sc_tensor *a, int dim, int64_t start, int64_t length);   /* dim from 0, or negative */
sc_tensor *sc__calc_tri(sc_calc *k, sc_tensor *a, bool upper, int diagonal);  /* the triangle kept, zeros elsewhere */
/* Lets go of everything; *out: result, new, when nothing failed (result may be NULL: none). */
sc_status sc__calc_end(sc_calc *k, sc_tensor *result, sc_tensor **out);

#endif
