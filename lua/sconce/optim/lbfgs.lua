--- L-BFGS: quasi-Newton steps from the last few gradients, for full batches and smooth losses. `step` needs a closure, which it calls
--- several times.
---
--- Directions come from the two-loop recursion over pairs (change of position, change of gradient). line_search_fn = "strong_wolfe"
--- searches each direction for a step that satisfies the strong Wolfe conditions: a bracket is grown, then narrowed by cubics.
--- Source: Nocedal and Wright 2006, "Numerical optimization", algorithms 7.4, 3.5 and 3.6; arguments and tolerances as in PyTorch.
local sc = require "sconce"
local fault = require "sconce.fault"
local base = require "sconce.optim.optimizer"

--- Quasi-Newton steps for full batches; opt:step(closure) calls the closure, which returns the loss, several times.
--- line_search_fn: "strong_wolfe" or none.
local LBFGS = base.class("LBFGS", { { "lr", 1 }, { "max_iter:int", 20 }, "max_eval:int?", { "tolerance_grad", 1e-7 },
  { "tolerance_change", 1e-9 }, { "history_size:int", 100 }, "line_search_fn:string?" }, function(g, raise)
  base.check.from_zero(g, raise, "lr")
  if g.line_search_fn and g.line_search_fn ~= "strong_wolfe" then
    raise("line_search_fn: expected \"strong_wolfe\", got %q", g.line_search_fn)
  end
  g.max_eval = g.max_eval or g.max_iter * 5 // 4
end)
LBFGS.param_shaped = false -- its state is flat

function LBFGS:begin()
  if #self.param_groups ~= 1 then fault.raise("LBFGS", "parameter groups are not supported") end
end

-- ---- the parameters as one vector

local function gradient(params)
  local parts = {}
  for i, p in ipairs(params) do
    local g = p.grad
    parts[i] = g and g:reshape { -1 } or sc.zeros({ p:numel() }, { dtype = p.dtype })
  end
  return sc.cat(parts, 1)
end

local function move(params, t, d)
  local at = 1
  for _, p in ipairs(params) do
    local n = p:numel()
    p:add_(d:narrow(1, at, n):view(p.shape), t)
    at = at + n
  end
end

local function largest(v) return v:abs():max():item() end
local function dot(a, b) return a:dot(b):item() end

-- ---- line search. A point: t (step), f (loss), g (gradient), slope (along the direction)

--- The minimum of the cubic through two points, kept within [low, high].
local function cubic(a, b, low, high)
  if not low then low, high = math.min(a.t, b.t), math.max(a.t, b.t) end
  local d1 = a.slope + b.slope - 3 * (a.f - b.f) / (a.t - b.t)
  local square = d1 * d1 - a.slope * b.slope
  if square < 0 or square ~= square then return (low + high) / 2 end
  if a.t > b.t then a, b = b, a end
  local d2 = math.sqrt(square)
  local t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
  return math.min(math.max(t, low), high)
end

local C1, C2, TOLERANCE, MAX_EVALS = 1e-4, 0.9, 1e-9, 25

local function strong_wolfe(evaluate, t, start, reach)
  local evals, tries = 0, 0
  local function at(step)
    evals = evals + 1
    return evaluate(step)
  end
  local function too_high(p) return p.f > start.f + C1 * p.t * start.slope end
  local previous, p, low, high = start, at(t), nil, nil
  while tries < MAX_EVALS do                            -- grow until a minimum lies between
    if too_high(p) or (tries > 1 and p.f >= previous.f) then low, high = previous, p break end
    if math.abs(p.slope) <= -C2 * start.slope then return p, evals end
    if p.slope >= 0 then low, high = previous, p break end
    local next_t = cubic(previous, p, p.t + 0.01 * (p.t - previous.t), p.t * 10)
    previous, p = p, at(next_t)
    tries = tries + 1
  end
  if not low then low, high = start, p end
  if low.f > high.f then low, high = high, low end
  local stalled = false
  while tries < MAX_EVALS do                            -- narrow: low is the best point so far
    if math.abs(high.t - low.t) * reach < TOLERANCE then break end
    local left, right = math.min(low.t, high.t), math.max(low.t, high.t)
    local step = cubic(low, high)
    local margin = 0.1 * (right - left)
    if math.min(right - step, step - left) < margin then
      if stalled or step >= right or step <= left then
        step = math.abs(step - right) < math.abs(step - left) and right - margin or left + margin
        stalled = false
      else
        stalled = true
      end
    else
      stalled = false
    end
    p = at(step)
    tries = tries + 1
    if too_high(p) or p.f >= low.f then
      high = p
      if high.f < low.f then low, high = high, low end
    else
      if math.abs(p.slope) <= -C2 * start.slope then return p, evals end
      if p.slope * (high.t - low.t) >= 0 then high = low end
      low = p
    end
  end
  return low, evals
end

-- ---- the step

--- The quasi-Newton direction for gradient g from the pairs in s.
local function direction(s, g)
  local q, al, n = -g, {}, #s.old_dirs
  for i = n, 1, -1 do
    al[i] = dot(s.old_stps[i], q) * s.ro[i]
    q:add_(s.old_dirs[i], -al[i])
  end
  local d = q * s.H_diag
  for i = 1, n do
    local be = dot(s.old_dirs[i], d) * s.ro[i]
    d:add_(s.old_stps[i], al[i] - be)
  end
  return d
end

local function remember(s, g, history)
  local y, step = g - s.prev_flat_grad, s.d * s.t
  local ys = dot(y, step)
  if ys <= 1e-10 then return end
  if #s.old_dirs == history then
    for _, list in ipairs { s.old_dirs, s.old_stps, s.ro } do table.remove(list, 1) end
  end
  table.insert(s.old_dirs, y)
  table.insert(s.old_stps, step)
  table.insert(s.ro, 1 / ys)
  s.H_diag = ys / dot(y, y)
end

--- Moves by at most max_iter steps. closure: zeroes the gradients, computes the loss, calls backward, returns the loss.
---@param closure fun(): sc.Tensor
---@return sc.Tensor loss  # at the beginning
function LBFGS:step(closure)
  if type(closure) ~= "function" then
    fault.raise("LBFGS", "step: expected a closure that computes the loss, got %s", fault.describe(closure))
  end
  local group = self.param_groups[1]
  local params = group.params
  local _ <close> = sc.core.grad_block(false)
  local function evaluate() return sc.enable_grad(closure) end
  local s = self.state[params[1]]
  if not s then
    s = { func_evals = 0, n_iter = 0, old_dirs = {}, old_stps = {}, ro = {}, H_diag = 1 }
    self.state[params[1]] = s
  end
  local first = evaluate()
  local loss, evals, iteration = first:item(), 1, 0
  s.func_evals = s.func_evals + 1
  local g = gradient(params)
  if largest(g) <= group.tolerance_grad then return first end
  while iteration < group.max_iter do
    iteration = iteration + 1
    s.n_iter = s.n_iter + 1
    if s.n_iter == 1 then
      s.d = -g
    else
      remember(s, g, group.history_size)
      s.d = direction(s, g)
    end
    s.prev_flat_grad, s.prev_loss = g:clone(), loss
    s.t = s.n_iter == 1 and math.min(1, 1 / g:abs():sum():item()) * group.lr or group.lr
    local slope = dot(g, s.d)
    if slope > -group.tolerance_change then break end
    local spent, flat = 0, largest(g) <= group.tolerance_grad
    if group.line_search_fn then
      local here = {}
      for i, p in ipairs(params) do here[i] = p:clone() end
      local d = s.d
      local best
      best, spent = strong_wolfe(function(t)
        move(params, t, d)
        local f = evaluate():item()
        local grad = gradient(params)
        for i, p in ipairs(params) do p:copy_(here[i]) end
        return { t = t, f = f, g = grad, slope = dot(grad, d) }
      end, s.t, { t = 0, f = loss, g = g, slope = slope }, largest(d))
      loss, g, s.t = best.f, best.g, best.t
      move(params, s.t, d)
      flat = largest(g) <= group.tolerance_grad
    else
      move(params, s.t, s.d)
      if iteration ~= group.max_iter then
        loss, spent = evaluate():item(), 1
        g = gradient(params)
        flat = largest(g) <= group.tolerance_grad
      end
    end
    evals = evals + spent
    s.func_evals = s.func_evals + spent
    if iteration == group.max_iter or evals >= group.max_eval or flat then break end
    if largest(s.d * s.t) <= group.tolerance_change or math.abs(loss - s.prev_loss) < group.tolerance_change then break end
  end
  return first
end

return LBFGS
