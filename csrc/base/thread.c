/* One pool of workers per context, started when the first piece of work is large enough, the caller working along.
** A job is a range cut into pieces that the threads take from a shared counter. Waiting spins for at most 50 microseconds,
** then sleeps: a pool that spins on a machine shared with others collapses. For the same reason the caller does not wait for workers that
** have not begun: one that wakes up late finds the job closed.
**
** Under a clock (slice.c) a range is run piece by piece, each so long as the clock and what the last piece took say, with a look at the
** clock in between. After a fork the child has no workers: it forgets the pool and starts its own when it needs one. */
#include "base.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { MAX_THREADS = 64 };
#define SERIAL_BELOW 200e3 /* nanoseconds: waking a sleeping core costs tens of microseconds */
#define SPIN_NS 50000
#define PIECE_NS 60e3 /* under a clock: what a piece should take, well below the overrun that is promised */

typedef struct range { sc_range_fn fn; void *arg; int64_t end, piece; } range;

struct sc_workers {
  pthread_mutex_t mutex;
  pthread_cond_t wake, done;
  pthread_t thread[MAX_THREADS];
  int n;
  pid_t process;                /* that the threads live in */
  atomic_uint generation;       /* of jobs; changes when there is a new one */
  atomic_bool stop;
  range job;                    /* written before it is open */
  bool open;                    /* workers may join in; with the mutex */
  atomic_llong next;
  atomic_int active;            /* workers that have joined in and not finished; changed with the mutex */
};

static _Thread_local bool in_worker, beside;      /* beside: in a call of sc__beside, not in a piece of a range inside of it */

/* Not to be inlined: a slice may go on on another thread, whose own flag it is then. */
__attribute__((noinline)) bool sc__in_worker(void) { return in_worker; }
static __attribute__((noinline)) void set_in_worker(bool on) { in_worker = on; }

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static void work(sc_workers *w) {
  const range *r = &w->job;
  for (;;) {
    int64_t b = atomic_fetch_add(&w->next, r->piece);
    if (b >= r->end) return;
    r->fn(r->arg, b, b + r->piece < r->end ? b + r->piece : r->end);
  }
}

/* Until there is a job newer than `seen` or the end: spins for a while, then sleeps. */
static void await_job(sc_workers *w, unsigned seen) {
  int64_t until = sc__now_ns() + SPIN_NS;
  while (atomic_load(&w->generation) == seen && !atomic_load(&w->stop) && sc__now_ns() < until) pause_cpu();
  if (atomic_load(&w->generation) != seen || atomic_load(&w->stop)) return;
  pthread_mutex_lock(&w->mutex);
  while (atomic_load(&w->generation) == seen && !atomic_load(&w->stop)) pthread_cond_wait(&w->wake, &w->mutex);
  pthread_mutex_unlock(&w->mutex);
}

static void *worker(void *arg) {
  sc_workers *w = arg;
  set_in_worker(true);
  for (unsigned seen = 0; ; ) {
    await_job(w, seen);
    if (atomic_load(&w->stop)) return NULL;
    pthread_mutex_lock(&w->mutex);
    seen = atomic_load(&w->generation);
    bool join = w->open;
    if (join) atomic_fetch_add(&w->active, 1);
    pthread_mutex_unlock(&w->mutex);
    if (!join) continue;
    work(w);
    pthread_mutex_lock(&w->mutex);
    if (atomic_fetch_sub(&w->active, 1) == 1) pthread_cond_signal(&w->done);
    pthread_mutex_unlock(&w->mutex);
  }
}

/* Signals of the host are not for our threads. As many workers as the system gives; none is fine. */
static void start(sc_context *ctx) {
  sc_workers *w = sc__alloc_zero(ctx, sizeof *w);
  if (!w) return;
  pthread_mutex_init(&w->mutex, NULL);
  pthread_cond_init(&w->wake, NULL);
  pthread_cond_init(&w->done, NULL);
  w->process = getpid();
  int want = ctx->threads - 1 < MAX_THREADS ? ctx->threads - 1 : MAX_THREADS;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (w->n < want && pthread_create(&w->thread[w->n], NULL, worker, w) == 0) w->n++;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  ctx->workers = w;
}

/* The pool, started when needed; NULL: there are no workers. */
static sc_workers *pool(sc_context *ctx) {
  if (ctx->workers && ctx->workers->process != getpid()) {   /* forked: its threads are not here, its locks may be held for ever */
    sc__release(ctx, ctx->workers, sizeof *ctx->workers);
    ctx->workers = NULL;
  }
  if (!ctx->workers) start(ctx);
  return ctx->workers && ctx->workers->n ? ctx->workers : NULL;
}

void sc__workers_free(sc_context *ctx) {
  sc_workers *w = ctx->workers;
  if (!w) return;
  if (w->process == getpid()) {
    pthread_mutex_lock(&w->mutex);
    atomic_store(&w->stop, true);
    pthread_cond_broadcast(&w->wake);
    pthread_mutex_unlock(&w->mutex);
    for (int i = 0; i < w->n; i++) pthread_join(w->thread[i], NULL);
    pthread_cond_destroy(&w->wake);
    pthread_cond_destroy(&w->done);
    pthread_mutex_destroy(&w->mutex);
  }
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
  if (ctx->threads <= 1 || ctx->parallel_for) return ctx->threads;
  sc_workers *w = pool(ctx);
  return w ? w->n + 1 : 1;
}

int sc_get_threads(const sc_context *ctx) { return ctx->threads; }

/* [begin, end) on the pool, in pieces of that size, and back when all of it is done. */
static void spread(sc_workers *w, int64_t begin, int64_t end, int64_t piece, sc_range_fn fn, void *arg) {
  pthread_mutex_lock(&w->mutex);
  w->job = (range){fn, arg, end, piece};
  atomic_store(&w->next, begin);
  w->open = true;
  atomic_fetch_add(&w->generation, 1);
  pthread_cond_broadcast(&w->wake);
  pthread_mutex_unlock(&w->mutex);
  set_in_worker(true);
  work(w);
  set_in_worker(false);
  pthread_mutex_lock(&w->mutex);
  w->open = false;
  pthread_mutex_unlock(&w->mutex);
  int64_t until = sc__now_ns() + SPIN_NS;
  while (atomic_load(&w->active) > 0 && sc__now_ns() < until) pause_cpu();
  pthread_mutex_lock(&w->mutex);
  while (atomic_load(&w->active) > 0) pthread_cond_wait(&w->done, &w->mutex);
  pthread_mutex_unlock(&w->mutex);
}

static int64_t rounded(int64_t n, int64_t grain) { return (n + grain - 1) / grain * grain; }

/* The same on the host's threads. */
typedef struct hosted { sc_range_fn fn; void *arg; int64_t begin, end, piece; } hosted;

static void hosted_piece(void *arg, int64_t i) {
  const hosted *h = arg;
  int64_t b = h->begin + i * h->piece;
  bool was = sc__in_worker();
  set_in_worker(true);
  h->fn(h->arg, b, h->end - b < h->piece ? h->end : b + h->piece);
  set_in_worker(was);
}

static void spread_hosted(sc_context *ctx, int64_t begin, int64_t end, int64_t grain, sc_range_fn fn, void *arg) {
  int64_t pieces = (int64_t)ctx->threads * 4, piece = rounded((end - begin + pieces - 1) / pieces, grain);
  hosted h = {fn, arg, begin, end, piece};
  ctx->parallel_for(ctx->parallel_user, (end - begin + piece - 1) / piece, hosted_piece, &h);
}

static void run_range(sc_context *ctx, int64_t begin, int64_t end, int64_t grain, bool alone, sc_range_fn fn, void *arg) {
  if (ctx->parallel_for && !alone && end - begin > grain) { spread_hosted(ctx, begin, end, grain, fn, arg); return; }
  sc_workers *w = alone || end - begin <= grain ? NULL : pool(ctx);
  if (!w) { fn(arg, begin, end); return; }
  int64_t pieces = (w->n + 1) * 4;
  spread(w, begin, end, rounded((end - begin + pieces - 1) / pieces, grain), fn, arg);
}

/* Under a clock. The first piece is short, since costs are guesses; later ones go by what a unit took. */
static void run_pieces(sc_context *ctx, int64_t n, int64_t grain, double cost, bool alone, sc_range_fn fn, void *arg) {
  double unit = cost > 0.01 ? cost : 0.01, want = PIECE_NS / 4;
  int64_t least = alone ? grain : grain * ctx->threads;
  for (int64_t at = 0; at < n; want = PIECE_NS) {
    double left = (double)sc__slice_left(ctx), span = left < want && left > 0 ? left : want;
    int64_t piece = span / unit < (double)n ? rounded((int64_t)(span / unit) + 1, grain) : n;
    if (piece > grain && (double)piece * unit > want) piece -= grain;
    if (piece < least) piece = least;
    int64_t end = n - at < piece ? n : at + piece;
    sc__slice_look(ctx, (int64_t)((double)(end - at) * unit));
    int64_t begun = sc__now_ns();
    run_range(ctx, at, end, grain, alone, fn, arg);
    unit = (double)(sc__now_ns() - begun) / (double)(end - at);
    if (unit < 0.001) unit = 0.001;
    at = end;
  }
}

/* Inside of sc__beside: the pieces that the pool would have been given, one after another. */
static void run_cut(sc_context *ctx, int64_t n, int64_t grain, sc_range_fn fn, void *arg) {
  int64_t pieces = (int64_t)(ctx->parallel_for || !ctx->workers ? ctx->threads : ctx->workers->n + 1) * 4, piece = rounded((n + pieces - 1) / pieces, grain);
  beside = false;
  for (int64_t b = 0; b < n; b += piece) fn(arg, b, n - b < piece ? n : b + piece);
  beside = true;
}

typedef struct calls { sc_range_fn fn; void *arg; } calls;

static void one_call(void *arg, int64_t begin, int64_t end) {
  const calls *c = arg;
  bool was = beside;
  beside = true;
  for (int64_t i = begin; i < end; i++) c->fn(c->arg, i, i + 1);
  beside = was;
}

void sc__beside(sc_context *ctx, int64_t n, sc_range_fn fn, void *arg) {
  calls c = {fn, arg};
  sc_workers *w = ctx->parallel_for ? NULL : pool(ctx);
  if (ctx->parallel_for) {
    hosted h = {one_call, &c, 0, n, 1};
    ctx->parallel_for(ctx->parallel_user, n, hosted_piece, &h);
  } else if (w) {
    spread(w, 0, n, 1, one_call, &c);
  } else {
    for (int64_t i = 0; i < n; i++) fn(arg, i, i + 1);
  }
}

void sc__parallel(sc_context *ctx, int64_t n, int64_t grain, double cost, sc_range_fn fn, void *arg) {
  if (n <= 0) return;
  bool alone = ctx->threads <= 1 || n <= grain || (double)n * cost < SERIAL_BELOW || in_worker;
  if (SC_UNLIKELY(beside) && ctx->threads > 1 && n > grain && (double)n * cost >= SERIAL_BELOW) run_cut(ctx, n, grain, fn, arg);
  else if (SC_UNLIKELY(ctx->slice != NULL) && !sc__in_worker() && n > grain) run_pieces(ctx, n, grain, cost, alone, fn, arg);
  else run_range(ctx, 0, n, grain, alone, fn, arg);
}
