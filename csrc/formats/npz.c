/* .npz: a zip archive of .npy arrays, stored or deflated. Nothing is extracted to disk.
**
** Only the central directory at the end is believed, and of it only what the file bears out: every member lies inside the file and
** overlaps no other (so that one stretch of data cannot be unpacked many times), has a local header of the same name, is not
** encrypted, inflates to exactly the size declared and has the declared checksum. A size that deflate could not reach from the
** bytes there are (1032 to 1) is refused before memory is taken.
** Source: PKWARE, "APPNOTE.TXT - .ZIP File Format Specification" 6.3; RFC 1951. */
#include "formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { LOCAL = 30, CENTRAL = 46, END = 22, END64 = 56, LOCATOR = 20, ENCRYPTED = 1 | 64, UTF8_NAMES = 2048 };

static uint32_t le16(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t le32(const uint8_t *p) { return le16(p) | le16(p + 2) << 16; }
static uint64_t le64(const uint8_t *p) { return le32(p) | (uint64_t)le32(p + 4) << 32; }

/* ---- reading ---- */

typedef struct member {
  const char *name;                 /* in the file, not ended by 0 */
  uint32_t length, method, crc;
  uint64_t packed, size, at;        /* bytes in the file, unpacked; where the data begins */
  uint64_t local;                   /* where its local header begins */
} member;

static sc_status bad_member(const sc_source *s, const member *m, const char *what) {
  char shown[256];
  return sc__source_bad(s, "\"%s\": %s", sc__printable(m->name, m->length, shown, sizeof shown), what);
}

/* The central directory: where it is and how many members it has. */
static sc_status find_directory(const sc_source *s, uint64_t *at, uint64_t *bytes, uint64_t *n) {
  const uint8_t *d = s->data;
  if (s->size < END) return sc__source_bad(s, "the zip archive is cut short");
  size_t e = s->size - END, lowest = e > 65535 ? e - 65535 : 0;
  while (le32(d + e) != 0x06054b50 || le16(d + e + 20) != s->size - END - e) {
    if (e == lowest) return sc__source_bad(s, "the zip archive has no end record: it is cut short or damaged");
    e--;
  }
  if (le16(d + e + 4) || le16(d + e + 6)) return sc__source_bad(s, "zip archives of several parts are not read");
  *n = le16(d + e + 10);
  *bytes = le32(d + e + 12);
  *at = le32(d + e + 16);
  uint64_t limit = e;
  bool big = *n == 0xFFFF || *bytes == 0xFFFFFFFF || *at == 0xFFFFFFFF;
  if (big && e >= LOCATOR && le32(d + e - LOCATOR) == 0x07064b50) {
    uint64_t z = le64(d + e - LOCATOR + 8);
    if (z > e - LOCATOR || e - LOCATOR - z < END64 || le32(d + z) != 0x06064b50) return sc__source_bad(s, "the zip64 end record is not where it should be");
    *n = le64(d + z + 32);
    *bytes = le64(d + z + 40);
    *at = le64(d + z + 48);
    limit = z;
  }
  if (*at > limit || *bytes > limit - *at) return sc__source_bad(s, "the zip directory lies outside the file");
  if (*n > *bytes / CENTRAL) return sc__source_bad(s, "the zip directory has no room for %llu members", (unsigned long long)*n);
  return SC_OK;
}

/* Sizes of 2^32 and more stand in the extra field 1, in order, only those that are all ones in the record. */
static bool zip64_sizes(const uint8_t *extra, uint32_t length, member *m) {
  uint64_t *want[3];
  int n = 0, done = 0;
  if (m->size == 0xFFFFFFFF) want[n++] = &m->size;
  if (m->packed == 0xFFFFFFFF) want[n++] = &m->packed;
  if (m->local == 0xFFFFFFFF) want[n++] = &m->local;
  for (uint32_t i = 0; n && length - i >= 4;) {
    uint32_t id = le16(extra + i), size = le16(extra + i + 2);
    i += 4;
    if (size > length - i) return false;
    if (id == 1) {
      for (uint32_t k = 0; done < n && size - k >= 8; k += 8) *want[done++] = le64(extra + i + k);
      return done == n;
    }
    i += size;
  }
  return n == 0;
}

static bool safe_name(const member *m) {
  if (m->length == 0 || m->name[0] == '/' || memchr(m->name, 0, m->length) || memchr(m->name, '\\', m->length)) return false;
  for (uint32_t i = 0; i + 1 < m->length; i++)
    if (m->name[i] == '.' && m->name[i + 1] == '.' && (i == 0 || m->name[i - 1] == '/') && (i + 2 == m->length || m->name[i + 2] == '/')) return false;
  return true;
}

static sc_status check_member(const sc_source *s, member *m, uint32_t flags, uint64_t directory) {
  const uint8_t *d = s->data;
  if (!sc__utf8_valid((const uint8_t *)m->name, m->length) || !safe_name(m)) return bad_member(s, m, "a name like this is refused");
  if (m->length < 5 || memcmp(m->name + m->length - 4, ".npy", 4) != 0) return bad_member(s, m, "not an array (its name does not end in .npy)");
  if (flags & ENCRYPTED) return bad_member(s, m, "it is encrypted");
  if (m->method != 0 && m->method != 8) return bad_member(s, m, "its compression is neither stored nor deflate");
  if (m->method == 0 && m->packed != m->size) return bad_member(s, m, "it is stored, but its two sizes differ");
  if (m->local > directory || directory - m->local < LOCAL || le32(d + m->local) != 0x04034b50) return bad_member(s, m, "its header lies outside the file or is damaged");
  uint64_t names = le16(d + m->local + 26), skip = LOCAL + names + le16(d + m->local + 28);
  if (skip > directory - m->local || m->packed > directory - m->local - skip) return bad_member(s, m, "its data lies outside the file");
  if (names != m->length || memcmp(d + m->local + LOCAL, m->name, m->length) != 0) return bad_member(s, m, "its header has another name than the directory");
  m->at = m->local + skip;
  if (m->size / 1032 > m->packed + 1) return bad_member(s, m, "it claims more than its bytes can hold");
  return SC_OK;
}

static sc_status read_directory(const sc_source *s, uint64_t at, uint64_t bytes, uint64_t n, member *out) {
  const uint8_t *d = s->data;
  uint64_t end = at + bytes, directory = at;
  for (uint64_t i = 0; i < n; i++) {
    if (end - at < CENTRAL || le32(d + at) != 0x02014b50) return sc__source_bad(s, "the zip directory is damaged");
    uint32_t flags = le16(d + at + 8), length = le16(d + at + 28), extra = le16(d + at + 30), comment = le16(d + at + 32);
    if (end - at - CENTRAL < (uint64_t)length + extra + comment) return sc__source_bad(s, "the zip directory is damaged");
    member m = {.name = (const char *)d + at + CENTRAL, .length = length, .method = le16(d + at + 10), .crc = le32(d + at + 16),
                .packed = le32(d + at + 20), .size = le32(d + at + 24), .local = le32(d + at + 42)};
    if (!zip64_sizes(d + at + CENTRAL + length, extra, &m)) return bad_member(s, &m, "its zip64 sizes are missing");
    SC_TRY(check_member(s, &m, flags, directory));
    out[i] = m;
    at += CENTRAL + (uint64_t)length + extra + comment;
  }
  return at == end ? SC_OK : sc__source_bad(s, "the zip directory is longer than its members");
}

static int by_place(const void *x, const void *y) {
  const member *a = x, *b = y;
  return (a->local > b->local) - (a->local < b->local);
}
static int by_name(const void *x, const void *y) {
  const member *a = x, *b = y;
  int c = memcmp(a->name, b->name, a->length < b->length ? a->length : b->length);
  return c ? c : (a->length > b->length) - (a->length < b->length);
}

static sc_status check_whole(const sc_source *s, member *m, uint64_t n) {
  if (n) qsort(m, (size_t)n, sizeof *m, by_name);
  for (uint64_t i = 1; i < n; i++)
    if (by_name(&m[i - 1], &m[i]) == 0) return bad_member(s, &m[i], "the name occurs twice");
  if (n) qsort(m, (size_t)n, sizeof *m, by_place);
  for (uint64_t i = 1; i < n; i++)
    if (m[i].local < m[i - 1].at + m[i - 1].packed) return bad_member(s, &m[i], "it overlaps another member");
  return SC_OK;
}

/* out: m->size bytes */
static sc_status inflate_member(const sc_source *s, const member *m, uint8_t *out) {
  z_stream z = {0};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return sc__no_memory(s->ctx, 65536);
  uint64_t in = m->packed, room = m->size;
  int r = Z_OK;
  z.next_in = (Bytef *)(s->data + m->at);
  z.next_out = out;
  while (r == Z_OK) {
    uInt give = in > 1 << 30 ? 1 << 30 : (uInt)in, take = room > 1 << 30 ? 1 << 30 : (uInt)room;
    z.avail_in = give;
    z.avail_out = take;
    r = inflate(&z, Z_NO_FLUSH);
    in -= give - z.avail_in;
    room -= take - z.avail_out;
    if (r == Z_OK && z.avail_in == give && z.avail_out == take) r = Z_BUF_ERROR;     /* no progress */
  }
  inflateEnd(&z);
  if (r == Z_MEM_ERROR) return sc__no_memory(s->ctx, 65536);
  if (r != Z_STREAM_END || room || in) return bad_member(s, m, r == Z_BUF_ERROR && !room ? "it inflates to more than it declares" : "its deflated data is damaged or shorter than declared");
  return SC_OK;
}

static bool crc_fits(const uint8_t *p, uint64_t n, uint32_t want) {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION       /* a fuzzer does not guess checksums, and shall see what lies behind them */
  return true;
#endif
  uLong crc = crc32(0, NULL, 0);
  for (uint64_t k; n; p += k, n -= k) {
    k = n < 1 << 30 ? n : 1 << 30;
    crc = crc32(crc, p, (uInt)k);
  }
  return (uint32_t)crc == want;
}

static sc_status load_member(const sc_source *s, const member *m, sc_archive *a) {
  const uint8_t *data = s->data + m->at;
  uint8_t *unpacked = NULL;
  sc_status r = SC_OK;
  if (m->size == 0) return bad_member(s, m, "it is empty");
  if (m->method == 8) {
    unpacked = sc__alloc(s->ctx, m->size);
    if (!unpacked) return sc__no_memory(s->ctx, m->size);
    r = inflate_member(s, m, unpacked);
    data = unpacked;
  }
  if (r == SC_OK && !crc_fits(data, m->size, m->crc)) r = bad_member(s, m, "its checksum is wrong");
  sc_tensor *t = NULL;
  char shown[256];
  if (r == SC_OK) r = sc__npy_parse(s, sc__printable(m->name, m->length, shown, sizeof shown), data, m->size, &t);
  if (r == SC_OK) r = sc__archive_add(a, m->name, m->length - 4, t);
  if (unpacked) sc__release(s->ctx, unpacked, m->size);
  return r;
}

sc_status sc__npz_load(const sc_source *s, sc_archive *a) {
  uint64_t at = 0, bytes = 0, n = 0;
  SC_TRY(find_directory(s, &at, &bytes, &n));
  size_t block = ((size_t)n + 1) * sizeof(member);
  member *m = sc__alloc(s->ctx, block);
  if (!m) return sc__no_memory(s->ctx, block);
  sc_status r = read_directory(s, at, bytes, n, m);
  if (r == SC_OK) r = check_whole(s, m, n);
  for (uint64_t i = 0; i < n && r == SC_OK; i++) r = load_member(s, &m[i], a);
  sc__release(s->ctx, m, block);
  return r;
}

/* ---- writing: stored, so that the bytes are those of the .npy files ---- */

static void put16(uint8_t *p, uint32_t v) { p[0] = (uint8_t)v; p[1] = (uint8_t)(v >> 8); }
static void put32(uint8_t *p, uint32_t v) { put16(p, v); put16(p + 2, v >> 16); }

/* The part that local header and directory have in common: version … length of the extra field. */
static void common(uint8_t *p, const sc_named_tensor *in, uint32_t crc, uint32_t size) {
  put16(p, 20);
  put16(p + 2, UTF8_NAMES);
  put16(p + 4, 0);
  put16(p + 6, 0);
  put16(p + 8, 0x21);                                  /* 1 January 1980: the same tensors give the same bytes */
  put32(p + 10, crc);
  put32(p + 14, size);
  put32(p + 18, size);
  put16(p + 22, (uint32_t)strlen(in->name) + 4);
  put16(p + 24, 0);
}

typedef struct written { uint32_t crc, size, at; } written;

static sc_status write_member(sc_sink *sink, const sc_named_tensor *in, written *w) {
  char header[SC__NPY_HEADER];
  uint8_t local[LOCAL];
  int n = sc__npy_header(in->tensor, header, sizeof header);
  sc_tensor *packed;
  SC_TRY(sc__tensor_packed(in->tensor, &packed));
  size_t bytes = (size_t)packed->numel * sc_dtype_size((sc_dtype)packed->dtype);
  uLong crc = crc32(crc32(0, NULL, 0), (const Bytef *)header, (uInt)n);
  for (size_t k = 0; k < bytes; k += 1 << 30) crc = crc32(crc, (const Bytef *)packed->data + k, (uInt)(bytes - k < 1 << 30 ? bytes - k : 1 << 30));
  *w = (written){(uint32_t)crc, (uint32_t)n + (uint32_t)bytes, (uint32_t)sink->written};
  put32(local, 0x04034b50);
  common(local + 4, in, w->crc, w->size);
  sc_status s = sc__sink_write(sink, local, LOCAL);
  if (s == SC_OK) s = sc__sink_write(sink, in->name, strlen(in->name));
  if (s == SC_OK) s = sc__sink_write(sink, ".npy", 4);
  if (s == SC_OK) s = sc__sink_write(sink, header, (size_t)n);
  if (s == SC_OK) s = sc__sink_write(sink, packed->data, bytes);
  sc_tensor_release(packed);
  return s;
}

static sc_status write_directory(sc_sink *sink, const sc_named_tensor *in, int64_t n, const written *w) {
  size_t begin = sink->written;
  for (int64_t i = 0; i < n; i++) {
    uint8_t central[CENTRAL] = {0};
    put32(central, 0x02014b50);
    put16(central + 4, 20);
    common(central + 6, &in[i], w[i].crc, w[i].size);
    put32(central + 42, w[i].at);
    SC_TRY(sc__sink_write(sink, central, CENTRAL));
    SC_TRY(sc__sink_write(sink, in[i].name, strlen(in[i].name)));
    SC_TRY(sc__sink_write(sink, ".npy", 4));
  }
  uint8_t end[END] = {0};
  put32(end, 0x06054b50);
  put16(end + 8, (uint32_t)n);
  put16(end + 10, (uint32_t)n);
  put32(end + 12, (uint32_t)(sink->written - begin));
  put32(end + 16, (uint32_t)begin);
  return sc__sink_write(sink, end, END);
}

static sc_status check(sc_context *ctx, const char *path, const sc_named_tensor *in, int64_t n) {
  char header[SC__NPY_HEADER], shown[256];
  uint64_t total = END;
  if (n > 65000) return sc__save_bad(ctx, path, "a .npz file of more than 65000 arrays is not written; use .safetensors");
  for (int64_t i = 0; i < n; i++) {
    member m = {.name = in[i].name, .length = (uint32_t)strlen(in[i].name)};
    sc__printable(in[i].name, strlen(in[i].name), shown, sizeof shown);
    if (strlen(in[i].name) > 60000 || !safe_name(&m) || !sc__utf8_valid((const uint8_t *)m.name, m.length))
      return sc__save_bad(ctx, path, "\"%s\" is not a name for a .npz file", shown);
    if (!sc__npy_header(in[i].tensor, header, sizeof header)) return sc__save_bad(ctx, path, "\"%s\": the .npy format has no %s", shown, sc_dtype_name((sc_dtype)in[i].tensor->dtype));
    total += (uint64_t)in[i].tensor->numel * sc_dtype_size((sc_dtype)in[i].tensor->dtype) + SC__NPY_HEADER + LOCAL + CENTRAL + 2 * (uint64_t)m.length + 8;
    if (total > 0xFFFFFFF0u) return sc__save_bad(ctx, path, "a .npz file of more than 4 GiB is not written; use .safetensors");
  }
  return SC_OK;
}

sc_status sc__npz_save(sc_context *ctx, const char *path, const sc_named_tensor *in, int64_t n) {
  SC_TRY(check(ctx, path, in, n));
  size_t block = ((size_t)n + 1) * sizeof(written);
  written *w = sc__alloc(ctx, block);
  if (!w) return sc__no_memory(ctx, block);
  sc_sink sink;
  sc_status s = sc__sink_open(ctx, path, &sink);
  if (s == SC_OK) {
    for (int64_t i = 0; i < n && s == SC_OK; i++) s = write_member(&sink, &in[i], &w[i]);
    if (s == SC_OK) s = write_directory(&sink, in, n, w);
    s = sc__sink_close(&sink, s);
  }
  sc__release(ctx, w, block);
  return s;
}
