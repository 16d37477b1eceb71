/* Tile programs: a chain of pointwise ops, and of reductions over the last dims, run over tiles that stay in the L1 cache. Included by
** kernels.h; see program.c. */
#ifndef SC_PROGRAM_H
#define SC_PROGRAM_H

enum { SC_PROGRAM_INSTRS = 48, SC_PROGRAM_INPUTS = 16, SC_PROGRAM_OUTPUTS = 12, SC_PROGRAM_PARAMS = 4 };

typedef enum sc_instr_kind {
  SC_I_POINT,      /* fn over the operands; without fn, src[0] converted to `type` */
  SC_I_ROUND,      /* src[0] converted to dtype `through` and then to `type` */
  SC_I_FOLD        /* the reduction `fold` of each row of src[0], finished and stored as dtype `through`: one value a row */
} sc_instr_kind;

/* Arithmetic in float32 that can be a link of a chain (chain_stamp.h): acc op operand, operand op acc, op acc. */
enum { SC_LINK_NONE, SC_LINK_ADD, SC_LINK_SUB, SC_LINK_RSUB, SC_LINK_MUL, SC_LINK_DIV, SC_LINK_RDIV, SC_LINK_NEG, SC_LINK_RELU, SC_LINK_SQUARE };
enum { SC_LINKS = 24 };
typedef struct sc_link { const float *p; int op; } sc_link;      /* op: twice the kind, and one when the operand is one value */

typedef struct sc_instr {
  sc_pw_fn fn;
  uint8_t kind;                            /* sc_instr_kind */
  uint8_t type;                            /* of the result: sc_ctype */
  uint8_t arity;
  uint8_t src[3];                          /* operands: 0 … n_in-1 inputs, then instructions' results */
  bool row;                                /* one value a row: all its operands are */
  uint8_t through, fold;
  uint8_t link;                            /* what it is as a link with src[0] as acc; SC_LINK_NONE: none */
  double (*finish)(double v, double arg);
  double arg;
  sc_scalar p[SC_PROGRAM_PARAMS];
} sc_instr;

typedef struct sc_program {
  int n_in, n_instr;
  uint8_t in_type[SC_PROGRAM_INPUTS];      /* the type each input is read as */
  double cost;                             /* nanoseconds an element */
  sc_instr instr[SC_PROGRAM_INSTRS];
} sc_program;

/* out = the last instruction, converted to out's dtype; inputs broadcast to out's shape. out may be one of the inputs. No reductions. */
void sc__program_run(sc_context *ctx, const sc_program *p, sc_tensor *out, sc_tensor *const *in);

/* ---- programs made ready for operands of fixed sizes and strides ---- */

/* The space a program runs over: dims, of which the last `fold` are folded by its reductions (0: it has none), and the strides of
** its inputs there. */
typedef struct sc_domain {
  int nd, fold;
  int64_t dim[SC_MAX_DIMS];
  int64_t is[SC_PROGRAM_INPUTS][SC_MAX_DIMS];
} sc_domain;

typedef struct sc_tiles sc_tiles;
/* new: p over that space. in, out: their memory may change between runs, nothing else of them may. out[i] is packed and takes what instruction
** result[i] gives. *t NULL: not possible within the limits of a tile. p is copied. May fail. */
sc_status sc__tiles_new(sc_context *ctx, const sc_program *p, const sc_domain *space, sc_tensor *const *in, int n_out, sc_tensor *const *out,
                        const int *result, sc_tiles **t);
/* Whether `out` may lie in the same memory as `in`, packed both: nothing of `in` is read after that element of out is written. */
bool sc__tiles_over(const sc_tiles *t, const sc_tensor *out, const sc_tensor *in);
double sc__tiles_cost(const sc_tiles *t, bool *divided);   /* about, nanoseconds on one thread; whether threads would share it */
void sc__tiles_run(sc_context *ctx, const sc_tiles *t);
void sc__tiles_free(sc_context *ctx, sc_tiles *t);

#endif
