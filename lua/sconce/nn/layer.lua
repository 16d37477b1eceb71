--- How the layers of nn are defined: a name, arguments in PyTorch's order, what is built from them, what a call does.
local fault = require "sconce.fault"
local module = require "sconce.nn.module"

local KEPT_APART = { bias = true, dtype = true } -- arguments whose names are also parameters, or that are not kept

--- A class of layers. params as in fault.reader (`dtype` is added); C:build(o) makes parameters from the arguments, which are also fields
--- of
--- the layer. An argument that a parameter is named after (bias) is only in `o`.
---@param name string
---@param params table
---@param parent? table
---@return table
local function layer(name, params, parent)
  local C = module.class(name, parent)
  local all = table.move(params, 1, #params, 1, {})
  all[#all + 1] = "dtype:string?"
  local read = fault.reader(name, all)
  local names, presets = {}, {}
  for i, p in ipairs(params) do
    names[i] = (type(p) == "table" and p[1] or p):match("^[%w_]+")
    if type(p) == "table" then presets[names[i]] = p[2] end
  end
  function C:init(...)
    local o = read(...)
    for k, v in pairs(o) do
      if not KEPT_APART[k] then rawset(self, k, v) end
    end
    rawset(self, "_with_bias", o.bias) -- for extra_repr: the parameter may have another name
    if self.build then self:build(o) end
    if o.dtype and o.dtype ~= "float32" then self:to(o.dtype) end
  end
  function C:extra_repr()
    local out = {}
    for i, n in ipairs(names) do
      local v = self[n]
      local preset = presets[n]
      if n == "bias" then v = self._with_bias end
      if type(v) == "table" and type(preset) == "number" then -- {1, 1} where 1 is the default
        local same = true
        for _, x in ipairs(v) do same = same and x == preset end
        if same then v = preset end
      end
      if type(v) == "table" and #v > 0 and type(v[1]) ~= "table" then v = "{" .. table.concat(v, ", ") .. "}" end
      local plain = type(v) == "number" or type(v) == "string" or type(v) == "boolean"
      if plain and v ~= preset then out[#out + 1] = (preset == nil and i <= 2) and tostring(v) or n .. "=" .. tostring(v) end
    end
    return table.concat(out, ", ")
  end
  return C
end

--- A layer of this kind, checked: not nil, of at least `low`.
local function at_least(what, low, o, ...)
  for _, n in ipairs { ... } do
    local v = o[n]
    for _, x in ipairs(type(v) == "table" and v or { v }) do
      if type(x) ~= "number" or x < low then fault.raise(what, "%s: expected at least %d, got %s", n, low, fault.describe(x)) end
    end
  end
end

--- v for each of n dims.
local function ntuple(what, name, v, n)
  if type(v) ~= "table" then
    local out = {}
    for i = 1, n do out[i] = v end
    return out
  end
  if #v == 1 and n > 1 then return ntuple(what, name, v[1], n) end
  if #v ~= n then fault.raise(what, "%s: expected %d numbers, got %d", name, n, #v) end
  return v
end

return setmetatable({ at_least = at_least, ntuple = ntuple }, { __call = function(_, ...) return layer(...) end })
