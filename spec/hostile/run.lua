-- Replays scenarios with the n-th allocation refused, for n = 1, 2, … until one goes through untouched: the engine's allocations
-- first, then those of the Lua state. Each try must end with the right result or with a Lua error, leave the inputs, the gradient
-- mode and the random numbers as they were, and leave no block behind; then the scenario must work again. After that each scenario
-- runs with memory that was filled with other patterns, and with a collector that runs at every op and at every request of Lua's.
-- `make hostile` builds for it; arguments are patterns of scenario names. HOSTILE_ONLY=engine|lua|fill|collect chooses a part.
-- luacheck: ignore 311 (names are emptied for the collector)
local sc = require "sconce"
local core = require "sconce.core"
if not core.hostile then error("this is not the hostile build: run `make hostile`") end

local GROUPS = { "scenarios", "graphs", "modules" }
local ops = require "spec.hostile.ops"

local function collect() collectgarbage() collectgarbage() end

local function values(v)
  if core.is_tensor(v) then return v.dtype .. table.concat(v.shape, ",") .. v:detach():contiguous():tostring_bytes() end
  if type(v) ~= "table" then return tostring(v) end
  local keys, out = {}, {}
  for k in pairs(v) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i, k in ipairs(keys) do out[i] = tostring(k) .. "=" .. values(v[k]) end
  return table.concat(out, ";")
end

local function digest(inputs)
  local rng = sc.get_rng_state()
  local list = { tostring(sc.is_grad_enabled()), values(rng) }
  local function add(t)
    if core.is_tensor(t) then
      list[#list + 1] = values(t) .. "|" .. tostring(t.requires_grad) .. tostring(t.grad and values(t.grad))
    elseif type(t) == "table" and not getmetatable(t) then
      local keys = {}
      for k in pairs(t) do keys[#keys + 1] = k end
      table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
      for _, k in ipairs(keys) do add(t[k]) end
    end
  end
  add(inputs)
  return table.concat(list, "|")
end

local OFF = { fail_at = 0, lua_fail_at = 0 }
local TRIES, MESSAGE = 20000, "not enough memory"
local failures, passed = 0, 0

local function complain(name, n, text)
  failures = failures + 1
  print(("FAIL %s, allocation %d refused: %s"):format(name, n, text))
end

-- A refusal is tried once more after a collection: refuse both, or every one from then on.
local KINDS = {
  engine = { fail_at = "fail_at", times = "times", refused = "refused", says = "" },
  lua = { fail_at = "lua_fail_at", times = "lua_times", refused = "lua_refused", says = " of Lua's" },
}

--- Blocks after the n-th allocation was refused twice, and after three more tries.
local function stays(scenario, how, n, times)
  local function try(k)
    for _ = 1, k do
      local inputs = scenario.make()
      core.hostile { [how.fail_at] = n, [how.times] = times }
      pcall(scenario.run, inputs)
      core.hostile(OFF)
    end
    collect()
    return core.hostile().blocks
  end
  return try(2), try(3)
end

--- One scenario: make() returns named inputs, run(inputs) a result. `torn`: a failure may leave the inputs half changed.
local function replay(name, scenario, kind, times)
  local how = KINDS[kind]
  name = name .. (times > 2 and " (for ever)" or "") .. how.says
  sc.manual_seed(7)
  local inputs = scenario.make()
  sc.manual_seed(11)
  local ok, right = pcall(scenario.run, inputs)
  if not ok then complain(name, 0, tostring(right)) return end
  right = values(right)
  inputs = scenario.make()
  pcall(scenario.run, inputs)                                   -- caches warm: formulas compiled, names interned
  inputs = nil
  collect()
  local blocks = core.hostile().blocks
  local n = 1
  while n <= TRIES do
    sc.manual_seed(7)
    inputs = scenario.make()
    sc.manual_seed(11)
    collect()
    local before = digest(inputs)
    collect()
    core.hostile { [how.fail_at] = n, [how.times] = times }
    local good, result = pcall(scenario.run, inputs)
    core.hostile(OFF)
    local refused = core.hostile()[how.refused]
    if good then
      local got = values(result)
      if got ~= right then return complain(name, n, "another result") end
    elseif not tostring(result):find(MESSAGE, 1, true) then
      return complain(name, n, "another error: " .. tostring(result))
    else
      result = nil
      if not scenario.torn and digest(inputs) ~= before then return complain(name, n, "something has changed") end
      if scenario.torn then inputs = scenario.make() end
      sc.manual_seed(11)                                        -- the next call must be right
      local again, value = pcall(scenario.run, inputs)
      if not again or values(value) ~= right then return complain(name, n, "wrong afterwards: " .. tostring(value)) end
    end
    inputs, result = nil, nil
    collect()
    local now = core.hostile().blocks
    if now > blocks then                                        -- kept for the next call, or lost? What is lost adds up
      local first, last = stays(scenario, how, n, times)
      if last > first then return complain(name, n, (last - first) .. " blocks left behind by three tries") end
    end
    blocks = now
    if refused == 0 then passed = passed + 1 return end
    n = n + 1 + n // (scenario.every or 200)                    -- long scenarios: every one at first, then some
  end
  complain(name, TRIES, "still failing")
end

local function wanted(name)
  if #arg == 0 then return true end
  for _, pattern in ipairs(arg) do if name:find(pattern) then return true end end
  return false
end

--- The result under settings of the hostile build, to be compared.
local function result_under(s, settings, plain)
  sc.manual_seed(7)
  local inputs = s.make()
  sc.manual_seed(11)
  core.hostile(settings)
  local ok, r = pcall(s.run, inputs)
  core.hostile(plain)
  return ok and values(r) or tostring(r)
end

local parts = {}
function parts.engine(s)
  replay(s.name, s, "engine", 2)
  if s.forever ~= false then replay(s.name, s, "engine", 1 << 40) end
end

function parts.lua(s)
  replay(s.name, s, "lua", 2)
  if s.forever ~= false then replay(s.name, s, "lua", 1 << 40) end
end

-- Uninitialised memory: the same bits whatever memory was filled with.
function parts.fill(s)
  local seen = result_under(s, { fill = 0xde }, { fill = 0xde })
  for _, fill in ipairs { 0xff, 0x00 } do
    if result_under(s, { fill = fill }, { fill = 0xde }) ~= seen then return complain(s.name, 0, "the result depends on what memory held") end
  end
  passed = passed + 1
end

-- A full collection, with finalisers, at every op; one without them at requests of Lua's; and the collector's modes at their busiest.
function parts.collect(s)
  local seen = result_under(s, {}, {})
  local function check(what, settings, plain)
    local got = result_under(s, settings, plain)
    if got ~= seen then complain(s.name, 0, what .. ": another result: " .. (got:find("^[%g ]+$") and got or "")) return false end
    return true
  end
  local ok = check("collecting at every op", { collect = 1 }, { collect = 0 })
  ok = check("collecting at requests of Lua's", { collect_every = 7 }, { collect_every = 0 }) and ok
  collectgarbage("generational", 1, 1)
  ok = check("generational", {}, {}) and ok
  collectgarbage("incremental", 1, 1000, 1)
  ok = check("incremental", {}, {}) and ok
  collectgarbage("incremental", 200, 100, 13)
  collectgarbage("stop")
  ok = check("stopped", {}, {}) and ok
  collectgarbage("restart")
  if ok then passed = passed + 1 end
end

local all = {}
for _, group in ipairs(GROUPS) do
  for _, s in ipairs(require("spec.hostile." .. group)) do all[#all + 1] = s end
end
for _, s in ipairs(ops()) do all[#all + 1] = s end
local only = os.getenv("HOSTILE_ONLY")
for _, part in ipairs { "engine", "fill", "collect", "lua" } do
  for _, s in ipairs(all) do
    if wanted(s.name) and (not only or only == part) then parts[part](s) end
  end
end

print(("hostile: %d replays passed, %d failed"):format(passed, failures))
os.exit(failures == 0, true)
