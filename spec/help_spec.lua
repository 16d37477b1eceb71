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

  it("shows the arguments of modules, optimisers and schedules, and of functions themselves", function()
    for name, text in pairs {
      Linear = "nn.Linear(in_features: size, out_features: size, bias: boolean = true",
      ["nn.LSTM"] = "num_layers: int = 1",
      ["optim.Adam"] = "optim.Adam(params, lr = 0.001",
      StepLR = "optim.lr_scheduler.StepLR(optimizer, step_size: int",
      DataLoader = "batch_size: int = 1",
    } do assert.truthy(printed(sc.help, name):find(text, 1, true), name) end
    assert.truthy(printed(sc.help, sc.matmul):find("Matrix product", 1, true))
    assert.truthy(printed(sc.help, "Linaer"):find("did you mean Linear", 1, true))
  end)
end)

describe("a slip of the pen", function()
  local x = sc.ones(2)
  local w = sc.nn.Linear(2, 2)
  -- what a newcomer writes, and a word of the answer
  local SLIPS = {
    { "nn", function() return sc.nn.Linaer(2, 3) end, "did you mean Linear?" },
    { "optim", function() return sc.optim.Adaam end, "did you mean Adam" },
    { "schedules", function() return sc.optim.lr_scheduler.StepLr end, "did you mean StepLR?" },
    { "data", function() return sc.data.DataLoder end, "did you mean DataLoader?" },
    { "a dtype where options go", function() local t = sc.tensor({ 1 }, "float64") return t end, "expected a table such as" },
    { "an option of tensor", function() local t = sc.tensor({ 1 }, { dtyp = "int8" }) return t end, "options are dtype, requires_grad" },
    { "requires_grad", function() x.requires_grad = 1 end, "expected true or false, got the number 1" },
    { "comparing by <", function() return x < 3 end, "x:lt(y)" },
    { "comparing by <=", function() return x <= x end, "x:lt(y)" },
    { "a list of tensors", function() local t = sc.tensor { x, x } return t end, "sc.stack" },
    { "a module for its parameters", function() local o = sc.optim.Adam(w) return o end, "m:parameters()" },
    { "a dot for a colon", function() local o = sc.optim.Adam(w:parameters()) o.step() end, "opt:step()" },
  }
  for _, row in ipairs(SLIPS) do
    it("is answered at the user's line: " .. row[1], function()
      local ok, err = pcall(row[2])
      assert.is_false(ok)
      assert.truthy(err:find(row[3], 1, true), err)
      assert.truthy(err:find("help_spec.lua", 1, true), err)
    end)
  end

  it("is not seen in shapes, which print and compare by their numbers", function()
    assert.equal("{2, 3}", tostring(sc.ones(2, 3).shape))
    assert.equal("{}", tostring(sc.ones(2, 3):sum():size()))
    assert.is_true(sc.ones(2, 3).shape == sc.zeros(2, 3).shape)
    assert.is_false(sc.ones(2, 3).shape == sc.zeros(3, 2).shape)
  end)

  it("is not seen in layers, which show bias = false only when there is none", function()
    assert.is_nil(tostring(sc.nn.LSTM(3, 4)):find("bias=", 1, true))
    assert.is_nil(tostring(sc.nn.MultiheadAttention(4, 2)):find("bias=", 1, true))
    assert.truthy(tostring(sc.nn.GRU(3, 4, { bias = false })):find("bias=false", 1, true))
  end)
end)
