/* tensor: dtype, shape, storage, views, conversion. Knows nothing of ops. */
#ifndef SC_TENSOR_H
#define SC_TENSOR_H

#include "../base/base.h"

/* Reference-counted memory. Small storages carry their bytes inline. `version` counts in-place writes and `writer` is the
** script's place of the last one. */
typedef struct sc_storage {
  atomic_int refs;
  uint32_t version;
  uint32_t made;                /* which of the tensors that a script has made of tables while it was traced; 0: none of them */
  sc_context *ctx;
  void *data;
  size_t bytes;                 /* of data */
  size_t block;                 /* of this allocation, header included */
  void (*release)(void *user);  /* of memory that is not ours */
  void *user;
  sc_location writer;
} sc_storage;

enum {
  SC_T_WRAPPED = 1,   /* a number of the script: takes part in promotion by its category only */
  SC_T_REQUIRES = 2,  /* a leaf that wants a gradient */
  SC_T_ANCHORED = 4,  /* its history holds functions of the script (see lua/) */
  SC_T_RETAIN = 8,    /* not a leaf, but keeps its gradient */
  SC_T_CONSTANT = 16  /* nobody changes it any more: passes compute with it */
};

struct sc_autograd;

struct sc_tensor {
  atomic_int refs;
  uint8_t dtype, ndim, flags;
  bool contiguous;
  sc_context *ctx;
  sc_storage *storage;          /* NULL: symbolic */
  char *data;                   /* the first element */
  int64_t numel;
  struct sc_autograd *ad;       /* owned by autodiff; NULL: no history */
  struct sc_graph *graph;       /* of a symbolic tensor; owned by graph */
  int32_t value;                /* its number there */
  int64_t dim[];                /* ndim sizes, then ndim strides in elements */
};

#define sc__shape(t) ((t)->dim)
#define sc__stride(t) ((t)->dim + (t)->ndim)
static inline bool sc__is_symbolic(const sc_tensor *t) { return t->storage == NULL; }

/* What a tensor will be, before it exists. */
typedef struct sc_meta {
  sc_dtype dtype;
  int ndim;
  int64_t dim[SC_MAX_DIMS];
  int64_t stride[SC_MAX_DIMS];  /* of views */
  int64_t offset;               /* of views: elements from the source's first element */
} sc_meta;

/* ---- dtypes ---- */
typedef enum sc_category { SC_CAT_BOOL, SC_CAT_INT, SC_CAT_FLOAT } sc_category;
sc_category sc__category(sc_dtype d);
static inline bool sc__is_float(sc_dtype d) { return d <= SC_BFLOAT16; }
static inline bool sc__is_stored(sc_dtype d) { return d > SC_UINT64; }   /* only stored: nothing is computed in it */
bool sc__dtype_from_name(const char *name, sc_dtype *out);
sc_dtype sc__promote(sc_dtype a, sc_dtype b);          /* PyTorch's table for two tensors with dimensions */

/* ---- shapes ---- */
/* Product of the sizes; SC_EINVAL when negative or when numel * element size overflows. `op` names the caller in the message. */
sc_status sc__numel(sc_context *ctx, const char *op, sc_dtype dtype, int ndim, const int64_t *dim, int64_t *numel);
void sc__contiguous_strides(int ndim, const int64_t *dim, int64_t *stride);
/* "{2, 3}" */
const char *sc__shape_text(int ndim, const int64_t *dim, char *out, size_t size);
/* a and b's common shape into out; false when they do not broadcast */
bool sc__broadcast(int na, const int64_t *a, int nb, const int64_t *b, int *n, int64_t *out);
/* Steps through index space in row-major order: calls for the next position over the leading dims. */

/* ---- tensors ---- */
sc_status sc__tensor_like_meta(sc_context *ctx, const char *op, const sc_meta *m, sc_tensor **out);          /* new, uninitialised */
/* new; stride NULL: packed. Its `data` counts bytes from the first element of the value it is a view of. */
sc_status sc__tensor_symbolic(sc_context *ctx, const sc_meta *m, const int64_t *stride, char *data, sc_tensor **out);
sc_status sc__tensor_view(sc_tensor *base, const sc_meta *m, sc_tensor **out);                               /* new, shares storage */
sc_status sc__tensor_alias(sc_tensor *base, sc_tensor **out);                                                /* new, same geometry, no history */
sc_status sc__tensor_scalar(sc_context *ctx, bool is_int, int64_t i, double f, sc_tensor **out);             /* new, 0-d, SC_T_WRAPPED */
/* new: t itself when it is contiguous, else a packed copy */
sc_status sc__tensor_packed(sc_tensor *t, sc_tensor **out);
/* dst[...] = src[...] with conversion; src broadcasts to dst. The memories must not overlap (unless equal geometry). */
sc_status sc__tensor_copy(sc_tensor *dst, const sc_tensor *src);
/* Matrices [ni, nj] packed along j in dst and along i in src (rows dr and sr elements apart), for every index of nd outer dims. */
typedef struct sc_transpose {
  char *dst;
  const char *src;
  int64_t ni, nj, dr, sr;
  int nd;
  int64_t dim[SC_MAX_DIMS], ds[SC_MAX_DIMS], ss[SC_MAX_DIMS];
} sc_transpose;
void sc__transpose(sc_context *ctx, const sc_transpose *t, size_t element);
bool sc__tensor_may_overlap(const sc_tensor *a, const sc_tensor *b);  /* share storage, and may have an element in common */
/* The same of two that are known to lie in one memory: exact for views with the same strides, such as every other row and the rows between. */
bool sc__tensor_ranges_meet(const sc_tensor *a, const sc_tensor *b);
bool sc__tensor_self_overlap(const sc_tensor *t);                     /* two indices may name one element */
void sc__bump_version(sc_tensor *t);

/* print.c. t as people read it, `more` before the closing parenthesis; cut to size with its final 0. Returns the whole length. */
size_t sc__tensor_text(const sc_tensor *t, const char *more, char *out, size_t size);

/* ---- single elements ---- */
typedef struct sc_scalar { bool is_int, is_unsigned; int64_t i; double f; } sc_scalar;   /* f is set in both cases */
sc_scalar sc__load(sc_dtype dtype, const void *at);
void sc__store(sc_dtype dtype, void *at, sc_scalar v);
static inline sc_scalar sc__scalar_int(int64_t i) { return (sc_scalar){true, false, i, (double)i}; }
static inline sc_scalar sc__scalar_float(double f) { return (sc_scalar){false, false, 0, f}; }

/* n elements, steps in elements. Float to integer: towards zero, out of range and NaN as `sc__f64_to_i64` says. */
void sc__convert(int64_t n, sc_dtype dt, void *d, int64_t ds, sc_dtype st, const void *s, int64_t ss);
int64_t sc__f64_to_i64(double f);   /* NaN: 0; beyond the ends: the nearest end */
float sc__half_to_float(uint16_t h);
uint16_t sc__float_to_half(float f);
static inline float sc__bf16_to_float(uint16_t h) { union { uint32_t u; float f; } v = {(uint32_t)h << 16}; return v.f; }
uint16_t sc__float_to_bf16(float f);

/* ---- dtypes that are only stored (narrow.c) ---- */
double sc__narrow_load(sc_dtype dtype, uint8_t bits);
uint8_t sc__narrow_code(sc_dtype dtype, int bits);    /* as a file has them -> as memory has them */
uint8_t sc__narrow_store(sc_dtype dtype, double v);   /* to nearest, ties to even; beyond the largest: infinity, else NaN, else the largest; integers wrap */

#endif
