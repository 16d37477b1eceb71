--- Sizes that vary from call to call of a compiled function: at most two traces where nobody reads them, guards where somebody does.
local sc = require "sconce"
local nn, F, optim = sc.nn, sc.functional, sc.optim

--- The largest difference, in parts of the largest number.
local function distance(a, b)
  return (a - b):abs():max():item() / math.max(1.0, b:abs():max():item())
end

local function trainer(net, loss_of)
  local opt = optim.SGD(net:parameters(), { lr = 0.05, momentum = 0.9 })
  return function(x, t)
    opt:zero_grad()
    local loss = loss_of(net(x), t)
    loss:backward()
    opt:step()
    return loss
  end
end

local Last = nn.class("Last")
function Last:init()
  self.rnn = nn.LSTM(4, 6, { batch_first = true })
  self.fc = nn.Linear(6, 3)
end
function Last:forward(x)
  local y = self.rnn(x)
  return self.fc(y[{ {}, -1 }])
end

local MODELS = {
  { "an MLP", function() return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3)) end,
    function(n) return sc.randn(n, 4) end },
  { "a CNN", function()
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3))
  end, function(n) return sc.randn(n, 1, 8, 8) end },
  { "an LSTM", function() return Last() end, function(n) return sc.randn(n, 5, 4) end },
  { "attention", function()
    return nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, { dropout = 0.0, batch_first = true }), nn.Flatten(), nn.Linear(40, 3))
  end, function(n) return sc.randn(n, 5, 8) end },
}

describe("a size that nobody reads", function()
  for _, model in ipairs(MODELS) do
    it("costs two traces, and the steps are those of the function: " .. model[1], function()
      local function run(compiled)
        sc.manual_seed(2)
        local net = model[2]()
        local step, losses, n_traces = trainer(net, F.cross_entropy), {}, nil
        if compiled then step = sc.compile(step) end
        for _, n in ipairs { 16, 8, 5, 11, 16, 8, 3 } do
          losses[#losses + 1] = step(model[3](n), sc.randint(1, 4, { n })):item()
        end
        if compiled then n_traces = #step:runs() end
        return losses, net, n_traces
      end
      local want, eager = run(false)
      local got, static, n = run(true)
      assert.equal(2, n)
      for i = 1, #want do assert.near(want[i], got[i], 1e-5) end
      local theirs = eager:state_dict()
      for key, v in pairs(static:state_dict()) do assert.is_true(distance(v, theirs[key]) < 1e-4, key) end
    end)
  end

  it("may be one of several, shared or not", function()
    local f = sc.compile(function(a, b) return a:matmul(b):sum(2), a:mean(), (a * 2.0):t() end)
    for _, s in ipairs { { 4, 5, 6 }, { 6, 7, 8 }, { 9, 3, 4 }, { 5, 5, 5 }, { 2, 9, 3 } } do
      local a, b = sc.randn(s[1], s[2]), sc.randn(s[2], s[3])
      local x, m, y = f(a, b)
      assert.is_true(distance(x, a:matmul(b):sum(2)) < 1e-5)
      assert.is_true(distance(m, a:mean()) < 1e-6)
      assert.same({ s[2], s[1] }, y.shape)
    end
    assert.equal(2, #f:runs())
    assert.truthy(f:explain():find("left open from now on", 1, true))
  end)

  it("is not mistaken for a number of the script: small and large constants stay what they are", function()
    local w = sc.tensor({ 1.0, 2.0 }, { requires_grad = true })
    local fn = function(x)
      local y = (x * w + 1e-6) * 1e-7 - 1e9 + 1000003.0 + x:mean() / 999999
      local loss = ((x * w):pow(2):sum() + 1e-6):sqrt()
      w.grad = nil
      loss:backward()
      nn.utils.clip_grad_norm_({ w }, 1e-6)
      sc.no_grad(function() w:sub_(w.grad * 1000000) end)
      return y, loss
    end
    local f = sc.compile(fn, { exact = true })
    local start = w:detach():clone()
    for _, n in ipairs { 3, 5, 4, 7 } do
      local x = sc.randn(n, 2)
      sc.no_grad(function() w:copy_(start) end)
      local y, loss = f(x)
      local after = w:totable()
      sc.no_grad(function() w:copy_(start) end)
      local want, want_loss = fn(x)
      assert.same(want:totable(), y:totable())
      assert.near(want_loss:item(), loss:item(), 1e-5)
      for i = 1, 2 do assert.near(w:totable()[i], after[i], 1e-5) end
    end
    assert.equal(2, #f:runs())
  end)

  it("lets gradients through", function()
    local w = sc.randn({ 4, 3 }, { requires_grad = true })
    local fn = function(x) return x:matmul(w):tanh() end
    local f = sc.compile(fn)
    for _, n in ipairs { 5, 7, 9, 11 } do
      local x = sc.randn(n, 4):requires_grad_()
      local a, b = sc.grad(f(x):sum(), { x, w })
      local c, d = sc.grad(fn(x):sum(), { x, w })
      assert.is_true(distance(a, c) < 1e-5 and distance(b, d) < 1e-5)
    end
    assert.equal(2, #f:runs())
  end)

  it("is open in the graph that can be printed and saved", function()
    local net = nn.Linear(4, 2)
    local f = sc.compile(function(x) return net(x) end)
    for n = 2, 4 do f(sc.ones(n, 4)) end
    assert.truthy(f.last.graph:text():find("{size1, 2}", 1, true))
    local path = os.tmpname()
    f.last.graph:save(path)
    local run = sc.load_graph(path)
    os.remove(path)
    assert.same({ 7, 2 }, run { [run.inputs[1].name] = sc.ones(7, 4) }[run.outputs[1].name].shape)
  end)

  it("is opened later where the first call had 1 of it", function()
    local f = sc.compile(function(x) return x:sum(2) end)
    for _, n in ipairs { 1, 5, 6, 7, 8, 1 } do assert.equal(n, #f(sc.ones(n, 3))) end
    assert.equal(3, #f:runs())
  end)

  it("keeps a bounded number of plans, and of bytes", function()
    local f = sc.compile(function(x) return (x * 2.0):exp():sum() end)
    for n = 2, 200 do assert.near(n * math.exp(2), f(sc.ones(n)):item(), 1e-3 * n) end
    assert.equal(2, #f:runs())
    local kept = 0
    for _, list in pairs(f.traces) do kept = kept + #list end
    assert.is_true(kept <= 34, kept)
    for _, n in ipairs { 2, 100, 200, 3 } do assert.near(n * math.exp(2), f(sc.ones(n)):item(), 1e-3 * n) end
  end)
end)

describe("a size that is read", function()
  it("is guarded: each value makes a trace, and explain says where it is read", function()
    local READERS = {
      function(x) return x / x:size(1) end,
      function(x) return x / x.shape[1] end,
      function(x) return x / #x end,
      function(x) return x / x:numel() * x:size(2) end,
      function(x) return (x * 1.0) / (x:t():size(2)) end,
    }
    for _, fn in ipairs(READERS) do
      local f = sc.compile(fn)
      for _, n in ipairs { 4, 3, 7, 4, 3 } do assert.same(fn(sc.ones(n, 2)):totable(), f(sc.ones(n, 2)):totable()) end
      assert.equal(3, #f:runs())
      assert.truthy(f:explain():find("size 1 of argument 1 is read at spec/sizes_spec.lua:%d+"), f:explain())
    end
  end)

  it("does not keep others from being left open", function()
    local f = sc.compile(function(x) return x:sum(1) / x:size(2) end)
    for _, n in ipairs { 4, 3, 7, 9 } do assert.near(n / 2, f(sc.ones(n, 2)):totable()[1], 1e-6) end
    assert.equal(2, #f:runs())
  end)

  it("ends a loop over it at once, also when the script catches errors", function()
    local f = sc.compile(function(x)
      local ok, n = pcall(function() return x:size(1) end)
      local sum = x:sum() * 0.0
      for _ = 1, ok and n or 0 do sum = sum + 1.0 end
      return sum
    end)
    for _, n in ipairs { 4, 3, 6 } do assert.equal(n, f(sc.ones(n)):item()) end
  end)

  it("in the library's own lines is no reader, and what they make of it is checked", function()
    local f = sc.compile(function(x) return F.adaptive_avg_pool2d(x, { 2, 2 }), x:chunk(2, 1) end)
    for _, n in ipairs { 4, 6, 8, 3 } do
      local x = sc.randn(n, 1, n, n)
      local a, b, c = f(x)
      assert.is_true(distance(a, F.adaptive_avg_pool2d(x, { 2, 2 })) < 1e-6)
      local chunks = x:chunk(2, 1)
      b, c = type(b) == "table" and b[1] or b, type(b) == "table" and b[2] or c
      assert.same({ chunks[1].shape, chunks[2].shape }, { b.shape, c.shape })
    end
  end)
end)
