--- sconce: tensors, gradients and graphs.
local core = require "sconce.core"
core.set_inside((debug.getinfo(1, "S").source:gsub("init%.lua$", "")))

local sc = { core = core, newaxis = setmetatable({}, { __tostring = function() return "sc.newaxis" end }),
  ellipsis = setmetatable({}, { __tostring = function() return "sc.ellipsis" end }) }

for name, fn in pairs(core.ops) do
  if not core.op_info(name).internal and not name:find(".", 1, true) then sc[name] = fn end
end
for _, name in ipairs { "from_string", "manual_seed", "set_num_threads", "get_num_threads", "memory_allocated", "stats",
  "is_grad_enabled", "is_tensor", "grad", "graph" } do
  sc[name] = core[name]
end

function sc.tensor(value, options)
  options = options or {}
  local t = core.tensor(value, options.dtype)
  if options.requires_grad then t.requires_grad = true end
  return t
end

function sc.no_grad(fn, ...)
  local _ <close> = core.grad_block(false)
  return fn(...)
end

function sc.enable_grad(fn, ...)
  local _ <close> = core.grad_block(true)
  return fn(...)
end

return sc
