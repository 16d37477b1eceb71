/* libFuzzer target for saved graphs: the text of a graph alone (what begins with a letter, "%" or "@"), or a whole ONNX file with one in
** its metadata, whose check number is not looked at. What is read is printed, read again, planned, and run once with zeros when it has no
** loop. Everything of the engine is linked. Nothing may be left behind.
**
**     make fuzz FUZZ_SECONDS=60 */
#include <stdlib.h>
#include <string.h>

#include "../../csrc/formats/model.h"
#include "../../csrc/graph/control.h"
#include "../../csrc/graph/text.h"

static bool loops(const sc_graph *g) {
  for (size_t k = 0; k < g->n_nodes; k++)
    for (int i = 0; i < g->node[k].op->n_attr; i++) if (g->node[k].attr[i].kind == SC_ATTR_GRAPH) return true;
  return false;
}

static void run(sc_context *ctx, sc_graph *g) {
  sc_plan *p = NULL;
  sc_tensor *in[16] = {0}, *out[16] = {0};
  if (g->n_sizes || g->n_inputs > 16 || g->n_outputs > 16 || sc__plan_new(g, SC_PASS_ALL, &p) != SC_OK) return;
  bool ok = !loops(g);
  for (size_t i = 0; ok && i < g->n_inputs; i++) {
    const sc_value *v = &g->value[g->input[i]];
    ok = sc_tensor_new(ctx, (sc_dtype)v->dtype, v->ndim, v->dim, &in[i]) == SC_OK;
    if (ok && in[i]->numel) memset(in[i]->data, 0, (size_t)in[i]->numel * sc_dtype_size((sc_dtype)v->dtype));
  }
  if (ok && sc__plan_run(p, in, out) == SC_OK) for (size_t i = 0; i < g->n_outputs; i++) sc_tensor_release(out[i]);
  for (int i = 0; i < 16; i++) sc_tensor_release(in[i]);
  sc__plan_release(p);
}

static void again(sc_context *ctx, const sc_graph *g) {
  sc__text one, two;
  sc_graph *read = NULL;
  if (sc__graph_print(g, &one) == SC_OK && sc__graph_read(ctx, one.at, one.n, NULL, NULL, 1 << 20, &read) == SC_OK) {
    if (sc__graph_print(read, &two) == SC_OK && (one.n != two.n || memcmp(one.at, two.at, one.n) != 0)) __builtin_trap();
    sc__text_free(&two);
  }
  sc__text_free(&one);
  sc_graph_release(read);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static sc_context *ctx;
  sc_options o = {.threads = 1, .memory_limit = (size_t)64 << 20};
  if (!ctx && sc_context_new(&o, &ctx) != SC_OK) __builtin_trap();
  sc_graph *g = NULL;
  sc_source s = {.ctx = ctx, .path = "fuzz", .data = data, .size = size};
  sc_model m;
  const char *why;
  sc_stats before, after;
  sc_get_stats(ctx, &before);
  if (size && (data[0] >= 32 || data[0] == '\n')) {
    if (sc__graph_read(ctx, (const char *)data, size, NULL, NULL, 1 << 20, &g) != SC_OK && !*sc_error(ctx)) __builtin_trap();
  } else if (sc__model_open(&s, &m) == SC_OK) {
    (void)sc__model_graph(&m, &g, &why);
  }
  if (g) { again(ctx, g); run(ctx, g); }
  sc_graph_release(g);
  sc_get_stats(ctx, &after);
  if (before.live_tensors != after.live_tensors) __builtin_trap();
  return 0;
}
