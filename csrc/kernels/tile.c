/* Direct convolution and products with packed panels over the register tile.
**
** The image is copied once into a padded plane whose rows have the pitch of the padded width. In it every tap of the kernel is a constant
** offset, also from one output row to the next, so the plane is treated as one long row and tiles run across row ends; the few
** results that fall between rows are dropped when a tile is copied out. Against im2col this saves writing and packing the columns,
** k[0] k[1] k[2] times the image. The adjoint to the input is the same with the weights turned round.
**
** Where the channels fill vectors better than positions fill tiles (narrow images, few rows of a tile left over) they lie in the lanes instead
** (lanes_stamp.h), and an image without padding is read where it lies. Both add up each result in the same order. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#include "tile.h"

#include <string.h>

extern const sc_tile sc__tile_base;
#if defined(__x86_64__)
extern const sc_tile sc__tile_avx2, sc__tile_avx512;
extern const sc_lanes sc__lanes_avx2, sc__lanes_avx512;
#endif

enum { SLACK = 64, MAX_TILE = 16 * 64, LANES_HELD = 64, MAX_LANES = 32 };   /* LANES_HELD: positions computed before they are turned round */

const sc_tile *sc__tile(sc_isa isa) {
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) return &sc__tile_avx512;
  if (isa == SC_ISA_AVX2) return &sc__tile_avx2;
#endif
  (void)isa;
  return &sc__tile_base;
}

/* NULL: there are none. */
static const sc_lanes *lanes(sc_isa isa) {
#if defined(__x86_64__)
  if (isa == SC_ISA_AVX512) return &sc__lanes_avx512;
  if (isa == SC_ISA_AVX2) return &sc__lanes_avx2;
#endif
  (void)isa;
  return NULL;
}

/* ---- direct convolution ---- */

/* One convolution of stride 1 in terms of planes: C planes in, O planes out, w [O, C, taps] read by `w_at`. */
typedef struct direct {
  sc_context *ctx;
  const sc_tile *k;
  const sc_lanes *lanes;                 /* NULL: positions in the lanes */
  int64_t N, G, C, O, taps, span;        /* span: positions from the first result to the last, across row ends */
  int64_t in[3], out[3], pad[3], pitch[3], plane, image, y_plane;   /* pitch: sizes of the padded plane */
  const int64_t *offset;                 /* [C * taps] */
  const float *packed, *x, *bias;        /* packed [G, blocks, C * taps, mr], or 2 vectors instead of mr */
  float *y, *padded;
  const sc_epilogue *then;
  int64_t blocks, slots, units;
  size_t slot_floats;
  int64_t image_now;                     /* when the tiles of one image are split */
} direct;

bool sc__direct_fits(const sc_conv *p) {
  if (p->type != SC_C_F32) return false;
  int64_t taps = p->k[0] * p->k[1] * p->k[2], plane = 1;
  for (int i = 0; i < 3; i++) {
    if (p->stride[i] != 1) return false;
    int64_t size = p->out[i] + (p->k[i] - 1) * p->dilation[i];
    if (size > 1 << 20 || !sc__mul(plane, size, &plane)) return false;
  }
  if (taps == 1) return false;                          /* plain products: the library's are as good */
  if (p->C * taps > 1 << 16) return false;
  int64_t room = p->out[0] * p->out[1] * p->out[2];
  return room > 0 && plane <= 4 * room + 4096 && plane * (p->C > p->O ? p->C : p->O) < (int64_t)1 << 26;
}

static void pad_image(const direct *d, const float *x, float *to) {
  memset(to, 0, (size_t)(d->C * d->plane + SLACK * 2) * sizeof(float));
  for (int64_t c = 0; c < d->C; c++)
    for (int64_t a = 0; a < d->in[0]; a++)
      for (int64_t b = 0; b < d->in[1]; b++) {
        int64_t A = a + d->pad[0], B = b + d->pad[1], from = d->pad[2] < 0 ? -d->pad[2] : 0, n = d->in[2];
        if (A < 0 || A >= d->pitch[0] || B < 0 || B >= d->pitch[1]) continue;
        if (n + d->pad[2] > d->pitch[2]) n = d->pitch[2] - d->pad[2];
        if (n <= from) continue;
        memcpy(to + c * d->plane + (A * d->pitch[1] + B) * d->pitch[2] + from + d->pad[2], x + c * d->image + (a * d->in[1] + b) * d->in[2] + from,
               (size_t)(n - from) * sizeof(float));
      }
}

/* n results of one channel from position `from` on, without those between rows. */
static void copy_out(const direct *d, const float *tile, int64_t from, int64_t n, float bias, float *y) {
  int64_t w = from % d->pitch[2], row = from / d->pitch[2];
  for (int64_t i = 0; i < n; ) {
    int64_t m = d->pitch[2] - w < n - i ? d->pitch[2] - w : n - i, good = d->out[2] - w < m ? d->out[2] - w : m;
    int64_t b = row % d->pitch[1], a = row / d->pitch[1];
    if (b < d->out[1] && a < d->out[0] && good > 0) {
      float *to = y + (a * d->out[1] + b) * d->out[2] + w;
      for (int64_t k = 0; k < good; k++) to[k] = tile[i + k] + bias;
    }
    i += m;
    w = 0;
    row++;
  }
}

/* Positions from `at` on, one tile wide, all channels of a group. */
static void tile_column(const direct *d, int64_t n, int64_t g, int64_t at, const float *padded) {
  float c[MAX_TILE];
  int64_t wide = d->span - at < d->k->nr ? d->span - at : d->k->nr, K = d->C * d->taps;
  for (int64_t b = 0; b < d->blocks; b++) {
    d->k->tile(K, d->packed + (g * d->blocks + b) * K * d->k->mr, padded + at, d->offset, c);
    for (int64_t i = 0; i < d->k->mr && b * d->k->mr + i < d->O; i++) {
      int64_t o = g * d->O + b * d->k->mr + i;
      copy_out(d, c + i * d->k->nr, at, wide, d->bias ? d->bias[o] : 0, d->y + (n * d->G * d->O + o) * d->y_plane);
    }
  }
}

enum { EPILOGUE_FLOATS = 24 * 1024 };                   /* results that are still in the L2 cache when they are looked at again */

/* Output rows of a channel that are complete when positions up to `at` are. */
static int64_t rows_done(const direct *d, int64_t at) {
  int64_t q = at / d->pitch[2], a = q / d->pitch[1], b = q % d->pitch[1];
  if (at >= d->span || a >= d->out[0]) return d->out[0] * d->out[1];
  return a * d->out[1] + (b < d->out[1] ? b : d->out[1]);
}

static void finish_rows(const direct *d, int64_t n, int64_t g, int64_t from, int64_t to) {
  float *y = d->y + (n * d->G + g) * d->O * d->y_plane;
  int64_t width = d->out[2];
  if (from == 0 && to * width == d->y_plane) { sc__epilogue(d->then, d->O * d->y_plane, y); return; }
  for (int64_t o = 0; o < d->O; o++) sc__epilogue(d->then, (to - from) * width, y + o * d->y_plane + from * width);
}

static void tile_columns(const direct *d, int64_t n, int64_t g, const float *room) {
  int64_t done = 0, step = EPILOGUE_FLOATS / (d->O * d->out[2]) + 1;
  for (int64_t at = 0; at < d->span; at += d->k->nr) {
    tile_column(d, n, g, at, room);
    if (!d->then) continue;
    int64_t rows = rows_done(d, at + d->k->nr);
    if (rows - done < step && at + d->k->nr < d->span) continue;
    finish_rows(d, n, g, done, rows);
    done = rows;
  }
}

/* ---- channels in the lanes ---- */

static bool padded(const direct *d) { return d->pad[0] || d->pad[1] || d->pad[2] || d->plane != d->image; }

/* Output rows [begin, end) of a block of channels: a row in tiles of nearly equal length, so many held until they are worth turning round. */
static void lanes_rows(const direct *d, int64_t n, int64_t g, int64_t block, int64_t begin, int64_t end, const float *image) {
  int64_t W = 2 * d->lanes->lanes, K = d->C * d->taps, o = block * W, channels = d->O - o < W ? d->O - o : W, parts = (d->out[2] + d->lanes->most - 1) / d->lanes->most;
  const float *w = d->packed + (g * d->blocks + block) * K * W;
  float bias[MAX_LANES] = {0}, tile[(LANES_HELD + 16) * MAX_LANES], *y = d->y + ((n * d->G + g) * d->O + o) * d->y_plane + begin * d->out[2];
  if (d->bias) memcpy(bias, d->bias + g * d->O + o, (size_t)channels * sizeof(float));
  if (channels <= d->lanes->lanes) memset(tile, 0, sizeof tile);       /* second vectors that no tile writes, but `then` reads */
  int64_t held = 0;
  for (int64_t r = begin; r < end; r++) {
    const float *row = image + (r / d->out[1] * d->pitch[1] + r % d->out[1]) * d->pitch[2];
    for (int64_t p = 0; p < parts; p++) {
      int64_t from = d->out[2] * p / parts, m = d->out[2] * (p + 1) / parts - from;
      d->lanes->tile[m - 1](channels > d->lanes->lanes, K, w, row + from, d->offset, bias, tile + held * W);
      held += m;
      if (held < LANES_HELD && (r + 1 < end || p + 1 < parts)) continue;
      if (d->then) sc__epilogue(d->then, held * W, tile);
      d->lanes->spread(held, channels, tile, y, d->y_plane);
      y += held;
      held = 0;
    }
  }
}

/* One image and group. A single output channel (depth-wise) goes row by row. */
static void whole_image(const direct *d, int64_t n, int64_t g, float *room) {
  if (d->lanes) {
    const float *x = d->x + (n * d->G + g) * d->C * d->image;
    if (padded(d)) { pad_image(d, x, room); x = room; }
    for (int64_t b = 0; b < d->blocks; b++) lanes_rows(d, n, g, b, 0, d->out[0] * d->out[1], x);
    return;
  }
  pad_image(d, d->x + (n * d->G + g) * d->C * d->image, room);
  if (d->O > 1) {
    tile_columns(d, n, g, room);
    return;
  }
  float *line = room + d->C * d->plane + 2 * SLACK;
  for (int64_t a = 0; a < d->out[0]; a++)
    for (int64_t b = 0; b < d->out[1]; b++) {
      float *y = d->y + (n * d->G + g) * d->y_plane + (a * d->out[1] + b) * d->out[2], add = d->bias ? d->bias[g] : 0;
      d->k->row(d->C * d->taps, d->packed + g * d->C * d->taps, room + (a * d->pitch[1] + b) * d->pitch[2], d->offset, d->out[2], line);
      for (int64_t i = 0; i < d->out[2]; i++) y[i] = line[i] + add;
      if (d->then) sc__epilogue(d->then, d->out[2], y);
    }
}

static void image_slots(void *arg, int64_t begin, int64_t end) {
  const direct *d = arg;
  for (int64_t s = begin; s < end; s++)
    for (int64_t u = s; u < d->N * d->G; u += d->slots) whole_image(d, u / d->G, u % d->G, d->padded + (size_t)s * d->slot_floats);
}

static void tile_pieces(void *arg, int64_t begin, int64_t end) {
  const direct *d = arg;
  for (int64_t t = begin; t < end; t++) tile_column(d, d->image_now / d->G, d->image_now % d->G, t * d->k->nr, d->padded);
}

static void lanes_pieces(void *arg, int64_t begin, int64_t end) {
  const direct *d = arg;
  const float *x = padded(d) ? d->padded : d->x + d->image_now * d->C * d->image;
  for (int64_t b = 0; b < d->blocks; b++) lanes_rows(d, d->image_now / d->G, d->image_now % d->G, b, begin, end, x);
}

static void finish_pieces(void *arg, int64_t begin, int64_t end) {
  const direct *d = arg;
  for (int64_t o = begin; o < end; o++) sc__epilogue(d->then, d->y_plane, d->y + (d->image_now * d->O + o) * d->y_plane);
}

static sc_status run(direct *d) {
  int64_t threads = d->ctx->threads, images = d->N * d->G;
  d->slots = images >= threads && !d->ctx->slice ? threads : 1;
  if (images > 4 * threads && threads > 1 && !d->ctx->slice) d->slots = 4 * threads;
  if (d->lanes && !padded(d)) d->slot_floats = SLACK;
  else d->slot_floats = (size_t)(d->C * d->plane + d->out[2] + 6 * SLACK + 4 * d->k->nr);
  size_t bytes = d->slot_floats * sizeof(float) * (size_t)d->slots;
  d->padded = sc__alloc(d->ctx, bytes);
  if (!d->padded) return sc__no_memory(d->ctx, bytes);
  double flops = (double)d->O * (double)(d->C * d->taps) * (double)d->span;
  if (!d->ctx->slice && (d->slots > 1 || threads == 1 || d->O == 1)) {
    sc__parallel(d->ctx, d->slots, 1, flops * (double)images / (double)d->slots * 0.015, image_slots, d);
  } else {
    for (d->image_now = 0; d->image_now < images; d->image_now++) {
      sc__slice_look(d->ctx, 0);
      if (sc__slice_dropping(d->ctx)) break;
      if (d->O == 1) { whole_image(d, d->image_now / d->G, d->image_now % d->G, d->padded); continue; }
      if (!d->lanes || padded(d)) pad_image(d, d->x + d->image_now * d->C * d->image, d->padded);
      if (d->lanes) {
        int64_t rows = d->out[0] * d->out[1];
        sc__parallel(d->ctx, rows, 1, flops / (double)rows * 0.015, lanes_pieces, d);
        continue;
      }
      int64_t tiles = (d->span + d->k->nr - 1) / d->k->nr;
      sc__parallel(d->ctx, tiles, 1, flops / (double)tiles * 0.015, tile_pieces, d);
      if (d->then) sc__parallel(d->ctx, d->O, 1, (double)d->y_plane * d->then->cost, finish_pieces, d);
    }
  }
  sc__release(d->ctx, d->padded, bytes);
  return SC_OK;
}

/* Channels of a block of packed weights. */
static int64_t block_rows(const direct *d) { return d->lanes ? 2 * d->lanes->lanes : d->O > 1 ? d->k->mr : 1; }

/* Less is computed in vain with channels in the lanes than with positions there. */
static bool lanes_pay(const direct *d, const sc_lanes *l) {
  double tiles = (double)((d->span + d->k->nr - 1) / d->k->nr * d->k->nr) * (double)((d->O + d->k->mr - 1) / d->k->mr * d->k->mr);
  double channels = (double)d->y_plane * (double)((d->O + l->lanes - 1) / l->lanes * l->lanes);
  return d->O > 1 && d->out[2] >= 3 && channels <= tiles;
}

/* Fills what follows from the sizes; offsets and packed weights in one block of *bytes (to be released). */
static sc_status prepare(direct *d, const sc_conv *p, const int64_t *in, const int64_t *out, const int64_t *pad, void **block, size_t *bytes) {
  d->taps = p->k[0] * p->k[1] * p->k[2];
  d->plane = d->image = d->y_plane = 1;
  for (int i = 0; i < 3; i++) {
    d->in[i] = in[i];
    d->out[i] = out[i];
    d->pad[i] = pad[i];
    d->pitch[i] = out[i] + (p->k[i] - 1) * p->dilation[i];
    d->plane *= d->pitch[i];
    d->image *= in[i];
    d->y_plane *= out[i];
  }
  d->span = ((out[0] - 1) * d->pitch[1] + out[1] - 1) * d->pitch[2] + out[2];
  const sc_lanes *l = lanes(d->ctx->isa);
  if (l && lanes_pay(d, l)) d->lanes = l;
  int64_t mr = block_rows(d), K = d->C * d->taps;
  d->blocks = (d->O + mr - 1) / mr;
  *bytes = (size_t)K * 8 + (size_t)(d->G * d->blocks * K * mr) * 4 + 64;
  *block = sc__alloc_zero(d->ctx, *bytes);
  if (!*block) return sc__no_memory(d->ctx, *bytes);
  int64_t *offset = *block, n = 0;
  for (int64_t c = 0; c < d->C; c++)
    for (int64_t a = 0; a < p->k[0]; a++)
      for (int64_t b = 0; b < p->k[1]; b++)
        for (int64_t e = 0; e < p->k[2]; e++)
          offset[n++] = c * d->plane + (a * p->dilation[0] * d->pitch[1] + b * p->dilation[1]) * d->pitch[2] + e * p->dilation[2];
  d->offset = offset;
  d->packed = (float *)(offset + K);
  return SC_OK;
}

sc_status sc__direct_forward(sc_context *ctx, const sc_conv *p, const float *x, const float *w, const float *bias, float *y) {
  direct d = {.ctx = ctx, .k = sc__tile(ctx->isa), .N = p->N, .G = p->G, .C = p->C, .O = p->O, .x = x, .bias = bias, .y = y, .then = p->then};
  void *block;
  size_t bytes;
  SC_TRY(prepare(&d, p, p->in, p->out, p->pad, &block, &bytes));
  int64_t K = d.C * d.taps, mr = block_rows(&d);
  float *to = (float *)d.packed;
  for (int64_t g = 0; g < d.G && d.lanes; g++)
    for (int64_t b = 0; b < d.blocks; b++)
      d.lanes->pack(K, d.O - b * mr < mr ? d.O - b * mr : mr, w + (g * d.O + b * mr) * K, to + (g * d.blocks + b) * K * mr);
  for (int64_t g = 0; g < d.G && !d.lanes; g++)
    for (int64_t o = 0; o < d.O; o++)
      for (int64_t k = 0; k < K; k++) to[((g * d.blocks + o / mr) * K + k) * mr + o % mr] = w[(g * d.O + o) * K + k];
  sc_status s = run(&d);
  sc__release(ctx, block, bytes);
  return s;
}

sc_status sc__direct_input(sc_context *ctx, const sc_conv *p, const float *dy, const float *w, const float *bias, float *dx) {
  direct d = {.ctx = ctx, .k = sc__tile(ctx->isa), .N = p->N, .G = p->G, .C = p->O, .O = p->C, .x = dy, .bias = bias, .y = dx};
  int64_t pad[3];
  for (int i = 0; i < 3; i++) pad[i] = (p->k[i] - 1) * p->dilation[i] - p->pad[i];
  void *block;
  size_t bytes;
  SC_TRY(prepare(&d, p, p->out, p->in, pad, &block, &bytes));
  int64_t K = d.C * d.taps, mr = block_rows(&d);
  float *to = (float *)d.packed;
  for (int64_t g = 0; g < d.G; g++)
    for (int64_t o = 0; o < d.O; o++)                      /* an input channel of the convolution */
      for (int64_t c = 0; c < d.C; c++)                    /* an output channel */
        for (int64_t t = 0; t < d.taps; t++)
          to[((g * d.blocks + o / mr) * K + c * d.taps + t) * mr + o % mr] = w[((g * p->O + c) * p->C + o) * d.taps + d.taps - 1 - t];
  sc_status s = run(&d);
  sc__release(ctx, block, bytes);
  return s;
}

/* ---- panels ---- */

sc_status sc__panels_new(sc_context *ctx, bool transposed, int64_t K, int64_t n, const float *b, int64_t ldb, int64_t max_rows, sc_panels *p) {
  const sc_tile *k = sc__tile(ctx->isa);
  int64_t nr = k->nr, blocks = (n + nr - 1) / nr, padded_rows = (max_rows + k->mr - 1) / k->mr * k->mr;
  *p = (sc_panels){.K = K, .n = n, .blocks = blocks, .max_rows = max_rows, .bytes = (size_t)K * 8 + (size_t)(blocks * K * nr + padded_rows * K + SLACK) * 4 + 64};
  void *block = sc__alloc_zero(ctx, p->bytes);
  if (!block) return sc__no_memory(ctx, p->bytes);
  p->offset = block;
  p->data = (float *)(p->offset + K);
  p->rows = p->data + blocks * K * nr;
  for (int64_t i = 0; i < K; i++) p->offset[i] = i * nr;
  for (int64_t q = 0; q < blocks; q++) {
    sc__slice_look(ctx, 0);
    for (int64_t i = 0; i < K; i++)
      for (int64_t j = 0; j < nr && q * nr + j < n; j++)
        p->data[(q * K + i) * nr + j] = transposed ? b[(q * nr + j) * ldb + i] : b[i * ldb + q * nr + j];
  }
  return SC_OK;
}

void sc__panels_free(sc_context *ctx, sc_panels *p) { if (p->offset) sc__release(ctx, p->offset, p->bytes); }

typedef struct times { const sc_tile *k; const sc_panels *p; int64_t m, ldc; bool add; float *c; } times;

static void times_blocks(void *arg, int64_t begin, int64_t end) {
  const times *t = arg;
  const sc_panels *p = t->p;
  int64_t mr = t->k->mr, nr = t->k->nr;
  float tile[MAX_TILE];
  for (int64_t q = begin; q < end; q++)
    for (int64_t r = 0; r < t->m; r += mr) {
      t->k->tile(p->K, p->rows + r * p->K, p->data + q * p->K * nr, p->offset, tile);
      int64_t wide = p->n - q * nr < nr ? p->n - q * nr : nr;
      for (int64_t i = 0; i < mr && r + i < t->m; i++) {
        float *to = t->c + (r + i) * t->ldc + q * nr;
        const float *from = tile + i * nr;
        if (t->add) for (int64_t j = 0; j < wide; j++) to[j] += from[j];
        else for (int64_t j = 0; j < wide; j++) to[j] = from[j];
      }
    }
}

void sc__panels_times(sc_context *ctx, sc_panels *p, int64_t m, const float *a, int64_t lda, bool add, float *c, int64_t ldc) {
  const sc_tile *k = sc__tile(ctx->isa);
  for (int64_t r = 0; r < m; r++) {
    float *to = p->rows + r / k->mr * k->mr * p->K + r % k->mr;
    for (int64_t i = 0; i < p->K; i++) to[i * k->mr] = a[r * lda + i];
  }
  times t = {k, p, m, ldc, add, c};
  sc__parallel(ctx, p->blocks, 1, (double)m * (double)p->K * (double)k->nr * 0.015, times_blocks, &t);
}
