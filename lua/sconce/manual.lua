--- What there is to say about everything public, for the help: of ops, what the op table says; of functions and classes in Lua, the comment
--- above them in their own source file, which is read when somebody asks; of the few functions written in C that are no ops, the table
--- below. Where sources cannot be read, arguments are still shown.
---
--- `manual.entries()` maps full names ("matmul", "nn.Linear", "x:item", "g:save") to { signature =, help =, no_grad = }, and
--- `manual.names_of` what a function or class is called.
local core = require "sconce.core"
local define = require "sconce.define"
local fault = require "sconce.fault"

local manual = {}

-- ---- comments in sources

local sources = {} -- path -> lines; false when there are none to be read

local function lines_of(path)
  if sources[path] == nil then
    local f = io and io.open and io.open(path)
    local list = {}
    if f then
      for line in f:lines() do list[#list + 1] = line end
      f:close()
    end
    sources[path] = f and list or false
  end
  return sources[path]
end

--- "---@param x sc.Tensor  # the weights" as "x: sc.Tensor, the weights"; other comments as they are; nil for what is not shown.
local function comment_text(line)
  local text = line:match("^%s*%-%-%-%s?(.*)$")
  local name, rest = text:match("^@param%s+(%S+)%s+(.*)$")
  if name then
    local kind, words = rest:match("^(.-)%s*#%s*(.*)$")
    return ("%s: %s"):format(name:gsub("%?$", ""), (words or rest) ~= rest and kind .. ", " .. words or rest)
  end
  local result = text:match("^@return%s+(.*)$")
  if result then return "gives " .. result:gsub("%s*#%s*", ", ") end
  return not text:find("^@") and text or nil
end

--- The comment that ends above a line.
local function comment_above(lines, at)
  local first = at
  while first > 1 and lines[first - 1]:find("^%s*%-%-%-") do first = first - 1 end
  local out = {}
  for i = first, at - 1 do out[#out + 1] = comment_text(lines[i]) end
  return #out > 0 and table.concat(out, "\n") or nil
end

--- Of a function in Lua: its parameters as written, and its comment.
local function function_notes(fn)
  local info = debug.getinfo(fn, "S")
  local lines = info.what == "Lua" and info.source:sub(1, 1) == "@" and lines_of(info.source:sub(2))
  local line = lines and lines[info.linedefined]
  if not line then return "(…)" end
  return (line:match("function[^(]*(%b())") or "(…)"):gsub("^%(self,?%s*", "("):gsub("%.%.%.", "…"), comment_above(lines, info.linedefined)
end

local named = {} -- path -> name of a class -> the comment above the line that makes it, or above one of its methods

--- Of a class, from the file that its methods are in.
local function class_notes(class, name)
  local seen = {}
  for _, fn in pairs(class) do
    local info = type(fn) == "function" and debug.getinfo(fn, "S")
    local path = info and info.source:match("^@(.*)")
    if path and not seen[path] then
      seen[path] = true
      if not named[path] then
        local lines, found = lines_of(path) or {}, {}
        for at = 2, #lines do
          if lines[at - 1]:find("^%s*%-%-%-") and not lines[at]:find("^%s*%-%-%-") then
            local made = lines[at]:match("[%w]+%(\"(%u%w+)\"") or lines[at]:match("^function L%.(%w+):") or lines[at]:match("^L%.(%w+) =")
              or lines[at]:match("__name = \"(%u%w+)\"") or lines[at]:match("^local (%u%w+) =")
            if made then found[made] = found[made] or comment_above(lines, at) end
          end
        end
        named[path] = found
      end
      if named[path][name] then return named[path][name] end
    end
  end
end

-- ---- what is written in C

local C_FUNCTIONS = {
  ["x.shape"] = "The sizes, as a table that prints and compares by its numbers.",
  ["x.dtype"] = "The name of the elements' type, such as \"float32\".",
  ["x.grad"] = "The gradient that backward has added up, or nil. Writing nil drops it.",
  ["x.requires_grad"] = "Whether gradients are wanted; may be set on leaves.",
  ["x.grad_fn"] = "The op that made the tensor, when gradients go through it; else nil.",
  ["x.is_leaf"] = "Whether the tensor was not computed from tensors that require gradients.",
  ["x.ndim"] = "The number of dimensions.",
  ["x.T"] = "The dimensions in reverse order, a view.",
  ["x.mT"] = "The last two dimensions exchanged, a view.",
  ["x.H"] = "Of matrices: the two dimensions exchanged, a view.",
  ["x:backward(gradient?, {retain_graph = false, create_graph = false})"] = "Adds the gradients of x to .grad of every leaf that it was computed from.\n"
    .. "gradient: of x's shape; not needed for one number.\nretain_graph: what was saved is kept, for a second backward. create_graph: gradients "
    .. "can be differentiated again.\nErrors: no history; a second backward without retain_graph; what was saved has been changed in-place.\n"
    .. "Example: loss:backward()",
  ["x:dim()"] = "The number of dimensions.",
  ["x:free()"] = "Gives the memory back at once; using x later is an error. Also: local x <close> = …",
  ["x:is_contiguous()"] = "Whether the elements lie in order, without gaps.",
  ["x:item()"] = "The value of a tensor of one element, as a Lua number or boolean.",
  ["x:numel()"] = "The number of elements.",
  ["x:register_hook(fn)"] = "Calls fn with the gradient that arrives at x in backward; a tensor that it returns takes its place.\n"
    .. "Returns a handle: handle:remove() ends it.",
  ["x:requires_grad_(requires_grad = true)"] = "Says that gradients are wanted, and returns x.",
  ["x:retain_grad()"] = "Lets backward fill x.grad, though x is not a leaf.",
  ["x:size(dim?)"] = "The size of a dimension, or all sizes as a table.",
  ["x:stride(dim?)"] = "How many elements lie between neighbours of a dimension, or a table of these.",
  ["x:totable()"] = "The elements as nested tables of Lua numbers or booleans; of a 0-d tensor, the number.",
  ["x:tolist()"] = "x:totable() under PyTorch's name.",
  ["x:tostring_bytes()"] = "The elements' bytes in order, as a string; sc.from_string reads it.",
  ["config"] = "Settings: sc.config.run_eagerly = true makes compiled functions run line by line.",
  ["newaxis"] = "In an index: a new dimension of size 1, as in x[{ {}, sc.newaxis }].",
  ["ellipsis"] = "In an index: all dimensions that are not named, as in x[{ sc.ellipsis, 1 }].",
  ["from_string(bytes, shape, dtype = \"float32\")"] = "A tensor from the elements' bytes.\nExample: sc.from_string(string.pack(\"ff\", 1, 2), {2})",
  ["manual_seed(seed)"] = "Seeds the default generator: the random numbers that follow are the same each time.",
  ["initial_seed()"] = "The seed that the default generator was given.",
  ["Generator(seed)"] = "A random generator of its own, for the option `generator` of random ops.",
  ["get_rng_state()"] = "The state of the default generator as a uint8 tensor.",
  ["set_rng_state(state)"] = "Sets the default generator to a state that get_rng_state gave.",
  ["set_num_threads(n)"] = "How many threads may work on one op. Results do not depend on it.",
  ["get_num_threads()"] = "How many threads may work on one op.",
  ["memory_allocated()"] = "Bytes that tensors take now.",
  ["stats()"] = "A table of counts: live tensors, bytes, peak, allocations.",
  ["is_grad_enabled()"] = "Whether ops are recorded for backward here.",
  ["is_tensor(value)"] = "Whether a value is a tensor.",
  ["grad(outputs, inputs, {grad_outputs = nil, retain_graph = nil, create_graph = false, allow_unused = false})"] =
    "The gradients of the outputs with respect to the inputs, a result per input, without touching .grad.\n"
    .. "A tensor may stand for a list of one. allow_unused: nil for an input that the outputs do not depend on, instead of an error.\n"
    .. "Example: local gx, gw = sc.grad(loss, {x, w})",
}

local function add_c_functions(all)
  for signature, help in pairs(C_FUNCTIONS) do all[signature:match("^[%w_.:]+")] = { signature = signature, help = help } end
end

-- ---- all of it

--- Ops and what is defined by a signature.
local function ops()
  local all = {}
  for _, name in ipairs(core.op_names()) do
    local info = core.op_info(name)
    if not info.internal and not (info.inplace and core.ops[name:sub(1, -2)]) then all[name] = info end
  end
  for name, info in pairs(define.info) do all[name] = info end
  return all
end

--- function or class -> full name
function manual.names_of()
  local names = {}
  for name, fn in pairs(core.ops) do names[fn] = name end
  for name, info in pairs(define.info) do if info.fn then names[info.fn] = name end end
  return names
end

local function is_class(v) return type(v) == "table" and rawget(v, "__name") and getmetatable(v) and getmetatable(v).__call end

--- Layers that hand on to a function are described by it.
local function of_function(all, name)
  local snake = name:gsub("(%l)(%u)", "%1_%2"):gsub("(%u)(%u%l)", "%1_%2"):lower()
  for _, try in ipairs { snake, (snake:gsub("_loss$", "")), (snake:gsub("%dd$", "")), (snake:gsub("_", "")) } do
    for _, full in ipairs { "nn.functional." .. try, try } do
      if all[full] then return full end
    end
  end
end

local function add_class(all, prefix, name, class)
  local arguments = fault.signatures[name] and fault.signatures[name]:match("%b()")
  local help = class_notes(class, name)
  local of = rawget(class, "_of")
  if of then of = all["nn.functional." .. of] and "nn.functional." .. of or of
  elseif prefix == "nn." then of = of_function(all, name) end
  if of and all[of] then
    local first = (all[of].help or ""):match("^[^\n]*")
    help = (help and help .. "\n" or first .. "\n") .. ('A layer over %s: see sc.help "%s".'):format(of, of)
  end
  if not arguments and rawget(class, "init") then arguments = function_notes(class.init) end
  all[prefix .. name] = { signature = prefix .. name .. (arguments or "(…)"), help = help }
end

--- The arguments that a function's reader takes, when it has one: "(t, a: number = 0)".
local function read_arguments(name, arguments)
  local read = fault.signatures[name] or fault.signatures[name:match("^(%a+)_") or ""]
  if not read or not arguments:find("…", 1, true) then return arguments end
  local own = arguments:match("^%(([%w_]+)") -- what the function takes off before its reader sees the rest
  return (read:match("%b()"):gsub("^%(", own and "(" .. own .. ", " or "("))
end

local function add_one(all, names, prefix, name, v)
  local full = prefix .. name
  if type(name) ~= "string" or name:sub(1, 1) == "_" or all[full] then return end
  local info = core.ops[full] and core.op_info(full) or prefix == "x:" and core.ops[name] and core.op_info(name) or nil
  if info and info.inplace and core.ops[name:sub(1, -2)] then return end
  if info or (type(v) == "function" and all[names[v] or ""]) then -- another name of an op
    info = info or all[names[v]]
    local known = info.signature:match("^[%w_.]+")
    if known:match("[%w_]+$") .. "_" == name then return end
    local again = known:match("[%w_]+$") == name and "" or ("The same as %s. "):format(known)
    all[full] = { signature = info.signature, help = again .. (info.help or "") }
  elseif is_class(v) then
    add_class(all, prefix, name, v)
  elseif type(v) == "function" then
    local arguments, help = function_notes(v)
    all[full] = { signature = full .. read_arguments(name, arguments), help = help }
  end
end

local function add_space(all, names, prefix, space)
  for name, v in pairs(space) do add_one(all, names, prefix, name, v) end
end

local known -- the entries, once somebody has asked

--- Every documented name -> { signature =, help = }.
function manual.entries()
  if known then return known end
  local sc, all, names = require "sconce", ops(), manual.names_of()
  add_c_functions(all)
  local nn, optim = sc.nn, sc.optim
  add_space(all, names, "nn.functional.", nn.functional)
  for prefix, space in pairs {
    [""] = sc, ["nn."] = nn, ["nn.utils."] = nn.utils, ["nn.init."] = nn.init, ["optim."] = optim, ["optim.lr_scheduler."] = optim.lr_scheduler,
    ["data."] = sc.data, ["autograd."] = sc.autograd, ["linalg."] = sc.linalg, ["special."] = sc.special, ["fft."] = sc.fft,
    ["module:"] = nn.Module, ["optimizer:"] = optim.Optimizer, ["loader:"] = sc.data.DataLoader,
    ["schedule:"] = getmetatable(optim.lr_scheduler.StepLR).__index,
  } do add_space(all, names, prefix, space) end
  require "sconce.graph" -- the classes that come with static graphs
  require "sconce.compile"
  for prefix, class in pairs(require("sconce.run").classes) do add_space(all, names, prefix .. ":", class) end
  local methods = {}
  for name, fn in pairs(core.methods) do
    local plain = name:gsub("_$", "")
    if not all[name] and not all[plain] then methods[name] = fn end
  end
  add_space(all, names, "x:", methods)
  known = all
  return all
end

return manual
