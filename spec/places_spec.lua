--- Where nodes come from, in the script's words: line, module, size names; and what is answered to slips.
local sc = require "sconce"
local nn, optim = sc.nn, sc.optim

local function refusal(f, ...)
  local ok, err = pcall(f, ...)
  return not ok and err or nil
end

local Block = nn.class("Block")
function Block:init() self.attn = nn.Linear(4, 4) end
function Block:forward(x) return self.attn(x):tanh() end

local Net = nn.class("Net")
function Net:init()
  self.fc1 = nn.Linear(4, 4)
  self.blocks = nn.ModuleList { Block(), Block() }
  self.more = { Block() }
end
function Net:forward(x)
  x = self.fc1(x)
  for _, b in ipairs(self.blocks) do x = b(x) end
  return self.more[1](x):log() -- the planted fault: NaN for negative numbers
end
local FAULT = debug.getinfo(1, "l").currentline - 2

local function trainer(net)
  local opt = optim.SGD(net:parameters(), { lr = 0.1 })
  return function(x)
    opt:zero_grad()
    local loss = net(x):sum()
    loss:backward()
    opt:step()
    return loss
  end
end

describe("a node", function()
  local net = Net()
  local step = sc.compile(trainer(net))
  step(sc.ones(2, 4))

  it("knows its module, forward and backward", function()
    local forward, backward = {}, {}
    for _, n in ipairs(step.last.graph:nodes()) do
      if n.module then (n.backward and backward or forward)[n.module] = n.line end
    end
    for _, path in ipairs { "fc1", "blocks.0.attn", "blocks.0", "blocks.1.attn", "more.0.attn" } do
      assert.truthy(forward[path], path)
      assert.equal(forward[path], backward[path], path) -- the line that made it, not that of loss:backward()
    end
    local text, dot = step.last.graph:text(), step.last.graph:dot()
    assert.truthy(text:find('in "blocks.0.attn" backward', 1, true))
    assert.truthy(dot:find("\\nin blocks.1.attn\\nbackward", 1, true))
  end)

  it("keeps it through fusion and rewrites: profiles sum up by module", function()
    step.last:profile(true)
    step(sc.ones(2, 4))
    local profile = step.last:profile()
    step.last:profile(false)
    local modules, sum = {}, 0
    for _, m in ipairs(profile.modules) do modules[m.module] = m.ns end
    for _, l in ipairs(profile.lines) do sum = sum + l.ns end
    assert.truthy(modules.fc1 and modules["blocks.0.attn"])
    assert.equal(profile.ns, sum)
    assert.truthy(tostring(profile):find("in blocks.1.attn", 1, true))
  end)

  it("that is the first to give NaN is named with its module, forward and backward", function()
    local log = nn.class("Log")
    function log:forward(x) return x:log() end -- luacheck: ignore self
    function log:init() self.w = nn.Parameter(sc.ones(2)) end
    local holder = nn.Sequential(nn.Identity(), log())
    local f = sc.compile(function(x) return holder(x) end, { passes = 0 })
    f(sc.ones(2))
    f.last:check_nan(true)
    local err = refusal(f, sc.tensor { -1.0, 1.0 })
    assert.truthy(err and err:find("result 1 of log holds NaN %(recorded at spec/places_spec.lua:%d+, in 1%)"), err)
    local root = nn.class("Root")
    function root:init() self.w = nn.Parameter(sc.zeros(2)) end
    function root:forward(x) return (self.w * x):sqrt() * 0.0 end
    local both = nn.Sequential(nn.Identity(), root())
    local g = sc.compile(function(x) return sc.grad(both(x):sum(), both[2].w) end, { passes = 0 })
    g(sc.ones(2))
    g.last:check_nan(true)
    err = refusal(g, sc.ones(2))
    assert.truthy(err and err:find("for the gradient of what was recorded at spec/places_spec.lua:%d+, in 1%)"), err)
  end)

  it("of a graph built by hand knows its module, and failing ops say it when they run", function()
    local table_of = nn.Sequential(nn.Embedding(3, 2), nn.Linear(2, 2))
    local g = sc.graph()
    g:output("y", table_of(g:input("ids", { "n" }, "int64")))
    local run = g:compile()
    assert.same({ 2, 2 }, run { ids = sc.tensor { 1, 3 } }.y.shape)
    local err = refusal(run, { ids = sc.tensor { 1, 4 } })
    assert.truthy(err and err:find("in 0)", 1, true) and err:find("places_spec.lua", 1, true), err)
  end)

  it("is stopped at by line, by module, and step by step from there", function()
    local f = sc.compile(function(x) return net(x) end, { passes = 0 })
    f(sc.ones(2, 4))
    local seen = {}
    f.last:break_at("fc1", function(node)
      seen[#seen + 1] = node.module
      return #seen < 4 and "step" or nil
    end)
    f(sc.ones(2, 4))
    assert.same({ "fc1", "blocks.0.attn", "blocks.0", "blocks.1.attn" }, seen)
    f.last:break_at("fc1", nil)
    local lines = {}
    f.last:break_at("places_spec.lua:" .. FAULT, function(node, inputs) lines[#lines + 1] = { node.op, inputs[1].shape } end)
    f(sc.ones(2, 4))
    assert.equal("log", lines[#lines][1])
    assert.truthy(refusal(f.last.break_at, f.last, "fc2", print):find("fc1", 1, true))
    assert.truthy(refusal(f.last.break_at, f.last, "places_spec.lua:1", print):find("places_spec.lua:" .. FAULT, 1, true))
  end)
end)

describe("a symbolic size", function()
  it("is shown by its name: tensors, graphs, errors", function()
    local g = sc.graph()
    local x = g:input("x", { "batch", 4 })
    assert.equal("tensor(<symbolic>, size={batch, 4})", tostring(x))
    assert.truthy(tostring(sc.cat({ x, x }, 1)):find("{2*batch, 4}", 1, true) or tostring(sc.cat({ x, x }, 1)):find("batch", 1, true))
    local err = refusal(function() return x + sc.ones(3, 3) end)
    assert.truthy(err:find("{batch, 4}", 1, true), err)
    g:output("y", x * 2.0)
    assert.equal("graph of 3 nodes: x float32 {batch, 4} -> y", (tostring(g):gsub("of %d+ nodes", "of 3 nodes")))
    for _, text in ipairs { g:text(), g:dot(), tostring(g:session()) } do
      assert.truthy(text:find("batch", 1, true))
      assert.is_nil(text:find("100000", 1, true))
    end
  end)
end)

describe("a size that a graph leaves open", function()
  it("is a value: it takes part in arithmetic and in shapes, and comes out right for each set of sizes", function()
    local g = sc.graph()
    local x = g:input("x", { "batch", "time", 8 })
    local B, T, E = x:size(1), x:size(2), x:size(3)
    assert.equal(8, E)
    assert.same({ "batch", "time", "{batch, time, 8}", "8*batch*time", "batch*time", "2*batch+1", "batch", "n = batch" },
      { tostring(B), tostring(T), tostring(x.shape), tostring(x:numel()), tostring(B * T), tostring(2 * B + 1), tostring((B * 8) // 8),
        "n = " .. B })
    assert.equal(0, B - B)
    assert.is_true(B == #x and B ~= T and x.shape == (x * 2.0).shape)
    g:output("heads", x:view(B, T, 2, E // 2):permute(1, 3, 2, 4):reshape { B * 2, T, -1 })
    g:output("sum", B * T * E * x:mean())
    g:output("by_hand", x:sum() / x:numel())
    g:output("zeros", sc.zeros({ B, 3 }) + 1.0)
    g:output("first", x[{ { 1, B }, 1 }])
    local run = g:compile()
    for _, s in ipairs { { 3, 5 }, { 2, 4 }, { 1, 1 } } do
      local v = sc.randn(s[1], s[2], 8)
      local out = run { x = v }
      assert.same(v:view(s[1], s[2], 2, 4):permute(1, 3, 2, 4):reshape { s[1] * 2, s[2], -1 }:totable(), out.heads:totable())
      assert.near(v:sum():item(), out.sum:item(), 1e-4)
      assert.near(v:mean():item(), out.by_hand:item(), 1e-5)
      assert.same({ s[1], 3 }, out.zeros.shape)
      assert.same(v:select(2, 1):totable(), out.first:totable())
    end
  end)

  local MISUSES = {
    function(n) return n < 3 end, function(n) return 3 <= n end, function(n) return n / 2 end, function(n) return n // 2 end,
    function(n) return n % 2 end, function(n) return 1.5 * n end, function(n) return n ^ 2 end, function(n) return n * n * n * n * n * n * n * n end,
    function(n) local s = 0 for k = 1, n do s = s + k end return s end, function(n) return math.min(n, 2) end, function(n) return ("%d"):format(n) end,
    function(n) return ("x"):rep(n) end,
  }
  for i, misuse in ipairs(MISUSES) do
    it("raises where a number is needed, " .. i, function()
      local g = sc.graph()
      local err = refusal(misuse, g:input("x", { "batch", 4 }):size(1))
      assert.truthy(err and err:find("places_spec.lua", 1, true), err)
    end)
  end
end)

describe("a slip", function()
  local g = sc.graph()
  local x = g:input("images", { "batch", 4 })
  local t = g:input("labels", { "batch" }, "int64")
  g:output("logits", x * 2.0)
  g:output("loss", (x:sum(2) * t):sum())
  local run, session = g:compile(), g:session()
  local good = { images = sc.ones(2, 4), labels = sc.tensor { 1, 2 } }
  local CASES = {
    { "a method of a graph", function() g:compil() end, "did you mean compile?" },
    { "a method of a run", function() run:profil() end, "did you mean profile?" },
    { "a method of a session", function() session:runn {} end, "did you mean run?" },
    { "a method of a job", function() run:clone():start(good):advanse(1) end, "did you mean advance?" },
    { "a method of a compiled function", function() sc.compile(print):explian() end, "did you mean explain?" },
    { "an option", function() sc.compile(print, { keep_grad = true }) end, "the options are keep_grads" },
    { "a missing input", function() run { images = good.images } end, "input labels is missing" },
    { "an unknown input", function() run { images = good.images, label = good.labels } end, "did you mean labels?" },
    { "another dtype", function() run { images = good.images, labels = sc.ones(2) } end,
      "input labels: expected int64 of shape {batch}, got float32 of shape {2}" },
    { "another shape", function() run { images = sc.ones(2, 5), labels = good.labels } end,
      "input images: expected float32 of shape {batch, 4}, got float32 of shape {2, 5}" },
    { "sizes that disagree", function() run { images = sc.ones(3, 4), labels = good.labels } end,
      'size "batch" is 3 in input images and 2 in input labels' },
    { "no tensor", function() run { images = 3, labels = good.labels } end, "input images: expected a tensor, got the number 3" },
    { "no table", function() run(3) end, "expected a table of inputs, got the number 3" },
    { "a fetch", function() session:run("logit", good) end, "did you mean logits?" },
    { "a feed of a session", function() session:run("logits", { image = good.images }) end, "did you mean images?" },
  }
  for _, case in ipairs(CASES) do
    it("is answered at the user's line: " .. case[1], function()
      local err = refusal(case[2])
      assert.truthy(err and err:find(case[3], 1, true), err)
      assert.truthy(err:find("^spec/places_spec.lua:%d+: "), err)
      assert.same({ 2, 4 }, run(good).logits.shape)
    end)
  end
end)

describe("a session", function()
  it("computes what the fetch needs: other inputs need not be fed, any value may be, updates wait until they are asked for", function()
    local w = sc.tensor({ 1.0, 2.0 }, { requires_grad = true })
    local opt = optim.SGD({ w }, { lr = 1.0 })
    local g = sc.graph()
    local x, t = g:input("x", { "n", 2 }), g:input("t", { "n" })
    local y = x:matmul(w)
    local loss = ((y - t) ^ 2):sum()
    loss:backward()
    opt:step()
    g:output("y", y)
    g:output("loss", loss)
    local s = g:session()
    local ones = sc.ones(1, 2)
    assert.same({ 3.0 }, s:run(y, { x = ones }):totable())
    assert.equal(4.0, s:run("loss", { x = ones, t = sc.tensor { 1.0 } }):item())
    assert.equal(4.0, s:run(loss, { [y] = sc.tensor { 3.0 }, t = sc.tensor { 1.0 } }):item())
    assert.equal(9.0, s:run("loss", { y = sc.tensor { 3.0 }, t = sc.tensor { 0.0 } }):item())
    assert.same({ 1.0, 2.0 }, w:totable())
    local l, yy = s:run({ loss, "y" }, { x = ones, t = sc.tensor { 1.0 } }, { updates = true })
    assert.equal(4.0, l:item())
    assert.same({ 3.0 }, yy:totable())
    assert.same({ -3.0, -2.0 }, w:totable()) -- the gradient is 2 * (3 - 1) of both
    assert.same({ -5.0, -5.0 }, s:run(y, { x = sc.ones(2, 2) }):totable())
  end)
end)
