/* Sizes that a graph built by hand leaves open, as values of the script: `x:size(1)` of an input { "batch", 4 } is a value that prints
** "batch", takes part in arithmetic with integers and in shape arguments, and raises wherever a number is needed.
**
** Such a value holds the number that stands for the size in the recording (csrc/graph/instantiate.c). The script's own lines get these; the
** library's lines go on computing with the stand-ins, and the argument reader takes the values back to them. */
#include "compiled.h"

#include <stdio.h>
#include <string.h>

static const char *const SIZE = "sconce.size";

typedef struct size_value { int64_t v; sc_graph *g; } size_value;

static size_value *test_size(lua_State *L, binding *b, int at) {
  if (lua_type(L, at) != LUA_TUSERDATA || !lua_getmetatable(L, at)) return NULL;
  bool is = lua_topointer(L, -1) == b->size_meta;
  lua_pop(L, 1);
  return is ? lua_touserdata(L, at) : NULL;
}

static const char *words(const size_value *s, char *out, size_t n) {
  char number[32];
  snprintf(number, sizeof number, "%lld", (long long)s->v);
  sc__name_sizes(s->g, number, out, n);
  return out;
}

static void push(lua_State *L, binding *b, sc_graph *g, int64_t v) {
  int k;
  int64_t q, r;
  if (!sc__size_term(g->n_sizes, v, &k, &q, &r)) { lua_pushinteger(L, v); return; }
  size_value *s = lua_newuserdatauv(L, sizeof *s, 0);
  *s = (size_value){v, sc__graph_retain(g)};
  b->sizes_named = true;
  luaL_setmetatable(L, SIZE);
}

bool sc__push_size(lua_State *L, binding *b, const sc_tensor *t, int64_t v) {
  if (!t->graph || !t->graph->n_sizes || b->sizes_watched || b->ctx->tracing || !sc__user_asks(L, b)) return false;
  push(L, b, t->graph, v);
  return true;
}

static bool holds_size(lua_State *L, binding *b, int at, int depth) {
  if (test_size(L, b, at)) return true;
  if (depth == 0 || !lua_istable(L, at) || !lua_checkstack(L, 6)) return false;
  bool found = false;
  lua_pushnil(L);
  while (!found && lua_next(L, at)) {
    found = holds_size(L, b, lua_gettop(L), depth - 1);
    lua_pop(L, found ? 2 : 1);
  }
  return found;
}

/* Pushes the value at `at` with stand-ins for sizes: a copy, of tables that hold some. */
static void push_plain(lua_State *L, binding *b, int at, int depth) {
  const size_value *s = test_size(L, b, at);
  if (s) { lua_pushinteger(L, s->v); return; }
  if (!holds_size(L, b, at, depth)) { lua_pushvalue(L, at); return; }
  lua_newtable(L);
  int to = lua_gettop(L);
  lua_pushnil(L);
  while (lua_next(L, at)) {
    lua_pushvalue(L, -2);
    push_plain(L, b, lua_gettop(L) - 1, depth - 1);
    lua_rawset(L, to);
    lua_pop(L, 1);
  }
}

void sc__plain_sizes(lua_State *L, binding *b, int first, int last) {
  sc__stack(L, 16, "sizes");
  for (int i = first; i <= last; i++) {
    if (!holds_size(L, b, i, 3)) continue;
    push_plain(L, b, i, 3);
    lua_replace(L, i);
  }
}

/* ---- arithmetic: (size or integer) with (size or integer) ---- */

enum { ADD, SUB, MUL, IDIV, MOD };
static const char *const SIGN[] = {"+", "-", "*", "//", "%"}, *const EVENT[] = {"__add", "__sub", "__mul", "__idiv", "__mod"};

static const char *operand(lua_State *L, binding *b, int at, char *out, size_t n) {
  const size_value *s = test_size(L, b, at);
  if (s) return words(s, out, n);
  snprintf(out, n, "%s", lua_type(L, at) == LUA_TNUMBER ? lua_tostring(L, at) : luaL_typename(L, at));
  return out;
}

static int not_known(lua_State *L, binding *b, const char *what) {
  char x[100], y[100];
  return sc__raise_text(L, b, "%s %s %s: a size that is known only when the graph runs is no number; it takes +, -, * with integers, // and %% where "
                        "they come out even, and goes into shapes", operand(L, b, 1, x, sizeof x), what, operand(L, b, 2, y, sizeof y));
}

static bool compute(int op, int64_t x, int64_t y, int64_t *out) {
  switch (op) {
    case ADD: return !__builtin_add_overflow(x, y, out);
    case SUB: return !__builtin_sub_overflow(x, y, out);
    case MUL: return !__builtin_mul_overflow(x, y, out);
    case IDIV: *out = y > 0 && x % y == 0 ? x / y : 0; return y > 0 && x % y == 0;
    default: *out = 0; return y > 0 && x % y == 0;
  }
}

static int arithmetic(lua_State *L) {
  binding *b = sc__binding(L);
  int op = (int)lua_tointeger(L, lua_upvalueindex(1));
  int64_t v[2], out;
  const size_value *first = test_size(L, b, 1), *s = first ? first : test_size(L, b, 2);
  if (sc__test_tensor(L, b, 1) || sc__test_tensor(L, b, 2)) {            /* a tensor's arithmetic, then */
    sc__plain_sizes(L, b, 1, 2);
    if (!luaL_getmetafield(L, sc__test_tensor(L, b, 1) ? 1 : 2, EVENT[op])) return not_known(L, b, SIGN[op]);
    lua_insert(L, 1);
    lua_call(L, 2, 1);
    return 1;
  }
  for (int i = 0; i < 2; i++) {
    const size_value *x = test_size(L, b, i + 1);
    if (!x && !lua_isinteger(L, i + 1)) return not_known(L, b, SIGN[op]);
    v[i] = x ? x->v : lua_tointeger(L, i + 1);
  }
  if (!s || !compute(op, v[0], v[1], &out)) return not_known(L, b, SIGN[op]);
  push(L, b, s->g, out);
  return 1;
}

static int divide(lua_State *L) {
  binding *b = sc__binding(L);
  if (!sc__test_tensor(L, b, 1) && !sc__test_tensor(L, b, 2)) return not_known(L, b, "/");
  sc__plain_sizes(L, b, 1, 2);
  luaL_getmetafield(L, sc__test_tensor(L, b, 1) ? 1 : 2, "__div");
  lua_insert(L, 1);
  lua_call(L, 2, 1);
  return 1;
}

static int compare(lua_State *L) { return not_known(L, sc__binding(L), lua_tostring(L, lua_upvalueindex(1))); }

static int equal(lua_State *L) {
  binding *b = sc__binding(L);
  const size_value *x = test_size(L, b, 1), *y = test_size(L, b, 2);
  lua_pushboolean(L, x && y && x->g == y->g && x->v == y->v);
  return 1;
}

static int text(lua_State *L) {
  const size_value *s = luaL_checkudata(L, 1, SIZE);
  char name[200];
  lua_pushstring(L, words(s, name, sizeof name));
  return 1;
}

static int negative(lua_State *L) {
  const size_value *s = luaL_checkudata(L, 1, SIZE);
  push(L, sc__binding(L), s->g, -s->v);
  return 1;
}

static int gc(lua_State *L) {
  size_value *s = lua_touserdata(L, 1);
  sc_graph_release(s->g);
  s->g = NULL;
  return 0;
}

void sc__open_size(lua_State *L, binding *b) {
  luaL_newmetatable(L, SIZE);
  b->size_meta = lua_topointer(L, -1);
  const luaL_Reg EVENTS[] = {{"__div", divide}, {"__eq", equal}, {"__tostring", text}, {"__concat", sc__concat}, {"__unm", negative}, {"__gc", gc}, {NULL, NULL}};
  luaL_setfuncs(L, EVENTS, 0);
  for (int i = 0; i < SC_COUNT(EVENT); i++) {
    lua_pushinteger(L, i);
    lua_pushcclosure(L, arithmetic, 1);
    lua_setfield(L, -2, EVENT[i]);
  }
  lua_pushliteral(L, "<"); lua_pushcclosure(L, compare, 1); lua_setfield(L, -2, "__lt");
  lua_pushliteral(L, "<="); lua_pushcclosure(L, compare, 1); lua_setfield(L, -2, "__le");
  lua_pushliteral(L, "^"); lua_pushcclosure(L, compare, 1); lua_setfield(L, -2, "__pow");
  lua_pop(L, 1);
}
