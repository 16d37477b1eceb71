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

describe("help", function()
  local optim, nn = sc.optim, sc.nn
  local function spaces()
    local core = require "sconce.core"
    return {
      [""] = sc, ["nn."] = nn, ["nn.functional."] = nn.functional, ["nn.utils."] = nn.utils, ["nn.init."] = nn.init, ["optim."] = optim,
      ["optim.lr_scheduler."] = optim.lr_scheduler, ["data."] = sc.data, ["autograd."] = sc.autograd, ["linalg."] = sc.linalg,
      ["special."] = sc.special, ["fft."] = sc.fft, ["x:"] = core.methods, ["module:"] = nn.Module, ["graph:"] = getmetatable(sc.graph()),
    }
  end
  for prefix, space in pairs(spaces()) do
    it("has a signature and a description for every name: " .. (prefix == "" and "sc" or prefix), function()
      local count = 0
      for name, v in pairs(space) do
        local public = type(name) == "string" and name:sub(1, 1) ~= "_" and name ~= "core"
        if public and (type(v) == "function" or (type(v) == "table" and rawget(v, "__name") and getmetatable(v))) then
          local text = printed(sc.help, prefix .. name)
          local signature, rest = text:match("^([^\n]*)\n(.*)$")
          assert.truthy(signature and rest:find("%S"), prefix .. name .. ": " .. text)
          assert.is_nil(text:find("There is nothing named", 1, true), prefix .. name)
          count = count + 1
        end
      end
      assert.truthy(count > 0 or prefix == "fft.")
    end)
  end

  -- what is asked for, words of the answer
  local ANSWERS = {
    { "backward", "x:backward(gradient?, {retain_graph = false" }, { "item", "as a Lua number" }, { "no_grad", "gradients off" },
    { "clip_grad_norm_", "parameters, max_norm: number" }, { "StepLR", "times gamma every step_size epochs" }, { "state_dict", "module:state_dict()" },
    { "save", "Also: graph:save" }, { "absolute", "The same as abs" }, { "kaiming_uniform_", "mode: string = fan_in" }, { "shape", "The sizes" },
    { "BCELoss", "binary_cross_entropy" }, { "cat", "dim: dim = 1" }, { "flatten", "start_dim: dim = 1, end_dim: dim = -1" },
    { "torch.sum", "Sum over all elements" }, { "optim", "RMSprop" }, { "F", "cross_entropy" }, { "session", "graph:session()" },
    { sc.nn, "Linear" }, { sc.nn.Linear, "in_features" }, { sc.nn.Linear(2, 3), "in_features" }, { sc.trapezoid, "trapezoid rule" },
    { sc.no_grad, "gradients off" }, { function() end, "There is nothing named a function" }, { 3, "There is nothing named the number 3" },
  }
  for i, row in ipairs(ANSWERS) do
    it("answers: " .. i .. " " .. row[2], function()
      local text = printed(sc.help, row[1])
      assert.truthy(text:find(row[2], 1, true), text)
    end)
  end

  it("does without sources", function()
    local open = io.open
    io.open = function() return nil end -- luacheck: ignore 122
    package.loaded["sconce.manual"] = nil
    local ok, text = pcall(printed, sc.help, "no_grad")
    io.open = open -- luacheck: ignore 122
    package.loaded["sconce.manual"] = nil
    assert.truthy(ok and text:find("no_grad(", 1, true), text)
  end)

  it("tells runs, sessions, loaders and datasets apart when they are printed", function()
    local f = sc.compile(function(x) return x + 1 end)
    f(sc.ones(2))
    assert.equal("compiled function (1 trace)", tostring(f))
    assert.truthy(tostring(f.last):find("run of a compiled function: graph of 1 node: arg1 float32", 1, true), tostring(f.last))
    assert.equal("StepLR: epoch 0, lr 0.1", tostring(sc.optim.lr_scheduler.StepLR(sc.optim.SGD({ sc.ones(1, { requires_grad = true }) }, { lr = 0.1 }), 2)))
    local ds = sc.data.TensorDataset(sc.ones(5))
    assert.equal("TensorDataset: 5 samples", tostring(ds))
    assert.equal("DataLoader: 5 samples in 3 batches of 2, shuffled", tostring(sc.data.DataLoader(ds, { batch_size = 2, shuffle = true })))
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
    { "a place 0", function() return w[0] end, "members count from 1" },
    { "a module without a device", function() w:cuda() end, "nothing to move" },
    { "a name of torch", function() return sc.cuda.is_available() end, "nothing to move" },
    { "a function of nn.utils", function() sc.nn.utils.clip_grad_norm(w:parameters(), 1) end, "did you mean clip_grad_norm_?" },
    { "a function of nn.init", function() sc.nn.init.xavier_unifrm_(x) end, "did you mean xavier_uniform_?" },
    { "a module for a tensor", function() local y = sc.relu(w) return y end, "expected a tensor, got a Linear" },
    { "a class for a module", function() local m = sc.nn.Sequential(sc.nn.Linear) return m end, "expected a module, got the class Linear" },
    { "a hole among modules", function() local m = sc.nn.Sequential(w, nil, w) return m end, "expected a module, got nil" },
    { "a hole in a list of modules", function() local m = sc.nn.ModuleList { w, nil, w } return m end, "expected a module, got nil" },
    { "a module that is no list", function() local m = sc.nn.ModuleList(w) return m end, "expected a list, got a Linear" },
    { "a hole in a table", function() local t = sc.tensor { 1, nil, 3 } return t end, "expected numbers or booleans, got nil" },
    { "a table of names", function() local t = sc.tensor { a = 1 } return t end, "a list with names in it" },
    { "no function", function() sc.no_grad(1) end, "expected a function, got the number 1" },
    { "a gradient's shape", function() sc.ones(2, { requires_grad = true }).grad = sc.ones(3) end, "shape {2}, got a float32 tensor of shape {3}" },
    { "a negative norm", function() sc.nn.utils.clip_grad_norm_(w:parameters(), -1) end, "max_norm: expected a number from 0" },
    { "ipairs of a loader", function() for _ in ipairs(sc.data.DataLoader(x)) do w:eval() end end, "for x, t in loader do" },
    { "an output's name twice", function()
      local g = sc.graph()
      local y = g:input("x", { 2 }) + 1
      g:output("y", y)
      g:output("y", y)
    end, 'there is an output named "y" already' },
    { "an op after compiling", function()
      local g = sc.graph()
      local y = g:input("x", { 2 }) + 1
      g:output("y", y)
      local run = g:compile()
      assert.same({ 3.0, 3.0 }, run { x = sc.full({ 2 }, 2.0) }.y:totable())
      y:add_(1)
    end, "add_: the graph has been compiled and cannot change any more" },
    { "a graph without outputs", function() sc.graph():save("x.onnx") end, "save: the graph has no output" },
    { "a state of something else", function()
      local opt = sc.optim.SGD(w:parameters(), { lr = 0.1 })
      sc.optim.lr_scheduler.StepLR(opt, 2):load_state_dict {}
    end, "is this the state of a StepLR?" },
    { "float32 in gradcheck", function()
      sc.autograd.gradcheck(function(v) return v:exp() end, { sc.ones(2, { requires_grad = true }) })
    end, "give float64 inputs" },
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

describe("what people write from memory", function()
  it("loops over a loader by itself, called, or through pairs; and reads samples of a dataset by number", function()
    local ds = sc.data.TensorDataset(sc.arange(5), sc.arange(5) * 2)
    local loader = sc.data.DataLoader(ds, { batch_size = 2 })
    for _, walk in ipairs { function() return loader end, function() return loader() end, function() return pairs(loader) end } do
      local seen = {}
      for x, t in walk() do
        assert.same((x * 2):totable(), t:totable())
        seen[#seen + 1] = #x
      end
      assert.same({ 2, 2, 1 }, seen)
    end
    assert.same({ 3, 6 }, { ds[4][1]:item(), ds[4][2]:item() })
    local n = 0
    for i, sample in ipairs(ds) do n = n + (sample[1]:item() == i - 1 and 1 or 0) end
    assert.equal(5, n)
    assert.has_error(function() return ds[0] end)
  end)

  it("joins tensors to strings as print shows them", function()
    assert.equal("loss: tensor(1.5000)", "loss: " .. sc.tensor(1.5))
    assert.equal("tensor(1) of tensor(2)", sc.tensor(1) .. " of " .. sc.tensor(2))
  end)

  it("compiles a module as it is", function()
    local net = sc.nn.Sequential(sc.nn.Linear(2, 3), sc.nn.ReLU())
    local x = sc.rand(4, 2)
    assert.same(net(x):totable(), sc.compile(net)(x):totable())
    assert.is_true((sc.verify(net, x)))
  end)

  it("saves a compiled function with its results only, not what gradients need besides", function()
    local net, path = sc.nn.Sequential(sc.nn.Linear(2, 8), sc.nn.Tanh(), sc.nn.Linear(8, 1)), os.tmpname()
    local f, x = sc.compile(function(v) return net(v) end), sc.rand(3, 2)
    local y = f(x)
    assert.equal("graph of 3 nodes: arg1 float32 {3, 2} -> out1", tostring(f.last.graph))
    f.last:save(path)
    local run = sc.load_graph(path)
    os.remove(path)
    assert.same({ "out1" }, { run.outputs[1].name, run.outputs[2] and run.outputs[2].name })
    assert.same(y:totable(), run { arg1 = x }.out1:totable())
    f(x):sum():backward() -- the function still gives gradients
    local want = net[1].weight.grad:clone()
    net:zero_grad()
    net(x):sum():backward()
    assert.is_true(want:allclose(net[1].weight.grad))
  end)

  it("leaves tables that it is given as they are", function()
    local milestones = { 4, 2 }
    local opt = sc.optim.SGD(sc.nn.Linear(1, 1):parameters(), { lr = 1.0 })
    local schedule = sc.optim.lr_scheduler.MultiStepLR(opt, milestones)
    for _ = 1, 4 do schedule:step() end
    assert.same({ 4, 2 }, milestones)
    assert.near(0.01, opt.param_groups[1].lr, 1e-12)
  end)

  it("shows of a layer what differs from the defaults, lists too", function()
    assert.equal("Conv2d(3, 4, kernel_size={3, 3}, padding={1, 1})", tostring(sc.nn.Conv2d(3, 4, 3, { padding = 1 })):match("Conv2d%b()"))
  end)
end)
