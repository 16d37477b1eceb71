/* Which nodes run together as one tile program, and in which order everything runs.
**
** A group is a set of pointwise nodes, and of reductions over the last dims, that share a *space*: the same sizes, those of one left
** out. In a group that reduces, the space is cut into rows and what is folded, and a value is either full or one a row; a value a row
** goes into full ones by broadcasting. Values of a group that others read, too, are all results of its program.
**
** Nodes are looked at in their order, each with the groups its operands come from. Two groups become one when
**   - their spaces fit, and every operand that one takes from the other lies as the program will have it (not turned or shifted);
**   - they can run at the place of one of them: the later one's, when nobody needs the earlier one's results before that, or the earlier
**     one's, when all that the later one needs is there by then;
**   - a program has room for it.
** So every team has a place in the recording, and edges lead from lower to higher places: the order of steps is that of places.
** Whatever writes in place stays outside and is ordered against everything that reads or writes the same memory, by edges like those
** of data; random nodes keep their order likewise. */
#include "group.h"

#include "../ops/fuse.h"

#include <string.h>

enum { MOST_ROW = 4096 };

typedef struct team { int32_t first, last, place; int count; bool fold; int32_t like; int rows; } team;   /* like: the value whose sizes the space has */

typedef struct grouping {
  const sc_graph *g;
  sc_view_of_graph *v;
  const int32_t *memory;
  int32_t *edge;                 /* nodes that have to run before: of node k from start[k] to start[k + 1] */
  int32_t *start;
  int32_t *after, *after_start;  /* the same edges from the other end */
  int32_t *of;                   /* [n_nodes] its team: the number of one of its members */
  team *team;                    /* [n_nodes] */
  int32_t *uses;                 /* [n_values] of memory: reads */
  bool *written;                 /* [n_values] of memory: somebody writes to it in place */
} grouping;

static int32_t same(const grouping *s, int32_t v) { return s->v->same[v]; }
static int32_t root(const grouping *s, int32_t v) { return sc__view_root(s->v, v); }
static bool runs(const grouping *s, int32_t k) { return sc__view_runs(s->v, k); }

/* ---- what has to run before what ---- */

static void find_edges(grouping *s, int32_t *writer, int32_t *readers, int32_t *link, int32_t *link_node) {
  const sc_graph *g = s->g;
  int32_t n = 0, links = 0, random = -1;
  for (size_t v = 0; v < g->n_values; v++) writer[v] = readers[v] = -1;
  for (int32_t k = 0; k < (int32_t)g->n_nodes; k++) {
    const sc_graph_node *x = &g->node[k];
    s->start[k] = n;
    if (!runs(s, k)) continue;
    for (int i = 0; i < x->n_in; i++) {
      if (x->in[i] < 0) continue;
      int32_t r = root(s, x->in[i]), m = s->memory[r], from = g->value[r].node;
      if (from >= 0 && from != k) s->edge[n++] = from;
      if (writer[m] >= 0 && writer[m] != from) s->edge[n++] = writer[m];
      s->uses[m]++;
    }
    for (int i = 0; i < x->n_in; i++) {
      if (!sc__node_writes(x, i)) continue;
      int32_t m = s->memory[root(s, x->in[i])];
      for (int32_t l = readers[m]; l >= 0; l = link[l]) if (link_node[l] != k) s->edge[n++] = link_node[l];
      readers[m] = -1;
      writer[m] = k;
      s->written[m] = true;
    }
    for (int i = 0; i < x->n_in; i++) {
      if (x->in[i] < 0) continue;
      int32_t m = s->memory[root(s, x->in[i])];
      if (writer[m] == k) continue;
      link_node[links] = k;
      link[links] = readers[m];
      readers[m] = links++;
    }
    if (sc__node_random(x)) {
      if (random >= 0) s->edge[n++] = random;
      random = k;
    }
  }
  s->start[g->n_nodes] = n;
  for (size_t i = 0; i < g->n_outputs; i++) s->uses[s->memory[root(s, g->output[i].value)]] += 1 << 20;
}

static void turn_edges(grouping *s) {
  int32_t n = (int32_t)s->g->n_nodes;
  for (int32_t e = 0; e < s->start[n]; e++) s->after_start[s->edge[e] + 1]++;
  for (int32_t k = 0; k < n; k++) s->after_start[k + 1] += s->after_start[k];
  for (int32_t k = n; k-- > 0; )                       /* filled from the ends, which then are the beginnings */
    for (int32_t e = s->start[k]; e < s->start[k + 1]; e++) s->after[--s->after_start[s->edge[e] + 1]] = k;
  for (int32_t k = 0; k < n; k++) s->after_start[k] = s->after_start[k + 1];
  s->after_start[n] = s->start[n];
}

/* The place at which teams a and b can run as one; -1: at neither's. */
static int32_t common_place(const grouping *s, int32_t a, int32_t b) {
  if (s->team[a].place > s->team[b].place) { int32_t c = a; a = b; b = c; }
  int32_t early = s->team[a].place, late = s->team[b].place;
  bool at_late = true, at_early = true;
  for (int32_t m = s->team[a].first; m >= 0 && at_late; m = s->v->next[m])
    for (int32_t e = s->after_start[m]; e < s->after_start[m + 1] && at_late; e++) {
      int32_t t = s->of[s->after[e]];
      at_late = t == a || t == b || s->team[t].place > late;
    }
  if (at_late) return late;
  for (int32_t m = s->team[b].first; m >= 0 && at_early; m = s->v->next[m])
    for (int32_t e = s->start[m]; e < s->start[m + 1] && at_early; e++) {
      int32_t t = s->of[s->edge[e]];
      at_early = t == a || t == b || s->team[t].place < early;
    }
  return at_early ? early : -1;
}

/* ---- spaces ---- */

static int sizes(const sc_value *x, int64_t *dim) {
  int n = 0;
  for (int i = 0; i < x->ndim; i++) {
    if (x->dim[i] == 1) continue;
    if (n == SC_GROUP_DIMS) return -1;
    dim[n++] = x->dim[i];
  }
  return n;
}

int sc__group_strides(const sc_value *x, const sc_value *like, int64_t *stride) {
  if (!like) like = x;
  int n = 0;
  for (int i = 0; i < like->ndim; i++) {
    if (like->dim[i] == 1) continue;
    if (n == SC_GROUP_DIMS) return -1;
    int d = i - (like->ndim - x->ndim);
    stride[n++] = d < 0 || x->dim[d] == 1 ? 0 : x->dim[x->ndim + d];
  }
  return n;
}

bool sc__group_fold(const sc_graph *g, const sc_graph_node *n, int64_t *count, int *rows) {
  const sc_fold *fold = n->op->def->fold;
  if (!fold || n->inplace) return false;
  const sc_value *x = &g->value[n->in[0]], *y = &g->value[n->out[0]];
  const sc_attr *dims = &n->attr[0];
  bool mask[SC_MAX_DIMS];
  if (x->dtype != y->dtype || !sc__is_float((sc_dtype)x->dtype) || x->ndim == 0) return false;
  bool all = dims->kind == SC_ATTR_NONE || (dims->kind == SC_ATTR_INTS && dims->n == 0);
  for (int i = 0; i < x->ndim; i++) mask[i] = all;
  int64_t one = dims->i;
  const int64_t *list = dims->kind == SC_ATTR_INTS ? dims->v : &one;
  for (int i = 0; i < (all ? 0 : dims->kind == SC_ATTR_INTS ? dims->n : 1); i++) {
    int64_t d = list[i] < 0 ? list[i] + x->ndim : list[i];
    if (d < 0 || d >= x->ndim) return false;
    mask[d] = true;
  }
  *count = 1;
  *rows = 0;
  bool began = false;
  for (int i = 0; i < x->ndim; i++) {
    if (x->dim[i] == 1) continue;
    if (mask[i]) { began = true; *count *= x->dim[i]; }
    else if (began) return false;
    else ++*rows;
  }
  return *count > 1 && *count <= MOST_ROW;
}

static void space_of(const sc_graph *g, const team *t, sc_group_space *out) {
  out->nd = sizes(&g->value[t->like], out->dim);
  out->rows = t->fold ? t->rows : -1;
}

static bool packed(int n, const int64_t *dim, const int64_t *stride) {
  int64_t expect = 1;
  for (int i = n - 1; i >= 0; i--) {
    if (stride[i] != expect) return false;
    expect *= dim[i];
  }
  return true;
}

/* Whether value x, as operand i of member k, lies as `producer`'s result does in the program: full, or one a row. */
static bool lies(const grouping *s, const sc_group_space *sp, int32_t k, bool row, int32_t x, bool producer_row) {
  const sc_graph_node *n = &s->g->node[k];
  const sc_value *v = &s->g->value[same(s, x)];
  int64_t stride[SC_GROUP_DIMS];
  if (v->view && v->offset != 0) return false;
  if (n->op->def->fold) return !producer_row && sc__group_strides(v, NULL, stride) == sp->nd && packed(sp->nd, sp->dim, stride);
  if (sc__group_strides(v, &s->g->value[n->out[0]], stride) != (row ? sp->rows : sp->nd)) return false;
  if (row) return producer_row && packed(sp->rows, sp->dim, stride);
  if (!producer_row) return packed(sp->nd, sp->dim, stride);
  for (int i = sp->rows; i < sp->nd; i++) if (stride[i] != 0) return false;
  return packed(sp->rows, sp->dim, stride);
}

/* ---- joining ---- */

/* A node that may be a member of a group: sets up its team of one. */
static bool candidate(grouping *s, int32_t k) {
  const sc_graph_node *n = &s->g->node[k];
  team *t = &s->team[k];
  int64_t dim[SC_GROUP_DIMS], count;
  if (n->inplace || n->n_out < 1 || s->written[s->memory[same(s, n->out[0])]]) return false;
  for (int i = 1; i < n->n_out; i++) if (s->uses[s->memory[same(s, n->out[i])]]) return false;
  if (n->op->def->pw) {
    if (n->op->n_attr > SC_PROGRAM_PARAMS || n->n_in > 3) return false;
    t->like = n->out[0];
  } else if (sc__group_fold(s->g, n, &count, &t->rows)) {
    t->like = same(s, n->in[0]);
    t->fold = true;
  } else if (n->op->flags & SC_OP_CONVERTS && !sc__is_stored((sc_dtype)s->g->value[n->in[0]].dtype) && !sc__is_stored((sc_dtype)s->g->value[n->out[0]].dtype)) {
    t->like = n->out[0];
  } else {
    return false;
  }
  for (int i = 0; i < s->g->value[t->like].ndim; i++) if (s->g->value[t->like].dim[i] == 0) return false;
  return sizes(&s->g->value[t->like], dim) >= 0;
}

/* The team that a value comes out of; -1: out of none. */
static int32_t source(const grouping *s, int32_t v) {
  if (v < 0) return -1;
  int32_t j = s->g->value[root(s, v)].node;
  return j >= 0 && s->team[s->of[j]].count ? j : -1;
}

/* The space of both together; *rows_of: the team all of whose members become one a row, -1: none. */
static bool common_space(const grouping *s, int32_t a, int32_t b, sc_group_space *out, int32_t *rows_of, int32_t *like) {
  sc_group_space x, y;
  space_of(s->g, &s->team[a], &x);
  space_of(s->g, &s->team[b], &y);
  *rows_of = -1;
  if (x.nd == y.nd && memcmp(x.dim, y.dim, (size_t)x.nd * 8) == 0) {
    if (x.rows >= 0 && y.rows >= 0 && x.rows != y.rows) return false;
    *out = x;
    if (y.rows >= 0) out->rows = y.rows;
    *like = s->team[a].like;
    return true;
  }
  for (int swap = 0; swap < 2; swap++) {               /* one is the rows of the other */
    const sc_group_space *whole = swap ? &y : &x, *part = swap ? &x : &y;
    if (whole->rows < 0 || part->rows >= 0 || part->nd != whole->rows || memcmp(part->dim, whole->dim, (size_t)part->nd * 8) != 0) continue;
    *out = *whole;
    *rows_of = swap ? a : b;
    *like = s->team[swap ? b : a].like;
    return true;
  }
  return false;
}

/* Whether a program holds the members of both: operands lie well, and there is room for inputs and results. */
static bool holds(grouping *s, int32_t a, int32_t b, const sc_group_space *sp, int32_t rows_of) {
  int32_t member[SC_GROUP_MEMBERS], input[SC_PROGRAM_INPUTS];
  int n = 0, inputs = 0, outputs = 0, reads[SC_GROUP_MEMBERS] = {0};
  if (s->team[a].count + s->team[b].count > SC_GROUP_MEMBERS) return false;
  for (int32_t t = a; ; t = b) {
    for (int32_t m = s->team[t].first; m >= 0; m = s->v->next[m]) member[n++] = m;
    if (t == b) break;
  }
  for (int i = 0; i < n; i++) {
    const sc_graph_node *x = &s->g->node[member[i]];
    bool row = (s->v->row[member[i]] || s->of[member[i]] == rows_of) && !x->op->def->fold;
    for (int k = 0; k < x->n_in; k++) {
      if (x->in[k] < 0) continue;
      int32_t j = source(s, x->in[k]), at = 0;
      if (j >= 0 && (s->of[j] == a || s->of[j] == b)) {
        if (!lies(s, sp, member[i], row, x->in[k], s->v->row[j] || s->of[j] == rows_of)) return false;
        while (member[at] != j) at++;
        reads[at]++;
        continue;
      }
      if (x->op->def->fold) {                          /* reduced as it lies in memory: only what is packed gives the same bits */
        int64_t stride[SC_GROUP_DIMS];
        int nd = sc__group_strides(&s->g->value[same(s, x->in[k])], NULL, stride);
        if (nd != sp->nd || !packed(nd, sp->dim, stride)) return false;
      }
      int32_t v = same(s, x->in[k]);
      while (at < inputs && input[at] != v) at++;
      if (at == SC_PROGRAM_INPUTS) return false;
      if (at == inputs) input[inputs++] = v;
    }
  }
  for (int i = 0; i < n; i++) outputs += s->uses[s->memory[same(s, s->g->node[member[i]].out[0])]] > reads[i];
  return outputs <= SC_PROGRAM_OUTPUTS;
}

static bool join(grouping *s, int32_t a, int32_t b) {
  sc_group_space sp;
  int32_t rows_of, like;
  if (a == b || !common_space(s, a, b, &sp, &rows_of, &like) || !holds(s, a, b, &sp, rows_of)) return false;
  int32_t place = common_place(s, a, b);
  if (place < 0) return false;
  team *x = &s->team[a], *y = &s->team[b];
  int32_t tail = -1;
  for (int32_t m = y->first; m >= 0; m = s->v->next[m]) {
    if (rows_of == b && !s->v->row[m]) s->v->row[m] = true;
    s->of[m] = a;
    tail = m;
  }
  for (int32_t m = x->first; m >= 0; m = s->v->next[m]) if (rows_of == a) s->v->row[m] = true;
  s->v->next[tail] = x->first;
  *x = (team){y->first, x->last > y->last ? x->last : y->last, place, x->count + y->count, x->fold || y->fold, like, sp.rows};
  y->count = 0;
  return true;
}

/* Members by number, and what the makers of programs read. */
static void write_down(grouping *s) {
  sc_view_of_graph *v = s->v;
  int32_t n = (int32_t)s->g->n_nodes;
  for (int32_t k = 0; k < n; k++) { v->next[k] = v->first[k] = -1; v->group[k] = -1; }
  for (int32_t k = n; k-- > 0; ) {                     /* lists are built from their ends */
    team *t = &s->team[s->of[k]];
    if (t->count < 2) { if (t->count) v->row[k] = false; continue; }
    v->group[k] = t->last;
    v->next[k] = v->first[t->last];
    v->first[t->last] = k;
  }
  for (int32_t k = 0; k < n; k++) {
    const team *t = &s->team[s->of[k]];
    if (v->group[k] == k) { v->like[k] = t->like; v->rows[k] = t->fold ? t->rows : -1; }
    if (runs(s, k) && t->place == k) v->order[v->n_order++] = t->last;
  }
}

void sc__group_space(const sc_graph *g, const sc_view_of_graph *v, int32_t last, sc_group_space *out) {
  out->nd = sizes(&g->value[v->like[last]], out->dim);
  out->rows = v->rows[last];
}

static void find_groups(grouping *s) {
  for (int32_t k = 0; k < (int32_t)s->g->n_nodes; k++) {
    const sc_graph_node *n = &s->g->node[k];
    if (!runs(s, k) || !candidate(s, k)) { s->team[k].fold = false; continue; }
    s->team[k].count = 1;
    s->v->row[k] = s->team[k].fold;
    for (int i = 0; i < n->n_in; i++) {
      int32_t j = source(s, n->in[i]);
      if (j >= 0) join(s, s->of[j], s->of[k]);
    }
  }
}

sc_status sc__group(const sc_graph *g, sc_view_of_graph *v, const int32_t *memory, bool fuse) {
  sc_context *ctx = g->ctx;
  size_t n = g->n_nodes + 1, m = g->n_values + 1, reads = 0;
  for (size_t k = 0; k < g->n_nodes; k++) reads += (size_t)g->node[k].n_in;
  size_t edges = 3 * reads + n, bytes = n * sizeof(team) + (2 * edges + 3 * n + 1 + 3 * m + 2 * reads) * 4 + m;
  team *teams = sc__alloc_zero(ctx, bytes);
  if (!teams) return sc__no_memory(ctx, bytes);
  grouping s = {.g = g, .v = v, .memory = memory, .team = teams};
  int32_t *at = (int32_t *)(teams + n);
  s.edge = at; at += edges;
  s.after = at; at += edges;
  s.start = at; at += n;
  s.after_start = at; at += n + 1;
  s.of = at; at += n;
  s.uses = at; at += m;
  int32_t *two_values = at; at += 2 * m;
  int32_t *two_reads = at; at += 2 * reads;
  s.written = (bool *)at;
  for (size_t k = 0; k < n; k++) {
    s.of[k] = (int32_t)k;
    v->next[k] = -1;
    teams[k].first = teams[k].last = teams[k].place = (int32_t)k;
  }
  find_edges(&s, two_values, two_values + m, two_reads, two_reads + reads);
  turn_edges(&s);
  if (fuse) find_groups(&s);
  write_down(&s);
  sc__release(ctx, teams, bytes);
  return SC_OK;
}
