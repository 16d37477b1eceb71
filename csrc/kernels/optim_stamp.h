/* The loops of the optimiser steps, stamped per instruction set (this file) and element type (optim_loops.h). One pass over memory:
** a parameter, its gradient and its states are read and written once. No include guard: each instruction set has a file. */
#include "optim.h"

#include <math.h>

#define O_CAT_(a, b, c) a##_step_##b##_##c
#define O_CAT(a, b, c) O_CAT_(a, b, c)

#define TYPE f32
#define T float
#define SQRT sqrtf
#define ABS fabsf
#include "optim_loops.h"
#undef TYPE
#undef T
#undef SQRT
#undef ABS
#define TYPE f64
#define T double
#define SQRT sqrt
#define ABS fabs
#include "optim_loops.h"
#undef TYPE
#undef T
#undef SQRT
#undef ABS

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
