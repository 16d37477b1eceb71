/* Gradients from Lua: backward, grad, hooks, custom functions. What the walk calls back is in script.c; what is written over these
** in lua/sconce/autograd.lua. */
#include "binding.h"

#include <string.h>

static bool flag(lua_State *L, int at, const char *name, bool otherwise) {
  if (lua_type(L, at) != LUA_TTABLE) return otherwise;
  lua_getfield(L, at, name);
  bool on = lua_isnil(L, -1) ? otherwise : lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

static uint32_t how(lua_State *L, int at) {
  return (flag(L, at, "create_graph", false) ? SC_WALK_CREATE : 0) | (flag(L, at, "retain_graph", false) ? SC_WALK_RETAIN : 0) |
         (flag(L, at, "cut", false) ? SC_WALK_CUT : 0);
}

/* Options are known names; the message lists them. */
static void check_options(lua_State *L, binding *b, int at, const char *what, const char *const *names) {
  if (lua_isnoneornil(L, at)) return;
  if (!lua_istable(L, at)) sc__raise_text(L, b, "%s: argument %d: expected a table of options, got %s", what, at, sc__got(L, b, at));
  lua_pushnil(L);
  while (lua_next(L, at)) {
    const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    int k = 0;
    while (names[k] && strcmp(names[k], name) != 0) k++;
    if (!names[k]) {
      char list[200] = "", shown[100];
      for (int i = 0; names[i]; i++) { if (i) strcat(list, ", "); strcat(list, names[i]); }
      sc__raise_text(L, b, "%s: there is no option \"%s\"; the options are %s", what, sc__printable(name, strlen(name), shown, sizeof shown), list);
    }
    lua_pop(L, 1);
  }
}

/* y:backward(gradient or nil, {gradient=, retain_graph=, create_graph=}) */
static int backward(lua_State *L) {
  static const char *const OPTIONS[] = {"gradient", "retain_graph", "create_graph", NULL};
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc__enter(L, b);
  sc_tensor *y = sc__check_tensor(L, b, 1, "backward"), *dy = NULL;
  int options = lua_type(L, 2) == LUA_TTABLE ? 2 : 3;
  check_options(L, b, options, "backward", OPTIONS);
  if (options == 3 && !lua_isnoneornil(L, 2)) dy = sc__check_tensor(L, b, 2, "backward");
  if (lua_istable(L, options) && lua_getfield(L, options, "gradient") != LUA_TNIL) dy = sc__check_tensor(L, b, lua_gettop(L), "backward");
  sc__check(L, b, sc__backward(b->ctx, &y, &dy, 1, NULL, 0, how(L, options), NULL));
  return 0;
}

/* A tensor, or a list of them: pointers into a userdata left on the stack. */
static sc_tensor **tensor_list(lua_State *L, binding *b, int at, const char *what, bool holes, int n, int *count) {
  bool list = lua_type(L, at) == LUA_TTABLE;
  *count = n >= 0 ? n : list ? (int)lua_rawlen(L, at) : 1;
  sc_tensor **v = lua_newuserdatauv(L, (size_t)(*count + 1) * sizeof *v, 0);
  for (int i = 0; i < *count; i++) {
    if (list) lua_rawgeti(L, at, i + 1); else lua_pushvalue(L, at);
    v[i] = sc__test_tensor(L, b, -1);
    if (!v[i] && !(holes && (lua_isnil(L, -1) || lua_isboolean(L, -1))))
      sc__raise_text(L, b, "grad: %s: expected a tensor or a list of tensors, got %s%s", what, list ? "a list with " : "", sc__got(L, b, -1));
    lua_pop(L, 1);
  }
  return v;
}

/* core.grad(outputs, inputs, options) -> a gradient per input */
static int grad(lua_State *L) {
  static const char *const OPTIONS[] = {"grad_outputs", "retain_graph", "create_graph", "allow_unused", "cut", NULL};
  binding *b = sc__binding(L);
  sc__enter(L, b);
  int n_y, n_x, n_dy = 0;
  lua_settop(L, 3);
  check_options(L, b, 3, "grad", OPTIONS);
  sc_tensor **y = tensor_list(L, b, 1, "argument 1 (outputs)", false, -1, &n_y), **x = tensor_list(L, b, 2, "argument 2 (inputs)", false, -1, &n_x);
  sc_tensor **dy = NULL;
  if (lua_type(L, 3) == LUA_TTABLE && lua_getfield(L, 3, "grad_outputs") != LUA_TNIL) {
    int at = lua_gettop(L);
    if (lua_istable(L, at) ? (int)lua_rawlen(L, at) > n_y : n_y != 1)
      return sc__raise_text(L, b, "grad: grad_outputs: expected %d tensors, one per output", n_y);
    dy = tensor_list(L, b, at, "grad_outputs", true, n_y, &n_dy);
  }
  bool unused = flag(L, 3, "allow_unused", false);
  sc_tensor **g = lua_newuserdatauv(L, (size_t)(n_x + 1) * sizeof *g, 0);
  int first = lua_gettop(L) + 1;
  sc__new_boxes(L, b, n_x, "grad");
  if (n_x) sc__check(L, b, sc__backward(b->ctx, y, dy, n_y, x, n_x, how(L, 3), g));
  if (n_x) sc__fill_boxes(L, b, first, g, n_x);
  for (int i = 0; i < n_x; i++) {
    if (g[i]) continue;
    if (!unused) return sc__raise_text(L, b, "grad: input %d was not used to compute the outputs; {allow_unused = true} gives nil for it", i + 1);
    lua_pushnil(L);
    lua_replace(L, first + i);
  }
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
  sc__enter(L, b);
  sc__check(L, b, sc__retain_grad(sc__check_tensor(L, b, 1, "retain_grad")));
  return 0;
}

static int detach_(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc__enter(L, b);
  sc__check(L, b, sc__detach_(sc__check_tensor(L, b, 1, "detach_")));
  lua_settop(L, 1);
  return 1;
}

/* ---- hooks ---- */

typedef struct hook_handle { sc_tensor *t; int64_t id; } hook_handle;      /* user value: the box */

static const char *const HANDLE = "sconce.hook";

/* x:register_hook(fn) -> a handle with remove() */
static int register_hook(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  sc__enter(L, b);
  sc_tensor *t = sc__check_tensor(L, b, 1, "register_hook");
  if (lua_type(L, 2) != LUA_TFUNCTION && !luaL_getmetafield(L, 2, "__call"))
    return sc__raise_text(L, b, "register_hook: argument 2: expected a function, got %s", sc__got(L, b, 2));
  lua_settop(L, 2);
  hook_handle *h = lua_newuserdatauv(L, sizeof *h, 1);
  *h = (hook_handle){NULL, -1};
  luaL_setmetatable(L, HANDLE);
  lua_newtable(L);
  lua_pushvalue(L, 2);
  lua_rawseti(L, -2, 0);
  int64_t id = sc__script_box(L, b);
  lua_setiuservalue(L, 3, 1);
  sc__check(L, b, sc__add_hook(t, id));
  h->t = sc_tensor_retain(t);
  h->id = id;
  lua_pushvalue(L, 1);
  sc__script_anchor(L, t);
  lua_pop(L, 1);
  return 1;
}

static int handle_remove(lua_State *L) {
  hook_handle *h = luaL_checkudata(L, 1, HANDLE);
  if (!h->t) return 0;
  sc__remove_hook(h->t, h->id);
  if (lua_getiuservalue(L, 1, 1) == LUA_TTABLE) { lua_pushnil(L); lua_rawseti(L, -2, 0); }     /* wherever it is still listed */
  sc_tensor *t = h->t;
  h->t = NULL;
  sc_tensor_release(t);
  return 0;
}

static int handle_gc(lua_State *L) {
  hook_handle *h = luaL_checkudata(L, 1, HANDLE);
  sc_tensor *t = h->t;
  h->t = NULL;
  sc_tensor_release(t);
  return 0;
}

/* ---- custom functions ---- */

/* What forward returned becomes an output: itself when it is fresh, else an alias of it in a userdata of its own. */
static sc_tensor *as_output(lua_State *L, binding *b, int list, int k, sc_tensor **seen, int n_seen) {
  lua_rawgeti(L, list, k);
  sc_tensor *t = sc__check_tensor(L, b, lua_gettop(L), "a custom function's result");
  bool fresh = !(t->flags & SC_T_REQUIRES) && !(t->ad && (t->ad->node || t->ad->base));
  for (int i = 0; i < n_seen; i++) fresh = fresh && seen[i] != t;
  if (!fresh) {
    sc_tensor *alias;
    sc__check(L, b, sc__tensor_alias(t, &alias));
    if (t->graph) { alias->graph = t->graph; alias->value = t->value; t->ctx->retrace(alias); }
    sc__push_tensor(L, b, alias);
    lua_rawseti(L, list, k);
    t = alias;
  }
  lua_pop(L, 1);
  return t;
}

/* core.record_custom(state, inputs, outputs): see backward_protected in script.c for the state. inputs: tensors; outputs: what forward
** returned, of which the tensors at the places listed in `at` become results of one node; replaced where they must be aliases. */
static int record_custom(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  int n_in, n_out;
  lua_settop(L, 4);
  sc_tensor **in = tensor_list(L, b, 2, "a custom function", false, -1, &n_in);
  n_out = (int)lua_rawlen(L, 4);
  sc_tensor **out = lua_newuserdatauv(L, (size_t)(n_out + 1) * sizeof *out, 0);
  for (int i = 0; i < n_out; i++) {
    lua_rawgeti(L, 4, i + 1);
    int k = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
    out[i] = as_output(L, b, 3, k, in, n_in);
    for (int j = 0; j < i; j++) if (out[j] == out[i]) out[i] = as_output(L, b, 3, k, out, i);
  }
  lua_newtable(L);
  lua_pushvalue(L, 1);
  lua_rawseti(L, -2, 0);
  int64_t id = sc__script_box(L, b);
  sc__check(L, b, sc__record_custom(b->ctx, id, in, n_in, out, n_out));
  for (int i = 0; i < n_out; i++) {
    lua_rawgeti(L, 4, i + 1);
    lua_rawgeti(L, 3, lua_tointeger(L, -1));
    if (out[i]->flags & SC_T_ANCHORED && out[i]->ad) sc__script_anchor(L, out[i]);
    lua_pop(L, 2);
  }
  return 0;
}

/* ---- checkpoints ---- */

/* core.sequence(): every node made from now on is newer */
static int sequence(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)++sc__binding(L)->ctx->sequence);
  return 1;
}

/* A tensor that stands for an edge: for differentiating with respect to it, not for reading. */
static sc_status stand_in(const sc_edge *e, sc_tensor **out) {
  const int64_t *shape = e->node->out_shape[e->slot];
  sc_meta m;
  sc__meta_set(&m, (sc_dtype)shape[0], (int)shape[1], shape + 2);
  SC_TRY(sc__tensor_symbolic(e->node->ctx, &m, NULL, NULL, out));
  if (!sc__autograd(*out)) { sc_tensor_release(*out); return SC_ENOMEM; }
  sc__attach(*out, e->node, e->slot);
  sc__anchor_set(*out, e->node->anchor);
  return SC_OK;
}

/* The edge leaves what was computed since: into the list at 4, unless it is there (5: seen) already. */
static void put_captured(lua_State *L, binding *b, const sc_edge *e) {
  if (lua_rawgetp(L, 5, (char *)e->node + e->slot) == LUA_TNIL) {
    sc_tensor *t = NULL;
    if (e->node->kind == SC_NODE_ACCUMULATE) t = sc_tensor_retain(e->node->leaf);
    else sc__check(L, b, stand_in(e, &t));
    sc__push_tensor(L, b, t);
    lua_rawseti(L, 4, (lua_Integer)lua_rawlen(L, 4) + 1);
    lua_pushboolean(L, 1);
    lua_rawsetp(L, 5, (char *)e->node + e->slot);
  }
  lua_pop(L, 1);
}

/* core.captured(outputs, inputs, since) -> the tensors besides `inputs` that nodes newer than `since` took gradients from */
static int captured(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  int n_y, n_x;
  lua_settop(L, 3);
  uint64_t since = (uint64_t)luaL_checkinteger(L, 3), mark = ++b->ctx->sequence;
  lua_newtable(L);
  lua_newtable(L);
  sc_tensor **y = tensor_list(L, b, 1, "outputs", false, -1, &n_y), **x = tensor_list(L, b, 2, "inputs", false, -1, &n_x);
  sc_edge e;
  for (int i = 0; i < n_x; i++) {
    sc__check(L, b, sc__edge_of(x[i], &e));
    if (e.node) { lua_pushboolean(L, 1); lua_rawsetp(L, 5, (char *)e.node + e.slot); }
  }
  size_t room = 64, n = 0;
  sc_node **stack = lua_newuserdatauv(L, room * sizeof *stack, 0);
  int at = lua_gettop(L);
  for (int i = 0; i < n_y; i++) {
    sc__check(L, b, sc__edge_of(y[i], &e));
    if (!e.node) continue;
    if (e.node->seq <= since) { put_captured(L, b, &e); continue; }
    if (e.node->mark == mark) continue;
    e.node->mark = mark;
    for (stack[n++] = e.node; n; ) {
      sc_node *top = stack[--n];
      for (int k = 0; k < top->n_in; k++) {
        sc_node *to = top->edge[k].node;
        if (!to || to->mark == mark) continue;
        if (to->seq <= since) { put_captured(L, b, &top->edge[k]); continue; }
        to->mark = mark;
        if (n == room) {
          sc_node **more = lua_newuserdatauv(L, 2 * room * sizeof *more, 0);
          memcpy(more, stack, room * sizeof *more);
          stack = more;
          room *= 2;
          lua_replace(L, at);
        }
        stack[n++] = to;
      }
    }
  }
  lua_settop(L, 4);
  return 1;
}

/* core.version(t) -> number of in-place writes to t's memory, the place of the last one or nil */
static int version(lua_State *L) {
  sc_tensor *t = sc__check_tensor(L, sc__binding(L), 1, "version");
  lua_pushinteger(L, t->storage ? (lua_Integer)t->storage->version : 0);
  if (!t->storage || !t->storage->writer.line) return 1;
  lua_pushfstring(L, "%s:%d", t->storage->writer.file, t->storage->writer.line);
  return 2;
}

/* core.differentiable(t) -> whether t can be walked back from: it has a history that nobody has used up */
static int differentiable(lua_State *L) {
  binding *b = sc__binding(L);
  sc_edge e;
  sc__check(L, b, sc__edge_of(sc__check_tensor(L, b, 1, "differentiable"), &e));
  lua_pushboolean(L, e.node && !e.node->freed);
  return 1;
}

/* core.anomaly(on) -> what it was */
static int anomaly(lua_State *L) {
  sc_context *ctx = sc__binding(L)->ctx;
  lua_pushboolean(L, ctx->anomaly);
  ctx->anomaly = lua_toboolean(L, 1);
  return 1;
}

static const luaL_Reg METHODS[] = {{"backward", backward}, {"requires_grad_", requires_grad_}, {"retain_grad", retain_grad},
  {"detach_", detach_}, {"register_hook", register_hook}, {NULL, NULL}};
static const luaL_Reg FUNCTIONS[] = {{"grad", grad}, {"record_custom", record_custom}, {"version", version}, {"anomaly", anomaly},
  {"sequence", sequence}, {"differentiable", differentiable}, {"captured", captured}, {NULL, NULL}};

void sc__open_autograd(lua_State *L, binding *b) {
  lua_rawgeti(L, LUA_REGISTRYINDEX, b->methods_ref);
  lua_pushlightuserdata(L, b);
  luaL_setfuncs(L, METHODS, 1);
  lua_pop(L, 1);
  luaL_setfuncs(L, FUNCTIONS, 0);
  luaL_newmetatable(L, HANDLE);
  lua_pushcfunction(L, handle_gc); lua_setfield(L, -2, "__gc");
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, handle_remove); lua_setfield(L, -2, "remove");
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}
