--- Groups of nodes that run as one program: that they are found, that their bits are those of the ops one by one, and that what looks
--- inside a run still sees the members.
local sc = require "sconce"
local F, nn = sc.functional, sc.nn

local function bits(t) return t:detach():contiguous():tostring_bytes() end

--- Runs fn line by line and compiled without rewrites that change rounding; the results must have the same bits. Gives the number of steps.
local function steps_of(fn, ...)
  local want = table.pack(fn(...))
  local f = sc.compile(fn, { exact = true })
  for _ = 1, 2 do
    local got = table.pack(f(...))
    assert.equal(want.n, got.n)
    for i = 1, want.n do
      assert.same(want[i].shape, got[i].shape)
      assert.equal(bits(want[i]), bits(got[i]), "result " .. i)
    end
  end
  return f.last:stats().steps
end

local function matrix(r, c, dtype) return sc.randn(r, c):to(dtype or "float32") end

-- name, most steps, function, arguments
local CASES = {
  { "a chain longer than a program of one tile", 1, function(x, y)
    local t = (x + x * x * x * 0.044715) * 0.7978845608
    return (((t:tanh() + 1.0) * x * 0.5 + y):relu()) * 1.1
  end, function() return sc.randn(5003), sc.randn(5003) end },
  { "arithmetic with operands on either side", 2, function(x, y)
    return (1.5 - (y / ((x - y) * x - 2.0))) * -1.0, (3.0 / (x + 4.0)):neg():square()
  end, function() return sc.rand(277) + 1, sc.rand(277) + 1 end },
  { "signs of zero, infinities and what is no number", 1, function(x) return 1.0 / (1.0 / (x - -0.0) * -0.0 + -0.0) end,
    function() return sc.tensor { 0.0, -0.0, 1.0, -1.0, math.huge, -math.huge, 2.0, -0.0, 5.0 } end },
  { "a value that several read", 1, function(x)
    local t = x:exp()
    return t + 1.0, t * x, t
  end, function() return matrix(7, 33) end },
  { "a mask and what it chooses", 2, function(x, y) return sc.where(x:gt(0), y, x * 0.1), x:gt(0) end,
    function() return matrix(40, 50), matrix(40, 50) end },
  { "softmax by hand", 1, function(x)
    local e = (x - x:amax(2, true)):exp()
    return e / e:sum(2, true)
  end, function() return matrix(37, 100) end },
  { "softmax by hand over short rows", 1, function(x)
    local e = (x - x:max(2, true)):exp()
    return e / e:sum(2, true)
  end, function() return matrix(300, 5) end },
  { "layer norm by hand, with broadcast rows", 1, function(x, g, b)
    local u = x - x:mean(2, true)
    return u * ((u * u):mean(2, true) + 1e-5):rsqrt() * g + b, u
  end, function() return matrix(19, 257), sc.randn(257), sc.randn(257) end },
  { "reductions over two dims, of float64", 2, function(x) return x - x:mean({ 2, 3 }, true), (x * x):sum({ 2, 3 }) end,
    function() return sc.randn(4, 5, 6):to("float64") end },
  { "a reduction to a number", 2, function(x, y) return ((x - y) * (x - y)):mean() * 0.5 end, function() return matrix(9, 9), matrix(9, 9) end },
  { "halves, rounded after every op", 1, function(x, y) return ((x * 1.7 + y) / 3.3):tanh() - x end,
    function() return matrix(20, 30, "float16"), matrix(20, 30, "float16") end },
  { "bfloat16", 1, function(x) return (x * x + 1.0):sqrt():sum(2, true) * x end, function() return matrix(20, 30, "bfloat16") end },
  { "small integers, which wrap", 1, function(x) return (x * 100 + 7) * 3 end, function() return sc.arange(200):to("int8") end },
  { "casts", 1, function(x) return ((x * 3.7):to("int32") + 1):to("float32") * 0.5 end, function() return sc.randn(300) end },
  { "what is turned stays apart", 2, function(x)
    local t = x * 2.0
    return t + t:t()
  end, function() return matrix(33, 33) end },
  { "nothing with no elements", 4, function(x) return (x * 2.0 + 1.0):tanh() end, function() return sc.zeros(0, 4) end },
}

describe("groups of nodes", function()
  for _, case in ipairs(CASES) do
    it("do " .. case[1] .. " in at most " .. case[2] .. " steps, with the same bits", function()
      assert.is_true(steps_of(case[3], case[4]()) <= case[2])
    end)
  end

  it("do not reach over a write to what they read", function()
    local s = sc.randn(50)
    local keep = s:clone()
    local function fn(x)
      local a = s * 2.0
      s:add_(x)
      return a + s, a * 3.0
    end
    local x = sc.randn(50)
    local want = table.pack(fn(x))
    s:copy_(keep)
    local got = table.pack(sc.compile(fn)(x))
    for i = 1, 2 do assert.equal(bits(want[i]), bits(got[i])) end
  end)

  it("name the member that makes a NaN", function()
    local line = debug.getinfo(1, "l").currentline
    local f = sc.compile(function(x)
      local y = x + 1.0
      local z = y:log()
      return sc.where(z:eq(z), z, 0.0) * 2.0
    end)
    f(sc.tensor { 1.0 })
    f.last:check_nan(true)
    local ok, err = pcall(f, sc.tensor { -3.0 })
    assert.is_false(ok)
    assert.truthy(err:find("check_nan: result 1 of log", 1, true), err)
    assert.truthy(err:find("fusion_spec.lua:" .. line + 3, 1, true), err)
    assert.near(2 * math.log(2), f(sc.tensor { 1.0 }):item(), 1e-6)
  end)
end)

describe("a training step of one sample", function()
  for _, kind in ipairs { "SGD", "Adam", "RMSprop", "Adagrad" } do
    it("updates by outer products it does not store, with the same bits: " .. kind, function()
      local function run(compiled)
        sc.manual_seed(3)
        local net = nn.Sequential(nn.Linear(5, 33), nn.ReLU(), nn.Linear(33, 301), nn.Tanh(), nn.Linear(301, 2))
        local opt, x, t = sc.optim[kind](net:parameters(), { lr = 0.01 }), sc.rand(1, 5), sc.rand(1, 2)
        local function step(a, b)
          opt:zero_grad()
          local loss = F.mse_loss(net(a), b)
          loss:backward()
          opt:step()
          return loss
        end
        if compiled then step = sc.compile(step, { exact = true }) end
        local seen = {}
        for i = 1, 4 do seen[i] = bits(step(x, t)) end
        for _, p in ipairs(net:parameters()) do seen[#seen + 1] = bits(p) end
        return seen, compiled and step.last
      end
      local want = run(false)
      local got, last = run(true)
      assert.same(want, got)
      for _, s in ipairs(last.plan:steps()) do assert.is_true(s.bytes < 33 * 301 * 4 or s.ns == 0) end
      assert.is_true(last:bytes() < 301 * 33 * 4) -- the largest gradient has no place in the arena
    end)
  end

  it("asks nothing of the allocator once it is warm, and knows its bytes before", function()
    local net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    local opt = sc.optim.AdamW(net:parameters(), { lr = 0.01 })
    local step = sc.compile(function(x, t)
      opt:zero_grad()
      local loss = F.cross_entropy(net(x), t)
      loss:backward()
      opt:step()
      return loss
    end)
    local x, t = sc.rand(6, 8), sc.tensor { 1, 2, 3, 4, 1, 2 }
    local bytes = step:run_for(x, t):bytes()
    for _ = 1, 3 do step(x, t):free() end
    local before = sc.stats().allocations
    for _ = 1, 50 do step(x, t):free() end
    assert.equal(before, sc.stats().allocations)
    assert.equal(bytes, step.last:bytes())
  end)
end)
