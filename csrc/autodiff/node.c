/* Nodes of the tape: how they live and die, hooks, and what keeps the script's functions alive.
**
** Dying is a list, not a recursion: releasing a node lets go of its saved tensors, whose last reference may release further
** nodes; those are put on the context's list and the loop already running takes them. So a chain of a million ops is freed with
** a stack of a few frames. */
#include "autodiff.h"

#include <string.h>

struct sc_autograd *sc__autograd(sc_tensor *t) {
  if (t->ad) return t->ad;
  struct sc_autograd *ad = sc__alloc_zero(t->ctx, sizeof *ad);
  if (!ad) { sc__no_memory(t->ctx, sizeof *ad); return NULL; }
  t->ad = ad;
  return ad;
}

/* ---- anchors ---- */

sc_status sc__anchor_join(sc_context *ctx, int64_t *anchor, int64_t other) {
  if (!other || other == *anchor) return SC_OK;
  if (!*anchor) { *anchor = other; return SC_OK; }
  return ctx->script_join ? ctx->script_join(ctx->locate_user, *anchor, other, anchor) : SC_OK;
}

void sc__anchor_set(sc_tensor *t, int64_t anchor) {
  if (!anchor || !t->ad) return;
  t->ad->anchor = anchor;
  t->flags |= SC_T_ANCHORED;
}

sc_status sc__node_pin(sc_node *n) {
  if (!n || !n->anchor || n->pin || !n->ctx->script_pin) return SC_OK;
  SC_TRY(n->ctx->script_pin(n->ctx->locate_user, n->anchor));
  n->pin = n->anchor;
  return SC_OK;
}

static void unpin(sc_context *ctx, int64_t id) { if (ctx->script_unpin) ctx->script_unpin(ctx->locate_user, id); }

/* ---- release ---- */

static void hooks_free(sc_context *ctx, sc_hook **list) {
  while (*list) {
    sc_hook *h = *list;
    *list = h->next;
    if (h->pinned) unpin(ctx, h->id);
    sc__release(ctx, h, sizeof *h);
  }
}

/* t leaves its node: it no longer keeps the gradient that arrives there. The hooks move to `to`, when given. */
static void move_kept(sc_tensor *t, sc_node *from, sc_node *to, int slot) {
  for (sc_hook **at = &from->hooks; *at; ) {
    sc_hook *h = *at;
    if (h->keep != t) { at = &h->next; continue; }
    if (!to) { h->keep = NULL; at = &h->next; continue; }
    *at = h->next;
    h->slot = slot;
    h->next = to->hooks;
    to->hooks = h;
  }
}

void sc__attach(sc_tensor *t, sc_node *n, int slot) {
  sc_node *old = t->ad->node;
  n->refs++;
  if (old && old->hooks) move_kept(t, old, n, slot);
  t->ad->node = n;
  t->ad->slot = slot;
  sc__node_release(old);
}

void sc__forget(sc_tensor *t) {
  struct sc_autograd *ad = t->ad;
  t->ad = NULL;
  if (ad->node && ad->node->hooks) move_kept(t, ad->node, NULL, 0);
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

static void bury(sc_node *n) {
  sc_context *ctx = n->ctx;
  for (int i = 0; i < n->n_in; i++) sc__node_release(n->edge[i].node);
  sc__node_free_saved(n);
  if (n->leaf) {
    if (n->leaf->ad && n->leaf->ad->accumulate == n) n->leaf->ad->accumulate = NULL;
    sc_tensor_release(n->leaf);
  }
  hooks_free(ctx, &n->hooks);
  if (n->pin) unpin(ctx, n->pin);
  if (n->attr) sc__release(ctx, n->attr, n->attr_bytes);
  sc__release(ctx, n, n->bytes);
}

void sc__node_release(sc_node *n) {
  if (!n || --n->refs > 0) return;
  sc_context *ctx = n->ctx;
  n->visit = (struct sc_visit *)ctx->dying;          /* a dead node's visit field links the list */
  ctx->dying = n;
  if (ctx->burying) return;
  ctx->burying = true;
  atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);    /* the last tensor may go in here */
  while (ctx->dying) {
    n = ctx->dying;
    ctx->dying = (sc_node *)n->visit;
    n->visit = NULL;
    bury(n);
  }
  ctx->burying = false;
  sc__context_unref(ctx);
}

/* ---- hooks ---- */

static sc_hook *hook_new(sc_context *ctx, sc_hook **list, int slot, int64_t id) {
  sc_hook *h = NULL;
  for (sc_hook **at = &list[0]; *at; at = &(*at)->next) {
    if ((*at)->id >= 0 || (*at)->keep || ctx->walks) continue;       /* a removed one: use it again, in its new place */
    h = *at;
    *at = h->next;
    break;
  }
  if (!h) h = sc__alloc(ctx, sizeof *h);
  if (!h) { sc__no_memory(ctx, sizeof *h); return NULL; }
  *h = (sc_hook){.slot = slot, .id = id};
  while (*list) list = &(*list)->next;
  *list = h;
  return h;
}

static sc_status pin_hook(sc_context *ctx, sc_hook *h) {
  if (!ctx->script_pin) return SC_OK;
  SC_TRY(ctx->script_pin(ctx->locate_user, h->id));
  h->pinned = true;
  return SC_OK;
}

/* Tensors computed from t before this call do not inherit the anchor: their nodes hold the function instead, by a pin. */
sc_status sc__add_hook(sc_tensor *t, int64_t id) {
  sc_context *ctx = t->ctx;
  sc_edge e = {NULL, 0};
  bool leaf = (t->flags & SC_T_REQUIRES) != 0;
  if (!leaf) SC_TRY(sc__edge_of(t, &e));
  if (!leaf && !e.node) return sc__fail(ctx, SC_EINVAL, "register_hook: the tensor does not require gradients");
  struct sc_autograd *ad = sc__autograd(t);
  if (!ad) return SC_ENOMEM;
  int64_t anchor = ad->anchor;
  SC_TRY(sc__anchor_join(ctx, &anchor, id));
  sc_hook *h = hook_new(ctx, leaf ? &ad->hooks : &e.node->hooks, e.slot, id);
  if (!h) return SC_ENOMEM;
  sc_status s = SC_OK;
  if (leaf && ad->accumulate) {
    sc_hook *hold = hook_new(ctx, &ad->accumulate->hooks, -1, id);
    s = hold ? pin_hook(ctx, hold) : SC_ENOMEM;
  } else if (!leaf && e.node->refs > 1) {
    s = pin_hook(ctx, h);
  }
  if (s == SC_OK && !leaf) s = sc__anchor_join(ctx, &e.node->anchor, id);
  if (s != SC_OK) { h->id = -1; return s; }
  sc__anchor_set(t, anchor);
  return SC_OK;
}

static void remove_from(sc_context *ctx, sc_hook *list, int64_t id) {
  for (sc_hook *h = list; h; h = h->next) {
    if (h->id != id) continue;
    if (h->pinned) unpin(ctx, id);
    h->pinned = false;
    h->id = -1;                                      /* a walk may be looking at it: freed with the list, or used again */
  }
}

void sc__remove_hook(sc_tensor *t, int64_t id) {
  if (!t->ad) return;
  remove_from(t->ctx, t->ad->hooks, id);
  if (t->ad->accumulate) remove_from(t->ctx, t->ad->accumulate->hooks, id);
  if (t->ad->node) remove_from(t->ctx, t->ad->node->hooks, id);
}

sc_status sc__retain_grad(sc_tensor *t) {
  if (t->flags & SC_T_REQUIRES) return SC_OK;
  sc_edge e;
  SC_TRY(sc__edge_of(t, &e));
  if (!e.node) return sc__fail(t->ctx, SC_EINVAL, "retain_grad: the tensor does not require gradients");
  for (sc_hook *h = e.node->hooks; h; h = h->next) if (h->keep == t) return SC_OK;
  sc_hook *h = hook_new(t->ctx, &e.node->hooks, e.slot, -1);
  if (!h) return SC_ENOMEM;
  h->keep = t;
  return SC_OK;
}

sc_status sc__detach_(sc_tensor *t) {
  if (t->ad && t->ad->base)
    return sc__fail(t->ctx, SC_EINVAL, "detach_: a view cannot be detached in-place; use detach(), or detach what it is a view of");
  if (t->ad && t->ad->node) {
    if (t->ad->node->hooks) move_kept(t, t->ad->node, NULL, 0);
    sc__node_release(t->ad->node);
    t->ad->node = NULL;
  }
  t->flags &= (uint8_t)~SC_T_REQUIRES;
  return SC_OK;
}
