/* The tape: recording calls, saving tensors, in-place calls and views.
**
** In-place on a view. The base's history becomes "the old base with the view's region replaced by the new value" (the op
** as_strided_scatter), and every view of that base makes its own history anew, as "as_strided of the new base", the next time it
** is asked for an edge. So a write to a view is a write into its base, and all views see it. */
#include "autodiff.h"

#include <string.h>

struct sc_autograd *sc__autograd(sc_tensor *t) {
  if (t->ad) return t->ad;
  struct sc_autograd *ad = sc__alloc_zero(t->ctx, sizeof *ad);
  if (!ad) { sc__no_memory(t->ctx, sizeof *ad); return NULL; }
  t->ad = ad;
  return ad;
}

static void hooks_free(sc_context *ctx, sc_hook **list) {
  while (*list) {
    sc_hook *h = *list;
    *list = h->next;
    sc__release(ctx, h, sizeof *h);
  }
}

static void forget(sc_tensor *t) {
  struct sc_autograd *ad = t->ad;
  t->ad = NULL;
  if (ad->node)
    for (sc_hook *h = ad->node->hooks; h; h = h->next) if (h->keep == t) h->keep = NULL;
  if (ad->accumulate) ad->accumulate->leaf = NULL;
  sc__node_release(ad->node);
  sc_tensor_release(ad->grad);
  sc_tensor_release(ad->base);
  hooks_free(t->ctx, &ad->hooks);
  sc__release(t->ctx, ad, sizeof *ad);
}

void sc__node_free_saved(sc_node *n) {
  for (int i = 0; i < n->n_in && n->in; i++) { sc_tensor_release(n->in[i].t); n->in[i].t = NULL; }
  for (int i = 0; i < n->n_out && n->out; i++) { sc_tensor_release(n->out[i].t); n->out[i].t = NULL; }
  n->freed = true;
}

/* Long chains die here: a loop over a list instead of a call per node. */
void sc__node_release(sc_node *n) {
  sc_node *dead = NULL;
  if (!n || --n->refs > 0) return;
  n->visit = NULL;
  dead = n;
  while (dead) {
    n = dead;
    dead = (sc_node *)n->visit;                     /* a dead node's visit field links the list */
    n->visit = NULL;
    for (int i = 0; i < n->n_in; i++) {
      sc_node *to = n->edge[i].node;
      if (!to || --to->refs > 0) continue;
      to->visit = (struct sc_visit *)dead;
      dead = to;
    }
    sc_context *ctx = n->ctx;
    n->refs = 1;                                    /* releasing saved tensors must not come back here */
    sc__node_free_saved(n);
    if (n->leaf) {
      if (n->leaf->ad && n->leaf->ad->accumulate == n) n->leaf->ad->accumulate = NULL;
      sc_tensor_release(n->leaf);
    }
    hooks_free(ctx, &n->hooks);
    if (n->attr) sc__release(ctx, n->attr, n->attr_bytes);
    sc__release(ctx, n, n->bytes);
  }
}

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
  n->n_in = (uint8_t)n_in;
  n->n_out = (uint8_t)n_out;
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

static void attach(sc_tensor *t, sc_node *n, int slot) {
  sc_node *old = t->ad->node;
  n->refs++;
  t->ad->node = n;
  t->ad->slot = slot;
  sc__node_release(old);
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
  attr[2] = sc__int(v->storage ? (v->data - base->data) / (int64_t)sc_dtype_size((sc_dtype)v->dtype) : 0);
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
  if (fresh->ad && fresh->ad->node) attach(t, fresh->ad->node, fresh->ad->slot);
  t->ad->base_history = base->ad->history;
  sc_tensor_release(fresh);
  return SC_OK;
}

/* x was written to by n. */
static sc_status rebase(sc_tensor *x, sc_node *n) {
  sc_tensor *base = x->ad ? x->ad->base : NULL;
  if (!base) {
    if (!sc__autograd(x)) return SC_ENOMEM;
    attach(x, n, 0);
    x->ad->history++;
    return SC_OK;
  }
  sc_context *ctx = x->ctx;
  const sc_opinfo *op = sc__op_find(ctx, "as_strided_scatter");
  sc_tensor *in[2] = {base, x};
  sc_node *m = node_new(ctx, 2, 1, shape_words(base) * 2 + shape_words(x));
  if (!m) return SC_ENOMEM;
  m->op = op;
  m->where = n->where;
  sc_attr attr[3];
  geometry(x, base, attr);
  m->attr = sc__attrs_copy(ctx, attr, 3, &m->attr_bytes);
  sc_status s = m->attr ? SC_OK : sc__no_memory(ctx, 64);
  int64_t *words = (int64_t *)(m->out_shape + 1);
  m->out_shape[0] = words;
  words = put_shape(words, base, true);
  attach(x, n, 0);                                   /* the new value's edge goes to n */
  if (s == SC_OK) s = sc__formulas_prepare(ctx, (sc_opinfo *)op);
  if (s == SC_OK) {
    x->ad->base_history = base->ad->history;         /* x is up to date: n is its history */
    s = fill_inputs(m, in, base, words);
  }
  if (s == SC_OK) {
    attach(base, m, 0);
    base->ad->history++;
  }
  sc__node_release(m);
  return s;
}

static sc_status record(sc_call *c, bool grad) {
  if (!grad) return set_base(c->out[0], c->in[0]);   /* a view without a history */
  sc_context *ctx = c->ctx;
  sc_opinfo *op = (sc_opinfo *)c->op;
  bool differentiable = false;
  for (int i = 0; i < c->n_out; i++) differentiable = differentiable || sc__is_float((sc_dtype)c->out[i]->dtype);
  if (!differentiable) return op->flags & SC_OP_VIEW && !c->inplace ? set_base(c->out[0], c->in[0]) : SC_OK;
  if (!sc__op_has_gradient(op) && !c->inplace) return SC_OK;
  SC_TRY(sc__formulas_prepare(ctx, op));
  size_t words = 0;
  for (int i = 0; i < c->n_in; i++) if (c->in[i]) words += shape_words(c->in[i]);
  for (int i = 0; i < c->n_out; i++) words += shape_words(c->out[i]);
  sc_node *n = node_new(ctx, c->n_in, c->n_out, words);
  if (!n) return SC_ENOMEM;
  n->op = op;
  n->base = c->base;
  n->where = sc__locate(ctx);
  int64_t *at = (int64_t *)(n->out_shape + c->n_out);
  for (int i = 0; i < c->n_out; i++) { n->out_shape[i] = at; at = put_shape(at, c->out[i], true); }
  sc_status s = fill_inputs(n, c->in, c->out[0], at);
  if (s == SC_OK && op->n_attr) {
    n->attr = sc__attrs_copy(ctx, c->attr, op->n_attr, &n->attr_bytes);
    if (!n->attr) s = sc__no_memory(ctx, n->attr_bytes);
  }
  uint32_t want_in = 0;                              /* only what the formulas of the wanted inputs read */
  uint32_t want_out = 0;
  for (int i = 0; i < c->n_in; i++) {
    int k = i < op->n_in ? i : op->n_in - 1;
    if (!n->edge[i].node) continue;
    want_in |= op->reads_in[k];
    want_out |= op->reads_out[k];
  }
  for (int i = 0; i < c->n_in && s == SC_OK; i++)
    if (c->in[i] && want_in >> (i < 31 ? i : 31) & 1) s = save(&n->in[i], c->inplace && i == 0 && c->old ? c->old : c->in[i], false);
  for (int i = 0; i < c->n_out && s == SC_OK; i++)
    if (want_out >> i & 1) s = save(&n->out[i], c->out[i], true);
  if (s == SC_OK && c->inplace) {
    s = rebase(c->in[0], n);
  } else if (s == SC_OK) {
    for (int i = 0; i < c->n_out && s == SC_OK; i++) {
      if (!sc__is_float((sc_dtype)c->out[i]->dtype)) continue;
      if (!sc__autograd(c->out[i])) { s = SC_ENOMEM; break; }
      attach(c->out[i], n, i);
      for (int k = 0; k < c->n_in; k++) if (c->in[k]) c->out[i]->flags |= c->in[k]->flags & SC_T_ANCHORED;
    }
    if (s == SC_OK && op->flags & SC_OP_VIEW) s = set_base(c->out[0], c->in[0]);
  }
  sc__node_release(n);
  return s;
}

sc_status sc__record_custom(sc_context *ctx, int64_t id, sc_tensor **in, int n_in, sc_tensor **out, int n_out) {
  size_t words = 0;
  for (int i = 0; i < n_in; i++) if (in[i]) words += shape_words(in[i]);
  for (int i = 0; i < n_out; i++) words += shape_words(out[i]);
  if (n_in > 255 || n_out > 255) return sc__fail(ctx, SC_EINVAL, "a custom function takes and returns at most 255 tensors");
  sc_node *n = node_new(ctx, n_in, n_out, words);
  if (!n) return SC_ENOMEM;
  n->kind = SC_NODE_CUSTOM;
  n->custom = id;
  n->where = sc__locate(ctx);
  int64_t *at = (int64_t *)(n->out_shape + n_out);
  for (int i = 0; i < n_out; i++) { n->out_shape[i] = at; at = put_shape(at, out[i], true); }
  sc_status s = fill_inputs(n, in, out[0], at);
  for (int i = 0; i < n_out && s == SC_OK; i++) {
    if (!sc__is_float((sc_dtype)out[i]->dtype)) continue;
    if (!sc__autograd(out[i])) s = SC_ENOMEM;
    else attach(out[i], n, i);
  }
  sc__node_release(n);
  return s;
}

static sc_status keep_old(sc_call *c) {
  SC_TRY(sc__formulas_prepare(c->ctx, (sc_opinfo *)c->op));
  uint32_t reads = 0;
  for (int i = 0; i < c->n_in; i++)
    if (c->in[i] && sc_requires_grad(c->in[i])) reads |= c->op->reads_in[i < c->op->n_in ? i : c->op->n_in - 1];
  return reads & 1 ? sc__op1(c->ctx, "clone", c->in[0], &c->old) : SC_OK;
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

sc_status sc__add_hook(sc_tensor *t, int64_t id) {
  sc_edge e = {NULL, 0};
  bool leaf = (t->flags & SC_T_REQUIRES) != 0;
  if (!leaf) SC_TRY(sc__edge_of(t, &e));
  if (!leaf && !e.node) return sc__fail(t->ctx, SC_EINVAL, "register_hook: the tensor does not require gradients");
  sc_hook *h = sc__autograd(t) ? sc__alloc_zero(t->ctx, sizeof *h) : NULL;
  if (!h) return sc__no_memory(t->ctx, sizeof *h);
  *h = (sc_hook){.slot = e.slot, .id = id};
  sc_hook **end = leaf ? &t->ad->hooks : &e.node->hooks;
  while (*end) end = &(*end)->next;
  *end = h;
  return SC_OK;
}

sc_status sc__retain_grad(sc_tensor *t) {
  if (t->flags & SC_T_REQUIRES) return SC_OK;
  sc_edge e;
  SC_TRY(sc__edge_of(t, &e));
  if (!e.node) return sc__fail(t->ctx, SC_EINVAL, "retain_grad: the tensor does not require gradients");
  for (sc_hook *h = e.node->hooks; h; h = h->next) if (h->keep == t) return SC_OK;
  sc_hook *h = sc__alloc_zero(t->ctx, sizeof *h);
  if (!h) return sc__no_memory(t->ctx, sizeof *h);
  *h = (sc_hook){.next = e.node->hooks, .slot = e.slot, .id = -1, .keep = t};
  e.node->hooks = h;
  return SC_OK;
}

void sc__detach_(sc_tensor *t) {
  if (t->ad && t->ad->node) { sc__node_release(t->ad->node); t->ad->node = NULL; }
  t->flags &= (uint8_t)~SC_T_REQUIRES;
}

sc_status sc__autodiff_attach(sc_context *ctx) {
  ctx->record = record;
  ctx->may_write = may_write;
  ctx->forget = forget;
  return SC_OK;
}
