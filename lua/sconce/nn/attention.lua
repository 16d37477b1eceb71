--- Attention over several heads. L: target length, S: source length, N: batch, E: embed_dim, H: heads.
--- Source: Vaswani et al. 2017, "Attention is all you need", section 3.2.2.
local sc = require "sconce"
local fault = require "sconce.fault"
local layer = require "sconce.nn.layer"
local linear_layers = require "sconce.nn.linear"
local init = require "sconce.nn.initial"
local Parameter = require "sconce.nn.module".Parameter

local F = sc.functional
local L = {}

--- query [L, N, E], key [S, N, kdim], value [S, N, vdim] ([N, L, E] … with batch_first; [L, E] … for a single sequence)
---   -> y like query, weights [N, L, S] ([N, H, L, S] with average_attn_weights = false), nil with need_weights = false
--- Masks: true hides a position, numbers are added to the scores. A row with nothing to look at gives zeros.
L.MultiheadAttention = layer("MultiheadAttention", { "embed_dim:int", "num_heads:int", { "dropout:number", 0 }, { "bias:boolean", true },
  { "add_bias_kv:boolean", false }, { "add_zero_attn:boolean", false }, "kdim:int?", "vdim:int?", { "batch_first:boolean", false } })
local MHA = L.MultiheadAttention

function MHA:build(o)
  layer.at_least("MultiheadAttention", 1, o, "embed_dim", "num_heads")
  local E = o.embed_dim
  if E % o.num_heads ~= 0 then fault.raise("MultiheadAttention", "num_heads: %d does not divide embed_dim, %d", o.num_heads, E) end
  rawset(self, "kdim", o.kdim or E)
  rawset(self, "vdim", o.vdim or E)
  rawset(self, "_same", self.kdim == E and self.vdim == E)
  if self._same then
    self.in_proj_weight = Parameter(init.xavier_uniform_(sc.empty({ 3 * E, E })))
  else
    self.q_proj_weight = Parameter(init.xavier_uniform_(sc.empty({ E, E })))
    self.k_proj_weight = Parameter(init.xavier_uniform_(sc.empty({ E, self.kdim })))
    self.v_proj_weight = Parameter(init.xavier_uniform_(sc.empty({ E, self.vdim })))
  end
  if o.bias then self.in_proj_bias = Parameter(sc.zeros({ 3 * E })) end
  self.out_proj = linear_layers.Linear(E, E, o.bias)
  if o.bias then init.zeros_(self.out_proj.bias) end
  if o.add_bias_kv then
    self.bias_k = Parameter(init.xavier_normal_(sc.empty({ 1, 1, E })))
    self.bias_v = Parameter(init.xavier_normal_(sc.empty({ 1, 1, E })))
  end
end

--- The three projections, [T, N, E] each.
local function project(self, q, k, v)
  local E, w, b = self.embed_dim, self.in_proj_weight, self.in_proj_bias
  if self._same and q == k and k == v then
    local all = F.linear(q, w, b)
    local d = all:dim()
    return all:narrow(d, 1, E), all:narrow(d, E + 1, E), all:narrow(d, 2 * E + 1, E)
  end
  local out = {}
  local separate = { self.q_proj_weight, self.k_proj_weight, self.v_proj_weight }
  for i, x in ipairs { q, k, v } do
    local at = (i - 1) * E + 1
    out[i] = F.linear(x, w and w:narrow(1, at, E) or separate[i], b and b:narrow(1, at, E))
  end
  return out[1], out[2], out[3]
end

--- A mask as what is added to scores, and whether it came as truth values.
local function additive(mask, dtype)
  if mask.dtype ~= "bool" and mask.dtype ~= "uint8" then return mask:to(dtype) end
  return sc.where(mask:to("bool"), -math.huge, 0.0):to(dtype)
end

--- Both masks as one, [N or 1, H or 1, L, S].
local function joined_mask(self, attn_mask, padding, N, length, S, dtype)
  local mask
  if attn_mask then
    local d = attn_mask:dim()
    local shape = attn_mask.shape
    if d == 2 and shape[1] == length and shape[2] == S then mask = additive(attn_mask, dtype):view(1, 1, length, S)
    elseif d == 3 and shape[1] == N * self.num_heads and shape[2] == length and shape[3] == S then
      mask = additive(attn_mask, dtype):view(N, self.num_heads, length, S)
    else
      fault.raise("MultiheadAttention", "attn_mask: expected shape {%d, %d} or {%d, %d, %d}, got {%s}", length, S, N * self.num_heads,
        length, S,
        table.concat(shape, ", "))
    end
  end
  if padding then
    if padding:dim() == 1 then padding = padding:unsqueeze(1) end
    if padding:dim() ~= 2 or padding:size(1) ~= N or padding:size(2) ~= S then
      fault.raise("MultiheadAttention", "key_padding_mask: expected shape {%d, %d}, got {%s}", N, S, table.concat(padding.shape, ", "))
    end
    local p = additive(padding, dtype):view(N, 1, 1, S)
    mask = mask and mask + p or p
  end
  return mask
end

--- Softmax of scores + mask in which a row that is hidden altogether becomes zeros, its gradient too.
local function masked_softmax(scores, mask)
  if not mask then return scores:softmax(-1) end
  local hidden = mask:eq(-math.huge):all(-1, true)
  return sc.where(hidden, 0.0, (scores + sc.where(hidden, 0.0, mask)):softmax(-1))
end

local read = fault.reader("MultiheadAttention", { "query", "key", "value", "key_padding_mask?", { "need_weights:boolean", true },
  "attn_mask?",
  { "average_attn_weights:boolean", true }, { "is_causal:boolean", false } })

function MHA:forward(...)
  local o = read(...)
  local q, k, v = o.query, o.key, o.value
  for _, n in ipairs { "query", "key", "value" } do fault.expect("MultiheadAttention", n, "tensor", o[n]) end
  local alone = q:dim() == 2
  if q:dim() ~= 2 and q:dim() ~= 3 then fault.raise("MultiheadAttention", "query: expected 2 or 3 dimensions, got %d", q:dim()) end
  if k:dim() ~= q:dim() or v:dim() ~= q:dim() then
    fault.raise("MultiheadAttention", "query, key and value must have as many dimensions")
  end
  if q:size(-1) ~= self.embed_dim then
    fault.raise("MultiheadAttention", "query: expected a last size of %d, got %d", self.embed_dim, q:size(-1))
  end
  local same = q == k and k == v
  local front = self.batch_first and not alone
  local function arrange(t)
    if alone then return t:unsqueeze(1) end
    return front and t or t:transpose(1, 2)
  end
  q = arrange(q)                                        -- [N, L, E] from here on
  k, v = same and q or arrange(k), same and q or arrange(v)
  local N, length, S, H, E = q:size(1), q:size(2), k:size(2), self.num_heads, self.embed_dim
  q, k, v = project(self, q, k, v)
  local attn_mask, padding = o.attn_mask, o.key_padding_mask
  if self.bias_k then
    k = sc.cat({ k, self.bias_k:expand(N, 1, E) }, 2)
    v = sc.cat({ v, self.bias_v:expand(N, 1, E) }, 2)
    if attn_mask then attn_mask = F.pad(attn_mask, { 0, 1 }) end
    if padding then padding = F.pad(padding, { 0, 1 }) end
    S = S + 1
  end
  if self.add_zero_attn then
    k = sc.cat({ k, sc.zeros({ N, 1, E }, { dtype = k.dtype }) }, 2)
    v = sc.cat({ v, sc.zeros({ N, 1, E }, { dtype = v.dtype }) }, 2)
    if attn_mask then attn_mask = F.pad(attn_mask, { 0, 1 }) end
    if padding then padding = F.pad(padding, { 0, 1 }) end
    S = S + 1
  end
  local function heads(t, n) return t:reshape(N, n, H, E // H):transpose(2, 3) end -- [N, H, n, E/H]
  q, k, v = heads(q, length), heads(k, S), heads(v, S)
  if o.is_causal and not attn_mask then attn_mask = sc.ones({ length, S }, { dtype = "bool" }):triu(1) end
  local mask = joined_mask(self, attn_mask, padding, N, length, S, q.dtype)
  local p = self.training and self.dropout or 0
  local y, w
  if o.need_weights then
    w = masked_softmax(q:matmul(k:transpose(-2, -1)) * (1 / math.sqrt(E // H)), mask)
    if p > 0 then w = F.dropout(w, p, true) end
    y = w:matmul(v)
    if o.average_attn_weights then w = w:mean(2) end
    if alone then w = w:squeeze(1) end
  else
    y = F.scaled_dot_product_attention(q, k, v, { attn_mask = mask, dropout_p = p })
  end
  y = self.out_proj(y:transpose(2, 3):reshape(N, length, E))
  if alone then y = y:squeeze(1) elseif not front then y = y:transpose(1, 2) end
  return y, w
end

return L
