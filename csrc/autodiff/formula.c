/* Gradient formulas: a line of text beside the op, such as "dy * (1 - y * y)", compiled once per context.
**
**   dy, dy2 …          the gradients arriving at the results
**   y, y2 …            the results; the op's own parameter names: its inputs and attributes
**   + - * /, unary -   the ops add, sub, mul, div, neg
**   op(a, b, …)        any op of the table, arguments in its signature's order
**   shape(x)           the sizes of an input or result (keeps no data alive)
**   numbers, true, false, nil, "text", [1, 2]
**
** Dims are 0-based, as everywhere in C. A formula that consists of pointwise ops only runs as one tile program when nothing has to
** be recorded; otherwise it emits its ops one by one, and they can be differentiated again or become nodes of a graph. */
#include "../ops/fuse.h"
#include "formula.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef sc_ast ast;

typedef struct parser {
  sc_context *ctx;
  sc_formula_names names;
  void *arg;
  const char *at;
  int n;
  ast node[SC_AST_NODES];
  bool bad;
} parser;

static int sum(parser *p);

static void blanks(parser *p) { while (*p->at == ' ' || *p->at == '\n') p->at++; }

static bool take(parser *p, char c) {
  blanks(p);
  if (*p->at != c) return false;
  p->at++;
  return true;
}

static int make(parser *p, ast a) {
  bool leaf = a.kind == A_DY || a.kind == A_IN || a.kind == A_OUT || a.kind == A_ATTR;
  for (int i = 0; i < p->n && leaf; i++)             /* named again: the same node */
    if (p->node[i].kind == a.kind && p->node[i].index == a.index) return i;
  if (p->n == SC_AST_NODES) { p->bad = true; return 0; }
  p->node[p->n] = a;
  return p->n++;
}

static int make_call(parser *p, const char *name, const int *arg, int n) {
  ast a = {.kind = A_CALL, .n = (uint8_t)n, .op = sc__op_find(p->ctx, name)};
  if (!a.op || n > SC_AST_ARGS) { p->bad = true; return 0; }
  for (int i = 0; i < n; i++) a.arg[i] = (int16_t)arg[i];
  return make(p, a);
}

static void word(parser *p, char *out, size_t size) {
  size_t n = 0;
  while (isalnum((unsigned char)*p->at) || *p->at == '_' || *p->at == '.') {
    if (n + 1 < size) out[n++] = *p->at;
    p->at++;
  }
  out[n] = 0;
}

/* "dy", "dy2", "y", "y3": the index, or -1 */
static int numbered(const char *name, const char *stem) {
  size_t k = strlen(stem);
  if (strncmp(name, stem, k) != 0) return -1;
  if (!name[k]) return 0;
  return isdigit((unsigned char)name[k]) && !name[k + 1] ? name[k] - '1' : -1;
}

static int variable(parser *p, const char *name, bool of_shape) {
  ast a = {.kind = A_NONE};
  if (strcmp(name, "true") == 0 || strcmp(name, "false") == 0) a = (ast){.kind = A_BOOL, .number = name[0] == 't'};
  else if (strcmp(name, "nil") != 0 && !p->names(p->arg, name, of_shape, &a)) { p->bad = true; return 0; }
  if (a.kind == A_IN && !of_shape) a.optional = take(p, '?');
  return make(p, a);
}

static int shape_of(parser *p) {
  char name[32];
  blanks(p);
  word(p, name, sizeof name);
  if (!take(p, ')')) p->bad = true;
  int k = variable(p, name, true);
  if (p->bad) return 0;
  return make(p, (ast){.kind = A_SHAPE, .output = p->node[k].kind != A_IN, .index = p->node[k].index});
}

static int primary(parser *p) {
  blanks(p);
  if (take(p, '(')) {
    int e = sum(p);
    if (!take(p, ')')) p->bad = true;
    return e;
  }
  if (take(p, '"')) {
    ast a = {.kind = A_TEXT};
    for (int i = 0; *p->at && *p->at != '"' && i < 15; i++) a.text[i] = *p->at++;
    if (!take(p, '"')) p->bad = true;
    return make(p, a);
  }
  if (take(p, '[')) {
    ast a = {.kind = A_LIST};
    while (!take(p, ']') && a.n < SC_AST_LIST && *p->at) { a.list[a.n++] = strtol(p->at, (char **)&p->at, 10); take(p, ','); }
    return make(p, a);
  }
  if (isdigit((unsigned char)*p->at)) {
    char *end;
    ast a = {.kind = A_NUMBER, .number = strtod(p->at, &end), .integer = true};
    for (const char *c = p->at; c < end; c++) a.integer = a.integer && isdigit((unsigned char)*c);
    p->at = end;
    return make(p, a);
  }
  char name[40];
  word(p, name, sizeof name);
  if (!name[0]) { p->bad = true; return 0; }
  if (!take(p, '(')) return variable(p, name, false);
  if (strcmp(name, "shape") == 0) return shape_of(p);
  int arg[SC_AST_ARGS], n = 0;
  while (!take(p, ')')) {
    if (n == SC_AST_ARGS || (n && !take(p, ','))) { p->bad = true; return 0; }
    arg[n++] = sum(p);
    if (p->bad) return 0;
  }
  return make_call(p, name, arg, n);
}

static int unary(parser *p) {
  if (take(p, '-')) {
    int a = unary(p);
    if (!p->bad && p->node[a].kind == A_NUMBER) { p->node[a].number = -p->node[a].number; return a; }
    return make_call(p, "neg", &a, 1);
  }
  return primary(p);
}

static int product(parser *p) {
  int a = unary(p);
  for (;;) {
    bool times = take(p, '*');
    if (p->bad || (!times && !take(p, '/'))) return a;
    int arg[2] = {a, unary(p)};
    a = make_call(p, times ? "mul" : "div", arg, 2);
  }
}

static int sum(parser *p) {
  int a = product(p);
  for (;;) {
    bool plus = take(p, '+');
    if (p->bad || (!plus && !take(p, '-'))) return a;
    int arg[2] = {a, product(p)};
    a = make_call(p, plus ? "add" : "sub", arg, 2);
  }
}

static bool all_pointwise(const sc_formula *f) {
  int calls = 0;
  for (int i = 0; i < f->n; i++) {
    const ast *a = &f->node[i];
    if (a->kind == A_CALL) {
      if (!a->op->def->pw || a->n < a->op->def->pw->arity || a->op->n_attr > SC_PROGRAM_PARAMS || a->op->inplace) return false;
      for (int k = 0; k < a->op->n_in; k++) if (a->op->in_param[k] != k) return false;    /* tensors come first */
      for (int k = a->op->n_in; k < a->n; k++) if (f->node[a->arg[k]].kind == A_CALL) return false;
      calls++;
    } else if (a->kind == A_SHAPE || a->kind == A_LIST || a->kind == A_TEXT) {
      return false;
    }
  }
  return calls > 1 && calls <= SC_PROGRAM_INSTRS / 2;
}

bool sc__op_has_gradient(const sc_opinfo *op) {
  if (op->def->backward) return true;
  for (int i = 0; i < SC_MAX_INPUTS; i++) if (op->def->grad[i]) return true;
  return false;
}

sc_status sc__formula_parse(sc_context *ctx, const char *what, const char *text, sc_formula_names names, void *arg, sc_formula **out) {
  parser *p = sc__alloc_zero(ctx, sizeof *p);
  if (!p) return sc__no_memory(ctx, sizeof *p);
  p->ctx = ctx;
  p->names = names;
  p->arg = arg;
  p->at = text;
  int root = sum(p);
  blanks(p);
  sc_status s = SC_OK;
  if (p->bad || *p->at) s = sc__fail(ctx, SC_EINVAL, "the formula of %s cannot be read: %s", what, text);
  size_t bytes = sizeof(sc_formula) + (size_t)p->n * sizeof(ast);
  sc_formula *f = s == SC_OK ? sc__alloc(ctx, bytes) : NULL;
  if (f) {
    *f = (sc_formula){.n = p->n, .root = root, .bytes = bytes};
    memcpy(f->node, p->node, (size_t)p->n * sizeof(ast));
    *out = f;
  } else if (s == SC_OK) {
    s = sc__no_memory(ctx, bytes);
  }
  sc__release(ctx, p, sizeof *p);
  return s;
}

/* The names of a gradient. `dy` is the gradient arriving, also where a row calls a parameter so; inside shape() it is that parameter. */
typedef struct grad_names { const sc_opinfo *op; uint32_t reads_in, reads_out; } grad_names;

static bool grad_name(void *arg, const char *name, bool of_shape, ast *out) {
  grad_names *g = arg;
  int k = numbered(name, "dy");
  if (k >= 0 && !of_shape) { *out = (ast){.kind = A_DY, .index = k}; return true; }
  for (int i = 0; i < g->op->n_params; i++) {
    const sc_param *q = &g->op->param[i];
    if (strcmp(q->name, name) != 0) continue;
    *out = (ast){.kind = q->type == SC_P_TENSOR ? A_IN : A_ATTR, .index = q->slot};
    if (out->kind == A_IN && !of_shape) g->reads_in |= 1u << q->slot;      /* else the sizes only */
    return true;
  }
  if (k >= 0) { *out = (ast){.kind = A_DY, .index = k}; return true; }
  k = numbered(name, "y");
  if (k < 0) return false;
  if (!of_shape) g->reads_out |= 1u << k;
  *out = (ast){.kind = A_OUT, .index = k};
  return true;
}

sc_status sc__formulas_prepare(sc_context *ctx, sc_opinfo *op) {
  if (op->prepared) return SC_OK;
  if (op->def->backward)
    for (int i = 0; i < SC_MAX_INPUTS; i++) {
      op->reads_in[i] = op->flags & SC_OP_SAVE_NO_IN ? 0 : op->def->saves ? op->def->saves : UINT32_MAX;
      op->reads_out[i] = op->flags & SC_OP_SAVE_NO_OUT ? 0 : op->def->saves_out ? op->def->saves_out : UINT32_MAX;
    }
  for (int i = 0; i < op->n_in && !op->def->backward; i++) {
    if (!op->def->grad[i] || op->formula[i]) continue;
    grad_names g = {.op = op};
    sc_formula *f;
    SC_TRY(sc__formula_parse(ctx, op->name, op->def->grad[i], grad_name, &g, &f));
    f->pointwise = all_pointwise(f);
    op->formula[i] = f;
    op->reads_in[i] = g.reads_in;
    op->reads_out[i] = g.reads_out;
  }
  op->prepared = true;
  return SC_OK;
}

void sc__formula_free(sc_context *ctx, sc_formula *f) { sc__release(ctx, f, f->bytes); }

/* ---- running: op by op ---- */

typedef struct run {
  const sc_formula *f;
  sc_grad_call *g;
  const int64_t *const *in_shape, *const *out_shape;
  sc_tensor *value[SC_AST_NODES];   /* owned */
} run;

static sc_tensor *borrowed(const sc_grad_call *g, const ast *a) {
  return a->kind == A_DY ? g->dy[a->index] : a->kind == A_IN ? g->in[a->index] : a->kind == A_OUT ? g->out[a->index] : NULL;
}

static sc_status tensor_value(run *r, int k, sc_tensor **out) {
  const ast *a = &r->f->node[k];
  if (a->kind == A_CALL) { *out = r->value[k]; return SC_OK; }
  *out = borrowed(r->g, a);
  if (*out || a->kind == A_NONE || a->kind == A_IN) return SC_OK;
  if (r->value[k]) { *out = r->value[k]; return SC_OK; }
  bool integer = a->integer;
  double number = a->number;
  if (a->kind == A_ATTR) {
    const sc_attr *q = &r->g->attr[a->index];
    integer = q->kind == SC_ATTR_INT;
    number = sc__number(q);
  } else if (a->kind != A_NUMBER) {
    return sc__fail(r->g->ctx, SC_EINVAL, "%s: its gradient formula needs a value that is not there", r->g->op->name);
  }
  SC_TRY(sc__tensor_scalar(r->g->ctx, integer, (int64_t)number, number, &r->value[k]));
  *out = r->value[k];
  return SC_OK;
}

static sc_attr attr_value(const run *r, int k) {
  const ast *a = &r->f->node[k];
  switch (a->kind) {
    case A_NUMBER: return a->integer ? sc__int((int64_t)a->number) : sc__float(a->number);
    case A_BOOL: return sc__bool(a->number != 0);
    case A_TEXT: return sc__str(a->text);
    case A_LIST: return sc__ints(a->list, a->n);
    case A_ATTR: return r->g->attr[a->index];
    case A_IN: {                                       /* a number of the script where an attribute stands */
      const sc_tensor *t = r->g->in[a->index];
      if (!t || !(t->flags & SC_T_WRAPPED)) return sc__none();
      sc_scalar v = sc__load((sc_dtype)t->dtype, t->data);
      return v.is_int ? sc__int(v.i) : sc__float(v.f);
    }
    case A_SHAPE: {
      const int64_t *s = a->output ? r->out_shape[a->index] + 1 : r->in_shape[a->index];
      if (!s) s = r->out_shape[0] + 1;               /* the input has the first result's shape */
      return sc__ints(s + 1, (int)s[0]);
    }
    default: return sc__none();
  }
}

static sc_status call(run *r, int k) {
  const ast *a = &r->f->node[k];
  sc_tensor *in[SC_MAX_INPUTS] = {0}, *out[SC_MAX_OUTPUTS];
  sc_attr attr[SC_MAX_ATTRS];
  sc__attr_defaults(a->op, attr);
  for (int i = 0; i < a->n && i < a->op->n_params; i++) {
    const sc_param *p = &a->op->param[i];
    if (p->type == SC_P_TENSOR) SC_TRY(tensor_value(r, a->arg[i], &in[p->slot]));
    else attr[p->slot] = attr_value(r, a->arg[i]);
  }
  int n;
  SC_TRY(sc__emit(r->g->ctx, a->op, in, a->op->n_in, attr, r->g->base, out, &n));
  for (int i = 1; i < n; i++) sc_tensor_release(out[i]);
  r->value[k] = out[0];
  return SC_OK;
}

/* ---- running: fused ---- */

static bool fuse_call(sc_fuser *f, run *r, const ast *a, sc_operand *done, sc_operand *result) {
  sc_operand in[3];
  for (int i = 0; i < a->op->def->pw->arity; i++) {
    const ast *b = &r->f->node[a->arg[i]];
    if (b->kind == A_CALL) { in[i] = done[a->arg[i]]; continue; }
    sc_tensor *t = borrowed(r->g, b);
    double v = b->kind == A_ATTR ? sc__number(&r->g->attr[b->index]) : b->number;
    if (t ? !sc__fuse_tensor(f, t, &in[i]) : !sc__fuse_number(f, v, &in[i])) return false;
  }
  sc_attr attr[SC_MAX_ATTRS];
  sc__attr_defaults(a->op, attr);
  for (int i = a->op->n_in; i < a->n; i++) attr[a->op->param[i].slot] = attr_value(r, a->arg[i]);
  return sc__fuse_op(f, r->g->ctx->isa, a->op, attr, in, result);
}

/* false: cannot be fused (too long, or shapes that do not meet); then it runs op by op. */
static bool fused(run *r, sc_tensor **dx, sc_status *status) {
  sc_fuser f;
  sc_operand done[SC_AST_NODES];
  sc__fuse_begin(&f);
  for (int k = 0; k < r->f->n; k++) {
    const ast *a = &r->f->node[k];
    if (a->kind == A_CALL) { if (!fuse_call(&f, r, a, done, &done[k])) return false; continue; }
    sc_tensor *t = borrowed(r->g, a);
    if (t && sc__is_symbolic(t)) return false;
    if ((a->kind == A_DY || a->kind == A_IN || a->kind == A_OUT) && !t) return false;
  }
  sc__fuse_end(&f);
  sc_meta m = {.ndim = 0};
  for (int i = 0; i < f.p.n_in; i++) {
    int64_t dim[SC_MAX_DIMS];
    int n;
    if (!sc__broadcast(m.ndim, m.dim, f.in[i]->ndim, f.in[i]->dim, &n, dim)) return false;
    m.ndim = n;
    memcpy(m.dim, dim, (size_t)n * 8);
  }
  m.dtype = done[r->f->root].dtype;
  *status = sc__tensor_like_meta(r->g->ctx, r->g->op->name, &m, dx);
  if (*status == SC_OK) sc__program_run(r->g->ctx, &f.p, *dx, f.in);
  return true;
}

sc_status sc__formula_run(const sc_formula *f, sc_grad_call *g, const int64_t *const *in_shape, const int64_t *const *out_shape,
                          sc_tensor **dx) {
  run r = {.f = f, .g = g, .in_shape = in_shape, .out_shape = out_shape};
  sc_status s = SC_OK;
  if (f->pointwise && !g->ctx->grad_enabled && fused(&r, dx, &s)) return s;
  for (int k = 0; k < f->n && s == SC_OK; k++)
    if (f->node[k].kind == A_CALL) s = call(&r, k);
  sc_tensor *t = NULL;
  if (s == SC_OK) s = tensor_value(&r, f->root, &t);
  *dx = t ? sc_tensor_retain(t) : NULL;
  for (int k = 0; k < f->n; k++) sc_tensor_release(r.value[k]);
  return s;
}
