--- Graphs as expressions, for specs of rewrites: one text an output, `add(x, mul(y, 2))`. Arguments are x, y, z, w in their order, other
--- captured tensors c1, c2 …; attributes that are not nil follow, but for the ordinary alpha. In-place nodes are printed first.
local NAMES = { "x", "y", "z", "w", "u", "v" }

local function number(v)
  if type(v) == "boolean" then return tostring(v) end
  return string.format("%.6g", v)
end

local function attribute(v)
  if type(v) ~= "table" then return type(v) == "number" and number(v) or tostring(v) end
  local list = {}
  for i, e in ipairs(v) do list[i] = number(e) end
  return "[" .. table.concat(list, " ") .. "]"
end

---@param graph userdata  # of the engine
---@return string
return function(graph)
  local whole, captured, n_captured, inputs = graph:whole(), {}, 0, {}
  for i, v in ipairs(whole.inputs) do inputs[v] = NAMES[i] end
  local made = {}
  for _, n in ipairs(whole.nodes) do
    for k, v in ipairs(n.outs) do if not (n.inplace and k == 1) then made[v] = { n, k } end end
  end
  local function name_of(v)
    if v == 0 then return "nil" end
    local x = whole.values[v]
    if inputs[v] then return inputs[v] end
    if x.number ~= nil then return number(x.number) end
    if not captured[v] then
      n_captured = n_captured + 1
      captured[v] = "c" .. n_captured
    end
    return captured[v]
  end
  local text
  local function call(n)
    local parts = {}
    for i, v in ipairs(n.ins) do parts[i] = text(v) end
    local names = {}
    for name in pairs(n.attr) do names[#names + 1] = name end
    table.sort(names)
    for _, name in ipairs(names) do
      if not (name == "alpha" and n.attr.alpha == 1) then parts[#parts + 1] = name .. "=" .. attribute(n.attr[name]) end
    end
    return n.op:gsub("^nn%.functional%.", "") .. "(" .. table.concat(parts, ", ") .. ")"
  end
  text = function(v)
    local m = made[v]
    if not m then return name_of(v) end
    return call(m[1]) .. (m[2] > 1 and "#" .. m[2] or "")
  end
  local lines = {}
  for _, n in ipairs(whole.nodes) do if n.inplace then lines[#lines + 1] = call(n) end end
  for _, o in ipairs(whole.outputs) do lines[#lines + 1] = text(o.value) end
  return table.concat(lines, "; ")
end
