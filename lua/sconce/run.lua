--- What runs of built graphs and of compiled functions share: jobs, profiles, looking for NaN.
---
--- `install` gives a class these methods. The class has `_bind(self, ...)`, which turns a call's arguments into a plan, a list of its
--- inputs and a function that makes the call's results of the plan's; `last`, the plan used last; and `core`, the recorded graph.
local core = require "sconce.core"
local fault = require "sconce.fault"

local run = { classes = {} } -- classes: "graph", "run", "session", "job", "function" -> class, for the help

local NILS = {} -- fields that may be absent
for _, name in ipairs { "last", "core", "open", "gradients", "by_value", "dispatcher", "plain", "compiled", "known", "what", "check_nan", "values",
  "finish", "way", "signature", "differs", "actual", "instances", "names", "n", "plan", "inputs", "outputs", "recorded" } do NILS[name] = true end

--- A class of objects: a misspelt method or field is answered with the nearest ones.
---@param what string  # "a graph"
function run.class(what)
  local class = {}
  local short = what:match("%w+$")
  run.classes[short] = run.classes[short] or class
  function class.__index(_, name)
    local v = class[name]
    if v ~= nil or type(name) ~= "string" or name:sub(1, 1) == "_" or NILS[name] then return v end
    return require("sconce.help").missing(what, name, class)
  end
  return class
end

local Job = run.class("a job")

--- Runs for about so many microseconds, at least one step. The updates that the run makes are one step, the last.
---@param microseconds number
---@return boolean done
function Job:advance(microseconds)
  if self.state == "done" then return true end
  if self.state ~= "running" then fault.raise("job", "it was %s", self.state) end
  if type(microseconds) ~= "number" then fault.raise("advance", "argument 1 (microseconds): expected a number, got %s", fault.describe(microseconds)) end
  local ok, done = pcall(self.plan.advance, self.plan, microseconds, self.check_nan)
  if not ok then
    self.plan:cancel()
    self.state = "stopped by an error"
    error(done, 0)
  end
  if done then
    self.plan:finish(self.values)
    self.state = "done"
  end
  return done
end

--- What the call would have given; runs whatever is left of it.
function Job:result()
  if self.state == "running" then self:advance(math.huge) end
  if self.state ~= "done" then fault.raise("job", "it was %s", self.state) end
  return self.finish(self.values)
end

--- Gives it up: nothing that outlives the run has changed, unless it is done already.
function Job:cancel()
  if self.state == "running" then
    self.plan:cancel()
    self.state = "cancelled"
  end
end

--- A job that is forgotten, or goes out of scope, leaves its run free, unless that has another one by then.
local going_on = setmetatable({}, { __mode = "k" }) -- plan -> token of its job
function Job:__gc()
  if self.state == "running" and going_on[self.plan] == self._token then self:cancel() end
end
function Job:__close() self:cancel() end

function Job:__tostring() return "job (" .. self.state .. ")" end

--- A line of the script, or of the engine when no line is known.
local function place(node) return node.line and node.file .. ":" .. node.line or "?" end

--- Adds a step to the sum for its line, or its module.
local function add_up(sums, key, name, s)
  local at = sums[name]
  if not at then
    at = { [key] = name, ns = 0, bytes = 0, steps = 0 }
    sums[name] = at
    sums[#sums + 1] = at
  end
  at.ns, at.bytes, at.steps = at.ns + s.ns, at.bytes + s.bytes, at.steps + 1
end

--- What the latest call spent, by step, by line of the script, by module. A program's members are not kept apart: its last op stands for it.
local function profile_of(self)
  local nodes, list, lines, modules, total = self.core:nodes(), {}, {}, {}, 0
  for i, s in ipairs(self.last and self.last:steps() or {}) do
    local n = nodes[s.node] or {}
    list[i] = { op = n.op, line = place(n), module = n.module, backward = n.backward, ns = s.ns, bytes = s.bytes, node = s.node }
    add_up(lines, "line", place(n), s)
    if n.module then add_up(modules, "module", n.module, s) end
    total = total + s.ns
  end
  local function sorted(sums)
    local out = table.move(sums, 1, #sums, 1, {})
    table.sort(out, function(a, b) return a.ns > b.ns end)
    return out
  end
  return { steps = list, lines = sorted(lines), modules = sorted(modules), ns = total }
end

local function text_of(profile)
  local out = { string.format("%.1f us in %d steps", profile.ns / 1000, #profile.steps) }
  for _, list in ipairs { profile.lines, profile.modules } do
    for _, l in ipairs(list) do
      out[#out + 1] = string.format("%10.1f us %5.1f %% %12d bytes  %s", l.ns / 1000, 100 * l.ns / math.max(1, profile.ns), l.bytes,
        l.line or "in " .. l.module)
    end
  end
  return table.concat(out, "\n")
end

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\" }
local function quoted(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return ESCAPES[c] or string.format("\\u%04x", c:byte()) end) .. '"'
end

--- Chrome's viewer of traces reads this.
local function write_trace(profile, path)
  local events, at = {}, 0
  for i, s in ipairs(profile.steps) do
    events[i] = string.format('{"name":%s,"ph":"X","pid":1,"tid":1,"ts":%.3f,"dur":%.3f,"args":{"line":%s,"module":%s,"bytes":%d}}',
      quoted(s.op or "?"), at / 1000, s.ns / 1000, quoted(s.line), quoted(s.module or ""), s.bytes)
    at = at + s.ns
  end
  if type(path) ~= "string" then fault.raise("profile", "option trace: expected a path, got %s", fault.describe(path)) end
  local file, why = io.open(path, "w")
  local ok = file
  if file then ok, why = file:write("[", table.concat(events, ",\n"), "]\n") end
  if file then
    local closed, problem = file:close()
    if ok and not closed then ok, why = nil, problem end
  end
  if not ok then fault.raise("profile", "option trace: %s", why) end
end

--- Runs a plan step by step: before(step), after(step) are told each step's number in `steps`.
function run.walk(plan, inputs, before, after)
  local values
  local function steps() -- made before the run starts: whatever fails after that cancels it
    local last = #plan:steps()
    local done = last == 0 and plan:advance(0)
    while not done do
      local at = plan:at()
      if before then before(at) end
      done = plan:advance(-1)
      if after then after(at) end
    end
    return plan:finish(values)
  end
  values = plan:start(table.unpack(inputs, 1, inputs.n or #inputs))
  local ok, results = pcall(steps)
  if ok then return results end
  plan:cancel()
  error(results, 0)
end

--- Whether a node is of that place: "train.lua:42", a module's path, or "*" for any.
local function is_at(node, where)
  return where == "*" or node.module == where or node.line and (node.file .. ":" .. node.line):sub(-#where) == where
    and not (node.file .. ":" .. node.line):sub(1, -#where - 1):find("[%w_]$")
end

--- Refuses a place that no op was recorded at, saying which there are.
local function check_place(self, where)
  local lines, known, modules = {}, {}, {}
  local file = where:match("^(.*):%d+$")
  if where == "*" then return end
  for _, node in ipairs(self.core:nodes()) do
    if is_at(node, where) then return end
    local key = node.line and file and (node.file:sub(-#file) == file and node.file:match("[^/]*$") .. ":" .. node.line)
    if key and not known[key] then
      known[key] = true
      lines[#lines + 1] = key
    end
    if node.module then modules[node.module] = true end
  end
  local near = file and lines or require("sconce.help").nearest(where, modules)
  fault.raise("break_at", "no op was recorded at %q%s", where, #near > 0 and "; there are some at " .. table.concat(near, ", ", 1,
    math.min(#near, 12)) or "")
end

local function breaking(self, ...)
  local _, inputs, finish = self:_bind(...)
  local unfused, nodes = self.core:plan(0), self.core:nodes()
  local steps = unfused:steps()
  local stepping -- the function that asked to see the next op as well
  return finish(run.walk(unfused, inputs, function(at)
    local node = nodes[steps[at].node]
    local called = stepping
    for where, fn in pairs(self._breaks) do
      if is_at(node, where) then called = fn end
    end
    stepping = called and called(node, unfused:peek(at)) == "step" and called or nil
  end))
end

--- Passes in the order in which they run, the recording first: { name =, mask = with all passes so far on }. Those that are off are left out.
---@param options { passes?: any, exact?: boolean }
function run.passes(options)
  local all = core.pass_mask(options.passes, options.exact)
  local list, mask = { { name = "recorded", mask = 0 } }, all
  for _, p in ipairs(core.passes()) do mask = mask & ~p.bit end -- what is left says how they work
  for _, p in ipairs(core.passes()) do
    if all & p.bit ~= 0 then
      mask = mask | p.bit
      list[#list + 1] = { name = p.name, mask = mask }
    end
  end
  return list
end

--- Calls go step by step when somebody looks on, and by way of Lua (csrc/lua/compiled.c has no eye for that).
local function look_on(self)
  self._watched = self._profiled or self._check_nan or self._breaks and next(self._breaks)
  if self.dispatcher and self.plain then core.indirect(self.dispatcher, self, self._watched and true or false) end
end

--- Gives `class` the methods.
function run.install(class)
  --- A job: the call, to be run in slices of time. One at a time; clones have memory of their own.
  function class:start(...)
    if self._breaks and next(self._breaks) then
      local results = table.pack(breaking(self, ...))
      return setmetatable({ finish = function() return table.unpack(results, 1, results.n) end, state = "done" }, Job)
    end
    local plan, inputs, finish = self:_bind(...)
    local job = setmetatable({ plan = plan, finish = finish, state = "waiting", values = false, check_nan = self._check_nan, _token = {} }, Job)
    going_on[plan] = going_on[plan] or false -- from the start on nothing asks for memory, so that the job knows that it runs
    job.values = plan:start(table.unpack(inputs, 1, inputs.n or #inputs))
    going_on[plan], job.state = job._token, "running"
    return job
  end

  --- Times every step of the calls that follow (`false` stops that); without an argument, the latest call's: a table with `steps`,
  --- `lines` and `modules` (by the script's line, by module, most expensive first) and `ns`, which prints as a list. { trace = path } writes
  --- it for Chrome's viewer.
  ---@param options? boolean|{ trace: string }
  function class:profile(options)
    if type(options) == "boolean" then
      self._profiled = options or nil
      look_on(self)
      return nil
    end
    fault.expect("profile", 1, "options", options)
    if not self.last then fault.raise("profile", "there was no call yet; run:profile(true) times those that follow") end
    local profile = setmetatable(profile_of(self), { __tostring = text_of })
    if options and options.trace then write_trace(profile, options.trace) end
    return profile
  end

  --- Makes the calls that follow stop with an error at the first result that holds NaN, naming its op and the script's line.
  function class:check_nan(on)
    self._check_nan = on or nil
    look_on(self)
  end

  --- Calls fn(node, inputs) before every recorded op of a line ("train.lua:42"), a module ("fc1") or all of them ("*") in the calls that
  --- follow, which run op by op as recorded; inputs are copies. When fn returns "step" it is called before the next op as well, wherever that is. Without fn,
  --- the place is forgotten.
  ---@param where string
  ---@param fn? fun(node: table, inputs: table): string?
  function class:break_at(where, fn)
    if type(where) ~= "string" then
      fault.raise("break_at", "argument 1: expected a string such as \"train.lua:42\", got %s", fault.describe(where))
    end
    if fn ~= nil then fault.expect("break_at", 2, "function", fn) end
    if fn and self.core then check_place(self, where) end
    self._breaks = self._breaks or {}
    self._breaks[where] = fn
    look_on(self)
  end

  --- Writes the graph, with its tensors as they are now, as an ONNX model: see Graph:save.
  function class:save(path, options) return self.graph:save(path, options) end

  --- Bytes of the arena, for the sizes seen last.
  function class:bytes() return self.last and self.last:stats().bytes or 0 end

  --- { nodes =, steps =, bytes =, passes = a list of { name =, nodes =, steps =, bytes = }: as recorded, and after each pass that is on }.
  function class:stats()
    if not self.last then return {} end
    local stats = self.last:stats()
    stats.passes = {}
    for i, p in ipairs(run.passes(self.options)) do
      stats.passes[i] = self.core:plan(p.mask):stats()
      stats.passes[i].name = p.name
    end
    return stats
  end
end

return run
