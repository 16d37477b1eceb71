/* From a call of a compiled function to the plan that fits it, without a line of Lua where a trace is there already.
**
** A compiled function is a table whose first element is a *dispatcher*: the ways there are, each a signature, a guard, a plan and the
** trace it belongs to. The latest way is tried first. What no way fits is done in Lua (lua/sconce/compile.lua), which traces and adds
** a way; so are calls whose results need more than boxes (`indirect`). */
#include "compiled.h"

#include <string.h>

static const char *const DISPATCHER = "sconce.dispatcher";

enum { REFS = 5 };                   /* per way in the user value: signature, guard, plan, trace, {argument = bytes} */

typedef struct way {
  const char *signature;             /* the referenced string's bytes */
  int n_signature, n_order;
  bool direct, by_value;             /* by_value: arguments whose values count are in the user value */
  plan_box *plan;
  int8_t order[SC_MOST_ARGUMENTS];   /* which argument each of the plan's inputs is */
} way;

typedef struct dispatcher { sc_context *ctx; way *way; size_t room; int n, latest; } dispatcher;

static int dispatcher_gc(lua_State *L) {
  dispatcher *d = lua_touserdata(L, 1);
  if (!d->ctx) return 0;
  sc__release(d->ctx, d->way, d->room * sizeof *d->way);
  sc__context_unref(d->ctx);
  d->ctx = NULL;
  return 0;
}

/* core.dispatcher() */
static int dispatcher_new(lua_State *L) {
  binding *b = sc__binding(L);
  dispatcher *d = lua_newuserdatauv(L, sizeof *d, 1);
  *d = (dispatcher){0};
  luaL_setmetatable(L, DISPATCHER);
  lua_newtable(L);
  lua_setiuservalue(L, -2, 1);
  d->ctx = b->ctx;
  atomic_fetch_add(&b->ctx->refs, 1);
  return 1;
}

static void read_order(lua_State *L, int at, way *w) {
  w->n_order = (int)lua_rawlen(L, at);
  for (int i = 0; i < w->n_order && i < SC_MOST_ARGUMENTS; i++) {
    lua_rawgeti(L, at, i + 1);
    w->order[i] = (int8_t)lua_tointeger(L, -1);
    w->direct = w->direct && w->order[i] > 0;
    lua_pop(L, 1);
  }
}

/* core.add_way(dispatcher, signature, guard, plan, trace, by_value, order, direct): the latest from now on. In the place of way `at`, when
** given. */
static int add_way(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  dispatcher *d = luaL_checkudata(L, 1, DISPATCHER);
  int at = (int)luaL_optinteger(L, 9, d->n + 1) - 1;
  if (at < 0 || at > d->n) return luaL_error(L, "no such way");
  sc__check(L, b, sc__grow(d->ctx, &d->way, (size_t)at, &d->room, sizeof *d->way));
  lua_getiuservalue(L, 1, 1);
  way w = {.direct = lua_toboolean(L, 8), .by_value = lua_istable(L, 6), .plan = sc__check_plan(L, 4)};
  size_t n;
  w.signature = luaL_checklstring(L, 2, &n);
  w.n_signature = (int)n;
  read_order(L, 7, &w);
  for (int i = 0; i < REFS; i++) { lua_pushvalue(L, 2 + i); lua_rawseti(L, -2, at * REFS + i + 1); }
  d->way[at] = w;
  d->latest = at;
  if (at == d->n) d->n++;
  return 0;
}

/* core.indirect(dispatcher, trace): its calls go through Lua from now on (true), or no longer. */
static int set_indirect(lua_State *L) {
  dispatcher *d = luaL_checkudata(L, 1, DISPATCHER);
  bool on = lua_toboolean(L, 3);
  lua_getiuservalue(L, 1, 1);
  for (int k = 0; k < d->n; k++) {
    lua_rawgeti(L, -1, k * REFS + 4);
    if (lua_rawequal(L, -1, 2)) d->way[k].direct = !on;
    lua_pop(L, 1);
  }
  return 0;
}

/* The values of arguments that decide sizes: with the table {argument = bytes} on top. */
static bool same_values(lua_State *L, sc_tensor *const *x) {
  int t = lua_gettop(L);
  bool same = true;
  lua_pushnil(L);
  while (lua_next(L, t)) {
    size_t n;
    const char *want = lua_tolstring(L, -1, &n);
    const sc_tensor *a = x[lua_tointeger(L, -2) - 1];
    same = same && a && a->storage && a->contiguous && (size_t)a->numel * sc_dtype_size((sc_dtype)a->dtype) == n && memcmp(a->data, want, n) == 0;
    lua_pop(L, 1);
  }
  return same;
}

static bool clashes(const way *w, sc_tensor *const *x) {
  for (int i = 0; i < w->n_order; i++) if (sc__plan_clashes(w->plan->p, x[w->order[i] - 1])) return true;
  return false;
}

/* core.clashes(plan, …): whether one of the arguments shares memory with what the plan captured, and one of them is written to. */
static int any_clashes(lua_State *L) {
  binding *b = sc__binding(L);
  plan_box *box = sc__check_plan(L, 1);
  bool any = false;
  for (int i = 2, n = lua_gettop(L); i <= n && !any; i++) {
    sc_tensor *t = sc__peek_tensor(L, b, i);
    any = t && sc__plan_clashes(box->p, t);
  }
  lua_pushboolean(L, any);
  return 1;
}

static void run_direct(lua_State *L, binding *b, const way *w, sc_tensor *const *x) {
  plan_box *box = w->plan;
  sc_tensor *few[32], **in = few, **out;
  int total = box->n_in + box->n_out, top = lua_gettop(L);
  sc__stack(L, box->n_out + 8, "compile");
  if (total > SC_COUNT(few)) { in = lua_newuserdatauv(L, (size_t)total * sizeof *in, 0); top++; }
  out = in + box->n_in;
  for (int i = 0; i < box->n_in; i++) in[i] = x[w->order[i] - 1];
  for (int i = 0; i < box->n_out; i++) sc__new_box(L, b);
  sc_status s = sc__plan_run(box->p, in, out);
  if (s == SC_ENOMEM) { lua_gc(L, LUA_GCCOLLECT); s = sc__plan_run(box->p, in, out); }
  sc__check(L, b, s);
  for (int i = 0; i < box->n_out; i++) sc__fill_box(L, b, top + 1 + i, out[i]);
}

static int all_of_it(lua_State *L, int status, lua_KContext c) {      /* after a yield, too */
  (void)status;
  (void)c;
  return lua_gettop(L);
}

/* Calls the function at upvalue `which` with (self, trace if there is one, …). */
static int in_lua(lua_State *L, int which, int n_args, int trace) {
  lua_settop(L, trace ? trace : n_args + 1);
  lua_pushvalue(L, lua_upvalueindex(which));
  lua_insert(L, 1);
  if (trace) {                                           /* fn self args … refs d trace -> fn self trace args */
    lua_insert(L, 3);
    lua_settop(L, n_args + 3);
  }
  lua_callk(L, lua_gettop(L) - 1, LUA_MULTRET, 0, all_of_it);
  return lua_gettop(L);
}

/* The metamethod of compiled functions. Upvalues: the binding, what is done without a way, what is done for an indirect one. */
static int call(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  int n_args = lua_gettop(L) - 1;
  sc__enter(L, b);
  luaL_checktype(L, 1, LUA_TTABLE);
  if (b->ctx->tracing || b->run_eagerly) return in_lua(L, 2, n_args, 0);
  lua_rawgeti(L, 1, 1);
  dispatcher *d = luaL_checkudata(L, -1, DISPATCHER);
  char room[SC_SIGNATURE_ROOM];
  sc_tensor *x[SC_MOST_ARGUMENTS];
  if (!d->n) return in_lua(L, 2, n_args, 0);
  int n = sc__signature(L, b, 2, n_args + 1, true, room, x);
  lua_getiuservalue(L, -1, 1);
  int refs = n_args + 3, k = d->latest;
  for (int tries = 0; tries < d->n; tries++, k = k + 1 < d->n ? k + 1 : 0) {
    const way *w = &d->way[k];
    if (w->n_signature != n || memcmp(w->signature, room, (size_t)n) != 0) continue;
    lua_rawgeti(L, refs, k * REFS + 2);
    bool fits = sc__guard_holds(L, b, refs + 1);
    if (fits && w->by_value) {
      lua_rawgeti(L, refs, k * REFS + 5);
      fits = same_values(L, x);
    }
    lua_settop(L, refs);
    if (!fits) continue;
    if (k != d->latest) {
      d->latest = k;
      lua_rawgeti(L, refs, k * REFS + 4);
      lua_setfield(L, 1, "last");
    }
    if (!w->direct || clashes(w, x)) {
      lua_rawgeti(L, refs, k * REFS + 4);
      return in_lua(L, 3, n_args, refs + 1);
    }
    run_direct(L, b, w, x);
    return w->plan->n_out;
  }
  return in_lua(L, 2, n_args, 0);
}

/* core.compiled_call(slow, indirect) -> the metamethod */
static int compiled_call(lua_State *L) {
  lua_settop(L, 2);
  lua_pushlightuserdata(L, sc__binding(L));
  lua_insert(L, 1);
  lua_pushcclosure(L, call, 3);
  return 1;
}

/* core.run_eagerly(on) */
static int run_eagerly(lua_State *L) {
  sc__binding(L)->run_eagerly = lua_toboolean(L, 1);
  return 0;
}

/* ---- sizes that a trace leaves open ----
** A line of the user's that gets to see one would get its stand-in: it is noted, and the trace given up. The library's own lines may go on
** computing with it, what they make of it is checked (lua/sconce/sizes.lua). */
bool sc__user_asks(lua_State *L, binding *b) {
  lua_Debug ar;
  if (!lua_getstack(L, 1, &ar) || !lua_getinfo(L, "Sl", &ar)) return true;
  return ar.currentline < 0 || strncmp(ar.source, b->inside, b->inside_length) != 0;
}

void sc__look_at_size(lua_State *L, binding *b, const int64_t *size, int n) {
  uint32_t bits = 0;
  for (int i = 0; i < n; i++) {
    int64_t v = size[i], rest;
    int symbol;
    while (sc__size_term(SC_SYMBOLS, v, &symbol, &v, &rest)) bits |= 1u << symbol;
  }
  if (!bits || !sc__user_asks(L, b)) return;
  b->sizes_read |= bits;
  sc__set_now(L, b);
  b->sizes_where = sc__lua_locate(b);
  sc__raise_text(L, b, "compile: a size that varies is read here");
}

/* core.watch_sizes(on) -> bits of the sizes read since it was switched on, "file:line" of the last */
static int watch_sizes(lua_State *L) {
  binding *b = sc__binding(L);
  bool on = lua_toboolean(L, 1);
  lua_pushinteger(L, b->sizes_read);
  lua_pushfstring(L, "%s:%d", b->sizes_where.file ? b->sizes_where.file : "?", b->sizes_where.line);
  b->sizes_watched = on;
  b->sizes_read = 0;
  return 2;
}

/* core.poke(t, i, v): number i of a float64 tensor of hyperparameters */
static int poke(lua_State *L) {
  binding *b = sc__binding(L);
  sc_tensor *t = sc__check_tensor(L, b, 1, "poke");
  lua_Integer i = luaL_checkinteger(L, 2);
  lua_Number v = luaL_checknumber(L, 3);
  if (t->dtype == SC_FLOAT64 && t->storage && t->contiguous && i >= 1 && i <= t->numel) {
    ((double *)t->data)[i - 1] = v;
    t->storage->version++;
  }
  return 0;
}

/* ---- which functions run ----
** While a function is traced, a hook notes every Lua function that is called: only what those capture can matter. A hook that was there
** (of a debugger) goes on being called. Coroutines made there inherit the hook; when one is resumed, which may be older, everything is
** looked at. */
static const char CALLED = 0, HOOKED = 0, READ = 0;  /* their addresses are keys of the registry */

typedef struct hooked { lua_Hook before; int mask, count; bool coroutines; lua_CFunction resume, wrapped; } hooked;

static void note_call(lua_State *L, lua_Debug *ar) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &HOOKED);
  hooked *h = lua_touserdata(L, -1);
  lua_pop(L, 1);
  if (!h) return;
  int bit = ar->event == LUA_HOOKTAILCALL ? LUA_MASKCALL : 1 << ar->event;
  if ((bit & LUA_MASKCALL) && lua_checkstack(L, 4)) {
    lua_getinfo(L, "f", ar);
    lua_CFunction c = lua_tocfunction(L, -1);
    if (c) h->coroutines = h->coroutines || c == h->resume || c == h->wrapped;
    else if (lua_isfunction(L, -1)) {
      lua_rawgetp(L, LUA_REGISTRYINDEX, &CALLED);
      lua_pushvalue(L, -2);
      lua_pushboolean(L, 1);
      lua_rawset(L, -3);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
  if (h->before && (bit & h->mask)) h->before(L, ar);
}

/* coroutine.resume, and what coroutine.wrap gives: its C function is the same each time. */
static void find_resuming(lua_State *L, hooked *h) {
  int top = lua_gettop(L);
  lua_getfield(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
  if (lua_getfield(L, -1, LUA_COLIBNAME) == LUA_TTABLE) {
    lua_getfield(L, top + 2, "resume");
    h->resume = lua_tocfunction(L, -1);
    if (lua_getfield(L, top + 2, "wrap") == LUA_TFUNCTION && lua_tocfunction(L, -1)) {
      lua_pushvalue(L, -1);
      lua_call(L, 1, 1);
      h->wrapped = lua_tocfunction(L, -1);
    }
  }
  lua_settop(L, top);
}

/* Values that were looked at are in the graph as numbers, so it holds as long as nobody writes to that tensor. */
void sc__note_read(lua_State *L, int at) {
  at = lua_absindex(L, at);
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &READ) == LUA_TTABLE) {
    lua_pushvalue(L, at);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  }
  lua_pop(L, 1);
}

/* core.unyieldable(fn, list) -> true, set of the functions called (or nil for all); or false and the error. fn cannot yield, since
** recording is on while it runs. list gets the tensors with data whose values were read. */
static int unyieldable(lua_State *L) {
  lua_settop(L, 2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &READ);
  hooked h = {lua_gethook(L), lua_gethookmask(L), lua_gethookcount(L), false, NULL, NULL};
  find_resuming(L, &h);
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &CALLED);
  lua_pushlightuserdata(L, &h);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &HOOKED);
  lua_sethook(L, note_call, h.mask | LUA_MASKCALL, h.count);
  lua_insert(L, 1);                                  /* set fn */
  bool ok = lua_pcall(L, 0, 0, 0) == LUA_OK;
  lua_sethook(L, h.before, h.mask, h.count);
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &HOOKED);
  lua_pushnil(L);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &READ);
  lua_pushboolean(L, ok);
  if (ok) {
    if (h.coroutines) return 1;
    lua_insert(L, 1);
    return 2;
  }
  lua_insert(L, -2);
  return 2;
}

void sc__open_compiled(lua_State *L, binding *b) {
  luaL_newmetatable(L, DISPATCHER);
  lua_pushcfunction(L, dispatcher_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
  const luaL_Reg FUNCTIONS[] = {{"dispatcher", dispatcher_new}, {"add_way", add_way}, {"indirect", set_indirect},
                                {"compiled_call", compiled_call}, {"run_eagerly", run_eagerly}, {"clashes", any_clashes}, {"poke", poke}, {"watch_sizes", watch_sizes},
                                {"unyieldable", unyieldable}, {NULL, NULL}};
  luaL_setfuncs(L, FUNCTIONS, 0);
  sc__open_signature(L, b);
  sc__open_guard(L, b);
  sc__open_size(L, b);
}
