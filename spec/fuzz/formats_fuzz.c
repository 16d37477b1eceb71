/* libFuzzer target for the readers of tensor files: one binary a format, chosen by -DLOAD=safetensors|npy|npz|gguf|onnx (one TensorProto). The engine's base,
** tensors and formats are linked, nothing above them. Besides what the sanitizers see, it is checked that no reader takes more
** memory than a small multiple of the file (deflate can reach 1032 to 1), that every element of what was read can be read, and
** that nothing is left behind after an error or a success.
**
**     make fuzz FUZZ_SECONDS=60 */
#include <stdlib.h>
#include <string.h>

#include "../../csrc/formats/formats.h"
#include "../../csrc/formats/onnx.h"

#define LOADER_(name) sc__##name##_load
#define LOADER_OF(name) LOADER_(name)
#define LOADER LOADER_OF(LOAD)

/* A TensorProto alone; the messages around tensors are walked by the same cursor. */
static inline sc_status sc__onnx_load(const sc_source *s, sc_archive *a) {
  sc_onnx_tensor t;
  sc_tensor *x;
  sc_status r = sc__onnx_tensor_open(s, s->data, s->size, &t);
  if (r == SC_OK) r = sc__onnx_tensor_read(s, &t, &x);
  return r == SC_OK ? sc__archive_add(a, "x", 1, x) : r;
}

static size_t taken, most;
static void *count_alloc(void *user, size_t bytes) {
  (void)user;
  taken += bytes;
  if (taken > most) most = taken;
  return aligned_alloc(64, (bytes + 63) / 64 * 64);
}
static void count_release(void *user, void *block, size_t bytes) {
  (void)user;
  taken -= bytes;
  free(block);
}

static unsigned touch(const sc_archive *a) {
  unsigned sum = 0;
  for (int64_t i = 0; i < sc_archive_count(a); i++) {
    const sc_tensor *t = sc_archive_tensor(a, i);
    const unsigned char *p = sc_tensor_data(t);
    int64_t bytes = sc_tensor_numel(t) * (int64_t)sc_dtype_size(sc_tensor_dtype(t));
    for (int64_t k = 0; k < bytes; k++) sum += p[k];
    sum += (unsigned)strlen(sc_archive_name(a, i, NULL));
  }
  return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static volatile unsigned sink;
  sc_options o = {.allocator = {count_alloc, count_release, NULL}, .threads = 1};
  sc_context *ctx = NULL;
  taken = most = 0;
  if (size == 0 || sc__context_make(&o, &ctx) != SC_OK) return 0;
  ctx->bypass = true;                                          /* every block from the allocator, so that its ends are watched */
  size_t before = taken;
  sc_archive *a = NULL;
  sc_source s = {.ctx = ctx, .path = "fuzz", .data = data, .size = size};
  if (sc__archive_new(ctx, &a) != SC_OK) __builtin_trap();
  if (LOADER(&s, a) == SC_OK) sink += touch(a);
  else if (!*sc_error(ctx)) __builtin_trap();
  sc_archive_free(a);
  if (taken != before) __builtin_trap();                       /* something leaked */
  if (most > before + 1200 * size + (1 << 20)) __builtin_trap();
  sc_context_free(ctx);
  return 0;
}
