/* The rewriting engine. A graph is emitted again, node by node, into a fresh one (as for actual sizes, instantiate.c); at each node the
** rules whose pattern ends in its op are tried, in the order of the table, and the first that fits emits its replacement instead. What
** a replacement consists of is not tried again; but nodes that come later see it, so rules feed each other in one walk, and the walk
** ends with the nodes of the old graph. The ops' own shape rules check everything that is emitted.
**
** A replacement must be what it replaces in dtype, sizes and strides, and as free to be written to: a rule that gives a value under
** another name (`neg(neg(x))` is x) applies only where nobody would notice, see `may_stand_for`. Nodes that write in place, draw random
** numbers or hold state are copied as they are, in their order. Reads are counted, so that what a rule leaves without readers goes.
**
** Every node keeps the line and the number of the recorded node it stands for, so profiles and errors speak of what was recorded. */
#include "rewrite.h"
#include "control.h"

#include <string.h>

/* ---- the table made ready ---- */

static void rule_free(sc_context *ctx, sc_rule *r) {
  if (r->pattern) sc__release(ctx, r->pattern, r->pattern->bytes);
  if (r->replacement) sc__release(ctx, r->replacement, r->replacement->bytes);
}

void sc__rules_free(sc_context *ctx) {
  sc_rules *t = ctx->rules;
  if (!t) return;
  for (int i = 0; i < t->n; i++) rule_free(ctx, &t->rule[i]);
  sc__release(ctx, t->rule, (size_t)sc__rewrites_count * sizeof *t->rule);
  sc__release(ctx, t->by_op, (size_t)t->n_ops * sizeof *t->by_op);
  sc__release(ctx, t, sizeof *t);
  ctx->rules = NULL;
}

/* One letter, or a letter and a digit: a tensor; longer: an attribute. */
static bool rule_name(void *arg, const char *name, bool of_shape, sc_ast *out) {
  sc_rule *r = arg;
  (void)of_shape;
  size_t n = strlen(name);
  bool tensor = n == 1 || (n == 2 && name[1] >= '0' && name[1] <= '9');
  int most = tensor ? SC_RW_TENSORS : SC_RW_ATTRS, i = 0;
  for (; i < most; i++) {
    char *known = tensor ? r->tensor[i] : r->attr[i];
    if (!known[0] && n < sizeof r->attr[0]) memcpy(known, name, n + 1);
    if (strcmp(known, name) == 0) break;
  }
  *out = (sc_ast){.kind = tensor ? A_IN : A_ATTR, .index = i};
  return i < most;
}

static sc_status prepare(sc_context *ctx) {
  if (ctx->rules) return SC_OK;
  sc_rules *t = sc__alloc_zero(ctx, sizeof *t);
  if (!t) return sc__no_memory(ctx, sizeof *t);
  ctx->rules = t;
  t->n_ops = ctx->ops->n;
  t->rule = sc__alloc_zero(ctx, (size_t)sc__rewrites_count * sizeof *t->rule);
  t->by_op = sc__alloc_zero(ctx, (size_t)t->n_ops * sizeof *t->by_op);
  sc_status s = t->rule && t->by_op ? SC_OK : sc__no_memory(ctx, (size_t)sc__rewrites_count * sizeof *t->rule);
  for (int i = 0; i < sc__rewrites_count && s == SC_OK; i++) {
    sc_rule *r = &t->rule[t->n++];
    r->row = &sc__rewrites[i];
    s = sc__formula_parse(ctx, "a rewrite", r->row->pattern, rule_name, r, &r->pattern);
    if (s == SC_OK) s = sc__formula_parse(ctx, "a rewrite", r->row->replacement, rule_name, r, &r->replacement);
    if (s == SC_OK && r->pattern->node[r->pattern->root].kind != A_CALL) s = sc__fail(ctx, SC_EINVAL, "a rewrite does not end in an op: %s", r->row->pattern);
  }
  for (int i = t->n; i-- > 0 && s == SC_OK; ) {        /* the first of the table comes first */
    sc_rule *r = &t->rule[i], **list = &t->by_op[r->pattern->node[r->pattern->root].op - ctx->ops->info];
    r->next = *list;
    *list = r;
  }
  if (s != SC_OK) sc__rules_free(ctx);
  return s;
}

/* ---- values ---- */

/* Room for what the new graph has got since. */
static sc_status sync(sc_rewriter *w) {
  SC_TRY(sc__grow(w->ctx, &w->value, w->to->n_values, &w->room, sizeof *w->value));
  for (; w->n < w->to->n_values; w->n++) w->value[w->n] = (sc_rw_value){.write = -1, .back = -1};
  return sc__grow(w->ctx, &w->dead, w->to->n_nodes, &w->room_nodes, sizeof *w->dead);
}

/* Old value v has become t. */
static sc_status becomes(sc_rewriter *w, int32_t v, sc_tensor *t) {
  sc_tensor_retain(t);
  sc_tensor_release(w->copy.now[v]);
  w->copy.now[v] = t;
  SC_TRY(sc__graph_value(w->to, t, &w->id[v]));
  SC_TRY(sync(w));
  sc_rw_value *x = &w->value[w->id[v]];
  x->uses += w->uses[v];
  if (x->back < 0) x->back = v;
  return SC_OK;
}

/* borrowed: a tensor that names value v of the new graph. */
static sc_status header(sc_rewriter *w, int32_t v, sc_tensor **out) {
  const sc_value *x = &w->to->value[v];
  *out = x->captured ? x->captured : w->value[v].header;
  if (*out) return SC_OK;
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)x->dtype, x->ndim, x->dim);
  SC_TRY(sc__tensor_symbolic(w->ctx, &m, x->dim + x->ndim, (char *)(intptr_t)x->offset, out));
  (*out)->graph = sc__graph_retain(w->to);
  (*out)->value = v;
  w->value[v].header = *out;
  return SC_OK;
}

static void unread(sc_rewriter *w, int32_t v, int depth) {
  if (v < 0 || --w->value[v].uses > 0 || depth == 0) return;
  int32_t k = w->to->value[v].node;
  if (k < 0 || w->dead[k] || !sc__node_pure(&w->to->node[k])) return;
  const sc_graph_node *n = &w->to->node[k];
  for (int i = 0; i < n->n_out; i++) if (w->value[n->out[i]].uses > 0) return;
  w->dead[k] = true;
  for (int i = 0; i < n->n_in; i++) unread(w, n->in[i], depth - 1);
}

/* ---- what the old graph does with its values ---- */

static void survey(sc_rewriter *w) {
  const sc_graph *g = w->from;
  for (size_t v = 0; v < g->n_values; v++) { w->last_write[v] = -1; w->id[v] = -1; }
  for (size_t k = 0; k < g->n_nodes; k++)
    for (int i = 0; i < g->node[k].n_in; i++) {
      int32_t v = g->node[k].in[i];
      if (v < 0) continue;
      w->uses[v]++;
      if (sc__node_writes(&g->node[k], i)) w->last_write[g->value[v].root] = (int32_t)k;
    }
  for (size_t i = 0; i < g->n_outputs; i++) {
    w->uses[g->output[i].value]++;
    w->shown[g->value[g->output[i].value].root] = true;
  }
  for (size_t v = 0; v < g->n_values; v++) {           /* captured tensors that share memory are written to together */
    if (w->last_write[v] < 0 || !g->value[v].captured) continue;
    for (size_t k = 0; k < g->n_values; k++)
      if (g->value[k].captured && g->value[k].captured->storage == g->value[v].captured->storage && w->last_write[k] < w->last_write[v])
        w->last_write[k] = w->last_write[v];
  }
}

/* The newest writes, for nodes since `first`. */
static void note_writes(sc_rewriter *w, size_t first) {
  for (size_t k = first; k < w->to->n_nodes; k++) {
    const sc_graph_node *n = &w->to->node[k];
    for (int i = 0; i < n->n_in; i++) {
      if (!sc__node_writes(n, i)) continue;
      int32_t r = w->to->value[n->in[i]].root;
      w->value[r].write = (int32_t)k;
      const sc_tensor *t = w->to->value[r].captured;
      for (size_t v = 0; t && v < w->to->n_values; v++)
        if (w->to->value[v].captured && w->to->value[v].captured->storage == t->storage) w->value[v].write = (int32_t)k;
    }
  }
}

/* Whether value v of the new graph may be read instead of old result `old`, which had memory of its own or looked into another's.
** `first`: values from here on are the replacement's own. */
static bool may_stand_for(sc_rewriter *w, int32_t v, int32_t old, int32_t at, size_t first) {
  const sc_value *x = &w->to->value[v], *y = &w->from->value[old];
  if (x->dtype != y->dtype || x->ndim != y->ndim || memcmp(x->dim, y->dim, (size_t)x->ndim * 16) != 0) return false;
  if (y->view && w->id[y->root] == x->root) return true;
  if (y->view && (w->last_write[y->root] >= 0 || w->shown[y->root] || (size_t)x->root < first)) return false;
  if ((size_t)x->root >= first) return true;
  int32_t back = w->value[x->root].back;
  if (w->last_write[old] >= 0 || (back >= 0 && w->last_write[back] >= at)) return false;
  if (!w->shown[old]) return true;
  if (w->to->value[x->root].kind != SC_VALUE_RESULT || back < 0 || w->shown[back]) return false;
  w->shown[back] = true;                               /* results handed out are memories of their own */
  return true;
}

/* ---- nodes ---- */

static void place(sc_rewriter *w, size_t first, int32_t k, int32_t result) {
  for (size_t i = first; i < w->to->n_nodes; i++) {
    sc_graph_node *n = &w->to->node[i];
    n->where = w->from->node[k].where;
    if (w->from->node[k].said) n->said = w->from->node[k].said;
    n->origin = w->from->node[k].origin;
    n->inside = result >= 0 && w->to->value[result].node != (int32_t)i;
  }
}

static void count_reads(sc_rewriter *w, size_t first) {
  for (size_t k = first; k < w->to->n_nodes; k++)
    for (int i = 0; i < w->to->node[k].n_in; i++) if (w->to->node[k].in[i] >= 0) w->value[w->to->node[k].in[i]].uses++;
}

static void drop_reads(sc_rewriter *w, const sc_graph_node *n) { for (int i = 0; i < n->n_in; i++) if (n->in[i] >= 0) unread(w, w->id[n->in[i]], 64); }

static sc_status copy(sc_rewriter *w, int32_t k) {
  const sc_graph_node *n = &w->from->node[k];
  size_t first = w->to->n_nodes;
  bool same = false;
  SC_TRY(sc__graph_again(&w->copy, n));
  for (int i = 0; i < n->n_out; i++) {
    if (n->inplace && i == 0) continue;
    sc_tensor *t = sc_tensor_retain(w->copy.now[n->out[i]]);
    sc_status s = becomes(w, n->out[i], t);
    sc_tensor_release(t);
    SC_TRY(s);
  }
  SC_TRY(sync(w));
  place(w, first, k, -1);
  same = w->to->n_nodes == first + 1 && w->to->node[first].n_in == n->n_in;
  if (!same) { count_reads(w, first); drop_reads(w, n); }   /* an op over others that chose differently */
  note_writes(w, first);
  return SC_OK;
}

static sc_status emit(sc_rewriter *w, sc_match *m, sc_tensor **out) {
  sc_tensor *in[SC_RW_TENSORS] = {0};
  int64_t room[SC_RW_TENSORS][1 + SC_MAX_DIMS];
  const int64_t *shape[SC_RW_TENSORS] = {0};
  for (int i = 0; i < SC_RW_TENSORS; i++) {
    if (!m->bound[i] || m->value[i] < 0) continue;
    const sc_value *x = &w->to->value[m->value[i]];
    room[i][0] = x->ndim;
    memcpy(room[i] + 1, x->dim, (size_t)x->ndim * 8);
    shape[i] = room[i];
    SC_TRY(header(w, m->value[i], &in[i]));
  }
  sc_grad_call g = {.ctx = w->ctx, .op = m->root->op, .in = in, .n_in = SC_RW_TENSORS, .attr = m->attr, .base = m->root->base};
  return sc__formula_run(m->rule->replacement, &g, shape, NULL, out);
}

/* Puts the rule's replacement in node k's place; *done: it was fit to be there. */
static sc_status replace(sc_rewriter *w, sc_match *m, int32_t k, bool *done) {
  const sc_graph_node *n = m->root;
  size_t first = w->to->n_nodes, values = w->to->n_values;
  sc_tensor *t = NULL;
  int32_t v = -1;
  sc_status s = emit(w, m, &t);
  if (s == SC_ENOMEM) return s;
  if (s == SC_OK) s = sc__graph_value(w->to, t, &v);
  sc_status room = s == SC_ENOMEM ? s : sync(w);
  if (room != SC_OK) { sc_tensor_release(t); return room; }
  *done = s == SC_OK && may_stand_for(w, v, n->out[0], k, values);
  if (*done) {
    place(w, first, k, v);
    count_reads(w, first);
    s = becomes(w, n->out[0], t);
    drop_reads(w, n);
    w->fired++;
    w->again = w->again || m->rule->row->pass == SC_PASS_NORMS;
  } else {
    s = SC_OK;
    for (size_t i = first; i < w->to->n_nodes; i++) w->dead[i] = true;
  }
  sc_tensor_release(t);
  return s;
}

static sc_status try_rules(sc_rewriter *w, int32_t k, bool *done) {
  const sc_graph_node *n = &w->from->node[k];
  const sc_rule *r = w->ctx->rules->by_op[n->op - w->ctx->ops->info];
  int32_t in[8];
  *done = false;
  if (!r || !sc__node_pure(n) || n->n_in > 8) return SC_OK;
  for (int i = 1; i < n->n_out; i++) if (w->uses[n->out[i]]) return SC_OK;
  for (int i = 0; i < n->n_in; i++) in[i] = n->in[i] < 0 ? -1 : w->id[n->in[i]];
  for (; r && !*done; r = r->next) {
    sc_match m;
    if (!(w->passes & r->row->pass) || (r->row->flags & SC_RW_ROUNDS && !(w->passes & SC_PASS_ROUNDING))) continue;
    if (!sc__rw_match(w, r, n, in, &m) || (r->row->guard && !r->row->guard(&m))) continue;
    SC_TRY(replace(w, &m, k, done));
  }
  return SC_OK;
}

/* ---- constants ---- */

enum { MOST_FOLDED = 1 << 18 };                        /* bytes of a result that is kept instead of computed */

static bool constant(const sc_rewriter *w, int32_t v) {
  const sc_tensor *t = v < 0 ? NULL : w->to->value[w->id[v]].captured;
  return v < 0 || (t && t->flags & (SC_T_WRAPPED | SC_T_CONSTANT));
}

static bool foldable(const sc_rewriter *w, const sc_graph_node *n) {
  const sc_value *x = &w->from->value[n->out[0]];
  if (!(w->passes & SC_PASS_FOLD) || !sc__node_pure(n) || n->n_out != 1 || w->last_write[x->root] >= 0 || w->shown[x->root]) return false;
  for (int i = 0; i < n->n_in; i++) if (!constant(w, n->in[i])) return false;
  for (int i = 0; i < n->op->n_attr; i++) if (n->attr[i].kind == SC_ATTR_GENERATOR || n->attr[i].kind == SC_ATTR_GRAPH) return false;
  int64_t numel;
  return sc__numel(w->ctx, "graph", (sc_dtype)x->dtype, x->ndim, x->dim, &numel) == SC_OK && numel * (int64_t)sc_dtype_size((sc_dtype)x->dtype) <= MOST_FOLDED;
}

static sc_status fold(sc_rewriter *w, int32_t k, bool *done) {
  const sc_graph_node *n = &w->from->node[k];
  sc_context *ctx = w->ctx;
  sc_tensor *in[8], *out[SC_MAX_OUTPUTS];
  int n_out = 0;
  *done = false;
  if (n->n_in > 8 || !foldable(w, n)) return SC_OK;
  for (int i = 0; i < n->n_in; i++) in[i] = n->in[i] < 0 ? NULL : w->copy.now[n->in[i]];
  ctx->tracing = NULL;
  sc_status s = sc__emit(ctx, n->op, in, n->n_in, n->attr, n->base, out, &n_out);
  ctx->tracing = w->to;
  if (s == SC_ENOMEM) return s;
  if (s != SC_OK) return SC_OK;                        /* then it fails when it is run, as it was written */
  const sc_value *x = &w->from->value[n->out[0]];
  *done = out[0]->dtype == x->dtype && out[0]->ndim == x->ndim && memcmp(out[0]->dim, x->dim, (size_t)x->ndim * 16) == 0;
  if (*done) {
    out[0]->flags |= SC_T_CONSTANT;
    s = becomes(w, n->out[0], out[0]);
    if (s == SC_OK) drop_reads(w, n);
    w->fired++;
  }
  for (int i = 0; i < n_out; i++) sc_tensor_release(out[i]);
  return s;
}

/* ---- the walk ---- */

static bool same_bits(const sc_tensor *a, const sc_tensor *b) {
  return a->dtype == b->dtype && memcmp(a->data, b->data, sc_dtype_size((sc_dtype)a->dtype)) == 0;
}

/* Captured tensors stay what they are; a number of the script that was written several times becomes one. */
static sc_status captures(sc_rewriter *w) {
  const sc_graph *g = w->from;
  for (size_t v = 0, numbers = 0; v < g->n_values; v++) {
    sc_tensor *t = g->value[v].captured;
    if (!t || g->value[v].kind == SC_VALUE_INPUT) continue;
    for (size_t k = 0; t->flags & SC_T_WRAPPED && k < v && numbers; k++) {
      sc_tensor *e = g->value[k].captured;
      if (e && e->flags & SC_T_WRAPPED && same_bits(t, e)) { t = e; break; }
    }
    numbers += t->flags & SC_T_WRAPPED;
    SC_TRY(becomes(w, (int32_t)v, t));
    w->to->value[w->id[v]].requires = g->value[v].requires;
  }
  return SC_OK;
}

static sc_status inputs(sc_rewriter *w) {
  const sc_graph *g = w->from;
  for (size_t i = 0; i < g->n_inputs; i++) {
    const sc_value *v = &g->value[g->input[i]];
    sc_tensor *t;
    sc_meta m;
    sc__meta_set(&m, (sc_dtype)v->dtype, v->ndim, v->dim);
    memcpy(m.stride, v->dim + v->ndim, (size_t)v->ndim * 8);
    SC_TRY(sc__graph_strided_input(w->to, v->name, &m, &t));
    sc_status s = becomes(w, g->input[i], t);
    sc_tensor_release(t);
    SC_TRY(s);
  }
  return SC_OK;
}

static sc_status walk(sc_rewriter *w) {
  const sc_graph *g = w->from;
  SC_TRY(inputs(w));
  SC_TRY(captures(w));
  for (size_t k = 0; k < g->n_nodes; k++) {
    bool done;
    SC_TRY(fold(w, (int32_t)k, &done));
    if (!done) SC_TRY(try_rules(w, (int32_t)k, &done));
    if (!done) SC_TRY(copy(w, (int32_t)k));
  }
  for (size_t i = 0; i < g->n_outputs; i++) SC_TRY(sc_graph_output(w->to, g->output[i].name, w->copy.now[g->output[i].value]));
  return sync(w);
}

/* ---- cleaning up ---- */

/* Takes the dead nodes out, and the values that they made. */
static sc_status compact(sc_rewriter *w) {
  sc_graph *g = w->to;
  size_t n = 0, m = 0, bytes = (g->n_values + g->n_nodes + 1) * sizeof(int32_t);
  int32_t *value = sc__alloc(w->ctx, bytes), *node = value + g->n_values;
  if (!value) return sc__no_memory(w->ctx, bytes);
  for (size_t k = 0; k < g->n_nodes; k++) {
    node[k] = w->dead[k] ? -1 : (int32_t)n;
    if (w->dead[k]) { sc__node_free(w->ctx, &g->node[k]); continue; }
    g->node[n++] = g->node[k];
  }
  g->n_nodes = n;
  for (size_t v = 0; v < g->n_values; v++) {
    sc_value *x = &g->value[v];
    bool gone = x->node >= 0 ? node[x->node] < 0 : x->captured && x->captured->flags & SC_T_WRAPPED && w->value[v].uses <= 0;
    value[v] = gone ? -1 : (int32_t)m;
    if (gone) {
      sc_tensor_release(x->captured);
      sc__release(w->ctx, x->dim, (size_t)x->ndim * 16);
      continue;
    }
    sc_value y = *x;
    if (y.node >= 0) y.node = node[y.node];
    y.root = value[y.root];
    g->value[m++] = y;
  }
  g->n_values = m;
  for (size_t k = 0; k < n; k++)
    for (int i = 0; i < g->node[k].n_in + g->node[k].n_out; i++) if (g->node[k].in[i] >= 0) g->node[k].in[i] = value[g->node[k].in[i]];
  for (size_t i = 0; i < g->n_outputs; i++) g->output[i].value = value[g->output[i].value];
  for (size_t i = 0; i < g->n_inputs; i++) g->input[i] = value[g->input[i]];
  sc__release(w->ctx, value, bytes);
  return SC_OK;
}

static void finish(sc_rewriter *w, int32_t *block, size_t bytes) {
  for (size_t v = 0; v < w->n; v++) sc_tensor_release(w->value[v].header);
  for (size_t v = 0; v < w->from->n_values && w->copy.now; v++) sc_tensor_release(w->copy.now[v]);
  sc__release(w->ctx, w->copy.now, (w->from->n_values + 1) * sizeof *w->copy.now);
  sc__release(w->ctx, w->value, w->room * sizeof *w->value);
  sc__release(w->ctx, w->dead, w->room_nodes * sizeof *w->dead);
  sc__release(w->ctx, block, bytes);
}

sc_status sc__graph_rewrite(sc_graph *g, unsigned passes, sc_graph **out) {
  sc_context *ctx = g->ctx;
  const sc_sizes none = {0};
  if (!(passes & SC_PASS_REWRITES) || !g->n_nodes) { *out = sc__graph_retain(g); return SC_OK; }
  SC_TRY(prepare(ctx));
  size_t n = g->n_values + 1, bytes = n * (3 * sizeof(int32_t) + 1);
  sc_rewriter w = {.ctx = ctx, .from = g, .passes = passes, .copy = {.from = g, .sizes = &none, .now = sc__alloc_zero(ctx, n * sizeof(sc_tensor *))}};
  int32_t *block = sc__alloc_zero(ctx, bytes);
  sc_status s = w.copy.now && block ? sc_graph_new(ctx, &w.to) : sc__no_memory(ctx, bytes);
  if (s == SC_OK) {
    w.id = block; w.uses = block + n; w.last_write = block + 2 * n; w.shown = (bool *)(block + 3 * n);
    survey(&w);
    sc__emitting was = sc__emit_into(w.to);
    ctx->building = NULL;
    s = walk(&w);
    sc__emit_into_end(ctx, &was);
    if (s == SC_OK && w.fired) s = compact(&w);
  }
  int fired = w.fired;
  bool again = w.again && passes & SC_PASS_FOLD;
  finish(&w, block, bytes);
  if (s == SC_OK && ctx->check_graphs) {               /* of debug builds and specs: whatever is wrong is our fault, and said */
    s = sc__graph_check(w.to);
    if (s == SC_OK) s = sc__effects_check(g, w.to);
    if (s == SC_EINVAL) { sc_graph_release(w.to); return s; }
  }
  if (s == SC_OK && again) {
    s = sc__graph_rewrite(w.to, SC_PASS_FOLD, out);
    sc_graph_release(w.to);
    return s;
  }
  if (s == SC_OK && fired) { *out = w.to; return SC_OK; }
  sc_graph_release(w.to);
  if (s == SC_ENOMEM) return s;
  *out = sc__graph_retain(g);                          /* a graph that cannot be emitted again runs as it was recorded */
  return SC_OK;
}
