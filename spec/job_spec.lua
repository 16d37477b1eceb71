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

  --- Runs a job in the smallest slices; between them `during` is called.
  local function crumbs(job, during)
    local n = 0
    while not job:advance(0) do
      n = n + 1
      if during then during() end
    end
    return n, job:result()
  end

  it("is cut inside of single ops, with the same bits where that is promised", function()
    local v, w = sc.randn(200000), sc.randn(64, 3000)
    for name, f in pairs {
      pointwise = function() return (v * 2.0 + 1.0):tanh() end,
      reduction = function() return w:sum(2) end,
      softmax = function() return w:softmax(2) end,
      norm = function() return F.layer_norm(w, { 3000 }) end,
    } do
      local one = sc.compile(f)
      local whole = one()
      one.last:start():result()
      local n, sliced = crumbs(one.last:start())
      assert.is_true(n > 1, name)
      assert.equal(whole:tostring_bytes(), sliced:tostring_bytes(), name)
    end
  end)

  it("cuts products, convolutions and attention, within rounding", function()
    local a, b = sc.randn(192, 5000), sc.randn(5000, 160)
    local image, kernel = sc.randn(4, 16, 40, 40), sc.randn(32, 16, 3, 3)
    local q = sc.randn(2, 4, 160, 32)
    for name, f in pairs {
      product = function() return a:matmul(b) end,
      convolution = function() return F.conv2d(image, kernel, { padding = 1 }) end,
      attention = function() return F.scaled_dot_product_attention(q, q, q) end,
    } do
      local one = sc.compile(f)
      local whole = one()
      one.last:start():result()
      local n, sliced = crumbs(one.last:start())
      assert.is_true(n > 3, name .. " " .. n)
      assert.is_true((whole - sliced):abs():max():item() <= 1e-5 * whole:abs():max():item(), name)
    end
  end)

  it("leaves running statistics and random numbers alone until its end", function()
    local function make()
      sc.manual_seed(11)
      local net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(8 * 14 * 14, 4))
      local opt = sc.optim.Adam(net:parameters(), { lr = 0.01 })
      return net, sc.compile(function(u, y)
        opt:zero_grad()
        local loss = F.cross_entropy(net(u), y)
        loss:backward()
        opt:step()
        return loss
      end)
    end
    local u, y = sc.randn(6, 3, 16, 16), sc.randint(1, 5, { 6 })
    local function state(net)
      local list = {}
      for k, p in pairs(net:state_dict()) do list[#list + 1] = k .. p:tostring_bytes() end
      table.sort(list)
      return table.concat(list) .. sc.get_rng_state():tostring_bytes()
    end
    local a, whole = make()
    local losses, ends = {}, {}
    for i = 1, 4 do losses[i], ends[i] = whole(u, y):item(), state(a) end
    local b, sliced = make()
    assert.equal(losses[1], sliced(u, y):item())
    for i = 2, 4 do
      local before = state(b)
      local given_up = sliced.last:start(u, y)
      for _ = 1, 5 * i do given_up:advance(0) end
      given_up:cancel()
      assert.equal(before, state(b))
      local n, loss = crumbs(sliced.last:start(u, y), function() assert.equal(before, state(b)) end)
      assert.is_true(n > 12)
      assert.equal(losses[i], loss:item())
      assert.equal(ends[i], state(b))
    end
  end)

  it("is cut inside of loops, and other work goes on meanwhile", function()
    local w = sc.randn(64, 64) * 0.1
    local f = sc.compile(function(h, xs) return (sc.scan(function(a, v) local n = (a:matmul(w) + v):tanh() return n, n end, h, xs)) end)
    local h, xs = sc.zeros(32, 64), sc.randn(20, 32, 64)
    local whole = f(h, xs)
    local n, sliced = crumbs(f.last:start(h, xs), function() sc.rand(50, 50):matmul(sc.ones(50, 50)) end)
    assert.is_true(n > 20)
    assert.equal(whole:tostring_bytes(), sliced:tostring_bytes())
  end)

  it("can be dropped at any place, and its run is free again", function()
    local a = sc.randn(300, 300)
    local f = sc.compile(function(v) return (v:matmul(a):softmax(2):matmul(a) + 1.0):sort(2) end)
    local whole = f(a)
    local before = sc.stats().live
    for stop = 1, 40 do
      local job = f.last:start(a)
      for _ = 1, stop do if job:advance(0) then break end end
      job:cancel()
      job = nil -- luacheck: ignore
    end
    collectgarbage()
    assert.is_true(sc.stats().live <= before + 4)
    assert.equal(whole:tostring_bytes(), (f(a)):tostring_bytes())
  end)
end)
