--- ONNX nodes that change the dtype: casts, also to floats of 8 and 4 bits and integers of 4 and 2 (which are stored, not computed with), and
--- quantisation, by tensor, by axis or by block. Source: ONNX operator specification, Cast, QuantizeLinear, DequantizeLinear.
local sc = require "sconce"
local core = require "sconce.core"

local LARGEST = { float8e4m3fn = 448, float8e4m3fnuz = 240, float8e5m2 = 57344, float8e5m2fnuz = 57344, float4e2m1 = 6 }
local RANGE = { int2 = { -2, 1 }, uint2 = { 0, 3 }, int4 = { -8, 7 }, uint4 = { 0, 15 }, int8 = { -128, 127 }, uint8 = { 0, 255 },
  int16 = { -32768, 32767 }, uint16 = { 0, 65535 }, int32 = { -2147483648, 2147483647 } }

local function is_float(dtype) return dtype:find("float") ~= nil end

--- Something that ops take: float32 for what is only stored.
local function computable(t) return core.is_stored(t.dtype) and t:to("float32") or t end

--- To the power of two above or below, as float8e8m0 wants it; without a sign, zero as the smallest one.
local function power_of_two(t, mode, saturate)
  local x = t:to("float64"):abs()
  local mantissa, exponent = x:frexp()
  exponent = exponent:to("float64") - 1
  if mode == "up" then exponent = exponent + mantissa:gt(0.5):to("float64") end
  if saturate then exponent = exponent:clamp(-127, 127) end
  exponent = sc.where(x:eq(0), sc.full({}, -127.0, { dtype = "float64" }), exponent)
  return sc.where(x:lt(math.huge), exponent:exp2(), x)
end

--- a: the attributes saturate (1 unless given) and round_mode.
local function cast(t, dtype, a)
  if dtype == nil then error("casting to this element type is not supported", 0) end
  if t.dtype == dtype then return t end
  local saturate, largest = a.saturate ~= 0, LARGEST[dtype]
  if dtype == "float8e8m0" and a.round_mode ~= "nearest" then return power_of_two(computable(t), a.round_mode or "up", saturate):to(dtype) end
  if not (largest and saturate) then return t:to(dtype) end
  t = computable(t)
  if not is_float(t.dtype) then t = t:to("float64") end
  return t:clamp(-largest, largest):to(dtype)
end

local NAMES = { FLOAT = 1, UINT8 = 2, INT8 = 3, INT32 = 6, INT64 = 7, BOOL = 9, FLOAT16 = 10, DOUBLE = 11 }

local function cast_to(x, a)
  local code = type(a.to) == "string" and NAMES[a.to] or a.to -- opset 1 has names
  return cast(x[1], code and core.onnx_dtype(code), a)
end

-- ---------------------------------------------------------------- quantisation

--- A scale or zero point as something that broadcasts over `like`: for all of it, along `axis` (from 0), or a number for each block.
local function spread(t, like, axis, block)
  if not t then return nil end
  t = computable(t):to("float32")
  if t:numel() == 1 and t:dim() <= 1 then return t:reshape {} end
  local d = (axis < 0 and axis + like:dim() or axis) + 1
  if block and block > 0 then return t:repeat_interleave(block, d):narrow(d, 1, like:size(d)) end
  if t:dim() ~= 1 then return t end
  local shape = {}
  for i = 1, like:dim() do shape[i] = i == d and t:numel() or 1 end
  return t:reshape(shape)
end

local function quantize(x, scale, zero, dtype, a)
  local q = x / scale
  if is_float(dtype) then return cast(zero and q + zero or q, dtype, a) end
  local range = RANGE[dtype] or error("quantising to " .. dtype .. " is not supported", 0)
  q = q:round()
  return (zero and q + zero or q):clamp(range[1], range[2]):to(dtype)
end

local function quantize_linear(x, a)
  local dtype = x[3] and x[3].dtype or a.output_dtype and a.output_dtype ~= 0 and core.onnx_dtype(a.output_dtype) or "uint8"
  local axis, block = a.axis or 1, a.block_size
  return quantize(x[1]:to("float32"), spread(x[2], x[1], axis, block), spread(x[3], x[1], axis, block), dtype, a)
end

local function dequantize_linear(x, a)
  local axis, block, y = a.axis or 1, a.block_size, computable(x[1]):to("float32")
  local scale, zero = spread(x[2], x[1], axis, block), spread(x[3], x[1], axis, block)
  local dtype = a.output_dtype and a.output_dtype ~= 0 and core.onnx_dtype(a.output_dtype) or x[2].dtype
  return cast((zero and y - zero or y) * scale, dtype, a)
end

local function dynamic_quantize(x)
  local y = x[1]
  local low, high = y:amin():minimum(sc.zeros({})), y:amax():maximum(sc.zeros({}))
  local scale = (high - low) / 255
  local zero = (-low / scale):round():clamp(0, 255)
  return quantize(y, scale, zero, "uint8", {}), scale, zero:to("uint8")
end

return function(ops)
  ops.Cast = cast_to
  ops.CastLike = function(x, a) return cast(x[1], x[2].dtype, a) end
  ops.QuantizeLinear, ops.DequantizeLinear, ops.DynamicQuantizeLinear = quantize_linear, dequantize_linear, dynamic_quantize
  return ops
end
