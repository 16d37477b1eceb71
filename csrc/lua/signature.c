/* What a compiled function's traces depend on: the arguments' signature, and a fingerprint of what the function captures. Both are
** made at every call, so they are plain loops over bytes.
**
** The fingerprint walks upvalues: numbers, strings and booleans count by value; tensors by identity (a plan checks the rest of those it captured); tables field by
** field, to a bound; functions through their own upvalues. Order of fields does not matter (hashes are added up). */
#include "binding.h"

#include <string.h>

/* ---- arguments ---- */

typedef struct text { char *at; size_t left; bool full; } text;

static void put(text *t, const void *p, size_t n) {
  if (n > t->left) { t->full = true; return; }
  memcpy(t->at, p, n);
  t->at += n;
  t->left -= n;
}

static void put_tensor(text *t, const sc_tensor *x) {
  uint8_t head[3] = {x->dtype, x->ndim, (uint8_t)(sc_requires_grad(x) | (x->flags & SC_T_WRAPPED) << 1 | x->contiguous << 2)};
  put(t, head, 3);
  put(t, x->dim, (size_t)x->ndim * 8);
}

/* Where x lies in its memory: two arguments that share it are recorded as views of it. */
static void put_place(text *t, const sc_tensor *x) {
  int64_t at[2] = {x->data - (char *)x->storage->data, (int64_t)x->storage->bytes};
  put(t, at, sizeof at);
  put(t, sc__stride(x), (size_t)x->ndim * 8);
}

/* core.signature(…) -> string. Tensors by dtype, sizes and which of them share memory; other values by value. */
static int signature(lua_State *L) {
  binding *b = sc__binding(L);
  char room[2048];
  text t = {room, sizeof room, false};
  int n = lua_gettop(L);
  sc__enter(L, b);
  uint8_t mode = b->ctx->grad_enabled;
  put(&t, &mode, 1);
  for (int i = 1; i <= n; i++) {
    int type = lua_type(L, i);
    uint8_t tag = (uint8_t)type;
    put(&t, &tag, 1);
    sc_tensor *x = type == LUA_TUSERDATA ? sc__test_tensor(L, b, i) : NULL;
    if (x) {
      put_tensor(&t, x);
      if (!x->contiguous) put(&t, sc__stride(x), (size_t)x->ndim * 8);
      for (int k = 1; k < i; k++) {                    /* aliases: the first argument that shares its memory */
        sc_tensor *y = sc__test_tensor(L, b, k);
        if (!y || y->storage != x->storage) continue;
        uint8_t alias[2] = {(uint8_t)k, y == x};
        put(&t, alias, 2);
        if (y == x) break;
        put_place(&t, x);
        put_place(&t, y);
        break;
      }
    } else if (type == LUA_TNUMBER) {
      lua_Number f = lua_tonumber(L, i);
      uint8_t whole = (uint8_t)lua_isinteger(L, i);
      put(&t, &whole, 1);
      if (whole) { lua_Integer v = lua_tointeger(L, i); put(&t, &v, sizeof v); } else put(&t, &f, sizeof f);
    } else if (type == LUA_TBOOLEAN) {
      uint8_t v = (uint8_t)lua_toboolean(L, i);
      put(&t, &v, 1);
    } else if (type == LUA_TSTRING) {
      put(&t, lua_tostring(L, i), lua_rawlen(L, i) + 1);
    } else if (type != LUA_TNIL) {
      return sc__raise_text(L, b, "compile: argument %d: expected a tensor, a number, a string or a boolean, got %s", i, luaL_typename(L, i));
    }
  }
  if (t.full) return sc__raise_text(L, b, "compile: there are too many arguments");
  lua_pushlstring(L, room, (size_t)(t.at - room));
  return 1;
}

/* ---- captures ---- */

enum { MOST_TABLES = 4096, MOST_DEPTH = 24 };

typedef struct walker {
  lua_State *L;
  binding *b;
  const void *seen[MOST_TABLES];                        /* open addressing */
  int n_seen;
  bool full;
} walker;

static uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdu;
  return h ^ h >> 32;
}

static bool first_time(walker *w, const void *p) {
  if (w->n_seen > MOST_TABLES / 2) { w->full = true; return false; }
  size_t at = ((uintptr_t)p >> 4) * 2654435761u % MOST_TABLES;
  while (w->seen[at] && w->seen[at] != p) at = (at + 1) % MOST_TABLES;
  if (w->seen[at]) return false;
  w->seen[at] = p;
  w->n_seen++;
  return true;
}

static uint64_t bytes_hash(const char *s, size_t n) {
  uint64_t h = n;
  for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)s[i]) * 0x100000001b3u;
  return h;
}

static uint64_t value_hash(walker *w, int at, int depth);

static uint64_t table_hash(walker *w, int at, int depth) {
  lua_State *L = w->L;
  uint64_t sum = (uint64_t)(uintptr_t)lua_topointer(L, at);
  if (depth > MOST_DEPTH || !first_time(w, lua_topointer(L, at)) || !lua_checkstack(L, 6)) return sum;
  lua_pushliteral(L, "_library");                      /* our own module tables do not change */
  bool library = lua_rawget(L, at) != LUA_TNIL;
  lua_pop(L, 1);
  if (library) return sum;
  lua_pushnil(L);
  while (lua_next(L, at)) {
    int top = lua_gettop(L);
    uint64_t key = lua_type(L, top - 1) == LUA_TSTRING ? bytes_hash(lua_tostring(L, top - 1), lua_rawlen(L, top - 1))
                 : lua_isinteger(L, top - 1) ? (uint64_t)lua_tointeger(L, top - 1) : (uint64_t)(uintptr_t)lua_topointer(L, top - 1);
    bool hidden = lua_type(L, top - 1) == LUA_TSTRING && strncmp(lua_tostring(L, top - 1), "_free_", 6) == 0;
    if (!hidden) sum += mix(key, value_hash(w, top, depth + 1));
    lua_pop(L, 1);
  }
  return sum;
}

static uint64_t function_hash(walker *w, int at, int depth) {
  lua_State *L = w->L;
  uint64_t h = (uint64_t)(uintptr_t)lua_topointer(L, at);
  if (lua_iscfunction(L, at) || depth > MOST_DEPTH || !first_time(w, lua_topointer(L, at)) || !lua_checkstack(L, 4)) return h;
  for (int i = 1; ; i++) {
    const char *name = lua_getupvalue(L, at, i);
    if (!name) break;
    if (strcmp(name, "_ENV") != 0) h = mix(h, value_hash(w, lua_gettop(L), depth + 1));
    lua_pop(L, 1);
  }
  return h;
}

static uint64_t value_hash(walker *w, int at, int depth) {
  lua_State *L = w->L;
  switch (lua_type(L, at)) {
    case LUA_TNUMBER: {
      lua_Number f = lua_tonumber(L, at);
      uint64_t bits;
      if (lua_isinteger(L, at)) return mix(1, (uint64_t)lua_tointeger(L, at));
      memcpy(&bits, &f, 8);
      return mix(2, bits);
    }
    case LUA_TBOOLEAN: return lua_toboolean(L, at) ? 3 : 4;
    case LUA_TSTRING: return bytes_hash(lua_tostring(L, at), lua_rawlen(L, at));
    case LUA_TTABLE: return table_hash(w, at, depth);
    case LUA_TFUNCTION: return function_hash(w, at, depth);
    case LUA_TUSERDATA: {
      uint64_t h = (uint64_t)(uintptr_t)lua_touserdata(L, at);
      if (!lua_getmetatable(L, at)) return h;
      bool tensor = lua_topointer(L, -1) == w->b->tensor_meta;
      lua_pop(L, 1);
      sc_tensor *t = tensor ? ((tensor_box *)lua_touserdata(L, at))->t : NULL;
      return t ? (uint64_t)(uintptr_t)t : h;
    }
    default: return (uint64_t)lua_type(L, at);
  }
}

/* core.fingerprint(fn) -> integer, or nil when what fn captures is more than can be watched */
static int fingerprint(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  walker w;
  w.L = L;
  w.b = sc__binding(L);
  memset(w.seen, 0, sizeof w.seen);
  w.n_seen = 0;
  w.full = false;
  lua_settop(L, 1);
  uint64_t h = function_hash(&w, 1, 0);
  if (w.full) lua_pushnil(L); else lua_pushinteger(L, (lua_Integer)h);
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
  const luaL_Reg FUNCTIONS[] = {{"signature", signature}, {"fingerprint", fingerprint}, {"memory", memory}, {"whole_memory", whole_memory},
                                 {"span", span}, {NULL, NULL}};
  luaL_setfuncs(L, FUNCTIONS, 0);
}
