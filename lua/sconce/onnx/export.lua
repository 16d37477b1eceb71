--- Saving a static graph as an ONNX model (opset 17): its recorded nodes, one function a kind (export_ops.lua), each writing standard
--- nodes. Sizes by name become dim_param; a size inside an attribute that depends on one is worked out by Shape, Mul and Add nodes.
---
--- The saved graph keeps the face of ours: index values that go in or come out start at 1, and explicit nodes shift them; with
--- { index_base = 0 } those inputs and outputs that are nothing but index values start at 0.
local core = require "sconce.core"
local sc = require "sconce"
local write = require "sconce.onnx.write"
local ops = require "sconce.onnx.export_ops"

local OPSET, IR = 17, 8

local Writer = {}
Writer.__index = Writer

function Writer:fresh()
  repeat
    self.count = self.count + 1
  until not self.taken["t" .. self.count]
  return "t" .. self.count
end

--- Writes a node; gives the names of its outputs.
function Writer:node(op, inputs, attrs, n_out)
  local outputs = {}
  for i = 1, n_out or 1 do outputs[i] = self:fresh() end
  self.nodes[#self.nodes + 1] = write.node(op .. "_" .. #self.nodes + 1, op, inputs, outputs, attrs)
  return table.unpack(outputs)
end

--- A tensor kept in the model.
function Writer:constant(t, name)
  name = name or self:fresh()
  self.initial[#self.initial + 1] = { name, t }
  return name
end

function Writer:scalar(x, dtype)
  local key = dtype .. ":" .. string.format(math.type(x) == "float" and "%a" or "%s", tostring(x) == "nan" and 0 or x) .. tostring(x)
  if not self.scalars[key] then self.scalars[key] = self:constant(core.untraced(sc.full, {}, x, { dtype = dtype })) end
  return self.scalars[key]
end

--- Whether the number depends on a size that is not known.
function Writer:is_symbolic(v) return core.size_term(v, self.n_symbols) ~= nil end

local function plain_ints(list)
  if #list == 0 then return core.untraced(sc.zeros, { 0 }, { dtype = "int64" }) end
  return sc.tensor(list, { dtype = "int64" })
end

--- A size as an int64 tensor of one element.
function Writer:size(v)
  local symbol, q, r = core.size_term(v, self.n_symbols)
  if not symbol then return self:constant(plain_ints { v }) end
  local y = self.symbol[symbol]
  if not y then
    local at = self.where[symbol] or error("save: a size of the graph is not the size of an input", 0)
    y = self:node("Gather", { self:node("Shape", { at[1] }), self:constant(plain_ints { at[2] - 1 }) }, { axis = 0 })
    self.symbol[symbol] = y
  end
  if q ~= 1 then y = self:node("Mul", { y, self:size(q) }) end
  if r ~= 0 then y = self:node("Add", { y, self:constant(plain_ints { r }) }) end
  return y
end

--- A list of integers as an int64 tensor.
function Writer:ints(list)
  local any = false
  for _, v in ipairs(list) do any = any or self:is_symbolic(v) end
  if not any then return self:constant(plain_ints(list)) end
  local parts = {}
  for i, v in ipairs(list) do parts[i] = self:size(v) end
  return #parts == 1 and parts[1] or self:node("Concat", parts, { axis = 0 })
end

function Writer:value(v) return self.values[v] end

--- The name of value v, as `dtype` when one is given.
function Writer:ref(v, dtype)
  if v == nil or v == 0 then return "" end
  local x = self.values[v]
  if x.number ~= nil then
    local n = x.number
    if math.tointeger(n) and self:is_symbolic(math.tointeger(n)) then
      local y = self:node("Squeeze", { self:size(math.tointeger(n)) })
      return self:node("Cast", { y }, { to = core.onnx_code(dtype or x.dtype) })
    end
    return self:scalar(n, dtype or x.dtype)
  end
  if not self.name[v] then
    if x.kind ~= "capture" then error("save: a value is used before it is made", 0) end
    self.name[v] = self:constant(x.tensor)
  end
  if not dtype or dtype == x.dtype then return self.name[v] end
  return self:node("Cast", { self.name[v] }, { to = core.onnx_code(dtype) })
end

local RANK = { bool = 0, uint8 = 1, int8 = 2, int16 = 3, uint16 = 4, int32 = 5, uint32 = 6, int64 = 7, uint64 = 8, float16 = 9,
  bfloat16 = 10,
  float32 = 11, float64 = 12 }

--- The dtype in which operands are compared: tensors with dimensions first, then 0-d ones, then the script's numbers by category.
function Writer:common(list)
  local best
  for _, kind in ipairs { "tensor", "scalar", "number" } do
    for _, v in ipairs(list) do
      local x = v ~= 0 and self.values[v]
      local is = x and (x.number ~= nil and "number" or #x.shape == 0 and "scalar" or "tensor")
      if is == kind then
        local dtype = x.dtype
        if kind == "number" and dtype == "float64" then dtype = "float32" end
        local class = function(d) return d == "bool" and 0 or RANK[d] < 9 and 1 or 2 end
        if not best or (class(dtype) > class(best.dtype)) or (best.kind == kind and RANK[dtype] > RANK[best.dtype]) then
          best = { dtype = dtype, kind = kind }
        end
      end
    end
  end
  return best.dtype
end

--- Index values of ours, from 1, as ONNX's, from 0; `n` turns what counts from the end.
function Writer:indices(v, base)
  local y = self:ref(v, "int64")
  if base == 0 or self.zero_based[v] then return y end
  return self:node("Sub", { y, self:scalar(base, "int64") })
end

--- ONNX's positions, as ours.
function Writer:positions(name, v, base)
  if base == 0 then return name end
  if self.zero_out[v] then return name end
  return self:node("Add", { name, self:scalar(base, "int64") })
end

-- ---------------------------------------------------------------- the graph around the nodes

--- Inputs that are read as index values only; outputs that are positions and nothing else.
local function faces(whole, zero_based, zero_out)
  local other, used = {}, {}
  for _, n in ipairs(whole.nodes) do
    for i, v in ipairs(n.ins) do
      used[v] = true
      if ops.index_input[n.op] == i then zero_based[v] = zero_based[v] ~= false else other[v] = true end
    end
  end
  for v in pairs(zero_based) do
    if other[v] or whole.values[v].kind ~= "input" then zero_based[v] = nil end
  end
  for _, o in ipairs(whole.outputs) do other[o.value] = other[o.value] or nil end
  for _, n in ipairs(whole.nodes) do
    local at = ops.index_output[n.op]
    if at and not used[n.outs[at]] then zero_out[n.outs[at]] = true end
  end
end

local function size_text(self, v)
  local symbol, q, r = core.size_term(v, self.n_symbols)
  if not symbol then return v end
  local text = self.numbers[symbol]
  if q ~= 1 then text = text .. "*" .. tostring(size_text(self, q)) end
  return r == 0 and text or string.format("%s%+d", text, r)
end

local function shape_texts(self, shape)
  local list = {}
  for i, v in ipairs(shape) do list[i] = size_text(self, v) end
  return list
end

local function write_nodes(self, whole)
  for _, n in ipairs(whole.nodes) do
    local fn = ops.table[n.op]
    local where = n.where and " (" .. n.where .. ")" or ""
    if n.inplace then error(string.format("save: %s%s writes in place; only graphs that compute without updates can be saved",
      n.op, where), 0) end
    if not fn then error(string.format("save: the op %s%s has no form in ONNX yet", n.op, where), 0) end
    local ok, names = pcall(function() return table.pack(fn(self, n, n.attr)) end)
    if not ok then error(string.format("save: %s%s: %s", n.op, where, (tostring(names):gsub("^save: ", ""))), 0) end
    for i, v in ipairs(n.outs) do self.name[v] = names[i] end
  end
end

--- Nodes whose results nobody needs are not written.
local function living(whole)
  local needed, list = {}, {}
  for _, o in ipairs(whole.outputs) do needed[o.value] = true end
  for k = #whole.nodes, 1, -1 do
    local n, live = whole.nodes[k], whole.nodes[k].inplace
    for _, v in ipairs(n.outs) do live = live or needed[v] end
    if live then
      for _, v in ipairs(n.ins) do needed[v] = true end
      table.insert(list, 1, n)
    end
  end
  whole.nodes = list
end

local function assemble(self, inputs, outputs, outside)
  local graph, model, opset = {}, {}, write.text(1, "") .. write.int(2, OPSET)
  for _, n in ipairs(self.nodes) do write.message(graph, 1, { n }) end
  graph[#graph + 1] = write.text(2, "sconce")
  for _, t in ipairs(self.initial) do write.message(graph, 5, write.tensor(t[1], t[2], outside)) end
  for _, v in ipairs(inputs) do write.message(graph, 11, { v }) end
  for _, v in ipairs(outputs) do write.message(graph, 12, { v }) end
  model[1] = write.int(1, IR) .. write.text(2, "sconce")
  write.message(model, 7, graph)
  write.message(model, 8, { opset })
  return model
end

--- graph: the recorded graph; numbers: names of its symbolic sizes in order.
local function save(graph, path, options, numbers)
  for k in pairs(options or {}) do
    if k ~= "external" and k ~= "index_base" then
      error(('save: there is no option "%s"; the options are external, index_base'):format(tostring(k)), 0) end
  end
  options = options or {}
  if options.index_base ~= nil and options.index_base ~= 0 and options.index_base ~= 1 then
    error("save: option index_base: expected 0 or 1", 0) end
  if type(path) ~= "string" then error("save: argument 1 (path): expected a string, got " .. type(path), 0) end
  local whole = graph:whole()
  if #whole.outputs == 0 then error("save: the graph has no output", 0) end
  living(whole)
  local self = setmetatable({ values = whole.values, numbers = numbers, n_symbols = #numbers, nodes = {}, initial = {},
    scalars = {}, name = {},
    symbol = {}, where = {}, taken = {}, count = 0, zero_based = {}, zero_out = {} }, Writer)
  if options.index_base == 0 then faces(whole, self.zero_based, self.zero_out) end
  local inputs, outputs = {}, {}
  for i, v in ipairs(whole.inputs) do
    local x = whole.values[v]
    self.name[v], self.taken[x.name] = x.name, true
    for d, size in ipairs(x.shape) do
      local symbol, q, r = core.size_term(size, self.n_symbols)
      if symbol and q == 1 and r == 0 and not self.where[symbol] then self.where[symbol] = { x.name, d } end
    end
    inputs[i] = write.value(x.name, x.dtype, shape_texts(self, x.shape))
  end
  for _, o in ipairs(whole.outputs) do
    if self.taken[o.name] then error(string.format("save: the name \"%s\" is given twice", o.name), 0) end
    self.taken[o.name] = true
  end
  write_nodes(self, whole)
  for i, o in ipairs(whole.outputs) do
    local x = whole.values[o.value]
    self.nodes[#self.nodes + 1] = write.node("output_" .. i, "Identity", { self:ref(o.value) }, { o.name })
    outputs[i] = write.value(o.name, x.dtype, shape_texts(self, x.shape))
  end
  local outside = options.external and { pieces = {}, size = 0, name = path:match("[^/]*$") .. ".data" } or nil
  local model = assemble(self, inputs, outputs, outside)
  if outside and outside.size > 0 then core.onnx_write(path .. ".data", outside.pieces) end
  core.onnx_write(path, model)
end

return function(graph, path, options, numbers)
  local ok, message = pcall(save, graph, path, options, numbers or {})
  if not ok then error(message, 3) end
end
