/* The signature of a call of a compiled function: what its arguments are, as bytes. Made at every call, so it is plain loops over memory;
** csrc/lua/compiled.c compares it with those of the traces there are. And what describes the memory of arguments that share some. */
#include "compiled.h"

#include <string.h>

/* ---- arguments ---- */

typedef struct text { char *at; size_t left; bool full; } text;

static inline void put(text *t, const void *p, size_t n) {
  if (n > t->left) { t->full = true; return; }
  memcpy(t->at, p, n);
  t->at += n;
  t->left -= n;
}

static inline void put_tensor(text *t, const sc_tensor *x, bool sizes) {
  uint8_t head[4] = {LUA_TUSERDATA, x->dtype, x->ndim,
                     (uint8_t)(sc_requires_grad(x) | (x->flags & SC_T_WRAPPED) << 1 | x->contiguous << 2 | sc__is_symbolic(x) << 3)};
  put(t, head, 4);
  if (!sizes) return;
  put(t, x->dim, (size_t)x->ndim * 8);
  if (!x->contiguous) put(t, sc__stride(x), (size_t)x->ndim * 8);
}

/* Where x lies in its memory: two arguments that share it are recorded as views of it. */
static void put_place(text *t, const sc_tensor *x) {
  int64_t at[2] = {x->data - (char *)x->storage->data, (int64_t)x->storage->bytes};
  put(t, at, sizeof at);
  put(t, sc__stride(x), (size_t)x->ndim * 8);
}

/* Argument i shares its memory with an earlier one: which, and how both lie in it. */
static void put_alias(text *t, sc_tensor *const *x, int i, bool sizes) {
  for (int k = 0; k < i; k++) {
    if (!x[k] || x[k]->storage != x[i]->storage || !x[i]->storage) continue;
    uint8_t alias[2] = {(uint8_t)(k + 1), x[k] == x[i]};
    put(t, alias, 2);
    if (x[k] == x[i] || !sizes) return;
    put_place(t, x[i]);
    put_place(t, x[k]);
    return;
  }
}

static void put_value(text *t, lua_State *L, int at, int type) {
  uint8_t head[2] = {(uint8_t)type, 0};
  if (type == LUA_TNUMBER && lua_isinteger(L, at)) {
    lua_Integer v = lua_tointeger(L, at);
    head[1] = 1;
    put(t, head, 2);
    put(t, &v, sizeof v);
  } else if (type == LUA_TNUMBER) {
    lua_Number v = lua_tonumber(L, at);
    put(t, head, 2);
    put(t, &v, sizeof v);
  } else if (type == LUA_TBOOLEAN) {
    head[1] = (uint8_t)lua_toboolean(L, at);
    put(t, head, 2);
  } else if (type == LUA_TSTRING) {
    size_t n;
    const char *s = lua_tolstring(L, at, &n);
    put(t, head, 1);
    put(t, &n, sizeof n);
    put(t, s, n);
  } else {
    put(t, head, 1);
  }
}

int sc__signature(lua_State *L, binding *b, int first, int last, bool sizes, char *room, sc_tensor **x) {
  text t = {room, SC_SIGNATURE_ROOM, false};
  int n = last - first + 1;
  uint8_t head[2] = {b->ctx->grad_enabled, (uint8_t)n};
  if (n > SC_MOST_ARGUMENTS) return sc__raise_text(L, b, "compile: at most %d arguments, got %d", SC_MOST_ARGUMENTS, n);
  put(&t, head, 2);
  for (int i = 0; i < n; i++) {
    int type = lua_type(L, first + i);
    x[i] = type == LUA_TUSERDATA ? sc__test_tensor(L, b, first + i) : NULL;
    if (x[i]) {
      put_tensor(&t, x[i], sizes);
      put_alias(&t, x, i, sizes);
    } else if (type == LUA_TNUMBER || type == LUA_TBOOLEAN || type == LUA_TSTRING || type == LUA_TNIL) {
      put_value(&t, L, first + i, type);
    } else {
      return sc__raise_text(L, b, "compile: argument %d: expected a tensor, a number, a string or a boolean, got %s%s", i + 1,
                            sc__got(L, b, first + i), type == LUA_TTABLE ? "; give its members one by one, or let the function capture it" : "");
    }
  }
  if (t.full) return sc__raise_text(L, b, "compile: there are too many arguments, or they are too long");
  return (int)(t.at - room);
}

/* core.signature(with sizes, …) -> string: dtypes, sizes, shared memory of tensors; other values by value */
static int signature(lua_State *L) {
  binding *b = sc__binding(L);
  char room[SC_SIGNATURE_ROOM];
  sc_tensor *x[SC_MOST_ARGUMENTS];
  sc__enter(L, b);
  int n = sc__signature(L, b, 2, lua_gettop(L), lua_toboolean(L, 1), room, x);
  lua_pushlstring(L, room, (size_t)n);
  return 1;
}

/* core.memory(t) -> an identity of its memory, elements before t's first one, elements in all */
static int memory(lua_State *L) {
  binding *b = sc__binding(L);
  sc_tensor *t = sc__check_tensor(L, b, 1, "memory");
  if (!t->storage) return 0;
  lua_Integer z = (lua_Integer)sc_dtype_size((sc_dtype)t->dtype);
  lua_pushlightuserdata(L, t->storage);
  lua_pushinteger(L, (t->data - (char *)t->storage->data) / z);
  lua_pushinteger(L, (lua_Integer)t->storage->bytes / z);
  return 3;
}

static int flat(lua_State *L, binding *b, sc_tensor *t, int64_t elements, int64_t offset) {
  sc_meta m;
  sc_tensor *all;
  sc__meta_set(&m, (sc_dtype)t->dtype, 1, &elements);
  m.stride[0] = 1;
  m.offset = offset;
  sc__check(L, b, sc__tensor_view(t, &m, &all));
  sc__push_tensor(L, b, all);
  return 1;
}

/* core.whole_memory(t) -> a tensor of one dimension over all of t's memory */
static int whole_memory(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_tensor *t = sc__check_tensor(L, b, 1, "memory");
  int64_t z = (int64_t)sc_dtype_size((sc_dtype)t->dtype);
  return flat(L, b, t, (int64_t)t->storage->bytes / z, -((t->data - (char *)t->storage->data) / z));
}

/* core.span(t) -> a tensor of one dimension from t's first element to its last */
static int span(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_tensor *t = sc__check_tensor(L, b, 1, "memory");
  int64_t n = t->numel > 0;
  for (int i = 0; i < t->ndim && t->numel; i++) n += (t->dim[i] - 1) * sc__stride(t)[i];
  return flat(L, b, t, n, 0);
}

void sc__open_signature(lua_State *L, binding *b) {
  (void)b;
  const luaL_Reg FUNCTIONS[] = {{"signature", signature}, {"memory", memory}, {"whole_memory", whole_memory},
                                 {"span", span}, {NULL, NULL}};
  luaL_setfuncs(L, FUNCTIONS, 0);
}
