--- What the functions that write ops (export_*.lua) work with: names of values, nodes, constants, sizes.
---
--- A recorded graph writes into tensors, ONNX's nodes cannot: each write makes a new value. A value's *root* is the tensor whose memory it
--- is, itself or what it is a view of; a write counts the root's *version* up, and a view read after that is made again from the new root.
--- A write into a view puts the new elements at their places in the root (ScatterElements over flat positions).
local core = require "sconce.core"
local sc = require "sconce"
local write = require "sconce.onnx.write"

local Writer = {}
Writer.__index = Writer

--- whole: the recorded graph; file: what all graphs of the file share (names, constants, the ops' functions); outer: the writer of the
--- graph around it, or nil.
function Writer.new(whole, file, outer)
  return setmetatable({ whole = whole, values = whole.values, file = file, outer = outer, n_symbols = file.n_symbols, nodes = {}, name = {},
    stamp = {}, version = {}, half = {}, symbol = {}, where = outer and outer.where or {}, blocks = {}, zero_based = file.zero_based,
    zero_out = file.zero_out }, Writer)
end

function Writer:fresh()
  local file = self.file
  repeat
    file.count = file.count + 1
  until not file.taken["t" .. file.count]
  return "t" .. file.count
end

--- Appends a node; gives the names of its outputs. reads: what its subgraphs read from outside.
function Writer:node(op, inputs, attrs, n_out, domain, reads)
  local outputs = {}
  for i = 1, n_out or 1 do outputs[i] = self:fresh() end
  self.nodes[#self.nodes + 1] = { op = op, inputs = inputs, outputs = outputs, attrs = attrs, domain = domain, reads = reads }
  return table.unpack(outputs)
end

--- A node whose output has that name.
function Writer:named_node(op, inputs, name, attrs)
  self.nodes[#self.nodes + 1] = { op = op, inputs = inputs, outputs = { name }, attrs = attrs }
end

--- A tensor kept in the model.
function Writer:constant(t, name)
  name = name or self:fresh()
  local initial = self.file.initial
  initial[#initial + 1] = { name, t }
  return name
end

function Writer:scalar(x, dtype)
  local scalars = self.file.scalars
  local key = dtype .. ":" .. string.format(math.type(x) == "float" and "%a" or "%s", tostring(x) == "nan" and 0 or x) .. tostring(x)
  if not scalars[key] then scalars[key] = self:constant(core.untraced(sc.full, {}, x, { dtype = dtype })) end
  return scalars[key]
end

function Writer:cast(name, dtype) return self:node("Cast", { name }, { to = core.onnx_code(dtype) }) end

--- Whether the number depends on a size that is not known.
function Writer:is_symbolic(v) return core.size_term(v, self.n_symbols) ~= nil end

local function plain_ints(list)
  if #list == 0 then return core.untraced(sc.zeros, { 0 }, { dtype = "int64" }) end
  return core.untraced(sc.tensor, list, { dtype = "int64" })
end

function Writer:symbol_name(symbol)
  local w = self
  while w do
    if w.symbol[symbol] then return w.symbol[symbol] end
    w = w.outer
  end
end

--- A size as an int64 tensor of one element.
function Writer:size(v)
  local symbol, q, r = core.size_term(v, self.n_symbols)
  if not symbol then return self:constant(plain_ints { v }) end
  local y = self:symbol_name(symbol)
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

-- ---------------------------------------------------------------- values and writes

function Writer:set(v, name)
  self.name[v], self.stamp[v] = name, self.version[self.values[v].root] or 0
end

--- The current name of value v.
local function current(self, v)
  local x = self.values[v]
  if self.half[v] then self:rest(self.half[v]) end
  if x.kind == "capture" and not self.name[v] then
    self.file.captured[x.name] = true
    self:set(v, x.name)
  end
  if self.name[v] and (x.root == v or self.stamp[v] == (self.version[x.root] or 0)) then return self.name[v] end
  if not self.name[v] and x.node == 0 then error("save: a value is used before it is made", 0) end
  self:emit(self.whole.nodes[x.node])                     -- a view of what has been written to since
  return self.name[v]
end

--- The name of value v, as `dtype` when one is given.
function Writer:ref(v, dtype)
  if v == nil or v == 0 then return "" end
  local x = self.values[v]
  if x.number ~= nil then
    local n = x.number
    if math.tointeger(n) and self:is_symbolic(math.tointeger(n)) then
      return self:cast(self:node("Squeeze", { self:size(math.tointeger(n)) }), dtype or x.dtype)
    end
    return self:scalar(n, dtype or x.dtype)
  end
  local name = current(self, v)
  if not dtype or dtype == x.dtype then return name end
  return self:cast(name, dtype)
end

--- Flat positions in the root of what value v looks at, as an int64 tensor of v's shape.
local function positions(self, v)
  local x, root = self.values[v], self.values[self.values[v].root]
  local known, count = true, 1
  for _, list in ipairs { x.shape, root.shape } do for _, d in ipairs(list) do known = known and not self:is_symbolic(d) end end
  for i = #root.shape, 1, -1 do
    known = known and (root.stride[i] == count or root.shape[i] == 1)
    count = count * root.shape[i]
  end
  if known then
    local size = write.bytes_of(core.untraced(sc.zeros, { 1 }, { dtype = root.dtype }))
    return self:constant(core.untraced(function() return sc.arange(count):as_strided(x.shape, x.stride, x.offset // size):contiguous() end))
  end
  if not self:op_of(self.whole.nodes[x.node]) then error("a view of a size that is not known has no form in ONNX", 0) end
  local was, stamps = {}, {}                              -- the same views, of the positions instead of the elements
  for k, n in pairs(self.name) do was[k], stamps[k] = n, self.stamp[k] end
  local version = self.version[x.root] or 0
  self.version[x.root] = version + 1
  local flat = self:node("Range", { self:scalar(0, "int64"), self:node("Squeeze", { self:size(count) }), self:scalar(1, "int64") })
  self:set(x.root, self:node("Reshape", { flat, self:ints(root.shape) }))
  local y = current(self, v)
  self.version[x.root], self.name, self.stamp = version, was, stamps
  return y
end

--- Value v holds `name` from now on, and so do all that look at the same memory.
function Writer:write(v, name)
  local x = self.values[v]
  local root = x.root
  if root ~= v then
    local r = self.values[root]
    local at = self:node("Reshape", { positions(self, v), self:ints { -1 } })
    local flat = self:node("Reshape", { current(self, root), self:ints { -1 } })
    local new = self:node("Reshape", { self:node("Expand", { name, self:ints(x.shape) }), self:ints { -1 } })
    flat = self:node("ScatterElements", { flat, at, new }, { axis = 0 })
    self.version[root] = (self.version[root] or 0) + 1
    self:set(root, self:node("Reshape", { flat, self:ints(r.shape) }, { allowzero = 1 }))
    return
  end
  current(self, v)
  self.version[root] = (self.version[root] or 0) + 1
  self:set(root, name)
end

-- ---------------------------------------------------------------- dtypes and index values

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

--- Index values of ours, from 1, as ONNX's, from 0.
function Writer:indices(v, base)
  local y = self:ref(v, "int64")
  if base == 0 or self.zero_based[v] then return y end
  local less = self:node("Sub", { y, self:scalar(base, "int64") })
  return self:node("Where", { self:node("Less", { y, self:scalar(0, "int64") }), y, less }) -- what counts from the end stays
end

--- ONNX's positions, as ours.
function Writer:positions(name, v, base)
  if base == 0 then return name end
  if self.zero_out[v] then return name end
  return self:node("Add", { name, self:scalar(base, "int64") })
end

-- ---------------------------------------------------------------- nodes

--- Attributes of a node of our own domain.
local function own_attributes(n)
  local attrs = {}
  for k, v in pairs(n.attr) do
    if type(v) ~= "table" or #v > 0 then attrs[k] = v end
  end
  if n.base ~= 0 then attrs.index_base = n.base end
  return attrs
end

local function written(n, i) return n.writes >> (i - 1) & 1 == 1 and (n.ins[i] or 0) ~= 0 end

--- The function that writes the op.
function Writer:op_of(n) return self.file.ops[n.op] or self.file.ops[n.plain] end

--- Any view whose sizes are known: a gather at flat positions of what it looks into.
local function view(self, n)
  local v, x = n.outs[1], self.values[n.outs[1]]
  if #n.outs ~= 1 or x.root == v or x.root == nil then return nil end
  local flat = self:node("Reshape", { current(self, x.root), self:ints { -1 } })
  return self:node("Gather", { flat, positions(self, v) }, { axis = 0 })
end

--- The op as a node of our own domain: inputs and attributes as the op has them; outputs its results, then the new values of what it
--- writes to.
local function own(self, n, missing)
  local inputs, results = {}, n.inplace and 0 or #n.outs
  for i, v in ipairs(n.ins) do inputs[i] = self:ref(v) end
  local count = results
  for i = 1, #n.ins do if written(n, i) then count = count + 1 end end
  local names = { self:node(n.op, inputs, own_attributes(n), count, "sconce") }
  if not self.outer then self.file.own[n] = self.nodes[#self.nodes] end
  for i = 1, results do
    if not missing or self.half[n.outs[i]] then self:set(n.outs[i], names[i]) end
    self.half[n.outs[i]] = nil
  end
  for i = 1, missing and 0 or #n.ins do
    if written(n, i) then
      results = results + 1
      self:write(n.ins[i], names[results])
    end
  end
end

--- The op in standard nodes: its function gives the names of its results or, of one that writes only, of the new values of what it
--- writes to, in the order of its inputs.
local function standard(self, n)
  local fn = self:op_of(n) or not n.inplace and view
  if not fn then return "it has no form in ONNX" end
  for _, v in ipairs(n.ins) do self:ref(v) end              -- made now, so that a refusal does not take them back
  local at, initial, symbol = #self.nodes, #self.file.initial, {}
  for k, name in pairs(self.symbol) do symbol[k] = name end
  local ok, names = pcall(function() return table.pack(fn(self, n, n.attr)) end)
  if not ok then
    for i = #self.nodes, at + 1, -1 do self.nodes[i] = nil end
    self.symbol = symbol
    for k, name in pairs(self.file.scalars) do                -- constants made on the way go too
      for i = initial + 1, #self.file.initial do if self.file.initial[i][1] == name then self.file.scalars[k] = nil end end
    end
    for i = #self.file.initial, initial + 1, -1 do self.file.initial[i] = nil end
    return (tostring(names):gsub("^save: ", ""))
  end
  if not n.inplace and not names[1] then return "it has no form in ONNX" end
  local k = 1
  if not n.inplace then
    for i, v in ipairs(n.outs) do
      if names[i] then self:set(v, names[i]) else self.half[v] = n end
      k = i + 1
    end
  end
  for i = 1, #n.ins do
    if written(n, i) then
      if names[k] then self:write(n.ins[i], names[k]) end
      k = k + 1
    end
  end
end

local function say(self, n, why)
  local list = self.file.own
  if list[n] then return end
  list[n] = true
  list[#list + 1] = { op = n.op, where = n.where, why = why, of = n }
end

--- Writes a recorded node.
function Writer:emit(n)
  local why = standard(self, n)
  if not why then return end
  say(self, n, why)
  own(self, n)
end

--- Of a node whose function gave only the first of its results: the others, which somebody reads after all.
function Writer:rest(n)
  say(self, n, "one of its results has no form in ONNX")
  own(self, n, true)
end

-- ---------------------------------------------------------------- messages

local function size_text(self, v)
  local symbol, q, r = core.size_term(v, self.n_symbols)
  if not symbol then return v end
  local text = self.file.numbers[symbol]
  if q ~= 1 then text = text .. "*" .. tostring(size_text(self, q)) end
  return r == 0 and text or string.format("%s%+d", text, r)
end

--- ValueInfoProto of value v under that name.
function Writer:info(name, v)
  local x, shape = self.values[v], {}
  for i, d in ipairs(x.shape) do shape[i] = size_text(self, d) end
  return write.value(name, x.dtype, shape)
end

--- NodeProtos.
function Writer.bytes_of(nodes)
  local list = {}
  for i, n in ipairs(nodes) do list[i] = write.node(n.op .. "_" .. n.outputs[1], n.op, n.inputs, n.outputs, n.attrs, n.domain) end
  return list
end

return Writer
