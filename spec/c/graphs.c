/* Graphs from C: named sizes, runs whole and in slices, a training step with its updates last, clones on other threads, misuse. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sconce.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #x, sc_error(ctx)); return 1; } } while (0)

enum { D = 24, H = 40 };

static sc_tensor *random_tensor(sc_context *ctx, int64_t rows, int64_t cols, unsigned seed) {
  float *v = malloc((size_t)(rows * cols) * sizeof *v);
  for (int64_t i = 0; i < rows * cols; i++) { seed = seed * 1664525u + 1013904223u; v[i] = (float)(seed >> 8) / (1 << 24) - 0.5f; }
  sc_tensor *t = NULL;
  if (sc_tensor_from_memory(ctx, SC_FLOAT32, 2, (int64_t[]){rows, cols}, v, &t) != SC_OK) t = NULL;
  free(v);
  return t;
}

/* y = tanh(x w1) w2 over x [batch, D] */
static int network(sc_context *ctx, sc_tensor *w1, sc_tensor *w2, sc_graph **out, sc_tensor **y_out) {
  sc_graph *g;
  sc_tensor *x, *h, *t, *y;
  int64_t batch, again;
  CHECK(sc_graph_new(ctx, &g) == SC_OK);
  CHECK(sc_graph_size(g, "batch", &batch) == SC_OK && sc_graph_size(g, "batch", &again) == SC_OK && batch == again);
  CHECK(sc_graph_input(g, "x", SC_FLOAT32, 2, (int64_t[]){batch, D}, &x) == SC_OK);
  CHECK(sc_op_call(ctx, "matmul", (sc_tensor *[]){x, w1}, 2, NULL, 0, &h, 1) == SC_OK);
  CHECK(sc_op_call(ctx, "tanh", &h, 1, NULL, 0, &t, 1) == SC_OK);
  CHECK(sc_op_call(ctx, "matmul", (sc_tensor *[]){t, w2}, 2, NULL, 0, &y, 1) == SC_OK);
  CHECK(sc_graph_output(g, "hidden", t) == SC_OK && sc_graph_output(g, "y", y) == SC_OK);
  sc_tensor_release(x); sc_tensor_release(h); sc_tensor_release(t);
  *out = g;
  *y_out = y;
  return 0;
}

/* The same by plain loops. */
static float expected(const float *x, const float *w1, const float *w2, int64_t row, int64_t col, int64_t cols) {
  double y = 0;
  for (int h = 0; h < H; h++) {
    double s = 0;
    for (int d = 0; d < D; d++) s += (double)x[row * D + d] * w1[d * H + h];
    y += tanh(s) * w2[h * cols + col];
  }
  return (float)y;
}

static int check_rows(sc_context *ctx, sc_run *run, sc_tensor *w1, sc_tensor *w2, int64_t rows) {
  sc_tensor *x = random_tensor(ctx, rows, D, (unsigned)rows);
  sc_named_tensor in = {"x", x}, out[2] = {{"y", NULL}, {"hidden", NULL}};
  CHECK(x && sc_run_call(run, &in, 1, out, 2) == SC_OK);
  CHECK(sc_tensor_shape(out[0].tensor)[0] == rows && sc_tensor_shape(out[1].tensor)[1] == H);
  const float *y = sc_tensor_data(out[0].tensor);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < 3; c++)
      CHECK(fabsf(y[r * 3 + c] - expected(sc_tensor_data(x), sc_tensor_data(w1), sc_tensor_data(w2), r, c, 3)) < 1e-5f);
  /* the same in slices, with the same bits */
  sc_job *job;
  bool done = false;
  sc_named_tensor sliced = {"y", NULL};
  int slices = 0;
  CHECK(sc_run_start(run, &in, 1, &job) == SC_OK);
  while (!done) { CHECK(sc_job_advance(job, 0, &done) == SC_OK); slices++; }
  CHECK(slices > 1);
  CHECK(sc_job_result(job, &sliced, 1) == SC_OK);
  CHECK(memcmp(sc_tensor_data(sliced.tensor), y, (size_t)rows * 3 * sizeof *y) == 0);
  sc_job_free(job);
  sc_tensor_release(sliced.tensor); sc_tensor_release(out[0].tensor); sc_tensor_release(out[1].tensor); sc_tensor_release(x);
  return 0;
}

static int inference(void) {
  sc_context *ctx = NULL;
  sc_options options = {.threads = 1};
  sc_graph *g;
  sc_run *run;
  sc_tensor *y;
  if (sc_context_new(&options, &ctx) != SC_OK) return 1;
  sc_tensor *w1 = random_tensor(ctx, D, H, 1), *w2 = random_tensor(ctx, H, 3, 2);
  if (network(ctx, w1, w2, &g, &y)) return 1;
  CHECK(sc_graph_compile(g, &run) == SC_OK);
  sc_graph_release(g);
  sc_tensor_release(y);
  sc_dtype dtype;
  int ndim;
  int64_t shape[SC_MAX_DIMS];
  CHECK(sc_run_input_count(run) == 1 && sc_run_output_count(run) == 2 && strcmp(sc_run_input_name(run, 0), "x") == 0);
  CHECK(strcmp(sc_run_output_name(run, 1), "y") == 0);
  sc_run_input_info(run, 0, &dtype, &ndim, shape);
  CHECK(dtype == SC_FLOAT32 && ndim == 2 && shape[0] == -1 && shape[1] == D);
  CHECK(strcmp(sc_run_input_size_name(run, 0, 0), "batch") == 0 && !sc_run_input_size_name(run, 0, 1));
  for (int round = 0; round < 2; round++)
    for (int64_t rows = 1; rows <= 12; rows++) if (check_rows(ctx, run, w1, w2, rows)) return 1;
  sc_run_stats s;
  sc_run_get_stats(run, &s);
  CHECK(s.nodes == 3 && s.steps == 3 && s.arena_bytes == 0 && s.plans == 8);       /* the product lies where the hidden layer is handed out */

  /* misuse: each an error that leaves everything usable */
  sc_tensor *x = random_tensor(ctx, 2, D, 3), *bad = random_tensor(ctx, 2, D + 1, 4);
  sc_named_tensor in = {"x", x}, other = {"z", x}, wrong = {"x", bad}, twice[2] = {{"x", x}, {"x", x}}, out = {"y", NULL}, none = {"q", NULL};
  sc_job *job, *second;
  bool done;
  CHECK(sc_run_call(run, NULL, 0, &out, 1) == SC_EINVAL && strstr(sc_error(ctx), "missing"));
  CHECK(sc_run_call(run, &other, 1, &out, 1) == SC_EINVAL && strstr(sc_error(ctx), "\"z\""));
  CHECK(sc_run_call(run, twice, 2, &out, 1) == SC_EINVAL);
  CHECK(sc_run_call(run, &wrong, 1, &out, 1) == SC_EINVAL && strstr(sc_error(ctx), "{2, 25}"));
  CHECK(sc_run_call(run, &in, 1, &none, 1) == SC_EINVAL && strstr(sc_error(ctx), "\"q\""));
  CHECK(sc_run_start(run, &in, 1, &job) == SC_OK);
  CHECK(sc_run_start(run, &in, 1, &second) == SC_EINVAL && !second);
  CHECK(sc_job_advance(job, 0, &done) == SC_OK && !done);
  sc_job_cancel(job);
  sc_job_cancel(job);
  CHECK(sc_job_advance(job, 0, &done) == SC_EINVAL && sc_job_result(job, &out, 1) == SC_EINVAL);
  sc_job_free(job);
  CHECK(sc_run_call(run, &in, 1, &out, 1) == SC_OK);
  sc_tensor_release(out.tensor);
  /* a run, its context and the weights may go before a job does */
  CHECK(sc_run_start(run, &in, 1, &job) == SC_OK && sc_job_advance(job, 0, &done) == SC_OK);
  sc_run_release(run);
  sc_tensor_release(w1); sc_tensor_release(w2); sc_tensor_release(x); sc_tensor_release(bad);
  sc_context_free(ctx);
  sc_named_tensor late = {"y", NULL};
  if (sc_job_result(job, &late, 1) != SC_OK || sc_tensor_shape(late.tensor)[0] != 2) return 1;
  sc_job_free(job);
  sc_tensor_release(late.tensor);
  return 0;
}

/* ---- a training step as a graph ---- */

typedef struct trainer { sc_tensor *w1, *w2; sc_run *run; } trainer;

static int new_trainer(sc_context *ctx, trainer *out) {
  sc_graph *g;
  sc_tensor *y, *t, *loss;
  int64_t batch;
  out->w1 = random_tensor(ctx, D, H, 1);
  out->w2 = random_tensor(ctx, H, 3, 2);
  CHECK(sc_set_requires_grad(out->w1, true) == SC_OK && sc_set_requires_grad(out->w2, true) == SC_OK);
  if (network(ctx, out->w1, out->w2, &g, &y)) return 1;
  CHECK(sc_graph_size(g, "batch", &batch) == SC_OK);
  CHECK(sc_graph_input(g, "t", SC_FLOAT32, 2, (int64_t[]){batch, 3}, &t) == SC_OK);
  CHECK(sc_op_call(ctx, "nn.functional.mse_loss", (sc_tensor *[]){y, t}, 2, NULL, 0, &loss, 1) == SC_OK);
  CHECK(sc_graph_output(g, "loss", loss) == SC_OK);
  CHECK(sc_backward(loss, NULL, false) == SC_OK);
  bool was = sc_set_grad_enabled(ctx, false);
  sc_tensor *w[2] = {out->w1, out->w2};
  for (int i = 0; i < 2; i++) {
    sc_tensor *none;
    sc_named_attr lr = {"lr", {.kind = SC_ATTR_FLOAT, .f = 0.5}};
    CHECK(sc_grad_of(w[i]) && sc_op_call(ctx, "sgd_step_", (sc_tensor *[]){w[i], sc_grad_of(w[i]), NULL}, 3, &lr, 1, &none, 1) == SC_OK);
    sc_tensor_release(none);
    sc_clear_grad(w[i]);
    CHECK(!sc_grad_of(w[i]));
  }
  sc_set_grad_enabled(ctx, was);
  CHECK(sc_graph_compile(g, &out->run) == SC_OK);
  sc_graph_release(g);
  sc_tensor_release(y); sc_tensor_release(t); sc_tensor_release(loss);
  return 0;
}

static void free_trainer(trainer *t) { sc_run_release(t->run); sc_tensor_release(t->w1); sc_tensor_release(t->w2); }

static int training(void) {
  sc_context *ctx = NULL;
  sc_options options = {.threads = 1};
  trainer whole, sliced;
  if (sc_context_new(&options, &ctx) != SC_OK || new_trainer(ctx, &whole) || new_trainer(ctx, &sliced)) return 1;
  sc_tensor *x = random_tensor(ctx, 16, D, 7), *t = random_tensor(ctx, 16, 3, 8);
  sc_named_tensor in[2] = {{"x", x}, {"t", t}}, a = {"loss", NULL}, b = {"loss", NULL};
  float first = 0, last = 0, before[D * H];
  int cancelled = 0;
  for (int step = 0; step < 20; step++) {
    sc_job *job;
    bool done = false;
    CHECK(sc_run_call(whole.run, in, 2, &a, 1) == SC_OK);
    memcpy(before, sc_tensor_data(sliced.w1), sizeof before);
    CHECK(sc_run_start(sliced.run, in, 2, &job) == SC_OK);
    while (!done) {
      CHECK(memcmp(before, sc_tensor_data(sliced.w1), sizeof before) == 0);      /* old until the end */
      CHECK(sc_job_advance(job, 0, &done) == SC_OK);
      if (step % 4 != 3 || done || cancelled == step) continue;
      cancelled = step;
      sc_job_cancel(job);                              /* as if it had never been */
      sc_job_free(job);
      CHECK(sc_run_start(sliced.run, in, 2, &job) == SC_OK);
    }
    CHECK(sc_job_result(job, &b, 1) == SC_OK);
    sc_job_free(job);
    last = *(float *)sc_tensor_data(b.tensor);
    if (step == 0) first = last;
    CHECK(*(float *)sc_tensor_data(a.tensor) == last);
    CHECK(memcmp(sc_tensor_data(whole.w1), sc_tensor_data(sliced.w1), sizeof before) == 0);
    sc_tensor_release(a.tensor); sc_tensor_release(b.tensor);
  }
  CHECK(last < first / 2);
  free_trainer(&whole); free_trainer(&sliced);
  sc_tensor_release(x); sc_tensor_release(t);
  sc_context_free(ctx);
  return 0;
}

/* ---- clones on threads ---- */

typedef struct worker { sc_context *ctx; sc_run *run; float y[5 * 3]; int failed; } worker;

static int work(worker *w) {
  sc_context *ctx = w->ctx;
  for (int i = 0; i < 200; i++) {
    sc_tensor *x = random_tensor(ctx, 5, D, 11);
    sc_named_tensor in = {"x", x}, out = {"y", NULL};
    CHECK(x && sc_run_call(w->run, &in, 1, &out, 1) == SC_OK);
    memcpy(w->y, sc_tensor_data(out.tensor), sizeof w->y);
    sc_tensor_release(x); sc_tensor_release(out.tensor);
  }
  return 0;
}

static void *work_thread(void *arg) { worker *w = arg; w->failed = work(w); return NULL; }

static int clones(void) {
  sc_context *ctx = NULL;
  sc_options options = {.threads = 1};
  sc_graph *g;
  sc_tensor *y;
  worker w[4] = {0};
  pthread_t thread[4];
  if (sc_context_new(&options, &ctx) != SC_OK) return 1;
  sc_tensor *w1 = random_tensor(ctx, D, H, 1), *w2 = random_tensor(ctx, H, 3, 2);
  if (network(ctx, w1, w2, &g, &y)) return 1;
  CHECK(sc_graph_compile(g, &w[0].run) == SC_OK);
  w[0].ctx = ctx;
  for (int i = 1; i < 4; i++) {
    CHECK(sc_context_new(&options, &w[i].ctx) == SC_OK);
    CHECK(sc_run_clone(w[0].run, w[i].ctx, &w[i].run) == SC_OK);
    CHECK(sc_run_context(w[i].run) == w[i].ctx);
  }
  for (int i = 0; i < 4; i++) CHECK(pthread_create(&thread[i], NULL, work_thread, &w[i]) == 0);
  for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
  for (int i = 0; i < 4; i++) CHECK(!w[i].failed && memcmp(w[0].y, w[i].y, sizeof w[i].y) == 0);
  ((float *)sc_tensor_data(w2))[0] += 1;               /* weights are shared, not copied */
  float before = w[3].y[0];
  CHECK(!work(&w[3]) && w[3].y[0] != before);
  sc_graph_release(g);
  sc_tensor_release(y); sc_tensor_release(w1); sc_tensor_release(w2);
  for (int i = 0; i < 4; i++) { sc_run_release(w[i].run); sc_context_free(w[i].ctx); }
  return 0;
}

/* ---- random numbers of runs ---- */

/* n calls of a run of y = x + rand_like(x): what they drew, summed up. in slices: by jobs, one of which is cancelled before each. */
static int draw(sc_context *ctx, sc_run *run, int n, bool slices, float *sum) {
  sc_tensor *x = random_tensor(ctx, 2, D, 5);
  sc_named_tensor in = {"x", x};
  *sum = 0;
  for (int i = 0; i < n; i++) {
    sc_named_tensor out = {"y", NULL};
    if (slices) {
      sc_job *job;
      bool done = false;
      CHECK(sc_run_start(run, &in, 1, &job) == SC_OK);
      sc_job_cancel(job);
      sc_job_free(job);
      CHECK(sc_run_start(run, &in, 1, &job) == SC_OK);
      while (!done) CHECK(sc_job_advance(job, 1, &done) == SC_OK);
      CHECK(sc_job_result(job, &out, 1) == SC_OK);
      sc_job_free(job);
    } else {
      CHECK(sc_run_call(run, &in, 1, &out, 1) == SC_OK);
    }
    for (int k = 0; k < 2 * D; k++) *sum += (float)(i + 1) * ((const float *)sc_tensor_data(out.tensor))[k];
    sc_tensor_release(out.tensor);
  }
  sc_tensor_release(x);
  return 0;
}

static int seeds(void) {
  sc_context *ctx = NULL, *other = NULL;
  sc_options options = {.threads = 1};
  if (sc_context_new(&options, &ctx) != SC_OK || sc_context_new(&options, &other) != SC_OK) return 1;
  sc_graph *g;
  sc_tensor *x, *r, *y;
  sc_run *plain, *a, *b, *c, *far;
  float first, next, v, w;
  CHECK(sc_graph_new(ctx, &g) == SC_OK && sc_graph_input(g, "x", SC_FLOAT32, 2, (int64_t[]){2, D}, &x) == SC_OK);
  CHECK(sc_op_call(ctx, "rand_like", &x, 1, NULL, 0, &r, 1) == SC_OK && sc_op_call(ctx, "add", (sc_tensor *[]){x, r}, 2, NULL, 0, &y, 1) == SC_OK);
  CHECK(sc_graph_output(g, "y", y) == SC_OK && sc_graph_compile(g, &plain) == SC_OK);
  sc_tensor_release(x); sc_tensor_release(r); sc_tensor_release(y);
  sc_seed(ctx, 3);                                     /* without seeds of their own, runs share the context's stream */
  CHECK(!draw(ctx, plain, 2, false, &first) && !draw(ctx, plain, 2, false, &next) && first != next);
  CHECK(sc_run_clone(plain, NULL, &a) == SC_OK && sc_run_clone(plain, NULL, &b) == SC_OK);
  sc_run_seed(a, 3);
  sc_run_seed(b, 4);
  sc_seed(ctx, 99);
  CHECK(!draw(ctx, a, 2, false, &v) && v == first);    /* the stream of that seed, whatever else draws in between */
  CHECK(!draw(ctx, b, 3, false, &w) && w != first && !draw(ctx, plain, 1, false, &w));
  CHECK(sc_run_clone(a, NULL, &c) == SC_OK && sc_run_clone(a, other, &far) == SC_OK);
  CHECK(!draw(ctx, a, 2, true, &v) && v == next);      /* in slices as well; a job that is cancelled draws nothing */
  CHECK(!draw(ctx, c, 2, false, &v) && v == next);     /* clones go on from where it was */
  CHECK(!draw(other, far, 2, true, &v) && v == next);
  sc_seed(ctx, 3);
  CHECK(!draw(ctx, b, 2, false, &w) && !draw(ctx, plain, 2, false, &v) && v == first);      /* and the context's own is left alone */
  sc_run *all[] = {plain, a, b, c, far};
  for (int i = 0; i < 5; i++) sc_run_release(all[i]);
  sc_graph_release(g);
  sc_context_free(ctx); sc_context_free(other);
  return 0;
}

int main(void) { return inference() || training() || clones() || seeds(); }
