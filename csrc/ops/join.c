/* Putting tensors together and moving their elements: cat, flip, roll, triangles, padding. All of them copy. */
#include "../kernels/index.h"
#include "ops.h"

#include <string.h>

/* A view of t with other sizes, strides and offset, used while copying. */
static sc_status part(sc_tensor *t, int ndim, const int64_t *dim, const int64_t *stride, int64_t offset, sc_tensor **out) {
  sc_meta m = {.dtype = (sc_dtype)t->dtype, .ndim = ndim, .offset = offset};
  memcpy(m.dim, dim, (size_t)ndim * 8);
  memcpy(m.stride, stride, (size_t)ndim * 8);
  return sc__tensor_view(t, &m, out);
}

/* ---- cat ---- */

/* PyTorch lets an empty list stand for nothing, whatever the others' shape. */
static bool nothing(const sc_tensor *t) { return t->ndim == 1 && t->dim[0] == 0; }

static sc_status cat_infer(sc_call *c) {
  sc_meta *m = &c->meta[0];
  const sc_tensor *first = NULL;
  char a[200], b[200];
  if (c->n_in == 0) return sc__bad_call(c, "expected at least one tensor");
  for (int i = 0; i < c->n_in; i++) {
    if (c->in[i]->ndim == 0) return sc__bad_call(c, "tensor %d has no dimensions and cannot be joined; use stack", i + 1);
    if (!first && !nothing(c->in[i])) first = c->in[i];
  }
  if (!first) first = c->in[0];
  int d;
  SC_TRY(sc__dim(c, 0, first->ndim, &d));
  sc__meta_set(m, sc__result_dtype(c->in, c->n_in), first->ndim, first->dim);
  m->dim[d] = 0;
  for (int i = 0; i < c->n_in; i++) {
    const sc_tensor *t = c->in[i];
    if (nothing(t)) continue;
    bool ok = t->ndim == first->ndim;
    for (int k = 0; k < t->ndim && ok; k++) ok = k == d || t->dim[k] == first->dim[k];
    if (!ok)
      return sc__bad_call(c, "tensor %d has shape %s, which does not fit %s in another dimension than %d", i + 1,
                          sc__shape_text(t->ndim, t->dim, a, sizeof a), sc__shape_text(first->ndim, first->dim, b, sizeof b), d + c->ctx->index_base);
    if (__builtin_add_overflow(m->dim[d], t->dim[d], &m->dim[d])) return sc__bad_call(c, "the result is too large");
  }
  return SC_OK;
}

static sc_status cat_run(sc_call *c) {
  sc_tensor *out = c->out[0];
  int d;
  SC_TRY(sc__dim(c, 0, out->ndim, &d));
  int64_t at = 0, dim[SC_MAX_DIMS];
  memcpy(dim, out->dim, (size_t)out->ndim * 8);
  for (int i = 0; i < c->n_in; i++) {
    if (nothing(c->in[i])) continue;
    sc_tensor *region;
    dim[d] = c->in[i]->dim[d];
    SC_TRY(part(out, out->ndim, dim, sc__stride(out), at * sc__stride(out)[d], &region));
    sc_status s = sc__tensor_copy(region, c->in[i]);
    sc_tensor_release(region);
    SC_TRY(s);
    at += dim[d];
  }
  return SC_OK;
}

static sc_status cat_backward(sc_grad_call *g) {
  int64_t at = 0;
  int d = (int)g->attr[0].i;
  if (d < 0) d += g->dy[0]->ndim;
  for (int i = 0; i < g->n_in; i++) {
    int n;
    const int64_t *size = sc__grad_shape(g, i, &n);
    if (n == 1 && size[0] == 0) {
      if (g->wanted[i]) {
        sc_attr full[3] = {sc__ints(size, 1), sc__float(0), sc__dtype((sc_dtype)g->dy[0]->dtype)};
        SC_TRY(sc__grad_op(g, "full", NULL, 0, full, 3, &g->dx[i]));
      }
      continue;
    }
    sc_attr attr[3] = {sc__int(d), sc__int(at), sc__int(size[d])};
    if (g->wanted[i]) SC_TRY(sc__grad_op(g, "narrow", &g->dy[0], 1, attr, 3, &g->dx[i]));
    at += size[d];
  }
  return SC_OK;
}

/* A node of the tape has room for 255 inputs: more of them are joined in groups. */
enum { GROUP = 128 };

static sc_status join(sc_context *ctx, sc_tensor **in, int n, const sc_attr *dim, sc_tensor **out) {
  bool grad = false;
  for (int i = 0; i < n && n > GROUP && ctx->grad_enabled && !grad; i++) grad = sc_requires_grad(in[i]);
  if (!grad) return sc__op(ctx, "cat_parts", in, n, dim, 1, out);
  int groups = (n + GROUP - 1) / GROUP;
  size_t bytes = (size_t)groups * sizeof *in;
  sc_tensor **joined = sc__alloc_zero(ctx, bytes);
  if (!joined) return sc__no_memory(ctx, bytes);
  sc_status s = SC_OK;
  for (int i = 0; i < groups && s == SC_OK; i++)
    s = sc__op(ctx, "cat_parts", in + i * GROUP, i == groups - 1 ? n - i * GROUP : GROUP, dim, 1, &joined[i]);
  if (s == SC_OK) s = join(ctx, joined, groups, dim, out);
  for (int i = 0; i < groups; i++) sc_tensor_release(joined[i]);
  sc__release(ctx, joined, bytes);
  return s;
}

static sc_status cat_compose(sc_call *c) {
  sc_meta m, *was = c->meta;
  c->meta = &m;
  sc_status s = cat_infer(c);                          /* so that messages say cat */
  c->meta = was;
  SC_TRY(s);
  SC_TRY(join(c->ctx, c->in, c->n_in, c->attr, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

/* ---- stack ---- */
static sc_status stack_compose(sc_call *c) {
  char a[200], b[200];
  int d;
  if (c->n_in == 0) return sc__bad_call(c, "expected at least one tensor");
  for (int i = 1; i < c->n_in; i++) {
    const sc_tensor *t = c->in[i], *first = c->in[0];
    if (t->ndim != first->ndim || memcmp(t->dim, first->dim, (size_t)t->ndim * 8) != 0)
      return sc__bad_call(c, "tensor %d has shape %s, the first has %s", i + 1, sc__shape_text(t->ndim, t->dim, a, sizeof a),
                          sc__shape_text(first->ndim, first->dim, b, sizeof b));
  }
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim + 1, &d));
  sc_attr dim = sc__int(d);
  size_t bytes = (size_t)c->n_in * sizeof *c->in;
  sc_tensor **rows = sc__alloc_zero(c->ctx, bytes);
  if (!rows) return sc__no_memory(c->ctx, bytes);
  sc_status s = SC_OK;
  for (int i = 0; i < c->n_in && s == SC_OK; i++) s = sc__op(c->ctx, "unsqueeze", &c->in[i], 1, &dim, 1, &rows[i]);
  if (s == SC_OK) s = join(c->ctx, rows, c->n_in, &dim, &c->out[0]);
  for (int i = 0; i < c->n_in; i++) sc_tensor_release(rows[i]);
  sc__release(c->ctx, rows, bytes);
  c->n_out = s == SC_OK;
  return s;
}

/* ---- flip(x, dims) ---- */
static sc_status like_infer(sc_call *c) { sc__meta_like(&c->meta[0], c->in[0]); return SC_OK; }

static sc_status flip_infer(sc_call *c) {
  bool mask[SC_MAX_DIMS];
  if (c->attr[0].n) SC_TRY(sc__dims(c, 0, c->in[0]->ndim, mask));
  return like_infer(c);
}

static sc_status flip_run(sc_call *c) {
  sc_tensor *x = c->in[0], *turned;
  bool mask[SC_MAX_DIMS] = {false};
  int64_t stride[SC_MAX_DIMS], offset = 0;
  if (c->attr[0].n) SC_TRY(sc__dims(c, 0, x->ndim, mask));
  if (x->numel == 0) return SC_OK;
  for (int i = 0; i < x->ndim; i++) {
    int64_t s = sc__stride(x)[i];
    stride[i] = mask[i] ? -s : s;
    if (mask[i]) offset += (x->dim[i] - 1) * s;
  }
  SC_TRY(part(x, x->ndim, x->dim, stride, offset, &turned));
  sc_status s = sc__tensor_copy(c->out[0], turned);
  sc_tensor_release(turned);
  return s;
}

/* ---- roll(x, shifts, dims) ---- */
static int64_t wrapped(int64_t shift, int64_t n) {
  if (n == 0) return 0;
  int64_t r = shift % n;
  return r < 0 ? r + n : r;
}

static sc_status roll_compose(sc_call *c) {
  sc_tensor *x = c->in[0], *flat = NULL, *rolled = NULL;
  const sc_attr *shifts = &c->attr[0], *dims = &c->attr[1];
  int nd = dims->kind == SC_ATTR_NONE ? 0 : dims->n;
  if (nd ? nd != shifts->n : shifts->n != 1)
    return sc__bad_attr(c, 0, "expected as many shifts as dimensions, got %d and %d", shifts->n, nd);
  sc_status s = SC_OK;
  if (nd) {
    int64_t by[SC_MAX_DIMS] = {0};
    for (int i = 0; i < nd; i++) {                     /* a dim may be named twice: its shifts add up */
      int d = 0;
      int64_t named = dims->v[i];
      sc_call one = *c;
      sc_attr attr[2] = {c->attr[0], sc__int(named)};
      one.attr = attr;
      SC_TRY(sc__dim(&one, 1, x->ndim, &d));
      if (x->ndim == 0) continue;
      by[d] = wrapped(by[d] + wrapped(shifts->v[i], x->dim[d]), x->dim[d]);
    }
    s = sc__op(c->ctx, "roll_by", &x, 1, (sc_attr[]){sc__ints(by, x->ndim)}, 1, &c->out[0]);
  } else {
    int64_t by = wrapped(shifts->v[0], x->numel), all = -1;
    s = sc__op(c->ctx, "reshape", &x, 1, (sc_attr[]){sc__ints(x->numel ? &all : &x->numel, 1)}, 1, &flat);
    if (s == SC_OK) s = sc__op(c->ctx, "roll_by", &flat, 1, (sc_attr[]){sc__ints(&by, 1)}, 1, &rolled);
    if (s == SC_OK) s = sc__op(c->ctx, "reshape", &rolled, 1, (sc_attr[]){sc__ints(x->dim, x->ndim)}, 1, &c->out[0]);
    sc_tensor_release(flat);
    sc_tensor_release(rolled);
  }
  c->n_out = s == SC_OK;
  return s;
}

/* roll_by(x, shifts): one shift per dimension, 0 up to its size */
static sc_status roll_by_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  if (c->attr[0].n != x->ndim) return sc__bad_attr(c, 0, "expected %d shifts", x->ndim);
  for (int i = 0; i < x->ndim; i++)
    if (c->attr[0].v[i] < 0 || c->attr[0].v[i] > x->dim[i]) return sc__bad_attr(c, 0, "a shift is out of range");
  return like_infer(c);
}

/* Each rolled dim has two pieces: what moves up and what comes around. */
static sc_status roll_pieces(sc_call *c, int d, int64_t *dim, int64_t from, int64_t to) {
  sc_tensor *x = c->in[0], *out = c->out[0], *a, *b = NULL;
  if (d == x->ndim) {
    SC_TRY(part(x, x->ndim, dim, sc__stride(x), from, &a));
    sc_status s = part(out, x->ndim, dim, sc__stride(out), to, &b);
    if (s == SC_OK) s = sc__tensor_copy(b, a);
    sc_tensor_release(a);
    sc_tensor_release(b);
    return s;
  }
  int64_t n = x->dim[d], k = c->attr[0].v[d], xs = sc__stride(x)[d], os = sc__stride(out)[d];
  dim[d] = n - k;
  if (n > k) SC_TRY(roll_pieces(c, d + 1, dim, from, to + k * os));
  dim[d] = k;
  if (k) SC_TRY(roll_pieces(c, d + 1, dim, from + (n - k) * xs, to));
  return SC_OK;
}

static sc_status roll_by_run(sc_call *c) {
  int64_t dim[SC_MAX_DIMS];
  return c->in[0]->numel ? roll_pieces(c, 0, dim, 0, 0) : SC_OK;
}

static sc_status roll_by_backward(sc_grad_call *g) {
  int64_t back[SC_MAX_DIMS];
  for (int i = 0; i < g->attr[0].n; i++) back[i] = wrapped(-g->attr[0].v[i], g->dy[0]->dim[i]);
  return sc__grad_op(g, "roll_by", &g->dy[0], 1, (sc_attr[]){sc__ints(back, g->attr[0].n)}, 1, &g->dx[0]);
}

/* ---- repeat, tile: an expanded view with the copies as dims of their own, packed ---- */
static sc_status repeat_by(sc_call *c, int n, const int64_t *times) {
  sc_tensor *x = c->in[0], *apart = NULL, *wide = NULL;
  int64_t ones[SC_MAX_DIMS], both[SC_MAX_DIMS], size[SC_MAX_DIMS];
  int lead = n - x->ndim;
  char a[200];
  if (2 * n > SC_MAX_DIMS) return sc__bad_attr(c, 0, "at most %d dimensions", SC_MAX_DIMS / 2);
  for (int i = 0; i < n; i++) {
    int64_t have = i < lead ? 1 : x->dim[i - lead];
    ones[2 * i] = 1; ones[2 * i + 1] = both[2 * i + 1] = have;
    both[2 * i] = times[i];
    if (times[i] < 0 || !sc__mul(times[i], have, &size[i]))
      return sc__bad_attr(c, 0, "%s is not possible", sc__shape_text(n, times, a, sizeof a));
  }
  int64_t numel;
  SC_TRY(sc__numel(c->ctx, c->op->name, (sc_dtype)x->dtype, n, size, &numel));
  sc_status s = sc__op(c->ctx, "reshape", &x, 1, (sc_attr[]){sc__ints(ones, 2 * n)}, 1, &apart);
  if (s == SC_OK) s = sc__op(c->ctx, "expand", &apart, 1, (sc_attr[]){sc__ints(both, 2 * n)}, 1, &wide);
  sc_tensor *packed = NULL;
  if (s == SC_OK) s = sc__op1(c->ctx, "clone", wide, &packed);
  if (s == SC_OK) s = sc__op(c->ctx, "reshape", &packed, 1, (sc_attr[]){sc__ints(size, n)}, 1, &c->out[0]);
  sc_tensor_release(apart);
  sc_tensor_release(wide);
  sc_tensor_release(packed);
  c->n_out = s == SC_OK;
  return s;
}

static sc_status repeat_compose(sc_call *c) {
  if (c->attr[0].n < c->in[0]->ndim)
    return sc__bad_attr(c, 0, "expected at least %d numbers, got %d", c->in[0]->ndim, c->attr[0].n);
  return repeat_by(c, c->attr[0].n, c->attr[0].v);
}

static sc_status tile_compose(sc_call *c) {
  int64_t times[SC_MAX_DIMS];
  int n = c->attr[0].n, lead = c->in[0]->ndim - n;
  if (lead <= 0) return repeat_by(c, n, c->attr[0].v);
  for (int i = 0; i < n + lead; i++) times[i] = i < lead ? 1 : c->attr[0].v[i - lead];
  return repeat_by(c, n + lead, times);
}

/* ---- tril, triu ---- */
static sc_status triangle_infer(sc_call *c) {
  if (c->in[0]->ndim < 2) return sc__bad_input(c, 0, "expected at least 2 dimensions, got %d", c->in[0]->ndim);
  return like_infer(c);
}

typedef struct triangle_job { sc_tensor *out; int64_t diagonal; bool lower; } triangle_job;

static void clear_rows(void *arg, int64_t begin, int64_t end) {
  const triangle_job *j = arg;
  const sc_tensor *out = j->out;
  int64_t m = out->dim[out->ndim - 2], n = out->dim[out->ndim - 1], z = (int64_t)sc_dtype_size((sc_dtype)out->dtype);
  int64_t diagonal = j->diagonal < -m ? -m : j->diagonal > n ? n : j->diagonal;
  for (int64_t r = begin; r < end; r++) {
    int64_t edge = r % m + diagonal + (j->lower ? 1 : 0);        /* the first column on the other side */
    edge = edge < 0 ? 0 : edge > n ? n : edge;
    char *row = out->data + r * n * z;
    if (j->lower) memset(row + edge * z, 0, (size_t)((n - edge) * z));
    else memset(row, 0, (size_t)(edge * z));
  }
}

static sc_status triangle_run(sc_call *c, bool lower) {
  sc_tensor *out = c->out[0];
  SC_TRY(sc__tensor_copy(out, c->in[0]));
  if (out->numel == 0) return SC_OK;
  triangle_job j = {out, c->attr[0].i, lower};
  int64_t n = out->dim[out->ndim - 1];
  sc__parallel(c->ctx, out->numel / n, 1, 5 + (double)n * 0.1, clear_rows, &j);
  return SC_OK;
}

static sc_status tril_run(sc_call *c) { return triangle_run(c, true); }
static sc_status triu_run(sc_call *c) { return triangle_run(c, false); }

/* tril_indices(row, col, offset), triu_indices: int64 [2, n] */
/* Elements on and below a diagonal, in closed form: hostile sizes must not make a loop. */
static int64_t below(int64_t rows, int64_t cols, int64_t offset) {
  if (offset <= -rows || cols == 0) return 0;
  int64_t a = offset < 0 ? -offset : 0, b = cols - offset - 1;   /* rows a … b-1 grow by one, those from b on are full */
  b = b < a ? a : b > rows ? rows : b;
  __extension__ __int128 ramp = (__int128)(b - a) * (a + b + 2 * (__int128)offset + 1) / 2;
  return (int64_t)(ramp + (__int128)(rows - b) * cols);
}

static void triangle_list(int64_t rows, int64_t cols, int64_t offset, bool lower, int64_t *out) {
  int64_t first = lower && offset < 0 ? -offset : 0, end = !lower && cols - offset < rows ? cols - offset : rows;   /* the others have none */
  for (int64_t r = first; r < end; r++) {
    int64_t edge = r + offset + (lower ? 1 : 0);
    edge = edge < 0 ? 0 : edge > cols ? cols : edge;
    for (int64_t i = lower ? 0 : edge, to = lower ? edge : cols; i < to; i++) { *out++ = r; *out++ = i; }
  }
}

static sc_status indices_infer(sc_call *c, bool lower) {
  int64_t rows = c->attr[0].i, cols = c->attr[1].i, numel;
  SC_TRY(sc__numel(c->ctx, c->op->name, SC_INT64, 2, (int64_t[]){rows, cols}, &numel));
  int64_t offset = c->attr[2].i < -rows ? -rows : c->attr[2].i > cols ? cols : c->attr[2].i;
  c->note[0] = offset;
  c->note[1] = lower ? below(rows, cols, offset) : numel - below(rows, cols, offset - 1);
  sc_dtype d = sc__dtype_or(&c->attr[3], SC_INT64);
  if (d != SC_INT64 && d != SC_INT32) return sc__bad_attr(c, 3, "expected int64 or int32, got %s", sc_dtype_name(d));
  sc__meta_set(&c->meta[0], d, 2, (int64_t[]){2, c->note[1]});
  return SC_OK;
}

static sc_status indices_run(sc_call *c, bool lower) {
  int64_t n = c->note[1], bytes = n * 16;
  if (n == 0) return SC_OK;
  int64_t *pairs = sc__alloc(c->ctx, (size_t)bytes + 16);
  if (!pairs) return sc__no_memory(c->ctx, (size_t)bytes);
  triangle_list(c->attr[0].i, c->attr[1].i, c->note[0], lower, pairs);
  for (int64_t i = 0; i < 2 * n; i++) pairs[i] += c->base;
  char *to = c->out[0]->data;
  size_t z = sc_dtype_size((sc_dtype)c->out[0]->dtype);
  for (int k = 0; k < 2; k++) sc__convert(n, (sc_dtype)c->out[0]->dtype, to + (size_t)(k * n) * z, 1, SC_INT64, pairs + k, 2);
  sc__release(c->ctx, pairs, (size_t)bytes + 16);
  return SC_OK;
}

static sc_status tril_indices_infer(sc_call *c) { return indices_infer(c, true); }
static sc_status triu_indices_infer(sc_call *c) { return indices_infer(c, false); }
static sc_status tril_indices_run(sc_call *c) { return indices_run(c, true); }
static sc_status triu_indices_run(sc_call *c) { return indices_run(c, false); }

const sc_op sc__ops_join[] = {
  {"cat(tensors: tensor[], dim: dim = 0)", "The tensors one after another along a dimension; dtypes are promoted.\nErrors: their other dimensions differ; one has none.\nExample: sc.cat({a, b}, 2)",
   SC_OP_FUNCTION, .compose = cat_compose},
  {"cat_parts(tensors: tensor[], dim: dim)", "cat of at most 255 tensors.", SC_OP_FUNCTION | SC_OP_INTERNAL | SC_OP_SAVE_NO_IN | SC_OP_SAVE_NO_OUT,
   .infer = cat_infer, .run = cat_run, .cost = sc__cost_bytes, .backward = cat_backward},
  {"stack(tensors: tensor[], dim: dim = 0)", "The tensors, all of one shape, along a new dimension.\nErrors: their shapes differ.\nExample: sc.stack{a, b}",
   SC_OP_FUNCTION, .compose = stack_compose},
  {"flip(x, dims: dim[])", "x with the order of elements reversed along the dimensions.", 0, .infer = flip_infer, .run = flip_run, .grad = {"flip(dy, dims)"}},
  {"roll(x, shifts: int[], dims: dim[]?)", "x with its elements moved up by `shifts`, those pushed over the end coming in at the start. Without dims, over the flattened tensor.",
   0, .compose = roll_compose},
  {"roll_by(x, shifts: int[])", "roll with one shift per dimension.", SC_OP_INTERNAL | SC_OP_SAVE_NO_IN | SC_OP_SAVE_NO_OUT, .infer = roll_by_infer,
   .run = roll_by_run, .backward = roll_by_backward},
  {"repeat(x, repeats: shape)", "x repeated so many times along each dimension (new leading ones too).\nErrors: fewer numbers than dimensions.\nExample: x:rep(2, 1)", 0,
   .compose = repeat_compose},
  {"tile(x, dims: shape)", "repeat, where missing leading numbers are 1.", 0, .compose = tile_compose},
  {"tril(x, diagonal: int = 0)", "The lower triangle of matrices, zeros above the diagonal.", SC_OP_INPLACE, .infer = triangle_infer, .run = tril_run,
   .grad = {"tril(dy, diagonal)"}},
  {"triu(x, diagonal: int = 0)", "The upper triangle of matrices, zeros below the diagonal.", SC_OP_INPLACE, .infer = triangle_infer, .run = triu_run,
   .grad = {"triu(dy, diagonal)"}},
  {"tril_indices(row: int, col: int, offset: int = 0, dtype: dtype?)", "Rows and columns of the lower triangle's elements, in row-major order: {2, n}.",
   SC_OP_FUNCTION, .infer = tril_indices_infer, .run = tril_indices_run, .no_grad = "it does not depend on tensors"},
  {"triu_indices(row: int, col: int, offset: int = 0, dtype: dtype?)", "Rows and columns of the upper triangle's elements, in row-major order: {2, n}.",
   SC_OP_FUNCTION, .infer = triu_indices_infer, .run = triu_indices_run, .no_grad = "it does not depend on tensors"},
};
const int sc__ops_join_count = SC_COUNT(sc__ops_join);
