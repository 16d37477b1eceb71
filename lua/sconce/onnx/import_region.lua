--- ONNX's operators that read an image between its pixels at places of their own: RoiAlign, DeformConv; and BitCast.
local sc = require "sconce"
local core = require "sconce.core"

-- ---------------------------------------------------------------- RoiAlign

--- The four neighbours of a place in a plane of H by W, as flat positions from 1, and their weights; a place far outside has none.
local function neighbours(y, x, H, W, index, weight)
  local n = #index
  if y < -1 or y > H or x < -1 or x > W then
    for i = 1, 4 do index[n + i], weight[n + i] = 1, 0.0 end
    return
  end
  y, x = math.max(y, 0), math.max(x, 0)
  local top, left = math.floor(y), math.floor(x)
  local bottom, right = top + 1, left + 1
  if top >= H - 1 then top, bottom, y = H - 1, H - 1, H - 1.0 end
  if left >= W - 1 then left, right, x = W - 1, W - 1, W - 1.0 end
  local dy, dx = y - top, x - left
  index[n + 1], weight[n + 1] = top * W + left + 1, (1 - dy) * (1 - dx)
  index[n + 2], weight[n + 2] = top * W + right + 1, (1 - dy) * dx
  index[n + 3], weight[n + 3] = bottom * W + left + 1, dy * (1 - dx)
  index[n + 4], weight[n + 4] = bottom * W + right + 1, dy * dx
end

local function one_region(X, box, a, half, mode)
  local C, H, W, rows, columns = X:size(1), X:size(2), X:size(3), a.output_height or 1, a.output_width or 1
  local scale, shift = a.spatial_scale or 1.0, half and 0.5 or 0
  local x1, y1, x2, y2 = box[1] * scale - shift, box[2] * scale - shift, box[3] * scale - shift, box[4] * scale - shift
  local height, width = y2 - y1, x2 - x1
  if not half then height, width = math.max(height, 1.0), math.max(width, 1.0) end
  local ratio = a.sampling_ratio or 0
  local ny = ratio > 0 and ratio or math.max(1, math.ceil(height / rows))
  local nx = ratio > 0 and ratio or math.max(1, math.ceil(width / columns))
  local index, weight = {}, {}
  for i = 0, rows - 1 do
    for j = 0, columns - 1 do
      for p = 0, ny - 1 do
        for q = 0, nx - 1 do
          neighbours(y1 + (i + (p + 0.5) / ny) * height / rows, x1 + (j + (q + 0.5) / nx) * width / columns, H, W, index, weight)
        end
      end
    end
  end
  local read = X:reshape { C, H * W }:index_select(2, sc.tensor(index)) * sc.tensor(weight, { dtype = X.dtype })
  read = read:reshape { C, rows * columns, ny * nx, 4 }
  local y
  if mode == "max" then y = read:amax(4):amax(3) else y = read:sum(4):mean(3) end
  return y:reshape { C, rows, columns }
end

local function roi_align(x, a, c)
  local X, boxes, at = x[1], c:now(function() return c:known(x[2]):double():totable() end), c:ints(x[3])
  local half = (a.coordinate_transformation_mode or (c.opset >= 16 and "half_pixel" or "output_half_pixel")) == "half_pixel"
  local list = {}
  for i, box in ipairs(boxes) do list[i] = one_region(X:select(1, at[i] + 1), box, a, half, a.mode or "avg") end
  if #list == 0 then return sc.zeros({ 0, X:size(2), a.output_height or 1, a.output_width or 1 }, { dtype = X.dtype }) end
  return sc.stack(list, 1)
end

-- ---------------------------------------------------------------- DeformConv

--- A frame of zeros around the image keeps the places between -1 and its size inside; farther ones read zeros.
local function deform_conv(x, a)
  local X, weight, offset, bias, mask = x[1], x[2], x[3], x[4], x[5]
  local N, C, H, W = table.unpack(X.shape)
  if X:dim() ~= 4 then error("other than two dimensions is not supported", 0) end
  local O, kh, kw = weight:size(1), weight:size(3), weight:size(4)
  local stride, dilation, pads = a.strides or { 1, 1 }, a.dilations or { 1, 1 }, a.pads or { 0, 0, 0, 0 }
  local groups, fields = a.group or 1, a.offset_group or 1
  local rows, columns, K, part = offset:size(3), offset:size(4), kh * kw, C // fields
  local framed = sc.nn.functional.pad(X, { 1, 1, 1, 1 })
  local off = offset:reshape { N, fields, K, 2, rows, columns }
  local keep = mask and mask:reshape { N, fields, K, 1, rows, columns }
  local base_y, base_x = core.untraced(function()
    return (sc.arange(0, rows) * stride[1] - pads[1]):to(X.dtype):reshape { rows, 1 },
      (sc.arange(0, columns) * stride[2] - pads[2]):to(X.dtype):reshape { 1, columns }
  end)
  local read = {}
  for f = 1, fields do
    local image = framed:narrow(2, (f - 1) * part + 1, part)
    for k = 1, K do
      local at = off:select(2, f):select(2, k)            -- [N, 2, rows, columns]
      local y = at:select(2, 1) + base_y + ((k - 1) // kw * dilation[1] + 1)
      local z = at:select(2, 2) + base_x + ((k - 1) % kw * dilation[2] + 1)
      local grid = sc.stack({ z * (2 / (W + 1)) - 1, y * (2 / (H + 1)) - 1 }, -1)
      local v = sc.nn.functional.grid_sample(image, grid, { mode = "bilinear", padding_mode = "zeros", align_corners = true })
      if keep then v = v * keep:select(2, f):select(2, k) end
      read[#read + 1] = v                                  -- [N, part, rows, columns]
    end
  end
  local all = sc.stack(read, 2):reshape { N, fields, K, part, rows * columns }:transpose(3, 4)
  all = all:reshape { N, groups, C // groups * K, rows * columns }
  local y = weight:reshape { 1, groups, O // groups, C // groups * K }:matmul(all):reshape { N, O, rows, columns }
  return bias and y + bias:reshape { 1, O, 1, 1 } or y
end

-- ---------------------------------------------------------------- bits

local function bit_cast(x, a, c)
  local dtype = core.onnx_dtype(a.to) or error("element type " .. tostring(a.to) .. " is not supported", 0)
  local t = c:known(x[1]):contiguous()
  return sc.from_string(t:tostring_bytes(), t.shape, dtype)
end

return function(ops)
  ops.RoiAlign, ops.DeformConv, ops.BitCast = roi_align, deform_conv, bit_cast
  return ops
end
