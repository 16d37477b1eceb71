/* Matrix products: matmul and its relatives, linear, and the ones that add (addmm …).
**
** All of them come down to one thing: products of matrices [m, k] x [k, n], batch dims broadcast, beta * (what is there) added. A
** transposed operand is recognised by its strides and passed on as a flag, so `x:matmul(w:t())` copies nothing; leading dims of the first
** operand are folded into its rows when the second is a single matrix, so that a batch is one product. Halves compute in float32,
** integers in int64 and wrap. */
#include "calc.h"

#include <string.h>

/* ---- operands ---- */

/* A batch of matrices as BLAS wants them; t is held. */
typedef struct matrix {
  sc_tensor *t;
  bool transposed;                               /* stored [cols, rows] */
  int64_t rows, cols, ld;
  int nb;                                        /* batch dims: t's first */
} matrix;

typedef enum role { MATRIX, ROW, COLUMN } role;

static bool fits(matrix *m, int64_t rows, int64_t cols, int64_t row_step, int64_t col_step) {
  m->rows = rows;
  m->cols = cols;
  m->transposed = false;
  m->ld = cols > 1 ? cols : 1;
  if (rows == 0 || cols == 0) return true;
  if ((col_step == 1 || cols == 1) && (row_step >= cols || rows == 1)) { if (rows > 1) m->ld = row_step; return true; }
  if ((row_step == 1 || rows == 1) && (col_step >= rows || cols == 1)) { m->transposed = true; m->ld = cols == 1 ? rows : col_step; return true; }
  return false;
}

static bool geometry(matrix *m, sc_tensor *t, role as) {
  int n = t->ndim;
  const int64_t *d = t->dim, *s = sc__stride(t);
  m->t = t;
  m->nb = as == MATRIX ? n - 2 : 0;
  if (as == ROW) return fits(m, 1, d[n - 1], d[n - 1], s[n - 1]);
  if (as == COLUMN) return fits(m, d[n - 1], 1, s[n - 1], 1);
  return fits(m, d[n - 2], d[n - 1], s[n - 2], s[n - 1]);
}

static sc_status matrix_of(matrix *m, sc_tensor *t, role as, sc_dtype type) {
  if ((sc_dtype)t->dtype == type && geometry(m, t, as)) { sc_tensor_retain(t); return SC_OK; }
  sc_tensor *packed;
  m->t = NULL;                                  /* what the caller lets go of when this fails */
  SC_TRY(sc_tensor_new(t->ctx, type, t->ndim, t->dim, &packed));
  geometry(m, packed, as);
  return sc__tensor_copy(packed, t);
}

/* The first n dims of t as one, walked with a single step: false when its strides do not allow that. */
static bool one_dim(const sc_tensor *t, int n, int64_t *size, int64_t *step) {
  bool first = true;
  *size = 1;
  *step = 1;
  for (int i = n - 1; i >= 0; i--) {
    int64_t d = t->dim[i], s = sc__stride(t)[i];
    if (d == 1) continue;
    if (first) *step = s;
    else if (s != *step * *size) return false;
    first = false;
    *size *= d;
  }
  return true;
}

/* t as a single matrix of `cols` (its last dim, or 1) with all other dims as rows. */
static sc_status folded(matrix *m, sc_tensor *t, bool keep_last, sc_dtype type) {
  sc_tensor *src = sc_tensor_retain(t);
  for (int again = 0; again < 2; again++) {
    int lead = keep_last ? src->ndim - 1 : src->ndim;
    int64_t cols = keep_last ? src->dim[lead] : 1, step = keep_last ? sc__stride(src)[lead] : 1, rows, row_step;
    m->t = src;
    m->nb = 0;
    if ((sc_dtype)src->dtype == type && one_dim(src, lead, &rows, &row_step) && fits(m, rows, cols, row_step, step)) return SC_OK;
    sc_tensor *packed = NULL;
    sc_status s = sc_tensor_new(t->ctx, type, t->ndim, t->dim, &packed);
    if (s == SC_OK) s = sc__tensor_copy(packed, t);
    sc_tensor_release(src);
    src = m->t = packed;
    SC_TRY(s);
  }
  return SC_OK;
}

/* ---- running ---- */

typedef struct batch_job {
  sc_context *ctx;
  sc_gemm g;
  const matrix *a, *b;
  int nb;
  const int64_t *dim;                            /* [nb] of the result's batch */
  size_t size;
} batch_job;

static int64_t batch_offset(const batch_job *j, const matrix *m, int64_t k) {
  int64_t off = 0;
  for (int i = j->nb - 1, d = m->nb - 1; d >= 0; i--, d--) {
    int64_t x = k % j->dim[i];
    k /= j->dim[i];
    if (m->t->dim[d] != 1) off += x * sc__stride(m->t)[d];
  }
  return off * (int64_t)j->size;
}

static void batch_piece(void *arg, int64_t begin, int64_t end) {
  const batch_job *j = arg;
  for (int64_t i = begin; i < end; i++) {
    sc_gemm g = j->g;
    g.a = (const char *)g.a + batch_offset(j, j->a, i);
    g.b = (const char *)g.b + batch_offset(j, j->b, i);
    g.c = (char *)g.c + i * g.m * g.n * (int64_t)j->size;
    sc__gemm_run(j->ctx, &g);
  }
}

static sc_gemm gemm_of(sc_dtype type, const matrix *a, const matrix *b, double alpha, double beta, void *c) {
  return (sc_gemm){type, a->transposed, b->transposed, a->rows, b->cols, a->cols, alpha, beta, a->t->data, a->ld, b->t->data, b->ld, c,
                   b->cols > 1 ? b->cols : 1, NULL};
}

/* c, packed [batch, m, n], = alpha * a b + beta * c. */
static sc_status multiply(sc_context *ctx, sc_dtype type, matrix *a, matrix *b, double alpha, double beta, void *c, int nb, const int64_t *dim) {
  int64_t batches = 1, rows, step;
  for (int i = 0; i < nb; i++) batches *= dim[i];
  if (batches == 0) return SC_OK;
  if (nb && a->nb && !b->nb && !a->transposed && one_dim(a->t, a->nb + 1, &rows, &step) && (rows == 1 || step >= a->cols)) {
    a->rows = rows;                              /* one product for the whole batch */
    a->ld = rows == 1 ? a->ld : step;
    batches = 1;
    a->nb = 0;
  }
  batch_job j = {ctx, gemm_of(type, a, b, alpha, beta, c), a, b, nb, dim, sc_dtype_size(type)};
  SC_TRY(sc__gemm_ready(ctx, &j.g));
  if (batches == 1) { sc__gemm_run(ctx, &j.g); return SC_OK; }
  double cost = sc__gemm_cost(&j.g);
  if (batches < ctx->threads && cost > 200e3) {  /* few large products: each is split by itself */
    for (int64_t i = 0; i < batches; i++) batch_piece(&j, i, i + 1);
    return SC_OK;
  }
  if (ctx->threads > 1 && cost * (double)batches > 100e3) SC_TRY(sc__blas_ready(ctx, ctx->threads));
  if (!sc__blas_parallel(ctx) && !ctx->slice) { batch_piece(&j, 0, batches); return SC_OK; }
  if (!sc__blas_parallel(ctx)) {
    for (int64_t i = 0; i < batches; i++) { sc__slice_look(ctx, 0); batch_piece(&j, i, i + 1); }
    return SC_OK;
  }
  sc__parallel(ctx, batches, 1, cost, batch_piece, &j);
  return SC_OK;
}

/* Sum over the batch of a b, into c [m, n]. Integers: beta is 0. */
static sc_status multiply_sum(sc_context *ctx, sc_dtype type, const matrix *a, const matrix *b, double alpha, double beta, void *c) {
  int64_t batches = a->t->dim[0], z = (int64_t)sc_dtype_size(type);
  sc_gemm g = gemm_of(type, a, b, alpha, beta, c);
  if (batches == 0) g.k = 0;
  SC_TRY(sc__gemm_ready(ctx, &g));
  if (batches == 0) { sc__gemm_run(ctx, &g); return SC_OK; }
  size_t bytes = type == SC_INT64 ? (size_t)(g.m * g.n) * 8 : 0;
  uint64_t *sum = c, *one = bytes && batches > 1 ? sc__alloc(ctx, bytes) : NULL;
  if (bytes && batches > 1 && !one) return sc__no_memory(ctx, bytes);
  for (int64_t i = 0; i < batches; i++) {
    g.a = a->t->data + i * sc__stride(a->t)[0] * z;
    g.b = b->t->data + i * sc__stride(b->t)[0] * z;
    sc__slice_look(ctx, 0);
    sc__gemm_run(ctx, &g);
    g.beta = 1;
    if (!one) continue;
    if (i > 0) for (int64_t e = 0; e < g.m * g.n; e++) sum[e] += one[e];
    g.c = one;
  }
  if (one) sc__release(ctx, one, bytes);
  return SC_OK;
}

static sc_dtype compute_type(sc_dtype d) { return d == SC_FLOAT64 ? d : sc__is_float(d) ? SC_FLOAT32 : SC_INT64; }

/* What a product is added to: nothing yet. */
typedef struct target { sc_tensor *out, *wide; void *data; } target;

static sc_status target_open(sc_call *c, sc_dtype type, target *t) {
  *t = (target){.out = c->out[0]};
  if ((sc_dtype)t->out->dtype != type) SC_TRY(sc_tensor_new(c->ctx, type, t->out->ndim, t->out->dim, &t->wide));
  t->data = t->wide ? t->wide->data : t->out->data;
  return SC_OK;
}

static sc_status target_close(target *t, sc_status s) {
  if (s == SC_OK && t->wide) s = sc__tensor_copy(t->out, t->wide);
  sc_tensor_release(t->wide);
  return s;
}

enum { FEW_ROWS = 4 };                           /* up to which a matrix of halves is read as it is, not widened first */

static sc_status product_run(sc_call *c) {
  sc_tensor *x = c->in[0], *y = c->in[1], *out = c->out[0];
  sc_dtype type = compute_type((sc_dtype)out->dtype);
  matrix a = {0}, b = {0};
  target t;
  SC_TRY(target_open(c, type, &t));
  sc_status s = matrix_of(&a, x, x->ndim == 1 ? ROW : MATRIX, type);
  if (s == SC_OK && (y->dtype == SC_FLOAT16 || y->dtype == SC_BFLOAT16) && y->ndim == 2 && a.nb == 0 && a.rows <= FEW_ROWS && !a.transposed &&
      y->numel > 0 && sc__stride(y)[0] == 1 && out->numel > 0) {       /* x wᵀ: the rows of w */
    sc__half_rows(c->ctx, (sc_dtype)y->dtype, a.rows, y->dim[1], a.cols, (const uint16_t *)y->data, sc__stride(y)[1], (const float *)a.t->data, a.ld,
                  false, t.data, y->dim[1]);
    sc_tensor_release(a.t);
    return target_close(&t, SC_OK);
  }
  if (s == SC_OK) s = matrix_of(&b, y, y->ndim == 1 ? COLUMN : MATRIX, type);
  if (s == SC_OK) s = multiply(c->ctx, type, &a, &b, 1, 0, t.data, a.nb > b.nb ? a.nb : b.nb, out->dim);
  sc_tensor_release(a.t);
  sc_tensor_release(b.t);
  return target_close(&t, s);
}

/* ---- shapes ---- */

static sc_status same_dtype(sc_call *c, int first) {
  sc_dtype d = (sc_dtype)c->in[first]->dtype;
  if (d == SC_BOOL) return sc__bad_input(c, first, "not defined for bool");
  for (int i = 0; i < c->n_in; i++)
    if (c->in[i] && (sc_dtype)c->in[i]->dtype != d)
      return sc__bad_input(c, i, "expected %s as for the other, got %s", sc_dtype_name(d), sc_dtype_name((sc_dtype)c->in[i]->dtype));
  return SC_OK;
}

static sc_status cannot(sc_call *c, int slot, const sc_tensor *a, const sc_tensor *b) {
  char s[200], t[200];
  return sc__bad_input(c, slot, "shapes %s and %s cannot be multiplied", sc__shape_text(a->ndim, a->dim, s, sizeof s),
                       sc__shape_text(b->ndim, b->dim, t, sizeof t));
}

/* The product of inputs `at` and `at + 1`, vectors allowed, into meta[0]. */
static sc_status product_shape(sc_call *c, int at) {
  const sc_tensor *a = c->in[at], *b = c->in[at + 1];
  sc_meta *m = &c->meta[0];
  if (a->ndim == 0 || b->ndim == 0) return sc__bad_input(c, a->ndim == 0 ? at : at + 1, "expected at least 1 dimension, got a 0-dimensional tensor");
  int na = a->ndim > 1 ? a->ndim - 2 : 0, nb = b->ndim > 1 ? b->ndim - 2 : 0, n = 0;
  if (a->dim[a->ndim - 1] != b->dim[b->ndim > 1 ? b->ndim - 2 : 0]) return cannot(c, at + 1, a, b);
  if (!na && !nb) m->ndim = 0;
  else if (!sc__broadcast(na, a->dim, nb, b->dim, &m->ndim, m->dim)) return cannot(c, at + 1, a, b);
  n = m->ndim;
  if (a->ndim > 1) m->dim[n++] = a->dim[a->ndim - 2];
  if (b->ndim > 1) m->dim[n++] = b->dim[b->ndim - 1];
  m->ndim = n;
  m->dtype = (sc_dtype)a->dtype;
  return SC_OK;
}

static sc_status ranks(sc_call *c, int at, int da, int db) {
  int want[2] = {da, db};
  for (int i = 0; i < 2; i++)
    if (c->in[at + i]->ndim != want[i]) {
      char s[200];
      return sc__bad_input(c, at + i, "expected %d dimension%s, got shape %s", want[i], want[i] == 1 ? "" : "s",
                           sc__shape_text(c->in[at + i]->ndim, c->in[at + i]->dim, s, sizeof s));
    }
  return SC_OK;
}

static sc_status matmul_infer(sc_call *c) {
  SC_TRY(same_dtype(c, 0));
  return product_shape(c, 0);
}

static sc_status ranked(sc_call *c, int da, int db) {
  SC_TRY(ranks(c, 0, da, db));
  if (da == 3 && c->in[0]->dim[0] != c->in[1]->dim[0]) return cannot(c, 1, c->in[0], c->in[1]);
  return matmul_infer(c);
}
static sc_status mm_infer(sc_call *c) { return ranked(c, 2, 2); }
static sc_status bmm_infer(sc_call *c) { return ranked(c, 3, 3); }
static sc_status mv_infer(sc_call *c) { return ranked(c, 2, 1); }
static sc_status dot_infer(sc_call *c) { return ranked(c, 1, 1); }

/* ---- matmul's gradients ---- */

static void batch_and(sc_tensor *t, int drop, int64_t a, int64_t b, int64_t *dim, int *n) {
  *n = t->ndim - drop;
  for (int i = 0; i < *n; i++) dim[i] = t->dim[i];
  dim[(*n)++] = a;
  if (b >= 0) dim[(*n)++] = b;
}

/* What the gradients below rely on. other: the operand that is given; n: rank of the one whose gradient it is. */
static sc_status dx_ranks(sc_call *c, const sc_tensor *dy, const sc_tensor *other, int n) {
  bool vector = other->ndim == 1 || n == 1;
  if (other->ndim >= 1 && n >= 1 && dy->ndim <= SC_MAX_DIMS - 2 && (dy->ndim >= 2 || (vector && dy->ndim >= 1) || (other->ndim == 1 && n == 1))) return SC_OK;
  return sc__bad_call(c, "a gradient of %d dimensions does not fit operands of %d and %d", dy->ndim, other->ndim, n);
}

/* matmul_dx(dy, other, shape): the gradient of matmul's first operand, which had that shape. */
static sc_status matmul_dx(sc_call *c) {
  sc_calc k = {.ctx = c->ctx};
  sc_tensor *dy = c->in[0], *other = c->in[1], *r;
  int nx = c->attr[0].n, n;
  int64_t dim[SC_MAX_DIMS];
  SC_TRY(dx_ranks(c, dy, other, nx));
  if (nx == 1 && other->ndim == 1) {
    r = sc__calc2(&k, "mul", dy, other);
  } else if (nx == 1 && other->ndim == 2) {
    r = sc__calc2(&k, "matmul", other, dy);
  } else if (nx == 1) {                          /* dy [..., n] as columns: [..., k, n] x [..., n, 1], summed over the batch by the walk */
    batch_and(dy, 0, 1, -1, dim, &n);
    r = sc__calc2(&k, "matmul", other, sc__calc_reshape(&k, dy, n, dim));
    if (r) { batch_and(r, 1, 0, -1, dim, &n); r = sc__calc_reshape(&k, r, n - 1, dim); }
  } else if (other->ndim == 1) {
    batch_and(dy, 0, 1, -1, dim, &n);
    r = sc__calc2(&k, "mul", sc__calc_reshape(&k, dy, n, dim), other);
  } else {
    r = sc__calc2(&k, "matmul", dy, sc__calc_t(&k, other));
  }
  sc_status s = sc__calc_end(&k, r, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

static sc_tensor *flat(sc_calc *k, sc_tensor *t, int64_t last) {
  int64_t rows = 1;
  for (int i = 0; i < t->ndim - (last >= 0); i++) rows *= t->dim[i];
  return sc__calc_reshape(k, t, last >= 0 ? 2 : 1, (int64_t[]){rows, last});
}

/* matmul_dother(dy, x, shape): the gradient of matmul's second operand. */
static sc_status matmul_dother(sc_call *c) {
  sc_calc k = {.ctx = c->ctx};
  sc_tensor *dy = c->in[0], *x = c->in[1], *r;
  int no = c->attr[0].n, n;
  SC_TRY(dx_ranks(c, dy, x, no));
  int64_t dim[SC_MAX_DIMS], inner = x->dim[x->ndim - 1];
  if (x->ndim == 1 && no == 1) {
    r = sc__calc2(&k, "mul", dy, x);
  } else if (x->ndim == 1) {
    batch_and(dy, 1, 1, dy->dim[dy->ndim - 1], dim, &n);
    r = sc__calc2(&k, "mul", sc__calc_reshape(&k, x, 2, (int64_t[]){inner, 1}), sc__calc_reshape(&k, dy, n, dim));
  } else if (no == 1) {
    r = sc__calc2(&k, "matmul", sc__calc_t(&k, flat(&k, x, inner)), flat(&k, dy, -1));
  } else if (no == 2 && x->ndim > 2) {           /* one product for the whole batch */
    r = sc__calc2(&k, "matmul", sc__calc_t(&k, flat(&k, x, inner)), flat(&k, dy, dy->dim[dy->ndim - 1]));
  } else {
    r = sc__calc2(&k, "matmul", sc__calc_t(&k, x), dy);
  }
  sc_status s = sc__calc_end(&k, r, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

/* ---- the ones that add: beta * x + alpha * product ---- */

static sc_status added_shape(sc_call *c) {
  const sc_tensor *x = c->in[0];
  sc_meta *m = &c->meta[0];
  int64_t dim[SC_MAX_DIMS];
  int n;
  char s[200], t[200];
  if (!sc__broadcast(x->ndim, x->dim, m->ndim, m->dim, &n, dim) || n != m->ndim || memcmp(dim, m->dim, (size_t)n * 8) != 0)
    return sc__bad_input(c, 0, "shape %s does not broadcast to the product's, %s", sc__shape_text(x->ndim, x->dim, s, sizeof s),
                         sc__shape_text(m->ndim, m->dim, t, sizeof t));
  return SC_OK;
}

static sc_status add_infer(sc_call *c, int da, int db) {
  SC_TRY(ranks(c, 1, da, db));
  SC_TRY(same_dtype(c, 1));
  if (da == 3 && c->in[1]->dim[0] != c->in[2]->dim[0]) return cannot(c, 2, c->in[1], c->in[2]);
  SC_TRY(product_shape(c, 1));
  return added_shape(c);
}
static sc_status addmm_infer(sc_call *c) { return add_infer(c, 2, 2); }
static sc_status baddbmm_infer(sc_call *c) { return add_infer(c, 3, 3); }
static sc_status addmv_infer(sc_call *c) { return add_infer(c, 2, 1); }

static sc_status addbmm_infer(sc_call *c) {
  SC_TRY(ranks(c, 1, 3, 3));
  SC_TRY(same_dtype(c, 1));
  if (c->in[1]->dim[0] != c->in[2]->dim[0]) return cannot(c, 2, c->in[1], c->in[2]);
  SC_TRY(product_shape(c, 1));
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[1]->dtype, 2, (int64_t[]){c->in[1]->dim[1], c->in[2]->dim[2]});
  return added_shape(c);
}

static sc_status addr_infer(sc_call *c) {
  SC_TRY(ranks(c, 1, 1, 1));
  sc__meta_set(&c->meta[0], sc__result_dtype(c->in, 3), 2, (int64_t[]){c->in[1]->dim[0], c->in[2]->dim[0]});
  return added_shape(c);
}

static int64_t whole(const sc_attr *a) { return a->kind == SC_ATTR_FLOAT ? sc__f64_to_i64(a->f) : a->i; }

/* Integers are combined after the product, so that they wrap; alpha and beta lose their fractions first, as in PyTorch. */
static sc_status add_integers(sc_call *c, const int64_t *product) {
  sc_tensor *out = c->out[0], *x = NULL;
  int64_t alpha = whole(&c->attr[1]), beta = whole(&c->attr[0]);
  SC_TRY(sc_tensor_new(c->ctx, SC_INT64, out->ndim, out->dim, &x));
  sc_status s = beta ? sc__tensor_copy(x, c->in[0]) : SC_OK;
  uint64_t *v = (uint64_t *)x->data;
  for (int64_t i = 0; i < x->numel && s == SC_OK; i++)
    v[i] = (uint64_t)alpha * (uint64_t)product[i] + (beta ? (uint64_t)beta * v[i] : 0);
  if (s == SC_OK) s = sc__tensor_copy(out, x);
  sc_tensor_release(x);
  return s;
}

static sc_status add_product(sc_call *c, role as_a, role as_b, bool sum) {
  sc_tensor *out = c->out[0];
  sc_dtype type = compute_type((sc_dtype)out->dtype);
  bool integer = type == SC_INT64;
  double alpha = integer ? 1 : sc__number(&c->attr[1]), beta = integer ? 0 : sc__number(&c->attr[0]);
  matrix a = {0}, b = {0};
  sc_tensor *work = NULL;
  if ((sc_dtype)out->dtype != type || integer) SC_TRY(sc_tensor_new(c->ctx, type, out->ndim, out->dim, &work));
  sc_tensor *to = work ? work : out;
  sc_status s = beta != 0 ? sc__tensor_copy(to, c->in[0]) : SC_OK;
  if (s == SC_OK) s = matrix_of(&a, c->in[1], as_a, type);
  if (s == SC_OK) s = matrix_of(&b, c->in[2], as_b, type);
  if (s == SC_OK) {
    if (sum) s = multiply_sum(c->ctx, type, &a, &b, alpha, beta, to->data);
    else s = multiply(c->ctx, type, &a, &b, alpha, beta, to->data, a.nb, out->dim);
  }
  if (s == SC_OK && integer) s = add_integers(c, (const int64_t *)work->data);
  else if (s == SC_OK && work) s = sc__tensor_copy(out, work);
  sc_tensor_release(work);
  sc_tensor_release(a.t);
  sc_tensor_release(b.t);
  return s;
}

static sc_status addmm_run(sc_call *c) { return add_product(c, MATRIX, MATRIX, false); }
static sc_status addmv_run(sc_call *c) { return add_product(c, MATRIX, COLUMN, false); }
static sc_status addr_run(sc_call *c) { return add_product(c, COLUMN, ROW, false); }
static sc_status addbmm_run(sc_call *c) { return add_product(c, MATRIX, MATRIX, true); }

/* ---- linear(x, weight, bias): x [..., k], weight [n, k] (or [k]: no last dim in the result), y [..., n] ---- */

sc_status sc__linear_infer(sc_call *c) {
  const sc_tensor *x = c->in[0], *w = c->in[1], *bias = c->in[2];
  sc_meta *m = &c->meta[0];
  char s[200], t[200];
  SC_TRY(same_dtype(c, 0));
  if (w->ndim != 1 && w->ndim != 2)
    return sc__bad_input(c, 1, "expected shape {out, in} or {in}, got %s", sc__shape_text(w->ndim, w->dim, s, sizeof s));
  if (x->ndim == 0 || x->dim[x->ndim - 1] != w->dim[w->ndim - 1])
    return sc__bad_input(c, 1, "shape %s does not fit the input's, %s: expected the same last size", sc__shape_text(w->ndim, w->dim, s, sizeof s),
                         sc__shape_text(x->ndim, x->dim, t, sizeof t));
  sc__meta_set(m, (sc_dtype)x->dtype, x->ndim - 1, x->dim);
  if (w->ndim == 2) m->dim[m->ndim++] = w->dim[0];
  if (!bias) return SC_OK;
  int64_t dim[SC_MAX_DIMS];
  int n;
  if (!sc__broadcast(bias->ndim, bias->dim, m->ndim, m->dim, &n, dim) || n != m->ndim || memcmp(dim, m->dim, (size_t)n * 8) != 0)
    return sc__bad_input(c, 2, "shape %s does not fit the result's, %s", sc__shape_text(bias->ndim, bias->dim, s, sizeof s),
                         sc__shape_text(m->ndim, m->dim, t, sizeof t));
  return SC_OK;
}

/* The bias goes where the product will be added. */
static sc_status preload(sc_tensor *to, const sc_tensor *bias) {
  size_t z = sc_dtype_size((sc_dtype)to->dtype);
  if (bias->dtype != to->dtype || bias->ndim != 1 || !bias->contiguous || to->ndim == 0 || bias->dim[0] != to->dim[to->ndim - 1])
    return sc__tensor_copy(to, bias);
  size_t row = (size_t)bias->dim[0] * z;
  for (char *p = to->data, *end = p + (size_t)to->numel * z; p < end; p += row) memcpy(p, bias->data, row);
  return SC_OK;
}

/* A few rows by a weight of halves: the weight is read as it is, never widened as a whole. */
static bool few_rows_of_halves(const matrix *a, const sc_tensor *w) {
  return (w->dtype == SC_FLOAT16 || w->dtype == SC_BFLOAT16) && w->ndim == 2 && a->rows <= FEW_ROWS && (sc__stride(w)[1] == 1 || w->dim[1] == 1) &&
         !a->transposed && w->numel > 0;
}

sc_status sc__linear_run(sc_call *c, const sc_epilogue *then) {
  sc_tensor *x = c->in[0], *w = c->in[1], *bias = c->in[2];
  sc_dtype type = compute_type((sc_dtype)x->dtype);
  bool integer = type == SC_INT64;
  matrix a = {0}, b = {0};
  target t;
  SC_TRY(target_open(c, type, &t));
  sc_status s = bias && !integer ? preload(t.wide ? t.wide : t.out, bias) : SC_OK;
  if (s == SC_OK) s = folded(&a, x, true, type);
  bool halves = s == SC_OK && few_rows_of_halves(&a, w);
  if (halves)
    sc__half_rows(c->ctx, (sc_dtype)w->dtype, a.rows, w->dim[0], a.cols, (const uint16_t *)w->data, sc__stride(w)[0], (const float *)a.t->data, a.ld,
                  bias != NULL, t.data, w->dim[0]);
  if (s == SC_OK && !halves) s = matrix_of(&b, w, w->ndim == 2 ? MATRIX : ROW, type);
  if (s == SC_OK && !halves) {
    sc_gemm g = {type, a.transposed, !b.transposed, a.rows, b.rows, a.cols, 1, bias && !integer ? 1 : 0, a.t->data, a.ld, b.t->data, b.ld, t.data,
                 b.rows > 1 ? b.rows : 1, then};
    s = sc__gemm_ready(c->ctx, &g);
    if (s == SC_OK) sc__gemm_run(c->ctx, &g);
  }
  sc_tensor_release(a.t);
  sc_tensor_release(b.t);
  s = target_close(&t, s);
  if (s == SC_OK && bias && integer) {
    sc_tensor *sum = NULL;
    s = sc__op2(c->ctx, "add_", c->out[0], bias, &sum);
    sc_tensor_release(sum);
  }
  return s;
}

static sc_status linear_run(sc_call *c) { return sc__linear_run(c, NULL); }

/* linear_dx(dy, weight) */
static sc_status linear_dx(sc_call *c) {
  sc_calc k = {.ctx = c->ctx};
  sc_tensor *dy = c->in[0], *w = c->in[1], *r;
  if (w->ndim == 2) r = sc__calc2(&k, "matmul", dy, w);
  else r = sc__calc2(&k, "mul", sc__calc_unsqueeze(&k, dy, 0), w);
  sc_status s = sc__calc_end(&k, r, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

/* linear_dweight(g, x, size): gᵀ x over all leading dims, as one product; for a single row that is an outer product. */
static sc_status dweight_infer(sc_call *c) {
  const sc_tensor *g = c->in[0], *x = c->in[1];
  const sc_attr *size = &c->attr[0];
  bool matrix = size->n == 2;
  if (x->ndim < 1 || size->n < 1 || size->n > 2 || g->ndim != x->ndim - !matrix || memcmp(g->dim, x->dim, (size_t)(x->ndim - 1) * 8) != 0 ||
      size->v[size->n - 1] != x->dim[x->ndim - 1] || (matrix && size->v[0] != g->dim[g->ndim - 1]))
    return sc__bad_call(c, "the shapes do not belong together");
  sc__meta_set(&c->meta[0], (sc_dtype)c->in[1]->dtype, c->attr[0].n, c->attr[0].v);
  return SC_OK;
}

static sc_status dweight_run(sc_call *c) {
  sc_dtype type = compute_type((sc_dtype)c->in[1]->dtype);
  matrix a = {0}, b = {0};
  target t;
  SC_TRY(target_open(c, type, &t));
  sc_status s = folded(&a, c->in[0], c->attr[0].n == 2, type);
  if (s == SC_OK) s = folded(&b, c->in[1], true, type);
  if (s == SC_OK) {
    sc_gemm g = {type, !a.transposed, b.transposed, a.cols, b.cols, a.rows, 1, 0, a.t->data, a.ld, b.t->data, b.ld, t.data,
                 b.cols > 1 ? b.cols : 1, NULL};
    s = sc__gemm_ready(c->ctx, &g);
    if (s == SC_OK) sc__gemm_run(c->ctx, &g);
  }
  sc_tensor_release(a.t);
  sc_tensor_release(b.t);
  return target_close(&t, s);
}

/* ---- over the others ---- */

static sc_status outer_compose(sc_call *c) {
  SC_TRY(ranks(c, 0, 1, 1));
  sc_calc k = {.ctx = c->ctx};
  sc_status s = sc__calc_end(&k, sc__calc2(&k, "mul", sc__calc_unsqueeze(&k, c->in[0], 0), c->in[1]), &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

static sc_status inner_compose(sc_call *c) {
  sc_calc k = {.ctx = c->ctx};
  sc_tensor *x = c->in[0], *y = c->in[1], *r;
  if (x->ndim == 0 || y->ndim == 0) {
    r = sc__calc2(&k, "mul", x, y);
  } else {
    int64_t last = x->dim[x->ndim - 1], dim[2 * SC_MAX_DIMS];
    if (y->dim[y->ndim - 1] != last) return cannot(c, 1, x, y);
    if (x->ndim + y->ndim - 2 > SC_MAX_DIMS) return sc__bad_call(c, "the result would have more than %d dimensions", SC_MAX_DIMS);
    int n = 0;
    for (int i = 0; i < x->ndim - 1; i++) dim[n++] = x->dim[i];
    for (int i = 0; i < y->ndim - 1; i++) dim[n++] = y->dim[i];
    r = sc__calc_reshape(&k, sc__calc2(&k, "matmul", flat(&k, x, last), sc__calc_t(&k, flat(&k, y, last))), n, dim);
  }
  sc_status s = sc__calc_end(&k, r, &c->out[0]);
  c->n_out = s == SC_OK;
  return s;
}

#define SCALED "beta: number = 1, alpha: number = 1)"

const sc_op sc__ops_matmul[] = {
  {"matmul(x, other)",
   "Matrix product.\nShapes: [n] x [n] gives a number; [m, k] x [k, n] gives [m, n]; leading dims are a batch and broadcast; a vector on the left "
   "counts as a row, on the right as a column, and its dim is dropped.\nErrors: the inner sizes or the dtypes differ.\n"
   "Example: sc.ones(2, 3):matmul(sc.ones(3, 4))", 0, .infer = matmul_infer, .run = product_run, .cost = sc__cost_product,
   .grad = {"matmul_dx(dy, other, shape(x))", "matmul_dother(dy, x, shape(other))"}},
  {"matmul_dx(dy, other, size: shape)", "matmul's gradient for its first operand.", SC_OP_INTERNAL, .compose = matmul_dx},
  {"matmul_dother(dy, x, size: shape)", "matmul's gradient for its second operand.", SC_OP_INTERNAL, .compose = matmul_dother},
  {"mm(x, mat2)", "Product of two matrices, [m, k] x [k, n].\nErrors: an operand that is not a matrix; inner sizes differ.\nExample: sc.ones(2, 3):mm(sc.ones(3, 4))",
   0, .infer = mm_infer, .run = product_run, .cost = sc__cost_product, .grad = {"mm(dy, transpose(mat2, 0, 1))", "mm(transpose(x, 0, 1), dy)"}},
  {"bmm(x, mat2)", "Products of two batches of matrices, [b, m, k] x [b, k, n].\nErrors: other numbers of dims; batch or inner sizes differ.\n"
   "Example: sc.ones(5, 2, 3):bmm(sc.ones(5, 3, 4))", 0, .infer = bmm_infer, .run = product_run, .cost = sc__cost_product,
   .grad = {"bmm(dy, transpose(mat2, 1, 2))", "bmm(transpose(x, 1, 2), dy)"}},
  {"mv(x, vec)", "Product of a matrix [m, k] and a vector [k].\nExample: sc.ones(2, 3):mv(sc.ones(3))", 0, .infer = mv_infer, .run = product_run, .cost = sc__cost_product,
   .grad = {"outer(dy, vec)", "matmul_dother(dy, x, shape(vec))"}},
  {"dot(x, other)", "Sum of the products of two vectors' elements.\nErrors: not vectors, or of different sizes.\nExample: sc.tensor{1.0, 2.0}:dot(sc.tensor{3.0, 4.0})", 0,
   .infer = dot_infer, .run = product_run, .cost = sc__cost_product, .grad = {"dy * other", "dy * x"}},
  {"vdot(x, other)", "dot, which for real numbers is the same.", 0, .infer = dot_infer, .run = product_run, .cost = sc__cost_product, .grad = {"dy * other", "dy * x"}},
  {"outer(x, vec2)", "Matrix of all products of two vectors' elements, [m] and [n] to [m, n].\nExample: sc.tensor{1, 2}:outer(sc.tensor{3, 4})", 0,
   .compose = outer_compose},
  {"ger(x, vec2)", "outer under its older name.", 0, .compose = outer_compose},
  {"inner(x, other)", "Sum of products over the last dims: x [..., k], other [*, k] gives [..., *]; a number multiplies.\nErrors: the last sizes differ.", 0,
   .compose = inner_compose},
  {"addmm(x, mat1, mat2, " SCALED, "beta * x + alpha * (mat1 x mat2); x broadcasts to the product's shape and is not read when beta is 0.\n"
   "Errors: inner sizes or dtypes differ.\nExample: sc.zeros(2, 4):addmm(sc.ones(2, 3), sc.ones(3, 4))", SC_OP_INPLACE, .infer = addmm_infer, .run = addmm_run, .cost = sc__cost_product,
   .grad = {"dy * beta", "mm(dy, transpose(mat2, 0, 1)) * alpha", "mm(transpose(mat1, 0, 1), dy) * alpha"}},
  {"baddbmm(x, batch1, batch2, " SCALED, "beta * x + alpha * bmm(batch1, batch2); x broadcasts and is not read when beta is 0.", SC_OP_INPLACE,
   .infer = baddbmm_infer, .run = addmm_run, .cost = sc__cost_product,
   .grad = {"dy * beta", "bmm(dy, transpose(batch2, 1, 2)) * alpha", "bmm(transpose(batch1, 1, 2), dy) * alpha"}},
  {"addbmm(x, batch1, batch2, " SCALED, "beta * x + alpha * (the sum of bmm(batch1, batch2) over the batch).", SC_OP_INPLACE, .infer = addbmm_infer,
   .run = addbmm_run, .grad = {"dy * beta", "matmul(dy, transpose(batch2, 1, 2)) * alpha", "matmul(transpose(batch1, 1, 2), dy) * alpha"}},
  {"addmv(x, mat, vec, " SCALED, "beta * x + alpha * (mat x vec).", SC_OP_INPLACE, .infer = addmv_infer, .run = addmv_run,
   .grad = {"dy * beta", "outer(dy, vec) * alpha", "matmul_dother(dy, mat, shape(vec)) * alpha"}},
  {"addr(x, vec1, vec2, " SCALED, "beta * x + alpha * outer(vec1, vec2).", SC_OP_INPLACE, .infer = addr_infer, .run = addr_run,
   .grad = {"dy * beta", "mv(dy, vec2) * alpha", "mv(transpose(dy, 0, 1), vec1) * alpha"}},
  {"nn.functional.linear(x, weight, bias: tensor?)",
   "x weightᵀ + bias.\nShapes: x [..., in], weight [out, in], bias [out], result [..., out]; a weight [in] gives [...].\n"
   "Errors: sizes or dtypes differ.\nExample: sc.nn.functional.linear(sc.ones(8, 3), sc.ones(4, 3), sc.zeros(4))", SC_OP_FUNCTION, .infer = sc__linear_infer,
   .run = linear_run, .cost = sc__cost_linear, .grad = {"linear_dx(dy, weight)", "linear_dweight(dy, x, shape(weight))", "dy"}},
  {"linear_dx(dy, weight)", "linear's gradient for x.", SC_OP_INTERNAL, .compose = linear_dx},
  {"linear_dweight(g, x, size: shape)", "linear's gradient for its weight.", SC_OP_INTERNAL | SC_OP_OUTER, .infer = dweight_infer, .run = dweight_run, .cost = sc__cost_dweight,
   .grad = {"nn.functional.linear(x, dy, nil)", "linear_dx(g, dy)"}},
};
#undef SCALED
const int sc__ops_matmul_count = SC_COUNT(sc__ops_matmul);
