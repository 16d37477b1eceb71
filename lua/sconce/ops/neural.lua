--- Ops for neural networks written over other ops: recurrent cells, root-mean-square normalisation, power pooling; and the
--- names that these ops also have outside nn.functional, as in PyTorch.
local sc = require "sconce"
local define = require "sconce.define"
local fault = require "sconce.fault"
local F = sc.functional

for _, name in ipairs { "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
  "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "adaptive_avg_pool1d", "layer_norm", "group_norm", "ctc_loss" } do
  sc[name] = rawget(F, name)
end

local CELL = "Shapes: x [N, I]; h [N, H]; w_ih [gates H, I]; w_hh [gates H, H]; biases [gates H]."

-- The four or three gates of width H side by side in the last dim.
local function gate(all, k, H)
  return all:narrow(-1, (k - 1) * H + 1, H)
end

define(F, "nn.functional.lstm_cell(x, h, c, w_ih, w_hh, b_ih: tensor?, b_hh: tensor?)",
  "One step of an LSTM: the new h and c. Gates in the order i f g o.\n" .. CELL, function(x, h, c, w_ih, w_hh, b_ih, b_hh)
    local H = h:size(-1)
    local all = F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh)
    local i, f, o = gate(all, 1, H):sigmoid(), gate(all, 2, H):sigmoid(), gate(all, 4, H):sigmoid()
    local next_c = f * c + i * gate(all, 3, H):tanh()
    return o * next_c:tanh(), next_c
  end)

define(F, "nn.functional.gru_cell(x, h, w_ih, w_hh, b_ih: tensor?, b_hh: tensor?)",
  "One step of a GRU: the new h. Gates in the order r z n.\n" .. CELL, function(x, h, w_ih, w_hh, b_ih, b_hh)
    local H = h:size(-1)
    local a, b = F.linear(x, w_ih, b_ih), F.linear(h, w_hh, b_hh)
    local r = (gate(a, 1, H) + gate(b, 1, H)):sigmoid()
    local z = (gate(a, 2, H) + gate(b, 2, H)):sigmoid()
    local n = (gate(a, 3, H) + r * gate(b, 3, H)):tanh()
    return (h - n) * z + n
  end)

for name, activation in pairs { rnn_tanh_cell = sc.tanh, rnn_relu_cell = sc.relu } do
  define(F, "nn.functional." .. name .. "(x, h, w_ih, w_hh, b_ih: tensor?, b_hh: tensor?)",
    "One step of a plain recurrent net: the new h.\n" .. CELL, function(x, h, w_ih, w_hh, b_ih, b_hh)
      return activation(F.linear(x, w_ih, b_ih) + F.linear(h, w_hh, b_hh))
    end)
end

define(F, "nn.functional.rms_norm(x, normalized_shape: int[], weight: tensor?, eps: float?)",
  "x divided by the root of the mean of its squares over its last dims, normalized_shape, then scaled.\n" ..
  "eps: the dtype's precision unless given.\nSource: Zhang and Sennrich 2019, \"Root Mean Square Layer Normalization\".",
  function(x, normalized_shape, weight, eps)
    local dims = {}
    for i = 1, #normalized_shape do
      dims[i] = i - 1 - #normalized_shape
      if x:size(dims[i]) ~= normalized_shape[i] then
        fault.raise("nn.functional.rms_norm", "normalized_shape {%s} is not the end of the input's shape {%s}",
          table.concat(normalized_shape, ", "), table.concat(x.shape, ", "))
      end
    end
    eps = eps or (x.dtype == "float64" and 2.220446049250313e-16 or 1.1920928955078125e-07)
    local y = x * ((x * x):mean(dims, true) + eps):rsqrt()
    return weight and y * weight or y
  end)

for n = 1, 2 do
  local signature = "nn.functional.lp_pool%dd(x, norm_type: float, kernel_size: int[%d], stride: int[%d]?, ceil_mode: bool = false)"
  define(F, signature:format(n, n, n),
    "The norm_type-th root of the sum of the norm_type-th powers of each window.",
    function(x, norm_type, kernel_size, stride, ceil_mode)
      local size = 1
      for _, k in ipairs(kernel_size) do size = size * k end
      local mean = F[("avg_pool%dd"):format(n)](x ^ norm_type, kernel_size, stride, 0, ceil_mode)
      return (mean:sign() * mean:abs():relu() * size) ^ (1.0 / norm_type)
    end)
end
