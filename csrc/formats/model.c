/* Models that sconce has written, read back whole. Such a file is a standard ONNX model whose metadata also hold the graph's own text
** (csrc/graph/text.h), in which captured tensors have the names of initializers. The text is what is loaded, as long as the standard
** nodes are those it was written with: a check number over both says so. Whoever edits the nodes with other tools loses nothing but the
** text; whoever edits the weights keeps it. Format: ONNX, onnx.proto3. */
#include "model.h"

#include <stdio.h>
#include <string.h>

#include "../graph/text.h"

/* ---- the check number ----
**
** Not over bytes: other tools write the same messages with their fields in another order. The fields that count are taken by number,
** and by order only where one is repeated. */

static uint64_t mix(uint64_t h, uint64_t v) {
  for (int i = 0; i < 8; i++) h = (h ^ (v >> 8 * i & 0xff)) * 1099511628211u;
  return h;
}
static uint64_t mix_bytes(uint64_t h, const uint8_t *s, size_t n) {
  h = mix(h, n);
  for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * 1099511628211u;
  return h;
}

/* INTS: values, packed or one by one; HEAD: of a tensor without its elements */
typedef enum part_kind { P_NUMBER, P_INTS, P_FLOATS, P_BYTES, P_MESSAGE } part_kind;
typedef enum message { M_GRAPH, M_NODE, M_ATTRIBUTE, M_TENSOR, M_HEAD, M_INPUT, M_OUTPUT, M_TRAINING, M_BINDING } message;
typedef struct part { uint8_t of, number, kind, inner; } part;

static const part PARTS[] = {
  {M_GRAPH, 1, P_MESSAGE, M_NODE}, {M_GRAPH, 5, P_MESSAGE, M_HEAD}, {M_GRAPH, 11, P_MESSAGE, M_INPUT}, {M_GRAPH, 12, P_MESSAGE, M_OUTPUT},
  {M_NODE, 1, P_BYTES, 0}, {M_NODE, 2, P_BYTES, 0}, {M_NODE, 4, P_BYTES, 0}, {M_NODE, 5, P_MESSAGE, M_ATTRIBUTE}, {M_NODE, 7, P_BYTES, 0},
  {M_ATTRIBUTE, 1, P_BYTES, 0}, {M_ATTRIBUTE, 2, P_NUMBER, 0}, {M_ATTRIBUTE, 3, P_NUMBER, 0}, {M_ATTRIBUTE, 4, P_BYTES, 0},
  {M_ATTRIBUTE, 5, P_MESSAGE, M_TENSOR}, {M_ATTRIBUTE, 6, P_MESSAGE, M_GRAPH}, {M_ATTRIBUTE, 7, P_FLOATS, 0}, {M_ATTRIBUTE, 8, P_INTS, 0},
  {M_ATTRIBUTE, 9, P_BYTES, 0},
  {M_TENSOR, 1, P_INTS, 0}, {M_TENSOR, 2, P_NUMBER, 0}, {M_TENSOR, 9, P_BYTES, 0},
  {M_HEAD, 1, P_INTS, 0}, {M_HEAD, 2, P_NUMBER, 0}, {M_HEAD, 8, P_BYTES, 0},
  {M_INPUT, 1, P_BYTES, 0}, {M_INPUT, 2, P_BYTES, 0}, {M_OUTPUT, 1, P_BYTES, 0},
  {M_TRAINING, 2, P_MESSAGE, M_GRAPH}, {M_TRAINING, 4, P_MESSAGE, M_BINDING}, {M_BINDING, 1, P_BYTES, 0}, {M_BINDING, 2, P_BYTES, 0}};

enum { MOST_NESTED = 16 };

static uint64_t check_message(int of, const uint8_t *data, size_t size, int depth);

static uint64_t check_field(const part *f, const sc_pb *p, uint64_t h, int depth) {
  size_t place = 0;
  uint64_t v;
  switch (f->kind) {
    case P_NUMBER: return mix(h, p->number);
    case P_BYTES: return mix_bytes(h, p->data ? p->data : (const uint8_t *)"", p->size);
    case P_MESSAGE: return mix(h, p->data ? check_message(f->inner, p->data, p->size, depth + 1) : 1);
    default:
      while (sc__pb_value(p, f->kind == P_INTS ? SC_PB_VARINT : SC_PB_FIXED32, &place, &v) > 0) h = mix(h, v);
      return h;
  }
}

/* One pass over the message: each kind of field has a number of its own, which are put together in the table's order. */
static uint64_t check_message(int of, const uint8_t *data, size_t size, int depth) {
  uint64_t each[SC_COUNT(PARTS)] = {0}, h = 14695981039346656037u;
  sc_pb p = sc__pb(data, size);
  int r;
  if (depth > MOST_NESTED) return 0;
  while ((r = sc__pb_next(&p)) > 0)
    for (int i = 0; i < SC_COUNT(PARTS); i++)
      if (PARTS[i].of == of && PARTS[i].number == p.field) each[i] = check_field(&PARTS[i], &p, each[i] ? each[i] : h, depth);
  if (r < 0) return 0;
  for (int i = 0; i < SC_COUNT(PARTS); i++) if (PARTS[i].of == of) h = mix(h, each[i]);
  return h;
}

uint64_t sc__model_check(const uint8_t *graph, size_t graph_size, const uint8_t *training, size_t training_size, const uint8_t *text, size_t text_size) {
  uint64_t h = mix(14695981039346656037u, check_message(M_GRAPH, graph, graph_size, 0));
  if (training) h = mix(h, check_message(M_TRAINING, training, training_size, 0));
  return mix_bytes(h, text, text_size);
}

/* ---- the file ---- */

static bool metadata(sc_model *m, const uint8_t *data, size_t size) {
  sc_pb_pair p;
  if (!sc__pb_pair(data, size, &p)) return false;
  if (sc__pb_is(p.key, p.n_key, "sconce.graph")) { m->text = p.value; m->text_size = p.n_value; }
  if (sc__pb_is(p.key, p.n_key, "sconce.check")) { m->check = p.value; m->check_size = p.n_value; }
  if (sc__pb_is(p.key, p.n_key, "sconce.random")) { m->random = p.value; m->random_size = p.n_value; }
  return true;
}

static bool training(sc_model *m, const uint8_t *data, size_t size) {
  sc_pb p = sc__pb(data, size);
  int r;
  m->training = data;
  m->training_size = size;
  while ((r = sc__pb_next(&p)) > 0)
    if (p.field == 2 && p.wire == SC_PB_BYTES) { m->algorithm = p.data; m->algorithm_size = p.size; }
  return r == 0;
}

sc_status sc__model_open(const sc_source *s, sc_model *m) {
  *m = (sc_model){.s = s};
  sc_pb p = sc__pb(s->data, s->size);
  bool well = true;
  int r;
  while (well && (r = sc__pb_next(&p)) > 0) {
    if (p.wire != SC_PB_BYTES) continue;
    if (p.field == 7) { m->graph = p.data; m->graph_size = p.size; }
    if (p.field == 14) well = metadata(m, p.data, p.size);
    if (p.field == 20) well = training(m, p.data, p.size);
  }
  if (!well || r < 0 || !m->graph) return sc__source_bad(s, "not an ONNX file, or a broken one: a message is malformed or there is no graph");
  return SC_OK;
}

/* ---- the graph ---- */

typedef struct finder { const sc_model *m; } finder;

static sc_status find_in(const sc_model *m, const uint8_t *graph, size_t size, const char *name, sc_tensor **out) {
  sc_pb p = sc__pb(graph, size);
  while (sc__pb_next(&p) > 0) {
    sc_onnx_tensor t;
    if (p.field != 5 || p.wire != SC_PB_BYTES) continue;
    SC_TRY(sc__onnx_tensor_open(m->s, p.data, p.size, &t));
    if (t.name && t.name_length == strlen(name) && memcmp(t.name, name, t.name_length) == 0) return sc__onnx_tensor_read(m->s, &t, out);
  }
  return SC_OK;
}

static sc_status find(void *user, const char *name, sc_tensor **out) {
  const sc_model *m = ((finder *)user)->m;
  char shown[120];
  *out = NULL;
  SC_TRY(find_in(m, m->graph, m->graph_size, name, out));
  if (!*out && m->algorithm) SC_TRY(find_in(m, m->algorithm, m->algorithm_size, name, out));
  return *out ? SC_OK : sc__source_bad(m->s, "there is no initializer \"%s\"", sc__printable(name, strlen(name), shown, sizeof shown));
}

static bool checked(const sc_model *m) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  return m->text != NULL;                                 /* a fuzzer would never find the number */
#endif
  char want[24];
  snprintf(want, sizeof want, "%016llx", (unsigned long long)sc__model_check(m->graph, m->graph_size, m->training, m->training_size, m->text, m->text_size));
  return sc__pb_is(m->check, m->check_size, want);
}

/* "SEED OFFSET" */
static bool random_state(const sc_model *m, sc_generator *out) {
  char text[64];
  unsigned long long seed, offset;
  if (!m->random || m->random_size >= sizeof text) return false;
  memcpy(text, m->random, m->random_size);
  text[m->random_size] = 0;
  if (sscanf(text, "%llu %llu", &seed, &offset) != 2) return false;
  *out = (sc_generator){seed, offset};
  return true;
}

sc_status sc__model_graph(const sc_model *m, sc_graph **out, const char **why) {
  finder f = {m};
  sc_generator rng;
  int64_t room = m->s->size < (size_t)1 << 56 ? (int64_t)m->s->size * 64 + (1 << 20) : INT64_MAX;
  *out = NULL;
  *why = !m->text ? "it was not written by sconce" : !checked(m) ? "its nodes have been changed by another program" : NULL;
  if (*why) return SC_OK;
  SC_TRY(sc__graph_read(m->s->ctx, (const char *)m->text, m->text_size, find, &f, room, out));
  if (random_state(m, &rng)) m->s->ctx->rng = rng;
  return SC_OK;
}

sc_status sc_graph_load(sc_context *ctx, const char *path, sc_graph **out) {
  sc_source s = {.ctx = ctx};
  sc_model m;
  const char *why = NULL;
  *out = NULL;
  SC_TRY(sc__source_open(ctx, path, &s));
  sc_status st = sc__model_open(&s, &m);
  if (st == SC_OK) st = sc__model_graph(&m, out, &why);
  if (st == SC_OK && why) st = sc__source_bad(&s, "%s; convert it once with sc.load_graph(path):save(path) in Lua", why);
  sc__source_done(&s);
  return st;
}
