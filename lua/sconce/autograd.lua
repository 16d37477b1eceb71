--- What of gradients is written in Lua: blocks of gradient mode, functions with a backward of their own, numeric checks, checkpoints.
local sc = require "sconce"
local core = require "sconce.core"
local fault = require "sconce.fault"

local autograd = sc.autograd

-- ---- blocks ----

-- While a block is open, coroutines made are told the mode of their making: `coroutine.create` and `wrap` are stood in for, and
-- given back when the last block has closed. Nothing of Lua tells us otherwise where a coroutine was made.
local create, wrap
local open = 0

local function noting(make)
  return function(fn)
    if type(fn) ~= "function" then return make(fn) end
    local enabled = core.is_grad_enabled()
    return make(function(...)
      core.born(enabled)
      return fn(...)
    end)
  end
end

local births = setmetatable({}, { __close = function()
  open = open - 1
  if open > 0 then return end
  if coroutine.create == create.ours then coroutine.create = create.theirs end -- luacheck: ignore 122
  if coroutine.wrap == wrap.ours then coroutine.wrap = wrap.theirs end -- luacheck: ignore 122
end })

local function watch_births()
  open = open + 1
  if open > 1 then return births end
  create, wrap = { theirs = coroutine.create }, { theirs = coroutine.wrap }
  create.ours, wrap.ours = noting(coroutine.create), noting(coroutine.wrap)
  coroutine.create, coroutine.wrap = create.ours, wrap.ours -- luacheck: ignore 122
  return births
end

local block = { __close = function(self, err)
  getmetatable(self.births).__close()
  getmetatable(self.mode).__close(self.mode, err)
end }

local function mode_block(what, enabled, fn, ...)
  if fn == nil then return setmetatable({ births = watch_births(), mode = core.grad_block(enabled) }, block) end
  fault.expect(what, "argument fn", "function", fn)
  local _ <close> = watch_births()
  local _ <close> = core.grad_block(enabled)
  return fn(...)
end

--- Calls fn with gradients off, for this coroutine, whatever happens inside; without fn, `local _ <close> = sc.no_grad()`.
function sc.no_grad(fn, ...) return mode_block("no_grad", false, fn, ...) end

--- Calls fn with gradients on, for this coroutine; without fn, `local _ <close> = sc.enable_grad()`.
function sc.enable_grad(fn, ...) return mode_block("enable_grad", true, fn, ...) end

--- The same with the mode as an argument.
---@param enabled boolean
function autograd.set_grad_enabled(enabled, fn, ...)
  if type(enabled) ~= "boolean" then
    fault.raise("set_grad_enabled", "argument 1: expected true or false, got %s", fault.describe(enabled))
  end
  return mode_block("set_grad_enabled", enabled, fn, ...)
end

--- Calls fn and frees every tensor made inside except those it returns (in tables too). Without fn: `local s <close> = sc.scope()`,
--- and `s:keep(…)` for what should outlive the block. Tensors that something else still needs keep their memory; only their names
--- in the script become unusable.
function sc.scope(fn, ...)
  if fn == nil then return core.scope() end
  fault.expect("scope", "argument 1 (fn)", "function", fn)
  local s = core.scope()
  local _ <close> = s
  return s:keep(fn(...))
end

--- Bytes that blocks alive may take in all; nil or 0: no limit. An op that would go beyond raises "not enough memory".
function sc.set_memory_limit(bytes)
  if bytes ~= nil and (math.type(bytes) ~= "integer" or bytes < 0) then
    fault.raise("set_memory_limit", "argument 1: expected a number of bytes, got %s", fault.describe(bytes))
  end
  core.set_memory_limit(bytes or 0)
end

--- Calls fn; a NaN in a gradient computed meanwhile is an error that names the op and the line that recorded it.
function autograd.detect_anomaly(fn, ...)
  fault.expect("detect_anomaly", "argument 1 (fn)", "function", fn)
  local was = core.anomaly(true)
  local _ <close> = setmetatable({}, { __close = function() core.anomaly(was) end })
  return fn(...)
end

-- ---- functions with a backward of their own ----

--- What forward and backward share: `ctx:save(…)`, `ctx:saved()`, `ctx.needs_input_grad`, and fields of one's own.
local Context = {}
Context.__index = Context

--- Keeps tensors for backward, with a check that nobody changed them in-place meanwhile.
function Context:save(...)
  for i = 1, select("#", ...) do
    local t = select(i, ...)
    if t ~= nil and not core.is_tensor(t) then fault.raise("save", "argument %d: expected a tensor, got %s", i, fault.describe(t)) end
  end
  rawset(self, "_saved", table.pack(...))
end

function Context:saved()
  local saved = rawget(self, "_saved")
  if not saved then return end
  for i = 1, saved.n do
    local version, place
    if saved[i] ~= nil then version, place = core.version(saved[i]) end
    if saved.versions and version ~= saved.versions[i] then
      fault.raise("backward", "a tensor saved by a custom function was modified in-place%s since it was saved; clone it before the change",
        place and " at " .. place or "")
    end
  end
  return table.unpack(saved, 1, saved.n)
end

--- These results take no gradients.
function Context:mark_non_differentiable(...)
  local set = {}
  for i = 1, select("#", ...) do set[select(i, ...)] = true end
  rawset(self, "_constant", set)
end

local function note_versions(ctx)
  local saved = rawget(ctx, "_saved")
  if not saved then return end
  saved.versions = {}
  for i = 1, saved.n do if saved[i] ~= nil then saved.versions[i] = core.version(saved[i]) end end
end

--- For other parts of the library that record nodes of their own.
core.custom_context = { new = function(fields) return setmetatable(fields, Context) end, note_versions = note_versions }

local Function = { __name = "Function" }
Function.__index = Function

function Function.__call(self, ...)
  local args = table.pack(...)
  local ctx = setmetatable({ needs_input_grad = {} }, Context)
  local tensors, at, any = {}, {}, false
  for i = 1, args.n do
    local needs = false
    if core.is_tensor(args[i]) then
      needs = args[i].requires_grad
      tensors[#tensors + 1], at[#at + 1] = args[i], i
    end
    ctx.needs_input_grad[i] = needs
    any = any or needs
  end
  any = any and core.is_grad_enabled()
  local results = table.pack(mode_block("Function", false, self.forward, ctx, ...))
  local places = {}
  for i = 1, results.n do
    local constant = ctx._constant and ctx._constant[results[i]]
    if core.is_tensor(results[i]) and not constant then places[#places + 1] = i end
  end
  if any and #places > 0 then
    note_versions(ctx)
    core.record_custom({ backward = self.backward, ctx = ctx, n = args.n, at = at, needs = ctx.needs_input_grad }, tensors, results, places)
  end
  return table.unpack(results, 1, results.n)
end

--- A differentiable function with a backward of its own, recorded as one node.
--- `forward(ctx, …)` gets the call's arguments and runs with gradients off. `backward(ctx, dy, …)` gets a gradient per tensor that
--- forward returned (zeros where none arrived) and returns one per argument of forward, nil for none. Its ops are recorded
--- when the caller asked for `create_graph`, so it differentiates again.
---@param spec { forward: function, backward: function }
function autograd.Function(spec)
  if type(spec) ~= "table" then fault.raise("Function", "argument 1: expected a table, got %s", fault.describe(spec)) end
  for _, name in ipairs { "forward", "backward" } do
    if type(spec[name]) ~= "function" then fault.raise("Function", "%s: expected a function, got %s", name, fault.describe(spec[name])) end
  end
  for name in pairs(spec) do
    if name ~= "forward" and name ~= "backward" then
      fault.raise("Function", "there is no option %q; the options are forward, backward", tostring(name))
    end
  end
  return setmetatable({ forward = spec.forward, backward = spec.backward }, Function)
end

-- ---- checkpoints ----

-- One node from the arguments, and from whatever else fn took gradients from, to the results. Its backward runs fn again, on
-- arguments of its own, and differentiates that as far as the node's inputs.

local function own_arguments(args, recorded)
  local own, inputs, at = { n = args.n }, {}, {}
  for i = 1, args.n do
    own[i] = args[i]
    if core.is_tensor(args[i]) and args[i].requires_grad then
      own[i] = recorded and args[i]:view(args[i].shape) or args[i]:detach():requires_grad_()
      inputs[#inputs + 1], at[#at + 1] = own[i], i
    end
  end
  return own, inputs, at
end

local function tensors_in(list)
  local out, at = {}, {}
  for i = 1, list.n do
    if core.is_tensor(list[i]) and list[i].requires_grad then out[#out + 1], at[#at + 1] = list[i], i end
  end
  return out, at
end

--- In a graph the results as they were recorded are differentiated: what runs again there would draw other random numbers, and
--- a graph keeps no history whose memory could be saved.
local function differentiate(ctx, ...)
  local outputs, dys = {}, {}
  for i in ipairs(ctx.places) do outputs[i], dys[i] = ctx.outputs[i], (select(i, ...)) end
  return core.grad(outputs, ctx.inputs, { grad_outputs = dys, create_graph = core.is_grad_enabled(), retain_graph = true, allow_unused = true,
    cut = true })
end

local function replay(ctx, ...)
  local args, inputs = own_arguments(ctx.args, core.is_grad_enabled())
  for _, t in ipairs(ctx.captured) do inputs[#inputs + 1] = t end
  local create_graph, rng = core.is_grad_enabled(), sc.get_rng_state()
  sc.set_rng_state(ctx.rng)
  local results = table.pack(sc.enable_grad(ctx.fn, table.unpack(args, 1, args.n)))
  sc.set_rng_state(rng)
  local outputs, dys = {}, {}
  for i, place in ipairs(ctx.places) do
    if not (core.is_tensor(results[place]) and results[place].requires_grad) then
      fault.raise("checkpoint", "the function returned something else when it was run again")
    end
    outputs[i], dys[i] = results[place], (select(i, ...))
  end
  return core.grad(outputs, inputs, { grad_outputs = dys, create_graph = create_graph, allow_unused = true, cut = true })
end

--- fn(…), keeping nothing of its inside: backward runs it again, with the random numbers it had. Tensors that fn reaches otherwise
--- (the weights of a layer) get their gradients too. fn must do the same each time.
function sc.checkpoint(fn, ...)
  fault.expect("checkpoint", "argument 1 (fn)", "function", fn)
  if not core.is_grad_enabled() then return fn(...) end
  local given = table.pack(...)
  local in_graph = core.is_tracing()
  for i = 1, given.n do in_graph = in_graph or core.is_tensor(given[i]) and core.is_symbolic(given[i]) end
  local ctx = setmetatable({ fn = fn, args = given, rng = not in_graph and sc.get_rng_state() or nil }, Context)
  local args, inputs, at = own_arguments(ctx.args, in_graph)
  local since = core.sequence()
  local results = table.pack(fn(table.unpack(args, 1, args.n)))
  local outputs, places = tensors_in(results)
  if #outputs == 0 then return table.unpack(results, 1, results.n) end
  ctx.captured, ctx.places = core.captured(outputs, inputs, since), places
  local tensors, slots, needs = {}, {}, {}
  for i, place in ipairs(at) do tensors[i], slots[i], needs[i] = ctx.args[place], i, true end
  for _, t in ipairs(ctx.captured) do
    tensors[#tensors + 1], slots[#slots + 1], needs[#needs + 1] = t, #slots + 1, true
  end
  if in_graph then
    ctx.outputs, ctx.inputs = outputs, inputs
    for _, t in ipairs(ctx.captured) do inputs[#inputs + 1] = t end
  end
  for _, place in ipairs(places) do results[place] = results[place]:detach() end
  core.record_custom({ backward = in_graph and differentiate or replay, ctx = ctx, n = #tensors, at = slots, needs = needs }, tensors, results, places)
  return table.unpack(results, 1, results.n)
end

-- ---- numeric checks ----

--- The inputs as a list; fn must be a function and each input that is a userdata a tensor.
local function checked(what, fn, inputs)
  fault.expect(what, "argument 1 (fn)", "function", fn)
  if core.is_tensor(inputs) then return { inputs } end
  if type(inputs) ~= "table" then
    fault.raise(what, "argument 2 (inputs): expected a tensor or a list of tensors, got %s", fault.describe(inputs))
  end
  return inputs
end

local function flat(t) return t:detach():reshape { -1 }:totable() end

local function with_element(x, j, delta)
  local values = {}
  for k = 1, x:numel() do values[k] = 0.0 end
  values[j] = delta
  return x:detach() + sc.tensor(values, { dtype = x.dtype }):reshape(x.shape)
end

local function float_results(fn, inputs)
  local out, results = {}, table.pack(fn(table.unpack(inputs)))
  for i = 1, results.n do
    local y = results[i]
    if core.is_tensor(y) and y.dtype:find("float", 1, true) then out[#out + 1] = y end
  end
  return out
end

--- [output][its element] -> change per unit of element j of input i, by central difference.
local function numeric_column(fn, inputs, i, j, eps)
  local function at(delta)
    local moved = table.move(inputs, 1, #inputs, 1, {})
    moved[i] = with_element(inputs[i], j, delta)
    local y = sc.no_grad(float_results, fn, moved)
    for k = 1, #y do y[k] = flat(y[k]) end
    return y
  end
  local up, down = at(eps), at(-eps)
  for k = 1, #up do for e = 1, #up[k] do up[k][e] = (up[k][e] - down[k][e]) / (2 * eps) end end
  return up
end

local function analytic_rows(outputs, wanted)
  local rows = {}
  for o, y in ipairs(outputs) do
    rows[o] = {}
    for e = 1, y:numel() do
      if y.requires_grad then
        local dy = with_element(y * 0.0, e, 1.0)
        rows[o][e] = table.pack(core.grad(y, wanted, { grad_outputs = dy, retain_graph = true, allow_unused = true }))
        for k = 1, #wanted do rows[o][e][k] = rows[o][e][k] and flat(rows[o][e][k]) or false end
      else
        rows[o][e] = {}
      end
    end
  end
  return rows
end

local CHECK_OPTIONS = { eps = 1e-6, atol = 1e-5, rtol = 1e-3 }

local function check_options(what, options)
  local o = {}
  fault.expect(what, "argument 3", "options", options)
  for k, v in pairs(CHECK_OPTIONS) do o[k] = v end
  for k, v in pairs(options or {}) do
    if not CHECK_OPTIONS[k] then fault.raise(what, "there is no option %q; the options are eps, atol, rtol", tostring(k)) end
    if type(v) ~= "number" then fault.raise(what, "option %s: expected a number, got %s", k, fault.describe(v)) end
    o[k] = v
  end
  return o
end

--- Compares the gradients of fn with central differences, element by element. True, or an error that says where they differ.
--- Give float64 inputs: differences of float32 are too rough.
---@param fn function  # of the inputs; every floating result is checked
---@param inputs sc.Tensor|sc.Tensor[]  # those that require gradients are checked
---@param options? { eps?: number, atol?: number, rtol?: number }
---@return true
function autograd.gradcheck(fn, inputs, options)
  local o = check_options("gradcheck", options)
  inputs = checked("gradcheck", fn, inputs)
  local wanted, at, rough = {}, {}, ""
  for i, x in ipairs(inputs) do
    if core.is_tensor(x) and x.requires_grad then
      wanted[#wanted + 1], at[#at + 1] = x, i
      if x.dtype ~= "float64" then rough = (" (differences of %s are rough: give float64 inputs)"):format(x.dtype) end
    end
  end
  if #wanted == 0 then fault.raise("gradcheck", "argument 2: none of the inputs requires gradients") end
  local rows = analytic_rows(float_results(fn, inputs), wanted)
  for k, i in ipairs(at) do
    for j = 1, inputs[i]:numel() do
      local column = numeric_column(fn, inputs, i, j, o.eps)
      for out = 1, #column do
        for e, numeric in ipairs(column[out]) do
          local row = rows[out][e][k]
          local analytic = row and row[j] or 0.0
          local near = math.abs(analytic - numeric) <= o.atol + o.rtol * math.abs(numeric) -- false for NaN
          if not near then
            fault.raise("gradcheck", "result %d, element %d, by input %d, element %d: the gradient is %.8g, the difference says %.8g%s",
              out, e, i, j, analytic, numeric, rough)
          end
        end
      end
    end
  end
  return true
end

--- The same for the gradients themselves: compares second derivatives with differences of first ones.
function autograd.gradgradcheck(fn, inputs, options)
  inputs = checked("gradgradcheck", fn, inputs)
  local n = #inputs
  local all = table.move(inputs, 1, n, 1, {})
  for _, y in ipairs(float_results(fn, inputs)) do
    local values = {}
    for k = 1, y:numel() do values[k] = math.sin(1.7 * k + 0.3) end                       -- any direction will do
    all[#all + 1] = sc.tensor(values, { dtype = y.dtype }):reshape(y.shape):requires_grad_()
  end
  local function gradients(...)
    local args = table.pack(...)
    local own, wanted = {}, {}
    for i = 1, n do
      own[i] = args[i]
      if core.is_tensor(own[i]) and inputs[i].requires_grad then
        if not own[i].requires_grad then own[i] = own[i]:detach():requires_grad_() end
        wanted[#wanted + 1] = own[i]
      end
    end
    return sc.enable_grad(function()
      local y, dy = float_results(fn, own), {}
      for k = 1, #y do dy[k] = args[n + k] end
      local keep, kept = {}, {}
      for k = 1, #y do if y[k].requires_grad then keep[#keep + 1], kept[#kept + 1] = y[k], dy[k] end end
      return core.grad(keep, wanted, { grad_outputs = kept, create_graph = true, allow_unused = true })
    end)
  end
  return autograd.gradcheck(gradients, all, options)
end

return autograd
