/* Which instruction set the kernels may use, asked of the processor once per context. */
#include "base.h"

sc_isa sc__cpu_isa(void) {
#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    return SC_ISA_AVX512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return SC_ISA_AVX2;
#endif
  return SC_ISA_BASE;
}
