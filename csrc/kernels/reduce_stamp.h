/* The loops of reductions and softmax, once per element type, for the instruction set the including file names with ISA. Vectors have that
** set's own width, VEC_BYTES: GCC takes wider ones apart element by element. */
#include "math.h"
#include "reduce.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"   /* the vectors stay inside this file */
#endif
#define RED_CAT_(a, b, c) sc_red_##a##_##b##_##c
#define RED_CAT(a, b, c) RED_CAT_(a, b, c)
#define VECTOR(name, type) typedef type RED_CAT(name, vec, ISA) __attribute__((vector_size(VEC_BYTES)))
VECTOR(f32, float);
VECTOR(f64, double);
VECTOR(i32, int32_t);
VECTOR(i64, int64_t);
VECTOR(u64, uint64_t);
#undef VECTOR

#define AMASK RED_CAT(i64, vec, ISA)

#define RN(name) RED_CAT(name, f32, ISA)
#define T float
#define A double
#define UA double
#define FLOATING 32
#define VEC RED_CAT(f32, vec, ISA)
#define AVEC RED_CAT(f64, vec, ISA)
#define MASK RED_CAT(i32, vec, ISA)
#define SIGNLESS INT32_MAX
#define EXP sc_exp_f32
#include "reduce_body.h"
#include "scan_body.h"
#include "softmax_body.h"
#undef RN
#undef T
#undef FLOATING
#undef VEC
#undef MASK
#undef SIGNLESS
#undef EXP

#define RN(name) RED_CAT(name, f64, ISA)
#define T double
#define FLOATING 64
#define VEC RED_CAT(f64, vec, ISA)
#define MASK RED_CAT(i64, vec, ISA)
#define SIGNLESS INT64_MAX
#define EXP sc_exp_f64
#include "reduce_body.h"
#include "scan_body.h"
#include "softmax_body.h"
#undef RN
#undef T
#undef A
#undef UA
#undef FLOATING
#undef VEC
#undef AVEC
#undef MASK
#undef SIGNLESS
#undef EXP

#define RN(name) RED_CAT(name, i64, ISA)
#define T int64_t
#define A int64_t
#define UA uint64_t
#define FLOATING 0
#define VEC RED_CAT(i64, vec, ISA)
#define AVEC RED_CAT(u64, vec, ISA)
#define MASK RED_CAT(i64, vec, ISA)
#include "reduce_body.h"
#include "scan_body.h"
#undef RN
#undef T
#undef A
#undef UA
#undef FLOATING
#undef VEC
#undef AVEC
#undef MASK
#undef AMASK

#define RED_TABLE_(isa) sc__reduce_table_##isa
#define RED_TABLE(isa) RED_TABLE_(isa)
const sc_reduce_table RED_TABLE(ISA) = {
  .f32 = &RED_CAT(loops, f32, ISA), .f64 = &RED_CAT(loops, f64, ISA), .i64 = &RED_CAT(loops, i64, ISA),
  .softmax_f32 = &RED_CAT(softmax_loops, f32, ISA), .softmax_f64 = &RED_CAT(softmax_loops, f64, ISA),
  .scan_f32 = &RED_CAT(scan_loops, f32, ISA), .scan_f64 = &RED_CAT(scan_loops, f64, ISA), .scan_i64 = &RED_CAT(scan_loops, i64, ISA),
};
#undef RED_TABLE
#undef RED_TABLE_
#undef RED_CAT
#undef RED_CAT_
