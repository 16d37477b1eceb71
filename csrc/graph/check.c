/* The verifier: whether a graph is one. It runs after every pass when the context's `check_graphs` is set, as it is in debug builds and in
** the specs; a graph that does not pass was broken by us, never by a script. The ops' own shape rules are asked again for every node. */
#include "control.h"

#include <string.h>

typedef struct checker {
  const sc_graph *g;
  sc_tensor **header;            /* [n_values]: what a node that reads it is given; owned */
  bool *defined;                 /* [n_values]: at the node that is looked at */
} checker;

static sc_status wrong(const checker *c, size_t node, const char *what, int32_t value) {
  const sc_graph_node *n = node < c->g->n_nodes ? &c->g->node[node] : NULL;
  return sc__fail(c->g->ctx, SC_EINVAL, "graph check: node %d (%s): %s (value %d)", (int)node + 1, n && n->op ? n->op->name : "none", what, value + 1);
}

static sc_status bad_value(const checker *c, size_t v, const char *what) {
  return sc__fail(c->g->ctx, SC_EINVAL, "graph check: value %d: %s", (int)v + 1, what);
}

static bool in_range(const checker *c, int32_t v) { return v >= 0 && (size_t)v < c->g->n_values; }

static sc_status check_value(const checker *c, size_t at) {
  const sc_graph *g = c->g;
  const sc_value *v = &g->value[at];
  if (v->kind > SC_VALUE_RESULT || v->ndim > SC_MAX_DIMS) return bad_value(c, at, "it is of no kind");
  if (!in_range(c, v->root) || g->value[v->root].view) return bad_value(c, at, "what it looks into is no memory of its own");
  if (!v->view && v->root != (int32_t)at) return bad_value(c, at, "it looks into another value, but is no view");
  if (v->kind != SC_VALUE_RESULT) return v->node < 0 && !v->view ? SC_OK : bad_value(c, at, "an input or captured tensor that a node makes");
  if (v->node < 0 || (size_t)v->node >= g->n_nodes) return bad_value(c, at, "no node makes it");
  const sc_graph_node *n = &g->node[v->node];
  for (int i = 0; i < n->n_out; i++) if (n->out[i] == (int32_t)at) return SC_OK;
  return bad_value(c, at, "the node that should make it does not");
}

static sc_status header(const checker *c, int32_t v, sc_tensor **out) {
  const sc_value *x = &c->g->value[v];
  if (!c->header[v]) {
    sc_meta m;
    sc__meta_set(&m, (sc_dtype)x->dtype, x->ndim, x->dim);
    if (x->captured && x->kind == SC_VALUE_CAPTURE) c->header[v] = sc_tensor_retain(x->captured);
    else SC_TRY(sc__tensor_symbolic(c->g->ctx, &m, x->dim + x->ndim, (char *)(intptr_t)x->offset, &c->header[v]));
  }
  *out = c->header[v];
  return SC_OK;
}

static sc_status check_result(const checker *c, size_t k, int i, const sc_meta *m) {
  const sc_graph_node *n = &c->g->node[k];
  const sc_value *v = &c->g->value[n->out[i]];
  bool view = (n->op->flags & SC_OP_VIEW) != 0;
  if (n->inplace && i == 0) return n->out[0] == n->in[0] ? SC_OK : wrong(c, k, "it writes in place, but its result is another value", n->out[0]);
  if (v->node != (int32_t)k) return wrong(c, k, "another node makes its result", n->out[i]);
  if (c->defined[n->out[i]]) return wrong(c, k, "its result is there already", n->out[i]);
  if (v->dtype != m->dtype || v->ndim != m->ndim || memcmp(v->dim, m->dim, (size_t)m->ndim * 8) != 0)
    return wrong(c, k, "its result is not what the op gives for these operands", n->out[i]);
  if (v->view != view) return wrong(c, k, "its result is a view, or none, against what the op says", n->out[i]);
  if (!view) return SC_OK;
  const sc_value *x = &c->g->value[n->in[0]];
  if (v->root != x->root || v->offset != x->offset + m->offset * (int64_t)sc_dtype_size(m->dtype) ||
      memcmp(v->dim + v->ndim, m->stride, (size_t)m->ndim * 8) != 0)
    return wrong(c, k, "its result does not lie where the op puts it", n->out[i]);
  return SC_OK;
}

static sc_status check_node(checker *c, size_t k) {
  const sc_graph *g = c->g;
  const sc_graph_node *n = &g->node[k];
  sc_meta meta[SC_MAX_OUTPUTS];
  if (!n->op || n->n_in < 0 || n->n_out < 1 || n->n_out > SC_MAX_OUTPUTS) return wrong(c, k, "it is no call of an op", -1);
  if (n->inplace != n->op->inplace) return wrong(c, k, "it writes in place against what the op says", -1);
  if (!n->op->variadic && n->n_in != n->op->n_in) return wrong(c, k, "the number of operands is wrong", -1);
  for (int i = 0; i < n->n_in; i++) {
    if (n->in[i] == -1 && !(i < n->op->n_in && n->op->param[n->op->in_param[i]].required)) continue;
    if (!in_range(c, n->in[i])) return wrong(c, k, "an operand is no value", n->in[i]);
    if (!c->defined[n->in[i]]) return wrong(c, k, "it reads what is made later", n->in[i]);
  }
  for (int i = 0; i < n->n_out; i++) if (!in_range(c, n->out[i])) return wrong(c, k, "a result is no value", n->out[i]);
  size_t bytes = (size_t)(n->n_in + 1) * sizeof(sc_tensor *);
  sc_tensor **in = sc__alloc_zero(g->ctx, bytes);
  if (!in) return sc__no_memory(g->ctx, bytes);
  sc_status s = SC_OK;
  for (int i = 0; i < n->n_in && s == SC_OK; i++) if (n->in[i] >= 0) s = header(c, n->in[i], &in[i]);
  sc_call call = {.ctx = g->ctx, .op = n->op, .in = in, .n_in = n->n_in, .attr = n->attr, .base = n->base, .inplace = n->inplace, .n_out = 1, .meta = meta};
  if (s == SC_OK) s = n->op->def->infer(&call);
  if (s == SC_OK && call.n_out != n->n_out) s = wrong(c, k, "the number of results is wrong", -1);
  for (int i = 0; i < n->n_out && s == SC_OK; i++) s = check_result(c, k, i, &meta[i]);
  sc__release(g->ctx, in, bytes);
  for (int i = 0; i < n->n_out && s == SC_OK; i++) c->defined[n->out[i]] = true;
  return s;
}

static sc_status check_all(checker *c) {
  const sc_graph *g = c->g;
  for (size_t v = 0; v < g->n_values; v++) {
    SC_TRY(check_value(c, v));
    c->defined[v] = g->value[v].kind == SC_VALUE_CAPTURE;
  }
  for (size_t i = 0; i < g->n_inputs; i++) {
    int32_t v = g->input[i];
    if (!in_range(c, v) || g->value[v].kind != SC_VALUE_INPUT || c->defined[v]) return bad_value(c, (size_t)v, "it is listed as an input, but is none");
    c->defined[v] = true;
  }
  for (size_t k = 0; k < g->n_nodes; k++) SC_TRY(check_node(c, k));
  for (size_t i = 0; i < g->n_outputs; i++)
    if (!in_range(c, g->output[i].value) || !c->defined[g->output[i].value]) return bad_value(c, (size_t)g->output[i].value, "an output that nobody makes");
  return SC_OK;
}

sc_status sc__graph_check(const sc_graph *g) {
  size_t n = g->n_values + 1, bytes = n * (sizeof(sc_tensor *) + 1);
  checker c = {.g = g, .header = sc__alloc_zero(g->ctx, bytes)};
  if (!c.header) return sc__no_memory(g->ctx, bytes);
  c.defined = (bool *)(c.header + n);
  sc_status s = check_all(&c);
  for (size_t v = 0; v < g->n_values; v++) sc_tensor_release(c.header[v]);
  sc__release(g->ctx, c.header, bytes);
  return s;
}

sc_status sc__effects_check(const sc_graph *before, const sc_graph *after) {
  size_t a = 0, b = 0;
  for (;;) {
    while (a < before->n_nodes && !sc__node_acts(&before->node[a])) a++;
    while (b < after->n_nodes && !sc__node_acts(&after->node[b])) b++;
    if (a == before->n_nodes && b == after->n_nodes) return SC_OK;
    if (a == before->n_nodes || b == after->n_nodes || before->node[a].op != after->node[b].op)
      return sc__fail(before->ctx, SC_EINVAL, "graph check: a write or a random number is missing, new, or in another place (node %d, now %d)",
                      (int)a + 1, (int)b + 1);
    a++;
    b++;
  }
}

static sc_status broken_view(const sc_view_of_graph *v, const char *what, size_t at) {
  return sc__fail(v->g->ctx, SC_EINVAL, "graph check: %s (%d)", what, (int)at + 1);
}

sc_status sc__view_check(const sc_view_of_graph *v) {
  const sc_graph *g = v->g;
  for (size_t i = 0; i < g->n_values; i++) {
    int32_t r = v->same[i];
    if (r < 0 || (size_t)r >= g->n_values || v->same[r] != r) return broken_view(v, "a merged value leads nowhere", i);
    const sc_value *x = &g->value[i], *y = &g->value[r];
    if (x->dtype != y->dtype || x->ndim != y->ndim || memcmp(x->dim, y->dim, (size_t)x->ndim * 16) != 0)
      return broken_view(v, "a value was merged with another kind", i);
  }
  for (size_t k = 0; k < g->n_nodes; k++) {
    const sc_graph_node *n = &g->node[k];
    if (v->dead[k] && sc__node_acts(n)) return broken_view(v, "a node that writes or draws random numbers was dropped", k);
    for (int i = 0; i < n->n_in && !v->dead[k]; i++) {
      int32_t x = n->in[i] < 0 ? -1 : v->same[n->in[i]];
      if (x >= 0 && g->value[x].node >= 0 && v->dead[g->value[x].node]) return broken_view(v, "a node reads what was dropped", k);
    }
  }
  for (size_t i = 0; i < g->n_outputs; i++) {
    int32_t x = v->same[g->output[i].value];
    if (g->value[x].node >= 0 && v->dead[g->value[x].node]) return broken_view(v, "an output was dropped", i);
  }
  return SC_OK;
}
