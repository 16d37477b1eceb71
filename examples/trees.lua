--- A recursive network over trees: each input is a random logical formula such as "(a and not b) or c", and the network has the
--- formula's own shape. Every step builds another graph, and nothing is padded, batched or declared ahead: it is plain recursion in Lua.
--- Task: say whether the formula is true under the values written at its leaves.
---
---   make example NAME=trees        (SMALL=1 for a few seconds)
---   COMPILED=1 make example NAME=trees
---
--- COMPILED=1: the shape of a formula is Lua's business as before, but the networks at its nodes are static graphs, traced once each.
--- Gradients flow through them, and the losses are the same.
require "examples.usage" ()
local sc = require "sconce"
local nn, F, optim = sc.nn, sc.nn.functional, sc.optim

local small = os.getenv("SMALL") ~= nil
local STEPS, WIDTH = small and 400 or 6000, 32
local compiled = os.getenv("COMPILED") and sc.compile or function(fn) return fn end
sc.manual_seed(1)
math.randomseed(1)

--- A random formula: { "leaf", truth }, { "not", a }, or { "and" | "or" | "xor", a, b }, with about `size` leaves.
local function formula(size)
  if size <= 1 then return { "leaf", math.random(2) == 1 } end
  if math.random(6) == 1 then return { "not", formula(size - 1) } end
  local left = math.random(size - 1)
  return { ({ "and", "or", "xor" })[math.random(3)], formula(left), formula(size - left) }
end

local function truth(t)
  local op = t[1]
  if op == "leaf" then return t[2] end
  if op == "not" then return not truth(t[2]) end
  local a, b = truth(t[2]), truth(t[3])
  if op == "and" then return a and b elseif op == "or" then return a or b else return a ~= b end
end

local Reader = nn.class("Reader")

function Reader:init(width)
  self.leaf = nn.Embedding(2, width)
  self.negate = nn.Sequential(nn.Linear(width, width), nn.Tanh())
  for _, op in ipairs { "and", "or", "xor" } do -- one small network per connective
    self["join_" .. op] = nn.Sequential(nn.Linear(2 * width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
  end
  self.at = { ["not"] = compiled(function(a) return self.negate(a) end) } -- what is done at a node, by its connective
  for _, op in ipairs { "and", "or", "xor" } do
    self.at[op] = compiled(function(a, b) return self["join_" .. op](sc.cat({ a, b }, 2)) end)
  end
  self.answer = nn.Linear(width, 2)
  self.symbol = { [true] = sc.tensor { 1 }, [false] = sc.tensor { 2 } }
end

--- The vector of a subtree, [1, width].
function Reader:node(t)
  local op = t[1]
  if op == "leaf" then return self.leaf(self.symbol[t[2]]) end
  if op == "not" then return self.at[op](self:node(t[2])) end
  return self.at[op](self:node(t[2]), self:node(t[3]))
end

function Reader:forward(t) return self.answer(self:node(t)) end

local net = Reader(WIDTH)
local opt = optim.Adam(net:parameters(), { lr = 2e-3 })
local yes, no = sc.tensor { 1 }, sc.tensor { 2 }

local function right(sizes, n)
  local hits = 0
  sc.no_grad(function()
    for _ = 1, n do
      local t = formula(sizes)
      local says = net(t):argmax(2):item() == 1
      if says == truth(t) then hits = hits + 1 end
    end
  end)
  return hits / n
end

local total, count = 0.0, 0
for step = 1, STEPS do
  opt:zero_grad()
  local losses = {}
  for i = 1, 8 do -- eight trees of different shapes make one step
    local t = formula(math.random(2, step < STEPS // 2 and 5 or 9))
    losses[i] = F.cross_entropy(net(t), truth(t) and yes or no)
  end
  local loss = sc.stack(losses):mean()
  loss:backward()
  opt:step()
  total, count = total + loss:item(), count + 1
  if step % (STEPS // 8) == 0 then
    print(string.format("step %5d  loss %.4f", step, total / count))
    total, count = 0.0, 0
  end
end

local seen, longer = right(6, 500), right(20, 500)
print(string.format("right: %.1f %% on formulas of 6 leaves, %.1f %% on 20, more than any in training", seen * 100, longer * 100))
if not small and seen < 0.95 then error("expected at least 95 %", 0) end
