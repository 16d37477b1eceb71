--- Ops in standard ONNX nodes: each graph is saved, read back through its nodes, and gives the same numbers; none needs a node of our own.
local sc = require "sconce"
local F = sc.nn.functional

local path = os.tmpname()

local function t(...) return sc.tensor(...) end

--- fn records on symbolic x [3, 4] and an index i [2], with fixed tensors of its own; gives one or more results.
local CASES = {
  scatter = function(x) return x:scatter(2, t { { 2, 1 }, { 4, 3 }, { 1, 2 } }, t { { 9.0, 8.0 }, { 7.0, 6.0 }, { 5.0, 4.0 } }) end,
  scatter_number = function(x) return x:scatter(1, t { { 1, 3, 2, 1 } }, 5.5) end,
  scatter_add = function(x) return x:scatter_add(2, t { { 1, 1, 2 }, { 4, 4, 4 }, { 3, 1, 3 } }, sc.ones { 3, 4 }) end,
  gather = function(x) return x:gather(2, t { { 1, 4 }, { 4, 3 }, { 1, 2 } }) end,
  index_add = function(x, i) return x:index_add(1, i, sc.ones { 2, 4 }, { alpha = 2 }) end,
  index_copy = function(x, i) return x:index_copy(1, i, sc.ones { 2, 4 }) end,
  index_fill = function(x, i) return x:index_fill(2, i, -1.0) end,
  index_select = function(x, i) return x:index_select(2, i) end,
  index_pair = function(x, i) return x[{ i, t { 4, 1 } }] end,
  index_rows = function(x, i) return x[i] end,
  index_put = function(x, i)
    local y = x * 1
    y[{ i, t { 4, 1 } }] = t { 10.0, 20.0 }
    return y
  end,
  sort = function(x) return x:sort(2, true) end,
  topk = function(x) return x:topk(2, 2) end,
  cumsum = function(x) return x:cumsum(1) end,
  flip = function(x) return x:flip(1, 2) end,
  roll = function(x) return x:roll({ 1, -1 }, { 1, 2 }) end,
  outer = function(x) return sc.outer(x:select(1, 1), x:select(2, 2)) end,
  diagonal = function(x) return x:diagonal() * 1 end,
  unfold = function(x) return x:unfold(2, 2, 1) + 0 end,
  as_strided = function(x) return (x * 1):as_strided({ 2, 2 }, { 5, 2 }, 1) + 0 end,
  addcmul = function(x) return sc.addcmul(x, x, x, { value = 0.5 }), sc.addcdiv(x, x, x + 10, { value = 2 }) end,
  lerp = function(x) return sc.lerp(x, x * 2, 0.25) end,
  logs = function(x) return (x:abs() + 1):log2(), (x:abs() + 1):log10(), x:exp2() end,
  rounding = function(x) return x:trunc(), sc.div(x * 7, 2, { rounding_mode = "trunc" }), sc.remainder(x, 1.5) end,
  tests = function(x) return x:isfinite(), x:gt(0):all(2), x:gt(0):any(1), x:gt(0):all() end,
  norms = function(x) return x:norm(), x:norm(1, 2) end,
  writes = function(x)
    local y = x * 1
    y:select(1, 2):mul_(3)
    y[{ {}, { 2, 3 } }] = 7
    y:t():select(1, 4):add_(y:select(2, 1))
    y:relu_()
    return y, y:sum()
  end,
  view_of_written = function(x)
    local y = x * 1
    local row = y:select(1, 1)
    y:zero_()
    row:fill_(2)
    return row + 1, y
  end,
  cond = function(x)
    local w = t { 1.0, 2.0, 3.0, 4.0 }
    return sc.cond(x:sum():gt(0), function(a) return a * w, a:sum() end, function(a) return a - w, a:mean() end, x)
  end,
  while_loop = function(x) return sc.while_loop(function(_, a) return a:abs():sum():lt(100) end, function(i, a) return i + 1, a * 1.5 end, t(0), x) end,
  scan = function(x)
    return sc.scan(function(h, r) local y = h * 0.5 + r; return y, y:tanh() end, t { 0.0, 0.0, 0.0, 0.0 }, x)
  end,
  nested = function(x)
    return sc.scan(function(h, r)
      local y = sc.cond(r:sum():gt(0), function(a) return a + h end, function(a) return a * 2 end, r)
      return y, y:sum()
    end, t { 1.0, 1.0, 1.0, 1.0 }, x)
  end,
  cross_entropy = function(x) return F.cross_entropy(x, t { 1, 4, -100 }), F.cross_entropy(x, t { 2, 3, 1 }, { reduction = "none" }) end,
}

--- Gradients: of fn(x), a scalar, in x.
local GRADIENTS = {
  cross_entropy = function(x) return F.cross_entropy(x, t { 1, 4, -100 }) end,
  softmax = function(x) return (x:softmax(2) * x:log_softmax(1)):sum() end,
  layer_norm = function(x) return (F.layer_norm(x, { 4 }, t { 1.0, 2.0, 3.0, 4.0 }, t { 0.0, 1.0, 0.0, 1.0 }) ^ 3):sum() end,
  gelu = function(x) return F.gelu(x):sum() + F.gelu(x, { approximate = "tanh" }):sum() end,
  select = function(x) return x:select(2, 3):exp():sum() + x:narrow(1, 2, 2):square():sum() end,
  gather = function(x) return x:gather(2, t { { 1, 1 }, { 4, 3 }, { 2, 2 } }):square():sum() end,
  embedding = function(x) return F.embedding(t { { 1, 3 }, { 3, 2 } }, x):square():sum() end,
  index_select = function(x) return x:index_select(1, t { 1, 3, 3 }):square():sum() end,
  linear = function(x) return F.linear(t { { 1.0, 2.0, 3.0, 4.0 } }, x, t { 1.0, 2.0, 3.0 }):square():sum() end,
  conv = function(x) return F.conv1d(t { { { 1.0, 2.0, -1.0, 3.0, 0.5, 1.0, 2.0 } } }, x:unsqueeze(2), nil, { stride = 2, padding = 1 }):square():sum() end,
  attention = function(x)
    local q = x:reshape { 1, 3, 4 }
    return (F.scaled_dot_product_attention(q, q * 0.5, q:exp(), { is_causal = true }) ^ 2):sum()
  end,
  broadcast = function(x) return (x * t { { 1.0 }, { 2.0 }, { 3.0 } } + x:mean { 1 }):square():sum() end,
}

local function compare(name, record)
  local x, i = t { { 0.5, -1.25, 2.0, 3.5 }, { -0.75, 1.5, -2.5, 0.25 }, { 1.0, -3.0, 4.0, -0.5 } }, t { 3, 1 }
  local g = sc.graph()
  local results = table.pack(record(g:input("x", { 3, 4 }), g:input("i", { 2 }, "int64")))
  for k = 1, results.n do g:output("y" .. k, results[k]) end
  assert.same({}, g:save(path), name)
  local feeds = { x = x, i = i }
  local want, got = g:compile()(feeds), sc.load_graph(path, { nodes = true })(feeds)
  for k = 1, results.n do
    local a, b = want["y" .. k], got["y" .. k]
    assert.same(a.shape, b.shape, name)
    assert.equal(a.dtype, b.dtype, name)
    local worst = a:numel() == 0 and 0 or (a:double() - b:double()):abs():max():item()
    local scale = a:numel() == 0 and 1 or math.max(1, a:double():abs():max():item())
    assert.is_true(worst <= 2e-5 * scale, name .. ": result " .. k .. " differs by " .. worst)
  end
end

describe("in standard nodes", function()
  for name, fn in pairs(CASES) do it(name, function() compare(name, fn) end) end
  for name, fn in pairs(GRADIENTS) do
    it("the gradient of " .. name, function()
      compare(name, function(x)
        x.requires_grad = true
        return (sc.grad(fn(x), { x }))
      end)
    end)
  end

  it("random numbers keep their law", function()
    local g = sc.graph()
    local x = g:input("x", { 400, 50 })
    g:output("rand", sc.rand { 400, 50 } + x * 0)
    g:output("randn", sc.randn { 400, 50 } + x * 0)
    g:output("drop", F.dropout(x, 0.25))
    g:output("bernoulli", sc.bernoulli(x * 0 + 0.3))
    if #g:save(path) > 0 then return end
    local out = sc.load_graph(path, { nodes = true }) { x = sc.ones { 400, 50 } }
    local function near(v, want, by) assert.is_true(math.abs(v:item() - want) < by, tostring(v)) end
    near(out.rand:mean(), 0.5, 0.02)
    near(out.randn:std(), 1, 0.03)
    near(out.drop:mean(), 1, 0.03)
    near(out.bernoulli:mean(), 0.3, 0.02)
  end)
end)

