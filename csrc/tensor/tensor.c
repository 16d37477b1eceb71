/* Tensors and storages: making, sharing, releasing, copying. */
#include "tensor.h"

#include <string.h>

/* Headers of storages this small carry their bytes in the same block. */
enum { INLINE_BYTES = 960, HEADER = (sizeof(sc_storage) + 63) / 64 * 64 };

static void account(sc_context *ctx, int64_t bytes) {
  long long now = atomic_fetch_add_explicit(&ctx->live_bytes, bytes, memory_order_relaxed) + bytes;
  if (bytes > 0) {
    if (now > atomic_load_explicit(&ctx->peak_bytes, memory_order_relaxed))
      atomic_store_explicit(&ctx->peak_bytes, now, memory_order_relaxed);
  }
}

static sc_status storage_new(sc_context *ctx, size_t bytes, void *data, sc_storage **out) {
  bool inside = !data && bytes <= INLINE_BYTES;
  size_t block = HEADER + (inside ? bytes : 0);
  sc_storage *s = sc__alloc(ctx, block);
  if (!s) return sc__no_memory(ctx, bytes);
  *s = (sc_storage){.ctx = ctx, .bytes = bytes, .block = block, .data = inside ? (char *)s + HEADER : data};
  atomic_init(&s->refs, 1);
  if (!s->data) {
    s->data = sc__alloc(ctx, bytes);
    if (!s->data) { sc__release(ctx, s, block); return sc__no_memory(ctx, bytes); }
  }
  atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&ctx->live_tensors, 1, memory_order_relaxed);
  account(ctx, (int64_t)bytes);
  *out = s;
  return SC_OK;
}

static void storage_release(sc_storage *s) {
  if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  sc_context *ctx = s->ctx;
  account(ctx, -(int64_t)s->bytes);
  atomic_fetch_sub_explicit(&ctx->live_tensors, 1, memory_order_relaxed);
  bool outside = (char *)s->data != (char *)s + HEADER;
  if (s->release) s->release(s->user);
  else if (outside && s->user != s) sc__release(ctx, s->data, s->bytes);
  sc__release(ctx, s, s->block);
  sc__context_unref(ctx);
}

/* Sets everything but storage and data. */
static sc_tensor *header_new(sc_context *ctx, sc_dtype dtype, int ndim, const int64_t *dim, const int64_t *stride) {
  sc_tensor *t = sc__alloc(ctx, sizeof *t + (size_t)ndim * 2 * sizeof(int64_t));
  if (!t) { sc__no_memory(ctx, sizeof *t); return NULL; }
  atomic_init(&t->refs, 1);
  t->dtype = (uint8_t)dtype;
  t->ndim = (uint8_t)ndim;
  t->flags = 0;
  t->ctx = ctx;
  t->storage = NULL;
  t->data = NULL;
  t->ad = NULL;
  t->graph = NULL;
  t->value = -1;
  int64_t n = 1, expect = 1;
  bool packed = true;
  int64_t *own = sc__stride(t);
  for (int i = ndim - 1; i >= 0; i--) {
    t->dim[i] = dim[i];
    n *= dim[i];
    own[i] = stride ? stride[i] : expect;
    if (dim[i] != 1 && own[i] != expect) packed = false;
    expect *= dim[i] > 1 ? dim[i] : 1;
  }
  t->numel = n;
  t->contiguous = packed || n == 0;
  atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
  return t;
}

sc_status sc__tensor_like_meta(sc_context *ctx, const char *op, const sc_meta *m, sc_tensor **out) {
  int64_t numel;
  SC_TRY(sc__numel(ctx, op, m->dtype, m->ndim, m->dim, &numel));
  sc_tensor *t = header_new(ctx, m->dtype, m->ndim, m->dim, NULL);
  if (!t) return SC_ENOMEM;
  sc_status s = storage_new(ctx, (size_t)numel * sc_dtype_size(m->dtype), NULL, &t->storage);
  if (s != SC_OK) { sc_tensor_release(t); return s; }
  t->data = t->storage->data;
  *out = t;
  return SC_OK;
}

sc_status sc__tensor_symbolic(sc_context *ctx, const sc_meta *m, const int64_t *stride, char *data, sc_tensor **out) {
  int64_t numel;
  SC_TRY(sc__numel(ctx, "graph", m->dtype, m->ndim, m->dim, &numel));
  *out = header_new(ctx, m->dtype, m->ndim, m->dim, stride);
  if (!*out) return SC_ENOMEM;
  (*out)->data = data;
  return SC_OK;
}

sc_status sc__tensor_view(sc_tensor *base, const sc_meta *m, sc_tensor **out) {
  sc_tensor *t = header_new(base->ctx, m->dtype, m->ndim, m->dim, m->stride);
  if (!t) return SC_ENOMEM;
  if (base->storage) {
    atomic_fetch_add_explicit(&base->storage->refs, 1, memory_order_relaxed);
    t->storage = base->storage;
    t->data = base->data + m->offset * (int64_t)sc_dtype_size(m->dtype);
  }
  *out = t;
  return SC_OK;
}

sc_status sc__tensor_alias(sc_tensor *base, sc_tensor **out) {
  sc_tensor *t = header_new(base->ctx, (sc_dtype)base->dtype, base->ndim, base->dim, sc__stride(base));
  if (!t) return SC_ENOMEM;
  if (base->storage) atomic_fetch_add_explicit(&base->storage->refs, 1, memory_order_relaxed);
  t->storage = base->storage;
  t->data = base->data;
  t->flags = base->flags & SC_T_WRAPPED;
  *out = t;
  return SC_OK;
}

sc_status sc_tensor_share(sc_context *ctx, const sc_tensor *t, sc_tensor **out) {
  *out = NULL;
  if (!t->storage) return sc__fail(ctx, SC_EINVAL, "tensor: a symbolic tensor belongs to the context of its graph");
  sc_tensor *made = header_new(ctx, (sc_dtype)t->dtype, t->ndim, t->dim, sc__stride(t));
  if (!made) return SC_ENOMEM;
  atomic_fetch_add_explicit(&t->storage->refs, 1, memory_order_relaxed);
  made->storage = t->storage;
  made->data = t->data;
  made->flags = t->flags & SC_T_WRAPPED;
  *out = made;
  return SC_OK;
}

sc_status sc__tensor_scalar(sc_context *ctx, bool is_int, int64_t i, double f, sc_tensor **out) {
  sc_tensor *t = header_new(ctx, is_int ? SC_INT64 : SC_FLOAT64, 0, NULL, NULL);
  if (!t) return SC_ENOMEM;
  sc_status s = storage_new(ctx, 8, NULL, &t->storage);
  if (s != SC_OK) { sc_tensor_release(t); return s; }
  t->data = t->storage->data;
  t->flags = SC_T_WRAPPED;
  if (is_int) *(int64_t *)t->data = i; else *(double *)t->data = f;
  *out = t;
  return SC_OK;
}

sc_status sc_tensor_new(sc_context *ctx, sc_dtype dtype, int ndim, const int64_t *shape, sc_tensor **out) {
  sc_meta m;
  if ((unsigned)dtype >= SC_DTYPES || ndim < 0 || ndim > SC_MAX_DIMS)
    return sc__fail(ctx, SC_EINVAL, "tensor: dtype or number of dimensions is out of range");
  m.dtype = dtype;
  m.ndim = ndim;
  for (int i = 0; i < ndim; i++) m.dim[i] = shape[i];
  return sc__tensor_like_meta(ctx, "tensor", &m, out);
}

sc_status sc_tensor_from_memory(sc_context *ctx, sc_dtype dtype, int ndim, const int64_t *shape, const void *data, sc_tensor **out) {
  SC_TRY(sc_tensor_new(ctx, dtype, ndim, shape, out));
  if ((*out)->numel) memcpy((*out)->data, data, (size_t)(*out)->numel * sc_dtype_size(dtype));
  return SC_OK;
}

sc_status sc_tensor_wrap(sc_context *ctx, sc_dtype dtype, int ndim, const int64_t *shape, void *data, void (*release)(void *user),
                         void *user, sc_tensor **out) {
  int64_t numel;
  if ((unsigned)dtype >= SC_DTYPES || ndim < 0 || ndim > SC_MAX_DIMS || !data)
    return sc__fail(ctx, SC_EINVAL, "tensor: dtype, number of dimensions or data is out of range");
  SC_TRY(sc__numel(ctx, "tensor", dtype, ndim, shape, &numel));
  sc_tensor *t = header_new(ctx, dtype, ndim, shape, NULL);
  if (!t) return SC_ENOMEM;
  sc_status s = storage_new(ctx, (size_t)numel * sc_dtype_size(dtype), data, &t->storage);
  if (s != SC_OK) { sc_tensor_release(t); return s; }
  t->storage->release = release;
  t->storage->user = release ? user : t->storage;        /* user == storage marks memory that nobody releases */
  t->data = data;
  *out = t;
  return SC_OK;
}

sc_tensor *sc_tensor_retain(sc_tensor *t) {
  atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  return t;
}

void sc_tensor_release(sc_tensor *t) {
  if (!t || atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) != 1) return;
  sc_context *ctx = t->ctx;
  if (t->ad) ctx->forget(t);
  if (t->graph) ctx->untrace(t);
  storage_release(t->storage);
  sc__release(ctx, t, sizeof *t + (size_t)t->ndim * 2 * sizeof(int64_t));
  sc__context_unref(ctx);
}

sc_dtype sc_tensor_dtype(const sc_tensor *t) { return (sc_dtype)t->dtype; }
int sc_tensor_ndim(const sc_tensor *t) { return t->ndim; }
const int64_t *sc_tensor_shape(const sc_tensor *t) { return t->dim; }
const int64_t *sc_tensor_stride(const sc_tensor *t) { return sc__stride(t); }
int64_t sc_tensor_numel(const sc_tensor *t) { return t->numel; }
void *sc_tensor_data(const sc_tensor *t) { return t->storage ? t->data : NULL; }
bool sc_tensor_is_contiguous(const sc_tensor *t) { return t->contiguous; }

void sc__bump_version(sc_tensor *t) {
  if (!t->storage) return;
  t->storage->version++;
  t->storage->writer = sc__locate(t->ctx);
}

/* ---- copying ---- */

typedef struct copy_job {
  sc_tensor *dst;
  const sc_tensor *src;
  int nd;                               /* outer dims; the inner run is dim nd */
  int64_t dim[SC_MAX_DIMS + 1], ds[SC_MAX_DIMS + 1], ss[SC_MAX_DIMS + 1];
} copy_job;

static void copy_rows(void *arg, int64_t begin, int64_t end) {
  copy_job *j = arg;
  size_t dz = sc_dtype_size((sc_dtype)j->dst->dtype), sz = sc_dtype_size((sc_dtype)j->src->dtype);
  int64_t index[SC_MAX_DIMS], rest = begin, d = 0, s = 0;
  for (int i = j->nd - 1; i >= 0; i--) {
    index[i] = rest % j->dim[i];
    rest /= j->dim[i];
    d += index[i] * j->ds[i];
    s += index[i] * j->ss[i];
  }
  for (int64_t row = begin; row < end; row++) {
    sc__convert(j->dim[j->nd], (sc_dtype)j->dst->dtype, j->dst->data + d * (int64_t)dz, j->ds[j->nd], (sc_dtype)j->src->dtype,
                j->src->data + s * (int64_t)sz, j->ss[j->nd]);
    for (int i = j->nd - 1; i >= 0; i--) {
      d += j->ds[i];
      s += j->ss[i];
      if (++index[i] < j->dim[i]) break;
      d -= j->ds[i] * j->dim[i];
      s -= j->ss[i] * j->dim[i];
      index[i] = 0;
    }
  }
}

/* Whether the copy exchanges the fast dimension: one of src, another of dst is packed. */
static bool transposed(const copy_job *j, int n, sc_transpose *t) {
  int q = -1, p = -1;
  if (j->dst->dtype != j->src->dtype) return false;
  for (int i = 0; i < n; i++) { if (j->ds[i] == 1) q = i; if (j->ss[i] == 1) p = i; }
  if (p < 0 || q < 0 || p == q || j->ds[q] == j->ss[q] || j->dim[p] < 4 || j->dim[q] < 4) return false;
  *t = (sc_transpose){.dst = j->dst->data, .src = j->src->data, .ni = j->dim[p], .nj = j->dim[q], .dr = j->ds[p], .sr = j->ss[q]};
  for (int i = 0; i < n; i++) {
    if (i == p || i == q) continue;
    t->dim[t->nd] = j->dim[i]; t->ds[t->nd] = j->ds[i]; t->ss[t->nd++] = j->ss[i];
  }
  return true;
}

sc_status sc__tensor_copy(sc_tensor *dst, const sc_tensor *src) {
  if (dst->numel == 0) return SC_OK;
  copy_job j = {.dst = dst, .src = src};
  int n = 0;
  const int64_t *dstr = sc__stride(dst), *sstr = sc__stride(src);
  int lead = dst->ndim - src->ndim;
  for (int i = 0; i < dst->ndim; i++) {                 /* drop dims of one, merge dims that run on */
    int64_t size = dst->dim[i], ds = dstr[i], ss = i < lead || src->dim[i - lead] == 1 ? 0 : sstr[i - lead];
    if (size == 1) continue;
    if (n && j.ds[n - 1] == ds * size && j.ss[n - 1] == ss * size) {
      j.dim[n - 1] *= size; j.ds[n - 1] = ds; j.ss[n - 1] = ss;
    } else {
      j.dim[n] = size; j.ds[n] = ds; j.ss[n] = ss; n++;
    }
  }
  if (n == 0) { j.dim[0] = 1; j.ds[0] = j.ss[0] = 1; n = 1; }
  sc_transpose t;
  if (n > 1 && transposed(&j, n, &t)) { sc__transpose(dst->ctx, &t, sc_dtype_size((sc_dtype)dst->dtype)); return SC_OK; }
  j.nd = n - 1;
  int64_t rows = 1;
  for (int i = 0; i < j.nd; i++) rows *= j.dim[i];
  if (rows == 1 && j.dim[0] > 65536) {                  /* one long run: cut it so that it can be shared */
    int64_t piece = 16384, whole = j.dim[0] / piece;
    copy_job first = j;
    first.nd = 1;
    first.dim[0] = whole; first.ds[0] = j.ds[0] * piece; first.ss[0] = j.ss[0] * piece;
    first.dim[1] = piece; first.ds[1] = j.ds[0]; first.ss[1] = j.ss[0];
    sc__parallel(dst->ctx, whole, 1, (double)piece * 0.3, copy_rows, &first);
    int64_t left = j.dim[0] - whole * piece;
    if (left)
      sc__convert(left, (sc_dtype)dst->dtype, dst->data + whole * piece * j.ds[0] * (int64_t)sc_dtype_size((sc_dtype)dst->dtype), j.ds[0],
                  (sc_dtype)src->dtype, src->data + whole * piece * j.ss[0] * (int64_t)sc_dtype_size((sc_dtype)src->dtype), j.ss[0]);
    return SC_OK;
  }
  sc__parallel(dst->ctx, rows, 1, (double)j.dim[j.nd] * 0.5 + 5, copy_rows, &j);
  return SC_OK;
}

sc_status sc__tensor_packed(sc_tensor *t, sc_tensor **out) {
  if (t->contiguous) { *out = sc_tensor_retain(t); return SC_OK; }
  SC_TRY(sc_tensor_new(t->ctx, (sc_dtype)t->dtype, t->ndim, t->dim, out));
  return sc__tensor_copy(*out, t);
}

/* Byte range that t's elements lie in, relative to its data. */
static void extent(const sc_tensor *t, const char **lo, const char **hi) {
  int64_t a = 0, b = 0, z = (int64_t)sc_dtype_size((sc_dtype)t->dtype);
  for (int i = 0; i < t->ndim; i++) {
    int64_t reach = (t->dim[i] - 1) * sc__stride(t)[i];
    if (reach < 0) a += reach; else b += reach;
  }
  *lo = t->data + a * z;
  *hi = t->data + (b + 1) * z;
}

/* Dims of more than one, by falling stride, of two tensors with the same strides: of a and of b each the number of steps. */
typedef struct lattice { int n; int64_t stride[SC_MAX_DIMS], a[SC_MAX_DIMS], b[SC_MAX_DIMS]; } lattice;

static bool same_lattice(const sc_tensor *a, const sc_tensor *b, lattice *l) {
  if (a->ndim != b->ndim || a->dtype != b->dtype) return false;
  l->n = 0;
  for (int i = 0; i < a->ndim; i++) {
    if (a->dim[i] == 1 && b->dim[i] == 1) continue;
    if (sc__stride(a)[i] != sc__stride(b)[i] || sc__stride(a)[i] <= 0) return false;
    int at = l->n++;
    for (; at > 0 && l->stride[at - 1] < sc__stride(a)[i]; at--) { l->stride[at] = l->stride[at - 1]; l->a[at] = l->a[at - 1]; l->b[at] = l->b[at - 1]; }
    l->stride[at] = sc__stride(a)[i];
    l->a[at] = a->dim[i] - 1;
    l->b[at] = b->dim[i] - 1;
  }
  return true;
}

/* Whether a step of the dims from `at` on leads over `way` elements: b's indices minus a's. What the inner dims can make up leaves one or two
** candidates a dim where the layout is nested; where it is not, everything is thought possible. */
static bool reaches(const lattice *l, int at, int64_t way) {
  if (at == l->n) return way == 0;
  int64_t up = 0, down = 0, s = l->stride[at];
  for (int i = at + 1; i < l->n; i++) { up += l->stride[i] * l->a[i]; down += l->stride[i] * l->b[i]; }
  if (up + down >= 2 * s) return true;
  int64_t from = (way - up) / s - 1, to = (way + down) / s + 1;
  for (int64_t k = from < -l->b[at] ? -l->b[at] : from; k <= to && k <= l->a[at]; k++)
    if (way - k * s <= up && k * s - way <= down && reaches(l, at + 1, way - k * s)) return true;
  return false;
}

bool sc__tensor_ranges_meet(const sc_tensor *a, const sc_tensor *b) {
  const char *al, *ah, *bl, *bh;
  lattice l;
  if (!a->numel || !b->numel) return false;
  extent(a, &al, &ah);
  extent(b, &bl, &bh);
  if (al >= bh || bl >= ah) return false;
  int64_t z = (int64_t)sc_dtype_size((sc_dtype)a->dtype), way = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data);
  return way % z != 0 || !same_lattice(a, b, &l) || reaches(&l, 0, way / z);
}

bool sc__tensor_may_overlap(const sc_tensor *a, const sc_tensor *b) {
  return a->storage && a->storage == b->storage && sc__tensor_ranges_meet(a, b);
}

bool sc__tensor_self_overlap(const sc_tensor *t) {
  if (t->contiguous || t->numel < 2) return false;
  int64_t dim[SC_MAX_DIMS], stride[SC_MAX_DIMS];
  int n = 0;
  for (int i = 0; i < t->ndim; i++) {                   /* sort by stride, ignoring dims of one */
    if (t->dim[i] == 1) continue;
    int64_t s = sc__stride(t)[i] < 0 ? -sc__stride(t)[i] : sc__stride(t)[i];
    int at = n++;
    while (at > 0 && stride[at - 1] > s) { stride[at] = stride[at - 1]; dim[at] = dim[at - 1]; at--; }
    stride[at] = s;
    dim[at] = t->dim[i];
  }
  int64_t reach = 0;                                    /* the farthest element of the dims so far */
  for (int i = 0; i < n; i++) {
    if (stride[i] <= reach) return true;
    reach += (dim[i] - 1) * stride[i];
  }
  return false;
}
