--- Finite differences and the reordering that goes with spectra.
local sc = require "sconce"
local core = require "sconce.core"
local define = require "sconce.define"
local fault = require "sconce.fault"

-- Elements first … last of dim d; negative counts from the end.
local function part(x, d, first, last)
  local n = x:size(d)
  if first < 0 then first = n + 1 + first end
  if last < 0 then last = n + 1 + last end
  return x:narrow(d, first, last - first + 1)
end

-- Weights for one line of positions, shaped so that they broadcast along dim d of x.
local function along(w, x, d)
  local shape = {}
  for i = 1, x:dim() do shape[i] = i == d and w:numel() or 1 end
  return w:reshape(shape)
end

-- Evenly spaced by h: second order inside, one-sided at the edges.
local function even(x, d, h, order)
  local inner = (part(x, d, 3, -1) - part(x, d, 1, -3)) / (2.0 * h)
  local first, last
  if order == 1 then
    first, last = (part(x, d, 2, 2) - part(x, d, 1, 1)) / h, (part(x, d, -1, -1) - part(x, d, -2, -2)) / h
  else
    first = (part(x, d, 1, 1) * -1.5 + part(x, d, 2, 2) * 2.0 + part(x, d, 3, 3) * -0.5) / h
    last = (part(x, d, -3, -3) * 0.5 + part(x, d, -2, -2) * -2.0 + part(x, d, -1, -1) * 1.5) / h
  end
  return sc.cat({ first, inner, last }, d)
end

-- At given positions: the parabola through three neighbours.
local function uneven(x, d, at, order)
  local n = at:numel()
  local h = part(at, 1, 2, -1) - part(at, 1, 1, -2)
  local function three(a, b, c, first)
    return along(a, x, d) * part(x, d, first, first + a:numel() - 1) + along(b, x, d) * part(x, d, first + 1, first + a:numel())
      + along(c, x, d) * part(x, d, first + 2, first + a:numel() + 1)
  end
  local h1, h2 = part(h, 1, 1, -2), part(h, 1, 2, -1)
  local inner = three(-h2 / (h1 * (h1 + h2)), (h2 - h1) / (h1 * h2), h1 / (h2 * (h1 + h2)), 1)
  local first, last
  if order == 1 then
    first = (part(x, d, 2, 2) - part(x, d, 1, 1)) / along(part(h, 1, 1, 1), x, d)
    last = (part(x, d, -1, -1) - part(x, d, -2, -2)) / along(part(h, 1, -1, -1), x, d)
  else
    local a, b = part(h, 1, 1, 1), part(h, 1, 2, 2)
    first = three((a * 2 + b) / (a * (a + b)) * -1, (a + b) / (a * b), a / (b * (a + b)) * -1, 1)
    a, b = part(h, 1, -2, -2), part(h, 1, -1, -1)
    last = three(b / (a * (a + b)), (a + b) / (a * b) * -1, (b * 2 + a) / (b * (a + b)), n - 2)
  end
  return sc.cat({ first, inner, last }, d)
end

local function dims_of(x, dim)
  local n, dims, seen = x:dim(), {}, {}
  if dim == nil then
    for i = 1, n do dims[i] = i end
    return dims
  end
  for i, d in ipairs(type(dim) == "table" and dim or { dim }) do
    if math.type(d) ~= "integer" or d == 0 or d > n or d < -n then
      fault.raise("gradient", "argument dim: dimension %s is out of range for %d dimensions", tostring(d), n)
    end
    dims[i] = d < 0 and d + n + 1 or d
    if seen[dims[i]] then fault.raise("gradient", "argument dim: dimension %d is named twice", dims[i]) end
    seen[dims[i]] = true
  end
  return dims
end

define(sc, "gradient(x, spacing: any?, dim: any?, edge_order: int = 1)",
  "The gradient of x as a function on a grid, a list with a tensor for each dim: central differences inside, one-sided at the edges.\n" ..
  "spacing: a number, a number per dim, or the positions along each dim as tensors.\nErrors: a dim has at most edge_order elements.",
  function(x, spacing, dim, edge_order)
    if edge_order ~= 1 and edge_order ~= 2 then fault.raise("gradient", "argument edge_order: expected 1 or 2, got %d", edge_order) end
    local dims = dims_of(x, dim)
    local each = type(spacing) == "table"
    if each and #spacing ~= #dims then
      fault.raise("gradient", "argument spacing: expected one for each of %d dimensions, got %d", #dims, #spacing)
    end
    local out = {}
    for i, d in ipairs(dims) do
      if x:size(d) < edge_order + 1 then
        fault.raise("gradient", "dimension %d has %d elements, at least %d are needed", d, x:size(d), edge_order + 1)
      end
      local h = each and spacing[i] or spacing or 1.0
      if type(h) ~= "number" and not core.is_tensor(h) then
        fault.raise("gradient", "argument spacing: expected numbers or tensors, got %s", fault.describe(h))
      end
      if core.is_tensor(h) and h:dim() > 0 then
        if h:numel() ~= x:size(d) then
          fault.raise("gradient", "argument spacing: dimension %d has %d elements but %d positions", d, x:size(d), h:numel())
        end
        out[i] = uneven(x, d, h, edge_order)
      else
        out[i] = even(x, d, h, edge_order)
      end
    end
    return out
  end)

-- Rolls every dim named (all when none is) by a share of its size.
local function shifted(x, dim, share)
  local dims, by = {}, {}
  if dim == nil or #dim == 0 then
    dim = {}
    for i = 1, x:dim() do dim[i] = i end
  end
  for i, d in ipairs(dim) do dims[i], by[i] = d, share(x:size(d)) end
  if #dims == 0 then return x:clone() end
  return x:roll(by, dims)
end

define(sc.fft, "fft.fftshift(x, dim: dim[]?)", "x with the zero frequency moved to the middle: each dim rolled by half its size.",
  function(x, dim) return shifted(x, dim, function(n) return n // 2 end) end)

define(sc.fft, "fft.ifftshift(x, dim: dim[]?)", "Undoes fftshift.",
  function(x, dim) return shifted(x, dim, function(n) return (n + 1) // 2 end) end)
