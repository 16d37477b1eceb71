/* Functions of the script that the tape calls: hooks and the backward of custom functions.
**
** Each is known to the tape by a number, and lives in a *box*, a Lua table: box[0] is the function (or the state of a custom
** function), box[n] another box that lives as long. A table with weak values maps numbers to boxes. What keeps a box alive is the
** user value of the tensors whose history needs it (see SC_T_ANCHORED in autodiff.h), so cycles through the script are seen by the
** collector. Two more tables hold boxes for a while: FRESH those made since the op began, until its results carry them; PINNED those
** that only C holds.
**
** The walk calls in here from deep inside C. Everything that may raise runs under pcall; the error value is parked and raised again,
** unchanged, by the binding's entry (see sc__raise). */
#include "binding.h"

#include <string.h>

static const char BOXES = 0, FRESH = 0, PINNED = 0, PARKED = 0;      /* their addresses are keys of the registry */

enum { FLAT = 16 };                                /* a box lists the parts of its parts up to this many */

/* ---- boxes ---- */

static bool push_box(lua_State *L, int64_t id) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &BOXES);
  lua_rawgeti(L, -1, (lua_Integer)id);
  lua_remove(L, -2);
  return lua_istable(L, -1);
}

/* The table on top becomes a box; it stays there. */
int64_t sc__script_box(lua_State *L, binding *b) {
  int64_t id = ++b->hook_ids;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &BOXES);
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, (lua_Integer)id);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &FRESH);
  lua_pushvalue(L, -3);
  lua_rawseti(L, -2, (lua_Integer)(b->fresh + 1));
  lua_pop(L, 2);
  b->fresh++;
  return id;
}

void sc__script_anchor(lua_State *L, sc_tensor *t) {
  push_box(L, t->ad->anchor);
  lua_setiuservalue(L, -2, 1);
}

/* Called when no op is going on. */
void sc__script_settle(lua_State *L, binding *b) {
  if (b->fresh && !b->depth) {
    lua_rawgetp(L, LUA_REGISTRYINDEX, &FRESH);
    for (; b->fresh; b->fresh--) { lua_pushnil(L); lua_rawseti(L, -2, b->fresh); }
    lua_pop(L, 1);
  }
  if (!b->unpinned) return;
  b->unpinned = false;
  lua_rawgetp(L, LUA_REGISTRYINDEX, &PINNED);
  for (size_t i = 0; i < b->n_pins; ) {
    if (b->pin[i].count) { i++; continue; }
    lua_pushnil(L);
    lua_rawseti(L, -2, (lua_Integer)b->pin[i].id);
    b->pin[i] = b->pin[--b->n_pins];
  }
  lua_pop(L, 1);
}

/* ---- protected calls ---- */

static sc_status protect(binding *b, lua_CFunction fn, void *job) {
  lua_State *L = b->now;
  if (!L || !lua_checkstack(L, 16)) return sc__no_memory(b->ctx, 256);
  lua_pushcfunction(L, fn);
  lua_pushlightuserdata(L, job);
  int status = lua_pcall(L, 1, 0, 0);
  sc__set_now(L, b);
  if (status == LUA_OK) return SC_OK;
  if (status == LUA_ERRMEM) { lua_pop(L, 1); return sc__fail(b->ctx, SC_ENOMEM, "not enough memory in the Lua state"); }
  lua_rawsetp(L, LUA_REGISTRYINDEX, &PARKED);      /* the key is there already: this allocates nothing */
  b->error_pending = true;
  return sc__fail(b->ctx, SC_EINVAL, "an error in a function of the script");
}

void sc__script_parked(lua_State *L, binding *b) {
  lua_rawgetp(L, LUA_REGISTRYINDEX, &PARKED);
  lua_pushboolean(L, 0);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &PARKED);
  b->error_pending = false;
}

/* ---- joining and pinning ---- */

typedef struct join_job { binding *b; int64_t x, y, out; } join_job;

static void put_parts(lua_State *L, int from, int to) {
  lua_pushnil(L);
  while (lua_next(L, from)) {
    if (lua_isinteger(L, -2) && lua_tointeger(L, -2) > 0) { lua_pushvalue(L, -2); lua_pushvalue(L, -2); lua_rawset(L, to); }
    lua_pop(L, 1);
  }
}

static int count_parts(lua_State *L, int box) {
  int n = 0;
  lua_pushnil(L);
  while (lua_next(L, box)) { n++; lua_pop(L, 1); }
  return n;
}

static bool has_part(lua_State *L, int box, int64_t id) {
  bool has = lua_rawgeti(L, box, (lua_Integer)id) != LUA_TNIL;
  lua_pop(L, 1);
  return has;
}

static int join_protected(lua_State *L) {
  join_job *j = lua_touserdata(L, 1);
  bool x = push_box(L, j->x), y = push_box(L, j->y);                  /* at 2 and 3 */
  if (!y || (x && has_part(L, 2, j->y))) { j->out = j->x; return 0; }
  if (!x || has_part(L, 3, j->x)) { j->out = j->y; return 0; }
  lua_newtable(L);
  if (count_parts(L, 2) + count_parts(L, 3) < FLAT) { put_parts(L, 2, 4); put_parts(L, 3, 4); }
  lua_pushvalue(L, 2); lua_rawseti(L, 4, (lua_Integer)j->x);
  lua_pushvalue(L, 3); lua_rawseti(L, 4, (lua_Integer)j->y);
  j->out = sc__script_box(L, j->b);
  return 0;
}

static sc_status join(void *user, int64_t x, int64_t y, int64_t *out) {
  binding *b = user;
  join_job j = {b, x, y, 0};
  SC_TRY(protect(b, join_protected, &j));
  *out = j.out;
  return SC_OK;
}

static int pin_protected(lua_State *L) {
  const int64_t *id = lua_touserdata(L, 1);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &PINNED);
  if (push_box(L, *id)) lua_rawseti(L, -2, (lua_Integer)*id);
  return 0;
}

static sc_status pin(void *user, int64_t id) {
  binding *b = user;
  for (size_t i = b->n_pins; i-- > 0; )
    if (b->pin[i].id == id && b->pin[i].count) { b->pin[i].count++; return SC_OK; }
  SC_TRY(sc__grow(b->ctx, &b->pin, b->n_pins, &b->room_pins, sizeof *b->pin));
  SC_TRY(protect(b, pin_protected, &id));
  for (size_t i = 0; i < b->n_pins; i++) if (b->pin[i].id == id) { b->pin[i].count = 1; return SC_OK; }
  b->pin[b->n_pins++] = (script_pin){id, 1};
  return SC_OK;
}

static void unpin(void *user, int64_t id) {
  binding *b = user;
  for (size_t i = b->n_pins; i-- > 0; )
    if (b->pin[i].id == id) {
      if (b->pin[i].count > 0 && --b->pin[i].count == 0) b->unpinned = true;
      return;
    }
}

/* ---- calling ---- */

typedef struct hook_job { binding *b; int64_t id; sc_tensor *dy, *out; } hook_job;

static int hook_protected(lua_State *L) {
  hook_job *j = lua_touserdata(L, 1);
  if (!push_box(L, j->id) || lua_rawgeti(L, -1, 0) == LUA_TNIL) return 0;          /* removed meanwhile */
  sc__push_tensor(L, j->b, sc_tensor_retain(j->dy));
  lua_call(L, 1, 1);
  if (lua_isnil(L, -1)) return 0;
  sc_tensor *r = sc__test_tensor(L, j->b, -1);
  if (!r) return sc__raise_text(L, j->b, "register_hook: a hook must return nil or a tensor, got %s", sc__got(L, j->b, -1));
  if (r->dtype != j->dy->dtype || r->ndim != j->dy->ndim || memcmp(r->dim, j->dy->dim, (size_t)r->ndim * 8) != 0) {
    char want[200], got[200];
    return sc__raise_text(L, j->b, "register_hook: a hook must return a gradient like the one it got, %s %s, got %s %s",
                          sc_dtype_name((sc_dtype)j->dy->dtype), sc__shape_text(j->dy->ndim, j->dy->dim, want, sizeof want),
                          sc_dtype_name((sc_dtype)r->dtype), sc__shape_text(r->ndim, r->dim, got, sizeof got));
  }
  j->out = sc_tensor_retain(r);
  return 0;
}

typedef struct backward_job { binding *b; int64_t id; bool keep; sc_tensor **dy, **dx; int n_dy, n_dx; } backward_job;

/* The state of a custom function is a table: backward, ctx, n (of arguments), at (the arguments that are its tensor inputs), needs. */
static int backward_protected(lua_State *L) {
  backward_job *j = lua_touserdata(L, 1);
  if (!push_box(L, j->id) || lua_rawgeti(L, -1, 0) != LUA_TTABLE)
    return sc__raise_text(L, j->b, "backward: going through a custom function a second time; call the first backward with {retain_graph = true}");
  int box = lua_gettop(L) - 1, state = box + 1;
  sc__stack(L, j->n_dy + 16, "backward");
  lua_getfield(L, state, "n");
  int n = (int)lua_tointeger(L, -1);
  lua_getfield(L, state, "at");
  int at = lua_gettop(L);
  lua_getfield(L, state, "needs");
  int needs = at + 1, base = needs + 1;
  lua_getfield(L, state, "backward");
  lua_getfield(L, state, "ctx");
  for (int i = 0; i < j->n_dy; i++) sc__push_tensor(L, j->b, j->dy[i] ? sc_tensor_retain(j->dy[i]) : NULL);
  lua_call(L, j->n_dy + 1, LUA_MULTRET);
  int got = lua_gettop(L) - base + 1;
  if (got > n) return sc__raise_text(L, j->b, "backward: a custom function returned %d gradients, its forward took %d arguments", got, n);
  for (int i = 0; i < j->n_dx; i++) {
    lua_rawgeti(L, at, i + 1);
    int k = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
    if (k > got) {
      lua_rawgeti(L, needs, k);
      if (lua_toboolean(L, -1))
        return sc__raise_text(L, j->b, "backward: a custom function returned %d gradients, but argument %d needs one (nil says there is none)", got, k);
      lua_pop(L, 1);
      continue;
    }
    int from = base + k - 1;
    if (lua_isnil(L, from)) continue;
    sc_tensor *dx = sc__test_tensor(L, j->b, from);
    if (!dx) return sc__raise_text(L, j->b, "backward: a custom function returned %s as the gradient of argument %d, expected a tensor or nil",
                                   sc__got(L, j->b, from), k);
    j->dx[i] = sc_tensor_retain(dx);
  }
  if (j->keep) return 0;
  lua_getfield(L, state, "ctx");                     /* what it saved goes at once */
  lua_pushliteral(L, "_saved"); lua_pushnil(L); lua_rawset(L, -3);
  lua_pushnil(L);
  lua_rawseti(L, box, 0);
  return 0;
}

/* The script's function runs with gradients on only when its work will be differentiated. */
static sc_status call_script(binding *b, lua_CFunction fn, void *job) {
  bool on = b->ctx->grad_enabled;
  uint64_t block;
  SC_TRY(sc__block_open(b, b->now, BLOCK_GRAD, on, &block));
  lua_State *L = b->now;
  b->depth++;
  sc_status s = protect(b, fn, job);
  b->depth--;
  sc__set_now(L, b);
  sc__block_close(b, block);
  b->ctx->grad_enabled = on;
  return s;
}

static sc_status hook(void *user, int64_t id, sc_tensor *dy, sc_tensor **out) {
  hook_job j = {user, id, dy, NULL};
  SC_TRY(call_script(user, hook_protected, &j));
  *out = j.out;
  return SC_OK;
}

static sc_status backward(void *user, int64_t id, bool keep, sc_tensor **dy, int n_dy, sc_tensor **dx, int n_dx) {
  backward_job j = {user, id, keep, dy, dx, n_dy, n_dx};
  return call_script(user, backward_protected, &j);
}

/* ---- the collector, when memory runs short ---- */

static void reclaim(void *user) {
  binding *b = user;
  lua_State *L = b->now;
  if (!L || !lua_checkstack(L, 32)) return;
  bool on = b->ctx->grad_enabled;
  uint8_t base = b->ctx->index_base;
  b->ctx->index_base = 1;
  b->depth++;                                        /* finalisers may call ops: the one that is running keeps its boxes */
  lua_gc(L, LUA_GCCOLLECT);
  b->depth--;
  b->ctx->index_base = base;
  b->ctx->grad_enabled = on;
  sc__set_now(L, b);
}

void sc__open_script(lua_State *L, binding *b) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "v"); lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &BOXES);
  lua_newtable(L); lua_rawsetp(L, LUA_REGISTRYINDEX, &FRESH);
  lua_newtable(L); lua_rawsetp(L, LUA_REGISTRYINDEX, &PINNED);
  lua_pushboolean(L, 0); lua_rawsetp(L, LUA_REGISTRYINDEX, &PARKED);
  sc_context *ctx = b->ctx;
  ctx->script_hook = hook;
  ctx->script_backward = backward;
  ctx->script_join = join;
  ctx->script_pin = pin;
  ctx->script_unpin = unpin;
  ctx->reclaim = reclaim;
}

void sc__close_script(binding *b) {
  sc_context *ctx = b->ctx;
  if (!ctx->locate_user) {                         /* no other state has the context's services now */
    ctx->script_hook = NULL;
    ctx->script_backward = NULL;
    ctx->script_join = NULL;
    ctx->script_pin = NULL;
    ctx->script_unpin = NULL;
    ctx->reclaim = NULL;
  }
  sc__release(ctx, b->pin, b->room_pins * sizeof *b->pin);
  b->pin = NULL;
}
