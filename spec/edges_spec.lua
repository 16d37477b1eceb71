-- Inputs at the edge of what an op is defined for, each once found wrong. Expected values are PyTorch 1.13's, or follow by hand.
local sc = require "sconce"
local F = sc.nn.functional

local function close(want, got)
  for i, v in ipairs(want) do assert.is_true(math.abs(v - got[i]) < 1e-6, ("%g, expected %g"):format(got[i], v)) end
end

describe("edges", function()
  it("cosine_similarity broadcasts before it measures", function()
    -- the cosine of (1, 2, 3) and (2, 2, 2) is 6 / sqrt(14 * 3)
    close({ 6 / math.sqrt(42) }, { F.cosine_similarity(sc.tensor{{1.0, 2.0, 3.0}}, sc.tensor{{2.0}}, 2):item() })
    local many = F.cosine_similarity(sc.tensor{{3.0, 4.0}, {1.0, 0.0}}, sc.tensor{4.0, 3.0}, 2)
    close({ 24 / 25, 4 / 5 }, many:totable())
  end)

  it("the norm of nothing is 0 in every order", function()
    for _, p in ipairs{ 1, 2, math.huge, -math.huge } do
      assert.equal(0, sc.zeros(0):norm(p):item())
      assert.same({ 0, 0, 0 }, sc.zeros(0, 3):norm(p, 1):totable())
      assert.same({ 0 }, sc.zeros(0, 3):norm(p, 2).shape)
    end
  end)

  it("rounding goes to any number of decimals", function()
    assert.same({ 1200, -0.0 }, sc.tensor{ 1234.5, -2.5 }:round(-2):totable())
    for _, n in ipairs{ math.mininteger, math.maxinteger } do assert.same({ 2 }, sc.tensor{ 1.5, 2.5 }:round(n).shape) end
  end)

  it("points without coordinates are 0 apart in every norm", function()
    for _, p in ipairs{ 0, 1, 2, 3, math.huge } do
      assert.same({ { 0, 0, 0 }, { 0, 0, 0 } }, sc.cdist(sc.zeros(2, 0), sc.zeros(3, 0), p):totable())
    end
  end)

  it("the gradient of a variance with less freedom than none is finite, as that of its mean", function()
    local x = sc.tensor({ { 1.0, 2.0 } }, { requires_grad = true })
    local var, mean = sc.var_mean(x, { dim = 1, correction = 2 })
    assert.is_true(var:isnan():all():item())
    mean:sum():backward()
    assert.same({ { 1, 1 } }, x.grad:totable())
    x.grad = nil
    x:var({ dim = 1, correction = 2 }):sum():backward()
    close({ 0, 0 }, x.grad:totable()[1])
  end)

  it("index values at the ends of int64 are refused by number", function()
    for _, v in ipairs{ math.mininteger, math.maxinteger, 0, 4 } do
      local function refused(f) assert.has_error(f); assert.truthy(select(2, pcall(f)):find(tostring(v), 1, true)) end
      refused(function() return F.ctc_loss(sc.zeros(3, 1, 3), sc.tensor{{1, v}}, sc.tensor{3}, sc.tensor{2}) end)
      refused(function() return F.max_unpool1d(sc.zeros(1, 1, 1), sc.tensor{{{v}}}, 3) end)
      refused(function() return sc.searchsorted(sc.tensor{1.0, 2.0, 3.0}, sc.tensor{1.5}, { sorter = sc.tensor{1, v, 2} }) end)
    end
  end)

  it("more terms or pieces than anybody could wait for are refused", function()
    assert.has_error(function() return sc.ones(2):mvlgamma(1 << 40) end)
    assert.has_error(function() return sc.ones(2):tensor_split(1 << 61) end)
  end)

  it("what a terminal would obey is escaped in messages", function()
    local name = ("%s\27[31m\8"):rep(100000)
    local g = sc.graph()
    g:output("y", g:input(name, { 2 }) + 1)
    local run = g:compile()
    for _, f in ipairs{ function() return sc.ones(2):norm(name) end, function() run{ [name] = 1 } end, function() return sc.nn.Linear(name, 2) end } do
      local ok, text = pcall(f)
      assert.is_false(ok)
      assert.is_nil(text:find("[\27\8]"))
      assert.is_true(#text < 2000)
    end
  end)
end)
