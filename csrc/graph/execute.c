/* The plain executor: emits the nodes in the order of recording, with gradients off, and drops each value after its last use. */
#include "graph.h"

#include <string.h>

static void find_last_uses(const sc_graph *g, int32_t *last) {
  for (size_t v = 0; v < g->n_values; v++) last[v] = -1;
  for (size_t k = 0; k < g->n_nodes; k++)
    for (int i = 0; i < g->node[k].n_in + g->node[k].n_out; i++)
      if (g->node[k].in[i] >= 0) last[g->node[k].in[i]] = (int32_t)k;
  for (size_t i = 0; i < g->n_outputs; i++) last[g->output[i].value] = (int32_t)g->n_nodes;
}

sc_status sc__graph_takes(sc_graph *g, size_t i, const sc_tensor *t) {
  const sc_value *v = &g->value[g->input[i]];
  char want[200], got[200];
  if (!t->storage) return sc__fail(g->ctx, SC_EINVAL, "graph: input %s is symbolic", v->name);
  if (t->dtype == v->dtype && t->ndim == v->ndim && memcmp(t->dim, v->dim, (size_t)v->ndim * 8) == 0) return SC_OK;
  return sc__fail(g->ctx, SC_EINVAL, "graph: input %s: expected %s of shape %s, got %s of shape %s", v->name, sc_dtype_name((sc_dtype)v->dtype),
                  sc__shape_text(v->ndim, v->dim, want, sizeof want), sc_dtype_name((sc_dtype)t->dtype),
                  sc__shape_text(t->ndim, t->dim, got, sizeof got));
}

static sc_status run_node(sc_graph *g, const sc_graph_node *n, sc_tensor **slot) {
  sc_tensor *few[8], **in = n->n_in <= 8 ? few : sc__alloc(g->ctx, (size_t)n->n_in * sizeof *in), *out[SC_MAX_OUTPUTS];
  if (!in) return sc__no_memory(g->ctx, (size_t)n->n_in * sizeof *in);
  for (int i = 0; i < n->n_in; i++) in[i] = n->in[i] < 0 ? NULL : slot[n->in[i]];
  int n_out;
  sc_status s = sc__emit(g->ctx, n->op, in, n->n_in, n->attr, n->base, out, &n_out);
  if (in != few) sc__release(g->ctx, in, (size_t)n->n_in * sizeof *in);
  if (s != SC_OK) return sc__fail_at(g->ctx, &n->where, s);
  for (int i = 0; i < n_out; i++) {
    sc_tensor_release(slot[n->out[i]]);
    slot[n->out[i]] = out[i];
  }
  return SC_OK;
}

sc_status sc_graph_run(sc_graph *g, sc_tensor *const *in, int n_in, sc_tensor **out, int n_out) {
  sc_context *ctx = g->ctx;
  if (n_in != (int)g->n_inputs || n_out != (int)g->n_outputs)
    return sc__fail(ctx, SC_EINVAL, "graph: expected %d inputs and %d outputs, got %d and %d", (int)g->n_inputs, (int)g->n_outputs, n_in, n_out);
  for (int i = 0; i < n_in; i++) SC_TRY(sc__graph_takes(g, (size_t)i, in[i]));
  size_t room = (g->n_values + 1) * (sizeof(sc_tensor *) + sizeof(int32_t));
  sc_tensor **slot = sc__alloc_zero(ctx, room);
  if (!slot) return sc__no_memory(ctx, room);
  int32_t *last = (int32_t *)(slot + g->n_values + 1);
  find_last_uses(g, last);
  for (int i = 0; i < n_in; i++) slot[g->input[i]] = sc_tensor_retain(in[i]);
  for (size_t v = 0; v < g->n_values; v++) if (g->value[v].captured) slot[v] = sc_tensor_retain(g->value[v].captured);
  bool was = ctx->grad_enabled;
  ctx->grad_enabled = false;
  sc_status s = SC_OK;
  for (size_t k = 0; k < g->n_nodes && s == SC_OK; k++) {
    const sc_graph_node *n = &g->node[k];
    s = run_node(g, n, slot);
    for (int i = 0; i < n->n_in + n->n_out; i++) {
      int32_t v = n->in[i];
      if (v >= 0 && last[v] == (int32_t)k) { sc_tensor_release(slot[v]); slot[v] = NULL; }
    }
  }
  ctx->grad_enabled = was;
  for (int i = 0; i < n_out && s == SC_OK; i++) out[i] = sc_tensor_retain(slot[g->output[i].value]);
  for (size_t v = 0; v < g->n_values; v++) sc_tensor_release(slot[v]);
  sc__release(ctx, slot, room);
  return s;
}
