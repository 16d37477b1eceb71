/* One pass along one dim, for one type. Stamped by separable.c: T the element, A the accumulator, N(name) the name. */

enum { N(CHUNK) = 256 };

/* x [outer, n_in, inner] to y [outer, n_out, inner], for outer in [begin, end) */
static void N(gather)(void *arg, int64_t begin, int64_t end) {
  const pass *j = arg;
  const sc_taps *t = j->t;
  int64_t inner = j->inner;
  for (int64_t o = begin; o < end; o++)
    for (int64_t k = 0; k < t->n_out; k++) {
      const int64_t *index = t->index + k * t->taps;
      const double *weight = t->weight + k * t->taps;
      const T *x = (const T *)j->x + o * t->n_in * inner;
      T *y = (T *)j->y + (o * t->n_out + k) * inner;
      if (inner == 1) {
        A sum = 0;
        for (int64_t m = 0; m < t->taps; m++) if (index[m] >= 0) sum += (A)weight[m] * (A)x[index[m]];
        y[0] = (T)sum;
        continue;
      }
      for (int64_t at = 0; at < inner; at += N(CHUNK)) {
        A sum[N(CHUNK)];
        int64_t n = inner - at < N(CHUNK) ? inner - at : N(CHUNK);
        for (int64_t i = 0; i < n; i++) sum[i] = 0;
        for (int64_t m = 0; m < t->taps; m++) {
          if (index[m] < 0) continue;
          const T *row = x + index[m] * inner + at;
          A w = (A)weight[m];
          for (int64_t i = 0; i < n; i++) sum[i] += w * (A)row[i];
        }
        for (int64_t i = 0; i < n; i++) y[at + i] = (T)sum[i];
      }
    }
}

/* The adjoint: y [outer, n_in, inner] from x [outer, n_out, inner]. */
static void N(spread)(void *arg, int64_t begin, int64_t end) {
  const pass *j = arg;
  const sc_taps *t = j->t;
  int64_t inner = j->inner;
  for (int64_t o = begin; o < end; o++) {
    T *restrict y = (T *)j->y + o * t->n_in * inner;
    for (int64_t i = 0; i < t->n_in * inner; i++) y[i] = 0;
    for (int64_t k = 0; k < t->n_out; k++) {
      const T *restrict x = (const T *)j->x + (o * t->n_out + k) * inner;
      for (int64_t m = 0; m < t->taps; m++) {
        int64_t index = t->index[k * t->taps + m];
        if (index < 0) continue;
        T w = (T)t->weight[k * t->taps + m], *row = y + index * inner;
        for (int64_t i = 0; i < inner; i++) row[i] += w * x[i];
      }
    }
  }
}
