/* The context: memory pool, statistics, error text, interned names.
**
** Blocks come in size classes, eight to a power of two (at most 12.5 % lost), and a freed block goes to its class's list, to
** be handed out again without asking the host. Small blocks are cut from slabs. A spin lock guards the lists, because a
** tensor shared between contexts may be released by another thread; it is held for a few instructions only.
** Freed blocks are given back to the host when they exceed what is in use (and 256 MiB), or when memory runs short. */
#include "base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN = 64, SMALL = 4096, SLAB = 1 << 16 };
#define KEEP ((size_t)256 << 20)

struct sc_block { sc_block *next; };
struct sc_interned { sc_interned *next; uint32_t hash; char text[]; };
typedef struct slab { struct slab *next; } slab;

/* Blocks from here on are the kernel's own mappings: malloc keeps what is freed of them in pieces that nothing fits into again. */
#define MAPPED ((size_t)1 << 20)

/* Blocks that hold a huge page begin at one: fewer faults when they are first touched (955 us for 4 MB of small pages, 250 us so), and
** 5 to 8 % more speed for every loop over them. */
#define HUGE_PAGE ((size_t)2 << 20)

static void *map_block(size_t bytes) {
  size_t more = bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
  if (bytes > SIZE_MAX - more) return NULL;
  char *m = mmap(NULL, bytes + more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (m == MAP_FAILED) return NULL;
  if (!more) return m;
  size_t page = 4096, before = (HUGE_PAGE - (uintptr_t)m % HUGE_PAGE) % HUGE_PAGE, end = before + (bytes + page - 1) / page * page;
  if (before) munmap(m, before);
  if (end < bytes + more) munmap(m + end, bytes + more - end);
#ifdef MADV_HUGEPAGE
  madvise(m + before, bytes, MADV_HUGEPAGE);
#endif
  return m + before;
}

static void *host_alloc(void *user, size_t bytes) {
  (void)user;
  if (bytes >= MAPPED) return map_block(bytes);
  void *p = NULL;
  return posix_memalign(&p, ALIGN, bytes) == 0 ? p : NULL;
}

static void host_release(void *user, void *block, size_t bytes) {
  (void)user;
  if (bytes >= MAPPED) munmap(block, bytes);
  else free(block);
}

static void lock(sc_context *ctx) {
  while (atomic_flag_test_and_set_explicit(&ctx->lock, memory_order_acquire)) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }
}

static void unlock(sc_context *ctx) { atomic_flag_clear_explicit(&ctx->lock, memory_order_release); }

/* Class of a size, and the size that class's blocks have. Up to 1024 bytes: multiples of 64. Above: eight per power of two. */
static int size_class(size_t bytes, size_t *rounded) {
  if (bytes <= 1024) {
    int c = bytes ? (int)((bytes + 63) / 64) : 1;
    *rounded = (size_t)c * 64;
    return c;
  }
  int top = 63 - __builtin_clzll((unsigned long long)(bytes - 1));   /* 2^top <= bytes - 1 */
  size_t step = (size_t)1 << (top - 3);
  size_t eighth = (bytes - 1 - ((size_t)1 << top)) / step + 1;       /* 1 .. 8 */
  *rounded = ((size_t)1 << top) + eighth * step;
  return 17 + (top - 10) * 8 + (int)eighth - 1;
}

sc_status sc__context_make(const sc_options *options, sc_context **out) {
  sc_options o = options ? *options : (sc_options){0};
  if (!o.allocator.alloc) o.allocator = (sc_allocator){host_alloc, host_release, NULL};
  *out = NULL;
  sc_context *ctx = o.allocator.alloc(o.allocator.user, sizeof *ctx);
  if (!ctx) return SC_ENOMEM;
  memset(ctx, 0, sizeof *ctx);
  atomic_init(&ctx->refs, 1);
  ctx->allocator = o.allocator;
  atomic_flag_clear(&ctx->lock);
  ctx->limit = o.memory_limit;
  ctx->keep_blas_threads = o.keep_blas_threads;
  ctx->parallel_for = o.parallel_for;
  ctx->parallel_user = o.parallel_user;
#ifdef SC_HOSTILE
  ctx->bypass = true;
#endif
  ctx->grad_enabled = true;
  ctx->isa = sc__cpu_isa();
  ctx->rng.seed = 0x5c0ce;
  sc_set_threads(ctx, o.threads);
  *out = ctx;
  return SC_OK;
}

static void trim_locked(sc_context *ctx) {
  size_t ignored;
  for (int c = size_class(SMALL, &ignored) + 1; c < SC_BINS; c++) {
    size_t bytes = ((size_t)1 << (10 + (c - 17) / 8)) + ((size_t)((c - 17) % 8) + 1) * ((size_t)1 << (7 + (c - 17) / 8));
    while (ctx->bin[c]) {
      sc_block *b = ctx->bin[c];
      ctx->bin[c] = b->next;
      ctx->cached -= bytes;
      ctx->allocator.release(ctx->allocator.user, b, bytes);
    }
  }
}

void sc_trim(sc_context *ctx) { lock(ctx); trim_locked(ctx); unlock(ctx); }

void sc__context_unref(sc_context *ctx) {
  if (atomic_fetch_sub_explicit(&ctx->refs, 1, memory_order_acq_rel) != 1) return;
  if (ctx->close) ctx->close(ctx);
  sc__workers_free(ctx);
  for (int i = 0; i < SC_COUNT(ctx->interned); i++)
    while (ctx->interned[i]) {
      sc_interned *s = ctx->interned[i];
      ctx->interned[i] = s->next;
      sc__release(ctx, s, sizeof *s + strlen(s->text) + 1);
    }
  sc_trim(ctx);
  while (ctx->slabs) {
    slab *s = ctx->slabs;
    ctx->slabs = s->next;
    ctx->allocator.release(ctx->allocator.user, s, SLAB);
  }
  sc_allocator a = ctx->allocator;
  a.release(a.user, ctx, sizeof *ctx);
}

void sc_context_free(sc_context *ctx) {
  if (ctx) sc__context_unref(ctx);
}

static void *host_block(sc_context *ctx, size_t bytes) {
  atomic_fetch_add_explicit(&ctx->allocations, 1, memory_order_relaxed);
  void *p = ctx->allocator.alloc(ctx->allocator.user, bytes);
  if (p || !ctx->cached) return p;
  trim_locked(ctx);
  return ctx->allocator.alloc(ctx->allocator.user, bytes);
}

static void *from_slab(sc_context *ctx, size_t bytes) {
  if (ctx->slab_left < bytes) {
    slab *s = host_block(ctx, SLAB);
    if (!s) return NULL;
    s->next = ctx->slabs;
    ctx->slabs = s;
    ctx->slab_at = (char *)s + ALIGN;
    ctx->slab_left = SLAB - ALIGN;
  }
  void *p = ctx->slab_at;
  ctx->slab_at += bytes;
  ctx->slab_left -= bytes;
  return p;
}

static void *pool_take(sc_context *ctx, size_t bytes) {
  if (SC_UNLIKELY(bytes > (SIZE_MAX >> 2))) return NULL;
  size_t size;
  int c = size_class(bytes, &size);
  lock(ctx);
  void *p = NULL;
  if (SC_UNLIKELY(ctx->limit && ctx->held + size > ctx->limit)) {
    unlock(ctx);
    return NULL;
  }
  sc_block *b = ctx->bin[c];
  if (SC_LIKELY(b != NULL)) {
    ctx->bin[c] = b->next;
    ctx->cached -= size;
    p = b;
  } else if (size <= SMALL && !ctx->bypass) {
    p = from_slab(ctx, size);
  } else {
    p = host_block(ctx, size);
  }
  if (p) { ctx->held += size; ctx->charged += (int64_t)size; }
  unlock(ctx);
  return p;
}

/* A refusal is tried once more when the host has freed what its script no longer reaches. */
void *sc__alloc(sc_context *ctx, size_t bytes) {
  void *p = pool_take(ctx, bytes);
  if (SC_LIKELY(p != NULL) || !ctx->reclaim || ctx->reclaiming || sc__in_worker()) return p;
  ctx->reclaiming = true;
  sc__slice_outside(ctx, ctx->reclaim, ctx->locate_user);
  ctx->reclaiming = false;
  return pool_take(ctx, bytes);
}

void *sc__alloc_zero(sc_context *ctx, size_t bytes) {
  void *p = sc__alloc(ctx, bytes);
  if (p) memset(p, 0, bytes);
  return p;
}

sc_status sc__grow(sc_context *ctx, void *list, size_t n, size_t *room, size_t size) {
  if (SC_LIKELY(n < *room)) return SC_OK;
  size_t more = *room ? *room * 2 : 16;
  while (more <= n) more *= 2;
  void *old, *bigger = sc__alloc(ctx, more * size);
  if (!bigger) return sc__no_memory(ctx, more * size);
  memcpy(&old, list, sizeof old);
  if (old) memcpy(bigger, old, *room * size);
  memset((char *)bigger + *room * size, 0, (more - *room) * size);
  sc__release(ctx, old, *room * size);
  memcpy(list, &bigger, sizeof bigger);
  *room = more;
  return SC_OK;
}

void sc__release(sc_context *ctx, void *block, size_t bytes) {
  if (!block) return;
  size_t size;
  int c = size_class(bytes, &size);
  lock(ctx);
  ctx->held -= size;
  /* Too much is cached: the old blocks go, this one stays, since sizes asked for lately are asked for again. */
  if (SC_UNLIKELY(!ctx->bypass && ctx->cached + size > KEEP && ctx->cached + size > ctx->held)) trim_locked(ctx);
  if (SC_UNLIKELY(ctx->bypass)) {
    ctx->allocator.release(ctx->allocator.user, block, size);
  } else {
    sc_block *b = block;
    b->next = ctx->bin[c];
    ctx->bin[c] = b;
    ctx->cached += size;
  }
  unlock(ctx);
}

void sc_get_stats(const sc_context *ctx, sc_stats *out) {
  out->live_tensors = atomic_load(&ctx->live_tensors);
  out->bytes = atomic_load(&ctx->live_bytes);
  out->peak = atomic_load(&ctx->peak_bytes);
  out->cached = (int64_t)ctx->cached;
  out->allocations = atomic_load(&ctx->allocations);
}

void sc_set_memory_limit(sc_context *ctx, size_t bytes) { ctx->limit = bytes; }
void sc_seed(sc_context *ctx, uint64_t seed) { ctx->rng = (sc_generator){seed, 0}; }
const char *sc_error(const sc_context *ctx) { return ctx->error; }

static _Thread_local char *errors_to;

void sc__errors_to(char *text) { errors_to = text; }

sc_status sc__fail(sc_context *ctx, sc_status status, const char *format, ...) {
  va_list ap;
  char *text = errors_to ? errors_to : ctx->error;
  va_start(ap, format);
  vsnprintf(text, sizeof ctx->error, format, ap);
  va_end(ap);
  sc__tame(text);
  return status;
}

sc_status sc__no_memory(sc_context *ctx, size_t bytes) {
  if (ctx->limit)
    return sc__fail(ctx, SC_ENOMEM, "not enough memory: %zu bytes wanted, %zu in use, the limit is %zu", bytes, ctx->held, ctx->limit);
  return sc__fail(ctx, SC_ENOMEM, "not enough memory: %zu bytes wanted, %zu in use", bytes, ctx->held);
}

sc_origin sc__origin(sc_context *ctx) {
  if (ctx->differentiated) return *ctx->differentiated;
  sc_location l = sc__locate(ctx);
  return (sc_origin){l.file, l.line, false, ctx->module};
}

sc_location sc__locate(sc_context *ctx) {
  return ctx->locate ? ctx->locate(ctx->locate_user) : (sc_location){NULL, 0};
}

const char *sc__intern(sc_context *ctx, const char *text) {
  uint32_t h = 2166136261u;
  for (const char *p = text; *p; p++) h = (h ^ (uint8_t)*p) * 16777619u;
  sc_interned **head = &ctx->interned[h % SC_COUNT(ctx->interned)];
  for (sc_interned *s = *head; s; s = s->next)
    if (s->hash == h && strcmp(s->text, text) == 0) return s->text;
  size_t n = strlen(text) + 1;
  sc_interned *s = sc__alloc(ctx, sizeof *s + n);
  if (!s) return NULL;
  memcpy(s->text, text, n);
  s->hash = h;
  s->next = *head;
  *head = s;
  ctx->names++;
  return s->text;
}

const char *sc__printable(const char *text, size_t length, char *out, size_t size) {
  size_t o = 0;
  for (size_t i = 0; i < length && o + 8 < size; i++) {
    unsigned char c = (unsigned char)text[i];
    if (c >= 32 && c < 127 && c != '\\') out[o++] = (char)c;
    else o += (size_t)snprintf(out + o, size - o, "\\x%02x", c);
    if (o >= 200) { memcpy(out + o, "...", 4); return out; }
  }
  out[o] = 0;
  return out;
}
