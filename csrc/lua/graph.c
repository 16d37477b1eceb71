/* Graphs and plans from Lua. The objects people see (graph, run, session, compiled function) are made of these in lua/sconce/graph.lua
** and compile.lua. */
#include "../graph/control.h"

#include "compiled.h"

#include <stdio.h>
#include <string.h>

typedef struct graph_box { sc_graph *g; } graph_box;

static const char *const GRAPH = "sconce.graph", *const PLAN = "sconce.plan", *const MARK = "sconce.mark";

plan_box *sc__check_plan(lua_State *L, int at) { return luaL_checkudata(L, at, PLAN); }

sc_graph *sc__check_graph(lua_State *L, int at) { return ((graph_box *)luaL_checkudata(L, at, GRAPH))->g; }

/* An empty graph on top of the stack, to be filled in: made first, so that a refusal by Lua loses nothing. */
static graph_box *new_box(lua_State *L) {
  graph_box *box = lua_newuserdatauv(L, sizeof *box, 0);
  box->g = NULL;
  luaL_setmetatable(L, GRAPH);
  return box;
}

sc_graph **sc__new_graph(lua_State *L) { return &new_box(L)->g; }

/* core.graph() */
static int graph_new(lua_State *L) {
  binding *b = sc__binding(L);
  sc__set_now(L, b);
  graph_box *box = new_box(L);
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
  sc__set_now(L, b);
  sc_graph *g = sc__check_graph(L, 1);
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
  if (!lua_isnoneornil(L, 4) && !sc__read_dtype(L, 4, &d)) return sc__raise_text(L, b, "input: argument 3 (dtype): expected a dtype such as \"float32\", got %s", sc__got(L, b, 4));
  sc_tensor *t;
  sc__check(L, b, sc_graph_input(g, name, d, n, dim, &t));
  sc__push_tensor(L, b, t);
  return 1;
}

static int graph_output(lua_State *L) {
  binding *b = sc__binding(L);
  sc__set_now(L, b);
  sc__check(L, b, sc_graph_output(sc__check_graph(L, 1), luaL_checkstring(L, 2), sc__check_tensor(L, b, 3, "output")));
  return 0;
}

/* g:names() -> list of input names, list of output names */
static int graph_names(lua_State *L) {
  sc_graph *g = sc__check_graph(L, 1);
  lua_createtable(L, (int)g->n_inputs, 0);
  for (size_t i = 0; i < g->n_inputs; i++) { lua_pushstring(L, g->value[g->input[i]].name); lua_rawseti(L, -2, (lua_Integer)i + 1); }
  lua_createtable(L, (int)g->n_outputs, 0);
  for (size_t i = 0; i < g->n_outputs; i++) { lua_pushstring(L, g->output[i].name); lua_rawseti(L, -2, (lua_Integer)i + 1); }
  return 2;
}

/* g:run{name = tensor, …} -> {name = tensor, …}: the plain executor, node by node as recorded. */
static int graph_run(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  sc_tensor **in = lua_newuserdatauv(L, (g->n_inputs + g->n_outputs + 1) * sizeof *in, 0), **out = in + g->n_inputs;
  for (size_t i = 0; i < g->n_inputs; i++) {
    const char *name = g->value[g->input[i]].name;
    lua_getfield(L, 2, name);
    in[i] = sc__test_tensor(L, b, -1);
    if (!in[i]) return sc__raise_text(L, b, "graph: input %s is missing", name);
    lua_pop(L, 1);
  }
  int n = (int)g->n_outputs;
  lua_createtable(L, 0, n);
  int list = lua_gettop(L);
  sc__new_boxes(L, b, n, "graph");
  sc__check(L, b, sc_graph_run(g, in, (int)g->n_inputs, out, n));
  sc__fill_boxes(L, b, list + 1, out, n);
  while (n--) lua_setfield(L, list, g->output[n].name);
  return 1;
}

/* ---- looking inside ---- */

static void push_value_name(lua_State *L, const sc_graph *g, int32_t v) {
  if (v < 0) { lua_pushliteral(L, "nil"); return; }
  const sc_value *x = &g->value[v];
  char shape[200], named[200], text[300];
  const char *kind = x->kind == SC_VALUE_INPUT ? x->name : x->kind == SC_VALUE_CAPTURE ? "captured" : "";
  sc__name_sizes(g, sc__shape_text(x->ndim, x->dim, shape, sizeof shape), named, sizeof named);
  snprintf(text, sizeof text, "%%%d%s%s %s%s", v + 1, kind[0] ? ":" : "", kind, sc_dtype_name((sc_dtype)x->dtype), named);
  lua_pushstring(L, text);
}

/* g:nodes() -> list of { op =, inputs = {text …}, outputs = {text …}, ins = {number …}, outs = {number …}, file =, line =, module =, backward = } */
static int graph_nodes(lua_State *L) {
  sc_graph *g = sc__check_graph(L, 1);
  lua_createtable(L, (int)g->n_nodes, 0);
  for (size_t k = 0; k < g->n_nodes; k++) {
    const sc_graph_node *n = &g->node[k];
    lua_createtable(L, 0, 8);
    lua_pushstring(L, n->op->name); lua_setfield(L, -2, "op");
    if (n->where.line) {
      lua_pushstring(L, n->where.file); lua_setfield(L, -2, "file");
      lua_pushinteger(L, n->where.line); lua_setfield(L, -2, "line");
    }
    if (n->where.module) { lua_pushstring(L, n->where.module); lua_setfield(L, -2, "module"); }
    if (n->where.backward) { lua_pushboolean(L, true); lua_setfield(L, -2, "backward"); }
    const struct { const char *text, *number; const int32_t *v; int n; } LISTS[] = {{"inputs", "ins", n->in, n->n_in}, {"outputs", "outs", n->out, n->n_out}};
    for (int l = 0; l < 2; l++) {
      lua_createtable(L, LISTS[l].n, 0);
      for (int i = 0; i < LISTS[l].n; i++) { push_value_name(L, g, LISTS[l].v[i]); lua_rawseti(L, -2, i + 1); }
      lua_setfield(L, -2, LISTS[l].text);
      lua_createtable(L, LISTS[l].n, 0);
      for (int i = 0; i < LISTS[l].n; i++) { lua_pushinteger(L, LISTS[l].v[i] + 1); lua_rawseti(L, -2, i + 1); }
      lua_setfield(L, -2, LISTS[l].number);
    }
    lua_rawseti(L, -2, (lua_Integer)k + 1);
  }
  return 1;
}

/* g:input_dtype(i), g:input_shape(i): of the i-th input, with stand-ins */
static const sc_value *nth_input(lua_State *L) {
  sc_graph *g = sc__check_graph(L, 1);
  lua_Integer i = luaL_checkinteger(L, 2);
  luaL_argcheck(L, i >= 1 && (size_t)i <= g->n_inputs, 2, "there is no such input");
  return &g->value[g->input[i - 1]];
}
static int graph_input_dtype(lua_State *L) { lua_pushstring(L, sc_dtype_name((sc_dtype)nth_input(L)->dtype)); return 1; }
static int graph_input_shape(lua_State *L) {
  const sc_value *v = nth_input(L);
  lua_createtable(L, v->ndim, 0);
  for (int i = 0; i < v->ndim; i++) { lua_pushinteger(L, v->dim[i]); lua_rawseti(L, -2, i + 1); }
  return 1;
}

/* g:captures() -> list of tensors */
static int graph_captures(lua_State *L) {
  binding *b = sc__binding(L);
  sc_graph *g = sc__check_graph(L, 1);
  lua_newtable(L);
  lua_Integer n = 0;
  for (size_t v = 0; v < g->n_values; v++) {
    if (!g->value[v].captured || g->value[v].captured->flags & SC_T_WRAPPED) continue;
    sc__push_tensor(L, b, sc_tensor_retain(g->value[v].captured));
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

/* ---- all of it, for writers of files ---- */

static void push_attr(lua_State *L, const sc_attr *a) {
  switch (a->kind) {
    case SC_ATTR_INT: lua_pushinteger(L, a->i); break;
    case SC_ATTR_FLOAT: lua_pushnumber(L, a->f); break;
    case SC_ATTR_BOOL: lua_pushboolean(L, a->i != 0); break;
    case SC_ATTR_STRING: lua_pushstring(L, a->s); break;
    case SC_ATTR_DTYPE: lua_pushstring(L, sc_dtype_name((sc_dtype)a->i)); break;
    case SC_ATTR_INTS:
    case SC_ATTR_FLOATS:
      lua_createtable(L, a->n, 0);
      for (int i = 0; i < a->n; i++) {
        if (a->kind == SC_ATTR_INTS) lua_pushinteger(L, a->v[i]); else lua_pushnumber(L, ((const double *)a->v)[i]);
        lua_rawseti(L, -2, i + 1);
      }
      break;
    default: lua_pushnil(L);
  }
}

static void push_sizes(lua_State *L, const int64_t *v, int n) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) { lua_pushinteger(L, v[i]); lua_rawseti(L, -2, i + 1); }
}

/* { kind =, dtype =, shape =, stride =, root =, offset = bytes, node =, name =, tensor =, number = } */
static void push_value(lua_State *L, binding *b, const sc_value *v) {
  static const char *const KINDS[] = {"input", "capture", "result"};
  lua_createtable(L, 0, 10);
  lua_pushstring(L, KINDS[v->kind]); lua_setfield(L, -2, "kind");
  lua_pushstring(L, sc_dtype_name((sc_dtype)v->dtype)); lua_setfield(L, -2, "dtype");
  push_sizes(L, v->dim, v->ndim); lua_setfield(L, -2, "shape");
  push_sizes(L, v->dim + v->ndim, v->ndim); lua_setfield(L, -2, "stride");
  lua_pushinteger(L, v->root + 1); lua_setfield(L, -2, "root");
  lua_pushinteger(L, v->offset); lua_setfield(L, -2, "offset");
  lua_pushinteger(L, v->node + 1); lua_setfield(L, -2, "node");
  if (v->name) { lua_pushstring(L, v->name); lua_setfield(L, -2, "name"); }
  if (!v->captured) return;
  sc__push_tensor(L, b, sc_tensor_retain(v->captured));
  lua_setfield(L, -2, "tensor");
  if (!(v->captured->flags & SC_T_WRAPPED)) return;
  sc__push_scalar(L, (sc_dtype)v->dtype, v->captured->data);
  lua_setfield(L, -2, "number");
}

/* { kind =, graphs =, id =, carry =, x =, dy =, rounds =, reverse =, keep =, replay =, random = } of a control node, in its table */
static void push_program(lua_State *L, const sc_graph_node *n) {
  static const char *const KINDS[] = {"cond", "while", "scan", "while_backward"};
  const sc_control *c = NULL;
  for (int i = 0; i < n->op->n_attr; i++) if (n->attr[i].kind == SC_ATTR_GRAPH) c = n->attr[i].p;
  if (!c) return;
  const struct { const char *name; int64_t n; } NUMBERS[] = {{"carry", c->n_carry}, {"x", c->n_x}, {"dy", c->n_dy}, {"rounds", c->rounds}, {"id", (intptr_t)c}};
  const struct { const char *name; bool on; } FLAGS[] = {{"reverse", c->reverse}, {"keep", c->keep}, {"replay", c->replay}, {"random", c->random}};
  lua_createtable(L, 0, 12);
  lua_pushstring(L, KINDS[c->kind]); lua_setfield(L, -2, "kind");
  for (int i = 0; i < SC_COUNT(NUMBERS); i++) { lua_pushinteger(L, NUMBERS[i].n); lua_setfield(L, -2, NUMBERS[i].name); }
  for (int i = 0; i < SC_COUNT(FLAGS); i++) { lua_pushboolean(L, FLAGS[i].on); lua_setfield(L, -2, FLAGS[i].name); }
  lua_createtable(L, c->n_graphs, 0);
  for (int i = 0; i < c->n_graphs; i++) { new_box(L)->g = sc__graph_retain(c->graph[i]); lua_rawseti(L, -2, i + 1); }
  lua_setfield(L, -2, "graphs");
  lua_setfield(L, -2, "program");
}

/* The parameter that operand i belongs to. */
static const sc_param *operand_param(const sc_graph_node *n, int i) {
  return &n->op->param[n->op->in_param[i < n->op->n_in ? i : n->op->n_in - 1]];
}

/* g:whole() -> { values =, nodes =, inputs =, outputs = }: attributes by name with dims and indices from 0, values by number */
static int graph_whole(lua_State *L) {
  binding *b = sc__binding(L);
  sc__set_now(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  lua_createtable(L, 0, 4);
  lua_createtable(L, (int)g->n_values, 0);
  for (size_t v = 0; v < g->n_values; v++) { push_value(L, b, &g->value[v]); lua_rawseti(L, -2, (lua_Integer)v + 1); }
  lua_setfield(L, -2, "values");
  lua_createtable(L, (int)g->n_nodes, 0);
  for (size_t k = 0; k < g->n_nodes; k++) {
    const sc_graph_node *n = &g->node[k];
    lua_createtable(L, 0, 10);
    lua_pushstring(L, n->op->name); lua_setfield(L, -2, "op");
    lua_pushboolean(L, n->inplace); lua_setfield(L, -2, "inplace");
    lua_pushinteger(L, n->base); lua_setfield(L, -2, "base");
    if (n->where.line) { lua_pushfstring(L, "%s:%d", n->where.file, n->where.line); lua_setfield(L, -2, "where"); }
    lua_createtable(L, n->n_in, 0);
    for (int i = 0; i < n->n_in; i++) { lua_pushinteger(L, n->in[i] + 1); lua_rawseti(L, -2, i + 1); }
    lua_setfield(L, -2, "ins");
    lua_createtable(L, n->n_in, 0);
    for (int i = 0; i < n->n_in; i++) { lua_pushstring(L, operand_param(n, i)->name); lua_rawseti(L, -2, i + 1); }
    lua_setfield(L, -2, "params");
    lua_pushinteger(L, n->op->def->writes | (uint32_t)n->inplace); lua_setfield(L, -2, "writes");
    push_program(L, n);
    lua_createtable(L, n->n_out, 0);
    for (int i = 0; i < n->n_out; i++) { lua_pushinteger(L, n->out[i] + 1); lua_rawseti(L, -2, i + 1); }
    lua_setfield(L, -2, "outs");
    lua_createtable(L, 0, n->op->n_attr);
    for (int i = 0; i < n->op->n_attr; i++) { push_attr(L, &n->attr[i]); lua_setfield(L, -2, n->op->param[n->op->attr_param[i]].name); }
    lua_setfield(L, -2, "attr");
    if (n->op->inplace && !(n->op->flags & SC_OP_INPLACE_ONLY)) { lua_pushlstring(L, n->op->name, strlen(n->op->name) - 1); lua_setfield(L, -2, "plain"); }
    lua_rawseti(L, -2, (lua_Integer)k + 1);
  }
  lua_setfield(L, -2, "nodes");
  lua_createtable(L, (int)g->n_inputs, 0);
  for (size_t i = 0; i < g->n_inputs; i++) { lua_pushinteger(L, g->input[i] + 1); lua_rawseti(L, -2, (lua_Integer)i + 1); }
  lua_setfield(L, -2, "inputs");
  lua_createtable(L, (int)g->n_outputs, 0);
  for (size_t i = 0; i < g->n_outputs; i++) {
    lua_createtable(L, 0, 2);
    lua_pushstring(L, g->output[i].name); lua_setfield(L, -2, "name");
    lua_pushinteger(L, g->output[i].value + 1); lua_setfield(L, -2, "value");
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_setfield(L, -2, "outputs");
  return 1;
}

/* core.size_term(v, n) -> symbol, quotient, rest: v = quotient * symbol + rest; nothing when v is a plain number */
static int size_term(lua_State *L) {
  int symbol;
  int64_t q, r;
  if (!sc__size_term((int)luaL_checkinteger(L, 2), luaL_checkinteger(L, 1), &symbol, &q, &r)) return 0;
  lua_pushinteger(L, symbol + 1);
  lua_pushinteger(L, q);
  lua_pushinteger(L, r);
  return 3;
}

/* ---- tracing ---- */

/* g:trace_begin(most nodes or nil) -> g, for `local _ <close> =`: whatever happens, recording is over when the block is. */
static int trace_begin(lua_State *L) {
  binding *b = sc__binding(L);
  sc__set_now(L, b);
  sc__check_graph(L, 1)->most_nodes = (size_t)luaL_optinteger(L, 2, 0);
  sc__check(L, b, sc__trace_begin(sc__check_graph(L, 1)));
  lua_settop(L, 1);
  return 1;
}

static int changes(lua_State *L) {
  binding *b = sc__binding(L);
  sc_graph *g = sc__check_graph(L, 1);
  lua_createtable(L, (int)g->n_changes, 0);
  lua_createtable(L, (int)g->n_changes, 0);
  for (size_t i = 0; i < g->n_changes; i++) {
    sc_tensor *leaf = g->change[i].leaf, *now = sc_grad_of(leaf);
    sc__push_tensor(L, b, sc_tensor_retain(leaf));
    lua_rawseti(L, -3, (lua_Integer)i + 1);
    if (now) sc__push_tensor(L, b, sc_tensor_retain(now)); else lua_pushboolean(L, 0);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 2;
}

/* g:accumulates(leaf): the gradient that the leaf had before the trace is part of what it has after it */
static int accumulates(lua_State *L) {
  const sc_graph *g = sc__check_graph(L, 1);
  const sc_tensor *leaf = sc__check_tensor(L, sc__binding(L), 2, "accumulates");
  bool yes = false;
  for (size_t i = 0; i < g->n_grad_read && !yes; i++) yes = g->grad_read[i].leaf == leaf && g->grad_read[i].before;
  lua_pushboolean(L, yes);
  return 1;
}

/* g:trace_end() -> list of leaves, list of the gradients the trace left in them (false: none) */
static int trace_end(lua_State *L) {
  binding *b = sc__binding(L);
  sc_graph *g = sc__check_graph(L, 1);
  if (b->ctx->tracing == g) b->ctx->tracing = NULL;
  lua_pushcfunction(L, changes);                         /* it may raise; the trace ends all the same */
  lua_pushvalue(L, 1);
  int status = lua_pcall(L, 1, 2, 0);
  sc__trace_end(g);
  return status == LUA_OK ? 2 : lua_error(L);
}

/* __close: ends what is still being recorded into this graph, a trace or a branch or body. */
static int graph_close(lua_State *L) {
  sc_graph *g = sc__check_graph(L, 1);
  if (g->part) sc__part_drop(g); else sc__trace_end(g);
  return 0;
}

/* g:trace(fn) -> list of leaves, list of the gradients the trace left in them (false: none). Every op that fn calls goes into g.
** Whatever happens, recording is over afterwards and the leaves have the gradients they had; fn cannot yield. */
static int trace(lua_State *L) {
  binding *b = sc__binding(L);
  sc__set_now(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  lua_settop(L, 2);
  lua_pushcfunction(L, changes);
  lua_pushvalue(L, 1);
  lua_pushvalue(L, 2);
  sc__check(L, b, sc__trace_begin(g));
  int status = lua_pcall(L, 0, 0, 0);
  if (b->ctx->tracing == g) b->ctx->tracing = NULL;
  if (status == LUA_OK) status = lua_pcall(L, 1, 2, 0);
  sc__trace_end(g);
  return status == LUA_OK ? 2 : lua_error(L);
}

static void note_made(lua_State *L, const binding *b, const sc_graph *g, int32_t v) {
  const sc_value *root = &g->value[g->value[v].root];
  if (root->kind != SC_VALUE_CAPTURE || !root->captured->storage || root->captured->storage->made <= b->constants_before) return;
  lua_pushboolean(L, true);
  lua_rawseti(L, -2, root->captured->storage->made - b->constants_before);
}

/* g:loose() -> { number = true } of the tensors made of tables in this trace that are written to or are results */
static int graph_loose(lua_State *L) {
  binding *b = sc__binding(L);
  const sc_graph *g = sc__check_graph(L, 1);
  lua_newtable(L);
  for (size_t m = 0; m < g->n_nodes; m++)
    for (int i = 0; i < g->node[m].n_in; i++)
      if (g->node[m].in[i] >= 0 && sc__node_writes(&g->node[m], i)) note_made(L, b, g, g->node[m].in[i]);
  for (size_t i = 0; i < g->n_outputs; i++) note_made(L, b, g, g->output[i].value);
  return 1;
}

/* g:mark() -> a place in the recording, for g:split and g:cut */
static int graph_mark(lua_State *L) {
  sc_graph *g = sc__check_graph(L, 1);
  sc_graph_mark *m = lua_newuserdatauv(L, sizeof *m, 0);
  *m = sc__graph_mark(g);
  luaL_setmetatable(L, MARK);
  return 1;
}

static int graph_cut(lua_State *L) {
  sc__graph_cut(sc__check_graph(L, 1), luaL_checkudata(L, 2, MARK));
  return 0;
}

/* g:split(mark) -> the graph of everything recorded since, the number of outputs that g got for it */
static int graph_split(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  int n;
  graph_box *box = new_box(L);
  sc__check(L, b, sc__graph_split(g, luaL_checkudata(L, 2, MARK), &box->g, &n));
  lua_pushinteger(L, n);
  return 2;
}

static int is_tracing(lua_State *L) { lua_pushboolean(L, sc__binding(L)->ctx->tracing != NULL); return 1; }

/* core.module(path or nil) -> what it was: the module whose forward runs, noted on nodes while something is recorded */
static int set_module(lua_State *L) {
  sc_context *ctx = sc__binding(L)->ctx;
  const char *was = ctx->module;
  ctx->module = lua_isnoneornil(L, 1) ? NULL : sc__intern(ctx, luaL_checkstring(L, 1));
  lua_pushstring(L, was);
  return 1;
}

/* core.untraced(fn, …): calls fn with recording suspended: for state that must be real, such as an optimiser's. */
static int untraced(lua_State *L) {
  binding *b = sc__binding(L);
  sc_graph *was = b->ctx->tracing;
  b->ctx->tracing = NULL;
  int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  b->ctx->tracing = was;
  return status == LUA_OK ? lua_gettop(L) : lua_error(L);
}

/* ---- passes ---- */

static unsigned pass_named(lua_State *L, binding *b, const char *name) {
  char list[400] = "";
  for (int i = 0; i < sc__pass_list_count; i++) {
    if (strcmp(sc__pass_list[i].name, name) == 0) return sc__pass_list[i].bit;
    size_t n = strlen(list);
    snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", sc__pass_list[i].name);
  }
  sc__raise_text(L, b, "compile: there is no pass named \"%s\"; there are: %s", name, list);
  return 0;
}

/* Which passes are meant: nil: all; a number; a list of names: only these; { name = false }: all but these. exact: without those that
** may change rounding. */
static unsigned read_passes(lua_State *L, binding *b, int at, bool exact) {
  unsigned mask = SC_PASS_ALL;
  if (lua_isinteger(L, at)) {
    mask = (unsigned)lua_tointeger(L, at);
  } else if (lua_istable(L, at)) {
    if (lua_rawlen(L, at) > 0) mask = SC_PASS_ROUNDING;
    for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) {
      bool listed = lua_isinteger(L, -2);
      if (lua_type(L, listed ? -1 : -2) != LUA_TSTRING) { sc__raise_text(L, b, "compile: option passes: expected names of passes"); return 0; }
      unsigned bit = pass_named(L, b, lua_tostring(L, listed ? -1 : -2));
      if (listed || lua_toboolean(L, -1)) mask |= bit; else mask &= ~bit;
    }
  } else if (!lua_isnoneornil(L, at)) {
    sc__raise_text(L, b, "compile: option passes: expected a number or a table of names, got %s", sc__got(L, b, at));
  }
  return exact ? mask & ~SC_PASS_ROUNDING : mask;
}

/* core.passes() -> list of { name =, bit = } in the order in which they run */
static int pass_list(lua_State *L) {
  lua_createtable(L, sc__pass_list_count, 0);
  for (int i = 0; i < sc__pass_list_count; i++) {
    lua_createtable(L, 0, 2);
    lua_pushstring(L, sc__pass_list[i].name); lua_setfield(L, -2, "name");
    lua_pushinteger(L, sc__pass_list[i].bit); lua_setfield(L, -2, "bit");
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* core.pass_mask(passes, exact) -> number */
static int pass_mask(lua_State *L) {
  lua_pushinteger(L, read_passes(L, sc__binding(L), 1, lua_toboolean(L, 2)));
  return 1;
}

/* core.check_graphs(on): whether graphs are verified after every pass */
static int check_graphs(lua_State *L) { sc__binding(L)->ctx->check_graphs = lua_toboolean(L, 1); return 0; }

/* core.branches_from(ns): what branches have to save to run beside each other; 0: as measured */
static int branches_from(lua_State *L) { sc__binding(L)->ctx->branches_from = luaL_checknumber(L, 1); return 0; }

/* g:rewritten(passes, exact) -> the graph as rewrites leave it */
static int graph_rewritten(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  unsigned passes = read_passes(L, b, 2, lua_toboolean(L, 3));
  graph_box *box = new_box(L);
  sc__check(L, b, sc__graph_rewrite(g, passes, &box->g));
  return 1;
}

/* g:check(): raises when the graph is broken */
static int graph_check(lua_State *L) {
  binding *b = sc__binding(L);
  sc__check(L, b, sc__graph_check(sc__check_graph(L, 1)));
  return 0;
}

/* ---- plans ---- */

/* g:plan(passes, exact) */
static int graph_plan(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  unsigned passes = read_passes(L, b, 2, lua_toboolean(L, 3));
  plan_box *box = lua_newuserdatauv(L, sizeof *box, 1);
  *box = (plan_box){NULL, (int)g->n_inputs, (int)g->n_outputs};
  luaL_setmetatable(L, PLAN);
  sc__check(L, b, sc__plan_new(g, passes, &box->p));
  return 1;
}

/* core.stand_in(k) -> the number that stands for the k-th symbolic size */
static int stand_in(lua_State *L) {
  lua_Integer k = luaL_checkinteger(L, 1);
  if (k < 1 || k > SC_SYMBOLS) return sc__raise_text(L, sc__binding(L), "graph: at most %d symbolic sizes", SC_SYMBOLS);
  lua_pushinteger(L, sc__stand_in((int)k - 1));
  return 1;
}

/* g:instantiate{size, …} -> the graph for these actual sizes */
static int graph_instantiate(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  sc_sizes z = {.n = (int)lua_rawlen(L, 2)};
  if (z.n > SC_SYMBOLS) return sc__raise_text(L, b, "graph: at most %d symbolic sizes", SC_SYMBOLS);
  for (int i = 0; i < z.n; i++) {
    lua_rawgeti(L, 2, i + 1);
    z.actual[i] = luaL_checkinteger(L, -1);
    lua_pop(L, 1);
  }
  graph_box *box = new_box(L);
  sc__check(L, b, sc__graph_instantiate(g, &z, &box->g));
  return 1;
}

/* core.same_graph(g, other) */
static int same_graph(lua_State *L) {
  binding *b = sc__binding(L);
  bool same;
  sc__check(L, b, sc__graph_same(sc__check_graph(L, 1), sc__check_graph(L, 2), &same));
  lua_pushboolean(L, same);
  return 1;
}

/* The value that a handle, or the name of an output, stands for in g. */
static int32_t value_named(lua_State *L, binding *b, sc_graph *g, int at) {
  if (lua_type(L, at) == LUA_TSTRING) {
    for (size_t i = 0; i < g->n_outputs; i++) if (strcmp(g->output[i].name, lua_tostring(L, at)) == 0) return g->output[i].value;
    sc__raise_text(L, b, "session: the graph has no output named \"%s\"", lua_tostring(L, at));
  }
  sc_tensor *t = sc__test_tensor(L, b, at);
  if (!t || t->graph != g) sc__raise_text(L, b, "session: expected a tensor of this graph or the name of an output");
  return t->value;
}

/* core.value_of(g, tensor or name) -> its number */
static int value_of(lua_State *L) {
  lua_pushinteger(L, value_named(L, sc__binding(L), sc__check_graph(L, 1), 2) + 1);
  return 1;
}

static int values_listed(lua_State *L, binding *b, sc_graph *g, int at, int32_t *out, int most) {
  luaL_checktype(L, at, LUA_TTABLE);
  int n = (int)lua_rawlen(L, at);
  if (n > most) return sc__raise_text(L, b, "session: at most %d fetches or feeds", most);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, at, i + 1);
    out[i] = value_named(L, b, g, lua_gettop(L));
    lua_pop(L, 1);
  }
  return n;
}

/* g:fetching({tensor or name, …}, {value fed, …}, updates) -> the graph that computes these: see csrc/graph/fetch.c */
static int graph_fetching(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_graph *g = sc__check_graph(L, 1);
  int32_t fetch[64], feed[64];
  lua_settop(L, 4);
  int n = values_listed(L, b, g, 2, fetch, 64), n_feed = values_listed(L, b, g, 3, feed, 64);
  graph_box *box = new_box(L);
  sc__check(L, b, sc__graph_fetch(g, fetch, n, feed, n_feed, lua_toboolean(L, 4), &box->g));
  return 1;
}

/* g:hide(n): leaves the last n outputs out of what is saved and told, until g:hide(0). For what a recording hands to its gradients. */
static int graph_hide(lua_State *L) {
  binding *b = sc__binding(L);
  sc_graph *g = sc__check_graph(L, 1);
  lua_Integer n = luaL_checkinteger(L, 2);
  g->n_outputs += g->n_hidden;
  g->n_hidden = 0;
  if (n < 0 || (size_t)n > g->n_outputs) return sc__raise_text(L, b, "hide: the graph has fewer outputs");
  g->n_hidden = (size_t)n;
  g->n_outputs -= (size_t)n;
  return 0;
}

/* g:seal(): from now on ops on its tensors are refused */
static int graph_seal(lua_State *L) {
  sc__check_graph(L, 1)->sealed = true;
  return 0;
}

static int plan_gc(lua_State *L) {
  plan_box *box = lua_touserdata(L, 1);
  sc__plan_release(box->p);
  box->p = NULL;
  return 0;
}

/* plan(tensor, …) -> tensor, … */
static int plan_call(lua_State *L) {
  plan_box *box = luaL_checkudata(L, 1, PLAN);
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_tensor *few[32], **in = few, **out;
  int total = box->n_in + box->n_out;
  if (total > 32) in = lua_newuserdatauv(L, (size_t)total * sizeof *in, 0);
  out = in + box->n_in;
  for (int i = 0; i < box->n_in; i++) in[i] = sc__check_tensor(L, b, i + 2, "graph");
  int first = lua_gettop(L) + 1;
  sc__new_boxes(L, b, box->n_out, "graph");
  sc_status s = sc__plan_run(box->p, in, out);
  if (s == SC_ENOMEM) { lua_gc(L, LUA_GCCOLLECT); s = sc__plan_run(box->p, in, out); }
  sc__check(L, b, s);
  sc__fill_boxes(L, b, first, out, box->n_out);
  return box->n_out;
}

/* ---- runs in slices ---- */

/* plan:start(tensor, …) -> what `finish` will fill: a list of results, made before anything runs, so that after the updates nothing asks
** Lua for memory */
static int plan_start(lua_State *L) {
  plan_box *box = luaL_checkudata(L, 1, PLAN);
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_tensor **in = lua_newuserdatauv(L, (size_t)(box->n_in + 1) * sizeof *in, 0);
  for (int i = 0; i < box->n_in; i++) in[i] = sc__check_tensor(L, b, i + 2, "graph");
  lua_createtable(L, box->n_out, 2);
  int list = lua_gettop(L);
  lua_newuserdatauv(L, (size_t)(box->n_out + 1) * sizeof(sc_tensor *), 0);
  lua_setfield(L, list, "room");
  lua_pushinteger(L, box->n_out);
  lua_setfield(L, list, "n");
  for (int i = 0; i < box->n_out; i++) { sc__new_boxes(L, b, 1, "graph"); lua_rawseti(L, list, i + 1); }
  sc__check(L, b, sc__plan_start(box->p, in));
  return 1;
}

/* plan:advance(microseconds, check for NaN) -> done */
static int plan_advance(lua_State *L) {
  plan_box *box = luaL_checkudata(L, 1, PLAN);
  binding *b = sc__binding(L);
  sc__enter(L, b);
  lua_Number us = luaL_checknumber(L, 2);
  bool done;
  sc__check(L, b, sc__plan_advance(box->p, us < 9e12 ? (int64_t)(us >= 0 ? us * 1000 : -1) : INT64_MAX / 2, lua_toboolean(L, 3), &done));
  lua_pushboolean(L, done);
  return 1;
}

/* plan:finish(results) -> results */
static int plan_finish(lua_State *L) {
  plan_box *box = luaL_checkudata(L, 1, PLAN);
  binding *b = sc__binding(L);
  sc__enter(L, b);
  lua_getfield(L, 2, "room");
  sc_tensor **out = lua_touserdata(L, -1);
  if (!out || lua_rawlen(L, -1) != (size_t)(box->n_out + 1) * sizeof *out) return luaL_argerror(L, 2, "not what start gave");
  sc__check(L, b, sc__plan_finish(box->p, out));
  for (int k = 0; k < 2; k++)                          /* all safe, then the rest */
    for (int i = 0; i < box->n_out; i++) {
      lua_rawgeti(L, 2, i + 1);
      if (!k) ((tensor_box *)lua_touserdata(L, -1))->t = out[i];
      else if (out[i]) sc__fill_box(L, b, -1, out[i]);
      lua_pop(L, 1);
    }
  lua_pushvalue(L, 2);
  return 1;
}

static int plan_at(lua_State *L) {
  lua_pushinteger(L, sc__plan_at(((plan_box *)luaL_checkudata(L, 1, PLAN))->p) + 1);
  return 1;
}

/* plan:peek(step, of results) -> list of copies of its operands or results; false where there is none */
static int plan_peek(lua_State *L) {
  plan_box *box = luaL_checkudata(L, 1, PLAN);
  binding *b = sc__binding(L);
  sc__enter(L, b);
  int i = (int)luaL_checkinteger(L, 2) - 1;
  bool out = lua_toboolean(L, 3);
  lua_newtable(L);
  if (i < 0 || i >= sc__plan_steps(box->p)) return 1;
  for (int k = 0; k < sc__plan_count(box->p, i, out); k++) {
    sc_tensor *t = sc__plan_peek(box->p, i, out, k), *copy = NULL;
    if (t && t->storage) {
      sc__check(L, b, sc_tensor_new(b->ctx, (sc_dtype)t->dtype, t->ndim, t->dim, &copy));
      sc_status s = sc__tensor_copy(copy, t);
      if (s != SC_OK) sc_tensor_release(copy);
      sc__check(L, b, s);
      sc__push_tensor(L, b, copy);
    } else {
      lua_pushboolean(L, 0);
    }
    lua_rawseti(L, -2, k + 1);
  }
  return 1;
}

static int plan_cancel(lua_State *L) { sc__plan_cancel(((plan_box *)luaL_checkudata(L, 1, PLAN))->p); return 0; }

/* plan:steps() -> list of { node = of the recorded graph, inside = true when it only leads to that node's results, ns = of the latest run in slices, bytes = of its results } */
static int plan_steps(lua_State *L) {
  plan_box *box = luaL_checkudata(L, 1, PLAN);
  lua_newtable(L);
  for (int i = 0; i < sc__plan_steps(box->p); i++) {
    int32_t node;
    bool inside;
    int64_t ns, bytes;
    sc__plan_step_info(box->p, i, &node, &inside, &ns, &bytes);
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, node + 1); lua_setfield(L, -2, "node");
    if (inside) { lua_pushboolean(L, 1); lua_setfield(L, -2, "inside"); }
    lua_pushinteger(L, (lua_Integer)ns); lua_setfield(L, -2, "ns");
    lua_pushinteger(L, (lua_Integer)sc__plan_longest(box->p, i)); lua_setfield(L, -2, "longest");
    lua_pushinteger(L, (lua_Integer)bytes); lua_setfield(L, -2, "bytes");
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

static int plan_stats(lua_State *L) {
  plan_box *box = luaL_checkudata(L, 1, PLAN);
  lua_createtable(L, 0, 2);
  lua_pushinteger(L, (lua_Integer)sc__plan_bytes(box->p)); lua_setfield(L, -2, "bytes");
  lua_pushinteger(L, sc__plan_steps(box->p)); lua_setfield(L, -2, "steps");
  lua_pushinteger(L, sc__plan_nodes(box->p)); lua_setfield(L, -2, "nodes");
  lua_pushinteger(L, sc__plan_branches(box->p)); lua_setfield(L, -2, "branches");
  lua_pushinteger(L, sc__plan_inner_steps(box->p)); lua_setfield(L, -2, "inner");
  return 1;
}

static int graph_size(lua_State *L);
static const luaL_Reg GRAPH_METHODS[] = {{"size", graph_size}, {"input_dtype", graph_input_dtype}, {"input_shape", graph_input_shape}, {"input", graph_input}, {"output", graph_output}, {"run", graph_run}, {"names", graph_names},
  {"nodes", graph_nodes}, {"captures", graph_captures}, {"trace", trace}, {"trace_begin", trace_begin}, {"trace_end", trace_end}, {"plan", graph_plan},
  {"instantiate", graph_instantiate}, {"rewritten", graph_rewritten}, {"check", graph_check}, {"whole", graph_whole}, {"fetching", graph_fetching}, {"hide", graph_hide}, {"seal", graph_seal},
  {"accumulates", accumulates}, {"loose", graph_loose}, {"mark", graph_mark}, {"split", graph_split}, {"cut", graph_cut}, {NULL, NULL}};
static int graph_size(lua_State *L) { lua_pushinteger(L, (lua_Integer)sc__check_graph(L, 1)->n_nodes); return 1; }
static int plan_valid(lua_State *L) { lua_pushboolean(L, sc__plan_valid(((plan_box *)luaL_checkudata(L, 1, PLAN))->p)); return 1; }

static const luaL_Reg PLAN_METHODS[] = {{"valid", plan_valid}, {"start", plan_start}, {"advance", plan_advance}, {"finish", plan_finish},
  {"cancel", plan_cancel}, {"at", plan_at}, {"peek", plan_peek}, {"steps", plan_steps}, {"stats", plan_stats}, {NULL, NULL}};

static void metatable(lua_State *L, const char *name, const luaL_Reg *methods, lua_CFunction gc, lua_CFunction call) {
  luaL_newmetatable(L, name);
  lua_newtable(L);
  luaL_setfuncs(L, methods, 0);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, gc);
  lua_setfield(L, -2, "__gc");
  if (call) { lua_pushcfunction(L, call); lua_setfield(L, -2, "__call"); }
  lua_pop(L, 1);
}

void sc__open_graph(lua_State *L, binding *b) {
  (void)b;
  metatable(L, GRAPH, GRAPH_METHODS, graph_gc, NULL);
  luaL_getmetatable(L, GRAPH);
  lua_pushcfunction(L, graph_close);
  lua_setfield(L, -2, "__close");
  lua_pop(L, 1);
  luaL_newmetatable(L, MARK);
  lua_pop(L, 1);
  metatable(L, PLAN, PLAN_METHODS, plan_gc, plan_call);
  const luaL_Reg FUNCTIONS[] = {{"graph", graph_new}, {"is_tracing", is_tracing}, {"passes", pass_list}, {"pass_mask", pass_mask}, {"check_graphs", check_graphs}, {"branches_from", branches_from},
     {"untraced", untraced}, {"stand_in", stand_in}, {"size_term", size_term}, {"value_of", value_of}, {"same_graph", same_graph}, {"module", set_module}, {NULL, NULL}};
  luaL_setfuncs(L, FUNCTIONS, 0);
  luaL_getmetatable(L, GRAPH);                           /* for methods written in Lua */
  lua_getfield(L, -1, "__index");
  lua_setfield(L, -3, "graph_methods");
  lua_pop(L, 1);
}
