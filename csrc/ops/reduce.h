/* What the families of reductions share. */
#ifndef SC_OPS_REDUCE_H
#define SC_OPS_REDUCE_H

#include "ops.h"
#include "../kernels/reduce.h"

/* The shape of a reduction into m, from attr[dim_slot] (a dim, dims or none: all) and attr[keep_slot] (-1: false). */
sc_status sc__reduced_meta(sc_call *c, int dim_slot, int keep_slot, bool *mask, sc_meta *m);
/* An error naming the first reduced dim of size 0, for ops that have no value there. */
sc_status sc__not_empty(sc_call *c, const bool *mask);
/* How many elements go into one output. */
int64_t sc__reduced_count(const sc_tensor *x, const bool *mask);
/* out = finish(accumulator) of a reduction in floating point (or of counts); finish NULL: as it is. */
typedef double (*sc_finish_fn)(double v, double arg);
sc_status sc__reduce_to(sc_context *ctx, sc_reduce_kind kind, const sc_tensor *x, const bool *mask, const double *m, double p,
                        sc_finish_fn finish, double arg, sc_tensor *out);
extern const sc_fold sc__fold_amax, sc__fold_amin;
/* new: x itself, or a copy converted to dtype */
sc_status sc__converted(sc_tensor *x, sc_dtype dtype, sc_tensor **out);
/* Emits an op, all of whose results become this call's. For compose. */
sc_status sc__become(sc_call *c, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr);
/* The same for an op with one result, which is returned. */
sc_status sc__make(sc_call *c, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr, sc_tensor **out);
/* x * f, x + f for a number; new */
sc_status sc__scaled(sc_call *c, sc_tensor *x, double f, sc_tensor **out);

#endif
