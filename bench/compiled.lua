--- Compiled rows: twins of the training steps (`_compiled`), chains and reductions written by hand, the cost of replaying and tracing
--- small graphs, and inference. Twins are compared with the eager row of the same name; inference with ONNX Runtime.
local sc = require "sconce"
local F = sc.functional

--- Writes into a cache of keys and values, one token at a time; the position is a tensor, so one graph serves all tokens.
local function decoder(models)
  local net, D, H, T = models.GPT():eval(), 128, 4, 128
  local ck, cv = sc.zeros(4, 1, H, T, D // H), sc.zeros(4, 1, H, T, D // H)
  local places = sc.arange(1, T + 1)
  local function step(tok, pos)
    local x = net.tok(tok) + net.pos(pos)
    local mask = places:le(pos):view(1, 1, 1, T)
    for i, b in ipairs(net.blocks) do
      local heads = b.qkv(b.l1(x)):view(1, 1, 3, H, D // H):permute(3, 1, 4, 2, 5)
      local k, v = ck:select(1, i), cv:select(1, i)
      k:index_copy_(3, pos, heads:select(1, 2))
      v:index_copy_(3, pos, heads:select(1, 3))
      local y = F.scaled_dot_product_attention(heads:select(1, 1), k, v, { attn_mask = mask })
      x = x + b.proj(y:transpose(2, 3):reshape(1, 1, D))
      x = x + b.down(F.gelu(b.up(b.l2(x)), { approximate = "tanh" }))
    end
    return net.head(net.ln(x)):argmax(-1)
  end
  return step
end

---@param add fun(name: string, make: function, per?: number)
---@param plain fun(name: string, make: function, per?: number)  # run without gradients
return function(add, plain)
  local models = require "bench.models"

  -- whole training steps; the model may be anything that gives logits or, with mse, values
  local function train(name, make, optimizer, loss)
    add(name, function()
      local net, x, t = make()
      local opt = optimizer(net:parameters())
      local step = sc.compile(function(a, b)
        opt:zero_grad()
        local out = net(a)
        if out:dim() == 3 then out = out:view(-1, out:size(3)) end
        local l = loss(out, b)
        l:backward()
        opt:step()
        return l
      end)
      return function() step(x, t) end
    end)
  end
  local function momentum(p) return sc.optim.SGD(p, { lr = 0.01, momentum = 0.9 }) end
  local function labels(n, classes) return sc.randint(1, classes + 1, { n }) end
  train("mlp_4_32_32_2_train_b1_compiled", function()
    local nn = sc.nn
    local net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    return net, sc.rand(1, 4), sc.rand(1, 2)
  end, function(p) return sc.optim.SGD(p, { lr = 0.01 }) end, F.mse_loss)
  for _, n in ipairs { 64, 1 } do
    train("mlp_train_sgd_b" .. n .. "_compiled", function() return models.MLP(), sc.randn(n, 784), labels(n, 10) end, momentum, F.cross_entropy)
  end
  train("lstm_train_sgd_b16_compiled", function() return models.LSTMNet(), sc.randn(16, 64, 128), labels(16, 10) end, momentum, F.cross_entropy)
  train("gpt_train_adamw_b8_compiled", function() return models.GPT(), sc.randint(1, 66, { 8, 128 }), labels(1024, 65) end,
    function(p) return sc.optim.AdamW(p, { lr = 1e-3, weight_decay = 0.1 }) end, F.cross_entropy)
  train("cnn_train_sgd_b64_compiled", function() return models.CNN(), sc.randn(64, 1, 28, 28), labels(64, 10) end, momentum, F.cross_entropy)

  -- chains and reductions by hand
  local function compiled(name, make, fn)
    plain(name .. "_compiled", function()
      local f, t = sc.compile(fn), table.pack(make())
      return function() return f(table.unpack(t, 1, t.n)) end
    end)
  end
  local function vectors() return sc.randn(1000000), sc.randn(1000000) end
  local function matrix() return sc.randn(1000, 1000), sc.randn(1000), sc.randn(1000) end
  compiled("gelu_chain12_1e6", vectors, function(x, y)
    local t = (x + x * x * x * 0.044715) * 0.7978845608
    return (((t:tanh() + 1.0) * x * 0.5 + y):relu()) * 1.1
  end)
  compiled("muladd_chain12_1e6", vectors, function(x, y)
    for _ = 1, 6 do x = x * 0.9 + y end
    return x
  end)
  compiled("softmax_hand_1000x1000", matrix, function(m)
    local e = (m - m:max(2, true)):exp()
    return e / e:sum(2, true)
  end)
  compiled("layernorm_hand_1000x1000", matrix, function(m, gamma, beta)
    local u = m - m:mean(2, true)
    local s = (u * u):mean(2, true)
    return u * (s + 1e-5):rsqrt() * gamma + beta
  end)

  -- a graph of 1,000 ops of 8 elements: running it without passes, and tracing and compiling it
  local function chain(x)
    for _ = 1, 500 do x = x * 0.999 + 0.001 end
    return x
  end
  plain("replay_1000x8", function()
    local f, x = sc.compile(chain, { passes = 0 }), sc.rand(8)
    return function() return f(x) end
  end, 1000)
  -- What a call costs around its plan: one op, without captures and with eight; the difference is the guard.
  local function one_op(captures)
    local a, b, c, d, e, h, i, j = sc.rand(8), 1.5, true, "relu", sc.rand(8), 3, sc.rand(8), 2.0
    return function()
      local x = sc.rand(8)
      local f = sc.compile(captures and function(v) return a and b and c and d and e and h and i and j and v + 1.0 end
        or function(v) return v + 1.0 end)
      return function() for _ = 1, 100 do f(x) end end
    end
  end
  plain("compiled_call_0_captures", one_op(false), 100)
  plain("compiled_call_8_captures", one_op(true), 100)
  plain("trace_1000x8", function()
    local x = sc.rand(8)
    return function() return sc.compile(chain)(x) end
  end)

  -- inference
  local function infer(name, model, input)
    plain(name, function()
      local net, x = models[model]():eval(), input()
      local f = sc.compile(function(t) return net(t) end)
      return function() return f(x) end
    end)
  end
  infer("mlp_infer_b1", "MLP", function() return sc.rand(1, 784) end)
  infer("cnn_infer_b1", "CNN", function() return sc.rand(1, 1, 28, 28) end)
  infer("lstm_infer_b1", "LSTMNet", function() return sc.rand(1, 64, 128) end)
  infer("gpt_infer_ctx128_b1", "GPT", function() return sc.randint(1, 66, { 1, 128 }) end)
  plain("gpt_decode_kv_128tok", function()
    local f, at = sc.compile(decoder(models)), {}
    for i = 1, 128 do at[i] = sc.tensor { i } end
    local tok = sc.tensor { { 1 } }
    return function()
      local t = tok
      for i = 1, 128 do t = f(t, at[i]) end
    end
  end, 128)
end
