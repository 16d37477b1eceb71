/* Philox 4x32 with ten rounds: a block cipher run over a counter. No state but the counter, hence the same numbers for any
** split of the work. Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". */
#include "base.h"

void sc__philox(uint64_t seed, uint64_t counter, uint32_t out[4]) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c1 = (uint32_t)p1;
    c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c3 = (uint32_t)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

uint64_t sc__generator_take(sc_generator *g, uint64_t n) {
  uint64_t at = g->offset;
  g->offset += n;
  return at;
}
