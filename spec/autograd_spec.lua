local sc = require "sconce"

local function leaf(values, dtype) return sc.tensor(values, { dtype = dtype, requires_grad = true }) end
local function message(fn, ...) return tostring(select(2, pcall(fn, ...))) end
local function live()
  collectgarbage()
  collectgarbage()
  return sc.stats().live
end

describe("hooks", function()
  it("see the gradient and may replace it", function()
    local x, seen = leaf { 1.0, 2.0 }, nil
    local y = x * 2.0
    local handle = y:register_hook(function(g) seen = g:totable() return g * 10.0 end)
    y:sum():backward()
    assert.same({ 1.0, 1.0 }, seen)
    assert.same({ 20.0, 20.0 }, x.grad:totable())
    handle:remove()
    x.grad = nil
    y = x * 2.0
    y:sum():backward()
    assert.same({ 2.0, 2.0 }, x.grad:totable())
  end)

  it("run on leaves, in the order of registration, before gradients are kept", function()
    local x, order = leaf { 1.0 }, {}
    x:register_hook(function(g) order[#order + 1] = 1 return g + 1.0 end)
    x:register_hook(function(g) order[#order + 1] = 2 return g * 2.0 end)
    x:sum():backward()
    assert.same({ 1, 2 }, order)
    assert.same({ 4.0 }, x.grad:totable())
  end)

  it("let their errors through unchanged, and then no gradient has changed", function()
    local x, thrown = leaf { 1.0 }, { code = 7 }
    local z = leaf { 1.0 }
    local y = x * 2.0
    y:register_hook(function() error(thrown) end)
    local ok, e = pcall(function() (y + z):sum():backward() end)
    assert.is_false(ok)
    assert.equal(thrown, e)
    assert.is_nil(x.grad)
    assert.is_nil(z.grad)
  end)

  it("may differentiate something else over the same leaves", function()
    local p = leaf { 2.0 }
    local q = p * p
    q:register_hook(function(g)
      return g * sc.enable_grad(function() return sc.grad((p * 5.0):sum(), p) end)
    end)
    assert.equal(20.0, sc.grad(q:sum(), p):item())
  end)

  it("cannot yield, and say so", function()
    local x = leaf { 1.0 }
    local co = coroutine.create(function()
      local y = x * 2.0
      y:register_hook(function() coroutine.yield() end)
      y:backward()
    end)
    local ok, e = coroutine.resume(co)
    assert.is_false(ok)
    assert.matches("yield across", e)
  end)

  it("still run when only a descendant is left, whenever they were registered", function()
    for _, late in ipairs { false, true } do
      local fired, z = 0, nil
      do
        local v = leaf { 1.0 }
        local y = v * 2.0
        if late then z = y * 3.0 end
        y:register_hook(function() fired = fired + 1 end)
        v:register_hook(function() fired = fired + 1 end)
        if not late then z = y * 3.0 end
      end
      live()
      z:sum():backward()
      assert.equal(2, fired)
    end
  end)

  it("in a cycle with their tensor are collected", function()
    local w = leaf { 1.0, 2.0 }
    local function once()
      local y = w * 2.0
      y:register_hook(function(g) return g * y:sum():item() end)
      local v = leaf { 1.0 }
      v:register_hook(function(g) return g + v.grad end)
      return (y * v):sum():item()
    end
    once()
    local before = live()
    for _ = 1, 20 do once() end
    assert.equal(before, live())
  end)
end)

describe("custom functions", function()
  local Clip = sc.autograd.Function {
    forward = function(ctx, x, limit) ctx:save(x) ctx.limit = limit return x:clamp(-limit, limit) end,
    backward = function(ctx, dy) local x = ctx:saved() return dy * x:abs():le(ctx.limit), nil end,
  }
  local Cube = sc.autograd.Function {
    forward = function(ctx, x) ctx:save(x) return x * x * x end,
    backward = function(ctx, dy) local x = ctx:saved() return dy * x * x * 3.0 end,
  }

  it("take numbers beside tensors", function()
    local a = leaf { 0.5, 3.0 }
    Clip(a, 1.0):sum():backward()
    assert.same({ 1.0, 0.0 }, a.grad:totable())
  end)

  it("differentiate twice, as checked by differences", function()
    local x = leaf({ 0.5, -1.5 }, "float64")
    assert.is_true(sc.autograd.gradcheck(function(v) return Cube(v) end, x))
    assert.is_true(sc.autograd.gradgradcheck(function(v) return Cube(v) end, x))
  end)

  it("have several results; a result without a gradient gets zeros", function()
    local Both = sc.autograd.Function {
      forward = function(_, x, y) return x * y, x + y end,
      backward = function(_, d1, d2) return d1 + d2 * 2.0, d2 * 3.0 end,
    }
    local x, y = leaf { 1.0 }, leaf { 2.0 }
    local _, sum = Both(x, y)
    sum:backward()
    assert.same({ 2.0 }, x.grad:totable())
    assert.same({ 3.0 }, y.grad:totable())
  end)

  it("refuse what was changed after saving, a second walk, and a missing or misshapen gradient", function()
    local x = leaf { 1.0, 2.0 }
    local h = x * 1.0
    local y = Cube(h)
    sc.no_grad(function() h:add_(1.0) end)
    assert.matches("modified in%-place", message(function() y:sum():backward() end))
    local z = Cube(x)
    z:sum():backward()
    assert.matches("second time", message(function() z:sum():backward() end))
    local function returning(...)
      local r = table.pack(...)
      return sc.autograd.Function { forward = function(_, a) return a * 2.0 end, backward = function() return table.unpack(r, 1, r.n) end }
    end
    assert.matches("needs one", message(function() returning()(x):sum():backward() end))
    assert.matches("shape", message(function() returning(sc.ones { 3 })(x):sum():backward() end))
    assert.matches("expected a tensor", message(function() returning("a")(x):sum():backward() end))
  end)

  it("that keep their own result are collected", function()
    local w = leaf { 1.0 }
    local Keep = sc.autograd.Function {
      forward = function(ctx, x) local y = x * 2.0 ctx:save(y) ctx.y = y return y end,
      backward = function(_, dy) return dy * 2.0 end,
    }
    local function once() return Keep(Keep(w) + w) end
    once()
    local before = live()
    for _ = 1, 20 do once() end
    assert.equal(before, live())
  end)

  it("live as long as a gradient whose history holds them", function()
    local w = leaf { 1.0 }
    do
      local y = Cube(w * 2.0)
      y:sum():backward(nil, { create_graph = true })
    end
    live()
    local g = w.grad
    w.grad = nil
    g:sum():backward()
    assert.near(48.0, w.grad:item(), 1e-5)                     -- (8 w^3)'' = 48 w
  end)
end)

describe("gradients", function()
  it("of third order are right where results were saved", function()
    local t = leaf({ 0.3 }, "float64")
    local g = sc.grad(t:tanh():sum(), t, { create_graph = true })
    g = sc.grad(g:sum(), t, { create_graph = true })
    local y = (math.exp(0.6) - 1) / (math.exp(0.6) + 1)
    assert.near(-2 * (1 - y * y) * (1 - 3 * y * y), sc.grad(g:sum(), t):item(), 1e-12)
  end)

  it("by several inputs come one per input, for the same one twice, and for y itself", function()
    local x, z = leaf { 3.0 }, leaf { 1.0 }
    local y = x * x
    local a, b, c = sc.grad(y:sum(), { x, x, y })
    assert.same({ 6.0, 6.0, 1.0 }, { a:item(), b:item(), c:item() })
    assert.matches("not used", message(sc.grad, (x * 2.0):sum(), { x, z }))
    local _, none = sc.grad((x * 2.0):sum(), { x, z }, { allow_unused = true })
    assert.is_nil(none)
  end)

  it("never share memory with each other or with what was given", function()
    local a, b, up = leaf { 1.0, 2.0 }, leaf { 3.0, 4.0 }, sc.ones { 2 }
    local s = a + b
    s:retain_grad()
    s:backward(up)
    a.grad:mul_(0.0)
    s.grad:mul_(5.0)
    assert.same({ 1.0, 1.0 }, b.grad:totable())
    assert.same({ 1.0, 1.0 }, up:totable())
    local ga, gb = sc.grad((a + b):sum(), { a, b })
    ga:zero_()
    assert.same({ 1.0, 1.0 }, gb:totable())
  end)

  it("flow through x:mul_(x) and through writes to views", function()
    local a = leaf { 2.0, 3.0 }
    local b = a * 1.0
    b:mul_(b)
    b:sum():backward()
    assert.same({ 4.0, 6.0 }, a.grad:totable())
    local w, base = leaf { 2.0, 3.0 }, sc.ones { 4 }
    local head = base:narrow(1, 1, 2)
    head:mul_(w)
    base:sum():backward()
    assert.same({ 1.0, 1.0 }, w.grad:totable())
  end)

  it("keep their tensor after it was written to", function()
    local w = leaf { 2.0 }
    local y = w * 2.0
    y:retain_grad()
    y:mul_(3.0)
    y:sum():backward()
    assert.same({ 1.0 }, y.grad:totable())
  end)

  it("are refused for integers, for views detached in-place, and for unknown options", function()
    assert.matches("floating", message(function() sc.tensor({ 1 }):requires_grad_() end))
    local v = (leaf { 1.0, 2.0 } * 1.0):narrow(1, 1, 1)
    assert.matches("view", message(function() v:detach_() end))
    assert.matches("no option", message(function() v:backward(nil, { retain = true }) end))
  end)

  it("go through ops of hundreds of inputs", function()
    local w, list = leaf { 1.0 }, {}
    for i = 1, 400 do list[i] = w * i end
    sc.stack(list):sum():backward()
    assert.equal(400 * 401 / 2, w.grad:item())
  end)

  it("name both places when a saved value was overwritten", function()
    local x = leaf { 1.0 }
    local y = x:exp()
    y:detach():zero_()
    local m = message(function() y:sum():backward() end)
    assert.matches("exp %(recorded at .*autograd_spec.lua:%d+%) was modified in%-place at .*autograd_spec.lua:%d+", m)
  end)

  it("that are NaN are reported with op and line under detect_anomaly", function()
    local x = leaf { 0.0 }
    assert.matches("sqrt is NaN %(recorded at .*autograd_spec.lua:%d+%)", message(function()
      sc.autograd.detect_anomaly(function() (x:sqrt() * 0.0):backward() end)
    end))
  end)

  it("of long chains that saved values are freed without recursion", function()
    local w = leaf { 1.0 }
    local y = w
    for _ = 1, 200000 do y = y * w end
    y = nil -- luacheck: ignore 311
    live()
  end)
end)

describe("checkpoints", function()
  local w = leaf { { 1.0, 0.5 }, { 0.25, -2.0 } }
  local x = leaf { { 1.0, 2.0 } }
  local function block(v) return v:matmul(w):tanh() end

  it("give the gradients of arguments and of captured weights, nested, and twice", function()
    local function grads(f)
      local g, h = sc.grad(f(x * 0.5):sum(), { x, w }, { create_graph = true })
      return { g:totable(), h:totable(), sc.grad((g * g):sum(), w):totable() }
    end
    local plain = grads(function(v) return block(block(v)) end)
    assert.same(plain, grads(function(v) return sc.checkpoint(function(u) return block(block(u)) end, v) end))
    assert.same(plain, grads(function(v) return sc.checkpoint(function(u) return sc.checkpoint(block, block(u)) end, v) end))
  end)

  it("draw the same random numbers again", function()
    local v = sc.ones({ 200 }):requires_grad_()
    local y = sc.checkpoint(function(u) return sc.functional.dropout(u, 0.5, true) end, v)
    y:sum():backward()
    assert.same(y:totable(), v.grad:totable())
  end)

  it("do so in static graphs, with its bits in first derivatives", function()
    local v = leaf { { 0.5, -1.0 } }
    local function part(u) return sc.functional.dropout(block(block(u)), 0.5, true) end
    local function f(a)
      local y = sc.checkpoint(part, a) * v
      local g, h = sc.grad(y:sum(), { v, w }, { create_graph = true })
      return y:detach(), g:detach(), h:detach(), sc.grad((h * h):sum() + (g * g):sum(), w):detach()
    end
    local compiled = sc.compile(f, { exact = true })
    for seed = 1, 4 do
      sc.manual_seed(seed)
      local want = table.pack(f(x))
      sc.manual_seed(seed)
      local got = table.pack(compiled(x))
      for i = 1, 3 do assert.equal(want[i]:tostring_bytes(), got[i]:tostring_bytes()) end
      assert.is_true(want[4]:allclose(got[4], 1e-6, 1e-6)) -- summed in another order
    end
  end)
end)

describe("gradient mode", function()
  it("belongs to the coroutine, also to one that waits, fails or is dropped inside", function()
    local waiting = coroutine.create(function() sc.no_grad(function() coroutine.yield(sc.is_grad_enabled()) end) end)
    assert.is_false(select(2, coroutine.resume(waiting)))
    assert.is_true(sc.is_grad_enabled())
    local failing = coroutine.create(function() sc.no_grad(function() error("stop") end) end)
    coroutine.resume(failing)
    assert.is_true(sc.is_grad_enabled())
    for _ = 1, 300 do
      local c = coroutine.create(function() sc.no_grad(function() coroutine.yield() end) end)
      coroutine.resume(c)
    end
    live()
    assert.is_true(sc.is_grad_enabled())
  end)

  it("of a coroutine is the one it was made in", function()
    local co
    local create = coroutine.create
    sc.no_grad(function()
      co = coroutine.wrap(function()
        coroutine.yield(sc.is_grad_enabled())
        return sc.is_grad_enabled()
      end)
    end)
    assert.equal(create, coroutine.create)
    assert.is_false(co())
    assert.is_true(sc.is_grad_enabled())
    assert.is_false(co())
  end)
end)
