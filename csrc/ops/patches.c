/* unfold and fold: the windows of an image as columns, and columns added back into an image; each is the other's adjoint. */
#include "../kernels/conv.h"
#include "neural.h"

#include <string.h>

enum { P_SIZE, P_KERNEL, P_DILATION, P_PADDING, P_STRIDE };   /* of windows and windows_adjoint; size: of the image, [H, W] */

static int64_t count(int64_t in, int64_t k, int64_t d, int64_t p, int64_t s) {
  int64_t reach, room;
  if (!sc__mul(k - 1, d, &reach) || __builtin_add_overflow(in, 2 * p, &room) || room - reach < 1) return 0;
  return (room - reach - 1) / s + 1;
}

static void fill(const sc_attr *a, sc_dtype dtype, int64_t C, sc_conv *p) {
  *p = (sc_conv){.type = dtype == SC_FLOAT64 ? SC_C_F64 : sc__is_float(dtype) ? SC_C_F32 : SC_C_I64, .N = 1, .G = 1, .C = C, .O = 1, .in = {1, 1, 1}, .out = {1, 1, 1},
                 .k = {1, 1, 1}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}};
  for (int i = 0; i < 2; i++) {
    p->in[1 + i] = a[P_SIZE].v[i];
    p->k[1 + i] = a[P_KERNEL].v[i];
    p->dilation[1 + i] = a[P_DILATION].v[i];
    p->pad[1 + i] = a[P_PADDING].v[i];
    p->stride[1 + i] = a[P_STRIDE].v[i];
    p->out[1 + i] = count(p->in[1 + i], p->k[1 + i], p->dilation[1 + i], p->pad[1 + i], p->stride[1 + i]);
  }
}

/* Kernel, dilation, padding and stride, two numbers each, that sizes can be computed with. */
static sc_status possible(sc_call *c, int ndim) {
  static const struct { int slot; int64_t least; } LIST[] = {{P_SIZE, 0}, {P_KERNEL, 1}, {P_DILATION, 1}, {P_PADDING, 0}, {P_STRIDE, 1}};
  if (c->in[0]->ndim != ndim) return sc__bad_input(c, 0, "expected %d dimensions, got %d", ndim, c->in[0]->ndim);
  for (int k = 0; k < SC_COUNT(LIST); k++) {
    const sc_attr *a = &c->attr[LIST[k].slot];
    if (a->n != 2) return sc__bad_attr(c, LIST[k].slot, "expected two numbers");
    for (int i = 0; i < 2; i++)
      if (a->v[i] < LIST[k].least || a->v[i] > INT32_MAX) return sc__bad_attr(c, LIST[k].slot, "%lld is out of range", (long long)a->v[i]);
  }
  return SC_OK;
}

/* windows(x [N, C, H, W]) -> [N, C k, L] */
static sc_status windows_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_conv p;
  SC_TRY(possible(c, 4));
  SC_TRY(sc__want(c, 0, 4, (int64_t[]){x->dim[0], x->dim[1], c->attr[P_SIZE].v[0], c->attr[P_SIZE].v[1]}));
  fill(c->attr, (sc_dtype)x->dtype, x->dim[1], &p);
  int64_t dim[3] = {x->dim[0], 0, p.out[1] * p.out[2]};
  if (!sc__mul(p.k[1], p.k[2], &dim[1]) || !sc__mul(dim[1], x->dim[1], &dim[1])) return sc__bad_call(c, "the windows are too large");
  sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, 3, dim);
  return SC_OK;
}

static sc_status windows_run(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_conv p;
  sc_work w;
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)x->dtype), 0);
  fill(c->attr, (sc_dtype)x->dtype, x->dim[1], &p);
  int64_t z = (int64_t)sc_dtype_size(w.type), image = p.C * p.in[1] * p.in[2], cols = p.C * p.k[1] * p.k[2] * p.out[1] * p.out[2];
  for (int64_t n = 0; n < x->dim[0] && s == SC_OK; n++) {
    sc__slice_look(c->ctx, 0);
    sc__im2col(&p, w.in[0]->data + n * image * z, 0, p.out[1], 0, p.out[2], w.out[0]->data + n * cols * z);
  }
  return sc__work_end(&w, s);
}

static sc_status adjoint_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  const sc_attr *a = c->attr;
  sc_conv p;
  SC_TRY(possible(c, 3));
  fill(a, (sc_dtype)x->dtype, 1, &p);
  if (x->dim[1] % (p.k[1] * p.k[2]) || x->dim[2] != p.out[1] * p.out[2]) return sc__bad_input(c, 0, "its shape is not that of windows of this size");
  int64_t dim[4] = {x->dim[0], x->dim[1] / (a[P_KERNEL].v[0] * a[P_KERNEL].v[1]), a[P_SIZE].v[0], a[P_SIZE].v[1]};
  sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, 4, dim);
  return SC_OK;
}

static sc_status adjoint_run(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_conv p;
  sc_work w;
  sc_status s = sc__work_begin(&w, c, sc__work_dtype((sc_dtype)x->dtype), 0);
  fill(c->attr, (sc_dtype)x->dtype, c->out[0]->dim[1], &p);
  if (s == SC_OK) {
    int64_t z = (int64_t)sc_dtype_size(w.type), image = p.C * p.in[1] * p.in[2], cols = p.C * p.k[1] * p.k[2] * p.out[1] * p.out[2];
    memset(w.out[0]->data, 0, (size_t)(w.out[0]->numel * z));
    for (int64_t n = 0; n < x->dim[0]; n++) sc__col2im(&p, w.in[0]->data + n * cols * z, 0, p.out[1], 0, p.out[2], w.out[0]->data + n * image * z);
  }
  return sc__work_end(&w, s);
}

/* ---- what people call; from: the slot of kernel_size, followed by dilation, padding, stride ---- */
static sc_status check_sizes(sc_call *c, int from) {
  static const struct { const char *name; int64_t least; } LIST[] = {{"kernel_size", 1}, {"dilation", 1}, {"padding", 0}, {"stride", 1}};
  for (int k = 0; k < 4; k++)
    for (int i = 0; i < 2; i++) {
      int64_t v = c->attr[from + k].v[i];
      if (v < LIST[k].least || v > INT32_MAX)
        return sc__bad_attr(c, from + k, "%s must be between %lld and %d, got %lld", LIST[k].name, (long long)LIST[k].least, INT32_MAX, (long long)v);
    }
  return SC_OK;
}

/* Runs op on the batched input; takes the batch dim away again. */
static sc_status batched(sc_call *c, const char *op, bool single, const sc_attr *attr) {
  sc_ex e = {.ctx = c->ctx};
  sc_tensor *x = c->in[0], *y;
  int64_t dim[5] = {1};
  if (single) {
    for (int i = 0; i < x->ndim; i++) dim[1 + i] = x->dim[i];
    x = sc__ex_shape(&e, "reshape", x, dim, x->ndim + 1);
  }
  y = sc__ex(&e, op, x, NULL, attr, 5);
  if (single && y) y = sc__ex_shape(&e, "reshape", y, y->dim + 1, y->ndim - 1);
  sc_status s = sc__ex_end(&e, y, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

static sc_status unfold(sc_call *c) {
  const sc_tensor *x = c->in[0];
  char t[200];
  if (x->ndim != 3 && x->ndim != 4) return sc__bad_input(c, 0, "expected [N, C, H, W] or [C, H, W], got shape %s", sc__shape_text(x->ndim, x->dim, t, sizeof t));
  for (int i = x->ndim == 4 ? 1 : 0; i < x->ndim; i++)
    if (x->dim[i] == 0) return sc__bad_input(c, 0, "expected sizes above 0 in all but the batch dimension, got shape %s", sc__shape_text(x->ndim, x->dim, t, sizeof t));
  SC_TRY(check_sizes(c, 0));
  sc_attr attr[5] = {sc__ints(x->dim + x->ndim - 2, 2), c->attr[0], c->attr[1], c->attr[2], c->attr[3]};
  for (int i = 0; i < 2; i++)
    if (count(attr[0].v[i], attr[1].v[i], attr[2].v[i], attr[3].v[i], attr[4].v[i]) < 1)
      return sc__bad_call(c, "a window of %lld does not fit into the padded input of shape %s", (long long)attr[1].v[i], sc__shape_text(x->ndim, x->dim, t, sizeof t));
  return batched(c, "windows", x->ndim == 3, attr);
}

static sc_status fold(sc_call *c) {
  const sc_tensor *x = c->in[0];
  char t[200];
  int64_t area = 0, L[2];
  if (x->ndim != 2 && x->ndim != 3) return sc__bad_input(c, 0, "expected [N, C k, L] or [C k, L], got shape %s", sc__shape_text(x->ndim, x->dim, t, sizeof t));
  SC_TRY(check_sizes(c, 1));
  for (int i = 0; i < 2; i++) {
    int64_t size = c->attr[0].v[i];
    if (size < 1 || size > INT32_MAX) return sc__bad_attr(c, 0, "output_size must be above 0, got %lld", (long long)size);
    L[i] = count(size, c->attr[1].v[i], c->attr[2].v[i], c->attr[3].v[i], c->attr[4].v[i]);
  }
  int64_t rows = x->dim[x->ndim - 2], cols = x->dim[x->ndim - 1], want = -1;
  if (!sc__mul(c->attr[1].v[0], c->attr[1].v[1], &area) || rows % area || rows == 0)
    return sc__bad_input(c, 0, "%lld rows are not a multiple of the window's %lld elements", (long long)rows, (long long)area);
  if (!sc__mul(L[0], L[1], &want) || want != cols || want < 1)
    return sc__bad_input(c, 0, "expected %lld columns (%lld times %lld windows), got %lld", (long long)want, (long long)L[0], (long long)L[1], (long long)cols);
  return batched(c, "windows_adjoint", x->ndim == 2, c->attr);
}

const sc_op sc__ops_patches[] = {
  {"windows(x, size: int[], kernel: int[], dilation: int[], padding: int[], stride: int[])", "The windows of images as columns.", SC_OP_INTERNAL, .infer = windows_infer,
   .run = windows_run, .grad = {"windows_adjoint(dy, size, kernel, dilation, padding, stride)"}},
  {"windows_adjoint(x, size: int[], kernel: int[], dilation: int[], padding: int[], stride: int[])", "Columns added back into images.", SC_OP_INTERNAL,
   .infer = adjoint_infer, .run = adjoint_run, .grad = {"windows(dy, size, kernel, dilation, padding, stride)"}},
  {"nn.functional.unfold(x, kernel_size: int[2], dilation: int[2] = 1, padding: int[2] = 0, stride: int[2] = 1)",
   "The windows of x as columns.\nShapes: x [N, C, H, W] gives [N, C kh kw, windows].\nErrors: a window that does not fit.", SC_OP_FUNCTION, .compose = unfold},
  {"nn.functional.fold(x, output_size: int[2], kernel_size: int[2], dilation: int[2] = 1, padding: int[2] = 0, stride: int[2] = 1)",
   "Columns added back into an image: the adjoint of unfold.\nShapes: x [N, C kh kw, windows] gives [N, C, H, W].", SC_OP_FUNCTION, .compose = fold},
};
const int sc__ops_patches_count = SC_COUNT(sc__ops_patches);
