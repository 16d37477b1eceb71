/* The reverse walk. A heap holds the nodes that have a gradient waiting, the newest first; since a node is newer than those it
** points at, all of a node's gradients have arrived when its turn comes. No recursion: a chain of a million ops is a heap of one.
**
** With `inputs`, a first pass over the graph marks the nodes that lead to one of them, and only those are run.
**
** Gradients of leaves (and those that tensors asked to keep) are collected and put in place when the walk has succeeded. A walk
** may begin inside another: a hook or a custom backward is free to differentiate, over nodes that both walks share. */
#include "autodiff.h"

#include <stdio.h>
#include <string.h>

typedef struct sc_visit {
  sc_node *node;                 /* owned */
  struct sc_visit *outer;        /* of a walk that was going on when this one began (a hook may call backward) */
  struct walk *walk;
  sc_tensor *dy[];               /* [n_out]; NULL: none yet */
} sc_visit;

/* A gradient that waits for the end of the walk. */
typedef struct arrival {
  sc_tensor *t, *dy;             /* owned */
  sc_tensor *old, *sum;          /* owned, or NULL: t's gradient when dy arrived, and both added */
} arrival;

/* What an outer walk had noted in a node. */
typedef struct noted { sc_node *node; uint64_t mark; bool needed; } noted;

typedef struct walk {
  sc_context *ctx;
  sc_visit **heap;
  arrival *arrivals;
  noted *noted;
  size_t n, room, n_arrivals, room_arrivals, n_noted, room_noted;
  uint64_t mark;
  sc_tensor **grads;
  sc_edge *input_edge;
  int n_inputs;
  bool retain, create, cut;
} walk;

/* Arrays of one node's step; few: room for most. */
enum { FEW = 12 };
typedef struct scratch {
  sc_tensor **in, **out, **dx;
  bool *want;
  void *block;
  size_t bytes;
  sc_tensor *few[3 * FEW];
  bool few_want[FEW];
} scratch;

static sc_status push(walk *w, sc_visit *v) {
  SC_TRY(sc__grow(w->ctx, &w->heap, w->n, &w->room, sizeof *w->heap));
  size_t i = w->n++;
  while (i > 0 && w->heap[(i - 1) / 2]->node->seq < v->node->seq) { w->heap[i] = w->heap[(i - 1) / 2]; i = (i - 1) / 2; }
  w->heap[i] = v;
  return SC_OK;
}

static sc_visit *pop(walk *w) {
  sc_visit *top = w->heap[0], *last = w->heap[--w->n];
  size_t i = 0;
  for (;;) {
    size_t k = 2 * i + 1;
    if (k >= w->n) break;
    if (k + 1 < w->n && w->heap[k + 1]->node->seq > w->heap[k]->node->seq) k++;
    if (w->heap[k]->node->seq <= last->node->seq) break;
    w->heap[i] = w->heap[k];
    i = k;
  }
  if (w->n) w->heap[i] = last;
  return top;
}

static size_t visit_bytes(const sc_node *n) { return sizeof(sc_visit) + (size_t)n->n_out * sizeof(sc_tensor *); }

static void leave(walk *w, sc_visit *v) {
  sc_node *n = v->node;
  n->visit = v->outer;
  for (int i = 0; i < n->n_out; i++) sc_tensor_release(v->dy[i]);
  sc__release(w->ctx, v, visit_bytes(n));
  sc__node_release(n);
}

/* The gradient brought to the input's shape and dtype; takes dy. */
static sc_status fit(walk *w, sc_tensor *dy, sc_dtype dtype, const int64_t *shape, sc_tensor **out) {
  sc_status s = SC_OK;
  if (shape && !(dy->ndim == shape[0] && memcmp(dy->dim, shape + 1, (size_t)shape[0] * 8) == 0)) {
    sc_attr size = sc__ints(shape + 1, (int)shape[0]);
    sc_tensor *r = NULL;
    s = sc__op(w->ctx, "sum_to_size", &dy, 1, &size, 1, &r);
    sc_tensor_release(dy);
    dy = r;
  }
  if (s == SC_OK && (sc_dtype)dy->dtype != dtype) {
    sc_attr d = sc__dtype(dtype);
    sc_tensor *r = NULL;
    s = sc__op(w->ctx, "to", &dy, 1, &d, 1, &r);
    sc_tensor_release(dy);
    dy = r;
  }
  *out = s == SC_OK ? dy : NULL;
  return s;
}

/* dy arrives at an edge; takes dy. */
static sc_status deliver(walk *w, sc_edge e, sc_tensor *dy) {
  sc_visit *v = e.node->visit;
  if (!v || v->walk != w) {
    v = sc__alloc_zero(w->ctx, visit_bytes(e.node));
    if (!v) { sc_tensor_release(dy); return sc__no_memory(w->ctx, visit_bytes(e.node)); }
    v->node = e.node;
    v->walk = w;
    v->outer = e.node->visit;
    e.node->refs++;
    e.node->visit = v;
    sc_status s = push(w, v);
    if (s != SC_OK) { sc_tensor_release(dy); leave(w, v); return s; }
  }
  if (!v->dy[e.slot]) { v->dy[e.slot] = dy; return SC_OK; }
  sc_tensor *sum, *old = v->dy[e.slot];
  sc_status s;
  bool ours = !w->create && old->storage && atomic_load(&old->refs) == 1 && atomic_load(&old->storage->refs) == 1 && old->contiguous;
  if (ours && old->dtype == dy->dtype && dy->storage) s = sc__op2(w->ctx, "add_", old, dy, &sum);
  else s = sc__op2(w->ctx, "add", old, dy, &sum);
  sc_tensor_release(dy);
  SC_TRY(s);
  v->dy[e.slot] = sum;
  sc_tensor_release(old);
  return SC_OK;
}

/* Of symbolic tensors it shows less: an expanded one is not, whoever holds it. */
static bool own_memory(const sc_tensor *t) {
  if (!t->storage) return atomic_load(&t->refs) == 1 && t->contiguous;
  return atomic_load(&t->refs) == 1 && atomic_load(&t->storage->refs) == 1 && t->contiguous && !t->storage->release;
}

/* The gradient t has may be written to: nobody else sees it. */
static bool adds_in_place(const walk *w, const sc_tensor *t, const sc_tensor *dy) {
  const sc_tensor *g = t->ad->grad;
  return !w->create && !w->ctx->tracing && own_memory(g) && g->storage && dy->storage && g->dtype == dy->dtype && !g->ad && !(g->flags & SC_T_REQUIRES);
}

/* dy is t's gradient: to be added to what it has when the walk is over. */
static sc_status arrive(walk *w, sc_tensor *t, sc_tensor *dy) {
  if (!sc__autograd(t)) return SC_ENOMEM;
  if (w->ctx->tracing) { SC_TRY(w->ctx->grad_read(t)); SC_TRY(w->ctx->grad_changes(t)); }
  SC_TRY(sc__grow(w->ctx, &w->arrivals, w->n_arrivals, &w->room_arrivals, sizeof *w->arrivals));
  arrival a = {.t = sc_tensor_retain(t)};
  sc_status s = SC_OK;
  if (t->ad->grad && !adds_in_place(w, t, dy)) {
    a.old = sc_tensor_retain(t->ad->grad);
    s = sc__op2(w->ctx, "add", a.old, dy, &a.sum);
  }
  if (s == SC_OK && (own_memory(dy) || a.sum)) a.dy = sc_tensor_retain(dy);
  else if (s == SC_OK) s = sc__op1(w->ctx, "clone", dy, &a.dy);
  sc_tensor *g = a.sum ? a.sum : a.dy;
  if (s == SC_OK && g->ad) s = sc__node_pin(g->ad->node);           /* only t, from C, will hold that history */
  w->arrivals[w->n_arrivals++] = a;
  return s;
}

static sc_status put_gradient(walk *w, arrival *a) {
  struct sc_autograd *ad = a->t->ad;
  sc_tensor *now = NULL;
  if (!ad->grad) now = sc_tensor_retain(a->dy);
  else if (a->sum && ad->grad == a->old) now = sc_tensor_retain(a->sum);
  else if (!a->sum && adds_in_place(w, a->t, a->dy)) SC_TRY(sc__op2(w->ctx, "add_", ad->grad, a->dy, &now));
  else SC_TRY(sc__op2(w->ctx, "add", ad->grad, a->dy, &now));       /* it changed meanwhile */
  sc_tensor_release(ad->grad);
  ad->grad = now;
  return SC_OK;
}

static sc_status put_gradients(walk *w, bool done) {
  sc_status s = SC_OK;
  for (size_t i = 0; i < w->n_arrivals; i++) {
    arrival *a = &w->arrivals[i];
    if (done && s == SC_OK) s = put_gradient(w, a);
    sc_tensor_release(a->old);
    sc_tensor_release(a->sum);
    sc_tensor_release(a->dy);
    sc_tensor_release(a->t);
  }
  sc__release(w->ctx, w->arrivals, w->room_arrivals * sizeof *w->arrivals);
  return s;
}

/* The script's functions in the order of registration, then the tensors that keep what came of it. */
static sc_status run_hooks(walk *w, sc_hook *list, sc_tensor **dy, int slot) {
  for (sc_hook *h = list, *next; h; h = next) {
    next = h->next;
    if (h->slot != slot || !*dy || h->id < 0 || !w->ctx->script_hook) continue;
    sc_tensor *r = NULL;
    const sc_origin *was = w->ctx->differentiated;      /* what a hook computes comes of its own lines */
    w->ctx->differentiated = NULL;
    sc_status s = w->ctx->script_hook(w->ctx->locate_user, h->id, *dy, &r);
    w->ctx->differentiated = was;
    SC_TRY(s);
    if (r) { sc_tensor_release(*dy); *dy = r; }
  }
  for (sc_hook *h = list; h; h = h->next)
    if (h->slot == slot && *dy && h->keep) SC_TRY(arrive(w, h->keep, *dy));
  return SC_OK;
}

static const char *place(sc_location l, char *out, size_t size) {
  if (l.line) snprintf(out, size, " (recorded at %s:%d)", l.file, l.line);
  else out[0] = 0;
  return out;
}

sc_status sc__check_saved(sc_node *n) {
  char at[300];
  if (n->freed)
    return sc__fail(n->ctx, SC_EINVAL, "backward: going through the graph a second time, but its saved tensors were freed by the first; "
                    "call the first backward with {retain_graph = true}%s", place(n->where, at, sizeof at));
  for (int k = 0; k < n->n_in + n->n_out; k++) {
    sc_saved *s = k < n->n_in ? &n->in[k] : &n->out[k - n->n_in];
    if (!s->t || !s->t->storage || s->t->storage->version == s->version) continue;
    sc_location by = s->t->storage->writer;
    char where[300] = "";
    if (by.line) snprintf(where, sizeof where, " at %s:%d", by.file, by.line);
    return sc__fail(n->ctx, SC_EINVAL, "backward: %s of %s%s was modified in-place%s since it was saved; clone it before the change",
                    s->output ? "the result" : "an input", n->op ? n->op->name : "a custom function", place(n->where, at, sizeof at), where);
  }
  return SC_OK;
}

/* Outputs are saved without their history (it would be a cycle); for gradients of gradients they get it back, in a header made for
** this step: the nodes recorded now may save it. */
static sc_status output_with_history(sc_node *n, int i, sc_tensor **out) {
  sc_tensor *t = n->out[i].t;
  SC_TRY(sc__tensor_alias(t, out));
  if (t->graph) { (*out)->graph = t->graph; (*out)->value = t->value; t->ctx->retrace(*out); }
  if (!sc__is_float((sc_dtype)t->dtype)) return SC_OK;
  if (!sc__autograd(*out)) return SC_ENOMEM;
  sc__attach(*out, n, i);
  sc__anchor_set(*out, n->anchor);
  return SC_OK;
}

static sc_status missing_dy(walk *w, sc_node *n, sc_visit *v) {
  for (int i = 0; i < n->n_out; i++) {
    if (v->dy[i] || !n->out_shape[i] || !sc__is_float((sc_dtype)n->out_shape[i][0])) continue;
    sc_attr attr[3] = {sc__ints(n->out_shape[i] + 2, (int)n->out_shape[i][1]), sc__float(0), sc__dtype((sc_dtype)n->out_shape[i][0])};
    SC_TRY(sc__op(w->ctx, "full", NULL, 0, attr, 3, &v->dy[i]));
  }
  return SC_OK;
}

static bool wanted(walk *w, const sc_node *to) {
  return to && (w->n_inputs == 0 || (to->mark == w->mark && to->needed));
}

static sc_status scratch_new(walk *w, const sc_node *n, scratch *s) {
  bool few = n->n_in <= FEW && n->n_out <= FEW;
  size_t n_in = (size_t)n->n_in, n_out = (size_t)n->n_out;
  s->block = NULL;
  s->in = s->few;
  s->dx = s->few + FEW;
  s->out = s->few + 2 * FEW;
  s->want = s->few_want;
  if (!few) {
    s->bytes = (2 * n_in + n_out) * sizeof(sc_tensor *) + n_in;
    s->block = sc__alloc(w->ctx, s->bytes);
    if (!s->block) return sc__no_memory(w->ctx, s->bytes);
    s->in = s->block;
    s->dx = s->in + n_in;
    s->out = s->dx + n_in;
    s->want = (bool *)(s->out + n_out);
  }
  for (int i = 0; i < n->n_in; i++) {
    s->in[i] = n->in[i].t;
    s->dx[i] = NULL;
    s->want[i] = wanted(w, n->edge[i].node);
  }
  for (int i = 0; i < n->n_out; i++) s->out[i] = n->out[i].t;
  return SC_OK;
}

static sc_status gradients(walk *w, sc_node *n, sc_visit *v, scratch *k) {
  if (n->kind == SC_NODE_CUSTOM) {
    SC_TRY(missing_dy(w, n, v));
    if (!w->ctx->script_backward) return sc__fail(w->ctx, SC_EINVAL, "backward: a custom function needs its script");
    return w->ctx->script_backward(w->ctx->locate_user, n->custom, w->retain, v->dy, n->n_out, k->dx, n->n_in);
  }
  const sc_op *def = n->op->def;
  if (def->backward || n->n_out > 1) SC_TRY(missing_dy(w, n, v));
  sc_grad_call g = {.ctx = w->ctx, .op = n->op, .in = k->in, .out = k->out, .dy = v->dy, .n_in = n->n_in, .n_out = n->n_out,
                    .attr = n->attr, .base = n->base, .wanted = k->want, .dx = k->dx, .in_shape = n->in_shape, .out_shape = n->out_shape};
  if (def->backward) return def->backward(&g);
  for (int i = 0; i < n->n_in; i++) {
    const struct sc_formula *f = n->op->formula[i < n->op->n_in ? i : n->op->n_in - 1];
    if (k->want[i] && f) SC_TRY(sc__formula_run(f, &g, n->in_shape, n->out_shape, &k->dx[i]));
  }
  return SC_OK;
}

/* Saved outputs given their history while the gradients are computed, when those will be differentiated. */
static sc_status gradients_of(walk *w, sc_node *n, sc_visit *v, scratch *k) {
  if (!w->create) return gradients(w, n, v, k);
  sc_status s = SC_OK;
  int made = 0;
  for (; made < n->n_out && s == SC_OK; made++) {
    k->out[made] = NULL;
    if (n->out[made].t) s = output_with_history(n, made, &k->out[made]);
  }
  if (s == SC_OK) s = gradients(w, n, v, k);
  for (int i = 0; i < made; i++) sc_tensor_release(k->out[i]);
  return s;
}

static sc_status check_nan(walk *w, sc_node *n, sc_tensor *dx) {
  if (sc__is_symbolic(dx)) return SC_OK;
  bool bad = false;
  sc_tensor *flat;
  SC_TRY(sc__tensor_packed(dx, &flat));
  size_t size = sc_dtype_size((sc_dtype)flat->dtype);
  for (int64_t i = 0; i < flat->numel && !bad; i++) {
    double f = sc__load((sc_dtype)flat->dtype, flat->data + (size_t)i * size).f;
    bad = f != f;
  }
  sc_tensor_release(flat);
  char at[300];
  if (!bad) return SC_OK;
  return sc__fail(w->ctx, SC_EINVAL, "backward: the gradient of %s is NaN%s", n->op ? n->op->name : "a custom function",
                  place(n->where, at, sizeof at));
}

static sc_status check_custom(sc_node *n, int i, const sc_tensor *dx, const int64_t *shape) {
  bool fits = dx->ndim >= shape[0];
  for (int64_t k = 1; k <= shape[0] && fits; k++) {
    int64_t want = shape[1 + shape[0] - k];
    fits = want == 1 || want == dx->dim[dx->ndim - k];
  }
  char a[200], b[200], at[300];
  if (fits && sc__is_float((sc_dtype)dx->dtype)) return SC_OK;
  return sc__fail(n->ctx, SC_EINVAL, "backward: a custom function returned a %s gradient of shape %s for tensor input %d of shape %s%s",
                  sc_dtype_name((sc_dtype)dx->dtype), sc__shape_text(dx->ndim, dx->dim, a, sizeof a), i + n->ctx->index_base,
                  sc__shape_text((int)shape[0], shape + 1, b, sizeof b), place(n->where, at, sizeof at));
}

/* dx goes to its edge, brought to the input's shape and dtype; takes dx. */
static sc_status send(walk *w, sc_node *n, int i, sc_tensor *dx) {
  const int64_t *shape = n->in_shape[i] ? n->in_shape[i] : n->out_shape[0] + 1;
  sc_status s = SC_OK;
  if (w->ctx->anomaly) s = check_nan(w, n, dx);
  if (s == SC_OK && n->kind == SC_NODE_CUSTOM) s = check_custom(n, i, dx, shape);
  if (s != SC_OK) { sc_tensor_release(dx); return s; }
  SC_TRY(fit(w, dx, (sc_dtype)n->in_dtype[i], shape, &dx));
  return deliver(w, n->edge[i], dx);
}

/* Everything has arrived at n: its hooks, then its gradients, and they go on to its inputs. */
static sc_status step(walk *w, sc_visit *v) {
  sc_node *n = v->node;
  sc_hook *hooks = n->kind == SC_NODE_ACCUMULATE ? (n->leaf->ad ? n->leaf->ad->hooks : NULL) : n->hooks;
  for (int i = 0; i < n->n_out && hooks; i++) SC_TRY(run_hooks(w, hooks, &v->dy[i], i));
  bool input = false;
  for (int k = 0; k < w->n_inputs; k++) {
    if (w->input_edge[k].node != n) continue;
    input = true;
    sc_tensor *dy = v->dy[w->input_edge[k].slot];
    if (dy) { sc_tensor_release(w->grads[k]); w->grads[k] = sc_tensor_retain(dy); }
  }
  if (n->kind == SC_NODE_ACCUMULATE)
    return w->n_inputs || !v->dy[0] || !(n->leaf->flags & SC_T_REQUIRES) ? SC_OK : arrive(w, n->leaf, v->dy[0]);
  if (input && w->cut) return SC_OK;
  if (n->freed) return sc__check_saved(n);
  scratch k;
  SC_TRY(scratch_new(w, n, &k));
  bool any = false;
  for (int i = 0; i < n->n_in; i++) any = any || k.want[i];
  sc_status s = any ? sc__check_saved(n) : SC_OK;
  if (any && s == SC_OK) {
    sc_origin of = {n->where.file, n->where.line, true, n->module};
    const sc_origin *was = w->ctx->differentiated;
    w->ctx->differentiated = n->op && of.line ? &of : NULL;     /* a backward of the script's has lines of its own */
    s = gradients_of(w, n, v, &k);
    for (int i = 0; i < n->n_out; i++) { sc_tensor_release(v->dy[i]); v->dy[i] = NULL; }
    if (s == SC_OK && !w->retain) sc__node_free_saved(n);   /* the moment it is done with */
    for (int i = 0; i < n->n_in; i++) {
      if (!k.dx[i]) continue;
      if (s != SC_OK || !k.want[i]) sc_tensor_release(k.dx[i]);
      else s = send(w, n, i, k.dx[i]);
    }
    w->ctx->differentiated = was;
    if (s == SC_OK && !w->retain)
      for (int i = 0; i < n->n_in; i++) { sc__node_release(n->edge[i].node); n->edge[i].node = NULL; }
  }
  sc__release(w->ctx, k.block, k.bytes);
  return s;
}

static sc_status note(walk *w, sc_node *n) {
  SC_TRY(sc__grow(w->ctx, &w->noted, w->n_noted, &w->room_noted, sizeof *w->noted));
  n->refs++;
  w->noted[w->n_noted++] = (noted){n, n->mark, n->needed};
  return SC_OK;
}

static void give_back(walk *w) {
  for (size_t i = 0; i < w->n_noted; i++) {
    w->noted[i].node->mark = w->noted[i].mark;
    w->noted[i].node->needed = w->noted[i].needed;
    sc__node_release(w->noted[i].node);
  }
  sc__release(w->ctx, w->noted, w->room_noted * sizeof *w->noted);
}

/* Marks the nodes from which an input's node can be reached: depth first with a stack of our own. */
static sc_status mark_needed(walk *w, sc_edge *roots, int n_roots) {
  typedef struct frame { sc_node *node; int next; } frame;
  frame *stack = NULL;
  size_t n = 0, room = 0;
  sc_status s = SC_OK;
  for (int r = 0; r < n_roots && s == SC_OK; r++) {
    if (!roots[r].node || roots[r].node->mark == w->mark) continue;
    for (sc_node *enter = roots[r].node; enter || n; ) {
      if (enter) {
        if ((s = sc__grow(w->ctx, &stack, n, &room, sizeof *stack)) != SC_OK) break;
        if (w->ctx->walks > 1 && (s = note(w, enter)) != SC_OK) break;
        enter->mark = w->mark;
        enter->needed = false;
        for (int k = 0; k < w->n_inputs; k++) enter->needed = enter->needed || w->input_edge[k].node == enter;
        stack[n++] = (frame){enter, w->cut && enter->needed ? enter->n_in : 0};
        enter = NULL;
      }
      frame *f = &stack[n - 1];
      sc_node *to = NULL;
      while (f->next < f->node->n_in && !to) {
        to = f->node->edge[f->next++].node;
        if (to && to->mark == w->mark) { f->node->needed = f->node->needed || to->needed; to = NULL; }
      }
      if (to) { enter = to; continue; }
      bool needed = f->node->needed;
      if (--n) stack[n - 1].node->needed = stack[n - 1].node->needed || needed;
    }
  }
  sc__release(w->ctx, stack, room * sizeof *stack);
  return s;
}

static sc_status seed(sc_tensor *y, sc_tensor *dy, sc_tensor **out) {
  if (dy) {
    char a[200], b[200];
    if (dy->ndim != y->ndim || memcmp(dy->dim, y->dim, (size_t)y->ndim * 8) != 0)
      return sc__fail(y->ctx, SC_EINVAL, "backward: the gradient's shape %s differs from the tensor's, %s",
                      sc__shape_text(dy->ndim, dy->dim, a, sizeof a), sc__shape_text(y->ndim, y->dim, b, sizeof b));
    *out = sc_tensor_retain(dy);
    return SC_OK;
  }
  if (y->numel != 1) {
    char a[200];
    return sc__fail(y->ctx, SC_EINVAL, "backward: a gradient must be given for a tensor that is not a single number (shape %s); or reduce it, as in y:sum():backward()",
                    sc__shape_text(y->ndim, y->dim, a, sizeof a));
  }
  sc_attr attr[3] = {sc__ints(y->dim, y->ndim), sc__float(1), sc__dtype((sc_dtype)y->dtype)};
  return sc__op(y->ctx, "full", NULL, 0, attr, 3, out);
}

static void hold(sc_edge *e, int n) { for (int i = 0; i < n; i++) if (e[i].node) e[i].node->refs++; }
static void drop(sc_edge *e, int n) { for (int i = 0; i < n; i++) { sc__node_release(e[i].node); e[i].node = NULL; } }

/* Edges of ys and inputs, each held. */
static sc_status find_edges(walk *w, sc_tensor **ys, int n_ys, sc_tensor **inputs, sc_edge *edge) {
  for (int i = 0; i < n_ys; i++) {
    SC_TRY(sc__edge_of(ys[i], &edge[i]));
    hold(&edge[i], 1);
    if (!edge[i].node)
      return sc__fail(w->ctx, SC_EINVAL, "backward: the tensor has no history: %s", w->ctx->grad_enabled
                      ? "none of what it was computed from requires gradients"
                      : "gradients are off here. sc.no_grad() without a function lasts until it is closed: write sc.no_grad(function() … end), "
                        "or local _ <close> = sc.no_grad() in a block");
  }
  for (int i = 0; i < w->n_inputs; i++) {
    SC_TRY(sc__edge_of(inputs[i], &w->input_edge[i]));
    hold(&w->input_edge[i], 1);
    if (!w->input_edge[i].node) return sc__fail(w->ctx, SC_EINVAL, "grad: input %d does not require gradients", i + w->ctx->index_base);
  }
  return SC_OK;
}

static sc_status start(walk *w, sc_tensor **ys, sc_tensor **dys, int n_ys, const sc_edge *edge) {
  for (int i = 0; i < n_ys; i++) {
    sc_tensor *dy;
    SC_TRY(seed(ys[i], dys ? dys[i] : NULL, &dy));
    if (dy->dtype != ys[i]->dtype) SC_TRY(fit(w, dy, (sc_dtype)ys[i]->dtype, NULL, &dy));
    if (w->n_inputs && !edge[i].node->needed) sc_tensor_release(dy);
    else SC_TRY(deliver(w, edge[i], dy));
  }
  return SC_OK;
}

/* Results that nothing else looks at, and that can be written to. */
static sc_status own_results(walk *w) {
  for (int i = 0; i < w->n_inputs && !w->create; i++) {
    sc_tensor *g = w->grads[i], *copy;
    if (!g || own_memory(g)) continue;
    SC_TRY(sc__op1(w->ctx, "clone", g, &copy));
    sc_tensor_release(g);
    w->grads[i] = copy;
  }
  return SC_OK;
}

sc_status sc__backward(sc_context *ctx, sc_tensor **ys, sc_tensor **dys, int n_ys, sc_tensor **inputs, int n_inputs, uint32_t how,
                       sc_tensor **grads) {
  bool create = how & SC_WALK_CREATE;
  walk w = {.ctx = ctx, .grads = grads, .n_inputs = n_inputs, .retain = how & SC_WALK_RETAIN || create, .create = create, .cut = how & SC_WALK_CUT};
  size_t bytes = (size_t)(n_ys + n_inputs + 1) * sizeof(sc_edge);
  sc_edge *edges = sc__alloc_zero(ctx, bytes);
  if (!edges) return sc__no_memory(ctx, bytes);
  w.input_edge = edges + n_ys;
  bool was = ctx->grad_enabled;
  struct sc_graph *tracing = ctx->tracing;
  for (int i = 0; i < n_ys && !ctx->tracing; i++) ctx->tracing = ys[i]->graph;   /* the seed belongs into the graph as well */
  ctx->walks++;
  for (int i = 0; i < n_inputs; i++) grads[i] = NULL;
  sc_status s = find_edges(&w, ys, n_ys, inputs, edges);
  w.mark = ++ctx->sequence;
  if (s == SC_OK && n_inputs) s = mark_needed(&w, edges, n_ys);
  ctx->grad_enabled = create;
  if (s == SC_OK) s = start(&w, ys, dys, n_ys, edges);
  while (w.n && s == SC_OK) {
    sc_visit *v = pop(&w);
    s = step(&w, v);
    leave(&w, v);
  }
  while (w.n) leave(&w, pop(&w));
  if (s == SC_OK) s = own_results(&w);
  sc_status put = put_gradients(&w, s == SC_OK);
  if (s == SC_OK) s = put;
  ctx->grad_enabled = was;
  ctx->tracing = tracing;
  ctx->walks--;
  give_back(&w);
  sc__release(ctx, w.heap, w.room * sizeof *w.heap);
  drop(edges, n_ys + n_inputs);
  if (s != SC_OK) for (int i = 0; i < n_inputs; i++) { sc_tensor_release(grads[i]); grads[i] = NULL; }
  sc__release(ctx, edges, bytes);
  return s;
}

sc_status sc_backward(sc_tensor *y, sc_tensor *dy, bool retain_graph) {
  return sc__backward(y->ctx, &y, &dy, 1, NULL, 0, retain_graph ? SC_WALK_RETAIN : 0, NULL);
}
