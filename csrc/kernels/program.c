/* Tile programs: a chain of pointwise ops run tile by tile, so that intermediate values never leave the L1 cache. An eager op
** is a program of one instruction.
**
** The output's index space (with dims of one dropped and dims that run on merged) is walked in row-major order, 1024 elements
** at a time. For each tile an input is, in this order of preference: the memory itself (packed or strided, of the right type),
** one value, or a copy converted into a buffer. A row that is long enough is its own run of tiles, so that row and column
** broadcasts need no copy; short rows are gathered, several to a tile. */
#include "kernels.h"

#include <string.h>

enum { TILE = 1024, SHORT_ROW = 48, MAX_IN = SC_PROGRAM_INPUTS };

#define SC_PW_ROW(name_, arity_, rule_, flags_, types_, isa_, cost_, ...) \
  [SC_PW_##name_] = {.name = #name_, .id = SC_PW_##name_, .arity = arity_, .rule = SC_PW_##rule_, \
                      .flags = (flags_) | (SC_PW_##rule_ == SC_PW_PICK ? SC_PW_COND : 0), .cost = cost_},
const sc_pw sc__pw[SC_PW_COUNT] = {
#include "pointwise_table.h"
};
#undef SC_PW_ROW

extern const sc_pw_kernels sc__pw_kernels_base[SC_PW_COUNT];
#if defined(__x86_64__)
extern const sc_pw_kernels sc__pw_kernels_avx2[SC_PW_COUNT], sc__pw_kernels_avx512[SC_PW_COUNT];
#endif

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
  return f ? f : pick(&sc__pw_kernels_base[id], type);
}

sc_dtype sc__ctype_dtype(sc_ctype c) {
  static const sc_dtype d[SC_CTYPES] = {SC_FLOAT32, SC_FLOAT64, SC_INT64, SC_UINT64, SC_BOOL};
  return d[c];
}

typedef struct space {
  const sc_program *p;
  sc_tensor *out;
  sc_tensor *const *in;
  int nd;
  int64_t dim[SC_MAX_DIMS + 1];
  int64_t os[SC_MAX_DIMS + 1];                    /* output's strides */
  int64_t is[MAX_IN][SC_MAX_DIMS + 1];
  bool rows;                                      /* walk row by row */
  int64_t inner;                                  /* length of a row */
  bool direct[MAX_IN];                            /* of the type the program reads */
  bool scalar[MAX_IN];
  bool linear[MAX_IN];                            /* packed in the order of the walk */
  bool out_direct, out_linear;
  int64_t at;                                     /* elements before this range (in row mode: rows) */
} space;

static void collapse(space *s) {
  int n = 0;
  for (int i = 0; i < s->out->ndim; i++) {
    int64_t size = s->out->dim[i];
    if (size == 1) continue;
    int64_t os = sc__stride(s->out)[i], is[MAX_IN];
    bool merge = n > 0 && s->os[n - 1] == os * size;
    for (int k = 0; k < s->p->n_in; k++) {
      const sc_tensor *t = s->in[k];
      int d = i - (s->out->ndim - t->ndim);
      is[k] = d < 0 || t->dim[d] == 1 ? 0 : sc__stride(t)[d];
      merge = merge && s->is[k][n - 1] == is[k] * size;
    }
    int at = merge ? n - 1 : n++;
    s->dim[at] = merge ? s->dim[at] * size : size;
    s->os[at] = os;
    for (int k = 0; k < s->p->n_in; k++) s->is[k][at] = is[k];
  }
  if (n == 0) {
    s->dim[0] = s->os[0] = 1;
    for (int k = 0; k < s->p->n_in; k++) s->is[k][0] = 0;
    n = 1;
  }
  s->nd = n;
}

/* Walks [begin, begin + n) of the space in row-major order, copying one operand into (or out of) a packed buffer. */
static void gather(const space *s, const int64_t *stride, sc_dtype dtype, char *data, int64_t begin, int64_t n, sc_dtype btype,
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

/* The instructions over one tile whose operands are at hand. */
static void execute(const sc_program *p, int64_t n, const void **ptr, int64_t *step, char (*reg)[TILE * 8], void *out) {
  for (int k = 0; k < p->n_instr; k++) {
    const sc_instr *q = &p->instr[k];
    void *d = k == p->n_instr - 1 ? out : (void *)reg[k];
    const void *a = ptr[q->src[0]], *b = q->arity > 1 ? ptr[q->src[1]] : NULL, *c = q->arity > 2 ? ptr[q->src[2]] : NULL;
    int64_t as = step[q->src[0]], bs = q->arity > 1 ? step[q->src[1]] : 0, cs = q->arity > 2 ? step[q->src[2]] : 0;
    if (q->fn) {
      q->fn(n, d, a, as, b, bs, c, cs, q->p);
    } else {
      int s = q->src[0];
      sc_ctype from = (sc_ctype)(s < p->n_in ? p->in_type[s] : p->instr[s - p->n_in].type);
      sc__convert(n, sc__ctype_dtype((sc_ctype)q->type), d, 1, sc__ctype_dtype(from), a, as);
    }
    ptr[p->n_in + k] = d;
    step[p->n_in + k] = 1;
  }
}

static void run_range(void *arg, int64_t begin, int64_t end) {
  const space *s = arg;
  const sc_program *p = s->p;
  _Alignas(64) char reg[p->n_instr][TILE * 8];      /* as many as the program needs: stacks may be small */
  _Alignas(64) char inbuf[p->n_in > 0 ? p->n_in : 1][TILE * 8];
  const void *ptr[MAX_IN + SC_PROGRAM_INSTRS];
  int64_t step[MAX_IN + SC_PROGRAM_INSTRS];
  int64_t per = s->rows ? s->inner : TILE;         /* elements of one unit of the range */
  int64_t total = s->out->numel;
  sc_ctype otype = (sc_ctype)p->instr[p->n_instr - 1].type;
  sc_dtype odt = (sc_dtype)s->out->dtype;
  int64_t oz = (int64_t)sc_dtype_size(odt);
  char single[MAX_IN][8];
  for (int k = 0; k < p->n_in; k++)
    if (s->scalar[k]) sc__convert(1, sc__ctype_dtype((sc_ctype)p->in_type[k]), single[k], 1, (sc_dtype)s->in[k]->dtype, s->in[k]->data, 1);
  int last = s->nd - 1;
  for (int64_t u = begin; u < end; u++) {
    int64_t first = u * per, stop = first + per < total ? first + per : total;
    int64_t row_off[MAX_IN] = {0}, out_off = 0;
    if (s->rows) {
      int64_t rest = u;
      for (int i = last - 1; i >= 0; i--) {
        int64_t x = rest % s->dim[i];
        rest /= s->dim[i];
        out_off += x * s->os[i];
        for (int k = 0; k < p->n_in; k++) row_off[k] += x * s->is[k][i];
      }
    }
    for (int64_t at = first; at < stop; at += TILE) {
      int64_t n = stop - at < TILE ? stop - at : TILE, in_row = at - first;
      for (int k = 0; k < p->n_in; k++) {
        const sc_tensor *t = s->in[k];
        int64_t z = (int64_t)sc_dtype_size((sc_dtype)t->dtype);
        sc_dtype want = sc__ctype_dtype((sc_ctype)p->in_type[k]);
        if (s->scalar[k]) { ptr[k] = single[k]; step[k] = 0; continue; }
        if (s->rows) {
          int64_t stride = s->is[k][last];
          const char *src = t->data + (row_off[k] + in_row * stride) * z;
          if (s->direct[k]) { ptr[k] = src; step[k] = stride; continue; }
          if (stride == 0) { sc__convert(1, want, inbuf[k], 1, (sc_dtype)t->dtype, src, 1); ptr[k] = inbuf[k]; step[k] = 0; continue; }
          sc__convert(n, want, inbuf[k], 1, (sc_dtype)t->dtype, src, stride);
        } else if (s->linear[k]) {
          const char *src = t->data + at * z;
          if (s->direct[k]) { ptr[k] = src; step[k] = 1; continue; }
          sc__convert(n, want, inbuf[k], 1, (sc_dtype)t->dtype, src, 1);
        } else {
          gather(s, s->is[k], (sc_dtype)t->dtype, t->data, at, n, want, inbuf[k], false);
        }
        ptr[k] = inbuf[k];
        step[k] = 1;
      }
      int64_t os = s->rows ? s->os[last] : 1;
      char *dst = s->rows ? s->out->data + (out_off + in_row * os) * oz : s->out->data + at * oz;
      bool straight = s->out_direct && (s->rows ? os == 1 : s->out_linear);
      execute(p, n, ptr, step, reg, straight ? (void *)dst : (void *)reg[p->n_instr - 1]);
      if (straight) continue;
      if (s->rows || s->out_linear) sc__convert(n, odt, dst, os, sc__ctype_dtype(otype), reg[p->n_instr - 1], 1);
      else gather(s, s->os, odt, s->out->data, at, n, sc__ctype_dtype(otype), reg[p->n_instr - 1], true);
    }
  }
}

static bool packed(const space *s, const int64_t *stride) {
  int64_t expect = 1;
  for (int i = s->nd - 1; i >= 0; i--) {
    if (stride[i] != expect) return false;
    expect *= s->dim[i];
  }
  return true;
}

void sc__program_run(sc_context *ctx, const sc_program *p, sc_tensor *out, sc_tensor *const *in) {
  int64_t total = out->numel;
  if (total == 0) return;
  sc_ctype otype = (sc_ctype)p->instr[p->n_instr - 1].type;
  bool out_direct = sc__ctype_dtype(otype) == (sc_dtype)out->dtype;
  if (p->n_instr == 1 && p->instr[0].fn && total <= TILE * 16 && out->contiguous && out_direct) {   /* small, packed: at once */
    const sc_instr *q = &p->instr[0];
    const void *ptr[3] = {0};
    int64_t step[3] = {0};
    _Alignas(8) char single[3][8];
    bool simple = true;
    for (int k = 0; k < p->n_in && simple; k++) {
      const sc_tensor *t = in[q->src[k]];
      sc_dtype want = sc__ctype_dtype((sc_ctype)p->in_type[q->src[k]]);
      if (t->numel == 1) {
        ptr[k] = t->data;
        if ((sc_dtype)t->dtype != want) { sc__convert(1, want, single[k], 1, (sc_dtype)t->dtype, t->data, 1); ptr[k] = single[k]; }
      } else if (t->contiguous && t->numel == total && (sc_dtype)t->dtype == want) {
        ptr[k] = t->data;
        step[k] = 1;
      } else {
        simple = false;
      }
    }
    if (simple) { q->fn(total, out->data, ptr[0], step[0], ptr[1], step[1], ptr[2], step[2], q->p); return; }
  }
  space s;
  s.p = p;
  s.out = out;
  s.in = in;
  s.out_direct = out_direct;
  collapse(&s);
  s.out_linear = packed(&s, s.os);
  bool all_linear = s.out_linear;
  for (int k = 0; k < p->n_in; k++) {
    s.direct[k] = sc__ctype_dtype((sc_ctype)p->in_type[k]) == (sc_dtype)in[k]->dtype;
    s.scalar[k] = in[k]->numel == 1;
    s.linear[k] = packed(&s, s.is[k]);
    all_linear = all_linear && (s.scalar[k] || s.linear[k]);
  }
  s.inner = s.dim[s.nd - 1];
  s.rows = !all_linear && s.inner >= SHORT_ROW;
  int64_t units = s.rows ? total / s.inner : (total + TILE - 1) / TILE;
  sc__parallel(ctx, units, 1, p->cost * (double)(s.rows ? s.inner : TILE), run_range, &s);
}
