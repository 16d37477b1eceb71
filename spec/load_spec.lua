--- Saved graphs in other hands: a host in C without Lua, hostile files, a process that dies while it saves.
local sc = require "sconce"
local resume = require "spec.support.resume"
local nn = sc.nn

local folder = os.tmpname()
os.remove(folder)
os.execute("mkdir -p " .. folder)

local function read(path)
  local f = assert(io.open(path, "rb"))
  local s = f:read "a"
  f:close()
  return s
end

local function write(path, bytes)
  local f = assert(io.open(path, "wb"))
  f:write(bytes)
  f:close()
  return path
end

local function same(a, b) return a.dtype == b.dtype and a:tostring_bytes() == b:tostring_bytes() end

--- A small model that has a bit of everything: weights, a branch, a loop, random numbers, an update.
local function everything()
  sc.manual_seed(4)
  local net, count = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), sc.zeros(1)
  local g = sc.graph()
  local x = g:input("x", { "n", 3 })
  local y = net(x)
  y = sc.cond(y:sum():gt(0), function(a) return a * 2 end, function(a) return a - 1 end, y)
  local _, z = sc.while_loop(function(i) return i:lt(3) end, function(i, a) return i + 1, a * 0.5 end, sc.tensor(0), y)
  count:add_(1)
  g:output("y", z)
  g:output("noise", sc.rand { x:size(1) })
  g:output("count", count * 1)
  return g
end

describe("a host in C", function()
  local program = folder .. "/load"
  local built = os.execute(("cc -std=gnu11 -Icsrc spec/support/load.c build/libsconce.a -lopenblas -lz -lm -lpthread -o %s 2>/dev/null")
    :format(program)) == true

  local function host(...) return os.execute(program .. " " .. table.concat({ ... }, " ")) == true end

  it("runs what was saved, whole and in slices, with the same bits", function()
    if not built then return pending "no C compiler, or no libsconce.a (run make)" end
    local x, path = sc.randn { 5, 3 }, folder .. "/all.onnx"
    local g = everything()
    g:save(path)
    sc.save(folder .. "/x.st", { x = x })
    local want = g:compile() { x = x }
    for _, slice in ipairs { 0, 50 } do
      assert.is_true(host(path, folder .. "/x.st", folder .. "/out.st", 1, slice))
      local got = sc.load(folder .. "/out.st")
      for name, t in pairs(want) do assert.is_true(same(t, got[name]), name) end
    end
  end)

  it("goes on training", function()
    if not built then return pending "no C compiler, or no libsconce.a (run make)" end
    sc.manual_seed(3)
    local fn, inputs = resume.models.cnn(resume.optimizers.adam)
    local step, loss = sc.compile(fn), nil
    step(table.unpack(inputs))
    step.last:save(folder .. "/train.onnx")
    sc.save(folder .. "/in.st", { arg1 = inputs[1], arg2 = inputs[2] })
    for _ = 1, 3 do loss = step(table.unpack(inputs)) end
    assert.is_true(host(folder .. "/train.onnx", folder .. "/in.st", folder .. "/loss.st", 3, 0))
    assert.is_true(same(loss, sc.load(folder .. "/loss.st").out1))
  end)

  it("refuses models of others with a word on what to do", function()
    if not built then return pending "no C compiler, or no libsconce.a (run make)" end
    local path = folder .. "/mine.onnx"
    everything():save(path)
    write(folder .. "/foreign.onnx", (read(path):gsub("sconce%.graph", "sconse.graph")))
    assert.is_false(host(folder .. "/foreign.onnx", "x", "y", 1, 0, "2>" .. folder .. "/err"))
    assert.truthy(read(folder .. "/err"):find("convert it once with sc.load_graph", 1, true))
  end)
end)

describe("a saved file", function()
  it("is read through its nodes when somebody has edited them, and keeps edited weights", function()
    local g, path = sc.graph(), folder .. "/edit.onnx"
    local w = sc.tensor { 2.0, 3.0 }
    g:output("y", g:input("x", { 2 }) * w)
    assert.same({}, g:save(path))
    local bytes = read(path)
    write(path, (bytes:gsub(string.pack("<ff", 2, 3):gsub("%W", "%%%0"), string.pack("<ff", 5, 7))))
    assert.same({ 5, 7 }, sc.load_graph(path) { x = sc.ones { 2 } }.y:totable())
    assert.truthy(sc.load_graph(path).graph)
    write(path, (bytes:gsub("Mul([^_])", "Add%1")))
    assert.same({ 3, 4 }, sc.load_graph(path) { x = sc.ones { 2 } }.y:totable())
    assert.is_nil(sc.load_graph(path).graph)
  end)

  it("is refused or read when it is cut or a bit of it is another", function()
    local path = folder .. "/bits.onnx"
    everything():save(path)
    local bytes, x, random = read(path), sc.randn { 2, 3 }, 12345
    local function try(s)
      local ok, run = pcall(sc.load_graph, write(folder .. "/try.onnx", s))
      if ok then pcall(run, { x = x }) end
    end
    for cut = 1, #bytes - 1, 41 do try(bytes:sub(1, cut)) end
    for _ = 1, 150 do
      random = random * 1103515245 + 12345 & 0x7fffffff
      local at = random % #bytes + 1
      try(bytes:sub(1, at - 1) .. string.char(bytes:byte(at) ~ (1 << random // 65536 % 8)) .. bytes:sub(at + 1))
    end
    assert.is_true(same(sc.load_graph(write(path, bytes)) { x = x }.count, sc.tensor { 1.0 }))
  end)

  it("is the old one or the new one when the process dies while it saves", function()
    local script, path = folder .. "/save.lua", folder .. "/kill.onnx"
    write(script, ([[
      local sc, path = require "sconce", %q
      local g = sc.graph()
      g:output("y", g:input("x", { 1 }) + sc.full({ 300000 }, 1.0))
      while true do g:save(path) end]]):format(path))
    local start = ("LUA_PATH='%s' LUA_CPATH='%s' lua5.4 %s & pid=$!; sleep 0.%%d; kill -9 $pid; wait $pid 2>/dev/null; true"):format(
      package.path, package.cpath, script)
    for i = 17, 29, 12 do
      os.execute("sh -c '" .. start:format(i):gsub("'", "'\\''") .. "' 2>/dev/null")
      local f = io.open(path)
      if f then
        f:close()
        assert.equal(300000 * 2, sc.load_graph(path) { x = sc.ones { 1 } }.y:sum():item())
      end
    end
  end)
end)
