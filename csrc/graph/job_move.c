/* A graph made again for another context, value for value and node for node: how clones of a run get to other threads. Ops are found
** by name, names and places are interned there, captured tensors become headers there of the same memory. Generators that nodes name are
** copied: two nodes that draw from one do so in the clone. The graphs of branches and loops go along. */
#include "control.h"

#include <string.h>

enum { MOST_GENERATORS = 64 };
/* copies: int64 {MOST_GENERATORS, 2}, made when first needed; of: what they are copies of. */
typedef struct mover { sc_context *ctx; sc_tensor *copies; const sc_generator *of[MOST_GENERATORS]; int n; } mover;

static sc_status move_graph(mover *m, const sc_graph *g, sc_graph **out);

static sc_status move_generator(mover *m, sc_attr *a) {
  const sc_generator *from = a->p;
  int k = 0;
  a->p = NULL;
  while (k < m->n && m->of[k] != from) k++;
  if (k == MOST_GENERATORS) return sc__fail(m->ctx, SC_EINVAL, "run: the graph draws from more than %d generators", MOST_GENERATORS);
  if (!m->copies) SC_TRY(sc_tensor_new(m->ctx, SC_INT64, 2, (int64_t[]){MOST_GENERATORS, 2}, &m->copies));
  sc_generator *to = (sc_generator *)m->copies->data + k;
  if (k == m->n) { m->of[m->n++] = from; *to = *from; }
  a->p = to;
  return SC_OK;
}

static sc_status move_name(sc_context *ctx, const char *name, const char **out) {
  *out = name ? sc__intern(ctx, name) : NULL;
  return name && !*out ? sc__no_memory(ctx, 64) : SC_OK;
}

static sc_status move_value(sc_context *ctx, const sc_value *v, sc_value *out) {
  *out = *v;
  out->captured = NULL;
  out->dim = sc__alloc(ctx, (size_t)v->ndim * 16);
  if (!out->dim) return sc__no_memory(ctx, (size_t)v->ndim * 16);
  if (v->ndim) memcpy(out->dim, v->dim, (size_t)v->ndim * 16);
  SC_TRY(move_name(ctx, v->name, &out->name));
  /* of a branch's or loop's inputs: only what it was recorded with */
  return v->captured && v->kind == SC_VALUE_CAPTURE ? sc_tensor_share(ctx, v->captured, &out->captured) : SC_OK;
}

static sc_status move_control(mover *m, sc_attr *a) {
  const sc_control *p = a->p;
  sc_graph *graph[2] = {NULL, NULL};
  sc_control *made = NULL;
  sc_status s = SC_OK;
  for (int i = 0; i < p->n_graphs && s == SC_OK; i++) s = move_graph(m, p->graph[i], &graph[i]);
  if (s == SC_OK) s = sc__control_new(m->ctx, p, graph, &made);
  for (int i = 0; i < 2; i++) sc_graph_release(graph[i]);
  a->p = made;                   /* NULL: refused; the node that gets it lets go of nothing */
  return s;
}

static sc_status move_attributes(mover *m, sc_graph_node *n) {
  sc_status s = SC_OK;
  for (int i = 0; i < n->op->n_attr; i++) {
    sc_attr *a = &n->attr[i];
    if (a->kind == SC_ATTR_GENERATOR && a->p && s == SC_OK) s = move_generator(m, a);
    if (a->kind == SC_ATTR_GRAPH) { if (s == SC_OK) s = move_control(m, a); else a->p = NULL; }
  }
  return s;
}

static sc_status move_node(mover *m, const sc_graph_node *n, sc_graph_node *out) {
  sc_context *ctx = m->ctx;
  size_t ids = (size_t)(n->n_in + n->n_out);
  *out = *n;
  out->attr = NULL;
  out->attr_bytes = 0;
  out->in = sc__alloc(ctx, ids * sizeof(int32_t));
  if (!out->in) return sc__no_memory(ctx, ids * sizeof(int32_t));
  memcpy(out->in, n->in, ids * sizeof(int32_t));
  out->out = out->in + n->n_in;
  out->op = sc__op_find(ctx, n->op->name);
  if (!out->op) return sc__fail(ctx, SC_EINVAL, "run: there is no op named %s", n->op->name);
  SC_TRY(move_name(ctx, n->where.file, &out->where.file));
  SC_TRY(move_name(ctx, n->said, &out->said));
  SC_TRY(move_name(ctx, n->where.module, &out->where.module));
  if (!n->op->n_attr) return SC_OK;
  out->attr = sc__attrs_copy(ctx, n->attr, n->op->n_attr, &out->attr_bytes);
  return out->attr ? move_attributes(m, out) : sc__no_memory(ctx, out->attr_bytes);
}

static sc_status room_for(sc_graph *to, const sc_graph *g) {
  sc_context *ctx = to->ctx;
  to->value = sc__alloc_zero(ctx, (g->n_values + 1) * sizeof *to->value);
  to->node = sc__alloc_zero(ctx, (g->n_nodes + 1) * sizeof *to->node);
  to->input = sc__alloc_zero(ctx, (g->n_inputs + 1) * sizeof *to->input);
  to->output = sc__alloc_zero(ctx, (g->n_outputs + 1) * sizeof *to->output);
  to->room_values = g->n_values + 1;
  to->room_nodes = g->n_nodes + 1;
  to->room_inputs = g->n_inputs + 1;
  to->room_outputs = g->n_outputs + 1;
  return to->value && to->node && to->input && to->output ? SC_OK : sc__no_memory(ctx, g->n_nodes * sizeof *to->node);
}

/* Counts go up before each entry is filled: an entry of zeros is let go like any other. */
static sc_status move_all(mover *m, sc_graph *to, const sc_graph *g) {
  sc_context *ctx = to->ctx;
  SC_TRY(room_for(to, g));
  to->part = g->part;
  for (size_t i = 0; i < g->n_values; i++) { to->n_values++; SC_TRY(move_value(ctx, &g->value[i], &to->value[i])); }
  for (size_t i = 0; i < g->n_nodes; i++) { to->n_nodes++; SC_TRY(move_node(m, &g->node[i], &to->node[i])); }
  for (size_t i = 0; i < g->n_inputs; i++) to->input[to->n_inputs++] = g->input[i];
  for (size_t i = 0; i < g->n_outputs; i++) {
    to->output[to->n_outputs++].value = g->output[i].value;
    SC_TRY(move_name(ctx, g->output[i].name, &to->output[i].name));
  }
  for (; to->n_sizes < g->n_sizes; to->n_sizes++) SC_TRY(move_name(ctx, g->size_name[to->n_sizes], &to->size_name[to->n_sizes]));
  return SC_OK;
}

static sc_status move_graph(mover *m, const sc_graph *g, sc_graph **out) {
  sc_graph *to;
  SC_TRY(sc_graph_new(m->ctx, &to));
  sc_status s = move_all(m, to, g);
  if (s != SC_OK) { sc_graph_release(to); return s; }
  if (m->copies) to->generators = sc_tensor_retain(m->copies);
  *out = to;
  return SC_OK;
}

sc_status sc__graph_move(const sc_graph *g, sc_context *ctx, sc_graph **out) {
  mover m = {.ctx = ctx};
  sc_status s = move_graph(&m, g, out);
  sc_tensor_release(m.copies);
  return s;
}

bool sc__names_generator(const sc_graph *g) {
  for (size_t k = 0; k < g->n_nodes; k++) {
    const sc_graph_node *n = &g->node[k];
    const sc_control *p = sc__node_control(n);
    for (int i = 0; i < n->op->n_attr; i++) if (n->attr[i].kind == SC_ATTR_GENERATOR && n->attr[i].p) return true;
    for (int i = 0; p && i < p->n_graphs; i++) if (sc__names_generator(p->graph[i])) return true;
  }
  return false;
}
