--- sconce: tensors, gradients and graphs. `require "sconce"` gives the module table; `sc.nn`, `sc.optim`, `sc.data` load on first use.
local core = require "sconce.core"
local fault = require "sconce.fault"
core.set_inside((debug.getinfo(1, "S").source:gsub("init%.lua$", "")))

local sc = {
  _library = true, -- for fingerprints of compiled functions: nothing in here changes
  core = core,
  newaxis = setmetatable({}, { __tostring = function() return "sc.newaxis" end }),
  ellipsis = setmetatable({}, { __tostring = function() return "sc.ellipsis" end }),
  autograd = {}, linalg = {}, special = {}, fft = {},
}
--- Ops under `nn.functional`; whatever is not there is looked up among the plain ops, so `F.relu` is `sc.relu`.
sc.functional = { _library = true }

--- A name that is not there: nil, or an error with the nearest names when it looks like a slip.
local function missing(what, name, ...) return require("sconce.help").missing(what, name, ...) end

local lazy = { nn = "sconce.nn", optim = "sconce.optim", data = "sconce.data" }
setmetatable(sc, { __index = function(t, name)
  if not lazy[name] then return missing("sconce", name, t, lazy) end
  local module = require(lazy[name])
  rawset(t, name, module)
  return module
end })
setmetatable(sc.functional, { __index = function(t, name)
  local plain = rawget(sc, name)
  if plain ~= nil then return plain end
  return missing("nn.functional", name, t, sc)
end })
setmetatable(core.properties, { __index = function(t, name) return missing("a tensor", name, core.methods, t) end })

--- An empty graph, to be built by hand: g:input, g:output, g:compile, g:session, g:save.
function sc.graph() return require("sconce.graph").new() end

--- A function (or module) that is traced into a static graph at its first call for each kind of arguments, and run from it.
--- options: keep_grads = true leaves p.grad as eager would; exact = true keeps every bit; passes = { fusion = false } switches passes off;
--- limit: the most traces, 64. See docs/graphs.md.
function sc.compile(fn, options) return require("sconce.compile").compile(fn, options) end
--- An ONNX model as something to call: run { x = … }.y. What sconce has saved comes back with the same bits, training steps too.
--- options: passes; nodes = true reads the standard nodes of a file of ours.
function sc.load_graph(path, options) return require("sconce.onnx").load(path, options) end
--- Runs f line by line and compiled and says what differs first: true or false, and a text. See lua/sconce/verify.lua.
function sc.verify(f, ...) return require("sconce.verify").verify(f, { tolerance = 1e-5, seed = 1 }, ...) end
--- Declares that a table will not change, so that compiled functions need not watch it; returns it.
function sc.constant(t) return require("sconce.compile").constant(t) end
sc.config = setmetatable({}, { __index = function(_, k) return require("sconce.compile").config[k] end,
  __newindex = function(_, k, v) require("sconce.compile").config[k] = v end })

--- Explains a name, a function, a class or a module; without one, how to use the help.
function sc.help(name) return require("sconce.help").help(name) end
--- Finds names by a word in them or in their first line.
function sc.apropos(word) return require("sconce.help").apropos(word) end

for _, name in ipairs { "from_string", "manual_seed", "set_num_threads", "get_num_threads", "memory_allocated", "stats",
  "is_grad_enabled", "is_tensor", "grad" } do
  sc[name] = core[name]
end

-- The C ops: "linalg.det" goes into sc.linalg, "nn.functional.linear" into sc.functional.
for name, fn in pairs(core.ops) do
  if not core.op_info(name).internal then
    local space, short = name:match("^([%w_.]+)%.([%w_]+)$")
    local into = not space and sc or space == "nn.functional" and sc.functional or sc[space]
    rawset(into, short or name, fn)
  end
end

for _, dtype in ipairs { "float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool", "uint16",
  "uint32", "uint64" } do
  sc[dtype] = dtype
end

--- A tensor from a number, a boolean or (nested) lists of them.
---@param value number|boolean|table
---@param options? { dtype?: string, requires_grad?: boolean }
---@return sc.Tensor
function sc.tensor(value, options)
  if options ~= nil then
    if type(options) ~= "table" then
      fault.raise("tensor", "argument 2: expected a table such as { dtype = \"float32\" }, got %s", fault.describe(options))
    end
    for name in pairs(options) do
      if name ~= "dtype" and name ~= "requires_grad" then
        fault.raise("tensor", "there is no option %q; the options are dtype, requires_grad", tostring(name))
      end
    end
  end
  local t = core.tensor(value, options and options.dtype)
  if options and options.requires_grad then t.requires_grad = true end
  return t
end

--- A training run's state in one file: things by name, anything with a state_dict, numbers, strings, tensors, tables; the random state goes along.
--- Example: sc.save_checkpoint("run.safetensors", { model = net, optimizer = opt, scheduler = sched, loader = loader, epoch = 3 })
function sc.save_checkpoint(...) return require("sconce.checkpoint").save(...) end
--- Reads what save_checkpoint wrote: load_checkpoint(path, things) puts states into things of the same names and returns the rest by name.
function sc.load_checkpoint(...) return require("sconce.checkpoint").load(...) end

package.loaded["sconce"] = sc -- the files below want it

require "sconce.autograd"
for name, fn in pairs(require "sconce.control") do sc[name] = fn end -- cond, while_loop, scan

-- Ops written in Lua, a file a family.
for _, family in ipairs {
  "create", "reduce", "shape", "pointwise", "files", "losses", "linalg", "neural", "stats", "differences",
} do
  require("sconce.ops." .. family)
end
for _, space in ipairs { "autograd", "linalg", "special", "fft" } do
  setmetatable(sc[space], { __index = function(t, name) return missing(space, name, t) end })
end

return sc
