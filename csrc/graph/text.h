/* A graph as text, and text as a graph: for people, for specs of passes, and inside saved files. text.c prints, text_read.c reads.
**
**     sconce graph 1
**     size batch                                             names of sizes, in the order of their stand-ins
**     %1 = input "x" float32 {batch, 784}
**     %2 = capture "weight" float32 {10, 784} grad           a tensor by reference; also: stride {1, 10}, memory 1 at 40
**     ~1 = generator 1 0                                     of the script: seed, offset
**     @1 = cond [ a graph ] [ a graph ]                   what a control node runs
**     base 1                                                 of index values, for the nodes that follow
**     %3 = linear(%1, %2, nil) : float32 {batch, 10}         the type may be left out; where it stands it is checked
**     %4 = sum(%3) {dim = [1], keepdim = true} : float32 {batch, 1} at "train.lua":42
**     %3 = mul_(%3, 2.0)                                     in place: the value keeps its name
**     output "y" %4
**
** Attributes have the signature's names and are left out where they are the default. 3 is an integer, 3.0 a float, batch*2+1 an integer
** that follows from a size. Dimensions count from 0. `--` begins a comment. A number of the script stands where it is used, or has a name
** (%5 = number 2.0) when several nodes read the very same.
**
** Reading believes nothing: every node goes through sc__emit, so that the op's own rules decide about it. */
#ifndef SC_GRAPH_TEXT_H
#define SC_GRAPH_TEXT_H

#include "graph.h"

/* A captured tensor of a graph or of the graphs that its nodes run, in the order of printing. */
typedef struct sc__captured {
  sc_tensor *t;                  /* borrowed */
  const char *name;              /* interned */
  int memory;                    /* 0: packed, with memory of its own; -1: with gaps; from 1: shares the memory of that number */
  int64_t at;                    /* bytes from that memory's start */
} sc__captured;

typedef struct sc__captures { sc__captured *list; size_t n, room; } sc__captures;

/* new: give it to sc__captures_free. Numbers of the script are not among them. */
sc_status sc__graph_captures(const sc_graph *g, sc__captures *out);
void sc__captures_free(sc_context *ctx, sc__captures *c);
/* Gives every captured tensor, in the graphs that nodes run too, the name it has in g's text. */
sc_status sc__graph_name_all(sc_graph *g);
/* The name that t has in texts of g; it is forgotten when t is not captured. */
sc_status sc__graph_name(sc_graph *g, const sc_tensor *t, const char *name);

typedef struct sc__text { sc_context *ctx; char *at; size_t n, room; sc_status failed; } sc__text;   /* at: new; ends in 0 */
sc_status sc__graph_print(const sc_graph *g, sc__text *out);     /* out: zeros; give it to sc__text_free, also on failure */
void sc__text_free(sc__text *t);

/* Gives the values of the captured tensor of that name: new, or borrowed with a reference taken. SC_OK and NULL: there are none (zeros). */
typedef sc_status (*sc__capture_fn)(void *user, const char *name, sc_tensor **out);
/* find: NULL: no captured tensor has values. room: bytes that captured tensors with gaps or in shared memory may take when they are laid
** out as the text says; 0: tensors that find gives are captured as they are. */
sc_status sc__graph_read(sc_context *ctx, const char *text, size_t size, sc__capture_fn find, void *user, int64_t room, sc_graph **out);

#endif
