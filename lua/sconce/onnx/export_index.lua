--- Reads and writes through index tensors, sorting, and views that ONNX has no word for.
local core = require "sconce.core"

local ops = {}

local function out_dtype(e, n, i) return e:value(n.outs[i or 1]).dtype end
local function shape(e, v) return e:value(v).shape end
local function place(d, rank) return d < 0 and d + math.max(rank, 1) or d end
local function lowest(n) return -math.maxinteger + n * 0 end

local function zeros(e, to, dtype) return e:node("Expand", { e:scalar(0, dtype), e:ints(to) }) end

--- x cut at its end to these sizes.
local function cropped(e, v, to, dtype)
  local y, from = e:ref(v, dtype), shape(e, v)
  for d, size in ipairs(to) do
    if from[d] ~= size then y = e:node("Slice", { y, e:ints { 0 }, e:ints { size }, e:ints { d - 1 } }) end
  end
  return y
end

local function scatter(reduction, slot)
  return function(e, n, a)
    local d, index, src = out_dtype(e, n), n.ins[2], n.ins[slot or 3]
    local how = reduction or a.reduce and ({ add = "add", multiply = "mul" })[a.reduce] or "none"
    if a.include_self == false then error("without the tensor's own elements it has no form in ONNX", 0) end
    local x, to, rank = e:ref(n.ins[1], d), shape(e, n.ins[2]), #shape(e, n.ins[1])
    local new = #shape(e, src) < #to and e:node("Expand", { e:ref(src, d), e:ints(to) }) or cropped(e, src, to, d)
    if rank == 0 then error("of a 0-dimensional tensor has no form in ONNX", 0) end
    return e:node("ScatterElements", { x, e:indices(index, n.base), new }, { axis = place(a.dim, rank), reduction = how })
  end
end
ops.scatter, ops.scatter_add, ops.scatter_sum, ops.scatter_prod = scatter(), scatter "add", scatter "add", scatter "mul"

--- A 1-d index as one along `axis` of something of these sizes.
local function along(e, n, index, axis, to)
  local wide = {}
  for i = 1, #to do wide[i] = i == axis + 1 and -1 or 1 end
  return e:node("Expand", { e:node("Reshape", { e:indices(index, n.base), e:ints(wide) }), e:ints(to) })
end

local function index_write(reduction)
  return function(e, n, a)
    local d, x, index, source = out_dtype(e, n), n.ins[1], n.ins[2], n.ins[3]
    local rank, to = #shape(e, x), {}
    if rank == 0 then error("of a 0-dimensional tensor has no form in ONNX", 0) end
    local axis = place(a.dim, rank)
    for i, size in ipairs(shape(e, x)) do to[i] = i == axis + 1 and (shape(e, index)[1] or 1) or size end
    local new = e:node("Expand", { e:ref(source, d), e:ints(to) })
    if a.alpha and a.alpha ~= 1 then new = e:node("Mul", { new, e:scalar(a.alpha, d) }) end
    return e:node("ScatterElements", { e:ref(x, d), along(e, n, index, axis, to), new }, { axis = axis, reduction = reduction })
  end
end
ops.index_add, ops.index_copy, ops.index_fill = index_write "add", index_write "none", index_write "none"

function ops.gather_backward(e, n, a)
  local d, rank = out_dtype(e, n), #a.size
  return e:node("ScatterElements", { zeros(e, a.size, d), e:indices(n.ins[2], n.base), e:ref(n.ins[1], d) }, { axis = place(a.dim, rank),
    reduction = "add" })
end
function ops.index_select_backward(e, n, a)
  local d, axis = out_dtype(e, n), place(a.dim, #a.size)
  return e:node("ScatterElements", { zeros(e, a.size, d), along(e, n, n.ins[2], axis, shape(e, n.ins[1])), e:ref(n.ins[1], d) },
    { axis = axis, reduction = "add" })
end
function ops.embedding_rows_backward(e, n, a)
  if a.padding_idx or a.by_frequency then error("with padding_idx or by_frequency it has no form in ONNX yet", 0) end
  local d = out_dtype(e, n)
  local index = e:node("Unsqueeze", { e:indices(n.ins[2], n.base), e:ints { -1 } })
  return e:node("ScatterND", { zeros(e, a.size, d), index, e:ref(n.ins[1], d) }, { reduction = "add" })
end

--- Index tensors of the leading dims, side by side: what GatherND and ScatterND want.
local function coordinates(e, n, first, dims)
  local parts, wide = {}, {}
  for i, d in ipairs(dims) do
    if d ~= i - 1 then error("with dims that do not lead it has no form in ONNX yet", 0) end
    local s = shape(e, n.ins[first + i - 1])
    for k = 1, #s do
      local at = #s - k
      wide[at] = math.max(wide[at] or 1, s[k])
    end
  end
  local to = {}
  for at, size in pairs(wide) do to[at] = size end
  local list = {}
  for at = #to == 0 and wide[0] and 0 or #wide, 0, -1 do list[#list + 1] = wide[at] end
  for i = 1, #dims do
    local y = e:node("Expand", { e:indices(n.ins[first + i - 1], n.base), e:ints(list) })
    parts[i] = e:node("Unsqueeze", { y, e:ints { -1 } })
  end
  return #parts == 1 and parts[1] or e:node("Concat", parts, { axis = -1 })
end
function ops.index_at(e, n, a) return e:node("GatherND", { e:ref(n.ins[1]), coordinates(e, n, 2, a.dims) }) end
function ops.index_write(e, n, a)
  local d, rank = out_dtype(e, n), #shape(e, n.ins[1])
  local at = coordinates(e, n, 3, a.dims)
  local to, x = {}, shape(e, n.ins[1])
  local lead = e:node("Slice", { e:node("Shape", { at }), e:ints { 0 }, e:ints { -1 } })
  for i = #a.dims + 1, rank do to[#to + 1] = x[i] end
  local new = e:node("Expand", { e:ref(n.ins[2], d), e:node("Concat", { lead, e:ints(to) }, { axis = 0 }) })
  return e:node("ScatterND", { e:ref(n.ins[1], d), at, new }, { reduction = a.accumulate and "add" or "none" })
end

function ops.sort(e, n, a)
  local rank, x = #shape(e, n.ins[1]), e:ref(n.ins[1])
  if rank == 0 then error("of a 0-dimensional tensor has no form in ONNX", 0) end
  local axis = place(a.dim, rank)
  local values, at = e:node("TopK", { x, e:ints { shape(e, n.ins[1])[axis + 1] } }, { axis = axis, largest = a.descending and 1 or 0,
    sorted = 1 }, 2)
  return values, e:positions(at, n.outs[2], n.base)
end

-- ---------------------------------------------------------------- shapes

function ops.flip(e, n, a)
  local starts, ends, axes, steps, rank = {}, {}, {}, {}, #shape(e, n.ins[1])
  for i, d in ipairs(a.dims) do starts[i], ends[i], axes[i], steps[i] = -1, lowest(i), place(d, rank), -1 end
  if #axes == 0 then return e:node("Identity", { e:ref(n.ins[1]) }) end
  return e:node("Slice", { e:ref(n.ins[1]), e:ints(starts), e:ints(ends), e:ints(axes), e:ints(steps) })
end
function ops.roll_by(e, n, a)
  local y, s = e:ref(n.ins[1]), shape(e, n.ins[1])
  for d, by in ipairs(a.shifts) do
    if by ~= 0 and s[d] ~= 0 then
      if e:is_symbolic(s[d]) then error("along a size that is not known it has no form in ONNX yet", 0) end
      local cut = s[d] - by % s[d]
      local head = e:node("Slice", { y, e:ints { 0 }, e:ints { cut }, e:ints { d - 1 } })
      local tail = e:node("Slice", { y, e:ints { cut }, e:ints { s[d] }, e:ints { d - 1 } })
      y = e:node("Concat", { tail, head }, { axis = d - 1 })
    end
  end
  return e:node("Identity", { y })
end
function ops.outer(e, n)
  local d = out_dtype(e, n)
  return e:node("Mul", { e:node("Unsqueeze", { e:ref(n.ins[1], d), e:ints { 1 } }), e:node("Unsqueeze", { e:ref(n.ins[2], d), e:ints { 0 } }) })
end
function ops.cumsum(e, n, a)
  local rank = #shape(e, n.ins[1])
  if rank == 0 then return e:node("Identity", { e:ref(n.ins[1], out_dtype(e, n)) }) end
  return e:node("CumSum", { e:ref(n.ins[1], out_dtype(e, n)), e:scalar(place(a.dim, rank), "int64") })
end
function ops.one_hot(e, n, a)
  local classes = a.num_classes
  if not classes or classes < 0 then error("without the number of classes it has no form in ONNX", 0) end
  return e:node("OneHot", { e:indices(n.ins[1], n.base), e:scalar(classes, "int64"), e:constant(core.untraced(require("sconce").tensor,
    { 0, 1 }, { dtype = "int64" })) }, { axis = -1 })
end
function ops.trunc(e, n)
  local d, x = out_dtype(e, n), e:ref(n.ins[1])
  if not d:find("float") then return e:node("Identity", { x }) end
  return e:node("Where", { e:node("Less", { x, e:scalar(0, d) }), e:node("Ceil", { x }), e:node("Floor", { x }) })
end
function ops.trunc_divide(e, n)
  local d = out_dtype(e, n)
  local y = e:node("Div", { e:ref(n.ins[1], d), e:ref(n.ins[2], d) })
  if not d:find("float") then return y end
  return e:node("Where", { e:node("Less", { y, e:scalar(0, d) }), e:node("Ceil", { y }), e:node("Floor", { y }) })
end
function ops.remainder(e, n)
  local d = out_dtype(e, n)
  local x, y = e:ref(n.ins[1], d), e:ref(n.ins[2], d)
  if not d:find("float") then return e:node("Mod", { x, y }) end
  return e:node("Sub", { x, e:node("Mul", { y, e:node("Floor", { e:node("Div", { x, y }) }) }) })
end
for name, op in pairs { addcmul = "Mul", addcdiv = "Div" } do
  ops[name] = function(e, n, a)
    local d = out_dtype(e, n)
    local y = e:node(op, { e:ref(n.ins[2], d), e:ref(n.ins[3], d) })
    if a.value ~= 1 then y = e:node("Mul", { y, e:scalar(a.value, d) }) end
    return e:node("Add", { e:ref(n.ins[1], d), y })
  end
end
function ops.lerp(e, n)
  local d = out_dtype(e, n)
  local x = e:ref(n.ins[1], d)
  return e:node("Add", { x, e:node("Mul", { e:ref(n.ins[3], d), e:node("Sub", { e:ref(n.ins[2], d), x }) }) })
end
for name, base in pairs { exp2 = 2, log2 = 2, log10 = 10 } do
  ops[name] = function(e, n)
    local d = out_dtype(e, n)
    if name == "exp2" then return e:node("Pow", { e:scalar(2, d), e:ref(n.ins[1], d) }) end
    return e:node("Mul", { e:node("Log", { e:ref(n.ins[1], d) }), e:scalar(1 / math.log(base), d) })
  end
end
function ops.cube(e, n)
  local x = e:ref(n.ins[1])
  return e:node("Mul", { e:node("Mul", { x, x }), x })
end
function ops.inverse_square(e, n)
  local x = e:ref(n.ins[1])
  return e:node("Reciprocal", { e:node("Mul", { x, x }) })
end
function ops.isinf(e, n) return e:node("IsInf", { e:ref(n.ins[1]) }) end
function ops.isposinf(e, n) return e:node("IsInf", { e:ref(n.ins[1]) }, { detect_negative = 0 }) end
function ops.isneginf(e, n) return e:node("IsInf", { e:ref(n.ins[1]) }, { detect_positive = 0 }) end
function ops.isfinite(e, n)
  local x = e:ref(n.ins[1])
  return e:node("Not", { e:node("Or", { e:node("IsInf", { x }), e:node("IsNaN", { x }) }) })
end
local function truth(op, bound)
  return function(e, n, a)
    local rank, x = #shape(e, n.ins[1]), e:cast(e:ref(n.ins[1], "bool"), "int32")
    if rank == 0 then return e:ref(n.ins[1], "bool") end
    local axes = {}
    for i, d in ipairs(a.dim or {}) do axes[i] = place(d, rank) end
    local attrs = { keepdims = a.keepdim and 1 or 0 }
    if #axes > 0 then attrs.axes = axes end
    local y = e:cast(e:node(op, { x }, attrs), "bool")
    return bound and y or y
  end
end
ops.all, ops.any = truth "ReduceMin", truth "ReduceMax"

return ops
