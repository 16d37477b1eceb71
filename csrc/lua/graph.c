/* Graphs from Lua, first form: inputs, outputs, and a run that replays the nodes. */
#include "binding.h"

#include <string.h>

typedef struct graph_box { sc_graph *g; } graph_box;

static const char *const META = "sconce.graph";

static sc_graph *check_graph(lua_State *L, int at) { return ((graph_box *)luaL_checkudata(L, at, META))->g; }

/* core.graph() */
static int graph_new(lua_State *L) {
  binding *b = sc__binding(L);
  b->now = L;
  graph_box *box = lua_newuserdatauv(L, sizeof *box, 0);
  box->g = NULL;
  luaL_setmetatable(L, META);
  sc__check(L, b, sc_graph_new(b->ctx, &box->g));
  return 1;
}

static int graph_gc(lua_State *L) {
  graph_box *box = lua_touserdata(L, 1);
  sc_graph_release(box->g);
  box->g = NULL;
  return 0;
}

/* g:input(name, shape, dtype or nil) */
static int graph_input(lua_State *L) {
  binding *b = sc__binding(L);
  b->now = L;
  sc_graph *g = check_graph(L, 1);
  const char *name = luaL_checkstring(L, 2);
  luaL_checktype(L, 3, LUA_TTABLE);
  int64_t dim[SC_MAX_DIMS];
  int n = (int)lua_rawlen(L, 3);
  if (n > SC_MAX_DIMS) return sc__raise_text(L, b, "input: at most %d dimensions", SC_MAX_DIMS);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, 3, i + 1);
    if (!lua_isinteger(L, -1)) return sc__raise_text(L, b, "input: argument 2 (shape): expected integers");
    dim[i] = lua_tointeger(L, -1);
    lua_pop(L, 1);
  }
  sc_dtype d = SC_FLOAT32;
  if (!lua_isnoneornil(L, 4) && !sc__read_dtype(L, 4, &d)) return sc__raise_text(L, b, "input: argument 3 (dtype): expected a dtype such as \"float32\"");
  sc_tensor *t;
  sc__check(L, b, sc_graph_input(g, name, d, n, dim, &t));
  sc__push_tensor(L, b, t);
  return 1;
}

static int graph_output(lua_State *L) {
  binding *b = sc__binding(L);
  b->now = L;
  sc__check(L, b, sc_graph_output(check_graph(L, 1), luaL_checkstring(L, 2), sc__check_tensor(L, b, 3, "output")));
  return 0;
}

/* g:run{name = tensor, …} -> {name = tensor, …} */
static int graph_run(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = check_graph(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  sc_tensor **in = lua_newuserdatauv(L, (g->n_inputs + g->n_outputs + 1) * sizeof *in, 0), **out = in + g->n_inputs;
  for (size_t i = 0; i < g->n_inputs; i++) {
    const char *name = g->value[g->input[i]].name;
    lua_getfield(L, 2, name);
    in[i] = sc__test_tensor(L, b, -1);
    if (!in[i]) return sc__raise_text(L, b, "graph: input %s is missing", name);
    lua_pop(L, 1);
  }
  sc__check(L, b, sc_graph_run(g, in, (int)g->n_inputs, out, (int)g->n_outputs));
  lua_createtable(L, 0, (int)g->n_outputs);
  for (size_t i = 0; i < g->n_outputs; i++) {
    sc__push_tensor(L, b, out[i]);
    lua_setfield(L, -2, g->output[i].name);
  }
  return 1;
}

static const luaL_Reg METHODS[] = {{"input", graph_input}, {"output", graph_output}, {"run", graph_run}, {NULL, NULL}};

void sc__open_graph(lua_State *L, binding *b) {
  (void)b;
  luaL_newmetatable(L, META);
  lua_newtable(L);
  luaL_setfuncs(L, METHODS, 0);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, graph_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
  lua_pushcfunction(L, graph_new);
  lua_setfield(L, -2, "graph");
}
