/* Padding. `pad` lists, from the last dimension backwards, how many elements to add before and after; negative numbers cut off.
**
** constant_pad copies x into a filled tensor. The other modes read x through a map per dimension: for each place of the result the
** place of x it repeats. Their gradient adds dy back through the same maps. */
#include "../kernels/index.h"
#include "ops.h"

#include <string.h>

/* How much is added before (and the new size) for dimension d. */
static sc_status padded(sc_call *c, int slot, int ndim, const int64_t *dim, int64_t *before, int64_t *size) {
  const sc_attr *pad = &c->attr[slot];
  if (pad->n % 2) return sc__bad_attr(c, slot, "expected an even number of sizes, got %d", pad->n);
  if (pad->n / 2 > ndim) return sc__bad_attr(c, slot, "%d sizes for a tensor of %d dimensions", pad->n, ndim);
  for (int d = 0; d < ndim; d++) {
    int k = 2 * (ndim - 1 - d);
    before[d] = k < pad->n ? pad->v[k] : 0;
    int64_t after = k < pad->n ? pad->v[k + 1] : 0;
    if (__builtin_add_overflow(dim[d], before[d], &size[d]) || __builtin_add_overflow(size[d], after, &size[d]) || size[d] < 0)
      return sc__bad_attr(c, slot, "padding dimension %d of size %lld by %lld and %lld is not possible", d + c->ctx->index_base,
                          (long long)dim[d], (long long)before[d], (long long)after);
  }
  return SC_OK;
}

/* ---- constant_pad(x, pad, value) ---- */
static sc_status constant_infer(sc_call *c) {
  int64_t before[SC_MAX_DIMS], size[SC_MAX_DIMS];
  SC_TRY(padded(c, 0, c->in[0]->ndim, c->in[0]->dim, before, size));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->in[0]->ndim, size);
  return SC_OK;
}

static sc_status constant_run(sc_call *c) {
  sc_tensor *x = c->in[0], *out = c->out[0], *from, *to;
  int64_t before[SC_MAX_DIMS], size[SC_MAX_DIMS], bits = 0;
  SC_TRY(padded(c, 0, x->ndim, x->dim, before, size));
  const sc_attr *v = &c->attr[1];
  sc__store((sc_dtype)out->dtype, &bits, v->kind == SC_ATTR_FLOAT ? sc__scalar_float(v->f) : sc__scalar_int(v->i));
  sc__convert(out->numel, (sc_dtype)out->dtype, out->data, 1, (sc_dtype)out->dtype, &bits, 0);
  sc_meta a = {.dtype = (sc_dtype)x->dtype, .ndim = x->ndim}, b = a;
  for (int d = 0; d < x->ndim; d++) {                  /* the part of x that is left, and its place */
    int64_t skip = before[d] < 0 ? -before[d] : 0, at = before[d] > 0 ? before[d] : 0;
    int64_t left = x->dim[d] - skip, room = size[d] - at;
    a.dim[d] = b.dim[d] = left < room ? left : room;
    if (a.dim[d] <= 0) return SC_OK;
    a.stride[d] = sc__stride(x)[d];
    b.stride[d] = sc__stride(out)[d];
    a.offset += skip * a.stride[d];
    b.offset += at * b.stride[d];
  }
  SC_TRY(sc__tensor_view(x, &a, &from));
  sc_status s = sc__tensor_view(out, &b, &to);
  if (s == SC_OK) { s = sc__tensor_copy(to, from); sc_tensor_release(to); }
  sc_tensor_release(from);
  return s;
}

static sc_status constant_backward(sc_grad_call *g) {
  int64_t back[SC_MAX_DIMS];
  for (int i = 0; i < g->attr[0].n; i++) back[i] = -g->attr[0].v[i];
  return sc__grad_op(g, "constant_pad", &g->dy[0], 1, (sc_attr[]){sc__ints(back, g->attr[0].n), sc__int(0)}, 2, &g->dx[0]);
}

/* ---- the modes that repeat x ---- */

typedef enum pad_mode { REFLECT, REPLICATE, CIRCULAR } pad_mode;

static sc_status mode_of(sc_call *c, int slot, pad_mode *out) {
  const char *s = c->attr[slot].s;
  if (strcmp(s, "reflect") == 0) *out = REFLECT;
  else if (strcmp(s, "replicate") == 0) *out = REPLICATE;
  else if (strcmp(s, "circular") == 0) *out = CIRCULAR;
  else return sc__bad_attr(c, slot, "expected \"constant\", \"reflect\", \"replicate\" or \"circular\", got \"%s\"", s);
  return SC_OK;
}

static sc_status mapped_shape(sc_call *c, int slot, int ndim, const int64_t *dim, int64_t *before, int64_t *size) {
  pad_mode mode;
  const sc_attr *pad = &c->attr[slot];
  SC_TRY(mode_of(c, slot + 1, &mode));
  SC_TRY(padded(c, slot, ndim, dim, before, size));
  for (int d = 0; d < ndim; d++) {
    int k = 2 * (ndim - 1 - d);
    if (k >= pad->n) continue;
    int64_t most = pad->v[k] > pad->v[k + 1] ? pad->v[k] : pad->v[k + 1];
    if (size[d] > 0 && dim[d] == 0) return sc__bad_attr(c, slot, "dimension %d is empty: there is nothing to repeat", d + c->ctx->index_base);
    if (mode == REFLECT && most >= dim[d] && most > 0)
      return sc__bad_attr(c, slot, "reflection by %lld needs more than %lld elements of dimension %d", (long long)most, (long long)dim[d], d + c->ctx->index_base);
    int64_t left = dim[d] + (pad->v[k] < 0 ? pad->v[k] : 0) + (pad->v[k + 1] < 0 ? pad->v[k + 1] : 0);
    if (mode == CIRCULAR && most > left && most > 0)
      return sc__bad_attr(c, slot, "padding by %lld goes around dimension %d of size %lld more than once", (long long)most, d + c->ctx->index_base, (long long)left);
  }
  return SC_OK;
}

/* Where place o of the padded dim reads: n elements, `before` added in front, `after` behind. Going around means around what is left
** when one side is cut off. */
static int64_t source_place(pad_mode mode, int64_t o, int64_t n, int64_t before, int64_t after) {
  int64_t i = o - before;
  if (mode == REPLICATE) return i < 0 ? 0 : i >= n ? n - 1 : i;
  if (mode == REFLECT) return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
  int64_t first = before < 0 ? -before : 0, left = n - first + (after < 0 ? after : 0);
  i -= first;
  return first + (i < 0 ? i + left : i >= left ? i - left : i);
}

typedef struct map_job {
  sc_tensor *big, *small;                              /* the padded tensor and x (or their gradients) */
  int64_t *map[SC_MAX_DIMS];                           /* place of x in elements, for each place of the padded dim */
  bool add;                                            /* small += big, else big = small */
  sc_combine_fn row;
} map_job;

static void map_rows(void *arg, int64_t begin, int64_t end) {
  const map_job *j = arg;
  const sc_tensor *big = j->big;
  int last = big->ndim - 1;
  int64_t z = (int64_t)sc_dtype_size((sc_dtype)big->dtype), n = big->dim[last];
  for (int64_t r = begin; r < end; r++) {
    int64_t rest = r, bo = 0, so = 0;
    for (int i = last - 1; i >= 0; i--) {
      int64_t x = rest % big->dim[i];
      rest /= big->dim[i];
      bo += x * sc__stride(big)[i];
      so += j->map[i][x];
    }
    char *b = big->data + bo * z, *s = j->small->data + so * z;
    int64_t bs = sc__stride(big)[last];
    for (int64_t k = 0; k < n; ) {                     /* runs of neighbours go at once */
      int64_t at = j->map[last][k], step = k + 1 < n ? j->map[last][k + 1] - at : 0, run = 1;
      while (k + run < n && j->map[last][k + run] == at + run * step) run++;
      if (j->add) j->row(run, s + at * z, step, b + k * bs * z, bs);
      else j->row(run, b + k * bs * z, bs, s + at * z, step);
      k += run;
    }
  }
}

static sc_status map_through(sc_call *c, int slot, sc_tensor *big, sc_tensor *small, bool add) {
  int64_t before[SC_MAX_DIMS], size[SC_MAX_DIMS], total = 0;
  pad_mode mode;
  SC_TRY(mode_of(c, slot + 1, &mode));
  SC_TRY(mapped_shape(c, slot, small->ndim, small->dim, before, size));
  if (big->ndim != small->ndim || memcmp(size, big->dim, (size_t)big->ndim * 8) != 0) return sc__bad_input(c, 0, "its shape does not fit");
  if (big->numel == 0) return SC_OK;
  for (int d = 0; d < big->ndim; d++) total += size[d];
  int64_t *places = sc__alloc(c->ctx, (size_t)total * 8);
  if (!places) return sc__no_memory(c->ctx, (size_t)total * 8);
  map_job j = {.big = big, .small = small, .add = add, .row = sc__combine((sc_dtype)big->dtype, add ? SC_COMBINE_ADD : SC_COMBINE_COPY)};
  int64_t *at = places;
  for (int d = 0; d < big->ndim; d++) {
    j.map[d] = at;
    for (int64_t i = 0; i < size[d]; i++) *at++ = source_place(mode, i, small->dim[d], before[d], size[d] - small->dim[d] - before[d]) * sc__stride(small)[d];
  }
  int64_t n = big->dim[big->ndim - 1];
  if (add) map_rows(&j, 0, big->numel / n);            /* in order: places repeat */
  else sc__parallel(c->ctx, big->numel / n, 1, 10 + (double)n, map_rows, &j);
  sc__release(c->ctx, places, (size_t)total * 8);
  return SC_OK;
}

static sc_status mapped_infer(sc_call *c) {
  int64_t before[SC_MAX_DIMS], size[SC_MAX_DIMS];
  if (c->in[0]->ndim == 0) return sc__bad_input(c, 0, "a 0-dimensional tensor cannot be padded");
  SC_TRY(mapped_shape(c, 0, c->in[0]->ndim, c->in[0]->dim, before, size));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->in[0]->ndim, size);
  return SC_OK;
}

static sc_status mapped_run(sc_call *c) { return map_through(c, 0, c->out[0], c->in[0], false); }

static sc_status mapped_backward_infer(sc_call *c) {
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, c->attr[0].n, c->attr[0].v);
  return SC_OK;
}

static sc_status mapped_backward_run(sc_call *c) {
  sc_tensor *out = c->out[0];
  memset(out->data, 0, (size_t)out->numel * sc_dtype_size((sc_dtype)out->dtype));
  return map_through(c, 1, c->in[0], out, true);
}

/* ---- nn.functional.pad ---- */
static sc_status pad_compose(sc_call *c) {
  const char *mode = c->attr[1].s;
  sc_tensor *x = c->in[0];
  bool constant = strcmp(mode, "constant") == 0;
  int n = c->attr[0].n / 2;
  pad_mode m;
  sc_status s;
  if (constant) {
    sc_attr value = sc__has(c, 2) ? c->attr[2] : sc__int(0);
    s = sc__op(c->ctx, "constant_pad", &x, 1, (sc_attr[]){c->attr[0], value}, 2, &c->out[0]);
  } else {
    SC_TRY(mode_of(c, 1, &m));
    if (n > 3 || (x->ndim != n + 1 && x->ndim != n + 2))
      return sc__bad_attr(c, 0, "padding of the last %d dimensions with mode \"%s\" needs a tensor of %d or %d dimensions, got %d", n, mode, n + 1, n + 2, x->ndim);
    if (sc__has(c, 2) && sc__number(&c->attr[2]) != 0) return sc__bad_attr(c, 2, "only mode \"constant\" has a value");
    s = sc__op(c->ctx, "mapped_pad", &x, 1, c->attr, 2, &c->out[0]);
  }
  c->n_out = s == SC_OK;
  return s;
}

const sc_op sc__ops_pad[] = {
  {"constant_pad(x, pad: int[], value: number = 0)", "x padded with a number: pad lists what to add before and after, from the last dimension backwards; negative numbers cut off.\nErrors: an odd list; a size would be negative.",
   SC_OP_SAVE_NO_IN | SC_OP_SAVE_NO_OUT, .infer = constant_infer, .run = constant_run, .backward = constant_backward},
  {"mapped_pad(x, pad: int[], mode: str)", "x padded with its own elements.", SC_OP_INTERNAL, .infer = mapped_infer, .run = mapped_run,
   .grad = {"mapped_pad_backward(dy, shape(x), pad, mode)"}},
  {"mapped_pad_backward(dy, size: shape, pad: int[], mode: str)", "mapped_pad's gradient.", SC_OP_INTERNAL, .infer = mapped_backward_infer,
   .run = mapped_backward_run, .grad = {"mapped_pad(dy, pad, mode)"}},
  {"nn.functional.pad(x, pad: int[], mode: str = \"constant\", value: number?)",
   "x padded: pad lists what to add before and after, from the last dimension backwards; negative numbers cut off. mode: \"constant\" (with value), \"reflect\", \"replicate\" or \"circular\".\nErrors: an odd list; reflection of more than there is; going around more than once.\nExample: F.pad(x, {1, 1}, \"reflect\")",
   SC_OP_FUNCTION, .compose = pad_compose},
};
const int sc__ops_pad_count = SC_COUNT(sc__ops_pad);
