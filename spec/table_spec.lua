-- Walks the op table: what every row must have.
local sc = require "sconce"
local core = sc.core

local function rows()
  local list = {}
  for _, name in ipairs(core.op_names()) do list[#list + 1] = core.op_info(name) and { name = name, info = core.op_info(name) } end
  return list
end

describe("the op table", function()
  it("has every name once", function()
    local seen = {}
    for _, name in ipairs(core.op_names()) do
      assert.is_nil(seen[name], name)
      seen[name] = true
    end
  end)

  it("says what each op computes", function()
    local without = {}
    for _, r in ipairs(rows()) do
      if not r.info.internal and not (r.info.help and #r.info.help > 3) then without[#without + 1] = r.name end
    end
    assert.same({}, without)
  end)

  it("has a gradient, or the reason why there is none, in each row", function()
    local without = {}
    for _, r in ipairs(rows()) do
      local i = r.info
      if not i.internal and not i.composite and not i.has_gradient and not i.no_grad then without[#without + 1] = r.name end
    end
    assert.same({}, without)
  end)

  it("has gradient formulas that can be read", function()
    local bad = {}
    for _, r in ipairs(rows()) do
      local ok, e = core.op_prepare(r.name)
      if not ok then bad[#bad + 1] = r.name .. ": " .. tostring(e) end
    end
    assert.same({}, bad)
  end)

  it("has signatures whose parameters are named once", function()
    for _, r in ipairs(rows()) do
      local seen = {}
      for _, p in ipairs(r.info.params) do
        assert.is_nil(seen[p], r.name .. ": " .. p)
        seen[p] = true
      end
      assert.equal(r.name:gsub("_$", ""), (r.info.signature:match("^[%w_.]+"):gsub("_$", "")))
    end
  end)
end)
