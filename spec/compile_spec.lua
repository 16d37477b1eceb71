local sc = require "sconce"

local function values(...)
  local list = table.pack(...)
  for i = 1, list.n do list[i] = sc.is_tensor(list[i]) and list[i]:totable() or list[i] end
  return list
end

describe("a compiled function", function()
  it("gives what the function gives, from one trace for the same sizes", function()
    local calls = 0
    local f = sc.compile(function(x)
      calls = calls + 0 -- reads only: a captured number that does not change
      return x * 2.0 + 1.0, x:tanh():sum()
    end)
    for _, t in ipairs { { 1.0, 2.0 }, { -3.0, 0.5 } } do
      local x = sc.tensor(t)
      local a, b = f(x)
      assert.same((x * 2.0 + 1.0):totable(), a:totable())
      assert.near(x:tanh():sum():item(), b:item(), 1e-6)
    end
    assert.equal(1, #f:runs())
    assert.near(9.0, f(sc.tensor { 1.0, 2.0, 4.0 }):totable()[3], 1e-6)
    assert.equal(2, #f:runs())
    assert.truthy(f:explain():find("trace 2: argument 1 was a float32 tensor of shape {2} and is a float32 tensor of shape {3}", 1, true))
  end)

  it("trains what it captures, and leaves gradients as they were", function()
    local function make()
      local w = sc.tensor({ { 1.0, 0.5 }, { 0.25, -2.0 } }, { requires_grad = true })
      return w, function(x)
        local loss = (x:matmul(w) + 1.0):tanh():sum()
        w.grad = nil
        loss:backward()
        local g = w.grad
        sc.no_grad(function() w:sub_(g * 0.1) end)
        return loss
      end
    end
    local x = sc.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } }
    local we, eager = make()
    local wc, step = make()
    local compiled = sc.compile(step)
    for _ = 1, 5 do
      assert.near(eager(x):item(), compiled(x):item(), 1e-6)
      for i, row in ipairs(we:totable()) do
        for j, v in ipairs(row) do assert.near(v, wc:totable()[i][j], 1e-6) end
      end
    end
    assert.is_nil(wc.grad)
  end)

  it("keeps the order of reads and in-place writes", function()
    local f = sc.compile(function(x)
      local y = x:exp()
      x:exp_()
      return y
    end)
    local x = sc.tensor { 0.0, 1.0 }
    local y = f(x)
    assert.same(y:totable(), x:totable())
    assert.equal(1.0, x:totable()[1])
  end)

  it("sees that two arguments share memory", function()
    local f = sc.compile(function(x, y)
      x:add_(1.0)
      return x * y
    end)
    local a, b = sc.tensor { 1.0, 2.0 }, sc.tensor { 10.0, 10.0 }
    assert.same({ 20.0, 30.0 }, f(a, b):totable())
    assert.same({ 9.0, 16.0 }, f(a, a):totable())
    assert.same({ 3.0, 4.0 }, a:totable())
  end)

  it("hands out results that later calls leave alone", function()
    local f = sc.compile(function(x) return x + 1.0 end)
    local keep = {}
    for i = 1, 4 do keep[i] = f(sc.tensor { i + 0.0 }) end
    for i = 1, 4 do assert.same({ i + 1.0 }, keep[i]:totable()) end
  end)

  it("asks nothing of the host's allocator once it is warm", function()
    local w = sc.full({ 64, 64 }, 0.5)
    local f = sc.compile(function(x) return ((x:matmul(w) + 1.0):tanh() * 0.5):matmul(w):sum() end)
    local x = sc.full({ 64, 64 }, 0.25)
    for _ = 1, 3 do f(x):free() end -- free: what waits for the collector is no business of the run
    local before = sc.stats().allocations
    for _ = 1, 50 do f(x):free() end
    assert.equal(before, sc.stats().allocations)
  end)

  for what, read in pairs { item = function(x) return x:sum():item() end, totable = function(x) return #x:totable() end, tostring = tostring,
    ["=="] = function(x) return x == x * 1 end, [".."] = function(x) return "x is " .. x end } do
    it("refuses to read a value, naming the line: " .. what, function()
      local f = sc.compile(function(x)
        if read(x) then return x end
        return -x
      end)
      local ok, err = pcall(f, sc.tensor { 1.0 })
      assert.is_false(ok)
      assert.truthy(err:find("compile_spec.lua:%d+: " .. what), err)
      assert.is_false(sc.core.is_tracing())
    end)
  end

  local g = sc.Generator(1)
  for what, call in pairs { manual_seed = function() sc.manual_seed(1) end, get_rng_state = sc.get_rng_state, Generator = function() sc.Generator(2) end,
    set_rng_state = function() sc.set_rng_state(("x"):rep(16)) end, ["generator:manual_seed"] = function() g:manual_seed(2) end,
    ["generator:get_state"] = function() g:get_state() end, ["generator:set_state"] = function() g:set_state(("x"):rep(16)) end } do
    it("refuses what would happen once, when it is traced: " .. what, function()
      local before = g:get_state():tostring_bytes() .. sc.get_rng_state():tostring_bytes()
      local f = sc.compile(function()
        call()
        return sc.rand(3)
      end)
      local ok, err = pcall(f)
      assert.is_false(ok)
      assert.truthy(err:find("compile_spec.lua:%d+: " .. what:match("%w*_?%w*_?%w+$") .. ": would happen once"), err)
      assert.equal(before, g:get_state():tostring_bytes() .. sc.get_rng_state():tostring_bytes())
    end)
  end

  it("traces again when something it captures changes", function()
    local scale = 2.0
    local f = sc.compile(function(x) return x * scale end)
    assert.same({ 2.0 }, values(f(sc.tensor { 1.0 }))[1])
    scale = 3.0
    assert.same({ 3.0 }, values(f(sc.tensor { 1.0 }))[1])
    assert.truthy(f:explain():find("trace 2: upvalue 'scale' was 2.0 and is 3.0", 1, true))
  end)
end)

describe("gradients through a compiled function", function()
  local function make()
    local w = sc.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } }, { requires_grad = true })
    local b = sc.tensor({ 0.5, 0.25 }, { requires_grad = true })
    return w, b, function(x)
      local h = (x:matmul(w) + b):tanh()
      return h * h:exp(), { sum = h:sum() }, "label"
    end
  end

  local function gradients(f, w, b, x)
    x, w.grad, b.grad = x:clone():requires_grad_(), nil, nil
    local y, t, label = f(x)
    assert.equal("label", label)
    sc.grad(y:sum(), x, { retain_graph = true })
    ;((y * y):sum() + t.sum * 3.0):backward()
    return { x.grad:totable(), w.grad:totable(), b.grad:totable() }
  end

  it("are those of the function, for arguments and captured tensors, call after call", function()
    local w, b, fn = make()
    local f = sc.compile(fn)
    for i = 1, 3 do
      local x = sc.tensor { { 0.1 * i, 0.2 }, { 0.3, -0.4 } }
      assert.same(gradients(fn, w, b, x), gradients(f, w, b, x))
    end
    assert.equal(1, #f:runs())
  end)

  it("use the random numbers of the forward, and leave its updates alone", function()
    local count = sc.tensor(0.0)
    local f = sc.compile(function(x)
      count:add_(1.0)
      return sc.nn.functional.dropout(x, 0.5)
    end)
    local x = sc.full({ 64 }, 3.0):requires_grad_()
    local y = f(x)
    y:sum():backward()
    assert.same((y / 3.0):totable(), x.grad:totable())
    assert.equal(1.0, count:item())
  end)

  it("stop where a step has differentiated its result already", function()
    local w = sc.tensor({ 1.0, 2.0 }, { requires_grad = true })
    local step = sc.compile(function(x)
      local loss = (x * w):sum()
      loss:backward()
      return loss
    end)
    assert.is_false(step(sc.tensor { 1.0, 1.0 }).requires_grad)
    assert.is_false(step(sc.tensor({ 1.0, 1.0 }, { requires_grad = true })).requires_grad)
    assert.is_nil(w.grad)
  end)

  it("are refused a second time, and after a change in place", function()
    local w, _, fn = make()
    local f = sc.compile(fn)
    local x = sc.tensor({ { 1.0, 2.0 } }, { requires_grad = true })
    assert.has_error(function() sc.grad((f(x)):sum(), x, { create_graph = true }) end)
    local y = f(x)
    sc.no_grad(function() w:add_(1.0) end)
    local ok, err = pcall(function() y:sum():backward() end)
    assert.is_false(ok)
    assert.truthy(err:find("modified in-place at spec/compile_spec.lua", 1, true), err)
  end)

  it("are not remembered with gradients off", function()
    local _, _, fn = make()
    local f = sc.compile(fn)
    sc.no_grad(function() assert.is_false((f(sc.tensor { { 1.0, 2.0 } })).requires_grad) end)
  end)
end)

describe("ops over other ops, in a graph", function()
  local x = sc.tensor { { 3.0, 1.0, 2.0, 5.0 }, { 0.5, -1.0, 4.0, 4.5 } }
  local weights = sc.tensor { 1, 2, 0, 3 }
  local CASES = {
    { "quantile", function(a) return sc.quantile(a, 0.3, 2), sc.nanquantile(a, sc.tensor { 0.25, 1.0 }, 1) end },
    { "cov", function(a, w) return sc.cov(a, 1, w), sc.cov(a, 1, w, w:float()) end },
    { "histogram", function(a) return sc.histogram(a, 3) end },
    { "histogram of equal numbers", function(a) return sc.histogram(a * 0.0 + 2.0, 2) end },
    { "narrow from a tensor on", function(a, w) return a:narrow(2, w[2], 2), sc.narrow(a, -1, w[1] - 3, 2) end },
    { "embedding_bag", function(a, w)
      return sc.nn.functional.embedding_bag(w + 1, a:t(), { offsets = sc.tensor { 1, 3, 4 }, mode = "sum", include_last_offset = true })
    end },
  }
  for _, case in ipairs(CASES) do
    it("compute from tensors what they would look up: " .. case[1], function()
      local want, got = values(case[2](x, weights)), values(sc.compile(case[2])(x, weights))
      assert.equal(#want, #got)
      for i = 1, #want do
        assert.equal(sc.tensor(want[i]):sub(sc.tensor(got[i])):abs():lt(1e-5):all():item(), true)
      end
    end)
  end

  it("gives gradients a memory of their own, that can be written to", function()
    local w = sc.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } }, { requires_grad = true })
    local function fn()
      local g = sc.grad((w:sum(1, true) * 2.0):sum(), w)
      g:sub_(w:detach())
      return g
    end
    assert.same({ { 1.0, 0.0 }, { -1.0, -2.0 } }, fn():totable())
    assert.same(fn():totable(), sc.compile(fn)():totable())
  end)
end)

describe("an optimiser in a compiled step", function()
  for name, options in pairs { Adam = { lr = 0.1 }, SGD = { lr = 0.1, momentum = 0.9 }, RMSprop = { lr = 0.1 }, Adagrad = { lr = 0.1 } } do
    it("keeps its state from run to run: " .. name, function()
      local function make(compiled)
        local w = sc.tensor({ 1.0, 2.0 }, { requires_grad = true })
        local opt = sc.optim[name]({ w }, options)
        local function step(x)
          local loss = ((w * x) ^ 2):sum()
          opt:zero_grad()
          loss:backward()
          opt:step()
          return loss
        end
        return compiled and sc.compile(step) or step, w
      end
      local eager, a = make(false)
      local step, b = make(true)
      for _ = 1, 4 do
        local x = sc.tensor { 0.5, 0.7 }
        assert.near(eager(x):item(), step(x):item(), 1e-6)
        for i = 1, 2 do assert.near(a:totable()[i], b:totable()[i], 1e-6) end
      end
    end)
  end
end)
