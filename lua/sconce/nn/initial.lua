--- nn.init: filling parameters. Each works in place without being recorded and returns the tensor. Fans: a weight of shape
--- [out, in, …kernel] takes in * kernel inputs (fan_in) and feeds out * kernel outputs (fan_out).
local sc = require "sconce"
local fault = require "sconce.fault"
local core = sc.core

local init = {}

local function quiet(t, fn)
  local _ <close> = core.grad_block(false)
  fn()
  return t
end

local read_uniform = fault.reader("uniform_", { { "a:number", 0 }, { "b:number", 1 }, "generator?" })
--- Uniform in [a, b).
function init.uniform_(t, ...)
  fault.expect("uniform_", 1, "tensor", t)
  local o = read_uniform(...)
  return quiet(t, function() t:uniform_(o.a, o.b, o.generator) end)
end

local read_normal = fault.reader("normal_", { { "mean:number", 0 }, { "std:number", 1 }, "generator?" })
--- Normal numbers.
function init.normal_(t, ...)
  fault.expect("normal_", 1, "tensor", t)
  local o = read_normal(...)
  return quiet(t, function() t:normal_(o.mean, o.std, o.generator) end)
end

--- The same value everywhere.
function init.constant_(t, v)
  fault.expect("constant_", 1, "tensor", t)
  if type(v) ~= "number" then fault.raise("constant_", "argument 2 (val): expected a number, got %s", fault.describe(v)) end
  return quiet(t, function() t:fill_(v) end)
end
--- Ones everywhere.
function init.ones_(t) return init.constant_(t, 1) end
--- Zeros everywhere.
function init.zeros_(t) return init.constant_(t, 0) end

--- Ones on the diagonal of a matrix, zeros elsewhere.
function init.eye_(t)
  fault.expect("eye_", 1, "tensor", t)
  if t:dim() ~= 2 then fault.raise("eye_", "expected 2 dimensions, got %d", t:dim()) end
  return quiet(t, function() t:copy_(sc.eye(t:size(1), t:size(2), { dtype = t.dtype })) end)
end

local read_dirac = fault.reader("dirac_", { { "groups:int", 1 } })
--- A convolution's weight that passes its input on.
function init.dirac_(t, ...)
  fault.expect("dirac_", 1, "tensor", t)
  local groups = read_dirac(...).groups
  local n = t:dim()
  if n < 3 or n > 5 then fault.raise("dirac_", "expected 3 to 5 dimensions, got %d", n) end
  local size = t.shape
  if groups < 1 or size[1] % groups ~= 0 then fault.raise("dirac_", "groups: %d does not divide the first size, %d", groups, size[1]) end
  local per = size[1] // groups
  return quiet(t, function()
    t:fill_(0)
    for g = 0, groups - 1 do
      for d = 1, math.min(per, size[2]) do
        local at = { g * per + d, d }
        for i = 3, n do at[i] = size[i] // 2 + 1 end
        t[at] = 1.0
      end
    end
  end)
end

--- fan_in, fan_out of a weight.
function init.calculate_fan_in_and_fan_out(t)
  fault.expect("calculate_fan_in_and_fan_out", 1, "tensor", t)
  local size = t.shape
  if #size < 2 then fault.raise("init", "fans need a tensor of at least 2 dimensions, got shape {%s}", table.concat(size, ", ")) end
  local field = 1
  for i = 3, #size do field = field * size[i] end
  return size[2] * field, size[1] * field
end

local GAIN = { linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, conv_transpose1d = 1, conv_transpose2d = 1, conv_transpose3d = 1, sigmoid =
  1,
  tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4 }

--- The factor that keeps variances through a non-linearity.
---@param nonlinearity string
---@param param? number  # of leaky_relu: the negative slope, 0.01 when not given
function init.calculate_gain(nonlinearity, param)
  if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (param or 0.01) ^ 2)) end
  return GAIN[nonlinearity] or fault.raise("calculate_gain", "unknown nonlinearity %s", fault.describe(nonlinearity))
end

local read_gain = fault.reader("xavier", { { "gain:number", 1 }, "generator?" })
--- Uniform in ±gain √(6 / (fan_in + fan_out)).
--- Source: Glorot and Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks".
function init.xavier_uniform_(t, ...)
  fault.expect("xavier_uniform_", 1, "tensor", t)
  local o, fan_in, fan_out = read_gain(...), init.calculate_fan_in_and_fan_out(t)
  local a = o.gain * math.sqrt(6 / (fan_in + fan_out))
  return init.uniform_(t, -a, a, o.generator)
end
--- Normal, with deviation gain √(2 / (fan_in + fan_out)). Source: as of xavier_uniform_.
function init.xavier_normal_(t, ...)
  fault.expect("xavier_normal_", 1, "tensor", t)
  local o, fan_in, fan_out = read_gain(...), init.calculate_fan_in_and_fan_out(t)
  return init.normal_(t, 0, o.gain * math.sqrt(2 / (fan_in + fan_out)), o.generator)
end

local read_kaiming = fault.reader("kaiming", { { "a:number", 0 }, { "mode:string", "fan_in" }, { "nonlinearity:string", "leaky_relu" },
  "generator?" })
local function kaiming_std(t, o)
  local fan_in, fan_out = init.calculate_fan_in_and_fan_out(t)
  if o.mode ~= "fan_in" and o.mode ~= "fan_out" then fault.raise("kaiming", "mode: expected \"fan_in\" or \"fan_out\", got %q", o.mode) end
  return init.calculate_gain(o.nonlinearity, o.a) / math.sqrt(o.mode == "fan_in" and fan_in or fan_out)
end
--- Uniform in ±gain √(3 / fan), where gain belongs to the nonlinearity (a: the slope of leaky_relu) and fan to the mode.
--- Source: He et al. 2015, "Delving deep into rectifiers".
function init.kaiming_uniform_(t, ...)
  fault.expect("kaiming_uniform_", 1, "tensor", t)
  local o = read_kaiming(...)
  if t:numel() == 0 then return t end
  local bound = math.sqrt(3) * kaiming_std(t, o)
  return init.uniform_(t, -bound, bound, o.generator)
end
--- Normal, with deviation gain / √fan. Source: as of kaiming_uniform_.
function init.kaiming_normal_(t, ...)
  fault.expect("kaiming_normal_", 1, "tensor", t)
  local o = read_kaiming(...)
  if t:numel() == 0 then return t end
  return init.normal_(t, 0, kaiming_std(t, o), o.generator)
end

local read_trunc = fault.reader("trunc_normal_", { { "mean:number", 0 }, { "std:number", 1 }, { "a:number", -2 }, { "b:number", 2 },
  "generator?" })
--- A normal distribution cut off outside [a, b]: uniform numbers through the inverse of its distribution function.
function init.trunc_normal_(t, ...)
  fault.expect("trunc_normal_", 1, "tensor", t)
  local o = read_trunc(...)
  local function below(x) return 0.5 + 0.5 * sc.tensor((x - o.mean) / o.std / math.sqrt(2), { dtype = "float64" }):erf():item() end
  local low, high = below(o.a), below(o.b)
  return quiet(t, function()
    t:uniform_(2 * low - 1, 2 * high - 1, o.generator)
    t:erfinv_():mul_(o.std * math.sqrt(2)):add_(o.mean):clamp_(o.a, o.b)
  end)
end

--- Rows (or columns, whichever are fewer) orthonormal. Source: Saxe et al. 2013, "Exact solutions to the nonlinear dynamics of learning".
function init.orthogonal_(t, ...)
  fault.expect("orthogonal_", 1, "tensor", t)
  local o = read_gain(...)
  local size = t.shape
  if #size < 2 then fault.raise("orthogonal_", "expected at least 2 dimensions, got %d", #size) end
  if t:numel() == 0 then return t end
  return quiet(t, function()
    local rows, cols = size[1], t:numel() // size[1]
    local flat = sc.randn({ rows, cols }, { generator = o.generator, dtype = t.dtype == "float64" and "float64" or "float32" })
    if rows < cols then flat = flat:t() end
    local q, r = sc.linalg.qr(flat:contiguous())
    q = q * r:diagonal():sign()
    if rows < cols then q = q:t() end
    t:copy_(q:reshape(size)):mul_(o.gain)
  end)
end

local read_sparse = fault.reader("sparse_", { "sparsity:number", { "std:number", 0.01 }, "generator?" })
--- Normal numbers with a fraction of each column set to 0. Source: Martens 2010, "Deep learning via Hessian-free optimization".
function init.sparse_(t, ...)
  fault.expect("sparse_", 1, "tensor", t)
  local o = read_sparse(...)
  if t:dim() ~= 2 then fault.raise("sparse_", "expected 2 dimensions, got %d", t:dim()) end
  return quiet(t, function()
    t:normal_(0, o.std, o.generator)
    local rows = t:size(1)
    local none = math.ceil(o.sparsity * rows)
    for col = 1, t:size(2) do
      local order = sc.randperm(rows, { dtype = "int64", generator = o.generator })
      if none > 0 then t[{ order:narrow(1, 1, none), col }] = 0.0 end
    end
  end)
end

return init
