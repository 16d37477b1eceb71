/* TensorProto: elements raw, in typed fields, or in a file beside the model. Each size is checked against what is there before
** memory is taken. A file with data is opened part by part from the model's own folder, never through a link, and must be a regular
** file with one name (a second name, a hard link, may lead out of the folder). Format: ONNX, onnx.proto3, TensorProto. */
#include "onnx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* code, dtype, typed field and how its values are written, bits of an element when several share a byte */
static const struct { uint8_t code, dtype, field, wire, bits; } TYPES[] = {
  {1, SC_FLOAT32, 4, SC_PB_FIXED32, 0}, {2, SC_UINT8, 5, SC_PB_VARINT, 0}, {3, SC_INT8, 5, SC_PB_VARINT, 0}, {4, SC_UINT16, 5, SC_PB_VARINT, 0},
  {5, SC_INT16, 5, SC_PB_VARINT, 0}, {6, SC_INT32, 5, SC_PB_VARINT, 0}, {7, SC_INT64, 7, SC_PB_VARINT, 0}, {9, SC_BOOL, 5, SC_PB_VARINT, 0},
  {10, SC_FLOAT16, 5, SC_PB_VARINT, 0}, {11, SC_FLOAT64, 10, SC_PB_FIXED64, 0}, {12, SC_UINT32, 11, SC_PB_VARINT, 0},
  {13, SC_UINT64, 11, SC_PB_VARINT, 0}, {16, SC_BFLOAT16, 5, SC_PB_VARINT, 0},
  {17, SC_FLOAT8E4M3FN, 5, SC_PB_VARINT, 0}, {18, SC_FLOAT8E4M3FNUZ, 5, SC_PB_VARINT, 0}, {19, SC_FLOAT8E5M2, 5, SC_PB_VARINT, 0},
  {20, SC_FLOAT8E5M2FNUZ, 5, SC_PB_VARINT, 0}, {21, SC_UINT4, 5, SC_PB_VARINT, 4}, {22, SC_INT4, 5, SC_PB_VARINT, 4}, {23, SC_FLOAT4E2M1, 5, SC_PB_VARINT, 4},
  {24, SC_FLOAT8E8M0, 5, SC_PB_VARINT, 0}, {25, SC_UINT2, 5, SC_PB_VARINT, 2}, {26, SC_INT2, 5, SC_PB_VARINT, 2}};

static int type_row(int64_t code) {
  for (int i = 0; i < SC_COUNT(TYPES); i++) if (TYPES[i].code == code) return i;
  return -1;
}
int sc__onnx_code(sc_dtype d) {
  for (int i = 0; i < SC_COUNT(TYPES); i++) if (TYPES[i].dtype == d) return TYPES[i].code;
  return 0;
}
bool sc__onnx_dtype(int64_t code, sc_dtype *out) {
  int row = type_row(code);
  if (row >= 0) *out = (sc_dtype)TYPES[row].dtype;
  return row >= 0;
}

static const char *shown(const sc_onnx_tensor *t, char *out, size_t size) { return sc__printable(t->name ? t->name : "", t->name_length, out, size); }

/* ---- the fields ---- */

static bool decimal(const uint8_t *s, size_t n, int64_t *out) {
  *out = 0;
  for (size_t i = 0; i < n; i++)
    if (s[i] < '0' || s[i] > '9' || __builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, s[i] - '0', out)) return false;
  return n > 0;
}

static bool external_entry(sc_onnx_tensor *t, const uint8_t *data, size_t size) {
  sc_pb_pair p;
  if (!sc__pb_pair(data, size, &p) || !p.key) return false;
  if (sc__pb_is(p.key, p.n_key, "location")) { t->location = (const char *)p.value; t->location_length = p.n_value; }
  if (sc__pb_is(p.key, p.n_key, "offset")) return decimal(p.value, p.n_value, &t->offset);
  if (sc__pb_is(p.key, p.n_key, "length")) return decimal(p.value, p.n_value, &t->length);
  return true;
}

static int64_t values_in(const sc_pb *p, int wire) {
  if (p->wire != SC_PB_BYTES) return p->wire == wire ? 1 : -1;
  if (wire == SC_PB_FIXED32) return p->size % 4 ? -1 : (int64_t)(p->size / 4);
  if (wire == SC_PB_FIXED64) return p->size % 8 ? -1 : (int64_t)(p->size / 8);
  int64_t n = 0;
  for (size_t i = 0; i < p->size; i++) n += !(p->data[i] & 0x80);
  return n;
}

static bool dims(sc_onnx_tensor *t, const sc_pb *p) {
  size_t place = 0;
  uint64_t v;
  int r;
  while ((r = sc__pb_value(p, SC_PB_VARINT, &place, &v)) > 0) {
    if (t->ndim == SC_MAX_DIMS) return false;
    t->dim[t->ndim++] = (int64_t)v;
  }
  return r == 0;
}

static bool one_field(sc_onnx_tensor *t, const sc_pb *p) {
  bool bytes = p->wire == SC_PB_BYTES, varint = p->wire == SC_PB_VARINT;
  if (p->field == 1) return dims(t, p);
  if (p->field == 2) { t->type = (int64_t)p->number; return varint; }
  if (p->field == 8) { t->name = (const char *)p->data; t->name_length = p->size; return bytes; }
  if (p->field == 9) { t->raw = p->data; t->raw_size = p->size; t->has_raw = true; return bytes; }
  if (p->field == 13) return bytes && external_entry(t, p->data, p->size);
  if (p->field == 14) { t->external = p->number == 1; return varint; }
  return true;
}

/* How many values the typed field of the tensor's type holds; -1: malformed */
static int64_t count_values(const sc_onnx_tensor *t, int row) {
  sc_pb p = sc__pb(t->message, t->size);
  int64_t total = 0;
  while (sc__pb_next(&p) > 0) {
    if (p.field != TYPES[row].field) continue;
    int64_t n = values_in(&p, TYPES[row].wire);
    if (n < 0) return -1;
    total += n;
  }
  return total;
}

sc_status sc__onnx_tensor_open(const sc_source *s, const uint8_t *message, size_t size, sc_onnx_tensor *t) {
  char name[120];
  *t = (sc_onnx_tensor){.message = message, .size = size, .length = -1};
  sc_pb p = sc__pb(message, size);
  int r;
  while ((r = sc__pb_next(&p)) > 0)
    if (!one_field(t, &p)) return sc__source_bad(s, "tensor \"%s\": field %u is malformed", shown(t, name, sizeof name), (unsigned)p.field);
  if (r < 0) return sc__source_bad(s, "tensor \"%s\": the message is malformed", shown(t, name, sizeof name));
  int row = type_row(t->type);
  if (row < 0) return sc__source_bad(s, "tensor \"%s\": element type %lld is not supported", shown(t, name, sizeof name), (long long)t->type);
  t->count = count_values(t, row);
  if (t->count < 0) return sc__source_bad(s, "tensor \"%s\": its data are malformed", shown(t, name, sizeof name));
  return SC_OK;
}

/* ---- the elements ---- */

/* How many bytes or values of a file hold n elements. */
static int64_t units(int row, int64_t n) { return TYPES[row].bits ? n / (8 / TYPES[row].bits) + (n % (8 / TYPES[row].bits) != 0) : n; }

/* Elements that share bytes, the first in the low bits, get one each. The packed bytes stand at the end of the tensor's memory: what is written
** there has been read. */
static void unpack(int row, sc_tensor *t) {
  int bits = TYPES[row].bits, per = 8 / bits;
  const uint8_t *from = (const uint8_t *)t->data + (t->numel - units(row, t->numel));
  for (int64_t i = 0; i < t->numel; i++)
    t->data[i] = (char)sc__narrow_code((sc_dtype)TYPES[row].dtype, from[i / per] >> (i % per * bits) & ((1 << bits) - 1));
}

/* Where a file's bytes go: at the end. */
static char *file_bytes(sc_tensor *t, int64_t bytes) { return t->data + (t->numel * (int64_t)sc_dtype_size((sc_dtype)t->dtype) - bytes); }

static sc_status typed(const sc_source *s, const sc_onnx_tensor *t, int row, sc_tensor *to) {
  sc_pb p = sc__pb(t->message, t->size);
  size_t es = sc_dtype_size((sc_dtype)TYPES[row].dtype);
  int64_t left = units(row, to->numel);
  char *at = to->data + (to->numel - left) * (int64_t)es;
  while (sc__pb_next(&p) > 0) {
    if (p.field != TYPES[row].field) continue;
    size_t place = 0;
    uint64_t v;
    int r;
    while ((r = sc__pb_value(&p, TYPES[row].wire, &place, &v)) > 0 && left > 0) {
      if (TYPES[row].dtype == SC_BOOL) v = v != 0;
      memcpy(at, &v, es);                               /* little-endian: the low bytes */
      at += es;
      left--;
    }
    if (r != 0) return sc__source_bad(s, "a tensor's data are malformed");
  }
  return left == 0 ? SC_OK : sc__source_bad(s, "a tensor's data are malformed");
}

/* The file, opened from the folder on without following a link. */
static int open_inside(const char *folder, char *location) {
  int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (char *part = location, *slash; at >= 0; part = slash + 1) {
    slash = strchr(part, '/');
    if (slash) *slash = 0;
    int flags = slash ? O_DIRECTORY : O_NONBLOCK | O_NOCTTY;
    int next = openat(at, part, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | flags), e = errno;
    close(at);
    errno = e;
    if (!slash) return next;
    *slash = '/';
    at = next;
  }
  return -1;
}

static bool stays_inside(const char *location) {
  if (!*location || *location == '/' || strchr(location, '\\')) return false;
  for (const char *part = location; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
    size_t n = strcspn(part, "/");
    if (n == 0 || (n == 2 && part[0] == '.' && part[1] == '.')) return false;
  }
  return true;
}

static sc_status read_at(const sc_source *s, int fd, char *to, int64_t bytes, int64_t offset) {
  while (bytes > 0) {
    ssize_t n = pread(fd, to, bytes < 1 << 30 ? (size_t)bytes : (size_t)1 << 30, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return sc__source_bad(s, "external data: %s", n < 0 ? strerror(errno) : "the file became shorter while it was read");
    to += n;
    offset += n;
    bytes -= n;
  }
  return SC_OK;
}

static sc_status from_file(const sc_source *s, const sc_onnx_tensor *t, const char *location, int fd, const sc_meta *m, int64_t bytes, sc_tensor **out) {
  struct stat st;
  if (fstat(fd, &st) != 0) return sc__source_bad(s, "external data \"%s\": %s", location, strerror(errno));
  if (!S_ISREG(st.st_mode)) return sc__source_bad(s, "external data \"%s\": is not a regular file", location);
  if (st.st_nlink > 1) return sc__source_bad(s, "external data \"%s\": is a hard link, which may lead out of the model's folder", location);
  if (t->length >= 0 && t->length != bytes) return sc__source_bad(s, "external data \"%s\": length %lld, expected %lld", location, (long long)t->length, (long long)bytes);
  if (t->offset > st.st_size || bytes > st.st_size - t->offset) return sc__source_bad(s, "external data \"%s\": %lld bytes at %lld are past the file's end", location, (long long)bytes, (long long)t->offset);
  SC_TRY(sc__tensor_like_meta(s->ctx, "load", m, out));
  return read_at(s, fd, file_bytes(*out, bytes), bytes, t->offset);
}

/* A host's loader stands for the file system: it is asked for the same path. */
static sc_status from_host(const sc_source *s, const sc_onnx_tensor *t, const char *path, const sc_meta *m, int64_t bytes, sc_tensor **out) {
  sc_source file;
  SC_TRY(sc__source_open(s->ctx, path, &file));
  sc_status r = SC_OK;
  if (t->offset > (int64_t)file.size || bytes > (int64_t)file.size - t->offset || (t->length >= 0 && t->length != bytes)) r = sc__source_bad(s, "external data: a range past the file's end");
  if (r == SC_OK) r = sc__tensor_like_meta(s->ctx, "load", m, out);
  if (r == SC_OK) memcpy(file_bytes(*out, bytes), file.data + t->offset, (size_t)bytes);
  sc__source_done(&file);
  return r;
}

static sc_status external(const sc_source *s, const sc_onnx_tensor *t, const sc_meta *m, int64_t bytes, sc_tensor **out) {
  char folder[4096], location[1024], name[120], text[200];
  const char *slash = strrchr(s->path, '/');
  size_t n = slash ? (size_t)(slash - s->path) + 1 : 0;
  if (!t->location || t->location_length >= sizeof location || memchr(t->location, 0, t->location_length) || n + 2 > sizeof folder)
    return sc__source_bad(s, "tensor \"%s\": external data without a usable location", shown(t, name, sizeof name));
  memcpy(location, t->location, t->location_length);
  location[t->location_length] = 0;
  sc__printable(location, t->location_length, text, sizeof text);
  if (!stays_inside(location)) return sc__source_bad(s, "tensor \"%s\": external data \"%s\" lies outside the model's folder", shown(t, name, sizeof name), text);
  memcpy(folder, n ? s->path : "./", n ? n : 2);
  folder[n ? n : 2] = 0;
  if (s->ctx->loader.read) {
    if (n + t->location_length + 1 > sizeof folder) return sc__source_bad(s, "external data: the path is too long");
    memcpy(folder + n, location, t->location_length + 1);
    return from_host(s, t, folder, m, bytes, out);
  }
  int fd = open_inside(folder, location);
  if (fd < 0) return sc__source_bad(s, "tensor \"%s\": external data \"%s\": %s", shown(t, name, sizeof name), text, errno == ELOOP ? "is a link, which may lead out of the model's folder" : strerror(errno));
  sc_status r = from_file(s, t, text, fd, m, bytes, out);
  close(fd);
  return r;
}

sc_status sc__onnx_tensor_read(const sc_source *s, const sc_onnx_tensor *t, sc_tensor **out) {
  char name[120];
  int row = type_row(t->type);
  sc_meta m;
  int64_t numel = 1, bytes;
  m.dtype = (sc_dtype)TYPES[row].dtype;
  m.ndim = (int)t->ndim;
  *out = NULL;
  for (int i = 0; i < m.ndim; i++) m.dim[i] = t->dim[i];
  if (sc__numel(s->ctx, "load", m.dtype, m.ndim, m.dim, &numel) != SC_OK || !sc__mul(units(row, numel), (int64_t)sc_dtype_size(m.dtype), &bytes))
    return sc__source_bad(s, "tensor \"%s\": its sizes are negative or too large", shown(t, name, sizeof name));
  sc__contiguous_strides(m.ndim, m.dim, m.stride);
  m.offset = 0;
  sc_status r;
  if (t->external) {
    if (t->has_raw || t->count) return sc__source_bad(s, "tensor \"%s\": has data here and in another file", shown(t, name, sizeof name));
    r = external(s, t, &m, bytes, out);
  } else if (t->has_raw && t->raw_size) {
    if ((int64_t)t->raw_size != bytes) return sc__source_bad(s, "tensor \"%s\": %zu bytes of data, expected %lld", shown(t, name, sizeof name), t->raw_size, (long long)bytes);
    r = sc__tensor_like_meta(s->ctx, "load", &m, out);
    if (r == SC_OK) memcpy(file_bytes(*out, bytes), t->raw, t->raw_size);
    for (size_t i = 0; r == SC_OK && m.dtype == SC_BOOL && i < t->raw_size; i++) (*out)->data[i] = (*out)->data[i] != 0;
  } else {
    int64_t want = units(row, numel);
    if (t->count != want) return sc__source_bad(s, "tensor \"%s\": %lld values, expected %lld", shown(t, name, sizeof name), (long long)t->count, (long long)want);
    r = sc__tensor_like_meta(s->ctx, "load", &m, out);
    if (r == SC_OK) r = typed(s, t, row, *out);
  }
  if (r == SC_OK && TYPES[row].bits) unpack(row, *out);
  if (r != SC_OK) { sc_tensor_release(*out); *out = NULL; }
  return r;
}
