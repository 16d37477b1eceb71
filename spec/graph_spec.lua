local sc = require "sconce"

--- A graph of a small model with a symbolic batch: inputs x {"batch", 3}, outputs y, loss and the gradient of w.
local function build(w, b)
  local g = sc.graph()
  local x = g:input("x", { "batch", 3 })
  local y = (x:matmul(w) + b):tanh()
  local loss = (y * y):mean()
  local gw = sc.grad(loss, w)
  g:output("y", y)
  g:output("loss", loss)
  g:output("gw", gw)
  return g, x, y, loss
end

local function same(a, b, tolerance)
  a, b = a:reshape(-1):totable(), b:reshape(-1):totable()
  assert.equal(#a, #b)
  for i = 1, #a do assert.near(a[i], b[i], tolerance or 1e-6) end
end

describe("a graph built by hand", function()
  local w = sc.tensor({ { 0.5, -1.0 }, { 0.25, 2.0 }, { -0.75, 1.5 } }, { requires_grad = true })
  local b = sc.tensor { 0.1, -0.2 }
  local rows = { { 1.0, 2.0, 3.0 }, { -1.0, 0.5, 0.25 }, { 0.0, 0.3, -0.6 }, { 2.0, -2.0, 1.0 } }
  local function batch(n) return sc.tensor({ table.unpack(rows, 1, n) }) end

  it("runs for every size of a named dimension, gradients included", function()
    local run = build(w, b):compile()
    for _, n in ipairs { 1, 4, 2, 3, 4 } do
      local x = batch(n)
      local r = run { x = x }
      local y = (x:matmul(w) + b):tanh()
      local loss = (y * y):mean()
      same(y:detach(), r.y)
      same(loss:detach(), r.loss)
      same(sc.grad(loss, w), r.gw)
    end
  end)

  it("agrees with the plain executor bit for bit", function()
    local g = build(w, b)
    local run, x = g:compile(), batch(3)
    local a, c = run { x = x }, g:run { x = x }
    for _, name in ipairs { "y", "loss", "gw" } do assert.same(c[name]:totable(), a[name]:totable()) end
  end)

  it("fetches any tensor through a session, by handle or name", function()
    local g, _, y, loss = build(w, b)
    local s = g:session()
    local x = batch(2)
    local l, yy = s:run({ loss, "y" }, { x = x })
    local want = (x:matmul(w) + b):tanh()
    same(want:detach(), yy)
    same((want * want):mean():detach(), l)
    assert.has_error(function() s:run("nothing", { x = x }) end)
    assert.equal(y.shape[2], 2)
  end)

  it("says which input is wrong", function()
    local run = build(w, b):compile()
    local ok, err = pcall(run, {})
    assert.is_false(ok)
    assert.truthy(err:find("input x", 1, true))
    ok, err = pcall(run, { x = sc.tensor { { 1.0, 2.0 } } })
    assert.is_false(ok)
    assert.truthy(err:find("input x", 1, true), err)
  end)

  it("can be read: a line a node, with the script's line", function()
    local text = build(w, b):text()
    assert.truthy(text:find('tanh%(.-graph_spec.lua":%d+'), text)
    assert.truthy(text:find("batch", 1, true), text)
    assert.truthy(build(w, b):dot():find("digraph", 1, true))
  end)
end)
