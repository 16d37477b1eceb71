-- Losses: values worked out by plain loops, limits at infinity, refusals. (PyTorch's own cases run in the conformance suite.)
local sc = require "sconce"
local F, nn = sc.nn.functional, sc.nn

local function sigmoid(x) return 1 / (1 + math.exp(-x)) end

-- name -> element function of x, t; x values, t values
local ELEMENTS = {
  mse_loss = { function(x, t) return (x - t) ^ 2 end },
  l1_loss = { function(x, t) return math.abs(x - t) end },
  smooth_l1_loss = { function(x, t)
    local d = math.abs(x - t)
    return d < 0.5 and d * d or d - 0.25
  end, { beta = 0.5 } },
  huber_loss = { function(x, t)
    local d = math.abs(x - t)
    return d < 0.5 and d * d / 2 or 0.5 * (d - 0.25)
  end, { delta = 0.5 } },
  binary_cross_entropy_with_logits = { function(x, t) return -t * math.log(sigmoid(x)) - (1 - t) * math.log(1 - sigmoid(x)) end },
  kl_div = { function(x, t) return t > 0 and t * (math.log(t) - x) or 0 end },
  soft_margin_loss = { function(x, t) return math.log(1 + math.exp(-x * t)) end },
  poisson_nll_loss = { function(x, t) return math.exp(x) - t * x end },
}
local X, T = { -1.5, -0.2, 0.3, 2.0, 0.0, 0.7 }, { 0.0, 0.5, 1.0, 0.25, 1.0, 0.0 }

describe("an element-wise loss", function()
  for name, case in pairs(ELEMENTS) do
    it("is what its formula says, for each reduction: " .. name, function()
      local x = sc.tensor(X, { dtype = "float64" }):reshape(2, 3)
      local t = sc.tensor(T, { dtype = "float64" }):reshape(2, 3)
      local sum = 0
      local options = case[2] or {}
      local function call(reduction)
        local o = { reduction = reduction }
        for k, v in pairs(options) do o[k] = v end
        return F[name](x, t, o)
      end
      local none = call("none"):reshape { -1 }:totable()
      for i = 1, 6 do
        local want = case[1](X[i], T[i])
        assert.near(want, none[i], 1e-9)
        sum = sum + want
      end
      assert.near(sum, call("sum"):item(), 1e-9)
      assert.near(sum / 6, call("mean"):item(), 1e-9)
    end)

    it("refuses to broadcast and a reduction it does not know: " .. name, function()
      for _, shape in ipairs { { 3 }, { 2, 1 }, { 1 }, { 2, 3, 1 } } do
        local ok, message = pcall(F[name], sc.zeros { 2, 3 }, sc.zeros(shape))
        assert.is_false(ok)
        assert(message:find("shape", 1, true), message)
      end
      local ok, message = pcall(F[name], sc.zeros { 2 }, sc.zeros { 2 }, { reduction = "men" })
      assert.is_false(ok)
      assert(message:find("reduction", 1, true) and message:find("men", 1, true), message)
    end)

    it("has derivatives of first and second order: " .. name, function()
      local x = sc.tensor(X, { dtype = "float64", requires_grad = true })
      local t = sc.tensor(T, { dtype = "float64" })
      local function slope() return sc.grad(F[name](x, t, case[2] or { reduction = "mean" }), x, { create_graph = true }) end
      local function value(v) return F[name](sc.tensor(v, { dtype = "float64" }), t, case[2] or { reduction = "mean" }):item() end
      local g = slope()
      local second = g.requires_grad and sc.grad(g:sum(), x, { allow_unused = true })
      local h = 1e-5
      for i = 1, 6 do
        local up, down = table.move(X, 1, 6, 1, {}), table.move(X, 1, 6, 1, {})
        up[i], down[i] = up[i] + h, down[i] - h
        assert.near((value(up) - value(down)) / (2 * h), g:detach():totable()[i], 1e-7)
        local bend = (value(up) - 2 * value(X) + value(down)) / h ^ 2
        assert.near(bend, second and second:totable()[i] or 0, 1e-4)
      end
    end)
  end

  it("takes its limit at infinity: a masked logit with target 0 costs nothing, and pulls nothing", function()
    for _, case in ipairs { { -math.huge, 0.0 }, { math.huge, 1.0 } } do
      for _, weight in ipairs { false, sc.tensor { 3.0 } } do
        local x = sc.tensor({ case[1] }, { requires_grad = true })
        local loss = F.binary_cross_entropy_with_logits(x, sc.tensor { case[2] }, { pos_weight = weight or nil, reduction = "sum" })
        loss:backward()
        assert.equal(0.0, loss:item())
        assert.equal(0.0, x.grad:item())
      end
    end
    local x = sc.tensor({ -math.huge, -1.0 }, { requires_grad = true })
    local loss = F.kl_div(x, sc.tensor { 0.0, 1.0 }, { reduction = "sum" })
    loss:backward()
    assert.equal(1.0, loss:item())
    assert.same({ 0.0, -1.0 }, x.grad:totable())
    local logs = F.kl_div(sc.tensor { -math.huge, -1.0 }, sc.tensor { -math.huge, 0.0 }, { log_target = true, reduction = "sum" })
    assert.equal(1.0, logs:item())
    local weighed = F.binary_cross_entropy_with_logits(sc.tensor { -math.huge, 0.0 }, sc.tensor { 1.0, 1.0 },
      { weight = sc.tensor { 0.0, 1.0 }, reduction = "sum" })
    assert.near(math.log(2), weighed:item(), 1e-6)
  end)

  it("keeps binary_cross_entropy finite, and refuses what is no probability", function()
    assert.equal(100.0, F.binary_cross_entropy(sc.tensor { 0.0 }, sc.tensor { 1.0 }):item())
    for _, bad in ipairs { -0.1, 1.5, 0 / 0 } do
      assert.has_error(function() F.binary_cross_entropy(sc.tensor { 0.5, bad }, sc.tensor { 1.0, 1.0 }) end)
    end
    assert.has_error(function() F.smooth_l1_loss(sc.ones { 1 }, sc.ones { 1 }, { beta = -1 }) end)
    assert.has_error(function() F.huber_loss(sc.ones { 1 }, sc.ones { 1 }, { delta = 0 }) end)
  end)

  it("of nothing is NaN as a mean and 0 as a sum", function()
    local e = sc.zeros { 0 }
    assert.is_true(F.mse_loss(e, e):isnan():item())
    assert.equal(0.0, F.mse_loss(e, e, "sum"):item())
  end)

  it("gives zero slope at equality", function()
    for _, name in ipairs { "l1_loss", "smooth_l1_loss", "huber_loss" } do
      local x = sc.ones({ 2 }, { requires_grad = true })
      F[name](x, sc.ones { 2 }):backward()
      assert.same({ 0.0, 0.0 }, x.grad:totable())
    end
  end)
end)

describe("a loss over classes", function()
  it("multi_margin_loss counts the classes above the margin", function()
    local x = sc.tensor { { 0.1, 0.2, 0.4 }, { 1.0, -1.0, 0.5 } }
    local function want(p)
      local rows = { { 0.1, 0.2, 0.4 }, { 1.0, -1.0, 0.5 } }
      local total = 0
      for n, t in ipairs { 3, 1 } do
        for j = 1, 3 do
          if j ~= t then total = total + math.max(0, 1 - rows[n][t] + rows[n][j]) ^ p end
        end
      end
      return total / 3 / 2
    end
    assert.near(want(1), F.multi_margin_loss(x, sc.tensor { 3, 1 }):item(), 1e-6)
    assert.near(want(2), F.multi_margin_loss(x, sc.tensor { 3, 1 }, 2):item(), 1e-6)
    assert.has_error(function() F.multi_margin_loss(x, sc.tensor { 4, 1 }) end)
    assert.has_error(function() F.multi_margin_loss(x, sc.tensor { 0, 1 }) end)
  end)
  it("multilabel_margin_loss reads labels until the -1", function()
    -- labels 4 and 1: (0.1 - 0.2 + 1) + (0.1 - 0.4 + 1) + (0.8 - 0.2 + 1) + (0.8 - 0.4 + 1), over 4
    local x = sc.tensor { { 0.1, 0.2, 0.4, 0.8 } }
    assert.near(0.85, F.multilabel_margin_loss(x, sc.tensor { { 4, 1, -1, 2 } }):item(), 1e-6)
    assert.has_error(function() F.multilabel_margin_loss(x, sc.tensor { { 5, 1, -1, 2 } }) end)
    assert.has_error(function() F.multilabel_margin_loss(x, sc.tensor { { 0, 1, -1, 2 } }) end)
  end)
end)

describe("a loss layer", function()
  it("keeps its options and says no to misspelt ones", function()
    local l = nn.SmoothL1Loss { beta = 0.5, reduction = "sum" }
    assert.near(2 * 0.75, l(sc.ones { 2 }, sc.zeros { 2 }):item(), 1e-6)
    assert.has_error(function() nn.MSELoss { reduction = "avg" } end)
    assert.has_error(function() nn.MSELoss { reduce = true } end)
    local w = nn.CrossEntropyLoss { weight = sc.tensor { 1.0, 2.0 } }
    assert.same({ 1.0, 2.0 }, w:state_dict().weight:totable())
  end)
end)
