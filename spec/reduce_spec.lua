-- Reductions against plain Lua loops, and what must hold at their edges: NaN, ties, empty dims, threads, long sums, second derivatives.
local sc = require "sconce"

local NAN, INF = 0 / 0, math.huge

local function same(a, b, tol)
  if type(a) == "table" then
    if #a ~= #b then return false end
    for i = 1, #a do if not same(a[i], b[i], tol) then return false end end
    return true
  end
  if type(a) ~= "number" then return a == b end
  if a ~= a or b ~= b then return a ~= a and b ~= b end
  return a == b or math.abs(a - b) <= tol * (1 + math.abs(b))
end

local function check(got, expected, tol)
  if type(got) == "userdata" then got = got:dim() == 0 and got:item() or got:totable() end
  if not same(got, expected, tol or 1e-12) then assert.same(expected, got) end
end

-- What each op does with a list of numbers, written plainly.
local plain = {}
function plain.sum(v) local s = 0 for _, x in ipairs(v) do s = s + x end return s end
function plain.mean(v) return plain.sum(v) / #v end
function plain.prod(v) local p = 1 for _, x in ipairs(v) do p = p * x end return p end
function plain.amax(v) local m = -INF for _, x in ipairs(v) do if x > m or x ~= x then m = x end if m ~= m then return m end end return m end
function plain.amin(v) local m = INF for _, x in ipairs(v) do if x < m or x ~= x then m = x end if m ~= m then return m end end return m end
function plain.argmax(v) local k = 1 for i, x in ipairs(v) do if x > v[k] then k = i end end return k end
function plain.argmin(v) local k = 1 for i, x in ipairs(v) do if x < v[k] then k = i end end return k end
function plain.var(v) local m, s = plain.mean(v), 0 for _, x in ipairs(v) do s = s + (x - m) ^ 2 end return s / (#v - 1) end
function plain.std(v) return math.sqrt(plain.var(v)) end
function plain.logsumexp(v) local s = 0 for _, x in ipairs(v) do s = s + math.exp(x) end return math.log(s) end
function plain.count_nonzero(v) local n = 0 for _, x in ipairs(v) do if x ~= 0 then n = n + 1 end end return n end

local seed = 12345
local function random() seed = (seed * 1103515245 + 12345) % 2147483648 return seed / 2147483648 * 4 - 2 end

-- [a, b, c] numbers, and the lists that a reduction over dimension d takes them as, in the order of its results.
local function cube(a, b, c)
  local v = {}
  for i = 1, a do v[i] = {} for j = 1, b do v[i][j] = {} for k = 1, c do v[i][j][k] = random() end end end
  return v
end

local function along(v, d)
  local size = { #v, #v[1], #v[1][1] }
  local out, other = {}, {}
  for i = 1, 3 do if i ~= d then other[#other + 1] = i end end
  for p = 1, size[other[1]] do
    for q = 1, size[other[2]] do
      local list, at = {}, {}
      at[other[1]], at[other[2]] = p, q
      for r = 1, size[d] do at[d] = r list[r] = v[at[1]][at[2]][at[3]] end
      out[#out + 1] = list
    end
  end
  return out
end

describe("reductions", function()
  for name, f in pairs(plain) do
    it(name .. " equals a plain loop, packed or strided, along every dimension and in both float types", function()
      for _, size in ipairs { { 2, 3, 5 }, { 3, 1, 70 }, { 2, 33, 40 } } do
        local v = cube(table.unpack(size))
        for _, dtype in ipairs { "float64", "float32" } do
          local x = sc.tensor(v, { dtype = dtype })
          local strided = x:permute(3, 1, 2):contiguous():permute(2, 3, 1)
          local tol = dtype == "float64" and 1e-10 or 2e-5   -- float32: about forty roundings of 6e-8, and inputs rounded once
          for d = 1, 3 do
            local expected = {}
            for i, list in ipairs(along(v, d)) do expected[i] = f(list) end
            check(sc[name](x, d):reshape(-1), expected, tol)
            check(sc[name](strided, d):reshape(-1), expected, tol)
          end
        end
      end
    end)
  end

  it("give the same bits for any number of threads", function()
    sc.manual_seed(3)
    local x = sc.randn(700, 3001)
    local function all()
      local list = { x:sum(), x:sum(1), x:sum(2), x:mean(2), x:var(1), x:prod(2), x:logsumexp(2), x:logsumexp(1), x:norm(), x:norm(3, 2),
        x:amax(1), x:argmax(1), x:softmax(1), x:softmax(2), x:cumsum(2), x:cumsum(1), (x:sort(2)), (x:topk(5, 1)) }
      for i, t in ipairs(list) do list[i] = t:tostring_bytes() end
      return list
    end
    local threads = sc.get_num_threads()
    sc.set_num_threads(1)
    local one = all()
    for _, n in ipairs { 2, 3, 5 } do
      sc.set_num_threads(n)
      assert.same(one, all())
    end
    sc.set_num_threads(threads)
  end)

  it("keep long float32 sums exact to a rounding", function()
    assert.near(1e5, sc.full({ 1000000 }, 0.1):sum():item(), 0.02)
    assert.equal(1.0, sc.ones({ 100000 }, { dtype = "float16" }):mean():item())
    check(sc.full({ 1000000 }, 0.1):cumsum(1)[1000000], 1e5, 1e-6)
    check(sc.tensor { 1e8, 1.0, -1e8 }:sum(), 1.0)
    check((sc.tensor { 1.0, 2.0, 3.0, 4.0 } + 1e4):var(), 5 / 3, 1e-6)
  end)

  it("keep int64 exact", function()
    local big = 2 ^ 53 // 1 | 0
    assert.equal(big + 1, sc.tensor({ big + 1, big }):amax():item())
    assert.equal(1, sc.tensor({ big + 1, big }):argmax():item())
    assert.equal(2 * big + 1, sc.tensor({ big + 1, big }):sum():item())
    assert.equal("int64", sc.tensor({ true, true, false }):sum().dtype)
  end)

  it("let a NaN win and give the first of equals", function()
    local x = sc.tensor { { 1.0, NAN, 3.0 }, { 2.0, 2.0, 1.0 } }
    local v, i = x:max(2)
    check(v, { NAN, 2.0 })
    check(i, { 2, 1 })
    check(x:amin(1), { 1.0, NAN, 1.0 })
    check(x:argmin(2), { 2, 3 })
    check(x:nansum(), 9.0)
    check(x:nanmean(1), { 1.5, 2.0, 2.0 })
  end)

  it("of nothing: the neutral element, or an error that names the dimension", function()
    local e = sc.zeros { 0, 3 }
    check(e:sum(1), { 0, 0, 0 })
    check(e:prod(1), { 1, 1, 1 })
    check(e:mean(1), { NAN, NAN, NAN })
    check(e:logsumexp(1), { -INF, -INF, -INF })
    assert.equal(true, e:all():item())
    assert.equal(false, e:any():item())
    for _, name in ipairs { "amax", "amin", "max", "argmax", "median", "mode" } do
      assert.error_matches(function() sc[name](e, 1) end, name .. ".*dimension 1")
    end
    check(e:amax(2), {})
  end)

  it("refuse dimensions that are 0, out of range or named twice", function()
    local x = sc.ones(2, 3)
    assert.error_matches(function() x:sum(0) end, "sum")
    assert.error_matches(function() x:sum(3) end, "dimension 3 is out of range")
    assert.error_matches(function() x:sum { 1, -2 } end, "twice")
    check(sc.tensor(2.5):sum(1), 2.5)
    check(sc.tensor(2.5):sum(-1), 2.5)
  end)

  it("var of one element is NaN, biased 0; std of a constant has gradient 0", function()
    check(sc.tensor { 3.0 }:var(), NAN)
    check(sc.tensor { 3.0 }:var(false), 0)
    local x = sc.tensor({ 2.0, 2.0, 2.0 }, { requires_grad = true })
    x:std():backward()
    check(x.grad, { 0, 0, 0 })
  end)

  it("logsumexp of only -inf has gradient 0, norms have gradient 0 at the origin", function()
    local x = sc.tensor({ -INF, -INF }, { requires_grad = true })
    local y = x:logsumexp(1)
    check(y, -INF)
    y:backward()
    check(x.grad, { 0, 0 })
    for _, p in ipairs { 1, 2, 3, INF } do
      local z = sc.zeros({ 3 }, { dtype = "float64" })
      z.requires_grad = true
      z:norm(p):backward()
      check(z.grad, { 0, 0, 0 })
    end
  end)

  it("share the gradient of equal extremes, or give it to the index", function()
    local x = sc.tensor({ 1.0, 3.0, 3.0 }, { requires_grad = true })
    check(sc.grad(x:max(), x), { 0, 0.5, 0.5 })
    check(sc.grad((x:max(1)), x), { 0, 1, 0 })
    check(sc.grad(x:amin(), x), { 1, 0, 0 })
  end)

  it("give prod and cumprod exact gradients with one and with two zeros", function()
    for _, case in ipairs {
      { { 2.0, 0.0, 3.0 }, { 0, 6, 0 }, { 1 + 0, 2 + 6, 0 } },
      { { 0.0, 0.0, 3.0 }, { 0, 0, 0 }, { 1, 0, 0 } },
    } do
      local x = sc.tensor(case[1], { dtype = "float64", requires_grad = true })
      check(sc.grad(x:prod(), x), case[2])
      check(sc.grad(x:cumprod(1):sum(), x), case[3])
    end
  end)

  local differentiable = {
    prod = function(x) return x:prod(1) end, var = function(x) return x:var(2) end, std = function(x) return x:std(1) end,
    norm3 = function(x) return x:norm(3, 2) end, norm2 = function(x) return x:norm() end, logsumexp = function(x) return x:logsumexp(1) end,
    softmax = function(x) return x:softmax(2) end, log_softmax = function(x) return x:log_softmax(1) end,
    cumprod = function(x) return x:cumprod(2) end, logcumsumexp = function(x) return x:logcumsumexp(1) end,
    cumsum = function(x) return x:cumsum(1) * x end, quantile = function(x) return x:quantile(0.3, 2) * x:sum(2) end,
    amax = function(x) return x:amax(1) * x:sum(1) end, topk = function(x) return (x:topk(2, 1)) ^ 2 end,
  }
  for name, f in pairs(differentiable) do
    it(name .. " has the first and second derivative of a central difference", function()
      local v = { { 0.7, -1.3, 0.4 }, { 1.9, 0.2, -0.6 } }
      local direction = sc.tensor({ { 0.3, -0.2, 0.5 }, { 0.1, 0.7, -0.4 } }, { dtype = "float64" })
      local function first(x)
        x = x:detach()
        x.requires_grad = true
        local y = f(x)
        local weight = (sc.arange(1, y:numel() + 1, { dtype = "float64" }) * 0.37):sin():reshape(y.shape)
        local g = sc.grad((y * weight):sum(), x, { create_graph = true })
        return (y * weight):sum():item(), g, x
      end
      local x = sc.tensor(v, { dtype = "float64" })
      local _, g, leaf = first(x)
      local h = 1e-5
      local up, gup = first(x + direction * h)
      local down, gdown = first(x - direction * h)
      check((g * direction):sum():item(), (up - down) / (2 * h), 1e-7)
      local second = sc.grad((g * direction):sum(), leaf)
      check(second:reshape(-1), ((gup - gdown) / (2 * h)):detach():reshape(-1):totable(), 1e-6)
    end)
  end

  it("softmax has rows that sum to one whatever the size, dim and dtype", function()
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
      for _, n in ipairs { 1, 7, 33, 300 } do
        local x = (sc.randn(3, n, 4) * 20):to(dtype)
        local tol = dtype == "bfloat16" and 2e-2 or dtype == "float16" and 2e-3 or 1e-5
        for d = 1, 3 do
          local s = x:softmax(d):float():sum(d):reshape(-1):totable()
          for i = 1, #s do assert.near(1, s[i], tol) end
          check(x:float():log_softmax(d):exp():sum(d):reshape(-1), sc.ones(#s):totable(), 1e-4)
        end
      end
    end
    check(sc.tensor { 1000.0, 0.0, -1000.0 }:softmax(1), { 1, 0, 0 })
    check(sc.tensor { 1000.0, 0.0 }:log_softmax(1), { 0, -1000 })
  end)
end)
