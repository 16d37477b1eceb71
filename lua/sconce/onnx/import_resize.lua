--- ONNX's Resize and Upsample, one axis after the other: nearest picks elements, linear and cubic are products with a small matrix of
--- weights worked out from the formulas of the standard. Whole-number nearest scales and plain picks cost no product.
local sc = require "sconce"
local core = require "sconce.core"

--- i / scale as floats of 32 bits give it: a scale such as 0.6 is not exact in them, and the rounding brings 1.5 / 0.6 back to 2.5, on
--- which it depends what is picked.
local function quotient(i, scale) return (string.unpack("f", string.pack("f", i / scale))) end

--- Where output place i lies in the input.
local function place(mode, i, scale, n_in, n_out, length, roi)
  if mode == "half_pixel" then return quotient(i + 0.5, scale) - 0.5 end
  if mode == "asymmetric" then return quotient(i, scale) end
  if mode == "align_corners" then return length == 1 and 0 or i * (n_in - 1) / (length - 1) end
  if mode == "pytorch_half_pixel" then return length > 1 and quotient(i + 0.5, scale) - 0.5 or 0 end
  if mode == "tf_half_pixel_for_nn" then return quotient(i + 0.5, scale) end
  if mode == "half_pixel_symmetric" then
    local adjust = n_out / length
    return n_in / 2 * (1 - adjust) + quotient(i + 0.5, scale) - 0.5
  end
  if mode == "tf_crop_and_resize" then
    if n_out == 1 then return 0.5 * (roi[1] + roi[2]) * (n_in - 1) end
    return roi[1] * (n_in - 1) + i * (roi[2] - roi[1]) * (n_in - 1) / (n_out - 1)
  end
  error("coordinate_transformation_mode " .. tostring(mode) .. " is not supported", 0)
end

local function nearest(how, v)
  if how == "round_prefer_floor" then return math.ceil(v - 0.5) end
  if how == "round_prefer_ceil" then return math.floor(v + 0.5) end
  if how == "floor" then return math.floor(v) end
  if how == "ceil" then return math.ceil(v) end
  error("nearest_mode " .. tostring(how) .. " is not supported", 0)
end

local function cubic(t, a)
  t = math.abs(t)
  if t <= 1 then return ((a + 2) * t - (a + 3)) * t * t + 1 end
  if t < 2 then return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a end
  return 0
end

local function triangle(t) return math.max(0, 1 - math.abs(t)) end

--- Weights of the inputs of one output place, as { place = weight }.
local function weights(v, s, mode, n_in)
  local kernel, reach = triangle, 1
  if mode == "cubic" then kernel, reach = function(t) return cubic(t, s.cubic) end, 2 end
  local wide = s.antialias and s.scale < 1 and s.scale or 1
  local sum, list = 0, {}
  for p = math.floor(v - reach / wide) , math.ceil(v + reach / wide) do
    local w = kernel((p - v) * wide)
    if w ~= 0 and not (s.exclude and (p < 0 or p >= n_in)) then
      list[#list + 1] = { math.max(0, math.min(n_in - 1, p)), w }
      sum = sum + w
    end
  end
  local row = {}
  for _, e in ipairs(list) do row[e[1]] = (row[e[1]] or 0) + ((s.exclude or s.antialias) and e[2] / sum or e[2]) end
  return row
end

local function pick(y, d, s, n_in, n_out)
  local places = {}
  for i = 0, n_out - 1 do
    local v = place(s.transform, i, s.scale, n_in, n_out, s.length, s.roi)
    places[i + 1] = math.max(0, math.min(n_in - 1, nearest(s.nearest, v))) + 1
  end
  return y:index_select(d, core.untraced(sc.tensor, places))
end

local function blend(y, d, s, n_in, n_out)
  local rows, outside, any = {}, {}, false
  for i = 0, n_out - 1 do
    local v = place(s.transform, i, s.scale, n_in, n_out, s.length, s.roi)
    local row, w = {}, weights(v, s, s.mode, n_in)
    for p = 0, n_in - 1 do row[p + 1] = w[p] or 0.0 end
    rows[i + 1] = row
    outside[i + 1] = s.transform == "tf_crop_and_resize" and (v < 0 or v > n_in - 1)
    any = any or outside[i + 1]
  end
  local matrix = core.untraced(function() return sc.tensor(rows, { dtype = y.dtype == "float64" and "float64" or "float32" }) end)
  local dtype = y.dtype
  y = y:to(matrix.dtype):transpose(d, -1):matmul(matrix:t()):transpose(d, -1)
  if any then
    local shape = {}
    for i = 1, y:dim() do shape[i] = i == d and n_out or 1 end
    y = sc.where(core.untraced(function() return sc.tensor(outside):reshape(shape) end), core.untraced(sc.full, {},
      s.extrapolation, { dtype = y.dtype }), y)
  end
  if not dtype:find("float") then y = y:round():clamp(dtype == "uint8" and 0 or -2147483648, dtype == "uint8" and 255 or 2147483647) end
  return y:to(dtype)
end

local function sizes_for(y, axes, scales, sizes, policy)
  local out = y.shape
  if scales then
    for i, d in ipairs(axes) do out[d] = math.floor(y:size(d) * scales[i] + 1e-9) end
    return out, scales
  end
  scales = {}
  for i, d in ipairs(axes) do scales[i] = sizes[i] / y:size(d) end
  if policy == "not_larger" or policy == "not_smaller" then
    local best = policy == "not_larger" and math.min(table.unpack(scales)) or math.max(table.unpack(scales))
    for i, d in ipairs(axes) do
      scales[i] = best
      out[d] = math.floor(y:size(d) * best + 0.5)
    end
    return out, scales
  end
  for i, d in ipairs(axes) do out[d] = sizes[i] end
  return out, scales
end

local function resize_with(y, a, scales, sizes, roi)
  local rank, axes = y:dim(), {}
  for i = 1, rank do axes[i] = i end
  if a.axes then for i, v in ipairs(a.axes) do axes[i] = (v < 0 and v + rank or v) + 1 end end
  for i = (a.axes and #a.axes or rank) + 1, rank do axes[i] = nil end
  local out, factors = sizes_for(y, axes, scales, sizes, a.keep_aspect_ratio_policy)
  local mode = a.mode or "nearest"
  for i, d in ipairs(axes) do
    local s = { scale = factors[i], transform = a.coordinate_transformation_mode or "half_pixel", nearest = a.nearest_mode
      or "round_prefer_floor",
      cubic = a.cubic_coeff_a or -0.75, exclude = a.exclude_outside == 1, antialias = a.antialias == 1, mode = mode,
      extrapolation = a.extrapolation_value or 0.0, length = y:size(d) * factors[i], roi = roi and { roi[i], roi[#axes + i] } }
    if factors[i] ~= factors[i] or factors[i] <= 0 then error("scales and sizes must be positive", 0) end
    local crops = s.transform == "tf_crop_and_resize" and not (roi[i] == 0 and roi[#axes + i] == 1)
    if out[d] ~= y:size(d) or factors[i] ~= 1 or crops then
      if sizes and not scales and s.transform == "half_pixel_symmetric" then s.length = out[d] end
      y = (mode == "nearest" and pick or blend)(y, d, s, y:size(d), out[d])
    end
  end
  return y
end

local function floats(c, t)
  c:known(t)
  return core.untraced(function() return t:reshape { t:numel() }:to("float64"):totable() end)
end

local function resize(x, a, c)
  if c.opset < 11 then
    local b = { mode = a.mode, coordinate_transformation_mode = "asymmetric", nearest_mode = "floor" }
    return resize_with(x[1], b, floats(c, x[2]))
  end
  local roi = x[2] and x[2]:numel() > 0 and floats(c, x[2]) or nil
  local scales = x[3] and x[3]:numel() > 0 and floats(c, x[3]) or nil
  return resize_with(x[1], a, scales, not scales and c:ints(x[4]) or nil, roi)
end

return function(ops)
  ops.Resize = resize
  ops.Upsample = function(x, a, c)
    local scales = c.opset >= 9 and floats(c, x[2]) or a.scales or { 1, 1, a.height_scale, a.width_scale }
    return resize_with(x[1], { mode = a.mode, coordinate_transformation_mode = "asymmetric", nearest_mode = "floor" }, scales)
  end
  return ops
end
