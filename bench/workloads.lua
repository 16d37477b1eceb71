--- sconce's side of the workloads. Names and sizes are those of bench/peer_torch.py; see there for what each does.
--- Usage: lua5.4 bench/workloads.lua [pattern] [budget in seconds] [threads]
local harness = require "bench.harness"
local sc = require "sconce"
local F = sc.functional

local pattern, budget, threads = arg[1] or "", tonumber(arg[2] or 0.5), tonumber(arg[3] or 1)
sc.set_num_threads(threads)
sc.manual_seed(1)
math.randomseed(1)

local list = {}
local function add(name, make, per) list[#list + 1] = { name, make, per = per } end
--- Made and run without gradients.
local function plain(name, make, per)
  add(name, function()
    local fn = make()
    return function() return sc.no_grad(fn) end
  end, per)
end

-- A: the cost of one op. Loops of 100 so that the closure call does not count.
add("add_1_nograd", function()
  local a, b = sc.rand(1), sc.rand(1)
  return function() for _ = 1, 100 do local _ = a + b end end
end, 100)
add("add_1_grad", function()
  local a, b = sc.rand(1):requires_grad_(), sc.rand(1)
  return function() for _ = 1, 100 do local _ = a + b end end
end, 100)
add("chain10_fwd_bwd", function()
  local g, w, d = sc.rand(1):requires_grad_(), sc.rand(1), sc.rand(1)
  return function()
    g.grad = nil
    local y = g
    for _ = 1, 5 do
      y = y * w
      y = y + d
    end
    y:backward()
  end
end)
plain("matmul_8x8", function()
  local a, b = sc.rand(8, 8), sc.rand(8, 8)
  return function() for _ = 1, 100 do a:matmul(b) end end
end, 100)
plain("linear_relu_1x64x64", function()
  local x, w, b = sc.rand(1, 64), sc.rand(64, 64), sc.rand(64)
  return function() for _ = 1, 100 do F.linear(x, w, b):relu() end end
end, 100)

-- B: element-wise, reductions, movement. Each is a function of the tensors its maker gives.
local N = 1000000
local function on(name, make, fn)
  plain(name, function()
    local t = table.pack(make())
    return function() return fn(table.unpack(t, 1, t.n)) end
  end)
end
local function vector() return sc.randn(N) end
local function vectors() return sc.randn(N), sc.randn(N) end
local function matrix() return sc.randn(1000, 1000), sc.randn(1000) end
for _, op in ipairs { "exp", "tanh", "sigmoid", "relu", "erf", "sin" } do on(op .. "_1e6", vector, function(x) return x[op](x) end) end
on("log_1e6", function() return sc.rand(N) + 0.5 end, function(x) return x:log() end)
on("add_1e6", vectors, function(x, y) return x + y end)
on("gelu_tanh_1e6", vector, function(x) return F.gelu(x, { approximate = "tanh" }) end)
on("where_1e6", vectors, function(x, y) return sc.where(x:gt(0), x, y) end)
on("gelu_chain12_1e6", vectors, function(x, y)
  local t = x * x
  t = t * x
  t = t * 0.044715
  t = x + t
  t = t * 0.7978845608
  t = t:tanh()
  t = t + 1.0
  t = t * x
  t = t * 0.5
  t = t + y
  t = t:relu()
  return t * 1.1
end)
on("muladd_chain12_1e6", vectors, function(x, y)
  for _ = 1, 6 do x = x * 0.9 + y end
  return x
end)
on("softmax_hand_1000x1000", matrix, function(m)
  local e = (m - m:max(2, true)):exp()
  return e / e:sum(2, true)
end)
on("layernorm_hand_1000x1000", matrix, function(m, v)
  local u = m - m:mean(2, true)
  local s = (u * u):mean(2, true)
  return u * (s + 1e-5):rsqrt() * v + v
end)
on("sum_all_1000x1000", matrix, function(m) return m:sum() end)
on("sum_dim0_1000x1000", matrix, function(m) return m:sum(1) end)
on("sum_dim1_1000x1000", matrix, function(m) return m:sum(2) end)
on("mean_all_1000x1000", matrix, function(m) return m:mean() end)
on("max_dim1_1000x1000", matrix, function(m) return m:max(2) end)
on("argmax_dim1_1000x1000", matrix, function(m) return m:argmax(2) end)
on("cumsum_dim1_1000x1000", matrix, function(m) return m:cumsum(2) end)
on("cumsum_dim0_1000x1000", matrix, function(m) return m:cumsum(1) end)
on("softmax_1000x1000", matrix, function(m) return m:softmax(2) end)
on("add_bcast_row_1000x1000", matrix, function(m, v) return m + v end)
on("layernorm_1000x1000", matrix, function(m, v) return F.layer_norm(m, { 1000 }, v, v) end)
on("transpose_copy_2000x2000", function() return sc.randn(2000, 2000) end, function(m) return m:t():contiguous() end)
on("sort_1e6", vector, function(x) return x:sort() end)
on("topk10_1e6", vector, function(x) return x:topk(10) end)
on("mask_select_1e6", vector, function(x) return x[x:gt(0)] end)
on("embedding_8192_of_50000x128", function() return sc.randn(50000, 128), sc.randint(1, 50001, { 8192 }) end,
  function(rows, idx) return F.embedding(idx, rows) end)
on("rand_1e6", vector, function() return sc.rand(N) end)
on("randn_1e6", vector, function() return sc.randn(N) end)
on("dropout_1e6", vector, function(x) return F.dropout(x, 0.1, true) end)
on("cat_2x_1e6", vectors, function(x, y) return sc.cat { x, y } end)

-- C: products and convolutions
for _, n in ipairs { 64, 128, 256, 512, 1024, 2048 } do
  local function squares() return sc.rand(n, n), sc.rand(n, n) end
  on("matmul_f32_" .. n, squares, function(a, b) return a:matmul(b) end)
  if n >= 256 then on("matmul_cblas_" .. n, squares, function(a, b) return a:matmul(b) end) end   -- against cblas from C
end
on("bmm_f32_64x64x64x64", function() return sc.rand(64, 64, 64), sc.rand(64, 64, 64) end, function(a, b) return a:bmm(b) end)
on("matmul_f32_1x1024x1024", function() return sc.rand(1, 1024), sc.rand(1024, 1024) end, function(a, b) return a:matmul(b) end)
on("linear_bias_64x784x256", function() return sc.rand(64, 784), sc.rand(256, 784), sc.rand(256) end, F.linear)
for _, c in ipairs { { "conv3x3_1x64x56x56_64", 1, 64, 56, 64, 3, 1 }, { "conv3x3_16x64x32x32_64", 16, 64, 32, 64, 3, 1 },
  { "conv1x1_1x256x28x28_256", 1, 256, 28, 256, 1, 0 }, { "conv3x3_64x1x28x28_32", 64, 1, 28, 32, 3, 0 } } do
  on(c[1], function() return sc.rand(c[2], c[3], c[4], c[4]), sc.rand(c[5], c[3], c[6], c[6]), sc.rand(c[5]) end,
    function(x, w, b) return F.conv2d(x, w, b, 1, c[7]) end)
end

-- D: training steps
local function train(name, model, inputs, labels, optimizer)
  add(name, function()
    local models, optim = require "bench.models", sc.optim
    local net = models[model]()
    local xs, ys = inputs(models), labels()
    local many = type(xs) == "table"
    local p = net:parameters()
    local opt = optimizer == "adamw" and optim.AdamW(p, { lr = 1e-3, weight_decay = 0.1 })
      or optimizer == "adam" and optim.Adam(p, { lr = 1e-3 })
      or optim.SGD(p, { lr = 0.01, momentum = 0.9 })
    local i = 0
    return function()
      i = i % 64 + 1
      opt:zero_grad()
      local out = net(many and xs[i] or xs)
      if out:dim() == 3 then out = out:view(-1, out:size(3)) end
      F.cross_entropy(out, many and ys[i] or ys):backward()
      opt:step()
    end
  end)
end
local function labels(n, classes) return function() return sc.randint(1, classes + 1, { n }) end end
for _, n in ipairs { 64, 1 } do
  for _, o in ipairs { "sgd", "adam" } do
    train(string.format("mlp_train_%s_b%d", o, n), "MLP", function() return sc.randn(n, 784) end, labels(n, 10), o)
  end
end
train("cnn_train_sgd_b64", "CNN", function() return sc.randn(64, 1, 28, 28) end, labels(64, 10), "sgd")
train("lstm_train_sgd_b16", "LSTMNet", function() return sc.randn(16, 64, 128) end, labels(16, 10), "sgd")
train("gpt_train_adamw_b8", "GPT", function() return sc.randint(1, 66, { 8, 128 }) end, labels(1024, 65), "adamw")
train("tree_train_sgd", "TreeNet", function(m)
  local trees = {}
  for i = 1, 64 do trees[i] = m.random_tree(16) end
  return trees
end, function()
  local y = {}
  for i = 1, 64 do y[i] = sc.tensor { math.random(5) } end
  return y
end, "sgd")

-- E: compiled functions and inference
require "bench.compiled"(add, plain)

harness.run("sconce", list, budget, pattern)
