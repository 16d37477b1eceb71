/* Picks the stamp of the row loops for the processor. */
#include "neural.h"

extern const sc_neural sc__neural_float_base, sc__neural_double_base;
#if defined(__x86_64__)
extern const sc_neural sc__neural_float_avx2, sc__neural_double_avx2, sc__neural_float_avx512, sc__neural_double_avx512;
#endif

const sc_neural *sc__neural(sc_isa isa, sc_dtype type) {
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) return type == SC_FLOAT64 ? &sc__neural_double_avx512 : &sc__neural_float_avx512;
  if (isa == SC_ISA_AVX2) return type == SC_FLOAT64 ? &sc__neural_double_avx2 : &sc__neural_float_avx2;
#endif
  (void)isa;
  return type == SC_FLOAT64 ? &sc__neural_double_base : &sc__neural_float_base;
}
