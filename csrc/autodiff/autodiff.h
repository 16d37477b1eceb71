/* autodiff: the tape and the reverse walk. Gradients are computed by emitting ops, so the same code serves dynamic mode, graphs
** being recorded, and gradients of gradients. Knows nothing of Lua.
**
** A *node* is a recorded call. It points at the nodes that made its inputs (edges) and keeps the inputs and outputs its formulas
** read (saved). A leaf that wants a gradient has an accumulate node. Nodes carry a growing sequence number: a node is made after
** those it points at, so taking the highest number first visits every node after all of its users.
**
** Functions of the script (hooks, custom backwards) are known here by numbers. They live on the script's side, kept alive by the
** tensors whose history holds them: a tensor's *anchor* is the number of what the script's side must keep for it, an op's results
** inherit the anchors of its inputs, and the binding hangs the anchor on the tensor's userdata. So the script's collector sees
** cycles such as function -> tensor -> node -> function, and collects them. Where C alone holds a history (a gradient that has one,
** a base written to through a view), the node *pins* its anchor for as long as it lives. */
#ifndef SC_AUTODIFF_H
#define SC_AUTODIFF_H

#include "../ops/ops.h"

typedef struct sc_node sc_node;
typedef struct sc_edge { sc_node *node; int32_t slot; } sc_edge;     /* node NULL: no gradient goes there */

typedef struct sc_saved {
  sc_tensor *t;                  /* NULL: not saved */
  uint32_t version;              /* of its storage when saved */
  bool output;
} sc_saved;

typedef enum sc_node_kind { SC_NODE_OP, SC_NODE_ACCUMULATE, SC_NODE_CUSTOM } sc_node_kind;

/* A hook of a node's output slot: a function of the script, or a tensor that keeps its gradient. */
typedef struct sc_hook {
  struct sc_hook *next;
  int32_t slot;                  /* -1: only holds a pin */
  int64_t id;                    /* of the script's function; -1: none, or removed */
  bool pinned;                   /* id is pinned while the hook lives */
  sc_tensor *keep;               /* borrowed: removed when the tensor dies */
} sc_hook;

struct sc_node {
  int32_t refs;
  uint8_t kind, base;
  bool freed, needed;
  int32_t n_in, n_out;
  uint64_t seq;
  sc_context *ctx;
  const sc_opinfo *op;           /* CUSTOM and ACCUMULATE: NULL */
  sc_location where;             /* the script's line that made it */
  const char *module;            /* the module at work then, while recording; interned */
  sc_attr *attr;
  size_t attr_bytes, bytes;
  sc_hook *hooks;
  int64_t custom;                /* id of the script's backward */
  int64_t anchor, pin;           /* 0: none */
  sc_tensor *leaf;               /* ACCUMULATE: owned */
  struct sc_visit *visit;        /* of the walk going on */
  uint64_t mark;                 /* of the last walk that looked at it */
  sc_edge *edge;                 /* [n_in] */
  sc_saved *in, *out;            /* [n_in], [n_out] */
  uint8_t *in_dtype;             /* [n_in] */
  const int64_t **in_shape;      /* [n_in]: rank, then sizes; NULL: the shape of output 0 */
  const int64_t **out_shape;     /* [n_out]: dtype, rank, then sizes */
};

struct sc_autograd {
  sc_node *node;                 /* that made the tensor; NULL: leaf */
  int32_t slot;
  sc_tensor *grad;
  sc_node *accumulate;           /* borrowed: clears itself */
  sc_hook *hooks;                /* of a leaf */
  int64_t anchor;                /* with SC_T_ANCHORED */
  sc_tensor *base;               /* of a view: the tensor whose storage it looks at */
  uint32_t base_history;         /* the base's history when `node` was made */
  uint32_t history;              /* of a base: counts in-place calls recorded on it */
};

/* ---- tape.c: recording ---- */
/* The edge that a gradient of t takes; {NULL} when it wants none. The node is borrowed. May fail (views are brought up to date). */
sc_status sc__edge_of(sc_tensor *t, sc_edge *out);
/* A node of the script's own: out[i] become its outputs. The outputs must be fresh: no history, not leaves that want gradients. */
sc_status sc__record_custom(sc_context *ctx, int64_t id, sc_tensor **in, int n_in, sc_tensor **out, int n_out);

/* ---- node.c: the life of nodes, hooks, anchors ---- */
void sc__node_release(sc_node *n);
void sc__node_free_saved(sc_node *n);
/* borrowed: t's autodiff data, made when missing; NULL when memory is refused */
struct sc_autograd *sc__autograd(sc_tensor *t);
/* t becomes output `slot` of n (which is retained), leaving the node it had. */
void sc__attach(sc_tensor *t, sc_node *n, int slot);
void sc__forget(sc_tensor *t);
sc_status sc__add_hook(sc_tensor *t, int64_t id);
void sc__remove_hook(sc_tensor *t, int64_t id);
sc_status sc__retain_grad(sc_tensor *t);
sc_status sc__detach_(sc_tensor *t);
/* *anchor = what keeps both alive. */
sc_status sc__anchor_join(sc_context *ctx, int64_t *anchor, int64_t other);
void sc__anchor_set(sc_tensor *t, int64_t anchor);
sc_status sc__node_pin(sc_node *n);

/* ---- walk.c ----
** ys, dys: what to differentiate and the gradients arriving (NULL: ones, for a single element). With inputs (n_inputs > 0)
** their gradients are returned in grads (new; NULL: not reached) and leaves are left alone; else gradients are added to leaves,
** all of them at the end, so that a walk that fails has changed no gradient. */
enum {
  SC_WALK_RETAIN = 1,            /* keep what the nodes saved: the same may be walked again */
  SC_WALK_CREATE = 2,            /* the gradients can be differentiated; keeps too */
  SC_WALK_CUT = 4                /* do not go past an input, not even to reach another */
};
sc_status sc__backward(sc_context *ctx, sc_tensor **ys, sc_tensor **dys, int n_ys, sc_tensor **inputs, int n_inputs, uint32_t how,
                       sc_tensor **grads);
sc_status sc__check_saved(sc_node *n);

sc_status sc__autodiff_attach(sc_context *ctx);      /* puts the tape into the context's services */

/* ---- formulas ---- */
/* Compiles an op's formulas and sets what they save. */
sc_status sc__formulas_prepare(sc_context *ctx, sc_opinfo *op);
sc_status sc__formula_run(const struct sc_formula *f, sc_grad_call *g, const int64_t *const *in_shape, const int64_t *const *out_shape,
                          sc_tensor **dx);
void sc__formula_free(sc_context *ctx, struct sc_formula *f);
bool sc__op_has_gradient(const sc_opinfo *op);

#endif
