--- Activations as layers: what nn.functional has under the lower-case name, with the same arguments. inplace is accepted where PyTorch
--- has it; results are new tensors either way unless the op has an in-place form.
local sc = require "sconce"
local fault = require "sconce.fault"
local layer = require "sconce.nn.layer"
local init = require "sconce.nn.initial"
local Parameter = require "sconce.nn.module".Parameter

local F = sc.functional
local L = {}

local INPLACE = { "inplace:boolean", false }

-- name -> function, arguments (in the function's order), which of them the function takes
local TABLE = {
  { "ReLU", "relu", { INPLACE } },
  { "ReLU6", "relu6", { INPLACE } },
  { "SELU", "selu", { INPLACE } },
  { "SiLU", "silu", { INPLACE } },
  { "Mish", "mish", { INPLACE } },
  { "Hardswish", "hardswish", { INPLACE } },
  { "Hardsigmoid", "hardsigmoid", { INPLACE } },
  { "ELU", "elu", { { "alpha:number", 1.0 }, INPLACE } },
  { "CELU", "celu", { { "alpha:number", 1.0 }, INPLACE } },
  { "LeakyReLU", "leaky_relu", { { "negative_slope:number", 0.01 }, INPLACE } },
  { "Hardtanh", "hardtanh", { { "min_val:number", -1.0 }, { "max_val:number", 1.0 }, INPLACE } },
  { "Threshold", "threshold", { "threshold:number", "value:number", INPLACE } },
  { "GELU", "gelu", { { "approximate:string", "none" } } },
  { "Softplus", "softplus", { { "beta:number", 1.0 }, { "threshold:number", 20.0 } } },
  { "Hardshrink", "hardshrink", { { "lambd:number", 0.5 } } },
  { "Softshrink", "softshrink", { { "lambd:number", 0.5 } } },
  { "GLU", "glu", { { "dim:int", -1 } } },
  { "Sigmoid", "sigmoid", {} },
  { "Tanh", "tanh", {} },
  { "LogSigmoid", "logsigmoid", {} },
  { "Softsign", "softsign", {} },
  { "Tanhshrink", "tanhshrink", {} },
}

for _, row in ipairs(TABLE) do
  local name, fn, params = row[1], row[2], row[3]
  local C = layer(name, params)
  C._of = fn -- for the help
  L[name] = C
  local fields = {}
  for _, p in ipairs(params) do
    local field = (type(p) == "table" and p[1] or p):match("^[%w_]+")
    if field ~= "inplace" then fields[#fields + 1] = field end
  end
  local a, b = fields[1], fields[2]
  local inplace_fn = fn .. "_"
  local f
  function C:forward(x)
    f = f or F[fn]
    local op = f
    if self.inplace and sc.core.methods[inplace_fn] then op = sc.core.methods[inplace_fn] end
    if b then return op(x, self[a], self[b]) end
    if a then return op(x, self[a]) end
    return op(x)
  end
end

--- dim nil: PyTorch's old guess, 1 for 0-d, 1-d and 3-d input, else 2.
local function guess(dim, x)
  if dim then return dim end
  local n = x:dim()
  return (n == 0 or n == 1 or n == 3) and 1 or 2
end
for name, fn in pairs { Softmax = "softmax", LogSoftmax = "log_softmax", Softmin = "softmin" } do
  local C = layer(name, { "dim:int?" })
  L[name] = C
  function C:forward(x) return F[fn](x, guess(self.dim, x)) end
end
--- Softmax over the channels of [N, C, H, W] or [C, H, W].
L.Softmax2d = layer("Softmax2d", {})
function L.Softmax2d.forward(_, x)
  fault.expect("Softmax2d", 1, "tensor", x)
  if x:dim() ~= 3 and x:dim() ~= 4 then fault.raise("Softmax2d", "expected 3 or 4 dimensions, got %d", x:dim()) end
  return F.softmax(x, -3)
end

--- A learnt negative slope, one for all or one per channel.
L.PReLU = layer("PReLU", { { "num_parameters:int", 1 }, { "init:number", 0.25 } })
function L.PReLU:build(o)
  rawset(self, "init", nil) -- the class's own init shows again
  self.weight = Parameter(init.constant_(sc.empty({ o.num_parameters }), o.init))
end
function L.PReLU:forward(x) return F.prelu(x, self.weight) end

--- A negative slope drawn per element in training.
L.RReLU = layer("RReLU", { { "lower:number", 1 / 8 }, { "upper:number", 1 / 3 }, INPLACE })
function L.RReLU:forward(x) return F.rrelu(x, self.lower, self.upper, self.training) end

return L
