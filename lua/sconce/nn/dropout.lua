--- Dropout: in training each element (or channel) is zeroed with probability p and the rest scaled up; in eval nothing happens.
--- Source: Srivastava et al. 2014, "Dropout: a simple way to prevent neural networks from overfitting".
local sc = require "sconce"
local fault = require "sconce.fault"
local layer = require "sconce.nn.layer"

local F = sc.functional
local L = {}

for name, fn in pairs { Dropout = "dropout", Dropout1d = "dropout1d", Dropout2d = "dropout2d", Dropout3d = "dropout3d",
  AlphaDropout = "alpha_dropout", FeatureAlphaDropout = "feature_alpha_dropout" } do
  local C = layer(name, { { "p:number", 0.5 }, { "inplace:boolean", false } })
  L[name] = C
  function C.build(_, o)
    if not (o.p >= 0 and o.p <= 1) then fault.raise(name, "p: expected a probability from 0 to 1, got %s", tostring(o.p)) end
  end
  function C:forward(x)
    if not self.training or self.p == 0 then return x end
    return F[fn](x, self.p, true)
  end
end

return L
