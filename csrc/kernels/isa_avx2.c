/* Kernels for x86-64 with AVX2; used when the processor has it. Empty elsewhere. */
#if defined(__x86_64__)
#if defined(__clang__)
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <immintrin.h>
#include "kernels.h"
#pragma clang attribute push(__attribute__((target("avx2,fma,bmi,bmi2,f16c"))), apply_to = function)
#else
#pragma GCC optimize("O3,no-math-errno,no-trapping-math,no-unswitch-loops")
#pragma GCC target("avx2,fma,bmi,bmi2,f16c")
#endif
#define ISA avx2
#define SC_FUSED_MULTIPLY
#define VM_LANES 8
#define VEC_BYTES 32
#include "vector_math.h"
#include "vector_rows.h"
#define STAMP_NARROW
#include "pointwise_stamp.h"
#include "neural_stamp.h"
#define TILE_M 4
#define TILE_V 3
#define TILE_LANES 8
#include "tile_stamp.h"
#include "reduce_stamp.h"
#include "optim_stamp.h"
#include "gemv_stamp.h"
#define SKINNY_M 6
#define SKINNY_LANES 8
#define SKINNY_K 320
#include "skinny_stamp.h"
#include "lanes_stamp.h"
#include "random_stamp.h"
#define CHAIN_V 8
#include "chain_stamp.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int sc__isa_avx2_is_empty;
#endif
