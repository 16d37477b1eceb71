/* Linear layers and convolutions with an activation: the pointwise op `act` is done to each result while it is in the cache. Passes make
** these of two nodes (graph/rewrites.c); they give the bits of the two ops one after another. float32 and float64. */
#include "neural.h"

enum { LINEAR_ACT = 0, CONV_ACT = 4 };           /* the attribute `act`; its numbers are the next one */

static sc_ctype type_of(const sc_call *c) { return c->in[0]->dtype == SC_FLOAT32 ? SC_C_F32 : SC_C_F64; }

/* Looks act up; what it is is left in the call's notes for run. */
static sc_status find(sc_call *c, int slot) {
  if (c->attr[slot].kind != SC_ATTR_STRING || c->attr[slot + 1].kind != SC_ATTR_FLOATS) return sc__bad_attr(c, slot, "expected the name of an op and its numbers");
  const sc_opinfo *op = sc__op_find(c->ctx, c->attr[slot].s);
  const sc_pw *pw = op ? op->def->pw : NULL;
  int numbers = 0;
  for (int i = 0; op && i < op->n_attr; i++) numbers += op->param[op->attr_param[i]].type != SC_P_STRING;
  sc_dtype d = (sc_dtype)c->in[0]->dtype;
  if (!pw || pw->arity != 1 || (pw->rule != SC_PW_SAME && pw->rule != SC_PW_FLOAT) || (d != SC_FLOAT32 && d != SC_FLOAT64) ||
      !sc__pw_kernel(c->ctx->isa, pw->id, type_of(c)) || c->attr[slot + 1].n != numbers || numbers > SC_PROGRAM_PARAMS)
    return sc__bad_attr(c, slot, "%s of %s cannot be done on the way", c->attr[slot].s, sc_dtype_name(d));
  c->note[0] = pw->id;
  return SC_OK;
}

static sc_epilogue epilogue_of(const sc_call *c, int slot) {
  const sc_pw *pw = &sc__pw[c->note[0]];
  const sc_attr *numbers = &c->attr[slot + 1];
  sc_epilogue e = {.fn = sc__pw_kernel(c->ctx->isa, pw->id, type_of(c)), .cost = pw->cost};
  for (int i = 0; i < numbers->n; i++) e.p[i] = sc__scalar_float(((const double *)numbers->v)[i]);
  return e;
}

static sc_status linear_infer(sc_call *c) {
  SC_TRY(sc__linear_infer(c));
  return find(c, LINEAR_ACT);
}

static sc_status linear_run(sc_call *c) {
  sc_epilogue e = epilogue_of(c, LINEAR_ACT);
  return sc__linear_run(c, &e);
}

static sc_status conv_infer(sc_call *c) {
  SC_TRY(sc__convolution_infer(c));
  return find(c, CONV_ACT);
}

static sc_status conv_run(sc_call *c) {
  sc_epilogue e = epilogue_of(c, CONV_ACT);
  return sc__convolution_run(c, &e);
}

#define NO_GRADIENT "passes make it, after gradients have been recorded"

const sc_op sc__ops_epilogue[] = {
  {"linear_act(x, weight, bias: tensor?, act: str, numbers: float[])", "act(linear(x, weight, bias)); numbers: act's attributes.", SC_OP_INTERNAL | SC_OP_FUNCTION,
   .infer = linear_infer, .run = linear_run, .cost = sc__cost_linear, .no_grad = NO_GRADIENT},
  {"convolution_act(x, weight, bias: tensor?, stride: int[], padding: int[], dilation: int[], groups: int, act: str, numbers: float[])",
   "act(convolution(x, weight, bias, …)); numbers: act's attributes.", SC_OP_INTERNAL | SC_OP_FUNCTION, .infer = conv_infer, .run = conv_run, .cost = sc__cost_convolution,
   .no_grad = NO_GRADIENT},
};
const int sc__ops_epilogue_count = SC_COUNT(sc__ops_epilogue);
