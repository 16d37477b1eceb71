--- Tables of vectors, looked up by number. Ids are 1-based, and so is padding_idx, whose row gets no gradient.
local sc = require "sconce"
local fault = require "sconce.fault"
local layer = require "sconce.nn.layer"
local init = require "sconce.nn.initial"
local Parameter = require "sconce.nn.module".Parameter

local F = sc.functional
local L = {}

local function make_table(self, o)
  layer.at_least(self.__name, 0, o, "num_embeddings", "embedding_dim")
  local pad = o.padding_idx
  if pad and (pad == 0 or pad > o.num_embeddings or pad < -o.num_embeddings) then
    fault.raise(self.__name, "padding_idx: %d is out of range for %d rows", pad, o.num_embeddings)
  end
  if pad and pad < 0 then rawset(self, "padding_idx", o.num_embeddings + 1 + pad) end
  local w = init.normal_(sc.empty({ o.num_embeddings, o.embedding_dim }))
  if pad then sc.no_grad(function() w:narrow(1, self.padding_idx, 1):fill_(0) end) end
  self.weight = Parameter(w)
end

local function pretrained(C, name)
  --- A layer around a table that exists; freeze (the default) leaves it out of training.
  function C.from_pretrained(weight, options)
    options = options or {}
    if not sc.is_tensor(weight) or weight:dim() ~= 2 then
      fault.raise(name, "from_pretrained: expected a tensor of 2 dimensions, got %s", fault.describe(weight))
    end
    local o = {}
    for k, v in pairs(options) do if k ~= "freeze" then o[k] = v end end
    o.num_embeddings, o.embedding_dim = weight:size(1), weight:size(2)
    local self = C(o)
    self.weight = Parameter(weight, options.freeze == false)
    return self
  end
end

L.Embedding = layer("Embedding", { "num_embeddings:int", "embedding_dim:int", "padding_idx:int?", "max_norm:number?",
  { "norm_type:number", 2 },
  { "scale_grad_by_freq:boolean", false }, { "sparse:boolean", false } })
L.Embedding.build = make_table
pretrained(L.Embedding, "Embedding")
local embedding
function L.Embedding:forward(ids)
  embedding = embedding or F.embedding
  if not (self.padding_idx or self.max_norm or self.scale_grad_by_freq) then return embedding(ids, self.weight) end
  return embedding(ids, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)
end

--- Sums, means or maxima of bags of rows. ids [B, N], or [N] with the offsets [B] at which bags begin (1-based).
L.EmbeddingBag = layer("EmbeddingBag", { "num_embeddings:int", "embedding_dim:int", "max_norm:number?", { "norm_type:number", 2 },
  { "scale_grad_by_freq:boolean", false }, { "mode:string", "mean" }, { "sparse:boolean", false }, { "include_last_offset:boolean", false },
  "padding_idx:int?" })
L.EmbeddingBag.build = make_table
pretrained(L.EmbeddingBag, "EmbeddingBag")
function L.EmbeddingBag:forward(ids, offsets, per_sample_weights)
  return F.embedding_bag(ids, self.weight, { offsets = offsets, max_norm = self.max_norm, norm_type = self.norm_type,
    scale_grad_by_freq = self.scale_grad_by_freq, mode = self.mode, per_sample_weights = per_sample_weights,
    include_last_offset = self.include_last_offset, padding_idx = self.padding_idx })
end

return L
