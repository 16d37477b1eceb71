/* The reverse walk. A heap holds the nodes that have a gradient waiting, the newest first; since a node is newer than those it
** points at, all of a node's gradients have arrived when its turn comes. No recursion: a chain of a million ops is a heap of one.
**
** With `inputs`, a first pass over the graph marks the nodes that lead to one of them, and only those are run. */
#include "autodiff.h"

#include <stdio.h>
#include <string.h>

typedef struct sc_visit {
  sc_node *node;                 /* owned */
  struct sc_visit *outer;        /* of a walk that was going on when this one began (a hook may call backward) */
  struct walk *walk;
  sc_tensor *dy[];               /* [n_out]; NULL: none yet */
} sc_visit;

typedef struct walk {
  sc_context *ctx;
  sc_visit **heap;
  size_t n, room;
  uint64_t mark;
  sc_tensor **inputs, **grads;
  sc_edge *input_edge;
  int n_inputs;
  bool retain, create;
} walk;

static sc_status grow(sc_context *ctx, void *list, size_t *room, size_t item) {
  size_t more = *room ? *room * 2 : 64;
  void *bigger = sc__alloc(ctx, more * item);
  if (!bigger) return sc__no_memory(ctx, more * item);
  void **at = list;
  if (*at) memcpy(bigger, *at, *room * item);
  sc__release(ctx, *at, *room * item);
  *at = bigger;
  *room = more;
  return SC_OK;
}

static sc_status push(walk *w, sc_visit *v) {
  if (w->n == w->room) SC_TRY(grow(w->ctx, &w->heap, &w->room, sizeof *w->heap));
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

/* Gradient of a leaf: added to what it has; takes nothing. */
static sc_status accumulate(walk *w, sc_tensor *leaf, sc_tensor *dy) {
  struct sc_autograd *ad = sc__autograd(leaf);
  if (!ad) return SC_ENOMEM;
  sc_tensor *now;
  if (ad->grad) {
    SC_TRY(sc__op2(w->ctx, "add", ad->grad, dy, &now));
    sc_tensor_release(ad->grad);
    ad->grad = now;
    return SC_OK;
  }
  bool own = !dy->storage || (atomic_load(&dy->refs) == 1 && atomic_load(&dy->storage->refs) == 1 && dy->contiguous && !dy->storage->release);
  if (own) now = sc_tensor_retain(dy);
  else SC_TRY(sc__op1(w->ctx, "clone", dy, &now));
  ad->grad = now;
  return SC_OK;
}

static sc_status run_hooks(walk *w, sc_hook *list, sc_tensor **dy, int slot) {
  for (sc_hook *h = list, *next; h; h = next) {
    next = h->next;
    if (h->slot != slot || !*dy) continue;
    if (h->id >= 0) {
      sc_tensor *r = NULL;
      if (!w->ctx->script_hook) continue;
      SC_TRY(w->ctx->script_hook(w->ctx->locate_user, h->id, *dy, &r));
      if (r) { sc_tensor_release(*dy); *dy = r; }
    } else if (h->keep) {
      struct sc_autograd *ad = sc__autograd(h->keep);
      if (!ad) return SC_ENOMEM;
      sc_tensor *copy;
      if (ad->grad) SC_TRY(sc__op2(w->ctx, "add", ad->grad, *dy, &copy));
      else copy = sc_tensor_retain(*dy);
      sc_tensor_release(ad->grad);
      ad->grad = copy;
    }
  }
  return SC_OK;
}

static const char *place(sc_location l, char *out, size_t size) {
  if (l.line) snprintf(out, size, " (recorded at %s:%d)", l.file, l.line);
  else out[0] = 0;
  return out;
}

static sc_status check_saved(sc_node *n) {
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

/* Saved outputs were saved without their history (it would be a cycle); for gradients of gradients they get it back. */
static sc_status restore_output(walk *w, sc_node *n, int i) {
  sc_tensor *t = n->out[i].t;
  if (!w->create || !t || !sc__is_float((sc_dtype)t->dtype)) return SC_OK;
  struct sc_autograd *ad = sc__autograd(t);
  if (!ad) return SC_ENOMEM;
  if (!ad->node) { ad->node = n; n->refs++; ad->slot = i; }
  return SC_OK;
}

/* … and loses it again. */
static void strip_output(sc_node *n, int i) {
  sc_tensor *t = n->out[i].t;
  if (t && t->ad && t->ad->node == n) { t->ad->node = NULL; sc__node_release(n); }
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

static sc_status gradients(walk *w, sc_node *n, sc_visit *v, sc_tensor **dx, const bool *want) {
  sc_tensor *in[256], *out[256];
  for (int i = 0; i < n->n_in; i++) in[i] = n->in[i].t;
  for (int i = 0; i < n->n_out; i++) {
    out[i] = n->out[i].t;
    SC_TRY(restore_output(w, n, i));
  }
  if (n->kind == SC_NODE_CUSTOM) {
    SC_TRY(missing_dy(w, n, v));
    if (!w->ctx->script_backward) return sc__fail(w->ctx, SC_EINVAL, "backward: a custom function needs its script");
    return w->ctx->script_backward(w->ctx->locate_user, n->custom, v->dy, n->n_out, dx, n->n_in);
  }
  const sc_op *def = n->op->def;
  if (def->backward || n->n_out > 1) SC_TRY(missing_dy(w, n, v));
  sc_grad_call g = {.ctx = w->ctx, .op = n->op, .in = in, .out = out, .dy = v->dy, .n_in = n->n_in, .n_out = n->n_out, .attr = n->attr,
                    .base = n->base, .wanted = want, .dx = dx, .in_shape = n->in_shape, .out_shape = n->out_shape};
  if (def->backward) return def->backward(&g);
  for (int i = 0; i < n->n_in; i++)
    if (want[i] && n->op->formula[i]) SC_TRY(sc__formula_run(n->op->formula[i], &g, n->in_shape, n->out_shape, &dx[i]));
  return SC_OK;
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

static sc_status step(walk *w, sc_visit *v) {
  sc_node *n = v->node;
  sc_hook *hooks = n->kind == SC_NODE_ACCUMULATE ? (n->leaf && n->leaf->ad ? n->leaf->ad->hooks : NULL) : n->hooks;
  for (int i = 0; i < n->n_out && hooks; i++) SC_TRY(run_hooks(w, hooks, &v->dy[i], i));
  for (int k = 0; k < w->n_inputs; k++) {
    if (w->input_edge[k].node != n) continue;
    sc_tensor *dy = v->dy[w->input_edge[k].slot];
    if (dy) { sc_tensor_release(w->grads[k]); w->grads[k] = sc_tensor_retain(dy); }
  }
  if (n->kind == SC_NODE_ACCUMULATE) return w->n_inputs || !n->leaf || !v->dy[0] ? SC_OK : accumulate(w, n->leaf, v->dy[0]);
  if (n->freed) return check_saved(n);
  bool want[256], any = false;
  sc_tensor *dx[256];
  for (int i = 0; i < n->n_in; i++) {
    dx[i] = NULL;
    want[i] = wanted(w, n->edge[i].node);
    any = any || want[i];
  }
  if (!any) return SC_OK;
  SC_TRY(check_saved(n));
  sc_status s = gradients(w, n, v, dx, want);
  for (int i = 0; i < n->n_out && w->create; i++) strip_output(n, i);
  for (int i = 0; i < n->n_out; i++) { sc_tensor_release(v->dy[i]); v->dy[i] = NULL; }
  for (int i = 0; i < n->n_in; i++) {
    if (!dx[i]) continue;
    if (s != SC_OK || !want[i]) { sc_tensor_release(dx[i]); continue; }
    if (w->ctx->anomaly) s = check_nan(w, n, dx[i]);
    const int64_t *shape = n->in_shape[i] ? n->in_shape[i] : n->out_shape[0] + 1;
    if (s == SC_OK) s = fit(w, dx[i], (sc_dtype)n->in_dtype[i], shape, &dx[i]);
    else { sc_tensor_release(dx[i]); dx[i] = NULL; }
    if (s == SC_OK) s = deliver(w, n->edge[i], dx[i]);
  }
  if (s == SC_OK && !w->retain && n->kind == SC_NODE_OP) {   /* freed the moment it is done with */
    sc__node_free_saved(n);
    for (int i = 0; i < n->n_in; i++) { sc__node_release(n->edge[i].node); n->edge[i].node = NULL; }
  }
  return s;
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
        if (n == room && (s = grow(w->ctx, &stack, &room, sizeof *stack)) != SC_OK) break;
        enter->mark = w->mark;
        enter->needed = false;
        for (int k = 0; k < w->n_inputs; k++) enter->needed = enter->needed || w->input_edge[k].node == enter;
        stack[n++] = (frame){enter, 0};
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

sc_status sc__backward(sc_context *ctx, sc_tensor **ys, sc_tensor **dys, int n_ys, sc_tensor **inputs, int n_inputs, bool retain,
                       bool create, sc_tensor **grads) {
  walk w = {.ctx = ctx, .inputs = inputs, .grads = grads, .n_inputs = n_inputs, .retain = retain || create, .create = create};
  sc_edge *edges = sc__alloc_zero(ctx, (size_t)(n_ys + n_inputs + 1) * sizeof *edges);
  if (!edges) return sc__no_memory(ctx, 64);
  w.input_edge = edges + n_ys;
  sc_status s = SC_OK;
  bool was = ctx->grad_enabled;
  int held_ys = 0, held_in = 0;
  for (int i = 0; i < n_inputs; i++) grads[i] = NULL;
  for (int i = 0; i < n_ys && s == SC_OK; i++) {
    s = sc__edge_of(ys[i], &edges[i]);
    if (s == SC_OK) { hold(&edges[i], 1); held_ys++; }
    if (s == SC_OK && !edges[i].node)
      s = sc__fail(ctx, SC_EINVAL, "backward: the tensor has no history: none of what it was computed from requires gradients");
  }
  for (int i = 0; i < n_inputs && s == SC_OK; i++) {
    s = sc__edge_of(inputs[i], &w.input_edge[i]);
    if (s == SC_OK) { hold(&w.input_edge[i], 1); held_in++; }
    if (s == SC_OK && !w.input_edge[i].node) s = sc__fail(ctx, SC_EINVAL, "grad: input %d does not require gradients", i + ctx->index_base);
  }
  w.mark = ++ctx->sequence;
  if (s == SC_OK && n_inputs) s = mark_needed(&w, edges, n_ys);
  ctx->grad_enabled = create;
  for (int i = 0; i < n_ys && s == SC_OK; i++) {
    sc_tensor *dy;
    s = seed(ys[i], dys ? dys[i] : NULL, &dy);
    if (s == SC_OK && (sc_dtype)dy->dtype != (sc_dtype)ys[i]->dtype) s = fit(&w, dy, (sc_dtype)ys[i]->dtype, NULL, &dy);
    if (s == SC_OK) {
      if (n_inputs && !edges[i].node->needed) sc_tensor_release(dy);
      else s = deliver(&w, edges[i], dy);
    }
  }
  while (w.n && s == SC_OK) {
    sc_visit *v = pop(&w);
    s = step(&w, v);
    leave(&w, v);
  }
  while (w.n) leave(&w, pop(&w));
  ctx->grad_enabled = was;
  sc__release(ctx, w.heap, w.room * sizeof *w.heap);
  drop(edges, held_ys);
  drop(w.input_edge, held_in);
  if (s != SC_OK) for (int i = 0; i < n_inputs; i++) { sc_tensor_release(grads[i]); grads[i] = NULL; }
  sc__release(ctx, edges, (size_t)(n_ys + n_inputs + 1) * sizeof *edges);
  return s;
}

sc_status sc_backward(sc_tensor *y, sc_tensor *dy, bool retain_graph) {
  return sc__backward(y->ctx, &y, &dy, 1, NULL, 0, retain_graph, false, NULL);
}
