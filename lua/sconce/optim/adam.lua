--- Adam and AdamW.
--- Source: Kingma and Ba 2015, "Adam: a method for stochastic optimization"; amsgrad: Reddi et al. 2018, "On the convergence of Adam and
--- beyond"; AdamW: Loshchilov and Hutter 2019, "Decoupled weight decay regularization".
local sc = require "sconce"
local base = require "sconce.optim.optimizer"

local step = sc.core.ops.adam_step_
local zeros, counter = base.Optimizer.zeros, base.Optimizer.counter

local function adam(name, decay, decoupled)
  local Adam = base.class(name, { { "lr", 1e-3 }, { "betas:table", { 0.9, 0.999 } }, { "eps", 1e-8 }, { "weight_decay", decay },
    { "amsgrad:boolean", false }, { "maximize:boolean", false } }, function(g, raise)
    base.check.from_zero(g, raise, "lr", "eps", "weight_decay")
    base.check.betas(g, raise)
  end, { "lr", "betas", "betas", "eps", "weight_decay" })

  function Adam:update(group, hyper)
    local params, lr, b1, b2, eps = group.params, group.lr, group.betas[1], group.betas[2], group.eps
    local wd, maximize, states = group.weight_decay, group.maximize, self.state
    for i = 1, #params do
      local p = params[i]
      local g = p.grad
      if g then
        local s = states[p]
        if not s then
          s = { step = counter(), exp_avg = zeros(p), exp_avg_sq = zeros(p), max_exp_avg_sq = group.amsgrad and zeros(p) or nil }
          states[p] = s
        end
        step(p, g, s.exp_avg, s.exp_avg_sq, s.max_exp_avg_sq, s.step, lr, b1, b2, eps, wd, decoupled, maximize, hyper)
      end
    end
  end
  return Adam
end

--- Steps by running means of the gradient and of its square (betas); weight_decay is added to the gradient. amsgrad: the largest mean
--- square so far.
local Adam = adam("Adam", 0, false)
--- Adam whose weight decay works on the parameters themselves.
local AdamW = adam("AdamW", 1e-2, true)

return { Adam = Adam, AdamW = AdamW }
