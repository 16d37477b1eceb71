/* Ties the layers together: the only file that knows all of them. Each puts its services into the context. */
#include "autodiff/autodiff.h"
#include "graph/graph.h"
#include "graph/rewrite.h"

static void close_layers(sc_context *ctx) {
  sc__rules_free(ctx);
  sc__ops_detach(ctx, sc__formula_free);
}

sc_status sc_context_new(const sc_options *options, sc_context **out) {
  sc_context *ctx;
  *out = NULL;
  SC_TRY(sc__context_make(options, &ctx));
  ctx->close = close_layers;
  sc_status s = sc__ops_attach(ctx);
  if (s == SC_OK) s = sc__autodiff_attach(ctx);
  if (s == SC_OK) s = sc__graph_attach(ctx);
  if (s != SC_OK) { sc__context_unref(ctx); return s; }
  *out = ctx;
  return SC_OK;
}
