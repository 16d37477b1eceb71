/* onnx: the tensors of ONNX files. The messages around them are read by csrc/lua/onnx.c. */
#ifndef SC_ONNX_H
#define SC_ONNX_H

#include "formats.h"
#include "protobuf.h"

/* A TensorProto as it stands in the file. */
typedef struct sc_onnx_tensor {
  const uint8_t *message;           /* borrowed, as all below */
  size_t size;
  const char *name, *location;      /* not ended by 0 */
  size_t name_length, location_length;
  int64_t type, ndim, dim[SC_MAX_DIMS], count, offset, length;   /* count: values in the typed fields; length -1: to the end */
  const uint8_t *raw;
  size_t raw_size;
  bool has_raw, external;
} sc_onnx_tensor;

/* Reads the fields; the elements stay where they are. */
sc_status sc__onnx_tensor_open(const sc_source *s, const uint8_t *message, size_t size, sc_onnx_tensor *out);
/* new. Everything is checked before memory is taken, which is never more than the elements in the file. */
sc_status sc__onnx_tensor_read(const sc_source *s, const sc_onnx_tensor *t, sc_tensor **out);
/* The ONNX code of a dtype, and back: false for element types that sconce does not have. */
int sc__onnx_code(sc_dtype d);
bool sc__onnx_dtype(int64_t code, sc_dtype *out);

#endif
