-- Normalisation, cross entropy, CTC and attention against plain arithmetic or the compositions they stand for.
local sc = require "sconce"
local F = sc.nn.functional

local function flat(t) return t:detach():contiguous():reshape(-1):totable() end
local function close(got, want, tol)
  assert.are.equal(#want, #got)
  for i = 1, #want do
    local off = math.abs(got[i] - want[i])
    if off ~= off or off > (tol or 1e-6) then error(("element %d: got %.9g, expected %.9g"):format(i, got[i], want[i]), 2) end
  end
end
local function refuses(word, fn)
  local ok, message = pcall(fn)
  if ok then error("no error was raised", 2) end
  if not tostring(message):find(word, 1, true) then error(("the message %q does not name %q"):format(message, word), 2) end
end
local function double(...) return sc.randn({ ... }, { dtype = "float64" }) end

-- Both derivatives along one random direction against central differences.
local function check_gradients(f, inputs)
  local dirs, h = {}, 1e-5
  for i, x in ipairs(inputs) do x.requires_grad = true; dirs[i] = sc.randn(x.shape, { dtype = "float64" }) end
  local function shifted(s)
    local t = {}
    for i, x in ipairs(inputs) do t[i] = (x:detach() + dirs[i] * s):requires_grad_(true) end
    return t
  end
  local weight = sc.randn(f(table.unpack(inputs)).shape, { dtype = "float64" })
  local function value(t) return (f(table.unpack(t)) * weight):sum() end
  local function slope(t, create)
    local grads, sum = { sc.grad(value(t), t, { create_graph = create }) }, 0
    for i, g in ipairs(grads) do sum = sum + (g * dirs[i]):sum() end
    return sum
  end
  local first = (value(shifted(h)):item() - value(shifted(-h)):item()) / (2 * h)
  close({ slope(inputs, false):item() }, { first }, 1e-5 * (1 + math.abs(first)))
  local curve, t = 0, shifted(0)
  local grads = { sc.grad(slope(t, true), t, { allow_unused = true }) }       -- the first derivative may not depend on an input
  for i = 1, #t do curve = curve + (grads[i] and (grads[i] * dirs[i]):sum():item() or 0) end
  local second = (slope(shifted(h), false):item() - slope(shifted(-h), false):item()) / (2 * h)
  close({ curve }, { second }, 1e-4 * (1 + math.abs(second)))
end

describe("normalisation", function()
  it("brings a row to mean 0 and variance 1, also far from the origin", function()
    local y = F.layer_norm(sc.arange(1000):float() + 1e6, { 1000 })
    assert.is_true(math.abs(y:mean():item()) < 1e-4)
    close({ (y * y):mean():item() }, { 1 }, 1e-3)
  end)

  for name, f in pairs {
    layer_norm = function(x, w, b) return F.layer_norm(x, { 5 }, w, b) end,
    group_norm = function(x, w, b) return F.group_norm(x:transpose(2, 3), 1, w, b) end,
    batch_norm = function(x, w, b) return F.batch_norm(x:transpose(2, 3), nil, nil, w, b, true) end,
    instance_norm = function(x, w, b) return F.instance_norm(x:transpose(2, 3), nil, nil, w, b) end,
    batch_norm_eval = function(x, w, b)
      return F.batch_norm(x:transpose(2, 3), sc.zeros({ 5 }, { dtype = "float64" }), sc.ones({ 5 }, { dtype = "float64" }), w, b)
    end,
  } do
    it(name .. " has first and second derivatives", function()
      sc.manual_seed(3)
      check_gradients(f, { double(3, 4, 5), double(5), double(5) })
    end)
  end

  it("moves batch_norm's running statistics, by the unbiased variance", function()
    local x, mean, var = sc.tensor { { 1.0 }, { 3.0 } }, sc.zeros(1), sc.ones(1)
    F.batch_norm(x, mean, var, nil, nil, true, 0.5)
    close({ mean:item(), var:item() }, { 1, 1.5 })
    F.batch_norm(x, mean, var, nil, nil, false)
    close({ mean:item(), var:item() }, { 1, 1.5 })
  end)

  it("refuses single values, wrong shapes and groups", function()
    refuses("more than one value", function() F.batch_norm(sc.ones(1, 3), nil, nil, nil, nil, true) end)
    refuses("normalized_shape", function() F.layer_norm(sc.ones(2, 3), { 2 }) end)
    refuses("num_groups", function() F.group_norm(sc.ones(2, 3), 2) end)
    refuses("per channel", function() F.batch_norm(sc.ones(2, 3), sc.ones(2), sc.ones(2)) end)
  end)
end)

describe("cross_entropy", function()
  for _, reduction in ipairs { "mean", "sum", "none" } do
    it("equals log_softmax and nll_loss, " .. reduction, function()
      local x, t, w = double(6, 4, 3), sc.randint(1, 5, { 6, 3 }), sc.rand({ 4 }, { dtype = "float64" }) + 0.5
      t[{ 2, 3 }] = -100
      local a = F.cross_entropy(x, t, w, { reduction = reduction })
      close(flat(a), flat(F.nll_loss(x:log_softmax(2), t, w, { reduction = reduction })), 1e-12)
    end)
  end
  it("has first and second derivatives, smoothed and weighted too", function()
    local t, w = sc.tensor { 1, 3, -100, 4 }, sc.rand({ 4 }, { dtype = "float64" }) + 0.5
    check_gradients(function(x) return F.cross_entropy(x, t, w, { label_smoothing = 0.3, reduction = "none" }) end, { double(4, 4) })
    check_gradients(function(x) return F.cross_entropy(x, t) end, { double(4, 4) })
  end)
  it("stays finite for logits far apart and far away", function()
    close({ F.cross_entropy(sc.tensor { { 1e4, 0.0 }, { 0.0, 1e4 } }, sc.tensor { 1, 1 }):item() }, { 5e3 })
    close({ F.cross_entropy(sc.tensor { { 1e6, 1e6 } }, sc.tensor { 1 }):item() }, { math.log(2) }, 1e-6)
  end)
  it("refuses classes out of range and targets that do not fit", function()
    for _, bad in ipairs { 0, 4, -1, 1 << 40, math.mininteger } do
      refuses("out of range", function() F.cross_entropy(sc.ones(1, 3), sc.tensor { bad }) end)
    end
    refuses("does not fit", function() F.cross_entropy(sc.ones(2, 3), sc.tensor { 1 }) end)
    refuses("reduction", function() F.cross_entropy(sc.ones(1, 3), sc.tensor { 1 }, { reduction = "avg" }) end)
  end)
end)

describe("ctc_loss", function()
  it("sums over alignments: two steps, one label", function()
    -- classes: blank, a. Alignments of "a": (blank a), (a blank), (a a)
    local lp = sc.tensor { { { 0.6, 0.4 } }, { { 0.3, 0.7 } } }:log()
    local loss = F.ctc_loss(lp, sc.tensor { { 2 } }, sc.tensor { 2 }, sc.tensor { 1 }, { reduction = "sum" })
    close({ loss:item() }, { -math.log(0.6 * 0.7 + 0.4 * 0.3 + 0.4 * 0.7) })
  end)
  it("refuses labels and lengths out of range", function()
    local lp = sc.zeros(2, 1, 2)
    refuses("class", function() F.ctc_loss(lp, sc.tensor { { 3 } }, sc.tensor { 2 }, sc.tensor { 1 }) end)
    refuses("length", function() F.ctc_loss(lp, sc.tensor { { 2 } }, sc.tensor { 3 }, sc.tensor { 1 }) end)
    refuses("length", function() F.ctc_loss(lp, sc.tensor { { 2 } }, sc.tensor { 2 }, sc.tensor { 2 }) end)
  end)
end)

describe("scaled_dot_product_attention", function()
  it("equals softmax(q k' / sqrt(E)) v over more than one block of rows", function()
    local q, k, v = double(2, 3, 130, 8), double(2, 3, 70, 8), double(2, 3, 70, 5)
    local want = (q:matmul(k:transpose(-1, -2)) * (1 / math.sqrt(8))):softmax(-1):matmul(v)
    close(flat(F.scaled_dot_product_attention(q, k, v)), flat(want), 1e-12)
  end)
  it("has first and second derivatives, causal and masked", function()
    local mask = sc.tensor { { true, false, true }, { false, true, true } }
    local attention = F.scaled_dot_product_attention
    local inputs = { double(2, 4, 3), double(2, 4, 3), double(2, 4, 2) }
    check_gradients(function(q, k, v) return attention(q, k, v, { is_causal = true }) end, inputs)
    check_gradients(function(q, k, v) return attention(q, k, v, mask) end, { double(2, 2, 3), double(2, 3, 3), double(2, 3, 2) })
  end)
  it("gives zeros, and zero gradients, where a row may look at nothing", function()
    local q = sc.ones(1, 2, 2):requires_grad_(true)
    local y = F.scaled_dot_product_attention(q, sc.ones(1, 2, 2), sc.ones(1, 2, 2), sc.tensor { { false, false }, { true, true } })
    close(flat(y), { 0, 0, 1, 1 })
    close(flat(sc.grad(y:sum(), q)), { 0, 0, 0, 0 })
  end)
end)
