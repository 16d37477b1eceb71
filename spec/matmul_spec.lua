local sc = require "sconce"

--- Reads a tensor's elements through its strides: x[i][j] … as nested tables, numbers for 0-d.
local function values(x) return x:dim() == 0 and x:item() or x:totable() end

--- Deterministic numbers in -1 … 1, or small integers.
local function filled(shape, dtype, seed)
  local n, data = 1, {}
  for _, d in ipairs(shape) do n = n * d end
  local s = seed or 1
  for i = 1, n do
    s = (s * 1103515245 + 12345) % 2147483648
    data[i] = dtype:find("float") and s / 1073741824 - 1 or s // 65536 % 19 - 9
  end
  if n == 0 then return sc.zeros(shape, { dtype = dtype }) end
  return sc.tensor(data, { dtype = dtype }):reshape(shape)
end

--- The same numbers with other strides: "t" stored transposed, "s" every other column of a wider one, "n" packed.
local function laid(x, how)
  if how == "t" then return x:transpose(-2, -1):clone():transpose(-2, -1) end
  if how == "s" then
    local shape = x.shape
    shape[#shape + 1] = 2
    return x:unsqueeze(-1):expand(shape):clone():select(-1, 1)
  end
  return x
end

--- fn raises, and the message holds the text.
local function raises(text, fn)
  local ok, message = pcall(fn)
  assert.is_false(ok)
  assert.is_truthy(tostring(message):find(text, 1, true), message)
end

local function dot_of(a, b, i, j, k)
  local sum = 0
  for p = 1, k do sum = sum + a[i][p] * b[p][j] end
  return sum
end

local function assert_product(y, x, other, tol, probes)
  local m, k, n = x:size(1), x:size(2), other:size(2)
  assert.same({ m, n }, y.shape)
  if m * n == 0 then return end
  if probes then                                        -- some elements of a large result, from its row and column
    for q = 1, probes do
      local i, j = q == 1 and m or q * 7919 % m + 1, q == 1 and n or q * 104729 % n + 1
      local want = dot_of(x:narrow(1, i, 1):totable(), other:narrow(2, j, 1):totable(), 1, 1, k)
      local got = y:narrow(1, i, 1):narrow(2, j, 1):item()
      assert.near(want, got, tol * (1 + math.abs(want)), ("[%d, %d] of %d x %d x %d"):format(i, j, m, k, n))
    end
    return
  end
  local a, b, c = x:totable(), other:totable(), y:totable()
  for i = 1, m do
    for j = 1, n do
      local want = k == 0 and 0 or dot_of(a, b, i, j, k)
      assert.near(want, c[i][j], tol * (1 + math.abs(want)), ("[%d, %d] of %d x %d x %d"):format(i, j, m, k, n))
    end
  end
end

local SIZES = { { 1, 1, 1 }, { 2, 3, 4 }, { 0, 3, 2 }, { 3, 0, 2 }, { 3, 2, 0 }, { 1, 37, 19 }, { 19, 37, 1 }, { 9, 1, 7 }, { 1, 70, 1 },
  { 17, 33, 31 } }
local TOLERANCE = { float32 = 2e-5, float64 = 1e-13, int64 = 0, int32 = 0, uint8 = 0 }

describe("matmul", function()
  for _, dtype in ipairs { "float32", "float64", "int64" } do
    it("agrees with plain loops for every layout of its operands in " .. dtype, function()
      for _, s in ipairs(SIZES) do
        local x, other = filled({ s[1], s[2] }, dtype, 3), filled({ s[2], s[3] }, dtype, 5)
        for _, how_x in ipairs { "n", "t", "s" } do
          for _, how_other in ipairs { "n", "t", "s" } do
            local y = sc.matmul(laid(x, how_x), laid(other, how_other))
            assert.equal(dtype, y.dtype)
            assert_product(y, x, other, TOLERANCE[dtype])
          end
        end
      end
    end)
  end

  it("is right for shapes with ragged edges that are split over threads", function()
    local before = sc.get_num_threads()
    for _, threads in ipairs { 1, 2, 3 } do
      sc.set_num_threads(threads)
      for _, s in ipairs { { 517, 163, 391 }, { 40, 300, 1603 }, { 1603, 300, 40 }, { 1, 1501, 1503 }, { 1503, 1501, 1 } } do
        sc.manual_seed(7)
        local x, other = sc.rand(s[1], s[2]) - 0.5, sc.rand(s[2], s[3]) - 0.5
        assert_product(sc.matmul(x, other), x, other, 1e-4, 12)
        assert_product(sc.matmul(laid(x, "t"), laid(other, "t")), x, other, 1e-4, 12)
      end
    end
    sc.set_num_threads(before)
  end)

  it("is right for shapes large enough to be packed", function()
    local before = sc.get_num_threads()
    for _, s in ipairs { { 1024, 1000, 256 }, { 701, 913, 640 }, { 256, 1500, 500 } } do
      sc.manual_seed(9)
      local x, other = sc.rand(s[1], s[2]) - 0.5, sc.rand(s[2], s[3]) - 0.5
      for _, how in ipairs { { "rows", "rows" }, { "t", "rows" }, { "rows", "t" }, { "t", "t" } } do
        local a, b = how[1] == "t" and laid(x, "t") or x, how[2] == "t" and laid(other, "t") or other
        for threads = 1, 3 do
          sc.set_num_threads(threads)
          assert_product(sc.matmul(a, b), x, other, 1e-4, 12)
        end
      end
    end
    sc.set_num_threads(before)
  end)

  it("gives the same bits each time for the same number of threads", function()
    local before = sc.get_num_threads()
    sc.set_num_threads(2)
    local x, other = filled({ 301, 257 }, "float32", 1), filled({ 257, 299 }, "float32", 2)
    local first = sc.matmul(x, other):tostring_bytes()
    for _ = 1, 5 do assert.is_true(first == sc.matmul(x, other):tostring_bytes()) end
    sc.set_num_threads(before)
  end)

  it("broadcasts batches and takes vectors on either side", function()
    local x, other = filled({ 2, 1, 3, 4 }, "float64", 1), filled({ 5, 4, 2 }, "float64", 2)
    local y = sc.matmul(x, other)
    assert.same({ 2, 5, 3, 2 }, y.shape)
    local a, b, c = x:totable(), other:totable(), y:totable()
    for i = 1, 2 do for q = 1, 5 do for r = 1, 3 do for s = 1, 2 do
      assert.near(dot_of(a[i][1], b[q], r, s, 4), c[i][q][r][s], 1e-13)
    end end end end
    local v = filled({ 4 }, "float64", 3)
    assert.same(sc.matmul(x, v:reshape(4, 1)):reshape(2, 1, 3):totable(), sc.matmul(x, v):totable())
    assert.same(sc.matmul(v:reshape(1, 4), other):reshape(5, 2):totable(), sc.matmul(v, other):totable())
    assert.near(dot_of({ v:totable() }, v:reshape(4, 1):totable(), 1, 1, 4), sc.matmul(v, v):item(), 1e-13)
  end)

  it("wraps in the integer's own width", function()
    local x = sc.full({ 1, 2 }, 200, { dtype = "uint8" })
    assert.same({ { 200 * 200 * 2 % 256 } }, sc.matmul(x, x:reshape(2, 1)):totable())
    local big = sc.full({ 1, 1 }, 1 << 40, { dtype = "int64" })
    assert.same({ { (1 << 40) * (1 << 40) } }, sc.matmul(big, big):totable())
  end)

  it("rounds halves once, at the end", function()
    local x = filled({ 5, 40 }, "float32", 1):to("bfloat16")
    local y = filled({ 40, 6 }, "float32", 2):to("bfloat16")
    local exact = sc.matmul(x:to("float64"), y:to("float64")):to("float32"):totable()
    local got = sc.matmul(x, y)
    assert.equal("bfloat16", got.dtype)
    got = got:to("float32"):totable()
    for i = 1, 5 do for j = 1, 6 do assert.near(exact[i][j], got[i][j], math.abs(exact[i][j]) / 256 + 1e-6) end end
  end)

  it("reads a weight of halves as it is for a few rows, with the same numbers", function()
    for _, dtype in ipairs { "float16", "bfloat16" } do
      for _, k in ipairs { 1, 16, 33, 70 } do
        local w = (filled({ 7, k }, "float32", 2) * 3.0):to(dtype)
        if k > 1 then w:select(1, 2):fill_(2 ^ -20) end    -- below float16's normal numbers
        for _, rows in ipairs { 1, 3, 5 } do
          local x, b = filled({ rows, k }, "float32", 1):to(dtype), filled({ 7 }, "float32", 4):to(dtype)
          local want = sc.nn.functional.linear(x:to("float64"), w:to("float64"), b:to("float64")):reshape(-1):totable()
          local plain = sc.matmul(x:to("float64"), w:to("float64"):transpose(1, 2)):reshape(-1):totable()
          local got = sc.nn.functional.linear(x, w, b):to("float64"):reshape(-1):totable()
          local product = sc.matmul(x, w:transpose(1, 2)):to("float64"):reshape(-1):totable()
          local tol = dtype == "float16" and 2 ^ -10 or 2 ^ -8
          for i = 1, #want do
            assert.near(want[i], got[i], tol * math.abs(want[i]) + 1e-5)
            assert.near(plain[i], product[i], tol * math.abs(plain[i]) + 1e-5)
          end
        end
      end
    end
    local special = sc.tensor { math.huge, -math.huge, 0 / 0, -0.0 }:reshape(1, 4):expand(16, 4):to("float16"):transpose(1, 2):clone()
    local y = sc.nn.functional.linear(sc.ones({ 1, 16 }, { dtype = "float16" }), special):totable()[1]
    assert.equal(math.huge, y[1])
    assert.equal(-math.huge, y[2])
    assert.is_true(y[3] ~= y[3])
    assert.equal(0, y[4])
  end)

  it("gives gradients that agree with differences, for vectors, matrices and batches", function()
    for _, s in ipairs { { { 3 }, { 3 } }, { { 3 }, { 3, 2 } }, { { 2, 3 }, { 3 } }, { { 2, 3 }, { 3, 4 } }, { { 2, 3 }, { 5, 3, 2 } },
      { { 2, 4, 3 }, { 3, 2 } },
      { { 3 }, { 2, 3, 2 } }, { { 2, 2, 3 }, { 3 } }, { { 2, 1, 2, 3 }, { 4, 3, 2 } } } do
      local x, other = filled(s[1], "float64", 1), filled(s[2], "float64", 2)
      x.requires_grad, other.requires_grad = true, true
      local w = filled(sc.matmul(x, other).shape, "float64", 9)
      local dx, dother = sc.grad((sc.matmul(x, other) * w):sum(), { x, other })
      local step = 1e-6
      for _, pair in ipairs { { x, dx, 1 }, { other, dother, 2 } } do
        assert.same(pair[1].shape, pair[2].shape)
        local e = filled(pair[1].shape, "float64", 4) * step
        local function at(sign)
          return sc.no_grad(function()
            local moved = pair[1] + e * sign
            return ((pair[3] == 1 and sc.matmul(moved, other) or sc.matmul(x, moved)) * w):sum():item()
          end)
        end
        assert.near((at(1) - at(-1)) / 2, (pair[2] * e):sum():item(), 1e-12)
      end
    end
  end)

  it("names both shapes when they do not fit, and refuses mixed dtypes", function()
    raises("{2, 3} and {4, 5}", function() sc.matmul(sc.ones(2, 3), sc.ones(4, 5)) end)
    raises("float64", function() sc.matmul(sc.ones(2, 3, { dtype = "float64" }), sc.ones(3, 2)) end)
    raises("mm: argument 1 (x): expected 2 dimensions, got shape {3}", function() sc.mm(sc.ones(3), sc.ones(3, 2)) end)
    raises("bmm", function() sc.bmm(sc.ones(2, 3, 4), sc.ones(3, 4, 5)) end)
    raises("matmul: argument 1 (x)", function() sc.matmul(sc.tensor(1.0), sc.ones(3)) end)
  end)
end)

describe("the products that add", function()
  it("do not read what beta 0 leaves out, and read it otherwise", function()
    local nan = sc.full({ 2, 2 }, 0 / 0)
    assert.same({ { 3, 3 }, { 3, 3 } }, sc.addmm(nan, sc.ones(2, 3), sc.ones(3, 2), { beta = 0 }):totable())
    assert.same({ { 7, 7 }, { 7, 7 } }, sc.addmm(sc.ones(2), sc.ones(2, 3), sc.ones(3, 2), { beta = 1, alpha = 2 }):totable())
    assert.same({ 0, 0 }, sc.addmv(sc.full({ 2 }, 0 / 0), sc.ones(2, 0), sc.ones(0), { beta = 0 }):totable())
    assert.same({ 5, 5 }, sc.addmv(sc.full({ 2 }, 5.0), sc.ones(2, 0), sc.ones(0)):totable())
    assert.same({ { 12, 12 } }, sc.addbmm(sc.zeros(1, 2), sc.ones(4, 1, 3), sc.ones(4, 3, 2)):totable())
    assert.same({ { 4, 7 }, { 7, 13 } }, sc.addr(sc.ones(2, 2, { dtype = "int64" }), sc.tensor { 1, 2 }, sc.tensor { 1, 2 },
      { alpha = 3 }):totable())
    assert.same({ { { 2.5 } }, { { 2.5 } } }, sc.baddbmm(sc.tensor { 1.0 }, sc.ones(2, 1, 4), sc.ones(2, 4, 1), { beta = 0.5,
      alpha = 0.5 }):totable())
  end)
end)

describe("linear", function()
  local F = sc.nn.functional
  it("is the product with the transposed weight plus the bias, whatever the leading dims and strides", function()
    for _, lead in ipairs { {}, { 1 }, { 6 }, { 0 }, { 2, 3 }, { 2, 0, 3 } } do
      local shape = table.move(lead, 1, #lead, 1, {})
      shape[#shape + 1] = 5
      local x, w, b = filled(shape, "float64", 1), filled({ 4, 5 }, "float64", 2), filled({ 4 }, "float64", 3)
      local want = sc.matmul(x, w:transpose(1, 2)) + b
      for _, how in ipairs(#shape > 1 and { "n", "t", "s" } or { "n" }) do
        local got = F.linear(laid(x, how), laid(w, how), b)
        assert.same(want.shape, got.shape)
        local d = (want - got):reshape(-1):totable()
        for _, v in ipairs(d) do assert.near(0, v, 1e-13) end
      end
    end
  end)

  it("has the gradients of that composition, twice", function()
    for _, shape in ipairs { { 5 }, { 1, 5 }, { 3, 5 }, { 2, 3, 5 } } do
      local x, w, b = filled(shape, "float64", 1), filled({ 4, 5 }, "float64", 2), filled({ 4 }, "float64", 3)
      for _, t in ipairs { x, w, b } do t.requires_grad = true end
      local function second(fn)
        local y = fn(x, w, b)
        local dx, dw, db = sc.grad((y * y):sum(), { x, w, b }, { create_graph = true })
        local ddx, ddw = sc.grad((dx * dx):sum() + (dw * dw * dw):sum() + db:sum(), { x, w })
        return { dx, dw, db, ddx, ddw }
      end
      local got = second(F.linear)
      local want = second(function(p, q, r) return sc.matmul(p, q:transpose(1, 2)) + r end)
      for i = 1, 5 do
        assert.same(want[i].shape, got[i].shape)
        local g, v = got[i]:reshape(-1):totable(), want[i]:reshape(-1):totable()
        for k = 1, #g do assert.near(v[k], g[k], 1e-9 * (1 + math.abs(v[k]))) end
      end
    end
  end)

  it("refuses sizes that do not fit, naming them", function()
    raises("{4, 5}", function() F.linear(sc.ones(2, 3), sc.ones(4, 5)) end)
    raises("argument 3 (bias)", function() F.linear(sc.ones(2, 3), sc.ones(4, 3), sc.ones(5)) end)
  end)
end)

describe("einsum", function()
  --- The definition: a sum over all values of all labels.
  local function reference(equation, ...)
    local left, right = equation:match("^(.-)%->(.*)$")
    local words, size, order = {}, {}, {}
    for w in (left .. ","):gmatch("(.-),") do words[#words + 1] = w end
    local operands = { ... }
    for i, w in ipairs(words) do
      for k = 1, #w do
        local l = w:sub(k, k)
        if not size[l] then order[#order + 1] = l end
        size[l] = operands[i]:size(k)
      end
      operands[i] = values(operands[i])
    end
    local sums, at = {}, {}
    local function walk(d)
      if d <= #order then
        for v = 1, size[order[d]] do at[order[d]] = v; walk(d + 1) end
        return
      end
      local term = 1
      for i, w in ipairs(words) do
        local v = operands[i]
        for k = 1, #w do v = v[at[w:sub(k, k)]] end
        term = term * v
      end
      local flat = 0
      for k = 1, #right do flat = flat * size[right:sub(k, k)] + at[right:sub(k, k)] - 1 end
      sums[flat + 1] = (sums[flat + 1] or 0) + term
    end
    walk(1)
    return sums
  end

  local function t(...) return filled({ ... }, "float64", 17) end
  for _, case in ipairs {
    { "ij,jk->ik", t(2, 3), t(3, 4) }, { "ij,kj->ki", t(2, 3), t(4, 3) }, { "bij,bjk->bik", t(2, 2, 3), t(2, 3, 2) }, { "ii->i", t(3, 3) },
    { "ii->", t(3, 3) }, { "iij->ji", t(3, 3, 2) }, { "ij,ij->", t(2, 3), t(2, 3) }, { "i,j->ji", t(2), t(3) }, { "ijk->ki", t(2, 3, 4) },
    { "ab,bc,cd->ad", t(2, 3), t(3, 2), t(2, 4) }, { "bn,anm,bm->ba", t(2, 3), t(4, 3, 2), t(2, 2) }, { "ij,ij->ij", t(2, 3), t(2, 3) },
    { "aij,bij->ab", t(2, 2, 3), t(3, 2, 3) },
  } do
    it("agrees with its definition for " .. case[1], function()
      local got = sc.einsum(table.unpack(case)):reshape(-1):totable()
      local want = reference(table.unpack(case))
      assert.equal(#want, #got)
      for i = 1, #want do assert.near(want[i], got[i], 1e-12) end
    end)
  end

  it("fills in an ellipsis, an implicit result and sublists", function()
    local x, y = t(2, 3, 4), t(4, 5)
    assert.same(sc.matmul(x, y):totable(), sc.einsum("...ij,jk->...ik", x, y):totable())
    assert.same(sc.einsum("ba->ab", t(2, 3)):totable(), sc.einsum("ba", t(2, 3)):totable())
    assert.same({ 3, 4, 5 }, sc.einsum("i...,k->...k", x, t(5)).shape)
    assert.same(sc.einsum("ij,jk->ki", t(2, 3), y:narrow(1, 1, 3)):totable(),
      sc.einsum(t(2, 3), { 1, 2 }, y:narrow(1, 1, 3), { 2, 7 }, { 7, 1 }):totable())
  end)

  it("says what is wrong with an equation", function()
    raises("in no operand", function() sc.einsum("ij,jk->il", t(2, 2), t(2, 2)) end)
    raises("size 2", function() sc.einsum("ij,jk", t(2, 3), t(2, 3)) end)
    raises("names 3", function() sc.einsum("ijk", t(2, 3)) end)
    raises("2 operands", function() sc.einsum("ij,jk", t(2, 3)) end)
    raises("unexpected", function() sc.einsum("i1", t(2, 3)) end)
  end)
end)

describe("tensordot, inner, outer and multi_dot", function()
  it("agree with reshaped products", function()
    local x, y = filled({ 2, 3, 4 }, "float64", 1), filled({ 4, 3, 5 }, "float64", 2)
    local want = sc.einsum("abc,cbd->ad", x, y):reshape(-1):totable()
    local got = sc.tensordot(x, y, { { 2, 3 }, { 2, 1 } }):reshape(-1):totable()
    for i = 1, #want do assert.near(want[i], got[i], 1e-12) end
    assert.same({ 2, 3, 3, 5 }, sc.tensordot(x, y, 1).shape)
    assert.same({ { 3, 4 }, { 6, 8 } }, sc.outer(sc.tensor { 1, 2 }, sc.tensor { 3, 4 }):totable())
    assert.same({ 2, 3, 6 }, sc.inner(x, filled({ 6, 4 }, "float64", 1)).shape)
    local a, b, c = filled({ 2, 7 }, "float64", 1), filled({ 7, 3 }, "float64", 2), filled({ 3, 5 }, "float64", 3)
    local chain, plain = sc.linalg.multi_dot({ a, b, c }):reshape(-1):totable(), sc.mm(sc.mm(a, b), c):reshape(-1):totable()
    for i = 1, #plain do assert.near(plain[i], chain[i], 1e-12) end
  end)
end)
