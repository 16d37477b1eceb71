--- Rewrites of graphs: text in, text out, a row each, and rows where a guard must refuse. Every row is also run with and without.
local sc = require "sconce"
local core = require "sconce.core"
local text = require "spec.support.graph_text"

local x = sc.tensor { { 0.5, -0.0, 2.0 }, { -1.5, 3.0, -0.25 } }
local y = sc.tensor { { 1.0, -2.0, 0.5 }, { 4.0, 0.25, -1.0 } }
local ints = sc.tensor { { 1, -2, 3 }, { 0, 5, -7 } }
local flags = sc.tensor { true, false, true }

local F = sc.nn.functional
local inf = math.huge
local square = sc.tensor { { 0.5, -1.0, 2.0 }, { 1.5, 0.25, -0.75 }, { 0.125, 3.0, 1.0 } }
local row = sc.tensor { 0.5, -1.0, 2.0 }
local low = sc.tensor { { true, false, false }, { true, true, false }, { true, true, true } }
local weights = sc.tensor { { { { 1.0, -1.0 }, { 0.5, 2.0 } } }, { { { 0.25, 0.0 }, { 3.0, -0.5 } } } }
local image = sc.arange(9):reshape(1, 1, 3, 3):float() / 4

local MAXIMA = "max_windows(x, dilation=[1 1], dims=2, kernel=[2 2], padding=[0 0], size=[1 1 1 1], stride=[2 2])"

--- { what, function, its arguments, the recording, the rewritten graph }
local ROWS = {
  { "times one", function(a) return (a * 1):exp() end, { x }, "exp(mul(x, 1))", "exp(x)" },
  { "one times", function(a) return (1 * a):exp() end, { x }, "exp(mul(1, x))", "exp(x)" },
  { "over one", function(a) return (a / 1):exp() end, { x }, "exp(div(x, 1))", "exp(x)" },
  { "plus zero of floats stays: it turns -0 into 0", function(a) return 1 / (a + 0) end, { x }, "div(1, add(x, 0))", "div(1, add(x, 0))" },
  { "plus minus zero", function(a) return 1 / (a + -0.0) end, { x }, "div(1, add(x, -0))", "div(1, x)" },
  { "minus zero", function(a) return 1 / (a - 0) end, { x }, "div(1, sub(x, 0))", "div(1, x)" },
  { "minus minus zero stays", function(a) return 1 / (a - -0.0) end, { x }, "div(1, sub(x, -0))", "div(1, sub(x, -0))" },
  { "plus zero of integers", function(a) return (a + 0):abs() end, { ints }, "abs(add(x, 0))", "abs(x)" },
  { "plus 0.0 of integers stays: it makes floats", function(a) return (a + 0.0):abs() end, { ints }, "abs(add(x, 0))", "abs(add(x, 0))" },
  { "times 1.0 of integers stays", function(a) return (a * 1.0):abs() end, { ints }, "abs(mul(x, 1))", "abs(mul(x, 1))" },
  { "times zero stays: infinity times zero is NaN", function(a) return (a * 0):exp() end, { x }, "exp(mul(x, 0))", "exp(mul(x, 0))" },
  { "times minus one", function(a) return a * -1 end, { x }, "mul(x, -1)", "neg(x)" },
  { "two negations", function(a) return (-(-a)):exp() end, { x }, "exp(neg(neg(x)))", "exp(x)" },
  { "four negations", function(a) return (-(-(-(-a)))):exp() end, { x }, "exp(neg(neg(neg(neg(x)))))", "exp(x)" },
  { "three negations", function(a) return -(-(-a)) end, { x }, "neg(neg(neg(x)))", "neg(x)" },
  { "a result that is handed out stays a tensor of its own", function(a) return -(-a) end, { x }, "neg(neg(x))", "neg(neg(x))" },
  { "unless what it is was fresh", function(a) return -(-a:exp()) end, { x }, "neg(neg(exp(x)))", "exp(x)" },
  { "but not twice", function(a) local e = a:exp() return -(-e), -(-e) end, { x },
    "neg(neg(exp(x))); neg(neg(exp(x)))", "exp(x); neg(neg(exp(x)))" },
  { "the size of a negation", function(a) return (-a):abs() end, { x }, "abs(neg(x))", "abs(x)" },
  { "the size of a size", function(a) return a:abs():abs() end, { x }, "abs(abs(x))", "abs(x)" },
  { "a square of a negation", function(a) return (-a):square() end, { x }, "square(neg(x))", "square(x)" },
  { "a tensor by itself", function(a) return a * a end, { x }, "mul(x, x)", "square(x)" },
  { "the same thing computed twice, by itself", function(a) return a:exp() * a:exp() end, { x }, "mul(exp(x), exp(x))", "square(exp(x))" },
  { "random numbers are not the same thing", function(a) return sc.rand_like(a) * sc.rand_like(a) end, { x },
    "mul(rand_like(x, requires_grad=false), rand_like(x, requires_grad=false))", "mul(rand_like(x, requires_grad=false), rand_like(x, requires_grad=false))" },
  { "relu twice", function(a) return a:relu():relu() end, { x }, "relu(relu(x))", "relu(x)" },
  { "positions of maxima that nobody reads", function(a) return F.max_pool2d(a, 2) end, { image },
    MAXIMA,
    "max_window_values" .. MAXIMA:sub(12) },
  { "positions of maxima that are read stay", function(a) return F.max_pool2d(a, 2, { return_indices = true }) end, { image },
    MAXIMA .. "; " .. MAXIMA .. "#2",
    MAXIMA .. "; " .. MAXIMA .. "#2" },
  { "the larger of the same", function(a) return a:maximum(a):exp() end, { x }, "exp(maximum(x, x))", "exp(x)" },
  { "a choice between the same", function(a, b) return sc.where(a:gt(0), b, b):exp() end, { x, y }, "exp(where(gt(x, 0), y, y))", "exp(y)" },
  { "a choice that broadcasts stays", function(a, b) return sc.where(b, a, a):exp() end, { sc.tensor { 1.0 }, flags },
    "exp(where(y, x, x))", "exp(where(y, x, x))" },
  { "two transposes", function(a) return a:t():t():exp() end, { x },
    "exp(transpose(transpose(x, dim0=-2, dim1=-1), dim0=-2, dim1=-1))", "exp(x)" },
  { "two transposes of other dims stay", function(a) return a:transpose(1, 2):transpose(2, 3):exp() end, { sc.ones(2, 3, 4) },
    "exp(transpose(transpose(x, dim0=0, dim1=1), dim0=1, dim1=2))", "exp(transpose(transpose(x, dim0=0, dim1=1), dim0=1, dim1=2))" },
  { "a reshape of a reshape", function(a) return a:reshape(3, 2):reshape(6):exp() end, { x },
    "exp(view(view(x, size=[3 2]), size=[6]))", "exp(view(x, size=[6]))" },
  { "a reshape to what it is", function(a) return a:reshape(3, 2):reshape(2, 3):exp() end, { x },
    "exp(view(view(x, size=[3 2]), size=[2 3]))", "exp(x)" },
  { "a copy that nobody changes", function(a) return a:clone():exp() end, { x }, "exp(clone(x))", "exp(x)" },
  { "a copy of something written to later stays", function(a) local c = a:clone() a:add_(1) return c:exp() end, { x:clone() },
    "add_(x, 1); exp(clone(x))", "add_(x, 1); exp(clone(x))" },
  { "a copy that is written to stays", function(a) local c = a:clone() c:add_(1) return c:exp() end, { x },
    "add_(clone(x), 1); exp(clone(x))", "add_(clone(x), 1); exp(clone(x))" },
  { "a copy that packs stays", function(a) return a:t():clone():exp() end, { x },
    "exp(clone(transpose(x, dim0=-2, dim1=-1)))", "exp(clone(transpose(x, dim0=-2, dim1=-1)))" },
  { "what was written to in between is not what it was", function(a) local n = -a a:add_(1) return -n end, { x:clone() },
    "add_(x, 1); neg(neg(x))", "add_(x, 1); neg(neg(x))" },
  { "a cast by way of a wider dtype", function(a) return a:to("float64"):to("float16") end, { x },
    "cast(cast(x, dtype=float64), dtype=float16)", "cast(x, dtype=float16)" },
  { "there and back", function(a) return a:to("float64"):to("float32"):exp() end, { x },
    "exp(cast(cast(x, dtype=float64), dtype=float32))", "exp(cast(x, dtype=float32))" },
  { "a cast by way of a narrower dtype stays", function(a) return a:to("float16"):to("float32"):exp() end, { x },
    "exp(cast(cast(x, dtype=float16), dtype=float32))", "exp(cast(cast(x, dtype=float16), dtype=float32))" },
  { "what follows from numbers alone", function(a) return a + sc.full({ 3 }, 2.0):exp() * sc.arange(3) end, { x },
    nil, "add(x, c1)" },
  { "zeros that are written to stay", function(a) local z = sc.zeros(2, 3) z:add_(a) return z:exp() end, { x },
    nil, "add_(zeros(requires_grad=false, size=[2 3]), x); exp(zeros(requires_grad=false, size=[2 3]))" },
  { "zeros that are handed out stay", function(a) return sc.zeros(2), a:exp() end, { x },
    nil, "zeros(requires_grad=false, size=[2]); exp(x)" },
  { "an activation after a linear layer", function(a, w, b) return F.leaky_relu(F.linear(a, w, b), 0.25) end, { x, square, row },
    "leaky_relu(linear(x, y, z), negative_slope=0.25)", "linear_act(x, y, z, act=leaky_relu, numbers=[0.25])" },
  { "an activation after a convolution", function(a) return F.conv2d(a, weights):relu() end, { image }, nil,
    "convolution_act(x, c1, nil, act=relu, dilation=[1 1], groups=1, numbers=[], padding=[0 0 0 0], stride=[1 1])" },
  { "an activation of integers stays", function(a) return F.linear(a, ints):relu() end, { ints }, "relu(linear(x, c1, nil))", "relu(linear(x, c1, nil))" },
  { "an activation stays where its operand is used elsewhere", function(a, w) local h = F.linear(a, w) return h:relu(), h end, { x, square },
    "relu(linear(x, y, nil)); linear(x, y, nil)", "relu(linear(x, y, nil)); linear(x, y, nil)" },
  { "an activation stays with the pointwise ops that follow it", function(a, w) return F.linear(a, w):relu():neg() end, { x, square },
    "neg(relu(linear(x, y, nil)))", "neg(relu(linear(x, y, nil)))" },
  { "random numbers stay", function(a) return a + sc.rand(3) end, { x }, nil, "add(x, rand(requires_grad=false, size=[3]))" },
}

local q, k, v = square:reshape(1, 3, 3), x:sum(1):reshape(1, 1, 3) * square:reshape(1, 3, 3), square:t():reshape(1, 3, 3) - 1
local labels = sc.tensor { 3, 1 }

local function softmax_of(a, dim) local e = (a - a:amax(dim, true)):exp() return e / e:sum(dim, true) end
local function centred(a) return a - a:mean(-1, true) end
local function norm_of(a) return centred(a) / ((centred(a) ^ 2):mean(-1, true) + 1e-5):sqrt() end
local NORM = "normalize_rows(x, nil, nil, nil, nil, dims=1, eps=1e-05, momentum=0.1)"
local function attention_text(keys, mask, scale)
  return string.format("attention(%s, transpose(%s, dim0=-2, dim1=-1), z, %s, causal=false, nan_rows=true, scale=%g)", "x", keys, mask, scale)
end
local function swap(a) return a:transpose(-2, -1) end
local KEYS = "transpose(y, dim0=-2, dim1=-1)"

--- Rewrites that may change rounding, off under `exact`: { what, function, its arguments, the rewritten graph, a bound, relative to the
--- largest element }
local ROUNDING = {
  { "softmax", function(a) return softmax_of(a, -1) end, { x }, "softmax(x, dim=1)" },
  { "softmax over another dim", function(a) return softmax_of(a, 1) end, { x }, "softmax(x, dim=0)" },
  { "softmax with max by dim", function(a) local e = sc.exp(a - (a:max(2, true))) return e / e:sum { dim = 2, keepdim = true } end, { x },
    "softmax(x, dim=1)" },
  { "softmax with unsqueezed sums", function(a)
    local e = (a - a:amax(-1):unsqueeze(-1)):exp()
    return e / e:sum(-1):unsqueeze(-1)
  end, { x }, "softmax(x, dim=1)" },
  { "log-softmax", function(a) local s = a - a:amax(-1, true) return s - s:exp():sum(-1, true):log() end, { x }, "log_softmax(x, dim=1)" },
  { "log-softmax by logsumexp", function(a) return a - a:logsumexp(-1, true) end, { x }, "log_softmax(x, dim=1)" },
  { "softmax of sums over another dim stays", function(a) local e = (a - a:amax(-1, true)):exp() return e / e:sum(1, true) end, { square }, false },
  { "softmax whose exponentials are used elsewhere stays", function(a)
    local e = (a - a:amax(-1, true)):exp()
    return e / e:sum(-1, true), e
  end, { x }, false },
  { "softmax without the maximum stays: it overflows elsewhere", function(a) local e = a:exp() return e / e:sum(-1, true) end, { x }, false },
  { "softmax of something written to meanwhile stays", function(a)
    local b = a * 2
    local e = (b - b:amax(-1, true)):exp()
    b:add_(1)
    return e / e:sum(-1, true) + b
  end, { x }, "add_(mul(x, 2), 1); add(softmax(mul(x, 2), dim=1), mul(x, 2))", refused = true },
  { "layer-norm", norm_of, { x }, NORM },
  { "layer-norm by rsqrt and var", function(a) return centred(a) * (a:var(-1, false, true) + 1e-5):rsqrt() end, { x }, NORM },
  { "layer-norm with weight and bias", function(a, w, b) return w * norm_of(a) + b end, { x, row, row + 1 },
    "normalize_rows(x, y, z, nil, nil, dims=1, eps=1e-05, momentum=0.1)" },
  { "a weight of another shape stays outside", function(a, w) return norm_of(a) * w end, { square, row:reshape(3, 1) },
    "mul(" .. NORM .. ", y)" },
  { "unbiased variances are no layer-norm", function(a) return centred(a) / (a:var(-1, true, true) + 1e-5):sqrt() end, { x }, false },
  { "columns are no rows", function(a) return (a - a:mean(1, true)) / (a:var(1, false, true) + 1e-5):sqrt() end, { x }, false },
  { "attention", function(a, b, c) return a:matmul(swap(b)):softmax(-1):matmul(c) end, { q, k, v }, attention_text(KEYS, "nil", 1) },
  { "attention, scaled", function(a, b, c) return (a:matmul(swap(b)) / 2):softmax(-1):matmul(c) end, { q, k, v }, attention_text(KEYS, "nil", 0.5) },
  { "attention, scaled before", function(a, b, c) return (a * 0.25):matmul(swap(b)):softmax(-1):matmul(c) end, { q, k, v },
    attention_text(KEYS, "nil", 0.25) },
  { "attention, softmax by hand", function(a, b, c) return softmax_of(a:matmul(swap(b)) * 0.5, -1):matmul(c) end, { q, k, v },
    attention_text(KEYS, "nil", 0.5) },
  { "attention, masked", function(a, b, c) return (a:matmul(swap(b)) * 0.5):masked_fill(low:logical_not(), -inf):softmax(-1):matmul(c) end,
    { q, k, v }, attention_text(KEYS, "expand(logical_not(logical_not(c1)), size=[1 3 3])", 0.5) },
  { "attention, masked by choice", function(a, b, c) return sc.where(low, a:matmul(swap(b)) * 0.5, -inf):softmax(-1):matmul(c) end,
    { q, k, v }, attention_text(KEYS, "expand(c1, size=[1 3 3])", 0.5) },
  { "attention, mask added", function(a, b, c) return (a:matmul(swap(b)) * 0.5 + square):softmax(-1):matmul(c) end, { q, k, v },
    attention_text(KEYS, "expand(c1, size=[1 3 3])", 0.5) },
  { "attention with rows of nothing gives NaN, as written", function(a, b, c)
    return (a:matmul(swap(b)) * 0.5):masked_fill(low, -inf):softmax(-1):matmul(c)
  end, { q, k, v }, attention_text(KEYS, "expand(logical_not(c1), size=[1 3 3])", 0.5) },
  { "attention masked by a large number stays: a row of nothing is no NaN", function(a, b, c)
    return (a:matmul(swap(b)) * 0.5):masked_fill(low, -1e9):softmax(-1):matmul(c)
  end, { q, k, v }, false },
  { "attention over the wrong dim stays", function(a, b, c) return a:matmul(swap(b)):softmax(2):matmul(c) end, { q, k, v }, false },
  { "attention whose weights are returned stays", function(a, b, c) local p = a:matmul(swap(b)):softmax(-1) return p:matmul(c), p end, { q, k, v },
    false },
  { "cross-entropy", function(a) return F.nll_loss(F.log_softmax(a, 2), labels) end, { x },
    "cross_entropy_index(x, c1, nil, ignore_index=-100, reduction=mean, smoothing=0)" },
  { "log-softmax over the batch is no cross-entropy", function(a) return F.nll_loss(F.log_softmax(a, 1), labels) end, { x }, false },
  { "batch-norm after a convolution", function(a)
    return F.batch_norm(F.conv2d(a, weights, sc.tensor { 1.0, 2.0 }), sc.tensor { 0.5, -1.0 }, sc.tensor { 2.0, 4.0 }, nil, nil, false, 0.1, 0)
  end, { sc.cat { image, image, image, image } }, nil, without = "channel_affine" },
  { "batch-norm after a linear layer", function(a)
    return F.batch_norm(F.linear(a, square), row, row:abs(), row, row, false, 0.1, 1e-5)
  end, { sc.cat { x, x, x } }, nil, without = "channel_affine" },
  { "batch-norm stays where the weights are more than the results", function(a)
    return F.batch_norm(F.linear(a, square), row, row:abs(), row, row, false, 0.1, 1e-5)
  end, { x }, false },
  { "a product and a bias", function(a, w, b) return a:matmul(w) + b end, { sc.cat { x, x, x }, square, row }, "linear(x, transpose(y, dim0=0, dim1=1), z)" },
  { "a product of few rows and a bias stays", function(a, w, b) return a:matmul(w) + b end, { x, square, row }, false },
  { "a product and a column stays", function(a, w, b) return a:matmul(w) + b end, { sc.cat { x, x }, square, sc.ones(4, 1) }, false },
  { "a product that is used elsewhere stays", function(a, w, b) local p = a:matmul(w) return p + b, p end, { sc.cat { x, x, x }, square, row }, false },
  { "a linear layer and a bias", function(a, w, b) return F.linear(a, w) + b end, { x, square, row }, "linear(x, y, z)" },
}

local function copies(list)
  local t = {}
  for i, e in ipairs(list) do t[i] = e:clone() end
  return table.unpack(t)
end

describe("rewrites of graphs", function()
  setup(function() core.check_graphs(true) end)
  teardown(function() core.check_graphs(false) end)

  for _, case in ipairs(ROWS) do
    it(case[1], function()
      local plain, f = sc.compile(case[2], { passes = 0 }), sc.compile(case[2], case.options)
      sc.manual_seed(1)
      local want = table.pack(plain(copies(case[3])))
      sc.manual_seed(1)
      local got = table.pack(f(copies(case[3])))
      local graph = f.last.core
      if case[4] then assert.equal(case[4], text(graph)) end
      assert.equal(case[5], text(graph:rewritten(nil)))
      for i = 1, want.n do assert.equal(want[i]:tostring_bytes(), got[i]:tostring_bytes()) end
    end)
  end

  for _, case in ipairs(ROUNDING) do
    it(case[1], function()
      local plain, f = sc.compile(case[2], { passes = 0 }), sc.compile(case[2])
      local exact = sc.compile(case[2], { exact = true })
      local want, got, same = table.pack(plain(copies(case[3]))), table.pack(f(copies(case[3]))), table.pack(exact(copies(case[3])))
      local graph = f.last.core
      local before, after = text(graph:rewritten(nil, true)), text(graph:rewritten(nil))
      if case.refused then assert.is_nil(after:find("softmax", 1, true))
      elseif case[4] == false then assert.equal(before, after)
      elseif case[4] then assert.equal(case[4], after)
      else assert.truthy(before:find(case.without, 1, true)); assert.is_nil(after:find(case.without, 1, true)) end
      for i = 1, want.n do
        assert.equal(want[i]:tostring_bytes(), same[i]:tostring_bytes())
        local a, b = want[i]:double(), got[i]:double()
        assert.equal(a:isnan():tostring_bytes(), b:isnan():tostring_bytes())
        local largest = a:nan_to_num():abs():max():item()
        assert.is_true((a - b):nan_to_num():abs():max():item() <= 4e-7 * largest)
      end
    end)
  end

  it("can be switched off by name, or all of them by a number", function()
    local function fn(a) return (-(-a)):exp() + sc.ones(3) end
    local function left(options)
      local f = sc.compile(fn, options)
      f(x)
      return f.last:stats().nodes
    end
    assert.equal(5, left { passes = 0 })
    assert.equal(2, left {})
    assert.equal(3, left { passes = { constants = false } })
    assert.equal(4, left { passes = { algebra = false } })
    assert.equal(3, left { passes = { "algebra" } })
    assert.equal(4, left { passes = { "constants" } })
    assert.has_error(function() left { passes = { "algebre" } } end)
  end)

  it("are listed with nodes and bytes before and after each", function()
    local f = sc.compile(function(a) return (-(-a)):exp():sum() end)
    f(x)
    local passes = f.last:stats().passes
    assert.equal("recorded", passes[1].name)
    assert.equal(4, passes[1].nodes)
    assert.equal("algebra", passes[3].name)
    assert.equal(2, passes[3].nodes)
    assert.is_true(passes[3].bytes < passes[2].bytes)
  end)

  it("keep the script's lines", function()
    local f = sc.compile(function(a)
      local b = a:sqrt()
      return (b * b) * -1 -- NaN is made one line above
    end)
    local here = debug.getinfo(1, "l").currentline - 3
    f(x:abs())
    f.last:check_nan(true)
    local ok, err = pcall(f, sc.tensor { { -1.0, 1.0, 1.0 }, { 1.0, 1.0, 1.0 } })
    assert.is_false(ok)
    assert.truthy(err:find("rewrite_spec.lua:" .. here, 1, true) or err:find("rewrite_spec.lua:" .. here + 1, 1, true), err)
    assert.is_true(sc.verify(f, x:abs()))
  end)
end)
