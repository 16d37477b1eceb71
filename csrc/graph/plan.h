/* The inside of a plan; see plan.c. */
#ifndef SC_PLAN_H
#define SC_PLAN_H

#include "../ops/fuse.h"
#include "control.h"

typedef struct sc__step {
  int32_t node;                  /* the node, of a program the last one */
  int turn, region, branch;      /* its place before branches were brought together; the region and branch it is in, -1: none (branches.c) */
  int n_in;
  bool inferred, writes;
  uint32_t defers;               /* inputs that outlive the run and are written to besides: through shadows when run in slices */
  sc_call call;                  /* ready to run */
  sc_tensor **in;                /* owned array of borrowed headers */
  sc_tiles *tiles;               /* owned; NULL: one op, through its row */
  sc_tensor *outer[2];           /* of an update whose gradient is their outer product: borrowed */
  sc_control *program;           /* of a node that runs graphs: as the node's, with plans of its own; owned. It is in `attr` */
  sc_attr attr;
  sc_tensor *target, *scratch;   /* in-place ops that compute apart: where the result goes, where it is made (owned) */
} sc__step;

/* Of runs in slices: where a step writes instead, to be copied at the end; a generator, as the job and as others see it. */
typedef struct sc__shadow { int step, in; sc_tensor *own; } sc__shadow;
typedef struct sc__drawn { sc_generator *of, own, seen, outside; } sc__drawn;

/* Steps that run beside each other (branches.c): those of a region fall apart into branches. */
typedef struct sc__branch { int first, end; double ns; } sc__branch;
typedef struct sc__region { int first, end, branch, n; } sc__region;       /* branch: the first of its n */
typedef struct sc__failure { sc_status status; int step; char text[1024]; } sc__failure;

struct sc_plan {
  int32_t refs;
  bool running;
  sc_context *ctx;
  sc_graph *g;                   /* owned */
  sc_view_of_graph view;
  size_t n_values;
  unsigned passes;
  sc_tensor **slot;              /* [n_values] a header each; storages are borrowed */
  bool *inside;                  /* [n_values] results of members that nobody else reads: they have no memory */
  sc__step *step;
  int n_steps, room_steps;
  sc_tensor *arena;
  size_t arena_bytes;
  int32_t *patch;                /* what lies in the memory of inputs and outputs: pointed at it when a run begins */
  int32_t *home;                 /* [n_values] of roots: where their memory begins, another root's when they take over its place */
  int32_t *fresh;                /* roots of outputs: new memory each run */
  int n_patches, n_fresh, n_guards;
  int tail;                      /* the first of the steps that write to what outlives a run, see schedule.c */
  int at;                        /* of a run going on: the next step */
  sc_tensor **bound;             /* of a run going on: inputs as given, inputs as used, new memory; owned */
  int64_t *took, *longest;       /* [n_steps] nanoseconds of each when last run in slices: in all; and, learned over the runs, without a look at the clock; owned */
  sc_slice *slice;               /* owned; NULL: steps cannot be cut */
  sc__shadow *shadow;            /* owned */
  sc__drawn *drawn;              /* owned */
  int n_shadows, n_drawn;
  sc__region *region;            /* owned, in the order of their steps */
  sc__branch *branch;            /* owned */
  sc__failure *failure;          /* [most_branches] owned */
  int n_regions, room_regions, n_branches, room_branches, most_branches;
  bool warm;                     /* it has run */
  bool advancing, check_nan;
  sc_status status;              /* of the steps run on the slice's stack */
  const sc_storage **guard;      /* captured memory that no input may share, because one of them is written to */
};

/* of: [n_nodes] programs, new, by the node that runs them; groups that are no program are taken apart. */
sc_status sc__programs_new(sc_plan *p, sc_tiles **of);

/* The error as it is, with the place in the script that recorded the node. */
sc_status sc__located(sc_plan *p, int32_t node, sc_status status);
/* Fail with the first node of step i whose result holds NaN: members of a program before the step runs, results after it has. */
sc_status sc__watch_before(sc_plan *p, int i);
sc_status sc__watch_after(sc_plan *p, int i);

/* Updates by an outer product that nobody else reads make it themselves, a block at a time: both nodes become one step (absorb.c). */
sc_status sc__absorb_outer(sc_plan *p);

/* The nodes of a step, in their order: for (k = sc__first_of(p, node); k >= 0; k = sc__next_of(p, k)) */
static inline int32_t sc__first_of(const sc_plan *p, int32_t node) { return p->view.group[node] >= 0 ? p->view.first[node] : node; }
static inline int32_t sc__next_of(const sc_plan *p, int32_t node) { return p->view.group[node] >= 0 ? p->view.next[node] : -1; }

/* Memory for every value (memory.c): places in the arena, and p->patch, p->fresh, p->home for what is outside of it. */
sc_status sc__lay_out(sc_plan *p);
/* Whether no step overwrites what a later one reads; SC_EINVAL: a fault of ours. */
sc_status sc__memory_check(sc_plan *p);
static inline void sc__point(const sc_plan *p, int32_t v, sc_storage *storage, char *root_data) {
  p->slot[v]->storage = storage;
  p->slot[v]->data = root_data + p->g->value[v].offset;
}

/* For job_slice.c. */
sc_tensor *sc__plan_slot(const sc_plan *p, int32_t v);
sc_status sc__plan_begin(sc_plan *p, sc_tensor *const *in, sc_tensor **packed, sc_tensor **made);
sc_status sc__plan_infer(sc_plan *p, int i, sc_meta *meta);
sc_status sc__plan_step(sc_plan *p, int i, sc_meta *meta);
sc_status sc__plan_write_back(sc_plan *p, sc_tensor *const *in, sc_tensor **packed);
sc_status sc__plan_output(sc_plan *p, size_t i, sc_tensor *const *in, sc_tensor **made, sc_tensor **out);
void sc__plan_unequip(sc_plan *p);

/* The step by itself: its error has no place in the script yet. */
sc_status sc__run_step(sc_plan *p, int i, sc_meta *meta);

/* Finds regions and brings their branches together (branches.c). */
sc_status sc__find_branches(sc_plan *p);
void sc__branches_free(sc_plan *p);
bool sc__may_branch(const sc_plan *p);                 /* here and now */
sc_status sc__run_region(sc_plan *p, int region);

/* Moves the steps that write to what outlives a run to the end. */
sc_status sc__schedule(sc_plan *p);

#endif
