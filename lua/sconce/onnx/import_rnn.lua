--- ONNX's LSTM, GRU and RNN: regular ones by the fused layers, the rest (other activations, peepholes, clipping, lengths, GRU with the
--- reset gate before the product) step by step.
local sc = require "sconce"
local F = sc.functional

--- The H-wide blocks of t's first dim in another order; order: 1-based places.
local function reorder(t, H, order)
  if not t then return nil end
  local parts = {}
  for i, p in ipairs(order) do parts[i] = t:narrow(1, (p - 1) * H + 1, H) end
  return #parts == 1 and parts[1] or sc.cat(parts, 1)
end

local function scaled(fn, alpha, beta) return function(x) return fn(x, alpha, beta) end end
local ACTIVATION = {
  sigmoid = function(x) return x:sigmoid() end, tanh = function(x) return x:tanh() end, relu = function(x) return x:relu() end,
  affine = function(x, a, b) return x * (a or 1.0) + (b or 0.0) end, leakyrelu = function(x, a) return F.leaky_relu(x, a or 0.01) end,
  thresholdedrelu = function(x, a) return sc.where(x:gt(a or 1.0), x, sc.zeros_like(x)) end,
  scaledtanh = function(x, a, b) return (x * (b or 1.0)):tanh() * (a or 1.0) end,
  hardsigmoid = function(x, a, b) return (x * (a or 0.2) + (b or 0.5)):clamp(0, 1) end,
  elu = function(x, a) return sc.where(x:gt(0), x, (x:exp() - 1) * (a or 1.0)) end,
  softsign = function(x) return x / (x:abs() + 1) end, softplus = function(x) return x:relu() + (-x:abs()):exp():log1p() end,
}

local function activations(a, direction, each, defaults)
  local list, regular = {}, true
  for i = 1, each do
    local at = (direction - 1) * each + i
    local name = a.activations and a.activations[at] or defaults[i]
    local lower = name:lower()
    local fn = ACTIVATION[lower] or error("activation " .. name .. " is not supported", 0)
    regular = regular and lower == defaults[i]:lower()
    list[i] = scaled(fn, a.activation_alpha and a.activation_alpha[at], a.activation_beta and a.activation_beta[at])
  end
  return list, regular
end

local function limited(t, clip) return clip and t:clamp(-clip, clip) or t end

local STEP = {}

-- Gates in ONNX's order: i o f c.
function STEP.LSTM(s, all, _, c)
  local H, f, p = s.H, s.act, s.peephole
  local function gate(k) return all:narrow(2, (k - 1) * H + 1, H) end
  local function peep(k) return p and p:narrow(1, (k - 1) * H + 1, H) end
  local i, forget = gate(1), gate(3)
  if p then i, forget = i + peep(1) * c, forget + peep(3) * c end
  i = f[1](limited(i, s.clip))
  forget = s.coupled and 1 - i or f[1](limited(forget, s.clip))
  local next_c = forget * c + i * f[2](limited(gate(4), s.clip))
  local o = gate(2)
  if p then o = o + peep(2) * next_c end
  return f[1](limited(o, s.clip)) * f[3](next_c), next_c
end

-- Gates z r h; all: the input's part.
function STEP.GRU(s, all, h)
  local H, f = s.H, s.act
  local function part(t, k) return t:narrow(2, (k - 1) * H + 1, H) end
  local r_w, r_b = s.R, s.Rb
  local zr = h:matmul(r_w:narrow(1, 1, 2 * H):t())
  if r_b then zr = zr + r_b:narrow(1, 1, 2 * H) end
  local z = f[1](limited(part(all, 1) + part(zr, 1), s.clip))
  local r = f[1](limited(part(all, 2) + part(zr, 2), s.clip))
  local weight, bias = r_w:narrow(1, 2 * H + 1, H):t(), r_b and r_b:narrow(1, 2 * H + 1, H)
  local inner
  if s.linear_before_reset then
    inner = h:matmul(weight)
    inner = r * (bias and inner + bias or inner)
  else
    inner = (r * h):matmul(weight)
    if bias then inner = inner + bias end
  end
  local n = f[2](limited(part(all, 3) + inner, s.clip))
  return (1 - z) * n + z * h
end

function STEP.RNN(s, all) return s.act[1](limited(all, s.clip)) end

--- One direction, step by step. x [T, N, I]; lengths: [N] or nil.
local function by_steps(kind, s, x, h, c, lengths)
  local T = x:size(1)
  local from_input = F.linear(x, s.W, s.Wb)
  local outputs = {}
  for step = 1, T do
    local t = s.reverse and T + 1 - step or step
    local all = from_input:select(1, t)
    if kind ~= "GRU" then all = all + F.linear(h, s.R, s.Rb) end
    local next_h, next_c = STEP[kind](s, all, h, c)
    local y = next_h
    if lengths then
      local live = lengths:ge(t):unsqueeze(2)
      y = sc.where(live, next_h, sc.zeros_like(next_h))
      next_h = sc.where(live, next_h, h)
      if c then next_c = sc.where(live, next_c, c) end
    end
    outputs[t] = y
    h, c = next_h, next_c
  end
  return sc.stack(outputs, 1), h, c
end

local ORDER = { LSTM = { 1, 3, 4, 2 }, GRU = { 2, 1, 3 }, RNN = { 1 } }   -- ours, from ONNX's blocks
local DEFAULTS = { LSTM = { "Sigmoid", "Tanh", "Tanh" }, GRU = { "Sigmoid", "Tanh" }, RNN = { "Tanh" } }

local function by_layer(kind, s, x, h, c)
  local order = ORDER[kind]
  local W, R, Wb, Rb = reorder(s.W, s.H, order), reorder(s.R, s.H, order), reorder(s.Wb, s.H, order), reorder(s.Rb, s.H, order)
  local options = { reverse = s.reverse }
  if kind == "LSTM" then return F.lstm_layer(x, h, c, W, R, Wb, Rb, options) end
  if kind == "GRU" then return F.gru_layer(x, h, W, R, Wb, Rb, options) end
  return F.rnn_tanh_layer(x, h, W, R, Wb, Rb, options)
end

local function layer(kind, gates)
  return function(x, a, call)
    local X, W, R, B = x[1], x[2], x[3], x[4]
    local H = a.hidden_size or R:size(3)
    local batch_first = a.layout == 1
    if batch_first then X = X:transpose(1, 2) end
    local N, directions = X:size(2), W:size(1)
    local function state(t, d)
      if not t then return call:now(function() return sc.zeros({ N, H }, { dtype = X.dtype }) end) end
      return (batch_first and t:transpose(1, 2) or t):select(1, d)
    end
    local ys, hs, cs = {}, {}, {}
    for d = 1, directions do
      local act, regular = activations(a, d, #DEFAULTS[kind], DEFAULTS[kind])
      local s = { H = H, W = W:select(1, d), R = R:select(1, d), act = act, clip = a.clip, reverse = a.direction == "reverse" or d == 2,
        coupled = a.input_forget == 1, peephole = kind == "LSTM" and x[8] and x[8]:select(1, d),
          linear_before_reset = a.linear_before_reset == 1 }
      if B then
        local both = B:select(1, d)
        s.Wb, s.Rb = both:narrow(1, 1, gates * H), both:narrow(1, gates * H + 1, gates * H)
      end
      local h, c = state(x[6], d), kind == "LSTM" and state(x[7], d) or nil
      local plain = regular and not a.clip and not s.coupled and not s.peephole and not x[5] and (kind ~= "GRU" or s.linear_before_reset)
        and not a.activation_alpha and not a.activation_beta and (X.dtype == "float32" or X.dtype == "float64")
      local run = plain and by_layer or by_steps
      ys[d], hs[d], cs[d] = run(kind, s, X, h, c, x[5])
    end
    local function states(list)
      local t = sc.stack(list, 1)
      return batch_first and t:transpose(1, 2) or t
    end
    local Y = sc.stack(ys, 2)                             -- [T, directions, N, H]
    if batch_first then Y = Y:permute(3, 1, 2, 4) end
    return Y, states(hs), kind == "LSTM" and states(cs) or nil
  end
end

return function(ops)
  ops.LSTM, ops.GRU, ops.RNN = layer("LSTM", 4), layer("GRU", 3), layer("RNN", 1)
  return ops
end
