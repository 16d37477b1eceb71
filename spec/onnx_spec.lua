--- ONNX: files written by hand, saved graphs read back, hostile files; and, where they are installed, ONNX's own checker
--- (/usr/bin/python3 with onnx) and ONNX Runtime (node, with SCONCE_ORT naming a folder that holds node_modules/onnxruntime-node).
local sc = require "sconce"
package.path = "bench/?.lua;" .. package.path
local models = require "models"

-- ---------------------------------------------------------------- a writer of messages, independent of ours

local function varint(n)
  local s = ""
  repeat
    local b = n & 127
    n = n >> 7
    s = s .. string.char(n ~= 0 and b | 128 or b)
  until n == 0
  return s
end
local function int(field, n) return varint(field << 3) .. varint(n) end
local function bytes(field, s) return varint(field << 3 | 2) .. varint(#s) .. s end
local function value(name, elem, dims)
  local shape = ""
  for _, d in ipairs(dims) do shape = shape .. bytes(1, type(d) == "string" and bytes(2, d) or int(1, d)) end
  return bytes(1, name) .. bytes(2, bytes(1, int(1, elem) .. bytes(2, shape)))
end
local function node(op, ins, outs, attrs)
  local s = ""
  for _, v in ipairs(ins) do s = s .. bytes(1, v) end
  for _, v in ipairs(outs) do s = s .. bytes(2, v) end
  return s .. bytes(4, op) .. (attrs or "")
end
local function attr_int(name, v) return bytes(5, bytes(1, name) .. int(3, v) .. int(20, 2)) end
local function tensor(name, elem, dims, rest)
  local s = int(2, elem) .. bytes(8, name) .. rest
  for _, d in ipairs(dims) do s = s .. int(1, d) end
  return s
end
local function model(o)
  local g = bytes(2, "g")
  for _, n in ipairs(o.nodes or {}) do g = g .. bytes(1, n) end
  for _, t in ipairs(o.inits or {}) do g = g .. bytes(5, t) end
  for _, v in ipairs(o.inputs or {}) do g = g .. bytes(11, v) end
  for _, v in ipairs(o.outputs or {}) do g = g .. bytes(12, v) end
  return int(1, 7) .. bytes(7, g) .. bytes(8, bytes(1, "") .. int(2, o.opset or 13))
end

local folder = os.tmpname()
os.remove(folder)
os.execute("mkdir " .. folder)
local serial = 0
local function file(content, name)
  serial = serial + 1
  local path = folder .. "/" .. (name or serial .. ".onnx")
  local f = assert(io.open(path, "wb"))
  f:write(content)
  f:close()
  return path
end
local function load(o) return sc.load_graph(file(model(o))) end
local function refused(content, ...)
  local path = file(content)
  local ok, message = pcall(sc.load_graph, path)
  assert.is_false(ok)
  for _, word in ipairs { ... } do assert.truthy(tostring(message):find(word, 1, true), tostring(message) .. " lacks " .. word) end
end

teardown(function() os.execute("rm -rf " .. folder) end)

local X = { value("x", 1, { "n", 2 }) }
local Y = { value("y", 1, { "n", 2 }) }

describe("onnx files", function()
  it("run for every size of a named dimension", function()
    local run = load { inputs = X, outputs = Y, nodes = { node("Mul", { "x", "w" }, { "y" }) },
      inits = { tensor("w", 1, { 2 }, bytes(9, string.pack("<ff", 2, -3))) } }
    assert.same({ { 2, -3 } }, run { x = sc.ones { 1, 2 } }.y:totable())
    assert.same({ { 4, -6 }, { 0, 3 } }, run { x = sc.tensor { { 2.0, 2.0 }, { 0.0, -1.0 } } }.y:totable())
    assert.same({ 0, 2 }, run { x = sc.zeros { 0, 2 } }.y.shape)
    assert.has_error(function() run { x = sc.ones { 1, 3 } } end)
    assert.has_error(function() run { x = sc.ones({ 1, 2 }, { dtype = "float64" }) } end)
    assert.has_error(function() run {} end)
    assert.has_error(function() run { x = sc.ones { 1, 2 }, z = sc.ones { 1 } } end)
  end)

  it("take numbers packed, one by one and raw", function()
    for _, data in ipairs { bytes(4, string.pack("<ff", 5, 7)), varint(4 << 3 | 5) .. string.pack("<f",
      5) .. varint(4 << 3 | 5) .. string.pack("<f", 7),
      bytes(9, string.pack("<ff", 5, 7)) } do
      local run = load { inputs = X, outputs = Y, nodes = { node("Add", { "x", "w" }, { "y" }) }, inits = { tensor("w", 1, { 2 }, data) } }
      assert.same({ { 5, 7 } }, run { x = sc.zeros { 1, 2 } }.y:totable())
    end
  end)

  it("keep their 0-based face", function()
    local o = { inputs = { value("x", 1, { 3 }), value("i", 7, { 2 }) }, outputs = { value("y", 1, { 2 }), value("k", 7, { 1 }) },
      nodes = { node("Gather", { "x", "i" }, { "y" }), node("ArgMax", { "x" }, { "k" }) } }
    local out = load(o) { x = sc.tensor { 10.0, 30.0, 20.0 }, i = sc.tensor { 0, -1 } }
    assert.same({ 10, 20 }, out.y:totable())
    assert.same({ 1 }, out.k:totable())
  end)

  it("mean softmax as their opset says", function()
    local function of(opset, attrs)
      return load { opset = opset, inputs = { value("x", 1, { 1, 2, 2 }) }, outputs = { value("y", 1, { 1, 2, 2 }) },
        nodes = { node("Softmax", { "x" }, { "y" }, attrs) } } { x = sc.zeros { 1, 2, 2 } }.y:totable()
    end
    assert.same({ { { 0.25, 0.25 }, { 0.25, 0.25 } } }, of(11))
    assert.same({ { { 0.5, 0.5 }, { 0.5, 0.5 } } }, of(11, attr_int("axis", 2)))
    assert.same({ { { 0.5, 0.5 }, { 0.5, 0.5 } } }, of(13))
  end)

  it("clamp slices as the standard says, backwards from beyond the first element too", function()
    local function of(n, from, to, step)
      local inputs, ins = { value("x", 1, { "n" }) }, { "x" }
      for _, name in ipairs { "from", "to", "axes", "step" } do
        inputs[#inputs + 1], ins[#ins + 1] = value(name, 7, { 1 }), name
      end
      local run = load { inputs = inputs, outputs = { value("y", 1, { "m" }) }, nodes = { node("Slice", ins, { "y" }) } }
      local function one(v) return sc.tensor({ v }, { dtype = "int64" }) end
      return run { x = sc.arange(1.0, n + 1.0), from = one(from), to = one(to), axes = one(-1), step = one(step) }.y:totable()
    end
    assert.same({ 1 }, of(2, -3, math.mininteger, -2))
    assert.same({ 1 }, of(3, math.mininteger, math.mininteger, -1))
    assert.same({ 3, 1 }, of(3, math.maxinteger, math.mininteger, -2))
    assert.same({}, of(3, 0, 0, -1))
    assert.same({}, of(0, -1, math.mininteger, -1))
    assert.same({ 2, 3 }, of(3, 1, math.maxinteger, 1))
    assert.same({ 1 }, of(3, math.mininteger, math.maxinteger, 7))
  end)

  it("have a loop that never runs collect nothing, of the sizes that its body names", function()
    local body = bytes(1, node("Identity", { "c" }, { "c2" })) .. bytes(1, node("Add", { "v", "v" }, { "v2" }))
      .. bytes(1, node("Cast", { "v2" }, { "s" }, attr_int("to", 6)))
    for _, v in ipairs { value("i", 7, {}), value("c", 9, {}), value("v", 1, { 2 }) } do body = body .. bytes(11, v) end
    for _, v in ipairs { value("c2", 9, {}), value("v2", 1, { 2 }), value("s", 6, { 2, "n" }) } do body = body .. bytes(12, v) end
    local loop = load { inputs = { value("m", 7, {}), value("x", 1, { 2 }) }, outputs = { value("y", 1, { 2 }), value("s", 6, { "t", 2 }) },
      nodes = { node("Loop", { "m", "", "x" }, { "y", "s" }, bytes(5, bytes(1, "body") .. bytes(6, body) .. int(20, 5))) } }
    local out = loop { m = sc.tensor(0), x = sc.tensor { 1.0, 2.0 } }
    assert.same({ 1, 2 }, out.y:totable())
    assert.same({ 0, 2, 0 }, out.s.shape)
    assert.equal("int32", out.s.dtype)
    assert.same({ 4, 8 }, loop { m = sc.tensor(2), x = sc.tensor { 1.0, 2.0 } }.y:totable())
  end)

  it("take regions of an image that are constants", function()
    local function floats(...) return bytes(9, string.pack("<" .. ("f"):rep(select("#", ...)), ...)) end
    local run = load { inputs = { value("x", 1, { 1, 1, 2, 2 }) }, outputs = { value("y", 1, { 1, 1, 1, 1 }) }, opset = 10,
      inits = { tensor("r", 1, { 1, 4 }, floats(0, 0, 1, 1)), tensor("b", 7, { 1 }, bytes(9, string.pack("<i8", 0))) },
      nodes = { node("RoiAlign", { "x", "r", "b" }, { "y" }, attr_int("sampling_ratio", 1)) } }
    assert.same({ { { { 2.5 } } } }, run { x = sc.tensor { { { { 1.0, 2.0 }, { 3.0, 4.0 } } } } }.y:totable())
  end)

  it("pick what floats of 32 bits pick when they are resized", function()
    local six = tensor("s", 1, { 1 }, bytes(9, string.pack("<f", 0.6)))       -- 1.5 / 0.6 is 2.5 there, less in 64 bits
    local mode = bytes(5, bytes(1, "nearest_mode") .. bytes(4, "floor") .. int(20, 3))
    local run = load { inputs = { value("x", 1, { 4 }) }, outputs = { value("y", 1, { 2 }) }, inits = { six },
      nodes = { node("Resize", { "x", "", "s" }, { "y" }, mode) } }
    assert.same({ 0, 2 }, run { x = sc.tensor { 0.0, 1.0, 2.0, 3.0 } }.y:totable())
  end)

  it("have a hardmax of nothing", function()
    local run = load { inputs = { value("x", 1, { "n", "m" }) }, outputs = { value("y", 1, { "n", "m" }) }, nodes = { node("Hardmax", { "x" }, { "y" }) } }
    assert.same({ 2, 0 }, run { x = sc.zeros(2, 0) }.y.shape)
    assert.same({ { 0, 1, 0 } }, run { x = sc.tensor { { 1.0, 3.0, 3.0 } } }.y:totable())
  end)

  it("run directly when their course depends on values", function()
    local run = load { inputs = { value("x", 1, { "n" }) }, outputs = { value("y", 7, { 1, "m" }) }, nodes = { node("NonZero",
      { "x" }, { "y" }) } }
    assert.same({ { 1, 2 } }, run { x = sc.tensor { 0.0, 1.0, 2.0 } }.y:totable())
    assert.same({ { 0 } }, run { x = sc.tensor { 3.0, 0.0, 0.0 } }.y:totable())
    assert.is_false(run.recorded)
  end)

  it("are refused when they are broken", function()
    local good = model { inputs = X, outputs = Y, nodes = { node("Relu", { "x" }, { "y" }) } }
    for cut = 1, #good - 1, 3 do pcall(sc.load_graph, file(good:sub(1, cut), "cut.onnx")) end
    refused("\7\7\7\7", "malformed")
    refused(model { inputs = X, outputs = Y, nodes = { node("Frobnicate", { "x" }, { "y" }, bytes(3, "here")) } }, "here",
      "Frobnicate", "not supported")
    refused(model { inputs = X, outputs = Y, nodes = { node("Relu", { "z" }, { "y" }) } }, "z", "not defined")
    refused(model { inputs = X, outputs = Y, nodes = { node("Relu", { "b" }, { "a" }), node("Relu", { "a" }, { "b" }) } },
      "not defined before")
    refused(model { inputs = X, outputs = Y, nodes = { node("Relu", { "x" }, { "y" }), node("Relu", { "x" }, { "y" }) } }, "twice")
    refused(model { inputs = X, outputs = Y }, "y", "not defined")
    local function init(elem, dims, rest) return model { inputs = X, outputs = X, inits = { tensor("w", elem, dims, rest) } } end
    refused(init(1, { 2 }, bytes(9, "123")), "w", "3 bytes")
    refused(init(1, { 3 }, bytes(4, string.pack("<ff", 1, 2))), "2 values")
    refused(init(1, { 1 << 40, 1 << 40 }, ""), "too large")
    refused(init(1, { -1 }, ""), "negative")
    refused(init(1, { 1 << 40 }, ""), "0 values")
    refused(init(99, { 1 }, ""), "element type 99")
    local perm = bytes(5, bytes(1, "perm") .. int(8, 1) .. int(8, 0) .. int(20, 7))
    local turned = load { inputs = { value("x", 1, { 3 }) }, outputs = { value("y", 1, { 3 }) }, nodes = { node("Transpose", { "x" }, { "y" }, perm) } }
    assert.has_error(function() turned { x = sc.zeros(3) } end)
  end)

  it("may not nest without end", function()
    local g = bytes(2, "deep")
    for _ = 1, 10000 do g = bytes(1, node("If", { "c" }, { "y" }, bytes(5, bytes(1, "then_branch") .. bytes(6, g) .. int(20, 5)))) end
    refused(int(1, 7) .. bytes(7, g), "nested")
  end)

  it("take data from files in their own folder only", function()
    local function external(where, more)
      return model { inputs = { value("x", 1, { 2 }) }, outputs = { value("y", 1, { 2 }) }, nodes = { node("Add", { "x", "w" }, { "y" }) },
        inits = { tensor("w", 1, { 2 }, bytes(13, bytes(1, "location") .. bytes(2, where)) .. (more or "") .. int(14, 1)) } }
    end
    file(string.pack("<fff", 0, 3, 4), "data.bin")
    local offset = bytes(13, bytes(1, "offset") .. bytes(2, "4"))
    assert.same({ 3, 4 }, sc.load_graph(file(external("data.bin", offset))) { x = sc.zeros { 2 } }.y:totable())
    refused(external("data.bin", bytes(13, bytes(1, "offset") .. bytes(2, "8"))), "past the file's end")
    refused(external("data.bin", bytes(13, bytes(1, "offset") .. bytes(2, "-8"))))
    refused(external("/etc/passwd"), "outside")
    refused(external("../data.bin"), "outside")
    refused(external("a/../../data.bin"), "outside")
    os.execute("ln -s /etc/passwd " .. folder .. "/link && mkfifo " .. folder .. "/pipe && ln -s / " .. folder .. "/root")
    refused(external("link"), "link")
    refused(external("root/etc/passwd"))
    refused(external("pipe"), "not a regular file")
    refused(external("."))
    os.execute("ln " .. folder .. "/data.bin " .. folder .. "/second")
    refused(external("second"), "hard link")
  end)
end)

-- ---------------------------------------------------------------- saving

local function close(got, want, tol)
  assert.same(want.shape, got.shape)
  local scale = math.max(want:abs():max():item(), 1e-6)
  assert.is_true((got - want):abs():max():item() <= tol * scale)
end

--- A model saved from a graph with a named batch size, its input and its output.
local function saved(name, net, x, shape, options)
  net:eval()
  local path = folder .. "/" .. name .. ".onnx"
  return sc.no_grad(function()
    local g = sc.graph()
    g:output("y", net(g:input("x", shape, x.dtype)))
    g:save(path, options)
    return { path = path, x = x, y = net(x), net = net, name = name, run = g:compile() }
  end)
end

local all
local function each()
  if all then return ipairs(all) end
  sc.manual_seed(3)
  all = { saved("mlp", models.MLP(), sc.randn { 3, 784 }, { "batch", 784 }), saved("cnn", models.CNN(), sc.randn { 2, 1, 28, 28 },
    { "batch", 1, 28, 28 }),
    saved("lstm", models.LSTMNet(), sc.randn { 2, 5, 128 }, { "batch", "time", 128 }),
    saved("gpt", models.GPT(), sc.randint(1, 66, { 2, 7 }), { "batch", "time" }) }
  return ipairs(all)
end

local function has(command) return os.execute(command .. " >/dev/null 2>&1") == true end

describe("saved graphs", function()
  it("come back with the same numbers", function()
    for _, m in each() do
      assert.equal(m.run { x = m.x }.y:tostring_bytes(), sc.load_graph(m.path) { x = m.x }.y:tostring_bytes(), m.name)
      close(sc.load_graph(m.path) { x = m.x }.y, m.y, 1e-6)
      close(sc.load_graph(m.path, { nodes = true }) { x = m.x }.y, m.y, 1e-6)
    end
  end)

  it("serve other sizes", function()
    sc.no_grad(function()
      local x = sc.randn { 5, 784 }
      local _ = each()
      close(sc.load_graph(all[1].path) { x = x }.y, all[1].net(x), 1e-6)
      x = sc.randn { 1, 9, 128 }
      close(sc.load_graph(all[3].path) { x = x }.y, all[3].net(x), 1e-6)
    end)
  end)

  it("may keep weights beside them", function()
    local m = saved("outside", models.MLP(), sc.randn { 2, 784 }, { "batch", 784 }, { external = true })
    assert.is_true(sc.load_graph(m.path) { x = m.x }.y:eq(m.y):all():item())
    local f = assert(io.open(m.path))
    assert.is_true(f:seek("end") < 20000)
    f:close()
  end)

  it("keep the 1-based face of index values, or move it", function()
    local path = folder .. "/index.onnx"
    local function save(options)
      local g = sc.graph()
      local i, w = g:input("i", { "n" }, "int64"), sc.tensor { { 1.0, 5.0 }, { 7.0, 2.0 } }
      local rows = sc.nn.functional.embedding(i, w)
      g:output("rows", rows)
      g:output("best", rows:argmax(2))
      g:save(path, options)
      return sc.load_graph(path)
    end
    local out = save() { i = sc.tensor { 2, 1 } }
    assert.same({ { 7, 2 }, { 1, 5 } }, out.rows:totable())
    assert.same({ 1, 2 }, out.best:totable())
    out = save { index_base = 0 } { i = sc.tensor { 1, 0 } }
    assert.same({ { 7, 2 }, { 1, 5 } }, out.rows:totable())
    assert.same({ 0, 1 }, out.best:totable())
  end)

  it("can be those of compiled functions", function()
    local w = sc.randn { 4, 3 }
    local f = sc.compile(function(x) return (x:matmul(w) + 1):softmax(2), x:mean(1) end)
    local x = sc.randn { 2, 4 }
    local y, m = f(x)
    local path = folder .. "/traced.onnx"
    f.last.graph:save(path)
    local out = sc.load_graph(path) { arg1 = x }
    close(out.out1, y, 1e-6)
    close(out.out2, m, 1e-6)
  end)

  it("say what other runtimes will not know", function()
    local g = sc.graph()
    g:output("y", g:input("x", { 2 }):lgamma())
    local said = g:save(folder .. "/own.onnx")
    assert.equal(1, #said)
    assert.equal("lgamma", said[1].op)
    assert.truthy(said[1].where:find("onnx_spec.lua:", 1, true))
    assert.is_true(sc.load_graph(folder .. "/own.onnx") { x = sc.tensor { 0.5, 4.5 } }.y:equal(sc.tensor { 0.5, 4.5 }:lgamma()))
    assert.has_error(function() g:save(folder .. "/no.onnx", { extern = true }) end)
    assert.is_nil(io.open(folder .. "/no.onnx"))
  end)

  it("pass ONNX's checker", function()
    if not has "/usr/bin/python3 -c 'import onnx'" then return pending "python3-onnx is not installed" end
    local paths = {}
    for _, m in each() do paths[#paths + 1] = m.path end
    local program = "import onnx,sys\nfor p in sys.argv[1:]: onnx.checker.check_model(p, full_check=True)\n"
    assert.is_true(has("/usr/bin/python3 " .. file(program, "check.py") .. " " .. table.concat(paths, " ")))
  end)

  it("give the same numbers in ONNX Runtime", function()
    local ort = os.getenv "SCONCE_ORT"
    if not (ort and has("test -d " .. ort .. "/node_modules/onnxruntime-node") and has "node --version") then
      return pending "SCONCE_ORT does not name a folder with node_modules/onnxruntime-node"
    end
    for _, m in each() do
      local data = {}
      for i, v in ipairs(m.x:reshape { -1 }:totable()) do data[i] = m.x.dtype == "int64" and string.format("%d", v)
        or string.format("%.9g", v) end
      local feeds = file(string.format('{"x":{"dtype":"%s","dims":[%s],"data":[%s]}}', m.x.dtype, table.concat(m.x.shape, ","),
        table.concat(data, ",")), "feeds.json")
      local pipe = io.popen(string.format("node spec/support/onnx_ort.js %s %s %s", ort, m.path, feeds))
      local text = pipe:read "a"
      pipe:close()
      local numbers = {}
      for s in (text:match '"data":%[([^%]]*)%]' or ""):gmatch "[^,]+" do numbers[#numbers + 1] = tonumber(s) end
      assert.equal(m.y:numel(), #numbers, m.name .. ": " .. text:sub(1, 200))
      close(sc.tensor(numbers, { dtype = "float32" }):reshape(m.y.shape), m.y, 1e-5)
    end
  end)
end)

describe("onnx cases", function()
  it("of a folder named by SCONCE_ONNX_CASES pass", function()
    local where = os.getenv "SCONCE_ONNX_CASES"
    if not where then return pending "SCONCE_ONNX_CASES names no folder" end
    local cases, bad = require "spec.support.onnx_cases", {}
    for name in io.popen("ls " .. where):lines() do
      local ok, why = cases.run(where .. "/" .. name)
      if not ok and not tostring(why):find "not supported" then bad[#bad + 1] = name .. ": " .. tostring(why) end
    end
    assert.same({}, bad)
  end)
end)

describe("elements of 4 and 2 bits in files", function()
  local function known(elem, dims, rest)
    return load { opset = 25, inputs = {}, outputs = { value("y", 1, dims) }, inits = { tensor("w", elem, dims, rest) },
      nodes = { node("Cast", { "w" }, { "y" }, attr_int("to", 1)) } } {}.y:totable()
  end
  local function raw(...) return bytes(9, string.char(...)) end
  local function typed(...) return bytes(5, varint((...)) .. varint(select(2, ...))) end

  it("share bytes, the first in the low bits, an odd one at the end", function()
    for _, how in ipairs { raw, typed } do
      assert.same({ 1, 2, -1 }, known(22, { 3 }, how(0x21, 0x0f)))
      assert.same({ 1, 2, 15 }, known(21, { 3 }, how(0x21, 0x0f)))
      assert.same({ 0.5, -1, 6 }, known(23, { 3 }, how(0xa1, 0x07)))
      assert.same({ 1, -2, -1, 0, 1 }, known(26, { 5 }, how(0x39, 0x01)))
      assert.same({ { 1, 2 }, { 3, 0 }, { 1, 2 } }, known(25, { 3, 2 }, how(0x39, 0x09)))
    end
  end)

  it("are refused when bytes are missing or too many", function()
    for _, n in ipairs { 2, 5, 6 } do
      assert.has_error(function() known(22, { n }, raw(0x21, 0x0f)) end)
      assert.has_error(function() known(22, { n }, typed(0x21, 0x0f)) end)
    end
  end)
end)

describe("quantisation by blocks", function()
  local x = sc.randn(3, 10) * 4
  local scale = sc.rand(3, 4) + 0.1
  local zero = sc.randint(-2, 3, { 3, 4 })
  local function by_hand(fn)
    local y = {}
    for i = 1, 3 do
      y[i] = {}
      for j = 1, 10 do y[i][j] = fn(x[i][j]:item(), scale[i][(j + 2) // 3]:item(), zero[i][(j + 2) // 3]:item()) end
    end
    return y
  end
  local function float_data(t) return bytes(9, t:tostring_bytes()) end
  local function run(op, input, elem, zeros)
    return load { opset = 25, inputs = { value("x", elem, { 3, 10 }) }, outputs = { value("y", op == "QuantizeLinear" and 3 or 1, { 3, 10 }) },
      inits = { tensor("s", 1, { 3, 4 }, float_data(scale)), tensor("z", 3, { 3, 4 }, float_data(zeros)) },
      nodes = { node(op, { "x", "s", "z" }, { "y" }, attr_int("axis", 1) .. attr_int("block_size", 3)) } } { x = input }.y
  end

  it("has a scale and a zero point for each, the last one shorter", function()
    local q = run("QuantizeLinear", x, 1, zero:to("int8"))
    assert.equal("int8", q.dtype)
    assert.same(by_hand(function(v, s, z)
      local r = string.unpack("f", string.pack("f", v / s))
      local down = math.floor(r)
      local nearest = r - down > 0.5 and down + 1 or r - down < 0.5 and down or (down % 2 == 0 and down or down + 1)
      return math.max(-128, math.min(127, math.tointeger(nearest) + z))
    end), q:totable())
    close(sc.tensor(by_hand(function(v, s, z) return (math.floor(v) - z) * s end)),
      run("DequantizeLinear", x:floor():to("int8"), 3, zero:to("int8")), 1e-6)
  end)
end)

describe("models of others", function()
  it("can be saved as graphs of ours, sizes open or not", function()
    local run = load { inputs = X, outputs = Y, nodes = { node("Mul", { "x", "w" }, { "h" }), node("Softmax", { "h" }, { "y" }) },
      inits = { tensor("w", 1, { 2 }, bytes(9, string.pack("<ff", 2, -3))) } }
    local x, path = sc.randn { 4, 2 }, folder .. "/ours.onnx"
    assert.same({}, run:save(path))
    local ours = sc.load_graph(path)
    assert.same({ "n", 2 }, ours.inputs[1].shape)
    assert.equal(run { x = x }.y:tostring_bytes(), ours { x = x }.y:tostring_bytes())
    run:save(path, { sizes = { n = 4 } })
    assert.same({ 4, 2 }, sc.load_graph(path).inputs[1].shape)
    local values = load { inputs = X, outputs = { value("y", 7, { 2, "m" }) }, nodes = { node("NonZero", { "x" }, { "y" }) } }
    assert.has_error(function() values:save(path) end)
  end)
end)
