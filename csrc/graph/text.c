/* A graph printed; text.h says what it looks like. Values are numbered in the order of printing, so that what is read back prints
** the same. */
#include "text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control.h"

/* ---- a text that grows ---- */

void sc__text_free(sc__text *t) {
  sc__release(t->ctx, t->at, t->room);
  t->at = NULL;
}

static bool room(sc__text *t, size_t more) {
  if (t->failed != SC_OK) return false;
  t->failed = sc__grow(t->ctx, &t->at, t->n + more, &t->room, 1);
  return t->failed == SC_OK;
}

static void put(sc__text *t, const char *s, size_t n) {
  if (!room(t, n)) return;
  memcpy(t->at + t->n, s, n);
  t->n += n;
  t->at[t->n] = 0;
}

static void say(sc__text *t, const char *format, ...) SC_FORMAT(2, 3);
static void say(sc__text *t, const char *format, ...) {
  char few[200];
  va_list ap;
  va_start(ap, format);
  int n = vsnprintf(few, sizeof few, format, ap);
  va_end(ap);
  put(t, few, n < (int)sizeof few ? (size_t)n : sizeof few - 1);
}

static void quoted(sc__text *t, const char *s, char mark) {
  put(t, &mark, 1);
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c < 32 || c == 127) say(t, "\\x%02x", c);
    else { if (c == (unsigned char)mark || c == '\\') put(t, "\\", 1); put(t, s, 1); }
  }
  put(t, &mark, 1);
}

/* The shortest decimal that reads back as the same bits, with a mark of being a float. */
static void real(sc__text *t, double f) {
  char few[40];
  uint64_t bits;
  memcpy(&bits, &f, 8);
  if (isnan(f)) { if (bits == 0x7ff8000000000000u) say(t, "nan"); else say(t, "nan(%llu)", (unsigned long long)bits); return; }
  if (isinf(f)) { say(t, f < 0 ? "-inf" : "inf"); return; }
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(few, sizeof few, "%.*g", digits, f);
    if (strtod(few, NULL) == f) break;
  }
  say(t, "%s%s", few, strpbrk(few, ".e") ? "" : ".0");
}

/* ---- captured tensors ---- */

static bool add_capture(sc_context *ctx, sc__captures *c, sc_tensor *t, const char *name) {
  for (size_t i = 0; i < c->n; i++) if (c->list[i].t == t) { if (!c->list[i].name) c->list[i].name = name; return true; }
  if (sc__grow(ctx, &c->list, c->n, &c->room, sizeof *c->list) != SC_OK) return false;
  c->list[c->n++] = (sc__captured){.t = t, .name = name};
  return true;
}

static bool collect(const sc_graph *g, sc__captures *c) {
  for (size_t v = 0; v < g->n_values; v++) {
    const sc_value *x = &g->value[v];
    if (x->kind == SC_VALUE_CAPTURE && !(x->captured->flags & SC_T_WRAPPED) && !add_capture(g->ctx, c, x->captured, x->name)) return false;
  }
  for (size_t k = 0; k < g->n_nodes; k++) {
    const sc_control *p = sc__node_control(&g->node[k]);
    for (int i = 0; p && i < p->n_graphs; i++) if (!collect(p->graph[i], c)) return false;
  }
  return true;
}

static bool name_taken(const sc__captures *c, const char *name, size_t but) {
  for (size_t i = 0; i < c->n; i++) if (i != but && c->list[i].name && strcmp(c->list[i].name, name) == 0) return true;
  return false;
}

static sc_status name_all(sc_context *ctx, sc__captures *c) {
  size_t next = 1;
  for (size_t i = 0; i < c->n; i++) {
    char name[32];
    if (c->list[i].name && !name_taken(c, c->list[i].name, i)) continue;
    do snprintf(name, sizeof name, "c%zu", next++); while (name_taken(c, name, i));
    c->list[i].name = sc__intern(ctx, name);
    if (!c->list[i].name) return sc__no_memory(ctx, 64);
  }
  return SC_OK;
}

/* Which of them share memory, and where they lie in what they span together. */
static void share(sc__captures *c) {
  int memories = 0;
  for (size_t i = 0; i < c->n; i++) {
    const char *lowest = c->list[i].t->data;
    bool shared = false;
    if (c->list[i].memory) continue;
    for (size_t k = 0; k < c->n; k++)
      if (k != i && c->list[k].t->storage == c->list[i].t->storage) {
        shared = true;
        if (c->list[k].t->data < lowest) lowest = c->list[k].t->data;
      }
    if (!shared) { c->list[i].memory = c->list[i].t->contiguous ? 0 : -1; continue; }
    memories++;
    for (size_t k = i; k < c->n; k++)
      if (c->list[k].t->storage == c->list[i].t->storage) { c->list[k].memory = memories; c->list[k].at = c->list[k].t->data - lowest; }
  }
}

sc_status sc__graph_captures(const sc_graph *g, sc__captures *out) {
  *out = (sc__captures){0};
  sc_status s = collect(g, out) ? name_all(g->ctx, out) : sc__no_memory(g->ctx, 64);
  if (s != SC_OK) { sc__captures_free(g->ctx, out); return s; }
  share(out);
  return SC_OK;
}

void sc__captures_free(sc_context *ctx, sc__captures *c) {
  sc__release(ctx, c->list, c->room * sizeof *c->list);
  *c = (sc__captures){0};
}

static void apply_names(sc_graph *g, const sc__captures *c) {
  for (size_t v = 0; v < g->n_values; v++)
    for (size_t i = 0; g->value[v].kind == SC_VALUE_CAPTURE && i < c->n; i++)
      if (c->list[i].t == g->value[v].captured) g->value[v].name = c->list[i].name;
  for (size_t k = 0; k < g->n_nodes; k++) {
    const sc_control *p = sc__node_control(&g->node[k]);
    for (int i = 0; p && i < p->n_graphs; i++) apply_names(p->graph[i], c);
  }
}

sc_status sc__graph_name_all(sc_graph *g) {
  sc__captures c;
  SC_TRY(sc__graph_captures(g, &c));
  apply_names(g, &c);
  sc__captures_free(g->ctx, &c);
  return SC_OK;
}

static void name_in(sc_graph *g, const sc_tensor *t, const char *name) {
  for (size_t v = 0; v < g->n_values; v++)
    if (g->value[v].kind == SC_VALUE_CAPTURE && g->value[v].captured == t) g->value[v].name = name;
  for (size_t k = 0; k < g->n_nodes; k++) {
    const sc_control *p = sc__node_control(&g->node[k]);
    for (int i = 0; p && i < p->n_graphs; i++) name_in(p->graph[i], t, name);
  }
}

sc_status sc__graph_name(sc_graph *g, const sc_tensor *t, const char *name) {
  const char *text = sc__intern(g->ctx, name);
  if (!text) return sc__no_memory(g->ctx, 64);
  name_in(g, t, text);
  return SC_OK;
}

/* ---- the printer ---- */

typedef struct printer {
  sc__text *t;
  const sc_graph *g;
  const sc_graph *sizes;         /* that has the names of sizes */
  const sc__captures *captures;
  int32_t *number;               /* [n_values] printed as; 0: not yet, -1: stands where it is used */
  int32_t next;
  int depth, base;
  const sc_control **program;    /* [n_programs] in this graph */
  int n_programs;
  const sc_generator **generator;          /* shared by all graphs of the text */
  int *n_generators;
} printer;

enum { MOST_GENERATORS = 64, MOST_DEEP = 16 };

static void margin(printer *p) { for (int i = 0; i < p->depth; i++) put(p->t, "  ", 2); }

static bool plain_word(const char *s) {
  static const char *const KEPT[] = {"true", "false", "nil", "inf", "nan"};
  sc_dtype d;
  if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_') || sc__dtype_from_name(s, &d)) return false;
  for (int i = 0; i < SC_COUNT(KEPT); i++) if (strcmp(s, KEPT[i]) == 0) return false;
  for (; *s; s++) if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || (*s >= '0' && *s <= '9') || *s == '_')) return false;
  return true;
}

static void symbol(printer *p, int k) {
  const char *name = p->sizes->size_name[k];
  if (plain_word(name)) put(p->t, name, strlen(name)); else quoted(p->t, name, '\'');
}

/* An integer, as what follows from named sizes where it holds a stand-in. */
static void whole(printer *p, int64_t v) {
  int k;
  int64_t q, r, deeper, rest;
  if (!sc__size_term(p->sizes->n_sizes, v, &k, &q, &r)) { say(p->t, "%lld", (long long)v); return; }
  int inner;
  symbol(p, k);
  if (q != 1) {
    bool nested = sc__size_term(p->sizes->n_sizes, q, &inner, &deeper, &rest) && (rest || deeper != 1);
    put(p->t, nested ? "*(" : "*", nested ? 2 : 1);
    whole(p, q);
    if (nested) put(p->t, ")", 1);
  }
  if (r) say(p->t, "%+lld", (long long)r);
}

static void sizes(printer *p, const int64_t *v, int n) {
  put(p->t, "{", 1);
  for (int i = 0; i < n; i++) { if (i) put(p->t, ", ", 2); whole(p, v[i]); }
  put(p->t, "}", 1);
}

static void type(printer *p, const sc_value *v) {
  say(p->t, "%s ", sc_dtype_name((sc_dtype)v->dtype));
  sizes(p, v->dim, v->ndim);
}

static void strides(printer *p, int ndim, const int64_t *dim, const int64_t *stride) {
  int64_t packed[SC_MAX_DIMS];
  sc__contiguous_strides(ndim, dim, packed);
  if (ndim == 0 || memcmp(packed, stride, (size_t)ndim * 8) == 0) return;
  put(p->t, " stride ", 8);
  sizes(p, stride, ndim);
}

static void number(printer *p, const sc_tensor *t) {
  if (t->dtype == SC_BOOL) say(p->t, *(const uint8_t *)t->data ? "true" : "false");
  else if (t->dtype == SC_INT64) whole(p, *(const int64_t *)t->data);
  else real(p->t, *(const double *)t->data);
}

static bool is_number(const sc_value *v) { return v->kind == SC_VALUE_CAPTURE && v->captured->flags & SC_T_WRAPPED; }

/* Numbers that one node reads, once, stand there. */
static void numbers_in_place(printer *p) {
  const sc_graph *g = p->g;
  for (size_t k = 0; k < g->n_nodes; k++)
    for (int i = 0; i < g->node[k].n_in; i++) {
      int32_t v = g->node[k].in[i];
      if (v >= 0 && is_number(&g->value[v])) p->number[v]--;
    }
  for (size_t i = 0; i < g->n_outputs; i++) if (is_number(&g->value[g->output[i].value])) p->number[g->output[i].value] -= 2;
  for (size_t v = 0; v < g->n_values; v++) if (p->number[v] < -1) p->number[v] = 0;
}

static void define(printer *p, int32_t v) {
  margin(p);
  p->number[v] = ++p->next;
  say(p->t, "%%%d = ", (int)p->next);
}

static void inputs(printer *p) {
  const sc_graph *g = p->g;
  for (size_t i = 0; i < g->n_inputs; i++) {
    const sc_value *x = &g->value[g->input[i]];
    define(p, g->input[i]);
    put(p->t, "input ", 6);
    quoted(p->t, x->name, '"');
    put(p->t, " ", 1);
    type(p, x);
    strides(p, x->ndim, x->dim, x->dim + x->ndim);
    put(p->t, "\n", 1);
  }
}

static void capture(printer *p, const sc_value *x) {
  size_t i = 0;
  while (p->captures->list[i].t != x->captured) i++;
  const sc__captured *c = &p->captures->list[i];
  put(p->t, "capture ", 8);
  quoted(p->t, c->name, '"');
  put(p->t, " ", 1);
  type(p, x);
  if (c->memory) strides(p, x->ndim, x->dim, sc__stride(x->captured));
  if (c->memory > 0) say(p->t, " memory %d at %lld", c->memory, (long long)c->at);
  if (x->requires) put(p->t, " grad", 5);
}

static void captures(printer *p) {
  for (size_t v = 0; v < p->g->n_values; v++) {
    const sc_value *x = &p->g->value[v];
    if (x->kind != SC_VALUE_CAPTURE || p->number[v]) continue;
    define(p, (int32_t)v);
    if (is_number(x)) { put(p->t, "number ", 7); number(p, x->captured); }
    else capture(p, x);
    put(p->t, "\n", 1);
  }
}

static int generator_number(printer *p, const void *at) {
  for (int i = 0; i < *p->n_generators; i++) if (p->generator[i] == at) return i + 1;
  if (*p->n_generators == MOST_GENERATORS) { p->t->failed = sc__fail(p->g->ctx, SC_EINVAL, "graph: too many generators to be printed"); return 0; }
  p->generator[(*p->n_generators)++] = at;
  return -*p->n_generators;
}

static int program_number(printer *p, const sc_control *c) {
  for (int i = 0; i < p->n_programs; i++) if (p->program[i] == c) return i + 1;
  p->program[p->n_programs++] = c;
  return -p->n_programs;
}

static void value(printer *p, const sc_attr *a) {
  switch (a->kind) {
    case SC_ATTR_INT: whole(p, a->i); break;
    case SC_ATTR_FLOAT: real(p->t, a->f); break;
    case SC_ATTR_BOOL: say(p->t, a->i ? "true" : "false"); break;
    case SC_ATTR_STRING: quoted(p->t, a->s, '"'); break;
    case SC_ATTR_DTYPE: say(p->t, "%s", sc_dtype_name((sc_dtype)a->i)); break;
    case SC_ATTR_INTS:
    case SC_ATTR_FLOATS:
      put(p->t, "[", 1);
      for (int i = 0; i < a->n; i++) {
        if (i) put(p->t, ", ", 2);
        if (a->kind == SC_ATTR_INTS) whole(p, a->v[i]); else real(p->t, a->fv[i]);
      }
      put(p->t, a->kind == SC_ATTR_FLOATS && a->n == 0 ? ".]" : "]", a->kind == SC_ATTR_FLOATS && a->n == 0 ? 2 : 1);
      break;
    case SC_ATTR_GENERATOR: say(p->t, "~%d", abs(generator_number(p, a->p))); break;
    case SC_ATTR_GRAPH: say(p->t, "@%d", abs(program_number(p, a->p))); break;
    default: put(p->t, "nil", 3);
  }
}

static void attributes(printer *p, const sc_graph_node *n) {
  sc_attr preset[SC_MAX_ATTRS];
  bool any = false;
  sc__attr_defaults(n->op, preset);
  for (int i = 0; i < n->op->n_attr; i++) {
    if (sc__same_attr(&n->attr[i], &preset[i])) continue;
    say(p->t, "%s%s = ", any ? ", " : " {", n->op->param[n->op->attr_param[i]].name);
    value(p, &n->attr[i]);
    any = true;
  }
  if (any) put(p->t, "}", 1);
}

static void graph(const printer *outer, const sc_graph *g);

/* Of a control node, those that are not 0. */
static void settings(printer *p, const sc_control *c) {
  const struct { const char *name; int64_t n; bool flag; } ALL[] = {
    {"carry", c->n_carry, false}, {"x", c->n_x, false}, {"dy", c->n_dy, false}, {"rounds", c->rounds, false},
    {"reverse", c->reverse, true}, {"keep", c->keep, true}, {"replay", c->replay, true}};
  bool any = false;
  for (int i = 0; i < SC_COUNT(ALL); i++) {
    if (!ALL[i].n) continue;
    say(p->t, "%s%s = ", any ? ", " : " {", ALL[i].name);
    if (ALL[i].flag) put(p->t, "true", 4); else whole(p, ALL[i].n);
    any = true;
  }
  if (any) put(p->t, "}", 1);
}

/* What a node refers to by a number and the text has not said yet. */
static void needed_first(printer *p, const sc_graph_node *n) {
  static const char *const KINDS[] = {"cond", "while", "scan", "while_backward"};
  for (int i = 0; i < n->op->n_attr; i++) {
    int at = n->attr[i].kind == SC_ATTR_GENERATOR ? generator_number(p, n->attr[i].p) : 1;
    if (at < 0) {
      const sc_generator *r = n->attr[i].p;
      margin(p);
      say(p->t, "~%d = generator %llu %llu\n", -at, (unsigned long long)r->seed, (unsigned long long)r->offset);
    }
    const sc_control *c = n->attr[i].kind == SC_ATTR_GRAPH ? n->attr[i].p : NULL;
    at = c ? program_number(p, c) : 1;
    if (at > 0) continue;
    margin(p);
    say(p->t, "@%d = %s", -at, KINDS[c->kind]);
    settings(p, c);
    for (int k = 0; k < c->n_graphs; k++) {
      put(p->t, " [\n", 3);
      graph(p, c->graph[k]);
      margin(p);
      put(p->t, "]", 1);
    }
    put(p->t, "\n", 1);
  }
}

static void operand(printer *p, int32_t v) {
  if (v < 0) put(p->t, "nil", 3);
  else if (p->number[v] == -1) number(p, p->g->value[v].captured);
  else say(p->t, "%%%d", (int)p->number[v]);
}

static void results(printer *p, const sc_graph_node *n) {
  margin(p);
  for (int i = 0; i < n->n_out; i++) {
    int32_t v = n->out[i];
    if (!p->number[v]) p->number[v] = ++p->next;
    say(p->t, "%s%%%d", i ? ", " : "", (int)p->number[v]);
  }
  say(p->t, "%s%s(", n->n_out ? " = " : "", n->op->name);
}

static void node(printer *p, const sc_graph_node *n) {
  needed_first(p, n);
  if (n->base != p->base) { margin(p); say(p->t, "base %d\n", p->base = n->base); }
  results(p, n);
  for (int i = 0; i < n->n_in; i++) { if (i) put(p->t, ", ", 2); operand(p, n->in[i]); }
  put(p->t, ")", 1);
  attributes(p, n);
  for (int i = n->inplace; i < n->n_out; i++) { put(p->t, i > n->inplace ? ", " : " : ", i > n->inplace ? 2 : 3); type(p, &p->g->value[n->out[i]]); }
  if (n->where.line && n->where.file) { put(p->t, " at ", 4); quoted(p->t, n->where.file, '"'); say(p->t, ":%d", n->where.line); }
  if (n->where.module) { put(p->t, " in ", 4); quoted(p->t, n->where.module, '"'); }
  if (n->where.backward) say(p->t, " backward");
  put(p->t, "\n", 1);
}

static void graph(const printer *outer, const sc_graph *g) {
  sc_context *ctx = g->ctx;
  printer p = *outer;
  size_t bytes = (g->n_values + 1) * sizeof *p.number, programs = (g->n_nodes + 1) * sizeof *p.program;
  if (++p.depth > MOST_DEEP) { p.t->failed = sc__fail(ctx, SC_EINVAL, "graph: branches and loops are nested too deep to be printed"); return; }
  p.g = g;
  p.next = 0;
  p.base = p.n_programs = 0;
  p.number = sc__alloc_zero(ctx, bytes);
  p.program = sc__alloc_zero(ctx, programs);
  if (p.number && p.program) {
    numbers_in_place(&p);
    inputs(&p);
    captures(&p);
    for (size_t k = 0; k < g->n_nodes && p.t->failed == SC_OK; k++) node(&p, &g->node[k]);
    for (size_t i = 0; i < g->n_outputs; i++) {
      margin(&p);
      put(p.t, "output ", 7);
      quoted(p.t, g->output[i].name, '"');
      put(p.t, " ", 1);
      operand(&p, g->output[i].value);
      put(p.t, "\n", 1);
    }
  } else {
    p.t->failed = sc__no_memory(ctx, bytes);
  }
  sc__release(ctx, p.number, bytes);
  sc__release(ctx, p.program, programs);
}

sc_status sc__graph_print(const sc_graph *g, sc__text *out) {
  const sc_generator *generators[MOST_GENERATORS];
  int n_generators = 0;
  sc__captures captured;
  *out = (sc__text){.ctx = g->ctx};
  SC_TRY(sc__graph_captures(g, &captured));
  printer p = {.t = out, .sizes = g, .captures = &captured, .depth = -1, .generator = generators, .n_generators = &n_generators};
  say(out, "sconce graph 1\n");
  for (int i = 0; i < g->n_sizes; i++) { put(out, "size ", 5); symbol(&p, i); put(out, "\n", 1); }
  graph(&p, g);
  sc__captures_free(g->ctx, &captured);
  return out->failed;
}
