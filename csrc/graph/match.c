/* Matching: whether a pattern fits the part of a graph that ends in a node. See rewrite.h for what patterns say.
**
** The root is a node of the old graph about to be copied, everything inside is in the new graph already, as earlier rewrites left it.
** What is inside must be pure, and nobody may have written to it, or to what it reads, since: the replacement reads that later.
** Operands of ops that commute are tried in both orders. */
#include "rewrite.h"

#include <stddef.h>
#include <string.h>

static bool match_value(sc_match *m, int k, int32_t v);

bool sc__rw_is_number(const sc_rewriter *w, int32_t v, double *out) {
  const sc_tensor *t = v < 0 ? NULL : w->to->value[v].captured;
  if (!t || !(t->flags & SC_T_WRAPPED)) return false;
  *out = sc__load((sc_dtype)t->dtype, t->data).f;
  return true;
}

/* ---- the same value ---- */

static bool same_number(const sc_rewriter *w, int32_t a, int32_t b) {
  double x, y;
  return sc__rw_is_number(w, a, &x) && sc__rw_is_number(w, b, &y) && memcmp(&x, &y, 8) == 0 && w->to->value[a].dtype == w->to->value[b].dtype;
}

/* Two nodes that compute the same thing, a few levels deep: `x - mean(x)` written twice. */
static bool same_value(const sc_rewriter *w, int32_t a, int32_t b, int depth) {
  if (a == b || same_number(w, a, b)) return true;
  if (a < 0 || b < 0 || depth == 0) return false;
  const sc_value *x = &w->to->value[a], *y = &w->to->value[b];
  if (x->node < 0 || y->node < 0) return false;
  const sc_graph_node *p = &w->to->node[x->node], *q = &w->to->node[y->node];
  if (p->op != q->op || p->base != q->base || p->n_in != q->n_in || sc__node_acts(p)) return false;
  if (a - p->out[0] != b - q->out[0] || !sc__same_attrs(p->op, p->attr, q->attr)) return false;
  if (w->value[x->root].write >= 0 || w->value[y->root].write >= 0) return false;
  for (int i = 0; i < p->n_in; i++) {
    if (!same_value(w, p->in[i], q->in[i], depth - 1)) return false;
    int32_t r = p->in[i] < 0 ? -1 : w->to->value[p->in[i]].root;
    if (r >= 0 && w->value[r].write > (x->node < y->node ? x->node : y->node)) return false;
  }
  return true;
}

/* ---- attributes ---- */

/* Dims as positions from the front; one of them as a plain number. */
static sc_attr canonical(const sc_param *p, const sc_attr *a, int ndim, int64_t *list) {
  sc_attr r = *a;
  if (p->type != SC_P_DIM && p->type != SC_P_DIMS) {
    if (a->kind == SC_ATTR_INTS && a->n <= SC_MAX_DIMS) { memcpy(list, a->v, (size_t)a->n * 8); r.v = list; }
    return r;
  }
  if (a->kind == SC_ATTR_INTS && a->n == 1) r = sc__int(a->v[0]);
  if (r.kind == SC_ATTR_INT) { if (r.i < 0) r.i += ndim ? ndim : 1; return r; }
  if (r.kind != SC_ATTR_INTS || r.n > SC_MAX_DIMS) return r;
  for (int i = 0; i < r.n; i++) {                      /* insertion sort */
    int64_t d = a->v[i] < 0 ? a->v[i] + ndim : a->v[i];
    int k = i;
    for (; k > 0 && list[k - 1] > d; k--) list[k] = list[k - 1];
    list[k] = d;
  }
  r.v = list;
  return r;
}

static bool same_attr(const sc_attr *x, const sc_attr *y) {
  bool numbers = (x->kind == SC_ATTR_INT || x->kind == SC_ATTR_FLOAT) && (y->kind == SC_ATTR_INT || y->kind == SC_ATTR_FLOAT);
  if (numbers) return sc__number(x) == sc__number(y);
  return sc__same_attr(x, y);
}

static bool match_attr(sc_match *m, int k, const sc_param *p, const sc_attr *given, int ndim) {
  const sc_ast *a = &m->rule->pattern->node[k];
  int64_t list[SC_MAX_DIMS];
  sc_attr is = canonical(p, given, ndim, a->kind == A_ATTR ? m->list[a->index] : list), want;
  switch (a->kind) {
    case A_ATTR: {
      if (m->bound_attr[a->index]) return same_attr(&m->attr[a->index], &is);
      m->bound_attr[a->index] = true;
      m->attr[a->index] = is;
      return true;
    }
    case A_NONE: return is.kind == SC_ATTR_NONE;
    case A_NUMBER: want = a->integer ? sc__int((int64_t)a->number) : sc__float(a->number); break;
    case A_BOOL: want = sc__bool(a->number != 0); break;
    case A_TEXT: want = sc__str(a->text); break;
    case A_LIST: want = sc__ints(a->list, a->n); break;
    default: return false;
  }
  int64_t other[SC_MAX_DIMS];
  want = canonical(p, &want, ndim, other);
  return same_attr(&want, &is);
}

/* ---- trees ---- */

static bool match_args(sc_match *m, const sc_ast *a, const int32_t *in, int n_in, const sc_attr *attr) {
  const sc_opinfo *op = a->op;
  int ndim = n_in && in[0] >= 0 ? m->w->to->value[in[0]].ndim : 0;
  for (int i = 0; i < op->n_params; i++) {
    const sc_param *p = &op->param[i];
    if (p->type == SC_P_TENSOR) {
      if (p->slot >= n_in) return false;
      if (i < a->n ? !match_value(m, a->arg[i], in[p->slot]) : in[p->slot] >= 0) return false;
    } else if (i < a->n) {
      if (!match_attr(m, a->arg[i], p, &attr[p->slot], ndim)) return false;
    } else if (!same_attr(&p->preset, &attr[p->slot])) {
      return false;
    }
  }
  return true;
}

static bool commutes(const sc_ast *a, const sc_attr *attr) {
  if (a->op->n_in != 2 || a->n < 2) return false;
  if (a->op->flags & SC_OP_COMMUTATIVE) return true;
  return a->op->def->pw && a->op->def->pw->id == SC_PW_add && sc__number(&attr[0]) == 1;
}

static bool match_call(sc_match *m, const sc_ast *a, const int32_t *in, int n_in, const sc_attr *attr) {
  if (!commutes(a, attr)) return match_args(m, a, in, n_in, attr);
  char before[offsetof(sc_match, list)];               /* the lists are written again */
  memcpy(before, m, sizeof before);
  if (match_args(m, a, in, n_in, attr)) return true;
  memcpy(m, before, sizeof before);
  int32_t other[2] = {in[1], in[0]};
  return match_args(m, a, other, 2, attr);
}

static bool match_node(sc_match *m, const sc_ast *a, int32_t v) {
  const sc_rewriter *w = m->w;
  const sc_value *x = &w->to->value[v];
  if (x->node < 0) return false;
  const sc_graph_node *n = &w->to->node[x->node];
  if (n->op != a->op || n->out[0] != v || sc__node_acts(n)) return false;
  if (w->value[x->root].write > x->node) return false;
  for (int i = 0; i < m->n_inner; i++) if (m->inner[i] == x->node) return match_call(m, a, n->in, n->n_in, n->attr);
  if (m->n_inner == SC_RW_INNER) return false;
  m->inner[m->n_inner++] = x->node;
  return match_call(m, a, n->in, n->n_in, n->attr);
}

static bool match_value(sc_match *m, int k, int32_t v) {
  const sc_ast *a = &m->rule->pattern->node[k];
  double number;
  switch (a->kind) {
    case A_IN:
      if (v < 0 && !a->optional) return false;
      if (m->bound[a->index]) return same_value(m->w, m->value[a->index], v, 3);
      m->bound[a->index] = true;
      m->value[a->index] = v;
      return true;
    case A_NONE: return v < 0;
    case A_NUMBER: return sc__rw_is_number(m->w, v, &number) && number == a->number;
    case A_CALL: return v >= 0 && match_node(m, a, v);
    default: return false;
  }
}

/* Nothing that the pattern reads has been written to since its first node stood. */
static bool unwritten(const sc_match *m) {
  int32_t first = INT32_MAX;
  for (int i = 0; i < m->n_inner; i++) if (m->inner[i] < first) first = m->inner[i];
  for (int i = 0; i < SC_RW_TENSORS; i++) {
    if (!m->bound[i] || m->value[i] < 0) continue;
    if (m->w->value[m->w->to->value[m->value[i]].root].write > first) return false;
  }
  return true;
}

static int32_t reads_inside(const sc_match *m, int32_t v) {
  int32_t n = 0;
  for (int i = 0; i < m->n_inner; i++) {
    const sc_graph_node *node = &m->w->to->node[m->inner[i]];
    for (int k = 0; k < node->n_in; k++) n += node->in[k] == v;
  }
  for (int k = 0; k < m->root->n_in; k++) n += m->root->in[k] >= 0 && m->w->id[m->root->in[k]] == v;
  return n;
}

static bool owns(const sc_match *m) {
  for (int i = 0; i < m->n_inner; i++) {
    const sc_graph_node *n = &m->w->to->node[m->inner[i]];
    for (int k = 0; k < n->n_out; k++) if (m->w->value[n->out[k]].uses > reads_inside(m, n->out[k])) return false;
  }
  return true;
}

bool sc__rw_match(sc_rewriter *w, const sc_rule *r, const sc_graph_node *n, const int32_t *in, sc_match *m) {
  m->w = w;
  m->rule = r;
  m->root = n;
  m->n_inner = 0;
  memset(m->bound, 0, sizeof m->bound);
  memset(m->bound_attr, 0, sizeof m->bound_attr);
  const sc_ast *a = &r->pattern->node[r->pattern->root];
  return match_call(m, a, in, n->n_in, n->attr) && unwritten(m) && (!(r->row->flags & SC_RW_OWNS) || owns(m));
}

/* ---- for guards ---- */

static int tensor_named(const sc_match *m, const char *name) {
  for (int i = 0; i < SC_RW_TENSORS; i++) if (strcmp(m->rule->tensor[i], name) == 0) return i;
  return -1;
}

const sc_value *sc__rw_value(const sc_match *m, const char *name) {
  int i = tensor_named(m, name);
  return i < 0 || !m->bound[i] || m->value[i] < 0 ? NULL : &m->w->to->value[m->value[i]];
}

bool sc__rw_number(const sc_match *m, const char *name, double *out) {
  int i = tensor_named(m, name);
  return i >= 0 && m->bound[i] && sc__rw_is_number(m->w, m->value[i], out);
}

sc_attr *sc__rw_attr(sc_match *m, const char *name) {
  for (int i = 0; i < SC_RW_ATTRS; i++) if (strcmp(m->rule->attr[i], name) == 0) return &m->attr[i];
  return NULL;
}

void sc__rw_set(sc_match *m, const char *name, sc_attr a) {
  sc_attr *at = sc__rw_attr(m, name);
  if (at) *at = a;
}

void sc__rw_set_numbers(sc_match *m, const char *name, const double *v, int n) {
  sc_attr *at = sc__rw_attr(m, name);
  if (!at) return;
  memcpy(m->list[at - m->attr], v, (size_t)n * sizeof *v);
  *at = (sc_attr){.kind = SC_ATTR_FLOATS, .n = n, .v = m->list[at - m->attr]};
}

void sc__rw_set_list(sc_match *m, const char *name, const int64_t *v, int n) {
  sc_attr *at = sc__rw_attr(m, name);
  if (!at) return;
  int64_t *list = m->list[at - m->attr];
  memcpy(list, v, (size_t)n * 8);
  *at = sc__ints(list, n);
}
