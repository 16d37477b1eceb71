--- Losses as layers: the functions of nn.functional with their options kept. Weights are buffers.
local sc = require "sconce"
local layer = require "sconce.nn.layer"

local F = sc.functional
local L = {}

local REDUCTION = { "reduction:string", "mean" }

-- layer -> function, options, number of tensors the call takes
local TABLE = {
  { "MSELoss", "mse_loss", { REDUCTION } },
  { "L1Loss", "l1_loss", { REDUCTION } },
  { "SmoothL1Loss", "smooth_l1_loss", { REDUCTION, { "beta:number", 1.0 } } },
  { "HuberLoss", "huber_loss", { REDUCTION, { "delta:number", 1.0 } } },
  { "CrossEntropyLoss", "cross_entropy", { "weight?", { "ignore_index:int", -100 }, REDUCTION, { "label_smoothing:number", 0.0 } } },
  { "NLLLoss", "nll_loss", { "weight?", { "ignore_index:int", -100 }, REDUCTION } },
  { "BCELoss", "binary_cross_entropy", { "weight?", REDUCTION } },
  { "BCEWithLogitsLoss", "binary_cross_entropy_with_logits", { "weight?", REDUCTION, "pos_weight?" } },
  { "KLDivLoss", "kl_div", { REDUCTION, { "log_target:boolean", false } } },
  { "PoissonNLLLoss", "poisson_nll_loss", { { "log_input:boolean", true }, { "full:boolean", false }, { "eps:number", 1e-8 }, REDUCTION } },
  { "GaussianNLLLoss", "gaussian_nll_loss", { { "full:boolean", false }, { "eps:number", 1e-6 }, REDUCTION } },
  { "SoftMarginLoss", "soft_margin_loss", { REDUCTION } },
  { "HingeEmbeddingLoss", "hinge_embedding_loss", { { "margin:number", 1.0 }, REDUCTION } },
  { "MarginRankingLoss", "margin_ranking_loss", { { "margin:number", 0.0 }, REDUCTION } },
  { "CosineEmbeddingLoss", "cosine_embedding_loss", { { "margin:number", 0.0 }, REDUCTION } },
  { "TripletMarginLoss", "triplet_margin_loss", { { "margin:number", 1.0 }, { "p:number", 2.0 }, { "eps:number", 1e-6 }, { "swap:boolean",
    false }, REDUCTION } },
  { "MultiMarginLoss", "multi_margin_loss", { { "p:int", 1 }, { "margin:number", 1.0 }, "weight?", REDUCTION } },
  { "MultiLabelMarginLoss", "multilabel_margin_loss", { REDUCTION } },
  { "MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", { "weight?", REDUCTION } },
  { "CTCLoss", "ctc_loss", { { "blank:int", 1 }, REDUCTION, { "zero_infinity:boolean", false } } },
}

for _, row in ipairs(TABLE) do
  local name, fn, params = row[1], row[2], row[3]
  local C = layer(name, params)
  C._of = fn -- for the help
  L[name] = C
  local names = {}
  for i, p in ipairs(params) do names[i] = (type(p) == "table" and p[1] or p):match("^[%w_]+") end
  function C:build(o)
    for _, buffer in ipairs { "weight", "pos_weight" } do
      if o[buffer] then
        rawset(self, buffer, nil)
        self:register_buffer(buffer, o[buffer])
      end
    end
    if self.reduction ~= "mean" and self.reduction ~= "sum" and self.reduction ~= "none" and not (fn == "kl_div" and self.reduction ==
      "batchmean") then
      require("sconce.fault").raise(name, "reduction: expected \"none\", \"mean\" or \"sum\", got %q", self.reduction)
    end
    local options = {}
    for _, n in ipairs(names) do if n ~= "weight" and n ~= "pos_weight" then options[n] = self[n] end end
    rawset(self, "_options", options)
  end
  local f
  function C:forward(...)
    f = f or F[fn]
    local options = self._options
    if self.weight or self.pos_weight then
      options = {}
      for k, v in pairs(self._options) do options[k] = v end
      options.weight, options.pos_weight = self.weight, self.pos_weight
    end
    local n = select("#", ...)
    if n == 2 then
      local x, t = ...
      return f(x, t, options)
    elseif n == 3 then
      local x, t, u = ...
      return f(x, t, u, options)
    end
    local x, t, u, v = ...
    return f(x, t, u, v, options)
  end
end

return L
