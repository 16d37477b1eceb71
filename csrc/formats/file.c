/* The two doors to the file system.
**
** Reading: a regular file, whole, into memory. Not mapped: a mapped file that somebody truncates ends the process. A host's file
** loader, when there is one, is the only source.
** Writing: into a new file beside the target, flushed, then renamed over it, then the folder flushed; so that a crash or a full
** disk at any moment leaves the old file or the new one, and a failure leaves no temporary. */
#include "formats.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef O_CLOEXEC
#define O_CLOEXEC 0
#endif

static sc_status complain(sc_context *ctx, sc_status status, const char *verb, const char *path, const char *format, va_list ap) {
  char text[600], shown[256];
  vsnprintf(text, sizeof text, format, ap);
  return sc__fail(ctx, status, "%s: %s: %s", verb, sc__printable(path, strlen(path), shown, sizeof shown), text);
}
sc_status sc__source_bad(const sc_source *s, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  sc_status r = complain(s->ctx, SC_EFORMAT, "load", s->path, format, ap);
  va_end(ap);
  return r;
}
sc_status sc__save_bad(sc_context *ctx, const char *path, const char *format, ...) {
  va_list ap;
  va_start(ap, format);
  sc_status r = complain(ctx, SC_EINVAL, "save", path, format, ap);
  va_end(ap);
  return r;
}
static sc_status io_failed(sc_context *ctx, const char *verb, const char *path, const char *what) {
  char shown[256];
  return sc__fail(ctx, SC_EIO, "%s: %s: %s", verb, sc__printable(path, strlen(path), shown, sizeof shown), what);
}

/* ---- reading ---- */

static sc_status read_fully(sc_context *ctx, int fd, const char *path, uint8_t *to, size_t size) {
  for (size_t got = 0; got < size;) {
    size_t want = size - got < (size_t)1 << 30 ? size - got : (size_t)1 << 30;
    ssize_t n = read(fd, to + got, want);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_failed(ctx, "load", path, strerror(errno));
    if (n == 0) return io_failed(ctx, "load", path, "the file became shorter while it was read");
    got += (size_t)n;
  }
  return SC_OK;
}

static sc_status read_file(sc_source *s, int fd) {
  struct stat st;
  if (fstat(fd, &st) != 0) return io_failed(s->ctx, "load", s->path, strerror(errno));
  if (S_ISDIR(st.st_mode)) return io_failed(s->ctx, "load", s->path, "is a folder, not a file");
  if (!S_ISREG(st.st_mode)) return io_failed(s->ctx, "load", s->path, "is not a regular file");
  if (st.st_size == 0) return sc__source_bad(s, "the file is empty");
  size_t size = (size_t)st.st_size;
  uint8_t *data = sc__alloc(s->ctx, size);
  if (!data) return sc__no_memory(s->ctx, size);
  sc_status r = read_fully(s->ctx, fd, s->path, data, size);
  if (r != SC_OK) { sc__release(s->ctx, data, size); return r; }
  s->data = data;
  s->size = size;
  return SC_OK;
}

sc_status sc__source_open(sc_context *ctx, const char *path, sc_source *out) {
  *out = (sc_source){.ctx = ctx, .path = path};
  if (ctx->loader.read) {
    const void *data = NULL;
    out->hosted = true;
    sc_status r = ctx->loader.read(ctx->loader.user, path, &data, &out->size);
    if (r != SC_OK) return io_failed(ctx, "load", path, "the host's file loader has no such file");
    out->data = data;
    if (data && out->size) return SC_OK;
    sc__source_done(out);
    return sc__source_bad(out, "the file is empty");
  }
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);   /* a FIFO must not make us wait for its writer */
  if (fd < 0) return io_failed(ctx, "load", path, strerror(errno));
  sc_status r = read_file(out, fd);
  close(fd);
  return r;
}

void sc__source_done(sc_source *s) {
  if (s->hosted && s->data) { if (s->ctx->loader.release) s->ctx->loader.release(s->ctx->loader.user, s->data, s->size); }
  else if (s->data) sc__release(s->ctx, (void *)s->data, s->size);
  s->data = NULL;
}

void sc_set_file_loader(sc_context *ctx, const sc_file_loader *loader) {
  ctx->loader = loader ? *loader : (sc_file_loader){0};
}

/* ---- writing ---- */

static void forget(sc_sink *s) {
  if (s->path) sc__release(s->ctx, s->path, s->path_bytes);
  if (s->temporary) sc__release(s->ctx, s->temporary, s->temporary_bytes);
  s->path = s->temporary = NULL;
}

/* Where the file shall finally be: through a symbolic link to what it points at. *mode: of the file that is there, or 0666. */
static sc_status target(sc_sink *s, const char *path, mode_t *mode) {
  struct stat st;
  char real[PATH_MAX];
  *mode = 0666;
  if (stat(path, &st) == 0) {
    if (S_ISDIR(st.st_mode)) return io_failed(s->ctx, "save", path, "is a folder");
    if (!S_ISREG(st.st_mode)) return io_failed(s->ctx, "save", path, "is not a regular file");
    if (access(path, W_OK) != 0 || !realpath(path, real)) return io_failed(s->ctx, "save", path, strerror(errno));
    *mode = st.st_mode & 0777;
    path = real;
  } else if (errno != ENOENT) {
    return io_failed(s->ctx, "save", path, strerror(errno));
  }
  s->path_bytes = strlen(path) + 1;
  s->temporary_bytes = s->path_bytes + 48;
  s->path = sc__alloc(s->ctx, s->path_bytes);
  s->temporary = sc__alloc(s->ctx, s->temporary_bytes);
  if (!s->path || !s->temporary) return sc__no_memory(s->ctx, s->temporary_bytes);
  memcpy(s->path, path, s->path_bytes);
  return SC_OK;
}

sc_status sc__sink_open(sc_context *ctx, const char *path, sc_sink *out) {
  static atomic_uint serial;
  mode_t mode;
  *out = (sc_sink){.ctx = ctx, .fd = -1};
  sc_status r = target(out, path, &mode);
  for (int again = 0; r == SC_OK && out->fd < 0; again++) {
    snprintf(out->temporary, out->temporary_bytes, "%s.tmp-%ld-%u", out->path, (long)getpid(), atomic_fetch_add(&serial, 1));
    out->fd = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (out->fd < 0 && (errno != EEXIST || again == 100)) r = io_failed(ctx, "save", path, strerror(errno));
  }
  if (r != SC_OK) forget(out);
  return r;
}

sc_status sc__sink_write(sc_sink *s, const void *data, size_t n) {
  const char *from = data;
  while (n > 0) {
    ssize_t w = write(s->fd, from, n < (size_t)1 << 30 ? n : (size_t)1 << 30);
    if (w < 0 && errno == EINTR) continue;
    if (w <= 0) return io_failed(s->ctx, "save", s->path, w < 0 ? strerror(errno) : "nothing more can be written");
    from += w;
    n -= (size_t)w;
    s->written += (size_t)w;
  }
  return SC_OK;
}

static sc_status flush(sc_sink *s, int fd) {
  int r;
  do r = fsync(fd); while (r != 0 && errno == EINTR);
  return r == 0 ? SC_OK : io_failed(s->ctx, "save", s->path, strerror(errno));
}

static sc_status flush_folder(sc_sink *s) {
  char *slash = strrchr(s->path, '/');
  if (slash) slash[slash == s->path ? 1 : 0] = 0;
  int fd = open(slash ? s->path : ".", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return SC_OK;                            /* a folder that may be written but not read: the file itself is safe */
  int r, e;
  do r = fsync(fd); while (r != 0 && errno == EINTR);
  e = errno;
  close(fd);
  return r == 0 || e == EINVAL || e == ENOTSUP || e == EROFS ? SC_OK : io_failed(s->ctx, "save", s->path, strerror(e));
}

sc_status sc__sink_close(sc_sink *s, sc_status status) {
  if (status == SC_OK) status = flush(s, s->fd);
  if (close(s->fd) != 0 && status == SC_OK && errno != EINTR) status = io_failed(s->ctx, "save", s->path, strerror(errno));
  if (status == SC_OK && rename(s->temporary, s->path) != 0) status = io_failed(s->ctx, "save", s->path, strerror(errno));
  if (status != SC_OK) unlink(s->temporary);
  else status = flush_folder(s);
  s->fd = -1;
  forget(s);
  return status;
}
