/* .npy: one array. A magic, a version, and a header that looks like a Python dictionary with the keys descr, fortran_order and
** shape; then the elements. The header is read by a small parser that knows exactly that and nothing else; arrays of objects are
** programs and are refused, structured and text arrays too. Big-endian and column-major arrays are converted.
** Source: numpy/lib/format.py, "Format Version 1.0" to "3.0". */
#include "formats.h"

#include <stdio.h>
#include <string.h>

/* ---- reading ---- */

typedef struct npy {
  const sc_source *s;
  const char *what;                 /* the array in messages; "" for a file's only one */
  const char *at, *end;
  sc_dtype dtype;
  bool swap, fortran;
  int ndim, seen;
  int64_t dim[SC_MAX_DIMS];
} npy;

static sc_status wrong(npy *p, const char *problem) {
  return sc__source_bad(p->s, "%s%s%s", p->what, *p->what ? ": " : "", problem);
}

static void blanks(npy *p) { while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r')) p->at++; }
static bool take(npy *p, char c) {
  blanks(p);
  if (p->at >= p->end || *p->at != c) return false;
  p->at++;
  return true;
}
static bool take_word(npy *p, const char *w) {
  size_t n = strlen(w);
  blanks(p);
  if ((size_t)(p->end - p->at) < n || memcmp(p->at, w, n) != 0) return false;
  p->at += n;
  return true;
}

/* 'text' or "text" without escapes, cut to size */
static bool quoted(npy *p, char *out, size_t size) {
  char q = take(p, '\'') ? '\'' : take(p, '"') ? '"' : 0;
  size_t n = 0;
  if (!q) return false;
  for (; p->at < p->end && *p->at != q; p->at++) {
    if (*p->at == '\\' || *p->at == 0) return false;
    if (n + 1 < size) out[n++] = *p->at;
  }
  out[n] = 0;
  return take(p, q);
}

static sc_status read_descr(npy *p) {
  static const struct { char name[3]; sc_dtype d; } TYPES[] = {
    {"f4", SC_FLOAT32}, {"f8", SC_FLOAT64}, {"f2", SC_FLOAT16}, {"i1", SC_INT8}, {"u1", SC_UINT8}, {"i2", SC_INT16}, {"i4", SC_INT32},
    {"i8", SC_INT64}, {"b1", SC_BOOL}, {"u2", SC_UINT16}, {"u4", SC_UINT32}, {"u8", SC_UINT64}};
  char d[32], shown[80], text[160];
  blanks(p);
  if (p->at < p->end && *p->at == '[') return wrong(p, "structured arrays are not read (descr is a list)");
  if (!quoted(p, d, sizeof d)) return wrong(p, "descr is not a string");
  const char *t = d[0] == '<' || d[0] == '>' || d[0] == '|' || d[0] == '=' ? d + 1 : d;
  if (*t == 'O') return wrong(p, "arrays of objects are refused: they are programs (descr 'O')");
  for (int i = 0; i < SC_COUNT(TYPES); i++)
    if (strcmp(t, TYPES[i].name) == 0) {
      p->dtype = TYPES[i].d;
      p->swap = d[0] == '>' && sc_dtype_size(p->dtype) > 1;
      return SC_OK;
    }
  snprintf(text, sizeof text, "descr '%s' is not a dtype that is read", sc__printable(d, strlen(d), shown, sizeof shown));
  return wrong(p, text);
}

static sc_status read_shape(npy *p) {
  bool comma = false;
  if (!take(p, '(')) return wrong(p, "shape is not a tuple");
  while (!take(p, ')')) {
    int64_t v = 0;
    if (p->ndim && !(comma = take(p, ','))) return wrong(p, "shape is not a tuple of whole numbers");
    if (p->ndim && take(p, ')')) break;
    blanks(p);
    const char *begin = p->at;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
      if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p->at - '0', &v)) return wrong(p, "a size of its shape is too large");
    if (p->at == begin) return wrong(p, p->at < p->end && *p->at == '-' ? "a size of its shape is negative" : "shape is not a tuple of whole numbers");
    take(p, 'L');                                      /* Python 2 wrote long integers so */
    if (p->ndim == SC_MAX_DIMS) return wrong(p, "shape has more than 64 dimensions");
    p->dim[p->ndim++] = v;
  }
  return p->ndim == 1 && !comma ? wrong(p, "shape is a number in parentheses, not a tuple: one size is written (3,)") : SC_OK;
}

static sc_status read_dictionary(npy *p) {
  char key[32];
  bool first = true;
  if (!take(p, '{')) return wrong(p, "the .npy header is not a dictionary");
  while (!take(p, '}')) {
    if (!first && !take(p, ',')) return wrong(p, "the .npy header is not a dictionary");
    if (!first && take(p, '}')) break;
    first = false;
    if (!quoted(p, key, sizeof key) || !take(p, ':')) return wrong(p, "the .npy header is not a dictionary");
    int field = strcmp(key, "descr") == 0 ? 1 : strcmp(key, "fortran_order") == 0 ? 2 : strcmp(key, "shape") == 0 ? 4 : 0;
    if (!field) return wrong(p, "the .npy header has a key besides descr, fortran_order and shape");
    if (p->seen & field) return wrong(p, "a key of the .npy header occurs twice");
    p->seen |= field;
    if (field == 1) SC_TRY(read_descr(p));
    else if (field == 4) SC_TRY(read_shape(p));
    else if (take_word(p, "True")) p->fortran = true;
    else if (!take_word(p, "False")) return wrong(p, "fortran_order is neither True nor False");
  }
  blanks(p);
  if (p->at != p->end) return wrong(p, "something follows the dictionary of the .npy header");
  return p->seen == 7 ? SC_OK : wrong(p, "the .npy header lacks descr, fortran_order or shape");
}

static void swap_bytes(uint8_t *p, int64_t n, size_t size) {
  for (int64_t i = 0; i < n; i++, p += size)
    for (size_t k = 0; k < size / 2; k++) { uint8_t keep = p[k]; p[k] = p[size - 1 - k]; p[size - 1 - k] = keep; }
}

/* data holds exactly the elements. Column-major data is that of the transpose. */
static sc_status make(npy *p, const uint8_t *data, size_t size, sc_tensor **out) {
  sc_context *ctx = p->s->ctx;
  int64_t reversed[SC_MAX_DIMS];
  bool turn = p->fortran && p->ndim > 1;
  for (int i = 0; i < p->ndim; i++) reversed[i] = p->dim[p->ndim - 1 - i];
  sc_tensor *t;
  SC_TRY(sc_tensor_new(ctx, p->dtype, p->ndim, turn ? reversed : p->dim, &t));
  if (size) memcpy(t->data, data, size);
  if (p->swap) swap_bytes((uint8_t *)t->data, t->numel, sc_dtype_size(p->dtype));
  if (p->dtype == SC_BOOL) for (int64_t k = 0; k < t->numel; k++) t->data[k] = t->data[k] != 0;
  *out = t;
  if (!turn) return SC_OK;
  sc_meta m = {.dtype = p->dtype, .ndim = p->ndim};
  for (int i = 0; i < p->ndim; i++) { m.dim[i] = p->dim[i]; m.stride[i] = sc__stride(t)[p->ndim - 1 - i]; }
  sc_tensor *view;
  sc_status s = sc__tensor_view(t, &m, &view);
  sc_tensor_release(t);
  SC_TRY(s);
  s = sc__tensor_packed(view, out);
  sc_tensor_release(view);
  return s;
}

sc_status sc__npy_parse(const sc_source *s, const char *what, const uint8_t *data, size_t size, sc_tensor **out) {
  npy p = {.s = s, .what = what};
  char text[200];
  if (size < 10 || memcmp(data, "\x93NUMPY", 6) != 0) return wrong(&p, "not a .npy array");
  int version = data[6];
  if (version < 1 || version > 3 || data[7] != 0) return wrong(&p, "this version of the .npy format is not known");
  size_t head = version == 1 ? 10 : 12, n = data[8] | (size_t)data[9] << 8;
  if (size < head) return wrong(&p, "the file ends in its header");
  if (version > 1) n |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
  if (n > size - head) return wrong(&p, "the .npy header is longer than the file");
  if (n > 1 << 20) return wrong(&p, "the .npy header is too long");
  p.at = (const char *)data + head;
  p.end = p.at + n;
  SC_TRY(read_dictionary(&p));
  int64_t need = (int64_t)sc_dtype_size(p.dtype), have = (int64_t)(size - head - n);
  bool empty = false;
  for (int i = 0; i < p.ndim; i++) {
    empty = empty || p.dim[i] == 0;
    if (p.dim[i] && !sc__mul(need, p.dim[i], &need)) return wrong(&p, "its shape is too large");
  }
  if (empty) need = 0;
  if (need != have) {
    snprintf(text, sizeof text, "its shape and dtype need %lld bytes, there are %lld", (long long)need, (long long)have);
    return wrong(&p, text);
  }
  return make(&p, data + head + n, (size_t)need, out);
}

sc_status sc__npy_load(const sc_source *s, sc_archive *a) {
  sc_tensor *t;
  SC_TRY(sc__npy_parse(s, "", s->data, s->size, &t));
  a->single = true;
  return sc__archive_add(a, "", 0, t);
}

/* ---- writing ---- */

int sc__npy_header(const sc_tensor *t, char *out, size_t size) {
  static const char *const DESCR[SC_DTYPES] = {
    [SC_FLOAT32] = "<f4", [SC_FLOAT64] = "<f8", [SC_FLOAT16] = "<f2", [SC_INT8] = "|i1", [SC_UINT8] = "|u1", [SC_INT16] = "<i2",
    [SC_INT32] = "<i4", [SC_INT64] = "<i8", [SC_BOOL] = "|b1", [SC_UINT16] = "<u2", [SC_UINT32] = "<u4", [SC_UINT64] = "<u8"};
  if (!DESCR[t->dtype]) return 0;
  int n = 10 + snprintf(out + 10, size - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (", DESCR[t->dtype]);
  for (int i = 0; i < t->ndim; i++) n += snprintf(out + n, size - (size_t)n, i ? ", %lld" : "%lld", (long long)t->dim[i]);
  n += snprintf(out + n, size - (size_t)n, t->ndim == 1 ? ",), }" : "), }");
  while (n % 64 != 63) out[n++] = ' ';
  out[n++] = '\n';
  memcpy(out, "\x93NUMPY\1\0", 8);
  out[8] = (char)((n - 10) & 255);
  out[9] = (char)((n - 10) >> 8);
  return n;
}

sc_status sc__npy_save(sc_context *ctx, const char *path, sc_tensor *t) {
  char header[SC__NPY_HEADER];
  int n = sc__npy_header(t, header, sizeof header);
  if (!n) return sc__save_bad(ctx, path, "the .npy format has no %s", sc_dtype_name((sc_dtype)t->dtype));
  sc_tensor *packed;
  SC_TRY(sc__tensor_packed(t, &packed));
  sc_sink sink;
  sc_status s = sc__sink_open(ctx, path, &sink);
  if (s == SC_OK) {
    s = sc__sink_write(&sink, header, (size_t)n);
    if (s == SC_OK) s = sc__sink_write(&sink, packed->data, (size_t)t->numel * sc_dtype_size((sc_dtype)t->dtype));
    s = sc__sink_close(&sink, s);
  }
  sc_tensor_release(packed);
  return s;
}
