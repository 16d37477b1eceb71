--- Branches and loops in ONNX: If, Loop and Scan. What a branch or body reads from outside it reads by name, as ONNX's subgraphs may.
---
--- What has no such form (a loop whose gradient replays its rounds, anything that hands out the generator's state) is a node of our own.
local write = require "sconce.onnx.write"
local Writer = require "sconce.onnx.writer"

local ops = {}

--- A writer for graph i of a program. formals: names its first inputs have; outside: operands (values) for the rest.
local function child(e, p, i, formals, outside)
  local graph = p.graphs[i]
  local w = Writer.new(graph:whole(), e.file, e)
  for k, v in ipairs(w.whole.inputs) do
    w:set(v, formals[k] or e:ref(outside[k - #formals]))
  end
  for _, n in ipairs(w.whole.nodes) do w:emit(n) end
  return w
end

--- What nodes read that they do not make.
local function read_outside(w, given)
  local made, reads = {}, {}
  for _, name in ipairs(given) do made[name] = true end
  for _, n in ipairs(w.nodes) do
    for _, list in ipairs { n.inputs, n.reads or {} } do
      for _, name in ipairs(list) do if not made[name] and name ~= "" then reads[#reads + 1] = name end end
    end
    for _, name in ipairs(n.outputs) do made[name] = true end
  end
  return reads
end

--- GraphProto: inputs and outputs are { name, value }, value nil for the scalars of Loop ({ name, nil, dtype }).
local function graph_bytes(w, inputs, outputs)
  local out = {}
  for _, n in ipairs(Writer.bytes_of(w.nodes)) do out[#out + 1] = write.text(1, n) end
  out[#out + 1] = write.text(2, "body")
  local function info(x) return x[2] and w:info(x[1], x[2]) or write.value(x[1], x[3], {}) end
  for _, x in ipairs(inputs) do out[#out + 1] = write.text(11, info(x)) end
  for _, x in ipairs(outputs) do out[#out + 1] = write.text(12, info(x)) end
  return table.concat(out)
end

--- The results of w's graph as fresh names, made inside it.
local function results(w, from, to)
  local list = {}
  for i = from or 1, to or #w.whole.outputs do
    local v = w.whole.outputs[i].value
    list[#list + 1] = { w:node("Identity", { w:ref(v) }), v }
  end
  return list
end

local function names_of(list)
  local names = {}
  for i, x in ipairs(list) do names[i] = x[1] end
  return names
end

--- Operands of the graphs after the node's own `lead`: those of graph 1, then of graph 2.
local function operands(n, lead, p, formals)
  local lists, at = {}, lead
  for i, g in ipairs(p.graphs) do
    lists[i] = {}
    for _ = 1, #g:names() - (formals[i] or 0) do
      at = at + 1
      lists[i][#lists[i] + 1] = n.ins[at]
    end
  end
  return lists
end

local function plain(p)
  if p.random or p.replay then error("it draws random numbers that a gradient draws again", 0) end
end

function ops.control_cond(e, n)
  local p = n.program
  plain(p)
  local outside, attrs, reads, count = operands(n, 1, p, {}), {}, {}, 0
  for i, branch in ipairs { "then_branch", "else_branch" } do
    local w = child(e, p, i, {}, outside[i])
    local outs = results(w)
    attrs[branch], count = { graph = graph_bytes(w, {}, outs) }, #outs
    for _, name in ipairs(read_outside(w, {})) do reads[#reads + 1] = name end
  end
  local pred = e:node("Reshape", { e:ref(n.ins[1], "bool"), e:ints {} })
  e.blocks[n.outs[1]] = { e:node("If", { pred }, attrs, count, nil, reads) }
  return n.op
end

--- Writes graph i's nodes into w, for these names of its inputs; gives the name of its first result.
local function inline(w, p, i, formals, outside)
  local c = child(w, p, i, formals, outside)
  table.move(c.nodes, 1, #c.nodes, #w.nodes + 1, w.nodes)
  return c:ref(c.whole.outputs[1].value)
end

function ops.control_while(e, n)
  local p = n.program
  plain(p)
  local carry = {}
  for i = 1, p.carry do carry[i] = e:ref(n.ins[i]) end
  local outside = operands(n, p.carry, p, { p.carry, p.carry })
  local function truth(w, formals) return w:node("Reshape", { w:cast(inline(w, p, 1, formals, outside[1]), "bool"), w:ints {} }) end
  local first = truth(e, carry)
  local body, formals, inputs = Writer.new(p.graphs[2]:whole(), e.file, e), {}, {}
  for i, v in ipairs(body.whole.inputs) do
    if i <= p.carry then
      formals[i] = e:fresh()
      inputs[i] = { formals[i], v }
      body:set(v, formals[i])
    else
      body:set(v, e:ref(outside[2][i - p.carry]))
    end
  end
  for _, node in ipairs(body.whole.nodes) do body:emit(node) end
  local outs = results(body)
  local rounds, step, on = e:fresh(), e:fresh(), e:fresh()
  table.insert(inputs, 1, { on, nil, "bool" })
  table.insert(inputs, 1, { step, nil, "int64" })
  inputs[#inputs + 1] = { rounds, nil, "int64" }
  local more = truth(body, names_of(outs))
  outs[#outs + 1] = { body:node("Add", { rounds, body:scalar(1, "int64") }), nil, "int64" }
  table.insert(outs, 1, { more, nil, "bool" })
  local reads = read_outside(body, names_of(inputs))
  local all = { "", first }
  table.move(carry, 1, #carry, 3, all)
  all[#all + 1] = e:scalar(0, "int64")
  e.blocks[n.outs[1]] = { e:node("Loop", all, { body = { graph = graph_bytes(body, inputs, outs) } }, p.carry + 1, nil, reads) }
  return n.op
end

function ops.control_scan(e, n)
  local p = n.program
  plain(p)
  local formals, all = {}, {}
  for i = 1, p.carry + p.x do formals[i], all[i] = e:fresh(), e:ref(n.ins[i]) end
  local w = child(e, p, 1, formals, operands(n, p.carry + p.x, p, { p.carry + p.x })[1])
  local inputs, outs = {}, results(w)
  for i = 1, p.carry + p.x do inputs[i] = { formals[i], w.whole.inputs[i] } end
  for i = 1, p.keep and p.carry or 0 do outs[#outs + 1] = { w:node("Identity", { formals[i] }), w.whole.inputs[i] } end
  local function directions(count)
    local list = {}
    for i = 1, count do list[i] = p.reverse and 1 or 0 end
    return list
  end
  local attrs = { body = { graph = graph_bytes(w, inputs, outs) }, num_scan_inputs = p.x, scan_input_directions = directions(p.x) }
  if #outs > p.carry then attrs.scan_output_directions = directions(#outs - p.carry) end
  e.blocks[n.outs[1]] = { e:node("Scan", all, attrs, #outs, nil, read_outside(w, formals)) }
  return n.op
end

function ops.control_result(e, n, a)
  local block = e.blocks[n.ins[1]] or error("the branch or loop is a node of our own", 0)
  return block[a.index + 1] or error("there is no such result", 0)
end

return ops
