--- Writes what sc.help knows as files: reference.md, every public name with its arguments, and sconce.lua, annotations (LuaCATS) that editors
--- read for completion and types. Both come from the op table and the comments in the sources (lua/sconce/manual.lua).
--- Usage: lua5.4 docs/generate.lua FOLDER     (`make docs` writes to build/docs)
local core = require("sconce").core
local define = require "sconce.define"
local manual = require "sconce.manual"

local generate = {}

-- ---- signatures: "name(x, dim: dim?, keepdim: bool = false) -> values, indices"

--- Splits at commas that stand in no brackets.
local function split(text)
  local parts, depth, from = {}, 0, 1
  for at = 1, #text do
    local c = text:sub(at, at)
    if c:find "[%(%[{]" then depth = depth + 1 elseif c:find "[%)%]}]" then depth = depth - 1 end
    if c == "," and depth == 0 then
      parts[#parts + 1] = text:sub(from, at - 1)
      from = at + 1
    end
  end
  parts[#parts + 1] = text:sub(from)
  for i, part in ipairs(parts) do parts[i] = part:match "^%s*(.-)%s*$" end
  return parts[1] == "" and #parts == 1 and {} or parts
end

local KINDS = { tensor = "sc.Tensor", int = "integer", dim = "integer", index = "integer", size = "integer", float = "number", bool = "boolean",
  str = "string", dtype = "sc.dtype", shape = "integer|integer[]", sizes = "integer|integer[]", generator = "sc.Generator" }

--- The type of "int[2]|str" and the like for editors.
local function kind_of(text)
  local list = {}
  for one in text:gmatch "[^|]+" do
    local base, array, count = one:match "^([%w_.]+)%??(%[(%d*)%])"
    local kind = KINDS[base or one] or base or one
    list[#list + 1] = not array and kind or count == "" and base ~= "dim" and kind .. "[]" or kind .. "|" .. kind .. "[]"
  end
  return table.concat(list, "|")
end

--- Of one parameter: name, kind, default, whether it may be left out.
local function parameter(text)
  local name, rest = text:match "^([%w_…]+)(.*)$"
  if not name then return { name = "options", kind = "table", optional = true } end -- {a = 1, b = 2}
  local kind, default = rest:match "^%??:%s*([^=]-)%s*=%s*(.*)$"
  if not kind then kind, default = rest:match "^%??:%s*(.*)$", rest:match "^%s*=%s*(.*)$" end
  local optional = default ~= nil or rest:sub(1, 1) == "?" or (kind and kind:find "%?") ~= nil
  return { name = name, kind = kind and kind:gsub("%?", ""), default = default, optional = optional }
end

--- name, parameters, names of results.
function generate.parse(signature)
  local name, arguments, results = signature:match "^([%w_.:]+)(%b())%s*(.*)$"
  if not name then return signature:match "^[%w_.:]+", nil, {} end -- a value, no function
  local list = {}
  for i, part in ipairs(split(arguments:sub(2, -2))) do list[i] = parameter(part) end
  return name, list, split(results:match "^%->%s*(.*)$" or "")
end

-- ---- the reference

local SPACES = {
  { "", "sc" }, { "x.", "Tensors: fields" }, { "x:", "Tensors: methods that are no ops" }, { "nn.functional.", "sc.nn.functional" },
  { "linalg.", "sc.linalg" }, { "special.", "sc.special" }, { "fft.", "sc.fft" }, { "autograd.", "sc.autograd" }, { "nn.", "sc.nn" },
  { "module:", "Modules: methods" }, { "nn.init.", "sc.nn.init" }, { "nn.utils.", "sc.nn.utils" }, { "optim.", "sc.optim" },
  { "optimizer:", "Optimisers: methods" }, { "optim.lr_scheduler.", "sc.optim.lr_scheduler" }, { "schedule:", "Schedules: methods" },
  { "data.", "sc.data" }, { "loader:", "Loaders: methods" }, { "graph:", "Graphs" }, { "run:", "Runs" }, { "session:", "Sessions" },
  { "job:", "Jobs" }, { "function:", "Compiled functions" },
}

--- The names of a space, sorted.
local function names_in(all, prefix)
  local list = {}
  for name in pairs(all) do
    if name:match "^(.-)[%w_]+$" == prefix then list[#list + 1] = name end
  end
  table.sort(list)
  return list
end

function generate.reference(all)
  local out = { "# Reference", "", "Written by `make docs` from the op table and the sources; `sc.help \"name\"` shows the same at the prompt. Ops whose first",
    "argument is a tensor are methods as well: `sc.op(x, …)` is `x:op(…)`; where there is an in-place form, its name ends in `_`. Options are",
    "given by position or by name in one table at the end. Dimensions, indices and index values count from 1.", "" }
  local function add(line) out[#out + 1] = line end
  for _, space in ipairs(SPACES) do
    local names = names_in(all, space[1])
    if #names > 0 then add("## " .. space[2]); add "" end
    for _, name in ipairs(names) do
      local info = all[name]
      add(("**`%s`**"):format((info.signature:gsub("^[%w_.:]+", name))))
      for line in (info.help or ""):gmatch "[^\n]+" do
        local example = line:match "^Example: (.*)$"
        add(example and "<br>Example: `" .. example .. "`" or "<br>" .. (line:gsub("[<*_|]", "\\%0")))
      end
      if info.no_grad then add("<br>No gradient: " .. info.no_grad .. ".") end
      add ""
    end
  end
  return table.concat(out, "\n")
end

-- ---- annotations

local WORDS = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true until while"):gmatch "%w+" do
  WORDS[word] = true
end
local function safe(name) return name:find "…" and "..." or WORDS[name] and name .. "_" or name end

local CLASSES = { ["x:"] = "Tensor", ["module:"] = "Module", ["optimizer:"] = "Optimizer", ["schedule:"] = "Schedule", ["loader:"] = "DataLoader",
  ["graph:"] = "Graph", ["run:"] = "Run", ["session:"] = "Session", ["job:"] = "Job", ["function:"] = "CompiledFunction" }
local TABLES = { "nn", "nn.functional", "nn.init", "nn.utils", "optim", "optim.lr_scheduler", "data", "linalg", "special", "fft", "autograd" }

-- What calling a name of a space makes.
local MAKES = { ["nn."] = "sc.Module", ["optim."] = "sc.Optimizer", ["optim.lr_scheduler."] = "sc.Schedule", ["data."] = "sc.DataLoader" }

--- Of a comment: the description, the types that it gives to parameters by name, the type of the result.
local function types_in(help)
  local text, types, result = {}, {}, nil
  for line in (help or ""):gmatch "[^\n]+" do
    local name, rest = line:match "^([%a_][%w_]*): (.*)$"
    local kind = rest and (rest:match "^(%b{}%??)" or rest:match "^([%w_.|%[%]?]+)$" or rest:match "^([%w_.|%[%]?]+), ")
    local gives = line:match "^gives ([%w_.|%[%]]+)"
    local plain = kind and ("number string boolean function table integer any"):find(kind, 1, true)
    if kind and (plain or KINDS[kind] or kind:find "^sc%." or kind:find "^{" or kind:find "^%l+|") then
      types[name] = kind
    end
    result = gives or result
    if not (kind and types[name] and rest == kind) then text[#text + 1] = line end
  end
  return text, types, result
end

--- One function's annotations. f: header, help, parameters, results, op (whether it is one), makes; `drop`: how many of the first parameters
--- are the receiver.
local function annotate(out, f, drop)
  local function add(...) out[#out + 1] = string.format(...) end
  local text, types, gives = types_in(f.help)
  local names, options, needed = {}, {}, { drop > 0 and "self" or nil }
  add ""
  for _, line in ipairs(text) do add("--- %s", line) end
  for i = 1 + drop, #f.parameters do
    local p, name = f.parameters[i], safe(f.parameters[i].name)
    local plain = p.name:find "^fn" and "function" or f.op and (i == 1 and "sc.Tensor" or "sc.Tensor|number") or "any"
    local kind = p.kind and kind_of(p.kind) or types[p.name] or plain
    if p.name == "options" then kind, p.optional = kind == "any" and "table" or kind, true end
    if name == "..." then kind, p.optional = f.op and "sc.Tensor" or "any", false end
    names[#names + 1] = name
    add("---@param %s%s %s%s", name, p.optional and "?" or "", kind, p.default and "  # " .. p.default or "")
    local list = p.optional and options or needed
    list[#list + 1] = ("%s%s: %s"):format(name, p.optional and "?" or "", kind)
  end
  local result = f.makes or gives or (f.op and "sc.Tensor") or nil
  if #options > 0 and (f.op or f.makes) and f.parameters[#f.parameters].name ~= "options" then
    needed[#needed + 1] = "options: { " .. table.concat(options, ", ") .. " }"
    add("---@overload fun(%s): %s", table.concat(needed, ", "), result)
  end
  for _, name in ipairs(f.results) do add("---@return sc.Tensor %s", name:match "[%w_]+" or "") end
  if result and #f.results == 0 then add("---@return %s", result) end
  add("function %s(%s) end", f.header, table.concat(names, ", "))
end

function generate.annotations(all)
  local out = { "---@meta sconce", "-- Written by `make docs`; for editors, never run.", "",
    '---@alias sc.dtype "float32"|"float64"|"float16"|"bfloat16"|"int8"|"uint8"|"int16"|"uint16"|"int32"|"uint32"|"int64"|"uint64"|"bool"',
    "---@class sc.Generator", "---@class sc.Tensor" }
  for _, op in ipairs { "add", "sub", "mul", "div", "pow", "idiv", "mod", "band", "bor", "shl", "shr" } do
    out[#out + 1] = ("---@operator %s(sc.Tensor|number): sc.Tensor"):format(op)
  end
  out[#out + 1] = "---@operator unm: sc.Tensor\n---@operator len: integer"
  local fields = { shape = "integer[]", dtype = "sc.dtype", grad = "sc.Tensor?", requires_grad = "boolean", grad_fn = "any", is_leaf = "boolean",
    ndim = "integer", T = "sc.Tensor", mT = "sc.Tensor", H = "sc.Tensor" }
  for _, name in ipairs(names_in(all, "x.")) do
    local short = name:sub(3)
    out[#out + 1] = ("---@field %s %s  # %s"):format(short, fields[short] or "any", all[name].help:match "^[^\n]*")
  end
  local classes = {}
  for _, class in pairs(CLASSES) do classes[#classes + 1] = class end
  table.sort(classes)
  for _, class in ipairs(classes) do out[#out + 1] = ("%slocal %s = {}"):format(class == "Tensor" and "" or "---@class sc." .. class .. "\n", class) end
  out[#out + 1] = "---@class sconce\nlocal sc = {}"
  for _, space in ipairs(TABLES) do out[#out + 1] = ("sc.%s = {}"):format(space) end
  for _, space in ipairs(SPACES) do
    local prefix, class = space[1], CLASSES[space[1]]
    for _, name in ipairs(names_in(all, prefix)) do
      local info, short = all[name], name:match "[%w_]+$"
      local of, parameters, results = generate.parse(info.signature)
      if parameters and not WORDS[short] then
        local op = core.ops[of] ~= nil or define.info[of] ~= nil
        local f = { header = class and class .. ":" .. short or "sc." .. name, help = info.help, parameters = parameters, results = results, op = op,
          makes = short:find "^%u" and MAKES[prefix] or nil }
        annotate(out, f, class and parameters[1] and parameters[1].name == "x" and 1 or 0)
        if op and not class and core.methods[short] and parameters[1] and not parameters[1].name:find "…" and not name:find("nn.", 1, true) then
          f.header = "Tensor:" .. short
          annotate(out, f, 1)
        end
      end
    end
  end
  out[#out + 1] = "\nreturn sc\n"
  return table.concat(out, "\n")
end

--- Writes both files into a folder.
function generate.write(folder)
  local all = manual.entries()
  for name, text in pairs { ["reference.md"] = generate.reference(all), ["sconce.lua"] = generate.annotations(all) } do
    local f = assert(io.open(folder .. "/" .. name, "w"))
    f:write(text)
    f:close()
  end
end

if arg and arg[0] and arg[0]:find("generate.lua", 1, true) then generate.write(arg[1] or "build/docs") end
return generate
