/* Formulas as trees: what formula.c compiles gradients to, and graph/rewrite.c its patterns and replacements. The language is described
** in formula.c. */
#ifndef SC_FORMULA_H
#define SC_FORMULA_H

#include "autodiff.h"

typedef enum sc_ast_kind { A_NUMBER, A_TEXT, A_NONE, A_BOOL, A_LIST, A_DY, A_IN, A_OUT, A_ATTR, A_SHAPE, A_CALL } sc_ast_kind;

enum { SC_AST_ARGS = 10, SC_AST_NODES = 48, SC_AST_LIST = 6 };

typedef struct sc_ast {
  uint8_t kind, n;
  bool integer, output, optional;  /* A_NUMBER; A_SHAPE: of a result; a name written with ? */
  int16_t arg[SC_AST_ARGS];        /* A_CALL: nodes */
  int index;                       /* A_DY, A_IN, A_OUT, A_ATTR, A_SHAPE */
  double number;
  int64_t list[SC_AST_LIST];
  char text[16];
  const sc_opinfo *op;             /* A_CALL */
} sc_ast;

typedef struct sc_formula {
  int n, root;
  bool pointwise;
  size_t bytes;
  sc_ast node[];
} sc_formula;

/* What a name stands for: kind and index of out. of_shape: it is written inside shape(). false: there is no such name. */
typedef bool (*sc_formula_names)(void *arg, const char *name, bool of_shape, sc_ast *out);

/* new; what: in whose formula a mistake is. */
sc_status sc__formula_parse(sc_context *ctx, const char *what, const char *text, sc_formula_names names, void *arg, sc_formula **out);

#endif
