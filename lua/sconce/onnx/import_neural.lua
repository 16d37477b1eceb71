--- ONNX nodes of neural networks: products, convolution, pooling, normalisation.
local sc = require "sconce"
local core = require "sconce.core"
local F = sc.functional

local CONV = { F.conv1d, F.conv2d, F.conv3d }
local CONV_BACK = { F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d }
local MAX_POOL = { F.max_pool1d, F.max_pool2d, F.max_pool3d }
local AVG_POOL = { F.avg_pool1d, F.avg_pool2d, F.avg_pool3d }

local function filled(n, v)
  local t = {}
  for i = 1, n do t[i] = v end
  return t
end

local function is_zero(list)
  for _, v in ipairs(list) do if v ~= 0 then return false end end
  return true
end

--- Padding of the k spatial dims as begins and ends, for the list F.pad wants: last dim first.
local function pad_list(begins, ends)
  local list = {}
  for i = #begins, 1, -1 do
    list[#list + 1] = begins[i]
    list[#list + 1] = ends[i]
  end
  return list
end

--- begins, ends from pads or auto_pad.
local function paddings(x, a, kernel, strides, dilations)
  local k, begins, ends = #kernel, {}, {}
  local auto = a.auto_pad or "NOTSET"
  for i = 1, k do
    if auto == "SAME_UPPER" or auto == "SAME_LOWER" then
      local n = x:size(i + 2)
      local total = math.max(0, ((n + strides[i] - 1) // strides[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - n)
      local small, large = total // 2, total - total // 2
      begins[i], ends[i] = auto == "SAME_UPPER" and small or large, auto == "SAME_UPPER" and large or small
    elseif auto == "VALID" then
      begins[i], ends[i] = 0, 0
    else
      begins[i], ends[i] = (a.pads or {})[i] or 0, (a.pads or {})[i + k] or 0
    end
  end
  return begins, ends
end

local function equal(p, q)
  for i = 1, #p do if p[i] ~= q[i] or p[i] < 0 then return false end end
  return true
end

local function check_positive(what, list)
  for _, v in ipairs(list) do if v <= 0 then error(string.format("%s: expected positive numbers, got %d", what, v), 0) end end
end

local function conv_call(x, w, bias, a)
  local k = w:dim() - 2
  local fn = CONV[k] or error(string.format("%d spatial dimensions are not supported", k), 0)
  local kernel, strides, dilations = table.move(w.shape, 3, k + 2, 1, {}), a.strides or filled(k, 1), a.dilations or filled(k, 1)
  check_positive("strides", strides)
  check_positive("dilations", dilations)
  local begins, ends = paddings(x, a, kernel, strides, dilations)
  local padding = begins
  if not equal(begins, ends) then
    x = F.pad(x, pad_list(begins, ends))
    padding = filled(k, 0)
  end
  return fn(x, w, bias, { stride = strides, padding = padding, dilation = dilations, groups = a.group or 1 })
end

local function conv_transpose(x, a)
  local y, w, bias = x[1], x[2], x[3]
  local k = w:dim() - 2
  local fn = CONV_BACK[k] or error(string.format("%d spatial dimensions are not supported", k), 0)
  local strides, dilations, extra = a.strides or filled(k, 1), a.dilations or filled(k, 1), a.output_padding or filled(k, 0)
  check_positive("strides", strides)
  check_positive("dilations", dilations)
  local begins, ends = {}, {}
  for i = 1, k do
    local reach = strides[i] * (y:size(i + 2) - 1) + (w:size(i + 2) - 1) * dilations[i] + 1
    local auto = a.auto_pad or "NOTSET"
    local want = a.output_shape and a.output_shape[#a.output_shape - k + i]
    if not want and auto:find("SAME") then want = y:size(i + 2) * strides[i] end
    if want then
      local total = math.max(0, reach + extra[i] - want)
      if a.output_shape and reach + extra[i] < want then extra = table.move(extra, 1, k, 1, {}); extra[i] = want - reach end
      begins[i] = auto == "SAME_UPPER" and total // 2 or total - total // 2
      ends[i] = total - begins[i]
    elseif auto == "VALID" then
      begins[i], ends[i] = 0, 0
    else
      begins[i], ends[i] = (a.pads or {})[i] or 0, (a.pads or {})[i + k] or 0
    end
  end
  local options = { stride = strides, padding = begins, output_padding = extra, dilation = dilations, groups = a.group or 1 }
  local direct = equal(begins, ends)
  for i = 1, k do direct = direct and extra[i] < math.max(strides[i], dilations[i]) end
  if direct then return fn(y, w, bias, options) end
  options.padding, options.output_padding = 0, 0
  y = fn(y, w, nil, options)
  local change = {}
  for i = 1, k do begins[i], change[i] = -begins[i], extra[i] - ends[i] end
  y = F.pad(y, pad_list(begins, change))
  if not bias then return y end
  local shape = filled(k + 1, 1)
  shape[1] = bias:numel()
  return y + bias:reshape(shape)
end

-- ---------------------------------------------------------------- pooling

--- How far x must reach for all windows: output sizes as the standard counts them, and padding that gives exactly these.
local function windows(x, a, c)
  local kernel = a.kernel_shape
  local k = #kernel
  local strides, dilations = a.strides or filled(k, 1), a.dilations or filled(k, 1)
  check_positive("kernel_shape", kernel)
  check_positive("strides", strides)
  check_positive("dilations", dilations)
  local begins, ends = paddings(x, a, kernel, strides, dilations)
  local reach, auto = {}, a.auto_pad or "NOTSET"
  for i = 1, k do
    local n, span = x:size(i + 2), (kernel[i] - 1) * dilations[i] + 1
    local room = n + begins[i] + ends[i] - span
    local count
    if auto:find("SAME") then count = (n + strides[i] - 1) // strides[i]
    else
      count = (a.ceil_mode == 1 and -(-room // strides[i]) or room // strides[i]) + 1
      if a.ceil_mode == 1 and (count - 1) * strides[i] >= n + begins[i] and c.opset >= 7 then count = count - 1 end
    end
    if count < 1 then error(string.format("the window of %d does not fit into %d", span, n + begins[i] + ends[i]), 0) end
    reach[i] = (count - 1) * strides[i] + span - n - begins[i]       -- padding at the end
  end
  return kernel, strides, dilations, begins, ends, reach
end

local function max_pool(x, a, c)
  local y, k = x[1], #a.kernel_shape
  local fn = MAX_POOL[k] or error(string.format("%d spatial dimensions are not supported", k), 0)
  local kernel, strides, dilations, begins, _, reach = windows(y, a, c)
  local dtype, direct = y.dtype, equal(begins, reach)
  for i = 1, k do direct = direct and begins[i] <= kernel[i] // 2 end
  if not dtype:find("float") then y = y:to("float64") end
  local padded, options = y, { stride = strides, padding = begins, dilation = dilations, return_indices = c.n_out > 1 }
  if not direct then
    padded = F.pad(y, pad_list(begins, reach), "constant", -math.huge)
    options.padding = 0
  end
  local values, indices = fn(padded, kernel, options)
  if values.dtype ~= dtype then values = values:to(dtype) end
  if c.n_out < 2 then return values end
  -- coordinates within a plane, then the place in the whole tensor; storage_order 1 counts columns first
  local rest, flat, weight = indices - 1, nil, 1
  local coordinate = {}
  for i = k, 1, -1 do
    local n = padded:size(i + 2)
    coordinate[i] = rest:remainder(n) - (direct and 0 or begins[i])
    rest = rest:div(n, { rounding_mode = "floor" })
  end
  local first, last, step = k, 1, -1
  if a.storage_order == 1 then first, last, step = 1, k, 1 end
  for i = first, last, step do
    flat = flat and flat + coordinate[i] * weight or coordinate[i]
    weight = weight * y:size(i + 2)
  end
  local shape = filled(k + 2, 1)
  shape[1], shape[2] = y:size(1), y:size(2)
  local plane = core.untraced(function() return (sc.arange(0, y:size(1) * y:size(2)) * weight):reshape(shape) end)
  return values, flat + plane
end

--- Sums over windows: x's planes through a convolution with ones.
local function window_sum(x, kernel, strides, dilations, begins, reach)
  local k = #kernel
  local padded = F.pad(x, pad_list(begins, reach))
  local shape = padded.shape
  local planes = padded:reshape(table.move(shape, 3, k + 2, 3, { shape[1] * shape[2], 1 }))
  local ones = core.untraced(sc.ones, table.move(kernel, 1, k, 3, { 1, 1 }), { dtype = x.dtype })
  local y = CONV[k](planes, ones, nil, { stride = strides, dilation = dilations })
  return y:reshape(table.move(y.shape, 3, k + 2, 3, { shape[1], shape[2] }))
end

local function average_pool(x, a, c)
  local y, k = x[1], #a.kernel_shape
  local kernel, strides, dilations, begins, ends, reach = windows(y, a, c)
  local direct = equal(begins, reach) and AVG_POOL[k] ~= nil
  for i = 1, k do direct = direct and begins[i] <= kernel[i] // 2 and dilations[i] == 1 end
  if direct then return AVG_POOL[k](y, kernel, { stride = strides, padding = begins, count_include_pad = a.count_include_pad == 1 }) end
  local total = window_sum(y, kernel, strides, dilations, begins, reach)
  local count = core.untraced(function()
    local ones = sc.ones(table.move(y.shape, 3, k + 2, 3, { 1, 1 }), { dtype = y.dtype })
    if a.count_include_pad ~= 1 then return window_sum(ones, kernel, strides, dilations, begins, reach) end
    local left = {}
    for i = 1, k do left[i] = reach[i] - ends[i] end
    return window_sum(F.pad(ones, pad_list(begins, ends), "constant", 1), kernel, strides, dilations, filled(k, 0), left)
  end)
  return total / count
end

local function lp_pool(x, a, c)
  local p, y = a.p or 2, x[1]
  local kernel, strides, dilations, begins, _, reach = windows(y, a, c)
  return window_sum(y:abs():pow(p), kernel, strides, dilations, begins, reach):pow(1 / p)
end

local function spatial(y)
  local dims = {}
  for i = 3, y:dim() do dims[#dims + 1] = i end
  return dims
end

local function max_unpool(x, a, c)
  local y, index = x[1], x[2]
  local k, shape = #a.kernel_shape, y.shape
  local strides = a.strides or filled(k, 1)
  local natural = { shape[1], shape[2] }
  for i = 1, k do
    local pads = ((a.pads or {})[i] or 0) + ((a.pads or {})[i + k] or 0)
    natural[i + 2] = (shape[i + 2] - 1) * strides[i] - pads + a.kernel_shape[i]
  end
  local to = x[3] and c:ints(x[3]) or natural
  local total, place = 1, index:reshape { index:numel() }
  for _, n in ipairs(natural) do total = total * n end
  local flat = sc.zeros({ total }, { dtype = y.dtype }):scatter(1, place + 1, y:reshape { y:numel() }):reshape(natural)
  local begins, ends = {}, {}
  for i = 1, k + 2 do begins[i], ends[i] = 0, to[i] - natural[i] end
  return is_zero(ends) and flat or F.pad(flat, pad_list(begins, ends))
end

-- ---------------------------------------------------------------- normalisation

local function channels(t, rank)
  local shape = filled(rank - 1, 1)
  shape[1] = t:numel()
  return t:reshape(shape)
end

local function batch_norm(x, a, c)
  local y, weight, bias, mean, var = x[1], x[2], x[3], x[4], x[5]
  local eps = a.epsilon or 1e-5
  local training = a.training_mode == 1 or (c.opset < 7 and a.is_test == 0 and c.n_out > 1)
  if not training then
    if y.dtype == mean.dtype and y:dim() >= 2 and a.spatial ~= 0 then return F.batch_norm(y, mean, var, weight, bias, { eps = eps }) end
    local scale = weight / (var + eps):sqrt()
    if a.spatial == 0 then return y * scale + (bias - mean * scale) end
    return (y * channels(scale, y:dim()) + channels(bias - mean * scale, y:dim())):to(y.dtype)
  end
  local dims, momentum = { 1 }, a.momentum or 0.9
  for i = 3, y:dim() do dims[#dims + 1] = i end
  local m = y:mean(dims)
  local centred = y - channels(m, y:dim())
  local v = (centred * centred):mean(dims)
  local out = centred / channels((v + eps):sqrt(), y:dim()) * channels(weight, y:dim()) + channels(bias, y:dim())
  return out, mean * momentum + m * (1 - momentum), var * momentum + v * (1 - momentum)
end

local function layer_norm(x, a, c)
  local y, axis = x[1], a.axis or -1
  if axis < 0 then axis = axis + y:dim() end
  local shape = table.move(y.shape, axis + 1, y:dim(), 1, {})
  local same = table.concat(shape, ",") == table.concat(x[2].shape, ",") and (not x[3] or table.concat(x[3].shape,
    ",") == table.concat(shape, ","))
  if c.n_out == 1 and same then return F.layer_norm(y, shape, x[2], x[3], a.epsilon or 1e-5) end
  local dims = {}
  for i = axis + 1, y:dim() do dims[#dims + 1] = i end
  local dtype = y.dtype
  local wide = dtype:find("16") and y:to("float32") or y
  local mean = wide:mean(dims, true)
  local centred = wide - mean
  local inverse = ((centred * centred):mean(dims, true) + (a.epsilon or 1e-5)):rsqrt()
  local out = (centred * inverse):to(dtype) * x[2]
  return x[3] and out + x[3] or out, mean, inverse
end

local function group_norm(x, a, c)
  local y, groups = x[1], a.num_groups
  local normal = F.group_norm(y, groups, nil, nil, a.epsilon or 1e-5)
  local weight, bias = x[2], x[3]
  if weight:numel() ~= y:size(2) and c.opset < 21 then
    local each = y:size(2) // groups
    weight = weight:reshape { groups, 1 }:expand { groups, each }:reshape { groups * each }
    bias = bias:reshape { groups, 1 }:expand { groups, each }:reshape { groups * each }
  end
  return normal * channels(weight, y:dim()) + channels(bias, y:dim())
end

local function rms_norm(x, a)
  local y, axis, dims = x[1], a.axis or -1, {}
  if axis < 0 then axis = axis + y:dim() end
  for i = axis + 1, y:dim() do dims[#dims + 1] = i end
  local wide = y.dtype:find("16") and y:to("float32") or y
  return ((wide * ((wide * wide):mean(dims, true) + (a.epsilon or 1e-5)):rsqrt()):to(y.dtype) * x[2]):to(y.dtype)
end

local function local_response(x, a)
  local y, n = x[1], a.size
  local before = (n - 1) // 2
  local square = F.pad((y * y):unsqueeze(2), (function()
    local list = filled(2 * (y:dim() - 2), 0)
    list[#list + 1], list[#list + 2] = before, n - 1 - before
    return list
  end)()):squeeze(2)
  local total
  for i = 1, n do
    local part = square:narrow(2, i, y:size(2))
    total = total and total + part or part
  end
  return y / (total * ((a.alpha or 1e-4) / n) + (a.bias or 1.0)):pow(a.beta or 0.75)
end

-- ---------------------------------------------------------------- products

local function gemm(x, a, c)
  local p, q = x[1], x[2]
  local bias = x[3]
  local alpha, beta = a.alpha or 1.0, a.beta or 1.0
  if c.opset < 7 and p:dim() > 2 then p = p:reshape { p:size(1), p:numel() // p:size(1) } end
  if a.transA == 1 then p = p:transpose(1, 2) end
  local whole = not p.dtype:find("float")
  if whole then alpha, beta = math.tointeger(alpha), math.tointeger(beta) end
  if a.transB == 1 and alpha == 1 and bias and beta == 1 and bias:dim() == 1 and bias:numel() == q:size(1) then return F.linear(p,
    q, bias) end
  if a.transB == 1 then q = q:transpose(1, 2) end
  local y = p:matmul(q)
  if alpha ~= 1 then y = y * alpha end
  if not bias then return y end
  return y + (beta == 1 and bias or bias * beta)
end

local function minus(x, zero, axis)
  x = x:to("float64")                                   -- exact: products of bytes stay far below 2^53
  if not zero then return x end
  zero = zero:to("float64")
  if zero:dim() == 1 and zero:numel() > 1 and axis then
    local shape = filled(x:dim(), 1)
    shape[axis] = zero:numel()
    zero = zero:reshape(shape)
  elseif zero:numel() == 1 then zero = zero:reshape {} end
  return x - zero
end

local function matmul_integer(x)
  local p = minus(x[1], x[3], x[1]:dim() - 1)
  return p:matmul(minus(x[2], x[4], x[2]:dim())):to("int32")
end

local function conv_integer(x, a) return conv_call(minus(x[1], x[3]), minus(x[2], x[4], 1), nil, a):to("int32") end

local LIMITS = { uint8 = { 0, 255 }, int8 = { -128, 127 } }

local function requantize(y, scale, zero, dtype)
  local limit = LIMITS[dtype] or error("quantising to " .. dtype .. " is not supported", 0)
  return ((y * scale):round() + zero:to("float64")):clamp(limit[1], limit[2]):to(dtype)
end

local function along(t, rank, d)
  t = t:to("float64")
  if t:numel() == 1 then return t:reshape {} end
  if t:dim() ~= 1 then return t end
  local shape = filled(rank, 1)
  shape[d] = t:numel()
  return t:reshape(shape)
end

local function qlinear_matmul(x)
  local r = x[1]:dim()
  local y = minus(x[1], x[3], r - 1):matmul(minus(x[4], x[6], x[4]:dim()))
  local scale = along(x[2], y:dim(), y:dim() - 1) * along(x[5], y:dim(), y:dim()) / x[7]:to("float64")
  return requantize(y, scale, x[8], x[8].dtype)
end

local function qlinear_conv(x, a)
  local bias = x[9] and x[9]:to("float64")
  local y = conv_call(minus(x[1], x[3]), minus(x[4], x[6], 1), bias, a)
  return requantize(y, along(x[2], y:dim(), 2) * along(x[5], y:dim(), 2) / x[7]:to("float64"), x[8], x[8].dtype)
end

local function grid_sample(x, a)
  local mode = ({ bilinear = "bilinear", linear = "bilinear", nearest = "nearest", bicubic = "bicubic", cubic = "bicubic" })[a.mode
    or "bilinear"]
  return F.grid_sample(x[1], x[2], { mode = mode, padding_mode = a.padding_mode or "zeros", align_corners = a.align_corners == 1 })
end

return function(ops)
  ops.Conv = function(x, a) return conv_call(x[1], x[2], x[3], a) end
  ops.ConvTranspose, ops.MaxPool, ops.AveragePool, ops.LpPool, ops.MaxUnpool = conv_transpose, max_pool, average_pool, lp_pool, max_unpool
  ops.GlobalAveragePool = function(x) return x[1]:mean(spatial(x[1]), true) end
  ops.GlobalMaxPool = function(x) return x[1]:amax(spatial(x[1]), true) end
  ops.GlobalLpPool = function(x, a) return x[1]:abs():pow(a.p or 2):sum(spatial(x[1]), true):pow(1 / (a.p or 2)) end
  ops.BatchNormalization, ops.LayerNormalization, ops.GroupNormalization, ops.RMSNormalization = batch_norm, layer_norm,
    group_norm, rms_norm
  ops.InstanceNormalization = function(x, a) return F.instance_norm(x[1], nil, nil, x[2], x[3], { eps = a.epsilon or 1e-5 }) end
  ops.LRN, ops.Gemm, ops.MatMul = local_response, gemm, function(x) return x[1]:matmul(x[2]) end
  ops.MatMulInteger, ops.ConvInteger, ops.QLinearMatMul, ops.QLinearConv = matmul_integer, conv_integer, qlinear_matmul, qlinear_conv
  ops.GridSample = grid_sample
  ops.AffineGrid = function(x, a, c) return F.affine_grid(x[1], c:ints(x[2]), a.align_corners == 1) end
  require "sconce.onnx.import_rnn"(ops)
  require "sconce.onnx.import_resize"(ops)
  return ops
end
