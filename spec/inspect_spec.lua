local sc = require "sconce"

local function compiled()
  local w = sc.full({ 16, 16 }, 0.1)
  local f = sc.compile(function(x) return (x:matmul(w):tanh() + 1.0):log():sum() end)
  return f, sc.full({ 4, 16 }, 0.5)
end

describe("looking inside a run", function()
  it("tells time and bytes by the script's line", function()
    local f, x = compiled()
    f(x)
    f.last:profile(true)
    f(x)
    local profile = f.last:profile()
    assert.is_true(profile.ns > 0)
    assert.is_true(#profile.steps >= 2)
    assert.truthy(profile.lines[1].line:find("inspect_spec.lua:5", 1, true))
    local bytes = 0
    for _, s in ipairs(profile.steps) do if s.op == "matmul" or s.op == "matmul_batched" then bytes = bytes + s.bytes end end
    assert.equal(4 * 16 * 4, bytes)
    assert.truthy(tostring(profile):find("inspect_spec.lua:5", 1, true))
    local path = os.tmpname()
    f.last:profile { trace = path }
    local text = io.open(path):read("a")
    os.remove(path)
    assert.truthy(text:find('"ph":"X"', 1, true))
    assert.equal(#profile.steps, select(2, text:gsub('"name":', "")))
  end)

  it("names the first op whose result holds NaN, forward and backward", function()
    local line = debug.getinfo(1, "l").currentline
    local f = sc.compile(function(x)
      local y = x + 1.0
      local z = y:log()
      return z:sum()
    end, { passes = 0 })
    f(sc.tensor { 1.0 })
    f.last:check_nan(true)
    local ok, err = pcall(f, sc.tensor { -3.0 })
    assert.is_false(ok)
    assert.truthy(err:find("check_nan: result 1 of log", 1, true), err)
    assert.truthy(err:find("inspect_spec.lua:" .. line + 3, 1, true), err)
    assert.near(math.log(2.0), f(sc.tensor { 1.0 }):item(), 1e-6)
    f.last:check_nan(false)
    assert.is_true(f(sc.tensor { -3.0 }):item() ~= f(sc.tensor { -3.0 }):item())

    local w = sc.tensor({ 0.0 }, { requires_grad = true })
    local g = sc.compile(function(x)
      return sc.grad(((w * x):sqrt() * 0.0):sum(), w)
    end, { passes = 0 })
    g(sc.tensor { 1.0 })
    g.last:check_nan(true)
    ok, err = pcall(g, sc.tensor { 1.0 })
    assert.is_false(ok)
    assert.truthy(err:find("inspect_spec.lua:" .. line + 18, 1, true), err)
  end)

  it("tells what passes leave", function()
    local f, x = compiled()
    f(x)
    local stats = f.last:stats()
    assert.is_true(stats.passes[#stats.passes].steps < stats.passes[1].steps)
    assert.equal(stats.steps, stats.passes[#stats.passes].steps)
    assert.equal(stats.bytes, f.last:bytes())
    assert.truthy(f.last.graph:text():find("matmul", 1, true))
  end)

  it("works on runs of graphs built by hand", function()
    local g = sc.graph()
    local x = g:input("x", { "n", 3 })
    g:output("y", (x * 2.0):sum(2))
    local run = g:compile()
    local job = run:start { x = sc.full({ 2, 3 }, 1.0) }
    while not job:advance(1) do assert.equal("job (running)", tostring(job)) end
    assert.same({ 6.0, 6.0 }, job:result().y:totable())
    run:profile(true)
    run { x = sc.full({ 5, 3 }, 1.0) }
    assert.is_true(run:profile().ns > 0)
  end)

  it("runs line by line when asked to", function()
    local calls = { n = 0, _library = true }
    local f = sc.compile(function(x)
      calls.n = calls.n + 1
      return x
    end)
    sc.config.run_eagerly = true
    f(sc.tensor { 1.0 })
    f(sc.tensor { 1.0 })
    sc.config.run_eagerly = false
    assert.equal(2, calls.n)
    assert.equal(0, #f:runs())
  end)

  it("stops before every op of a line, with its inputs", function()
    local line = debug.getinfo(1, "l").currentline
    local f = sc.compile(function(x)
      local y = x * 3.0
      return (y + 1.0):sum()
    end)
    f(sc.tensor { 1.0, 2.0 })
    local seen = {}
    f.last:break_at("inspect_spec.lua:" .. line + 3, function(node, inputs) seen[#seen + 1] = { node.op, inputs[1]:totable() } end)
    assert.equal(11.0, f(sc.tensor { 1.0, 2.0 }):item())
    assert.same({ { "add", { 3.0, 6.0 } }, { "sum", { 4.0, 7.0 } } }, seen)
    f.last:break_at("inspect_spec.lua:" .. line + 3)
    f(sc.tensor { 1.0, 2.0 })
    assert.equal(2, #seen)
  end)

  it("verifies a function: agreement, and what a trace cannot see", function()
    local f, x = compiled()
    local same, report = sc.verify(f, x)
    assert.is_true(same, report)
    local s = sc.tensor { 1.0 }
    same, report = sc.verify(function(v)
      s:add_(v)
      return s * 2.0 + sc.rand(1)
    end, sc.tensor { 1.0 })
    assert.is_true(same, report)
    assert.equal(2.0, s:item()) -- one run counts
    local hidden = setmetatable({}, { __index = function() return os.clock() end }) -- nothing that can be watched
    same, report = sc.verify(function(v) return v * hidden.now end, sc.tensor { 1e6 })
    assert.is_false(same)
    assert.truthy(report:find("a trace cannot see", 1, true))
  end)
end)
