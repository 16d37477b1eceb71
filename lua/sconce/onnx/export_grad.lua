--- Losses, normalisation in training, and the gradients that a training step records as ops of their own, in ONNX.
local core = require "sconce.core"
local probabilities = require("sconce.onnx.export_ops").probabilities

local ops = {}

local function out_dtype(e, n, i) return e:value(n.outs[i or 1]).dtype end
local function shape(e, v) return e:value(v).shape end
local function place(d, rank) return d < 0 and d + math.max(rank, 1) or d end

--- Functions that write arithmetic in dtype d.
local function calculator(e, d)
  local c = {}
  for name, op in pairs { add = "Add", sub = "Sub", mul = "Mul", div = "Div", matmul = "MatMul" } do
    c[name] = function(x, y) return e:node(op, { x, y }) end
  end
  function c.number(x) return e:scalar(x, d) end
  function c.sum(x, axes, keep) return e:node("ReduceSum", { x, e:ints(axes) }, { keepdims = keep and 1 or 0 }) end
  function c.mean(x, axes) return e:node("ReduceMean", { x }, { axes = axes, keepdims = 1 }) end
  function c.reshape(x, to) return e:node("Reshape", { x, e:ints(to) }) end
  return c
end

local function all_but(rank, kept)
  local axes = {}
  for i = 0, rank - 1 do if i ~= kept then axes[#axes + 1] = i end end
  return axes
end

-- ---------------------------------------------------------------- sums and expansions

function ops.sum_to_size(e, n, a)
  local c, x, from, axes = calculator(e, out_dtype(e, n)), e:ref(n.ins[1]), shape(e, n.ins[1]), {}
  local lead = #from - #a.size
  for i, size in ipairs(from) do if i <= lead or a.size[i - lead] ~= size then axes[#axes + 1] = i - 1 end end
  if #axes > 0 then x = c.sum(x, axes, true) end
  return e:node("Reshape", { x, e:ints(a.size) }, { allowzero = 1 })
end
function ops.unreduce(e, n, a)
  local to, rank, kept = a.size, #a.size, {}
  local dims = type(a.dim) == "number" and { a.dim } or a.dim or {}
  for i = 1, rank do kept[i] = #dims == 0 and 1 or to[i] end
  for _, d in ipairs(dims) do kept[place(d, rank) + 1] = 1 end
  return e:node("Expand", { e:node("Reshape", { e:ref(n.ins[1]), e:ints(kept) }, { allowzero = 1 }), e:ints(to) })
end
function ops.channel_sum(e, n) return calculator(e).sum(e:ref(n.ins[1]), all_but(#shape(e, n.ins[1]), 1), false) end
function ops.zero_of(e, n) return e:node("Mul", { e:ref(n.ins[1]), e:scalar(0, out_dtype(e, n)) }) end
ops["linalg.vector_norm"] = function(e, n, a)
  local op = ({ [1] = "ReduceL1", [2] = "ReduceL2" })[a.ord] or error("of this order has no form in ONNX yet", 0)
  local d, rank, axes = out_dtype(e, n), #shape(e, n.ins[1]), {}
  local x = e:ref(n.ins[1], d)
  if rank == 0 then return e:node("Abs", { x }) end
  for i, k in ipairs(a.dim or {}) do axes[i] = place(k, rank) end
  local attrs = { keepdims = a.keepdim and 1 or 0 }
  if #axes > 0 then attrs.axes = axes end
  return e:node(op, { x }, attrs)
end

-- ---------------------------------------------------------------- slopes

function ops.gelu_slope(e, n)
  local d, x = out_dtype(e, n), e:ref(n.ins[1])
  local c = calculator(e, d)
  local cdf = c.mul(c.add(e:node("Erf", { c.mul(x, c.number(math.sqrt(0.5))) }), c.number(1)), c.number(0.5))
  local pdf = c.mul(e:node("Exp", { c.mul(c.mul(x, x), c.number(-0.5)) }), c.number(1 / math.sqrt(2 * math.pi)))
  return c.mul(c.add(cdf, c.mul(x, pdf)), e:ref(n.ins[2], d))
end
function ops.gelu_tanh_slope(e, n)
  local d, x = out_dtype(e, n), e:ref(n.ins[1])
  local c, k = calculator(e, d), math.sqrt(2 / math.pi)
  local square = c.mul(x, x)
  local t = e:node("Tanh", { c.mul(c.mul(x, c.add(c.mul(square, c.number(0.044715)), c.number(1))), c.number(k)) })
  local inner = c.mul(c.add(c.mul(square, c.number(3 * 0.044715)), c.number(1)), c.number(k))
  local slope = c.mul(c.mul(x, c.sub(c.number(1), c.mul(t, t))), inner)
  return c.mul(c.mul(c.add(c.add(t, c.number(1)), slope), c.number(0.5)), e:ref(n.ins[2], d))
end

-- ---------------------------------------------------------------- views backwards

local function padded(e, n, size, dim, start, length)
  local rank, d = #size, out_dtype(e, n)
  local x, axis, pads = e:ref(n.ins[1]), place(dim, rank), {}
  if start < 0 then start = start + size[axis + 1] end
  if #shape(e, n.ins[1]) < rank then x = e:node("Unsqueeze", { x, e:ints { axis } }) end
  for i = 1, 2 * rank do pads[i] = 0 end
  pads[axis + 1], pads[rank + axis + 1] = start, size[axis + 1] - start - length
  return e:node("Pad", { x, e:ints(pads), e:scalar(0, d) }, { mode = "constant" })
end
function ops.select_backward(e, n, a) return padded(e, n, a.size, a.dim, a.index, 1) end
function ops.narrow_backward(e, n, a) return padded(e, n, a.size, a.dim, a.start, a.length) end

-- ---------------------------------------------------------------- products

function ops.linear_dweight(e, n, a)
  local c, O, I = calculator(e, out_dtype(e, n)), a.size[1], a.size[2]
  local g = e:node("Transpose", { c.reshape(e:ref(n.ins[1]), { -1, O }) }, { perm = { 1, 0 } })
  return c.matmul(g, c.reshape(e:ref(n.ins[2]), { -1, I }))
end
function ops.linear_dx(e, n) return e:node("MatMul", { e:ref(n.ins[1]), e:ref(n.ins[2]) }) end

--- As a convolution: of the input's channels as a batch, by the gradient as a kernel with stride and dilation changed over.
function ops.convolution_weight(e, n, a)
  if a.groups ~= 1 then error("in groups it has no form in ONNX yet", 0) end
  local rank, turned, crop = #shape(e, n.ins[1]), { 1, 0 }, {}
  for i = 3, rank do turned[i] = i - 1 end
  local dy = e:node("Transpose", { e:ref(n.ins[1]) }, { perm = turned })
  local x = e:node("Transpose", { e:ref(n.ins[2]) }, { perm = turned })
  local y = e:node("Conv", { x, dy }, { strides = a.dilation, dilations = a.stride, pads = a.padding })
  y = e:node("Transpose", { y }, { perm = turned })
  local size, axes, starts = shape(e, n.outs[1]), {}, {}
  for i = 3, rank do crop[#crop + 1], axes[#axes + 1], starts[#starts + 1] = size[i], i - 1, 0 end
  return e:node("Slice", { y, e:ints(starts), e:ints(crop), e:ints(axes) })
end

-- ---------------------------------------------------------------- softmax and cross entropy

function ops.softmax_backward(e, n, a)
  local c, g, s, axis = calculator(e), e:ref(n.ins[1]), e:ref(n.ins[2]), place(a.dim, #shape(e, n.ins[2]))
  return c.mul(s, c.sub(g, c.sum(c.mul(g, s), { axis }, true)))
end
function ops.log_softmax_backward(e, n, a)
  local c, g, s, axis = calculator(e), e:ref(n.ins[1]), e:ref(n.ins[2]), place(a.dim, #shape(e, n.ins[2]))
  return c.sub(g, c.mul(e:node("Exp", { s }), c.sum(g, { axis }, true)))
end

--- Labels from 0, and which of them count; a label to be ignored stays what it is.
local function labels(e, n, v, ignore)
  local t, skip = e:ref(v, "int64"), e:scalar(ignore, "int64")
  local ignored = e:node("Equal", { t, skip })
  local from_0 = n.base == 0 and t or e:node("Sub", { t, e:scalar(n.base, "int64") })
  return e:node("Where", { ignored, skip, from_0 }), e:node("Not", { ignored })
end
local function plain(a, weight)
  if (weight or 0) ~= 0 or a.smoothing ~= 0 then error("with weights or smoothing it has no form in ONNX yet", 0) end
end
function ops.cross_entropy_index(e, n, a)
  plain(a, n.ins[3])
  if #shape(e, n.ins[1]) < 2 then error("of one row it has no form in ONNX yet", 0) end
  local t = labels(e, n, n.ins[2], a.ignore_index)
  return e:node("SoftmaxCrossEntropyLoss", { e:ref(n.ins[1]), t }, { ignore_index = a.ignore_index, reduction = a.reduction })
end
function ops.cross_entropy_backward(e, n, a)
  plain(a, n.ins[5])
  local x, d = n.ins[2], out_dtype(e, n)
  if #shape(e, x) < 2 or e:is_symbolic(shape(e, x)[2]) then error("of this shape it has no form in ONNX yet", 0) end
  local c, axis = calculator(e, d), e:ints { 1 }
  local t, valid = labels(e, n, n.ins[3], a.ignore_index)
  local counts = e:cast(valid, d)
  local safe = e:node("Where", { valid, t, e:scalar(0, "int64") })
  local range = core.untraced(require("sconce").tensor, { 0.0, 1.0 }, { dtype = d })
  local hot = e:node("OneHot", { safe, e:scalar(shape(e, x)[2], "int64"), e:constant(range) }, { axis = 1 })
  local y = c.mul(c.sub(e:node("Softmax", { e:ref(x) }, { axis = 1 }), hot), e:node("Unsqueeze", { counts, axis }))
  local dy = e:ref(n.ins[1], d)
  if a.reduction == "mean" then dy = c.div(dy, e:node("ReduceSum", { counts }, { keepdims = 0 })) end
  if a.reduction == "none" then dy = e:node("Unsqueeze", { dy, axis }) end
  return c.mul(y, dy)
end

--- Inputs: dy, q, k, v, y, lse, mask or nothing.
function ops.attention_backward(e, n, a)
  local d, rank, perm = out_dtype(e, n), #shape(e, n.ins[2]), {}
  for i = 1, rank do perm[i] = i - 1 end
  perm[rank], perm[rank - 1] = rank - 2, rank - 1
  local c = calculator(e, d)
  local function turned(x) return e:node("Transpose", { x }, { perm = perm }) end
  local dy, q, k, v = e:ref(n.ins[1], d), n.ins[2], n.ins[3], e:ref(n.ins[4], d)
  local p = probabilities(e, q, k, n.ins[7] or 0, a.causal, a.scale, d)
  local dp = c.matmul(dy, turned(v))
  local ds = c.mul(c.mul(p, c.sub(dp, c.sum(c.mul(dp, p), { rank - 1 }, true))), c.number(a.scale))
  return c.matmul(ds, e:ref(k, d)), c.matmul(turned(ds), e:ref(q, d)), c.matmul(turned(p), dy)
end

-- ---------------------------------------------------------------- normalisation

--- dx, dweight, dbias over `axes` of one mean; w: the weight as it multiplies, or nil; over: what the weight's gradient sums.
local function normalized_backward(e, d, dy, x, w, axes, over, eps, like)
  local c = calculator(e, d)
  local centred = c.sub(x, c.mean(x, axes))
  local root = e:node("Sqrt", { c.add(c.mean(c.mul(centred, centred), axes), c.number(eps)) })
  local hat, g = c.div(centred, root), w and c.mul(dy, w) or dy
  local dx = c.div(c.sub(g, c.add(c.mean(g, axes), c.mul(hat, c.mean(c.mul(g, hat), axes)))), root)
  local function fit(y) return like and c.reshape(y, like) or y end
  if #over == 0 then return dx, fit(c.mul(dy, hat)), fit(dy) end
  return dx, fit(c.sum(c.mul(dy, hat), over, true)), fit(c.sum(dy, over, true))
end
function ops.normalize_rows_backward(e, n, a)
  local x, w, d = n.ins[2], n.ins[3] or 0, out_dtype(e, n)
  local rank, axes, over = #shape(e, x), {}, {}
  for i = 0, rank - 1 do if i < rank - a.dims then over[#over + 1] = i else axes[#axes + 1] = i end end
  local like = n.outs[2] and shape(e, n.outs[2])
  return normalized_backward(e, d, e:ref(n.ins[1], d), e:ref(x, d), w ~= 0 and e:ref(w, d) or nil, axes, over, a.eps, like)
end

--- Batch normalisation: by the batch's own mean and variance, the running ones updated with the unbiased variance.
function ops.batch_norm_train(e, n, a)
  local s, d = {}, out_dtype(e, n)
  for i, v in ipairs(n.ins) do if v ~= 0 then s[n.params[i]] = e:ref(v) end end
  local size, c = shape(e, n.ins[1]), calculator(e, d)
  local axes, wide, count = all_but(#size, 1), {}, 1
  for i, v in ipairs(size) do
    wide[i] = i == 2 and -1 or 1
    if i ~= 2 then count = count * v end
  end
  if e:is_symbolic(count) then error("over a size that is not known it has no form in ONNX yet", 0) end
  local mean = c.mean(s.x, axes)
  local centred = c.sub(s.x, mean)
  local var = c.mean(c.mul(centred, centred), axes)
  local y = c.div(centred, e:node("Sqrt", { c.add(var, c.number(a.eps)) }))
  if s.weight then y = c.mul(y, c.reshape(s.weight, wide)) end
  if s.bias then y = c.add(y, c.reshape(s.bias, wide)) end
  local function moved(old, new) return c.add(c.mul(old, c.number(1 - a.momentum)), c.mul(c.reshape(new, { -1 }), c.number(a.momentum))) end
  local new = {}
  for i, name in ipairs(n.params) do
    if n.writes >> (i - 1) & 1 == 1 and n.ins[i] ~= 0 then
      local statistic = name:find "mean" and mean or c.mul(var, c.number(count / math.max(1, count - 1)))
      new[#new + 1] = moved(s[name], statistic)
    end
  end
  local results = { n = #n.outs + #new, y }
  table.move(new, 1, #new, #n.outs + 1, results)
  return table.unpack(results, 1, results.n)
end

return ops
