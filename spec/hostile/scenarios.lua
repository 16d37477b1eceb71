-- Scenarios of the hostile driver that are more than one op. Each: name, make() -> inputs, run(inputs) -> result.
local sc = require "sconce"

local function leaves()
  return { w = sc.tensor({ { 1.0, 0.5 }, { 0.25, -2.0 } }, { requires_grad = true }),
    b = sc.tensor({ 0.5, 0.25 }, { requires_grad = true }), x = sc.tensor { { 1.0, 2.0 }, { 3.0, 4.0 }, { 5.0, 6.0 } } }
end

local function mlp(i) return (i.x:matmul(i.w) + i.b):tanh():sum() end

local function accumulate(i, r)
  i.w.grad, i.b.grad = i.w.grad:clone(), i.b.grad:clone()
  mlp(i):backward()
  r.w, r.b = i.w.grad, i.b.grad
end

local Cube = sc.autograd.Function {
  forward = function(ctx, x) ctx:save(x) return x * x * x end,
  backward = function(ctx, dy) local x = ctx:saved() return dy * x * x * 3.0 end,
}

return {
  { name = "backward", make = leaves, run = function(i)
    local g = { sc.grad(mlp(i), { i.w, i.b }) }
    return g
  end },
  { name = "accumulate", make = function()
    local i = leaves()
    mlp(i):backward()
    return i
  end, run = function(i)
    local r, w, b = {}, i.w.grad, i.b.grad                       -- these stay what they are: backward adds to copies
    local ok, e = pcall(accumulate, i, r)
    i.w.grad, i.b.grad = w, b
    if not ok then error(e, 0) end
    return r
  end },
  { name = "second derivatives", make = leaves, run = function(i)
    local g = sc.grad(mlp(i), i.w, { create_graph = true })
    return sc.grad((g * g):sum(), { i.w, i.b })
  end },
  { name = "in-place on views", make = leaves, run = function(i)
    local base = sc.full({ 3, 2 }, 1.0)
    local v = base:narrow(1, 1, 2)
    v:mul_(i.w)
    v:mul_(v)
    return { base:detach(), sc.grad((base * base):sum(), i.w) }
  end },
  { name = "hooks", make = leaves, run = function(i)
    local y = i.w * 2.0
    y:register_hook(function(g) return g * 3.0 end)
    y:retain_grad()
    return { sc.grad((y * y):sum(), i.w), y.grad }
  end },
  { name = "custom function", make = leaves, run = function(i)
    local y = Cube(i.w) + Cube(i.w * 2.0)
    local g = sc.grad(y:sum(), i.w, { create_graph = true })
    return { g:detach(), sc.grad(g:sum(), i.w) }
  end },
  { name = "checkpoint", make = leaves, run = function(i)
    local y = sc.checkpoint(function(x) return (x:matmul(i.w) + i.b):tanh() end, i.x)
    return { sc.grad(y:sum(), { i.w, i.b }) }
  end },
  { name = "training step", make = leaves, run = function(i)
    local w = i.w:detach():clone():requires_grad_()
    for _ = 1, 2 do
      local g = sc.grad((i.x:matmul(w) + i.b):relu():sum(), w)
      sc.no_grad(function() w:sub_(g * 0.1) end)
    end
    return w:detach()
  end },
  { name = "scope", make = leaves, run = function(i)
    return sc.scope(function() local a = i.x * 2.0 local b = a + 1.0 return { b, a:sum() } end)
  end },
  { name = "graph, recorded and run", make = leaves, run = function(i)
    local g = sc.graph()
    local x = g:input("x", { 3, 2 })
    local loss = (x:matmul(i.w) + i.b):tanh():sum()
    g:output("loss", loss)
    g:output("dw", (sc.grad(loss, i.w)))
    return g:run { x = i.x }
  end },
  { name = "many inputs", make = leaves, run = function(i)
    local list = {}
    for k = 1, 20 do list[k] = i.w * k end
    return sc.grad(sc.stack(list):sum(), i.w)
  end },
  { name = "saved and loaded", forever = false, make = function()
    local i = leaves()
    return { x = i.x }
  end, run = function(i)
    local path = os.tmpname()
    local ok, r = pcall(function()
      sc.save(path, { x = i.x })
      return sc.load(path)
    end)
    os.remove(path)
    if not ok then error(r, 0) end
    return r
  end },
}
