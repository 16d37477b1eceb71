--- The bits of an element are its own: they depend neither on where it stands in a row (in vector code or in what is left over) nor on
--- what stands beside it. Fusion, slices and views lay rows out differently, so all agreement between modes rests on this.
local sc = require "sconce"
local core = require "sconce.core"
local optim = sc.optim

local N, WIDTHS = 1000, { 1, 7, 13, 50, 250 }

--- The same numbers in rows of w with gaps between them.
local function in_rows(t, w)
  local view = sc.zeros({ N // w, w + 3 }, { dtype = t.dtype }):narrow(2, 2, w)
  return view:copy_(t:narrow(1, 1, N // w * w):reshape(-1, w))
end

local function map(list, fn)
  local out = {}
  for i, v in ipairs(list) do out[i] = fn(v) end
  return out
end

--- How many elements of two results differ; NaN is like NaN.
local function differing(a, b)
  return a:ne(b):logical_and(a:eq(a):logical_or(b:eq(b))):sum():item()
end

--- The ops that map elements to elements: what numbers in a line give, numbers in another order give in that order.
local function elementwise()
  local list = {}
  for _, name in ipairs(core.op_names()) do
    local fn = core.op_info(name) and not name:find("_$") and core.ops[name]
    for n = 1, fn and 3 or 0 do
      local args = {}
      for i = 1, n do args[i] = (sc.arange(12) * 5 % 12 + i) / 20 end -- in no order
      local ok, y = pcall(fn, table.unpack(args))
      local again = ok and fn(table.unpack(args)) -- random ops give something else
      local turned = ok and core.is_tensor(again) and y:dim() == 1 and y:numel() == 12 and name ~= "empty_like" and name ~= "t"
        and y:numel() == again:numel() and differing(y, again) == 0 and fn(table.unpack(map(args, function(t) return t:flip(1) end)))
      if turned and differing(turned:flip(1), y) == 0 then list[#list + 1] = { name, fn, n } end
    end
  end
  return list
end

describe("an element", function()
  local ops = elementwise()

  it("has the same bits at every place in a row", function()
    assert.is_true(#ops > 150)
    for _, dtype in ipairs { "float32", "float64" } do
      sc.manual_seed(1)
      local args = {}
      for i = 1, 3 do args[i] = (sc.randn(N) * 1.5):to(dtype) end
      for _, op in ipairs(ops) do
        local given = { table.unpack(args, 1, op[3]) }
        local ok, y = pcall(op[2], table.unpack(given))
        for _, w in ipairs(ok and WIDTHS or {}) do
          local rows = op[2](table.unpack(map(given, function(t) return in_rows(t, w) end))):reshape(-1)
          assert.equal(0, differing(y:narrow(1, 1, rows:numel()), rows), ("%s of %s in rows of %d"):format(op[1], dtype, w))
        end
      end
    end
  end)

  it("has the same bits whatever stands beside it", function()
    for _, dtype in ipairs { "float32", "float64" } do
      sc.manual_seed(2)
      local args = {}
      for i = 1, 3 do args[i] = (sc.randn(N) * 1.5):to(dtype) end
      for _, op in ipairs(ops) do
        for _, beside in ipairs { 3e30, -1e-30, 0 / 0 } do
          local given = { table.unpack(args, 1, op[3]) }
          local other = map(given, function(t)
            t = t:clone()
            t[N // 2] = beside
            return t
          end)
          local ok, y = pcall(op[2], table.unpack(given))
          if ok then
            local z = op[2](table.unpack(other))
            local off = differing(y:narrow(1, 1, N // 2 - 1), z:narrow(1, 1, N // 2 - 1))
              + differing(y:narrow(1, N // 2 + 1, N // 2), z:narrow(1, N // 2 + 1, N // 2))
            assert.equal(0, off, ("%s of %s beside %g"):format(op[1], dtype, beside))
          end
        end
      end
    end
  end)

  local STEPS = {
    { "SGD", { lr = 0.1, momentum = 0.9, weight_decay = 0.01, nesterov = true } }, { "Adam", { lr = 0.1, amsgrad = true } },
    { "AdamW", { lr = 0.1 } }, { "RMSprop", { lr = 0.1, momentum = 0.5, centered = true, weight_decay = 0.1 } },
    { "Adagrad", { lr = 0.1 } }, { "Adadelta", { rho = 0.8 } }, { "Adamax", { weight_decay = 0.1 } }, { "NAdam", { lr = 0.1 } }, { "RAdam", { lr = 0.1 } },
  }
  for _, step in ipairs(STEPS) do
    it("of a parameter takes the same step at every place: " .. step[1], function()
      for _, dtype in ipairs { "float32", "float64" } do
        sc.manual_seed(3)
        local x = sc.randn(N):to(dtype)
        local whole, optimizers = x:clone():requires_grad_(), {}
        optimizers[1] = optim[step[1]]({ whole }, step[2])
        local cut = map(WIDTHS, function(w)
          local parts = {}
          for i = 1, N // w do parts[i] = x:narrow(1, (i - 1) * w + 1, w):clone():requires_grad_() end
          optimizers[#optimizers + 1] = optim[step[1]](parts, step[2])
          return parts
        end)
        for _ = 1, 4 do
          whole.grad = sc.randn(N):to(dtype)
          for k, parts in ipairs(cut) do
            local w = WIDTHS[k]
            for i, p in ipairs(parts) do p.grad = whole.grad:narrow(1, (i - 1) * w + 1, w):clone() end
          end
          for _, o in ipairs(optimizers) do o:step() end
        end
        for k, parts in ipairs(cut) do
          local together = sc.cat(parts):detach()
          assert.equal(0, differing(together, whole:detach():narrow(1, 1, together:numel())), dtype .. " in parts of " .. WIDTHS[k])
        end
      end
    end)
  end
end)

describe("an element of a product", function()
  -- of sizes that are computed in tiles of our own wherever there are any
  local SIZES = { { 64, 64, 16 }, { 7, 100, 300 }, { 100, 128, 500 }, { 300, 64, 1000 }, { 257, 112, 385 } }
  local function laid_out(t, turned) return turned and t:t():contiguous():t() or t end
  for _, size in ipairs(SIZES) do
    local m, n, k = table.unpack(size)
    it(("has the same bits in every row and column: %d x %d x %d"):format(m, n, k), function()
      local row, column, a, b = sc.randn(1, k), sc.randn(k, 1), sc.randn(m, k), sc.randn(k, n)
      for _, turned in ipairs { { false, false }, { true, false }, { false, true } } do
        local y = laid_out(row:expand { m, k }:contiguous(), turned[1]):matmul(laid_out(b, turned[2]))
        assert.equal(0, differing(y, y:narrow(1, 1, 1):expand { m, n }))
        y = laid_out(a, turned[1]):matmul(laid_out(column:expand { k, n }:contiguous(), turned[2]))
        assert.equal(0, differing(y, y:narrow(2, 1, 1):expand { m, n }))
      end
    end)
  end
end)
