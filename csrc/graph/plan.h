/* The inside of a plan; see plan.c. */
#ifndef SC_PLAN_H
#define SC_PLAN_H

#include "../ops/fuse.h"
#include "graph.h"

typedef struct sc__step {
  int32_t node;                  /* the node, of a program the last one */
  int n_in;
  bool pointwise, inferred;
  sc_call call;                  /* ready to run */
  sc_tensor **in;                /* owned array of borrowed headers */
  sc_fuser *fused;               /* owned; NULL: one op */
  sc_tensor *target, *scratch;   /* in-place ops that compute apart: where the result goes, where it is made (owned) */
} sc__step;

struct sc_plan {
  int32_t refs;
  bool running;
  sc_context *ctx;
  sc_graph *g;                   /* owned */
  sc_view_of_graph view;
  size_t n_values;
  sc_tensor **slot;              /* [n_values] a header each; storages are borrowed */
  sc__step *step;
  int n_steps, room_steps;
  sc_tensor *arena;
  size_t arena_bytes;
  int32_t *patch;                /* views of inputs and of outputs: pointed at their memory when a run begins */
  int32_t *fresh;                /* roots of outputs: new memory each run */
  int n_patches, n_fresh, n_guards;
  int tail;                      /* the first of the steps that write to what outlives a run, see schedule.c */
  int at;                        /* of a run going on: the next step */
  sc_tensor **bound;             /* of a run going on: inputs as given, inputs as used, new memory; owned */
  int64_t *took;                 /* [n_steps] nanoseconds of each when last run in slices; owned */
  const sc_storage **guard;      /* captured memory that no input may share, because one of them is written to */
};

/* Moves the steps that write to what outlives a run to the end. */
sc_status sc__schedule(sc_plan *p);

#endif
