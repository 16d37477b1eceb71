-- A call that is accepted, for every op of the table and every op written in Lua: simple inputs are tried until one set of arguments is
-- accepted, and what they do not reach is written out. For specs that call all ops with something changed.
local sc = require "sconce"
local core = require "sconce.core"
local define = require "sconce.define"

local calls = {}

local function matrix() return sc.tensor { { 1.5, 0.25, 0.5 }, { 0.125, 1.25, 0.75 }, { 0.5, 0.25, 2.0 } } end
local function vector() return sc.tensor { 0.25, 0.5, 0.75 } end
local function images() return sc.arange(72):to("float32"):reshape { 1, 2, 6, 6 } / 72.0 end
local function kernel() return sc.arange(36):to("float32"):reshape { 2, 2, 3, 3 } / 36.0 end
local function integers() return sc.tensor { { 1, 2, 3 }, { 3, 2, 1 }, { 2, 1, 3 } } end
local function truths() return sc.tensor { { true, false, true }, { false, true, true }, { true, true, false } } end
local function labels() return sc.tensor { 1, 2, 3 } end

--- n numbers between -0.5 and 0.5 in a shape
local function some(...)
  local n = 1
  for _, d in ipairs { ... } do n = n * d end
  return (sc.arange(n):to("float32") / (n * 1.0) - 0.5):reshape { ... }
end

local SETS = {
  { matrix, matrix, matrix, matrix, matrix, matrix }, { images, kernel }, { matrix, integers, matrix }, { integers, integers, integers },
  { truths, matrix, matrix }, { truths, truths, truths }, { matrix, truths, matrix }, { vector, vector, vector },
  { matrix, vector, vector, vector, vector }, { images }, { matrix, vector, matrix }, { matrix, labels, matrix },
  { vector, matrix, vector }, { function() return some(2, 3, 3) end, function() return some(2, 3, 3) end, function() return some(2, 3, 3) end },
}
local BY_TYPE = { int = 2, number = 0.5, float = 0.5, bool = false, dim = 1, index = 1, dtype = "float64", str = "mean" }

-- Arguments that the sets do not make.
local function rnn(gates, state, ...)
  local more = { ... }
  return function()
    local args = { some(3, 2, 4) }
    for _, s in ipairs(state) do args[#args + 1] = some(table.unpack(s)) end
    args[#args + 1] = some(gates * 3, 4)
    args[#args + 1] = some(gates * 3, 3)
    for _, m in ipairs(more) do args[#args + 1] = m() end
    return args
  end
end
local function gate_bias(n) return function() return some(n * 3) end end

local WRITTEN = {
  addbmm = function() return { matrix(), some(2, 3, 3), some(2, 3, 3) } end,
  addmv = function() return { vector(), matrix(), vector() } end,
  arange = function() return { 1, 7, 2 } end,
  baddbmm = function() return { some(2, 3, 3), some(2, 3, 3), some(2, 3, 3) } end,
  bincount = function() return { labels() } end,
  bmm = function() return { some(2, 3, 3), some(2, 3, 3) } end,
  clamp = function() return { matrix(), 0.25, 1.0 } end,
  fill = function() return { matrix(), 2.0 } end,
  index_fill = function() return { matrix(), 1, labels(), 2.0 } end,
  linspace = function() return { 0.0, 1.0, 5 } end,
  logspace = function() return { 0.0, 1.0, 5 } end,
  masked_fill = function() return { matrix(), truths(), 2.0 } end,
  range = function() return { 1, 5 } end,
  roll = function() return { matrix(), 1, 1 } end,
  unflatten = function() return { some(4, 3), 1, { 2, 2 } } end,
  view = function() return { matrix(), { 9 } } end,
  ["nn.functional.adaptive_avg_pool1d"] = function() return { some(1, 2, 6), 2 } end,
  ["nn.functional.adaptive_avg_pool2d"] = function() return { images(), 2 } end,
  ["nn.functional.adaptive_avg_pool3d"] = function() return { some(1, 2, 4, 4, 4), 2 } end,
  ["nn.functional.adaptive_max_pool1d"] = function() return { some(1, 2, 6), 2 } end,
  ["nn.functional.adaptive_max_pool2d"] = function() return { images(), 2 } end,
  ["nn.functional.adaptive_max_pool3d"] = function() return { some(1, 2, 4, 4, 4), 2 } end,
  ["nn.functional.affine_grid"] = function() return { some(1, 2, 3), { 1, 1, 4, 4 } } end,
  ["nn.functional.avg_pool1d"] = function() return { some(1, 2, 6), 2 } end,
  ["nn.functional.avg_pool3d"] = function() return { some(1, 2, 4, 4, 4), 2 } end,
  ["nn.functional.batch_norm"] = function() return { some(4, 3), sc.zeros { 3 }, sc.ones { 3 } } end,
  ["nn.functional.conv1d"] = function() return { some(1, 2, 6), some(2, 2, 3), some(2) } end,
  ["nn.functional.conv3d"] = function() return { some(1, 2, 4, 4, 4), some(2, 2, 2, 2, 2) } end,
  ["nn.functional.conv_transpose1d"] = function() return { some(1, 2, 6), some(2, 2, 3) } end,
  ["nn.functional.conv_transpose3d"] = function() return { some(1, 2, 3, 3, 3), some(2, 2, 2, 2, 2) } end,
  ["nn.functional.ctc_loss"] = function()
    return { sc.log_softmax(some(5, 2, 4), 3), sc.tensor { { 2, 3 }, { 4, 2 } }, sc.tensor { 5, 5 }, sc.tensor { 2, 2 } }
  end,
  ["nn.functional.fold"] = function() return { some(1, 8, 9), { 4, 4 }, { 2, 2 } } end,
  ["nn.functional.grid_sample"] = function() return { images(), some(1, 3, 3, 2) } end,
  ["nn.functional.interpolate"] = function() return { images(), { 3, 4 } } end,
  ["nn.functional.layer_norm"] = function() return { matrix(), { 3 }, vector(), vector() } end,
  ["nn.functional.max_pool1d"] = function() return { some(1, 2, 6), 2 } end,
  ["nn.functional.max_pool3d"] = function() return { some(1, 2, 4, 4, 4), 2 } end,
  ["nn.functional.max_unpool1d"] = function() return { some(1, 1, 2), sc.tensor { { { 1, 4 } } }, 2 } end,
  ["nn.functional.max_unpool2d"] = function() return { some(1, 1, 1, 2), sc.tensor { { { { 1, 4 } } } }, 2 } end,
  ["nn.functional.max_unpool3d"] = function() return { some(1, 1, 1, 1, 2), sc.tensor { { { { { 1, 4 } } } } }, 2 } end,
  ["nn.functional.upsample_bilinear"] = function() return { images(), { 3, 4 } } end,
  ["nn.functional.upsample_nearest"] = function() return { images(), { 3, 4 } } end,
  ["nn.functional.gru_layer"] = rnn(3, { { 2, 3 } }, gate_bias(3), gate_bias(3)),
  ["nn.functional.lstm_layer"] = rnn(4, { { 2, 3 }, { 2, 3 } }, gate_bias(4), gate_bias(4)),
  ["nn.functional.rnn_relu_layer"] = rnn(1, { { 2, 3 } }, gate_bias(1), gate_bias(1)),
  ["nn.functional.rnn_tanh_layer"] = rnn(1, { { 2, 3 } }, gate_bias(1), gate_bias(1)),
  ["nn.functional.gru_cell"] = function() return { some(2, 4), some(2, 3), some(9, 4), some(9, 3), some(9), some(9) } end,
  ["nn.functional.lstm_cell"] = function() return { some(2, 4), some(2, 3), some(2, 3), some(12, 4), some(12, 3), some(12), some(12) } end,
  ["nn.functional.rnn_relu_cell"] = function() return { some(2, 4), some(2, 3), some(3, 4), some(3, 3), some(3), some(3) } end,
  ["nn.functional.rnn_tanh_cell"] = function() return { some(2, 4), some(2, 3), some(3, 4), some(3, 3), some(3), some(3) } end,
  ["nn.functional.bilinear"] = function() return { some(2, 3), some(2, 4), some(5, 3, 4), some(5) } end,
  ["nn.functional.lp_pool1d"] = function() return { some(1, 2, 6), 2, 2 } end,
  ["nn.functional.lp_pool2d"] = function() return { images(), 2, 2 } end,
  ["nn.functional.rms_norm"] = function() return { matrix(), { 3 }, vector() } end,
  ["linalg.lu_solve"] = function()
    local lu, pivots = sc.linalg.lu_factor(matrix())
    return { lu, pivots, matrix() }
  end,
  lu_solve = function()
    local lu, pivots = sc.linalg.lu_factor(matrix())
    return { matrix(), lu, pivots }
  end,
  lu_unpack = function() return { sc.linalg.lu_factor(matrix()) } end,
  embedding_bag = function() return { labels(), matrix(), sc.tensor { 1, 2 } } end,
  index_put = function() return { matrix(), { labels() }, 2.0 } end,
  index_put_ = function() return { matrix(), { labels() }, 2.0 } end,
  einsum = function() return { "ij,jk->ik", matrix(), matrix() } end,
  quantile = function() return { matrix(), 0.5, 1 } end,
  nanquantile = function() return { matrix(), 0.5, 1 } end,
  histogram = function() return { vector(), 4 } end,
  hsplit = function() return { matrix(), 3 } end,
  vsplit = function() return { matrix(), 3 } end,
  dsplit = function() return { some(2, 2, 4), 2 } end,
  pixel_shuffle = function() return { some(1, 4, 2, 2), 2 } end,
  pixel_unshuffle = function() return { images(), 2 } end,
  ["linalg.tensorinv"] = function() return { sc.eye(6):reshape { 2, 3, 6 }, 2 } end,
  ["linalg.tensorsolve"] = function() return { sc.eye(6):reshape { 2, 3, 6 }, some(2, 3) } end,
  ["nn.functional.cosine_embedding_loss"] = function() return { matrix(), matrix(), sc.tensor { 1, -1, 1 } } end,
  tensordot = function() return { matrix(), matrix(), 1 } end,
  repeat_interleave = function() return { matrix(), 2, 1 } end,
  broadcast_shapes = function() return { { 3, 1 }, { 1, 4 } } end,
  tensor_split = function() return { matrix(), 2, 1 } end,
  split = function() return { matrix(), 2, 1 } end,
  split_with_sizes = function() return { matrix(), { 1, 2 }, 1 } end,
  chunk = function() return { matrix(), 2, 1 } end,
  as_strided = function() return { matrix(), { 2, 2 }, { 3, 1 }, 0 } end,
}
for _, name in ipairs { "vstack", "hstack", "dstack", "row_stack", "column_stack", "linalg.multi_dot", "chain_matmul" } do
  WRITTEN[name] = function() return { { matrix(), matrix() } } end
end
for _, name in ipairs { "broadcast_tensors", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "meshgrid", "cartesian_prod" } do
  WRITTEN[name] = function() return { vector(), vector() } end
end

local function is_tensor_type(type) return type:find("^tensor") and not type:find("[", 1, true) end

--- The parameters of a signature: { name =, type =, given = whether a value must be given }.
function calls.parameters(signature)
  local list = {}
  for part in (signature:match("%((.*)%)") .. ","):gmatch("%s*([^,%[]*%[?[^,%]]*%]?[^,]*),") do
    local name, type, preset = part:match("^([%w_]+)%s*:?%s*([^=]*)=?%s*(.*)$")
    if name then
      type = type:gsub("%s+$", "")
      if type == "" then type = "tensor" end
      list[#list + 1] = { name = name, type = type, given = preset == "" and not type:find("?", 1, true) }
    end
  end
  return list
end

--- Values for the parameters, tensors from the set; nil: the set does not fit.
local function arguments(params, set)
  local args, k = { n = #params }, 0
  for i, p in ipairs(params) do
    local type = p.type:gsub("%?", "")
    if is_tensor_type(p.type) then
      k = k + 1
      if p.given then
        if not set[k] then return nil end
        args[i] = set[k]()
      end
    elseif type == "tensor[]" then
      args[i] = { set[1](), set[1]() }
    elseif p.given then
      if type == "shape" then args[i] = { 3, 3 }
      elseif type:find("%[") then args[i] = type:find("dim") and { 1 } or { 1, 1 }
      else args[i] = BY_TYPE[type] end
      if args[i] == nil then return nil end
    end
  end
  return args
end

--- The tensors among the arguments, those of lists too.
function calls.tensors(args)
  local list = {}
  for i = 1, args.n do
    local a = args[i]
    if core.is_tensor(a) then list[#list + 1] = a
    elseif type(a) == "table" and core.is_tensor(a[1]) then for _, t in ipairs(a) do list[#list + 1] = t end end
  end
  return list
end

local function signature_of(name)
  local info = define.info[name] or core.op_info(name)
  return info.signature
end

--- The op as a function: of the C table or written in Lua.
function calls.op(name)
  if core.ops[name] or core.methods[name] then return core.ops[name] or core.methods[name] end
  local into = sc
  for part in name:gsub("^nn%.functional%.", "functional."):gmatch("[^.]+") do into = into[part] end
  return into
end

--- Names of all ops, sorted. with: { internal = true } for those of gradients and graphs too, { inplace = true } for name_ forms.
function calls.names(with)
  local list = {}
  for _, name in ipairs(core.op_names()) do
    local info = core.op_info(name)
    if (with.internal or not info.internal) and (with.inplace or not info.inplace) then list[#list + 1] = name end
  end
  for name in pairs(define.info) do
    if type(calls.op(name)) == "function" and not ({ cond = 1, while_loop = 1, scan = 1 })[name] then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

--- { name =, fn =, params =, make = a function giving fresh arguments (args.n of them), grad = whether these ask for gradients }, or nil
--- when no arguments were found. run(fn, args) is what has to succeed, with gradients where it can; fn(args …) when left out.
function calls.find(name, run)
  run = run or function(fn, args) return fn(table.unpack(args, 1, args.n)) end
  local fn, params = calls.op(name), calls.parameters(signature_of(name))
  local written = WRITTEN[name] or WRITTEN[name:gsub("_$", "")]
  for _, set in ipairs(written and { false } or SETS) do
    for _, grad in ipairs { true, false } do
      local function make()
        local args = not set and written() or set and arguments(params, set)
        if args then args.n = args.n or #args end
        if args and grad then
          for _, t in ipairs(calls.tensors(args)) do if t.dtype == "float32" then t.requires_grad = true end end
        end
        return args
      end
      local ok, args = pcall(make)
      if not ok or not args then break end
      sc.manual_seed(1)
      if pcall(run, fn, args) then return { name = name, fn = fn, params = params, make = make, grad = grad } end
    end
  end
  return nil
end

return calls
