/* A host that embeds Lua: makes the context, gives it to a Lua state, and hands tensors over in both directions. The script describes and
** trains a model; the host owns memory, threads and the frame.
** Usage: host SCRIPT.lua */
#include <math.h>
#include <stdio.h>

#include <lauxlib.h>
#include <lualib.h>

#include <sconce_lua.h>

static int fail(lua_State *L, const char *what) {
  fprintf(stderr, "%s: %s\n", what, lua_tostring(L, -1));
  return 1;
}

int main(int argc, char **argv) {
  if (argc < 2) { fprintf(stderr, "usage: %s SCRIPT.lua\n", argv[0]); return 2; }
  sc_options options = {.threads = 2, .memory_limit = (size_t)256 << 20};
  sc_context *ctx;
  if (sc_context_new(&options, &ctx) != SC_OK) return 1;
  lua_State *L = luaL_newstate();
  if (!L) return 1;
  luaL_openlibs(L);
  lua_getglobal(L, "package");                         /* where `make install` has put the modules written in Lua */
  lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;", SCONCE_LUADIR, SCONCE_LUADIR);
  lua_getfield(L, -2, "path");
  lua_concat(L, 2);
  lua_setfield(L, -2, "path");
  if (sc_lua_open(L, ctx) != SC_OK) { fprintf(stderr, "%s\n", sc_error(ctx)); return 1; }
  if (luaL_dofile(L, argv[1]) != LUA_OK) return fail(L, argv[1]);   /* returns a function from points to labels */

  /* the host's memory, seen by the script without a copy */
  static float points[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  sc_tensor *t;
  if (sc_tensor_wrap(ctx, SC_FLOAT32, 2, (int64_t[]){4, 2}, points, NULL, NULL, &t) != SC_OK) return 1;
  sc_lua_push_tensor(L, t);                            /* takes t */
  if (lua_pcall(L, 1, 1, 0) != LUA_OK) return fail(L, "classify");
  sc_tensor *answer = sc_lua_to_tensor(L, -1);         /* borrowed: valid while the value is on the stack */
  if (!answer || sc_tensor_numel(answer) != 4) { fprintf(stderr, "expected 4 numbers\n"); return 1; }
  int wrong = 0;
  for (int i = 0; i < 4; i++) {
    float got = ((const float *)sc_tensor_data(answer))[i];
    printf("%g xor %g = %.2f\n", points[i][0], points[i][1], got);
    wrong += fabsf(got - (points[i][0] != points[i][1])) > 0.3f;
  }
  lua_close(L);
  sc_context_free(ctx);
  return wrong != 0;
}
