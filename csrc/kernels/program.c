/* Tile programs: chains of pointwise ops, and reductions over the last dims, run tile by tile, so that intermediate values never leave
** the L1 cache. An eager op is a program of one instruction.
**
** The space is walked in row-major order. Dims of one are dropped and dims that run on are merged. Then a tile is
**   linear   so many elements, when every operand is packed in that order or one value for all;
**   rows     a piece of a row, when rows are long enough to be runs of their own; so row and column broadcasts need no copy;
**   folded   a number of whole rows, when the program reduces: a reduction gives a value a row, later instructions take it as that;
**   gathered so many elements, copied into order first, when rows are short.
** An input is, in this order of preference: the memory itself, one value, or a copy converted into a buffer. Results live in *registers*,
** buffers of a tile each that are given again as soon as nobody reads them; what leaves the program is computed in its place.
**
** Bits do not depend on how a space is cut: pointwise loops give an element the same whatever its neighbours, and a reduction sees whole
** rows, in the blocks of kernels/reduce.c. */
#include "reduce.h"

#include <string.h>

enum { TILE = 2048, SHORT_ROW = 48, MAX_IN = SC_PROGRAM_INPUTS, FOLD_BLOCK = 4096, CACHE = 25 * 1024, MOST_STACK = 112 * 1024, MOST_VALUES = MAX_IN + SC_PROGRAM_INSTRS };

#define SC_PW_ROW(name_, arity_, rule_, flags_, types_, isa_, cost_, ...) \
  [SC_PW_##name_] = {.name = #name_, .id = SC_PW_##name_, .arity = arity_, .rule = SC_PW_##rule_, \
                      .flags = (flags_) | (SC_PW_##rule_ == SC_PW_PICK ? SC_PW_COND : 0), .cost = cost_},
const sc_pw sc__pw[SC_PW_COUNT] = {
#include "pointwise_table.h"
};
#undef SC_PW_ROW

typedef void (*chain_fn)(int64_t n, float *d, const float *a, bool one, int n_links, const sc_link *links);
void sc__chain_base(int64_t n, float *d, const float *a, bool one, int n_links, const sc_link *links);
extern const sc_pw_kernels sc__pw_kernels_base[SC_PW_COUNT];
#if defined(__x86_64__)
extern const sc_pw_kernels sc__pw_kernels_avx2[SC_PW_COUNT], sc__pw_kernels_avx512[SC_PW_COUNT];
void sc__chain_avx2(int64_t n, float *d, const float *a, bool one, int n_links, const sc_link *links);
void sc__chain_avx512(int64_t n, float *d, const float *a, bool one, int n_links, const sc_link *links);
#endif

static chain_fn chain_kernel(sc_isa isa) {
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) return sc__chain_avx512;
  if (isa == SC_ISA_AVX2) return sc__chain_avx2;
#endif
  (void)isa;
  return sc__chain_base;
}

static sc_pw_fn pick(const sc_pw_kernels *k, sc_ctype type) {
  switch (type) {
    case SC_C_F32: return k->f32;
    case SC_C_F64: return k->f64;
    case SC_C_U64: return k->u64;
    case SC_C_BOOL: return k->b8;
    default: return k->i64;
  }
}

sc_pw_fn sc__pw_kernel(sc_isa isa, int id, sc_ctype type) {
  sc_pw_fn f = NULL;
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) f = pick(&sc__pw_kernels_avx512[id], type);
  else if (isa == SC_ISA_AVX2) f = pick(&sc__pw_kernels_avx2[id], type);
#else
  (void)isa;
#endif
#if defined(__x86_64__)
  if (!f && isa == SC_ISA_AVX512) f = pick(&sc__pw_kernels_avx2[id], type);      /* integers are stamped there */
#endif
  return f ? f : pick(&sc__pw_kernels_base[id], type);
}

sc_pw_fn sc__pw_packed_kernel(sc_isa isa, int id, sc_dtype dtype) {
  const sc_pw_kernels *k = &sc__pw_kernels_base[id];
#if defined(__x86_64__)
  if (isa != SC_ISA_BASE) k = &sc__pw_kernels_avx2[id];
#else
  (void)isa;
#endif
  switch (dtype) {
    case SC_INT8: return k->i8;
    case SC_UINT8: return k->u8;
    case SC_INT16: return k->i16;
    case SC_INT32: return k->i32;
    default: return NULL;
  }
}

sc_dtype sc__ctype_dtype(sc_ctype c) {
  static const sc_dtype d[SC_CTYPES] = {SC_FLOAT32, SC_FLOAT64, SC_INT64, SC_UINT64, SC_BOOL};
  return d[c];
}

/* ---- a program over a space ---- */

typedef enum way { LINEAR, ROWS, FOLDED, GATHERED } way;
typedef enum input_kind { ONE, HERE, COPY } input_kind;      /* one value; memory itself; through a buffer */

/* Where an instruction's result goes: a register, or (out >= 0) an output's memory. skip: it is a link of a chain that ends later; links:
** it ends a chain, whose links are from[0] … and whose first value is that of `acc`. */
typedef struct place { int8_t out; bool whole, skip; uint8_t size, links, from, acc; int32_t at; } place;
typedef struct link_at { uint8_t kind, source; } link_at;

struct sc_tiles {
  const sc_program *p;
  const sc_reduce_table *fold;
  sc_tensor *const *in, *const *out;
  int n_out;
  uint8_t result[SC_PROGRAM_OUTPUTS];
  way how;
  int nd;
  int64_t *dim, *os, *is;                         /* [nd], [nd], [n_in][room]; os of the one output that may be strided */
  int room;
  int64_t total, inner, tile, per;                /* inner: elements of a row; tile: of a tile; per: FOLDED: rows of a tile */
  int64_t units;
  uint8_t kind[MAX_IN], size[MOST_VALUES];
  bool rowwise[MAX_IN], linear[MAX_IN];           /* one value a row; packed in the order of the walk */
  int32_t buffer[MAX_IN];
  place at[SC_PROGRAM_INSTRS];
  link_at link[SC_PROGRAM_INSTRS];
  chain_fn chain;
  bool tiny, fixed[MAX_IN];                       /* tiny: one tile, nothing but packed operands and loops; fixed: numbers, in single */
  int64_t step[MOST_VALUES];                      /* of tiny */
  char single[MAX_IN][8];
  bool straight;                                  /* sc__program_run: results are computed in the output's memory */
  int64_t stack;                                  /* bytes of registers and buffers */
  size_t bytes;                                   /* of this allocation */
};

#define STRIDE(s, k) ((s)->is + (int64_t)(k) * (s)->room)

/* Drops dims of one, merges those that run on in every operand, but none across the border to the last `fold`. -> dims of rows */
static int collapse(sc_tiles *s, int nd, int fold, const int64_t *dim, const int64_t *os, int64_t *const *is) {
  int n = 0, border = 0, n_in = s->p->n_in;
  for (int i = 0; i < nd; i++) {
    if (i == nd - fold) border = n;
    if (dim[i] == 1) continue;
    bool merge = n > border && s->os[n - 1] == os[i] * dim[i];
    for (int k = 0; k < n_in && merge; k++) merge = STRIDE(s, k)[n - 1] == is[k][i] * dim[i];
    int at = merge ? n - 1 : n++;
    s->dim[at] = merge ? s->dim[at] * dim[i] : dim[i];
    s->os[at] = os[i];
    for (int k = 0; k < n_in; k++) STRIDE(s, k)[at] = is[k][i];
  }
  if (fold == 0) border = n;
  if (n == 0 || (fold && n == border)) {             /* a row of one */
    s->dim[n] = s->os[n] = 1;
    for (int k = 0; k < n_in; k++) STRIDE(s, k)[n] = 0;
    n++;
  }
  s->nd = n;
  return border;
}

static bool packed(const sc_tiles *s, const int64_t *stride) {
  int64_t expect = 1;
  for (int i = s->nd - 1; i >= 0; i--) {
    if (s->dim[i] != 1 && stride[i] != expect) return false;
    expect *= s->dim[i];
  }
  return true;
}

/* ---- walking ---- */

/* Walks [begin, begin + n) of the space in row-major order, copying one operand into (or out of) a packed buffer. */
static void gather(const sc_tiles *s, const int64_t *stride, sc_dtype dtype, char *data, int64_t begin, int64_t n, sc_dtype btype,
                   void *buffer, bool store) {
  int last = s->nd - 1;
  int64_t index[SC_MAX_DIMS + 1], rest = begin, off = 0, z = (int64_t)sc_dtype_size(dtype), bz = (int64_t)sc_dtype_size(btype);
  for (int i = last; i >= 0; i--) {
    index[i] = rest % s->dim[i];
    rest /= s->dim[i];
    off += index[i] * stride[i];
  }
  char *b = buffer;
  while (n > 0) {
    int64_t run = s->dim[last] - index[last];
    if (run > n) run = n;
    if (store) sc__convert(run, dtype, data + off * z, stride[last], btype, b, 1);
    else sc__convert(run, btype, b, 1, dtype, data + off * z, stride[last]);
    b += run * bz;
    n -= run;
    off += run * stride[last];
    index[last] += run;
    for (int i = last; i > 0 && index[i] == s->dim[i]; i--) {
      off += stride[i - 1] - stride[i] * s->dim[i];
      index[i] = 0;
      index[i - 1]++;
    }
  }
}

/* The values of a tile of r rows of c elements: where they are, elements apart within a row and from row to row. */
typedef struct values { const char *ptr[MOST_VALUES]; int64_t step[MOST_VALUES], rows[MOST_VALUES]; char *scratch; } values;

static sc_ctype type_of(const sc_program *p, int source) {
  return (sc_ctype)(source < p->n_in ? p->in_type[source] : p->instr[source - p->n_in].type);
}

static void fold_rows(const sc_tiles *s, const sc_instr *q, values *v, char *d, int64_t r, int64_t c) {
  int source = q->src[0];
  sc_ctype type = type_of(s->p, source);
  const sc_reduce_loops *l = type == SC_C_F64 ? s->fold->f64 : s->fold->f32;
  int64_t z = s->size[source], dz = s->size[s->p->n_in + (q - s->p->instr)];
  for (int64_t i = 0; i < r; i++) {
    const char *x = v->ptr[source] + i * v->rows[source] * z;
    double acc;
    sc__reduce_neutral((sc_reduce_kind)q->fold, false, &acc);
    for (int64_t at = 0; at < c; at += FOLD_BLOCK) l->row[q->fold](c - at < FOLD_BLOCK ? c - at : FOLD_BLOCK, x + at * z, &acc, 0);
    if (q->finish) acc = q->finish(acc, q->arg);
    sc_dtype through = (sc_dtype)q->through, want = sc__ctype_dtype((sc_ctype)q->type);
    if (through == want) {
      if (through == SC_FLOAT32) *(float *)(d + i * dz) = (float)acc; else *(double *)(d + i * dz) = acc;
    } else {
      char half[8];
      sc__convert(1, through, half, 1, SC_FLOAT64, &acc, 1);
      sc__convert(1, want, d + i * dz, 1, through, half, 1);
    }
  }
}

/* n results from operands at ptr, step elements apart. */
static void point(const sc_program *p, const sc_instr *q, char *d, int64_t n, const char *const *ptr, const int64_t *step) {
  if (q->fn) {
    q->fn(n, d, ptr[0], step[0], ptr[1], step[1], ptr[2], step[2], q->p);
  } else if (q->kind == SC_I_ROUND) {
    sc_dtype from = sc__ctype_dtype(type_of(p, q->src[0])), to = sc__ctype_dtype((sc_ctype)q->type), through = (sc_dtype)q->through;
    char tile[256 * 8];
    int64_t z = (int64_t)sc_dtype_size(from), dz = (int64_t)sc_dtype_size(to);
    for (int64_t at = 0; at < n; at += 256) {
      int64_t m = n - at < 256 ? n - at : 256;
      sc__convert(m, through, tile, 1, from, ptr[0] + at * step[0] * z, step[0]);
      sc__convert(m, to, d + at * dz, 1, through, tile, 1);
    }
  } else {
    sc__convert(n, sc__ctype_dtype((sc_ctype)q->type), d, 1, sc__ctype_dtype(type_of(p, q->src[0])), ptr[0], step[0]);
  }
}

/* The chain that ends at w. */
static void run_chain(const sc_tiles *s, const place *w, const values *v, char *d, int64_t r, int64_t c) {
  sc_link links[SC_LINKS];
  int64_t runs = w->whole ? 1 : r, n = w->whole ? r * c : c;
  for (int64_t i = 0; i < runs; i++) {
    for (int k = 0; k < w->links; k++) {
      const link_at *l = &s->link[w->from + k];
      bool alone = l->kind >= SC_LINK_NEG;
      links[k].op = 2 * l->kind + (!alone && v->step[l->source] == 0);
      links[k].p = alone ? NULL : (const float *)v->ptr[l->source] + i * v->rows[l->source];
    }
    s->chain(n, (float *)d + i * c, (const float *)v->ptr[w->acc] + i * v->rows[w->acc], v->step[w->acc] == 0, w->links, links);
  }
}

/* The instructions over one tile whose inputs are at hand. to[i]: where output i's part of this tile is. */
static void execute(const sc_tiles *s, values *v, int64_t r, int64_t c, char *const *to) {
  const sc_program *p = s->p;
  for (int k = 0; k < p->n_instr; k++) {
    const sc_instr *q = &p->instr[k];
    const place *w = &s->at[k];
    int me = p->n_in + k;
    char *d = w->out >= 0 ? to[w->out] : v->scratch + w->at;
    const char *ptr[3] = {NULL, NULL, NULL};
    int64_t step[3] = {0, 0, 0};
    v->ptr[me] = d;
    if (w->skip) continue;
    if (w->links) {
      run_chain(s, w, v, d, r, c);
    } else if (q->kind == SC_I_FOLD) {
      fold_rows(s, q, v, d, r, c);
    } else if (q->row) {
      for (int i = 0; i < q->arity; i++) { ptr[i] = v->ptr[q->src[i]]; step[i] = v->rows[q->src[i]]; }
      point(p, q, d, r, ptr, step);
    } else if (r == 1 || w->whole) {
      for (int i = 0; i < q->arity; i++) { ptr[i] = v->ptr[q->src[i]]; step[i] = v->step[q->src[i]]; }
      point(p, q, d, r * c, ptr, step);
    } else {
      for (int64_t i = 0; i < r; i++) {
        for (int m = 0; m < q->arity; m++) {
          int source = q->src[m];
          ptr[m] = v->ptr[source] + i * v->rows[source] * s->size[source];
          step[m] = v->step[source];
        }
        point(p, q, d + i * c * w->size, c, ptr, step);
      }
    }
    if (q->row) { v->step[me] = 0; v->rows[me] = 1; } else { v->step[me] = 1; v->rows[me] = c; }
  }
}

/* Input k of a tile of r rows of c elements that begins at src. */
static void load(const sc_tiles *s, values *v, int k, const char *src, int64_t step, int64_t rows, int64_t r, int64_t c) {
  v->step[k] = step;
  v->rows[k] = rows;
  if (s->kind[k] == HERE) { v->ptr[k] = src; return; }
  const sc_tensor *t = s->in[k];
  sc_dtype want = sc__ctype_dtype((sc_ctype)s->p->in_type[k]);
  int64_t z = (int64_t)sc_dtype_size((sc_dtype)t->dtype);
  char *b = v->scratch + s->buffer[k];
  v->ptr[k] = b;
  if (step == 0) {                                   /* one value a row */
    sc__convert(r, want, b, 1, (sc_dtype)t->dtype, src, r > 1 ? rows : 1);
    v->rows[k] = 1;
    return;
  }
  for (int64_t i = 0; i < r; i++) sc__convert(c, want, b + i * c * s->size[k], 1, (sc_dtype)t->dtype, src + i * rows * z, step);
  v->step[k] = 1;
  v->rows[k] = c;
}

/* The stores of sc__program_run's only output, which may be strided and of another dtype. */
static void store(const sc_tiles *s, const values *v, int64_t at, int64_t n, char *dst) {
  if (s->straight) return;
  int last = s->p->n_instr - 1;
  sc_tensor *out = s->out[0];
  sc_dtype from = sc__ctype_dtype((sc_ctype)s->p->instr[last].type);
  const char *b = v->ptr[s->p->n_in + last];
  if (s->how == GATHERED) gather(s, s->os, (sc_dtype)out->dtype, out->data, at, n, from, (void *)(uintptr_t)b, true);
  else sc__convert(n, (sc_dtype)out->dtype, dst, s->how == ROWS ? s->os[s->nd - 1] : 1, from, b, 1);
}

/* Likewise of a prepared program: outputs that are not of the type they are computed in. Elements from `at`, rows from `row` on. */
static void store_all(const sc_tiles *s, const values *v, int64_t at, int64_t n, int64_t row, int64_t r) {
  for (int i = 0; i < s->n_out; i++) {
    int k = s->result[i];
    if (s->at[k].out == i) continue;
    const sc_instr *q = &s->p->instr[k];
    sc_dtype to = (sc_dtype)s->out[i]->dtype;
    int64_t begin = q->row ? row : at;
    sc__convert(q->row ? r : n, to, s->out[i]->data + begin * (int64_t)sc_dtype_size(to), 1, sc__ctype_dtype((sc_ctype)q->type),
                v->ptr[s->p->n_in + k], 1);
  }
}

static void begin(const sc_tiles *s, values *v, char *scratch, char (*single)[8]) {
  const sc_program *p = s->p;
  v->scratch = scratch;
  for (int k = 0; k < p->n_in; k++) {
    if (s->kind[k] != ONE) continue;
    v->step[k] = v->rows[k] = 0;
    if (s->fixed[k]) { v->ptr[k] = s->single[k]; continue; }
    sc_dtype want = sc__ctype_dtype((sc_ctype)p->in_type[k]);
    const sc_tensor *t = s->in[k];
    v->ptr[k] = t->data;
    if ((sc_dtype)t->dtype != want) { sc__convert(1, want, single[k], 1, (sc_dtype)t->dtype, t->data, 1); v->ptr[k] = single[k]; }
  }
}

static void run_linear(void *arg, int64_t from, int64_t end) {
  const sc_tiles *s = arg;
  const sc_program *p = s->p;
  _Alignas(64) char scratch[s->stack];
  char single[MAX_IN][8], *to[SC_PROGRAM_OUTPUTS];
  values v;
  begin(s, &v, scratch, single);
  for (int64_t u = from; u < end; u++) {
    int64_t at = u * s->tile, n = s->total - at < s->tile ? s->total - at : s->tile;
    for (int k = 0; k < p->n_in; k++) {
      if (s->kind[k] == ONE) continue;
      const sc_tensor *t = s->in[k];
      if (s->linear[k]) {
        load(s, &v, k, t->data + at * (int64_t)sc_dtype_size((sc_dtype)t->dtype), 1, n, 1, n);
      } else {
        gather(s, STRIDE(s, k), (sc_dtype)t->dtype, t->data, at, n, sc__ctype_dtype((sc_ctype)p->in_type[k]), scratch + s->buffer[k], false);
        v.ptr[k] = scratch + s->buffer[k];
        v.step[k] = 1;
      }
    }
    for (int i = 0; i < s->n_out; i++) to[i] = s->out[i]->data + at * (int64_t)sc_dtype_size((sc_dtype)s->out[i]->dtype);
    execute(s, &v, 1, n, to);
    if (s->os) store(s, &v, at, n, to[0]); else store_all(s, &v, at, n, 0, 0);
  }
}

/* Offsets, in elements, of a row given by its number over the first nd dims. */
static void offsets(const sc_tiles *s, int nd, int64_t row, int64_t *in, int64_t *out) {
  for (int i = nd - 1; i >= 0 && row; i--) {
    int64_t x = row % s->dim[i];
    row /= s->dim[i];
    for (int k = 0; k < s->p->n_in; k++) in[k] += x * STRIDE(s, k)[i];
    if (s->os) *out += x * s->os[i];
  }
}

static void run_rows(void *arg, int64_t from, int64_t end) {
  const sc_tiles *s = arg;
  const sc_program *p = s->p;
  _Alignas(64) char scratch[s->stack];
  char single[MAX_IN][8], *to[SC_PROGRAM_OUTPUTS];
  values v;
  begin(s, &v, scratch, single);
  int last = s->nd - 1;
  for (int64_t u = from; u < end; u++) {
    int64_t off[MAX_IN] = {0}, out_off = 0;
    offsets(s, last, u, off, &out_off);
    for (int64_t at = 0; at < s->inner; at += s->tile) {
      int64_t n = s->inner - at < s->tile ? s->inner - at : s->tile;
      for (int k = 0; k < p->n_in; k++) {
        if (s->kind[k] == ONE) continue;
        const sc_tensor *t = s->in[k];
        int64_t step = STRIDE(s, k)[last];
        load(s, &v, k, t->data + (off[k] + at * step) * (int64_t)sc_dtype_size((sc_dtype)t->dtype), step, 0, 1, n);
      }
      int64_t base = s->os ? out_off + at * s->os[last] : u * s->inner + at;
      for (int i = 0; i < s->n_out; i++) to[i] = s->out[i]->data + base * (int64_t)sc_dtype_size((sc_dtype)s->out[i]->dtype);
      execute(s, &v, 1, n, to);
      if (s->os) store(s, &v, 0, n, to[0]); else store_all(s, &v, base, n, 0, 0);
    }
  }
}

/* A program of one loop whose operands and result all lie ready, as most eager ops are: nothing but calls of the loop. */
static bool is_bare(const sc_tiles *s) {
  bool bare = s->p->n_instr == 1 && s->p->instr[0].fn && s->at[0].out == 0 && s->how <= ROWS && s->n_out == 1;
  for (int k = 0; k < s->p->n_in; k++) bare = bare && s->kind[k] != COPY && (s->how == ROWS || s->kind[k] == ONE || s->linear[k]);
  return bare;
}

static void run_bare(void *arg, int64_t from, int64_t end) {
  const sc_tiles *s = arg;
  const sc_instr *q = &s->p->instr[0];
  int last = s->nd - 1;
  bool rows = s->how == ROWS;
  char single[MAX_IN][8], scratch[1], *d = s->out[0]->data;
  values v;
  int64_t index[SC_MAX_DIMS + 1], off[MAX_IN] = {0}, out_off = 0, z = (int64_t)s->at[0].size;
  begin(s, &v, scratch, single);
  if (rows) offsets(s, last, from, off, &out_off);
  for (int64_t i = last - 1, rest = from; rows && i >= 0; i--) { index[i] = rest % s->dim[i]; rest /= s->dim[i]; }
  for (int64_t u = from; u < end; u++) {
    int64_t n = rows ? s->inner : s->total - u * s->tile < s->tile ? s->total - u * s->tile : s->tile;
    char *to = d + (s->os && rows ? out_off : rows ? u * s->inner : u * s->tile) * z;
    const char *ptr[3] = {NULL, NULL, NULL};
    int64_t step[3] = {0, 0, 0};
    for (int i = 0; i < q->arity; i++) {
      int k = q->src[i];
      step[i] = s->kind[k] == ONE ? 0 : rows ? STRIDE(s, k)[last] : 1;
      ptr[i] = s->kind[k] == ONE ? v.ptr[k] : s->in[k]->data + (rows ? off[k] : u * s->tile) * s->size[k];
    }
    q->fn(n, to, ptr[0], step[0], ptr[1], step[1], ptr[2], step[2], q->p);
    for (int i = last - 1; rows && i >= 0; i--) {    /* on to the next row */
      bool carry = ++index[i] == s->dim[i];
      int64_t by = carry ? 1 - s->dim[i] : 1;
      for (int k = 0; k < s->p->n_in; k++) off[k] += by * STRIDE(s, k)[i];
      if (s->os) out_off += by * s->os[i];
      if (!carry) break;
      index[i] = 0;
    }
  }
}

/* Units: (index over all dims but the last two, a chunk of rows). */
static void run_folded(void *arg, int64_t from, int64_t end) {
  const sc_tiles *s = arg;
  const sc_program *p = s->p;
  _Alignas(64) char scratch[s->stack];
  char single[MAX_IN][8], *to[SC_PROGRAM_OUTPUTS];
  values v;
  begin(s, &v, scratch, single);
  int last = s->nd - 1;
  int64_t rows = last > 0 ? s->dim[last - 1] : 1, chunks = (rows + s->per - 1) / s->per;
  for (int64_t u = from; u < end; u++) {
    int64_t off[MAX_IN] = {0}, first = u % chunks * s->per, r = rows - first < s->per ? rows - first : s->per, row = u / chunks * rows + first;
    offsets(s, last - 1, u / chunks, off, NULL);
    for (int k = 0; k < p->n_in; k++) {
      if (s->kind[k] == ONE) continue;
      const sc_tensor *t = s->in[k];
      int64_t step = STRIDE(s, k)[last], apart = last > 0 ? STRIDE(s, k)[last - 1] : 0;
      load(s, &v, k, t->data + (off[k] + first * apart) * (int64_t)sc_dtype_size((sc_dtype)t->dtype), step, apart, r, s->inner);
    }
    for (int i = 0; i < s->n_out; i++) {
      int64_t at = p->instr[s->result[i]].row ? row : row * s->inner;
      to[i] = s->out[i]->data + at * (int64_t)sc_dtype_size((sc_dtype)s->out[i]->dtype);
    }
    execute(s, &v, r, s->inner, to);
    store_all(s, &v, row * s->inner, r * s->inner, row, r);
  }
}

/* ---- making ready ---- */

/* Chooses the way and the size of tiles. rows: dims before those that are folded. false: too large a row for one. */
static bool choose(sc_tiles *s, bool folds, int rows) {
  const sc_program *p = s->p;
  bool all_linear = !s->os || packed(s, s->os);
  int64_t widest = 0;
  s->inner = s->dim[s->nd - 1];
  s->total = 1;
  for (int i = 0; i < s->nd; i++) s->total *= s->dim[i];
  for (int k = 0; k < p->n_in; k++) {
    const int64_t *stride = STRIDE(s, k);
    bool one = true;
    for (int i = 0; i < s->nd; i++) one = one && (stride[i] == 0 || s->dim[i] == 1);
    bool direct = sc__ctype_dtype((sc_ctype)p->in_type[k]) == (sc_dtype)s->in[k]->dtype;
    s->kind[k] = one ? ONE : direct ? HERE : COPY;
    s->rowwise[k] = !one && stride[s->nd - 1] == 0;
    s->size[k] = (uint8_t)sc__ctype_size((sc_ctype)p->in_type[k]);
    s->linear[k] = packed(s, stride);
    all_linear = all_linear && (one || s->linear[k]);
    widest += one ? 0 : s->size[k];
  }
  s->tile = TILE;
  s->per = 1;
  if (folds) {
    s->how = FOLDED;
    if (s->nd - rows > 1) return false;              /* rows that do not run on */
    int64_t most = CACHE / 2 / (widest ? widest : 4);
    s->per = s->inner < most ? most / s->inner : 1;
    int64_t have = s->nd > 1 ? s->dim[s->nd - 2] : 1;
    if (s->per > have) s->per = have;
    s->tile = s->per * s->inner;
    s->units = s->total / (s->inner * have) * ((have + s->per - 1) / s->per);
  } else if (all_linear) {
    s->how = LINEAR;
  } else if (s->inner >= SHORT_ROW) {
    s->how = ROWS;
    s->units = s->total / s->inner;
  } else {
    s->how = GATHERED;
    for (int k = 0; k < p->n_in; k++) if (s->kind[k] == HERE && !s->linear[k]) s->kind[k] = COPY;
  }
  return true;
}

/* Registers: offsets for results and buffers, given again when the last reader has run. false: they do not fit the stack. */
static bool assign(sc_tiles *s) {
  const sc_program *p = s->p;
  int last[SC_PROGRAM_INSTRS], n_free[9] = {0};
  int32_t free_at[9][SC_PROGRAM_INSTRS];
  int64_t at = 0, length = s->how == FOLDED ? s->per * s->inner : s->tile;
  for (int k = 0; k < p->n_instr; k++) {
    last[k] = k;
    s->at[k].out = -1;
    s->at[k].size = (uint8_t)sc__ctype_size((sc_ctype)p->instr[k].type);
    s->size[p->n_in + k] = s->at[k].size;
    for (int i = 0; i < p->instr[k].arity; i++) if (p->instr[k].src[i] >= p->n_in) last[p->instr[k].src[i] - p->n_in] = k;
  }
  for (int k = 0; k < p->n_instr && s->chain; k++)
    for (int i = -1; i < s->at[k].links; i++) {      /* links read when their chain ends */
      int source = i < 0 ? s->at[k].acc : s->link[s->at[k].from + i].source;
      if (s->at[k].links && source >= p->n_in && last[source - p->n_in] < k) last[source - p->n_in] = k;
    }
  for (int i = 0; i < s->n_out; i++) {
    int k = s->result[i];
    last[k] = p->n_instr;
    bool direct = sc__ctype_dtype((sc_ctype)p->instr[k].type) == (sc_dtype)s->out[i]->dtype;
    if (direct && (!s->os || s->straight) && s->at[k].out < 0) s->at[k].out = (int8_t)i;
  }
  for (int k = 0; k < p->n_in; k++) {
    s->buffer[k] = (int32_t)at;
    if (s->kind[k] == COPY) at += ((s->rowwise[k] && s->how != GATHERED ? s->per : length) * s->size[k] + 63) / 64 * 64;
  }
  for (int k = 0; k < p->n_instr; k++) {
    const sc_instr *q = &p->instr[k];
    int z = s->at[k].size;
    if (s->at[k].out < 0 && !s->at[k].skip) {
      if (q->row) { s->at[k].at = (int32_t)at; at += (s->per * z + 63) / 64 * 64; }
      else if (n_free[z]) s->at[k].at = free_at[z][--n_free[z]];
      else { s->at[k].at = (int32_t)at; at += (length * z + 63) / 64 * 64; }
    }
    for (int m = 0; m < k; m++) {                    /* what k was the last to read is free after it */
      const place *w = &s->at[m];
      if (last[m] == k && w->out < 0 && !w->skip && !p->instr[m].row) free_at[w->size][n_free[w->size]++] = w->at;
    }
    if (at > MOST_STACK) return false;
  }
  s->stack = at + 64;
  return at <= MOST_STACK;
}

/* Which instructions may take a folded tile as one run: all of their operands go on from row to row. */
static void find_whole(sc_tiles *s) {
  const sc_program *p = s->p;
  for (int k = 0; k < p->n_instr; k++) {
    bool whole = true;
    for (int i = 0; i < p->instr[k].arity; i++) {
      int source = p->instr[k].src[i];
      if (source >= p->n_in) { whole = whole && !p->instr[source - p->n_in].row; continue; }
      const int64_t *stride = STRIDE(s, source);
      if (s->kind[source] == ONE || (s->kind[source] == COPY && !s->rowwise[source])) continue;
      whole = whole && s->nd > 1 && stride[s->nd - 2] == stride[s->nd - 1] * s->inner;
    }
    s->at[k].whole = whole;
  }
  for (int k = p->n_instr; k-- > 0; )                  /* a chain is one run when all of its links are */
    for (int m = 0; m < p->n_instr && s->at[k].links; m++)
      if (s->at[m].skip && s->at[m].from == s->at[k].from) s->at[k].whole = s->at[k].whole && s->at[m].whole;
}

/* Whether a chain can read that value: float32, packed or one value. */
static bool chains(const sc_tiles *s, int source) {
  const sc_program *p = s->p;
  if (source >= p->n_in) return p->instr[source - p->n_in].type == SC_C_F32;
  if (p->in_type[source] != SC_C_F32) return false;
  int64_t step = STRIDE(s, source)[s->nd - 1];
  return s->kind[source] != HERE || step == 0 || step == 1;
}

static bool is_link(const sc_tiles *s, int k) {
  const sc_instr *q = &s->p->instr[k];
  if (!q->link || q->row || !q->fn || q->type != SC_C_F32) return false;
  for (int i = 0; i < q->arity; i++) if (!chains(s, q->src[i])) return false;
  return true;
}

/* Runs of arithmetic, each step of which only the next one reads, become chains. */
static void find_chains(sc_tiles *s) {
  const sc_program *p = s->p;
  static const uint8_t TURNED[] = {[SC_LINK_ADD] = SC_LINK_ADD, [SC_LINK_SUB] = SC_LINK_RSUB, [SC_LINK_RSUB] = SC_LINK_SUB,
                                   [SC_LINK_MUL] = SC_LINK_MUL, [SC_LINK_DIV] = SC_LINK_RDIV};
  int uses[SC_PROGRAM_INSTRS] = {0}, n = 0;
  for (int k = 0; k < p->n_instr; k++)
    for (int i = 0; i < p->instr[k].arity; i++) if (p->instr[k].src[i] >= p->n_in) uses[p->instr[k].src[i] - p->n_in]++;
  for (int i = 0; i < s->n_out; i++) uses[s->result[i]] += 2;
  for (int end = p->n_instr; end-- > 0; ) {
    if (s->at[end].skip || !is_link(s, end)) continue;
    link_at chain[SC_LINKS];
    int members[SC_LINKS], length = 0, at = end, acc;
    for (;;) {
      const sc_instr *q = &p->instr[at];
      int inner = -1;
      for (int i = 0; i < q->arity && inner < 0; i++) {
        int m = q->src[i] - p->n_in;
        if (m >= 0 && uses[m] == 1 && is_link(s, m)) inner = i;
      }
      int side = inner < 0 ? 0 : inner;
      chain[length] = (link_at){side ? TURNED[q->link] : q->link, q->arity > 1 ? q->src[1 - side] : q->src[side]};
      members[length++] = at;
      acc = q->src[side];
      if (inner < 0 || length == SC_LINKS) break;
      at = acc - p->n_in;
    }
    if (length < 2 || n + length > SC_PROGRAM_INSTRS) continue;
    for (int i = 0; i < length; i++) {
      s->link[n + i] = chain[length - 1 - i];
      s->at[members[i]].skip = i > 0;
      s->at[members[i]].from = (uint8_t)n;
    }
    s->at[end].links = (uint8_t)length;
    s->at[end].acc = (uint8_t)acc;
    n += length;
  }
}

/* Registers within the cache if tiles of some size allow it, with operands and results for the largest; within the stack in any case but
** for rows that are too long. */
static bool fit(sc_tiles *s) {
  if (s->how == FOLDED) return assign(s);
  int64_t wide = 0;                                    /* bytes of an element's operands and results */
  for (int k = 0; k < s->p->n_in; k++) if (s->kind[k] == HERE) wide += s->size[k];
  for (int i = 0; i < s->n_out; i++) wide += (int64_t)sc_dtype_size((sc_dtype)s->out[i]->dtype);
  while ((!assign(s) || s->stack + (s->tile == TILE ? s->tile * wide : 0) > CACHE) && s->tile > TILE / 16) s->tile /= 2;
  if (s->how != ROWS) s->units = (s->total + s->tile - 1) / s->tile;
  return true;
}

static void go(sc_context *ctx, const sc_tiles *s) {
  sc_range_fn fn = is_bare(s) ? run_bare : s->how == ROWS ? run_rows : s->how == FOLDED ? run_folded : run_linear;
  if (s->units == 1 || (ctx->threads <= 1 && !ctx->slice)) { fn((void *)(uintptr_t)s, 0, s->units); return; }
  double per = s->how == ROWS ? (double)s->inner : s->how == FOLDED ? (double)(s->inner * s->per) : (double)s->tile;
  sc__parallel(ctx, s->units, 1, s->p->cost * per, fn, (void *)(uintptr_t)s);
}

/* Numbers are converted once and for all. A small program over packed operands needs none of the walking. */
static void find_tiny(sc_tiles *s) {
  const sc_program *p = s->p;
  s->tiny = s->how == LINEAR && s->units == 1;
  for (int k = 0; k < p->n_in; k++) {
    const sc_tensor *t = s->in[k];
    if (s->kind[k] == ONE && t->flags & SC_T_WRAPPED && t->storage) {
      sc__convert(1, sc__ctype_dtype((sc_ctype)p->in_type[k]), s->single[k], 1, (sc_dtype)t->dtype, t->data, 1);
      s->fixed[k] = true;
    }
    bool direct = sc__ctype_dtype((sc_ctype)p->in_type[k]) == (sc_dtype)t->dtype;
    s->tiny = s->tiny && (s->fixed[k] || (s->kind[k] != COPY && direct));
    s->step[k] = s->kind[k] != ONE;
  }
  for (int k = 0; k < p->n_instr; k++) {
    s->tiny = s->tiny && p->instr[k].fn;
    s->step[p->n_in + k] = 1;
  }
  for (int i = 0; i < s->n_out; i++) s->tiny = s->tiny && s->at[s->result[i]].out == i;
}

static void run_tiny(const sc_tiles *s) {
  const sc_program *p = s->p;
  _Alignas(64) char scratch[s->stack];
  values v;
  int n_in = p->n_in;
  v.scratch = scratch;
  for (int k = 0; k < n_in; k++) v.ptr[k] = s->fixed[k] ? s->single[k] : s->in[k]->data;
  for (int k = 0; k < p->n_instr; k++) {
    const sc_instr *q = &p->instr[k];
    const place *w = &s->at[k];
    char *d = w->out >= 0 ? s->out[w->out]->data : scratch + w->at;
    v.ptr[n_in + k] = d;
    int a = q->src[0], b = q->src[1], c = q->src[2];
    if (w->skip) continue;
    if (!w->links) { q->fn(s->total, d, v.ptr[a], s->step[a], v.ptr[b], s->step[b], v.ptr[c], s->step[c], q->p); continue; }
    sc_link links[SC_LINKS];
    for (int i = 0; i < w->links; i++) {
      const link_at *l = &s->link[w->from + i];
      bool alone = l->kind >= SC_LINK_NEG;
      links[i] = (sc_link){alone ? NULL : (const float *)v.ptr[l->source], 2 * l->kind + (!alone && s->step[l->source] == 0)};
    }
    s->chain(s->total, (float *)d, (const float *)v.ptr[w->acc], s->step[w->acc] == 0, w->links, links);
  }
}

/* One packed op over few elements: at once. */
static bool at_once(const sc_program *p, sc_tensor *out, sc_tensor *const *in) {
  const sc_instr *q = &p->instr[0];
  int64_t total = out->numel;
  const void *ptr[3] = {0};
  int64_t step[3] = {0};
  _Alignas(8) char single[3][8];
  for (int k = 0; k < p->n_in; k++) {
    const sc_tensor *t = in[q->src[k]];
    sc_dtype want = sc__ctype_dtype((sc_ctype)p->in_type[q->src[k]]);
    if (t->numel == 1) {
      ptr[k] = t->data;
      if ((sc_dtype)t->dtype != want) { sc__convert(1, want, single[k], 1, (sc_dtype)t->dtype, t->data, 1); ptr[k] = single[k]; }
    } else if (t->contiguous && t->numel == total && (sc_dtype)t->dtype == want) {
      ptr[k] = t->data;
      step[k] = 1;
    } else {
      return false;
    }
  }
  q->fn(total, out->data, ptr[0], step[0], ptr[1], step[1], ptr[2], step[2], q->p);
  return true;
}

void sc__program_run(sc_context *ctx, const sc_program *p, sc_tensor *out, sc_tensor *const *in) {
  if (out->numel == 0) return;
  sc_ctype type = (sc_ctype)p->instr[p->n_instr - 1].type;
  bool direct = sc__ctype_dtype(type) == (sc_dtype)out->dtype;
  if (p->n_instr == 1 && p->instr[0].fn && out->numel <= TILE * 8 && out->contiguous && direct && at_once(p, out, in)) return;
  int64_t aligned[MAX_IN][SC_MAX_DIMS], *is[MAX_IN], room[(MAX_IN + 2) * (SC_MAX_DIMS + 1)];
  for (int k = 0; k < p->n_in; k++) {
    is[k] = aligned[k];
    for (int i = 0; i < out->ndim; i++) {
      int d = i - (out->ndim - in[k]->ndim);
      is[k][i] = d < 0 || in[k]->dim[d] == 1 ? 0 : sc__stride(in[k])[d];
    }
  }
  sc_tiles s;
  s.p = p;
  s.in = in;
  s.out = &out;
  s.n_out = 1;
  s.result[0] = (uint8_t)(p->n_instr - 1);
  s.room = SC_MAX_DIMS + 1;
  s.dim = room;
  s.os = room + s.room;
  s.chain = NULL;
  memset(s.at, 0, (size_t)p->n_instr * sizeof s.at[0]);
  memset(s.fixed, 0, sizeof s.fixed);
  s.is = room + 2 * s.room;
  collapse(&s, out->ndim, 0, out->dim, sc__stride(out), is);
  choose(&s, false, 0);
  s.straight = direct && (s.how == ROWS ? s.os[s.nd - 1] == 1 : packed(&s, s.os));
  fit(&s);
  go(ctx, &s);
}

sc_status sc__tiles_new(sc_context *ctx, const sc_program *p, const sc_domain *space, sc_tensor *const *in, int n_out, sc_tensor *const *out,
                        const int *result, sc_tiles **t) {
  size_t code = offsetof(sc_program, instr) + (size_t)p->n_instr * sizeof p->instr[0];
  size_t room = (size_t)space->nd + 1, lists = (size_t)(p->n_in + n_out) * sizeof *in;
  size_t bytes = sizeof(sc_tiles) + code + lists + (size_t)(p->n_in + 1) * room * 8;
  int64_t os[SC_MAX_DIMS], kept[SC_MAX_DIMS + 1];
  int64_t *is[MAX_IN];
  *t = NULL;
  if (n_out > SC_PROGRAM_OUTPUTS) return SC_OK;
  sc_tiles *s = sc__alloc_zero(ctx, bytes);
  if (!s) return sc__no_memory(ctx, bytes);
  s->bytes = bytes;
  s->room = (int)room;
  s->dim = (int64_t *)(s + 1);
  s->is = s->dim + room;
  sc_tensor **list = (sc_tensor **)(s->is + (size_t)p->n_in * room);
  s->p = memcpy(list + p->n_in + n_out, p, code);
  s->in = memcpy(list, in, (size_t)p->n_in * sizeof *in);
  s->out = memcpy(list + p->n_in, out, (size_t)n_out * sizeof *out);
  s->n_out = n_out;
  for (int i = 0; i < n_out; i++) s->result[i] = (uint8_t)result[i];
  s->fold = sc__reduce_table(ctx->isa);
  sc__contiguous_strides(space->nd, space->dim, os);
  for (int k = 0; k < p->n_in; k++) is[k] = (int64_t *)(uintptr_t)space->is[k];
  s->os = kept;
  int rows = collapse(s, space->nd, space->fold, space->dim, os, is);
  s->os = NULL;                                        /* outputs are packed */
  if (!choose(s, space->fold > 0, rows)) { sc__tiles_free(ctx, s); return SC_OK; }
  s->chain = chain_kernel(ctx->isa);
  find_chains(s);
  if (!fit(s)) { sc__tiles_free(ctx, s); return SC_OK; }
  if (s->how == FOLDED) find_whole(s);
  find_tiny(s);
  *t = s;
  return SC_OK;
}

double sc__tiles_cost(const sc_tiles *t, bool *divided) {
  double ns = (double)t->total * t->p->cost;
  *divided = t->units > 1 && ns >= 200e3;
  return 100 + ns;
}

/* The last instruction that reads source k where it lies; -1: none does. */
static int last_reader(const sc_tiles *s, int k) {
  int last = -1;
  for (int i = 0; i < s->p->n_instr; i++) {
    const place *w = &s->at[i];
    for (int m = 0; m < s->p->instr[i].arity && !w->skip && !w->links; m++) if (s->p->instr[i].src[m] == k) last = i;
    if (w->links && w->acc == k) last = i;
    for (int m = 0; m < w->links; m++) {
      const link_at *l = &s->link[w->from + m];
      if (l->kind < SC_LINK_NEG && l->source == k) last = i;
    }
  }
  return last;
}

bool sc__tiles_over(const sc_tiles *s, const sc_tensor *out, const sc_tensor *in) {
  int o = 0;
  while (o < s->n_out && s->out[o] != out) o++;
  if (o == s->n_out || s->p->instr[s->result[o]].row || sc_dtype_size((sc_dtype)out->dtype) != sc_dtype_size((sc_dtype)in->dtype)) return false;
  int writer = s->result[o];
  const sc_instr *q = &s->p->instr[writer];
  bool direct = s->at[writer].out == o, beside = s->at[writer].links || q->fn;      /* the loop that writes may read that element, too */
  for (int k = 0; k < s->p->n_in; k++) {
    if (s->in[k] != in) continue;
    if (s->kind[k] == ONE || !s->linear[k]) return false;
    int last = s->kind[k] == HERE && direct ? last_reader(s, k) : -1;
    if (last > writer || (last == writer && !beside)) return false;
  }
  return true;
}

void sc__tiles_run(sc_context *ctx, const sc_tiles *t) {
  if (t->tiny) run_tiny(t);
  else if (t->total) go(ctx, t);
}

void sc__tiles_free(sc_context *ctx, sc_tiles *t) { if (t) sc__release(ctx, t, t->bytes); }
