-- Scenarios of the hostile driver for static graphs: traced, built, run, sliced, looked into, saved and loaded. What a training step
-- changes is among the inputs, so a step that fails anywhere must leave it as it was.
local sc = require "sconce"
local F = sc.nn.functional

local function x32() return sc.tensor { { 1.0, 2.0 }, { 3.0, 4.0 }, { 5.0, 6.0 } } end
local function w22(grad) return sc.tensor({ { 1.0, 0.5 }, { 0.25, -2.0 } }, { requires_grad = grad }) end
local function b2(grad) return sc.tensor({ 0.5, 0.25 }, { requires_grad = grad }) end
local NET_LINE = "graphs.lua:" .. debug.getinfo(1, "l").currentline + 1
local function net(i, x) return (x:matmul(i.w) + i.b):tanh() end

local function call(i) return i.f(i.x) end

--- A compiled training step over w and b, not called yet.
local function training(make_optimiser)
  local i = { x = x32(), w = w22(true), b = b2(true) }
  local opt = make_optimiser { i.w, i.b }
  i.f = sc.compile(function(x)
    opt:zero_grad()
    local loss = net(i, x):square():sum()
    loss:backward()
    sc.nn.utils.clip_grad_norm_({ i.w, i.b }, 1.0)
    opt:step()
    return loss
  end)
  return i
end

local function sgd(p) return sc.optim.SGD(p, { lr = 0.1, momentum = 0.9 }) end
local function adam(p) return sc.optim.Adam(p, { lr = 0.1 }) end

--- Calls i.f, whose error with `text` in it is the right result.
local function failing(text)
  return function(i)
    local ok, e = pcall(i.f, i.x)
    if not ok and not tostring(e):find(text, 1, true) then error(e, 0) end
    return ok and "no error" or "the error"
  end
end

local function built()
  local i = { x = x32(), w = w22(true), b = b2(true) }
  local g = sc.graph()
  local x = g:input("x", { "n", 2 })
  local y = net(i, x)
  local loss = y:mean()
  g:output("y", y)
  g:output("loss", loss)
  return i, g, y, loss
end

local function in_file(name, write, read)
  local path = os.getenv("TMPDIR") or "/tmp"
  path = path .. "/sconce_hostile_" .. name
  return function(i)
    local ok, r = pcall(function()
      write(i, path)
      return read(i, path)
    end)
    os.remove(path)
    if not ok then error(r, 0) end
    return r
  end
end

local list = {
  { name = "graph: compiled function, traced", make = function()
    local i = { x = x32(), w = w22(false), b = b2(false) }
    i.f = sc.compile(function(x) return net(i, x), x + 1.0 end)
    return i
  end, run = function(i) return { i.f(i.x) } end },
  { name = "graph: compiled function, run again", make = function()
    local i = { x = x32(), w = w22(false), b = b2(false) }
    i.f = sc.compile(function(x) return { y = net(i, x) } end)
    i.f(i.x)
    return i
  end, run = call },
  { name = "graph: compiled function, traced again", make = function()
    local i = { x = x32(), w = w22(false), b = b2(false) }
    i.f = sc.compile(function(x) return net(i, x):sum(1) end)
    i.f(sc.ones { 5, 2 })
    return i
  end, run = call },
  { name = "graph: compiled function that raises", make = function()
    return { x = x32(), f = sc.compile(function(x)
      local y = x * 2.0
      error("planned " .. y.dtype)
    end) }
  end, run = failing "planned float32" },
  { name = "graph: compiled function with a wrong shape", make = function()
    return { x = x32(), f = sc.compile(function(x) return x:matmul(x) end) }
  end, run = failing "matmul" },
  { name = "graph: gradients through a compiled function", make = function()
    local i = { x = x32(), w = w22(true), b = b2(true) }
    i.f = sc.compile(function(x) return net(i, x) end)
    return i
  end, run = function(i) return { sc.grad(i.f(i.x):sum(), { i.w, i.b }) } end },
  { name = "graph: training step, traced (SGD)", make = function() return training(sgd) end, run = call },
  { name = "graph: training step, traced (Adam)", make = function() return training(adam) end, run = call },
  { name = "graph: training step, run again", make = function()
    local i = training(sgd)
    i.f(i.x)
    return i
  end, run = call },
  { name = "graph: writes to captured tensors and views", make = function()
    local i = { x = x32(), total = sc.zeros { 3, 2 } }
    i.f = sc.compile(function(x)
      i.total:add_(x)
      i.total:select(1, 1):mul_(2.0)
      return i.total:sum()
    end)
    return i
  end, run = call },
  { name = "graph: random numbers", make = function()
    return { x = x32(), f = sc.compile(function(x) return F.dropout(x, 0.5, true) + sc.randn { 3, 2 } end) }
  end, run = call },
  { name = "graph: cond with gradients", make = function()
    local i = { x = x32(), w = w22(true) }
    i.f = sc.compile(function(x)
      local y = sc.cond(x:sum():gt(0.0), function(a) return a:matmul(i.w) end, function(a) return a * 2.0 end, x)
      return (sc.grad(y:sum(), i.w))
    end)
    return i
  end, run = call },
  { name = "graph: while_loop with gradients", make = function()
    local i = { x = w22(false), w = w22(true) }
    i.f = sc.compile(function(x)
      local _, y = sc.while_loop(function(k) return k:lt(3) end, function(k, a) return k + 1, (a:matmul(i.w)):tanh() end, sc.tensor(0), x)
      return (sc.grad(y:sum(), i.w))
    end)
    return i
  end, run = call },
  { name = "graph: scan with gradients", make = function()
    local i = { x = x32(), w = w22(true), h = b2(false) }
    i.f = sc.compile(function(x)
      local h, ys = sc.scan(function(h, row) local n = (h + row):mul(i.w:sum(1)):tanh() return n, n end, i.h, x)
      return (sc.grad(h:sum() + ys:sum(), i.w))
    end)
    return i
  end, run = call },
  { name = "graph: built, of any size", make = function() return { x = x32() } end, run = function(i)
    local _, g = built()
    local run = g:compile()
    return { run { x = i.x }, run { x = i.x:narrow(1, 1, 2) } }
  end },
  { name = "graph: session", make = function()
    local i, g, y, loss = built()
    i.s = function(x) return g:session():run({ y, loss }, { x = x }) end
    return i
  end, run = function(i) return { i.s(i.x) } end },
  { name = "graph: a job in slices", make = function()
    local i = training(sgd)
    i.f(i.x)
    local compiled = i.f
    i.f = function(x)
      local job = compiled.last:start(x)
      while not job:advance(0) do end -- luacheck: ignore 542
      return job:result()
    end
    return i
  end, run = call },
  { name = "graph: a job cancelled", make = function()
    local i = training(sgd)
    i.f(i.x)
    local compiled = i.f
    i.f = function(x)
      local job = compiled.last:start(x)
      job:advance(0)
      job:cancel()
      return { i.w:detach(), i.b:detach() }
    end
    return i
  end, run = call },
  { name = "graph: a clone of a run", make = function()
    local i = training(sgd)
    i.f(i.x)
    local compiled = i.f
    i.f = function(x) return compiled.last:clone()(x) end
    return i
  end, run = call },
  { name = "graph: profile and break_at", torn = true, make = function()
    local i = { x = x32(), w = w22(false), b = b2(false) }
    local f = sc.compile(function(x) return net(i, x) end)
    f(i.x)
    i.f = function(x)
      local seen = 0
      f.last:profile(true)
      f.last:break_at(NET_LINE, function() seen = seen + 1 end)
      local ok, y = pcall(f, x)
      f.last:profile(false)
      f.last:break_at(NET_LINE, nil)
      if not ok then error(y, 0) end
      return { y, seen, tostring(f.last:profile()):find("tanh") ~= nil }
    end
    return i
  end, run = call },
  { name = "graph: check_nan", make = function()
    local f = sc.compile(function(x) return (x - 10.0):log() end)
    local x = x32()
    f(x)
    f.last:check_nan(true)
    return { x = x, f = f }
  end, run = failing "NaN" },
  { name = "graph: verify", torn = true, every = 20, make = function()
    local i = training(sgd)
    i.v = i.f
    return i
  end, run = function(i) return { sc.verify(i.v, i.x) } end },
  { name = "graph: printed", make = function()
    local i, g = built()
    i.g = function() return tostring(g):gsub("0x%x+", ""), g:dot() end
    return i
  end, run = function(i) return { i.g() } end },
  { name = "graph: saved as ONNX and loaded", forever = false, every = 20, make = function()
    local i, g = built()
    i.save = function(path) g:save(path) end
    return i
  end, run = in_file("graph.onnx", function(i, path) i.save(path) end, function(i, path) return sc.load_graph(path) { x = i.x } end) },
}
return list
