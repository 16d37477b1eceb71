/* The engine of reductions: walks the input in tiles, hands them to the loops of reduce_body.h, combines what they give.
**
** Dims are split into kept and reduced ones, dims of one are dropped and neighbours that run on are merged; for sums the reduced
** dims are put in order of their strides first. Then there are two ways to walk:
**   rows     one output at a time, its elements tile by tile (packed memory itself, else gathered and converted into a buffer);
**   columns  when neighbouring outputs are neighbours in memory: a row of outputs at a time, folded in row by row.
** Long reductions are cut into spans whose length depends on sizes only; spans are folded apart and then joined in their order.
** So the bits are the same for any number of threads, and for packed and gathered data. */
#include "reduce.h"

#include <math.h>
#include <string.h>

enum { TILE = 4096, SPAN = 16 * TILE, COLUMNS = 1024, FEW_COLUMNS = 16 };

extern const sc_reduce_table sc__reduce_table_base;
#if defined(__x86_64__)
extern const sc_reduce_table sc__reduce_table_avx2, sc__reduce_table_avx512;
#endif

const sc_reduce_table *sc__reduce_table(sc_isa isa) {
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) return &sc__reduce_table_avx512;
  if (isa == SC_ISA_AVX2) return &sc__reduce_table_avx2;
#else
  (void)isa;
#endif
  return &sc__reduce_table_base;
}

typedef struct dims { int n; int64_t dim[SC_MAX_DIMS + 1], stride[SC_MAX_DIMS + 1]; } dims;

typedef struct job {
  sc_reduce_kind kind;
  const sc_reduce_loops *loops;
  const char *data;
  sc_dtype dtype, ctype;          /* of memory; of the loops */
  bool direct, flip;              /* ctype is dtype; uint64 kept in order as int64 */
  bool plain;                     /* rows are packed runs of one tile at most, kept ones in equal distances */
  dims kept, red;
  int64_t n, outputs, inner;      /* reduced elements per output; columns: the last kept dim */
  int64_t spans, span;            /* of each output (columns: of rows) */
  double p;
  const double *m;
  int64_t *acc, *index;           /* 8 bytes per (output, span) */
} job;

static void merge(dims *d) {
  int n = 0;
  for (int i = 0; i < d->n; i++) {
    if (d->dim[i] == 1) continue;
    if (n && d->stride[n - 1] == d->stride[i] * d->dim[i]) {
      d->dim[n - 1] *= d->dim[i];
      d->stride[n - 1] = d->stride[i];
    } else {
      d->dim[n] = d->dim[i];
      d->stride[n++] = d->stride[i];
    }
  }
  d->n = n;
}

static void by_stride(dims *d) {
  for (int i = 1; i < d->n; i++)
    for (int k = i; k > 0 && d->stride[k] > d->stride[k - 1]; k--) {
      int64_t a = d->dim[k], s = d->stride[k];
      d->dim[k] = d->dim[k - 1]; d->stride[k] = d->stride[k - 1];
      d->dim[k - 1] = a; d->stride[k - 1] = s;
    }
}

static int64_t offset_of(const dims *d, int64_t at) {
  int64_t off = 0;
  for (int i = d->n - 1; i >= 0 && at; i--) {
    off += at % d->dim[i] * d->stride[i];
    at /= d->dim[i];
  }
  return off;
}

static void flip_order(int64_t n, int64_t *v) { for (int64_t i = 0; i < n; i++) v[i] = (int64_t)((uint64_t)v[i] ^ (uint64_t)INT64_MIN); }

/* n elements of a strided run as the loops want them: memory itself or the buffer. */
static const void *load_run(const job *j, const char *src, int64_t n, int64_t stride, void *buffer) {
  if (j->direct && stride == 1) return src;
  sc__convert(n, j->ctype, buffer, 1, j->dtype, src, stride);
  if (j->flip) flip_order(n, buffer);
  return buffer;
}

/* Elements [at, at + n) of the reduced dims, from `off` on. */
static const void *load_tile(const job *j, int64_t off, int64_t at, int64_t n, void *buffer) {
  int64_t z = (int64_t)sc_dtype_size(j->dtype), cz = (int64_t)sc_dtype_size(j->ctype);
  if (j->red.n <= 1) {
    int64_t stride = j->red.n ? j->red.stride[0] : 1;
    return load_run(j, j->data + (off + at * stride) * z, n, stride, buffer);
  }
  int last = j->red.n - 1;
  const int64_t *dim = j->red.dim, *stride = j->red.stride;
  char *b = buffer;
  while (n > 0) {
    int64_t in = at % dim[last], run = dim[last] - in < n ? dim[last] - in : n;
    sc__convert(run, j->ctype, b, 1, j->dtype, j->data + (off + offset_of(&j->red, at)) * z, stride[last]);
    if (j->flip) flip_order(run, (int64_t *)b);
    at += run;
    n -= run;
    b += run * cz;
  }
  return buffer;
}

void sc__reduce_neutral(sc_reduce_kind kind, bool integer, void *acc) {
  double f = 0;
  int64_t i = 0;
  switch (kind) {
    case SC_RED_PROD: f = 1; i = 1; break;
    case SC_RED_MAX: case SC_RED_ARGMAX: f = -INFINITY; i = INT64_MIN; break;
    case SC_RED_MIN: case SC_RED_ARGMIN: case SC_RED_MINABS: f = INFINITY; i = INT64_MAX; break;
    default: break;
  }
  if (!integer) memcpy(&i, &f, 8);
  memcpy(acc, &i, 8);
}

static int64_t neutral(const job *j) {
  int64_t i;
  sc__reduce_neutral(j->kind, j->ctype == SC_INT64, &i);
  return i;
}

/* a = a joined with b, which comes later */
static void join(const job *j, int64_t *a, const int64_t *b, int64_t *ia, const int64_t *ib) {
  bool integer = j->ctype == SC_INT64;
  double x, y;
  memcpy(&x, a, 8);
  memcpy(&y, b, 8);
  switch (j->kind) {
    case SC_RED_PROD:
      if (integer) *a = (int64_t)((uint64_t)*a * (uint64_t)*b); else { x *= y; memcpy(a, &x, 8); }
      break;
    case SC_RED_MAX: case SC_RED_MAXABS:
      if (integer ? *b > *a : y > x || y != y) *a = *b;
      break;
    case SC_RED_MIN: case SC_RED_MINABS:
      if (integer ? *b < *a : y < x || y != y) *a = *b;
      break;
    case SC_RED_ARGMAX: case SC_RED_ARGMIN: {
      bool max = j->kind == SC_RED_ARGMAX;
      bool better = integer ? (max ? *b > *a : *b < *a) : x == x && (y != y || (max ? y > x : y < x));
      if (better || *ia < 0) { *a = *b; *ia = *ib; }
      break;
    }
    default:
      if (integer) *a = (int64_t)((uint64_t)*a + (uint64_t)*b); else { x += y; memcpy(a, &x, 8); }
  }
}

static void power_tile(const job *j, int64_t n, const void *x, double *d) {
  if (j->ctype == SC_FLOAT32) for (int64_t i = 0; i < n; i++) d[i] = pow(fabs((double)((const float *)x)[i]), j->p);
  else for (int64_t i = 0; i < n; i++) d[i] = pow(fabs(((const double *)x)[i]), j->p);
}

/* One tile of one output. */
static void fold_row(const job *j, int64_t n, const void *x, int64_t at, int64_t *acc, int64_t *index, double m, void *spare) {
  const sc_reduce_loops *l = j->loops;
  switch (j->kind) {
    case SC_RED_ARGMAX: case SC_RED_ARGMIN: {
      sc_reduce_kind k = j->kind == SC_RED_ARGMAX ? SC_RED_MAX : SC_RED_MIN;
      int64_t best = neutral(j), where;
      l->row[k](n, x, &best, 0);
      where = l->find(n, x, &best) + at;
      join(j, acc, &best, index, &where);
      break;
    }
    case SC_RED_EXP:
      l->map_exp(n, x, spare, m);
      l->row[SC_RED_SUM](n, spare, acc, 0);
      break;
    case SC_RED_POWER: {
      double *d = spare, total = 0, have;
      power_tile(j, n, x, d);
      for (int64_t i = 0; i < n; i++) total += d[i];
      memcpy(&have, acc, 8);
      have += total;
      memcpy(acc, &have, 8);
      break;
    }
    default: l->row[j->kind](n, x, acc, m);
  }
}

/* Packed rows that one call of a loop each can fold; what most sums over the last dim are. */
static void run_packed_rows(const job *j, int64_t begin, int64_t end) {
  int64_t z = (int64_t)sc_dtype_size(j->dtype), apart = j->kept.n ? j->kept.stride[0] * z : 0, first = neutral(j);
  const char *x = j->data + begin * apart;
  for (int64_t o = begin; o < end; o++, x += apart) {
    j->acc[o] = first;
    j->loops->row[j->kind](j->n, x, &j->acc[o], j->m ? j->m[o] : 0);
  }
}

static void run_rows(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  if (j->plain) { run_packed_rows(j, begin, end); return; }
  _Alignas(64) char buffer[TILE * 8], spare[j->kind == SC_RED_EXP || j->kind == SC_RED_POWER ? TILE * 8 : 8];
  for (int64_t u = begin; u < end; u++) {
    int64_t o = u / j->spans, first = u % j->spans * j->span;
    int64_t stop = first + j->span < j->n ? first + j->span : j->n, off = offset_of(&j->kept, o);
    j->acc[u] = neutral(j);
    int64_t *index = j->index ? &j->index[u] : NULL;
    if (index) *index = -1;
    for (int64_t at = first; at < stop; at += TILE) {
      int64_t n = stop - at < TILE ? stop - at : TILE;
      fold_row(j, n, load_tile(j, off, at, n, buffer), at, &j->acc[u], index, j->m ? j->m[o] : 0, spare);
    }
  }
}

static void fold_columns(const job *j, int64_t n, const void *x, int64_t r, int64_t *acc, int64_t *index, const double *m, void *spare) {
  const sc_reduce_loops *l = j->loops;
  switch (j->kind) {
    case SC_RED_ARGMAX: l->col_argmax(n, x, acc, index, r); break;
    case SC_RED_ARGMIN: l->col_argmin(n, x, acc, index, r); break;
    case SC_RED_EXP:
      l->map_exp_cols(n, x, spare, m);
      l->col[SC_RED_SUM](n, spare, acc, NULL);
      break;
    case SC_RED_POWER: {
      double *d = spare, *a = (double *)acc;
      power_tile(j, n, x, d);
      for (int64_t i = 0; i < n; i++) a[i] += d[i];
      break;
    }
    default: l->col[j->kind](n, x, acc, m);
  }
}

/* Units: (outer, chunk of columns, span of rows). Results at [outer][span][inner]. */
static void run_columns(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  _Alignas(64) char buffer[COLUMNS * 8], spare[COLUMNS * 8];
  int64_t chunks = (j->inner + COLUMNS - 1) / COLUMNS, z = (int64_t)sc_dtype_size(j->dtype);
  int64_t si = j->kept.stride[j->kept.n - 1];
  dims outer = j->kept;
  outer.n--;
  for (int64_t u = begin; u < end; u++) {
    int64_t s = u % j->spans, c = u / j->spans % chunks, o = u / j->spans / chunks;
    int64_t c0 = c * COLUMNS, n = j->inner - c0 < COLUMNS ? j->inner - c0 : COLUMNS;
    int64_t first = s * j->span, stop = first + j->span < j->n ? first + j->span : j->n;
    int64_t to = (o * j->spans + s) * j->inner + c0, off = offset_of(&outer, o) + c0 * si;
    for (int64_t i = 0; i < n; i++) j->acc[to + i] = neutral(j);
    if (j->index) for (int64_t i = 0; i < n; i++) j->index[to + i] = first;
    const double *m = j->m ? j->m + o * j->inner + c0 : NULL;
    int64_t r = first;
    if (j->loops->col16[j->kind] && j->direct && si == 1 && j->red.n == 1)
      for (; r + 16 <= stop; r += 16) j->loops->col16[j->kind](n, j->data + (off + r * j->red.stride[0]) * z, j->red.stride[0], j->acc + to);
    for (; r < stop; r++) {
      int64_t row = j->red.n == 1 ? r * j->red.stride[0] : offset_of(&j->red, r);
      fold_columns(j, n, load_run(j, j->data + (off + row) * z, n, si, buffer), r, j->acc + to, j->index ? j->index + to : NULL, m, spare);
    }
  }
}

static bool ordered(sc_reduce_kind k) { return k == SC_RED_ARGMAX || k == SC_RED_ARGMIN; }

static void describe(job *j, const sc_tensor *x, const bool *mask) {
  j->kept.n = j->red.n = 0;
  j->n = 1;
  j->outputs = 1;
  for (int i = 0; i < x->ndim; i++) {
    dims *d = mask[i] ? &j->red : &j->kept;
    *(mask[i] ? &j->n : &j->outputs) *= x->dim[i];
    d->dim[d->n] = x->dim[i];
    d->stride[d->n++] = sc__stride(x)[i];
  }
  if (!ordered(j->kind)) by_stride(&j->red);
  merge(&j->red);
  merge(&j->kept);
}

static bool in_columns(const job *j) {
  if (j->kept.n == 0 || j->red.n == 0) return false;
  int64_t size = j->kept.dim[j->kept.n - 1], stride = j->kept.stride[j->kept.n - 1];
  return size >= FEW_COLUMNS && stride < j->red.stride[j->red.n - 1];
}

static double cost_of(sc_reduce_kind k) { return k == SC_RED_POWER ? 20 : k == SC_RED_EXP ? 0.7 : 0.15; }

/* Joins the spans of each output into acc and index. */
static void join_spans(const job *j, bool columns, int64_t *acc, int64_t *index) {
  int64_t inner = columns ? j->inner : 1;
  for (int64_t k = 0; k < j->outputs; k++) {
    int64_t first = k / inner * j->spans * inner + k % inner;
    acc[k] = j->acc[first];
    if (index) index[k] = j->index[first];
    for (int64_t s = 1; s < j->spans; s++)
      join(j, &acc[k], &j->acc[first + s * inner], index ? &index[k] : NULL, index ? &j->index[first + s * inner] : NULL);
  }
}

sc_status sc__reduce(sc_context *ctx, sc_reduce_kind kind, const sc_tensor *x, const bool *mask, void *acc, int64_t *index,
                     const double *m, double p) {
  job j;
  j.kind = kind;
  j.dtype = (sc_dtype)x->dtype;
  j.ctype = j.dtype == SC_FLOAT64 ? SC_FLOAT64 : sc__is_float(j.dtype) ? SC_FLOAT32 : SC_INT64;
  j.direct = j.dtype == j.ctype;
  j.flip = j.dtype == SC_UINT64 && (kind == SC_RED_MAX || kind == SC_RED_MIN || ordered(kind));
  const sc_reduce_table *t = sc__reduce_table(ctx->isa);
  j.loops = j.ctype == SC_FLOAT64 ? t->f64 : j.ctype == SC_FLOAT32 ? t->f32 : t->i64;
  j.data = x->data;
  j.p = p;
  j.m = m;
  j.acc = acc;
  j.index = index;
  describe(&j, x, mask);
  if (j.outputs == 0) return SC_OK;
  if (j.n == 0) {
    for (int64_t k = 0; k < j.outputs; k++) j.acc[k] = neutral(&j);
    return SC_OK;
  }
  bool columns = in_columns(&j);
  j.inner = columns ? j.kept.dim[j.kept.n - 1] : 1;
  int64_t width = j.inner < COLUMNS ? j.inner : COLUMNS;
  j.span = columns ? SPAN / (width < 256 ? width : 256) : SPAN;
  j.spans = (j.n + j.span - 1) / j.span;
  int64_t cells = j.outputs * j.spans;
  j.plain = j.direct && !j.flip && j.loops->row[kind] && kind != SC_RED_EXP && j.n <= TILE && j.kept.n <= 1 &&
            (j.red.n == 0 || (j.red.n == 1 && j.red.stride[0] == 1));
  size_t bytes = (size_t)cells * (index ? 16 : 8);
  if (j.spans > 1) {
    j.acc = sc__alloc(ctx, bytes);
    if (!j.acc) return sc__no_memory(ctx, bytes);
    if (index) j.index = j.acc + cells;
  }
  if (columns) {
    int64_t units = j.outputs / j.inner * ((j.inner + COLUMNS - 1) / COLUMNS) * j.spans;
    sc__parallel(ctx, units, 1, cost_of(kind) * (double)width * (double)(j.n < j.span ? j.n : j.span), run_columns, &j);
  } else {
    sc__parallel(ctx, cells, 1, cost_of(kind) * (double)(j.n < j.span ? j.n : j.span) + 10, run_rows, &j);
  }
  if (j.spans > 1) {
    join_spans(&j, columns, acc, index);
    sc__release(ctx, j.acc, bytes);
  }
  if (j.flip) flip_order(j.outputs, acc);
  return SC_OK;
}
