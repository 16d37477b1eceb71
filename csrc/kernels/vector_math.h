/* Elementary functions of whole vectors of float32, stamped per instruction set (VM_LANES floats wide): exp, tanh, sigmoid, erf and what
** is made of them. They are what eager loops, tile programs and the rows of softmax run, so all of these have the same bits on a
** machine. Compilers turn the scalar versions of math.h into vector code as well, but not into the instructions that clamp, round and
** scale at once; by those a function here takes half the time or less.
**
** Errors are measured against double precision over all floats, in units of the last place. NaN, infinities, zeros and subnormals are
** right. No include guard. */
#if VM_LANES > 4
#include <immintrin.h>
#endif
#include <math.h>
#include <stdint.h>
#include <string.h>

#define VM_CAT_(a, b) a##_##b
#define VM_CAT(a, b) VM_CAT_(a, b)
#define VM(name) VM_CAT(vm_##name, ISA)
#define VF VM(floats)
#define VI VM(ints)
typedef float VF __attribute__((vector_size(4 * VM_LANES), aligned(4), may_alias));
typedef int32_t VI __attribute__((vector_size(4 * VM_LANES), aligned(4), may_alias));

static inline VF VM(all)(float f) { return f - (VF){0}; }
static inline VF VM(load)(const float *p) { return *(const VF *)p; }
static inline void VM(store)(float *p, VF v) { *(VF *)p = v; }

/* ---- what instruction sets differ in ----
** min, max: the second operand when either is NaN. pick: where a < b the first, else (and for NaN) the second.
** round: the whole number n nearest to x k, and a handle by which `scale` multiplies with 2^n, subnormal results included; power: 2^n, a
** normal number. */
#if VM_LANES == 16
static inline VF VM(min)(VF a, VF b) { return (VF)_mm512_min_ps((__m512)a, (__m512)b); }
static inline VF VM(max)(VF a, VF b) { return (VF)_mm512_max_ps((__m512)a, (__m512)b); }
static inline VF VM(pick)(VF a, VF b, VF yes, VF no) {
  return (VF)_mm512_mask_blend_ps(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ), (__m512)no, (__m512)yes);
}
static inline VF VM(round)(VF x, float k, VF *n) { return *n = (VF)_mm512_roundscale_ps((__m512)(x * k), 8); }
static inline VF VM(scale)(VF y, VF n) { return (VF)_mm512_scalef_ps((__m512)y, (__m512)n); }
static inline VF VM(power)(VF n) { return VM(scale)(VM(all)(1.0f), n); }
#else
#if VM_LANES == 8
static inline VF VM(min)(VF a, VF b) { return (VF)_mm256_min_ps((__m256)a, (__m256)b); }
static inline VF VM(max)(VF a, VF b) { return (VF)_mm256_max_ps((__m256)a, (__m256)b); }
static inline VF VM(pick)(VF a, VF b, VF yes, VF no) {
  return (VF)_mm256_blendv_ps((__m256)no, (__m256)yes, _mm256_cmp_ps((__m256)a, (__m256)b, _CMP_LT_OQ));
}
#else
static inline VF VM(pick)(VF a, VF b, VF yes, VF no) { VI m = a < b; return (VF)((m & (VI)yes) | (~m & (VI)no)); }
static inline VF VM(min)(VF a, VF b) { return VM(pick)(a, b, a, b); }
static inline VF VM(max)(VF a, VF b) { return VM(pick)(b, a, a, b); }
#endif
/* Adding 1.5 2^23 rounds to a whole number, whose last bits are those of the sum. Powers of two beyond the normal ones are made of two. */
static inline VF VM(round)(VF x, float k, VF *n) { VF t = x * k + 12582912.0f; *n = t - 12582912.0f; return t; }
static inline VF VM(scale)(VF y, VF t) {
  VI k = (VI)t << 22 & (int32_t)0xff800000;
  return y * (VF)(k + 0x3f800000) * (VF)(((VI)t << 23) - k + 0x3f800000);
}
static inline VF VM(power)(VF t) { return (VF)(((VI)t << 23) + 0x3f800000); }
#endif

static inline VF VM(abs)(VF x) { return (VF)((VI)x & INT32_MAX); }
static inline VF VM(signed)(VF y, VF x) { return (VF)((VI)y | ((VI)x & INT32_MIN)); }      /* y, not negative, with x's sign */

/* (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2 */
static inline VF VM(exp_rest)(VF r) {
  VF p = 1.381454058e-3f * r + 8.368745446e-3f;
  p = p * r + 4.166838899e-2f;
  p = p * r + 1.666652113e-1f;
  return p * r + 4.999999404e-1f;
}

/* e^c is 2^n times what this returns, for the bounded c; *t: the handle of n. */
static inline VF VM(exp_part)(VF c, VF *t) {
  VF n;
  *t = VM(round)(c, 1.44269504f, &n);
  VF r = (c - n * 0.693359375f) - n * -2.12194440e-4f;
  return (VM(exp_rest)(r) * r + 1.0f) * r + 1.0f;
}

/* The bounds give 0 and infinity. */
static inline VF VM(exp_any)(VF x) {
  VF t, y = VM(exp_part)(VM(min)(VM(all)(89.0f), VM(max)(VM(all)(-104.0f), x)), &t);
  return VM(scale)(y, t);
}

/* exp, within 1 ulp: x = n ln 2 + r. Where scaling takes many instructions, vectors whose results are all far from the ends do without: n is
** added to the exponent, which gives the same bits. */
#if VM_LANES == 8
static __attribute__((noinline, cold)) VF VM(exp_far)(VF x) { return VM(exp_any)(x); }
static inline VF VM(exp)(VF x) {
  if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps((__m256)VM(abs)(x), (__m256)VM(all)(86.0f), _CMP_NLE_UQ)), 0)) return VM(exp_far)(x);
  VF t, y = VM(exp_part)(x, &t);
  return (VF)((VI)y + ((VI)t << 23));
}
#else
static inline VF VM(exp)(VF x) { return VM(exp_any)(x); }
#endif

/* 1 / (1 + e^-x), within 2.5 ulp on both sides */
static inline VF VM(sigmoid)(VF x) {
  VF z = VM(exp)((VF)((VI)x | INT32_MIN));
  return VM(pick)(x, VM(all)(0.0f), z, VM(all)(1.0f)) / (1.0f + z);
}

/* tanh, within 2.5 ulp: t / (t + 2) with t = e^(2|x|) - 1 = 2^n (e^r - 1) + (2^n - 1). A bound beyond which it is 1; few roundings of r
** are felt, as those of large n vanish in the quotient. */
static inline VF VM(tanh)(VF x) {
  VF c = VM(min)(VM(all)(9.1f), VM(abs)(x)), n, h;
  c = c + c;
  h = VM(round)(c, 1.44269504f, &n);
  VF r = c - n * 0.693147181f, p = VM(exp_rest)(r) * (r * r) + r;
  VF power = VM(power)(h), t = p * power + (power - 1.0f);
  return VM(signed)(t / (t + 2.0f), x);
}

/* erf, within 2 ulp: a polynomial in x^2 near 0, else 1 - exp(a polynomial). */
static inline VF VM(erf)(VF x) {
  VF a = VM(abs)(x), s = x * x;
  VF p = 8.215419975e-5f * s + -8.105964109e-4f;
  p = p * s + 5.197797065e-3f;
  p = p * s + -2.685810424e-2f;
  p = p * s + 1.128367254e-1f;
  p = p * s + -3.761263229e-1f;
  p = p * s + 1.283791660e-1f;                       /* 2 / sqrt(pi) - 1: the 1 is added exactly */
  VF b = VM(min)(VM(all)(4.0f), a);
  VF q = 6.627549867e-7f * b + 1.233076978e-5f;
  q = q * b + -3.847900399e-4f;
  q = q * b + 4.013411064e-3f;
  q = q * b + -2.481282356e-2f;
  q = q * b + 1.079057403e-1f;
  q = q * b + 6.336272877e-1f;
  q = q * b + 1.129397075f;
  q = q * b + -1.533843341e-4f;
  VF big = VM(signed)(1.0f - VM(exp)(-q), x), small = p * x + x;
  return VM(pick)(a, VM(all)(0.92f), small, big);
}

/* x (1 + erf(x / sqrt 2)) / 2; x (1 + tanh u) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3); x / (1 + e^-x) */
static inline VF VM(gelu)(VF x) { return 0.5f * x * (1.0f + VM(erf)(x * 0.707106781f)); }
static inline VF VM(gelu_tanh)(VF x) { return x * VM(sigmoid)(1.595769122f * (x + 0.044715f * x * x * x)); }
static inline VF VM(silu)(VF x) { return x * VM(sigmoid)(x); }
