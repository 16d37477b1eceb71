local sc = require "sconce"

local function flat(x) return x:reshape(-1):totable() end

-- what, the tensor made, its values in order, its shape, its dtype
local ROWS = {
  { "zeros", function() return sc.zeros(2, 2) end, { 0, 0, 0, 0 }, { 2, 2 }, "float32" },
  { "zeros of a listed shape and dtype", function() return sc.zeros({ 2 }, { dtype = "int16" }) end, { 0, 0 }, { 2 }, "int16" },
  { "a shape without dimensions", function() return sc.ones {} end, { 1 }, {}, "float32" },
  { "an empty shape", function() return sc.ones(0, 3) end, {}, { 0, 3 }, "float32" },
  { "full of a float", function() return sc.full({ 2 }, 0.5) end, { 0.5, 0.5 }, { 2 }, "float32" },
  { "full of an integer", function() return sc.full({ 2 }, 3) end, { 3, 3 }, { 2 }, "int64" },
  { "full of a boolean", function() return sc.full({ 1 }, true) end, { true }, { 1 }, "bool" },
  { "full cut to an integer dtype", function() return sc.full({ 1 }, 2.9, { dtype = "int32" }) end, { 2 }, { 1 }, "int32" },
  { "arange of one number", function() return sc.arange(3) end, { 0, 1, 2 }, { 3 }, "int64" },
  { "arange without its end", function() return sc.arange(1, 2, 0.25) end, { 1, 1.25, 1.5, 1.75 }, { 4 }, "float32" },
  { "arange downwards", function() return sc.arange(3, 0, -2) end, { 3, 1 }, { 2 }, "int64" },
  { "arange by name", function() return sc.arange { ["end"] = 2 } end, { 0, 1 }, { 2 }, "int64" },
  { "arange of nothing", function() return sc.arange(2, 2) end, {}, { 0 }, "int64" },
  { "range with its end", function() return sc.range(1, 3) end, { 1, 2, 3 }, { 3 }, "float32" },
  { "linspace", function() return sc.linspace(0, 1, 5) end, { 0, 0.25, 0.5, 0.75, 1 }, { 5 }, "float32" },
  { "linspace of one", function() return sc.linspace(7, 9, 1) end, { 7 }, { 1 }, "float32" },
  { "linspace of integers", function() return sc.linspace(0, 5, 3, { dtype = "int64" }) end, { 0, 2, 5 }, { 3 }, "int64" },
  { "logspace", function() return sc.logspace(0, 3, 4, 2) end, { 1, 2, 4, 8 }, { 4 }, "float32" },
  { "eye", function() return sc.eye(2, 3) end, { 1, 0, 0, 0, 1, 0 }, { 2, 3 }, "float32" },
  { "ones_like", function() return sc.ones_like(sc.tensor { 1, 2 }) end, { 1, 1 }, { 2 }, "int64" },
  { "full_like in another dtype", function() return sc.full_like(sc.tensor { 1, 2 }, 1.5, { dtype = "float64" }) end, { 1.5, 1.5 }, { 2 },
    "float64" },
  { "new_full", function() return sc.tensor({ 1 }, { dtype = "float64" }):new_full({ 2 }, 4) end, { 4, 4 }, { 2 }, "float64" },
  { "new_tensor", function() return sc.tensor({ 1 }, { dtype = "int8" }):new_tensor { 1.5, 2 } end, { 1, 2 }, { 2 }, "int8" },
  { "fill_ through a view", function() local x = sc.zeros(2, 3); x:t():fill_(2); return x end, { 2, 2, 2, 2, 2, 2 }, { 2, 3 }, "float32" },
  { "fill by a tensor", function() return sc.zeros(2):fill(sc.tensor(1.5)) end, { 1.5, 1.5 }, { 2 }, "float32" },
  { "zero_ of every other element", function() local x = sc.ones(4); x:as_strided({ 2 }, { 2 }):zero_(); return x end, { 0, 1, 0, 1 },
    { 4 }, "float32" },
  { "copy_ with broadcast and conversion", function() return sc.zeros({ 2, 2 }, { dtype = "int32" }):copy_(sc.tensor { 1.9, -1.9 }) end,
    { 1, -1, 1, -1 }, { 2, 2 }, "int32" },
  { "the short conversions", function() return sc.tensor({ 0.0, 2.5 }):bool():long() end, { 0, 1 }, { 2 }, "int64" },
  { "a table of 0-d members", function() return sc.tensor { { 1, 2 }, { 3, 4.5 } } end, { 1, 2, 3, 4.5 }, { 2, 2 }, "float32" },
}

describe("making tensors", function()
  for _, row in ipairs(ROWS) do
    it("gives the values, shape and dtype of PyTorch: " .. row[1], function()
      local x = row[2]()
      assert.same({ row[3], row[4], row[5] }, { flat(x), x.shape, x.dtype })
    end)
  end

  -- what is wrong, the call, a word of the message
  local WRONG = {
    { "a negative size", function() sc.zeros(-1) end, "negative" },
    { "a size that overflows", function() sc.zeros(1 << 62, 4) end, "too large" },
    { "a size that overflows in bytes", function() sc.empty((1 << 61) + 1) end, "too large" },
    { "a number that does not fit", function() sc.full({ 1 }, 300, { dtype = "uint8" }) end, "uint8" },
    { "NaN as an integer", function() sc.full({ 1 }, 0 / 0, { dtype = "int64" }) end, "int64" },
    { "a number that a half cannot hold", function() sc.zeros({ 1 }, { dtype = "float16" }):fill_(1e6) end, "float16" },
    { "a step of zero", function() sc.arange(0, 1, 0) end, "zero" },
    { "a step that becomes zero", function() sc.arange(0, 1, 0.5, { dtype = "int64" }) end, "zero" },
    { "a step the wrong way", function() sc.arange(0, 1, -1) end, "reached" },
    { "an endless range", function() sc.arange(0, math.huge) end, "unsupported" },
    { "a huge range", function() sc.arange(math.mininteger, math.maxinteger) end, "too long" },
    { "steps that are no integer", function() sc.linspace(0, 1, 2.0) end, "integer" },
    { "negative steps", function() sc.logspace(0, 1, -1) end, "negative" },
    { "gradients of integers", function() sc.zeros({ 1 }, { dtype = "int64", requires_grad = true }) end, "floating" },
    { "a misspelt option", function() sc.zeros({ 1 }, { dtyp = "int64" }) end, "dtype" },
    { "a ragged table", function() sc.tensor { { 1, 2 }, { 3 } } end, "lengths" },
    { "a copy that does not broadcast", function() sc.zeros(2, 3):copy_(sc.ones(2)) end, "broadcast" },
    { "writing into an expanded view", function() sc.zeros(1):expand(3):fill_(1) end, "overlaps" },
  }
  for _, row in ipairs(WRONG) do
    it("refuses " .. row[1], function()
      local ok, message = pcall(row[2])
      assert.is_false(ok)
      assert.truthy(message:find(row[3], 1, true), message)
      assert.truthy(message:find("create_spec.lua", 1, true), message)
    end)
  end

  it("refuses a table nested ten thousand deep", function()
    local t = { 1 }
    for _ = 1, 10000 do t = { t } end
    assert.has_error(function() sc.tensor(t) end)
  end)

  it("makes leaves that want gradients", function()
    local x = sc.full({ 2 }, 3.0, { requires_grad = true })
    x:fill(1.0)
    sc.ones_like(x, { requires_grad = true })
    ;(x * x):sum():backward()
    assert.same({ 6, 6 }, x.grad:totable())
  end)

  it("sends the gradient of copy_ to what was copied and nothing to what was overwritten", function()
    local src, old = sc.tensor({ 1.0, 2.0 }, { requires_grad = true }), sc.ones({ 2, 2 }, { requires_grad = true })
    local x = old * 1.0
    x:copy_(src)
    ;(x * sc.tensor { { 1.0, 2.0 }, { 3.0, 4.0 } }):sum():backward()
    assert.same({ 4, 6 }, src.grad:totable())
    assert.same({ { 0, 0 }, { 0, 0 } }, old.grad:totable())
  end)

  it("copies only when there is something to change", function()
    local x = sc.zeros(2, 2)
    x:to("float32"):fill_(1)
    assert.same({ 1, 1, 1, 1 }, flat(x))
    x:to("float32", true):fill_(2)
    x:clone():fill_(2)
    assert.same({ 1, 1, 1, 1 }, flat(x))
    assert.is_true(x:t():contiguous():is_contiguous())
  end)
end)
