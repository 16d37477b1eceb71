/* x[key] and x[key] = value.
**
** A key is read into a *plan*: what the op getview does at once (selects, ranges, new axes), and a list of index tensors with the
** dims of that view they stand for. A key without tensors is therefore one view; tensors add one index_at. Masks become the indices
** of their true elements, but a mask alone goes through masked_select and masked_fill_, which are faster.
**
** Reading a key raises; it holds nothing. What comes after holds tensors and raises only when it has let go. */
#include "binding.h"

#include <string.h>

enum { SELECT, RANGE, NEW, ALL };

typedef struct place { sc_tensor *t; int dim; bool mask; } place;    /* t: borrowed from the key */

typedef struct key {
  sc_tensor *x;
  int64_t plan[4 * SC_MAX_DIMS];
  int n_plan;                        /* entries of four */
  bool plain;                        /* the view is x itself */
  int d, vd;                         /* dims of x taken, dims of the view made */
  place at[SC_MAX_DIMS];
  int n_at;
} key;

static const char *shape_text(const sc_tensor *t, char *out, size_t size) { return sc__shape_text(t->ndim, t->dim, out, size); }

/* ---- reading a key ---- */

static void push(lua_State *L, binding *b, key *k, int64_t kind, int64_t a, int64_t n, int64_t step) {
  char s[200];
  if (kind != NEW && k->d >= k->x->ndim)
    sc__raise_text(L, b, "too many indices for a tensor of shape %s", shape_text(k->x, s, sizeof s));
  if (k->n_plan == SC_MAX_DIMS || k->vd == SC_MAX_DIMS) sc__raise_text(L, b, "index: at most %d entries are possible", SC_MAX_DIMS);
  int64_t *p = &k->plan[4 * k->n_plan++];
  p[0] = kind; p[1] = a; p[2] = n; p[3] = step;
  if (kind != ALL) k->plain = false;
  if (kind != NEW) k->d++;
  if (kind != SELECT) k->vd++;
}

static void push_index(lua_State *L, binding *b, key *k, lua_Integer i) {
  char s[200];
  if (k->d >= k->x->ndim) sc__raise_text(L, b, "too many indices for a tensor of shape %s", shape_text(k->x, s, sizeof s));
  int64_t n = k->x->dim[k->d];
  if (i == 0 || i > n || i < -n) {
    if (n == 0) sc__raise_text(L, b, "index %lld is out of range: dimension %d of shape %s is empty", (long long)i, k->d + 1, shape_text(k->x, s, sizeof s));
    lua_Debug ar;
    bool ipairs = i == n + 1 && lua_getstack(L, 1, &ar) && lua_getinfo(L, "n", &ar) && ar.name && strcmp(ar.name, "for iterator") == 0;
    sc__raise_text(L, b, "index %lld is out of range 1..%lld (dimension %d of shape %s)%s", (long long)i, (long long)n, k->d + 1, shape_text(k->x, s, sizeof s),
                   ipairs ? "; ipairs does not know where a tensor ends: write for i = 1, #x do local row = x[i] … end" : "");
  }
  push(L, b, k, SELECT, i < 0 ? i + n : i - 1, 0, 0);
}

/* {first, last, step}: inclusive, clamped, negative from the end. */
static void push_range(lua_State *L, binding *b, key *k, int at) {
  lua_Integer v[3] = {1, -1, 1};
  char s[200];
  if (lua_rawlen(L, at) > 3) sc__raise_text(L, b, "index: a range is {first, last, step}; a list of indices is a tensor");
  for (int i = 0; i < 3; i++) {
    if (lua_rawgeti(L, at, i + 1) != LUA_TNIL) {
      int whole;
      v[i] = lua_tointegerx(L, -1, &whole);
      sc_tensor *t = whole ? NULL : sc__test_tensor(L, b, lua_gettop(L));
      if (t && t->storage && t->numel == 1 && sc__category((sc_dtype)t->dtype) == SC_CAT_INT) {
        if (b->ctx->tracing) sc__note_read(L, -1);
        v[i] = sc__load((sc_dtype)t->dtype, t->data).i;
        whole = 1;
      }
      if (!whole) sc__raise_text(L, b, "index: a range is {first, last, step} of integers, got %s", sc__got(L, b, -1));
    }
    lua_pop(L, 1);
  }
  if (k->d >= k->x->ndim) sc__raise_text(L, b, "too many indices for a tensor of shape %s", shape_text(k->x, s, sizeof s));
  if (v[2] < 1) sc__raise_text(L, b, "index: the step of a range must be positive, got %lld", (long long)v[2]);
  int64_t n = k->x->dim[k->d];
  int64_t first = v[0] < 0 ? v[0] + n : v[0] - 1, stop = v[1] < 0 ? v[1] + n + 1 : v[1];
  first = first < 0 ? 0 : first > n ? n : first;
  stop = stop < 0 ? 0 : stop > n ? n : stop;
  if (first == 0 && stop == n && v[2] == 1) push(L, b, k, ALL, 0, 0, 0);
  else push(L, b, k, RANGE, first, stop > first ? (stop - first - 1) / v[2] + 1 : 0, v[2]);
}

static void push_tensor(lua_State *L, binding *b, key *k, sc_tensor *t) {
  char s[200], m[200];
  bool mask = t->dtype == SC_BOOL || t->dtype == SC_UINT8;
  if (!mask && t->dtype != SC_INT64)
    sc__raise_text(L, b, "index: tensors used as indices must be int64 or bool, got %s", sc_dtype_name((sc_dtype)t->dtype));
  if (!mask && t->ndim == 0 && t->storage) {           /* a number */
    push_index(L, b, k, *(const int64_t *)t->data);
    return;
  }
  if (k->n_at == SC_MAX_DIMS) sc__raise_text(L, b, "index: at most %d index tensors", SC_MAX_DIMS);
  k->at[k->n_at++] = (place){t, k->vd, mask};
  if (mask && t->ndim == 0) { push(L, b, k, NEW, 0, 0, 0); return; }
  for (int i = 0; i < (mask ? t->ndim : 1); i++) {
    if (mask && (k->d >= k->x->ndim || k->x->dim[k->d] != t->dim[i]))
      sc__raise_text(L, b, "index: the mask's shape %s does not fit the tensor's, %s", shape_text(t, m, sizeof m), shape_text(k->x, s, sizeof s));
    push(L, b, k, ALL, 0, 0, 0);
  }
}

/* Dims of x that the entry at the top of the stack takes; -1: the ellipsis. */
static int takes(lua_State *L, binding *b) {
  if (lua_type(L, -1) == LUA_TTABLE) {
    const void *p = lua_topointer(L, -1);
    return p == b->newaxis ? 0 : p == b->ellipsis ? -1 : 1;
  }
  if (lua_type(L, -1) != LUA_TUSERDATA) return 1;
  sc_tensor *t = sc__test_tensor(L, b, lua_gettop(L));
  return t && (t->dtype == SC_BOOL || t->dtype == SC_UINT8) ? t->ndim : 1;
}

/* The entry at the top of the stack; `rest`: dims that an ellipsis stands for. */
static void read_entry(lua_State *L, binding *b, key *k, int rest) {
  int at = lua_gettop(L), whole;
  lua_Integer i = lua_tointegerx(L, at, &whole);
  if (lua_type(L, at) == LUA_TNUMBER) {
    if (!whole) sc__raise_text(L, b, "index: expected an integer, got %g", (double)lua_tonumber(L, at));
    push_index(L, b, k, i);
    return;
  }
  if (lua_type(L, at) == LUA_TTABLE) {
    const void *p = lua_topointer(L, at);
    if (p == b->newaxis) { push(L, b, k, NEW, 0, 0, 0); return; }
    if (p == b->ellipsis) { while (rest-- > 0) push(L, b, k, ALL, 0, 0, 0); return; }
    push_range(L, b, k, at);
    return;
  }
  sc_tensor *t = lua_type(L, at) == LUA_TUSERDATA ? sc__test_tensor(L, b, at) : NULL;
  if (!t) sc__raise_text(L, b, "index: expected an integer, a range, a tensor, sc.newaxis or sc.ellipsis, got %s", sc__got(L, b, at));
  push_tensor(L, b, k, t);
}

static void read_key(lua_State *L, binding *b, sc_tensor *x, int at, key *k) {
  k->x = x;
  k->n_plan = k->d = k->vd = k->n_at = 0;
  k->plain = true;
  sc__stack(L, 8, "index");
  const void *p = lua_topointer(L, at);
  bool list = lua_type(L, at) == LUA_TTABLE && p != b->newaxis && p != b->ellipsis;
  if (lua_isnil(L, at)) sc__raise_text(L, b, "index: the key is nil");
  if (!list) {
    lua_pushvalue(L, at);
    read_entry(L, b, k, x->ndim);
    lua_pop(L, 1);
    return;
  }
  lua_Integer n = (lua_Integer)lua_rawlen(L, at);
  int taken = 0, dots = 0;
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, at, i);
    int t = takes(L, b);
    lua_pop(L, 1);
    if (t < 0) dots++; else taken += t;
  }
  if (dots > 1) sc__raise_text(L, b, "index: sc.ellipsis may stand once only");
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, at, i);
    read_entry(L, b, k, x->ndim - taken);
    lua_pop(L, 1);
  }
  if (n == 0) k->plain = false;                        /* x[{}]: a view of all of x */
}

/* ---- acting on it ---- */

static sc_status emit1(binding *b, const sc_opinfo *op, sc_tensor **in, int n_in, const sc_attr *attr, sc_tensor **out) {
  int n;
  return sc__emit(b->ctx, op, in, n_in, attr, 1, out, &n);
}

/* The view of a key: new. */
static sc_status view_of(binding *b, const key *k, sc_tensor **out) {
  sc_tensor *x = k->x;
  if (k->plain && k->n_at) { *out = sc_tensor_retain(x); return SC_OK; }
  if (k->n_plan == 1 && k->plan[0] == SELECT) {
    sc_attr attr[2] = {sc__int(0), sc__int(k->plan[1])};
    return emit1(b, b->select_op, &x, 1, attr, out);
  }
  sc_attr plan = sc__ints(k->plan, 4 * k->n_plan);
  return emit1(b, b->getview_op, &x, 1, &plan, out);
}

/* Index tensors and their dims in the view: masks become the places of their true elements. All new. */
typedef struct indices { sc_tensor *t[SC_MAX_DIMS + 2]; int64_t dim[SC_MAX_DIMS]; int n; } indices;

static void let_go(indices *v) { for (int i = 0; i < v->n; i++) sc_tensor_release(v->t[2 + i]); }

static sc_status add(indices *v, sc_context *ctx, sc_tensor *t, int dim) {
  if (v->n == SC_MAX_DIMS) { sc_tensor_release(t); return sc__fail(ctx, SC_EINVAL, "index: at most %d index tensors", SC_MAX_DIMS); }
  v->t[2 + v->n] = t;                                  /* two places in front are for x and the values */
  v->dim[v->n++] = dim;
  return SC_OK;
}

static sc_status collect(binding *b, const key *k, indices *v) {
  sc_context *ctx = b->ctx;
  v->n = 0;
  for (int i = 0; i < k->n_at; i++) {
    const place *p = &k->at[i];
    if (!p->mask) { SC_TRY(add(v, ctx, sc_tensor_retain(p->t), p->dim)); continue; }
    sc_tensor *rows = NULL, *mask = p->t, *wide = NULL;
    sc_status s = SC_OK;
    int64_t one = 1;
    if (mask->ndim == 0) s = sc__op(ctx, "reshape", &mask, 1, (sc_attr[]){sc__ints(&one, 1)}, 1, &wide);
    if (s == SC_OK) s = sc__op1(ctx, "argwhere", wide ? wide : mask, &rows);
    for (int d = 0; d < (mask->ndim ? mask->ndim : 1) && s == SC_OK; d++) {
      sc_tensor *column;
      s = sc__op(ctx, "select", &rows, 1, (sc_attr[]){sc__int(1), sc__int(d)}, 2, &column);
      if (s == SC_OK) s = add(v, ctx, column, p->dim + d);
    }
    sc_tensor_release(rows);
    sc_tensor_release(wide);
    SC_TRY(s);
  }
  return SC_OK;
}

static bool mask_alone(const key *k) { return k->n_at == 1 && k->at[0].mask && k->at[0].t->ndim > 0; }

static sc_status get(binding *b, const key *k, sc_tensor **out) {
  sc_tensor *view;
  SC_TRY(view_of(b, k, &view));
  if (k->n_at == 0) { *out = view; return SC_OK; }
  sc_status s;
  if (mask_alone(k) && k->at[0].t->ndim == view->ndim) {
    s = sc__op2(b->ctx, "masked_select", view, k->at[0].t, out);
  } else {
    indices v;
    s = collect(b, k, &v);
    v.t[1] = view;
    if (s == SC_OK) s = sc__op(b->ctx, "index_at", &v.t[1], v.n + 1, (sc_attr[]){sc__ints(v.dim, v.n)}, 1, out);
    let_go(&v);
  }
  sc_tensor_release(view);
  return s;
}

/* A value whose first sizes are 1 may have more dims than there is room for. */
static sc_status trimmed(binding *b, sc_tensor *value, int ndim, sc_tensor **out) {
  int extra = value->ndim - ndim;
  for (int i = 0; i < extra; i++) if (value->dim[i] != 1) extra = 0;
  if (extra <= 0) { *out = sc_tensor_retain(value); return SC_OK; }
  return sc__op(b->ctx, "reshape", &value, 1, (sc_attr[]){sc__ints(value->dim + extra, value->ndim - extra)}, 1, out);
}

/* A mask for dims of the view, with the view's trailing dims as ones. */
static sc_status widened(binding *b, const key *k, const sc_tensor *view, sc_tensor **out) {
  const place *p = &k->at[0];
  int64_t dim[SC_MAX_DIMS];
  int n = view->ndim - p->dim;
  for (int i = 0; i < n; i++) dim[i] = i < p->t->ndim ? p->t->dim[i] : 1;
  sc_tensor *mask = p->t;
  return sc__op(b->ctx, "reshape", &mask, 1, (sc_attr[]){sc__ints(dim, n)}, 1, out);
}

/* What x[key] calls speaks as "index". */
static const sc_opinfo INDEX = {.name = "index", .flags = SC_OP_INTERNAL};

static sc_status put_in(binding *b, const key *k, sc_tensor *value) {
  sc_context *ctx = b->ctx;
  sc_tensor *view = NULL, *v = NULL, *done = NULL, *apart = NULL;
  sc_status s = k->plain ? (view = sc_tensor_retain(k->x), SC_OK) : view_of(b, k, &view);
  if (s == SC_OK && sc__tensors_meet(view, value) && !(value->data == view->data && k->n_at == 0)) {
    s = sc__op1(ctx, "clone", value, &apart);          /* x[{{2, 5}}] = x[{{1, 4}}] */
    value = apart;
  }
  if (s == SC_OK && k->n_at == 0) {
    s = trimmed(b, value, view->ndim, &v);
    if (s == SC_OK) s = sc__op2(ctx, v->ndim == 0 ? "fill_" : "copy_", view, v, &done);
  } else if (s == SC_OK && mask_alone(k) && value->ndim == 0) {
    s = widened(b, k, view, &v);
    if (s == SC_OK) s = sc__op(ctx, "masked_fill_", (sc_tensor *[]){view, v, value}, 3, NULL, 0, &done);
  } else if (s == SC_OK) {
    indices at;
    s = collect(b, k, &at);
    int wide = 0;
    for (int i = 0; i < at.n; i++) wide = at.t[2 + i]->ndim > wide ? at.t[2 + i]->ndim : wide;
    if (s == SC_OK) s = trimmed(b, value, view->ndim - at.n + wide, &v);
    at.t[0] = view;
    at.t[1] = v;
    if (s == SC_OK) s = sc__op(ctx, "index_write_", at.t, at.n + 2, (sc_attr[]){sc__ints(at.dim, at.n), sc__bool(false)}, 2, &done);
    let_go(&at);
  }
  sc_tensor_release(view);
  sc_tensor_release(v);
  sc_tensor_release(done);
  sc_tensor_release(apart);
  return s;
}

static sc_status put(binding *b, const key *k, sc_tensor *value) {
  const sc_opinfo *speaker = b->ctx->speaker;
  b->ctx->speaker = &INDEX;
  sc_status s = put_in(b, k, value);
  b->ctx->speaker = speaker;
  return s;
}

static sc_status get_from(binding *b, const key *k, sc_tensor **out) {
  const sc_opinfo *speaker = b->ctx->speaker;
  b->ctx->speaker = &INDEX;
  sc_status s = get(b, k, out);
  b->ctx->speaker = speaker;
  return s;
}

/* Stack: x, key */
int sc__get_index(lua_State *L, binding *b) {
  sc__enter(L, b);
  if (SC_UNLIKELY(b->sizes_named)) sc__plain_sizes(L, b, 2, 2);
  sc_tensor *x = sc__check_tensor(L, b, 1, "index"), *y;
  if (lua_isinteger(L, 2) && x->ndim > 0) {            /* the usual case, in short */
    lua_Integer i = lua_tointeger(L, 2);
    int64_t n = x->dim[0];
    if (i != 0 && i <= n && i >= -n) {
      sc_attr attr[2] = {sc__int(0), sc__int(i < 0 ? i + n : i - 1)};
      sc__check(L, b, emit1(b, b->select_op, &x, 1, attr, &y));
      sc__push_tensor(L, b, y);
      return 1;
    }
  }
  key k;
  read_key(L, b, x, 2, &k);
  sc_status s = get_from(b, &k, &y);
  if (s == SC_ENOMEM) {                                /* perhaps garbage holds the memory */
    lua_gc(L, LUA_GCCOLLECT);
    s = get_from(b, &k, &y);
  }
  sc__check(L, b, s);
  sc__push_tensor(L, b, y);
  return 1;
}

/* Stack: x, key, value */
int sc__set_index(lua_State *L, binding *b) {
  sc__enter(L, b);
  if (SC_UNLIKELY(b->sizes_named)) sc__plain_sizes(L, b, 2, 3);
  sc_tensor *x = sc__check_tensor(L, b, 1, "index"), *value, *made = NULL;
  key k;
  read_key(L, b, x, 2, &k);
  int type = lua_type(L, 3);
  if (type == LUA_TNUMBER || type == LUA_TBOOLEAN) {
    bool whole = type == LUA_TBOOLEAN || lua_isinteger(L, 3);
    sc__check(L, b, sc__tensor_scalar(b->ctx, whole, type == LUA_TBOOLEAN ? lua_toboolean(L, 3) : whole ? lua_tointeger(L, 3) : 0,
                                      type == LUA_TBOOLEAN ? 0 : lua_tonumber(L, 3), &made));
    value = made;
  } else {
    value = type == LUA_TUSERDATA ? sc__test_tensor(L, b, 3) : NULL;
    if (!value) return sc__raise_text(L, b, "index: expected a number or a tensor to write, got %s", sc__got(L, b, 3));
  }
  sc_status s = put(b, &k, value);
  sc_tensor_release(made);
  sc__check(L, b, s);
  return 0;
}

/* core.set_markers(newaxis, ellipsis): the two tables that stand for themselves in a key */
static int set_markers(lua_State *L) {
  binding *b = sc__binding(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_checktype(L, 2, LUA_TTABLE);
  b->newaxis = lua_topointer(L, 1);
  b->ellipsis = lua_topointer(L, 2);
  for (int i = 1; i <= 2; i++) { lua_pushvalue(L, i); luaL_ref(L, LUA_REGISTRYINDEX); }   /* they live as long as the state */
  return 0;
}

void sc__open_index(lua_State *L, binding *b) {
  b->select_op = sc__op_find(b->ctx, "select");
  b->getview_op = sc__op_find(b->ctx, "getview");
  lua_pushcfunction(L, set_markers);
  lua_setfield(L, -2, "set_markers");
}
