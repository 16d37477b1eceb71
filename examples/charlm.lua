--- A small GPT trained on the letters of a text file, which then writes text of its own, one letter at a time, with a key-value cache.
---
---   make example NAME=charlm                      the GPL's text, which every Debian has
---   make example NAME=charlm ARGS='FILE STEPS'    a text of yours; STEPS may be left out
---
--- COMPILED=1: the training step becomes one static graph, the same code and the same losses.
require "examples.usage" ()
local sc = require "sconce"
local nn, F, optim = sc.nn, sc.nn.functional, sc.optim

local small = os.getenv("SMALL") ~= nil
local path = arg[1] or "/usr/share/common-licenses/GPL-3"
local STEPS = tonumber(arg[2]) or (small and 30 or 600)
local LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 3, 96, 4, 64, 16
sc.manual_seed(1)
math.randomseed(1)

-- ---------------------------------------------------------------- text

local file, why = io.open(path, "r")
if not file and not arg[1] then path = "README.md" file, why = io.open(path, "r") end
if not file then error(why, 0) end
local text, trouble = file:read("a") -- nil for a folder
file:close()
if not text then error(path .. ": " .. trouble, 0) end
text = text:gsub("[ \t]+", " ")
if #text <= CONTEXT + 1 then error(("%s: %d letters are too few, at least %d are needed"):format(path, #text, CONTEXT + 2), 0) end
local letters, number = {}, {}
for c in text:gmatch(".") do
  if not number[c] then
    letters[#letters + 1] = c
    number[c] = #letters
  end
end
local codes = {}
for c in text:gmatch(".") do codes[#codes + 1] = number[c] end
local all = sc.tensor(codes) -- int64 [length]

--- A batch of stretches of the text and the same stretches one letter on: both [BATCH, CONTEXT].
local function batch()
  local x, y = {}, {}
  for i = 1, BATCH do
    local at = math.random(#all - CONTEXT)
    x[i], y[i] = all:narrow(1, at, CONTEXT), all:narrow(1, at + 1, CONTEXT)
  end
  return sc.stack(x), sc.stack(y)
end

-- ---------------------------------------------------------------- model

local Block = nn.class("Block")

function Block:init()
  self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
  self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
  self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
end

--- x [B, T, WIDTH]. With a cache (of this block), x holds only the new letters and attends to all those before as well.
function Block:forward(x, cache)
  local B, T = x:size(1), x:size(2)
  local parts = self.qkv(self.norm1(x)):view(B, T, 3, HEADS, WIDTH // HEADS):permute(3, 1, 4, 2, 5) -- [3, B, HEADS, T, width of a head]
  local q, k, v = parts[1], parts[2], parts[3]
  if cache then
    if cache.k then k, v = sc.cat({ cache.k, k }, 3), sc.cat({ cache.v, v }, 3) end
    cache.k, cache.v = k, v
  end
  local y = F.scaled_dot_product_attention(q, k, v, { is_causal = T > 1 })
  x = x + self.out(y:transpose(2, 3):reshape(B, T, WIDTH))
  return x + self.down(F.gelu(self.up(self.norm2(x))))
end

local GPT = nn.class("GPT")

function GPT:init(vocabulary)
  self.letter, self.place = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
  self.blocks = nn.ModuleList {}
  for _ = 1, LAYERS do self.blocks:append(Block()) end
  self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary)
end

--- codes [B, T] -> logits [B, T, vocabulary]; `cache` is a list with a table per block, filled as letters come.
function GPT:forward(x, cache)
  local seen = cache and cache[1].k and cache[1].k:size(3) or 0
  local h = self.letter(x) + self.place.weight:narrow(1, seen + 1, x:size(2))
  for i, block in ipairs(self.blocks) do h = block(h, cache and cache[i]) end
  return self.head(self.norm(h))
end

local net = GPT(#letters)
local opt = optim.AdamW(net:parameters(), { lr = 3e-3, weight_decay = 0.01 })
local schedule = optim.lr_scheduler.OneCycleLR(opt, { max_lr = 3e-3, total_steps = STEPS })

print(string.format("%s: %d letters, %d different", path, #all, #letters))
local function train_step(x, y)
  opt:zero_grad()
  local loss = F.cross_entropy(net(x):view(-1, #letters), y:view(-1))
  loss:backward()
  nn.utils.clip_grad_norm_(net:parameters(), 1.0)
  opt:step()
  return loss
end
if os.getenv("COMPILED") then train_step = sc.compile(train_step) end

local first, last
local bar = sc.data.progress(STEPS, { label = "training" })
for step = 1, STEPS do
  last = train_step(batch()):item()
  schedule:step() -- outside of the step: the rate is read anew each time it runs, also by a graph
  first = first or last
  bar:step(1, { loss = last })
  if step == STEPS then bar:close() end
end
print(string.format("loss %.3f -> %.3f", first, last))
if last >= first then error("the loss did not fall", 0) end

-- ---------------------------------------------------------------- writing

local function write(prompt, count)
  net:eval()
  local cache, out = {}, { prompt }
  for i = 1, LAYERS do cache[i] = {} end
  local given = {}
  for c in prompt:gmatch(".") do given[#given + 1] = number[c] or 1 end
  sc.no_grad(function()
    local logits = net(sc.tensor { given }, cache)
    for _ = 1, math.min(count, CONTEXT - #given) do
      local p = (logits[{ 1, -1 }] / 0.7):softmax(1)
      local next_letter = p:multinomial(1):item()
      out[#out + 1] = letters[next_letter]
      logits = net(sc.tensor { { next_letter } }, cache)
    end
  end)
  return table.concat(out)
end

for _ = 1, 3 do print("> " .. write("The ", 60):gsub("\n", " ")) end
