/* Rewrites of graphs: the engine (rewrite.c, match.c) and its table (rewrites.c). */
#ifndef SC_REWRITE_H
#define SC_REWRITE_H

#include "../autodiff/formula.h"
#include "graph.h"

enum { SC_RW_TENSORS = 8, SC_RW_ATTRS = 14, SC_RW_INNER = 14 };

enum {
  SC_RW_ROUNDS = 1,              /* may change rounding: off under `exact` */
  SC_RW_OWNS = 2                 /* only where nothing else reads what is inside the pattern, so that all of it goes */
};

typedef struct sc_match sc_match;

/* A row of the table. Pattern and replacement are formulas (autodiff/formula.c): names of one letter, or a letter and a digit, are
** tensors, longer ones attributes; an attribute that is not written has its default; a name used twice means the same thing; `b?` may
** be absent. A number in a tensor's place is a number of the script. The guard may refuse, and set attributes for the replacement. */
typedef struct sc_rewrite {
  const char *pattern, *replacement;
  unsigned pass, flags;
  bool (*guard)(sc_match *m);
} sc_rewrite;

extern const sc_rewrite sc__rewrites[];
extern const int sc__rewrites_count;

/* A row made ready for a context. */
typedef struct sc_rule {
  const sc_rewrite *row;
  sc_formula *pattern, *replacement;
  struct sc_rule *next;          /* of the same op at the root */
  char tensor[SC_RW_TENSORS][4], attr[SC_RW_ATTRS][24];
} sc_rule;

typedef struct sc_rules {
  sc_rule *rule;
  sc_rule **by_op;               /* [ops of the table] */
  int n, n_ops;
} sc_rules;

/* What the engine knows about a value of the graph being made. */
typedef struct sc_rw_value {
  int32_t uses;                  /* reads by nodes that live, and by those of the old graph that are still to come */
  int32_t write;                 /* of roots: the newest node that wrote to it; -1 */
  int32_t back;                  /* of the old graph: a value that has become this one; -1 */
  sc_tensor *header;             /* owned; NULL: not needed yet */
} sc_rw_value;

typedef struct sc_rewriter {
  sc_context *ctx;
  const sc_graph *from;
  sc_graph *to;
  unsigned passes;
  sc__instance copy;             /* now[]: what values have become */
  int32_t *id;                   /* [from->n_values]: the same as numbers; -1 */
  int32_t *uses, *last_write;    /* [from->n_values]; last_write by root: the last node that writes there */
  bool *shown;                   /* [from->n_values], by root: an output looks into it */
  sc_rw_value *value;            /* [room] */
  bool *dead;                    /* [room_nodes] of the new graph */
  size_t n, room, room_nodes;
  int fired;
  bool again;                    /* constants may have come of it */
} sc_rewriter;

struct sc_match {
  sc_rewriter *w;
  const sc_rule *rule;
  const sc_graph_node *root;     /* of the old graph */
  int32_t value[SC_RW_TENSORS];  /* of the new graph; -1: absent */
  bool bound[SC_RW_TENSORS], bound_attr[SC_RW_ATTRS];
  sc_attr attr[SC_RW_ATTRS];
  int32_t inner[SC_RW_INNER];    /* nodes of the new graph that the pattern covers, besides the root */
  int n_inner;
  int64_t list[SC_RW_ATTRS][SC_MAX_DIMS];
};

/* ---- match.c ---- */
/* Whether the rule's pattern fits node n of the old graph, whose inputs have become `in`; no guard is asked. */
bool sc__rw_match(sc_rewriter *w, const sc_rule *r, const sc_graph_node *n, const int32_t *in, sc_match *m);
/* For guards: the value a tensor's name stands for (NULL: absent), a header of it, a number of the script. */
const sc_value *sc__rw_value(const sc_match *m, const char *name);
bool sc__rw_number(const sc_match *m, const char *name, double *out);
/* Any value of the new graph that is a number of the script. */
bool sc__rw_is_number(const sc_rewriter *w, int32_t v, double *out);
/* The attribute of that name; NULL: there is none. */
sc_attr *sc__rw_attr(sc_match *m, const char *name);
void sc__rw_set(sc_match *m, const char *name, sc_attr a);
void sc__rw_set_numbers(sc_match *m, const char *name, const double *v, int n);
void sc__rw_set_list(sc_match *m, const char *name, const int64_t *v, int n);

/* ---- rewrite.c ---- */
void sc__rules_free(sc_context *ctx);

#endif
