/* Looking things up in sorted order and counting: unique, searchsorted, bucketize, isin, bincount, histc, histogram's counts.
** Results whose shape depends on data cannot be recorded into a graph; that is an error which says so. */
#include "reduce.h"
#include "../kernels/sort.h"

#include <math.h>
#include <string.h>

static sc_status has_data(sc_call *c, int slot) {
  if (c->in[slot] && sc__is_symbolic(c->in[slot])) return sc__bad_input(c, slot, "the result's shape depends on its values, which a graph does not know");
  return SC_OK;
}

/* ---- within(x, least, most, what): x, once its values are known to lie there ----
** How ops written in Lua check values, eagerly and in a graph alike. A NaN passes. */
static sc_status within_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  return SC_OK;
}

static sc_status within_run(sc_call *c) {
  sc_tensor *y = c->out[0];
  SC_TRY(sc__tensor_copy(y, c->in[0]));
  double least = sc__has(c, 0) ? sc__number(&c->attr[0]) : -INFINITY, most = sc__has(c, 1) ? sc__number(&c->attr[1]) : INFINITY;
  size_t size = sc_dtype_size((sc_dtype)y->dtype);
  for (int64_t i = 0; i < y->numel; i++) {
    sc_scalar s = sc__load((sc_dtype)y->dtype, y->data + (size_t)i * size);
    double v = s.is_int ? (double)s.i : s.f;
    if (v < least) return sc__bad_call(c, "%s: expected at least %.14g, found %.14g", c->attr[2].s, least, v);
    if (v > most) return sc__bad_call(c, "%s: expected at most %.14g, found %.14g", c->attr[2].s, most, v);
  }
  return SC_OK;
}

/* ---- unique, unique_consecutive ---- */

typedef struct rows {
  int64_t n, m;                  /* rows and their elements */
  const uint64_t *key;           /* [n, m] */
  bool floating;
} rows;

static bool row_before(const rows *r, int64_t a, int64_t b) {
  const uint64_t *x = r->key + a * r->m, *y = r->key + b * r->m;
  for (int64_t i = 0; i < r->m; i++) if (x[i] != y[i]) return x[i] < y[i];
  return false;
}

/* A NaN equals nothing. */
static bool row_equal(const rows *r, int64_t a, int64_t b) {
  const uint64_t *x = r->key + a * r->m, *y = r->key + b * r->m;
  for (int64_t i = 0; i < r->m; i++) if (x[i] != y[i] || (r->floating && x[i] == UINT64_MAX)) return false;
  return true;
}

/* Merge sort, bottom up: stable. Returns whichever of a and b holds the result. */
static int64_t *sort_rows(const rows *r, int64_t *a, int64_t *b) {
  for (int64_t w = 1; w < r->n; w *= 2) {
    for (int64_t lo = 0; lo < r->n; lo += 2 * w) {
      int64_t mid = lo + w < r->n ? lo + w : r->n, hi = lo + 2 * w < r->n ? lo + 2 * w : r->n, i = lo, j = mid;
      for (int64_t k = lo; k < hi; k++) b[k] = j < hi && (i >= mid || row_before(r, a[j], a[i])) ? a[j++] : a[i++];
    }
    int64_t *t = a; a = b; b = t;
  }
  return a;
}

/* t with `dim` and the first dimension exchanged, packed; new. (PyTorch 1.13 exchanges too, which decides the order of slices.) */
static sc_status exchanged(sc_tensor *t, int dim, sc_tensor **out) {
  sc_meta m;
  sc__meta_like(&m, t);
  memcpy(m.stride, sc__stride(t), (size_t)t->ndim * 8);
  m.offset = 0;
  int64_t d = m.dim[0], s = m.stride[0];
  m.dim[0] = m.dim[dim]; m.stride[0] = m.stride[dim];
  m.dim[dim] = d; m.stride[dim] = s;
  sc_tensor *view;
  SC_TRY(sc__tensor_view(t, &m, &view));
  sc_status status = sc__tensor_packed(view, out);
  sc_tensor_release(view);
  return status;
}

static sc_status int_tensor(sc_call *c, int ndim, const int64_t *dim, sc_tensor **out) {
  sc_meta m;
  sc__meta_set(&m, SC_INT64, ndim, dim);
  return sc__tensor_like_meta(c->ctx, c->op->name, &m, out);
}

/* Groups of equal neighbours in `order`: the values, and where wanted inverse and counts, into c->out. base: packed rows. */
static sc_status give_groups(sc_call *c, const rows *r, const int64_t *order, sc_tensor *base, int dim, bool flat, bool want_inverse, bool want_counts) {
  int64_t u = 0, sizes[SC_MAX_DIMS];
  for (int64_t i = 0; i < r->n; i++) u += i == 0 || !row_equal(r, order[i - 1], order[i]);
  size_t bytes = (size_t)r->m * sc_dtype_size((sc_dtype)base->dtype);
  sc_tensor *values = NULL, *inverse = NULL, *counts = NULL;
  sc_meta m;
  sc__meta_like(&m, base);
  if (flat) m.ndim = 1;
  m.dim[0] = u;
  for (int i = 0; i < c->in[0]->ndim; i++) sizes[i] = c->in[0]->dim[i];
  sc_status s = sc__tensor_like_meta(c->ctx, c->op->name, &m, &values);
  if (s == SC_OK) s = flat ? int_tensor(c, c->in[0]->ndim, sizes, &inverse) : int_tensor(c, 1, &r->n, &inverse);
  if (s == SC_OK) s = int_tensor(c, 1, &u, &counts);
  int64_t at = -1;
  for (int64_t i = 0; i < r->n && s == SC_OK; i++) {
    if (i == 0 || !row_equal(r, order[i - 1], order[i])) {
      at++;
      memcpy(values->data + (size_t)at * bytes, base->data + (size_t)order[i] * bytes, bytes);
      ((int64_t *)counts->data)[at] = 0;
    }
    ((int64_t *)counts->data)[at]++;
    ((int64_t *)inverse->data)[order[i]] = at + c->base;
  }
  if (s == SC_OK && !flat && dim) {
    sc_tensor *moved;
    s = exchanged(values, dim, &moved);
    if (s == SC_OK) { sc_tensor_release(values); values = moved; }
  }
  if (s != SC_OK) {
    sc_tensor_release(values);
    sc_tensor_release(inverse);
    sc_tensor_release(counts);
    return s;
  }
  c->out[c->n_out++] = values;
  if (want_inverse) c->out[c->n_out++] = inverse; else sc_tensor_release(inverse);
  if (want_counts) c->out[c->n_out++] = counts; else sc_tensor_release(counts);
  return SC_OK;
}

static sc_status unique_of(sc_call *c, bool consecutive, int inverse_slot, int counts_slot, int dim_slot) {
  SC_TRY(has_data(c, 0));
  sc_tensor *x = c->in[0], *base = NULL;
  int dim = 0;
  bool flat = !sc__has(c, dim_slot);
  if (!flat) SC_TRY(sc__dim(c, dim_slot, x->ndim, &dim));
  if (!flat && x->ndim == 0) return sc__bad_attr(c, dim_slot, "a tensor without dimensions has no slices");
  for (int i = 0; i < x->ndim && !flat; i++)
    if (i != dim && x->dim[i] == 0 && x->dim[dim] != 0) return sc__bad_input(c, 0, "dimension %d is empty, so its slices cannot be told apart", i + c->base);
  SC_TRY(flat ? sc__tensor_packed(x, &base) : exchanged(x, dim, &base));
  rows r = {.n = flat ? x->numel : x->dim[dim], .floating = sc__is_float((sc_dtype)x->dtype)};
  r.m = flat ? 1 : r.n ? x->numel / r.n : 0;
  sc_line l = {(sc_dtype)base->dtype, base->data, x->numel, 1};
  size_t scratch = flat && !consecutive ? sc__order_scratch(l.dtype, r.n) : 0, bytes = (size_t)x->numel * 8 + (size_t)r.n * 16 + scratch + 64;
  uint64_t *key = sc__alloc(c->ctx, bytes);
  if (!key) { sc_tensor_release(base); return sc__no_memory(c->ctx, bytes); }
  r.key = key;
  int64_t *order = (int64_t *)(key + x->numel), *spare = order + r.n;
  sc__order_keys(&l, 0, x->numel, key);
  for (int64_t i = 0; i < r.n; i++) order[i] = i;
  if (!consecutive) {
    if (flat) sc__order(&l, false, order, spare + r.n);
    else order = sort_rows(&r, order, spare);
  }
  c->n_out = 0;
  sc_status s = give_groups(c, &r, order, base, dim, flat, c->attr[inverse_slot].i, c->attr[counts_slot].i);
  sc__release(c->ctx, key, bytes);
  sc_tensor_release(base);
  return s;
}
static sc_status unique_compose(sc_call *c) { return unique_of(c, false, 1, 2, 3); }
static sc_status unique_consecutive_compose(sc_call *c) { return unique_of(c, true, 0, 1, 2); }

/* ---- searchsorted, bucketize, isin: in float64, or int64 when both are integers ---- */

static sc_dtype common_type(const sc_tensor *a, const sc_tensor *b) {
  return sc__is_float((sc_dtype)a->dtype) || sc__is_float((sc_dtype)b->dtype) ? SC_FLOAT64 : SC_INT64;
}

/* x packed as `type`; new. */
static sc_status packed_as(sc_tensor *x, sc_dtype type, sc_tensor **out) {
  sc_tensor *t;
  SC_TRY(sc__converted(x, type, &t));
  sc_status s = sc__tensor_packed(t, out);
  sc_tensor_release(t);
  return s;
}

typedef struct finder { bool integer, right; const int64_t *sorter; int64_t base; } finder;

/* The first place where v would go (right: the last). A NaN goes to the end, as does everything after one. */
static int64_t find_place(const finder *f, const void *row, int64_t n, const void *at, const int64_t *sorter) {
  int64_t lo = 0, hi = n;
  while (lo < hi) {
    int64_t mid = lo + (hi - lo) / 2, k = sorter ? sorter[mid] - f->base : mid;
    bool stop;
    if (f->integer) {
      int64_t e = ((const int64_t *)row)[k], v = *(const int64_t *)at;
      stop = f->right ? e > v : e >= v;
    } else {
      double e = ((const double *)row)[k], v = *(const double *)at;
      stop = f->right ? e > v : e >= v;
    }
    if (stop) hi = mid; else lo = mid + 1;
  }
  return lo;
}

static sc_status search(sc_call *c, sc_tensor *sequence, sc_tensor *x, sc_tensor *sorter, bool right) {
  sc_tensor *s = NULL, *v = NULL, *order = NULL, *out = c->out[0];
  sc_dtype type = common_type(sequence, x);
  sc_status st = packed_as(sequence, type, &s);
  if (st == SC_OK) st = packed_as(x, type, &v);
  if (st == SC_OK && sorter) st = packed_as(sorter, SC_INT64, &order);
  int64_t n = sequence->dim[sequence->ndim - 1], per = x->ndim && sequence->ndim > 1 ? x->dim[x->ndim - 1] : x->numel;
  finder f = {type == SC_INT64, right, NULL, c->base};
  if (st == SC_OK && order)
    for (int64_t i = 0; i < order->numel && st == SC_OK; i++) {
      int64_t v = ((const int64_t *)order->data)[i], k = sc__position(v, c->base);
      if (k < 0 || k >= n) st = sc__bad_call(c, "the sorter holds the index %lld, expected %d to %lld", (long long)v, c->base, (long long)(n - 1 + c->base));
    }
  for (int64_t i = 0; i < x->numel && st == SC_OK; i++) {
    int64_t row = per ? i / per : 0;
    if (sequence->ndim <= 1) row = 0;
    int64_t place = find_place(&f, s->data + row * n * 8, n, v->data + i * 8, order ? (const int64_t *)order->data + row * n : NULL) + c->base;
    if (out->dtype == SC_INT32) ((int32_t *)out->data)[i] = (int32_t)place;
    else ((int64_t *)out->data)[i] = place;
  }
  sc_tensor_release(s);
  sc_tensor_release(v);
  sc_tensor_release(order);
  return st;
}

static sc_status searchsorted_infer(sc_call *c) {
  const sc_tensor *s = c->in[0], *x = c->in[1], *order = c->in[2];
  char a[200], b[200];
  bool fits = s->ndim == 1 || (s->ndim > 1 && s->ndim == x->ndim);
  for (int i = 0; s->ndim > 1 && fits && i < s->ndim - 1; i++) fits = s->dim[i] == x->dim[i];
  if (!fits)
    return sc__bad_input(c, 1, "expected one dimension in the sequence, or the sequence's leading sizes, got %s for the sequence %s",
                         sc__shape_text(x->ndim, x->dim, a, sizeof a), sc__shape_text(s->ndim, s->dim, b, sizeof b));
  if (order) {
    bool same = order->ndim == s->ndim && order->dtype == SC_INT64;
    for (int i = 0; same && i < s->ndim; i++) same = order->dim[i] == s->dim[i];
    if (!same) return sc__bad_input(c, 2, "expected an int64 tensor of the sequence's shape");
  }
  if (sc__has(c, 2) && strcmp(c->attr[2].s, "left") != 0 && strcmp(c->attr[2].s, "right") != 0)
    return sc__bad_attr(c, 2, "expected \"left\" or \"right\", got \"%s\"", c->attr[2].s);
  if (sc__has(c, 2) && c->attr[1].i && strcmp(c->attr[2].s, "left") == 0) return sc__bad_attr(c, 2, "\"left\" contradicts right = true");
  sc__meta_like(&c->meta[0], x);
  c->meta[0].dtype = c->attr[0].i ? SC_INT32 : SC_INT64;
  return SC_OK;
}
static sc_status searchsorted_run(sc_call *c) {
  bool right = c->attr[1].i || (sc__has(c, 2) && strcmp(c->attr[2].s, "right") == 0);
  return search(c, c->in[0], c->in[1], c->in[2], right);
}

static sc_status bucketize_infer(sc_call *c) {
  if (c->in[1]->ndim != 1) return sc__bad_input(c, 1, "expected one dimension, got %d", c->in[1]->ndim);
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = c->attr[0].i ? SC_INT32 : SC_INT64;
  return SC_OK;
}
static sc_status bucketize_run(sc_call *c) { return search(c, c->in[1], c->in[0], NULL, c->attr[1].i); }

static sc_status isin_infer(sc_call *c) {
  sc__meta_like(&c->meta[0], c->in[0]);
  c->meta[0].dtype = SC_BOOL;
  return SC_OK;
}

static sc_status isin_run(sc_call *c) {
  sc_dtype type = common_type(c->in[0], c->in[1]);
  sc_tensor *x = NULL, *test = NULL;
  sc_status s = packed_as(c->in[0], type, &x);
  if (s == SC_OK) s = packed_as(c->in[1], type, &test);
  int64_t n = c->in[1]->numel;
  size_t bytes = sc__order_scratch(type, n) + (size_t)n * 16 + 64;
  char *block = s == SC_OK ? sc__alloc(c->ctx, bytes) : NULL;
  if (s == SC_OK && !block) s = sc__no_memory(c->ctx, bytes);
  if (s == SC_OK) {
    int64_t *order = (int64_t *)block, *sorted = order + n;
    sc_line l = {type, test->data, n, 1};
    sc__order(&l, false, order, sorted + n);
    sc__order_gather(&l, order, n, (char *)sorted, 1);
    finder f = {type == SC_INT64, false, NULL, 0};
    for (int64_t i = 0; i < x->numel; i++) {
      const void *v = x->data + i * 8;
      int64_t k = find_place(&f, sorted, n, v, NULL);
      bool in = k < n && (f.integer ? sorted[k] == *(const int64_t *)v : ((const double *)sorted)[k] == *(const double *)v);
      ((uint8_t *)c->out[0]->data)[i] = (uint8_t)(in != (c->attr[1].i != 0));
    }
    sc__release(c->ctx, block, bytes);
  }
  sc_tensor_release(x);
  sc_tensor_release(test);
  return s;
}

/* ---- bincount ---- */

static sc_status bincount_infer(sc_call *c) {
  sc_tensor *x = c->in[0], *w = c->in[1], *v;
  SC_TRY(has_data(c, 0));
  if (x->ndim != 1 || sc__category((sc_dtype)x->dtype) == SC_CAT_FLOAT || x->dtype == SC_BOOL)
    return sc__bad_input(c, 0, "expected integers in one dimension, got %s in %d", sc_dtype_name((sc_dtype)x->dtype), x->ndim);
  if (w && (w->ndim != 1 || w->numel != x->numel)) return sc__bad_input(c, 1, "expected %lld weights in one dimension, one per element", (long long)x->numel);
  if (c->attr[0].i < 0) return sc__bad_attr(c, 0, "expected 0 or more, got %lld", (long long)c->attr[0].i);
  SC_TRY(packed_as(x, SC_INT64, &v));
  int64_t size = 0, bad = 0;
  const int64_t *label = (const int64_t *)v->data;
  bool ok = true;
  for (int64_t i = 0; i < v->numel && ok; i++) {
    if (label[i] < c->base) { ok = false; bad = label[i]; }
    else if (label[i] - c->base >= size) size = label[i] - c->base + 1;
  }
  sc_tensor_release(v);
  if (!ok) return sc__bad_input(c, 0, "label %lld is out of range: labels count from %d", (long long)bad, c->base);
  if (size < c->attr[0].i) size = c->attr[0].i;
  sc__meta_set(&c->meta[0], !w ? SC_INT64 : w->dtype == SC_FLOAT32 ? SC_FLOAT32 : SC_FLOAT64, 1, &size);
  return SC_OK;
}

static sc_status bincount_run(sc_call *c) {
  sc_tensor *x = NULL, *w = NULL, *out = c->out[0];
  sc_status s = packed_as(c->in[0], SC_INT64, &x);
  if (s == SC_OK && c->in[1]) s = packed_as(c->in[1], SC_FLOAT64, &w);
  size_t bytes = (size_t)out->numel * 8 + 8;
  double *sum = s == SC_OK && w ? sc__alloc_zero(c->ctx, bytes) : NULL;
  if (s == SC_OK && w && !sum) s = sc__no_memory(c->ctx, bytes);
  if (s == SC_OK) {
    const int64_t *label = (const int64_t *)x->data;
    if (!w) memset(out->data, 0, (size_t)out->numel * 8);
    for (int64_t i = 0; i < x->numel; i++) {
      if (w) sum[label[i] - c->base] += ((const double *)w->data)[i];
      else ((int64_t *)out->data)[label[i] - c->base]++;
    }
    if (w) sc__convert(out->numel, (sc_dtype)out->dtype, out->data, 1, SC_FLOAT64, sum, 1);
  }
  if (sum) sc__release(c->ctx, sum, bytes);
  sc_tensor_release(x);
  sc_tensor_release(w);
  return s;
}

/* ---- histc, histogram_count ---- */

static sc_status histc_infer(sc_call *c) {
  if (c->attr[0].i < 1) return sc__bad_attr(c, 0, "expected 1 or more bins, got %lld", (long long)c->attr[0].i);
  double low = sc__number(&c->attr[1]), high = sc__number(&c->attr[2]);
  if (!isfinite(low) || !isfinite(high)) return sc__bad_attr(c, 1, "the range from %g to %g is not finite", low, high);
  if (low > high) return sc__bad_attr(c, 2, "expected at least min, %g, got %g", low, high);
  if (!sc__is_float((sc_dtype)c->in[0]->dtype)) return sc__bad_input(c, 0, "expected a floating-point tensor, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[0]->dtype, 1, &c->attr[0].i);
  return SC_OK;
}

static sc_status histc_run(sc_call *c) {
  double low = sc__number(&c->attr[1]), high = sc__number(&c->attr[2]);
  int64_t bins = c->attr[0].i;
  sc_tensor *x, *out = c->out[0];
  SC_TRY(packed_as(c->in[0], SC_FLOAT64, &x));
  const double *v = (const double *)x->data;
  if (low == high && x->numel) {
    low = high = v[0];
    for (int64_t i = 1; i < x->numel; i++) { low = v[i] < low ? v[i] : low; high = v[i] > high ? v[i] : high; }
  }
  if (low == high) { low -= 1; high += 1; }
  sc_status s = SC_OK;
  size_t bytes = (size_t)bins * 8;
  double *count = NULL;
  if (!isfinite(low) || !isfinite(high)) s = sc__bad_call(c, "the range from %g to %g is not finite", low, high);
  else if (!(count = sc__alloc_zero(c->ctx, bytes))) s = sc__no_memory(c->ctx, bytes);
  for (int64_t i = 0; s == SC_OK && i < x->numel; i++) {
    if (!(v[i] >= low && v[i] <= high)) continue;
    int64_t k = (int64_t)((v[i] - low) / (high - low) * (double)bins);
    count[k < bins ? k : bins - 1]++;
  }
  if (s == SC_OK) sc__convert(bins, (sc_dtype)out->dtype, out->data, 1, SC_FLOAT64, count, 1);
  if (count) sc__release(c->ctx, count, bytes);
  sc_tensor_release(x);
  return s;
}

/* How much of x (each element counts 1, or its weight) lies in [edge k, edge k+1); the last bin has its end too. */
static sc_status hist_infer(sc_call *c) {
  const sc_tensor *x = c->in[0], *edges = c->in[1], *w = c->in[2];
  if (edges->ndim != 1 || edges->numel < 2) return sc__bad_input(c, 1, "expected two or more edges in one dimension");
  if (w && w->numel != x->numel) return sc__bad_input(c, 2, "expected a weight for each of the %lld elements, got %lld", (long long)x->numel, (long long)w->numel);
  int64_t bins = edges->numel - 1;
  sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, 1, &bins);
  return SC_OK;
}

static sc_status hist_run(sc_call *c) {
  sc_tensor *x = NULL, *edges = NULL, *w = NULL, *out = c->out[0];
  sc_status s = packed_as(c->in[0], SC_FLOAT64, &x);
  if (s == SC_OK) s = packed_as(c->in[1], SC_FLOAT64, &edges);
  if (s == SC_OK && c->in[2]) s = packed_as(c->in[2], SC_FLOAT64, &w);
  int64_t bins = out->numel;
  size_t bytes = (size_t)bins * 8;
  double *count = s == SC_OK ? sc__alloc_zero(c->ctx, bytes) : NULL;
  if (s == SC_OK && !count) s = sc__no_memory(c->ctx, bytes);
  finder f = {false, true, NULL, 0};
  for (int64_t i = 0; s == SC_OK && i < x->numel; i++) {
    const double *v = (const double *)x->data + i, *e = (const double *)edges->data;
    if (!(*v >= e[0] && *v <= e[bins])) continue;
    int64_t k = find_place(&f, e, bins + 1, v, NULL) - 1;
    count[k < bins ? k : bins - 1] += w ? ((const double *)w->data)[i] : 1;
  }
  if (s == SC_OK) sc__convert(bins, (sc_dtype)out->dtype, out->data, 1, SC_FLOAT64, count, 1);
  if (count) sc__release(c->ctx, count, bytes);
  sc_tensor_release(x);
  sc_tensor_release(edges);
  sc_tensor_release(w);
  return s;
}

#define COUNTS "a count has no derivative"
#define PLACES "positions have no derivative"

const sc_op sc__ops_search[] = {
  {"within(x, least: number?, most: number?, what: str)", "x, after a check that its values lie between least and most.", SC_OP_INTERNAL,
   .infer = within_infer, .run = within_run, .grad = {"dy"}},
  {"unique(x, sorted: bool = true, return_inverse: bool = false, return_counts: bool = false, dim: dim?) -> values, inverse, counts",
   "The distinct elements of x, sorted (along dim: its distinct slices), and where wanted which of them each element is and how often each "
   "occurs. A NaN equals nothing. Not for graphs: the shape depends on data.", 0, .compose = unique_compose},
  {"unique_consecutive(x, return_inverse: bool = false, return_counts: bool = false, dim: dim?) -> values, inverse, counts",
   "x without elements (slices along dim) that equal the one before.", 0, .compose = unique_consecutive_compose},
  {"searchsorted(sorted_sequence, x, out_int32: bool = false, right: bool = false, side: str?, sorter: tensor?)",
   "Where each x would be inserted to keep the sequence's last dim sorted: before equal elements, or after them (right = true, side = \"right\"). "
   "Positions count from 1 in Lua. sorter: the order that sorts the sequence.", 0, .infer = searchsorted_infer, .run = searchsorted_run, .no_grad = PLACES},
  {"bucketize(x, boundaries, out_int32: bool = false, right: bool = false)", "Which of the buckets between sorted boundaries each x is in, from 1 in Lua.",
   0, .infer = bucketize_infer, .run = bucketize_run, .no_grad = PLACES},
  {"isin(elements, test_elements, assume_unique: bool = false, invert: bool = false)", "Whether each element is among test_elements, as bool.",
   SC_OP_FUNCTION, .infer = isin_infer, .run = isin_run, .no_grad = "a truth value has no derivative"},
  {"bincount(x, weights: tensor?, minlength: int = 0)",
   "How often each label occurs (or the sum of its weights). Labels count from 1 in Lua.\nErrors: a label of 0 or less; floats.", 0,
   .infer = bincount_infer, .run = bincount_run, .no_grad = COUNTS},
  {"histc(x, bins: int = 100, min: number = 0, max: number = 0)",
   "How many elements lie in each of `bins` equal bins from min to max; both 0: from the smallest to the largest element.", 0,
   .infer = histc_infer, .run = histc_run, .no_grad = COUNTS},
  {"histogram_count(x, edges, weight: tensor?)", "histogram's counts.", SC_OP_INTERNAL, .infer = hist_infer, .run = hist_run, .no_grad = COUNTS},
};
const int sc__ops_search_count = SC_COUNT(sc__ops_search);
