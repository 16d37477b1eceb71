/* Graphs as text, from Lua; csrc/graph/text.h says what it looks like. */
#include "../graph/text.h"

#include "binding.h"

#include <stdio.h>
#include <string.h>

/* g:sizes{name, …}: what its symbolic sizes are called, in the order of their stand-ins; without names: the list of them. */
static int graph_sizes(lua_State *L) {
  binding *b = sc__binding(L);
  sc_graph *g = sc__check_graph(L, 1);
  if (lua_istable(L, 2)) {
    int n = (int)lua_rawlen(L, 2);
    if (n > SC_SYMBOLS) return sc__raise_text(L, b, "graph: at most %d symbolic sizes", SC_SYMBOLS);
    for (int i = 0; i < n; i++) {
      lua_rawgeti(L, 2, i + 1);
      const char *name = sc__intern(b->ctx, luaL_checkstring(L, -1));
      if (!name) { sc__no_memory(b->ctx, 64); return sc__raise(L, b); }
      g->size_name[i] = name;
      lua_pop(L, 1);
    }
    g->n_sizes = n;
    return 0;
  }
  lua_createtable(L, g->n_sizes, 0);
  for (int i = 0; i < g->n_sizes; i++) { lua_pushstring(L, g->size_name[i]); lua_rawseti(L, -2, i + 1); }
  return 1;
}

static int push_text(lua_State *L) {
  const sc__text *t = lua_touserdata(L, 1);
  lua_pushlstring(L, t->at, t->n);
  return 1;
}

/* g:text() */
static int graph_text(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  sc__text t;
  sc__stack(L, 4, "graph");
  sc_status s = sc__graph_print(g, &t);
  if (s != SC_OK) { sc__text_free(&t); return sc__raise(L, b); }
  lua_pushcfunction(L, push_text);
  lua_pushlightuserdata(L, &t);
  int status = lua_pcall(L, 1, 1, 0);                    /* Lua may refuse: the text is given back all the same */
  sc__text_free(&t);
  return status == LUA_OK ? 1 : lua_error(L);
}

static int push_named(lua_State *L) {
  const sc__captures *c = lua_touserdata(L, 1);
  binding *b = sc__binding(L);
  lua_createtable(L, (int)c->n, 0);
  for (size_t i = 0; i < c->n; i++) {
    lua_createtable(L, 0, 3);
    lua_pushstring(L, c->list[i].name);
    lua_setfield(L, -2, "name");
    sc__push_tensor(L, b, sc_tensor_retain(c->list[i].t));
    lua_setfield(L, -2, "tensor");
    lua_pushboolean(L, c->list[i].memory > 0);
    lua_setfield(L, -2, "shared");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

/* g:named() -> list of { name =, tensor =, shared = } for the tensors it captures, branches and bodies included, as g:text() calls them;
** they keep these names */
static int graph_named(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc__captures c;
  sc__check(L, b, sc__graph_name_all(sc__check_graph(L, 1)));
  sc__check(L, b, sc__graph_captures(sc__check_graph(L, 1), &c));
  sc__stack(L, 4, "graph");
  lua_pushcfunction(L, push_named);
  lua_pushlightuserdata(L, &c);
  int status = lua_pcall(L, 1, 1, 0);
  sc__captures_free(b->ctx, &c);
  return status == LUA_OK ? 1 : lua_error(L);
}

/* g:name(tensor, name): what the captured tensor is called in texts and files */
static int graph_name(lua_State *L) {
  binding *b = sc__binding(L);
  sc_graph *g = sc__check_graph(L, 1);
  sc__check(L, b, sc__graph_name(g, sc__check_tensor(L, b, 2, "name"), luaL_checkstring(L, 3)));
  return 0;
}

/* g:rebase(node, base): the index values of that node count from 0 or 1 */
static int graph_rebase(lua_State *L) {
  sc_graph *g = sc__check_graph(L, 1);
  lua_Integer k = luaL_checkinteger(L, 2), base = luaL_checkinteger(L, 3);
  if (k < 1 || k > (lua_Integer)g->n_nodes || base < 0 || base > 1) return sc__raise_text(L, sc__binding(L), "rebase: out of range");
  g->node[k - 1].base = (uint8_t)base;
  return 0;
}

/* g:apply({size, …}, {tensor, …}) -> list of results: g's nodes emitted on these inputs, into what is being recorded */
static int graph_apply(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  luaL_checktype(L, 3, LUA_TTABLE);
  sc_sizes z = {.n = (int)lua_rawlen(L, 2)};
  if (z.n > SC_SYMBOLS) return sc__raise_text(L, b, "graph: at most %d symbolic sizes", SC_SYMBOLS);
  for (int i = 0; i < z.n; i++) { lua_rawgeti(L, 2, i + 1); z.actual[i] = luaL_checkinteger(L, -1); lua_pop(L, 1); }
  sc_tensor **in = lua_newuserdatauv(L, (g->n_inputs + g->n_outputs + 1) * sizeof *in, 0), **out = in + g->n_inputs;
  for (size_t i = 0; i < g->n_inputs; i++) {
    lua_rawgeti(L, 3, (lua_Integer)i + 1);
    in[i] = sc__check_tensor(L, b, lua_gettop(L), "graph");
    const sc_value *v = &g->value[g->input[i]];
    bool fits = in[i]->dtype == v->dtype && in[i]->ndim == v->ndim;
    for (int d = 0; fits && d < v->ndim; d++) fits = in[i]->dim[d] == sc__sizes_apply(&z, v->dim[d]);
    if (!fits) return sc__raise_text(L, b, "graph: input %s has another dtype or shape than the graph's", v->name);
    lua_pop(L, 1);
  }
  sc__check(L, b, sc__graph_apply(g, &z, in, out));
  lua_createtable(L, (int)g->n_outputs, 0);
  for (size_t i = 0; i < g->n_outputs; i++) { sc__push_tensor(L, b, out[i]); lua_rawseti(L, -2, (lua_Integer)i + 1); }
  return 1;
}

typedef struct finder { lua_State *L; binding *b; } finder;

static sc_status find(void *user, const char *name, sc_tensor **out) {
  finder *f = user;
  *out = NULL;
  if (!lua_checkstack(f->L, 4)) return sc__no_memory(f->b->ctx, 64);
  lua_pushvalue(f->L, 2);
  lua_pushnil(f->L);
  while (lua_next(f->L, -2)) {                            /* a plain walk: making a string may raise */
    const char *key = lua_type(f->L, -2) == LUA_TSTRING ? lua_tostring(f->L, -2) : NULL;
    if (key && strcmp(key, name) == 0) {
      *out = sc_tensor_retain(((tensor_box *)lua_touserdata(f->L, -1))->t);
      lua_pop(f->L, 3);
      return SC_OK;
    }
    lua_pop(f->L, 1);
  }
  lua_pop(f->L, 1);
  return SC_OK;
}

/* core.graph_parse(text, {name = tensor} or nil) -> graph. Captured tensors that the table does not give are new, and hold zeros.
** With a table, tensors are captured as they are laid out, whatever the text says. */
static int graph_parse(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  finder f = {L, b};
  lua_settop(L, 2);
  if (lua_istable(L, 2)) {
    lua_pushnil(L);
    while (lua_next(L, 2)) {
      if (lua_type(L, -2) != LUA_TSTRING) return sc__raise_text(L, b, "graph_parse: argument 2: expected tensors by name");
      sc_tensor *t = sc__check_tensor(L, b, lua_gettop(L), "graph_parse");
      if (sc__is_symbolic(t)) return sc__raise_text(L, b, "graph_parse: argument 2: expected tensors that hold data");
      lua_pop(L, 1);
    }
  }
  sc_graph **out = sc__new_graph(L);
  sc__check(L, b, sc__graph_read(b->ctx, text, n, lua_istable(L, 2) ? find : NULL, &f, lua_istable(L, 2) ? 0 : (int64_t)1 << 30, out));
  return 1;
}

/* core.random_text() -> "SEED OFFSET" of the default generator */
static int random_text(lua_State *L) {
  char text[64];
  const sc_generator *g = &sc__binding(L)->ctx->rng;
  snprintf(text, sizeof text, "%llu %llu", (unsigned long long)g->seed, (unsigned long long)g->offset);
  lua_pushstring(L, text);
  return 1;
}

void sc__open_text(lua_State *L, binding *b) {
  static const luaL_Reg METHODS[] = {{"sizes", graph_sizes}, {"text", graph_text}, {"named", graph_named}, {"name", graph_name}, {"rebase", graph_rebase}, {"apply", graph_apply}, {NULL, NULL}};
  (void)b;
  lua_getfield(L, -1, "graph_methods");
  luaL_setfuncs(L, METHODS, 0);
  lua_pop(L, 1);
  lua_pushcfunction(L, graph_parse);
  lua_setfield(L, -2, "graph_parse");
  lua_pushcfunction(L, random_text);
  lua_setfield(L, -2, "random_text");
}
