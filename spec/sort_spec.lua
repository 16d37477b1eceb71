-- Sorting and searching against plain Lua: table.sort with ties by position, and counting by hand.
local sc = require "sconce"

local NAN, INF = 0 / 0, math.huge

local seed = 99
local function random(n) seed = (seed * 1103515245 + 12345) % 2147483648 return seed // 65536 % n end

local function key(v) return v ~= v and INF or v end
-- Order of a list: NaN after all else, equal ones as they came; descending is the reverse of the values, not of the ties.
local function order_of(list, descending)
  local order = {}
  for i = 1, #list do order[i] = i end
  table.sort(order, function(i, j)
    local a, b = list[i], list[j]
    local na, nb = a ~= a, b ~= b
    if na ~= nb then if descending then return na else return nb end end
    if not na and key(a) ~= key(b) then if descending then return a > b else return a < b end end
    return i < j
  end)
  return order
end

local function text(v) return v ~= v and "nan" or string.format("%.17g", v + 0) end
local function texts(list) local out = {} for i, v in ipairs(list) do out[i] = text(v) end return out end

describe("sort", function()
  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64" } do
    it("is stable, NaN last, in both directions and for short and long lines of " .. dtype, function()
      for _, n in ipairs { 1, 2, 15, 17, 100, 191, 300 } do
        local list = {}
        for i = 1, n do
          list[i] = random(60) - (dtype == "uint8" and 0 or 30)
          if dtype:find("float") then list[i] = list[i] / 4 if random(12) == 0 then list[i] = NAN end end
        end
        local x = sc.tensor(list, { dtype = dtype })
        for _, descending in ipairs { false, true } do
          local order = order_of(list, descending)
          local values = {}
          for k, i in ipairs(order) do values[k] = list[i] end
          local v, i = x:sort(1, descending)
          assert.same(order, i:totable())
          assert.same(texts(values), texts(v:totable()))
          local k = math.min(n, 5)
          local tv, ti = x:topk(k, 1, descending)
          assert.same({ table.unpack(order, 1, k) }, ti:totable())
          assert.same({ table.unpack(texts(values), 1, k) }, texts(tv:totable()))
        end
      end
    end)
  end

  it("sorts along any dimension of a strided tensor, long lines too", function()
    local x = sc.randn(70000, 2):transpose(1, 2)
    local v, i = x:sort(2)
    assert.is_true(v:narrow(2, 2, 69999):ge(v:narrow(2, 1, 69999)):all():item())
    assert.is_true(sc.equal(x:gather(2, i), v))
    assert.is_true(sc.equal((x:transpose(1, 2):sort(1)):transpose(1, 2), v))
  end)

  it("keeps neighbours above 2^53 apart, and the ends of int64 in order", function()
    local big = 1 << 53
    local v, i = sc.tensor({ big + 1, math.maxinteger, big, math.mininteger }):sort()
    assert.same({ math.mininteger, big, big + 1, math.maxinteger }, v:totable())
    assert.same({ 4, 3, 1, 2 }, i:totable())
  end)

  it("refuses k beyond the size and dimension 0", function()
    local x = sc.ones(3)
    assert.error_matches(function() x:topk(4) end, "topk: argument 2 %(k%)")
    assert.error_matches(function() x:kthvalue(4) end, "kthvalue: argument 2 %(k%)")
    assert.error_matches(function() x:sort(0) end, "sort")
  end)

  it("sends the gradient where the values came from", function()
    local x = sc.tensor({ 3.0, 1.0, 2.0 }, { requires_grad = true })
    local w = sc.tensor { 10.0, 20.0, 30.0 }
    assert.same({ 30, 10, 20 }, sc.grad(((x:sort()) * w):sum(), x):totable())
    assert.same({ 0, 0, 1 }, sc.grad((x:median(1)), x):totable())
    assert.same({ 1, 0, 0 }, sc.grad((x:kthvalue(3)), x):totable())
  end)
end)

describe("what is read off a sorted line", function()
  it("median is the lower of two, NaN when there is one; nanmedian leaves NaN out", function()
    assert.equal(2, sc.tensor { 4.0, 1.0, 2.0, 3.0 }:median():item())
    local v = sc.tensor({ 4.0, NAN, 1.0 }):median():item()
    assert.is_true(v ~= v)
    assert.equal(1, sc.tensor({ 4.0, NAN, 1.0 }):nanmedian():item())
  end)

  it("mode is the most frequent, the smallest of equally frequent ones, where it is last", function()
    local v, i = sc.tensor({ 3, 1, 1, 2, 2, 3 }):mode()
    assert.equal(1, v:item())
    assert.equal(3, i:item())
  end)

  it("quantiles interpolate", function()
    local x = sc.tensor { 1.0, 4.0, 2.0, 3.0 }
    for mode, expected in pairs { linear = 2.2, lower = 2, higher = 3, midpoint = 2.5, nearest = 2 } do
      assert.near(expected, x:quantile(0.4, 1, false, mode):item(), 1e-6)
    end
    assert.same({ 3, 1, 2 }, sc.randn(4, 2):quantile(sc.tensor { 0.1, 0.5, 0.9 }, 1, true).shape)
    assert.near(2, sc.tensor({ 1.0, NAN, 3.0 }):nanquantile(0.5):item(), 1e-6)
  end)

  it("unique gives values, where each went and how often", function()
    local v, i, n = sc.tensor({ 5, 1, 5, 2 }):unique { return_inverse = true, return_counts = true }
    assert.same({ 1, 2, 5 }, v:totable())
    assert.same({ 3, 1, 3, 2 }, i:totable())
    assert.same({ 1, 1, 2 }, n:totable())
    assert.same({ { 0, 9 }, { 1, 2 } }, sc.tensor({ { 1, 2 }, { 0, 9 }, { 1, 2 } }):unique({ dim = 1 }):totable())
    assert.same({ 1, 2, 1 }, sc.tensor({ 1, 1, 2, 2, 1 }):unique_consecutive():totable())
  end)

  it("searchsorted and bucketize say where a value would go", function()
    local edges = sc.tensor { 1.0, 3.0, 3.0, 5.0 }
    local x = sc.tensor { 0.0, 3.0, 5.0, 9.0, NAN }
    assert.same({ 1, 2, 4, 5, 5 }, sc.searchsorted(edges, x):totable())
    assert.same({ 1, 4, 5, 5, 5 }, sc.searchsorted(edges, x, { right = true }):totable())
    assert.same({ 1, 2, 4, 5, 5 }, sc.bucketize(x, edges):totable())
    local shuffled = sc.tensor { 5.0, 1.0, 3.0, 3.0 }
    assert.same({ 2 }, sc.searchsorted(shuffled, sc.tensor { 3.0 }, { sorter = shuffled:argsort() }):totable())
    assert.error_matches(function() sc.searchsorted(edges, x, { sorter = sc.tensor { 1, 2, 3, 9 } }) end, "sorter")
  end)

  it("counts labels, bins and members", function()
    assert.same({ 2, 0, 1 }, sc.bincount(sc.tensor { 1, 3, 1 }):totable())
    assert.error_matches(function() sc.bincount(sc.tensor { 0, 1 }) end, "label 0")
    assert.same({ 2, 1, 2 }, sc.tensor({ 1.0, 1.5, 2.0, 3.0, 4.0 }):histc(3):totable())
    local h, e = sc.histogram(sc.tensor { 1.0, 2.0, 3.0, 3.0 }, 2)
    assert.same({ 1, 3 }, h:totable())
    assert.same({ 1, 2, 3 }, e:totable())
    assert.same({ true, false }, sc.isin(sc.tensor { 2, 4 }, sc.tensor { 1, 2 }):totable())
  end)

  it("integrates and takes differences", function()
    assert.near(4, sc.trapezoid(sc.tensor { 1.0, 2.0, 3.0 }):item(), 1e-6)
    assert.near(7, sc.trapezoid(sc.tensor { 1.0, 2.0, 3.0 }, sc.tensor { 0.0, 3.0, 4.0 }):item(), 1e-6)
    assert.same({ 1, 3 }, sc.tensor({ 1, 2, 5 }):diff():totable())
    assert.near(5, sc.dist(sc.tensor { 3.0, 0.0 }, sc.tensor { 0.0, 4.0 }):item(), 1e-6)
  end)
end)
