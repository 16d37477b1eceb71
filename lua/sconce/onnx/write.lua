--- Protobuf and the messages of ONNX, written. A message is a list of pieces, strings and tensors, so that weights go to the file
--- without a copy in Lua.
local core = require "sconce.core"

local write = {}

local BYTES = { float32 = 4, float64 = 8, float16 = 2, bfloat16 = 2, int8 = 1, uint8 = 1, int16 = 2, uint16 = 2, int32 = 4, uint32 = 4,
  int64 = 8, uint64 = 8, bool = 1 }
local OUTSIDE = 1024 -- bytes from which a tensor goes into the file beside the model

function write.bytes_of(t) return t:numel() * BYTES[t.dtype] end

local function varint(n)
  local out = {}
  repeat
    local b = n & 0x7f
    n = n >> 7
    out[#out + 1] = string.char(n ~= 0 and b | 0x80 or b)
  until n == 0
  return table.concat(out)
end

--- An integer field.
function write.int(field, n) return varint(field << 3) .. varint(n) end
function write.float(field, x) return varint(field << 3 | 5) .. string.pack("<f", x) end
function write.text(field, s) return varint(field << 3 | 2) .. varint(#s) .. s end

local function size_of(pieces)
  local n = 0
  for _, p in ipairs(pieces) do n = n + (type(p) == "string" and #p or write.bytes_of(p)) end
  return n
end

--- A field that holds a message, appended to `out`.
function write.message(out, field, pieces)
  out[#out + 1] = varint(field << 3 | 2) .. varint(size_of(pieces))
  table.move(pieces, 1, #pieces, #out + 1, out)
end

--- TensorProto without its elements.
function write.head(name, t)
  local head = {}
  for i, d in ipairs(t.shape) do head[i] = write.int(1, d) end
  return table.concat(head) .. write.int(2, core.onnx_code(t.dtype)) .. write.text(8, name)
end

--- TensorProto; outside: { pieces =, size =, name = } of the file beside the model, or nil.
function write.tensor(name, t, outside)
  local head = { write.head(name, t) }
  local n = write.bytes_of(t)
  if outside and n >= OUTSIDE then
    local gap = -outside.size % 4096
    if gap > 0 then outside.pieces[#outside.pieces + 1] = ("\0"):rep(gap) end
    for _, e in ipairs { { "location", outside.name }, { "offset", tostring(outside.size + gap) }, { "length", tostring(n) } } do
      head[#head + 1] = write.text(13, write.text(1, e[1]) .. write.text(2, e[2]))
    end
    outside.pieces[#outside.pieces + 1] = t
    outside.size = outside.size + gap + n
    return { table.concat(head) .. write.int(14, 1) }
  end
  if n == 0 then return { table.concat(head) } end
  return { table.concat(head) .. varint(9 << 3 | 2) .. varint(n), t }
end

--- AttributeProto. v: an integer, a float, a text, a list of integers or floats, { graph = bytes } or { tensor = pieces }.
local function attribute(name, v)
  local kind, head = math.type(v), write.text(1, name)
  if kind == "integer" then return head .. write.int(3, v) .. write.int(20, 2) end
  if kind == "float" then return head .. write.float(2, v) .. write.int(20, 1) end
  if type(v) == "boolean" then return head .. write.int(3, v and 1 or 0) .. write.int(20, 2) end
  if type(v) == "string" then return head .. write.text(4, v) .. write.int(20, 3) end
  if v.graph then return head .. write.text(6, v.graph) .. write.int(20, 5) end
  local parts, floats = { head }, math.type(v[1]) == "float"
  for _, x in ipairs(v) do parts[#parts + 1] = floats and write.float(7, x) or write.int(8, x) end
  return table.concat(parts) .. write.int(20, floats and 6 or 7)
end

function write.node(name, op, inputs, outputs, attrs, domain)
  local parts, names = {}, {}
  for _, s in ipairs(inputs) do parts[#parts + 1] = write.text(1, s) end
  for _, s in ipairs(outputs) do parts[#parts + 1] = write.text(2, s) end
  parts[#parts + 1] = write.text(3, name) .. write.text(4, op)
  for k in pairs(attrs or {}) do names[#names + 1] = k end
  table.sort(names)
  for _, k in ipairs(names) do parts[#parts + 1] = write.text(5, attribute(k, attrs[k])) end
  if domain then parts[#parts + 1] = write.text(7, domain) end
  return table.concat(parts)
end

--- StringStringEntryProto
function write.entry(field, key, value) return write.text(field, write.text(1, key) .. write.text(2, value)) end

--- ValueInfoProto; sizes are integers or texts.
function write.value(name, dtype, shape)
  local dims = {}
  for i, d in ipairs(shape) do dims[i] = write.text(1, type(d) == "string" and write.text(2, d) or write.int(1, d)) end
  return write.text(1, name) .. write.text(2, write.text(1, write.int(1, core.onnx_code(dtype)) .. write.text(2, table.concat(dims))))
end

return write
