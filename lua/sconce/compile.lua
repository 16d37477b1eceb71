--- sc.compile: a Lua function traced once per signature of its arguments into a static graph, which is then run instead of it.
---
--- A trace calls the function with symbolic tensors while every op is recorded: forward, backward and updates of captured tensors
--- become one graph. What the function returned becomes the graph's outputs. Before each call two things decide which trace fits: the
--- arguments' signature (dtypes, sizes, shared memory, other values), and a guard over everything the function captures (capture.lua).
--- The call itself is C (csrc/lua/compiled.c); what is here happens when no trace fits.
local core = require "sconce.core"
local fault = require "sconce.fault"
local capture = require "sconce.capture"
local sizes = require "sconce.sizes"
local runs = require "sconce.run"

local MOST_TRACES = 64 -- more means that something changes all the time
local MOST_INSTANCES = 32 -- of a trace with open sizes: plans that are kept, each with an arena

--- A trace, ready to run: called with the arguments of the function.
local Run = runs.class("a run")
local method = Run.__index
Run.__index = function(self, name)
  if name == "graph" then
    local open = rawget(self, "open")
    local gradients = rawget(self, "gradients")
    return require("sconce.graph").wrap(open and open.core or rawget(self, "core"), open and open.n, gradients and gradients.n_saved)
  end
  return method(self, name)
end

local Compiled = runs.class("a compiled function")
Compiled._compiled = true

local compile = {}

local config = { run_eagerly = false }
compile.config = setmetatable({}, { __index = config, __newindex = function(_, key, value)
  if config[key] == nil then fault.raise("config", "there is no setting %q; the settings are run_eagerly", tostring(key)) end
  config[key] = value
  core.run_eagerly(value)
end })

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
--- fed with: its number, negative for all of its memory or (`spans`) for what it spans there. names: of sizes that are left open.
local function stand_ins(graph, args, names)
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
          known[a] = graph:input("arg" .. i, names and sizes.stand_in(names, i, a.shape) or a.shape, a.dtype)
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
    if tostring(grads[2]):find("not enough memory", 1, true) then error(grads[2], 0) end
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

local function split(graph, d)
  d.tail, d.n_saved = graph:split(d.mark)
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

local current -- the call being traced

--- The values of an argument that decide sizes, for ops such as tensor_split: from then on they are part of its signature. nil when t is
--- not, as it is, an argument of the function being traced.
function compile.values_of(t)
  for i = 1, current and current.args.n or 0 do
    if current.symbols[i] == t and rawequal(current.symbols[i], t) then
      local real = current.args[i]
      current.by_value[i] = core.untraced(real.tostring_bytes, real)
      return core.untraced(real.totable, real)
    end
  end
end

--- What a recording changes around it; closing the value puts it back.
local function surroundings()
  local nn, outer = package.loaded["sconce.nn.module"], current
  local back = setmetatable({ module = core.module(nil) }, { __close = function(was)
    if nn then nn.track(-1) end
    core.module(was.module)
    core.watch_sizes(false)
    current = outer
  end })
  if nn then nn.track(1) end
  return back
end

--- Records the function on stand-ins for args. Whatever happens, recording is off afterwards and gradients are as they were.
--- Returns the graph and what the results are made of; or nil, the error, and with `names` which of those sizes the script has read, where.
--- cloned: numbers of the tensors that the function makes of tables and that the graph makes anew for each run.
local function record(self, args, names, most, cloned)
  local graph = core.graph()
  local made = { core = graph, read = {} }
  local fits, symbols, order, spans = pcall(stand_ins, graph, args, names)
  if not fits then -- stand-ins of several sizes may be too large together
    graph:trace(function() end)
    return nil, symbols
  end
  local since = core.sequence()
  if names then
    local list = {}
    for _, name in pairs(names) do list[name] = "size" .. name end
    graph:sizes(list)
  end
  local mine = { symbols = symbols, args = args, by_value = {} }
  local _ <close> = surroundings()
  local _ <close> = graph:trace_begin(most)
  current = mine
  core.watch_sizes(names ~= nil)
  core.cloned(cloned)
  local results
  local ok, err = core.unyieldable(function() results = table.pack(self.fn(table.unpack(symbols, 1, symbols.n))) end, made.read)
  made.by_value = next(mine.by_value) and mine.by_value
  made.called = ok and err -- the set of functions that ran; nil: all of them may have
  if ok then ok, err = core.unyieldable(function()
    made.shape, made.plain, made.outputs = outputs_of(graph, results)
    made.gradients = record_gradients(graph, made.outputs, symbols, order, since)
  end) end
  local read, where = core.watch_sizes(false)
  made.leaves, made.grads = graph:trace_end()
  if read ~= 0 then return nil, err, read, where end
  if not ok then
    if type(err) == "string" and err:find("attempt to yield across a C-call boundary", 1, true) then
      fault.raise("compile", "the function yields while it is traced; a compiled function cannot be left in the middle (a job can: run:start)")
    end
    return nil, err
  end
  made.order, made.spans, made.cloned = order, spans, cloned
  return made
end

--- What the function must not do to what it captures. Traced values would leave the graph; anything else it sets would be set once,
--- when it is traced. The latter may still be a count that decides nothing: then tracing once more gives the same graph.
local function check_changes(self, args, made, changes, names)
  if #changes == 0 then return end
  for _, c in ipairs(changes) do
    if core.is_tensor(c.is) and core.is_symbolic(c.is) then
      capture.undo(changes)
      fault.raise("compile", "the function assigns a tensor that it computes to %s '%s'. A graph cannot do that: return the tensor, or "
        .. "write into one that is there already (%s:copy_(value))", c.upvalue and "upvalue" or "field", c.path, c.path)
    end
  end
  local again, err = record(self, args, names, nil, made.cloned)
  local same = again and core.same_graph(made.core, again.core)
  if not same then capture.undo(changes) else capture.redo(changes) end
  if not again then error(err, 0) end
  if not same then
    local c = changes[1]
    fault.raise("compile", "the function itself changes %s '%s' (from %s to %s), and what it computes depends on that. It would be set only "
      .. "when the function is traced: keep it in a tensor (count:add_(1)), or set it outside", c.upvalue and "upvalue" or "field", c.path,
      capture.words(c.was), capture.words(c.is))
  end
end

--- Makes a trace ready to run, its sizes being known.
local function plan(entry)
  local options, d = entry.options, entry.gradients
  if d then d.plan, d.constants = d.tail:plan(options.passes, options.exact), d.tail:captures() end
  entry.plan = entry.core:plan(options.passes, options.exact)
  entry.last = entry.plan
  return entry
end

--- A trace: recorded, checked, guarded. With names for sizes: nil, an error, and which of them the script reads, where.
local function trace(self, args, names, most)
  local before = capture.walk(self.fn, false)
  local made, err, read, where = record(self, args, names, most)
  local changes = before:changes()
  local loose = made and made.core:loose()
  if loose and next(loose) then
    capture.undo(changes)
    made, err, read, where = record(self, args, names, most, loose)
    changes = before:changes()
  end
  if not made then
    capture.undo(changes)
    if names then return nil, err, read, where end
    error(err, 0)
  end
  check_changes(self, args, made, changes, names)
  local graph, gradients = made.core, made.gradients
  local entry = setmetatable({ core = graph, options = self.options, order = made.order, spans = made.spans, shape = made.shape,
    plain = made.plain and not gradients, keep = {} }, Run)
  entry.gradients = gradients and split(graph, gradients)
  if self.options.keep_grads then
    for i, leaf in ipairs(made.leaves) do
      if made.grads[i] then
        graph:output("grad" .. i, made.grads[i])
        entry.keep[#entry.keep + 1] = leaf
      end
    end
    entry.plain = entry.plain and #entry.keep == 0
  end
  entry.sizes, entry.places = sizes.of(args), capture.walk(self.fn, true, made.called)
  entry.places:leave_out(changes)
  entry.guard, entry.by_value = entry.places:guard(graph, made.read), made.by_value
  entry.n_read = #made.read
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
  for i, leaf in ipairs(entry.keep) do
    local grad = values[values.n - #entry.keep + i]
    if (entry.open or entry).core:accumulates(leaf) then leaf.grad:copy_(grad) else leaf.grad = grad end -- the tensor that the graph adds to stays
  end
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

function Run:__tostring() return "run of a compiled function: " .. tostring(self.graph) end

--- The same with memory of its own, for jobs going on at once; captured tensors are shared.
function Run:clone()
  local copy = {}
  for k, v in pairs(self) do copy[k] = v end
  copy.plan = self.core:plan(self.options.passes, self.options.exact)
  copy.last = copy.plan
  return setmetatable(copy, Run)
end

runs.install(Run)

-- ---------------------------------------------------------------- which trace a call runs

--- What a call's arguments are, in words, for explanations.
local function describe_arguments(args)
  local list = {}
  for i = 1, args.n do
    local a = args[i]
    list[i] = core.is_tensor(a) and ("a %s tensor of shape {%s}%s"):format(a.dtype, table.concat(a.shape, ", "),
      a.requires_grad and " that asks for gradients" or "") or capture.words(a)
  end
  return list
end

--- Why none of the traces fits: reason, remedy.
local function reason_of(self, signature, words)
  local last = self.log[#self.log]
  if not last then return "first call" end
  local of_signature = self.traces[signature]
  if of_signature then
    local changes -- since the trace that is nearest
    for i = #of_signature, 1, -1 do
      local list = of_signature[i].places:changes(true)
      if not changes or #list < #changes then changes = list end
    end
    local c = changes[1]
    if not c and of_signature[#of_signature].by_value then
      return "the values of a tensor argument that decide sizes have changed", "give numbers, or sizes that do not change"
    end
    if not c and of_signature[#of_signature].n_read > 0 then
      return "a tensor that the function gives to an op as a number was written to", "give the op the tensor where it takes one"
    end
    if not c then return "a tensor it captures asks for gradients now, or no longer does", "decide that before the first call" end
    local remedy = c.path:find("%.training$") and "a trace is kept for each mode of a module; nothing needs to be done"
      or core.is_tensor(c.was) and "write into the tensor (copy_) instead of putting another in its place"
      or type(c.was) == "number" and "a number that changes from call to call is better a tensor that is written to in place, or an argument"
      or "a trace is kept for each such state; what changes at every call is better an argument"
    local was, is = capture.words(c.was), capture.words(c.is)
    return ("%s '%s' was %s and is %s"):format(c.upvalue and "upvalue" or "field", c.path, was, was == is and "another" or is), remedy
  end
  if last.n ~= #words then return ("%d arguments instead of %d"):format(#words, last.n), "other arguments make another graph" end
  for i, w in ipairs(words) do
    local was = last.words[i]
    if was ~= w then
      local other_sizes = was:gsub("{.*}", "") == w:gsub("{.*}", "")
      return ("argument %d was %s and is %s"):format(i, was, w), w:find(" tensor of shape ", 1, true)
        and (other_sizes and "" or "other dtypes and other numbers of dimensions make other graphs")
        or "numbers, strings and booleans are part of the graph; a number that varies is better given as a tensor"
    end
  end
  return "arguments that share memory in another way, or gradients switched on or off", "other sharing makes another graph"
end

local function explain(self, most)
  local lines = {}
  for i = math.max(1, #self.log - (most or #self.log) + 1), #self.log do
    local l = self.log[i]
    lines[#lines + 1] = ("trace %d: %s%s"):format(i, l.reason, l.remedy and "\n  remedy: " .. l.remedy or "")
  end
  return table.concat(lines, "\n")
end

--- A run for these arguments from now on. Of a trace with open sizes the oldest such run makes room when there are many.
local function keep(self, signature, entry)
  local open, way = entry.open, nil
  if open then
    table.insert(open.instances, entry)
    if #open.instances > MOST_INSTANCES then
      local old = table.remove(open.instances, 1)
      local list = self.traces[old.signature]
      for i, e in ipairs(list) do if e == old then table.remove(list, i) break end end
      if #list == 0 then self.traces[old.signature] = nil end
      way = old.way
    end
  end
  way = way or self.ways + 1
  entry.way, entry.signature, entry.dispatcher = way, signature, self[1]
  core.add_way(self[1], signature, entry.guard, entry.plan, entry, entry.by_value, entry.order, entry.plain, way)
  self.ways = math.max(self.ways, way) -- counted, and listed, once it is there: memory may be refused anywhere
  local list = self.traces[signature] or {}
  table.insert(list, entry)
  self.traces[signature] = list
  return entry
end

-- ---------------------------------------------------------------- sizes that vary

--- Calls that differ in sizes only: { first = the latest trace with sizes as they came, open = list of those that leave some open, fixed = }.
local function kind_of(self, args)
  local signature = core.signature(false, table.unpack(args, 1, args.n))
  self.kinds[signature] = self.kinds[signature] or { open = {}, fixed = {} }
  return self.kinds[signature]
end

--- The run of a trace with open sizes for these sizes.
local function instantiate(open, actual)
  local entry, d = {}, open.gradients
  for k, v in pairs(open) do entry[k] = v end
  entry.open, entry.core = open, open.core:instantiate(actual)
  if d then
    entry.gradients = {}
    for k, v in pairs(d) do entry.gradients[k] = v end
    entry.gradients.tail = d.tail:instantiate(actual)
  end
  return plan(setmetatable(entry, Run))
end

--- Whether a trace with open sizes is, for the sizes of the first one, what was recorded then.
local function agrees(open, first)
  local actual = sizes.actual(open.names, open.n, open.sizes, first.sizes)
  local d, e = open.gradients, first.gradients
  if not actual or not d ~= not e then return false end
  local ok, same = pcall(function()
    return core.same_graph(open.core:instantiate(actual), first.core) and (not d or core.same_graph(d.tail:instantiate(actual), e.tail))
  end)
  return ok and same
end

--- Tries to trace with the sizes left open that differ from those of the first call; nil when that cannot be done.
local function open_sizes(self, kind, args)
  local first, now = kind.first, sizes.of(args)
  if kind.closed or not core.holds(first.guard) then return nil end
  for i = 1, #first.order do if first.order[i] < 0 then return nil end end
  while true do
    local names, n = sizes.name(first.sizes, now, kind.fixed)
    if not names then return nil end
    local open, _, read, where = trace(self, args, names, 2 * first.core:size() + 1000)
    if not open and not (read and sizes.fix(kind.fixed, names, read, where)) then
      kind.closed = true
      return nil
    end
    if open then
      open.names, open.n, open.instances = names, n, {}
      open.actual = sizes.actual(names, n, now, now)
      for i, shape in ipairs(now) do -- sizes that are fixed in this trace are those of this call
        for d in ipairs(shape or {}) do if not names[i .. "." .. d] and shape[d] ~= first.sizes[i][d] then open.differs = true end end
      end
      local like = open.differs and plan(trace(self, args)) or first
      if not agrees(open, like) then
        kind.closed = true
        return nil
      end
      table.insert(kind.open, open)
      return open
    end
  end
end

local function remedy_of_sizes(kind, open)
  if open then return "this size varies: it is left open from now on" end
  local fixed
  for at, where in pairs(kind.fixed) do
    local text = ("%s is read at %s, so each value makes a trace; -1 in a shape, or a call without the number, leaves it open"):format(
      sizes.words(at), where)
    if not fixed or text < fixed then fixed = text end
  end
  if kind.closed then return "what is computed differs in more than the sizes, so each size makes a trace" end
  return fixed or "sizes of 0 and 1, and of views with gaps, make graphs of their own"
end

local function same_values(entry, args)
  for i, bytes in pairs(entry.by_value or {}) do
    if args[i]:tostring_bytes() ~= bytes then return false end
  end
  return true
end

--- The run for these arguments: one that is there and whose guard holds, else a new one.
local function entry_for(self, args)
  local signature = core.signature(true, table.unpack(args, 1, args.n))
  for _, entry in ipairs(self.traces[signature] or {}) do
    if core.holds(entry.guard) and same_values(entry, args) then return entry end
  end
  local kind, shapes = kind_of(self, args), sizes.of(args)
  for _, open in ipairs(kind.open) do
    local actual = sizes.actual(open.names, open.n, open.sizes, shapes)
    if actual and core.holds(open.guard) and same_values(open, args) then return keep(self, signature, instantiate(open, actual)) end
  end
  local words = describe_arguments(args)
  local reason, remedy = reason_of(self, signature, words)
  if #self.log >= self.limit then
    fault.raise("compile", "this function has been traced %d times, the most that is allowed (see the option `limit`). The next reason: "
      .. "%s.\nThe latest ones:\n%s", #self.log, reason, explain(self, 3))
  end
  local opened = kind.first and open_sizes(self, kind, args)
  local entry = opened and instantiate(opened, opened.actual) or plan(trace(self, args))
  if not opened then kind.first = entry end
  self.log[#self.log + 1] = { reason = reason, remedy = remedy == "" and remedy_of_sizes(kind, opened) or remedy,
    words = words, n = #words }
  return keep(self, signature, entry)
end

--- The run for these arguments, traced when it is not there yet; it is not run.
function Compiled:run_for(...)
  local entry = entry_for(self, table.pack(...))
  self.last = self.last or entry
  return entry
end

--- A call. An argument may be, or be a view of, a tensor that is captured: a graph takes them for different memory, so where one of them
--- is written to the function itself does that call, line by line.
local function call(self, entry, args)
  if core.clashes(entry.plan, table.unpack(args, 1, args.n)) then return self.fn(table.unpack(args, 1, args.n)) end
  return run(entry, args)
end

--- What the engine finds no way for.
local function without_a_way(self, ...)
  if compile.config.run_eagerly or core.is_tracing() then return self.fn(...) end
  local args = table.pack(...)
  local entry = entry_for(self, args)
  self.last = entry
  return call(self, entry, args)
end

Compiled.__call = core.compiled_call(without_a_way, function(self, entry, ...) return call(self, entry, table.pack(...)) end)

--- Why it was traced, each time, and what can be done about it.
function Compiled:explain() return explain(self) end

--- The runs it keeps, one for each trace (of one with open sizes the latest): see lua/sconce/run.lua for what they can do.
function Compiled:runs()
  local list, open = {}, {}
  for _, of_signature in pairs(self.traces) do
    for _, entry in ipairs(of_signature) do
      if not (entry.open and open[entry.open]) then list[#list + 1] = entry.open and entry.open.instances[#entry.open.instances] or entry end
      if entry.open then open[entry.open] = true end
    end
  end
  return list
end

function Compiled:__tostring() return string.format("compiled function (%d trace%s)", #self.log, #self.log == 1 and "" or "s") end

local OPTIONS = { "keep_grads", "passes", "limit", "exact" }

local function check_options(options)
  local known = {}
  for _, name in ipairs(OPTIONS) do known[name] = true end
  fault.expect("compile", "argument 2", "options", options)
  for name in pairs(options or {}) do
    if not known[name] then
      fault.raise("compile", "there is no option %q; the options are %s", tostring(name), table.concat(OPTIONS, ", "))
    end
  end
end

--- A function that is traced into a static graph and run from it.
---@param fn function  # or a module; of tensors, numbers, strings, booleans; returns tensors, tables of them, or other values (kept as they were)
---@param options? { keep_grads?: boolean, passes?: any, exact?: boolean, limit?: integer }  # passes: names of those that are on,
---  { name = false } for those that are off; exact: none that may change rounding; limit: the most traces, 64
function compile.compile(fn, options)
  fault.expect("compile", "argument 1", "function", fn)
  if type(fn) ~= "function" then
    local callee = fn -- a module
    fn = function(...) return callee(...) end
  end
  check_options(options)
  return setmetatable({ core.dispatcher(), fn = fn, options = options or {}, limit = options and options.limit or MOST_TRACES, traces = {},
    log = {}, kinds = {}, ways = 0 }, Compiled)
end

--- Declares that a table will not change, so that compiled functions need not watch it.
function compile.constant(t)
  if type(t) ~= "table" then fault.raise("constant", "expected a table, got %s", fault.describe(t)) end
  capture.constant(t)
  return t
end

return compile
