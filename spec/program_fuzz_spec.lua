--- Random programs run line by line and compiled: as many as SCONCE_PROGRAMS says, a few hundred otherwise; SCONCE_SEED is the first.
local sc = require "sconce"
local core = require "sconce.core"
local programs = require "spec.support.programs"

--- Ways to run a program, besides calling it. The plain executor comes from the compiled function's own graph.
local WAYS = {
  { "compiled", function(fn) return sc.compile(fn, { exact = true }) end },
  { "without passes", function(fn) return sc.compile(fn, { passes = 0 }) end },
  { "only common subexpressions", function(fn) return sc.compile(fn, { passes = 1 }) end },
  { "only dead nodes", function(fn) return sc.compile(fn, { passes = 2 }) end },
  { "in slices", function(fn)
    local compiled = sc.compile(fn, { exact = true })
    return function(...) return compiled:run_for(...):clone():start(...):result() end
  end },
  { "op by op", function(fn)
    local compiled = sc.compile(fn, { exact = true })
    return function(...)
      local run = compiled:run_for(...)
      run:break_at("*", function() end)
      return run(...)
    end
  end },
  { "only fusion", function(fn) return sc.compile(fn, { passes = 4 }) end },
}

for _, p in ipairs(core.passes()) do
  WAYS[#WAYS + 1] = { "without " .. p.name, function(fn) return sc.compile(fn, { passes = { [p.name] = false }, exact = true }) end }
  WAYS[#WAYS + 1] = { "only " .. p.name, function(fn) return sc.compile(fn, { passes = { p.name }, exact = true }) end }
end

local function difference(p, way)
  local ok, want, labels = pcall(programs.run, p, function(fn) return fn end)
  if not ok then return nil end -- shrinking made something that does not run at all
  local fine, got = pcall(programs.run, p, way[2])
  if not fine then return "raises " .. tostring(got) end
  for i = 1, #want do
    if not programs.same(p, want[i], got[i]) then return labels[i] .. " differs" end
  end
end

local function check(seed, every)
  local p = programs.grow(seed, 5 + seed * 7 % 56)
  for i, way in ipairs(WAYS) do -- a third of the ways for each program, unless it is to be all of them
    local what = (every or i == 1 or (i + seed) % 3 == 0) and difference(p, way)
    if what then
      local small = programs.shrink(p, function(q) return difference(q, way) ~= nil end)
      error(string.format("program %d, %s: %s\n%s", seed, way[1], difference(small, way), programs.text(small)), 0)
    end
  end
end

describe("random programs", function()
  setup(function() core.check_graphs(true) end)
  teardown(function() core.check_graphs(false) end)

  it("give the same bits run line by line and compiled, whatever passes are on", function()
    local first = tonumber(os.getenv("SCONCE_SEED") or 1)
    for seed = first, first + tonumber(os.getenv("SCONCE_PROGRAMS") or 200) - 1 do check(seed) end
  end)

  it("do so by the thousands #slow", function()
    for seed = 100001, 105000 do check(seed, true) end
  end)

  it("do so by further thousands #slow #second", function() -- `make test` runs these beside the others
    for seed = 105001, 110000 do check(seed, true) end
  end)
end)
