/* Kernels for any processor of the family the compiler was told about, integers and rare functions included. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3,no-math-errno,no-trapping-math,no-unswitch-loops")
#endif
#define ISA base
#define VM_LANES 4
#define VEC_BYTES 16
#include "vector_math.h"
#include "vector_rows.h"
#define STAMP_NARROW
#define STAMP_ALL
#include "pointwise_stamp.h"
#include "neural_stamp.h"
#define TILE_M 4
#define TILE_V 2
#define TILE_LANES 4
#include "tile_stamp.h"
#include "reduce_stamp.h"
#include "optim_stamp.h"
#include "gemv_stamp.h"
#include "random_stamp.h"
#define CHAIN_V 8
#include "chain_stamp.h"
