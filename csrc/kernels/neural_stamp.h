/* The loops declared in neural.h: for float and double, once per instruction set (see the isa_*.c files). Sums run in a fixed number
** of lanes and in blocks that are added in double, so that they are accurate and the same for every instruction set's order. */
#include "neural.h"
#include "math.h"

#define NK3_(a, b, c) a##_##b##_##c
#define NK3(a, b, c) NK3_(a, b, c)
#define NK(name) NK3(nk_##name, T, ISA)

#define T float
#define NK_VECTORS                         /* rows go through vector_rows.h */
#define NK_EXP sc_exp_f32
#define NK_TANH sc_tanh_f32
#define NK_MADD sc_madd_f32
#include "neural_rows.h"
#undef T
#undef NK_VECTORS
#undef NK_EXP
#undef NK_TANH
#undef NK_MADD
#define T double
#define NK_EXP sc_exp_f64
#define NK_TANH sc_tanh_f64
#define NK_MADD sc_madd_f64
#include "neural_rows.h"
#undef T
#undef NK_EXP
#undef NK_TANH
#undef NK_MADD
#undef NK
#undef NK3
#undef NK3_
