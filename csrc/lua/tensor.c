/* Tensors as userdata: making them from Lua's values and bytes, their properties, reading them back.
**
** The box has one user value, for what belongs to the tensor on the script's side (see script.c). */
#include "../graph/graph.h"
#include "binding.h"

#include <stdio.h>
#include <string.h>

bool sc__is_tensor_box(lua_State *L, binding *b, int at) {
  if (lua_type(L, at) != LUA_TUSERDATA || !lua_getmetatable(L, at)) return false;
  bool tensor = lua_topointer(L, -1) == b->tensor_meta;
  lua_pop(L, 1);
  return tensor;
}

/* "the tensor has been freed (a float32 tensor of shape {2}, freed at x.lua:3)" */
const char *sc__freed_text(lua_State *L, int at, char *out, size_t size) {
  int type = lua_getiuservalue(L, at, 1);
  if (type == LUA_TSTRING) snprintf(out, size, "the tensor has been freed (%s)", lua_tostring(L, -1));
  else snprintf(out, size, "the tensor has been freed%s", type == LUA_TBOOLEAN ? " (its scope has ended)" : "");
  lua_pop(L, 1);
  return out;
}

static sc_tensor *box_tensor(lua_State *L, binding *b, int at, const char *what) {
  if (!sc__is_tensor_box(L, b, at)) return NULL;
  sc_tensor *t = ((tensor_box *)lua_touserdata(L, at))->t;
  char text[400];
  if (!t) sc__raise_text(L, b, "%s%s%s", what ? what : "", what ? ": " : "", sc__freed_text(L, at, text, sizeof text));
  return t;
}

sc_tensor *sc__peek_tensor(lua_State *L, binding *b, int at) { return sc__is_tensor_box(L, b, at) ? ((tensor_box *)lua_touserdata(L, at))->t : NULL; }

sc_tensor *sc__test_tensor(lua_State *L, binding *b, int at) { return box_tensor(L, b, at, NULL); }

sc_tensor *sc__check_tensor(lua_State *L, binding *b, int at, const char *what) {
  sc_tensor *t = box_tensor(L, b, at, what);
  if (!t) sc__raise_text(L, b, "%s: argument %d: expected a tensor, got %s", what, at, sc__got(L, b, at));
  return t;
}

void sc__new_box(lua_State *L, binding *b) {
  tensor_box *box = lua_newuserdatauv(L, sizeof *box, 1);
  box->t = NULL;
  lua_rawgeti(L, LUA_REGISTRYINDEX, b->tensor_ref);
  lua_setmetatable(L, -2);
}

static int new_box(lua_State *L) {
  sc__new_box(L, lua_touserdata(L, 1));
  return 1;
}

void sc__fill_box(lua_State *L, binding *b, int at, sc_tensor *t) {
  ((tensor_box *)lua_touserdata(L, at))->t = t;
  bool anchored = t->flags & SC_T_ANCHORED && t->ad;
  if (SC_LIKELY(!anchored && !b->n_scopes)) return;
  lua_pushvalue(L, at);
  if (anchored) sc__script_anchor(L, t);
  if (b->n_scopes) sc__scope_add(L, b);
  lua_pop(L, 1);
}

void sc__new_boxes(lua_State *L, binding *b, int n, const char *what) {
  sc__stack(L, n + 8, what);
  for (int i = 0; i < n; i++) sc__new_box(L, b);
}

void sc__fill_boxes(lua_State *L, binding *b, int first, sc_tensor **list, int n) {
  for (int i = 0; i < n; i++) ((tensor_box *)lua_touserdata(L, first + i))->t = list[i];    /* all safe, then the rest */
  for (int i = 0; i < n; i++) if (list[i]) sc__fill_box(L, b, first + i, list[i]);
}

void sc__push_tensor(lua_State *L, binding *b, sc_tensor *t) {
  if (!t) { lua_pushnil(L); return; }
  lua_pushcfunction(L, new_box);
  lua_pushlightuserdata(L, b);
  if (lua_pcall(L, 1, 1, 0) != LUA_OK) { sc_tensor_release(t); lua_error(L); }
  sc__fill_box(L, b, -1, t);
}

void sc__push_scalar(lua_State *L, sc_dtype d, const void *at) {
  sc_scalar v = sc__load(d, at);
  if (d == SC_BOOL) lua_pushboolean(L, v.i != 0);
  else if (v.is_int && !(v.is_unsigned && v.i < 0)) lua_pushinteger(L, v.i);
  else lua_pushnumber(L, v.f);
}

bool sc__read_dtype(lua_State *L, int at, sc_dtype *out) {
  return lua_type(L, at) == LUA_TSTRING && sc__dtype_from_name(lua_tostring(L, at), out);
}

/* ---- from Lua ---- */

typedef struct filling {
  lua_State *L;
  binding *b;
  int64_t dim[SC_MAX_DIMS];
  int ndim;
  bool any_float, any_int, any_bool;
  sc_dtype dtype;
  char *at;
  size_t size;
  const char *problem;       /* may be a string on the stack: what is there when it is found out stays there */
} filling;

/* The shape is that of the first members; every other must agree (checked when filling). */
static bool measure(filling *f, int at) {
  lua_State *L = f->L;
  lua_pushvalue(L, at);
  int pushed = 1;
  while (lua_type(L, -1) == LUA_TTABLE) {
    if (f->ndim == SC_MAX_DIMS) { f->problem = "the table is nested too deeply"; break; }
    int64_t n = (int64_t)lua_rawlen(L, -1);
    f->dim[f->ndim++] = n;
    if (n == 0) break;
    if (!lua_checkstack(L, 4)) { f->problem = "the table is nested too deeply"; break; }
    lua_rawgeti(L, -1, 1);
    pushed++;
  }
  lua_pop(L, pushed);
  return !f->problem;
}

static const char ROWS[] = "the rows have different lengths";

static bool kinds(filling *f, int at, int depth) {
  lua_State *L = f->L;
  if (depth == f->ndim) {
    int t = lua_type(L, at);
    if (t == LUA_TBOOLEAN) f->any_bool = true;
    else if (t == LUA_TNUMBER && lua_isinteger(L, at)) f->any_int = true;
    else if (t == LUA_TNUMBER) f->any_float = true;
    else if (t == LUA_TTABLE && depth) f->problem = ROWS;
    else f->problem = lua_pushfstring(L, "expected %s, got %s%s", depth ? "numbers or booleans" : "a number, a boolean or lists of them", sc__got(L, f->b, at),
                                      depth && sc__test_tensor(L, f->b, at) ? "; sc.stack makes one tensor of a list of tensors" : "");
    return !f->problem;
  }
  if (lua_type(L, at) != LUA_TTABLE || (int64_t)lua_rawlen(L, at) != f->dim[depth]) { f->problem = ROWS; return false; }
  for (int64_t i = 1; i <= f->dim[depth]; i++) {
    lua_rawgeti(L, at, i);
    if (!kinds(f, lua_gettop(L), depth + 1)) return false;       /* the message may be on the stack */
    lua_pop(L, 1);
  }
  if (sc__list_has_names(L, at, f->dim[depth])) {
    f->problem = "a list with names in it; options go into a table of their own: sc.tensor({1, 2}, {dtype = …})";
    return false;
  }
  return true;
}

static void store(filling *f, int at, int depth) {
  lua_State *L = f->L;
  if (depth == f->ndim) {
    sc_scalar v = lua_type(L, at) == LUA_TBOOLEAN ? sc__scalar_int(lua_toboolean(L, at))
                : lua_isinteger(L, at) ? sc__scalar_int(lua_tointeger(L, at)) : sc__scalar_float(lua_tonumber(L, at));
    sc__store(f->dtype, f->at, v);
    f->at += f->size;
    return;
  }
  for (int64_t i = 1; i <= f->dim[depth]; i++) {
    lua_rawgeti(L, at, i);
    store(f, lua_gettop(L), depth + 1);
    lua_pop(L, 1);
  }
}

/* ---- made of tables and strings ----
** To a trace such a tensor is a constant, though line by line each call makes another. It matters where it is written to or returned: the
** trace is done once more then, and the tensors in question are clones that the graph makes. */
static const char CLONED = 0;                            /* its address is a key of the registry: { number = true } */

/* core.cloned(numbers or nil): those of the trace that begins now. */
static int set_cloned(lua_State *L) {
  binding *b = sc__binding(L);
  b->constants_before = b->constants;
  lua_settop(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &CLONED);
  return 0;
}

static int push_made(lua_State *L, binding *b, sc_tensor *t) {
  sc__push_tensor(L, b, t);
  if (!b->ctx->tracing) return 1;
  int at = lua_gettop(L);
  t->storage->made = ++b->constants;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &CLONED);
  bool clone = lua_istable(L, -1) && lua_rawgeti(L, -1, b->constants - b->constants_before) == LUA_TBOOLEAN;
  if (clone) {
    sc__check(L, b, sc__op(b->ctx, "clone", &t, 1, NULL, 0, &t));
    sc__push_tensor(L, b, t);
  } else {
    lua_settop(L, at);
  }
  return 1;
}

/* core.tensor(value, dtype or nil) */
static int tensor_new(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_dtype named;
  bool has = !lua_isnoneornil(L, 2);
  if (has && !sc__read_dtype(L, 2, &named)) return sc__raise_text(L, b, "tensor: option dtype: expected a dtype such as \"float32\", got %s", sc__got(L, b, 2));
  sc_tensor *src = sc__test_tensor(L, b, 1), *t;
  if (src) {                                            /* a copy without a history */
    sc_dtype d = has ? named : (sc_dtype)src->dtype;
    sc_tensor *cut;
    sc__check(L, b, sc__op(b->ctx, "detach", &src, 1, NULL, 0, &cut));
    sc_status s = sc__op(b->ctx, "to", &cut, 1, (sc_attr[]){sc__dtype(d), sc__bool(true)}, 2, &t);
    sc_tensor_release(cut);
    sc__check(L, b, s);
    sc__push_tensor(L, b, t);
    return 1;
  }
  filling f = {.L = L, .b = b};
  sc__stack(L, SC_MAX_DIMS * 2 + 16, "tensor");
  if (!measure(&f, 1) || !kinds(&f, 1, 0)) return sc__raise_text(L, b, "tensor: argument 1: %s", f.problem);
  f.dtype = has ? named : f.any_float ? SC_FLOAT32 : f.any_int ? SC_INT64 : f.any_bool ? SC_BOOL : SC_FLOAT32;
  f.size = sc_dtype_size(f.dtype);
  sc__check(L, b, sc_tensor_new(b->ctx, f.dtype, f.ndim, f.dim, &t));
  f.at = t->data;
  store(&f, 1, 0);
  return push_made(L, b, t);
}

/* core.from_string(bytes, shape, dtype) */
static int from_string(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  size_t length;
  int64_t dim[SC_MAX_DIMS], numel;
  if (lua_type(L, 1) != LUA_TSTRING) return sc__raise_text(L, b, "from_string: argument 1 (bytes): expected a string, got %s", sc__got(L, b, 1));
  const char *bytes = lua_tolstring(L, 1, &length);
  if (lua_type(L, 2) != LUA_TTABLE) return sc__raise_text(L, b, "from_string: argument 2 (shape): expected a table, got %s", sc__got(L, b, 2));
  size_t n = lua_rawlen(L, 2);
  if (n > SC_MAX_DIMS) return sc__raise_text(L, b, "from_string: argument 2 (shape): at most %d dimensions", SC_MAX_DIMS);
  for (size_t i = 0; i < n; i++) {
    int ok;
    lua_rawgeti(L, 2, (lua_Integer)i + 1);
    dim[i] = lua_tointegerx(L, -1, &ok);
    lua_pop(L, 1);
    if (!ok) return sc__raise_text(L, b, "from_string: argument 2 (shape): expected integers");
  }
  sc_dtype d = SC_FLOAT32;
  if (!lua_isnoneornil(L, 3) && !sc__read_dtype(L, 3, &d)) return sc__raise_text(L, b, "from_string: argument 3 (dtype): expected a dtype such as \"float32\", got %s", sc__got(L, b, 3));
  sc__check(L, b, sc__numel(b->ctx, "from_string", d, (int)n, dim, &numel));
  if ((size_t)numel * sc_dtype_size(d) != length)
    return sc__raise_text(L, b, "from_string: the shape needs %lld bytes, the string has %zu", (long long)numel * (long long)sc_dtype_size(d), length);
  sc_tensor *t;
  sc__check(L, b, sc_tensor_from_memory(b->ctx, d, (int)n, dim, bytes, &t));
  return push_made(L, b, t);
}

/* ---- to Lua ---- */

static sc_tensor *with_data(lua_State *L, binding *b, const char *what) {
  sc_tensor *t = sc__check_tensor(L, b, 1, what);
  if (!t->storage) sc__raise_text(L, b, "%s: a symbolic tensor has no values while a graph is being recorded", what);
  if (b->ctx->tracing)
    sc__raise_text(L, b, "%s: a value cannot be read inside a compiled function: the trace would freeze it; compute with the tensor instead", what);
  return t;
}

static int item(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc_tensor *t = with_data(L, b, "item");
  if (t->numel != 1) return sc__raise_text(L, b, "item: expected a tensor of one element, got %lld", (long long)t->numel);
  sc__push_scalar(L, (sc_dtype)t->dtype, t->data);
  return 1;
}

static void push_table(lua_State *L, const sc_tensor *t, int d, const char *at) {
  if (d == t->ndim) { sc__push_scalar(L, (sc_dtype)t->dtype, at); return; }
  int64_t z = (int64_t)sc_dtype_size((sc_dtype)t->dtype) * sc__stride(t)[d];
  lua_createtable(L, t->dim[d] < INT32_MAX ? (int)t->dim[d] : 0, 0);
  for (int64_t i = 0; i < t->dim[d]; i++) {
    push_table(L, t, d + 1, at + i * z);
    lua_rawseti(L, -2, i + 1);
  }
}

static int totable(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc_tensor *t = with_data(L, b, "totable");
  sc__stack(L, t->ndim * 2 + 8, "totable");
  push_table(L, t, 0, t->data);
  return 1;
}

static int tostring_bytes(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc_tensor *t = with_data(L, b, "tostring_bytes");
  luaL_Buffer buffer;
  size_t bytes = (size_t)t->numel * sc_dtype_size((sc_dtype)t->dtype);
  char *to = luaL_buffinitsize(L, &buffer, bytes ? bytes : 1);
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)t->dtype, t->ndim, t->dim);
  if (t->contiguous) {
    memcpy(to, t->data, bytes);
  } else {
    sc_tensor *packed;
    sc__check(L, b, sc__tensor_packed(t, &packed));
    memcpy(to, packed->data, bytes);
    sc_tensor_release(packed);
  }
  luaL_pushresultsize(&buffer, bytes);
  return 1;
}

/* ---- properties ---- */

static void push_ints(lua_State *L, const int64_t *v, int n) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) { lua_pushinteger(L, v[i]); lua_rawseti(L, -2, i + 1); }
  luaL_setmetatable(L, "sconce.sizes");
}

/* A tensor's shape: sizes that a graph leaves open are values of their own (size.c). */
static void push_sizes(lua_State *L, binding *b, const sc_tensor *t) {
  push_ints(L, t->dim, t->ndim);
  if (SC_LIKELY(!t->graph || !t->graph->n_sizes)) return;
  for (int i = 0; i < t->ndim; i++) if (sc__push_size(L, b, t, t->dim[i])) lua_rawseti(L, -2, i + 1);
}

/* Shapes print as {2, 3} and are equal when their numbers are. */
static int sizes_text(lua_State *L) {
  luaL_Buffer buffer;
  lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
  luaL_buffinit(L, &buffer);
  luaL_addchar(&buffer, '{');
  for (lua_Integer i = 1; i <= n; i++) {
    if (i > 1) luaL_addstring(&buffer, ", ");
    lua_rawgeti(L, 1, i);
    luaL_tolstring(L, -1, NULL);
    lua_remove(L, -2);
    luaL_addvalue(&buffer);
  }
  luaL_addchar(&buffer, '}');
  luaL_pushresult(&buffer);
  return 1;
}

static int sizes_equal(lua_State *L) {
  if (lua_type(L, 1) != LUA_TTABLE || lua_type(L, 2) != LUA_TTABLE) return lua_pushboolean(L, 0), 1;
  lua_Integer n = (lua_Integer)lua_rawlen(L, 1);
  bool same = n == (lua_Integer)lua_rawlen(L, 2);
  for (lua_Integer i = 1; same && i <= n; i++) {
    lua_rawgeti(L, 1, i);
    lua_rawgeti(L, 2, i);
    same = lua_compare(L, -1, -2, LUA_OPEQ);
    lua_pop(L, 2);
  }
  lua_pushboolean(L, same);
  return 1;
}

/* `<` and `<=` give one boolean in Lua, so they cannot compare element by element. */
static int no_order(lua_State *L) {
  return sc__raise_text(L, lua_touserdata(L, lua_upvalueindex(1)), "tensors are compared by x:lt(y), x:le(y), x:gt(y), x:ge(y), which give bool tensors; x:item() is a number");
}

/* `==` asks whether two names mean one object. While a function is traced, a script that asks would have its answer frozen. */
static int same_object(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  lua_Debug at;
  if (b->ctx->tracing && lua_getstack(L, 1, &at) && lua_getinfo(L, "S", &at) && strncmp(at.source, b->inside, b->inside_length) != 0)
    return sc__raise_text(L, b, "==: asks whether two tensors are the same object, on which a graph cannot depend; x:eq(y) compares elements");
  lua_pushboolean(L, 0);                               /* Lua has seen to those that are */
  return 1;
}

/* "loss: " .. loss, as print shows it. */
int sc__concat(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  luaL_tolstring(L, 2, NULL);
  lua_concat(L, 2);
  return 1;
}

/* core.set_data(t, other): t becomes an alias of other's memory, keeps being a leaf that wants gradients or not; its gradient goes.
** For modules that change dtype under an optimiser's feet: the object stays the same. */
static int set_data(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_tensor *t = sc__check_tensor(L, b, 1, "set_data"), *src = sc__check_tensor(L, b, 2, "set_data"), *fresh;
  sc__check(L, b, sc__tensor_alias(src, &fresh));
  fresh->flags |= t->flags & SC_T_REQUIRES;
  ((tensor_box *)lua_touserdata(L, 1))->t = fresh;
  b->epoch++;
  sc_tensor_release(t);
  return 0;
}

/* core.become(x, y): x is y's value from now on, the same memory and history: for the views that are spelt as in-place ops. */
static int become(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_tensor *x = sc__check_tensor(L, b, 1, "become"), *y = sc__check_tensor(L, b, 2, "become");
  ((tensor_box *)lua_touserdata(L, 1))->t = sc_tensor_retain(y);
  sc_tensor_release(x);
  b->epoch++;
  lua_settop(L, 1);
  if (y->flags & SC_T_ANCHORED && y->ad) sc__script_anchor(L, y);
  return 1;
}

static int size(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc_tensor *t = sc__check_tensor(L, b, 1, "size");
  if (lua_isnoneornil(L, 2)) {
    if (SC_UNLIKELY(b->sizes_watched)) sc__look_at_size(L, b, t->dim, t->ndim);
    push_sizes(L, b, t);
    return 1;
  }
  int ok;
  lua_Integer d = lua_tointegerx(L, 2, &ok);
  if (!ok) return sc__raise_text(L, b, "size: argument 2 (dim): expected an integer, got %s", sc__got(L, b, 2));
  lua_Integer k = d < 0 ? d + t->ndim + 1 : d;
  if (k < 1 || k > t->ndim) return sc__raise_text(L, b, "size: argument 2 (dim): dimension %lld is out of range for %d dimensions", (long long)d, t->ndim);
  if (SC_UNLIKELY(b->sizes_watched)) sc__look_at_size(L, b, &t->dim[k - 1], 1);
  if (!sc__push_size(L, b, t, t->dim[k - 1])) lua_pushinteger(L, t->dim[k - 1]);
  return 1;
}

static int stride(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc_tensor *t = sc__check_tensor(L, b, 1, "stride");
  push_ints(L, sc__stride(t), t->ndim);
  return 1;
}

static int dim(lua_State *L) { lua_pushinteger(L, sc__check_tensor(L, lua_touserdata(L, lua_upvalueindex(1)), 1, "dim")->ndim); return 1; }
static int numel(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  const sc_tensor *t = sc__check_tensor(L, b, 1, "numel");
  int64_t n = t->numel;
  if (SC_UNLIKELY(b->sizes_watched)) sc__look_at_size(L, b, &n, 1);
  if (!sc__push_size(L, b, t, n)) lua_pushinteger(L, n);
  return 1;
}
static int is_contiguous(lua_State *L) {
  lua_pushboolean(L, sc__check_tensor(L, lua_touserdata(L, lua_upvalueindex(1)), 1, "is_contiguous")->contiguous);
  return 1;
}

/* __gc. Upvalue: the metatable. Needs no binding: it may be gone when the state closes. */
static int release(lua_State *L) {
  if (!lua_getmetatable(L, 1) || !lua_rawequal(L, -1, lua_upvalueindex(1))) return 0;
  tensor_box *box = lua_touserdata(L, 1);
  sc_tensor *t = box->t;
  box->t = NULL;
  sc_tensor_release(t);
  return 0;
}

/* t:free(), and `local t <close>`: at once; whoever uses it later is told where it was freed. */
static int free_tensor(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  if (!sc__is_tensor_box(L, b, 1)) return sc__raise_text(L, b, "free: argument 1: expected a tensor, got %s", sc__got(L, b, 1));
  tensor_box *box = lua_touserdata(L, 1);
  sc_tensor *t = box->t;
  box->t = NULL;
  if (!t) return 0;
  char shape[200], text[400];
  sc__set_now(L, b);
  sc_location l = sc__lua_locate(b);
  snprintf(text, sizeof text, "a %s tensor of shape %s, freed at %s:%d", sc_dtype_name((sc_dtype)t->dtype),
           sc__shape_text(t->ndim, t->dim, shape, sizeof shape), l.line ? l.file : "?", l.line);
  sc_tensor_release(t);
  lua_pushstring(L, text);
  lua_setiuservalue(L, 1, 1);
  return 0;
}

static int no_pairs(lua_State *L) {
  return sc__raise_text(L, lua_touserdata(L, lua_upvalueindex(1)), "pairs: a tensor is not a table; its rows are for i = 1, #x do local row = x[i] … end, "
                        "its numbers x:totable()");
}

static int length(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc_tensor *t = sc__check_tensor(L, b, 1, "#");
  if (t->ndim == 0) return sc__raise_text(L, b, "#: a tensor without dimensions has no length; x:numel() counts elements");
  if (SC_UNLIKELY(b->sizes_watched)) sc__look_at_size(L, b, t->dim, 1);
  if (!sc__push_size(L, b, t, t->dim[0])) lua_pushinteger(L, t->dim[0]);
  return 1;
}

/* tostring(x): see tensor/print.c */
static int text(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc_tensor *t = ((tensor_box *)lua_touserdata(L, 1))->t;
  char more[128] = "";
  sc_edge e = {NULL, 0};
  luaL_Buffer buffer;
  if (!t) { lua_pushliteral(L, "tensor(freed)"); return 1; }
  if (!t->storage && b->ctx->tracing) with_data(L, b, "tostring");
  if (t->flags & SC_T_REQUIRES) snprintf(more, sizeof more, "requires_grad=true");
  else if (t->ad) {
    sc__check(L, b, sc__edge_of(t, &e));
    if (e.node) snprintf(more, sizeof more, "grad_fn=<%s>", e.node->op ? e.node->op->name : "custom function");
  }
  if (t->graph && t->graph->n_sizes) {                  /* symbolic: short, with names for sizes */
    char with_stand_ins[1024], named[1024];
    sc__tensor_text(t, more, with_stand_ins, sizeof with_stand_ins);
    sc__name_sizes(t->graph, with_stand_ins, named, sizeof named);
    lua_pushstring(L, named);
    return 1;
  }
  size_t n = sc__tensor_text(t, more, NULL, 0);
  char *to = luaL_buffinitsize(L, &buffer, n + 1);
  sc__tensor_text(t, more, to, n + 1);
  luaL_pushresultsize(&buffer, n);
  return 1;
}

/* x.name: a method, else a property; x[key] */
static int get(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  if (lua_type(L, 2) != LUA_TSTRING) return sc__get_index(L, b);
  lua_pushvalue(L, 2);
  if (lua_rawget(L, lua_upvalueindex(2)) != LUA_TNIL) return 1;
  lua_pop(L, 1);
  const char *name = lua_tostring(L, 2);
  sc_tensor *t = sc__check_tensor(L, b, 1, name);
  if (strcmp(name, "shape") == 0) {
    if (SC_UNLIKELY(b->sizes_watched)) sc__look_at_size(L, b, t->dim, t->ndim);
    push_sizes(L, b, t);
  }
  else if (strcmp(name, "dtype") == 0) lua_pushstring(L, sc_dtype_name((sc_dtype)t->dtype));
  else if (strcmp(name, "requires_grad") == 0) lua_pushboolean(L, sc_requires_grad(t));
  else if (strcmp(name, "ndim") == 0) lua_pushinteger(L, t->ndim);
  else if (strcmp(name, "is_leaf") == 0) lua_pushboolean(L, t->flags & SC_T_REQUIRES || !sc_requires_grad(t));
  else if (strcmp(name, "grad") == 0) {
    if (b->ctx->tracing) sc__check(L, b, b->ctx->grad_read(t));
    sc_tensor *g = sc_grad_of(t);
    sc__push_tensor(L, b, g ? sc_tensor_retain(g) : NULL);
  } else if (strcmp(name, "grad_fn") == 0) {
    sc_edge e = {NULL, 0};
    sc__enter(L, b);
    if (!(t->flags & SC_T_REQUIRES)) sc__check(L, b, sc__edge_of(t, &e));
    if (e.node) lua_pushfstring(L, "<%s>", e.node->op ? e.node->op->name : "custom function"); else lua_pushnil(L);
  } else {
    lua_pushvalue(L, 2);                                /* what the Lua side adds */
    lua_gettable(L, lua_upvalueindex(3));
    if (lua_isfunction(L, -1)) { lua_pushvalue(L, 1); lua_call(L, 1, 1); }
  }
  return 1;
}

static int set(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  if (lua_type(L, 2) != LUA_TSTRING) return sc__set_index(L, b);
  const char *name = lua_tostring(L, 2);
  sc_tensor *t = sc__check_tensor(L, b, 1, name);
  if (strcmp(name, "requires_grad") == 0) {
    if (lua_type(L, 3) != LUA_TBOOLEAN) return sc__raise_text(L, b, "requires_grad: expected true or false, got %s", sc__got(L, b, 3));
    sc__check(L, b, sc_set_requires_grad(t, lua_toboolean(L, 3)));
    return 0;
  }
  if (strcmp(name, "grad") == 0) {
    sc_tensor *g = lua_isnil(L, 3) ? NULL : sc__test_tensor(L, b, 3);
    if (!g && !lua_isnil(L, 3)) return sc__raise_text(L, b, "grad: expected a tensor or nil, got %s", sc__got(L, b, 3));
    if (g && (g->ndim != t->ndim || memcmp(g->dim, t->dim, (size_t)t->ndim * 8) != 0 || g->dtype != t->dtype))
      return sc__raise_text(L, b, "grad: expected the tensor's shape and dtype: %s, got %s", sc__got(L, b, 1), sc__got(L, b, 3));
    if (g == t) return sc__raise_text(L, b, "grad: a tensor cannot be its own gradient");
    if (b->ctx->tracing) sc__check(L, b, b->ctx->grad_changes(t));
    if (!g && !t->ad) return 0;
    sc__enter(L, b);
    if (!sc__autograd(t)) return sc__raise(L, b);
    if (g && g->ad) sc__check(L, b, sc__node_pin(g->ad->node));
    if (g) sc_tensor_retain(g);
    sc_tensor_release(t->ad->grad);
    t->ad->grad = g;
    return 0;
  }
  return sc__raise_text(L, b, "a tensor has no field \"%s\" that can be set", name);
}

/* The metamethods that are ops. */
static const struct { const char *event, *op; } OPERATORS[] = {{"__add", "add"}, {"__sub", "sub"}, {"__mul", "mul"}, {"__div", "div"},
  {"__unm", "neg"}, {"__pow", "pow"}, {"__mod", "remainder"}, {"__idiv", "floor_divide"}, {"__band", "bitwise_and"},
  {"__bor", "bitwise_or"}, {"__bxor", "bitwise_xor"}, {"__shl", "bitwise_left_shift"}, {"__shr", "bitwise_right_shift"}, {"__bnot", "bitwise_not"}};

/* Lua gives unary events the operand twice. */
static int operator_call(lua_State *L) {
  const sc_opinfo *op = lua_touserdata(L, lua_upvalueindex(2));
  lua_settop(L, op->n_in);
  return sc__call_op(L, lua_touserdata(L, lua_upvalueindex(1)), op);
}

/* core.is_symbolic(t): whether it is a value of a graph being recorded, without data to look at; and whether the graph is given it, so that
** somebody outside holds the real one */
static int is_symbolic(lua_State *L) {
  sc_tensor *t = sc__test_tensor(L, sc__binding(L), 1);
  bool symbolic = t && sc__is_symbolic(t);
  lua_pushboolean(L, symbolic);
  lua_pushboolean(L, symbolic && sc__graph_is_given(t));
  return 2;
}

static const luaL_Reg METHODS[] = {{"item", item}, {"totable", totable}, {"tolist", totable}, {"tostring_bytes", tostring_bytes}, {"size", size},
  {"stride", stride}, {"dim", dim}, {"numel", numel}, {"is_contiguous", is_contiguous}, {"free", free_tensor}, {NULL, NULL}};
static const luaL_Reg FUNCTIONS[] = {{"tensor", tensor_new}, {"from_string", from_string}, {"cloned", set_cloned}, {"set_data", set_data}, {"become", become}, {"is_symbolic", is_symbolic}, {NULL, NULL}};

static int is_tensor(lua_State *L) {
  binding *b = sc__binding(L);
  lua_pushboolean(L, sc__is_tensor_box(L, b, 1));
  return 1;
}

void sc__open_tensor(lua_State *L, binding *b) {
  int module = lua_gettop(L);
  lua_newtable(L);                                      /* methods */
  lua_pushvalue(L, -1);
  b->methods_ref = luaL_ref(L, LUA_REGISTRYINDEX);
  int methods = lua_gettop(L);
  lua_pushlightuserdata(L, b);
  luaL_setfuncs(L, METHODS, 1);
  lua_newtable(L);                                      /* properties that the Lua side adds */
  int properties = lua_gettop(L);
  if (luaL_newmetatable(L, "sconce.sizes")) {
    lua_pushcfunction(L, sizes_text); lua_setfield(L, -2, "__tostring");
    lua_pushcfunction(L, sizes_equal); lua_setfield(L, -2, "__eq");
  }
  lua_pop(L, 1);
  luaL_newmetatable(L, "sconce.tensor");
  b->tensor_meta = lua_topointer(L, -1);
  lua_pushvalue(L, -1);
  b->tensor_ref = luaL_ref(L, LUA_REGISTRYINDEX);
  int meta = lua_gettop(L);
  lua_pushvalue(L, meta); lua_pushcclosure(L, release, 1); lua_setfield(L, meta, "__gc");
  lua_pushlightuserdata(L, b); lua_pushcclosure(L, free_tensor, 1); lua_setfield(L, meta, "__close");
  lua_pushlightuserdata(L, b); lua_pushvalue(L, methods); lua_pushvalue(L, properties);
  lua_pushcclosure(L, get, 3); lua_setfield(L, meta, "__index");
  lua_pushlightuserdata(L, b); lua_pushcclosure(L, set, 1); lua_setfield(L, meta, "__newindex");
  lua_pushlightuserdata(L, b); lua_pushcclosure(L, length, 1); lua_setfield(L, meta, "__len");
  lua_pushlightuserdata(L, b); lua_pushcclosure(L, no_pairs, 1); lua_setfield(L, meta, "__pairs");
  lua_pushlightuserdata(L, b); lua_pushcclosure(L, no_order, 1); lua_pushvalue(L, -1); lua_setfield(L, meta, "__lt"); lua_setfield(L, meta, "__le");
  lua_pushlightuserdata(L, b); lua_pushcclosure(L, text, 1); lua_setfield(L, meta, "__tostring");
  lua_pushlightuserdata(L, b); lua_pushcclosure(L, same_object, 1); lua_setfield(L, meta, "__eq");
  lua_pushcfunction(L, sc__concat); lua_setfield(L, meta, "__concat");
  for (int i = 0; i < SC_COUNT(OPERATORS); i++) {
    const sc_opinfo *op = sc__op_find(b->ctx, OPERATORS[i].op);
    if (!op) continue;
    lua_pushlightuserdata(L, b);
    lua_pushlightuserdata(L, (void *)op);
    lua_pushcclosure(L, operator_call, 2);
    lua_setfield(L, meta, OPERATORS[i].event);
  }
  lua_pushvalue(L, meta); lua_setfield(L, module, "tensor_meta");
  lua_pushvalue(L, methods); lua_setfield(L, module, "methods");
  lua_pushvalue(L, properties); lua_setfield(L, module, "properties");
  lua_settop(L, module);
  luaL_setfuncs(L, FUNCTIONS, 0);
  lua_pushcfunction(L, is_tensor);
  lua_setfield(L, module, "is_tensor");
}
