/* graph: recorded calls, to be run many times. Knows nothing of Lua.
**
** A graph is a list of *values* and a list of *nodes* in the order of recording. A value is an input, a captured tensor (by
** reference: a run sees what it holds then) or a node's result. A symbolic tensor is a header that names a value. */
#ifndef SC_GRAPH_H
#define SC_GRAPH_H

#include "../ops/ops.h"

typedef enum sc_value_kind { SC_VALUE_INPUT, SC_VALUE_CAPTURE, SC_VALUE_RESULT } sc_value_kind;

typedef struct sc_value {
  uint8_t kind;
  const char *name;              /* interned; inputs and outputs */
  sc_tensor *captured;           /* owned */
  int32_t node;                  /* that makes it; -1 */
  int32_t last_use;              /* the last node that reads it; n_nodes: an output */
  uint8_t dtype, ndim;
  int64_t *dim;                  /* [ndim], owned */
} sc_value;

typedef struct sc_graph_node {
  const sc_opinfo *op;
  uint8_t base;
  int n_in, n_out;
  int32_t *in;                   /* values, -1: absent; owned, n_in + n_out numbers */
  int32_t *out;
  sc_attr *attr;
  size_t attr_bytes;
  sc_location where;
} sc_graph_node;

typedef struct sc__output { const char *name; int32_t value; } sc__output;

struct sc_graph {
  int32_t refs;
  sc_context *ctx;
  sc_value *value;
  sc_graph_node *node;
  sc__output *output;
  int32_t *input;
  size_t n_values, room_values, n_nodes, room_nodes, n_outputs, room_outputs, n_inputs, room_inputs;
};

sc_graph *sc__graph_retain(sc_graph *g);
sc_status sc__graph_attach(sc_context *ctx);         /* puts recording into the context's services */

#endif
