local sc = require "sconce"

local function values(...)
  local list = table.pack(...)
  for i = 1, list.n do list[i] = sc.is_tensor(list[i]) and list[i]:totable() or list[i] end
  return list
end

describe("a compiled function", function()
  it("gives what the function gives, from one trace for the same sizes", function()
    local calls = 0
    local f = sc.compile(function(x)
      calls = calls + 0 -- reads only: a captured number that does not change
      return x * 2.0 + 1.0, x:tanh():sum()
    end)
    for _, t in ipairs { { 1.0, 2.0 }, { -3.0, 0.5 } } do
      local x = sc.tensor(t)
      local a, b = f(x)
      assert.same((x * 2.0 + 1.0):totable(), a:totable())
      assert.near(x:tanh():sum():item(), b:item(), 1e-6)
    end
    assert.equal(1, #f:runs())
    assert.near(9.0, f(sc.tensor { 1.0, 2.0, 4.0 }):totable()[3], 1e-6)
    assert.equal(2, #f:runs())
    assert.truthy(f:explain():find("trace 2: arguments", 1, true))
  end)

  it("trains what it captures, and leaves gradients as they were", function()
    local function make()
      local w = sc.tensor({ { 1.0, 0.5 }, { 0.25, -2.0 } }, { requires_grad = true })
      return w, function(x)
        local loss = (x:matmul(w) + 1.0):tanh():sum()
        w.grad = nil
        loss:backward()
        local g = w.grad
        sc.no_grad(function() w:sub_(g * 0.1) end)
        return loss
      end
    end
    local x = sc.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } }
    local we, eager = make()
    local wc, step = make()
    local compiled = sc.compile(step)
    for _ = 1, 5 do
      assert.near(eager(x):item(), compiled(x):item(), 1e-6)
      for i, row in ipairs(we:totable()) do
        for j, v in ipairs(row) do assert.near(v, wc:totable()[i][j], 1e-6) end
      end
    end
    assert.is_nil(wc.grad)
  end)

  it("keeps the order of reads and in-place writes", function()
    local f = sc.compile(function(x)
      local y = x:exp()
      x:exp_()
      return y
    end)
    local x = sc.tensor { 0.0, 1.0 }
    local y = f(x)
    assert.same(y:totable(), x:totable())
    assert.equal(1.0, x:totable()[1])
  end)

  it("sees that two arguments share memory", function()
    local f = sc.compile(function(x, y)
      x:add_(1.0)
      return x * y
    end)
    local a, b = sc.tensor { 1.0, 2.0 }, sc.tensor { 10.0, 10.0 }
    assert.same({ 20.0, 30.0 }, f(a, b):totable())
    assert.same({ 9.0, 16.0 }, f(a, a):totable())
    assert.same({ 3.0, 4.0 }, a:totable())
  end)

  it("hands out results that later calls leave alone", function()
    local f = sc.compile(function(x) return x + 1.0 end)
    local keep = {}
    for i = 1, 4 do keep[i] = f(sc.tensor { i + 0.0 }) end
    for i = 1, 4 do assert.same({ i + 1.0 }, keep[i]:totable()) end
  end)

  it("asks nothing of the host's allocator once it is warm", function()
    local w = sc.full({ 64, 64 }, 0.5)
    local f = sc.compile(function(x) return ((x:matmul(w) + 1.0):tanh() * 0.5):matmul(w):sum() end)
    local x = sc.full({ 64, 64 }, 0.25)
    for _ = 1, 3 do f(x) end
    local before = sc.stats().allocations
    for _ = 1, 50 do f(x) end
    assert.equal(before, sc.stats().allocations)
  end)

  it("refuses to read a value, naming the line", function()
    local f = sc.compile(function(x)
      if x:sum():item() > 0 then return x end
      return -x
    end)
    local ok, err = pcall(f, sc.tensor { 1.0 })
    assert.is_false(ok)
    assert.truthy(err:find("compile_spec.lua:%d+: item"), err)
    assert.is_false(sc.core.is_tracing())
  end)

  it("traces again when something it captures changes", function()
    local scale = 2.0
    local f = sc.compile(function(x) return x * scale end)
    assert.same({ 2.0 }, values(f(sc.tensor { 1.0 }))[1])
    scale = 3.0
    assert.same({ 3.0 }, values(f(sc.tensor { 1.0 }))[1])
    assert.truthy(f:explain():find("captures has changed", 1, true))
  end)
end)
