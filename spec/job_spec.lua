local sc = require "sconce"
local nn, F = sc.nn, sc.functional

local function network()
  sc.manual_seed(3)
  local list = {}
  for _ = 1, 8 do
    list[#list + 1] = nn.Linear(96, 96)
    list[#list + 1] = nn.Tanh()
  end
  return nn.Sequential(table.unpack(list))
end

local function trainer(net)
  local opt = sc.optim.SGD(net:parameters(), { lr = 0.05 })
  return sc.compile(function(x, t)
    opt:zero_grad()
    local loss = F.mse_loss(net(x), t)
    loss:backward()
    opt:step()
    return loss
  end)
end

local function weights(net)
  local list = {}
  for i, p in ipairs(net:parameters()) do list[i] = p:detach():clone():tostring_bytes() end
  return table.concat(list)
end

describe("a job", function()
  local x, t = sc.randn(32, 96), sc.randn(32, 96)

  it("gives what an uncut call gives, and changes weights only at its end", function()
    local a, b = network(), network()
    local whole, sliced = trainer(a), trainer(b)
    assert.equal(whole(x, t):item(), sliced(x, t):item())
    local before, slices = weights(b), 0
    local job = sliced.last:start(x, t)
    while not job:advance(0) do
      slices = slices + 1
      assert.equal(before, weights(b))
    end
    assert.is_true(slices > 20)
    assert.equal(whole(x, t):item(), job:result():item())
    assert.equal(weights(a), weights(b))
    assert.not_equal(before, weights(b))
  end)

  it("changes nothing when it is cancelled, and leaves the run free", function()
    local net = network()
    local step = trainer(net)
    step(x, t)
    local before = weights(net)
    local job = step.last:start(x, t)
    job:advance(0)
    assert.has_error(function() step.last:start(x, t) end)
    job:cancel()
    assert.equal(before, weights(net))
    assert.has_error(function() job:result() end)
    step(x, t)
    assert.not_equal(before, weights(net))
  end)

  it("that is forgotten leaves the run free", function()
    local step = trainer(network())
    local want = step(x, t)
    do step.last:start(x, t):advance(0) end
    collectgarbage()
    collectgarbage()
    assert.equal(want.dtype, step(x, t).dtype)
    do
      local job <close> = step.last:start(x, t)
      job:advance(0)
    end
    step(x, t)
  end)

  it("goes on beside others of clones", function()
    local net = network()
    local f = sc.compile(function(v) return net(v) end)
    local inputs, jobs = { x, t, x * 2.0 }, {}
    f(x)
    for i, v in ipairs(inputs) do jobs[i] = f.last:clone():start(v) end
    local left = #jobs
    while left > 0 do
      left = 0
      for _, j in ipairs(jobs) do if not j:advance(20) then left = left + 1 end end
    end
    for i, v in ipairs(inputs) do assert.equal(f(v):tostring_bytes(), jobs[i]:result():tostring_bytes()) end
  end)

  it("keeps to its slice, within the time of a step", function()
    local step = trainer(network())
    step(x, t)
    step.last:start(x, t):result() -- measures the steps
    local over, budget = 0, 0.0005
    for _ = 1, 5 do
      local job = step.last:start(x, t)
      repeat
        local begun = os.clock()
        local done = job:advance(budget * 1e6)
        over = math.max(over, os.clock() - begun - budget)
      until done
    end
    assert.is_true(over < 0.02, over)
  end)

  it("keeps updates in the order that the function wrote them", function()
    local s = sc.tensor { 1.0, 2.0 }
    local f = sc.compile(function(v)
      s:add_(v)
      local read = s * 2.0
      s:mul_(3.0)
      return read + v, s:sum()
    end)
    local r, total = f(sc.tensor { 1.0, 1.0 })
    assert.same({ 5.0, 7.0 }, r:totable())
    assert.equal(15.0, total:item())
    local job = f.last:start(sc.tensor { 1.0, 1.0 })
    while not job:advance(0) do assert.same({ 6.0, 9.0 }, s:totable()) end
    assert.same({ 15.0, 21.0 }, (job:result()):totable())
    assert.same({ 21.0, 30.0 }, s:totable())
  end)
end)
