/* Sorting and what is read off a sorted line: sort, topk, kthvalue, median, mode. One plan for all: lines along a dim are shared out
** among as many groups as there are threads, each with its own scratch; a line's result does not depend on its group. */
#include "reduce.h"
#include "../kernels/sort.h"

#include <string.h>

typedef struct plan plan;
typedef void (*line_fn)(const plan *p, const sc_line *l, int64_t *order, void *scratch, int64_t to);

struct plan {
  line_fn fn;
  const sc_tensor *x, *values, *indices;
  int64_t outer, n, inner, stride;
  int64_t k, base, rank;         /* results per line; of index values; kthvalue's k from 0 */
  bool flag, skip_nan;           /* descending or largest; nanmedian */
  int64_t groups, share;         /* lines of a group */
  char *scratch;
  size_t room;                   /* of a group */
};

/* The place in memory of a line's first element. */
static int64_t line_offset(const sc_tensor *x, int dim, int64_t line) {
  int64_t off = 0;
  for (int i = x->ndim - 1; i >= 0; i--) {
    if (i == dim) continue;
    off += line % x->dim[i] * sc__stride(x)[i];
    line /= x->dim[i];
  }
  return off;
}

typedef struct lines { plan p; int dim; } lines;

static void run_groups(void *arg, int64_t begin, int64_t end) {
  const lines *g = arg;
  const plan *p = &g->p;
  sc_dtype d = (sc_dtype)p->x->dtype;
  for (int64_t u = begin; u < end; u++) {
    int64_t *order = (int64_t *)(p->scratch + (size_t)u * p->room);
    void *rest = order + p->n;
    int64_t total = p->outer * p->inner, stop = (u + 1) * p->share < total ? (u + 1) * p->share : total;
    for (int64_t i = u * p->share; i < stop; i++) {
      sc__slice_look(p->x->ctx, 0);
      sc_line l = {d, p->x->data + line_offset(p->x, g->dim, i) * (int64_t)sc_dtype_size(d), p->n, p->stride};
      p->fn(p, &l, order, rest, i / p->inner * p->k * p->inner + i % p->inner);
    }
  }
}

/* Runs fn over x's lines along dim. values, indices: the results, packed, k along dim. */
static sc_status over_lines(sc_call *c, line_fn fn, int dim, int64_t k, bool flag, bool skip_nan, int64_t rank) {
  sc_tensor *x = c->in[0];
  lines g = {.dim = dim, .p = {.fn = fn, .x = x, .values = c->out[0], .indices = c->n_out > 1 ? c->out[1] : NULL, .outer = 1, .inner = 1,
             .n = x->ndim ? x->dim[dim] : 1, .stride = x->ndim ? sc__stride(x)[dim] : 1, .k = k, .base = c->base, .flag = flag, .skip_nan = skip_nan, .rank = rank}};
  plan *p = &g.p;
  for (int i = 0; i < x->ndim; i++) if (i != dim) *(i < dim ? &p->outer : &p->inner) *= x->dim[i];
  int64_t total = p->outer * p->inner;
  if (total == 0 || k == 0 || p->n == 0) return SC_OK;
  p->groups = sc_get_threads(c->ctx) < total ? sc_get_threads(c->ctx) : total;
  if (c->ctx->slice) p->groups = 1;                    /* cut between lines */
  p->share = (total + p->groups - 1) / p->groups;
  p->room = ((size_t)p->n * 16 + sc__order_scratch((sc_dtype)x->dtype, p->n) + 63) & ~(size_t)63;
  int64_t bytes;
  if (!sc__mul((int64_t)p->room, p->groups, &bytes)) return sc__no_memory(c->ctx, SIZE_MAX);
  p->scratch = sc__alloc(c->ctx, (size_t)bytes);
  if (!p->scratch) return sc__no_memory(c->ctx, (size_t)bytes);
  sc__parallel(c->ctx, p->groups, 1, (double)p->share * (double)p->n * 15, run_groups, &g);
  sc__release(c->ctx, p->scratch, (size_t)bytes);
  return SC_OK;
}

static void store(const plan *p, const sc_line *l, const int64_t *order, int64_t n, int64_t to) {
  sc__order_gather(l, order, n, p->values->data + to * (int64_t)sc_dtype_size(l->dtype), p->inner);
  if (!p->indices) return;
  int64_t *index = (int64_t *)p->indices->data + to;
  for (int64_t i = 0; i < n; i++) index[i * p->inner] = order[i] + p->base;
}

/* ---- sort, topk ---- */

static void sort_line(const plan *p, const sc_line *l, int64_t *order, void *scratch, int64_t to) {
  sc__order(l, p->flag, order, scratch);
  store(p, l, order, p->n, to);
}

static void top_line(const plan *p, const sc_line *l, int64_t *order, void *scratch, int64_t to) {
  sc__order_top(l, p->k, p->flag, order, scratch);
  store(p, l, order, p->k, to);
}

static sc_status pair_like(sc_call *c, int dim_slot, int64_t size, int *dim) {
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__dim(c, dim_slot, x->ndim, dim));
  sc__meta_like(&c->meta[0], x);
  if (size >= 0 && x->ndim) c->meta[0].dim[*dim] = size;
  sc__meta_set(&c->meta[1], SC_INT64, c->meta[0].ndim, c->meta[0].dim);
  c->n_out = 2;
  return SC_OK;
}

static sc_status sort_infer(sc_call *c) {
  int dim;
  return pair_like(c, 0, -1, &dim);
}

static sc_status sort_run(sc_call *c) {
  int dim;
  SC_TRY(sc__dim(c, 0, c->in[0]->ndim, &dim));
  return over_lines(c, sort_line, dim, c->in[0]->ndim ? c->in[0]->dim[dim] : 1, c->attr[1].i, false, 0);
}

static sc_status argsort_compose(sc_call *c) {
  SC_TRY(sc__become(c, "sort", c->in, 1, c->attr, 3));
  sc_tensor_release(c->out[0]);
  c->out[0] = c->out[1];
  c->out[1] = NULL;
  c->n_out = 1;
  return SC_OK;
}

static sc_status msort_compose(sc_call *c) {
  sc_attr dim = sc__int(0);
  sc_tensor *values;
  SC_TRY(sc__make(c, "sort", c->in, 1, &dim, 1, &values));
  c->out[0] = values;
  c->n_out = 1;
  return SC_OK;
}

static sc_status topk_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  int dim;
  SC_TRY(sc__dim(c, 1, x->ndim, &dim));
  int64_t k = c->attr[0].i, n = x->ndim ? x->dim[dim] : 1;
  if (k < 0 || k > n) return sc__bad_attr(c, 0, "expected 0 to %lld, the size of dimension %d, got %lld", (long long)n, dim + c->ctx->index_base, (long long)k);
  return pair_like(c, 1, k, &dim);
}

static sc_status topk_run(sc_call *c) {
  int dim;
  SC_TRY(sc__dim(c, 1, c->in[0]->ndim, &dim));
  return over_lines(c, top_line, dim, c->attr[0].i, c->attr[2].i, false, 0);
}

/* ---- one element of each line: kthvalue, median, nanmedian, mode ---- */

static bool nan_at(const sc_line *l, int64_t at) {
  if (!sc__is_float(l->dtype)) return false;
  sc_scalar v = sc__load(l->dtype, l->data + at * l->stride * (int64_t)sc_dtype_size(l->dtype));
  return v.f != v.f;
}

static void kth_line(const plan *p, const sc_line *l, int64_t *order, void *scratch, int64_t to) {
  sc__order(l, false, order, scratch);
  store(p, l, order + p->rank, 1, to);
}

/* The lower of the two in the middle; any NaN wins, or NaNs do not count. */
static void median_line(const plan *p, const sc_line *l, int64_t *order, void *scratch, int64_t to) {
  sc__order(l, false, order, scratch);
  int64_t n = p->n;
  while (n > 0 && nan_at(l, order[n - 1])) n--;
  int64_t at = n == p->n || p->skip_nan ? (n > 0 ? (n - 1) / 2 : 0) : n;
  store(p, l, order + at, 1, to);
}

/* The most frequent value, the smallest of equally frequent ones, where it is last. */
static void mode_line(const plan *p, const sc_line *l, int64_t *order, void *scratch, int64_t to) {
  sc__order(l, false, order, scratch);
  int64_t best = 0, longest = 0, begin = 0;
  for (int64_t i = 1; i <= p->n; i++) {
    if (i < p->n) {
      int64_t z = (int64_t)sc_dtype_size(l->dtype);
      sc_scalar a = sc__load(l->dtype, l->data + order[begin] * l->stride * z), b = sc__load(l->dtype, l->data + order[i] * l->stride * z);
      if (a.is_int ? a.i == b.i : a.f == b.f) continue;
    }
    if (i - begin > longest) { longest = i - begin; best = i - 1; }
    begin = i;
  }
  store(p, l, order + best, 1, to);
}

static sc_status one_infer(sc_call *c, int dim_slot, int keep_slot) {
  bool mask[SC_MAX_DIMS];
  SC_TRY(sc__reduced_meta(c, dim_slot, keep_slot, mask, &c->meta[0]));
  SC_TRY(sc__not_empty(c, mask));
  c->meta[0].dtype = (sc_dtype)c->in[0]->dtype;
  sc__meta_set(&c->meta[1], SC_INT64, c->meta[0].ndim, c->meta[0].dim);
  c->n_out = 2;
  return SC_OK;
}

static sc_status kthvalue_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  int dim;
  SC_TRY(sc__dim(c, 1, x->ndim, &dim));
  int64_t k = c->attr[0].i, n = x->ndim ? x->dim[dim] : 1;
  if (k < 1 || k > n) return sc__bad_attr(c, 0, "expected 1 to %lld, the size of dimension %d, got %lld", (long long)n, dim + c->ctx->index_base, (long long)k);
  return one_infer(c, 1, 2);
}

static sc_status one_run(sc_call *c, line_fn fn, int dim_slot, bool skip_nan, int64_t rank) {
  int dim;
  SC_TRY(sc__dim(c, dim_slot, c->in[0]->ndim, &dim));
  return over_lines(c, fn, dim, 1, false, skip_nan, rank);
}

static sc_status kthvalue_run(sc_call *c) { return one_run(c, kth_line, 1, false, c->attr[0].i - 1); }
static sc_status median_infer(sc_call *c) { return one_infer(c, 0, 1); }
static sc_status median_dim_run(sc_call *c) { return one_run(c, median_line, 0, false, 0); }
static sc_status nanmedian_dim_run(sc_call *c) { return one_run(c, median_line, 0, true, 0); }
static sc_status mode_run(sc_call *c) { return one_run(c, mode_line, 0, false, 0); }

static sc_status all_infer(sc_call *c) {
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, 0, NULL);
  if (c->in[0]->numel == 0 && !sc__is_float((sc_dtype)c->in[0]->dtype)) return sc__bad_input(c, 0, "an empty tensor has no median");
  return SC_OK;
}

/* Over everything: the line is the flattened tensor. */
static sc_status median_all(sc_call *c, bool skip_nan) {
  if (c->in[0]->numel == 0) { sc__store((sc_dtype)c->out[0]->dtype, c->out[0]->data, sc__scalar_float((double)__builtin_nanf(""))); return SC_OK; }
  sc_tensor *packed, *flat;
  SC_TRY(sc__tensor_packed(c->in[0], &packed));
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)packed->dtype, 1, &packed->numel);
  m.stride[0] = 1;
  m.offset = 0;
  sc_status s = sc__tensor_view(packed, &m, &flat);
  if (s == SC_OK) {
    sc_call line = *c;
    line.in = &flat;
    s = over_lines(&line, median_line, 0, 1, false, skip_nan, 0);
    sc_tensor_release(flat);
  }
  sc_tensor_release(packed);
  return s;
}
static sc_status median_all_run(sc_call *c) { return median_all(c, false); }
static sc_status nanmedian_all_run(sc_call *c) { return median_all(c, true); }

static sc_status median_compose(sc_call *c) { return sc__become(c, sc__has(c, 0) ? "median_dim" : "median_all", c->in, 1, c->attr, sc__has(c, 0) ? 2 : 0); }
static sc_status nanmedian_compose(sc_call *c) {
  return sc__become(c, sc__has(c, 0) ? "nanmedian_dim" : "nanmedian_all", c->in, 1, c->attr, sc__has(c, 0) ? 2 : 0);
}

#define PICKED .grad = {"pick_backward(dy, y2, shape(x), dim, keepdim)"}
#define PICKED_SAME .grad = {"pick_backward(dy, y2, shape(x), dim, true)"}
#define SHARED .grad = {"unreduce(dy, shape(x), nil, false) * tie_share(x, y, nil, false)"}

const sc_op sc__ops_sort[] = {
  {"sort(x, dim: dim = -1, descending: bool = false, stable: bool = true) -> values, indices",
   "x sorted along dim, and where each element came from. Always stable; NaNs come last (descending: first).\n"
   "Example: local v, i = sc.tensor{3, 1, 2}:sort()", 0, .infer = sort_infer, .run = sort_run, PICKED_SAME},
  {"argsort(x, dim: dim = -1, descending: bool = false, stable: bool = true)", "The indices that sort x along dim.", 0, .compose = argsort_compose},
  {"msort(x)", "x sorted along its first dim.", 0, .compose = msort_compose},
  {"topk(x, k: int, dim: dim = -1, largest: bool = true, sorted: bool = true) -> values, indices",
   "The k largest (or smallest) along dim, best first, of equals the earlier; a NaN is largest.\nErrors: k beyond the size of dim.", 0,
   .infer = topk_infer, .run = topk_run, PICKED_SAME},
  {"kthvalue(x, k: int, dim: dim = -1, keepdim: bool = false) -> values, indices",
   "The k-th smallest along dim (k from 1), and where it is; a NaN is largest.\nErrors: k beyond the size of dim.", 0, .infer = kthvalue_infer,
   .run = kthvalue_run, PICKED},
  {"median(x, dim: dim?, keepdim: bool = false) -> values, indices",
   "The lower median of all elements, or along dim and where it is; NaN where there is one.\nErrors: an empty dim.", 0, .compose = median_compose},
  {"median_dim(x, dim: dim, keepdim: bool = false) -> values, indices", "median along dim.", SC_OP_INTERNAL, .infer = median_infer,
   .run = median_dim_run, PICKED},
  {"median_all(x)", "median of all elements.", SC_OP_INTERNAL, .infer = all_infer, .run = median_all_run, SHARED},
  {"nanmedian(x, dim: dim?, keepdim: bool = false) -> values, indices", "median of what is not NaN.\nErrors: an empty dim.", 0,
   .compose = nanmedian_compose},
  {"nanmedian_dim(x, dim: dim, keepdim: bool = false) -> values, indices", "nanmedian along dim.", SC_OP_INTERNAL, .infer = median_infer,
   .run = nanmedian_dim_run, PICKED},
  {"nanmedian_all(x)", "nanmedian of all elements.", SC_OP_INTERNAL, .infer = all_infer, .run = nanmedian_all_run, SHARED},
  {"mode(x, dim: dim = -1, keepdim: bool = false) -> values, indices",
   "The most frequent element along dim, the smallest of equally frequent ones, and where it is last.\nErrors: an empty dim.", 0,
   .infer = median_infer, .run = mode_run, PICKED},
};
const int sc__ops_sort_count = SC_COUNT(sc__ops_sort);
