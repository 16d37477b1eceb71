/* From groups of nodes to tile programs made ready: every member becomes instructions, operands from outside become inputs with their
** strides in the group's space, and what others read becomes results. */
#include "group.h"
#include "plan.h"

#include <string.h>

typedef struct build {
  sc_plan *p;
  sc_fuser f;
  sc_operand *made;              /* [n_nodes] */
  sc_group_space sp;
  sc_domain domain;
  int n_out, result[SC_PROGRAM_OUTPUTS];
  sc_tensor *out[SC_PROGRAM_OUTPUTS];
} build;

static int32_t same(const sc_plan *p, int32_t v) { return p->view.same[v]; }
static int32_t root(const sc_plan *p, int32_t v) { return sc__view_root(&p->view, v); }

/* Operand i of member k. */
static bool operand(build *b, int32_t k, int i, sc_operand *o) {
  const sc_graph *g = b->p->g;
  const sc_graph_node *n = &g->node[k];
  int32_t v = same(b->p, n->in[i]), j = g->value[root(b->p, v)].node, last = b->p->view.group[k];
  if (j >= 0 && last >= 0 && b->p->view.group[j] == last) {
    *o = b->made[j];
    o->rank = g->value[v].ndim == 0;
    return true;
  }
  int64_t stride[SC_GROUP_DIMS] = {0};
  if (sc__group_strides(&g->value[v], n->op->def->fold ? NULL : &g->value[n->out[0]], stride) < 0) return false;
  sc_tensor *t = b->p->slot[v];
  int at = 0;
  while (at < b->f.p.n_in && (b->f.in[at] != t || memcmp(b->domain.is[at], stride, (size_t)b->sp.nd * 8) != 0)) at++;
  if (at == b->f.p.n_in) {
    if (!sc__fuse_another(&b->f, t, o)) return false;
    memcpy(b->domain.is[at], stride, (size_t)b->sp.nd * 8);
    return true;
  }
  *o = (sc_operand){at, (sc_dtype)t->dtype, t->flags & SC_T_WRAPPED ? 2 : t->ndim == 0};
  return true;
}

static bool member(build *b, int32_t k, bool row) {
  const sc_graph *g = b->p->g;
  const sc_graph_node *n = &g->node[k];
  sc_operand in[3];
  int64_t count;
  int rows;
  b->f.row = row && !n->op->def->fold;
  for (int i = 0; i < n->n_in; i++) if (n->in[i] < 0 || !operand(b, k, i, &in[i])) return false;
  bool ok = n->op->def->pw ? sc__fuse_op(&b->f, b->p->ctx->isa, n->op, n->attr, in, &b->made[k])
          : n->op->def->fold ? sc__group_fold(g, n, &count, &rows) && sc__fuse_fold(&b->f, n->op, count, in, &b->made[k])
                             : sc__fuse_cast(&b->f, (sc_dtype)g->value[n->out[0]].dtype, in, &b->made[k]);
  return ok && b->made[k].dtype == (sc_dtype)g->value[n->out[0]].dtype;
}

static bool result(build *b, int32_t k) {
  int32_t v = same(b->p, b->p->g->node[k].out[0]);
  if (b->p->inside[v]) return true;
  if (b->n_out == SC_PROGRAM_OUTPUTS) return false;
  b->result[b->n_out] = sc__fuse_instr(&b->made[k]);
  b->out[b->n_out++] = b->p->slot[v];
  return true;
}

/* *out NULL: it cannot be one program. */
static sc_status finish(build *b, bool ok, sc_tiles **out) {
  *out = NULL;
  if (!ok) return SC_OK;
  sc__fuse_end(&b->f);
  b->domain.nd = b->sp.nd;
  b->domain.fold = b->sp.rows < 0 ? 0 : b->sp.nd - b->sp.rows;
  memcpy(b->domain.dim, b->sp.dim, (size_t)b->sp.nd * 8);
  return sc__tiles_new(b->p->ctx, &b->f.p, &b->domain, b->f.in, b->n_out, b->out, b->result, out);
}

static sc_status group(build *b, int32_t last, sc_tiles **out) {
  const sc_view_of_graph *v = &b->p->view;
  sc__group_space(b->p->g, v, last, &b->sp);
  sc__fuse_begin(&b->f);
  b->n_out = 0;
  bool ok = true;
  for (int32_t k = v->first[last]; k >= 0 && ok; k = v->next[k]) ok = member(b, k, v->row[k]) && result(b, k);
  return finish(b, ok, out);
}

/* One pointwise node: no program in the way of what looks at values before it runs. */
static sc_status single(build *b, int32_t k, sc_tiles **out) {
  const sc_graph_node *n = &b->p->g->node[k];
  *out = NULL;
  if (!n->op->def->pw || n->inplace || n->op->n_attr > SC_PROGRAM_PARAMS || n->n_in > 3) return SC_OK;
  const sc_value *y = &b->p->g->value[same(b->p, n->out[0])];
  b->sp = (sc_group_space){.rows = -1};
  for (int i = 0; i < y->ndim; i++) {
    if (y->dim[i] == 1) continue;
    if (y->dim[i] == 0 || b->sp.nd == SC_GROUP_DIMS) return SC_OK;
    b->sp.dim[b->sp.nd++] = y->dim[i];
  }
  sc__fuse_begin(&b->f);
  b->n_out = 0;
  return finish(b, member(b, k, false) && result(b, k), out);
}

/* Which results of members nobody outside of their group reads. */
static void find_inside(sc_plan *p) {
  const sc_graph *g = p->g;
  const sc_view_of_graph *v = &p->view;
  for (int32_t k = 0; k < (int32_t)g->n_nodes; k++)
    if (v->group[k] >= 0) p->inside[same(p, g->node[k].out[0])] = true;
  for (int32_t k = 0; k < (int32_t)g->n_nodes; k++) {
    const sc_graph_node *n = &g->node[k];
    if (!sc__view_runs(v, k)) continue;
    for (int i = 0; i < n->n_in; i++) {
      int32_t r = n->in[i] < 0 ? -1 : root(p, n->in[i]), j = r < 0 ? -1 : g->value[r].node;
      if (j >= 0 && v->group[j] >= 0 && v->group[j] != v->group[k]) p->inside[r] = false;
    }
  }
  for (size_t i = 0; i < g->n_outputs; i++) p->inside[root(p, g->output[i].value)] = false;
}

/* A group that is no program is taken apart; `next` and `first` stay for whoever goes through it. */
static sc_status take_apart(build *b, int32_t last, sc_tiles **of) {
  sc_plan *p = b->p;
  for (int32_t k = p->view.first[last]; k >= 0; k = p->view.next[k]) {
    p->inside[same(p, p->g->node[k].out[0])] = false;
    p->view.group[k] = -1;
  }
  for (int32_t k = p->view.first[last]; k >= 0; k = p->view.next[k]) SC_TRY(single(b, k, &of[k]));
  return SC_OK;
}

sc_status sc__programs_new(sc_plan *p, sc_tiles **of) {
  const sc_graph *g = p->g;
  size_t bytes = sizeof(build) + (g->n_nodes + 1) * sizeof(sc_operand);
  build *b = sc__alloc_zero(p->ctx, bytes);
  if (!b) return sc__no_memory(p->ctx, bytes);
  b->p = p;
  b->made = (sc_operand *)(b + 1);
  find_inside(p);
  sc_status s = SC_OK;
  for (int32_t i = 0; i < p->view.n_order && s == SC_OK; i++) {
    int32_t k = p->view.order[i];
    if (p->view.group[k] < 0) { s = single(b, k, &of[k]); continue; }
    s = group(b, k, &of[k]);
    if (s == SC_OK && !of[k]) s = take_apart(b, k, of);
  }
  sc__release(p->ctx, b, bytes);
  return s;
}
