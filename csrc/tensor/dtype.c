/* Dtypes: names, sizes, promotion; reading and writing single elements. */
#include "tensor.h"

#include <math.h>
#include <string.h>

static const struct { const char *name; uint8_t size, category; } INFO[SC_DTYPES] = {
  [SC_FLOAT32] = {"float32", 4, SC_CAT_FLOAT}, [SC_FLOAT64] = {"float64", 8, SC_CAT_FLOAT},
  [SC_FLOAT16] = {"float16", 2, SC_CAT_FLOAT}, [SC_BFLOAT16] = {"bfloat16", 2, SC_CAT_FLOAT},
  [SC_INT8] = {"int8", 1, SC_CAT_INT}, [SC_UINT8] = {"uint8", 1, SC_CAT_INT}, [SC_INT16] = {"int16", 2, SC_CAT_INT},
  [SC_INT32] = {"int32", 4, SC_CAT_INT}, [SC_INT64] = {"int64", 8, SC_CAT_INT}, [SC_BOOL] = {"bool", 1, SC_CAT_BOOL},
  [SC_UINT16] = {"uint16", 2, SC_CAT_INT}, [SC_UINT32] = {"uint32", 4, SC_CAT_INT}, [SC_UINT64] = {"uint64", 8, SC_CAT_INT},
  [SC_FLOAT8E4M3FN] = {"float8e4m3fn", 1, SC_CAT_FLOAT}, [SC_FLOAT8E4M3FNUZ] = {"float8e4m3fnuz", 1, SC_CAT_FLOAT},
  [SC_FLOAT8E5M2] = {"float8e5m2", 1, SC_CAT_FLOAT}, [SC_FLOAT8E5M2FNUZ] = {"float8e5m2fnuz", 1, SC_CAT_FLOAT},
  [SC_FLOAT8E8M0] = {"float8e8m0", 1, SC_CAT_FLOAT}, [SC_FLOAT4E2M1] = {"float4e2m1", 1, SC_CAT_FLOAT},
  [SC_INT4] = {"int4", 1, SC_CAT_INT}, [SC_UINT4] = {"uint4", 1, SC_CAT_INT}, [SC_INT2] = {"int2", 1, SC_CAT_INT}, [SC_UINT2] = {"uint2", 1, SC_CAT_INT},
};

const char *sc_dtype_name(sc_dtype d) { return (unsigned)d < SC_DTYPES ? INFO[d].name : "?"; }
size_t sc_dtype_size(sc_dtype d) { return (unsigned)d < SC_DTYPES ? INFO[d].size : 0; }
sc_category sc__category(sc_dtype d) { return (sc_category)INFO[d].category; }

bool sc__dtype_from_name(const char *name, sc_dtype *out) {
  static const struct { const char *name; sc_dtype d; } ALIAS[] = {
    {"float", SC_FLOAT32}, {"double", SC_FLOAT64}, {"half", SC_FLOAT16}, {"long", SC_INT64}, {"int", SC_INT32}, {"short", SC_INT16}};
  for (int i = 0; i < SC_DTYPES; i++)
    if (strcmp(name, INFO[i].name) == 0) { *out = (sc_dtype)i; return true; }
  for (int i = 0; i < SC_COUNT(ALIAS); i++)
    if (strcmp(name, ALIAS[i].name) == 0) { *out = ALIAS[i].d; return true; }
  return false;
}

static bool is_signed_int(sc_dtype d) { return d == SC_INT8 || d == SC_INT16 || d == SC_INT32 || d == SC_INT64; }

sc_dtype sc__promote(sc_dtype a, sc_dtype b) {
  if (a == b) return a;
  sc_category ca = sc__category(a), cb = sc__category(b);
  if (ca != cb) return ca > cb ? a : b;
  if (ca == SC_CAT_FLOAT) {
    if (a == SC_FLOAT64 || b == SC_FLOAT64) return SC_FLOAT64;
    return SC_FLOAT32;                         /* float32 with a half, or the two halves */
  }
  size_t sa = sc_dtype_size(a), sb = sc_dtype_size(b);
  bool ia = is_signed_int(a), ib = is_signed_int(b);
  if (ia == ib) return sa > sb ? a : b;
  size_t us = ia ? sb : sa, ss = ia ? sa : sb; /* of the unsigned and of the signed one */
  if (ss > us) return ia ? a : b;
  return us == 1 ? SC_INT16 : us == 2 ? SC_INT32 : SC_INT64;
}

float sc__half_to_float(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31, m = h & 0x3ffu;
  union { uint32_t u; float f; } v;
  if (e == 31) v.u = sign | 0x7f800000u | (m << 13);
  else if (e) v.u = sign | ((e + 112) << 23) | (m << 13);
  else { v.f = (float)m * 5.9604644775390625e-8f; v.u |= sign; }    /* m * 2^-24 */
  return v.f;
}

uint16_t sc__float_to_half(float f) {
  union { float f; uint32_t u; } v = {f};
  uint16_t sign = (uint16_t)(v.u >> 16 & 0x8000u);
  uint32_t a = v.u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7e00u;
  if (a >= 0x477ff000u) return sign | 0x7c00u;                       /* rounds to infinity */
  if (a < 0x38800000u) {                                             /* subnormal: let the adder round */
    v.u = a;
    v.f += 0.5f;
    return sign | (uint16_t)(v.u - 0x3f000000u);
  }
  a += 0xfffu + (a >> 13 & 1);                                       /* to nearest, ties to even */
  return sign | (uint16_t)((a - 0x38000000u) >> 13);
}

uint16_t sc__float_to_bf16(float f) {
  union { float f; uint32_t u; } v = {f};
  if ((v.u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(v.u >> 16 | 0x40);
  return (uint16_t)((v.u + 0x7fffu + (v.u >> 16 & 1)) >> 16);
}

int64_t sc__f64_to_i64(double f) {
  if (f != f) return 0;
  if (f >= 9223372036854775808.0) return INT64_MAX;
  if (f <= -9223372036854775808.0) return INT64_MIN;
  return (int64_t)f;
}

sc_scalar sc__load(sc_dtype d, const void *p) {
  switch (d) {
    case SC_FLOAT32: return sc__scalar_float(*(const float *)p);
    case SC_FLOAT64: return sc__scalar_float(*(const double *)p);
    case SC_FLOAT16: return sc__scalar_float(sc__half_to_float(*(const uint16_t *)p));
    case SC_BFLOAT16: return sc__scalar_float(sc__bf16_to_float(*(const uint16_t *)p));
    case SC_INT8: return sc__scalar_int(*(const int8_t *)p);
    case SC_UINT8: return sc__scalar_int(*(const uint8_t *)p);
    case SC_INT16: return sc__scalar_int(*(const int16_t *)p);
    case SC_INT32: return sc__scalar_int(*(const int32_t *)p);
    case SC_INT64: return sc__scalar_int(*(const int64_t *)p);
    case SC_BOOL: return sc__scalar_int(*(const uint8_t *)p != 0);
    case SC_UINT16: return sc__scalar_int(*(const uint16_t *)p);
    case SC_UINT32: return sc__scalar_int(*(const uint32_t *)p);
    case SC_UINT64: { uint64_t u = *(const uint64_t *)p; return (sc_scalar){true, true, (int64_t)u, (double)u}; }
    case SC_INT4: case SC_INT2: return sc__scalar_int(*(const int8_t *)p);
    case SC_UINT4: case SC_UINT2: return sc__scalar_int(*(const uint8_t *)p);
    default: return sc__scalar_float(sc__narrow_load(d, *(const uint8_t *)p));
  }
}

void sc__store(sc_dtype d, void *p, sc_scalar v) {
  int64_t i = v.is_int ? v.i : sc__f64_to_i64(v.f);
  switch (d) {
    case SC_FLOAT32: *(float *)p = (float)v.f; break;
    case SC_FLOAT64: *(double *)p = v.f; break;
    case SC_FLOAT16: *(uint16_t *)p = sc__float_to_half((float)v.f); break;
    case SC_BFLOAT16: *(uint16_t *)p = sc__float_to_bf16((float)v.f); break;
    case SC_INT8: case SC_UINT8: *(uint8_t *)p = (uint8_t)i; break;
    case SC_INT16: case SC_UINT16: *(uint16_t *)p = (uint16_t)i; break;
    case SC_INT32: case SC_UINT32: *(uint32_t *)p = (uint32_t)i; break;
    case SC_INT64: *(int64_t *)p = i; break;
    case SC_UINT64: *(uint64_t *)p = !v.is_int && v.f >= 9223372036854775808.0 && v.f < 18446744073709551616.0 ? (uint64_t)v.f : (uint64_t)i; break;
    case SC_BOOL: *(uint8_t *)p = v.is_int ? v.i != 0 : v.f != 0; break;
    default: *(uint8_t *)p = sc__narrow_store(d, sc__category(d) == SC_CAT_INT ? (double)i : v.f); break;
  }
}
