/* What group.c tells the makers of tile programs about a group. */
#ifndef SC_GROUP_H
#define SC_GROUP_H

#include "graph.h"

enum { SC_GROUP_MEMBERS = 32, SC_GROUP_DIMS = 8 };

/* How a value is laid out in a group's space. */
typedef enum sc_layout { SC_LAYOUT_OTHER, SC_LAYOUT_FULL, SC_LAYOUT_ROW } sc_layout;

/* The space of a group: sizes other than one; the first `rows` of them count rows when the group reduces, else rows is -1. */
typedef struct sc_group_space { int nd, rows; int64_t dim[SC_GROUP_DIMS]; } sc_group_space;

/* Finds groups among the nodes that are alive; fills v->group, next, first, row, order. memory: [n_values] the value whose memory it is. */
sc_status sc__group(const sc_graph *g, sc_view_of_graph *v, const int32_t *memory, bool fuse);
/* The space of the group that node `last` runs. */
void sc__group_space(const sc_graph *g, const sc_view_of_graph *v, int32_t last, sc_group_space *out);
/* Strides of value x, an operand of a member with results of shape `like` (a reduction: NULL), over the sizes of `like` that are not
** one. -> how many; -1: too many. */
int sc__group_strides(const sc_value *x, const sc_value *like, int64_t *stride);
/* The reduction that node n is, over its last dims; false: none that a program can do. count: elements of a row. */
bool sc__group_fold(const sc_graph *g, const sc_graph_node *n, int64_t *count, int *rows);

#endif
