/* read_idx and write_png from Lua. */
#include "../formats/images.h"

#include "binding.h"

static int read_idx(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_tensor *t;
  sc__check(L, b, sc__read_idx(b->ctx, luaL_checkstring(L, 1), &t));
  sc__push_tensor(L, b, t);
  return 1;
}

static int write_png(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc__check(L, b, sc__write_png(b->ctx, luaL_checkstring(L, 1), sc__check_tensor(L, b, 2, "write_png")));
  return 0;
}

void sc__open_images(lua_State *L, binding *b) {
  (void)b;
  lua_pushcfunction(L, read_idx);
  lua_setfield(L, -2, "read_idx");
  lua_pushcfunction(L, write_png);
  lua_setfield(L, -2, "write_png");
}
