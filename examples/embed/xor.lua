--- For host.c: trains a small network and returns a function that the host calls.
local sc = require "sconce"
local nn, F = sc.nn, sc.nn.functional

sc.manual_seed(1)
local net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
local opt = sc.optim.Adam(net:parameters(), { lr = 0.05 })
local x = sc.tensor { { 0.0, 0.0 }, { 0.0, 1.0 }, { 1.0, 0.0 }, { 1.0, 1.0 } }
local t = sc.tensor { { 0.0 }, { 1.0 }, { 1.0 }, { 0.0 } }
local step = sc.compile(function()
  opt:zero_grad()
  local loss = F.mse_loss(net(x), t)
  loss:backward()
  opt:step()
  return loss
end)
for _ = 1, 300 do step() end

return function(points)
  return sc.no_grad(function() return net(points):flatten():contiguous() end)
end
