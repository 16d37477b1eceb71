--- The reference models, as in bench/peer_torch.py.
local sc = require "sconce"
local nn, F = sc.nn, sc.nn.functional

local models = {}

local MLP = nn.class("MLP")
function MLP:init() self.f1, self.f2, self.f3 = nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10) end
function MLP:forward(x) return self.f3(self.f2(self.f1(x):relu()):relu()) end
models.MLP = MLP

local CNN = nn.class("CNN")
function CNN:init()
  self.c1, self.c2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
  self.f1, self.f2 = nn.Linear(1600, 128), nn.Linear(128, 10)
end
function CNN:forward(x)
  x = F.max_pool2d(self.c1(x):relu(), 2)
  x = F.max_pool2d(self.c2(x):relu(), 2)
  return self.f2(self.f1(x:flatten(2)):relu())
end
models.CNN = CNN

local LSTMNet = nn.class("LSTMNet")
function LSTMNet:init() self.rnn, self.fc = nn.LSTM(128, 256, { batch_first = true }), nn.Linear(256, 10) end
function LSTMNet:forward(x)
  local y = self.rnn(x)
  return self.fc(y:select(2, -1))
end
models.LSTMNet = LSTMNet

local D, HEADS, CONTEXT, VOCAB = 128, 4, 128, 65

local Block = nn.class("Block")
function Block:init()
  self.l1, self.l2 = nn.LayerNorm(D), nn.LayerNorm(D)
  self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
  self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
end
function Block:forward(x)
  local B, T = x:size(1), x:size(2)
  local heads = self.qkv(self.l1(x)):view(B, T, 3, HEADS, D // HEADS):permute(3, 1, 4, 2, 5)
  local y = F.scaled_dot_product_attention(heads:select(1, 1), heads:select(1, 2), heads:select(1, 3), { is_causal = true })
  x = x + self.proj(y:transpose(2, 3):reshape(B, T, D))
  return x + self.down(F.gelu(self.up(self.l2(x)), { approximate = "tanh" }))
end

local GPT = nn.class("GPT")
function GPT:init()
  self.tok, self.pos = nn.Embedding(VOCAB, D), nn.Embedding(CONTEXT, D)
  self.blocks = nn.ModuleList { Block(), Block(), Block(), Block() }
  self.ln, self.head = nn.LayerNorm(D), nn.Linear(D, VOCAB, { bias = false })
end
function GPT:forward(idx)
  local x = self.tok(idx) + self.pos.weight:narrow(1, 1, idx:size(2))
  for _, block in ipairs(self.blocks) do x = block(x) end
  return self.head(self.ln(x))
end
models.GPT = GPT

--- A tree is an index tensor (a leaf) or a pair.
local TreeNet = nn.class("TreeNet")
function TreeNet:init() self.emb, self.w, self.out = nn.Embedding(100, 64), nn.Linear(128, 64), nn.Linear(64, 5) end
function TreeNet:node(t)
  if sc.is_tensor(t) then return self.emb(t) end
  return self.w(sc.cat({ self:node(t[1]), self:node(t[2]) }, 2)):tanh()
end
function TreeNet:forward(t) return self.out(self:node(t)) end
models.TreeNet = TreeNet

function models.random_tree(leaves)
  if leaves == 1 then return sc.tensor { math.random(100) } end
  local k = math.random(leaves - 1)
  return { models.random_tree(k), models.random_tree(leaves - k) }
end

return models
