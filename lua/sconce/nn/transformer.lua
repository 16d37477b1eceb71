--- Transformer blocks. Shapes as MultiheadAttention's: [T, N, E], or [N, T, E] with batch_first.
--- Sources: Vaswani et al. 2017, "Attention is all you need"; norm_first: Xiong et al. 2020, "On layer normalization in the transformer
--- architecture".
local sc = require "sconce"
local fault = require "sconce.fault"
local layer = require "sconce.nn.layer"
local init = require "sconce.nn.initial"
local module = require "sconce.nn.module"
local Linear = require "sconce.nn.linear".Linear
local Dropout = require "sconce.nn.dropout".Dropout
local LayerNorm = require "sconce.nn.norm".LayerNorm
local MultiheadAttention = require "sconce.nn.attention".MultiheadAttention
local ModuleList = require "sconce.nn.container".ModuleList

local F = sc.functional
local L = {}

local function activation(what, a)
  if type(a) == "function" or type(a) == "table" then return a end
  if a ~= "relu" and a ~= "gelu" then
    fault.raise(what, "activation: expected \"relu\", \"gelu\" or a function, got %s", fault.describe(a))
  end
  return F[a]
end

local function block_params()
  return { "d_model:int", "nhead:int", { "dim_feedforward:int", 2048 }, { "dropout:number", 0.1 }, { "activation", "relu" },
    { "layer_norm_eps:number", 1e-5 }, { "batch_first:boolean", false }, { "norm_first:boolean", false } }
end

local function feed_forward(self, x)
  return self.linear2(self.dropout(self.activation(self.linear1(x))))
end

--- Self-attention, then a feed-forward net, each with a residual connection and a normalisation.
L.TransformerEncoderLayer = layer("TransformerEncoderLayer", block_params())
function L.TransformerEncoderLayer:build(o)
  rawset(self, "activation", activation(self.__name, o.activation))
  rawset(self, "dropout", nil)
  self.self_attn = MultiheadAttention(o.d_model, o.nhead, { dropout = o.dropout, batch_first = o.batch_first })
  self.linear1 = Linear(o.d_model, o.dim_feedforward)
  self.dropout = Dropout(o.dropout)
  self.linear2 = Linear(o.dim_feedforward, o.d_model)
  self.norm1 = LayerNorm(o.d_model, { eps = o.layer_norm_eps })
  self.norm2 = LayerNorm(o.d_model, { eps = o.layer_norm_eps })
  self.dropout1 = Dropout(o.dropout)
  self.dropout2 = Dropout(o.dropout)
end
local read_encode = fault.reader("TransformerEncoderLayer", { "src", "src_mask?", "src_key_padding_mask?", { "is_causal:boolean", false } })
function L.TransformerEncoderLayer:forward(...)
  local o = read_encode(...)
  local x = o.src
  local function attend(h)
    return self.dropout1((self.self_attn(h, h, h, { attn_mask = o.src_mask, key_padding_mask = o.src_key_padding_mask, need_weights = false,
      is_causal = o.is_causal })))
  end
  if self.norm_first then
    x = x + attend(self.norm1(x))
    return x + self.dropout2(feed_forward(self, self.norm2(x)))
  end
  x = self.norm1(x + attend(x))
  return self.norm2(x + self.dropout2(feed_forward(self, x)))
end

--- Self-attention, attention to the encoder's output, then a feed-forward net.
L.TransformerDecoderLayer = layer("TransformerDecoderLayer", block_params())
function L.TransformerDecoderLayer:build(o)
  rawset(self, "activation", activation(self.__name, o.activation))
  rawset(self, "dropout", nil)
  self.self_attn = MultiheadAttention(o.d_model, o.nhead, { dropout = o.dropout, batch_first = o.batch_first })
  self.multihead_attn = MultiheadAttention(o.d_model, o.nhead, { dropout = o.dropout, batch_first = o.batch_first })
  self.linear1 = Linear(o.d_model, o.dim_feedforward)
  self.dropout = Dropout(o.dropout)
  self.linear2 = Linear(o.dim_feedforward, o.d_model)
  for i = 1, 3 do self["norm" .. i] = LayerNorm(o.d_model, { eps = o.layer_norm_eps }) end
  for i = 1, 3 do self["dropout" .. i] = Dropout(o.dropout) end
end
local DECODE = { "tgt", "memory", "tgt_mask?", "memory_mask?", "tgt_key_padding_mask?", "memory_key_padding_mask?" }
local read_decode = fault.reader("TransformerDecoderLayer", DECODE)
function L.TransformerDecoderLayer:forward(...)
  local o = read_decode(...)
  local x = o.tgt
  local function own(h)
    return self.dropout1((self.self_attn(h, h, h, { attn_mask = o.tgt_mask, key_padding_mask = o.tgt_key_padding_mask, need_weights =
      false })))
  end
  local function other(h)
    return self.dropout2((self.multihead_attn(h, o.memory, o.memory, { attn_mask = o.memory_mask, key_padding_mask =
      o.memory_key_padding_mask,
      need_weights = false })))
  end
  if self.norm_first then
    x = x + own(self.norm1(x))
    x = x + other(self.norm2(x))
    return x + self.dropout3(feed_forward(self, self.norm3(x)))
  end
  x = self.norm1(x + own(x))
  x = self.norm2(x + other(x))
  return self.norm3(x + self.dropout3(feed_forward(self, x)))
end

local function stack(name)
  local C = layer(name, { "layer", "num_layers:int", "norm?" })
  L[name] = C
  function C:build(o)
    if not module.is_module(o.layer) then fault.raise(name, "argument 1: expected a layer, got %s", fault.describe(o.layer)) end
    rawset(self, "layer", nil)
    rawset(self, "norm", nil)
    self.layers = ModuleList()
    for _ = 1, o.num_layers do self.layers:append(o.layer:clone()) end
    if o.norm then self.norm = o.norm end
  end
  return C
end

--- num_layers copies of a layer, one after the other.
local Encoder = stack("TransformerEncoder")
local read_encoder = fault.reader("TransformerEncoder", { "src", "mask?", "src_key_padding_mask?", { "is_causal:boolean", false } })
function Encoder:forward(...)
  local o = read_encoder(...)
  local x = o.src
  for _, l in ipairs(self.layers) do
    x = l(x, { src_mask = o.mask, src_key_padding_mask = o.src_key_padding_mask, is_causal = o.is_causal })
  end
  return self.norm and self.norm(x) or x
end

--- num_layers copies of a decoder layer, one after the other, then a norm if there is one.
local Decoder = stack("TransformerDecoder")
local read_decoder = fault.reader("TransformerDecoder", DECODE)
function Decoder:forward(...)
  local o = read_decoder(...)
  local x, memory = o.tgt, o.memory
  o.tgt, o.memory = nil, nil
  for _, l in ipairs(self.layers) do x = next(o) and l(x, memory, o) or l(x, memory) end
  return self.norm and self.norm(x) or x
end

--- Encoder and decoder together.
L.Transformer = layer("Transformer", { { "d_model:int", 512 }, { "nhead:int", 8 }, { "num_encoder_layers:int", 6 },
  { "num_decoder_layers:int", 6 },
  { "dim_feedforward:int", 2048 }, { "dropout:number", 0.1 }, { "activation", "relu" }, { "layer_norm_eps:number", 1e-5 },
  { "batch_first:boolean", false }, { "norm_first:boolean", false } })
function L.Transformer:build(o)
  local options = { dim_feedforward = o.dim_feedforward, dropout = o.dropout, activation = o.activation, layer_norm_eps = o.layer_norm_eps,
    batch_first = o.batch_first, norm_first = o.norm_first }
  local function norm() return LayerNorm(o.d_model, { eps = o.layer_norm_eps }) end
  self.encoder = Encoder(L.TransformerEncoderLayer(o.d_model, o.nhead, options), o.num_encoder_layers, norm())
  self.decoder = Decoder(L.TransformerDecoderLayer(o.d_model, o.nhead, options), o.num_decoder_layers, norm())
  for _, p in ipairs(self:parameters()) do
    if p:dim() > 1 then init.xavier_uniform_(p) end
  end
end
local read_both = fault.reader("Transformer", { "src", "tgt", "src_mask?", "tgt_mask?", "memory_mask?", "src_key_padding_mask?",
  "tgt_key_padding_mask?", "memory_key_padding_mask?" })
function L.Transformer:forward(...)
  local o = read_both(...)
  local memory = self.encoder(o.src, o.src_mask, o.src_key_padding_mask)
  return self.decoder(o.tgt, memory, o.tgt_mask, o.memory_mask, o.tgt_key_padding_mask, o.memory_key_padding_mask)
end

--- A mask of numbers that lets position i look at 1 … i only.
function L.Transformer.generate_square_subsequent_mask(n)
  return sc.full({ n, n }, -math.huge):triu(1)
end

return L
