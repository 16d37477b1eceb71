-- Scenarios made from the op table: every op is called with simple inputs until one set of arguments is accepted, and differentiated
-- where it can be. Ops that accept none of them are not replayed; their number is in what this returns second.
local sc = require "sconce"
local core = require "sconce.core"

local function matrix() return sc.tensor { { 1.5, 0.25, 0.5 }, { 0.125, 1.25, 0.75 }, { 0.5, 0.25, 2.0 } } end
local function vector() return sc.tensor { 0.25, 0.5, 0.75 } end
local function images() return sc.arange(72):to("float32"):reshape { 1, 2, 6, 6 } / 72.0 end
local function kernel() return sc.arange(36):to("float32"):reshape { 2, 2, 3, 3 } / 36.0 end
local function integers() return sc.tensor { { 1, 2, 3 }, { 3, 2, 1 }, { 2, 1, 3 } } end
local function truths() return sc.tensor { { true, false, true }, { false, true, true }, { true, true, false } } end

local SETS = {
  { matrix, matrix, matrix, matrix, matrix, matrix }, { images, kernel }, { matrix, integers, matrix }, { integers, integers, integers },
  { truths, matrix, matrix }, { truths, truths, truths }, { matrix, truths, matrix }, { vector, vector, vector },
  { matrix, vector, vector, vector, vector }, { images }, { matrix, vector, matrix },
  { matrix, function() return sc.tensor { 1, 2, 3 } end, matrix },
}
local BY_TYPE = { int = 2, number = 0.5, float = 0.5, bool = false, dim = 1, index = 1, dtype = "float64", str = "mean" }

local function is_tensor_type(type) return type == "tensor" or type == "tensor?" end

--- The parameters of a signature: { name =, type =, given = whether a value must be given }.
local function parameters(signature)
  local list = {}
  for part in (signature:match("%((.*)%)") .. ","):gmatch("%s*([^,%[]*%[?[^,%]]*%]?[^,]*),") do
    local name, type, preset = part:match("^([%w_]+)%s*:?%s*([^=]*)=?%s*(.*)$")
    if name then
      type = type:gsub("%s+$", "")
      if type == "" then type = "tensor" end
      list[#list + 1] = { name = name, type = type, given = preset == "" and not type:find("?", 1, true) }
    end
  end
  return list
end

local function arguments(params, set)
  local args, k = { n = #params }, 0
  for i, p in ipairs(params) do
    local type = p.type:gsub("%?", "")
    if is_tensor_type(p.type) then
      k = k + 1
      if p.given then
        if not set[k] then return nil end
        args[i] = set[k]()
      end
    elseif type == "tensor[]" then
      args[i] = { set[1](), set[1]() }
    elseif p.given then
      if type == "shape" then args[i] = { 3, 3 }
      elseif type:find("%[") then args[i] = type:find("dim") and { 1 } or { 1, 1 }
      else args[i] = BY_TYPE[type] end
      if args[i] == nil then return nil end
    end
  end
  return args
end

local function tensors_of(args)
  local list = {}
  for i = 1, args.n do
    local a = args[i]
    if core.is_tensor(a) then list[#list + 1] = a
    elseif type(a) == "table" and core.is_tensor(a[1]) then for _, t in ipairs(a) do list[#list + 1] = t end end
  end
  return list
end

--- The gradients of the first result that takes any, and the results without their history.
local function gradients(r, args)
  local y
  for i = 1, r.n do if core.is_tensor(r[i]) and r[i].requires_grad then y = y or r[i] end end
  if not y then return r end
  local leaves = {}
  for _, t in ipairs(tensors_of(args)) do if t.requires_grad then leaves[#leaves + 1] = t end end
  local g = table.pack(sc.grad(y, leaves, { grad_outputs = y:detach() * 0.5 + 1.0, allow_unused = true }))
  for i = 1, r.n do if core.is_tensor(r[i]) then r[i] = r[i]:detach() end end
  return { r, g }
end

local function call_op(fn, args) return gradients(table.pack(fn(table.unpack(args, 1, args.n))), args) end

local function run_op(fn, args)
  local rng = sc.get_rng_state()
  local ok, both = pcall(call_op, fn, args)
  if ok then return both end
  sc.set_rng_state(rng)                                         -- what the op itself drew is rightly gone
  error(both, 0)
end

local function scenario(name)
  local info, fn = core.op_info(name), core.ops[name]
  if info.internal or info.inplace then return nil end
  local params = parameters(info.signature)
  for _, set in ipairs(SETS) do
    for _, grad in ipairs { true, false } do
      local function make()
        local args = arguments(params, set)
        if args and grad then
          for _, t in ipairs(tensors_of(args)) do if t.dtype == "float32" then t.requires_grad = true end end
        end
        return args
      end
      local ok, args = pcall(make)
      if not ok or not args then break end
      sc.manual_seed(1)
      if pcall(run_op, fn, args) then
        return { name = "op " .. name, make = make, run = function(a) return run_op(fn, a) end }
      end
    end
  end
  return nil
end

-- Values of fresh memory are what they are.
local SKIP = { empty = true, empty_like = true, new_empty = true, empty_strided = true }

return function()
  local list, left = {}, {}
  local names = core.op_names()
  table.sort(names)
  for _, name in ipairs(names) do
    local info = core.op_info(name)
    if not SKIP[name] and not info.internal and not info.inplace then
      local s = scenario(name)
      if s then list[#list + 1] = s else left[#left + 1] = name end
    end
  end
  return list, left
end
