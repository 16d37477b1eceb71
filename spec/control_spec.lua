-- Branches and loops: in dynamic mode they are checked against plain Lua, in graphs against dynamic mode, gradients too.
local sc = require "sconce"

local function near(a, b, text)
  assert.equal(a == nil or a == false, b == nil or b == false, text)
  if not a then return end
  assert.same(a.shape, b.shape)
  assert.equal(a.dtype, b.dtype)
  local x, y = a:reshape { -1 }:totable(), b:reshape { -1 }:totable()
  for i = 1, #x do assert.near(x[i], y[i], 1e-5 * (1 + math.abs(x[i])), text) end
end

local function copies(args)
  local own = {}
  for i, a in ipairs(args) do
    own[i] = a:clone()
    if a.dtype:find("float", 1, true) then own[i]:requires_grad_() end
  end
  return own
end

local function total(results)
  local sum
  for i = 1, results.n do
    if results[i].requires_grad then sum = (sum or 0.0) + (results[i] * results[i]):sum() end
  end
  return sum
end

--- Results and gradients of fn, taken from outside.
local function outcome(fn, args)
  local own = copies(args)
  local results = table.pack(fn(table.unpack(own)))
  total(results):backward()
  local out = {}
  for i = 1, results.n do out[i] = results[i]:detach() end
  for i, a in ipairs(own) do out[results.n + i] = a.grad or false end
  return out, results.n
end

local h0, w = sc.tensor { 0.5, -1.0, 2.0 }, sc.tensor { 1.5, 0.3, -0.7 }
local rows = sc.tensor { { 1.0, 2.0, 3.0 }, { 0.1, 0.2, 0.3 } }

local function branch(p, x, b)
  return sc.cond(p:gt(0), function(v) return v * b, v:sum() end, function(v) return v:exp(), (v * b):sum() * 2.0 end, x)
end

local function loop(x, b)
  return select(2, sc.while_loop(function(i) return i:lt(4) end, function(i, h) return i + 1, (h * b):tanh() + x end, sc.tensor(0), x))
end

local function cell(h, x) return (h * w + x):tanh() end

local CASES = {
  { "a branch taken", branch, sc.tensor { 1.0 }, h0, w },
  { "a branch not taken", branch, sc.tensor { -1.0 }, h0, w },
  { "a loop", loop, h0, w },
  { "a scan", function(h, xs, b)
    return sc.scan(function(c, x)
      local c2 = (c * b + x):tanh()
      return c2, c2 * x
    end, h, xs)
  end, h0, rows, w },
  { "a scan from the end", function(h, xs)
    return sc.scan(function(c, x) return cell(c, x), c * x end, h, xs, { reverse = true })
  end, h0, rows },
  { "a scan of several, some of them integers", function(h, xs, b)
    return sc.scan(function(c, n, x, k) return (c * b + x) * k, n + 1, c * x, n * 2 end, { h, sc.tensor(1) }, { xs, xs * 2.0 })
  end, h0, rows, w },
  { "all of them in each other", function(h, xs, b)
    return sc.scan(function(c, x)
      local d = sc.cond(x:sum():gt(1), function(v) return v * b + x end, function(v) return (v - b):sin() end, c)
      local _, e = sc.while_loop(function(i) return i:lt(2) end, function(i, v) return i + 1, v * b end, sc.tensor(0), d)
      return e, e:t() * x
    end, h, xs)
  end, h0, rows, w },
}

describe("branches and loops", function()
  for _, case in ipairs(CASES) do
    local fn, args = case[2], table.move(case, 3, #case, 1, {})
    it("give the same in a graph, gradients too: " .. case[1], function()
      local want, n = outcome(fn, args)
      local f = sc.compile(fn)
      for _ = 1, 2 do
        local got = outcome(f, args)
        for i = 1, #want do
          near(want[i] or sc.zeros(args[i - n].shape), got[i] or sc.zeros(args[i - n].shape), "result " .. i)
        end
      end
      local own = copies(args)
      local inside = table.pack(sc.compile(function(...) -- differentiated inside of the graph, unoptimised
        return sc.grad(total(table.pack(fn(...))), { ... }, { allow_unused = true })
      end, { passes = 0 })(table.unpack(own)))
      for i = 1, #args do
        if want[n + i] and inside[i] then near(want[n + i], inside[i], "gradient " .. i) end
      end
    end)
  end

  it("do in dynamic mode what Lua's own would", function()
    local i, a = sc.while_loop(function(i) return i:lt(5) end, function(i, v) return i + 1, v * 2.0 end, sc.tensor(0), sc.tensor(1.5))
    assert.equal(5, i:item())
    assert.equal(48.0, a:item())
    local c, sums = sc.scan(function(s, x) return s + x, s + x end, sc.tensor(0.0), sc.tensor { 1.0, 2.0, 3.0 })
    assert.equal(6.0, c:item())
    assert.same({ 1.0, 3.0, 6.0 }, sums:totable())
    assert.same({ 6.0, 5.0, 3.0 }, select(2, sc.scan(function(s, x) return s + x, s + x end, sc.tensor(0.0), sc.tensor { 1.0, 2.0, 3.0 },
      { reverse = true })):totable())
    assert.equal(2, sc.cond(true, function() return sc.tensor(2) end, function() error "not taken" end):item())
  end)

  it("take as many rounds as the data say, from one trace", function()
    local f = sc.compile(function(x, limit)
      return (sc.while_loop(function(v) return v:lt(limit) end, function(v) return v * x end, x))
    end)
    for _, limit in ipairs { 1.0, 10.0, 1000.0 } do
      local x = sc.tensor(2.0, { requires_grad = true })
      local y, n = f(x, sc.tensor(limit)), 1
      while 2.0 ^ n < limit do n = n + 1 end
      y:backward()
      assert.equal(2.0 ^ n, y:item())
      assert.near(n * 2.0 ^ (n - 1), x.grad:item(), 1e-3)
    end
    assert.equal(1, #f:runs())
  end)

  it("run only the branch taken", function()
    local table_ = sc.tensor { 1.0, 2.0, 3.0 }
    local f = sc.compile(function(i)
      return sc.cond(i:le(3), function() return table_:index_select(1, i:reshape { 1 }) end, function() return sc.zeros { 1 } end)
    end)
    assert.same({ 3.0 }, f(sc.tensor(3)):totable())
    assert.same({ 0.0 }, f(sc.tensor(7)):totable()) -- an index out of range, were it looked up
  end)

  it("are differentiated twice: cond and scan, in both modes", function()
    local function second(x)
      local y = sc.cond(x:sum():gt(0), function(v) return v * v * v * w end, function(v) return v end, x)
      local _, ys = sc.scan(function(c, r) return c * r, (c * r):sin() end, x, rows)
      local g = sc.grad(y:sum() + ys:sum(), x, { create_graph = true })
      return (sc.grad((g * g):sum(), x))
    end
    local x = sc.tensor({ 0.5, -0.25, 1.0 }, { requires_grad = true })
    near(second(x), sc.compile(second)(x))
  end)

  it("work in graphs built by hand, for any named size, and in sessions", function()
    local g = sc.graph()
    local x, p = g:input("x", { "batch", 3 }), g:input("p", {})
    local y = sc.cond(p:gt(0), function(v) return v * 2.0, v:sum(1) end, function(v) return v + w, v:mean(1) end, x)
    local c, ys = sc.scan(function(s, r) return s + r, s * r end, sc.zeros { 3 }, x)
    g:output("y", y); g:output("c", c); g:output("ys", ys)
    local run = g:compile()
    for _, n in ipairs { 1, 4 } do
      local xb = sc.rand(n, 3)
      for _, pb in ipairs { 1.0, -1.0 } do
        local feeds = { x = xb, p = sc.tensor(pb) }
        local out, plain = run(feeds), g:run(feeds)
        near(pb > 0 and xb * 2.0 or xb + w, out.y)
        near(xb:sum(1), out.c)
        near(select(2, sc.scan(function(s, r) return s + r, s * r end, sc.zeros { 3 }, xb)), out.ys)
        for name, t in pairs(out) do near(t, plain[name]) end
        near(out.c, (g:session():run(c, feeds)))
      end
    end
  end)

  it("scan no rows at all", function()
    local c, ys = sc.scan(function(s, x) return s + x, x * 2.0 end, sc.tensor { 1.0, 2.0 }, sc.zeros { 0, 2 })
    assert.same({ 1.0, 2.0 }, c:totable())
    assert.same({ 0, 2 }, ys.shape)
  end)

  it("draw random numbers afresh in every round", function()
    local f = sc.compile(function(x) return select(2, sc.scan(function(s, r) return s, sc.rand_like(r) end, x[1], x)) end)
    local t = f(sc.zeros { 2, 8 }):totable()
    assert.is_not.same(t[1], t[2])
  end)

  it("draw the same random numbers in backward", function()
    local function masks(v)
      local function noisy(t) return sc.nn.functional.dropout(t, 0.5) end
      local c = sc.cond(v:sum():gt(0), noisy, function(t) return t end, v)
      local _, l = sc.while_loop(function(i) return i:lt(3) end, function(i, t) return i + 1, t + noisy(v) end, sc.tensor(0), v * 0.0)
      local e, s = sc.scan(function(t, r) return t + noisy(r), noisy(r) end, v * 0.0, sc.stack { v, v, v })
      return c + l, e, s:sum(1)
    end
    for round = 1, 3 do -- all are linear in v without a constant: the gradient times v is the result
      local v = sc.full({ 16 }, 2.0):requires_grad_()
      local y = select(round, sc.compile(masks)(v))
      y:sum():backward()
      near(y:detach(), v.grad * 2.0)
    end
    sc.manual_seed(3)
    local a, after = sc.compile(masks)(sc.ones { 16 }), sc.rand(2)
    sc.manual_seed(3)
    near(masks(sc.ones { 16 }), a)
    near(sc.rand(2), after)
  end)

  local x = sc.tensor { 1.0, 2.0 }
  local ERRORS = {
    { "cond: the condition: expected a tensor of one element, got shape {2}", sc.cond, x, print, print },
    { "cond: argument 2 (fn_true): expected a function, got the number 3", sc.cond, x, 3, print },
    { "while_loop: 1 values are carried, the body returned 2", sc.while_loop, function() return sc.tensor(true) end,
      function(v) return v, v end, x },
    { "while_loop: carried value 1: float32 {2} at the start, float32 {} after a round", sc.while_loop,
      function() return sc.tensor(true) end, function(v) return v:sum() end, x },
    { "while_loop: carried value 1: float32 {2} at the start, float64 {2} after a round", sc.while_loop,
      function() return sc.tensor(true) end, function(v) return v:double() end, x },
    { "scan: argument 3 (xs): tensors of 2 and 1 rows", sc.scan, print, x, { x, sc.tensor { 1.0 } } },
    { "scan: 2 values are carried, the function returned 1", sc.scan, function(a) return a end, { x, x }, x },
    { "scan: there is no option \"backwards\"; the options are reverse", sc.scan, print, x, x, { backwards = true } },
  }
  for _, case in ipairs(ERRORS) do
    it("say what is wrong, in both modes: " .. case[1], function()
      for _, f in ipairs { case[2], sc.compile(case[2]) } do
        local ok, err = pcall(case[2] == f and f or function(...)
          local args = table.pack(...)
          return sc.compile(function() return case[2](table.unpack(args, 1, args.n)) end)()
        end, table.unpack(case, 3))
        assert.is_false(ok)
        assert.truthy(err:find(case[1], 1, true), err)
      end
    end)
  end

  it("name branches that do not fit, and writes to what is outside", function()
    local function message(fn)
      local ok, err = pcall(sc.compile(fn), sc.tensor { 1.0, 2.0 })
      assert.is_false(ok)
      assert.is_false(sc.core.is_tracing())
      return err
    end
    assert.truthy(message(function(v)
      return sc.cond(v:sum():gt(0), function() return v end, function() return v:sum() end)
    end):find("control_spec.lua:%d+: cond: result 1: fn_true returns float32 {2}, fn_false returns float32 {}"))
    assert.truthy(message(function(v)
      return sc.cond(v:sum():gt(0), function() return v, v end, function() return v end)
    end):find("fn_true returns 2 tensors, fn_false returns 1", 1, true))
    assert.truthy(message(function(v)
      return sc.cond(v:sum():gt(0), function() return v:add_(1.0) end, function() return v end)
    end):find("add_ at spec/control_spec.lua:%d+ changes a tensor in%-place"))
  end)
end)

describe("what branches and loops run", function()
  local weight, v = sc.rand(8, 8), sc.rand(8)

  --- { name, body of a scan, steps of the body as recorded, exact, with everything }
  for _, case in ipairs {
    { "a chain", function(c, x) local d = ((c * 0.5 + x):tanh() - v) * 2.0 return d, d end, 5, 1, 1 },
    { "a softmax by hand", function(c, x)
      local e = (c + x - (c + x):amax(2, true)):exp()
      return e / e:sum(2, true), x
    end, 7, 1 },
    { "a bias and an activation", function(c, x) return ((c:matmul(weight:t()) + v):relu() + x), x end, 4, 2, 2 },
    { "the same twice, and what nobody reads", function(c, x)
      local _ = c:matmul(weight):sum()
      return (c:matmul(weight) + c:matmul(weight)):matmul(weight), x
    end, 6, 3 },
    { "a transpose", function(c, x) return (c:t():contiguous():t():matmul(weight) * 1.0), x end, 3 },
  } do
    it("is optimised as the graph around it is: " .. case[1], function()
      local h, xs = sc.rand(8, 8), sc.rand(3, 8, 8)
      local function scanned(a, b) return sc.scan(case[2], a, b) end
      local want = table.pack(scanned(h, xs))
      local before
      for i, options in ipairs { { passes = 0 }, { exact = true }, {} } do
        local f = sc.compile(scanned, options)
        local got = table.pack(f(h, xs))
        local inner = f.last:stats().inner
        for k = 1, want.n do
          if i < 3 then assert.is_true(sc.equal(want[k], got[k])) else near(want[k], got[k]) end
        end
        if case[2 + i] then assert.equal(case[2 + i], inner, "way " .. i) end
        assert.is_true(i ~= 2 or inner <= before)
        before = inner
      end
    end)
  end

  it("is of each run its own: two clones go through the same loop at the same time", function()
    local function rounds(x)
      local _, y = sc.while_loop(function(i) return i:lt(40) end, function(i, a) return i + 1, (a:matmul(weight) * 0.2):tanh() end, sc.tensor(0), x)
      return y
    end
    local f = sc.compile(rounds)
    local a, b = sc.rand(64, 8), sc.rand(64, 8)
    local ya, yb = f(a), f(b)
    local one, two = f.last:clone():start(a), f.last:clone():start(b)
    local da, db
    repeat
      da = da or one:advance(20)
      db = db or two:advance(20)
    until da and db
    assert.is_true(sc.equal(ya, one:result()))
    assert.is_true(sc.equal(yb, two:result()))
  end)

  --- Calls of the host's allocator by 40 calls of f(i), after eight.
  local function allocations(f)
    for i = 1, 8 do f(i) end
    collectgarbage()
    collectgarbage()
    local before = sc.stats().allocations
    for i = 1, 40 do
      f(i)
      collectgarbage "step"
    end
    return sc.stats().allocations - before
  end

  it("asks nothing of the host's allocator after the first runs", function()
    local p, x = { sc.tensor(1.0), sc.tensor(-1.0) }, sc.rand(48, 64)
    local f = sc.compile(function(t, q)
      local y = sc.cond(q:gt(0), function(a) return (a * 2.0):softmax(-1):matmul(a:t()) end, function(a) return a:tanh():matmul(a:t()) end, t)
      local _, z = sc.while_loop(function(i) return i:lt(6) end, function(i, a) return i + 1, (a:matmul(a) * 0.1):tanh() end, sc.tensor(0), y)
      return (select(2, sc.scan(function(c, r) local d = (c * 0.5 + r):tanh() return d, d * 2.0 end, z[1], z)))
    end)
    sc.no_grad(function() assert.equal(0, allocations(function(i) f(x, p[i % 2 + 1]) end)) end)
    local m = sc.rand(8, 8):requires_grad_()
    local opt = sc.optim.SGD({ m }, { lr = 0.01 })
    local h, xs = sc.rand(4, 8), sc.rand(5, 4, 8)
    local step = sc.compile(function(a, b)
      opt:zero_grad()
      local c, ys = sc.scan(function(s, r) local d = (s:matmul(m) + r):tanh() return d, d end, a, b)
      local _, u = sc.while_loop(function(i) return i:lt(4) end, function(i, t) return i + 1, (t:matmul(m) * 0.3):tanh() end, sc.tensor(0), c)
      local loss = ys:pow(2):mean() + u:sum()
      loss:backward()
      opt:step()
      return loss
    end)
    assert.equal(0, allocations(function() step(h, xs) end))
  end)

  it("asks nothing of it when known sizes take turns", function()
    local a, b = sc.rand(32, 64), sc.rand(48, 64)
    local function fn(x)
      local y = x:matmul(x:t()):softmax(-1):matmul(x)
      return (select(2, sc.scan(function(c, r) return c + r, c * r end, sc.zeros { 64 }, y)))
    end
    local g = sc.graph()
    g:output("y", fn(g:input("x", { "n", 64 })))
    local run, session, traced = g:compile(), g:session(), sc.compile(fn)
    sc.no_grad(function()
      assert.equal(0, allocations(function(i) traced(i % 2 == 0 and a or b) end))
      assert.equal(0, allocations(function(i) run { x = i % 2 == 0 and a or b } end))
      assert.equal(0, allocations(function(i) session:run("y", { x = i % 2 == 0 and a or b }) end))
    end)
  end)
end)
