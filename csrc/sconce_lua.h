/* sconce in a host that embeds Lua 5.4: gives a Lua state a context of the host's, and hands tensors back and forth. Link with
** `pkg-config --cflags --libs sconce-lua`; the library has the engine in it, so `libsconce` is not linked beside it. The modules written
** in Lua lie where `pkg-config --variable=luadir sconce-lua` says, which belongs on `package.path`.
**
**     sc_context *ctx;
**     sc_context_new(NULL, &ctx);
**     lua_State *L = luaL_newstate();
**     luaL_openlibs(L);
**     if (sc_lua_open(L, ctx) != SC_OK) fail(sc_error(ctx));          // now `require "sconce"` uses ctx
**
** One state for each context that is in use at the same time, one thread for each at a time; several states may use one context in turn,
** on the same thread. The state keeps its context alive. */
#ifndef SCONCE_LUA_H
#define SCONCE_LUA_H

#include <lua.h>

#include "sconce.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Puts the module into package.preload, so that `require "sconce"` in L works with ctx; NULL: a context of its own. The libraries of Lua
** must be open. Never raises: a refusal (of memory, or because L has a context already) is a status, its text in sc_error(ctx). */
SC_API sc_status sc_lua_open(lua_State *L, sc_context *ctx);
/* borrowed: the context of L; NULL: none was opened. Does not raise. */
SC_API sc_context *sc_lua_context(lua_State *L);
/* Pushes t as a tensor of the script; takes it. One of another context is pushed as a header of the same memory. NULL pushes nil. Raises
** when memory is refused, and where no context was opened. */
SC_API void sc_lua_push_tensor(lua_State *L, sc_tensor *t);
/* borrowed: the tensor at that index, valid as long as the script's value is; NULL: something else, or one that was freed. Does not raise. */
SC_API sc_tensor *sc_lua_to_tensor(lua_State *L, int index);

/* The module by itself, for hosts that link it in: makes a context of its own unless one was opened. */
SC_API int luaopen_sconce_core(lua_State *L);

#ifdef __cplusplus
}
#endif
#endif
