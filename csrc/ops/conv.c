/* Convolutions. Three internal ops are each other's adjoints, so gradients of any order are convolutions again:
**
**   convolution(x, weight)        y[n, o, p] = sum over c, k of weight[o, c, k] x[n, c, p * stride - padding + k * dilation]
**   convolution_input(dy, weight)  its adjoint in x: also the transposed convolution
**   convolution_weight(dy, x)      its adjoint in weight
**
** They have one to three spatial dims; `padding` holds the sizes before each dim, then those after, so that "same" with an even
** kernel is one op. What people call (conv2d, conv_transpose2d …) is a thin layer that checks arguments and fills these in. */
#include "../kernels/conv.h"
#include "neural.h"

#include <stdio.h>
#include <string.h>

/* Attribute slots: STRIDE, PADDING (2 per dim), DILATION, GROUPS; the adjoints have SIZE before them. */
typedef struct geometry {
  int nd;
  const int64_t *stride, *pad, *dilation;
  int64_t groups;
} geometry;

static geometry geometry_of(const sc_call *c, int from) {
  return (geometry){c->attr[from].n, c->attr[from].v, c->attr[from + 1].v, c->attr[from + 2].v, c->attr[from + 3].i};
}

/* Shapes that belong together: x [N, G*C, in], w [G*O, C, k], y [N, G*O, out]. false: something does not fit. */
static bool fill_conv(sc_conv *p, const geometry *g, sc_dtype dtype, const int64_t *x, const int64_t *w, const int64_t *y) {
  *p = (sc_conv){.type = dtype == SC_FLOAT64 ? SC_C_F64 : sc__is_float(dtype) ? SC_C_F32 : SC_C_I64, .N = x[0], .G = g->groups};
  if (g->groups < 1 || w[0] % g->groups || x[1] != w[1] * g->groups || y[0] != x[0] || y[1] != w[0]) return false;
  p->C = w[1];
  p->O = w[0] / g->groups;
  for (int i = 0; i < 3; i++) {
    int d = i - (3 - g->nd);
    p->in[i] = d < 0 ? 1 : x[2 + d];
    p->out[i] = d < 0 ? 1 : y[2 + d];
    p->k[i] = d < 0 ? 1 : w[2 + d];
    p->stride[i] = d < 0 ? 1 : g->stride[d];
    p->dilation[i] = d < 0 ? 1 : g->dilation[d];
    p->pad[i] = d < 0 ? 0 : g->pad[d];
  }
  return true;
}

/* Output size of one dim; -1: impossible. The padding after may be negative: what a transposed convolution put on with
** output_padding does not reach its adjoint. */
static int64_t out_size(int64_t in, int64_t k, int64_t stride, int64_t before, int64_t after, int64_t dilation) {
  int64_t reach, room;
  if (k < 1 || stride < 1 || dilation < 1 || before < 0) return -1;
  if (!sc__mul(k - 1, dilation, &reach) || __builtin_add_overflow(in, before, &room) || __builtin_add_overflow(room, after, &room)) return -1;
  if (room - reach < 1) return -1;
  return (room - reach - 1) / stride + 1;
}

sc_status sc__convolution_infer(sc_call *c) {
  geometry g = geometry_of(c, 0);
  const sc_tensor *x = c->in[0], *w = c->in[1];
  char a[200], b[200];
  int64_t y[5];
  if (g.nd < 1 || g.nd > 3 || c->attr[1].n != 2 * g.nd || c->attr[2].n != g.nd || x->ndim != g.nd + 2 || w->ndim != g.nd + 2)
    return sc__bad_call(c, "the numbers of dimensions do not fit: shapes %s and %s", sc__shape_text(x->ndim, x->dim, a, sizeof a),
                        sc__shape_text(w->ndim, w->dim, b, sizeof b));
  y[0] = x->dim[0];
  y[1] = w->dim[0];
  for (int i = 0; i < g.nd; i++) {
    y[2 + i] = out_size(x->dim[2 + i], w->dim[2 + i], g.stride[i], g.pad[i], g.pad[g.nd + i], g.dilation[i]);
    if (y[2 + i] < 0)
      return sc__bad_call(c, "the kernel does not fit into the padded input: shapes %s and %s", sc__shape_text(x->ndim, x->dim, a, sizeof a),
                          sc__shape_text(w->ndim, w->dim, b, sizeof b));
  }
  sc_conv p;
  if (!fill_conv(&p, &g, (sc_dtype)x->dtype, x->dim, w->dim, y) || x->dtype != w->dtype)
    return sc__bad_input(c, 1, "weight of shape %s does not fit an input of shape %s with %lld groups", sc__shape_text(w->ndim, w->dim, a, sizeof a),
                         sc__shape_text(x->ndim, x->dim, b, sizeof b), (long long)g.groups);
  sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, g.nd + 2, y);
  return SC_OK;
}

sc_status sc__convolution_run(sc_call *c, const sc_epilogue *then) {
  geometry g = geometry_of(c, 0);
  sc_conv p;
  sc_work w;
  fill_conv(&p, &g, (sc_dtype)c->in[0]->dtype, c->in[0]->dim, c->in[1]->dim, c->out[0]->dim);
  p.then = then;
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)c->in[0]->dtype), 0);
  if (s == SC_OK && c->out[0]->numel) s = sc__conv_forward(c->ctx, &p, w.in[0]->data, w.in[1]->data, sc__data(w.in[2]), w.out[0]->data);
  return sc__work_end(&w, s);
}

static sc_status conv_run(sc_call *c) { return sc__convolution_run(c, NULL); }

static sc_status input_infer(sc_call *c) {
  geometry g = geometry_of(c, 1);
  const sc_tensor *dy = c->in[0], *w = c->in[1];
  sc_conv p;
  if (g.nd < 1 || g.nd > 3 || dy->ndim != g.nd + 2 || w->ndim != g.nd + 2 || c->attr[0].n != g.nd + 2 || dy->dtype != w->dtype ||
      !fill_conv(&p, &g, (sc_dtype)dy->dtype, c->attr[0].v, w->dim, dy->dim))
    return sc__bad_call(c, "the shapes do not belong together");
  sc__meta_set(&c->meta[0], (sc_dtype)dy->dtype, g.nd + 2, c->attr[0].v);
  return SC_OK;
}

static sc_status input_run(sc_call *c) {
  geometry g = geometry_of(c, 1);
  sc_conv p;
  sc_work w;
  fill_conv(&p, &g, (sc_dtype)c->in[0]->dtype, c->attr[0].v, c->in[1]->dim, c->in[0]->dim);
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)c->in[0]->dtype), 0);
  if (s == SC_OK && c->out[0]->numel) s = sc__conv_input(c->ctx, &p, w.in[0]->data, w.in[1]->data, sc__data(w.in[2]), w.out[0]->data);
  return sc__work_end(&w, s);
}

static sc_status weight_infer(sc_call *c) {
  geometry g = geometry_of(c, 1);
  const sc_tensor *dy = c->in[0], *x = c->in[1];
  sc_conv p;
  if (g.nd < 1 || g.nd > 3 || dy->ndim != g.nd + 2 || x->ndim != g.nd + 2 || c->attr[0].n != g.nd + 2 || dy->dtype != x->dtype ||
      !fill_conv(&p, &g, (sc_dtype)dy->dtype, x->dim, c->attr[0].v, dy->dim))
    return sc__bad_call(c, "the shapes do not belong together");
  sc__meta_set(&c->meta[0], (sc_dtype)dy->dtype, g.nd + 2, c->attr[0].v);
  return SC_OK;
}

static sc_status weight_run(sc_call *c) {
  geometry g = geometry_of(c, 1);
  sc_conv p;
  sc_work w;
  fill_conv(&p, &g, (sc_dtype)c->in[0]->dtype, c->in[1]->dim, c->attr[0].v, c->in[0]->dim);
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)c->in[0]->dtype), 0);
  if (s == SC_OK) s = sc__conv_weight(c->ctx, &p, w.in[0]->data, w.in[1]->data, w.out[0]->data);
  return sc__work_end(&w, s);
}

/* ---- sums over all dims but the second: a bias' gradient ---- */
static sc_status channel_infer(sc_call *c) {
  if (c->in[0]->ndim < 2) return sc__bad_input(c, 0, "expected at least 2 dimensions, got %d", c->in[0]->ndim);
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, 1, &c->in[0]->dim[1]);
  return SC_OK;
}

typedef struct channel_job { const void *x; void *y; int64_t N, C, L; sc_dtype type; } channel_job;

static double sum_f32(const float *x, int64_t n) {
  double total = 0;
  for (int64_t at = 0; at < n; at += 256) {                /* blocks in float lanes, blocks summed in double */
    float lane[16] = {0};
    int64_t m = n - at < 256 ? n - at : 256, i = 0;
    for (; i + 16 <= m; i += 16)
      for (int k = 0; k < 16; k++) lane[k] += x[at + i + k];
    double s = 0;
    for (int k = 0; k < 16; k++) s += lane[k];
    for (; i < m; i++) s += x[at + i];
    total += s;
  }
  return total;
}

static void channel_piece(void *arg, int64_t begin, int64_t end) {
  const channel_job *j = arg;
  for (int64_t c = begin; c < end; c++) {
    double sum = 0;
    uint64_t whole = 0;
    for (int64_t n = 0; n < j->N; n++) {
      int64_t at = (n * j->C + c) * j->L;
      if (j->type == SC_FLOAT32) sum += sum_f32((const float *)j->x + at, j->L);
      else if (j->type == SC_FLOAT64) for (int64_t i = 0; i < j->L; i++) sum += ((const double *)j->x)[at + i];
      else for (int64_t i = 0; i < j->L; i++) whole += ((const uint64_t *)j->x)[at + i];
    }
    if (j->type == SC_FLOAT32) ((float *)j->y)[c] = (float)sum;
    else if (j->type == SC_FLOAT64) ((double *)j->y)[c] = sum;
    else ((uint64_t *)j->y)[c] = whole;
  }
}

static sc_status channel_run(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_work w;
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)x->dtype), 0);
  if (s == SC_OK) {
    channel_job j = {w.in[0]->data, w.out[0]->data, x->dim[0], x->dim[1], sc__product(x->dim + 2, x->ndim - 2), w.type};
    sc__parallel(c->ctx, j.C, 1, (double)(j.N * j.L) * 0.2, channel_piece, &j);
  }
  return sc__work_end(&w, s);
}

/* A value per channel spread over size, as a view. */
static sc_status spread_infer(sc_call *c) {
  const sc_attr *size = &c->attr[0];
  sc_meta *m = &c->meta[0];
  if (c->in[0]->ndim != 1 || size->n < 2 || size->v[1] != c->in[0]->dim[0]) return sc__bad_call(c, "the shapes do not belong together");
  sc__meta_set(m, (sc_dtype)c->in[0]->dtype, size->n, size->v);
  m->offset = 0;
  for (int i = 0; i < size->n; i++) m->stride[i] = i == 1 ? sc__stride(c->in[0])[0] : 0;
  return SC_OK;
}

/* ---- what people call ---- */

static sc_status bad_shapes(sc_call *c, const char *what) {
  char a[200], b[200];
  return sc__bad_call(c, "%s (shapes %s and %s)", what, sc__shape_text(c->in[0]->ndim, c->in[0]->dim, a, sizeof a),
                      sc__shape_text(c->in[1]->ndim, c->in[1]->dim, b, sizeof b));
}

static sc_status check_list(sc_call *c, int slot, int nd, int64_t least, const char *name) {
  const sc_attr *a = &c->attr[slot];
  for (int i = 0; i < nd; i++)
    if (a->v[i] < least || a->v[i] > INT32_MAX)
      return sc__bad_attr(c, slot, "%s must be between %lld and %d, got %lld", name, (long long)least, INT32_MAX, (long long)a->v[i]);
  return SC_OK;
}

static sc_status check_tensors(sc_call *c, int nd, bool transposed, int groups_slot, int64_t *groups) {
  const sc_tensor *x = c->in[0], *w = c->in[1], *b = c->in[2];
  char t[200];
  if (x->ndim != nd + 2 && x->ndim != nd + 1)
    return sc__bad_input(c, 0, "expected %d dimensions, or %d without a batch, got shape %s", nd + 2, nd + 1, sc__shape_text(x->ndim, x->dim, t, sizeof t));
  if (w->ndim != nd + 2) return sc__bad_input(c, 1, "expected %d dimensions, got shape %s", nd + 2, sc__shape_text(w->ndim, w->dim, t, sizeof t));
  if (x->dtype == SC_BOOL) return sc__bad_input(c, 0, "not defined for bool");
  for (int i = 1; i < 3; i++)
    if (c->in[i] && c->in[i]->dtype != x->dtype)
      return sc__bad_input(c, i, "expected %s as for the input, got %s", sc_dtype_name((sc_dtype)x->dtype), sc_dtype_name((sc_dtype)c->in[i]->dtype));
  int64_t g = c->attr[groups_slot].i;
  *groups = g;
  if (g < 1) return sc__bad_attr(c, groups_slot, "groups must be at least 1, got %lld", (long long)g);
  if (w->dim[0] % g) return sc__bad_attr(c, groups_slot, "%lld groups do not divide the weight's %lld channels", (long long)g, (long long)w->dim[0]);
  int64_t have = x->dim[x->ndim - nd - 1], want = transposed ? w->dim[0] : w->dim[1], channels;
  if (!transposed && !sc__mul(want, g, &want)) return bad_shapes(c, "too many groups");
  if (have != want) {
    char what[160];
    snprintf(what, sizeof what, "the weight wants %lld input channels, the input has %lld", (long long)want, (long long)have);
    return bad_shapes(c, what);
  }
  if (w->dim[0] == 0 || !sc__mul(w->dim[1], g, &channels)) return bad_shapes(c, "the weight has no output channels");
  if (!transposed) channels = w->dim[0];
  if (b && (b->ndim != 1 || b->dim[0] != channels))
    return sc__bad_input(c, 2, "expected a bias of %lld elements, got shape %s", (long long)channels, sc__shape_text(b->ndim, b->dim, t, sizeof t));
  for (int i = 0; i < nd; i++)
    if (w->dim[2 + i] < 1) return bad_shapes(c, "the kernel has size 0");
  return SC_OK;
}

/* Runs op over the batched input; takes the batch dim away again. */
static sc_status run_batched(sc_call *c, int nd, const char *op, const sc_attr *attr, int n_attr) {
  sc_tensor *x = NULL, *y = NULL;
  bool single = c->in[0]->ndim == nd + 1;
  if (single) SC_TRY(sc__batched(c->ctx, c->in[0], true, &x)); else x = sc_tensor_retain(c->in[0]);
  sc_status s = sc__op(c->ctx, op, (sc_tensor *[]){x, c->in[1], c->in[2]}, 3, attr, n_attr, &y);
  sc_tensor_release(x);
  if (s == SC_OK && single) { s = sc__batched(c->ctx, y, false, &c->out[0]); sc_tensor_release(y); }
  else if (s == SC_OK) c->out[0] = y;
  c->n_out = s == SC_OK;
  return s;
}

/* slots: stride 0, padding 1, dilation 2, groups 3 */
static sc_status conv_nd(sc_call *c, int nd) {
  const sc_tensor *x = c->in[0], *w = c->in[1];
  int64_t pad[6], groups;
  SC_TRY(check_tensors(c, nd, false, 3, &groups));
  SC_TRY(check_list(c, 0, nd, 1, "stride"));
  SC_TRY(check_list(c, 2, nd, 1, "dilation"));
  const sc_attr *p = &c->attr[1];
  if (p->kind == SC_ATTR_STRING) {
    bool same = strcmp(p->s, "same") == 0;
    if (!same && strcmp(p->s, "valid") != 0) return sc__bad_attr(c, 1, "expected numbers, \"same\" or \"valid\", got \"%.40s\"", p->s);
    for (int i = 0; i < nd; i++) {
      if (same && c->attr[0].v[i] != 1) return sc__bad_attr(c, 1, "\"same\" needs a stride of 1, got %lld", (long long)c->attr[0].v[i]);
      int64_t total = same ? (w->dim[2 + i] - 1) * c->attr[2].v[i] : 0;
      pad[i] = total / 2;
      pad[nd + i] = total - total / 2;
    }
  } else {
    SC_TRY(check_list(c, 1, nd, 0, "padding"));
    for (int i = 0; i < nd; i++) pad[i] = pad[nd + i] = p->v[i];
  }
  for (int i = 0; i < nd; i++) {
    int64_t in = x->dim[x->ndim - nd + i];
    if (out_size(in, w->dim[2 + i], c->attr[0].v[i], pad[i], pad[nd + i], c->attr[2].v[i]) < 0) {
      char what[160];
      snprintf(what, sizeof what, "a kernel of size %lld (dilation %lld) does not fit into a padded input of size %lld", (long long)w->dim[2 + i],
               (long long)c->attr[2].v[i], (long long)(in + pad[i] + pad[nd + i]));
      return bad_shapes(c, what);
    }
  }
  sc_attr attr[4] = {c->attr[0], sc__ints(pad, 2 * nd), c->attr[2], sc__int(groups)};
  return run_batched(c, nd, "convolution", attr, 4);
}

/* slots: stride 0, padding 1, output_padding 2, groups 3, dilation 4 */
static sc_status transposed_nd(sc_call *c, int nd) {
  const sc_tensor *x = c->in[0], *w = c->in[1];
  int64_t pad[6], size[5], groups;
  SC_TRY(check_tensors(c, nd, true, 3, &groups));
  SC_TRY(check_list(c, 0, nd, 1, "stride"));
  SC_TRY(check_list(c, 1, nd, 0, "padding"));
  SC_TRY(check_list(c, 2, nd, 0, "output_padding"));
  SC_TRY(check_list(c, 4, nd, 1, "dilation"));
  size[0] = x->ndim == nd + 2 ? x->dim[0] : 1;
  size[1] = w->dim[1] * groups;
  for (int i = 0; i < nd; i++) {
    int64_t stride = c->attr[0].v[i], extra = c->attr[2].v[i], dilation = c->attr[4].v[i], in = x->dim[x->ndim - nd + i], span, reach;
    if (extra >= stride && extra >= dilation)
      return sc__bad_attr(c, 2, "output_padding %lld must be smaller than stride %lld or dilation %lld", (long long)extra, (long long)stride, (long long)dilation);
    pad[i] = c->attr[1].v[i];
    pad[nd + i] = pad[i] - extra;
    if (in < 1 || !sc__mul(in - 1, stride, &span) || !sc__mul(w->dim[2 + i] - 1, dilation, &reach)) return bad_shapes(c, "the input is empty or too large");
    size[2 + i] = span - pad[i] - pad[nd + i] + reach + 1;
    if (size[2 + i] < 1) return bad_shapes(c, "the padding leaves no output");
  }
  sc_attr attr[5] = {sc__ints(size, nd + 2), c->attr[0], sc__ints(pad, 2 * nd), c->attr[4], sc__int(groups)};
  return run_batched(c, nd, "convolution_input", attr, 5);
}

static sc_status conv1d(sc_call *c) { return conv_nd(c, 1); }
static sc_status conv2d(sc_call *c) { return conv_nd(c, 2); }
static sc_status conv3d(sc_call *c) { return conv_nd(c, 3); }
static sc_status transposed1d(sc_call *c) { return transposed_nd(c, 1); }
static sc_status transposed2d(sc_call *c) { return transposed_nd(c, 2); }
static sc_status transposed3d(sc_call *c) { return transposed_nd(c, 3); }

#define CONV_HELP(dims, shape) \
  "Convolution (cross-correlation) over " dims ".\nShapes: x [N, C, " shape "] or without N; weight [O, C / groups, k …]; bias [O].\n" \
  "padding: a number, one per dim, \"same\" or \"valid\".\nErrors: sizes that do not fit; stride, dilation or groups below 1.\n"
#define TRANSPOSED_HELP(dims) \
  "Transposed convolution over " dims ": the adjoint of the convolution with the same arguments.\n" \
  "Shapes: x [N, C, …] or without N; weight [C, O / groups, k …]; bias [O]."

const sc_op sc__ops_conv[] = {
  {"convolution(x, weight, bias: tensor?, stride: int[], padding: int[], dilation: int[], groups: int = 1)",
   "Convolution with all sizes given; padding before each dim, then after.", SC_OP_INTERNAL, .infer = sc__convolution_infer, .run = conv_run, .cost = sc__cost_convolution,
   .grad = {"convolution_input(dy, weight, nil, shape(x), stride, padding, dilation, groups)",
            "convolution_weight(dy, x, shape(weight), stride, padding, dilation, groups)", "channel_sum(dy)"}},
  {"convolution_input(g, weight, bias: tensor?, size: int[], stride: int[], padding: int[], dilation: int[], groups: int = 1)",
   "The convolution's adjoint in its input, which has that size.", SC_OP_INTERNAL, .infer = input_infer, .run = input_run, .cost = sc__cost_convolution_input,
   .grad = {"convolution(dy, weight, nil, stride, padding, dilation, groups)",
            "convolution_weight(g, dy, shape(weight), stride, padding, dilation, groups)", "channel_sum(dy)"}},
  {"convolution_weight(g, x, size: int[], stride: int[], padding: int[], dilation: int[], groups: int = 1)",
   "The convolution's adjoint in its weight, which has that size.", SC_OP_INTERNAL, .infer = weight_infer, .run = weight_run, .cost = sc__cost_convolution_weight,
   .grad = {"convolution(x, dy, nil, stride, padding, dilation, groups)", "convolution_input(g, dy, nil, shape(x), stride, padding, dilation, groups)"}},
  {"channel_sum(x)", "Sums over all dims but the second.", SC_OP_INTERNAL, .infer = channel_infer, .run = channel_run, .cost = sc__cost_bytes, .grad = {"channel_spread(dy, shape(x))"}},
  {"channel_spread(x, size: int[])", "A value per channel, seen as size [N, C, …].", SC_OP_VIEW | SC_OP_INTERNAL, .infer = spread_infer,
   .grad = {"channel_sum(dy)"}},
  {"nn.functional.conv1d(x, weight, bias: tensor?, stride: int[1] = 1, padding: int[1]|str = 0, dilation: int[1] = 1, groups: int = 1)",
   CONV_HELP("one dimension", "L") "Example: sc.nn.functional.conv1d(sc.ones(1, 1, 5), sc.ones(1, 1, 3))", SC_OP_FUNCTION, .compose = conv1d},
  {"nn.functional.conv2d(x, weight, bias: tensor?, stride: int[2] = 1, padding: int[2]|str = 0, dilation: int[2] = 1, groups: int = 1)",
   CONV_HELP("two dimensions", "H, W") "Example: sc.nn.functional.conv2d(sc.ones(1, 1, 5, 5), sc.ones(1, 1, 3, 3), {padding = \"same\"})",
   SC_OP_FUNCTION, .compose = conv2d},
  {"nn.functional.conv3d(x, weight, bias: tensor?, stride: int[3] = 1, padding: int[3]|str = 0, dilation: int[3] = 1, groups: int = 1)",
   CONV_HELP("three dimensions", "D, H, W") "Example: sc.nn.functional.conv3d(sc.ones(1, 1, 3, 3, 3), sc.ones(1, 1, 2, 2, 2))",
   SC_OP_FUNCTION, .compose = conv3d},
  {"nn.functional.conv_transpose1d(x, weight, bias: tensor?, stride: int[1] = 1, padding: int[1] = 0, output_padding: int[1] = 0, groups: int = 1, dilation: int[1] = 1)",
   TRANSPOSED_HELP("one dimension"), SC_OP_FUNCTION, .compose = transposed1d},
  {"nn.functional.conv_transpose2d(x, weight, bias: tensor?, stride: int[2] = 1, padding: int[2] = 0, output_padding: int[2] = 0, groups: int = 1, dilation: int[2] = 1)",
   TRANSPOSED_HELP("two dimensions"), SC_OP_FUNCTION, .compose = transposed2d},
  {"nn.functional.conv_transpose3d(x, weight, bias: tensor?, stride: int[3] = 1, padding: int[3] = 0, output_padding: int[3] = 0, groups: int = 1, dilation: int[3] = 1)",
   TRANSPOSED_HELP("three dimensions"), SC_OP_FUNCTION, .compose = transposed3d},
};
const int sc__ops_conv_count = SC_COUNT(sc__ops_conv);
