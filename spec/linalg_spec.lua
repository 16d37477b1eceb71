local sc = require "sconce"
local linalg = sc.linalg

--- Deterministic float64 numbers in -1 … 1.
local function filled(shape, seed)
  local n, data, s = 1, {}, seed or 1
  for _, d in ipairs(shape) do n = n * d end
  for i = 1, n do
    s = (s * 1103515245 + 12345) % 2147483648
    data[i] = s / 1073741824 - 1
  end
  return n == 0 and sc.zeros(shape, { dtype = "float64" }) or sc.tensor(data, { dtype = "float64" }):reshape(shape)
end

local function transposed(x) return x:transpose(-2, -1) end
local function symmetric(x) return (x + transposed(x)) * 0.5 end
local function positive(x) return sc.matmul(x, transposed(x)) + sc.eye(x:size(-1), { dtype = x.dtype }) end
local function diagonal(v) return v:diag_embed() end

local function close(want, got, tol)
  assert.same(want.shape, got.shape)
  assert.equal(want.dtype, got.dtype)
  local a, b = want:reshape(-1):totable(), got:reshape(-1):totable()
  for i = 1, #a do assert.near(a[i], b[i], tol * (1 + math.abs(a[i])), "element " .. i) end
end

local function raises(text, fn)
  local ok, message = pcall(fn)
  assert.is_false(ok)
  assert.is_truthy(tostring(message):find(text, 1, true), message)
end

--- Multiplies out what a decomposition gives; the result must be x again.
local REBUILT = {
  { "cholesky", function(x) local l = linalg.cholesky(x); return sc.matmul(l, transposed(l)) end, positive },
  { "cholesky, upper", function(x) local u = linalg.cholesky(x, true); return sc.matmul(transposed(u), u) end, positive },
  { "lu", function(x) local p, l, u = linalg.lu(x); return sc.matmul(sc.matmul(p, l), u) end },
  { "qr", function(x) local q, r = linalg.qr(x); return sc.matmul(q, r) end },
  { "complete qr", function(x) local q, r = linalg.qr(x, "complete"); return sc.matmul(q, r) end },
  { "svd", function(x) local u, s, vh = linalg.svd(x, false); return sc.matmul(u * s:unsqueeze(-2), vh) end },
  { "eigh", function(x) local w, v = linalg.eigh(x); return sc.matmul(v * w:unsqueeze(-2), transposed(v)) end, symmetric },
  { "inverse of the inverse", function(x) return linalg.inv(linalg.inv(x)) end, positive },
  { "solve", function(x) return sc.matmul(x, linalg.solve(x, x)) end, positive },
  { "pinv", function(x) return sc.matmul(sc.matmul(x, linalg.pinv(x)), x) end },
}

describe("decompositions", function()
  for _, row in ipairs(REBUILT) do
    it("multiply out to the matrix again: " .. row[1], function()
      local shapes = row[3] and { { 1, 1 }, { 3, 3 }, { 7, 7 }, { 2, 3, 4, 4 }, { 0, 3, 3 }, { 0, 0 } }
        or { { 1, 1 }, { 4, 4 }, { 5, 3 }, { 3, 5 }, { 2, 3, 4, 2 }, { 2, 2, 4 }, { 0, 2, 3 }, { 0, 0 }, { 3, 0 }, { 0, 3 } }
      for _, shape in ipairs(shapes) do
        local x = filled(shape, 3)
        if row[3] then x = row[3](x) end
        close(x, row[2](x), 1e-12)
        close(x, row[2](transposed(transposed(x):clone())), 1e-12)       -- other strides, same numbers
        close(x:float(), row[2](x:float()), 2e-5)
      end
    end)
  end

  it("have orthonormal factors, descending singular and ascending eigenvalues", function()
    local x = filled({ 2, 5, 3 }, 5)
    local u, s, vh = linalg.svd(x)
    local q = linalg.qr(x)
    for _, f in ipairs { u, transposed(vh), q } do
      close(sc.eye(f:size(-1), { dtype = "float64" }):expand(2, f:size(-1), f:size(-1)), sc.matmul(transposed(f), f), 1e-13)
    end
    for _, row in ipairs(s:totable()) do assert.is_true(row[1] >= row[2] and row[2] >= row[3] and row[3] >= 0) end
    close(s, linalg.svdvals(x), 1e-13)
    local w = linalg.eigvalsh(symmetric(filled({ 4, 4 }))):totable()
    for i = 2, 4 do assert.is_true(w[i] >= w[i - 1]) end
  end)

  it("read one triangle only", function()
    local x = symmetric(filled({ 4, 4 }, 2))
    local dirty = x:tril() + filled({ 4, 4 }, 9):triu(1)
    close(linalg.eigvalsh(x), linalg.eigvalsh(dirty), 1e-13)
    close(linalg.eigvalsh(x), linalg.eigvalsh(transposed(dirty), "U"), 1e-13)
    local p = positive(x)
    close(linalg.cholesky(p), linalg.cholesky(p:tril() + filled({ 4, 4 }, 9):triu(1)), 1e-13)
  end)
end)

describe("determinants", function()
  --- By cofactors along the first row.
  local function det(m)
    if #m == 0 then return 1 end
    local sum = 0
    for c = 1, #m do
      local minor = {}
      for i = 2, #m do
        minor[i - 1] = {}
        for j = 1, #m do if j ~= c then table.insert(minor[i - 1], m[i][j]) end end
      end
      sum = sum + (c % 2 == 1 and 1 or -1) * m[1][c] * det(minor)
    end
    return sum
  end

  it("agree with cofactors", function()
    for n = 1, 6 do
      local x = filled({ n, n }, n)
      local want = det(x:totable())
      assert.near(want, linalg.det(x):item(), 1e-13)
      local sign, log = linalg.slogdet(x)
      assert.near(want, sign:item() * math.exp(log:item()), 1e-13)
    end
    assert.equal(1, linalg.det(sc.zeros(0, 0)):item())
    local sign, log = linalg.slogdet(sc.zeros(2, 2))
    assert.equal(0, sign:item())
    assert.equal(-math.huge, log:item())
    assert.is_true(sc.logdet(sc.tensor { { -1.0 } }):item() ~= sc.logdet(sc.tensor { { -1.0 } }):item())
  end)

  it("have a gradient at singular matrices: the cofactors", function()
    local x = sc.tensor({ { { 1.0, 2.0 }, { 2.0, 4.0 } }, { { 0.0, 0.0 }, { 0.0, 0.0 } }, { { 3.0, 0.0 }, { 0.0, 2.0 } } },
      { dtype = "float64", requires_grad = true })
    linalg.det(x):sum():backward()
    close(sc.tensor({ { { 4.0, -2.0 }, { -2.0, 1.0 } }, { { 0.0, 0.0 }, { 0.0, 0.0 } }, { { 2.0, 0.0 }, { 0.0, 3.0 } } },
      { dtype = "float64" }), x.grad, 1e-12)
  end)
end)

describe("solving", function()
  it("takes vectors, matrices, either side and batches that broadcast", function()
    local a, b = positive(filled({ 3, 4, 4 }, 1)), filled({ 2, 1, 4, 2 }, 2)
    close(b:expand(2, 3, 4, 2), sc.matmul(a, linalg.solve(a, b)), 1e-12)
    local v = filled({ 3, 4 }, 3)
    close(v, sc.matmul(a, linalg.solve(a, v):unsqueeze(-1)):squeeze(-1), 1e-12)
    local r = filled({ 3, 2, 4 }, 4)
    close(r, sc.matmul(linalg.solve(a, r, { left = false }), a), 1e-12)
    local t = a:triu()
    close(r, sc.matmul(linalg.solve_triangular(t, r, true, false), t), 1e-12)
    local lu, pivots = linalg.lu_factor(a)
    for _, adjoint in ipairs { false, true } do
      local m = adjoint and transposed(a) or a
      close(transposed(r), sc.matmul(m, linalg.lu_solve(lu, pivots, transposed(r), true, adjoint)), 1e-12)
      close(r, sc.matmul(linalg.lu_solve(lu, pivots, r, false, adjoint), m), 1e-12)
    end
    close(transposed(r), sc.matmul(a, sc.cholesky_solve(transposed(r), linalg.cholesky(a))), 1e-12)
    close(linalg.inv(a), sc.cholesky_inverse(linalg.cholesky(a, true), true), 1e-12)
  end)

  it("finds least squares: the residual is orthogonal to the columns", function()
    local a, b = filled({ 2, 6, 3 }, 1), filled({ 2, 6, 2 }, 2)
    local x, residuals, rank, values = linalg.lstsq(a, b, nil, "gelsd")
    local left = sc.matmul(a, x) - b
    close(sc.zeros({ 2, 3, 2 }, { dtype = "float64" }), sc.matmul(transposed(a), left), 1e-12)
    close((left * left):sum(-2), residuals, 1e-12)
    assert.same({ 3, 3 }, rank:totable())
    close(linalg.svdvals(a), values, 1e-12)
  end)

  it("names the singular matrix of a batch and changes nothing", function()
    local x = sc.eye(2):expand(3, 2, 2):clone()
    x:select(1, 2):zero_()
    raises("matrix 2 of the batch is singular", function() linalg.inv(x) end)
    raises("matrix 2 of the batch is singular", function() linalg.solve(x, sc.ones(2, 1)) end)
    raises("matrix 2 of the batch is not positive definite", function() linalg.cholesky(x) end)
    local _, info = linalg.inv_ex(x)
    assert.same({ 0, 1, 0 }, info:totable())
    close(sc.eye(2), linalg.inv(sc.eye(2)), 0)
  end)

  it("refuses what is not a matrix, not square, not a float, not finite", function()
    raises("expected square matrices, got shape {2, 3}", function() linalg.inv(sc.ones(2, 3)) end)
    raises("got shape {3}", function() linalg.det(sc.ones(3)) end)
    raises("expected float32 or float64, got int64", function() linalg.det(sc.eye(2, { dtype = "int64" })) end)
    raises("infinities or NaN", function() linalg.eigh(sc.full({ 2, 2 }, 0 / 0)) end)
    raises("infinities or NaN", function() linalg.svd(sc.full({ 2, 2 }, math.huge)) end)
    raises('expected "reduced", "complete" or "r"', function() linalg.qr(sc.ones(2, 2), "full") end)
    raises("does not fit", function() linalg.solve(sc.eye(3), sc.ones(2, 2)) end)
  end)
end)

describe("gradients", function()
  local function sum_of(...)
    local total
    for i, y in ipairs { ... } do
      local s = (y * filled(y.shape, 30 + i)):sum()
      total = total and total + s or s
    end
    return total
  end
  local function abs_of(...)
    local list = { ... }
    for i = 1, #list do list[i] = list[i]:abs() end
    return table.unpack(list)
  end

  local CASES = {
    { "cholesky", { 4, 4 }, function(x) return linalg.cholesky(positive(x)) end },
    { "cholesky_solve", { 4, 4 }, function(x) return sc.cholesky_solve(x, linalg.cholesky(positive(x), true), true) end },
    { "inv", { 2, 3, 3 }, linalg.inv }, { "det", { 2, 4, 4 }, linalg.det }, { "slogdet", { 3, 3 }, function(x) return select(2,
      linalg.slogdet(x)) end },
    { "solve", { 3, 3 }, function(x) return linalg.solve(x, x * x) end },
    { "solve with a broadcast side", { 2, 3, 3 }, function(x) return linalg.solve(x, x:select(1, 1)) end },
    { "solve_triangular", { 3, 3 }, function(x) return linalg.solve_triangular(x + sc.eye(3, { dtype = "float64" }) * 3.0, x * x, false,
      false) end },
    { "unit solve_triangular", { 3, 3 }, function(x) return linalg.solve_triangular(x, x * x, true, true, true) end },
    { "square lu", { 4, 4 }, function(x) return select(2, linalg.lu(x)) end }, { "wide lu", { 3, 5 }, function(x) return select(2,
      linalg.lu(x)) end },
    { "tall lu", { 2, 5, 3 }, function(x) return select(2, linalg.lu(x)) end },
    { "qr", { 4, 4 }, function(x) return abs_of(linalg.qr(x)) end }, { "tall qr", { 5, 3 }, function(x) return abs_of(linalg.qr(x)) end },
    { "wide qr", { 3, 5 }, function(x) return abs_of(linalg.qr(x)) end },
    { "eigh", { 4, 4 }, function(x) return abs_of(linalg.eigh(symmetric(x))) end }, { "eigvalsh", { 2, 3, 3 },
      function(x) return linalg.eigvalsh(symmetric(x)) end },
    { "svd", { 4, 4 }, function(x) return abs_of(linalg.svd(x, false)) end }, { "tall svd", { 5, 3 },
      function(x) return abs_of(linalg.svd(x, false)) end },
    { "wide svd", { 3, 5 }, function(x) return abs_of(linalg.svd(x, false)) end }, { "svdvals", { 2, 3, 4 }, linalg.svdvals },
    { "pinv", { 4, 2 }, linalg.pinv }, { "wide pinv", { 2, 2, 4 }, linalg.pinv }, { "matrix_exp", { 3, 3 }, sc.matrix_exp },
    { "cross", { 2, 3 }, function(x) return linalg.cross(x, x * x) end }, { "householder_product", { 4, 2 },
      function(x) return linalg.householder_product(x, x:select(1, 1)) end },
    { "matrix_power", { 3, 3 }, function(x) return sc.matrix_power(x, -3) end }, { "nuclear norm", { 3, 2 },
      function(x) return linalg.matrix_norm(x, "nuc") end },
    { "cdist", { 4, 3 }, function(x) return sc.cdist(x, x:narrow(1, 1, 2) * 2.0, 3) end },
  }
  for _, case in ipairs(CASES) do
    it("of " .. case[1] .. " agree with differences, and those of the gradient too", function()
      local x = filled(case[2], 12)
      x.requires_grad = true
      local e, step = filled(case[2], 77), 1e-5
      local function first(at, create)
        local y = sum_of(case[3](at))
        return y, (sc.grad(y, at, { create_graph = create }))
      end
      local function moved(sign)
        local at = (x + e * (sign * step)):detach()
        at.requires_grad = true
        local y, d = first(at)
        return y:item(), d
      end
      local _, d = first(x, true)
      local second = sc.grad((d * filled(case[2], 55)):sum(), x)
      local up, d_up = moved(1)
      local down, d_down = moved(-1)
      local want, got = (up - down) / (2 * step), (d * e):sum():item()
      assert.near(want, got, 1e-6 * (1 + math.abs(want)))
      want, got = ((d_up - d_down) * filled(case[2], 55)):sum():item() / (2 * step), (second * e):sum():item()
      assert.near(want, got, 1e-5 * (1 + math.abs(want)))
    end)
  end

  it("stay finite where values are repeated and nothing depends on the choice of vectors", function()
    for _, fn in ipairs { linalg.eigvalsh, linalg.svdvals, function(x) return (linalg.eigh(x)) end, function(x) return select(2,
      linalg.svd(x)) end } do
      local x = sc.eye(3, { dtype = "float64" })
      x.requires_grad = true
      fn(x):sum():backward()
      close(sc.eye(3, { dtype = "float64" }), x.grad, 1e-12)
    end
  end)
end)

describe("functions of matrices", function()
  it("exponentiate: a rotation, a large diagonal, a nilpotent matrix", function()
    local a = 2.5
    close(sc.tensor({ { math.cos(a), math.sin(a) }, { -math.sin(a), math.cos(a) } }, { dtype = "float64" }),
      sc.matrix_exp(sc.tensor({ { 0.0, a }, { -a, 0.0 } }, { dtype = "float64" })), 1e-13)
    close(sc.tensor({ { math.exp(30), 0.0 }, { 0.0, math.exp(-30) } }, { dtype = "float64" }),
      sc.matrix_exp(diagonal(sc.tensor({ 30.0, -30.0 }, { dtype = "float64" }))), 1e-12)
    close(sc.tensor { { 1.0, 3.0 }, { 0.0, 1.0 } }, sc.matrix_exp(sc.tensor { { 0.0, 3.0 }, { 0.0, 0.0 } }), 1e-6)
    assert.same({ 0, 2, 2 }, sc.matrix_exp(sc.zeros(0, 2, 2)).shape)
  end)

  it("count ranks within tolerances and give norms and condition numbers", function()
    local x = sc.matmul(filled({ 5, 2 }, 1), filled({ 2, 4 }, 2))
    assert.equal(2, linalg.matrix_rank(x):item())
    assert.equal(0, linalg.matrix_rank(sc.zeros(3, 3)):item())
    local m = sc.tensor { { 1.0, -2.0 }, { 3.0, 4.0 } }
    assert.equal(6, linalg.matrix_norm(m, 1):item())
    assert.equal(7, linalg.matrix_norm(m, math.huge):item())
    assert.equal(3, linalg.matrix_norm(m, -math.huge):item())
    assert.near(math.sqrt(30), linalg.norm(m):item(), 1e-6)
    assert.equal(math.huge, linalg.cond(sc.zeros(2, 2), 1):item())
    assert.near(4, linalg.cond(diagonal(sc.tensor { 2.0, 8.0 })):item(), 1e-6)
    raises("a norm of matrices", function() linalg.norm(sc.ones(3), "fro") end)
  end)
end)
