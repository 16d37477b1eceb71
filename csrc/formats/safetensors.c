/* safetensors: 8 bytes with the length of a header, the header in JSON, the data. Every rule of the format is checked, none is
** repaired: the header is an object in UTF-8 of at most 100 MB, names occur once, each tensor's byte range has exactly the size
** that its shape and dtype need, and the ranges cover the data without holes, overlaps or a tail.
** Source: the format's description, github.com/huggingface/safetensors. */
#include "formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_HEADER = 100000000 };

static const char *const NAMES[SC_DTYPES] = {
  [SC_FLOAT32] = "F32", [SC_FLOAT64] = "F64", [SC_FLOAT16] = "F16", [SC_BFLOAT16] = "BF16", [SC_INT8] = "I8", [SC_UINT8] = "U8",
  [SC_INT16] = "I16", [SC_INT32] = "I32", [SC_INT64] = "I64", [SC_BOOL] = "BOOL", [SC_UINT16] = "U16", [SC_UINT32] = "U32", [SC_UINT64] = "U64",
  [SC_FLOAT8E4M3FN] = "F8_E4M3", [SC_FLOAT8E5M2] = "F8_E5M2", [SC_FLOAT8E8M0] = "F8_E8M0"};

/* ---- reading ---- */

typedef struct item {
  const char *name;                 /* in the reader's text */
  size_t length;
  int64_t begin, end, shape;        /* shape: where its sizes stand in `sizes` */
  uint8_t dtype, ndim;
} item;

typedef struct reading {
  const sc_source *s;
  sc_json j;
  item *item;                       /* in order of the header; sorted by place before tensors are made */
  int64_t n;
  int64_t *sizes, n_sizes;
  size_t room, sizes_room;
  size_t header;                    /* bytes */
} reading;

static sc_status wrong(reading *r, const char *name, size_t length, const char *what) {
  char shown[256];
  if (!name) return sc__source_bad(r->s, "the safetensors header is wrong: %s", what);
  return sc__source_bad(r->s, "tensor \"%s\": %s", sc__printable(name, length, shown, sizeof shown), what);
}

static sc_status read_dtype(reading *r, item *it) {
  const char *s;
  size_t n;
  char shown[64], text[128];
  if (!sc__json_string(&r->j, &s, &n)) return wrong(r, it->name, it->length, "dtype is not a string");
  for (int d = 0; d < SC_DTYPES; d++)
    if (NAMES[d] && n == strlen(NAMES[d]) && memcmp(s, NAMES[d], n) == 0) { it->dtype = (uint8_t)d; return SC_OK; }
  snprintf(text, sizeof text, "unknown dtype \"%s\"", sc__printable(s, n < 20 ? n : 20, shown, sizeof shown));
  return wrong(r, it->name, it->length, text);
}

static sc_status read_shape(reading *r, item *it) {
  bool first = true;
  int more;
  it->shape = r->n_sizes;
  it->ndim = 0;
  if (!sc__json_open(&r->j, '[')) return wrong(r, it->name, it->length, "shape is not a list");
  while ((more = sc__json_element(&r->j, &first)) > 0) {
    if (it->ndim == SC_MAX_DIMS) return wrong(r, it->name, it->length, "shape has more than 64 dimensions");
    SC_TRY(sc__grow(r->s->ctx, &r->sizes, (size_t)r->n_sizes, &r->sizes_room, sizeof *r->sizes));
    if (!sc__json_size(&r->j, &r->sizes[r->n_sizes])) break;
    r->n_sizes++;
    it->ndim++;
  }
  return r->j.problem ? wrong(r, it->name, it->length, r->j.problem) : SC_OK;
}

static sc_status read_offsets(reading *r, item *it) {
  int64_t v[2];
  bool first = true;
  if (!sc__json_open(&r->j, '[')) return wrong(r, it->name, it->length, "data_offsets is not a list");
  for (int i = 0; i < 2; i++)
    if (sc__json_element(&r->j, &first) <= 0 || !sc__json_size(&r->j, &v[i])) return wrong(r, it->name, it->length, "data_offsets must be two offsets from 0 on");
  if (sc__json_element(&r->j, &first) != 0) return wrong(r, it->name, it->length, "data_offsets must be two offsets from 0 on");
  it->begin = v[0];
  it->end = v[1];
  return SC_OK;
}

static sc_status check_item(reading *r, const item *it) {
  char text[200];
  int64_t data = (int64_t)(r->s->size - 8 - r->header), need = (int64_t)sc_dtype_size((sc_dtype)it->dtype), nonzero = need;
  bool empty = false;
  for (int i = 0; i < it->ndim; i++) {
    int64_t d = r->sizes[it->shape + i];
    empty = empty || d == 0;
    if (d && !sc__mul(nonzero, d, &nonzero)) return wrong(r, it->name, it->length, "its shape is too large");
  }
  need = empty ? 0 : nonzero;
  if (it->begin > it->end) return wrong(r, it->name, it->length, "data_offsets end before they begin");
  if (it->end > data) {
    snprintf(text, sizeof text, "data_offsets end at %lld, the file has %lld bytes of data", (long long)it->end, (long long)data);
    return wrong(r, it->name, it->length, text);
  }
  if (it->end - it->begin != need) {
    snprintf(text, sizeof text, "its shape and dtype need %lld bytes, data_offsets give %lld", (long long)need, (long long)(it->end - it->begin));
    return wrong(r, it->name, it->length, text);
  }
  return SC_OK;
}

static sc_status read_item(reading *r, const char *name, size_t length) {
  item it = {.name = name, .length = length};
  bool first = true;
  int more, seen = 0;
  const char *key;
  size_t n;
  if (!sc__json_open(&r->j, '{')) return wrong(r, name, length, "its description is not an object");
  while ((more = sc__json_member(&r->j, &first, &key, &n)) > 0) {
    int field = n == 5 && memcmp(key, "dtype", 5) == 0 ? 1 : n == 5 && memcmp(key, "shape", 5) == 0 ? 2 : n == 12 && memcmp(key, "data_offsets", 12) == 0 ? 4 : 0;
    if (seen & field) return wrong(r, name, length, "a field occurs twice");
    seen |= field;
    if (field == 1) SC_TRY(read_dtype(r, &it));
    else if (field == 2) SC_TRY(read_shape(r, &it));
    else if (field == 4) SC_TRY(read_offsets(r, &it));
    else if (!sc__json_skip(&r->j)) break;
  }
  if (r->j.problem) return wrong(r, name, length, r->j.problem);
  if (seen != 7) return wrong(r, name, length, seen & 1 ? seen & 2 ? "data_offsets is missing" : "shape is missing" : "dtype is missing");
  SC_TRY(check_item(r, &it));
  SC_TRY(sc__grow(r->s->ctx, &r->item, (size_t)r->n, &r->room, sizeof *r->item));
  r->item[r->n++] = it;
  return SC_OK;
}

static sc_status read_notes(reading *r, sc_archive *a) {
  bool first = true;
  int more;
  const char *key, *s;
  size_t n, k;
  if (!sc__json_open(&r->j, '{')) return wrong(r, NULL, 0, "__metadata__ is not an object");
  while ((more = sc__json_member(&r->j, &first, &key, &n)) > 0) {
    if (!sc__json_string(&r->j, &s, &k)) return wrong(r, NULL, 0, "__metadata__ holds something else than strings");
    SC_TRY(sc__archive_note(a, key, n, s, k));
  }
  return r->j.problem ? wrong(r, NULL, 0, r->j.problem) : SC_OK;
}

static sc_status read_header(reading *r, sc_archive *a) {
  bool first = true, notes = false;
  int more;
  const char *key;
  size_t n;
  if (!sc__json_open(&r->j, '{')) return wrong(r, NULL, 0, r->j.problem);
  while ((more = sc__json_member(&r->j, &first, &key, &n)) > 0) {
    if (n == 12 && memcmp(key, "__metadata__", 12) == 0) {
      if (notes) return wrong(r, NULL, 0, "__metadata__ occurs twice");
      notes = true;
      SC_TRY(read_notes(r, a));
    } else {
      SC_TRY(read_item(r, key, n));
    }
  }
  if (more < 0 || !sc__json_done(&r->j)) return wrong(r, NULL, 0, r->j.problem);
  return SC_OK;
}

static int by_name(const void *x, const void *y) {
  const item *a = x, *b = y;
  int c = memcmp(a->name, b->name, a->length < b->length ? a->length : b->length);
  return c ? c : (a->length > b->length) - (a->length < b->length);
}
static int by_place(const void *x, const void *y) {
  const item *a = x, *b = y;
  if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
  return a->end != b->end ? (a->end < b->end ? -1 : 1) : by_name(x, y);
}

static sc_status check_whole(reading *r) {
  if (r->n) qsort(r->item, (size_t)r->n, sizeof *r->item, by_name);
  for (int64_t i = 1; i < r->n; i++)
    if (by_name(&r->item[i - 1], &r->item[i]) == 0) return wrong(r, r->item[i].name, r->item[i].length, "the name occurs twice");
  if (r->n) qsort(r->item, (size_t)r->n, sizeof *r->item, by_place);
  int64_t at = 0;
  for (int64_t i = 0; i < r->n; i++) {
    if (r->item[i].begin != at)
      return wrong(r, r->item[i].name, r->item[i].length, r->item[i].begin < at ? "its data_offsets overlap another tensor's" : "its data_offsets leave a hole before it");
    at = r->item[i].end;
  }
  int64_t data = (int64_t)(r->s->size - 8 - r->header);
  if (at != data) return sc__source_bad(r->s, "%lld bytes of data belong to no tensor", (long long)(data - at));
  return SC_OK;
}

static sc_status make_tensors(reading *r, sc_archive *a) {
  const uint8_t *data = r->s->data + 8 + r->header;
  for (int64_t i = 0; i < r->n; i++) {
    const item *it = &r->item[i];
    sc_tensor *t;
    SC_TRY(sc_tensor_new(r->s->ctx, (sc_dtype)it->dtype, it->ndim, it->ndim ? r->sizes + it->shape : NULL, &t));
    if (it->end > it->begin) memcpy(t->data, data + it->begin, (size_t)(it->end - it->begin));
    if (it->dtype == SC_BOOL) for (int64_t k = 0; k < t->numel; k++) t->data[k] = t->data[k] != 0;
    SC_TRY(sc__archive_add(a, it->name, it->length, t));
  }
  return SC_OK;
}

sc_status sc__safetensors_load(const sc_source *s, sc_archive *a) {
  uint64_t n = 0;
  if (s->size < 10) return sc__source_bad(s, "not a safetensors, .npy, .npz or GGUF file");
  for (int i = 0; i < 8; i++) n |= (uint64_t)s->data[i] << 8 * i;
  if (s->data[8] != '{' && n > s->size - 8) return sc__source_bad(s, "not a safetensors, .npy, .npz or GGUF file");
  if (n > LONGEST_HEADER) return sc__source_bad(s, "a safetensors header of %llu bytes is too long", (unsigned long long)n);
  if (n > s->size - 8) return sc__source_bad(s, "the safetensors header is %llu bytes long, the file has %zu", (unsigned long long)n, s->size - 8);
  if (n < 2 || s->data[8] != '{') return sc__source_bad(s, "the safetensors header does not begin with {");
  reading r = {.s = s, .header = (size_t)n};
  r.j.at = s->data + 8;
  r.j.end = r.j.at + n;
  if (!sc__utf8_valid(r.j.at, (size_t)n)) return sc__source_bad(s, "the safetensors header is not UTF-8");
  r.j.text = sc__alloc(s->ctx, (size_t)n);
  if (!r.j.text) return sc__no_memory(s->ctx, (size_t)n);
  sc_status status = read_header(&r, a);
  if (status == SC_OK) status = check_whole(&r);
  if (status == SC_OK) status = make_tensors(&r, a);
  sc__release(s->ctx, r.j.text, (size_t)n);
  if (r.item) sc__release(s->ctx, r.item, (size_t)r.room * sizeof *r.item);
  if (r.sizes) sc__release(s->ctx, r.sizes, (size_t)r.sizes_room * sizeof *r.sizes);
  return status;
}

/* ---- writing ----
** Tensors in order of falling alignment, then name, as the reference does, and the header padded with blanks to 8 bytes, so that
** readers may use the data where it lies. */

typedef struct text { sc_context *ctx; char *s; size_t n; int64_t room; bool failed; } text;

static void add(text *t, const char *s, size_t n) {
  if (!t->failed && (int64_t)(t->n + n) > t->room) {
    int64_t more = t->room * 2 + (int64_t)n + 1024;
    char *bigger = sc__alloc(t->ctx, (size_t)more);
    if (bigger && t->s) memcpy(bigger, t->s, t->n);
    if (bigger && t->s) sc__release(t->ctx, t->s, (size_t)t->room);
    if (bigger) { t->s = bigger; t->room = more; } else t->failed = true;
  }
  if (t->failed) return;
  memcpy(t->s + t->n, s, n);
  t->n += n;
}
static void add_text(text *t, const char *s) { add(t, s, strlen(s)); }
static void add_quoted(text *t, const char *s) {
  char code[8];
  add_text(t, "\"");
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\') { add_text(t, "\\"); add(t, s, 1); }
    else if (c < 0x20) { snprintf(code, sizeof code, "\\u%04x", c); add_text(t, code); }
    else add(t, s, 1);
  }
  add_text(t, "\"");
}

static int by_alignment(const void *x, const void *y) {
  const sc_named_tensor *a = *(const sc_named_tensor *const *)x, *b = *(const sc_named_tensor *const *)y;
  size_t sa = sc_dtype_size((sc_dtype)a->tensor->dtype), sb = sc_dtype_size((sc_dtype)b->tensor->dtype);
  return sa != sb ? (sa > sb ? -1 : 1) : strcmp(a->name, b->name);
}

static sc_status check_name(sc_context *ctx, const char *path, const char *s, const char *what) {
  char shown[256];
  if (sc__utf8_valid((const uint8_t *)s, strlen(s))) return SC_OK;
  return sc__save_bad(ctx, path, "the %s \"%s\" is not UTF-8", what, sc__printable(s, strlen(s), shown, sizeof shown));
}

static sc_status write_header(text *h, const sc_named_tensor **order, int64_t n, const sc_named_text *notes, int64_t n_notes) {
  char buffer[64];
  int64_t at = 0;
  add(h, "\0\0\0\0\0\0\0\0{", 9);
  if (n_notes) {
    add_text(h, "\"__metadata__\":{");
    for (int64_t i = 0; i < n_notes; i++) {
      if (i) add_text(h, ",");
      add_quoted(h, notes[i].name);
      add_text(h, ":");
      add_quoted(h, notes[i].text);
    }
    add_text(h, n ? "}," : "}");
  }
  for (int64_t i = 0; i < n; i++) {
    const sc_tensor *t = order[i]->tensor;
    int64_t bytes = t->numel * (int64_t)sc_dtype_size((sc_dtype)t->dtype);
    if (i) add_text(h, ",");
    add_quoted(h, order[i]->name);
    add_text(h, ":{\"dtype\":\"");
    add_text(h, NAMES[t->dtype]);
    add_text(h, "\",\"shape\":[");
    for (int k = 0; k < t->ndim; k++) { snprintf(buffer, sizeof buffer, k ? ",%lld" : "%lld", (long long)t->dim[k]); add_text(h, buffer); }
    snprintf(buffer, sizeof buffer, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)(at + bytes));
    add_text(h, buffer);
    at += bytes;
  }
  add_text(h, "}");
  while (h->n % 8 && !h->failed) add_text(h, " ");
  if (h->failed) return sc__no_memory(h->ctx, h->n * 2);
  uint64_t length = h->n - 8;
  for (int i = 0; i < 8; i++) h->s[i] = (char)(length >> 8 * i);
  return SC_OK;
}

static sc_status write_all(sc_context *ctx, const char *path, const text *h, const sc_named_tensor **order, int64_t n) {
  sc_sink sink;
  SC_TRY(sc__sink_open(ctx, path, &sink));
  sc_status s = sc__sink_write(&sink, h->s, h->n);
  for (int64_t i = 0; i < n && s == SC_OK; i++) {
    sc_tensor *packed;
    s = sc__tensor_packed(order[i]->tensor, &packed);
    if (s != SC_OK) break;
    s = sc__sink_write(&sink, packed->data, (size_t)packed->numel * sc_dtype_size((sc_dtype)packed->dtype));
    sc_tensor_release(packed);
  }
  return sc__sink_close(&sink, s);
}

sc_status sc__safetensors_save(sc_context *ctx, const char *path, const sc_named_tensor *in, int64_t n, const sc_named_text *notes, int64_t n_notes) {
  for (int64_t i = 0; i < n; i++) {
    SC_TRY(check_name(ctx, path, in[i].name, "name"));
    if (!NAMES[in[i].tensor->dtype]) return sc__save_bad(ctx, path, "the safetensors format has no %s", sc_dtype_name((sc_dtype)in[i].tensor->dtype));
    if (strcmp(in[i].name, "__metadata__") == 0) return sc__save_bad(ctx, path, "a tensor cannot be named __metadata__");
  }
  for (int64_t i = 0; i < n_notes; i++) {
    SC_TRY(check_name(ctx, path, notes[i].name, "metadata name"));
    SC_TRY(check_name(ctx, path, notes[i].text, "metadata text"));
  }
  size_t bytes = ((size_t)n + 1) * sizeof(sc_named_tensor *);
  const sc_named_tensor **order = sc__alloc(ctx, bytes);
  if (!order) return sc__no_memory(ctx, bytes);
  for (int64_t i = 0; i < n; i++) order[i] = &in[i];
  if (n) qsort(order, (size_t)n, sizeof *order, by_alignment);
  text h = {.ctx = ctx};
  sc_status s = write_header(&h, order, n, notes, n_notes);
  if (s == SC_OK && h.n - 8 > LONGEST_HEADER) s = sc__save_bad(ctx, path, "the header would be longer than 100 MB");
  if (s == SC_OK) s = write_all(ctx, path, &h, order, n);
  if (h.s) sc__release(ctx, h.s, (size_t)h.room);
  sc__release(ctx, order, bytes);
  return s;
}
