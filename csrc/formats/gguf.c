/* GGUF, the files of ggml and llama.cpp: a header, metadata (keys with typed values), a list of tensors, then their data, each at a
** multiple of the alignment. Versions 2 and 3, little endian. Sizes stand in the file with the fastest dimension first; shapes here
** are the other way round, as everywhere else.
**
** Numbers come as they are; quantised tensors are decoded to float32: Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K. The kinds
** that need code books (IQ…), ternary ones and those that never stand in files (Q8_1, Q8_K) are refused by number. Metadata becomes text: strings
** as they are, numbers in decimal, arrays as JSON.
**
** A hostile file: counts are bounded by the bytes that are left before anything is allocated, products are checked, names occur once,
** and tensors may not share bytes, so what is read is at most 13 times the file.
** Source: ggml, docs/gguf.md; the block layouts: ggml/src/ggml-common.h. */
#include "formats.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct gguf {
  const sc_source *s;
  sc_archive *a;
  size_t at, data;                  /* where reading is; where the tensors' data begins */
  uint64_t alignment, taken;        /* taken: bytes of data that tensors have claimed */
} gguf;

/* ---- fields: little endian, never beyond the end ---- */

static sc_status wrong(const gguf *g, const char *format, ...) SC_FORMAT(2, 3);
static sc_status wrong(const gguf *g, const char *format, ...) {
  char text[500];
  va_list ap;
  va_start(ap, format);
  vsnprintf(text, sizeof text, format, ap);
  va_end(ap);
  return sc__source_bad(g->s, "GGUF: %s (before byte %zu)", text, g->at);
}

static size_t left(const gguf *g) { return g->s->size - g->at; }

static sc_status number(gguf *g, int bytes, const char *what, uint64_t *out) {
  if (left(g) < (size_t)bytes) return wrong(g, "the file ends inside %s", what);
  uint64_t v = 0;
  for (int i = 0; i < bytes; i++) v |= (uint64_t)g->s->data[g->at + (size_t)i] << 8 * i;
  g->at += (size_t)bytes;
  *out = v;
  return SC_OK;
}

static sc_status string(gguf *g, const char *what, const char **text, size_t *length) {
  uint64_t n = 0;
  SC_TRY(number(g, 8, what, &n));
  if (n > left(g)) return wrong(g, "%s is %llu bytes long, the file has %zu left", what, (unsigned long long)n, left(g));
  *text = (const char *)g->s->data + g->at;
  *length = (size_t)n;
  g->at += (size_t)n;
  return SC_OK;
}

/* A name: not empty, UTF-8, no zero byte. */
static sc_status name_of(gguf *g, const char *what, const char **text, size_t *length) {
  SC_TRY(string(g, what, text, length));
  if (!*length) return wrong(g, "%s is empty", what);
  if (memchr(*text, 0, *length) || !sc__utf8_valid((const uint8_t *)*text, *length)) return wrong(g, "%s is not UTF-8 text", what);
  return SC_OK;
}

/* ---- names occur once: a table of those seen ---- */

typedef struct names { struct { const char *text; size_t length; } *slot; size_t room; } names;

static sc_status names_open(sc_context *ctx, names *t, uint64_t n) {
  t->room = 16;
  while (t->room < n * 2) t->room *= 2;
  t->slot = sc__alloc_zero(ctx, t->room * sizeof *t->slot);
  return t->slot ? SC_OK : sc__no_memory(ctx, t->room * sizeof *t->slot);
}

/* false: it was there */
static bool names_add(names *t, const char *text, size_t length) {
  uint64_t h = 14695981039346656037u;
  for (size_t i = 0; i < length; i++) h = (h ^ (uint8_t)text[i]) * 1099511628211u;
  size_t k = (size_t)(h ^ h >> 32) & (t->room - 1);
  for (; t->slot[k].text; k = (k + 1) & (t->room - 1))
    if (t->slot[k].length == length && memcmp(t->slot[k].text, text, length) == 0) return false;
  t->slot[k].text = text;
  t->slot[k].length = length;
  return true;
}

/* ---- metadata ---- */

enum { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, N_TYPES };
static const uint8_t TYPE_BYTES[N_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};   /* the least that a value takes */

/* Text that grows. */
typedef struct text { sc_context *ctx; char *s; size_t n, room; } text;

static sc_status put(text *t, const char *s, size_t n) {
  SC_TRY(sc__grow(t->ctx, &t->s, t->n + n, &t->room, 1));
  memcpy(t->s + t->n, s, n);
  t->n += (int64_t)n;
  return SC_OK;
}

static sc_status put_quoted(text *t, const char *s, size_t n) {
  SC_TRY(put(t, "\"", 1));
  for (size_t i = 0; i < n; i++) {
    char e[8] = "";
    unsigned char c = (unsigned char)s[i];
    if (c < 32) SC_TRY(put(t, e, (size_t)snprintf(e, sizeof e, "\\u%04x", c)));
    else if (c == '"' || c == '\\') SC_TRY(put(t, (char[]){'\\', (char)c}, 2));
    else SC_TRY(put(t, s + i, 1));
  }
  return put(t, "\"", 1);
}

#define MOST_NESTED 8                                  /* arrays inside of arrays */

static sc_status array(gguf *g, int depth, text *t);

/* depth: of the arrays that the value is in; at 0 a string is bare. */
static sc_status value(gguf *g, uint64_t type, int depth, text *t) {
  char shown[40];
  const char *s;
  size_t n;
  uint64_t v = 0;
  if (type == STRING) {
    SC_TRY(string(g, "a string of the metadata", &s, &n));
    if (depth) return put_quoted(t, s, n);
    return memchr(s, 0, n) ? wrong(g, "a string of the metadata holds a zero byte") : put(t, s, n);
  }
  if (type == ARRAY) return array(g, depth + 1, t);
  SC_TRY(number(g, TYPE_BYTES[type], "a value of the metadata", &v));
  int bits = TYPE_BYTES[type] * 8;
  if (type == BOOL) {
    if (v > 1) return wrong(g, "a truth value of the metadata is %llu", (unsigned long long)v);
    return put(t, v ? "true" : "false", v ? 4 : 5);
  }
  if (type == F32) {
    float f;
    uint32_t u = (uint32_t)v;
    memcpy(&f, &u, 4);
    n = (size_t)snprintf(shown, sizeof shown, "%.9g", (double)f);
  } else if (type == F64) {
    double f;
    memcpy(&f, &v, 8);
    n = (size_t)snprintf(shown, sizeof shown, "%.17g", f);
  } else if (type == I8 || type == I16 || type == I32 || type == I64) {
    n = (size_t)snprintf(shown, sizeof shown, "%lld", (long long)((int64_t)(v << (64 - bits)) >> (64 - bits)));
  } else {
    n = (size_t)snprintf(shown, sizeof shown, "%llu", (unsigned long long)v);
  }
  return put(t, shown, n);
}

static sc_status array(gguf *g, int depth, text *t) {
  uint64_t type = 0, n = 0;
  SC_TRY(number(g, 4, "the type of an array", &type));
  SC_TRY(number(g, 8, "the length of an array", &n));
  if (depth > MOST_NESTED) return wrong(g, "arrays are nested more than %d deep", MOST_NESTED);
  if (type >= N_TYPES) return wrong(g, "an array of the unknown type %llu", (unsigned long long)type);
  if (n > left(g) / TYPE_BYTES[type]) return wrong(g, "an array of %llu values, the file has %zu bytes left", (unsigned long long)n, left(g));
  SC_TRY(put(t, "[", 1));
  for (uint64_t i = 0; i < n; i++) {
    if (i) SC_TRY(put(t, ", ", 2));
    SC_TRY(value(g, type, depth, t));
  }
  return put(t, "]", 1);
}

static sc_status pair(gguf *g, names *seen, text *t) {
  const char *key;
  size_t length;
  uint64_t type = 0, v = 0;
  char shown[100];
  SC_TRY(name_of(g, "a key of the metadata", &key, &length));
  sc__printable(key, length, shown, sizeof shown);
  if (!names_add(seen, key, length)) return wrong(g, "the key \"%s\" occurs twice", shown);
  SC_TRY(number(g, 4, "the type of a value", &type));
  if (type >= N_TYPES) return wrong(g, "\"%s\" has the unknown type %llu", shown, (unsigned long long)type);
  bool alignment = length == 17 && memcmp(key, "general.alignment", 17) == 0;
  if (alignment) {
    if (type != U32) return wrong(g, "general.alignment is not a 32-bit number");
    size_t at = g->at;
    SC_TRY(number(g, 4, "general.alignment", &v));
    if (v == 0 || (v & (v - 1)) || v > 1 << 30) return wrong(g, "general.alignment is %llu, not a power of two", (unsigned long long)v);
    g->alignment = v;
    g->at = at;
  }
  t->n = 0;
  SC_TRY(value(g, type, 0, t));
  return sc__archive_note(g->a, key, length, t->s ? t->s : "", (size_t)t->n);
}

/* ---- blocks ---- */

static float half_at(const uint8_t *p) { return sc__half_to_float((uint16_t)(p[0] | p[1] << 8)); }

static void q4_0(const uint8_t *b, float *y) {
  float d = half_at(b);
  for (int j = 0; j < 16; j++) { y[j] = (float)((b[2 + j] & 15) - 8) * d; y[j + 16] = (float)((b[2 + j] >> 4) - 8) * d; }
}
static void q4_1(const uint8_t *b, float *y) {
  float d = half_at(b), m = half_at(b + 2);
  for (int j = 0; j < 16; j++) { y[j] = (float)(b[4 + j] & 15) * d + m; y[j + 16] = (float)(b[4 + j] >> 4) * d + m; }
}
static uint32_t bits_at(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24; }
static void q5(const uint8_t *qs, uint32_t high, float d, int low, float m, float *y) {
  for (int j = 0; j < 16; j++) {
    y[j] = (float)((int)((qs[j] & 15u) | (high >> j & 1) << 4) - low) * d + m;
    y[j + 16] = (float)((int)(qs[j] >> 4 | (high >> (j + 16) & 1) << 4) - low) * d + m;
  }
}
static void q5_0(const uint8_t *b, float *y) { q5(b + 6, bits_at(b + 2), half_at(b), 16, 0, y); }
static void q5_1(const uint8_t *b, float *y) { q5(b + 8, bits_at(b + 4), half_at(b), 0, half_at(b + 2), y); }
static void q8_0(const uint8_t *b, float *y) {
  float d = half_at(b);
  for (int j = 0; j < 32; j++) y[j] = (float)(int8_t)b[2 + j] * d;
}

/* The K kinds: 256 numbers in runs of 16 or 32, each with a scale, and a least value where the kind has one. */
static void q2_k(const uint8_t *b, float *y) {
  const uint8_t *scale = b, *q = b + 16;
  float d = half_at(b + 80), m = half_at(b + 82);
  for (int half = 0; half < 2; half++, q += 32)
    for (int shift = 0; shift < 8; shift += 2)
      for (int part = 0; part < 2; part++, scale++)
        for (int l = 0; l < 16; l++) *y++ = d * (float)(*scale & 15) * (float)(q[16 * part + l] >> shift & 3) - m * (float)(*scale >> 4);
}
static void q3_k(const uint8_t *b, float *y) {
  const uint8_t *high = b, *q = b + 32, *packed = b + 96;
  float d = half_at(b + 108);
  int scale[16], run = 0, bit = 0;
  for (int i = 0; i < 16; i++)                         /* four bits each in eight bytes, the two above them in four more */
    scale[i] = ((i < 8 ? packed[i] & 15 : packed[i - 8] >> 4) | (packed[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
  for (int half = 0; half < 2; half++, q += 32)
    for (int shift = 0; shift < 8; shift += 2, bit++)
      for (int part = 0; part < 2; part++, run++)
        for (int l = 0; l < 16; l++) {
          int i = 16 * part + l;
          *y++ = d * (float)scale[run] * (float)((q[i] >> shift & 3) - (high[i] >> bit & 1 ? 0 : 4));
        }
}
/* Scale and least value j of eight, six bits each in twelve bytes. */
static void six(const uint8_t *p, int j, float *scale, float *least) {
  *scale = (float)(j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4);
  *least = (float)(j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4);
}
static void q45_k(const uint8_t *scales, const uint8_t *q, const uint8_t *high, float d, float m, float *y) {
  for (int j = 0; j < 8; j++) {                        /* run j: the low or high halves of 32 bytes */
    float s, least;
    six(scales, j, &s, &least);
    for (int l = 0; l < 32; l++) {
      int v = j % 2 ? q[32 * (j / 2) + l] >> 4 : q[32 * (j / 2) + l] & 15;
      if (high) v += (high[l] >> j & 1) << 4;
      *y++ = d * s * (float)v - m * least;
    }
  }
}
static void q4_k(const uint8_t *b, float *y) { q45_k(b + 4, b + 16, NULL, half_at(b), half_at(b + 2), y); }
static void q5_k(const uint8_t *b, float *y) { q45_k(b + 4, b + 48, b + 16, half_at(b), half_at(b + 2), y); }
static void q6_k(const uint8_t *b, float *y) {
  float d = half_at(b + 208);
  for (int i = 0; i < 256; i++) {                      /* of 128 numbers, four runs of 32 */
    int half = i / 128, run = i % 128 / 32, l = i % 32, from = 64 * half + 32 * (run % 2) + l;
    int v = (run < 2 ? b[from] & 15 : b[from] >> 4) | (b[128 + 32 * half + l] >> 2 * run & 3) << 4;
    y[i] = d * (float)(int8_t)b[192 + 8 * half + 2 * run + l / 16] * (float)(v - 32);
  }
}

/* ---- tensors ---- */

/* by ggml's number. decode NULL: the elements as they are. */
typedef struct kind { sc_dtype dtype; int block, bytes; void (*decode)(const uint8_t *block, float *y); } kind;
static const kind KINDS[] = {
  [0] = {SC_FLOAT32, 1, 4, NULL},   [1] = {SC_FLOAT16, 1, 2, NULL},   [2] = {SC_FLOAT32, 32, 18, q4_0},    [3] = {SC_FLOAT32, 32, 20, q4_1},
  [6] = {SC_FLOAT32, 32, 22, q5_0}, [7] = {SC_FLOAT32, 32, 24, q5_1}, [8] = {SC_FLOAT32, 32, 34, q8_0},    [10] = {SC_FLOAT32, 256, 84, q2_k},
  [11] = {SC_FLOAT32, 256, 110, q3_k}, [12] = {SC_FLOAT32, 256, 144, q4_k}, [13] = {SC_FLOAT32, 256, 176, q5_k}, [14] = {SC_FLOAT32, 256, 210, q6_k},
  [24] = {SC_INT8, 1, 1, NULL},     [25] = {SC_INT16, 1, 2, NULL},    [26] = {SC_INT32, 1, 4, NULL},       [27] = {SC_INT64, 1, 8, NULL},
  [28] = {SC_FLOAT64, 1, 8, NULL},  [30] = {SC_BFLOAT16, 1, 2, NULL}};

typedef struct info { const char *name; size_t length; const kind *kind; int ndim; int64_t dim[4]; uint64_t offset, bytes; } info;

static sc_status read_info(gguf *g, names *seen, info *t) {
  uint64_t v = 0, numel = 1;
  char shown[100];
  SC_TRY(name_of(g, "the name of a tensor", &t->name, &t->length));
  sc__printable(t->name, t->length, shown, sizeof shown);
  if (!names_add(seen, t->name, t->length)) return wrong(g, "the tensor \"%s\" occurs twice", shown);
  SC_TRY(number(g, 4, "a number of dimensions", &v));
  if (v < 1 || v > 4) return wrong(g, "the tensor \"%s\" has %llu dimensions, 1 to 4 are possible", shown, (unsigned long long)v);
  t->ndim = (int)v;
  for (int i = t->ndim - 1; i >= 0; i--) {             /* the fastest comes first */
    SC_TRY(number(g, 8, "a size", &v));
    if (v < 1 || v > INT64_MAX || __builtin_mul_overflow(numel, v, &numel) || numel > INT64_MAX / 8)
      return wrong(g, "the tensor \"%s\" has the size %llu, which is not possible", shown, (unsigned long long)v);
    t->dim[i] = (int64_t)v;
  }
  SC_TRY(number(g, 4, "the type of a tensor", &v));
  if (v >= SC_COUNT(KINDS) || !KINDS[v].block)
    return wrong(g, "the tensor \"%s\" is of type %llu, which is not read (floats, integers, Q4_0 to Q8_0 and Q2_K to Q6_K are)", shown, (unsigned long long)v);
  t->kind = &KINDS[v];
  if (t->dim[t->ndim - 1] % t->kind->block)
    return wrong(g, "the tensor \"%s\" has rows of %lld, not whole blocks of %d", shown, (long long)t->dim[t->ndim - 1], t->kind->block);
  t->bytes = numel / (uint64_t)t->kind->block * (uint64_t)t->kind->bytes;
  return number(g, 8, "the offset of a tensor", &t->offset);
}

static sc_status read_tensor(gguf *g, const info *t) {
  char shown[100];
  uint64_t have = g->s->size - g->data;
  sc__printable(t->name, t->length, shown, sizeof shown);
  if (t->offset % g->alignment) return wrong(g, "the tensor \"%s\" begins at %llu, not a multiple of %llu", shown, (unsigned long long)t->offset, (unsigned long long)g->alignment);
  if (t->offset > have || t->bytes > have - t->offset)
    return wrong(g, "the tensor \"%s\" lies at %llu and takes %llu bytes, the data has %llu", shown, (unsigned long long)t->offset, (unsigned long long)t->bytes,
                 (unsigned long long)have);
  if ((g->taken += t->bytes) > have) return wrong(g, "the tensor \"%s\" shares bytes with others", shown);
  const uint8_t *from = g->s->data + g->data + t->offset;
  sc_tensor *x;
  SC_TRY(sc_tensor_new(g->s->ctx, t->kind->dtype, t->ndim, t->dim, &x));
  if (!t->kind->decode) memcpy(x->data, from, (size_t)t->bytes);
  for (int64_t i = 0; t->kind->decode && i < x->numel / t->kind->block; i++) t->kind->decode(from + i * t->kind->bytes, (float *)x->data + i * t->kind->block);
  return sc__archive_add(g->a, t->name, t->length, x);
}

static sc_status read_tensors(gguf *g, info *list, names *seen, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) SC_TRY(read_info(g, seen, &list[i]));
  uint64_t begin = (g->at + g->alignment - 1) / g->alignment * g->alignment;
  g->data = begin > g->s->size ? g->s->size : (size_t)begin;
  for (uint64_t i = 0; i < n; i++) SC_TRY(read_tensor(g, &list[i]));
  return SC_OK;
}

sc_status sc__gguf_load(const sc_source *s, sc_archive *a) {
  gguf g = {.s = s, .a = a, .at = 4, .alignment = 32};
  uint64_t version = 0, n_tensors = 0, n_pairs = 0;
  if (s->size < 4 || memcmp(s->data, "GGUF", 4) != 0) return sc__source_bad(s, "not a GGUF file");
  SC_TRY(number(&g, 4, "the version", &version));
  if (version >> 16) return wrong(&g, "the file is big endian, which is not read");
  if (version != 2 && version != 3) return wrong(&g, "version %llu is not read, 2 and 3 are", (unsigned long long)version);
  SC_TRY(number(&g, 8, "the number of tensors", &n_tensors));
  SC_TRY(number(&g, 8, "the number of keys", &n_pairs));
  if (n_tensors > left(&g) / 33) return wrong(&g, "%llu tensors, more than the file has room for", (unsigned long long)n_tensors);
  if (n_pairs > left(&g) / 14) return wrong(&g, "%llu keys, more than the file has room for", (unsigned long long)n_pairs);
  names seen = {0};
  text t = {.ctx = s->ctx};
  size_t bytes = ((size_t)n_tensors + 1) * sizeof(info);
  sc_status r = names_open(s->ctx, &seen, n_pairs);
  for (uint64_t i = 0; i < n_pairs && r == SC_OK; i++) r = pair(&g, &seen, &t);
  if (t.s) sc__release(s->ctx, t.s, t.room);
  if (seen.slot) sc__release(s->ctx, seen.slot, seen.room * sizeof *seen.slot);
  SC_TRY(r);
  info *list = sc__alloc(s->ctx, bytes);
  if (!list) return sc__no_memory(s->ctx, bytes);
  r = names_open(s->ctx, &seen, n_tensors);
  if (r == SC_OK) r = read_tensors(&g, list, &seen, n_tensors);
  if (seen.slot) sc__release(s->ctx, seen.slot, seen.room * sizeof *seen.slot);
  sc__release(s->ctx, list, bytes);
  return r;
}
