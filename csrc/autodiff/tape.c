/* The tape: recording calls, saving tensors, in-place calls and views.
**
** In-place on a view. The base's history becomes "the old base with the view's region replaced by the new value" (the op
** as_strided_scatter), and every view of that base makes its own history anew, as "as_strided of the new base", the next time it
** is asked for an edge. So a write to a view is a write into its base, and all views see it.
**
** A call is remembered before it runs, when everything that can fail here can still fail without a trace. What an in-place call
** changes in x's history waits in the call until the write is done. */
#include "autodiff.h"

#include <string.h>

static sc_node *accumulate_node(sc_tensor *t) {
  struct sc_autograd *ad = sc__autograd(t);
  if (!ad) return NULL;
  if (ad->accumulate) return ad->accumulate;
  sc_node *n = sc__alloc_zero(t->ctx, sizeof *n);
  if (!n) { sc__no_memory(t->ctx, sizeof *n); return NULL; }
  n->refs = 0;                                      /* the first edge counts */
  n->kind = SC_NODE_ACCUMULATE;
  n->n_out = 1;
  n->ctx = t->ctx;
  n->bytes = sizeof *n;
  n->leaf = sc_tensor_retain(t);
  ad->accumulate = n;
  return n;
}

static sc_status refresh_view(sc_tensor *t);

sc_status sc__edge_of(sc_tensor *t, sc_edge *out) {
  *out = (sc_edge){NULL, 0};
  if (t->flags & SC_T_REQUIRES) {
    out->node = accumulate_node(t);
    return out->node ? SC_OK : SC_ENOMEM;
  }
  if (!t->ad) return SC_OK;
  if (t->ad->base && t->ad->base->ad && t->ad->base->ad->history != t->ad->base_history) SC_TRY(refresh_view(t));
  out->node = t->ad->node;
  out->slot = t->ad->slot;
  return SC_OK;
}

bool sc_requires_grad(const sc_tensor *t) {
  if (t->flags & SC_T_REQUIRES) return true;
  if (!t->ad) return false;
  return t->ad->node || (t->ad->base && t->ad->base->ad && t->ad->base->ad->history != t->ad->base_history);
}

sc_status sc_set_requires_grad(sc_tensor *t, bool on) {
  if (on && !sc__is_float((sc_dtype)t->dtype))
    return sc__fail(t->ctx, SC_EINVAL, "requires_grad: only floating dtypes can require gradients, got %s", sc_dtype_name((sc_dtype)t->dtype));
  if (t->ad && t->ad->node) {
    if (on) return SC_OK;
    return sc__fail(t->ctx, SC_EINVAL, "requires_grad: can only be switched off for leaf tensors; use detach()");
  }
  if (on) t->flags |= SC_T_REQUIRES; else t->flags &= (uint8_t)~SC_T_REQUIRES;
  return SC_OK;
}

void sc_clear_grad(sc_tensor *t) {
  if (t->ctx->tracing && t->ctx->grad_changes(t) != SC_OK) return;
  if (!t->ad || !t->ad->grad) return;
  sc_tensor_release(t->ad->grad);
  t->ad->grad = NULL;
}

bool sc_set_grad_enabled(sc_context *ctx, bool on) {
  bool was = ctx->grad_enabled;
  ctx->grad_enabled = on;
  return was;
}

sc_tensor *sc_grad_of(const sc_tensor *t) { return t->ad ? t->ad->grad : NULL; }

/* ---- making nodes ---- */

static size_t shape_words(const sc_tensor *t) { return 2 + (size_t)t->ndim; }

/* One block: the node, its arrays, and the shapes. */
static sc_node *node_new(sc_context *ctx, int n_in, int n_out, size_t words) {
  size_t bytes = sizeof(sc_node) + (size_t)n_in * (sizeof(sc_edge) + sizeof(sc_saved) + sizeof(int64_t *) + 8) +
                 (size_t)n_out * (sizeof(sc_saved) + sizeof(int64_t *)) + words * 8;
  sc_node *n = sc__alloc_zero(ctx, bytes);
  if (!n) { sc__no_memory(ctx, bytes); return NULL; }
  n->refs = 1;
  n->ctx = ctx;
  n->bytes = bytes;
  n->n_in = n_in;
  n->n_out = n_out;
  n->seq = ++ctx->sequence;
  char *at = (char *)(n + 1);
  n->edge = (sc_edge *)at; at += (size_t)n_in * sizeof(sc_edge);
  n->in = (sc_saved *)at; at += (size_t)n_in * sizeof(sc_saved);
  n->out = (sc_saved *)at; at += (size_t)n_out * sizeof(sc_saved);
  n->in_shape = (const int64_t **)at; at += (size_t)n_in * sizeof(int64_t *);
  n->out_shape = (const int64_t **)at; at += (size_t)n_out * sizeof(int64_t *);
  n->in_dtype = (uint8_t *)(at + words * 8);
  return n;
}

static int64_t *put_shape(int64_t *at, const sc_tensor *t, bool dtype) {
  if (dtype) *at++ = t->dtype;
  *at++ = t->ndim;
  memcpy(at, t->dim, (size_t)t->ndim * 8);
  return at + t->ndim;
}

static bool same_shape(const sc_tensor *a, const sc_tensor *b) {
  return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * 8) == 0;
}

static sc_status fill_inputs(sc_node *n, sc_tensor **in, sc_tensor *out0, int64_t *words) {
  int64_t *at = words;
  for (int i = 0; i < n->n_in; i++) {
    if (!in[i]) continue;
    n->in_dtype[i] = in[i]->dtype;
    if (!same_shape(in[i], out0)) { n->in_shape[i] = at; at = put_shape(at, in[i], false); }
    if (!sc_requires_grad(in[i])) continue;
    sc_edge e;
    SC_TRY(sc__edge_of(in[i], &e));
    if (e.node) e.node->refs++;
    n->edge[i] = e;
  }
  return SC_OK;
}

static sc_status save(sc_saved *s, sc_tensor *t, bool output) {
  if (output) SC_TRY(sc__tensor_alias(t, &s->t));    /* the tensor itself would be a cycle: it owns the node */
  else s->t = sc_tensor_retain(t);
  if (output && t->graph) { s->t->graph = t->graph; s->t->value = t->value; t->ctx->retrace(s->t); }
  s->version = t->storage ? t->storage->version : 0;
  s->output = output;
  return SC_OK;
}

static sc_status set_base(sc_tensor *view, sc_tensor *of) {
  if (!sc__autograd(view)) return SC_ENOMEM;
  sc_tensor *base = of->ad && of->ad->base ? of->ad->base : of;
  if (!sc__autograd(base)) return SC_ENOMEM;
  view->ad->base = sc_tensor_retain(base);
  view->ad->base_history = base->ad->history;
  return SC_OK;
}

/* Where the view's elements are in its base, for as_strided. */
static void geometry(const sc_tensor *v, const sc_tensor *base, sc_attr attr[3]) {
  attr[0] = sc__ints(v->dim, v->ndim);
  attr[1] = sc__ints(sc__stride(v), v->ndim);
  attr[2] = sc__int((v->data - base->data) / (int64_t)sc_dtype_size((sc_dtype)v->dtype));
}

static sc_status refresh_view(sc_tensor *t) {
  sc_tensor *base = t->ad->base, *fresh;
  sc_context *ctx = t->ctx;
  sc_attr attr[3];
  geometry(t, base, attr);
  bool was = ctx->grad_enabled;
  ctx->grad_enabled = true;
  sc_status s = sc__op(ctx, "as_strided", &base, 1, attr, 3, &fresh);
  ctx->grad_enabled = was;
  SC_TRY(s);
  if (fresh->ad && fresh->ad->node) {
    s = sc__node_pin(fresh->ad->node);               /* t's userdata knows nothing of the new history */
    if (s == SC_OK) {
      sc__attach(t, fresh->ad->node, fresh->ad->slot);
      sc__anchor_set(t, fresh->ad->anchor);
    }
  }
  if (s == SC_OK) t->ad->base_history = base->ad->history;
  sc_tensor_release(fresh);
  return s;
}

/* The node of the base that x, a view, is written through. */
static sc_status plan_base(sc_call *c, sc_node *n) {
  sc_context *ctx = c->ctx;
  sc_tensor *x = c->in[0], *base = x->ad->base;
  sc_opinfo *op = (sc_opinfo *)sc__op_find(ctx, "as_strided_scatter");
  SC_TRY(sc__formulas_prepare(ctx, op));
  sc_node *m = node_new(ctx, 2, 1, shape_words(base) * 2 + shape_words(x));
  if (!m) return SC_ENOMEM;
  c->base_node = m;
  m->op = op;
  m->where = n->where;
  m->module = n->module;
  sc_attr attr[3];
  geometry(x, base, attr);
  m->attr = sc__attrs_copy(ctx, attr, 3, &m->attr_bytes);
  if (!m->attr) return sc__no_memory(ctx, m->attr_bytes);
  int64_t *words = (int64_t *)(m->out_shape + 1);
  m->out_shape[0] = words;
  words = put_shape(words, base, true);
  SC_TRY(fill_inputs(m, (sc_tensor *[]){base, NULL}, base, words));
  m->in_dtype[1] = x->dtype;
  if (!same_shape(x, base)) { m->in_shape[1] = words; put_shape(words, x, false); }
  m->edge[1] = (sc_edge){n, 0};
  n->refs++;
  m->anchor = n->anchor;
  if (base->flags & SC_T_ANCHORED) SC_TRY(sc__anchor_join(ctx, &m->anchor, base->ad->anchor));
  return sc__node_pin(m);
}

/* Ends an in-place call: the write is done, or it failed. */
static void commit(sc_call *c, bool done) {
  sc_node *n = c->node, *m = c->base_node;
  c->node = c->base_node = NULL;
  if (n && done) {
    sc_tensor *x = c->in[0];
    for (int i = 0; i < n->n_in + n->n_out; i++) {   /* what was saved and shares x's memory does not overlap x (or is x) */
      sc_saved *s = i < n->n_in ? &n->in[i] : &n->out[i - n->n_in];
      if (s->t && s->t->storage && s->t->storage == x->storage) s->version = x->storage->version;
    }
    sc__attach(x, n, 0);
    sc__anchor_set(x, n->anchor);
    if (m) {
      sc_tensor *base = x->ad->base;
      sc__attach(base, m, 0);
      sc__anchor_set(base, m->anchor);
      base->ad->history++;
      x->ad->base_history = base->ad->history;       /* x is up to date: n is its history */
    } else {
      x->ad->history++;
    }
  }
  sc__node_release(m);
  sc__node_release(n);
}

/* The value of input i that the gradient will read: of what an in-place call overwrites, the copy. */
static sc_tensor *value_of(const sc_call *c, int i) {
  sc_tensor *x = c->in[0], *t = c->in[i];
  if (!c->inplace || !c->old) return t;
  return t == x || (t->storage && t->storage == x->storage && t->data == x->data && t->numel) ? c->old : t;
}

static sc_status save_for(sc_call *c, sc_node *n) {
  const sc_opinfo *op = c->op;
  uint32_t want_in = 0, want_out = 0;                /* only what the formulas of the wanted inputs read */
  for (int i = 0; i < c->n_in; i++) {
    int k = i < op->n_in ? i : op->n_in - 1;
    if (!n->edge[i].node) continue;
    want_in |= op->reads_in[k];
    want_out |= op->reads_out[k];
  }
  for (int i = 0; i < c->n_in; i++)
    if (c->in[i] && want_in >> (i < 31 ? i : 31) & 1) SC_TRY(save(&n->in[i], value_of(c, i), false));
  for (int i = 0; i < c->n_out; i++)
    if (want_out >> i & 1) SC_TRY(save(&n->out[i], c->inplace ? c->in[0] : c->out[i], true));
  return SC_OK;
}

static sc_status finish_node(sc_call *c, sc_node *n) {
  for (int k = 0; k < c->n_in; k++)
    if (c->in[k] && c->in[k]->flags & SC_T_ANCHORED && n->edge[k].node) SC_TRY(sc__anchor_join(c->ctx, &n->anchor, c->in[k]->ad->anchor));
  SC_TRY(save_for(c, n));
  if (c->inplace) {
    sc_tensor *x = c->in[0];
    if (!sc__autograd(x)) return SC_ENOMEM;
    if (x->ad->base) return plan_base(c, n);
    return atomic_load_explicit(&x->refs, memory_order_relaxed) > 1 ? sc__node_pin(n) : SC_OK;
  }
  for (int i = 0; i < c->n_out; i++) {
    if (!sc__is_float((sc_dtype)c->out[i]->dtype)) continue;
    if (!sc__autograd(c->out[i])) return SC_ENOMEM;
    sc__attach(c->out[i], n, i);
    sc__anchor_set(c->out[i], n->anchor);
  }
  return c->op->flags & SC_OP_VIEW ? set_base(c->out[0], c->in[0]) : SC_OK;
}

static sc_status record(sc_call *c, bool grad) {
  if (!grad) return set_base(c->out[0], c->in[0]);   /* a view without a history */
  sc_context *ctx = c->ctx;
  sc_opinfo *op = (sc_opinfo *)c->op;
  bool differentiable = false, any = false;
  for (int i = 0; i < c->n_out; i++) differentiable = differentiable || sc__is_float((sc_dtype)(c->inplace ? c->in[0] : c->out[i])->dtype);
  if (!differentiable) return op->flags & SC_OP_VIEW && !c->inplace ? set_base(c->out[0], c->in[0]) : SC_OK;
  if (c->inplace) for (int i = 0; i < c->n_in && !any; i++) any = c->in[i] && sc_requires_grad(c->in[i]);
  if (c->inplace ? !any : !sc__op_has_gradient(op)) return SC_OK;
  SC_TRY(sc__formulas_prepare(ctx, op));
  size_t words = 0;
  for (int i = 0; i < c->n_in; i++) if (c->in[i]) words += shape_words(c->in[i]);
  for (int i = 0; i < c->n_out; i++) words += shape_words(c->inplace ? c->in[0] : c->out[i]);
  sc_node *n = node_new(ctx, c->n_in, c->n_out, words);
  if (!n) return SC_ENOMEM;
  n->op = op;
  n->base = c->base;
  n->where = sc__locate(ctx);
  n->module = ctx->module;
  int64_t *at = (int64_t *)(n->out_shape + c->n_out);
  for (int i = 0; i < c->n_out; i++) { n->out_shape[i] = at; at = put_shape(at, c->inplace ? c->in[0] : c->out[i], true); }
  sc_status s = fill_inputs(n, c->in, c->inplace ? c->in[0] : c->out[0], at);
  if (s == SC_OK && op->n_attr) {
    n->attr = sc__attrs_copy(ctx, c->attr, op->n_attr, &n->attr_bytes);
    if (!n->attr) s = sc__no_memory(ctx, n->attr_bytes);
  }
  if (s == SC_OK) s = finish_node(c, n);
  if (c->inplace) c->node = n; else sc__node_release(n);
  return s;
}

sc_status sc__record_custom(sc_context *ctx, int64_t id, sc_tensor **in, int n_in, sc_tensor **out, int n_out) {
  size_t words = 0;
  for (int i = 0; i < n_in; i++) if (in[i]) words += shape_words(in[i]);
  for (int i = 0; i < n_out; i++) words += shape_words(out[i]);
  sc_node *n = node_new(ctx, n_in, n_out, words);
  if (!n) return SC_ENOMEM;
  n->kind = SC_NODE_CUSTOM;
  n->custom = n->anchor = id;
  n->where = sc__locate(ctx);
  n->module = ctx->module;
  int64_t *at = (int64_t *)(n->out_shape + n_out);
  for (int i = 0; i < n_out; i++) { n->out_shape[i] = at; at = put_shape(at, out[i], true); }
  sc_status s = fill_inputs(n, in, out[0], at);
  for (int i = 0; i < n_in && s == SC_OK; i++)
    if (in[i] && in[i]->flags & SC_T_ANCHORED && n->edge[i].node) s = sc__anchor_join(ctx, &n->anchor, in[i]->ad->anchor);
  for (int i = 0; i < n_out && s == SC_OK; i++)
    if (sc__is_float((sc_dtype)out[i]->dtype) && !sc__autograd(out[i])) s = SC_ENOMEM;
  for (int i = 0; i < n_out && s == SC_OK; i++) {
    if (!sc__is_float((sc_dtype)out[i]->dtype)) continue;
    sc__attach(out[i], n, i);
    sc__anchor_set(out[i], n->anchor);
  }
  sc__node_release(n);
  return s;
}

static sc_status keep_old(sc_call *c) {
  SC_TRY(sc__formulas_prepare(c->ctx, (sc_opinfo *)c->op));
  uint32_t reads = 0;
  for (int i = 0; i < c->n_in; i++)
    if (c->in[i] && sc_requires_grad(c->in[i])) reads |= c->op->reads_in[i < c->op->n_in ? i : c->op->n_in - 1];
  sc_tensor *x = c->in[0];
  bool need = reads & 1;
  for (int i = 1; i < c->n_in && !need; i++)         /* x given twice, as in x:mul_(x) */
    need = c->in[i] && reads >> (i < 31 ? i : 31) & 1 && (c->in[i] == x || (x->storage && c->in[i]->storage == x->storage && c->in[i]->data == x->data));
  return need ? sc__op1(c->ctx, "clone", x, &c->old) : SC_OK;
}

static sc_status may_write(sc_call *c, bool wants_grad) {
  sc_tensor *x = c->in[0];
  if (!c->ctx->grad_enabled) return SC_OK;
  if (x->flags & SC_T_REQUIRES)
    return sc__bad_call(c, "a leaf tensor that requires gradients cannot be changed in-place; use sc.no_grad");
  sc_tensor *base = x->ad ? x->ad->base : NULL;
  if (!base) return wants_grad ? keep_old(c) : SC_OK;
  if (base->flags & SC_T_REQUIRES)
    return sc__bad_call(c, "a view of a leaf tensor that requires gradients cannot be changed in-place; use sc.no_grad");
  bool grad = false;
  for (int i = 0; i < c->n_in; i++) grad = grad || (c->in[i] && sc_requires_grad(c->in[i]));
  if (grad && !base->contiguous) return sc__bad_call(c, "in-place on a view of a tensor that is not contiguous cannot be differentiated");
  return grad ? keep_old(c) : SC_OK;
}

static sc_status gradients(sc_context *ctx, sc_tensor **y, sc_tensor **dy, int n_y, sc_tensor **x, int n_x, sc_tensor **dx) {
  return sc__backward(ctx, y, dy, n_y, x, n_x, SC_WALK_CREATE | SC_WALK_CUT, dx);
}

sc_status sc__autodiff_attach(sc_context *ctx) {
  ctx->record = record;
  ctx->gradients = gradients;
  ctx->may_write = may_write;
  ctx->commit = commit;
  ctx->forget = sc__forget;
  return SC_OK;
}
