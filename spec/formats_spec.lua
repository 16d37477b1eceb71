local sc = require "sconce"

local made = {}
local function path(suffix)
  local p = os.tmpname()
  os.remove(p)
  made[#made + 1] = p .. suffix
  return p .. suffix
end
local function write(bytes, suffix)
  local p = path(suffix or ".bin")
  local f = assert(io.open(p, "wb"))
  f:write(bytes)
  f:close()
  return p
end
local function slurp(p)
  local f = io.open(p, "rb")
  if not f then return nil end
  local s = f:read("a")
  f:close()
  return s
end

local function same(a, b)
  assert.same({ a.dtype, a.shape }, { b.dtype, b.shape })
  assert.is_true(a:tostring_bytes() == b:tostring_bytes())
end

local DTYPES = { "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool", "uint16", "uint32",
  "uint64" }
local function samples(skip)
  local t = {}
  for _, d in ipairs(DTYPES) do
    if d ~= skip then
      t[d .. ".strided"] = sc.arange(24):reshape(2, 3, 4):to(d):permute(3, 1, 2)
      t[d .. ".row"] = sc.arange(12):reshape(3, 4):to(d):select(1, 2)
      t[d .. ".number"] = sc.tensor(1):to(d)
      t[d .. ".none"] = sc.zeros({ 0, 3 }, { dtype = d })
    end
  end
  t["layer.1/wéight \"%s\"\t"] = sc.ones(2)
  return t
end

local function safetensors(header, data, length)
  return string.pack("<I8", length or #header) .. header .. (data or "")
end
local function npy(header, data, version)
  header = header .. "\n"
  return "\x93NUMPY" .. string.char(version or 1, 0) .. string.pack((version or 1) == 1 and "<I2" or "<I4",
    #header) .. header .. (data or "")
end

-- CRC-32, for zip members. Source: RFC 1952, section 8.
local function crc32(s)
  local crc = 0xFFFFFFFF
  for i = 1, #s do
    crc = crc ~ s:byte(i)
    for _ = 1, 8 do crc = crc >> 1 ~ (crc & 1) * 0xEDB88320 end
  end
  return crc ~ 0xFFFFFFFF
end

-- A zip archive of members { name =, data =, … }; each field of a record may be given to make it lie.
local function zip(members, lies)
  lies = lies or {}
  local body, directory, at = {}, {}, 0
  for _, m in ipairs(members) do
    local stored = m.stored or m.data
    local fields = string.pack("<I2I2I2I2I2I4I4I4", 20, m.flags or 0, m.method or 0, 0, 33, m.crc or crc32(m.data), m.packed or #stored,
      m.size or #m.data)
    local here = "PK\3\4" .. fields .. string.pack("<I2I2", #(m.local_name or m.name), 0) .. (m.local_name or m.name) .. stored
    directory[#directory + 1] = "PK\1\2" .. string.pack("<I2", 20) .. fields
      .. string.pack("<I2I2I2I2I2I4I4", #m.name, #(m.extra or ""), 0, 0, 0, 0, m.at or at) .. m.name .. (m.extra or "")
    body[#body + 1] = here
    at = at + #here
  end
  local d = table.concat(directory)
  return table.concat(body) .. d .. "PK\5\6" .. string.pack("<I2I2I2I2I4I4I2", 0, 0, lies.n or #members, lies.n or #members,
    lies.bytes or #d, lies.at or at, 0)
end
local F4 = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", string.pack("<f", 2.5))

describe("files of tensors", function()
  teardown(function() for _, p in ipairs(made) do os.remove(p) end end)

  it("come back as they were from safetensors, with metadata", function()
    local t, p = samples(), path ".safetensors"
    sc.save(p, t, { metadata = { format = "pt", ['"\n'] = "é\\" } })
    local u, notes = sc.load(p)
    for name, x in pairs(t) do same(x, u[name]) end
    for name in pairs(u) do assert.truthy(t[name]) end
    assert.same({ format = "pt", ['"\n'] = "é\\" }, notes)
    assert.equal(0, string.unpack("<I8", slurp(p)) % 8)
  end)

  it("come back as they were from npz and npy", function()
    local t, p = samples("bfloat16"), path ".npz"
    sc.save(p, t)
    local u = sc.load(p)
    for name, x in pairs(t) do same(x, u[name]) end
    for _, x in pairs(t) do
      p = path ".npy"
      sc.save(p, x)
      same(x, sc.load(p))
    end
  end)

  it("are the same bytes for the same tensors", function()
    for _, suffix in ipairs { ".safetensors", ".npz" } do
      local p, q = path(suffix), path(suffix)
      sc.save(p, samples("bfloat16"))
      sc.save(q, samples("bfloat16"))
      assert.is_true(slurp(p) == slurp(q))
    end
  end)

  it("are read when numpy wrote them: byte order, column order, versions, deflate", function()
    same(sc.arange(24, { dtype = "float64" }):reshape(2, 3, 4), sc.load "spec/data/big_fortran.npy")
    same(sc.arange(3, { dtype = "int16" }), sc.load "spec/data/version2.npy")
    same(sc.tensor(true), sc.load "spec/data/version3.npy")
    for _, name in ipairs { "stored", "deflated" } do
      local t = sc.load("spec/data/" .. name .. ".npz")
      same(sc.arange(100, { dtype = "int32" }):reshape(10, 10), t.x)
      same(sc.tensor(2.5, { dtype = "float16" }), t["a/b"])
      same(sc.zeros({ 0, 3 }, { dtype = "uint16" }), t.none)
    end
  end)

  it("are refused when numpy wrote what is no array of numbers", function()
    for name, word in pairs { complex = "<c16", text = "<U2", structured = "structured", object = "object" } do
      local ok, message = pcall(sc.load, "spec/data/" .. name .. ".npy")
      assert.truthy(not ok and message:find(word, 1, true), message)
    end
  end)

  it("are told by content, not by name", function()
    local p = path ".npy"
    sc.save(p, sc.ones(2))
    os.rename(p, p .. ".safetensors")
    made[#made + 1] = p .. ".safetensors"
    assert.same({ 1, 1 }, sc.load(p .. ".safetensors"):totable())
  end)

  it("hold truth values of 0 and 1 only, whatever the bytes", function()
    local t = sc.load(write(safetensors('{"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}}', "\0\7")))
    assert.equal("\0\1", t.a:tostring_bytes())
  end)
end)

-- The rules of each format, broken in turn: what, the bytes, a word of the message.
local a8 = '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
local function one(fields) return safetensors('{"a":{' .. fields .. "}}", ("\0"):rep(8)) end
local function dict(s, data) return npy(s, data or "\0\0\0\0") end
local function member(m) return zip { setmetatable(m, { __index = { name = "a.npy", data = F4 } }) } end
local HOSTILE = {
  { "empty", "", "empty" },
  { "a few bytes", "\1\2\3", "not a safetensors" },
  { "text", ("hello "):rep(20), "not a safetensors" },
  { "header longer than the file", safetensors(a8, "", #a8 + 1), "long" },
  { "header length 2^63", safetensors(a8, "", math.mininteger), "long" },
  { "header length 0", safetensors("{}      ", "", 0), "begin" },
  { "header above 100 MB", safetensors(a8, "", 100000001), "too long" },
  { "header of another kind", safetensors("[]", "", 2), "{" },
  { "header cut", safetensors('{"a":{"dtype":"F32"', ""), "expected" },
  { "header not UTF-8", safetensors('{"\xff":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "UTF-8" },
  { "overlong UTF-8", safetensors('{"\xc0\x80":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "UTF-8" },
  { "something behind the header", safetensors("{}{}"), "follows" },
  { "names twice",
    safetensors('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "twice" },
  { "names twice by escapes",
    safetensors('{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
    "twice" },
  { "half a surrogate", safetensors('{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'), "escape" },
  { "overlap", safetensors('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}',
    ("\0"):rep(12)), "overlap" },
  { "hole", safetensors('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}', ("\0"):rep(8)), "hole" },
  { "tail", safetensors(a8, ("\0"):rep(9)), "belong to no tensor" },
  { "data short", safetensors(a8, ("\0"):rep(7)), "data_offsets" },
  { "size against shape", one '"dtype":"F32","shape":[1],"data_offsets":[0,8]', "need" },
  { "shape that wraps", one '"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]', "too large" },
  { "shape that wraps behind a 0", one '"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]', "too large" },
  { "negative size", one '"dtype":"F32","shape":[-2],"data_offsets":[0,8]', "negative" },
  { "fraction as size", one '"dtype":"F32","shape":[2.0],"data_offsets":[0,8]', "whole" },
  { "exponent as size", one '"dtype":"F32","shape":[2e0],"data_offsets":[0,8]', "whole" },
  { "text as size", one '"dtype":"F32","shape":["2"],"data_offsets":[0,8]', "whole" },
  { "size of 70 bits", one '"dtype":"F32","shape":[1180591620717411303424],"data_offsets":[0,8]', "too large" },
  { "offsets turned round", one '"dtype":"F32","shape":[2],"data_offsets":[8,0]', "before" },
  { "one offset", one '"dtype":"F32","shape":[2],"data_offsets":[8]', "data_offsets" },
  { "three offsets", one '"dtype":"F32","shape":[2],"data_offsets":[0,8,8]', "data_offsets" },
  { "unknown dtype", one '"dtype":"F4","shape":[8],"data_offsets":[0,8]', "F4" },
  { "no dtype", one '"shape":[2],"data_offsets":[0,8]', "dtype is missing" },
  { "dtype twice", one '"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]', "twice" },
  { "65 dimensions", one('"dtype":"U8","shape":[' .. ("1,"):rep(64) .. '8],"data_offsets":[0,8]'), "64" },
  { "metadata of numbers", safetensors '{"__metadata__":{"a":1}}', "__metadata__" },
  { "nested a hundred thousand deep", safetensors('{"a":{"x":' .. ("["):rep(100000)), "deep" },
  { "zip behind safetensors", safetensors(a8, ("\0"):rep(8)) .. zip { { name = "a.npy", data = F4 } }, "belong to no tensor" },

  { ".npy of objects", dict "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "object" },
  { ".npy of structures", dict "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "structured" },
  { ".npy of another dtype", dict "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", "<c8" },
  { ".npy with code", dict "{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,), }", "descr" },
  { ".npy with a number as shape", dict "{'descr': '<f4', 'fortran_order': False, 'shape': (1), }", "tuple" },
  { ".npy with a sum as shape", dict "{'descr': '<f4', 'fortran_order': False, 'shape': (1+0,), }", "shape" },
  { ".npy with another key", dict "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 1}", "key" },
  { ".npy with a key twice", dict "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "twice" },
  { ".npy without a key", dict "{'descr': '<f4', 'shape': (1,)}", "lacks" },
  { ".npy with something behind", dict "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } + {}", "follows" },
  { ".npy too short", dict "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", "need 8" },
  { ".npy too long", dict("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "\0\0\0\0\0"), "there are 5" },
  { ".npy that wraps", dict "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }", "too large" },
  { ".npy with a negative size", dict "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "negative" },
  { ".npy with a fraction", dict "{'descr': '<f4', 'fortran_order': False, 'shape': (1.0,), }", "whole" },
  { ".npy of 65 dimensions", dict("{'descr': '<f4', 'fortran_order': False, 'shape': (" .. ("1,"):rep(65) .. "), }"), "64" },
  { ".npy of version 9", "\x93NUMPY\9\0" .. F4:sub(9), "version" },
  { ".npy with a header beyond the file", "\x93NUMPY\1\0\xff\xff{}", "longer" },
  { ".npy cut in its header", F4:sub(1, 9), "not a .npy" },

  { ".npz encrypted", member { flags = 1 }, "encrypted" },
  { ".npz in a rare compression", member { method = 12 }, "compression" },
  { ".npz climbing", member { name = "../a.npy" }, "refused" },
  { ".npz climbing inside", member { name = "a/../../b.npy" }, "refused" },
  { ".npz from the root", member { name = "/a.npy" }, "refused" },
  { ".npz with a zero byte", member { name = "a\0.npy" }, "refused" },
  { ".npz of something else", member { name = "a.txt" }, "not an array" },
  { ".npz with two names", member { local_name = "b.npy" }, "another name" },
  { ".npz with a wrong checksum", member { crc = 1 }, "checksum" },
  { ".npz stored in two sizes", member { size = #F4 + 1 }, "differ" },
  { ".npz beyond the file", member { packed = 1 << 20, size = 1 << 20 }, "outside" },
  { ".npz bomb", member { method = 8, size = 0xFFFFFF00 }, "more than" },
  { ".npz that is no deflate", member { method = 8, stored = "\xff\xff\xff\xff", packed = 4 }, "damaged" },
  { ".npz that inflates to less", member { method = 8, stored = "\3\0", packed = 2 }, "shorter" },
  { ".npz with zip64 sizes that are not there", member { size = 0xFFFFFFFF, packed = 0xFFFFFFFF }, "zip64" },
  { ".npz with zip64 lies", member { size = 0xFFFFFFFF, packed = 0xFFFFFFFF, extra = string.pack("<I2I2I8I8", 1, 16, 1 << 62, 1 << 62) },
    "outside" },
  { ".npz with a name twice", zip { { name = "a.npy", data = F4 }, { name = "a.npy", data = F4 } }, "twice" },
  { ".npz with two entries for one member", zip { { name = "a.npy", data = F4 }, { name = "b.npy", local_name = "b.npy", data = F4,
    at = 0 } }, "name" },
  { ".npz claiming many members", zip({ { name = "a.npy", data = F4 } }, { n = 65000 }), "no room" },
  { ".npz with a directory outside", zip({ { name = "a.npy", data = F4 } }, { at = 1 << 31 }), "outside" },
  { ".npz without its end", (zip { { name = "a.npy", data = F4 } }):sub(1, -3), "end record" },
}

describe("a hostile file", function()
  for _, row in ipairs(HOSTILE) do
    it("is refused by name: " .. row[1], function()
      collectgarbage() -- what other cases left would be taken for freed by this one
      collectgarbage()
      local p, bytes = write(row[2]), sc.memory_allocated()
      local ok, message = pcall(sc.load, p)
      assert.is_false(ok)
      assert.truthy(message:find(row[3], 1, true), message)
      assert.truthy(message:find(p, 1, true), message)
      assert.truthy(#message < 900 and not message:find("[\0-\31\127-\255]"), message)
      assert.equal(bytes, sc.memory_allocated())
    end)
  end

  it("is refused wherever it is cut", function()
    for _, whole in ipairs { safetensors(a8, ("\0"):rep(8)), F4, zip { { name = "a.npy", data = F4 } } } do
      assert.truthy(sc.load(write(whole)))
      for n = 0, #whole - 1 do assert.is_false(pcall(sc.load, write(whole:sub(1, n)))) end
    end
  end)

  it("is no file at all: folders, devices, FIFOs, nothing", function()
    local fifo = path ".fifo"
    os.execute("mkfifo " .. fifo)
    for _, p in ipairs { ".", "/dev/null", "/dev/zero", fifo, "/nonexistent/x" } do
      local ok, message = pcall(sc.load, p)
      assert.is_false(ok)
      assert.truthy(message:find(p, 1, true) and message:find("formats_spec", 1, true), message)
      assert.is_false(pcall(sc.save, p, { a = sc.ones(1) }))
    end
  end)
end)

describe("a save that fails", function()
  -- what is wrong, the call, a word of the message
  local WRONG = {
    { "a value that is no tensor", function(p) sc.save(p, { a = sc.ones(1), b = 1 }) end, '"b"' },
    { "a list", function(p) sc.save(p, { sc.ones(1) }) end, "names" },
    { "a tensor without a name", function(p) sc.save(p, sc.ones(1)) end, ".npy" },
    { "a name that is not UTF-8", function(p) sc.save(p, { ["\xff"] = sc.ones(1) }) end, "UTF-8" },
    { "a name with a zero byte", function(p) sc.save(p, { ["a\0"] = sc.ones(1) }) end, "zero byte" },
    { "the name of the metadata", function(p) sc.save(p, { __metadata__ = sc.ones(1) }) end, "__metadata__" },
    { "metadata of numbers", function(p) sc.save(p, {}, { metadata = { a = 1 } }) end, "string" },
    { "a misspelt option", function(p) sc.save(p, {}, { meta = {} }) end, "metadata" },
    { "a symbolic tensor", function(p) sc.save(p, { a = sc.graph():input("x", { 1 }) }) end, "no values" },
  }
  for _, row in ipairs(WRONG) do
    it("has changed nothing: " .. row[1], function()
      local p = path ".safetensors"
      sc.save(p, { w = sc.ones(1) })
      local before = slurp(p)
      local ok, message = pcall(row[2], p)
      assert.is_false(ok)
      assert.truthy(message:find(row[3], 1, true), message)
      assert.is_true(slurp(p) == before)
    end)
  end

  it("for want of room leaves the old file and no other", function()
    local p = path ".safetensors"
    local folder = p .. ".d"
    os.execute("mkdir " .. folder)
    p = folder .. "/w.safetensors"
    sc.save(p, { w = sc.ones(1) })
    local before = slurp(p)
    local script = ([[package.path, package.cpath = %q, %q; local sc = require "sconce"
      local ok, message = pcall(sc.save, %q, { w = sc.ones(100000) }); assert(not ok and message:find(%q, 1, true), message)]]):format(
      package.path, package.cpath, p, p)
    local name = write(script, ".lua")
    assert.is_true(os.execute("trap '' XFSZ; ulimit -f 16; lua5.4 " .. name) and true)
    assert.is_true(slurp(p) == before)
    local list = io.popen("ls -A " .. folder)
    assert.equal("w.safetensors\n", list:read("a"))
    list:close()
    os.execute("rm -r " .. folder)
  end)

  it("writes through a link, and keeps the file's permissions", function()
    local p, link = path ".safetensors", path ".link"
    sc.save(p, { w = sc.ones(1) })
    os.execute(("chmod 640 %s; ln -s %s %s"):format(p, p, link))
    sc.save(link, { w = sc.zeros(1) })
    local f = io.popen(("stat -c %%a %s; readlink %s"):format(p, link))
    assert.equal("640\n" .. p .. "\n", f:read("a"))
    f:close()
    assert.same({ 0 }, sc.load(p).w:totable())
  end)
end)
