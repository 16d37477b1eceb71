--- Stochastic gradient descent with momentum.
--- Source: Sutskever et al. 2013, "On the importance of initialization and momentum in deep learning", in PyTorch's form.
local sc = require "sconce"
local fault = require "sconce.fault"
local base = require "sconce.optim.optimizer"

--- Stochastic gradient descent: p - lr g, where momentum keeps a running sum of g; weight_decay adds p times itself to g.
--- nesterov looks one step ahead. See Sutskever et al. 2013.
local SGD = base.class("SGD", { "lr", { "momentum", 0 }, { "dampening", 0 }, { "weight_decay", 0 }, { "nesterov:boolean", false },
  { "maximize:boolean", false } }, function(g, raise)
  base.check.from_zero(g, raise, "lr", "momentum", "weight_decay")
  if g.nesterov and (g.momentum <= 0 or g.dampening ~= 0) then raise("nesterov needs a momentum and no dampening") end
end, { "lr", "momentum", "dampening", "weight_decay" })

local step = sc.core.ops.sgd_step_

function SGD:update(group, hyper)
  local params, lr, momentum, dampening = group.params, group.lr, group.momentum, group.dampening
  local decay, nesterov, maximize = group.weight_decay, group.nesterov, group.maximize
  for i = 1, #params do
    local p = params[i]
    local g = p.grad
    if g then
      if momentum == 0 then
        step(p, g, nil, lr, 0, 0, decay, false, maximize, false, hyper)
      else
        local state = self.state[p]
        local first = not state -- a buffer of zeros does as well, unless gradients are dampened; a trace would be of a first step for ever
        if first and dampening ~= 0 and sc.core.is_tracing() then
          fault.raise("SGD", "with dampening, the first step must be taken before the function is compiled")
        end
        if first then
          state = { momentum_buffer = base.Optimizer.zeros(p) }
          self.state[p] = state
        end
        step(p, g, state.momentum_buffer, lr, momentum, dampening, decay, nesterov, maximize, first and dampening ~= 0, hyper)
      end
    end
  end
end

return SGD
