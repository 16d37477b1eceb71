-- Pooling and interpolation: values worked out by hand or by plain loops, gradients by adjointness, refusals.
local sc = require "sconce"
local F = sc.nn.functional

local function flat(t) return t:detach():contiguous():reshape(-1):totable() end
local function close(got, want, tol)
  assert.are.equal(#want, #got)
  for i = 1, #want do
    if math.abs(got[i] - want[i]) > (tol or 1e-6) then error(("element %d: got %.9g, expected %.9g"):format(i, got[i], want[i]), 2) end
  end
end
local function refuses(word, fn)
  local ok, message = pcall(fn)
  if ok then error("no error was raised", 2) end
  if not tostring(message):find(word, 1, true) then error(("the message %q does not name %q"):format(message, word), 2) end
end

describe("max_pool2d", function()
  for _, c in ipairs { { k = 2, s = 2, p = 0, d = 1 }, { k = 3, s = 1, p = 1, d = 1 }, { k = 2, s = 1, p = 1, d = 2 },
    { k = 3, s = 2, p = 0, d = 1 } } do
    it(("finds the largest element and its place: kernel %d, stride %d, padding %d, dilation %d"):format(c.k, c.s, c.p, c.d), function()
      sc.manual_seed(1)
      local H, W = 7, 8
      local x = sc.randn(2, 3, H, W)
      local y, at = F.max_pool2d(x, c.k, { stride = c.s, padding = c.p, dilation = c.d, return_indices = true })
      local v, want, where = flat(x), {}, {}
      local Ho, Wo = (H + 2 * c.p - c.d * (c.k - 1) - 1) // c.s + 1, (W + 2 * c.p - c.d * (c.k - 1) - 1) // c.s + 1
      for plane = 0, 5 do for i = 0, Ho - 1 do for j = 0, Wo - 1 do
        local best, place = -math.huge, nil
        for a = 0, c.k - 1 do for b = 0, c.k - 1 do
          local h, w = i * c.s - c.p + a * c.d, j * c.s - c.p + b * c.d
          if h >= 0 and h < H and w >= 0 and w < W and v[plane * H * W + h * W + w + 1] > best then
            best, place = v[plane * H * W + h * W + w + 1], h * W + w + 1
          end
        end end
        want[#want + 1], where[#where + 1] = best, place
      end end end
      close(flat(y), want, 0)
      close(flat(at), where, 0)
    end)
  end

  it("pads with -infinity, lets NaN win, and gives a tie to the first", function()
    close(flat(F.max_pool2d(sc.tensor { { { -3.0, -2.0 }, { -5.0, -4.0 } } }, 2, { stride = 2, padding = 1 })), { -3, -2, -5, -4 })
    local nan = F.max_pool2d(sc.tensor { { { 1.0, 0 / 0 }, { 3.0, 2.0 } } }, 2):item()
    assert.is_true(nan ~= nan)
    local x = sc.ones(1, 1, 2, 2):requires_grad_(true)
    close(flat(sc.grad(F.max_pool2d(x, 2):sum(), x)), { 1, 0, 0, 0 })
  end)

  it("is undone by max_unpool2d", function()
    local x = sc.randn(2, 3, 6, 6)
    local y, at = F.max_pool2d(x, 2, { return_indices = true })
    local back = F.max_unpool2d(y, at, 2)
    close(flat(F.max_pool2d(back:abs(), 2)), flat(y:abs()))
    refuses("out of range", function() F.max_unpool2d(y, at * 0 + 37, 2) end)
    refuses("out of range", function() F.max_unpool2d(y, at * 0, 2) end)
  end)

  it("refuses empty windows and steps", function()
    local x = sc.ones(1, 1, 4, 4)
    refuses("kernel_size", function() F.max_pool2d(x, 0) end)
    refuses("stride", function() F.max_pool2d(x, 2, 0) end)
    refuses("dilation", function() F.max_pool2d(x, 2, { dilation = 0 }) end)
    refuses("padding", function() F.max_pool2d(x, 2, { padding = 2 }) end)
    refuses("padding", function() F.max_pool2d(x, 2, { padding = -1 }) end)
    refuses("does not fit", function() F.max_pool2d(x, 5) end)
    refuses("kernel_size", function() F.max_pool2d(x, 1 << 31) end)
  end)
end)

describe("avg_pool2d", function()
  it("counts padding or leaves it out, or divides by what is given", function()
    local x = sc.ones(1, 1, 2, 2)
    close(flat(F.avg_pool2d(x, 2, { stride = 2, padding = 1 })), { 0.25, 0.25, 0.25, 0.25 })
    close(flat(F.avg_pool2d(x, 2, { stride = 2, padding = 1, count_include_pad = false })), { 1, 1, 1, 1 })
    close(flat(F.avg_pool2d(x, 2, { divisor_override = 8 })), { 0.5 })
  end)
  it("reaches over the end with ceil_mode", function()
    close(flat(F.avg_pool1d(sc.tensor { { 1.0, 2.0, 3.0, 4.0, 5.0 } }, 2, { ceil_mode = true })), { 1.5, 3.5, 5 })
  end)
  it("has a gradient that is its adjoint", function()
    local x = sc.randn({ 2, 3, 7, 5 }, { dtype = "float64" }):requires_grad_(true)
    for _, f in ipairs {
      function(t) return F.avg_pool2d(t, 3, { stride = 2, padding = 1, count_include_pad = false }) end,
      function(t) return F.adaptive_avg_pool2d(t, { 3, 4 }) end,
      function(t) return F.interpolate(t, { size = { 4, 9 }, mode = "bicubic" }) end,
      function(t) return F.interpolate(t, { scale_factor = 1.7, mode = "bilinear", align_corners = true }) end,
      function(t) return F.interpolate(t, { size = 3 }) end,
    } do
      local y = f(x)
      local dy, u = sc.randn(y.shape, { dtype = "float64" }), sc.randn(x.shape, { dtype = "float64" })
      close({ (sc.grad(y, x, { grad_outputs = dy }) * u):sum():item() }, { (f(u) * dy):sum():item() }, 1e-10)
    end
  end)
end)

describe("interpolate", function()
  local x = sc.tensor { { { 1.0, 2.0, 4.0 } } }
  -- python3 -c "import torch,torch.nn.functional as F; x=torch.tensor([[[1.,2.,4.]]]); print(F.interpolate(x,size=5,mode='linear'), …)"
  it("gives PyTorch's numbers", function()
    close(flat(F.interpolate(x, 5)), { 1, 1, 2, 2, 4 })
    close(flat(F.interpolate(x, { size = 5, mode = "linear" })), { 1, 1.4, 2, 3.2, 4 })
    close(flat(F.interpolate(x, { size = 5, mode = "linear", align_corners = true })), { 1, 1.5, 2, 3, 4 })
    close(flat(F.interpolate(x, { size = 2, mode = "area" })), { 1.5, 3 })
  end)
  it("refuses size and scale_factor together, and modes for other dimensions", function()
    refuses("exclude", function() F.interpolate(x, { size = 2, scale_factor = 2.0 }) end)
    refuses("needed", function() F.interpolate(x) end)
    refuses("bilinear", function() F.interpolate(x, { size = 2, mode = "bilinear" }) end)
    refuses("align_corners", function() F.interpolate(x, { size = 2, align_corners = true }) end)
    refuses("above 0", function() F.interpolate(x, { size = 0 }) end)
  end)
end)

describe("grid_sample", function()
  it("returns the image on the identity grid, zeros far away and for NaN", function()
    local x = sc.randn(1, 2, 4, 5)
    local grid = F.affine_grid(sc.tensor { { { 1.0, 0.0, 0.0 }, { 0.0, 1.0, 0.0 } } }, { 1, 2, 4, 5 })
    for _, mode in ipairs { "bilinear", "nearest", "bicubic" } do close(flat(F.grid_sample(x, grid, { mode = mode })), flat(x), 1e-5) end
    for _, far in ipairs { 1e30, -1e30, 1 / 0, 0 / 0 } do
      assert.are.equal(0, F.grid_sample(x, grid * 0 + far):abs():sum():item())
    end
  end)
end)
