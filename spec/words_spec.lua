-- What errors say: the name the script used, the argument, the line; and a hint where people coming from PyTorch or from Lua tables slip.
local sc = require "sconce"
local F = sc.nn.functional
local x = sc.ones(2, 3)

-- what runs, words of the message
local MESSAGES = {
  { function() local y = F.embedding(sc.tensor { 9 }, sc.ones(3, 2)) return y end,
    "nn.functional.embedding: argument 1 (input): index 9 is out of range 1..3" },
  { function() local y = F.cross_entropy(x, sc.tensor { 1, 7 }) return y end, "nn.functional.cross_entropy: argument 2 (target): class 7" },
  { function() local y = F.nll_loss(x, sc.tensor { 1, 7 }) return y end, "nn.functional.nll_loss: argument 2 (target): class 7" },
  { function() local y = x[sc.tensor { 9 }] return y end, "index: index 9 is out of range 1..2" },
  { function() x[{ 1, sc.tensor { 9 } }] = 1 end, "index: index 9 is out of range 1..3" },
  { function() x[1] = sc.ones(7) end, "index: shape {7} does not broadcast to {3}" },
  { function() x:copy_(sc.ones(7)) end, "copy_: argument 2 (src): shape {7}" },
  { function() local y = x:median(3) return y end, "median: argument 2 (dim): dimension 3" },
  { function() local y = F.gelu(sc.tensor { 1 }, "tanh") return y end, "gelu: not defined for int64" },
  { function() local y = F.prelu(x, sc.ones(7)) return y end, "prelu: argument 2 (weight): expected 3 numbers" },
  { function() local y = x:cov { fweights = sc.tensor { 1, -1, 1 } } return y end, "cov: argument fweights: expected at least 0, found -1" },
  { function() local y = x:quantile(sc.tensor { 1.5 }) return y end, "quantile: argument 2 (q): expected at most 1, found 1.5" },
  { function() return x.device end, 'no field "device": all tensors are in the host' },
  { function() local y = x:cuda() return y end, 'no field "cuda": all tensors are in the host' },
  { function() return x.data end, "x:detach()" },
  { function() return x.shap end, "did you mean shape" },
  { function() for _ in ipairs(x) do x:dim() end end, "for i = 1, #x do" },
  { function() for _ in pairs(x) do x:dim() end end, "a tensor is not a table" },
  { function() local n = #sc.tensor(1) return n end, "x:numel()" },
  { function() sc.save(sc.nn.Linear(2, 2)) end, "model:state_dict()" },
  { function() sc.save("x.safetensors", sc.nn.Linear(2, 2)) end, "model:state_dict()" },
  { function() local y = sc.ones { 2, 3, dtype = "int64" } return y end, "a list with names in it" },
  { function() local y = sc.tensor { 1, 2, dtype = "int64" } return y end, "a list with names in it" },
  { function() local y = sc.cat { x, x, dim = 2 } return y end, "a list with names in it" },
  { function()
    local _ <close> = sc.no_grad()
    local w = sc.ones({ 2 }, { requires_grad = true });
    (w * 2):sum():backward()
  end, "gradients are off here" },
  { function() local w = sc.ones({ 2 }, { requires_grad = true }) w:unsqueeze_(1) end, "unsqueeze_: a leaf that requires gradients keeps its shape" },
  { function() sc.compile(function(v) return v:squeeze_() * 2 end)(sc.ones(1, 3)) end, "squeeze_: a tensor from outside a compiled function keeps its shape" },
  { function()
    local f = sc.compile(function(v) return v * 2 end)
    f(sc.ones(2))
    f.last:profile(true)
    f(sc.ones(2))
    f.last:profile { trace = "/nowhere/at/all.json" }
  end, "profile: option trace: /nowhere/at/all.json: No such file or directory" },
  { function() local y = x:view("complex64") return y end, "view: argument 2 (size): expected sizes or a dtype" },
  { function() local y = sc.ones(3):view("float64") return y end, "whole numbers of float64" },
  { function() local y = x:view("bool") return y end, "view: bytes of float32 are no truth values" },
}

describe("errors", function()
  for _, row in ipairs(MESSAGES) do
    it("say: " .. row[2], function()
      local ok, text = pcall(row[1])
      assert.is_false(ok)
      assert.truthy(text:find(row[2], 1, true), text)
      assert.truthy(text:find("^%S*words_spec.lua:%d+: "), text)
    end)
  end

  it("found while a graph runs name the op that was called and where", function()
    local f = sc.compile(function(i) return F.embedding(i, sc.ones(3, 2)) end)
    f(sc.tensor { 1 })
    local ok, text = pcall(f, sc.tensor { 9 })
    assert.is_false(ok)
    assert.truthy(text:find("nn.functional.embedding: index 9 is out of range 1..3 (recorded at ", 1, true), text)
    local g = sc.compile(function(v, w) return v:cov { fweights = w } end)
    g(x, sc.tensor { 1, 2, 1 })
    assert.has_error(function() g(x, sc.tensor { 1, -2, 1 }) end)
  end)
end)

describe("views spelt in place", function()
  it("change the tensor itself, with its history", function()
    local leaf = sc.ones({ 2, 3 }, { requires_grad = true })
    local y = leaf * 2
    local same = y
    assert.equal(y, y:t_())
    assert.same({ 3, 2 }, { table.unpack(same.shape) });
    (y * sc.tensor { { 1.0, 2.0 }, { 3.0, 4.0 }, { 5.0, 6.0 } }):sum():backward()
    assert.same({ { 2, 6, 10 }, { 4, 8, 12 } }, leaf.grad:totable())
    local z = sc.ones(2, 3)
    z:unsqueeze_(1):unsqueeze_(-1):transpose_(1, 2)
    assert.same({ 2, 1, 3, 1 }, { table.unpack(z.shape) })
    z:squeeze_(2):squeeze_()
    assert.same({ 2, 3 }, { table.unpack(z.shape) })
  end)

  it("of another dtype read the same bytes", function()
    assert.same({ 1065353216, -1073741824 }, sc.tensor { 1.0, -2.0 }:view("int32"):totable())
    assert.same({ { 0, 0, 128, 63 }, { 0, 0, 0, 192 } }, sc.tensor { { 1.0 }, { -2.0 } }:view("uint8"):totable())
    local zeros = sc.zeros(2)
    zeros:view("int32"):fill_(0x3f800000)
    assert.same({ 1, 1 }, zeros:totable())
    local f = sc.compile(function(v) local y = v * 1 y:view("int32"):fill_(0x3f800000) return y:sum() end)
    assert.equal(2, f(sc.ones(2)):item())
    assert.equal(4, f(sc.zeros(4)):item())
  end)
end)
