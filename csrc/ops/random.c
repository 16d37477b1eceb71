/* Random tensors. Every number is a function of the generator's seed, of a counter and of the element's position, never of
** how the work was split: tiles of 1024 elements, tile t of a call reads the words from t times the words of a tile on
** (kernels/random_stamp.h says what a word is). A call reserves its counters at the very end of its checks, so that one that
** fails has drawn nothing.
**
** float32 and the halves use 24 bits an element, float64 and everything computed in double 53. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 1024, GROUP = 64, COUNTERS_PER_GROUP = 16 };
#define RANDOM_NUMBER "a random number does not depend on tensors"

typedef enum law {
  UNIFORM_F32, NORMAL_F32,                                    /* one word an element, in float */
  UNIFORM, NORMAL, EXPONENTIAL, CAUCHY, LOG_NORMAL, GEOMETRIC, TRUNC_NORMAL, BERNOULLI,   /* two words, in double */
  INTEGER,                                                    /* two words: low + a number below `range` */
  NOISE                                                       /* one word: p[1] with probability 1 - p[0], else 0 */
} law;

typedef struct draw {
  sc_tensor *out;              /* packed */
  const sc_random_kernels *k;
  uint64_t seed, counter;
  law law;
  double p[4];
  int64_t low;
  uint64_t range;              /* 0: 2^64 */
  const sc_tensor *a, *b;      /* packed, of out's shape: BERNOULLI's probabilities; NORMAL's mean and deviation */
} draw;

static sc_generator *generator(const sc_call *c, int slot) { return sc__has(c, slot) ? c->attr[slot].p : &c->ctx->rng; }

static int words_of(law l) { return l <= NORMAL_F32 || l == NOISE ? 1 : 2; }

static void reserve(draw *d, sc_generator *g, int64_t n) {
  uint64_t groups = ((uint64_t)n * (uint64_t)words_of(d->law) + GROUP - 1) / GROUP;
  d->seed = g->seed;
  d->counter = sc__generator_take(g, groups * COUNTERS_PER_GROUP);
  d->k = sc__random_kernels(d->out->ctx->isa);
}

/* Uniform in [0, 1) in steps of 2^-53. */
static inline double unit(const uint32_t *w) { return ((double)(w[0] >> 5) * 67108864.0 + (double)(w[1] >> 6)) * 0x1p-53; }
static inline uint64_t wide(const uint32_t *w) { return (uint64_t)w[1] << 32 | w[0]; }

/* The pair (2i, 2i + 1) shares a radius and an angle. */
static double normal_at(const uint32_t *w, int64_t i) {
  double r = sqrt(-2 * log(1 - unit(w + 4 * (i / 2)))), angle = 6.283185307179586 * unit(w + 4 * (i / 2) + 2);
  return i & 1 ? r * sin(angle) : r * cos(angle);
}

static double phi(double x) { return 0.5 * erfc(-x * 0.7071067811865476); }

/* The inverse of phi: a rational approximation by P. Acklam (relative error 1e-9), then one step of Halley's method. */
static double phi_inverse(double p) {
  static const double a[] = {-3.969683028665376e+01, 2.209460984245205e+02, -2.759285104469687e+02, 1.383577518672690e+02, -3.066479806614716e+01, 2.506628277459239e+00};
  static const double b[] = {-5.447609879822406e+01, 1.615858368580409e+02, -1.556989798598866e+02, 6.680131188771972e+01, -1.328068155288572e+01};
  static const double c[] = {-7.784894002430293e-03, -3.223964580411365e-01, -2.400758277161838e+00, -2.549732539343734e+00, 4.374664141464968e+00, 2.938163982698783e+00};
  static const double d[] = {7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996e+00, 3.754408661907416e+00};
  if (!(p > 0)) return -INFINITY;
  if (!(p < 1)) return INFINITY;
  double x, q, r;
  if (p < 0.02425 || p > 1 - 0.02425) {
    q = sqrt(-2 * log(p < 0.5 ? p : 1 - p));
    x = (((((c[0] * q + c[1]) * q + c[2]) * q + c[3]) * q + c[4]) * q + c[5]) / ((((d[0] * q + d[1]) * q + d[2]) * q + d[3]) * q + 1);
    if (p > 0.5) x = -x;
  } else {
    q = p - 0.5;
    r = q * q;
    x = (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q / (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
  }
  double e = phi(x) - p, u = e * 2.5066282746310002 * exp(x * x / 2);
  return x - u / (1 + x * u / 2);
}

static double number_at(const draw *d, const uint32_t *w, int64_t i, const double *a, const double *b) {
  const double *p = d->p;
  double u = unit(w + 2 * i), v;
  switch (d->law) {
    case UNIFORM:
      v = p[0] + u * (p[1] - p[0]);
      return v >= p[1] && p[1] > p[0] ? nextafter(p[1], p[0]) : v;
    case NORMAL: return (a ? a[i] : p[0]) + normal_at(w, i) * (b ? b[i] : p[1]);
    case EXPONENTIAL: return fabs(log(1 - u)) / p[0];
    case CAUCHY: return p[0] + p[1] * tan(3.141592653589793 * (u - 0.5));
    case LOG_NORMAL: return exp(p[0] + p[1] * normal_at(w, i));
    case GEOMETRIC: v = ceil(log(1 - u) / log1p(-p[0])); return v < 1 ? 1 : v;
    case TRUNC_NORMAL:
      v = p[0] + p[1] * phi_inverse(phi((p[2] - p[0]) / p[1]) + u * (phi((p[3] - p[0]) / p[1]) - phi((p[2] - p[0]) / p[1])));
      return v < p[2] ? p[2] : v > p[3] ? p[3] : v;
    default: return u < (a ? a[i] : p[0]);
  }
}

static void draw_tiles(void *arg, int64_t begin, int64_t end) {
  const draw *d = arg;
  _Alignas(64) uint32_t w[TILE * 2];
  _Alignas(64) union { float f[TILE]; double d[TILE]; int64_t i[TILE]; } tile;
  double a[TILE], b[TILE];
  sc_dtype dtype = (sc_dtype)d->out->dtype;
  int wide_words = words_of(d->law);
  for (int64_t t = begin; t < end; t++) {
    int64_t at = t * TILE, n = d->out->numel - at < TILE ? d->out->numel - at : TILE, groups = (n * wide_words + GROUP - 1) / GROUP;
    char *to = d->out->data + (size_t)at * sc_dtype_size(dtype);
    d->k->words(d->seed, d->counter + (uint64_t)(t * TILE * wide_words / GROUP * COUNTERS_PER_GROUP), groups, w);
    if (d->law == UNIFORM_F32 || d->law == NORMAL_F32 || d->law == NOISE) {
      bool direct = dtype == SC_FLOAT32 && (d->law != NORMAL_F32 || n % GROUP == 0);
      float *f = direct ? (float *)to : tile.f;
      if (d->law == UNIFORM_F32 && dtype != SC_FLOAT32) {   /* as many bits as a half has, so that nothing rounds up to the end */
        uint32_t bits = dtype == SC_FLOAT16 ? 0xFFE00000u : 0xFF000000u;
        for (int64_t i = 0; i < n; i++) w[i] &= bits;
      }
      if (d->law == UNIFORM_F32) d->k->uniform(n, w, (float)d->p[0], (float)(d->p[1] - d->p[0]), f);
      else if (d->law == NORMAL_F32) d->k->normal(groups, w, (float)d->p[0], (float)d->p[1], f);
      else for (int64_t i = 0; i < n; i++) f[i] = (double)w[i] * 0x1p-32 >= d->p[0] ? (float)d->p[1] : 0;
      if (!direct) sc__convert(n, dtype, to, 1, SC_FLOAT32, f, 1);
      continue;
    }
    if (d->law == INTEGER) {
      for (int64_t i = 0; i < n; i++) {
        uint64_t r = wide(w + 2 * i);
        tile.i[i] = (int64_t)((uint64_t)d->low + (d->range ? (uint64_t)((unsigned __int128)r * d->range >> 64) : r));
      }
      sc__convert(n, dtype, to, 1, SC_INT64, tile.i, 1);
      continue;
    }
    if (d->a) sc__convert(n, SC_FLOAT64, a, 1, (sc_dtype)d->a->dtype, d->a->data + (size_t)at * sc_dtype_size((sc_dtype)d->a->dtype), 1);
    if (d->b) sc__convert(n, SC_FLOAT64, b, 1, (sc_dtype)d->b->dtype, d->b->data + (size_t)at * sc_dtype_size((sc_dtype)d->b->dtype), 1);
    for (int64_t i = 0; i < n; i++) tile.d[i] = number_at(d, w, i, d->a ? a : NULL, d->b ? b : NULL);
    sc__convert(n, dtype, to, 1, SC_FLOAT64, tile.d, 1);
  }
}

static sc_status run_draw(draw *d, sc_generator *g) {
  reserve(d, g, d->out->numel);
  double cost = d->law <= NORMAL_F32 || d->law == NOISE ? 1 : d->law == INTEGER ? 2 : 25;
  sc__parallel(d->out->ctx, (d->out->numel + TILE - 1) / TILE, 1, cost * TILE, draw_tiles, d);
  return SC_OK;
}

/* What float32 and narrower draw from 24 bits, float64 from 53. */
static law narrow(sc_dtype d, law l) { return d == SC_FLOAT64 ? l : l == UNIFORM ? UNIFORM_F32 : NORMAL_F32; }

/* ---- checks ---- */

static sc_status want_float(sc_call *c, int slot) {
  if (sc__is_float(c->meta[0].dtype)) return SC_OK;
  if (slot >= 0) return sc__bad_attr(c, slot, "expected a floating-point dtype, got %s", sc_dtype_name(c->meta[0].dtype));
  return sc__bad_input(c, 0, "expected a floating-point tensor, got %s", sc_dtype_name(c->meta[0].dtype));
}

static sc_status set_shape(sc_call *c, int slot, sc_dtype d) {
  if (c->attr[slot].n > SC_MAX_DIMS) return sc__bad_attr(c, slot, "at most %d dimensions", SC_MAX_DIMS);
  for (int i = 0; i < c->attr[slot].n; i++)
    if (c->attr[slot].v[i] < 0) return sc__bad_attr(c, slot, "size %lld of dimension %d is negative", (long long)c->attr[slot].v[i], i + c->ctx->index_base);
  sc__meta_set(&c->meta[0], d, c->attr[slot].n, c->attr[slot].v);
  return SC_OK;
}

static sc_status check_requires(sc_call *c, int slot) {
  if (c->attr[slot].i && !sc__is_float(c->meta[0].dtype)) return sc__bad_attr(c, slot, "only floating-point tensors have gradients, not %s", sc_dtype_name(c->meta[0].dtype));
  return SC_OK;
}
static sc_status make_leaf(sc_call *c, int slot) { return c->attr[slot].i ? sc_set_requires_grad(c->out[0], true) : SC_OK; }

/* ---- rand, randn, and the same like a tensor. Slots: size, dtype, requires_grad, generator; like: dtype, requires_grad, generator ---- */

static sc_status rand_infer(sc_call *c) {
  SC_TRY(set_shape(c, 0, sc__dtype_or(&c->attr[1], SC_FLOAT32)));
  return want_float(c, 1);
}
static sc_status rand_like_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = sc__dtype_or(&c->attr[0], c->meta[0].dtype);
  return want_float(c, sc__has(c, 0) ? 0 : -1);
}
static sc_status plain(sc_call *c, law l, double p0, double p1, int requires_slot, int generator_slot) {
  draw d = {.out = c->out[0], .law = narrow((sc_dtype)c->out[0]->dtype, l), .p = {p0, p1}};
  SC_TRY(run_draw(&d, generator(c, generator_slot)));
  return requires_slot < 0 ? SC_OK : make_leaf(c, requires_slot);
}
static sc_status rand_run(sc_call *c) { return plain(c, UNIFORM, 0, 1, 2, 3); }
static sc_status randn_run(sc_call *c) { return plain(c, NORMAL, 0, 1, 2, 3); }
static sc_status rand_like_run(sc_call *c) { return plain(c, UNIFORM, 0, 1, 1, 2); }
static sc_status randn_like_run(sc_call *c) { return plain(c, NORMAL, 0, 1, 1, 2); }

/* ---- integers. randint: low, high, size, dtype, requires_grad, generator; like: low, high, dtype, requires_grad, generator ---- */

static bool holds(sc_dtype d, int64_t v) {
  if (sc__is_float(d)) {                             /* whole numbers up to 2 ^ mantissa are exact */
    int bits = d == SC_FLOAT64 ? 53 : d == SC_FLOAT32 ? 24 : d == SC_FLOAT16 ? 11 : 8;
    return v <= (int64_t)1 << bits && v >= -((int64_t)1 << bits);
  }
  if (d == SC_BOOL) return v == 0 || v == 1;
  if (d == SC_INT64) return true;
  int bits = 8 * (int)sc_dtype_size(d);
  bool is_unsigned = d == SC_UINT8 || d == SC_UINT16 || d == SC_UINT32 || d == SC_UINT64;
  if (is_unsigned) return v >= 0 && (bits == 64 || v < (int64_t)1 << bits);
  return v >= -((int64_t)1 << (bits - 1)) && v < (int64_t)1 << (bits - 1);
}

static sc_status check_bounds(sc_call *c, int64_t low, int64_t high, int slot) {
  if (high <= low) return sc__bad_attr(c, slot, "expected more than the lower bound %lld, got %lld", (long long)low, (long long)high);
  if (!holds(c->meta[0].dtype, low) || !holds(c->meta[0].dtype, high - 1))
    return sc__bad_attr(c, slot, "the numbers %lld to %lld do not fit %s", (long long)low, (long long)high - 1, sc_dtype_name(c->meta[0].dtype));
  return SC_OK;
}
static sc_status draw_integers(sc_call *c, int64_t low, uint64_t range, int generator_slot) {
  draw d = {.out = c->out[0], .law = INTEGER, .low = low, .range = range};
  return run_draw(&d, generator(c, generator_slot));
}
static sc_status randint_infer(sc_call *c) {
  SC_TRY(set_shape(c, 2, sc__dtype_or(&c->attr[3], SC_INT64)));
  SC_TRY(check_bounds(c, c->attr[0].i, c->attr[1].i, 1));
  return check_requires(c, 4);
}
static sc_status randint_run(sc_call *c) {
  SC_TRY(draw_integers(c, c->attr[0].i, (uint64_t)c->attr[1].i - (uint64_t)c->attr[0].i, 5));
  return make_leaf(c, 4);
}
static sc_status randint_like_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = sc__dtype_or(&c->attr[2], c->meta[0].dtype);
  SC_TRY(check_bounds(c, c->attr[0].i, c->attr[1].i, 1));
  return check_requires(c, 3);
}
static sc_status randint_like_run(sc_call *c) {
  SC_TRY(draw_integers(c, c->attr[0].i, (uint64_t)c->attr[1].i - (uint64_t)c->attr[0].i, 4));
  return make_leaf(c, 3);
}

/* random_: from, to, generator. Without bounds: whatever the dtype holds from 0 on (floats: whole numbers that are exact). */
static void random_bounds(const sc_call *c, int64_t *low, uint64_t *range) {
  sc_dtype d = (sc_dtype)c->in[0]->dtype;
  *low = 0;
  if (sc__has(c, 1)) { *low = sc__has(c, 0) ? c->attr[0].i : 0; *range = (uint64_t)c->attr[1].i - (uint64_t)*low; return; }
  if (sc__has(c, 0)) { *range = (uint64_t)c->attr[0].i; return; }
  int bits = d == SC_FLOAT64 ? 53 : d == SC_FLOAT32 ? 24 : d == SC_FLOAT16 ? 11 : d == SC_BFLOAT16 ? 8 : d == SC_BOOL ? 1 : 8 * (int)sc_dtype_size(d);
  if (d == SC_INT8 || d == SC_INT16 || d == SC_INT32 || d == SC_INT64) bits--;
  *range = bits == 64 ? 0 : ((uint64_t)1 << bits) + sc__is_float(d);
}
static sc_status random_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  if (!sc__has(c, 0) && !sc__has(c, 1)) return SC_OK;
  int64_t low = sc__has(c, 1) && sc__has(c, 0) ? c->attr[0].i : 0;
  return check_bounds(c, low, sc__has(c, 1) ? c->attr[1].i : c->attr[0].i, sc__has(c, 1) ? 1 : 0);
}
static sc_status random_run(sc_call *c) {
  int64_t low;
  uint64_t range;
  random_bounds(c, &low, &range);
  return draw_integers(c, low, range, 2);
}

/* ---- in place: a law with parameters in the first slots, the generator in the last ---- */

static sc_status float_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  return want_float(c, -1);
}
static sc_status in_place(sc_call *c, law l) {
  draw d = {.out = c->out[0], .law = l};
  int n = c->op->n_attr - 1;
  for (int i = 0; i < n && i < 4; i++) d.p[i] = sc__number(&c->attr[i]);
  if (l == UNIFORM || l == NORMAL) d.law = narrow((sc_dtype)c->out[0]->dtype, l);
  return run_draw(&d, generator(c, n));
}
static sc_status uniform_infer(sc_call *c) {
  SC_TRY(float_infer(c));
  double from = c->attr[0].f, to = c->attr[1].f;
  if (!(to >= from) || !isfinite(to - from)) return sc__bad_attr(c, 1, "expected a finite number of at least from = %.14g, got %.14g", from, to);
  return SC_OK;
}
static sc_status uniform_run(sc_call *c) { return in_place(c, UNIFORM); }
static sc_status spread_infer(sc_call *c) {           /* the second parameter is a deviation */
  SC_TRY(float_infer(c));
  if (!(c->attr[1].f >= 0)) return sc__bad_attr(c, 1, "expected a number of at least 0, got %.14g", c->attr[1].f);
  return SC_OK;
}
static sc_status positive_spread_infer(sc_call *c) {
  SC_TRY(float_infer(c));
  if (!(c->attr[1].f > 0)) return sc__bad_attr(c, 1, "expected a number above 0, got %.14g", c->attr[1].f);
  return SC_OK;
}
static sc_status normal_inplace_run(sc_call *c) { return in_place(c, NORMAL); }
static sc_status log_normal_run(sc_call *c) { return in_place(c, LOG_NORMAL); }
static sc_status cauchy_run(sc_call *c) { return in_place(c, CAUCHY); }
static sc_status exponential_infer(sc_call *c) {
  SC_TRY(float_infer(c));
  if (!(c->attr[0].f > 0)) return sc__bad_attr(c, 0, "expected a rate above 0, got %.14g", c->attr[0].f);
  return SC_OK;
}
static sc_status exponential_run(sc_call *c) { return in_place(c, EXPONENTIAL); }
static sc_status geometric_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  if (!(c->attr[0].f > 0 && c->attr[0].f < 1)) return sc__bad_attr(c, 0, "expected a probability in (0, 1), got %.14g", c->attr[0].f);
  return SC_OK;
}
static sc_status geometric_run(sc_call *c) { return in_place(c, GEOMETRIC); }
static sc_status trunc_infer(sc_call *c) {
  SC_TRY(positive_spread_infer(c));
  if (!(c->attr[3].f > c->attr[2].f)) return sc__bad_attr(c, 3, "expected more than a = %.14g, got %.14g", c->attr[2].f, c->attr[3].f);
  return SC_OK;
}
static sc_status trunc_run(sc_call *c) { return in_place(c, TRUNC_NORMAL); }

/* ---- normal(mean, std, size, dtype, requires_grad, generator) ---- */

static sc_status normal_infer(sc_call *c) {
  sc_tensor *mean = c->in[0], *std = c->in[1];
  char text[200];
  if (sc__has(c, 0)) {
    for (int i = 0; i < 2; i++)
      if (c->in[i] && c->in[i]->ndim) return sc__bad_input(c, i, "expected a number when a size is given, got shape %s", sc__shape_text(c->in[i]->ndim, c->in[i]->dim, text, sizeof text));
    SC_TRY(set_shape(c, 0, SC_FLOAT32));
  } else {
    if (!((mean && !(mean->flags & SC_T_WRAPPED)) || (std && !(std->flags & SC_T_WRAPPED))))
      return sc__bad_attr(c, 0, "is missing: two numbers need a size");
    SC_TRY(sc__broadcast_inputs(c, 0));
    c->meta[0].dtype = sc__result_dtype(c->in, 2);
  }
  if (sc__has(c, 1)) c->meta[0].dtype = (sc_dtype)c->attr[1].i;
  if (!sc__is_float(c->meta[0].dtype)) return sc__bad_input(c, 0, "expected floating-point numbers, got %s", sc_dtype_name(c->meta[0].dtype));
  return SC_OK;
}

/* t as numbers of out's shape, packed; NULL when it is one number, which goes to *value. new */
static sc_status spread_out(const sc_tensor *t, const sc_tensor *out, double preset, double *value, sc_tensor **packed) {
  *packed = NULL;
  *value = t && t->numel == 1 ? sc__load((sc_dtype)t->dtype, t->data).f : preset;
  if (!t || t->numel == 1) return SC_OK;
  SC_TRY(sc_tensor_new(out->ctx, SC_FLOAT64, out->ndim, out->dim, packed));
  return sc__tensor_copy(*packed, t);
}

static bool any_below(const sc_tensor *t, double one, double low) {
  if (!t) return !(one >= low);
  const double *p = (const double *)t->data;
  for (int64_t i = 0; i < t->numel; i++) if (!(p[i] >= low)) return true;
  return false;
}

static sc_status normal_run(sc_call *c) {
  draw d = {.out = c->out[0], .law = NORMAL};
  sc_tensor *a = NULL, *b = NULL;
  sc_status s = spread_out(c->in[0], c->out[0], 0, &d.p[0], &a);
  if (s == SC_OK) s = spread_out(c->in[1], c->out[0], 1, &d.p[1], &b);
  if (s == SC_OK && any_below(b, d.p[1], 0)) s = sc__bad_input(c, 1, "a standard deviation is negative or NaN");
  d.a = a;
  d.b = b;
  if (!a && !b) d.law = narrow((sc_dtype)c->out[0]->dtype, NORMAL);
  if (s == SC_OK) s = run_draw(&d, generator(c, 3));
  sc_tensor_release(a);
  sc_tensor_release(b);
  return s == SC_OK ? make_leaf(c, 2) : s;
}

/* ---- bernoulli(x, p, generator) and bernoulli_(x, p: tensor, generator) ---- */

static sc_status draw_coins(sc_call *c, const sc_tensor *probability, double one, int slot) {
  draw d = {.out = c->out[0], .law = BERNOULLI};
  sc_tensor *a = NULL;
  sc_status s = spread_out(probability, c->out[0], one, &d.p[0], &a);
  if (s == SC_OK) {
    const double *p = a ? (const double *)a->data : &d.p[0];
    for (int64_t i = 0, n = a ? a->numel : c->out[0]->numel ? 1 : 0; i < n && s == SC_OK; i++)
      if (!(p[i] >= 0 && p[i] <= 1)) s = sc__bad_input(c, slot, "expected probabilities in [0, 1], got %.14g", p[i]);
  }
  d.a = a;
  if (s == SC_OK) s = run_draw(&d, generator(c, c->op->n_attr - 1));
  sc_tensor_release(a);
  return s;
}
static sc_status bernoulli_infer(sc_call *c) {
  if (sc__has(c, 0) && !(c->attr[0].f >= 0 && c->attr[0].f <= 1)) return sc__bad_attr(c, 0, "expected a probability in [0, 1], got %.14g", c->attr[0].f);
  sc__meta_like(&c->meta[0], c->in[0]);
  return sc__has(c, 0) ? SC_OK : want_float(c, -1);
}
static sc_status bernoulli_run(sc_call *c) { return sc__has(c, 0) ? draw_coins(c, NULL, c->attr[0].f, 0) : draw_coins(c, c->in[0], 0, 0); }
static sc_status bernoulli_inplace_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  sc_tensor *x = c->in[0], *p = c->in[1];
  int64_t dim[SC_MAX_DIMS];
  int n;
  char a[200], b[200];
  if (p && (p->ndim > x->ndim || !sc__broadcast(x->ndim, x->dim, p->ndim, p->dim, &n, dim) || memcmp(dim, x->dim, (size_t)x->ndim * sizeof(int64_t)) != 0))
    return sc__bad_input(c, 1, "shape %s does not broadcast to %s", sc__shape_text(p->ndim, p->dim, a, sizeof a), sc__shape_text(x->ndim, x->dim, b, sizeof b));
  return SC_OK;
}
static sc_status bernoulli_inplace_run(sc_call *c) { return draw_coins(c, c->in[1], 0.5, 1); }

/* ---- randperm: n, dtype, requires_grad, generator ---- */

static sc_status randperm_infer(sc_call *c) {
  int64_t n = c->attr[0].i;
  if (n < 0) return sc__bad_attr(c, 0, "expected a number of at least 0, got %lld", (long long)n);
  sc__meta_set(&c->meta[0], sc__dtype_or(&c->attr[1], SC_INT64), 1, &n);
  if (n && !holds(c->meta[0].dtype, n - 1 + c->base)) return sc__bad_attr(c, 0, "a permutation of %lld does not fit %s", (long long)n, sc_dtype_name(c->meta[0].dtype));
  return check_requires(c, 2);
}
/* Fisher and Yates, in order: the one thing here that cannot be split. */
static sc_status randperm_run(sc_call *c) {
  int64_t n = c->out[0]->numel;
  sc_tensor *whole = sc_tensor_retain(c->out[0]);
  if (whole->dtype != SC_INT64) {
    sc_tensor_release(whole);
    SC_TRY(sc_tensor_new(c->ctx, SC_INT64, 1, &n, &whole));
  }
  int64_t *v = (int64_t *)whole->data;
  for (int64_t i = 0; i < n; i++) v[i] = i + c->base;
  draw d = {.out = whole, .law = INTEGER};
  reserve(&d, generator(c, 3), n);
  uint32_t w[TILE * 2];
  for (int64_t at = 0; at < n; at += TILE) {
    int64_t m = n - at < TILE ? n - at : TILE;
    d.k->words(d.seed, d.counter + (uint64_t)(at * 2 / GROUP * COUNTERS_PER_GROUP), (m * 2 + GROUP - 1) / GROUP, w);
    for (int64_t i = 0; i < m; i++) {
      int64_t left = n - at - i, j = at + i + (int64_t)((unsigned __int128)wide(w + 2 * i) * (uint64_t)left >> 64), keep = v[at + i];
      v[at + i] = v[j];
      v[j] = keep;
    }
  }
  if (whole != c->out[0]) sc__tensor_copy(c->out[0], whole);
  sc_tensor_release(whole);
  return make_leaf(c, 2);
}

/* ---- multinomial: num_samples, replacement, generator ---- */

static sc_status multinomial_infer(sc_call *c) {
  sc_tensor *x = c->in[0];
  char shape[200];
  if (!sc__is_float((sc_dtype)x->dtype)) return sc__bad_input(c, 0, "expected floating-point weights, got %s", sc_dtype_name((sc_dtype)x->dtype));
  if (x->ndim < 1 || x->ndim > 2) return sc__bad_input(c, 0, "expected 1 or 2 dimensions, got shape %s", sc__shape_text(x->ndim, x->dim, shape, sizeof shape));
  int64_t n = x->dim[x->ndim - 1], k = c->attr[0].i;
  if (k <= 0) return sc__bad_attr(c, 0, "expected a number above 0, got %lld", (long long)k);
  if (!c->attr[1].i && k > n) return sc__bad_attr(c, 0, "%lld samples without replacement cannot be drawn from %lld categories", (long long)k, (long long)n);
  if (n == 0) return sc__bad_input(c, 0, "there are no categories: shape %s", sc__shape_text(x->ndim, x->dim, shape, sizeof shape));
  int64_t dim[2] = {x->dim[0], k};
  sc__meta_set(&c->meta[0], SC_INT64, x->ndim, x->ndim == 2 ? dim : &k);
  return SC_OK;
}

static sc_status check_weights(sc_call *c, const double *p, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; r++) {
    double sum = 0;
    int64_t positive = 0;
    for (int64_t i = 0; i < n; i++) {
      double v = p[r * n + i];
      if (!(v >= 0) || isinf(v)) return sc__bad_input(c, 0, "a weight is negative, infinite or NaN: %.14g", v);
      sum += v;
      positive += v > 0;
    }
    if (!(sum > 0)) return sc__bad_input(c, 0, "the weights of a distribution sum to 0");
    if (isinf(sum)) return sc__bad_input(c, 0, "the weights of a distribution sum to infinity");
    if (!c->attr[1].i && positive < c->attr[0].i)
      return sc__bad_attr(c, 0, "%lld samples without replacement cannot be drawn from %lld categories with a weight above 0", (long long)c->attr[0].i, (long long)positive);
  }
  return SC_OK;
}

/* sums[i]: weights up to and including i. The first i whose sum is above u times the total: it has a weight above 0. */
static int64_t pick(const double *sums, int64_t n, double u) {
  double at = u * sums[n - 1];
  int64_t lo = 0, hi = n - 1;
  while (lo < hi) {
    int64_t mid = lo + (hi - lo) / 2;
    if (sums[mid] > at) hi = mid; else lo = mid + 1;
  }
  while (lo > 0 && sums[lo] == sums[lo - 1]) lo--;    /* when rounding has carried `at` to the total: back to a category that counts */
  return lo;
}

typedef struct key { double value; int64_t index; } key;
static int by_key(const void *a, const void *b) {
  const key *x = a, *y = b;
  return x->value != y->value ? (x->value < y->value ? 1 : -1) : (x->index > y->index) - (x->index < y->index);
}

/* Without replacement: the largest of weight / exponential, which is drawing one after the other.
** Source: Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir". */
static sc_status multinomial_run(sc_call *c) {
  sc_tensor *x = c->in[0], *p;
  int64_t n = x->dim[x->ndim - 1], rows = x->numel / n, k = c->attr[0].i, *out = (int64_t *)c->out[0]->data;
  bool again = c->attr[1].i;
  int64_t draws = again ? k : n;
  SC_TRY(sc_tensor_new(c->ctx, SC_FLOAT64, x->ndim, x->dim, &p));
  sc__tensor_copy(p, x);
  double *weight = (double *)p->data;
  sc_status s = check_weights(c, weight, rows, n);
  key *keys = s == SC_OK ? sc__alloc(c->ctx, (size_t)n * sizeof *keys) : NULL;
  if (s == SC_OK && !keys) s = sc__no_memory(c->ctx, (size_t)n * sizeof *keys);
  if (s != SC_OK) { sc_tensor_release(p); return s; }
  draw d = {.out = p, .law = UNIFORM};
  int64_t groups = (draws * 2 + GROUP - 1) / GROUP;     /* of a row */
  reserve(&d, generator(c, 2), rows * groups * (GROUP / 2));
  uint32_t w[GROUP];
  for (int64_t r = 0; r < rows; r++, weight += n) {
    if (again) for (int64_t i = 1; i < n; i++) weight[i] += weight[i - 1];
    for (int64_t i = 0; i < draws; i++) {
      if (i % (GROUP / 2) == 0) d.k->words(d.seed, d.counter + (uint64_t)((r * groups + i / (GROUP / 2)) * COUNTERS_PER_GROUP), 1, w);
      double u = unit(w + i % (GROUP / 2) * 2);
      if (again) out[r * k + i] = pick(weight, n, u) + c->base;
      else keys[i] = (key){weight[i] > 0 ? weight[i] / fabs(log(1 - u)) : -1, i};
    }
    if (again) continue;
    qsort(keys, (size_t)n, sizeof *keys, by_key);
    for (int64_t i = 0; i < k; i++) out[r * k + i] = keys[i].index + c->base;
  }
  sc__release(c->ctx, keys, (size_t)n * sizeof *keys);
  sc_tensor_release(p);
  return SC_OK;
}

/* ---- dropout ----
** What is kept is one bit an element, which is all that the gradient needs besides p. */

typedef struct dropout_job {
  const sc_tensor *x;              /* packed */
  sc_tensor *y;
  uint8_t *bits;
  bool make;                       /* draw the bits, or use them */
  const sc_random_kernels *k;
  uint64_t seed, counter;
  double p, scale;
} dropout_job;

static void dropout_tiles(void *arg, int64_t begin, int64_t end) {
  const dropout_job *j = arg;
  _Alignas(64) uint32_t w[TILE];
  float f[TILE];
  sc_dtype dtype = (sc_dtype)j->x->dtype;
  size_t size = sc_dtype_size(dtype);
  double t = j->p * 4294967296.0;
  for (int64_t i = begin; i < end; i++) {
    int64_t at = i * TILE, n = j->x->numel - at < TILE ? j->x->numel - at : TILE, groups = (n + GROUP - 1) / GROUP;
    uint8_t *bits = j->bits + at / 8;
    const char *x = j->x->data + (size_t)at * size;
    char *y = j->y->data + (size_t)at * size;
    if (j->make && j->p >= 1) memset(bits, 0, (size_t)groups * 8);
    else if (j->make) {
      j->k->words(j->seed, j->counter + (uint64_t)(at / GROUP * COUNTERS_PER_GROUP), groups, w);
      j->k->keep(groups, w, t >= 4294967295.0 ? UINT32_MAX : (uint32_t)t, bits);
    }
    if (dtype == SC_FLOAT64) { j->k->masked_f64(n, (const double *)x, bits, j->scale, (double *)y); continue; }
    if (dtype == SC_FLOAT32) { j->k->masked_f32(n, (const float *)x, bits, (float)j->scale, (float *)y); continue; }
    sc__convert(n, SC_FLOAT32, f, 1, dtype, x, 1);
    float g[TILE];
    j->k->masked_f32(n, f, bits, (float)j->scale, g);
    sc__convert(n, dtype, y, 1, SC_FLOAT32, g, 1);
  }
}

static sc_status run_dropout(dropout_job *j, sc_tensor *x) {
  sc_tensor *packed;
  SC_TRY(sc__tensor_packed(x, &packed));
  j->x = packed;
  j->k = sc__random_kernels(x->ctx->isa);
  j->scale = j->p >= 1 ? 0 : 1 / (1 - j->p);
  sc__parallel(x->ctx, (x->numel + TILE - 1) / TILE, 1, 0.8 * TILE, dropout_tiles, j);
  sc_tensor_release(packed);
  return SC_OK;
}

static int64_t mask_bytes(int64_t n) { return n / GROUP * 8 + (n % GROUP ? 8 : 0); }

static sc_status keep_infer(sc_call *c) {
  if (!sc__is_float((sc_dtype)c->in[0]->dtype)) return sc__bad_input(c, 0, "expected a floating-point tensor, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype));
  sc__meta_like(&c->meta[0], c->in[0]);
  int64_t n = mask_bytes(c->in[0]->numel);
  sc__meta_set(&c->meta[1], SC_UINT8, 1, &n);
  c->n_out = 2;
  return SC_OK;
}
static sc_status keep_run(sc_call *c) {
  sc_generator *g = generator(c, 1);
  dropout_job j = {.y = c->out[0], .bits = (uint8_t *)c->out[1]->data, .make = true, .p = c->attr[0].f, .seed = g->seed, .counter = g->offset};
  SC_TRY(run_dropout(&j, c->in[0]));
  if (j.p < 1) sc__generator_take(g, (uint64_t)mask_bytes(c->in[0]->numel) / 8 * COUNTERS_PER_GROUP);
  return SC_OK;
}

static sc_status masked_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  if (c->in[1]->dtype != SC_UINT8 || c->in[1]->ndim != 1 || c->in[1]->dim[0] != mask_bytes(c->in[0]->numel) || !c->in[1]->contiguous)
    return sc__bad_input(c, 1, "is not the mask of a tensor of that size");
  if (!sc__is_float(c->meta[0].dtype)) return sc__bad_input(c, 0, "expected a floating-point tensor, got %s", sc_dtype_name(c->meta[0].dtype));
  return SC_OK;
}
static sc_status masked_run(sc_call *c) {
  dropout_job j = {.y = c->out[0], .bits = (uint8_t *)c->in[1]->data, .p = c->attr[0].f};
  return run_dropout(&j, c->in[0]);
}

/* dropout_noise(x, p, scale, lead, generator): scale or 0, of x's first `lead` sizes and ones */
static sc_status noise_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  if (!sc__is_float(c->meta[0].dtype)) return sc__bad_input(c, 0, "expected a floating-point tensor, got %s", sc_dtype_name(c->meta[0].dtype));
  if (c->attr[2].i < 0) return sc__bad_attr(c, 2, "expected a number of sizes, got %lld", (long long)c->attr[2].i);
  for (int64_t i = c->attr[2].i; i < c->meta[0].ndim; i++) c->meta[0].dim[i] = 1;
  return SC_OK;
}
static sc_status noise_run(sc_call *c) {
  draw d = {.out = c->out[0], .law = NOISE, .p = {c->attr[0].f, c->attr[1].f}};
  return run_draw(&d, generator(c, 3));
}

/* The functions that people call: p, training, inplace, generator. */
static sc_status finish(sc_call *c, sc_tensor *y) {
  c->n_out = 1;
  if (!c->attr[2].i || y == c->in[0]) { c->out[0] = y; return SC_OK; }
  sc_status s = sc__op2(c->ctx, "copy_", c->in[0], y, &c->out[0]);
  sc_tensor_release(y);
  c->n_out = s == SC_OK;
  return s;
}
/* Done when there is nothing to draw: y is set. */
static sc_status simple(sc_call *c, sc_tensor **y) {
  double p = c->attr[0].f;
  *y = NULL;
  c->n_out = 0;
  if (!(p >= 0 && p <= 1)) return sc__bad_attr(c, 0, "expected a probability in [0, 1], got %.14g", p);
  if (p == 0 || !c->attr[1].i || c->in[0]->numel == 0) *y = sc_tensor_retain(c->in[0]);
  else if (p == 1) return sc__op(c->ctx, "dropout_keep", c->in, 1, c->attr, 1, y);
  return SC_OK;
}
static sc_status dropout_compose(sc_call *c) {
  sc_tensor *y;
  SC_TRY(simple(c, &y));
  sc_attr attr[2] = {c->attr[0], c->attr[3]};
  if (!y) SC_TRY(sc__op(c->ctx, "dropout_keep", c->in, 1, attr, 2, &y));
  return finish(c, y);
}
static sc_status noise(sc_call *c, double scale, int lead, sc_tensor **out) {
  sc_attr attr[4] = {c->attr[0], sc__float(scale), sc__int(lead), c->attr[3]};
  return sc__op(c->ctx, "dropout_noise", c->in, 1, attr, 4, out);
}
static sc_status features(sc_call *c, int lead) {
  sc_tensor *y, *m;
  SC_TRY(simple(c, &y));
  if (!y) {
    if (c->in[0]->ndim < lead) return sc__bad_input(c, 0, "expected at least %d dimensions, got %d", lead, c->in[0]->ndim);
    SC_TRY(noise(c, 1 / (1 - c->attr[0].f), lead, &m));
    sc_status s = sc__op2(c->ctx, "mul", c->in[0], m, &y);
    sc_tensor_release(m);
    SC_TRY(s);
  }
  return finish(c, y);
}
static sc_status dropout1d_compose(sc_call *c) {
  int n = c->in[0]->ndim;
  c->n_out = 0;
  if (n != 2 && n != 3) return sc__bad_input(c, 0, "expected 2 or 3 dimensions, got %d", n);
  return features(c, n - 1);
}
static sc_status dropout2d_compose(sc_call *c) { return features(c, 2); }
static sc_status dropout3d_compose(sc_call *c) { return features(c, c->in[0]->ndim == 5 ? 2 : 1); }

static sc_status by_number(sc_context *ctx, const char *op, sc_tensor **x, double v) {
  sc_tensor *number, *y;
  SC_TRY(sc__tensor_scalar(ctx, false, 0, v, &number));
  sc_status s = sc__op2(ctx, op, *x, number, &y);
  sc_tensor_release(number);
  SC_TRY(s);
  sc_tensor_release(*x);
  *x = y;
  return SC_OK;
}

/* Dropped elements go to the value that SELU saturates at, and the result is scaled and shifted so that mean 0 and variance 1
** stay: a (x m + alpha' (1 - m)) + b with alpha' = -alpha scale. Source: Klambauer et al. 2017, "Self-normalizing neural networks". */
static sc_status alpha(sc_call *c, int lead) {
  const double alpha = 1.7580993408473766, p = c->attr[0].f;
  sc_tensor *y, *m = NULL, *shift = NULL;
  SC_TRY(simple(c, &y));
  if (y) return finish(c, y);
  if (lead < SC_MAX_DIMS && c->in[0]->ndim < lead) return sc__bad_input(c, 0, "expected at least %d dimensions, got %d", lead, c->in[0]->ndim);
  double a = 1 / sqrt((alpha * alpha * p + 1) * (1 - p));
  sc_status s = noise(c, 1, lead, &m);
  if (s == SC_OK) shift = sc_tensor_retain(m);
  if (s == SC_OK) s = by_number(c->ctx, "sub", &shift, 1);                      /* -1 where dropped */
  if (s == SC_OK) s = by_number(c->ctx, "mul", &shift, alpha * a);
  if (s == SC_OK) s = by_number(c->ctx, "add", &shift, alpha * a * p);
  if (s == SC_OK) s = by_number(c->ctx, "mul", &m, a);
  if (s == SC_OK) s = sc__op2(c->ctx, "mul", c->in[0], m, &y);
  sc_tensor_release(m);
  if (s == SC_OK) {
    sc_tensor *z;
    s = sc__op2(c->ctx, "add", y, shift, &z);
    sc_tensor_release(y);
    y = z;
  }
  sc_tensor_release(shift);
  return s == SC_OK ? finish(c, y) : s;
}
static sc_status alpha_compose(sc_call *c) { return alpha(c, SC_MAX_DIMS); }
static sc_status feature_alpha_compose(sc_call *c) { return alpha(c, 2); }

#define RANDOM SC_OP_RANDOM
#define DRAWN(text) text "\nThe same seed gives the same numbers for any number of threads."
#define INTO(signature, help, infer_, run_) \
  {signature, DRAWN(help), RANDOM | SC_OP_INPLACE_ONLY, .infer = infer_, .run = run_, .grad = {"zeros_like(dy)"}}
#define DROPOUT(name, preset, help, fn) \
  {"nn.functional." name "(x, p: float = 0.5, training: bool = " preset ", inplace: bool = false, generator: generator?)", help, \
   RANDOM | SC_OP_FUNCTION, .compose = fn}
const sc_op sc__ops_random[] = {
  {"rand(size: shape, dtype: dtype?, requires_grad: bool = false, generator: generator?)", DRAWN("Uniform in [0, 1), float32 unless a dtype is named.\nExample: sc.rand(2, 3)"),
   RANDOM | SC_OP_FUNCTION, .infer = rand_infer, .run = rand_run, .no_grad = RANDOM_NUMBER},
  {"randn(size: shape, dtype: dtype?, requires_grad: bool = false, generator: generator?)", DRAWN("Normal with mean 0 and deviation 1.\nExample: sc.randn({2, 3}, {dtype = \"float64\"})"),
   RANDOM | SC_OP_FUNCTION, .infer = rand_infer, .run = randn_run, .no_grad = RANDOM_NUMBER},
  {"rand_like(x, dtype: dtype?, requires_grad: bool = false, generator: generator?)", DRAWN("Uniform in [0, 1), of x's shape and dtype."),
   RANDOM | SC_OP_DETACH, .infer = rand_like_infer, .run = rand_like_run, .no_grad = RANDOM_NUMBER},
  {"randn_like(x, dtype: dtype?, requires_grad: bool = false, generator: generator?)", DRAWN("Normal with mean 0 and deviation 1, of x's shape and dtype."),
   RANDOM | SC_OP_DETACH, .infer = rand_like_infer, .run = randn_like_run, .no_grad = RANDOM_NUMBER},
  {"randint(low: int = 0, high: int, size: shape, dtype: dtype?, requires_grad: bool = false, generator: generator?)",
   DRAWN("Whole numbers from low up to but not including high, int64 unless a dtype is named; sc.randint(high, size) starts at 0.\nExample: sc.randint(1, 7, {2, 3})"),
   RANDOM | SC_OP_FUNCTION, .infer = randint_infer, .run = randint_run, .no_grad = RANDOM_NUMBER},
  {"randint_like(x, low: int = 0, high: int, dtype: dtype?, requires_grad: bool = false, generator: generator?)",
   DRAWN("Whole numbers from low up to but not including high, of x's shape and dtype."), RANDOM | SC_OP_DETACH,
   .infer = randint_like_infer, .run = randint_like_run, .no_grad = RANDOM_NUMBER},
  {"randperm(n: int, dtype: dtype?, requires_grad: bool = false, generator: generator?)", DRAWN("The numbers 1 to n in random order (0 to n - 1 from C).\nExample: sc.randperm(10)"),
   RANDOM | SC_OP_FUNCTION, .infer = randperm_infer, .run = randperm_run, .no_grad = RANDOM_NUMBER},
  {"bernoulli(x, p: float?, generator: generator?)", DRAWN("1 with probability p (without it: with x's own elements as probabilities), else 0; x's shape and dtype."),
   RANDOM, .infer = bernoulli_infer, .run = bernoulli_run, .grad = {"zeros_like(dy)"}},
  {"bernoulli_(x, p: tensor?, generator: generator?)", DRAWN("Writes 1 with probability p (a number or a tensor; 0.5), else 0 into x."), RANDOM | SC_OP_INPLACE_ONLY,
   .infer = bernoulli_inplace_infer, .run = bernoulli_inplace_run, .grad = {"zeros_like(dy)", NULL}},
  {"multinomial(x, num_samples: int, replacement: bool = false, generator: generator?)",
   DRAWN("Indices drawn with x's rows as weights: [n] gives [num_samples], [m, n] gives [m, num_samples]. A category of weight 0 is never drawn.\n"
         "Errors: negative, infinite or NaN weights, a row of zeros, more samples than categories without replacement.\n"
         "Example: sc.tensor{0.1, 0.9}:multinomial(5, true)"), RANDOM, .infer = multinomial_infer, .run = multinomial_run, .no_grad = "indices have no derivative"},
  {"normal(mean, std: tensor?, size: shape?, dtype: dtype?, requires_grad: bool = false, generator: generator?)",
   DRAWN("Normal with that mean and deviation (1), numbers or tensors that broadcast; two numbers need a size.\nExample: sc.normal(0, 0.02, {3, 3})"),
   RANDOM | SC_OP_FUNCTION | SC_OP_DETACH, .infer = normal_infer, .run = normal_run, .no_grad = RANDOM_NUMBER},
  INTO("uniform_(x, from: float = 0, to: float = 1, generator: generator?)", "Writes numbers uniform in [from, to) into x.", uniform_infer, uniform_run),
  INTO("normal_(x, mean: float = 0, std: float = 1, generator: generator?)", "Writes normal numbers into x.", spread_infer, normal_inplace_run),
  INTO("log_normal_(x, mean: float = 1, std: float = 2, generator: generator?)", "Writes numbers whose logarithm is normal with that mean and deviation into x.", positive_spread_infer, log_normal_run),
  INTO("cauchy_(x, median: float = 0, sigma: float = 1, generator: generator?)", "Writes numbers of the Cauchy distribution into x.", positive_spread_infer, cauchy_run),
  INTO("exponential_(x, lambd: float = 1, generator: generator?)", "Writes numbers of the exponential distribution with rate lambd into x.", exponential_infer, exponential_run),
  INTO("geometric_(x, p: float, generator: generator?)", "Writes the number of trials up to the first success, each of probability p, into x.", geometric_infer, geometric_run),
  INTO("random_(x, from: int?, to: int?, generator: generator?)", "Writes whole numbers from `from` up to but not including `to` into x; one number is `to`; none: all that the dtype holds from 0 on.", random_infer, random_run),
  INTO("trunc_normal_(x, mean: float = 0, std: float = 1, a: float = -2, b: float = 2, generator: generator?)", "Writes normal numbers that lie in [a, b] into x.", trunc_infer, trunc_run),
  DROPOUT("dropout", "true", "x with each element set to 0 with probability p and the others divided by 1 - p; x itself when not training.\nExample: F.dropout(x, 0.1, model.training)\n"
          "Source: Srivastava et al. 2014, \"Dropout: a simple way to prevent neural networks from overfitting\".", dropout_compose),
  DROPOUT("dropout1d", "true", "Dropout of whole channels: x is [N, C, L] or [C, L].", dropout1d_compose),
  DROPOUT("dropout2d", "true", "Dropout of whole channels: x is [N, C, H, W].", dropout2d_compose),
  DROPOUT("dropout3d", "true", "Dropout of whole channels: x is [N, C, D, H, W] or [C, D, H, W].", dropout3d_compose),
  DROPOUT("alpha_dropout", "false", "Dropout that keeps mean and variance, for networks with SELU.", alpha_compose),
  DROPOUT("feature_alpha_dropout", "false", "Alpha dropout of whole channels: x is [N, C, …].", feature_alpha_compose),
  {"dropout_keep(x, p: float, generator: generator?) -> y, mask", "Dropout's result and which elements were kept, a bit each.", RANDOM | SC_OP_INTERNAL,
   .infer = keep_infer, .run = keep_run, .over = 1, .grad = {"dropout_masked(dy, y2, p)"}},
  {"dropout_masked(x, mask, p: float)", "x where the mask's bit is set, divided by 1 - p, else 0.", SC_OP_INTERNAL, .infer = masked_infer, .run = masked_run, .cost = sc__cost_bytes, .over = 1,
   .grad = {"dropout_masked(dy, mask, p)", NULL}},
  {"dropout_noise(x, p: float, scale: float, lead: int, generator: generator?)", "scale with probability 1 - p, else 0; x's first sizes, then ones.",
   RANDOM | SC_OP_INTERNAL | SC_OP_DETACH, .infer = noise_infer, .run = noise_run, .no_grad = RANDOM_NUMBER},
};
const int sc__ops_random_count = SC_COUNT(sc__ops_random);
