/* Runs and jobs of the C API: a graph with its plans, one for each set of actual sizes, found by the inputs' names.
**
** The graph of a run is the recorded one. When it has named sizes, the sizes that are fed choose a plan; a few are kept, the one used
** longest ago goes first. A job holds the plan that it executes, so neither that nor the run's end can take it away. */
#include "control.h"

#include <string.h>

/* A set of actual sizes and the plan for it. */
typedef struct sized { int64_t size[SC_SYMBOLS]; sc_plan *plan; uint64_t used; } sized;

struct sc_run {
  int32_t refs;                  /* the host's, and one of each job */
  sc_context *ctx;
  sc_graph *g;                   /* owned */
  sized at[8];
  int n;
  uint64_t clock;                /* counts uses */
  bool seeded;
  sc_generator own;              /* seeded: what it draws from instead of the context's */
};

static sc_status new_run(sc_context *ctx, sc_graph *g, sc_run **out) {
  sc_run *r = sc__alloc_zero(ctx, sizeof *r);
  if (!r) return sc__no_memory(ctx, sizeof *r);
  r->refs = 1;
  r->g = sc__graph_retain(g);
  r->ctx = ctx;
  atomic_fetch_add(&ctx->refs, 1);
  *out = r;
  return SC_OK;
}

sc_status sc_graph_compile(sc_graph *g, sc_run **out) {
  *out = NULL;
  if (g->ctx->building == g) g->ctx->building = NULL;
  return new_run(g->ctx, g, out);
}

sc_status sc_run_clone(const sc_run *r, sc_context *ctx, sc_run **out) {
  sc_graph *g;
  *out = NULL;
  if (!ctx) ctx = r->ctx;
  if (ctx == r->ctx && !sc__names_generator(r->g)) g = sc__graph_retain(r->g);
  else SC_TRY(sc__graph_move(r->g, ctx, &g));
  sc_status s = new_run(ctx, g, out);
  sc_graph_release(g);
  if (s != SC_OK) return s;
  (*out)->seeded = r->seeded;
  (*out)->own = r->own;
  return SC_OK;
}

void sc_run_seed(sc_run *r, uint64_t seed) {
  r->seeded = true;
  r->own = (sc_generator){seed, 0};
}

/* Around whatever the run's plans do: its own generator is the context's meanwhile. */
static void change_generator(sc_run *r) {
  if (!r->seeded) return;
  sc_generator g = r->ctx->rng;
  r->ctx->rng = r->own;
  r->own = g;
}

void sc_run_release(sc_run *r) {
  if (!r || --r->refs > 0) return;
  sc_context *ctx = r->ctx;
  for (int i = 0; i < r->n; i++) sc__plan_release(r->at[i].plan);
  sc_graph_release(r->g);
  sc__release(ctx, r, sizeof *r);
  sc__context_unref(ctx);
}

/* ---- what a run takes and gives ---- */

sc_context *sc_run_context(const sc_run *r) { return r->ctx; }
int sc_run_input_count(const sc_run *r) { return (int)r->g->n_inputs; }
int sc_run_output_count(const sc_run *r) { return (int)r->g->n_outputs; }
const char *sc_run_input_name(const sc_run *r, int i) { return r->g->value[r->g->input[i]].name; }
const char *sc_run_output_name(const sc_run *r, int i) { return r->g->output[i].name; }

/* The named size that dim d of input i is, or -1. */
static int symbol_of(const sc_graph *g, size_t i, int d) {
  int64_t size = g->value[g->input[i]].dim[d];
  for (int k = 0; k < g->n_sizes; k++) if (size == sc__stand_in(k)) return k;
  return -1;
}

void sc_run_input_info(const sc_run *r, int i, sc_dtype *dtype, int *ndim, int64_t *shape) {
  const sc_value *v = &r->g->value[r->g->input[i]];
  if (dtype) *dtype = (sc_dtype)v->dtype;
  if (ndim) *ndim = v->ndim;
  for (int d = 0; d < v->ndim && shape; d++) shape[d] = symbol_of(r->g, (size_t)i, d) < 0 ? v->dim[d] : -1;
}

const char *sc_run_input_size_name(const sc_run *r, int i, int dim) {
  int k = symbol_of(r->g, (size_t)i, dim);
  return k < 0 ? NULL : r->g->size_name[k];
}

void sc_run_get_stats(const sc_run *r, sc_run_stats *out) {
  *out = (sc_run_stats){.nodes = (int64_t)r->g->n_nodes, .plans = r->n};
  for (int i = 0; i < r->n; i++) {
    if (r->at[i].used != r->clock) continue;
    out->steps = sc__plan_steps(r->at[i].plan);
    out->arena_bytes = (int64_t)sc__plan_bytes(r->at[i].plan);
    sc__plan_pieces(r->at[i].plan, &out->longest_ns, &out->update_ns);
  }
}

/* ---- inputs and outputs by name ---- */

static sc_status find_inputs(sc_run *r, const sc_named_tensor *in, int n_in, sc_tensor **found) {
  const sc_graph *g = r->g;
  for (int k = 0; k < n_in; k++) {
    size_t i = 0;
    while (i < g->n_inputs && strcmp(g->value[g->input[i]].name, in[k].name) != 0) i++;
    if (i == g->n_inputs) return sc__fail(r->ctx, SC_EINVAL, "run: there is no input named \"%.200s\"", in[k].name);
    if (found[i]) return sc__fail(r->ctx, SC_EINVAL, "run: input \"%.200s\" is given twice", in[k].name);
    if (!in[k].tensor) return sc__fail(r->ctx, SC_EINVAL, "run: input \"%.200s\" has no tensor", in[k].name);
    found[i] = in[k].tensor;
  }
  for (size_t i = 0; i < g->n_inputs; i++)
    if (!found[i]) return sc__fail(r->ctx, SC_EINVAL, "run: input \"%.200s\" is missing", g->value[g->input[i]].name);
  return SC_OK;
}

/* Sizes that no input tells are 1. */
static sc_status actual_sizes(sc_run *r, sc_tensor *const *in, sc_sizes *z) {
  const sc_graph *g = r->g;
  z->n = g->n_sizes;
  for (int k = 0; k < SC_SYMBOLS; k++) z->actual[k] = -1;
  for (size_t i = 0; i < g->n_inputs; i++) {
    const sc_value *v = &g->value[g->input[i]];
    for (int d = 0; d < v->ndim && in[i]->ndim == v->ndim; d++) {
      int k = symbol_of(g, i, d);
      if (k < 0 || z->actual[k] == in[i]->dim[d]) continue;
      if (z->actual[k] >= 0)
        return sc__fail(r->ctx, SC_EINVAL, "run: input \"%.200s\": size \"%.100s\" is %lld here and %lld elsewhere", v->name, g->size_name[k],
                        (long long)in[i]->dim[d], (long long)z->actual[k]);
      z->actual[k] = in[i]->dim[d];
    }
  }
  for (int k = 0; k < SC_SYMBOLS; k++) if (z->actual[k] < 0) z->actual[k] = 1;
  return SC_OK;
}

/* The plan for these inputs; borrowed. */
static sc_status plan_for(sc_run *r, sc_tensor *const *in, sc_plan **out) {
  sc_sizes z;
  SC_TRY(actual_sizes(r, in, &z));
  int k = 0;
  while (k < r->n && memcmp(r->at[k].size, z.actual, sizeof z.actual) != 0) k++;
  if (k == r->n) {
    sc_graph *g = r->g;
    sc_plan *p;
    if (z.n) SC_TRY(sc__graph_instantiate(r->g, &z, &g));
    sc_status s = sc__plan_new(g, SC_PASS_ALL, &p);
    if (g != r->g) sc_graph_release(g);
    SC_TRY(s);
    if (r->n == SC_COUNT(r->at)) {
      k = 0;
      for (int i = 1; i < r->n; i++) if (r->at[i].used < r->at[k].used) k = i;
      sc__plan_release(r->at[k].plan);
    } else r->n++;
    r->at[k].plan = p;
    memcpy(r->at[k].size, z.actual, sizeof z.actual);
  }
  r->at[k].used = ++r->clock;
  *out = r->at[k].plan;
  return SC_OK;
}

static sc_status output_named(sc_run *r, const char *name, size_t *i) {
  for (*i = 0; *i < r->g->n_outputs; ++*i) if (strcmp(r->g->output[*i].name, name) == 0) return SC_OK;
  return sc__fail(r->ctx, SC_EINVAL, "run: there is no output named \"%.200s\"", name);
}

/* Results by name; `all` are taken. */
static void hand_out(sc_run *r, sc_tensor **all, sc_named_tensor *out, int n_out) {
  size_t i;
  for (int k = 0; k < n_out; k++) {
    output_named(r, out[k].name, &i);
    out[k].tensor = sc_tensor_retain(all[i]);
  }
}

static sc_status check_outputs(sc_run *r, sc_named_tensor *out, int n_out) {
  size_t i;
  for (int k = 0; k < n_out; k++) out[k].tensor = NULL;
  for (int k = 0; k < n_out; k++) SC_TRY(output_named(r, out[k].name, &i));
  return SC_OK;
}

static size_t list_bytes(const sc_run *r) { return (r->g->n_inputs + r->g->n_outputs + 1) * sizeof(sc_tensor *); }

sc_status sc_run_call(sc_run *r, const sc_named_tensor *in, int n_in, sc_named_tensor *out, int n_out) {
  sc_plan *p;
  SC_TRY(check_outputs(r, out, n_out));
  sc_tensor **found = sc__alloc_zero(r->ctx, list_bytes(r)), **all = found + r->g->n_inputs;
  if (!found) return sc__no_memory(r->ctx, list_bytes(r));
  sc_status s = find_inputs(r, in, n_in, found);
  if (s == SC_OK) s = plan_for(r, found, &p);
  if (s == SC_OK) {
    change_generator(r);
    s = sc__plan_run(p, found, all);
    change_generator(r);
  }
  if (s == SC_OK) {
    hand_out(r, all, out, n_out);
    for (size_t i = 0; i < r->g->n_outputs; i++) sc_tensor_release(all[i]);
  }
  sc__release(r->ctx, found, list_bytes(r));
  return s;
}

/* ---- jobs ---- */

struct sc_job {
  sc_run *run;                 /* what made it; kept */
  sc_plan *plan;               /* kept; NULL: it is over */
  sc_tensor **out;             /* owned: the results, when it is done */
  bool done;
};

static void drop_results(sc_job *j) {
  for (size_t i = 0; i < j->run->g->n_outputs; i++) { sc_tensor_release(j->out[i]); j->out[i] = NULL; }
}

static size_t job_bytes(const sc_run *r) { return sizeof(sc_job) + (r->g->n_outputs + 1) * sizeof(sc_tensor *); }

sc_status sc_run_start(sc_run *r, const sc_named_tensor *in, int n_in, sc_job **out) {
  *out = NULL;
  sc_plan *p;
  sc_job *j = sc__alloc_zero(r->ctx, job_bytes(r));
  sc_tensor **found = sc__alloc_zero(r->ctx, list_bytes(r));
  sc_status s = j && found ? find_inputs(r, in, n_in, found) : sc__no_memory(r->ctx, list_bytes(r));
  if (s == SC_OK) s = plan_for(r, found, &p);
  if (s == SC_OK) {
    change_generator(r);
    s = sc__plan_start(p, found);
    change_generator(r);
  }
  sc__release(r->ctx, found, list_bytes(r));
  if (s != SC_OK) { sc__release(r->ctx, j, job_bytes(r)); return s; }
  *j = (sc_job){.run = r, .plan = sc__plan_retain(p), .out = (sc_tensor **)(j + 1)};
  r->refs++;
  *out = j;
  return SC_OK;
}

static void let_go(sc_job *j) {
  sc__plan_release(j->plan);
  j->plan = NULL;
}

sc_status sc_job_advance(sc_job *j, int64_t microseconds, bool *done) {
  *done = j->done;
  if (j->done) return SC_OK;
  if (!j->plan) return sc__fail(j->run->ctx, SC_EINVAL, "job: it was cancelled or stopped by an error");
  int64_t most = INT64_MAX / 2000, us = microseconds < 0 ? 0 : microseconds > most ? most : microseconds;
  change_generator(j->run);
  sc_status s = sc__plan_advance(j->plan, us * 1000, false, done);
  change_generator(j->run);
  if (s == SC_OK && *done) {
    s = sc__plan_finish(j->plan, j->out);
    j->done = s == SC_OK;
  }
  if (s != SC_OK || *done) let_go(j);
  return s;
}

sc_status sc_job_result(sc_job *j, sc_named_tensor *out, int n_out) {
  bool done;
  SC_TRY(check_outputs(j->run, out, n_out));
  SC_TRY(sc_job_advance(j, INT64_MAX, &done));
  hand_out(j->run, j->out, out, n_out);
  return SC_OK;
}

void sc_job_cancel(sc_job *j) {
  if (!j->plan) return;
  change_generator(j->run);
  sc__plan_cancel(j->plan);
  change_generator(j->run);
  let_go(j);
}

void sc_job_free(sc_job *j) {
  if (!j) return;
  sc_job_cancel(j);
  drop_results(j);
  sc_run *r = j->run;
  sc__release(r->ctx, j, job_bytes(r));
  sc_run_release(r);
}
