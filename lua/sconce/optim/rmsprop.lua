--- RMSprop, plain, centered, and with momentum.
--- Source: Hinton 2012, lecture 6e of "Neural networks for machine learning"; centered: Graves 2013, "Generating sequences with
--- recurrent neural networks".
local sc = require "sconce"
local base = require "sconce.optim.optimizer"

--- Steps divided by the root of a running mean of squared gradients (alpha: how slowly it moves).
local RMSprop = base.class("RMSprop", { { "lr", 1e-2 }, { "alpha", 0.99 }, { "eps", 1e-8 }, { "weight_decay", 0 }, { "momentum", 0 },
  { "centered:boolean", false }, { "maximize:boolean", false } }, function(g, raise)
  base.check.from_zero(g, raise, "lr", "alpha", "eps", "weight_decay", "momentum")
end, { "lr", "alpha", "eps", "weight_decay", "momentum" })

local step = sc.core.ops.rmsprop_step_
local zeros = base.Optimizer.zeros

function RMSprop:update(group, hyper)
  local params, states = group.params, self.state
  for i = 1, #params do
    local p = params[i]
    local g = p.grad
    if g then
      local s = states[p]
      if not s then
        s = { square_avg = zeros(p), momentum_buffer = group.momentum > 0 and zeros(p) or nil, grad_avg = group.centered and zeros(p) or
          nil }
        states[p] = s
      end
      step(p, g, s.square_avg, s.momentum_buffer, s.grad_avg, group.lr, group.alpha, group.eps, group.weight_decay, group.momentum,
        group.maximize, hyper)
    end
  end
end

return RMSprop
