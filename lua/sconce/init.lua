--- sconce: tensors, gradients and graphs. `require "sconce"` gives the module table; `sc.nn`, `sc.optim`, `sc.data` load on first use.
local core = require "sconce.core"
core.set_inside((debug.getinfo(1, "S").source:gsub("init%.lua$", "")))

local sc = {
  core = core,
  newaxis = setmetatable({}, { __tostring = function() return "sc.newaxis" end }),
  ellipsis = setmetatable({}, { __tostring = function() return "sc.ellipsis" end }),
  autograd = {}, linalg = {}, special = {}, fft = {},
}
--- Ops under `nn.functional`; whatever is not there is looked up among the plain ops, so `F.relu` is `sc.relu`.
sc.functional = setmetatable({}, { __index = sc })

local lazy = { nn = "sconce.nn", optim = "sconce.optim", data = "sconce.data" }
setmetatable(sc, { __index = function(t, name)
  if not lazy[name] then return nil end
  local module = require(lazy[name])
  rawset(t, name, module)
  return module
end })

for _, name in ipairs { "from_string", "manual_seed", "set_num_threads", "get_num_threads", "memory_allocated", "stats",
  "is_grad_enabled", "is_tensor", "grad", "graph" } do
  sc[name] = core[name]
end

-- The C ops: "linalg.det" goes into sc.linalg, "nn.functional.linear" into sc.functional.
for name, fn in pairs(core.ops) do
  if not core.op_info(name).internal then
    local space, short = name:match("^([%w_.]+)%.([%w_]+)$")
    local into = not space and sc or space == "nn.functional" and sc.functional or sc[space]
    rawset(into, short or name, fn)
  end
end

for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool", "uint16",
  "uint32", "uint64" } do
  sc[dtype] = dtype
end

--- A tensor from a number, a boolean or (nested) lists of them.
---@param value number|boolean|table
---@param options? { dtype?: string, requires_grad?: boolean }
---@return sc.Tensor
function sc.tensor(value, options)
  local t = core.tensor(value, options and options.dtype)
  if options and options.requires_grad then t.requires_grad = true end
  return t
end

--- Calls fn with gradients off, for this coroutine, whatever happens inside.
function sc.no_grad(fn, ...)
  local _ <close> = core.grad_block(false)
  return fn(...)
end

--- Calls fn with gradients on, for this coroutine.
function sc.enable_grad(fn, ...)
  local _ <close> = core.grad_block(true)
  return fn(...)
end

package.loaded["sconce"] = sc -- the files below want it

-- Ops written in Lua, a file a family.
for _, family in ipairs {
} do
  require("sconce.ops." .. family)
end

return sc
