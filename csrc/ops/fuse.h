/* Fusing pointwise ops into one tile program. Used where gradient formulas run and where graphs are optimised. */
#ifndef SC_FUSE_H
#define SC_FUSE_H

#include "ops.h"

/* A value inside a program being built. rank: 0 has dims, 1 0-d, 2 a number of the script (it decides promotion). */
typedef struct sc_operand { int source; sc_dtype dtype; int rank; } sc_operand;

typedef struct sc_fuser {
  sc_program p;
  bool row;                                    /* ops give one value a row from now on */
  sc_tensor *in[SC_PROGRAM_INPUTS];            /* borrowed; numbers point into `constant` */
  sc_tensor constant[SC_PROGRAM_INPUTS];
  double value[SC_PROGRAM_INPUTS];
} sc_fuser;

void sc__fuse_begin(sc_fuser *f);
/* Each is false when the program is full, or the op does not exist for these dtypes: then the ops have to run one by one. */
bool sc__fuse_tensor(sc_fuser *f, sc_tensor *t, sc_operand *out);
/* The same, without looking whether t is an operand already. */
bool sc__fuse_another(sc_fuser *f, sc_tensor *t, sc_operand *out);
bool sc__fuse_number(sc_fuser *f, double v, sc_operand *out);
bool sc__fuse_op(sc_fuser *f, sc_isa isa, const sc_opinfo *op, const sc_attr *attr, const sc_operand *in, sc_operand *out);
/* x in another dtype; a reduction of rows of `count` elements. */
bool sc__fuse_cast(sc_fuser *f, sc_dtype dtype, const sc_operand *x, sc_operand *out);
bool sc__fuse_fold(sc_fuser *f, const sc_opinfo *op, int64_t count, const sc_operand *x, sc_operand *out);
/* Numbers the operands; the program's result is `last`'s, which must be the newest op. */
void sc__fuse_end(sc_fuser *f);
/* The row that computes x to that power: SC_PW_pow, or a cheaper one of x alone. */
int sc__cheap_power(double exponent);
/* An attribute as kernels read it. */
sc_scalar sc__attr_scalar(const sc_attr *a);
/* After sc__fuse_end: the instruction that gives an operand; -1: it is an input. */
static inline int sc__fuse_instr(const sc_operand *o) { return o->source < SC_PROGRAM_INPUTS ? -1 : o->source - SC_PROGRAM_INPUTS; }

#endif
