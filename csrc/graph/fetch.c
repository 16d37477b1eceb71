/* The part of a graph that computes some of its values from others: what a session runs.
**
** Nodes are walked from the last to the first. A node is needed when it makes a value that is, or writes into memory that a node after it
** reads; what it reads is needed then, up to values that are fed. So updates that come after the last read of a parameter, an
** optimiser's, are no part of fetching a loss, unless `updates` asks for them. Needed nodes are emitted again into a new graph, whose
** inputs are those of the old one that are needed and then the values fed. */
#include "graph.h"

#include <stdio.h>
#include <string.h>

typedef struct pick {
  const sc_graph *g;
  bool *node, *value, *root, *fed;   /* needed, by node and by value; the memory of that root; given from outside */
} pick;

static void read_value(pick *p, int32_t v) {
  if (v < 0 || p->value[v]) return;
  p->value[v] = true;
  if (!p->fed[v]) p->root[p->g->value[v].root] = true;
}

static bool is_needed(const pick *p, const sc_graph_node *n, bool updates) {
  for (int i = n->inplace; i < n->n_out; i++) if (p->value[n->out[i]] && !p->fed[n->out[i]]) return true;
  for (int i = 0; i < n->n_in; i++) {
    if (!sc__node_writes(n, i)) continue;
    int32_t r = p->g->value[n->in[i]].root;
    if (p->root[r] || (updates && p->g->value[r].kind != SC_VALUE_RESULT)) return true;
  }
  return false;
}

static void choose(pick *p, const int32_t *fetch, int n_fetch, bool updates) {
  for (int i = 0; i < n_fetch; i++) read_value(p, fetch[i]);
  for (size_t k = p->g->n_nodes; k-- > 0; ) {
    const sc_graph_node *n = &p->g->node[k];
    p->node[k] = is_needed(p, n, updates);
    for (int i = 0; p->node[k] && i < n->n_in; i++) read_value(p, n->in[i]);
  }
}

static sc_status input(sc__instance *s, sc_graph *to, int32_t v, const char *name) {
  const sc_value *x = &s->from->value[v];
  sc_tensor *t;
  SC_TRY(sc_graph_input(to, name, (sc_dtype)x->dtype, x->ndim, x->dim, &t));
  sc_tensor_release(s->now[v]);
  s->now[v] = t;
  return SC_OK;
}

static sc_status rebuild(const pick *p, sc__instance *s, sc_graph *to, const int32_t *feed, int n_feed) {
  const sc_graph *g = p->g;
  for (size_t i = 0; i < g->n_inputs; i++)
    if (p->root[g->input[i]] && !p->fed[g->input[i]]) SC_TRY(input(s, to, g->input[i], g->value[g->input[i]].name));
  for (int i = 0; i < n_feed; i++) {
    char name[24];
    snprintf(name, sizeof name, "feed %d", i + 1);
    SC_TRY(input(s, to, feed[i], name));
  }
  for (size_t v = 0; v < g->n_values; v++)
    if (g->value[v].captured && !s->now[v]) s->now[v] = sc_tensor_retain(g->value[v].captured);
  for (size_t k = 0; k < g->n_nodes; k++) {
    if (!p->node[k]) continue;
    sc_tensor *kept[SC_MAX_OUTPUTS] = {0};
    const sc_graph_node *n = &g->node[k];
    for (int i = n->inplace; i < n->n_out; i++) if (p->fed[n->out[i]]) { kept[i] = s->now[n->out[i]]; s->now[n->out[i]] = NULL; }
    sc_status st = sc__graph_again(s, n);
    for (int i = n->inplace; i < n->n_out; i++)
      if (kept[i]) { sc_tensor_release(s->now[n->out[i]]); s->now[n->out[i]] = kept[i]; }
    SC_TRY(st);
  }
  return SC_OK;
}

static sc_status outputs(sc__instance *s, sc_graph *to, const int32_t *fetch, int n) {
  for (int i = 0; i < n; i++) {
    char name[16];
    snprintf(name, sizeof name, "%d", i + 1);
    SC_TRY(sc_graph_output(to, name, s->now[fetch[i]]));
  }
  return SC_OK;
}

static sc_status into(const pick *p, sc_graph *to, const int32_t *fetch, int n_fetch, const int32_t *feed, int n_feed) {
  sc_context *ctx = p->g->ctx;
  sc_sizes none = {0};
  size_t bytes = (p->g->n_values + 1) * sizeof(sc_tensor *);
  sc__instance s = {.from = p->g, .sizes = &none, .now = sc__alloc_zero(ctx, bytes)};
  if (!s.now) return sc__no_memory(ctx, bytes);
  sc__emitting was = sc__emit_into(to);
  sc_status st = rebuild(p, &s, to, feed, n_feed);
  if (st == SC_OK) st = outputs(&s, to, fetch, n_fetch);
  sc__emit_into_end(ctx, &was);
  sc__instance_end(&s);
  for (size_t v = 0; v < p->g->n_values; v++) sc_tensor_release(s.now[v]);
  sc__release(ctx, s.now, bytes);
  sc__same_requires(p->g, to);
  memcpy(to->size_name, p->g->size_name, sizeof to->size_name);
  to->n_sizes = p->g->n_sizes;
  return st;
}

sc_status sc__graph_fetch(const sc_graph *g, const int32_t *fetch, int n_fetch, const int32_t *feed, int n_feed, bool updates, sc_graph **out) {
  size_t bytes = g->n_nodes + 3 * g->n_values + 1;
  bool *room = sc__alloc_zero(g->ctx, bytes);
  if (!room) return sc__no_memory(g->ctx, bytes);
  pick p = {g, room, room + g->n_nodes, room + g->n_nodes + g->n_values, room + g->n_nodes + 2 * g->n_values};
  for (int i = 0; i < n_feed; i++) p.fed[feed[i]] = true;
  choose(&p, fetch, n_fetch, updates);
  sc_graph *to = NULL;
  sc_status s = sc_graph_new(g->ctx, &to);
  if (s == SC_OK) s = into(&p, to, fetch, n_fetch, feed, n_feed);
  sc__release(g->ctx, room, bytes);
  if (s != SC_OK) { sc_graph_release(to); return s; }
  *out = to;
  return SC_OK;
}
