/* Making tensors from nothing or from the shape of another, filling, copying and converting them.
**
** Values are computed in double, or in int64 for integers, and converted: a sequence's element i is start + i * step, never a
** running sum. A number that the dtype cannot hold is an error, as in PyTorch (unsigned types also take negatives down to
** minus their largest value, which wrap). */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "ops.h"

#include <math.h>
#include <string.h>

#define NO_HISTORY "its value does not depend on tensors"

static sc_scalar scalar_of(const sc_attr *a) { return a->kind == SC_ATTR_FLOAT ? sc__scalar_float(a->f) : sc__scalar_int(a->i); }

static bool fits(sc_dtype d, sc_scalar v) {
  static const double FLOAT_MAX[] = {[SC_FLOAT32] = 3.4028234663852886e38, [SC_FLOAT64] = INFINITY, [SC_FLOAT16] = 65504.0,
                                     [SC_BFLOAT16] = 3.3895313892515355e38};
  if (d == SC_BOOL) return true;
  if (sc__is_float(d)) return isnan(v.f) || isinf(v.f) || fabs(v.f) <= FLOAT_MAX[d];
  int bits = 8 * (int)sc_dtype_size(d);
  bool is_unsigned = d == SC_UINT8 || d == SC_UINT16 || d == SC_UINT32 || d == SC_UINT64;
  double high = ldexp(1, is_unsigned ? bits : bits - 1), low = is_unsigned ? -high + 1 : -high;
  if (!v.is_int || bits == 64) return v.f >= low && (v.f < high || (v.is_int && bits == 64));
  return v.i >= (int64_t)low && v.i < (int64_t)high;
}

static sc_status check_fits(sc_call *c, int slot, sc_dtype d) {
  const sc_attr *a = &c->attr[slot];
  if (fits(d, scalar_of(a))) return SC_OK;
  return sc__bad_attr(c, slot, "the number %.14g does not fit %s", sc__number(a), sc_dtype_name(d));
}

/* Attribute `requires_grad`, which every function that makes a tensor has. */
static sc_status check_requires(sc_call *c, int slot) {
  if (!c->attr[slot].i) return SC_OK;
  if (!sc__is_float(c->meta[0].dtype)) return sc__bad_attr(c, slot, "only floating-point tensors have gradients, not %s", sc_dtype_name(c->meta[0].dtype));
  if (c->n_in && c->in[0] && sc__is_symbolic(c->in[0])) return sc__bad_attr(c, slot, "a symbolic tensor cannot be made a leaf");
  return SC_OK;
}

static sc_status make_leaf(sc_call *c, int slot) { return c->attr[slot].i ? sc_set_requires_grad(c->out[0], true) : SC_OK; }

static sc_status set_shape(sc_call *c, int slot, sc_dtype d) {
  if (c->attr[slot].n > SC_MAX_DIMS) return sc__bad_attr(c, slot, "at most %d dimensions", SC_MAX_DIMS);
  for (int i = 0; i < c->attr[slot].n; i++)
    if (c->attr[slot].v[i] < 0) return sc__bad_attr(c, slot, "size %lld of dimension %d is negative", (long long)c->attr[slot].v[i], i + c->ctx->index_base);
  sc__meta_set(&c->meta[0], d, c->attr[slot].n, c->attr[slot].v);
  return SC_OK;
}

/* ---- filling ---- */

typedef struct fill_job { void *data; size_t size; _Alignas(8) char element[8]; } fill_job;

static void fill_piece(void *arg, int64_t begin, int64_t end) {
  const fill_job *j = arg;
  switch (j->size) {
    case 1: memset((uint8_t *)j->data + begin, j->element[0], (size_t)(end - begin)); break;
#define RUN(T) { T v, *p = j->data; memcpy(&v, j->element, sizeof v); for (int64_t i = begin; i < end; i++) p[i] = v; break; }
    case 2: RUN(uint16_t)
    case 4: RUN(uint32_t)
    default: RUN(uint64_t)
#undef RUN
  }
}

/* t is packed and fresh. */
static void fill(sc_tensor *t, sc_scalar v) {
  fill_job j = {.data = t->data, .size = sc_dtype_size((sc_dtype)t->dtype)};
  sc__store((sc_dtype)t->dtype, j.element, v);
  sc__parallel(t->ctx, t->numel, 4096, 0.05 * (double)j.size, fill_piece, &j);
}

/* ---- full and its relatives. Slots: size, fill_value, dtype, requires_grad ---- */

static sc_status full_infer(sc_call *c) {
  const sc_attr *v = &c->attr[1];
  sc_dtype d = v->kind == SC_ATTR_FLOAT ? SC_FLOAT32 : v->kind == SC_ATTR_BOOL ? SC_BOOL : SC_INT64;
  SC_TRY(set_shape(c, 0, sc__dtype_or(&c->attr[2], d)));
  SC_TRY(check_fits(c, 1, c->meta[0].dtype));
  return check_requires(c, 3);
}
static sc_status full_run(sc_call *c) {
  fill(c->out[0], scalar_of(&c->attr[1]));
  return make_leaf(c, 3);
}

/* zeros, ones, empty. Slots: size, dtype, requires_grad */
static sc_status plain_infer(sc_call *c) {
  SC_TRY(set_shape(c, 0, sc__dtype_or(&c->attr[1], SC_FLOAT32)));
  return check_requires(c, 2);
}
static sc_status zeros_run(sc_call *c) { fill(c->out[0], sc__scalar_int(0)); return make_leaf(c, 2); }
static sc_status ones_run(sc_call *c) { fill(c->out[0], sc__scalar_int(1)); return make_leaf(c, 2); }
/* Nothing is written, except in the hostile build, where nobody shall be able to rely on zeros. */
static void leave(sc_tensor *t) {
#ifdef SC_HOSTILE
  if (t->numel) memset(t->data, 0xDE, (size_t)t->numel * sc_dtype_size((sc_dtype)t->dtype));
#else
  (void)t;
#endif
}
static sc_status empty_run(sc_call *c) { leave(c->out[0]); return make_leaf(c, 2); }

/* full_like: fill_value, dtype, requires_grad; the others: dtype, requires_grad */
static sc_status full_like_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = sc__dtype_or(&c->attr[1], c->meta[0].dtype);
  SC_TRY(check_fits(c, 0, c->meta[0].dtype));
  return check_requires(c, 2);
}
static sc_status full_like_run(sc_call *c) { fill(c->out[0], scalar_of(&c->attr[0])); return make_leaf(c, 2); }
static sc_status like_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = sc__dtype_or(&c->attr[0], c->meta[0].dtype);
  return check_requires(c, 1);
}
static sc_status zeros_like_run(sc_call *c) { fill(c->out[0], sc__scalar_int(0)); return make_leaf(c, 1); }
static sc_status ones_like_run(sc_call *c) { fill(c->out[0], sc__scalar_int(1)); return make_leaf(c, 1); }
static sc_status empty_like_run(sc_call *c) { leave(c->out[0]); return make_leaf(c, 1); }

/* new_full: size, fill_value, dtype, requires_grad; the others: size, dtype, requires_grad */
static sc_status new_full_infer(sc_call *c) {
  SC_TRY(set_shape(c, 0, sc__dtype_or(&c->attr[2], (sc_dtype)c->in[0]->dtype)));
  SC_TRY(check_fits(c, 1, c->meta[0].dtype));
  return check_requires(c, 3);
}
static sc_status new_plain_infer(sc_call *c) {
  SC_TRY(set_shape(c, 0, sc__dtype_or(&c->attr[1], (sc_dtype)c->in[0]->dtype)));
  return check_requires(c, 2);
}

/* ---- sequences ---- */

typedef struct sequence {
  sc_tensor *out;
  enum { ARITHMETIC, SPACED, POWERS } kind;
  bool whole;                        /* computed in int64 */
  int64_t istart, istep;
  double start, end, step, base;
} sequence;

static double spaced(const sequence *q, int64_t i) {
  if (q->kind == ARITHMETIC) return q->start + (double)i * q->step;
  int64_t n = q->out->numel;         /* from the nearer end, so that both ends are exact */
  return i < n / 2 ? q->start + q->step * (double)i : q->end - q->step * (double)(n - 1 - i);
}

static void sequence_piece(void *arg, int64_t begin, int64_t end) {
  const sequence *q = arg;
  sc_dtype d = (sc_dtype)q->out->dtype;
  char *to = q->out->data;
  size_t size = sc_dtype_size(d);
  union { double f[256]; int64_t i[256]; } tile;
  for (int64_t at = begin; at < end; at += 256) {
    int64_t n = end - at < 256 ? end - at : 256;
    if (q->whole) for (int64_t i = 0; i < n; i++) tile.i[i] = (int64_t)((uint64_t)q->istart + (uint64_t)(at + i) * (uint64_t)q->istep);
    else if (q->kind == POWERS) for (int64_t i = 0; i < n; i++) tile.f[i] = pow(q->base, spaced(q, at + i));
    else for (int64_t i = 0; i < n; i++) tile.f[i] = spaced(q, at + i);
    sc__convert(n, d, to + (size_t)at * size, 1, q->whole ? SC_INT64 : SC_FLOAT64, &tile, 1);
  }
}

static void run_sequence(sequence *q) {
  sc__parallel(q->out->ctx, q->out->numel, 4096, q->kind == POWERS ? 40 : 1, sequence_piece, q);
}

/* arange and range. Slots: start, end, step, dtype, requires_grad. With one number it is the end. */
static bool is_whole(const sc_attr *a) { return a->kind != SC_ATTR_FLOAT; }

static sequence sequence_of(const sc_call *c, sc_dtype d) {
  sc_attr start = sc__has(c, 1) ? c->attr[0] : sc__int(0), end = sc__has(c, 1) ? c->attr[1] : c->attr[0];
  sequence q = {.kind = ARITHMETIC, .start = sc__number(&start), .end = sc__number(&end), .step = sc__number(&c->attr[2])};
  if (sc__has(c, 1) && !sc__has(c, 0)) q.start = 0, start = sc__int(0);
  q.whole = !sc__is_float(d);
  q.istart = is_whole(&start) ? start.i : sc__f64_to_i64(start.f);
  q.istep = is_whole(&c->attr[2]) ? c->attr[2].i : sc__f64_to_i64(c->attr[2].f);
  return q;
}

static sc_status sequence_infer(sc_call *c, bool inclusive) {
  if (!sc__has(c, 0) && !sc__has(c, 1)) return sc__bad_attr(c, 1, "is missing; the op is %s", c->op->def->signature);
  bool ints = (!sc__has(c, 0) || is_whole(&c->attr[0])) && (!sc__has(c, 1) || is_whole(&c->attr[1])) && is_whole(&c->attr[2]);
  sc_dtype d = sc__dtype_or(&c->attr[3], ints && !inclusive ? SC_INT64 : SC_FLOAT32);
  sequence q = sequence_of(c, d);
  if (!isfinite(q.start) || !isfinite(q.end) || !isfinite(q.step)) return sc__bad_call(c, "unsupported range: %g to %g in steps of %g", q.start, q.end, q.step);
  if (q.step == 0 || (q.whole && q.istep == 0)) return sc__bad_attr(c, 2, "the step must not be zero%s", q.step == 0 ? "" : " after conversion to an integer");
  if ((q.step > 0) != (q.end >= q.start) && q.end != q.start)
    return sc__bad_call(c, "the end %.14g cannot be reached from %.14g in steps of %.14g", q.end, q.start, q.step);
  double count;
  if (d == SC_INT64) {                                 /* whole numbers: exactly */
    const sc_attr *e = sc__has(c, 1) ? &c->attr[1] : &c->attr[0];
    __int128 first = q.istart, last = is_whole(e) ? e->i : sc__f64_to_i64(e->f), step = q.istep, way = step > 0 ? 1 : -1;
    __int128 n = inclusive ? (last - first) / step + 1 : (last - first + step - way) / step;
    count = n < 0 ? 0 : (double)n;
    if (n > INT64_MAX / 8) return sc__bad_call(c, "a sequence of %.14g elements is too long", count);
    c->note[0] = n < 0 ? 0 : (int64_t)n;
  } else {
    count = inclusive ? floor((q.end - q.start) / q.step) + 1 : ceil((q.end - q.start) / q.step);
    if (!(count < 1e18)) return sc__bad_call(c, "a sequence of %.14g elements is too long", count);
    c->note[0] = count < 0 ? 0 : (int64_t)count;
  }
  sc__meta_set(&c->meta[0], d, 1, &c->note[0]);
  return check_requires(c, 4);
}
static sc_status arange_infer(sc_call *c) { return sequence_infer(c, false); }
static sc_status range_infer(sc_call *c) { return sequence_infer(c, true); }
static sc_status arange_run(sc_call *c) {
  sequence q = sequence_of(c, (sc_dtype)c->out[0]->dtype);
  q.out = c->out[0];
  run_sequence(&q);
  return make_leaf(c, 4);
}

/* linspace: start, end, steps, dtype, requires_grad; logspace: start, end, steps, base, dtype, requires_grad. The number of steps
** is read as a number so that 2.0 can be refused, as PyTorch does. */
static sc_status steps_infer(sc_call *c, int dtype_slot) {
  const sc_attr *s = &c->attr[2];
  if (s->kind != SC_ATTR_INT) return sc__bad_attr(c, 2, "expected an integer, got %.14g as a %s", sc__number(s), s->kind == SC_ATTR_BOOL ? "boolean" : "float");
  if (s->i < 0) return sc__bad_attr(c, 2, "the number of steps must not be negative, got %lld", (long long)s->i);
  sc__meta_set(&c->meta[0], sc__dtype_or(&c->attr[dtype_slot], SC_FLOAT32), 1, &s->i);
  return check_requires(c, dtype_slot + 1);
}
static sc_status linspace_infer(sc_call *c) { return steps_infer(c, 3); }
static sc_status logspace_infer(sc_call *c) { return steps_infer(c, 4); }

static sc_status steps_run(sc_call *c, int kind, int dtype_slot) {
  sequence q = {.out = c->out[0], .kind = kind, .start = sc__number(&c->attr[0]), .end = sc__number(&c->attr[1])};
  if (!sc__is_float((sc_dtype)q.out->dtype)) { q.start = trunc(q.start); q.end = trunc(q.end); }
  if (kind == POWERS) q.base = c->attr[3].f;
  q.step = q.out->numel > 1 ? (q.end - q.start) / (double)(q.out->numel - 1) : 0;
  if (q.out->numel == 1) q.end = q.start;
  run_sequence(&q);
  return make_leaf(c, dtype_slot + 1);
}
static sc_status linspace_run(sc_call *c) { return steps_run(c, SPACED, 3); }
static sc_status logspace_run(sc_call *c) { return steps_run(c, POWERS, 4); }

/* eye: n, m, dtype, requires_grad */
static sc_status eye_infer(sc_call *c) {
  int64_t dim[2] = {c->attr[0].i, sc__has(c, 1) ? c->attr[1].i : c->attr[0].i};
  for (int i = 0; i < 2; i++)
    if (dim[i] < 0) return sc__bad_attr(c, i && sc__has(c, 1), "expected a size of at least 0, got %lld", (long long)dim[i]);
  sc__meta_set(&c->meta[0], sc__dtype_or(&c->attr[2], SC_FLOAT32), 2, dim);
  return check_requires(c, 3);
}
static sc_status eye_run(sc_call *c) {
  sc_tensor *t = c->out[0];
  fill(t, sc__scalar_int(0));
  int64_t n = t->dim[0] < t->dim[1] ? t->dim[0] : t->dim[1];
  size_t size = sc_dtype_size((sc_dtype)t->dtype);
  for (int64_t i = 0; i < n; i++) sc__store((sc_dtype)t->dtype, t->data + (size_t)(i * (t->dim[1] + 1)) * size, sc__scalar_int(1));
  return make_leaf(c, 3);
}

/* ---- writing into tensors ---- */

static sc_status fill_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  char shape[200];
  sc_tensor *v = c->in[1];
  if (v->ndim != 0) return sc__bad_input(c, 1, "expected a number or a tensor without dimensions, got shape %s", sc__shape_text(v->ndim, v->dim, shape, sizeof shape));
  if (v->flags & SC_T_WRAPPED && v->storage && !fits(c->meta[0].dtype, sc__load((sc_dtype)v->dtype, v->data)))
    return sc__bad_input(c, 1, "the number %.14g does not fit %s", sc__load((sc_dtype)v->dtype, v->data).f, sc_dtype_name(c->meta[0].dtype));
  return SC_OK;
}
static sc_status fill_run(sc_call *c) { return sc__tensor_copy(c->out[0], c->in[1]); }

static sc_status self_infer(sc_call *c) { sc__meta_like(&c->meta[0], c->in[0]); return SC_OK; }
static sc_status zero_run(sc_call *c) {
  sc_tensor *zero;
  if (c->out[0]->contiguous) { fill(c->out[0], sc__scalar_int(0)); return SC_OK; }
  SC_TRY(sc__tensor_scalar(c->ctx, true, 0, 0, &zero));
  sc_status s = sc__tensor_copy(c->out[0], zero);
  sc_tensor_release(zero);
  return s;
}

static sc_status copy_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  int64_t dim[SC_MAX_DIMS];
  int n;
  sc_tensor *x = c->in[0], *src = c->in[1];
  if (src->ndim > x->ndim || !sc__broadcast(x->ndim, x->dim, src->ndim, src->dim, &n, dim) || n != x->ndim ||
      memcmp(dim, x->dim, (size_t)n * sizeof(int64_t)) != 0) {
    char a[200], b[200];
    return sc__bad_input(c, 1, "shape %s does not broadcast to %s", sc__shape_text(src->ndim, src->dim, a, sizeof a), sc__shape_text(x->ndim, x->dim, b, sizeof b));
  }
  return SC_OK;
}
static sc_status copy_into_run(sc_call *c) { return sc__tensor_copy(c->out[0], c->in[1]); }

/* ---- copies and conversions ---- */

/* A clone may have been given x's own memory (.over). */
static sc_status copy_run(sc_call *c) { return c->out[0]->data == c->in[0]->data ? SC_OK : sc__tensor_copy(c->out[0], c->in[0]); }

static sc_status cast_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = (sc_dtype)c->attr[0].i;
  return SC_OK;
}

static sc_status convert(sc_call *c, sc_dtype d, bool copy) {
  c->n_out = 1;
  bool same = d == (sc_dtype)c->in[0]->dtype;
  if (same && !copy) { c->out[0] = sc_tensor_retain(c->in[0]); return SC_OK; }
  sc_attr attr = sc__dtype(d);
  sc_status s = same ? sc__op1(c->ctx, "clone", c->in[0], &c->out[0]) : sc__op(c->ctx, "cast", c->in, 1, &attr, 1, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}
static sc_status to_compose(sc_call *c) { return convert(c, (sc_dtype)c->attr[0].i, c->attr[1].i); }
static sc_status type_as_compose(sc_call *c) { return convert(c, (sc_dtype)c->in[1]->dtype, false); }

#define EACH_DTYPE(X) X(float, SC_FLOAT32) X(double, SC_FLOAT64) X(half, SC_FLOAT16) X(bfloat16, SC_BFLOAT16) X(char, SC_INT8) \
  X(byte, SC_UINT8) X(short, SC_INT16) X(int, SC_INT32) X(long, SC_INT64) X(bool, SC_BOOL)
#define CONVERTER(name, d) static sc_status convert_##d(sc_call *c) { return convert(c, d, false); }
EACH_DTYPE(CONVERTER)
#undef CONVERTER

static sc_status contiguous_compose(sc_call *c) {
  c->n_out = 1;
  if (c->in[0]->contiguous) { c->out[0] = sc_tensor_retain(c->in[0]); return SC_OK; }
  sc_status s = sc__op1(c->ctx, "clone", c->in[0], &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

#define MAKER SC_OP_FUNCTION
#define LIKE SC_OP_DETACH
const sc_op sc__ops_create[] = {
  {"full(size: shape, fill_value: number, dtype: dtype?, requires_grad: bool = false)",
   "A tensor of that shape filled with a number; the dtype is the number's unless named.\nErrors: a number that the dtype cannot hold.\n"
   "Example: sc.full({2, 3}, 0.5)", MAKER, .infer = full_infer, .run = full_run, .no_grad = NO_HISTORY},
  {"zeros(size: shape, dtype: dtype?, requires_grad: bool = false)", "Zeros, float32 unless a dtype is named.\nExample: sc.zeros(2, 3)",
   MAKER, .infer = plain_infer, .run = zeros_run, .no_grad = NO_HISTORY},
  {"ones(size: shape, dtype: dtype?, requires_grad: bool = false)", "Ones, float32 unless a dtype is named.\nExample: sc.ones({2, 3}, {dtype = \"int64\"})",
   MAKER, .infer = plain_infer, .run = ones_run, .no_grad = NO_HISTORY},
  {"empty(size: shape, dtype: dtype?, requires_grad: bool = false)", "A tensor whose elements are whatever the memory held.\nExample: sc.empty(1000)",
   MAKER, .infer = plain_infer, .run = empty_run, .no_grad = NO_HISTORY},
  {"full_like(x, fill_value: number, dtype: dtype?, requires_grad: bool = false)", "A tensor of x's shape and dtype filled with a number.\nExample: sc.full_like(x, 3)",
   LIKE, .infer = full_like_infer, .run = full_like_run, .no_grad = NO_HISTORY},
  {"zeros_like(x, dtype: dtype?, requires_grad: bool = false)", "Zeros of x's shape and dtype.\nExample: sc.zeros_like(x)", LIKE,
   .infer = like_infer, .run = zeros_like_run, .no_grad = NO_HISTORY},
  {"ones_like(x, dtype: dtype?, requires_grad: bool = false)", "Ones of x's shape and dtype.\nExample: sc.ones_like(x)", LIKE,
   .infer = like_infer, .run = ones_like_run, .no_grad = NO_HISTORY},
  {"empty_like(x, dtype: dtype?, requires_grad: bool = false)", "A tensor of x's shape and dtype whose elements are whatever the memory held.",
   LIKE, .infer = like_infer, .run = empty_like_run, .no_grad = NO_HISTORY},
  {"new_full(x, size: shape, fill_value: number, dtype: dtype?, requires_grad: bool = false)", "A tensor of that shape and x's dtype, filled with a number.\nExample: x:new_full({2, 3}, 1)",
   LIKE, .infer = new_full_infer, .run = full_run, .no_grad = NO_HISTORY},
  {"new_zeros(x, size: shape, dtype: dtype?, requires_grad: bool = false)", "Zeros of that shape and x's dtype.\nExample: x:new_zeros(2, 3)", LIKE,
   .infer = new_plain_infer, .run = zeros_run, .no_grad = NO_HISTORY},
  {"new_ones(x, size: shape, dtype: dtype?, requires_grad: bool = false)", "Ones of that shape and x's dtype.\nExample: x:new_ones(2, 3)", LIKE,
   .infer = new_plain_infer, .run = ones_run, .no_grad = NO_HISTORY},
  {"new_empty(x, size: shape, dtype: dtype?, requires_grad: bool = false)", "A tensor of that shape and x's dtype whose elements are whatever the memory held.",
   LIKE, .infer = new_plain_infer, .run = empty_run, .no_grad = NO_HISTORY},
  {"arange(start: number?, end: number?, step: number = 1, dtype: dtype?, requires_grad: bool = false)",
   "start, start + step, … without end; one number is the end. Whole numbers give int64, else float32.\n"
   "Errors: a step of 0, an end on the other side, infinities.\nExample: sc.arange(0, 10, 2)", MAKER, .infer = arange_infer,
   .run = arange_run, .no_grad = NO_HISTORY},
  {"range(start: number?, end: number?, step: number = 1, dtype: dtype?, requires_grad: bool = false)",
   "start, start + step, … up to and including end; float32 unless a dtype is named.\nExample: sc.range(1, 5)", MAKER,
   .infer = range_infer, .run = arange_run, .no_grad = NO_HISTORY},
  {"linspace(start: number, end: number, steps: number, dtype: dtype?, requires_grad: bool = false)",
   "That many evenly spaced numbers from start to end, both included.\nExample: sc.linspace(0, 1, 5)", MAKER, .infer = linspace_infer,
   .run = linspace_run, .no_grad = NO_HISTORY},
  {"logspace(start: number, end: number, steps: number, base: float = 10, dtype: dtype?, requires_grad: bool = false)",
   "base to the power of that many evenly spaced numbers from start to end.\nExample: sc.logspace(0, 3, 4)", MAKER,
   .infer = logspace_infer, .run = logspace_run, .no_grad = NO_HISTORY},
  {"eye(n: int, m: int?, dtype: dtype?, requires_grad: bool = false)", "n x m (n x n) with ones on the diagonal and zeros elsewhere.\nExample: sc.eye(3)",
   MAKER, .infer = eye_infer, .run = eye_run, .no_grad = NO_HISTORY},
  {"fill(x, value)", "A tensor of x's shape and dtype filled with a number or a tensor without dimensions; fill_ writes into x.\nExample: x:fill_(0.5)",
   SC_OP_INPLACE | SC_OP_DIRECT, .infer = fill_infer, .run = fill_run, .grad = {"zeros_like(dy)", "dy"}},
  {"zero_(x)", "Writes zeros into x.", SC_OP_INPLACE_ONLY | SC_OP_DIRECT, .infer = self_infer, .run = zero_run, .grad = {"zeros_like(dy)"}},
  {"copy_(x, src)", "Writes src, broadcast and converted, into x.\nErrors: src does not broadcast to x, or overlaps it.", SC_OP_INPLACE_ONLY | SC_OP_DIRECT | SC_OP_STORES,
   .infer = copy_infer, .run = copy_into_run, .grad = {"zeros_like(dy)", "dy"}},
  {"clone(x)", "A packed copy.", SC_OP_STORES, .infer = self_infer, .run = copy_run, .cost = sc__cost_bytes, .over = 1, .grad = {"dy"}},
  {"cast(x, dtype: dtype)", "A copy converted to dtype.", SC_OP_INTERNAL | SC_OP_CONVERTS | SC_OP_STORES, .infer = cast_infer, .run = copy_run, .cost = sc__cost_bytes, .grad = {"dy"}},
  {"to(x, dtype: dtype, copy: bool = false)", "x as dtype: x itself when it has that dtype already, unless a copy is asked for.\nExample: x:to(\"int64\")", 0, .compose = to_compose},
  {"type(x, dtype: dtype, copy: bool = false)", "x as dtype: x itself when it has that dtype already.\nExample: x:type(\"int64\")", 0, .compose = to_compose},
  {"type_as(x, other)", "x in other's dtype.", 0, .compose = type_as_compose},
#define ROW(name, d) {#name "(x)", "x as " #d ": x itself when it has that dtype already.", 0, .compose = convert_##d},
  EACH_DTYPE(ROW)
#undef ROW
  {"contiguous(x)", "x itself when its elements are packed in row-major order, else a packed copy.", 0, .compose = contiguous_compose},
};
const int sc__ops_create_count = SC_COUNT(sc__ops_create);
