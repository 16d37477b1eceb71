--- Shapes in Lua: what returns a list of tensors, what takes tensors one by one, and what is a line over other ops.
local sc = require "sconce"
local core = require "sconce.core"
local define = require "sconce.define"
local fault = require "sconce.fault"

local F = sc.functional
local ops = core.ops

core.set_markers(sc.newaxis, sc.ellipsis)

local function is_tensor(v) return type(v) == "userdata" and core.is_tensor(v) end

-- 1 … n from a dimension that may count from the end; a number counts as a list of one.
local function place(what, x, dim)
  local n = math.max(x:dim(), 1)
  local d = dim < 0 and dim + n + 1 or dim
  if d < 1 or d > n then fault.raise(what, "dimension %d is out of range for %d dimensions", dim, x:dim()) end
  return d
end

local function size_at(what, x, d)
  if x:dim() == 0 then fault.raise(what, "a 0-dimensional tensor cannot be taken apart") end
  return x:size(d)
end

-- A function of tensors given one by one or as a list, with trailing options.
local function variadic(into, name, help, fn, options)
  local known = {}
  for _, o in ipairs(options or {}) do known[o] = true end
  into[name] = function(...)
    local list, opts = table.pack(...), {}
    local last = list[list.n]
    if list.n > 0 and type(last) == "table" and type(next(last)) == "string" then
      for k, v in pairs(last) do
        if not known[k] then fault.raise(name, "there is no option %q", tostring(k)) end
        opts[k] = v
      end
      list.n = list.n - 1
    end
    if type(list[1]) == "table" then
      if list.n > 1 and options then opts[options[1]] = list[2] end
      list = table.move(list[1], 1, #list[1], 1, { n = #list[1] })
    end
    for i = 1, list.n do
      if not is_tensor(list[i]) then fault.raise(name, "argument %d: expected a tensor, got %s", i, fault.describe(list[i])) end
    end
    list[list.n + 1] = nil
    return fn(list, opts)
  end
  define.info[name] = { signature = name .. "(tensors…)", help = help }
end

---------------------------------------------------------------------------
-- Taking apart
---------------------------------------------------------------------------

-- More pieces than anybody could wait for are refused.
local MOST = 1 << 24
local function countable(what, n)
  if n > MOST then fault.raise(what, "%d pieces are too many (at most %d)", n, MOST) end
  return n
end

define(sc, "unbind(x, dim: dim = 0)", "The parts of x along a dimension, without it, as a list of views.", function(x, dim)
  local d = place("unbind", x, dim)
  local out = {}
  for i = 1, countable("unbind", size_at("unbind", x, d)) do out[i] = x:select(d, i) end
  return out
end, true)

-- Pieces of the sizes given.
local function pieces(what, x, d, sizes)
  local out, at, n = {}, 1, size_at(what, x, d)
  local total = 0
  for i, size in ipairs(sizes) do
    if math.type(size) ~= "integer" or size < 0 then fault.raise(what, "expected sizes from 0, got %s", fault.describe(size)) end
    if size > n - total then fault.raise(what, "the sizes do not add up to the dimension's size %d", n) end
    total = total + size
    out[i] = x:narrow(d, at, size)
    at = at + size
  end
  if total ~= n then fault.raise(what, "the sizes add up to %d, the dimension has %d", total, n) end
  return out
end

local function equal_pieces(what, x, d, size)
  local n = size_at(what, x, d)
  if size < 0 or (size == 0 and n > 0) then fault.raise(what, "expected a positive size of pieces, got %d", size) end
  if n == 0 then return { x:narrow(d, 1, 0) } end
  local out = {}
  countable(what, (n - 1) // size + 1)
  for at = 1, n, size do out[#out + 1] = x:narrow(d, at, math.min(size, n - at + 1)) end
  return out
end

-- In a graph, a start that is a tensor is not known yet: the elements are looked up, which is a copy where dynamic mode has a view.
local function narrow(x, ...)
  local dim, start, length = ...
  if is_tensor(start) and is_tensor(x) and math.type(length) == "integer" and (core.is_tracing() or core.is_symbolic(start)) then
    local d = place("narrow", x, dim)
    local n = x:size(d)
    if start:numel() ~= 1 or start.dtype:find("float") then
      fault.raise("narrow", "argument 3 (start): expected an integer, got %s", fault.describe(start))
    end
    if length < 0 or length > n then fault.raise("narrow", "argument 4 (length): expected 0 to %d, got %d", n, length) end
    start = start:reshape {}:to("int64")
    return x:index_select(d, sc.where(start:lt(0), start + (n + 1), start) + sc.arange(length, { dtype = "int64" }))
  end
  return ops.narrow(x, ...)
end
sc.narrow, core.methods.narrow = narrow, narrow

define(sc, "split(x, split_size_or_sections: any, dim: dim = 0)",
  "x in pieces along a dimension: of one size (the last may be smaller), or of the sizes listed. A list of views.\nErrors: the " ..
    "sizes do not add up.\nExample: x:split(2), x:split({1, 3}, 2)",
  function(x, sizes, dim)
    local d = place("split", x, dim)
    if type(sizes) == "table" then return pieces("split", x, d, sizes) end
    if math.type(sizes) ~= "integer" then
      fault.raise("split", "argument 2: expected an integer or a list, got %s", fault.describe(sizes))
    end
    return equal_pieces("split", x, d, sizes)
  end, true)

define(sc, "split_with_sizes(x, split_sizes: any, dim: dim = 0)", "x in pieces of the sizes listed along a dimension.\nErrors: they " ..
  "do not add up.",
  function(x, sizes, dim)
    if type(sizes) ~= "table" then fault.raise("split_with_sizes", "argument 2: expected a list, got %s", fault.describe(sizes)) end
    return pieces("split_with_sizes", x, place("split_with_sizes", x, dim), sizes)
  end, true)

define(sc, "chunk(x, chunks: int, dim: dim = 0)", "x in at most so many pieces of one size along a dimension (the last may be " ..
  "smaller).\nErrors: chunks is not positive.",
  function(x, chunks, dim)
    local d = place("chunk", x, dim)
    if chunks < 1 then fault.raise("chunk", "expected a positive number of chunks, got %d", chunks) end
    local n = size_at("chunk", x, d)
    if n == 0 then
      local out = {}
      for i = 1, countable("chunk", chunks) do out[i] = x:narrow(d, 1, 0) end
      return out
    end
    return equal_pieces("chunk", x, d, (n - 1) // chunks + 1)
  end, true)

-- A number of sections, or the first indices of all pieces but the first.
local function tensor_split(what, x, sections, d)
  if is_tensor(sections) then
    if sections.dtype ~= "int64" then fault.raise(what, "expected an int64 tensor of split points, got %s", sections.dtype) end
    if sections:dim() > 1 then fault.raise(what, "expected a number or a list of split points") end
    local values = core.is_symbolic(sections) and require("sconce.compile").values_of(sections)
    if core.is_symbolic(sections) and not values then
      fault.raise(what, "split points that a graph computes would make sizes that depend on data; give a list of numbers")
    end
    sections = values or sections:totable()
  end
  local n, out = size_at(what, x, d), {}
  if type(sections) == "number" then
    if math.type(sections) ~= "integer" or sections < 1 then
      fault.raise(what, "expected a positive number of sections, got %s", tostring(sections))
    end
    countable(what, sections)
    local small, larger, at = n // sections, n % sections, 1
    for i = 1, sections do
      local size = i <= larger and small + 1 or small
      out[i] = x:narrow(d, at, size)
      at = at + size
    end
    return out
  end
  if type(sections) ~= "table" then
    fault.raise(what, "expected a number of sections or a list of split points, got %s", fault.describe(sections))
  end
  local function clamped(p)
    if math.type(p) ~= "integer" then fault.raise(what, "expected integers as split points, got %s", fault.describe(p)) end
    if p == 0 then fault.raise(what, "0 is no split point: they count from 1") end
    if p < 0 then p = p + n + 1 end
    return math.max(1, math.min(p, n + 1))
  end
  local from = 1
  for i = 1, #sections + 1 do
    local to = sections[i] == nil and n + 1 or clamped(sections[i])
    out[i] = x:narrow(d, from, math.max(to - from, 0))
    from = to
  end
  return out
end

define(sc, "tensor_split(x, indices_or_sections: any, dim: dim = 0)",
  "x in so many pieces of nearly equal size, or cut before the indices listed. A list of views.", function(x, sections, dim)
    return tensor_split("tensor_split", x, sections, place("tensor_split", x, dim))
  end, true)

for name, least in pairs { hsplit = 1, vsplit = 2, dsplit = 3 } do
  define(sc, name .. "(x, indices_or_sections: any)", "tensor_split along the " .. ({ "columns", "rows", "depth" })[least] .. "; a " ..
    "number must divide the size.",
    function(x, sections)
      if x:dim() < least then fault.raise(name, "expected at least %d dimensions, got %d", least, x:dim()) end
      local d = name == "dsplit" and 3 or name == "vsplit" and 1 or math.min(x:dim(), 2)
      if math.type(sections) == "integer" and (sections < 1 or x:size(d) % sections ~= 0) then
        fault.raise(name, "the size %d cannot be cut into %d equal pieces", x:size(d), sections)
      end
      return tensor_split(name, x, sections, d)
    end, true)
end

---------------------------------------------------------------------------
-- Putting together
---------------------------------------------------------------------------
sc.concat, sc.concatenate = sc.cat, sc.cat

local function each(list, fn)
  local out = {}
  for i = 1, #list do out[i] = fn(list[i]) end
  return out
end

local function atleast(n)
  return function(x)
    local d = x:dim()
    if d >= n then return x end
    if d == 0 then return x:reshape(table.move({ 1, 1, 1 }, 1, n, 1, {})) end
    if n == 2 then return x:unsqueeze(1) end
    return d == 1 and x:unsqueeze(1):unsqueeze(3) or x:unsqueeze(3)
  end
end

for n = 1, 3 do
  local name, fn = ("atleast_%dd"):format(n), atleast(n)
  variadic(sc, name, "The tensors, seen with at least so many dimensions: one tensor, or a list.", function(list)
    return #list == 1 and fn(list[1]) or each(list, fn)
  end)
  core.methods[name] = sc[name]
end

local function joined(name, help, prepare, dim)
  define(sc, name .. "(tensors: any)", help, function(tensors)
    if type(tensors) ~= "table" or #tensors == 0 then
      fault.raise(name, "expected a list of tensors, got %s", type(tensors) == "table" and "an empty one" or fault.describe(tensors))
    end
    local list = each(tensors, function(t)
      if not is_tensor(t) then fault.raise(name, "expected tensors, got %s", fault.describe(t)) end
      return prepare(t)
    end)
    return sc.cat(list, type(dim) == "function" and dim(list[1]) or dim)
  end)
end

joined("hstack", "The tensors side by side: along the second dimension, lists along the first.", atleast(1),
  function(t) return t:dim() == 1 and 1 or 2 end)
joined("vstack", "The tensors below each other, lists as rows.", atleast(2), 1)
joined("row_stack", "vstack.", atleast(2), 1)
joined("dstack", "The tensors behind each other, along the third dimension.", atleast(3), 3)
joined("column_stack", "The tensors side by side, lists as columns.", function(t) return t:dim() < 2 and t:reshape(-1, 1) or t end, 2)

variadic(sc, "block_diag", "Matrices along the diagonal of one, zeros elsewhere; lists count as rows.", function(list)
  local rows, cols = 0, 0
  for i = 1, #list do
    if list[i]:dim() > 2 then fault.raise("block_diag", "tensor %d has %d dimensions, at most 2 are expected", i, list[i]:dim()) end
    list[i] = atleast(2)(list[i])
    rows, cols = rows + list[i]:size(1), cols + list[i]:size(2)
  end
  if #list == 0 then return sc.zeros(1, 0) end
  local parts, before = {}, 0
  for i, m in ipairs(list) do
    parts[i] = F.pad(m, { before, cols - before - m:size(2) })
    before = before + m:size(2)
  end
  return sc.cat(parts, 1)
end)

---------------------------------------------------------------------------
-- Broadcasting and grids
---------------------------------------------------------------------------

--- The shape that shapes broadcast to.
function sc.broadcast_shapes(...)
  local out = {}
  for i, shape in ipairs { ... } do
    if math.type(shape) == "integer" then shape = { shape } end
    if type(shape) ~= "table" then fault.raise("broadcast_shapes", "argument %d: expected a shape, got %s", i, fault.describe(shape)) end
    local wide = {}
    local n = math.max(#out, #shape)
    for k = 1, n do
      local a, b = out[k - (n - #out)] or 1, shape[k - (n - #shape)] or 1
      if math.type(b) ~= "integer" or b < 0 then fault.raise("broadcast_shapes", "argument %d: expected sizes from 0", i) end
      if a ~= b and a ~= 1 and b ~= 1 then fault.raise("broadcast_shapes", "sizes %d and %d do not broadcast", a, b) end
      wide[k] = a == 1 and b or a
    end
    out = wide
  end
  return out
end
define.info.broadcast_shapes = { signature = "broadcast_shapes(shapes…)", help = "The shape that shapes broadcast to.\nErrors: they " ..
  "do not." }

variadic(sc, "broadcast_tensors", "The tensors expanded to their common shape, as a list of views.", function(list)
  local shape = sc.broadcast_shapes(table.unpack(each(list, function(t) return t.shape end)))
  return each(list, function(t) return t:expand(shape) end)
end)

variadic(sc, "meshgrid", "Coordinates of a grid: a list of tensors, the i-th repeating the i-th list along the other dimensions. " ..
  "indexing: \"ij\" or \"xy\", where the first list runs along the second dimension.",
  function(list, opts)
    local indexing = opts.indexing or "ij"
    if indexing ~= "ij" and indexing ~= "xy" then
      fault.raise("meshgrid", "indexing: expected \"ij\" or \"xy\", got %s", fault.describe(indexing))
    end
    local swap = indexing == "xy" and #list >= 2
    if #list == 0 then fault.raise("meshgrid", "expected at least one tensor") end
    if swap then list[1], list[2] = list[2], list[1] end
    local shape = {}
    for i = 1, #list do
      if list[i]:dim() > 1 then fault.raise("meshgrid", "tensor %d has %d dimensions, a list is expected", i, list[i]:dim()) end
      if list[i].dtype ~= list[1].dtype then
        fault.raise("meshgrid", "the tensors' dtypes %s and %s differ", list[1].dtype, list[i].dtype)
      end
      shape[i] = list[i]:numel()
    end
    local out = {}
    for i = 1, #list do
      local own = {}
      for k = 1, #list do own[k] = k == i and -1 or 1 end
      out[i] = list[i]:numel() == 0 and list[i]:reshape(table.move(own, 1, #own, 1,
        own)):expand(shape) or list[i]:reshape(own):expand(shape)
    end
    if swap then out[1], out[2] = out[2], out[1] end
    return out
  end, { "indexing" })

variadic(sc, "cartesian_prod", "All ways of taking one element of each list, a row each; one list comes back as it is.", function(list)
  if #list == 1 and list[1]:dim() == 1 then return list[1] end
  for i = 1, #list do
    if list[i]:dim() ~= 1 then fault.raise("cartesian_prod", "tensor %d has %d dimensions, a list is expected", i, list[i]:dim()) end
  end
  return sc.stack(each(sc.meshgrid(list), function(t) return t:flatten() end), 2)
end)

define(sc, "combinations(x, r: int = 2, with_replacement: bool = false)", "All ways of taking r elements of a list in order, a row " ..
  "each.\nErrors: x is not a list; r is negative.",
  function(x, r, again)
    if x:dim() ~= 1 then fault.raise("combinations", "expected a list, got %d dimensions", x:dim()) end
    if r < 0 then fault.raise("combinations", "expected a number of elements from 0, got %d", r) end
    if r == 0 then return x:narrow(1, 1, 0):clone() end
    local n, rows, row = x:numel(), {}, {}
    local function take(k, from)
      if k > r then
        table.move(row, 1, r, #rows + 1, rows)
        return
      end
      for i = from, n do
        row[k] = i
        take(k + 1, again and i or i + 1)
      end
    end
    if r <= n or (again and n > 0) then
      if r > 190 then fault.raise("combinations", "at most 190 elements at a time are possible, got %d", r) end
      take(1, 1)
    end
    return x:index_select(1, sc.tensor(rows, { dtype = "int64" })):reshape(#rows // r, r)
  end, true)

define(sc, "kron(x, other)", "The Kronecker product: every element of x times all of other.", function(x, other)
  local n = math.max(x:dim(), other:dim())
  local a, b, size = {}, {}, {}
  for i = 1, n do
    local p, q = x.shape[i - (n - x:dim())] or 1, other.shape[i - (n - other:dim())] or 1
    a[2 * i - 1], a[2 * i], b[2 * i - 1], b[2 * i], size[i] = p, 1, 1, q, p * q
  end
  return (x:reshape(a) * other:reshape(b)):reshape(size)
end, true)

---------------------------------------------------------------------------
-- Rearranging
---------------------------------------------------------------------------
core.methods.rep = core.methods["repeat"]

define(sc, "diagflat(x, offset: int = 0)", "A matrix with x's elements on a diagonal.", function(x,
  offset) return x:flatten():diag_embed(offset) end, true)
define(sc, "narrow_copy(x, dim: dim, start: int, length: int)", "narrow, as a copy.", function(x, dim, start, length)
  return x:narrow(dim, start, length):clone()
end, true)

define(sc, "fliplr(x)", "x with its columns in reverse order.\nErrors: fewer than 2 dimensions.", function(x)
  if x:dim() < 2 then fault.raise("fliplr", "expected at least 2 dimensions, got %d", x:dim()) end
  return x:flip(2)
end, true)
define(sc, "flipud(x)", "x with its rows in reverse order.\nErrors: no dimensions.", function(x)
  if x:dim() < 1 then fault.raise("flipud", "expected at least 1 dimension") end
  return x:flip(1)
end, true)

define(sc, "rot90(x, k: int = 1, dims: dim[]?)", "x turned by k quarters in the plane of two dimensions, from the first towards the " ..
  "second.\nErrors: the dimensions are not two different ones.",
  function(x, k, dims)
    dims = dims or { 1, 2 }
    if #dims ~= 2 then fault.raise("rot90", "expected two dimensions, got %d", #dims) end
    if x:dim() < 2 then fault.raise("rot90", "expected at least 2 dimensions, got %d", x:dim()) end
    local a, b = place("rot90", x, dims[1]), place("rot90", x, dims[2])
    if a == b then fault.raise("rot90", "the two dimensions must differ, both are %d", a) end
    k = k % 4
    if k == 1 then return x:flip(b):transpose(a, b) end
    if k == 2 then return x:flip(a, b) end
    if k == 3 then return x:flip(a):transpose(a, b) end
    return x:clone()
  end, true)

define(sc, "repeat_interleave(x, repeats: any?, dim: dim?, output_size: int?)",
  "Each element of x so many times: one number for all, or one for each place of dim. Without dim, of the flattened tensor. With x " ..
    "alone, the indices that x's numbers stand for.\nErrors: negative numbers; a list of another length.\nExample: " ..
    "x:repeat_interleave(2, 1)",
  function(x, repeats, dim)
    if repeats == nil then
      if x:dim() ~= 1 then fault.raise("repeat_interleave", "expected a list of numbers, got %d dimensions", x:dim()) end
      return ops.repeats_index(x, x:numel())
    end
    if dim == nil then
      x = x:flatten()
      dim = 1
    end
    local d = place("repeat_interleave", x, dim)
    if x:dim() == 0 then x = x:reshape(1) end
    if is_tensor(repeats) then
      return x:index_select(d, ops.repeats_index(repeats, x:size(d)))
    end
    if math.type(repeats) ~= "integer" or repeats < 0 then
      fault.raise("repeat_interleave", "argument 2 (repeats): expected an integer from 0 or a tensor, got %s", fault.describe(repeats))
    end
    local wide, size = {}, x.shape
    for i = 1, x:dim() + 1 do wide[i] = -1 end
    wide[d + 1] = repeats
    local y = x:unsqueeze(d + 1):expand(wide)
    size[d] = size[d] * repeats
    return y:clone():reshape(size)
  end, true)

define(F, "pixel_shuffle(x, upscale_factor: int)", "Channels become pixels: {…, C r r, H, W} becomes {…, C, H r, W r}.\nErrors: r " ..
  "is not positive; the channels are no multiple of r r.",
  function(x, r)
    local n = x:dim()
    if n < 3 then fault.raise("pixel_shuffle", "expected at least 3 dimensions, got %d", n) end
    if r < 1 then fault.raise("pixel_shuffle", "expected a positive factor, got %d", r) end
    local c, h, w = x:size(-3), x:size(-2), x:size(-1)
    if r > 2 ^ 31 or c % (r * r) ~= 0 then
      fault.raise("pixel_shuffle", "%d channels cannot be shared out over %d x %d pixels", c, r, r)
    end
    local lead = table.move(x.shape, 1, n - 3, 1, {})
    local function shape(...) return table.move({ ... }, 1, select("#", ...), #lead + 1, table.move(lead, 1, #lead, 1, {})) end
    local order = {}
    for i = 1, n - 3 do order[i] = i end
    for i, d in ipairs { 1, 4, 2, 5, 3 } do order[n - 3 + i] = n - 3 + d end
    return x:reshape(shape(c // (r * r), r, r, h, w)):permute(order):reshape(shape(c // (r * r), h * r, w * r))
  end)

define(F, "pixel_unshuffle(x, downscale_factor: int)", "Undoes pixel_shuffle: {…, C, H r, W r} becomes {…, C r r, H, W}.\nErrors: r " ..
  "is not positive; a size is no multiple of r.",
  function(x, r)
    local n = x:dim()
    if n < 3 then fault.raise("pixel_unshuffle", "expected at least 3 dimensions, got %d", n) end
    if r < 1 then fault.raise("pixel_unshuffle", "expected a positive factor, got %d", r) end
    local c, h, w = x:size(-3), x:size(-2), x:size(-1)
    if h % r ~= 0 or w % r ~= 0 then fault.raise("pixel_unshuffle", "%d x %d pixels are no multiple of %d", h, w, r) end
    local lead = table.move(x.shape, 1, n - 3, 1, {})
    local function shape(...) return table.move({ ... }, 1, select("#", ...), #lead + 1, table.move(lead, 1, #lead, 1, {})) end
    local order = {}
    for i = 1, n - 3 do order[i] = i end
    for i, d in ipairs { 1, 3, 5, 2, 4 } do order[n - 3 + i] = n - 3 + d end
    return x:reshape(shape(c, h // r, r, w // r, r)):permute(order):reshape(shape(c * r * r, h // r, w // r))
  end)

-- x.T, x.mT and the like.
core.properties.T = function(x)
  local order = {}
  for i = x:dim(), 1, -1 do order[#order + 1] = i end
  return x:permute(order)
end
core.properties.mT = function(x)
  if x:dim() == 0 then return x end
  if x:dim() < 2 then fault.raise("mT", "expected at least 2 dimensions, got %d", x:dim()) end
  return x:transpose(-2, -1)
end
core.properties.mH = core.properties.mT
core.properties.H = function(x)
  if x:dim() ~= 0 and x:dim() ~= 2 then fault.raise("H", "expected a matrix, got %d dimensions", x:dim()) end
  return x:t()
end

---------------------------------------------------------------------------
-- Indices and masks
---------------------------------------------------------------------------

local argwhere = ops.argwhere

define(sc, "nonzero(x, as_tuple: bool = false)",
  "Indices of the elements that are not zero: int64 {n, dimensions}, or with as_tuple a list of tensors, one per dimension.",
    function(x, as_tuple)
    local rows = argwhere(x:dim() == 0 and as_tuple and x:reshape(1) or x)
    return as_tuple and rows:unbind(2) or rows
  end, true)

local where = ops.where
--- where(condition, x, other); where(condition) gives the indices of its true elements, a list with a tensor per dimension.
function sc.where(condition, ...)
  if select("#", ...) == 0 then return sc.nonzero(condition, true) end
  return where(condition, ...)
end
--- x:where(condition, other): x where the condition is true.
function core.methods.where(x, condition, other)
  if type(condition) == "table" and not is_tensor(condition) then
    condition, other = condition.condition, condition.other or condition.y
  end
  return where(condition, x, other)
end

define(sc, "take_along_dim(x, indices, dim: dim?)", "gather with indices and x broadcast in the other dimensions; without dim, from " ..
  "the flattened tensor.",
  function(x, indices, dim)
    if dim == nil then return x:flatten():gather(1, indices:flatten()) end
    local d = place("take_along_dim", x, dim)
    if x:dim() ~= indices:dim() then fault.raise("take_along_dim", "x has %d dimensions, indices have %d", x:dim(), indices:dim()) end
    if indices.dtype ~= "int64" then fault.raise("take_along_dim", "expected int64 indices, got %s", indices.dtype) end
    if x:dim() == 0 then return x:gather(1, indices) end
    local a, b = x.shape, indices.shape
    a[d], b[d] = 1, 1
    local common = sc.broadcast_shapes(a, b)
    common[d] = x:size(d)
    x = x:expand(common)
    common[d] = indices:size(d)
    return x:gather(d, indices:expand(common))
  end, true)

-- The tensors of a key as int64 index tensors with their dims: masks become what they select.
local function index_tensors(what, x, indices)
  if type(indices) ~= "table" or #indices == 0 then
    fault.raise(what, "argument 2 (indices): expected a list of tensors, got %s", fault.describe(indices))
  end
  local list, dims, d = {}, {}, 1
  for i, t in ipairs(indices) do
    if not is_tensor(t) then fault.raise(what, "argument 2 (indices): entry %d: expected a tensor, got %s", i, fault.describe(t)) end
    local mask = t.dtype == "bool" or t.dtype == "uint8"
    for _, index in ipairs(mask and sc.nonzero(t, true) or { t }) do
      list[#list + 1], dims[#dims + 1] = index, d
      d = d + 1
    end
    if mask then
      for k = 1, t:dim() do
        local at = d - t:dim() + k - 1
        if at > x:dim() or x:size(at) ~= t:size(k) then fault.raise(what, "the mask's shape does not fit the tensor's") end
      end
    end
  end
  return list, dims
end

for _, suffix in ipairs { "", "_" } do
  local write = ops["index_write" .. suffix]
  define(sc, "index_put" .. suffix .. "(x, indices: any, values, accumulate: bool = false)",
    (suffix == "" and "A copy of x" or "x itself") .. " with values written (or added, with accumulate) where x[{indices…}] reads; " ..
      "values broadcast.\nErrors: an index is out of range; values have another dtype.",
    function(x, indices, values, accumulate)
      local list, dims = index_tensors("index_put" .. suffix, x, indices)
      return write(x, values, list, dims, accumulate)
    end, true)
end

define(F, "embedding_bag(input, weight, offsets: tensor?, max_norm: float?, norm_type: float = 2, scale_grad_by_freq: bool = false, " ..
  "mode: str = \"mean\", sparse: bool = false, per_sample_weights: tensor?, include_last_offset: bool = false, padding_idx: index?)",
  "Rows of weight, combined by bag: \"sum\", \"mean\" or \"max\". input is {bags, n}, or a list with offsets, the first position of " ..
    "each bag. Empty bags give zeros; the row padding_idx does not count.\nErrors: per_sample_weights with another mode than " ..
    "\"sum\"; offsets that fall.",
  function(input, weight, offsets, max_norm, norm_type, by_frequency, mode, _, weights, last, padding)
    local what = "embedding_bag"
    if mode ~= "sum" and mode ~= "mean" and mode ~= "max" then
      fault.raise(what, "mode: expected \"sum\", \"mean\" or \"max\", got %q", mode)
    end
    if weights and mode ~= "sum" then fault.raise(what, "per_sample_weights: only mode \"sum\" takes weights, got %q", mode) end
    if weights and table.concat(weights.shape, ",") ~= table.concat(input.shape, ",") then
      fault.raise(what, "per_sample_weights must have the input's shape")
    end
    local bags, bag
    if input:dim() == 2 then
      if offsets then fault.raise(what, "offsets: not expected for an input of 2 dimensions") end
      bags = input:size(1)
      bag = input:numel() == 0 and sc.zeros({ 0 }, { dtype = "int64" })
        or sc.arange(1, bags + 1, 1, { dtype = "int64" }):unsqueeze(2):expand(bags, input:size(2)):reshape(-1)
    elseif input:dim() == 1 then
      if not offsets then fault.raise(what, "offsets: expected for an input of 1 dimension") end
      if offsets:dim() ~= 1 then fault.raise(what, "offsets: expected a list, got %d dimensions", offsets:dim()) end
      bags = offsets:size(1)
      if last then
        if bags == 0 then fault.raise(what, "include_last_offset: expected at least one offset") end
        bags = bags - 1
      end
      bag = ops.bag_of(offsets, input:numel())
    else
      fault.raise(what, "input: expected 1 or 2 dimensions, got %d", input:dim())
    end
    input = input:reshape(-1)
    local rows = F.embedding(input, weight, padding, max_norm, norm_type, by_frequency)
    local spare = last and 1 or 0 -- a bag for what follows the last offset, dropped at the end
    if weights then rows = rows * weights:reshape(-1, 1) end
    local counted
    if padding then
      local row = padding < 0 and padding + weight:size(1) + 1 or padding
      counted = input:ne(row)
      if mode == "max" then -- and one for the rows that do not count
        spare = spare + 1
        bag = sc.where(counted, bag, bags + spare)
      else
        rows = rows:masked_fill(counted:logical_not():unsqueeze(2), 0)
      end
    end
    local empty = sc.zeros({ bags + spare, weight:size(2) }, { dtype = weight.dtype })
    if mode == "max" then return empty:index_reduce(1, bag, rows, "amax", false):narrow(1, 1, bags) end
    local sums = empty:index_add(1, bag, rows):narrow(1, 1, bags)
    if mode == "sum" then return sums end
    local ones = counted and counted:to(weight.dtype) or sc.ones({ bag:numel() }, { dtype = weight.dtype })
    local counts = sc.zeros({ bags + spare }, { dtype = weight.dtype }):index_add(1, bag, ones):narrow(1, 1, bags):clamp(1)
    return sums / counts:unsqueeze(2)
  end)

---------------------------------------------------------------------------
-- Views spelt as in-place ops
---------------------------------------------------------------------------

for name, signature in pairs { squeeze = "x, dim: dim?", unsqueeze = "x, dim: dim", t = "x", transpose = "x, dim0: dim, dim1: dim",
  swapaxes = "x, axis0: dim, axis1: dim", swapdims = "x, dim0: dim, dim1: dim" } do
  local view = core.methods[name]
  define({}, ("%s_(%s)"):format(name, signature), ("%s, x itself becoming the view."):format(name), function(x, ...)
    if x.requires_grad and x.is_leaf then
      fault.raise(name .. "_", "a leaf that requires gradients keeps its shape; x:%s(…) makes a view of it", name)
    end
    local symbolic, given = core.is_symbolic(x)
    if core.is_tracing() and (given or not symbolic) then
      fault.raise(name .. "_", "a tensor from outside a compiled function keeps its shape; x:%s(…) makes a view of it", name)
    end
    return core.become(x, view(x, ...))
  end, true)
end
