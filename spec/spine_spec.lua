local sc = require "sconce"

local function mlp(x, w, b) return (x:matmul(w) + b):tanh():sum() end

describe("an op through every layer", function()
  local x = sc.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } }
  local function leaves()
    return sc.tensor({ { 1.0, 0.5 }, { 0.25, -2.0 } }, { requires_grad = true }), sc.tensor({ 0.5, 0.25 }, { requires_grad = true })
  end

  it("runs now and gives gradients", function()
    local w, b = leaves()
    mlp(x, w, b):backward()
    local h = 1e-3
    local up = mlp(x, w, b + sc.tensor { h, 0.0 }):item()
    local down = mlp(x, w, b - sc.tensor { h, 0.0 }):item()
    assert.near((up - down) / (2 * h), b.grad:totable()[1], 1e-3)
  end)

  it("gives the same numbers and gradients when it is recorded and replayed", function()
    local w, b = leaves()
    local loss = mlp(x, w, b)
    local gw, gb = sc.grad(loss, { w, b })
    local g = sc.graph()
    local xi = g:input("x", { 2, 2 })
    local sym = mlp(xi, w, b)
    local sw, sb = sc.grad(sym, { w, b })
    g:output("loss", sym)
    g:output("w", sw)
    g:output("b", sb)
    local r = g:run { x = x }
    assert.equal(loss:item(), r.loss:item())
    assert.same(gw:totable(), r.w:totable())
    assert.same(gb:totable(), r.b:totable())
  end)

  it("gives second derivatives", function()
    local a = sc.tensor({ 0.5 }, { dtype = "float64", requires_grad = true })
    local d = sc.grad(a:tanh():sum(), a, { create_graph = true })
    local dd = sc.grad(d:sum(), a)
    assert.near(-0.72686198138359, dd:item(), 1e-12)
  end)

  it("writes through a view into the base's history", function()
    local base = sc.full({ 3 }, 1.0)
    local p = sc.tensor({ 2.0, 3.0 }, { requires_grad = true })
    base:as_strided({ 2 }, { 1 }, 1):mul_(p)
    assert.same({ 1.0, 2.0, 3.0 }, base:totable())
    base:sum():backward()
    assert.same({ 1.0, 1.0 }, p.grad:totable())
  end)

  it("refuses a second walk, and says what to do", function()
    local w = leaves()
    local y = w * 2.0
    y:sum():backward()
    assert.has_error(function() y:sum():backward() end)
  end)

  it("walks a million ops without recursion", function()
    local a = sc.tensor({ 1.0 }, { requires_grad = true })
    local y = a
    for _ = 1, 1000000 do y = y + 1.0 end
    y:sum():backward()
    assert.same({ 1.0 }, a.grad:totable())
  end)
end)
