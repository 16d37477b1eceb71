/* Index tensors as ops read them. */
#ifndef SC_OPS_GATHER_H
#define SC_OPS_GATHER_H

#include "ops.h"

/* An input must be int64 (or int32). */
sc_status sc__index_dtype(sc_call *c, int slot, bool also_int32);
/* new: that input packed as int64, every value checked to lie in n's range; safe to read while in[0] is written. */
sc_status sc__index_read(sc_call *c, int slot, int64_t n, bool negative, sc_tensor **packed);

#endif
