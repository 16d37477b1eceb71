-- Corners of single ops where PyTorch 1.13 says what holds, found by running its own operator samples. Expected values are its results
-- or follow by hand.
local sc = require "sconce"
local F = sc.nn.functional

local function table_of(x) return x:dim() == 0 and x:item() or x:totable() end

-- name, what runs, the value it gives
local VALUES = {
  { "cov of one variable has no dimensions", function() return sc.cov(sc.tensor { { 1.0, 3.0, 5.0 } }) end, 4.0 },
  { "corrcoef of one variable has none either", function() return sc.corrcoef(sc.tensor { { 1.0, 3.0, 5.0 } }) end, 1.0 },
  { "an empty index may have any dtype", function()
    return sc.ones(3):gather(1, sc.zeros({ 0 }, { dtype = "uint8" }))
  end, {} },
  { "sums of integers down to a size are int64", function() return sc.ones({ 2, 3 }, { dtype = "int32" }):sum_to_size { 1, 3 } end,
    { { 2, 2, 2 } }, "int64" },
  { "a size that is there already keeps the dtype", function() return sc.ones({ 3 }, { dtype = "int32" }):sum_to_size { 3 } end,
    { 1, 1, 1 }, "int32" },
  { "a degree above -1 counts as 0", function()
    return sc.special.chebyshev_polynomial_t(sc.tensor { 2.0, 2.0, 2.0, 2.0 }, sc.tensor { -0.5, -1.5, 0.5, 2.5 })
  end, { 1, 0, 1, 7 } },
  { "polygamma vanishes at infinity", function() return sc.polygamma(1, sc.tensor { math.huge }) end, { 0 } },
  { "slices are ordered after exchanging dim with the first dimension", function()
    -- along dim 3 the slices are [[0, 1], [1, 0]], [[1, 1], [0, 0]] read as columns first: (0, 1, 1, 0) and (1, 0, 1, 0)
    return (sc.unique(sc.tensor { { { 1, 0 }, { 1, 1 } }, { { 0, 1 }, { 0, 0 } } }, { dim = 3 }))
  end, { { { 0, 1 }, { 1, 1 } }, { { 1, 0 }, { 0, 0 } } } },
  { "no stride is the kernel's size", function() return F.avg_pool2d(sc.ones(1, 1, 4, 4), { 2, 2 }, {}):sum() end, 4.0 },
  { "an adaptive pool keeps the sizes left out", function()
    return sc.tensor(F.adaptive_avg_pool2d(sc.ones(1, 1, 4, 6), { nil, 3 }).shape)
  end, { 1, 1, 4, 3 } },
  { "digamma has its pole at 0, not beside it", function()
    return sc.tensor({ -1e-30, 1e-30 }, { dtype = "float64" }):digamma() * 1e-30
  end, { 1, -1 } },
  { "also the last ones", function() return sc.tensor((F.adaptive_max_pool2d(sc.ones(1, 1, 4, 6), { 2, nil })).shape) end, { 1, 1, 2, 6 } },
}

-- name, what runs on x = {1, 2, 4} (float64), its gradient
local GRADIENTS = {
  { "true counts as 1 in a scaled op", function(x) return sc.zeros({ 3 }, { dtype = "float64" }):addcmul(x, x, { value = true }) end, { 2, 4, 8 } },
  { "a quantile moves with q", function(x)
    -- q = x / 8 = 1/8, 1/4, 1/2 of {0, 10, 30}: the slope in q is 2 * 10 at the first two and q = x / 8; at an element lerp has none
    return sc.tensor({ 0.0, 10.0, 30.0 }, { dtype = "float64" }):quantile(x / 8)
  end, { 2.5, 2.5, 0 } },
  { "hardswish is 0 up to -3 and x from 3", function(x) return F.hardswish(sc.cat { x * 3 - 6, x * 3 - 3 }) end, { 1.5, 4.5, 6 } },
  { "a class just at the margin costs nothing and has no slope", function(x)
    return F.multi_margin_loss(x * x:ne(2), sc.tensor(1)) + F.multilabel_margin_loss(x * x:ne(2), sc.tensor { 1, -1, -1 })
  end, { -2 / 3, 0, 2 / 3 } },
  { "a probability of 0 has the slope that others have", function(x)
    local logits = sc.tensor({ { 0.0, math.log(3), -math.huge } }, { dtype = "float64" })
    return F.cross_entropy(logits, ((x - 1) * sc.tensor({ 1, 0, 0 }, { dtype = "float64" })):reshape(1, 3))
  end, { math.log(4), 0, 0 } },
  { "no reflections still have a history", function(x)
    return sc.linalg.householder_product(x:reshape(3, 1), sc.zeros({ 0 }, { dtype = "float64" }))
  end, { 0, 0, 0 } },
}

describe("as PyTorch has it:", function()
  for _, row in ipairs(VALUES) do
    it(row[1], function()
      local y = row[2]()
      assert.same(row[3], table_of(y))
      if row[4] then assert.equal(row[4], y.dtype) end
    end)
  end

  for _, row in ipairs(GRADIENTS) do
    it(row[1], function()
      local x = sc.tensor({ 1.0, 2.0, 4.0 }, { dtype = "float64", requires_grad = true })
      row[2](x):sum():backward()
      assert.same(row[3], x.grad:totable())
    end)
  end
end)
