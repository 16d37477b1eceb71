--- Timing: a workload is called in batches of at least a millisecond, after a warm-up, for a budget of seconds; the figure is the
--- median time of a call. Lines go out as JSON, one a workload, in the same form as the peers'.
local harness = {}

local clock = os.clock -- CPU time: a preempted sample does not count against us

--- Seconds of one call of fn: the median over batches.
---@param fn function
---@param budget number  # seconds
---@return number seconds
function harness.time(fn, budget)
  fn()
  local n = 1
  local warm = clock() + math.min(0.2, budget)
  while true do
    local t0 = clock()
    for _ = 1, n do fn() end
    local dt = clock() - t0
    if dt >= 1e-3 and clock() >= warm then break end
    if dt < 1e-3 then n = math.max(n + 1, math.floor(n * math.min(10, 1.2e-3 / math.max(dt, 1e-7)))) end
  end
  local samples, stop = {}, clock() + budget
  repeat
    local t0 = clock()
    for _ = 1, n do fn() end
    samples[#samples + 1] = (clock() - t0) / n
  until clock() >= stop and #samples >= 5
  table.sort(samples)
  return samples[#samples // 2 + 1]
end

--- Whether a name holds one of the words of "word|word".
local function chosen(name, words)
  if words == "" then return true end
  for word in words:gmatch("[^|]+") do
    if name:find(word, 1, true) then return true end
  end
  return false
end

--- Runs what matches `pattern` of a list of { name, make, per = } and prints a line each; `make` gives the function to time.
function harness.run(peer, list, budget, pattern)
  for _, w in ipairs(list) do
    if chosen(w[1], pattern or "") then
      local ok, result = pcall(function() return harness.time(w[2](), budget) end)
      if ok then
        print(string.format('{"peer":"%s","workload":"%s","seconds":%.6g}', peer, w[1], result / (w.per or 1)))
      else
        print(string.format('{"peer":"%s","workload":"%s","error":%q}', peer, w[1], tostring(result):sub(1, 150)))
      end
      io.stdout:flush()
      collectgarbage()
    end
  end
end

return harness
