/* Blocks of the script: gradient mode (sc.no_grad, sc.enable_grad) and scopes (sc.scope), both closed by `<close>`.
**
** A block belongs to the coroutine that opened it. A coroutine without a block of its own has the mode it was born with, when that
** was noted (see lua/sconce/autograd.lua), else that of the innermost block whose coroutine is not suspended: those are the ones it
** was resumed from. A block's value keeps its coroutine alive, so that a block left open by one that died can be looked at until
** the collector closes it.
**
** A scope is a table with weak keys of the tensors made inside: what the collector takes meanwhile needs no freeing. */
#include "binding.h"

#include <string.h>

static const char BORN = 0, SCOPES = 0;

sc_status sc__block_open(binding *b, lua_State *L, block_kind kind, bool enabled, uint64_t *id) {
  SC_TRY(sc__grow(b->ctx, &b->block, (size_t)b->n_blocks, &b->room_blocks, sizeof *b->block));
  *id = ++b->block_ids;
  b->block[b->n_blocks++] = (script_block){L, *id, (uint8_t)kind, enabled};
  if (kind == BLOCK_SCOPE) b->n_scopes++;
  return SC_OK;
}

bool sc__block_close(binding *b, uint64_t id) {
  for (int i = b->n_blocks - 1; i >= 0; i--) {
    if (b->block[i].id != id) continue;
    if (b->block[i].kind == BLOCK_SCOPE) b->n_scopes--;
    memmove(&b->block[i], &b->block[i + 1], (size_t)(b->n_blocks - i - 1) * sizeof b->block[0]);
    b->n_blocks--;
    return true;
  }
  return false;
}

/* Both: not the block `but`. */
static script_block *innermost(binding *b, lua_State *L, block_kind kind, uint64_t but) {
  for (int i = b->n_blocks - 1; i >= 0; i--)
    if (b->block[i].thread == L && b->block[i].kind == kind && b->block[i].id != but) return &b->block[i];
  return NULL;
}

static script_block *outside(binding *b, block_kind kind, uint64_t but) {
  for (int i = b->n_blocks - 1; i >= 0; i--)
    if (b->block[i].kind == kind && b->block[i].id != but && lua_status(b->block[i].thread) == LUA_OK) return &b->block[i];
  return NULL;
}

bool sc__grad_mode(binding *b, lua_State *L) {
  if (!b->n_blocks && !b->any_born) return true;
  script_block *k = innermost(b, L, BLOCK_GRAD, 0);
  if (k) return k->enabled;
  if (b->any_born && lua_checkstack(L, 4)) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &BORN);
    lua_pushthread(L);
    lua_rawget(L, -2);
    bool noted = !lua_isnil(L, -1), on = lua_toboolean(L, -1);
    lua_pop(L, 2);
    if (noted) return on;
  }
  k = outside(b, BLOCK_GRAD, 0);
  return k ? k->enabled : true;
}

/* core.born(enabled): the coroutine that calls was made where gradients were on or off */
static int born(lua_State *L) {
  binding *b = sc__binding(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &BORN);
  lua_pushthread(L);
  lua_pushboolean(L, lua_toboolean(L, 1));
  lua_rawset(L, -3);
  b->any_born = true;
  return 0;
}

static const char *const META = "sconce.block";

/* A value that closes the block; takes nothing from the stack. */
static int push_block(lua_State *L, binding *b, block_kind kind, bool on) {
  uint64_t *id = lua_newuserdatauv(L, sizeof *id, 1);
  *id = 0;
  luaL_setmetatable(L, META);
  lua_pushthread(L);
  lua_setiuservalue(L, -2, 1);
  sc__check(L, b, sc__block_open(b, L, kind, on, id));
  return 1;
}

/* core.grad_block(enabled) -> a value to be closed */
static int grad_block(lua_State *L) {
  binding *b = sc__binding(L);
  sc__set_now(L, b);
  return push_block(L, b, BLOCK_GRAD, lua_toboolean(L, 1));
}

static int is_grad_enabled(lua_State *L) {
  lua_pushboolean(L, sc__grad_mode(sc__binding(L), L));
  return 1;
}

/* ---- scopes ---- */

/* core.scope() -> a value to be closed */
static int scope(lua_State *L) {
  binding *b = sc__binding(L);
  sc__set_now(L, b);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &SCOPES);
  lua_newtable(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &BORN);          /* the same metatable: weak keys */
  lua_getmetatable(L, -1);
  lua_setmetatable(L, -3);
  lua_pop(L, 1);
  push_block(L, b, BLOCK_SCOPE, true);
  lua_insert(L, -2);                                 /* SCOPES, value, table */
  uint64_t id = *(uint64_t *)lua_touserdata(L, -2);
  lua_rawseti(L, -3, (lua_Integer)id);
  return 1;
}

static void add_tensor(lua_State *L, binding *b, uint64_t but) {
  script_block *k = innermost(b, L, BLOCK_SCOPE, but);
  if (!k) k = outside(b, BLOCK_SCOPE, but);
  if (!k) return;
  sc__stack(L, 6, "sconce");
  lua_rawgetp(L, LUA_REGISTRYINDEX, &SCOPES);
  if (lua_rawgeti(L, -1, (lua_Integer)k->id) == LUA_TTABLE) {
    lua_pushvalue(L, -3);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
  }
  lua_pop(L, 2);
}

/* The tensor on top was made: it belongs to the innermost scope. */
void sc__scope_add(lua_State *L, binding *b) { add_tensor(L, b, 0); }

static bool is_tensor(lua_State *L, binding *b, int at) {
  if (lua_type(L, at) != LUA_TUSERDATA || !lua_getmetatable(L, at)) return false;
  bool yes = lua_topointer(L, -1) == b->tensor_meta;
  lua_pop(L, 1);
  return yes;
}

enum { DEEP = 180 };

/* Takes the tensors in the value at `at`, and in tables there, out of the scope; seen: tables been to. */
static void keep(lua_State *L, binding *b, uint64_t id, int scope, int seen, int at, int depth) {
  if (is_tensor(L, b, at)) {
    lua_pushvalue(L, at);
    if (lua_rawget(L, scope) != LUA_TNIL) {
      lua_pushvalue(L, at); lua_pushnil(L); lua_rawset(L, scope);
      lua_pushvalue(L, at);
      add_tensor(L, b, id);                          /* the scope around has it now */
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return;
  }
  if (!lua_istable(L, at)) return;
  if (depth == DEEP) { sc__raise_text(L, b, "scope: the tables returned are nested more than %d deep", DEEP); return; }
  sc__stack(L, 12, "scope");
  lua_pushvalue(L, at);
  if (lua_rawget(L, seen) != LUA_TNIL) { lua_pop(L, 1); return; }
  lua_pop(L, 1);
  lua_pushvalue(L, at); lua_pushboolean(L, 1); lua_rawset(L, seen);
  lua_pushnil(L);
  while (lua_next(L, at)) {
    keep(L, b, id, scope, seen, lua_gettop(L), depth + 1);
    lua_pop(L, 1);
  }
}

/* s:keep(…) -> …: what outlives the scope: tensors, and tables of them */
static int scope_keep(lua_State *L) {
  binding *b = sc__binding(L);
  uint64_t id = *(uint64_t *)luaL_checkudata(L, 1, META);
  int n = lua_gettop(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &SCOPES);
  if (lua_rawgeti(L, -1, (lua_Integer)id) != LUA_TTABLE) return sc__raise_text(L, b, "scope: it is closed already");
  lua_newtable(L);
  sc__stack(L, 16, "scope");
  for (int i = 2; i <= n; i++) keep(L, b, id, n + 2, n + 3, i, 0);
  lua_settop(L, n);
  return n - 1;
}

static void free_all(lua_State *L, uint64_t id) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &SCOPES);
  if (lua_rawgeti(L, -1, (lua_Integer)id) == LUA_TTABLE) {
    lua_pushnil(L);
    while (lua_next(L, -2)) {
      lua_pop(L, 1);
      tensor_box *box = lua_touserdata(L, -1);
      sc_tensor *t = box->t;
      box->t = NULL;
      sc_tensor_release(t);
      lua_pushboolean(L, 1);                         /* for the message of whoever uses it */
      lua_setiuservalue(L, -2, 1);
    }
  }
  lua_pop(L, 1);
  lua_pushnil(L);
  lua_rawseti(L, -2, (lua_Integer)id);
  lua_pop(L, 1);
}

static int block_close(lua_State *L) {
  uint64_t *id = luaL_checkudata(L, 1, META);
  binding *b = sc__binding_or_null(L);
  if (!b || !*id) return 0;
  int scopes = b->n_scopes;
  sc__block_close(b, *id);
  if (b->n_scopes < scopes) free_all(L, *id);
  *id = 0;
  return 0;
}

/* One that nobody closed: its tensors are left to the collector. */
static int block_gc(lua_State *L) {
  uint64_t *id = luaL_checkudata(L, 1, META);
  binding *b = sc__binding_or_null(L);
  if (b && *id && sc__block_close(b, *id)) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &SCOPES);
    lua_pushnil(L);
    lua_rawseti(L, -2, (lua_Integer)*id);
  }
  return 0;
}

static const luaL_Reg FUNCTIONS[] = {{"grad_block", grad_block}, {"is_grad_enabled", is_grad_enabled}, {"born", born}, {"scope", scope}, {NULL, NULL}};

void sc__open_block(lua_State *L, binding *b) {
  (void)b;
  luaL_setfuncs(L, FUNCTIONS, 0);
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "k"); lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &BORN);
  lua_newtable(L); lua_rawsetp(L, LUA_REGISTRYINDEX, &SCOPES);
  luaL_newmetatable(L, META);
  lua_pushcfunction(L, block_close); lua_setfield(L, -2, "__close");
  lua_pushcfunction(L, block_gc); lua_setfield(L, -2, "__gc");
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, scope_keep); lua_setfield(L, -2, "keep");
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}
