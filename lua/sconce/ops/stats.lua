--- Statistics in Lua, each a few lines over other ops: quantiles, histograms, covariance, differences and integrals, comparisons of
--- whole tensors.
local sc = require "sconce"
local core = require "sconce.core"
local define = require "sconce.define"
local fault = require "sconce.fault"

local function is_tensor(v) return type(v) == "userdata" and core.is_tensor(v) end

-- 1 … n from a dimension that may count from the end; a 0-dimensional tensor has one.
local function place(what, x, dim)
  local n = math.max(x:dim(), 1)
  if dim > n or dim < -n then fault.raise(what, "argument dim: dimension %d is out of range for %d dimensions", dim, x:dim()) end
  return dim < 0 and dim + n + 1 or dim
end

local function same_shape(a, b)
  local s, t = a.shape, b.shape
  if #s ~= #t then return false end
  for i = 1, #s do if s[i] ~= t[i] then return false end end
  return true
end

-- ---- whole tensors compared

define(sc, "equal(x, other)", "Whether two tensors have the same shape and equal elements (a NaN equals nothing), as a Lua boolean.",
  function(x, other)
    if not same_shape(x, other) then return false end
    return x:eq(other):all():item()
  end, true)

define(sc, "allclose(x, other, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = false)",
  "Whether |x - other| <= atol + rtol * |other| everywhere, as a Lua boolean.",
  function(x, other, rtol, atol, equal_nan) return sc.isclose(x, other, rtol, atol, equal_nan):all():item() end, true)

-- ---- quantiles

local MODES = { linear = true, lower = true, higher = true, midpoint = true, nearest = true }

-- Whether values can be looked at: not while a graph is being recorded.
local function readable(t) return not core.is_tracing() and not core.is_symbolic(t) end

-- What both quantiles share. count(x, d): the number of elements of each line that matter, with dim d kept as 1.
local function quantile(what, x, q, dim, keepdim, interpolation, skip_nan)
  if x.dtype ~= "float32" and x.dtype ~= "float64" then
    fault.raise(what, "argument 1 (x): expected float32 or float64, got %s", x.dtype)
  end
  if not MODES[interpolation] then
    fault.raise(what, 'argument interpolation: expected "linear", "lower", "higher", "midpoint" or "nearest", got "%s"', interpolation)
  end
  local number = type(q) == "number"
  if number and not (q >= 0 and q <= 1) then fault.raise(what, "argument 2 (q): expected numbers from 0 to 1") end
  if not is_tensor(q) then q = sc.tensor(q, { dtype = x.dtype }) end
  if q:dim() > 1 then fault.raise(what, "argument 2 (q): expected a number or one dimension, got %d", q:dim()) end
  if q.dtype ~= x.dtype then fault.raise(what, "argument 2 (q): expected %s, as x, got %s", x.dtype, q.dtype) end
  if not number then q = core.ops.within(q, 0, 1, "argument 2 (q)") end
  local rank = x:dim()
  local d = dim and place(what, x, dim) or 1
  if not dim or rank == 0 then x = x:reshape(-1) end
  local n = x:size(d)
  if x:numel() == 0 then fault.raise(what, "argument 1 (x): it has no elements") end

  local sorted = x:sort(d)
  local along = {}
  for i = 1, x:dim() do along[i] = i == d and q:numel() or 1 end
  local last = skip_nan and (x:eq(x):sum(d, true):to(x.dtype) - 1):clamp_min(0) or n - 1
  local at = q:reshape(along) * last                        -- [1, …, Q, …, 1] or with the lines' sizes
  if interpolation == "lower" then at = at:floor()
  elseif interpolation == "higher" then at = at:ceil()
  elseif interpolation == "nearest" then at = at:round() end
  local sizes = x.shape
  sizes[d] = q:numel()
  at = at:expand(sizes)
  local below = at:floor()
  local function pick(position) return core.ops.pick(sorted, position:to("int64") + 1, d, true) end
  local y = pick(below)
  if interpolation == "linear" or interpolation == "midpoint" then
    local weight = interpolation == "midpoint" and at:ne(below):to(x.dtype) * 0.5 or at - below
    y = y:lerp(pick(at:ceil()), weight)
  end
  if not skip_nan then y = sc.where(x:ne(x):any(d, true), 0 / 0, y) end

  -- Q goes in front; the dimension itself stays as 1 or goes
  if q:dim() == 0 then
    y = y:squeeze(d)
    if keepdim then y = y:unsqueeze(d) end
  else
    y = y:movedim(d, 1)
    if keepdim then y = y:unsqueeze(d + 1) end
  end
  if keepdim and (rank == 0 or (not dim and rank ~= 1)) then
    local shape = q:dim() == 0 and {} or { q:numel() }
    for _ = 1, rank do shape[#shape + 1] = 1 end
    y = y:reshape(shape)
  end
  return y
end

local QUANTILE_HELP = " q: a number or a tensor of them, from 0 to 1; with a tensor its size comes first in the result.\n"
  .. 'interpolation: "linear", "lower", "higher", "midpoint" or "nearest".'

define(sc, 'quantile(x, q: any, dim: dim?, keepdim: bool = false, interpolation: str = "linear")',
  "Quantiles of all elements or along dim; NaN where there is a NaN." .. QUANTILE_HELP, function(x, q, dim, keepdim, interpolation)
    return quantile("quantile", x, q, dim, keepdim, interpolation, false)
  end, true)
define(sc, 'nanquantile(x, q: any, dim: dim?, keepdim: bool = false, interpolation: str = "linear")',
  "Quantiles of what is not NaN." .. QUANTILE_HELP, function(x, q, dim, keepdim, interpolation)
    return quantile("nanquantile", x, q, dim, keepdim, interpolation, true)
  end, true)

-- ---- histogram

-- Edges over the elements' own range, where that is not known yet.
local function symbolic_edges(x, bins)
  local low, high = x:detach():amin(), x:detach():amax()
  local flat = low:eq(high)
  low, high = sc.where(flat, low - 0.5, low), sc.where(flat, high + 0.5, high)
  local step = sc.arange(bins + 1, { dtype = x.dtype }) / bins
  return sc.where(step:eq(1), high, low + (high - low) * step)
end

define(sc, "histogram(x, bins: any, range: float[]?, weight: tensor?, density: bool = false) -> hist, bin_edges",
  "How many elements (or how much weight) lie in each bin, and the bins' edges. bins: a number of equal bins over range (the "
  .. "elements' own when not given), or a tensor of edges. density: divided by the total and the bins' widths.",
  function(x, bins, range, weight, density)
    local edges
    if not x.dtype:find("float") then fault.raise("histogram", "argument 1 (x): expected floating point, got %s", x.dtype) end
    if is_tensor(bins) and bins:dim() > 0 then
      edges = bins
    else
      if is_tensor(bins) then bins = bins:item() end
      if math.type(bins) ~= "integer" or bins < 1 then
        fault.raise("histogram", "argument 2 (bins): expected a number of bins from 1, or a tensor of edges, got %s", fault.describe(bins))
      end
      if bins > 1 << 40 then fault.raise("histogram", "argument 2 (bins): %d are too many", bins) end
      local low, high = 0.0, 1.0
      if range then
        if #range ~= 2 then fault.raise("histogram", "argument 3 (range): expected two numbers, got %d", #range) end
        low, high = range[1], range[2]
      elseif x:numel() > 0 and not readable(x) then edges = symbolic_edges(x, bins)
      elseif x:numel() > 0 then low, high = x:amin():item(), x:amax():item() end
      if low == high then low, high = low - 0.5, high + 0.5 end
      if low ~= low or high ~= high or low >= high or low == -math.huge or high == math.huge then
        fault.raise("histogram", "the range from %g to %g is not possible", low, high)
      end
      edges = edges or sc.linspace(low, high, bins + 1, { dtype = x.dtype })
    end
    local hist = core.ops.histogram_count(x, edges, weight)
    if density then
      local n = edges:size(1)
      hist = hist / hist:sum() / (edges:narrow(1, 2, n - 1) - edges:narrow(1, 1, n - 1))
    end
    return hist, edges
  end, true)

-- ---- covariance

define(sc, "cov(x, correction: int = 1, fweights: tensor?, aweights: tensor?)",
  "Covariance of variables, one a row, over observations, one a column. fweights: how often each observation counts; aweights: how much.",
  function(x, correction, fweights, aweights)
    if x:dim() > 2 then fault.raise("cov", "argument 1 (x): expected at most two dimensions, got %d", x:dim()) end
    if x.dtype == "bool" then fault.raise("cov", "argument 1 (x): bool is not supported") end
    local rows = x:dim() < 2 and x:reshape { 1, -1 } or x
    local n = rows:size(2)
    local w
    if fweights then
      if fweights:dim() > 1 then fault.raise("cov", "argument fweights: expected at most one dimension, got %d", fweights:dim()) end
      if fweights.dtype:find("float") then fault.raise("cov", "argument fweights: expected integers, got %s", fweights.dtype) end
      if fweights:numel() ~= n then
        fault.raise("cov", "argument fweights: expected %d, one per observation, got %d", n, fweights:numel())
      end
      w = core.ops.within(fweights:reshape(-1), 0, nil, "argument fweights")
    end
    if aweights then
      if aweights:dim() > 1 then fault.raise("cov", "argument aweights: expected at most one dimension, got %d", aweights:dim()) end
      if not aweights.dtype:find("float") then fault.raise("cov", "argument aweights: expected floating point, got %s", aweights.dtype) end
      if aweights:numel() ~= n then
        fault.raise("cov", "argument aweights: expected %d, one per observation, got %d", n, aweights:numel())
      end
      aweights = core.ops.within(aweights:reshape(-1), 0, nil, "argument aweights")
      w = w and w * aweights or aweights
    end
    local total = w and w:sum() or n
    local mean = w and (rows * w):sum(2, true) / total or (rows:sum(2, true) / total)
    -- the divisor: n - correction, or for weights total - correction * sum(w * aweights) / total
    local divisor
    if not w then divisor = n - correction
    elseif not aweights or correction == 0 then divisor = total - correction
    else divisor = total - (w * aweights):sum() * correction / total end
    divisor = is_tensor(divisor) and divisor:to(mean.dtype):clamp_min(0) or math.max(divisor, 0)
    local off = rows - mean
    local c = off:matmul((w and off * w or off):transpose(1, 2)) / divisor
    return rows:size(1) == 1 and c:reshape {} or c
  end, true)

define(sc, "corrcoef(x)", "Correlation coefficients of variables, one a row, over observations, one a column.", function(x)
  local c = sc.cov(x)
  if c:dim() == 0 then return c / c end
  local d = c:diagonal():sqrt()
  return (c / d:unsqueeze(2) / d:unsqueeze(1)):clamp(-1, 1)
end, true)

-- ---- differences and integrals

define(sc, "diff(x, n: int = 1, dim: dim = -1, prepend: tensor?, append: tensor?)",
  "The n-th differences of neighbours along dim, after prepend and append were put around x.", function(x, n, dim, prepend, append)
    if x:dim() == 0 then fault.raise("diff", "argument 1 (x): expected at least one dimension") end
    if n < 0 then fault.raise("diff", "argument 2 (n): expected 0 or more, got %d", n) end
    local d = place("diff", x, dim)
    if n == 0 then return x:clone() end
    local parts = {}
    if prepend then parts[1] = prepend end
    parts[#parts + 1] = x
    if append then parts[#parts + 1] = append end
    if #parts > 1 then x = sc.cat(parts, d) end
    for _ = 1, math.min(n, x:size(d)) do
      local size = x:size(d)
      if size == 0 then break end
      local after, before = x:narrow(d, size > 1 and 2 or 1, size - 1), x:narrow(d, 1, size - 1)
      if x.dtype == "bool" then x = after:logical_xor(before) else x = after - before end
    end
    return x
  end, true)

-- Half the sum of neighbours, times the step between them.
local function panels(what, y, x, dx, dim)
  if y:dim() == 0 then fault.raise(what, "argument 1 (y): expected at least one dimension") end
  if x and dx then fault.raise(what, "x and dx are two ways to say the same: give one of them") end
  if y.dtype == "bool" then fault.raise(what, "argument 1 (y): bool is not supported") end
  local d = place(what, y, dim)
  local n = y:size(d)
  local first = n == 0 and 0 or n - 1
  local a, b = y:narrow(d, math.min(2, math.max(n, 1)), first), y:narrow(d, 1, first)
  if not x then return (a + b) * ((dx or 1) / 2), d end
  local step
  if x:dim() == 1 and y:dim() > 1 then
    if x:size(1) ~= n then fault.raise(what, "argument 2 (x): expected %d positions, got %d", n, x:size(1)) end
    local shape = {}
    for i = 1, y:dim() do shape[i] = i == d and n or 1 end
    x = x:reshape(shape)
  end
  local xd = x:dim() == y:dim() and d or place(what, x, dim)
  local m = x:size(xd)
  step = x:narrow(xd, math.min(2, math.max(m, 1)), math.max(m - 1, 0)) - x:narrow(xd, 1, math.max(m - 1, 0))
  return (a + b) * step / 2, d
end

-- y, then x (a tensor) or dx (a number) in second place, as in PyTorch's two forms.
local function integral(name, help, finish)
  local plain = define(sc, name .. "(y, x: any?, dx: float?, dim: dim = -1)", help, function(y, x, dx, dim)
    if x ~= nil and not is_tensor(x) then
      if type(x) ~= "number" then
        fault.raise(name, "argument 2 (x): expected a tensor of positions or the step, got %s", fault.describe(x))
      end
      x, dx = nil, x
    end
    local p, d = panels(name, y, x, dx, dim)
    return finish(p, d)
  end)
  -- trapezoid(y, x, dim): the number after a tensor is the dimension
  local function read(y, x, ...)
    if is_tensor(x) and type((...)) == "number" then return plain(y, x, nil, ...) end
    if x == nil and select("#", ...) == 0 then return plain(y) end
    return plain(y, x, ...)
  end
  rawset(sc, name, read)
end

local TRAPEZOID = "The integral of y along dim by the trapezoid rule, over positions x or with the step dx (1)."
local function total(p, d) return p:sum(d) end
integral("trapezoid", TRAPEZOID, total)
integral("trapz", TRAPEZOID, total)
integral("cumulative_trapezoid", "The running integral of y along dim by the trapezoid rule, over positions x or with the step dx (1).",
  function(p, d) return p:cumsum(d) end)

-- ---- norms of differences and of slices

define(sc, "dist(x, other, p: number = 2)", "The p-norm of x - other.", function(x, other, p) return (x - other):norm(p) end, true)

define(sc, "renorm(x, p: number, dim: dim, maxnorm: number)",
  "x with every slice along dim whose p-norm exceeds maxnorm scaled down to it.", function(x, p, dim, maxnorm)
    if x:dim() < 2 then fault.raise("renorm", "argument 1 (x): expected at least two dimensions, got %d", x:dim()) end
    if p <= 0 then fault.raise("renorm", "argument 2 (p): expected more than 0, got %g", p) end
    if maxnorm < 0 then fault.raise("renorm", "argument 4 (maxnorm): expected 0 or more, got %g", maxnorm) end
    local d = place("renorm", x, dim)
    local others = {}
    for i = 1, x:dim() do if i ~= d then others[#others + 1] = i end end
    local norm = sc.linalg.vector_norm(x, p, others, true)
    return x * sc.where(norm:gt(maxnorm), maxnorm / (norm + 1e-7), 1.0)
  end, true)
