/* Work under a clock. A *slice* is work on a stack of its own: wherever it looks at the clock and finds its time over, it stops there, and
** goes on from there when it is run again. What is divisible looks: `sc__parallel` between pieces of its range (thread.c), products
** between blocks, executors between steps. Nothing below has to remember where it was, so every kernel that is a function over a range can
** be cut, in loops inside of loops, without a line of its own.
**
** While a slice runs, the context's `slice` points at it. It may be run by another thread each time, but not by two at once; it looks only
** when it holds no lock and none of the pool's workers are at work. The script is never called on its stack (`sc__slice_outside`).
**
** Stacks are mappings with a page below them that traps. Where there is no makecontext (or no memory), there are no slices, and callers do
** without: steps are then not cut. */
#include "base.h"

#include <time.h>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#include <unistd.h>
#if defined(__GLIBC__) || defined(__APPLE__) || defined(__FreeBSD__) || defined(__NetBSD__)
#define HAVE_CONTEXTS 1
#include <ucontext.h>
#endif
#endif

int64_t sc__now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#ifdef HAVE_CONTEXTS
/* The sanitizer of threads has to be told which stack runs. */
#if defined(__SANITIZE_THREAD__)
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#define TELL(fiber) __tsan_switch_to_fiber(fiber, 0)
#define UNSEEN __attribute__((no_sanitize_thread))     /* ends on the other stack than it began on */
#else
#define TELL(fiber) ((void)0)
#define UNSEEN
#endif

enum { STACK = 1 << 20 };

struct sc_slice {
  sc_context *ctx;
  ucontext_t inside, outside;
  char *stack;                   /* with the page that traps */
  size_t page;
  void (*fn)(void *arg);
  void *arg;
  void (*ask)(void *arg);        /* to be called outside */
  void *ask_arg;
  bool going, dropping, moved;   /* moved: some work was done since it was last run */
  int64_t deadline, looked, longest, sum;
#if defined(__SANITIZE_THREAD__)
  void *fiber, *host;
#endif
};

sc_slice *sc__slice_new(sc_context *ctx) {
  sc_slice *s = sc__alloc_zero(ctx, sizeof *s);
  if (!s) return NULL;
  s->page = (size_t)sysconf(_SC_PAGESIZE);
  s->stack = mmap(NULL, STACK + s->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (s->stack == MAP_FAILED || mprotect(s->stack, s->page, PROT_NONE) != 0) {
    if (s->stack != MAP_FAILED) munmap(s->stack, STACK + s->page);
    sc__release(ctx, s, sizeof *s);
    return NULL;
  }
  s->ctx = ctx;
#if defined(__SANITIZE_THREAD__)
  s->fiber = __tsan_create_fiber(0);
#endif
  return s;
}

void sc__slice_free(sc_context *ctx, sc_slice *s) {
  if (!s) return;
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(s->fiber);
#endif
  munmap(s->stack, STACK + s->page);
  sc__release(ctx, s, sizeof *s);
}

/* Pointers travel as two numbers: that is what makecontext promises to hand over. */
static UNSEEN void entry(unsigned high, unsigned low) {
  sc_slice *s = (sc_slice *)((uintptr_t)high << 16 << 16 | low);
  s->fn(s->arg);
  s->going = false;
  TELL(s->host);                 /* and back to `outside`, by uc_link */
}

static void leave(sc_slice *s) {
  TELL(s->host);
  swapcontext(&s->inside, &s->outside);
}

static void enter(sc_slice *s) {
#if defined(__SANITIZE_THREAD__)
  s->host = __tsan_get_current_fiber();
#endif
  TELL(s->fiber);
  swapcontext(&s->outside, &s->inside);
}

bool sc__slice_run(sc_slice *s, void (*fn)(void *arg), void *arg, int64_t deadline) {
  s->deadline = deadline;
  s->moved = false;
  s->looked = sc__now_ns();
  if (!s->going) {
    s->fn = fn;
    s->arg = arg;
    s->going = true;
    s->dropping = false;
    getcontext(&s->inside);
    s->inside.uc_stack = (stack_t){.ss_sp = s->stack + s->page, .ss_size = STACK};
    s->inside.uc_link = &s->outside;
    makecontext(&s->inside, (void (*)(void))entry, 2, (unsigned)((uintptr_t)s >> 16 >> 16), (unsigned)(uintptr_t)s);
  }
  sc_slice *was = s->ctx->slice;
  for (;;) {
    s->ask = NULL;
    s->ctx->slice = s;
    enter(s);
    s->ctx->slice = was;
    if (!s->ask) return !s->going;
    s->ask(s->ask_arg);
  }
}

void sc__slice_drop(sc_slice *s) {
  if (!s || !s->going) return;
  s->dropping = true;
  sc__slice_run(s, s->fn, s->arg, INT64_MAX);
}

bool sc__slice_going(const sc_slice *s) { return s && s->going; }
bool sc__slice_dropping(const sc_context *ctx) { return ctx->slice && ctx->slice->dropping; }

/* The time since the last look is one piece. */
static int64_t look(sc_slice *s) {
  int64_t now = sc__now_ns(), piece = now - s->looked;
  s->looked = now;
  s->sum += piece;
  if (piece > s->longest) s->longest = piece;
  return now;
}

void sc__slice_look(sc_context *ctx, int64_t ahead) {
  sc_slice *s = ctx->slice;
  if (!s || sc__in_worker()) return;
  int64_t now = look(s);
  if (s->moved && !s->dropping && now + ahead > s->deadline) {
    leave(s);
    s->looked = sc__now_ns();
  }
  s->moved = true;
}

int64_t sc__slice_left(const sc_context *ctx) {
  return ctx->slice->dropping || ctx->slice->deadline == INT64_MAX ? INT64_MAX : ctx->slice->deadline - ctx->slice->looked;
}

void sc__slice_measure(sc_slice *s, int64_t *longest, int64_t *sum) {
  look(s);
  *longest = s->longest;
  *sum = s->sum;
  s->longest = s->sum = 0;
}

void sc__slice_outside(sc_context *ctx, void (*fn)(void *arg), void *arg) {
  sc_slice *s = ctx->slice;
  if (!s) { fn(arg); return; }
  s->ask = fn;
  s->ask_arg = arg;
  leave(s);
}

#else

struct sc_slice { char none; };
sc_slice *sc__slice_new(sc_context *ctx) { (void)ctx; return NULL; }
void sc__slice_free(sc_context *ctx, sc_slice *s) { (void)ctx; (void)s; }
bool sc__slice_run(sc_slice *s, void (*fn)(void *arg), void *arg, int64_t deadline) { (void)s; (void)deadline; fn(arg); return true; }
void sc__slice_drop(sc_slice *s) { (void)s; }
bool sc__slice_going(const sc_slice *s) { (void)s; return false; }
bool sc__slice_dropping(const sc_context *ctx) { (void)ctx; return false; }
void sc__slice_look(sc_context *ctx, int64_t ahead) { (void)ctx; (void)ahead; }
int64_t sc__slice_left(const sc_context *ctx) { (void)ctx; return INT64_MAX; }
void sc__slice_measure(sc_slice *s, int64_t *longest, int64_t *sum) { (void)s; *longest = *sum = 0; }
void sc__slice_outside(sc_context *ctx, void (*fn)(void *arg), void *arg) { (void)ctx; fn(arg); }
#endif
