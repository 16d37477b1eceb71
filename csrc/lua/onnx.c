/* ONNX models as Lua tables. A table of fields drives the reader: each message becomes a table with the fields that are there under
** their names in onnx.proto, tensors become tensors, what is not listed is skipped. Nesting is bounded. Writing the other way is
** done in lua/sconce/onnx/; here only its pieces go to the file. */
#include "binding.h"

#include <stdio.h>
#include <string.h>

#include "../formats/model.h"

enum { MOST_NESTED = 128 };

typedef enum kind { K_INT, K_FLOAT, K_BYTES, K_INTS, K_FLOATS, K_MESSAGE, K_TENSOR } kind;
typedef enum message { M_MODEL, M_OPSET, M_GRAPH, M_NODE, M_ATTRIBUTE, M_SPARSE, M_VALUE, M_TYPE, M_TENSOR_TYPE, M_SHAPE, M_DIM, M_FUNCTION, M_ELEMENT } message;

typedef struct field { uint8_t of, number, kind, repeated, inner; const char *name; } field;
static const field FIELDS[] = {
  {M_MODEL, 1, K_INT, 0, 0, "ir_version"}, {M_MODEL, 7, K_MESSAGE, 0, M_GRAPH, "graph"}, {M_MODEL, 8, K_MESSAGE, 1, M_OPSET, "opset_import"},
  {M_MODEL, 2, K_BYTES, 0, 0, "producer_name"}, {M_MODEL, 25, K_MESSAGE, 1, M_FUNCTION, "functions"},
  {M_OPSET, 1, K_BYTES, 0, 0, "domain"}, {M_OPSET, 2, K_INT, 0, 0, "version"},
  {M_GRAPH, 1, K_MESSAGE, 1, M_NODE, "node"}, {M_GRAPH, 2, K_BYTES, 0, 0, "name"}, {M_GRAPH, 5, K_TENSOR, 1, 0, "initializer"},
  {M_GRAPH, 11, K_MESSAGE, 1, M_VALUE, "input"}, {M_GRAPH, 12, K_MESSAGE, 1, M_VALUE, "output"}, {M_GRAPH, 15, K_MESSAGE, 1, M_SPARSE, "sparse_initializer"},
  {M_NODE, 1, K_BYTES, 1, 0, "input"}, {M_NODE, 2, K_BYTES, 1, 0, "output"}, {M_NODE, 3, K_BYTES, 0, 0, "name"}, {M_NODE, 4, K_BYTES, 0, 0, "op_type"},
  {M_NODE, 5, K_MESSAGE, 1, M_ATTRIBUTE, "attribute"}, {M_NODE, 7, K_BYTES, 0, 0, "domain"}, {M_NODE, 8, K_BYTES, 0, 0, "overload"},
  {M_ATTRIBUTE, 1, K_BYTES, 0, 0, "name"}, {M_ATTRIBUTE, 20, K_INT, 0, 0, "type"}, {M_ATTRIBUTE, 2, K_FLOAT, 0, 0, "f"}, {M_ATTRIBUTE, 3, K_INT, 0, 0, "i"},
  {M_ATTRIBUTE, 4, K_BYTES, 0, 0, "s"}, {M_ATTRIBUTE, 5, K_TENSOR, 0, 0, "t"}, {M_ATTRIBUTE, 6, K_MESSAGE, 0, M_GRAPH, "g"},
  {M_ATTRIBUTE, 7, K_FLOATS, 1, 0, "floats"}, {M_ATTRIBUTE, 8, K_INTS, 1, 0, "ints"}, {M_ATTRIBUTE, 9, K_BYTES, 1, 0, "strings"},
  {M_ATTRIBUTE, 10, K_TENSOR, 1, 0, "tensors"}, {M_ATTRIBUTE, 11, K_MESSAGE, 1, M_GRAPH, "graphs"}, {M_ATTRIBUTE, 21, K_BYTES, 0, 0, "ref_attr_name"},
  {M_ATTRIBUTE, 22, K_MESSAGE, 0, M_SPARSE, "sparse_tensor"},
  {M_SPARSE, 1, K_TENSOR, 0, 0, "values"}, {M_SPARSE, 2, K_TENSOR, 0, 0, "indices"}, {M_SPARSE, 3, K_INTS, 1, 0, "dims"},
  {M_VALUE, 1, K_BYTES, 0, 0, "name"}, {M_VALUE, 2, K_MESSAGE, 0, M_TYPE, "type"},
  {M_TYPE, 1, K_MESSAGE, 0, M_TENSOR_TYPE, "tensor_type"}, {M_TYPE, 4, K_MESSAGE, 0, M_ELEMENT, "sequence_type"}, {M_TYPE, 9, K_MESSAGE, 0, M_ELEMENT, "optional_type"},
  {M_ELEMENT, 1, K_MESSAGE, 0, M_TYPE, "elem_type"},
  {M_TENSOR_TYPE, 1, K_INT, 0, 0, "elem_type"}, {M_TENSOR_TYPE, 2, K_MESSAGE, 0, M_SHAPE, "shape"},
  {M_SHAPE, 1, K_MESSAGE, 1, M_DIM, "dim"}, {M_DIM, 1, K_INT, 0, 0, "dim_value"}, {M_DIM, 2, K_BYTES, 0, 0, "dim_param"},
  {M_FUNCTION, 1, K_BYTES, 0, 0, "name"}, {M_FUNCTION, 4, K_BYTES, 1, 0, "input"}, {M_FUNCTION, 5, K_BYTES, 1, 0, "output"},
  {M_FUNCTION, 6, K_BYTES, 1, 0, "attribute"}, {M_FUNCTION, 7, K_MESSAGE, 1, M_NODE, "node"}, {M_FUNCTION, 9, K_MESSAGE, 1, M_OPSET, "opset_import"},
  {M_FUNCTION, 10, K_BYTES, 0, 0, "domain"}, {M_FUNCTION, 11, K_MESSAGE, 1, M_ATTRIBUTE, "attribute_proto"}, {M_FUNCTION, 13, K_BYTES, 0, 0, "overload"}};

typedef struct reader { lua_State *L; binding *b; const sc_source *s; } reader;

static const field *find(int of, uint32_t number) {
  for (int i = 0; i < SC_COUNT(FIELDS); i++) if (FIELDS[i].of == of && FIELDS[i].number == number) return &FIELDS[i];
  return NULL;
}

static void bad(reader *r, const char *what, const char *name) {
  sc__source_bad(r->s, "%s%s", what, name);
  sc__raise(r->L, r->b);
}

/* Pushes { name =, tensor = }. */
static void push_tensor(reader *r, const uint8_t *data, size_t size) {
  sc_onnx_tensor t;
  lua_createtable(r->L, 0, 2);
  sc__check(r->L, r->b, sc__onnx_tensor_open(r->s, data, size, &t));
  lua_pushlstring(r->L, t.name ? t.name : "", t.name_length);
  lua_setfield(r->L, -2, "name");
  sc__new_box(r->L, r->b);
  sc_tensor *x;
  sc__check(r->L, r->b, sc__onnx_tensor_read(r->s, &t, &x));
  sc__fill_box(r->L, r->b, lua_gettop(r->L), x);
  lua_setfield(r->L, -2, "tensor");
}

static void read_message(reader *r, int of, const uint8_t *data, size_t size, int depth);

/* The list under f's name in the table on top; pushed. */
static void push_list(lua_State *L, const field *f) {
  if (lua_getfield(L, -1, f->name) == LUA_TTABLE) return;
  lua_pop(L, 1);
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, f->name);
}

static void read_numbers(reader *r, const field *f, const sc_pb *p) {
  size_t place = 0;
  uint64_t v;
  int more, wire = f->kind == K_FLOATS ? SC_PB_FIXED32 : SC_PB_VARINT;
  push_list(r->L, f);
  lua_Integer n = (lua_Integer)lua_rawlen(r->L, -1);
  while ((more = sc__pb_value(p, wire, &place, &v)) > 0) {
    union { uint32_t u; float f; } x = {(uint32_t)v};
    if (f->kind == K_FLOATS) lua_pushnumber(r->L, (lua_Number)x.f); else lua_pushinteger(r->L, (lua_Integer)v);
    lua_rawseti(r->L, -2, ++n);
  }
  lua_pop(r->L, 1);
  if (more < 0) bad(r, "malformed list: ", f->name);
}

/* The value of one field onto the stack. */
static void push_value(reader *r, const field *f, const sc_pb *p, int depth) {
  union { uint32_t u; float f; } x = {(uint32_t)p->number};
  int wire = f->kind == K_INT ? SC_PB_VARINT : f->kind == K_FLOAT ? SC_PB_FIXED32 : SC_PB_BYTES;
  if (p->wire != wire) bad(r, "malformed field: ", f->name);
  switch (f->kind) {
    case K_INT: lua_pushinteger(r->L, (lua_Integer)p->number); break;
    case K_FLOAT: lua_pushnumber(r->L, (lua_Number)x.f); break;
    case K_BYTES: lua_pushlstring(r->L, (const char *)p->data, p->size); break;
    case K_TENSOR: push_tensor(r, p->data, p->size); break;
    default:                                             /* a message given twice is merged */
      if (f->repeated || lua_getfield(r->L, -1, f->name) != LUA_TTABLE) {
        if (!f->repeated) lua_pop(r->L, 1);
        lua_newtable(r->L);
      }
      read_message(r, f->inner, p->data, p->size, depth + 1);
  }
}

/* Fills the table on top. */
static void read_message(reader *r, int of, const uint8_t *data, size_t size, int depth) {
  sc_pb p = sc__pb(data, size);
  int more;
  if (depth > MOST_NESTED) bad(r, "messages or subgraphs are nested too deep", "");
  sc__stack(r->L, 8, "onnx");
  while ((more = sc__pb_next(&p)) > 0) {
    const field *f = find(of, p.field);
    if (!f) continue;
    if (f->kind == K_INTS || f->kind == K_FLOATS) { read_numbers(r, f, &p); continue; }
    push_value(r, f, &p, depth);
    if (!f->repeated) { lua_setfield(r->L, -2, f->name); continue; }
    lua_insert(r->L, -2);
    push_list(r->L, f);
    lua_pushvalue(r->L, -3);
    lua_rawseti(r->L, -2, (lua_Integer)lua_rawlen(r->L, -2) + 1);
    lua_pop(r->L, 1);
    lua_remove(r->L, -2);
  }
  if (more < 0) bad(r, "not an ONNX file, or a broken one: a message is malformed", "");
}

static int source_gc(lua_State *L) {
  sc__source_done(lua_touserdata(L, 1));
  return 0;
}

static sc_source *open_source(lua_State *L, binding *b) {
  size_t n;
  const char *path = luaL_checklstring(L, 1, &n);
  if (strlen(path) != n) sc__raise_text(L, b, "load_graph: argument 1 (path): the path holds a zero byte");
  sc_source *s = lua_newuserdatauv(L, sizeof *s, 0);
  *s = (sc_source){.ctx = b->ctx};
  luaL_setmetatable(L, "sconce.source");
  sc__check(L, b, sc__source_open(b->ctx, path, s));
  return s;
}

/* core.onnx_model(path) -> the ModelProto as a table */
static int onnx_model(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_source *s = open_source(L, b);
  lua_newtable(L);
  read_message(&(reader){L, b, s}, M_MODEL, s->data, s->size, 0);
  sc__source_done(s);
  return 1;
}

/* core.onnx_graph(path) -> the graph as it was saved, whether there is training information; or nil and why the file's nodes count instead */
static int onnx_graph(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_source *s = open_source(L, b);
  sc_model m;
  const char *why;
  sc_graph **out = sc__new_graph(L);
  sc__check(L, b, sc__model_open(s, &m));
  sc__check(L, b, sc__model_graph(&m, out, &why));
  sc__source_done(s);
  if (why) { lua_pushnil(L); lua_pushstring(L, why); } else lua_pushboolean(L, m.training != NULL);
  return 2;
}

/* core.onnx_check(graph, training information or nil, text) -> the check number of a model, as text */
static int onnx_check(lua_State *L) {
  size_t g, t = 0, n;
  const char *graph = luaL_checklstring(L, 1, &g), *training = luaL_optlstring(L, 2, NULL, &t), *text = luaL_checklstring(L, 3, &n);
  char out[24];
  snprintf(out, sizeof out, "%016llx", (unsigned long long)sc__model_check((const uint8_t *)graph, g, (const uint8_t *)training, t, (const uint8_t *)text, n));
  lua_pushstring(L, out);
  return 1;
}

/* core.onnx_tensor(path) -> the tensor of a file that holds one TensorProto, its name */
static int onnx_tensor(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  sc_source *s = open_source(L, b);
  push_tensor(&(reader){L, b, s}, s->data, s->size);
  sc__source_done(s);
  lua_getfield(L, -1, "tensor");
  lua_getfield(L, -2, "name");
  return 2;
}

static sc_status write_pieces(lua_State *L, sc_sink *sink) {
  sc_status r = SC_OK;
  for (lua_Integer i = 1, n = (lua_Integer)lua_rawlen(L, 2); i <= n && r == SC_OK; i++) {
    lua_rawgeti(L, 2, i);
    if (lua_type(L, -1) == LUA_TSTRING) {
      size_t length;
      const char *text = lua_tolstring(L, -1, &length);
      r = sc__sink_write(sink, text, length);
    } else {
      sc_tensor *t = ((tensor_box *)lua_touserdata(L, -1))->t, *packed;
      r = sc__tensor_packed(t, &packed);
      if (r == SC_OK) r = sc__sink_write(sink, packed->data, (size_t)packed->numel * sc_dtype_size((sc_dtype)packed->dtype));
      if (r == SC_OK) sc_tensor_release(packed);
    }
    lua_pop(L, 1);
  }
  return r;
}

/* core.onnx_write(path, {string or tensor, …}): all of it into one file, in its place when everything is written */
static int onnx_write(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  const char *path = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  for (lua_Integer i = 1, n = (lua_Integer)lua_rawlen(L, 2); i <= n; i++) {       /* before anything is held */
    if (lua_rawgeti(L, 2, i) != LUA_TSTRING) {
      sc_tensor *t = sc__check_tensor(L, b, lua_gettop(L), "save");
      if (sc__is_symbolic(t)) return sc__raise_text(L, b, "save: expected a tensor that holds data");
    }
    lua_pop(L, 1);
  }
  sc__stack(L, 4, "save");
  sc_sink sink;
  sc__check(L, b, sc__sink_open(b->ctx, path, &sink));
  sc__check(L, b, sc__sink_close(&sink, write_pieces(L, &sink)));
  return 0;
}

/* core.onnx_code(dtype) -> ONNX's number for it; core.onnx_dtype(number) -> name or nil */
static int onnx_code(lua_State *L) {
  sc_dtype d;
  if (!sc__read_dtype(L, 1, &d)) return sc__raise_text(L, sc__binding(L), "onnx_code: expected a dtype");
  lua_pushinteger(L, sc__onnx_code(d));
  return 1;
}
/* core.is_stored(dtype): whether nothing is computed in it */
static int is_stored(lua_State *L) {
  sc_dtype d;
  lua_pushboolean(L, sc__read_dtype(L, 1, &d) && sc__is_stored(d));
  return 1;
}

static int onnx_dtype(lua_State *L) {
  sc_dtype d;
  if (sc__onnx_dtype(luaL_checkinteger(L, 1), &d)) lua_pushstring(L, sc_dtype_name(d)); else lua_pushnil(L);
  return 1;
}

void sc__open_onnx(lua_State *L, binding *b) {
  static const luaL_Reg FUNCTIONS[] = {{"onnx_model", onnx_model}, {"onnx_tensor", onnx_tensor}, {"onnx_graph", onnx_graph}, {"onnx_check", onnx_check}, {"onnx_write", onnx_write},
    {"onnx_code", onnx_code}, {"onnx_dtype", onnx_dtype}, {"is_stored", is_stored}, {NULL, NULL}};
  (void)b;
  luaL_newmetatable(L, "sconce.source");
  lua_pushcfunction(L, source_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
  luaL_setfuncs(L, FUNCTIONS, 0);
}
