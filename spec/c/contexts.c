/* The public header from C: the program of its first comment; memory of the host, wrapped and allocated; and two contexts on two
** threads that train at the same time and get the numbers that each gets alone. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sconce.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); return 1; } } while (0)

static int blocks;

static void *count_alloc(void *user, size_t bytes) {
  void *p = NULL;
  (void)user;
  if (posix_memalign(&p, 64, bytes) != 0) return NULL;
  blocks++;
  return p;
}

static void count_release(void *user, void *block, size_t bytes) { (void)user; (void)bytes; blocks--; free(block); }

static int released;
static void on_release(void *user) { released += *(int *)user; }

static int first_program(void) {
  sc_options options = {.allocator = {count_alloc, count_release, NULL}, .threads = 1};
  sc_context *ctx;
  CHECK(sc_context_new(&options, &ctx) == SC_OK);
  float data[] = {1, 2, 3, 4};
  int64_t shape[] = {2, 2};
  int one = 1;
  sc_tensor *x, *w, *y;
  CHECK(sc_tensor_from_memory(ctx, SC_FLOAT32, 2, shape, data, &x) == SC_OK);
  CHECK(sc_tensor_wrap(ctx, SC_FLOAT32, 2, shape, data, on_release, &one, &w) == SC_OK);
  sc_tensor *in[] = {x, w};
  CHECK(sc_op_call(ctx, "matmul", in, 2, NULL, 0, &y, 1) == SC_OK);
  const float *r = sc_tensor_data(y);
  CHECK(r[0] == 7 && r[1] == 10 && r[2] == 15 && r[3] == 22);
  int64_t bad[] = {3};
  sc_tensor *z, *none;
  CHECK(sc_tensor_new(ctx, SC_FLOAT32, 1, bad, &z) == SC_OK);
  CHECK(sc_op_call(ctx, "matmul", (sc_tensor *[]){x, z}, 2, NULL, 0, &none, 1) == SC_EINVAL);
  CHECK(strncmp(sc_error(ctx), "matmul:", 7) == 0);
  CHECK(sc_op_call(ctx, "no_such_op", in, 2, NULL, 0, &none, 1) == SC_EINVAL);
  sc_tensor_release(x); sc_tensor_release(w); sc_tensor_release(z);
  CHECK(released == 1);
  sc_context_free(ctx);                            /* y keeps what it needs */
  CHECK(r[0] == 7);
  sc_tensor_release(y);
  CHECK(blocks == 0);
  return 0;
}

typedef struct run { float w[16]; int failed; } run;

/* Some steps of gradient descent on tanh(x w), by ops and backward. */
static int train(run *out) {
  sc_options options = {.threads = 2};
  sc_context *ctx;
  CHECK(sc_context_new(&options, &ctx) == SC_OK);
  sc_seed(ctx, 3);
  float xs[32], ws[16];
  for (int i = 0; i < 32; i++) xs[i] = (float)((i * 7) % 11) / 11;
  for (int i = 0; i < 16; i++) ws[i] = (float)((i * 5) % 13) / 13;
  sc_tensor *x, *w;
  CHECK(sc_tensor_from_memory(ctx, SC_FLOAT32, 2, (int64_t[]){8, 4}, xs, &x) == SC_OK);
  for (int step = 0; step < 200; step++) {
    sc_tensor *h, *t, *s;
    CHECK(sc_tensor_from_memory(ctx, SC_FLOAT32, 2, (int64_t[]){4, 4}, ws, &w) == SC_OK);
    CHECK(sc_set_requires_grad(w, true) == SC_OK);
    CHECK(sc_op_call(ctx, "matmul", (sc_tensor *[]){x, w}, 2, NULL, 0, &h, 1) == SC_OK);
    CHECK(sc_op_call(ctx, "tanh", &h, 1, NULL, 0, &t, 1) == SC_OK);
    CHECK(sc_op_call(ctx, "sum", &t, 1, NULL, 0, &s, 1) == SC_OK);
    CHECK(sc_backward(s, NULL, false) == SC_OK);
    const float *g = sc_tensor_data(sc_grad_of(w));
    for (int i = 0; i < 16; i++) ws[i] -= 0.01f * g[i];
    sc_tensor_release(h); sc_tensor_release(t); sc_tensor_release(s); sc_tensor_release(w);
  }
  /* work that the context's own threads share */
  sc_tensor *big, *e;
  CHECK(sc_tensor_new(ctx, SC_FLOAT32, 1, (int64_t[]){400000}, &big) == SC_OK);
  memset(sc_tensor_data(big), 0, 400000 * sizeof(float));
  for (int i = 0; i < 20; i++) {
    CHECK(sc_op_call(ctx, "exp", &big, 1, NULL, 0, &e, 1) == SC_OK);
    CHECK(((float *)sc_tensor_data(e))[399999] == 1);
    sc_tensor_release(e);
  }
  sc_tensor_release(big); sc_tensor_release(x);
  sc_context_free(ctx);
  memcpy(out->w, ws, sizeof ws);
  return 0;
}

static void *train_thread(void *arg) { run *r = arg; r->failed = train(r); return NULL; }

static int two_threads(void) {
  run alone = {0}, a = {0}, b = {0};
  CHECK(train(&alone) == 0);
  pthread_t ta, tb;
  CHECK(pthread_create(&ta, NULL, train_thread, &a) == 0 && pthread_create(&tb, NULL, train_thread, &b) == 0);
  pthread_join(ta, NULL);
  pthread_join(tb, NULL);
  CHECK(!a.failed && !b.failed);
  CHECK(memcmp(alone.w, a.w, sizeof a.w) == 0 && memcmp(alone.w, b.w, sizeof b.w) == 0);
  return 0;
}

int main(void) { return first_program() || two_threads(); }
