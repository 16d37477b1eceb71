-- GGUF files, written here byte by byte. The sums over quantised blocks were worked out by the decoders of ggml's Python package over the
-- same bytes: blocks from the generator below, with scales of 0.5 and 0.25 so that every number is exact.
local sc = require "sconce"

local made = {}
local function write(bytes)
  local p = os.tmpname()
  made[#made + 1] = p
  local f = assert(io.open(p, "wb"))
  f:write(bytes)
  f:close()
  return p
end

local function str(s) return string.pack("<s8", s) end
local U8, I16, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 3, 4, 6, 7, 8, 9, 10

-- o: version, magic, keys = list of bytes, tensors = { { name, dims, type, offset }, … }, data, align; counts may be forged
local function gguf(o)
  local parts = { o.magic or "GGUF", string.pack("<I4I8I8", o.version or 3, o.n_tensors or #(o.tensors or {}), o.n_keys or #(o.keys or {})) }
  for _, k in ipairs(o.keys or {}) do parts[#parts + 1] = k end
  for _, t in ipairs(o.tensors or {}) do
    parts[#parts + 1] = str(t[1]) .. string.pack("<I4", t.ndim or #t[2])
    for _, d in ipairs(t[2]) do parts[#parts + 1] = string.pack("<i8", d) end
    parts[#parts + 1] = string.pack("<I4i8", t[3] or 0, t[4] or 0)
  end
  local head = table.concat(parts)
  return head .. ("\0"):rep(-#head % (o.align or 32)) .. (o.data or "")
end

local function key(name, type, bytes) return str(name) .. string.pack("<I4", type) .. bytes end
local function floats(...) return string.pack("<" .. ("f"):rep(select("#", ...)), ...) end

local function blocks(n, bytes, halves)
  local x, out = 7, {}
  for i = 1, n * bytes do
    x = (x * 1103515245 + 12345) % (1 << 31)
    out[i] = string.char(x >> 16 & 255)
  end
  for b = 0, n - 1 do
    for j, at in ipairs(halves) do
      out[b * bytes + at + 1], out[b * bytes + at + 2] = "\0", string.char(0x38 - 4 * (j - 1))
    end
  end
  return table.concat(out)
end

-- ggml's number, name, bytes a block, where its scales stand, sum of two blocks, sum weighted with 1 … 7 in turn
local QUANTS = {
  { 2, "Q4_0", 18, { 0 }, -49, -187 }, { 3, "Q4_1", 20, { 0, 2 }, 213, 811.75 }, { 6, "Q5_0", 22, { 0 }, -89.5, -230.5 },
  { 7, "Q5_1", 24, { 0, 2 }, 469.5, 1901.75 }, { 8, "Q8_0", 34, { 0 }, 420.5, 2257 }, { 10, "Q2_K", 84, { 80, 82 }, 2019.5, 7872.75 },
  { 11, "Q3_K", 110, { 108 }, 761, 2997.5 }, { 12, "Q4_K", 144, { 0, 2 }, 41463, 168771.25 }, { 13, "Q5_K", 176, { 0, 2 }, 85264, 354518.75 },
  { 14, "Q6_K", 210, { 208 }, -4686.5, 30704.5 },
}

local SIX = floats(1, 2, 3, 4, 5, 6)
local W = { "w", { 3, 2 } }

-- what is wrong with a file, words of the message
local HOSTILE = {
  { "another version", gguf { version = 1 }, "version 1" },
  { "big endian", "GGUF\0\0\0\3" .. ("\0"):rep(16), "big endian" },
  { "tensors that cannot be there", gguf { n_tensors = 1 << 60 }, "more than the file" },
  { "keys that cannot be there", gguf { n_keys = 1 << 60 }, "more than the file" },
  { "a key longer than the file", gguf { keys = { string.pack("<I8", 1 << 40) .. ("x"):rep(20) } }, "bytes long" },
  { "an empty key", gguf { keys = { key("", U8, "\1") } }, "is empty" },
  { "a key that is no text", gguf { keys = { key("a\255", U8, "\1") } }, "UTF-8" },
  { "a key twice", gguf { keys = { key("a", U8, "\1"), key("a", U8, "\2") } }, "occurs twice" },
  { "a type 77", gguf { keys = { key("a", 77, "\1\1\1\1\1\1\1\1") } }, "unknown type 77" },
  { "arrays nested without end", gguf { keys = { key("a", ARRAY, string.pack("<I4I8", ARRAY, 1):rep(500)) } }, "nested" },
  { "more arrays in an array than the file holds", gguf { keys = { key("a", ARRAY, string.pack("<I4I8", ARRAY, 1 << 60) .. ("\0"):rep(20)) } },
    "an array of" },
  { "an array longer than the file", gguf { keys = { key("a", ARRAY, string.pack("<I4I8", U8, 1 << 60)) } }, "an array of" },
  { "a truth value of 2", gguf { keys = { key("a", BOOL, "\2") } }, "truth value" },
  { "an alignment of 0", gguf { keys = { key("general.alignment", U32, "\0\0\0\0") } }, "power of two" },
  { "an alignment of 3", gguf { keys = { key("general.alignment", U32, "\3\0\0\0") } }, "power of two" },
  { "an alignment of another type", gguf { keys = { key("general.alignment", U64, ("\0"):rep(8)) } }, "32-bit" },
  { "no dimensions", gguf { tensors = { { "w", {} } }, data = SIX }, "0 dimensions" },
  { "five dimensions", gguf { tensors = { { "w", { 1, 1, 1, 1, 1 } } }, data = SIX }, "5 dimensions" },
  { "many dimensions", gguf { tensors = { { "w", { 1 }, ndim = 0xffffffff } }, data = SIX }, "4294967295 dimensions" },
  { "a size of 0", gguf { tensors = { { "w", { 0, 2 } } }, data = SIX }, "the size 0" },
  { "a negative size", gguf { tensors = { { "w", { -1 } } }, data = SIX }, "not possible" },
  { "sizes whose product wraps", gguf { tensors = { { "w", { (1 << 62) + 1, 4 } } }, data = SIX }, "not possible" },
  { "an unknown kind", gguf { tensors = { { "w", { 32 }, 16 } }, data = SIX }, "type 16, which is not read" },
  { "half a block", gguf { tensors = { { "w", { 16 }, 2 } }, data = SIX }, "whole blocks of 32" },
  { "an offset beyond the end", gguf { tensors = { { "w", { 3, 2 }, 0, 4096 } }, data = SIX }, "lies at 4096" },
  { "an offset that wraps", gguf { tensors = { { "w", { 3, 2 }, 0, -32 } }, data = SIX }, "lies at" },
  { "an offset off the grid", gguf { tensors = { { "w", { 1 }, 0, 4 } }, data = SIX }, "not a multiple of 32" },
  { "a tensor twice", gguf { tensors = { W, W }, data = SIX .. SIX }, "occurs twice" },
  { "tensors that share bytes", gguf { tensors = { W, { "v", { 3, 2 } } }, data = SIX }, "shares bytes" },
}

describe("GGUF", function()
  teardown(function() for _, p in ipairs(made) do os.remove(p) end end)

  it("gives tensors in row-major order and metadata as text", function()
    local bytes = gguf {
      keys = { key("general.name", STRING, str "tiny"), key("n", I16, string.pack("<i2", -3)), key("eps", F32, floats(0.5)), key("ok", BOOL, "\1"),
        key("tokens", ARRAY, string.pack("<I4I8", STRING, 2) .. str 'a"\n' .. str "b"), key("sizes", ARRAY, string.pack("<I4I8I8I8", U64, 2, 1, 1 << 63)),
        key("pairs", ARRAY, string.pack("<I4I8I4I8", ARRAY, 2, STRING, 1) .. str "a" .. string.pack("<I4I8BB", U8, 2, 1, 2)),
        key("general.alignment", U32, "\64\0\0\0") },
      tensors = { { "w", { 3, 2 } }, { "h", { 2 }, 1, 64 }, { "i", { 1, 1, 1, 2 }, 27, 128 } }, align = 64,
      data = SIX .. ("\0"):rep(40) .. "\0\60\0\192" .. ("\0"):rep(60) .. string.pack("<i8i8", -5, 1 << 40),
    }
    for _, version in ipairs { 2, 3 } do
      local t, meta = sc.load(write(bytes:sub(1, 4) .. string.pack("<I4", version) .. bytes:sub(9)))
      assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, t.w:totable())
      assert.equal("float16", t.h.dtype)
      assert.same({ 1, -2 }, t.h:totable())
      assert.same({ { { { -5 } } }, { { { 1 << 40 } } } }, t.i:totable())
      assert.same({ ["general.name"] = "tiny", n = "-3", eps = "0.5", ok = "true", tokens = '["a\\"\\u000a", "b"]', sizes = "[1, 9223372036854775808]",
        pairs = '[["a"], [1, 2]]',
        ["general.alignment"] = "64" }, meta)
    end
  end)

  for _, q in ipairs(QUANTS) do
    it("decodes " .. q[2], function()
      local size = q[1] < 10 and 32 or 256
      local w = sc.load(write(gguf { tensors = { { "w", { size, 2 }, q[1] } }, data = blocks(2, q[3], q[4]) })).w
      assert.same({ "float32", 2, size }, { w.dtype, table.unpack(w.shape) })
      local flat = w:reshape(-1):double()
      assert.equal(q[5], flat:sum():item())
      assert.equal(q[6], (flat * (sc.arange(2 * size):remainder(7) + 1)):sum():item())
    end)
  end

  for _, row in ipairs(HOSTILE) do
    it("refuses " .. row[1], function()
      collectgarbage()
      local before = sc.memory_allocated()
      local ok, text = pcall(sc.load, write(row[2]))
      assert.is_false(ok)
      assert.truthy(text:find(row[3], 1, true), text)
      collectgarbage()
      assert.equal(before, sc.memory_allocated())
    end)
  end

  it("refuses a file cut at any byte", function()
    local whole = gguf { keys = { key("a", STRING, str "bc"), key("l", ARRAY, string.pack("<I4I8I4", U32, 1, 7)) }, tensors = { W }, data = SIX }
    for n = 4, #whole - 1 do assert.is_false((pcall(sc.load, write(whole:sub(1, n)))), n) end
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, sc.load(write(whole)).w:totable())
  end)
end)
