/* Guards: what a trace took from its surroundings, and whether all of it is still so. Asked at every call of a compiled function, so
** there are three kinds, by what a look costs (lua/sconce/capture.lua sorts them out):
**
** - upvalues of functions, and methods of the script's classes, one by one: numbers, strings, booleans by value, tensors, tables and
**   functions by identity;
** - plain tables: a hash over their fields, one level, made anew each time;
** - watched tables, the fields of modules and optimisers (lua/sconce/watch.lua): whoever writes to one counts up the binding's `epoch`.
**   As long as that stands still they are not looked at; when it has moved, their hashes are made and the new epoch is remembered.
**
** And captured tensors must ask for gradients, or not, as they did, and have the gradients that the trace looked at. Values that are
** compared by identity are kept alive by the capture. */
#include "compiled.h"

#include <string.h>

static const char *const GUARD = "sconce.guard";

typedef struct held {
  uint8_t type, upvalue;           /* upvalue 0: a field of a table, whose name stands in the list */
  bool same_function;              /* as the one before */
  union { lua_Integer i; lua_Number f; const void *p; } v;
  union { const sc_tensor *tensor; uint64_t hash; } more;    /* in the box v.p; of the string's bytes */
} held;

typedef struct asked { const sc_tensor *t; bool requires; } asked;     /* borrowed of the graph */
typedef struct seen { const sc_tensor *t; uint32_t version; } seen;    /* whose values were read; kept alive by the user value */

typedef struct guard {
  uint64_t epoch;
  int n_held, n_watched, n_plain, n_asked, n_seen;
  uint64_t *hash;                  /* of the watched, then of the plain tables */
  asked *asked;
  seen *seen;
  const sc_graph *graph;           /* whose grad_read is asked as well */
  held held[];
} guard;

enum { FUNCTIONS_AT = 1, WATCHED_AT, PLAIN_AT, EXCEPT_AT, N_USER_VALUES = EXCEPT_AT };

/* ---- hashes of tables ---- */

static uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdu;
  return h ^ h >> 32;
}

static uint64_t bytes_hash(const char *s, size_t n) {
  uint64_t h = n;
  for (size_t i = 0; i < n; i++) h = (h ^ (uint8_t)s[i]) * 0x100000001b3u;
  return h;
}

static uint64_t value_hash(lua_State *L, binding *b, int at) {
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
    case LUA_TUSERDATA: {
      uint64_t h = (uint64_t)(uintptr_t)lua_touserdata(L, at);
      if (!lua_getmetatable(L, at)) return h;
      bool tensor = lua_topointer(L, -1) == b->tensor_meta;
      lua_pop(L, 1);
      const sc_tensor *t = tensor ? ((tensor_box *)lua_touserdata(L, at))->t : NULL;
      return t ? mix((uint64_t)(uintptr_t)t, 5) : h;
    }
    default: return (uint64_t)(uintptr_t)lua_topointer(L, at);
  }
}

/* What a field counts for, by what `except` says of its key: nothing (false), whether it is 0 ("zero"), or its value. */
enum { NOTHING, ZERO, VALUE };
static int counts(lua_State *L, int except, int key, bool only) {
  lua_pushvalue(L, key);
  int type = lua_rawget(L, except);
  int r = type == LUA_TNIL ? (only ? NOTHING : VALUE) : type == LUA_TBOOLEAN ? (lua_toboolean(L, -1) ? VALUE : NOTHING) : ZERO;
  lua_pop(L, 1);
  return r;
}

/* Of the table on top. At `except`: a table that says of keys what they count for (true: their value); its field 1, true, says that the
** other keys count for nothing. Or nil. */
static uint64_t table_hash(lua_State *L, binding *b, int except) {
  int t = lua_gettop(L);
  bool some = lua_istable(L, except), only = false;
  uint64_t sum = 0;
  if (some) { only = lua_rawgeti(L, except, 1) == LUA_TBOOLEAN; lua_pop(L, 1); }
  lua_pushnil(L);
  while (lua_next(L, t)) {
    int c = some ? counts(L, except, t + 1, only) : VALUE;
    if (c == VALUE) sum += mix(value_hash(L, b, t + 1), value_hash(L, b, t + 2));
    if (c == ZERO) sum += mix(value_hash(L, b, t + 1), lua_tonumber(L, t + 2) == 0);
    lua_pop(L, 1);
  }
  return sum;
}

/* The list of tables is at `list`, what to leave out of them (by table) at `except`. */
static uint64_t nth_hash(lua_State *L, binding *b, int list, int except, int i) {
  int top = lua_gettop(L);
  lua_rawgeti(L, list, i + 1);
  lua_pushvalue(L, -1);
  lua_rawget(L, except);
  lua_insert(L, -2);
  uint64_t h = table_hash(L, b, top + 1);
  lua_settop(L, top);
  return h;
}

/* ---- upvalues ---- */

static const sc_tensor *tensor_in(lua_State *L, binding *b, int at) {
  if (!lua_getmetatable(L, at)) return NULL;
  bool tensor = lua_topointer(L, -1) == b->tensor_meta;
  lua_pop(L, 1);
  return tensor ? ((tensor_box *)lua_touserdata(L, at))->t : NULL;
}

static void hold(lua_State *L, binding *b, held *h) {
  h->type = (uint8_t)lua_type(L, -1);
  if (lua_isinteger(L, -1)) { h->type = 100; h->v.i = lua_tointeger(L, -1); }
  else if (h->type == LUA_TNUMBER) h->v.f = lua_tonumber(L, -1);
  else if (h->type == LUA_TBOOLEAN) h->v.i = lua_toboolean(L, -1);
  else h->v.p = lua_topointer(L, -1);
  if (h->type == LUA_TSTRING) h->more.hash = bytes_hash(lua_tostring(L, -1), lua_rawlen(L, -1));
  else h->more.tensor = h->type == LUA_TUSERDATA ? tensor_in(L, b, lua_gettop(L)) : NULL;
}

/* The value on top. What is compared by identity is alive, so the same address is the same value. */
static inline bool still(lua_State *L, const held *h) {
  switch (h->type) {
    case 100: return lua_isinteger(L, -1) && lua_tointeger(L, -1) == h->v.i;
    case LUA_TNUMBER: {
      lua_Number f = lua_tonumber(L, -1);
      return lua_type(L, -1) == LUA_TNUMBER && !lua_isinteger(L, -1) && memcmp(&f, &h->v.f, sizeof f) == 0;
    }
    case LUA_TBOOLEAN: return lua_isboolean(L, -1) && lua_toboolean(L, -1) == (int)h->v.i;
    case LUA_TSTRING:
      return lua_topointer(L, -1) == h->v.p ||
             (lua_type(L, -1) == LUA_TSTRING && bytes_hash(lua_tostring(L, -1), lua_rawlen(L, -1)) == h->more.hash);
    case LUA_TUSERDATA: return lua_touserdata(L, -1) == h->v.p && (!h->more.tensor || ((tensor_box *)h->v.p)->t == h->more.tensor);
    case LUA_TNIL: return lua_isnil(L, -1);
    default: return lua_topointer(L, -1) == h->v.p;
  }
}

/* ---- asking ---- */

static bool watched_hold(lua_State *L, binding *b, guard *g, int at) {
  if (g->epoch == b->epoch) return true;
  lua_getiuservalue(L, at, WATCHED_AT);
  lua_getiuservalue(L, at, EXCEPT_AT);
  int list = lua_gettop(L) - 1;
  for (int i = 0; i < g->n_watched; i++) if (nth_hash(L, b, list, list + 1, i) != g->hash[i]) return false;
  g->epoch = b->epoch;
  return true;
}

static bool plain_hold(lua_State *L, binding *b, guard *g, int at) {
  if (!g->n_plain) return true;
  lua_getiuservalue(L, at, PLAIN_AT);
  lua_getiuservalue(L, at, EXCEPT_AT);
  int list = lua_gettop(L) - 1;
  for (int i = 0; i < g->n_plain; i++) if (nth_hash(L, b, list, list + 1, i) != g->hash[g->n_watched + i]) return false;
  return true;
}

bool sc__guard_holds(lua_State *L, binding *b, int at) {
  guard *g = lua_touserdata(L, at);
  int top = lua_gettop(L), fn = top + 2;
  for (int i = 0; i < g->n_seen; i++) if (g->seen[i].t->storage->version != g->seen[i].version) return false;
  for (int i = 0; i < g->n_asked; i++) if (sc_requires_grad(g->asked[i].t) != g->asked[i].requires) return false;
  for (size_t i = 0; i < g->graph->n_grad_read; i++) if (sc_grad_of(g->graph->grad_read[i].leaf) != g->graph->grad_read[i].before) return false;
  if (!lua_checkstack(L, 270)) return false;            /* a function and all its upvalues */
  bool good = true;
  if (g->n_held) lua_getiuservalue(L, at, FUNCTIONS_AT);
  for (int i = 0; i < g->n_held && good; i++) {
    const held *h = &g->held[i];
    if (!h->same_function) { lua_settop(L, top + 1); lua_rawgeti(L, top + 1, 2 * i + 1); }
    if (SC_LIKELY(h->upvalue)) {
      lua_getupvalue(L, fn, h->upvalue);
    } else {
      lua_rawgeti(L, top + 1, 2 * i + 2);
      lua_rawget(L, fn);
    }
    good = still(L, h);
  }
  good = good && watched_hold(L, b, g, at) && plain_hold(L, b, g, at);
  lua_settop(L, top);
  return good;
}

/* ---- making ---- */

static void look_at_captures(const sc_graph *s, guard *g) {
  for (size_t v = 0; v < s->n_values; v++) {
    const sc_value *x = &s->value[v];
    if (x->captured && !(x->captured->flags & SC_T_WRAPPED)) g->asked[g->n_asked++] = (asked){x->captured, x->requires};
  }
}

static size_t captures_of(const sc_graph *s) {
  size_t n = 0;
  for (size_t v = 0; v < s->n_values; v++) n += s->value[v].captured && !(s->value[v].captured->flags & SC_T_WRAPPED);
  return n;
}

/* core.guard({fn, number of upvalue, class, name of method, …}, {watched table, …}, {plain table, …}, {table = what its keys count for}, graph, {tensor whose values were read, …})
** of how these are now.
** The graph must live as long. */
static int guard_new(lua_State *L) {
  binding *b = sc__binding(L);
  for (int i = 1; i <= 4; i++) luaL_checktype(L, i, LUA_TTABLE);
  const sc_graph *s = sc__check_graph(L, 5);
  size_t n_held = lua_rawlen(L, 1) / 2, n_watched = lua_rawlen(L, 2), n_plain = lua_rawlen(L, 3), n_asked = captures_of(s), n_seen = lua_rawlen(L, 6);
  luaL_checktype(L, 6, LUA_TTABLE);
  lua_settop(L, 6);
  guard *g = lua_newuserdatauv(L, sizeof *g + n_held * sizeof *g->held + (n_watched + n_plain) * 8 + n_asked * sizeof *g->asked + n_seen * sizeof *g->seen, 6);
  *g = (guard){.epoch = b->epoch, .n_held = (int)n_held, .n_watched = (int)n_watched, .n_plain = (int)n_plain, .graph = s};
  g->hash = (uint64_t *)&g->held[n_held];
  g->asked = (asked *)&g->hash[n_watched + n_plain];
  g->seen = (seen *)&g->asked[n_asked];
  luaL_setmetatable(L, GUARD);
  for (int i = 1; i <= 6; i++) { lua_pushvalue(L, i); lua_setiuservalue(L, 7, i); }
  for (int i = 0; i < g->n_held; i++) {
    held *h = &g->held[i];
    lua_rawgeti(L, 1, 2 * i + 1);
    lua_rawgeti(L, 1, 2 * i + 2);
    h->upvalue = lua_isinteger(L, -1) ? (uint8_t)lua_tointeger(L, -1) : 0;
    lua_rawgeti(L, 1, 2 * i - 1);
    h->same_function = i > 0 && lua_rawequal(L, -1, -3);
    if (h->upvalue) {
      if (!lua_getupvalue(L, -3, h->upvalue)) lua_pushnil(L);
    } else {
      lua_pushvalue(L, -2);
      lua_rawget(L, -4);
    }
    hold(L, b, h);
    lua_settop(L, 7);
  }
  for (int i = 0; i < g->n_watched; i++) g->hash[i] = nth_hash(L, b, 2, 4, i);
  for (int i = 0; i < g->n_plain; i++) g->hash[n_watched + (size_t)i] = nth_hash(L, b, 3, 4, i);
  for (size_t i = 0; i < n_seen; i++) {
    lua_rawgeti(L, 6, (lua_Integer)i + 1);
    const sc_tensor *t = sc__test_tensor(L, b, -1);
    if (t && t->storage) g->seen[g->n_seen++] = (seen){t, t->storage->version};
    lua_settop(L, 7);
  }
  look_at_captures(s, g);
  return 1;
}

/* core.holds(guard) */
static int holds(lua_State *L) {
  luaL_checkudata(L, 1, GUARD);
  lua_pushboolean(L, sc__guard_holds(L, sc__binding(L), 1));
  return 1;
}

/* core.changed(): a watched table was written to */
static int changed(lua_State *L) {
  sc__binding(L)->epoch++;
  return 0;
}

void sc__open_guard(lua_State *L, binding *b) {
  (void)b;
  luaL_newmetatable(L, GUARD);
  lua_pop(L, 1);
  const luaL_Reg FUNCTIONS[] = {{"guard", guard_new}, {"holds", holds}, {"changed", changed}, {NULL, NULL}};
  luaL_setfuncs(L, FUNCTIONS, 0);
}
