/* The module: making the binding, errors with the user's line, and what the collector owes. */
#include "binding.h"
#include "../sconce_lua.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char KEY = 0, NOW = 0;      /* their addresses name the binding and the calling coroutine in the registry */

binding *sc__binding_or_null(lua_State *L) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &KEY);
  binding *b = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return b && b->ctx ? b : NULL;
}

/* Finalisers run in any order when the state closes: some may still call. */
static void closed(lua_State *L) { luaL_error(L, "sconce: the Lua state is closing"); }

binding *sc__binding(lua_State *L) {
  binding *b = sc__binding_or_null(L);
  if (!b) closed(L);
  return b;
}

/* ---- where the user is ---- */

static int place_of(binding *b, const char *source) {
  size_t k = ((uintptr_t)source >> 4) % SC_COUNT(b->place);
  if (b->place[k].source && strcmp(b->place[k].source, source) == 0) return (int)k;
  free(b->place[k].source);
  size_t n = strlen(source) + 1;
  b->place[k].source = n < 4096 ? malloc(n) : NULL;
  b->place[k].internal = b->inside_length && strncmp(source, b->inside, b->inside_length) == 0;
  char name[LUA_IDSIZE];
  snprintf(name, sizeof name, "%s", source[0] == '@' || source[0] == '=' ? source + 1 : "[string]");
  b->place[k].file = b->place[k].internal ? NULL : sc__intern(b->ctx, name);
  if (b->place[k].source) memcpy(b->place[k].source, source, n);
  return (int)k;
}

sc_location sc__lua_locate(void *user) {
  binding *b = user;
  lua_State *L = b->ctx ? b->now : NULL;
  lua_Debug ar;
  for (int level = 0; L && lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "Sl", &ar);
    if (ar.currentline < 0) continue;
    int k = place_of(b, ar.source);
    if (b->place[k].internal || !b->place[k].file) continue;
    return (sc_location){b->place[k].file, ar.currentline};
  }
  return (sc_location){NULL, 0};
}

/* The outermost op written in Lua between here and the script's own function. */
static const sc_opinfo *composite(void *user) {
  binding *b = user;
  lua_State *L = b->ctx ? b->now : NULL;
  const sc_opinfo *found = NULL, *op;
  lua_Debug ar;
  for (int level = 0; L && lua_getstack(L, level, &ar) && lua_checkstack(L, 3); level++) {
    lua_getinfo(L, "Slf", &ar);
    if ((op = sc__composite_op(L))) found = op;
    lua_pop(L, 1);
    if (ar.currentline < 0) continue;
    int k = place_of(b, ar.source);
    if (!b->place[k].internal && b->place[k].file) break;
  }
  return found;
}

static void push_where(lua_State *L, binding *b) {
  sc__set_now(L, b);
  sc_location l = sc__lua_locate(b);
  if (l.line) lua_pushfstring(L, "%s:%d: ", l.file, l.line);
  else lua_pushliteral(L, "");
}

/* "dist: " where the script has called an op written in Lua and another one complains: it did not call that one. */
static void push_called(lua_State *L, binding *b, const char *message) {
  const sc_opinfo *op = composite(b);
  size_t n = op ? strlen(op->name) : 0;
  if (!op || (strncmp(message, op->name, n) == 0 && message[n] == ':')) lua_pushliteral(L, "");
  else lua_pushfstring(L, "%s: ", op->name);
}

int sc__raise(lua_State *L, binding *b) {
  if (b->error_pending) {
    sc__script_parked(L, b);
    return lua_error(L);
  }
  push_where(L, b);
  char named[1024];
  sc__name_sizes(b->ctx->building, sc_error(b->ctx), named, sizeof named);
  push_called(L, b, named);
  lua_pushstring(L, named);
  lua_concat(L, 3);
  return lua_error(L);
}

int sc__raise_text(lua_State *L, binding *b, const char *format, ...) {
  char text[1024];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  sc__tame(text);
  push_where(L, b);
  char named[1024];
  sc__name_sizes(b->ctx->building, text, named, sizeof named);
  push_called(L, b, named);
  lua_pushstring(L, named);
  lua_concat(L, 3);
  return lua_error(L);
}

/* ---- the collector ----
** Lua sees a tensor as a few bytes, so the collector is stepped from here, at op entry, before operands are read: a cycle for every
** `room` bytes of tensors made. Room is what the last cycle found alive (less
** what was made while it ran, or room would grow from cycle to cycle), so memory stays within a small multiple of that and a large
** model does not make small steps pay for full cycles; or a part of Lua's heap, because a cycle costs as much as that is large. At
** least 1 MB while tensors are small, so that blocks come back while they are still in the cache (chains of small ops run twice as
** fast as with 8 MB), and up to 8 MB when they are large. Steps of size 0 make progress whatever pause the script has set.
**
** Large results (LARGE and more an op) are worth a cycle at once: what is made while a cycle is under way survives it, and a few such
** blocks more are out of the cache (adding 4 MB took 1.8 of the time).
**
** In generational mode (the lua program's own default) a step is a minor collection, which leaves old garbage; the major ones that
** would find it are decided by Lua's bytes alone, and only at a step with debt: one in 32 brings some. And when what the engine holds has
** doubled since the last whole cycle, one is made. Two minor collections in a row would make what is on the stack old, to stay until then:
** at most one at a time. The mode cannot be asked for; in this one no step ever reports that it has ended a cycle.
** Never when the script has stopped the collector. */
enum { LOOK_EVERY = 128 * 1024, LARGE = 1 << 20 };

/* A cycle has ended. */
static void cycle_ended(binding *b) {
  b->live_after = (double)atomic_load(&b->ctx->live_bytes) - b->made;
  b->held_full = (double)b->ctx->held - b->made;
  b->made = 0;
  b->unended = 0;
}

static void pay(lua_State *L, binding *b) {
  double made = (double)b->ctx->charged, least = made * 8 < 1e6 ? 1e6 : made * 8 < 8e6 ? made * 8 : 8e6;
  b->owed += made;
  b->ctx->charged = 0;
  if (!lua_gc(L, LUA_GCISRUNNING)) { b->owed = 0; return; }
  double heap = (double)lua_gc(L, LUA_GCCOUNT) * 1024, room = b->live_after > 0.6 * heap ? b->live_after : 0.6 * heap;
  if (room < least) room = least;
  double steps = heap / 2e6 + 2, each = room / steps;           /* of a cycle; measured: a step takes about 2 MB of heap */
  bool late = b->owed > room;                                   /* a cycle at once, and the rest is forgiven */
  bool minor = b->unended > 4 * steps + 8, at_once = made >= LARGE && !minor;
  int n = late ? (int)steps + 2 * at_once : at_once ? 0 : (int)(b->owed / each);
  b->owed = late ? 0 : b->owed - n * each;
  b->made += made;
  if (minor && n > 1) n = 1;
  for (int i = 0; i < n; i++) {
    b->unended++;
    if (lua_gc(L, LUA_GCSTEP, ++b->steps % 32 ? 0 : (int)(heap / 4096) + 1) != 1) continue;
    if (at_once) b->made = 0;
    cycle_ended(b);
    if (at_once) break;
  }
  double most = made * 4 < 4e6 ? 4e6 : made * 4 < 16e6 ? made * 4 : 16e6;
  if ((double)b->ctx->held < 2 * b->held_full + (heap > most ? heap : most)) return;
  lua_gc(L, LUA_GCCOLLECT);
  double unended = b->unended;                       /* a whole cycle that was asked for says nothing of the mode */
  b->made = 0;
  cycle_ended(b);
  b->unended = unended;
}

void sc__come_in(lua_State *L, binding *b) {
  lua_pushthread(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &NOW);
  b->now = L;
  b->ctx->locate = sc__lua_locate;                 /* another state may have used the context since */
  b->ctx->locate_user = b;
}

void sc__stack(lua_State *L, int n, const char *what) {
  if (!lua_checkstack(L, n)) luaL_error(L, "%s: not enough memory for Lua's stack, or it is at its limit", what);
}

void sc__enter(lua_State *L, binding *b) {
  if (SC_UNLIKELY(!b->ctx)) closed(L);
  sc__set_now(L, b);
#ifdef SC_HOSTILE
  sc__hostile_collect(L);
  sc__set_now(L, b);
#endif
  if (b->ctx->charged > LOOK_EVERY) { pay(L, b); sc__set_now(L, b); }
  if (SC_UNLIKELY(b->fresh || b->unpinned)) sc__script_settle(L, b);
  if (!b->depth) b->error_pending = false;
  b->ctx->grad_enabled = (b->n_blocks == 0 && !b->any_born) || sc__grad_mode(b, L);
}

/* ---- settings ---- */

static int set_inside(lua_State *L) {
  binding *b = sc__binding(L);
  snprintf(b->inside, sizeof b->inside, "%s", luaL_checkstring(L, 1));
  b->inside_length = strlen(b->inside);
  return 0;
}

static int manual_seed(lua_State *L) {
  binding *b = sc__binding(L);
  uint64_t seed = (uint64_t)luaL_checkinteger(L, 1);
  sc__outside_traces(L, b, "manual_seed");
  sc_seed(b->ctx, seed);
  return 0;
}
static int set_num_threads(lua_State *L) {
  binding *b = sc__binding(L);
  lua_Integer n = luaL_checkinteger(L, 1);
  if (n < 1) return sc__raise_text(L, b, "set_num_threads: expected a positive number, got %lld", (long long)n);
  sc_set_threads(b->ctx, n > 64 ? 64 : (int)n);
  return 0;
}
static int get_num_threads(lua_State *L) { lua_pushinteger(L, sc_get_threads(sc__binding(L)->ctx)); return 1; }
static int set_memory_limit(lua_State *L) { sc_set_memory_limit(sc__binding(L)->ctx, (size_t)luaL_optinteger(L, 1, 0)); return 0; }

static int stats(lua_State *L) {
  sc_stats s;
  sc_get_stats(sc__binding(L)->ctx, &s);
  lua_createtable(L, 0, 5);
  const struct { const char *name; int64_t v; } FIELDS[] = {
    {"live", s.live_tensors}, {"bytes", s.bytes}, {"peak", s.peak}, {"cached", s.cached}, {"allocations", s.allocations}};
  for (int i = 0; i < SC_COUNT(FIELDS); i++) { lua_pushinteger(L, FIELDS[i].v); lua_setfield(L, -2, FIELDS[i].name); }
  return 1;
}

/* core.now() -> seconds of a clock that only goes forward */
static int now(lua_State *L) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  lua_pushnumber(L, (double)t.tv_sec + (double)t.tv_nsec * 1e-9);
  return 1;
}

static int memory_allocated(lua_State *L) { lua_pushinteger(L, atomic_load(&sc__binding(L)->ctx->live_bytes)); return 1; }

/* ---- opening ---- */

static int binding_gc(lua_State *L) {
  binding *b = lua_touserdata(L, 1);
  for (int i = 0; i < SC_COUNT(b->place); i++) free(b->place[i].source);
  sc__hostile_close(L);
  sc_context *ctx = b->ctx;
  if (!ctx) return 0;
  ctx->locate = NULL;
  ctx->composite = NULL;
  sc__close_script(b);
  sc__release(ctx, b->block, b->room_blocks * sizeof *b->block);
  b->ctx = NULL;
  sc_context_free(ctx);
  return 0;
}

/* Every op of the table becomes a function `name` (dots make subtables) and, unless it says no, a method. */
static void add_ops(lua_State *L, binding *b) {
  int module = lua_gettop(L);
  lua_newtable(L);                                   /* ops: name -> function, all of them */
  int all = lua_gettop(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, b->methods_ref);
  int methods = lua_gettop(L);
  for (int i = 0; i < b->ctx->ops->n + b->ctx->ops->n_alias; i++) {
    const sc_opalias *alias = i < b->ctx->ops->n ? NULL : &b->ctx->ops->alias[i - b->ctx->ops->n];
    const sc_opinfo *op = alias ? alias->op : &b->ctx->ops->info[i];
    const char *name = alias ? alias->name : op->name;
    lua_pushlightuserdata(L, b);
    lua_pushlightuserdata(L, (void *)op);
    lua_pushcclosure(L, sc__op_function, 2);
    lua_pushvalue(L, -1);
    lua_setfield(L, all, name);
    if (!(op->flags & (SC_OP_FUNCTION | SC_OP_INTERNAL)) && !strchr(name, '.')) { lua_pushvalue(L, -1); lua_setfield(L, methods, name); }
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  lua_setfield(L, module, "ops");
}

/* core.op_info(name) -> {signature=, help=, flags=, …}; core.op_names() -> list */
static int op_info(lua_State *L) {
  binding *b = sc__binding(L);
  const sc_opinfo *op = sc__op_find(b->ctx, luaL_checkstring(L, 1));
  if (!op) return 0;
  lua_createtable(L, 0, 8);
  char text[1000];
  lua_pushstring(L, sc__signature_shown(op->def->signature, text, sizeof text)); lua_setfield(L, -2, "signature");
  lua_pushstring(L, op->def->help); lua_setfield(L, -2, "help");
  lua_pushboolean(L, (op->flags & SC_OP_INTERNAL) != 0); lua_setfield(L, -2, "internal");
  lua_pushboolean(L, op->inplace); lua_setfield(L, -2, "inplace");
  lua_pushboolean(L, (op->flags & SC_OP_RANDOM) != 0); lua_setfield(L, -2, "random");
  lua_pushboolean(L, op->def->compose != NULL); lua_setfield(L, -2, "composite");
  lua_pushboolean(L, sc__op_has_gradient(op)); lua_setfield(L, -2, "has_gradient");
  if (op->def->no_grad) { lua_pushstring(L, op->def->no_grad); lua_setfield(L, -2, "no_grad"); }
  lua_createtable(L, op->n_params, 0);
  for (int i = 0; i < op->n_params; i++) { lua_pushstring(L, op->param[i].name); lua_rawseti(L, -2, i + 1); }
  lua_setfield(L, -2, "params");
  lua_pushboolean(L, op->def->pw != NULL); lua_setfield(L, -2, "pointwise");
  return 1;
}

/* core.op_prepare(name) -> true, or false and why its gradient formulas cannot be read */
static int op_prepare(lua_State *L) {
  binding *b = sc__binding(L);
  sc_opinfo *op = (sc_opinfo *)sc__op_find(b->ctx, luaL_checkstring(L, 1));
  bool ok = op && sc__formulas_prepare(b->ctx, op) == SC_OK;
  lua_pushboolean(L, ok);
  lua_pushstring(L, ok ? "" : op ? sc_error(b->ctx) : "there is no such op");
  return 2;
}

static int op_names(lua_State *L) {
  binding *b = sc__binding(L);
  lua_createtable(L, b->ctx->ops->n, 0);
  for (int i = 0; i < b->ctx->ops->n; i++) { lua_pushstring(L, b->ctx->ops->info[i].name); lua_rawseti(L, -2, i + 1); }
  return 1;
}

static const luaL_Reg FUNCTIONS[] = {
  {"set_inside", set_inside}, {"manual_seed", manual_seed}, {"set_num_threads", set_num_threads}, {"get_num_threads", get_num_threads},
  {"set_memory_limit", set_memory_limit}, {"stats", stats}, {"now", now}, {"memory_allocated", memory_allocated},
  {"op_info", op_info}, {"op_names", op_names}, {"op_prepare", op_prepare}, {"composite", sc__composite}, {"signature_text", sc__signature_text}, {NULL, NULL}};

/* The context that a state was given is kept by a box of its own, until the module's binding has taken a reference of it. */
static int given_gc(lua_State *L) {
  sc_context **given = lua_touserdata(L, 1);
  sc_context_free(*given);
  *given = NULL;
  return 0;
}

static const char GIVEN = 0;

static sc_context *given_context(lua_State *L) {
  if (!lua_checkstack(L, 2)) return NULL;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &GIVEN);
  sc_context **given = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return given ? *given : NULL;
}

/* A context lives as long as anyone who uses it. */
static sc_context *shared(sc_context *ctx) {
  atomic_fetch_add(&ctx->refs, 1);
  return ctx;
}

static void make_context(lua_State *L, binding *b) {
  sc_options options = {0};
  sc_context *given = given_context(L);
  sc__hostile_options(&options);
  if (given) b->ctx = shared(given);
  else if (sc_context_new(&options, &b->ctx) != SC_OK) luaL_error(L, "sconce: not enough memory");
}

int luaopen_sconce_core(lua_State *L) {
  luaL_checkversion(L);
  binding *b = lua_newuserdatauv(L, sizeof *b, 0);
  memset(b, 0, sizeof *b);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, binding_gc);
  lua_setfield(L, -2, "__gc");
  lua_setmetatable(L, -2);
  make_context(L, b);
  b->ctx->index_base = 1;
  b->ctx->locate = sc__lua_locate;
  b->ctx->locate_user = b;
  b->ctx->composite = composite;
  lua_rawsetp(L, LUA_REGISTRYINDEX, &KEY);
  lua_pushthread(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &NOW);
  lua_newtable(L);
  luaL_setfuncs(L, FUNCTIONS, 0);
  sc__open_hostile(L, b);
  sc__open_script(L, b);
  sc__open_block(L, b);
  sc__open_tensor(L, b);
  add_ops(L, b);
  sc__open_autograd(L, b);
  sc__open_graph(L, b);
  sc__open_control(L, b);
  sc__open_text(L, b);
  sc__open_index(L, b);
  sc__open_images(L, b);
  sc__open_random(L, b);
  sc__open_compiled(L, b);
  sc__open_formats(L, b);
  sc__open_onnx(L, b);
  return 1;
}

/* ---- for hosts ---- */

static int open_protected(lua_State *L) {
  sc_context *ctx = lua_touserdata(L, 1);
  if (sc__binding_or_null(L) || given_context(L)) return luaL_error(L, "the Lua state has a context already");
  if (ctx) {
    sc_context **given = lua_newuserdatauv(L, sizeof *given, 0);
    *given = NULL;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, given_gc);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &GIVEN);
    *given = shared(ctx);
  }
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, luaopen_sconce_core);
  lua_setfield(L, -2, "sconce.core");
  return 0;
}

sc_status sc_lua_open(lua_State *L, sc_context *ctx) {
  if (!lua_checkstack(L, 4)) return ctx ? sc__no_memory(ctx, 64) : SC_ENOMEM;
  lua_pushcfunction(L, open_protected);
  lua_pushlightuserdata(L, ctx);
  int status = lua_pcall(L, 1, 0, 0);
  if (status == LUA_OK) return SC_OK;
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "?";
  sc_status s = status == LUA_ERRMEM ? SC_ENOMEM : SC_EINVAL;
  if (ctx) sc__fail(ctx, s, "sc_lua_open: %.300s", text);
  lua_pop(L, 1);
  return s;
}

sc_context *sc_lua_context(lua_State *L) {
  if (!lua_checkstack(L, 2)) return NULL;
  binding *b = sc__binding_or_null(L);
  return b ? b->ctx : given_context(L);
}

void sc_lua_push_tensor(lua_State *L, sc_tensor *t) {
  binding *b = sc__binding_or_null(L);
  sc_tensor *here = t;
  if (!b) {
    sc_tensor_release(t);
    luaL_error(L, "sconce: require \"sconce\" comes before tensors are pushed");
    return;
  }
  if (t && t->ctx != b->ctx) {
    sc_status s = sc_tensor_share(b->ctx, t, &here);
    sc_tensor_release(t);
    sc__check(L, b, s);
  }
  sc__stack(L, 8, "sconce");
  sc__push_tensor(L, b, here);
}

sc_tensor *sc_lua_to_tensor(lua_State *L, int index) {
  if (!lua_checkstack(L, 4)) return NULL;
  binding *b = sc__binding_or_null(L);
  return b ? sc__peek_tensor(L, b, lua_absindex(L, index)) : NULL;
}
