/* Looking for NaN while a run goes on: after every step its results are looked at. A tile program has results that nobody can look at, so
** its members are run one by one as well, before it, into tensors of their own; so is an outer product that an update makes itself. The
** first member whose result holds NaN is named, not the group. */
#include "plan.h"

#include <math.h>

sc_status sc__located(sc_plan *p, int32_t node, sc_status status) { return sc__fail_at(p->ctx, &p->g->node[node].where, status); }

static bool has_nan(const sc_tensor *t) {
  sc_tensor *packed;
  if (!sc__is_float((sc_dtype)t->dtype) || sc__tensor_packed((sc_tensor *)t, &packed) != SC_OK) return false;
  int64_t z = (int64_t)sc_dtype_size((sc_dtype)t->dtype), i = 0;
  while (i < t->numel && !isnan(sc__load((sc_dtype)t->dtype, packed->data + i * z).f)) i++;
  sc_tensor_release(packed);
  return i < t->numel;
}

static sc_status look(sc_plan *p, int32_t node, int result, const sc_tensor *t) {
  if (!t || !t->data || !has_nan(t)) return SC_OK;
  return sc__located(p, node, sc__fail(p->ctx, SC_EINVAL, "check_nan: result %d of %s holds NaN", result + 1, p->g->node[node].op->name));
}

/* Operand v of a member, new: what another member has made, or a view of that, or what the plan has. */
static sc_status operand(sc_plan *p, int32_t v, sc_tensor *const *made, sc_tensor **out) {
  if (v < 0) { *out = NULL; return SC_OK; }
  v = p->view.same[v];
  const sc_value *x = &p->g->value[v];
  int32_t maker = p->g->value[sc__view_root(&p->view, v)].node;
  sc_tensor *base = maker >= 0 ? made[maker] : NULL;
  if (!base) { *out = sc_tensor_retain(p->slot[v]); return SC_OK; }
  if (!x->view) { *out = sc_tensor_retain(base); return SC_OK; }
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)x->dtype, x->ndim, x->dim);
  for (int i = 0; i < x->ndim; i++) m.stride[i] = x->dim[x->ndim + i];
  m.offset = x->offset / (int64_t)sc_dtype_size((sc_dtype)x->dtype);
  return sc__tensor_view(base, &m, out);
}

static sc_status member(sc_plan *p, int32_t k, sc_tensor **made) {
  const sc_graph_node *n = &p->g->node[k];
  sc_tensor *in[SC_MAX_INPUTS] = {0}, *out[SC_MAX_OUTPUTS];
  int n_out = 0;
  sc_status s = SC_OK;
  for (int i = 0; i < n->n_in && s == SC_OK; i++) s = operand(p, n->in[i], made, &in[i]);
  if (s == SC_OK) s = sc__emit(p->ctx, n->op, in, n->n_in, n->attr, n->base, out, &n_out);
  for (int i = 0; i < n->n_in; i++) sc_tensor_release(in[i]);
  for (int i = 1; i < n_out; i++) sc_tensor_release(out[i]);
  if (s != SC_OK) return sc__located(p, k, s);
  made[k] = out[0];
  return look(p, k, 0, out[0]);
}

sc_status sc__watch_before(sc_plan *p, int i) {
  int32_t node = p->step[i].node;
  if (p->view.group[node] < 0) return SC_OK;
  size_t bytes = p->g->n_nodes * sizeof(sc_tensor *);
  sc_tensor **made = sc__alloc_zero(p->ctx, bytes);
  if (!made) return sc__no_memory(p->ctx, bytes);
  sc_status s = SC_OK;
  for (int32_t k = sc__first_of(p, node); k >= 0 && s == SC_OK; k = sc__next_of(p, k))
    if (!p->g->node[k].inplace && p->g->node[k].n_in <= SC_MAX_INPUTS) s = member(p, k, made);
  for (int32_t k = sc__first_of(p, node); k >= 0; k = sc__next_of(p, k)) sc_tensor_release(made[k]);
  sc__release(p->ctx, made, bytes);
  return s;
}

sc_status sc__watch_after(sc_plan *p, int i) {
  int32_t node = p->step[i].node;
  const sc_graph_node *n = &p->g->node[node];
  for (int k = 0; k < n->n_out; k++) SC_TRY(look(p, node, k, n->out[k] < 0 ? NULL : p->slot[p->view.same[n->out[k]]]));
  return SC_OK;
}
