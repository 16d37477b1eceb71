/* ops: the op table and the only door to it, `sc__emit`.
**
** An op is one row: a signature in text, a help text, a rule for its results' shapes and dtypes (`infer`), a kernel (`run`) and
** a gradient. A row with `compose` instead is defined by other ops and needs none of these; one with both is asked first, and its
** `compose` declines by leaving n_out 0. The signature drives the Lua
** binding, the C call by name, the attributes kept on tape and graph nodes, help and completion.
**
** Signature: `name(x, other, bias: tensor?, dim: dim[]?, alpha: number = 1, stride: int[2] = 1) -> values, indices`
**   tensor (the default type), tensor?, tensor[]  inputs, in this order in `call->in`; an absent one is NULL; a list is last
**   int number float bool str dtype generator     attributes, in this order in `call->attr`
**   dim index                                     positions: 1-based in Lua, 0-based here, negative from the end in both
**   any                   for functions written in Lua: whatever was given, unchecked
**   tensor|number         the same: a number comes as it is, where a plain tensor parameter makes a 0-d tensor of it
**   int[] int[2] float[] dim[] shape              lists; int[2] also takes one number for both; int[2]|str a word too; int?[2] may have nil in it
**   a trailing ?                                  may be absent (SC_ATTR_NONE); `= value` gives a default
**
** Knows nothing of graphs, tapes or Lua: the context's `record` and `trace` services stand for the first two. */
#ifndef SC_OPS_H
#define SC_OPS_H

#include "../kernels/kernels.h"
#include "../tensor/tensor.h"

enum { SC_MAX_PARAMS = 16, SC_MAX_ATTRS = 14, SC_MAX_INPUTS = 8, SC_MAX_OUTPUTS = 4 };

typedef struct sc_opinfo sc_opinfo;
typedef struct sc_call sc_call;
typedef struct sc_grad_call sc_grad_call;

typedef enum sc_param_type {
  SC_P_TENSOR, SC_P_TENSORS, SC_P_INT, SC_P_NUMBER, SC_P_FLOAT, SC_P_BOOL, SC_P_STRING, SC_P_DTYPE, SC_P_GENERATOR, SC_P_DIM,
  SC_P_INDEX, SC_P_INTS, SC_P_FLOATS, SC_P_DIMS, SC_P_SHAPE,
  SC_P_ANY                   /* composites written in Lua: any value, handed on as it came */
} sc_param_type;

#define SC_HOLE INT64_MIN   /* an entry left out of a list whose type allows it */

typedef struct sc_param {
  char name[24];
  sc_param_type type;
  bool optional, words;    /* words: of int[2]|str, a string does as well */
  bool numbers;            /* of tensor|number: a function in Lua gets a number as it is */
  bool holes;              /* of int?[2]: an entry may be nil and is then SC_HOLE */
  int length;              /* of int[2]: 2; else 0 */
  int slot;                /* place in call->in or call->attr */
  sc_attr preset;          /* the default; kind NONE: none */
  bool required;
} sc_param;

enum {
  SC_OP_VIEW = 1,          /* the result shares the first input's storage; infer fills stride and offset */
  SC_OP_RANDOM = 2,        /* draws random numbers: never merged, folded or dropped */
  SC_OP_INPLACE = 4,       /* also exists as name_ */
  SC_OP_COMMUTATIVE = 8,
  SC_OP_FUNCTION = 16,     /* no method of tensors */
  SC_OP_INTERNAL = 32,     /* not listed for people */
  SC_OP_INPLACE_ONLY = 64, /* writes into its first input; the name ends in _ already */
  SC_OP_DETACH = 128,      /* the result never has a history */
  SC_OP_DIRECT = 256,      /* an in-place op whose run writes into in[0] itself (out[0] is in[0]) */
  SC_OP_CONVERTS = 512,    /* the result is the first input in another dtype */
  SC_OP_STORES = 2048,     /* moves or converts elements, those of dtypes that are only stored too; views do so anyway */
  SC_OP_OUTER = 1024       /* of two inputs with the elements of one row each, the result is their outer product */
};

/* A reduction (x, dim, keepdim, …) whose result has x's dtype, as part of a tile program: the kind of its accumulator, in float64 if that
** differs, and what is made of it; n: elements of a row. */
typedef struct sc_fold { uint8_t kind, kind64; double (*finish)(double v, double n); } sc_fold;


typedef sc_status (*sc_op_fn)(sc_call *call);

/* Of a call, in nanoseconds on one thread: all of it, and the part of that which its kernel divides among the threads. ns 0: nobody knows. */
typedef struct sc_cost { double ns, spread; } sc_cost;

typedef struct sc_op {
  const char *signature;
  const char *help;                          /* first line: what it computes; then shapes, errors, `Example: …`, `Source: …` */
  uint32_t flags;
  sc_op_fn infer, run, compose;
  const char *grad[SC_MAX_INPUTS];           /* per tensor input: a formula (see autodiff/formula.c), or NULL */
  sc_status (*backward)(sc_grad_call *g);    /* instead of formulas */
  const char *no_grad;                       /* why there is no gradient */
  const struct sc_pw *pw;                    /* pointwise: its kernels; infer, run are the family's */
  const sc_fold *fold;                       /* reductions that tile programs can do */
  sc_status (*run_outer)(sc_call *call, sc_tensor *g, sc_tensor *x);   /* run for an in[1] without memory that is g's outer product with x, both packed */
  uint32_t saves;                            /* with backward: which inputs it reads, a bit each; 0: all (see the SAVE flags) */
  uint32_t saves_out;                        /* the same for outputs */
  void (*cost)(const sc_call *call, sc_cost *out);   /* of a call with its operands and results; a row that has it may run beside others (cost.c) */
  uint32_t over;                             /* inputs, a bit each, that the first result may be written over when both are packed and of the same dtype and
                                                size: run reads an element of them no later than it writes that one. Pointwise rows need not say so */
  uint32_t writes;                           /* inputs besides an in-place op's first that run changes (running statistics …), a bit each */
} sc_op;

/* A row as prepared for a context: the signature parsed, the formulas compiled on first use. */
struct sc_opinfo {
  const sc_op *def;
  char name[48];
  uint32_t flags;
  bool inplace;                              /* this is the name_ form */
  int n_params, n_in, n_attr;
  bool variadic;                             /* the last tensor parameter is a list */
  sc_param param[SC_MAX_PARAMS];
  int attr_param[SC_MAX_ATTRS], in_param[SC_MAX_INPUTS];
  char out_name[SC_MAX_OUTPUTS][16];
  int n_named_out;
  struct sc_formula *formula[SC_MAX_INPUTS]; /* owned by autodiff */
  uint32_t reads_in[SC_MAX_INPUTS], reads_out[SC_MAX_INPUTS];  /* which inputs and outputs the gradient of each input reads */
  bool prepared;
  sc_opinfo *next;                           /* of the same hash */
};

/* A second name of an op (aliases.h). */
typedef struct sc_opalias {
  char name[48];
  const sc_opinfo *op;
  struct sc_opalias *next;                   /* of the same hash */
} sc_opalias;

typedef struct sc_optable {
  sc_opinfo *info;
  int n;
  sc_opalias *alias;
  int n_alias;
  sc_opalias *alias_hash[256];
  sc_opinfo *hash[1024];
} sc_optable;

struct sc_call {
  sc_context *ctx;
  const sc_opinfo *op;
  sc_tensor **in;
  int n_in;
  const sc_attr *attr;
  sc_tensor *out[SC_MAX_OUTPUTS];
  int n_out;
  sc_meta *meta;                             /* [SC_MAX_OUTPUTS], filled by infer */
  uint8_t base;                              /* of index values: 1 from Lua, 0 from C */
  bool inplace;
  sc_tensor *old;                            /* in-place: a copy of in[0] as it was, when its gradient will read that; owned */
  int64_t note[4];                           /* infer's findings for run */
  const char *said;                          /* the name in messages, where the op's own is not the one to say; or NULL */
  struct sc_node *node, *base_node;          /* in-place: the tape's nodes, waiting for the write */
};

/* What a row's `backward` gets. dx: new, or NULL for none. */
struct sc_grad_call {
  sc_context *ctx;
  const sc_opinfo *op;
  sc_tensor **in, **out, **dy;               /* in/out: NULL where not saved; dy: NULL where no gradient arrived */
  int n_in, n_out;
  const sc_attr *attr;
  uint8_t base;
  const bool *wanted;                        /* per input */
  sc_tensor **dx;
  const int64_t *const *in_shape, *const *out_shape;   /* read them with sc__grad_shape */
};
/* Sizes of an input (saved or not): *ndim and a pointer to them. */
static inline const int64_t *sc__grad_shape(const sc_grad_call *g, int input, int *ndim) {
  const int64_t *s = g->in_shape[input] ? g->in_shape[input] : g->out_shape[0] + 1;   /* NULL: the first result's */
  *ndim = (int)s[0];
  return s + 1;
}
/* Emits an op from a backward, with the node's base of index values. One new result. */
sc_status sc__grad_op(sc_grad_call *g, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr, sc_tensor **out);
/* Saved tensors a C backward reads: a row with `backward` saves all inputs and outputs unless these flags say less. */
enum { SC_OP_SAVE_NO_IN = 1 << 16, SC_OP_SAVE_NO_OUT = 1 << 17 };

/* ---- calling ---- */
/* The only door: runs the op now (and remembers it on the tape where a gradient will be wanted), or, when an input is symbolic,
** appends it to the graph. in: borrowed. attr: one per attribute parameter, borrowed. out: new, *n_out of them.
** Nothing has changed when it fails. */
sc_status sc__emit(sc_context *ctx, const sc_opinfo *op, sc_tensor **in, int n_in, const sc_attr *attr, uint8_t base, sc_tensor **out,
                   int *n_out);
const sc_opinfo *sc__op_find(sc_context *ctx, const char *name);
/* One result, attributes in the signature's order; those past n_attr take their defaults. For rows written over other ops. */
sc_status sc__op(sc_context *ctx, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr, sc_tensor **out);
void sc__attr_defaults(const sc_opinfo *op, sc_attr *attr);
/* The same in short. All return new tensors through out. */
sc_status sc__op1(sc_context *ctx, const char *name, sc_tensor *a, sc_tensor **out);
sc_status sc__op2(sc_context *ctx, const char *name, sc_tensor *a, sc_tensor *b, sc_tensor **out);
static inline sc_attr sc__int(int64_t i) { return (sc_attr){.kind = SC_ATTR_INT, .i = i}; }
static inline sc_attr sc__float(double f) { return (sc_attr){.kind = SC_ATTR_FLOAT, .f = f}; }
static inline sc_attr sc__bool(bool b) { return (sc_attr){.kind = SC_ATTR_BOOL, .i = b}; }
static inline sc_attr sc__str(const char *s) { return (sc_attr){.kind = SC_ATTR_STRING, .s = s}; }
static inline sc_attr sc__dtype(sc_dtype d) { return (sc_attr){.kind = SC_ATTR_DTYPE, .i = d}; }
static inline sc_attr sc__ints(const int64_t *v, int n) { return (sc_attr){.kind = SC_ATTR_INTS, .n = n, .v = v}; }
static inline sc_attr sc__none(void) { return (sc_attr){.kind = SC_ATTR_NONE}; }

/* ---- helpers of rows ---- */
/* "op: argument N (name): …" about the tensor input or the attribute in that slot. */
const sc_opinfo *sc__speaker(const sc_call *c);           /* borrowed: the op that messages about c name */
sc_status sc__bad_input(sc_call *c, int slot, const char *format, ...) SC_FORMAT(3, 4);
sc_status sc__bad_attr(sc_call *c, int slot, const char *format, ...) SC_FORMAT(3, 4);
/* "op: …" */
sc_status sc__bad_call(sc_call *c, const char *format, ...) SC_FORMAT(2, 3);
/* Operand `slot`, unless it is absent, has this shape. For rows that only gradients call: a graph read from a file calls them too. */
sc_status sc__want(sc_call *c, int slot, int ndim, const int64_t *dim);
/* attr[slot], a dim, as 0 … ndim-1 (a 0-d tensor counts as 1-d). */
sc_status sc__dim(sc_call *c, int slot, int ndim, int *out);
/* attr[slot], dims, as a mask; none or an empty list: all. Twice the same is an error. */
sc_status sc__dims(sc_call *c, int slot, int ndim, bool *mask);
/* The position an index value names, counted from 0; what lies outside int64 wraps to a number that no range holds. */
static inline int64_t sc__position(int64_t value, uint8_t base) { return (int64_t)((uint64_t)value - base); }
static inline bool sc__has(const sc_call *c, int slot) { return c->attr[slot].kind != SC_ATTR_NONE; }
static inline double sc__number(const sc_attr *a) { return a->kind == SC_ATTR_FLOAT ? a->f : (double)a->i; }
static inline sc_dtype sc__dtype_or(const sc_attr *a, sc_dtype d) { return a->kind == SC_ATTR_NONE ? d : (sc_dtype)a->i; }
void sc__meta_like(sc_meta *m, const sc_tensor *t);                            /* shape and dtype */
void sc__meta_set(sc_meta *m, sc_dtype dtype, int ndim, const int64_t *dim);   /* contiguous */
/* Result dtype of a pointwise op over tensors: tensors with dims, then 0-d ones, then the script's numbers, by category. */
sc_dtype sc__result_dtype(sc_tensor **in, int n);
/* Broadcast of all inputs from `from` on into meta[0]; dtype untouched. */
sc_status sc__broadcast_inputs(sc_call *c, int from);

/* Whether two tensors, symbolic ones too, may have an element in common. */
bool sc__tensors_meet(const sc_tensor *a, const sc_tensor *b);

/* ---- what calls cost (cost.c) ---- */
void sc__cost_product(const sc_call *c, sc_cost *out);
void sc__cost_linear(const sc_call *c, sc_cost *out);
void sc__cost_dweight(const sc_call *c, sc_cost *out);
void sc__cost_convolution(const sc_call *c, sc_cost *out);
void sc__cost_convolution_input(const sc_call *c, sc_cost *out);
void sc__cost_convolution_weight(const sc_call *c, sc_cost *out);
void sc__cost_recurrent(const sc_call *c, sc_cost *out);
void sc__cost_recurrent_backward(const sc_call *c, sc_cost *out);
void sc__cost_attention(const sc_call *c, sc_cost *out);
void sc__cost_results(const sc_call *c, sc_cost *out);
void sc__cost_bytes(const sc_call *c, sc_cost *out);

/* ---- the pointwise family (pointwise.c), also used to fuse ---- */
sc_status sc__pw_infer(sc_call *c);
sc_status sc__pw_run(sc_call *c);
/* What computing in `dtype` means for kernels. */
sc_ctype sc__ctype(sc_dtype dtype);
/* Result dtype of pw over operands of these dtypes already promoted to `common`; false: the op does not exist for it. */
bool sc__pw_result(const struct sc_pw *pw, sc_dtype common, sc_dtype *compute, sc_dtype *result);
/* The type pw's kernel computes in for that dtype. */
sc_ctype sc__pw_ctype(const struct sc_pw *pw, sc_dtype compute);

/* ---- service ---- */
sc_status sc__ops_attach(sc_context *ctx);
void sc__ops_detach(sc_context *ctx, void (*free_formula)(sc_context *, struct sc_formula *));
sc_status sc__signature_parse(const char *text, sc_opinfo *out);   /* SC_EINVAL: our own mistake */
/* Copies attributes with their lists and strings into one block. new: pass *bytes to sc__release. NULL with n > 0: refused. */
sc_attr *sc__attrs_copy(sc_context *ctx, const sc_attr *attr, int n, size_t *bytes);

#endif
