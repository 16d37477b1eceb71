--- Watched tables: every write to one counts up a number in the engine, so that compiled functions need not look at modules and
--- optimisers that nobody has changed (see csrc/lua/guard.c).
---
--- Lua calls `__newindex` for absent fields only. So a table that is to be watched is emptied: its fields move into another one, which
--- it reads through `__index`, and its metatable becomes one of its own. Modules and optimisers are turned so when a compiled function
--- captures them, not before: until then a field costs what a field costs, afterwards one more look-up. The library reads fields raw
--- through `watch.fields`.
local core = require "sconce.core"

local watch = {}

--- The table that holds t's fields: t itself until it is watched.
function watch.fields(t)
  local meta = getmetatable(t)
  return meta and rawget(meta, "__fields") or t
end

--- The metatable that t had, or has.
function watch.class(t)
  local meta = getmetatable(t)
  if meta and rawget(meta, "__fields") then return rawget(meta, "__class") end
  return meta
end

function watch.is_watched(t)
  local meta = getmetatable(t)
  return meta ~= nil and rawget(meta, "__fields") ~= nil
end

local function same(a, b) return rawequal(a, b) and math.type(a) == math.type(b) end

--- Watches t from now on. on_write(key, value, old), if given, is told before a field changes; true: that counts as no change.
---@param t table
---@param on_write? fun(key: any, value: any, old: any): boolean?
function watch.watch(t, on_write)
  local class = getmetatable(t)
  if class and rawget(class, "__fields") then return end
  local fields = {}
  for k, v in next, t do fields[k] = v end
  local meta = { __fields = fields, __class = class, __index = fields }
  for k, v in next, class or {} do
    if type(k) == "string" and k:sub(1, 2) == "__" and k ~= "__index" and k ~= "__newindex" and k ~= "__gc" then meta[k] = v end
  end
  meta.__pairs = meta.__pairs or function() return next, fields, nil end
  meta.__len = meta.__len or function() return #fields end
  function meta.__newindex(_, k, v)
    local old = rawget(fields, k)
    if same(old, v) then return end
    local quiet = on_write and on_write(k, v, old)
    fields[k] = v -- by way of the class's own __newindex when it is new
    if not quiet then core.changed() end
  end
  setmetatable(fields, class)
  for k in next, fields do rawset(t, k, nil) end
  setmetatable(t, meta)
end

return watch
