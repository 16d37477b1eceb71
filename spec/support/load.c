/* A host without Lua: loads a graph that sconce has saved, runs it some times, whole or in slices, and saves what the last run gave.
** Used by load_spec.lua.
**
**     load MODEL INPUTS OUTPUTS TIMES MICROSECONDS          MICROSECONDS 0: whole */
#include <stdio.h>
#include <stdlib.h>

#include "sconce.h"

enum { MOST = 32 };

static int fail(const sc_context *ctx, const char *what) {
  fprintf(stderr, "%s: %s\n", what, sc_error(ctx));
  return 1;
}

static sc_status once(sc_run *run, const sc_named_tensor *in, int n_in, sc_named_tensor *out, int n_out, int64_t slice) {
  sc_job *job = NULL;
  bool done = false;
  if (!slice) return sc_run_call(run, in, n_in, out, n_out);
  sc_status s = sc_run_start(run, in, n_in, &job);
  while (s == SC_OK && !done) s = sc_job_advance(job, slice, &done);
  if (s == SC_OK) s = sc_job_result(job, out, n_out);
  sc_job_free(job);
  return s;
}

int main(int argc, char **argv) {
  sc_context *ctx;
  sc_graph *g;
  sc_run *run;
  sc_archive *inputs;
  sc_named_tensor in[MOST], out[MOST] = {{NULL, NULL}};
  if (argc != 6 || sc_context_new(NULL, &ctx) != SC_OK) return 2;
  if (sc_graph_load(ctx, argv[1], &g) != SC_OK) return fail(ctx, "load");
  if (sc_graph_compile(g, &run) != SC_OK) return fail(ctx, "compile");
  sc_graph_release(g);
  if (sc_load(ctx, argv[2], &inputs) != SC_OK) return fail(ctx, "inputs");
  int n_in = sc_run_input_count(run), n_out = sc_run_output_count(run);
  if (n_in > MOST || n_out > MOST) return 2;
  for (int i = 0; i < n_in; i++) in[i] = (sc_named_tensor){sc_run_input_name(run, i), sc_archive_find(inputs, sc_run_input_name(run, i))};
  for (int k = 0; k < atoi(argv[4]); k++) {
    for (int i = 0; i < n_out; i++) {
      sc_tensor_release(out[i].tensor);
      out[i] = (sc_named_tensor){sc_run_output_name(run, i), NULL};
    }
    if (once(run, in, n_in, out, n_out, atoi(argv[5])) != SC_OK) return fail(sc_run_context(run), "run");
  }
  if (sc_save(ctx, argv[3], out, n_out, NULL, 0) != SC_OK) return fail(ctx, "save");
  for (int i = 0; i < n_out; i++) sc_tensor_release(out[i].tensor);
  sc_archive_free(inputs);
  sc_run_release(run);
  sc_stats left;
  sc_get_stats(ctx, &left);
  sc_context_free(ctx);
  return left.live_tensors == 0 ? 0 : (fprintf(stderr, "%lld tensors are left\n", (long long)left.live_tensors), 3);
}
