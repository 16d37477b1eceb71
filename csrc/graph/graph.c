/* Recording: inputs, outputs, and the context's `trace` service, which turns an emitted call into a node. */
#include "control.h"
#include "text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

sc_status sc_graph_new(sc_context *ctx, sc_graph **out) {
  sc_graph *g = sc__alloc_zero(ctx, sizeof *g);
  if (!g) return sc__no_memory(ctx, sizeof *g);
  g->refs = 1;
  g->ctx = ctx;
  atomic_fetch_add(&ctx->refs, 1);
  *out = g;
  return SC_OK;
}

sc_graph *sc__graph_retain(sc_graph *g) { g->refs++; return g; }

sc_control *sc__node_control(const sc_graph_node *n) {
  for (int i = 0; i < n->op->n_attr && n->attr; i++) if (n->attr[i].kind == SC_ATTR_GRAPH) return n->attr[i].p;
  return NULL;
}

const char *sc__origin_text(const sc_origin *o, char *out, size_t size) {
  snprintf(out, size, "%s%.300s:%d%s%.200s", o->backward ? "for the gradient of what was recorded at " : "recorded at ", o->file ? o->file : "?", o->line,
           o->module ? ", in " : "", o->module ? o->module : "");
  return out;
}

sc_status sc__fail_at(sc_context *ctx, const sc_origin *where, sc_status status) {
  char text[700], place[600];
  if (!where->line) return status;
  snprintf(text, sizeof text, "%.600s", ctx->error);
  return sc__fail(ctx, status, "%s (%s)", text, sc__origin_text(where, place, sizeof place));
}

bool sc__node_random(const sc_graph_node *n) {
  const sc_control *p = sc__node_control(n);
  return n->op->flags & SC_OP_RANDOM || (p && p->random);
}

bool sc__node_acts(const sc_graph_node *n) {
  for (int i = 0; i < n->n_in && (n->inplace || n->op->def->writes); i++) if (sc__node_writes(n, i)) return true;
  return sc__node_random(n);
}

void sc__node_free(sc_context *ctx, sc_graph_node *n) {
  sc__control_release(sc__node_control(n));
  sc__release(ctx, n->in, (size_t)(n->n_in + n->n_out) * sizeof(int32_t));
  sc__release(ctx, n->attr, n->attr_bytes);
}

void sc_graph_release(sc_graph *g) {
  if (!g || --g->refs > 0) return;
  sc_context *ctx = g->ctx;
  if (ctx->building == g) ctx->building = NULL;
  if (ctx->tracing == g) ctx->tracing = NULL;            /* a trace that was never ended */
  for (size_t i = 0; i < g->n_values; i++) {
    sc_tensor_release(g->value[i].captured);
    sc__release(ctx, g->value[i].dim, (size_t)g->value[i].ndim * 16);
  }
  for (size_t i = 0; i < g->n_nodes; i++) sc__node_free(ctx, &g->node[i]);
  for (size_t i = 0; i < g->n_changes; i++) { sc_tensor_release(g->change[i].leaf); sc_tensor_release(g->change[i].before); }
  for (size_t i = 0; i < g->n_grad_read; i++) { sc_tensor_release(g->grad_read[i].leaf); sc_tensor_release(g->grad_read[i].before); }
  sc__release(ctx, g->change, g->room_changes * sizeof *g->change);
  sc__release(ctx, g->grad_read, g->room_grad_read * sizeof *g->grad_read);
  sc__release(ctx, g->value, g->room_values * sizeof *g->value);
  sc__release(ctx, g->capture, g->room_captures * sizeof *g->capture);
  sc__release(ctx, g->node, g->room_nodes * sizeof *g->node);
  sc__release(ctx, g->output, g->room_outputs * sizeof *g->output);
  sc__release(ctx, g->input, g->room_inputs * sizeof *g->input);
  sc_tensor_release(g->generators);
  sc__release(ctx, g, sizeof *g);
  sc__context_unref(ctx);
}

sc_status sc_graph_size(sc_graph *g, const char *name, int64_t *out) {
  static_assert(SC_COUNT(g->size_name) == SC_SYMBOLS, "a name per symbol");
  int k = 0;
  while (k < g->n_sizes && strcmp(g->size_name[k], name) != 0) k++;
  if (k == SC_SYMBOLS) return sc__fail(g->ctx, SC_EINVAL, "graph: at most %d named sizes", SC_SYMBOLS);
  if (k == g->n_sizes) {
    g->size_name[k] = sc__intern(g->ctx, name);
    if (!g->size_name[k]) return sc__no_memory(g->ctx, 64);
    g->n_sizes++;
  }
  *out = sc__stand_in(k);
  return SC_OK;
}

/* That so many elements can be, unless it depends on sizes that are not known yet: then it is checked when they are. */
static sc_status possible(sc_context *ctx, sc_dtype dtype, int ndim, const int64_t *dim) {
  int64_t numel;
  for (int i = 0; i < ndim; i++) if (sc__is_symbolic_size(dim[i])) return SC_OK;
  return sc__numel(ctx, "graph", dtype, ndim, dim, &numel);
}

/* stride NULL: packed. */
static sc_status add_value(sc_graph *g, sc_value_kind kind, sc_dtype dtype, int ndim, const int64_t *dim, const int64_t *stride, int32_t *out) {
  SC_TRY(possible(g->ctx, dtype, ndim, dim));
  SC_TRY(sc__grow(g->ctx, &g->value, g->n_values, &g->room_values, sizeof *g->value));
  sc_value v = {.kind = (uint8_t)kind, .node = -1, .dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim, .root = (int32_t)g->n_values};
  v.dim = sc__alloc(g->ctx, (size_t)ndim * 16);        /* also for none, so that it can be compared */
  if (!v.dim) return sc__no_memory(g->ctx, (size_t)ndim * 16);
  if (ndim) {
    memcpy(v.dim, dim, (size_t)ndim * 8);
    if (stride) memcpy(v.dim + ndim, stride, (size_t)ndim * 8);
    else sc__contiguous_strides(ndim, dim, v.dim + ndim);
  }
  *out = (int32_t)g->n_values;
  g->value[g->n_values++] = v;
  return SC_OK;
}

static sc_status symbolic(sc_graph *g, int32_t value, const sc_meta *m, const int64_t *stride, char *data, sc_tensor **out) {
  SC_TRY(sc__tensor_symbolic(g->ctx, m, stride, data, out));
  (*out)->graph = sc__graph_retain(g);
  (*out)->value = value;
  return SC_OK;
}

static sc_status add_input(sc_graph *g, const char *name, sc_dtype dtype, int ndim, const int64_t *shape, const int64_t *stride, sc_tensor **out) {
  int32_t v;
  sc_meta m;
  if (ndim < 0 || ndim > SC_MAX_DIMS) return sc__fail(g->ctx, SC_EINVAL, "graph: input %s has too many dimensions", name);
  for (size_t i = 0; i < g->n_inputs; i++)
    if (strcmp(g->value[g->input[i]].name, name) == 0) return sc__fail(g->ctx, SC_EINVAL, "graph: there is an input named %s already", name);
  const char *text = sc__intern(g->ctx, name);
  if (!text) return sc__no_memory(g->ctx, 64);
  SC_TRY(sc__grow(g->ctx, &g->input, g->n_inputs, &g->room_inputs, sizeof *g->input));
  SC_TRY(add_value(g, SC_VALUE_INPUT, dtype, ndim, shape, stride, &v));
  g->value[v].name = text;
  for (int i = 0; i < ndim; i++)
    if (sc__is_symbolic_size(shape[i]) && g->ctx->building != g) { g->built_before = g->ctx->building; g->ctx->building = g; }
  sc__meta_set(&m, dtype, ndim, shape);
  SC_TRY(symbolic(g, v, &m, stride, NULL, out));
  g->input[g->n_inputs++] = v;
  return SC_OK;
}

sc_status sc_graph_input(sc_graph *g, const char *name, sc_dtype dtype, int ndim, const int64_t *shape, sc_tensor **out) {
  return add_input(g, name, dtype, ndim, shape, NULL, out);
}

sc_status sc__graph_strided_input(sc_graph *g, const char *name, const sc_meta *m, sc_tensor **out) {
  return add_input(g, name, m->dtype, m->ndim, m->dim, m->stride, out);
}

/* In a branch or body: a tensor from outside becomes an input, laid out as it is. Numbers of the script are captured as ever. */
static sc_status from_outside(sc_graph *g, sc_tensor *t, int32_t *out) {
  for (size_t i = 0; i < g->n_inputs; i++) {
    const sc_tensor *x = g->value[g->input[i]].captured;
    if (x && (x == t || (t->graph && x->graph == t->graph && x->value == t->value))) { *out = g->input[i]; return SC_OK; }
  }
  char name[24];
  snprintf(name, sizeof name, "outer%d", (int)g->n_inputs + 1);
  const char *text = sc__intern(g->ctx, name);
  if (!text) return sc__no_memory(g->ctx, 64);
  SC_TRY(sc__grow(g->ctx, &g->input, g->n_inputs, &g->room_inputs, sizeof *g->input));
  SC_TRY(add_value(g, SC_VALUE_INPUT, (sc_dtype)t->dtype, t->ndim, t->dim, sc__stride(t), out));
  g->value[*out].name = text;
  g->value[*out].captured = sc_tensor_retain(t);
  g->input[g->n_inputs++] = *out;
  return SC_OK;
}

/* ---- captured values by tensor: open addressing. Places of values that were cut off again stay; they are of no tensor. ---- */

static size_t capture_slot(size_t room, const sc_tensor *t) { return ((uintptr_t)t >> 4) * 0x9e3779b97f4a7c15u >> 20 & (room - 1); }

static void put_capture(int32_t *table, size_t room, const sc_tensor *t, int32_t v) {
  size_t at = capture_slot(room, t);
  while (table[at] >= 0) at = (at + 1) & (room - 1);
  table[at] = v;
}

void sc__captures_again(sc_graph *g) {
  for (size_t i = 0; i < g->room_captures; i++) g->capture[i] = -1;
  g->n_captures = 0;
  for (size_t v = 0; v < g->n_values && g->room_captures; v++)
    if (g->value[v].kind == SC_VALUE_CAPTURE) { put_capture(g->capture, g->room_captures, g->value[v].captured, (int32_t)v); g->n_captures++; }
}

static sc_status room_for_capture(sc_graph *g) {
  if (2 * (g->n_captures + 1) <= g->room_captures) return SC_OK;
  size_t room = g->room_captures ? g->room_captures * 2 : 32;
  int32_t *table = sc__alloc(g->ctx, room * sizeof *table);
  if (!table) return sc__no_memory(g->ctx, room * sizeof *table);
  sc__release(g->ctx, g->capture, g->room_captures * sizeof *g->capture);
  g->capture = table;
  g->room_captures = room;
  sc__captures_again(g);
  return SC_OK;
}

int32_t sc__captured_value(const sc_graph *g, const sc_tensor *t) {
  if (!g->room_captures) return -1;
  for (size_t at = capture_slot(g->room_captures, t); g->capture[at] >= 0; at = (at + 1) & (g->room_captures - 1)) {
    int32_t v = g->capture[at];
    if ((size_t)v < g->n_values && g->value[v].kind == SC_VALUE_CAPTURE && g->value[v].captured == t) return v;
  }
  return -1;
}

/* The value a tensor stands for in g; a tensor with data is captured. */
sc_status sc__graph_value(sc_graph *g, sc_tensor *t, int32_t *out) {
  if (t->graph == g) { *out = t->value; return SC_OK; }
  if (g->part && !(t->flags & SC_T_WRAPPED)) return from_outside(g, t, out);
  if (t->graph) return sc__fail(g->ctx, SC_EINVAL, "graph: a tensor of another graph is used");
  *out = sc__captured_value(g, t);
  if (*out >= 0) return SC_OK;
  SC_TRY(room_for_capture(g));
  SC_TRY(add_value(g, SC_VALUE_CAPTURE, (sc_dtype)t->dtype, t->ndim, t->dim, sc__stride(t), out));
  g->value[*out].captured = sc_tensor_retain(t);
  g->value[*out].requires = sc_requires_grad(t);
  put_capture(g->capture, g->room_captures, t, *out);
  g->n_captures++;
  return SC_OK;
}

sc_status sc_graph_output(sc_graph *g, const char *name, sc_tensor *t) {
  int32_t v;
  const char *text = sc__intern(g->ctx, name);
  if (!text) return sc__no_memory(g->ctx, 64);
  SC_TRY(sc__grow(g->ctx, &g->output, g->n_outputs, &g->room_outputs, sizeof *g->output));
  SC_TRY(sc__graph_value(g, t, &v));
  g->output[g->n_outputs++] = (sc__output){text, v};
  return SC_OK;
}

/* A new value for result i of the call that becomes node `node`, and the header that stands for it. */
static sc_status add_result(sc_graph *g, sc_call *c, int i, int32_t node, int32_t first_in, int32_t *id) {
  const sc_meta *m = &c->meta[i];
  bool view = (c->op->flags & SC_OP_VIEW) != 0;
  int64_t bytes = view ? m->offset * (int64_t)sc_dtype_size(m->dtype) : 0;
  SC_TRY(add_value(g, SC_VALUE_RESULT, m->dtype, m->ndim, m->dim, view ? m->stride : NULL, id));
  sc_value *v = &g->value[*id];
  v->node = node;
  if (view) {
    v->view = true;
    v->root = g->value[first_in].root;
    v->offset = g->value[first_in].offset + bytes;
  }
  return symbolic(g, *id, m, view ? m->stride : NULL, view ? (char *)((uintptr_t)c->in[0]->data + (uintptr_t)bytes) : NULL, &c->out[i]);
}

static sc_graph *graph_of(const sc_call *c) {
  sc_graph *g = c->ctx->tracing;
  for (int i = 0; i < c->n_in && !g; i++) if (c->in[i] && c->in[i]->graph) g = c->in[i]->graph;
  return g ? g : c->ctx->building;
}

static void retract(sc_call *c) {
  sc_graph *g = graph_of(c);
  sc__graph_cut(g, &g->before);
}

static sc_status trace(sc_call *c) {
  sc_context *ctx = c->ctx;
  sc_graph *g = graph_of(c);
  g->before = sc__graph_mark(g);
  if (g->sealed) return sc__fail(ctx, SC_EINVAL, "%s: the graph has been compiled and cannot change any more", sc__speaker(c)->name);
  if (g->most_nodes && g->n_nodes >= g->most_nodes) return sc__fail(ctx, SC_EINVAL, "graph: more than %zu nodes", g->most_nodes);
  SC_TRY(sc__grow(ctx, &g->node, g->n_nodes, &g->room_nodes, sizeof *g->node));
  sc_graph_node n = {.op = c->op, .base = c->base, .inplace = c->inplace, .n_in = c->n_in, .n_out = c->n_out, .origin = (int32_t)g->n_nodes,
                     .where = sc__origin(ctx)};
  if (c->op->flags & SC_OP_INTERNAL) n.said = sc__intern(ctx, sc__speaker(c)->name);
  size_t ids = (size_t)(c->n_in + c->n_out);
  n.in = sc__alloc(ctx, ids * sizeof(int32_t));
  if (!n.in) return sc__no_memory(ctx, ids * 4);
  n.out = n.in + c->n_in;
  sc_status s = SC_OK;
  if (c->op->n_attr) {
    n.attr = sc__attrs_copy(ctx, c->attr, c->op->n_attr, &n.attr_bytes);
    if (!n.attr) s = sc__no_memory(ctx, n.attr_bytes);
  }
  for (int i = 0; i < c->n_in && s == SC_OK; i++)
    if (c->in[i]) s = sc__graph_value(g, c->in[i], &n.in[i]); else n.in[i] = -1;
  for (int i = 0; i < c->n_out && s == SC_OK; i++) {
    if (c->inplace && i == 0) {                       /* the same value, written to in its place in the order */
      n.out[0] = n.in[0];
      c->out[0] = sc_tensor_retain(c->in[0]);
    } else {
      s = add_result(g, c, i, (int32_t)g->n_nodes, c->n_in ? n.in[0] : -1, &n.out[i]);
    }
  }
  if (s != SC_OK) {
    sc__release(ctx, n.attr, n.attr_bytes);
    sc__release(ctx, n.in, ids * sizeof(int32_t));
    sc__graph_cut(g, &g->before);
    return s;
  }
  g->node[g->n_nodes++] = n;
  sc_control *p = sc__node_control(&n);
  if (p) sc__control_retain(p);
  return SC_OK;
}

/* ---- tracing ---- */

static bool listed(const sc__grad_change *list, size_t n, const sc_tensor *leaf) {
  for (size_t i = 0; i < n; i++) if (list[i].leaf == leaf) return true;
  return false;
}

static sc__grad_change as_it_is(sc_tensor *leaf) {
  sc_tensor *before = sc_grad_of(leaf);
  return (sc__grad_change){sc_tensor_retain(leaf), before ? sc_tensor_retain(before) : NULL};
}

static sc_status grad_changes(sc_tensor *leaf) {
  sc_graph *g = leaf->ctx->tracing;
  if (leaf->graph || listed(g->change, g->n_changes, leaf)) return SC_OK;
  SC_TRY(sc__grow(g->ctx, &g->change, g->n_changes, &g->room_changes, sizeof *g->change));
  g->change[g->n_changes++] = as_it_is(leaf);
  return SC_OK;
}

/* What the trace has put there itself does not count. */
static sc_status grad_read(sc_tensor *leaf) {
  sc_graph *g = leaf->ctx->tracing;
  if (leaf->graph || listed(g->change, g->n_changes, leaf) || listed(g->grad_read, g->n_grad_read, leaf)) return SC_OK;
  SC_TRY(sc__grow(g->ctx, &g->grad_read, g->n_grad_read, &g->room_grad_read, sizeof *g->grad_read));
  g->grad_read[g->n_grad_read++] = as_it_is(leaf);
  return SC_OK;
}

sc_status sc__trace_begin(sc_graph *g) {
  if (g->ctx->tracing) return sc__fail(g->ctx, SC_EINVAL, "compile: a graph is being traced already");
  g->ctx->tracing = g;
  return SC_OK;
}

void sc__trace_restore(sc_graph *g) {
  for (size_t i = 0; i < g->n_changes; i++) {
    sc__grad_change *c = &g->change[i];
    if (c->leaf->ad) {
      sc_tensor_release(c->leaf->ad->grad);
      c->leaf->ad->grad = c->before;
      c->before = NULL;
    }
    sc_tensor_release(c->before);
    sc_tensor_release(c->leaf);
  }
  g->n_changes = 0;
}

void sc__trace_end(sc_graph *g) {
  if (g->ctx->tracing == g) g->ctx->tracing = NULL;
  if (g->ctx->building == g) g->ctx->building = g->built_before;
  sc__trace_restore(g);
}

/* ---- branches and bodies ---- */

void sc__part_begin(sc_graph *g) {
  g->part = true;
  g->was_tracing = g->ctx->tracing;
  g->was_building = g->ctx->building;
  g->ctx->tracing = g;
}

static sc_status check_part(sc_graph *g) {
  if (g->n_changes)
    return sc__fail(g->ctx, SC_EINVAL, "a branch or body of a graph cannot leave gradients in tensors; use sc.grad there");
  for (size_t k = 0; k < g->n_nodes; k++) {
    const sc_graph_node *n = &g->node[k];
    for (int i = 0; i < n->n_in; i++) {
      if (!sc__node_writes(n, i) || g->value[g->value[n->in[i]].root].kind == SC_VALUE_RESULT) continue;
      return sc__fail(g->ctx, SC_EINVAL, "%s at %s:%d changes a tensor in-place that a branch or body of a graph got from outside; clone it first",
                      n->op->name, n->where.file ? n->where.file : "?", n->where.line);
    }
  }
  return SC_OK;
}

static void stop(sc_graph *g) {
  sc_context *ctx = g->ctx;
  if (ctx->tracing == g) ctx->tracing = g->was_tracing;
  if (g->part) ctx->building = g->was_building;
  g->part = false;
}

sc_status sc__part_end(sc_graph *g) {
  stop(g);
  sc_status s = check_part(g);
  sc__trace_restore(g);
  if (s != SC_OK) sc__part_drop(g);
  return s;
}

void sc__part_drop(sc_graph *g) {
  stop(g);
  sc__trace_restore(g);
  for (size_t i = 0; i < g->n_inputs; i++) {
    sc_value *v = &g->value[g->input[i]];
    sc_tensor_release(v->captured);
    v->captured = NULL;
  }
}

static bool same_value(const sc_tensor *a, const sc_tensor *b) {
  return a->graph && a->graph == b->graph && a->graph->value[a->value].root == b->graph->value[b->value].root;
}

static void untrace(sc_tensor *t) { sc_graph_release(t->graph); }
static void retrace(sc_tensor *t) { sc__graph_retain(t->graph); }

sc_status sc__graph_attach(sc_context *ctx) {
  ctx->trace = trace;
  ctx->same_value = same_value;
  ctx->retract = retract;
  ctx->untrace = untrace;
  ctx->retrace = retrace;
  ctx->grad_changes = grad_changes;
  ctx->grad_read = grad_read;
  ctx->symbolic_size = sc__is_symbolic_size;
#ifdef SC_DEBUG
  ctx->check_graphs = true;
#endif
  return SC_OK;
}
