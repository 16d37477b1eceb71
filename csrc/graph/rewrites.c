/* The table of rewrites. Rules of one op are tried in this order and the first that fits is taken; every rule leaves fewer nodes, or
** cheaper ones, and what it emits is not tried again, so rewriting ends.
**
** A rule is exact, NaN, infinities and the sign of zero included, unless it says SC_RW_ROUNDS; then its comment states a bound. */
#include "rewrite.h"

#include <math.h>

/* ---- guards ---- */

static bool zero_is_positive(sc_match *m) {
  double v;
  return sc__rw_number(m, "z", &v) && v == 0 && !signbit(v);
}
static bool zero_is_negative(sc_match *m) {
  double v;
  return sc__rw_number(m, "z", &v) && v == 0 && signbit(v);
}
static bool of_integers(sc_match *m) {
  double v;
  return sc__rw_number(m, "z", &v) && v == 0 && !sc__is_float((sc_dtype)sc__rw_value(m, "x")->dtype);
}

/* Every number of `from` is one of `to`. */
static bool holds(sc_dtype to, sc_dtype from) {
  if (to == from) return true;
  if (sc__is_float(from)) return to == SC_FLOAT64 || (to == SC_FLOAT32 && from != SC_FLOAT64);
  if (from == SC_BOOL) return true;
  int bits = 8 * (int)sc_dtype_size(from);
  if (sc__is_float(to)) return (to == SC_FLOAT64 && bits <= 32) || (to == SC_FLOAT32 && bits <= 16) || bits <= 8;
  return false;
}
static bool widens(sc_match *m) { return holds((sc_dtype)sc__rw_attr(m, "middle")->i, (sc_dtype)sc__rw_value(m, "x")->dtype); }

#define ALGEBRA(from, to, ...) {.pattern = from, .replacement = to, .pass = SC_PASS_ALGEBRA, __VA_ARGS__}

const sc_rewrite sc__rewrites[] = {
  /* ---- algebra ---- */
  ALGEBRA("mul(x, 1)", "x"),
  ALGEBRA("div(x, 1)", "x"),
  ALGEBRA("add(x, z)", "x", .guard = zero_is_negative),          /* x + 0 turns -0 into 0 */
  ALGEBRA("add(x, z)", "x", .guard = of_integers),
  ALGEBRA("sub(x, z)", "x", .guard = zero_is_positive),          /* x - -0 too */
  ALGEBRA("mul(x, -1)", "neg(x)"),
  ALGEBRA("neg(neg(x))", "x"),
  ALGEBRA("abs(neg(x))", "abs(x)"),
  ALGEBRA("abs(abs(x))", "abs(x)"),
  ALGEBRA("square(neg(x))", "square(x)"),
  ALGEBRA("square(abs(x))", "square(x)"),
  ALGEBRA("relu(relu(x))", "relu(x)"),
  ALGEBRA("mul(x, x)", "square(x)"),
  ALGEBRA("maximum(x, x)", "x"),
  ALGEBRA("minimum(x, x)", "x"),
  ALGEBRA("where(c, x, x)", "x"),
  ALGEBRA("logical_not(logical_not(x))", "x"),
  ALGEBRA("cast(x, dtype)", "x"),
  ALGEBRA("cast(cast(x, middle), dtype)", "cast(x, dtype)", .guard = widens),
  ALGEBRA("clone(x)", "x"),
  ALGEBRA("clone(clone(x))", "clone(x)"),
  ALGEBRA("transpose(transpose(x, first, second), first, second)", "x"),
  ALGEBRA("transpose(transpose(x, first, second), second, first)", "x"),
  ALGEBRA("view(x, size)", "x"),
  ALGEBRA("view(view(x, middle), size)", "x"),
  ALGEBRA("view(view(x, middle), size)", "view(x, size)"),
  ALGEBRA("detach(x)", "x"),
};
const int sc__rewrites_count = SC_COUNT(sc__rewrites);
