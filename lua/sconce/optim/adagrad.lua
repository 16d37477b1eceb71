--- Adagrad. Source: Duchi et al. 2011, "Adaptive subgradient methods for online learning and stochastic optimization".
local sc = require "sconce"
local base = require "sconce.optim.optimizer"

--- Steps divided by the root of the sum of all squared gradients so far.
local Adagrad = base.class("Adagrad", { { "lr", 1e-2 }, { "lr_decay", 0 }, { "weight_decay", 0 }, { "initial_accumulator_value", 0 },
  { "eps", 1e-10 }, { "maximize:boolean", false } }, function(g, raise)
  base.check.from_zero(g, raise, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
end, { "lr", "lr_decay", "weight_decay", "eps" })

local step = sc.core.ops.adagrad_step_

--- PyTorch's form: the sums exist from the beginning.
function Adagrad:begin()
  for _, group in ipairs(self.param_groups) do
    for _, p in ipairs(group.params) do
      self.state[p] = { step = self.counter(), sum = sc.core.ops.full(p.shape, group.initial_accumulator_value + 0.0, p.dtype) }
    end
  end
end

function Adagrad:update(group, hyper)
  local params, states = group.params, self.state
  for i = 1, #params do
    local p = params[i]
    local g = p.grad
    if g then
      if not states[p] then
        states[p] = { step = self.counter(),
          sum = sc.core.untraced(sc.core.ops.full, p.shape, group.initial_accumulator_value + 0.0, p.dtype) }
      end
      local s = states[p]
      step(p, g, s.sum, s.step, group.lr, group.lr_decay, group.weight_decay, group.eps, group.maximize, hyper)
    end
  end
end

return Adagrad
