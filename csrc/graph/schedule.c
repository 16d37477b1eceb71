/* The order of a plan's steps: those that write to what outlives a run (captured tensors, inputs), and those that have to come after
** them, are moved to the end, everything else keeps its place before. So a run that is cut into slices changes nothing but its own
** memory until its last slice, which does all updates at once.
**
** A step joins the end when it writes to such memory, when it touches what a step there writes or writes what one there reads, or when
** both draw random numbers. A step that only writes such memory besides its results (running statistics) stays where it is when the end has
** not touched that memory yet: run in slices it writes to a shadow, which becomes the memory before anything else in the end.
** Both parts keep their own order, so every pair of steps that depend on each other does. */
#include "plan.h"

#include <string.h>

typedef struct marks { sc_plan *p; int32_t *memory; uint8_t *read, *written; bool random; } marks;

static int32_t memory_of(const marks *m, int32_t v) { return m->memory[sc__view_root(&m->p->view, v)]; }

/* Whether n's writing to its operand i can wait for the end while n itself does not. */
static bool defers(const marks *m, const sc_graph_node *n, int i) {
  if (n->inplace || !sc__node_writes(n, i)) return false;
  int32_t r = memory_of(m, n->in[i]);
  return !m->read[r] && !m->written[r] && m->p->g->value[r].kind != SC_VALUE_RESULT;
}

/* Whether node n belongs to the end. */
static bool belongs(const marks *m, const sc_graph_node *n) {
  if (sc__node_random(n) && m->random) return true;
  for (int i = 0; i < n->n_in; i++) {
    if (n->in[i] < 0) continue;
    int32_t r = memory_of(m, n->in[i]);
    if (m->written[r]) return true;
    if (defers(m, n, i)) continue;
    if (sc__node_writes(n, i) && (m->read[r] || m->p->g->value[r].kind != SC_VALUE_RESULT)) return true;
  }
  return false;
}

static void note(marks *m, const sc_graph_node *n) {
  if (sc__node_random(n)) m->random = true;
  for (int i = 0; i < n->n_in; i++) {
    if (n->in[i] < 0) continue;
    int32_t r = memory_of(m, n->in[i]);
    m->read[r] = 1;
    if (sc__node_writes(n, i)) m->written[r] = 1;
  }
  for (int i = 0; i < n->n_out; i++) if (!(n->inplace && i == 0)) m->written[memory_of(m, n->out[i])] = 1;
}

/* A step that stays, with what it defers: from here on that memory is the end's. */
static sc__step deferring(marks *m, sc__step s) {
  const sc_graph_node *n = &m->p->g->node[s.node];
  for (int i = 0; i < n->n_in && i < 32 && !s.tiles; i++) if (defers(m, n, i)) s.defers |= 1u << i;
  for (int i = 0; i < n->n_in && i < 32; i++) if (s.defers >> i & 1) m->read[memory_of(m, n->in[i])] = m->written[memory_of(m, n->in[i])] = 1;
  return s;
}

/* Captured tensors that share a storage are one memory. */
static void find_memory(marks *m) {
  const sc_graph *g = m->p->g;
  for (size_t v = 0; v < g->n_values; v++) {
    const sc_tensor *t = g->value[v].captured;
    m->memory[v] = (int32_t)v;
    for (size_t k = 0; t && !(t->flags & SC_T_WRAPPED) && k < v; k++)
      if (g->value[k].captured && g->value[k].captured->storage == t->storage) { m->memory[v] = (int32_t)k; break; }
  }
}

sc_status sc__schedule(sc_plan *p) {
  const sc_graph *g = p->g;
  size_t n = g->n_values + 1, bytes = n * 6 + (size_t)(p->n_steps + 1) * sizeof(sc__step);
  p->tail = p->n_steps;
  sc__step *end = sc__alloc_zero(p->ctx, bytes);
  if (!end) return sc__no_memory(p->ctx, bytes);
  marks m = {.p = p, .memory = (int32_t *)(end + p->n_steps + 1)};
  m.read = (uint8_t *)(m.memory + n);
  m.written = m.read + n;
  find_memory(&m);
  int kept = 0, moved = 0;
  for (int s = 0; s < p->n_steps; s++) {
    int32_t first = sc__first_of(p, p->step[s].node);
    bool to_end = false;
    for (int32_t k = first; k >= 0 && !to_end; k = sc__next_of(p, k)) to_end = belongs(&m, &g->node[k]);
    for (int32_t k = first; k >= 0 && to_end; k = sc__next_of(p, k)) note(&m, &g->node[k]);
    if (to_end) end[moved++] = p->step[s]; else p->step[kept++] = deferring(&m, p->step[s]);
  }
  memcpy(p->step + kept, end, (size_t)moved * sizeof *end);
  p->tail = kept;
  sc__release(p->ctx, end, bytes);
  return SC_OK;
}
