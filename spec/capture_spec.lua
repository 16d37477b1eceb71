--- What a compiled function captures: what is guarded, what never retraces, what is refused.
local sc = require "sconce"
local nn, F, optim = sc.nn, sc.functional, sc.optim

local function traces(f) return #f:runs() end

--- Calls f and gives an error's text, or nil.
local function refusal(f, ...)
  local ok, err = pcall(f, ...)
  return not ok and err or nil
end

local Net = nn.class("CaptureNet")
local factor = 2.0
function Net:init()
  self.fc = nn.Linear(4, 8)
  self.drop = nn.Dropout(0.5)
  self.blocks = nn.ModuleList { nn.Linear(8, 8), nn.Linear(8, 3) }
  self.sizes = { 1, 2 }
  self.p = 0.25
end
function Net:forward(x)
  x = self.drop(self.fc(x))
  for _, block in ipairs(self.blocks) do x = block(x):tanh() end
  return x * self.p * factor * self.sizes[2]
end

local x, t = sc.randn(5, 4), sc.tensor { 1, 2, 3, 1, 2 }

local function trainer(net, opt)
  return function(a, b)
    opt:zero_grad()
    local loss = F.cross_entropy(net(a), b)
    loss:backward()
    opt:step()
    return loss
  end
end

describe("a capture", function()
  local net = Net():eval()
  local f = sc.compile(function(a) return net(a) end)
  local CHANGES = {
    { "a mode", function() net.fc:train() end, "field 'net.fc.training' was false and is true" },
    { "a number in a field", function() net.p = 0.5 end, "field 'net.p' was 0.25 and is 0.5" },
    { "a number that a method captures", function() factor = 3.0 end, "upvalue 'factor' was 2.0 and is 3.0" },
    { "a number in a table in a field", function() net.sizes[2] = 5 end, "field 'net.sizes[2]' was 2 and is 5" },
    { "a layer put in another's place", function() net.fc = nn.Linear(4, 8) end, "field 'net.fc' was a Linear and is another" },
    { "a layer of a list", function() net.blocks[1] = nn.Linear(8, 8) end, "field 'net.blocks[1]' was a Linear and is another" },
    { "a layer appended", function() net.blocks:append(nn.Linear(3, 3)) end, "net.blocks" },
    { "a parameter", function() net.fc.weight = nn.Parameter(sc.ones(8, 4)) end, "net.fc.weight" },
    { "a hook", function() net.fc:register_forward_hook(function(_, _, y) return y * 2.0 end) end, "_hooked" },
    { "a method", function()
      local before = Net.forward
      function Net:forward(a) return before(self, a) * 2.0 end
    end, "net.forward" },
    { "a wish for gradients", function() net.fc.bias.requires_grad = false end, "asks for gradients now, or no longer" },
  }
  for _, case in ipairs(CHANGES) do
    it("that has changed makes one more trace, with the same numbers as the function: " .. case[1], function()
      f(x)
      local before = traces(f)
      case[2]()
      assert.same(net(x):totable(), f(x):totable())
      f(x)
      assert.equal(before + 1, traces(f))
      assert.truthy(f:explain():find(case[3], 1, true), f:explain())
    end)
  end

  it("that is as it was again finds its trace", function()
    local layer = nn.Dropout(0.5)
    local g = sc.compile(function(a) return layer(a) end)
    for _ = 1, 3 do
      layer:train()
      assert.is_true(g(sc.ones(1000)):eq(0.0):any():item())
      layer:eval()
      assert.is_false(g(sc.ones(1000)):eq(0.0):any():item())
    end
    assert.equal(2, traces(g))
  end)

  it("follows a module to another dtype", function()
    local layer = nn.Linear(2, 2)
    local g = sc.compile(function(a) return layer(a) end)
    g(sc.ones(1, 2))
    layer:double()
    assert.equal("float64", g(sc.ones({ 1, 2 }, { dtype = "float64" })).dtype)
    assert.truthy(refusal(g, sc.ones(1, 2)))
  end)

  it("stays a module: printed, walked, saved, copied, extended", function()
    local list = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    local before, shown = list:state_dict(), tostring(list)
    sc.compile(function(a) return list(a) end)(sc.ones(1, 2))
    assert.equal(shown, tostring(list))
    assert.equal(2, #list:parameters())
    assert.equal(2, list:len())
    assert.same(before["0.weight"]:totable(), list:state_dict()["0.weight"]:totable())
    local copy = list:clone()
    list:append(nn.Linear(3, 1)):insert(1, nn.Identity())
    assert.same({ 4, 2 }, { list:len(), copy:len() })
    assert.same({ 1, 1 }, list(sc.ones(1, 2)).shape)
    local names = {}
    for k in pairs(copy) do names[k] = true end
    assert.is_true(names[1] and names[2])
    local loaded = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    loaded:load_state_dict(copy:state_dict())
    assert.same(copy(sc.ones(1, 2)):totable(), loaded(sc.ones(1, 2)):totable())
  end)
end)

describe("an optimiser's numbers", function()
  local RULES = {
    SGD = { lr = 0.1, momentum = 0.9, weight_decay = 0.01 }, Adam = { lr = 0.01 }, AdamW = { lr = 0.01 }, RMSprop = { lr = 0.01, momentum = 0.5 },
    Adagrad = { lr = 0.1, lr_decay = 0.1 }, Adadelta = { lr = 1.0 }, Adamax = { lr = 0.01 }, NAdam = { lr = 0.01 }, RAdam = { lr = 0.01 },
  }
  for name, options in pairs(RULES) do
    it("may change at every step: one trace, the same bits as eager: " .. name, function()
      local function run(compiled)
        sc.manual_seed(5)
        local net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        local opt = optim[name](net:parameters(), options)
        local schedule = optim.lr_scheduler.ExponentialLR(opt, 0.8)
        local fn = trainer(net, opt)
        local step = compiled and sc.compile(fn, { passes = 0 }) or fn
        for i = 1, 6 do
          step(x, t)
          schedule:step()
          local group = opt.param_groups[1]
          if i == 2 then group.weight_decay = 0.05 end
          if i == 3 and group.betas then group.betas = { 0.8, 0.99 } end
          if i == 4 and group.eps then group.eps = 1e-3 end
        end
        return net:state_dict(), compiled and traces(step), opt:state_dict()
      end
      local eager, _, eager_state = run(false)
      local static, n, static_state = run(true)
      assert.equal(1, n)
      for key, v in pairs(eager) do assert.equal(v:tostring_bytes(), static[key]:tostring_bytes(), key) end
      assert.same(eager_state.param_groups, static_state.param_groups)
    end)
  end

  it("are part of the trace where they decide what is recorded; so are groups and loaded states", function()
    local net = nn.Linear(4, 3)
    local opt = optim.SGD(net:parameters(), { lr = 0.1 })
    local step = sc.compile(trainer(net, opt))
    step(x, t)
    opt.param_groups[1].momentum = 0.9
    step(x, t)
    assert.equal(2, traces(step))
    opt.param_groups[1].momentum = 0.8
    step(x, t)
    assert.equal(2, traces(step))
    local extra = nn.Parameter(sc.ones(3))
    opt:add_param_group { params = { extra }, lr = 1.0 }
    step(x, t)
    assert.equal(3, traces(step))
    opt:load_state_dict(opt:state_dict())
    step(x, t)
    assert.equal(4, traces(step))
    assert.truthy(step:explain():find("opt.state", 1, true))
  end)

  it("may be tensors, which are read when the step runs", function()
    local w, rate = sc.tensor({ 1.0, 1.0 }, { requires_grad = true }), sc.tensor(0.5, { dtype = "float64" })
    local opt = optim.SGD({ w }, { lr = rate })
    local step = sc.compile(function()
      opt:zero_grad()
      w:sum():backward()
      opt:step()
    end)
    step()
    assert.same({ 0.5, 0.5 }, w:totable())
    rate:fill_(1.0)
    step()
    assert.same({ -0.5, -0.5 }, w:totable())
    assert.equal(1, traces(step))
  end)

  it("cannot be set by the function itself", function()
    local net = nn.Linear(4, 3)
    local opt = optim.SGD(net:parameters(), { lr = 0.1 })
    local schedule = optim.lr_scheduler.StepLR(opt, { step_size = 1 })
    local fn = trainer(net, opt)
    local err = refusal(sc.compile(function(a, b)
      local loss = fn(a, b)
      schedule:step()
      return loss
    end), x, t)
    assert.truthy(err and err:find("lr is set while the function", 1, true), err)
    assert.equal(0.1, opt.param_groups[1].lr)
  end)

  it("reach a step that is built by hand", function()
    local w = sc.tensor({ 1.0, 1.0 }, { requires_grad = true })
    local opt = optim.SGD({ w }, { lr = 0.5 })
    local g = sc.graph()
    local loss = (g:input("v", { 2 }) * w):sum()
    loss:backward()
    opt:step()
    g:output("loss", loss)
    local run = g:compile()
    run { v = sc.tensor { 1.0, 2.0 } }
    assert.same({ 0.5, 0.0 }, w:totable())
    opt.param_groups[1].lr = 1.0
    run { v = sc.tensor { 1.0, 2.0 } }
    assert.same({ -0.5, -2.0 }, w:totable())
  end)
end)

describe("what a compiled function must not do", function()
  it("is to keep what it computes outside: upvalues and fields stay as they were", function()
    local kept, holder, net = sc.zeros(2), {}, nn.Linear(2, 2)
    local CASES = {
      { "upvalue 'kept'", function(a) kept = a + 1.0 return a end },
      { "field 'holder.h'", function(a) holder.h = a * 2.0 return a end },
      { "field 'net.last'", function(a) net.last = net(a) return a end },
    }
    for _, case in ipairs(CASES) do
      local err = refusal(sc.compile(case[2]), sc.ones(1, 2))
      assert.truthy(err and err:find("capture_spec.lua:%d+: compile: .*" .. case[1]), err)
    end
    assert.same({ 0.0, 0.0 }, kept:totable())
    assert.is_nil(holder.h)
    assert.is_nil(net.last)
  end)

  it("is to compute with a number that it changes; a mere count is allowed", function()
    local n, calls = 1, 0
    local err = refusal(sc.compile(function(a) n = n + 1 return a * n end), sc.ones(2))
    assert.truthy(err and err:find("changes upvalue 'n' (from 1 to 2)", 1, true), err)
    assert.equal(1, n)
    local f = sc.compile(function(a) calls = calls + 1 return a * 2.0 end)
    for _ = 1, 3 do assert.same({ 2.0 }, f(sc.ones(1)):totable()) end
    assert.equal(1, calls)
    calls = 0
    f(sc.ones(1))
    assert.equal(0, calls)
  end)

  it("is to capture more than can be watched, unless it is declared constant", function()
    local words = {}
    for i = 1, 3000 do words[i] = i end
    local f = sc.compile(function(a) return a * words[3] end)
    local err = refusal(f, sc.ones(1))
    assert.truthy(err and err:find("upvalue 'words' has over 1000 fields; sc.constant(words)", 1, true), err)
    sc.constant(words)
    assert.same({ 3.0 }, f(sc.ones(1)):totable())
    local keys = 0
    for _ in pairs(words) do keys = keys + 1 end
    assert.equal(3000, keys)
  end)

  it("is to yield, raise or be traced without end; afterwards all is usable", function()
    local n = 2.0
    local yields = sc.compile(function(a) coroutine.yield() return a end)
    local err = refusal(coroutine.wrap(function() yields(sc.ones(1)) end))
    assert.truthy(err and err:find("the function yields while it is traced", 1, true), err)
    local raises = sc.compile(function(a) if n == 2.0 then error({ code = 7 }) end return a * n end)
    local ok, value = pcall(raises, sc.ones(1))
    assert.is_false(ok)
    assert.equal(7, value.code)
    assert.is_false(sc.core.is_tracing())
    n = 3.0
    assert.same({ 3.0 }, raises(sc.ones(1)):totable())
    local endless = sc.compile(function(a, k) return a * k end, { limit = 5 })
    for k = 1, 5 do endless(sc.ones(1), k) end
    err = refusal(endless, sc.ones(1), 6)
    assert.truthy(err and err:find("traced 5 times", 1, true) and err:find("argument 2 was 5 and is 6", 1, true), err)
    assert.same({ 4.0 }, endless(sc.ones(1), 4):totable())
  end)
end)

describe("an argument that is captured as well", function()
  it("is one tensor when one of the two is written to, whatever was traced before", function()
    for first = 1, 3 do
      local s = sc.tensor { 1.0, 2.0, 3.0 }
      local f = sc.compile(function(a)
        s:add_(1.0)
        a:mul_(2.0)
        return a + 0
      end)
      local other = sc.tensor { 5.0, 5.0, 5.0 }
      local calls = {
        function() return f(other):totable(), { 10, 10, 10 } end,
        function() return f(s):totable(), { 4, 6, 8 } end,
        function() return f(s:narrow(1, 2, 2)):totable(), { 6, 8 } end,
      }
      local got, want = calls[first]()
      assert.same(want, got)
      s:copy_(sc.tensor { 1.0, 2.0, 3.0 })
      other:fill_(5.0)
      for i = 1, 3 do
        got, want = calls[i]()
        assert.same(want, got)
        s:copy_(sc.tensor { 1.0, 2.0, 3.0 })
        other:fill_(5.0)
      end
    end
  end)

  it("keeps its gradient", function()
    local w = sc.tensor({ 2.0, 3.0 }, { requires_grad = true })
    local n = sc.zeros(1)
    local f = sc.compile(function(a, k)
      k:add_(1.0)
      return (a * w * (n + 1)):sum()
    end)
    f(w, n):backward()
    assert.same({ 8, 12 }, w.grad:totable())
    assert.same({ 1 }, n:totable())
  end)
end)

-- name, the function; each call makes its tensors anew
local MADE = {
  { "written to", function(a)
    local sum = sc.tensor { 0.0, 0.0 }
    for _ = 1, 3 do sum:add_(a) end
    return sum * 2
  end },
  { "written to and returned", function(a)
    local sum = sc.tensor { 0.0, 0.0 }
    sum:add_(a)
    return sum
  end },
  { "returned", function(a) return sc.tensor { 1.5, 2.5 }, a end },
  { "returned as a view", function(a) return sc.tensor({ 1.5, 2.5 }):view(2, 1), a end },
  { "written to through views", function(a)
    local m = sc.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } }
    m[1]:add_(a)
    m:t()[2]:zero_()
    return m:sum(1)
  end },
  { "beside constants that are only read", function(a)
    local sum, at = sc.tensor { 0.0, 0.0 }, sc.tensor { 2, 1 }
    sum:index_add_(1, at, a * sc.tensor { 1.0, 2.0 })
    return sum
  end },
  { "of bytes", function(a)
    local v = sc.from_string(string.pack("<ff", 1, 2), { 2 }, "float32")
    v:mul_(a + 1)
    return v
  end },
}

describe("a tensor that the function makes of a table is another at each call:", function()
  for _, row in ipairs(MADE) do
    it(row[1], function()
      local f = sc.compile(row[2])
      for _ = 1, 3 do
        local want, got = row[2](sc.ones(2)), f(sc.ones(2))
        assert.same(want:totable(), got:totable())
        got:fill_(9.0)
      end
    end)
  end

  it("a copy of a captured one", function()
    local w = sc.tensor { 1.0, 2.0 }
    local f = sc.compile(function(a) return a + sc.tensor(w), sc.tensor(a, { dtype = "int64" }) end)
    assert.same({ 1, 2 }, f(sc.zeros(2)):totable())
    w:add_(10.0)
    local y, k = f(sc.zeros(2))
    assert.same({ 11, 12 }, y:totable())
    assert.equal("int64", k.dtype)
  end)
end)

describe("the gradient that a parameter has from before", function()
  local function leaf() return sc.tensor({ 1.0 }, { requires_grad = true }) end
  --- What each call gives, line by line and compiled.
  local function alike(make)
    local want, got = make(function(f) return f end), make(function(f) return sc.compile(f, { keep_grads = true }) end)
    assert.same(want, got)
  end

  it("is the one of the call where it is read", function()
    alike(function(compile)
      local p, out = leaf(), {}
      local f = compile(function(a) return p.grad and a + p.grad or a end)
      out[1] = f(sc.ones(1)):item()
      for i = 1, 3 do
        p.grad = sc.full({ 1 }, i + 0.0)
        out[#out + 1] = f(sc.ones(1)):item()
      end
      p.grad:add_(5)
      out[#out + 1] = f(sc.ones(1)):item()
      p.grad = nil
      out[#out + 1] = f(sc.ones(1)):item()
      return out
    end)
  end)

  it("is added to where the function does not clear it", function()
    alike(function(compile)
      local p, out = leaf(), {}
      local opt = optim.SGD({ p }, { lr = 0.125 })
      local f = compile(function(a)
        (p * a):sum():backward()
        opt:step()
        return a
      end)
      for i = 1, 5 do
        f(sc.full({ 1 }, i))
        out[#out + 1], out[#out + 2] = p:detach():item(), p.grad:item()
        if i == 3 then p.grad = nil end
      end
      return out
    end)
  end)

  it("is stepped with when it comes from outside", function()
    alike(function(compile)
      local p, out = leaf(), {}
      local opt = optim.SGD({ p }, { lr = 0.125 })
      local f = compile(function() opt:step() end)
      for i = 1, 3 do
        p.grad = sc.full({ 1 }, i + 0.0)
        f()
        out[i] = p:detach():item()
      end
      return out
    end)
  end)

  it("does not matter to a step that clears it first", function()
    local p = leaf()
    local opt = optim.SGD({ p }, { lr = 0.125 })
    local f = sc.compile(function(a)
      opt:zero_grad();
      (p * a):sum():backward()
      opt:step()
      return a
    end, { keep_grads = true })
    for i = 1, 4 do f(sc.full({ 1 }, i)) end
    assert.equal(1, traces(f))
    assert.same({ 4 }, p.grad:totable())
  end)
end)

describe("a value that an object has of its class", function()
  it("is guarded, however far up it stands", function()
    local A, B = { k = 2.0 }, {}
    A.__index, B.__index = A, B
    setmetatable(B, A)
    local o = setmetatable({}, B)
    local f = sc.compile(function(a) return a * o.k end)
    local function now() return f(sc.ones(1)):item() end
    assert.equal(2, now())
    A.k = 3.0
    assert.equal(3, now())
    A.k = sc.tensor { 4.0 }
    assert.equal(4, now())
    A.k:add_(1.0)
    assert.equal(5, now())
    B.k = 6.0
    assert.equal(6, now())
    o.k = 7.0
    assert.equal(7, now())
  end)

  it("also of a class of modules", function()
    local Scaled = nn.class("CaptureScaled")
    Scaled.k = 2.0
    function Scaled:forward(a) return a * self.k end
    local m = Scaled()
    local f = sc.compile(function(a) return m(a) end)
    assert.equal(2, f(sc.ones(1)):item())
    Scaled.k = 3.0
    assert.equal(3, f(sc.ones(1)):item())
  end)
end)

describe("compiled functions", function()
  it("call each other and themselves, and see what the inner one captures", function()
    local k = 2.0
    local inner = sc.compile(function(a) return a * k end)
    local outer = sc.compile(function(a) return inner(a) + 1.0 end)
    assert.same({ 3.0 }, outer(sc.ones(1)):totable())
    k = 5.0
    assert.same({ 6.0 }, outer(sc.ones(1)):totable())
    local power
    power = sc.compile(function(a, n) return n == 0 and a or power(a, n - 1) * 2.0 end)
    assert.same({ 8.0 }, power(sc.ones(1), 3):totable())
    assert.equal(1, #power:runs())
  end)

  it("see what functions capture that run in a coroutine", function()
    local k = 2.0
    local function source() for _ = 1, 2 do coroutine.yield(k) end end
    local f = sc.compile(function(a)
      for times in coroutine.wrap(source) do a = a * times end
      return a
    end)
    assert.same({ 4.0 }, f(sc.ones(1)):totable())
    k = 3.0
    assert.same({ 9.0 }, f(sc.ones(1)):totable())
  end)

  it("leave a debugger's hook in place", function()
    local lines = 0
    debug.sethook(function() lines = lines + 1 end, "l")
    local f = sc.compile(function(a)
      local b = a * 2.0
      return b
    end)
    f(sc.ones(1))
    local hook, mask = debug.gethook()
    debug.sethook()
    assert.equal("l", mask)
    assert.equal("function", type(hook))
    assert.is_true(lines > 3)
  end)

  it("take a tensor whose values decide sizes by value", function()
    local f = sc.compile(function(a, points) return table.unpack(a:tensor_split(points)) end)
    local v = sc.arange(6.0)
    for _, points in ipairs { { 3 }, { 5 }, { 3 } } do
      local a, b = f(v, sc.tensor(points))
      assert.same({ points[1] - 1, 7 - points[1] }, { a:numel(), b:numel() })
    end
    assert.equal(2, #f:runs())
  end)

  it("look at eight captured values in a fraction of a microsecond", function()
    local a, b, c, d, e, g, h, i = sc.ones(2), sc.ones(2), 1.5, true, "relu", 3, sc.ones(2), 2.0
    local f = sc.compile(function(v) return d and e == "relu" and v * c + a + b * g + h * i end)
    f(sc.ones(2))
    local guard, best = f.last.guard, math.huge
    for _ = 1, 20 do
      local begun = sc.core.now()
      for _ = 1, 1000 do sc.core.holds(guard) end
      best = math.min(best, (sc.core.now() - begun) / 1000)
    end
    assert.is_true(best < 1e-6, best) -- measured: 0.17 us, of which half is the call from Lua
  end)

  it("ask nothing of Lua where nothing changed: as many bytes at the end of many calls as at the beginning", function()
    local a, b, c, d, e, g, h, i = sc.ones(2), sc.ones(2), 1.5, true, "relu", 3, { x = 1.0 }, nn.Linear(2, 2):requires_grad_(false)
    local f = sc.compile(function(v) return d and e == "relu" and i(v * c + a + b * g * h.x):sum() end)
    f(sc.ones(1, 2))
    local v = sc.ones(1, 2)
    collectgarbage()
    collectgarbage("stop")
    local before = collectgarbage("count")
    for _ = 1, 100 do f(v) end
    local each = (collectgarbage("count") - before) * 1024 / 100
    collectgarbage("restart")
    assert.is_true(each < 120, each) -- the box of the result
  end)
end)
