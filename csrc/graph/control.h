/* Nodes that run graphs: branches and loops. See control.c. */
#ifndef SC_CONTROL_H
#define SC_CONTROL_H

#include "graph.h"

typedef enum sc_control_kind { SC_CONTROL_COND, SC_CONTROL_WHILE, SC_CONTROL_SCAN, SC_CONTROL_WHILE_BACK, SC_CONTROL_KINDS } sc_control_kind;

/* What such a node does, its attribute: counted, immutable but for its plans. The inputs of each graph are n_formal values that the
** node gives it, and then tensors from outside, which are operands of the node: after its own, those of graph[0], then of graph[1]. */
typedef struct sc_control {
  int32_t refs;
  uint8_t kind;
  bool reverse, keep;            /* scan: from the last to the first; also hands out the values carried into each round, stacked */
  bool random;                   /* a graph draws random numbers: the last result is the generator's state, of scan before each round */
  bool replay;                   /* the last own operand is such a state: numbers are drawn as then, and the generator is as it was */
  sc_context *ctx;
  int n_graphs;
  sc_graph *graph[2];            /* owned. cond: true, false; while: condition, body; scan: body; back: body, gradients of a round */
  sc_plan *plan[2];              /* made when first run */
  unsigned passes;               /* that they are made with: every plan has its steps' own programs, with the passes it was made with itself */
  int n_carry, n_x, n_dy;        /* values carried; scanned tensors; gradients carried backwards */
  int64_t rounds;                /* of scan */
  struct sc_control *now, *next; /* while its graph is instantiated: what it has become, the next such */
} sc_control;

/* new; graphs: borrowed. Their shapes must fit each other. */
sc_status sc__control_new(sc_context *ctx, const sc_control *like, sc_graph *const *graphs, sc_control **out);
sc_control *sc__node_control(const sc_graph_node *n);     /* borrowed: the branch or loop that a node runs, or looks into; NULL: none */
sc_control *sc__control_retain(sc_control *p);
void sc__control_release(sc_control *p);
int sc__control_results(const sc_control *p);
/* The node's own operands, and all of them. */
int sc__control_lead(const sc_control *p);
int sc__control_operands(const sc_control *p);
/* Steps of the plans that p has made. */
int sc__control_steps(const sc_control *p);
/* The op that runs p. */
const char *sc__control_op(const sc_control *p);

#endif
