--- In-place ops on views of one memory: what is written and what is read may be the same, apart, or overlap. Line by line and compiled the answer is
--- the same: the right result (that of operands that were copied first), or a refusal that changes nothing.
local sc = require "sconce"
local core = sc.core

local function rows(first, last, step) return { { first, last, step }, {} } end

-- what is written, what is read; whether ops with two operands take it
local VIEWS = {
  { "the tensor itself", function(x) return x, x end, true },
  { "equal views", function(x) return x[rows(2, 4)], x[rows(2, 4)] end, true },
  { "rows and the rows below", function(x) return x[rows(1, 3)], x[rows(4, 6)] end, true },
  { "every other row and those between", function(x) return x[rows(1, 6, 2)], x[rows(2, 6, 2)] end, true },
  { "columns and their neighbours", function(x) return x[{ {}, { 1, 5, 2 } }], x[{ {}, { 2, 6, 2 } }] end, true },
  { "a quarter and the one beside it", function(x) return x[{ { 1, 3 }, { 1, 3 } }], x[{ { 1, 3 }, { 4, 6 } }] end, true },
  { "rows moved up", function(x) return x[rows(1, 5)], x[rows(2, 6)] end, false },
  { "rows moved down", function(x) return x[rows(2, 6)], x[rows(1, 5)] end, false },
  { "the transpose", function(x) return x, x:t() end, false },
  { "its first row", function(x) return x, x[1] end, false },
  { "its first column", function(x) return x, x[{ {}, { 1, 1 } }] end, false },
  { "the diagonal and a row", function(x) return x:diagonal(), x[2] end, false },
}

local function fresh() return sc.arange(1, 37, { dtype = "float32" }):reshape { 6, 6 } * 0.125 end

--- The in-place ops that take a second tensor, with the result that copies of the operands give.
local function two_operand_ops()
  local list = {}
  for _, name in ipairs(core.op_names()) do
    local info, fn = core.op_info(name), core.methods[name]
    if info.inplace and not info.internal and fn and not core.methods[name:sub(1, -2) .. "_like"] then
      local ok, y = pcall(function() return fn(fresh(), fresh() + 1) end)
      if ok and y:equal(fn(fresh(), fresh() + 1)) then list[#list + 1] = { name, fn } end
    end
  end
  return list
end

describe("in-place ops on views of one memory", function()
  local ops = two_operand_ops()
  assert(#ops > 20)
  for _, row in ipairs(VIEWS) do
    local what, view, takes = table.unpack(row)
    it("give the right result or refuse, in both modes: " .. what, function()
      for _, op in ipairs(ops) do
        local name, fn = op[1], op[2]
        local want = fresh()
        local a, b = view(want)
        local value = fn(a:clone(), b:clone())
        a:copy_(value)
        for mode, run in pairs { eager = function(f, x) f(x) end, compiled = function(f, x) sc.compile(f)(x) end } do
          local x = fresh()
          local ok, message = pcall(run, function(t)
            local p, q = view(t)
            fn(p, q)
          end, x)
          local label = name .. ", " .. mode .. ": " .. tostring(message)
          assert.equal(takes, ok, label)
          assert.is_true(x:allclose(ok and want or fresh(), { equal_nan = true }), label)
          if not ok then assert.truthy(message:find("overlaps the tensor written to; clone it first", 1, true), label) end
        end
      end
    end)
  end

  it("are the same for x[…] = view of x, which is copied first where it has to be", function()
    local function f(x)
      x[rows(2, 6)] = x[rows(1, 5)]
      x[{ {}, { 1, 5 } }] = x[{ {}, { 2, 6 } }]
      x[rows(1, 6, 2)] = x[rows(2, 6, 2)]
    end
    local want = fresh()
    local t = want:totable()
    for i = 6, 2, -1 do t[i] = t[i - 1] end
    local moved = {}
    for i = 1, 6 do
      moved[i] = { table.unpack(t[i]) }
      for k = 1, 5 do moved[i][k] = t[i][k + 1] end
    end
    for i = 1, 5, 2 do moved[i] = moved[i + 1] end
    local eager, compiled = fresh(), fresh()
    f(eager)
    sc.compile(f)(compiled)
    assert.same(moved, eager:totable())
    assert.same(moved, compiled:totable())
  end)

  it("hold for captured tensors, and for views of them with values of the graph", function()
    local w = fresh()
    local f = sc.compile(function(x)
      w[rows(1, 6, 2)]:add_(w[rows(2, 6, 2)])
      w[1]:mul_(x)
    end)
    f(sc.full({ 6 }, 2.0))
    local want = fresh()
    want[rows(1, 6, 2)]:add_(want[rows(2, 6, 2)])
    want[1]:mul_(2.0)
    assert.same(want:totable(), w:totable())
    local ok, message = pcall(sc.compile(function() w[rows(2, 6)]:add_(w[rows(1, 5)]) end))
    assert.is_false(ok)
    assert.truthy(message:find("overlaps the tensor written to", 1, true))
    assert.same(want:totable(), w:totable())
  end)
end)
