/* Reading and writing through index tensors, and combining elements. */
#ifndef SC_KERNELS_INDEX_H
#define SC_KERNELS_INDEX_H

#include "kernels.h"

typedef enum sc_combine_kind { SC_COMBINE_COPY, SC_COMBINE_ADD, SC_COMBINE_MUL, SC_COMBINE_MAX, SC_COMBINE_MIN, SC_COMBINES } sc_combine_kind;

/* d[i] = d[i] op s[i], i = 0 … n-1 in order; steps in elements. The halves compute in float, NaN wins in MAX and MIN. */
typedef void (*sc_combine_fn)(int64_t n, char *d, int64_t ds, const char *s, int64_t ss);
sc_combine_fn sc__combine(sc_dtype dtype, sc_combine_kind kind);

/* Positions p of an index tensor, each naming one place `index[p]` along the table's indexed dimension; the other table
** coordinates follow p. Strides in elements. */
typedef struct sc_index_walk {
  int nd;
  int64_t dim[SC_MAX_DIMS];
  int64_t is[SC_MAX_DIMS];      /* of the index */
  int64_t xs[SC_MAX_DIMS];      /* of the table; 0 along the indexed dimension */
  int64_t vs[SC_MAX_DIMS];      /* of the values: gather's result, scatter's source */
  int64_t n, step;              /* of the table's indexed dimension: size, stride */
  int64_t base;                 /* of index values; negative ones count from the end */
  const int64_t *index;
  char *table, *values;
  int indexed;                  /* the position's dim that is the indexed one, or -1; scatters are not split there */
} sc_index_walk;

/* values[p] = table[index[p]] / table[index[p]] op= values[p], in row-major order of p, for any number of threads. */
void sc__index_gather(sc_context *ctx, const sc_index_walk *w, size_t element);
void sc__index_scatter(sc_context *ctx, const sc_index_walk *w, sc_dtype dtype, sc_combine_kind kind);

#endif
