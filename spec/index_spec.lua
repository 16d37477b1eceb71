local sc = require "sconce"
local F = sc.nn.functional

-- Every case: a function of a float64 tensor that is linear or smooth in it. Checked: its gradient in one direction against a central
-- difference, and the gradient's own gradient likewise (quadratic weights make it differ from zero).
local idx = sc.tensor { 3, 1, 3 }
local grid = sc.tensor { { 1, 3 }, { 2, 2 }, { 3, 1 } }
local mask = sc.tensor { { true, false, true, true }, { false, false, true, false }, { true, true, false, true } }
local function f64(t) return sc.tensor(t, { dtype = "float64" }) end
local src = f64 { { 0.5, -1.5 }, { 2.0, 1.25 }, { -0.75, 3.0 } }
local row = f64 { { 0.5, 1.5, -2.0, 1.0 }, { 2.5, -0.5, 1.0, 0.25 }, { 1.0, 0.75, -1.0, 2.0 } }

local DIFFERENTIABLE = {
  select = function(x) return x:select(1, -2) end,
  slice = function(x) return x:slice(2, 1, -1, 2) end,
  narrow = function(x) return x:narrow(2, 2, 2) end,
  permute = function(x) return x:permute(2, 1) end,
  unfold_overlapping = function(x) return x:unfold(2, 3, 1) end,
  diagonal = function(x) return x:diagonal(1) end,
  diag_embed = function(x) return x:diag_embed(-1) end,
  expand = function(x) return x:unsqueeze(1):expand(2, 3, 4) end,
  squeeze = function(x) return x:unsqueeze(2):squeeze() end,
  movedim = function(x) return x:unsqueeze(1):movedim({ 1, 3 }, { 2, 1 }) end,
  flatten = function(x) return x:flatten() end,
  as_strided_overlapping = function(x) return x:as_strided({ 3, 3 }, { 1, 2 }, 1) end,
  cat = function(x) return sc.cat({ x, x:flip(1), x * x }, 2) end,
  cat_many = function(x)
    local list = {}
    for i = 1, 300 do list[i] = x[(i - 1) % 3 + 1] end
    return sc.cat(list)
  end,
  stack = function(x) return sc.stack({ x, x * 2 }, -1) end,
  roll = function(x) return x:roll({ 1, -2 }, { 1, 2 }) end,
  rep = function(x) return x:rep(2, 1, 2) end,
  repeat_interleave = function(x) return x:repeat_interleave(sc.tensor { 2, 0, 3 }, 1) end,
  tril = function(x) return x:tril(1) end,
  pad_constant = function(x) return F.pad(x, { 1, -1, 0, 2 }, "constant", 3.0) end,
  pad_reflect = function(x) return F.pad(x, { 2, 1 }, "reflect") end,
  pad_replicate = function(x) return F.pad(x, { 2, 1 }, "replicate") end,
  pad_circular = function(x) return F.pad(x, { 1, 3 }, "circular") end,
  gather_repeated = function(x) return x:gather(2, grid) end,
  scatter = function(x) return x:scatter(2, grid, src) end,
  scatter_add = function(x) return x:scatter_add(2, grid, src) end,
  scatter_mean = function(x) return x:scatter_reduce(2, grid, src, "mean", false) end,
  scatter_prod = function(x) return x:scatter_reduce(2, grid, src, "prod") end,
  scatter_amax = function(x) return x:scatter_reduce(2, grid, src, "amax") end,
  scatter_prod_src = function(x) return row:scatter_reduce(1, sc.tensor { { 1, 2, 3, 1 }, { 1, 2, 1, 1 } }, x, "prod") end,
  index_select = function(x) return x:index_select(1, idx) end,
  index_add = function(x) return x:index_add(1, idx, row, 2) end,
  index_add_source = function(x) return row:index_add(1, idx, x) end,
  index_copy = function(x) return x:index_copy(1, sc.tensor { 2, 1, 3 }, row) end,
  index_fill = function(x) return x:index_fill(2, sc.tensor { -1 }, 2.5) end,
  index_reduce = function(x) return row:index_reduce(1, idx, x, "amin") end,
  take = function(x) return x:take(sc.tensor { { 1, 12 }, { -1, 5 } }) end,
  put = function(x) return x:put(sc.tensor { 1, 5 }, f64 { 9, 8 }, true) end,
  take_along_dim = function(x) return x:take_along_dim(sc.tensor { { 2, 2, 4 } }, 2) end,
  masked_fill = function(x) return x:masked_fill(mask, 0.0) end,
  masked_select = function(x) return x:masked_select(mask) end,
  masked_scatter = function(x) return row:masked_scatter(mask, x) end,
  index_put = function(x) return x:index_put({ idx, sc.tensor { 1, 2, 1 } }, f64 { 1, 2, 3 }, true) end,
  by_mask = function(x) return x[mask] end,
  by_tensors = function(x) return x[{ idx, sc.tensor { { 1 }, { 4 } } }] end,
  mixed = function(x) return x[{ sc.newaxis, idx, { 2, 4, 2 } }] end,
  embedding = function(x) return F.embedding(sc.tensor { { 1, 3 }, { 3, 3 } }, x) end,
  embedding_bag = function(x) return F.embedding_bag(sc.tensor { 1, 3, 2, 3 }, x, sc.tensor { 1, 2 }) end,
  kron = function(x) return sc.kron(x, src) end,
  pixel_shuffle = function(x) return F.pixel_shuffle(x:reshape(4, 1, 3), 2) end,
}

local function loss(fn, x) return (fn(x) * fn(x) * fn(x)):sum() end

describe("gradients of views and indexing", function()
  local data = { { 0.3, -1.2, 0.8, 2.1 }, { 1.7, 0.6, -0.4, 0.9 }, { -1.1, 1.3, 0.2, -0.7 } }
  local direction = f64 { { 0.7, -0.2, 0.5, 0.1 }, { -0.6, 0.9, 0.3, -0.8 }, { 0.4, 0.2, -0.5, 0.6 } }
  for name, fn in pairs(DIFFERENTIABLE) do
    it(name .. " agrees with differences, twice", function()
      local x, h = f64(data), 1e-5
      local function first(at)
        at = at:detach()
        at.requires_grad = true
        return (sc.grad(loss(fn, at), at, { create_graph = true }) * direction):sum(), at
      end
      local up, down = loss(fn, x + direction * h):item(), loss(fn, x - direction * h):item()
      local d, leaf = first(x)
      assert.near((up - down) / (2 * h), d:item(), 1e-6 * (1 + math.abs(d:item())))
      local dd = (sc.grad(d, leaf) * direction):sum():item()
      local slope = (first(x + direction * h):item() - first(x - direction * h):item()) / (2 * h)
      assert.near(slope, dd, 1e-6 * (1 + math.abs(dd)))
    end)
  end

  it("gives equal results recorded in a graph", function()
    for _, name in ipairs { "slice", "mixed", "by_tensors", "index_add", "scatter", "pad_reflect", "cat", "unfold_overlapping" } do
      local fn, x = DIFFERENTIABLE[name], f64(data)
      x.requires_grad = true
      local g = sc.graph()
      local s = g:input("x", { 3, 4 }, "float64")
      s.requires_grad = true
      local y = loss(fn, s)
      g:output("y", y)
      g:output("dx", (sc.grad(y, s)))
      local r = g:run { x = x:detach() }
      assert.same(loss(fn, x):item(), r.y:item(), name)
      assert.same(sc.grad(loss(fn, x), x):totable(), r.dx:totable(), name)
    end
  end)
end)

describe("x[key]", function()
  local x = sc.tensor { { 1, 2, 3, 4 }, { 5, 6, 7, 8 }, { 9, 10, 11, 12 } }
  local CASES = {
    { 2, { 5, 6, 7, 8 } }, { -1, { 9, 10, 11, 12 } }, { { 2, 3 }, 7 }, { { {}, 1 }, { 1, 5, 9 } },
    { { { 2, 3 }, { 1, 4, 2 } }, { { 5, 7 }, { 9, 11 } } }, { { { -2, -1 }, -1 }, { 8, 12 } }, { { { 3, 2 } }, {} },
    { { { -100, 100 }, 2 }, { 2, 6, 10 } }, { { sc.newaxis, 1 }, { { 1, 2, 3, 4 } } }, { { sc.ellipsis, 2 }, { 2, 6, 10 } },
    { sc.tensor { 3, -3 }, { { 9, 10, 11, 12 }, { 1, 2, 3, 4 } } }, { { sc.tensor { 1, 2 }, sc.tensor { 4, 3 } }, { 4, 7 } },
    { { {}, sc.tensor { 2, 2 } }, { { 2, 2 }, { 6, 6 }, { 10, 10 } } }, { sc.tensor { true, false, true }, { { 1, 2, 3, 4 }, { 9,
      10, 11, 12 } } },
    { x:gt(9), { 10, 11, 12 } }, { { 1, sc.tensor { true, false, false, true } }, { 1, 4 } },
    { { sc.tensor { { 1 }, { 2 } }, sc.tensor { 1, 2 } }, { { 1, 2 }, { 5, 6 } } },
  }
  for i, case in ipairs(CASES) do
    it("reads case " .. i, function()
      local y = x[case[1]]
      assert.same(case[2], y:dim() == 0 and y:item() or y:totable())
    end)
  end

  it("puts the dims of separated index tensors first", function()
    local y = sc.zeros(2, 3, 4, 5)
    assert.same({ 6, 3, 5 }, y[{ sc.tensor { 1, 1, 1, 1, 1, 1 }, {}, sc.tensor { 1, 2, 3, 4, 1, 2 } }].shape)
    assert.same({ 2, 6, 5 }, y[{ {}, sc.tensor { 1, 1, 1, 1, 1, 1 }, sc.tensor { 1, 2, 3, 4, 1, 2 } }].shape)
  end)

  it("writes numbers, tensors, through masks and index tensors", function()
    local y = sc.zeros(3, 4)
    y[1] = 1
    y[{ {}, 4 }] = sc.tensor { 7.0, 8.0, 9.0 }
    y[{ sc.tensor { 2, 3 }, sc.tensor { 1, 2 } }] = 5
    y[y:eq(0)] = -1
    assert.same({ { 1, 1, 1, 7 }, { 5, -1, -1, 8 }, { -1, 5, -1, 9 } }, y:totable())
    y[sc.tensor { false, true, false }] = sc.tensor { { 1.0, 2.0, 3.0, 4.0 } }
    assert.same({ 1, 2, 3, 4 }, y[2]:totable())
    local v = sc.arange(1, 7)
    v[{ { 2, 6 } }] = v[{ { 1, 5 } }]
    assert.same({ 1, 1, 2, 3, 4, 5 }, v:totable())
  end)

  it("carries gradients through rows written in a loop, and through views of views", function()
    local p = sc.tensor({ 1.0, 2.0, 3.0 }, { requires_grad = true })
    local buf = sc.zeros(3, 2)
    local before = buf:select(2, 1)
    for i = 1, 3 do buf[i] = p[i] * p[i] end
    buf:t()[1]:narrow(1, 2, 2):mul_(p[1] * 10.0)
    buf:diagonal():add_(p:narrow(1, 1, 2))
    ;(buf:sum() + before:sum()):backward()
    -- sum of buf: column 1: p1² + p1, 10 p1 p2², 10 p1 p3²; column 2: p1², p2² + p2, p3²; `before` is column 1 again
    local a, b, c = 1.0, 2.0, 3.0
    local want = { 2 * (2 * a + 1 + 10 * b * b + 10 * c * c) + 2 * a, 2 * 20 * a * b + 2 * b + 1, 2 * 20 * a * c + 2 * c }
    for i = 1, 3 do assert.near(want[i], p.grad:totable()[i], 1e-3) end
  end)

  it("names the index and the range that was possible", function()
    local function fails(words, fn)
      local ok, message = pcall(fn)
      assert.is_false(ok)
      assert.is_truthy(message:find(words, 1, true), message)
    end
    fails("index 11 is out of range 1..10", function() return sc.zeros(10)[11] end)
    fails("index 0 is out of range 1..10", function() return sc.zeros(10)[0] end)
    fails("index -11 is out of range 1..10", function() return sc.zeros(10)[{ -11 }] end)
    fails("index 4 is out of range 1..3", function() return x[sc.tensor { 1, 4 }] end)
    fails("too many indices", function() return x[{ 1, 1, 1 }] end)
    fails("int64 or bool", function() return x[sc.tensor { 1.0 }] end)
    fails("key is nil", function() return x[nil] end)
    fails("step", function() return x[{ { 1, 2, 0 } }] end)
    fails("mask", function() return x[sc.tensor { true, false }] end)
  end)

  it("leaves a tensor as it was when one index of many is bad", function()
    local y = sc.zeros(5)
    for _, bad in ipairs { 0, 6, -6, 1 << 40, math.maxinteger, math.mininteger } do
      local at = sc.tensor { 1, 2, bad }
      for _, write in ipairs {
        function() y[at] = 1 end, function() y:index_add_(1, at, sc.ones(3)) end, function() y:scatter_(1, at, sc.ones(3)) end,
        function() y:index_fill_(1, at, 1) end, function() y:index_copy_(1, at, sc.ones(3)) end, function() y:put_(at, sc.ones(3)) end,
      } do assert.is_false((pcall(write))) end
      assert.same({ 0, 0, 0, 0, 0 }, y:totable())
    end
  end)
end)

describe("index ops", function()
  it("combine in every reduction and dtype as a plain loop does", function()
    local OPS = {
      sum = function(a, b) return a + b end, prod = function(a, b) return a * b end,
      amax = math.max, amin = math.min,
    }
    for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64" } do
      for reduce, fn in pairs(OPS) do
        for _, include in ipairs { true, false } do
          local self, at, v = { 3, 1, 2, 4 }, { 2, 1, 2, 4 }, { 5, 1, 3, 2 }
          local want, seen = { table.unpack(self) }, {}
          for i, k in ipairs(at) do
            want[k] = (include or seen[k]) and fn(want[k], v[i]) or v[i]
            seen[k] = true
          end
          local got = sc.tensor(self, { dtype = dtype }):scatter_reduce(1, sc.tensor(at), sc.tensor(v, { dtype = dtype }), reduce,
            include)
          for i = 1, 4 do assert.equal(want[i], got:totable()[i], dtype .. " " .. reduce) end
        end
      end
    end
  end)

  it("add repeated rows in the same order for any number of threads", function()
    local n = sc.get_num_threads()
    local table_, at, rows = sc.zeros(50, 64), sc.randint(1, 51, { 4000 }), sc.randn(4000, 64)
    local all = {}
    for i, threads in ipairs { 1, 2, 3 } do
      sc.set_num_threads(threads)
      all[i] = table_:index_add(1, at, rows):tostring_bytes()
    end
    sc.set_num_threads(n)
    assert.is_true(all[1] == all[2] and all[1] == all[3])
  end)

  it("give no gradient to the padding row, and share one by frequency", function()
    local w = sc.ones(3, 2)
    w.requires_grad = true
    local function grad(...) return sc.grad(F.embedding(sc.tensor { 1, 3, 3 }, w, ...):sum(), w):totable() end
    assert.same({ { 1, 1 }, { 0, 0 }, { 2, 2 } }, grad())
    assert.same({ { 1, 1 }, { 0, 0 }, { 0, 0 } }, grad(3))
    assert.same({ { 1, 1 }, { 0, 0 }, { 1, 1 } }, grad { scale_grad_by_freq = true })
  end)

  it("transpose by tiles as element by element", function()
    for _, dtype in ipairs { "float32", "float64", "int16", "uint8" } do
      local x = sc.arange(0, 70 * 131):reshape(70, 131):to(dtype)
      local y, z = x:t():contiguous(), x:reshape(7, 10, 131):permute(3, 1, 2):contiguous()
      assert.same(x[{ {}, 5 }]:totable(), y[5]:totable())
      assert.same(x[66]:totable(), y[{ {}, 66 }]:totable())
      assert.same(x[{ { 11, 20 }, 131 }]:totable(), z[{ 131, 2 }]:totable())
      assert.is_true(y:t():contiguous():eq(x):all():item())
    end
  end)
end)
