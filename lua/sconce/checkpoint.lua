--- Checkpoints: everything a training run needs to go on as if it had never stopped, in one safetensors file.
---
--- Tensors are stored as tensors, named by their path ("model/fc.weight"), so other tools can read them. The rest (numbers to the last
--- bit, strings, tables) is text in the file's metadata under "sconce.checkpoint". The text is a chain of values: i<integer>;  f<float in
--- hexadecimal>;  s<length>:<bytes>  x<length>:<bytes in hexadecimal>  b1;  b0;  t<pairs>:<key><value>…  #<length>:<name of a tensor>
local sc = require "sconce"
local fault = require "sconce.fault"
local core = sc.core

local KEY = "sconce.checkpoint"
local checkpoint = {}

-- ---- writing

local function sorted_keys(t)
  local keys = {}
  for k in pairs(t) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and type(a) ~= "boolean" then return a < b end
    return type(a) < type(b)
  end)
  return keys
end

local function write(v, path, out, tensors, depth)
  local kind = math.type(v) or type(v)
  if depth > 100 then fault.raise("save_checkpoint", "%s: the tables are nested too deeply", path) end
  if core.is_tensor(v) then
    local name = path
    while tensors[name] do name = name .. "'" end
    tensors[name] = v:detach()
    out[#out + 1] = ("#%d:%s"):format(#name, name)
  elseif kind == "integer" then out[#out + 1] = ("i%d;"):format(v)
  elseif kind == "float" then out[#out + 1] = (v ~= v and "fnan;") or ("f%a;"):format(v)
  elseif kind == "boolean" then out[#out + 1] = v and "b1;" or "b0;"
  elseif kind == "string" then
    if utf8.len(v) and not v:find("%c") then out[#out + 1] = ("s%d:%s"):format(#v, v)
    else
      local hex = v:gsub(".", function(c) return ("%02x"):format(c:byte()) end)
      out[#out + 1] = ("x%d:%s"):format(#hex, hex)
    end
  elseif kind == "table" then
    local keys = sorted_keys(v)
    out[#out + 1] = ("t%d:"):format(#keys)
    for _, k in ipairs(keys) do
      if type(k) ~= "string" and math.type(k) ~= "integer" then
        fault.raise("save_checkpoint", "%s: a key must be a string or an integer, got %s", path, fault.describe(k))
      end
      write(k, path, out, tensors, depth + 1)
      write(v[k], path .. "/" .. tostring(k), out, tensors, depth + 1)
    end
  else
    fault.raise("save_checkpoint", "%s: %s cannot be saved", path, fault.describe(v))
  end
end

--- What goes into the file for v: the state dict of a module, optimiser, schedule or loader, else v.
local function state_of(v)
  local ok, method = pcall(function() return type(v) == "table" and v.state_dict end)
  if ok and type(method) == "function" then return v:state_dict() end
  return v
end

--- Saves things by name: anything with a state_dict, numbers, strings, tensors, tables of these. The state of the global random numbers
--- goes along. The file is written beside its place and renamed.
---   sc.save_checkpoint("run.safetensors", { model = net, optimizer = opt, scheduler = sched, loader = loader, epoch = 3 })
---@param path string
---@param things table<string, any>
function checkpoint.save(path, things)
  if type(things) ~= "table" then fault.raise("save_checkpoint", "argument 2: expected a table, got %s", fault.describe(things)) end
  local out, tensors, states = {}, {}, {}
  for name, v in pairs(things) do
    if type(name) ~= "string" then fault.raise("save_checkpoint", "argument 2: names must be strings, got %s", fault.describe(name)) end
    states[name] = state_of(v)
  end
  states["rng state"] = sc.get_rng_state()
  out[1] = ("t%d:"):format(#sorted_keys(states))
  for _, name in ipairs(sorted_keys(states)) do
    write(name, name, out, tensors, 1)
    write(states[name], name, out, tensors, 1)
  end
  sc.save(path, tensors, { metadata = { [KEY] = table.concat(out), format = "sconce" } })
end

-- ---- reading

local function parse(text, tensors, path)
  local at = 1
  local function bad(what) fault.raise("load_checkpoint", "%s: the checkpoint is damaged: %s at byte %d", path, what, at) end
  local function counted()
    local digits, after = text:match("^(%d+):()", at)
    local n = tonumber(digits)
    if not n or n > #text then bad("a length is wrong") end
    return n, after
  end
  local function bytes()
    local n, after = counted()
    if after + n - 1 > #text then bad("it ends too early") end
    at = after + n
    return text:sub(after, after + n - 1)
  end
  local function simple(convert, what)
    local token, after = text:match("^([^;]*);()", at)
    local v = token and convert(token)
    if v == nil then bad(what) end
    at = after
    return v
  end
  local value
  local function pairs_of(depth)
    if depth > 100 then bad("tables are nested too deeply") end
    local n, after = counted()
    at = after
    local out = {}
    for _ = 1, n do
      local k = value(depth + 1)
      if type(k) ~= "string" and math.type(k) ~= "integer" then bad("a key is wrong") end
      out[k] = value(depth + 1)
    end
    return out
  end
  function value(depth)
    local tag = text:sub(at, at)
    at = at + 1
    if tag == "i" then return simple(math.tointeger, "an integer is wrong") end
    if tag == "f" then
      return simple(function(s)
        if s == "inf" then return math.huge elseif s == "-inf" then return -math.huge elseif s == "nan" then return 0 / 0 end
        local v = tonumber(s)
        return math.type(v) == "integer" and v + 0.0 or v -- not always: -0.0 + 0.0 is 0.0
      end, "a number is wrong")
    end
    if tag == "b" then return simple(function(s) if s == "1" then return true elseif s == "0" then return false end end,
      "a boolean is wrong") end
    if tag == "s" then return bytes() end
    if tag == "x" then return (bytes():gsub("%x%x", function(h) return string.char(tonumber(h, 16)) end)) end
    if tag == "t" then return pairs_of(depth) end
    if tag == "#" then
      local name = bytes()
      return tensors[name] or bad("there is no tensor " .. name)
    end
    bad("an unknown value")
  end
  local v = value(1)
  if at ~= #text + 1 or type(v) ~= "table" then bad("something follows") end
  return v
end

--- Reads a checkpoint. Things given by name take over their states with load_state_dict; everything else comes back in a table. The state
--- of the global random numbers is set as it was, unless rng = false.
---   local extra = sc.load_checkpoint("run.safetensors", { model = net, optimizer = opt, scheduler = sched, loader = loader })
---   print(extra.epoch)
--- Errors: not a checkpoint; a name that it does not have; what the things' load_state_dict refuses.
---@param path string
---@param things? table<string, any>
---@param options? { rng?: boolean }
---@return table<string, any>
function checkpoint.load(path, things, options)
  local tensors, metadata = sc.load(path)
  local text = type(metadata) == "table" and metadata[KEY]
  if not text then fault.raise("load_checkpoint", "%s: not a checkpoint of sconce; sc.load reads its tensors", tostring(path)) end
  local states = parse(text, tensors, path)
  local rng = states["rng state"]
  states["rng state"] = nil
  local names = {}
  for name in pairs(things or {}) do
    if states[name] == nil then fault.raise("load_checkpoint", "%s: has nothing named %q", path, tostring(name)) end
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    things[name]:load_state_dict(states[name])
    states[name] = nil
  end
  if rng and not (options and options.rng == false) then sc.set_rng_state(rng) end
  return states
end

return checkpoint
