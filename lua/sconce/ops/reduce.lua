--- Reductions in Lua: the forms that are told apart by the type of an argument, and what is a line over other ops.
local sc = require "sconce"
local core = require "sconce.core"
local define = require "sconce.define"
local fault = require "sconce.fault"

local F = sc.functional

local function is_tensor(v) return type(v) == "userdata" and core.is_tensor(v) end

local function install(name, fn, method)
  rawset(sc, name, fn)
  if method then core.methods[name] = fn end
end

-- max(x), max(x, dim), max(x, other): the type of the second argument decides.
for name, pairwise in pairs { max = "maximum", min = "minimum" } do
  local reduce = core.ops[name]
  install(name, function(x, a, ...)
    if is_tensor(a) then return sc[pairwise](x, a, ...) end
    if type(a) == "table" and is_tensor(a.other) then return sc[pairwise](x, a.other) end
    if a == nil and select("#", ...) == 0 then return reduce(x) end
    return reduce(x, a, ...)
  end, true)
end

-- var(x, false): a boolean in the place of dim is `unbiased`.
for _, name in ipairs { "var", "std", "var_mean", "std_mean" } do
  local reduce = core.ops[name]
  install(name, function(x, a, ...)
    if type(a) == "boolean" then return reduce(x, nil, a, ...) end
    if a == nil then
      if select("#", ...) == 0 then return reduce(x) end
      return reduce(x, nil, ...)
    end
    return reduce(x, a, ...)
  end, not name:find("_mean"))
end

local plain_norm = define(sc, "norm(x, p: number = 2, dim: dim[]?, keepdim: bool = false, dtype: dtype?)",
  "A vector norm over all elements or over dims; p may also be \"fro\" (the same as 2) or \"nuc\" (the sum of singular values).",
  function(x, p, dim, keepdim, dtype)
    -- the largest of nothing is 0 here, as in PyTorch's norm; its vector_norm refuses
    if (p == math.huge or p == -math.huge) and not core.is_symbolic(x) and x:numel() == 0 then p = 1 end
    return sc.linalg.vector_norm(x, p, dim, keepdim, dtype)
  end)

install("norm", function(x, p, ...)
  local named = type(p) == "table" and p or nil
  local kind = named and named.p or p
  if type(kind) ~= "string" then return plain_norm(x, p == nil and 2 or p, ...) end
  if kind ~= "fro" and kind ~= "nuc" then fault.raise("norm", 'argument 2 (p): expected a number, "fro" or "nuc", got "%s"', kind) end
  local options = select("#", ...) > 0 and select(-1, ...)
  options = named or (type(options) == "table" and next(options) ~= nil and #options == 0 and options) or {}
  local dim, keepdim, dtype
  if not named then dim, keepdim, dtype = ... end
  if type(dim) == "table" and #dim == 0 then dim = nil end
  if type(keepdim) == "table" then keepdim = nil end
  dim, dtype = dim or options.dim, type(dtype) ~= "table" and dtype or options.dtype
  if keepdim == nil then keepdim = options.keepdim or false end
  if kind == "fro" then return plain_norm(x, 2, dim, keepdim, dtype) end
  if dtype then x = x:to(dtype) end
  return sc.linalg.matrix_norm(x, "nuc", dim or { -2, -1 }, keepdim)
end, true)

define(sc, "nanmean(x, dim: dim[]?, keepdim: bool = false, dtype: dtype?)", "Mean of what is not NaN.", function(x, dim, keepdim, dtype)
  if not x.dtype:find("float") then fault.raise("nanmean", "argument 1 (x): expected a floating-point tensor, got %s", x.dtype) end
  return x:nansum(dim, keepdim, dtype) / x:eq(x):sum(dim, keepdim)
end, true)

-- PyTorch's second names.
for _, name in ipairs { "softmax", "log_softmax", "logsumexp" } do sc.special[name] = sc[name] end

define(F, "nn.functional.normalize(x, p: number = 2, dim: dim[] = -1, eps: float = 1e-12)",
  "x / max(norm(x, p), eps) along dim.", function(x, p, dim, eps)
    return x / x:norm(p, dim, true):clamp_min(eps):expand_as(x)
  end)
