local sc = require "sconce"

local function message(fn, ...) return tostring(select(2, pcall(fn, ...))) end
local function full()
  collectgarbage()
  collectgarbage()
end

--- Runs a script in a process of its own; what it prints.
local function process(script)
  local path = os.tmpname()
  local f = assert(io.open(path, "w"))
  f:write(("package.path = %q\npackage.cpath = %q\n"):format(package.path, package.cpath), script)
  f:close()
  local p = assert(io.popen("lua5.4 " .. path .. " 2>&1"))
  local out = p:read("a")
  p:close()
  os.remove(path)
  return out
end

local PEAK = [[
local function peak() for l in io.lines "/proc/self/status" do local v = l:match "VmHWM:%s+(%d+)" if v then return v / 1024 end end end
]]

describe("tensor memory", function()
  for _, mode in ipairs { "generational", "incremental" } do
    it("of 20000 temporaries of 40 KB beside a heap of 19 MB stays under 60 MB in all, " .. mode .. " #rss", function()
      local mb = tonumber(process(PEAK .. [[
        collectgarbage "]] .. mode .. [["
        local sc = require "sconce"
        local heap = {}
        for i = 1, 200000 do heap[i] = { i } end
        for _ = 1, 20000 do local t = sc.zeros { 10000 } end
        print(peak())
      ]]))
      assert.is_true(mb < 60, "peak " .. mb)
    end)
  end

  it("is flat over training steps, and blocks are used again #slow #rss", function()
    local out = process(PEAK .. [[
      local sc = require "sconce"
      sc.manual_seed(1)
      local w, b = sc.randn { 8, 4 }:requires_grad_(), sc.zeros { 4 }:requires_grad_()
      local x = sc.randn { 16, 8 }
      local function step()
        local loss = (x:matmul(w) + b):relu():sum()
        loss:backward()
        sc.no_grad(function()
          for _, p in ipairs { w, b } do p:sub_(p.grad * 1e-6) p.grad = nil end
        end)
      end
      for _ = 1, 10000 do step() end
      local before, blocks = peak(), sc.stats().allocations
      for _ = 1, 90000 do step() end
      print(peak() - before, sc.stats().allocations - blocks)
    ]])
    local grown, blocks = out:match("^(%S+)%s+(%S+)")
    assert.is_true(tonumber(grown) < 2, out)
    assert.is_true(tonumber(blocks) < 50, out)
  end)

  it("comes back whatever the collector's mode", function()
    local function work()
      local w = sc.ones({ 64 }, { requires_grad = true })
      for _ = 1, 300 do
        local y = (w * 2.0):tanh()
        y:sum():backward()
        w.grad = nil
      end
    end
    work()
    full()
    local before = sc.stats().bytes
    for _, set in ipairs { { "generational" }, { "incremental", 0 }, { "incremental", 1000 }, { "incremental", 200 } } do
      collectgarbage(table.unpack(set))
      work()
      full()
      assert.equal(before, sc.stats().bytes)
    end
    collectgarbage "stop"
    work()
    collectgarbage "restart"
    full()
    assert.equal(before, sc.stats().bytes)
    collectgarbage "generational"
  end)

  it("goes at once with free and <close>, and using it later says what and where", function()
    local t = sc.zeros { 1000, 1000 }
    local before = sc.stats().bytes
    t:free()
    assert.equal(before - 4000000, sc.stats().bytes)
    assert.matches("add: argument 2 %(other%): .*float32 tensor of shape {1000, 1000}, freed at .*memory_spec.lua", message(function()
      return sc.ones { 1 } + t
    end))
    local kept
    do
      local c <close> = sc.zeros { 10 }
      kept = c
    end
    assert.matches("item: the tensor has been freed", message(function() return kept:item() end))
  end)

  it("of a scope goes with it, except what is returned or kept", function()
    full()
    local before = sc.stats().live
    local r = sc.scope(function()
      local a = sc.ones { 10 }
      local b = a + 1.0
      return { list = { b } }
    end)
    assert.equal(before + 1, sc.stats().live)
    assert.equal(20.0, r.list[1]:sum():item())
    local inner
    do
      local s <close> = sc.scope()
      inner = s:keep(sc.ones { 2 } * 3.0)
    end
    assert.same({ 3.0, 3.0 }, inner:totable())
    local lost
    pcall(sc.scope, function() lost = sc.ones { 3 } error("stop") end)
    assert.matches("scope has ended", message(function() return lost + 1.0 end))
  end)

  it("beyond the limit is an error that names the op and leaves all usable", function()
    local t = sc.ones { 1000 }
    sc.set_memory_limit(sc.stats().bytes + sc.stats().cached + (64 << 20))
    local m = message(sc.zeros, { 100 << 20 })
    local ok, sum = pcall(function() return t:sum():item() end)
    for _ = 1, 40 do local _ = sc.zeros { 4 << 20 } end        -- garbage is collected to make room
    sc.set_memory_limit()
    assert.matches("not enough memory: %d+ bytes wanted", m)
    assert.is_true(ok)
    assert.equal(1000.0, sum)
  end)

  it("refuses any size that the machine cannot have, also after an error", function()
    pcall(sc.zeros, 1 << 40, 1 << 40) -- leaves a message in the context
    for k = 41, 61 do
      local ok, err = pcall(sc.empty, { 1 << k }, { dtype = "uint8" })
      if k >= 48 then assert.is_false(ok) end -- more than an address space
      assert.is_true(ok or err:find(k < 61 and "not enough memory" or "too large") ~= nil, err)
    end
  end)
end)
