/* The kernels of optimiser steps: see optim_stamp.h for the loops, ops/optim.c for what the hyperparameters mean. */
#ifndef SC_KERNELS_OPTIM_H
#define SC_KERNELS_OPTIM_H

#include "kernels.h"

#define SC_STEP_NAMES(R) R(sgd) R(adam) R(rmsprop) R(adagrad) R(adadelta) R(adamax) R(nadam) R(radam)

enum {
#define R(name) SC_STEP_##name,
  SC_STEP_NAMES(R)
#undef R
  SC_STEPS
};
enum { SC_STEP_HYPERS = 12 };

/* n elements: parameter, gradient, up to three states (NULL: absent), hyperparameters. The memories do not overlap. */
typedef void (*sc_step_fn)(int64_t n, void *p, const void *g, void *a, void *b, void *c, const double *h);
typedef struct sc_step_kernels { sc_step_fn f32, f64; } sc_step_kernels;
sc_step_fn sc__step_kernel(sc_isa isa, int id, sc_dtype dtype);   /* SC_FLOAT32 or SC_FLOAT64 */

#endif
