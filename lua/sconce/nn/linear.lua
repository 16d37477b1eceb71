--- Affine layers, and layers that only change shapes.
local sc = require "sconce"
local layer = require "sconce.nn.layer"
local init = require "sconce.nn.initial"
local Parameter = require "sconce.nn.module".Parameter

local F, linear = sc.functional, sc.functional.linear
local L = {}

--- y = x Wᵀ + b. Weight and bias begin uniform in ±1/√in_features.
--- x: [*, in_features] -> [*, out_features]
L.Linear = layer("Linear", { "in_features:size", "out_features:size", { "bias:boolean", true } })
function L.Linear:build(o)
  local bound = o.in_features > 0 and 1 / math.sqrt(o.in_features) or 0
  self.weight = Parameter(init.uniform_(sc.empty({ o.out_features, o.in_features }), -bound, bound))
  if o.bias then self.bias = Parameter(init.uniform_(sc.empty({ o.out_features }), -bound, bound)) end
end
function L.Linear:forward(x) return linear(x, self.weight, self.bias) end

--- y = x1ᵀ W x2 + b.
L.Bilinear = layer("Bilinear", { "in1_features:int", "in2_features:int", "out_features:int", { "bias:boolean", true } })
function L.Bilinear:build(o)
  layer.at_least("Bilinear", 1, o, "in1_features")
  local bound = 1 / math.sqrt(o.in1_features)
  self.weight = Parameter(init.uniform_(sc.empty({ o.out_features, o.in1_features, o.in2_features }), -bound, bound))
  if o.bias then self.bias = Parameter(init.uniform_(sc.empty({ o.out_features }), -bound, bound)) end
end
function L.Bilinear:forward(x1, x2) return F.bilinear(x1, x2, self.weight, self.bias) end

--- Gives back what it gets; any arguments are accepted.
L.Identity = require "sconce.nn.module".class("Identity")
function L.Identity.forward(_, ...) return ... end

--- Joins dimensions start_dim to end_dim; the first stays apart unless told otherwise.
L.Flatten = layer("Flatten", { { "start_dim:int", 2 }, { "end_dim:int", -1 } })
function L.Flatten:forward(x) return sc.flatten(x, self.start_dim, self.end_dim) end

--- Splits a dimension into sizes.
L.Unflatten = layer("Unflatten", { "dim:int", "unflattened_size:table" })
function L.Unflatten:forward(x) return sc.unflatten(x, self.dim, self.unflattened_size) end

return L
