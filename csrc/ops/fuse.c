/* Building tile programs. While a program grows its sources are numbered with room for every input first (instructions from
** SC_PROGRAM_INPUTS on); `sc__fuse_end` moves instructions down to where the inputs really end. Values whose type is not the one an
** op computes in are converted by an instruction of their own; a number of the script is simply read as that type. */
#include "fuse.h"

#include <string.h>

void sc__fuse_begin(sc_fuser *f) {
  f->p.n_in = f->p.n_instr = 0;
  f->p.cost = 0;
  f->row = false;
}

sc_scalar sc__attr_scalar(const sc_attr *a) {
  return a->kind == SC_ATTR_FLOAT ? (sc_scalar){false, false, sc__f64_to_i64(a->f), a->f} : sc__scalar_int(a->i);
}

static sc_dtype promoted(const sc_operand *o, int n) {
  int best[3] = {-1, -1, -1};
  for (int i = 0; i < n; i++) {
    sc_dtype d = o[i].rank == 2 && sc__is_float(o[i].dtype) ? SC_FLOAT32 : o[i].dtype;
    best[o[i].rank] = best[o[i].rank] < 0 ? (int)d : (int)sc__promote((sc_dtype)best[o[i].rank], d);
  }
  int r = best[0];
  for (int k = 1; k < 3; k++)
    if (best[k] >= 0 && (r < 0 || sc__category((sc_dtype)best[k]) > sc__category((sc_dtype)r))) r = best[k];
  return (sc_dtype)r;
}

static sc_operand input(const sc_tensor *t, int k) {
  return (sc_operand){k, (sc_dtype)t->dtype, t->flags & SC_T_WRAPPED ? 2 : t->ndim == 0 ? 1 : 0};
}

bool sc__fuse_another(sc_fuser *f, sc_tensor *t, sc_operand *o) {
  int k = f->p.n_in;
  if (k == SC_PROGRAM_INPUTS) return false;
  f->p.in_type[k] = t->dtype == SC_BOOL ? SC_C_BOOL : (uint8_t)sc__ctype((sc_dtype)t->dtype);
  f->in[f->p.n_in++] = t;
  *o = input(t, k);
  return true;
}

bool sc__fuse_tensor(sc_fuser *f, sc_tensor *t, sc_operand *o) {
  int k = 0;
  while (k < f->p.n_in && f->in[k] != t) k++;
  if (k == f->p.n_in) return sc__fuse_another(f, t, o);
  *o = input(t, k);
  return true;
}

bool sc__fuse_number(sc_fuser *f, double v, sc_operand *o) {
  int k = f->p.n_in;
  if (k == SC_PROGRAM_INPUTS) return false;
  f->value[k] = v;
  memset(&f->constant[k], 0, sizeof f->constant[k]);
  f->constant[k].dtype = SC_FLOAT64;
  f->constant[k].contiguous = true;
  f->constant[k].numel = 1;
  f->constant[k].flags = SC_T_WRAPPED;
  f->constant[k].data = (char *)&f->value[k];
  return sc__fuse_tensor(f, &f->constant[k], o);
}

static bool add(sc_fuser *f, sc_instr q, int *source) {
  if (f->p.n_instr == SC_PROGRAM_INSTRS) return false;
  *source = SC_PROGRAM_INPUTS + f->p.n_instr;
  f->p.instr[f->p.n_instr++] = q;
  return true;
}

static uint8_t type_of(const sc_fuser *f, int source) {
  return source < SC_PROGRAM_INPUTS ? f->p.in_type[source] : f->p.instr[source - SC_PROGRAM_INPUTS].type;
}

/* A comparison with a number means the number itself, which must then be one that the type holds. */
static bool holds_number(const sc_fuser *f, const sc_operand *in, uint8_t type) {
  if (in->rank != 2 || in->source >= SC_PROGRAM_INPUTS) return true;
  const sc_tensor *t = f->in[in->source];
  sc_scalar v = sc__load((sc_dtype)t->dtype, t->data);
  return type == SC_C_F64 || (type == SC_C_F32 ? (double)(float)v.f == v.f : v.is_int || v.f == (double)sc__f64_to_i64(v.f));
}

static bool used(const sc_fuser *f, int source) {
  for (int k = 0; k < f->p.n_instr; k++)
    for (int i = 0; i < f->p.instr[k].arity; i++) if (f->p.instr[k].src[i] == source) return true;
  return false;
}

static bool converted(sc_fuser *f, int source, uint8_t type, uint8_t *out) {
  if (type_of(f, source) != type) {
    bool number = source < SC_PROGRAM_INPUTS && f->in[source]->flags & SC_T_WRAPPED && !used(f, source);
    bool row = source >= SC_PROGRAM_INPUTS ? f->p.instr[source - SC_PROGRAM_INPUTS].row : f->row;
    if (number) f->p.in_type[source] = type;
    else if (!add(f, (sc_instr){.type = type, .arity = 1, .src = {(uint8_t)source}, .row = row}, &source)) return false;
  }
  *out = (uint8_t)source;
  return true;
}

/* Not what looks at values before it runs: integer division, an integer compared with a fraction. */
static bool can_fuse(const sc_pw *pw, sc_dtype compute, const sc_operand *in) {
  if (pw->flags & SC_PW_NO_ZERO && !sc__is_float(compute)) return false;
  if (!(pw->flags & SC_PW_COMPARE)) return true;
  for (int i = 0; i < 2; i++)
    if (in[i].rank == 2 && sc__is_float(in[i].dtype) && sc__category(in[1 - i].dtype) == SC_CAT_INT) return false;
  return true;
}

/* A value as its dtype holds it: kernels compute halves in float32 and every integer in 64 bits. */
static bool rounded(sc_fuser *f, sc_operand *o) {
  bool half = o->dtype == SC_FLOAT16 || o->dtype == SC_BFLOAT16;
  if (!half && (sc__category(o->dtype) != SC_CAT_INT || sc_dtype_size(o->dtype) == 8)) return true;
  sc_instr q = {.kind = SC_I_ROUND, .type = type_of(f, o->source), .arity = 1, .src = {(uint8_t)o->source}, .row = f->row, .through = (uint8_t)o->dtype};
  if (!half && q.type != SC_C_I64) return true;        /* an exponent: small, in a float */
  f->p.cost += 0.2;
  return add(f, q, &o->source);
}

static uint8_t link_of(const sc_pw *pw, uint8_t type, const sc_instr *q) {
  if (type != SC_C_F32) return SC_LINK_NONE;
  switch (pw->id) {
    case SC_PW_add: return q->p[0].f == 1 ? SC_LINK_ADD : SC_LINK_NONE;
    case SC_PW_sub: return q->p[0].f == 1 ? SC_LINK_SUB : SC_LINK_NONE;
    case SC_PW_rsub: return q->p[0].f == 1 ? SC_LINK_RSUB : SC_LINK_NONE;
    case SC_PW_mul: return SC_LINK_MUL;
    case SC_PW_div: return SC_LINK_DIV;
    case SC_PW_neg: return SC_LINK_NEG;
    case SC_PW_relu: return SC_LINK_RELU;
    case SC_PW_square: return SC_LINK_SQUARE;
    default: return SC_LINK_NONE;
  }
}

bool sc__fuse_op(sc_fuser *f, sc_isa isa, const sc_opinfo *op, const sc_attr *attr, const sc_operand *in, sc_operand *out) {
  const sc_pw *pw = op->def->pw;
  if (!pw || op->n_attr > SC_PROGRAM_PARAMS) return false;
  int from = pw->flags & SC_PW_COND ? 1 : 0;
  sc_dtype compute, dtype;
  if (!sc__pw_result(pw, promoted(in + from, pw->arity - from), &compute, &dtype)) return false;
  if (!can_fuse(pw, compute, in)) return false;
  uint8_t type = (uint8_t)sc__pw_ctype(pw, compute);
  int rank = 2;
  for (int i = 0; i < pw->arity; i++) if (in[i].rank < rank) rank = in[i].rank;
  if (pw->id == SC_PW_pow && in[1].rank == 2 && in[1].source < SC_PROGRAM_INPUTS && (type == SC_C_F32 || type == SC_C_F64)) {
    const sc_tensor *exponent = f->in[in[1].source];
    pw = &sc__pw[sc__cheap_power(sc__load((sc_dtype)exponent->dtype, exponent->data).f)];
  }
  sc_instr q = {.row = f->row, .arity = pw->arity, .type = pw->rule == SC_PW_BOOL ? SC_C_BOOL : type, .fn = sc__pw_kernel(isa, pw->id, (sc_ctype)type)};
  for (int i = 0; i < op->n_attr; i++) q.p[i] = sc__attr_scalar(&attr[i]);
  q.link = link_of(pw, type, &q);
  if (pw->flags & SC_PW_NO_ZERO && type != SC_C_F32 && type != SC_C_F64) return false;   /* it has to look for zeros first */
  for (int i = 0; i < pw->arity && pw->flags & SC_PW_COMPARE; i++) if (!holds_number(f, &in[i], type)) return false;
  for (int i = 0; i < pw->arity; i++) {
    if (!converted(f, in[i].source, i < from ? SC_C_BOOL : type, &q.src[i])) return false;
  }
  out->dtype = dtype;
  out->rank = rank;
  f->p.cost += pw->cost;
  return add(f, q, &out->source) && rounded(f, out);
}

bool sc__fuse_cast(sc_fuser *f, sc_dtype dtype, const sc_operand *x, sc_operand *out) {
  uint8_t type = dtype == SC_BOOL ? SC_C_BOOL : (uint8_t)sc__ctype(dtype);
  bool row = x->source >= SC_PROGRAM_INPUTS ? f->p.instr[x->source - SC_PROGRAM_INPUTS].row : f->row;
  sc_instr q = {.kind = SC_I_ROUND, .type = type, .arity = 1, .src = {(uint8_t)x->source}, .row = row, .through = (uint8_t)dtype};
  if (sc__ctype_dtype((sc_ctype)type) == dtype) q.kind = SC_I_POINT;
  *out = (sc_operand){0, dtype, x->rank};
  f->p.cost += 0.2;
  return add(f, q, &out->source);
}

bool sc__fuse_fold(sc_fuser *f, const sc_opinfo *op, int64_t count, const sc_operand *x, sc_operand *out) {
  const sc_fold *fold = op->def->fold;
  uint8_t type = type_of(f, x->source);
  if (type != SC_C_F32 && type != SC_C_F64) return false;
  sc_instr q = {.kind = SC_I_FOLD, .type = type, .arity = 1, .src = {(uint8_t)x->source}, .row = true, .through = (uint8_t)x->dtype,
                .fold = type == SC_C_F64 ? fold->kind64 : fold->kind, .finish = fold->finish, .arg = (double)count};
  *out = (sc_operand){0, x->dtype, 0};
  f->p.cost += 0.15;
  return add(f, q, &out->source);
}

void sc__fuse_end(sc_fuser *f) {
  for (int k = 0; k < f->p.n_instr; k++)
    for (int i = 0; i < f->p.instr[k].arity; i++)
      if (f->p.instr[k].src[i] >= SC_PROGRAM_INPUTS)
        f->p.instr[k].src[i] = (uint8_t)(f->p.instr[k].src[i] - SC_PROGRAM_INPUTS + f->p.n_in);
}
