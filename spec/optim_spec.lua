-- Optimisers and schedules against stored PyTorch results (spec/reference/make.py), and their rules.
local sc = require "sconce"
local optim = sc.optim
local S = optim.lr_scheduler
local reference = dofile "spec/reference/optim.lua"

--- As make.py's `fill`.
local function fill(shape, seed)
  local n, v = 1, {}
  for _, s in ipairs(shape) do n = n * s end
  for i = 0, n - 1 do v[i + 1] = math.sin(seed + 1.7 * i + 0.3 * (i % 7)) end
  return sc.tensor(v, { dtype = "float64" }):reshape(shape)
end

local STEPS = {
  ["SGD"] = function(p) return optim.SGD(p, { lr = 0.05 }) end,
  ["SGD momentum"] = function(p) return optim.SGD(p, { lr = 0.05, momentum = 0.9, dampening = 0.2, weight_decay = 0.01 }) end,
  ["SGD nesterov"] = function(p) return optim.SGD(p, 0.05, 0.9, { nesterov = true }) end,
  ["SGD maximize"] = function(p) return optim.SGD(p, { lr = 0.01, maximize = true, weight_decay = 0.1 }) end,
  ["Adam"] = function(p) return optim.Adam(p, 0.05) end,
  ["Adam amsgrad"] = function(p) return optim.Adam(p, { lr = 0.05, betas = { 0.8, 0.9 }, eps = 1e-6, weight_decay = 0.02, amsgrad =
    true }) end,
  ["AdamW"] = function(p) return optim.AdamW(p, { lr = 0.05, weight_decay = 0.1 }) end,
  ["RMSprop"] = function(p) return optim.RMSprop(p, { lr = 0.02 }) end,
  ["RMSprop centered"] = function(p) return optim.RMSprop(p, { lr = 0.02, alpha = 0.9, momentum = 0.5, centered = true, weight_decay =
    0.01 }) end,
  ["Adagrad"] = function(p) return optim.Adagrad(p, { lr = 0.1, lr_decay = 0.1, initial_accumulator_value = 0.1, weight_decay = 0.01 }) end,
  ["Adadelta"] = function(p) return optim.Adadelta(p, { weight_decay = 0.01 }) end,
  ["Adamax"] = function(p) return optim.Adamax(p, { lr = 0.05, weight_decay = 0.01 }) end,
  ["NAdam"] = function(p) return optim.NAdam(p, { lr = 0.05, weight_decay = 0.01 }) end,
  ["RAdam"] = function(p) return optim.RAdam(p, { lr = 0.05, weight_decay = 0.01 }) end,
  ["groups"] = function(p) return optim.SGD({ { params = { p[1] }, lr = 0.1 }, { params = { p[2] }, momentum = 0.5 } }, { lr = 0.01 }) end,
  ["LBFGS"] = function(p) return optim.LBFGS(p, { lr = 0.5, max_iter = 3, history_size = 2 }) end,
  ["LBFGS strong_wolfe"] = function(p) return optim.LBFGS(p, { max_iter = 4, line_search_fn = "strong_wolfe" }) end,
}

local function parameters(dtype)
  local p = { fill({ 3, 2 }, 1):to(dtype or "float64"), fill({ 4 }, 2):to(dtype or "float64") }
  for _, t in ipairs(p) do t.requires_grad = true end
  return p
end

local function loss_of(p, seed)
  local a = p[1] * p[1] - 0.5
  return (a * a):sum() + (p[2] - fill({ 4 }, seed):to(p[2].dtype)):pow(2):sum() * 0.7 + (p[1]:sum() * p[2]:sum()) * 0.1
end

local function values(p)
  local v = {}
  for _, t in ipairs(p) do for _, x in ipairs(t:reshape { -1 }:totable()) do v[#v + 1] = x end end
  return v
end

local function step(name, p, opt, k)
  local closure = name:find("^LBFGS")
  local function loss()
    opt:zero_grad()
    local l = loss_of(p, 3 + (closure and 0 or k - 1))
    l:backward()
    return l
  end
  if closure then return opt:step(loss) end
  loss()
  opt:step()
end

describe("an optimiser makes PyTorch's steps:", function()
  for name, want in pairs(reference.steps) do
    it(name, function()
      local p = parameters()
      local opt = STEPS[name](p)
      for k, row in ipairs(want) do
        step(name, p, opt, k)
        for i, v in ipairs(values(p)) do
          assert(math.abs(v - row[i]) < 1e-7 + 1e-7 * math.abs(row[i]), ("step %d, value %d: expected %.9g, got %.9g"):format(k, i,
            row[i], v))
        end
      end
    end)
  end

  it("goes on the same from a state dict, bit for bit", function()
    for name, make in pairs(STEPS) do
      local p = parameters()
      local opt = make(p)
      for k = 1, 2 do step(name, p, opt, k) end
      local q = {}
      for i, t in ipairs(p) do q[i] = t:detach():clone():requires_grad_(true) end
      local other = make(q)
      other:load_state_dict(opt:state_dict())
      for k = 3, 4 do
        step(name, p, opt, k)
        step(name, q, other, k)
      end
      assert.same(values(p), values(q), name)
    end
  end)

  it("does the same on strided parameters, and on halves what float32 rounded does", function()
    for _, name in ipairs { "SGD momentum", "Adam amsgrad", "RMSprop centered" } do
      local p = parameters()
      local whole = sc.zeros({ 2, 3 }, { dtype = "float64" })
      whole:copy_(p[1]:detach():t())
      local q = { whole:t(), p[2]:detach():clone() }
      for _, t in ipairs(q) do t.requires_grad = true end
      assert.is_false(q[1]:is_contiguous())
      local a, b = STEPS[name](p), STEPS[name](q)
      for k = 1, 3 do
        step(name, p, a, k)
        step(name, q, b, k)
      end
      assert.same(values(p), values(q), name)
      local h, f = parameters("float16"), parameters("float32")
      local c, d = STEPS[name](h), STEPS[name](f)
      step(name, h, c, 1)
      step(name, f, d, 1)
      for i, v in ipairs(values(h)) do assert.near(values(f)[i], v, 4e-3) end
    end
  end)

  it("does not depend on the number of threads", function()
    local function run(threads)
      local before = sc.get_num_threads()
      sc.set_num_threads(threads)
      local x = sc.linspace(-1, 1, 300001)
      local p = x:clone():requires_grad_(true)
      local opt = optim.Adam { p }
      for _ = 1, 2 do
        p.grad = x:sin()
        opt:step()
      end
      sc.set_num_threads(before)
      return p:detach():tostring_bytes()
    end
    assert.equal(run(1), run(3))
  end)
end)

describe("an optimiser", function()
  local function leaf() return sc.ones({ 2 }, { requires_grad = true }) end

  it("refuses what cannot be meant, at the caller's line", function()
    local p = leaf()
    for what, fn in pairs {
      ["given twice"] = function() optim.SGD({ p, p }, 0.1) end,
      ["empty"] = function() optim.SGD({}, 0.1) end,
      ["not a leaf"] = function() optim.SGD({ p * 2 }, 0.1) end,
      ["a tensor"] = function() optim.SGD({ p, 3 }, 0.1) end,
      ["a list of tensors"] = function() optim.SGD(p, 0.1) end,
      ["lr"] = function() optim.SGD({ p }) end,
      ["from 0"] = function() optim.Adam({ p }, -1.0) end,
      ["betas"] = function() optim.Adam({ p }, { betas = { 0.9, 1.0 } }) end,
      ["nesterov"] = function() optim.SGD({ p }, { lr = 0.1, nesterov = true }) end,
      ["momentumm"] = function() optim.SGD({ { params = { p }, momentumm = 1 } }, 0.1) end,
      ["there is no option"] = function() optim.SGD({ p }, { lr = 0.1, momentumm = 1 }) end,
    } do
      local ok, message = pcall(fn)
      assert.is_false(ok, what)
      assert(message:find(what, 1, true), message)
      assert(message:find("optim_spec.lua:%d+:"), message)
    end
    local opt = optim.SGD({ p }, 0.1)
    assert.has_error(function() opt:add_param_group { params = { leaf(), p } } end)
    assert.equal(1, #opt.param_groups)
  end)

  it("drops gradients, or zeroes them when told", function()
    local p = leaf()
    local opt = optim.SGD({ p }, 0.1)
    p.grad = sc.ones { 2 }
    opt:zero_grad(false)
    assert.same({ 0.0, 0.0 }, p.grad:totable())
    opt:zero_grad()
    assert.is_nil(p.grad)
  end)

  it("calls a closure with gradients on and returns its result", function()
    local p = leaf()
    local opt = optim.SGD({ p }, 0.5)
    local loss = sc.no_grad(function()
      return opt:step(function()
        local l = (p * p):sum()
        l:backward()
        return l
      end)
    end)
    assert.equal(2.0, loss:item())
    assert.same({ 0.0, 0.0 }, p:totable())
  end)

  it("passes over a parameter of infinity without making NaN of it", function()
    local p = sc.tensor({ math.huge, 1.0 }, { requires_grad = true })
    local opt = optim.SGD({ p }, 0.5)
    p.grad = sc.zeros { 2 }
    opt:step()
    assert.same({ math.huge, 1.0 }, p:totable())
  end)

  it("refuses a state dict that does not fit", function()
    local a, b = optim.Adam({ leaf() }), optim.Adam({ leaf(), leaf() })
    assert.has_error(function() a:load_state_dict(b:state_dict()) end)
    local p, q = leaf(), sc.ones({ 3 }, { requires_grad = true })
    local c, d = optim.Adam({ p }), optim.Adam({ q })
    q.grad = sc.ones { 3 }
    d:step()
    assert.has_error(function() c:load_state_dict(d:state_dict()) end)
  end)
end)

local RATES = {
  ["StepLR"] = { function(o) return S.StepLR(o, 3, 0.5) end },
  ["MultiStepLR"] = { function(o) return S.MultiStepLR(o, { 2, 5, 5 }, { gamma = 0.5 }) end },
  ["ExponentialLR"] = { function(o) return S.ExponentialLR(o, 0.9) end },
  ["ConstantLR"] = { function(o) return S.ConstantLR(o, 0.5, 4) end },
  ["LinearLR"] = { function(o) return S.LinearLR(o, 0.25, 0.75, 6) end },
  ["PolynomialLR"] = { function(o) return S.PolynomialLR(o, 6, 2.0) end },
  ["LambdaLR"] = { function(o) return S.LambdaLR(o, function(e) return 0.9 ^ e end) end },
  ["CosineAnnealingLR"] = { function(o) return S.CosineAnnealingLR(o, 5, 0.01) end },
  ["CosineAnnealingWarmRestarts"] = { function(o) return S.CosineAnnealingWarmRestarts(o, 3, 2, { eta_min = 0.01 }) end },
  ["OneCycleLR"] = { function(o) return S.OneCycleLR(o, 0.5, { total_steps = 14 }) end, 0.9 },
  ["OneCycleLR three"] = { function(o)
    return S.OneCycleLR(o, { 0.5, 1.0 }, { epochs = 2, steps_per_epoch = 7, anneal_strategy = "linear", three_phase = true })
  end, 0.9 },
  ["SequentialLR"] = { function(o) return S.SequentialLR(o, { S.ConstantLR(o, 0.1, 3), S.ExponentialLR(o, 0.9) }, { 4 }) end },
  ["CyclicLR"] = { function(o) return S.CyclicLR(o, 0.01, { 0.1, 0.5 }, { step_size_up = 3, step_size_down = 2 }) end, 0.9 },
  ["CyclicLR triangular2"] = { function(o)
    return S.CyclicLR(o, 0.01, 0.1, { step_size_up = 2, mode = "triangular2", cycle_momentum = false })
  end },
  ["CyclicLR exp_range"] = { function(o)
    return S.CyclicLR(o, 0.01, 0.1, { step_size_up = 2, mode = "exp_range", gamma = 0.9, cycle_momentum = false })
  end },
  ["ChainedScheduler"] = { function(o) return S.ChainedScheduler { S.ConstantLR(o, 0.1, 3), S.ExponentialLR(o, 0.9) } end },
  ["ReduceLROnPlateau"] = { function(o) return S.ReduceLROnPlateau(o, "min", 0.5, 1, { cooldown = 1 }) end, 0,
    { 1, .9, .9, .9, .9, .8, .8, .8, .8, .8, .8, .7, .7 } },
}

describe("a schedule sets PyTorch's rates:", function()
  local function optimiser(momentum)
    return optim.SGD({ { params = { fill({ 2 }, 1):requires_grad_(true) }, lr = 0.4 }, { params = { fill({ 1 },
      2):requires_grad_(true) } } },
      { lr = 0.1, momentum = momentum })
  end
  for name, want in pairs(reference.rates) do
    it(name .. ", also when resumed in the middle", function()
      local case = RATES[name]
      local opt = optimiser(case[2] or 0)
      local s = case[1](opt)
      for k, row in ipairs(want) do
        for i, g in ipairs(opt.param_groups) do
          assert(math.abs(g.lr - row[i]) < 1e-8, ("epoch %d, group %d: expected %.9g, got %.9g"):format(k - 1, i, row[i], g.lr))
        end
        if k == 6 then
          local opt2 = optimiser(case[2] or 0)
          local s2 = case[1](opt2)
          opt2:load_state_dict(opt:state_dict())
          s2:load_state_dict(s:state_dict())
          opt, s = opt2, s2
        end
        if k < #want then
          opt:step()
          s:step(case[3] and case[3][k])
        end
      end
      assert.equal(opt.param_groups[1].lr, s:get_last_lr()[1])
    end)
  end
  it("goes to an epoch by number in closed form", function()
    local opt = optimiser(0)
    local s = S.StepLR(opt, 3, 0.5)
    s:step(7)
    assert.near(0.1, opt.param_groups[1].lr, 1e-12)
  end)
end)
