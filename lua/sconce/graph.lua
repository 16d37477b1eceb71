--- Graphs built by hand: `sc.graph()`, its runs and its sessions.
---
--- A size may be a name ("batch"): the graph is recorded once, and made ready for each set of actual sizes the first time they come.
local fault = require "sconce.fault"
local core = require "sconce.core"

local run = require "sconce.run"

local graph = {}

local Graph = run.class("a graph")
local Run = run.class("a run")
local Session = run.class("a session")

--- A new, empty graph.
function graph.new()
  if not graph.tracks then require("sconce.nn.module").track(1) end
  graph.tracks = true
  return setmetatable({ core = core.graph(), symbols = {}, numbers = {}, inputs = {}, outputs = {} }, Graph)
end

--- A size of a recorded graph as people write it: an integer, a name, or "?" for what follows from a name.
local function size_of(v, names)
  local at, quotient, rest = core.size_term(v, #names)
  if not at then return v end
  return quotient == 1 and rest == 0 and names[at] or "?"
end

--- A recorded graph of the engine as such an object, which cannot change any more.
---@param n_sizes? integer  # how many sizes are left open
---@param n_saved? integer  # how many outputs at the end are for gradients only, and no results
function graph.wrap(recorded, n_sizes, n_saved)
  local symbols, numbers = {}, {}
  for i = 1, n_sizes or 0 do
    numbers[i] = "size" .. i
    symbols[numbers[i]] = i
  end
  local inputs, outputs = recorded:names()
  for i, name in ipairs(inputs) do
    local shape = {}
    for d, size in ipairs(recorded:input_shape(i)) do shape[d] = size_of(size, numbers) end
    inputs[i] = { name = name, shape = shape, dtype = recorded:input_dtype(i) }
  end
  for _ = 1, n_saved or 0 do outputs[#outputs] = nil end
  return setmetatable({ core = recorded, symbols = symbols, numbers = numbers, inputs = inputs, outputs = outputs, compiled = true,
    n_saved = n_saved }, Graph)
end

--- A graph read from a file, ready to run; `inputs` and `outputs` of the run describe what it takes and gives.
function graph.loaded(recorded, options)
  local whole, names = recorded:whole(), recorded:sizes()
  local self = setmetatable({ core = recorded, symbols = {}, numbers = names, inputs = {}, outputs = {}, compiled = true }, Graph)
  for i, name in ipairs(names) do self.symbols[name] = i end
  local function described(name, value)
    local shape = {}
    for i, d in ipairs(value.shape) do shape[i] = size_of(d, names) end
    return { name = name, shape = shape, dtype = value.dtype, fixed = true }
  end
  local outputs = {}
  for i, v in ipairs(whole.inputs) do self.inputs[i] = described(whole.values[v].name, whole.values[v]) end
  for i, o in ipairs(whole.outputs) do self.outputs[i], outputs[i] = o.name, described(o.name, whole.values[o.value]) end
  return setmetatable({ graph = self, plans = {}, options = options or {}, inputs = self.inputs, outputs = outputs, recorded = true }, Run)
end

--- The stand-in for a named size.
local function symbol(self, name)
  local at = self.symbols[name]
  if not at then
    at = #self.numbers + 1
    self.symbols[name], self.numbers[at] = at, name
    core.stand_in(at) -- raises when there are too many
    self.core:sizes(self.numbers)
  end
  return core.stand_in(at)
end

--- A named input. Sizes are integers, or names for sizes that may differ from run to run.
---@param name string
---@param shape (integer|string)[]
---@param dtype? string
---@return sc.Tensor
function Graph:input(name, shape, dtype)
  if self.compiled then fault.raise("input", "the graph has been compiled and cannot change any more") end
  if type(name) ~= "string" then fault.raise("input", "argument 1 (name): expected a string, got %s", fault.describe(name)) end
  if type(shape) ~= "table" then fault.raise("input", "argument 2 (shape): expected a table, got %s", fault.describe(shape)) end
  local sizes = {}
  for i, d in ipairs(shape) do sizes[i] = type(d) == "string" and symbol(self, d) or d end
  local t = self.core:input(name, sizes, dtype)
  self.inputs[#self.inputs + 1] = { name = name, shape = shape, dtype = dtype or "float32", fixed = true }
  return t
end

--- Names a tensor of the graph as an output.
function Graph:output(name, tensor)
  if self.compiled then fault.raise("output", "the graph has been compiled and cannot change any more") end
  if type(name) ~= "string" then fault.raise("output", "argument 1 (name): expected a string, got %s", fault.describe(name)) end
  if not core.is_tensor(tensor) then fault.raise("output", "argument 2: expected a tensor, got %s", fault.describe(tensor)) end
  for _, other in ipairs(self.outputs) do
    if other == name then fault.raise("output", "there is an output named %q already", name) end
  end
  self.core:output(name, tensor)
  self.outputs[#self.outputs + 1] = name
end

-- ---------------------------------------------------------------- feeding

local function shape_words(shape)
  local list = {}
  for i, d in ipairs(shape) do list[i] = tostring(d) end
  return "{" .. table.concat(list, ", ") .. "}"
end

--- Refuses what an input cannot be fed with.
local function check_feed(what, input, t)
  if not core.is_tensor(t) then fault.raise(what, "input %s: expected a tensor, got %s", input.name, fault.describe(t)) end
  local fits = t.dtype == input.dtype and (not input.fixed or t:dim() == #input.shape)
  for i, d in ipairs(fits and input.fixed and input.shape or {}) do fits = fits and (type(d) == "string" or d == t:size(i)) end
  if not fits then
    fault.raise(what, "input %s: expected %s of shape %s, got %s of shape %s", input.name, input.dtype, shape_words(input.shape), t.dtype,
      shape_words(t.shape))
  end
end

--- Refuses names that are no input's, with the nearest ones.
local function check_names(what, inputs, feeds)
  if type(feeds) ~= "table" then fault.raise(what, "expected a table of inputs, got %s", fault.describe(feeds)) end
  local known, names = {}, {}
  for i, input in ipairs(inputs) do known[input.name], names[i] = true, input.name end
  for name in pairs(feeds) do
    if not known[name] then
      local shown = type(name) == "string" and ("%q"):format(name) or fault.describe(name)
      fault.raise(what, "there is no input %s; %s", shown, require("sconce.help").suggest(name, known,
        #names > 0 and "the inputs are " .. table.concat(names, ", ") or "the graph has none"))
    end
  end
end

--- Sizes of the symbols from the tensors fed, as a list in order and as a key. Refuses feeds that do not fit.
local function actual_sizes(self, feeds, what)
  what = what or "graph"
  local sizes, from = {}, {}
  check_names(what, self.known or self.inputs, feeds)
  for _, input in ipairs(self.inputs) do
    local t = feeds[input.name]
    if t == nil then fault.raise(what, "input %s is missing", input.name) end
    check_feed(what, input, t)
    for i, d in ipairs(input.shape) do
      local at = type(d) == "string" and self.symbols[d]
      if at then
        local size = t:size(i)
        if sizes[at] and sizes[at] ~= size then
          fault.raise(what, "size \"%s\" is %d in input %s and %d in input %s", d, sizes[at], from[at], size, input.name)
        end
        sizes[at], from[at] = size, input.name
      end
    end
  end
  for i = 1, #self.numbers do sizes[i] = sizes[i] or 1 end
  return sizes, table.concat(sizes, ",")
end

--- The graph made ready to run: optimised and planned, once for each set of actual sizes.
---@param options? { passes?: any, exact?: boolean }  # as for sc.compile
function Graph:compile(options)
  self.compiled = true
  self.core:seal()
  return setmetatable({ graph = self, plans = {}, options = options or {} }, Run)
end

local function plan_for(self, feeds)
  local sizes, key = actual_sizes(self.graph, feeds, self.what)
  local plan = self.plans[key]
  if not plan then
    local g = #sizes > 0 and self.graph.core:instantiate(sizes) or self.graph.core
    plan = { g:plan(self.options.passes, self.options.exact), g }
    self.plans[key] = plan
  end
  self.last, self.core = plan[1], plan[2]
  return plan[1]
end

function Run:_bind(feeds)
  local plan, args = plan_for(self, feeds), { n = #self.graph.inputs }
  for i, input in ipairs(self.graph.inputs) do args[i] = feeds[input.name] end
  return plan, args, function(values)
    local results = {}
    for i, name in ipairs(self.graph.outputs) do results[name] = values[i] end
    return results
  end
end

--- Recorded into what is being recorded, or carried out op by op, so that gradients flow.
local function directly(self, feeds)
  local g, list, results = self.graph, {}, {}
  local sizes = actual_sizes(g, feeds)
  for i, input in ipairs(g.inputs) do list[i] = feeds[input.name] end
  for i, t in ipairs(g.core:apply(sizes, list)) do results[g.outputs[i]] = t end
  return results
end

function Run:__call(feeds)
  if core.is_tracing() then return directly(self, feeds) end
  if self._watched then return self:start(feeds):result() end
  local plan, args, finish = self:_bind(feeds)
  return finish(table.pack(plan(table.unpack(args, 1, args.n))))
end

run.install(Run)

function Run:__tostring()
  local names = {}
  for i, input in ipairs(self.graph.inputs) do names[i] = input.name end
  return ("run of a graph (%s -> %s)"):format(table.concat(names, ", "), table.concat(self.graph.outputs, ", "))
end

--- The same graph with memory of its own; weights are shared.
function Run:clone()
  return setmetatable({ graph = self.graph, plans = {}, options = self.options, inputs = self.inputs, outputs = self.outputs,
    recorded = self.recorded }, Run)
end

--- The tensors it captured, by the names they have in the file: parameters, state of optimisers, constants.
function Run:parameters()
  local list = {}
  for _, c in ipairs(self.graph.core:named()) do list[c.name] = c.tensor end
  return list
end

-- ---------------------------------------------------------------- sessions

--- A session fetches any tensors of the graph, computing only what they need.
function Graph:session() return setmetatable({ graph = self, plans = {} }, Session) end

function Session:__tostring() return "session of " .. tostring(self.graph) end

local function check_fetch(self, i, f)
  if not core.is_tensor(f) and type(f) ~= "string" then
    fault.raise("session", "fetch %d: expected a tensor of the graph or the name of an output, got %s", i, fault.describe(f))
  end
  for _, name in ipairs(self.graph.outputs) do if f == name then return end end
  if type(f) == "string" then
    local known = {}
    for _, name in ipairs(self.graph.outputs) do known[name] = true end
    fault.raise("session", "the graph has no output named %q; %s", f, require("sconce.help").suggest(f, known,
      #self.graph.outputs > 0 and "the outputs are " .. table.concat(self.graph.outputs, ", ") or "it has none"))
  end
end

--- Feeds by name of an input are told from those of other values: a handle, or the name of an output, whose value is given.
local function sort_feeds(self, feeds)
  if type(feeds) ~= "table" then fault.raise("session", "argument 2 (feeds): expected a table, got %s", fault.describe(feeds)) end
  local inputs, outputs, named, values = {}, {}, {}, {}
  for _, input in ipairs(self.graph.inputs) do inputs[input.name] = true end
  for _, name in ipairs(self.graph.outputs) do outputs[name] = true end
  for k, v in pairs(feeds) do
    if not inputs[k] and (core.is_tensor(k) or outputs[k]) then values[#values + 1] = { core.value_of(self.graph.core, k), k, v }
    else named[k] = v end
  end
  table.sort(values, function(a, b) return a[1] < b[1] end)
  return named, values
end

--- The run that fetches these, made when it is not there yet.
local function run_for(self, list, values, updates)
  local key, fed = {}, {}
  for i, f in ipairs(list) do key[i] = core.value_of(self.graph.core, f) end
  for i, v in ipairs(values) do
    key[#key + 1] = "<" .. v[1]
    fed[i] = v[2]
  end
  key = table.concat(key, ";") .. (updates and "+" or "")
  if self.plans[key] then return self.plans[key] end
  local part = self.graph.core:fetching(list, fed, updates)
  local inputs, names = {}, (part:names())
  for i, name in ipairs(names) do
    local shape = {}
    for d, size in ipairs(part:input_shape(i)) do shape[d] = size_of(size, self.graph.numbers) end
    inputs[i] = { name = name, shape = shape, dtype = part:input_dtype(i), fixed = true }
  end
  local known = table.move(self.graph.inputs, 1, #self.graph.inputs, 1, {}) -- what is not needed may be fed all the same
  for i, input in ipairs(inputs) do if input.name:find("^feed %d+$") then known[#known + 1] = inputs[i] end end
  local run_ = setmetatable({ graph = { outputs = {}, core = part, inputs = inputs, known = known, symbols = self.graph.symbols,
    numbers = self.graph.numbers }, plans = {}, options = {}, what = "session" }, Run)
  for i = 1, #list do run_.graph.outputs[i] = tostring(i) end
  self.plans[key] = run_
  return run_
end

--- Fetches tensors (handles, or names of outputs). Feeds: inputs by name, and any other value by its handle, or name as an output, which
--- is then taken as given. Only what the fetched need is computed; inputs that they do not need need not be fed. What comes after the
--- last value they need, an optimiser's step above all, is left out unless { updates = true }.
---@param fetches any  # a handle, a name, or a list of them
---@param feeds table
---@param options? { updates?: boolean }
function Session:run(fetches, feeds, options)
  fault.expect("session", 3, "options", options)
  local list = (core.is_tensor(fetches) or type(fetches) == "string") and { fetches } or fetches
  if type(list) ~= "table" then fault.raise("session", "argument 1 (fetches): expected a tensor, a name or a list, got %s", fault.describe(list)) end
  for i, f in ipairs(list) do check_fetch(self, i, f) end
  local named, values = sort_feeds(self, feeds)
  self.last = run_for(self, list, values, options and options.updates)
  for i, v in ipairs(values) do named["feed " .. i] = v[3] end
  local results, out = self.last(named), {}
  for i = 1, #list do out[i] = results[tostring(i)] end
  return table.unpack(out, 1, #list)
end

--- Writes the graph as an ONNX model; see lua/sconce/onnx/export.lua.
---@param path string
---@param options? { external?: boolean, index_base?: integer }  # external: large weights in a file beside it
--- Returns a list of what the standard nodes do not say: { op =, where =, why = }; empty for a model that other runtimes run.
function Graph:save(path, options)
  local _ <close> = setmetatable({}, { __close = function() self.core:hide(0) end })
  self.core:hide(rawget(self, "n_saved") or 0)
  local report = require("sconce.onnx.export")(self.core, path, options, self.numbers)
  return report
end

-- Of compiled functions: f.last.graph:save(path).
function core.graph_methods.save(g, path, options) return require("sconce.onnx.export")(g, path, options) end

-- ---------------------------------------------------------------- looking inside

--- The nodes, in order: { op =, inputs =, outputs =, file =, line = }.
function Graph:nodes() return self.core:nodes() end

--- The tensors it captured by reference: parameters, buffers, constants.
function Graph:parameters() return self.core:captures() end

--- The graph as text (csrc/graph/text.h says how it reads); core.graph_parse reads it back.
function Graph:text()
  self.core:sizes(self.numbers)
  return self.core:text()
end

--- Prints the recording: a line for each node, with its shapes and the script's line.
function Graph:print() print(self:text()) end

function Graph:__tostring()
  local inputs = {}
  for i, input in ipairs(self.inputs) do inputs[i] = ("%s %s %s"):format(input.name, input.dtype, shape_words(input.shape)) end
  local n = self.core:size()
  return ("graph of %d node%s: %s -> %s"):format(n, n == 1 and "" or "s", #inputs > 0 and table.concat(inputs, ", ") or "no inputs",
    #self.outputs > 0 and table.concat(self.outputs, ", ") or "no outputs")
end

local function label(n)
  local text = n.op .. (n.line and "\n" .. n.file .. ":" .. n.line or "") .. (n.module and "\nin " .. n.module or "")
    .. (n.backward and "\nbackward" or "")
  return (text:gsub('[\\"]', "\\%0"):gsub("\n", "\\n"))
end

--- The graph in Graphviz's language.
function Graph:dot()
  local out = { "digraph sconce {", "  node [shape=box, fontname=\"sans-serif\"];" }
  for i, n in ipairs(self.core:nodes()) do
    out[#out + 1] = string.format("  n%d [label=\"%s\"];", i, label(n))
    for k, v in ipairs(n.ins) do
      if v > 0 then out[#out + 1] = string.format("  v%d -> n%d;", v, i) end
      if v > 0 and n.inputs[k]:find(":") then out[#out + 1] = string.format("  v%d [label=%q, shape=ellipse];", v, n.inputs[k]) end
    end
    for _, v in ipairs(n.outs) do out[#out + 1] = string.format("  n%d -> v%d; v%d [label=\"%%%d\", shape=plain];", i, v, v, v) end
  end
  out[#out + 1] = "}"
  return table.concat(out, "\n")
end

--- Runs the nodes one by one as recorded: the plain executor that plans are compared with.
function Graph:run(feeds)
  local sizes = actual_sizes(self, feeds)
  local g = #sizes > 0 and self.core:instantiate(sizes) or self.core
  return g:run(feeds)
end

return graph
