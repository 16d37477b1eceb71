/* The verifier of graphs: each fault is planted into a sound graph, must be found and named, and is taken out again. */
#include <stdio.h>
#include <string.h>

#include "graph/plan.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); return 1; } } while (0)

static sc_context *ctx;

/* The check says no, and says why. */
static bool says(const sc_graph *g, const char *what) {
  if (sc__graph_check(g) != SC_EINVAL) { fprintf(stderr, "not found: %s\n", what); return false; }
  if (!strstr(sc_error(ctx), what)) { fprintf(stderr, "expected \"%s\", got \"%s\"\n", what, sc_error(ctx)); return false; }
  return true;
}

/* One field of the graph is another while the check runs. */
#define PLANT(field, wrong, what) do { \
    __typeof__(field) right = (field); \
    (field) = (wrong); \
    CHECK(says(g, what)); \
    (field) = right; \
    CHECK(sc__graph_check(g) == SC_OK); \
  } while (0)

/* x {2, 3}; 0 exp: e; 1 transpose: t, a view of e; 2 mul: m = t * w; 3 add_: m += w; 4 rand_like: r; 5 sum: s, of r + m's memory */
static int build(sc_graph **out) {
  sc_graph *g;
  sc_tensor *x, *e, *t, *w, *m, *m2, *r, *s;
  int64_t shape[] = {2, 3}, turned[] = {3, 2};
  sc_named_attr dims[] = {{"dim0", {.kind = SC_ATTR_INT, .i = 0}}, {"dim1", {.kind = SC_ATTR_INT, .i = 1}}};
  CHECK(sc_graph_new(ctx, &g) == SC_OK);
  CHECK(sc_graph_input(g, "x", SC_FLOAT32, 2, shape, &x) == SC_OK);
  CHECK(sc_tensor_new(ctx, SC_FLOAT32, 2, turned, &w) == SC_OK);
  memset(w->data, 0, 24);
  CHECK(sc_op_call(ctx, "exp", (sc_tensor *[]){x}, 1, NULL, 0, &e, 1) == SC_OK);
  CHECK(sc_op_call(ctx, "transpose", (sc_tensor *[]){e}, 1, dims, 2, &t, 1) == SC_OK);
  CHECK(sc_op_call(ctx, "mul", (sc_tensor *[]){t, w}, 2, NULL, 0, &m, 1) == SC_OK);
  CHECK(sc_op_call(ctx, "add_", (sc_tensor *[]){m, w}, 2, NULL, 0, &m2, 1) == SC_OK);
  CHECK(sc_op_call(ctx, "rand_like", (sc_tensor *[]){m}, 1, NULL, 0, &r, 1) == SC_OK);
  CHECK(sc_op_call(ctx, "sum", (sc_tensor *[]){r}, 1, NULL, 0, &s, 1) == SC_OK);
  CHECK(sc_graph_output(g, "m", m) == SC_OK && sc_graph_output(g, "s", s) == SC_OK);
  sc_tensor *all[] = {x, e, t, w, m, m2, r, s};
  for (int i = 0; i < 8; i++) sc_tensor_release(all[i]);
  *out = g;
  return 0;
}

static int faults_of_a_graph(void) {
  sc_graph *g;
  if (build(&g)) return 1;
  CHECK(g->n_nodes == 6 && sc__graph_check(g) == SC_OK);
  sc_graph_node *n = g->node;
  int32_t e = n[0].out[0], t = n[1].out[0], m = n[2].out[0];
  PLANT(n[0].in[0], n[5].out[0], "it reads what is made later");
  PLANT(n[2].in[1], 99, "an operand is no value");
  PLANT(n[2].in[1], -1, "an operand is no value");
  PLANT(n[2].out[0], -2, "the node that should make it does not");
  PLANT(n[2].n_in, 1, "the number of operands is wrong");
  PLANT(n[3].out[0], e, "it writes in place, but its result is another value");
  PLANT(n[3].inplace, false, "it writes in place against what the op says");
  PLANT(g->value[e].dtype, SC_FLOAT64, "its result is not what the op gives");
  PLANT(g->value[m].dim[0], 4, "its result is not what the op gives");
  PLANT(g->value[t].offset, 4, "its result does not lie where the op puts it");
  PLANT(g->value[t].dim[2], 2, "its result does not lie where the op puts it");
  PLANT(g->value[t].root, m, "its result does not lie where the op puts it");
  PLANT(g->value[t].view, false, "it looks into another value, but is no view");
  PLANT(g->value[m].root, e, "it looks into another value, but is no view");
  PLANT(g->value[m].node, 5, "the node that should make it does not");
  PLANT(g->value[m].node, -1, "no node makes it");
  PLANT(g->value[m].kind, 7, "it is of no kind");
  PLANT(g->input[0], e, "it is listed as an input, but is none");
  PLANT(g->output[0].value, 99, "an output that nobody makes");
  sc_graph_release(g);
  return 0;
}

/* What a graph does besides computing must stay, in its order. */
static int faults_of_effects(void) {
  sc_graph *a, *b;
  if (build(&a) || build(&b)) return 1;
  CHECK(sc__effects_check(a, b) == SC_OK);
  sc_graph_node write = b->node[3], random = b->node[4];
  b->node[3] = random;
  b->node[4] = write;
  CHECK(sc__effects_check(a, b) == SC_EINVAL && strstr(sc_error(ctx), "a write or a random number is missing"));
  b->node[3] = write;
  b->node[4] = random;
  b->n_nodes = 4;
  CHECK(sc__effects_check(a, b) == SC_EINVAL);
  CHECK(sc__effects_check(b, a) == SC_EINVAL);
  b->n_nodes = 6;
  CHECK(sc__effects_check(a, b) == SC_OK);
  sc_graph_release(a);
  sc_graph_release(b);
  return 0;
}

static int faults_of_marks(void) {
  sc_graph *g;
  sc_view_of_graph v;
  if (build(&g)) return 1;
  CHECK(sc__passes_run(g, SC_PASS_CSE | SC_PASS_DCE, &v) == SC_OK && sc__view_check(&v) == SC_OK);
  int32_t e = g->node[0].out[0], m = g->node[2].out[0];
  const struct { bool *dead; int32_t *same; int32_t to; const char *what; } FAULTS[] = {
    {&v.dead[3], NULL, 0, "a node that writes or draws random numbers was dropped"},
    {&v.dead[4], NULL, 0, "a node that writes or draws random numbers was dropped"},
    {&v.dead[0], NULL, 0, "a node reads what was dropped"},
    {&v.dead[5], NULL, 0, "an output was dropped"},
    {NULL, &v.same[m], e, "a value was merged with another kind"},
    {NULL, &v.same[m], 99, "a merged value leads nowhere"},
  };
  for (int i = 0; i < SC_COUNT(FAULTS); i++) {
    int32_t was = FAULTS[i].same ? *FAULTS[i].same : 0;
    if (FAULTS[i].dead) *FAULTS[i].dead = true; else *FAULTS[i].same = FAULTS[i].to;
    CHECK(sc__view_check(&v) == SC_EINVAL);
    if (!strstr(sc_error(ctx), FAULTS[i].what)) { fprintf(stderr, "expected \"%s\", got \"%s\"\n", FAULTS[i].what, sc_error(ctx)); return 1; }
    if (FAULTS[i].dead) *FAULTS[i].dead = false; else *FAULTS[i].same = was;
  }
  sc__passes_free(ctx, &v);
  sc_graph_release(g);
  return 0;
}

/* Values put where others lie that are still needed. a = exp(x), b = tanh(x), c = a + b */
static int faults_of_memory(void) {
  sc_graph *g;
  sc_plan *p;
  sc_tensor *t[4];
  int64_t shape[] = {2, 3};
  CHECK(sc_graph_new(ctx, &g) == SC_OK && sc_graph_input(g, "x", SC_FLOAT32, 2, shape, &t[0]) == SC_OK);
  CHECK(sc_op_call(ctx, "exp", t, 1, NULL, 0, &t[1], 1) == SC_OK && sc_op_call(ctx, "tanh", t, 1, NULL, 0, &t[2], 1) == SC_OK);
  CHECK(sc_op_call(ctx, "add", t + 1, 2, NULL, 0, &t[3], 1) == SC_OK && sc_graph_output(g, "c", t[3]) == SC_OK);
  for (int i = 0; i < 4; i++) sc_tensor_release(t[i]);
  CHECK(sc__plan_new(g, 0, &p) == SC_OK && sc__memory_check(p) == SC_OK);
  int32_t a = g->node[0].out[0], b = g->node[1].out[0], c = g->node[2].out[0];
  sc_tensor *bt = p->slot[b];
  char *data = bt->data;
  sc_storage *storage = bt->storage;
  bt->data = p->slot[a]->data;
  CHECK(sc__memory_check(p) == SC_EINVAL && strstr(sc_error(ctx), "lie in the same place"));
  bt->data = data;
  CHECK(sc__memory_check(p) == SC_OK);
  bt->storage = NULL;                                  /* b in the memory of c, which an addition may overwrite */
  p->home[b] = c;
  CHECK(sc__memory_check(p) == SC_OK);
  p->home[a] = c;                                      /* and a as well */
  p->slot[a]->storage = NULL;
  CHECK(sc__memory_check(p) == SC_EINVAL);
  bt->storage = storage;
  p->home[b] = b;
  CHECK(sc__memory_check(p) == SC_OK);
  sc__plan_release(p);
  sc_graph_release(g);
  return 0;
}

/* Generators that nodes name are copied for a clone: two nodes that share one share its copy. */
static int generators_of_clones(void) {
  sc_graph *g;
  sc_run *run, *clone;
  sc_tensor *x, *a, *b, *s, *in;
  sc_generator own = {42, 0}, start = own;
  int64_t shape[] = {2, 3};
  sc_named_attr from[] = {{"generator", {.kind = SC_ATTR_GENERATOR, .p = &own}}};
  CHECK(sc_graph_new(ctx, &g) == SC_OK && sc_graph_input(g, "x", SC_FLOAT32, 2, shape, &x) == SC_OK);
  CHECK(sc_op_call(ctx, "bernoulli", &x, 1, from, 1, &a, 1) == SC_OK && sc_op_call(ctx, "bernoulli", &x, 1, from, 1, &b, 1) == SC_OK);
  CHECK(sc_op_call(ctx, "sub", (sc_tensor *[]){a, b}, 2, NULL, 0, &s, 1) == SC_OK && sc_graph_output(g, "y", s) == SC_OK);
  CHECK(sc_graph_compile(g, &run) == SC_OK && sc_run_clone(run, NULL, &clone) == SC_OK);
  CHECK(sc_tensor_new(ctx, SC_FLOAT32, 2, shape, &in) == SC_OK);
  for (int i = 0; i < 6; i++) ((float *)in->data)[i] = 0.5f;
  sc_named_tensor given = {"x", in}, one = {"y", NULL}, two = {"y", NULL};
  CHECK(sc_run_call(clone, &given, 1, &two, 1) == SC_OK && own.offset == start.offset);
  CHECK(sc_run_call(run, &given, 1, &one, 1) == SC_OK && own.offset > start.offset);
  CHECK(memcmp(one.tensor->data, two.tensor->data, 24) == 0);
  bool differs = false;
  for (int i = 0; i < 6; i++) differs = differs || ((float *)one.tensor->data)[i] != 0;
  CHECK(differs);
  sc_tensor *all[] = {x, a, b, s, in, one.tensor, two.tensor};
  for (int i = 0; i < 7; i++) sc_tensor_release(all[i]);
  sc_run_release(run);
  sc_run_release(clone);
  sc_graph_release(g);
  return 0;
}

int main(void) {
  if (sc_context_new(NULL, &ctx) != SC_OK) return 1;
  int bad = faults_of_a_graph() || faults_of_effects() || faults_of_marks() || faults_of_memory() || generators_of_clones();
  sc_context_free(ctx);
  return bad;
}
