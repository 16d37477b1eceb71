--- sc.verify: a function run line by line and compiled, in lockstep.
---
--- The recording is run op by op without passes; that must give what the function itself gives (else the function reads something a
--- trace cannot see), and every step of plans with more and more passes on must give what the same op gave. Captured tensors,
--- arguments and the random numbers are put back before every run; the last of them, line by line, is the one that counts.
local core = require "sconce.core"
local fault = require "sconce.fault"
local run = require "sconce.run"

local verify = {}

--- The largest difference of two tensors, 0 when they are the same; NaN equals NaN.
local function distance(a, b)
  if a.dtype ~= b.dtype or table.concat(a.shape, ",") ~= table.concat(b.shape, ",") then return math.huge end
  if a:tostring_bytes() == b:tostring_bytes() then return 0 end
  local worst, x, y = 0, a:to("float64"):reshape(-1):totable(), b:to("float64"):reshape(-1):totable()
  for i = 1, #x do
    local d = x[i] == y[i] and 0 or x[i] ~= x[i] and y[i] ~= y[i] and 0 or math.abs(x[i] - y[i])
    if d ~= d then d = math.huge end
    worst = math.max(worst, d)
  end
  return worst
end

local function differs(a, b, tolerance)
  local d = distance(a, b)
  local scale = d > 0 and d < math.huge and a:numel() > 0 and a:to("float64"):abs():max():item() or 0
  if scale ~= scale or scale == math.huge then scale = 0 end
  return d > tolerance * math.max(1, scale) and d or nil
end

--- What must be the same before every run.
local function snapshot(entry, args)
  local list = {}
  for _, t in ipairs(entry.core:captures()) do list[#list + 1] = { t, t:detach():clone() } end
  for i = 1, args.n do
    if core.is_tensor(args[i]) then list[#list + 1] = { args[i], args[i]:detach():clone() } end
  end
  return function()
    for _, pair in ipairs(list) do pair[1]:detach():copy_(pair[2]) end
  end
end

local function line_of(node)
  return (node.line and string.format("%s:%d", node.file, node.line) or "an unknown line") .. (node.module and ", in " .. node.module or "")
    .. (node.backward and ", backward" or "")
end

--- Compares; returns true and a text, or false and what differs first: the op and its line, by how much, and which pass did it.
---@param f function  # compiled, or to be compiled
---@return boolean same
---@return string report
function verify.verify(f, options, ...)
  local sc = require "sconce"
  fault.expect("verify", "argument 1 (f)", "function", f)
  local compiled = type(f) == "table" and rawget(f, "traces") and f or sc.compile(f)
  local args, tolerance = table.pack(...), options.tolerance
  local entry = compiled:run_for(...)
  local restore, nodes, seed = snapshot(entry, args), entry.core:nodes(), options.seed
  local recorded = {}
  local function walk(passes, look)
    restore()
    sc.manual_seed(seed)
    local plan = entry.core:plan(passes)
    local steps = plan:steps()
    local _, inputs = entry:_bind(table.unpack(args, 1, args.n))
    return run.walk(plan, inputs, nil, function(at)
      if not steps[at].inside then look(steps[at].node, plan:peek(at, true)) end
    end)
  end
  local plain = walk(0, function(node, results) recorded[node] = results end)
  for _, pass in ipairs(run.passes(entry.options)) do
    local first
    walk(pass.mask, function(node, results)
      for i, t in ipairs(results) do
        local want = not first and t and recorded[node] and recorded[node][i]
        local d = want and differs(want, t, tolerance)
        if d then
          first = string.format("result %d of %s (%s) differs by %.3g: the pass \"%s\" did it", i, nodes[node].op,
            line_of(nodes[node]), d, pass.name)
        end
      end
    end)
    if first then
      restore()
      return false, first
    end
  end
  restore()
  sc.manual_seed(seed)
  local results = table.pack(compiled.fn(table.unpack(args, 1, args.n)))
  for i = 1, results.n do
    local at = entry.shape[i]
    if core.is_tensor(results[i]) and type(at) == "number" then
      local d = differs(results[i]:detach(), plain[at]:detach(), tolerance)
      if d then
        return false, string.format("result %d of the function differs by %.3g from its recording: "
          .. "it depends on what a trace cannot see", i, d)
      end
    end
  end
  return true, string.format("%d nodes agree, with every pass and line by line", #nodes)
end

return verify
