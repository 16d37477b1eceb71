/* The wire format of protobuf, read field by field; see protobuf.h. */
#include "protobuf.h"

#include <string.h>

bool sc__pb_varint(const uint8_t **at, const uint8_t *end, uint64_t *out) {
  uint64_t v = 0;
  const uint8_t *p = *at;
  for (int shift = 0; shift < 70 && p < end; shift += 7) {
    uint8_t b = *p++;
    v |= (uint64_t)(b & 0x7f) << shift;
    if (b & 0x80) continue;
    *at = p;
    *out = v;
    return true;
  }
  return false;
}

static bool fixed(const uint8_t **at, const uint8_t *end, size_t bytes, uint64_t *out) {
  if ((size_t)(end - *at) < bytes) return false;
  *out = 0;
  for (size_t i = 0; i < bytes; i++) *out |= (uint64_t)(*at)[i] << 8 * i;
  *at += bytes;
  return true;
}

static bool number(int wire, const uint8_t **at, const uint8_t *end, uint64_t *out) {
  switch (wire) {
    case SC_PB_VARINT: return sc__pb_varint(at, end, out);
    case SC_PB_FIXED64: return fixed(at, end, 8, out);
    case SC_PB_FIXED32: return fixed(at, end, 4, out);
    default: return false;
  }
}

int sc__pb_next(sc_pb *p) {
  uint64_t key, length;
  if (p->at == p->end) return 0;
  if (!sc__pb_varint(&p->at, p->end, &key) || key >> 3 == 0 || key >> 3 > 0x1fffffff) return -1;
  p->field = (uint32_t)(key >> 3);
  p->wire = (int)(key & 7);
  p->data = NULL;
  p->size = 0;
  p->number = 0;
  if (p->wire != SC_PB_BYTES) return number(p->wire, &p->at, p->end, &p->number) ? 1 : -1;
  if (!sc__pb_varint(&p->at, p->end, &length) || length > (uint64_t)(p->end - p->at)) return -1;
  p->data = p->at;
  p->size = (size_t)length;
  p->at += length;
  return 1;
}

int sc__pb_value(const sc_pb *p, int wire, size_t *place, uint64_t *out) {
  if (p->wire != SC_PB_BYTES) {
    *out = p->number;
    return p->wire != wire ? -1 : (*place)++ == 0;
  }
  if (*place == p->size) return 0;
  const uint8_t *at = p->data + *place;
  if (!number(wire, &at, p->data + p->size, out)) return -1;
  *place = (size_t)(at - p->data);
  return 1;
}

bool sc__pb_pair(const uint8_t *data, size_t size, sc_pb_pair *out) {
  sc_pb p = sc__pb(data, size);
  int r;
  *out = (sc_pb_pair){.value = (const uint8_t *)""};
  while ((r = sc__pb_next(&p)) > 0) {
    if (p.wire != SC_PB_BYTES) continue;
    if (p.field == 1) { out->key = p.data; out->n_key = p.size; }
    if (p.field == 2) { out->value = p.data; out->n_value = p.size; }
  }
  return r == 0;
}

bool sc__pb_is(const uint8_t *s, size_t n, const char *text) { return s && n == strlen(text) && memcmp(s, text, n) == 0; }
