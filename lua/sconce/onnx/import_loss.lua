--- ONNX's losses over classes, and a few operators of vision. Class numbers are 0-based.
local sc = require "sconce"

--- Classes along dim 2 of log-probabilities y [N, C, …]; target [N, …].
local function nll(y, target, weight, a)
  local rank = y:dim()
  local C = y:size(2)
  local ignore = a.ignore_index
  target = target:to("int64")
  local live = ignore and target:ne(ignore) or nil
  local place = live and sc.where(live, target, sc.zeros_like(target)) or target
  place = sc.where(place:lt(0), place + C, place)
  local loss = -y:gather(2, place:unsqueeze(2) + 1):squeeze(2)
  local each
  if weight then
    each = weight:index_select(1, place:reshape { place:numel() } + 1):reshape(place.shape)
  end
  if live then
    local mask = live:to(y.dtype)
    each = each and each * mask or mask
  end
  if each then loss = sc.where(each:eq(0), sc.zeros_like(loss), loss * each) end
  local reduction = a.reduction or "mean"
  if reduction == "none" then return loss end
  if reduction == "sum" then return loss:sum() end
  if reduction ~= "mean" then error("reduction " .. tostring(reduction) .. " is not supported", 0) end
  if each then return loss:sum() / each:sum() end
  return rank >= 2 and loss:mean() or loss
end

local function cross_entropy(x, a)
  local y = x[1]:log_softmax(2)
  return nll(y, x[2], x[3], a), y
end

local function col2im(x, a, c)
  local image, block = c:ints(x[2]), c:ints(x[3])
  if #image ~= 2 then error("other than two dimensions is not supported", 0) end
  local pads = a.pads or { 0, 0, 0, 0 }
  if pads[1] ~= pads[3] or pads[2] ~= pads[4] then error("different padding at both ends is not supported", 0) end
  return sc.functional.fold(x[1], image, block,
    { dilation = a.dilations or { 1, 1 }, padding = { pads[1], pads[2] }, stride = a.strides or { 1, 1 } })
end

return function(ops)
  ops.NegativeLogLikelihoodLoss = function(x, a) return nll(x[1], x[2], x[3], a) end
  ops.SoftmaxCrossEntropyLoss, ops.Col2Im = cross_entropy, col2im
  return ops
end
