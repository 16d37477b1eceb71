/* Whether two recordings are of the same computation: the same ops in the same order, with the same attributes, on the same captured
** tensors and values of the same sizes. Values are matched as they appear, so how they are numbered does not matter. */
#include "control.h"

#include <string.h>

static bool same_control(const sc_control *a, const sc_control *b);

static bool same_attr(const sc_attr *a, const sc_attr *b) {
  if (sc__same_attr(a, b)) return true;
  return a->kind == SC_ATTR_GRAPH && b->kind == SC_ATTR_GRAPH && a->p && b->p && same_control(a->p, b->p);
}

/* Numbers of the script, and constants that the function makes, are tensors of their own each time. */
static bool same_capture(const sc_tensor *a, const sc_tensor *b) {
  if (a == b) return true;
  if (!a || !b || a->flags != b->flags || a->dtype != b->dtype || a->numel != b->numel || !a->contiguous || !b->contiguous) return false;
  return memcmp(a->data, b->data, (size_t)a->numel * sc_dtype_size((sc_dtype)a->dtype)) == 0;
}

static bool match(const sc_graph *a, const sc_graph *b, int32_t *now, int32_t u, int32_t v) {
  if (u < 0 || v < 0) return u == v;
  if (now[u] >= 0) return now[u] == v;
  const sc_value *x = &a->value[u], *y = &b->value[v];
  if (x->kind != y->kind || x->dtype != y->dtype || x->ndim != y->ndim || memcmp(x->dim, y->dim, (size_t)x->ndim * 16) != 0) return false;
  if (x->kind == SC_VALUE_CAPTURE && !same_capture(x->captured, y->captured)) return false;
  if (x->kind == SC_VALUE_INPUT && strcmp(x->name, y->name) != 0) return false;
  now[u] = v;
  return true;
}

static bool same(const sc_graph *a, const sc_graph *b, int32_t *now) {
  for (size_t i = 0; i < a->n_inputs; i++) if (!match(a, b, now, a->input[i], b->input[i])) return false;
  for (size_t k = 0; k < a->n_nodes; k++) {
    const sc_graph_node *m = &a->node[k], *n = &b->node[k];
    if (m->op != n->op || m->base != n->base || m->inplace != n->inplace || m->n_in != n->n_in || m->n_out != n->n_out) return false;
    for (int i = 0; i < m->n_in + m->n_out; i++) if (!match(a, b, now, m->in[i], n->in[i])) return false;
    for (int i = 0; i < m->op->n_attr; i++) if (!same_attr(&m->attr[i], &n->attr[i])) return false;
  }
  for (size_t i = 0; i < a->n_outputs; i++) if (!match(a, b, now, a->output[i].value, b->output[i].value)) return false;
  return true;
}

static bool same_control(const sc_control *a, const sc_control *b) {
  bool same = a->kind == b->kind && a->reverse == b->reverse && a->keep == b->keep && a->replay == b->replay && a->n_graphs == b->n_graphs &&
              a->n_carry == b->n_carry && a->n_x == b->n_x && a->n_dy == b->n_dy && a->rounds == b->rounds;
  for (int i = 0; same && i < a->n_graphs; i++) if (sc__graph_same(a->graph[i], b->graph[i], &same) != SC_OK) return false;
  return same;
}

sc_status sc__graph_same(const sc_graph *a, const sc_graph *b, bool *out) {
  *out = false;
  if (a->n_nodes != b->n_nodes || a->n_inputs != b->n_inputs || a->n_outputs != b->n_outputs) return SC_OK;
  size_t bytes = (a->n_values + 1) * sizeof(int32_t);
  int32_t *now = sc__alloc(a->ctx, bytes);
  if (!now) return sc__no_memory(a->ctx, bytes);
  memset(now, 0xff, bytes);
  *out = same(a, b, now);
  sc__release(a->ctx, now, bytes);
  return SC_OK;
}
