--- More than 2^31 elements: sizes, offsets and positions are 64 bits wide everywhere. Needs about 7 GB; skipped where there are fewer.
local sc = require "sconce"

local N = (1 << 31) + 1

local function free_gigabytes()
  local file = io.open("/proc/meminfo")
  local text = file and file:read("a") or ""
  if file then file:close() end
  return tonumber(text:match("MemAvailable:%s*(%d+)") or 0) / (1 << 20)
end

describe("tensors of 2^31 + 1 elements #slow", function()
  it("are filled, cut, summed, searched, indexed, copied and joined", function()
    if free_gigabytes() < 9 then
      pending("needs 9 GB of free memory")
      return
    end
    local x <close> = sc.full({ N }, 1, { dtype = "uint8" })
    assert.equal(N, x:numel())
    assert.equal(N, x:sum():item())
    x[N] = 7 -- past 2^31
    x[N - 3] = 5
    assert.equal(7, x[N]:item())
    assert.equal(7, x[-1]:item())
    assert.equal(N, x:argmax():item())
    assert.equal(7, x:max():item())
    assert.equal(N + 6 + 4, x:sum():item())
    local tail = x[{ { N - 4, N } }]
    assert.same({ 1, 5, 1, 1, 7 }, tail:totable())
    assert.same({ 1, 1, 7 }, x[{ { N - 4, N, 2 } }]:totable())
    assert.same({ 7, 5, 1 }, x[sc.tensor { N, N - 3, 1 }]:totable())
    assert.has_error(function() return x[N + 1] end)
    assert.equal(2, x:gt(1):sum():item())
    do
      local copy <close> = x:clone()
      assert.same({ 1, 5, 1, 1, 7 }, copy[{ { N - 4, N } }]:totable())
      copy[{ { 3, N } }] = 2
      assert.equal(2 * (N - 2) + 2, copy:sum():item())
      assert.equal(7, x[N]:item())
    end
    do
      local joined <close> = sc.cat { tail, x }
      assert.equal(N + 5, joined:numel())
      assert.same({ 1, 5, 1, 1, 7, 1 }, joined[{ { 1, 6 } }]:totable())
      assert.same({ 5, 1, 1, 7 }, joined[{ { N + 2, N + 5 } }]:totable())
    end
    local wide = x[{ { 1, N - 1 } }]:view(2, 1 << 30)
    assert.same({ 1 << 30, (1 << 30) + 4 }, wide:sum(2):totable())
    assert.equal(5, wide:t()[{ (1 << 30) - 2, 2 }]:item())
    local mask <close> = x:eq(7)
    assert.equal("bool", mask.dtype)
    assert.equal(N, mask:nonzero()[{ 1, 1 }]:item())
  end)
end)
