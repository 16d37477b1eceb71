/* Gather and scatter: one walk for every op that reads or writes through an index tensor.
**
** Dims that run on are merged; then the last dim is the inner loop. Where the index does not change along it (rows of an embedding,
** index_add) the inner loop is one run of a row, else one element at a time.
**
** A walk is split over threads along a dim whose coordinate is also the table's, so that no two pieces write the same element:
** repeated indices are combined in row-major order whatever the number of threads. */
#include "index.h"

#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* ---- combining ---- */

#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
#define MAX(a, b) ((b) > (a) || (b) != (b) ? (a) != (a) ? (a) : (b) : (a))
#define MIN(a, b) ((b) < (a) || (b) != (b) ? (a) != (a) ? (a) : (b) : (a))
#define OR(a, b) ((a) | (b))
#define AND(a, b) ((a) & (b))
#define SAME(x) (x)

#define COMBINE(name, T, C, load, save, f) \
  static void name(int64_t n, char *d, int64_t ds, const char *s, int64_t ss) { \
    T *dp = (T *)d; \
    const T *sp = (const T *)s; \
    if (ds == 1 && ss == 1) { \
      for (int64_t i = 0; i < n; i++) { C a = (C)load(dp[i]), b = (C)load(sp[i]); dp[i] = (T)save((C)f(a, b)); } \
      return; \
    } \
    for (int64_t i = 0; i < n; i++) { C a = (C)load(dp[i * ds]), b = (C)load(sp[i * ss]); dp[i * ds] = (T)save((C)f(a, b)); } \
  }
#define FOUR(t, T, C, load, save) \
  COMBINE(add_##t, T, C, load, save, ADD) COMBINE(mul_##t, T, C, load, save, MUL) \
  COMBINE(max_##t, T, C, load, save, MAX) COMBINE(min_##t, T, C, load, save, MIN)
FOUR(f32, float, float, SAME, SAME)
FOUR(f64, double, double, SAME, SAME)
FOUR(f16, uint16_t, float, sc__half_to_float, sc__float_to_half)
FOUR(bf16, uint16_t, float, sc__bf16_to_float, sc__float_to_bf16)
FOUR(u8, uint8_t, unsigned, SAME, SAME)
FOUR(u16, uint16_t, unsigned, SAME, SAME)
FOUR(u32, uint32_t, uint32_t, SAME, SAME)
FOUR(u64, uint64_t, uint64_t, SAME, SAME)
COMBINE(max_i8, int8_t, int, SAME, SAME, MAX)
COMBINE(min_i8, int8_t, int, SAME, SAME, MIN)
COMBINE(max_i16, int16_t, int, SAME, SAME, MAX)
COMBINE(min_i16, int16_t, int, SAME, SAME, MIN)
COMBINE(max_i32, int32_t, int32_t, SAME, SAME, MAX)
COMBINE(min_i32, int32_t, int32_t, SAME, SAME, MIN)
COMBINE(max_i64, int64_t, int64_t, SAME, SAME, MAX)
COMBINE(min_i64, int64_t, int64_t, SAME, SAME, MIN)
COMBINE(or_bool, uint8_t, unsigned, SAME, SAME, OR)
COMBINE(and_bool, uint8_t, unsigned, SAME, SAME, AND)

#define COPY(z, T) \
  static void copy_##z(int64_t n, char *d, int64_t ds, const char *s, int64_t ss) { \
    if (ds == 1 && ss == 1) { memcpy(d, s, (size_t)n * z); return; } \
    for (int64_t i = 0; i < n; i++) ((T *)d)[i * ds] = ((const T *)s)[i * ss]; \
  }
COPY(1, uint8_t) COPY(2, uint16_t) COPY(4, uint32_t) COPY(8, uint64_t)

static sc_combine_fn copy_of(size_t element) {
  return element == 1 ? copy_1 : element == 2 ? copy_2 : element == 4 ? copy_4 : copy_8;
}

/* Sums and products wrap, so they are the unsigned ones for both signs. */
sc_combine_fn sc__combine(sc_dtype d, sc_combine_kind k) {
  if (k == SC_COMBINE_COPY) return copy_of(sc_dtype_size(d));
  switch (d) {
#define ROW(dtype, t) case dtype: return k == SC_COMBINE_ADD ? add_##t : k == SC_COMBINE_MUL ? mul_##t : k == SC_COMBINE_MAX ? max_##t : min_##t;
#define SIGNED(dtype, t, u) case dtype: return k == SC_COMBINE_ADD ? add_##u : k == SC_COMBINE_MUL ? mul_##u : k == SC_COMBINE_MAX ? max_##t : min_##t;
    ROW(SC_FLOAT32, f32) ROW(SC_FLOAT64, f64) ROW(SC_FLOAT16, f16) ROW(SC_BFLOAT16, bf16)
    ROW(SC_UINT8, u8) ROW(SC_UINT16, u16) ROW(SC_UINT32, u32) ROW(SC_UINT64, u64)
    SIGNED(SC_INT8, i8, u8) SIGNED(SC_INT16, i16, u16) SIGNED(SC_INT32, i32, u32) SIGNED(SC_INT64, i64, u64)
#undef ROW
#undef SIGNED
    default: return k == SC_COMBINE_ADD || k == SC_COMBINE_MAX ? or_bool : and_bool;
  }
}

/* ---- the walk ---- */

typedef struct job {
  sc_index_walk w;
  int split;                    /* the dim that pieces are cut from */
  bool gather;
  sc_combine_fn row;
  int64_t z;                    /* bytes of an element */
  bool ahead;                   /* rows of a matrix: prefetch */
} job;

enum { AHEAD = 6 };

static void collapse(sc_index_walk *w) {
  int n = 0, indexed = -1;
  for (int i = 0; i < w->nd; i++) {
    int64_t size = w->dim[i];
    if (size == 1) continue;
    bool runs_on = n > 0 && indexed != n - 1 && i != w->indexed && w->is[n - 1] == w->is[i] * size && w->xs[n - 1] == w->xs[i] * size &&
                   w->vs[n - 1] == w->vs[i] * size;
    int at = runs_on ? n - 1 : n++;
    w->dim[at] = runs_on ? w->dim[at] * size : size;
    w->is[at] = w->is[i]; w->xs[at] = w->xs[i]; w->vs[at] = w->vs[i];
    if (i == w->indexed) indexed = at;
  }
  if (n == 0) { w->dim[0] = 1; w->is[0] = w->xs[0] = w->vs[0] = 0; n = 1; }
  w->nd = n;
  w->indexed = indexed;
}

static inline int64_t place(const sc_index_walk *w, int64_t v) { return (v < 0 ? v + w->n : v - w->base) * w->step; }

#define ELEMENTS(T, to, from) \
  for (int64_t i = 0; i < n; i++) { int64_t x = place(w, index[i * is]) + i * xs, v = i * vs; ((T *)(to))[TO] = ((const T *)(from))[FROM]; }
#define ALL_SIZES(to, from) \
  switch (z) { case 1: ELEMENTS(uint8_t, to, from) break; case 2: ELEMENTS(uint16_t, to, from) break; \
               case 4: ELEMENTS(uint32_t, to, from) break; default: ELEMENTS(uint64_t, to, from) }

static void gather_elements(const sc_index_walk *w, int64_t z, int64_t n, const int64_t *index, int64_t is, const char *table, int64_t xs,
                            char *values, int64_t vs) {
#define TO v
#define FROM x
  ALL_SIZES(values, table)
#undef TO
#undef FROM
}

static void put_elements(const sc_index_walk *w, int64_t z, int64_t n, const int64_t *index, int64_t is, char *table, int64_t xs,
                         const char *values, int64_t vs) {
#define TO x
#define FROM v
  ALL_SIZES(table, values)
#undef TO
#undef FROM
}

static void run_piece(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const sc_index_walk *w = &j->w;
  int last = w->nd - 1;
  int64_t dim[SC_MAX_DIMS], at[SC_MAX_DIMS] = {0}, rows = 1, z = j->z;
  for (int i = 0; i < w->nd; i++) dim[i] = i == j->split ? end - begin : w->dim[i];
  for (int i = 0; i < last; i++) rows *= dim[i];
  int64_t n = dim[last], is = w->is[last], xs = w->xs[last], vs = w->vs[last];
  int64_t io = begin * w->is[j->split], xo = begin * w->xs[j->split], vo = begin * w->vs[j->split];
  for (int64_t r = 0; r < rows; r++) {
    const int64_t *index = w->index + io;
    char *x = w->table + xo * z, *v = w->values + vo * z;
    if (is == 0 && last != w->indexed) {
      x += place(w, *index) * z;
      if (j->ahead && r + AHEAD < rows) {              /* rows lie anywhere: ask for one that comes soon */
        const char *soon = w->table + (place(w, w->index[io + AHEAD * w->is[0]])) * z;
        for (int64_t k = 0; k < n * z && k < 1024; k += 64) __builtin_prefetch(soon + k);
      }
      if (j->gather) j->row(n, v, vs, x, xs); else j->row(n, x, xs, v, vs);
    } else if (j->gather) {
      gather_elements(w, z, n, index, is, x, xs, v, vs);
    } else if (j->row == copy_of((size_t)z)) {
      put_elements(w, z, n, index, is, x, xs, v, vs);
    } else if (j->row == add_f32) {
      for (int64_t i = 0; i < n; i++) ((float *)x)[place(w, index[i * is]) + i * xs] += ((const float *)v)[i * vs];
    } else if (j->row == add_f64) {
      for (int64_t i = 0; i < n; i++) ((double *)x)[place(w, index[i * is]) + i * xs] += ((const double *)v)[i * vs];
    } else {
      for (int64_t i = 0; i < n; i++) j->row(1, x + (place(w, index[i * is]) + i * xs) * z, 1, v + i * vs * z, 1);
    }
    for (int i = last - 1; i >= 0; i--) {
      io += w->is[i]; xo += w->xs[i]; vo += w->vs[i];
      if (++at[i] < dim[i]) break;
      io -= w->is[i] * dim[i]; xo -= w->xs[i] * dim[i]; vo -= w->vs[i] * dim[i];
      at[i] = 0;
    }
  }
}

static void run(sc_context *ctx, job *j) {
  int64_t total = 1;
  for (int i = 0; i < j->w.nd; i++) total *= j->w.dim[i];
  if (total == 0) return;
  collapse(&j->w);
  const sc_index_walk *w = &j->w;
  j->ahead = w->nd == 2 && w->is[1] == 0 && w->indexed != 1 && w->xs[0] == 0 && w->xs[1] == 1;
  j->split = -1;
  for (int i = 0; i < w->nd; i++)                    /* the longest dim that may be cut; the outermost of equals */
    if ((j->gather || (w->xs[i] != 0 && i != w->indexed)) && (j->split < 0 || w->dim[i] > w->dim[j->split])) j->split = i;
  if (j->split < 0) { j->split = 0; run_piece(j, 0, w->dim[0]); return; }
  int64_t units = w->dim[j->split], grain = j->split == w->nd - 1 ? (units + 3) / 4 : 1;
  if (ctx->slice && grain > 4096) grain = 4096;
  sc__parallel(ctx, units, grain, (double)(total / units) * (w->is[w->nd - 1] ? 1.5 : 0.4), run_piece, j);
}

void sc__index_gather(sc_context *ctx, const sc_index_walk *w, size_t element) {
  job j = {.w = *w, .gather = true, .row = copy_of(element), .z = (int64_t)element};
  run(ctx, &j);
}

void sc__index_scatter(sc_context *ctx, const sc_index_walk *w, sc_dtype dtype, sc_combine_kind kind) {
  job j = {.w = *w, .gather = false, .row = sc__combine(dtype, kind), .z = (int64_t)sc_dtype_size(dtype)};
  run(ctx, &j);
}
