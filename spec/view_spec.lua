local sc = require "sconce"
local F = sc.nn.functional

-- { what, result, expected }: small enough to be worked out by hand.
local x = sc.tensor { { 1, 2, 3 }, { 4, 5, 6 } }
local function totals(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = t:totable() end
  return out
end

describe("views and joins", function()
  local CASES = {
    { "T", function() return x.T:totable() end, { { 1, 4 }, { 2, 5 }, { 3, 6 } } },
    { "diagonal", function() return x:diagonal(1):totable() end, { 2, 6 } },
    { "unfold", function() return x:unfold(2, 2, 1):totable() end, { { { 1, 2 }, { 2, 3 } }, { { 4, 5 }, { 5, 6 } } } },
    { "unbind", function() return totals(x:unbind(2)) end, { { 1, 4 }, { 2, 5 }, { 3, 6 } } },
    { "split", function() return totals(x:split(2, 2)) end, { { { 1, 2 }, { 4, 5 } }, { { 3 }, { 6 } } } },
    { "split by sizes", function() return totals(x:flatten():split { 1, 0, 5 }) end, { { 1 }, {}, { 2, 3, 4, 5, 6 } } },
    { "chunk", function() return totals(x:flatten():chunk(4)) end, { { 1, 2 }, { 3, 4 }, { 5, 6 } } },
    { "tensor_split", function() return totals(x:flatten():tensor_split { 2, 5 }) end, { { 1 }, { 2, 3, 4 }, { 5, 6 } } },
    { "cat", function() return sc.cat({ x, sc.tensor { { 7.5 }, { 8.0 } } }, 2):totable() end, { { 1, 2, 3, 7.5 }, { 4, 5, 6, 8 } } },
    { "stack", function() return sc.stack({ x[1], x[2] }, 2):totable() end, { { 1, 4 }, { 2, 5 }, { 3, 6 } } },
    { "rep", function() return x:rep(1, 2):totable() end, { { 1, 2, 3, 1, 2, 3 }, { 4, 5, 6, 4, 5, 6 } } },
    { "repeat_interleave", function() return x[1]:repeat_interleave(sc.tensor { 2, 0, 1 }):totable() end, { 1, 1, 3 } },
    { "flip", function() return x:flip(1, 2):totable() end, { { 6, 5, 4 }, { 3, 2, 1 } } },
    { "roll", function() return x:roll(1):totable() end, { { 6, 1, 2 }, { 3, 4, 5 } } },
    { "rot90", function() return x:rot90():totable() end, { { 3, 6 }, { 2, 5 }, { 1, 4 } } },
    { "triu", function() return x:triu(1):totable() end, { { 0, 2, 3 }, { 0, 0, 6 } } },
    { "tril_indices", function() return sc.tril_indices(2, 3):totable() end, { { 1, 2, 2 }, { 1, 1, 2 } } },
    { "pad", function() return F.pad(x, { 1, -1 }, "constant", 9):totable() end, { { 9, 1, 2 }, { 9, 4, 5 } } },
    { "pad reflect", function() return F.pad(x, { 2, 1 }, "reflect"):totable() end, { { 3, 2, 1, 2, 3, 2 }, { 6, 5, 4, 5, 6, 5 } } },
    { "pad circular", function() return F.pad(x, { 1, 2 }, "circular"):totable() end, { { 3, 1, 2, 3, 1, 2 }, { 6, 4, 5, 6, 4, 5 } } },
    { "kron", function() return sc.kron(sc.tensor { 1, 2 }, sc.tensor { 3, 5 }):totable() end, { 3, 5, 6, 10 } },
    { "combinations", function() return sc.combinations(x[1]):totable() end, { { 1, 2 }, { 1, 3 }, { 2, 3 } } },
    { "cartesian_prod", function() return sc.cartesian_prod(x[1], sc.tensor { 8 }):totable() end, { { 1, 8 }, { 2, 8 }, { 3, 8 } } },
    { "block_diag", function() return sc.block_diag(sc.tensor { { 1 } }, sc.tensor { { 2, 3 } }):totable() end,
      { { 1, 0, 0 }, { 0, 2, 3 } } },
    { "one_hot", function() return F.one_hot(sc.tensor { 2, 1 }, 3):totable() end, { { 0, 1, 0 }, { 1, 0, 0 } } },
    { "nonzero", function() return x:gt(4):nonzero():totable() end, { { 2, 2 }, { 2, 3 } } },
  }
  for _, case in ipairs(CASES) do
    it(case[1] .. " gives what it should", function() assert.same(case[3], case[2]()) end)
  end

  it("share memory with their base", function()
    local base = sc.zeros(3, 4)
    for _, view in ipairs { base:select(1, 2), base:narrow(2, 2, 2), base:t(), base:diagonal(), base:unsqueeze(1), base:flatten() } do
      view:fill_(1)
      assert.is_true(base:sum():item() > 0)
      base:fill_(0)
    end
  end)

  it("refuse sizes that cannot be", function()
    for name, fn in pairs {
      expand = function() return x:expand(1 << 62, 2, 3) end, rep = function() return x:rep(1 << 62, 8) end,
      pad = function() return F.pad(x, { math.maxinteger, math.maxinteger }) end, chunk = function() return x:chunk(0) end,
      split = function() return x:split(-1) end, unfold = function() return x:unfold(1, 2, 0) end,
      diag_embed = function() return x:diag_embed(math.mininteger) end, one_hot = function() return F.one_hot(sc.tensor { 1 }, 1 << 62) end,
      tril_indices = function() return sc.tril_indices(1 << 40, 1 << 40) end, squeeze = function() return x:squeeze(3) end,
      permute = function() return x:permute(1, 1) end, as_strided = function() return x:as_strided({ 2 }, { 1 << 62 }, 1) end,
      as_strided_scatter = function() return x:as_strided_scatter(sc.tensor { 1 }, { 1 }, { 1 }, 6) end,
      view = function() return x:view(-1, 4) end, unflatten = function() return x:unflatten(2, { -1, 2 }) end,
    } do
      local ok, message = pcall(fn)
      assert.is_false(ok, name)
      assert.is_truthy(message:find(name, 1, true), message)
    end
  end)

  it("take empty tensors and numbers", function()
    assert.same({ 0, 3 }, sc.cat({ sc.zeros(0, 3), sc.zeros(0, 3) }).shape)
    assert.same({ 2, 0 }, sc.zeros(0, 2):t():contiguous().shape)
    assert.same({ 1, 1 }, sc.tensor(5):unsqueeze(1):unsqueeze(1).shape)
    assert.same({}, sc.tensor(5):squeeze():permute({}).shape)
    assert.same({ 0 }, sc.zeros(0, 4):masked_select(sc.zeros({ 0, 4 }, { dtype = "bool" })).shape)
  end)
end)
