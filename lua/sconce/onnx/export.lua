--- Saving a static graph as an ONNX model (opset 17): its recorded nodes, one function a kind (export_*.lua), each writing standard
--- nodes. Sizes by name become dim_param; a size inside an attribute that depends on one is worked out by Shape, Mul and Add nodes. What
--- has no standard form becomes a node of the domain "sconce".
---
--- The graph itself goes along as text in the model's metadata ("sconce.graph"), captured tensors by the names of initializers, with a
--- check number over it and the standard nodes ("sconce.check"): sc.load_graph reads the text, so that nothing is lost.
---
--- A graph with updates is a training graph: what its outputs need is the model's graph, what only the updates need is the algorithm of
--- its training information, whose update bindings name each initializer's new value.
---
--- The saved graph keeps the face of ours: index values that go in or come out start at 1, and explicit nodes shift them; with
--- { index_base = 0 } those inputs and outputs that are nothing but index values start at 0.
local core = require "sconce.core"
local write = require "sconce.onnx.write"
local Writer = require "sconce.onnx.writer"
local fault = require "sconce.fault"
local known = require "sconce.onnx.export_ops"

local OPSET, IR = 17, 8

for _, part in ipairs { "state", "control", "index", "grad" } do
  for name, fn in pairs(require("sconce.onnx.export_" .. part)) do known.table[name] = fn end
end

-- ---------------------------------------------------------------- index values from 0

--- Inputs that are read as index values only; outputs that are positions and nothing else. Gives the nodes that read or make them.
local function faces(whole, zero_based, zero_out)
  local other, used, nodes = {}, {}, {}
  for _, n in ipairs(whole.nodes) do
    for i, v in ipairs(n.ins) do
      used[v] = true
      if known.index_input[n.op] == i then zero_based[v] = zero_based[v] ~= false else other[v] = true end
    end
  end
  for v in pairs(zero_based) do
    if other[v] or whole.values[v].kind ~= "input" then zero_based[v] = nil end
  end
  for k, n in ipairs(whole.nodes) do
    local at, from = known.index_output[n.op], known.index_input[n.op]
    if at and not used[n.outs[at]] then zero_out[n.outs[at]], nodes[#nodes + 1] = true, k end
    if from and zero_based[n.ins[from]] then nodes[#nodes + 1] = k end
  end
  return nodes
end

--- The same graph with the other face, for its text.
local function with_face(graph, nodes)
  local tensors = {}
  for _, c in ipairs(graph:named()) do tensors[c.name] = c.tensor end
  local copy = core.graph_parse(graph:text(), tensors)
  for _, k in ipairs(nodes) do copy:rebase(k, 0) end
  return copy
end

-- ---------------------------------------------------------------- names

--- Captured tensors get names that no input or output has.
local function name_captures(graph, taken)
  local used = {}
  for _, c in ipairs(graph:named()) do used[c.name] = true end
  for _, c in ipairs(graph:named()) do
    local name, k = c.name, 1
    while taken[name] do
      name, k = c.name .. "_" .. k, k + 1
      if used[name] then name = c.name end
    end
    if name ~= c.name then
      graph:name(c.tensor, name)
      used[name] = true
    end
  end
  local list = graph:named()
  for _, c in ipairs(list) do taken[c.name] = true end
  return list
end

-- ---------------------------------------------------------------- what is needed

--- Nodes that make `names`, in order, but those already in `have`.
local function slice(nodes, names, have)
  local needed, list = {}, {}
  for _, name in ipairs(names) do needed[name] = true end
  for k = #nodes, 1, -1 do
    local n, live = nodes[k], false
    for _, name in ipairs(n.outputs) do live = live or needed[name] end
    if live then
      for _, name in ipairs(n.inputs) do needed[name] = true end
      for _, name in ipairs(n.reads or {}) do needed[name] = true end
      if not have[n] then list[#list + 1] = n end
    end
  end
  local ordered = {}
  for i = #list, 1, -1 do ordered[#ordered + 1] = list[i] end
  for _, n in ipairs(ordered) do have[n] = true end
  return ordered
end

local function reads_of(nodes, set)
  for _, n in ipairs(nodes) do
    for _, name in ipairs(n.inputs) do set[name] = true end
    for _, name in ipairs(n.reads or {}) do set[name] = true end
  end
  return set
end

-- ---------------------------------------------------------------- the model

--- GraphProto twice: as pieces to write, and as a text without the elements of initializers, for the check number.
local function graph_pieces(name, nodes, initial, inputs, outputs, outside)
  local pieces, plain = {}, {}
  for _, n in ipairs(Writer.bytes_of(nodes)) do pieces[#pieces + 1] = write.text(1, n) end
  pieces[#pieces + 1] = write.text(2, name)
  table.move(pieces, 1, #pieces, 1, plain)
  for _, t in ipairs(initial) do
    write.message(pieces, 5, write.tensor(t[1], t[2], outside))
    plain[#plain + 1] = write.text(5, write.head(t[1], t[2]))
  end
  local function both(field, v)
    pieces[#pieces + 1] = write.text(field, v)
    plain[#plain + 1] = pieces[#pieces]
  end
  for _, v in ipairs(inputs) do both(11, v) end
  for _, v in ipairs(outputs) do both(12, v) end
  return pieces, table.concat(plain)
end

--- The nodes that only updates need, as TrainingInfoProto; nothing when there is no update.
local function training_pieces(updates, nodes, initial, outside)
  if #updates == 0 then return nil end
  local outputs, pieces, bindings = {}, {}, {}
  for i, u in ipairs(updates) do outputs[i], bindings[i] = u.info, write.entry(4, u.name, u.new) end
  local graph, plain = graph_pieces("training", nodes, initial, {}, outputs, outside)
  write.message(pieces, 2, graph)
  pieces[#pieces + 1] = table.concat(bindings)
  return pieces, write.text(2, plain) .. table.concat(bindings)
end

--- Initializers by which part reads them; captured tensors that no node reads, but the text does, go to the model's graph.
local function divide(file, captures, main, algorithm)
  local in_main, in_algorithm = reads_of(main, {}), reads_of(algorithm, {})
  local first, second = {}, {}
  for _, c in ipairs(captures) do
    local list = (in_main[c.name] or not in_algorithm[c.name]) and first or second
    list[#list + 1] = { c.name, c.tensor }
  end
  for _, t in ipairs(file.initial) do
    if in_main[t[1]] then first[#first + 1] = t elseif in_algorithm[t[1]] then second[#second + 1] = t end
  end
  return first, second
end

--- New values of captured tensors: { name =, new =, info = }.
local function updates_of(w, file)
  local list = {}
  for v, x in ipairs(w.values) do
    if x.kind == "capture" and w.version[v] then
      local new = x.name .. ".new"
      while file.taken[new] do new = new .. "'" end
      file.taken[new] = true
      w:named_node("Identity", { w:ref(v) }, new)
      list[#list + 1] = { name = x.name, new = new, info = w:info(new, v) }
    end
  end
  return list
end

local function describe_inputs(w, taken)
  local list = {}
  for i, v in ipairs(w.whole.inputs) do
    local x = w.values[v]
    w:set(v, x.name)
    taken[x.name] = true
    for d, size in ipairs(x.shape) do
      local symbol, q, r = core.size_term(size, w.n_symbols)
      if symbol and q == 1 and r == 0 and not w.where[symbol] then w.where[symbol] = { x.name, d } end
    end
    list[i] = w:info(x.name, v)
  end
  return list
end

local function describe_outputs(w)
  local list, names = {}, {}
  for i, o in ipairs(w.whole.outputs) do
    w:named_node("Identity", { w:ref(o.value) }, o.name)
    list[i], names[i] = w:info(o.name, o.value), o.name
  end
  return list, names
end

local function metadata(graph, main, training, text)
  local list = write.entry(14, "sconce.graph", text) .. write.entry(14, "sconce.check", core.onnx_check(main, training, text))
  if core.is_random(graph) then list = list .. write.entry(14, "sconce.random", core.random_text()) end
  return list
end

local function check_options(path, options)
  fault.expect("save", "argument 2", "options", options)
  for k in pairs(options) do
    if k ~= "external" and k ~= "index_base" then
      error(('save: there is no option "%s"; the options are external, index_base'):format(tostring(k)), 0) end
  end
  if options.index_base ~= nil and options.index_base ~= 0 and options.index_base ~= 1 then
    error("save: option index_base: expected 0 or 1", 0) end
  if type(path) ~= "string" then fault.raise("save", "argument 1 (path): expected a string, got %s", fault.describe(path)) end
end

--- What of the graph cannot be seen in the standard nodes.
local function report(file, w, written)
  local list = {}
  for _, o in ipairs(file.own) do
    if file.own[o.of] == true or written[file.own[o.of]] then list[#list + 1] = { op = o.op, where = o.where, why = o.why } end
  end
  for v, x in ipairs(w.values) do
    if x.kind == "input" and w.version[v] then list[#list + 1] = { op = "input", why = "the graph writes into its input " .. x.name } end
  end
  return list
end

--- graph: the recorded graph; numbers: names of its symbolic sizes in order.
local function save(graph, path, options, numbers)
  check_options(path, options)
  local taken, file = {}, { n_symbols = #numbers, numbers = numbers, ops = known.table, initial = {}, scalars = {}, captured = {}, own = {},
    count = 0, zero_based = {}, zero_out = {} }
  file.taken = taken
  graph:sizes(numbers)
  local ins, outs = graph:names()
  if #outs == 0 then error("save: the graph has no output", 0) end
  for _, name in ipairs(ins) do taken[name] = true end
  for _, name in ipairs(outs) do
    if taken[name] then error(string.format("save: the name \"%s\" is given twice", name), 0) end
    taken[name] = true
  end
  local captures = name_captures(graph, taken)
  local whole, texted = graph:whole(), graph
  if options.index_base == 0 then texted = with_face(graph, faces(whole, file.zero_based, file.zero_out)) end
  local w = Writer.new(whole, file)
  for _, v in ipairs(w.values) do
    if core.is_stored(v.dtype) then error(("save: values of %s cannot be written: opset %d has no such element type"):format(v.dtype, OPSET), 0) end
  end
  local inputs = describe_inputs(w, taken)
  for _, n in ipairs(whole.nodes) do w:emit(n) end
  local outputs, names = describe_outputs(w)
  local updates, new = updates_of(w, file), {}
  for i, u in ipairs(updates) do new[i] = u.new end
  local have = {}
  local main = slice(w.nodes, names, have)
  local algorithm = slice(w.nodes, new, have)
  local first, second = divide(file, captures, main, algorithm)
  local outside = options.external and { pieces = {}, size = 0, name = path:match("[^/]*$") .. ".data" } or nil
  local model, own_nodes = { write.int(1, IR) .. write.text(2, "sconce") }, false
  local pieces, plain = graph_pieces("sconce", main, first, inputs, outputs, outside)
  local training, training_plain = training_pieces(updates, algorithm, second, outside)
  write.message(model, 7, pieces)
  model[#model + 1] = write.text(8, write.text(1, "") .. write.int(2, OPSET))
  for _, list in ipairs { main, algorithm } do for _, n in ipairs(list) do own_nodes = own_nodes or n.domain ~= nil end end
  if own_nodes or #file.own > 0 then model[#model + 1] = write.text(8, write.text(1, "sconce") .. write.int(2, 1)) end
  model[#model + 1] = metadata(graph, plain, training_plain, texted:text())
  if training then write.message(model, 20, training) end
  if outside and outside.size > 0 then core.onnx_write(path .. ".data", outside.pieces) end
  core.onnx_write(path, model)
  return report(file, w, have)
end

return function(graph, path, options, numbers)
  local ok, result = pcall(save, graph, path, options or {}, numbers or graph:sizes())
  if not ok then fault.again(result) end
  return result
end
