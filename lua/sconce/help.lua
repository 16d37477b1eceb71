--- What the prompt answers: `sc.help "conv2d"`, `sc.apropos "pool"`, and the nearest names for a misspelt one. What is said about a name
--- comes from lua/sconce/manual.lua; nothing is written down twice.
local core = require "sconce.core"
local fault = require "sconce.fault"

local help = {}

local function entries() return require("sconce.manual").entries() end

--- Number of single-letter changes (insert, drop, replace, swap of neighbours) between two words, or `limit + 1` when there are more.
local function distance(a, b, limit)
  if math.abs(#a - #b) > limit then return limit + 1 end
  local before, last, this = {}, {}, {}
  for j = 0, #b do last[j] = j end
  for i = 1, #a do
    this[0] = i
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      local d = math.min(last[j] + 1, this[j - 1] + 1, last[j - 1] + (same and 0 or 1))
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then d = math.min(d, before[j - 2] + 1) end
      this[j] = d
    end
    before, last, this = last, this, before
  end
  return last[#b]
end

--- The names among `candidates` (a set) that are close to `name`, nearest first, at most five.
---@param name string
---@param candidates table<string, any>
---@return string[]
function help.nearest(name, candidates)
  local limit = #name <= 3 and 1 or #name <= 6 and 2 or 3
  local found = {}
  for candidate in pairs(candidates) do
    if type(candidate) == "string" then
      local d = distance(name:lower(), candidate:lower(), limit)
      if d <= limit then found[#found + 1] = { d, candidate } end
    end
  end
  table.sort(found, function(p, q) return p[1] < q[1] or p[1] == q[1] and p[2] < q[2] end)
  local names = {}
  for i = 1, math.min(5, #found) do names[i] = found[i][2] end
  return names
end

--- "did you mean a, b?" for what is close to `name`, else `otherwise`.
---@param name any
---@param candidates table<string, any>
---@param otherwise string
---@return string
function help.suggest(name, candidates, otherwise)
  local near = type(name) == "string" and help.nearest(name, candidates) or {}
  return #near > 0 and "did you mean " .. table.concat(near, ", ") .. "?" or otherwise
end

-- What PyTorch has and we do not, with what to write instead, by what is asked for it.
local HOST = "all tensors are in the host's memory, so there is nothing to move"
local ELSEWHERE = {}
ELSEWHERE.sconce = {
  cuda = HOST, device = HOST, backends = HOST, from_numpy = "sc.tensor(table), sc.from_string(bytes, shape, dtype), or sc.load of an .npy file",
  Tensor = "sc.tensor(…)", FloatTensor = "sc.tensor(…, {dtype = \"float32\"})", LongTensor = "sc.tensor(…, {dtype = \"int64\"})",
  set_grad_enabled = "sc.autograd.set_grad_enabled(enabled, fn)", inference_mode = "sc.no_grad(function() … end)",
  set_default_dtype = "the option dtype says it for each tensor; model:to(\"float64\") converts", get_default_dtype = "it is float32",
  utils = "datasets and loaders are in sc.data", jit = "sc.compile(fn) traces a function", onnx = "g:save(path) and sc.load_graph(path)",
}
ELSEWHERE["a tensor"] = {
  device = "all tensors are in the host's memory", cuda = HOST, cpu = HOST, is_cuda = HOST, pin_memory = HOST,
  data = "x:detach() is the same memory without a history; sc.no_grad(function() … end) writes into parameters",
  numpy = "x:totable() gives Lua tables, x:tostring_bytes() the bytes", apply_ = "write it with ops, or go through x:totable()",
  map_ = "write it with ops, or go through x:totable()", resize_ = "x:reshape(…) or sc.empty(…) make another tensor",
  to_sparse = "there are no sparse tensors", values = "x:totable() gives Lua tables", is_contiguous_ = "x:contiguous()",
  backward_ = "x:backward()", iter = "for i = 1, #x do local row = x[i] … end", unpack = "x:unbind() gives a list of rows",
  register_forward_hook = "that is a method of modules; tensors have register_hook",
}

--- Raises "… has no field X; did you mean …" when something close exists; else returns nil, as Lua does.
---@param what string
---@param name any
---@param ... table  # sets of names
function help.missing(what, name, ...)
  if type(name) ~= "string" or name:sub(1, 2) == "__" then return nil end
  local all = {}
  for _, set in ipairs { ... } do
    for k in pairs(set) do all[k] = true end
  end
  local hint = ELSEWHERE[what] and ELSEWHERE[what][name]
  if hint then fault.raise_plain("%s has no field \"%s\": %s", what, name, hint) end
  if what == "a tensor" then
    for _, k in ipairs { "shape", "dtype", "grad", "requires_grad", "grad_fn", "is_leaf", "ndim" } do all[k] = true end
  end
  local names = help.nearest(name, all)
  if #names == 0 then return nil end
  fault.raise_plain("%s has no field \"%s\"; did you mean %s?", what, name, table.concat(names, ", "))
end

local SPACES = { "", "nn.functional.", "nn.", "x:", "x.", "optim.", "optim.lr_scheduler.", "data.", "nn.utils.", "nn.init.", "autograd.",
  "module:", "graph:", "run:", "session:", "job:", "function:", "optimizer:", "schedule:", "loader:", "linalg.", "special.", "fft." }

--- The full names that a name may stand for, the likeliest first.
local function resolve(name, all)
  local list, seen = {}, {}
  local function take(full)
    if all[full] and not seen[full] and (#list == 0 or all[full].help ~= all[list[1]].help) then
      seen[full], list[#list + 1] = true, full
    end
  end
  take(name)
  local bare = name:gsub("^sc%.", ""):gsub("^torch%.", ""):gsub("^F%.", "nn.functional."):gsub("^functional%.", "nn.functional.")
  local last = bare:match("[%w_]+$") or bare
  for _, word in ipairs { bare, (bare:gsub("_$", "")), last, (last:gsub("_$", "")) } do
    for _, space in ipairs(SPACES) do take(space .. word) end
    if #list > 0 then return list end
  end
  return list
end

--- The name of what is no string: a function, a class, a module, an optimiser, a tensor.
local function name_of(value)
  if type(value) == "userdata" and core.is_tensor(value) then return "tensor" end
  local known = type(value) == "function" and require("sconce.manual").names_of()[value]
  if known then return known end
  local sc = require "sconce"
  for _, space in ipairs { sc, sc.nn, sc.nn.utils, sc.nn.init, sc.optim, sc.optim.lr_scheduler, sc.data, sc.autograd } do
    for name, v in pairs(space) do if v == value then return name end end
  end
  local name = type(value) == "table" and (rawget(value, "__name") or value.__name)
  return type(name) == "string" and name or nil
end

--- Prints the names of a space such as "nn" or "optim.lr_scheduler", or of the space itself; false when it is none.
local function list_space(all, name)
  local sc = require "sconce"
  if name == sc then name = "" end
  for short, space in pairs { nn = sc.nn, ["nn.functional"] = sc.functional, ["nn.utils"] = sc.nn.utils, ["nn.init"] = sc.nn.init, optim = sc.optim,
    ["optim.lr_scheduler"] = sc.optim.lr_scheduler, data = sc.data, autograd = sc.autograd, linalg = sc.linalg, special = sc.special, fft = sc.fft } do
    if name == space then name = short end
  end
  if type(name) ~= "string" or all[name] then return false end
  local prefix, list = name:gsub("^sc%.?", ""), {}
  if prefix ~= "" then prefix = prefix:gsub("^F$", "nn.functional"):gsub("^lr_scheduler$", "optim.lr_scheduler") .. "." end
  for full in pairs(all) do
    local rest = full:sub(1, #prefix) == prefix and full:sub(#prefix + 1)
    if rest and rest:find("^[%w_]+$") then list[#list + 1] = rest end
  end
  if #list == 0 then return false end
  table.sort(list)
  local line = ""
  for _, word in ipairs(list) do
    if #line + #word > 118 then
      print(line)
      line = ""
    end
    line = line .. (line == "" and "" or " ") .. word
  end
  print(line)
  return true
end

--- Prints what a name does: arguments, shapes, errors, an example. It may also be the function, class or module itself.
--- Without a name: how to use the help.
---@param name? string|function|table
function help.help(name)
  if name == nil then
    print('sc.help "conv2d" explains a name; sc.apropos "pool" finds names by a word. x:op(…) is sc.op(x, …);\n'
      .. "options come last, by position or as a table of names. Dimensions and indices start at 1.")
    return
  end
  local all = entries()
  if list_space(all, name) then return end
  local word = type(name) == "string" and name or name_of(name)
  local found = word and resolve(word, all) or {}
  if #found == 0 then
    local words = {}
    for key in pairs(all) do words[key:match("[%w_]+$")] = true end
    local shown = word or fault.describe(name)
    print(string.format("There is nothing named %s; %s", shown, help.suggest(shown, words,
      'sc.apropos "word" looks through names and descriptions.')))
    return
  end
  local info = all[found[1]]
  print(info.signature)
  for line in (info.help or ""):gmatch("[^\n]+") do print("  " .. line) end
  if info.no_grad then print("  No gradient: " .. info.no_grad .. ".") end
  if #found > 1 then print("Also: " .. table.concat(found, ", ", 2) .. ".") end
end

--- Prints the names that hold a word, or whose first line does.
---@param word string
function help.apropos(word)
  if type(word) ~= "string" then fault.raise("apropos", "expected a word, got %s", type(word)) end
  local found, needle = {}, word:lower()
  for name, info in pairs(entries()) do
    local first = (info.help or ""):match("^[^\n]*")
    if name:lower():find(needle, 1, true) or first:lower():find(needle, 1, true) then
      found[#found + 1] = string.format("%-36s %s", name, first)
    end
  end
  table.sort(found)
  if #found == 0 then print("Nothing found for " .. word .. ".") end
  for _, line in ipairs(found) do print(line) end
end

return help
