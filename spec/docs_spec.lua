-- The manual keeps its word: every Lua block of the README and of docs/ runs, in the state that its text assumes, and the names
-- that the interface promises are there and do what it says of them.
local sc = require "sconce"
local nn, optim, F = sc.nn, sc.optim, sc.nn.functional

local function blocks(path)
  local f = assert(io.open(path))
  local text = f:read("a")
  f:close()
  local list = {}
  for at, code in text:gmatch("()```lua\n(.-)```") do
    local _, lines = text:sub(1, at):gsub("\n", "")
    list[#list + 1] = { line = lines + 2, code = ("\n"):rep(lines + 1) .. code }
  end
  return list
end

-- What the blocks take for granted: a model and data for it, and the small things they name.
local function surroundings()
  local model = nn.Sequential(nn.Linear(784, 10))
  local env = {
    sc = sc, nn = nn, optim = optim, F = F, print = function() end, model = model, opt = optim.SGD(model:parameters(), { lr = 0.1 }),
    x = sc.rand(3, 784), t = sc.tensor { 1, 2, 3 }, i0 = sc.tensor(1), a0 = sc.tensor(1.0), b = 2, h0 = sc.zeros(2), xs = sc.ones(4, 2),
    cell = function(x, h) return x + h end,
    io = { write = function() end }, coroutine = { yield = function() end },
  }
  local step = sc.compile(function(x, t) return F.cross_entropy(model(x), t) end)
  step(env.x, env.t)
  env.run, env.step = step.last, step
  return setmetatable(env, { __index = _G })
end

describe("the manual", function()
  for _, path in ipairs { "README.md", "docs/guide.md", "docs/graphs.md", "docs/internals.md" } do
    for _, block in ipairs(blocks(path)) do
      it(("runs: %s:%d"):format(path, block.line), function()
        local file = os.tmpname()
        local quiet = block.code:gsub("g:print%(%)", ""):gsub('"[%w_]+%.onnx"', ("%q"):format(file)) -- the real stdout, the real folder
        assert(load(quiet, "=" .. path, "t", surroundings()))()
        os.remove(file)
      end)
    end
  end
end)

describe("the reference and the annotations", function()
  local generate = dofile "docs/generate.lua"
  local all = require("sconce.manual").entries()

  it("read signatures", function()
    local name, parameters, results = generate.parse "max(x, dim: dim?, keepdim: bool = false, betas: table = {0.9, 0.999}) -> values, indices"
    assert.equal("max", name)
    assert.same({ "values", "indices" }, results)
    assert.same({ { name = "x", optional = false }, { name = "dim", kind = "dim", optional = true },
      { name = "keepdim", kind = "bool", default = "false", optional = true },
      { name = "betas", kind = "table", default = "{0.9, 0.999}", optional = true } }, parameters)
  end)

  it("have every public name, and the annotations are Lua", function()
    local reference, annotations = generate.reference(all), generate.annotations(all)
    assert.truthy(load(annotations, "=sconce.lua"))
    for name, info in pairs(all) do
      assert.truthy(reference:find("**`" .. name, 1, true), name)
      if info.signature:find("(", 1, true) and not name:find "[:.]" and name ~= "repeat" then
        assert.truthy(annotations:find("function sc." .. name .. "(", 1, true), name)
      end
    end
    assert.truthy(annotations:find("function Tensor:max(dim, keepdim) end", 1, true))
    assert.truthy(annotations:find("---@param padding? integer|integer[]|string  # 0", 1, true))
  end)
end)

-- space, names that must be there
local NAMES = {
  { "sc", sc, [[tensor from_string zeros ones full empty eye arange linspace rand randn randint randperm zeros_like manual_seed Generator
    get_rng_state set_rng_state set_num_threads get_num_threads memory_allocated is_grad_enabled range newaxis ellipsis grad no_grad enable_grad
    checkpoint scope stats save load graph compile load_graph constant cond while_loop scan verify config help apropos nn optim data]] },
  { "a dtype", sc, "float32 float64 float16 bfloat16 int8 uint8 int16 int32 int64 bool uint16 uint32 uint64" },
  { "sc.autograd", sc.autograd, "Function gradcheck gradgradcheck detect_anomaly" },
  { "a tensor", sc.ones(2, 2), [[shape size dim numel dtype stride is_contiguous item totable tostring_bytes to float clone requires_grad backward
    detach retain_grad register_hook free view reshape rep is_leaf]] },
  { "nn", nn, [[Module class Parameter Linear Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d MaxPool1d MaxPool2d MaxPool3d
    AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool2d BatchNorm1d BatchNorm2d LayerNorm GroupNorm RMSNorm
    Embedding RNN LSTM GRU RNNCell LSTMCell GRUCell MultiheadAttention TransformerEncoderLayer Dropout ReLU GELU Tanh Sigmoid SiLU Softmax
    Sequential ModuleList CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss BCELoss BCEWithLogitsLoss KLDivLoss init utils functional]] },
  { "a module", nn.Linear(2, 2), [[forward parameters named_parameters state_dict load_state_dict train eval to apply register_forward_hook]] },
  { "optim", optim, "SGD Adam AdamW RMSprop Adagrad LBFGS lr_scheduler" },
  { "an optimiser", optim.SGD({ nn.Parameter(sc.ones(1)) }, { lr = 0.1 }), "step zero_grad state_dict load_state_dict" },
  { "lr_scheduler", optim.lr_scheduler, "StepLR CosineAnnealingLR OneCycleLR ExponentialLR" },
  { "sc.data", sc.data, "TensorDataset DataLoader" },
  { "a graph", sc.graph(), "input output compile session save print dot nodes parameters" },
}

local function run_of()
  local g = sc.graph()
  g:output("y", g:input("x", { 2 }) * 2)
  return g:compile(), g
end
NAMES[#NAMES + 1] = { "a run", (run_of()), "start profile stats bytes graph clone break_at check_nan" }
NAMES[#NAMES + 1] = { "a compiled function", sc.compile(function(x) return x + 1 end), "explain runs" }

-- sentence, what must be true
local PROMISES = {
  { "options are positional or named", function() return sc.ones(2, 3):sum(1, true):eq(sc.ones(2, 3):sum { dim = 1, keepdim = true }):all():item() end },
  { "several results are several Lua results", function() local v, i = sc.tensor { { 1, 3 } }:max(2) return v:item() == 3 and i:item() == 2 end },
  { "shapes are tables or numbers", function()
    return #sc.zeros(2, 3) == 2 and sc.zeros({ 2, 3 }, { dtype = "float64" }).dtype == "float64" and sc.ones(8):view(-1, 4):size(1) == 2
      and sc.ones(8):reshape { 2, -1 }:size(2) == 4
  end },
  { "dtypes follow what is written", function()
    return sc.tensor { 1, 2 }.dtype == "int64" and sc.tensor { 1.0, 2 }.dtype == "float32" and sc.tensor { true }.dtype == "bool"
  end },
  { "arange leaves its end out, range does not", function() return #sc.arange(1, 4) == 3 and #sc.range(1, 4) == 4 end },
  { "0 is no dimension and no index", function()
    return not pcall(sc.sum, sc.ones(2), 0) and not pcall(function() return sc.ones(2)[0] end)
  end },
  { "x[i] is a view", function() local x = sc.zeros(2, 2) x[1]:fill_(3) return x:sum():item() == 6 end },
  { "ranges are inclusive and may step", function()
    local x = sc.arange(1, 11)
    return x[{ { 2, 4 } }]:sum():item() == 9 and x[{ { 1, 10, 3 } }]:sum():item() == 22 and #x[{ {} }] == 10
      and x[{ sc.newaxis, sc.ellipsis }]:dim() == 2 and x[x:gt(8)]:sum():item() == 19 and x[-1]:item() == 10
  end },
  { "writing broadcasts", function() local x = sc.zeros(2, 3) x[{ {}, { 2, 3 } }] = sc.tensor { 1.0, 2.0 } return x:sum():item() == 6 end },
  { "operators are the pointwise ops", function()
    local a, b = sc.tensor { 7 }, sc.tensor { 2 }
    return (a // b):item() == 3 and (a % b):item() == 1 and (a ^ b):item() == 49 and (a & b):item() == 2 and (a | b):item() == 7 and (~a):item() == -8
      and (a << b):item() == 28 and (a >> b):item() == 1 and (-a):item() == -7
  end },
  { "grad takes a tensor or a list", function()
    local x, w = sc.tensor({ 3.0 }, { requires_grad = true }), sc.tensor({ 2.0 }, { requires_grad = true })
    local gx, gw = sc.grad((x * w):sum(), { x, w })
    return gx:item() == 2 and gw:item() == 3 and sc.grad((x * x):sum(), x):item() == 6
  end },
  { "custom functions are recorded as one node", function()
    local Clip = sc.autograd.Function {
      forward = function(ctx, x, limit) ctx:save(x) ctx.limit = limit return x:clamp(-limit, limit) end,
      backward = function(ctx, dy) local x = ctx:saved() return dy * x:abs():le(ctx.limit), nil end,
    }
    local x = sc.tensor({ 0.5, 2.0 }, { requires_grad = true })
    Clip(x, 1.0):sum():backward()
    return x.grad:eq(sc.tensor { 1.0, 0.0 }):all():item()
  end },
  { "checkpoint recomputes", function()
    local n, x = 0, sc.tensor({ 2.0 }, { requires_grad = true })
    sc.checkpoint(function(v) n = n + 1 return v * v end, x):sum():backward()
    return n == 2 and x.grad:item() == 4
  end },
  { "a freed tensor is an error to use", function() local t = sc.ones(2) t:free() return not pcall(function() return t + 1 end) end },
  { "a scope frees all but its results", function()
    local inner
    local kept = sc.scope(function() inner = sc.ones(2) return inner + 1 end)
    return kept:sum():item() == 4 and not pcall(function() return inner + 1 end)
  end },
  { "stats count", function() local s = sc.stats() return s.live and s.bytes and s.peak and s.allocations and true end },
  { "classes register their fields", function()
    local Net = nn.class("Net")
    function Net:init(n) self.fc = nn.Linear(n, 10) self.scale = nn.Parameter(sc.ones { 1 }) end
    function Net:forward(x) return self.fc(x) * self.scale end
    local net, names = Net(4), {}
    for name in net:named_parameters() do names[#names + 1] = name end
    table.sort(names)
    return #net(sc.ones(2, 4)) == 2 and table.concat(names, " ") == "fc.bias fc.weight scale"
  end },
  { "loaders are seeded", function()
    local function order()
      local out = {}
      for x in sc.data.DataLoader(sc.data.TensorDataset(sc.arange(1, 9)), { batch_size = 2, shuffle = true, seed = 1 }) do out[#out + 1] = x[1]:item() end
      return table.concat(out, " ")
    end
    return order() == order()
  end },
  { "a generator of one's own leaves the global one alone", function()
    sc.manual_seed(1)
    local a = sc.rand(1):item()
    sc.manual_seed(1)
    sc.rand(3, { generator = sc.Generator(5) })
    return sc.rand(1):item() == a
  end },
  { "loops and branches run natively", function()
    local _, a = sc.while_loop(function(i) return i:lt(10) end, function(i, v) return i + 1, v * 2 end, sc.tensor(0), sc.tensor(1.0))
    local h, ys = sc.scan(function(h, x) return h + x, h end, sc.tensor(0.0), sc.tensor { 1.0, 2.0, 3.0 })
    return a:item() == 1024 and h:item() == 6 and ys:sum():item() == 4
      and sc.cond(sc.tensor(false), function(v) return v * 2 end, function(v) return v end, sc.tensor(3.0)):item() == 3
  end },
  { "a session computes what is fetched", function()
    local g = sc.graph()
    local x = g:input("x", { 2 })
    local y, z = x * 2, x + 1
    g:output("y", y)
    local a, b = g:session():run({ y, z }, { x = sc.ones(2) })
    return a:sum():item() == 4 and b:sum():item() == 4
  end },
  { "a job is advanced", function()
    local job = (run_of()):start { x = sc.ones(2) }
    while not job:advance(1500) do end
    return job:result().y:sum():item() == 4
  end },
}

describe("the interface", function()
  for _, row in ipairs(NAMES) do
    it("has what " .. row[1] .. " promises", function()
      for name in row[3]:gmatch("%S+") do
        local ok, v = pcall(function() return row[2][name] end)
        assert.is_true(ok and v ~= nil, name)
      end
    end)
  end

  for _, row in ipairs(PROMISES) do
    it("keeps: " .. row[1], function() assert.truthy(row[2]()) end)
  end
end)
