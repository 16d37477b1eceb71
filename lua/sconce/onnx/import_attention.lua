--- ONNX's Attention (opset 23 on) and RotaryEmbedding, written over ordinary ops.
local sc = require "sconce"
local core = require "sconce.core"

local function heads(t, n) -- [B, L, n E] -> [B, n, L, E]
  if t:dim() == 4 then return t end
  return t:reshape { t:size(1), t:size(2), n, t:size(3) // n }:transpose(2, 3)
end

--- Each head n times, side by side.
local function spread(t, n)
  if n == 1 then return t end
  local B, H, S, E = table.unpack(t.shape)
  return t:reshape { B, H, 1, S, E }:expand { B, H, n, S, E }:reshape { B, H * n, S, E }
end

--- What may be looked at: true, or false for keys after the query; nil when all may. past: keys before the first query, a number or [B].
local function causal(L, S, past)
  return core.untraced(function()
    return sc.arange(0, S):reshape { 1, S }:le(sc.arange(0, L):reshape { L, 1 } + (past or 0))
  end)
end

local function mask_of(mask, S)
  if mask and mask:size(-1) < S then
    local rest = S - mask:size(-1)
    if mask.dtype == "bool" then return sc.functional.pad(mask:to("uint8"), { 0, rest }):to("bool") end
    return sc.functional.pad(mask, { 0, rest }, "constant", -math.huge)
  end
  return mask
end

local function attention(x, a, c)
  local flat = x[1]:dim() == 3
  local q, k, v = heads(x[1], a.q_num_heads or 1), heads(x[2], a.kv_num_heads or 1), heads(x[3], a.kv_num_heads or 1)
  if x[5] then k = sc.cat({ x[5], k }, 3) end
  if x[6] then v = sc.cat({ x[6], v }, 3) end
  local present_k, present_v, dtype = k, v, q.dtype
  local L, S = q:size(3), k:size(3)
  local n = q:size(2) // k:size(2)
  k, v = spread(k, n), spread(v, n)
  local scale = math.sqrt(a.scale or 1 / math.sqrt(q:size(4)))
  local scores = (q * scale):matmul((k * scale):transpose(3, 4))
  local stage = { [0] = scores }
  if a.softcap and a.softcap ~= 0 then scores = (scores / a.softcap):tanh() * a.softcap end
  stage[1] = scores
  local function close(open) scores = sc.where(open, scores, sc.full({}, -math.huge, { dtype = dtype })) end
  local lengths, masked = x[7], false
  local mask = mask_of(x[4], S)
  if mask then
    masked = true
    if mask.dtype == "bool" then close(mask) else scores = scores + mask end
  end
  if lengths then
    masked = true
    local per = lengths:to("int64"):reshape { lengths:numel(), 1, 1, 1 }
    local column = core.untraced(function() return sc.arange(0, S):reshape { 1, 1, 1, S } end)
    close(column:lt(per))
    if a.is_causal == 1 then
      local row = core.untraced(function() return sc.arange(0, L):reshape { 1, 1, L, 1 } end)
      close(column:le(row + per - L))
    end
  elseif a.is_causal == 1 then
    masked = true
    close(causal(L, S, x[5] and x[5]:size(3) or 0))
  end
  stage[2] = scores
  local precision = a.softmax_precision and core.onnx_dtype(a.softmax_precision)
  local p = precision and precision ~= dtype and scores:to(precision):softmax(4):to(dtype) or scores:softmax(4)
  if masked then p = sc.where(p:isnan(), sc.zeros_like(p), p) end
  stage[3] = p
  local y = p:matmul(v)
  if flat then y = y:transpose(2, 3):reshape { y:size(1), L, y:size(2) * y:size(4) } end
  return y, present_k, present_v, c.n_out > 3 and stage[a.qk_matmul_output_mode or 0] or nil
end

local function rotary(x, a)
  local y, flat = x[1], x[1]:dim() == 3
  local original = y.shape
  if flat then y = y:reshape { y:size(1), y:size(2), a.num_heads, y:size(3) // a.num_heads } else y = y:transpose(2, 3) end
  local E = y:size(4)
  local R = a.rotary_embedding_dim and a.rotary_embedding_dim ~= 0 and a.rotary_embedding_dim or E
  local turned, rest = y:narrow(4, 1, R), y:narrow(4, R + 1, E - R)
  local cos, sin = x[2], x[3]
  if x[4] then
    local ids = x[4]:to("int64")
    local shape = { ids:size(1), ids:size(2), cos:size(2) }
    local list = ids:reshape { ids:numel() } + 1
    cos, sin = cos:index_select(1, list):reshape(shape), sin:index_select(1, list):reshape(shape)
  end
  cos, sin = cos:narrow(3, 1, R // 2):unsqueeze(3), sin:narrow(3, 1, R // 2):unsqueeze(3)
  local p, q
  if a.interleaved == 1 then
    local pairs_of = turned:reshape { y:size(1), y:size(2), y:size(3), R // 2, 2 }
    p, q = pairs_of:select(5, 1), pairs_of:select(5, 2)
  else
    p, q = turned:narrow(4, 1, R // 2), turned:narrow(4, R // 2 + 1, R // 2)
  end
  local real, imaginary = p * cos - q * sin, p * sin + q * cos
  local out
  if a.interleaved == 1 then out = sc.stack({ real, imaginary }, 5):reshape(turned.shape) else out = sc.cat({ real, imaginary }, 4) end
  if R < E then out = sc.cat({ out, rest }, 4) end
  return flat and out:reshape(original) or out:transpose(2, 3)
end

return function(ops)
  ops.Attention, ops.RotaryEmbedding = attention, rotary
  return ops
end
