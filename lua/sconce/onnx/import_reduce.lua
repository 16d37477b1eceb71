--- ONNX nodes that reduce along axes, the softmax family, running sums, and searches for extremes.
local sc = require "sconce"

local function is_float(dtype) return dtype:find("float") ~= nil end

--- 1-based dims from 0-based axes.
local function dims_of(axes, rank)
  local dims = {}
  for i, a in ipairs(axes) do
    if a < -rank or a >= math.max(rank, 1) then error(string.format("axis %d is out of range for %d dimensions", a, rank), 0) end
    dims[i] = (a < 0 and a + rank or a) + 1
  end
  return dims
end

local function all_dims(rank)
  local dims = {}
  for i = 1, rank do dims[i] = i end
  return dims
end

--- axes: an attribute first, an input from some opset on.
local function reduction(from, fn)
  return function(x, a, c)
    local axes, y = a.axes, x[1]
    if c.opset >= from then axes = x[2] and c:ints(x[2]) end
    local keep = a.keepdims ~= 0
    if axes == nil or #axes == 0 then
      if a.noop_with_empty_axes == 1 then return fn(y, {}, keep) end
      return fn(y, all_dims(y:dim()), keep)
    end
    return fn(y, dims_of(axes, y:dim()), keep)
  end
end

local function over(fn) -- dims empty: y itself
  return function(y, dims, keep)
    if #dims == 0 then return y end
    return fn(y, dims, keep)
  end
end

local sum = over(function(y, dims, keep) return y:sum(dims, keep, { dtype = y.dtype }) end)

local mean = over(function(y, dims, keep)
  if is_float(y.dtype) then return y:mean(dims, keep) end
  return y:to("float64"):mean(dims, keep):to(y.dtype)
end)

local function product(y, dims, keep)
  table.sort(dims)
  local dtype = y.dtype
  for i = #dims, 1, -1 do y = y:prod(dims[i], keep, { dtype = dtype }) end
  return y
end

local function extreme(name, empty)
  return over(function(y, dims, keep)
    local none = false
    for _, d in ipairs(dims) do none = none or y:size(d) == 0 end
    if none then
      local shape = y:sum(dims, keep).shape
      local value = empty
      if y.dtype == "bool" then value = empty > 0 and 1 or 0
      elseif not is_float(y.dtype) then value = empty > 0 and math.maxinteger or math.mininteger end
      if y.dtype == "int32" then value = empty > 0 and 2147483647 or -2147483648 end
      return sc.full(shape, value, { dtype = y.dtype })
    end
    if y.dtype == "bool" then return y:to("uint8")[name](y:to("uint8"), dims, keep):to("bool") end
    return y[name](y, dims, keep)
  end)
end

--- Integers through float64, which holds the results the standard asks for.
local function through(fn)
  return function(y, dims, keep)
    if is_float(y.dtype) then return fn(y, dims, keep) end
    return fn(y:to("float64"), dims, keep):to(y.dtype)
  end
end

local function soft(fn)
  return function(x, a, c)
    local y, rank = x[1], x[1]:dim()
    local axis = a.axis or (c.opset >= 13 and -1 or 1)
    if c.opset >= 13 then return fn(y, dims_of({ axis }, rank)[1]) end
    if axis < 0 then axis = axis + rank end
    local shape, rows, n = y.shape, 1, 1
    for i = 1, rank do if i <= axis then rows = rows * shape[i] else n = n * shape[i] end end
    return fn(y:reshape { rows, n }, 2):reshape(shape)
  end
end

local function hardmax(y, d)
  local n = y:size(d)
  if n == 0 then return y:clone() end
  local best, shape = y:argmax(d, true), {}
  for i = 1, y:dim() do shape[i] = i == d and n or 1 end
  local places = sc.arange(1, n + 1):reshape(shape)
  return best:eq(places):to(y.dtype)
end

local function search(name)
  return function(x, a)
    local y = x[1]
    local d, keep = dims_of({ a.axis or 0 }, y:dim())[1], a.keepdims ~= 0
    if a.select_last_index == 1 then return -y:flip { d }[name](y:flip { d }, d, keep) + y:size(d) end
    return y[name](y, d, keep) - 1
  end
end

local function running(fn)
  return function(x, a, c)
    local y, d = x[1], dims_of({ c:ints(x[2])[1] }, x[1]:dim())[1]
    if a.reverse == 1 then y = y:flip { d } end
    local r = fn(y, d)
    if a.exclusive == 1 then
      local n, first = y:size(d), r:narrow(d, 1, math.min(1, y:size(d)))
      local start = a.product and sc.ones_like(first) or sc.zeros_like(first)
      r = sc.cat({ start, r:narrow(d, 1, math.max(n - 1, 0)) }, d)
    end
    return a.reverse == 1 and r:flip { d } or r
  end
end

return function(ops)
  ops.ReduceSum, ops.ReduceMean, ops.ReduceProd = reduction(13, sum), reduction(18, mean), reduction(18, product)
  ops.ReduceMax, ops.ReduceMin = reduction(18, extreme("amax", -math.huge)), reduction(18, extreme("amin", math.huge))
  ops.ReduceL1 = reduction(18, function(y, dims, keep) return sum(y:abs(), dims, keep) end)
  ops.ReduceL2 = reduction(18, through(function(y, dims, keep) return sum(y * y, dims, keep):sqrt() end))
  ops.ReduceSumSquare = reduction(18, function(y, dims, keep) return sum(y * y, dims, keep) end)
  ops.ReduceLogSum = reduction(18, through(function(y, dims, keep) return sum(y, dims, keep):log() end))
  ops.ReduceLogSumExp = reduction(18, through(function(y, dims, keep)
    if #dims == 0 then return y end
    return y:logsumexp(dims, keep)
  end))
  ops.Softmax, ops.LogSoftmax, ops.Hardmax = soft(sc.softmax), soft(sc.log_softmax), soft(hardmax)
  ops.ArgMax, ops.ArgMin = search("argmax"), search("argmin")
  ops.CumSum = running(function(y, d) return y:cumsum(d, { dtype = y.dtype }) end)
  local cumprod = running(function(y, d) return y:cumprod(d, { dtype = y.dtype }) end)
  ops.CumProd = function(x, a, c)
    a.product = true
    return cumprod(x, a, c)
  end
  ops.TopK = function(x, a, c)
    local y, k = x[1], c.opset >= 10 and c:ints(x[2])[1] or a.k
    local values, indices = y:topk(k, dims_of({ a.axis or -1 }, y:dim())[1], a.largest ~= 0, true)
    return values, indices - 1
  end
  ops.LpNormalization = function(x, a)
    local y, d = x[1], dims_of({ a.axis or -1 }, x[1]:dim())[1]
    local norm = (a.p or 2) == 1 and y:abs():sum(d, true) or (y * y):sum(d, true):sqrt()
    return sc.where(norm:eq(0), sc.zeros_like(y), y / norm)
  end
  ops.MeanVarianceNormalization = function(x, a)
    local y = x[1]
    local dims = dims_of(a.axes or { 0, 2, 3 }, y:dim())
    local centred = y - y:mean(dims, true)
    return centred / ((centred * centred):mean(dims, true):sqrt() + 1e-9)
  end
  ops.Einsum = function(x, a)
    local list = {}
    for i = 1, x.n do list[i] = x[i] end
    return sc.einsum(a.equation, list)
  end
  ops.Det = function(x) return sc.linalg.det(x[1]) end
  ops.Trilu = function(x, a, c)
    local k = x[2] and c:number(x[2]) or 0
    return a.upper ~= 0 and x[1]:triu(k) or x[1]:tril(k)
  end
  return ops
end
