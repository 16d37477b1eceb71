/* Linear algebra over orthogonal matrices: qr, eigh, svd and what rests on singular values; matrix_exp and cross beside them.
**
** See linalg.c for how matrices travel. Gradients of eigenvectors and singular vectors divide by gaps between the values; where two values
** are equal that share is left out (linalg_gaps gives 0), so that a function that does not depend on the choice of vectors keeps a finite
** gradient. The values alone (eigvalsh, svdvals) never divide. */
#include "linalg.h"

#include <math.h>
#include <string.h>

static double element(sc_dtype type, const void *p, int64_t i) { return type == SC_FLOAT32 ? ((const float *)p)[i] : ((const double *)p)[i]; }
static void put(sc_dtype type, void *p, int64_t i, double v) { if (type == SC_FLOAT32) ((float *)p)[i] = (float)v; else ((double *)p)[i] = v; }
static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void identity(sc_dtype type, int64_t n, void *p) {
  memset(p, 0, (size_t)(n * n) * sc_dtype_size(type));
  for (int64_t i = 0; i < n; i++) put(type, p, i * n + i, 1);
}

/* ---- qr ---- */

static sc_status qr_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__check_matrix(c, 0, false));
  const char *mode = c->attr[0].s;
  bool complete = strcmp(mode, "complete") == 0, r_only = strcmp(mode, "r") == 0;
  if (!complete && !r_only && strcmp(mode, "reduced") != 0)
    return sc__bad_attr(c, 0, "expected \"reduced\", \"complete\" or \"r\"");
  int64_t m = sc__rows(x), n = sc__cols(x), k = complete ? m : least(m, n);
  sc_lapack_room room;
  if (!sc__lapack_room(SC_LAPACK_QR, (sc_dtype)x->dtype, m, n > k ? n : k, true, complete, &room)) return sc__too_large(c);
  sc__batch_meta(&c->meta[0], x, (sc_dtype)x->dtype, m, k);
  if (r_only) sc__meta_set(&c->meta[0], (sc_dtype)x->dtype, 1, (int64_t[]){0});
  sc__batch_meta(&c->meta[1], x, (sc_dtype)x->dtype, k, n);
  c->n_out = 2;
  return SC_OK;
}

static sc_status qr_run(sc_call *c) {
  sc_tensor *x = c->in[0], *q = c->out[0], *r = c->out[1];
  sc_dtype type = (sc_dtype)x->dtype;
  int64_t m = sc__rows(x), n = sc__cols(x), k = sc__rows(r), reflectors = least(m, n), wide = n > k ? n : k, batches = sc__batches(x);
  size_t z = sc_dtype_size(type);
  sc_lapack_room room;
  sc__lapack_room(SC_LAPACK_QR, type, m, wide, true, true, &room);
  sc_space space;
  void *p[4];
  SC_TRY(sc__space_open(c->ctx, &space, (int64_t[]){m * wide, k * n, wide, room.work}, (size_t[]){z, z, z, z}, p, 4));
  for (int64_t i = 0; i < batches; i++) {
    sc__load_matrix(x, i, type, p[0], NULL);
    sc__geqrf(type, m, n, p[0], p[2], p[3], room.work);
    for (int64_t j = 0; j < n; j++)
      for (int64_t e = 0; e < k; e++) put(type, p[1], j * k + e, e <= j ? element(type, p[0], j * m + e) : 0);
    sc__store_matrix(r, i, type, p[1], k > 0 ? k : 1);
    if (q->ndim == 1) continue;
    sc__orgqr(type, m, k, reflectors, p[0], p[2], p[3], room.work);
    sc__store_matrix(q, i, type, p[0], m > 0 ? m : 1);
  }
  sc__space_close(&space);
  return SC_OK;
}

/* A = Q R, m >= n: dA = (dQ + Q copyltu(R dRᵀ - dQᵀ Q)) R⁻ᵀ, where copyltu copies the lower triangle onto the upper.
** Wide: R = [U V], A = [X Y] with X square; Y = Q V adds Y dVᵀ to dQ, and dY = Q dV.
** Source: Walter and Lehmann 2018, "Algorithmic differentiation of linear algebra functions". */
static sc_tensor *qr_square(sc_calc *k, sc_tensor *q, sc_tensor *r, sc_tensor *dq, sc_tensor *dr) {
  sc_tensor *m = sc__calc2(k, "sub", sc__calc2(k, "matmul", r, sc__calc_t(k, dr)), sc__calc2(k, "matmul", sc__calc_t(k, dq), q));
  m = sc__calc2(k, "add", sc__calc_tri(k, m, false, 0), sc__calc_t(k, sc__calc_tri(k, m, false, -1)));
  sc_tensor *b = sc__calc2(k, "add", dq, sc__calc2(k, "matmul", q, m));
  return sc__calc(k, "linalg.solve_triangular", (sc_tensor *[]){sc__calc_t(k, r), b}, 2,
                  (sc_attr[]){sc__bool(false), sc__bool(false), sc__bool(false)}, 3);
}

static sc_status qr_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *q = g->out[0], *r = g->out[1], *dq = g->dy[0], *dr = g->dy[1], *d;
  if (q->ndim == 1) return sc__fail(g->ctx, SC_EINVAL, "backward: linalg.qr with mode \"r\" has no gradient; use \"reduced\"");
  int64_t m = sc__rows(q), kq = sc__cols(q), n = sc__cols(r);
  if (m > n && kq == m && n > 0)
    return sc__fail(g->ctx, SC_EINVAL, "backward: linalg.qr with mode \"complete\" has no gradient for more rows than columns; use \"reduced\"");
  if (m >= n) {
    d = qr_square(&k, q, r, dq, dr);
  } else {
    sc_tensor *u = sc__calc_narrow(&k, r, -1, 0, m), *v = sc__calc_narrow(&k, r, -1, m, n - m);
    sc_tensor *du = sc__calc_narrow(&k, dr, -1, 0, m), *dv = sc__calc_narrow(&k, dr, -1, m, n - m);
    sc_tensor *y = sc__calc2(&k, "matmul", q, v), *dq2 = sc__calc2(&k, "add", dq, sc__calc2(&k, "matmul", y, sc__calc_t(&k, dv)));
    d = sc__calc(&k, "cat", (sc_tensor *[]){qr_square(&k, q, u, dq2, du), sc__calc2(&k, "matmul", q, dv)}, 2, (sc_attr[]){sc__int(-1)}, 1);
  }
  return sc__calc_end(&k, d, &g->dx[0]);
}

/* ---- gaps ---- */

/* linalg_gaps(s): [..., k] to [..., k, k], 1 / (s_j - s_i), 0 where they are equal. */
static sc_status gaps_infer(sc_call *c) {
  const sc_tensor *s = c->in[0];
  if (s->ndim < 1 || !sc__is_float((sc_dtype)s->dtype)) return sc__bad_input(c, 0, "expected floating point values");
  sc__meta_set(&c->meta[0], (sc_dtype)s->dtype, s->ndim, s->dim);
  c->meta[0].dim[c->meta[0].ndim++] = s->dim[s->ndim - 1];
  return SC_OK;
}

static sc_status gaps_run(sc_call *c) {
  sc_tensor *s, *out = c->out[0];
  SC_TRY(sc__tensor_packed(c->in[0], &s));
  sc_dtype type = (sc_dtype)s->dtype;
  int64_t k = sc__cols(out), all = s->numel;
  for (int64_t i = 0; i < all; i++)
    for (int64_t j = 0; j < k; j++) {
      double d = sc__load(type, s->data + (i / k * k + j) * (int64_t)sc_dtype_size(type)).f - sc__load(type, s->data + i * (int64_t)sc_dtype_size(type)).f;
      sc__store(type, out->data + (i * k + j) * (int64_t)sc_dtype_size(type), sc__scalar_float(d == 0 ? 0 : 1 / d));
    }
  sc_tensor_release(s);
  return SC_OK;
}

/* linalg_reciprocal(s): 1 / s, 0 where s is 0. */
static sc_status reciprocal_infer(sc_call *c) { sc__meta_like(&c->meta[0], c->in[0]); return SC_OK; }

static sc_status reciprocal_run(sc_call *c) {
  sc_tensor *s;
  SC_TRY(sc__tensor_packed(c->in[0], &s));
  sc_dtype type = (sc_dtype)s->dtype;
  for (int64_t i = 0; i < s->numel; i++) {
    double v = sc__load(type, s->data + i * (int64_t)sc_dtype_size(type)).f;
    sc__store(type, c->out[0]->data + i * (int64_t)sc_dtype_size(type), sc__scalar_float(v == 0 ? 0 : 1 / v));
  }
  sc_tensor_release(s);
  return SC_OK;
}

/* ---- eigh ---- */

static sc_status eigh_shape(sc_call *c, bool vectors) {
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__check_matrix(c, 0, true));
  const char *uplo = c->attr[0].s;
  if (!((uplo[0] == 'L' || uplo[0] == 'U' || uplo[0] == 'l' || uplo[0] == 'u') && !uplo[1])) return sc__bad_attr(c, 0, "expected \"L\" or \"U\"");
  sc_lapack_room room;
  if (!sc__lapack_room(SC_LAPACK_EIGH, (sc_dtype)x->dtype, sc__rows(x), sc__rows(x), vectors, true, &room)) return sc__too_large(c);
  sc__batch_meta(&c->meta[0], x, (sc_dtype)x->dtype, sc__rows(x), -1);
  if (vectors) { sc__meta_like(&c->meta[1], x); c->n_out = 2; }
  return SC_OK;
}
static sc_status eigh_infer(sc_call *c) { return eigh_shape(c, true); }
static sc_status eigvalsh_infer(sc_call *c) { return eigh_shape(c, false); }

static sc_status eigh_run(sc_call *c) {
  sc_tensor *x = c->in[0];
  sc_dtype type = (sc_dtype)x->dtype;
  int64_t n = sc__rows(x), batches = sc__batches(x);
  size_t z = sc_dtype_size(type);
  bool vectors = c->n_out == 2, upper = c->attr[0].s[0] == 'U' || c->attr[0].s[0] == 'u';
  sc_lapack_room room;
  sc__lapack_room(SC_LAPACK_EIGH, type, n, n, vectors, true, &room);
  sc_space space;
  void *p[3];
  SC_TRY(sc__space_open(c->ctx, &space, (int64_t[]){n * n, room.work, room.iwork}, (size_t[]){z, z, sizeof(int)}, p, 3));
  sc_status s = SC_OK;
  for (int64_t i = 0; i < batches && s == SC_OK; i++) {
    sc__load_matrix(x, i, type, p[0], NULL);
    if (!sc__all_finite(type, n * n, p[0])) { s = sc__bad_input(c, 0, "matrix %lld of the batch holds infinities or NaN", (long long)i + c->ctx->index_base); break; }
    int info = sc__syevd(type, vectors, upper, n, p[0], c->out[0]->data + i * n * (int64_t)z, p[1], room.work, p[2], room.iwork);
    if (info) s = sc__bad_call(c, "matrix %lld of the batch: the algorithm did not converge", (long long)i + c->ctx->index_base);
    if (vectors) sc__store_matrix(c->out[1], i, type, p[0], n > 0 ? n : 1);
  }
  sc__space_close(&space);
  return s;
}

static sc_tensor *skew(sc_calc *k, sc_tensor *a) { return sc__calc2(k, "sub", a, sc__calc_t(k, a)); }

/* dA = V (diag(dL) + skew(Vᵀ dV) / 2 (L_j - L_i)) Vᵀ, which is symmetric */
static sc_status eigh_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *v = g->out[1], *vt = sc__calc_t(&k, v);
  sc_tensor *inner = sc__calc2(&k, "mul", skew(&k, sc__calc2(&k, "matmul", vt, g->dy[1])), sc__calc1(&k, "linalg_gaps", g->out[0]));
  inner = sc__calc2(&k, "add", sc__calc_scaled(&k, inner, 0.5), sc__calc1(&k, "diag_embed", g->dy[0]));
  return sc__calc_end(&k, sc__calc2(&k, "matmul", sc__calc2(&k, "matmul", v, inner), vt), &g->dx[0]);
}

static sc_status eigvalsh_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *r[2];
  sc__calc_all(&k, "linalg.eigh", g->in, 1, g->attr, 1, r, 2);
  sc_tensor *d = sc__calc2(&k, "matmul", sc__calc2(&k, "mul", r[1], sc__calc_unsqueeze(&k, g->dy[0], 1)), sc__calc_t(&k, r[1]));
  return sc__calc_end(&k, d, &g->dx[0]);
}

/* ---- svd ---- */

static sc_status svd_shape(sc_call *c, bool vectors, bool full) {
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__check_matrix(c, 0, false));
  int64_t m = sc__rows(x), n = sc__cols(x), k = least(m, n);
  sc_dtype d = (sc_dtype)x->dtype;
  sc_lapack_room room;
  if (!sc__lapack_room(SC_LAPACK_SVD, d, m, n, vectors, full, &room)) return sc__too_large(c);
  sc__batch_meta(&c->meta[vectors ? 1 : 0], x, d, k, -1);
  if (!vectors) return SC_OK;
  sc__batch_meta(&c->meta[0], x, d, m, full ? m : k);
  sc__batch_meta(&c->meta[2], x, d, full ? n : k, n);
  c->n_out = 3;
  return SC_OK;
}
static sc_status svd_infer(sc_call *c) { return svd_shape(c, true, c->attr[0].i); }
static sc_status svdvals_infer(sc_call *c) { return svd_shape(c, false, false); }

static sc_status not_finite(sc_call *c, int64_t i) {
  return sc__bad_input(c, 0, "matrix %lld of the batch holds infinities or NaN", (long long)i + c->ctx->index_base);
}

/* Work space of singular value decompositions of m x n matrices. */
typedef struct svd_space { sc_space space; void *a, *s, *u, *vt, *work, *product; int *iwork; sc_lapack_room room; int64_t m, n, k, ku, kv; } svd_space;

static sc_status svd_open(sc_call *c, svd_space *w, bool vectors, bool full) {
  const sc_tensor *x = c->in[0];
  sc_dtype type = (sc_dtype)x->dtype;
  size_t z = sc_dtype_size(type);
  w->m = sc__rows(x); w->n = sc__cols(x); w->k = least(w->m, w->n);
  w->ku = !vectors ? 0 : full ? w->m : w->k;
  w->kv = !vectors ? 0 : full ? w->n : w->k;
  sc__lapack_room(SC_LAPACK_SVD, type, w->m, w->n, vectors, full, &w->room);
  void *p[7];
  SC_TRY(sc__space_open(c->ctx, &w->space, (int64_t[]){w->m * w->n, w->k, w->m * w->ku, w->kv * w->n, w->room.work, w->room.iwork, w->m * w->n},
                        (size_t[]){z, z, z, z, z, sizeof(int), z}, p, 7));
  w->a = p[0]; w->s = p[1]; w->u = p[2]; w->vt = p[3]; w->work = p[4]; w->iwork = p[5]; w->product = p[6];
  return SC_OK;
}

/* hermitian: the lower triangle stands for the whole. */
static sc_status svd_one(sc_call *c, svd_space *w, int64_t i, char job, bool hermitian) {
  sc_dtype type = (sc_dtype)c->in[0]->dtype;
  sc__load_matrix(c->in[0], i, type, w->a, NULL);
  for (int64_t q = 0; hermitian && q < w->n; q++)
    for (int64_t r = 0; r < q; r++) put(type, w->a, q * w->m + r, element(type, w->a, r * w->m + q));
  if (!sc__all_finite(type, w->m * w->n, w->a)) return not_finite(c, i);
  if (w->k == 0 && w->ku) identity(type, w->m, w->u);
  if (w->k == 0 && w->kv) identity(type, w->n, w->vt);
  int info = sc__gesdd(type, job, w->m, w->n, w->a, w->s, w->u, w->m, w->vt, w->kv, w->work, w->room.work, w->iwork);
  if (info) return sc__bad_call(c, "matrix %lld of the batch: the algorithm did not converge", (long long)i + c->ctx->index_base);
  return SC_OK;
}

static sc_status svd_run(sc_call *c) {
  sc_dtype type = (sc_dtype)c->in[0]->dtype;
  bool vectors = c->n_out == 3, full = vectors && c->attr[0].i;
  int64_t batches = sc__batches(c->in[0]);
  size_t z = sc_dtype_size(type);
  svd_space w;
  SC_TRY(svd_open(c, &w, vectors, full));
  sc_status s = SC_OK;
  for (int64_t i = 0; i < batches && s == SC_OK; i++) {
    s = svd_one(c, &w, i, vectors ? full ? 'A' : 'S' : 'N', false);
    if (s == SC_OK && w.k) memcpy(c->out[vectors ? 1 : 0]->data + i * w.k * (int64_t)z, w.s, (size_t)w.k * z);
    if (s != SC_OK || !vectors) continue;
    sc__store_matrix(c->out[0], i, type, w.u, w.m > 0 ? w.m : 1);
    sc__store_matrix(c->out[2], i, type, w.vt, w.kv > 0 ? w.kv : 1);
  }
  sc__space_close(&w.space);
  return s;
}

static sc_tensor *times(sc_calc *k, sc_tensor *a, sc_tensor *b) { return sc__calc2(k, "mul", a, b); }
static sc_tensor *mm(sc_calc *k, sc_tensor *a, sc_tensor *b) { return sc__calc2(k, "matmul", a, b); }
static sc_tensor *plus(sc_calc *k, sc_tensor *a, sc_tensor *b) { return sc__calc2(k, "add", a, b); }
static sc_tensor *less(sc_calc *k, sc_tensor *a, sc_tensor *b) { return sc__calc2(k, "sub", a, b); }

/* dA = U ((skew(Uᵀ dU) S + S skew(Vᵀ dV)) / (s_j² - s_i²) + diag(dS)) Vᵀ, and what lies outside the span of U (of V) when A is tall
** (wide). Vectors beyond min(m, n) are arbitrary and take no part. Source: Townsend 2016, "Differentiating the singular value decomposition". */
static sc_status svd_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *s = g->out[1];
  int64_t size = s->dim[s->ndim - 1], m = sc__rows(g->out[0]), n = sc__cols(g->out[2]);
  sc_tensor *u = sc__calc_narrow(&k, g->out[0], -1, 0, size), *du = sc__calc_narrow(&k, g->dy[0], -1, 0, size);
  sc_tensor *vt = sc__calc_narrow(&k, g->out[2], -2, 0, size), *dvt = sc__calc_narrow(&k, g->dy[2], -2, 0, size);
  sc_tensor *ut = sc__calc_t(&k, u), *v = sc__calc_t(&k, vt), *row = sc__calc_unsqueeze(&k, s, 1), *col = sc__calc_unsqueeze(&k, s, 0);
  sc_tensor *a = times(&k, skew(&k, mm(&k, ut, du)), row), *b = times(&k, col, skew(&k, mm(&k, vt, sc__calc_t(&k, dvt))));
  sc_tensor *inner = times(&k, plus(&k, a, b), sc__calc1(&k, "linalg_gaps", times(&k, s, s)));
  inner = plus(&k, inner, sc__calc1(&k, "diag_embed", g->dy[1]));
  sc_tensor *d = mm(&k, mm(&k, u, inner), vt), *one = sc__calc1(&k, "linalg_reciprocal", s);
  if (m > size) {
    sc_tensor *w = times(&k, du, sc__calc_unsqueeze(&k, one, 1));
    d = plus(&k, d, mm(&k, less(&k, w, mm(&k, u, mm(&k, ut, w))), vt));
  }
  if (n > size) {
    sc_tensor *w = times(&k, sc__calc_unsqueeze(&k, one, 0), dvt);
    d = plus(&k, d, mm(&k, u, less(&k, w, mm(&k, mm(&k, w, v), vt))));
  }
  return sc__calc_end(&k, d, &g->dx[0]);
}

static sc_status svdvals_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *r[3];
  sc__calc_all(&k, "linalg.svd", g->in, 1, (sc_attr[]){sc__bool(false)}, 1, r, 3);
  return sc__calc_end(&k, mm(&k, times(&k, r[0], sc__calc_unsqueeze(&k, g->dy[0], 1)), r[2]), &g->dx[0]);
}

/* ---- pinv and matrix_rank: singular values up to a tolerance count as 0 ---- */

/* in: x, first (rcond or tol), atol, rtol; attr[0]: hermitian */
static sc_status tolerance_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__check_matrix(c, 0, false));
  if (c->attr[0].i) SC_TRY(sc__check_matrix(c, 0, true));
  for (int i = 1; i < 4; i++) {
    const sc_tensor *t = c->in[i];
    int64_t dim[SC_MAX_DIMS];
    int n = 0;
    if (t && (!sc__broadcast(t->ndim, t->dim, x->ndim - 2, x->dim, &n, dim) || n != x->ndim - 2 || memcmp(dim, x->dim, (size_t)n * 8) != 0)) {
      char a[200];
      return sc__bad_input(c, i, "shape %s does not broadcast to the batch dims of the matrices", sc__shape_text(t->ndim, t->dim, a, sizeof a));
    }
  }
  sc_lapack_room room;
  if (!sc__lapack_room(SC_LAPACK_SVD, (sc_dtype)x->dtype, sc__rows(x), sc__cols(x), true, false, &room)) return sc__too_large(c);
  return SC_OK;
}

static sc_status pinv_infer(sc_call *c) {
  SC_TRY(tolerance_infer(c));
  sc__batch_meta(&c->meta[0], c->in[0], (sc_dtype)c->in[0]->dtype, sc__cols(c->in[0]), sc__rows(c->in[0]));
  return SC_OK;
}

static sc_status rank_infer(sc_call *c) {
  SC_TRY(tolerance_infer(c));
  sc__batch_meta(&c->meta[0], c->in[0], SC_INT64, -1, -1);
  return SC_OK;
}

/* t's value for matrix i of x */
static double batch_value(const sc_tensor *t, const sc_tensor *x, int64_t i) {
  int64_t off = 0;
  for (int k = x->ndim - 3, d = t->ndim - 1; d >= 0; k--, d--) {
    if (t->dim[d] != 1) off += i % x->dim[k] * sc__stride(t)[d];
    i /= x->dim[k];
  }
  return sc__load((sc_dtype)t->dtype, t->data + off * (int64_t)sc_dtype_size((sc_dtype)t->dtype)).f;
}

/* The larger of atol and rtol times the largest value; rtol is max(m, n) eps unless one of the two is given. */
static double tolerance(sc_call *c, const sc_tensor *atol, const sc_tensor *rtol, int64_t i, double largest) {
  const sc_tensor *x = c->in[0];
  double eps = x->dtype == SC_FLOAT32 ? 0x1p-23 : 0x1p-52, size = (double)(sc__rows(x) > sc__cols(x) ? sc__rows(x) : sc__cols(x));
  double a = atol ? batch_value(atol, x, i) : 0, r = rtol ? batch_value(rtol, x, i) : a > 0 ? 0 : size * eps;
  return a > r * largest ? a : r * largest;
}

static sc_status pinv_run(sc_call *c) {
  sc_dtype type = (sc_dtype)c->in[0]->dtype;
  int64_t batches = sc__batches(c->in[0]);
  svd_space w;
  SC_TRY(svd_open(c, &w, true, false));
  sc_status s = SC_OK;
  for (int64_t i = 0; i < batches && s == SC_OK; i++) {
    s = svd_one(c, &w, i, 'S', c->attr[0].i);
    if (s != SC_OK) break;
    double least_value = tolerance(c, c->in[2], c->in[1] ? c->in[1] : c->in[3], i, w.k ? element(type, w.s, 0) : 0);
    for (int64_t q = 0; q < w.n; q++)                  /* V [n, k] with its columns divided */
      for (int64_t e = 0; e < w.k; e++) {
        double v = element(type, w.s, e);
        put(type, w.vt, q * w.k + e, v > least_value ? element(type, w.vt, q * w.k + e) / v : 0);
      }
    char *out = c->out[0]->data + i * w.m * w.n * (int64_t)sc_dtype_size(type);
    if (type == SC_FLOAT32) s = sc__gemm_f32(c->ctx, false, false, w.n, w.m, w.k, 1, w.vt, w.k > 0 ? w.k : 1, w.u, w.m > 0 ? w.m : 1, 0, (float *)out, w.m > 0 ? w.m : 1);
    else s = sc__gemm_f64(c->ctx, false, false, w.n, w.m, w.k, 1, w.vt, w.k > 0 ? w.k : 1, w.u, w.m > 0 ? w.m : 1, 0, (double *)out, w.m > 0 ? w.m : 1);
  }
  sc__space_close(&w.space);
  return s;
}

/* P = x⁺: dx = -Pᵀ dP Pᵀ + (I - x P) dPᵀ P Pᵀ + Pᵀ P dPᵀ (I - P x).
** Source: Golub and Pereyra 1973, "The differentiation of pseudo-inverses". */
static sc_status pinv_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *x = g->in[0], *p = g->out[0], *pt = sc__calc_t(&k, p), *d = g->dy[0], *dt = sc__calc_t(&k, d);
  sc_tensor *first = mm(&k, pt, mm(&k, d, pt));
  sc_tensor *second = mm(&k, less(&k, dt, mm(&k, x, mm(&k, p, dt))), mm(&k, p, pt));
  sc_tensor *third = mm(&k, mm(&k, pt, p), less(&k, dt, mm(&k, mm(&k, dt, p), x)));
  return sc__calc_end(&k, less(&k, plus(&k, second, third), first), &g->dx[0]);
}

static sc_status rank_run(sc_call *c) {
  sc_dtype type = (sc_dtype)c->in[0]->dtype;
  int64_t batches = sc__batches(c->in[0]);
  svd_space w;
  SC_TRY(svd_open(c, &w, false, false));
  sc_status s = SC_OK;
  for (int64_t i = 0; i < batches && s == SC_OK; i++) {
    s = svd_one(c, &w, i, 'N', c->attr[0].i);
    if (s != SC_OK) break;
    bool plain = c->in[1] != NULL;                     /* tol: an absolute one */
    double least_value = plain ? batch_value(c->in[1], c->in[0], i) : tolerance(c, c->in[2], c->in[3], i, w.k ? element(type, w.s, 0) : 0);
    int64_t rank = 0;
    for (int64_t e = 0; e < w.k; e++) rank += element(type, w.s, e) > least_value;
    ((int64_t *)c->out[0]->data)[i] = rank;
  }
  sc__space_close(&w.space);
  return s;
}

/* ---- matrix_exp: exp(A) = exp(A / 2ˢ) squared s times, with a Taylor polynomial of degree 18 for norms up to 1, in float64 ---- */

static sc_status exp_infer(sc_call *c) {
  SC_TRY(sc__check_matrix(c, 0, true));
  if (sc__rows(c->in[0]) > 1 << 15) return sc__too_large(c);
  sc__meta_like(&c->meta[0], c->in[0]);
  return SC_OK;
}

static sc_status exp_one(sc_context *ctx, int64_t n, double *a, double *y, double *t) {
  double norm = 0;
  for (int64_t j = 0; j < n; j++) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fabs(a[j * n + i]);
    if (!(sum <= norm)) norm = sum;
  }
  int halvings = norm > 1 && norm < INFINITY ? (int)ceil(log2(norm)) : 0;
  for (int64_t i = 0; i < n * n; i++) a[i] = ldexp(a[i], -halvings);
  identity(SC_FLOAT64, n, y);
  for (int order = 18; order >= 1; order--) {            /* Horner: y = I + a y / order */
    SC_TRY(sc__gemm_f64(ctx, false, false, n, n, n, 1.0 / order, a, n, y, n, 0, t, n));
    memcpy(y, t, (size_t)(n * n) * 8);
    for (int64_t i = 0; i < n; i++) y[i * n + i] += 1;
  }
  for (int i = 0; i < halvings; i++) {
    SC_TRY(sc__gemm_f64(ctx, false, false, n, n, n, 1, y, n, y, n, 0, t, n));
    memcpy(y, t, (size_t)(n * n) * 8);
  }
  return SC_OK;
}

static sc_status exp_run(sc_call *c) {
  sc_tensor *x = c->in[0];
  int64_t n = sc__rows(x), batches = sc__batches(x);
  sc_space space;
  void *p[3];
  SC_TRY(sc__space_open(c->ctx, &space, (int64_t[]){n * n, n * n, n * n}, (size_t[]){8, 8, 8}, p, 3));
  sc_status s = SC_OK;
  for (int64_t i = 0; i < batches && s == SC_OK && n; i++) {
    sc__load_matrix(x, i, SC_FLOAT64, p[0], NULL);
    s = exp_one(c->ctx, n, p[0], p[1], p[2]);
    sc__store_matrix(c->out[0], i, SC_FLOAT64, p[1], n);
  }
  sc__space_close(&space);
  return s;
}

/* The derivative in direction E is the upper right block of exp [[A, E], [0, A]]; the gradient is that of Aᵀ in direction dy.
** Source: Mathias 1996, "A chain rule for matrix functions". */
static sc_status exp_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *a = sc__calc_t(&k, g->in[0]), *zero = sc__calc_scaled(&k, g->dy[0], 0);
  int64_t n = sc__rows(g->in[0]);
  sc_attr across = sc__int(-1), down = sc__int(-2);
  sc_tensor *top = sc__calc(&k, "cat", (sc_tensor *[]){a, g->dy[0]}, 2, &across, 1), *low = sc__calc(&k, "cat", (sc_tensor *[]){zero, a}, 2, &across, 1);
  sc_tensor *e = sc__calc1(&k, "matrix_exp", sc__calc(&k, "cat", (sc_tensor *[]){top, low}, 2, &down, 1));
  return sc__calc_end(&k, sc__calc_narrow(&k, sc__calc_narrow(&k, e, -2, 0, n), -1, n, n), &g->dx[0]);
}

/* ---- cross ---- */

static sc_status cross_infer(sc_call *c) {
  sc_tensor *x = c->in[0], *y = c->in[1];
  sc_meta *m = &c->meta[0];
  char s[200], t[200];
  SC_TRY(sc__broadcast_inputs(c, 0));
  m->dtype = sc__result_dtype(c->in, 2);
  if (m->dtype == SC_BOOL) return sc__bad_input(c, 0, "not defined for bool");
  int dim = -1;
  if (x->ndim != y->ndim)
    return sc__bad_input(c, 1, "shape %s has other dimensions than %s", sc__shape_text(y->ndim, y->dim, t, sizeof t), sc__shape_text(x->ndim, x->dim, s, sizeof s));
  if (sc__has(c, 0)) SC_TRY(sc__dim(c, 0, m->ndim, &dim));
  else for (dim = 0; dim < m->ndim && m->dim[dim] != 3; dim++) {}
  if (dim >= m->ndim || x->dim[dim] != 3 || y->dim[dim] != 3)
    return sc__bad_call(c, "expected a dimension of size 3, got shapes %s and %s", sc__shape_text(x->ndim, x->dim, s, sizeof s),
                        sc__shape_text(y->ndim, y->dim, t, sizeof t));
  c->note[0] = dim;
  return SC_OK;
}

#define CROSS(T) do { \
    const T *a = (const T *)w[0]->data, *b = (const T *)w[1]->data; \
    T *d = (T *)w[2]->data; \
    for (int64_t o = 0; o < outer; o++) \
      for (int k = 0; k < 3; k++) \
        for (int64_t i = 0; i < inner; i++) { \
          int64_t p = (o * 3 + (k + 1) % 3) * inner + i, q = (o * 3 + (k + 2) % 3) * inner + i; \
          d[(o * 3 + k) * inner + i] = (T)(a[p] * b[q] - a[q] * b[p]); \
        } \
  } while (0)

static sc_status cross_run(sc_call *c) {
  sc_tensor *out = c->out[0], *w[3] = {0};
  sc_dtype d = (sc_dtype)out->dtype, type = d == SC_FLOAT64 ? d : sc__is_float(d) ? SC_FLOAT32 : SC_UINT64;
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < c->note[0]; i++) outer *= out->dim[i];
  for (int i = (int)c->note[0] + 1; i < out->ndim; i++) inner *= out->dim[i];
  sc_status s = SC_OK;
  for (int i = 0; i < 3 && s == SC_OK; i++) s = sc_tensor_new(c->ctx, type, out->ndim, out->dim, &w[i]);
  for (int i = 0; i < 2 && s == SC_OK; i++) s = sc__tensor_copy(w[i], c->in[i]);
  if (s == SC_OK) {
    if (type == SC_FLOAT32) CROSS(float);
    else if (type == SC_FLOAT64) CROSS(double);
    else CROSS(uint64_t);
    s = sc__tensor_copy(out, w[2]);
  }
  for (int i = 0; i < 3; i++) sc_tensor_release(w[i]);
  return s;
}
#undef CROSS

/* The dim that was meant, for gradients of the broadcast shape. */
static sc_status cross_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_attr dim = g->attr[0];
  const sc_tensor *dy = g->dy[0];
  if (dim.kind == SC_ATTR_NONE) for (dim = sc__int(0); dim.i < dy->ndim - 1 && dy->dim[dim.i] != 3; dim.i++) {}
  sc_tensor *d[2] = {NULL, NULL};
  if (g->wanted[0]) d[0] = sc__calc(&k, "linalg.cross", (sc_tensor *[]){g->in[1], g->dy[0]}, 2, &dim, 1);
  if (g->wanted[1]) d[1] = sc__calc(&k, "linalg.cross", (sc_tensor *[]){g->dy[0], g->in[0]}, 2, &dim, 1);
  if (k.status == SC_OK && d[0]) g->dx[0] = sc_tensor_retain(d[0]);
  return sc__calc_end(&k, d[1], &g->dx[1]);
}

#define TOL "atol: tensor?, rtol: tensor?)"

const sc_op sc__ops_spectral[] = {
  {"linalg.qr(x, mode: str = \"reduced\") -> Q, R",
   "Orthonormal Q and upper triangular R with Q R = x.\nShapes: x [..., m, n], k = min(m, n): \"reduced\" gives [..., m, k] and [..., k, n], \"complete\" "
   "[..., m, m] and [..., m, n], \"r\" an empty Q.\nExample: sc.linalg.qr(sc.rand(4, 2))", SC_OP_FUNCTION | SC_OP_SAVE_NO_IN, .infer = qr_infer,
   .run = qr_run, .backward = qr_backward},
  {"linalg_gaps(s)", "1 / (s_j - s_i), 0 where they are equal.", SC_OP_INTERNAL, .infer = gaps_infer, .run = gaps_run,
   .grad = {"sum(dy * y * y, [-1], false) - sum(dy * y * y, [-2], false)"}},
  {"linalg_reciprocal(s)", "1 / s, 0 where s is 0.", SC_OP_INTERNAL, .infer = reciprocal_infer, .run = reciprocal_run, .grad = {"-dy * y * y"}},
  {"linalg.eigh(x, UPLO: str = \"L\") -> eigenvalues, eigenvectors",
   "Eigenvalues, ascending, and orthonormal eigenvectors (columns) of symmetric matrices; one triangle is read.\nShapes: [..., n, n] gives [..., n] and "
   "[..., n, n].\nErrors: infinities or NaN.\nExample: sc.linalg.eigh(sc.eye(3))", SC_OP_FUNCTION | SC_OP_SAVE_NO_IN, .infer = eigh_infer, .run = eigh_run,
   .backward = eigh_backward},
  {"linalg.eigvalsh(x, UPLO: str = \"L\")", "Eigenvalues, ascending, of symmetric matrices; one triangle is read.", SC_OP_FUNCTION | SC_OP_SAVE_NO_OUT,
   .infer = eigvalsh_infer, .run = eigh_run, .backward = eigvalsh_backward},
  {"linalg.svd(x, full_matrices: bool = true, driver: str?) -> U, S, Vh",
   "Singular value decomposition, x = U diag(S) Vh with S descending.\nShapes: x [..., m, n], k = min(m, n): U [..., m, m], S [..., k], Vh [..., n, n]; "
   "without full_matrices [..., m, k] and [..., k, n].\nErrors: infinities or NaN.\nExample: sc.linalg.svd(sc.rand(4, 2), false)",
   SC_OP_FUNCTION | SC_OP_SAVE_NO_IN, .infer = svd_infer, .run = svd_run, .backward = svd_backward},
  {"linalg.svdvals(x, driver: str?)", "Singular values, descending.", SC_OP_FUNCTION | SC_OP_SAVE_NO_OUT, .infer = svdvals_infer, .run = svd_run,
   .backward = svdvals_backward},
  {"linalg.pinv(x, rcond: tensor?, hermitian: bool = false, " TOL,
   "Pseudo-inverse: singular values up to max(atol, rtol * the largest) count as 0; rcond is rtol's older name.\nShapes: [..., m, n] gives [..., n, m].\n"
   "Example: sc.linalg.pinv(sc.rand(4, 2))", SC_OP_FUNCTION, .infer = pinv_infer, .run = pinv_run, .backward = pinv_backward},
  {"linalg.matrix_rank(x, tol: tensor?, hermitian: bool = false, " TOL,
   "Number of singular values above max(atol, rtol * the largest), or above tol.\nShapes: [..., m, n] gives [...].", SC_OP_FUNCTION, .infer = rank_infer,
   .run = rank_run, .no_grad = "a count has no derivative"},
  {"matrix_exp(x)", "Exponential of square matrices.\nShapes: [..., n, n].\nExample: sc.matrix_exp(sc.zeros(2, 2))", SC_OP_SAVE_NO_OUT, .infer = exp_infer,
   .run = exp_run, .backward = exp_backward},
  {"linalg.matrix_exp(x)", "Exponential of square matrices.\nShapes: [..., n, n].", SC_OP_FUNCTION | SC_OP_SAVE_NO_OUT, .infer = exp_infer, .run = exp_run,
   .backward = exp_backward},
  {"linalg.cross(x, other, dim: dim = -1)", "Cross product of vectors of three along dim; the other dims broadcast.\nExample: sc.linalg.cross(sc.tensor{1, 0, 0}, sc.tensor{0, 1, 0})",
   SC_OP_FUNCTION | SC_OP_SAVE_NO_OUT, .infer = cross_infer, .run = cross_run, .backward = cross_backward},
  {"cross(x, other, dim: dim?)", "Cross product along dim, by default the first dimension of size 3.", SC_OP_SAVE_NO_OUT, .infer = cross_infer,
   .run = cross_run, .backward = cross_backward},
};
#undef TOL
const int sc__ops_spectral_count = SC_COUNT(sc__ops_spectral);
