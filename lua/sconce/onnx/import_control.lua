--- ONNX nodes with subgraphs: If, Loop, Scan. Conditions and trip counts must be known; the bodies' nodes are carried out one by one.
local sc = require "sconce"
local core = require "sconce.core"

local MOST_TURNS = 1000000 -- a loop without end is an error
local MOST_UNROLLED = 256 -- turns that are recorded one by one; longer loops run directly

local function truth(v) return v == true or (type(v) == "number" and v ~= 0) end

local function if_node(x, a, c)
  local branch = truth(c:number(x[1])) and a.then_branch or a.else_branch
  if not branch then error("a branch is missing", 0) end
  return table.unpack(c:body(branch))
end

--- What a body that never ran would have put side by side: nothing, of the dtype and the sizes that the body says its output i has. Sizes
--- that it leaves open count as 0.
local function nothing(c, body, i, axis)
  local kind = ((body.output or {})[i] or {}).type or {}
  local of, shape = kind.tensor_type or {}, {}
  for k, d in ipairs((of.shape or {}).dim or {}) do shape[k] = d.dim_value or 0 end
  axis = axis < 0 and axis + #shape + 1 or axis
  table.insert(shape, math.max(0, math.min(axis, #shape)) + 1, 0)
  return c:now(function() return sc.zeros(shape, { dtype = core.onnx_dtype(of.elem_type or 1) or "float32" }) end)
end

local function loop(x, a, c)
  local most = x[1] and c:number(x[1]) or MOST_TURNS
  local going = x[2] == nil or truth(c:number(x[2]))
  if most > MOST_UNROLLED then c:fresh() end
  local carried, n = {}, x.n - 2
  for i = 1, n do carried[i] = x[i + 2] end
  local scans, turn = {}, 0
  for i = 1, c.n_out - n do scans[i] = {} end
  while going and turn < most do
    local index, on = sc.tensor(turn, { dtype = "int64" }), sc.tensor(true)
    local out = c:body(a.body, index, on, table.unpack(carried, 1, n))
    going = truth(c:number(out[1]))
    for i = 1, n do carried[i] = out[i + 1] end
    for i = 1, #scans do table.insert(scans[i], out[n + 1 + i]) end
    turn = turn + 1
    if turn >= MOST_TURNS then error(string.format("more than %d turns", MOST_TURNS), 0) end
  end
  for i = 1, #scans do carried[n + i] = turn == 0 and nothing(c, a.body, n + 1 + i, 0) or c:apply(sc.stack, scans[i], 1) end
  return table.unpack(carried, 1, n + #scans)
end

local function dim_of(axis, rank) return (axis < 0 and axis + rank or axis) + 1 end

local function picked(list, d, i) return list[1]:select(d, i) end

local function scan_over(x, a, c)
  local m = a.num_scan_inputs
  local n = x.n - m
  local states, parts, outs, length = {}, {}, {}, nil
  for i = 1, n do states[i] = x[i] end
  for i = 1, m do
    local t = x[n + i]
    local d = dim_of((a.scan_input_axes or {})[i] or 0, t:dim())
    if length and t:size(d) ~= length then error("the scanned inputs differ in length", 0) end
    length = t:size(d)
    parts[i] = { t, d, (a.scan_input_directions or {})[i] == 1 }
  end
  for i = 1, c.n_out - n do outs[i] = {} end
  for step = 1, length or 0 do
    local given = table.move(states, 1, n, 1, {})
    for i = 1, m do given[n + i] = c:apply(picked, { parts[i][1] }, parts[i][2], parts[i][3] and length + 1 - step or step) end
    local out = c:body(a.body, table.unpack(given, 1, n + m))
    for i = 1, n do states[i] = out[i] end
    for i = 1, #outs do table.insert(outs[i], out[n + i]) end
  end
  for i = 1, #outs do
    if (a.scan_output_directions or {})[i] == 1 then
      local turned = {}
      for k = #outs[i], 1, -1 do turned[#turned + 1] = outs[i][k] end
      outs[i] = turned
    end
    local first, axis = outs[i][1], (a.scan_output_axes or {})[i] or 0
    states[n + i] = first and c:apply(sc.stack, outs[i], dim_of(axis, first:dim() + 1)) or nothing(c, a.body, n + i, axis)
  end
  return table.unpack(states, 1, n + #outs)
end

--- Opset 8: a batch in front, lengths as the first input.
local function scan_batched(x, a, c)
  local inputs = { n = x.n - 1 }
  local batch, results = x[2]:size(1), {}
  for b = 1, batch do
    for i = 2, x.n do inputs[i - 1] = c:apply(picked, { x[i] }, 1, b) end
    local out = table.pack(scan_over(inputs, a, c))
    for i = 1, out.n do
      results[i] = results[i] or {}
      results[i][b] = out[i]
    end
  end
  for i = 1, #results do results[i] = c:apply(sc.stack, results[i], 1) end
  return table.unpack(results)
end

return function(ops)
  ops.If, ops.Loop = if_node, loop
  ops.Scan = function(x, a, c)
    if c.opset < 9 then return scan_batched(x, a, c) end
    return scan_over(x, a, c)
  end
  return ops
end
