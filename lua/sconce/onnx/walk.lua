--- Carrying out the nodes of an ONNX graph: names, scopes, functions, subgraphs, and what is known already while a graph is recorded.
---
--- Each node type has a function(x, a, c): x the inputs (x.n of them, absent ones nil), a the attributes as plain values, c the
--- call: c.opset, c.n_out, c:ints(tensor), c:number(tensor), c:body(graph, …). It returns the outputs in order.
---
--- While recording, tensors that come from the graph's inputs are symbolic; nodes without such an input are carried out at once.
--- A function that needs the value of a symbolic tensor raises NEEDS_VALUE.
local core = require "sconce.core"

local walk = { ops = {}, NEEDS_VALUE = setmetatable({}, { __tostring = function()
  return "onnx: a value is needed that is not known yet" end }) }

local MOST_CALLS = 64 -- functions and subgraphs inside each other

local function key_of(node) return (node.domain or "") .. "\0" .. (node.op_type or "") .. "\0" .. (node.overload or "") end

local function home(domain) return domain == nil or domain == "" or domain == "ai.onnx" end

local function versions(imports)
  local v = {}
  for _, o in ipairs(imports or {}) do v[home(o.domain) and "" or o.domain] = o.version or 0 end
  return v
end

local function label(node)
  return string.format("node \"%s\" (%s%s)", (node.name ~= nil and node.name ~= "" and node.name or (node.output or {})[1]
    or ""):gsub("[%c]", "?"),
    home(node.domain) and "" or (node.domain .. "."):gsub("[%c]", "?"), (node.op_type or "?"):gsub("[%c]", "?"))
end

local function fail(format, ...) error("load_graph: " .. string.format(format, ...), 0) end

local function find_op(model, node)
  local f = model.functions[key_of(node)]
  if f then return f end
  if home(node.domain) then return walk.ops[node.op_type] end
  return walk.ops[node.domain .. "." .. tostring(node.op_type)]
end

-- ---------------------------------------------------------------- checks of the file

local function check_attributes(node)
  local seen = {}
  for _, a in ipairs(node.attribute or {}) do
    if seen[a.name] then fail("%s: attribute %s is given twice", label(node), tostring(a.name)) end
    seen[a.name or ""] = true
  end
end

local function check_graph(model, graph)
  local defined = {}
  for _, t in ipairs(graph.initializer or {}) do
    if defined[t.name] then fail("initializer \"%s\" is defined twice", t.name) end
    defined[t.name] = "initializer"
  end
  for _, v in ipairs(graph.input or {}) do
    if v.name == nil or v.name == "" then fail("an input has no name") end
    if defined[v.name] == "input" then fail("input \"%s\" is defined twice", v.name) end
    defined[v.name] = "input"
  end
  for _, t in ipairs(graph.sparse_initializer or {}) do defined[t.values and t.values.name or ""] = "initializer" end
  for _, node in ipairs(graph.node or {}) do
    if not find_op(model, node) then fail("%s: the operator is not supported", label(node)) end
    check_attributes(node)
    for _, name in ipairs(node.input or {}) do
      if name ~= "" and not defined[name] then fail("%s: input \"%s\" is not defined before it", label(node), name) end
    end
    for _, name in ipairs(node.output or {}) do
      if name ~= "" and defined[name] then fail("%s: output \"%s\" is defined twice", label(node), name) end
      defined[name] = "node"
    end
  end
  for _, v in ipairs(graph.output or {}) do
    if not defined[v.name or ""] then fail("output \"%s\" is not defined", tostring(v.name)) end
  end
end

local function dense(sparse)
  local sc = require "sconce"
  local values, indices = sparse.values.tensor, sparse.indices.tensor
  local out, count = sc.zeros(sparse.dims or {}, { dtype = values.dtype }), 1
  for _, d in ipairs(sparse.dims or {}) do count = count * d end
  local flat, v, at = out:reshape { count }, values:totable(), indices:totable()
  for i = 1, #v do
    local place = at[i]
    if type(place) == "table" then
      place = 0
      for k, d in ipairs(sparse.dims) do place = place * d + at[i][k] end
    end
    flat[place + 1] = v[i]
  end
  return flat:reshape(sparse.dims)
end

local function initializers(graph)
  local initial = {}
  for _, t in ipairs(graph.initializer or {}) do initial[t.name] = t.tensor end
  for _, s in ipairs(graph.sparse_initializer or {}) do initial[s.values.name] = dense(s) end
  return initial
end

--- The ModelProto made ready: functions by key, initializers by name; the graph is checked.
function walk.prepare(proto)
  local graph = proto.graph
  if not graph then fail("not an ONNX model: there is no graph") end
  graph.node = graph.node or {}
  local model = { graph = graph, versions = versions(proto.opset_import), functions = {}, constants = {}, defaults = {} }
  for _, f in ipairs(proto.functions or {}) do
    f.versions = versions(f.opset_import)
    f.is_function = true
    model.functions[key_of { domain = f.domain, op_type = f.name, overload = f.overload }] = f
  end
  check_graph(model, graph)
  model.initial = initializers(graph)
  for _, t in pairs(model.initial) do model.constants[t] = true end
  for _, v in ipairs(graph.input or {}) do model.defaults[v.name] = model.initial[v.name] end
  return model
end

-- ---------------------------------------------------------------- calls

local Call = {}
Call.__index = Call

--- Whether the tensor's values are unknown for now.
function Call:unknown(t) return self.state.symbolic[t] ~= nil end

function Call:known(t)
  if self.state.symbolic[t] then error(walk.NEEDS_VALUE, 0) end
  return t
end

--- The values of an integer tensor, flat.
function Call:ints(t)
  self:known(t)
  return core.untraced(function()
    local n = t:numel()
    local flat = t:reshape { n }:totable()
    for i = 1, n do flat[i] = math.tointeger(flat[i]) or error("expected integers", 0) end
    return flat
  end)
end

--- The value of a tensor of one element.
function Call:number(t)
  self:known(t)
  return core.untraced(function()
    if t:numel() ~= 1 then error("expected one value, got shape {" .. table.concat(t.shape, ", ") .. "}", 0) end
    return t:reshape {}:item()
  end)
end

--- Carries out fn without recording: for what depends on no values.
function Call:now(fn) -- luacheck: ignore self
  return core.untraced(fn)
end

--- fn(list, ...) of a list of tensors: recorded when one of them is unknown, else carried out at once. For the nodes with subgraphs,
--- whose own results nobody marks.
function Call:apply(fn, list, ...)
  for _, t in ipairs(list) do
    if self.state.symbolic[t] then
      local y = fn(list, ...)
      self.state.symbolic[y] = true
      return y
    end
  end
  return core.untraced(fn, list, ...)
end

--- For nodes whose results differ from call to call: they cannot be recorded.
function Call:fresh()
  if self.state.recording then error(walk.NEEDS_VALUE, 0) end
end

local function attribute_value(a)
  local kind = a.type
  if kind == 1 or (kind == nil and a.f) then return a.f or 0.0 end
  if kind == 2 or (kind == nil and a.i) then return a.i or 0 end
  if kind == 3 or (kind == nil and a.s) then return a.s or "" end
  if kind == 4 then return a.t and a.t.tensor end
  if kind == 5 then return a.g end
  if kind == 6 then return a.floats or {} end
  if kind == 7 then return a.ints or {} end
  if kind == 8 then return a.strings or {} end
  if kind == 11 then return a.sparse_tensor and dense(a.sparse_tensor) end
  return a.ints or a.floats or a.strings or (a.t and a.t.tensor) or a.g
end

--- The node's attributes; inside a function those that refer to the caller's take its values.
local function attributes(node, given)
  local list = {}
  for _, a in ipairs(node.attribute or {}) do
    if a.ref_attr_name and a.ref_attr_name ~= "" then
      list[a.name] = given and given[a.ref_attr_name]
    else
      list[a.name] = attribute_value(a)
    end
  end
  return list
end

local run_nodes

local function lookup(scope, name)
  while scope do
    local t = scope.values[name]
    if t ~= nil then return t end
    scope = scope.outer
  end
end

--- Runs a subgraph with these inputs; returns the list of its outputs.
function Call:body(graph, ...)
  local state = self.state
  state.depth = state.depth + 1
  if state.depth > MOST_CALLS then error("subgraphs are nested too deep", 0) end
  local scope = { values = initializers(graph), outer = self.scope }
  local given = table.pack(...)
  for i, v in ipairs(graph.input or {}) do scope.values[v.name] = given[i] end
  run_nodes(state, graph.node or {}, scope, self.versions, self.given)
  local results = {}
  for i, v in ipairs(graph.output or {}) do
    results[i] = lookup(scope, v.name) or error(string.format("the subgraph's output \"%s\" is not defined", tostring(v.name)), 0)
  end
  state.depth = state.depth - 1
  return results
end

local function call_function(state, f, node, inputs, given)
  state.depth = state.depth + 1
  if state.depth > MOST_CALLS then error("functions call each other without end", 0) end
  local scope, attr = { values = {} }, {}
  for _, a in ipairs(f.attribute_proto or {}) do attr[a.name] = attribute_value(a) end
  for name, v in pairs(attributes(node, given)) do attr[name] = v end
  for i, name in ipairs(f.input or {}) do scope.values[name] = inputs[i] end
  run_nodes(state, f.node or {}, scope, f.versions, attr)
  local results = { n = #(f.output or {}) }
  for i, name in ipairs(f.output or {}) do results[i] = lookup(scope, name) end
  state.depth = state.depth - 1
  return results
end

local FREE = { Shape = true, Size = true }           -- the result follows from shapes
local OPEN = { If = true, Loop = true, Scan = true } -- their bodies' nodes decide for themselves

local function one_node(state, node, scope, vers, given)
  local op = find_op(state.model, node)
  if not op then error("the operator is not supported", 0) end
  local inputs, symbolic = { n = #(node.input or {}) }, false
  for i, name in ipairs(node.input or {}) do
    if name ~= "" then
      inputs[i] = lookup(scope, name)
      if inputs[i] == nil then
        if not given then error(string.format("input \"%s\" is not defined", name), 0) end
      end
      symbolic = symbolic or (inputs[i] ~= nil and state.symbolic[inputs[i]] ~= nil)
    end
  end
  if type(op) == "table" then return call_function(state, op, node, inputs, given) end
  local call = setmetatable({ state = state, scope = scope, versions = vers, given = given, node = node, n_out = #(node.output or {}),
    opset = vers[home(node.domain) and "" or node.domain] or 1, outputs = node.output or {} }, Call)
  local attr = attributes(node, given)
  if OPEN[node.op_type] and home(node.domain) then return table.pack(op(inputs, attr, call)) end
  local results
  if state.recording and (not symbolic or FREE[node.op_type]) then
    return table.pack(core.untraced(op, inputs, attr, call))
  end
  results = table.pack(op(inputs, attr, call))
  if state.recording then
    for i = 1, results.n do
      if results[i] ~= nil and not state.model.constants[results[i]] then state.symbolic[results[i]] = true end
    end
  end
  return results
end

function run_nodes(state, nodes, scope, vers, given)
  for _, node in ipairs(nodes) do
    local ok, results = pcall(one_node, state, node, scope, vers, given)
    if not ok then
      if results == walk.NEEDS_VALUE then error(results, 0) end
      local text = tostring(results):gsub("^load_graph: ", "")
      error(string.format("load_graph: %s: %s", label(node), text), 0)
    end
    for i, name in ipairs(node.output or {}) do
      if name ~= "" then scope.values[name] = results[i] end
    end
  end
end

--- Runs the model; recording: feeds are symbolic. Gives the outputs by name, and the set of symbolic tensors.
function walk.run(model, feeds, recording)
  local state = { model = model, recording = recording, symbolic = {}, depth = 0 }
  local scope = { values = {} }
  for name, t in pairs(model.initial) do scope.values[name] = t end
  for name, t in pairs(feeds) do
    scope.values[name] = t
    if recording then state.symbolic[t] = true end
  end
  run_nodes(state, model.graph.node, scope, model.versions)
  local results = {}
  for _, v in ipairs(model.graph.output or {}) do results[v.name] = lookup(scope, v.name) end
  return results, state.symbolic
end

for _, part in ipairs { "pointwise", "cast", "shape", "reduce", "neural", "index", "control", "loss", "attention", "sequence",
  "region" } do
  require("sconce.onnx.import_" .. part)(walk.ops)
end

return walk
