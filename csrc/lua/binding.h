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

typedef enum block_kind { BLOCK_GRAD, BLOCK_SCOPE } block_kind;

/* An open block of a coroutine: sc.no_grad, sc.enable_grad, sc.scope. */
typedef struct script_block { lua_State *thread; uint64_t id; uint8_t kind; bool enabled; } script_block;

/* A box that C alone holds (see script.c). */
typedef struct script_pin { int64_t id; int count; } script_pin;

typedef struct binding {
  sc_context *ctx;
  lua_State *now;                  /* the coroutine that is calling; kept alive by the registry */
  const void *tensor_meta;         /* identity of the tensors' metatable */
  const sc_opinfo *select_op, *getview_op;   /* what x[key] is made of */
  const void *newaxis, *ellipsis;  /* identities of sc.newaxis and sc.ellipsis */
  int tensor_ref, methods_ref;     /* registry: that metatable, the methods */
  char inside[512];                /* source prefix of lua/sconce: frames there are not the user's */
  size_t inside_length;
  struct { char *source; const char *file; bool internal; } place[64];   /* cache of locate */
  script_block *block;             /* open ones, in the order of opening */
  int n_blocks, n_scopes;
  size_t room_blocks;
  uint64_t block_ids;
  bool any_born;                   /* a coroutine's mode at birth was noted */
  bool error_pending;              /* an error value of the script is on its way through C */
  uint64_t epoch;                  /* changes of watched tables (guard.c) */
  const void *size_meta;           /* identity of the metatable of open sizes (size.c) */
  bool sizes_named;                /* there are such values */
  bool sizes_watched;              /* a trace leaves sizes open: a line of the user that reads one of those is an error */
  uint32_t sizes_read;             /* which of them were, a bit each */
  sc_location sizes_where;
  bool run_eagerly;                /* compiled functions call theirs */
  uint32_t constants, constants_before;      /* tensors made of tables in traces, ever and before the one going on */
  int depth;                       /* functions of the script running inside C */
  int64_t hook_ids;                /* of boxes */
  int fresh;                       /* boxes made since the op began */
  script_pin *pin;
  size_t n_pins, room_pins;
  bool unpinned;                   /* some have a count of 0 */
  unsigned steps;                  /* of the collector, taken for tensors */
  /* bytes of tensors: not worked for by the collector; made since its last cycle ended; alive then; all that the engine held after the last whole
  ** cycle; and the steps since one ended a cycle */
  double owed, made, live_after, held_full, unended;
} binding;

/* A tensor's userdata. t NULL: freed. Its user value: the anchor of t's history (script.c), or, once freed, who did it. */
typedef struct tensor_box { sc_tensor *t; } tensor_box;

binding *sc__binding(lua_State *L);                        /* of this state, from the registry; raises when the state is closing */
binding *sc__binding_or_null(lua_State *L);
/* Called first by every C function of the module: sets the gradient mode of the coroutine, pays the collector. */
void sc__enter(lua_State *L, binding *b);
void sc__stack(lua_State *L, int n, const char *what); /* room for n more values, or an error that says what asked */
/* L is the coroutine that calls. It stays known, and alive, when the call is over. */
void sc__come_in(lua_State *L, binding *b);
static inline void sc__set_now(lua_State *L, binding *b) { if (b->now != L || b->ctx->locate_user != b) sc__come_in(L, b); }
/* Raises the context's error, or a pending error value, at the user's line. */
int sc__raise(lua_State *L, binding *b);
/* Raises a message at the user's line. */
int sc__raise_text(lua_State *L, binding *b, const char *format, ...);
/* Refuses, while a function is traced, what would not be in its graph: seeds and states of random numbers. */
void sc__outside_traces(lua_State *L, binding *b, const char *what);
static inline void sc__check(lua_State *L, binding *b, sc_status s) { if (s != SC_OK) sc__raise(L, b); }

bool sc__is_tensor_box(lua_State *L, binding *b, int at);       /* also of a freed tensor */
/* __concat: both sides as print shows them. */
int sc__concat(lua_State *L);
/* The tensor at that place, borrowed; NULL when it is something else. Raises for a freed one. */
sc_tensor *sc__test_tensor(lua_State *L, binding *b, int at);
sc_tensor *sc__peek_tensor(lua_State *L, binding *b, int at);   /* the same without raising */
sc_tensor *sc__check_tensor(lua_State *L, binding *b, int at, const char *what);
const char *sc__got(lua_State *L, binding *b, int at);    /* "the number 3", "a float32 tensor of shape {2}": left on the stack */
const char *sc__freed_text(lua_State *L, int at, char *out, size_t size);
/* An empty box on the stack, to be filled with sc__fill_box: for results, so that nothing is held when Lua has no memory. */
void sc__new_box(lua_State *L, binding *b);
/* The box at `at` gets t (takes it). */
void sc__fill_box(lua_State *L, binding *b, int at, sc_tensor *t);
/* The same for many: room on the stack and n boxes; then all of list at once (takes them). */
void sc__new_boxes(lua_State *L, binding *b, int n, const char *what);
void sc__fill_boxes(lua_State *L, binding *b, int first, sc_tensor **list, int n);
/* Takes t, also when Lua has no memory. */
void sc__push_tensor(lua_State *L, binding *b, sc_tensor *t);
void sc__push_scalar(lua_State *L, sc_dtype d, const void *at);
bool sc__read_dtype(lua_State *L, int at, sc_dtype *out);

/* Whether the list at `at`, of n entries, has names as well: people write {2, 3, dtype = "int64"} for ({2, 3}, {dtype = "int64"}). */
static inline bool sc__list_has_names(lua_State *L, int at, lua_Integer n) {
  if (n) lua_pushinteger(L, n); else lua_pushnil(L);
  if (!lua_next(L, at)) return false;                    /* names come after the entries */
  bool named = lua_type(L, -2) == LUA_TSTRING;
  lua_pop(L, 2);
  return named;
}

/* The function of an op: upvalue 1 the binding, upvalue 2 its row. */
int sc__op_function(lua_State *L);
/* Reads the arguments at 1 … top for an op and calls it; returns the number of results pushed. */
int sc__call_op(lua_State *L, binding *b, const sc_opinfo *op);

int sc__composite(lua_State *L);
/* A signature as people read it: positions that stand as defaults count from 1. */
const char *sc__signature_shown(const char *text, char *out, size_t size);
int sc__signature_text(lua_State *L);                     /* core.signature_text(text): the same */
const sc_opinfo *sc__composite_op(lua_State *L);           /* of the function on top, when it is a composite; else NULL */

/* ---- hostile.c: nothing but in the hostile build ---- */
void sc__hostile_options(sc_options *o);
void sc__open_hostile(lua_State *L, binding *b);
void sc__hostile_close(lua_State *L);
#ifdef SC_HOSTILE
void sc__hostile_collect(lua_State *L);                    /* at every op */
#endif

/* ---- block.c ---- */
sc_status sc__block_open(binding *b, lua_State *L, block_kind kind, bool enabled, uint64_t *id);
bool sc__block_close(binding *b, uint64_t id);             /* false: it was closed before */
bool sc__grad_mode(binding *b, lua_State *L);
void sc__scope_add(lua_State *L, binding *b);
void sc__open_block(lua_State *L, binding *b);

/* ---- script.c ---- */
int64_t sc__script_box(lua_State *L, binding *b);
/* The userdata on top, of an anchored t, gets its user value. Allocates nothing. */
void sc__script_anchor(lua_State *L, sc_tensor *t);
void sc__script_settle(lua_State *L, binding *b);
void sc__script_parked(lua_State *L, binding *b);          /* pushes the error value on its way */
void sc__open_script(lua_State *L, binding *b);
void sc__close_script(binding *b);

sc_location sc__lua_locate(void *user);
/* Each adds its functions to the module table on top of the stack. */
void sc__open_tensor(lua_State *L, binding *b);
void sc__open_autograd(lua_State *L, binding *b);
void sc__open_graph(lua_State *L, binding *b);
void sc__open_control(lua_State *L, binding *b);
sc_graph *sc__check_graph(lua_State *L, int at);           /* borrowed; raises for anything else */
sc_graph **sc__new_graph(lua_State *L);                    /* an empty one on the stack, to be filled in */
void sc__open_text(lua_State *L, binding *b);
void sc__open_signature(lua_State *L, binding *b);
void sc__open_guard(lua_State *L, binding *b);
void sc__open_compiled(lua_State *L, binding *b);
/* ---- size.c: sizes left open as values ---- */
/* Pushes t's size v as such a value, when it is one and a line of the script asks; false: nothing was pushed. */
bool sc__push_size(lua_State *L, binding *b, const sc_tensor *t, int64_t v);
/* Arguments first … last with the numbers that stand for sizes; called where `sizes_named`. */
void sc__plain_sizes(lua_State *L, binding *b, int first, int last);
void sc__open_size(lua_State *L, binding *b);
bool sc__user_asks(lua_State *L, binding *b);              /* whether a line of the script, not of the library, calls this C function */
void sc__look_at_size(lua_State *L, binding *b, const int64_t *size, int n);   /* the script reads these sizes */
void sc__note_read(lua_State *L, int at);                  /* a trace has looked at the values of the tensor at `at` */
void sc__open_images(lua_State *L, binding *b);
void sc__open_index(lua_State *L, binding *b);
void sc__open_random(lua_State *L, binding *b);
void sc__open_formats(lua_State *L, binding *b);
void sc__open_onnx(lua_State *L, binding *b);
/* x[key], x[key] = value for keys that are not names */
int sc__get_index(lua_State *L, binding *b);
int sc__set_index(lua_State *L, binding *b);

#endif
