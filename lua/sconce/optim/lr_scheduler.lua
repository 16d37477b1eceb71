--- Schedules of learning rates. A schedule sets `lr` of each parameter group when it is made, and again at each `step()`, which is called
--- after the optimiser's. Names, arguments and numbers are PyTorch's; epochs (`last_epoch`, `milestones`, …) count from 0 as there.
---
--- A schedule gives `next(group, base, k)`: the rate at epoch k from the rate at k - 1 (which others may have changed meanwhile), and
--- where there is one `closed(base, k)`, the rate at epoch k from the group's initial rate, for `step(epoch)`.
local sc = require "sconce"
local fault = require "sconce.fault"

local scheduler = {}
local Base = {}
Base.__index = Base

--- Sets the rates for the current epoch.
local function set_rates(self, rates)
  for i, group in ipairs(self.optimizer.param_groups) do group.lr = rates[i] end
  self._last_lr = {}
  for i, group in ipairs(self.optimizer.param_groups) do self._last_lr[i] = group.lr end
end

function Base:__tostring()
  local rates = {}
  for i, lr in ipairs(self._last_lr or {}) do rates[i] = type(lr) == "number" and ("%.6g"):format(lr) or tostring(lr) end
  return ("%s: epoch %s, lr %s"):format(self.__name, self.last_epoch, table.concat(rates, ", "))
end

--- One epoch on; with a number, to that epoch.
function Base:step(epoch)
  if epoch ~= nil and type(epoch) ~= "number" then fault.raise(self.__name, "step: expected an epoch, got %s", fault.describe(epoch)) end
  self.last_epoch = epoch or self.last_epoch + 1
  local rates = {}
  for i, group in ipairs(self.optimizer.param_groups) do
    if epoch and self.closed then rates[i] = self:closed(self.base_lrs[i], self.last_epoch, i)
    else rates[i] = self:next(group, self.base_lrs[i], self.last_epoch, i) end
  end
  set_rates(self, rates)
end

--- The rates set last, one per group.
function Base:get_last_lr() return self._last_lr end

local LEFT_OUT = { optimizer = true, schedulers = true, lr_lambda = true }

--- Numbers, strings and tables only.
function Base:state_dict()
  local out = {}
  for k, v in pairs(self) do
    if not LEFT_OUT[k] and type(v) ~= "function" then out[k] = type(v) == "table" and table.move(v, 1, #v, 1, {}) or v end
  end
  if self.schedulers then
    out.schedulers = {}
    for i, s in ipairs(self.schedulers) do out.schedulers[i] = s:state_dict() end
  end
  return out
end

--- Goes on where the state was taken.
function Base:load_state_dict(sd)
  if type(sd) ~= "table" then fault.raise(self.__name, "load_state_dict: expected a table, got %s", fault.describe(sd)) end
  for k, v in pairs(self:state_dict()) do
    if type(sd[k]) ~= type(v) then
      fault.raise(self.__name, "load_state_dict: %s: expected a %s, got %s; is this the state of a %s?", k, type(v), fault.describe(sd[k]), self.__name)
    end
  end
  for k, v in pairs(sd) do
    if k ~= "schedulers" then self[k] = type(v) == "table" and table.move(v, 1, #v, 1, {}) or v end
  end
  for i, s in ipairs(self.schedulers or {}) do s:load_state_dict(sd.schedulers[i]) end
end

local function is_optimizer(v) return type(v) == "table" and type(v.param_groups) == "table" end

--- A class of schedules: params as in fault.reader, after the optimiser. self.begin(optimizer) runs before the first rates are set.
local function class(name, params)
  local C = setmetatable({ __name = name }, { __index = Base })
  C.__index, C.__tostring = C, Base.__tostring
  local all = table.move(params, 1, #params, 1, {})
  all[#all + 1] = { "last_epoch:int", -1 }
  local read = fault.reader(name, all, "optimizer")
  getmetatable(C).__call = function(_, optimizer, ...)
    if not is_optimizer(optimizer) then
      fault.raise(name, "argument 1 (optimizer): expected an optimiser, got %s", fault.describe(optimizer))
    end
    local self = setmetatable(read(...), C)
    self.optimizer, self.base_lrs = optimizer, {}
    for i, group in ipairs(optimizer.param_groups) do
      if self.last_epoch == -1 then group.initial_lr = group.initial_lr or group.lr
      elseif not group.initial_lr then
        fault.raise(name, "group %d has no initial_lr, which resuming at last_epoch %d needs", i, self.last_epoch)
      end
    end
    if self.begin then self:begin(optimizer) end
    for i, group in ipairs(optimizer.param_groups) do self.base_lrs[i] = group.initial_lr end
    self:step()
    return self
  end
  scheduler[name] = C
  return C
end

local function per_group(self, value, what)
  local n = #self.optimizer.param_groups
  if type(value) ~= "table" then
    local out = {}
    for i = 1, n do out[i] = value end
    return out
  end
  if #value ~= n then fault.raise(self.__name, "%s: expected %d values, one per group, got %d", what, n, #value) end
  return value
end

-- ---- steps and decays

--- The rate times gamma every step_size epochs.
local StepLR = class("StepLR", { "step_size:int", { "gamma:number", 0.1 } })
function StepLR:begin()
  if self.step_size < 1 then fault.raise("StepLR", "step_size: expected a positive integer, got %d", self.step_size) end
end
function StepLR:next(group, _, k) return (k == 0 or k % self.step_size ~= 0) and group.lr or group.lr * self.gamma end
function StepLR:closed(base, k) return base * self.gamma ^ (k // self.step_size) end

--- The rate times gamma at each of the milestones, a list of epochs.
local MultiStepLR = class("MultiStepLR", { "milestones:table", { "gamma:number", 0.1 } })
function MultiStepLR:begin()
  self.milestones = table.move(self.milestones, 1, #self.milestones, 1, {}) -- the list stays the caller's
  for i, m in ipairs(self.milestones) do
    if math.type(m) ~= "integer" then fault.raise("MultiStepLR", "milestones: number %d: expected an integer, got %s", i, fault.describe(m)) end
  end
  table.sort(self.milestones)
end
function MultiStepLR:next(group, _, k)
  local lr = group.lr
  for _, m in ipairs(self.milestones) do if m == k then lr = lr * self.gamma end end
  return lr
end
function MultiStepLR:closed(base, k)
  local n = 0
  for _, m in ipairs(self.milestones) do if m <= k then n = n + 1 end end
  return base * self.gamma ^ n
end

--- The rate times gamma every epoch.
local ExponentialLR = class("ExponentialLR", { "gamma:number" })
function ExponentialLR:next(group, _, k) return k == 0 and group.lr or group.lr * self.gamma end
function ExponentialLR:closed(base, k) return base * self.gamma ^ k end

--- The rate times factor for the first total_iters epochs.
local ConstantLR = class("ConstantLR", { { "factor:number", 1 / 3 }, { "total_iters:int", 5 } })
function ConstantLR:begin()
  if self.factor < 0 or self.factor > 1 then
    fault.raise("ConstantLR", "factor: expected a number from 0 to 1, got %s", tostring(self.factor))
  end
end
function ConstantLR:next(group, _, k)
  if k == 0 then return group.lr * self.factor end
  return k == self.total_iters and group.lr / self.factor or group.lr
end
function ConstantLR:closed(base, k) return base * (k >= self.total_iters and 1 or self.factor) end

--- The rate times a factor that goes from start_factor to end_factor in total_iters epochs.
local LinearLR = class("LinearLR", { { "start_factor:number", 1 / 3 }, { "end_factor:number", 1.0 }, { "total_iters:int", 5 } })
function LinearLR:begin()
  if self.start_factor <= 0 or self.start_factor > 1 then
    fault.raise("LinearLR", "start_factor: expected a number above 0 up to 1, got %s", tostring(self.start_factor))
  end
  if self.end_factor < 0 or self.end_factor > 1 then
    fault.raise("LinearLR", "end_factor: expected a number from 0 to 1, got %s", tostring(self.end_factor))
  end
end
function LinearLR:next(group, _, k)
  local from, to, n = self.start_factor, self.end_factor, self.total_iters
  if k == 0 then return group.lr * from end
  if k > n then return group.lr end
  return group.lr * (1 + (to - from) / (n * from + (k - 1) * (to - from)))
end
function LinearLR:closed(base, k)
  return base * (self.start_factor + (self.end_factor - self.start_factor) * math.min(self.total_iters, k) / self.total_iters)
end

--- The rate falls to 0 in total_iters epochs, as (1 - epoch / total_iters) to the power.
local PolynomialLR = class("PolynomialLR", { { "total_iters:int", 5 }, { "power:number", 1.0 } })
function PolynomialLR:next(group, _, k)
  if k == 0 or k > self.total_iters then return group.lr end
  return group.lr * ((1 - k / self.total_iters) / (1 - (k - 1) / self.total_iters)) ^ self.power
end
function PolynomialLR:closed(base, k) return base * (1 - math.min(self.total_iters, k) / self.total_iters) ^ self.power end

--- lr_lambda: a function of the epoch, or one per group; the rate is its value times the initial one.
local LambdaLR = class("LambdaLR", { "lr_lambda" })
local function functions_of_epochs(self)
  self.lr_lambda = per_group(self, self.lr_lambda, "lr_lambda")
  for _, fn in ipairs(self.lr_lambda) do fault.expect(self.__name, "argument 2 (lr_lambda)", "function", fn) end
end
LambdaLR.begin = functions_of_epochs
function LambdaLR:next(_, base, k, i) return base * self.lr_lambda[i](k) end

--- lr_lambda: a function of the epoch, or one per group; the rate is multiplied by its value every epoch.
local MultiplicativeLR = class("MultiplicativeLR", { "lr_lambda" })
MultiplicativeLR.begin = functions_of_epochs
function MultiplicativeLR:next(group, _, k, i) return k == 0 and group.lr or group.lr * self.lr_lambda[i](k) end

-- ---- cosines

--- Source: Loshchilov and Hutter 2017, "SGDR: stochastic gradient descent with warm restarts".
local CosineAnnealingLR = class("CosineAnnealingLR", { "T_max:int", { "eta_min:number", 0 } })
function CosineAnnealingLR:next(group, base, k)
  local T, low = self.T_max, self.eta_min
  if k == 0 then return group.lr end
  if (k - 1 - T) % (2 * T) == 0 then return group.lr + (base - low) * (1 - math.cos(math.pi / T)) / 2 end
  return (1 + math.cos(math.pi * k / T)) / (1 + math.cos(math.pi * (k - 1) / T)) * (group.lr - low) + low
end
function CosineAnnealingLR:closed(base, k)
  return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * k / self.T_max)) / 2
end

--- Cosines that start again after T_0 epochs, each T_mult times as long as the last. Source: Loshchilov and Hutter 2017, "SGDR".
local CosineAnnealingWarmRestarts = class("CosineAnnealingWarmRestarts", { "T_0:int", { "T_mult:int", 1 }, { "eta_min:number", 0 } })
function CosineAnnealingWarmRestarts:begin()
  if self.T_0 < 1 then fault.raise(self.__name, "T_0: expected a positive integer, got %d", self.T_0) end
  if self.T_mult < 1 then fault.raise(self.__name, "T_mult: expected an integer from 1, got %d", self.T_mult) end
  self.T_i, self.T_cur = self.T_0, self.last_epoch
end
--- The epoch may be a fraction: step(epoch + batch / batches).
function CosineAnnealingWarmRestarts:step(epoch)
  if epoch == nil and self.last_epoch < 0 then epoch = 0 end
  if epoch == nil then
    epoch = self.last_epoch + 1
    self.T_cur = self.T_cur + 1
    if self.T_cur >= self.T_i then self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult end
  else
    if epoch < 0 then fault.raise(self.__name, "step: expected an epoch from 0, got %s", tostring(epoch)) end
    self.T_i, self.T_cur = self.T_0, epoch
    if self.T_mult == 1 then self.T_cur = epoch % self.T_0 end
    while self.T_mult > 1 and self.T_cur >= self.T_i do self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult end
  end
  self.last_epoch = math.floor(epoch)
  local rates = {}
  for i, base in ipairs(self.base_lrs) do
    rates[i] = self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
  end
  set_rates(self, rates)
end

--- Up from max_lr / div_factor to max_lr, then down to that over final_div_factor; momentum moves the other way.
--- Source: Smith and Topin 2018, "Super-convergence: very fast training of neural networks using large learning rates".
local OneCycleLR = class("OneCycleLR", { "max_lr", "total_steps:int?", "epochs:int?", "steps_per_epoch:int?", { "pct_start:number", 0.3 },
  { "anneal_strategy:string", "cos" }, { "cycle_momentum:boolean", true }, { "base_momentum", 0.85 }, { "max_momentum", 0.95 },
  { "div_factor:number", 25 }, { "final_div_factor:number", 1e4 }, { "three_phase:boolean", false } })
function OneCycleLR:begin(optimizer)
  if not self.total_steps then
    if not (self.epochs and self.steps_per_epoch) then fault.raise("OneCycleLR", "give total_steps, or epochs and steps_per_epoch") end
    self.total_steps = self.epochs * self.steps_per_epoch
  end
  if self.total_steps < 1 then fault.raise("OneCycleLR", "total_steps: expected a positive integer, got %d", self.total_steps) end
  if self.pct_start < 0 or self.pct_start > 1 then
    fault.raise("OneCycleLR", "pct_start: expected a number from 0 to 1, got %s", tostring(self.pct_start))
  end
  if self.anneal_strategy ~= "cos" and self.anneal_strategy ~= "linear" then
    fault.raise("OneCycleLR", "anneal_strategy: expected \"cos\" or \"linear\", got %q", self.anneal_strategy)
  end
  local defaults = optimizer.defaults
  if self.cycle_momentum and not (defaults.momentum or defaults.betas) then
    fault.raise("OneCycleLR", "cycle_momentum needs an optimiser with momentum or betas")
  end
  local top, high, low = per_group(self, self.max_lr, "max_lr"), per_group(self, self.max_momentum, "max_momentum"),
    per_group(self, self.base_momentum, "base_momentum")
  if self.last_epoch ~= -1 then return end
  for i, g in ipairs(optimizer.param_groups) do
    g.initial_lr = top[i] / self.div_factor
    g.max_lr, g.min_lr = top[i], top[i] / self.div_factor / self.final_div_factor
    if self.cycle_momentum then g.max_momentum, g.base_momentum = high[i], low[i] end
  end
end
function OneCycleLR:next(group, _, k)
  local n, up = self.total_steps, self.pct_start * self.total_steps
  if k > n then fault.raise("OneCycleLR", "step %d is more than the %d of the schedule", k + 1, n) end
  local phases = { { up - 1, "initial_lr", "max_lr", "max_momentum", "base_momentum" } }
  if self.three_phase then
    phases[2] = { 2 * up - 2, "max_lr", "initial_lr", "base_momentum", "max_momentum" }
    phases[3] = { n - 1, "initial_lr", "min_lr", "max_momentum", "max_momentum" }
  else
    phases[2] = { n - 1, "max_lr", "min_lr", "base_momentum", "max_momentum" }
  end
  local start, i = 0, 1
  while k > phases[i][1] and i < #phases do start, i = phases[i][1], i + 1 end
  local phase = phases[i]
  local pct = (k - start) / (phase[1] - start)
  local function between(from, to)
    from, to = group[from], group[to]
    if self.anneal_strategy == "linear" then return (to - from) * pct + from end
    return to + (from - to) / 2 * (math.cos(math.pi * pct) + 1)
  end
  if self.cycle_momentum then
    local m = between(phase[4], phase[5])
    if group.betas then group.betas = { m, group.betas[2] } else group.momentum = m end
  end
  return between(phase[2], phase[3])
end

--- Up from base_lr to max_lr in step_size_up steps and down again in step_size_down, over and over; momentum moves the other way.
--- mode: "triangular", "triangular2" (half the height each time) or "exp_range" (gamma ^ step of it). scale_fn: a height of one's own, of
--- the number of the cycle, from 1, or, with scale_mode = "iterations", of the step.
--- Source: Smith 2017, "Cyclical learning rates for training neural networks".
local CyclicLR = class("CyclicLR", { "base_lr", "max_lr", { "step_size_up:int", 2000 }, "step_size_down:int?", { "mode:string", "triangular" },
  { "gamma:number", 1 }, "scale_fn:function?", { "scale_mode:string", "cycle" }, { "cycle_momentum:boolean", true },
  { "base_momentum", 0.8 }, { "max_momentum", 0.9 } })
local HEIGHTS = { triangular = true, triangular2 = true, exp_range = true }
function CyclicLR:begin(optimizer)
  self.step_size_down = self.step_size_down or self.step_size_up
  if self.step_size_up < 1 or self.step_size_down < 0 then
    fault.raise("CyclicLR", "step_size_up, step_size_down: expected numbers of steps, got %d and %d", self.step_size_up, self.step_size_down)
  end
  if not self.scale_fn and not HEIGHTS[self.mode] then
    fault.raise("CyclicLR", "mode: expected \"triangular\", \"triangular2\" or \"exp_range\", got %q", self.mode)
  end
  if self.scale_mode ~= "cycle" and self.scale_mode ~= "iterations" then
    fault.raise("CyclicLR", "scale_mode: expected \"cycle\" or \"iterations\", got %q", self.scale_mode)
  end
  if self.cycle_momentum and not (optimizer.defaults.momentum or optimizer.defaults.betas) then
    fault.raise("CyclicLR", "cycle_momentum needs an optimiser with momentum or betas")
  end
  self.base_lr, self.max_lr = per_group(self, self.base_lr, "base_lr"), per_group(self, self.max_lr, "max_lr")
  self.base_momentum = per_group(self, self.base_momentum, "base_momentum")
  self.max_momentum = per_group(self, self.max_momentum, "max_momentum")
end
function CyclicLR:next(group, _, k, i)
  local total = self.step_size_up + self.step_size_down
  local cycle, up = 1 + k // total, self.step_size_up / total
  local x = k % total / total
  local share = x <= up and x / up or (x - 1) / (up - 1)
  if self.scale_fn then share = share * self.scale_fn(self.scale_mode == "cycle" and cycle or k)
  elseif self.mode == "triangular2" then share = share / 2 ^ (cycle - 1)
  elseif self.mode == "exp_range" then share = share * self.gamma ^ k end
  if self.cycle_momentum then
    local m = self.max_momentum[i] - (self.max_momentum[i] - self.base_momentum[i]) * share
    if group.betas then group.betas = { m, group.betas[2] } else group.momentum = m end
  end
  return self.base_lr[i] + (self.max_lr[i] - self.base_lr[i]) * share
end

-- ---- schedules of schedules, and by a metric

--- One schedule after the other; milestones: the epochs at which the next takes over.
local SequentialLR = {}
SequentialLR.__index, SequentialLR.__name = SequentialLR, "SequentialLR"
setmetatable(SequentialLR, { __index = Base })
local read_sequential = fault.reader("SequentialLR", { "schedulers:table", "milestones:table", { "last_epoch:int", -1 } })
getmetatable(SequentialLR).__call = function(C, optimizer, ...)
  if not is_optimizer(optimizer) then
    fault.raise("SequentialLR", "argument 1 (optimizer): expected an optimiser, got %s", fault.describe(optimizer))
  end
  local self = setmetatable(read_sequential(...), C)
  if #self.schedulers == 0 then fault.raise("SequentialLR", "schedulers: the list is empty") end
  if #self.milestones ~= #self.schedulers - 1 then
    fault.raise("SequentialLR", "expected %d milestones for %d schedulers, got %d", #self.schedulers - 1, #self.schedulers,
      #self.milestones)
  end
  for i, s in ipairs(self.schedulers) do
    if s.optimizer ~= optimizer then fault.raise("SequentialLR", "scheduler %d belongs to another optimiser", i) end
  end
  self.optimizer, self.last_epoch = optimizer, self.last_epoch + 1
  for _, group in ipairs(optimizer.param_groups) do group.lr = group.initial_lr end
  for _, s in ipairs(self.schedulers) do s.last_epoch = s.last_epoch - 1 end
  self.schedulers[1]:step()
  self._last_lr = self.schedulers[1]:get_last_lr()
  return self
end
function SequentialLR:step()
  self.last_epoch = self.last_epoch + 1
  local i = 1
  while self.milestones[i] and self.milestones[i] <= self.last_epoch do i = i + 1 end
  local s = self.schedulers[i]
  if i > 1 and self.milestones[i - 1] == self.last_epoch then s:step(0) else s:step() end
  self._last_lr = s:get_last_lr()
end
scheduler.SequentialLR = SequentialLR

--- Several schedules at once: each step is one of each of them, so that their factors multiply.
local ChainedScheduler = {}
ChainedScheduler.__index, ChainedScheduler.__name = ChainedScheduler, "ChainedScheduler"
setmetatable(ChainedScheduler, { __index = Base })
local read_chained = fault.reader("ChainedScheduler", { "schedulers:table" })
getmetatable(ChainedScheduler).__call = function(C, ...)
  local name, self = "ChainedScheduler", setmetatable(read_chained(...), C)
  local schedulers = self.schedulers
  if #schedulers == 0 then fault.raise(name, "schedulers: the list is empty") end
  for i, s in ipairs(schedulers) do
    if type(s) ~= "table" or not is_optimizer(s.optimizer) then
      fault.raise(name, "schedulers: number %d: expected a schedule, got %s", i, fault.describe(s))
    end
    self.optimizer = self.optimizer or s.optimizer
    if s.optimizer ~= self.optimizer then fault.raise(name, "scheduler %d belongs to another optimiser", i) end
  end
  self.schedulers, self.last_epoch = table.move(schedulers, 1, #schedulers, 1, {}), schedulers[1].last_epoch
  self._last_lr = schedulers[#schedulers]:get_last_lr()
  return self
end
function ChainedScheduler:step()
  for _, s in ipairs(self.schedulers) do s:step() end
  self.last_epoch = self.last_epoch + 1
  self._last_lr = {}
  for i, group in ipairs(self.optimizer.param_groups) do self._last_lr[i] = group.lr end
end
scheduler.ChainedScheduler = ChainedScheduler

--- Lowers the rate when a metric has not improved for `patience` steps. step(metric).
local ReduceLROnPlateau = {}
ReduceLROnPlateau.__index, ReduceLROnPlateau.__name = ReduceLROnPlateau, "ReduceLROnPlateau"
setmetatable(ReduceLROnPlateau, { __index = Base })
local read_plateau = fault.reader("ReduceLROnPlateau", { { "mode:string", "min" }, { "factor:number", 0.1 }, { "patience:int", 10 },
  { "threshold:number", 1e-4 }, { "threshold_mode:string", "rel" }, { "cooldown:int", 0 }, { "min_lr", 0 }, { "eps:number", 1e-8 } })
getmetatable(ReduceLROnPlateau).__call = function(C, optimizer, ...)
  local name = "ReduceLROnPlateau"
  if not is_optimizer(optimizer) then
    fault.raise(name, "argument 1 (optimizer): expected an optimiser, got %s", fault.describe(optimizer))
  end
  local self = setmetatable(read_plateau(...), C)
  self.optimizer = optimizer
  if self.factor >= 1 then fault.raise(name, "factor: expected a number below 1, got %s", tostring(self.factor)) end
  if self.mode ~= "min" and self.mode ~= "max" then fault.raise(name, "mode: expected \"min\" or \"max\", got %q", self.mode) end
  if self.threshold_mode ~= "rel" and self.threshold_mode ~= "abs" then
    fault.raise(name, "threshold_mode: expected \"rel\" or \"abs\", got %q", self.threshold_mode)
  end
  self.min_lrs = per_group(self, self.min_lr, "min_lr")
  self.best = self.mode == "min" and math.huge or -math.huge
  self.num_bad_epochs, self.cooldown_counter, self.last_epoch = 0, 0, 0
  self._last_lr = {}
  for i, g in ipairs(optimizer.param_groups) do self._last_lr[i] = g.lr end
  return self
end
function ReduceLROnPlateau:is_better(a)
  local best, t = self.best, self.threshold
  if self.mode == "min" then
    if self.threshold_mode == "rel" then return a < best * (1 - t) end
    return a < best - t
  end
  if self.threshold_mode == "rel" then return a > best * (1 + t) end
  return a > best + t
end
function ReduceLROnPlateau:step(metric)
  if sc.is_tensor(metric) then metric = metric:item() end
  if type(metric) ~= "number" then fault.raise(self.__name, "step: expected a metric, got %s", fault.describe(metric)) end
  self.last_epoch = self.last_epoch + 1
  if self:is_better(metric) then self.best, self.num_bad_epochs = metric, 0 else self.num_bad_epochs = self.num_bad_epochs + 1 end
  if self.cooldown_counter > 0 then self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0 end
  if self.num_bad_epochs > self.patience then
    for i, g in ipairs(self.optimizer.param_groups) do
      local lr = math.max(g.lr * self.factor, self.min_lrs[i])
      if g.lr - lr > self.eps then g.lr = lr end
    end
    self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
  end
  for i, g in ipairs(self.optimizer.param_groups) do self._last_lr[i] = g.lr end
end
scheduler.ReduceLROnPlateau = ReduceLROnPlateau

return scheduler
