-- Convolutions against plain loops, their adjoints by random directions, and what must be refused.
local sc = require "sconce"
local F = sc.nn.functional

local function randn(dtype, ...) return sc.randn({ ... }, { dtype = dtype }) end

-- The definition for two spatial dims, on flat Lua tables.
local function plain_conv2d(x, w, b, stride, pad, dilation, groups)
  local N, C, H, W = table.unpack(x.shape)
  local O, _, kh, kw = table.unpack(w.shape)
  local Cg, Og = C // groups, O // groups
  local Ho = (H + 2 * pad - dilation * (kh - 1) - 1) // stride + 1
  local Wo = (W + 2 * pad - dilation * (kw - 1) - 1) // stride + 1
  local xs, ws, bs = x:contiguous():reshape(-1):totable(), w:contiguous():reshape(-1):totable(), b and b:totable()
  local y = {}
  for n = 0, N - 1 do for o = 0, O - 1 do for i = 0, Ho - 1 do for j = 0, Wo - 1 do
    local sum = bs and bs[o + 1] or 0
    for c = 0, Cg - 1 do for a = 0, kh - 1 do for e = 0, kw - 1 do
      local h, v = i * stride - pad + a * dilation, j * stride - pad + e * dilation
      if h >= 0 and h < H and v >= 0 and v < W then
        local channel = o // Og * Cg + c
        sum = sum + xs[((n * C + channel) * H + h) * W + v + 1] * ws[((o * Cg + c) * kh + a) * kw + e + 1]
      end
    end end end
    y[#y + 1] = sum
  end end end end
  return y, { N, O, Ho, Wo }
end

local function close(got, want, tol)
  assert.are.equal(#want, #got)
  for i = 1, #want do
    if math.abs(got[i] - want[i]) > tol * (1 + math.abs(want[i])) then
      error(("element %d: got %g, expected %g"):format(i, got[i], want[i]), 2)
    end
  end
end

local function refuses(word, fn)
  local ok, message = pcall(fn)
  if ok then error("no error was raised", 2) end
  if not tostring(message):find(word, 1, true) then error(("the message %q does not name %q"):format(message, word), 2) end
end

local CASES = {
  { N = 2, C = 3, H = 7, W = 5, O = 4, k = 3, stride = 1, pad = 1, dilation = 1, groups = 1 },
  { N = 1, C = 16, H = 9, W = 21, O = 11, k = 3, stride = 1, pad = 0, dilation = 1, groups = 1, note = "several tiles and channel blocks" },
  { N = 2, C = 8, H = 6, W = 70, O = 9, k = 3, stride = 1, pad = 2, dilation = 2, groups = 1 },
  { N = 2, C = 6, H = 8, W = 9, O = 6, k = 3, stride = 1, pad = 1, dilation = 1, groups = 6, note = "depth-wise" },
  { N = 2, C = 4, H = 9, W = 8, O = 6, k = 3, stride = 2, pad = 1, dilation = 1, groups = 2 },
  { N = 3, C = 5, H = 4, W = 6, O = 7, k = 1, stride = 1, pad = 0, dilation = 1, groups = 1, note = "plain products" },
  { N = 1, C = 2, H = 10, W = 11, O = 3, k = 2, stride = 3, pad = 1, dilation = 3, groups = 1 },
}

describe("conv2d", function()
  for i, c in ipairs(CASES) do
    for _, dtype in ipairs { "float32", "float64" } do
      it(("equals the definition: case %d, %s"):format(i, dtype), function()
        sc.manual_seed(i)
        local x, w, b = randn(dtype, c.N, c.C, c.H, c.W), randn(dtype, c.O, c.C // c.groups, c.k, c.k), randn(dtype, c.O)
        local options = { stride = c.stride, padding = c.pad, dilation = c.dilation, groups = c.groups }
        local y = F.conv2d(x, w, b, options)
        local want, shape = plain_conv2d(x, w, b, c.stride, c.pad, c.dilation, c.groups)
        assert.are.same(shape, y.shape)
        close(y:reshape(-1):totable(), want, dtype == "float32" and 2e-5 or 1e-12)
      end)

      it(("has adjoints that agree with it: case %d, %s"):format(i, dtype), function()
        sc.manual_seed(i)
        local x, w = randn(dtype, c.N, c.C, c.H, c.W), randn(dtype, c.O, c.C // c.groups, c.k, c.k)
        local options = { stride = c.stride, padding = c.pad, dilation = c.dilation, groups = c.groups }
        x.requires_grad = true
        w.requires_grad = true
        local y = F.conv2d(x, w, nil, options)
        local dy = randn(dtype, table.unpack(y.shape))
        local dx, dw = sc.grad(y, { x, w }, { grad_outputs = dy })
        -- bilinear: <dy, conv(u, w)> = <dx, u> and <dy, conv(x, v)> = <dw, v> for any u, v
        local u, v = randn(dtype, table.unpack(x.shape)), randn(dtype, table.unpack(w.shape))
        local tol = dtype == "float32" and 1e-3 or 1e-10
        close({ (dx * u):sum():item() }, { (dy * F.conv2d(u, w, nil, options)):sum():item() }, tol)
        close({ (dw * v):sum():item() }, { (dy * F.conv2d(x, v, nil, options)):sum():item() }, tol)
      end)
    end
  end

  it("takes strided inputs and weights", function()
    local x, w = sc.randn(2, 6, 5, 4):transpose(2, 4), sc.randn(3, 4, 3, 7):transpose(1, 4)
    local part = w:narrow(1, 1, 5)
    close(F.conv2d(x, part):reshape(-1):totable(), F.conv2d(x:contiguous(), part:contiguous()):reshape(-1):totable(), 1e-6)
  end)

  it("keeps the size with padding \"same\", also for an even kernel", function()
    assert.are.same({ 1, 2, 7, 8 }, F.conv2d(sc.ones(1, 1, 7, 8), sc.ones(2, 1, 4, 3), { padding = "same" }).shape)
  end)

  it("takes an empty batch, whose weight gradient is zero", function()
    local w = sc.ones(2, 3, 3, 3):requires_grad_(true)
    local y = F.conv2d(sc.zeros(0, 3, 5, 5), w)
    assert.are.same({ 0, 2, 3, 3 }, y.shape)
    assert.are.equal(0, sc.grad(y:sum(), w):abs():sum():item())
  end)

  it("gives the same numbers with two threads", function()
    local x, w = sc.randn(3, 16, 20, 20), sc.randn(24, 16, 3, 3)
    sc.set_num_threads(1)
    local one = F.conv2d(x, w, { padding = 1 }):reshape(-1):totable()
    sc.set_num_threads(2)
    close(F.conv2d(x, w, { padding = 1 }):reshape(-1):totable(), one, 1e-6)
    close(F.conv2d(x:narrow(1, 1, 1), w, { padding = 1 }):reshape(-1):totable(), { table.unpack(one, 1, 24 * 400) }, 1e-6)
  end)

  it("refuses what cannot be, by name", function()
    local x, w = sc.ones(1, 2, 5, 5), sc.ones(4, 2, 3, 3)
    for name, bad in pairs { stride = 0, dilation = 0, groups = 0, padding = -1 } do
      refuses(name, function() F.conv2d(x, w, { [name] = bad }) end)
    end
    refuses("groups", function() F.conv2d(x, w, { groups = 3 }) end)
    refuses("does not fit", function() F.conv2d(x, sc.ones(4, 2, 7, 7)) end)
    refuses("input channels", function() F.conv2d(x, sc.ones(4, 3, 3, 3)) end)
    refuses("same", function() F.conv2d(x, w, { padding = "same", stride = 2 }) end)
    refuses("stride", function() F.conv2d(x, w, { stride = 1 << 40 }) end)
  end)
end)

describe("direct convolution", function()
  -- batch, groups, channels of a group in and out, height, width, kernel, padding, dilation: channels that fill no, one or several
  -- vectors; rows shorter and longer than a tile, images with and without padding
  local SHAPES = {
    { 2, 1, 4, 32, 9, 11, { 3, 3 }, 0, 1 }, { 1, 1, 3, 48, 7, 29, { 5, 3 }, 2, 1 }, { 2, 2, 8, 16, 6, 5, { 3, 3 }, 1, 1 },
    { 3, 1, 5, 17, 8, 33, { 3, 3 }, 2, 2 }, { 1, 3, 6, 33, 5, 3, { 2, 4 }, 3, 1 }, { 2, 1, 33, 40, 4, 16, { 1, 3 }, 1, 1 },
  }
  for i, s in ipairs(SHAPES) do
    it("of shape " .. i .. " is what float64 gives, with the same bits on several threads, in graphs and in slices", function()
      local n, g, c, o, options = s[1], s[2], s[3], s[4], { padding = s[8], dilation = s[9], groups = s[2] }
      local x = sc.randn(n, g * c, s[5], s[6]):requires_grad_(true)
      local w, b = sc.randn(g * o, c, s[7][1], s[7][2]):requires_grad_(true), sc.randn(g * o)
      local function both(x_, w_, b_, dy)
        local y = F.conv2d(x_, w_, b_, options)
        local dx, dw = sc.grad(y, { x_, w_ }, { grad_outputs = dy or sc.ones_like(y) })
        return y:detach(), dx, dw
      end
      local threads = sc.get_num_threads()
      sc.set_num_threads(1)
      local one = { both(x, w, b) }
      sc.set_num_threads(3)
      local three = { both(x, w, b) }
      local f = sc.compile(function(t) return sc.no_grad(function() return F.conv2d(t, w, b, options):relu() end) end)
      local y = f(x:detach())
      local job = f.last:start(x:detach())
      while not job:advance(20) do end
      sc.set_num_threads(threads)
      local exact = { both(x:detach():double():requires_grad_(true), w:detach():double():requires_grad_(true), b:double()) }
      for k = 1, 3 do
        assert.is_true(((one[k]:double() - exact[k]):abs():max() / exact[k]:abs():max()):item() < 3e-6)
        if k < 3 then assert.is_true(sc.equal(one[k], three[k])) end
      end
      assert.is_true(sc.equal(y, one[1]:relu()))
      assert.is_true(sc.equal(job:result(), y))
    end)
  end
end)

describe("conv_transpose2d", function()
  it("is the adjoint of conv2d", function()
    local w = sc.randn({ 4, 3, 3, 3 }, { dtype = "float64" })
    local x, dy = sc.randn({ 2, 3, 9, 9 }, { dtype = "float64" }), sc.randn({ 2, 4, 5, 5 }, { dtype = "float64" })
    local there = (F.conv2d(x, w, { stride = 2, padding = 1 }) * dy):sum():item()
    local back = (F.conv_transpose2d(dy, w, { stride = 2, padding = 1 }) * x):sum():item()
    close({ back }, { there }, 1e-10)
  end)

  it("adds output_padding and refuses too much of it", function()
    assert.are.same({ 1, 1, 6, 6 }, F.conv_transpose2d(sc.ones(1, 1, 3, 3), sc.ones(1, 1, 2, 2), { stride = 2 }).shape)
    local options = { stride = 2, output_padding = 1 }
    assert.are.same({ 1, 1, 7, 7 }, F.conv_transpose2d(sc.ones(1, 1, 3, 3), sc.ones(1, 1, 2, 2), options).shape)
    refuses("output_padding", function() F.conv_transpose2d(sc.ones(1, 1, 3, 3), sc.ones(1, 1, 2, 2), { output_padding = 1 }) end)
  end)
end)

describe("unfold and fold", function()
  it("are adjoint", function()
    local x, options = sc.randn({ 2, 3, 6, 7 }, { dtype = "float64" }), { dilation = 2, padding = 1, stride = 2 }
    local y = F.unfold(x, 2, options)
    local dy = sc.randn(y.shape, { dtype = "float64" })
    close({ (F.fold(dy, { 6, 7 }, 2, options) * x):sum():item() }, { (y * dy):sum():item() }, 1e-10)
  end)
  it("refuse windows that do not fit", function()
    refuses("does not fit", function() F.unfold(sc.ones(1, 1, 2, 2), 3) end)
    refuses("columns", function() F.fold(sc.ones(1, 4, 5), { 3, 3 }, 2) end)
  end)
end)
