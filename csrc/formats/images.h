/* Data sets and pictures: reading IDX files (MNIST's format), writing PNG. Both lean on zlib. */
#ifndef SC_IMAGES_H
#define SC_IMAGES_H

#include "../tensor/tensor.h"

/* new: the array of an IDX file, plain or gzipped, as uint8, int8, int16, int32, float32 or float64. */
sc_status sc__read_idx(sc_context *ctx, const char *path, sc_tensor **out);
/* t: uint8 [H, W] (grey) or [H, W, 3] (colour). Written beside and renamed. */
sc_status sc__write_png(sc_context *ctx, const char *path, sc_tensor *t);

#endif
