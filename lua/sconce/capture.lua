--- What a function captures: a walk over upvalues, and the fields of the tables in them, before it is traced and after.
---
--- From the walk come the guards that are asked at every call (csrc/lua/guard.c), the words of `f:explain()`, and what the function
--- itself changed while it was traced. Only functions that ran then are looked into. Modules and optimisers are watched from then on.
--- The library, Lua's own modules and what `sc.constant` names are taken not to change; so are lists in the library's layers (a kernel's
--- size), as PyTorch's tuples.
local core = require "sconce.core"
local fault = require "sconce.fault"
local watch = require "sconce.watch"

local capture = {}

local MOST_FIELDS = 1000 -- of plain tables: each costs some 20 ns a call
local MOST_BEFORE = 100000 -- before the trace tells which of them matter

local constants = setmetatable({}, { __mode = "k" })
for _, name in ipairs { "_G", "string", "table", "math", "os", "io", "coroutine", "utf8", "debug", "package" } do
  local t = package.loaded[name]
  if t then constants[t] = true end
end

--- Declares that a table will not change.
function capture.constant(t) constants[t] = true end

local inside = debug.getinfo(1, "S").source:gsub("capture%.lua$", "")
local function is_ours(fn) return debug.getinfo(fn, "S").source:sub(1, #inside) == inside end

local seen_modules = 0

--- The tables that our modules consist of: two levels of what `require` gave.
local function learn_library()
  local n = 0
  for name, t in pairs(package.loaded) do
    if type(t) == "table" and (name == "sconce" or name:sub(1, 7) == "sconce.") then n = n + 1 end
  end
  if n == seen_modules then return end
  seen_modules = n
  local function learn(t, depth)
    constants[t] = true
    if depth == 0 then return end
    for _, v in next, t do
      if type(v) == "table" and not constants[v] then learn(v, depth - 1) end
    end
  end
  for name, t in pairs(package.loaded) do
    if type(t) == "table" and (name == "sconce" or name:sub(1, 7) == "sconce.") then learn(t, 2) end
  end
end

-- ---------------------------------------------------------------- the walk

local HIDDEN = { _fields = false, _buffers = false, _building = false } -- of modules: what forward does not read

local Walk = {}
Walk.__index = Walk

--- Place i: a field or an upvalue of holders[i], named keys[i], as seen under place parents[i].
local function note(w, parent, holder, key, name, value)
  local n = #w.holders + 1
  w.parents[n], w.holders[n], w.keys[n], w.names[n] = parent, holder, key, name
  w.values[n] = value == nil and w or value -- the walk itself stands for nil
  return n
end

--- "model.layers[2].p"
function Walk:path(i)
  local name, parent = self.names[i], self.parents[i]
  if parent == 0 or type(self.holders[i]) == "function" then return tostring(name) end
  local above = self:path(parent)
  if math.type(name) == "integer" then return ("%s[%d]"):format(above, name) end
  return above .. "." .. tostring(name)
end

local function root_name(w, i)
  while w.parents[i] ~= 0 do i = w.parents[i] end
  return tostring(w.names[i])
end

local function fields_of(w, t, fields, i, visit)
  for k, v in next, fields do
    if HIDDEN[k] == nil or not w.modules[t] then visit(v, note(w, i, fields, k, k, v)) end
  end
end

local function kind_of(t, class)
  local fields = watch.fields(t)
  if rawget(fields, "_fields") then return "module" end
  if class and class._optimizer and rawget(fields, "param_groups") then return "optimizer" end
  if class and rawget(class, "_compiled") then return "compiled" end
  return "plain"
end

--- Functions of the user's classes capture things as well, and may be put in another's place. Classes that hold values besides, which
--- their objects see as their own, are looked at like plain tables.
local function visit_class(w, class, i, visit)
  local below = {} -- classes without values so far: one may come to hide a value further up
  while type(class) == "table" and not constants[class] and not w.seen[class] do
    w.seen[class] = true
    if rawget(class, "_library_class") then return end
    local values = false
    for k, v in next, class do
      if type(v) == "function" then
        local ran = type(k) == "string" and w.after and (not w.called or w.called[v]) and not is_ours(v)
        if ran then w.held[#w.held + 1], w.held[#w.held + 2] = class, k end
        visit(v, ran and note(w, i, class, k, k, v) or i)
      elseif k ~= "super" and (type(k) ~= "string" or k:sub(1, 1) ~= "_") then -- super: nn.class's, further up the chain
        values = true
        visit(v, note(w, i, class, k, k, v))
      end
    end
    below[#below + 1] = class
    if values then
      table.move(below, 1, #below, #w.plain + 1, w.plain)
      below = {}
    end
    local meta = getmetatable(class)
    local up = meta and rawget(meta, "__index")
    class = type(up) == "table" and up or rawget(class, "__index")
  end
end

local walkers = {}

function walkers.module(w, t, i, visit)
  local class = watch.class(t)
  watch.watch(t)
  local fields = watch.fields(t)
  w.modules[t], w.modules[fields] = true, true
  w.watched[#w.watched + 1] = fields
  w.except[fields] = HIDDEN
  local ours = rawget(class, "_library_class")
  fields_of(w, t, fields, i, function(v, at)
    if type(v) ~= "table" or not ours or kind_of(v, watch.class(v)) ~= "plain" then visit(v, at)
    elseif w.names[at] == "_hooked" then
      for _, list in next, v do for _, hook in next, list do visit(hook.fn, at) end end
    end
  end)
  visit_class(w, class, i, visit)
end

--- Everything that belongs to an optimiser is watched: groups, lists of parameters, states.
local function visit_owned(w, t, i)
  if w.seen[t] then return end
  w.seen[t] = true
  watch.watch(t)
  local fields = watch.fields(t)
  w.watched[#w.watched + 1] = fields
  w.owned[fields] = true
  for k, v in next, fields do
    local at = note(w, i, fields, k, core.is_tensor(k) and "a parameter" or k, v)
    if type(v) == "table" and getmetatable(v) == nil or type(v) == "table" and watch.is_watched(v) then visit_owned(w, v, at) end
  end
end

function walkers.optimizer(w, t, i, visit)
  local class = watch.class(t)
  watch.watch(t)
  local fields = watch.fields(t)
  w.watched[#w.watched + 1] = fields
  w.except[fields] = { true, param_groups = true, state = true }
  w.owned[fields] = true
  local list = note(w, i, fields, "param_groups", "param_groups", fields.param_groups)
  watch.watch(fields.param_groups)
  w.watched[#w.watched + 1] = watch.fields(fields.param_groups)
  w.owned[watch.fields(fields.param_groups)] = true
  for g, group in ipairs(fields.param_groups) do
    class.watch_group(t, group)
    local own = watch.fields(group)
    w.except[own], w.owned[own] = class.counts_in_groups(t), true
    w.watched[#w.watched + 1] = own
    local at = note(w, list, watch.fields(fields.param_groups), g, g, group)
    for k, v in next, own do if w.except[own][k] then note(w, at, own, k, k, v) end end
    visit_owned(w, own.params, note(w, at, own, "params", "params", own.params))
  end
  visit_owned(w, fields.state, note(w, i, fields, "state", "state", fields.state))
  visit_class(w, class, i, visit)
end

function walkers.compiled(_, t, i, visit) visit(t.fn, i) end

function walkers.plain(w, t, i, visit)
  w.plain[#w.plain + 1] = t
  for k, v in next, t do
    w.n_fields = w.n_fields + 1
    if not w.after and w.n_fields > MOST_BEFORE then return end
    if w.after and w.n_fields > MOST_FIELDS then
      fault.raise("compile", "the function captures more than can be watched at every call: upvalue '%s' has over %d fields; "
        .. "sc.constant(%s) declares that it will not change", root_name(w, i), MOST_FIELDS, root_name(w, i))
    end
    visit(v, note(w, i, t, k, k, v))
  end
  visit_class(w, getmetatable(t), i, visit)
end

local function walk_function(w, fn, i, visit)
  if w.called and not w.called[fn] or is_ours(fn) or debug.getinfo(fn, "S").what == "C" then return end
  for k = 1, 255 do
    local name, value = debug.getupvalue(fn, k)
    if not name then break end
    local id = debug.upvalueid(fn, k)
    if name ~= "_ENV" and not w.seen[id] and not (type(value) == "table" and constants[value]) then
      w.seen[id] = true
      w.held[#w.held + 1], w.held[#w.held + 2] = fn, k
      visit(value, note(w, i, fn, k, name, value))
    end
  end
end

--- Walks from fn. Raises when plain tables in it are more than can be watched.
---@param fn function
---@param after boolean  # it has been traced; then `called`: what ran meanwhile, nil: anything
function capture.walk(fn, after, called)
  learn_library()
  local w = setmetatable({ parents = {}, holders = {}, keys = {}, names = {}, values = {}, seen = {}, held = {}, watched = {}, plain = {},
    except = {}, modules = {}, owned = {}, n_fields = 0, called = called, after = after }, Walk)
  local function visit(value, i)
    local kind = type(value)
    if kind == "function" then
      if w.seen[value] then return end
      w.seen[value] = true
      walk_function(w, value, i, visit)
    elseif kind == "table" and not constants[value] and not w.seen[value] then
      w.seen[value] = true
      walkers[kind_of(value, watch.class(value))](w, value, i, visit)
    end
  end
  visit(fn, 0)
  return w
end

--- What a function itself changes is not watched.
function Walk:leave_out(changes)
  for _, c in ipairs(changes) do
    if c.upvalue then
      local kept = {}
      for i = 1, #self.held, 2 do
        if not (self.held[i] == c.holder and self.held[i + 1] == c.key) then table.move(self.held, i, i + 1, #kept + 1, kept) end
      end
      self.held = kept
    else
      local counts = {}
      for k, v in pairs(self.except[c.holder] or {}) do counts[k] = v end
      counts[c.key] = false
      self.except[c.holder] = counts
    end
  end
end

--- A guard of how everything is now; see csrc/lua/guard.c.
---@param graph userdata
---@param read sc.Tensor[]  # with data, whose values the trace looked at
function Walk:guard(graph, read) return core.guard(self.held, self.watched, self.plain, self.except, graph, read) end

-- ---------------------------------------------------------------- differences

local function now(holder, key)
  if type(holder) == "function" then
    local _, v = debug.getupvalue(holder, key)
    return v
  end
  return rawget(holder, key)
end

local function put_back(holder, key, value)
  if type(holder) == "function" then debug.setupvalue(holder, key, value) else rawset(holder, key, value) end
end

local function same(a, b) return rawequal(a, b) and math.type(a) == math.type(b) or a ~= a and b ~= b end

local function counts(except, k)
  if not except then return true end
  if except[k] == nil then return not except[1] end
  return except[k]
end

--- What has changed since the walk: a list of { path =, was =, is =, holder =, key = }. What optimisers keep for themselves is left out
--- unless `all`.
function Walk:changes(all)
  local list, have = {}, {}
  for _, t in ipairs(self.plain) do have[t] = {} end
  for _, t in ipairs(self.watched) do have[t] = {} end
  for i, holder in ipairs(self.holders) do
    local was, is = self.values[i], now(holder, self.keys[i])
    if was == self then was = nil end
    have[holder] = have[holder] or {}
    have[holder][self.keys[i]] = true
    if not same(was, is) and (all or not self.owned[holder]) then
      list[#list + 1] = { path = self:path(i), was = was, is = is, holder = holder, key = self.keys[i],
        upvalue = type(holder) == "function" }
    end
  end
  for i, holder in ipairs(self.values) do -- fields that are new
    local fields = type(holder) == "table" and holder ~= self and watch.fields(holder)
    if fields and have[fields] and (all or not self.owned[fields]) then
      for k, v in next, fields do
        if not have[fields][k] and counts(self.except[fields], k) then
          list[#list + 1] = { path = self:path(i) .. "." .. tostring(k), is = v, holder = fields, key = k }
          have[fields][k] = true
        end
      end
    end
  end
  return list
end

--- Undoes changes.
function capture.undo(changes) for _, c in ipairs(changes) do put_back(c.holder, c.key, c.was) end end

function capture.redo(changes) for _, c in ipairs(changes) do put_back(c.holder, c.key, c.is) end end

--- A value in the words of an explanation.
function capture.words(v)
  if core.is_tensor(v) then return ("a %s tensor of shape {%s}"):format(v.dtype, table.concat(v.shape, ", ")) end
  if type(v) == "string" then return ("%q"):format(#v > 40 and v:sub(1, 40) .. "…" or v) end
  if type(v) == "table" and type(v.__name) == "string" then return "a " .. v.__name end
  if type(v) == "table" or type(v) == "function" or type(v) == "userdata" then return "a " .. type(v) end
  return tostring(v)
end

return capture
