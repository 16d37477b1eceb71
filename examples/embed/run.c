/* A host without Lua: loads a saved graph and runs it whole, and then in slices under a frame budget, as a game would.
** Usage: run MODEL.onnx [MICROSECONDS a frame] [SIZE for named sizes]
** The model may be any that sconce has saved, a training step too: its updates are then made in the last slice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <sconce.h>

enum { MOST = 32 };

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void fail(sc_context *ctx, const char *what) {
  fprintf(stderr, "%s: %s\n", what, sc_error(ctx));
  exit(1);
}

/* A tensor for input i, of small numbers that are always the same. */
static sc_tensor *make_input(sc_context *ctx, const sc_run *run, int i, int64_t size) {
  sc_dtype dtype;
  int ndim;
  int64_t shape[SC_MAX_DIMS];
  sc_tensor *t;
  sc_run_input_info(run, i, &dtype, &ndim, shape);
  for (int d = 0; d < ndim; d++) if (shape[d] < 0) shape[d] = size;
  if (sc_tensor_new(ctx, dtype, ndim, shape, &t) != SC_OK) fail(ctx, "input");
  memset(sc_tensor_data(t), 0, (size_t)sc_tensor_numel(t) * sc_dtype_size(dtype));
  for (int64_t k = 0; k < sc_tensor_numel(t) && dtype == SC_FLOAT32; k++) ((float *)sc_tensor_data(t))[k] = (float)(k * 37 % 101) / 101 - 0.5f;
  for (int64_t k = 0; k < sc_tensor_numel(t) && dtype == SC_INT64; k++) ((int64_t *)sc_tensor_data(t))[k] = 1;
  return t;
}

static void show(const sc_named_tensor *t) {
  char text[400];
  sc_tensor_text(t->tensor, text, sizeof text);
  printf("%s = %s\n", t->name, text);
}

int main(int argc, char **argv) {
  if (argc < 2) { fprintf(stderr, "usage: %s MODEL.onnx [microseconds a frame] [size]\n", argv[0]); return 2; }
  int64_t budget = argc > 2 ? atoll(argv[2]) : 1500, size = argc > 3 ? atoll(argv[3]) : 8;
  if (budget < 1 || size < 1) { fprintf(stderr, "%s: expected positive numbers of microseconds and for sizes\n", argv[0]); return 2; }
  sc_context *ctx;
  sc_graph *graph;
  sc_run *run;
  if (sc_context_new(NULL, &ctx) != SC_OK) { fprintf(stderr, "no memory\n"); return 1; }
  if (sc_graph_load(ctx, argv[1], &graph) != SC_OK || sc_graph_compile(graph, &run) != SC_OK) fail(ctx, argv[1]);
  sc_graph_release(graph);                             /* the run keeps what it needs */

  sc_named_tensor in[MOST], out[MOST];
  int n_in = sc_run_input_count(run), n_out = sc_run_output_count(run);
  if (n_in > MOST || n_out > MOST) { fprintf(stderr, "too many inputs or outputs\n"); return 1; }
  for (int i = 0; i < n_in; i++) in[i] = (sc_named_tensor){sc_run_input_name(run, i), make_input(ctx, run, i, size)};
  for (int i = 0; i < n_out; i++) out[i] = (sc_named_tensor){sc_run_output_name(run, i), NULL};

  /* whole: the first call plans the memory */
  for (int k = 0; k < 3; k++) {
    double begun = now_us();
    if (sc_run_call(run, in, n_in, out, n_out) != SC_OK) fail(ctx, "run");
    printf("whole: %.0f us\n", now_us() - begun);
    for (int i = 0; i < n_out; i++) { if (k == 2) show(&out[i]); sc_tensor_release(out[i].tensor); }
  }

  /* in slices, one a frame; the first job measures what the steps take */
  for (int k = 0; k < 2; k++) {
    sc_job *job;
    bool done = false;
    if (sc_run_start(run, in, n_in, &job) != SC_OK) fail(ctx, "start");
    for (int frame = 1; !done; frame++) {
      double begun = now_us();
      if (sc_job_advance(job, budget, &done) != SC_OK) fail(ctx, "advance");
      if (k == 1) printf("frame %d: %.0f us%s\n", frame, now_us() - begun, done ? ", done" : "");
      /* the rest of the frame belongs to the host: input, drawing, sound */
    }
    if (sc_job_result(job, out, n_out) != SC_OK) fail(ctx, "result");
    sc_job_free(job);
    for (int i = 0; i < n_out; i++) { if (k == 1) show(&out[i]); sc_tensor_release(out[i].tensor); }
  }
  sc_run_stats s;
  sc_run_get_stats(run, &s);
  printf("%lld nodes, %lld steps, %lld bytes; longest without a look at the clock: %lld us\n", (long long)s.nodes, (long long)s.steps,
         (long long)s.arena_bytes, (long long)s.longest_ns / 1000);
  for (int i = 0; i < n_in; i++) sc_tensor_release(in[i].tensor);
  sc_run_release(run);
  sc_context_free(ctx);
  return 0;
}
