/* Passes over a recorded graph. They do not change it: they say which nodes are needless (`dead`), which values can be read instead
** of others (`same`), and which nodes run together as one tile program, in what order (`group`, group.c).
**
** A write in place orders everything around it: a value may stand for another, or move to a later place, only if nobody has written to
** its memory in between. Random nodes are never merged and never dropped (the stream of numbers is part of the result); nodes that
** write are never dropped. */
#include "group.h"

#include <string.h>

const sc_pass_info sc__pass_list[] = {
  {"constants", SC_PASS_FOLD}, {"algebra", SC_PASS_ALGEBRA}, {"idioms", SC_PASS_IDIOMS}, {"norms", SC_PASS_NORMS}, {"epilogues", SC_PASS_EPILOGUES},
  {"common subexpressions", SC_PASS_CSE}, {"dead nodes", SC_PASS_DCE}, {"fusion", SC_PASS_FUSE}, {"reuse", SC_PASS_REUSE},
  {"branches", SC_PASS_BRANCHES},
};
const int sc__pass_list_count = SC_COUNT(sc__pass_list);

typedef struct pass {
  sc_context *ctx;
  const sc_graph *g;
  sc_view_of_graph *v;
  int32_t *last_write;           /* [n_values], by root: the newest node so far that wrote to it; -1 */
  int32_t *alias;                /* [n_values]: of captured tensors that share memory the first one; else itself */
  int32_t *uses;                 /* [n_values]: live reads */
  int32_t *table;                /* hash of nodes */
  size_t table_size;
} pass;

static int32_t real(const pass *p, int32_t v) {
  while (v >= 0 && p->v->same[v] != v) v = p->v->same[v];
  return v;
}

/* A view keeps the root it was recorded with, which may have been merged with another since. */
static int32_t root_of(const pass *p, int32_t v) { return p->alias[real(p, p->g->value[real(p, v)].root)]; }

static void note_writes(pass *p, int32_t k) {
  const sc_graph_node *n = &p->g->node[k];
  for (int i = 0; i < n->n_in; i++)
    if (sc__node_writes(n, i)) p->last_write[root_of(p, n->in[i])] = k;
}

/* Captured tensors may look into one memory. Numbers of the script, of which there are many, do not. */
static void find_aliases(pass *p) {
  const sc_graph *g = p->g;
  for (size_t v = 0; v < g->n_values; v++) {
    p->alias[v] = (int32_t)v;
    const sc_tensor *t = g->value[v].captured;
    if (!t || t->flags & SC_T_WRAPPED) continue;
    for (size_t k = 0; k < v; k++) {
      const sc_tensor *e = g->value[k].captured;
      if (e && e->storage == t->storage) { p->alias[v] = (int32_t)k; break; }
    }
  }
}

/* ---- common subexpressions ---- */

bool sc__same_attr(const sc_attr *x, const sc_attr *y) {
  if (x->kind != y->kind) return false;
  switch (x->kind) {
    case SC_ATTR_NONE: return true;
    case SC_ATTR_STRING: return strcmp(x->s, y->s) == 0;
    case SC_ATTR_INTS: case SC_ATTR_FLOATS: return x->n == y->n && (!x->n || memcmp(x->v, y->v, (size_t)x->n * 8) == 0);
    default: return x->i == y->i;
  }
}

bool sc__same_attrs(const sc_opinfo *op, const sc_attr *a, const sc_attr *b) {
  for (int i = 0; i < op->n_attr; i++) if (!sc__same_attr(&a[i], &b[i])) return false;
  return true;
}

static bool same_node(pass *p, int32_t e, int32_t k) {
  const sc_graph_node *a = &p->g->node[e], *b = &p->g->node[k];
  if (a->op != b->op || a->base != b->base || a->n_in != b->n_in || a->n_out != b->n_out) return false;
  for (int i = 0; i < a->n_in; i++) {
    if (real(p, a->in[i]) != real(p, b->in[i])) return false;
    if (a->in[i] >= 0 && p->last_write[root_of(p, a->in[i])] > e) return false;
  }
  for (int i = 0; i < a->n_out; i++) if (p->last_write[root_of(p, a->out[i])] > e) return false;
  return sc__same_attrs(a->op, a->attr, b->attr);
}

static size_t node_hash(pass *p, const sc_graph_node *n) {
  size_t h = (size_t)(uintptr_t)n->op >> 4;
  for (int i = 0; i < n->n_in; i++) h = h * 1000003 + (size_t)(real(p, n->in[i]) + 1);
  return h;
}

/* A result that somebody writes to later, or that is handed out, must stay a memory of its own. */
static bool written_anywhere(const pass *p, const sc_graph_node *n, const bool *written) {
  for (int i = 0; i < n->n_out; i++) if (written[root_of(p, n->out[i])]) return true;
  return false;
}

static void merge_common(pass *p, const bool *written) {
  for (size_t i = 0; i < p->table_size; i++) p->table[i] = -1;
  for (size_t k = 0; k < p->g->n_nodes; k++) {
    const sc_graph_node *n = &p->g->node[k];
    if (!sc__node_pure(n) || written_anywhere(p, n, written)) { note_writes(p, (int32_t)k); continue; }
    size_t at = node_hash(p, n) & (p->table_size - 1);
    while (p->table[at] >= 0 && !same_node(p, p->table[at], (int32_t)k)) at = (at + 1) & (p->table_size - 1);
    if (p->table[at] < 0) { p->table[at] = (int32_t)k; continue; }
    for (int i = 0; i < n->n_out; i++) p->v->same[n->out[i]] = p->g->node[p->table[at]].out[i];
    p->v->dead[k] = true;
  }
}

/* ---- dead nodes ---- */

static void drop_dead(pass *p) {
  const sc_graph *g = p->g;
  for (size_t k = g->n_nodes; k-- > 0; ) {
    const sc_graph_node *n = &g->node[k];
    if (p->v->dead[k]) continue;
    bool needed = !sc__node_pure(n);
    for (int i = 0; i < n->n_out; i++) needed = needed || p->uses[n->out[i]] > 0;
    if (!needed) { p->v->dead[k] = true; continue; }
    for (int i = 0; i < n->n_in; i++) if (n->in[i] >= 0) p->uses[real(p, n->in[i])]++;
  }
}

/* ---- all of them ---- */

void sc__passes_free(sc_context *ctx, sc_view_of_graph *v) {
  if (!v->g) return;
  size_t n = v->g->n_nodes + 1, m = v->g->n_values + 1;
  sc__release(ctx, v->dead, n);
  sc__release(ctx, v->same, m * 4);
  sc__release(ctx, v->group, n * (6 * 4 + 1));
  *v = (sc_view_of_graph){0};
}

sc_status sc__passes_run(const sc_graph *g, unsigned passes, sc_view_of_graph *out) {
  sc_context *ctx = g->ctx;
  size_t n = g->n_nodes + 1, m = g->n_values + 1, table = 64;
  while (table < 2 * n) table *= 2;
  *out = (sc_view_of_graph){.g = g, .dead = sc__alloc_zero(ctx, n), .same = sc__alloc(ctx, m * 4), .group = sc__alloc_zero(ctx, n * (6 * 4 + 1))};
  pass p = {.ctx = ctx, .g = g, .v = out, .table_size = table};
  size_t bytes = (3 * m + table) * 4 + m;
  int32_t *room = sc__alloc_zero(ctx, bytes);
  if (!out->dead || !out->same || !out->group || !room) {
    sc__release(ctx, room, bytes);
    sc__passes_free(ctx, out);
    return sc__no_memory(ctx, bytes);
  }
  out->next = out->group + n; out->first = out->group + 2 * n; out->like = out->group + 3 * n; out->rows = out->group + 4 * n;
  out->order = out->group + 5 * n; out->row = (bool *)(out->group + 6 * n);
  p.last_write = room; p.uses = room + m; p.alias = room + 2 * m; p.table = room + 3 * m;
  bool *written = (bool *)(room + 3 * m + table);
  for (size_t v = 0; v < m; v++) { out->same[v] = (int32_t)v; p.last_write[v] = -1; }
  find_aliases(&p);
  for (size_t k = 0; k < g->n_nodes; k++) note_writes(&p, (int32_t)k);
  for (size_t v = 0; v < g->n_values; v++) { written[v] = p.last_write[v] >= 0; p.last_write[v] = -1; }
  for (size_t i = 0; i < g->n_outputs; i++) {
    int32_t r = g->value[g->output[i].value].root;
    if (g->value[r].kind == SC_VALUE_RESULT) written[r] = true;
  }
  if (passes & SC_PASS_CSE) merge_common(&p, written);
  for (size_t i = 0; i < g->n_outputs; i++) p.uses[real(&p, g->output[i].value)] += 2;
  if (passes & SC_PASS_DCE) {
    drop_dead(&p);
  } else {
    for (size_t k = 0; k < g->n_nodes; k++)
      for (int i = 0; i < g->node[k].n_in; i++) if (g->node[k].in[i] >= 0) p.uses[real(&p, g->node[k].in[i])]++;
  }
  for (size_t v = 0; v < g->n_values; v++) out->same[v] = real(&p, (int32_t)v);
  for (size_t v = 0; v < g->n_values; v++) p.uses[v] = root_of(&p, (int32_t)v);
  sc_status s = sc__group(g, out, p.uses, passes & SC_PASS_FUSE);
  sc__release(ctx, room, bytes);
  if (s == SC_OK && ctx->check_graphs) s = sc__view_check(out);
  if (s != SC_OK) sc__passes_free(ctx, out);
  return s;
}
