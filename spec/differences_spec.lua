local sc = require "sconce"

local function close(want, got)
  got = got:totable()
  assert.equal(#want, #got)
  for i = 1, #want do assert.near(want[i], got[i], 1e-5) end
end

describe("finite differences", function()
  it("are exact for a parabola at second order, evenly spaced or not", function()
    local even = sc.arange(0, 6):to("float64") * 0.5
    local odd = sc.tensor({ 0.0, 0.3, 1.0, 1.2, 2.5, 4.0 }, { dtype = "float64" })
    for _, at in ipairs { even, odd } do
      local slope = sc.gradient(at * at, { at }, nil, 2)[1]
      close((at * 2):totable(), slope)
    end
  end)

  it("refuse a dimension that is too short, and one named twice", function()
    assert.has_error(function() sc.gradient(sc.ones(1)) end)
    local ok, err = pcall(sc.gradient, sc.ones(3, 3), 1.0, { 1, -2 })
    assert.is_false(ok)
    assert.truthy(err:find("twice", 1, true), err)
  end)
end)

describe("fftshift", function()
  it("moves the zero frequency to the middle and back", function()
    local x = sc.arange(0, 5)
    assert.same({ 3, 4, 0, 1, 2 }, sc.fft.fftshift(x):totable())
    assert.same(x:totable(), sc.fft.ifftshift(sc.fft.fftshift(x)):totable())
  end)
end)
