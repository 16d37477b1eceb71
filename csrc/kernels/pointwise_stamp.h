/* The loops of the pointwise ops, stamped from pointwise_table.h. An including file names its copy with `#define ISA avx2`, and
** defines STAMP_ALL when it also wants the integers and the rows marked ONE. No include guard: each instruction set has a file. */
#include "kernels.h"
#include "math.h"

#define CAT3_(a, b, c) a##_##b##_##c
#define CAT3(a, b, c) CAT3_(a, b, c)
#define FNAME(name) CAT3(name, TYPE, ISA)
#if defined(__clang__)
#define IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define IVDEP _Pragma("GCC ivdep")
#endif

#define P(k) ((T)p[k].f)
#define PI(k) ((T)p[k].i)
#define PS(k) ((S)p[k].i)
#define sa ((S)a)
#define sb ((S)b)
#define sc ((S)c)

/* A source is packed (step 1) or a single value (step 0) in the loops that vectorise; the last loop takes any step. A is the
** type of the first operand's elements: bytes for the condition of SC_PW_COND rows. */
#define EACH(body) IVDEP for (int64_t i = 0; i < n; i++) { body; }
#define LOOP_1(A, R, e) \
  if (as == 1) EACH(T a = ap[i]; dp[i] = (R)(e)) \
  else EACH(T a = ap[i * as]; dp[i] = (R)(e))
#define LOOP_2(A, R, e) \
  const T *bp = bv; \
  if (as == 1 && bs == 1) EACH(A a = ap[i]; T b = bp[i]; dp[i] = (R)(e)) \
  else if (as == 1 && bs == 0) { T b = bp[0]; EACH(A a = ap[i]; dp[i] = (R)(e)) } \
  else if (as == 0 && bs == 1) { A a = ap[0]; EACH(T b = bp[i]; dp[i] = (R)(e)) } \
  else EACH(A a = ap[i * as]; T b = bp[i * bs]; dp[i] = (R)(e))
#define LOOP_3(A, R, e) \
  const T *bp = bv, *cp = cv; \
  if (as == 1 && bs == 1 && cs == 1) EACH(A a = ap[i]; T b = bp[i]; T c = cp[i]; dp[i] = (R)(e)) \
  else if (as == 1 && bs == 1 && cs == 0) { T c = cp[0]; EACH(A a = ap[i]; T b = bp[i]; dp[i] = (R)(e)) } \
  else if (as == 1 && bs == 0 && cs == 1) { T b = bp[0]; EACH(A a = ap[i]; T c = cp[i]; dp[i] = (R)(e)) } \
  else EACH(A a = ap[i * as]; T b = bp[i * bs]; T c = cp[i * cs]; dp[i] = (R)(e))
#define OPERAND_0 T
#define OPERAND_SC_PW_COND uint8_t
#define RESULT_SAME T
#define RESULT_FLOAT T
#define RESULT_BOOL uint8_t
#define FN(name, arity, rule, flags, e) \
  static void FNAME(name)(int64_t n, void *d, const void *av, int64_t as, const void *bv, int64_t bs, const void *cv, int64_t cs, \
                          const sc_scalar *p) { \
    (void)bv; (void)bs; (void)cv; (void)cs; (void)p; \
    RESULT_##rule *dp = d; \
    const OPERAND_##flags *ap = av; \
    LOOP_##arity(OPERAND_##flags, RESULT_##rule, e) \
  }
#define SKIP(...)
#ifdef STAMP_ALL
#define ONE_F FN
#else
#define ONE_F SKIP
#endif

/* ---- floats ---- */
#define SC_PW_ROW(name, arity, rule, flags, types, isa, cost, fe, ie, ...) DO_##types##_##isa(name, arity, rule, flags, fe)
#define DO_FI_VEC FN
#define DO_F_VEC FN
#define DO_I_VEC SKIP
#define DO_FI_ONE ONE_F
#define DO_F_ONE ONE_F
#define DO_I_ONE SKIP
#define TYPE f32
#define T float
#define S float
#define M(f) sc_##f##_f32
#include "pointwise_table.h"
#undef TYPE
#undef T
#undef S
#undef M
#define TYPE f64
#define T double
#define S double
#define M(f) sc_##f##_f64
#include "pointwise_table.h"
#undef TYPE
#undef T
#undef S
#undef M
#undef SC_PW_ROW
#undef DO_FI_VEC
#undef DO_F_VEC
#undef DO_I_VEC
#undef DO_FI_ONE
#undef DO_F_ONE
#undef DO_I_ONE

/* ---- integers: in 64 bits, unsigned so that overflow wraps ---- */
#ifdef STAMP_ALL
#define SC_PW_ROW(name, arity, rule, flags, types, isa, cost, fe, ie, ...) DO_##types(name, arity, rule, flags, ie)
#define DO_FI FN
#define DO_F SKIP
#define DO_I FN
#define TYPE i64
#define T uint64_t
#define S int64_t
#include "pointwise_table.h"
#undef TYPE
#undef S
#define TYPE u64
#define S uint64_t
#include "pointwise_table.h"
#undef TYPE
#undef S
#undef T
#undef SC_PW_ROW
#undef DO_FI
#undef DO_F
#undef DO_I
#endif
#undef sa
#undef sb
#undef sc

/* ---- the table ---- */
#ifdef STAMP_ALL
#define INTS(name) .i64 = CAT3(name, i64, ISA), .u64 = CAT3(name, u64, ISA)
#define DO_FI_ONE(name) [SC_PW_##name] = {.f32 = CAT3(name, f32, ISA), .f64 = CAT3(name, f64, ISA), INTS(name)},
#define DO_FI_VEC DO_FI_ONE
#define DO_F_ONE(name) [SC_PW_##name] = {.f32 = CAT3(name, f32, ISA), .f64 = CAT3(name, f64, ISA)},
#define DO_F_VEC DO_F_ONE
#define DO_I_ONE(name) [SC_PW_##name] = {INTS(name)},
#define DO_I_VEC DO_I_ONE
#else
#define DO_F_VEC(name) [SC_PW_##name] = {.f32 = CAT3(name, f32, ISA), .f64 = CAT3(name, f64, ISA)},
#define DO_FI_VEC DO_F_VEC
#define DO_FI_ONE SKIP
#define DO_F_ONE SKIP
#define DO_I_ONE SKIP
#define DO_I_VEC SKIP
#endif
#define SC_PW_ROW(name, arity, rule, flags, types, isa, ...) DO_##types##_##isa(name)
#define TABLE_(isa) sc__pw_kernels_##isa
#define TABLE(isa) TABLE_(isa)
const sc_pw_kernels TABLE(ISA)[SC_PW_COUNT] = {
#include "pointwise_table.h"
};
#undef SC_PW_ROW
