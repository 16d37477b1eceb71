/* Picks an optimiser step's kernel for the processor. */
#include "optim.h"

extern const sc_step_kernels sc__steps_table_base[SC_STEPS];
#if defined(__x86_64__)
extern const sc_step_kernels sc__steps_table_avx2[SC_STEPS], sc__steps_table_avx512[SC_STEPS];
#endif

sc_step_fn sc__step_kernel(sc_isa isa, int id, sc_dtype dtype) {
  const sc_step_kernels *k = &sc__steps_table_base[id];
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) k = &sc__steps_table_avx512[id];
  else if (isa == SC_ISA_AVX2) k = &sc__steps_table_avx2[id];
#else
  (void)isa;
#endif
  return dtype == SC_FLOAT64 ? k->f64 : k->f32;
}
