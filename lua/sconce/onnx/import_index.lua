--- ONNX nodes that look up, scatter and search. Index values are 0-based and may count from the end; our ops want 1-based ones.
local sc = require "sconce"
local core = require "sconce.core"

local function dim_of(axis, rank)
  if axis < -rank or axis >= math.max(rank, 1) then error(string.format("axis %d is out of range for %d dimensions", axis, rank), 0) end
  return (axis < 0 and axis + rank or axis) + 1
end

local function one_based(index, n)
  index = index:to("int64")
  return sc.where(index:lt(0), index + (n + 1), index + 1)
end

local function gather(x, a)
  local y, index = x[1], x[2]
  local d = dim_of(a.axis or 0, y:dim())
  local shape = y.shape
  local picked = y:index_select(d, one_based(index:reshape { index:numel() }, shape[d]))
  local to = table.move(shape, 1, d - 1, 1, {})
  for _, n in ipairs(index.shape) do to[#to + 1] = n end
  table.move(shape, d + 1, #shape, #to + 1, to)
  return picked:reshape(to)
end

local function gather_elements(x, a)
  local d = dim_of(a.axis or 0, x[1]:dim())
  return x[1]:gather(d, one_based(x[2], x[1]:size(d)))
end

--- The rows that index tuples name in y, its first k dims made one (behind `batch` leading ones): row numbers from 1.
local function rows_of(index, sizes)
  local k, row = index:size(-1), nil
  for i = 1, k do
    local part = index:select(-1, i):to("int64")
    part = sc.where(part:lt(0), part + sizes[i], part)
    row = row and row * sizes[i] + part or part
  end
  return row + 1
end

local function product(list, first, last)
  local n = 1
  for i = first, last do n = n * list[i] end
  return n
end

local function gather_nd(x, a)
  local y, index, b = x[1], x[2], a.batch_dims or 0
  local shape, k = y.shape, x[2]:size(-1)
  local sizes = table.move(shape, b + 1, b + k, 1, {})
  local batches, rows = product(shape, 1, b), product(shape, b + 1, b + k)
  local row = rows_of(index, sizes)
  local flat = row:reshape { batches, row:numel() // math.max(batches, 1) }
  if b > 0 then flat = flat + (core.untraced(sc.arange, 0, batches) * rows):reshape { batches, 1 } end
  local rest = table.move(shape, b + k + 1, #shape, 1, {})
  local source = y:reshape(table.move(rest, 1, #rest, 2, { batches * rows }))
  local to = row.shape
  return source:index_select(1, flat:reshape { flat:numel() }):reshape(table.move(rest, 1, #rest, #to + 1, to))
end

local REDUCE = { add = "sum", mul = "prod", max = "amax", min = "amin" }

local function scatter(x, a)
  local y, d = x[1], dim_of(a.axis or 0, x[1]:dim())
  local index = one_based(x[2], y:size(d))
  local how = REDUCE[a.reduction]
  if how then return y:scatter_reduce(d, index, x[3], how, true) end
  return y:scatter(d, index, x[3])
end

local function scatter_nd(x, a)
  local y, index, updates = x[1], x[2], x[3]
  local shape, k = y.shape, index:size(-1)
  local rows, width = product(shape, 1, k), product(shape, k + 1, #shape)
  local row = rows_of(index, table.move(shape, 1, k, 1, {}))
  local n = row:numel()
  local to = row:reshape { n, 1 }:expand { n, width }
  local flat, source = y:reshape { rows, width }, updates:reshape { n, width }
  local how = REDUCE[a.reduction]
  local out = how and flat:scatter_reduce(1, to, source, how, true) or flat:scatter(1, to, source)
  return out:reshape(shape)
end

local function one_hot(x, a, c)
  local index, depth, values = x[1]:to("int64"), math.tointeger(c:number(x[2])), x[3]
  local rank = index:dim() + 1
  local d = dim_of(a.axis or -1, rank)
  index = sc.where(index:lt(0), index + depth, index):unsqueeze(d)
  local shape = {}
  for i = 1, rank do shape[i] = i == d and depth or 1 end
  local places = core.untraced(function() return sc.arange(0, depth):reshape(shape) end)
  return sc.where(index:eq(places), values:select(1, 2), values:select(1, 1))
end

local function compress(x, a, c)
  local y, keep = x[1], c:known(x[2])
  local d = a.axis and dim_of(a.axis, y:dim()) or 1
  if not a.axis then y = y:reshape { y:numel() } end
  local places = core.untraced(function() return sc.nonzero(keep):reshape { -1 } end)
  return y:index_select(d, places)
end

local function nonzero(x, _, c)
  return core.untraced(function() return (sc.nonzero(c:known(x[1])) - 1):transpose(1, 2):contiguous() end)
end

local function reverse_sequence(x, a, c)
  local y, lengths = x[1], c:ints(x[2])
  local batch, time = (a.batch_axis or 1) + 1, (a.time_axis or 0) + 1
  local T, B = y:size(time), y:size(batch)
  local places = {}
  for b = 1, B do
    places[b] = {}
    for t = 1, T do places[b][t] = t <= lengths[b] and lengths[b] + 1 - t or t end
  end
  local index = core.untraced(function()
    local shape, p = {}, sc.tensor(places)
    if time < batch then p = p:transpose(1, 2) end
    for i = 1, y:dim() do shape[i] = i == batch and B or i == time and T or 1 end
    return p:contiguous():reshape(shape):expand(y.shape)
  end)
  return y:gather(time, index)
end

--- Greedy suppression, box by box in the order of their scores.
local function non_max_suppression(x, a, c)
  local boxes, scores = c:known(x[1]):totable(), c:known(x[2]):totable()
  local most = x[3] and c:number(x[3]) or 0
  local iou, least = x[4] and c:number(x[4]) or 0, x[5] and c:number(x[5]) or nil
  local function corners(b)
    if a.center_point_box == 1 then return b[1] - b[3] / 2, b[2] - b[4] / 2, b[1] + b[3] / 2, b[2] + b[4] / 2 end
    return math.min(b[1], b[3]), math.min(b[2], b[4]), math.max(b[1], b[3]), math.max(b[2], b[4])
  end
  local function overlap(p, q)
    local a1, b1, a2, b2 = corners(p)
    local c1, d1, c2, d2 = corners(q)
    local common = math.max(0, math.min(a2, c2) - math.max(a1, c1)) * math.max(0, math.min(b2, d2) - math.max(b1, d1))
    local union = (a2 - a1) * (b2 - b1) + (c2 - c1) * (d2 - d1) - common
    return union > 0 and common / union or 0
  end
  local out = {}
  for n = 1, #scores do
    for class = 1, #scores[n] do
      local order, kept = {}, {}
      for i, s in ipairs(scores[n][class]) do if not least or s > least then order[#order + 1] = i end end
      table.sort(order, function(i, j)
        local p, q = scores[n][class][i], scores[n][class][j]
        if p ~= q then return p > q end
        return i < j
      end)
      for _, i in ipairs(order) do
        local free = #kept < most
        for _, j in ipairs(kept) do free = free and overlap(boxes[n][i], boxes[n][j]) <= iou end
        if free then
          kept[#kept + 1] = i
          out[#out + 1] = { n - 1, class - 1, i - 1 }
        end
      end
    end
  end
  if #out == 0 then return sc.zeros({ 0, 3 }, { dtype = "int64" }) end
  return sc.tensor(out)
end

local function unique(x, a, c)
  local y = c:known(x[1])
  local d = a.axis and dim_of(a.axis, y:dim())
  local values, inverse, counts = sc.unique(y, { sorted = true, return_inverse = true, return_counts = true, dim = d })
  local inv, n, total = inverse:totable(), counts:numel(), inverse:numel()
  if inverse:dim() ~= 1 then inv = inverse:reshape { total }:totable() end
  local first = {}
  for i = total, 1, -1 do first[inv[i]] = i - 1 end
  local order = {}
  for i = 1, n do order[i] = i end
  if a.sorted == 0 then table.sort(order, function(p, q) return first[p] < first[q] end) end
  local place, firsts = {}, {}
  for i, o in ipairs(order) do
    place[o] = i - 1
    firsts[i] = first[o]
  end
  for i = 1, total do inv[i] = place[inv[i]] end
  local pick = sc.tensor(order)
  return values:index_select(d or 1, pick), sc.tensor(firsts), sc.tensor(inv), counts:index_select(1, pick)
end

return function(ops)
  ops.Gather, ops.GatherElements, ops.GatherND = gather, gather_elements, gather_nd
  ops.ScatterElements, ops.Scatter, ops.ScatterND, ops.OneHot = scatter, scatter, scatter_nd, one_hot
  ops.Compress, ops.NonZero, ops.ReverseSequence, ops.NonMaxSuppression, ops.Unique = compress, nonzero, reverse_sequence,
    non_max_suppression, unique
  return ops
end
