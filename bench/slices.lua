--- How well runs in slices keep their time: for networks of about 20 ms, inference and a training step, how much longer than asked a slice
--- takes; and for single ops, the longest that each goes without a look at the clock. One thread. Whole times are the processor's.
---
--- A slice is *disturbed*, and not counted, when the process had the processor for less than the time that went by, but for 30 us: then
--- the machine did something else meanwhile. (Time that a hypervisor takes is not seen by this; it stays in.)
--- Usage: lua5.4 bench/slices.lua [pattern] [budget in microseconds]
local sc = require "sconce"
local core = require "sconce.core"
local nn, F = sc.nn, sc.nn.functional

local pattern, budget = arg[1] or "", tonumber(arg[2] or 1000)
sc.set_num_threads(1)
sc.manual_seed(1)

local function at(sorted, part) return sorted[math.max(1, math.ceil(#sorted * part))] or 0 / 0 end

--- Overruns of the undisturbed slices in microseconds, sorted; how many were disturbed; the processor's time of the quickest job.
local function overruns(run, ...)
  for _ = 1, 3 do run:start(...):result() end
  local over, disturbed, best, jobs = {}, 0, math.huge, 0
  while jobs < 20 or (#over < 400 and jobs < 200) do
    local job, total = run:start(...), 0
    local done
    jobs = jobs + 1
    repeat
      local begun, cpu = core.now(), os.clock()
      done = job:advance(budget)
      local took, used = core.now() - begun, os.clock() - cpu
      total = total + used
      if took - used > 30e-6 then disturbed = disturbed + 1 else over[#over + 1] = took * 1e6 - budget end
    until done
    best = math.min(best, total)
  end
  table.sort(over)
  return over, disturbed, best
end

local function convolutions()
  return nn.Sequential(nn.Conv2d(3, 32, 3, { padding = 1 }), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, { padding = 1 }), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(64 * 8 * 8, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 10))
end

local function inference(net, x)
  net:eval()
  return sc.compile(function(v) return sc.no_grad(function() return net(v) end) end), x
end

local function training(net, x, classes)
  local opt, t = sc.optim.AdamW(net:parameters(), { lr = 1e-3 }), sc.randint(1, classes + 1, { x:size(1) })
  return sc.compile(function(v, y)
    opt:zero_grad()
    local loss = F.cross_entropy(net(v), y)
    loss:backward()
    opt:step()
    return loss
  end), x, t
end

local NETWORKS = {
  { "slice_cnn_infer", function() return inference(convolutions(), sc.randn(60, 3, 32, 32)) end },
  { "slice_cnn_train", function() return training(convolutions(), sc.randn(24, 3, 32, 32), 10) end },
  { "slice_transformer_infer", function()
    local layers = {}
    for i = 1, 3 do layers[i] = nn.TransformerEncoderLayer(256, 8, { dim_feedforward = 1024, batch_first = true, dropout = 0.0 }) end
    return inference(nn.Sequential(table.unpack(layers)), sc.randn(4, 128, 256))
  end },
  { "slice_mlp_train", function()
    local net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 10))
    return training(net, sc.randn(256, 784), 10)
  end },
}

--- Ops that are one piece, or have long ones.
local function square(n) return sc.randn(n, n) end
local function positive(n) local a = square(n) return a:matmul(a:t()) + sc.eye(n) * n end
local long, ids, matrix = sc.randn(1000000), sc.randint(1, 1001, { 1000000 }), sc.randn(1000, 1000)
local OPS = {
  { "linalg.svd 256", function() local a = square(256) return function() return sc.linalg.svd(a) end end },
  { "linalg.eigh 256", function() local a = positive(256) return function() return sc.linalg.eigh(a) end end },
  { "linalg.inv 512", function() local a = positive(512) return function() return sc.linalg.inv(a) end end },
  { "linalg.qr 512", function() local a = square(512) return function() return sc.linalg.qr(a) end end },
  { "linalg.cholesky 512", function() local a = positive(512) return function() return sc.linalg.cholesky(a) end end },
  { "linalg.solve 512", function() local a = positive(512) return function() return sc.linalg.solve(a, a) end end },
  { "sort 1e6", function() return function() return (long:sort()) end end },
  { "sort 1000x1000", function() return function() return (matrix:sort(2)) end end },
  { "topk 10 of 1e6", function() return function() return (long:topk(10)) end end },
  { "bincount 1e6", function() return function() return ids:bincount(nil, 1001) end end },
  { "index_add 1e6 into 1000", function() return function() return sc.zeros(1000):index_add(1, ids, long) end end },
  { "cumsum 1e6", function() return function() return long:cumsum(1) end end },
  { "copy of a transpose 1000x1000", function() return function() return matrix:t():contiguous() + 0 end end },
}

print(string.format("| workload | whole | in slices of %d us | overrun, median | 99 %% | worst | slices | disturbed |", budget))
print("|---|---|---|---|---|---|---|---|")
for _, w in ipairs(NETWORKS) do
  if w[1]:find(pattern) or ("overrun"):find(pattern, 1, true) then
    local made = table.pack(w[2]())
    local f, args = made[1], { table.unpack(made, 2) }
    local whole = math.huge
    for _ = 1, 12 do
      local begun = os.clock()
      f(table.unpack(args))
      whole = math.min(whole, os.clock() - begun)
    end
    local over, disturbed, sliced = overruns(f.last, table.unpack(args))
    print(string.format("| %s | %.1f ms | %.1f ms | %.0f us | %.0f us | %.0f us | %d | %d |", w[1], whole * 1e3, sliced * 1e3,
      at(over, 0.5), at(over, 0.99), at(over, 1), #over, disturbed))
  end
end

if ("overrun"):find(pattern, 1, true) then
  print("\n| op | whole | longest without a look at the clock |\n|---|---|---|")
  for _, o in ipairs(OPS) do
    local ok, fn = pcall(o[2])
    local f = ok and sc.compile(fn)
    ok = ok and pcall(f)
    if ok and f.last then
      local run, longest, total = f.last, math.huge, math.huge
      for _ = 1, 12 do
        local begun, most = os.clock(), 0
        run:start():result()
        total = math.min(total, (os.clock() - begun) * 1e9)
        for _, s in ipairs(run.last:steps()) do most = math.max(most, s.longest) end
        longest = math.min(longest, most, total)
      end
      print(string.format("| %s | %.2f ms | %.2f ms |", o[1], total * 1e-6, longest * 1e-6))
    end
  end
end
