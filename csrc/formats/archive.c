/* Archives (named tensors as loaded) and the functions of sconce.h over files: which format a file is in is told by its content
** when reading, by the end of its name when writing. */
#include "formats.h"

#include <string.h>
#include <strings.h>

sc_status sc__archive_new(sc_context *ctx, sc_archive **out) {
  sc_archive *a = sc__alloc_zero(ctx, sizeof *a);
  if (!a) return sc__no_memory(ctx, sizeof *a);
  a->ctx = ctx;
  atomic_fetch_add_explicit(&ctx->refs, 1, memory_order_relaxed);
  *out = a;
  return SC_OK;
}

void sc_archive_free(sc_archive *a) {
  if (!a) return;
  sc_context *ctx = a->ctx;
  for (int64_t i = 0; i < a->n; i++) {
    sc_tensor_release(a->entry[i].tensor);
    sc__release(ctx, a->entry[i].name, a->entry[i].length + 1);
  }
  for (int64_t i = 0; i < a->n_notes; i++) {
    sc__release(ctx, a->note[i].name, a->note[i].length + 1);
    sc__release(ctx, a->note[i].text, a->note[i].text_length + 1);
  }
  if (a->entry) sc__release(ctx, a->entry, a->room * sizeof *a->entry);
  if (a->note) sc__release(ctx, a->note, a->notes_room * sizeof *a->note);
  sc__release(ctx, a, sizeof *a);
  sc__context_unref(ctx);
}

static char *copy_text(sc_context *ctx, const char *s, size_t n) {
  char *c = sc__alloc(ctx, n + 1);
  if (!c) { sc__no_memory(ctx, n + 1); return NULL; }
  memcpy(c, s, n);
  c[n] = 0;
  return c;
}

sc_status sc__archive_add(sc_archive *a, const char *name, size_t length, sc_tensor *t) {
  sc_status s = sc__grow(a->ctx, &a->entry, (size_t)a->n, &a->room, sizeof *a->entry);
  char *own = s == SC_OK ? copy_text(a->ctx, name, length) : NULL;
  if (!own) { sc_tensor_release(t); return SC_ENOMEM; }
  a->entry[a->n].name = own;
  a->entry[a->n].length = length;
  a->entry[a->n++].tensor = t;
  return SC_OK;
}

sc_status sc__archive_note(sc_archive *a, const char *name, size_t length, const char *text, size_t text_length) {
  SC_TRY(sc__grow(a->ctx, &a->note, (size_t)a->n_notes, &a->notes_room, sizeof *a->note));
  char *n = copy_text(a->ctx, name, length), *t = n ? copy_text(a->ctx, text, text_length) : NULL;
  if (!t) { if (n) sc__release(a->ctx, n, length + 1); return SC_ENOMEM; }
  a->note[a->n_notes].name = n;
  a->note[a->n_notes].length = length;
  a->note[a->n_notes].text = t;
  a->note[a->n_notes++].text_length = text_length;
  return SC_OK;
}

int64_t sc_archive_count(const sc_archive *a) { return a->n; }
bool sc_archive_is_single(const sc_archive *a) { return a->single; }
sc_tensor *sc_archive_tensor(const sc_archive *a, int64_t i) { return i >= 0 && i < a->n ? a->entry[i].tensor : NULL; }
const char *sc_archive_name(const sc_archive *a, int64_t i, size_t *length) {
  if (i < 0 || i >= a->n) return NULL;
  if (length) *length = a->entry[i].length;
  return a->entry[i].name;
}
sc_tensor *sc_archive_find(const sc_archive *a, const char *name) {
  for (int64_t i = 0; i < a->n; i++)
    if (strlen(name) == a->entry[i].length && memcmp(name, a->entry[i].name, a->entry[i].length) == 0) return a->entry[i].tensor;
  return NULL;
}
int64_t sc_archive_text_count(const sc_archive *a) { return a->n_notes; }
const char *sc_archive_text(const sc_archive *a, int64_t i, const char **name) {
  if (i < 0 || i >= a->n_notes) return NULL;
  if (name) *name = a->note[i].name;
  return a->note[i].text;
}

/* ---- reading ---- */

/* The formats that begin with bytes of their own; anything else is taken for safetensors, whose first bytes are a length. */
static const struct { const char *magic; size_t length; sc_status (*load)(const sc_source *s, sc_archive *a); } FORMATS[] = {
  {"\x93NUMPY", 6, sc__npy_load}, {"PK\3\4", 4, sc__npz_load}, {"PK\5\6", 4, sc__npz_load}, {"GGUF", 4, sc__gguf_load}};

static sc_status load(const sc_source *s, sc_archive **out) {
  sc_archive *a = NULL;
  SC_TRY(sc__archive_new(s->ctx, &a));
  sc_status (*fn)(const sc_source *, sc_archive *) = sc__safetensors_load;
  for (int i = 0; i < SC_COUNT(FORMATS); i++)
    if (s->size >= FORMATS[i].length && memcmp(s->data, FORMATS[i].magic, FORMATS[i].length) == 0) fn = FORMATS[i].load;
  sc_status r = fn(s, a);
  if (r != SC_OK) { sc_archive_free(a); return r; }
  *out = a;
  return SC_OK;
}

sc_status sc_load(sc_context *ctx, const char *path, sc_archive **out) {
  sc_source s;
  SC_TRY(sc__source_open(ctx, path, &s));
  sc_status r = load(&s, out);
  sc__source_done(&s);
  return r;
}

sc_status sc_load_memory(sc_context *ctx, const void *bytes, size_t size, const char *name, sc_archive **out) {
  sc_source s = {.ctx = ctx, .path = name ? name : "(memory)", .data = bytes, .size = size};
  if (!bytes || !size) return sc__source_bad(&s, "the file is empty");
  return load(&s, out);
}

/* ---- writing ---- */

static bool ends_in(const char *s, const char *end) {
  size_t n = strlen(s), k = strlen(end);
  return n >= k && strcasecmp(s + n - k, end) == 0;
}

sc_status sc_save(sc_context *ctx, const char *path, const sc_named_tensor *in, int64_t n, const sc_named_text *texts, int64_t n_texts) {
  for (int64_t i = 0; i < n; i++)
    if (!in[i].tensor || sc__is_symbolic(in[i].tensor)) {
      char shown[256];
      return sc__save_bad(ctx, path, "\"%s\" has no values to save", sc__printable(in[i].name, strlen(in[i].name), shown, sizeof shown));
    }
  bool npy = ends_in(path, ".npy"), npz = ends_in(path, ".npz");
  if ((npy || npz) && n_texts) return sc__save_bad(ctx, path, "only safetensors files have metadata");
  if (npy && n != 1) return sc__save_bad(ctx, path, "a .npy file holds one tensor, got %lld", (long long)n);
  if (npy) return sc__npy_save(ctx, path, in[0].tensor);
  return npz ? sc__npz_save(ctx, path, in, n) : sc__safetensors_save(ctx, path, in, n, texts, n_texts);
}
