--- Integers of 8 to 32 bits are computed in their own width where they lie; the results are those of 64 bits, cut off.
local sc = require "sconce"

local LIMITS = { int8 = { -128, 128 }, uint8 = { 0, 256 }, int16 = { -32768, 32768 }, int32 = { -2147483648, 2147483648 } }

local TWO = { "add", "sub", "mul", "maximum", "minimum", "fmax", "fmin", "bitwise_and", "bitwise_or", "bitwise_xor", "heaviside" }
local TRUTH = { "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor" }
local ONE = { "neg", "abs", "sign", "square", "relu", "bitwise_not", "floor" }
local MORE = {
  ["addcmul"] = function(a, b, c) return a:addcmul(b, c, { value = 3 }) end,
  ["clamp"] = function(a) return a:clamp(3, 100) end,
  ["alpha"] = function(a, b) return a:add(b, { alpha = 77 }) end,
  ["a number beyond the dtype"] = function(a) return a + 300 end,
  ["a negative number"] = function(a) return a * -3 end,
  ["a number on the left"] = function(a) return 5 - a end,
  ["less than a number beyond"] = function(a) return a:lt(300) end,
  ["less than a fraction"] = function(a) return a:lt(3.5) end,
  ["rows"] = function(a, b) return a:view(17, 59) + b[{ { 1, 59 } }] end,
  ["steps"] = function(a, b) return a[{ { 1, 1001, 2 } }] + b[{ { 1, 1001, 2 } }] end,
  ["where"] = function(a, b, c) return sc.where(b:gt(c), a, b) end,
  ["in place"] = function(a, b) return a:clone():add_(b) end,
  ["hardtanh"] = function(a) return sc.functional.hardtanh(a, 2, 9) end,
}

describe("narrow integers", function()
  for dtype, limit in pairs(LIMITS) do
    sc.manual_seed(3)
    local function any() return sc.randint(limit[1], limit[2], { 1003 }, { dtype = "int64" }) end
    local x, y, z = any(), any(), any()
    x[1], y[1], x[2], y[2], x[3] = limit[1], limit[1], limit[2] - 1, limit[1], y[3]
    local a, b, c = x:to(dtype), y:to(dtype), z:to(dtype)

    local function same(name, got, want)
      if got.dtype ~= want.dtype then want = want:to(got.dtype) end
      assert.is_true(sc.equal(got, want), name)
    end

    it("of " .. dtype .. " wrap and compare as in 64 bits", function()
      for _, op in ipairs(TWO) do
        same(op, sc[op](a, b), sc[op](x, y))
        assert.equal(dtype, sc[op](a, b).dtype)
      end
      for _, op in ipairs(TRUTH) do same(op, sc[op](a, b), sc[op](x, y)) end
      for _, op in ipairs(ONE) do same(op, (sc[op] or sc.functional[op])(a), (sc[op] or sc.functional[op])(x)) end
      for _, op in ipairs { "logical_not", "signbit" } do same(op, sc[op](a), sc[op](x)) end
    end)
    it("of " .. dtype .. " take numbers, broadcast, steps and attributes", function()
      for name, f in pairs(MORE) do same(name, f(a, b, c), f(x, y, z)) end
    end)
  end
end)
