/* model: ONNX files that sconce has written: the graph's own text beside the standard nodes. */
#ifndef SC_MODEL_H
#define SC_MODEL_H

#include "../graph/graph.h"
#include "onnx.h"

/* A ModelProto, its parts found; everything borrowed from the source. */
typedef struct sc_model {
  const sc_source *s;
  const uint8_t *graph, *algorithm, *text, *check, *random;       /* NULL: not there; algorithm: of its training information */
  size_t graph_size, algorithm_size, text_size, check_size, random_size;
  const uint8_t *training;
  size_t training_size;
} sc_model;

sc_status sc__model_open(const sc_source *s, sc_model *out);
/* What stands in the file as "sconce.check": a number over the standard nodes, the names and types of inputs, outputs and initializers,
** the training information and the text, but not over the elements of initializers. training: the TrainingInfoProto, or NULL. */
uint64_t sc__model_check(const uint8_t *graph, size_t graph_size, const uint8_t *training, size_t training_size, const uint8_t *text, size_t text_size);
/* new: the graph that the text says, its captured tensors from the initializers. *why: NULL, or, with no graph and SC_OK, why the
** text is not to be used: there is none, or the nodes have been changed since. Sets the context's generator when the file says how it was. */
sc_status sc__model_graph(const sc_model *m, sc_graph **out, const char **why);

#endif
