/* The pointwise family: one infer and one run for every row of kernels/pointwise_table.h. */
#include "ops.h"

sc_ctype sc__ctype(sc_dtype d) {
  switch (d) {
    case SC_FLOAT64: return SC_C_F64;
    case SC_FLOAT32: case SC_FLOAT16: case SC_BFLOAT16: return SC_C_F32;
    case SC_UINT64: return SC_C_U64;
    default: return SC_C_I64;
  }
}

bool sc__pw_result(const sc_pw *pw, sc_dtype common, sc_dtype *compute, sc_dtype *result) {
  if (pw->rule == SC_PW_FLOAT && !sc__is_float(common)) common = SC_FLOAT32;
  *compute = common;
  *result = pw->rule == SC_PW_BOOL ? SC_BOOL : common;
  return sc__pw_kernel(SC_ISA_BASE, pw->id, sc__ctype(common)) != NULL;
}

sc_status sc__pw_infer(sc_call *c) {
  const sc_pw *pw = c->op->def->pw;
  int from = pw->flags & SC_PW_COND ? 1 : 0;
  SC_TRY(sc__broadcast_inputs(c, 0));
  sc_dtype common = sc__result_dtype(c->in + from, pw->arity - from), compute, result;
  if (from && sc__category((sc_dtype)c->in[0]->dtype) != SC_CAT_BOOL && c->in[0]->dtype != SC_UINT8)
    return sc__bad_input(c, 0, "expected bool, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype));
  if (!sc__pw_result(pw, common, &compute, &result)) return sc__bad_call(c, "not defined for %s", sc_dtype_name(common));
  c->meta[0].dtype = result;
  c->note[0] = compute;
  return SC_OK;
}

sc_status sc__pw_run(sc_call *c) {
  const sc_pw *pw = c->op->def->pw;
  sc_ctype type = sc__ctype((sc_dtype)c->note[0]);
  sc_program p;
  p.n_in = pw->arity;
  p.n_instr = 1;
  p.cost = pw->cost;
  sc_instr *q = &p.instr[0];
  q->fn = sc__pw_kernel(c->ctx->isa, pw->id, type);
  q->type = pw->rule == SC_PW_BOOL ? SC_C_BOOL : (uint8_t)type;
  q->arity = pw->arity;
  for (int i = 0; i < pw->arity; i++) {
    p.in_type[i] = (uint8_t)type;
    q->src[i] = (uint8_t)i;
  }
  if (pw->flags & SC_PW_COND) p.in_type[0] = SC_C_BOOL;
  for (int i = 0; i < c->op->n_attr && i < SC_PROGRAM_PARAMS; i++) {
    const sc_attr *a = &c->attr[i];
    q->p[i] = a->kind == SC_ATTR_FLOAT ? (sc_scalar){false, false, sc__f64_to_i64(a->f), a->f} : sc__scalar_int(a->i);
  }
  sc__program_run(c->ctx, &p, c->out[0], c->in);
  return SC_OK;
}

#define GRAD(...) .grad = {__VA_ARGS__}
#define NOGRAD(why) .no_grad = why
#define SC_PW_ROW(name, arity, rule, flags_, types, isa, cost, fe, ie, signature_, opflags, help_, ...) \
  {.signature = signature_, .help = help_, .flags = opflags, .infer = sc__pw_infer, .run = sc__pw_run, .pw = &sc__pw[SC_PW_##name], __VA_ARGS__},
const sc_op sc__ops_pointwise[] = {
#include "../kernels/pointwise_table.h"
};
const int sc__ops_pointwise_count = SC_COUNT(sc__ops_pointwise);
