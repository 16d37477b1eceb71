/* Kernels for x86-64 with AVX512; used when the processor has it. Empty elsewhere. */
#if defined(__x86_64__)
#if defined(__clang__)
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <immintrin.h>
#include "kernels.h"
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx512cd,avx2,fma,bmi,bmi2,f16c"))), apply_to = function)
#else
#pragma GCC optimize("O3,no-math-errno,no-trapping-math,no-unswitch-loops")
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx512cd,avx2,fma,bmi,bmi2,f16c")
#endif
#define ISA avx512
#define SC_FUSED_MULTIPLY
#define VM_LANES 16
#define VEC_BYTES 64
#include "vector_math.h"
#include "vector_rows.h"
#include "pointwise_stamp.h"
#include "neural_stamp.h"
#define TILE_M 8
#define TILE_V 3
#define TILE_LANES 16
#include "tile_stamp.h"
#include "reduce_stamp.h"
#include "optim_stamp.h"
#include "gemv_stamp.h"
#define SKINNY_M 14
#define SKINNY_LANES 16
#define SKINNY_K 224
#include "skinny_stamp.h"
#include "lanes_stamp.h"
#include "random_stamp.h"
#define CHAIN_V 8
#include "chain_stamp.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
typedef int sc__isa_avx512_is_empty;
#endif
