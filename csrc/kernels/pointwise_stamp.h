/* The loops of the pointwise ops, stamped from pointwise_table.h. An including file names its copy with `#define ISA avx2`, and
** defines STAMP_ALL when it also wants the integers and the rows marked ONE, STAMP_NARROW for integers in their own width. No include guard: each instruction set has a file. */
#include "kernels.h"
#include "math.h"

#define CAT3_(a, b, c) a##_##b##_##c
#define CAT3(a, b, c) CAT3_(a, b, c)
#define FNAME(name) CAT3(name, TYPE, ISA)

/* Attributes are read before the loops: a load inside a branch would keep compilers from making the branch a choice. */
#define P(k) f##k
#define PI(k) ((T)i##k)
#define PS(k) ((S)i##k)
#define ATTRIBUTES \
  LET const T f0 = (T)p[0].f; LET const T f1 = (T)p[1].f; LET const T f2 = (T)p[2].f; \
  LET const int64_t i0 = p[0].i; LET const int64_t i1 = p[1].i;
#define sa ((S)a)
#define sb ((S)b)
#define sc ((S)c)

/* A source is packed (step 1) or a single value (step 0) in the loops that vectorise; the last loop takes any step. A is the
** type of the first operand's elements: bytes for the condition of SC_PW_COND rows. */
#define LET __attribute__((unused))
#define EACH(body) SC_IVDEP for (int64_t i = 0; i < n; i++) { body; }
#define STORED(R, e) (R)(e)
#define LOOP_1(A, R, e) \
  if (as == 1) EACH(LET T a = ap[i]; dp[i] = STORED(R, e)) \
  else EACH(LET T a = ap[i * as]; dp[i] = STORED(R, e))
#define LOOP_2(A, R, e) \
  const MEM *bp = bv; \
  if (as == 1 && bs == 1) EACH(LET A a = ap[i]; LET T b = bp[i]; dp[i] = STORED(R, e)) \
  else if (as == 1 && bs == 0) { LET T b = bp[0]; EACH(LET A a = ap[i]; dp[i] = STORED(R, e)) } \
  else if (as == 0 && bs == 1) { LET A a = ap[0]; EACH(LET T b = bp[i]; dp[i] = STORED(R, e)) } \
  else EACH(LET A a = ap[i * as]; LET T b = bp[i * bs]; dp[i] = STORED(R, e))
#define LOOP_3(A, R, e) \
  const MEM *bp = bv, *cp = cv; \
  if (as == 1 && bs == 1 && cs == 1) EACH(LET A a = ap[i]; LET T b = bp[i]; LET T c = cp[i]; dp[i] = STORED(R, e)) \
  else if (as == 1 && bs == 1 && cs == 0) { LET T c = cp[0]; EACH(LET A a = ap[i]; LET T b = bp[i]; dp[i] = STORED(R, e)) } \
  else if (as == 1 && bs == 0 && cs == 1) { LET T b = bp[0]; EACH(LET A a = ap[i]; LET T c = cp[i]; dp[i] = STORED(R, e)) } \
  else if (as == 1 && bs == 0 && cs == 0) { LET T b = bp[0]; LET T c = cp[0]; EACH(LET A a = ap[i]; dp[i] = STORED(R, e)) } \
  else EACH(LET A a = ap[i * as]; LET T b = bp[i * bs]; LET T c = cp[i * cs]; dp[i] = STORED(R, e))
/* Elements lie in memory as MEM and are computed in as T, which differ for narrow integers only. */
#define MEM T
#define OPERAND_SAME MEM
#define OPERAND_FLOAT MEM
#define OPERAND_BOOL MEM
#define OPERAND_EXPONENT MEM
#define OPERAND_PICK uint8_t
#define VALUE_SAME T
#define VALUE_FLOAT T
#define VALUE_BOOL T
#define VALUE_EXPONENT T
#define VALUE_PICK uint8_t
#define RESULT_SAME MEM
#define RESULT_FLOAT MEM
#define RESULT_BOOL uint8_t
#define RESULT_EXPONENT MEM
#define RESULT_PICK MEM
#define HEAD(name) \
  static void FNAME(name)(int64_t n, void *d, const void *av, int64_t as, const void *bv, int64_t bs, const void *cv, int64_t cs, \
                          const sc_scalar *p)
#define FN(name, arity, rule, e) \
  HEAD(name) { \
    (void)bv; (void)bs; (void)cv; (void)cs; \
    ATTRIBUTES \
    RESULT_##rule *dp = d; \
    const OPERAND_##rule *ap = av; \
    LOOP_##arity(VALUE_##rule, RESULT_##rule, e) \
  }
/* Arguments above M(circular_max) go to the C library, each by itself: what an element becomes does not depend on its neighbours. */
#define FN_WIDE(name, arity, rule, e) \
  HEAD(name) { \
    (void)bv; (void)bs; (void)cv; (void)cs; (void)p; \
    T *dp = d; \
    const T *ap = av; \
    int large = 0; \
    for (int64_t i = 0; i < n; i++) large |= M(fabs)(ap[i * as]) > M(circular_max); \
    if (!large) LOOP_1(T, T, e) \
    else for (int64_t k = 0; k < n; k += 64) { \
      T old[64]; \
      int64_t m = n - k < 64 ? n - k : 64; \
      for (int64_t i = 0; i < m; i++) old[i] = ap[(k + i) * as]; \
      for (int64_t i = 0; i < m; i++) { T a = old[i]; dp[k + i] = e; } \
      for (int64_t i = 0; i < m; i++) if (M(fabs)(old[i]) > M(circular_max)) dp[k + i] = WIDE_C(name)(old[i]); \
    } \
  }
#define sc_circular_max_f32 SC_CIRCULAR_MAX
#define sc_circular_max_f64 SC_CIRCULAR_MAX64
/* Whatever the steps, a loop over packed copies of the operands. */
#define FN_COPIES(name, arity, rule, e) \
  HEAD(name) { \
    (void)cv; (void)cs; (void)p; \
    T *dp = d; \
    const T *xp = av, *yp = bv; \
    for (int64_t k = 0; k < n; k += 64) { \
      T ap[64], bp[64]; \
      int64_t m = n - k < 64 ? n - k : 64; \
      for (int64_t i = 0; i < m; i++) { ap[i] = xp[(k + i) * as]; bp[i] = yp[(k + i) * bs]; } \
      for (int64_t i = m; i < 64; i++) ap[i] = bp[i] = 1; \
      for (int i = 0; i < 64; i++) { T a = ap[i], b = bp[i]; ap[i] = e; } \
      memcpy(dp + k, ap, (size_t)m * sizeof(T)); \
    } \
  }
/* Likewise of two operands: quotients above SC_QUOTIENT_MAX. */
#define FN_QUOTIENT(name, arity, rule, e) \
  HEAD(name) { \
    (void)cv; (void)cs; (void)p; \
    float *dp = d; \
    const float *ap = av, *bp = bv; \
    int plain = 0; \
    for (int64_t i = 0; i < n; i++) plain |= !(fabs((double)ap[i * as] / (double)bp[i * bs]) < SC_QUOTIENT_MAX) | !(fabsf(bp[i * bs]) < INFINITY); \
    if (plain) for (int64_t i = 0; i < n; i++) { float a = ap[i * as], b = bp[i * bs]; dp[i] = e; } \
    else if (as == 1 && bs == 1) EACH(float a = ap[i]; float b = bp[i]; dp[i] = name##_fast(a, b)) \
    else EACH(float a = ap[i * as]; float b = bp[i * bs]; dp[i] = name##_fast(a, b)) \
  }
/* A function of whole vectors (vector_math.h), what is left over in a padded one. */
#define FN_VECTOR(name, arity, rule, e) \
  HEAD(name) { \
    (void)bv; (void)bs; (void)cv; (void)cs; (void)p; \
    float *dp = d; \
    const float *ap = av; \
    int64_t i = 0; \
    if (as == 1) for (; i + VM_LANES <= n; i += VM_LANES) VM(store)(dp + i, VM(name)(VM(load)(ap + i))); \
    for (; i < n; i += VM_LANES) { \
      float x[VM_LANES] = {0}; \
      int64_t m = n - i < VM_LANES ? n - i : VM_LANES; \
      for (int64_t k = 0; k < m; k++) x[k] = ap[(i + k) * as]; \
      VM(store)(x, VM(name)(VM(load)(x))); \
      memcpy(dp + i, x, (size_t)m * 4); \
    } \
  }
#define fmod_fast sc_fmod_fast
#define remainder_fast sc_remainder_fast
#define floor_divide_fast sc_floordiv_fast
#define SKIP(...)
#ifdef STAMP_ALL
#define ONE_F FN
#define DEF_ONE(...) __VA_ARGS__
#else
#define ONE_F SKIP
#define DEF_ONE(...)
#endif

/* ---- floats ---- */
#define SC_PW_ROW(name, arity, rule, flags, types, isa, cost, fe, ie, ...) DO_##types##_##isa(name, arity, rule, fe)
#define DO_FI_VEC FN
#define DO_FIB_VEC FN
#define DO_F_VEC FN
#define DO_I_ONE SKIP
#define DO_IB_ONE SKIP
#define DO_FI_ONE ONE_F
#define DO_F_ONE ONE_F
#define TYPE f32
#define T float
#define S float
#define M(f) sc_##f##_f32
#define WIDE_C(fn) fn##f
#define DO_FI_VEC32 FN
#define DO_F_VEC32 FN
#define DO_F_VECTOR FN_VECTOR
#define DO_F_VECTOR32 FN_VECTOR
#define DO_F_WIDE FN_WIDE
#define DO_FI_QUOTIENT FN_QUOTIENT
#define DO_FI_COPIES FN_COPIES
#include "pointwise_table.h"
#undef TYPE
#undef T
#undef S
#undef M
#undef WIDE_C
#undef DO_FI_VEC32
#undef DO_F_VEC32
#undef DO_F_VECTOR
#undef DO_F_VECTOR32
#undef DO_FI_QUOTIENT
#undef DO_FI_COPIES
#define WIDE_C(fn) fn
#define TYPE f64
#define T double
#define S double
#define M(f) sc_##f##_f64
#define DO_FI_VEC32 ONE_F
#define DO_F_VEC32 ONE_F
#define DO_F_VECTOR FN
#define DO_F_VECTOR32 ONE_F
#define DO_FI_QUOTIENT ONE_F
#define DO_FI_COPIES ONE_F
#include "pointwise_table.h"
#undef TYPE
#undef T
#undef S
#undef M
#include "pointwise_undo.h"

/* ---- integers: in 64 bits, unsigned so that overflow wraps; bools in bytes ---- */
#ifdef STAMP_ALL
#define SC_PW_ROW(name, arity, rule, flags, types, isa, cost, fe, ie, ...) DO_##types(name, arity, rule, ie)
#define DO_FIB FN
#define DO_FI FN
#define DO_F SKIP
#define DO_I FN
#define DO_IB FN
#define BITS_NOT(a) (~(a))
#define TYPE i64
#define T uint64_t
#define S int64_t
#define MI(f) sc_i##f
#include "pointwise_table.h"
#undef TYPE
#undef S
#undef MI
#define TYPE u64
#define S uint64_t
#define MI(f) sc_u##f
#include "pointwise_table.h"
#undef TYPE
#undef S
#undef T
#undef BITS_NOT
#undef DO_FI
#undef DO_I
#undef STORED
#define DO_FI SKIP
#define DO_I SKIP
#define BITS_NOT(a) (!(a))
#define STORED(R, e) (R)((e) != 0)
#define TYPE b8
#define T uint8_t
#define S uint8_t
#include "pointwise_table.h"
#undef TYPE
#undef S
#undef T
#undef MI
#include "pointwise_undo.h"
#endif

/* ---- integers in their own width ----
** Arithmetic is in 32 bits without a sign, so that it wraps and nothing is promoted to a signed int behind our back; compilers narrow it
** again where only the low bits are kept. For rows whose results are the same then as in 64 bits: all that vectorise, and the bitwise ones. */
#ifdef STAMP_NARROW
#define SC_PW_ROW(name, arity, rule, flags, types, isa, cost, fe, ie, ...) DO_##types##_##isa(name, arity, rule, ie)
#define DO_FI_VEC FN
#define DO_FIB_VEC FN
#define DO_IB_ONE FN
#define DO_F_VEC SKIP
#define DO_I_ONE SKIP
#define DO_FI_ONE SKIP
#define DO_F_ONE SKIP
#define DO_FI_VEC32 SKIP
#define DO_F_VEC32 SKIP
#define DO_F_VECTOR SKIP
#define DO_F_VECTOR32 SKIP
#define DO_F_WIDE SKIP
#define DO_FI_QUOTIENT SKIP
#define DO_FI_COPIES SKIP
#undef STORED
#define STORED(R, e) (R)(e)
#undef BITS_NOT
#define BITS_NOT(a) (~(a))
#define MI(f) sc_n##f
#undef MEM
#define T uint32_t
#define S int32_t
#define TYPE i8
#define MEM int8_t
#include "pointwise_table.h"
#undef TYPE
#undef MEM
#define TYPE u8
#define MEM uint8_t
#include "pointwise_table.h"
#undef TYPE
#undef MEM
#define TYPE i16
#define MEM int16_t
#include "pointwise_table.h"
#undef TYPE
#undef MEM
#define TYPE i32
#define MEM int32_t
#include "pointwise_table.h"
#undef TYPE
#undef MEM
#undef T
#undef S
#define MEM T
#ifndef STAMP_ALL
#undef MI
#define MI(f) sc_i##f
#define TYPE i64
#define T uint64_t
#define S int64_t
#include "pointwise_table.h"
#undef TYPE
#undef T
#undef S
#undef STORED
#undef BITS_NOT
#undef DO_FI_VEC
#define DO_FI_VEC SKIP
#define STORED(R, e) (R)((e) != 0)
#define BITS_NOT(a) (!(a))
#define TYPE b8
#define T uint8_t
#define S uint8_t
#include "pointwise_table.h"
#undef TYPE
#undef T
#undef S
#endif
#undef MI
#include "pointwise_undo.h"
#endif
#undef sa
#undef sb
#undef sc

/* ---- the table ---- */
#define F32(name) .f32 = CAT3(name, f32, ISA),
#define F64(name) .f64 = CAT3(name, f64, ISA),
#ifdef STAMP_ALL
#define INTS(name) .i64 = CAT3(name, i64, ISA), .u64 = CAT3(name, u64, ISA),
#define BOOLS(name) .b8 = CAT3(name, b8, ISA),
#else
#define INTS(name)
#define BOOLS(name)
#endif
#ifdef STAMP_NARROW
#define NARROW(name) .i8 = CAT3(name, i8, ISA), .u8 = CAT3(name, u8, ISA), .i16 = CAT3(name, i16, ISA), .i32 = CAT3(name, i32, ISA),
#ifndef STAMP_ALL
#undef INTS
#undef BOOLS
#define INTS(name) .i64 = CAT3(name, i64, ISA),
#define BOOLS(name) .b8 = CAT3(name, b8, ISA),
#endif
#else
#define NARROW(name)
#endif
#define ROW(name, ...) [SC_PW_##name] = {__VA_ARGS__},
#define DO_FIB_VEC(name) ROW(name, F32(name) F64(name) INTS(name) BOOLS(name) NARROW(name))
#define DO_FI_VEC(name) ROW(name, F32(name) F64(name) INTS(name) NARROW(name))
#define DO_F_VEC(name) ROW(name, F32(name) F64(name))
#define DO_FI_VEC32(name) ROW(name, F32(name) DEF_ONE(F64(name) INTS(name)))
#define DO_F_VEC32(name) ROW(name, F32(name) DEF_ONE(F64(name)))
#define DO_F_VECTOR(name) DO_F_VEC(name)
#define DO_F_VECTOR32(name) DO_F_VEC32(name)
#define DO_F_WIDE(name) DO_F_VEC(name)
#define DO_FI_QUOTIENT(name) DO_FI_VEC32(name)
#define DO_FI_COPIES(name) DO_FI_VEC32(name)
#define DO_FI_ONE(name) DEF_ONE(ROW(name, F32(name) F64(name) INTS(name)))
#define DO_F_ONE(name) DEF_ONE(ROW(name, F32(name) F64(name)))
#ifdef STAMP_NARROW
#define DO_IB_ONE(name) ROW(name, INTS(name) BOOLS(name) NARROW(name))
#else
#define DO_IB_ONE(name)
#endif
#define DO_I_ONE(name) DEF_ONE(ROW(name, INTS(name)))
#define SC_PW_ROW(name, arity, rule, flags, types, isa, ...) DO_##types##_##isa(name)
#define TABLE_(isa) sc__pw_kernels_##isa
#define TABLE(isa) TABLE_(isa)
const sc_pw_kernels TABLE(ISA)[SC_PW_COUNT] = {
#include "pointwise_table.h"
};
#undef SC_PW_ROW
