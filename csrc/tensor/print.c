/* Tensors as text, laid out as PyTorch does: columns aligned, four digits, scientific notation when the range demands it, three
** elements at either end of each dimension when there are more than 1000.
**
** The text is made twice by callers, first for its length. Elements are read where they lie, so the cost is that of what is
** shown; what is shown is bounded (many dimensions of two are never cut by the rule above), the rest becomes "...". */
#include "tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EDGE = 3, SUMMARISE_ABOVE = 1000, LINE = 80, MOST = 20000, INDENT = 7 };

typedef struct printer {
  const sc_tensor *t;
  char *out;
  size_t size, n, line;            /* bytes there is room for, bytes so far, where the last line began */
  bool summarise;
  bool whole, scientific;          /* of floats: all are whole numbers */
  int width, left;                 /* of a column; elements that may still be shown */
  int found;
  double low, high;                /* least and greatest magnitude of those that are finite and not 0 */
} printer;

static void put(printer *p, const char *text, size_t n) {
  if (p->n < p->size) memcpy(p->out + p->n, text, n < p->size - p->n ? n : p->size - p->n);
  p->n += n;
}
static void text(printer *p, const char *s) { put(p, s, strlen(s)); }
static void newline(printer *p, int times, int indent) {
  for (int i = 0; i < times; i++) put(p, "\n", 1);
  p->line = p->n;
  for (int i = 0; i < indent; i++) put(p, " ", 1);
}

static sc_scalar element(const printer *p, const char *at) { return sc__load((sc_dtype)p->t->dtype, at); }
static const char *step(const printer *p, int dim, const char *at, int64_t i) {
  return at + i * sc__stride(p->t)[dim] * (int64_t)sc_dtype_size((sc_dtype)p->t->dtype);
}

/* Items of a dimension that are shown; `*gap` stands before which of them the dots come, or -1. */
static int64_t shown(const printer *p, int dim, int64_t *gap) {
  int64_t n = p->t->dim[dim];
  bool cut = p->summarise && n > 2 * EDGE;
  *gap = cut ? EDGE : -1;
  return cut ? 2 * EDGE : n;
}
static int64_t place(const printer *p, int dim, int64_t i, int64_t gap) { return gap >= 0 && i >= gap ? p->t->dim[dim] - 2 * EDGE + i : i; }

/* ---- one number ---- */

static int number(const printer *p, sc_scalar v, char *out, size_t size) {
  if (p->t->dtype == SC_BOOL) return snprintf(out, size, "%s", v.i ? "true" : "false");
  if (v.is_int) return v.is_unsigned ? snprintf(out, size, "%llu", (unsigned long long)v.i) : snprintf(out, size, "%lld", (long long)v.i);
  if (isnan(v.f)) return snprintf(out, size, "nan");
  if (isinf(v.f)) return snprintf(out, size, v.f > 0 ? "inf" : "-inf");
  if (p->scientific) return snprintf(out, size, "%.4e", v.f);
  return p->whole ? snprintf(out, size, "%.0f.", v.f) : snprintf(out, size, "%.4f", v.f);
}

/* Calls fn for every element shown, in order. */
static void visit(printer *p, int dim, const char *at, void (*fn)(printer *, sc_scalar)) {
  if (p->left <= 0) return;
  if (dim == p->t->ndim) { p->left--; fn(p, element(p, at)); return; }
  int64_t gap, n = shown(p, dim, &gap);
  for (int64_t i = 0; i < n && p->left > 0; i++) visit(p, dim + 1, step(p, dim, at, place(p, dim, i, gap)), fn);
}

static void survey(printer *p, sc_scalar v) {
  if (v.is_int || !isfinite(v.f) || v.f == 0) return;
  double a = fabs(v.f);
  if (!p->found || a < p->low) p->low = a;
  if (!p->found || a > p->high) p->high = a;
  p->found = 1;
  if (v.f != ceil(v.f)) p->whole = false;
}
static void measure(printer *p, sc_scalar v) {
  char buffer[400];
  if (!v.is_int && (!isfinite(v.f) || v.f == 0)) return;
  int n = number(p, v, buffer, sizeof buffer);
  if (n > p->width) p->width = n;
}

static void choose_format(printer *p) {
  p->whole = true;
  p->width = 1;
  p->left = MOST;
  visit(p, 0, p->t->data, survey);
  p->scientific = p->found && (p->high / p->low > 1000 || p->high > 1e8 || (!p->whole && p->low < 1e-4));
  p->left = MOST;
  visit(p, 0, p->t->data, measure);
}

/* ---- layout ---- */

static void cell(printer *p, const char *at) {
  char buffer[400];
  int n = number(p, element(p, at), buffer, sizeof buffer);
  for (int i = n; i < p->width; i++) put(p, " ", 1);
  put(p, buffer, (size_t)n);
  p->left--;
}

static void row(printer *p, int dim, const char *at, int indent) {
  int per_line = (LINE - indent) / (p->width + 2), column = 0;
  int64_t gap, n = shown(p, dim, &gap);
  if (per_line < 1) per_line = 1;
  for (int64_t i = 0; i < n; i++) {
    for (int dots = i == gap || p->left <= 0; dots >= 0; dots--) {
      if (column && column % per_line == 0) { put(p, ",", 1); newline(p, 1, indent + 1); }
      else if (column) text(p, ", ");
      column++;
      if (dots) text(p, " ...");
      if (dots && p->left <= 0) return;
      if (!dots) cell(p, step(p, dim, at, place(p, dim, i, gap)));
    }
  }
}

static void block(printer *p, int dim, const char *at, int indent) {
  if (dim == p->t->ndim) { cell(p, at); return; }
  put(p, "[", 1);
  if (dim == p->t->ndim - 1) {
    row(p, dim, at, indent);
  } else {
    int64_t gap, n = shown(p, dim, &gap);
    for (int64_t i = 0; i < n; i++) {
      if (i) { put(p, ",", 1); newline(p, p->t->ndim - 1 - dim, indent + 1); }
      if (p->left <= 0) { text(p, "..."); break; }
      if (i == gap) { text(p, "...,"); newline(p, p->t->ndim - 1 - dim, indent + 1); }
      block(p, dim + 1, step(p, dim, at, place(p, dim, i, gap)), indent + 1);
    }
  }
  put(p, "]", 1);
}

static void suffix(printer *p, const char *s) {
  put(p, ",", 1);
  if (p->n - p->line + strlen(s) + 2 > LINE) newline(p, 1, INDENT); else put(p, " ", 1);
  text(p, s);
}

size_t sc__tensor_text(const sc_tensor *t, const char *more, char *out, size_t size) {
  printer p = {.t = t, .out = out, .size = size ? size - 1 : 0};
  char shape[SC_MAX_DIMS * 22 + 16] = "size=";
  sc__shape_text(t->ndim, t->dim, shape + 5, sizeof shape - 5);
  text(&p, "tensor(");
  sc_dtype d = (sc_dtype)t->dtype;
  if (sc__is_symbolic(t)) text(&p, "<symbolic>");
  else if (t->numel == 0) text(&p, "[]");
  else {
    p.summarise = t->numel > SUMMARISE_ABOVE;
    choose_format(&p);
    p.left = MOST;
    block(&p, 0, t->data, INDENT);
  }
  if (sc__is_symbolic(t) || p.summarise || (t->numel == 0 && t->ndim != 1)) suffix(&p, shape);
  bool usual = d == SC_FLOAT32 || (t->numel && (d == SC_INT64 || d == SC_BOOL) && !sc__is_symbolic(t));
  if (!usual) {
    char name[32];
    snprintf(name, sizeof name, "dtype=%s", sc_dtype_name(d));
    suffix(&p, name);
  }
  if (more && *more) suffix(&p, more);
  put(&p, ")", 1);
  if (size) out[p.n < size ? p.n : size - 1] = 0;
  return p.n;
}

size_t sc_tensor_text(const sc_tensor *t, char *out, size_t size) { return sc__tensor_text(t, NULL, out, size); }
