/* The pointwise family: one infer and one run for every row of kernels/pointwise_table.h, and the few rows whose options choose
** another row (`compose` looks first and declines where the row itself is meant). */
#include "fuse.h"

#include <math.h>
#include <string.h>

sc_ctype sc__ctype(sc_dtype d) {
  switch (d) {
    case SC_FLOAT64: return SC_C_F64;
    case SC_FLOAT32: case SC_FLOAT16: case SC_BFLOAT16: return SC_C_F32;
    case SC_UINT64: return SC_C_U64;
    default: return SC_C_I64;
  }
}

sc_ctype sc__pw_ctype(const sc_pw *pw, sc_dtype compute) {
  if (compute == SC_BOOL && sc__pw_kernel(SC_ISA_BASE, pw->id, SC_C_BOOL)) return SC_C_BOOL;
  return sc__ctype(compute);
}

bool sc__pw_result(const sc_pw *pw, sc_dtype common, sc_dtype *compute, sc_dtype *result) {
  if (pw->rule == SC_PW_FLOAT && pw->flags & SC_PW_NO_BOOL && common == SC_BOOL) return false;
  if (pw->rule == SC_PW_FLOAT && !sc__is_float(common)) common = SC_FLOAT32;
  if (common == SC_BOOL) {
    if (pw->flags & (SC_PW_NO_BOOL | SC_PW_NO_BOOLS)) return false;
    if (pw->flags & SC_PW_BOOL_INT) common = SC_INT64;
  }
  *compute = common;
  *result = pw->rule == SC_PW_BOOL ? SC_BOOL : pw->rule == SC_PW_EXPONENT ? SC_INT32 : common;
  return sc__pw_kernel(SC_ISA_BASE, pw->id, sc__pw_ctype(pw, common)) != NULL;
}

/* ---- comparing with a number of the script ----
** A number takes part in promotion by its category only, so it could be beyond what the other operand's dtype holds. Where that
** matters the comparison is done in a type that holds both, or with an infinity in place of a number beyond all of the other's. */

static bool is_number(const sc_tensor *t) { return t->flags & SC_T_WRAPPED && t->storage; }

static bool fits_f32(double v) { return v != v || (double)(float)v == v; }

/* The dtype to compare in; *stand_in: what the number becomes. */
static sc_dtype exact_compare(sc_dtype tensor, sc_dtype common, sc_scalar n, double *stand_in) {
  *stand_in = n.f;
  if (sc__is_float(tensor)) {                        /* whole numbers are meant exactly; fractions as the tensor's dtype has them */
    if (n.is_int && tensor != SC_FLOAT64 && !fits_f32(n.f)) return SC_FLOAT64;
    if (tensor == SC_FLOAT16 || tensor == SC_BFLOAT16) {
      float f = tensor == SC_FLOAT16 ? sc__half_to_float(sc__float_to_half((float)n.f)) : sc__bf16_to_float(sc__float_to_bf16((float)n.f));
      if (!n.is_int && isfinite(f)) *stand_in = f;
    }
    return common;
  }
  if (tensor == SC_BOOL) return common;
  double low = tensor == SC_UINT64 ? 0 : -9223372036854775808.0, high = tensor == SC_UINT64 ? 18446744073709551616.0 : 9223372036854775808.0;
  if (n.is_int) return tensor == SC_UINT64 && n.i < 0 ? SC_FLOAT64 : common;
  if (n.f >= high) *stand_in = INFINITY;
  else if (n.f < low) *stand_in = -INFINITY;
  else if (n.f == trunc(n.f)) return tensor == SC_UINT64 ? SC_UINT64 : SC_INT64;
  return SC_FLOAT64;
}

static int number_slot(const sc_call *c) {
  if (is_number(c->in[1]) && !(c->in[0]->flags & SC_T_WRAPPED)) return 1;
  return is_number(c->in[0]) && !(c->in[1]->flags & SC_T_WRAPPED) ? 0 : -1;
}

/* ---- infer ---- */

static sc_status check_flags(sc_call *c, const sc_pw *pw, sc_dtype result) {
  if (pw->flags & SC_PW_NO_BOOLS)
    for (int i = 0; i < pw->arity; i++)
      if (c->in[i]->dtype == SC_BOOL) return sc__bad_input(c, i, "not defined for bool; logical_xor and logical_not are");
  if (pw->flags & SC_PW_ALPHA) {
    sc_category have = c->attr[0].kind == SC_ATTR_FLOAT ? SC_CAT_FLOAT : c->attr[0].kind == SC_ATTR_BOOL ? SC_CAT_BOOL : SC_CAT_INT;
    bool one = c->attr[0].kind == SC_ATTR_INT && c->attr[0].i == 1;
    if (have > sc__category(result) && !one && !(have == SC_CAT_INT && result == SC_BOOL))
      return sc__bad_attr(c, 0, "expected an integer for a result of %s, got %.14g", sc_dtype_name(result), sc__number(&c->attr[0]));
  }
  return SC_OK;
}

sc_status sc__pw_infer(sc_call *c) {
  const sc_pw *pw = c->op->def->pw;
  int from = pw->flags & SC_PW_COND ? 1 : 0;
  SC_TRY(sc__broadcast_inputs(c, 0));
  sc_dtype common = sc__result_dtype(c->in + from, pw->arity - from), compute, result;
  if (from && c->in[0]->dtype != SC_BOOL && c->in[0]->dtype != SC_UINT8)
    return sc__bad_input(c, 0, "expected bool, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype));
  if (!sc__pw_result(pw, common, &compute, &result)) return sc__bad_call(c, "not defined for %s", sc_dtype_name(common));
  if (pw->flags & (SC_PW_NO_BOOLS | SC_PW_ALPHA)) SC_TRY(check_flags(c, pw, result));
  if (pw->flags & SC_PW_COMPARE && number_slot(c) >= 0) {
    int k = number_slot(c);
    double ignored;
    compute = exact_compare((sc_dtype)c->in[1 - k]->dtype, compute, sc__load((sc_dtype)c->in[k]->dtype, c->in[k]->data), &ignored);
  }
  c->meta[0].dtype = result;
  c->note[0] = compute;
  return SC_OK;
}

/* ---- run ---- */

static bool holds_zero(sc_dtype dtype, const char *at, int64_t n, int64_t step) {
  int64_t z = (int64_t)sc_dtype_size(dtype) * step;
  for (int64_t i = 0; i < n; i++) if (sc__load(dtype, at + i * z).i == 0) return true;
  return false;
}

static sc_status refuse_zero(sc_call *c) {
  sc_tensor *t = c->in[1], *packed = NULL;
  if (c->out[0]->numel == 0) return SC_OK;
  SC_TRY(sc__tensor_packed(t, &packed));
  bool zero = holds_zero((sc_dtype)t->dtype, packed->data, packed->numel, 1);
  sc_tensor_release(packed);
  return zero ? sc__bad_input(c, 1, "integer division by zero") : SC_OK;
}

/* A number that stands in for another. */
static void make_number(sc_tensor *t, double *at) {
  memset(t, 0, sizeof *t);
  t->dtype = SC_FLOAT64;
  t->contiguous = true;
  t->numel = 1;
  t->flags = SC_T_WRAPPED;
  t->data = (char *)at;
}

int sc__cheap_power(double exponent) {
  if (exponent == 3 || exponent == -2) return exponent == 3 ? SC_PW_cube : SC_PW_inverse_square;
  return exponent == 2 ? SC_PW_square : exponent == 0.5 ? SC_PW_sqrt : exponent == -1 ? SC_PW_reciprocal : exponent == -0.5 ? SC_PW_rsqrt : SC_PW_pow;
}

static int cheap_power(const sc_call *c, sc_ctype type) {
  if (!is_number(c->in[1]) || (type != SC_C_F32 && type != SC_C_F64)) return SC_PW_pow;
  return sc__cheap_power(sc__load((sc_dtype)c->in[1]->dtype, c->in[1]->data).f);
}

/* ---- integers of up to 32 bits, packed: no widening ---- */

typedef struct narrow { sc_pw_fn fn; char *out; const char *in[3]; int64_t step[3], out_size, size[3]; const sc_scalar *p; } narrow;

static void narrow_range(void *arg, int64_t begin, int64_t end) {
  const narrow *j = arg;
  const char *at[3];
  for (int i = 0; i < 3; i++) at[i] = j->in[i] ? j->in[i] + begin * j->step[i] * j->size[i] : NULL;
  j->fn(end - begin, j->out + begin * j->out_size, at[0], j->step[0], at[1], j->step[1], at[2], j->step[2], j->p);
}

/* Whether the dtype holds that value: then computing in it gives the low bits of what 64 bits give. */
static bool holds(sc_dtype d, sc_scalar v) {
  int64_t low = d == SC_INT8 ? INT8_MIN : d == SC_INT16 ? INT16_MIN : d == SC_INT32 ? INT32_MIN : 0;
  int64_t high = d == SC_INT8 ? INT8_MAX : d == SC_UINT8 ? UINT8_MAX : d == SC_INT16 ? INT16_MAX : INT32_MAX;
  return v.i >= low && v.i <= high;
}

/* Runs the op so when it can: false otherwise. */
static bool run_narrow(const sc_call *c, const sc_pw *pw, sc_tensor *const *in, const sc_scalar *p) {
  sc_dtype d = (sc_dtype)c->note[0];
  sc_tensor *out = c->out[0];
  narrow j = {.fn = sc__pw_packed_kernel(c->ctx->isa, pw->id, d), .out = out->data, .out_size = (int64_t)sc_dtype_size((sc_dtype)out->dtype), .p = p};
  uint8_t single[3][8];
  if (!j.fn || !out->contiguous || out->dtype != (pw->rule == SC_PW_BOOL ? SC_BOOL : d)) return false;
  for (int i = 0; i < c->op->n_attr && i < SC_PROGRAM_PARAMS; i++) if (!holds(d, p[i])) return false;
  for (int i = 0; i < pw->arity; i++) {
    const sc_tensor *t = in[i];
    sc_dtype want = i == 0 && pw->flags & SC_PW_COND ? SC_BOOL : d;
    j.in[i] = t->data;
    j.size[i] = (int64_t)sc_dtype_size(want);
    if (t->numel == out->numel && t->contiguous && (sc_dtype)t->dtype == want) { j.step[i] = 1; continue; }
    if (t->numel != 1) return false;
    sc_scalar v = sc__load((sc_dtype)t->dtype, t->data);
    if ((sc_dtype)t->dtype != want) {
      if (want == SC_BOOL || !v.is_int || !holds(d, v)) return false;
      sc__store(d, single[i], v);
      j.in[i] = (const char *)single[i];
    }
  }
  sc__parallel(c->ctx, out->numel, 4096, pw->cost * 0.5, narrow_range, &j);
  return true;
}

sc_status sc__pw_run(sc_call *c) {
  const sc_pw *pw = c->op->def->pw;
  sc_ctype type = sc__pw_ctype(pw, (sc_dtype)c->note[0]);
  if (pw->flags & SC_PW_NO_ZERO && type != SC_C_F32 && type != SC_C_F64) SC_TRY(refuse_zero(c));
  if (pw->id == SC_PW_pow) pw = &sc__pw[cheap_power(c, type)];
  sc_tensor *in[3] = {c->in[0], pw->arity > 1 ? c->in[1] : NULL, pw->arity > 2 ? c->in[2] : NULL}, number;
  double stand_in;
  if (pw->flags & SC_PW_COMPARE && number_slot(c) >= 0 && c->note[0] != SC_BOOL) {
    int k = number_slot(c);
    sc_scalar n = sc__load((sc_dtype)c->in[k]->dtype, c->in[k]->data);
    exact_compare((sc_dtype)c->in[1 - k]->dtype, (sc_dtype)c->note[0], n, &stand_in);
    if (stand_in != n.f) { make_number(&number, &stand_in); in[k] = &number; }
  }
  sc_program p;
  p.n_in = pw->arity;
  p.n_instr = 1;
  p.cost = pw->cost;
  sc_instr *q = &p.instr[0];
  q->kind = SC_I_POINT;
  q->row = false;
  q->link = SC_LINK_NONE;
  q->fn = sc__pw_kernel(c->ctx->isa, pw->id, type);
  q->type = pw->rule == SC_PW_BOOL ? SC_C_BOOL : (uint8_t)type;
  q->arity = pw->arity;
  for (int i = 0; i < pw->arity; i++) {
    p.in_type[i] = (uint8_t)type;
    q->src[i] = (uint8_t)i;
  }
  if (pw->flags & SC_PW_COND) p.in_type[0] = SC_C_BOOL;
  for (int i = 0; i < c->op->n_attr && i < SC_PROGRAM_PARAMS; i++) {
    q->p[i] = sc__attr_scalar(&c->attr[i]);
  }
  if (type == SC_C_I64 && c->note[0] != SC_INT64 && run_narrow(c, pw, in, q->p)) return SC_OK;
  sc__program_run(c->ctx, &p, c->out[0], in);
  return SC_OK;
}

/* ---- rows whose options choose another row ---- */

/* The op of that name over c's inputs, in place when c is: `name` must then exist as name_ too. */
static sc_status become(sc_call *c, const char *name, sc_tensor **in, int n_in, const sc_attr *attr, int n_attr) {
  char full[64];
  size_t n = strlen(name);
  memcpy(full, name, n + 1);
  if (c->op->inplace) memcpy(full + n, "_", 2);
  SC_TRY(sc__op(c->ctx, full, in, n_in, attr, n_attr, &c->out[0]));
  c->n_out = 1;
  return SC_OK;
}

static sc_status sc__div_compose(sc_call *c) {
  const sc_attr *mode = &c->attr[0];
  if (mode->kind != SC_ATTR_STRING) return SC_OK;
  if (strcmp(mode->s, "floor") == 0) return become(c, "floor_divide", c->in, 2, NULL, 0);
  if (strcmp(mode->s, "trunc") == 0) return become(c, "trunc_divide", c->in, 2, NULL, 0);
  return sc__bad_attr(c, 0, "expected \"floor\" or \"trunc\", got \"%.40s\"", mode->s);
}

static sc_status sc__pow_compose(sc_call *c) {
  sc_tensor *e = c->in[1];
  if (!is_number(e) || e->dtype != SC_INT64 || sc__is_float((sc_dtype)c->in[0]->dtype)) return SC_OK;
  int64_t n = *(const int64_t *)e->data;
  return n < 0 ? sc__bad_input(c, 1, "an integer to the power of %lld is not an integer; convert it to a float first", (long long)n) : SC_OK;
}

static sc_status sc__round_compose(sc_call *c) {
  if (c->attr[0].i == 0) return SC_OK;
  if (!sc__is_float((sc_dtype)c->in[0]->dtype))
    return sc__bad_input(c, 0, "decimals need a floating dtype, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype));
  return become(c, "round_decimals", c->in, 1, c->attr, 1);
}

/* Absent bounds of the infinities' stand-ins: the ends of x's dtype. */
static sc_status sc__nan_to_num_compose(sc_call *c) {
  if (sc__has(c, 1) && sc__has(c, 2)) return SC_OK;
  sc_dtype d = (sc_dtype)c->in[0]->dtype;
  double top = d == SC_FLOAT64 ? 1.7976931348623157e308 : d == SC_FLOAT16 ? 65504 : d == SC_BFLOAT16 ? 3.3895313892515355e38 : 3.4028234663852886e38;
  sc_attr all[3] = {c->attr[0], sc__has(c, 1) ? c->attr[1] : sc__float(top), sc__has(c, 2) ? c->attr[2] : sc__float(-top)};
  return become(c, "nan_to_num", c->in, 1, all, 3);
}

static sc_status sc__clamp_compose(sc_call *c) {
  sc_tensor *x = c->in[0], *low = c->in[1], *high = c->in[2];
  if (low && high) return SC_OK;
  if (!low && !high) return sc__bad_call(c, "at least one of min and max is needed");
  return become(c, low ? "clamp_min" : "clamp_max", (sc_tensor *[]){x, low ? low : high}, 2, NULL, 0);
}

static sc_status sc__lerp_compose(sc_call *c) {
  if (sc__is_float((sc_dtype)c->in[0]->dtype)) return SC_OK;
  return sc__bad_input(c, 0, "not defined for %s", sc_dtype_name((sc_dtype)c->in[0]->dtype));
}

static sc_status sc__isclose_compose(sc_call *c) {
  for (int i = 0; i < 2; i++)
    if (!(sc__number(&c->attr[i]) >= 0)) return sc__bad_attr(c, i, "expected a number of at least 0, got %.14g", sc__number(&c->attr[i]));
  if (c->in[0]->dtype != c->in[1]->dtype && !((c->in[0]->flags | c->in[1]->flags) & SC_T_WRAPPED))
    return sc__bad_input(c, 1, "expected %s as x, got %s", sc_dtype_name((sc_dtype)c->in[0]->dtype), sc_dtype_name((sc_dtype)c->in[1]->dtype));
  return SC_OK;
}

static sc_status sc__gelu_compose(sc_call *c) {
  const char *how = c->attr[0].s;
  if (strcmp(how, "none") == 0) return SC_OK;
  if (strcmp(how, "tanh") != 0) return sc__bad_attr(c, 0, "expected \"none\" or \"tanh\", got \"%.40s\"", how);
  return become(c, "gelu_tanh", c->in, 1, NULL, 0);
}

static sc_status sc__celu_compose(sc_call *c) {
  return sc__number(&c->attr[0]) == 0 ? sc__bad_attr(c, 0, "expected a number other than 0") : SC_OK;
}

static sc_status sc__softshrink_compose(sc_call *c) {
  double l = sc__number(&c->attr[0]);
  return l >= 0 ? SC_OK : sc__bad_attr(c, 0, "expected a number of at least 0, got %.14g", l);
}

static sc_status sc__logit_compose(sc_call *c) {
  if (!sc__has(c, 0)) return SC_OK;
  double eps = c->attr[0].f;
  sc_tensor *ends[2] = {NULL, NULL}, *inside = NULL;
  sc_status s = sc__tensor_scalar(c->ctx, false, 0, eps, &ends[0]);
  if (s == SC_OK) s = sc__tensor_scalar(c->ctx, false, 0, 1 - eps, &ends[1]);
  if (s == SC_OK) s = sc__op(c->ctx, c->op->inplace ? "clamp_" : "clamp", (sc_tensor *[]){c->in[0], ends[0], ends[1]}, 3, NULL, 0, &inside);
  if (s == SC_OK) s = become(c, "logit", &inside, 1, NULL, 0);
  sc_tensor_release(ends[0]);
  sc_tensor_release(ends[1]);
  sc_tensor_release(inside);
  return s;
}

static sc_status sc__polygamma_compose(sc_call *c) {
  return c->attr[0].i < 0 ? sc__bad_attr(c, 0, "expected a number of at least 0, got %lld", (long long)c->attr[0].i) : SC_OK;
}

/* dy * polygamma(n + 1, x) */
static sc_status sc__polygamma_backward(sc_grad_call *g) {
  sc_attr n = sc__int(g->attr[0].i + 1);
  sc_tensor *slope;
  SC_TRY(sc__op(g->ctx, "polygamma", g->in, 1, &n, 1, &slope));
  sc_status s = sc__op2(g->ctx, "mul", g->dy[0], slope, &g->dx[0]);
  sc_tensor_release(slope);
  return s;
}

#define GRAD(...) .grad = {__VA_ARGS__}
#define NOGRAD(why) .no_grad = why
#define SC_PW_ROW(name, arity, rule, flags_, types, isa, cost, fe, ie, signature_, opflags, help_, ...) \
  {.signature = signature_, .help = help_, .flags = opflags, .infer = sc__pw_infer, .run = sc__pw_run, .pw = &sc__pw[SC_PW_##name], __VA_ARGS__},
const sc_op sc__ops_pointwise[] = {
#include "../kernels/pointwise_table.h"
};
const int sc__ops_pointwise_count = SC_COUNT(sc__ops_pointwise);
#undef SC_PW_ROW
#undef GRAD
#undef NOGRAD
