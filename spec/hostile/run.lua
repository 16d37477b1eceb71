-- Replays scenarios with the n-th allocation of the engine refused, for n = 1, 2, … until one goes through untouched. Each try must
-- end with the right result or with a Lua error, leave the inputs, the gradient mode and the random numbers as they were, and leave
-- no block behind. `make hostile` builds for it; arguments are patterns of scenario names.
-- luacheck: ignore 311 (names are emptied for the collector)
local sc = require "sconce"
local core = require "sconce.core"
if not core.hostile then error("this is not the hostile build: run `make hostile`") end

local scenarios = require "spec.hostile.scenarios"
local ops = require "spec.hostile.ops"

local function collect() collectgarbage() collectgarbage() end

local function values(v)
  if core.is_tensor(v) then return v.dtype .. table.concat(v.shape, ",") .. v:contiguous():tostring_bytes() end
  if type(v) ~= "table" then return tostring(v) end
  local keys, out = {}, {}
  for k in pairs(v) do keys[#keys + 1] = k end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i, k in ipairs(keys) do out[i] = tostring(k) .. "=" .. values(v[k]) end
  return table.concat(out, ";")
end

local function digest(inputs)
  local rng = sc.get_rng_state()
  local s = values(inputs) .. "|" .. tostring(sc.is_grad_enabled()) .. "|" .. values(rng)
  for _, t in pairs(inputs) do
    if core.is_tensor(t) then s = s .. "|" .. tostring(t.requires_grad) .. tostring(t.grad and values(t.grad:detach())) end
  end
  return s
end

local TRIES, MESSAGE = 400, "not enough memory"
local failures, passed = 0, 0

local function complain(name, n, text)
  failures = failures + 1
  print(("FAIL %s, allocation %d refused: %s"):format(name, n, text))
end

--- One scenario: make() returns named inputs, run(inputs) a result. times: how many allocations in a row are refused.
local function replay(name, scenario, times)
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
  for n = 1, TRIES do
    sc.manual_seed(7)
    inputs = scenario.make()
    sc.manual_seed(11)
    collect()
    local before = digest(inputs)
    core.hostile { fail_at = n, times = times }
    local good, result = pcall(scenario.run, inputs)
    local refused = core.hostile().refused
    core.hostile { fail_at = 0 }
    if good then
      local got = values(result)
      if got ~= right then return complain(name, n, "another result") end
    elseif not tostring(result):find(MESSAGE, 1, true) then
      return complain(name, n, "another error: " .. tostring(result))
    else
      result = nil
      if digest(inputs) ~= before then return complain(name, n, "something has changed") end
      -- the next call must be right
      sc.manual_seed(11)
      local again, value = pcall(scenario.run, inputs)
      if not again or values(value) ~= right then return complain(name, n, "wrong afterwards: " .. tostring(value)) end
    end
    inputs, result = nil, nil
    collect()
    local now = core.hostile().blocks
    if now ~= blocks then return complain(name, n, (now - blocks) .. " blocks left behind") end
    if refused == 0 then passed = passed + 1 return end
  end
  complain(name, TRIES, "still failing")
end

local function wanted(name)
  if #arg == 0 then return true end
  for _, pattern in ipairs(arg) do if name:find(pattern) then return true end end
  return false
end

local all = {}
for _, s in ipairs(scenarios) do all[#all + 1] = s end
for _, s in ipairs(ops()) do all[#all + 1] = s end
local mode = os.getenv("HOSTILE_GC")
if mode == "generational" then collectgarbage("generational") end
if mode == "incremental" then collectgarbage("incremental", 0, 1000) end
for _, s in ipairs(all) do
  if wanted(s.name) then
    replay(s.name, s, 2)                                        -- a refusal is tried once more after a collection: refuse both
    if s.forever ~= false then replay(s.name .. " (for ever)", s, 1 << 40) end
  end
end

-- Uninitialised memory: the same bits whatever memory was filled with.
for _, s in ipairs(all) do
  if wanted(s.name) then
    local seen
    for _, fill in ipairs { 0xde, 0xff, 0x00 } do
      core.hostile { fill = fill }
      sc.manual_seed(7)
      local inputs = s.make()
      sc.manual_seed(11)
      local ok, r = pcall(s.run, inputs)
      r = ok and values(r) or tostring(r)
      if seen and seen ~= r then complain(s.name, 0, "the result depends on what memory held") break end
      seen = r
    end
    core.hostile { fill = 0xde }
  end
end

print(("hostile: %d replays passed, %d failed"):format(passed, failures))
os.exit(failures == 0, true)
