--- ONNX models: `sc.load_graph(path)` gives a run, called with named inputs, answering with named outputs.
---
--- The nodes of the model are carried out one by one by functions from a table (import_*.lua), over ordinary ops. The first call for
--- a set of input sizes and dtypes does that on symbolic tensors, and so records a static graph which later calls with the same
--- sizes run; whatever follows from initializers and shapes alone is worked out at that time and costs nothing later. Where the
--- model's course depends on values (an If whose condition is computed, a Reshape to a computed shape, NonZero), the nodes are
--- carried out directly at every call; `run.recorded` tells which it is.
---
--- Index values stay 0-based: a model from elsewhere keeps its own face.
local core = require "sconce.core"
local fault = require "sconce.fault"
local walk = require "sconce.onnx.walk"

local onnx = {}

local MOST_PLANS = 64

local Run = {}
Run.__index = Run

--- The declared inputs and outputs as { name =, shape =, dtype = }; sizes are integers, names, or "?".
local function described(values, skip)
  local list = {}
  for _, v in ipairs(values or {}) do
    if not (skip and skip[v.name]) then
      local t = v.type and v.type.tensor_type or {}
      local shape = t.shape and {} or nil
      for i, d in ipairs(t.shape and t.shape.dim or {}) do shape[i] = d.dim_value or d.dim_param or "?" end
      list[#list + 1] = { name = v.name or "", shape = shape, dtype = t.elem_type and core.onnx_dtype(t.elem_type) or nil }
    end
  end
  return list
end

--- Checks what was fed against the declarations; gives the feeds in order and what tells them apart.
local function check(self, feeds)
  local sizes, key = {}, {}
  for i, input in ipairs(self.inputs) do
    local t = feeds[input.name]
    if not core.is_tensor(t) then
      fault.raise("graph", "input %s: expected a tensor, got %s", input.name, fault.describe(t))
    end
    if input.dtype and t.dtype ~= input.dtype then
      fault.raise("graph", "input %s: expected dtype %s, got %s", input.name, input.dtype, t.dtype)
    end
    local shape = t.shape
    if input.shape and #shape ~= #input.shape then
      fault.raise("graph", "input %s: expected %d dimensions, got shape {%s}", input.name, #input.shape, table.concat(shape, ", "))
    end
    for k, d in ipairs(input.shape or {}) do
      if type(d) == "string" and d ~= "?" then
        d, sizes[d] = sizes[d] or shape[k], sizes[d] or shape[k]
      end
      if d ~= "?" and d ~= shape[k] then
        fault.raise("graph", "input %s: expected size %d in dimension %d, got shape {%s}", input.name, d, k, table.concat(shape, ", "))
      end
    end
    key[i] = t.dtype .. ":" .. table.concat(shape, ",")
  end
  for name in pairs(feeds) do
    if not self.by_name[name] then fault.raise("graph", "the model has no input named \"%s\"", tostring(name)) end
  end
  return table.concat(key, ";")
end

--- Records the nodes for these feeds' sizes; nil when their values are needed.
local function record(self, feeds)
  local graph, symbols = core.graph(), {}
  for _, input in ipairs(self.inputs) do
    local t = feeds[input.name]
    symbols[input.name] = graph:input(input.name, t.shape, t.dtype)
  end
  local results, symbolic
  local ok, err = pcall(graph.trace, graph, function() results, symbolic = walk.run(self.model, symbols, true) end)
  if not ok then
    if err == walk.NEEDS_VALUE then return nil end
    fault.again(err)
  end
  local entry = { outputs = {}, constant = {} }
  for _, output in ipairs(self.outputs) do
    if symbolic[results[output.name]] then
      graph:output(output.name, results[output.name])
      entry.outputs[#entry.outputs + 1] = output.name
    else
      entry.constant[output.name] = results[output.name]
    end
  end
  if #entry.outputs > 0 then entry.plan = graph:plan(self.options.passes) end
  return entry
end

local function play(self, entry, feeds)
  local args, results = {}, {}
  for i, input in ipairs(self.inputs) do args[i] = feeds[input.name] end
  if entry.plan then
    local values = table.pack(entry.plan(table.unpack(args)))
    for i, name in ipairs(entry.outputs) do results[name] = values[i] end
  end
  for name, value in pairs(entry.constant) do results[name] = value:clone() end
  return results
end

local function directly(self, feeds)
  local ok, results = pcall(walk.run, self.model, feeds, false)
  if not ok then fault.again(results) end
  for _, output in ipairs(self.outputs) do           -- an output that is an input, or an initializer, unchanged
    local t = results[output.name]
    if self.model.constants[t] or feeds[output.name] == t then results[output.name] = t:clone() end
  end
  return results
end

function Run:__call(feeds)
  if type(feeds) ~= "table" or core.is_tensor(feeds) then fault.raise("graph", "expected a table of inputs, got %s", fault.describe(feeds)) end
  local given = {}
  for name, t in pairs(feeds) do given[name] = t end
  for name, t in pairs(self.model.defaults) do if given[name] == nil and self.by_name[name] then given[name] = t end end
  local key = check(self, given)
  if core.is_tracing() or not self.recorded then return directly(self, given) end
  local entry = self.plans[key]
  if not entry then
    entry = record(self, given)
    if not entry then
      self.recorded = false
      return directly(self, given)
    end
    if self.n_plans >= MOST_PLANS then self.plans, self.n_plans = {}, 0 end
    self.plans[key], self.n_plans = entry, self.n_plans + 1
  end
  self.last = entry
  return play(self, entry, given)
end

--- Bytes of the arena, for the sizes seen last.
function Run:bytes() return self.last and self.last.plan and self.last.plan:stats().bytes or 0 end

function Run:stats() return self.last and self.last.plan and self.last.plan:stats() or {} end

--- The model's initializers by name.
function Run:parameters()
  local list = {}
  for name, t in pairs(self.model.initial) do list[name] = t end
  return list
end

--- The same model with plans of its own; weights are shared.
function Run:clone()
  return setmetatable({ model = self.model, inputs = self.inputs, outputs = self.outputs, by_name = self.by_name, options = self.options,
    plans = {}, n_plans = 0, recorded = self.recorded }, Run)
end

-- ---------------------------------------------------------------- saving a model of others as one of ours

--- Sizes of an input: numbers as declared or as `sizes` says, else the stand-in of its name, which goes into `names`.
local function open_shape(input, sizes, names)
  local shape = {}
  for i, d in ipairs(input.shape or error(string.format("save: input %s: its shape is not declared", input.name), 0)) do
    if type(d) == "string" then
      if d == "?" then error(string.format("save: input %s: dimension %d has no name", input.name, i), 0) end
      if sizes[d] then d = sizes[d] else
        if not names[d] then
          names[#names + 1] = d
          names[d] = #names
        end
        d = core.stand_in(names[d])
      end
    end
    shape[i] = d
  end
  return shape
end

--- What a size that stays open is in a trial.
local function trial_feeds(self, sizes, actual, names)
  local sc, feeds = require "sconce", {}
  for _, input in ipairs(self.inputs) do
    local shape, count = {}, 1
    for i, d in ipairs(input.shape) do
      shape[i] = type(d) == "string" and (sizes[d] or actual[names[d]]) or d
      count = count * shape[i]
    end
    local x = input.dtype:find "float" and (sc.arange(0, count) % 7 - 3) / 4 or sc.zeros { count }
    feeds[input.name] = x:to(input.dtype):reshape(shape)
  end
  return feeds
end

--- The nodes recorded for sizes that are not known may have taken one for a number: two trials tell.
local function try(self, graph, sizes, names)
  for _, first in ipairs { 2, 5 } do
    local actual = {}
    for i = 1, #names do actual[i] = first + i end
    local feeds = trial_feeds(self, sizes, actual, names)
    local ok, got = pcall(function() return graph:instantiate(actual):run(feeds) end)
    local fine, want = pcall(directly, self, feeds)
    for _, o in ipairs(self.outputs) do
      local a, b = ok and got[o.name], fine and want[o.name]
      if fine and not (a and a.dtype == b.dtype and table.concat(a.shape, ",") == table.concat(b.shape, ",")
        and a:tostring_bytes() == b:tostring_bytes()) then
        error("save: its sizes cannot stay open; say what they are with { sizes = { " .. names[1] .. " = 1 } }", 0)
      end
    end
  end
end

--- Saves the model as a graph of ours, with its weights as they are. sizes: what named sizes are; others stay open.
---@param path string
---@param options? { sizes?: table<string, integer>, external?: boolean }
function Run:save(path, options)
  local given, sizes, names, symbols = {}, options and options.sizes or {}, {}, {}
  for k, v in pairs(options or {}) do if k ~= "sizes" then given[k] = v end end
  local graph = core.graph()
  for _, input in ipairs(self.inputs) do
    symbols[input.name] = graph:input(input.name, open_shape(input, sizes, names), input.dtype)
  end
  local results
  local ok, err = pcall(graph.trace, graph, function() results = walk.run(self.model, symbols, true) end)
  if not ok then
    fault.again(err == walk.NEEDS_VALUE and "save: the model's course depends on values; it cannot be recorded as one graph" or err)
  end
  for _, output in ipairs(self.outputs) do graph:output(output.name, results[output.name]) end
  if #names > 0 then try(self, graph, sizes, names) end
  local list = {}
  for i, name in ipairs(names) do list[i] = name end
  return require("sconce.onnx.export")(graph, path, given, list)
end

function Run:__tostring()
  local function names(list)
    local t = {}
    for i, v in ipairs(list) do t[i] = v.name end
    return table.concat(t, ", ")
  end
  return string.format("model run (%d nodes; %s -> %s)", #self.model.graph.node, names(self.inputs), names(self.outputs))
end

--- Reads an ONNX file. One that sconce has written comes back whole, a training graph with its state and with the default generator as it
--- was; of others the nodes are carried out. Errors: a broken file, an op that is not known (named with its node), data outside the model's folder.
---@param path string
---@param options? { passes?: any, nodes?: boolean }  # nodes: carry out the standard nodes of a file of ours, too
function onnx.load(path, options)
  if type(path) ~= "string" then fault.raise("load_graph", "argument 1 (path): expected a string, got %s", fault.describe(path)) end
  options = fault.expect("load_graph", "argument 2", "options", options) or {}
  local recorded = not options.nodes and core.onnx_graph(path)
  if recorded then return require("sconce.graph").loaded(recorded, options) end
  local ok, model = pcall(walk.prepare, core.onnx_model(path))
  if not ok then fault.again(model) end
  local self = setmetatable({ model = model, options = options, plans = {}, n_plans = 0, recorded = true, by_name = {} }, Run)
  self.inputs = described(model.graph.input, model.initial)
  for _, v in ipairs(model.graph.input or {}) do self.by_name[v.name] = true end
  self.outputs = described(model.graph.output)
  return self
end

return onnx
