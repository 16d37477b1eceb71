--- What writes into tensors, steps of optimisers, and what draws random numbers, in ONNX. A function of an op that writes gives the
--- new values of what it writes to.
local core = require "sconce.core"

local ops = {}

local function out_dtype(e, n) return e:value(n.outs[1]).dtype end
local function shape(e, v) return e:value(v).shape end

ops["copy_"] = function(e, n)
  return e:node("Expand", { e:ref(n.ins[2], out_dtype(e, n)), e:ints(shape(e, n.ins[1])) })
end
ops["zero_"] = function(e, n) return e:node("Expand", { e:scalar(0, out_dtype(e, n)), e:ints(shape(e, n.ins[1])) }) end
ops["fill"] = function(e, n, a)
  local d = out_dtype(e, n)
  local x = n.ins[2] and e:ref(n.ins[2], d) or e:scalar(a.value or a.fill_value, d)
  return e:node("Expand", { x, e:ints(shape(e, n.ins[1])) })
end

-- ---------------------------------------------------------------- optimisers
--
-- As arithmetic over the parameter, its gradient and its state; csrc/kernels/optim_loops.h has the formulas.

--- Names of operands and numbers by parameter: s.grad, s.lr … Numbers come from `hyper` where there is one.
local function parts(e, n, a, hyper)
  local s, d = {}, out_dtype(e, n)
  local function op(name) return function(x, y) return e:node(name, { x, y }) end end
  s.add, s.sub, s.mul, s.div, s.pow = op "Add", op "Sub", op "Mul", op "Div", op "Pow"
  s.sqrt = function(x) return e:node("Sqrt", { x }) end
  s.number = function(x) return e:scalar(x, d) end
  for i, v in ipairs(n.ins) do if v ~= 0 then s[n.params[i]] = e:ref(v, n.params[i] ~= "hyper" and d or nil) end end
  for i, name in ipairs(hyper) do
    if s.hyper then s[name] = e:cast(e:node("Gather", { s.hyper, e:scalar(i - 1, "int64") }, { axis = 0 }), d)
    else s[name] = s.number(a[name]) end
  end
  s.one = s.number(1)
  s.g = a.maximize and e:node("Neg", { s.grad }) or s.grad
  return s
end

ops["sgd_step_"] = function(e, n, a)
  local s = parts(e, n, a, { "lr", "momentum", "dampening", "weight_decay" })
  local d, buffer = s.add(s.g, s.mul(s.weight_decay, s.x)), s.momentum_buffer
  if not buffer then return s.sub(s.x, s.mul(s.lr, d)) end
  local m = s.add(s.mul(s.momentum, buffer), a.first and d or s.mul(s.sub(s.one, s.dampening), d))
  local step = a.nesterov and s.add(d, s.mul(s.momentum, m)) or m
  return s.sub(s.x, s.mul(s.lr, step)), m
end

ops["adam_step_"] = function(e, n, a)
  local s = parts(e, n, a, { "lr", "beta1", "beta2", "eps", "weight_decay" })
  local t = s.add(s.counter, s.one)
  local d = a.decoupled and s.g or s.add(s.g, s.mul(s.weight_decay, s.x))
  local m = s.add(s.mul(s.beta1, s.exp_avg), s.mul(s.sub(s.one, s.beta1), d))
  local v = s.add(s.mul(s.beta2, s.exp_avg_sq), s.mul(s.sub(s.one, s.beta2), s.mul(d, d)))
  local most = s.max_exp_avg_sq and e:node("Max", { s.max_exp_avg_sq, v }) or nil
  local size = s.div(s.lr, s.sub(s.one, s.pow(s.beta1, t)))
  local root = s.sqrt(s.sub(s.one, s.pow(s.beta2, t)))
  local x = a.decoupled and s.mul(s.x, s.sub(s.one, s.mul(s.lr, s.weight_decay))) or s.x
  x = s.sub(x, s.mul(size, s.div(m, s.add(s.div(s.sqrt(most or v), root), s.eps))))
  if most then return x, m, v, most, e:cast(t, "float32") end
  return x, m, v, e:cast(t, "float32")
end

-- ---------------------------------------------------------------- random numbers
--
-- ONNX leaves the numbers to the runtime: the law is kept, the stream is not.

local function draw(e, n, op, attrs)
  local to, d, known = shape(e, n.outs[1]), out_dtype(e, n), true
  for _, v in ipairs(to) do known = known and not e:is_symbolic(v) end
  if not d:find("float") then error("of this dtype has no form in ONNX", 0) end
  attrs.dtype = core.onnx_code(d)
  if known then
    attrs.shape = to
    return e:node(op, {}, attrs)
  end
  return e:node(op .. "Like", { e:node("Expand", { e:scalar(0, d), e:ints(to) }) }, attrs)
end
local function uniform(e, n) return draw(e, n, "RandomUniform", { low = 0.0, high = 1.0 }) end
local function normal(e, n) return draw(e, n, "RandomNormal", { mean = 0.0, scale = 1.0 }) end
ops.rand, ops.rand_like, ops.randn, ops.randn_like = uniform, uniform, normal, normal
ops["uniform_"] = function(e, n, a) return draw(e, n, "RandomUniform", { low = (a.from or 0) + 0.0, high = (a.to or 1) + 0.0 }) end
ops["normal_"] = function(e, n, a) return draw(e, n, "RandomNormal", { mean = (a.mean or 0) + 0.0, scale = (a.std or 1) + 0.0 }) end
local function integers(e, n, a)
  local y = e:node("RandomUniform", {}, { low = (a.low or 0) + 0.0, high = a.high + 0.0, shape = shape(e, n.outs[1]) })
  return e:cast(e:node("Floor", { y }), out_dtype(e, n))
end
ops.randint, ops.randint_like = integers, integers
function ops.bernoulli(e, n, a)
  local d, p = out_dtype(e, n), e:ref(n.ins[1])
  if a.p then p = e:node("Expand", { e:scalar(a.p, d), e:ints(shape(e, n.outs[1])) }) end
  return e:node("Bernoulli", { p }, { dtype = core.onnx_code(d) })
end

--- The mask is one of ours, packed; only its own gradient reads it.
function ops.dropout_keep(e, n, a)
  for _, m in ipairs(e.whole.nodes) do
    for _, v in ipairs(m.ins) do if v == n.outs[2] and m.op ~= "dropout_masked" then error("its mask is read by " .. m.op, 0) end end
  end
  for _, o in ipairs(e.whole.outputs) do if o.value == n.outs[2] then error("its mask is a result", 0) end end
  return e:node("Dropout", { e:ref(n.ins[1]), e:scalar(a.p, "float32"), e:scalar(true, "bool") }, nil, 2)
end
function ops.dropout_masked(e, n, a)
  local d = out_dtype(e, n)
  local keep = a.p < 1 and 1 / (1 - a.p) or 0
  return e:node("Where", { e:ref(n.ins[2]), e:node("Mul", { e:ref(n.ins[1], d), e:scalar(keep + 0.0, d) }), e:scalar(0, d) })
end

return ops
