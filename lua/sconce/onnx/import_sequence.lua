--- ONNX's recurrences over a state that is handed on: LinearAttention, CausalConvWithState, TensorScatter; its Fourier transforms; and
--- the steps of optimisers of ai.onnx.preview.training.
local sc = require "sconce"
local core = require "sconce.core"

-- ---------------------------------------------------------------- states

--- Each step: the state decays, a row is written at the key, and the query reads.
local function linear_attention(x, a)
  local q, k, v, state, decay, beta = x[1], x[2], x[3], x[4], x[5], x[6]
  local rule, dtype = a.update_rule or "gated_delta", q.dtype
  local B, T, heads, kept = q:size(1), q:size(2), a.q_num_heads, a.kv_num_heads
  local gated, delta = rule:find "gated" ~= nil, rule:find "delta" ~= nil
  if gated and not decay or delta and not beta then error("update_rule " .. rule .. " needs decay or beta", 0) end
  local function split(t, n) return t:float():reshape { B, T, n, t:size(3) // n } end
  q, k, v = split(q, heads), split(k, kept), split(v, kept)
  local dk, dv = q:size(4), v:size(4)
  if gated then decay = split(decay, kept):exp() end
  if delta then beta = beta:float():reshape { B, T, beta:size(3), 1 } end
  state = state and state:float() or core.untraced(sc.zeros, { B, kept, dk, dv })
  local scale, list = a.scale and a.scale ~= 0 and a.scale or 1 / math.sqrt(dk), {}
  for t = 1, T do
    if gated then state = state * decay:select(2, t):unsqueeze(-1) end
    local row, key = v:select(2, t), k:select(2, t):unsqueeze(-1)
    if delta then row = (row - state:transpose(-2, -1):matmul(key):squeeze(-1)) * beta:select(2, t) end
    state = state + key:matmul(row:unsqueeze(-2))
    local read = state
    if heads ~= kept then read = state:unsqueeze(3):expand { B, kept, heads // kept, dk, dv }:reshape { B, heads, dk, dv } end
    list[t] = (q:select(2, t):unsqueeze(-2):matmul(read):squeeze(-2) * scale):reshape { B, heads * dv }
  end
  local y = T > 0 and sc.stack(list, 2) or core.untraced(sc.zeros, { B, 0, heads * dv })
  return y:to(dtype), state:to(dtype)
end

local function causal_conv(x, a)
  local input, weight, bias, past = x[1], x[2], x[3], x[4]
  local length, channels = weight:size(3) - 1, input:size(2)
  past = past or core.untraced(sc.zeros, { input:size(1), channels, length }, { dtype = input.dtype })
  local padded = sc.cat({ past, input }, 3)
  local y = sc.nn.functional.conv1d(padded, weight, bias, { groups = channels })
  if a.activation == "silu" or a.activation == "swish" then
    local wide = y:float()
    y = (wide * wide:sigmoid()):to(input.dtype)
  elseif a.activation and a.activation ~= "none" then
    error("activation " .. a.activation .. " is not supported", 0)
  end
  return y, padded:narrow(3, padded:size(3) - length + 1, length)
end

local function tensor_scatter(x, a)
  local cache, update, at = x[1], x[2], x[3]
  local rank, size = cache:dim(), cache.shape
  local axis = (a.axis or -2) % rank + 1
  local length, wide, per = update:size(axis), {}, {}
  for i = 1, rank do wide[i], per[i] = i == axis and length or 1, i == 1 and size[1] or 1 end
  local index = core.untraced(function() return sc.arange(0, length):reshape(wide) end)
  if at then index = index + at:reshape(per) end
  if a.mode == "circular" then index = index % size[axis] end
  return cache:scatter(axis, (index + 1):expand(update.shape):contiguous(), update)
end

-- ---------------------------------------------------------------- Fourier transforms, as products with matrices

--- cos and sin of 2 pi j k / n, [rows, columns].
local function waves(rows, columns, n, dtype)
  return core.untraced(function()
    local jk = sc.arange(0, rows):reshape { rows, 1 } * sc.arange(0, columns):reshape { 1, columns }
    local angle = (jk % n):double() * (2 * math.pi / n)
    return angle:cos():to(dtype), angle:sin():to(dtype)
  end)
end

--- Along the last dim of re and im (or nil); `bins` results.
local function transform(re, im, n, bins, inverse)
  local cos, sin = waves(n, bins, n, re.dtype)
  local sign = inverse and 1 or -1
  local y_re, y_im = re:matmul(cos), re:matmul(sin) * sign
  if im then y_re, y_im = y_re - im:matmul(sin) * sign, y_im + im:matmul(cos) end
  if inverse then y_re, y_im = y_re / n, y_im / n end
  return y_re, y_im
end

local function fit(t, n)
  local have = t:size(-1)
  if have > n then return t:narrow(-1, 1, n) end
  return have < n and sc.nn.functional.pad(t, { 0, n - have }) or t
end

local function dft(x, a, c)
  local input, axis = x[1], a.axis or 1
  if c.opset >= 20 then axis = x[3] and c:ints(x[3])[1] or -2 end
  local rank = input:dim()
  axis = axis % rank + 1
  local parts = {}
  for i = 1, input:size(-1) do parts[i] = input:select(-1, i):transpose(axis, -1) end
  local given, onesided, inverse = parts[1]:size(-1), a.onesided == 1, a.inverse == 1
  local n = x[2] and c:number(x[2]) or onesided and inverse and 2 * (given - 1) or given
  local bins = onesided and not inverse and n // 2 + 1 or n
  if onesided and inverse then                            -- the other half is the first one's mirror image
    local half = n // 2 + 1
    local re, im = fit(parts[1], half), parts[2] and fit(parts[2], half) or nil
    local mirror = n - half
    if mirror > 0 then
      re = sc.cat({ re, re:narrow(-1, 2, mirror):flip { -1 } }, -1)
      im = im and sc.cat({ im, -im:narrow(-1, 2, mirror):flip { -1 } }, -1)
    end
    return transform(re, im, n, n, true):transpose(axis, -1):unsqueeze(-1)
  end
  local re, im = transform(fit(parts[1], n), parts[2] and fit(parts[2], n), n, bins, inverse)
  return sc.stack({ re:transpose(axis, -1), im:transpose(axis, -1) }, -1)
end

local function stft(x, a, c)
  local signal, step, window = x[1], c:number(x[2]), x[3]
  local n = x[4] and c:number(x[4]) or window and window:size(1) or error("the length of frames is not known", 0)
  local bins = (a.onesided or 1) == 1 and n // 2 + 1 or n
  local function frames(i)
    local f = signal:select(-1, i):unfold(2, n, step)
    return window and f * window or f
  end
  local re, im = transform(frames(1), signal:size(-1) == 2 and frames(2) or nil, n, bins, false)
  return sc.stack({ re, im }, -1)
end

local function mel_weight_matrix(x, a, c)
  local bands, length, rate, low, high = c:number(x[1]), c:number(x[2]), c:number(x[3]), c:number(x[4]), c:number(x[5])
  local function mel(f) return 2595 * math.log(1 + f / 700, 10) end
  local function hertz(m) return 700 * (10 ^ (m / 2595) - 1) end
  local bins, edges, from = length // 2 + 1, {}, mel(low)
  local apart = (mel(high) - from) / (bands + 2)
  for i = 0, bands + 1 do edges[i] = math.floor((length + 1) * hertz(i * apart + from) / rate) end
  local rows = {}
  for f = 0, bins - 1 do
    rows[f + 1] = {}
    for b = 0, bands - 1 do
      local left, centre, right = edges[b], edges[b + 1], edges[b + 2]
      local y = 0.0
      if f >= centre and f < right then y = (right - f) / (right - centre)
      elseif f == centre then y = 1.0
      elseif f >= left and f < centre then y = (f - left) / (centre - left) end
      rows[f + 1][b + 1] = y
    end
  end
  return sc.tensor(rows, { dtype = core.onnx_dtype(a.output_datatype or 1) })
end

-- ---------------------------------------------------------------- optimisers

--- Calls step(X, G, states …) for each tensor of the node; the results in ONNX's order, all X first.
local function optimizer(x, states, step)
  local n = (x.n - 2) // (2 + states)
  local out = { n = n * (1 + states) }
  for i = 1, n do
    local list = {}
    for s = 1, states + 2 do list[s] = x[2 + (s - 1) * n + i] end
    local results = table.pack(step(table.unpack(list)))
    for s = 1, states + 1 do out[(s - 1) * n + i] = results[s] end
  end
  return table.unpack(out, 1, out.n)
end

local function adam(x, a)
  local R, T, alpha, beta = x[1], x[2], a.alpha or 0.9, a.beta or 0.999
  local t = T:to(R.dtype)
  local rate = sc.where(T:gt(0), R * (1 - sc.pow(beta, t)):sqrt() / sc.where(T:gt(0), 1 - sc.pow(alpha, t), 1.0), R)
  return optimizer(x, 2, function(X, G, V, H)
    G = X * (a.norm_coefficient or 0.0) + G
    V, H = V * alpha + G * (1 - alpha), H * beta + G * G * (1 - beta)
    return (X - rate * V / (H:sqrt() + (a.epsilon or 1e-6))) * (1 - (a.norm_coefficient_post or 0.0)), V, H
  end)
end

local function adagrad(x, a)
  local R, T = x[1], x[2]
  local rate = R / (T:to(R.dtype) * (a.decay_factor or 0.0) + 1)
  return optimizer(x, 1, function(X, G, H)
    G = X * (a.norm_coefficient or 0.0) + G
    H = H + G * G
    return X - rate * G / (H:sqrt() + (a.epsilon or 1e-6)), H
  end)
end

local function momentum(x, a)
  local R, T = x[1], x[2]
  local beta = sc.where(T:gt(0), sc.full({}, a.beta, { dtype = R.dtype }), 1.0)
  return optimizer(x, 1, function(X, G, V)
    G = X * (a.norm_coefficient or 0.0) + G
    V = V * a.alpha + beta * G
    return X - R * (a.mode == "nesterov" and G + V * a.alpha or V), V
  end)
end

return function(ops)
  ops.LinearAttention, ops.CausalConvWithState, ops.TensorScatter = linear_attention, causal_conv, tensor_scatter
  ops.DFT, ops.STFT, ops.MelWeightMatrix = dft, stft, mel_weight_matrix
  ops["ai.onnx.preview.training.Adam"], ops["ai.onnx.preview.training.Adagrad"] = adam, adagrad
  ops["ai.onnx.preview.training.Momentum"] = momentum
  return ops
end
