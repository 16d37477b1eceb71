/* Sampling at given places: grid_sample and affine_grid.
**
** A place gives a short list of taps per dim (index, weight, derivative of the weight); a sample is the sum over the product of the
** lists. So all modes, two and three dims, and both gradients are one loop. An index of -1 is outside and counts as 0; a place that
** is not a number has only such taps. Source: PyTorch's grid_sample (padding modes, align_corners). */
#include "neural.h"

#include <math.h>
#include <string.h>

enum { G_MODE, G_PADDING, G_ALIGN };
typedef enum mode { BILINEAR, NEAREST, BICUBIC } mode;
typedef enum padding { ZEROS, BORDER, REFLECTION } padding;

typedef struct taps { int n; int64_t index[4]; double w[4], dw[4]; } taps;

typedef struct sampler {
  mode m;
  padding p;
  bool align, single;                  /* single: places are computed in float */
  int nd;
  int64_t N, C, in[3], out, pixels;    /* in: sizes of x; out: places of a sample */
} sampler;

/* x brought inside [0, n - 1]; *slope times the derivative. */
static double clip(double x, int64_t n, double *slope) {
  if (x <= 0) { *slope = 0; return 0; }
  if (x >= (double)(n - 1)) { *slope = 0; return (double)(n - 1); }
  return x;
}

static double reflect(double x, int64_t n, bool align, double *slope) {
  double low = align ? 0 : -0.5, span = align ? (double)(n - 1) : (double)n;
  if (span <= 0) { *slope = 0; return 0; }
  x -= low;
  if (x < 0) { x = -x; *slope = -*slope; }
  double extra = fmod(x, span), flips = floor(x / span);
  if (fmod(flips, 2) == 0) return extra + low;
  *slope = -*slope;
  return span - extra + low;
}

static double place(const sampler *s, double x, int64_t n, double *slope) {
  if (s->p == REFLECTION) x = reflect(x, n, s->align, slope);
  return s->p == ZEROS ? x : clip(x, n, slope);
}

static int64_t within(double x, int64_t n) { return x >= 0 && x <= (double)(n - 1) ? (int64_t)x : -1; }

static void cubic(double t, double w[4], double dw[4]) {
  const double a = -0.75;
  for (int k = 0; k < 4; k++) {
    double sign = k < 2 ? 1 : -1, x = k == 0 ? t + 1 : k == 1 ? t : k == 2 ? 1 - t : 2 - t;
    bool near = k == 1 || k == 2;
    w[k] = near ? ((a + 2) * x - (a + 3)) * x * x + 1 : ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
    dw[k] = sign * (near ? (3 * (a + 2) * x - 2 * (a + 3)) * x : (3 * a * x - 10 * a) * x + 8 * a);
  }
}

static void make_taps(const sampler *s, double g, int64_t n, taps *t) {
  double slope = s->align ? (double)(n - 1) / 2 : (double)n / 2;
  double x = s->align ? (g + 1) / 2 * (double)(n - 1) : ((g + 1) * (double)n - 1) / 2;
  if (s->single) x = s->align ? (float)((float)((float)g + 1.0f) / 2.0f * (float)(n - 1)) : (float)((((float)g + 1.0f) * (float)n - 1.0f) / 2.0f);
  t->n = s->m == BILINEAR ? 2 : s->m == NEAREST ? 1 : 4;
  if (s->m != BICUBIC) x = place(s, x, n, &slope);
  if (!(fabs(x) < 1e15)) {                               /* far away, or not a number */
    for (int k = 0; k < t->n; k++) { t->index[k] = -1; t->w[k] = t->dw[k] = 0; }
    return;
  }
  if (s->m == NEAREST) { t->index[0] = within(nearbyint(x), n); t->w[0] = 1; t->dw[0] = 0; return; }
  double from = floor(x), part = x - from;
  if (s->m == BILINEAR) {
    for (int k = 0; k < 2; k++) t->index[k] = within(from + k, n);
    t->w[0] = 1 - part; t->dw[0] = -slope;
    t->w[1] = part; t->dw[1] = slope;
    return;
  }
  cubic(part, t->w, t->dw);
  for (int k = 0; k < 4; k++) {
    double unused = 1;
    t->dw[k] *= slope;
    t->index[k] = within(nearbyint(place(s, from - 1 + k, n, &unused)), n);
  }
}

/* The taps of place `at` of sample n: in the order of x's dims (the grid's last dim holds x, y, z). */
static void taps_at(const sampler *s, sc_dtype type, const void *grid, int64_t n, int64_t at, taps t[3]) {
  int64_t base = (n * s->out + at) * s->nd;
  for (int d = 0; d < 3; d++) {
    if (d < 3 - s->nd) { t[d] = (taps){.n = 1, .index = {0}, .w = {1}}; continue; }
    int64_t i = base + (2 - d);
    double g = type == SC_FLOAT32 ? (double)((const float *)grid)[i] : ((const double *)grid)[i];
    make_taps(s, g, s->in[d], &t[d]);
  }
}

/* Visits the taps inside: `offset` within a plane, the weight `w`, and `dw[d]`, its derivative by the place along d. */
#define EACH_TAP(body) \
  for (int a_ = 0; a_ < t[0].n; a_++) \
    for (int b_ = 0; b_ < t[1].n; b_++) \
      for (int c_ = 0; c_ < t[2].n; c_++) { \
        if (t[0].index[a_] < 0 || t[1].index[b_] < 0 || t[2].index[c_] < 0) continue; \
        int64_t offset = (t[0].index[a_] * s->in[1] + t[1].index[b_]) * s->in[2] + t[2].index[c_]; \
        double u0 = t[0].w[a_], u1 = t[1].w[b_], u2 = t[2].w[c_], w = u0 * u1 * u2; \
        double dw[3] = {t[0].dw[a_] * u1 * u2, u0 * t[1].dw[b_] * u2, u0 * u1 * t[2].dw[c_]}; \
        (void)dw; (void)w; \
        body \
      }

typedef struct job { const sampler *s; sc_dtype type; const void *x, *grid, *dy; void *y, *dx, *dgrid; } job;

#define FORWARD(T) { \
    const T *x = (const T *)j->x + n * s->C * s->pixels; \
    T *y = (T *)j->y + n * s->C * s->out + at; \
    for (int64_t c = 0; c < s->C; c++) { double sum = 0; EACH_TAP(sum += w * (double)x[c * s->pixels + offset];) y[c * s->out] = (T)sum; } }
#define BACKWARD(T) { \
    const T *x = (const T *)j->x + n * s->C * s->pixels, *dy = (const T *)j->dy + n * s->C * s->out + at; \
    T *dx = (T *)j->dx + n * s->C * s->pixels, *dg = (T *)j->dgrid + (n * s->out + at) * s->nd; \
    double g[3] = {0}; \
    for (int64_t c = 0; c < s->C; c++) { \
      double d = (double)dy[c * s->out]; \
      EACH_TAP(dx[c * s->pixels + offset] += (T)(w * d); double v = d * (double)x[c * s->pixels + offset]; for (int k = 0; k < 3; k++) g[k] += dw[k] * v;) \
    } \
    for (int d = 3 - s->nd; d < 3; d++) dg[2 - d] = (T)g[d]; }

static void forward_piece(void *arg, int64_t begin, int64_t end) {
  const job *j = arg;
  const sampler *s = j->s;
  taps t[3];
  for (int64_t i = begin; i < end; i++) {
    int64_t n = i / s->out, at = i % s->out;
    taps_at(s, j->type, j->grid, n, at, t);
    if (j->type == SC_FLOAT32) FORWARD(float) else FORWARD(double)
  }
}

static void backward_piece(void *arg, int64_t begin, int64_t end) {   /* samples: places of one sample may meet in dx */
  const job *j = arg;
  const sampler *s = j->s;
  taps t[3];
  for (int64_t n = begin; n < end; n++)
    for (int64_t at = 0; at < s->out; at++) {
      taps_at(s, j->type, j->grid, n, at, t);
      if (j->type == SC_FLOAT32) BACKWARD(float) else BACKWARD(double)
    }
}

static sampler sampler_of(const sc_call *c, const sc_tensor *x, const sc_tensor *grid) {
  const char *m = c->attr[G_MODE].s, *p = c->attr[G_PADDING].s;
  sampler s = {.m = strcmp(m, "nearest") == 0 ? NEAREST : strcmp(m, "bicubic") == 0 ? BICUBIC : BILINEAR, .p = strcmp(p, "border") == 0 ? BORDER : strcmp(p, "reflection") == 0 ? REFLECTION : ZEROS,
               .align = c->attr[G_ALIGN].i, .single = (sc_dtype)x->dtype != SC_FLOAT64, .nd = x->ndim - 2, .N = x->dim[0], .C = x->dim[1], .in = {1, 1, 1}};
  for (int i = 0; i < s.nd; i++) s.in[3 - s.nd + i] = x->dim[2 + i];
  s.pixels = s.in[0] * s.in[1] * s.in[2];
  s.out = sc__product(grid->dim + 1, s.nd);
  return s;
}

static bool one_of(const char *s, const char *a, const char *b, const char *c) { return strcmp(s, a) == 0 || strcmp(s, b) == 0 || strcmp(s, c) == 0; }

static sc_status check_sample(sc_call *c, int from) {
  const sc_tensor *x = c->in[from], *grid = c->in[from + 1];
  char a[200], b[200];
  if (x->ndim != 4 && x->ndim != 5) return sc__bad_input(c, from, "expected 4 or 5 dimensions, got shape %s", sc__shape_text(x->ndim, x->dim, a, sizeof a));
  if (!sc__is_float((sc_dtype)x->dtype) || grid->dtype != x->dtype)
    return sc__bad_input(c, from + 1, "input and grid must be of the same float dtype, got %s and %s", sc_dtype_name((sc_dtype)x->dtype), sc_dtype_name((sc_dtype)grid->dtype));
  if (grid->ndim != x->ndim || grid->dim[0] != x->dim[0] || grid->dim[grid->ndim - 1] != x->ndim - 2)
    return sc__bad_input(c, from + 1, "a grid of shape %s does not fit an input of shape %s", sc__shape_text(grid->ndim, grid->dim, a, sizeof a), sc__shape_text(x->ndim, x->dim, b, sizeof b));
  for (int i = 2; i < x->ndim; i++) if (x->dim[i] < 1) return sc__bad_input(c, from, "expected sizes above 0, got shape %s", sc__shape_text(x->ndim, x->dim, a, sizeof a));
  if (!one_of(c->attr[G_MODE].s, "bilinear", "nearest", "bicubic")) return sc__bad_attr(c, G_MODE, "expected bilinear, nearest or bicubic, got \"%.40s\"", c->attr[G_MODE].s);
  if (!one_of(c->attr[G_PADDING].s, "zeros", "border", "reflection")) return sc__bad_attr(c, G_PADDING, "expected zeros, border or reflection, got \"%.40s\"", c->attr[G_PADDING].s);
  if (x->ndim == 5 && strcmp(c->attr[G_MODE].s, "bicubic") == 0) return sc__bad_attr(c, G_MODE, "bicubic is for 4 dimensions");
  return SC_OK;
}

static sc_status sample_infer(sc_call *c) {
  SC_TRY(check_sample(c, 0));
  const sc_tensor *x = c->in[0], *grid = c->in[1];
  sc__meta_like(&c->meta[0], x);
  for (int i = 2; i < x->ndim; i++) c->meta[0].dim[i] = grid->dim[i - 1];
  return SC_OK;
}

static sc_status sample_run(sc_call *c) {
  sampler s = sampler_of(c, c->in[0], c->in[1]);
  sc_work w;
  sc_status status = sc__work_begin(&w, c, s.single ? SC_FLOAT32 : SC_FLOAT64, 0);
  if (status == SC_OK && c->out[0]->numel) {
    job j = {.s = &s, .type = w.type, .x = w.in[0]->data, .grid = w.in[1]->data, .y = w.out[0]->data};
    sc__parallel(c->ctx, s.N * s.out, 64, (double)s.C * 20, forward_piece, &j);
  }
  return sc__work_end(&w, status);
}

static sc_status sample_back_infer(sc_call *c) {
  SC_TRY(check_sample(c, 1));
  const sc_tensor *x = c->in[1], *grid = c->in[2];
  int64_t dim[SC_MAX_DIMS];
  for (int i = 0; i < x->ndim; i++) dim[i] = i < 2 ? x->dim[i] : grid->dim[i - 1];
  SC_TRY(sc__want(c, 0, x->ndim, dim));
  sc__meta_like(&c->meta[0], c->in[1]);
  sc__meta_like(&c->meta[1], c->in[2]);
  c->n_out = 2;
  return SC_OK;
}

static sc_status sample_back_run(sc_call *c) {
  sampler s = sampler_of(c, c->in[1], c->in[2]);
  sc_work w;
  sc_status status = sc__work_begin(&w, c, s.single ? SC_FLOAT32 : SC_FLOAT64, 0);
  if (status == SC_OK) {
    for (int i = 0; i < 2; i++) memset(w.out[i]->data, 0, (size_t)w.out[i]->numel * sc_dtype_size(w.type));
    job j = {.s = &s, .type = w.type, .dy = w.in[0]->data, .x = w.in[1]->data, .grid = w.in[2]->data, .dx = w.out[0]->data, .dgrid = w.out[1]->data};
    sc__parallel(c->ctx, s.N, 1, (double)s.C * (double)s.out * 40, backward_piece, &j);
  }
  return sc__work_end(&w, status);
}

static sc_status sample_backward(sc_grad_call *g) {
  sc_tensor *in[3] = {g->dy[0], g->in[0], g->in[1]}, *out[2];
  int n;
  if (g->ctx->grad_enabled) return sc__fail(g->ctx, SC_EINVAL, "grid_sample: gradients of its gradients are not available");
  SC_TRY(sc__emit(g->ctx, sc__op_find(g->ctx, "grid_sample_backward"), in, 3, g->attr, g->base, out, &n));
  for (int i = 0; i < 2; i++) if (g->wanted[i]) g->dx[i] = out[i]; else sc_tensor_release(out[i]);
  return SC_OK;
}

static sc_status grid_sample(sc_call *c) {
  SC_TRY(sc__op(c->ctx, "grid_values", c->in, 2, c->attr, 3, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

/* affine_grid: size 0, align_corners 1. A constant grid of corners times theta. */
static sc_status affine_grid(sc_call *c) {
  sc_tensor *theta = c->in[0], *base = NULL;
  const sc_attr *size = &c->attr[0];
  char t[200];
  int nd = size->n - 2;
  bool align = c->attr[1].i;
  if (nd != 2 && nd != 3) return sc__bad_attr(c, 0, "expected 4 or 5 sizes, got %d", size->n);
  if (!sc__is_float((sc_dtype)theta->dtype) || theta->ndim != 3 || theta->dim[0] != size->v[0] || theta->dim[1] != nd || theta->dim[2] != nd + 1)
    return sc__bad_input(c, 0, "expected floats of shape {%lld, %d, %d}, got shape %s", (long long)size->v[0], nd, nd + 1, sc__shape_text(theta->ndim, theta->dim, t, sizeof t));
  for (int i = 0; i < size->n; i++) if (size->v[i] < 1) return sc__bad_attr(c, 0, "expected sizes above 0, got %s", sc__shape_text(size->n, size->v, t, sizeof t));
  int64_t points = 1, dim[2] = {0, nd + 1}, shape[5] = {size->v[0]};
  for (int i = 0; i < nd; i++) { if (!sc__mul(points, size->v[2 + i], &points)) return sc__bad_attr(c, 0, "the grid is too large"); shape[1 + i] = size->v[2 + i]; }
  shape[1 + nd] = nd;
  dim[0] = points;
  sc_ex e = {.ctx = c->ctx};
  e.s = sc_tensor_new(c->ctx, (sc_dtype)theta->dtype, 2, dim, &base);
  if (e.s == SC_OK) {
    size_t z = sc_dtype_size((sc_dtype)theta->dtype);
    e.own[e.n++] = base;
    for (int64_t p = 0; p < points; p++) {
      int64_t rest = p;
      for (int d = 0; d <= nd; d++) {                    /* x (the last dim) first, then y, z, 1 */
        double v = 1;
        if (d < nd) {
          int64_t n = size->v[2 + nd - 1 - d], i = rest % n;
          rest /= n;
          v = n == 1 ? 0 : -1 + 2 * (double)i / (double)(n - 1);
          if (!align) v = (double)(2 * i + 1) / (double)n - 1;
        }
        sc__store((sc_dtype)theta->dtype, base->data + (size_t)(p * (nd + 1) + d) * z, sc__scalar_float(v));
      }
    }
  }
  sc_attr swap[2] = {sc__int(1), sc__int(2)};
  sc_tensor *y = base ? sc__ex2(&e, "matmul", base, sc__ex(&e, "transpose", theta, NULL, swap, 2)) : NULL;
  sc_status s = sc__ex_end(&e, sc__ex_shape(&e, "reshape", y, shape, nd + 2), &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

const sc_op sc__ops_gridsample[] = {
  {"grid_values(x, grid, mode: str, padding: str, align: bool)", "x at the places of a grid.", SC_OP_INTERNAL | SC_OP_SAVE_NO_OUT, .infer = sample_infer, .run = sample_run,
   .backward = sample_backward},
  {"grid_sample_backward(dy, x, grid, mode: str, padding: str, align: bool) -> dx, dgrid", "grid_values' gradient.", SC_OP_INTERNAL, .infer = sample_back_infer,
   .run = sample_back_run, .no_grad = "gradients of gradients of grid_sample are not available"},
  {"nn.functional.grid_sample(x, grid, mode: str = \"bilinear\", padding_mode: str = \"zeros\", align_corners: bool = false)",
   "x at the places of grid, coordinates from -1 to 1.\nShapes: x [N, C, H, W], grid [N, Ho, Wo, 2] (x, y); or x [N, C, D, H, W], grid [N, Do, Ho, Wo, 3].\n"
   "mode: bilinear, nearest, bicubic. padding_mode: zeros, border, reflection.\nErrors: shapes that do not fit.", SC_OP_FUNCTION, .compose = grid_sample},
  {"nn.functional.affine_grid(theta, size: int[], align_corners: bool = false)", "The grid of places of an affine map, for grid_sample.\nShapes: theta [N, 2, 3] with size {N, C, H, W} "
   "gives [N, H, W, 2]; theta [N, 3, 4] with 5 sizes likewise.", SC_OP_FUNCTION, .compose = affine_grid},
};
const int sc__ops_gridsample_count = SC_COUNT(sc__ops_gridsample);
