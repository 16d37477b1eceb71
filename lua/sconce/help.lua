--- What the prompt answers: `sc.help "conv2d"`, `sc.apropos "pool"`, and the nearest names for a misspelt one. Everything comes out
--- of the op table and the signatures of ops written in Lua; nothing is written down twice.
local core = require "sconce.core"
local define = require "sconce.define"
local fault = require "sconce.fault"

local help = {}

--- Every documented name -> { signature =, help = }.
local function entries()
  local all = {}
  for _, name in ipairs(core.op_names()) do
    local info = core.op_info(name)
    if not info.internal and not info.inplace then all[name] = info end
  end
  for name, info in pairs(define.info) do all[name] = info end
  local sc = require "sconce"
  for prefix, space in pairs { nn = sc.nn, optim = sc.optim, ["optim.lr_scheduler"] = sc.optim.lr_scheduler, data = sc.data } do
    for name in pairs(space) do
      if fault.signatures[name] then all[prefix .. "." .. name] = { signature = prefix .. "." .. fault.signatures[name] } end
    end
  end
  return all
end

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

-- What PyTorch's tensors have and these do not, with what to write instead.
local HOST = "all tensors are in the host's memory, so there is nothing to move"
local ELSEWHERE = {
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
  local hint = what == "a tensor" and ELSEWHERE[name]
  if hint then fault.raise_plain("%s has no field \"%s\": %s", what, name, hint) end
  if what == "a tensor" then
    for _, k in ipairs { "shape", "dtype", "grad", "requires_grad", "grad_fn", "is_leaf", "ndim" } do all[k] = true end
  end
  local names = help.nearest(name, all)
  if #names == 0 then return nil end
  fault.raise_plain("%s has no field \"%s\"; did you mean %s?", what, name, table.concat(names, ", "))
end

local function resolve(name, all)
  if all[name] then return name end
  if all["nn.functional." .. name] then return "nn.functional." .. name end
  for _, space in ipairs { "nn.", "optim.", "optim.lr_scheduler.", "data." } do
    if all[space .. name] then return space .. name end
  end
  local bare = name:gsub("^sc%.", ""):gsub("^F%.", "nn.functional."):gsub("^functional%.", "nn.functional."):gsub("_$", "")
  if all[bare] then return bare end
  local last = bare:match("[%w_]+$")
  return all[last] and last or nil
end

--- Prints what an op does: signature, shapes, errors, an example. Without a name: how to use the help.
---@param name? string
function help.help(name)
  if name == nil then
    print('sc.help "conv2d" explains an op; sc.apropos "pool" finds ops by a word. x:op(…) is sc.op(x, …);\n'
      .. "options come last, by position or as a table of names. Dimensions and indices start at 1.")
    return
  end
  local all = entries()
  for known, fn in pairs(type(name) == "function" and core.ops or {}) do
    if fn == name then name = known break end
  end
  local found = type(name) == "string" and resolve(name, all)
  if not found then
    local words = {}
    for key in pairs(all) do words[key:match("[%w_]+$")] = true end
    print(string.format("There is nothing named %s; %s", tostring(name), help.suggest(tostring(name), words,
      'sc.apropos "word" looks through names and descriptions.')))
    return
  end
  local info = all[found]
  print(info.signature)
  for line in (info.help or ""):gmatch("[^\n]+") do print("  " .. line) end
  if info.no_grad then print("  No gradient: " .. info.no_grad .. ".") end
end

--- Prints the ops whose name or first line holds a word.
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
