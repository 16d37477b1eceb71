local sc = require "sconce"
local F = sc.functional

local N = 40000

local function moments(x)
  local v, s, q = x:to("float64"):reshape(-1):totable(), 0, 0
  for i = 1, #v do s = s + v[i] end
  local mean = s / #v
  for i = 1, #v do q = q + (v[i] - mean) ^ 2 end
  return mean, q / #v
end

local function new(dtype) return sc.empty({ N }, { dtype = dtype }) end

-- law, a draw, its mean, its variance, least and greatest value (nil: none)
local LAWS = {
  { "rand", function() return sc.rand(N) end, 1 / 2, 1 / 12, 0, 1 },
  { "rand in float64", function() return sc.rand({ N }, { dtype = "float64" }) end, 1 / 2, 1 / 12, 0, 1 },
  { "rand in float16", function() return sc.rand({ N }, { dtype = "float16" }) end, 1 / 2, 1 / 12, 0, 1 - 2 ^ -11 },
  { "rand in bfloat16", function() return sc.rand({ N }, { dtype = "bfloat16" }) end, 1 / 2, 1 / 12, 0, 1 - 2 ^ -8 },
  { "randn", function() return sc.randn(N) end, 0, 1, -7, 7 },
  { "randn in float64", function() return sc.randn({ N }, { dtype = "float64" }) end, 0, 1, -9, 9 },
  { "randint", function() return sc.randint(-3, 4, { N }) end, 0, 4, -3, 3 },
  { "randint from 0", function() return sc.randint(6, { N }, { dtype = "uint8" }) end, 2.5, 35 / 12, 0, 5 },
  { "bernoulli", function() return sc.full({ N }, 0.3):bernoulli() end, 0.3, 0.21, 0, 1 },
  { "bernoulli_ of a tensor", function() return new():bernoulli_(sc.full({ N }, 0.3)) end, 0.3, 0.21, 0, 1 },
  { "normal of numbers", function() return sc.normal(3, 2, { N }) end, 3, 4 },
  { "normal of tensors", function() return sc.normal(sc.full({ N }, 3.0), sc.full({ 1 }, 2.0)) end, 3, 4 },
  { "uniform_", function() return new():uniform_(-2, 4) end, 1, 3, -2, 4 },
  { "normal_", function() return new("float64"):normal_(1, 0.5) end, 1, 0.25 },
  { "log_normal_", function() return new():log_normal_(0, 0.25) end, math.exp(1 / 32), (math.exp(1 / 16) - 1) * math.exp(1 / 16), 0 },
  { "exponential_", function() return new():exponential_(2) end, 0.5, 0.25, 0 },
  { "geometric_", function() return new():geometric_(0.5) end, 2, 2, 1 },
  { "random_ of bytes", function() return new("uint8"):random_() end, 127.5, 65535 / 12, 0, 255 },
  { "random_ between bounds", function() return new("int32"):random_(10, 12) end, 10.5, 0.25, 10, 11 },
  { "trunc_normal_", function() return new():trunc_normal_(0, 1, -1, 1) end, 0, 0.2911251, -1, 1 },
  { "multinomial", function() return sc.tensor({ 0.0, 1.0, 0.0, 3.0 }):multinomial(N, true) end, 3.5, 0.75, 2, 4 },
}

describe("random tensors", function()
  before_each(function() sc.manual_seed(20) end)

  for _, law in ipairs(LAWS) do
    it("have the mean, variance and range of their law: " .. law[1], function()
      local x = law[2]()
      local mean, variance = moments(x)
      local sigma = math.sqrt(law[4] / N)
      assert.near(law[3], mean, 5 * sigma)
      assert.near(law[4], variance, 0.05 * law[4])
      local v = x:to("float64"):reshape(-1):totable()
      for i = 1, #v do
        if law[5] and v[i] < law[5] or law[6] and v[i] > law[6] then error("out of range: " .. v[i]) end
      end
    end)
  end

  it("are the same for any number of threads, cut anywhere", function()
    local threads, seen = sc.get_num_threads(), nil
    for _, n in ipairs { 1, 2, 3 } do
      sc.set_num_threads(n)
      sc.manual_seed(4)
      local all = {}
      for _, size in ipairs { 1, 63, 65, 300001 } do
        all[#all + 1] = sc.rand(size):tostring_bytes()
        all[#all + 1] = sc.randn(size):tostring_bytes()
        all[#all + 1] = F.dropout(sc.ones(size), 0.3):tostring_bytes()
      end
      all = table.concat(all)
      seen = seen or all
      assert.is_true(seen == all)
    end
    sc.set_num_threads(threads)
  end)

  it("begin alike whatever their length", function()
    sc.manual_seed(1)
    local long = sc.randn(3000):totable()
    sc.manual_seed(1)
    local short = sc.randn(5):totable()
    assert.same(short, table.move(long, 1, 5, 1, {}))
  end)

  it("repeat after a state is put back, as a tensor or a string", function()
    sc.rand(3)
    local state = sc.get_rng_state()
    local a = sc.randn(4):totable()
    sc.set_rng_state(state)
    local b = sc.randn(4):totable()
    sc.set_rng_state(state:tostring_bytes())
    assert.same({ a, a }, { b, sc.randn(4):totable() })
    assert.has_error(function() sc.set_rng_state("short") end)
    assert.has_error(function() sc.set_rng_state(sc.zeros(16)) end)
  end)

  it("drawn with a generator leave the stream alone", function()
    local want = sc.rand(2):totable()
    sc.manual_seed(20)
    local g = sc.Generator(7)
    local a = sc.randperm(20, { generator = g }):totable()
    local x = sc.zeros(3):normal_(0, 1, { generator = g }):totable()
    assert.same(want, sc.rand(2):totable())
    g:manual_seed(7)
    assert.same({ a, x, 7 }, { sc.randperm(20, { generator = g }):totable(), sc.zeros(3):normal_(0, 1, { generator = g }):totable(),
      g:initial_seed() })
    local state = g:get_state()
    local y = sc.rand({ 2 }, { generator = g }):totable()
    assert.same(y, sc.rand({ 2 }, { generator = g:set_state(state) }):totable())
  end)

  it("permute 1 to n", function()
    for _, n in ipairs { 0, 1, 2, 1000 } do
      local p = sc.randperm(n):totable()
      table.sort(p)
      for i = 1, n do assert.equal(i, p[i]) end
      assert.equal(n, #p)
    end
  end)

  it("choose without replacement in proportion, and never weight 0", function()
    local first = 0
    for _ = 1, 500 do
      local r = sc.tensor({ 0.0, 1.0, 0.0, 3.0 }):multinomial(2):totable()
      table.sort(r)
      assert.same({ 2, 4 }, r)
      first = first + (sc.tensor({ { 1.0, 3.0 } }):multinomial(1):totable()[1][1] == 2 and 1 or 0)
    end
    assert.near(375, first, 50)
  end)

  -- what is wrong, the call, a word of the message
  local WRONG = {
    { "probabilities above 1", function() sc.tensor({ 0.5, 1.5 }):bernoulli() end, "1.5" },
    { "NaN as a probability", function() sc.zeros(2):bernoulli_(sc.tensor { 0.5, 0 / 0 }) end, "nan" },
    { "negative deviations", function() sc.normal(sc.zeros(2), sc.tensor { 1.0, -1.0 }) end, "negative" },
    { "two numbers without a size", function() sc.normal(0, 1) end, "size" },
    { "an empty range", function() sc.randint(3, 3, { 1 }) end, "lower bound" },
    { "numbers beyond the dtype", function() sc.randint(0, 300, { 1 }, { dtype = "uint8" }) end, "uint8" },
    { "a range turned round", function() sc.zeros(1):uniform_(1, 0) end, "from" },
    { "a rate of 0", function() sc.zeros(1):exponential_(0) end, "rate" },
    { "uniform integers", function() sc.zeros({ 1 }, { dtype = "int64" }):uniform_() end, "floating" },
    { "random integers of rand", function() sc.rand({ 1 }, { dtype = "int64" }) end, "floating" },
    { "negative weights", function() sc.tensor({ 1.0, -1.0 }):multinomial(1) end, "negative" },
    { "infinite weights", function() sc.tensor({ 1.0, math.huge }):multinomial(1, true) end, "inf" },
    { "weights of 0", function() sc.zeros(3):multinomial(1) end, "sum to 0" },
    { "too many without replacement", function() sc.ones(3):multinomial(4) end, "3" },
    { "too many with a weight", function() sc.tensor({ 1.0, 0.0 }):multinomial(2) end, "weight above 0" },
    { "a probability of dropout above 1", function() F.dropout(sc.ones(1), 1.5) end, "1.5" },
    { "a negative permutation", function() sc.randperm(-1) end, "-1" },
    { "a permutation that a dtype cannot hold", function() sc.randperm(300, { dtype = "uint8" }) end, "uint8" },
  }
  for _, row in ipairs(WRONG) do
    it("refuse " .. row[1] .. " and draw nothing", function()
      local before = sc.get_rng_state():tostring_bytes()
      local ok, message = pcall(row[2])
      assert.is_false(ok)
      assert.truthy(message:find(row[3], 1, true), message)
      assert.equal(before, sc.get_rng_state():tostring_bytes())
    end)
  end
end)

describe("dropout", function()
  before_each(function() sc.manual_seed(3) end)

  for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16" } do
    it("keeps 1 - p of the elements, scaled, and its gradient has the same mask in " .. dtype, function()
      local x = sc.ones({ 100, 77 }, { dtype = dtype, requires_grad = true })
      local y = F.dropout(x:t(), 0.5)
      y:sum():backward()
      local kept, v, g = 0, y:totable(), x.grad:totable()
      for i = 1, 77 do
        for j = 1, 100 do
          kept = kept + (v[i][j] == 2 and 1 or 0)
          assert.is_true((v[i][j] == 0 or v[i][j] == 2) and v[i][j] == g[j][i])
        end
      end
      assert.near(3850, kept, 250)
    end)
  end

  it("has a second derivative", function()
    local x = sc.full({ 50 }, 2.0, { dtype = "float64", requires_grad = true })
    local y = F.dropout(x, 0.5)
    local d = sc.grad((y * y):sum(), x, { create_graph = true })
    local dd = sc.grad(d:sum(), x)
    local m, second = y:totable(), dd:totable()
    for i = 1, 50 do assert.equal(m[i] == 0 and 0 or 8, second[i]) end
  end)

  it("is the identity when not training or with p = 0, and zeros with p = 1", function()
    local x = sc.tensor({ 1.0, math.huge }, { requires_grad = true })
    assert.same({ 1, math.huge }, F.dropout(x, 0.5, false):totable())
    assert.same({ 1, math.huge }, F.dropout(x, 0):totable())
    local y = F.dropout(x, 1)
    y:sum():backward()
    assert.same({ { 0, 0 }, { 0, 0 } }, { y:totable(), x.grad:totable() })
  end)

  it("drops whole channels", function()
    for _, case in ipairs { { "dropout1d", { 40, 5, 3 } }, { "dropout1d", { 200, 3 } }, { "dropout2d", { 40, 5, 2, 2 } },
      { "dropout3d", { 40, 5, 1, 2, 2 } }, { "dropout3d", { 200, 1, 2, 2 } } } do
      local y = F[case[1]](sc.ones(case[2]), 0.5):reshape(200, -1):totable()
      local kept = 0
      for i = 1, 200 do
        for j = 2, #y[i] do assert.equal(y[i][1], y[i][j]) end
        kept = kept + (y[i][1] > 0 and 1 or 0)
      end
      assert.near(100, kept, 35)
    end
  end)

  it("writes into its argument when asked to", function()
    local x = sc.ones(1000)
    local y = F.dropout(x, { p = 0.5, inplace = true })
    assert.same(x:totable(), y:totable())
    assert.near(1000, x:sum():item(), 160)
  end)

  it("keeps mean and variance in its alpha form", function()
    local mean, variance = moments(F.alpha_dropout(sc.randn(N), 0.3, true))
    assert.near(0, mean, 0.03)
    assert.near(1, variance, 0.05)
    assert.equal(8, F.feature_alpha_dropout(sc.ones(2, 2, 2), 0.5, true):numel())
  end)
end)
