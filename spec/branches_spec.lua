--- Steps that run beside each other on the pool's threads: which graphs do so, that nothing but the time differs, what errors say.
local sc = require "sconce"
local core = require "sconce.core"
local programs = require "spec.support.programs"
local nn, F = sc.nn, sc.nn.functional

local function tower(depth, width)
  local list = {}
  for _ = 1, depth do
    list[#list + 1] = nn.Linear(width, width)
    list[#list + 1] = nn.Tanh()
  end
  return nn.Sequential(table.unpack(list))
end

--- { name, branches at least, function, arguments }; as large as pays.
local function cases()
  local a, b = tower(4, 128), tower(4, 128)
  local lstm = nn.LSTM(64, 96, { bidirectional = true, batch_first = true })
  local heads = {}
  for h = 1, 4 do heads[h] = { sc.randn(96, 32) * 0.1, sc.randn(96, 32) * 0.1, sc.randn(96, 32) * 0.1 } end
  local net, x, t = tower(3, 256), sc.randn(64, 256), sc.randn(64, 256)
  return {
    { "two towers", 2, function(u, v) return a(u) * b(v) end, { sc.randn(64, 128), sc.randn(64, 128) } },
    { "both directions of an LSTM", 2, function(u) return (lstm(u)) end, { sc.randn(4, 24, 64) } },
    { "heads of attention by hand", 4, function(u)
      local out = {}
      for h, w in ipairs(heads) do
        local q, k, v = u:matmul(w[1]), u:matmul(w[2]), u:matmul(w[3])
        out[h] = (q:matmul(k:t()) * 0.17):softmax(-1):matmul(v)
      end
      return sc.cat(out, 2)
    end, { sc.randn(96, 96) } },
    { "gradients of weights and of inputs", 2, function(u)
      local loss = F.mse_loss(net(u), t)
      return loss:detach(), sc.grad(loss, net:parameters())
    end, { x } },
  }
end

local function results(f, args) return table.pack(f(table.unpack(args))) end

local function all_same(want, got, what)
  assert.equal(want.n, got.n)
  for i = 1, want.n do assert.is_true(sc.equal(want[i], got[i]), what .. ", result " .. i) end
end

describe("branches of a graph", function()
  local threads = sc.get_num_threads()
  setup(function() core.check_graphs(true) end)
  teardown(function() core.check_graphs(false) end)
  before_each(function() sc.manual_seed(5) end)
  after_each(function()
    sc.set_num_threads(threads)
    core.branches_from(0)
  end)

  it("run beside each other where it pays, with the same bits for any number of threads", function()
    for _, c in ipairs(cases()) do
      local name, least, fn, args = table.unpack(c)
      local want
      for _, n in ipairs { 2, 1, 3, 4 } do
        sc.set_num_threads(n)
        local serial, beside = sc.compile(fn, { passes = { branches = false } }), sc.compile(fn)
        local plain = results(serial, args)
        for round = 1, 4 do all_same(plain, results(beside, args), name .. " on " .. n .. " threads, run " .. round) end
        local branches = beside.last:stats().branches
        assert.equal(0, serial.last:stats().branches)
        if n == 1 then assert.equal(0, branches) elseif n == 2 then assert.is_true(branches >= least, name .. ": " .. branches) end
        want = want or plain
        if name ~= "gradients of weights and of inputs" then all_same(want, plain, name) end
      end
    end
  end)

  it("are none where steps are small, follow one another, or are divided by themselves", function()
    sc.set_num_threads(2)
    local small, a, b, long = tower(4, 16), tower(2, 16), tower(2, 16), tower(6, 128)
    local large, other = sc.randn(512, 512), sc.randn(512, 512)
    for _, c in ipairs {
      { function(u) return small(u) end, sc.randn(8, 16) }, { function(u) return a(u) + b(u) end, sc.randn(8, 16) },
      { function(u) return u:matmul(large) + u:matmul(other) end, sc.randn(512, 512) },
      { function(u) return long(u) end, sc.randn(64, 128) },
    } do
      local f = sc.compile(c[1])
      f(c[2])
      assert.equal(0, f.last:stats().branches)
    end
  end)

  it("go one after another in slices, in profiles and op by op, with the same results", function()
    sc.set_num_threads(2)
    local c = cases()[1]
    local f = sc.compile(c[3])
    local want = results(f, c[4])
    all_same(want, results(f, c[4]), "a call")
    local job = f.last:start(table.unpack(c[4]))
    while not job:advance(50) do end
    all_same(want, table.pack(job:result()), "slices")
    f.last:profile(true)
    all_same(want, results(f, c[4]), "profiled")
    local text = tostring(f.last:profile())
    assert.truthy(text:find("us in " .. f.last:stats().steps .. " steps", 1, true), text)
    f.last:profile(false)
    f.last:break_at("*", function() end)
    all_same(want, results(f, c[4]), "op by op")
  end)

  it("report the failure that comes first in the recording", function()
    sc.set_num_threads(2)
    core.branches_from(1)
    local w, a, b = sc.randn(10, 16), tower(2, 16), tower(1, 16)
    local function fn(i, k)
      local u = a(F.embedding(i, w))
      local v = b(F.embedding(k, w)) -- the second
      return u:sum() + v:sum()
    end
    local f = sc.compile(fn)
    local good, bad = sc.tensor { 1, 2, 3 }, sc.tensor { 1, 99, 3 }
    local want = f(good, good)
    assert.is_true(f.last:stats().branches >= 2)
    local first, second = debug.getinfo(fn).linedefined + 1, debug.getinfo(fn).linedefined + 2
    for _ = 1, 20 do
      for _, e in ipairs { { bad, good, first }, { good, bad, second }, { bad, bad, first } } do
        local ok, err = pcall(f, e[1], e[2])
        assert.is_false(ok)
        assert.truthy(tostring(err):find("recorded at spec/branches_spec.lua:" .. e[3], 1, true), err)
        assert.truthy(tostring(err):find("99", 1, true), err)
      end
      assert.is_true(sc.equal(want, f(good, good)))
    end
  end)

  it("leave the order of random numbers and of updates alone", function()
    sc.set_num_threads(2)
    core.branches_from(1)
    local p = { sc.randn(32, 32):requires_grad_(), sc.randn(32, 32):requires_grad_() }
    local opt = sc.optim.SGD(p, { lr = 0.1, momentum = 0.9 })
    local function step(x)
      opt:zero_grad()
      local u, v = F.dropout(x:matmul(p[1]), 0.5, true), F.dropout(x:matmul(p[2]), 0.5, true)
      local loss = (u:tanh() + v:tanh() + sc.rand(32, 32)):pow(2):mean()
      loss:backward()
      opt:step()
      return loss
    end
    local start = { p[1]:detach():clone(), p[2]:detach():clone() }
    local runs = {}
    for i, f in ipairs { step, sc.compile(step, { exact = true }) } do
      sc.no_grad(function() for k = 1, 2 do p[k]:copy_(start[k]) end end)
      opt:load_state_dict(sc.optim.SGD(p, { lr = 0.1, momentum = 0.9 }):state_dict())
      sc.manual_seed(11)
      runs[i] = {}
      for k = 1, 4 do runs[i][k] = f(sc.ones(32, 32)):item() end
      runs[i][5], runs[i][6] = p[1]:detach():sum():item(), p[2]:detach():sum():item()
    end
    assert.same(runs[1], runs[2])
  end)

  it("of random programs give the bits of one thread, however little they save", function()
    core.branches_from(1)
    local first, count = tonumber(os.getenv("SCONCE_SEED") or 1), tonumber(os.getenv("SCONCE_PROGRAMS") or 60)
    local some = 0
    for seed = first, first + count - 1 do
      local p = programs.grow(seed, 10 + seed * 7 % 56)
      sc.set_num_threads(1)
      local ok, want, labels = pcall(programs.run, p, function(fn) return fn end)
      sc.set_num_threads(3)
      local compiled
      local got = ok and programs.run(p, function(fn)
        compiled = sc.compile(fn, { exact = true })
        return compiled
      end)
      if got and compiled.last then some = some + compiled.last:stats().branches end
      for i = 1, ok and #want or 0 do assert.is_true(programs.same(p, want[i], got[i]), "program " .. seed .. ": " .. labels[i]) end
    end
    assert.is_true(some > count, "branches: " .. some)
  end)
end)
