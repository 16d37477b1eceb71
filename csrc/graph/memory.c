/* Where the values of a plan lie. A root's memory is needed from its first write to the last read of any value that looks into it. Captured
** tensors have theirs, inputs bring theirs, the roots of outputs get new memory at each run; all others share one arena.
**
** *In place.* A step whose kernel reads an element before it writes the same one may put its result where an operand lies that nobody needs
** afterwards: the operand's root covers it exactly, so many bytes, packed. Whether the kernel is such a one, its row says (sc_op.over; all
** pointwise ops are), of tile programs sc__tiles_over. The two roots then are one *lot*, which lives from the first's beginning to the
** last's end. A lot that ends in an output lies in that output's new memory from the start and needs no place in the arena.
**
** Steps of different branches of a region (branches.c) have no order. What is touched inside of one and elsewhere, or by several of its branches,
** is held as long as the region lasts; what lives inside of one branch, as long as that says, beside all of the other branches.
**
** Lots are placed largest first, each at the lowest place that is free during its life. Lots live longer than roots, so rarely they fit
** worse; then every root is placed by itself. */
#include "plan.h"

#include <string.h>

typedef struct life {
  int32_t root, first, last;
  int32_t lot;                   /* the life whose place it has: itself, unless it took over another one's */
  int32_t shared;                /* the newest region of which several branches touch it; -1 */
  bool fresh, given;             /* of an output: outside of the arena; its place has been taken over */
  int64_t bytes, at;
} life;

typedef struct layout { sc_plan *p; life *life; int32_t *of; int n; } layout;   /* of: [n_values] a root's life; -1 */

static int32_t root_of(const sc_plan *p, int32_t v) { return sc__view_root(&p->view, v); }

static bool is_output_root(const sc_plan *p, int32_t root) {
  for (size_t i = 0; i < p->g->n_outputs; i++) if (root_of(p, p->g->output[i].value) == root) return true;
  return false;
}

static int64_t value_bytes(const sc_value *v) {
  int64_t n = (int64_t)sc_dtype_size((sc_dtype)v->dtype);
  for (int i = 0; i < v->ndim; i++) n *= v->dim[i];
  return n;
}

/* ---- lives ---- */

/* Steps a and b are in different branches of one region. */
static bool parted(const sc_plan *p, int a, int b) { return p->step[a].region >= 0 && p->step[a].region == p->step[b].region && p->step[a].branch != p->step[b].branch; }

/* The first (the last) step that may run when s does. */
static int since(const sc_plan *p, int s) { return p->step[s].region < 0 ? s : p->region[p->step[s].region].first; }
static int until(const sc_plan *p, int s) { return p->step[s].region < 0 ? s : p->region[p->step[s].region].end - 1; }

/* Whether both hold something at the same time. */
static bool coexist(const sc_plan *p, const life *x, const life *y) {
  bool inside = p->step[x->first].branch >= 0 && p->step[x->first].branch == p->step[x->last].branch && p->step[y->first].branch == p->step[x->first].branch &&
                p->step[y->last].branch == p->step[x->first].branch;
  if (inside) return y->first <= x->last && x->first <= y->last;
  return since(p, y->first) <= until(p, x->last) && since(p, x->first) <= until(p, y->last);
}

static void find_lives(layout *m) {
  const sc_plan *p = m->p;
  for (size_t v = 0; v < p->n_values; v++) {
    const sc_value *x = &p->g->value[v];
    m->of[v] = -1;
    if (!p->slot[v] || x->kind != SC_VALUE_RESULT || x->view || p->inside[v]) continue;
    m->of[v] = m->n;
    m->life[m->n] = (life){.root = (int32_t)v, .first = -1, .last = -1, .lot = m->n, .shared = -1, .fresh = is_output_root(p, (int32_t)v),
                           .bytes = (value_bytes(x) + 63) / 64 * 64};
    m->n++;
  }
  for (int s = 0; s < p->n_steps; s++)
    for (int32_t k = sc__first_of(p, p->step[s].node); k >= 0; k = sc__next_of(p, k)) {
      const sc_graph_node *n = &p->g->node[k];
      for (int i = 0; i < n->n_in + n->n_out; i++) {
        int32_t l = n->in[i] < 0 ? -1 : m->of[root_of(p, n->in[i])];
        if (l < 0) continue;
        if (m->life[l].first < 0) m->life[l].first = s;
        else if (parted(p, m->life[l].last, s)) m->life[l].shared = p->step[s].region;
        m->life[l].last = s;
      }
    }
  for (int i = 0; i < m->n; i++) if (m->life[i].first < 0) m->life[i].first = m->life[i].last = 0;
}

/* ---- in place ---- */

/* v is its root, whole and packed. */
static bool whole(const sc_plan *p, int32_t v, int32_t root) {
  const sc_value *x = &p->g->value[v], *r = &p->g->value[root];
  int64_t packed[SC_MAX_DIMS];
  if (x->offset != 0 || sc_dtype_size((sc_dtype)x->dtype) != sc_dtype_size((sc_dtype)r->dtype) || value_bytes(x) != value_bytes(r)) return false;
  sc__contiguous_strides(x->ndim, x->dim, packed);
  for (int i = 0; i < x->ndim; i++) if (x->dim[i] != 1 && x->dim[x->ndim + i] != packed[i]) return false;
  return true;
}

/* Whether step s may write `result`, a root, over the values of `root` that it reads. */
static bool may_overwrite(const sc_plan *p, int s, int32_t result, int32_t root) {
  const sc__step *step = &p->step[s];
  const sc_value *y = &p->g->value[result], *x = &p->g->value[root];
  if (sc_dtype_size((sc_dtype)y->dtype) != sc_dtype_size((sc_dtype)x->dtype) || value_bytes(y) != value_bytes(x) || value_bytes(y) == 0) return false;
  if (step->tiles) {
    for (int32_t k = sc__first_of(p, step->node); k >= 0; k = sc__next_of(p, k)) {
      const sc_graph_node *n = &p->g->node[k];
      for (int i = 0; i < n->n_in; i++) {
        int32_t v = n->in[i] < 0 ? -1 : p->view.same[n->in[i]];
        if (v < 0 || root_of(p, v) != root) continue;
        if (!whole(p, v, root) || !sc__tiles_over(step->tiles, p->slot[result], p->slot[v])) return false;
      }
    }
    return true;
  }
  const sc_graph_node *n = &p->g->node[step->node];
  int at = -1;
  if (n->inplace || step->outer[0] || p->view.same[n->out[0]] != result || y->dtype != x->dtype) return false;
  for (int i = 0; i < n->n_in; i++) {
    if (n->in[i] < 0 || root_of(p, n->in[i]) != root) continue;
    if (at >= 0) return false;                         /* read twice: the kernel may read one operand after writing for the other */
    at = i;
  }
  return at >= 0 && at < 32 && !sc__node_writes(n, at) && (n->op->def->pw || n->op->def->over >> at & 1) && whole(p, p->view.same[n->in[at]], root);
}

static int32_t lot_of(const layout *m, int32_t l) {
  while (m->life[l].lot != l) l = m->life[l].lot;
  return l;
}

/* A result of step s takes over the place of the operand that ends there, if there is one that allows it. */
static void take_over(layout *m, int s, int32_t result) {
  const sc_plan *p = m->p;
  int32_t l = m->of[result];
  if (l < 0 || m->life[l].first != s || m->life[l].lot != l) return;
  for (int32_t k = sc__first_of(p, p->step[s].node); k >= 0; k = sc__next_of(p, k)) {
    const sc_graph_node *n = &p->g->node[k];
    for (int i = 0; i < n->n_in; i++) {
      int32_t r = n->in[i] < 0 ? -1 : root_of(p, n->in[i]), o = r < 0 ? -1 : m->of[r], lot = o < 0 ? -1 : lot_of(m, o);
      if (o < 0 || m->life[o].fresh || m->life[o].last != s || m->life[lot].last != s || m->life[o].first >= s || m->life[o].given ||
          (m->life[o].shared >= 0 && m->life[o].shared == p->step[s].region) || !may_overwrite(p, s, result, r)) continue;
      m->life[o].given = true;
      if (m->life[l].fresh) {                          /* all of the lot lies in the output's memory */
        m->life[lot].lot = l;
        m->life[l].first = m->life[lot].first;
      } else {
        m->life[l].lot = lot;
        m->life[lot].last = m->life[l].last;
      }
      return;
    }
  }
}

static void take_over_all(layout *m) {
  const sc_plan *p = m->p;
  for (int s = 0; s < p->n_steps; s++)
    for (int32_t k = sc__first_of(p, p->step[s].node); k >= 0; k = sc__next_of(p, k)) {
      const sc_graph_node *n = &p->g->node[k];
      for (int i = n->inplace; i < n->n_out; i++) if (p->view.same[n->out[i]] == n->out[i]) take_over(m, s, n->out[i]);
    }
}

/* ---- places ---- */

static void sort_by_size(life *const *l, int32_t *order, int n) {            /* shell sort: n is a few thousand at most */
  for (int gap = n / 2; gap > 0; gap /= 2)
    for (int i = gap; i < n; i++) {
      int32_t x = order[i];
      int k = i;
      for (; k >= gap && (*l)[order[k - gap]].bytes < (*l)[x].bytes; k -= gap) order[k] = order[k - gap];
      order[k] = x;
    }
}

/* -> bytes of the arena. order: [n], of lots from the largest to the smallest. */
static int64_t place(layout *m, int32_t *order) {
  int n = 0;
  int64_t total = 0;
  for (int32_t i = 0; i < m->n; i++) if (m->life[i].lot == i && !m->life[i].fresh) order[n++] = i;
  sort_by_size(&m->life, order, n);
  for (int i = 0; i < n; i++) {
    life *x = &m->life[order[i]];
    int64_t at = 0;
    for (bool moved = true; moved; ) {
      moved = false;
      for (int k = 0; k < i; k++) {
        const life *y = &m->life[order[k]];
        if (!coexist(m->p, x, y) || at >= y->at + y->bytes || y->at >= at + x->bytes) continue;
        at = y->at + y->bytes;
        moved = true;
      }
    }
    x->at = at;
    if (at + x->bytes > total) total = at + x->bytes;
  }
  return total;
}

/* Lots as they are, or every root by itself where that takes less. lives: those found at first. */
static int64_t place_best(layout *m, const life *lives, int32_t *order) {
  life *found = m->life;
  int64_t together = place(m, order);
  m->life = (life *)(uintptr_t)lives;
  int64_t apart = place(m, order);
  if (together <= apart) m->life = found;
  return together <= apart ? together : apart;
}

/* ---- headers ---- */

static void point_all(layout *m) {
  sc_plan *p = m->p;
  const sc_graph *g = p->g;
  for (size_t v = 0; v < g->n_values; v++) p->home[v] = (int32_t)v;
  for (int i = 0; i < m->n; i++) {
    const life *x = &m->life[i], *lot = &m->life[lot_of(m, i)];
    p->home[x->root] = lot->root;
    if (x->fresh) p->fresh[p->n_fresh++] = x->root;
    else if (lot->fresh) p->patch[p->n_patches++] = x->root;
    else sc__point(p, x->root, p->arena->storage, p->arena->data + lot->at);
  }
  for (size_t v = 0; v < g->n_values; v++) {
    if (!p->slot[v] || !g->value[v].view) continue;
    const sc_tensor *root = p->slot[root_of(p, (int32_t)v)];
    if (root->storage) sc__point(p, (int32_t)v, root->storage, root->data);
    else p->patch[p->n_patches++] = (int32_t)v;
  }
}

sc_status sc__lay_out(sc_plan *p) {
  size_t n = p->n_values + 1, room = n * (2 * sizeof(life) + 2 * sizeof(int32_t));
  layout m = {.p = p, .life = sc__alloc(p->ctx, room)};
  if (!m.life) return sc__no_memory(p->ctx, room);
  life *found = m.life, *apart = m.life + n;
  m.of = (int32_t *)(apart + n);
  find_lives(&m);
  memcpy(apart, m.life, (size_t)m.n * sizeof *apart);
  if (!(p->passes & SC_PASS_REUSE)) m.life = apart; else take_over_all(&m);
  int64_t total = place_best(&m, apart, m.of + n);
  p->arena_bytes = (size_t)total;
  sc_status s = sc_tensor_new(p->ctx, SC_UINT8, 1, &total, &p->arena);
  if (s == SC_OK) point_all(&m);
  sc__release(p->ctx, found, room);
  return s;
}

/* ---- the verifier ---- */

/* The steps between which the memory of each root holds something, and where it is: as the headers say. */
typedef struct held { int32_t root, first, last, shared; const char *at; int64_t bytes; } held;

static sc_status overwritten(const sc_plan *p, const held *a, const held *b) {
  const sc_graph_node *x = &p->g->node[p->g->value[a->root].node], *y = &p->g->node[p->g->value[b->root].node];
  return sc__fail(p->ctx, SC_EINVAL, "graph check: value %d (%s, steps %d to %d) and value %d (%s, steps %d to %d) lie in the same place", a->root + 1,
                  x->op->name, a->first + 1, a->last + 1, b->root + 1, y->op->name, b->first + 1, b->last + 1);
}

/* Memory that is new at each run has no address yet: numbers that no arena has stand for it. */
static const char *address(const sc_plan *p, int32_t root) {
  int32_t home = p->home[root];
  return p->slot[root]->storage ? p->slot[root]->data : (const char *)(uintptr_t)(((uintptr_t)home + 1) << 40);
}

sc_status sc__memory_check(sc_plan *p) {
  size_t room = (p->n_values + 1) * sizeof(held);
  held *h = sc__alloc(p->ctx, room);
  if (!h) return sc__no_memory(p->ctx, room);
  int n = 0;
  for (size_t v = 0; v < p->n_values; v++) {
    const sc_value *x = &p->g->value[v];
    if (!p->slot[v] || x->kind != SC_VALUE_RESULT || x->view || p->inside[v]) continue;
    held e = {.root = (int32_t)v, .first = INT32_MAX, .last = -1, .shared = -1, .at = address(p, (int32_t)v), .bytes = value_bytes(x)};
    for (int s = 0; s < p->n_steps; s++)
      for (int32_t k = sc__first_of(p, p->step[s].node); k >= 0; k = sc__next_of(p, k))
        for (int i = 0; i < p->g->node[k].n_in + p->g->node[k].n_out; i++) {
          int32_t u = p->g->node[k].in[i];
          if (u < 0 || root_of(p, u) != (int32_t)v) continue;
          if (s < e.first) e.first = s;
          if (e.last >= 0 && parted(p, e.last, s)) e.shared = p->step[s].region;
          e.last = s;
        }
    if (e.last < 0 || !e.bytes) continue;
    h[n] = e;
    if (is_output_root(p, (int32_t)v)) h[n].last = p->n_steps;
    n++;
    if (e.shared >= 0 && e.shared == p->step[e.first].region) {
      sc__release(p->ctx, h, room);
      return sc__fail(p->ctx, SC_EINVAL, "graph check: a branch reads value %d, which another one makes", e.root + 1);
    }
  }
  sc_status s = SC_OK;
  for (int i = 0; i < n && s == SC_OK; i++)
    for (int k = 0; k < n && s == SC_OK; k++) {
      const held *a = &h[i], *b = &h[k];
      if (i == k || a->first > b->first || a->at >= b->at + b->bytes || b->at >= a->at + a->bytes) continue;
      bool outlives = a->last >= p->n_steps || b->first >= p->n_steps;
      if (a->last < b->first && (outlives || p->step[a->last].region < 0 || p->step[a->last].region != p->step[b->first].region ||
                                 (p->step[a->last].branch == p->step[b->first].branch && a->shared != p->step[b->first].region))) continue;
      bool handed_on = a->last == b->first && a->first < a->last && a->at == b->at && may_overwrite(p, a->last, b->root, a->root) &&
                       (p->step[b->first].region < 0 || a->shared != p->step[b->first].region);
      if (!handed_on) s = overwritten(p, a, b);
    }
  sc__release(p->ctx, h, room);
  return s;
}
