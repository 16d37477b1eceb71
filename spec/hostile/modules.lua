-- Scenarios of the hostile driver for modules, optimisers, data and the ops that simple inputs do not reach.
local sc = require "sconce"
local nn, F = sc.nn, sc.nn.functional

local function rows(n, k) return sc.arange(n * k):to("float32"):reshape { n, k } / (n * k) - 0.4 end

--- The output of a module for x, and the gradients of its parameters.
local function module(name, make, x)
  return { name = "module: " .. name, every = 20, make = function()
    sc.manual_seed(5)
    local m, i = make(), { x = x() }
    i.parameters = m:parameters()
    i.call = function(...) return m(...) end
    return i
  end, run = function(i)
    local y = i.call(i.x)
    return { y:detach(), table.unpack({ sc.grad(y:square():sum(), i.parameters, { allow_unused = true }) }, 1, #i.parameters) }
  end }
end

--- A step of an optimiser with one parameter, whose state is made by it.
local function optimiser(name, options)
  return { name = "optimiser: " .. name, every = 20, make = function()
    local w = sc.tensor({ { 1.0, 0.5 }, { 0.25, -2.0 } }, { requires_grad = true })
    w.grad = sc.tensor { { 0.5, -0.5 }, { 1.0, 0.25 } }
    local opt = sc.optim[name]({ w }, options)
    return { w = w, step = function() opt:step() end }
  end, run = function(i)
    i.step()
    return i.w:detach()
  end, torn = true }
end

local function op(name, make, fn)
  return { name = "ops: " .. name, make = make, run = fn }
end

local function seq() return rows(6, 4):reshape { 3, 2, 4 } end

return {
  module("Linear", function() return nn.Linear(4, 3) end, function() return rows(5, 4) end),
  module("Conv2d", function() return nn.Conv2d(1, 2, 3, { padding = 1 }) end, function() return rows(6, 6):reshape { 1, 1, 6, 6 } end),
  module("LSTM", function() local m = nn.LSTM(4, 3) return setmetatable({}, { __index = m, __call = function(_, x) return (m(x)) end }) end, seq),
  module("GRU", function() local m = nn.GRU(4, 3) return setmetatable({}, { __index = m, __call = function(_, x) return (m(x)) end }) end, seq),
  module("LayerNorm", function() return nn.LayerNorm(4) end, function() return rows(5, 4) end),
  module("TransformerEncoderLayer", function() return nn.TransformerEncoderLayer(4, 2, { dim_feedforward = 8, dropout = 0.0 }) end, seq),
  optimiser("SGD", { lr = 0.1, momentum = 0.9 }), optimiser("Adam", { lr = 0.1 }), optimiser("AdamW", { lr = 0.1 }),
  optimiser("RMSprop", { lr = 0.1 }), optimiser("Adagrad", { lr = 0.1 }),
  { name = "data: a loader", torn = true, every = 20, make = function() return { x = rows(6, 2) } end, run = function(i)
    local seen = {}
    for x in sc.data.DataLoader(sc.data.TensorDataset(i.x), { batch_size = 4, shuffle = true, seed = 1 }) do seen[#seen + 1] = x end
    return seen
  end },
  op("batch_norm", function()
    return { x = rows(4, 3), mean = sc.zeros { 3 }, var = sc.ones { 3 } }
  end, function(i)
    local mean, var = i.mean:clone(), i.var:clone()
    return { F.batch_norm(i.x, mean, var, nil, nil, true, 0.1), mean, var }
  end),
  op("writes by index", function() return { x = rows(4, 3), at = sc.tensor { 1, 3 }, mask = rows(4, 3):gt(0.0) } end, function(i)
    local x = i.x:clone()
    x[{ i.at, {} }] = 2.0
    x[i.mask] = 1.0
    x[{ { 1, 2 }, { 2, 3 } }] = x[{ { 2, 3 }, { 1, 2 } }]
    return { x, x[i.mask], x[{ i.at, 1 }] }
  end),
  op("linear algebra", function() return { a = sc.eye(3) * 2.0 + rows(3, 3), b = rows(3, 2) } end, function(i)
    return { sc.linalg.solve(i.a, i.b), sc.linalg.inv(i.a), { sc.linalg.qr(i.a) }, { sc.linalg.svd(i.b) }, sc.linalg.det(i.a) }
  end),
  op("fold and interpolate", function() return { x = rows(8, 9):reshape { 1, 8, 9 }, y = rows(4, 4):reshape { 1, 1, 4, 4 } } end, function(i)
    return { F.fold(i.x, { 4, 4 }, { 2, 2 }), F.interpolate(i.y, { scale_factor = 2, mode = "bilinear" }), F.adaptive_avg_pool1d(i.x, 3) }
  end),
  op("pools and convolutions of other dimensions", function() return { x = rows(8, 8):reshape { 1, 1, 4, 4, 4 }, s = rows(2, 8):reshape { 1, 2, 8 } } end,
    function(i)
      return { F.max_pool3d(i.x, 2), F.avg_pool3d(i.x, 2), F.conv3d(i.x, sc.ones { 1, 1, 2, 2, 2 }), F.conv1d(i.s, sc.ones { 2, 2, 3 }),
        F.conv_transpose1d(i.s, sc.ones { 2, 2, 3 }), F.max_pool1d(i.s, 2) }
    end),
  op("ctc and grids", function()
    return { p = F.log_softmax(rows(10, 4):reshape { 5, 2, 4 }, -1), x = rows(4, 4):reshape { 1, 1, 4, 4 } }
  end, function(i)
    local grid = F.affine_grid(sc.tensor { { { 1.0, 0.0, 0.1 }, { 0.0, 1.0, 0.0 } } }, { 1, 1, 4, 4 })
    return { F.grid_sample(i.x, grid), F.ctc_loss(i.p, sc.tensor { { 2, 3 }, { 4, 2 } }, sc.tensor { 5, 5 }, sc.tensor { 2, 2 }) }
  end),
}
