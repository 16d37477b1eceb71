-- Dtypes that are only stored: floats of 8 and 4 bits, integers of 4 and 2. What their codes mean is in OCP's "8-bit Floating Point" and
-- "Microscaling Formats" and in ONNX's tables; here it is worked out again from the numbers of bits.
local sc = require "sconce"

local NAN = 0 / 0

--- The values of all codes of a float with a sign, counted up: bits of exponent and mantissa, bias; last: how many codes at the end are no numbers.
local function codes(mantissa, bias, count)
  local list = {}
  for code = 0, count - 1 do
    local e, m = code >> mantissa, code & ((1 << mantissa) - 1)
    list[#list + 1] = e == 0 and m * 2.0 ^ (1 - bias - mantissa) or (1 + m / (1 << mantissa)) * 2.0 ^ (e - bias)
  end
  return list
end

-- dtype, its numbers from 0 up, what lies beyond the largest, whether -0 is a number
local FLOATS = {
  { "float8e4m3fn", codes(3, 7, 127), NAN, true }, { "float8e4m3fnuz", codes(3, 8, 128), NAN, false },
  { "float8e5m2", codes(2, 15, 124), math.huge, true }, { "float8e5m2fnuz", codes(2, 16, 128), NAN, false },
  { "float4e2m1", codes(1, 1, 8), 6.0, true },
}
local LARGEST = { float8e4m3fn = 448.0, float8e4m3fnuz = 240.0, float8e5m2 = 57344.0, float8e5m2fnuz = 57344.0, float4e2m1 = 6.0 }

--- Through the dtype and back.
local function rounded(numbers, dtype) return sc.tensor(numbers, { dtype = "float64" }):to(dtype):to("float64"):totable() end

for _, row in ipairs(FLOATS) do
  local dtype, numbers, beyond, signed = table.unpack(row)
  describe(dtype, function()
    it("holds the numbers of its codes, of either sign, whatever the length", function()
      assert.equal(LARGEST[dtype], numbers[#numbers])
      local both = {}
      for _, v in ipairs(numbers) do
        both[#both + 1] = v
        if v > 0 then both[#both + 1] = -v end
      end
      assert.same(both, rounded(both, dtype))
      for i, v in ipairs(both) do assert.equal(v, rounded({ v }, dtype)[1], i) end
      assert.equal(signed and -math.huge or math.huge, 1 / rounded({ -0.0 }, dtype)[1])
    end)

    it("rounds to the nearest one, halves to the even code", function()
      local between, want = {}, {}
      for i = 1, #numbers - 1 do
        local low, high = numbers[i], numbers[i + 1]
        local even = i % 2 == 1 and low or high
        for k, at in ipairs { 0.25, 0.5, 0.75 } do
          between[#between + 1] = low + (high - low) * at
          want[#want + 1] = k == 1 and low or k == 3 and high or even
        end
      end
      assert.same(want, rounded(between, dtype))
    end)

    it("has one answer beyond the largest and for NaN", function()
      local largest = numbers[#numbers]
      local step = largest - numbers[#numbers - 1]
      assert.equal(largest, rounded({ largest + step * 0.49 }, dtype)[1])
      for _, v in ipairs { largest + step, 1e30, 1e305, math.huge } do
        local up, down = table.unpack(rounded({ v, -v }, dtype))
        if beyond ~= beyond then assert.is_true(up ~= up and down ~= down) else assert.same({ beyond, -beyond }, { up, down }) end
      end
      local nan = rounded({ NAN }, dtype)[1]
      if dtype == "float4e2m1" then assert.equal(0.0, nan) else assert.is_true(nan ~= nan) end
    end)
  end)
end

describe("float8e8m0", function()
  it("holds powers of two without a sign", function()
    local powers = {}
    for e = -127, 127 do powers[#powers + 1] = 2.0 ^ e end
    assert.same(powers, rounded(powers, "float8e8m0"))
    assert.same({ 4.0, 4.0, 2.0, 2.0 ^ -127 }, rounded({ 3.0, 5.9, -1.6, 0.0 }, "float8e8m0"))
    for _, v in ipairs(rounded({ NAN, math.huge, -math.huge }, "float8e8m0")) do assert.is_true(v ~= v) end
  end)
end)

describe("an integer of 4 or 2 bits", function()
  it("holds its range and wraps beyond", function()
    local all = {}
    for i = -20, 20 do all[#all + 1] = i end
    for dtype, bits in pairs { int4 = 4, int2 = 2, uint4 = 4, uint2 = 2 } do
      local want, signed = {}, dtype:sub(1, 1) == "i"
      for i, v in ipairs(all) do
        want[i] = v & ((1 << bits) - 1)
        if signed and want[i] >= 1 << (bits - 1) then want[i] = want[i] - (1 << bits) end
      end
      assert.same(want, sc.tensor(all):to(dtype):totable(), dtype)
      assert.same(want, sc.tensor(all):to("float32"):to(dtype):to("int64"):totable(), dtype)
    end
  end)
end)

describe("what is only stored", function()
  local ALL = { "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "float8e8m0", "float4e2m1", "int4", "uint4", "int2", "uint2" }

  it("is moved, viewed, shown and converted", function()
    for _, dtype in ipairs(ALL) do
      local x = sc.tensor { { 1.0, 2.0, 1.0 }, { 2.0, 1.0, 2.0 } }
      if dtype:find "int2" then x = x - 1 end
      local y = x:to(dtype)
      assert.equal(dtype, y.dtype)
      for name, f in pairs {
        transpose = function(t) return t:t() end, clone = function(t) return t:clone() end, slice = function(t) return t[{ {}, { 1, 3, 2 } }] end,
        contiguous = function(t) return t:t():contiguous() end, reshape = function(t) return t:t():reshape { 6 } end,
        expand = function(t) return t[1]:expand { 4, 3 } end,
      } do assert.same(f(x):totable(), f(y):to("float32"):totable(), dtype .. " " .. name) end
      local z = y:clone()
      z[1]:copy_(y[2])
      assert.same(x[2]:totable(), z[1]:to("float32"):totable())
      assert.truthy(tostring(y):find("dtype=" .. dtype, 1, true))
      assert.same(y:totable(), sc.from_string(y:tostring_bytes(), y.shape, dtype):totable())
    end
  end)

  it("is refused by ops that compute, and has no gradient", function()
    for _, dtype in ipairs(ALL) do
      local y = sc.ones(3):to(dtype)
      for _, f in ipairs { function() return y + 1 end, function() return y:sum() end, function() return y:matmul(y) end,
        function() return sc.cat { y, y } end, function() return sc.zeros({ 2 }, { dtype = dtype }) end, function() return sc.zeros_like(y) end,
        function() return y:eq(y) end, function() return y:sort() end, function() return y[sc.tensor { 1 }] end } do
        local ok, message = pcall(f)
        assert.is_false(ok)
        assert.truthy(message:find(dtype .. " is only stored", 1, true), message)
        assert.truthy(message:find("stored_spec.lua", 1, true), message)
      end
      assert.has_error(function() y:requires_grad_() end)
      assert.is_false(sc.ones(3, { requires_grad = true }):to(dtype).requires_grad)
    end
  end)

  it("is cast in graphs as line by line", function()
    local x = sc.randn(1000) * 100
    for _, dtype in ipairs(ALL) do
      local function f(v) return (v * 2):to(dtype):to("float32") + 1 end
      local want, got = f(x), sc.compile(f)(x)
      assert.is_true(want:allclose(got, { equal_nan = true, rtol = 0, atol = 0 }), dtype)
      assert.same(want:totable()[1], f(x[{ { 1, 1 } }]):totable()[1])
    end
  end)

  it("is kept by safetensors where that has it, and refused by what has not", function()
    local path = os.tmpname()
    for _, dtype in ipairs(ALL) do
      local y = sc.randn(5, 3):abs():to(dtype)
      local kept = dtype == "float8e4m3fn" or dtype == "float8e5m2" or dtype == "float8e8m0"
      local ok, message = pcall(sc.save, path, { y = y })
      assert.equal(kept, ok, dtype .. ": " .. tostring(message))
      if kept then
        local z = sc.load(path).y
        assert.equal(dtype, z.dtype)
        assert.equal(y:tostring_bytes(), z:tostring_bytes())
      else
        assert.truthy(message:find(dtype, 1, true), message)
      end
      assert.has_error(function() sc.save(path .. ".npy", y) end)
    end
    os.remove(path)
    local g = sc.graph()
    g:output("y", g:input("x", { 2 }):to("float8e5m2"))
    local ok, message = pcall(g.save, g, path)
    assert.is_false(ok)
    assert.truthy(message:find("values of float8e5m2 cannot be written", 1, true), message)
  end)
end)
