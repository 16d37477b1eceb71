--- Linear algebra in Lua: what is a few lines over the products and decompositions of the op table. See csrc/ops/matmul.c, linalg.c and
--- spectral.c for those.
local sc = require "sconce"
local core = require "sconce.core"
local define = require "sconce.define"
local fault = require "sconce.fault"

local F, linalg = sc.functional, sc.linalg

--- Raises at the user's line; the text begins with the op's name.
local function fail(format, ...)
  local what, rest = format:format(...):match("^([%w_.]+): (.*)$")
  fault.raise(what, "%s", rest)
end

local function text(x) return "{" .. table.concat(x.shape, ", ") .. "}" end

local function product(list, from, to)
  local n = 1
  for i = from or 1, to or #list do n = n * list[i] end
  return n
end

--- Dim d of a tensor with n dims, from 1.
local function wrap(name, d, n)
  local at = d < 0 and d + n + 1 or d
  if at < 1 or at > n then fail("%s: dimension %d is out of range for %d dimensions", name, d, n) end
  return at
end

-- ---- contractions ----

local function trace(x)
  if x:dim() ~= 2 then fail("trace: argument 1 (x): expected a matrix, got shape %s", text(x)) end
  return x:diagonal():sum()
end
define(sc, "trace(x)", "Sum of a matrix's diagonal.\nExample: sc.eye(3):trace()", trace, true)

--- x with dims in that order and its last ones flattened: shape {leading…, product of the rest}.
local function arranged(x, order, parts)
  local moved, shape, at = x:permute(order), {}, 0
  for i, n in ipairs(parts) do
    local size = 1
    for k = 1, n do size = size * moved:size(at + k) end
    shape[i], at = size, at + n
  end
  return moved:reshape(shape)
end

local function tensordot(x, other, dims)
  dims = dims == nil and 2 or dims
  local a, b = {}, {}
  if math.type(dims) == "integer" then
    if dims < 0 or dims > x:dim() or dims > other:dim() then
      fail("tensordot: argument 3 (dims): %d dimensions cannot be contracted in shapes %s and %s", dims, text(x), text(other))
    end
    for i = 1, dims do a[i], b[i] = x:dim() - dims + i, i end
  elseif type(dims) == "table" and type(dims[1]) == "table" and type(dims[2]) == "table" and #dims[1] == #dims[2] then
    for i, d in ipairs(dims[1]) do a[i], b[i] = wrap("tensordot", d, x:dim()), wrap("tensordot", dims[2][i], other:dim()) end
  else
    fail("tensordot: argument 3 (dims): expected a number, or two lists of dimensions of the same length")
  end
  local in_a, in_b = {}, {}
  for i = 1, #a do
    if in_a[a[i]] or in_b[b[i]] then fail("tensordot: argument 3 (dims): a dimension is named twice") end
    in_a[a[i]], in_b[b[i]] = true, true
    local m, n = x:size(a[i]), other:size(b[i])
    if m ~= n and m == 1 then other = other:sum({ b[i] }, true)       -- a size of 1 meets any size
    elseif m ~= n and n == 1 then x = x:sum({ a[i] }, true)
    elseif m ~= n then fail("tensordot: argument 2 (other): shapes %s and %s cannot be contracted over those dimensions", text(x),
      text(other)) end
  end
  local shape, left, right = {}, {}, {}
  for i = 1, x:dim() do if not in_a[i] then left[#left + 1], shape[#shape + 1] = i, x:size(i) end end
  for i = 1, other:dim() do if not in_b[i] then right[#right + 1], shape[#shape + 1] = i, other:size(i) end end
  local n_left, n_right = #left, #right
  table.move(a, 1, #a, n_left + 1, left)
  table.move(right, 1, n_right, #b + 1)
  table.move(b, 1, #b, 1, right)
  return sc.mm(arranged(x, left, { n_left, #a }), arranged(other, right, { #b, n_right })):reshape(shape)
end
define(sc, "tensordot(x, other, dims: any?)",
  "Sum of products over the last `dims` dimensions of x and the first of other, or over pairs of dimensions named in two lists.\n" ..
  "Example: sc.tensordot(sc.ones(2, 3, 4), sc.ones(4, 3), {{3, 2}, {1, 2}})", tensordot)

-- einsum. An operand is { t =, labels = } with each label once; an ellipsis stands for labels "1", "2" … counted from its end.

--- "ab...c" as labels, for a tensor with n dims; ellipsis labels are filled in.
local function einsum_labels(word, n, at)
  local labels, dots = {}, nil
  local i = 1
  while i <= #word do
    local c = word:sub(i, i)
    if c:match("%a") then
      labels[#labels + 1] = c
      i = i + 1
    elseif word:sub(i, i + 2) == "..." and not dots then
      dots = #labels + 1
      i = i + 3
    else
      fail("einsum: argument 1 (equation): unexpected %q in %q", c, word)
    end
  end
  if n then
    local rest = n - #labels
    if rest < 0 or (rest > 0 and not dots) then
      fail("einsum: operand %d has %d dimensions, but %q names %d", at, n, word, #labels)
    end
    for k = 1, dots and rest or 0 do table.insert(labels, dots + k - 1, tostring(rest - k + 1)) end
  end
  return labels, dots
end

local function index_of(list, v)
  for i, x in ipairs(list) do if x == v then return i end end
end

--- Repeated labels become a diagonal.
local function einsum_operand(t, labels, at)
  local seen, i = {}, 1
  while i <= #labels do
    local first = seen[labels[i]]
    if first then
      if t:size(first) ~= t:size(i) then fail("einsum: operand %d repeats %q with sizes %d and %d", at, labels[i], t:size(first),
        t:size(i)) end
      local label = labels[i]
      t = t:diagonal(0, first, i)
      table.remove(labels, i)
      table.remove(labels, first)
      labels[#labels + 1] = label
      seen, i = {}, 1
    else
      seen[labels[i]] = i
      i = i + 1
    end
  end
  return { t = t, labels = labels }
end

--- Sums out the labels that `keep` does not want.
local function einsum_sum(o, keep)
  local dims, labels = {}, {}
  for i, l in ipairs(o.labels) do
    if keep[l] then labels[#labels + 1] = l else dims[#dims + 1] = i end
  end
  if #dims > 0 then o = { t = o.t:sum(dims), labels = labels } end
  return o
end

--- o with its dims in the order of `labels`, sizes of 1 where it has none; nil for a label means nothing.
local function einsum_spread(o, labels)
  local order, shape = {}, {}
  for _, l in ipairs(labels) do
    local i = index_of(o.labels, l)
    if i then order[#order + 1] = i end
    shape[#shape + 1] = i and o.t:size(i) or 1
  end
  return (#order > 1 and o.t:permute(order) or o.t):reshape(shape)
end

--- The product of two operands; what is wanted of it later is in `keep`.
local function einsum_pair(a, b, keep)
  local batch, mine, yours, inner = {}, {}, {}, {}
  local only_a, only_b = {}, {}
  for l in pairs(keep) do only_a[l], only_b[l] = true, true end
  for _, l in ipairs(a.labels) do only_b[l] = true end
  for _, l in ipairs(b.labels) do only_a[l] = true end
  a, b = einsum_sum(a, only_a), einsum_sum(b, only_b)
  for _, l in ipairs(a.labels) do
    local list = not index_of(b.labels, l) and mine or keep[l] and batch or inner
    list[#list + 1] = l
  end
  for _, l in ipairs(b.labels) do if not index_of(a.labels, l) then yours[#yours + 1] = l end end
  local labels = table.move(batch, 1, #batch, 1, {})
  table.move(mine, 1, #mine, #labels + 1, labels)
  table.move(yours, 1, #yours, #labels + 1, labels)
  if #inner == 0 then return { t = einsum_spread(a, labels) * einsum_spread(b, labels), labels = labels } end
  local function places(o, ...)
    local order = {}
    for _, list in ipairs { ... } do for _, l in ipairs(list) do order[#order + 1] = index_of(o.labels, l) end end
    return order
  end
  local x = arranged(a.t, places(a, batch, mine, inner), #batch > 0 and { #batch, #mine, #inner } or { #mine, #inner })
  local y = arranged(b.t, places(b, batch, inner, yours), #batch > 0 and { #batch, #inner, #yours } or { #inner, #yours })
  local shape = {}
  for i, l in ipairs(labels) do
    local k = index_of(a.labels, l)
    shape[i] = k and a.t:size(k) or b.t:size(index_of(b.labels, l))
  end
  return { t = sc.matmul(x, y):reshape(shape), labels = labels }
end

--- Labels of the result: those after "->", or every one that occurs once, sorted, after the ellipsis.
local function einsum_result(words, right, dots, count)
  if right then
    local labels, at = einsum_labels(right, nil)
    for k = 1, at and dots or 0 do table.insert(labels, at + k - 1, tostring(dots - k + 1)) end
    local seen = {}
    for _, l in ipairs(labels) do
      if seen[l] or not count[l] then fail("einsum: argument 1 (equation): %q in the result %s", l, seen[l] and "is repeated"
        or "is in no operand") end
      seen[l] = true
    end
    return labels
  end
  local labels, letters = {}, {}
  for k = dots, 1, -1 do labels[#labels + 1] = tostring(k) end
  for l in table.concat(words):gmatch("%a") do if count[l] == 1 then letters[#letters + 1] = l end end
  table.sort(letters)
  return table.move(letters, 1, #letters, #labels + 1, labels)
end

local function einsum(equation, operands)
  local plain = equation:gsub("%s", "")
  local left, right = plain:match("^(.-)%->(.*)$")
  left = left or plain
  local words = {}
  for word in (left .. ","):gmatch("(.-),") do words[#words + 1] = word end
  if #operands == 0 then fail("einsum: argument 2 (operands): expected at least one tensor") end
  if #words ~= #operands then fail("einsum: the equation has %d operands, but %d were given", #words, #operands) end
  local list, size, count, dots = {}, {}, {}, 0
  for i, t in ipairs(operands) do
    local labels, at = einsum_labels(words[i], t:dim(), i)
    if at then dots = math.max(dots, t:dim() - #words[i] + 3) end
    for _, l in ipairs(labels) do count[l] = (count[l] or 0) + 1 end
    list[i] = einsum_operand(t, labels, i)
    for k, l in ipairs(list[i].labels) do
      local n = list[i].t:size(k)
      if size[l] and size[l] ~= n and size[l] ~= 1 and n ~= 1 then
        fail("einsum: operand %d has size %d for %q, expected %d", i, n, l, size[l])
      end
      if not size[l] or size[l] == 1 then size[l] = n end
    end
  end
  local result = einsum_result(words, right, dots, count)
  for _, o in ipairs(list) do                           -- a size of 1 that meets a larger one: as if it were not there
    for k = #o.labels, 1, -1 do
      if o.t:size(k) ~= size[o.labels[k]] then o.t = o.t:squeeze(k); table.remove(o.labels, k) end
    end
  end
  local wanted = {}                                     -- wanted[i]: labels needed after operand i
  for i = #list, 1, -1 do
    wanted[i] = {}
    for _, l in ipairs(result) do wanted[i][l] = true end
    for k = i + 1, #list do for _, l in ipairs(list[k].labels) do wanted[i][l] = true end end
  end
  local y = list[1]
  for i = 2, #list do y = einsum_pair(y, list[i], wanted[i]) end
  return einsum_spread(einsum_sum(y, wanted[#list]), result)
end

--- Sublists, einsum(x, {1, 2}, y, {2, 3}, {1, 3}), as an equation.
local function sublists(...)
  local args, words, operands, letter, n = { ... }, {}, {}, {}, 0
  local function word(list)
    local w = ""
    for _, v in ipairs(list) do
      if v ~= sc.ellipsis and not letter[v] then
        letter[v] = n < 26 and string.char(97 + n) or string.char(65 + n - 26)
        n = n + 1
      end
      w = w .. (v == sc.ellipsis and "..." or letter[v])
    end
    return w
  end
  for i = 1, #args - 1, 2 do
    if type(args[i + 1]) ~= "table" then fail("einsum: expected a list of labels after each tensor") end
    if not sc.is_tensor(args[i]) then fail("einsum: argument %d: expected a tensor, got %s", i, fault.describe(args[i])) end
    operands[#operands + 1], words[#words + 1] = args[i], word(args[i + 1])
  end
  if n > 52 then fail("einsum: at most 52 labels are possible") end
  return table.concat(words, ",") .. (#args % 2 == 1 and "->" .. word(args[#args]) or ""), operands
end

local by_equation = define(sc, "einsum(equation: str, operands: tensor[])",
  "Sums of products named by labels: a letter per dimension, operands divided by commas, the result after \"->\" (without it: the " ..
    "labels that " ..
  "occur once, sorted). A repeated letter in an operand is its diagonal; \"...\" stands for dimensions that broadcast.\n" ..
  "Example: sc.einsum(\"bij,bjk->bik\", sc.ones(2, 3, 4), sc.ones(2, 4, 5))", einsum)
function sc.einsum(first, ...)
  if sc.is_tensor(first) then return by_equation(sublists(first, ...)) end
  return by_equation(first, ...)
end

-- ---- products of many matrices ----

--- The split of each product of matrices i…j that multiplies least. Source: Cormen et al., "Introduction to Algorithms", chapter 15.2.
local function best_splits(size)
  local n, cost, split = #size - 1, {}, {}
  for i = 1, n do cost[i], split[i] = { [i] = 0 }, {} end
  for len = 2, n do
    for i = 1, n - len + 1 do
      local j = i + len - 1
      cost[i][j] = math.huge
      for k = i, j - 1 do
        local c = cost[i][k] + cost[k + 1][j] + size[i] * size[k + 1] * size[j + 1]
        if c < cost[i][j] then cost[i][j], split[i][j] = c, k end
      end
    end
  end
  return split
end

local function multi_dot(tensors)
  local n = #tensors
  if n < 2 then fail("linalg.multi_dot: argument 1 (tensors): expected at least two tensors, got %d", n) end
  local list, dtype = {}, tensors[1].dtype
  for i, t in ipairs(tensors) do
    if t.dtype ~= dtype then fail("linalg.multi_dot: tensor %d is %s, expected %s as for the first", i, t.dtype, dtype) end
    if t:dim() ~= 2 and not (t:dim() == 1 and (i == 1 or i == n)) then
      fail("linalg.multi_dot: tensor %d: expected a matrix%s, got shape %s", i, (i == 1 or i == n) and " or a vector" or "", text(t))
    end
    list[i] = t:dim() == 2 and t or t:unsqueeze(i == 1 and 1 or 2)
    if i > 1 and list[i]:size(1) ~= list[i - 1]:size(2) then
      fail("linalg.multi_dot: tensors %d and %d cannot be multiplied, their shapes are %s and %s", i - 1, i, text(tensors[i - 1]), text(t))
    end
  end
  local size = {}
  for i = 1, n do size[i] = list[i]:size(1) end
  size[n + 1] = list[n]:size(2)
  local split = best_splits(size)
  local function chain(i, j)
    if i == j then return list[i] end
    return sc.mm(chain(i, split[i][j]), chain(split[i][j] + 1, j))
  end
  local y = chain(1, n)
  if tensors[n]:dim() == 1 then y = y:squeeze(2) end
  if tensors[1]:dim() == 1 then y = y:squeeze(1) end
  return y
end
define(linalg, "linalg.multi_dot(tensors: tensor[])",
  "Product of two or more matrices in the order that multiplies least; the first and the last may be vectors.\n" ..
  "Example: sc.linalg.multi_dot({sc.ones(2, 3), sc.ones(3, 4), sc.ones(4)})", multi_dot)
define(sc, "chain_matmul(matrices: tensor[])", "linalg.multi_dot under its older name.", function(list)
  return #list == 1 and list[1] or multi_dot(list)
end)

local function check_square(name, x)
  if x:dim() < 2 or x:size(-1) ~= x:size(-2) then fail("%s: argument 1 (x): expected square matrices, got shape %s", name, text(x)) end
end

local function matrix_power(x, n)
  check_square("linalg.matrix_power", x)
  if n == 0 then return x:clone():copy_(sc.eye(x:size(-1), { dtype = x.dtype })) end   -- keeps a history, with a gradient of zeros
  if n < 0 then x, n = linalg.inv(x), -n end
  local y
  while true do
    if n % 2 == 1 then y = y and sc.matmul(y, x) or x end
    n = n // 2
    if n == 0 then return y end
    x = sc.matmul(x, x)
  end
end
define(linalg, "linalg.matrix_power(x, n: int)", "x multiplied with itself n times; the inverse when n is negative.\nShapes: [..., " ..
  "k, k].", matrix_power)
define(sc, "matrix_power(x, n: int)", "linalg.matrix_power.", matrix_power, true)

define(linalg, "linalg.matmul(x, other)", "matmul.", function(x, other) return sc.matmul(x, other) end)
define(linalg, "linalg.vecdot(x, other, dim: dim = -1)", "Sum of products along a dimension; the others broadcast.", function(x, other, dim)
  if x.dtype ~= other.dtype then fail("linalg.vecdot: argument 2 (other): expected %s as for the first, got %s", x.dtype, other.dtype) end
  return (x * other):sum(dim)
end)
define(linalg, "linalg.diagonal(x, offset: int = 0, dim1: dim = -2, dim2: dim = -1)", "Diagonals of matrices, as a view.",
  function(x, offset, dim1, dim2) return x:diagonal(offset, dim1, dim2) end)

define(F, "nn.functional.bilinear(x1, x2, weight, bias: tensor?)",
  "x1ᵀ weight[o] x2 + bias[o] for each output o.\nShapes: x1 [..., i], x2 [..., j], weight [o, i, j], bias [o], result [..., o].",
    function(x1, x2, weight, bias)
    local o, i, j = weight:size(1), x1:dim() > 0 and x1:size(-1), x2:dim() > 0 and x2:size(-1)
    if weight:dim() ~= 3 or weight:size(2) ~= i or weight:size(3) ~= j or x1:dim() ~= x2:dim() then
      fail("nn.functional.bilinear: argument 3 (weight): shape %s does not fit inputs of shapes %s and %s", text(weight), text(x1),
        text(x2))
    end
    local shape = x1.shape
    for k = 1, #shape - 1 do
      if shape[k] ~= x2:size(k) then fail("nn.functional.bilinear: argument 2 (x2): shapes %s and %s have different leading sizes",
        text(x1), text(x2)) end
    end
    local rows = product(shape, 1, #shape - 1)
    local half = sc.mm(x1:reshape(rows, i), weight:permute(2, 1, 3):reshape(i, o * j)):reshape(rows, o, j)
    local y = sc.bmm(half, x2:reshape(rows, j, 1))
    shape[#shape] = o
    y = y:reshape(shape)
    return bias and y + bias or y
  end)

-- ---- distances ----

local function check_p(name, p)
  if p < 0 or p ~= p then fail("%s: argument p: expected a number from 0 on, got %s", name, p) end
end

define(sc, "cdist(x1, x2, p: float = 2, compute_mode: str?)",
  "Distances in the p-norm between the rows of x1 and those of x2.\nShapes: x1 [..., m, k], x2 [..., n, k], result [..., m, n]; " ..
    "leading dims broadcast.\n" ..
  "The gradient at a distance of 0 is 0.", function(x1, x2, p)
    check_p("cdist", p)
    if x1:dim() < 2 or x2:dim() < 2 or x1:size(-1) ~= x2:size(-1) then
      fail("cdist: argument 2 (x2): shapes %s and %s do not fit", text(x1), text(x2))
    end
    if x1:size(-1) == 0 then p = 2 end                   -- points without coordinates are 0 apart, whatever the norm
    return linalg.vector_norm(x1:unsqueeze(-2) - x2:unsqueeze(-3), p, -1)
  end)

define(F, "nn.functional.pdist(x, p: float = 2)", "Distances in the p-norm between all pairs of rows i < j of a matrix.\nShapes: x " ..
  "[n, k], result [n (n - 1) / 2].",
  function(x, p)
    check_p("nn.functional.pdist", p)
    if x:dim() ~= 2 then fail("nn.functional.pdist: argument 1 (x): expected a matrix, got shape %s", text(x)) end
    local pairs_of = sc.triu_indices(x:size(1), x:size(1), 1)
    return linalg.vector_norm(x:index_select(1, pairs_of:select(1, 1)) - x:index_select(1, pairs_of:select(1, 2)), p, -1)
  end)

-- ---- norms ----

--- x with dims d1, d2 (from 1) last.
local function matrices_last(x, d1, d2)
  local order = {}
  for i = 1, x:dim() do if i ~= d1 and i ~= d2 then order[#order + 1] = i end end
  order[#order + 1], order[#order + 2] = d1, d2
  return x:permute(order)
end

local function matrix_norm(x, ord, dim, keepdim, dtype)
  ord = ord == nil and "fro" or ord
  dim = dim or { -2, -1 }
  if dtype then x = x:to(dtype) end
  if #dim ~= 2 then fail("linalg.matrix_norm: argument 3 (dim): expected two dimensions, got %d", #dim) end
  if x:dim() < 2 then fail("linalg.matrix_norm: argument 1 (x): expected a matrix or a batch of them, got shape %s", text(x)) end
  local d1, d2 = wrap("linalg.matrix_norm", dim[1], x:dim()), wrap("linalg.matrix_norm", dim[2], x:dim())
  if d1 == d2 then fail("linalg.matrix_norm: argument 3 (dim): the dimensions are the same") end
  if ord == "fro" then return linalg.vector_norm(x, 2, { d1, d2 }, keepdim) end
  local y
  if ord == "nuc" or ord == 2 or ord == -2 then
    y = linalg.svdvals(matrices_last(x, d1, d2))
    y = ord == "nuc" and y:sum(-1) or ord == 2 and y:amax(-1) or y:amin(-1)
    if keepdim then
      local shape = x.shape
      shape[d1], shape[d2] = 1, 1
      y = y:reshape(shape)
    end
    return y
  end
  if type(ord) ~= "number" or (math.abs(ord) ~= 1 and math.abs(ord) ~= math.huge) then
    fail('linalg.matrix_norm: argument 2 (ord): expected "fro", "nuc", 1, 2, inf or one of the last three negated, got %s', tostring(ord))
  end
  local along, over = d1, d2
  if math.abs(ord) ~= 1 then along, over = d2, d1 end
  y = x:abs():sum(along, true)
  if ord > 0 then y = y:amax(over, true) else y = y:amin(over, true) end
  return keepdim and y or y:squeeze { d1, d2 }
end
define(linalg, "linalg.matrix_norm(x, ord: any?, dim: dim[]?, keepdim: bool = false, dtype: dtype?)",
  "Norm of matrices: \"fro\" (the default), \"nuc\" (sum of singular values), 2 and -2 (largest, smallest), 1 and -1 (of column " ..
    "sums), inf and -inf (of " ..
  "row sums).\nExample: sc.linalg.matrix_norm(sc.ones(2, 2), 1)", matrix_norm)

local function norm(x, ord, dim, keepdim, dtype)
  if type(dim) == "table" and #dim == 0 then dim = nil end
  if ord == nil then return linalg.vector_norm(x, 2, dim, keepdim, dtype) end
  local n = dim and #dim or x:dim()
  if n > 2 or (dim == nil and n == 0 and type(ord) == "string") then
    fail("linalg.norm: with ord, expected one or two dimensions, got %d", n)
  end
  if n == 2 then return matrix_norm(x, ord, dim, keepdim, dtype) end
  if type(ord) ~= "number" then fail("linalg.norm: argument 2 (ord): %s is a norm of matrices, got one dimension", tostring(ord)) end
  return linalg.vector_norm(x, ord, dim, keepdim, dtype)
end
define(linalg, "linalg.norm(x, ord: any?, dim: dim[]?, keepdim: bool = false, dtype: dtype?)",
  "A vector norm over one dimension, a matrix norm over two; without ord the 2-norm of all elements (or over dim). See " ..
    "linalg.vector_norm and " ..
  "linalg.matrix_norm.", norm)

define(linalg, "linalg.cond(x, p: any?)", "Condition number of matrices in a norm (2 by default): norm of x times norm of its " ..
  "inverse, inf for singular ones.",
  function(x, p)
    if x:dim() < 2 then fail("linalg.cond: argument 1 (x): expected a matrix or a batch of them, got shape %s", text(x)) end
    if p == nil or p == 2 or p == -2 then
      local s = linalg.svdvals(x)
      local shape = s.shape
      shape[#shape] = nil
      if s:size(-1) == 0 then return s:sum(-1) end
      local largest, smallest = s:select(-1, 1), s:select(-1, -1)
      return p == -2 and smallest / largest or largest / smallest
    end
    check_square("linalg.cond", x)
    if x:numel() == 0 then return matrix_norm(x, "fro") end
    local y = matrix_norm(x, p) * matrix_norm((linalg.inv_ex(x)), p)
    return sc.where(y:eq(y), y, math.huge)              -- 0 * inf
  end)

-- ---- solving ----

local function lower(lu, k)
  local l = lu:narrow(-1, 1, k)
  return l:tril(-1) + sc.eye(l:size(-2), k, { dtype = lu.dtype })
end

local function lu_unpack(lu, pivots, data, permutation)
  local m, n = lu:size(-2), lu:size(-1)
  local k = math.min(m, n)
  local none = sc.zeros({ 0 }, { dtype = lu.dtype })
  return permutation and core.ops.linalg_permutation(pivots, lu) or none, data and lower(lu, k) or none,
    data and lu:narrow(-2, 1, k):triu() or none
end
define(sc, "lu_unpack(LU, pivots, unpack_data: bool = true, unpack_pivots: bool = true)",
  "P, L and U from the results of linalg.lu_factor.",
  function(lu, pivots, data, permutation) return lu_unpack(lu, pivots, data, permutation) end)
define(linalg, "linalg.lu_factor(x, pivot: bool = true)",
  "L and U of x = P L U in one matrix, and the row exchanges as pivots (from 1, int32).\nErrors: a singular matrix.", function(x, pivot)
    local lu, pivots = linalg.lu_factor_ex(x, pivot, true)
    return lu, pivots
  end)
define(linalg, "linalg.lu(x, pivot: bool = true)", "P, L, U with P L U = x.\nShapes: x [..., m, n], k = min(m, n): [..., m, m], " ..
  "[..., m, k], [..., k, n].",
  function(x, pivot)
    local lu, pivots = linalg.lu_factor_ex(x, pivot)
    return lu_unpack(lu, pivots, true, true)
  end)
local function lu_solve(lu, pivots, b, left, adjoint)
  check_square("linalg.lu_solve", lu)
  local p = core.ops.linalg_permutation(pivots, lu)
  if not left then b, adjoint = b:transpose(-2, -1), not adjoint end  -- X A = B is Aᵀ Xᵀ = Bᵀ
  local y
  if adjoint then
    y = linalg.solve_triangular(lu:transpose(-2, -1), b, false)
    y = sc.matmul(p, linalg.solve_triangular(lu:transpose(-2, -1), y, true, true, true))
  else
    y = linalg.solve_triangular(lu, sc.matmul(p:transpose(-2, -1), b), false, true, true)
    y = linalg.solve_triangular(lu, y, true)
  end
  return left and y or y:transpose(-2, -1)
end
define(linalg, "linalg.lu_solve(LU, pivots, B, left: bool = true, adjoint: bool = false)",
  "x with A x = B (left = false: x A = B; adjoint: Aᵀ) from A's factors by linalg.lu_factor.", lu_solve)
define(sc, "lu_solve(b, LU_data, LU_pivots)", "linalg.lu_solve with its older order of arguments.", function(b, lu, pivots)
  return lu_solve(lu, pivots, b, true, false)
end, true)

define(linalg, "linalg.lstsq(A, B, rcond: float?, driver: str?)",
  "Least squares: solution, residuals, rank, singular values of A; the last three are empty where the driver (gels, gelsy, gelsd, " ..
    "gelss) does not give " ..
  "them. The solution is the one of least norm.\nShapes: A [..., m, n], B [..., m, k] or [..., m]; solution [..., n, k] or [..., n].",
    function(a, b, rcond, driver)
    driver = driver or "gelsy"
    if driver ~= "gels" and driver ~= "gelsy" and driver ~= "gelsd" and driver ~= "gelss" then
      fail('linalg.lstsq: argument 4 (driver): expected "gels", "gelsy", "gelsd" or "gelss", got "%s"', driver)
    end
    if a:dim() < 2 then fail("linalg.lstsq: argument 1 (A): expected a matrix or a batch of them, got shape %s", text(a)) end
    if b:dim() < 1 then fail("linalg.lstsq: argument 2 (B): expected at least one dimension") end
    local m, n = a:size(-2), a:size(-1)
    local vector = b:dim() == 1 or b:dim() == a:dim() - 1
    if b.dtype ~= a.dtype or b:size(vector and -1 or -2) ~= m then
      fail("linalg.lstsq: argument 2 (B): %s of shape %s does not fit %s of shape %s", b.dtype, text(b), a.dtype, text(a))
    end
    local rhs = vector and b:unsqueeze(-1) or b
    local x = sc.matmul(linalg.pinv(a, rcond), rhs)
    local none = sc.zeros({ 0 }, { dtype = a.dtype })
    local residuals, rank, values = none, sc.zeros({ 0 }, { dtype = "int64" }), none
    if m > n and driver ~= "gelsy" then
      residuals = (sc.matmul(a, x) - rhs):square():sum(-2)
      if vector then residuals = residuals:squeeze(-1) end
    end
    if driver ~= "gels" then rank = linalg.matrix_rank(a, nil, false, nil, rcond) end
    if driver == "gelsd" or driver == "gelss" then values = linalg.svdvals(a) end
    return vector and x:squeeze(-1) or x, residuals, rank, values
  end)

define(linalg, "linalg.tensorinv(x, ind: int = 2)",
  "Inverse of x as a matrix from its dims after the first `ind` to those, so that tensordot with it undoes tensordot with x.", function(x,
    ind)
    if ind < 1 or ind > x:dim() then fail("linalg.tensorinv: argument 2 (ind): expected 1 to %d, got %d", x:dim(), ind) end
    local shape, out = x.shape, {}
    local rows, cols = product(shape, 1, ind), product(shape, ind + 1)
    if rows ~= cols then fail("linalg.tensorinv: argument 1 (x): the first %d sizes of %s must multiply to what the others do", ind,
      text(x)) end
    for i = ind + 1, #shape do out[#out + 1] = shape[i] end
    for i = 1, ind do out[#out + 1] = shape[i] end
    return linalg.inv(x:reshape(rows, cols)):reshape(out)
  end)

define(linalg, "linalg.tensorsolve(A, B, dims: dim[]?)",
  "x with tensordot(A, x, x:dim()) = B; dims of A named in `dims` are moved to its end first.", function(a, b, dims)
    if dims then
      local order, moved = {}, {}
      for _, d in ipairs(dims) do moved[wrap("linalg.tensorsolve", d, a:dim())] = true end
      for i = 1, a:dim() do if not moved[i] then order[#order + 1] = i end end
      for _, d in ipairs(dims) do order[#order + 1] = wrap("linalg.tensorsolve", d, a:dim()) end
      a = a:permute(order)
    end
    local shape = {}
    for i = b:dim() + 1, a:dim() do shape[#shape + 1] = a:size(i) end
    local rows, cols = b:numel(), product(shape)
    if rows * cols ~= a:numel() or rows ~= cols then fail("linalg.tensorsolve: argument 1 (A): shape %s does not fit B of shape %s",
      text(a), text(b)) end
    return linalg.solve(a:reshape(rows, cols), b:reshape(rows)):reshape(shape)
  end)

-- ---- built from vectors ----

define(linalg, "linalg.vander(x, N: int?)", "Powers 0 to N - 1 of each element (N: as many as elements).\nShapes: x [..., n], result " ..
  "[..., n, N].", function(x, n)
  if x:dim() == 0 then x = x:reshape(1) end
  if not x.dtype:find("float") and x.dtype ~= "int64" then x = x:to("int64") end
  n = n or x:size(-1)
  if n < 2 then fail("linalg.vander: argument 2 (N): expected at least 2, got %d", n) end
  if n > 1 << 24 then fail("linalg.vander: argument 2 (N): %d powers are too many", n) end
  local columns = { sc.ones_like(x), x }
  for i = 3, n do columns[i] = columns[i - 1] * x end
  return sc.stack(columns, -1)
end)

define(linalg, "linalg.householder_product(A, tau)",
  "First n columns of the product of reflections I - tau[i] v vᵀ, v being column i of A with 1 on the diagonal and 0 above.\nShapes: " ..
    "A [..., m, n], tau [..., k].",
  function(a, tau)
    if a:dim() < 2 or tau:dim() ~= a:dim() - 1 or tau:size(-1) > a:size(-1) or a:size(-2) < a:size(-1) or a.dtype ~= tau.dtype then
      fail("linalg.householder_product: argument 2 (tau): %s of shape %s does not fit %s of shape %s", tau.dtype, text(tau), a.dtype,
        text(a))
    end
    local m, n = a:size(-2), a:size(-1)
    local unit = sc.eye(m, n, { dtype = a.dtype })
    local q = unit:expand(a.shape)
    if tau:size(-1) == 0 then return q + (a * 0):sum() end             -- no reflection; gradients are zeros, not none
    for i = tau:size(-1), 1, -1 do
      local v = a:narrow(-1, i, 1):tril(-i) + unit:narrow(2, i, 1)
      q = q - tau:narrow(-1, i, 1):unsqueeze(-1) * sc.matmul(v, sc.matmul(v:transpose(-2, -1), q))
    end
    return q
  end)
define(sc, "orgqr(x, tau)", "linalg.householder_product under its older name.", function(x, tau) return linalg.householder_product(x,
  tau) end, true)

-- ---- older names ----

define(sc, "pinverse(x, rcond: float = 1e-15)", "Pseudo-inverse; see linalg.pinv.", function(x, rcond) return linalg.pinv(x, rcond) end,
  true)
define(sc, "qr(x, some: bool = true)", "linalg.qr: \"reduced\" when some, else \"complete\".", function(x, some)
  return linalg.qr(x, some and "reduced" or "complete")
end, true)
define(sc, "svd(x, some: bool = true, compute_uv: bool = true)", "U, S, V with x = U diag(S) Vᵀ; some: only min(m, n) vectors. See " ..
  "linalg.svd.",
  function(x, some, compute_uv)
    if not compute_uv then
      local s = linalg.svdvals(x)
      local u, v = x.shape, x.shape
      u[#u], v[#v - 1] = u[#u - 1], v[#v]
      return sc.zeros(u, { dtype = x.dtype }), s, sc.zeros(v, { dtype = x.dtype })
    end
    local u, s, vh = linalg.svd(x, not some)
    return u, s, vh:transpose(-2, -1)
  end, true)

return linalg
