/* The loops of the optimiser steps, stamped per instruction set (this file) and element type (optim_loops.h). One pass over memory:
** a parameter, its gradient and its states are read and written once. No include guard: each instruction set has a file. */
#include "optim.h"
#include "math.h"

#include <math.h>
#include <string.h>

#ifndef SC_OPTIM_SQRT
#define SC_OPTIM_SQRT
/* sqrt within 1 ulp, as code without branches: calls of sqrtf are kept as calls for errno's sake wherever the command line does not say
** otherwise, and a loop with a call is not turned into vector instructions. 1 / sqrt x from the bits of x, three steps of Newton's
** method, one more for the product. Measured: Adam on 200704 elements, one thread: 462 us with sqrtf, 112 us with this. */
static inline float sc_step_sqrt(float x) {
  uint32_t i;                                            /* of a negative number or NaN it is any, and so is the result's way to NaN */
  float y;
  memcpy(&i, &x, 4);
  i = 0x5f375a86u - (i >> 1);
  memcpy(&y, &i, 4);
  float h = 0.5f * x;
  y = y * (1.5f - h * y * y);
  y = y * (1.5f - h * y * y);
  y = y * (1.5f - h * y * y);
  float s = x * y;
  s = s + 0.5f * y * (x - s * s);
  s = x < INFINITY ? s : x;                              /* infinity and NaN */
  return x < 0 ? NAN : s;
}
#endif

#define O_CAT_(a, b, c) a##_step_##b##_##c
#define O_CAT(a, b, c) O_CAT_(a, b, c)

#define TYPE f32
#define T float
#define SQRT sc_step_sqrt
#define ABS fabsf
#define MADD sc_madd_f32
#include "optim_loops.h"
#undef TYPE
#undef T
#undef SQRT
#undef ABS
#undef MADD
#define TYPE f64
#define T double
#define SQRT sqrt
#define ABS fabs
#define MADD sc_madd_f64
#include "optim_loops.h"
#undef TYPE
#undef T
#undef SQRT
#undef ABS
#undef MADD

#define O_ROW(name) {O_CAT(name, f32, ISA), O_CAT(name, f64, ISA)},
#define O_TABLE_(isa) sc__steps_table_##isa
#define O_TABLE(isa) O_TABLE_(isa)
extern const sc_step_kernels O_TABLE(ISA)[SC_STEPS];
const sc_step_kernels O_TABLE(ISA)[SC_STEPS] = {SC_STEP_NAMES(O_ROW)};
#undef O_ROW
#undef O_TABLE
#undef O_TABLE_
#undef O_CAT
#undef O_CAT_
