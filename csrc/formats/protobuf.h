/* protobuf: a cursor over the wire format. It copies nothing and believes nothing: every length is checked against the bytes that
** are there; groups (wire types 3 and 4), field number 0 and varints of more than ten bytes are refused. */
#ifndef SC_PROTOBUF_H
#define SC_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SC_PB_VARINT = 0, SC_PB_FIXED64 = 1, SC_PB_BYTES = 2, SC_PB_FIXED32 = 5 };

typedef struct sc_pb {
  const uint8_t *at, *end;       /* what is left */
  uint32_t field;                /* of the field read last: its number, */
  int wire;                      /* its wire type, */
  uint64_t number;               /* its value, but for SC_PB_BYTES: */
  const uint8_t *data;           /* borrowed */
  size_t size;
} sc_pb;

static inline sc_pb sc__pb(const uint8_t *data, size_t size) { return (sc_pb){.at = data, .end = data + size}; }
/* 1: a field was read; 0: the end; -1: malformed. */
int sc__pb_next(sc_pb *p);
bool sc__pb_varint(const uint8_t **at, const uint8_t *end, uint64_t *out);
/* Of a repeated number in the field just read, packed or not: the values one by one. *place starts at 0. 1: a value, 0: no more,
** -1: malformed. wire: how single values are written. */
int sc__pb_value(const sc_pb *p, int wire, size_t *place, uint64_t *out);
/* A message of two strings, a key (field 1; NULL: it is not there) and its value (field 2; empty then). false: malformed. */
typedef struct sc_pb_pair { const uint8_t *key, *value; size_t n_key, n_value; } sc_pb_pair;
bool sc__pb_pair(const uint8_t *data, size_t size, sc_pb_pair *out);
bool sc__pb_is(const uint8_t *s, size_t n, const char *text);

#endif
