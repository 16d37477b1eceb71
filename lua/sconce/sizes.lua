--- Sizes of a compiled function's arguments that vary: which of them a trace can leave open, and which sizes an open trace takes.
---
--- The first call of a kind (dtypes, numbers of dimensions, other values) is traced with the sizes it has. When other sizes come, those
--- that differ are given names, equal ones that change alike the same name, and the function is traced once more with stand-ins for them
--- (csrc/graph/instantiate.c). A size that the script reads then, in a line of its own, is fixed again and guarded. The open trace must
--- give, for the sizes of the first call, the very graph that was recorded then, or it is thrown away. 0 and 1 are never left open:
--- broadcasting and empty tensors make other graphs of them.
local core = require "sconce.core"

local sizes = {}

local MOST = 10 -- names, see csrc/graph/graph.h

--- Sizes of the tensors among the arguments: a list for each.
function sizes.of(args)
  local list = {}
  for i = 1, args.n do list[i] = core.is_tensor(args[i]) and args[i].shape or false end
  return list
end

local function place(i, d) return i .. "." .. d end

--- Names for the sizes that differ between two calls and are not fixed: { [place] = number of the name }, how many; nil when there are none.
---@param fixed table<string, string>  # place -> where the script reads it
function sizes.name(before, now, fixed)
  local names, of, n = {}, {}, 0
  for i, shape in ipairs(now) do
    for d, size in ipairs(shape or {}) do
      local was, at = before[i][d], place(i, d)
      if was ~= size and was > 1 and size > 1 and not fixed[at] then
        local key = was .. "," .. size
        if not of[key] then
          if n == MOST then return nil end
          n = n + 1
          of[key] = n
        end
        names[at] = of[key]
      end
    end
  end
  if n > 0 then return names, n end
end

--- A shape with stand-ins.
function sizes.stand_in(names, i, shape)
  local out = {}
  for d, size in ipairs(shape) do out[d] = names[place(i, d)] and core.stand_in(names[place(i, d)]) or size end
  return out
end

--- The actual size for each of n names; nil when these sizes do not fit a trace made of `like`.
function sizes.actual(names, n, like, now)
  local list = {}
  for i, shape in ipairs(now) do
    for d, size in ipairs(shape or {}) do
      local name = names[place(i, d)]
      if not name then
        if size ~= like[i][d] then return nil end
      else
        if size < 2 or (list[name] and list[name] ~= size) then return nil end
        list[name] = size
      end
    end
  end
  return #list == n and list or nil
end

--- Fixes the places of the names in a bit set, since the script reads them at `where`.
function sizes.fix(fixed, names, bits, where)
  local any = false
  for at, name in pairs(names) do
    if bits & (1 << (name - 1)) ~= 0 then fixed[at], any = where, true end
  end
  return any
end

--- "size 1 of argument 2"
function sizes.words(at)
  local i, d = at:match("(%d+)%.(%d+)")
  return ("size %s of argument %s"):format(d, i)
end

return sizes
