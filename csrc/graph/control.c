/* Branches and loops inside graphs. Each branch or body is a graph of its own; a node has them as its attribute, an sc_control, and
** runs them as plans. Only the branch taken runs; a loop keeps nothing from one round to the next but what is carried.
**
** An op has few results, a loop may have many. So the node has one, a block of bytes, into which the results are laid one after
** another, each at a multiple of 64; `control_result` is the view of one of them. Nothing here is differentiable: the gradients of
** branches and loops are branches and loops again, recorded as custom nodes of the tape (lua/sconce/control.lua).
**
** The gradient of `while` cannot know how many rounds there were when memory is planned. Its node runs the body again from the
** start, keeps what was carried into each round, and then walks back over that: nothing outlives the node, so a run may be cloned,
** repeated and differentiated twice from the same forward. */
#include "control.h"

#include <string.h>

/* ---- the attribute ---- */

sc_control *sc__control_retain(sc_control *p) { p->refs++; return p; }

void sc__control_release(sc_control *p) {
  if (!p || --p->refs > 0) return;
  for (int i = 0; i < 2; i++) { sc__plan_release(p->plan[i]); sc_graph_release(p->graph[i]); }
  sc__release(p->ctx, p, sizeof *p);
}

static bool draws(const sc_graph *g) {
  for (size_t k = 0; k < g->n_nodes; k++) if (sc__node_random(&g->node[k])) return true;
  return false;
}

static int formals(const sc_control *p, int graph) {
  switch (p->kind) {
    case SC_CONTROL_WHILE: return p->n_carry;
    case SC_CONTROL_SCAN: return p->n_carry + p->n_x;
    case SC_CONTROL_WHILE_BACK: return graph == 0 ? p->n_carry : p->n_carry + p->n_dy;
    default: return 0;
  }
}

static int outside(const sc_control *p, int graph) { return (int)p->graph[graph]->n_inputs - formals(p, graph); }

int sc__control_lead(const sc_control *p) {
  switch (p->kind) {
    case SC_CONTROL_COND: return 1 + p->replay;
    case SC_CONTROL_WHILE_BACK: return p->n_carry + 1 + p->n_dy + p->replay;
    default: return p->n_carry + p->n_x + p->replay;
  }
}

int sc__control_operands(const sc_control *p) {
  int n = sc__control_lead(p);
  for (int i = 0; i < p->n_graphs; i++) n += outside(p, i);
  return n;
}

static int scanned(const sc_control *p) { return (int)p->graph[0]->n_outputs - p->n_carry; }

static bool hands_out_state(const sc_control *p) { return p->random && p->kind != SC_CONTROL_WHILE_BACK; }

int sc__control_results(const sc_control *p) {
  int state = hands_out_state(p);
  switch (p->kind) {
    case SC_CONTROL_WHILE: return p->n_carry + 1 + state;
    case SC_CONTROL_SCAN: return p->n_carry + scanned(p) + (p->keep ? p->n_carry : 0) + state;
    case SC_CONTROL_WHILE_BACK: return (int)p->graph[1]->n_outputs;
    default: return (int)p->graph[0]->n_outputs + state;
  }
}

const char *sc__control_op(const sc_control *p) {
  static const char *const OPS[] = {"control_cond", "control_while", "control_scan", "control_while_backward"};
  return OPS[p->kind];
}

static void meta_of(const sc_graph *g, int32_t value, bool stacked, int64_t rounds, sc_meta *m) {
  const sc_value *v = &g->value[value];
  m->dtype = (sc_dtype)v->dtype;
  m->ndim = 0;
  if (stacked) m->dim[m->ndim++] = rounds;
  for (int i = 0; i < v->ndim; i++) m->dim[m->ndim++] = v->dim[i];
  sc__contiguous_strides(m->ndim, m->dim, m->stride);
}

static void state_meta(const sc_control *p, sc_meta *m) {
  *m = (sc_meta){.dtype = SC_INT64, .ndim = 1, .dim = {2}, .stride = {1}};
  if (p->kind == SC_CONTROL_SCAN) *m = (sc_meta){.dtype = SC_INT64, .ndim = 2, .dim = {p->rounds, 2}, .stride = {2, 1}};
}

static void result_meta(const sc_control *p, int i, sc_meta *m) {
  if (hands_out_state(p) && i == sc__control_results(p) - 1) { state_meta(p, m); return; }
  const sc_graph *g = p->graph[p->kind == SC_CONTROL_WHILE || p->kind == SC_CONTROL_WHILE_BACK];
  int n = (int)g->n_outputs;
  if (i < n) meta_of(g, g->output[i].value, p->kind == SC_CONTROL_SCAN && i >= p->n_carry, p->rounds, m);
  else if (p->kind == SC_CONTROL_SCAN) meta_of(g, g->input[i - n], true, p->rounds, m);
  else *m = (sc_meta){.dtype = SC_INT64};
}

/* Where result i begins in the block; i one past the last: the block's size. */
static sc_status place(const sc_control *p, int i, int64_t *at) {
  *at = 0;
  for (int k = 0; k < i; k++) {
    sc_meta m;
    int64_t n;
    result_meta(p, k, &m);
    SC_TRY(sc__numel(p->ctx, sc__control_op(p), m.dtype, m.ndim, m.dim, &n));
    n *= (int64_t)sc_dtype_size(m.dtype);
    if (__builtin_add_overflow(*at, (n + 63) / 64 * 64, at)) return sc__fail(p->ctx, SC_EINVAL, "%s: too many bytes", sc__control_op(p));
  }
  return SC_OK;
}

static sc_status same(const sc_control *p, const char *what, int i, const sc_graph *a, int32_t x, const sc_graph *b, int32_t y) {
  const sc_value *v = &a->value[x], *w = &b->value[y];
  if (v->dtype == w->dtype && v->ndim == w->ndim && memcmp(v->dim, w->dim, (size_t)v->ndim * 8) == 0) return SC_OK;
  char one[200], two[200];
  return sc__fail(p->ctx, SC_EINVAL, "%s: %s %d: %s %s does not fit %s %s", sc__control_op(p), what, i + p->ctx->index_base,
                  sc_dtype_name((sc_dtype)v->dtype), sc__shape_text(v->ndim, v->dim, one, sizeof one), sc_dtype_name((sc_dtype)w->dtype),
                  sc__shape_text(w->ndim, w->dim, two, sizeof two));
}

static sc_status check(const sc_control *p) {
  const sc_graph *a = p->graph[0], *b = p->graph[1], *body = p->kind == SC_CONTROL_WHILE ? b : a;
  for (int i = 0; i < p->n_graphs; i++)
    if (outside(p, i) < 0) return sc__fail(p->ctx, SC_EINVAL, "%s: a graph has too few inputs", sc__control_op(p));
  if (p->kind == SC_CONTROL_COND) {
    if (a->n_outputs != b->n_outputs) return sc__fail(p->ctx, SC_EINVAL, "%s: the branches differ in their number of results", sc__control_op(p));
    for (int i = 0; i < (int)a->n_outputs; i++) SC_TRY(same(p, "result", i, a, a->output[i].value, b, b->output[i].value));
    return SC_OK;
  }
  if ((int)body->n_outputs < p->n_carry) return sc__fail(p->ctx, SC_EINVAL, "%s: the body has too few results", sc__control_op(p));
  for (int i = 0; i < p->n_carry; i++) SC_TRY(same(p, "carried value", i, body, body->input[i], body, body->output[i].value));
  if (p->kind == SC_CONTROL_WHILE_BACK && (int)b->n_outputs < p->n_dy) return sc__fail(p->ctx, SC_EINVAL, "%s: the gradients are too few", sc__control_op(p));
  if (p->kind == SC_CONTROL_WHILE) {
    int64_t n = 1;
    for (int i = 0; a->n_outputs == 1 && i < a->value[a->output[0].value].ndim; i++) n *= a->value[a->output[0].value].dim[i];
    if (n != 1) return sc__fail(p->ctx, SC_EINVAL, "%s: the condition has to be one element", sc__control_op(p));
  }
  if (p->kind == SC_CONTROL_WHILE && (a->n_outputs != 1 || (int)b->n_outputs != p->n_carry))
    return sc__fail(p->ctx, SC_EINVAL, "%s: the number of results is wrong", sc__control_op(p));
  for (int i = 0; i < p->n_dy; i++) SC_TRY(same(p, "gradient", i, b, b->input[p->n_carry + i], b, b->output[i].value));
  return SC_OK;
}

sc_status sc__control_new(sc_context *ctx, const sc_control *like, sc_graph *const *graphs, sc_control **out) {
  sc_control *p = sc__alloc_zero(ctx, sizeof *p);
  if (!p) return sc__no_memory(ctx, sizeof *p);
  *p = *like;
  p->refs = 1;
  p->ctx = ctx;
  p->plan[0] = p->plan[1] = NULL;
  p->graph[0] = p->graph[1] = NULL;
  p->now = p->next = NULL;
  p->passes = SC_PASS_EXACT;                           /* run op by op */
  for (int i = 0; i < p->n_graphs; i++) {
    p->graph[i] = sc__graph_retain(graphs[i]);
    p->random = p->random || draws(graphs[i]);
  }
  sc_status s = check(p);
  if (s != SC_OK) { sc__control_release(p); return s; }
  *out = p;
  return SC_OK;
}

int sc__control_steps(const sc_control *p) {
  int n = 0;
  for (int i = 0; i < p->n_graphs; i++) if (p->plan[i]) n += sc__plan_steps(p->plan[i]) + sc__plan_inner_steps(p->plan[i]);
  return n;
}

/* ---- running ---- */

typedef struct job {
  sc_call *call;
  sc_control *p;
  sc_tensor **carry, **next;     /* owned: [n_carry + the body's results] each */
  sc_tensor **in;                /* of the graph that is run */
  int n;
  sc_generator rng;              /* as it was */
} job;

static void drop(sc_tensor **list, int n) {
  for (int i = 0; i < n; i++) { sc_tensor_release(list[i]); list[i] = NULL; }
}

static size_t job_bytes(const job *j) {
  size_t most = 0;
  for (int i = 0; i < j->p->n_graphs; i++) if (j->p->graph[i]->n_inputs > most) most = j->p->graph[i]->n_inputs;
  return ((size_t)j->n * 2 + most + 1) * sizeof(sc_tensor *);
}

static sc_status job_new(sc_call *c, job *j) {
  *j = (job){.call = c, .p = c->attr[0].p, .rng = c->ctx->rng};
  sc_control *p = j->p;
  j->n = p->n_carry;
  for (int i = 0; i < p->n_graphs; i++) if ((int)p->graph[i]->n_outputs > j->n) j->n = (int)p->graph[i]->n_outputs;
  j->carry = sc__alloc_zero(c->ctx, job_bytes(j));
  if (!j->carry) return sc__no_memory(c->ctx, job_bytes(j));
  j->next = j->carry + j->n;
  j->in = j->next + j->n;
  for (int i = 0; i < p->n_graphs; i++) {
    if (p->plan[i]) continue;
    sc_status s = sc__plan_new(p->graph[i], p->passes, &p->plan[i]);
    if (s == SC_OK) continue;
    sc__release(c->ctx, j->carry, job_bytes(j));
    return s;
  }
  return SC_OK;
}

static sc_status job_end(job *j, sc_status s) {
  if (j->p->replay) j->call->ctx->rng = j->rng;
  drop(j->carry, j->n);
  drop(j->next, j->n);
  sc__release(j->call->ctx, j->carry, job_bytes(j));
  return s;
}

/* Runs a graph on formals already in j->in, leaving its results in j->next. */
static sc_status run_graph(job *j, int graph) {
  const sc_control *p = j->p;
  int first = sc__control_lead(p) + (graph ? outside(p, 0) : 0), n = outside(p, graph), at = formals(p, graph);
  for (int i = 0; i < n; i++) j->in[at + i] = j->call->in[first + i];
  drop(j->next, j->n);
  return sc__plan_run(p->plan[graph], j->in, j->next);
}

/* t becomes result i, or its row `row` when that is not negative. */
static sc_status put(job *j, int i, int64_t row, const sc_tensor *t) {
  sc_meta m;
  sc_tensor *to;
  int64_t at;
  result_meta(j->p, i, &m);
  SC_TRY(place(j->p, i, &at));
  m.offset = at / (int64_t)sc_dtype_size(m.dtype);
  if (row >= 0) {
    m.offset += row * m.stride[0];
    m.ndim--;
    memmove(m.dim, m.dim + 1, (size_t)m.ndim * 8);
    memmove(m.stride, m.stride + 1, (size_t)m.ndim * 8);
  }
  SC_TRY(sc__tensor_view(j->call->out[0], &m, &to));
  sc_status s = sc__tensor_copy(to, t);
  sc_tensor_release(to);
  return s;
}

static sc_status put_all(job *j, sc_tensor **list, int n) {
  for (int i = 0; i < n; i++) SC_TRY(put(j, i, -1, list[i]));
  return SC_OK;
}

/* The generator's state goes out, for a backward that draws the same numbers again; or it is set to what it was then. */
static sc_status states(job *j, int64_t row) {
  const sc_control *p = j->p;
  sc_context *ctx = j->call->ctx;
  if (p->replay) {
    const sc_tensor *t = j->call->in[sc__control_lead(p) - 1];
    const char *at = t->data + (row < 0 ? 0 : row * sc__stride(t)[0] * 8);
    if (t->ndim && sc__stride(t)[t->ndim - 1] != 1) return sc__bad_call(j->call, "the state of the generator is not packed");
    memcpy(&ctx->rng.seed, at, 8);
    memcpy(&ctx->rng.offset, at + 8, 8);
  }
  if (!hands_out_state(p)) return SC_OK;
  int64_t at;
  SC_TRY(place(p, sc__control_results(p) - 1, &at));
  char *to = j->call->out[0]->data + at + (row < 0 ? 0 : row * 16);
  memcpy(to, &ctx->rng.seed, 8);
  memcpy(to + 8, &ctx->rng.offset, 8);
  return SC_OK;
}

static bool truth(const sc_tensor *t) { return sc__load((sc_dtype)t->dtype, t->data).f != 0; }

static void start(job *j) { for (int i = 0; i < j->p->n_carry; i++) j->carry[i] = sc_tensor_retain(j->call->in[i]); }

static void advance(job *j) {
  for (int i = 0; i < j->p->n_carry; i++) {
    sc_tensor_release(j->carry[i]);
    j->carry[i] = j->next[i];
    j->next[i] = NULL;
  }
}

static void give_carried(job *j) { for (int i = 0; i < j->p->n_carry; i++) j->in[i] = j->carry[i]; }

static sc_status cond_run(sc_call *c) {
  job j;
  SC_TRY(job_new(c, &j));
  sc_status s = states(&j, -1);
  if (s == SC_OK) s = run_graph(&j, truth(c->in[0]) ? 0 : 1);
  if (s == SC_OK) s = put_all(&j, j.next, (int)j.p->graph[0]->n_outputs);
  return job_end(&j, s);
}

static sc_status while_loop(job *j, int64_t *rounds) {
  start(j);
  for (*rounds = 0; ; ++*rounds) {
    give_carried(j);
    SC_TRY(run_graph(j, 0));
    if (!truth(j->next[0])) return SC_OK;
    give_carried(j);
    SC_TRY(run_graph(j, 1));
    advance(j);
  }
}

static sc_status while_run(sc_call *c) {
  job j;
  int64_t rounds, at;
  SC_TRY(job_new(c, &j));
  sc_status s = states(&j, -1);
  if (s == SC_OK) s = while_loop(&j, &rounds);
  if (s == SC_OK) s = put_all(&j, j.carry, j.p->n_carry);
  if (s == SC_OK) s = place(j.p, j.p->n_carry, &at);
  if (s == SC_OK) memcpy(c->out[0]->data + at, &rounds, sizeof rounds);
  return job_end(&j, s);
}

static sc_status row_of(sc_tensor *x, int64_t row, sc_tensor **out) {
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)x->dtype, x->ndim - 1, x->dim + 1);
  memcpy(m.stride, sc__stride(x) + 1, (size_t)m.ndim * 8);
  m.offset = row * sc__stride(x)[0];
  return sc__tensor_view(x, &m, out);
}

static sc_status scan_round(job *j, int64_t row) {
  const sc_control *p = j->p;
  int k = p->n_carry, ys = scanned(p);
  SC_TRY(states(j, row));
  give_carried(j);
  for (int i = 0; i < p->n_x; i++) j->in[k + i] = NULL;
  sc_status s = SC_OK;
  for (int i = 0; i < p->n_x && s == SC_OK; i++) s = row_of(j->call->in[k + i], row, &j->in[k + i]);
  if (s == SC_OK) s = run_graph(j, 0);
  drop(j->in + k, p->n_x);
  for (int i = 0; i < k && p->keep && s == SC_OK; i++) s = put(j, k + ys + i, row, j->carry[i]);
  for (int i = 0; i < ys && s == SC_OK; i++) s = put(j, k + i, row, j->next[k + i]);
  if (s == SC_OK) advance(j);
  return s;
}

static sc_status scan_run(sc_call *c) {
  job j;
  SC_TRY(job_new(c, &j));
  sc_status s = SC_OK;
  start(&j);
  for (int64_t r = 0; r < j.p->rounds && s == SC_OK; r++) s = scan_round(&j, j.p->reverse ? j.p->rounds - 1 - r : r);
  if (s == SC_OK) s = put_all(&j, j.carry, j.p->n_carry);
  return job_end(&j, s);
}

/* ---- the gradient of while ---- */

typedef struct history { sc_tensor **at; sc_generator *rng; size_t n, room, rounds, room_rounds; } history;

/* The generator at the beginning of each round. */
static sc_status remember_state(job *j, history *h) {
  if (!j->p->replay) return SC_OK;
  SC_TRY(sc__grow(j->p->ctx, &h->rng, h->rounds, &h->room_rounds, sizeof *h->rng));
  h->rng[h->rounds++] = j->p->ctx->rng;
  return SC_OK;
}

static sc_status remember(job *j, history *h) {
  for (int i = 0; i < j->p->n_carry; i++) {
    SC_TRY(sc__grow(j->p->ctx, &h->at, h->n, &h->room, sizeof *h->at));
    h->at[h->n++] = sc_tensor_retain(j->carry[i]);
  }
  return SC_OK;
}

/* sum[i] += next[i]; the first time they are the same. */
static sc_status add_up(job *j, sc_tensor **sum, int n) {
  for (int i = 0; i < n; i++) {
    sc_tensor *t = j->next[j->p->n_dy + i], *both;
    if (sum[i]) SC_TRY(sc__op2(j->p->ctx, "add", sum[i], t, &both)); else both = sc_tensor_retain(t);
    sc_tensor_release(sum[i]);
    sum[i] = both;
  }
  return SC_OK;
}

static sc_status walk_back(job *j, history *h, sc_tensor **dy, sc_tensor **sum, int n) {
  const sc_control *p = j->p;
  int k = p->n_carry, m = p->n_dy;
  int64_t rounds = *(const int64_t *)j->call->in[k]->data;
  start(j);
  SC_TRY(states(j, -1));
  for (int64_t r = 0; r < rounds; r++) {
    SC_TRY(remember(j, h));
    SC_TRY(remember_state(j, h));
    if (r + 1 == rounds) break;                        /* what the last round made is not needed */
    give_carried(j);
    SC_TRY(run_graph(j, 0));
    advance(j);
  }
  for (int i = 0; i < m; i++) dy[i] = sc_tensor_retain(j->call->in[k + 1 + i]);
  while (h->n) {
    for (int i = 0; i < k; i++) j->in[i] = h->at[h->n - (size_t)k + (size_t)i];
    for (int i = 0; i < m; i++) j->in[k + i] = dy[i];
    if (p->replay) p->ctx->rng = h->rng[--h->rounds];
    SC_TRY(run_graph(j, 1));
    h->n -= (size_t)k;
    drop(h->at + h->n, k);
    SC_TRY(add_up(j, sum, n));
    for (int i = 0; i < m; i++) { sc_tensor_release(dy[i]); dy[i] = sc_tensor_retain(j->next[i]); }
  }
  for (int i = 0; i < m; i++) SC_TRY(put(j, i, -1, dy[i]));
  for (int i = 0; i < n; i++) if (sum[i]) SC_TRY(put(j, m + i, -1, sum[i]));
  return SC_OK;
}

static sc_status while_back_run(sc_call *c) {
  job j;
  SC_TRY(job_new(c, &j));
  int n = (int)j.p->graph[1]->n_outputs, m = j.p->n_dy;
  size_t bytes = (size_t)(n + 1) * sizeof(sc_tensor *);
  sc_tensor **dy = sc__alloc_zero(c->ctx, bytes);
  history h = {0};
  memset(c->out[0]->data, 0, (size_t)c->out[0]->numel);   /* no rounds: nothing is added up */
  sc_status s = dy ? walk_back(&j, &h, dy, dy + m, n - m) : sc__no_memory(c->ctx, bytes);
  if (dy) drop(dy, n);
  sc__release(c->ctx, dy, bytes);
  drop(h.at, (int)h.n);
  sc__release(c->ctx, h.at, h.room * sizeof *h.at);
  sc__release(c->ctx, h.rng, h.room_rounds * sizeof *h.rng);
  return job_end(&j, s);
}

/* ---- the rows ---- */

/* Operand k is what input i of a graph expects; lead: leading dims of the operand that the node takes off (scan's rows). */
static sc_status fits(sc_call *c, int k, const sc_graph *g, int i, int lead) {
  const sc_value *v = &g->value[g->input[i]];
  const sc_tensor *t = c->in[k];
  char is[200], want[200];
  if (t->dtype == v->dtype && t->ndim == v->ndim + lead && memcmp(t->dim + lead, v->dim, (size_t)v->ndim * 8) == 0) return SC_OK;
  return sc__bad_call(c, "operand %d: expected %s of shape %s, got %s of shape %s", k + 1, sc_dtype_name((sc_dtype)v->dtype),
                      sc__shape_text(v->ndim, v->dim, want, sizeof want), sc_dtype_name((sc_dtype)t->dtype), sc__shape_text(t->ndim, t->dim, is, sizeof is));
}

/* Operands that the node reads itself: the loops' rounds, the generator's states. */
static sc_status check_own(sc_call *c, const sc_control *p) {
  if (p->kind == SC_CONTROL_WHILE_BACK) {
    const sc_tensor *rounds = c->in[p->n_carry];
    if (rounds->dtype != SC_INT64 || rounds->numel != 1) return sc__bad_call(c, "the number of rounds: expected one int64");
  }
  if (!p->replay) return SC_OK;
  const sc_tensor *t = c->in[sc__control_lead(p) - 1];
  bool scan = p->kind == SC_CONTROL_SCAN;
  if (t->dtype == SC_INT64 && t->ndim == 1 + scan && t->dim[scan] == 2 && (!scan || t->dim[0] == p->rounds)) return SC_OK;
  return sc__bad_call(c, "the state of the generator: expected pairs of int64");
}

static sc_status check_operands(sc_call *c, const sc_control *p) {
  int k = sc__control_lead(p);
  for (int g = 0; g < p->n_graphs; g++)
    for (int i = formals(p, g); i < (int)p->graph[g]->n_inputs; i++) SC_TRY(fits(c, k++, p->graph[g], i, 0));
  if (p->kind == SC_CONTROL_COND) return SC_OK;
  for (int g = 0; g < p->n_graphs; g++) for (int i = 0; i < p->n_carry; i++) SC_TRY(fits(c, i, p->graph[g], i, 0));
  for (int i = 0; i < p->n_x; i++) SC_TRY(fits(c, p->n_carry + i, p->graph[0], p->n_carry + i, 1));
  for (int i = 0; i < p->n_dy; i++) SC_TRY(fits(c, p->n_carry + 1 + i, p->graph[1], p->n_carry + i, 0));
  return SC_OK;
}

static sc_status infer(sc_call *c) {
  sc_control *p = c->attr[0].p;
  int64_t bytes;
  if (c->attr[0].kind != SC_ATTR_GRAPH || !p || strcmp(c->op->name, sc__control_op(p)) != 0)
    return sc__bad_attr(c, 0, "made by sc.cond, sc.while_loop and sc.scan only");
  if (c->n_in != sc__control_operands(p)) return sc__bad_call(c, "expected %d operands, got %d", sc__control_operands(p), c->n_in);
  if (p->kind == SC_CONTROL_COND && c->in[0]->numel != 1) return sc__bad_input(c, 0, "expected one element, got %lld", (long long)c->in[0]->numel);
  for (int i = 0; i < p->n_x; i++)
    if (c->in[p->n_carry + i]->ndim < 1 || c->in[p->n_carry + i]->dim[0] != p->rounds) return sc__bad_input(c, 0, "a scanned tensor has the wrong length");
  SC_TRY(check_own(c, p));
  SC_TRY(check_operands(c, p));
  SC_TRY(place(p, sc__control_results(p), &bytes));
  sc__meta_set(&c->meta[0], SC_UINT8, 1, &bytes);
  return SC_OK;
}

static sc_status result_infer(sc_call *c) {
  sc_control *p = c->attr[0].p;
  int64_t at, i = c->attr[1].i;
  if (c->attr[0].kind != SC_ATTR_GRAPH || !p || i < 0 || i >= sc__control_results(p)) return sc__bad_attr(c, 1, "there is no such result");
  SC_TRY(place(p, sc__control_results(p), &at));
  if (c->in[0]->dtype != SC_UINT8 || c->in[0]->ndim != 1 || c->in[0]->dim[0] != at || !c->in[0]->contiguous)
    return sc__bad_input(c, 0, "expected the block of bytes of that branch or loop");
  SC_TRY(place(p, (int)i, &at));
  result_meta(p, (int)i, &c->meta[0]);
  c->meta[0].offset = at / (int64_t)sc_dtype_size(c->meta[0].dtype);
  return SC_OK;
}

static sc_status result_run(sc_call *c) { (void)c; return SC_OK; }

#define HOW SC_OP_FUNCTION | SC_OP_INTERNAL | SC_OP_DETACH
#define NO_GRADIENT "gradients of branches and loops are branches and loops, recorded by sc.cond, sc.while_loop and sc.scan"

const sc_op sc__ops_control[] = {
  {.signature = "control_cond(operands: tensor[], program: any)", .flags = HOW, .infer = infer, .run = cond_run, .no_grad = NO_GRADIENT,
   .help = "Runs one of two graphs, as its first operand says; all results in one block of bytes. Made by sc.cond."},
  {.signature = "control_while(operands: tensor[], program: any)", .flags = HOW, .infer = infer, .run = while_run, .no_grad = NO_GRADIENT,
   .help = "Runs a graph as long as another one says so; all results in one block of bytes. Made by sc.while_loop."},
  {.signature = "control_scan(operands: tensor[], program: any)", .flags = HOW, .infer = infer, .run = scan_run, .no_grad = NO_GRADIENT,
   .help = "Runs a graph for each row of the scanned tensors; all results in one block of bytes. Made by sc.scan."},
  {.signature = "control_while_backward(operands: tensor[], program: any)", .flags = HOW, .infer = infer, .run = while_back_run, .no_grad = NO_GRADIENT,
   .help = "The gradients of a while loop; all of them in one block of bytes. Made by sc.while_loop."},
  {.signature = "control_result(block, program: any, index: int)", .flags = HOW | SC_OP_VIEW, .infer = result_infer, .run = result_run,
   .no_grad = NO_GRADIENT, .help = "One of the results of a branch or loop: a view of its block of bytes."},
};
const int sc__ops_control_count = SC_COUNT(sc__ops_control);
