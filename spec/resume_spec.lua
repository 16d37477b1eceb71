--- A compiled training step saved in the middle of training and gone on with in a fresh process, without the script that built it: the
--- same bits as if it had never stopped.
local sc = require "sconce"
local resume = require "spec.support.resume"

local folder = os.tmpname()
os.remove(folder)
os.execute("mkdir -p " .. folder)

local function elsewhere(...)
  local paths = ("LUA_PATH='%s' LUA_CPATH='%s' "):format(package.path, package.cpath)
  assert.is_true(os.execute(paths .. "lua5.4 spec/support/resume.lua " .. table.concat({ ... }, " ")))
end

local function same_files(a, b)
  local x, y = sc.load(a), sc.load(b)
  for name, t in pairs(x) do
    assert.is_truthy(y[name], name)
    assert.equal(t:tostring_bytes(), y[name]:tostring_bytes(), name)
  end
  for name in pairs(y) do assert.is_truthy(x[name], name) end
end

describe("training goes on with the same bits", function()
  for _, case in ipairs { { "mlp", "sgd" }, { "mlp", "adamw" }, { "cnn", "adam" }, { "lstm", "sgd" }, { "gpt", "adamw" } } do
    it(case[1] .. " with " .. case[2], function()
      local at = folder .. "/" .. case[1] .. case[2]
      sc.manual_seed(11)
      local fn, inputs = resume.models[case[1]](resume.optimizers[case[2]])
      local step, losses = sc.compile(fn), {}
      for _ = 1, 3 do step(table.unpack(inputs)) end
      sc.save(at .. ".inputs", { x = inputs[1], t = inputs[2] })
      step.last:save(at .. ".onnx")
      for i = 1, 4 do losses[i] = step(table.unpack(inputs)) end
      local named = {}
      for _, c in ipairs(step.last.core:named()) do named[c.name] = c.tensor end
      resume.record(at .. ".here", losses, named)
      elsewhere(at .. ".onnx", at .. ".inputs", 4, at .. ".there", at .. ".later.onnx")
      same_files(at .. ".here", at .. ".there")
      local here = step(table.unpack(inputs))
      local run = sc.load_graph(at .. ".later.onnx") -- saved again there, after four more steps
      assert.equal(here:item(), run { arg1 = inputs[1], arg2 = inputs[2] }.out1:item())
    end)
  end
end)
