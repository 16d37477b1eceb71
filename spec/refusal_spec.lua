--- Whatever a public function is given, a refusal is raised at the line that called it, never from inside the library, and what it is
--- given stays as it was. Every function of the module table, of tensors, modules, datasets and optimisers is called with values of every
--- kind; what they answer is other specs' business.
local sc = require "sconce"
local core = require "sconce.core"
local nn, optim = sc.nn, sc.optim

local function parameter() return sc.ones(2, { requires_grad = true }) end
local VALUES = {
  function() return nil end, function() return 0 end, function() return -1.5 end, function() return "abc" end,
  function() return true end, function() return {} end, function() return { 1, nil, 3 } end, function() return { a = 1 } end,
  function() return function() end end, function() return sc.ones(2, 3) end, function() return sc.zeros(0) end,
  function() return nn.Linear(2, 3) end, function() return { sc.ones(2) } end, function() return optim.SGD({ parameter() }, { lr = 0.1 }) end,
  function() return sc.graph() end, function() return sc.compile(function(x) return x end) end, function() return { { 1 } } end,
  function() return "float32" end, function() return coroutine.create(print) end, function() return io.stdout end,
}
-- What changes more than its arguments, or waits, or prints.
local LEFT_OUT = { free = true, set_memory_limit = true, set_num_threads = true, help = true, apropos = true, save = true,
  save_checkpoint = true, init = true, core = true, print = true }

local here = debug.getinfo(1, "S").short_src

--- Calls fn with n values from the list: fault, when an error is not raised at this file.
local function try(name, fn, args)
  local ok, err = pcall(function()
    local r = fn(table.unpack(args, 1, args.n))
    return r
  end)
  if not sc.is_grad_enabled() then sc.autograd.set_grad_enabled(true) end -- sc.no_grad() without a function lasts
  if ok then return end
  local shown = {}
  for i = 1, args.n do shown[i] = type(args[i]) end
  err = tostring(err)
  if err:find("lua/sconce/", 1, true) or not err:find(here, 1, true) then
    error(("%s(%s): %s"):format(name, table.concat(shown, ", "), err), 0)
  end
end

local function callable(v) return type(v) == "function" or (type(v) == "table" and getmetatable(v) and getmetatable(v).__call) end

--- Every function of `space`, alone, with each value, and with some pairs and triples; self() is put in front.
local function sweep(space, self)
  local names = {}
  for name, v in pairs(space) do
    if type(name) == "string" and not LEFT_OUT[name] and name:sub(1, 1) ~= "_" and callable(v) then names[#names + 1] = name end
  end
  table.sort(names)
  local turn = 0
  local function next_value()
    turn = turn + 1
    return VALUES[turn * 7 % #VALUES + 1]()
  end
  for _, name in ipairs(names) do
    local function call(...)
      local args = table.pack(...)
      if self then
        table.insert(args, 1, self())
        args.n = args.n + 1
      end
      try(name, space[name], args)
    end
    call()
    for _, value in ipairs(VALUES) do call(value()) end
    for _ = 1, 8 do
      call(next_value(), next_value())
      call(next_value(), next_value(), next_value())
    end
  end
end

describe("whatever comes, the caller's line is named by", function()
  local plain = {}
  for name, v in pairs(sc) do if not core.ops[name] then plain[name] = v end end
  local lists = { sc = plain, nn = nn, ["nn.functional"] = nn.functional, ["nn.utils"] = nn.utils, ["nn.init"] = nn.init, optim = optim,
    ["optim.lr_scheduler"] = optim.lr_scheduler, data = sc.data, autograd = sc.autograd, linalg = sc.linalg, special = sc.special, fft = sc.fft }
  for name, space in pairs(lists) do it(name, function() sweep(space) end) end

  local function small()
    local g = sc.graph()
    g:output("y", g:input("x", { 2 }) + 1)
    return g
  end
  local function traced()
    local f = sc.compile(function(x) return x + 1 end)
    f(sc.ones(2))
    return f
  end
  local METHODS = {
    tensors = { core.methods, function() return sc.ones(2, 3) end },
    modules = { nn.Module, function() return nn.Linear(2, 3) end },
    sequences = { nn.Sequential, function() return nn.Sequential(nn.ReLU()) end },
    ["lists of modules"] = { nn.ModuleList, function() return nn.ModuleList { nn.ReLU() } end },
    graphs = { getmetatable(sc.graph()), sc.graph },
    runs = { getmetatable(small():compile()), function() return small():compile() end },
    sessions = { getmetatable(small():session()), function() return small():session() end },
    jobs = { getmetatable(small():compile():start { x = sc.ones(2) }), function() return small():compile():start { x = sc.ones(2) } end },
    ["compiled functions"] = { getmetatable(traced()), traced },
    ["traces"] = { getmetatable(traced().last), function() return traced().last end },
  }
  for name, m in pairs(METHODS) do it("methods of " .. name, function() sweep(m[1], m[2]) end) end

  it("calls of runs, as built and as loaded, and of compiled functions", function()
    local path = os.tmpname()
    small():save(path)
    local made = { built = small():compile(), loaded = sc.load_graph(path), nodes = sc.load_graph(path, { nodes = true }), traced = traced() }
    os.remove(path)
    for name, run in pairs(made) do made[name] = function(...) return run(...) end end
    sweep(made)
  end)

  local MAKERS = { { 2, 3 }, { 2 }, {}, { 2, 2, 2 }, { 4, 2 }, { 0.5 }, { 1, 2 }, { { 2, 2 } }, { { 1, 1 }, 1 }, { 1, { 1, 2 } }, { { 4 }, 1 } }
  it("calls of layers", function()
    local calls = {}
    for name, class in pairs(nn) do
      for _, given in ipairs(type(class) == "table" and rawget(class, "super") and MAKERS or {}) do
        local ok, layer = pcall(class, table.unpack(given))
        if ok then
          calls[name] = function(...) return layer(...) end
          break
        end
      end
    end
    assert.truthy(calls.LSTM and calls.Conv2d and calls.MultiheadAttention)
    sweep(calls)
  end)
end)

describe("numbers where tensors go", function()
  it("are 0-dimensional tensors for ops in Lua as for those in C", function()
    assert.equal(0.0, sc.trapezoid(sc.ones(1)):item())
    assert.same({ 1, 1 }, { table.unpack(sc.diagflat(1).shape) })
    assert.equal(1, sc.kron(sc.ones(2), 1):size(1) // 2)
    assert.same({ 3.0, 3.0 }, sc.kron(sc.ones(2), 3):totable())
    assert.is_false(sc.equal(sc.ones(2), 1))
    assert.equal("float32", sc.kron(sc.ones(2), 3).dtype) -- a Lua number does not promote
    assert.same({ -2.0, 3.0 }, nn.functional.prelu(sc.tensor { -8.0, 3.0 }, 0.25):totable())
    local f = sc.compile(function(x) return sc.kron(x, 2) end)
    assert.same({ 2.0, 4.0 }, f(sc.tensor { 1.0, 2.0 }):totable())
  end)
end)
