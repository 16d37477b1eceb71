/* Updates of parameters whose gradient is an outer product, as after a batch of one: the product is as large as the parameter, and storing
** it for the update to read costs as much as the update itself. Where nobody else reads it, its node joins the update's step, which makes
** it block by block (sc_op.run_outer). Bits are the same. */
#include "plan.h"

static int32_t root(const sc_plan *p, int32_t v) { return sc__view_root(&p->view, v); }

/* uses: reads of each memory; written: somebody writes there. */
typedef struct memory { int32_t *uses; bool *written; } memory;

static void count(const sc_plan *p, memory *m) {
  const sc_graph *g = p->g;
  for (int32_t k = 0; k < (int32_t)g->n_nodes; k++) {
    const sc_graph_node *n = &g->node[k];
    if (!sc__view_runs(&p->view, k)) continue;
    for (int i = 0; i < n->n_in; i++) {
      if (n->in[i] < 0) continue;
      m->uses[root(p, n->in[i])]++;
      if (sc__node_writes(n, i)) m->written[root(p, n->in[i])] = true;
    }
  }
  for (size_t i = 0; i < g->n_outputs; i++) m->uses[root(p, g->output[i].value)] += 2;
}

/* The node that makes the update's gradient, if the update can make it itself; else -1. */
static int32_t outer_of(const sc_plan *p, const memory *m, const sc_graph_node *update) {
  if (!update->op->def->run_outer || update->in[1] < 0) return -1;
  int32_t v = p->view.same[update->in[1]], k = p->g->value[v].node;
  if (p->g->value[v].view || k < 0 || m->uses[v] != 1 || !(p->g->node[k].op->flags & SC_OP_OUTER) || p->view.group[k] >= 0) return -1;
  const sc_graph_node *n = &p->g->node[k];
  const sc_tensor *x = p->slot[p->view.same[update->in[0]]], *d = p->slot[v];
  if (x->dtype != d->dtype || (x->dtype != SC_FLOAT32 && x->dtype != SC_FLOAT64) || d->ndim != 2 || d->numel == 0) return -1;
  for (int i = 0; i < 2; i++) {
    const sc_tensor *t = p->slot[p->view.same[n->in[i]]];
    if (!t->contiguous || t->dtype != d->dtype || t->numel != d->dim[i] || m->written[root(p, n->in[i])]) return -1;
  }
  return k;
}

sc_status sc__absorb_outer(sc_plan *p) {
  sc_view_of_graph *v = &p->view;
  size_t bytes = (p->n_values + 1) * 5;
  memory m = {.uses = sc__alloc_zero(p->ctx, bytes)};
  if (!m.uses) return sc__no_memory(p->ctx, bytes);
  m.written = (bool *)(m.uses + p->n_values + 1);
  count(p, &m);
  int32_t kept = 0;
  for (int32_t i = 0; i < v->n_order; i++) {
    int32_t u = v->order[i], k = v->group[u] >= 0 ? -1 : outer_of(p, &m, &p->g->node[u]);
    if (k < 0) continue;
    v->group[k] = v->group[u] = u;
    v->first[u] = k;
    v->next[k] = u;
    v->next[u] = -1;
    p->inside[v->same[p->g->node[k].out[0]]] = true;
  }
  for (int32_t i = 0; i < v->n_order; i++) {
    int32_t k = v->order[i];
    if (v->group[k] < 0 || v->group[k] == k) v->order[kept++] = k;
  }
  v->n_order = kept;
  sc__release(p->ctx, m.uses, bytes);
  return SC_OK;
}
