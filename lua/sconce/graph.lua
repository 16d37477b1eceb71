--- Graphs built by hand: `sc.graph()`, its runs and its sessions.
---
--- A size may be a name ("batch"): the graph is recorded once, and made ready for each set of actual sizes the first time they come.
local fault = require "sconce.fault"
local core = require "sconce.core"

local graph = {}

local Graph = {}
Graph.__index = Graph

local Run = {}
Run.__index = Run

local Session = {}
Session.__index = Session

--- A new, empty graph.
function graph.new()
  return setmetatable({ core = core.graph(), symbols = {}, numbers = {}, inputs = {}, outputs = {} }, Graph)
end

--- A recorded graph of the engine as such an object, which cannot change any more.
---@param n_sizes? integer  # how many sizes are left open
function graph.wrap(recorded, n_sizes)
  local inputs, outputs = recorded:names()
  for i, name in ipairs(inputs) do inputs[i] = { name = name, shape = {} } end
  local symbols, numbers = {}, {}
  for i = 1, n_sizes or 0 do
    numbers[i] = "size" .. i
    symbols[numbers[i]] = i
  end
  return setmetatable({ core = recorded, symbols = symbols, numbers = numbers, inputs = inputs, outputs = outputs, compiled = true }, Graph)
end

--- A size of a recorded graph as people write it: an integer, a name, or "?" for what follows from a name.
local function size_of(v, names)
  local at, quotient, rest = core.size_term(v, #names)
  if not at then return v end
  return quotient == 1 and rest == 0 and names[at] or "?"
end

--- A graph read from a file, ready to run; `inputs` and `outputs` of the run describe what it takes and gives.
function graph.loaded(recorded, options)
  local whole, names = recorded:whole(), recorded:sizes()
  local self = setmetatable({ core = recorded, symbols = {}, numbers = names, inputs = {}, outputs = {}, compiled = true }, Graph)
  for i, name in ipairs(names) do self.symbols[name] = i end
  local function described(name, value)
    local shape = {}
    for i, d in ipairs(value.shape) do shape[i] = size_of(d, names) end
    return { name = name, shape = shape, dtype = value.dtype }
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
  end
  return core.stand_in(at)
end

--- A named input. Sizes are integers, or names for sizes that may differ from run to run.
---@param name string
---@param shape (integer|string)[]
---@param dtype? string
---@return sc.Tensor
function Graph:input(name, shape, dtype)
  if self.compiled then error("input: the graph has been compiled and cannot change any more", 2) end
  if type(shape) ~= "table" then error("input: argument 2 (shape): expected a table, got " .. type(shape), 2) end
  local sizes = {}
  for i, d in ipairs(shape) do sizes[i] = type(d) == "string" and symbol(self, d) or d end
  local t = self.core:input(name, sizes, dtype)
  self.inputs[#self.inputs + 1] = { name = name, shape = shape, dtype = dtype or "float32" }
  return t
end

--- Names a tensor of the graph as an output.
function Graph:output(name, tensor)
  if self.compiled then error("output: the graph has been compiled and cannot change any more", 2) end
  self.core:output(name, tensor)
  self.outputs[#self.outputs + 1] = name
end

--- Sizes of the symbols from the tensors fed, as a list in order and as a key.
local function actual_sizes(self, feeds)
  local sizes = {}
  for _, input in ipairs(self.inputs) do
    local t = feeds[input.name]
    if not core.is_tensor(t) then
      fault.raise("graph", "input %s: expected a tensor, got %s", input.name, type(t))
    end
    for i, d in ipairs(input.shape) do
      if type(d) == "string" and d ~= "?" then
        local at, size = self.symbols[d], t:dim() == #input.shape and t:size(i)
        if size and sizes[at] and sizes[at] ~= size then
          error(string.format("graph: input %s: size \"%s\" is %d here and %d elsewhere", input.name, d, size, sizes[at]), 3)
        end
        sizes[at] = size or sizes[at]
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
  return setmetatable({ graph = self, plans = {}, options = options or {} }, Run)
end

local function plan_for(self, feeds)
  local sizes, key = actual_sizes(self.graph, feeds)
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
  if type(feeds) ~= "table" then error("graph: expected a table of inputs, got " .. type(feeds), 3) end
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

require("sconce.run").install(Run)

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

--- A session fetches any tensors of the graph, computing only what they need.
function Graph:session() return setmetatable({ graph = self, plans = {} }, Session) end

--- Fetches tensors (handles, or names of outputs), given feeds by name.
---@param fetches any  # a handle, a name, or a list of them
---@param feeds table
function Session:run(fetches, feeds)
  local list = core.is_tensor(fetches) and { fetches } or type(fetches) == "string" and { fetches } or fetches
  local key = {}
  for i, f in ipairs(list) do key[i] = core.is_tensor(f) and core.value_of(self.graph.core, f) or tostring(f) end
  key = table.concat(key, ";")
  local run = self.plans[key]
  if not run then
    run = setmetatable({ graph = setmetatable({ outputs = {}, core = self.graph.core:fetching(list) }, { __index = self.graph }),
      plans = {}, options = {} }, Run)
    for i = 1, #list do run.graph.outputs[i] = tostring(i) end
    self.plans[key] = run
  end
  local results, values = run(feeds), {}
  for i = 1, #list do values[i] = results[tostring(i)] end
  return table.unpack(values, 1, #list)
end

--- Writes the graph as an ONNX model; see lua/sconce/onnx/export.lua.
---@param path string
---@param options? { external?: boolean, index_base?: integer }  # external: large weights in a file beside it
--- Returns a list of what the standard nodes do not say: { op =, where =, why = }; empty for a model that other runtimes run.
function Graph:save(path, options) return require("sconce.onnx.export")(self.core, path, options, self.numbers) end

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

function Graph:print() print(self:text()) end

--- The graph in Graphviz's language.
function Graph:dot()
  local out = { "digraph sconce {", "  node [shape=box, fontname=\"sans-serif\"];" }
  for i, n in ipairs(self.core:nodes()) do
    out[#out + 1] = string.format("  n%d [label=%q];", i, n.op .. (n.line and "\n" .. n.file .. ":" .. n.line or ""))
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
