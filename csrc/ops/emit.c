/* The one door to the op table. See ops.h for the contract.
**
** The order is what makes a failing op change nothing: infer (check everything), allocate, record on the tape, then run. An in-place
** op's result is its first input: kernels write there only when infer has accepted the shapes; ops whose kernel cannot work in
** place run into a fresh tensor that is then copied over. What it changes on the tape takes effect when the write is done.
** Random numbers drawn by an op that then fails are given back. */
#include "ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void drop_outputs(sc_call *c) {
  for (int i = 0; i < c->n_out; i++) { sc_tensor_release(c->out[i]); c->out[i] = NULL; }
}

static sc_status make_views(sc_call *c) {
  int64_t n;
  for (int i = 0; i < c->n_out; i++) {
    SC_TRY(sc__numel(c->ctx, c->op->name, c->meta[i].dtype, c->meta[i].ndim, c->meta[i].dim, &n));
    SC_TRY(sc__tensor_view(c->in[0], &c->meta[i], &c->out[i]));
  }
  return SC_OK;
}

static sc_status make_outputs(sc_call *c) {
  for (int i = 0; i < c->n_out; i++) SC_TRY(sc__tensor_like_meta(c->ctx, c->op->name, &c->meta[i], &c->out[i]));
  return SC_OK;
}

/* Views of captured tensors keep the address of what they are cut from, views of a graph's own values count from 0: where one of two holds data,
** addresses decide. */
bool sc__tensors_meet(const sc_tensor *a, const sc_tensor *b) {
  if (a->storage && b->storage) return sc__tensor_may_overlap(a, b);
  if (!a->storage && !b->storage && !a->ctx->same_value(a, b)) return false;
  return sc__tensor_ranges_meet(a, b);
}

/* The checks of an in-place call that every op shares. */
static sc_status check_inplace(sc_call *c, bool wants_grad) {
  sc_tensor *x = c->in[0];
  char want[256], got[256];
  sc_meta *m = &c->meta[0];
  if (m->ndim != x->ndim || memcmp(m->dim, x->dim, (size_t)x->ndim * sizeof(int64_t)) != 0)
    return sc__bad_call(c, "the result's shape %s does not fit the tensor written to, %s", sc__shape_text(m->ndim, m->dim, want, sizeof want),
                        sc__shape_text(x->ndim, x->dim, got, sizeof got));
  if (sc__category(m->dtype) > sc__category((sc_dtype)x->dtype))
    return sc__bad_call(c, "a result of %s cannot be written into a tensor of %s", sc_dtype_name(m->dtype), sc_dtype_name((sc_dtype)x->dtype));
  if (sc__tensor_self_overlap(x))
    return sc__bad_call(c, "the tensor written to overlaps itself (an expanded view?); clone it first");
  for (int i = 1; i < c->n_in; i++)
    if (c->in[i] && sc__tensors_meet(x, c->in[i]) &&
        !(c->in[i]->data == x->data && c->in[i]->ndim == x->ndim && memcmp(c->in[i]->dim, x->dim, (size_t)x->ndim * 16) == 0))
      return sc__bad_call(c, "argument %d overlaps the tensor written to; clone it first", i + 1);
  return c->ctx->may_write(c, wants_grad);
}

static sc_status run_inplace(sc_call *c) {
  sc_tensor *x = c->in[0];
  if (c->op->def->pw || c->op->flags & SC_OP_DIRECT) { /* element by element: straight into x */
    c->out[0] = sc_tensor_retain(x);
    SC_TRY(c->op->def->run(c));
  } else {
    SC_TRY(make_outputs(c));
    SC_TRY(c->op->def->run(c));
    SC_TRY(sc__tensor_copy(x, c->out[0]));
    sc_tensor_release(c->out[0]);
    c->out[0] = sc_tensor_retain(x);
  }
  sc__bump_version(x);
  return SC_OK;
}

static bool any_symbolic(sc_tensor **in, int n) {
  for (int i = 0; i < n; i++)
    if (in[i] && sc__is_symbolic(in[i])) return true;
  return false;
}

/* Made of nothing, or cut from a tensor with data, but of a size that is not known yet: it belongs into the graph being built. */
static bool of_symbolic_size(const sc_call *c) {
  if (!c->ctx->building || (c->n_in && !(c->op->flags & SC_OP_VIEW))) return false;
  for (int i = 0; c->n_in && i < c->in[0]->ndim; i++) if (c->ctx->symbolic_size(c->in[0]->dim[i])) return false;
  for (int i = 0; i < c->meta[0].ndim; i++) if (c->ctx->symbolic_size(c->meta[0].dim[i])) return true;
  return false;
}

/* Dtypes that are only stored are for ops that move or convert. */
static sc_status check_stored(sc_call *c) {
  if (c->op->flags & (SC_OP_VIEW | SC_OP_STORES)) return SC_OK;
  for (int i = 0; i < c->n_in; i++)
    if (c->in[i] && SC_UNLIKELY(sc__is_stored((sc_dtype)c->in[i]->dtype)))
      return sc__bad_input(c, i, "%s is only stored, not computed with: convert it first, as by x:to(\"float32\")", sc_dtype_name((sc_dtype)c->in[i]->dtype));
  for (int i = 0; i < c->op->n_attr; i++)
    if (SC_UNLIKELY(c->attr[i].kind == SC_ATTR_DTYPE && sc__is_stored((sc_dtype)c->attr[i].i)))
      return sc__bad_attr(c, i, "%s is only stored, not computed in: convert the result, as by x:to(\"%s\")", sc_dtype_name((sc_dtype)c->attr[i].i),
                          sc_dtype_name((sc_dtype)c->attr[i].i));
  return SC_OK;
}

static sc_status emit_primitive(sc_call *c, bool wants_grad) {
  sc_meta meta[SC_MAX_OUTPUTS];
  c->meta = meta;
  c->n_out = 1;
  SC_TRY(check_stored(c));
  SC_TRY(c->op->def->infer(c));
  if (c->inplace) SC_TRY(check_inplace(c, wants_grad));
  bool remember = wants_grad || (c->op->flags & SC_OP_VIEW && c->ctx->grad_enabled && !(c->op->flags & SC_OP_DETACH));
  if (c->ctx->tracing || any_symbolic(c->in, c->n_in) || of_symbolic_size(c)) {
    SC_TRY(c->ctx->trace(c));
    sc_status s = remember ? c->ctx->record(c, wants_grad) : SC_OK;
    if (s != SC_OK) c->ctx->retract(c);
    return s;
  }
  bool view = c->op->flags & SC_OP_VIEW && !c->inplace;
  if (view) SC_TRY(make_views(c));
  else if (!c->inplace) SC_TRY(make_outputs(c));
  if (remember) SC_TRY(c->ctx->record(c, wants_grad));
  if (view) return SC_OK;
  SC_TRY(c->inplace ? run_inplace(c) : c->op->def->run(c));
  for (int i = 0; i < c->n_in && c->op->def->writes; i++)
    if (c->op->def->writes >> i & 1 && c->in[i]) sc__bump_version(c->in[i]);
  return SC_OK;
}

static sc_generator *own_generator(const sc_opinfo *op, const sc_attr *attr) {
  for (int i = 0; i < op->n_attr; i++) if (attr[i].kind == SC_ATTR_GENERATOR) return attr[i].p;
  return NULL;
}

/* A refusal of memory, or of a size, says who asked; what was called and is made of other ops stands before what those say. */
static void name_speaker(sc_call *c, sc_status s, bool outermost) {
  bool composed = outermost && c->op->def->compose && !(c->op->flags & SC_OP_INTERNAL);
  char text[400];
  size_t own = strlen(c->op->name);
  bool memory = s == SC_ENOMEM && strncmp(c->ctx->error, "not enough memory", 17) == 0;
  bool inner = c->op->flags & SC_OP_INTERNAL && strncmp(c->ctx->error, c->op->name, own) == 0 && c->ctx->error[own] == ':';
  if (!memory && !inner && !composed) return;
  snprintf(text, sizeof text, "%.390s", c->ctx->error + (inner ? own + 2 : 0));
  const char *name = composed ? c->op->name : sc__speaker(c)->name;
  if (strncmp(text, name, strlen(name)) != 0 || text[strlen(name)] != ':') sc__fail(c->ctx, s, "%s: %s", name, text);
}

sc_status sc__emit(sc_context *ctx, const sc_opinfo *op, sc_tensor **in, int n_in, const sc_attr *attr, uint8_t base, sc_tensor **out,
                   int *n_out) {
  sc_call c;
  c.ctx = ctx; c.op = op; c.in = in; c.n_in = n_in; c.attr = attr; c.base = base; c.inplace = op->inplace;
  c.n_out = 0;
  c.old = NULL;
  c.node = c.base_node = NULL;
  c.said = NULL;
  sc_generator *own = op->flags & SC_OP_RANDOM || op->def->compose ? own_generator(op, attr) : NULL;
  sc_generator rng = ctx->rng, own_rng = own ? *own : rng;
  for (int i = 0; i < SC_MAX_OUTPUTS; i++) c.out[i] = NULL;
  const sc_opinfo *speaker = ctx->speaker;
  if (op->def->compose && !speaker && !(op->flags & SC_OP_INTERNAL)) ctx->speaker = op;
  sc_status s = op->def->compose ? op->def->compose(&c) : SC_OK;
  if (s == SC_OK && op->def->infer && c.n_out == 0) {   /* a row with both: compose has declined */
    bool grad = false;
    if (ctx->grad_enabled && !(op->flags & SC_OP_DETACH))
      for (int i = 0; i < n_in && !grad; i++) grad = in[i] && (in[i]->ad || in[i]->flags & SC_T_REQUIRES) && sc_requires_grad(in[i]);
    s = emit_primitive(&c, grad || (c.inplace && ctx->grad_enabled && n_in > 0 && in[0]->ad));
    if (c.node) ctx->commit(&c, s == SC_OK);
  }
  if (s != SC_OK) name_speaker(&c, s, !speaker);
  ctx->speaker = speaker;
  sc_tensor_release(c.old);
  if (s != SC_OK) {
    drop_outputs(&c);
    ctx->rng = rng;
    if (own) *own = own_rng;
    return s;
  }
  for (int i = 0; i < c.n_out; i++) out[i] = c.out[i];
  *n_out = c.n_out;
  return SC_OK;
}

void sc__attr_defaults(const sc_opinfo *op, sc_attr *attr) {
  for (int i = 0; i < op->n_attr; i++) attr[i] = op->param[op->attr_param[i]].preset;
}

sc_status sc__op(sc_context *ctx, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr, sc_tensor **out) {
  const sc_opinfo *op = sc__op_find(ctx, name);
  if (!op) return sc__fail(ctx, SC_EINVAL, "there is no op named %s", name);
  sc_attr all[SC_MAX_ATTRS];
  sc__attr_defaults(op, all);
  for (int i = 0; i < n_attr; i++) all[i] = attr[i];
  sc_tensor *res[SC_MAX_OUTPUTS];
  int n;
  SC_TRY(sc__emit(ctx, op, in, n_in, all, ctx->index_base, res, &n));
  for (int i = 1; i < n; i++) sc_tensor_release(res[i]);
  *out = res[0];
  return SC_OK;
}

sc_status sc__grad_op(sc_grad_call *g, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr, sc_tensor **out) {
  uint8_t base = g->ctx->index_base;
  g->ctx->index_base = g->base;
  sc_status s = sc__op(g->ctx, name, in, n_in, attr, n_attr, out);
  g->ctx->index_base = base;
  return s;
}

sc_status sc__op1(sc_context *ctx, const char *name, sc_tensor *a, sc_tensor **out) {
  return sc__op(ctx, name, (sc_tensor *[]){a}, 1, NULL, 0, out);
}

sc_status sc__op2(sc_context *ctx, const char *name, sc_tensor *a, sc_tensor *b, sc_tensor **out) {
  return sc__op(ctx, name, (sc_tensor *[]){a, b}, 2, NULL, 0, out);
}

sc_status sc_op_call(sc_context *ctx, const char *name, sc_tensor *const *in, int n_in, const sc_named_attr *attrs, int n_attrs,
                     sc_tensor **out, int n_out) {
  const sc_opinfo *op = sc__op_find(ctx, name);
  if (!op) return sc__fail(ctx, SC_EINVAL, "there is no op named %s", name);
  if (op->variadic ? n_in < op->n_in - 1 : n_in > op->n_in)
    return sc__fail(ctx, SC_EINVAL, "%s: expected %d tensors, got %d", name, op->n_in, n_in);
  sc_tensor *all_in[SC_MAX_INPUTS] = {0};
  if (!op->variadic) for (int i = 0; i < n_in; i++) all_in[i] = in[i];
  for (int i = 0; !op->variadic && i < op->n_in; i++)
    if (!all_in[i] && op->param[op->in_param[i]].required)
      return sc__fail(ctx, SC_EINVAL, "%s: argument %s is missing", name, op->param[op->in_param[i]].name);
  sc_attr all[SC_MAX_ATTRS];
  bool given[SC_MAX_ATTRS] = {0};
  sc__attr_defaults(op, all);
  for (int i = 0; i < n_attrs; i++) {
    int k = 0;
    while (k < op->n_attr && strcmp(op->param[op->attr_param[k]].name, attrs[i].name) != 0) k++;
    if (k == op->n_attr) return sc__fail(ctx, SC_EINVAL, "%s: there is no attribute named %s", name, attrs[i].name);
    all[k] = attrs[i].value;
    given[k] = true;
  }
  for (int k = 0; k < op->n_attr; k++)
    if (op->param[op->attr_param[k]].required && !given[k])
      return sc__fail(ctx, SC_EINVAL, "%s: attribute %s is missing", name, op->param[op->attr_param[k]].name);
  sc_tensor *res[SC_MAX_OUTPUTS];
  int n;
  uint8_t base = ctx->index_base;
  ctx->index_base = 0;
  sc_status s = sc__emit(ctx, op, op->variadic ? (sc_tensor **)in : all_in, op->variadic ? n_in : op->n_in, all, 0, res, &n);
  ctx->index_base = base;
  SC_TRY(s);
  for (int i = 0; i < n; i++)
    if (i < n_out) out[i] = res[i]; else sc_tensor_release(res[i]);
  for (int i = n; i < n_out; i++) out[i] = NULL;
  return SC_OK;
}

/* ---- messages ----
** They name what the caller called. An internal op speaks for the public one that is defined over it: in C the outermost compose that
** is running, in Lua the composite that the script is in. An argument is then the one of the same name, or goes unnamed. */

const sc_opinfo *sc__speaker(const sc_call *c) {
  const sc_context *ctx = c->ctx;
  if (ctx->speaker && ctx->speaker->flags & SC_OP_INTERNAL) return ctx->speaker;      /* x[key]: speaks for whatever it calls */
  if (!(c->op->flags & SC_OP_INTERNAL)) return c->op;
  const sc_opinfo *op = ctx->composite ? ctx->composite(ctx->locate_user) : NULL;
  return op ? op : ctx->speaker ? ctx->speaker : c->op;
}

static sc_status complain(sc_call *c, const sc_param *p, int at, const char *format, va_list ap) {
  char text[700];
  vsnprintf(text, sizeof text, format, ap);
  if (c->said) return sc__fail(c->ctx, SC_EINVAL, "%s: %s", c->said, text);
  const sc_opinfo *op = sc__speaker(c);
  if (p && op != c->op) {
    at = 0;
    while (at < op->n_params && strcmp(op->param[at].name, p->name) != 0) at++;
    if (at == op->n_params) p = NULL;
  }
  if (!p) return sc__fail(c->ctx, SC_EINVAL, "%s: %s", op->name, text);
  return sc__fail(c->ctx, SC_EINVAL, "%s: argument %d (%s): %s", op->name, at + 1, p->name, text);
}

#define COMPLAIN(c, param_index) \
  va_list ap; \
  va_start(ap, format); \
  int at_ = (param_index); \
  sc_status s = complain(c, at_ < 0 ? NULL : &c->op->param[at_], at_, format, ap); \
  va_end(ap); \
  return s

sc_status sc__bad_input(sc_call *c, int slot, const char *format, ...) {
  COMPLAIN(c, c->op->in_param[slot < c->op->n_in ? slot : c->op->n_in - 1]);
}
sc_status sc__bad_attr(sc_call *c, int slot, const char *format, ...) { COMPLAIN(c, c->op->attr_param[slot]); }
sc_status sc__bad_call(sc_call *c, const char *format, ...) { COMPLAIN(c, -1); }
#undef COMPLAIN

sc_status sc__want(sc_call *c, int slot, int ndim, const int64_t *dim) {
  const sc_tensor *t = slot < c->n_in ? c->in[slot] : NULL;
  char is[200], want[200];
  if (!t || (t->ndim == ndim && memcmp(t->dim, dim, (size_t)ndim * 8) == 0)) return SC_OK;
  return sc__bad_call(c, "operand %d: expected shape %s, got %s", slot + 1, sc__shape_text(ndim, dim, want, sizeof want), sc__shape_text(t->ndim, t->dim, is, sizeof is));
}

/* ---- dims ---- */

static sc_status wrap_dim(sc_call *c, int slot, int64_t d, int ndim, int *out) {
  int n = ndim ? ndim : 1;
  if (d < -n || d >= n) {
    long long shown = d < 0 || d == INT64_MAX ? (long long)d : (long long)d + c->ctx->index_base;
    int first = c->ctx->index_base;
    return sc__bad_attr(c, slot, "dimension %lld is out of range for %d dimensions (expected %d to %d, or %d to -1)", shown, ndim, first,
                        n - 1 + first, -n);
  }
  *out = (int)(d < 0 ? d + n : d);
  return SC_OK;
}

sc_status sc__dim(sc_call *c, int slot, int ndim, int *out) { return wrap_dim(c, slot, c->attr[slot].i, ndim, out); }

sc_status sc__dims(sc_call *c, int slot, int ndim, bool *mask) {
  const sc_attr *a = &c->attr[slot];
  bool all = a->kind == SC_ATTR_NONE || (a->kind == SC_ATTR_INTS && a->n == 0);
  for (int i = 0; i < ndim; i++) mask[i] = all;
  if (all) return SC_OK;
  int n = a->kind == SC_ATTR_INTS ? a->n : 1;
  bool seen[SC_MAX_DIMS + 1] = {0};
  for (int i = 0; i < n; i++) {
    int d = 0;
    SC_TRY(wrap_dim(c, slot, a->kind == SC_ATTR_INTS ? a->v[i] : a->i, ndim, &d));
    if (seen[d]) return sc__bad_attr(c, slot, "dimension %d is named twice", d + c->ctx->index_base);
    seen[d] = true;
    if (ndim) mask[d] = true;
  }
  return SC_OK;
}

/* ---- shapes and dtypes ---- */

void sc__meta_like(sc_meta *m, const sc_tensor *t) { sc__meta_set(m, (sc_dtype)t->dtype, t->ndim, t->dim); }

void sc__meta_set(sc_meta *m, sc_dtype dtype, int ndim, const int64_t *dim) {
  m->dtype = dtype;
  m->ndim = ndim;
  for (int i = 0; i < ndim; i++) m->dim[i] = dim[i];
}

sc_dtype sc__result_dtype(sc_tensor **in, int n) {
  int best[3] = {-1, -1, -1};                          /* tensors with dims, 0-d tensors, numbers */
  for (int i = 0; i < n; i++) {
    if (!in[i]) continue;
    int rank = in[i]->flags & SC_T_WRAPPED ? 2 : in[i]->ndim == 0 ? 1 : 0;
    sc_dtype d = (sc_dtype)in[i]->dtype;
    if (rank == 2) d = sc__category(d) == SC_CAT_FLOAT ? SC_FLOAT32 : d;   /* a number of the script has the default dtype */
    best[rank] = best[rank] < 0 ? (int)d : (int)sc__promote((sc_dtype)best[rank], d);
  }
  int result = best[0];
  for (int r = 1; r < 3; r++) {
    if (best[r] < 0) continue;
    if (result < 0) result = best[r];
    else if (sc__category((sc_dtype)best[r]) > sc__category((sc_dtype)result)) result = best[r];
  }
  return result < 0 ? SC_FLOAT32 : (sc_dtype)result;
}

sc_status sc__broadcast_inputs(sc_call *c, int from) {
  sc_meta *m = &c->meta[0];
  m->ndim = 0;
  bool first = true;
  for (int i = from; i < c->n_in; i++) {
    sc_tensor *t = c->in[i];
    if (!t) continue;
    if (first) {
      m->ndim = t->ndim;
      for (int k = 0; k < t->ndim; k++) m->dim[k] = t->dim[k];
      first = false;
      continue;
    }
    if (t->ndim == m->ndim && memcmp(t->dim, m->dim, (size_t)m->ndim * sizeof(int64_t)) == 0) continue;
    int64_t dim[SC_MAX_DIMS];
    int n;
    if (!sc__broadcast(m->ndim, m->dim, t->ndim, t->dim, &n, dim)) {
      char a[200], b[200];
      return sc__bad_input(c, i, "shape %s does not broadcast with %s", sc__shape_text(t->ndim, t->dim, b, sizeof b),
                           sc__shape_text(m->ndim, m->dim, a, sizeof a));
    }
    m->ndim = n;
    for (int k = 0; k < n; k++) m->dim[k] = dim[k];
  }
  return SC_OK;
}

sc_attr *sc__attrs_copy(sc_context *ctx, const sc_attr *attr, int n, size_t *bytes) {
  size_t size = (size_t)n * sizeof *attr;
  for (int i = 0; i < n; i++) {
    if (attr[i].kind == SC_ATTR_INTS || attr[i].kind == SC_ATTR_FLOATS) size += (size_t)attr[i].n * 8;
    if (attr[i].kind == SC_ATTR_STRING) size += (strlen(attr[i].s) + 8) & ~(size_t)7;
  }
  *bytes = size;
  if (n == 0) return NULL;
  sc_attr *copy = sc__alloc(ctx, size);
  if (!copy) return NULL;
  char *tail = (char *)(copy + n);
  for (int i = 0; i < n; i++) {
    copy[i] = attr[i];
    if (attr[i].kind == SC_ATTR_INTS || attr[i].kind == SC_ATTR_FLOATS) {
      if (attr[i].n) memcpy(tail, attr[i].v, (size_t)attr[i].n * 8);
      copy[i].v = (const int64_t *)tail;
      tail += (size_t)attr[i].n * 8;
    } else if (attr[i].kind == SC_ATTR_STRING) {
      strcpy(tail, attr[i].s);
      copy[i].s = tail;
      tail += (strlen(attr[i].s) + 8) & ~(size_t)7;
    }
  }
  return copy;
}
