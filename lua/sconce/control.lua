--- Branches and loops whose course depends on tensors: sc.cond, sc.while_loop, sc.scan.
---
--- In dynamic mode they are an `if` and loops, and gradients need nothing. In a graph (a trace, or symbolic tensors) each branch or body
--- is recorded into a graph of its own, and becomes a node that runs it (csrc/graph/control.c). Tensors that it uses from
--- outside become operands of that node. Gradients are branches and loops again: one node of the tape, whose backward records
---   cond        a cond of the branches' gradients,
---   scan        a scan in the other direction, over what was carried into each round,
---   while_loop  a node that repeats the loop, keeping what is carried, and walks back.
--- These record fn once more, with gradients, so fn must do the same each time.
local core = require "sconce.core"
local fault = require "sconce.fault"
local sc = require "sconce"

local control = {}

local function describe(t) return ("%s {%s}"):format(t.dtype, table.concat(t.shape, ", ")) end

local function is_float(t) return t.dtype:find("float", 1, true) ~= nil end

local function check_function(what, place, name, fn) fault.expect(what, ("argument %d (%s)"):format(place, name), "function", fn) end

--- Every one of list must be a tensor.
local function check_tensors(what, list, text)
  for i = 1, list.n do
    if not core.is_tensor(list[i]) then fault.raise(what, text .. ": expected a tensor, got %s", i, fault.describe(list[i])) end
  end
  return list
end

local function check_same(what, text, i, one, other)
  if one.dtype ~= other.dtype or table.concat(one.shape, ",") ~= table.concat(other.shape, ",") then
    fault.raise(what, text, i, describe(one), describe(other))
  end
end

--- The truth of a condition, in dynamic mode.
local function truth(what, p)
  if type(p) == "boolean" then return p end
  if not core.is_tensor(p) then fault.raise(what, "the condition: expected a tensor of one element, got %s", fault.describe(p)) end
  if p:numel() ~= 1 then
    fault.raise(what, "the condition: expected a tensor of one element, got shape {%s}", table.concat(p.shape, ", "))
  end
  local v = p:item()
  return v ~= 0 and v ~= false
end

local function in_graph(...)
  if core.is_tracing() then return true end
  for i = 1, select("#", ...) do
    local list = select(i, ...)
    for k = 1, list.n do
      if core.is_symbolic(list[k]) then return true end
    end
  end
  return false
end

-- ---------------------------------------------------------------- recording

--- Records fn(arguments that make(graph) gives) as a graph: { graph =, results =, outer = tensors from outside, formals = }.
local function record(what, fn, make)
  local part = { graph = core.graph() }
  part.outer = core.part(part.graph, function()
    part.formals = make and make(part.graph) or { n = 0 }
    part.results = check_tensors(what, table.pack(fn(table.unpack(part.formals, 1, part.formals.n))), "result %d of a function")
    for i = 1, part.results.n do part.graph:output("y" .. i, part.results[i]) end
  end)
  return part
end

--- Inputs like these tensors; rows: like a row of them. They ask for gradients when these are wanted.
local function inputs_like(graph, list, name, rows, into)
  into = into or { n = 0 }
  for i = 1, list.n do
    local shape = list[i].shape
    if rows then table.remove(shape, 1) end
    local t = graph:input(name .. i, shape, list[i].dtype)
    if core.is_grad_enabled() and is_float(t) then t.requires_grad = true end
    into.n = into.n + 1
    into[into.n] = t
  end
  return into
end

local function append(to, list, n)
  for i = 1, n or list.n or #list do to[#to + 1] = list[i] end
  return to
end

local function places_of_floats(list, from, to)
  local places = {}
  for i = from or 1, to or list.n do
    if is_float(list[i]) then places[#places + 1] = i end
  end
  return places
end

local function pick(list, places)
  local out = { n = #places }
  for i, place in ipairs(places) do out[i] = list[place] end
  return out
end

--- The tensors from outside, besides `formals`, that gradients of these results go to.
local function captured_by(since, formals, ...)
  if not core.is_grad_enabled() then return {} end
  local ys, wanted = {}, {}
  for i = 1, select("#", ...) do
    local results = select(i, ...)
    for k = 1, results.n do
      if core.differentiable(results[k]) then ys[#ys + 1] = results[k] end
    end
  end
  for i = 1, formals.n do
    if formals[i].requires_grad then wanted[#wanted + 1] = formals[i] end
  end
  return #ys > 0 and core.captured(ys, wanted, since) or {}
end

local function any_requires(list)
  for i = 1, list.n or #list do
    if list[i].requires_grad then return true end
  end
  return false
end

--- Makes results[places] one node of the tape over these tensors.
local function remember(what, parts, tensors, results, places, backward)
  local at, needs = {}, {}
  for i = 1, #tensors do at[i], needs[i] = i, true end
  local random = false
  for _, part in ipairs(parts) do random = random or select(2, core.is_random(part.graph)) end
  local function guarded(_, ...)
    if random then
      fault.raise("backward", "%s in a graph: gradients through what draws from a generator of its own are not there", what)
    end
    return backward({ n = select("#", ...), ... })
  end
  local ctx = core.custom_context.new {}
  core.record_custom({ backward = guarded, ctx = ctx, n = #tensors, at = at, needs = needs }, tensors, results, places)
end

--- Tensors of one's own with these values, to differentiate by; recorded: their gradients will be differentiated.
local function own(list, recorded)
  local out = { n = list.n }
  for i = 1, list.n do
    local t = list[i]
    out[i] = t
    if is_float(t) then out[i] = recorded and t.requires_grad and t:view(t.shape) or t:detach():requires_grad_() end
  end
  return out
end

--- Gradients of results[places] by wanted, given what arrives; zeros where none goes.
local function gradients(results, places, dys, wanted, recorded)
  local ys, arriving = {}, {}
  for k, place in ipairs(places) do
    if core.differentiable(results[place]) then ys[#ys + 1], arriving[#arriving + 1] = results[place], dys[k] end
  end
  local out = { n = #wanted }
  if #ys > 0 and #wanted > 0 then
    out = table.pack(core.grad(ys, wanted, { grad_outputs = arriving, cut = true, allow_unused = true, create_graph = recorded }))
  end
  for i = 1, #wanted do out[i] = out[i] or sc.zeros(wanted[i].shape, { dtype = wanted[i].dtype }) end
  out.n = #wanted
  return out
end

-- ---------------------------------------------------------------- cond

--- Whether parts draw random numbers: a node's last result is then the state they were drawn from (state, removed here).
local function take_state(results, ...)
  for i = 1, select("#", ...) do
    if core.is_random((select(i, ...)).graph) then return table.remove(results) end
  end
end

--- state: of the generator, to draw what was drawn from there.
local function cond_graph(pred, fn_true, fn_false, args, state)
  local since = core.sequence()
  local function called(fn) return function() return fn(table.unpack(args, 1, args.n)) end end
  local yes, no = record("cond", called(fn_true)), record("cond", called(fn_false))
  if yes.results.n ~= no.results.n then
    fault.raise("cond", "fn_true returns %d tensors, fn_false returns %d", yes.results.n, no.results.n)
  end
  for i = 1, yes.results.n do
    check_same("cond", "result %d: fn_true returns %s, fn_false returns %s", i, yes.results[i], no.results[i])
  end
  local results = core.control("cond", { yes.graph, no.graph }, { replay = state ~= nil },
    append(append({ pred, state }, yes.outer), no.outer))
  local drawn = take_state(results, yes, no)
  local captured = captured_by(since, { n = 0 }, yes.results, no.results)
  if #captured > 0 then
    local places = {}
    for i = 1, #results do
      if core.differentiable(yes.results[i]) or core.differentiable(no.results[i]) then places[#places + 1] = i end
    end
    remember("cond", { yes, no }, captured, results, places, function(dys)
      local recorded = core.is_grad_enabled()
      local function side(fn)
        return function()
          local again = table.pack(sc.enable_grad(fn, table.unpack(args, 1, args.n)))
          return table.unpack(gradients(again, places, dys, captured, recorded), 1, #captured)
        end
      end
      return cond_graph(pred, side(fn_true), side(fn_false), { n = 0 }, drawn)
    end)
  end
  return table.unpack(results)
end

--- The results of fn_true(…) when pred holds, else those of fn_false(…); only the branch taken runs, in graphs as well.
--- In a graph both must return as many tensors, of the same dtypes and shapes, and neither may write to tensors from outside.
---   local y = sc.cond(x:sum():gt(0), function(a) return a * 2 end, function(a) return -a end, x)
---@param pred sc.Tensor|boolean  # one element; a boolean of the script decides at once
---@param fn_true function
---@param fn_false function
---@param ... sc.Tensor  # handed to the branch
---@return sc.Tensor ...
function control.cond(pred, fn_true, fn_false, ...)
  check_function("cond", 2, "fn_true", fn_true)
  check_function("cond", 3, "fn_false", fn_false)
  local args = check_tensors("cond", table.pack(...), "operand %d")
  if type(pred) ~= "boolean" and in_graph({ n = 1, pred }, args) then
    if not core.is_tensor(pred) or pred:numel() ~= 1 then truth("cond", pred) end
    return cond_graph(pred, fn_true, fn_false, args)
  end
  local fn = truth("cond", pred) and fn_true or fn_false
  local results = check_tensors("cond", table.pack(fn(...)), "result %d of a branch")
  return table.unpack(results, 1, results.n)
end

-- ---------------------------------------------------------------- while

local function check_carried(what, before, after)
  if after.n ~= before.n then fault.raise(what, "%d values are carried, the body returned %d", before.n, after.n) end
  for i = 1, before.n do
    check_same(what, "carried value %d: %s at the start, %s after a round", i, before[i], after[i])
  end
end

local function while_backward(body, carried, part, rounds, captured, places, dys, drawn)
  if core.is_grad_enabled() then
    fault.raise("backward", "while_loop in a graph: second derivatives are not there; use sc.scan where the number of rounds is known")
  end
  local k, m = carried.n, #places
  local back = record("while_loop", function(...)
    local given = table.pack(...)
    local h = own({ n = k, table.unpack(given, 1, k) }, false)
    local results = table.pack(sc.enable_grad(body, table.unpack(h, 1, k)))
    local grads = gradients(results, places, { table.unpack(given, k + 1, k + m) }, append(pick(h, places), captured), false)
    return table.unpack(grads, 1, grads.n)
  end, function(g) return inputs_like(g, dys, "dy", false, inputs_like(g, carried, "carried")) end)
  local operands = append(append({}, carried), { rounds })
  append(append(append(append(operands, dys), { drawn }), part.outer), back.outer)
  return table.unpack(core.control("while_backward", { part.graph, back.graph }, { carry = k, dy = m, replay = drawn ~= nil }, operands))
end

local function while_graph(cond, body, carried)
  local since = core.sequence()
  local function formals(g) return inputs_like(g, carried, "carried") end
  local check = sc.no_grad(record, "while_loop", cond, formals)
  if check.results.n ~= 1 or check.results[1]:numel() ~= 1 then
    fault.raise("while_loop", "cond must return one tensor of one element, got %s", check.results.n == 1 and describe(check.results[1])
      or check.results.n .. " results")
  end
  local part = record("while_loop", body, formals)
  check_carried("while_loop", carried, part.results)
  local results = core.control("while", { check.graph, part.graph }, { carry = carried.n },
    append(append(append({}, carried), check.outer), part.outer))
  local drawn = take_state(results, check, part)
  local rounds = table.remove(results)
  local captured = captured_by(since, part.formals, part.results)
  if core.is_grad_enabled() and (any_requires(carried) or #captured > 0) then
    local places = places_of_floats(carried)
    remember("while_loop", { check, part }, append(append({}, pick(carried, places)), captured), results, places, function(dys)
      return while_backward(body, carried, part, rounds, captured, places, dys, drawn)
    end)
  end
  return table.unpack(results)
end

--- Calls body on the carried tensors as long as cond on them holds; returns what is carried at the end. What body returns is carried on:
--- as many tensors, of the same dtypes and shapes.
---   local i, a = sc.while_loop(function(i, a) return i:lt(10) end, function(i, a) return i + 1, a * b end, i0, a0)
--- In a graph any number of rounds can be differentiated, once; backward runs the loop again.
---@param cond function  # returns a tensor of one element
---@param body function
---@param ... sc.Tensor  # carried
---@return sc.Tensor ...
function control.while_loop(cond, body, ...)
  check_function("while_loop", 1, "cond", cond)
  check_function("while_loop", 2, "body", body)
  local carried = check_tensors("while_loop", table.pack(...), "carried value %d")
  if carried.n == 0 then fault.raise("while_loop", "at least one tensor must be carried") end
  if in_graph(carried) then return while_graph(cond, body, carried) end
  local now = carried
  while truth("while_loop", (cond(table.unpack(now, 1, now.n)))) do
    now = check_tensors("while_loop", table.pack(body(table.unpack(now, 1, now.n))), "result %d of the body")
    check_carried("while_loop", carried, now)
  end
  return table.unpack(now, 1, now.n)
end

-- ---------------------------------------------------------------- scan

local scan_graph

--- What was carried into each round, stacked, with a history: for gradients that will be differentiated.
local function stacks_again(s)
  local k = s.carried.n
  local function fn(...)
    local given, results = table.pack(...), table.pack(s.fn(...))
    return table.unpack(append(append({}, results, k), given, k), 1, 2 * k)
  end
  return { table.unpack(table.pack(scan_graph(fn, s.carried, s.xs, s.rounds, s.reverse, s.drawn)), k + 1, 2 * k) }
end

--- Backwards through a scan. Carried: the gradients of what is carried, and sums for the tensors from outside; scanned: what was carried
--- into each round, the rows, the gradients of the results of each round.
local function scan_backward(s, dys)
  local recorded, k, m, mc = core.is_grad_enabled(), s.carried.n, s.xs.n, #s.carry_places
  local nc = #s.captured
  local carry, rows = { n = mc + nc }, { n = 0 }
  for i = 1, mc do carry[i] = dys[i] end
  for i, t in ipairs(s.captured) do carry[mc + i] = sc.zeros(t.shape, { dtype = t.dtype }) end
  append(append(rows, recorded and stacks_again(s) or s.stacks, k), s.xs)
  for i = mc + 1, dys.n do rows[#rows + 1] = dys[i] end
  rows.n = #rows
  local function round(...)
    local given = table.pack(...)
    local at = mc + nc
    local ins = own({ n = k + m, table.unpack(given, at + 1, at + k + m) }, recorded)
    local arriving = { table.unpack(given, 1, mc) }
    append(arriving, { table.unpack(given, at + k + m + 1, given.n) })
    local results = table.pack(sc.enable_grad(s.fn, table.unpack(ins, 1, ins.n)))
    local wanted = append(append(append({}, pick(ins, s.carry_places)), pick(ins, s.x_places)), s.captured)
    local g, out = gradients(results, s.result_places, arriving, wanted, recorded), {}
    for i = 1, mc do out[i] = g[i] end
    for i = 1, nc do out[mc + i] = given[mc + i] + g[mc + #s.x_places + i] end
    for i = 1, #s.x_places do out[mc + nc + i] = g[mc + i] end
    return table.unpack(out, 1, mc + nc + #s.x_places)
  end
  local back = table.pack(scan_graph(round, carry, rows, s.rounds, not s.reverse, s.drawn))
  local out = {} -- in the order of the node's inputs: carried, rows, captured
  for i = 1, mc do out[i] = back[i] end
  for i = 1, #s.x_places do out[mc + i] = back[mc + nc + i] end
  for i = 1, nc do out[mc + #s.x_places + i] = back[mc + i] end
  return table.unpack(out, 1, mc + #s.x_places + nc)
end

function scan_graph(fn, carried, xs, rounds, reverse, state)
  local since, k = core.sequence(), carried.n
  local part = record("scan", fn, function(g) return inputs_like(g, xs, "row", true, inputs_like(g, carried, "carried")) end)
  if part.results.n < k then fault.raise("scan", "%d values are carried, the function returned %d", k, part.results.n) end
  check_carried("scan", carried, { n = k, table.unpack(part.results, 1, k) })
  local captured = captured_by(since, part.formals, part.results)
  local grad = core.is_grad_enabled() and (any_requires(carried) or any_requires(xs) or #captured > 0)
  local results = core.control("scan", { part.graph }, { carry = k, x = xs.n, rounds = rounds, reverse = reverse, keep = grad,
    replay = state ~= nil }, append(append(append(append({}, carried), xs), { state }), part.outer))
  local drawn = take_state(results, part)
  local n = part.results.n
  if grad then
    local s = { fn = fn, carried = carried, xs = xs, rounds = rounds, reverse = reverse, captured = captured, drawn = drawn,
      carry_places = places_of_floats(carried), result_places = places_of_floats(part.results), x_places = {}, stacks = {} }
    for i = 1, k do s.stacks[i] = results[n + i] end
    for _, i in ipairs(places_of_floats(xs)) do s.x_places[#s.x_places + 1] = k + i end
    local tensors = append({}, pick(carried, s.carry_places))
    for _, place in ipairs(s.x_places) do tensors[#tensors + 1] = xs[place - k] end
    remember("scan", { part }, append(tensors, captured), results, s.result_places, function(dys) return scan_backward(s, dys) end)
  end
  return table.unpack(results, 1, n)
end

--- Round by round, in dynamic mode; rounds > 0.
local function scan_now(fn, carried, xs, rounds, reverse)
  local now, ys = carried, {}
  for r = 1, rounds do
    local t = reverse and rounds + 1 - r or r
    local given = append({}, now, carried.n)
    for i = 1, xs.n do given[#given + 1] = xs[i][t] end
    local results = check_tensors("scan", table.pack(fn(table.unpack(given, 1, #given))), "result %d of the function")
    if results.n < carried.n then fault.raise("scan", "%d values are carried, the function returned %d", carried.n, results.n) end
    now = { n = carried.n, table.unpack(results, 1, carried.n) }
    check_carried("scan", carried, now)
    if r > 1 and results.n - carried.n ~= #ys then
      fault.raise("scan", "the function returned %d results, %d in the first round", results.n, #ys + carried.n)
    end
    for i = carried.n + 1, results.n do
      local list = ys[i - carried.n] or {}
      ys[i - carried.n] = list
      list[t] = results[i]
      if r > 1 then
        check_same("scan", "result %d: %s in one round, %s in another", i, list[reverse and rounds or 1], results[i])
      end
    end
  end
  local out = { n = carried.n + #ys, table.unpack(now, 1, carried.n) }
  for i, list in ipairs(ys) do out[carried.n + i] = sc.stack(list, 1) end
  return table.unpack(out, 1, out.n)
end

local function list_of(what, place, name, value)
  local list = core.is_tensor(value) and { value } or value
  if type(list) ~= "table" then
    fault.raise(what, "argument %d (%s): expected a tensor or a list of tensors, got %s", place, name, fault.describe(value))
  end
  local out = { n = #list, table.unpack(list) }
  return check_tensors(what, out, ("argument %d (%s): number %%d"):format(place, name))
end

--- Carries tensors along dim 1 of others: fn(carried …, row …) returns what is carried on, and further tensors, which are stacked.
--- Returns the final carried tensors, then the stacked ones.
---   local h, ys = sc.scan(function(h, x) local h2 = cell(x, h) return h2, h2 end, h0, xs)
--- Differentiable in both modes, any number of times.
---@param fn function
---@param init sc.Tensor|sc.Tensor[]  # carried into the first round
---@param xs sc.Tensor|sc.Tensor[]  # all of the same size in dim 1
---@param options? { reverse?: boolean }  # reverse: from the last row to the first; what is stacked keeps its rows' places
---@return sc.Tensor ...
function control.scan(fn, init, xs, options)
  check_function("scan", 1, "fn", fn)
  local carried, rows = list_of("scan", 2, "init", init), list_of("scan", 3, "xs", xs)
  for name in pairs(options or {}) do
    if name ~= "reverse" then fault.raise("scan", "there is no option %q; the options are reverse", tostring(name)) end
  end
  if rows.n == 0 then fault.raise("scan", "argument 3 (xs): expected at least one tensor") end
  for i = 1, rows.n do
    if rows[i]:dim() == 0 then fault.raise("scan", "argument 3 (xs): a 0-dimensional tensor has no rows") end
    if rows[i]:size(1) ~= rows[1]:size(1) then
      fault.raise("scan", "argument 3 (xs): tensors of %d and %d rows", rows[1]:size(1), rows[i]:size(1))
    end
  end
  local rounds, reverse = rows[1]:size(1), options and options.reverse or false
  if rounds == 0 or in_graph(carried, rows) then return scan_graph(fn, carried, rows, rounds, reverse) end
  return scan_now(fn, carried, rows, rounds, reverse)
end

local info = require("sconce.define").info
info.cond = { signature = "cond(pred, fn_true, fn_false, ...) -> results", help = "The results of fn_true(…) when pred, a tensor of one "
  .. "element, holds, else those of fn_false(…). Only the branch taken runs, in graphs as well.\nErrors: in a graph, branches that "
  .. "differ in number, dtypes or shapes of results, or write to tensors from outside.\n"
  .. "Example: sc.cond(x:sum():gt(0), function(a) return a * 2 end, function(a) return -a end, x)" }
info.while_loop = { signature = "while_loop(cond, body, ...) -> carried", help = "Calls body on the carried tensors as long as cond on "
  .. "them holds; returns what is carried at the end.\nErrors: body returns another number of tensors, or other dtypes or shapes.\n"
  .. "Example: sc.while_loop(function(i) return i:lt(10) end, function(i) return i + 1 end, sc.tensor(0))" }
info.scan = { signature = "scan(fn, init, xs, {reverse = false}) -> carried, stacked", help = "Carries tensors along dim 1 of others: "
  .. "fn(carried, row) returns what is carried on and results that are stacked. init and xs may be lists.\nErrors: tensors of "
  .. "different sizes in dim 1; carried values whose dtype or shape changes.\n"
  .. "Example: sc.scan(function(s, x) return s + x, s + x end, sc.tensor(0.0), sc.tensor{1.0, 2.0})" }

return control
