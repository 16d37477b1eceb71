/* A small JSON reader (RFC 8259) for headers of files: no tree is built, the caller asks for what it expects next. Strings are
** decoded into memory of the caller's that is as large as the input, which is always enough. Nesting is limited. */
#include "formats.h"

#include <string.h>

enum { DEEPEST = 64 };

static bool wrong(sc_json *j, const char *problem) {
  if (!j->problem) j->problem = problem;
  return false;
}

static void blanks(sc_json *j) {
  while (j->at < j->end && (*j->at == ' ' || *j->at == '\t' || *j->at == '\n' || *j->at == '\r')) j->at++;
}

static bool take(sc_json *j, char c) {
  blanks(j);
  if (j->at >= j->end || *j->at != (uint8_t)c) return false;
  j->at++;
  return true;
}

bool sc__utf8_valid(const uint8_t *s, size_t n) {
  for (size_t i = 0; i < n;) {
    uint8_t c = s[i++];
    if (c < 0x80) continue;
    int more = c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 0;
    if (!more || n - i < (size_t)more) return false;
    uint8_t low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    for (int k = 0; k < more; k++, low = 0x80, high = 0xBF)
      if (s[i] < low || s[i++] > high) return false;
  }
  return true;
}

bool sc__json_open(sc_json *j, char bracket) {
  if (!take(j, bracket)) return wrong(j, bracket == '{' ? "expected an object" : "expected a list");
  if (++j->depth > DEEPEST) return wrong(j, "it is nested too deeply");
  return true;
}

int sc__json_element(sc_json *j, bool *first) {
  if (take(j, ']')) { j->depth--; return 0; }
  if (!*first && !take(j, ',')) { wrong(j, "expected , or ]"); return -1; }
  *first = false;
  return 1;
}

int sc__json_member(sc_json *j, bool *first, const char **key, size_t *length) {
  if (take(j, '}')) { j->depth--; return 0; }
  if (!*first && !take(j, ',')) { wrong(j, "expected , or }"); return -1; }
  *first = false;
  if (!sc__json_string(j, key, length)) return -1;
  if (!take(j, ':')) { wrong(j, "expected :"); return -1; }
  return 1;
}

static bool hex4(sc_json *j, uint32_t *out) {
  if (j->end - j->at < 4) return false;
  *out = 0;
  for (int i = 0; i < 4; i++) {
    uint8_t c = *j->at++;
    int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (v < 0) return false;
    *out = *out << 4 | (uint32_t)v;
  }
  return true;
}

static size_t encode(uint32_t u, char *to) {
  if (u < 0x80) { to[0] = (char)u; return 1; }
  if (u < 0x800) { to[0] = (char)(0xC0 | u >> 6); to[1] = (char)(0x80 | (u & 63)); return 2; }
  if (u < 0x10000) { to[0] = (char)(0xE0 | u >> 12); to[1] = (char)(0x80 | (u >> 6 & 63)); to[2] = (char)(0x80 | (u & 63)); return 3; }
  to[0] = (char)(0xF0 | u >> 18); to[1] = (char)(0x80 | (u >> 12 & 63)); to[2] = (char)(0x80 | (u >> 6 & 63)); to[3] = (char)(0x80 | (u & 63));
  return 4;
}

static bool escape(sc_json *j) {
  static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
  if (j->at >= j->end) return wrong(j, "a string does not end");
  char c = (char)*j->at++;
  const char *k = c ? strchr(FROM, c) : NULL;
  if (k) { j->text[j->used++] = TO[k - FROM]; return true; }
  uint32_t u, v;
  if (c != 'u' || !hex4(j, &u) || (u >= 0xDC00 && u < 0xE000)) return wrong(j, "a string has a wrong escape");
  if (u >= 0xD800 && u < 0xDC00) {
    if (j->end - j->at < 2 || j->at[0] != '\\' || j->at[1] != 'u') return wrong(j, "a string has a wrong escape");
    j->at += 2;
    if (!hex4(j, &v) || v < 0xDC00 || v >= 0xE000) return wrong(j, "a string has a wrong escape");
    u = 0x10000 + ((u - 0xD800) << 10) + (v - 0xDC00);
  }
  j->used += encode(u, j->text + j->used);
  return true;
}

bool sc__json_string(sc_json *j, const char **s, size_t *length) {
  if (!take(j, '"')) return wrong(j, "expected a string");
  size_t begin = j->used;
  for (;;) {
    if (j->at >= j->end) return wrong(j, "a string does not end");
    uint8_t c = *j->at++;
    if (c == '"') break;
    if (c < 0x20) return wrong(j, "a string holds a control character");
    if (c != '\\') j->text[j->used++] = (char)c;
    else if (!escape(j)) return false;
  }
  *s = j->text + begin;
  *length = j->used - begin;
  j->text[j->used++] = 0;                            /* the two quotes left room for it */
  return true;
}

bool sc__json_size(sc_json *j, int64_t *out) {
  blanks(j);
  const uint8_t *begin = j->at;
  int64_t v = 0;
  for (; j->at < j->end && *j->at >= '0' && *j->at <= '9'; j->at++)
    if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *j->at - '0', &v)) return wrong(j, "a number is too large");
  if (j->at == begin) return wrong(j, j->at < j->end && *j->at == '-' ? "a size is negative" : "expected a whole number");
  if (*begin == '0' && j->at - begin > 1) return wrong(j, "a number begins with 0");
  if (j->at < j->end && (*j->at == '.' || *j->at == 'e' || *j->at == 'E')) return wrong(j, "a size is not a whole number");
  *out = v;
  return true;
}

static bool skip_number(sc_json *j) {
  const uint8_t *begin = j->at;
  while (j->at < j->end && *j->at && strchr("+-0123456789.eE", *j->at)) j->at++;
  return j->at > begin || wrong(j, "expected a value");
}

static bool skip_word(sc_json *j, const char *word) {
  size_t n = strlen(word);
  if ((size_t)(j->end - j->at) < n || memcmp(j->at, word, n) != 0) return wrong(j, "expected a value");
  j->at += n;
  return true;
}

bool sc__json_skip(sc_json *j) {
  const char *s;
  size_t n;
  bool first = true;
  int more;
  blanks(j);
  switch (j->at < j->end ? *j->at : 0) {
    case '"': return sc__json_string(j, &s, &n);
    case '{':
      if (!sc__json_open(j, '{')) return false;
      while ((more = sc__json_member(j, &first, &s, &n)) > 0) if (!sc__json_skip(j)) return false;
      return more == 0;
    case '[':
      if (!sc__json_open(j, '[')) return false;
      while ((more = sc__json_element(j, &first)) > 0) if (!sc__json_skip(j)) return false;
      return more == 0;
    case 't': return skip_word(j, "true");
    case 'f': return skip_word(j, "false");
    case 'n': return skip_word(j, "null");
    default: return skip_number(j);
  }
}

bool sc__json_done(sc_json *j) {
  blanks(j);
  return j->at == j->end || wrong(j, "something follows the header's object");
}
