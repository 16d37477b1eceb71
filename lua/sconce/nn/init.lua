--- nn: modules. `sc.nn.functional` holds the stateless ops.
---   local net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
---   local y = net(x)
local sc = require "sconce"
local fault = require "sconce.fault"
local module = require "sconce.nn.module"

local nn = {
  functional = sc.functional,
  Module = module.Module, Parameter = module.Parameter, class = module.class, is_module = module.is_module,
  init = require "sconce.nn.initial",
  utils = require "sconce.nn.utils",
}

--- A copy of a module with tensors of its own.
function nn.clone(m)
  if not module.is_module(m) then fault.raise("clone", "argument 1: expected a module, got %s", fault.describe(m)) end
  return m:clone()
end

for _, family in ipairs { "linear", "conv", "pooling", "norm", "embedding", "activation", "dropout", "container", "rnn", "attention",
  "transformer", "vision", "loss" } do
  for name, class in pairs(require("sconce.nn." .. family)) do nn[name] = class end
end

for _, space in ipairs { "init", "utils" } do
  setmetatable(nn[space], { __index = function(t, name) return require("sconce.help").missing("nn." .. space, name, t) end })
end

return setmetatable(nn, { __index = function(t, name) return require("sconce.help").missing("nn", name, t) end })
