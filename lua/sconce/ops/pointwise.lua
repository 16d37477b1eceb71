--- Element-wise ops over other ops, and those whose method takes its arguments in another order than its function.
local core = require "sconce.core"
local define = require "sconce.define"
local fault = require "sconce.fault"
local sc = require "sconce"

local methods = core.methods

-- The condition comes second in the method.
methods.where = core.composite("where(x, condition, other)", function(x, condition, other) return core.ops.where(condition, x, other) end)

local polygamma = core.ops.polygamma
methods.polygamma = core.composite("polygamma(x, n: int)", function(x, n) return polygamma(n, x) end)

define(sc, "positive(x)", "x itself; not for bools.", function(x)
  if x.dtype == "bool" then fault.raise("positive", "argument 1 (x): not defined for bool") end
  return x
end, true)

define(sc, "frexp(x)", "mantissa, exponent of x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1; the exponent is int32.", function(x)
  return core.ops.frexp_mantissa(x), core.ops.frexp_exponent(x)
end, true)

define(sc, "ldexp(x, other)", "x * 2^other, broadcast.", function(x, other) return x * sc.pow(2.0, other) end, true)
methods.ldexp_ = function(x, other) return x:mul_(sc.pow(2.0, other)) end

define(sc, "float_power(x, exponent)", "x to the power of exponent, computed in float64.", function(x, exponent)
  local function double(v) return sc.is_tensor(v) and v:to("float64") or v end
  return sc.pow(double(x), double(exponent))
end, true)

define(sc, "mvlgamma(x, p: int)", "Logarithm of the multivariate gamma function: p (p - 1) / 4 log pi + the sum over j < p of "
  .. "lgamma(x - j / 2).\n"
  .. "Errors: p < 1.", function(x, p)
  if p < 1 then fault.raise("mvlgamma", "argument 2 (p): expected at least 1, got %d", p) end
  if p > 65536 then fault.raise("mvlgamma", "argument 2 (p): %d terms are too many (at most 65536)", p) end
  local y = sc.lgamma(x)
  for j = 1, p - 1 do y = y + sc.lgamma(x - j / 2) end
  return y + p * (p - 1) / 4 * math.log(math.pi)
end, true)
methods.mvlgamma_ = function(x, p) return x:copy_(x:mvlgamma(p)) end
sc.special.multigammaln = sc.mvlgamma

local F = sc.functional

define(F, "nn.functional.prelu(x, weight)", "x above 0, else weight * x. weight: one number, or one for each channel (dimension 2).",
  function(x, weight)
  if weight:dim() > 1 then fault.raise("prelu", "argument 2 (weight): expected at most 1 dimension, got %d", weight:dim()) end
  if x:dim() == 0 and weight:dim() > 0 then fault.raise("prelu", "argument 1 (x): expected at least 1 dimension") end
  if weight:numel() ~= 1 then
    local channels = x:dim() > 1 and x:size(2) or 1
    if weight:numel() ~= channels then
      fault.raise("prelu", "argument 2 (weight): expected %d numbers, one a channel, got %d", channels, weight:numel())
    end
    local shape = {}
    for d = 1, x:dim() do shape[d] = d == 2 and channels or 1 end
    weight = weight:reshape(shape)
  elseif weight:dim() > 0 then
    weight = weight:reshape({})
  end
  return core.ops.prelu_kernel(x, weight)
end)
methods.prelu = F.prelu
sc.prelu = F.prelu

define(F, "nn.functional.glu(x, dim: dim = -1)", "The first half of x along dim times the sigmoid of the second.", function(x, dim)
  if x:dim() == 0 then fault.raise("glu", "argument 1 (x): expected at least 1 dimension") end
  local n = x:size(dim)
  if n % 2 == 1 then fault.raise("glu", "argument 1 (x): the size %d of dimension %d is odd", n, dim) end
  return x:narrow(dim, 1, n // 2) * x:narrow(dim, n // 2 + 1, n // 2):sigmoid()
end)

define(F, "nn.functional.rrelu(x, lower: float = 0.125, upper: float = 0.33333333333333331, training: bool = false)",
  "x above 0, else x times a slope: drawn from lower … upper for each element when training, else their mean.",
  function(x, lower, upper, training)
    if lower > upper then fault.raise("rrelu", "argument 2 (lower): expected at most upper, %g, got %g", upper, lower) end
    if not training then return sc.leaky_relu(x, (lower + upper) / 2) end
    return core.ops.prelu_kernel(x, sc.rand_like(x) * (upper - lower) + lower)
  end)
sc.rrelu = F.rrelu
