/* Ordering: every dtype is turned into an unsigned key that orders as the numbers do, with NaN above all (and all NaNs equal), and -0
** equal to 0. Knows nothing of tensors' owners. */
#ifndef SC_KERNEL_SORT_H
#define SC_KERNEL_SORT_H

#include "kernels.h"

/* A strided line of n elements. */
typedef struct sc_line { sc_dtype dtype; const char *data; int64_t n, stride; } sc_line;

/* Bytes of scratch that sc__order wants for a line of n. */
size_t sc__order_scratch(sc_dtype dtype, int64_t n);
/* order[k] = where the k-th element of the line is (from 0), equal ones in their order of appearance, also when descending. */
void sc__order(const sc_line *l, bool descending, int64_t *order, void *scratch);
/* The k largest (or smallest), best first, of equals the earlier; k <= n. scratch: as for sc__order, and 8 n bytes behind it. */
void sc__order_top(const sc_line *l, int64_t k, bool largest, int64_t *order, void *scratch);
/* Keys of n elements. A key of UINT64_MAX stands for a NaN of the floats. */
void sc__order_keys(const sc_line *l, int64_t from, int64_t n, uint64_t *key);
/* y[k] = the line's element order[k]; y steps in elements. */
void sc__order_gather(const sc_line *l, const int64_t *order, int64_t n, char *y, int64_t step);

#endif
