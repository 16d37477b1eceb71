local sc = require "sconce"

--- What fn prints.
local function printed(fn, ...)
  local lines, original = {}, print
  _G.print = function(line) lines[#lines + 1] = tostring(line) end
  local ok, err = pcall(fn, ...)
  _G.print = original
  assert(ok, err)
  return table.concat(lines, "\n")
end

describe("help at the prompt", function()
  it("shows an op's signature and what it does", function()
    local text = printed(sc.help, "matmul")
    assert.truthy(text:find("matmul(x, other)", 1, true))
    assert.truthy(text:find("Matrix product", 1, true))
  end)

  it("offers the nearest names for a misspelt one", function()
    assert.truthy(printed(sc.help, "matmull"):find("did you mean matmul", 1, true))
    local ok, err = pcall(function() return sc.mtmul end)
    assert.is_false(ok)
    assert.truthy(err:find("help_spec", 1, true), err)
    assert.truthy(err:find("matmul", 1, true), err)
    ok, err = pcall(function() return sc.full({ 2 }, 1.0):matmull() end)
    assert.is_false(ok)
    assert.truthy(err:find("did you mean matmul", 1, true), err)
  end)

  it("gives nil for a name that resembles nothing", function() assert.is_nil(sc.quuxification) end)

  it("finds ops by a word in their name or description", function()
    local text = printed(sc.apropos, "matrix")
    assert.truthy(text:find("matmul", 1, true))
  end)
end)
