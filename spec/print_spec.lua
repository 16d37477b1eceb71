local sc = require "sconce"

local nan, inf = 0 / 0, math.huge

-- Texts as PyTorch 1.13.1 prints them, `print(torch.tensor(…))`, but for Lua's words (true, size={…}, grad_fn=<mul>), dtypes
-- without "torch." and the size of what is summarised.
local ROWS = {
  { sc.tensor { 1.0, 2, 3 }, "tensor([1., 2., 3.])" },
  { sc.tensor { 1.5, -2.25, 1000 }, "tensor([   1.5000,   -2.2500, 1000.0000])" },
  { sc.tensor { 1e-5, 1 }, "tensor([1.0000e-05, 1.0000e+00])" },
  { sc.tensor { nan, inf, -inf, 1.8446744073709552e19, 1e-30 }, "tensor([       nan,        inf,       -inf, 1.8447e+19, 1.0000e-30])" },
  { sc.tensor { nan, 1.0 }, "tensor([nan, 1.])" },
  { sc.zeros(3), "tensor([0., 0., 0.])" },
  { sc.zeros(0), "tensor([])" },
  { sc.zeros(3, 0, 2), "tensor([], size={3, 0, 2})" },
  { sc.zeros({ 0 }, { dtype = "int64" }), "tensor([], dtype=int64)" },
  { sc.tensor(2.5), "tensor(2.5000)" },
  { sc.tensor(-3), "tensor(-3)" },
  { sc.tensor { true, false }, "tensor([ true, false])" },
  { sc.tensor { { 1, -20 }, { 300, 4 } }, "tensor([[  1, -20],\n        [300,   4]])" },
  { sc.tensor { { { 1 } }, { { 2 } } }, "tensor([[[1]],\n\n        [[2]]])" },
  { sc.arange(30), "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n"
    .. "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])" },
  { sc.tensor({ 1, 2 }, { dtype = "float64" }), "tensor([1., 2.], dtype=float64)" },
  { sc.tensor({ 1.5, 2 }, { dtype = "bfloat16" }), "tensor([1.5000, 2.0000], dtype=bfloat16)" },
  { sc.tensor({ 0.1 }, { dtype = "float16" }), "tensor([0.1000], dtype=float16)" },
  { sc.tensor({ 255 }, { dtype = "uint8" }), "tensor([255], dtype=uint8)" },
  { sc.tensor({ -1 }, { dtype = "uint64" }), "tensor([18446744073709551615], dtype=uint64)" },
  { sc.tensor { math.mininteger }, "tensor([-9223372036854775808])" },
  { sc.tensor { 1e10, 2.0 }, "tensor([1.0000e+10, 2.0000e+00])" },
  { sc.full({ 1 }, 123456789.0), "tensor([1.2346e+08])" },
  { sc.arange(2000), "tensor([   0,    1,    2,  ..., 1997, 1998, 1999], size={2000})" },
  { sc.tensor({ 1, 2.5 }, { requires_grad = true }), "tensor([1.0000, 2.5000], requires_grad=true)" },
  { sc.tensor({ 1, 2.5 }, { requires_grad = true }) * 2, "tensor([2., 5.], grad_fn=<mul>)" },
  { sc.arange(6):reshape(2, 3):t(), "tensor([[0, 3],\n        [1, 4],\n        [2, 5]])" },
}

describe("the text of a tensor", function()
  for _, row in ipairs(ROWS) do
    it("is laid out as people know it: " .. row[2]:sub(1, 60):gsub("\n", " "), function() assert.equal(row[2], tostring(row[1])) end)
  end

  it("shows three at either end of a large one, whatever its size", function()
    local text = tostring(sc.zeros(1000, 1000))
    local line = "[0., 0., 0.,  ..., 0., 0., 0.]"
    local three = line .. ",\n        " .. line .. ",\n        " .. line
    assert.equal("tensor([" .. three .. ",\n        ...,\n        " .. three .. "], size={1000, 1000})", text)
  end)

  it("costs what it shows, not what there is", function()
    local x = sc.zeros(1):expand(1 << 20, 1 << 20)
    assert.truthy(#tostring(x) < 1000)
  end)

  it("is bounded for many dimensions", function()
    local shape = {}
    for i = 1, 64 do shape[i] = 1 end
    assert.truthy(tostring(sc.ones(shape)):find("1.", 1, true))
    for i = 1, 20 do shape[i] = 2 end
    assert.truthy(#tostring(sc.zeros(shape)) < 4000000)
  end)

  it("works for symbolic and freed tensors", function()
    assert.equal("tensor(<symbolic>, size={2, 3})", tostring(sc.graph():input("x", { 2, 3 })))
    local x = sc.zeros(1)
    x:free()
    assert.equal("tensor(freed)", tostring(x))
  end)
end)
