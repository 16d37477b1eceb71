--- ONNX nodes, element by element: arithmetic, comparisons, activations.
local sc = require "sconce"
local F = sc.functional

local function is_float(dtype) return dtype:find("float") ~= nil end

--- Before opset 7 the second operand was aligned at `axis` when `broadcast` was set, and at the end without one.
local function aligned(x, a, c)
  local p, q = x[1], x[2]
  if c.opset >= 7 or not a.axis or q:dim() == 0 then return p, q end
  local shape, axis = q.shape, a.axis < 0 and a.axis + p:dim() or a.axis
  while #shape < p:dim() - axis do shape[#shape + 1] = 1 end
  return p, q:reshape(shape)
end

local function unary(fn) return function(x) return fn(x[1]) end end
local function binary(fn) return function(x, a, c) return fn(aligned(x, a, c)) end end

local function divide(p, q)
  if is_float(p.dtype) then return p / q end
  return p:div(q, { rounding_mode = "trunc" })
end

local function power(p, q)
  if not is_float(p.dtype) and is_float(q.dtype) then return p:to("float64"):pow(q:to("float64")):to(p.dtype) end
  if is_float(p.dtype) then q = q:to(p.dtype) elseif q.dtype ~= p.dtype then return p:to("int64"):pow(q:to("int64")):to(p.dtype) end
  return p:pow(q):to(p.dtype)
end

--- In float64 for what the op lacks in integers.
local function fold(fn)
  return function(x)
    local y = x[1]
    for i = 2, x.n do y = fn(y, x[i]) end
    return y
  end
end

local function shift(x, a)
  local p, q = x[1]:to("int64"), x[2]:to("int64")
  local factor = sc.full({}, 2, { dtype = "int64" }):pow(q:clamp(0, 63))
  if a.direction == "LEFT" then return (p * factor):to(x[1].dtype) end
  if x[1].dtype ~= "uint64" then return p:div(factor, { rounding_mode = "floor" }):to(x[1].dtype) end
  local half = (p:div(2, { rounding_mode = "floor" })):bitwise_and(math.maxinteger) -- unsigned, halved
  return sc.where(q:eq(0), p, half:div(sc.full({}, 2, { dtype = "int64" }):pow((q - 1):clamp(0, 62)),
    { rounding_mode = "floor" })):to("uint64")
end

local function clip(x, a, c)
  local y = x[1]
  local low, high = a.min, a.max
  if c.opset >= 11 then
    low, high = x[2], x[3]
    if low then y = y:maximum(low) end
    if high then y = y:minimum(high) end
    return low == nil and high == nil and y:clone() or y
  end
  if low then y = y:clamp(low) end
  if high then y = y:minimum(sc.full({}, high, { dtype = y.dtype })) end
  return y
end

local function selu(x, a)
  local alpha, gamma = a.alpha or 1.67326319217681884765625, a.gamma or 1.05070102214813232421875
  return sc.where(x[1]:gt(0), x[1], x[1]:minimum(sc.zeros_like(x[1])):exp() * alpha - alpha) * gamma
end

local function gelu(x, a)
  return F.gelu(x[1], { approximate = a.approximate == "tanh" and "tanh" or "none" })
end

local function prelu(x, _, c)
  local y, slope = x[1], x[2]
  if c.opset < 7 and slope:dim() == 1 and slope:numel() > 1 then
    local shape = { slope:numel() }
    for i = 2, y:dim() - 1 do shape[i] = 1 end
    slope = slope:reshape(shape)
  end
  return sc.where(y:lt(0), y * slope, y)
end

local function is_infinite(x, a)
  local y, up, down = x[1], a.detect_positive ~= 0, a.detect_negative ~= 0
  local positive, negative = y:eq(math.huge), y:eq(-math.huge)
  if up and down then return positive:logical_or(negative) end
  return up and positive or down and negative or sc.zeros_like(positive)
end

local UNARY = { Abs = "abs", Acos = "acos", Acosh = "acosh", Asin = "asin", Asinh = "asinh", Atan = "atan", Atanh = "atanh", Ceil = "ceil",
  Cos = "cos", Cosh = "cosh", Erf = "erf", Exp = "exp", Floor = "floor", Log = "log", Neg = "neg", Reciprocal = "reciprocal", Relu = "relu",
  Round = "round", Sigmoid = "sigmoid", Sign = "sign", Sin = "sin", Sinh = "sinh", Sqrt = "sqrt", Tan = "tan", Tanh = "tanh",
  Not = "logical_not", IsNaN = "isnan", BitwiseNot = "bitwise_not" }
local BINARY = { Add = "add", Sub = "sub", Mul = "mul", And = "logical_and", Or = "logical_or", Xor = "logical_xor", Equal = "eq",
  Greater = "gt", GreaterOrEqual = "ge", Less = "lt", LessOrEqual = "le", BitwiseAnd = "bitwise_and", BitwiseOr = "bitwise_or",
  BitwiseXor = "bitwise_xor" }

return function(ops)
  for name, ours in pairs(UNARY) do ops[name] = unary(sc[ours]) end
  for name, ours in pairs(BINARY) do ops[name] = binary(sc[ours]) end
  ops.Identity = function(x) return x[1] end
  ops.Div, ops.Pow = binary(divide), binary(power)
  ops.Mod = function(x, a) return a.fmod == 1 and x[1]:fmod(x[2]) or x[1]:remainder(x[2]) end
  ops.BitShift = shift
  ops.Max, ops.Min, ops.Sum = fold(sc.maximum), fold(sc.minimum), fold(sc.add)
  ops.Mean = function(x) return ops.Sum(x) / x.n end
  ops.Where = function(x) return sc.where(x[1], x[2], x[3]) end
  ops.Clip = clip
  ops.LeakyRelu = function(x, a) return F.leaky_relu(x[1], a.alpha or 0.01) end
  ops.Elu = function(x, a) return sc.where(x[1]:gt(0), x[1], (x[1]:minimum(sc.zeros_like(x[1])):exp() - 1) * (a.alpha or 1.0)) end
  ops.Celu = function(x, a)
    local alpha, zero = a.alpha or 1.0, sc.zeros_like(x[1])
    return x[1]:maximum(zero) + ((x[1] / alpha):exp() * alpha - alpha):minimum(zero)
  end
  ops.Selu, ops.Gelu, ops.PRelu, ops.IsInf = selu, gelu, prelu, is_infinite
  ops.HardSigmoid = function(x, a) return (x[1] * (a.alpha or 0.2) + (a.beta or 0.5)):clamp(0, 1) end
  ops.HardSwish = function(x) return x[1] * (x[1] * (1 / 6) + 0.5):clamp(0, 1) end
  ops.Softplus = function(x) return x[1]:relu() + (-x[1]:abs()):exp():log1p() end
  ops.Softsign = function(x) return x[1] / (x[1]:abs() + 1) end
  ops.ThresholdedRelu = function(x, a) return sc.where(x[1]:gt(a.alpha or 1.0), x[1], sc.zeros_like(x[1])) end
  ops.Mish = function(x) return x[1] * ops.Softplus(x):tanh() end
  ops.Swish = function(x, a) return x[1] * (x[1] * (a.alpha or 1.0)):sigmoid() end
  ops.Shrink = function(x, a)
    local lambd, bias, y = a.lambd or 0.5, a.bias or 0.0, x[1]
    return sc.where(y:lt(-lambd), y + bias, sc.where(y:gt(lambd), y - bias, sc.zeros_like(y))):to(y.dtype)
  end
  ops.Dropout = function(x, a, c)
    local training = c.opset >= 12 and x[3] and c:number(x[3]) or (c.opset < 7 and a.is_test == 0)
    local ratio = c.opset >= 12 and (x[2] and c:number(x[2]) or 0.5) or a.ratio or 0.5
    if not training or training == 0 or ratio == 0 then
      return x[1], c.n_out > 1 and sc.ones(x[1].shape, { dtype = c.opset < 10 and x[1].dtype or "bool" }) or nil
    end
    c:fresh()
    local keep = sc.rand(x[1].shape):ge(ratio)
    return x[1] * keep:to(x[1].dtype) / (1 - ratio), keep
  end
  return ops
end
