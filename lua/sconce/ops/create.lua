--- Making tensors: what needs Lua. Everything else is rows of csrc/ops/create.c and csrc/ops/random.c.
local sc = require "sconce"
local core = require "sconce.core"
local fault = require "sconce.fault"

-- PyTorch's short names of dtypes; the conversions of those names are methods: `x:float()`.
for name, dtype in pairs { float = "float32", double = "float64", half = "float16", short = "int16", int = "int32", long = "int64" } do
  sc[name] = dtype
end

--- A tensor from a number, a boolean or nested lists of them, with x's dtype unless one is named.
---@param data number|boolean|table|sc.Tensor
---@param options? { dtype?: string, requires_grad?: boolean }
---@return sc.Tensor
function core.methods.new_tensor(x, data, options)
  fault.expect("new_tensor", 1, "tensor", x)
  fault.expect("new_tensor", "argument 3", "options", options)
  local o = { dtype = x.dtype }
  for k, v in pairs(options or {}) do o[k] = v end
  return sc.tensor(data, o)
end

for _, name in ipairs { "Generator", "get_rng_state", "set_rng_state", "initial_seed" } do
  sc[name] = core[name]
end

--- `randint(high, size)` starts at 0: a shape in the second place moves the first number to `high`.
local function zero_low(fn)
  return function(first, second, ...)
    if type(first) == "number" and type(second) == "table" and (#second > 0 or not next(second)) then
      return fn(0, first, second, ...)
    end
    return fn(first, second, ...)
  end
end
sc.randint = zero_low(core.ops.randint)

local randint_like = core.ops.randint_like
--- `randint_like(x, high)` starts at 0 too.
function sc.randint_like(x, low, high, ...)
  if type(low) == "number" and type(high) ~= "number" then return randint_like(x, 0, low, high, ...) end
  return randint_like(x, low, high, ...)
end
core.methods.randint_like = sc.randint_like
