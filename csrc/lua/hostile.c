/* The hostile build (make hostile, -DSC_HOSTILE): an allocator that counts blocks, refuses the n-th, and fills memory with a pattern
** when it is handed out and when it comes back. Every block goes through it: the pool is bypassed. Driven from spec/hostile/. */
#include "binding.h"

#ifdef SC_HOSTILE
#include <stdlib.h>
#include <string.h>

typedef struct hostile {
  long long calls, fail_at, times;   /* asked so far; the call to refuse (0: none), and how many from there on */
  long long blocks, bytes, refused;
  int fill;
} hostile;

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

static void integer(lua_State *L, const char *name, long long *out) {
  lua_getfield(L, 1, name);
  if (!lua_isnil(L, -1)) *out = luaL_checkinteger(L, -1);
  lua_pop(L, 1);
}

/* core.hostile{fail_at=, times=, fill=} -> {calls=, blocks=, bytes=, refused=}: setting fail_at starts counting calls anew */
static int control(lua_State *L) {
  if (lua_istable(L, 1)) {
    long long n = state.fail_at, fill = state.fill;
    lua_getfield(L, 1, "fail_at");
    if (!lua_isnil(L, -1)) { state.calls = state.refused = 0; state.times = 1; }
    lua_pop(L, 1);
    integer(L, "times", &state.times);
    integer(L, "fill", &fill);
    integer(L, "fail_at", &n);
    state.fill = (int)fill;
    state.fail_at = n;
  }
  const struct { const char *name; long long v; } FIELDS[] = {{"calls", state.calls}, {"blocks", state.blocks}, {"bytes", state.bytes}, {"refused", state.refused}};
  lua_createtable(L, 0, 4);
  for (int i = 0; i < SC_COUNT(FIELDS); i++) { lua_pushinteger(L, FIELDS[i].v); lua_setfield(L, -2, FIELDS[i].name); }
  return 1;
}

void sc__open_hostile(lua_State *L, binding *b) {
  (void)b;
  lua_pushcfunction(L, control);
  lua_setfield(L, -2, "hostile");
}
#else
void sc__hostile_options(sc_options *o) { (void)o; }
void sc__open_hostile(lua_State *L, binding *b) { (void)L; (void)b; }
#endif
