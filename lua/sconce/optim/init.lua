--- optim: optimisers and, in `lr_scheduler`, schedules of their rates. PyTorch's names, arguments and defaults:
---   local opt = optim.AdamW(net:parameters(), { lr = 3e-4 })
---   opt:zero_grad(); loss:backward(); opt:step()
local adam, adaptive = require "sconce.optim.adam", require "sconce.optim.adaptive"

local optim = {
  Optimizer = require "sconce.optim.optimizer".Optimizer,
  SGD = require "sconce.optim.sgd",
  Adam = adam.Adam, AdamW = adam.AdamW,
  RMSprop = require "sconce.optim.rmsprop",
  Adagrad = require "sconce.optim.adagrad",
  Adadelta = adaptive.Adadelta, Adamax = adaptive.Adamax, NAdam = adaptive.NAdam, RAdam = adaptive.RAdam,
  LBFGS = require "sconce.optim.lbfgs",
  lr_scheduler = require "sconce.optim.lr_scheduler",
}
local missing = require("sconce.help").missing
setmetatable(optim.lr_scheduler, { __index = function(t, name) return missing("optim.lr_scheduler", name, t) end })
return setmetatable(optim, { __index = function(t, name) return missing("optim", name, t) end })
