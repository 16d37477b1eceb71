/* lua: the binding. One generic argument reader serves every op; tensors and graphs are userdata. All Lua errors are raised here,
** after the C below has returned. 1-based becomes 0-based in args.c and nowhere else. */
#ifndef SC_LUA_BINDING_H
#define SC_LUA_BINDING_H

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>

#include "../autodiff/autodiff.h"
#include "../graph/graph.h"
#include "../ops/ops.h"

/* A coroutine inside sc.no_grad or sc.enable_grad. */
typedef struct grad_block { lua_State *thread; bool enabled; uint64_t id; } grad_block;

typedef struct binding {
  sc_context *ctx;
  lua_State *now;                  /* the state that is calling */
  const void *tensor_meta;         /* identity of the tensors' metatable */
  const sc_opinfo *select_op, *getview_op;   /* what x[key] is made of */
  const void *newaxis, *ellipsis;  /* identities of sc.newaxis and sc.ellipsis */
  int tensor_ref, methods_ref;     /* registry: that metatable, the methods */
  char inside[512];                /* source prefix of lua/sconce: frames there are not the user's */
  size_t inside_length;
  struct { char *source; const char *file; bool internal; } place[16];   /* cache of locate */
  grad_block block[128];
  int n_blocks;
  uint64_t block_ids;
  int error_ref;                   /* registry: an error value on its way through C; LUA_NOREF: none */
  int64_t hook_ids;
  int scopes;                      /* sc.scope blocks open now */
} binding;

typedef struct tensor_box { sc_tensor *t; } tensor_box;   /* t NULL: freed */

binding *sc__binding(lua_State *L);                        /* of this state, from the registry */
/* Called first by every C function of the module: sets the gradient mode of the coroutine, pays the collector. */
void sc__enter(lua_State *L, binding *b);
/* Raises the context's error, or a pending error value, at the user's line. */
int sc__raise(lua_State *L, binding *b);
/* Raises a message at the user's line. */
int sc__raise_text(lua_State *L, binding *b, const char *format, ...);
static inline void sc__check(lua_State *L, binding *b, sc_status s) { if (s != SC_OK) sc__raise(L, b); }

/* The tensor at that place, borrowed; NULL when it is something else. Raises for a freed one. */
sc_tensor *sc__test_tensor(lua_State *L, binding *b, int at);
sc_tensor *sc__check_tensor(lua_State *L, binding *b, int at, const char *what);
/* Takes t. */
void sc__push_tensor(lua_State *L, binding *b, sc_tensor *t);
void sc__push_scalar(lua_State *L, sc_dtype d, const void *at);
bool sc__read_dtype(lua_State *L, int at, sc_dtype *out);

/* The function of an op: upvalue 1 the binding, upvalue 2 its row. */
int sc__op_function(lua_State *L);
/* Reads the arguments at 1 … top for an op and calls it; returns the number of results pushed. */
int sc__call_op(lua_State *L, binding *b, const sc_opinfo *op);

int sc__composite(lua_State *L);

sc_location sc__lua_locate(void *user);
/* Each adds its functions to the module table on top of the stack. */
void sc__open_tensor(lua_State *L, binding *b);
void sc__open_autograd(lua_State *L, binding *b);
void sc__open_graph(lua_State *L, binding *b);
void sc__open_signature(lua_State *L, binding *b);
void sc__open_images(lua_State *L, binding *b);
void sc__open_index(lua_State *L, binding *b);
void sc__open_random(lua_State *L, binding *b);
void sc__open_formats(lua_State *L, binding *b);
/* x[key], x[key] = value for keys that are not names */
int sc__get_index(lua_State *L, binding *b);
int sc__set_index(lua_State *L, binding *b);

#endif
