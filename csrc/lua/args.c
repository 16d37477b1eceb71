/* The one argument reader. It follows an op's signature: positional arguments in order, then at most one trailing table of named
** ones; numbers become 0-d tensors where a tensor is expected; 1-based dims and indices become 0-based here.
**
** Nothing is raised while something is held: the reader notes the message, lets go, and then raises. */
#include "binding.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LIST = 256, FEW = 16 };

typedef struct reader {
  lua_State *L;
  binding *b;
  int top;                         /* the arguments are at 1 … top */
  const sc_opinfo *op;
  sc_tensor *few[FEW], **in;       /* the inputs */
  int n_in, room_in;
  sc_tensor *made[FEW];            /* scalars made here, to be released */
  int n_made;
  sc_attr attr[SC_MAX_ATTRS];
  int64_t list[MAX_LIST];          /* room for the lists of attributes */
  int n_list;
  char message[900];
} reader;

static bool fail(reader *r, int param, const char *format, ...) {
  char text[600];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  if (param < 0) snprintf(r->message, sizeof r->message, "%s: %s", r->op->name, text);
  else snprintf(r->message, sizeof r->message, "%s: argument %d (%s): %s", r->op->name, param + 1, r->op->param[param].name, text);
  return false;
}

/* What stands at `at`, in words. */
static const char *describe(lua_State *L, binding *b, int at, char *out, size_t size) {
  char shape[200];
  int t = lua_type(L, at);
  if (sc__is_tensor_box(L, b, at)) {
    const tensor_box *box = lua_touserdata(L, at);
    if (box->t) {
      snprintf(out, size, "a %s tensor of shape %s", sc_dtype_name((sc_dtype)box->t->dtype), sc__shape_text(box->t->ndim, box->t->dim, shape, sizeof shape));
      return out;
    }
    snprintf(out, size, "a freed tensor");
    return out;
  }
  if (t == LUA_TNUMBER) snprintf(out, size, "the number %.14g", lua_tonumber(L, at));
  else if (t == LUA_TSTRING) snprintf(out, size, "the string \"%s\"", sc__printable(lua_tostring(L, at), lua_rawlen(L, at), shape, 100));
  else if (t == LUA_TBOOLEAN) snprintf(out, size, "%s", lua_toboolean(L, at) ? "true" : "false");
  else if (t == LUA_TNONE || t == LUA_TNIL) snprintf(out, size, t == LUA_TNIL ? "nil" : "nothing");
  else if ((t == LUA_TTABLE || t == LUA_TUSERDATA) && luaL_getmetafield(L, at, "__name") == LUA_TSTRING) {   /* a module says its class */
    const char *name = lua_tostring(L, -1);
    snprintf(out, size, "a %s", sc__printable(name, strlen(name), shape, 100));
    lua_pop(L, 1);
  } else {
    snprintf(out, size, "a %s", luaL_typename(L, at));
  }
  return out;
}

const char *sc__got(lua_State *L, binding *b, int at) {
  char text[300];
  return lua_pushstring(L, describe(L, b, lua_absindex(L, at), text, sizeof text));
}

static bool expected(reader *r, int param, int at, const char *what) {
  char got[300];
  return fail(r, param, "expected %s, got %s", what, describe(r->L, r->b, at, got, sizeof got));
}

/* ---- tensors ---- */

static bool put_input(reader *r, int slot, sc_tensor *t) {
  if (slot >= r->room_in) {
    int room = slot * 2 + 64;
    sc_tensor **bigger = sc__alloc_zero(r->b->ctx, (size_t)room * sizeof *bigger);
    if (!bigger) { sc__no_memory(r->b->ctx, (size_t)room * sizeof *bigger); return fail(r, -1, "%s", sc_error(r->b->ctx)); }
    memcpy(bigger, r->in, (size_t)r->n_in * sizeof *bigger);
    if (r->in != r->few) sc__release(r->b->ctx, r->in, (size_t)r->room_in * sizeof *bigger);
    r->in = bigger;
    r->room_in = room;
  }
  r->in[slot] = t;
  if (slot >= r->n_in) r->n_in = slot + 1;
  return true;
}

/* A number as a 0-d tensor; new. A boolean counts as a number here: `mask:logical_and(true)`. */
static sc_status number_tensor(lua_State *L, binding *b, int at, sc_tensor **out) {
  bool boolean = lua_type(L, at) == LUA_TBOOLEAN, integer = boolean || lua_isinteger(L, at);
  SC_TRY(sc__tensor_scalar(b->ctx, integer, boolean ? lua_toboolean(L, at) : integer ? lua_tointeger(L, at) : 0,
                           boolean ? 0 : lua_tonumber(L, at), out));
  if (boolean) { (*out)->dtype = SC_BOOL; *(uint8_t *)(*out)->data = (uint8_t)lua_toboolean(L, at); }
  return SC_OK;
}

/* The tensor there, NULL for something else; a freed one fails. */
static bool tensor_at(reader *r, int param, int at, sc_tensor **out) {
  char text[400];
  *out = sc__peek_tensor(r->L, r->b, at);
  return *out || !sc__is_tensor_box(r->L, r->b, at) || fail(r, param, "%s", sc__freed_text(r->L, at, text, sizeof text));
}

static bool read_tensor(reader *r, int param, int slot, int at) {
  lua_State *L = r->L;
  int type = lua_type(L, at);
  sc_tensor *t;
  if (type == LUA_TUSERDATA && lua_getmetatable(L, at)) {
    bool tensor = lua_topointer(L, -1) == r->b->tensor_meta;
    lua_pop(L, 1);
    if (tensor) {
      t = ((tensor_box *)lua_touserdata(L, at))->t;
      return SC_LIKELY(t != NULL) ? put_input(r, slot, t) : tensor_at(r, param, at, &t);
    }
  }
  if (type == LUA_TNUMBER || type == LUA_TBOOLEAN) {
    if (r->n_made == FEW) return fail(r, param, "too many numbers");
    if (number_tensor(L, r->b, at, &t) != SC_OK) return fail(r, -1, "%s", sc_error(r->b->ctx));
    r->made[r->n_made++] = t;
    return put_input(r, slot, t);
  }
  return expected(r, param, at, "a tensor");
}

static const char NAMED_LIST[] = "a list with names in it; options go into a table of their own: f({2, 3}, {name = value})";

static bool read_tensors(reader *r, int param, int slot, int at) {
  lua_State *L = r->L;
  if (lua_type(L, at) != LUA_TTABLE) {
    if (lua_type(L, at) == LUA_TUSERDATA) return read_tensor(r, param, slot, at);
    return expected(r, param, at, "a list of tensors");
  }
  lua_Integer n = (lua_Integer)lua_rawlen(L, at);
  if (n > 1 << 24) return fail(r, param, "the list is too long");
  if (n && sc__list_has_names(L, at, n)) return fail(r, param, NAMED_LIST);
  if (n && !put_input(r, slot + (int)n - 1, NULL)) return false;
  for (lua_Integer i = 1; i <= n; i++) {
    lua_rawgeti(L, at, i);
    bool ok = lua_type(L, -1) == LUA_TUSERDATA ? read_tensor(r, param, slot + (int)i - 1, lua_gettop(L)) : expected(r, param, lua_gettop(L), "a list of tensors");
    lua_pop(L, 1);
    if (!ok) return false;
  }
  return true;
}

/* ---- attributes ---- */

static bool read_int(reader *r, int param, int at, int64_t *out) {
  int whole = 0;
  lua_Integer i = lua_type(r->L, at) == LUA_TNUMBER ? lua_tointegerx(r->L, at, &whole) : 0;
  if (!whole && lua_type(r->L, at) == LUA_TUSERDATA) {     /* a 0-d integer tensor counts as a number */
    sc_tensor *t;
    if (!tensor_at(r, param, at, &t)) return false;
    if (t && t->storage && t->numel == 1 && sc__category((sc_dtype)t->dtype) == SC_CAT_INT) {
      if (SC_UNLIKELY(r->b->ctx->tracing != NULL)) sc__note_read(r->L, at);
      *out = sc__load((sc_dtype)t->dtype, t->data).i;
      return true;
    }
  }
  if (!whole) return expected(r, param, at, "an integer");
  *out = i;
  return true;
}

/* A dim or an index: from 1, negative from the end. */
static bool read_position(reader *r, int param, int at, int64_t *out) {
  if (!read_int(r, param, at, out)) return false;
  if (*out == 0) return fail(r, param, "0 is out of range: %s count from 1, or from -1 at the end", r->op->param[param].type == SC_P_INDEX ? "indices" : "dimensions");
  if (*out > 0) --*out;
  return true;
}

static bool read_list(reader *r, int param, int first, int last, bool table, sc_attr *out) {
  lua_State *L = r->L;
  const sc_param *p = &r->op->param[param];
  int n = table ? (int)lua_rawlen(L, first) : last - first + 1;
  if (table && n == 0 && p->length && !p->required) return true;       /* {}: as if it were not there */
  if (table && p->holes && n < p->length) n = p->length;               /* a border of a table with holes says nothing */
  if (n > SC_MAX_DIMS || r->n_list + n > MAX_LIST) return fail(r, param, "the list has %d entries, at most %d are possible", n, SC_MAX_DIMS);
  if (table && n > 0 && !p->holes && sc__list_has_names(L, first, n)) return fail(r, param, NAMED_LIST);
  int64_t *v = &r->list[r->n_list];
  for (int i = 0; i < n; i++) {
    int at = first + i;
    if (table) { lua_rawgeti(L, first, i + 1); at = lua_gettop(L); }
    bool ok = true;
    if (p->holes && lua_isnil(L, at)) v[i] = SC_HOLE;
    else if (p->type == SC_P_FLOATS) {
      if (lua_type(L, at) != LUA_TNUMBER) ok = expected(r, param, at, "a list of numbers");
      else { double f = lua_tonumber(L, at); memcpy(&v[i], &f, 8); }
    } else {
      ok = p->type == SC_P_DIMS ? read_position(r, param, at, &v[i]) : read_int(r, param, at, &v[i]);
    }
    if (table) lua_pop(L, 1);
    if (!ok) return false;
  }
  r->n_list += n;
  *out = (sc_attr){.kind = p->type == SC_P_FLOATS ? SC_ATTR_FLOATS : SC_ATTR_INTS, .n = n, .v = v};
  if (p->length && n == 1 && p->length > 1 && r->n_list + p->length < MAX_LIST) {   /* one number for all */
    for (int i = 1; i < p->length; i++) v[i] = v[0];
    r->n_list += p->length - 1;
    out->n = p->length;
  }
  if (p->length && out->n != p->length) return fail(r, param, "expected %d numbers, got %d", p->length, n);
  return true;
}

static bool recording(const reader *r) {
  bool on = r->b->ctx->tracing;
  for (int i = 0; i < r->n_in; i++) on = on || (r->in[i] && sc__is_symbolic(r->in[i]));
  return on;
}

static bool read_attr(reader *r, int param, int at) {
  lua_State *L = r->L;
  const sc_param *p = &r->op->param[param];
  sc_attr *a = &r->attr[p->slot];
  switch (p->type) {
    case SC_P_INT: a->kind = SC_ATTR_INT; return read_int(r, param, at, &a->i);
    case SC_P_DIM: case SC_P_INDEX: a->kind = SC_ATTR_INT; return read_position(r, param, at, &a->i);
    case SC_P_FLOAT:
    case SC_P_NUMBER:
      if (lua_type(L, at) == LUA_TUSERDATA) {              /* a tensor of one element counts as its number */
        sc_tensor *t;
        if (!tensor_at(r, param, at, &t)) return false;
        if (!t || !t->storage || t->numel != 1) return expected(r, param, at, "a number");
        if (SC_UNLIKELY(r->b->ctx->tracing != NULL)) sc__note_read(L, at);
        sc_scalar v = sc__load((sc_dtype)t->dtype, t->data);
        *a = v.is_int && p->type == SC_P_NUMBER ? sc__int(v.i) : sc__float(v.f);
        return true;
      }
      if (p->type == SC_P_NUMBER && lua_type(L, at) == LUA_TBOOLEAN) { *a = sc__bool(lua_toboolean(L, at)); return true; }
      if (lua_type(L, at) != LUA_TNUMBER) return expected(r, param, at, "a number");
      *a = p->type == SC_P_NUMBER && lua_isinteger(L, at) ? sc__int(lua_tointeger(L, at)) : sc__float(lua_tonumber(L, at));
      return true;
    case SC_P_BOOL:
      if (lua_type(L, at) != LUA_TBOOLEAN) return expected(r, param, at, "true or false");
      *a = sc__bool(lua_toboolean(L, at));
      return true;
    case SC_P_STRING:
      if (lua_type(L, at) != LUA_TSTRING) return expected(r, param, at, "a string");
      *a = sc__str(lua_tostring(L, at));
      return true;
    case SC_P_DTYPE: {
      sc_dtype d;
      if (!sc__read_dtype(L, at, &d)) return expected(r, param, at, "a dtype such as \"float32\"");
      *a = sc__dtype(d);
      return true;
    }
    case SC_P_ANY: a->kind = SC_ATTR_BOOL; return true;
    case SC_P_GENERATOR: {
      void *g = luaL_testudata(L, at, "sconce.Generator");
      if (!g) return expected(r, param, at, "a generator");
      *a = (sc_attr){.kind = SC_ATTR_GENERATOR, .p = g};
      if (recording(r)) {                              /* the node keeps the address: the generator lives as long as the state */
        lua_pushvalue(L, at);
        lua_rawsetp(L, LUA_REGISTRYINDEX, g);
      }
      return true;
    }
    default:
      if (p->words && lua_type(L, at) == LUA_TSTRING) { *a = sc__str(lua_tostring(L, at)); return true; }
      if (lua_type(L, at) == LUA_TTABLE) return read_list(r, param, at, at, true, a);
      return read_list(r, param, at, at, false, a);
  }
}

static bool read_param(reader *r, int param, int at) {
  const sc_param *p = &r->op->param[param];
  if (lua_isnoneornil(r->L, at)) {
    if (p->required) return expected(r, param, at, p->type == SC_P_TENSOR ? "a tensor" : "a value");
    return true;
  }
  if (p->type == SC_P_TENSOR) return read_tensor(r, param, p->slot, at);
  if (p->type == SC_P_TENSORS) return read_tensors(r, param, p->slot, at);
  return read_attr(r, param, at);
}

/* ---- options ---- */

/* A table with string keys. */
static bool is_options(lua_State *L, int at) {
  if (lua_type(L, at) != LUA_TTABLE) return false;
  if (lua_getmetatable(L, at)) { lua_pop(L, 1); return false; }        /* a module is no options */
  lua_pushnil(L);
  if (!lua_next(L, at)) return false;
  bool named = lua_type(L, -2) == LUA_TSTRING;
  lua_pop(L, 2);
  return named;
}

/* Names people know from elsewhere. */
static const char *renamed(const char *name) {
  if (strcmp(name, "axis") == 0) return "dim";
  if (strcmp(name, "input") == 0) return "x";
  if (strcmp(name, "value") == 0) return "src";
  return name;
}

static bool read_options(reader *r, int at, int given) {
  lua_State *L = r->L;
  lua_pushnil(L);
  while (lua_next(L, at)) {
    if (lua_type(L, -2) != LUA_TSTRING) { lua_pop(L, 2); return fail(r, -1, "options need names; a list must be an argument of its own"); }
    const char *name = lua_tostring(L, -2);
    int k = 0;
    while (k < r->op->n_params && strcmp(r->op->param[k].name, name) != 0) k++;
    for (int again = 0; k == r->op->n_params && again < r->op->n_params; again++)
      if (strcmp(r->op->param[again].name, renamed(name)) == 0) k = again;
    if (k == r->op->n_params) {
      char list[400] = "", shown[100];
      for (int i = 0; i < r->op->n_params; i++)
        if (strlen(list) + 40 < sizeof list) snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", r->op->param[i].name);
      bool ok = fail(r, -1, "there is no option \"%s\"; the options are %s", sc__printable(name, strlen(name), shown, sizeof shown), list);
      lua_pop(L, 2);
      return ok;
    }
    if (k < given) { lua_pop(L, 2); return fail(r, k, "given twice, by position and by name"); }
    bool ok = read_param(r, k, lua_gettop(L));
    lua_pop(L, 1);                                     /* the options table keeps what attributes point at */
    if (!ok) { lua_pop(L, 1); return false; }
    r->n_in = r->n_in < r->op->n_in && !r->op->variadic ? r->op->n_in : r->n_in;
  }
  return true;
}

const char *sc__signature_shown(const char *text, char *out, size_t size) {
  static const char *const POSITION[] = {": dim = ", ": dim[] = ", ": index = "};
  size_t at = 0;
  while (*text && at + 24 < size) {
    size_t n = 0;
    for (int i = 0; i < SC_COUNT(POSITION); i++) {
      size_t length = strlen(POSITION[i]);
      if (strncmp(text, POSITION[i], length) == 0 && text[length] >= '0' && text[length] <= '9') n = length;
    }
    if (!n) { out[at++] = *text++; continue; }
    memcpy(out + at, text, n);
    at += n;
    int position = 0;
    for (text += n; *text >= '0' && *text <= '9' && position < 1000; text++) position = position * 10 + (*text - '0');
    at += (size_t)snprintf(out + at, size - at, "%d", position + 1);
  }
  out[at] = 0;
  return out;
}

int sc__signature_text(lua_State *L) {
  char text[1000];
  lua_pushstring(L, sc__signature_shown(luaL_checkstring(L, 1), text, sizeof text));
  return 1;
}

static bool read_all(reader *r) {
  lua_State *L = r->L;
  const sc_opinfo *op = r->op;
  int n = r->top, options = 0;
  /* A trailing table of names is options, unless it stands where the only parameter's list should be. */
  if (n > 0 && is_options(L, n)) { options = n; n--; }
  else if (n > 1 && lua_type(L, n) == LUA_TTABLE && lua_rawlen(L, n) == 0 && n > op->n_params) n--;    /* {} after all arguments */
  int at = 1, param = 0;
  for (; param < op->n_params && at <= n; param++) {
    const sc_param *p = &op->param[param];
    bool list = p->type == SC_P_SHAPE || p->type == SC_P_INTS || p->type == SC_P_DIMS;
    if (at == n && at > 1 && !list && p->type != SC_P_FLOATS && p->type != SC_P_TENSORS && lua_type(L, at) == LUA_TTABLE &&
        lua_rawlen(L, at) == 0) {                      /* options, but none */
      n--;
      break;
    }
    if (list && lua_type(L, at) == LUA_TNUMBER && p->length == 0) {      /* plain numbers: as many as there are */
      int last = at;
      while (last + 1 <= n && lua_type(L, last + 1) == LUA_TNUMBER && (p->type == SC_P_SHAPE || param == op->n_params - 1)) last++;
      if (!read_list(r, param, at, last, false, &r->attr[p->slot])) return false;
      at = last + 1;
      continue;
    }
    if (p->type == SC_P_TENSORS && lua_type(L, at) == LUA_TUSERDATA) {   /* the list's members one by one */
      int slot = p->slot;
      while (at <= n && lua_type(L, at) == LUA_TUSERDATA) if (!read_tensor(r, param, slot++, at++)) return false;
      continue;
    }
    if (!read_param(r, param, at++)) return false;
  }
  if (at <= n) return fail(r, -1, "at most %d arguments are expected, got %d", op->n_params, n);
  if (options && !read_options(r, options, param)) return false;
  if (!op->variadic && r->n_in < op->n_in) r->n_in = op->n_in;
  for (int i = 0; i < op->n_params; i++) {
    const sc_param *p = &op->param[i];
    bool absent = p->type == SC_P_TENSOR ? p->slot >= r->n_in || !r->in[p->slot] : p->type != SC_P_TENSORS && r->attr[p->slot].kind == SC_ATTR_NONE;
    char text[1000];
    if (p->required && absent) return fail(r, i, "is missing; the op is %s", sc__signature_shown(op->def->signature, text, sizeof text));
  }
  return true;
}

static void let_go(reader *r) {
  for (int i = 0; i < r->n_made; i++) sc_tensor_release(r->made[i]);
  if (r->in != r->few) sc__release(r->b->ctx, r->in, (size_t)r->room_in * sizeof *r->in);
}

int sc__call_op(lua_State *L, binding *b, const sc_opinfo *op) {
  sc__enter(L, b);
  if (SC_UNLIKELY(b->sizes_named)) sc__plain_sizes(L, b, 1, lua_gettop(L));
  reader r;
  r.L = L; r.b = b; r.top = lua_gettop(L); r.op = op; r.in = r.few; r.room_in = FEW; r.n_in = 0; r.n_made = 0; r.n_list = 0;
  for (int i = 0; i < SC_MAX_INPUTS; i++) r.few[i] = NULL;
  sc__attr_defaults(op, r.attr);
  sc__stack(L, 32, op->name);
  int boxes = op->inplace && lua_type(L, 1) == LUA_TUSERDATA ? 0 : op->n_named_out ? op->n_named_out : 1;
  for (int i = 0; i < boxes; i++) sc__new_box(L, b);
  if (!read_all(&r)) {
    let_go(&r);
    return sc__raise_text(L, b, "%s", r.message);
  }
  sc_tensor *out[SC_MAX_OUTPUTS];
  int n = 0;
  sc_status s = sc__emit(b->ctx, op, r.in, r.n_in, r.attr, 1, out, &n);
  let_go(&r);
  if (s != SC_OK) return sc__raise(L, b);
  if (!boxes) {                                        /* the very same object comes back */
    for (int i = 0; i < n; i++) sc_tensor_release(out[i]);
    lua_pushvalue(L, 1);
    sc_tensor *t = ((tensor_box *)lua_touserdata(L, 1))->t;
    if (t->flags & SC_T_ANCHORED && t->ad) sc__script_anchor(L, t);
    return 1;
  }
  lua_settop(L, r.top + (n < boxes ? n : boxes));
  sc__fill_boxes(L, b, r.top + 1, out, n < boxes ? n : boxes);
  for (int i = boxes; i < n; i++) sc__push_tensor(L, b, out[i]);
  return n;
}

/* ---- functions written in Lua that have a signature ---- */

/* A number has to be one there: true, which counts as 1 for ops, is 1. */
static void push_attr(lua_State *L, const sc_param *p, const sc_attr *a) {
  bool position = p->type == SC_P_DIM || p->type == SC_P_DIMS || p->type == SC_P_INDEX;
  switch (a->kind) {
    case SC_ATTR_INT: lua_pushinteger(L, a->i + (position && a->i >= 0)); break;
    case SC_ATTR_FLOAT: lua_pushnumber(L, a->f); break;
    case SC_ATTR_BOOL:
      if (p->type == SC_P_NUMBER) lua_pushinteger(L, a->i); else lua_pushboolean(L, a->i != 0);
      break;
    case SC_ATTR_STRING: lua_pushstring(L, a->s); break;
    case SC_ATTR_DTYPE: lua_pushstring(L, sc_dtype_name((sc_dtype)a->i)); break;
    case SC_ATTR_INTS: case SC_ATTR_FLOATS:
      lua_createtable(L, a->n, 0);
      for (int i = 0; i < a->n; i++) {
        if (a->kind == SC_ATTR_FLOATS) lua_pushnumber(L, a->fv[i]);
        else lua_pushinteger(L, a->v[i] + (position && a->v[i] >= 0));
        lua_rawseti(L, -2, i + 1);
      }
      break;
    default: lua_pushnil(L);
  }
}

/* upvalues: the binding, the parsed signature, the Lua function. Calls it with one value per parameter, in the signature's order:
** tensors (a number stays a number where the type is tensor|number), lists as tables, dims 1-based, defaults filled in, nil for what
** is absent. */
static int composite_call(lua_State *L) {
  binding *b = lua_touserdata(L, lua_upvalueindex(1));
  const sc_opinfo *op = lua_touserdata(L, lua_upvalueindex(2));
  if (SC_UNLIKELY(b->sizes_named)) sc__plain_sizes(L, b, 1, lua_gettop(L));
  reader r;
  r.L = L; r.b = b; r.top = lua_gettop(L); r.op = op; r.in = r.few; r.room_in = FEW; r.n_in = 0; r.n_made = 0; r.n_list = 0;
  sc__set_now(L, b);
  for (int i = 0; i < SC_MAX_INPUTS; i++) r.few[i] = NULL;
  sc__attr_defaults(op, r.attr);
  sc__stack(L, 48, op->name);
  int n = lua_gettop(L);
  bool ok = read_all(&r);
  let_go(&r);
  if (!ok) return sc__raise_text(L, b, "%s", r.message);
  int options = n > 0 && is_options(L, n) ? n : 0, given = options ? n - 1 : n, at = 1;
  lua_pushvalue(L, lua_upvalueindex(3));
  for (int i = 0; i < op->n_params; i++) {
    const sc_param *p = &op->param[i];
    bool tensors = p->type == SC_P_TENSORS;
    if (p->type == SC_P_GENERATOR || p->type == SC_P_TENSOR || p->type == SC_P_ANY || tensors) {
      if (tensors && at <= given && lua_type(L, at) == LUA_TUSERDATA) {      /* members one by one: make the list */
        lua_newtable(L);
        for (int k = 1; at <= given && lua_type(L, at) == LUA_TUSERDATA; k++, at++) { lua_pushvalue(L, at); lua_rawseti(L, -2, k); }
      } else if (at <= given) {
        bool left_out = (p->type == SC_P_TENSOR || p->type == SC_P_GENERATOR) && lua_type(L, at) == LUA_TTABLE;   /* {}: options, but none */
        if (left_out) lua_pushnil(L); else lua_pushvalue(L, at);
        at++;
      } else if (options) {
        lua_getfield(L, options, p->name);
      } else {
        lua_pushnil(L);
      }
      int type = lua_type(L, -1);
      if (type == LUA_TNIL && tensors) { lua_pop(L, 1); lua_newtable(L); }
      if (type == LUA_TTABLE && p->type == SC_P_TENSOR) { lua_pop(L, 1); lua_pushnil(L); }   /* the reader took {} for options */
      if (p->type == SC_P_TENSOR && (type == LUA_TBOOLEAN || (type == LUA_TNUMBER && !p->numbers))) {
        sc_tensor *t;
        if (number_tensor(L, b, lua_gettop(L), &t) != SC_OK) return sc__raise(L, b);
        sc__push_tensor(L, b, t);
        lua_remove(L, -2);
      }
      continue;
    }
    bool list = p->type == SC_P_SHAPE || p->type == SC_P_INTS || p->type == SC_P_DIMS || p->type == SC_P_FLOATS;
    if (at <= given && list && lua_type(L, at) == LUA_TNUMBER && p->length == 0)
      while (at < given && lua_type(L, at + 1) == LUA_TNUMBER && (p->type == SC_P_SHAPE || i == op->n_params - 1)) at++;
    if (at <= given) at++;
    push_attr(L, p, &r.attr[p->slot]);
  }
  lua_call(L, op->n_params, LUA_MULTRET);
  return lua_gettop(L) - n;
}

const sc_opinfo *sc__composite_op(lua_State *L) {
  if (lua_tocfunction(L, -1) != composite_call || !lua_getupvalue(L, -1, 2)) return NULL;
  const sc_opinfo *op = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return op;
}

/* core.composite(signature, function) -> a function that reads its arguments as ops do */
int sc__composite(lua_State *L) {
  binding *b = sc__binding(L);
  const char *signature = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  sc_op *def = lua_newuserdatauv(L, sizeof *def + sizeof(sc_opinfo), 1);
  memset(def, 0, sizeof *def + sizeof(sc_opinfo));
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);                       /* the signature's text lives as long */
  sc_opinfo *op = (sc_opinfo *)(def + 1);
  def->signature = signature;
  op->def = def;
  if (sc__signature_parse(signature, op) != SC_OK) return luaL_error(L, "bad signature: %s", signature);
  lua_pushvalue(L, -1);
  luaL_ref(L, LUA_REGISTRYINDEX);                    /* for the life of the state, as the op table is */
  lua_pushlightuserdata(L, b);
  lua_pushlightuserdata(L, op);
  lua_pushvalue(L, 2);
  lua_pushcclosure(L, composite_call, 3);
  return 1;
}

int sc__op_function(lua_State *L) {
  return sc__call_op(L, lua_touserdata(L, lua_upvalueindex(1)), lua_touserdata(L, lua_upvalueindex(2)));
}
