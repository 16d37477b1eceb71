/* Sorting by radix: least significant digit first, so it is stable, linear, and never compares floats.
**
** Types of up to 32 bits become one 64-bit word, key above and position below: a single array to move, and no two words are equal.
** 64-bit types move pairs. Short lines are merged instead. Digits that all elements share are skipped. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "sort.h"

#include <string.h>

enum { SHORT = 192, LONG = 1 << 16, BLOCK = 256 };

typedef struct pair { uint64_t key; int64_t at; } pair;

static bool is_wide(sc_dtype d, int64_t n) { return d == SC_FLOAT64 || d == SC_INT64 || d == SC_UINT64 || n > UINT32_MAX; }

size_t sc__order_scratch(sc_dtype dtype, int64_t n) { return (size_t)n * (is_wide(dtype, n) ? 2 * sizeof(pair) : 16) + 64; }

/* ---- keys ---- */

static inline uint32_t key_f32(uint32_t b) {
  uint32_t k = b ^ ((uint32_t)((int32_t)b >> 31) | 0x80000000u);
  uint32_t size = b & 0x7fffffffu;
  k = size == 0 ? 0x80000000u : k;
  return size > 0x7f800000u ? 0xffffffffu : k;
}

static inline uint64_t key_f64(uint64_t b) {
  uint64_t k = b ^ ((uint64_t)((int64_t)b >> 63) | (uint64_t)INT64_MIN), size = b & INT64_MAX;
  k = size == 0 ? (uint64_t)INT64_MIN : k;
  return size > 0x7ff0000000000000u ? UINT64_MAX : k;
}

/* Up to BLOCK keys of a type of at most 32 bits. */
static void keys_32(const sc_line *l, int64_t from, int64_t n, uint32_t *key) {
  const char *src = l->data + from * l->stride * (int64_t)sc_dtype_size(l->dtype);
  bool floating = sc__is_float(l->dtype);
  if (l->dtype == SC_FLOAT32 && l->stride == 1) memcpy(key, src, (size_t)n * 4);
  else sc__convert(n, floating ? SC_FLOAT32 : l->dtype == SC_UINT32 ? SC_UINT32 : SC_INT32, key, 1, l->dtype, src, l->stride);
  if (floating) for (int64_t i = 0; i < n; i++) key[i] = key_f32(key[i]);
  else if (l->dtype != SC_UINT32) for (int64_t i = 0; i < n; i++) key[i] ^= 0x80000000u;
}

static void keys_64(const sc_line *l, int64_t from, int64_t n, uint64_t *key) {
  const char *src = l->data + from * l->stride * (int64_t)sc_dtype_size(l->dtype);
  bool floating = sc__is_float(l->dtype);
  sc__convert(n, floating ? SC_FLOAT64 : l->dtype == SC_UINT64 ? SC_UINT64 : SC_INT64, key, 1, l->dtype, src, l->stride);
  if (floating) for (int64_t i = 0; i < n; i++) key[i] = key_f64(key[i]);
  else if (l->dtype != SC_UINT64) for (int64_t i = 0; i < n; i++) key[i] ^= (uint64_t)INT64_MIN;
}

void sc__order_keys(const sc_line *l, int64_t from, int64_t n, uint64_t *key) { keys_64(l, from, n, key); }

/* ---- short lines: insertion into runs of 16, then merges ---- */

#define MERGE_SORT(NAME, T, BEFORE) \
  static T *NAME(T *a, T *b, int64_t n) { \
    for (int64_t lo = 0; lo < n; lo += 16) { \
      int64_t hi = lo + 16 < n ? lo + 16 : n; \
      for (int64_t i = lo + 1; i < hi; i++) { \
        T v = a[i]; \
        int64_t k = i; \
        for (; k > lo && BEFORE(v, a[k - 1]); k--) a[k] = a[k - 1]; \
        a[k] = v; \
      } \
    } \
    for (int64_t w = 16; w < n; w *= 2) { \
      for (int64_t lo = 0; lo < n; lo += 2 * w) { \
        int64_t mid = lo + w < n ? lo + w : n, hi = lo + 2 * w < n ? lo + 2 * w : n, i = lo, j = mid; \
        for (int64_t k = lo; k < hi; k++) b[k] = j < hi && (i >= mid || BEFORE(a[j], a[i])) ? a[j++] : a[i++]; \
      } \
      T *t = a; a = b; b = t; \
    } \
    return a; \
  }
#define WORD_BEFORE(x, y) ((x) < (y))
#define PAIR_BEFORE(x, y) ((x).key < (y).key)
MERGE_SORT(merge_words, uint64_t, WORD_BEFORE)
MERGE_SORT(merge_pairs, pair, PAIR_BEFORE)
#undef WORD_BEFORE
#undef PAIR_BEFORE
#undef MERGE_SORT

/* ---- radix ---- */

/* Where each digit's elements begin; false when all share one digit. */
static bool starts(int64_t *count, int buckets, int64_t n) {
  int64_t at = 0;
  for (int k = 0; k < buckets; k++) {
    int64_t c = count[k];
    if (c == n) return false;
    count[k] = at;
    at += c;
  }
  return true;
}

/* Words by their upper 32 bits: three digits of 11 bits for long lines, four of 8 for the others. */
static uint64_t *radix_words(uint64_t *a, uint64_t *b, int64_t n) {
  int bits = n >= LONG ? 11 : 8, digits = n >= LONG ? 3 : 4, buckets = 1 << bits;
  int64_t count[3 << 11];
  memset(count, 0, (size_t)(digits * buckets) * 8);
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < digits; d++) count[d * buckets + (int)(a[i] >> (32 + d * bits) & (uint64_t)(buckets - 1))]++;
  for (int d = 0; d < digits; d++) {
    int64_t *at = count + d * buckets;
    if (!starts(at, buckets, n)) continue;
    int shift = 32 + d * bits;
    for (int64_t i = 0; i < n; i++) b[at[a[i] >> shift & (uint64_t)(buckets - 1)]++] = a[i];
    uint64_t *t = a; a = b; b = t;
  }
  return a;
}

static pair *radix_pairs(pair *a, pair *b, int64_t n) {
  int64_t count[8 * 256];
  memset(count, 0, sizeof count);
  for (int64_t i = 0; i < n; i++)
    for (int d = 0; d < 8; d++) count[d * 256 + (int)(a[i].key >> (d * 8) & 255)]++;
  for (int d = 0; d < 8; d++) {
    int64_t *at = count + d * 256;
    if (!starts(at, 256, n)) continue;
    for (int64_t i = 0; i < n; i++) b[at[a[i].key >> (d * 8) & 255]++] = a[i];
    pair *t = a; a = b; b = t;
  }
  return a;
}

static void order_words(const sc_line *l, bool descending, int64_t *order, uint64_t *a) {
  uint32_t key[BLOCK], flip = descending ? UINT32_MAX : 0;
  for (int64_t at = 0; at < l->n; at += BLOCK) {
    int64_t n = l->n - at < BLOCK ? l->n - at : BLOCK;
    keys_32(l, at, n, key);
    for (int64_t i = 0; i < n; i++) a[at + i] = (uint64_t)(key[i] ^ flip) << 32 | (uint64_t)(at + i);
  }
  uint64_t *r = l->n < SHORT ? merge_words(a, a + l->n, l->n) : radix_words(a, a + l->n, l->n);
  for (int64_t i = 0; i < l->n; i++) order[i] = (int64_t)(r[i] & UINT32_MAX);
}

static void order_pairs(const sc_line *l, bool descending, int64_t *order, pair *a) {
  uint64_t key[BLOCK], flip = descending ? UINT64_MAX : 0;
  for (int64_t at = 0; at < l->n; at += BLOCK) {
    int64_t n = l->n - at < BLOCK ? l->n - at : BLOCK;
    keys_64(l, at, n, key);
    for (int64_t i = 0; i < n; i++) a[at + i] = (pair){key[i] ^ flip, at + i};
  }
  pair *r = l->n < SHORT ? merge_pairs(a, a + l->n, l->n) : radix_pairs(a, a + l->n, l->n);
  for (int64_t i = 0; i < l->n; i++) order[i] = r[i].at;
}

void sc__order(const sc_line *l, bool descending, int64_t *order, void *scratch) {
  if (is_wide(l->dtype, l->n)) order_pairs(l, descending, order, scratch);
  else order_words(l, descending, order, scratch);
}

/* ---- the k best: a heap whose root is the worst kept; blocks without a better element are passed over ---- */

static bool better(pair a, pair b) { return a.key > b.key || (a.key == b.key && a.at < b.at); }

static void sink(pair *h, int64_t n, int64_t i) {
  pair v = h[i];
  for (;;) {
    int64_t k = 2 * i + 1;
    if (k >= n) break;
    if (k + 1 < n && better(h[k], h[k + 1])) k++;
    if (!better(v, h[k])) break;
    h[i] = h[k];
    i = k;
  }
  h[i] = v;
}

static void offer(pair *h, int64_t k, pair p) {
  if (p.at < k) {
    h[p.at] = p;
    if (p.at == k - 1) for (int64_t i = k / 2; i-- > 0;) sink(h, k, i);
  } else if (better(p, h[0])) {
    h[0] = p;
    sink(h, k, 0);
  }
}

static void scan_words(const sc_line *l, int64_t k, uint32_t flip, pair *h) {
  uint32_t key[BLOCK];
  for (int64_t at = 0; at < l->n; at += BLOCK) {
    int64_t n = l->n - at < BLOCK ? l->n - at : BLOCK;
    keys_32(l, at, n, key);
    uint32_t least = at >= k ? (uint32_t)h[0].key : 0;
    int any = at < k;
    for (int64_t i = 0; i < n; i++) { key[i] ^= flip; any |= key[i] > least; }
    if (any) for (int64_t i = 0; i < n; i++) offer(h, k, (pair){key[i], at + i});
  }
}

static void scan_pairs(const sc_line *l, int64_t k, uint64_t flip, pair *h) {
  uint64_t key[BLOCK];
  for (int64_t at = 0; at < l->n; at += BLOCK) {
    int64_t n = l->n - at < BLOCK ? l->n - at : BLOCK;
    keys_64(l, at, n, key);
    for (int64_t i = 0; i < n; i++) offer(h, k, (pair){key[i] ^ flip, at + i});
  }
}

void sc__order_top(const sc_line *l, int64_t k, bool largest, int64_t *order, void *scratch) {
  if (k == 0) return;
  if (k > l->n / 16 && l->n > 32) {                    /* many of them: all are put in order */
    int64_t *all = (int64_t *)((char *)scratch + sc__order_scratch(l->dtype, l->n));
    sc__order(l, largest, all, scratch);
    memcpy(order, all, (size_t)k * 8);
    return;
  }
  pair *h = scratch;
  if (is_wide(l->dtype, l->n)) scan_pairs(l, k, largest ? 0 : UINT64_MAX, h);
  else scan_words(l, k, largest ? 0 : UINT32_MAX, h);
  for (int64_t n = k - 1; n > 0; n--) {                /* the worst goes to the end, again and again */
    pair v = h[0];
    h[0] = h[n];
    h[n] = v;
    sink(h, n, 0);
  }
  for (int64_t i = 0; i < k; i++) order[i] = h[i].at;
}

void sc__order_gather(const sc_line *l, const int64_t *order, int64_t n, char *y, int64_t step) {
  int64_t s = l->stride;
#define GATHER(T) { const T *x = (const T *)l->data; T *d = (T *)y; for (int64_t i = 0; i < n; i++) d[i * step] = x[order[i] * s]; break; }
  switch (sc_dtype_size(l->dtype)) {
    case 1: GATHER(uint8_t)
    case 2: GATHER(uint16_t)
    case 4: GATHER(uint32_t)
    default: GATHER(uint64_t)
  }
#undef GATHER
}
