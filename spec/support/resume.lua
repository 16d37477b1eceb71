--- A training step saved after some steps, and gone on with in another process: used by resume_spec.lua, and run by it as a program.
---
---     lua5.4 spec/support/resume.lua PATH INPUTS STEPS OUT     loads PATH, makes STEPS steps, writes losses and tensors to OUT
local sc = require "sconce"
local nn, optim, F = sc.nn, sc.optim, sc.nn.functional

local resume = { models = {} }

--- Each gives a function of a step, and what it is fed with: all made with the default generator and one of its own.
function resume.models.mlp(optimizer)
  local generator = sc.Generator(7)
  local net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3))
  local opt = optimizer(net:parameters())
  return function(x, t)
    opt:zero_grad()
    local noisy = x + sc.randn({ 8, 6 }, { generator = generator }) * 0.1
    local loss = F.cross_entropy(net(noisy), t)
    loss:backward()
    opt:step()
    return loss
  end, { sc.randn { 8, 6 }, sc.randint(1, 4, { 8 }) }
end

function resume.models.cnn(optimizer)
  local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.2),
    nn.Linear(36, 3))
  local opt = optimizer(net:parameters())
  return function(x, t)
    opt:zero_grad()
    local loss = F.cross_entropy(net(x), t)
    loss:backward()
    nn.utils.clip_grad_norm_(net:parameters(), 1.0)
    opt:step()
    return loss
  end, { sc.randn { 5, 1, 8, 8 }, sc.randint(1, 4, { 5 }) }
end

function resume.models.lstm(optimizer)
  local rnn, fc = nn.LSTM(5, 8, { batch_first = true }), nn.Linear(8, 3)
  local list = {}
  for _, m in ipairs { rnn, fc } do for _, p in ipairs(m:parameters()) do list[#list + 1] = p end end
  local opt = optimizer(list)
  return function(x, t)
    opt:zero_grad()
    local y = rnn(x)
    local loss = F.cross_entropy(fc(F.dropout(y:select(2, -1), 0.1)), t)
    loss:backward()
    opt:step()
    return loss
  end, { sc.randn { 4, 6, 5 }, sc.randint(1, 4, { 4 }) }
end

function resume.models.gpt(optimizer)
  local D, heads, vocabulary, T = 16, 2, 11, 7
  local tok, pos, ln, head = nn.Embedding(vocabulary, D), nn.Embedding(T, D), nn.LayerNorm(D), nn.Linear(D, vocabulary)
  local block = nn.TransformerEncoderLayer(D, heads, { dim_feedforward = 32, dropout = 0.1, batch_first = true })
  local list = {}
  for _, m in ipairs { tok, pos, ln, head, block } do for _, p in ipairs(m:parameters()) do list[#list + 1] = p end end
  local opt = optimizer(list)
  local mask = sc.full({ T, T }, -math.huge):triu(1)
  return function(x, t)
    opt:zero_grad()
    local h = block(tok(x) + pos.weight, { src_mask = mask })
    local loss = F.cross_entropy(head(ln(h)):view(-1, vocabulary), t:view(-1))
    loss:backward()
    opt:step()
    return loss
  end, { sc.randint(1, vocabulary + 1, { 3, T }), sc.randint(1, vocabulary + 1, { 3, T }) }
end

resume.optimizers = {
  sgd = function(p) return optim.SGD(p, { lr = 0.05, momentum = 0.9 }) end,
  adam = function(p) return optim.Adam(p, { lr = 0.01 }) end,
  adamw = function(p) return optim.AdamW(p, { lr = 0.01, weight_decay = 0.1 }) end,
}

--- The tensors of a run and its losses, in one file.
function resume.record(path, losses, parameters)
  local out = { losses = sc.stack(losses) }
  for name, t in pairs(parameters) do out["p." .. name] = t:contiguous() end
  sc.save(path, out)
end

if arg and arg[0] and arg[0]:find "resume.lua$" and arg[4] then
  local run, inputs, losses = sc.load_graph(arg[1]), sc.load(arg[2]), {}
  for i = 1, tonumber(arg[3]) do losses[i] = run { arg1 = inputs.x, arg2 = inputs.t }.out1 end
  resume.record(arg[4], losses, run:parameters())
  if arg[5] then run:save(arg[5]) end
end

return resume
