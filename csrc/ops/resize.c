/* Interpolation: a table of weights per dim (one source for nearest, two for linear, four for cubic), applied dim by dim. The adjoint
** spreads by the same tables. Source: PyTorch's conventions for align_corners and for scale factors that are given or recomputed. */
#include "../kernels/separable.h"
#include "neural.h"

#include <math.h>
#include <string.h>

enum { R_SIZE, R_MODE, R_ALIGN, R_SCALES };   /* resample's attributes; size: the whole shape of the result */

typedef enum mode { NEAREST, NEAREST_EXACT, LINEAR, CUBIC } mode;

static mode mode_of(const char *s) {
  return strcmp(s, "nearest") == 0 ? NEAREST : strcmp(s, "nearest-exact") == 0 ? NEAREST_EXACT : strcmp(s, "cubic") == 0 ? CUBIC : LINEAR;
}

/* The cubic convolution kernel with a = -0.75, at distances t + 1, t, 1 - t, 2 - t. */
static void cubic_weights(double t, double w[4]) {
  const double a = -0.75;
  double x = t + 1;
  w[0] = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  w[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
  x = 1 - t;
  w[2] = ((a + 2) * x - (a + 3)) * x * x + 1;
  x = 2 - t;
  w[3] = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

static int64_t inside(int64_t i, int64_t n) { return i < 0 ? 0 : i >= n ? n - 1 : i; }

/* scale: given by the caller (result / source), 0: none. Nearest positions are computed in float, as everybody's are. */
static sc_status make_taps(sc_context *ctx, mode m, bool align, double scale, int64_t in, int64_t out, sc_taps *t) {
  int64_t T = m == CUBIC ? 4 : m == LINEAR ? 2 : 1;
  SC_TRY(sc__taps_new(ctx, in, out, T, t));
  double step = align ? (out > 1 ? (double)(in - 1) / (double)(out - 1) : 0) : scale > 0 ? 1 / scale : (double)in / (double)out;
  float near = scale > 0 ? (float)(1 / scale) : (float)in / (float)out;
  for (int64_t j = 0; j < out; j++) {
    int64_t *index = t->index + j * T;
    double *w = t->weight + j * T;
    if (m == NEAREST || m == NEAREST_EXACT) {
      float at = m == NEAREST ? floorf((float)j * near) : floorf(((float)j + 0.5f) * near);
      index[0] = m == NEAREST && in == out ? j : inside((int64_t)at, in);
      w[0] = 1;
      continue;
    }
    double x = align ? step * (double)j : step * ((double)j + 0.5) - 0.5;
    if (m == LINEAR && x < 0) x = 0;
    int64_t from = (int64_t)floor(x);
    double part = x - (double)from;
    if (m == LINEAR) {
      if (from > in - 1) { from = in - 1; part = 0; }
      index[0] = from;
      w[0] = 1 - part;
      index[1] = from + 1 < in ? from + 1 : from;
      w[1] = part;
    } else {
      cubic_weights(part, w);
      for (int k = 0; k < 4; k++) index[k] = inside(from - 1 + k, in);
    }
  }
  return SC_OK;
}

static sc_status resample_infer(sc_call *c) {
  if (c->attr[R_SIZE].n != c->in[0]->ndim || c->in[0]->ndim < 3) return sc__bad_call(c, "the shapes do not belong together");
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->attr[R_SIZE].n, c->attr[R_SIZE].v);
  return SC_OK;
}

static sc_status resample(sc_call *c, bool adjoint) {
  const sc_tensor *x = c->in[0], *y = c->out[0];
  int nd = x->ndim - 2;
  sc_taps t[SC_MAX_DIMS] = {0};
  sc_work w;
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)x->dtype), 0);
  if (s == SC_OK && !sc__is_float((sc_dtype)y->dtype) && y->dtype != SC_INT64) {     /* small integers: through int64 */
    sc_tensor_release(w.out[0]);
    w.out[0] = NULL;
    s = sc_tensor_new(c->ctx, SC_INT64, y->ndim, y->dim, &w.out[0]);
  }
  for (int i = 0; i < nd && s == SC_OK; i++) {
    double scale = 0;
    if (c->attr[R_SCALES].kind == SC_ATTR_FLOATS && i < c->attr[R_SCALES].n) memcpy(&scale, &c->attr[R_SCALES].v[i], 8);
    int64_t in = adjoint ? y->dim[2 + i] : x->dim[2 + i], out = adjoint ? x->dim[2 + i] : y->dim[2 + i];
    s = make_taps(c->ctx, mode_of(c->attr[R_MODE].s), c->attr[R_ALIGN].i, scale, in, out, &t[i]);
  }
  if (s == SC_OK && y->numel) {
    sc_ctype type = w.type == SC_FLOAT64 ? SC_C_F64 : w.type == SC_FLOAT32 ? SC_C_F32 : SC_C_I64;
    s = sc__separable(c->ctx, type, x->dim[0] * x->dim[1], nd, t, adjoint, w.in[0]->data, w.out[0]->data);
  }
  sc__taps_free(c->ctx, t, nd);
  return sc__work_end(&w, s);
}
static sc_status resample_run(sc_call *c) { return resample(c, false); }
static sc_status resample_adjoint_run(sc_call *c) { return resample(c, true); }

/* ---- what people call ---- */

/* The sizes of the result from size or scale_factor; scales: what was given, unless it is to be recomputed. */
static sc_status target_sizes(sc_call *c, int size_slot, int scale_slot, bool recompute, int64_t *size, int64_t *scales, bool *scaled) {
  const sc_tensor *x = c->in[0];
  const sc_attr *want = &c->attr[size_slot], *scale = &c->attr[scale_slot];
  int nd = x->ndim - 2;
  bool by_size = want->kind != SC_ATTR_NONE, by_scale = scale->kind != SC_ATTR_NONE;
  if (by_size == by_scale) return sc__bad_attr(c, size_slot, by_size ? "size and scale_factor exclude each other" : "size or scale_factor is needed");
  int n = by_size ? want->n : scale->n;
  if (n != nd && n != 1) return sc__bad_attr(c, by_size ? size_slot : scale_slot, "expected 1 or %d numbers, got %d", nd, n);
  if (by_size && recompute) return sc__bad_attr(c, size_slot, "recompute_scale_factor goes with scale_factor");
  size[0] = x->dim[0];
  size[1] = x->dim[1];
  for (int i = 0; i < nd; i++) {
    double f = 0;
    int k = n == 1 ? 0 : i;
    if (by_scale) {
      memcpy(&f, &scale->v[k], 8);
      double to = floor((double)x->dim[2 + i] * f);
      if (!(f > 0) || !(to < 9e15)) return sc__bad_attr(c, scale_slot, "expected numbers above 0, got %g", f);
      size[2 + i] = (int64_t)to;
    } else {
      size[2 + i] = want->v[k];
    }
    memcpy(&scales[i], &f, 8);
    if (size[2 + i] < 1 || x->dim[2 + i] < 1) {
      char t[200];
      return sc__bad_attr(c, by_size ? size_slot : scale_slot, "sizes must be above 0: input shape %s, wanted size %lld", sc__shape_text(x->ndim, x->dim, t, sizeof t),
                          (long long)size[2 + i]);
    }
  }
  *scaled = by_scale && !recompute;
  return SC_OK;
}

static sc_status emit_resample(sc_call *c, const char *mode, bool align, const int64_t *size, const int64_t *scales, bool scaled) {
  int n = c->in[0]->ndim;
  sc_attr attr[4] = {sc__ints(size, n), sc__str(mode), sc__bool(align), scaled ? (sc_attr){.kind = SC_ATTR_FLOATS, .n = n - 2, .v = scales} : sc__none()};
  SC_TRY(sc__op(c->ctx, "resample", c->in, 1, attr, 4, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

enum { I_SIZE, I_SCALE, I_MODE, I_ALIGN, I_RECOMPUTE, I_ANTIALIAS };

static sc_status interpolate(sc_call *c) {
  static const struct { const char *name, *how; int ndim; bool align; } MODES[] = {
    {"nearest", "nearest", 0, false}, {"nearest-exact", "nearest-exact", 0, false}, {"linear", "linear", 3, true}, {"bilinear", "linear", 4, true},
    {"trilinear", "linear", 5, true}, {"bicubic", "cubic", 4, true}, {"area", "area", 0, false}};
  sc_tensor *x = c->in[0];
  char t[200];
  if (x->ndim < 3 || x->ndim > 5)
    return sc__bad_input(c, 0, "expected 3 to 5 dimensions [N, C, …], got shape %s", sc__shape_text(x->ndim, x->dim, t, sizeof t));
  int m = -1;
  for (int i = 0; i < SC_COUNT(MODES); i++) if (strcmp(MODES[i].name, c->attr[I_MODE].s) == 0) m = i;
  if (m < 0) return sc__bad_attr(c, I_MODE, "expected nearest, nearest-exact, linear, bilinear, trilinear, bicubic or area, got \"%.40s\"", c->attr[I_MODE].s);
  if (MODES[m].ndim && MODES[m].ndim != x->ndim)
    return sc__bad_attr(c, I_MODE, "\"%s\" is for %d dimensions, the input has shape %s", MODES[m].name, MODES[m].ndim, sc__shape_text(x->ndim, x->dim, t, sizeof t));
  if (sc__has(c, I_ALIGN) && !MODES[m].align) return sc__bad_attr(c, I_ALIGN, "align_corners does not go with \"%s\"", MODES[m].name);
  if (sc__has(c, I_ANTIALIAS) && c->attr[I_ANTIALIAS].i) return sc__bad_attr(c, I_ANTIALIAS, "antialias is not available");
  bool exact = m > 1;
  if (exact && !sc__is_float((sc_dtype)x->dtype)) return sc__bad_input(c, 0, "\"%s\" is for floats, got %s", MODES[m].name, sc_dtype_name((sc_dtype)x->dtype));
  int64_t size[5], scales[3];
  bool scaled;
  SC_TRY(target_sizes(c, I_SIZE, I_SCALE, sc__has(c, I_RECOMPUTE) && c->attr[I_RECOMPUTE].i, size, scales, &scaled));
  if (strcmp(MODES[m].how, "area") != 0) return emit_resample(c, MODES[m].how, sc__has(c, I_ALIGN) && c->attr[I_ALIGN].i, size, scales, scaled);
  sc_attr none = sc__ints(size, 0), attr[7] = {sc__ints(size, x->ndim), none, none, none, sc__bool(true), sc__none(), sc__int(x->ndim - 2)};
  SC_TRY(sc__op(c->ctx, "avg_windows", c->in, 1, attr, 7, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

static sc_status upsample(sc_call *c, const char *mode, bool align) {
  sc_tensor *x = c->in[0];
  char t[200];
  if (x->ndim < 3 || x->ndim > 5 || (align && x->ndim != 4))
    return sc__bad_input(c, 0, "expected %s dimensions, got shape %s", align ? "4" : "3 to 5", sc__shape_text(x->ndim, x->dim, t, sizeof t));
  int64_t size[5], scales[3];
  bool scaled;
  SC_TRY(target_sizes(c, 0, 1, false, size, scales, &scaled));
  return emit_resample(c, mode, align, size, scales, scaled);
}
static sc_status upsample_nearest(sc_call *c) { return upsample(c, "nearest", false); }
static sc_status upsample_bilinear(sc_call *c) { return upsample(c, "linear", true); }

const sc_op sc__ops_resize[] = {
  {"resample(x, size: int[], mode: str, align: bool, scales: float[]?)", "x resampled to that shape.", SC_OP_INTERNAL, .infer = resample_infer, .run = resample_run,
   .grad = {"resample_adjoint(dy, shape(x), mode, align, scales)"}},
  {"resample_adjoint(x, size: int[], mode: str, align: bool, scales: float[]?)", "resample's adjoint.", SC_OP_INTERNAL, .infer = resample_infer,
   .run = resample_adjoint_run, .grad = {"resample(dy, shape(x), mode, align, scales)"}},
  {"nn.functional.interpolate(x, size: int[]?, scale_factor: float[]?, mode: str = \"nearest\", align_corners: bool?, recompute_scale_factor: bool?, antialias: bool = false)",
   "x [N, C, …] resampled to a size or by a factor.\nmode: nearest, nearest-exact, linear (3 dimensions), bilinear and bicubic (4), trilinear (5), area.\n"
   "Errors: size and scale_factor together or neither; a mode for other dimensions; align_corners with nearest or area.\n"
   "Example: sc.nn.functional.interpolate(sc.ones(1, 1, 2, 2), {scale_factor = 2, mode = \"bilinear\"})", SC_OP_FUNCTION, .compose = interpolate},
  {"nn.functional.upsample_nearest(x, size: int[]?, scale_factor: float[]?)", "interpolate with mode nearest.", SC_OP_FUNCTION, .compose = upsample_nearest},
  {"nn.functional.upsample_bilinear(x, size: int[]?, scale_factor: float[]?)", "interpolate with mode bilinear and align_corners.", SC_OP_FUNCTION,
   .compose = upsample_bilinear},
};
const int sc__ops_resize_count = SC_COUNT(sc__ops_resize);
