/* Chains of arithmetic in float32, stamped per instruction set: a block of elements stays in registers while one link after the other is
** applied to it, so that a chain of ten ops costs one load and one store. Which link comes next is decided once a block.
** Bits are those of the ops one by one: nothing is contracted across links. No include guard: each instruction set has a file, which
** says how many vectors of vector_math.h a block has (CHAIN_V). */
#include <string.h>

#define CH_CAT_(a, b) a##_##b
#define CH_CAT(a, b) CH_CAT_(a, b)
/* A block's vectors are variables, not an array, so that they are registers: f(x, j) for each of the first V. */
#define CH_EACH_1(f) f(x0, 0)
#define CH_EACH_2(f) f(x0, 0) f(x1, 1)
#define CH_EACH_4(f) CH_EACH_2(f) f(x2, 2) f(x3, 3)
#define CH_EACH_8(f) CH_EACH_4(f) f(x4, 4) f(x5, 5) f(x6, 6) f(x7, 7)
#define CH_EACH_16(f) \
  CH_EACH_8(f) f(x8, 8) f(x9, 9) f(x10, 10) f(x11, 11) f(x12, 12) f(x13, 13) f(x14, 14) f(x15, 15)
#define CH_EACH(V, f) CH_CAT(CH_EACH, V)(f)
#define CH_AT(j) (*(const VF *)(p + VM_LANES * (j)))
#define CH_ADD(x, j) x = x + CH_AT(j);
#define CH_ADD1(x, j) x = x + b;
#define CH_SUB(x, j) x = x - CH_AT(j);
#define CH_SUB1(x, j) x = x - b;
#define CH_RSUB(x, j) x = CH_AT(j) - x;
#define CH_RSUB1(x, j) x = b - x;
#define CH_MUL(x, j) x = x * CH_AT(j);
#define CH_MUL1(x, j) x = x * b;
#define CH_DIV(x, j) x = x / CH_AT(j);
#define CH_DIV1(x, j) x = x / b;
#define CH_RDIV(x, j) x = CH_AT(j) / x;
#define CH_RDIV1(x, j) x = b / x;
#define CH_NEG(x, j) x = -x;
#define CH_RELU(x, j) x = (VF)((VI)x & ((x > 0) | (x != x)));
#define CH_SQUARE(x, j) x = x * x;
#define CH_BOTH(V, op) \
  case 2 * SC_LINK_##op: { const float *p = l->p + i; CH_EACH(V, CH_##op) break; } \
  case 2 * SC_LINK_##op + 1: { const VF b = l->p[0] - (VF){0}; CH_EACH(V, CH_##op##1) break; }
/* One value for all is written as that minus 0, which is it exactly, -0 included. Links over V vectors that begin at element i. */
#define CH_APPLY(V) \
  for (const sc_link *l = links; l < links + n_links; l++) \
    switch (l->op) { \
      CH_BOTH(V, ADD) CH_BOTH(V, SUB) CH_BOTH(V, RSUB) CH_BOTH(V, MUL) CH_BOTH(V, DIV) CH_BOTH(V, RDIV) \
      case 2 * SC_LINK_NEG: CH_EACH(V, CH_NEG) break; \
      case 2 * SC_LINK_RELU: CH_EACH(V, CH_RELU) break; \
      case 2 * SC_LINK_SQUARE: CH_EACH(V, CH_SQUARE) break; \
      default: break; \
    }
#define CH_DECLARE(x, j) VF x = {0};
#define CH_SPLAT(x, j) x = a[0] - x;
#define CH_LOAD(x, j) x = CH_AT(j);
#define CH_STORE(x, j) *(VF *)(d + i + VM_LANES * (j)) = x;

/* Blocks of V vectors from element i on, as many as there are. */
#define CH_BLOCKS(V) \
  for (; i + VM_LANES * V <= n; i += VM_LANES * V) { \
    CH_EACH(V, CH_DECLARE) \
    if (one) { CH_EACH(V, CH_SPLAT) } \
    else { const float *p = a + i; CH_EACH(V, CH_LOAD) } \
    CH_APPLY(V) \
    CH_EACH(V, CH_STORE) \
  }

/* Less than a vector of elements, through copies. */
static void CH_CAT(chain_rest, ISA)(int64_t m, float *d, const float *a, bool one, int64_t at, int n_links, const sc_link *from) {
  float buffer[SC_LINKS][VM_LANES], first[VM_LANES] = {0};
  sc_link links[SC_LINKS];
  for (int k = 0; k < n_links; k++) {
    links[k] = from[k];
    if (from[k].op & 1 || !from[k].p) continue;
    memset(buffer[k], 0, sizeof buffer[k]);
    memcpy(buffer[k], from[k].p + at, (size_t)m * 4);
    links[k].p = buffer[k];
  }
  for (int64_t k = 0; k < m; k++) first[k] = one ? a[0] : a[at + k];
  const int64_t i = 0;
  VF x0 = *(const VF *)first;
  CH_APPLY(1)
  *(VF *)first = x0;
  memcpy(d + at, first, (size_t)m * 4);
}

void CH_CAT(sc__chain, ISA)(int64_t n, float *d, const float *a, bool one, int n_links, const sc_link *links);
void CH_CAT(sc__chain, ISA)(int64_t n, float *d, const float *a, bool one, int n_links, const sc_link *links) {
  int64_t i = 0;
  CH_BLOCKS(CHAIN_V)
  CH_BLOCKS(4)
  CH_BLOCKS(1)
  if (i < n) CH_CAT(chain_rest, ISA)(n - i, d, a, one, i, n_links, links);
}

#undef CH_STORE
#undef CH_LOAD
#undef CH_SPLAT
#undef CH_DECLARE
#undef CH_BLOCKS
#undef CH_APPLY
#undef CH_BOTH
#undef CH_SQUARE
#undef CH_RELU
#undef CH_NEG
#undef CH_RDIV1
#undef CH_RDIV
#undef CH_DIV1
#undef CH_DIV
#undef CH_MUL1
#undef CH_MUL
#undef CH_RSUB1
#undef CH_RSUB
#undef CH_SUB1
#undef CH_SUB
#undef CH_ADD1
#undef CH_ADD
#undef CH_AT
#undef CH_EACH
#undef CH_EACH_16
#undef CH_EACH_8
#undef CH_EACH_4
#undef CH_EACH_2
#undef CH_EACH_1
#undef CH_CAT
#undef CH_CAT_
