/* IDX: two zero bytes, a type, the number of dims, the sizes as big-endian 32-bit numbers, then the elements, big-endian.
** Source: "The IDX file format", Y. LeCun, C. Cortes, C. Burges. A file is hostile until read: it must be a regular file, the sizes'
** product is checked, and no more is allocated than its length could hold (deflate expands at most 1032 times).
**
** PNG: signature, IHDR, one IDAT (zlib stream of rows, each led by filter 0), IEND. Source: W3C, PNG specification. */
#include "images.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

static sc_status bad(sc_context *ctx, sc_status s, const char *path, const char *why) {
  char shown[256];
  return sc__fail(ctx, s, "%s: %s", sc__printable(path, strlen(path), shown, sizeof shown), why);
}

static bool read_all(gzFile f, void *to, int64_t bytes) {
  char *at = to;
  while (bytes > 0) {
    int n = gzread(f, at, bytes > 1 << 30 ? 1 << 30 : (unsigned)bytes);
    if (n <= 0) return false;
    at += n;
    bytes -= n;
  }
  return true;
}

static bool idx_dtype(uint8_t code, sc_dtype *out) {
  switch (code) {
    case 0x08: *out = SC_UINT8; return true;
    case 0x09: *out = SC_INT8; return true;
    case 0x0B: *out = SC_INT16; return true;
    case 0x0C: *out = SC_INT32; return true;
    case 0x0D: *out = SC_FLOAT32; return true;
    case 0x0E: *out = SC_FLOAT64; return true;
    default: return false;
  }
}

static void swap_bytes(char *p, int64_t n, size_t size) {
  const uint16_t probe = 1;
  if (size == 1 || *(const uint8_t *)&probe == 0) return;
  for (int64_t i = 0; i < n; i++, p += size)
    for (size_t k = 0; k < size / 2; k++) { char t = p[k]; p[k] = p[size - 1 - k]; p[size - 1 - k] = t; }
}

static sc_status read_open(sc_context *ctx, const char *path, gzFile f, int64_t length, sc_tensor **out) {
  uint8_t head[4], size[4];
  int64_t dim[8], numel;
  sc_dtype dtype;
  if (!read_all(f, head, 4) || head[0] || head[1] || !idx_dtype(head[2], &dtype)) return bad(ctx, SC_EFORMAT, path, "not an IDX file");
  if (head[3] == 0 || head[3] > 8) return bad(ctx, SC_EFORMAT, path, "an IDX file has 1 to 8 dimensions");
  for (int i = 0; i < head[3]; i++) {
    if (!read_all(f, size, 4)) return bad(ctx, SC_EFORMAT, path, "the file ends in its header");
    dim[i] = (int64_t)size[0] << 24 | size[1] << 16 | size[2] << 8 | size[3];
  }
  SC_TRY(sc__numel(ctx, "read_idx", dtype, head[3], dim, &numel));
  int64_t bytes = numel * (int64_t)sc_dtype_size(dtype);
  if (bytes / 1100 > length) return bad(ctx, SC_EFORMAT, path, "the header claims more than the file can hold");
  SC_TRY(sc_tensor_new(ctx, dtype, head[3], dim, out));
  char past;
  bool whole = read_all(f, sc_tensor_data(*out), bytes);
  if (!whole || gzread(f, &past, 1) != 0) {
    sc_tensor_release(*out);
    *out = NULL;
    return bad(ctx, SC_EFORMAT, path, whole ? "there is more data than the header says" : "the file is cut short or damaged");
  }
  swap_bytes(sc_tensor_data(*out), numel, sc_dtype_size(dtype));
  return SC_OK;
}

sc_status sc__read_idx(sc_context *ctx, const char *path, sc_tensor **out) {
  struct stat st;
  if (stat(path, &st) != 0) return bad(ctx, SC_EIO, path, strerror(errno));
  if (!S_ISREG(st.st_mode)) return bad(ctx, SC_EIO, path, "not a regular file");
  gzFile f = gzopen(path, "rb");
  if (!f) return bad(ctx, SC_EIO, path, strerror(errno));
  sc_status s = read_open(ctx, path, f, (int64_t)st.st_size, out);
  gzclose(f);
  return s;
}

/* ---- PNG ---- */

static void put32(uint8_t *p, uint32_t v) { p[0] = (uint8_t)(v >> 24); p[1] = (uint8_t)(v >> 16); p[2] = (uint8_t)(v >> 8); p[3] = (uint8_t)v; }

static bool chunk(FILE *f, const char *type, const uint8_t *data, uint32_t n) {
  uint8_t head[8], tail[4];
  put32(head, n);
  memcpy(head + 4, type, 4);
  uLong crc = crc32(0, head + 4, 4);
  if (n) crc = crc32(crc, data, n);
  put32(tail, (uint32_t)crc);
  return fwrite(head, 1, 8, f) == 8 && fwrite(data, 1, n, f) == n && fwrite(tail, 1, 4, f) == 4;
}

static bool write_file(FILE *f, int64_t H, int64_t W, bool colour, const uint8_t *packed, uint32_t n) {
  uint8_t ihdr[13];
  put32(ihdr, (uint32_t)W);
  put32(ihdr + 4, (uint32_t)H);
  memcpy(ihdr + 8, (const uint8_t[]){8, colour ? 2 : 0, 0, 0, 0}, 5);
  return fwrite("\x89PNG\r\n\x1a\n", 1, 8, f) == 8 && chunk(f, "IHDR", ihdr, 13) && chunk(f, "IDAT", packed, n) && chunk(f, "IEND", ihdr, 0);
}

sc_status sc__write_png(sc_context *ctx, const char *path, sc_tensor *t) {
  bool colour = t->ndim == 3;
  char text[200], beside[4096];
  if (t->dtype != SC_UINT8 || (t->ndim != 2 && !(colour && t->dim[2] == 3)) || t->numel == 0 || t->dim[0] > 65535 || t->dim[1] > 65535)
    return sc__fail(ctx, SC_EINVAL, "write_png: expected uint8 of shape {H, W} or {H, W, 3}, got %s %s", sc_dtype_name((sc_dtype)t->dtype),
                    sc__shape_text(t->ndim, t->dim, text, sizeof text));
  if (strlen(path) + 8 > sizeof beside) return bad(ctx, SC_EIO, path, "the path is too long");
  int64_t H = t->dim[0], row = t->dim[1] * (colour ? 3 : 1);
  size_t raw_size = (size_t)(H * (row + 1));
  uLongf n = compressBound((uLong)raw_size);
  size_t packed_size = n;
  uint8_t *raw = sc__alloc(ctx, raw_size), *packed = sc__alloc(ctx, packed_size);
  sc_tensor *flat = NULL;
  sc_status s = raw && packed ? sc__tensor_packed(t, &flat) : sc__no_memory(ctx, raw_size);
  if (s == SC_OK) {
    for (int64_t i = 0; i < H; i++) {
      raw[i * (row + 1)] = 0;
      memcpy(raw + i * (row + 1) + 1, flat->data + i * row, (size_t)row);
    }
    if (compress2(packed, &n, raw, (uLong)raw_size, 9) != Z_OK) s = sc__fail(ctx, SC_ENOMEM, "write_png: zlib refused");
  }
  if (s == SC_OK) {
    snprintf(beside, sizeof beside, "%s.part", path);
    FILE *f = fopen(beside, "wb");
    bool ok = f && write_file(f, H, t->dim[1], colour, packed, (uint32_t)n);
    if (f && fclose(f) != 0) ok = false;
    if (!ok || rename(beside, path) != 0) {
      int e = errno;
      if (f) remove(beside);
      s = bad(ctx, SC_EIO, path, strerror(e));
    }
  }
  sc_tensor_release(flat);
  sc__release(ctx, raw, raw_size);
  sc__release(ctx, packed, packed_size);
  return s;
}
