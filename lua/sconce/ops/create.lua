--- Making tensors: what needs Lua. Everything else is rows of csrc/ops/create.c and csrc/ops/random.c.
local sc = require "sconce"
local core = require "sconce.core"

-- PyTorch's short names of dtypes; the conversions of those names are methods: `x:float()`.
for name, dtype in pairs { float = "float32", double = "float64", half = "float16", short = "int16", int = "int32", long = "int64" } do
  sc[name] = dtype
end

--- A tensor from a number, a boolean or nested lists of them, with x's dtype unless one is named.
---@param data number|boolean|table|sc.Tensor
---@param options? { dtype?: string, requires_grad?: boolean }
---@return sc.Tensor
function core.methods.new_tensor(x, data, options)
  local o = { dtype = x.dtype }
  for k, v in pairs(options or {}) do o[k] = v end
  return sc.tensor(data, o)
end
