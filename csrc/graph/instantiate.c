/* Sizes that are not known when a graph is recorded. Each symbolic size stands in the graph as a number nobody would write by chance,
** a *stand-in*: a prime above a million. Shape rules then compute with ordinary integers, and what depends on a symbolic size can be
** read off the result: 784 * p is 784 times that size, p + 2 is it plus two. (Not near round numbers: with 1000003, an epsilon of 1e-6 would
** read as one over it less three.) A graph with stand-ins is made ready for actual sizes by
** emitting its nodes again into a new graph, with every stand-in in attributes and in numbers of the script replaced; the ops' own
** shape rules work out, and check, all the rest. Nothing is run and no Lua is called.
**
** A number v is read as (whole multiple of one stand-in, itself read the same way) + (a constant of at most 64 either way): exact
** multiples first. Numbers of the script may also be the reciprocal of such a number, as in a mean. */
#include "control.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t STAND_IN[SC_SYMBOLS] = {1046527, 1310117, 1716139, 2248139, 2945101, 3858103, 5054113, 6620791, 8673271, 11362111};

int64_t sc__stand_in(int symbol) { return STAND_IN[symbol]; }

static bool decompose(const sc_sizes *z, int64_t v, int64_t *out, int depth);

/* v = quotient * (stand-in k) + rest, the quotient read the same way; false: v does not contain a stand-in */
static bool term(const sc_sizes *z, int64_t v, int depth, int *symbol, int64_t *quotient, int64_t *rest) {
  int64_t inner;
  if (v > INT64_MAX / 2 || v < -(INT64_MAX / 2) || llabs(v) < STAND_IN[0] - 64 || depth > 4) return false;
  for (int offset = 0; offset <= 1; offset++)          /* exact multiples, then those with a small constant */
    for (int k = z->n - 1; k >= 0; k--) {
      int64_t p = STAND_IN[k], q = (v + (v < 0 ? -p / 2 : p / 2)) / p, r = v - q * p;
      if (q == 0 || (offset ? llabs(r) > 64 || llabs(q) > 64 : r != 0)) continue;
      if (!decompose(z, q, &inner, depth + 1) && llabs(q) >= STAND_IN[0]) continue;
      *symbol = k;
      *quotient = q;
      *rest = r;
      return true;
    }
  return false;
}

static bool decompose(const sc_sizes *z, int64_t v, int64_t *out, int depth) {
  int k;
  int64_t q, r, inner;
  if (!term(z, v, depth, &k, &q, &r)) return false;
  *out = (decompose(z, q, &inner, depth + 1) ? inner : q) * z->actual[k] + r;
  return true;
}

bool sc__size_term(int n, int64_t v, int *symbol, int64_t *quotient, int64_t *rest) {
  const sc_sizes z = {.n = n};
  return term(&z, v, 0, symbol, quotient, rest);
}

bool sc__is_symbolic_size(int64_t size) {
  const sc_sizes all = {.n = SC_SYMBOLS};
  int64_t out;
  return decompose(&all, size, &out, 0);
}

int64_t sc__sizes_apply(const sc_sizes *z, int64_t v) {
  int64_t out;
  return decompose(z, v, &out, 0) ? out : v;
}

static double apply_number(const sc_sizes *z, double f) {
  int64_t out;
  if (!(fabs(f) < 9e15)) return f;
  if (f == floor(f) && decompose(z, (int64_t)f, &out, 0)) return (double)out;
  if (f != 0 && fabs(f) < 1e-5) {
    double inverse = nearbyint(1 / f);
    if (fabs(1 / f - inverse) <= 1e-6 * fabs(inverse) && fabs(inverse) < 9e15 && decompose(z, (int64_t)inverse, &out, 0) && out) return 1.0 / (double)out;
  }
  return f;
}

typedef sc__instance instance;

void sc__instance_end(instance *s) {
  while (s->controls) {
    sc_control *p = s->controls;
    s->controls = p->next;
    sc__control_release(p->now);
    p->now = p->next = NULL;
  }
}

/* A branch or loop for these sizes: made once, for the node and for those that look at its results. */
static sc_status control(instance *s, sc_attr *a) {
  sc_control *p = a->p, like = *p;
  sc_graph *graph[2] = {NULL, NULL};
  if (!p->now) {
    sc_status st = SC_OK;
    like.rounds = sc__sizes_apply(s->sizes, p->rounds);
    for (int i = 0; i < p->n_graphs && st == SC_OK; i++) st = sc__graph_instantiate(p->graph[i], s->sizes, &graph[i]);
    if (st == SC_OK) st = sc__control_new(p->ctx, &like, graph, &p->now);
    for (int i = 0; i < p->n_graphs; i++) sc_graph_release(graph[i]);
    SC_TRY(st);
    p->next = s->controls;
    s->controls = p;
  }
  a->p = p->now;
  return SC_OK;
}

static sc_status attributes(instance *s, const sc_graph_node *n, sc_attr **out, size_t *bytes) {
  *bytes = 0;
  *out = sc__attrs_copy(s->from->ctx, n->attr, n->op->n_attr, bytes);
  if (n->op->n_attr && !*out) return sc__no_memory(s->from->ctx, *bytes);
  for (int i = 0; i < n->op->n_attr; i++) {
    sc_attr *a = &(*out)[i];
    if (a->kind == SC_ATTR_GRAPH && s->sizes->n) SC_TRY(control(s, a));
    if (a->kind == SC_ATTR_INT) a->i = sc__sizes_apply(s->sizes, a->i);
    if (a->kind == SC_ATTR_FLOAT) a->f = apply_number(s->sizes, a->f);
    if (a->kind == SC_ATTR_INTS) for (int k = 0; k < a->n; k++) ((int64_t *)a->v)[k] = sc__sizes_apply(s->sizes, a->v[k]);
  }
  return SC_OK;
}

/* A captured number of the script may hold a stand-in; other captures stay what they are. */
static sc_status captured(const instance *s, sc_tensor *t, sc_tensor **out) {
  sc_context *ctx = s->from->ctx;
  if (t->flags & SC_T_WRAPPED && t->dtype == SC_INT64) {
    int64_t v = *(int64_t *)t->data, w = sc__sizes_apply(s->sizes, v);
    if (v != w) return sc__tensor_scalar(ctx, true, w, 0, out);
  } else if (t->flags & SC_T_WRAPPED && t->dtype == SC_FLOAT64) {
    double v = *(double *)t->data, w = apply_number(s->sizes, v);
    if (v != w) return sc__tensor_scalar(ctx, false, 0, w, out);
  }
  *out = sc_tensor_retain(t);
  return SC_OK;
}

sc_status sc__graph_again(instance *s, const sc_graph_node *n) {
  sc_context *ctx = s->from->ctx;
  sc_tensor **in = sc__alloc_zero(ctx, (size_t)(n->n_in + 1) * sizeof *in), *out[SC_MAX_OUTPUTS];
  if (!in) return sc__no_memory(ctx, 64);
  for (int i = 0; i < n->n_in; i++) in[i] = n->in[i] < 0 ? NULL : s->now[n->in[i]];
  sc_attr *attr;
  size_t bytes;
  int n_out = 0;
  sc_status st = attributes(s, n, &attr, &bytes);
  if (st == SC_OK) st = sc__emit(ctx, n->op, in, n->n_in, attr, n->base, out, &n_out);
  sc__release(ctx, attr, bytes);
  sc__release(ctx, in, (size_t)(n->n_in + 1) * sizeof *in);
  SC_TRY(st);
  sc_graph *g = ctx->tracing;
  if (g && g->n_nodes) { g->node[g->n_nodes - 1].where = n->where; g->node[g->n_nodes - 1].said = n->said; }
  for (int i = 0; i < n_out; i++) {
    if (n->inplace && i == 0) { sc_tensor_release(out[i]); continue; }
    sc_tensor_release(s->now[n->out[i]]);
    s->now[n->out[i]] = out[i];
  }
  return SC_OK;
}

static sc_status rebuild(instance *s, sc_graph *to) {
  const sc_graph *g = s->from;
  for (size_t i = 0; i < g->n_inputs; i++) {
    const sc_value *v = &g->value[g->input[i]];
    int64_t dim[SC_MAX_DIMS];
    for (int k = 0; k < v->ndim; k++) dim[k] = sc__sizes_apply(s->sizes, v->dim[k]);
    SC_TRY(sc_graph_input(to, v->name, (sc_dtype)v->dtype, v->ndim, dim, &s->now[g->input[i]]));
  }
  for (size_t v = 0; v < g->n_values; v++)
    if (g->value[v].captured) SC_TRY(captured(s, g->value[v].captured, &s->now[v]));
  for (size_t k = 0; k < g->n_nodes; k++) SC_TRY(sc__graph_again(s, &g->node[k]));
  return SC_OK;
}

sc__emitting sc__emit_into(sc_graph *to) {
  sc_context *ctx = to->ctx;
  sc__emitting was = {ctx->tracing, ctx->building, ctx->grad_enabled};
  ctx->grad_enabled = false;
  ctx->tracing = to;
  return was;
}

void sc__emit_into_end(sc_context *ctx, const sc__emitting *was) {
  ctx->tracing = was->tracing;
  ctx->building = was->building;
  ctx->grad_enabled = was->grad;
}

void sc__same_requires(const sc_graph *g, sc_graph *to) {
  for (size_t v = 0; v < g->n_values; v++) {
    int32_t w = g->value[v].captured ? sc__captured_value(to, g->value[v].captured) : -1;
    if (w >= 0) to->value[w].requires = g->value[v].requires;
  }
}

sc_status sc__graph_instantiate(const sc_graph *g, const sc_sizes *sizes, sc_graph **out) {
  sc_context *ctx = g->ctx;
  instance s = {.from = g, .sizes = sizes, .now = sc__alloc_zero(ctx, (g->n_values + 1) * sizeof *s.now)};
  sc_graph *to = NULL;
  if (!s.now) return sc__no_memory(ctx, g->n_values * sizeof *s.now);
  sc_status st = sc_graph_new(ctx, &to);
  if (st == SC_OK) {
    if (g->generators) to->generators = sc_tensor_retain(g->generators);
    sc__emitting was = sc__emit_into(to);
    st = rebuild(&s, to);
    for (size_t i = 0; i < g->n_outputs && st == SC_OK; i++) st = sc_graph_output(to, g->output[i].name, s.now[g->output[i].value]);
    sc__emit_into_end(ctx, &was);
  }
  sc__instance_end(&s);
  for (size_t v = 0; v < g->n_values; v++) sc_tensor_release(s.now[v]);
  sc__release(ctx, s.now, (g->n_values + 1) * sizeof *s.now);
  if (st != SC_OK) { sc_graph_release(to); return st; }
  sc__same_requires(g, to);
  *out = to;
  return SC_OK;
}

static sc_status apply_nodes(instance *s, sc_tensor *const *in, sc_tensor **out) {
  const sc_graph *g = s->from;
  for (size_t i = 0; i < g->n_inputs; i++) s->now[g->input[i]] = sc_tensor_retain(in[i]);
  for (size_t v = 0; v < g->n_values; v++)
    if (g->value[v].kind == SC_VALUE_CAPTURE) SC_TRY(captured(s, g->value[v].captured, &s->now[v]));
  for (size_t k = 0; k < g->n_nodes; k++) SC_TRY(sc__graph_again(s, &g->node[k]));
  for (size_t i = 0; i < g->n_outputs; i++) out[i] = sc_tensor_retain(s->now[g->output[i].value]);
  return SC_OK;
}

sc_status sc__graph_apply(const sc_graph *g, const sc_sizes *sizes, sc_tensor *const *in, sc_tensor **out) {
  sc_context *ctx = g->ctx;
  size_t bytes = (g->n_values + 1) * sizeof(sc_tensor *);
  instance s = {.from = g, .sizes = sizes, .now = sc__alloc_zero(ctx, bytes)};
  if (!s.now) return sc__no_memory(ctx, bytes);
  sc_status st = apply_nodes(&s, in, out);
  sc__instance_end(&s);
  for (size_t v = 0; v < g->n_values; v++) sc_tensor_release(s.now[v]);
  sc__release(ctx, s.now, bytes);
  return st;
}
