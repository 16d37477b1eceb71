/* sconce: an embeddable deep-learning runtime. This is the only header a host includes.
**
** A *context* owns everything: memory, threads, random numbers, the op table and the text of the last error. Two contexts
** never touch each other, so two threads may each use their own at the same time; one context is used by one thread at a time.
**
** A *tensor* is a reference-counted view (dtype, shape, strides) of a reference-counted storage. Everything here is 0-based.
**
** An *op* is called by name with tensors and attributes. When an input asks for gradients, the call is remembered on a tape
** that `sc_backward` walks. When an input is symbolic (it belongs to a graph), nothing is computed: the call becomes a node
** of that graph, which is compiled into a *run* and run many times, whole or in slices of time.
**
** Words used for ownership: *new* (the caller releases it), *borrowed* (valid until the named thing changes or dies),
** *takes* (the callee releases it, also on failure), *may fail* (look at the status; the text is in `sc_error(ctx)`).
**
** A complete program:
**
**     sc_context *ctx;
**     if (sc_context_new(NULL, &ctx) != SC_OK) return 1;
**     float data[] = {1, 2, 3, 4};
**     int64_t shape[] = {2, 2};
**     sc_tensor *x, *y;
**     sc_tensor_from_memory(ctx, SC_FLOAT32, 2, shape, data, &x);       // copies
**     sc_tensor *in[] = {x, x};
**     sc_op_call(ctx, "matmul", in, 2, NULL, 0, &y, 1);
**     const float *r = sc_tensor_data(y);                                // r[0] == 7
**     sc_tensor_release(x); sc_tensor_release(y);
**     sc_context_free(ctx);
*/
#ifndef SCONCE_H
#define SCONCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define SC_API __declspec(dllexport)
#else
#define SC_API __attribute__((visibility("default")))
#endif

#define SC_VERSION "0.1.0"
#define SC_MAX_DIMS 64

typedef enum sc_status {
  SC_OK,
  SC_EINVAL,   /* the caller's arguments are wrong */
  SC_ENOMEM,   /* the machine or the context's limit refused memory */
  SC_EIO,      /* a file could not be read or written */
  SC_EFORMAT   /* a file is not what it says */
} sc_status;

typedef enum sc_dtype {
  SC_FLOAT32, SC_FLOAT64, SC_FLOAT16, SC_BFLOAT16,
  SC_INT8, SC_UINT8, SC_INT16, SC_INT32, SC_INT64, SC_BOOL,
  SC_UINT16, SC_UINT32, SC_UINT64,
  /* For storing only: ops that move or convert elements take them, others refuse. One byte an element; the integers' high bits repeat the sign. */
  SC_FLOAT8E4M3FN, SC_FLOAT8E4M3FNUZ, SC_FLOAT8E5M2, SC_FLOAT8E5M2FNUZ, SC_FLOAT8E8M0, SC_FLOAT4E2M1, SC_INT4, SC_UINT4, SC_INT2, SC_UINT2,
  SC_DTYPES
} sc_dtype;

typedef struct sc_context sc_context;
typedef struct sc_tensor sc_tensor;
typedef struct sc_graph sc_graph;

/* ---- context ---- */

/* The host's memory functions; `resize` is not needed. Both are called from any of the context's threads. */
typedef struct sc_allocator {
  void *(*alloc)(void *user, size_t bytes);              /* 64-byte aligned, or NULL */
  void (*release)(void *user, void *block, size_t bytes);
  void *user;
} sc_allocator;

/* The host's own threads: calls piece(arg, i) for every i of 0 ... n-1, in any order, on any threads, and returns when all are done. It is
** called by the thread that uses the context. */
typedef void (*sc_parallel_for)(void *user, int64_t n, void (*piece)(void *arg, int64_t i), void *arg);

typedef struct sc_options {
  sc_allocator allocator;      /* zeros: the C library's */
  size_t memory_limit;         /* bytes of live blocks; 0: none */
  int threads;                 /* 0: the number of cores */
  sc_parallel_for parallel_for; /* instead of threads of ours, which are not started then; `threads` says how many it works with */
  void *parallel_user;
  bool keep_blas_threads;      /* true: leave OpenBLAS's process-wide thread setting to the host */
} sc_options;

typedef struct sc_stats {
  int64_t live_tensors;        /* storages alive */
  int64_t bytes;               /* bytes of storages alive */
  int64_t peak;                /* the most `bytes` has been */
  int64_t cached;              /* freed bytes kept for reuse */
  int64_t allocations;         /* blocks asked of the host's allocator, ever */
} sc_stats;

SC_API sc_status sc_context_new(const sc_options *options, sc_context **out);  /* new; may fail; options may be NULL */
SC_API void sc_context_free(sc_context *ctx);           /* tensors that are still alive stay valid until released */
SC_API const char *sc_error(const sc_context *ctx);     /* borrowed: until the next failing call */
SC_API void sc_get_stats(const sc_context *ctx, sc_stats *out);
SC_API void sc_set_memory_limit(sc_context *ctx, size_t bytes);
SC_API void sc_set_threads(sc_context *ctx, int n);     /* 0: the number of cores */
SC_API int sc_get_threads(const sc_context *ctx);
SC_API void sc_trim(sc_context *ctx);                   /* gives cached blocks back to the host */
SC_API void sc_seed(sc_context *ctx, uint64_t seed);

/* ---- tensors ---- */

SC_API sc_status sc_tensor_new(sc_context *ctx, sc_dtype dtype, int ndim, const int64_t *shape, sc_tensor **out); /* new, uninitialised */
SC_API sc_status sc_tensor_from_memory(sc_context *ctx, sc_dtype dtype, int ndim, const int64_t *shape, const void *data,
                                       sc_tensor **out); /* new; copies */
/* new; uses the caller's memory until `release(user)` is called (it may be NULL) */
SC_API sc_status sc_tensor_wrap(sc_context *ctx, sc_dtype dtype, int ndim, const int64_t *shape, void *data,
                                void (*release)(void *user), void *user, sc_tensor **out);
/* new: the same memory, seen from another context, without history. For weights that several threads read. */
SC_API sc_status sc_tensor_share(sc_context *ctx, const sc_tensor *t, sc_tensor **out);
SC_API sc_tensor *sc_tensor_retain(sc_tensor *t);
SC_API void sc_tensor_release(sc_tensor *t);            /* NULL is fine */
SC_API sc_dtype sc_tensor_dtype(const sc_tensor *t);
SC_API int sc_tensor_ndim(const sc_tensor *t);
SC_API const int64_t *sc_tensor_shape(const sc_tensor *t);   /* borrowed from t */
SC_API const int64_t *sc_tensor_stride(const sc_tensor *t);  /* borrowed from t; in elements */
SC_API int64_t sc_tensor_numel(const sc_tensor *t);
SC_API void *sc_tensor_data(const sc_tensor *t);        /* the first element; NULL for a symbolic tensor */
SC_API bool sc_tensor_is_contiguous(const sc_tensor *t);
/* The tensor as text into out, cut to size; returns the length of the whole text, without the final 0. */
SC_API size_t sc_tensor_text(const sc_tensor *t, char *out, size_t size);
SC_API const char *sc_dtype_name(sc_dtype dtype);
SC_API size_t sc_dtype_size(sc_dtype dtype);

/* ---- files: safetensors, .npy and .npz, and GGUF to read; see SECURITY.md for what is promised about files of strangers ---- */

typedef struct sc_archive sc_archive;                   /* named tensors, as loaded */
typedef struct sc_named_tensor { const char *name; sc_tensor *tensor; } sc_named_tensor;
typedef struct sc_named_text { const char *name, *text; } sc_named_text;

/* new; the format is told by the content */
SC_API sc_status sc_load(sc_context *ctx, const char *path, sc_archive **out);
/* new; `name` stands for the path in messages; the bytes are not kept */
SC_API sc_status sc_load_memory(sc_context *ctx, const void *bytes, size_t size, const char *name, sc_archive **out);
SC_API void sc_archive_free(sc_archive *a);             /* tensors that were retained live on */
SC_API int64_t sc_archive_count(const sc_archive *a);
SC_API bool sc_archive_is_single(const sc_archive *a);  /* a .npy file: one tensor, its name is empty */
SC_API const char *sc_archive_name(const sc_archive *a, int64_t i, size_t *length);   /* borrowed from a; length may be NULL */
SC_API sc_tensor *sc_archive_tensor(const sc_archive *a, int64_t i);                  /* borrowed from a */
SC_API sc_tensor *sc_archive_find(const sc_archive *a, const char *name);             /* borrowed from a; NULL: none of that name */
SC_API int64_t sc_archive_text_count(const sc_archive *a);                            /* metadata of safetensors */
SC_API const char *sc_archive_text(const sc_archive *a, int64_t i, const char **name);
/* Writes beside the file, flushes and renames: after a failure the old file is whole. The name's end tells the format: .npy (one
** tensor), .npz, else safetensors, which alone has texts. */
SC_API sc_status sc_save(sc_context *ctx, const char *path, const sc_named_tensor *tensors, int64_t n, const sc_named_text *texts,
                         int64_t n_texts);
/* Reads for the context instead of the file system, for games' packed data. `read` gives bytes that stay until `release`. */
typedef struct sc_file_loader {
  sc_status (*read)(void *user, const char *path, const void **data, size_t *size);
  void (*release)(void *user, const void *data, size_t size);     /* may be NULL */
  void *user;
} sc_file_loader;
SC_API void sc_set_file_loader(sc_context *ctx, const sc_file_loader *loader);        /* NULL: the file system again */

/* ---- ops ---- */

typedef enum sc_attr_kind { SC_ATTR_NONE, SC_ATTR_INT, SC_ATTR_FLOAT, SC_ATTR_BOOL, SC_ATTR_STRING, SC_ATTR_DTYPE, SC_ATTR_INTS,
                            SC_ATTR_FLOATS, SC_ATTR_GENERATOR, SC_ATTR_GRAPH /* internal */ } sc_attr_kind;
typedef struct sc_attr {
  sc_attr_kind kind;
  int32_t n;                   /* length of v and fv */
  union {
    int64_t i;
    double f;
    const char *s;
    const int64_t *v;
    const double *fv;
    void *p;
  };
} sc_attr;
typedef struct sc_named_attr { const char *name; sc_attr value; } sc_named_attr;

/* Calls the op `name`. Attributes that are not named take their defaults. out: new, n_out of them. */
SC_API sc_status sc_op_call(sc_context *ctx, const char *name, sc_tensor *const *in, int n_in, const sc_named_attr *attrs,
                            int n_attrs, sc_tensor **out, int n_out);

/* ---- gradients ---- */

SC_API bool sc_set_grad_enabled(sc_context *ctx, bool on);          /* whether calls are remembered for gradients; returns how it was */
SC_API sc_status sc_set_requires_grad(sc_tensor *t, bool on);
SC_API bool sc_requires_grad(const sc_tensor *t);
SC_API sc_tensor *sc_grad_of(const sc_tensor *t);       /* borrowed from t; NULL when there is none */
SC_API void sc_clear_grad(sc_tensor *t);                /* as if none had ever arrived */
/* Gradients of y (of its sum, weighted by dy unless that is NULL) are added to the leaves. */
SC_API sc_status sc_backward(sc_tensor *y, sc_tensor *dy, bool retain_graph);

/* ---- graphs: recorded once, run many times ----
**
** A *graph* is recorded: inputs are declared, ops that are called on them become nodes, results are named. Tensors with data that the
** nodes use are captured by reference: a run sees what they hold then, and an op in place on one of them (add_, sgd_step_ ...) is an
** update that every run makes. With `sc_backward` on a symbolic loss the gradients become nodes too, so a training step is a graph.
**
** A *run* is a graph compiled: optimised, its memory planned, one for each thread that uses it. Clones share the captured tensors and
** nothing else. A *job* is one execution of a run in slices of time.
**
**     sc_graph *g;  sc_tensor *x, *y;  sc_run *run;  int64_t batch;
**     sc_graph_new(ctx, &g);
**     sc_graph_size(g, "batch", &batch);                                 // a size that may differ from run to run
**     sc_graph_input(g, "x", SC_FLOAT32, 2, (int64_t[]){batch, 784}, &x);
**     sc_op_call(ctx, "matmul", (sc_tensor *[]){x, weight}, 2, NULL, 0, &y, 1);
**     sc_graph_output(g, "y", y);
**     sc_graph_compile(g, &run);
**
**     sc_named_tensor in = {"x", image}, out = {"y", NULL};
**     sc_run_call(run, &in, 1, &out, 1);                                 // whole; out.tensor is new
**
**     sc_job *job;  bool done = false;                                   // or a slice in each frame
**     sc_run_start(run, &in, 1, &job);
**     while (sc_job_advance(job, 1500, &done) == SC_OK && !done) draw_a_frame();
**     sc_job_result(job, &out, 1);
**     sc_job_free(job); */

typedef struct sc_run sc_run;
typedef struct sc_job sc_job;

SC_API sc_status sc_graph_new(sc_context *ctx, sc_graph **out);                        /* new */
SC_API void sc_graph_release(sc_graph *g);                                             /* NULL is fine; runs made of it live on */
/* The number that stands for a named size in shapes and attributes of this graph; the same for the same name. At most 10 names. */
SC_API sc_status sc_graph_size(sc_graph *g, const char *name, int64_t *out);
SC_API sc_status sc_graph_input(sc_graph *g, const char *name, sc_dtype dtype, int ndim, const int64_t *shape, sc_tensor **out); /* new, symbolic */
SC_API sc_status sc_graph_output(sc_graph *g, const char *name, sc_tensor *t);         /* borrows t */
/* new: a graph that sconce has saved (from Lua: g:save), whole: a training graph goes on training. Other ONNX files are refused. */
SC_API sc_status sc_graph_load(sc_context *ctx, const char *path, sc_graph **out);
/* Node by node as recorded, nothing optimised: the reference that runs are compared with. Without named sizes only.
** in: one tensor per input, in order of definition. out: new, one per output. */
SC_API sc_status sc_graph_run(sc_graph *g, sc_tensor *const *in, int n_in, sc_tensor **out, int n_out);

/* new. The graph may be released, and must not be added to any more. */
SC_API sc_status sc_graph_compile(sc_graph *g, sc_run **out);
/* new: the same graph with memory of its own, for this context (NULL: the run's own), which another thread may use; the captured
** tensors are shared. Generators of random numbers are not: those that the graph names, and the run's own (sc_run_seed), become the clone's
** own, in the state that they are in. While it is made, neither context may be in use elsewhere. */
SC_API sc_status sc_run_clone(const sc_run *r, sc_context *ctx, sc_run **out);
/* From now on the run draws from a generator of its own, seeded so, where it drew from its context's; so what it gives does not depend on what
** else draws. Not while a job of it is going on. */
SC_API void sc_run_seed(sc_run *r, uint64_t seed);
SC_API void sc_run_release(sc_run *r);                                                 /* NULL is fine; jobs going on keep what they need */
SC_API sc_context *sc_run_context(const sc_run *r);                                    /* borrowed; its sc_error tells why a call failed */

SC_API int sc_run_input_count(const sc_run *r);
SC_API const char *sc_run_input_name(const sc_run *r, int i);                          /* borrowed from the context */
/* Any of the three may be NULL. shape: room for SC_MAX_DIMS sizes; a named size is -1. */
SC_API void sc_run_input_info(const sc_run *r, int i, sc_dtype *dtype, int *ndim, int64_t *shape);
SC_API const char *sc_run_input_size_name(const sc_run *r, int i, int dim);            /* borrowed; NULL: it is a number */
SC_API int sc_run_output_count(const sc_run *r);
SC_API const char *sc_run_output_name(const sc_run *r, int i);

/* Runs it whole. in: every input by name, in any order. out: the names of the results wanted; their tensors are new. The first call
** for a set of sizes plans their memory; later ones ask the host's allocator for nothing. Results are never written to again. */
SC_API sc_status sc_run_call(sc_run *r, const sc_named_tensor *in, int n_in, sc_named_tensor *out, int n_out);

typedef struct sc_run_stats {
  int64_t nodes;               /* as recorded */
  int64_t steps;               /* after optimising, for the sizes seen last; 0: it has not run */
  int64_t arena_bytes;         /* memory of its own, for the sizes seen last */
  int64_t plans;               /* sets of sizes that it is ready for */
  int64_t longest_ns;          /* of jobs: the longest that a step goes without looking at the clock, as measured */
  int64_t update_ns;           /* of jobs: what the updates take, which are one piece */
} sc_run_stats;
SC_API void sc_run_get_stats(const sc_run *r, sc_run_stats *out);

/* new. The inputs must not be changed until the job is done. One job at a time for a run, and no call meanwhile; clones are free. */
SC_API sc_status sc_run_start(sc_run *r, const sc_named_tensor *in, int n_in, sc_job **out);
/* Goes on for about so many microseconds, and always makes some way. Nothing that outlives the job changes before its last slice, in
** which all updates are made at once. A failure ends the job, with everything as it was before. */
SC_API sc_status sc_job_advance(sc_job *j, int64_t microseconds, bool *done);
SC_API sc_status sc_job_result(sc_job *j, sc_named_tensor *out, int n_out);            /* as of sc_run_call; first runs what is left */
SC_API void sc_job_cancel(sc_job *j);                   /* everything is as before the start; does nothing when it is done */
SC_API void sc_job_free(sc_job *j);                     /* NULL is fine; one that goes on is cancelled */

#ifdef __cplusplus
}
#endif
#endif
