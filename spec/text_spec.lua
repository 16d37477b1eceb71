--- Graphs as text: what is printed reads back as the same graph, and what is not a graph is refused with its line.
local sc = require "sconce"
local core = require "sconce.core"
local nn, optim, F = sc.nn, sc.optim, sc.nn.functional

--- Reads the graph's text with the same captured tensors; fails unless that prints the same.
local function again(g)
  local text, named = g:text(), {}
  for _, c in ipairs(g:named()) do named[c.name] = c.tensor end
  local read = core.graph_parse(text, named)
  assert.equal(text, read:text())
  assert.equal(text, core.graph_parse(text):text())
  return read
end

local function refused(text, ...)
  local ok, err = pcall(core.graph_parse, text)
  assert.is_false(ok, text)
  for _, want in ipairs { ... } do assert.truthy(err:find(want, 1, true), err .. " -- does not mention: " .. want) end
end

describe("the text of a graph", function()
  it("says what was recorded, with lines and named sizes", function()
    local g = sc.graph()
    local x = g:input("x", { "batch", 3 })
    g:output("y", (x * 2):sum { dim = 2, keepdim = true })
    assert.equal([[
sconce graph 1
size batch
%1 = input "x" float32 {batch, 3}
base 1
%2 = mul(%1, 2) : float32 {batch, 3} at "spec/text_spec.lua":26
%3 = sum(%2) {dim = [1], keepdim = true} : float32 {batch, 1} at "spec/text_spec.lua":26
output "y" %3
]], g:text())
    again(g.core)
  end)

  it("reads back as the graph that computes the same", function()
    local read = core.graph_parse [[
      size n
      %1 = input "x" float32 {n, 4}      -- types of results may be left out
      %2 = transpose(%1) {dim0 = 0, dim1 = 1}
      %3 = full() {size = [4, n*2-1], fill_value = 0.5}
      %4 = matmul(%1, %3)
      %4 = add_(%4, 1)
      output "y" %4 output "t" %2]]
    local out = read:instantiate { 3 }:run { x = sc.ones { 3, 4 } }
    assert.same({ { 3, 3, 3, 3, 3 }, { 3, 3, 3, 3, 3 }, { 3, 3, 3, 3, 3 } }, out.y:totable())
    assert.same({ 4, 3 }, out.t.shape)
  end)

  it("keeps what a training step does: updates, views, random numbers, generators", function()
    sc.manual_seed(1)
    local model, gen = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3)), sc.Generator(5)
    local opt, count = optim.AdamW(model:parameters(), { lr = 1e-2 }), sc.zeros { 2, 2 }
    local step = sc.compile(function(x, t)
      opt:zero_grad()
      local loss = F.cross_entropy(model(x) + sc.rand(3, { generator = gen }), t)
      loss:backward()
      opt:step()
      count[1] = count[1] + 1
      count:t():mul_(2)
      return loss
    end)
    step(sc.randn { 5, 4 }, sc.tensor { 1, 2, 3, 1, 2 })
    again(step.last.core)
  end)

  it("keeps branches and loops, and what they capture", function()
    local w = sc.tensor { 2.0, 3.0 }
    local g = sc.graph()
    local x = g:input("x", { "n", 2 })
    local y = sc.cond(x:sum():gt(0), function(a) return a * w end, function(a) return a - 1.5 end, x)
    local i, a = sc.while_loop(function(i) return i:lt(3) end, function(i, a) return i + 1, a * w end, sc.tensor(0), y)
    local h, ys = sc.scan(function(h, r) return h + r, h * r end, w, x)
    for k, t in ipairs { i, a, h, ys } do g:output("o" .. k, t) end
    g:text()
    local read = again(g.core):instantiate { 4 }
    local feeds = { x = sc.randn { 4, 2 } }
    local want, got = g:run(feeds), read:run(feeds)
    for name, t in pairs(want) do assert.is_true(t:equal(got[name]), name) end
  end)

  it("keeps numbers to the bit", function()
    local g = core.graph_parse [[
      %1 = input "x" float64 {}
      %2 = number nan(9221120237041090561)
      %3 = mul(%1, 0.1) %4 = mul(%3, -0.0) %5 = mul(%4, inf) %6 = mul(%5, 5e-324) %7 = add(%6, %2) %8 = sub(%7, %2)
      %9 = pow(%8, -9223372036854775808) %10 = logical_and(%9, true)
      output "y" %10]]
    again(g)
    assert.truthy(g:text():find("mul(%3, -0.0)", 1, true))
    assert.truthy(g:text():find("5e-324", 1, true))
    assert.truthy(g:text():find("number nan(9221120237041090561)", 1, true))
  end)

  it("lays captured tensors out as they were", function()
    local base = sc.arange(12):float():reshape { 3, 4 }
    local column, all = base[{ {}, 3 }], base
    local h = sc.compile(function(x) all:add_(x); return column * 1 end)
    h(sc.ones { 4 })
    local text = h.last.core:text()
    assert.truthy(text:find("stride {4} memory 1 at 8", 1, true), text)
    local out = core.graph_parse(text):plan(7)(sc.ones { 4 })   -- zeros for the captured tensors, in one memory
    assert.same({ 1, 1, 1 }, out:totable())
  end)

  it("is refused where it is not a graph, with the line", function()
    local head = '%1 = input "x" float32 {2, 3}\n'
    refused("sconce graph 2", "version 2")
    refused(head .. "%2 = frobnicate(%1)", "line 2", "no op named frobnicate")
    refused(head .. "%2 = relu(%3)", "%3 is not defined")
    refused(head .. "%2 = relu(%1, %1)", "expected 1")
    refused(head .. "%2 = relu(nil)", "operand 1 is missing")
    refused(head .. "%1 = relu(%1)", "defined twice")
    refused(head .. "%2 = relu(%1) : float32 {3, 2}", "{2, 3}, expected float32 {3, 2}")
    refused(head .. "%2 = relu_(%1)", "first operand")
    refused(head .. "%2 = sum(%1) {dims = [1]}", "no attribute dims")
    refused(head .. "%2 = sum(%1) {dim = [1], dim = [1]}", "given twice")
    refused(head .. "%2 = sum(%1) {dim = [7]}", "out of range")
    refused(head .. '%2 = sum(%1) {keepdim = "yes"}', "wrong kind")
    refused(head .. "%2 = transpose(%1) {dim0 = 1}", "dim1 is missing")
    refused(head .. "%2 = reshape(%1) {shape = [7]}", "does not fit")
    refused(head .. "%2, %3 = relu(%1)", "1 results, expected 2")
    refused('%1 = input "x" float32 {4611686018427387904, 4}', "too large")
    refused('%1 = input "x" float32 {-1}', "negative size")
    refused('%1 = input "x" float32 {n}', "no size named n")
    refused('%1 = input "x', "does not end")
    refused('%1 = capture "w" float32 {2} stride {1099511627776}', "too much memory")
    refused('%1 = capture "w" float32 {2} memory 1 at 9223372036854775807', "out of range")
    refused('%1 = capture "w" float32 {2} %2 = capture "w" float32 {3}', "two ways")
    refused("%99999999999999999999 = number 1", "too large")
    refused("%99999999 = number 1", "out of range")
    refused("@1 = cond [] []\n" .. head .. "%2 = control_result(%1) {program = @1, index = 5}", "no such result")
    refused("@1 = cond []", "number of graphs")
    refused("@1 = while {carry = 3} [] []", "too few inputs")
    refused(("@1 = cond ["):rep(40), "nested too deep")
    refused(head .. "%2 = control_cond(%1) {program = 3}", "wrong kind")
    refused(head .. "%2 = rand() {size = [2], generator = ~1}", "no generator 1")
    refused("output \"y\" %1", "not defined")
  end)

  it("is refused or read when it is cut or a byte of it is another", function()
    local g = sc.graph()
    local x = g:input("x", { "n", 2 })
    g:output("y", sc.cond(x:sum():gt(0), function(a) return a * 2.5 end, function(a) return a end, x))
    local text = g:text()
    for cut = 1, #text - 1 do pcall(core.graph_parse, text:sub(1, cut)) end
    for at = 1, #text do
      for _, byte in ipairs { 0, 10, 34, 45, 57, 91, 123, 255 } do
        pcall(core.graph_parse, text:sub(1, at - 1) .. string.char(byte) .. text:sub(at + 1))
      end
    end
    again(g.core)
  end)
end)
