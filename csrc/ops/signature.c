/* Reads the one-line signatures of the op table. They are our own text: a mistake in one fails the making of every context, so
** the first test that runs shows it. */
#include "ops.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader { const char *at; } reader;

static void blanks(reader *r) { while (*r->at == ' ') r->at++; }

static bool take(reader *r, const char *text) {
  blanks(r);
  size_t n = strlen(text);
  if (strncmp(r->at, text, n) != 0) return false;
  r->at += n;
  return true;
}

static bool word(reader *r, char *out, size_t size, const char *also) {
  blanks(r);
  size_t n = 0;
  while ((*r->at >= 'a' && *r->at <= 'z') || (*r->at >= 'A' && *r->at <= 'Z') || (*r->at >= '0' && *r->at <= '9') || *r->at == '_' ||
         (*r->at && strchr(also, *r->at))) {
    if (n + 1 >= size) return false;
    out[n++] = *r->at++;
  }
  out[n] = 0;
  return n > 0;
}

static bool type(reader *r, sc_param *p) {
  static const struct { const char *name; sc_param_type one, many; } TYPES[] = {
    {"tensor", SC_P_TENSOR, SC_P_TENSORS}, {"int", SC_P_INT, SC_P_INTS}, {"float", SC_P_FLOAT, SC_P_FLOATS},
    {"number", SC_P_NUMBER, SC_P_FLOATS}, {"bool", SC_P_BOOL, SC_P_BOOL}, {"str", SC_P_STRING, SC_P_STRING},
    {"dtype", SC_P_DTYPE, SC_P_DTYPE}, {"generator", SC_P_GENERATOR, SC_P_GENERATOR}, {"dim", SC_P_DIM, SC_P_DIMS},
    {"index", SC_P_INDEX, SC_P_INDEX}, {"shape", SC_P_SHAPE, SC_P_SHAPE}, {"any", SC_P_ANY, SC_P_ANY}};
  char name[16];
  if (!word(r, name, sizeof name, "")) return false;
  for (int i = 0; i < SC_COUNT(TYPES); i++) {
    if (strcmp(name, TYPES[i].name) != 0) continue;
    p->type = TYPES[i].one;
    if (r->at[0] == '?' && r->at[1] == '[') { p->holes = true; r->at++; }
    if (*r->at == '[') {
      p->type = TYPES[i].many;
      p->length = (int)strtol(r->at + 1, (char **)&r->at, 10);
      if (*r->at++ != ']') return false;
    }
    if (strncmp(r->at, "|str", 4) == 0) { p->words = true; r->at += 4; }
    if (strncmp(r->at, "|number", 7) == 0) { p->numbers = true; r->at += 7; }
    if (*r->at == '?') { p->optional = true; r->at++; }
    return true;
  }
  return false;
}

/* Values that a signature's text can name without memory of its own. */
static bool preset(reader *r, sc_param *p) {
  static const int64_t ZERO[8] = {0}, ONES[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  blanks(r);
  p->optional = true;
  if (take(r, "true")) { p->preset = sc__bool(true); return true; }
  if (take(r, "false")) { p->preset = sc__bool(false); return true; }
  if (take(r, "nil")) return true;
  if (*r->at == '"') {
    static const char *const WORDS[] = {"mean", "sum", "none", "constant", "nearest", "bilinear", "linear", "zeros", "floor", "trunc",
                                        "fro", "ij", "tanh", "L", "amax", "right", "left", "reduced", "batchmean", "float32", "int64"};
    char text[24];
    r->at++;
    if (!word(r, text, sizeof text, "-") || *r->at++ != '"') return false;
    for (int i = 0; i < SC_COUNT(WORDS); i++)
      if (strcmp(text, WORDS[i]) == 0) {
        sc_dtype d;
        p->preset = p->type == SC_P_DTYPE && sc__dtype_from_name(text, &d) ? sc__dtype(d) : sc__str(WORDS[i]);
        return true;
      }
    return false;
  }
  char *end;
  double f = strtod(r->at, &end);
  if (end == r->at) return false;
  bool integer = true;
  for (const char *c = r->at; c < end; c++) integer = integer && (*c == '-' || (*c >= '0' && *c <= '9'));
  r->at = end;
  if (p->type == SC_P_INTS || p->type == SC_P_DIMS || p->type == SC_P_SHAPE)
    p->preset = sc__ints(f == 0 ? ZERO : ONES, p->length ? p->length : 1);
  else if (p->type == SC_P_FLOAT || !integer)
    p->preset = sc__float(f);
  else
    p->preset = sc__int((int64_t)f);
  return true;
}

static bool parameter(reader *r, sc_opinfo *o) {
  if (o->n_params == SC_MAX_PARAMS) return false;
  sc_param *p = &o->param[o->n_params];
  if (!word(r, p->name, sizeof p->name, "")) return false;
  p->type = SC_P_TENSOR;
  if (take(r, ":") && (blanks(r), !type(r, p))) return false;
  if (take(r, "=") && !preset(r, p)) return false;
  p->required = !p->optional;
  if (p->type == SC_P_TENSOR || p->type == SC_P_TENSORS) {
    if (o->n_in == SC_MAX_INPUTS) return false;
    o->in_param[o->n_in] = o->n_params;
    p->slot = o->n_in++;
    if (p->type == SC_P_TENSORS) o->variadic = true;
  } else {
    if (o->n_attr == SC_MAX_ATTRS) return false;
    o->attr_param[o->n_attr] = o->n_params;
    p->slot = o->n_attr++;
  }
  o->n_params++;
  return true;
}

sc_status sc__signature_parse(const char *text, sc_opinfo *o) {
  reader r = {text};
  if (!word(&r, o->name, sizeof o->name, ".") || !take(&r, "(")) return SC_EINVAL;
  while (!take(&r, ")")) {
    if (o->n_params && !take(&r, ",")) return SC_EINVAL;
    if (!parameter(&r, o)) return SC_EINVAL;
  }
  if (take(&r, "->"))
    do {
      if (o->n_named_out == SC_MAX_OUTPUTS || !word(&r, o->out_name[o->n_named_out++], 16, "[]")) return SC_EINVAL;
    } while (take(&r, ","));
  blanks(&r);
  return *r.at ? SC_EINVAL : SC_OK;
}
