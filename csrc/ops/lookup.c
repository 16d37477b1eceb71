/* Tables looked up by index: embedding, one_hot, and the indices behind repeat_interleave and embedding_bag. */
#include "../kernels/index.h"
#include "gather.h"
#include "ops.h"

#include <math.h>
#include <string.h>

/* ---- embedding ---- */

static sc_status table_check(sc_call *c, int weight, int input) {
  if (c->in[weight]->ndim != 2) return sc__bad_input(c, weight, "expected a matrix of rows, got %d dimensions", c->in[weight]->ndim);
  return sc__index_dtype(c, input, true);
}

/* attr[slot], a row of n or none, as 0 … n-1 or -1 */
static sc_status padding_row(sc_call *c, int slot, int64_t n, int64_t *out) {
  *out = -1;
  if (!sc__has(c, slot)) return SC_OK;
  int64_t i = c->attr[slot].i;
  int base = c->ctx->index_base;
  if (i < -n || i >= n) return sc__bad_attr(c, slot, "index %lld is out of range %d..%lld", (long long)(i < 0 ? i : i + base), base, (long long)(n - 1 + base));
  *out = i < 0 ? i + n : i;
  return SC_OK;
}

/* Positions of the index by columns of the rows. */
static sc_index_walk rows_walk(const sc_call *c, const sc_tensor *table, const sc_tensor *index, sc_tensor *values) {
  sc_index_walk w = {.nd = 2, .n = table->dim[0], .step = sc__stride(table)[0], .base = c->base, .index = (const int64_t *)index->data,
                     .table = table->data, .values = values->data, .indexed = 0};
  w.dim[0] = index->numel; w.is[0] = 1; w.vs[0] = table->dim[1];
  w.dim[1] = table->dim[1]; w.xs[1] = sc__stride(table)[1]; w.vs[1] = 1;
  return w;
}

/* How often each row occurs: new, n numbers of 8 bytes. */
static sc_status occurrences(sc_call *c, const sc_tensor *index, int64_t n, int64_t **out) {
  *out = sc__alloc_zero(c->ctx, (size_t)n * 8 + 8);
  if (!*out) return sc__no_memory(c->ctx, (size_t)n * 8);
  const int64_t *v = (const int64_t *)index->data;
  for (int64_t i = 0; i < index->numel; i++) (*out)[v[i] - c->base]++;
  return SC_OK;
}

static void divide_row(sc_tensor *t, int64_t row, int64_t by) {
  size_t z = sc_dtype_size((sc_dtype)t->dtype);
  int64_t n = t->dim[t->ndim - 1];
  for (int64_t k = 0; k < n; k++) {
    char *at = t->data + (size_t)(row * n + k) * z;
    sc__store((sc_dtype)t->dtype, at, sc__scalar_float(sc__load((sc_dtype)t->dtype, at).f / (double)by));
  }
}

/* embedding_rows(weight, input, padding_idx, by_frequency, masked): weight's rows; masked: as the gradient sees them, the padding's
** as zeros and each divided by how often it occurs */
static sc_status rows_infer(sc_call *c) {
  const sc_tensor *w = c->in[0], *input = c->in[1];
  int64_t padding;
  SC_TRY(table_check(c, 0, 1));
  SC_TRY(padding_row(c, 0, w->dim[0], &padding));
  if (input->ndim == SC_MAX_DIMS) return sc__bad_input(c, 1, "at most %d dimensions", SC_MAX_DIMS - 1);
  sc__meta_set(&c->meta[0], (sc_dtype)w->dtype, input->ndim, input->dim);
  c->meta[0].dim[c->meta[0].ndim++] = w->dim[1];
  return SC_OK;
}

static sc_status rows_run(sc_call *c) {
  sc_tensor *w = c->in[0], *out = c->out[0], *index;
  int64_t padding, *times = NULL;
  SC_TRY(padding_row(c, 0, w->dim[0], &padding));
  SC_TRY(sc__index_read(c, 1, w->dim[0], false, &index));
  sc_index_walk walk = rows_walk(c, w, index, out);
  sc__index_gather(c->ctx, &walk, sc_dtype_size((sc_dtype)w->dtype));
  sc_status s = SC_OK;
  bool masked = c->attr[2].i;
  if (masked && c->attr[1].i) s = occurrences(c, index, w->dim[0], &times);
  size_t row = (size_t)w->dim[1] * sc_dtype_size((sc_dtype)w->dtype);
  for (int64_t i = 0; i < index->numel && masked && s == SC_OK; i++) {
    int64_t r = ((const int64_t *)index->data)[i] - c->base;
    if (r == padding) memset(out->data + (size_t)i * row, 0, row);
    else if (times && times[r] > 1) divide_row(out, i, times[r]);
  }
  sc__release(c->ctx, times, times ? (size_t)w->dim[0] * 8 + 8 : 0);
  sc_tensor_release(index);
  return s;
}

static sc_status rows_backward_infer(sc_call *c) {
  const sc_attr *size = &c->attr[0];
  const sc_tensor *g = c->in[0], *input = c->in[1];
  int64_t padding;
  if (size->n != 2) return sc__bad_attr(c, 0, "expected two sizes");
  SC_TRY(sc__index_dtype(c, 1, true));
  SC_TRY(padding_row(c, 1, size->v[0], &padding));
  if (g->ndim != input->ndim + 1 || memcmp(g->dim, input->dim, (size_t)input->ndim * 8) != 0 || g->dim[g->ndim - 1] != size->v[1])
    return sc__bad_input(c, 0, "its shape does not fit");
  sc__meta_set(&c->meta[0], (sc_dtype)g->dtype, 2, size->v);
  return SC_OK;
}

static sc_status rows_backward_run(sc_call *c) {
  sc_tensor *out = c->out[0], *index, *g = NULL;
  int64_t padding, *times = NULL, n = out->dim[0];
  size_t row = (size_t)out->dim[1] * sc_dtype_size((sc_dtype)out->dtype);
  SC_TRY(padding_row(c, 1, n, &padding));
  SC_TRY(sc__index_read(c, 1, n, false, &index));
  sc_status s = sc__tensor_packed(c->in[0], &g);
  if (s == SC_OK && c->attr[2].i) s = occurrences(c, index, n, &times);
  if (s == SC_OK) {
    memset(out->data, 0, (size_t)n * row);
    sc_index_walk walk = rows_walk(c, out, index, g);
    sc__index_scatter(c->ctx, &walk, (sc_dtype)out->dtype, SC_COMBINE_ADD);
    for (int64_t r = 0; r < n && times; r++) if (times[r] > 1) divide_row(out, r, times[r]);
    if (padding >= 0) memset(out->data + (size_t)padding * row, 0, row);
  }
  sc__release(c->ctx, times, times ? (size_t)n * 8 + 8 : 0);
  sc_tensor_release(g);
  sc_tensor_release(index);
  return s;
}

/* embedding_renorm_(weight, input, max_norm, norm_type): rows that are looked up are scaled down to max_norm, in place */
static sc_status renorm_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  if (!sc__is_float((sc_dtype)c->in[0]->dtype)) return sc__bad_input(c, 0, "max_norm needs a floating dtype");
  return table_check(c, 0, 1);
}

static sc_status renorm_run(sc_call *c) {
  sc_tensor *w = c->out[0], *index;
  double most = c->attr[0].f, p = c->attr[1].f;
  SC_TRY(sc__index_read(c, 1, w->dim[0], false, &index));
  size_t z = sc_dtype_size((sc_dtype)w->dtype);
  for (int64_t i = 0; i < index->numel; i++) {         /* a row met again has the norm already */
    char *row = w->data + (((const int64_t *)index->data)[i] - c->base) * sc__stride(w)[0] * (int64_t)z;
    double norm = 0;
    for (int64_t k = 0; k < w->dim[1]; k++) {
      double a = fabs(sc__load((sc_dtype)w->dtype, row + k * sc__stride(w)[1] * (int64_t)z).f);
      if (isinf(p)) norm = a > norm ? a : norm; else norm += p == 2 ? a * a : p == 1 ? a : pow(a, p);
    }
    if (!isinf(p)) norm = p == 2 ? sqrt(norm) : p == 1 ? norm : pow(norm, 1 / p);
    if (!(norm > most)) continue;
    double scale = most / (norm + 1e-7);
    for (int64_t k = 0; k < w->dim[1]; k++) {
      char *at = row + k * sc__stride(w)[1] * (int64_t)z;
      sc__store((sc_dtype)w->dtype, at, sc__scalar_float(sc__load((sc_dtype)w->dtype, at).f * scale));
    }
  }
  sc_tensor_release(index);
  return SC_OK;
}

static sc_status embedding_compose(sc_call *c) {
  sc_tensor *pair[2] = {c->in[1], c->in[0]};
  int64_t padding;
  SC_TRY(table_check(c, 1, 0));
  SC_TRY(padding_row(c, 0, c->in[1]->dim[0], &padding));
  if (sc__has(c, 1)) {
    sc_tensor *same;
    bool was = c->ctx->grad_enabled;
    c->ctx->grad_enabled = false;
    sc_status s = sc__op(c->ctx, "embedding_renorm_", pair, 2, &c->attr[1], 2, &same);
    c->ctx->grad_enabled = was;
    SC_TRY(s);
    sc_tensor_release(same);
  }
  sc_status s = sc__op(c->ctx, "embedding_rows", pair, 2, (sc_attr[]){c->attr[0], c->attr[3], sc__bool(false)}, 3, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

/* ---- one_hot ---- */
static sc_status one_hot_infer(sc_call *c) {
  sc_tensor *x = c->in[0];
  int64_t classes = c->attr[0].i;
  if (x->dtype != SC_INT64) return sc__bad_input(c, 0, "expected an int64 tensor of classes, got %s", sc_dtype_name((sc_dtype)x->dtype));
  if (classes < -1 || (classes == 0 && x->numel)) return sc__bad_attr(c, 0, "expected a positive number of classes, got %lld", (long long)classes);
  if (x->ndim == SC_MAX_DIMS) return sc__bad_input(c, 0, "at most %d dimensions", SC_MAX_DIMS - 1);
  if (classes == -1) {
    if (sc__is_symbolic(x)) return sc__bad_attr(c, 0, "the number of classes must be given in a graph: it cannot depend on data");
    if (x->numel == 0) return sc__bad_attr(c, 0, "the number of classes must be given for an empty tensor");
    sc_tensor *index;
    SC_TRY(sc__index_read(c, 0, INT64_MAX - 1, false, &index));
    classes = 0;
    for (int64_t i = 0; i < index->numel; i++) {
      int64_t v = ((const int64_t *)index->data)[i] - c->base + 1;
      classes = v > classes ? v : classes;
    }
    sc_tensor_release(index);
  }
  sc__meta_set(&c->meta[0], SC_INT64, x->ndim, x->dim);
  c->meta[0].dim[c->meta[0].ndim++] = classes;
  return SC_OK;
}

static sc_status one_hot_run(sc_call *c) {
  sc_tensor *out = c->out[0], *index;
  int64_t classes = out->dim[out->ndim - 1];
  SC_TRY(sc__index_read(c, 0, classes, false, &index));
  int64_t *to = (int64_t *)out->data;
  memset(to, 0, (size_t)out->numel * 8);
  for (int64_t i = 0; i < index->numel; i++) to[i * classes + ((const int64_t *)index->data)[i] - c->base] = 1;
  sc_tensor_release(index);
  return SC_OK;
}

/* ---- repeats_index(repeats, size): each of `size` places as often as its number says ---- */
static sc_status repeats_infer(sc_call *c) {
  const sc_tensor *r = c->in[0];
  int64_t size = c->attr[0].i, total = 0, z = (int64_t)sc_dtype_size((sc_dtype)r->dtype);
  if (r->dtype != SC_INT64 && r->dtype != SC_INT32) return sc__bad_input(c, 0, "expected int64 or int32 numbers, got %s", sc_dtype_name((sc_dtype)r->dtype));
  if (r->ndim > 1 || (r->numel != 1 && r->numel != size)) return sc__bad_input(c, 0, "expected a list of %lld numbers", (long long)size);
  if (sc__is_symbolic(r)) return sc__bad_input(c, 0, "in a graph the numbers cannot depend on data");
  for (int64_t i = 0; i < size; i++) {
    int64_t n = sc__load((sc_dtype)r->dtype, r->data + (r->numel == 1 ? 0 : i * sc__stride(r)[0]) * z).i;
    if (n < 0) return sc__bad_input(c, 0, "the numbers must not be negative, got %lld", (long long)n);
    if (__builtin_add_overflow(total, n, &total)) return sc__bad_input(c, 0, "the result is too large");
  }
  sc__meta_set(&c->meta[0], SC_INT64, 1, &total);
  return SC_OK;
}

static sc_status repeats_run(sc_call *c) {
  const sc_tensor *r = c->in[0];
  int64_t *to = (int64_t *)c->out[0]->data, z = (int64_t)sc_dtype_size((sc_dtype)r->dtype);
  for (int64_t i = 0; i < c->attr[0].i; i++)
    for (int64_t n = sc__load((sc_dtype)r->dtype, r->data + (r->numel == 1 ? 0 : i * sc__stride(r)[0]) * z).i; n > 0; n--) *to++ = i + c->base;
  return SC_OK;
}

/* ---- bag_of(offsets, size): the bag that each of `size` positions belongs to; a bag begins at each offset ---- */
static sc_status bag_infer(sc_call *c) {
  if (c->in[0]->ndim != 1) return sc__bad_input(c, 0, "expected a list of offsets, got %d dimensions", c->in[0]->ndim);
  SC_TRY(sc__index_dtype(c, 0, true));
  sc__meta_set(&c->meta[0], SC_INT64, 1, &c->attr[0].i);
  return SC_OK;
}

static sc_status bag_run(sc_call *c) {
  int64_t n = c->attr[0].i, *to = (int64_t *)c->out[0]->data, at = 0, bags = c->in[0]->numel;
  sc_tensor *offsets;
  SC_TRY(sc__index_read(c, 0, n + 1, false, &offsets));
  const int64_t *v = (const int64_t *)offsets->data;
  sc_status s = n && (bags == 0 || v[0] != c->base) ? sc__bad_input(c, 0, "the first offset must be %d", c->base) : SC_OK;
  for (int64_t k = 0; k < bags && s == SC_OK; k++) {
    int64_t end = k + 1 < bags ? v[k + 1] - c->base : n;
    if (end < v[k] - c->base) s = sc__bad_input(c, 0, "the offsets must not fall, but %lld follows %lld", (long long)v[k + 1], (long long)v[k]);
    while (at < end && s == SC_OK) to[at++] = k + c->base;
  }
  sc_tensor_release(offsets);
  return s;
}

#define ROWS "padding_idx: index?, by_frequency: bool = false"
const sc_op sc__ops_lookup[] = {
  {"nn.functional.embedding(input, weight, padding_idx: index?, max_norm: float?, norm_type: float = 2, scale_grad_by_freq: bool = false, sparse: bool = false)",
   "Rows of weight at the indices of input: {…, D} for input {…} and weight {V, D}. The row padding_idx gets no gradient; max_norm scales rows that are looked up down to that norm, in weight itself; scale_grad_by_freq divides a row's gradient by how often it occurs.\nErrors: weight is not a matrix; input is not int64 or int32, or out of range.\nExample: F.embedding(sc.tensor{2, 1}, weight)",
   SC_OP_FUNCTION, .compose = embedding_compose},
  {"embedding_rows(weight, input, " ROWS ", masked: bool = false)", "Rows of weight.", SC_OP_INTERNAL, .infer = rows_infer, .run = rows_run, .cost = sc__cost_results,
   .grad = {"embedding_rows_backward(dy, input, shape(weight), padding_idx, by_frequency)"}},
  {"embedding_rows_backward(g, input, size: shape, " ROWS ")", "embedding's gradient.", SC_OP_INTERNAL, .infer = rows_backward_infer,
   .run = rows_backward_run, .grad = {"embedding_rows(dy, input, padding_idx, by_frequency, true)"}},
  {"embedding_renorm_(weight, input, max_norm: float, norm_type: float = 2)", "Scales rows of weight down to a norm, in place.",
   SC_OP_INTERNAL | SC_OP_INPLACE_ONLY | SC_OP_DIRECT, .infer = renorm_infer, .run = renorm_run, .no_grad = "weights are changed outside of gradients"},
  {"nn.functional.one_hot(x, num_classes: int = -1)", "A one at each class of x, else zeros: int64 {…, num_classes} for x {…}; -1 takes the largest class.\nErrors: x is not int64, or holds a class out of range.\nExample: F.one_hot(sc.tensor{1, 3})",
   SC_OP_FUNCTION, .infer = one_hot_infer, .run = one_hot_run, .no_grad = "indices have no derivative"},
  {"repeats_index(repeats, size: int)", "What repeat_interleave reads.", SC_OP_INTERNAL, .infer = repeats_infer, .run = repeats_run, .no_grad = "indices have no derivative"},
  {"bag_of(offsets, size: int)", "The bag each position belongs to.", SC_OP_INTERNAL, .infer = bag_infer, .run = bag_run, .no_grad = "indices have no derivative"},
};
const int sc__ops_lookup_count = SC_COUNT(sc__ops_lookup);
