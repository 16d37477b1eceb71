/* One pool of workers per context, started when the first piece of work is large enough, the caller working along.
** A job is a range cut into pieces that the threads take from a shared counter. Waiting spins for at most 50 microseconds,
** then sleeps: a pool that spins on a machine shared with others collapses. */
#include "base.h"

#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_THREADS = 64 };
#define SERIAL_BELOW 200e3 /* nanoseconds: waking a sleeping core costs tens of microseconds */
#define SPIN_NS 50000

struct sc_workers {
  pthread_mutex_t mutex;
  pthread_cond_t wake, done;
  pthread_t thread[MAX_THREADS];
  int n;
  atomic_uint generation;       /* of jobs; changes when there is a new one */
  bool stop;
  sc_range_fn fn;
  void *arg;
  int64_t total, piece;
  atomic_llong next;
  atomic_int busy;              /* workers that have not finished the present job */
};

static _Thread_local bool in_worker;

bool sc__in_worker(void) { return in_worker; }

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static void work(sc_workers *w) {
  for (;;) {
    int64_t b = atomic_fetch_add(&w->next, w->piece);
    if (b >= w->total) return;
    int64_t e = b + w->piece < w->total ? b + w->piece : w->total;
    w->fn(w->arg, b, e);
  }
}

static void *worker(void *arg) {
  sc_workers *w = arg;
  in_worker = true;
  unsigned seen = 0;
  for (;;) {
    int64_t until = now_ns() + SPIN_NS;
    while (atomic_load(&w->generation) == seen && now_ns() < until) pause_cpu();
    if (atomic_load(&w->generation) == seen) {
      pthread_mutex_lock(&w->mutex);
      while (atomic_load(&w->generation) == seen && !w->stop) pthread_cond_wait(&w->wake, &w->mutex);
      pthread_mutex_unlock(&w->mutex);
    }
    if (w->stop) return NULL;
    seen = atomic_load(&w->generation);
    work(w);
    if (atomic_fetch_sub(&w->busy, 1) == 1) {
      pthread_mutex_lock(&w->mutex);
      pthread_cond_signal(&w->done);
      pthread_mutex_unlock(&w->mutex);
    }
  }
}

static void start(sc_context *ctx) {
  sc_workers *w = sc__alloc_zero(ctx, sizeof *w);
  if (!w) return;
  pthread_mutex_init(&w->mutex, NULL);
  pthread_cond_init(&w->wake, NULL);
  pthread_cond_init(&w->done, NULL);
  int want = ctx->threads - 1 < MAX_THREADS ? ctx->threads - 1 : MAX_THREADS;
  while (w->n < want && pthread_create(&w->thread[w->n], NULL, worker, w) == 0) w->n++;
  ctx->workers = w;
}

void sc__workers_free(sc_context *ctx) {
  sc_workers *w = ctx->workers;
  if (!w) return;
  pthread_mutex_lock(&w->mutex);
  w->stop = true;
  atomic_fetch_add(&w->generation, 1);
  pthread_cond_broadcast(&w->wake);
  pthread_mutex_unlock(&w->mutex);
  for (int i = 0; i < w->n; i++) pthread_join(w->thread[i], NULL);
  pthread_cond_destroy(&w->wake);
  pthread_cond_destroy(&w->done);
  pthread_mutex_destroy(&w->mutex);
  sc__release(ctx, w, sizeof *w);
  ctx->workers = NULL;
}

void sc_set_threads(sc_context *ctx, int n) {
  if (n <= 0) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    n = cores > 0 ? (int)cores : 1;
  }
  if (n > MAX_THREADS) n = MAX_THREADS;
  if (n == ctx->threads) return;
  sc__workers_free(ctx);
  ctx->threads = n;
}

int sc__thread_count(sc_context *ctx) {
  if (ctx->threads <= 1) return 1;
  if (!ctx->workers) start(ctx);
  return ctx->workers ? ctx->workers->n + 1 : 1;
}

int sc_get_threads(const sc_context *ctx) { return ctx->threads; }

void sc__parallel(sc_context *ctx, int64_t n, int64_t grain, double cost, sc_range_fn fn, void *arg) {
  if (n <= 0) return;
  if (ctx->threads <= 1 || in_worker || n <= grain || (double)n * cost < SERIAL_BELOW) { fn(arg, 0, n); return; }
  if (!ctx->workers) start(ctx);
  sc_workers *w = ctx->workers;
  if (!w || w->n == 0) { fn(arg, 0, n); return; }
  int64_t pieces = (w->n + 1) * 4;
  int64_t piece = (n + pieces - 1) / pieces;
  piece = (piece + grain - 1) / grain * grain;
  w->fn = fn; w->arg = arg; w->total = n; w->piece = piece;
  atomic_store(&w->next, 0);
  atomic_store(&w->busy, w->n);
  pthread_mutex_lock(&w->mutex);
  atomic_fetch_add(&w->generation, 1);
  pthread_cond_broadcast(&w->wake);
  pthread_mutex_unlock(&w->mutex);
  in_worker = true;
  work(w);
  in_worker = false;
  int64_t until = now_ns() + SPIN_NS;
  while (atomic_load(&w->busy) > 0 && now_ns() < until) pause_cpu();
  if (atomic_load(&w->busy) > 0) {
    pthread_mutex_lock(&w->mutex);
    while (atomic_load(&w->busy) > 0) pthread_cond_wait(&w->done, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
  }
}
