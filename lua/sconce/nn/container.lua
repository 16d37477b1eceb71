--- Modules of modules. Members count from 1 in Lua and from 0 in state dicts.
local fault = require "sconce.fault"
local module = require "sconce.nn.module"

local class, is_module = module.class, module.is_module
local watch = require "sconce.watch"
local fields = watch.fields
local L = {}

local function place(self, i)
  local n = rawlen(fields(self))
  if math.type(i) ~= "integer" then fault.raise(self.__name, "expected an integer, got %s", fault.describe(i)) end
  return i < 0 and n + 1 + i or i
end

--- What lists of modules share.
local function list_methods(C, accepts, what)
  function C:append(m)
    if not accepts(m) then fault.raise(self.__name, "expected %s, got %s", what, fault.describe(m)) end
    self[rawlen(fields(self)) + 1] = m
    return self
  end
  function C:extend(list)
    local own = is_module(list) and fields(list) or list
    if type(own) ~= "table" or (is_module(list) and not list.extend) then
      fault.raise(self.__name, "expected a list, got %s", fault.describe(list))
    end
    local n = rawlen(own)
    for k in pairs(getmetatable(list) == nil and list or {}) do -- a hole would hide what comes after it
      if math.type(k) == "integer" and k > n then n = k end
    end
    for i = 1, n do self:append(list[i]) end
    return self
  end
  --- Places hold members only; place 0 does not exist.
  local plain = C.__newindex
  function C:__newindex(i, m)
    if math.type(i) == "integer" and not accepts(m) then fault.raise(self.__name, "place %d: expected %s, got %s", i, what, fault.describe(m)) end
    return plain(self, i, m)
  end
  function C:insert(i, m)
    i = place(self, i)
    local n = rawlen(fields(self))
    if i < 1 or i > n + 1 then fault.raise(self.__name, "insert: place %d is out of range for %d members", i, n) end
    if not accepts(m) then fault.raise(self.__name, "expected %s, got %s", what, fault.describe(m)) end
    self[n + 1] = m
    for k = n + 1, i + 1, -1 do self[k] = self[k - 1] end
    self[i] = m
    return self
  end
  --- Member i, negative from the end; nil when there is none.
  function C:get(i) return rawget(fields(self), place(self, i)) end
  function C:len() return rawlen(fields(self)) end
  C.extra_repr = function() return "" end
end

--- Calls its members one after the other: Sequential(a, b, c), Sequential{a, b, c} or pairs { "name", module } in a list.
L.Sequential = class("Sequential")
list_methods(L.Sequential, is_module, "a module")
function L.Sequential:init(...)
  local members, n = { ... }, select("#", ...)
  if n == 1 and not is_module(members[1]) and type(members[1]) == "table" and getmetatable(members[1]) == nil then
    members = members[1]
    n = #members
    for k in pairs(members) do
      if math.type(k) ~= "integer" then fault.raise("Sequential", "expected a list of modules, got one with a field %s", fault.describe(k)) end
      n = math.max(n, k)
    end
  end
  for i = 1, n do
    local m = members[i]
    if type(m) == "table" and not is_module(m) and type(m[1]) == "string" and is_module(m[2]) then
      self[m[1]] = m[2]
      rawset(self, i, m[2])
    else
      self:append(m)
    end
  end
end
local function not_a_member(self, i) fault.raise("Sequential", "place %d: expected a module, got %s", i, fault.describe(self[i])) end

function L.Sequential:forward(...)
  local n = rawlen(fields(self))
  if n == 0 then return ... end
  local first = self[1]
  if type(first) ~= "table" then not_a_member(self, 1) end
  local x = first(...)
  for i = 2, n do
    local m = self[i]
    if type(m) ~= "table" then not_a_member(self, i) end
    x = m(x)
  end
  return x
end

--- A list of modules: `for _, m in ipairs(list) do x = m(x) end`.
L.ModuleList = class("ModuleList")
list_methods(L.ModuleList, is_module, "a module")
function L.ModuleList:init(list) if list ~= nil then self:extend(list) end end

--- Modules by name: `dict.name`, `dict:items()` in the order of definition.
L.ModuleDict = class("ModuleDict")
local RESERVED = {}
function L.ModuleDict:init(members)
  if members == nil then return end
  fault.expect("ModuleDict", 1, "table", members)
  local names = {}
  for name in pairs(members) do
    if type(name) ~= "string" then fault.raise("ModuleDict", "expected names, got %s", fault.describe(name)) end
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do self:set(name, members[name]) end
end
function L.ModuleDict:set(name, m)
  if type(name) ~= "string" or name:find(".", 1, true) or name == "" then
    fault.raise("ModuleDict", "expected a name without dots, got %s", fault.describe(name))
  end
  if not is_module(m) then fault.raise("ModuleDict", "%s: expected a module, got %s", name, fault.describe(m)) end
  if RESERVED[name] or L.ModuleDict[name] ~= nil or name:sub(1, 1) == "_" or name == "training" then
    fault.raise("ModuleDict", "the name %q is taken by the class", name)
  end
  self[name] = m
  return self
end
function L.ModuleDict:get(name) return rawget(fields(self), name) end
function L.ModuleDict:items()
  local list = self:named_children()
  return list
end

--- A list of parameters; plain tensors become parameters.
L.ParameterList = class("ParameterList")
list_methods(L.ParameterList, require "sconce".is_tensor, "a tensor")
local append = L.ParameterList.append
function L.ParameterList:append(t)
  return append(self, require "sconce".is_tensor(t) and not module.is_parameter(t) and module.Parameter(t) or t)
end
function L.ParameterList:init(list) if list ~= nil then self:extend(list) end end

return L
