/* Branches and loops of graphs, from Lua: recording a branch or body, making the node that runs it. What is written over these is in
** lua/sconce/control.lua. */
#include "../graph/control.h"

#include "binding.h"

#include <string.h>

/* core.part(g, fn) -> the tensors from outside that g used. Every op that fn calls goes into g; fn cannot yield. */
static int part(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  lua_settop(L, 2);
  sc__part_begin(g);
  int status = lua_pcall(L, 0, 0, 0);
  if (status != LUA_OK) { sc__part_drop(g); return lua_error(L); }
  sc__set_now(L, b);
  sc__check(L, b, sc__part_end(g));
  lua_createtable(L, (int)g->n_inputs, 0);
  lua_Integer n = 0;
  for (size_t i = 0; i < g->n_inputs; i++) {
    sc_value *v = &g->value[g->input[i]];
    if (!v->captured) continue;
    sc__push_tensor(L, b, sc_tensor_retain(v->captured));
    lua_rawseti(L, -2, ++n);
  }
  sc__part_drop(g);
  return 1;
}

static int64_t field(lua_State *L, int at, const char *name) {
  int64_t n = lua_getfield(L, at, name) == LUA_TBOOLEAN ? lua_toboolean(L, -1) : lua_tointeger(L, -1);
  lua_pop(L, 1);
  return n;
}

static sc_status emit(binding *b, sc_control *p, sc_tensor **in, int n_in, sc_tensor **out) {
  sc_context *ctx = b->ctx;
  sc_attr attr[2] = {{.kind = SC_ATTR_GRAPH, .p = p}, sc__int(0)};
  sc_tensor *made[SC_MAX_OUTPUTS], *block;
  int n;
  SC_TRY(sc__emit(ctx, sc__op_find(ctx, sc__control_op(p)), in, n_in, attr, 0, made, &n));
  block = made[0];
  const sc_opinfo *result = sc__op_find(ctx, "control_result");
  sc_status s = SC_OK;
  for (int i = 0; i < sc__control_results(p) && s == SC_OK; i++) {
    attr[1] = sc__int(i);
    s = sc__emit(ctx, result, &block, 1, attr, 0, made, &n);
    if (s == SC_OK) out[i] = made[0];
  }
  sc_tensor_release(block);
  return s;
}

/* Holds a branch or loop until its node does. */
typedef struct control_box { sc_control *p; } control_box;
static const char *const META = "sconce.control";

static int control_gc(lua_State *L) {
  control_box *box = luaL_checkudata(L, 1, META);
  sc__control_release(box->p);
  box->p = NULL;
  return 0;
}

/* core.control(kind, {graph, …}, { carry =, x =, dy =, rounds =, reverse =, keep =, replay = }, {operand, …}) -> list of results */
static int control(lua_State *L) {
  static const char *const KINDS[] = {"cond", "while", "scan", "while_backward", NULL};
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_control like = {.kind = (uint8_t)luaL_checkoption(L, 1, NULL, KINDS), .n_graphs = (int)lua_rawlen(L, 2)};
  like.n_carry = (int)field(L, 3, "carry"); like.n_x = (int)field(L, 3, "x"); like.n_dy = (int)field(L, 3, "dy");
  like.rounds = field(L, 3, "rounds"); like.reverse = field(L, 3, "reverse"); like.keep = field(L, 3, "keep");
  like.replay = field(L, 3, "replay");
  sc_graph *graph[2] = {NULL, NULL};
  for (int i = 0; i < like.n_graphs && i < 2; i++) {
    lua_rawgeti(L, 2, i + 1);
    graph[i] = sc__check_graph(L, lua_gettop(L));
    lua_pop(L, 1);
  }
  int n_in = (int)lua_rawlen(L, 4);
  sc_tensor **in = lua_newuserdatauv(L, (size_t)(n_in + 1) * sizeof *in, 0);
  for (int i = 0; i < n_in; i++) {
    lua_rawgeti(L, 4, i + 1);
    in[i] = sc__check_tensor(L, b, lua_gettop(L), sc__control_op(&like));
    lua_pop(L, 1);
  }
  control_box *box = lua_newuserdatauv(L, sizeof *box, 0);
  box->p = NULL;
  luaL_setmetatable(L, META);
  sc__check(L, b, sc__control_new(b->ctx, &like, graph, &box->p));
  int n = sc__control_results(box->p);
  sc_tensor **out = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *out, 0);
  lua_createtable(L, n, 0);
  int list = lua_gettop(L);
  sc__new_boxes(L, b, n, sc__control_op(&like));
  memset(out, 0, (size_t)n * sizeof *out);
  sc_status s = emit(b, box->p, in, n_in, out);
  sc__fill_boxes(L, b, list + 1, out, n);              /* also those made before a failure */
  sc__check(L, b, s);
  for (; n; n--) lua_rawseti(L, list, n);
  return 1;
}

static void look_for_random(const sc_graph *g, bool *random, bool *own) {
  for (size_t k = 0; k < g->n_nodes; k++) {
    const sc_graph_node *n = &g->node[k];
    *random = *random || sc__node_random(n);
    for (int i = 0; i < n->op->n_attr; i++) {
      if (n->attr[i].kind == SC_ATTR_GENERATOR) *own = true;
      const sc_control *p = n->attr[i].kind == SC_ATTR_GRAPH ? n->attr[i].p : NULL;
      for (int j = 0; p && j < p->n_graphs; j++) look_for_random(p->graph[j], random, own);
    }
  }
}

/* core.is_random(g): a node draws random numbers; one draws them from a generator of the script's */
static int is_random(lua_State *L) {
  bool random = false, own = false;
  look_for_random(sc__check_graph(L, 1), &random, &own);
  lua_pushboolean(L, random);
  lua_pushboolean(L, own);
  return 2;
}

void sc__open_control(lua_State *L, binding *b) {
  (void)b;
  const luaL_Reg FUNCTIONS[] = {{"part", part}, {"control", control}, {"is_random", is_random}, {NULL, NULL}};
  luaL_setfuncs(L, FUNCTIONS, 0);
  luaL_newmetatable(L, META);
  lua_pushcfunction(L, control_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
}
