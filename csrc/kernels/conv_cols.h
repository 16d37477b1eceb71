/* im2col and col2im of one element type. Stamped by conv.c: T the type, N(name) the name. */

static void N(im2col)(const sc_conv *p, const T *restrict x, int64_t r0, int64_t r1, int64_t w0, int64_t w1, T *restrict cols) {
  int64_t plane = p->in[0] * p->in[1] * p->in[2], width = w1 - w0;
  for (int64_t c = 0; c < p->C; c++)
    for (int64_t kd = 0; kd < p->k[0]; kd++)
      for (int64_t kh = 0; kh < p->k[1]; kh++)
        for (int64_t kw = 0; kw < p->k[2]; kw++)
          for (int64_t r = r0; r < r1; r++, cols += width) {
            int64_t d = r / p->out[1] * p->stride[0] - p->pad[0] + kd * p->dilation[0];
            int64_t h = r % p->out[1] * p->stride[1] - p->pad[1] + kh * p->dilation[1];
            if (d < 0 || d >= p->in[0] || h < 0 || h >= p->in[1]) {
              memset(cols, 0, (size_t)width * sizeof(T));
              continue;
            }
            const T *row = x + c * plane + (d * p->in[1] + h) * p->in[2];
            int64_t s = p->stride[2], at = w0 * s - p->pad[2] + kw * p->dilation[2], i = 0;
            for (; i < width && at < 0; i++, at += s) cols[i] = 0;
            if (s == 1) {
              int64_t n = p->in[2] - at < width - i ? p->in[2] - at : width - i;
              if (n > 0) { memcpy(cols + i, row + at, (size_t)n * sizeof(T)); i += n; }
            } else {
              for (; i < width && at < p->in[2]; i++, at += s) cols[i] = row[at];
            }
            for (; i < width; i++) cols[i] = 0;
          }
}

static void N(col2im)(const sc_conv *p, const T *restrict cols, int64_t r0, int64_t r1, int64_t w0, int64_t w1, T *restrict x) {
  int64_t plane = p->in[0] * p->in[1] * p->in[2], width = w1 - w0;
  for (int64_t c = 0; c < p->C; c++)
    for (int64_t kd = 0; kd < p->k[0]; kd++)
      for (int64_t kh = 0; kh < p->k[1]; kh++)
        for (int64_t kw = 0; kw < p->k[2]; kw++)
          for (int64_t r = r0; r < r1; r++, cols += width) {
            int64_t d = r / p->out[1] * p->stride[0] - p->pad[0] + kd * p->dilation[0];
            int64_t h = r % p->out[1] * p->stride[1] - p->pad[1] + kh * p->dilation[1];
            if (d < 0 || d >= p->in[0] || h < 0 || h >= p->in[1]) continue;
            T *row = x + c * plane + (d * p->in[1] + h) * p->in[2];
            int64_t s = p->stride[2], at = w0 * s - p->pad[2] + kw * p->dilation[2], i = 0;
            if (at < 0) { i = (-at + s - 1) / s; at += i * s; }
            if (s == 1) {
              int64_t n = p->in[2] - at < width - i ? p->in[2] - at : width - i;
              for (int64_t j = 0; j < n; j++) row[at + j] += cols[i + j];
            } else {
              for (; i < width && at < p->in[2]; i++, at += s) row[at] += cols[i];
            }
          }
}

static void N(fill_rows)(int64_t rows, int64_t n, const T *bias, T *y) {
  for (int64_t r = 0; r < rows; r++, y += n)
    for (int64_t i = 0; i < n; i++) y[i] = bias ? bias[r] : 0;
}
