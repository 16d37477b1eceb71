--- Results that take over the memory of an operand: how much memory plans take, when nothing may be overwritten, and random graphs with
--- views, several readers, several results, branches and loops, of which random values are fetched.
local sc = require "sconce"
local core = require "sconce.core"
local F = sc.nn.functional

local N = 32
local BYTES = N * N * 4

--- What a graph needs between a product and a product, with the pass and without, in matrices.
local function matrices(fn, dtype)
  local out = {}
  for i, passes in ipairs { { epilogues = false, reuse = false }, { epilogues = false } } do
    local g = sc.graph()
    local x = g:input("x", { N, N }, dtype or "float32")
    local w = sc.rand(N, N)
    local a = x:matmul(w)
    local y = fn(a, w, x)
    g:output("y", (y:to("float32"):matmul(w)))
    local run = g:compile { passes = passes, exact = true }
    local v = sc.rand(N, N)
    local plain, got = g:run { x = v }.y, run { x = v }.y
    out[i] = run:bytes() / BYTES
    assert.is_true(sc.equal(plain, got))
    assert.is_true(sc.equal(plain, run { x = v }.y))
  end
  return out
end

describe("memory of plans", function()
  setup(function() core.check_graphs(true) end)
  teardown(function() core.check_graphs(false) end)

  local gamma, beta, mask = sc.rand(N), sc.rand(N), sc.rand(N, N):gt(0.5)
  for _, case in ipairs {
    { "pointwise", function(a) return a:tanh() end },
    { "a chain", function(a) return ((a * 2.0 + 1.0):tanh() - a):relu() end },
    { "sums in the chain", function(a) return (a - a:mean(2, true)) / (a * a):sum(2, true) end },
    { "an operand on the right", function(a, w) return w - a end },
    { "softmax", function(a) return a:softmax(-1) end },
    { "softmax of columns", function(a) return a:softmax(1) end },
    { "log_softmax", function(a) return a:log_softmax(-1) end },
    { "log_softmax of columns", function(a) return a:log_softmax(1) end },
    { "layer norm", function(a) return F.layer_norm(a, { N }, gamma, beta) end, 0.1 },
    { "a value per channel", function(a) return F.batch_norm(a, gamma, beta + 1.0, gamma, beta) end, 0.1 },
    { "masked_fill", function(a) return a:masked_fill(mask, -1.0) end },
    { "a clone that is written to", function(a) local c = a:clone() c:add_(1.0) return c end },
    { "a reshaped operand", function(a) return a:view(-1):tanh():view(N, N) end },
    { "one after another", function(a) return a:softmax(-1):tanh():masked_fill(mask, 0.5):log_softmax(1) end },
  } do
    it("is that of the operand for " .. case[1], function()
      local m = matrices(case[2])
      assert.is_true(m[1] >= 2, "without: " .. m[1])
      assert.near(1 + (case[3] or 0) / 2, m[2], (case[3] or 0) / 2 + 1e-9)
    end)
  end

  for _, case in ipairs {
    { "an operand read later", function(a) local b = a:tanh():softmax(-1) return b:matmul(a) end },
    { "an operand read turned around", function(a) return a * a:t() end },
    { "an operand read shifted", function(a) return a[{ { 2, -1 } }]:tanh():matmul(a[{ { 1, -2 } }]:t()):sum() + a end },
    { "a view that is read later", function(a) local v = a:view(-1)[{ { 1, 4 } }] local b = a:softmax(-1) return b * v:sum() end },
    { "a result of another size", function(a) return a:to("float64"):softmax(-1):to("float32") end },
    { "a broadcast operand", function(a) return a[1] + a:softmax(-1) end },
    { "a kernel that reads more", function(a) return a:cumsum(1):flip(1) end },
  } do
    it("is not taken from " .. case[1], function()
      local m = matrices(case[2])
      assert.is_true(m[2] >= 2, "with: " .. m[2])
    end)
  end

  it("holds results in the memory that they are handed out in from the start", function()
    local g = sc.graph()
    local x = g:input("x", { N, N })
    g:output("y", x:matmul(x):softmax(-1):tanh())
    local a, b = sc.rand(N, N), sc.rand(N, N)
    local before, run = g:compile { passes = { reuse = false } }, g:compile()
    before { x = a }
    assert.equal(2 * BYTES, before:bytes())
    local ya = run { x = a }.y
    local kept = ya:totable()
    assert.equal(0, run:bytes())
    local yb = run { x = b }.y
    assert.same(kept, ya:totable())
    assert.same(b:matmul(b):softmax(-1):tanh():totable(), yb:totable())
  end)

  it("leaves inputs and captured tensors as they are", function()
    local x, w = sc.rand(N, N), sc.rand(N, N)
    local f = sc.compile(function(t) return t:tanh():softmax(-1), (w * 2.0):relu() end)
    local xs, ws = x:totable(), w:totable()
    for _ = 1, 3 do f(x) end
    assert.same(xs, x:totable())
    assert.same(ws, w:totable())
  end)
end)

--- A random graph over matrices {4, 4}: a list of { handle in the graph, what eager mode gives }.
local function grow(seed)
  local state = seed * 7919 + 1
  local function below(n)
    state = (state * 1103515245 + 12345) & 0x7fffffff
    return (state >> 8) % n + 1
  end
  local g = sc.graph()
  local feeds, pool = {}, {}
  for i = 1, 2 do
    feeds["x" .. i] = sc.randn(4, 4)
    pool[i] = { g:input("x" .. i, { 4, 4 }), feeds["x" .. i] }
  end
  local captured = sc.randn(4, 4)
  pool[3] = { captured - pool[1][1], captured - pool[1][2] }
  local mask, gamma = sc.rand(4, 4):gt(0.5), sc.rand(4)
  local function both(fn, a, b) return fn(a[1], b[1]), fn(a[2], b[2]) end
  local OPS = {
    function(a) return a:tanh() end, function(a, b) return a + b end, function(a, b) return a * 0.5 - b end, function(a) return a:t() end,
    function(a) return a:softmax(-1) end, function(a) return a:log_softmax(1) end, function(a, b) return a:matmul(b) * 0.25 end,
    function(a) return a:masked_fill(mask, 0.25) end, function(a) return F.layer_norm(a, { 4 }, gamma) end,
    function(a) return a - a:mean(2, true) end, function(a, b) return (a:max(2)):unsqueeze(2) * b end, function(a) return a:clone() end,
    function(a) return a:reshape(2, 8)[{ {}, { 1, 4 } }]:repeat_interleave(2, 1) end, function(a) return a:cumsum(1) * 0.3 end,
    function(a) local v = a:sort(2) return v end,
    function(a, b) local p = a:chunk(2, 1) return sc.cat({ p[2] or select(2, a:chunk(2, 1)), b[{ { 1, 2 } }] }, 1) end,
    function(a, b) local c = a:clone() c[1]:add_(b[2]) c:mul_(0.5) return c end,
    function(a, b) return sc.cond(a:sum():gt(0), function(u) return u:tanh() * b end, function(u) return (u + b):softmax(-1) end, a) end,
    function(a, b) local s, ys = sc.scan(function(c, r) local d = (c * 0.5 + r):tanh() return d, d * b[1] end, a[1], b) return ys + s end,
    function(a, b)
      local _, c = sc.while_loop(function(i) return i:lt(3) end, function(i, u) return i + 1, (u * 0.5 + b):tanh() end, sc.tensor(0), a)
      return c
    end,
  }
  for _ = 1, 6 + below(14) do
    local op, a, b = OPS[below(#OPS)], pool[below(#pool)], pool[math.max(1, #pool - below(4) + 1)]
    if below(2) == 1 then a, b = b, a end
    pool[#pool + 1] = { both(op, a, b) }
  end
  return g, feeds, pool, below
end

local function same(want, got)
  return sc.equal(want, got) or ((want - got):abs():max():item() <= 1e-4 * (1 + want:abs():max():item()))
end

describe("random graphs", function()
  setup(function() core.check_graphs(true) end)
  teardown(function() core.check_graphs(false) end)

  it("overwrite nothing too early, whatever is fetched", function()
    local first, count = tonumber(os.getenv("SCONCE_SEED") or 1), tonumber(os.getenv("SCONCE_PROGRAMS") or 60)
    for seed = first, first + count - 1 do
      sc.manual_seed(seed)
      local g, feeds, pool, below = grow(seed)
      local session = g:session()
      for _ = 1, 3 do
        local fetches, want = {}, {}
        for i = 1, below(4) do
          local k = pool[below(#pool)]
          fetches[i], want[i] = k[1], k[2]
        end
        for _ = 1, 2 do
          local got = table.pack(session:run(fetches, feeds))
          for i = 1, #want do assert.is_true(same(want[i], got[i]), "seed " .. seed) end
        end
      end
      for i = 1, 3 do g:output("y" .. i, pool[below(#pool)][1]) end
      local run = g:compile { exact = true }
      local want = g:run(feeds)
      for _ = 1, 2 do for name, t in pairs(run(feeds)) do assert.is_true(sc.equal(want[name], t), "seed " .. seed .. " " .. name) end end
    end
  end)
end)
