/* Texts in which stand-ins of symbolic sizes (instantiate.c) become names again: "shape {1046527, 4}" is shape {batch, 4} to people. */
#include "graph.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer { char *at; size_t left; } writer;

static void put(writer *w, const char *s, size_t n) {
  if (n >= w->left) n = w->left ? w->left - 1 : 0;
  memcpy(w->at, s, n);
  w->at += n;
  w->left -= n;
}

static void term(const sc_graph *g, writer *w, int64_t v, int depth) {
  char number[32] = "";
  int k;
  int64_t q, r;
  if (depth > 4 || !sc__size_term(g->n_sizes, v, &k, &q, &r)) {
    put(w, number, (size_t)snprintf(number, sizeof number, "%lld", (long long)v));
    return;
  }
  if (q != 1) {
    term(g, w, q, depth + 1);
    put(w, "*", 1);
  }
  put(w, g->size_name[k], strlen(g->size_name[k]));
  if (r) put(w, number, (size_t)snprintf(number, sizeof number, "%+lld", (long long)r));
}

void sc__name_sizes(const sc_graph *g, const char *text, char *out, size_t size) {
  writer w = {out, size};
  if (!g || !g->n_sizes) { snprintf(out, size, "%s", text); return; }
  bool inside = false;                                  /* of a word or a number */
  while (*text) {
    size_t n = strspn(text, "0123456789");
    if (n >= 6 && n <= 18 && !inside && text[n] != '.') term(g, &w, strtoll(text, NULL, 10), 0);
    else put(&w, text, n ? n : (n = 1));
    inside = isalnum((unsigned char)text[n - 1]) || text[n - 1] == '.' || text[n - 1] == '_';
    text += n;
  }
  if (size) *w.at = 0;
}
