/* Splitting a recording in two: what came before a mark, and what came after it. A compiled function that others differentiate records
** its gradients after its results; the first part is then run at the call, the second when gradients arrive. What the second
** part reads of the first is handed over as tensors, as a tape would save them.
**
** The second part is emitted again into a graph of its own; the first is cut off where it was marked. */
#include "graph.h"

#include <stdio.h>

sc_graph_mark sc__graph_mark(const sc_graph *g) { return (sc_graph_mark){g->n_nodes, g->n_values, g->n_inputs, g->n_outputs}; }

void sc__graph_cut(sc_graph *g, const sc_graph_mark *m) {
  while (g->n_nodes > m->nodes)
    sc__node_free(g->ctx, &g->node[--g->n_nodes]);
  bool captures = false;
  while (g->n_values > m->values) {
    sc_value *v = &g->value[--g->n_values];
    captures = captures || v->kind == SC_VALUE_CAPTURE;
    sc_tensor_release(v->captured);
    sc__release(g->ctx, v->dim, (size_t)v->ndim * 16);
  }
  g->n_inputs = m->inputs;
  g->n_outputs = m->outputs;
  if (captures) sc__captures_again(g);
}

typedef struct split {
  sc__instance at;
  const sc_graph_mark *m;
  sc_graph *to;
  int32_t *saved;                /* values of the first part that the second reads */
  int n_saved;
} split;

/* The value as the second part knows it. */
static sc_status reach(split *s, int32_t v) {
  const sc_value *x = v < 0 ? NULL : &s->at.from->value[v];
  if (!x || s->at.now[v]) return SC_OK;
  if (x->captured) { s->at.now[v] = sc_tensor_retain(x->captured); return SC_OK; }
  if ((size_t)v >= s->m->values) return SC_OK;        /* made there, or an input of its own */
  char name[24];
  snprintf(name, sizeof name, "saved%d", s->n_saved + 1);
  SC_TRY(sc_graph_input(s->to, name, (sc_dtype)x->dtype, x->ndim, x->dim, &s->at.now[v]));
  s->saved[s->n_saved++] = v;
  return SC_OK;
}

static sc_status emit_tail(split *s) {
  const sc_graph *g = s->at.from;
  for (size_t k = s->m->nodes; k < g->n_nodes; k++)
    for (int i = 0; i < g->node[k].n_in; i++) SC_TRY(reach(s, g->node[k].in[i]));
  for (size_t i = s->m->outputs; i < g->n_outputs; i++) SC_TRY(reach(s, g->output[i].value));
  for (size_t i = s->m->inputs; i < g->n_inputs; i++) {
    const sc_value *x = &g->value[g->input[i]];
    SC_TRY(sc_graph_input(s->to, x->name, (sc_dtype)x->dtype, x->ndim, x->dim, &s->at.now[g->input[i]]));
  }
  for (size_t k = s->m->nodes; k < g->n_nodes; k++) SC_TRY(sc__graph_again(&s->at, &g->node[k]));
  for (size_t i = s->m->outputs; i < g->n_outputs; i++)
    SC_TRY(sc_graph_output(s->to, g->output[i].name, s->at.now[g->output[i].value]));
  return SC_OK;
}

/* The first part hands these over: as outputs, by way of headers that name the values. */
static sc_status hand_over(split *s, sc_graph *g) {
  for (int i = 0; i < s->n_saved; i++) {
    sc_meta m;
    sc_tensor *t;
    char name[24];
    const sc_value *x = &g->value[s->saved[i]];
    sc__meta_set(&m, (sc_dtype)x->dtype, x->ndim, x->dim);
    SC_TRY(sc__tensor_symbolic(g->ctx, &m, NULL, NULL, &t));
    t->graph = sc__graph_retain(g);
    t->value = s->saved[i];
    snprintf(name, sizeof name, "saved%d", i + 1);
    sc_status st = sc_graph_output(g, name, t);
    sc_tensor_release(t);
    SC_TRY(st);
  }
  return SC_OK;
}

sc_status sc__graph_split(sc_graph *g, const sc_graph_mark *m, sc_graph **tail, int *n) {
  sc_context *ctx = g->ctx;
  const sc_sizes none = {0};
  size_t values = g->n_values, bytes = (values + 1) * (sizeof(sc_tensor *) + sizeof(int32_t));
  split s = {.at = {.from = g, .sizes = &none, .now = sc__alloc_zero(ctx, bytes)}, .m = m};
  if (!s.at.now) return sc__no_memory(ctx, bytes);
  s.saved = (int32_t *)(s.at.now + values + 1);
  sc_status st = sc_graph_new(ctx, &s.to);
  if (st == SC_OK) {
    sc__emitting was = sc__emit_into(s.to);
    st = emit_tail(&s);
    sc__emit_into_end(ctx, &was);
  }
  if (st == SC_OK) {
    sc__graph_cut(g, m);
    st = hand_over(&s, g);
  }
  for (size_t v = 0; v < values; v++) sc_tensor_release(s.at.now[v]);
  *n = s.n_saved;
  sc__release(ctx, s.at.now, bytes);
  if (st != SC_OK) { sc_graph_release(s.to); return st; }
  *tail = s.to;
  return SC_OK;
}
