--- A graph built by hand, with placeholders and a session: a small regression, as people wrote it before graphs were traced.
---
---   make example NAME=session      (SMALL=1 for a second)
---
--- Inputs are declared with names and sizes ("batch" may be anything), the model and its training step are recorded once, and then a
--- session computes whatever is asked for: a loss, a prediction, a value in the middle, the gradients. Nothing runs while it is built.
require "examples.usage" ()
local sc = require "sconce"
local nn, F, optim = sc.nn, sc.nn.functional, sc.optim

local small = os.getenv("SMALL") ~= nil
local STEPS = small and 1000 or 5000
sc.manual_seed(1)

-- ---------------------------------------------------------------- the graph

local g = sc.graph()
local x = g:input("x", { "batch", 2 })
local wanted = g:input("wanted", { "batch", 1 })

local net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
local opt = optim.Adam(net:parameters(), { lr = 1e-2 })
local schedule = optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)

local hidden = net[2](net[1](x)) -- any value can be fetched, or fed, by its handle
local predicted = net[5](net[4](net[3](hidden)))
local loss = F.mse_loss(predicted, wanted)
loss:backward() -- recorded, as everything is
opt:step()

g:output("predicted", predicted)
g:output("loss", loss)
print(g)

-- ---------------------------------------------------------------- training

--- The surface to be learned: a ripple around the middle.
local function surface(n)
  local points = sc.rand(n, 2) * 4.0 - 2.0
  return points, points:pow(2):sum(2, true):sin()
end

local session = g:session()
local test_x, test_wanted = surface(500)
local function test_loss() return session:run("loss", { x = test_x, wanted = test_wanted }):item() end -- trains nothing

local before = test_loss()
for step = 1, STEPS do
  local points, values = surface(64)
  local l = session:run(loss, { x = points, wanted = values }, { updates = true }) -- with what comes after the loss: the step
  schedule:step()
  if step % (STEPS // 5) == 0 then print(string.format("step %5d  loss %.4f  rate %.4f", step, l:item(), opt.param_groups[1].lr)) end
end
local after = test_loss()
print(string.format("test loss %.4f -> %.4f", before, after))
if after > before / 2 then error("the loss did not fall", 0) end

-- ---------------------------------------------------------------- looking around

-- Only what a fetch needs is computed: no `wanted` is needed for a prediction.
local h, y = session:run({ hidden, "predicted" }, { x = sc.tensor { { 0.0, 0.0 }, { 1.0, 1.0 } } })
print("hidden", h.shape, "predicted", y)
-- A value may be given instead of computed: what would the net say if the hidden layer were all zeros?
print("from a hidden layer of zeros", session:run(predicted, { [hidden] = sc.zeros(1, 32) }))

-- The compiled form computes the outputs, by name, and always takes the step.
local run = g:compile()
print("loss of a compiled run", run { x = test_x, wanted = test_wanted }.loss)
