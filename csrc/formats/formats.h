/* formats: named tensors in files. Reading goes through one door (file.c), into memory, and is told apart by content; every size
** in a file is checked against the bytes that are there before anything is allocated for it. Knows nothing of ops or Lua. */
#ifndef SC_FORMATS_H
#define SC_FORMATS_H

#include "../tensor/tensor.h"

/* ---- file.c ---- */

/* The bytes of a file, and what it is called in messages. */
typedef struct sc_source {
  sc_context *ctx;
  const char *path;                 /* borrowed */
  const uint8_t *data;
  size_t size;
  bool hosted;                      /* the data belongs to the context's file loader */
} sc_source;

/* new: pass it to sc__source_done. Regular files only, or what the context's loader gives. */
sc_status sc__source_open(sc_context *ctx, const char *path, sc_source *out);
void sc__source_done(sc_source *s);
/* SC_EFORMAT: "load: PATH: …" */
sc_status sc__source_bad(const sc_source *s, const char *format, ...) SC_FORMAT(2, 3);

/* A file being written beside its final place. */
typedef struct sc_sink {
  sc_context *ctx;
  int fd;                           /* -1: closed */
  size_t written;
  char *path, *temporary;           /* owned */
  size_t path_bytes, temporary_bytes;
} sc_sink;

sc_status sc__sink_open(sc_context *ctx, const char *path, sc_sink *out);
sc_status sc__sink_write(sc_sink *s, const void *data, size_t n);
/* Puts the file in its place when `status` is SC_OK, else removes it. Returns the first failure. */
sc_status sc__sink_close(sc_sink *s, sc_status status);
/* SC_EINVAL: "save: PATH: …" */
sc_status sc__save_bad(sc_context *ctx, const char *path, const char *format, ...) SC_FORMAT(3, 4);

/* ---- archive.c ---- */
struct sc_archive {
  sc_context *ctx;
  bool single;                      /* one array without a name */
  struct { char *name; size_t length; sc_tensor *tensor; } *entry;
  struct { char *name, *text; size_t length, text_length; } *note;
  int64_t n, n_notes;
  size_t room, notes_room;
};

sc_status sc__archive_new(sc_context *ctx, sc_archive **out);
/* Takes t; copies the name. */
sc_status sc__archive_add(sc_archive *a, const char *name, size_t length, sc_tensor *t);
sc_status sc__archive_note(sc_archive *a, const char *name, size_t length, const char *text, size_t text_length);

/* ---- one file a format: each reads all of `s` into the archive ---- */
sc_status sc__safetensors_load(const sc_source *s, sc_archive *a);
sc_status sc__npy_load(const sc_source *s, sc_archive *a);
sc_status sc__npz_load(const sc_source *s, sc_archive *a);
sc_status sc__gguf_load(const sc_source *s, sc_archive *a);
/* `data` as one .npy array; what: its name in messages. new */
sc_status sc__npy_parse(const sc_source *s, const char *what, const uint8_t *data, size_t size, sc_tensor **out);

/* The header of t's .npy array into out, a multiple of 64 bytes; 0: the format lacks the dtype. */
enum { SC__NPY_HEADER = 1664 };
int sc__npy_header(const sc_tensor *t, char *out, size_t size);

/* Check everything, then write: nothing has been written when a name or dtype is refused. */
sc_status sc__safetensors_save(sc_context *ctx, const char *path, const sc_named_tensor *in, int64_t n, const sc_named_text *notes, int64_t n_notes);
sc_status sc__npy_save(sc_context *ctx, const char *path, sc_tensor *t);
sc_status sc__npz_save(sc_context *ctx, const char *path, const sc_named_tensor *in, int64_t n);

/* ---- json.c: a reader that is asked for what is expected next ---- */
typedef struct sc_json {
  const uint8_t *at, *end;
  char *text;                       /* room for the strings, as many bytes as the input has; owned by the caller */
  size_t used;
  int depth;
  const char *problem;              /* what is wrong, in words */
} sc_json;

bool sc__utf8_valid(const uint8_t *s, size_t n);
bool sc__json_open(sc_json *j, char bracket);                               /* '{' or '[' */
/* The next member: 1 when there is one (of an object: its key is read and the colon passed), 0 at the end, -1 when it is wrong. */
int sc__json_member(sc_json *j, bool *first, const char **key, size_t *length);
int sc__json_element(sc_json *j, bool *first);
bool sc__json_string(sc_json *j, const char **s, size_t *length);           /* ends in 0 too */
bool sc__json_size(sc_json *j, int64_t *out);                               /* a whole number from 0 on */
bool sc__json_skip(sc_json *j);                                             /* any value */
bool sc__json_done(sc_json *j);                                             /* nothing but blanks is left */

#endif
