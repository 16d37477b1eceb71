-- Modules: layers against stored PyTorch results (spec/reference/make.py), and what every module can do.
local sc = require "sconce"
local nn, F = sc.nn, sc.nn.functional
local reference = dofile "spec/reference/nn.lua"

--- The numbers of make.py's `fill`: element i (from 0) is scale * sin(seed + 1.7 i + 0.3 (i mod 7)).
local function fill(shape, seed, scale)
  local n, v = 1, {}
  for _, s in ipairs(shape) do n = n * s end
  for i = 0, n - 1 do v[i + 1] = (scale or 1) * math.sin(seed + 1.7 * i + 0.3 * (i % 7)) end
  return sc.tensor(v, { dtype = "float64" }):reshape(shape)
end

local function ids(t) return sc.tensor(t) end

local function causal(n) return sc.ones({ n, n }, { dtype = "bool" }):triu(1) end

local CASES = {
  ["Linear"] = { function() return nn.Linear(3, 2) end, { fill({ 2, 3 }, 1) } },
  ["Bilinear"] = { function() return nn.Bilinear(2, 3, 2) end, { fill({ 2, 2 }, 1), fill({ 2, 3 }, 2) } },
  ["Conv1d"] = { function() return nn.Conv1d(2, 4, 3, { stride = 2, padding = 1, groups = 2 }) end, { fill({ 2, 2, 7 }, 1) } },
  ["Conv2d"] = { function() return nn.Conv2d(2, 3, { 3, 2 }, { padding = { 1, 0 }, dilation = { 2, 1 } }) end, { fill({ 1, 2, 6, 5 },
    1) } },
  ["Conv2d same reflect"] = { function() return nn.Conv2d(1, 2, { 3, 4 }, { padding = "same", padding_mode = "reflect" }) end,
    { fill({ 1, 1, 5, 6 }, 1) } },
  ["Conv3d"] = { function() return nn.Conv3d(1, 2, 2) end, { fill({ 1, 1, 3, 3, 3 }, 1) } },
  ["ConvTranspose1d"] = { function() return nn.ConvTranspose1d(2, 3, 3, { stride = 2, output_padding = 1 }) end, { fill({ 1, 2, 4 }, 1) } },
  ["ConvTranspose2d size"] = { function() return nn.ConvTranspose2d(2, 2, 3, { stride = 2, padding = 1 }) end, { fill({ 1, 2, 3, 3 }, 1) },
    function(m, x) return m(x, { 6, 5 }) end },
  ["MaxPool2d"] = { function() return nn.MaxPool2d(2, 1, 1) end, { fill({ 1, 1, 4, 4 }, 1) } },
  ["AvgPool2d"] = { function() return nn.AvgPool2d(3, { stride = 2, padding = 1, count_include_pad = false }) end, { fill({ 1, 1, 5, 5 },
    1) } },
  ["AdaptiveAvgPool2d"] = { function() return nn.AdaptiveAvgPool2d { 2, 3 } end, { fill({ 1, 2, 5, 5 }, 1) } },
  ["AdaptiveMaxPool1d"] = { function() return nn.AdaptiveMaxPool1d(3) end, { fill({ 1, 2, 7 }, 1) } },
  ["BatchNorm1d"] = { function() return nn.BatchNorm1d(3) end, { fill({ 4, 3 }, 1) } },
  ["BatchNorm2d cumulative"] = { function() return nn.BatchNorm2d(2, { momentum = false }) end, { fill({ 2, 2, 3, 3 }, 1) },
    function(m, x) return m(x), m(x * 2) end },
  ["BatchNorm1d eval"] = { function() return nn.BatchNorm1d(3):eval() end, { fill({ 4, 3 }, 1) } },
  ["LayerNorm"] = { function() return nn.LayerNorm { 3, 4 } end, { fill({ 2, 3, 4 }, 1) } },
  ["GroupNorm"] = { function() return nn.GroupNorm(2, 4) end, { fill({ 2, 4, 3 }, 1) } },
  ["InstanceNorm1d"] = { function() return nn.InstanceNorm1d(2, { affine = true, track_running_stats = true }) end, { fill({ 2, 2, 5 },
    1) } },
  ["LocalResponseNorm"] = { function() return nn.LocalResponseNorm(3) end, { fill({ 1, 4, 3 }, 1) } },
  ["Embedding"] = { function() return nn.Embedding(5, 3, { padding_idx = 2 }) end, { ids { { 1, 2 }, { 5, 2 } } } },
  ["EmbeddingBag"] = { function() return nn.EmbeddingBag(5, 3, { mode = "sum" }) end, { ids { 1, 2, 5, 2 }, ids { 1, 4 } } },
  ["PReLU"] = { function() return nn.PReLU(2) end, { fill({ 2, 2, 3 }, 1) } },
  ["Softmax"] = { function() return nn.Softmax(2) end, { fill({ 2, 4 }, 1) } },
  ["RNN"] = { function() return nn.RNN(3, 2, { nonlinearity = "relu" }) end, { fill({ 4, 2, 3 }, 1), fill({ 1, 2, 2 }, 2) } },
  ["LSTM"] = { function() return nn.LSTM(3, 2, { num_layers = 2, bidirectional = true, batch_first = true }) end, { fill({ 2, 4, 3 },
    1) } },
  ["LSTM states"] = { function() return nn.LSTM(3, 2, { bias = false }) end, { fill({ 4, 2, 3 }, 1), fill({ 1, 2, 2 }, 2), fill({ 1, 2,
    2 }, 3) },
    function(m, x, h, c) return m(x, { h, c }) end },
  ["LSTM proj"] = { function() return nn.LSTM(3, 4, { proj_size = 2, num_layers = 2 }) end, { fill({ 3, 2, 3 }, 1) } },
  ["LSTM single"] = { function() return nn.LSTM(3, 2) end, { fill({ 4, 3 }, 1) } },
  ["GRU"] = { function() return nn.GRU(3, 2, { num_layers = 2, bidirectional = true }) end, { fill({ 4, 2, 3 }, 1), fill({ 4, 2, 2 },
    2) } },
  ["RNNCell"] = { function() return nn.RNNCell(3, 2) end, { fill({ 2, 3 }, 1), fill({ 2, 2 }, 2) } },
  ["LSTMCell"] = { function() return nn.LSTMCell(3, 2) end, { fill({ 2, 3 }, 1) } },
  ["GRUCell"] = { function() return nn.GRUCell(3, 2) end, { fill({ 2, 3 }, 1), fill({ 2, 2 }, 2) } },
  ["MultiheadAttention"] = { function() return nn.MultiheadAttention(4, 2) end,
    { fill({ 3, 2, 4 }, 1), fill({ 5, 2, 4 }, 2), fill({ 5, 2, 4 }, 3) } },
  ["MultiheadAttention masks"] = { function() return nn.MultiheadAttention(4, 2, { batch_first = true }) end, { fill({ 2, 3, 4 }, 1) },
    function(m, x)
      local pad = sc.tensor { { false, false, false }, { false, false, true } }
      return m(x, x, x, { attn_mask = causal(3), key_padding_mask = pad, average_attn_weights = false })
    end },
  ["MultiheadAttention kdim"] = { function() return nn.MultiheadAttention(4, 2, { kdim = 3, vdim = 2 }) end,
    { fill({ 2, 1, 4 }, 1), fill({ 3, 1, 3 }, 2), fill({ 3, 1, 2 }, 3) } },
  ["MultiheadAttention bias_kv"] = { function() return nn.MultiheadAttention(4, 2, { add_bias_kv = true, add_zero_attn = true }) end,
    { fill({ 2, 1, 4 }, 1) }, function(m, x) return m(x, x, x) end },
  ["TransformerEncoderLayer"] = { function() return nn.TransformerEncoderLayer(4, 2, 8, { dropout = 0.0 }) end, { fill({ 3, 2, 4 }, 1) } },
  ["TransformerEncoderLayer norm_first"] = { function()
    return nn.TransformerEncoderLayer(4, 2, 8, { dropout = 0.0, activation = "gelu", norm_first = true, batch_first = true })
  end, { fill({ 2, 3, 4 }, 1) }, function(m, x) return m(x, { src_mask = nn.Transformer.generate_square_subsequent_mask(3) }) end },
  ["TransformerEncoder"] = { function()
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, { dropout = 0.0 }), 2, nn.LayerNorm(4))
  end, { fill({ 3, 2, 4 }, 1) } },
  ["TransformerDecoderLayer"] = { function() return nn.TransformerDecoderLayer(4, 2, 8, { dropout = 0.0 }) end,
    { fill({ 3, 2, 4 }, 1), fill({ 5, 2, 4 }, 2) } },
  ["Transformer"] = { function() return nn.Transformer(4, 2, 1, 1, 8, { dropout = 0.0 }) end, { fill({ 3, 2, 4 }, 1), fill({ 2, 2, 4 },
    2) } },
  ["Upsample"] = { function() return nn.Upsample { scale_factor = 2, mode = "bilinear", align_corners = true } end, { fill({ 1, 1, 2, 3 },
    1) } },
  ["PixelShuffle"] = { function() return nn.PixelShuffle(2) end, { fill({ 1, 4, 2, 2 }, 1) } },
  ["CosineSimilarity"] = { function() return nn.CosineSimilarity(2) end, { fill({ 2, 3 }, 1), fill({ 2, 3 }, 2) } },
  ["BCEWithLogitsLoss"] = { function() return nn.BCEWithLogitsLoss { pos_weight = sc.tensor { 2.0, 3.0 } } end,
    { fill({ 3, 2 }, 1), fill({ 3, 2 }, 2):abs() } },
  ["CrossEntropyLoss"] = { function() return nn.CrossEntropyLoss { label_smoothing = 0.1 } end, { fill({ 3, 4 }, 1), ids { 1, 4, 2 } } },
}

local function near(want, got, what)
  assert(math.abs(want - got) <= 1e-6 + 1e-6 * math.abs(want), ("%s: expected %.9g, got %.9g"):format(what, want, got))
end

local function probe(name)
  local case, want = CASES[name], reference[name]
  local net = case[1]():double()
  for i, item in ipairs(net:named_parameters()) do
    sc.no_grad(function() item[2]:copy_(fill(item[2].shape, 99 + i, 0.5)) end)
  end
  local xs = {}
  for i, x in ipairs(case[2]) do
    xs[i] = x:clone()
    if x.dtype == "float64" then xs[i].requires_grad = true end
  end
  local out = { (case[3] or function(m, ...) return m(...) end)(net, table.unpack(xs)) }
  local loss = 0
  for k, o in ipairs(out) do
    local flat = o:reshape { -1 }:totable()
    assert.equal(#want.out[k], #flat)
    for i, v in ipairs(flat) do near(want.out[k][i], v, ("%s: result %d, element %d"):format(name, k, i)) end
    loss = loss + (o * fill(o.shape, 49 + k)):sum()
  end
  assert.equal(#want.out, #out)
  loss:backward()
  local function weighed(t, seed) return t.grad and (t.grad * fill(t.shape, seed)):sum():item() or 0 end
  for i, x in ipairs(xs) do
    if want.grad["x" .. i] then near(want.grad["x" .. i], weighed(x, 70), name .. ": gradient of input " .. i) end
  end
  local n = 0
  for pname, p in net:named_parameters() do
    n = n + 1
    assert(want.grad[pname], name .. ": PyTorch has no parameter " .. pname)
    near(want.grad[pname], weighed(p, 80), name .. ": gradient of " .. pname)
  end
  for key in pairs(want.grad) do if not key:match("^x%d$") then n = n - 1 end end
  assert.equal(0, n, name .. ": parameters are missing")
  for bname, b in net:named_buffers() do
    if want.buffers[bname] then
      for i, v in ipairs(b:double():reshape { -1 }:totable()) do near(want.buffers[bname][i], v, name .. ": " .. bname) end
    end
  end
end

describe("a layer computes what PyTorch's does, with the same gradients and names:", function()
  local names = {}
  for name in pairs(CASES) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do it(name, function() probe(name) end) end
  it("every stored case is tried", function()
    for name in pairs(reference) do assert(CASES[name], name) end
  end)
end)

describe("a module", function()
  local Net = nn.class("Net")
  function Net:init(n)
    self.fc = nn.Linear(n, 2)
    self.scale = nn.Parameter(sc.ones { 1 })
    self.offset = sc.zeros { 2 }
    self.count = 0
  end
  function Net:forward(x) return self.fc(x) * self.scale + self.offset end

  local function keys(t)
    local out = {}
    for k in pairs(t) do out[#out + 1] = k end
    table.sort(out)
    return out
  end

  it("registers what its init puts into fields: parameters, tensors as buffers, modules", function()
    local net = Net(3)
    assert.same({ "fc.bias", "fc.weight", "offset", "scale" }, keys(net:state_dict()))
    local names = {}
    for name in net:named_parameters() do names[#names + 1] = name end
    assert.same({ "scale", "fc.weight", "fc.bias" }, names) -- its own first, as PyTorch
    assert.equal(3, #net:parameters())
    assert.equal(1, #net:buffers())
    assert.equal(2, #net:modules())
    assert.equal(1, #net:children())
    assert.is_nil(net.nothing)
  end)

  it("leaves tensors alone that forward keeps", function()
    local net = Net(3)
    net.hidden = sc.ones { 4 }
    assert.is_nil(net:state_dict().hidden)
  end)

  it("inherits, and says when it has no forward", function()
    local Wide = nn.class("Wide", Net)
    function Wide:init(n)
      Net.init(self, n)
      self.extra = nn.Linear(2, 1)
    end
    function Wide:forward(x) return self.extra(Net.forward(self, x)) end
    assert.same({ 5, 1 }, Wide(3)(sc.ones { 5, 3 }).shape)
    local Empty = nn.class("Empty")
    local ok, message = pcall(function() return Empty()(1) end)
    assert.is_false(ok)
    assert.truthy(message:find("Empty", 1, true) and message:find("forward", 1, true))
    assert.truthy(message:find("nn_spec.lua", 1, true))
  end)

  it("counts a shared parameter once and keeps it shared in a copy", function()
    local Tied = nn.class("Tied")
    function Tied:init()
      self.a = nn.Linear(4, 4, { bias = false })
      self.b = nn.Linear(4, 4, { bias = false })
      self.b.weight = self.a.weight
    end
    local net = Tied()
    assert.equal(1, #net:parameters())
    assert.same({ "a.weight", "b.weight" }, keys(net:state_dict()))
    local copy = net:clone()
    assert.equal(copy.a.weight, copy.b.weight)
    assert.not_equal(net.a.weight, copy.a.weight)
    sc.no_grad(function() copy.a.weight:fill_(7.0) end)
    assert.not_equal(7.0, net.a.weight:totable()[1][1])
  end)

  it("numbers members of Sequential and ModuleList from 0 in names, as PyTorch, and from 1 in Lua", function()
    local net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert.same({ "0.bias", "0.weight", "2.bias", "2.weight" }, keys(net:state_dict()))
    assert.equal(3, net:len())
    assert.equal(net[3], net:get(-1))
    net:append(nn.Sigmoid())
    assert.equal(4, net:len())
    local list = nn.ModuleList { nn.Linear(2, 2), nn.Linear(2, 2) }
    list:insert(1, nn.Identity())
    assert.same({ "1.bias", "1.weight", "2.bias", "2.weight" }, keys(list:state_dict()))
    local dict = nn.ModuleDict { one = nn.Linear(1, 1) }
    assert.same({ "one.bias", "one.weight" }, keys(dict:state_dict()))
    assert.equal(2, #nn.ParameterList { sc.ones { 1 }, sc.ones { 2 } }:parameters())
  end)

  it("loads a state dict whole or not at all", function()
    local a, b = Net(3), Net(3)
    a:load_state_dict(b:state_dict())
    assert.same(b.fc.weight:totable(), a.fc.weight:totable())
    local before = a.fc.weight:totable()
    local sd = Net(3):state_dict()
    sd.scale = nil
    assert.has_error(function() a:load_state_dict(sd) end)
    sd.scale = sc.ones { 2 }
    assert.has_error(function() a:load_state_dict(sd, { strict = false }) end)
    sd.scale = nil
    sd.other = sc.ones { 1 }
    assert.same(before, a.fc.weight:totable())
    local report = a:load_state_dict(sd, { strict = false })
    assert.same({ "scale" }, report.missing_keys)
    assert.same({ "other" }, report.unexpected_keys)
  end)

  it("changes dtype under an optimiser's feet", function()
    local net = Net(3)
    local opt = sc.optim.SGD(net:parameters(), 0.1)
    net:double()
    assert.equal("float64", net.offset.dtype)
    net(sc.ones({ 1, 3 }, { dtype = "float64" })):sum():backward()
    opt:step()
    assert.near(1 - 0.1 * net.scale.grad:item(), net.scale:item(), 1e-9)
  end)

  it("runs hooks before and after forward until they are removed", function()
    local net, seen = Net(3), {}
    local before = net:register_forward_pre_hook(function(_, x) seen[#seen + 1] = "before" return x * 0 end)
    local after = net:register_forward_hook(function(_, args, y) seen[#seen + 1] = args.n return y + 1 end)
    local y = net(sc.ones { 1, 3 })
    assert.same({ "before", 1 }, seen)
    assert.near(net.fc.bias:totable()[1] + 1, y:totable()[1][1], 1e-6)
    before.remove()
    after.remove()
    net(sc.ones { 1, 3 })
    assert.equal(2, #seen)
  end)

  it("has modes, and apply reaches everything", function()
    local net = nn.Sequential(nn.Dropout(0.9), nn.Sequential(nn.Dropout(0.9)))
    local x = sc.ones { 100 }
    assert.same(x:totable(), net:eval()(x):totable())
    assert.not_same(x:totable(), net:train()(x):totable())
    local n = 0
    net:apply(function() n = n + 1 end)
    assert.equal(4, n)
    local frozen = Net(2):requires_grad_(false)
    for p in frozen:parameters() do assert.is_false(p.requires_grad) end
    assert.equal(3, #frozen:parameters())
  end)

  it("describes itself with shapes, parameters and bytes", function()
    local text = tostring(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    assert.truthy(text:find("Linear(4, 8)", 1, true))
    assert.truthy(text:find("weight {8, 4}", 1, true))
    assert.truthy(text:find("58 parameters, 232 B", 1, true))
  end)

  it("refuses wrong arguments at the caller's line", function()
    for what, fn in pairs {
      ["there is no option"] = function() nn.Linear(2, 3, { biass = false }) end,
      ["out_features"] = function() nn.Linear(2) end,
      ["an integer"] = function() nn.Conv2d("a", 2, 3) end,
      ["divide"] = function() nn.MultiheadAttention(5, 2) end,
      ["groups"] = function() nn.Conv2d(3, 4, 3, { groups = 2 }) end,
      ["at least 1"] = function() nn.Conv2d(3, 4, 3, { stride = 0 }) end,
      ["probability"] = function() nn.Dropout(1.5) end,
    } do
      local ok, message = pcall(fn)
      assert.is_false(ok)
      assert(message:find(what, 1, true), message)
      assert(message:find("nn_spec.lua:%d+:"), message)
    end
  end)

  it("attends to nothing with zeros where a row is hidden altogether", function()
    local m = nn.MultiheadAttention(4, 2, { batch_first = true })
    local x = sc.randn({ 1, 2, 4 }, { requires_grad = true })
    local y, w = m(x, x, x, { attn_mask = sc.tensor { { true, true }, { false, true } } })
    assert.same({ 0.0, 0.0 }, w:totable()[1][1])
    y:sum():backward()
    assert.equal(0, x.grad:isnan():sum():item())
  end)
end)

describe("a shuffle", function()
  it("of channels deals the groups' members out in turn", function()
    local y = nn.ChannelShuffle(2)(sc.arange(1, 7):float():reshape(1, 6, 1))
    assert.same({ 1.0, 4.0, 2.0, 5.0, 3.0, 6.0 }, y:reshape { -1 }:totable())
    assert.has_error(function() nn.ChannelShuffle(4)(sc.ones { 1, 6, 1 }) end)
  end)
end)

describe("nn.init", function()
  local function spread(t) return t:mean():item(), t:std():item() end
  it("keeps to the bounds and spreads of the definitions", function()
    sc.manual_seed(0)
    local w = sc.empty { 200, 100 }
    for name, case in pairs {
      xavier_uniform_ = { {}, math.sqrt(2 / 300) }, xavier_normal_ = { {}, math.sqrt(2 / 300) },
      kaiming_uniform_ = { { { nonlinearity = "relu" } }, math.sqrt(2 / 100) },
      kaiming_normal_ = { { { mode = "fan_out", nonlinearity = "relu" } }, math.sqrt(2 / 200) },
      normal_ = { { 0, 0.5 }, 0.5 }, uniform_ = { { -1, 1 }, 1 / math.sqrt(3) }, trunc_normal_ = { { { std = 0.1 } }, 0.1 },
    } do
      nn.init[name](w, table.unpack(case[1]))
      local mean, std = spread(w)
      assert(math.abs(mean) < 0.02 * (1 + std), name)
      assert(math.abs(std / case[2] - 1) < 0.03, ("%s: %g, expected %g"):format(name, std, case[2]))
    end
    nn.init.trunc_normal_(w, 0, 1, -0.5, 0.25)
    assert(w:min():item() >= -0.5 and w:max():item() <= 0.25)
  end)
  it("makes rows orthonormal, columns sparse, convolutions identities", function()
    local q = nn.init.orthogonal_(sc.empty { 3, 2, 4 })
    local flat = q:reshape { 3, 8 }
    local product = flat:matmul(flat:t()):totable()
    for i = 1, 3 do for j = 1, 3 do assert.near(i == j and 1 or 0, product[i][j], 1e-5) end end
    local s = nn.init.sparse_(sc.empty { 10, 4 }, 0.3)
    assert.same({ 3, 3, 3, 3 }, s:eq(0):sum(1):totable())
    local conv = nn.Conv1d(2, 2, 3, { padding = 1, bias = false })
    nn.init.dirac_(conv.weight)
    local x = sc.randn { 1, 2, 5 }
    assert.same(x:totable(), conv(x):totable())
    assert.same({ { 1.0, 0.0, 0.0 }, { 0.0, 1.0, 0.0 } }, nn.init.eye_(sc.empty { 2, 3 }):totable())
    assert.near(math.sqrt(2 / 1.04), nn.init.calculate_gain("leaky_relu", 0.2), 1e-12)
  end)
  it("starts layers as PyTorch does", function()
    local w = nn.Linear(64, 400).weight
    assert(w:abs():max():item() <= 1 / 8)
    assert.near(1 / 8 / math.sqrt(3), w:detach():std():item(), 0.003)
    assert.same({ 0.0, 0.0, 0.0 }, nn.Embedding(4, 3, { padding_idx = 1 }).weight:totable()[1])
  end)
end)

describe("nn.utils", function()
  it("clips gradients by norm and by value", function()
    local a, b = sc.zeros({ 2 }, { requires_grad = true }), sc.zeros({ 1 }, { requires_grad = true })
    a.grad, b.grad = sc.tensor { 3.0, 0.0 }, sc.tensor { 4.0 }
    assert.near(5, nn.utils.clip_grad_norm_({ a, b }, 1.0):item(), 1e-6)
    assert.near(0.6, a.grad:totable()[1], 1e-5)
    assert.near(0.8, b.grad:totable()[1], 1e-5)
    nn.utils.clip_grad_norm_({ a, b }, 10.0)
    assert.near(0.6, a.grad:totable()[1], 1e-5)
    nn.utils.clip_grad_value_({ a, b }, 0.7)
    assert.near(0.7, b.grad:totable()[1], 1e-6)
  end)
  it("writes parameters into a vector and back", function()
    local net = nn.Linear(2, 3)
    local v = nn.utils.parameters_to_vector(net:parameters())
    assert.same({ 9 }, v.shape)
    nn.utils.vector_to_parameters(v:detach() * 2, net:parameters())
    assert.near(v:totable()[9] * 2, net.bias:totable()[3], 1e-6)
    assert.has_error(function() nn.utils.vector_to_parameters(sc.ones { 8 }, net:parameters()) end)
  end)
end)

describe("training", function()
  local function train(net, make, steps, lr)
    local opt = sc.optim.Adam(net:parameters(), { lr = lr or 0.01 })
    local first, last
    for k = 1, steps do
      local loss = make(k)
      opt:zero_grad()
      loss:backward()
      opt:step()
      first, last = first or loss:item(), loss:item()
    end
    return first, last
  end
  before_each(function() sc.manual_seed(5) end)

  it("teaches an MLP a checkerboard", function()
    local net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    local x = sc.rand { 128, 2 } * 2 - 1
    local t = (x:select(2, 1) * x:select(2, 2)):gt(0):to("int64") + 1
    local _, last = train(net, function() return F.cross_entropy(net(x), t) end, 150, 0.05)
    assert(last < 0.15, tostring(last))
  end)
  it("teaches a CNN to tell stripes", function()
    local net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 2))
    local x, t = sc.randn { 32, 1, 8, 8 } * 0.3, {}
    for i = 1, 32 do
      t[i] = i % 2 + 1
      x:select(1, i):select(1, 1):select(t[i], 4):add_(2)
    end
    t = sc.tensor(t)
    local _, last = train(net, function() return F.cross_entropy(net(x), t) end, 40)
    assert(last < 0.1, tostring(last))
  end)
  it("teaches an LSTM to remember the first input", function()
    local Net = nn.class("Remember")
    function Net:init() self.rnn, self.out = nn.LSTM(1, 12, { batch_first = true }), nn.Linear(12, 2) end
    function Net:forward(x) return self.out((self.rnn(x)):select(2, -1)) end
    local net = Net()
    local x = sc.randn { 32, 6, 1 }
    local t = x:select(2, 1):select(2, 1):gt(0):to("int64") + 1
    local _, last = train(net, function() return F.cross_entropy(net(x), t) end, 80, 0.03)
    assert(last < 0.15, tostring(last))
  end)
  it("teaches a transformer to find the marked token", function()
    local Net = nn.class("Find")
    function Net:init()
      self.embed = nn.Embedding(8, 16)
      self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, { dropout = 0.0, batch_first = true }), 1)
      self.out = nn.Linear(16, 4)
    end
    function Net:forward(x) return self.out(self.body(self.embed(x)):mean(2)) end
    local net = Net()
    local x = sc.randint(5, 9, { 64, 5 })
    local t = sc.randint(1, 5, { 64 })
    for i = 1, 64 do x[{ i, i % 5 + 1 }] = t[i] end
    local _, last = train(net, function() return F.cross_entropy(net(x), t) end, 60)
    assert(last < 0.2, tostring(last))
  end)
end)
