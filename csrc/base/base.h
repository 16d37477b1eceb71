/* base: what everything stands on. Memory, errors, threads, random numbers, CPU features; the context that holds them.
** Knows nothing of tensors. */
#ifndef SC_BASE_H
#define SC_BASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../sconce.h"

#define SC_TRY(call) do { sc_status sc_try_ = (call); if (sc_try_ != SC_OK) return sc_try_; } while (0)
#if defined(__GNUC__)
#define SC_FORMAT(f, a) __attribute__((format(printf, f, a)))
#define SC_LIKELY(x) __builtin_expect(!!(x), 1)
#define SC_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define SC_FORMAT(f, a)
#define SC_LIKELY(x) (x)
#define SC_UNLIKELY(x) (x)
#endif
#define SC_COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Our own mistakes, in debug builds only; never input. */
#ifdef SC_DEBUG
#define SC_CHECK(x) do { if (!(x)) __builtin_trap(); } while (0)
#else
#define SC_CHECK(x) ((void)0)
#endif

/* A place in the script; `file` is interned in the context and lives as long as it. line 0: unknown. */
typedef struct sc_location { const char *file; int line; } sc_location;
/* Where a node of a graph comes from: the script's line, and the module at work (interned, its path in the model, such as "blocks.3.attn";
** NULL: none). backward: it is of the gradient of what that line made. */
typedef struct sc_origin { const char *file; int line; bool backward; const char *module; } sc_origin;

/* ---- random numbers: Philox 4x32-10, counter based, so that element i of a call gets the same bits on any number of threads.
** Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3". */
typedef struct sc_generator { uint64_t seed, offset; } sc_generator;
void sc__philox(uint64_t seed, uint64_t counter, uint32_t out[4]);
/* Reserves `n` blocks of four 32-bit numbers and returns the first's counter. */
uint64_t sc__generator_take(sc_generator *g, uint64_t n);

/* ---- memory pool (private parts of the context) ---- */
#define SC_BINS (17 + (62 - 10) * 8)   /* one per class of sizes up to 2^62 bytes, beyond which nothing is asked for */
typedef struct sc_block sc_block;
typedef struct sc_interned sc_interned;
typedef struct sc_workers sc_workers;
typedef struct sc_slice sc_slice;

typedef enum sc_isa { SC_ISA_BASE, SC_ISA_AVX2, SC_ISA_AVX512, SC_ISAS } sc_isa;

struct sc_call;
struct sc_tensor;
struct sc_optable;

struct sc_context {
  atomic_int refs;              /* one for the host, one per living storage or tensor */
  sc_allocator allocator;
  atomic_flag lock;             /* guards the pool below */
  sc_block *bin[SC_BINS];       /* freed blocks by size class */
  void *slabs;                  /* chunks that small blocks are cut from */
  char *slab_at;
  size_t slab_left;
  size_t limit, held, cached;   /* bytes: limit of the host, blocks in use, freed blocks */
  bool bypass;                  /* every block straight from the allocator (tests) */
  atomic_llong live_tensors, live_bytes, peak_bytes, allocations;
  int64_t charged;              /* bytes of blocks taken that the binding has not told its collector yet */

  char error[1024];
  sc_generator rng;
  sc_file_loader loader;         /* the host's, instead of the file system */
  int threads;
  sc_parallel_for parallel_for; /* the host's, instead of workers */
  void *parallel_user;
  sc_workers *workers;
  sc_slice *slice;              /* the work under a clock that is going on; NULL: none */
  bool keep_blas_threads, blas_used;
  int blas_warm;                /* threads on which OpenBLAS has its memory (kernels/gemm.c) */

  sc_interned *interned[64];
  int names;                    /* how many */

  /* Services that higher layers put in. */
  void (*close)(struct sc_context *ctx);                   /* when the last reference goes */
  const struct sc_optable *ops;
  struct sc_rules *rules;       /* graph: the table of rewrites, read when first needed */
  sc_status (*record)(struct sc_call *call, bool grad);    /* autodiff: remembers a call on the tape, before it runs; !grad: a view's base only */
  /* autodiff, before an in-place call: refuses one that would break a gradient, keeps the old value when its gradient needs it */
  sc_status (*may_write)(struct sc_call *call, bool grad);
  void (*commit)(struct sc_call *call, bool done);         /* autodiff: after an in-place call that was remembered; !done: it failed */
  sc_status (*trace)(struct sc_call *call);                /* graph: appends a call as a node */
  void (*retract)(struct sc_call *call);                   /* graph: takes that node back, nothing having come after it */
  bool (*same_value)(const struct sc_tensor *a, const struct sc_tensor *b);   /* graph: whether two symbolic tensors are, or view, one value */
  /* autodiff: gradients of y, weighted by dy, at x alone (nothing behind x is walked), that can be differentiated again; dx[i]: new or NULL */
  sc_status (*gradients)(struct sc_context *ctx, struct sc_tensor **y, struct sc_tensor **dy, int n_y, struct sc_tensor **x, int n_x, struct sc_tensor **dx);
  void (*forget)(struct sc_tensor *t);                     /* autodiff: drops t's gradient data */
  void (*retrace)(struct sc_tensor *t);                    /* graph: a second header of the same value was made */
  void (*untrace)(struct sc_tensor *t);                    /* graph: drops t's tie to its graph */
  sc_location (*locate)(void *user);                       /* binding: where the script is now */
  void *locate_user;
  const struct sc_opinfo *(*composite)(void *user);        /* binding: the op written in Lua that the script is in, or NULL */
  /* binding: runs hook or custom backward `id`; grads are new, dy borrowed. keep: the node may be walked again. */
  sc_status (*script_hook)(void *user, int64_t id, struct sc_tensor *dy, struct sc_tensor **out);
  sc_status (*script_backward)(void *user, int64_t id, bool keep, struct sc_tensor **dy, int n_dy, struct sc_tensor **dx, int n_dx);
  sc_status (*script_join)(void *user, int64_t a, int64_t b, int64_t *out);   /* an anchor that keeps both */
  sc_status (*script_pin)(void *user, int64_t id);         /* keeps it until unpinned as often; unpin never calls the script */
  void (*script_unpin)(void *user, int64_t id);
  void (*reclaim)(void *user);                             /* binding: memory ran short; frees what the script no longer reaches */

  struct sc_node *dying;        /* nodes to be released by the loop that is running */
  bool burying, reclaiming;
  int walks;                    /* reverse walks going on, one inside the other */
  const char *module;           /* while recording: the module at work, see sc_origin */
  const sc_origin *differentiated;   /* what the walk is making gradients of; NULL: it is the script that calls */
  struct sc_graph *tracing;     /* every op is recorded into it, also those of tensors with data; NULL: none */
  struct sc_graph *building;    /* the graph with symbolic sizes that is being built by hand; NULL: none */
  bool (*symbolic_size)(int64_t size);                     /* graph: the number stands for a size that is not known yet */
  sc_status (*grad_changes)(struct sc_tensor *leaf);            /* graph: a leaf's gradient is about to change while tracing */
  sc_status (*grad_read)(struct sc_tensor *leaf);               /* graph: the one it has is looked at */

  const struct sc_opinfo *speaker;   /* ops: the public op, defined over others, that is running: messages speak of it (emit.c) */
  uint64_t sequence;            /* of tape nodes */
  sc_isa isa;                   /* what the processor can do */
  double branches_from;         /* graph: nanoseconds that branches have to save to run beside each other; 0: as measured (tests) */
  bool grad_enabled, anomaly, check_graphs;   /* check_graphs: verify graphs after every pass */
  uint8_t index_base;           /* 1 while called from Lua: for index values and messages */
};

/* A context without the layers above base; `sc_context_new` (csrc/sconce.c) adds them. */
sc_status sc__context_make(const sc_options *options, sc_context **out);
void sc__context_unref(sc_context *ctx);

/* ---- errors ---- */
sc_status sc__fail(sc_context *ctx, sc_status status, const char *format, ...) SC_FORMAT(3, 4);
sc_status sc__no_memory(sc_context *ctx, size_t bytes);
sc_location sc__locate(sc_context *ctx);
sc_origin sc__origin(sc_context *ctx);
/* borrowed from ctx; NULL when memory is refused */
const char *sc__intern(sc_context *ctx, const char *text);
/* Control bytes but line ends become '?': what a terminal would obey may come into a message with any name. In place. */
static inline void sc__tame(char *text) {
  for (; *text; text++)
    if (((unsigned char)*text < 32 && *text != '\n') || *text == 127) *text = '?';
}
/* Copies text into out with control bytes and broken UTF-8 escaped, cut at `size`: for names from files in messages. */
const char *sc__printable(const char *text, size_t length, char *out, size_t size);

/* ---- memory ---- */
/* new; 64-byte aligned, uninitialised; NULL when refused. Bytes are rounded up; pass the same number to sc__release. */
void *sc__alloc(sc_context *ctx, size_t bytes);
void *sc__alloc_zero(sc_context *ctx, size_t bytes);
void sc__release(sc_context *ctx, void *block, size_t bytes);
/* Room in a list for item n of `size` bytes and all before it, doubling; what is new is zeros. list: where the pointer to the items is. */
sc_status sc__grow(sc_context *ctx, void *list, size_t n, size_t *room, size_t size);
/* a * b into *out; false on overflow or a negative factor */
static inline bool sc__mul(int64_t a, int64_t b, int64_t *out) {
  return a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, out);
}

/* ---- threads ---- */
typedef void (*sc_range_fn)(void *arg, int64_t begin, int64_t end);
/* Calls fn over pieces of [0, n) on the context's threads; each piece starts at a multiple of `grain`. `cost` is the work of
** one unit in nanoseconds: work under 200 microseconds in all stays on the caller. Pieces must not depend on each other. Under a clock
** the range is run piece by piece, and the call may last over many slices. */
void sc__parallel(sc_context *ctx, int64_t n, int64_t grain, double cost, sc_range_fn fn, void *arg);
bool sc__in_worker(void);
/* Calls fn for each of [0, n), on several threads at once. Ranges inside are not given to other threads, but cut as they would be, so that all
** bits are the same as when the calls are made one after another. Not from inside of a piece or under a clock. */
void sc__beside(sc_context *ctx, int64_t n, sc_range_fn fn, void *arg);
/* Where this thread's messages go, of 1024 bytes, instead of into the context; NULL: into the context. */
void sc__errors_to(char *text);
/* Threads that work together in sc__parallel, the caller included; starts the pool. */
int sc__thread_count(sc_context *ctx);
void sc__workers_free(sc_context *ctx);

/* ---- work under a clock (slice.c) ---- */
int64_t sc__now_ns(void);
sc_slice *sc__slice_new(sc_context *ctx);              /* new; NULL: refused, or not on this platform */
void sc__slice_free(sc_context *ctx, sc_slice *s);     /* NULL is fine; nothing may be going on in it */
/* Starts fn(arg) on the slice's stack, or goes on where it stopped; true: it has ended. After the deadline it stops where it next looks. */
bool sc__slice_run(sc_slice *s, void (*fn)(void *arg), void *arg, int64_t deadline);
/* Lets what is going on come to its end, with products and other heavy work left out. */
void sc__slice_drop(sc_slice *s);
bool sc__slice_going(const sc_slice *s);
/* For kernels whose results are numbers that nothing is indexed by: their work may be left out. */
bool sc__slice_dropping(const sc_context *ctx);
/* Called between pieces of work: stops here when time is over, or would be before the next piece, of about `ahead` nanoseconds, is done;
** but not before some way was made. Nothing when no slice is going on. */
void sc__slice_look(sc_context *ctx, int64_t ahead);
int64_t sc__slice_left(const sc_context *ctx);         /* nanoseconds, as of the last look; only inside of one */
/* The longest between two looks, and their sum, since this was last asked. */
void sc__slice_measure(sc_slice *s, int64_t *longest, int64_t *sum);
/* Calls fn(arg) on the caller's stack: for what enters the script. */
void sc__slice_outside(sc_context *ctx, void (*fn)(void *arg), void *arg);

/* ---- CPU ---- */
sc_isa sc__cpu_isa(void);

#endif
