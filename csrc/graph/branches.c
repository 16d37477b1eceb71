/* Steps that run beside each other. A *region* is a run of steps that falls apart into *branches*: no branch needs what another one makes. On
** the pool's threads the branches of a region go at the same time, and what comes after waits for all of them.
**
** Which regions. What a step takes is an estimate (the column .cost, sc__tiles_cost); what its kernel divides among threads by itself counts for
** that much less when it runs alone. A region saves the time its steps take one after another less its longest thread's, and is worth
** having from SAVES_FROM on: a thread that sleeps is there after some 50 us. Among all windows of steps those are taken that save most and do not
** overlap, the best from each step on being known before that of the step before it. Components of a window are found with the window: one
** more step joins those it reads from. Then the steps of a branch are brought together, in their order.
**
** Only steps before the tail (schedule.c) that write nothing but their results and draw no random numbers take part, and of those only ops whose
** row says that they may: so the order of everything that acts is as it was. Under a clock, on one thread, and in the first run (where
** shapes are checked, and libraries take their memory) steps go one after another, in the plan's order.
**
** Same bits: kernels cut their work as they would alone (sc__beside). When steps of several branches fail, the one that came first in the
** recording is reported: a branch stops when another one has failed at an earlier step. */
#include "plan.h"

#include <string.h>

enum { MOST_BRANCHES = 64, MOST_STEPS = 512, WORK = 400000 };      /* of a region; steps looked at in all, so that making a plan stays cheap */
#define SAVES_FROM 60e3                                            /* nanoseconds */

typedef struct cost { double one, alone; } cost;                   /* on one thread; by itself, on all of them. one 0: must run by itself */

typedef struct finder {
  sc_plan *p;
  int n, threads;                /* steps before the tail */
  double from;                   /* what a region has to save */
  cost *cost;                    /* [n] */
  int32_t *maker;                /* [n_values] of roots: the step that makes it; -1: none of these */
  int32_t *up;                   /* [n] the union-find of a window */
  double *sum, *load;            /* [n] of a component, by its top; [threads] */
  double *best;                  /* [n + 1] saved by the steps from here on */
  int32_t *end;                  /* [n] of the region that begins here; 0: none */
} finder;

static cost step_cost(const finder *f, const sc__step *s) {
  const sc_graph_node *n = &f->p->g->node[s->node];
  sc_cost c = {0};
  if (s->tiles) {
    bool divided;
    c.ns = sc__tiles_cost(s->tiles, &divided);
    if (divided) c.spread = c.ns;
  } else if (n->op->def->cost && !s->outer[0] && !s->defers && sc__node_pure(n)) {
    n->op->def->cost(&s->call, &c);
  }
  return (cost){c.ns, c.ns - c.spread + c.spread / f->threads};
}

static void find_makers(finder *f) {
  const sc_plan *p = f->p;
  for (size_t v = 0; v < p->n_values; v++) f->maker[v] = -1;
  for (int s = 0; s < f->n; s++)
    for (int32_t k = sc__first_of(p, p->step[s].node); k >= 0; k = sc__next_of(p, k))
      for (int i = p->g->node[k].inplace; i < p->g->node[k].n_out; i++) f->maker[sc__view_root(&p->view, p->g->node[k].out[i])] = s;
}

/* ---- windows ---- */

static int32_t top(finder *f, int32_t s) {
  while (f->up[s] != s) s = f->up[s] = f->up[f->up[s]];
  return s;
}

/* Step s joins the components of the window [from, s) that it reads from. */
static void join(finder *f, int32_t from, int32_t s) {
  const sc_plan *p = f->p;
  f->up[s] = s;
  f->sum[s] = f->cost[s].one;
  for (int32_t k = sc__first_of(p, p->step[s].node); k >= 0; k = sc__next_of(p, k)) {
    const sc_graph_node *n = &p->g->node[k];
    for (int i = 0; i < n->n_in; i++) {
      int32_t m = n->in[i] < 0 ? -1 : f->maker[sc__view_root(&p->view, n->in[i])];
      if (m < from || m >= s) continue;
      int32_t t = top(f, m);
      if (t == top(f, s)) continue;
      f->up[top(f, s)] = t;
      f->sum[t] += f->sum[s];
    }
  }
}

/* The time of the busiest thread when the window's components are given to threads, the largest first. -> how many there are */
static int spans(finder *f, int32_t from, int32_t end, double *longest) {
  double part[MOST_BRANCHES];
  int n = 0;
  for (int32_t s = from; s < end; s++) {
    if (f->up[s] != s) continue;
    if (n == MOST_BRANCHES) return n + 1;
    int k = n++;
    for (; k > 0 && part[k - 1] < f->sum[s]; k--) part[k] = part[k - 1];
    part[k] = f->sum[s];
  }
  memset(f->load, 0, (size_t)f->threads * sizeof *f->load);
  *longest = 0;
  for (int k = 0; k < n; k++) {
    int least = 0;
    for (int t = 1; t < f->threads; t++) if (f->load[t] < f->load[least]) least = t;
    f->load[least] += part[k];
    if (f->load[least] > *longest) *longest = f->load[least];
  }
  return n;
}

/* Fills best and end, from the last step to the first. A window grows while what it could save at the most is worth a region. */
static void choose(finder *f) {
  int work = WORK;
  for (int32_t s = f->n - 1; s >= 0; s--) {
    double alone = 0;
    f->best[s] = f->best[s + 1];
    f->end[s] = 0;
    for (int32_t e = s; e < f->n && e - s < MOST_STEPS && f->cost[e].one > 0 && work > 0; e++, work--) {
      join(f, s, e);
      alone += f->cost[e].alone;
      if (alone < 2 * f->from) continue;
      double longest;
      int n = spans(f, s, e + 1, &longest);
      work -= (e - s) / 8;
      double saves = alone - longest;
      if (n < 2 || n > MOST_BRANCHES || saves < f->from || saves - f->from / 64 + f->best[e + 1] <= f->best[s]) continue;
      f->best[s] = saves - f->from / 64 + f->best[e + 1];
      f->end[s] = e + 1;
    }
  }
}

/* ---- making regions ---- */

/* The window's steps, branch by branch. room: as many steps. */
static void make_region(finder *f, int32_t from, int32_t end, sc__step *room) {
  sc_plan *p = f->p;
  sc__region *r = &p->region[p->n_regions++];
  *r = (sc__region){.first = from, .end = end, .branch = p->n_branches};
  for (int32_t s = from; s < end; s++) join(f, from, s);
  int n = 0;
  for (int32_t t = from; t < end; t++) {
    if (top(f, t) != t) continue;
    sc__branch *b = &p->branch[p->n_branches++];
    *b = (sc__branch){.first = from + n, .ns = f->sum[t]};
    for (int32_t s = from; s < end; s++) if (top(f, s) == t) {
      room[n] = p->step[s];
      room[n].region = p->n_regions - 1;
      room[n++].branch = t;                            /* any number that the others do not have */
    }
    b->end = from + n;
    r->n++;
  }
  memcpy(p->step + from, room, (size_t)n * sizeof *room);
  for (int k = 1; k < r->n; k++)                       /* the largest is begun first */
    for (int i = r->branch + k; i > r->branch && p->branch[i - 1].ns < p->branch[i].ns; i--) {
      sc__branch b = p->branch[i];
      p->branch[i] = p->branch[i - 1];
      p->branch[i - 1] = b;
    }
  if (r->n > p->most_branches) p->most_branches = r->n;
}

static sc_status make_regions(finder *f) {
  sc_plan *p = f->p;
  int regions = 0, steps = 0;
  for (int32_t s = 0; s < f->n; s = f->end[s] ? f->end[s] : s + 1) if (f->end[s]) { regions++; steps += f->end[s] - s; }
  if (!regions) return SC_OK;
  p->room_branches = steps;
  p->room_regions = regions;
  p->region = sc__alloc_zero(p->ctx, (size_t)regions * sizeof *p->region);
  p->branch = sc__alloc_zero(p->ctx, (size_t)steps * sizeof *p->branch);
  sc__step *room = sc__alloc(p->ctx, (size_t)steps * sizeof *room);
  if (p->region && p->branch && room)
    for (int32_t s = 0; s < f->n; s = f->end[s] ? f->end[s] : s + 1) if (f->end[s]) make_region(f, s, f->end[s], room);
  bool fits = p->region && p->branch && room;
  sc__release(p->ctx, room, (size_t)steps * sizeof *room);
  if (fits) p->failure = sc__alloc(p->ctx, (size_t)p->most_branches * sizeof *p->failure);
  return fits && p->failure ? SC_OK : sc__no_memory(p->ctx, (size_t)steps * sizeof *room);
}

sc_status sc__find_branches(sc_plan *p) {
  for (int s = 0; s < p->n_steps; s++) { p->step[s].turn = s; p->step[s].region = p->step[s].branch = -1; }
  if (!(p->passes & SC_PASS_BRANCHES) || p->ctx->threads < 2 || p->tail < 2) return SC_OK;
  size_t n = (size_t)p->tail + 1, threads = (size_t)p->ctx->threads;
  size_t bytes = n * (sizeof(cost) + 2 * sizeof(double) + 2 * sizeof(int32_t)) + threads * sizeof(double) + (p->n_values + 1) * sizeof(int32_t);
  finder f = {.p = p, .n = p->tail, .threads = p->ctx->threads, .cost = sc__alloc_zero(p->ctx, bytes)};
  if (!f.cost) return sc__no_memory(p->ctx, bytes);
  f.sum = (double *)(f.cost + n);
  f.best = f.sum + n;
  f.load = f.best + n;
  f.up = (int32_t *)(f.load + threads);
  f.end = f.up + n;
  f.maker = f.end + n;
  double all = 0;
  for (int s = 0; s < f.n; s++) { f.cost[s] = step_cost(&f, &p->step[s]); all += f.cost[s].alone; }
  sc_status status = SC_OK;
  f.from = p->ctx->branches_from > 0 ? p->ctx->branches_from : SAVES_FROM;
  if (all >= 2 * f.from) {
    find_makers(&f);
    choose(&f);
    status = make_regions(&f);
  }
  sc__release(p->ctx, f.cost, bytes);
  return status;
}

void sc__branches_free(sc_plan *p) {
  sc__release(p->ctx, p->failure, (size_t)p->most_branches * sizeof *p->failure);
  sc__release(p->ctx, p->branch, (size_t)p->room_branches * sizeof *p->branch);
  sc__release(p->ctx, p->region, (size_t)p->room_regions * sizeof *p->region);
}

/* ---- running ---- */

typedef struct running { sc_plan *p; const sc__region *r; atomic_int stop; } running;       /* stop: the earliest turn that failed */

/* Steps of a branch from `at` on, until one fails or an earlier one of another branch has. */
static void go_on(running *run, int at, const sc__branch *b, sc__failure *failure) {
  sc_meta meta[SC_MAX_OUTPUTS];
  failure->status = SC_OK;
  for (; at < b->end; at++) {
    const sc__step *s = &run->p->step[at];
    if (s->turn > atomic_load(&run->stop)) return;
    failure->step = at;
    failure->status = sc__run_step(run->p, at, meta);
    if (failure->status == SC_OK) continue;
    int stop = atomic_load(&run->stop);
    while (s->turn < stop && !atomic_compare_exchange_weak(&run->stop, &stop, s->turn)) { }
    return;
  }
}

static void run_branch(void *arg, int64_t begin, int64_t end) {
  running *run = arg;
  for (int64_t i = begin; i < end; i++) {
    const sc__branch *b = &run->p->branch[run->r->branch + i];
    sc__failure *failure = &run->p->failure[i];
    failure->text[0] = 0;
    sc__errors_to(failure->text);
    go_on(run, b->first, b, failure);
    sc__errors_to(NULL);
  }
}

/* Products may need the library's memory on every thread; without it they stay on one. */
static bool ready(sc_context *ctx) {
  if (!ctx->blas_used || ctx->blas_warm >= ctx->threads) return true;
  return sc__blas_ready(ctx, ctx->threads) == SC_OK && sc__blas_parallel(ctx);
}

bool sc__may_branch(const sc_plan *p) {
  sc_context *ctx = p->ctx;
  return p->warm && ctx->threads > 1 && !ctx->slice && !sc__in_worker() && ready(ctx);
}

sc_status sc__run_region(sc_plan *p, int region) {
  running run = {.p = p, .r = &p->region[region]};
  int n = run.r->n, worst = -1;
  atomic_init(&run.stop, INT32_MAX);
  sc__beside(p->ctx, n, run_branch, &run);
  for (int i = 0; i < n; i++) {
    sc__failure *f = &p->failure[i];
    if (f->status != SC_ENOMEM) continue;              /* alone, a step may be given what others held, or what the script lets go of */
    atomic_store(&run.stop, INT32_MAX);
    go_on(&run, f->step, &p->branch[run.r->branch + i], f);
    if (f->status != SC_OK) memcpy(f->text, p->ctx->error, sizeof f->text);
  }
  for (int i = 0; i < n; i++)
    if (p->failure[i].status != SC_OK && (worst < 0 || p->step[p->failure[i].step].turn < p->step[p->failure[worst].step].turn)) worst = i;
  if (worst < 0) return SC_OK;
  const sc__failure *f = &p->failure[worst];
  memcpy(p->ctx->error, f->text, sizeof f->text);
  return sc__located(p, p->step[f->step].node, f->status);
}
