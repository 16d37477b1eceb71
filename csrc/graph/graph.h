/* graph: recorded calls, to be run many times. Knows nothing of Lua.
**
** A graph is a list of *values* and a list of *nodes* in the order of recording. A value is an input, a captured tensor (by
** reference: a run sees what it holds then) or a node's result; a result of a view op names the value it looks into. A symbolic
** tensor is a header that names a value. An in-place node's result is its first input's value, written to at that place in the order.
**
** A *plan* is a graph made ready for one set of sizes: nodes put through the passes, every header made, memory laid out by lifetime
** in one arena. Running it is a loop over prepared calls. */
#ifndef SC_GRAPH_H
#define SC_GRAPH_H

#include "../autodiff/autodiff.h"

typedef enum sc_value_kind { SC_VALUE_INPUT, SC_VALUE_CAPTURE, SC_VALUE_RESULT } sc_value_kind;

typedef struct sc_value {
  uint8_t kind, dtype, ndim;
  bool view, requires;           /* requires: a captured tensor asked for gradients */
  const char *name;              /* interned; inputs */
  sc_tensor *captured;           /* owned */
  int32_t node;                  /* that makes it; -1 */
  int32_t root;                  /* the value whose memory it is: itself, unless it is a view */
  int64_t offset;                /* of views: bytes from the root's first element */
  int64_t *dim;                  /* [2 * ndim] sizes, strides; owned */
} sc_value;

typedef struct sc_graph_node {
  const sc_opinfo *op;
  uint8_t base;
  bool inplace;
  bool inside;                   /* of a rewritten graph: its results are none of the recorded node's */
  int n_in, n_out;
  int32_t *in;                   /* values, -1: absent; owned, n_in + n_out numbers */
  int32_t *out;
  sc_attr *attr;
  size_t attr_bytes;
  int32_t origin;                /* the node of the recorded graph that it stands for: itself, unless passes put it there */
  sc_origin where;
  const char *said;              /* interned: what messages of an internal op call it, the public op that it was recorded in; or NULL */
} sc_graph_node;

typedef struct sc__output { const char *name; int32_t value; } sc__output;
typedef struct sc__grad_change { sc_tensor *leaf, *before; } sc__grad_change;   /* both owned; before may be NULL */

typedef struct sc_graph_mark { size_t nodes, values, inputs, outputs; } sc_graph_mark;   /* a place in the recording */

struct sc_graph {
  int32_t refs;
  sc_context *ctx;
  sc_value *value;
  sc_graph_node *node;
  sc__output *output;
  int32_t *input;
  sc__grad_change *change;
  sc__grad_change *grad_read;                          /* leaves whose gradient from before the trace it looked at: it is part of the guard */
  size_t n_values, room_values, n_nodes, room_nodes, n_outputs, room_outputs, n_inputs, room_inputs, n_changes, room_changes, n_grad_read, room_grad_read;
  bool sealed;                   /* compiled by hand: nothing is recorded any more */
  size_t n_hidden;               /* outputs at the end of the list that n_outputs leaves out for now */
  int n_sizes;
  const char *size_name[10];     /* [SC_SYMBOLS] interned: what sizes that are not known are called */
  sc_tensor *generators;         /* NULL, or int64 {n, 2}: those that nodes draw from when the graph was read from text; owned */
  int32_t *capture;              /* [room_captures], a power of 2: captured values by their tensor's address, -1: free */
  size_t n_captures, room_captures;
  size_t most_nodes;             /* recording more is refused; 0: no limit */
  struct sc_graph *built_before; /* what was being built when this one took over */
  sc_graph_mark before;          /* the newest node */
  bool part;                     /* a branch or body being recorded: tensors from outside become inputs, their `captured` is what they are */
  struct sc_graph *was_tracing, *was_building;         /* of such: what they were before */
};

sc_graph *sc__graph_retain(sc_graph *g);
int32_t sc__captured_value(const sc_graph *g, const sc_tensor *t);       /* -1: t is not captured */
/* The value that t stands for in g; a tensor with data is captured. */
sc_status sc__graph_value(sc_graph *g, sc_tensor *t, int32_t *out);
/* A further input, laid out with these strides. */
sc_status sc__graph_strided_input(sc_graph *g, const char *name, const sc_meta *m, sc_tensor **out);
sc_status sc__graph_attach(sc_context *ctx);         /* puts recording into the context's services */
/* From begin to end every op of the context goes into g. End gives leaves back the gradients they had. */
sc_status sc__trace_begin(sc_graph *g);
/* Gives every leaf whose gradient changed during the trace the gradient it had, and forgets about it. */
void sc__trace_restore(sc_graph *g);
void sc__trace_end(sc_graph *g);

/* ---- branches and bodies: recorded while another graph is ---- */
/* From begin to end every op goes into g. Tensors from outside become inputs of g, after those declared in between. */
void sc__part_begin(sc_graph *g);
/* Fails when g writes to a tensor from outside, or leaves a gradient in one. Then the tensors from outside can be read off its inputs
** (`captured`), in the order of the inputs after the first `formals`, until they are dropped. */
sc_status sc__part_end(sc_graph *g);
void sc__part_drop(sc_graph *g);                        /* also instead of end, when recording has failed */

/* "recorded at train.lua:3, in fc1" */
const char *sc__origin_text(const sc_origin *o, char *out, size_t size);
bool sc__node_random(const sc_graph_node *n);           /* draws random numbers, itself or in a graph that it runs */
/* It writes to operand i. */
static inline bool sc__node_writes(const sc_graph_node *n, int i) {
  return n->in[i] >= 0 && ((n->inplace && i == 0) || (i < 32 && n->op->def->writes >> i & 1));
}
bool sc__node_acts(const sc_graph_node *n);             /* it does more than compute: writes to something, or draws random numbers */
static inline bool sc__node_pure(const sc_graph_node *n) { return !sc__node_acts(n); }
void sc__node_free(sc_context *ctx, sc_graph_node *n);

/* ---- sizes that are not known yet ---- */
enum { SC_SYMBOLS = 10 };
typedef struct sc_sizes { int n; int64_t actual[SC_SYMBOLS]; } sc_sizes;
int64_t sc__stand_in(int symbol);                      /* the number that stands for a symbolic size in a recorded graph */
bool sc__is_symbolic_size(int64_t size);
/* v = quotient * (stand-in of that symbol, one of the first n) + rest; the quotient may hold another one. false: v is a plain number. */
bool sc__size_term(int n, int64_t v, int *symbol, int64_t *quotient, int64_t *rest);
int64_t sc__sizes_apply(const sc_sizes *z, int64_t v);
/* new: the same graph for actual sizes. */
sc_status sc__graph_instantiate(const sc_graph *g, const sc_sizes *sizes, sc_graph **out);

/* new: the same graph for another context, or for a run with generators of its own: captured tensors shared, generators copied (job_move.c). */
bool sc__names_generator(const sc_graph *g);           /* a node of it, or of a branch or loop, draws from one that is not the context's */
sc_status sc__graph_move(const sc_graph *g, sc_context *ctx, sc_graph **out);
/* new: what computes those values from the values fed and the inputs (fetch.c). Its inputs are those of g that are needed, then one named
** "feed 1" … for each value fed; its outputs are named "1", "2" …. updates: also what g writes to captured tensors. */
sc_status sc__graph_fetch(const sc_graph *g, const int32_t *fetch, int n_fetch, const int32_t *feed, int n_feed, bool updates, sc_graph **out);
/* text with the names of g's sizes instead of their stand-ins (names.c); as it is when g is NULL or has none. */
void sc__name_sizes(const sc_graph *g, const char *text, char *out, size_t size);
/* Whether both are recordings of the same computation (compare.c). */
sc_status sc__graph_same(const sc_graph *a, const sc_graph *b, bool *out);

/* What the context was doing before ops were emitted into another graph, without gradients; put back by the end. */
typedef struct sc__emitting { sc_graph *tracing, *building; bool grad; } sc__emitting;
sc__emitting sc__emit_into(sc_graph *to);
void sc__emit_into_end(sc_context *ctx, const sc__emitting *was);
/* Whether captures ask for gradients is decided by the recording: `to` was emitted from g. */
void sc__same_requires(const sc_graph *g, sc_graph *to);
/* The context's error as it is, with the place in the script that recorded the node. */
sc_status sc__fail_at(sc_context *ctx, const sc_origin *where, sc_status status);

/* A graph being emitted again into the one that is traced. now: [n_values] what a value has become there. */
typedef struct sc__instance { const sc_graph *from; const sc_sizes *sizes; sc_tensor **now; struct sc_control *controls; } sc__instance;
void sc__instance_end(sc__instance *s);
sc_status sc__graph_again(sc__instance *s, const sc_graph_node *n);
/* g's nodes emitted on these inputs: carried out, or recorded where something is being recorded. out: new, one per output. */
sc_status sc__graph_apply(const sc_graph *g, const sc_sizes *sizes, sc_tensor *const *in, sc_tensor **out);

/* ---- splitting (split.c) ---- */
sc_graph_mark sc__graph_mark(const sc_graph *g);
/* Everything recorded since the mark moves into a graph of its own (new): its inputs are the values it reads of the first part, in
** the order of n further outputs that g gets, and then the inputs declared since. */
sc_status sc__graph_split(sc_graph *g, const sc_graph_mark *m, sc_graph **tail, int *n);
void sc__captures_again(sc_graph *g);                   /* fills the table of captured values */
void sc__graph_cut(sc_graph *g, const sc_graph_mark *m);                /* forgets everything since the mark */

/* ---- passes. Rewrites make a new graph (rewrite.c); the others mark nodes they have made needless, or merge values (passes.c). ---- */
enum {
  SC_PASS_CSE = 1, SC_PASS_DCE = 2, SC_PASS_FUSE = 4, SC_PASS_REUSE = 8, SC_PASS_BRANCHES = 16,
  SC_PASS_FOLD = 0x100, SC_PASS_ALGEBRA = 0x200, SC_PASS_IDIOMS = 0x400, SC_PASS_NORMS = 0x800, SC_PASS_EPILOGUES = 0x1000,
  SC_PASS_REWRITES = 0x1f00,
  SC_PASS_ROUNDING = 0x8000,     /* rewrites may change rounding */
  SC_PASS_EXACT = 0x7fff, SC_PASS_ALL = 0xffff
};
typedef struct sc_pass_info { const char *name; unsigned bit; } sc_pass_info;
extern const sc_pass_info sc__pass_list[];               /* in the order in which they run */
extern const int sc__pass_list_count;

/* new: g as the rewrites among these passes leave it (rewrite.c); g itself when they change nothing. */
sc_status sc__graph_rewrite(sc_graph *g, unsigned passes, sc_graph **out);

bool sc__same_attr(const sc_attr *a, const sc_attr *b);
bool sc__same_attrs(const sc_opinfo *op, const sc_attr *a, const sc_attr *b);
/* Whether g is a graph: values defined before they are used, numbers in range, the ops' shape rules, views, writes. SC_EINVAL says what is
** wrong: a fault of ours, never of a script. */
sc_status sc__graph_check(const sc_graph *g);
/* Whether all that a graph does besides computing (writes, random numbers) happens in its rewritten form too, in the same order. */
sc_status sc__effects_check(const sc_graph *before, const sc_graph *after);

typedef struct sc_view_of_graph {                    /* the graph as passes leave it */
  const sc_graph *g;
  bool *dead;                    /* [n_nodes] */
  int32_t *same;                 /* [n_values]: the value to read instead; itself when none */
  int32_t *group;                /* [n_nodes]: the node that runs it as part of its tile program, the last of its group; -1: none */
  int32_t *next, *first;         /* [n_nodes]: the next member of its group; of the last one: the first */
  int32_t *like, *rows;          /* [n_nodes] of the last one: see group.h */
  bool *row;                     /* [n_nodes]: of members, one value a row */
  int32_t *order;                /* [n_order]: the nodes that run, groups by their last */
  int32_t n_order;
} sc_view_of_graph;

/* The value whose memory v is, after merging. */
static inline int32_t sc__view_root(const sc_view_of_graph *v, int32_t x) { return v->same[v->g->value[v->same[x]].root]; }
/* Whether the node does something when the graph runs: it is alive, and more than another look at memory. */
static inline bool sc__view_runs(const sc_view_of_graph *v, int32_t k) {
  const sc_graph_node *n = &v->g->node[k];
  return !v->dead[k] && (!(n->op->flags & SC_OP_VIEW) || n->inplace);
}

sc_status sc__passes_run(const sc_graph *g, unsigned passes, sc_view_of_graph *out);   /* out: new */
void sc__passes_free(sc_context *ctx, sc_view_of_graph *v);
sc_status sc__view_check(const sc_view_of_graph *v);     /* sc__graph_check for what the marking passes left */

/* ---- plans ---- */
typedef struct sc_plan sc_plan;
sc_status sc__plan_new(sc_graph *g, unsigned passes, sc_plan **out);
sc_plan *sc__plan_retain(sc_plan *p);
void sc__plan_release(sc_plan *p);
/* Whether every captured tensor still asks for gradients, or not, as it did when the graph was made. */
bool sc__plan_valid(const sc_plan *p);
/* Whether t holds data and has the dtype and shape of the graph's input i. */
sc_status sc__graph_takes(sc_graph *g, size_t i, const sc_tensor *t);
/* Whether a symbolic tensor is an input or a captured value, rather than what a node makes. */
static inline bool sc__graph_is_given(const sc_tensor *t) { return t->graph && t->graph->value[t->value].node < 0; }
/* in: one per input; out: new, one per output. */
sc_status sc__plan_run(sc_plan *p, sc_tensor *const *in, sc_tensor **out);
bool sc__plan_clashes(const sc_plan *p, const sc_tensor *t);   /* an input may not be t: it shares memory with what was captured */
/* A run in slices: start, advance until done, then finish; or cancel, before or after. Nothing that outlives the run changes before
** the last slice (unless it goes step by step: ns -1). A slice begins no step that took longer, last time, than what is left of its time, but always makes some way. */
sc_status sc__plan_start(sc_plan *p, sc_tensor *const *in);
sc_status sc__plan_advance(sc_plan *p, int64_t ns, bool check_nan, bool *done);
int sc__plan_at(const sc_plan *p);                     /* the next step of a run in slices; -1: none is going on */
/* borrowed: operand or result k of step i's node, as it is now; NULL: there is none, or it has no memory. */
int sc__plan_count(const sc_plan *p, int i, bool out);
sc_tensor *sc__plan_peek(const sc_plan *p, int i, bool out, int k);
/* Of step i: its node in the recorded graph (of a program the last), whether its results are others than that node's, nanoseconds when last run in slices, bytes of its results. */
void sc__plan_step_info(const sc_plan *p, int i, int32_t *node, bool *inside, int64_t *ns, int64_t *bytes);
sc_status sc__plan_finish(sc_plan *p, sc_tensor **out);
void sc__plan_cancel(sc_plan *p);
/* Of the latest run in slices, in nanoseconds: the longest of step i that went by without a look at the clock; of any step, and all the
** updates. */
int64_t sc__plan_longest(const sc_plan *p, int i);
void sc__plan_pieces(const sc_plan *p, int64_t *longest, int64_t *updates);
size_t sc__plan_bytes(const sc_plan *p);
int sc__plan_steps(const sc_plan *p);
int sc__plan_inner_steps(const sc_plan *p);            /* of branches and loops that have run */
int sc__plan_branches(const sc_plan *p);               /* of steps that may run beside each other, in all */
int sc__plan_nodes(const sc_plan *p);                  /* that passes have left */

#endif
