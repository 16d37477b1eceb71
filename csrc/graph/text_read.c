/* A graph read from text; text.h says what it looks like. The text is anybody's: every length, count and nesting is bounded, every
** attribute must have the kind its parameter asks for, and each node is emitted, so that the op's own rules check everything else. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "text.h"

enum { MOST_DEEP = 16, MOST_NAME = 4096, MOST_RESULTS = 1 << 20, MOST_MEMORIES = 1 << 16 };

/* A captured tensor by its name, the same in all graphs of the text; memory: the block it lies in. */
typedef struct known { const char *name; sc_tensor *t; } known;
typedef struct memory { sc_tensor *block; } memory;

typedef struct shared {
  sc_context *ctx;
  const char *at, *end;
  int line, depth;
  char *name;                    /* [MOST_NAME] of the word or string read last */
  sc__capture_fn find;
  void *user;
  bool as_given;                 /* tensors that `find` gives are captured as they are laid out */
  int64_t left;                  /* bytes that tensors with gaps or in shared memory may still take */
  known *known;
  size_t n_known, room_known;
  memory *memory;
  size_t n_memories, room_memories;
  sc_tensor *generators;         /* int64 {n, 2}; the graphs own it */
  int n_generators;
  const char *size_name[SC_SYMBOLS];
  int n_sizes;
} shared;

typedef struct reader {
  shared *s;
  sc_graph *g;
  sc_tensor **value;             /* [room] by number; NULL: not there */
  size_t room;
  sc_control **program;          /* [n_programs] */
  size_t n_programs, room_programs;
  uint8_t base;
} reader;

static sc_status bad(shared *s, const char *format, ...) SC_FORMAT(2, 3);
static sc_status bad(shared *s, const char *format, ...) {
  char text[400], shown[300];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  return sc__fail(s->ctx, SC_EFORMAT, "graph text, line %d: %s", s->line, sc__printable(text, strlen(text), shown, sizeof shown));
}

/* ---- tokens ---- */

static void blanks(shared *s) {
  for (; s->at < s->end; s->at++) {
    if (*s->at == '-' && s->end - s->at > 1 && s->at[1] == '-') while (s->at + 1 < s->end && s->at[1] != '\n') s->at++;
    else if (*s->at == '\n') s->line++;
    else if (*s->at != ' ' && *s->at != '\t' && *s->at != '\r') return;
  }
}

static bool peek(shared *s, char c) {
  blanks(s);
  return s->at < s->end && *s->at == c;
}

static bool take(shared *s, char c) {
  if (!peek(s, c)) return false;
  s->at++;
  return true;
}

static sc_status want(shared *s, char c) { return take(s, c) ? SC_OK : bad(s, "expected \"%c\"", c); }

static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
static bool digit(char c) { return c >= '0' && c <= '9'; }

/* A word into s->name: letters, digits and dots. */
static bool word(shared *s) {
  size_t n = 0;
  blanks(s);
  if (s->at == s->end || !letter(*s->at)) return false;
  while (s->at < s->end && (letter(*s->at) || digit(*s->at) || *s->at == '.') && n + 1 < MOST_NAME) s->name[n++] = *s->at++;
  s->name[n] = 0;
  return true;
}

/* The very word, which is taken only when it is next. */
static bool keyword(shared *s, const char *text) {
  const char *was = s->at;
  int line = s->line;
  if (word(s) && strcmp(s->name, text) == 0) return true;
  s->at = was;
  s->line = line;
  return false;
}

static int hex(char c) { return digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* A string in these marks into s->name. */
static sc_status string(shared *s, char mark) {
  size_t n = 0;
  SC_TRY(want(s, mark));
  for (; s->at < s->end && *s->at != mark; s->at++) {
    char c = *s->at;
    if (c == '\n' || c == 0) return bad(s, "a string does not end");
    if (n + 1 >= MOST_NAME) return bad(s, "a string is too long");
    if (c == '\\') {
      if (s->end - s->at < 2) return bad(s, "a string does not end");
      c = *++s->at;
      if (c == 'x') {
        if (s->end - s->at < 3 || hex(s->at[1]) < 0 || hex(s->at[2]) < 0) return bad(s, "\\x needs two digits");
        c = (char)(hex(s->at[1]) * 16 + hex(s->at[2]));
        s->at += 2;
        if (c == 0) return bad(s, "a string may not hold a zero byte");
      }
    }
    s->name[n++] = c;
  }
  s->name[n] = 0;
  return take(s, mark) ? SC_OK : bad(s, "a string does not end");
}

/* A string, kept for as long as the context lives. */
static sc_status kept(shared *s, const char **out) {
  SC_TRY(string(s, '"'));
  *out = sc__intern(s->ctx, s->name);
  return *out ? SC_OK : sc__no_memory(s->ctx, 64);
}

static sc_status digits(shared *s, uint64_t *out) {
  uint64_t v = 0;
  blanks(s);
  if (s->at == s->end || !digit(*s->at)) return bad(s, "expected a number");
  for (; s->at < s->end && digit(*s->at); s->at++)
    if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*s->at - '0'), &v)) return bad(s, "a number is too large");
  *out = v;
  return SC_OK;
}

static sc_status integer(shared *s, int64_t *out) {
  uint64_t v;
  bool minus = take(s, '-');
  SC_TRY(digits(s, &v));
  if (v > (uint64_t)INT64_MAX + minus) return bad(s, "a number is too large");
  *out = minus ? (int64_t)(0 - v) : (int64_t)v;
  return SC_OK;
}

static sc_status counted(shared *s, int64_t most, int64_t *out) {
  SC_TRY(integer(s, out));
  return *out < 0 || *out > most ? bad(s, "%lld is out of range", (long long)*out) : SC_OK;
}

/* ---- integers that follow from sizes ---- */

static sc_status size_text(shared *s, int64_t *out, int depth);

static sc_status named_size(shared *s, int64_t *out) {
  if (peek(s, '\'')) SC_TRY(string(s, '\''));
  else if (!word(s)) return bad(s, "expected a number or the name of a size");
  for (int k = 0; k < s->n_sizes; k++)
    if (strcmp(s->size_name[k], s->name) == 0) { *out = sc__stand_in(k); return SC_OK; }
  return bad(s, "there is no size named %s", s->name);
}

static sc_status factor(shared *s, int64_t *out, int depth) {
  if (take(s, '(')) {
    SC_TRY(size_text(s, out, depth + 1));
    return want(s, ')');
  }
  blanks(s);
  if (s->at < s->end && (digit(*s->at) || *s->at == '-')) return integer(s, out);
  return named_size(s, out);
}

static sc_status size_text(shared *s, int64_t *out, int depth) {
  int64_t v;
  if (depth > MOST_DEEP) return bad(s, "brackets are nested too deep");
  SC_TRY(factor(s, out, depth));
  while (take(s, '*')) {
    SC_TRY(factor(s, &v, depth));
    if (__builtin_mul_overflow(*out, v, out)) return bad(s, "a size is too large");
  }
  blanks(s);
  if (s->at < s->end && (*s->at == '+' || *s->at == '-')) {
    bool minus = *s->at++ == '-';
    SC_TRY(factor(s, &v, depth));
    if (minus ? __builtin_sub_overflow(*out, v, out) : __builtin_add_overflow(*out, v, out)) return bad(s, "a size is too large");
  }
  return SC_OK;
}

static sc_status size_list(shared *s, char open, char close, int64_t *v, int *n) {
  SC_TRY(want(s, open));
  for (*n = 0; !take(s, close); ++*n) {
    if (*n == SC_MAX_DIMS) return bad(s, "a list is too long");
    if (*n) SC_TRY(want(s, ','));
    SC_TRY(size_text(s, &v[*n], 0));
  }
  return SC_OK;
}

/* A literal: a bool, a float (with a point, an exponent, inf or nan), or an integer. */
typedef struct literal { enum { L_BOOL, L_INT, L_FLOAT } kind; int64_t i; double f; } literal;

static bool is_float(const shared *s) {
  const char *c = s->at;
  if (c < s->end && *c == '-') c++;
  if (s->end - c >= 3 && (strncmp(c, "inf", 3) == 0 || strncmp(c, "nan", 3) == 0) && (s->end - c == 3 || !letter(c[3]))) return true;
  if (c == s->end || !digit(*c)) return false;
  while (c < s->end && digit(*c)) c++;
  return c < s->end && (*c == '.' || *c == 'e');
}

static sc_status real(shared *s, double *out) {
  char few[64], *end;
  size_t n = 0;
  blanks(s);
  if (s->end - s->at > 4 && strncmp(s->at, "nan(", 4) == 0) {
    uint64_t bits;
    s->at += 4;
    SC_TRY(digits(s, &bits));
    memcpy(out, &bits, 8);
    return want(s, ')');
  }
  while (s->at + n < s->end && n + 1 < sizeof few && (letter(s->at[n]) || digit(s->at[n]) || s->at[n] == '.' || s->at[n] == '-' || s->at[n] == '+')) n++;
  memcpy(few, s->at, n);
  few[n] = 0;
  *out = strtod(few, &end);
  if (end == few || *end) return bad(s, "expected a number, got %s", few);
  if (strcmp(few, "nan") == 0) memcpy(out, &(uint64_t){0x7ff8000000000000u}, 8);
  s->at += n;
  return SC_OK;
}

static sc_status read_literal(shared *s, literal *out) {
  if (keyword(s, "true")) { *out = (literal){L_BOOL, 1, 1}; return SC_OK; }
  if (keyword(s, "false")) { *out = (literal){L_BOOL, 0, 0}; return SC_OK; }
  blanks(s);
  out->kind = is_float(s) ? L_FLOAT : L_INT;
  return out->kind == L_FLOAT ? real(s, &out->f) : size_text(s, &out->i, 0);
}

static sc_status number_tensor(shared *s, sc_tensor **out) {
  literal v;
  SC_TRY(read_literal(s, &v));
  SC_TRY(sc__tensor_scalar(s->ctx, v.kind != L_FLOAT, v.i, v.f, out));
  if (v.kind == L_BOOL) { (*out)->dtype = SC_BOOL; *(uint8_t *)(*out)->data = (uint8_t)v.i; }
  return SC_OK;
}

static sc_status type(shared *s, sc_meta *m) {
  sc_dtype d;
  if (!word(s) || !sc__dtype_from_name(s->name, &d)) return bad(s, "expected a dtype");
  m->dtype = d;
  SC_TRY(size_list(s, '{', '}', m->dim, &m->ndim));
  sc__contiguous_strides(m->ndim, m->dim, m->stride);
  m->offset = 0;
  int64_t numel;
  return sc__numel(s->ctx, "graph text", d, m->ndim, m->dim, &numel);
}

static sc_status maybe_stride(shared *s, sc_meta *m, bool *given) {
  int n;
  *given = keyword(s, "stride");
  if (!*given) return SC_OK;
  SC_TRY(size_list(s, '{', '}', m->stride, &n));
  if (n != m->ndim) return bad(s, "%d strides for %d dimensions", n, m->ndim);
  return SC_OK;
}

/* ---- values ---- */

static sc_status value_number(reader *r, uint64_t *out) {
  SC_TRY(want(r->s, '%'));
  SC_TRY(digits(r->s, out));
  return *out == 0 || *out > MOST_RESULTS ? bad(r->s, "a value's number is out of range") : SC_OK;
}

/* Takes t. */
static sc_status set_value(reader *r, uint64_t k, sc_tensor *t) {
  sc_status s = sc__grow(r->s->ctx, &r->value, (size_t)k, &r->room, sizeof *r->value);
  if (s == SC_OK && r->value[k]) s = bad(r->s, "%%%llu is defined twice", (unsigned long long)k);
  if (s != SC_OK) { sc_tensor_release(t); return s; }
  r->value[k] = t;
  return SC_OK;
}

static sc_status get_value(reader *r, uint64_t k, sc_tensor **out) {
  if (k >= r->room || !r->value[k]) return bad(r->s, "%%%llu is not defined yet", (unsigned long long)k);
  *out = r->value[k];
  return SC_OK;
}

static sc_status input(reader *r, uint64_t k) {
  sc_meta m;
  bool strided;
  sc_tensor *t;
  const char *name;
  SC_TRY(kept(r->s, &name));
  SC_TRY(type(r->s, &m));
  SC_TRY(maybe_stride(r->s, &m, &strided));
  if (strided) SC_TRY(sc__graph_strided_input(r->g, name, &m, &t));
  else SC_TRY(sc_graph_input(r->g, name, m.dtype, m.ndim, m.dim, &t));
  return set_value(r, k, t);
}

/* ---- captured tensors ---- */

typedef struct placed { const char *name; sc_meta m; bool strided; int64_t memory, at; } placed;

/* Bytes from the memory's start to the tensor's last element. */
static bool span(const placed *p, int64_t *out) {
  int64_t last = 0, step;
  bool empty = false;
  for (int i = 0; i < p->m.ndim; i++) {
    empty = empty || p->m.dim[i] == 0;
    if (p->m.dim[i] > 0 && (!sc__mul(p->m.dim[i] - 1, p->m.stride[i], &step) || __builtin_add_overflow(last, step, &last))) return false;
  }
  if (empty) last = -1;
  return sc__mul(last + 1, (int64_t)sc_dtype_size(p->m.dtype), out) && !__builtin_add_overflow(*out, p->at, out);
}

static sc_status new_block(shared *s, int64_t bytes, sc_tensor **out) {
  if (bytes > s->left) return bad(s, "captured tensors would take too much memory");
  SC_TRY(sc_tensor_new(s->ctx, SC_UINT8, 1, &bytes, out));
  memset((*out)->data, 0, (size_t)bytes);
  s->left -= bytes;
  return SC_OK;
}

/* The block of that memory, at least so many bytes. When it has to grow, the tensors that lie in it move. */
static sc_status block_of(shared *s, int64_t number, int64_t bytes, sc_tensor **out) {
  SC_TRY(sc__grow(s->ctx, &s->memory, (size_t)number, &s->room_memories, sizeof *s->memory));
  memory *m = &s->memory[number];
  if (m->block && m->block->numel >= bytes) { *out = m->block; return SC_OK; }
  sc_tensor *bigger;
  SC_TRY(new_block(s, bytes, &bigger));
  if (m->block) { memcpy(bigger->data, m->block->data, (size_t)m->block->numel); s->left += m->block->numel; }
  for (size_t i = 0; m->block && i < s->n_known; i++) {
    sc_tensor *t = s->known[i].t;
    if (t->storage != m->block->storage) continue;
    t->data = bigger->data + (t->data - m->block->data);
    atomic_fetch_add(&bigger->storage->refs, 1);
    atomic_fetch_sub(&m->block->storage->refs, 1);      /* the block itself still holds it */
    t->storage = bigger->storage;
  }
  sc_tensor_release(m->block);
  m->block = bigger;
  *out = bigger;
  return SC_OK;
}

/* A tensor laid out as the text says; its values are still to come. */
static sc_status lay_out(shared *s, const placed *p, sc_tensor **out) {
  int64_t bytes = 0, es = (int64_t)sc_dtype_size(p->m.dtype);
  sc_tensor *block;
  if (!span(p, &bytes) || p->at % es) return bad(s, "captured tensor \"%s\": its strides or its place are out of range", p->name);
  sc_meta m = p->m;
  if (p->memory) {
    SC_TRY(block_of(s, p->memory, bytes ? bytes : 1, &block));
    sc_tensor_retain(block);
  } else {
    SC_TRY(new_block(s, bytes ? bytes : 1, &block));
  }
  m.offset = p->at / es;
  sc_status st = sc__tensor_view(block, &m, out);
  sc_tensor_release(block);
  return st;
}

static sc_status known_as(shared *s, const placed *p, bool *found, sc_tensor **out) {
  *found = false;
  for (size_t i = 0; i < s->n_known; i++) {
    if (strcmp(s->known[i].name, p->name) != 0) continue;
    const sc_tensor *t = s->known[i].t;
    if (t->dtype != p->m.dtype || t->ndim != p->m.ndim || memcmp(t->dim, p->m.dim, (size_t)t->ndim * 8) != 0)
      return bad(s, "captured tensor \"%s\" is described in two ways", p->name);
    *out = sc_tensor_retain(s->known[i].t);
    *found = true;
  }
  return SC_OK;
}

static sc_status zeros(shared *s, const sc_meta *m, sc_tensor **out) {
  SC_TRY(sc_tensor_new(s->ctx, m->dtype, m->ndim, m->dim, out));
  if ((*out)->numel) memset((*out)->data, 0, (size_t)(*out)->numel * sc_dtype_size(m->dtype));
  return SC_OK;
}

/* The tensor: the one that was found when nothing is said about its layout, else one laid out so with its values. */
static sc_status make_capture(shared *s, const placed *p, sc_tensor **out) {
  sc_tensor *values = NULL;
  if (s->find) SC_TRY(s->find(s->user, p->name, &values));
  if (values && (values->dtype != p->m.dtype || values->ndim != p->m.ndim || memcmp(values->dim, p->m.dim, (size_t)values->ndim * 8) != 0)) {
    sc_tensor_release(values);
    return bad(s, "captured tensor \"%s\" has another dtype or shape than its values", p->name);
  }
  if ((!p->memory && !p->strided) || (values && s->as_given)) {
    *out = values;
    return values ? SC_OK : zeros(s, &p->m, out);
  }
  sc_status st = lay_out(s, p, out);
  if (st == SC_OK && values) {
    st = sc__tensor_copy(*out, values);
    if (st != SC_OK) sc_tensor_release(*out);
  }
  sc_tensor_release(values);
  return st;
}

static sc_status remember(shared *s, const char *name, sc_tensor *t) {
  SC_TRY(sc__grow(s->ctx, &s->known, s->n_known, &s->room_known, sizeof *s->known));
  s->known[s->n_known++] = (known){name, sc_tensor_retain(t)};
  return SC_OK;
}

static sc_status in_graph(reader *r, sc_tensor *t, const char *name, bool grad) {
  int32_t v;
  if (t->graph) return bad(r->s, "captured tensor \"%s\" is symbolic", name);
  SC_TRY(sc__graph_value(r->g, t, &v));
  r->g->value[v].name = name;
  r->g->value[v].requires = grad;
  return SC_OK;
}

static sc_status captured(reader *r, uint64_t k) {
  shared *s = r->s;
  placed p = {0};
  bool found;
  sc_tensor *t = NULL;
  SC_TRY(kept(s, &p.name));
  SC_TRY(type(s, &p.m));
  SC_TRY(maybe_stride(s, &p.m, &p.strided));
  if (keyword(s, "memory")) {
    SC_TRY(counted(s, MOST_MEMORIES, &p.memory));
    if (!keyword(s, "at") || !p.memory) return bad(s, "expected: memory NUMBER at BYTES");
    SC_TRY(counted(s, INT64_MAX, &p.at));
  }
  bool grad = keyword(s, "grad");
  SC_TRY(known_as(s, &p, &found, &t));
  if (!found) {
    SC_TRY(make_capture(s, &p, &t));
    sc_status st = remember(s, p.name, t);
    if (st == SC_OK && grad && sc__is_float((sc_dtype)t->dtype) && !s->find) st = sc_set_requires_grad(t, true);
    if (st != SC_OK) { sc_tensor_release(t); return st; }
  }
  sc_status st = in_graph(r, t, p.name, grad && sc_requires_grad(t));
  if (st != SC_OK) { sc_tensor_release(t); return st; }
  return set_value(r, k, t);
}

static sc_status number_value(reader *r, uint64_t k) {
  sc_tensor *t;
  int32_t v;
  SC_TRY(number_tensor(r->s, &t));
  sc_status st = sc__graph_value(r->g, t, &v);
  if (st != SC_OK) { sc_tensor_release(t); return st; }
  return set_value(r, k, t);
}

/* ---- attributes ---- */

static sc_status bad_kind(shared *s, const sc_opinfo *op, const sc_param *p) { return bad(s, "%s: attribute %s has a value of the wrong kind", op->name, p->name); }

/* Whether a parameter can have an attribute of that kind; kernels rely on it. */
static bool fits(const sc_param *p, const sc_attr *a) {
  switch (a->kind) {
    case SC_ATTR_NONE: return !p->required && p->preset.kind == SC_ATTR_NONE;
    case SC_ATTR_INT: return p->type == SC_P_INT || p->type == SC_P_DIM || p->type == SC_P_INDEX || p->type == SC_P_NUMBER ||
                              (p->type == SC_P_DIMS && p->optional);       /* read by sc__dims, which takes one for a list */
    case SC_ATTR_FLOAT: return p->type == SC_P_FLOAT || p->type == SC_P_NUMBER;
    case SC_ATTR_BOOL: return p->type == SC_P_BOOL || p->type == SC_P_NUMBER;
    case SC_ATTR_STRING: return p->type == SC_P_STRING || p->words;
    case SC_ATTR_DTYPE: return p->type == SC_P_DTYPE;
    case SC_ATTR_INTS: return (p->type == SC_P_INTS || p->type == SC_P_DIMS || p->type == SC_P_SHAPE) && (!p->length || p->length == a->n);
    case SC_ATTR_FLOATS: return p->type == SC_P_FLOATS && (!p->length || p->length == a->n);
    case SC_ATTR_GENERATOR: return p->type == SC_P_GENERATOR;
    case SC_ATTR_GRAPH: return p->type == SC_P_ANY;
    default: return false;
  }
}

typedef struct attributes { sc_attr attr[SC_MAX_ATTRS]; int64_t list[SC_MAX_ATTRS][SC_MAX_DIMS]; } attributes;

static sc_status read_list(shared *s, const sc_param *p, int64_t *list, sc_attr *a) {
  if (p->type != SC_P_FLOATS) {
    SC_TRY(size_list(s, '[', ']', list, &a->n));
    *a = sc__ints(list, a->n);
    return SC_OK;
  }
  SC_TRY(want(s, '['));
  take(s, '.');
  *a = (sc_attr){.kind = SC_ATTR_FLOATS, .v = list};
  for (; !take(s, ']'); a->n++) {
    double f;
    if (a->n == SC_MAX_DIMS) return bad(s, "a list is too long");
    if (a->n) SC_TRY(want(s, ','));
    SC_TRY(real(s, &f));
    memcpy(&list[a->n], &f, 8);
  }
  return SC_OK;
}

static sc_status read_word(shared *s, sc_attr *a) {
  const char *text;
  SC_TRY(kept(s, &text));
  *a = sc__str(text);
  return SC_OK;
}

static sc_status generator(reader *r, sc_attr *a) {
  uint64_t k;
  SC_TRY(want(r->s, '~'));
  SC_TRY(digits(r->s, &k));
  if (k == 0 || k > (uint64_t)r->s->n_generators) return bad(r->s, "there is no generator %llu", (unsigned long long)k);
  *a = (sc_attr){.kind = SC_ATTR_GENERATOR, .p = (sc_generator *)r->s->generators->data + (k - 1)};
  return SC_OK;
}

static sc_status program(reader *r, sc_attr *a) {
  uint64_t k;
  SC_TRY(want(r->s, '@'));
  SC_TRY(digits(r->s, &k));
  if (k == 0 || k > r->n_programs) return bad(r->s, "there is no program %llu", (unsigned long long)k);
  *a = (sc_attr){.kind = SC_ATTR_GRAPH, .p = r->program[k - 1]};
  return SC_OK;
}

static sc_status attribute_value(reader *r, const sc_param *p, int64_t *list, sc_attr *a) {
  shared *s = r->s;
  sc_dtype d;
  literal v;
  if (keyword(s, "nil")) { *a = sc__none(); return SC_OK; }
  if (peek(s, '[')) return read_list(s, p, list, a);
  if (peek(s, '"')) return read_word(s, a);
  if (peek(s, '~')) return generator(r, a);
  if (peek(s, '@')) return program(r, a);
  if (p->type == SC_P_DTYPE) {
    if (!word(s) || !sc__dtype_from_name(s->name, &d)) return bad(s, "expected a dtype");
    *a = sc__dtype(d);
    return SC_OK;
  }
  SC_TRY(read_literal(s, &v));
  *a = v.kind == L_FLOAT ? sc__float(v.f) : v.kind == L_INT ? sc__int(v.i) : sc__bool(v.i);
  return SC_OK;
}

static sc_status read_attributes(reader *r, const sc_opinfo *op, attributes *all) {
  shared *s = r->s;
  bool given[SC_MAX_ATTRS] = {0};
  sc__attr_defaults(op, all->attr);
  if (take(s, '{'))
    for (bool first = true; !take(s, '}'); first = false) {
      int k = 0;
      if (!first) SC_TRY(want(s, ','));
      if (!word(s)) return bad(s, "%s: expected the name of an attribute", op->name);
      while (k < op->n_attr && strcmp(op->param[op->attr_param[k]].name, s->name) != 0) k++;
      if (k == op->n_attr) return bad(s, "%s has no attribute %s", op->name, s->name);
      if (given[k]) return bad(s, "%s: attribute %s is given twice", op->name, s->name);
      const sc_param *p = &op->param[op->attr_param[k]];
      SC_TRY(want(s, '='));
      SC_TRY(attribute_value(r, p, all->list[k], &all->attr[k]));
      if (!fits(p, &all->attr[k])) return bad_kind(s, op, p);
      given[k] = true;
    }
  for (int k = 0; k < op->n_attr; k++)
    if (op->param[op->attr_param[k]].required && !given[k]) return bad(s, "%s: attribute %s is missing", op->name, op->param[op->attr_param[k]].name);
  return SC_OK;
}

/* ---- nodes ---- */

typedef struct operands { sc_tensor **t; sc_tensor **made; int n; size_t room, room_made; uint64_t first; } operands;

static sc_status operand(reader *r, operands *o) {
  shared *s = r->s;
  uint64_t k;
  sc_tensor *t = NULL;
  SC_TRY(sc__grow(s->ctx, &o->t, (size_t)o->n, &o->room, sizeof *o->t));
  SC_TRY(sc__grow(s->ctx, &o->made, (size_t)o->n, &o->room_made, sizeof *o->made));
  if (peek(s, '%')) {
    SC_TRY(value_number(r, &k));
    SC_TRY(get_value(r, k, &t));
    if (o->n == 0) o->first = k;
  } else if (!keyword(s, "nil")) {
    SC_TRY(number_tensor(s, &t));
    o->made[o->n] = t;
  }
  o->t[o->n++] = t;
  return SC_OK;
}

static sc_status read_operands(reader *r, operands *o) {
  shared *s = r->s;
  SC_TRY(want(s, '('));
  while (!take(s, ')')) {
    if (o->n) SC_TRY(want(s, ','));
    if (o->n == MOST_RESULTS) return bad(s, "too many operands");
    SC_TRY(operand(r, o));
  }
  return SC_OK;
}

static sc_status check_operands(reader *r, const sc_opinfo *op, const operands *o) {
  int lists = op->variadic ? op->n_in - 1 : op->n_in;
  if (op->variadic ? o->n < lists : o->n != op->n_in) return bad(r->s, "%s: %d operands, expected %d", op->name, o->n, lists);
  for (int i = 0; i < o->n; i++)
    if (!o->t[i] && (i >= op->n_in || op->param[op->in_param[i]].required || op->param[op->in_param[i]].type == SC_P_TENSORS))
      return bad(r->s, "%s: operand %d is missing", op->name, i + 1);
  return SC_OK;
}

static void let_go(reader *r, operands *o) {
  for (int i = 0; i < o->n; i++) sc_tensor_release(o->made[i]);
  sc__release(r->s->ctx, o->t, o->room * sizeof *o->t);
  sc__release(r->s->ctx, o->made, o->room_made * sizeof *o->made);
}

/* The node's results are as the text says, where it says something; then they get their numbers. out: taken. */
static sc_status name_results(reader *r, const sc_opinfo *op, const uint64_t *number, int n, const operands *o, sc_tensor **out, int n_out) {
  shared *s = r->s;
  sc_status st = n == n_out ? SC_OK : bad(s, "%s has %d results, expected %d", op->name, n_out, n);
  if (st == SC_OK && take(s, ':'))
    for (int i = op->inplace; i < n && st == SC_OK; i++) {
      sc_meta m = {0};
      char said[200], is[200];
      if (i > op->inplace) st = want(s, ',');
      if (st == SC_OK) st = type(s, &m);
      if (st == SC_OK && (m.dtype != out[i]->dtype || m.ndim != out[i]->ndim || memcmp(m.dim, out[i]->dim, (size_t)m.ndim * 8) != 0))
        st = bad(s, "%s: the result is %s %s, expected %s %s", op->name, sc_dtype_name((sc_dtype)out[i]->dtype),
                 sc__shape_text(out[i]->ndim, out[i]->dim, is, sizeof is), sc_dtype_name(m.dtype), sc__shape_text(m.ndim, m.dim, said, sizeof said));
    }
  if (st == SC_OK && op->inplace && (o->n == 0 || number[0] != o->first)) st = bad(s, "%s: the result of an in-place op is its first operand", op->name);
  for (int i = 0; i < n_out; i++) {
    if (st != SC_OK || (op->inplace && i == 0)) sc_tensor_release(out[i]);
    else st = set_value(r, number[i], out[i]);
  }
  return st;
}

static sc_status place(reader *r, sc_origin *out) {
  int64_t line;
  *out = (sc_origin){0};
  if (keyword(r->s, "at")) {
    SC_TRY(kept(r->s, &out->file));
    SC_TRY(want(r->s, ':'));
    SC_TRY(counted(r->s, INT32_MAX, &line));
    out->line = (int)line;
  }
  if (keyword(r->s, "in")) SC_TRY(kept(r->s, &out->module));
  out->backward = keyword(r->s, "backward");
  return SC_OK;
}

static sc_status emit(reader *r, const sc_opinfo *op, const attributes *a, const operands *o, const uint64_t *number, int n) {
  sc_context *ctx = r->s->ctx;
  sc_tensor *out[SC_MAX_OUTPUTS];
  sc_origin where;
  int n_out = 0;
  size_t before = r->g->n_nodes;
  ctx->index_base = r->base;
  SC_TRY(sc__emit(ctx, op, o->t, o->n, a->attr, r->base, out, &n_out));
  SC_TRY(name_results(r, op, number, n, o, out, n_out));
  SC_TRY(place(r, &where));
  for (; before < r->g->n_nodes; before++) r->g->node[before].where = where;
  return SC_OK;
}

static sc_status node(reader *r, const uint64_t *number, int n) {
  shared *s = r->s;
  operands o = {0};
  if (!word(s)) return bad(s, "expected an op");
  const sc_opinfo *op = sc__op_find(s->ctx, s->name);
  if (!op) return bad(s, "there is no op named %s", s->name);
  attributes *a = sc__alloc(s->ctx, sizeof *a);
  if (!a) return sc__no_memory(s->ctx, sizeof *a);
  sc_status st = read_operands(r, &o);
  if (st == SC_OK) st = check_operands(r, op, &o);
  if (st == SC_OK) st = read_attributes(r, op, a);
  if (st == SC_OK) st = emit(r, op, a, &o, number, n);
  let_go(r, &o);
  sc__release(s->ctx, a, sizeof *a);
  return st;
}

static sc_status results(reader *r, uint64_t *number, int *n) {
  for (*n = 0; ; ) {
    if (*n == SC_MAX_OUTPUTS) return bad(r->s, "too many results");
    SC_TRY(value_number(r, &number[(*n)++]));
    if (!take(r->s, ',')) return want(r->s, '=');
  }
}

/* ---- generators, programs ---- */

static sc_status new_generator(reader *r) {
  shared *s = r->s;
  uint64_t k, seed, offset;
  SC_TRY(want(s, '~'));
  SC_TRY(digits(s, &k));
  SC_TRY(want(s, '='));
  if (!keyword(s, "generator")) return bad(s, "expected: generator SEED OFFSET");
  SC_TRY(digits(s, &seed));
  SC_TRY(digits(s, &offset));
  if (k != (uint64_t)s->n_generators + 1 || s->n_generators == s->generators->dim[0]) return bad(s, "generators are numbered from 1 on, %d at most", (int)s->generators->dim[0]);
  ((sc_generator *)s->generators->data)[s->n_generators++] = (sc_generator){seed, offset};
  return SC_OK;
}

static sc_status graph(shared *s, bool nested, sc_graph **out);

static sc_status program_settings(shared *s, sc_control *like) {
  int64_t n;
  if (!take(s, '{')) return SC_OK;
  for (bool first = true; !take(s, '}'); first = false) {
    if (!first) SC_TRY(want(s, ','));
    if (!word(s)) return bad(s, "expected a setting");
    char name[16];
    snprintf(name, sizeof name, "%.15s", s->name);
    SC_TRY(want(s, '='));
    bool *flag = strcmp(name, "reverse") == 0 ? &like->reverse : strcmp(name, "keep") == 0 ? &like->keep : strcmp(name, "replay") == 0 ? &like->replay : NULL;
    int *count = strcmp(name, "carry") == 0 ? &like->n_carry : strcmp(name, "x") == 0 ? &like->n_x : strcmp(name, "dy") == 0 ? &like->n_dy : NULL;
    if (flag) { *flag = keyword(s, "true"); if (!*flag && !keyword(s, "false")) return bad(s, "expected true or false"); }
    else if (count) { SC_TRY(counted(s, 1 << 16, &n)); *count = (int)n; }
    else if (strcmp(name, "rounds") == 0) SC_TRY(size_text(s, &like->rounds, 0));
    else return bad(s, "there is no setting named %s", name);
  }
  return like->rounds < 0 ? bad(s, "rounds cannot be negative") : SC_OK;
}

static sc_status program_graphs(shared *s, sc_control *like, sc_graph **graphs) {
  for (; peek(s, '[') && like->n_graphs < 2; like->n_graphs++) {
    SC_TRY(want(s, '['));
    SC_TRY(graph(s, true, &graphs[like->n_graphs]));
    SC_TRY(want(s, ']'));
  }
  return like->n_graphs == (like->kind == SC_CONTROL_SCAN ? 1 : 2) ? SC_OK : bad(s, "the wrong number of graphs");
}

static sc_status new_program(reader *r) {
  static const char *const KINDS[] = {"cond", "while", "scan", "while_backward"};
  shared *s = r->s;
  uint64_t k;
  sc_control like = {0}, *p = NULL;
  sc_graph *graphs[2] = {NULL, NULL};
  SC_TRY(want(s, '@'));
  SC_TRY(digits(s, &k));
  SC_TRY(want(s, '='));
  if (k != r->n_programs + 1) return bad(s, "programs are numbered from 1 on");
  if (!word(s)) return bad(s, "expected a kind of program");
  while (like.kind < SC_CONTROL_KINDS && strcmp(KINDS[like.kind], s->name) != 0) like.kind++;
  if (like.kind == SC_CONTROL_KINDS) return bad(s, "there is no program of kind %s", s->name);
  SC_TRY(program_settings(s, &like));
  sc_status st = sc__grow(s->ctx, &r->program, r->n_programs, &r->room_programs, sizeof *r->program);
  if (st == SC_OK) st = program_graphs(s, &like, graphs);
  if (st == SC_OK) st = sc__control_new(s->ctx, &like, graphs, &p);
  if (st == SC_OK) r->program[r->n_programs++] = p;
  for (int i = 0; i < 2; i++) sc_graph_release(graphs[i]);
  return st;
}

/* ---- statements ---- */

static sc_status output(reader *r) {
  uint64_t k;
  sc_tensor *t = NULL;
  const char *name;
  SC_TRY(kept(r->s, &name));
  for (size_t i = 0; i < r->g->n_outputs; i++)
    if (strcmp(r->g->output[i].name, name) == 0) return bad(r->s, "output \"%s\" is given twice", name);
  SC_TRY(value_number(r, &k));
  SC_TRY(get_value(r, k, &t));
  return sc_graph_output(r->g, name, t);
}

static sc_status base(reader *r) {
  int64_t b;
  SC_TRY(counted(r->s, 1, &b));
  r->base = (uint8_t)b;
  return SC_OK;
}

static sc_status size(reader *r) {
  shared *s = r->s;
  if (r->g->n_values || s->depth > 1) return bad(s, "sizes come first");
  if (s->n_sizes == SC_SYMBOLS) return bad(s, "at most %d sizes have names", SC_SYMBOLS);
  if (peek(s, '\'')) SC_TRY(string(s, '\''));
  else if (!word(s)) return bad(s, "expected the name of a size");
  for (int k = 0; k < s->n_sizes; k++) if (strcmp(s->size_name[k], s->name) == 0) return bad(s, "size %s is given twice", s->name);
  s->size_name[s->n_sizes] = sc__intern(s->ctx, s->name);
  if (!s->size_name[s->n_sizes]) return sc__no_memory(s->ctx, 64);
  s->n_sizes++;
  return SC_OK;
}

static sc_status statement(reader *r) {
  shared *s = r->s;
  uint64_t number[SC_MAX_OUTPUTS];
  int n;
  if (peek(s, '~')) return new_generator(r);
  if (peek(s, '@')) return new_program(r);
  if (peek(s, '%')) {
    SC_TRY(results(r, number, &n));
    if (n == 1 && keyword(s, "input")) return input(r, number[0]);
    if (n == 1 && keyword(s, "capture")) return captured(r, number[0]);
    if (n == 1 && keyword(s, "number")) return number_value(r, number[0]);
    return node(r, number, n);
  }
  if (!word(s)) return bad(s, "expected a statement");
  if (strcmp(s->name, "output") == 0) return output(r);
  if (strcmp(s->name, "base") == 0) return base(r);
  if (strcmp(s->name, "size") == 0) return size(r);
  if (sc__op_find(s->ctx, s->name)) { s->at -= strlen(s->name); return node(r, NULL, 0); }
  return bad(s, "expected a statement, got %s", s->name);
}

static void reader_end(reader *r) {
  sc_context *ctx = r->s->ctx;
  for (size_t i = 0; i < r->room; i++) sc_tensor_release(r->value[i]);
  for (size_t i = 0; i < r->n_programs; i++) sc__control_release(r->program[i]);
  sc__release(ctx, r->value, r->room * sizeof *r->value);
  sc__release(ctx, r->program, r->room_programs * sizeof *r->program);
}

/* A graph, up to the end of the text or a closing bracket. */
static sc_status graph(shared *s, bool nested, sc_graph **out) {
  reader r = {.s = s};
  sc_context *ctx = s->ctx;
  if (s->depth == MOST_DEEP) return bad(s, "graphs are nested too deep");
  SC_TRY(sc_graph_new(ctx, &r.g));
  s->depth++;
  sc__emitting was = sc__emit_into(r.g);
  sc_status st = SC_OK;
  r.g->generators = sc_tensor_retain(s->generators);
  for (blanks(s); st == SC_OK && s->at < s->end && !(nested && *s->at == ']'); blanks(s)) st = statement(&r);
  sc__emit_into_end(ctx, &was);
  s->depth--;
  reader_end(&r);
  if (st != SC_OK) { sc_graph_release(r.g); return st; }
  for (int k = 0; k < s->n_sizes; k++) r.g->size_name[k] = s->size_name[k];
  r.g->n_sizes = s->n_sizes;
  *out = r.g;
  return SC_OK;
}

static sc_status header(shared *s) {
  int64_t version;
  if (!keyword(s, "sconce")) return SC_OK;
  if (!keyword(s, "graph")) return bad(s, "expected: sconce graph 1");
  SC_TRY(integer(s, &version));
  return version == 1 ? SC_OK : bad(s, "a graph of version %lld; this reads version 1", (long long)version);
}

static void shared_end(shared *s) {
  for (size_t i = 0; i < s->n_known; i++) sc_tensor_release(s->known[i].t);
  for (size_t i = 0; i < s->room_memories; i++) sc_tensor_release(s->memory[i].block);
  sc__release(s->ctx, s->known, s->room_known * sizeof *s->known);
  sc__release(s->ctx, s->memory, s->room_memories * sizeof *s->memory);
  sc__release(s->ctx, s->name, MOST_NAME);
  sc_tensor_release(s->generators);
}

sc_status sc__graph_read(sc_context *ctx, const char *text, size_t size, sc__capture_fn find, void *user, int64_t room, sc_graph **out) {
  shared s = {.ctx = ctx, .at = text, .end = text + size, .line = 1, .find = find, .user = user, .left = room, .as_given = !room, .name = sc__alloc(ctx, MOST_NAME)};
  if (!s.name) return sc__no_memory(ctx, MOST_NAME);
  uint8_t index_base = ctx->index_base;
  sc_status st = sc_tensor_new(ctx, SC_INT64, 2, (int64_t[]){64, 2}, &s.generators);
  if (st == SC_OK) st = header(&s);
  if (st == SC_OK) st = graph(&s, false, out);
  ctx->index_base = index_base;
  shared_end(&s);
  return st;
}
