/* The hostile build (make hostile, -DSC_HOSTILE): an allocator that counts blocks, refuses the n-th, and fills memory with a pattern
** when it is handed out and when it comes back; every block goes through it: the pool is bypassed. The same for the memory of the Lua
** state. And a collector that runs at every op, or whenever Lua asks for memory. Driven from spec/hostile/. */
#include "binding.h"

#ifdef SC_HOSTILE
#include <stdlib.h>
#include <string.h>

typedef struct hostile {
  long long calls, fail_at, times;   /* asked so far; the call to refuse (0: none), and how many from there on */
  long long blocks, bytes, refused;
  int fill;
} hostile;

/* Of the Lua state: new and growing blocks only, since Lua relies on shrinking. A refused request makes it collect and ask again. */
static struct { lua_Alloc plain; void *user; long long calls, fail_at, times, refused, collect_every, collect; bool again; } lua;

static hostile state = {.fill = 0xde};

static void *hostile_alloc(void *user, size_t bytes) {
  hostile *h = user;
  long long k = ++h->calls;
  if (h->fail_at && k >= h->fail_at && k < h->fail_at + h->times) { h->refused++; return NULL; }
  void *p = NULL;
  if (posix_memalign(&p, 64, bytes) != 0) return NULL;
  memset(p, h->fill, bytes);
  h->blocks++;
  h->bytes += (long long)bytes;
  return p;
}

static void hostile_release(void *user, void *block, size_t bytes) {
  hostile *h = user;
  memset(block, h->fill, bytes);
  h->blocks--;
  h->bytes -= (long long)bytes;
  free(block);
}

void sc__hostile_options(sc_options *o) { o->allocator = (sc_allocator){hostile_alloc, hostile_release, &state}; }

static void *lua_alloc(void *user, void *block, size_t old, size_t bytes) {
  (void)user;
  bool grows = bytes && (!block || bytes > old);
  if (grows) {
    long long k = ++lua.calls;
    if (lua.fail_at && k >= lua.fail_at && k < lua.fail_at + lua.times) { lua.refused++; return NULL; }
    if (lua.collect_every && !lua.again && k % lua.collect_every == 0) { lua.again = true; return NULL; }   /* a full collection */
    lua.again = false;
  }
  return lua.plain(lua.user, block, old, bytes);
}

void sc__hostile_close(lua_State *L) {
  if (lua.plain) lua_setallocf(L, lua.plain, lua.user);
  lua.plain = NULL;
}

void sc__hostile_collect(lua_State *L) { if (lua.collect) lua_gc(L, LUA_GCCOLLECT); }

static void integer(lua_State *L, const char *name, long long *out) {
  lua_getfield(L, 1, name);
  if (!lua_isnil(L, -1)) *out = luaL_checkinteger(L, -1);
  lua_pop(L, 1);
}

/* core.hostile{fail_at=, times=, fill=, lua_fail_at=, lua_times=, collect_every=, collect=} -> {calls=, blocks=, bytes=, refused=,
** lua_calls=, lua_refused=}: a number to fail at starts counting calls anew; to ask for 0 takes no memory. blocks: but for interned names. */
static int control(lua_State *L) {
  if (lua_istable(L, 1)) {
    long long n = state.fail_at, m = lua.fail_at, fill = state.fill;
    integer(L, "fail_at", &n);
    integer(L, "lua_fail_at", &m);
    integer(L, "times", &state.times);
    integer(L, "lua_times", &lua.times);
    integer(L, "fill", &fill);
    integer(L, "collect_every", &lua.collect_every);
    integer(L, "collect", &lua.collect);
    if (n || m) state.calls = state.refused = lua.calls = lua.refused = 0;
    state.fill = (int)fill;
    state.fail_at = n;
    lua.fail_at = m;
    return 0;
  }
  const struct { const char *name; long long v; } FIELDS[] = {{"calls", state.calls}, {"blocks", state.blocks - sc__binding(L)->ctx->names},
    {"bytes", state.bytes}, {"refused", state.refused}, {"lua_calls", lua.calls}, {"lua_refused", lua.refused}};
  lua_createtable(L, 0, SC_COUNT(FIELDS));
  for (int i = 0; i < SC_COUNT(FIELDS); i++) { lua_pushinteger(L, FIELDS[i].v); lua_setfield(L, -2, FIELDS[i].name); }
  return 1;
}

void sc__open_hostile(lua_State *L, binding *b) {
  (void)b;
  if (!lua.plain) {
    lua.plain = lua_getallocf(L, &lua.user);
    lua_setallocf(L, lua_alloc, NULL);
  }
  lua_pushcfunction(L, control);
  lua_setfield(L, -2, "hostile");
}
#else
void sc__hostile_close(lua_State *L) { (void)L; }
void sc__hostile_options(sc_options *o) { (void)o; }
void sc__open_hostile(lua_State *L, binding *b) { (void)L; (void)b; }
#endif
