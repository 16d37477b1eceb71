-- Every op, every argument, what nobody should give: numbers at the ends, wrong kinds, lists that are none, freed tensors. An op takes it
-- or refuses it in words, at the caller's line, and then nothing has changed. Internal ops as well: a graph in a file can hold them.
local sc = require "sconce"
local core = require "sconce.core"
local F = sc.nn.functional
local calls = require "spec.support.calls"

local NUMBERS = { math.mininteger, math.mininteger + 1, math.maxinteger, math.maxinteger - 1, 1 << 53, -(1 << 53), 1 << 31, -(1 << 31),
  (1 << 32) + 1, 1 << 62, 0, -1, 64, 1e308, -1e308, -0.0, 0 / 0, 1 / 0, -1 / 0, 0.5, 1e20 }

local function freed()
  local t = sc.ones(3, 3)
  t:free()
  return t
end

local function cycle()
  local t = { 1 }
  t[2] = t
  return t
end

local function haunted() -- every look at it that is not raw fails
  local function fails() error("planned") end
  return setmetatable({ 1, 2 }, { __index = fails, __len = fails, __pairs = fails, __newindex = fails })
end

local OTHERS = { function() return true end, function() return "x" end, function() return ("%s%n\0\27"):rep(100) end, function() return print end,
  function() return core.graph() end, freed, function() return { freed() } end, function() return { freed(), sc.ones(3, 3) } end,
  function() return { math.mininteger } end, function() return { math.maxinteger, math.maxinteger } end, function() return { 1, 1 << 62 } end,
  function() return { 0, -1 } end, function() return {} end, function() return { nil, 2 } end, function() return { 1, nil, 3 } end, cycle, haunted,
  function() return table.move({ 1 }, 1, 1, 1, { 1, 1, 1, 1 }) end, function() return { a = 1 } end, function() return { 1, a = 1 } end,
  function() return { { 1, 2 }, { 3 } } end, function() return sc.ones({}, { dtype = "int8" }) end, function() return sc.ones(3):to("float16") end,
  function() return sc.ones({ 3, 3 }, { dtype = "int8" }) end, function() return sc.ones({ 1, 1, 1, 1, 1 }, { dtype = "bool" }) end,
  function() return sc.zeros(0, 3) end, function() return sc.full({ 3, 3 }, math.mininteger, { dtype = "int64" }) end,
  function() return sc.full({ 3 }, math.maxinteger, { dtype = "int64" }) end, function() return sc.full({ 3, 3 }, 0 / 0) end,
  function() return sc.ones(5):as_strided({ 3, 3 }, { 1, 1 }) end, function() return sc.ones(3, 1):expand(3, 3) end }
for _, n in ipairs(NUMBERS) do
  OTHERS[#OTHERS + 1] = function() return n end
end

--- What the arguments are, bit for bit.
local function digest(args)
  local parts = {}
  for i = 1, args.n do
    local a = args[i]
    if core.is_tensor(a) then parts[#parts + 1] = a.dtype .. table.concat(a.shape, ",") .. a:tostring_bytes() end
  end
  return table.concat(parts, "|")
end

local HERE = debug.getinfo(1, "S").short_src

--- What is wrong with how op c answers to value v as argument i; nil: nothing.
local function complaint(c, i, v)
  local args = c.make()
  local given = table.pack(table.unpack(args, 1, args.n))
  given[i] = v
  local before, rng = digest(args), sc.get_rng_state():tostring_bytes()
  local ok, err = pcall(c.fn, table.unpack(given, 1, math.max(args.n, i)))
  if ok then return nil end
  err = tostring(err)
  if err:find "planned" then return nil end
  if err:sub(1, #HERE + 1) ~= HERE .. ":" then return "not at the caller's line: " .. err end
  local name = c.name:match "[%w_]+$":gsub("_$", "")
  if not c.internal and not err:find(name, 1, true) and not (c.lua and err:match "^[^:]+:%d+: [%w_.]+: ") then return "does not name the op: " .. err end
  if digest(args) ~= before then return "has changed an argument: " .. err end
  if sc.get_rng_state():tostring_bytes() ~= rng then return "has drawn random numbers: " .. err end
end

-- Each run a part of all pairs, the same ones; SCONCE_ARGUMENTS=1 takes all of them.
local SHARE = tonumber(os.getenv "SCONCE_ARGUMENTS") or 0.06
-- Speaks as the op it is a second name of, whose arguments are its own.
local SAME = { concat = "cat", concatenate = "cat" }

describe("arguments", function()
  it("of every op may be anything: taken, or refused in words with nothing changed", function()
    local state = 12345
    local function taken()
      state = (state * 1103515245 + 12345) % 2147483648
      return state / 2147483648 < SHARE
    end
    core.set_memory_limit(1 << 28)
    local found = {}
    for _, name in ipairs(calls.names { internal = true, inplace = true }) do
      local c = calls.find(name)
      local info = c and core.op_info(name)
      if c then c.internal, c.lua = info and info.internal or SAME[name], not info end
      for i = 1, c and #c.params or 0 do
        for k, make in ipairs(OTHERS) do
          if taken() then
            local ok, what = pcall(complaint, c, i, make())
            if not ok or what then found[#found + 1] = ("%s, argument %d, value %d: %s"):format(name, i, k, what) end
          end
        end
      end
    end
    core.set_memory_limit(0)
    assert.equal("", table.concat(found, "\n", 1, math.min(#found, 10)))
  end)

  it("that are numbers stand for tensors in ops written in Lua as well", function()
    assert.equal(3.5, sc.trace(sc.tensor { { 3.5 } }):item())
    assert.has_error(function() return sc.trace(3.5) end)
    assert.same({ 2.0, 4.0 }, sc.kron(2.0, sc.tensor { 1.0, 2.0 }):totable())
    assert.near(5.0, sc.dist(7.0, sc.tensor { 2.0 }):item(), 1e-6)
    assert.same({ 3 }, sc.atleast_1d(sc.tensor(3)):totable())
  end)

  it("that are refused are told under the name that was called", function()
    local function said(f, ...) return select(2, pcall(f, ...)) end
    assert.matches("^spec/arguments_spec.lua:%d+: dist: sub: ", said(function() return sc.dist(sc.ones(2), sc.ones(3)) end))
    assert.matches(": add: argument 3 %(alpha%): the tensor has been freed", said(function() return sc.ones(2):add(1.0, freed()) end))
  end)

  it("that ask for too much memory name the op and the bytes", function()
    local x = sc.ones(1):expand(1 << 24)
    core.set_memory_limit(1 << 26)
    local _, plain = pcall(function() return x:exp() end)
    local _, lua = pcall(function() return sc.dist(x, 0.0) end)
    local _, composed = pcall(F.adaptive_avg_pool1d, x:reshape(1, 1, -1), 1 << 24)
    core.set_memory_limit(0)
    assert.matches(":%d+: exp: not enough memory: 67108%d+ bytes wanted, %d+ in use, the limit is 67108864", plain)
    assert.matches(":%d+: dist: sub: not enough memory", lua)
    assert.matches(":%d+: nn.functional.adaptive_avg_pool1d: not enough memory", composed)
    assert.near(math.exp(1), sc.ones(2):exp()[1]:item(), 1e-6)
  end)
end)

describe("pools and patches of narrow integers", function()
  local function rows(t) return t:reshape(-1):totable() end
  for _, dtype in ipairs { "int8", "uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64" } do
    it("have the elements of the plain ones: " .. dtype, function()
      local x = sc.arange(1, 17):reshape(1, 1, 4, 4):to(dtype)
      local y, at = F.max_pool2d(x, 2, { return_indices = true })
      assert.same({ 6, 8, 14, 16 }, rows(y))
      assert.same({ 6, 8, 14, 16 }, rows(at))
      assert.equal(dtype, y.dtype)
      assert.same({ 3, 5, 11, 13 }, rows(F.avg_pool2d(x, 2)))
      assert.same({ 1, 3, 9, 11, 2, 4, 10, 12, 5, 7, 13, 15, 6, 8, 14, 16 }, rows(F.unfold(x, 2, { stride = 2 })))
      assert.same(rows(x), rows(F.fold(F.unfold(x, 2, { stride = 2 }), 4, 2, { stride = 2 })))
      assert.same({ 0, 0, 0, 0, 0, 6, 0, 8, 0, 0, 0, 0, 0, 14, 0, 16 }, rows(F.max_unpool2d(y, at, 2)))
      assert.same({ 6, 8, 14, 16 }, rows(F.adaptive_max_pool2d(x, 2)))
    end)
  end
end)

describe("operands of ops that only graphs call", function()
  local ops = core.ops
  local x = sc.ones(3, 3)
  for name, call in pairs {
    ["windows that overlap the end"] = function() return ops.avg_windows(x, { 3, 9 }, { 2 }, { 1 }, { 0 }, true, nil, 1) end,
    ["windows of more dims than there are"] = function() return ops.avg_windows(x, { 3, 3 }, {}, {}, {}, true, nil, 64) end,
    ["windows with a stride of 0"] = function() return ops.max_windows(x, { 3, 3 }, { 1 }, { 0 }, { 0 }, { 1 }, 1) end,
    ["windows with a divisor of 0"] = function() return ops.avg_windows(x:to "int32", { 3, 3 }, { 1 }, { 1 }, { 0 }, true, 0, 1) end,
    ["planes of other sizes"] = function() return ops.plane_gather(sc.ones(1, 1), sc.ones({ 3, 3 }, { dtype = "int64" }), { 3, 3 }, 1) end,
    ["a blank that is no class"] = function()
      return ops.ctc(sc.zeros(2, 1, 3), sc.tensor { { 1 } }, sc.tensor { 2 }, sc.tensor { 1 }, 1 << 40, "mean", false)
    end,
    ["noise of -1 sizes"] = function() return ops.dropout_noise(x, 0.5, 1.0, -1) end,
    ["a grid without the image's batch"] = function() return ops.grid_values(sc.ones(1, 1, 2, 2), sc.ones(9, 2, 2, 2), "nearest", "zeros", false) end,
    ["pivots of halves"] = function() return ops.linalg_permutation(sc.ones({ 3 }, { dtype = "int32" }), x:to "float16") end,
    ["a gradient of other sizes than the target's"] = function()
      return ops.nll_map_adjoint(sc.ones {}, sc.tensor { 1 }, nil, -100, "mean", 0.0, { 8, 3 })
    end,
    ["a gradient of nothing for something"] = function() return ops.unreduce(sc.ones(0), { 3, 3 }, { 1 }, false) end,
    ["a gradient with dims left over"] = function() return ops.unreduce(sc.ones(3, 3), { 3, 3 }, { 1 }, false) end,
    ["a weight that is shorter than the rows"] = function() return ops.normalize_rows(sc.ones(3, 3), sc.ones(1), nil, nil, nil, 1, 0.1, 1e-5) end,
    ["a share of extremes that are not there"] = function() return ops.tie_share(sc.ones(3, 3), sc.ones(1), { 1 }, false) end,
    ["a view of a negative size"] = function() return ops.unreduce(sc.ones(1, 3), { 1, math.mininteger }, { 1 }, true) end,
  } do
    it("are checked: " .. name, function() assert.has_error(call) end)
  end

  it("may shift by any number", function()
    for _, n in ipairs { math.mininteger, math.maxinteger, 4, -4 } do
      assert.same({ 7, 7, 7 }, ops.shift(sc.ones(3), 1, n, 7):totable())
      assert.same({ 0, 0, 0 }, ops.shift_back(sc.ones(3), 1, n):totable())
    end
  end)

  it("rows of a triangle that have nothing in them take no time", function()
    assert.same({ 2, 3 }, sc.triu_indices(1 << 40, 2).shape)
    assert.same({ 2, 1 }, sc.tril_indices(1 << 40, 1, { offset = 1 - (1 << 40) }).shape)
  end)
end)
