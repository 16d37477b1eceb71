--- How each kind of recorded node is written in ONNX: function(e, n, a): e the writer, n the node, a its attributes (dims and indices
--- from 0); gives the names of the node's results.
local core = require "sconce.core"
local sc = require "sconce"

local ops = {}

--- Which input holds index values, which output positions.
local index_input = { embedding_rows = 2, index_select = 2, index_read = 2, gather = 2 }
local index_output = { argmax = 1, argmin = 1, max_dim = 2, min_dim = 2, topk = 2 }

local function out_dtype(e, n, i) return e:value(n.outs[i or 1]).dtype end
local function shape(e, v) return e:value(v).shape end
local function place(d, rank) return d < 0 and d + math.max(rank, 1) or d end

local function places(dims, rank)
  local list = {}
  for i, d in ipairs(dims or {}) do list[i] = place(d, rank) end
  if #list == 0 then for i = 0, rank - 1 do list[i + 1] = i end end
  table.sort(list)
  return list
end

-- ---------------------------------------------------------------- pointwise

for name, op in pairs { relu = "Relu", sigmoid = "Sigmoid", tanh = "Tanh", erf = "Erf", exp = "Exp", log = "Log", sqrt = "Sqrt",
  abs = "Abs",
  neg = "Neg", sin = "Sin", cos = "Cos", tan = "Tan", asin = "Asin", acos = "Acos", atan = "Atan", sinh = "Sinh", cosh = "Cosh",
  asinh = "Asinh", acosh = "Acosh", atanh = "Atanh", floor = "Floor", ceil = "Ceil", round = "Round", reciprocal = "Reciprocal",
    sign = "Sign",
  softsign = "Softsign" } do
  ops[name] = function(e, n) return e:node(op, { e:ref(n.ins[1], out_dtype(e, n)) }) end
end
for name, op in pairs { logical_not = "Not", logical_and = "And", logical_or = "Or", logical_xor = "Xor" } do
  ops[name] = function(e, n)
    local list = {}
    for i, v in ipairs(n.ins) do list[i] = e:ref(v, "bool") end
    return e:node(op, list)
  end
end
for name, op in pairs { mul = "Mul", pow = "Pow", maximum = "Max", minimum = "Min", clamp_min = "Max", clamp_max = "Min", fmod = "Mod" } do
  ops[name] = function(e, n)
    local d = out_dtype(e, n)
    return e:node(op, { e:ref(n.ins[1], d), e:ref(n.ins[2], d) }, op == "Mod" and { fmod = 1 } or nil)
  end
end
for name, op in pairs { eq = "Equal", lt = "Less", le = "LessOrEqual", gt = "Greater", ge = "GreaterOrEqual" } do
  ops[name] = function(e, n)
    local d = e:common(n.ins)
    return e:node(op, { e:ref(n.ins[1], d), e:ref(n.ins[2], d) })
  end
end
function ops.ne(e, n) return e:node("Not", { ops.eq(e, n) }) end
function ops.isnan(e, n) return e:node("IsNaN", { e:ref(n.ins[1]) }) end

local function scaled(op, swap)
  return function(e, n, a)
    local d = out_dtype(e, n)
    local p, q = e:ref(n.ins[1], d), e:ref(n.ins[2], d)
    if swap then p, q = q, p end
    if a.alpha and a.alpha ~= 1 then
      local k = e:scalar(a.alpha, d)
      if swap then q = e:node("Mul", { q, k }) else q = e:node("Mul", { q, k }) end
    end
    return e:node(op, { p, q })
  end
end
ops.add, ops.sub, ops.rsub = scaled("Add"), scaled("Sub"), scaled("Sub", true)

function ops.div(e, n)
  local d = out_dtype(e, n)
  return e:node("Div", { e:ref(n.ins[1], d), e:ref(n.ins[2], d) })
end
function ops.floor_divide(e, n)
  local d = out_dtype(e, n)
  if not d:find("float") then error("of integers has no form in ONNX yet", 0) end
  return e:node("Floor", { ops.div(e, n) })
end
ops["where"] = function(e, n)
  local d = out_dtype(e, n)
  return e:node("Where", { e:ref(n.ins[1], "bool"), e:ref(n.ins[2], d), e:ref(n.ins[3], d) })
end
function ops.masked_fill(e, n)
  local d = out_dtype(e, n)
  return e:node("Where", { e:ref(n.ins[2], "bool"), e:ref(n.ins[3], d), e:ref(n.ins[1], d) })
end
function ops.clamp(e, n)
  local d = out_dtype(e, n)
  local y = e:ref(n.ins[1], d)
  if n.ins[2] ~= 0 then y = e:node("Max", { y, e:ref(n.ins[2], d) }) end
  if n.ins[3] ~= 0 then y = e:node("Min", { y, e:ref(n.ins[3], d) }) end
  return y
end
function ops.square(e, n)
  local x = e:ref(n.ins[1])
  return e:node("Mul", { x, x })
end
function ops.rsqrt(e, n) return e:node("Reciprocal", { e:node("Sqrt", { e:ref(n.ins[1], out_dtype(e, n)) }) }) end
function ops.log1p(e, n)
  local d = out_dtype(e, n)
  return e:node("Log", { e:node("Add", { e:ref(n.ins[1], d), e:scalar(1, d) }) })
end
function ops.expm1(e, n)
  local d = out_dtype(e, n)
  return e:node("Sub", { e:node("Exp", { e:ref(n.ins[1], d) }), e:scalar(1, d) })
end
function ops.silu(e, n)
  local x = e:ref(n.ins[1])
  return e:node("Mul", { x, e:node("Sigmoid", { x }) })
end
function ops.leaky_relu(e, n, a) return e:node("LeakyRelu", { e:ref(n.ins[1]) }, { alpha = a.negative_slope + 0.0 }) end
function ops.elu(e, n, a) return e:node("Elu", { e:ref(n.ins[1]) }, { alpha = a.alpha + 0.0 }) end
function ops.hardtanh(e, n, a)
  local d = out_dtype(e, n)
  return e:node("Clip", { e:ref(n.ins[1]), e:scalar(a.min_val, d), e:scalar(a.max_val, d) })
end
function ops.relu6(e, n)
  local d = out_dtype(e, n)
  return e:node("Clip", { e:ref(n.ins[1]), e:scalar(0, d), e:scalar(6, d) })
end
function ops.hardswish(e, n) return e:node("HardSwish", { e:ref(n.ins[1]) }) end
function ops.hardsigmoid(e, n) return e:node("HardSigmoid", { e:ref(n.ins[1]) }, { alpha = 1 / 6, beta = 0.5 }) end
function ops.softplus(e, n, a)
  local d, x = out_dtype(e, n), e:ref(n.ins[1])
  if a.beta == 1 then return e:node("Softplus", { x }) end
  return e:node("Div", { e:node("Softplus", { e:node("Mul", { x, e:scalar(a.beta, d) }) }), e:scalar(a.beta, d) })
end
function ops.logsigmoid(e, n) return e:node("Neg", { e:node("Softplus", { e:node("Neg", { e:ref(n.ins[1]) }) }) }) end
function ops.prelu_kernel(e, n) return e:node("PRelu", { e:ref(n.ins[1]), e:ref(n.ins[2]) }) end
function ops.gelu(e, n)
  local d, x = out_dtype(e, n), e:ref(n.ins[1])
  local inner = e:node("Erf", { e:node("Mul", { x, e:scalar(math.sqrt(0.5), d) }) })
  return e:node("Mul", { e:node("Mul", { x, e:node("Add", { inner, e:scalar(1, d) }) }), e:scalar(0.5, d) })
end
function ops.gelu_tanh(e, n)
  local d, x = out_dtype(e, n), e:ref(n.ins[1])
  local cube = e:node("Mul", { e:node("Mul", { x, x }), x })
  local inner = e:node("Mul", { e:node("Add", { x, e:node("Mul", { cube, e:scalar(0.044715, d) }) }), e:scalar(math.sqrt(2 / math.pi), d) })
  return e:node("Mul", { e:node("Mul", { x, e:node("Add", { e:node("Tanh", { inner }), e:scalar(1, d) }) }), e:scalar(0.5, d) })
end
function ops.channel_affine(e, n)
  local rank, axes = #shape(e, n.ins[1]), {}
  for i = 1, rank - 2 do axes[i] = i end
  local function wide(v)
    if rank <= 2 then return e:ref(v) end
    return e:node("Unsqueeze", { e:ref(v), e:ints(axes) })
  end
  local y = e:node("Mul", { e:ref(n.ins[1]), wide(n.ins[2]) })
  return n.ins[3] ~= 0 and n.ins[3] and e:node("Add", { y, wide(n.ins[3]) }) or y
end

-- ---------------------------------------------------------------- shapes

function ops.reshape(e, n)
  local to, symbolic = shape(e, n.outs[1]), 0
  for _, v in ipairs(to) do if e:is_symbolic(v) then symbolic = symbolic + 1 end end
  if symbolic == 1 then
    local list, plain = {}, true
    for i, v in ipairs(to) do
      list[i] = e:is_symbolic(v) and -1 or v
      plain = plain and v ~= 0
    end
    if plain then return e:node("Reshape", { e:ref(n.ins[1]), e:ints(list) }) end
  end
  return e:node("Reshape", { e:ref(n.ins[1]), e:ints(to) }, { allowzero = 1 })
end
for _, name in ipairs { "view", "squeeze", "unsqueeze", "flatten", "view_as", "reshape_as" } do ops[name] = ops.reshape end
for _, name in ipairs { "clone", "contiguous", "detach", "positive" } do
  ops[name] = function(e, n) return e:node("Identity", { e:ref(n.ins[1]) }) end
end
function ops.cast(e, n) return e:node("Cast", { e:ref(n.ins[1]) }, { to = core.onnx_code(out_dtype(e, n)) }) end
function ops.expand(e, n) return e:node("Expand", { e:ref(n.ins[1]), e:ints(shape(e, n.outs[1])) }) end
function ops.permute(e, n, a)
  local rank, perm = #a.dims, {}
  for i, d in ipairs(a.dims) do perm[i] = place(d, rank) end
  return e:node("Transpose", { e:ref(n.ins[1]) }, { perm = perm })
end
function ops.transpose(e, n, a)
  local rank, perm = #shape(e, n.ins[1]), {}
  if rank == 0 then return e:ref(n.ins[1]) end
  for i = 1, rank do perm[i] = i - 1 end
  local p, q = place(a.dim0, rank) + 1, place(a.dim1, rank) + 1
  perm[p], perm[q] = perm[q], perm[p]
  return e:node("Transpose", { e:ref(n.ins[1]) }, { perm = perm })
end
function ops.select(e, n, a)
  return e:node("Gather", { e:ref(n.ins[1]), e:scalar(a.index, "int64") }, { axis = place(a.dim, #shape(e, n.ins[1])) })
end
local function slice(e, x, d, start, stop, step)
  return e:node("Slice", { x, e:ints { start }, e:ints { stop }, e:ints { d }, e:ints { step or 1 } })
end
function ops.narrow(e, n, a)
  local x, d = n.ins[1], place(a.dim, #shape(e, n.ins[1]))
  if not a.start then error("from a start that is computed has no form in ONNX yet", 0) end
  local start = a.start < 0 and a.start + shape(e, x)[d + 1] or a.start
  return slice(e, e:ref(x), d, start, start + a.length)
end
function ops.getview(e, n, a)
  local y, d, to = e:ref(n.ins[1]), 0, shape(e, n.outs[1])
  local reshaped = false
  for k = 1, #a.plan, 4 do
    local kind, first, length, step = a.plan[k], a.plan[k + 1], a.plan[k + 2], a.plan[k + 3]
    if kind == 0 then y = slice(e, y, d, first, first + 1)
    elseif kind == 1 then y = slice(e, y, d, first, first + math.max(0, length - 1) * step + (length > 0 and 1 or 0), step) end
    reshaped = reshaped or kind == 0 or kind == 2
    if kind ~= 2 then d = d + 1 end
  end
  return reshaped and e:node("Reshape", { y, e:ints(to) }, { allowzero = 1 }) or e:node("Identity", { y })
end
function ops.cat_parts(e, n, a)
  local list, d = {}, out_dtype(e, n)
  for i, v in ipairs(n.ins) do list[i] = e:ref(v, d) end
  return e:node("Concat", list, { axis = place(a.dim, #shape(e, n.outs[1])) })
end
ops.cat = ops.cat_parts
function ops.constant_pad(e, n, a)
  local rank, begins, ends = #shape(e, n.ins[1]), {}, {}
  for i = 1, rank do begins[i], ends[i] = 0, 0 end
  for i = 1, #a.pad // 2 do begins[rank + 1 - i], ends[rank + 1 - i] = a.pad[2 * i - 1], a.pad[2 * i] end
  return e:node("Pad", { e:ref(n.ins[1]), e:ints(table.move(ends, 1, rank, rank + 1, begins)), e:scalar(a.value, out_dtype(e,
    n)) }, { mode = "constant" })
end
ops["repeat"] = function(e, n, a)
  local y, lead = e:ref(n.ins[1]), #a.repeats - #shape(e, n.ins[1])
  if lead > 0 then
    local axes = {}
    for i = 1, lead do axes[i] = i - 1 end
    y = e:node("Unsqueeze", { y, e:ints(axes) })
  end
  return e:node("Tile", { y, e:ints(a.repeats) })
end
local function triangle(upper)
  return function(e, n, a) return e:node("Trilu", { e:ref(n.ins[1]), e:scalar(a.diagonal, "int64") }, { upper = upper }) end
end
ops.tril, ops.triu = triangle(0), triangle(1)
local function filling(value)
  return function(e, n, a)
    local x = e:scalar(value or a.fill_value, out_dtype(e, n))
    return e:node("Expand", { x, e:ints(shape(e, n.outs[1])) })
  end
end
ops.zeros, ops.ones, ops.full, ops.zeros_like, ops.ones_like, ops.full_like = filling(0), filling(1), filling(), filling(0),
  filling(1), filling()
ops.new_zeros, ops.new_ones, ops.new_full = filling(0), filling(1), filling()
function ops.arange(e, n, a)
  local d = out_dtype(e, n)
  local function number(x)
    if math.type(x) == "integer" and e:is_symbolic(x) then
      return e:node("Cast", { e:node("Squeeze", { e:size(x) }) }, { to = core.onnx_code(d) })
    end
    return e:scalar(x, d)
  end
  return e:node("Range", { number(a.start or 0), number(a["end"]), number(a.step) })
end

-- ---------------------------------------------------------------- reductions and lookups

local function reduce(op, modern)
  return function(e, n, a)
    local rank, d = #shape(e, n.ins[1]), out_dtype(e, n)
    local x = e:ref(n.ins[1], op ~= "ReduceMax" and op ~= "ReduceMin" and d or nil)
    if rank == 0 then return e:node("Identity", { x }) end
    local dims = type(a.dim) == "number" and { a.dim } or a.dim
    local axes, keep = places(dims, rank), a.keepdim and 1 or 0
    if modern then return e:node(op, { x, e:ints(axes) }, { keepdims = keep }) end
    return e:node(op, { x }, { axes = axes, keepdims = keep })
  end
end
ops.sum, ops.mean, ops.amax, ops.amin = reduce("ReduceSum", true), reduce("ReduceMean"), reduce("ReduceMax"), reduce("ReduceMin")
ops.prod_dim, ops.logsumexp = reduce("ReduceProd"), reduce("ReduceLogSumExp")
local function variance(root)
  return function(e, n, a)
    local rank, d, x = #shape(e, n.ins[1]), out_dtype(e, n), e:ref(n.ins[1])
    local axes, count = places(a.dim, rank), 1
    for _, k in ipairs(axes) do count = count * shape(e, n.ins[1])[k + 1] end
    if e:is_symbolic(count) then error("over a size that is not known has no form in ONNX yet", 0) end
    local centred = e:node("Sub", { x, e:node("ReduceMean", { x }, { axes = axes, keepdims = 1 }) })
    local y = e:node("ReduceMean", { e:node("Mul", { centred, centred }) }, { axes = axes, keepdims = a.keepdim and 1 or 0 })
    local less = a.correction or (a.unbiased == false and 0 or 1)
    y = e:node("Mul", { y, e:scalar(count / (count - less), d) })
    return root and e:node("Sqrt", { y }) or y
  end
end
ops.var, ops.std = variance(false), variance(true)
for name, op in pairs { softmax = "Softmax", log_softmax = "LogSoftmax" } do
  ops[name] = function(e, n, a)
    local rank = #shape(e, n.ins[1])
    if rank == 0 then error("of a 0-dimensional tensor has no form in ONNX", 0) end
    return e:node(op, { e:ref(n.ins[1], out_dtype(e, n)) }, { axis = place(a.dim, rank) })
  end
end
local function search(op)
  return function(e, n, a)
    local x, rank = e:ref(n.ins[1]), #shape(e, n.ins[1])
    local axis = a.dim
    if not axis then
      x, axis, rank = e:node("Reshape", { x, e:ints { -1 } }), 0, 1
    end
    local y = e:node(op, { x }, { axis = place(axis, rank), keepdims = a.keepdim and 1 or 0 })
    return e:positions(y, n.outs[1], n.base)
  end
end
ops.argmax, ops.argmin = search("ArgMax"), search("ArgMin")
local function extreme(reduction, position)
  return function(e, n, a)
    local x, rank = e:ref(n.ins[1]), #shape(e, n.ins[1])
    local axis, keep = place(a.dim, rank), a.keepdim and 1 or 0
    local values = e:node(reduction, { x }, { axes = { axis }, keepdims = keep })
    return values, e:positions(e:node(position, { x }, { axis = axis, keepdims = keep }), n.outs[2], n.base)
  end
end
ops.max_dim, ops.min_dim = extreme("ReduceMax", "ArgMax"), extreme("ReduceMin", "ArgMin")
function ops.topk(e, n, a)
  local values, indices = e:node("TopK", { e:ref(n.ins[1]), e:ints { a.k } }, { axis = place(a.dim, #shape(e, n.ins[1])),
    largest = a.largest and 1 or 0, sorted = 1 }, 2)
  return values, e:positions(indices, n.outs[2], n.base)
end
function ops.cumsum(e, n, a)
  return e:node("CumSum", { e:ref(n.ins[1], out_dtype(e, n)), e:scalar(place(a.dim, #shape(e, n.ins[1])), "int64") })
end
function ops.embedding_rows(e, n) return e:node("Gather", { e:ref(n.ins[1]), e:indices(n.ins[2], n.base) }, { axis = 0 }) end
function ops.index_select(e, n, a)
  return e:node("Gather", { e:ref(n.ins[1]), e:indices(n.ins[2], n.base) }, { axis = place(a.dim, #shape(e, n.ins[1])) })
end
ops.index_read = ops.index_select
function ops.gather(e, n, a)
  return e:node("GatherElements", { e:ref(n.ins[1]), e:indices(n.ins[2], n.base) }, { axis = place(a.dim, #shape(e, n.ins[1])) })
end

-- ---------------------------------------------------------------- nets

for _, name in ipairs { "matmul", "mm", "bmm", "mv", "dot" } do
  ops[name] = function(e, n)
    local d = out_dtype(e, n)
    return e:node("MatMul", { e:ref(n.ins[1], d), e:ref(n.ins[2], d) })
  end
end
ops["nn.functional.linear"] = function(e, n)
  local x, w, b = n.ins[1], n.ins[2], n.ins[3] or 0
  if #shape(e, x) == 2 and #shape(e, w) == 2 then
    local list = { e:ref(x), e:ref(w) }
    if b ~= 0 then list[3] = e:ref(b) end
    return e:node("Gemm", list, { transB = 1 })
  end
  local turned = e:ref(w)
  if #shape(e, w) == 2 then turned = e:node("Transpose", { turned }, { perm = { 1, 0 } }) end
  local y = e:node("MatMul", { e:ref(x), turned })
  return b ~= 0 and e:node("Add", { y, e:ref(b) }) or y
end
function ops.addmm(e, n, a)
  return e:node("Gemm", { e:ref(n.ins[2]), e:ref(n.ins[3]), e:ref(n.ins[1]) }, { alpha = (a.alpha or 1) + 0.0, beta = (a.beta or 1) + 0.0 })
end
function ops.convolution(e, n, a)
  local list = { e:ref(n.ins[1]), e:ref(n.ins[2]) }
  if (n.ins[3] or 0) ~= 0 then list[3] = e:ref(n.ins[3]) end
  return e:node("Conv", list, { strides = a.stride, pads = a.padding, dilations = a.dilation, group = a.groups })
end
function ops.convolution_input(e, n, a)
  local list, size, w, x = { e:ref(n.ins[1]), e:ref(n.ins[2]) }, a.size, shape(e, n.ins[2]), shape(e, n.ins[1])
  if (n.ins[3] or 0) ~= 0 then list[3] = e:ref(n.ins[3]) end
  local nd, extra, pads = #a.stride, {}, table.move(a.padding, 1, #a.padding, 1, {})
  for i = 1, nd do
    local reach = (x[i + 2] - 1) * a.stride[i] + (w[i + 2] - 1) * a.dilation[i] + 1 - pads[i] - pads[i + nd]
    extra[i] = 0
    if size[i + 2] ~= reach then extra[i] = size[i + 2] - reach end
    if pads[i + nd] < 0 then                              -- a negative end is what output_padding has put on
      extra[i], pads[i + nd] = extra[i] - pads[i + nd], 0
    end
    if e:is_symbolic(extra[i]) or extra[i] < 0 then error("of this size has no form in ONNX yet", 0) end
  end
  return e:node("ConvTranspose", list, { strides = a.stride, pads = pads, dilations = a.dilation, group = a.groups,
    output_padding = extra })
end

--- Padding at both ends that gives exactly the windows of `size`; ceil when the last one reaches over.
local function window_attributes(e, n, a)
  local x, nd, pads, ceil = shape(e, n.ins[1]), #a.kernel, {}, 0
  for i = 1, nd do
    local size, out = x[#x - nd + i], a.size[#a.size - nd + i]
    pads[i], pads[i + nd] = a.padding[i], a.padding[i]
    local reach = ((a.dilation and a.dilation[i] or 1) * (a.kernel[i] - 1)) + 1
    if not e:is_symbolic(size) and (out - 1) * a.stride[i] + reach > size + 2 * a.padding[i] then ceil = 1 end
  end
  return { kernel_shape = a.kernel, strides = a.stride, pads = pads, ceil_mode = ceil }
end
local function batched(e, n, nd, fn)
  local rank = #shape(e, n.ins[1])
  if rank == nd + 2 then return fn(e:ref(n.ins[1])) end
  local y = fn(e:node("Unsqueeze", { e:ref(n.ins[1]), e:ints { 0 } }))
  return e:node("Squeeze", { y, e:ints { 0 } })
end
function ops.max_windows(e, n, a)
  if #a.kernel == 0 then error("adaptive windows have no form in ONNX", 0) end
  local attrs = window_attributes(e, n, a)
  attrs.dilations = a.dilation
  return batched(e, n, a.dims, function(x) return e:node("MaxPool", { x }, attrs) end)
end
function ops.avg_windows(e, n, a)
  local x, nd = shape(e, n.ins[1]), a.dims
  if a.divisor then error("divisor_override has no form in ONNX yet", 0) end
  if #a.kernel == 0 then
    local one, kernel = true, {}
    for i = 1, nd do
      local size, out = x[#x - nd + i], a.size[#a.size - nd + i]
      one = one and out == 1
      kernel[i] = out > 0 and size % out == 0 and not e:is_symbolic(size) and size // out or 0
    end
    if one then return batched(e, n, nd, function(y) return e:node("GlobalAveragePool", { y }) end) end
    for i = 1, nd do if kernel[i] == 0 then error("adaptive windows that do not divide the size have no form in ONNX", 0) end end
    return batched(e, n, nd, function(y) return e:node("AveragePool", { y }, { kernel_shape = kernel, strides = kernel }) end)
  end
  local attrs = window_attributes(e, n, a)
  attrs.count_include_pad = a.include_pad and 1 or 0
  return batched(e, n, nd, function(y) return e:node("AveragePool", { y }, attrs) end)
end
function ops.normalize_rows(e, n, a)
  if (n.ins[4] or 0) ~= 0 then error("running statistics are updated; call eval() first", 0) end
  local x, d = n.ins[1], e:value(n.ins[1]).dtype
  local rank, axes = #shape(e, x), {}
  for i = 1, a.dims do axes[i] = rank - a.dims + i - 1 end
  if (n.ins[2] or 0) ~= 0 then
    local list = { e:ref(x), e:ref(n.ins[2]) }
    if (n.ins[3] or 0) ~= 0 then list[3] = e:ref(n.ins[3]) end
    return e:node("LayerNormalization", list, { axis = rank - a.dims, epsilon = a.eps })
  end
  local centred = e:node("Sub", { e:ref(x), e:node("ReduceMean", { e:ref(x) }, { axes = axes, keepdims = 1 }) })
  local var = e:node("ReduceMean", { e:node("Mul", { centred, centred }) }, { axes = axes, keepdims = 1 })
  local y = e:node("Div", { centred, e:node("Sqrt", { e:node("Add", { var, e:scalar(a.eps, d) }) }) })
  return (n.ins[3] or 0) ~= 0 and e:node("Add", { y, e:ref(n.ins[3]) }) or y
end
--- What each query looks at; causal: not at what comes later; mask: a value or 0.
local function probabilities(e, q, k, mask, causal, scale, d)
  local rank, perm = #shape(e, q), {}
  for i = 1, rank do perm[i] = i - 1 end
  perm[rank], perm[rank - 1] = rank - 2, rank - 1
  local s = e:node("MatMul", { e:node("Mul", { e:ref(q), e:scalar(scale, d) }), e:node("Transpose", { e:ref(k) }, { perm = perm }) })
  local open
  if causal then
    local L, S = shape(e, q)[rank - 1], shape(e, k)[rank - 1]
    local ones = e:node("Expand", { e:scalar(1, "int64"), e:ints { L, S } })
    open = e:node("Cast", { e:node("Trilu", { ones }, { upper = 0 }) }, { to = core.onnx_code("bool") })
    s = e:node("Where", { open, s, e:scalar(-math.huge, d) })
  end
  if mask ~= 0 then
    if e:value(mask).dtype == "bool" then s = e:node("Where", { e:ref(mask), s, e:scalar(-math.huge, d) })
    else s = e:node("Add", { s, e:ref(mask, d) }) end
  end
  local p = e:node("Softmax", { s }, { axis = rank - 1 })
  if mask ~= 0 then p = e:node("Where", { e:node("IsNaN", { p }), e:scalar(0, d), p }) end -- a row that may look at nothing gives zeros
  return p
end
function ops.attention(e, n, a)
  local p = probabilities(e, n.ins[1], n.ins[2], n.ins[4] or 0, a.causal, a.scale, out_dtype(e, n))
  return e:node("MatMul", { p, e:ref(n.ins[3]) })
end
function ops.resample(e, n, a)
  local mode = ({ nearest = "nearest", linear = "linear", bilinear = "linear", trilinear = "linear", bicubic = "cubic",
    ["nearest-exact"] = "nearest" })[a.mode]
  if not mode then error("mode " .. tostring(a.mode) .. " has no form in ONNX", 0) end
  local attrs = { mode = mode, coordinate_transformation_mode = a.align and "align_corners" or a.mode == "nearest" and "asymmetric"
    or "half_pixel" }
  if mode == "nearest" then attrs.nearest_mode = a.mode == "nearest" and "floor" or "round_prefer_ceil" end
  if a.scales and #a.scales > 0 then
    local factors = { 1.0, 1.0 }
    for i, f in ipairs(a.scales) do factors[i + 2] = f end
    return e:node("Resize", { e:ref(n.ins[1]), "", e:constant(sc.tensor(factors, { dtype = "float32" })) }, attrs)
  end
  return e:node("Resize", { e:ref(n.ins[1]), "", "", e:ints(shape(e, n.outs[1])) }, attrs)
end

-- ---------------------------------------------------------------- recurrent layers

--- The blocks of a weight in ONNX's order, with a leading dim for the direction.
local function blocks(e, v, order, H)
  local x = e:ref(v)
  if #order > 1 then
    local parts = {}
    for i, p in ipairs(order) do parts[i] = slice(e, x, 0, (p - 1) * H, p * H) end
    x = e:node("Concat", parts, { axis = 0 })
  end
  return x
end
local function recurrent(op, order, attrs)
  return function(e, n, a)
    local x, state = n.ins[1], n.ins[2]
    local H = shape(e, n.ins[4])[2]
    local zero = e:ints { 0 }
    local W = e:node("Unsqueeze", { blocks(e, n.ins[3], order, H), zero })
    local R = e:node("Unsqueeze", { blocks(e, n.ins[4], order, H), zero })
    local B = ""
    if (n.ins[5] or 0) ~= 0 or (n.ins[6] or 0) ~= 0 then
      local parts = {}
      for i = 1, 2 do
        local v = n.ins[4 + i] or 0
        parts[i] = v ~= 0 and blocks(e, v, order, H) or e:constant(core.untraced(sc.zeros, { #order * H }, { dtype = e:value(x).dtype }))
      end
      B = e:node("Unsqueeze", { e:node("Concat", parts, { axis = 0 }), zero })
    end
    local list, all = { e:ref(x), W, R, B, "" }, { hidden_size = H, direction = a.reverse and "reverse" or "forward" }
    for k, v in pairs(attrs or {}) do all[k] = v end
    if op == "LSTM" then
      list[6], list[7] = slice(e, e:ref(state), 0, 0, 1), slice(e, e:ref(state), 0, 1, 2)
      local y, h, c = e:node(op, list, all, 3)
      return e:node("Squeeze", { y, e:ints { 1 } }), e:node("Concat", { h, c }, { axis = 0 })
    end
    list[6] = #shape(e, state) == 3 and e:ref(state) or e:node("Unsqueeze", { e:ref(state), zero })
    local y, h = e:node(op, list, all, 2)
    if #shape(e, n.outs[2]) == 2 then h = e:node("Squeeze", { h, zero }) end
    return e:node("Squeeze", { y, e:ints { 1 } }), h
  end
end
ops.lstm_sequence = recurrent("LSTM", { 1, 4, 2, 3 })
ops.gru_sequence = recurrent("GRU", { 2, 1, 3 }, { linear_before_reset = 1 })
ops.rnn_tanh_sequence = recurrent("RNN", { 1 })

return { table = ops, probabilities = probabilities, index_input = index_input, index_output = index_output }
