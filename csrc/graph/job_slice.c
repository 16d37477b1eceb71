/* Runs in slices of time. The steps before the tail (schedule.c) run as work under a clock (base/slice.c): between steps and inside of them
** they look at the clock, and stop where it says so, to go on with the next slice. The tail, which changes what outlives the run, is one
** piece: everything that can fail without having changed anything is done before it, and it is begun only in a slice that has the time it
** took the last time, or at a slice's beginning.
**
** Until then nothing outside changes. Statistics that an op writes besides its results (running means) go to shadows, which are copied
** at the beginning of the tail. Random numbers are drawn from copies of the generators as they were at the start; at the end the generators
** become the copies, or, where something else drew meanwhile, move past whichever went further. */
#include "plan.h"

#include <string.h>

/* ---- what a plan needs besides, made at the first start ---- */

static size_t bound_count(const sc_plan *p) { return 2 * p->g->n_inputs + (size_t)p->n_fresh + 1; }

static bool add_drawn(sc_plan *p, sc_generator *g, int room) {
  for (int i = 0; i < p->n_drawn; i++) if (p->drawn[i].of == g) return true;
  if (p->n_drawn == room) return false;
  p->drawn[p->n_drawn++].of = g;
  return true;
}

/* The generators that nodes of g draw from, those of branches and loops as well. */
static bool find_drawn(sc_plan *p, const sc_graph *g, int room) {
  bool fits = true;
  for (size_t k = 0; k < g->n_nodes && fits; k++) {
    const sc_graph_node *n = &g->node[k];
    if (!sc__node_random(n)) continue;
    sc_generator *own = NULL;
    const sc_control *control = sc__node_control(n);
    for (int i = 0; i < n->op->n_attr; i++) if (n->attr[i].kind == SC_ATTR_GENERATOR) own = n->attr[i].p;
    for (int i = 0; control && i < control->n_graphs && fits; i++) fits = find_drawn(p, control->graph[i], room);
    if (control && control->replay) fits = fits && add_drawn(p, &p->ctx->rng, room);
    if (!control) fits = fits && add_drawn(p, own ? own : &p->ctx->rng, room);
  }
  return fits;
}

static sc_status make_shadows(sc_plan *p) {
  int n = 0;
  for (int i = 0; i < p->tail; i++) n += __builtin_popcount(p->step[i].defers);
  if (n == 0) return SC_OK;
  p->shadow = sc__alloc_zero(p->ctx, (size_t)n * sizeof *p->shadow);
  if (!p->shadow) return sc__no_memory(p->ctx, (size_t)n * sizeof *p->shadow);
  p->n_shadows = n;
  n = 0;
  for (int i = 0; i < p->tail; i++)
    for (int k = 0; k < p->step[i].n_in; k++) {
      if (!(p->step[i].defers >> k & 1)) continue;
      const sc_tensor *t = p->step[i].in[k];
      p->shadow[n] = (sc__shadow){.step = i, .in = k};
      SC_TRY(sc_tensor_new(p->ctx, (sc_dtype)t->dtype, t->ndim, t->dim, &p->shadow[n++].own));
    }
  return SC_OK;
}

enum { MOST_DRAWN = 16 };

static sc_status equip(sc_plan *p) {
  size_t bytes = (size_t)(p->n_steps + 1) * 2 * sizeof *p->took;
  if (p->took) return SC_OK;
  p->drawn = sc__alloc_zero(p->ctx, MOST_DRAWN * sizeof *p->drawn);
  if (!p->drawn) return sc__no_memory(p->ctx, MOST_DRAWN * sizeof *p->drawn);
  if (!find_drawn(p, p->g, MOST_DRAWN)) return sc__fail(p->ctx, SC_EINVAL, "job: the graph draws from more than %d generators", MOST_DRAWN);
  SC_TRY(make_shadows(p));
  p->slice = sc__slice_new(p->ctx);                    /* none: steps are not cut */
  p->took = sc__alloc_zero(p->ctx, bytes);
  if (!p->took) return sc__no_memory(p->ctx, bytes);
  p->longest = p->took + p->n_steps + 1;
  return SC_OK;
}

void sc__plan_unequip(sc_plan *p) {
  for (int i = 0; i < p->n_shadows; i++) sc_tensor_release(p->shadow[i].own);
  sc__release(p->ctx, p->shadow, (size_t)p->n_shadows * sizeof *p->shadow);
  sc__release(p->ctx, p->drawn, MOST_DRAWN * sizeof *p->drawn);
  sc__release(p->ctx, p->took, (size_t)(p->n_steps + 1) * 2 * sizeof *p->took);
  sc__slice_free(p->ctx, p->slice);
  p->shadow = NULL;
  p->drawn = NULL;
  p->took = NULL;
  p->slice = NULL;
  p->n_shadows = p->n_drawn = 0;
}

/* ---- generators ---- */

static void draw_own(sc_plan *p) {
  for (int i = 0; i < p->n_drawn; i++) { p->drawn[i].outside = *p->drawn[i].of; *p->drawn[i].of = p->drawn[i].own; }
}

static void draw_outside(sc_plan *p) {
  for (int i = 0; i < p->n_drawn; i++) { p->drawn[i].own = *p->drawn[i].of; *p->drawn[i].of = p->drawn[i].outside; }
}

static void settle_drawn(sc_plan *p) {
  for (int i = 0; i < p->n_drawn; i++) {
    sc__drawn *d = &p->drawn[i];
    bool alone = d->of->seed == d->seen.seed && d->of->offset == d->seen.offset;
    if (alone || (d->of->seed == d->own.seed && d->of->offset < d->own.offset)) *d->of = d->own;
  }
}

/* ---- starting and giving up ---- */

static void shadows_in(sc_plan *p) { for (int i = 0; i < p->n_shadows; i++) p->step[p->shadow[i].step].in[p->shadow[i].in] = p->shadow[i].own; }

static sc_tensor *shadowed(sc_plan *p, const sc__shadow *s) { return sc__plan_slot(p, p->g->node[p->step[s->step].node].in[s->in]); }

static void shadows_out(sc_plan *p) { for (int i = 0; i < p->n_shadows; i++) p->step[p->shadow[i].step].in[p->shadow[i].in] = shadowed(p, &p->shadow[i]); }

sc_status sc__plan_start(sc_plan *p, sc_tensor *const *in) {
  size_t n = p->g->n_inputs;
  if (p->running) return sc__fail(p->ctx, SC_EINVAL, "graph: this run is going on already; clone it to run it twice at once");
  sc_status s = equip(p);
  if (s != SC_OK) { sc__plan_unequip(p); return s; }
  p->bound = sc__alloc_zero(p->ctx, bound_count(p) * sizeof *p->bound);
  if (!p->bound) return sc__no_memory(p->ctx, bound_count(p) * sizeof *p->bound);
  p->running = true;
  p->at = 0;
  for (size_t i = 0; i < n; i++) p->bound[i] = sc_tensor_retain(in[i]);
  for (int i = 0; i < p->n_drawn; i++) p->drawn[i].own = p->drawn[i].seen = *p->drawn[i].of;
  shadows_in(p);
  s = sc__plan_begin(p, p->bound, p->bound + n, p->bound + 2 * n);
  if (s != SC_OK) sc__plan_cancel(p);
  return s;
}

void sc__plan_cancel(sc_plan *p) {
  if (!p->bound || p->advancing) return;
  if (sc__slice_going(p->slice)) {
    bool was = p->ctx->grad_enabled;
    p->ctx->grad_enabled = false;
    p->advancing = true;
    draw_own(p);
    sc__slice_drop(p->slice);
    draw_outside(p);
    p->advancing = false;
    p->ctx->grad_enabled = was;
  }
  shadows_out(p);
  for (size_t i = 0; i < bound_count(p); i++) sc_tensor_release(p->bound[i]);
  sc__release(p->ctx, p->bound, bound_count(p) * sizeof *p->bound);
  p->bound = NULL;
  p->running = false;
}

/* ---- going on ---- */

static sc_status run_one(sc_plan *p, sc_meta *meta) {
  const sc__step *step = &p->step[p->at];
  for (int i = 0; i < p->n_shadows && step->defers; i++)
    if (p->shadow[i].step == p->at) SC_TRY(sc__tensor_copy(p->shadow[i].own, shadowed(p, &p->shadow[i])));
  if (p->check_nan) SC_TRY(sc__watch_before(p, p->at));
  SC_TRY(sc__plan_step(p, p->at, meta));
  return p->check_nan ? sc__watch_after(p, p->at) : SC_OK;
}

/* What a step is expected to go without a look: a time that the machine had other work in counts for little. */
static void learn(sc_plan *p, int64_t longest, int64_t took) {
  int64_t *e = &p->longest[p->at];
  *e = !*e || longest < *e ? longest : *e + (longest - *e) / 8;
  p->took[p->at] = took;
}

/* Steps up to the tail, on the slice's stack. */
static void main_part(void *arg) {
  sc_plan *p = arg;
  sc_meta meta[SC_MAX_OUTPUTS];
  int64_t longest, took;
  sc__slice_measure(p->slice, &longest, &took);
  while (p->at < p->tail) {
    sc__slice_look(p->ctx, p->longest[p->at]);
    if (sc__slice_dropping(p->ctx)) return;
    p->status = run_one(p, meta);
    if (p->status != SC_OK) return;
    sc__slice_measure(p->slice, &longest, &took);
    learn(p, longest, took);
    p->at++;
  }
}

/* The same without a stack of its own, and for single steps (deadline 0). */
static bool main_part_here(sc_plan *p, int64_t deadline) {
  sc_meta meta[SC_MAX_OUTPUTS];
  int64_t begun = sc__now_ns(), t = begun;
  while (p->at < p->tail) {
    if (t > begun && t + p->longest[p->at] > deadline) return false;
    p->status = run_one(p, meta);
    if (p->status != SC_OK) return true;
    int64_t now = sc__now_ns();
    learn(p, now - t, now - t);
    p->at++;
    t = now;
  }
  return true;
}

/* What checks shapes and arguments comes first, for all of them. one: no more than a step. */
static sc_status tail(sc_plan *p, bool one) {
  sc_meta meta[SC_MAX_OUTPUTS];
  if (p->at == p->tail) {
    for (int i = p->tail; i < p->n_steps; i++) SC_TRY(sc__plan_infer(p, i, meta));
    for (int i = 0; i < p->n_shadows; i++) {
      sc_tensor *t = shadowed(p, &p->shadow[i]);
      SC_TRY(sc__tensor_copy(t, p->shadow[i].own));
      t->storage->version++;
    }
  }
  int64_t t = sc__now_ns();
  while (p->at < p->n_steps) {
    SC_TRY(run_one(p, meta));
    int64_t now = sc__now_ns();
    learn(p, now - t, now - t);
    p->at++;
    t = now;
    if (one) break;
  }
  return SC_OK;
}

static int64_t tail_time(const sc_plan *p) {
  int64_t ns = 0;
  for (int i = p->tail; i < p->n_steps; i++) ns += p->longest[i];
  return ns;
}

static sc_status advance(sc_plan *p, int64_t ns) {
  int64_t begun = sc__now_ns(), deadline = ns > INT64_MAX - begun ? INT64_MAX : begun + ns;
  bool one = ns < 0 && !sc__slice_going(p->slice), ended = true, fresh = p->at == p->tail && !sc__slice_going(p->slice);
  p->status = SC_OK;
  if (one && !fresh && p->at < p->tail) { main_part_here(p, 0); return p->status; }
  if (!fresh && p->at <= p->tail) ended = p->slice ? sc__slice_run(p->slice, main_part, p, deadline) : main_part_here(p, deadline);
  if (!ended || p->status != SC_OK) return p->status;
  if (!fresh && !one && p->at == p->tail && p->tail < p->n_steps && sc__now_ns() + tail_time(p) > deadline) return SC_OK;
  return tail(p, one);
}

sc_status sc__plan_advance(sc_plan *p, int64_t ns, bool check_nan, bool *done) {
  sc_context *ctx = p->ctx;
  *done = false;
  if (!p->bound) return sc__fail(ctx, SC_EINVAL, "job: it is over");
  if (p->advancing) return sc__fail(ctx, SC_EINVAL, "job: it is being advanced already");
  bool was = ctx->grad_enabled;
  ctx->grad_enabled = false;
  p->advancing = true;
  p->check_nan = check_nan;
  draw_own(p);
  sc_status s = advance(p, ns);
  draw_outside(p);
  p->advancing = false;
  ctx->grad_enabled = was;
  if (s != SC_OK) { sc__plan_cancel(p); return s; }
  *done = p->at == p->n_steps && !sc__slice_going(p->slice);
  if (*done) settle_drawn(p);
  return SC_OK;
}

sc_status sc__plan_finish(sc_plan *p, sc_tensor **out) {
  size_t n = p->g->n_inputs, i = 0;
  if (!p->bound || p->at < p->n_steps || sc__slice_going(p->slice)) return sc__fail(p->ctx, SC_EINVAL, "job: it is not done");
  sc_status s = sc__plan_write_back(p, p->bound, p->bound + n);
  for (; i < p->g->n_outputs && s == SC_OK; i++) s = sc__plan_output(p, i, p->bound, p->bound + 2 * n, &out[i]);
  if (s != SC_OK) for (size_t k = 0; k + 1 < i; k++) sc_tensor_release(out[k]);
  sc__plan_cancel(p);
  return s;
}

int64_t sc__plan_longest(const sc_plan *p, int i) { return p->took ? p->longest[i] : 0; }

void sc__plan_pieces(const sc_plan *p, int64_t *longest, int64_t *updates) {
  *longest = 0;
  *updates = p->took ? tail_time(p) : 0;
  for (int i = 0; i < p->tail && p->took; i++) if (p->longest[i] > *longest) *longest = p->longest[i];
}
