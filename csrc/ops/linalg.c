/* Linear algebra over LU and Cholesky: det, slogdet, inv, solve, triangular solves, lu, cholesky. What rests on orthogonal matrices is in
** spectral.c.
**
** Tensors are row-major and LAPACK is column-major: each matrix of a batch is copied into a column-major work space, worked on there and
** copied back; that costs n² against the n³ of the work. float32 and float64 only. Empty batches and 0 x 0 matrices are fine.
** Gradients are expressions over the same ops, so they can be differentiated again. */
#include "linalg.h"

#include <math.h>
#include <string.h>

/* ---- shared with spectral.c ---- */

sc_status sc__check_matrix(sc_call *c, int slot, bool square) {
  const sc_tensor *t = c->in[slot];
  char s[200];
  if (t->dtype != SC_FLOAT32 && t->dtype != SC_FLOAT64)
    return sc__bad_input(c, slot, "expected float32 or float64, got %s", sc_dtype_name((sc_dtype)t->dtype));
  if (t->ndim < 2)
    return sc__bad_input(c, slot, "expected a matrix or a batch of them, got shape %s", sc__shape_text(t->ndim, t->dim, s, sizeof s));
  if (square && sc__rows(t) != sc__cols(t))
    return sc__bad_input(c, slot, "expected square matrices, got shape %s", sc__shape_text(t->ndim, t->dim, s, sizeof s));
  return SC_OK;
}

int64_t sc__batches(const sc_tensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim - 2; i++) n *= t->dim[i];
  return n;
}

void sc__batch_meta(sc_meta *m, const sc_tensor *t, sc_dtype dtype, int64_t rows, int64_t cols) {
  sc__meta_set(m, dtype, t->ndim - 2, t->dim);
  if (rows >= 0) m->dim[m->ndim++] = rows;
  if (cols >= 0) m->dim[m->ndim++] = cols;
}

void sc__load_matrix(const sc_tensor *t, int64_t i, sc_dtype type, void *dst, const sc_meta *shape) {
  int nb = t->ndim - 2;
  const int64_t *s = sc__stride(t);
  int64_t off = 0, z = (int64_t)sc_dtype_size((sc_dtype)t->dtype), rows = sc__rows(t), cols = sc__cols(t);
  for (int at = shape ? shape->ndim - 1 : nb - 1, d = nb - 1; d >= 0; at--, d--) {
    int64_t size = shape ? shape->dim[at] : t->dim[d];
    if (t->dim[d] != 1) off += i % size * s[d];
    i /= size;
  }
  for (int64_t j = 0; j < cols; j++)
    sc__convert(rows, type, (char *)dst + j * rows * (int64_t)sc_dtype_size(type), 1, (sc_dtype)t->dtype, t->data + (off + j * s[nb + 1]) * z, s[nb]);
}

void sc__store_matrix(sc_tensor *out, int64_t i, sc_dtype type, const void *src, int64_t ld) {
  int64_t rows = sc__rows(out), cols = sc__cols(out), z = (int64_t)sc_dtype_size((sc_dtype)out->dtype);
  for (int64_t r = 0; r < rows; r++)
    sc__convert(cols, (sc_dtype)out->dtype, out->data + (i * rows + r) * cols * z, 1, type, (const char *)src + r * (int64_t)sc_dtype_size(type), ld);
}

bool sc__all_finite(sc_dtype type, int64_t n, const void *p) {
  double bad = 0;
  if (type == SC_FLOAT32) for (int64_t i = 0; i < n; i++) bad += ((const float *)p)[i] * 0.0f;
  else for (int64_t i = 0; i < n; i++) bad += ((const double *)p)[i] * 0.0;
  return bad == 0;
}

sc_status sc__too_large(sc_call *c) { return sc__bad_call(c, "the matrix is too large for LAPACK's 32-bit sizes"); }

sc_status sc__space_open(sc_context *ctx, sc_space *s, const int64_t *elements, const size_t *size, void **piece, int n) {
  int64_t total = 0, at[16];
  *s = (sc_space){.ctx = ctx};
  for (int i = 0; i < n; i++) {
    int64_t bytes;
    at[i] = total;
    if (!sc__mul(elements[i], (int64_t)size[i], &bytes) || bytes > INT64_MAX / 32) return sc__fail(ctx, SC_EINVAL, "a matrix is too large");
    total += (bytes + 127) / 64 * 64;
  }
  s->bytes = (size_t)total + 64;
  SC_TRY(sc__blas_ready(ctx, 1));
  s->block = sc__alloc(ctx, s->bytes);
  if (!s->block) return sc__no_memory(ctx, s->bytes);
  for (int i = 0; i < n; i++) piece[i] = s->block + at[i];
  return SC_OK;
}

void sc__space_close(sc_space *s) { if (s->block) sc__release(s->ctx, s->block, s->bytes); }

static double element(sc_dtype type, const void *p, int64_t i) { return type == SC_FLOAT32 ? ((const float *)p)[i] : ((const double *)p)[i]; }
static void put(sc_dtype type, void *p, int64_t i, double v) { if (type == SC_FLOAT32) ((float *)p)[i] = (float)v; else ((double *)p)[i] = v; }
static void put_info(sc_tensor *t, int64_t i, int info) { ((int32_t *)t->data)[i] = info; }

/* meta[slot]: int32, one per matrix of t */
static void info_meta(sc_call *c, int slot, const sc_tensor *t) { sc__batch_meta(&c->meta[slot], t, SC_INT32, -1, -1); }

/* ---- cholesky ---- */

static sc_status cholesky_infer(sc_call *c) {
  SC_TRY(sc__check_matrix(c, 0, true));
  sc_lapack_room room;
  if (!sc__lapack_room(SC_LAPACK_LU, SC_FLOAT64, sc__rows(c->in[0]), sc__rows(c->in[0]), false, false, &room)) return sc__too_large(c);
  sc__meta_like(&c->meta[0], c->in[0]);
  return SC_OK;
}

static sc_status cholesky_ex_infer(sc_call *c) {
  SC_TRY(cholesky_infer(c));
  info_meta(c, 1, c->in[0]);
  c->n_out = 2;
  return SC_OK;
}

static sc_status cholesky_run(sc_call *c) {
  sc_tensor *x = c->in[0];
  sc_dtype type = (sc_dtype)x->dtype;
  int64_t n = sc__rows(x), batches = sc__batches(x);
  bool upper = c->attr[0].i, strict = c->n_out == 1 || c->attr[1].i;
  size_t z = sc_dtype_size(type);
  sc_space space;
  void *a;
  SC_TRY(sc__space_open(c->ctx, &space, &(int64_t){n * n}, &z, &a, 1));
  sc_status s = SC_OK;
  for (int64_t i = 0; i < batches && s == SC_OK; i++) {
    sc__load_matrix(x, i, type, a, NULL);
    for (int64_t q = 0; q < n; q++)                    /* the other triangle is not read */
      for (int64_t r = upper ? q + 1 : 0, end = upper ? n : q; r < end; r++) put(type, a, q * n + r, 0);
    int info = sc__potrf(type, upper, n, a);
    if (c->n_out > 1) put_info(c->out[1], i, info);
    if (info && strict)
      s = sc__bad_call(c, "matrix %lld of the batch is not positive definite: its leading minor of order %d is not",
                       (long long)i + c->ctx->index_base, info);
    sc__store_matrix(c->out[0], i, type, a, n);
  }
  sc__space_close(&space);
  return s;
}

/* A = L Lᵀ: with P the lower triangle of Lᵀ dL, its diagonal halved, dA is the symmetric part of L⁻ᵀ P L⁻¹.
** Source: Murray 2016, "Differentiation of the Cholesky decomposition". */
static sc_status cholesky_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  bool upper = g->attr[0].i;
  sc_tensor *l = upper ? sc__calc_t(&k, g->out[0]) : g->out[0], *dl = upper ? sc__calc_t(&k, g->dy[0]) : g->dy[0];
  sc_tensor *lt = sc__calc_t(&k, l), *m = sc__calc2(&k, "matmul", lt, dl);
  sc_tensor *p = sc__calc_scaled(&k, sc__calc2(&k, "add", sc__calc_tri(&k, m, false, 0), sc__calc_tri(&k, m, false, -1)), 0.5);
  sc_attr up[3] = {sc__bool(true), sc__bool(true), sc__bool(false)}, right[3] = {sc__bool(false), sc__bool(false), sc__bool(false)};
  sc_tensor *left = sc__calc(&k, "linalg.solve_triangular", (sc_tensor *[]){lt, p}, 2, up, 3);
  sc_tensor *d = sc__calc(&k, "linalg.solve_triangular", (sc_tensor *[]){l, left}, 2, right, 3);
  d = sc__calc_scaled(&k, sc__calc2(&k, "add", d, sc__calc_t(&k, d)), 0.5);
  return sc__calc_end(&k, d, &g->dx[0]);
}

/* ---- lu ---- */

static sc_status lu_infer(sc_call *c) {
  const sc_tensor *x = c->in[0];
  SC_TRY(sc__check_matrix(c, 0, false));
  int64_t m = sc__rows(x), n = sc__cols(x);
  sc_lapack_room room;
  if (!sc__lapack_room(SC_LAPACK_LU, (sc_dtype)x->dtype, m, n, false, false, &room)) return sc__too_large(c);
  if (!c->attr[0].i) return sc__bad_attr(c, 0, "factoring without pivoting is not supported");
  sc__meta_like(&c->meta[0], x);
  sc__batch_meta(&c->meta[1], x, SC_INT32, m < n ? m : n, -1);
  info_meta(c, 2, x);
  c->n_out = 3;
  return SC_OK;
}

static sc_status lu_run(sc_call *c) {
  sc_tensor *x = c->in[0];
  sc_dtype type = (sc_dtype)x->dtype;
  int64_t m = sc__rows(x), n = sc__cols(x), k = m < n ? m : n, batches = sc__batches(x);
  size_t z = sc_dtype_size(type);
  bool strict = c->op->n_attr > 1 && c->attr[1].i;
  sc_space space;
  void *a;
  SC_TRY(sc__space_open(c->ctx, &space, &(int64_t){m * n}, &z, &a, 1));
  sc_status s = SC_OK;
  for (int64_t i = 0; i < batches && s == SC_OK; i++) {
    sc__load_matrix(x, i, type, a, NULL);
    int info = sc__getrf(type, m, n, a, (int *)c->out[1]->data + i * k);
    put_info(c->out[2], i, info);
    if (info && strict)
      s = sc__bad_call(c, "matrix %lld of the batch is singular: U has a zero at place %d of its diagonal", (long long)i + c->ctx->index_base, info);
    sc__store_matrix(c->out[0], i, type, a, m > 0 ? m : 1);
  }
  sc__space_close(&space);
  return s;
}

static sc_tensor *tri_solve(sc_calc *k, sc_tensor *a, sc_tensor *b, bool upper, bool left, bool unit) {
  return sc__calc(k, "linalg.solve_triangular", (sc_tensor *[]){a, b}, 2, (sc_attr[]){sc__bool(upper), sc__bool(left), sc__bool(unit)}, 3);
}

static sc_tensor *cat2(sc_calc *k, sc_tensor *a, sc_tensor *b, int dim) {
  return sc__calc(k, "cat", (sc_tensor *[]){a, b}, 2, (sc_attr[]){sc__int(dim)}, 1);
}

static sc_tensor *permutation(sc_calc *k, sc_tensor *pivots, sc_tensor *lu) { return sc__calc2(k, "linalg_permutation", pivots, lu); }

/* A = P L U. Square: dA = P L⁻ᵀ (tril(Lᵀ dL, -1) + triu(dU Uᵀ)) U⁻ᵀ. The columns of a wide matrix (rows of a tall one) beyond the
** square hang on the square part: U₂ = L⁻¹ (Pᵀ A)₂ and L₂ = (Pᵀ A)₂ U⁻¹, which adds their share to dL (dU). */
static sc_status lu_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *f = g->out[0], *d = g->dy[0];
  int64_t m = sc__rows(f), n = sc__cols(f), s = m < n ? m : n;
  sc_tensor *p = permutation(&k, g->out[1], f);
  sc_tensor *f1 = sc__calc_narrow(&k, sc__calc_narrow(&k, f, -2, 0, s), -1, 0, s), *d1 = sc__calc_narrow(&k, sc__calc_narrow(&k, d, -2, 0, s), -1, 0, s);
  sc_tensor *ft = sc__calc_t(&k, f1), *u1 = sc__calc_tri(&k, f1, true, 0), *l1 = sc__calc_tri(&k, f1, false, -1);
  sc_tensor *dl = sc__calc_tri(&k, d1, false, -1), *du = sc__calc_tri(&k, d1, true, 0);
  /* L1 has ones on its diagonal: L1ᵀ dL = dL + tril(L1, -1)ᵀ dL */
  sc_tensor *a = sc__calc2(&k, "add", dl, sc__calc2(&k, "matmul", sc__calc_t(&k, l1), dl)), *b = sc__calc2(&k, "matmul", du, sc__calc_t(&k, u1));
  sc_tensor *rest = NULL;
  if (n > m) {
    sc_tensor *u2 = sc__calc_narrow(&k, f, -1, s, n - s), *d2 = sc__calc_narrow(&k, d, -1, s, n - s);
    a = sc__calc2(&k, "sub", a, sc__calc2(&k, "matmul", d2, sc__calc_t(&k, u2)));
    rest = tri_solve(&k, ft, d2, true, true, true);
  } else if (m > n) {
    sc_tensor *l2 = sc__calc_narrow(&k, f, -2, s, m - s), *d2 = sc__calc_narrow(&k, d, -2, s, m - s);
    b = sc__calc2(&k, "sub", b, sc__calc2(&k, "matmul", sc__calc_t(&k, l2), d2));
    rest = tri_solve(&k, ft, d2, false, false, false);
  }
  sc_tensor *mid = sc__calc2(&k, "add", sc__calc_tri(&k, a, false, -1), sc__calc_tri(&k, b, true, 0));
  sc_tensor *r = tri_solve(&k, ft, tri_solve(&k, ft, mid, true, true, true), false, false, false);
  if (rest) r = cat2(&k, r, rest, n > m ? -1 : -2);
  r = sc__calc2(&k, "matmul", p, r);
  return sc__calc_end(&k, r, &g->dx[0]);
}

/* linalg_permutation(pivots, lu): P with A = P L U, of lu's dtype. */
static sc_status permutation_infer(sc_call *c) {
  const sc_tensor *piv = c->in[0], *lu = c->in[1];
  char a[200], b[200];
  bool fit = lu->ndim >= 2 && piv->ndim == lu->ndim - 1 && memcmp(piv->dim, lu->dim, (size_t)(piv->ndim - 1) * 8) == 0 &&
             piv->dim[piv->ndim - 1] == (sc__rows(lu) < sc__cols(lu) ? sc__rows(lu) : sc__cols(lu));
  if (lu->dtype != SC_FLOAT32 && lu->dtype != SC_FLOAT64) return sc__bad_input(c, 1, "expected float32 or float64, got %s", sc_dtype_name((sc_dtype)lu->dtype));
  if (piv->dtype != SC_INT32) return sc__bad_input(c, 0, "expected int32, got %s", sc_dtype_name((sc_dtype)piv->dtype));
  if (!fit)
    return sc__bad_input(c, 0, "shape %s does not fit a factorisation of shape %s", sc__shape_text(piv->ndim, piv->dim, a, sizeof a),
                         sc__shape_text(lu->ndim, lu->dim, b, sizeof b));
  sc__batch_meta(&c->meta[0], lu, (sc_dtype)lu->dtype, sc__rows(lu), sc__rows(lu));
  return SC_OK;
}

static sc_status permutation_run(sc_call *c) {
  sc_tensor *lu = c->in[1], *piv = NULL, *out = c->out[0];
  sc_dtype type = (sc_dtype)lu->dtype;
  int64_t m = sc__rows(lu), k = c->in[0]->dim[c->in[0]->ndim - 1], batches = sc__batches(lu);
  size_t z = 8;
  sc_space space;
  void *order;
  SC_TRY(sc__tensor_packed(c->in[0], &piv));
  sc_status s = sc__space_open(c->ctx, &space, &(int64_t){m}, &z, &order, 1);
  int64_t *row = order;
  if (s == SC_OK && out->numel) memset(out->data, 0, (size_t)out->numel * sc_dtype_size(type));
  for (int64_t i = 0; i < batches && s == SC_OK; i++) {
    for (int64_t r = 0; r < m; r++) row[r] = r;
    for (int64_t r = 0; r < k; r++) {
      int64_t p = ((const int32_t *)piv->data)[i * k + r] - 1;
      if (p < 0 || p >= m) { s = sc__bad_input(c, 0, "pivot %lld is out of range 1 to %lld", (long long)p + 1, (long long)m); break; }
      int64_t t = row[r];
      row[r] = row[p];
      row[p] = t;
    }
    for (int64_t r = 0; r < m && s == SC_OK; r++) put(type, out->data, (i * m + row[r]) * m + r, 1);
  }
  sc__space_close(&space);
  sc_tensor_release(piv);
  return s;
}

/* ---- determinants: the pivots' signs and U's diagonal ---- */

static sc_status det_infer(sc_call *c) {
  SC_TRY(sc__check_matrix(c, 0, true));
  sc_lapack_room room;
  if (!sc__lapack_room(SC_LAPACK_LU, (sc_dtype)c->in[0]->dtype, sc__rows(c->in[0]), sc__rows(c->in[0]), false, false, &room)) return sc__too_large(c);
  sc__batch_meta(&c->meta[0], c->in[0], (sc_dtype)c->in[0]->dtype, -1, -1);
  return SC_OK;
}

static sc_status slogdet_infer(sc_call *c) {
  SC_TRY(det_infer(c));
  c->meta[1] = c->meta[0];
  c->n_out = 2;
  return SC_OK;
}

static sc_status det_run(sc_call *c) {
  sc_tensor *x = c->in[0];
  sc_dtype type = (sc_dtype)x->dtype;
  int64_t n = sc__rows(x), batches = sc__batches(x);
  sc_space space;
  void *piece[2];
  SC_TRY(sc__space_open(c->ctx, &space, (int64_t[]){n * n, n}, (size_t[]){sc_dtype_size(type), sizeof(int)}, piece, 2));
  int *pivots = piece[1];
  for (int64_t i = 0; i < batches; i++) {
    sc__load_matrix(x, i, type, piece[0], NULL);
    sc__getrf(type, n, n, piece[0], pivots);
    double det = 1, sign = 1, log_abs = 0;
    for (int64_t r = 0; r < n; r++) {
      double u = element(type, piece[0], r * n + r), flip = pivots[r] != r + 1 ? -1 : 1;
      det *= flip * u;
      sign *= flip * (u > 0 ? 1 : u < 0 ? -1 : u);
      log_abs += log(fabs(u));
    }
    if (c->n_out == 1) { put(type, c->out[0]->data, i, det); continue; }
    put(type, c->out[0]->data, i, sign);
    put(type, c->out[1]->data, i, log_abs);
  }
  sc__space_close(&space);
  return SC_OK;
}

/* linalg_cofactor(x) = d det / d x, which exists for singular matrices too: det x⁻ᵀ, or det(U Vᵀ) U diag(products of the other singular
** values) Vᵀ where a pivot is zero. */
static sc_status cofactor_infer(sc_call *c) {
  int64_t n = c->in[0]->ndim >= 2 ? sc__rows(c->in[0]) : 0;
  SC_TRY(sc__check_matrix(c, 0, true));
  sc_lapack_room room;
  if (!sc__lapack_room(SC_LAPACK_SVD, (sc_dtype)c->in[0]->dtype, n, n, true, false, &room)) return sc__too_large(c);
  sc__meta_like(&c->meta[0], c->in[0]);
  return SC_OK;
}

typedef struct cofactor_space { void *a, *lu, *work, *s, *u, *vt; int *pivots, *iwork; int64_t room; } cofactor_space;

static double lu_det(sc_dtype type, int64_t n, const void *lu, const int *pivots) {
  double det = 1;
  for (int64_t r = 0; r < n; r++) det *= element(type, lu, r * n + r) * (pivots[r] != r + 1 ? -1 : 1);
  return det;
}

static void singular_cofactor(sc_dtype type, int64_t n, cofactor_space *w, void *cof) {
  sc__gesdd(type, 'S', n, n, w->a, w->s, w->u, n, w->vt, n, w->work, w->room, w->iwork);
  memcpy(w->a, w->u, (size_t)(n * n) * sc_dtype_size(type));
  sc__getrf(type, n, n, w->a, w->pivots);
  double sign = lu_det(type, n, w->a, w->pivots);
  memcpy(w->a, w->vt, (size_t)(n * n) * sc_dtype_size(type));
  sc__getrf(type, n, n, w->a, w->pivots);
  sign = sign * lu_det(type, n, w->a, w->pivots) < 0 ? -1 : 1;
  for (int64_t r = 0; r < n; r++)
    for (int64_t q = 0; q < n; q++) {
      double sum = 0;
      for (int64_t i = 0; i < n; i++) {
        double others = sign;
        for (int64_t o = 0; o < n; o++) if (o != i) others *= element(type, w->s, o);
        sum += element(type, w->u, i * n + r) * others * element(type, w->vt, q * n + i);
      }
      put(type, cof, q * n + r, sum);
    }
}

static sc_status cofactor_run(sc_call *c) {
  sc_tensor *x = c->in[0];
  sc_dtype type = (sc_dtype)x->dtype;
  int64_t n = sc__rows(x), batches = sc__batches(x);
  size_t z = sc_dtype_size(type);
  sc_lapack_room svd, lu;
  sc__lapack_room(SC_LAPACK_SVD, type, n, n, true, false, &svd);
  sc__lapack_room(SC_LAPACK_LU, type, n, n, true, false, &lu);
  cofactor_space w = {.room = svd.work > lu.work ? svd.work : lu.work};
  void *p[9];
  sc_space space;
  SC_TRY(sc__space_open(c->ctx, &space, (int64_t[]){n * n, n * n, w.room, n, n * n, n * n, n, svd.iwork, n * n},
                        (size_t[]){z, z, z, z, z, z, sizeof(int), sizeof(int), z}, p, 9));
  w.a = p[0]; w.lu = p[1]; w.work = p[2]; w.s = p[3]; w.u = p[4]; w.vt = p[5]; w.pivots = p[6]; w.iwork = p[7];
  for (int64_t i = 0; i < batches; i++) {
    sc__load_matrix(x, i, type, w.a, NULL);
    memcpy(w.lu, w.a, (size_t)(n * n) * z);
    int info = sc__getrf(type, n, n, w.lu, w.pivots);
    if (info == 0) {
      double det = lu_det(type, n, w.lu, w.pivots);
      sc__getri(type, n, w.lu, w.pivots, w.work, w.room);
      for (int64_t r = 0; r < n; r++) for (int64_t q = 0; q < n; q++) put(type, p[8], q * n + r, det * element(type, w.lu, r * n + q));
    } else if (!sc__all_finite(type, n * n, w.a)) {
      for (int64_t e = 0; e < n * n; e++) put(type, p[8], e, NAN);
    } else {
      singular_cofactor(type, n, &w, p[8]);
    }
    sc__store_matrix(c->out[0], i, type, p[8], n > 0 ? n : 1);
  }
  sc__space_close(&space);
  return SC_OK;
}

static sc_tensor *per_matrix(sc_calc *k, sc_tensor *t) { return sc__calc_unsqueeze(k, sc__calc_unsqueeze(k, t, 0), 0); }

static sc_status det_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  return sc__calc_end(&k, sc__calc2(&k, "mul", per_matrix(&k, g->dy[0]), sc__calc1(&k, "linalg_cofactor", g->in[0])), &g->dx[0]);
}

static sc_tensor *inverse_t(sc_calc *k, sc_tensor *x) { return sc__calc_t(k, sc__calc1(k, "linalg.inv_ex", x)); }

/* C = det x⁻ᵀ: dx = <dC, C> x⁻ᵀ - x⁻ᵀ dCᵀ C */
static sc_status cofactor_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *it = inverse_t(&k, g->in[0]), *prod = sc__calc2(&k, "mul", g->dy[0], g->out[0]);
  sc_tensor *inner = sc__calc(&k, "sum", &prod, 1, (sc_attr[]){sc__ints((int64_t[]){-2, -1}, 2), sc__bool(true)}, 2);
  sc_tensor *second = sc__calc2(&k, "matmul", it, sc__calc2(&k, "matmul", sc__calc_t(&k, g->dy[0]), g->out[0]));
  return sc__calc_end(&k, sc__calc2(&k, "sub", sc__calc2(&k, "mul", inner, it), second), &g->dx[0]);
}

static sc_status slogdet_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  return sc__calc_end(&k, sc__calc2(&k, "mul", per_matrix(&k, g->dy[1]), inverse_t(&k, g->in[0])), &g->dx[0]);
}

static sc_status logdet_compose(sc_call *c) {
  sc_calc k = {.ctx = c->ctx};
  sc_tensor *r[2];
  sc__calc_all(&k, "linalg.slogdet", c->in, 1, NULL, 0, r, 2);
  sc_tensor *zero = sc__calc_number(&k, 0);
  r[0] = sc__calc(&k, "where", (sc_tensor *[]){sc__calc2(&k, "gt", zero, r[0]), sc__calc_number(&k, NAN), r[1]}, 3, NULL, 0);
  sc_status s = sc__calc_end(&k, r[0], &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

/* ---- inverses ---- */

static sc_status inv_infer(sc_call *c) {
  SC_TRY(cholesky_infer(c));
  if (c->op->n_named_out < 2) return SC_OK;
  info_meta(c, 1, c->in[0]);
  c->n_out = 2;
  return SC_OK;
}

static sc_status inv_run(sc_call *c) {
  sc_tensor *x = c->in[0];
  sc_dtype type = (sc_dtype)x->dtype;
  int64_t n = sc__rows(x), batches = sc__batches(x);
  size_t z = sc_dtype_size(type);
  bool strict = c->n_out == 1 || c->attr[0].i;
  sc_lapack_room room;
  sc__lapack_room(SC_LAPACK_LU, type, n, n, false, false, &room);
  sc_space space;
  void *p[3];
  SC_TRY(sc__space_open(c->ctx, &space, (int64_t[]){n * n, room.work, n}, (size_t[]){z, z, sizeof(int)}, p, 3));
  sc_status s = SC_OK;
  for (int64_t i = 0; i < batches && s == SC_OK; i++) {
    sc__load_matrix(x, i, type, p[0], NULL);
    int info = sc__getrf(type, n, n, p[0], p[2]);
    if (info == 0) info = sc__getri(type, n, p[0], p[2], p[1], room.work);
    else for (int64_t e = 0; e < n * n && !strict; e++) put(type, p[0], e, INFINITY);
    if (c->n_out > 1) put_info(c->out[1], i, info);
    if (info && strict)
      s = sc__bad_call(c, "matrix %lld of the batch is singular: its factor U has a zero at place %d of the diagonal", (long long)i + c->ctx->index_base, info);
    sc__store_matrix(c->out[0], i, type, p[0], n > 0 ? n : 1);
  }
  sc__space_close(&space);
  return s;
}

/* ---- solve: A x = b, b a matrix; batch dims broadcast ---- */

static sc_status two_shapes(sc_call *c) {
  const sc_tensor *a = c->in[0], *b = c->in[1];
  sc_meta *m = &c->meta[0];
  char s[200], t[200];
  SC_TRY(sc__check_matrix(c, 0, true));
  SC_TRY(sc__check_matrix(c, 1, false));
  if (a->dtype != b->dtype)
    return sc__bad_input(c, 1, "expected %s as for the first, got %s", sc_dtype_name((sc_dtype)a->dtype), sc_dtype_name((sc_dtype)b->dtype));
  int nb = 0;
  if (sc__rows(a) != sc__rows(b) || (a->ndim + b->ndim > 4 && !sc__broadcast(a->ndim - 2, a->dim, b->ndim - 2, b->dim, &nb, m->dim)))
    return sc__bad_input(c, 1, "shape %s does not fit matrices of shape %s", sc__shape_text(b->ndim, b->dim, s, sizeof s),
                         sc__shape_text(a->ndim, a->dim, t, sizeof t));
  sc_lapack_room room;
  if (!sc__lapack_room(SC_LAPACK_LU, (sc_dtype)a->dtype, sc__rows(a), sc__rows(a), false, false, &room) ||
      !sc__lapack_room(SC_LAPACK_LU, (sc_dtype)a->dtype, sc__rows(b), sc__cols(b), false, false, &room))
    return sc__too_large(c);
  m->dtype = (sc_dtype)a->dtype;
  m->dim[nb] = sc__rows(b);
  m->dim[nb + 1] = sc__cols(b);
  m->ndim = nb + 2;
  return SC_OK;
}

static sc_status solve_infer(sc_call *c) {
  SC_TRY(two_shapes(c));
  info_meta(c, 1, c->in[0]);
  c->n_out = 2;
  return SC_OK;
}

static sc_meta batch_shape(const sc_tensor *out) {
  sc_meta m;
  sc__meta_set(&m, SC_FLOAT32, out->ndim - 2, out->dim);
  return m;
}

/* Where matrix i of a batch `shape` lies in t's own count of matrices. */
static int64_t own_index(const sc_tensor *t, const sc_meta *shape, int64_t i) {
  int64_t at = 0, step = 1;
  for (int k = shape->ndim - 1, d = t->ndim - 3; d >= 0; k--, d--) {
    if (t->dim[d] != 1) at += i % shape->dim[k] * step;
    i /= shape->dim[k];
    step *= t->dim[d];
  }
  return at;
}

static void swap_rows(sc_dtype type, int64_t n, int64_t cols, void *b, const int *pivots) {
  for (int64_t r = 0; r < n; r++) {
    int64_t p = pivots[r] - 1;
    for (int64_t q = 0; q < cols && p != r; q++) {
      double v = element(type, b, q * n + r);
      put(type, b, q * n + r, element(type, b, q * n + p));
      put(type, b, q * n + p, v);
    }
  }
}

static sc_status solve_run(sc_call *c) {
  sc_tensor *a = c->in[0], *b = c->in[1], *out = c->out[0];
  sc_dtype type = (sc_dtype)a->dtype;
  int64_t n = sc__rows(a), cols = sc__cols(b), na = sc__batches(a), nout = sc__batches(out), all;
  int z = (int)sc_dtype_size(type);
  bool strict = c->attr[0].i;
  sc_meta shape = batch_shape(out);
  sc_space space;
  void *p[3];
  if (!sc__mul(na, n * n, &all)) return sc__too_large(c);
  SC_TRY(sc__space_open(c->ctx, &space, (int64_t[]){all, n * cols, na * n}, (size_t[]){(size_t)z, (size_t)z, sizeof(int)}, p, 3));
  sc_status s = SC_OK;
  for (int64_t i = 0; i < na && s == SC_OK; i++) {
    char *lu = (char *)p[0] + i * n * n * z;
    sc__load_matrix(a, i, type, lu, NULL);
    int info = sc__getrf(type, n, n, lu, (int *)p[2] + i * n);
    put_info(c->out[1], i, info);
    if (info && strict)
      s = sc__bad_call(c, "matrix %lld of the batch is singular: its factor U has a zero at place %d of the diagonal", (long long)i + c->ctx->index_base, info);
  }
  for (int64_t i = 0; i < nout && s == SC_OK; i++) {
    int64_t own = own_index(a, &shape, i);
    const char *lu = (const char *)p[0] + own * n * n * z;
    sc__load_matrix(b, i, type, p[1], &shape);
    swap_rows(type, n, cols, p[1], (const int *)p[2] + own * n);
    sc__trsm(type, true, false, false, true, n, cols, lu, n, p[1], n);
    sc__trsm(type, true, true, false, false, n, cols, lu, n, p[1], n);
    sc__store_matrix(out, i, type, p[1], n > 0 ? n : 1);
  }
  sc__space_close(&space);
  return s;
}

/* x = A⁻¹ b: db = A⁻ᵀ dx, dA = -db xᵀ */
static sc_status solve_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *db = sc__calc2(&k, "linalg_solve", sc__calc_t(&k, g->in[0]), g->dy[0]), *da = NULL;
  if (g->wanted[0]) da = sc__calc1(&k, "neg", sc__calc2(&k, "matmul", db, sc__calc_t(&k, g->out[0])));
  if (k.status == SC_OK && da) g->dx[0] = sc_tensor_retain(da);
  return sc__calc_end(&k, g->wanted[1] ? db : NULL, &g->dx[1]);
}

/* linalg.solve(A, B, left), linalg.solve_ex: B may be a vector per matrix. */
static bool is_vector(const sc_tensor *a, const sc_tensor *b) {
  return b->ndim == 1 || (a->ndim >= 2 && b->ndim == a->ndim - 1 && memcmp(a->dim, b->dim, (size_t)b->ndim * 8) == 0);
}

static sc_status solve_with(sc_call *c, bool left, bool strict, int outputs) {
  sc_calc k = {.ctx = c->ctx};
  sc_tensor *a = c->in[0], *b = c->in[1], *r[2];
  SC_TRY(sc__check_matrix(c, 0, true));
  if (b->ndim == 0) return sc__bad_input(c, 1, "expected at least 1 dimension");
  bool vector = is_vector(a, b);
  if (!left && vector) return sc__bad_input(c, 1, "with left = false, expected matrices, got a vector");
  sc_tensor *rhs = vector ? sc__calc_unsqueeze(&k, b, 0) : b;
  if (!left) { a = sc__calc_t(&k, a); rhs = sc__calc_t(&k, rhs); }
  if (k.status == SC_OK && (b->dtype != a->dtype || sc__rows(rhs) != sc__rows(a))) {
    char s[200], t[200];
    sc__calc_end(&k, NULL, NULL);
    return sc__bad_input(c, 1, "%s of shape %s does not fit %s matrices of shape %s", sc_dtype_name((sc_dtype)b->dtype),
                         sc__shape_text(b->ndim, b->dim, s, sizeof s), sc_dtype_name((sc_dtype)c->in[0]->dtype),
                         sc__shape_text(c->in[0]->ndim, c->in[0]->dim, t, sizeof t));
  }
  sc__calc_all(&k, "linalg_solve", (sc_tensor *[]){a, rhs}, 2, (sc_attr[]){sc__bool(strict)}, 1, r, 2);
  sc_tensor *x = r[0];
  if (!left) x = sc__calc_t(&k, x);
  if (vector && x) x = sc__calc_reshape(&k, x, x->ndim - 1, x->dim);
  if (k.status == SC_OK && outputs == 2) c->out[1] = sc_tensor_retain(r[1]);
  sc_status s = sc__calc_end(&k, x, &c->out[0]);
  c->n_out = s == SC_OK ? outputs : 0;
  return s;
}

static sc_status solve_compose(sc_call *c) { return solve_with(c, c->attr[0].i, true, 1); }
static sc_status solve_ex_compose(sc_call *c) { return solve_with(c, c->attr[0].i, c->attr[1].i, 2); }

/* ---- solve_triangular ---- */

static sc_status trsm_infer(sc_call *c) { return two_shapes(c); }

static sc_status trsm_run(sc_call *c) {
  sc_tensor *a = c->in[0], *b = c->in[1], *out = c->out[0];
  sc_dtype type = (sc_dtype)a->dtype;
  int64_t n = sc__rows(a), cols = sc__cols(b), nout = sc__batches(out);
  size_t z = sc_dtype_size(type);
  sc_meta shape = batch_shape(out);
  sc_space space;
  void *p[2];
  SC_TRY(sc__space_open(c->ctx, &space, (int64_t[]){n * n, n * cols}, (size_t[]){z, z}, p, 2));
  for (int64_t i = 0; i < nout; i++) {
    sc__load_matrix(a, i, type, p[0], &shape);
    sc__load_matrix(b, i, type, p[1], &shape);
    sc__trsm(type, true, c->attr[0].i, false, c->attr[1].i, n, cols, p[0], n, p[1], n);
    sc__store_matrix(out, i, type, p[1], n > 0 ? n : 1);
  }
  sc__space_close(&space);
  return SC_OK;
}

static sc_status trsm_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  bool upper = g->attr[0].i, unit = g->attr[1].i;
  sc_tensor *db = sc__calc(&k, "linalg_trsm", (sc_tensor *[]){sc__calc_t(&k, g->in[0]), g->dy[0]}, 2, (sc_attr[]){sc__bool(!upper), sc__bool(unit)}, 2);
  sc_tensor *da = NULL;
  if (g->wanted[0]) {
    da = sc__calc1(&k, "neg", sc__calc2(&k, "matmul", db, sc__calc_t(&k, g->out[0])));
    da = sc__calc_tri(&k, da, upper, upper ? unit : -unit);
  }
  if (k.status == SC_OK && da) g->dx[0] = sc_tensor_retain(da);
  return sc__calc_end(&k, g->wanted[1] ? db : NULL, &g->dx[1]);
}

static sc_status solve_triangular_compose(sc_call *c) {
  sc_calc k = {.ctx = c->ctx};
  bool upper = c->attr[0].i, left = c->attr[1].i;
  sc_tensor *a = c->in[0], *b = c->in[1];
  SC_TRY(sc__check_matrix(c, 0, true));
  SC_TRY(sc__check_matrix(c, 1, false));
  if (!left) { a = sc__calc_t(&k, a); b = sc__calc_t(&k, b); upper = !upper; }
  sc_tensor *x = sc__calc(&k, "linalg_trsm", (sc_tensor *[]){a, b}, 2, (sc_attr[]){sc__bool(upper), c->attr[2]}, 2);
  sc_status s = sc__calc_end(&k, left ? x : sc__calc_t(&k, x), &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

/* ---- cholesky_solve(x, L, upper): A⁻¹ x with A = L Lᵀ. As in PyTorch the gradient for L is that of the product, in both triangles ---- */

static sc_status cholesky_solve_infer(sc_call *c) {
  SC_TRY(sc__check_matrix(c, 0, false));
  sc_tensor *swapped[2] = {c->in[1], c->in[0]}, **in = c->in;
  c->in = swapped;
  sc_status s = two_shapes(c);
  c->in = in;
  return s;
}

static sc_status cholesky_solve_run(sc_call *c) {
  sc_tensor *b = c->in[0], *l = c->in[1], *out = c->out[0];
  sc_dtype type = (sc_dtype)l->dtype;
  int64_t n = sc__rows(l), cols = sc__cols(b), nout = sc__batches(out);
  size_t z = sc_dtype_size(type);
  bool upper = c->attr[0].i;
  sc_meta shape = batch_shape(out);
  sc_space space;
  void *p[2];
  SC_TRY(sc__space_open(c->ctx, &space, (int64_t[]){n * n, n * cols}, (size_t[]){z, z}, p, 2));
  for (int64_t i = 0; i < nout; i++) {
    sc__load_matrix(l, i, type, p[0], &shape);
    sc__load_matrix(b, i, type, p[1], &shape);
    sc__trsm(type, true, upper, upper, false, n, cols, p[0], n, p[1], n);
    sc__trsm(type, true, upper, !upper, false, n, cols, p[0], n, p[1], n);
    sc__store_matrix(out, i, type, p[1], n > 0 ? n : 1);
  }
  sc__space_close(&space);
  return SC_OK;
}

static sc_status cholesky_solve_backward(sc_grad_call *g) {
  sc_calc k = {.ctx = g->ctx};
  sc_tensor *db = sc__calc(&k, "cholesky_solve", (sc_tensor *[]){g->dy[0], g->in[1]}, 2, g->attr, 1), *dl = NULL;
  if (g->wanted[1]) {
    sc_tensor *m = sc__calc2(&k, "matmul", db, sc__calc_t(&k, g->out[0]));
    m = sc__calc1(&k, "neg", sc__calc2(&k, "add", m, sc__calc_t(&k, m)));
    dl = g->attr[0].i ? sc__calc2(&k, "matmul", g->in[1], m) : sc__calc2(&k, "matmul", m, g->in[1]);
  }
  if (k.status == SC_OK && dl) g->dx[1] = sc_tensor_retain(dl);
  return sc__calc_end(&k, g->wanted[0] ? db : NULL, &g->dx[0]);
}

static sc_status cholesky_inverse_compose(sc_call *c) {
  sc_tensor *l = c->in[0];
  SC_TRY(sc__check_matrix(c, 0, true));
  sc_calc k = {.ctx = c->ctx};
  sc_tensor *one = sc__calc(&k, "eye", NULL, 0, (sc_attr[]){sc__int(sc__rows(l)), sc__none(), sc__dtype((sc_dtype)l->dtype)}, 3);
  sc_status s = sc__calc_end(&k, sc__calc(&k, "cholesky_solve", (sc_tensor *[]){one, l}, 2, c->attr, 1), &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

#define BATCH "\nShapes: [..., n, n]; leading dims are a batch."

const sc_op sc__ops_linalg[] = {
  {"linalg.cholesky(x, upper: bool = false)",
   "The lower triangular L with L Lᵀ = x (upper: the upper U with Uᵀ U = x), of symmetric positive definite matrices; one triangle of x is read." BATCH
   "\nErrors: a matrix that is not positive definite.\nExample: sc.linalg.cholesky(sc.eye(3))", SC_OP_FUNCTION | SC_OP_SAVE_NO_IN, .infer = cholesky_infer,
   .run = cholesky_run, .backward = cholesky_backward},
  {"cholesky(x, upper: bool = false)", "linalg.cholesky under its older name.", SC_OP_SAVE_NO_IN, .infer = cholesky_infer, .run = cholesky_run,
   .backward = cholesky_backward},
  {"linalg.cholesky_ex(x, upper: bool = false, check_errors: bool = false) -> L, info",
   "linalg.cholesky that does not raise: info is 0, or the order of the leading minor that is not positive." BATCH, SC_OP_FUNCTION | SC_OP_SAVE_NO_IN,
   .infer = cholesky_ex_infer, .run = cholesky_run, .backward = cholesky_backward},
  {"cholesky_solve(x, L, upper: bool = false)", "Solution y of A y = x where A = L Lᵀ (upper: Lᵀ L); one triangle of L is read.\n"
   "Shapes: x [..., n, k], L [..., n, n]; batch dims broadcast.", 0, .infer = cholesky_solve_infer, .run = cholesky_solve_run,
   .backward = cholesky_solve_backward},
  {"cholesky_inverse(x, upper: bool = false)", "Inverse of A = x xᵀ (upper: xᵀ x) for triangular x.", 0, .compose = cholesky_inverse_compose},
  {"linalg.lu_factor_ex(x, pivot: bool = true, check_errors: bool = false) -> LU, pivots, info",
   "L and U of x = P L U in one matrix, and the row exchanges (from 1, int32).\nShapes: x [..., m, n].", SC_OP_FUNCTION | SC_OP_SAVE_NO_IN, .infer = lu_infer,
   .run = lu_run, .backward = lu_backward},
  {"linalg_permutation(pivots, lu)", "The permutation matrix of lu_factor's pivots.", SC_OP_INTERNAL, .infer = permutation_infer, .run = permutation_run,
   .no_grad = "pivots are integers"},
  {"linalg.det(x)", "Determinant." BATCH "\nExample: sc.linalg.det(sc.eye(3))", SC_OP_FUNCTION | SC_OP_SAVE_NO_OUT, .infer = det_infer, .run = det_run,
   .backward = det_backward},
  {"det(x)", "Determinant." BATCH, SC_OP_SAVE_NO_OUT, .infer = det_infer, .run = det_run, .backward = det_backward},
  {"linalg_cofactor(x)", "The gradient of det, for singular matrices too.", SC_OP_INTERNAL, .infer = cofactor_infer, .run = cofactor_run,
   .backward = cofactor_backward},
  {"linalg.slogdet(x) -> sign, logabsdet", "Sign and logarithm of the absolute value of the determinant (0 and -inf for a singular matrix)." BATCH,
   SC_OP_FUNCTION | SC_OP_SAVE_NO_OUT, .infer = slogdet_infer, .run = det_run, .backward = slogdet_backward},
  {"slogdet(x) -> sign, logabsdet", "linalg.slogdet under its older name.", SC_OP_SAVE_NO_OUT, .infer = slogdet_infer, .run = det_run,
   .backward = slogdet_backward},
  {"logdet(x)", "Logarithm of the determinant: NaN where that is negative, -inf where it is 0." BATCH, 0, .compose = logdet_compose},
  {"linalg.inv(x)", "Inverse." BATCH "\nErrors: a singular matrix.\nExample: sc.linalg.inv(sc.eye(3))", SC_OP_FUNCTION, .infer = inv_infer, .run = inv_run,
   .grad = {"-matmul(transpose(y, -2, -1), matmul(dy, transpose(y, -2, -1)))"}},
  {"inverse(x)", "linalg.inv under its older name.", 0, .infer = inv_infer, .run = inv_run,
   .grad = {"-matmul(transpose(y, -2, -1), matmul(dy, transpose(y, -2, -1)))"}},
  {"linalg.inv_ex(x, check_errors: bool = false) -> inverse, info", "linalg.inv that does not raise: info is 0, or the place of the zero pivot." BATCH,
   SC_OP_FUNCTION, .infer = inv_infer, .run = inv_run, .grad = {"-matmul(transpose(y, -2, -1), matmul(dy, transpose(y, -2, -1)))"}},
  {"linalg_solve(a, b, check_errors: bool = false) -> x, info", "a⁻¹ b for matrices b.", SC_OP_INTERNAL, .infer = solve_infer, .run = solve_run,
   .backward = solve_backward},
  {"linalg.solve(A, B, left: bool = true)",
   "x with A x = B (left = false: x A = B).\nShapes: A [..., n, n], B [..., n, k], or [..., n] for a vector per matrix; batch dims broadcast.\n"
   "Errors: a singular matrix.\nExample: sc.linalg.solve(sc.eye(2), sc.ones(2))", SC_OP_FUNCTION, .compose = solve_compose},
  {"linalg.solve_ex(A, B, left: bool = true, check_errors: bool = false) -> result, info",
   "linalg.solve that does not raise: info is 0, or the place of the zero pivot.", SC_OP_FUNCTION, .compose = solve_ex_compose},
  {"linalg_trsm(a, b, upper: bool, unit: bool)", "a⁻¹ b for triangular a.", SC_OP_INTERNAL, .infer = trsm_infer, .run = trsm_run,
   .backward = trsm_backward},
  {"linalg.solve_triangular(A, B, upper: bool, left: bool = true, unitriangular: bool = false)",
   "x with A x = B (left = false: x A = B) for triangular A; the other triangle (unitriangular: the diagonal too) is not read.\n"
   "Shapes: A [..., n, n], B [..., n, k]; batch dims broadcast.\nExample: sc.linalg.solve_triangular(sc.eye(2), sc.ones(2, 1), true)", SC_OP_FUNCTION,
   .compose = solve_triangular_compose},
};
#undef BATCH
const int sc__ops_linalg_count = SC_COUNT(sc__ops_linalg);
