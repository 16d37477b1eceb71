/* Linear layers and convolutions with an activation: the pointwise op `act` is done to each result while it is in the cache. Passes make
** these of two nodes (graph/rewrites.c); they give the bits of the two ops one after another. float32 and float64. */
#include "neural.h"

enum { LINEAR_ACT = 0, CONV_ACT = 4 };           /* the attribute `act`; its numbers are the next one */

/* act as the kernels take it. */
static sc_status epilogue_of(sc_call *c, int slot, sc_epilogue *e) {
  const sc_opinfo *op = sc__op_find(c->ctx, c->attr[slot].s);
  const sc_pw *pw = op ? op->def->pw : NULL;
  const sc_attr *numbers = &c->attr[slot + 1];
  sc_dtype d = (sc_dtype)c->in[0]->dtype;
  if (!pw || pw->arity != 1 || (pw->rule != SC_PW_SAME && pw->rule != SC_PW_FLOAT) || (d != SC_FLOAT32 && d != SC_FLOAT64))
    return sc__bad_attr(c, slot, "%s of %s cannot be done on the way", c->attr[slot].s, sc_dtype_name(d));
  *e = (sc_epilogue){.fn = sc__pw_kernel(c->ctx->isa, pw->id, d == SC_FLOAT32 ? SC_C_F32 : SC_C_F64), .cost = pw->cost};
  if (!e->fn || numbers->n > SC_PROGRAM_PARAMS) return sc__bad_attr(c, slot, "%s cannot be done on the way", c->attr[slot].s);
  for (int i = 0; i < numbers->n; i++) e->p[i] = sc__scalar_float(((const double *)numbers->v)[i]);
  return SC_OK;
}

static sc_status linear_infer(sc_call *c) {
  sc_epilogue e;
  SC_TRY(sc__linear_infer(c));
  return epilogue_of(c, LINEAR_ACT, &e);
}

static sc_status linear_run(sc_call *c) {
  sc_epilogue e;
  SC_TRY(epilogue_of(c, LINEAR_ACT, &e));
  return sc__linear_run(c, &e);
}

static sc_status conv_infer(sc_call *c) {
  sc_epilogue e;
  SC_TRY(sc__convolution_infer(c));
  return epilogue_of(c, CONV_ACT, &e);
}

static sc_status conv_run(sc_call *c) {
  sc_epilogue e;
  SC_TRY(epilogue_of(c, CONV_ACT, &e));
  return sc__convolution_run(c, &e);
}

#define NO_GRADIENT "passes make it, after gradients have been recorded"

const sc_op sc__ops_epilogue[] = {
  {"linear_act(x, weight, bias: tensor?, act: str, numbers: float[])", "act(linear(x, weight, bias)); numbers: act's attributes.", SC_OP_INTERNAL | SC_OP_FUNCTION,
   .infer = linear_infer, .run = linear_run, .no_grad = NO_GRADIENT},
  {"convolution_act(x, weight, bias: tensor?, stride: int[], padding: int[], dilation: int[], groups: int, act: str, numbers: float[])",
   "act(convolution(x, weight, bias, …)); numbers: act's attributes.", SC_OP_INTERNAL | SC_OP_FUNCTION, .infer = conv_infer, .run = conv_run,
   .no_grad = NO_GRADIENT},
};
const int sc__ops_epilogue_count = SC_COUNT(sc__ops_epilogue);
