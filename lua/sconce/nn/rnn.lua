--- Recurrent layers and their cells. T: time, B: batch, C: input_size, H: hidden_size, D: directions (2 when bidirectional), L: num_layers.
---   x [T, B, C] ([B, T, C] with batch_first; [T, C] for a single sequence), states [L·D, B, H] ([L·D, H])
---   -> y [T, B, D·H] (likewise), states
--- Weights are PyTorch's: weight_ih_l0 [gates·H, C], weight_hh_l0, bias_ih_l0, bias_hh_l0, then layer 1 …; "_reverse" for the way back.
--- Gates: i f g o of the LSTM, r z n of the GRU; the GRU's reset gate is applied after the matrix product.
--- Sources: Elman 1990; Hochreiter and Schmidhuber 1997; Cho et al. 2014.
local sc = require "sconce"
local fault = require "sconce.fault"
local layer = require "sconce.nn.layer"
local init = require "sconce.nn.initial"
local Parameter = require "sconce.nn.module".Parameter

local F = sc.functional
local L = {}

-- ---- one step, from the two products of the gates

local STEP = {}
function STEP.tanh(gx, gh) return (gx + gh):tanh() end
function STEP.relu(gx, gh) return (gx + gh):relu() end
function STEP.lstm(gx, gh, _, c)
  local gates = gx + gh
  local H = gates:size(-1) // 4
  local d = gates:dim()
  local i, f = gates:narrow(d, 1, H):sigmoid(), gates:narrow(d, H + 1, H):sigmoid()
  local g, o = gates:narrow(d, 2 * H + 1, H):tanh(), gates:narrow(d, 3 * H + 1, H):sigmoid()
  c = f * c + i * g
  return o * c:tanh(), c
end
function STEP.gru(gx, gh, h)
  local H = gx:size(-1) // 3
  local d = gx:dim()
  local both = (gx:narrow(d, 1, 2 * H) + gh:narrow(d, 1, 2 * H)):sigmoid()
  local r, z = both:narrow(d, 1, H), both:narrow(d, H + 1, H)
  local n = (gx:narrow(d, 2 * H + 1, H) + r * gh:narrow(d, 2 * H + 1, H)):tanh()
  return n + z * (h - n)
end

-- ---- a layer in one direction

--- x [T, B, C], h (and c) [B, H] -> y [T, B, H], h, c
local function run(self, x, h, c, w, reverse)
  local gx = F.linear(x, w.ih, w.bih)
  local step, T, ys = STEP[self._kind], x:size(1), {}
  for k = 1, T do
    local t = reverse and T + 1 - k or k
    local out
    out, c = step(gx:select(1, t), F.linear(h, w.hh, w.bhh), h, c)
    if w.hr then out = F.linear(out, w.hr) end
    h = out
    ys[t] = h
  end
  return sc.stack(ys, 1), h, c
end

local FUSED = { lstm = "lstm_layer", gru = "gru_layer", tanh = "rnn_tanh_layer", relu = "rnn_relu_layer" }

--- The fused form computes and differentiates a whole layer at once; projections are left to `run`.
local function fused(self, x, h, c, w, reverse)
  local op = F[FUSED[self._kind]]
  if self._kind == "lstm" then return op(x, h, c, w.ih, w.hh, w.bih, w.bhh, reverse) end
  return op(x, h, w.ih, w.hh, w.bih, w.bhh, reverse)
end

local function weights(self, k, reverse)
  local tail = "_l" .. (k - 1) .. (reverse and "_reverse" or "")
  return { ih = self["weight_ih" .. tail], hh = self["weight_hh" .. tail], bih = self["bias_ih" .. tail], bhh = self["bias_hh" .. tail],
    hr = self["weight_hr" .. tail] }
end

local GATES = { tanh = 1, relu = 1, lstm = 4, gru = 3 }

local function build(self, o)
  local name, H = self.__name, o.hidden_size
  layer.at_least(name, 1, o, "num_layers", "hidden_size", "input_size")
  if not (o.dropout >= 0 and o.dropout <= 1) then
    fault.raise(name, "dropout: expected a probability from 0 to 1, got %s", tostring(o.dropout))
  end
  local P = o.proj_size or 0
  if P < 0 or (P > 0 and P >= H) then fault.raise(name, "proj_size: expected a number from 0 below hidden_size, got %d", P) end
  local G, bound = GATES[self._kind] * H, 1 / math.sqrt(H)
  local out = P > 0 and P or H
  local function parameter(field, shape) self[field] = Parameter(init.uniform_(sc.empty(shape), -bound, bound)) end
  for k = 1, o.num_layers do
    local C = k == 1 and o.input_size or out * (o.bidirectional and 2 or 1)
    for d = 1, o.bidirectional and 2 or 1 do
      local tail = "_l" .. (k - 1) .. (d == 2 and "_reverse" or "")
      parameter("weight_ih" .. tail, { G, C })
      parameter("weight_hh" .. tail, { G, out })
      if o.bias then
        parameter("bias_ih" .. tail, { G })
        parameter("bias_hh" .. tail, { G })
      end
      if P > 0 then parameter("weight_hr" .. tail, { P, H }) end
    end
  end
  rawset(self, "_out", out)
  rawset(self, "_fused", P == 0)
end

local function check_state(self, t, what, shape)
  fault.expect(self.__name, what, "tensor", t)
  if table.concat(t.shape, ", ") ~= table.concat(shape, ", ") then
    fault.raise(self.__name, "%s: expected shape {%s}, got {%s}", what, table.concat(shape, ", "), table.concat(t.shape, ", "))
  end
end

--- The rows of a state for layer and direction number k, [B, H].
local function forward(self, x, h0, c0)
  local name, D = self.__name, self.bidirectional and 2 or 1
  fault.expect(name, 1, "tensor", x)
  local rank = x:dim()
  if rank ~= 2 and rank ~= 3 then
    fault.raise(name, "argument 1: expected 2 or 3 dimensions, got shape {%s}", table.concat(x.shape, ", "))
  end
  if x:size(-1) ~= self.input_size then
    fault.raise(name, "argument 1: expected a last size of %d, got shape {%s}", self.input_size, table.concat(x.shape, ", "))
  end
  local alone = rank == 2
  if alone then x = x:unsqueeze(2)
  elseif self.batch_first then x = x:transpose(1, 2) end
  local B, lstm = x:size(2), self._kind == "lstm"
  local function state(s, size, what)
    local shape = alone and { self.num_layers * D, size } or { self.num_layers * D, B, size }
    if not s then return sc.zeros({ self.num_layers * D, B, size }, { dtype = x.dtype }) end
    check_state(self, s, what, shape)
    return alone and s:unsqueeze(2) or s
  end
  h0 = state(h0, self._out, "h_0")
  if lstm then c0 = state(c0, self.hidden_size, "c_0") end
  local hs, cs = {}, {}
  for k = 1, self.num_layers do
    local ys = {}
    for d = 1, D do
      local at = (k - 1) * D + d
      local w = weights(self, k, d == 2)
      local h, c = h0:select(1, at), lstm and c0:select(1, at) or nil
      ys[d], hs[at], cs[at] = (self._fused and fused or run)(self, x, h, c, w, d == 2)
    end
    x = D == 2 and sc.cat(ys, 3) or ys[1]
    if self.dropout > 0 and self.training and k < self.num_layers then x = F.dropout(x, self.dropout, true) end
  end
  local h, c = sc.stack(hs, 1), lstm and sc.stack(cs, 1) or nil
  if alone then return x:squeeze(2), h:squeeze(2), c and c:squeeze(2) end
  return self.batch_first and x:transpose(1, 2) or x, h, c
end

local function params(extra)
  local list = { "input_size:int", "hidden_size:int", { "num_layers:int", 1 } }
  if extra == "nonlinearity" then list[4] = { "nonlinearity:string", "tanh" } end
  for _, p in ipairs { { "bias:boolean", true }, { "batch_first:boolean", false }, { "dropout:number", 0 }, { "bidirectional:boolean",
    false } } do
    list[#list + 1] = p
  end
  if extra == "proj_size" then list[#list + 1] = { "proj_size:int", 0 } end
  return list
end

--- rnn(x, h0) -> y, h
L.RNN = layer("RNN", params("nonlinearity"))
function L.RNN:build(o)
  if o.nonlinearity ~= "tanh" and o.nonlinearity ~= "relu" then
    fault.raise("RNN", "nonlinearity: expected \"tanh\" or \"relu\", got %q", o.nonlinearity)
  end
  rawset(self, "_kind", o.nonlinearity)
  build(self, o)
end
function L.RNN:forward(x, h0)
  local y, h = forward(self, x, h0)
  return y, h
end

--- lstm(x, h0, c0) or lstm(x, { h0, c0 }) -> y, h, c
L.LSTM = layer("LSTM", params("proj_size"))
function L.LSTM:build(o)
  rawset(self, "_kind", "lstm")
  build(self, o)
end
function L.LSTM:forward(x, h0, c0)
  if type(h0) == "table" then h0, c0 = h0[1], h0[2] end
  return forward(self, x, h0, c0)
end

--- gru(x, h0) -> y, h
L.GRU = layer("GRU", params())
function L.GRU:build(o)
  rawset(self, "_kind", "gru")
  build(self, o)
end
L.GRU.forward = L.RNN.forward

-- ---- cells: one step, x [B, C] or [C]

local function cell(name, gates, extra)
  local C = layer(name, extra and { "input_size:int", "hidden_size:int", { "bias:boolean", true }, extra } or
    { "input_size:int", "hidden_size:int", { "bias:boolean", true } })
  function C:build(o)
    layer.at_least(name, 1, o, "hidden_size", "input_size")
    local bound, G = 1 / math.sqrt(o.hidden_size), gates * o.hidden_size
    local function parameter(field, shape) self[field] = Parameter(init.uniform_(sc.empty(shape), -bound, bound)) end
    parameter("weight_ih", { G, o.input_size })
    parameter("weight_hh", { G, o.hidden_size })
    if o.bias then
      parameter("bias_ih", { G })
      parameter("bias_hh", { G })
    end
  end
  function C:products(x, h)
    fault.expect(name, 1, "tensor", x)
    if not h then
      local shape = x.shape
      shape[#shape] = self.hidden_size
      h = sc.zeros(shape, { dtype = x.dtype })
    end
    return F.linear(x, self.weight_ih, self.bias_ih), F.linear(h, self.weight_hh, self.bias_hh), h
  end
  L[name] = C
  return C
end

--- cell(x, h) -> h: h' = tanh(W x + b + U h + c), or ReLU.
local RNNCell = cell("RNNCell", 1, { "nonlinearity:string", "tanh" })
function RNNCell:forward(x, h)
  local gx, gh = self:products(x, h)
  return STEP[self.nonlinearity](gx, gh)
end
local GRUCell = cell("GRUCell", 3)
function GRUCell:forward(x, h) return STEP.gru(self:products(x, h)) end
--- cell(x, h, c) or cell(x, { h, c }) -> h, c
local LSTMCell = cell("LSTMCell", 4)
function LSTMCell:forward(x, h, c)
  if type(h) == "table" then h, c = h[1], h[2] end
  local gx, gh, state = self:products(x, h)
  return STEP.lstm(gx, gh, nil, c or sc.zeros(state.shape, { dtype = state.dtype }))
end

return L
