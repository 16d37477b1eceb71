--- What every optimiser has: parameter groups, the state of each parameter, state dicts, and `step` around `update`.
---
--- A class gives its arguments with defaults and `update(group)`, which walks the group's parameters. State tensors are made at a
--- parameter's first gradient and live in `self.state[p]`; a parameter without a gradient is passed over, and so is its state.
local sc = require "sconce"
local fault = require "sconce.fault"
local watch = require "sconce.watch"
local core = sc.core

local Optimizer = { __name = "Optimizer", _optimizer = true }
Optimizer.__index = Optimizer

--- A class of optimisers. params: see fault.reader; they follow the parameters, in PyTorch's order.
---@param name string
---@param params table
---@param check? fun(group: table, raise: fun(text: string, ...))  # refuses values out of range
---@param hyper? string[]  # the numbers among them, in the order of the op's attributes ("betas" twice): see `hyper_of`
---@return table
local function class(name, params, check, hyper)
  local C = setmetatable({ __name = name }, { __index = Optimizer })
  C.__index = C
  C.__tostring = function(self) return self:describe() end
  C.read, C.check, C.names, C.hyper = fault.reader(name, params, "params"), check, {}, hyper
  for i, p in ipairs(params) do C.names[i] = (type(p) == "table" and p[1] or p):match("^[%w_]+") end
  getmetatable(C).__call = function(_, parameters, ...)
    local self = setmetatable({ param_groups = {}, state = {} }, C)
    self.defaults = C.read(...)
    self:add_groups(parameters)
    if self.begin then self:begin() end
    return self
  end
  return C
end

--- Several groups, or a list of parameters, as the constructor takes them.
function Optimizer:add_groups(parameters)
  if core.is_tensor(parameters) then
    fault.raise(self.__name, "argument 1 (params): expected a list of tensors or groups, got a single tensor")
  end
  if type(parameters) ~= "table" then
    fault.raise(self.__name, "argument 1 (params): expected a list of tensors or groups, got %s", fault.describe(parameters))
  end
  if parameters.params then parameters = { parameters } end
  if parameters._fields then
    fault.raise(self.__name, "argument 1 (params): expected a list of tensors or groups, got a module; it has m:parameters()")
  end
  if #parameters == 0 then fault.raise(self.__name, "argument 1 (params): the list of parameters is empty") end
  if core.is_tensor(parameters[1]) or (type(parameters[1]) == "table" and not parameters[1].params) then
    parameters = { { params = parameters } }
  end
  for _, g in ipairs(parameters) do self:add_param_group(g) end
end

--- Adds { params = list, lr = … }; what is not named has the optimiser's defaults. Nothing has changed when it fails.
function Optimizer:add_param_group(group)
  if type(group) ~= "table" or group.params == nil then
    fault.raise(self.__name, "a parameter group needs a field params, got %s", fault.describe(group))
  end
  local list, out, mine = group.params, {}, {}
  if core.is_tensor(list) then list = { list } end
  for k in pairs(group) do
    if k ~= "params" and self.defaults[k] == nil and k ~= "initial_lr" then
      local known = false
      for _, n in ipairs(self.names) do known = known or n == k end
      if not known then
        fault.raise(self.__name, "a parameter group has no option %q; the options are %s", tostring(k), table.concat(self.names, ", "))
      end
    end
  end
  for k, v in pairs(self.defaults) do out[k] = v end
  for k, v in pairs(group) do if k ~= "params" then out[k] = v end end
  if self.check then self.check(out, function(text, ...) fault.raise(self.__name, text, ...) end) end
  local seen = {}
  for _, g in ipairs(self.param_groups) do for _, p in ipairs(g.params) do seen[p] = true end end
  for i, p in ipairs(list) do
    if not core.is_tensor(p) then fault.raise(self.__name, "parameter %d: expected a tensor, got %s", i, fault.describe(p)) end
    if not p.is_leaf then
      fault.raise(self.__name, "parameter %d of shape {%s} is not a leaf: it is computed from other tensors", i, table.concat(p.shape,
        ", "))
    end
    if seen[p] then fault.raise(self.__name, "parameter %d of shape {%s} is given twice", i, table.concat(p.shape, ", ")) end
    seen[p] = true
    mine[i] = p
  end
  out.params = mine
  self.param_groups[#self.param_groups + 1] = out
end

--- Drops the gradients, or with set_to_none = false fills them with zeros.
---@param set_to_none? boolean|{ set_to_none: boolean }
function Optimizer:zero_grad(set_to_none)
  if type(self) ~= "table" then fault.raise("zero_grad", "called without its optimiser; write opt:zero_grad()") end
  if type(set_to_none) == "table" then set_to_none = set_to_none.set_to_none end
  for _, group in ipairs(self.param_groups) do
    local params = group.params
    for i = 1, #params do
      local p = params[i]
      if set_to_none ~= false then
        p.grad = nil
      else
        local g = p.grad
        if g then sc.no_grad(function() g:zero_() end) end
      end
    end
  end
end

-- ---- hyperparameters of recorded steps
--
-- A recorded step reads them from a tensor that belongs to the group, so that a schedule can change them without a new trace. Groups
-- are watched from then on, and a number that is written to one goes into its tensor.

local cells = setmetatable({}, { __mode = "k" }) -- group -> its tensor
local STRUCTURE = { momentum = true } -- whether it is 0 decides what is recorded

local function numbers_of(names, group, key, value)
  local list, at = {}, 0
  for i, name in ipairs(names) do
    local v = group[name]
    if name == key then v = value end
    if type(v) == "table" then at, v = at + 1, v[at + 1] end
    list[i] = v
  end
  return list
end

--- What the group's guard looks at (see csrc/lua/guard.c): parameters, switches, and whether there is momentum.
function Optimizer.counts_in_groups(self)
  local counts = { true, params = true }
  for _, name in ipairs(self.names) do counts[name] = true end
  for _, name in ipairs(self.hyper or {}) do counts[name] = STRUCTURE[name] and "zero" or nil end
  return counts
end

--- Watches a group, for compiled functions.
function Optimizer.watch_group(self, group)
  local names, is_number = self.hyper or {}, {}
  for _, name in ipairs(names) do is_number[name] = true end
  watch.watch(group, function(key, value, old)
    if not is_number[key] then return key ~= "params" and self.defaults[key] == nil end
    if core.is_tracing() then
      fault.raise(self.__name, "%s is set while the function that takes the step is traced, so it would be set only once; "
        .. "set it, or step its scheduler, outside", key)
    end
    local cell = cells[group]
    for i, v in ipairs(cell and numbers_of(names, group, key, value) or {}) do core.poke(cell, i, core.is_tensor(v) and v:item() or v) end
    return not STRUCTURE[key] or (value == 0) == (old == 0)
  end)
end

--- The group's numbers as a tensor, in the order of the op's attributes. Rates that are tensors themselves are read when the step runs.
function Optimizer:hyper_of(group)
  local list, any = numbers_of(self.hyper, group), false
  for _, v in ipairs(list) do any = any or core.is_tensor(v) end
  if any then
    for i, v in ipairs(list) do
      list[i] = core.is_tensor(v) and v:detach():to("float64"):reshape { 1 } or core.untraced(core.ops.full, { 1 }, v + 0.0, "float64")
    end
    return core.ops.cat(list, 1)
  end
  if not cells[group] then
    self:watch_group(group)
    cells[group] = core.untraced(core.tensor, list, "float64")
  end
  return cells[group]
end

--- The group for a recorded step, whose attributes do not count: reading a rate that is a tensor would freeze it.
local function without_tensors(group, names)
  local out
  for _, name in ipairs(names) do
    if core.is_tensor(group[name]) then
      if not out then
        out = {}
        for k, v in pairs(group) do out[k] = v end
      end
      out[name] = 0.0
    end
  end
  return out or group
end

--- Whether a step now would be recorded: in a trace, or into a graph that is built by hand.
local function is_recorded(groups)
  if core.is_tracing() then return true end
  for i = 1, #groups do
    for _, p in ipairs(groups[i].params) do
      local g = p.grad
      if g then return core.is_symbolic(g) end
    end
  end
  return false
end

--- One update of every parameter that has a gradient. closure, if given, is called first with gradients on; its result is returned.
---@param closure? fun(): any
function Optimizer:step(closure)
  if type(self) ~= "table" then fault.raise("step", "called without its optimiser; write opt:step()") end
  local loss
  if closure then loss = sc.enable_grad(closure) end
  local _ <close> = core.grad_block(false)
  local groups = self.param_groups
  local recorded = self.hyper and is_recorded(groups)
  for i = 1, #groups do
    if recorded then self:update(without_tensors(groups[i], self.hyper), self:hyper_of(groups[i])) else self:update(groups[i]) end
  end
  return loss
end

-- ---- state

--- Zeros like p, packed.
--- Real also while a step is traced: a run must find what the last one left.
function Optimizer.zeros(p) return core.untraced(core.ops.full, p.shape, 0.0, p.dtype) end
--- A counter of steps, see csrc/ops/optim.c.
function Optimizer.counter() return core.untraced(core.ops.full, {}, 0.0, "float32") end

--- Numbers, strings, tables and tensors only: { state = { [k] = … }, param_groups = { { lr =, …, params = { 1, 2 } } } }; parameters are
--- numbered from 1 through all groups. The tensors are the optimiser's own, as in PyTorch.
function Optimizer:state_dict()
  local out, n = { state = {}, param_groups = {} }, 0
  for i, group in ipairs(self.param_groups) do
    local g = { params = {} }
    for k, v in pairs(group) do
      if k ~= "params" then g[k] = type(v) == "table" and table.move(v, 1, #v, 1, {}) or v end
    end
    for j, p in ipairs(group.params) do
      n = n + 1
      g.params[j] = n
      if self.state[p] then
        local s = {}
        for k, v in pairs(self.state[p]) do s[k] = v end
        out.state[n] = s
      end
    end
    out.param_groups[i] = g
  end
  return out
end

local function copied(v)
  if core.is_tensor(v) then return v:detach():clone() end
  if type(v) ~= "table" then return v end
  local out = {}
  for k, x in pairs(v) do out[k] = copied(x) end
  return out
end

--- Takes over a state dict (copied). Errors: groups or their sizes differ.
function Optimizer:load_state_dict(sd)
  if type(sd) ~= "table" or type(sd.param_groups) ~= "table" or type(sd.state) ~= "table" then
    fault.raise(self.__name, "load_state_dict: expected a table with param_groups and state")
  end
  if #sd.param_groups ~= #self.param_groups then
    fault.raise(self.__name, "load_state_dict: %d parameter groups in the state dict, %d in the optimiser", #sd.param_groups,
      #self.param_groups)
  end
  local of, n = {}, 0
  for i, group in ipairs(self.param_groups) do
    local g = sd.param_groups[i]
    if #g.params ~= #group.params then
      fault.raise(self.__name, "load_state_dict: group %d has %d parameters in the state dict, %d in the optimiser", i, #g.params,
        #group.params)
    end
    for j, p in ipairs(group.params) do
      n = n + 1
      of[p] = sd.state[g.params[j]]
      for k, v in pairs(of[p] or {}) do
        if core.is_tensor(v) and v:dim() > 0 and self.param_shaped ~= false and table.concat(v.shape, ",") ~= table.concat(p.shape,
          ",") then
          fault.raise(self.__name, "load_state_dict: %s of parameter %d has shape {%s}, the parameter {%s}", k, n, table.concat(v.shape,
            ", "),
            table.concat(p.shape, ", "))
        end
      end
    end
  end
  local _ <close> = core.grad_block(false)
  for i, group in ipairs(self.param_groups) do
    for k, v in pairs(sd.param_groups[i]) do if k ~= "params" then group[k] = copied(v) end end
  end
  self.state = {}
  for p, s in pairs(of) do
    local mine = copied(s)
    for k, v in pairs(mine) do
      if core.is_tensor(v) and v:dim() > 0 and v.dtype ~= p.dtype then mine[k] = v:to(p.dtype) end
    end
    self.state[p] = mine
  end
end

--- The groups with their numbers, as text.
function Optimizer:describe()
  local out = {}
  for i, g in ipairs(self.param_groups) do
    local parts = {}
    for _, n in ipairs(self.names) do
      local v = g[n]
      if type(v) == "table" then v = "{" .. table.concat(v, ", ") .. "}" end
      if v ~= nil then parts[#parts + 1] = n .. " = " .. tostring(v) end
    end
    out[i] = ("%s group %d: %d parameters, %s"):format(self.__name, i, #g.params, table.concat(parts, ", "))
  end
  return table.concat(out, "\n")
end

-- ---- ranges that optimisers share

local check = {}
function check.from_zero(group, raise, ...)
  for _, n in ipairs { ... } do
    local v = group[n]
    if core.is_tensor(v) then v = v:item() end
    if not (type(v) == "number" and v >= 0) then raise("%s: expected a number from 0, got %s", n, fault.describe(group[n])) end
  end
end
function check.betas(group, raise)
  local b = group.betas
  if type(b) ~= "table" or #b ~= 2 then raise("betas: expected two numbers, got %s", fault.describe(b)) end
  for i = 1, 2 do
    if not (type(b[i]) == "number" and b[i] >= 0 and b[i] < 1) then
      raise("betas: number %d: expected 0 <= beta < 1, got %s", i, fault.describe(b[i]))
    end
  end
end

return { Optimizer = Optimizer, class = class, check = check }
