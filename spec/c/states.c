#define _GNU_SOURCE
/* Lua states with contexts of the host: two on two threads that train at the same time and get the numbers they get alone, several in
** turn, tensors handed back and forth and outliving their state, Lua's memory refused at every place, fork, threads that cannot be made. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lualib.h>

#include "sconce_lua.h"

#define CHECK(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); return 1; } } while (0)
#define SAY(L, status) do { if ((status) != LUA_OK) { fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, lua_tostring(L, -1)); return 1; } } while (0)

static const char TRAIN[] =
  "local sc = require 'sconce'\n"
  "sc.manual_seed(5)\n"
  "local nn, F = sc.nn, sc.nn.functional\n"
  "local net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 4))\n"
  "local opt = sc.optim.Adam(net:parameters(), { lr = 0.01 })\n"
  "local x, t = sc.randn(24, 16), sc.randint(1, 5, { 24 })\n"
  "local step = sc.compile(function(a, b)\n"
  "  opt:zero_grad(); local l = F.cross_entropy(net(a), b); l:backward(); opt:step(); return l end)\n"
  "local loss\n"
  "for i = 1, ROUNDS do\n"
  "  if i % 2 == 0 then loss = step(x, t)\n"
  "  else opt:zero_grad(); loss = F.cross_entropy(net(x), t); loss:backward(); opt:step() end\n"
  "end\n"
  "return loss:item()\n";

static lua_State *new_state(sc_context *ctx) {
  lua_State *L = luaL_newstate();
  if (!L) return NULL;
  luaL_openlibs(L);
  if (sc_lua_open(L, ctx) != SC_OK) { lua_close(L); return NULL; }
  return L;
}

typedef struct run { double loss; int failed; } run;

static int train(run *r) {
  sc_context *ctx;
  sc_options options = {.threads = 2};
  CHECK(sc_context_new(&options, &ctx) == SC_OK);
  lua_State *L = new_state(ctx);
  CHECK(L && sc_lua_context(L) == ctx);
  lua_pushinteger(L, 30);
  lua_setglobal(L, "ROUNDS");
  SAY(L, luaL_dostring(L, TRAIN));
  r->loss = lua_tonumber(L, -1);
  lua_close(L);
  sc_stats s;
  sc_get_stats(ctx, &s);
  CHECK(s.live_tensors == 0);
  sc_context_free(ctx);
  return 0;
}

static void *train_thread(void *arg) { run *r = arg; r->failed = train(r); return NULL; }

static int two_threads(void) {
  run alone = {0}, a = {0}, b = {0};
  pthread_t ta, tb;
  CHECK(train(&alone) == 0);
  CHECK(pthread_create(&ta, NULL, train_thread, &a) == 0 && pthread_create(&tb, NULL, train_thread, &b) == 0);
  pthread_join(ta, NULL);
  pthread_join(tb, NULL);
  CHECK(!a.failed && !b.failed && alone.loss > 0 && alone.loss == a.loss && alone.loss == b.loss);
  return 0;
}

/* One context, two states on one thread, by turns; a tensor goes from one to the host to the other. */
static int in_turn(void) {
  sc_context *ctx, *other;
  CHECK(sc_context_new(NULL, &ctx) == SC_OK && sc_context_new(NULL, &other) == SC_OK);
  lua_State *A = new_state(ctx), *B = new_state(ctx), *C = new_state(other);
  CHECK(A && B && C);
  CHECK(sc_lua_open(A, ctx) == SC_EINVAL && strstr(sc_error(ctx), "already"));
  lua_State *all[3] = {A, B, C};
  for (int i = 0; i < 3; i++) SAY(all[i], luaL_dostring(all[i], "sc = require 'sconce'"));
  SAY(A, luaL_dostring(A, "t = sc.tensor { 1.0, 2.0, 3.0 }; return t"));
  sc_tensor *t = sc_tensor_retain(sc_lua_to_tensor(A, -1));
  CHECK(sc_tensor_numel(t) == 3 && !sc_lua_to_tensor(A, 17));
  lua_pushinteger(A, 3);
  CHECK(!sc_lua_to_tensor(A, -1));
  for (int i = 1; i < 3; i++) {
    sc_lua_push_tensor(all[i], sc_tensor_retain(t));
    lua_setglobal(all[i], "t");
    SAY(all[i], luaL_dostring(all[i], "t:mul_(2.0); return t:sum():item()"));
    CHECK(lua_tonumber(all[i], -1) == (i == 1 ? 12.0 : 24.0));
  }
  CHECK(luaL_dostring(A, "local ok, why = pcall(sc.matmul, t, sc.ones(4, 4)); assert(not ok and why:find('matmul')); return t[3]:item()") == LUA_OK);
  CHECK(lua_tonumber(A, -1) == 12.0);
  CHECK(luaL_dostring(B, "t:no_such()") != LUA_OK && strstr(lua_tostring(B, -1), "no_such"));
  /* a history lives on when its state is gone, and so does the memory */
  SAY(B, luaL_dostring(B, "w = sc.tensor({ 3.0 }, { requires_grad = true }); y = (w * w):sum(); return y, w"));
  sc_tensor *y = sc_tensor_retain(sc_lua_to_tensor(B, -2)), *w = sc_tensor_retain(sc_lua_to_tensor(B, -1));
  lua_close(B);
  lua_close(A);
  CHECK(sc_backward(y, NULL, false) == SC_OK && *(float *)sc_tensor_data(sc_grad_of(w)) == 6.0f);
  CHECK(((float *)sc_tensor_data(t))[0] == 4.0f);
  sc_tensor_release(y); sc_tensor_release(w); sc_tensor_release(t);
  sc_context_free(ctx);
  SAY(C, luaL_dostring(C, "return t:sum():item()"));       /* memory of a context that the host has let go */
  CHECK(lua_tonumber(C, -1) == 24.0);
  sc_context_free(other);
  lua_close(C);
  lua_State *own = new_state(NULL);                        /* without a context of the host's it makes one */
  CHECK(own);
  SAY(own, luaL_dostring(own, "return require('sconce').ones(3):sum():item()"));
  lua_close(own);
  return 0;
}

/* ---- Lua's memory ---- */

typedef struct lua_memory { long calls, fail_at, blocks; } lua_memory;

static void *refusing(void *user, void *block, size_t old, size_t size) {
  lua_memory *m = user;
  if (size == 0) { if (block) m->blocks--; free(block); return NULL; }
  if ((!block || size > old) && ++m->calls == m->fail_at) return NULL;
  void *p = realloc(block, size);
  if (!block && p) m->blocks++;
  return p;
}

static const char SMALL[] =
  "local sc = require 'sconce'\n"
  "local w = sc.tensor({ 1.0, 2.0 }, { requires_grad = true })\n"
  "local y = (w * sc.ones(2)):exp():sum()\n"
  "y:backward()\n"
  "local g = sc.compile(function(a) return (a * 2.0):sum() end)\n"
  "assert(g(sc.ones(3)):item() == 6.0)\n"
  "local a, b = sc.sort(sc.tensor { 3, 1, 2 })\n"
  "assert(a[1]:item() == 1)\n"
  "return w.grad[1]:item()\n";

static int one_refusal(long n, long *calls, int *status) {
  sc_context *ctx;
  sc_options options = {.threads = 1};
  lua_memory m = {0, n, 0};
  CHECK(sc_context_new(&options, &ctx) == SC_OK);
  lua_State *L = lua_newstate(refusing, &m);
  *status = LUA_ERRMEM;
  if (L) {
    long before = m.fail_at;
    m.fail_at = 0;                                         /* luaL_openlibs is not protected */
    luaL_openlibs(L);
    m.calls = 0;
    m.fail_at = before;
    if (sc_lua_open(L, ctx) == SC_OK) {
      *status = luaL_loadstring(L, SMALL);
      if (*status == LUA_OK) *status = lua_pcall(L, 0, 1, 0);
    }
    *calls = m.calls;
    m.fail_at = 0;
    if (*status == LUA_OK) CHECK(lua_tonumber(L, -1) > 2.7);
    lua_close(L);
  }
  CHECK(m.blocks == 0);
  sc_stats s;
  sc_get_stats(ctx, &s);
  CHECK(s.live_tensors == 0);
  sc_context_free(ctx);
  return 0;
}

static int lua_out_of_memory(void) {
  long calls = 0, total;
  int status;
  CHECK(one_refusal(0, &total, &status) == 0 && status == LUA_OK);
  long step = total > 400 ? total / 400 : 1;               /* every place in the opening is too many */
  for (long n = 1; n <= total; n += n < 60 ? 1 : step) if (one_refusal(n, &calls, &status)) { fprintf(stderr, "refusal %ld\n", n); return 1; }
  return 0;
}

/* ---- threads ---- */

/* Sums over work large enough for the pool: the same bits for any number of threads. */
static int sums(sc_context *ctx, double *out) {
  sc_tensor *x, *e, *s;
  CHECK(sc_tensor_new(ctx, SC_FLOAT32, 1, (int64_t[]){1 << 20}, &x) == SC_OK);
  float *v = sc_tensor_data(x);
  for (int i = 0; i < 1 << 20; i++) v[i] = (float)(i % 977) / 977 - 0.5f;
  CHECK(sc_op_call(ctx, "exp", &x, 1, NULL, 0, &e, 1) == SC_OK && sc_op_call(ctx, "sum", &e, 1, NULL, 0, &s, 1) == SC_OK);
  *out = *(float *)sc_tensor_data(s);
  sc_tensor_release(x); sc_tensor_release(e); sc_tensor_release(s);
  return 0;
}

static int thread_counts(void) {
  double first = 0;
  for (int threads = 1; threads <= 3; threads++) {
    sc_options options = {.threads = threads};
    sc_context *ctx;
    double now;
    CHECK(sc_context_new(&options, &ctx) == SC_OK && sums(ctx, &now) == 0);
    if (threads == 1) first = now;
    CHECK(now == first);
    sc_context_free(ctx);
  }
  return 0;
}

/* The host's own threads instead of ours; this one has a thread for each piece. */
typedef struct piece_of { void (*piece)(void *arg, int64_t i); void *arg; int64_t i; } piece_of;
static int64_t pieces_seen;

static void *piece_thread(void *arg) { piece_of *p = arg; p->piece(p->arg, p->i); return NULL; }

static void host_for(void *user, int64_t n, void (*piece)(void *arg, int64_t i), void *arg) {
  pthread_t thread[64];
  piece_of list[64];
  *(int64_t *)user += n;
  for (int64_t at = 0; at < n; at += 64) {
    int64_t some = n - at < 64 ? n - at : 64;
    for (int64_t i = 0; i < some; i++) {
      list[i] = (piece_of){piece, arg, at + i};
      if (pthread_create(&thread[i], NULL, piece_thread, &list[i]) != 0) { piece_thread(&list[i]); thread[i] = pthread_self(); }
    }
    for (int64_t i = 0; i < some; i++) if (!pthread_equal(thread[i], pthread_self())) pthread_join(thread[i], NULL);
  }
}

static int hosted(void) {
  sc_options options = {.threads = 1};
  sc_context *ctx;
  double want, got;
  CHECK(sc_context_new(&options, &ctx) == SC_OK && sums(ctx, &want) == 0);
  sc_context_free(ctx);
  options = (sc_options){.threads = 3, .parallel_for = host_for, .parallel_user = &pieces_seen};
  CHECK(sc_context_new(&options, &ctx) == SC_OK && sums(ctx, &got) == 0);
  CHECK(got == want && pieces_seen > 3);
  sc_tensor *a, *c;                                        /* a product, whose warm-up needs all threads at once */
  CHECK(sc_tensor_new(ctx, SC_FLOAT32, 2, (int64_t[]){500, 500}, &a) == SC_OK);
  for (int i = 0; i < 250000; i++) ((float *)sc_tensor_data(a))[i] = 1;
  CHECK(sc_op_call(ctx, "matmul", (sc_tensor *[]){a, a}, 2, NULL, 0, &c, 1) == SC_OK);
  for (int i = 0; i < 250000; i++) CHECK(((float *)sc_tensor_data(c))[i] == 500);
  sc_tensor_release(a); sc_tensor_release(c);
  sc_context_free(ctx);
  return 0;
}

#if !defined(__SANITIZE_THREAD__)
static int forked(void) {
  sc_options options = {.threads = 3};
  sc_context *ctx;
  double before, after;
  CHECK(sc_context_new(&options, &ctx) == SC_OK && sums(ctx, &before) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(30);
    int bad = sums(ctx, &after) != 0 || after != before;
    sc_context_free(ctx);
    _exit(bad);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(sums(ctx, &after) == 0 && after == before);
  sc_context_free(ctx);
  return 0;
}

/* In a child, because limits stay: no thread can be made, everything stays on the caller. */
static int no_threads(void) {
  double want, got;
  sc_context *ctx;
  sc_options options = {.threads = 1};
  CHECK(sc_context_new(&options, &ctx) == SC_OK && sums(ctx, &want) == 0);
  sc_context_free(ctx);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(30);
    struct rlimit stack = {(rlim_t)1 << 50, (rlim_t)1 << 50};
    setrlimit(RLIMIT_STACK, &stack);                       /* stacks this large cannot be had, whoever asks */
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (size_t)1 << 46);
    pthread_setattr_default_np(&attr);
    options.threads = 3;
    int bad = sc_context_new(&options, &ctx) != SC_OK || sums(ctx, &got) != 0 || got != want;
    _exit(bad);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return 0;
}

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec * 1e-6 + (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec * 1e-6;
}

/* Workers that have nothing to do sleep: a hundred short pauses cost little more than the spinning that is allowed. */
static int idle(void) {
  sc_options options = {.threads = 3};
  sc_context *ctx;
  double sum;
  CHECK(sc_context_new(&options, &ctx) == SC_OK && sums(ctx, &sum) == 0);
  usleep(5000);
  double before = cpu_seconds();
  for (int i = 0; i < 100; i++) usleep(2000);
  double used = cpu_seconds() - before;
  CHECK(used < 0.02);                                      /* of 0.2 seconds, of three threads; a spinning one takes all of it */
  sc_context_free(ctx);
  return 0;
}
#else
static int forked(void) { return 0; }
static int no_threads(void) { return 0; }
static int idle(void) { return 0; }
#endif

int main(void) { return thread_counts() || hosted() || no_threads() || forked() || idle() || two_threads() || in_turn() || lua_out_of_memory(); }
