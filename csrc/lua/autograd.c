/* Gradients from Lua: backward, grad, hooks, custom functions. */
#include "binding.h"

#include <string.h>

static bool flag(lua_State *L, int at, const char *name, bool otherwise) {
  if (lua_type(L, at) != LUA_TTABLE) return otherwise;
  lua_getfield(L, at, name);
  bool on = lua_isnil(L, -1) ? otherwise : lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

/* y:backward(gradient or nil, {retain_graph=, create_graph=}) */
static int backward(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc__enter(L, b);
  sc_tensor *y = sc__check_tensor(L, b, 1, "backward"), *dy = NULL;
  int options = lua_type(L, 2) == LUA_TTABLE ? 2 : 3;
  if (options == 3 && !lua_isnoneornil(L, 2)) dy = sc__check_tensor(L, b, 2, "backward");
  bool create = flag(L, options, "create_graph", false);
  sc__check(L, b, sc__backward(b->ctx, &y, &dy, 1, NULL, 0, flag(L, options, "retain_graph", create), create, NULL));
  return 0;
}

/* A tensor, or a list of them: pointers into a userdata left on the stack. */
static sc_tensor **tensor_list(lua_State *L, binding *b, int at, const char *what, int *n) {
  bool list = lua_type(L, at) == LUA_TTABLE;
  *n = list ? (int)lua_rawlen(L, at) : 1;
  sc_tensor **v = lua_newuserdatauv(L, (size_t)(*n + 1) * sizeof *v, 0);
  for (int i = 0; i < *n; i++) {
    if (list) lua_rawgeti(L, at, i + 1); else lua_pushvalue(L, at);
    v[i] = lua_isnil(L, -1) ? NULL : sc__check_tensor(L, b, lua_gettop(L), what);
    lua_pop(L, 1);
  }
  return v;
}

/* core.grad(outputs, inputs, options) */
static int grad(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  int n_y, n_x, n_dy = 0;
  lua_settop(L, 3);
  sc_tensor **y = tensor_list(L, b, 1, "grad", &n_y), **x = tensor_list(L, b, 2, "grad", &n_x), **dy = NULL;
  if (lua_type(L, 3) == LUA_TTABLE && lua_getfield(L, 3, "grad_outputs") != LUA_TNIL) {
    dy = tensor_list(L, b, lua_gettop(L), "grad", &n_dy);
    if (n_dy != n_y) return sc__raise_text(L, b, "grad: grad_outputs has %d tensors, there are %d outputs", n_dy, n_y);
  }
  bool create = flag(L, 3, "create_graph", false), unused = flag(L, 3, "allow_unused", false);
  sc_tensor **g = lua_newuserdatauv(L, (size_t)(n_x + 1) * sizeof *g, 0);
  luaL_checkstack(L, n_x + 8, "grad");
  sc__check(L, b, sc__backward(b->ctx, y, dy, n_y, x, n_x, flag(L, 3, "retain_graph", create), create, g));
  for (int i = 0; i < n_x && !unused; i++) {
    if (g[i]) continue;
    for (int k = 0; k < n_x; k++) sc_tensor_release(g[k]);
    return sc__raise_text(L, b, "grad: input %d was not used to compute the outputs; {allow_unused = true} gives nil for it", i + 1);
  }
  for (int i = 0; i < n_x; i++) sc__push_tensor(L, b, g[i]);
  return n_x;
}

static int requires_grad_(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc_tensor *t = sc__check_tensor(L, b, 1, "requires_grad_");
  sc__check(L, b, sc_set_requires_grad(t, lua_isnoneornil(L, 2) || lua_toboolean(L, 2)));
  lua_settop(L, 1);
  return 1;
}

static int retain_grad(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc__check(L, b, sc__retain_grad(sc__check_tensor(L, b, 1, "retain_grad")));
  return 0;
}

static const luaL_Reg METHODS[] = {{"backward", backward}, {"requires_grad_", requires_grad_}, {"retain_grad", retain_grad}, {NULL, NULL}};

void sc__open_autograd(lua_State *L, binding *b) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, b->methods_ref);
  lua_pushlightuserdata(L, b);
  luaL_setfuncs(L, METHODS, 1);
  lua_pop(L, 1);
  lua_pushcfunction(L, grad);
  lua_setfield(L, -2, "grad");
}
