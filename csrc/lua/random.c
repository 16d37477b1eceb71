/* Generators of random numbers on the script's side. A state is 16 bytes: seed and offset, little-endian. The userdata's memory
** is the sc_generator itself, which is what ops expect of the option `generator`. */
#include "binding.h"

#include <string.h>

static const char META[] = "sconce.Generator";

void sc__outside_traces(lua_State *L, binding *b, const char *what) {
  if (b->ctx->tracing) sc__raise_text(L, b, "%s: would happen once, while the function is traced, and not when its graph runs: do it outside of it", what);
}

static void put(const sc_generator *g, uint8_t *state) {
  for (int i = 0; i < 8; i++) {
    state[i] = (uint8_t)(g->seed >> 8 * i);
    state[8 + i] = (uint8_t)(g->offset >> 8 * i);
  }
}

static int push_state(lua_State *L, binding *b, const sc_generator *g) {
  uint8_t state[16];
  int64_t n = sizeof state;
  sc_tensor *t;
  put(g, state);
  sc__check(L, b, sc_tensor_from_memory(b->ctx, SC_UINT8, 1, &n, state, &t));
  sc__push_tensor(L, b, t);
  return 1;
}

/* A tensor of 16 uint8 or a string of 16 bytes. */
static void read_state(lua_State *L, binding *b, int at, const char *what, sc_generator *g) {
  uint8_t state[16];
  size_t n = 0;
  sc_tensor *t = sc__test_tensor(L, b, at);
  if (t && t->storage && t->dtype == SC_UINT8 && t->ndim == 1 && t->dim[0] == 16) {
    for (int i = 0; i < 16; i++) state[i] = (uint8_t)t->data[i * sc__stride(t)[0]];
  } else if (lua_type(L, at) == LUA_TSTRING && (lua_tolstring(L, at, &n), n == 16)) {
    memcpy(state, lua_tostring(L, at), 16);
  } else {
    sc__raise_text(L, b, "%s: argument %d (state): expected a state (16 bytes as a uint8 tensor or a string), got %s", what, at, sc__got(L, b, at));
  }
  *g = (sc_generator){0, 0};
  for (int i = 0; i < 8; i++) {
    g->seed |= (uint64_t)state[i] << 8 * i;
    g->offset |= (uint64_t)state[8 + i] << 8 * i;
  }
}

static uint64_t read_seed(lua_State *L, binding *b, int at, const char *what) {
  int whole = 0;
  lua_Integer seed = lua_type(L, at) == LUA_TNUMBER ? lua_tointegerx(L, at, &whole) : 0;
  if (!whole) sc__raise_text(L, b, "%s: argument %d (seed): expected an integer, got %s", what, at, sc__got(L, b, at));
  return (uint64_t)seed;
}

/* The context's own generator, or the one at 1. */
static int get_rng_state(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc__outside_traces(L, b, "get_rng_state");
  return push_state(L, b, &b->ctx->rng);
}
static int set_rng_state(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc__outside_traces(L, b, "set_rng_state");
  read_state(L, b, 1, "set_rng_state", &b->ctx->rng);
  return 0;
}
static int initial_seed(lua_State *L) { lua_pushinteger(L, (lua_Integer)sc__binding(L)->ctx->rng.seed); return 1; }

static int generator_new(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc__outside_traces(L, b, "Generator");
  uint64_t seed = lua_isnoneornil(L, 1) ? 0 : read_seed(L, b, 1, "Generator");
  sc_generator *g = lua_newuserdatauv(L, sizeof *g, 0);
  *g = (sc_generator){seed, 0};
  luaL_setmetatable(L, META);
  return 1;
}

static int generator_get_state(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc__outside_traces(L, b, "get_state");
  return push_state(L, b, luaL_checkudata(L, 1, META));
}
static int generator_set_state(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc__outside_traces(L, b, "set_state");
  read_state(L, b, 2, "set_state", luaL_checkudata(L, 1, META));
  lua_settop(L, 1);
  return 1;
}
static int generator_manual_seed(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc__outside_traces(L, b, "manual_seed");
  sc_generator *g = luaL_checkudata(L, 1, META);
  *g = (sc_generator){read_seed(L, b, 2, "manual_seed"), 0};
  lua_settop(L, 1);
  return 1;
}
static int generator_initial_seed(lua_State *L) {
  const sc_generator *g = luaL_checkudata(L, 1, META);
  lua_pushinteger(L, (lua_Integer)g->seed);
  return 1;
}
static int generator_text(lua_State *L) {
  const sc_generator *g = luaL_checkudata(L, 1, META);
  lua_pushfstring(L, "sc.Generator(%I)", (lua_Integer)g->seed);
  return 1;
}

void sc__open_random(lua_State *L, binding *b) {
  static const luaL_Reg METHODS[] = {{"get_state", generator_get_state}, {"set_state", generator_set_state}, {"manual_seed", generator_manual_seed},
                                     {"initial_seed", generator_initial_seed}, {NULL, NULL}};
  static const luaL_Reg FUNCTIONS[] = {{"Generator", generator_new}, {"get_rng_state", get_rng_state}, {"set_rng_state", set_rng_state},
                                       {"initial_seed", initial_seed}, {NULL, NULL}};
  (void)b;
  luaL_newmetatable(L, META);
  luaL_newlib(L, METHODS);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, generator_text);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
  luaL_setfuncs(L, FUNCTIONS, 0);
}
