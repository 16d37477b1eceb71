--- sc.compile: a Lua function traced once per signature of its arguments into a static graph, which is then run instead of it.
---
--- A trace calls the function with symbolic tensors while every op is recorded: forward, backward and updates of captured tensors
--- become one graph. What the function returned becomes the graph's outputs. Before each call two numbers decide which trace fits:
--- the arguments' signature (dtypes, sizes, shared memory, other values) and a fingerprint of everything the function captures.
local core = require "sconce.core"
local fault = require "sconce.fault"

local MOST_TRACES = 32 -- of one signature; more means that something the function captures changes all the time

--- A trace, ready to run: called with the arguments of the function.
local Run = {}
Run.__index = function(self, name)
  if name == "graph" then return require("sconce.graph").wrap(rawget(self, "core")) end
  return Run[name]
end

local Compiled = {}
Compiled.__index = Compiled

local compile = { config = { run_eagerly = false } }

--- Which tensors among the arguments share memory, by its identity: those are recorded as views of an input that is all of it.
local function shared_memory(args)
  local first, shared = {}, {}
  for i = 1, args.n do
    local a = args[i]
    if core.is_tensor(a) then
      local id = core.memory(a)
      if first[id] == nil then first[id] = a end
      local f = first[id]
      if f and f ~= a then shared[id] = true end
      if a.requires_grad or f and f.dtype ~= a.dtype then first[id], shared[id] = false, nil end
    end
  end
  return shared
end

--- Symbolic stand-ins for the tensors among the arguments; a tensor given twice gets one. `order` says which argument an input is
--- fed with: its number, negative for all of its memory or (`spans`) for what it spans there.
local function stand_ins(graph, args)
  local symbols, order, known, whole, spans = { n = args.n }, {}, {}, {}, {}
  local shared = shared_memory(args)
  for i = 1, args.n do
    local a = args[i]
    if core.is_tensor(a) then
      if not known[a] then
        local id, offset, size = core.memory(a)
        if shared[id] and not whole[id] then
          whole[id] = graph:input("memory" .. i, { size }, a.dtype)
          order[#order + 1] = -i
        end
        if shared[id] then
          known[a] = whole[id]:as_strided(a.shape, a:stride(), offset)
        elseif not a:is_contiguous() and not a.requires_grad then -- with gaps: what it spans, so that it is laid out as in dynamic mode
          known[a] = graph:input("arg" .. i, { core.span(a):numel() }, a.dtype):as_strided(a.shape, a:stride(), 0)
          order[#order + 1] = -i
          spans[i] = true
        else
          known[a] = graph:input("arg" .. i, a.shape, a.dtype)
          order[#order + 1] = i
          if a.requires_grad then known[a].requires_grad = true end
        end
      end
      symbols[i] = known[a]
    else
      symbols[i] = a
    end
  end
  return symbols, order, spans
end

--- Takes the results apart: tensors become outputs of the graph, tables of tensors are rebuilt, other values are kept.
local function outputs_of(graph, results)
  local n, tensors = 0, {}
  local function shape_of(value, depth)
    if core.is_tensor(value) then
      n = n + 1
      tensors[n] = value
      graph:output("out" .. n, value)
      return n
    end
    if type(value) == "table" and getmetatable(value) == nil and depth < 4 then
      local t = {}
      for k, v in pairs(value) do t[k] = shape_of(v, depth + 1) end
      return { fields = t }
    end
    return { value = value }
  end
  local list = { n = results.n }
  for i = 1, results.n do list[i] = shape_of(results[i], 1) end
  local plain = true
  for i = 1, results.n do plain = plain and type(list[i]) == "number" end
  return list, plain and n == results.n, tensors
end

local function rebuild(shape, values)
  if type(shape) == "number" then return values[shape] end
  if shape.fields then
    local t = {}
    for k, v in pairs(shape.fields) do t[k] = rebuild(v, values) end
    return t
  end
  return shape.value
end

-- ---------------------------------------------------------------- gradients from outside
--
-- The gradients of the results are recorded after the results, given the gradients that will arrive as further inputs; then the
-- recording is split there. The first part runs at the call and hands over what the second reads; the second runs when gradients
-- arrive. So nothing is computed twice, random numbers are the forward's, and updates that the function makes happen once.

--- Records the gradients of `outputs` (the tensors among the results) after a mark in the graph.
local function record_gradients(graph, outputs, symbols, order, since)
  local from, wanted, slots = {}, {}, {}
  for i, y in ipairs(outputs) do
    if core.differentiable(y) then from[#from + 1] = i end -- not a step's loss, say, whose history the step has used up
  end
  if #from == 0 or not core.is_grad_enabled() then return nil end
  for _, place in ipairs(order) do
    local x = symbols[place] -- nil: a whole memory, whose views ask for no gradient
    if x and x.requires_grad then wanted[#wanted + 1], slots[#slots + 1] = x, place end
  end
  local ys, dys = {}, {}
  for k, i in ipairs(from) do ys[k] = outputs[i] end
  local captured = core.captured(ys, wanted, since)
  for _, t in ipairs(captured) do wanted[#wanted + 1] = t end
  if #wanted == 0 then return nil end
  local mark = graph:mark()
  for k, y in ipairs(ys) do dys[k] = graph:input("dy" .. k, y.shape, y.dtype) end
  local grads = table.pack(pcall(core.grad, ys, wanted, { grad_outputs = dys, cut = true, allow_unused = true }))
  if not grads[1] then -- somewhere behind the results the function has used the history up itself
    graph:cut(mark)
    return nil
  end
  local reached = {}
  for i = 1, #wanted do
    if grads[i + 1] then
      reached[#reached + 1] = i
      graph:output("dx" .. i, grads[i + 1])
    end
  end
  return { mark = mark, from = from, n_from = #outputs, args = slots, captured = captured, reached = reached, n = #wanted }
end

local function split(graph, d, options)
  local tail, n_saved = graph:split(d.mark)
  d.plan, d.n_saved, d.constants = tail:plan(options.passes, options.exact), n_saved, tail:captures()
  return d
end

local function backward(ctx, ...)
  if core.is_grad_enabled() then
    fault.raise("backward", "second derivatives through a compiled function are not there; differentiate inside of it")
  end
  local d, dys = ctx.entry.gradients, table.pack(...)
  local inputs = table.pack(ctx:saved())
  for i = 1, dys.n do inputs[d.n_saved + i] = dys[i] end
  local values, grads = table.pack(d.plan(table.unpack(inputs, 1, d.n_saved + dys.n))), {}
  for k, i in ipairs(d.reached) do grads[i] = values[k] end
  return table.unpack(grads, 1, d.n)
end

--- Makes the results of a call one node of the tape. The last n_saved of the values are for backward.
local function remember(entry, args, values)
  local d = entry.gradients
  local inputs, at, needs, saved = {}, {}, {}, {}
  for _, place in ipairs(d.args) do inputs[#inputs + 1] = args[place] end
  for _, t in ipairs(d.captured) do inputs[#inputs + 1] = t end
  for i = 1, d.n do at[i], needs[i] = i, true end
  for i = 1, d.n_saved do saved[i] = values[d.n_from + i] end
  for i, t in ipairs(d.constants) do saved[d.n_saved + i] = t end
  local ctx = core.custom_context.new { entry = entry }
  ctx:save(table.unpack(saved, 1, d.n_saved + #d.constants))
  core.custom_context.note_versions(ctx)
  core.record_custom({ backward = backward, ctx = ctx, n = d.n, at = at, needs = needs }, inputs, values, d.from)
end

--- Runs fn on symbols with recording on; whatever happens, recording is off afterwards and gradients are as they were.
local function trace(self, args)
  local graph = core.graph()
  local symbols, order, spans = stand_ins(graph, args)
  local since = core.sequence()
  graph:trace_begin()
  local shape, plain, outputs, gradients
  local ok, err = pcall(function()
    local results = table.pack(self.fn(table.unpack(symbols, 1, symbols.n)))
    shape, plain, outputs = outputs_of(graph, results)
    gradients = record_gradients(graph, outputs, symbols, order, since)
  end)
  local leaves, grads = graph:trace_end()
  if not ok then error(err, 0) end
  local entry = setmetatable({ core = graph, options = self.options, order = order, spans = spans, shape = shape,
    plain = plain and not gradients, keep = {} }, Run)
  entry.gradients = gradients and split(graph, gradients, self.options)
  if self.options.keep_grads then
    for i, leaf in ipairs(leaves) do
      if grads[i] then
        graph:output("grad" .. i, grads[i])
        entry.keep[#entry.keep + 1] = leaf
      end
    end
    entry.plain = entry.plain and #entry.keep == 0
  end
  entry.plan = graph:plan(self.options.passes, self.options.exact)
  entry.last = entry.plan
  return entry
end

--- What the plan is fed with.
local function inputs_of(entry, args)
  local order, picked = entry.order, {}
  for i = 1, #order do
    local at = order[i]
    picked[i] = at > 0 and args[at] or entry.spans[-at] and core.span(args[-at]) or core.whole_memory(args[-at])
  end
  return picked
end

--- What the function returns, from the plan's outputs.
local function results_of(entry, args, values)
  if entry.plain then return table.unpack(values, 1, values.n) end
  if entry.gradients then remember(entry, args, values) end
  local results = {}
  for i = 1, entry.shape.n do results[i] = rebuild(entry.shape[i], values) end
  for i, leaf in ipairs(entry.keep) do leaf.grad = values[values.n - #entry.keep + i] end
  return table.unpack(results, 1, entry.shape.n)
end

function Run:_bind(...)
  local args = table.pack(...)
  return self.plan, inputs_of(self, args), function(values) return results_of(self, args, values) end
end

local function run(entry, args)
  if entry._watched then return entry:start(table.unpack(args, 1, args.n)):result() end
  if entry.plain then return entry.plan(table.unpack(inputs_of(entry, args))) end
  return results_of(entry, args, table.pack(entry.plan(table.unpack(inputs_of(entry, args)))))
end

function Run:__call(...) return run(self, table.pack(...)) end

--- The same with memory of its own, for jobs going on at once; captured tensors are shared.
function Run:clone()
  local copy = {}
  for k, v in pairs(self) do copy[k] = v end
  copy.plan = self.core:plan(self.options.passes, self.options.exact)
  copy.last = copy.plan
  return setmetatable(copy, Run)
end

require("sconce.run").install(Run)

local function note(self, signature, fingerprint)
  local reason
  if #self.log == 0 then reason = "first call"
  elseif self.traces[signature] then reason = "something the function captures has changed (an upvalue, a module's or an optimiser's field)"
  else reason = "arguments of other dtypes, sizes, sharing or values" end
  self.log[#self.log + 1] = { reason = reason, signature = signature, fingerprint = fingerprint }
end

local function entry_for(self, ...)
  local signature = core.signature(...)
  local fingerprint = core.fingerprint(self.fn)
  if not fingerprint then
    error("compile: the function captures more than can be watched; sc.constant(t) marks what does not change", 3)
  end
  local of_signature = self.traces[signature]
  local entry = of_signature and of_signature[fingerprint]
  local args = table.pack(...)
  if not entry or not entry.plan:valid() then
    note(self, signature, fingerprint)
    if not of_signature then
      of_signature = { count = 0 }
      self.traces[signature] = of_signature
    end
    if of_signature.count >= MOST_TRACES then
      error(string.format("compile: traced %d times for the same arguments; something the function captures changes at every call",
        MOST_TRACES), 3)
    end
    entry = trace(self, args)
    of_signature[core.fingerprint(self.fn)] = entry
    of_signature.count = of_signature.count + 1
  end
  return entry, args
end

--- The run for these arguments, traced when it is not there yet; it is not run.
function Compiled:run_for(...) return (entry_for(self, ...)) end

function Compiled:__call(...)
  if compile.config.run_eagerly or core.is_tracing() then return self.fn(...) end
  local entry, args = entry_for(self, ...)
  self.last = entry
  return run(entry, args)
end

--- Why it was traced, a line each time.
function Compiled:explain()
  local lines = {}
  for i, l in ipairs(self.log) do lines[i] = string.format("trace %d: %s", i, l.reason) end
  return table.concat(lines, "\n")
end

--- The runs it keeps, one for each signature: see lua/sconce/run.lua for what they can do.
function Compiled:runs()
  local list = {}
  for _, of_signature in pairs(self.traces) do
    for key, entry in pairs(of_signature) do
      if key ~= "count" then list[#list + 1] = entry end
    end
  end
  return list
end

function Compiled:__tostring() return string.format("compiled function (%d traces)", #self.log) end

--- A function that is traced into a static graph and run from it.
---@param fn function  # of tensors, numbers, strings, booleans; returns tensors, tables of them, or other values (kept as they were)
---@param options? { keep_grads?: boolean, passes?: any, exact?: boolean }  # passes: names of those that are on, { name = false } for those that
---  are off; exact: none that may change rounding
function compile.compile(fn, options)
  if type(fn) ~= "function" then error("compile: expected a function, got " .. type(fn), 2) end
  return setmetatable({ fn = fn, options = options or {}, traces = {}, log = {}, _library = true }, Compiled)
end

--- Declares that a table will not change, so that compiled functions need not watch it.
function compile.constant(t)
  rawset(t, "_library", true)
  return t
end

return compile
