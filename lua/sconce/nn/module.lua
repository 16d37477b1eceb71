--- nn.Module: classes of layers, and what every layer can do.
---
--- A module is a plain table. The first assignment to a field notes its name, so that parameters, buffers and submodules are listed in
--- the order of their definition; after that a field is read and written at a plain table's cost. What a field is, is decided by its
--- value when the module is walked: a Parameter (or a leaf that requires gradients), a module, or a tensor that was put there by
--- `init` or `register_buffer` (a buffer). Tensors assigned later, say a hidden state kept by `forward`, are nobody's business.
---
--- Names in state dicts are PyTorch's, with its numbering from 0 ("layers.0.weight"), so that checkpoints go both ways; in Lua the same
--- layer is `layers[1]`.
local sc = require "sconce"
local fault = require "sconce.fault"
local watch = require "sconce.watch"
local core = sc.core
local fields_of = watch.fields

local is_tensor = core.is_tensor
local inside = debug.getinfo(1, "S").source:gsub("nn/module%.lua$", "")
local parameters = setmetatable({}, { __mode = "k" }) -- tensors that nn.Parameter made

-- What PyTorch's modules have and these do not, with what to write instead.
local HOST = "all tensors are in the host's memory, so there is nothing to move"
local ELSEWHERE = {
  cuda = HOST, cpu = HOST, share_memory = HOST, register_backward_hook = "tensors have register_hook",
  register_full_backward_hook = "tensors have register_hook", get_submodule = "m.fc.weight is a field", get_parameter = "m.fc.weight is a field",
}

--- The class that all modules come from: nn.class("Net") makes one of your own.
local Module = setmetatable({ __name = "Module" }, { __index = function(_, name) -- what no class has
  if math.type(name) == "integer" and name < 1 then
    fault.raise_plain("there is no member %d: members count from 1, and m:get(-1) counts from the end", name)
  end
  if ELSEWHERE[name] then fault.raise_plain("a module has no field \"%s\": %s", name, ELSEWHERE[name]) end
end })
Module.__index = Module

--- Whether a value is a module.
local function is_module(v) return type(v) == "table" and rawget(fields_of(v), "_fields") ~= nil end

local function is_parameter(v)
  return parameters[v] or (v.requires_grad and v.is_leaf and not parameters[v])
end

--- Marks a tensor as a parameter: it requires gradients, and modules register it.
---@param t sc.Tensor
---@param requires_grad? boolean  # true when not given
---@return sc.Tensor  # t itself when it is a leaf, else its detached alias
local function Parameter(t, requires_grad)
  if not is_tensor(t) then fault.raise("Parameter", "argument 1: expected a tensor, got %s", fault.describe(t)) end
  if not t.is_leaf then t = t:detach() end
  if requires_grad ~= false then t.requires_grad = true end
  parameters[t] = true
  return t
end

-- ---- making classes and objects

local function call_hooked(self, ...)
  local args = table.pack(...)
  for _, hook in ipairs(self._hooked.before) do
    local r = table.pack(hook.fn(self, table.unpack(args, 1, args.n)))
    if r.n > 0 and r[1] ~= nil then args = r end
  end
  local out = table.pack(self:forward(table.unpack(args, 1, args.n)))
  for _, hook in ipairs(self._hooked.after) do
    local r = table.pack(hook.fn(self, args, table.unpack(out, 1, out.n)))
    if r.n > 0 and r[1] ~= nil then out = r end
  end
  return table.unpack(out, 1, out.n)
end

local tracked = 0 -- how many recordings want to know which module is at work
local at_work = {} -- those whose forward is running, the outermost first: { module, path }

local name_below -- (outer, inner) -> "blocks.3.attn"

--- The module's path in the outermost one that is at work, "" for that one itself.
local function path_of(self)
  for i = #at_work, 1, -1 do
    local name = name_below(at_work[i][1], self)
    if name then return at_work[i][2] == "" and name or at_work[i][2] .. "." .. name end
  end
  return #at_work > 0 and self.__name or ""
end

local function call_tracked(self, ...)
  local path, depth = path_of(self), #at_work
  local was = core.module(path ~= "" and path or nil)
  at_work[depth + 1] = { self, path }
  local _ <close> = setmetatable({}, { __close = function()
    for i = #at_work, depth + 1, -1 do at_work[i] = nil end
    core.module(was)
  end })
  if self._hooked then return call_hooked(self, ...) end
  return self:forward(...)
end

local function call(self, ...)
  if tracked > 0 then return call_tracked(self, ...) end
  if self._hooked then return call_hooked(self, ...) end
  return self:forward(...)
end

--- From now on (1) or no longer (-1) nodes that are recorded note the module that made them.
local function track(by) tracked = tracked + by end

local function new_field(self, name, value)
  local fields = self._fields
  if not fields.known[name] then
    fields[#fields + 1] = name
    fields.known[name] = true
  end
  if self._building and is_tensor(value) and not is_parameter(value) then self._buffers[name] = true end
  rawset(self, name, value)
end

--- Each member of a module: tensors that are registered, and modules. fn(name, value, kind); kind: "parameter", "buffer", "module".
local function each_field(self, fn)
  local own = fields_of(self)
  for _, name in ipairs(self._fields) do
    local v = rawget(own, name)
    if is_module(v) then
      fn(name, v, "module")
    elseif v ~= nil and is_tensor(v) then
      if self._buffers[name] ~= nil then fn(name, v, "buffer")
      elseif is_parameter(v) then fn(name, v, "parameter") end
    end
  end
end

local function key(name) return math.type(name) == "integer" and tostring(name - 1) or tostring(name) end

--- A class of modules. `init` is the constructor, `forward` what a call does; `parent` is another class.
---   local Net = nn.class("Net")
---   function Net:init(n) self.fc = nn.Linear(n, 10) end
---   function Net:forward(x) return self.fc(x) end
---@param name string
---@param parent? table
---@return table
local function class(name, parent)
  parent = parent or Module
  if type(name) ~= "string" then fault.raise("class", "argument 1 (name): expected a string, got %s", fault.describe(name)) end
  if parent ~= Module and not (type(parent) == "table" and parent.super) then
    fault.raise("class", "argument 2 (parent): expected a class of modules, got %s", fault.describe(parent))
  end
  local C = { __name = name, super = parent, __call = call, __newindex = new_field }
  C._library_class = debug.getinfo(2, "S").source:sub(1, #inside) == inside or nil -- compiled functions need not look into its lists
  C.__index = C
  C.__tostring = function(self) return self:describe() end
  C.__len = parent.__len
  return setmetatable(C, {
    __index = parent,
    __tostring = function() return "class " .. name end,
    __call = function(_, ...)
      local self = setmetatable({ _fields = { known = {} }, _buffers = {}, _hooked = false, _building = true, training = true }, C)
      self:init(...)
      self._building = false
      return self
    end,
  })
end

--- The constructor, to be written by a class: `function Net:init(n) self.fc = nn.Linear(n, 10) end`.
function Module.init() end

--- What a call of the module does, to be written by a class: `function Net:forward(x) return self.fc(x) end`.
function Module:forward()
  fault.raise(self.__name, "the class has no forward method")
end

-- ---- walking

--- A list that can also be walked as `for x in list do` and, when its members are pairs, `for name, x in list do`.
local function walkable(items, named)
  local at = 0
  return setmetatable(items, {
    __call = function(_, _, control)
      if control == nil then at = 0 end
      at = at + 1
      local item = items[at]
      if not item then return nil end
      if named then return item[1], item[2] end
      return item
    end,
    __pairs = named and function()
      local i = 0
      return function()
        i = i + 1
        if items[i] then return items[i][1], items[i][2] end
      end
    end or nil,
  })
end

--- Visits modules depth first, each once: fn(full name, module).
local function visit(self, prefix, seen, fn)
  if seen[self] then return end
  seen[self] = true
  fn(prefix, self)
  each_field(self, function(name, v, kind)
    if kind == "module" then visit(v, prefix == "" and key(name) or prefix .. "." .. key(name), seen, fn) end
  end)
end

--- By the names of state dicts; in a plain list of modules, which those do not know, counted as in them.
function name_below(outer, inner)
  local found
  visit(outer, "", {}, function(name, m)
    if found then return end
    if m == inner then found = name return end
    for field, v in next, fields_of(m) do
      if type(v) == "table" and not is_module(v) and getmetatable(v) == nil and field ~= "_fields" then
        for k, x in next, v do
          if x == inner then found = (name == "" and "" or name .. ".") .. key(field) .. "." .. key(k) end
        end
      end
    end
  end)
  return found ~= "" and found or nil
end

local function members(self, want, recurse, keep_duplicates)
  local items, seen = {}, {}
  local function take(prefix, module)
    each_field(module, function(name, v, kind)
      if kind == want and (keep_duplicates or not seen[v]) then
        seen[v] = true
        items[#items + 1] = { prefix == "" and key(name) or prefix .. "." .. key(name), v, module, name }
      end
    end)
  end
  if recurse == false then take("", self) else visit(self, "", {}, take) end
  return items
end

local function seconds(items)
  local out = {}
  for i, item in ipairs(items) do out[i] = item[2] end
  return walkable(out)
end

--- Every parameter once, in the order of definition: a list, also for `for p in net:parameters() do`.
---@param recurse? boolean  # false: of this module only
function Module:parameters(recurse) return seconds(members(self, "parameter", recurse)) end
--- `for name, p in net:named_parameters() do`; also a list of { name, parameter }.
function Module:named_parameters(recurse) return walkable(members(self, "parameter", recurse), true) end
--- Every buffer once: a list.
function Module:buffers(recurse) return seconds(members(self, "buffer", recurse)) end
--- `for name, t in net:named_buffers() do`: every buffer once, with its name.
function Module:named_buffers(recurse) return walkable(members(self, "buffer", recurse), true) end

--- `for name, m in net:named_modules() do`: this module ("") and all below, each once.
function Module:named_modules()
  local items = {}
  visit(self, "", {}, function(name, m) items[#items + 1] = { name, m } end)
  return walkable(items, true)
end
--- This module and all below, each once: a list.
function Module:modules() return seconds(self:named_modules()) end

--- `for name, m in net:named_children() do`: the modules directly below.
function Module:named_children()
  local items = {}
  each_field(self, function(name, v, kind) if kind == "module" then items[#items + 1] = { key(name), v } end end)
  return walkable(items, true)
end
--- The modules directly below: a list.
function Module:children() return seconds(self:named_children()) end

-- ---- registering by name

local function check_name(what, name)
  if type(name) ~= "string" or name == "" then fault.raise(what, "argument 1 (name): expected a name, got %s", fault.describe(name)) end
end

--- A tensor that belongs to the module without being trained. persistent false: not in state dicts.
function Module:register_buffer(name, t, persistent)
  check_name("register_buffer", name)
  if t ~= nil and not is_tensor(t) then fault.raise("register_buffer", "argument 2: expected a tensor, got %s", fault.describe(t)) end
  if rawget(fields_of(self), name) ~= nil and self._buffers[name] == nil then fault.raise("register_buffer", "the field %q exists already", name) end
  self._buffers[name] = persistent ~= false
  new_field(fields_of(self), name, t)
  core.changed()
  self._buffers[name] = persistent ~= false
end

--- A parameter under a name: the same as self[name] = nn.Parameter(t).
function Module:register_parameter(name, t)
  check_name("register_parameter", name)
  if t ~= nil then
    fault.expect("register_parameter", 2, "tensor", t)
    t = Parameter(t, t.requires_grad or nil)
  end
  self[name] = t
end

--- A module under a name: the same as self[name] = m.
function Module:add_module(name, m)
  check_name("add_module", name)
  if not is_module(m) then fault.raise("add_module", "argument 2: expected a module, got %s", fault.describe(m)) end
  self[name] = m
end
Module.register_module = Module.add_module

-- ---- hooks

local function add_hook(self, which, fn, what)
  fault.expect(what, "argument 1 (hook)", "function", fn)
  local hook = { fn = fn }
  local function with(list, new) -- lists are made anew, so that who watches the module sees it
    local out = {}
    for _, h in ipairs(list or {}) do if h ~= hook then out[#out + 1] = h end end
    out[#out + 1] = new
    return out
  end
  local function put(new)
    local now = self._hooked or {}
    local before = which == "before" and with(now.before, new) or now.before or {}
    local after = which == "after" and with(now.after, new) or now.after or {}
    self._hooked = #before + #after > 0 and { before = before, after = after } or false
  end
  put(hook)
  return { remove = function() put(nil) end }
end

--- fn(module, args, results…) after forward; what it returns (if anything) takes the results' place. handle:remove() ends it.
function Module:register_forward_hook(fn) return add_hook(self, "after", fn, "register_forward_hook") end
--- fn(module, arguments…) before forward; what it returns (if anything) takes the arguments' place.
function Module:register_forward_pre_hook(fn) return add_hook(self, "before", fn, "register_forward_pre_hook") end

-- ---- modes

--- Training mode on (or off, with false) for this module and all below; dropout and batch-norm look at it. Returns the module.
function Module:train(on)
  on = on ~= false
  visit(self, "", {}, function(_, m) m.training = on end)
  return self
end
--- Training mode off: module:train(false).
function Module:eval() return self:train(false) end

--- Calls fn(module) on every module below and then on this one.
function Module:apply(fn)
  fault.expect("apply", "argument 1 (fn)", "function", fn)
  local seen = {}
  local function go(m)
    if seen[m] then return end
    seen[m] = true
    each_field(m, function(_, v, kind) if kind == "module" then go(v) end end)
    fn(m)
  end
  go(self)
  return self
end

--- Whether gradients are wanted for all parameters; false freezes them. Returns the module.
function Module:requires_grad_(on)
  for _, p in ipairs(self:parameters()) do p.requires_grad = on ~= false end
  return self
end

--- Drops the gradients of all parameters, or with set_to_none = false fills them with zeros.
function Module:zero_grad(set_to_none)
  for _, p in ipairs(self:parameters()) do
    if set_to_none ~= false then p.grad = nil
    elseif p.grad then sc.no_grad(function() p.grad:zero_() end) end
  end
end

local FLOATS = { float32 = true, float64 = true, float16 = true, bfloat16 = true }

--- Converts parameters and buffers of floats. The tensors stay the same objects, so optimisers go on with them.
---@param dtype string
function Module:to(dtype)
  if not FLOATS[dtype] then fault.raise("to", "argument 1 (dtype): expected a dtype of floats, got %s", fault.describe(dtype)) end
  local _ <close> = core.grad_block(false)
  for _, kind in ipairs { "parameter", "buffer" } do
    for _, item in ipairs(members(self, kind)) do
      local t = item[2]
      if FLOATS[t.dtype] and t.dtype ~= dtype then
        local grad = t.grad
        core.set_data(t, t:detach():to(dtype))
        if grad then t.grad = grad:to(dtype) end
      end
    end
  end
  return self
end
--- Parameters and buffers of floats as float32: module:to("float32").
function Module:float() return self:to("float32") end
--- Parameters and buffers of floats as float64: module:to("float64").
function Module:double() return self:to("float64") end
--- Parameters and buffers of floats as float16: module:to("float16").
function Module:half() return self:to("float16") end
--- Parameters and buffers of floats as bfloat16: module:to("bfloat16").
function Module:bfloat16() return self:to("bfloat16") end

-- ---- state dicts

local function state_items(self)
  local items, seen = {}, {}
  local function go(m, prefix)
    if seen[m] == prefix then return end
    seen[m] = prefix
    each_field(m, function(name, v, kind)
      local full = prefix .. key(name)
      if kind == "module" then go(v, full .. ".")
      elseif kind == "parameter" or m._buffers[name] then items[#items + 1] = { full, v } end
    end)
  end
  go(self, "")
  return items
end

--- Parameters and persistent buffers by PyTorch's names ("0.weight"), detached, sharing memory with the module.
---@return table<string, sc.Tensor>
function Module:state_dict()
  local out = {}
  for _, item in ipairs(state_items(self)) do out[item[1]] = item[2]:detach() end
  return out
end

--- Copies a state dict's values into the module. Nothing has changed when it fails.
--- Errors: shapes differ; with strict (the default), names are missing or unexpected.
---@param sd table<string, sc.Tensor>
---@param options? { strict?: boolean }
---@return table report  # { missing_keys =, unexpected_keys = }
function Module:load_state_dict(sd, options)
  if type(sd) ~= "table" then fault.raise("load_state_dict", "argument 1: expected a table of tensors, got %s", fault.describe(sd)) end
  local strict = options
  if type(options) == "table" then strict = options.strict end
  strict = strict ~= false
  local items, known, missing, unexpected, problems = state_items(self), {}, {}, {}, {}
  for _, item in ipairs(items) do
    local name, t = item[1], item[2]
    known[name] = true
    local v = sd[name]
    if v == nil then
      missing[#missing + 1] = name
    elseif not is_tensor(v) then
      problems[#problems + 1] = ("%s: expected a tensor, got %s"):format(name, fault.describe(v))
    elseif table.concat(v.shape, ", ") ~= table.concat(t.shape, ", ") then
      problems[#problems + 1] = ("%s: shape {%s} in the state dict, {%s} in the module"):format(name, table.concat(v.shape, ", "),
        table.concat(t.shape, ", "))
    end
  end
  for name in pairs(sd) do
    if not known[name] then unexpected[#unexpected + 1] = tostring(name) end
  end
  table.sort(unexpected)
  if strict and #missing > 0 then problems[#problems + 1] = "missing: " .. table.concat(missing, ", ") end
  if strict and #unexpected > 0 then problems[#problems + 1] = "unexpected: " .. table.concat(unexpected, ", ") end
  if #problems > 0 then fault.raise("load_state_dict", "%s: %s", self.__name, table.concat(problems, "; ")) end
  local _ <close> = core.grad_block(false)
  for _, item in ipairs(items) do
    if sd[item[1]] then item[2]:copy_(sd[item[1]]) end
  end
  return { missing_keys = missing, unexpected_keys = unexpected }
end

-- ---- copies

--- A copy with tensors of its own. What is shared inside (tied weights, one module twice) stays shared in the copy.
function Module:clone()
  local _ <close> = core.grad_block(false)
  local made = {}
  local function copy(v)
    if made[v] then return made[v] end
    if is_tensor(v) then
      local t = v:detach():clone()
      if parameters[v] then Parameter(t, v.requires_grad) elseif v.requires_grad and v.is_leaf then t.requires_grad = true end
      made[v] = t
      return t
    end
    if type(v) ~= "table" or (watch.class(v) ~= nil and not is_module(v)) then return v end
    local out = {}
    made[v] = out
    for k, x in next, fields_of(v) do rawset(out, k, copy(x)) end
    return setmetatable(out, watch.class(v))
  end
  return copy(self)
end

-- ---- describing

local BYTES = { float64 = 8, int64 = 8, uint64 = 8, float32 = 4, int32 = 4, uint32 = 4, float16 = 2, bfloat16 = 2, int16 = 2, uint16 = 2 }

local function human(bytes)
  if bytes < 1024 then return ("%d B"):format(bytes) end
  local units, i = { "KiB", "MiB", "GiB", "TiB" }, 0
  repeat bytes, i = bytes / 1024, i + 1 until bytes < 1024 or i == #units
  return ("%.1f %s"):format(bytes, units[i])
end

--- What stands in brackets behind a layer's name; layers override it.
function Module.extra_repr() return "" end

--- A table: one line a layer, with shapes, number of parameters and bytes; totals below.
function Module:describe()
  local rows, counted, n_total, bytes_total, n_frozen = {}, {}, 0, 0, 0
  local function line(name, m, depth, above)
    local shapes, n, bytes = {}, 0, 0
    each_field(m, function(field, v, kind)
      if kind == "module" then return end
      if kind == "parameter" then shapes[#shapes + 1] = ("%s {%s}"):format(key(field), table.concat(v.shape, ", ")) end
      if counted[v] then return end
      counted[v] = true
      bytes = bytes + v:numel() * (BYTES[v.dtype] or 1)
      if kind == "parameter" then
        n = n + v:numel()
        if not v.requires_grad then n_frozen = n_frozen + v:numel() end
      end
    end)
    n_total, bytes_total = n_total + n, bytes_total + bytes
    local again = above[m]
    rows[#rows + 1] = { ("  "):rep(depth) .. (name ~= "" and "(" .. name .. ") " or "") .. m.__name ..
      (m:extra_repr() ~= "" and "(" .. m:extra_repr() .. ")" or ""), table.concat(shapes, " "), n > 0 and ("%d"):format(n) or "",
      bytes > 0 and human(bytes) or "" }
    if again then return end
    above[m] = true
    each_field(m, function(field, v, kind) if kind == "module" then line(key(field), v, depth + 1, above) end end)
    above[m] = nil
  end
  line("", self, 0, {})
  table.insert(rows, 1, { "layer", "shapes", "parameters", "size" })
  local width = { 0, 0, 0, 0 }
  for _, r in ipairs(rows) do for i = 1, 4 do width[i] = math.max(width[i], utf8.len(r[i]) or #r[i]) end end
  local out = {}
  for i, r in ipairs(rows) do
    local function pad(k, left)
      local space = (" "):rep(width[k] - (utf8.len(r[k]) or #r[k]))
      return left and r[k] .. space or space .. r[k]
    end
    out[i] = (("%s  %s  %s  %s"):format(pad(1, true), pad(2, true), pad(3), pad(4)):gsub("%s+$", ""))
  end
  local total = ("%d parameters, %s"):format(n_total, human(bytes_total))
  if n_frozen > 0 then total = total .. (" (%d frozen)"):format(n_frozen) end
  out[#out + 1] = total
  return table.concat(out, "\n")
end

Module.__call, Module.__newindex = call, new_field
Module.__tostring = function(self) return self:describe() end
getmetatable(Module).__call = function(C)
  return setmetatable({ _fields = { known = {} }, _buffers = {}, _hooked = false, _building = false, training = true }, C)
end

return { Module = Module, track = track, Parameter = Parameter, class = class, is_module = is_module, is_parameter = function(t)
  return is_tensor(t) and is_parameter(t) or false
end }
