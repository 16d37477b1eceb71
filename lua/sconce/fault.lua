--- Errors of the Lua side, raised at the user's line: the first frame outside lua/sconce. And the reader of arguments that layers,
--- optimisers and schedulers share: positional in PyTorch's order, or named in one trailing table; a misspelt name is an error.
local core = require "sconce.core"

local fault = { signatures = {} } -- name -> "Linear(in_features: size, out_features: size, bias: boolean = true)", for the help

local inside = debug.getinfo(1, "S").source:gsub("fault%.lua$", "")

--- A value as it may stand in a message: names and paths come from anywhere, so strings lose what a terminal would obey and
--- most of a length that nobody reads.
local function harmless(v)
  if type(v) ~= "string" then return v end
  if #v > 1000 then v = v:sub(1, 200) .. "…" end
  return (v:gsub("[%c\127]", function(c) return c == "\n" and c or ("\\x%02x"):format(c:byte()) end))
end

--- Raises "what: text" at the user's line.
---@param what string?  # the function's name
---@param text string  # a format
function fault.raise(what, text, ...)
  local level = 2
  local info = debug.getinfo(level, "Sl")
  while info and (info.currentline < 0 or info.source:sub(1, #inside) == inside) do
    level = level + 1
    info = debug.getinfo(level, "Sl")
  end
  local given = table.pack(...)
  for i = 1, given.n do given[i] = harmless(given[i]) end
  local message = (what and what .. ": " or "") .. (given.n > 0 and text:format(table.unpack(given, 1, given.n)) or text)
  error(info and ("%s:%d: %s"):format(info.short_src, info.currentline, message) or message, 0)
end

--- The same without a name in front.
function fault.raise_plain(text, ...) return fault.raise(nil, text, ...) end

--- Raises an error that was caught, at the user's line unless it says where it comes from.
function fault.again(err)
  if type(err) ~= "string" or err:find("^[^\n]-:%d+: ") then error(err, 0) end
  fault.raise_plain("%s", err)
end

--- What a value is, in words.
function fault.describe(v)
  local kind = math.type(v) or type(v)
  if kind == "string" then return ("the string %q"):format(#v > 60 and v:sub(1, 60) .. "…" or v) end
  if kind == "integer" or kind == "float" then return "the number " .. tostring(v) end
  local meta = getmetatable(v)
  local name = type(meta) == "table" and rawget(meta, "__name")
  if kind == "table" and type(name) == "string" then return "a " .. name end
  if kind == "table" and type(rawget(v, "__name")) == "string" then return "the class " .. v.__name end
  if kind == "userdata" then
    local ok, shape = pcall(function() return v.shape end)
    if ok and type(shape) == "table" then return ("a tensor of shape {%s}"):format(table.concat(shape, ", ")) end
    return type(name) == "string" and "a " .. name or "a userdata"
  end
  return (kind == "nil" or kind == "boolean") and tostring(v) or "a " .. kind
end

--- Whether v can be called: a function, a module, a compiled function.
function fault.callable(v)
  local meta = getmetatable(v)
  return type(v) == "function" or (type(meta) == "table" and meta.__call ~= nil)
end

local EXPECTED = {
  ["function"] = { fault.callable, "a function" },
  tensor = { core.is_tensor, "a tensor" },
  table = { function(v) return type(v) == "table" end, "a table" },
  options = { function(v) return v == nil or type(v) == "table" end, "a table of options" },
}

--- Raises unless v, argument `place`, is a "function" (anything that can be called), a "tensor", a "table", "options" (a table or nil).
---@param what string
---@param place integer|string  # a string: "argument 2 (fn)" and the like
---@param kind string
---@param v any
---@return any v
function fault.expect(what, place, kind, v)
  local test, words = EXPECTED[kind][1], EXPECTED[kind][2]
  if not test(v) then
    fault.raise(what, "%s: expected %s, got %s", math.type(place) and "argument " .. place or place, words, fault.describe(v))
  end
  return v
end

--- Whether v is a table of named options.
local function is_options(v)
  return type(v) == "table" and getmetatable(v) == nil and type(next(v)) == "string"
end

local KINDS = {
  int = function(v) return math.type(v) == "integer" end,
  size = function(v) return math.type(v) == "integer" and v >= 0 end,
  number = function(v) return type(v) == "number" end,
  boolean = function(v) return type(v) == "boolean" end,
  string = function(v) return type(v) == "string" end,
  table = function(v) return type(v) == "table" end,
  sizes = function(v) return math.type(v) == "integer" or type(v) == "table" end,
}
local WORDS = { int = "an integer", size = "an integer from 0", number = "a number", boolean = "true or false", string = "a string",
  table = "a table", sizes = "an integer or a list of integers" }

--- A reader of arguments. Each parameter is "name", "name:kind", "name?" or { "name:kind", default }; a plain name is required, `?` may
--- be absent. Kinds: int size (from 0) number boolean string table sizes (an integer or a list).
--- The reader returns a table of values by name.
---@param what string
---@param params table
---@param before? string  # an argument that the caller takes off first, for the help
---@return fun(...): table
function fault.reader(what, params, before)
  local names, presets, needed, kinds, place = {}, {}, {}, {}, {}
  for i, p in ipairs(params) do
    local text = type(p) == "table" and p[1] or p
    local name, kind, optional = text:match("^([%w_]+):?([%w_]*)(%??)$")
    names[i], kinds[i], place[name] = name, kind ~= "" and kind or nil, i
    needed[i] = type(p) ~= "table" and optional == ""
    presets[i] = type(p) == "table" and p[2]
    if type(p) ~= "table" then presets[i] = nil end
  end
  local shown = { before }
  for i, name in ipairs(names) do
    local preset = presets[i]
    if type(preset) == "table" then preset = "{" .. table.concat(preset, ", ") .. "}" end
    shown[#shown + 1] = name .. (kinds[i] and ": " .. kinds[i] or "") ..
      (needed[i] and "" or preset == nil and "?" or " = " .. tostring(preset))
  end
  fault.signatures[what] = fault.signatures[what] or ("%s(%s)"):format(what, table.concat(shown, ", "))
  local function put(out, i, v)
    local kind = kinds[i]
    if kind and not KINDS[kind](v) then
      fault.raise(what, "argument %d (%s): expected %s, got %s", i, names[i], WORDS[kind], fault.describe(v))
    end
    out[names[i]] = v
  end
  return function(...)
    local n, out, options = select("#", ...), {}, nil
    local given = { ... }
    if n > 0 and is_options(given[n]) then options, n = given[n], n - 1 end
    if n > #names then fault.raise(what, "at most %d arguments are expected, got %d", #names, n) end
    for i = 1, n do
      if given[i] ~= nil then put(out, i, given[i]) end
    end
    for name, v in pairs(options or {}) do
      local i = place[name]
      if not i then fault.raise(what, "there is no option %q; the options are %s", tostring(name), table.concat(names, ", ")) end
      if out[name] ~= nil then fault.raise(what, "argument %d (%s): given twice, by position and by name", i, name) end
      put(out, i, v)
    end
    for i, name in ipairs(names) do
      if out[name] == nil then
        if needed[i] then fault.raise(what, "argument %d (%s) is missing; the arguments are %s", i, name, table.concat(names, ", ")) end
        out[name] = presets[i]
      end
    end
    return out
  end
end

return fault
