/* sc.load and sc.save on the script's side. What Lua's errors could leak is held by userdata. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

static int archive_gc(lua_State *L) {
  sc_archive **a = lua_touserdata(L, 1);
  sc_archive_free(*a);
  *a = NULL;
  return 0;
}

static const char *check_path(lua_State *L, binding *b, const char *what) {
  if (lua_type(L, 1) != LUA_TSTRING) sc__raise_text(L, b, "%s: argument 1 (path): expected a string, got %s", what, sc__got(L, b, 1));
  const char *path = lua_tostring(L, 1);
  if (strlen(path) != lua_rawlen(L, 1)) sc__raise_text(L, b, "%s: argument 1 (path): the path holds a zero byte", what);
  return path;
}

static void push_entry(lua_State *L, binding *b, sc_tensor *t) { sc__push_tensor(L, b, sc_tensor_retain(t)); }

/* core.load(path) -> table of tensors, metadata or nil; a tensor for .npy */
static int load(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  const char *path = check_path(L, b, "load");
  sc_archive **a = lua_newuserdatauv(L, sizeof *a, 0);
  *a = NULL;
  luaL_setmetatable(L, "sconce.archive");
  sc_status s = sc_load(b->ctx, path, a);
  if (s == SC_ENOMEM) {
    lua_gc(L, LUA_GCCOLLECT);
    s = sc_load(b->ctx, path, a);
  }
  sc__check(L, b, s);
  if (sc_archive_is_single(*a)) {
    push_entry(L, b, sc_archive_tensor(*a, 0));
    sc_archive_free(*a);
    *a = NULL;
    return 1;
  }
  lua_newtable(L);
  for (int64_t i = 0; i < sc_archive_count(*a); i++) {
    size_t n;
    const char *name = sc_archive_name(*a, i, &n);
    lua_pushlstring(L, name, n);
    push_entry(L, b, sc_archive_tensor(*a, i));
    lua_rawset(L, -3);
  }
  if (sc_archive_text_count(*a)) lua_newtable(L); else lua_pushnil(L);
  for (int64_t i = 0; i < sc_archive_text_count(*a); i++) {
    const char *name, *text = sc_archive_text(*a, i, &name);
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
  }
  sc_archive_free(*a);
  *a = NULL;
  return 2;
}

static int64_t count(lua_State *L, int at) {
  int64_t n = 0;
  for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1)) n++;
  return n;
}

static const char *check_name(lua_State *L, binding *b, const char *what) {
  char shown[220];
  if (lua_type(L, -2) != LUA_TSTRING) sc__raise_text(L, b, "save: %s: expected names (strings) as keys, got %s", what, sc__got(L, b, -2));
  const char *name = lua_tostring(L, -2);
  if (strlen(name) != lua_rawlen(L, -2)) sc__raise_text(L, b, "save: the name \"%s\" holds a zero byte", sc__printable(name, lua_rawlen(L, -2), shown, sizeof shown));
  return name;
}

static int by_tensor_name(const void *x, const void *y) { return strcmp(((const sc_named_tensor *)x)->name, ((const sc_named_tensor *)y)->name); }
static int by_text_name(const void *x, const void *y) { return strcmp(((const sc_named_text *)x)->name, ((const sc_named_text *)y)->name); }

/* The tensors of the table at `at`, by name; a userdata is left on the stack that holds them. */
static sc_named_tensor *read_tensors(lua_State *L, binding *b, int at, int64_t n) {
  sc_named_tensor *list = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *list, 0);
  char shown[220];
  int64_t i = 0;
  for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1), i++) {
    list[i].name = check_name(L, b, "argument 2 (tensors)");
    list[i].tensor = sc__test_tensor(L, b, lua_gettop(L));
    if (!list[i].tensor)
      sc__raise_text(L, b, "save: \"%s\": expected a tensor, got %s", sc__printable(list[i].name, strlen(list[i].name), shown, sizeof shown), sc__got(L, b, -1));
  }
  qsort(list, (size_t)n, sizeof *list, by_tensor_name);
  return list;
}

static sc_named_text *read_texts(lua_State *L, binding *b, int at, int64_t n) {
  sc_named_text *list = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *list, 0);
  char shown[220];
  int64_t i = 0;
  for (lua_pushnil(L); lua_next(L, at); lua_pop(L, 1), i++) {
    list[i].name = check_name(L, b, "option metadata");
    if (lua_type(L, -1) != LUA_TSTRING || strlen(lua_tostring(L, -1)) != lua_rawlen(L, -1))
      sc__raise_text(L, b, "save: option metadata: \"%s\": expected a string without zero bytes, got %s",
                     sc__printable(list[i].name, strlen(list[i].name), shown, sizeof shown), sc__got(L, b, -1));
    list[i].text = lua_tostring(L, -1);
  }
  qsort(list, (size_t)n, sizeof *list, by_text_name);
  return list;
}

/* core.save(path, tensor or table of tensors, metadata or nil) */
static int save(lua_State *L) {
  binding *b = sc__binding(L);
  sc__enter(L, b);
  const char *path = check_path(L, b, "save");
  lua_settop(L, 3);
  int64_t n = 1, n_texts = 0;
  sc_named_tensor one = {"", sc__test_tensor(L, b, 2)}, *list = &one;
  sc_named_text *texts = NULL;
  size_t length = strlen(path);
  if (one.tensor && !(length >= 4 && strcmp(path + length - 4, ".npy") == 0))
    return sc__raise_text(L, b, "save: argument 2: one tensor without a name goes into a .npy file; give a table {name = tensor}");
  if (!one.tensor) {
    if (lua_type(L, 2) != LUA_TTABLE) return sc__raise_text(L, b, "save: argument 2: expected a table {name = tensor}, got %s", sc__got(L, b, 2));
    list = read_tensors(L, b, 2, n = count(L, 2));
  }
  if (!lua_isnil(L, 3)) {
    if (lua_type(L, 3) != LUA_TTABLE) return sc__raise_text(L, b, "save: option metadata: expected a table of strings, got %s", sc__got(L, b, 3));
    texts = read_texts(L, b, 3, n_texts = count(L, 3));
  }
  sc__check(L, b, sc_save(b->ctx, path, list, n, texts, n_texts));
  return 0;
}

void sc__open_formats(lua_State *L, binding *b) {
  static const luaL_Reg FUNCTIONS[] = {{"load", load}, {"save", save}, {NULL, NULL}};
  (void)b;
  luaL_newmetatable(L, "sconce.archive");
  lua_pushcfunction(L, archive_gc);
  lua_setfield(L, -2, "__gc");
  lua_pop(L, 1);
  luaL_setfuncs(L, FUNCTIONS, 0);
}
