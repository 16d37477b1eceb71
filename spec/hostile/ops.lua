-- Scenarios made from the op table: every op is called with simple inputs that it accepts, and differentiated where it can be. Ops without
-- such inputs are not replayed; their names are what this returns second.
local sc = require "sconce"
local core = require "sconce.core"
local calls = require "spec.support.calls"

--- The gradients of the first result that takes any, and the results without their history.
local function gradients(r, args)
  local y
  for i = 1, r.n do if core.is_tensor(r[i]) and r[i].requires_grad then y = y or r[i] end end
  if not y then return r end
  local leaves = {}
  for _, t in ipairs(calls.tensors(args)) do if t.requires_grad then leaves[#leaves + 1] = t end end
  local g = table.pack(sc.grad(y, leaves, { grad_outputs = y:detach() * 0.5 + 1.0, allow_unused = true }))
  for i = 1, r.n do if core.is_tensor(r[i]) then r[i] = r[i]:detach() end end
  return { r, g }
end

--- Puts results where there is room for them already: a refusal in here would come after an in-place op has done its work.
local function keep(r, ...)
  r.n = select("#", ...)
  for i = 1, 8 do r[i] = (select(i, ...)) end
  return r
end

local function call_op(fn, args)
  local r = { false, false, false, false, false, false, false, false, n = 0 }
  return gradients(keep(r, fn(table.unpack(args, 1, args.n))), args)
end

local function run_op(fn, args)
  local rng = sc.get_rng_state()
  local ok, both = pcall(call_op, fn, args)
  if ok then return both end
  sc.set_rng_state(rng)                                         -- what the op itself drew is rightly gone
  error(both, 0)
end

-- Values of fresh memory are what they are.
local SKIP = { empty = true, empty_like = true, new_empty = true, empty_strided = true }

return function()
  local list, left = {}, {}
  for _, name in ipairs(calls.names {}) do
    if not SKIP[name] then
      local c = calls.find(name, run_op)
      if c then list[#list + 1] = { name = "op " .. name, make = c.make, run = function(a) return run_op(c.fn, a) end }
      else left[#left + 1] = name end
    end
  end
  return list, left
end
