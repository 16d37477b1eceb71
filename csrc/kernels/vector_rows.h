/* Rows of float32 in vectors (see vector_math.h): the largest element, sums, and e^x with its sum, for softmax, attention and norms.
** Sums are kept in float over at most 1024 elements, in lanes, and then added in double. What is left over at the end of a row goes
** through a padded vector. No include guard. */

enum { VM(BLOCK) = 1024 };

#if VM_LANES == 16
static inline double VM(lanes)(VF v) {
  __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v)), high = _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)v, 1));
  return _mm512_reduce_add_pd(_mm512_add_pd(low, high));
}
static inline float VM(most)(VF v) { return _mm512_reduce_max_ps((__m512)v); }

/* n < VM_LANES elements, the rest is `pad`; the first n lanes are stored */
static inline VF VM(padded)(int64_t n, const float *x, float pad) {
  return (VF)_mm512_mask_loadu_ps((__m512)VM(all)(pad), (__mmask16)((1u << n) - 1), x);
}
static inline void VM(store_first)(int64_t n, float *y, VF v) { _mm512_mask_storeu_ps(y, (__mmask16)((1u << n) - 1), (__m512)v); }
#else
static inline double VM(lanes)(VF v) {
  float f[VM_LANES];
  double d[VM_LANES];
  memcpy(f, &v, sizeof f);
  for (int k = 0; k < VM_LANES; k++) d[k] = (double)f[k];
  for (int w = VM_LANES / 2; w; w /= 2)
    for (int k = 0; k < w; k++) d[k] += d[k + w];
  return d[0];
}

static inline float VM(most)(VF v) {
  float m = v[0];
  for (int k = 1; k < VM_LANES; k++) m = v[k] > m ? v[k] : m;
  return m;
}

static inline VF VM(padded)(int64_t n, const float *x, float pad) {
  float f[VM_LANES];
  VF v = VM(all)(pad);
  memcpy(f, &v, sizeof f);
  for (int64_t k = 0; k < n; k++) f[k] = x[k];
  return VM(load)(f);
}
static inline void VM(store_first)(int64_t n, float *y, VF v) { memcpy(y, &v, (size_t)n * 4); }
#endif

/* Larger than NaN: whatever else there is. */
static inline float VM(largest)(int64_t n, const float *x) {
  VF a = VM(all)(-INFINITY), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * VM_LANES <= n; i += 4 * VM_LANES) {
    a = VM(max)(VM(load)(x + i), a);
    b = VM(max)(VM(load)(x + i + VM_LANES), b);
    c = VM(max)(VM(load)(x + i + 2 * VM_LANES), c);
    d = VM(max)(VM(load)(x + i + 3 * VM_LANES), d);
  }
  for (; i + VM_LANES <= n; i += VM_LANES) a = VM(max)(VM(load)(x + i), a);
  if (i < n) b = VM(max)(VM(padded)(n - i, x + i, -INFINITY), b);
  return VM(most)(VM(max)(VM(max)(a, b), VM(max)(c, d)));
}

/* The sum of x - m, and in *squares that of (x - m)^2. */
static inline double VM(moments)(int64_t n, const float *x, float m, double *squares) {
  double sum = 0, total = 0;
  for (int64_t at = 0; at < n; at += VM(BLOCK)) {
    int64_t end = n - at < VM(BLOCK) ? n : at + VM(BLOCK), i = at;
    VF a = {0}, b = {0}, c = {0}, d = {0}, p, q;
    for (; i + 2 * VM_LANES <= end; i += 2 * VM_LANES) {
      p = VM(load)(x + i) - m;
      q = VM(load)(x + i + VM_LANES) - m;
      a += p;
      b += q;
      c += p * p;
      d += q * q;
    }
    for (; i < end; i += VM_LANES) {
      p = (end - i >= VM_LANES ? VM(load)(x + i) : VM(padded)(end - i, x + i, m)) - m;
      a += p;
      c += p * p;
    }
    sum += VM(lanes)(a + b);
    total += VM(lanes)(c + d);
  }
  *squares = total;
  return sum;
}

static inline double VM(sum)(int64_t n, const float *x) {
  double sum = 0;
  for (int64_t at = 0; at < n; at += VM(BLOCK)) {
    int64_t end = n - at < VM(BLOCK) ? n : at + VM(BLOCK), i = at;
    VF a = {0}, b = {0}, c = {0}, d = {0};
    for (; i + 4 * VM_LANES <= end; i += 4 * VM_LANES) {
      a += VM(load)(x + i);
      b += VM(load)(x + i + VM_LANES);
      c += VM(load)(x + i + 2 * VM_LANES);
      d += VM(load)(x + i + 3 * VM_LANES);
    }
    for (; i + VM_LANES <= end; i += VM_LANES) a += VM(load)(x + i);
    if (i < end) b += VM(padded)(end - i, x + i, 0);
    sum += VM(lanes)((a + b) + (c + d));
  }
  return sum;
}

/* y = e^(x scale - shift) factor, y may be x; the sum of it. Inline, so that factors of one are none. */
static inline __attribute__((always_inline)) double VM(exps)(int64_t n, const float *x, float scale, float shift, float factor, float *y) {
  double sum = 0;
  for (int64_t at = 0; at < n; at += VM(BLOCK)) {
    int64_t end = n - at < VM(BLOCK) ? n : at + VM(BLOCK), i = at;
    VF a = {0}, b = {0}, e;
    for (; i + 2 * VM_LANES <= end; i += 2 * VM_LANES) {
      e = VM(exp)(VM(load)(x + i) * scale - shift) * factor;
      VM(store)(y + i, e);
      a += e;
      e = VM(exp)(VM(load)(x + i + VM_LANES) * scale - shift) * factor;
      VM(store)(y + i + VM_LANES, e);
      b += e;
    }
    if (i + VM_LANES <= end) {
      e = VM(exp)(VM(load)(x + i) * scale - shift) * factor;
      VM(store)(y + i, e);
      a += e;
      i += VM_LANES;
    }
    if (i < end) {
      e = VM(exp)(VM(padded)(end - i, x + i, 0) * scale - shift) * factor;
      VM(store_first)(end - i, y + i, e);
      b += VM(padded)(end - i, y + i, 0);
    }
    sum += VM(lanes)(a + b);
  }
  return sum;
}

/* x = fn(x): the gates of recurrent cells */
#define VM_HERE(name, fn) \
  static inline void VM(name)(int64_t n, const float *x, float *y) { \
    int64_t i = 0; \
    for (; i + VM_LANES <= n; i += VM_LANES) VM(store)(y + i, VM(fn)(VM(load)(x + i))); \
    if (i == n) return; \
    VM(store_first)(n - i, y + i, VM(fn)(VM(padded)(n - i, x + i, 0))); \
  }
VM_HERE(tanhs, tanh)
VM_HERE(sigmoids, sigmoid)
#undef VM_HERE
