--- Runs sconce and PyTorch in turn and prints one table: ours, the peer's best setting, the ratio (median of the pairs).
--- Usage: lua5.4 bench/run.lua [pattern] [pairs] [budget]     Without python3-torch it prints our column alone.
local pattern, pairs_, budget = arg[1] or "", tonumber(arg[2] or 5), arg[3] or "0.3"

local ENV = "env -u OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 "
--- PyTorch's settings: as it comes; with an allocator that keeps freed memory; with AVX-512 kernels as well.
local KEEP = "MALLOC_TRIM_THRESHOLD_=8000000000 MALLOC_MMAP_THRESHOLD_=8000000000 "
local PEERS = { "", KEEP, "ATEN_CPU_CAPABILITY=avx512 " .. KEEP }

local function read(command, into, order)
  local pipe = assert(io.popen(command .. " 2>/dev/null"))
  for line in pipe:lines() do
    local name, seconds = line:match('"workload": ?"([%w_]+)", ?"seconds": ?([%d.e+-]+)')
    if name then
      if order and not into[name] then order[#order + 1] = name end
      into[name] = math.min(into[name] or math.huge, tonumber(seconds))
    elseif line:find('"error"') then
      io.stderr:write(line, "\n")
    end
  end
  pipe:close()
end

local function median(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

local function shown(seconds)
  if not seconds then return "" end
  if seconds < 1e-6 then return string.format("%.0f ns", seconds * 1e9) end
  if seconds < 1e-3 then return string.format("%.3g us", seconds * 1e6) end
  return string.format("%.3g ms", seconds * 1e3)
end

local python = "/usr/bin/python3"
local probe = io.popen(python .. " -c 'import torch; print(torch.__version__)' 2>/dev/null")
local version = probe:read("l")
probe:close()

local order, ours, peers, ratios = {}, {}, {}, {}
for _ = 1, pairs_ do
  local a, b = {}, {}
  read(string.format("%slua5.4 bench/workloads.lua '%s' %s 1", ENV, pattern, budget), a, #order == 0 and order or nil)
  for _, setting in ipairs(version and PEERS or {}) do
    read(string.format("%s%s%s bench/peer_torch.py '%s' %s 1", ENV, setting, python, pattern, budget), b)
  end
  for name, s in pairs(a) do
    ours[name], peers[name], ratios[name] = ours[name] or {}, peers[name] or {}, ratios[name] or {}
    table.insert(ours[name], s)
    if b[name] then
      table.insert(peers[name], b[name])
      table.insert(ratios[name], s / b[name])
    end
  end
end

print(string.format("| workload | sconce | %s | ratio |", version and "PyTorch " .. version or "PyTorch (not installed)"))
print("|---|---|---|---|")
for _, name in ipairs(order) do
  local r = median(ratios[name])
  local ratio = r and string.format("%.2f", r) or ""
  print(string.format("| %s | %s | %s | %s |", name, shown(median(ours[name])), shown(median(peers[name])), ratio))
end
