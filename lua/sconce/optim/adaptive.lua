--- Adam's relatives: Adadelta, Adamax, NAdam, RAdam.
--- Sources: Zeiler 2012, "ADADELTA: an adaptive learning rate method"; Kingma and Ba 2015, section 7.1 (Adamax); Dozat 2016,
--- "Incorporating Nesterov momentum into Adam"; Liu et al. 2020, "On the variance of the adaptive learning rate and beyond" (RAdam).
local sc = require "sconce"
local base = require "sconce.optim.optimizer"

local ops, zeros, counter = sc.core.ops, base.Optimizer.zeros, base.Optimizer.counter

--- A class whose states are made by `make(p)` and whose step is `step(p, g, state, group, hyper)`; check, hyper: as of base.class.
local function adaptive(name, params, check, hyper, make, step)
  local C = base.class(name, params, check, hyper)
  function C:update(group, hyper_now)
    local list, states = group.params, self.state
    for i = 1, #list do
      local p = list[i]
      local g = p.grad
      if g then
        local s = states[p]
        if not s then s = make(p) states[p] = s end
        step(p, g, s, group, hyper_now)
      end
    end
  end
  return C
end

local function betas(g, raise)
  base.check.from_zero(g, raise, "lr", "eps", "weight_decay")
  base.check.betas(g, raise)
end
local function moments(p) return { step = counter(), exp_avg = zeros(p), exp_avg_sq = zeros(p) } end

local ADAM = { "lr", "betas", "betas", "eps", "weight_decay" }

--- Steps by the ratio of running means of squared steps and squared gradients: hardly any rate to choose.
local Adadelta = adaptive("Adadelta", { { "lr", 1.0 }, { "rho", 0.9 }, { "eps", 1e-6 }, { "weight_decay", 0 }, { "maximize:boolean",
  false } },
  function(g, raise)
    base.check.from_zero(g, raise, "lr", "eps", "weight_decay", "rho")
    if g.rho > 1 then raise("rho: expected a number from 0 to 1, got %s", tostring(g.rho)) end
  end, { "lr", "rho", "eps", "weight_decay" },
  function(p) return { square_avg = zeros(p), acc_delta = zeros(p) } end,
  function(p, g, s, o, h) ops.adadelta_step_(p, g, s.square_avg, s.acc_delta, o.lr, o.rho, o.eps, o.weight_decay, o.maximize, h) end)

--- Adam with the largest gradient so far in place of the root of the mean square.
local Adamax = adaptive("Adamax", { { "lr", 2e-3 }, { "betas:table", { 0.9, 0.999 } }, { "eps", 1e-8 }, { "weight_decay", 0 },
  { "maximize:boolean", false } }, betas, ADAM,
  function(p) return { step = counter(), exp_avg = zeros(p), exp_inf = zeros(p) } end,
  function(p, g, s, o, h)
    ops.adamax_step_(p, g, s.exp_avg, s.exp_inf, s.step, o.lr, o.betas[1], o.betas[2], o.eps, o.weight_decay, o.maximize, h)
  end)

--- Adam with Nesterov momentum.
local NAdam = adaptive("NAdam", { { "lr", 2e-3 }, { "betas:table", { 0.9, 0.999 } }, { "eps", 1e-8 }, { "weight_decay", 0 },
  { "momentum_decay", 4e-3 }, { "decoupled_weight_decay:boolean", false }, { "maximize:boolean", false } },
  function(g, raise) betas(g, raise) base.check.from_zero(g, raise, "momentum_decay") end,
  { "lr", "betas", "betas", "eps", "weight_decay", "momentum_decay" }, moments,
  function(p, g, s, o, h)
    ops.nadam_step_(p, g, s.exp_avg, s.exp_avg_sq, s.step, o.lr, o.betas[1], o.betas[2], o.eps, o.weight_decay, o.momentum_decay,
      o.decoupled_weight_decay, o.maximize, h)
  end)

--- Adam whose first steps do without the second moment while it is uncertain.
local RAdam = adaptive("RAdam", { { "lr", 1e-3 }, { "betas:table", { 0.9, 0.999 } }, { "eps", 1e-8 }, { "weight_decay", 0 },
  { "decoupled_weight_decay:boolean", false }, { "maximize:boolean", false } }, betas, ADAM, moments,
  function(p, g, s, o, h)
    ops.radam_step_(p, g, s.exp_avg, s.exp_avg_sq, s.step, o.lr, o.betas[1], o.betas[2], o.eps, o.weight_decay, o.decoupled_weight_decay,
      o.maximize, h)
  end)

return { Adadelta = Adadelta, Adamax = Adamax, NAdam = NAdam, RAdam = RAdam }
