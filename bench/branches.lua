--- Steps that run beside each other on two threads (csrc/graph/branches.c): the same graphs with the pass and without, wall time, the best
--- of many calls taken in turn. The last rows are graphs where nothing is to be gained; they must not get slower.
--- Usage: lua5.4 bench/branches.lua [pattern] [calls]
local sc = require "sconce"
local core = require "sconce.core"
local models = require "bench.models"
local nn, F = sc.nn, sc.nn.functional
local pattern, calls = arg[1] or "", tonumber(arg[2] or 300)
sc.set_num_threads(2)
sc.manual_seed(1)

local function tower(depth, width)
  local list = {}
  for _ = 1, depth do
    list[#list + 1] = nn.Linear(width, width)
    list[#list + 1] = nn.ReLU()
  end
  return nn.Sequential(table.unpack(list))
end

local function towers(depth, width, batch)
  local a, b = tower(depth, width), tower(depth, width)
  return function(x, y) return a(x) + b(y) end, sc.randn(batch, width), sc.randn(batch, width)
end

--- A whole training step of a network.
local function step(net, x, t, loss)
  local opt = sc.optim.SGD(net:parameters(), { lr = 0.01, momentum = 0.9 })
  return function(a, b)
    opt:zero_grad()
    local l = loss(net(a), b)
    l:backward()
    opt:step()
    return l
  end, x, t
end

local CASES = {
  { "two towers of 8 layers 256, batch 64", function() return towers(8, 256, 64) end },
  { "two towers of 4 layers 128, batch 64", function() return towers(4, 128, 64) end },
  { "LSTM 64-128 in both directions, 8 x 32 steps", function()
    local l = nn.LSTM(64, 128, { bidirectional = true, batch_first = true })
    return function(x) return (l(x)) end, sc.randn(8, 32, 64)
  end },
  { "4 heads of attention by hand, 128 x 128", function()
    local w = {}
    for h = 1, 12 do w[h] = sc.randn(128, 32) * 0.1 end
    return function(x)
      local out = {}
      for h = 1, 4 do
        local q, k, v = x:matmul(w[3 * h - 2]), x:matmul(w[3 * h - 1]), x:matmul(w[3 * h])
        out[h] = (q:matmul(k:t()) * 0.17):softmax(-1):matmul(v)
      end
      return sc.cat(out, 2)
    end, sc.randn(128, 128)
  end },
  { "training step, 6 layers 256, batch 64", function() return step(tower(6, 256), sc.randn(64, 256), sc.randn(64, 256), F.mse_loss) end, true },
  { "two towers of 8 layers 64, batch 32", function() return towers(8, 64, 32) end },
  { "mlp_train_sgd_b64", function() return step(models.MLP(), sc.randn(64, 784), sc.randint(1, 11, { 64 }), F.cross_entropy) end, true },
  { "lstm_train_sgd_b16", function() return step(models.LSTMNet(), sc.randn(16, 64, 128), sc.randint(1, 11, { 16 }), F.cross_entropy) end, true },
  { "gpt_infer_ctx128_b1", function() local net = models.GPT():eval() return function(x) return net(x) end, sc.randint(1, 66, { 1, 128 }) end },
}

print("| graph | branches | one after another | beside each other | ratio |")
print("|---|---|---|---|---|")
for _, case in ipairs(CASES) do
  if case[1]:find(pattern, 1, true) then
    local function measure()
      local fn, a, b = case[2]()
      local runs, best = {}, { math.huge, math.huge }
      for i, passes in ipairs { { branches = false }, {} } do
        runs[i] = sc.compile(fn, { passes = passes })
        for _ = 1, 3 do runs[i](a, b) end
      end
      for _ = 1, calls do
        for i = 1, 2 do
          local t = core.now()
          runs[i](a, b)
          best[i] = math.min(best[i], core.now() - t)
        end
      end
      print(string.format("| %s | %d | %.0f us | %.0f us | %.2f |", case[1], runs[2].last:stats().branches, best[1] * 1e6, best[2] * 1e6, best[2] / best[1]))
    end
    if case[3] then measure() else sc.no_grad(measure) end
  end
end
