/* Plans: a graph with everything decided before it runs.
**
** Making one: the passes; a header per live value; tile programs for groups and pointwise nodes (programs.c); the order of the steps
** (schedule.c); a place for every value (memory.c). Inputs' and outputs' headers are pointed at their memory when a run begins, and what
** lies in the same memory after them.
**
** Running is a loop over prepared calls: pointwise nodes and programs go straight to their kernels; other ops repeat `infer`, which
** checks whatever depends on data. After the first run nothing is asked of the host's allocator. Results handed out are fresh memory. */
#include "plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Headers borrow their storage; before they are released it has to be taken away. */
static void unpoint(sc_plan *p) {
  for (size_t v = 0; v < p->n_values && p->slot; v++)
    if (p->slot[v] && p->g->value[v].kind != SC_VALUE_CAPTURE) p->slot[v]->storage = NULL;
}

static void free_steps(sc_plan *p) {
  for (int i = 0; i < p->n_steps; i++) {
    sc__step *s = &p->step[i];
    sc__release(p->ctx, s->in, (size_t)s->n_in * sizeof *s->in);
    sc__tiles_free(p->ctx, s->tiles);
    sc_tensor_release(s->scratch);
    sc__control_release(s->program);
  }
  sc__release(p->ctx, p->step, (size_t)p->room_steps * sizeof *p->step);
}

sc_plan *sc__plan_retain(sc_plan *p) { p->refs++; return p; }

void sc__plan_release(sc_plan *p) {
  if (!p || --p->refs > 0) return;
  sc_context *ctx = p->ctx;
  sc__plan_cancel(p);
  sc__plan_unequip(p);
  unpoint(p);
  sc__branches_free(p);
  free_steps(p);
  for (size_t v = 0; v < p->n_values && p->slot; v++) sc_tensor_release(p->slot[v]);
  sc__release(ctx, p->slot, (p->n_values + 1) * sizeof *p->slot);
  sc__release(ctx, p->inside, p->n_values + 1);
  sc__release(ctx, p->patch, (p->n_values + 1) * sizeof *p->patch);
  sc__release(ctx, p->home, (p->n_values + 1) * sizeof *p->home);
  sc__release(ctx, p->fresh, (p->n_values + 1) * sizeof *p->fresh);
  sc__release(ctx, p->guard, (p->n_values + 1) * sizeof *p->guard);
  sc_tensor_release(p->arena);
  sc__passes_free(ctx, &p->view);
  sc_graph_release(p->g);
  sc__release(ctx, p, sizeof *p);
  sc__context_unref(ctx);
}

bool sc__plan_valid(const sc_plan *p) {
  for (size_t v = 0; v < p->n_values; v++) {
    const sc_value *x = &p->g->value[v];
    if (x->captured && !(x->captured->flags & SC_T_WRAPPED) && sc_requires_grad(x->captured) != x->requires) return false;
  }
  return true;
}

size_t sc__plan_bytes(const sc_plan *p) { return p->arena_bytes; }
int sc__plan_steps(const sc_plan *p) { return p->n_steps; }
int sc__plan_inner_steps(const sc_plan *p) {
  int n = 0;
  for (int i = 0; i < p->n_steps; i++) if (p->step[i].program) n += sc__control_steps(p->step[i].program);
  return n;
}

int sc__plan_branches(const sc_plan *p) { return p->n_branches; }

int sc__plan_nodes(const sc_plan *p) {
  int n = 0;
  for (size_t k = 0; k < p->g->n_nodes; k++) n += !p->view.dead[k];
  return n;
}

/* ---- headers ---- */

/* A header without memory; its storage is set before it is used. */
static sc_status header(sc_plan *p, const sc_value *v, sc_tensor **out) {
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)v->dtype, v->ndim, v->dim);
  return sc__tensor_symbolic(p->ctx, &m, v->dim + v->ndim, NULL, out);
}

static sc_status make_headers(sc_plan *p) {
  const sc_graph *g = p->g;
  for (size_t i = 0; i < g->n_values; i++) {
    const sc_value *v = &g->value[i];
    if (p->view.same[i] != (int32_t)i) continue;
    if (v->kind == SC_VALUE_CAPTURE) p->slot[i] = sc_tensor_retain(v->captured);
    else if (v->kind == SC_VALUE_INPUT || !p->view.dead[v->node]) SC_TRY(header(p, v, &p->slot[i]));
  }
  return SC_OK;
}

/* The value whose memory v is, after merging. */
static int32_t root_of(const sc_plan *p, int32_t v) { return sc__view_root(&p->view, v); }

static sc_tensor *slot_of(const sc_plan *p, int32_t v) { return v < 0 ? NULL : p->slot[p->view.same[v]]; }

/* ---- steps ---- */

static sc_status add_step(sc_plan *p, int32_t k, sc_tiles *tiles) {
  const sc_graph_node *n = &p->g->node[k];
  sc__step *s = &p->step[p->n_steps++];
  memset(s, 0, sizeof *s);
  s->node = k;
  s->tiles = tiles;
  s->n_in = tiles ? 0 : n->n_in;
  s->in = s->n_in ? sc__alloc(p->ctx, (size_t)s->n_in * sizeof *s->in) : NULL;
  if (s->n_in && !s->in) return sc__no_memory(p->ctx, (size_t)s->n_in * sizeof *s->in);
  for (int i = 0; i < s->n_in; i++) s->in[i] = slot_of(p, n->in[i]);
  s->call = (sc_call){.ctx = p->ctx, .op = n->op, .in = s->in, .n_in = s->n_in, .attr = n->attr, .base = n->base, .inplace = n->inplace,
                      .n_out = n->n_out, .said = n->said};
  for (int i = 0; i < n->n_out; i++) s->call.out[i] = slot_of(p, n->out[i]);
  const sc_control *program = sc__node_control(n);
  if (program) {                                       /* two plans of a graph may run at the same time, with other passes */
    SC_TRY(sc__control_new(p->ctx, program, (sc_graph *const *)program->graph, &s->program));
    s->program->passes = p->passes;
  }
  s->writes = n->inplace || n->op->def->writes;
  if (!tiles && p->view.group[k] == k) {               /* an update with the outer product that is its gradient */
    const sc_graph_node *outer = &p->g->node[p->view.first[k]];
    for (int i = 0; i < 2; i++) s->outer[i] = slot_of(p, outer->in[i]);
  }
  if (n->inplace && !n->op->def->pw && !(n->op->flags & SC_OP_DIRECT)) s->target = s->call.out[0];   /* computed apart, then copied */
  return SC_OK;
}

static sc_status make_steps(sc_plan *p, bool fuse) {
  const sc_graph *g = p->g;
  size_t n = g->n_nodes + 1;
  p->room_steps = (int)n;
  p->step = sc__alloc(p->ctx, n * sizeof *p->step);
  sc_tiles **tiles = sc__alloc_zero(p->ctx, n * sizeof *tiles);
  sc_status s = p->step && tiles ? sc__programs_new(p, tiles) : sc__no_memory(p->ctx, n * sizeof *p->step);
  if (s == SC_OK && fuse) s = sc__absorb_outer(p);
  for (int32_t i = 0; i < p->view.n_order && s == SC_OK; i++) {
    int32_t last = p->view.order[i];
    bool whole = p->view.group[last] >= 0;
    for (int32_t k = whole ? last : p->view.first[last] >= 0 ? p->view.first[last] : last; k >= 0 && s == SC_OK; ) {
      s = add_step(p, k, tiles[k]);
      tiles[k] = NULL;
      k = whole || k == last ? -1 : p->view.next[k];
    }
  }
  for (size_t k = 0; k < n && tiles; k++) sc__tiles_free(p->ctx, tiles[k]);
  sc__release(p->ctx, tiles, n * sizeof *tiles);
  return s;
}

/* Passes took inputs and captures for different memory, which matters once either is written to. */
static void find_guards(sc_plan *p) {
  const sc_graph *g = p->g;
  bool input_written = false;
  for (int pass = 0; pass < 2; pass++)
    for (int32_t m = 0; m < (int32_t)g->n_nodes; m++) {
      const sc_graph_node *n = &g->node[m];
      if (p->view.dead[m]) continue;
      for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] < 0) continue;
        const sc_value *root = &g->value[root_of(p, n->in[i])];
        bool written = sc__node_writes(n, i);
        if (pass == 0 && written && root->kind == SC_VALUE_INPUT) input_written = true;
        if (pass == 0 || !root->captured || !(written || input_written) || root->captured->flags & SC_T_WRAPPED) continue;
        int k = 0;
        while (k < p->n_guards && p->guard[k] != root->captured->storage) k++;
        p->guard[k] = root->captured->storage;
        if (k == p->n_guards) p->n_guards++;
      }
    }
}

static sc_status build(sc_plan *p, unsigned passes) {
  p->passes = passes;
  size_t n = p->n_values + 1;
  SC_TRY(sc__passes_run(p->g, passes, &p->view));
  p->slot = sc__alloc_zero(p->ctx, n * sizeof *p->slot);
  p->patch = sc__alloc_zero(p->ctx, n * sizeof *p->patch);
  p->fresh = sc__alloc_zero(p->ctx, n * sizeof *p->fresh);
  p->guard = sc__alloc_zero(p->ctx, n * sizeof *p->guard);
  p->home = sc__alloc(p->ctx, n * sizeof *p->home);
  p->inside = sc__alloc_zero(p->ctx, n);
  if (!p->slot || !p->inside || !p->patch || !p->fresh || !p->guard || !p->home) return sc__no_memory(p->ctx, n * sizeof *p->slot);
  SC_TRY(make_headers(p));
  SC_TRY(make_steps(p, passes & SC_PASS_FUSE));
  SC_TRY(sc__schedule(p));
  SC_TRY(sc__find_branches(p));
  SC_TRY(sc__lay_out(p));
  if (p->ctx->check_graphs) SC_TRY(sc__memory_check(p));
  find_guards(p);
  for (int i = 0; i < p->n_steps; i++) {              /* places for in-place results computed apart, and attributes */
    sc__step *s = &p->step[i];
    if (s->program) { s->attr = (sc_attr){.kind = SC_ATTR_GRAPH, .p = s->program}; s->call.attr = &s->attr; }   /* steps do not move any more */
    if (s->target) {
      SC_TRY(sc_tensor_new(p->ctx, (sc_dtype)s->target->dtype, s->target->ndim, s->target->dim, &s->scratch));
      s->call.out[0] = s->scratch;
    }
  }
  return SC_OK;
}

sc_status sc__plan_new(sc_graph *g, unsigned passes, sc_plan **out) {
  sc_plan *p = sc__alloc_zero(g->ctx, sizeof *p);
  if (!p) return sc__no_memory(g->ctx, sizeof *p);
  p->refs = 1;
  p->ctx = g->ctx;
  atomic_fetch_add(&g->ctx->refs, 1);
  sc_status s = sc__graph_rewrite(g, passes, &p->g);
  if (s == SC_OK) {
    p->n_values = p->g->n_values;
    s = build(p, passes);
  }
  if (s != SC_OK) { sc__plan_release(p); return s; }
  *out = p;
  return SC_OK;
}

/* ---- running ---- */

sc_tensor *sc__plan_slot(const sc_plan *p, int32_t v) { return slot_of(p, v); }

static sc_status infer(sc__step *s, sc_meta *meta) {
  sc_call *c = &s->call;
  if (!s->inferred) {                                  /* shapes are fixed; what depends on data is checked by run */
    c->meta = meta;
    int n = c->n_out;
    SC_TRY(c->op->def->infer(c));
    if (c->n_out != n) return sc__bad_call(c, "the number of results changed");
    for (int i = 0; i < n; i++) {
      sc_tensor *o = c->out[i];
      if (o->ndim != meta[i].ndim || memcmp(o->dim, meta[i].dim, (size_t)o->ndim * 8) != 0)
        return sc__bad_call(c, "the result's shape depends on data, which a plan cannot follow");
    }
    s->inferred = true;
  }
  return SC_OK;
}

sc_status sc__plan_infer(sc_plan *p, int i, sc_meta *meta) {
  sc__step *s = &p->step[i];
  sc_status status = s->tiles ? SC_OK : infer(s, meta);
  return status == SC_OK ? SC_OK : sc__located(p, s->node, status);
}

sc_status sc__run_step(sc_plan *p, int i, sc_meta *meta) {
  sc__step *s = &p->step[i];
  if (s->tiles) { sc__tiles_run(p->ctx, s->tiles); return SC_OK; }
  SC_TRY(infer(s, meta));
  const sc_op *op = s->call.op->def;
  SC_TRY(s->outer[0] ? op->run_outer(&s->call, s->outer[0], s->outer[1]) : op->run(&s->call));
  return s->target ? sc__tensor_copy(s->target, s->scratch) : SC_OK;
}

sc_status sc__plan_step(sc_plan *p, int i, sc_meta *meta) {
  sc_status s = sc__run_step(p, i, meta);
  if (s != SC_OK) return sc__located(p, p->step[i].node, s);
  if (!p->step[i].writes) return SC_OK;
  const sc_graph_node *n = &p->g->node[p->step[i].node];
  for (int k = 0; k < n->n_in; k++)
    if (sc__node_writes(n, k) && p->step[i].in[k] == slot_of(p, n->in[k])) slot_of(p, n->in[k])->storage->version++;
  return SC_OK;
}

static sc_status run_steps(sc_plan *p) {
  sc_meta meta[SC_MAX_OUTPUTS];
  bool beside = p->n_regions && sc__may_branch(p);
  int region = 0, i = 0;
  while (i < p->n_steps) {
    if (beside && region < p->n_regions && p->region[region].first == i) {
      SC_TRY(sc__run_region(p, region));
      i = p->region[region++].end;
      continue;
    }
    if (p->ctx->slice) sc__slice_look(p->ctx, 0);        /* a branch or loop inside of a run in slices */
    SC_TRY(sc__plan_step(p, i++, meta));
  }
  p->warm = true;
  return SC_OK;
}

bool sc__plan_clashes(const sc_plan *p, const sc_tensor *t) {
  for (int k = 0; k < p->n_guards; k++) if (p->guard[k] == t->storage) return true;
  return false;
}

static sc_status check_input(sc_plan *p, size_t i, const sc_tensor *t) {
  SC_TRY(sc__graph_takes(p->g, i, t));
  if (sc__plan_clashes(p, t))
    return sc__fail(p->ctx, SC_EINVAL, "graph: input %s shares memory with a tensor that was captured, and one of them is written to",
                    p->g->value[p->g->input[i]].name);
  return SC_OK;
}

/* The tensor handed out for output i; new. */
sc_status sc__plan_output(sc_plan *p, size_t i, sc_tensor *const *in, sc_tensor **made, sc_tensor **out) {
  int32_t v = p->view.same[p->g->output[i].value];
  const sc_value *x = &p->g->value[v];
  if (x->kind == SC_VALUE_CAPTURE) { *out = sc_tensor_retain(p->slot[v]); return SC_OK; }
  if (x->kind == SC_VALUE_INPUT)
    for (size_t k = 0; k < p->g->n_inputs; k++)
      if (p->g->input[k] == v) { *out = sc_tensor_retain(in[k]); return SC_OK; }
  for (int k = 0; k < p->n_fresh && !x->view; k++)
    if (p->fresh[k] == v) { *out = sc_tensor_retain(made[k]); return SC_OK; }
  return sc__tensor_alias(p->slot[v], out);
}

/* t laid out as input v was when it was recorded: packed, but for tensors from outside of a branch or body. */
static sc_status arranged(sc_plan *p, const sc_value *v, sc_tensor *t, sc_tensor **out) {
  if (memcmp(t->dim, v->dim, (size_t)v->ndim * 16) == 0) { *out = sc_tensor_retain(t); return SC_OK; }
  sc_meta m;
  int64_t extent = 1;
  sc__meta_set(&m, (sc_dtype)v->dtype, v->ndim, v->dim);
  sc__contiguous_strides(v->ndim, v->dim, m.stride);
  if (memcmp(m.stride, v->dim + v->ndim, (size_t)v->ndim * 8) == 0) return sc__tensor_packed(t, out);
  for (int i = 0; i < v->ndim; i++) {
    m.stride[i] = v->dim[v->ndim + i];
    if (v->dim[i] > 1) extent += (v->dim[i] - 1) * m.stride[i];
  }
  sc_tensor *block;
  SC_TRY(sc_tensor_new(p->ctx, m.dtype, 1, &extent, &block));
  m.offset = 0;
  sc_status s = sc__tensor_view(block, &m, out);
  sc_tensor_release(block);
  SC_TRY(s);
  s = sc__tensor_copy(*out, t);
  if (s != SC_OK) { sc_tensor_release(*out); *out = NULL; }
  return s;
}

sc_status sc__plan_begin(sc_plan *p, sc_tensor *const *in, sc_tensor **packed, sc_tensor **made) {
  const sc_graph *g = p->g;
  for (size_t i = 0; i < g->n_inputs; i++) {
    SC_TRY(check_input(p, i, in[i]));
    SC_TRY(arranged(p, &g->value[g->input[i]], in[i], &packed[i]));
    sc__point(p, g->input[i], packed[i]->storage, packed[i]->data);
  }
  for (int i = 0; i < p->n_fresh; i++) {
    const sc_value *v = &g->value[p->fresh[i]];
    sc_meta m;
    sc__meta_set(&m, (sc_dtype)v->dtype, v->ndim, v->dim);
    SC_TRY(sc__tensor_like_meta(p->ctx, "graph", &m, &made[i]));
    sc__point(p, p->fresh[i], made[i]->storage, made[i]->data);
  }
  for (int i = 0; i < p->n_patches; i++) {
    const sc_tensor *home = p->slot[p->home[root_of(p, p->patch[i])]];
    sc__point(p, p->patch[i], home->storage, home->data);
  }
  return SC_OK;
}

/* Inputs that were not packed ran as copies; what was written to those goes back. */
sc_status sc__plan_write_back(sc_plan *p, sc_tensor *const *in, sc_tensor **packed) {
  for (size_t i = 0; i < p->g->n_inputs; i++)
    if (packed[i] != in[i] && packed[i]->storage->version) SC_TRY(sc__tensor_copy(in[i], packed[i]));
  return SC_OK;
}

sc_status sc__plan_run(sc_plan *p, sc_tensor *const *in, sc_tensor **out) {
  const sc_graph *g = p->g;
  sc_context *ctx = p->ctx;
  if (p->running) return sc__fail(ctx, SC_EINVAL, "graph: this run is going on already; clone it to run it twice at once");
  size_t bytes = (g->n_inputs + (size_t)p->n_fresh + 1) * sizeof(sc_tensor *);
  sc_tensor **packed = sc__alloc_zero(ctx, bytes), **made = packed + g->n_inputs;
  if (!packed) return sc__no_memory(ctx, bytes);
  bool was = ctx->grad_enabled;
  ctx->grad_enabled = false;
  p->running = true;
  sc_status s = sc__plan_begin(p, in, packed, made);
  if (s == SC_OK) s = run_steps(p);
  if (s == SC_OK) s = sc__plan_write_back(p, in, packed);
  size_t n = 0;
  for (; n < g->n_outputs && s == SC_OK; n++) s = sc__plan_output(p, n, in, made, &out[n]);
  if (s != SC_OK) for (size_t i = 0; i + 1 < n; i++) sc_tensor_release(out[i]);
  p->running = false;
  ctx->grad_enabled = was;
  for (size_t i = 0; i < g->n_inputs + (size_t)p->n_fresh; i++) sc_tensor_release(packed[i]);
  sc__release(ctx, packed, bytes);
  return s;
}

/* ---- looking at a run in slices (job_slice.c) ---- */

void sc__plan_step_info(const sc_plan *p, int i, int32_t *node, bool *inside, int64_t *ns, int64_t *bytes) {
  const sc_graph_node *n = &p->g->node[p->step[i].node];
  *node = n->origin;
  *inside = n->inside;
  *ns = p->took ? p->took[i] : 0;
  *bytes = 0;
  for (int k = 0; k < n->n_out; k++) {
    const sc_tensor *t = slot_of(p, n->out[k]);
    if (t) *bytes += t->numel * (int64_t)sc_dtype_size((sc_dtype)t->dtype);
  }
}

int sc__plan_at(const sc_plan *p) { return p->bound ? p->at : -1; }

int sc__plan_count(const sc_plan *p, int i, bool out) {
  const sc_graph_node *n = &p->g->node[p->step[i].node];
  return out ? n->n_out : n->n_in;
}

sc_tensor *sc__plan_peek(const sc_plan *p, int i, bool out, int k) {
  const sc_graph_node *n = &p->g->node[p->step[i].node];
  return k < (out ? n->n_out : n->n_in) ? slot_of(p, out ? n->out[k] : n->in[k]) : NULL;
}
