--- Random programs, for comparing ways to run them.
---
--- A program is a list of steps, each a line of Lua over named tensors: `a1`, `a2` the arguments, `s1` … tensors it captures, `v1` …
--- what it made. It is grown by running it: a step that raises is thrown away, so every program runs. The order of choices depends on
--- the seed alone. A failing program is shrunk by dropping steps (and what needs them) for as long as it fails.
local sc = require "sconce"

local programs = {}

-- ---------------------------------------------------------------- choices

--- A generator of its own: programs stay the same whatever else draws numbers (Park and Miller's).
local function chooser(seed)
  local state = seed * 7919 % 2147483646 + 1
  local function below(n)
    state = state * 48271 % 2147483647
    return (state >> 8) % n + 1
  end
  for _ = 1, 5 do below(2) end
  return below
end

local SHAPES = { { 3 }, { 4 }, { 3, 4 }, { 4, 3 }, { 1, 4 }, { 3, 1 }, { 2, 3, 4 }, { 4, 4 }, {}, { 1 }, { 2, 1, 4 }, { 40, 33 }, { 0, 4 } }
local UNARY = { "tanh", "exp", "sigmoid", "relu", "neg", "abs", "square", "sin", "sqrt", "reciprocal", "floor", "sign", "erf", "log1p" }
local BINARY = { "+", "-", "*", "/" }
local METHODS2 = { "maximum", "minimum", "atan2", "hypot" }
local COMPARE = { "gt", "lt", "ge", "le", "eq", "ne" }
local NUMBERS = { "0.5", "2.0", "-1.25", "3", "1", "0.0", "-2", "0.1" }
local REDUCE = { "sum", "mean", "amax", "amin", "prod", "logsumexp", "std" }
local INPLACE = { "%s:add_(%s)", "%s:mul_(%s)", "%s:sub_(%s)", "%s:copy_(%s)", "%s:div_(%s)" }
local INPLACE1 = { "%s:zero_()", "%s:tanh_()", "%s:exp_()", "%s:fill_(0.25)", "%s:clamp_(-1.0, 1.0)", "%s:neg_()",
  "%s:cumsum_(1)", "%s:relu_()" }

--- Steps: each gives text with %s for the new value's name (or none, for statements), the values it reads, and how it counts.
local function makers(p, below)
  local function pick(list) return list[below(#list)] end
  local function any() return pick(p.names) end
  local function like(name) -- a tensor that probably broadcasts with it
    local t = p.env[name]
    for _ = 1, 6 do
      local other = any()
      local o = p.env[other]
      if o:dim() == 0 or o:dim() <= t:dim() and (o:size(-1) == 1 or t:dim() > 0 and o:size(-1) == t:size(-1)) then return other end
    end
    return name
  end
  local function dim_of(name) return math.max(1, below(math.max(1, p.env[name]:dim()))) end
  local function value(text, ...) return { text = "local %s = " .. text, reads = { ... }, makes = true } end
  local function statement(text, ...) return { text = text, reads = { ... } } end
  return {
    unary = { 8, function() local a = any() return value(a .. ":" .. pick(UNARY) .. "()", a) end },
    binary = { 12, function() local a = any() local b = like(a) return value(a .. " " .. pick(BINARY) .. " " .. b, a, b) end },
    number = { 6, function() local a = any() return value(a .. " " .. pick(BINARY) .. " " .. pick(NUMBERS), a) end },
    method = { 3, function() local a = any() local b = like(a) return value(a .. ":" .. pick(METHODS2) .. "(" .. b .. ")", a, b) end },
    compare = { 2, function() local a = any() local b = like(a) return value(a .. ":" .. pick(COMPARE) .. "(" .. b .. ")", a, b) end },
    compare1 = { 1, function() local a = any() return value(a .. ":" .. pick(COMPARE) .. "(" .. pick(NUMBERS) .. ")", a) end },
    where = { 2, function() local a = any() local b = like(a)
      return value(string.format("sc.where(%s:gt(%s), %s, %s)", a, pick(NUMBERS), a, b), a, b) end },
    pow = { 1, function() local a = any() return value(a .. " ^ " .. pick { "2", "0.5", "3", "-1" }, a) end },
    reduce = { 4, function() local a = any()
      return value(a .. ":" .. pick(REDUCE) .. "(" .. dim_of(a) .. pick { "", ", true" } .. ")", a) end },
    sum = { 1, function() local a = any() return value(a .. ":sum()", a) end },
    softmax = { 1, function()
      local a = any() return value(a .. ":" .. pick { "softmax", "log_softmax", "cumsum", "cumprod" } .. "(" .. dim_of(a) .. ")", a) end },
    matmul = { 4, function() local a = any() local b = any()
      if p.env[a]:dim() > 1 and p.env[b]:dim() > 1 and p.env[a]:size(-1) ~= p.env[b]:size(-2) then
        return value(a .. ":matmul(" .. b .. ":transpose(-1, -2))", a, b)
      end
      return value(a .. ":matmul(" .. b .. ")", a, b) end },
    sort = { 1, function() local a = any() return value(string.format("(%s:sort(%d))", a, dim_of(a)), a) end },
    max = { 1, function() local a = any() return value(string.format("(%s:max(%d))", a, dim_of(a)), a) end },
    cast = { 2, function()
      local a = any() return value(a .. ":to(\"" .. pick { "float64", "float32", "float16", "int64", "int32", "bool" } .. "\")", a) end },
    transpose = { 3, function() local a = any() return value(a .. ":transpose(-1, -2)", a) end },
    narrow = { 3, function() local a = any() local d = dim_of(a)
      local size = p.env[a]:dim() > 0 and p.env[a]:size(d) or 1
      local from = below(math.max(1, size))
      return value(string.format("%s:narrow(%d, %d, %d)", a, d, from, below(math.max(1, size - from + 1))), a) end },
    select = { 2, function()
      local a = any() return value(string.format("%s:select(%d, %s)", a, dim_of(a), pick { "1", "-1", "2" }), a) end },
    slice = { 1, function() local a = any() return value(string.format("%s[{ { 1, -1, %d } }]", a, below(2)), a) end },
    reshape = { 2, function()
      local a = any() return value(a .. pick { ":reshape(-1)", ":unsqueeze(1)", ":flatten()", ":view(-1, 1)", ":unsqueeze(-1)" }, a) end },
    expand = { 1, function() local a = any() return value(a .. ":expand(" .. pick { "2, 3, 4", "3, 4", "4, 4", "2, 3, 1" } .. ")", a) end },
    clone = { 2, function() local a = any() return value(a .. ":" .. pick { "clone", "contiguous", "detach" } .. "()", a) end },
    cat = { 1, function()
      local a = any() local b = like(a) return value(string.format("sc.cat({ %s, %s }, %d)", a, b, dim_of(a)), a, b) end },
    random = { 2, function()
      return value("sc." .. pick { "rand", "randn" } .. "(" .. pick { "3, 4", "4", "2, 3, 4", "40, 33" } .. ")") end },
    dropout = { 1, function() local a = any() return value("F.dropout(" .. a .. ", 0.5, true)", a) end },
    full = { 1, function() return value(pick { "sc.zeros(3, 4)", "sc.ones(4)", "sc.full({ 4, 4 }, 1.5)", "sc.zeros(40, 33)" }) end },
    inplace = { 6, function() local a = any() local b = like(a) return statement(pick(INPLACE):format(a, b), a, b) end },
    inplace1 = { 3, function() local a = any() return statement(pick(INPLACE1):format(a), a) end },
    inplace_number = { 2, function()
      local a = any() return statement(a .. ":" .. pick { "add_", "mul_" } .. "(" .. pick { "0.5", "2" } .. ")", a) end },
    assign = { 1, function() local a = any() return statement(a .. "[1] = " .. pick(NUMBERS), a) end },
    leaf = { 2, function() local a = any() return value(a .. ":detach():clone():requires_grad_()", a) end },
    grad = { 5, function()
      local wanting = {}
      for _, n in ipairs(p.names) do if p.env[n].requires_grad then wanting[#wanting + 1] = n end end
      if #wanting < 2 then return nil end
      local y, x = pick(wanting), pick(wanting)
      return value(string.format("sc.grad((%s * %s):sum(), %s):detach()", y, pick(wanting), x), y, x) -- reads are found in the text
    end },
    backward = { 1, function()
      local wanting = {}
      for _, n in ipairs(p.names) do if p.env[n].requires_grad then wanting[#wanting + 1] = n end end
      if #wanting == 0 or not p.parameter then return nil end
      return statement(string.format("do w1.grad = nil; (%s):sum():backward(); local g = w1.grad; if g then "
        .. "sc.no_grad(function() w1:sub_(g * 0.125) end) end; w1.grad = nil end", pick(wanting))) end },
  }
end

--- The names a line reads.
local function reads_of(text)
  local found = {}
  for name in text:gmatch("%f[%w_]([asvw]%d+)%f[^%w_]") do found[name] = true end
  return found
end

-- ---------------------------------------------------------------- text and running

--- The whole program as Lua that returns the function, its captured state and a maker of arguments.
---@return string
function programs.text(p)
  local lines = { "local sc = require \"sconce\"", "local F = sc.functional", "sc.manual_seed(" .. p.seed .. ")" }
  for _, s in ipairs(p.state) do lines[#lines + 1] = string.format("local %s = %s", s.name, s.text) end
  lines[#lines + 1] = string.format("local function arguments() %s end", p.arguments)
  lines[#lines + 1] = "local function program(a1, a2)"
  for _, s in ipairs(p.steps) do lines[#lines + 1] = "  " .. s.line end
  local outs = {}
  local made = { a1 = true, a2 = true }
  for _, s in ipairs(p.state) do made[s.name] = true end
  for _, s in ipairs(p.steps) do if s.name then made[s.name] = true end end
  for _, name in ipairs(p.results) do if made[name] then outs[#outs + 1] = name end end
  lines[#lines + 1] = "  return " .. table.concat(outs, ", ")
  lines[#lines + 1] = "end"
  local names = {}
  for i, s in ipairs(p.state) do names[i] = s.name end
  lines[#lines + 1] = "return program, { " .. table.concat(names, ", ") .. " }, arguments"
  return table.concat(lines, "\n")
end

local function tensor_text(below)
  local shape = SHAPES[below(#SHAPES)]
  return string.format("sc.randn({ %s })%s", table.concat(shape, ", "), ({ "", "", "", ":to(\"float64\")", ":abs()" })[below(5)])
end

local VIEWS = { ":transpose(-1, -2)", ":reshape(-1)", ":unsqueeze(1)", ":detach()", "" }

--- Arguments that share nothing, or memory, or are views with gaps.
local ARGUMENTS = { "return %s, %s", "return %s, %s", "return %s, %s", "local x = %s return x, x",
  "local x = %s return x, x:transpose(-1, -2)",
  "local x = %s return x:reshape(-1), x", "local x = %s return x:transpose(-1, -2), x:detach()", "return %s:transpose(-1, -2), %s",
  "local x, y = %s, %s if y:dim() > 0 then y = y:select(-1, 1) end return x, y" }

--- A program of `n` steps grown from a seed.
function programs.grow(seed, n)
  local below = chooser(seed)
  local p = { seed = seed, steps = {}, state = {}, names = {}, env = setmetatable({ sc = sc, F = sc.functional }, { __index = _G }),
    results = {} }
  repeat p.arguments = string.format(ARGUMENTS[below(#ARGUMENTS)], tensor_text(below), tensor_text(below))
  until pcall(load(p.arguments, "=program", "t", p.env))
  local function known(name, t)
    p.env[name] = t
    p.names[#p.names + 1] = name
  end
  for i = 1, below(3) do
    local text = i > 1 and below(3) == 1 and "s1" .. VIEWS[below(#VIEWS)] or tensor_text(below)
    p.state[i] = { name = "s" .. i, text = text }
  end
  if below(2) == 1 then
    p.parameter = true
    p.state[#p.state + 1] = { name = "w1", text = "sc.randn({ 4, 4 }):requires_grad_()" }
  end
  sc.manual_seed(seed)
  for _, s in ipairs(p.state) do
    local ok, t = pcall(load("return " .. s.text, "=program", "t", p.env))
    if not ok then
      s.text = "s1" -- it has no such view
      t = p.env.s1
    end
    known(s.name, t)
  end
  for i, t in ipairs { load(p.arguments, "=program", "t", p.env)() } do known("a" .. i, t) end
  local wheel = {}
  for name, m in pairs(makers(p, below)) do wheel[#wheel + 1] = { name = name, weight = m[1], make = m[2] } end
  table.sort(wheel, function(a, b) return a.name < b.name end)
  local total = 0
  for _, w in ipairs(wheel) do total = total + w.weight end
  local tries = 0
  while #p.steps < n and tries < 12 * n do
    tries = tries + 1
    local at, k = below(total), 1
    while at > wheel[k].weight do at, k = at - wheel[k].weight, k + 1 end
    local step = wheel[k].make()
    if step then
      local name = step.makes and "v" .. (#p.steps + 1) or nil
      local line = name and step.text:gsub("%%s", name) or step.text
      -- locals of one chunk would not be seen by the next, so that names are globals of the environment while it grows
      local ok, t = pcall(load((line:gsub("^local ([%w_]+) = (.*)$", "%1 = %2; return %1")), "=program", "t", p.env))
      for known_name, tensor in pairs(p.env) do -- a history would stay on what outlives the call
        if known_name:find("^[as]%d") and tensor.requires_grad then
          if not pcall(tensor.detach_, tensor) then tries = math.huge end -- a view: no further steps
          ok = false
        end
      end
      if ok and (not name or sc.is_tensor(t) and t:numel() <= 4000) then
        p.steps[#p.steps + 1] = { line = line, name = name, reads = reads_of(line) }
        if name then
          known(name, t)
          if below(3) == 1 or #p.steps >= n - 1 then p.results[#p.results + 1] = name end
        end
      end
    end
  end
  p.env, p.names = nil, nil -- only needed to grow it
  return p
end

--- The program without step k and whatever needs it.
function programs.without(p, k)
  local q, gone = setmetatable({ steps = {} }, { __index = p }), {}
  for i, s in ipairs(p.steps) do
    local drop = i == k
    for name in pairs(s.reads) do drop = drop or gone[name] and name ~= s.name end
    if drop then
      if s.name then gone[s.name] = true end
    else
      q.steps[#q.steps + 1] = s
    end
  end
  return q
end

--- The smallest program found for which fails(p) is still true.
function programs.shrink(p, fails)
  local again = true
  while again do
    again = false
    for k = #p.steps, 1, -1 do
      if p.steps[k] then
        local q = programs.without(p, k)
        if fails(q) then p, again = q, true end
      end
    end
    local results = p.results
    for k = #results, 1, -1 do
      local fewer = {}
      for i, r in ipairs(results) do if i ~= k then fewer[#fewer + 1] = r end end
      local q = setmetatable({ results = fewer }, { __index = p })
      if fails(q) then p, results, again = q, fewer, true end
    end
  end
  return p
end

--- Everything a tensor holds, as a string.
local function bytes(t)
  t = t:detach()
  return string.format("%s {%s} ", t.dtype, table.concat(t.shape, ", ")) .. t:contiguous():tostring_bytes()
end

--- Whether two such strings agree: in every bit but the sign of a NaN (which of two NaNs an operation hands on
--- is open), or nearly in a program with products of matrices, which sum in an order that depends
--- on how a matrix is laid out.
function programs.same(p, a, b)
  if a == b then return true end
  local near = programs.text(p):find("matmul", 1, true) and 1e-3 or 0
  local head, dtype = a:match("^(float(%d+) {[^}]*} )")
  if not head or b:sub(1, #head) ~= head or #a ~= #b or dtype == "16" then return false end
  local format, width = dtype == "32" and "<f" or "<d", tonumber(dtype) // 8
  for at = #head + 1, #a, width do
    local x, y = string.unpack(format, a, at), string.unpack(format, b, at)
    local close = x == y or x ~= x and y ~= y or near > 0 and math.abs(x - y) <= near * math.max(1, math.abs(x))
    if not close then return false end
  end
  return true
end

--- Runs it twice, `how(fn)` giving what to call instead of fn; returns a list of strings: results, arguments and state after each call.
function programs.run(p, how)
  local fn, state, arguments = assert(load(programs.text(p), "=program"))()
  local called = how(fn)
  local seen, labels = {}, {}
  for call = 1, 2 do
    sc.manual_seed(p.seed + call)
    local a1, a2 = arguments()
    local results = table.pack(called(a1, a2))
    local function see(label, t) seen[#seen + 1], labels[#labels + 1] = t, label end
    for i = 1, results.n do
      local r = results[i]
      see(string.format("call %d, result %d", call, i), sc.is_tensor(r) and bytes(r) or tostring(r))
    end
    see(string.format("call %d, a1", call), bytes(a1))
    see(string.format("call %d, a2", call), bytes(a2))
    for i, s in ipairs(state) do see(string.format("call %d, %s", call, p.state[i].name), bytes(s)) end
    see(string.format("call %d, the next random number", call), bytes(sc.rand(1)))
  end
  return seen, labels
end

return programs
