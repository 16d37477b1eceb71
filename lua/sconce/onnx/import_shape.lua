--- ONNX nodes that move elements about: shapes, slices, joins, padding; and those that make tensors.
local sc = require "sconce"
local core = require "sconce.core"
local F = sc.functional

local function dim_of(axis, rank)
  if axis < -rank or axis >= math.max(rank, 1) then error(string.format("axis %d is out of range for %d dimensions", axis, rank), 0) end
  return (axis < 0 and axis + rank or axis) + 1
end

local function int64s(list) return core.untraced(function() return sc.tensor(#list > 0 and list
  or {}):to("int64"):reshape { #list } end) end

local function product(list, first, last)
  local n = 1
  for i = first, last do n = n * list[i] end
  return n
end

local function reshape(x, a, c)
  local y, shape = x[1], a.shape
  if c.opset >= 5 then shape = c:ints(x[2]) end
  local have, to, unknown = y.shape, {}, nil
  for i, n in ipairs(shape) do
    if n == 0 and a.allowzero ~= 1 then
      n = have[i] or error(string.format("size 0 in place %d copies a dimension that shape {%s} does not have", i - 1,
        table.concat(have, ", ")), 0)
    end
    if n == -1 then unknown = i end
    to[i] = n
  end
  if unknown and a.allowzero ~= 1 then -- with a size of 0 beside it -1 must be worked out from what is copied
    local rest = 1
    for i, n in ipairs(to) do if i ~= unknown then rest = rest * n end end
    if rest > 0 then to[unknown] = y:numel() // rest end
  end
  return y:reshape(to)
end

local function axes_of(x, a, c) return c.opset >= 13 and (x[2] and c:ints(x[2])) or c.opset < 13 and a.axes or nil end

local function squeeze(x, a, c)
  local axes, y = axes_of(x, a, c), x[1]
  local drop, shape = {}, {}
  for _, axis in ipairs(axes or {}) do
    local d = dim_of(axis, y:dim())
    if y:size(d) ~= 1 then error(string.format("axis %d has size %d, expected 1", axis, y:size(d)), 0) end
    drop[d] = true
  end
  for i, n in ipairs(y.shape) do if not drop[i] and (axes or n ~= 1) then shape[#shape + 1] = n end end
  return y:reshape(shape)
end

local function unsqueeze(x, a, c)
  local axes, y, at = axes_of(x, a, c) or {}, x[1], {}
  local rank = y:dim() + #axes
  for _, axis in ipairs(axes) do
    local d = dim_of(axis, rank)
    if at[d] then error("an axis is named twice", 0) end
    at[d] = true
  end
  local shape, k = {}, 0
  for i = 1, rank do
    if at[i] then shape[i] = 1 else
      k = k + 1
      shape[i] = y:size(k)
    end
  end
  return y:reshape(shape)
end

local function flatten(x, a)
  local shape, axis = x[1].shape, a.axis or 1
  if axis < 0 then axis = axis + #shape end
  if axis < 0 or axis > #shape then error(string.format("axis %d is out of range for %d dimensions", a.axis, #shape), 0) end
  return x[1]:reshape { product(shape, 1, axis), product(shape, axis + 1, #shape) }
end

local function transpose(x, a)
  local perm, rank = {}, x[1]:dim()
  if a.perm and #a.perm ~= rank then error(string.format("perm has %d dimensions, the input has %d", #a.perm, rank), 0) end
  for i = 1, rank do perm[i] = a.perm and dim_of(a.perm[i], rank) or rank + 1 - i end
  return rank == 0 and x[1] or x[1]:permute(perm)
end

--- One dim from start in steps, ONNX's clamping.
local function cut(y, d, start, stop, step)
  local n = y:size(d)
  if step == 0 then error("a step of 0", 0) end
  if start < 0 then start = start + n end
  if stop < 0 then stop = math.max(stop, -n - 1) + n end
  if step > 0 then
    start, stop = math.max(0, math.min(start, n)), math.max(0, math.min(stop, n))
    local length = math.max(0, stop - start)
    if start == 0 and length == n and step == 1 then return y end
    y = length == 0 and y:narrow(d, 1, 0) or y:narrow(d, start + 1, length)
    if step == 1 or length == 0 then return y end
    return y:index_select(d, core.untraced(sc.arange, 1, length + 1, math.min(step, length)))
  end
  start, stop = math.max(0, math.min(start, n - 1)), math.max(-1, math.min(stop, n - 1))
  if n == 0 or start <= stop then return y:narrow(d, 1, 0) end
  step = math.max(step, -n)
  local places = {}
  for i = start, stop + 1, step do places[#places + 1] = i + 1 end
  return y:index_select(d, int64s(places))
end

local function slice(x, a, c)
  local y, starts, ends, axes, steps = x[1], a.starts, a.ends, a.axes, nil
  if c.opset >= 10 then
    starts, ends, axes, steps = c:ints(x[2]), c:ints(x[3]), x[4] and c:ints(x[4]), x[5] and c:ints(x[5])
  end
  local full = y
  for i = 1, #starts do
    y = cut(y, dim_of(axes and axes[i] or i - 1, y:dim()), starts[i], ends[i] or error("starts and ends differ in length", 0),
      steps and steps[i] or 1)
  end
  return y == full and y:clone() or y
end

local function split(x, a, c)
  local y = x[1]
  local d = dim_of(a.axis or 0, y:dim())
  local n, parts = y:size(d), a.split
  if c.opset >= 13 or c.opset == 1 and x[2] then parts = x[2] and c:ints(x[2]) or nil end
  if not parts then
    local k = a.num_outputs or c.n_out
    local each = (n + k - 1) // k
    parts = {}
    for i = 1, k do parts[i] = math.max(0, math.min(each, n - each * (i - 1))) end
  end
  local out, at = {}, 1
  for i, length in ipairs(parts) do
    if length < 0 or at - 1 + length > n then error(string.format("parts exceed the size %d", n), 0) end
    out[i] = length == 0 and y:narrow(d, 1, 0) or y:narrow(d, at, length)
    at = at + length
  end
  return table.unpack(out)
end

local function concat(x, a)
  local list = {}
  for i = 1, x.n do list[i] = x[i] end
  return sc.cat(list, dim_of(a.axis or 1, x[1]:dim()))
end

local function expand(x, _, c)
  local have, want, shape = x[1].shape, c:ints(x[2]), {}
  local n = math.max(#have, #want)
  for i = 1, n do
    local p, q = have[i - n + #have] or 1, want[i - n + #want] or 1
    shape[i] = p == 1 and q or p
    if p ~= 1 and q ~= 1 and p ~= q then error(string.format("sizes %d and %d do not broadcast", p, q), 0) end
  end
  return x[1]:expand(shape)
end

local function shape_of(x, a)
  local shape, n = x[1].shape, x[1]:dim()
  local first, last = a.start or 0, a["end"] or n
  if first < 0 then first = first + n end
  if last < 0 then last = last + n end
  local list = {}
  for i = math.max(first, 0) + 1, math.min(last, n) do list[#list + 1] = shape[i] end
  return int64s(list)
end

--- pads: begins, then ends, of `axes`; value: what to fill with.
local function pad_by(y, mode, pads, value, axes)
  local begins, ends, rank = {}, {}, y:dim()
  for i = 1, #pads // 2 do
    local d = dim_of(axes and axes[i] or i - 1, rank)
    begins[d], ends[d] = pads[i], pads[#pads // 2 + i]
  end
  if mode == "constant" then
    local list = {}
    for d = rank, 1, -1 do
      list[#list + 1] = begins[d] or 0
      list[#list + 1] = ends[d] or 0
    end
    if y.dtype == "bool" then return F.pad(y:to("uint8"), list, "constant", value):to("bool") end
    return F.pad(y, list, "constant", value)
  end
  for d = 1, rank do
    local b, e, n = begins[d] or 0, ends[d] or 0, y:size(d)
    if b ~= 0 or e ~= 0 then
      local places = {}
      for i = -b, n - 1 + e do
        local p = i
        if mode == "edge" then p = math.max(0, math.min(n - 1, i))
        elseif mode == "wrap" then p = i % n
        elseif mode == "reflect" then
          local period = math.max(2 * (n - 1), 1)
          p = i % period
          if p >= n then p = period - p end
        else error("mode " .. tostring(mode) .. " is not supported", 0) end
        places[#places + 1] = p + 1
      end
      y = y:index_select(d, int64s(places))
    end
  end
  return y
end

local function pad(x, a, c)
  local pads, value, axes = a.pads or a.paddings, a.value or 0, nil
  if c.opset >= 11 then
    pads, value, axes = c:ints(x[2]), x[3] and c:number(x[3]) or 0, x[4] and c:ints(x[4])
  end
  if value == true then value = 1 elseif value == false then value = 0 end
  return pad_by(x[1], a.mode or "constant", pads, value, axes)
end

local function tile(x, _, c)
  if c.opset < 6 then
    local reps = {}
    for i = 1, x[1]:dim() do reps[i] = 1 end
    reps[dim_of(c:number(x[3]), x[1]:dim())] = math.tointeger(c:number(x[2]))
    return x[1]["repeat"](x[1], reps)
  end
  return x[1]["repeat"](x[1], c:ints(x[2]))
end

local function constant(_, a)
  if a.value then return a.value end
  if a.sparse_value then return a.sparse_value end
  if a.value_float then return sc.tensor(a.value_float, { dtype = "float32" }) end
  if a.value_int then return sc.tensor(a.value_int, { dtype = "int64" }) end
  if a.value_floats then return sc.tensor(a.value_floats, { dtype = "float32" }):reshape { #a.value_floats } end
  if a.value_ints then return int64s(a.value_ints) end
  error("a constant of strings, or without a value, is not supported", 0)
end

local function constant_of_shape(x, a, c)
  local shape = c:ints(x[1])
  if not a.value then return sc.zeros(shape) end
  return a.value:reshape {}:expand(shape):contiguous()
end

local function range(x, _, c)
  local from, to, step = c:number(x[1]), c:number(x[2]), c:number(x[3])
  if step == 0 then error("a step of 0", 0) end
  local n = math.max(0, math.ceil((to - from) / step))
  return (sc.arange(0, n, 1, { dtype = "int64" }):to(x[1].dtype) * step + from):to(x[1].dtype)
end

local function depth_to_space(x, a)
  local N, C, H, W = table.unpack(x[1].shape)
  local b = a.blocksize
  if a.mode == "CRD" then
    return x[1]:reshape { N, C // (b * b), b, b, H, W }:permute(1, 2, 5, 3, 6, 4):reshape { N, C // (b * b), H * b, W * b }
  end
  return x[1]:reshape { N, b, b, C // (b * b), H, W }:permute(1, 4, 5, 2, 6, 3):reshape { N, C // (b * b), H * b, W * b }
end

local function space_to_depth(x, a)
  local N, C, H, W = table.unpack(x[1].shape)
  local b = a.blocksize
  return x[1]:reshape { N, C, H // b, b, W // b, b }:permute(1, 4, 6, 2, 3, 5):reshape { N, C * b * b, H // b, W // b }
end

local function eye_like(x, a)
  local n, m = x[1]:size(1), x[1]:size(2)
  local k, dtype = a.k or 0, a.dtype and core.onnx_dtype(a.dtype) or x[1].dtype
  local row, column = sc.arange(0, n):reshape { n, 1 }, sc.arange(0, m):reshape { 1, m }
  return (column - row):eq(k):to(dtype)
end

local function center_crop_pad(x, a, c)
  local y, want = x[1], c:ints(x[2])
  local axes, begins, ends = a.axes, {}, {}
  local where = {}
  for i, size in ipairs(want) do
    local axis = axes and axes[i] or i - 1
    local have = y:size(dim_of(axis, y:dim()))
    where[i] = axis
    if size <= have then
      begins[i] = -((have - size) // 2)
      ends[i] = size - have - begins[i]
    else
      begins[i] = (size - have) // 2
      ends[i] = size - have - begins[i]
    end
  end
  local pads = table.move(ends, 1, #ends, #begins + 1, begins)
  return pad_by(y, "constant", pads, 0, where)
end

local function window(formula)
  return function(x, a, c)
    local n = c:number(x[1])
    local size = a.periodic == 0 and n - 1 or n
    local k = sc.arange(0, n, 1, { dtype = "float32" })
    return formula(k, size):to(a.output_datatype and core.onnx_dtype(a.output_datatype) or "float32")
  end
end

local function random_of(fn)
  return function(x, a, c)
    c:fresh()
    local like = x[1]
    local dtype = a.dtype and core.onnx_dtype(a.dtype) or like and like.dtype or "float32"
    return fn(a.shape or like.shape, a, like):to(dtype)
  end
end

return function(ops)
  ops.Reshape, ops.Squeeze, ops.Unsqueeze, ops.Flatten, ops.Transpose = reshape, squeeze, unsqueeze, flatten, transpose
  ops.Slice, ops.Split, ops.Concat, ops.Expand, ops.Shape = slice, split, concat, expand, shape_of
  ops.Size = function(x) return sc.tensor(x[1]:numel(), { dtype = "int64" }) end
  ops.Pad, ops.Tile, ops.Constant, ops.ConstantOfShape, ops.Range = pad, tile, constant, constant_of_shape, range
  ops.DepthToSpace, ops.SpaceToDepth, ops.EyeLike, ops.CenterCropPad = depth_to_space, space_to_depth, eye_like, center_crop_pad
  ops.HannWindow = window(function(k, n) return -(k * (2 * math.pi / n)):cos() * 0.5 + 0.5 end)
  ops.HammingWindow = window(function(k, n) return -(k * (2 * math.pi / n)):cos() * (21 / 46) + 25 / 46 end)
  ops.BlackmanWindow = window(function(k, n)
    return -(k * (2 * math.pi / n)):cos() * 0.5 + (k * (4 * math.pi / n)):cos() * 0.08 + 0.42
  end)
  local normal = random_of(function(shape, a) return sc.randn(shape) * (a.scale or 1.0) + (a.mean or 0.0) end)
  local uniform = random_of(function(shape, a) return sc.rand(shape) * ((a.high or 1.0) - (a.low or 0.0)) + (a.low or 0.0) end)
  ops.RandomNormal, ops.RandomNormalLike, ops.RandomUniform, ops.RandomUniformLike = normal, normal, uniform, uniform
  ops.Bernoulli = random_of(function(shape, _, p) return sc.rand(shape):lt(p) end)
  return ops
end
