--- Runs sconce and PyTorch in turn and prints one table: ours, the peer's best setting, the ratio (median of the pairs).
--- Usage: lua5.4 bench/run.lua [pattern] [pairs] [budget]     Without python3-torch it prints our column alone.
--- Rows that end in `_compiled` are compared with PyTorch's row of the name before that. Inference is compared with ONNX Runtime where
--- SCONCE_ORT names a folder with node_modules/onnxruntime-node: its library is called from C, its models are exported by PyTorch.
--- Rows matmul_cblas_N are compared with OpenBLAS called from C (bench/peer_blas.c).
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

--- The command that runs ONNX Runtime's side; nil: it is not there, or PyTorch is not there to export the models.
local function prepare_ort()
  local folder = os.getenv("SCONCE_ORT")
  if not folder or not version then return nil end
  local find = io.popen(string.format("find '%s/node_modules/onnxruntime-node/bin' -path '*linux/x64/libonnxruntime.so*' | head -1", folder))
  local library = find:read("l")
  find:close()
  if not library then return nil end
  local work = folder .. "/sconce-bench"
  local here = io.popen("pwd"):read("l")
  local ok = os.execute(string.format("mkdir -p '%s' && cc -O2 bench/peer_ort.c -o '%s/peer_ort' -ldl -lm 2>/dev/null && { [ -f '%s/gpt_step.onnx' ] || "
    .. "%s -W ignore bench/peer_torch.py --export '%s' >/dev/null 2>&1; }", work, work, work, python, work))
  return ok and string.format("cd '%s' && ./peer_ort '%s' '%s/bench/ort_jobs.txt' '%s' %s", work, library, here, pattern, budget) or nil
end
local ort = prepare_ort()

--- The command that calls OpenBLAS from C; nil: it cannot be built here.
local function prepare_blas()
  local built = os.tmpname()
  if not os.execute(string.format("cc -O2 bench/peer_blas.c -o '%s' -lopenblas 2>/dev/null", built)) then return nil end
  return string.format("%s'%s' '%s' %s", ENV, built, pattern, budget), built
end
local blas, blas_built = prepare_blas()

local order, ours, peers, ratios, of = {}, {}, {}, {}, {}
for _ = 1, pairs_ do
  local a, b = {}, {}
  read(string.format("%slua5.4 bench/workloads.lua '%s' %s 1", ENV, pattern, budget), a, #order == 0 and order or nil)
  for _, setting in ipairs(version and PEERS or {}) do
    read(string.format("%s%s%s bench/peer_torch.py '%s' %s 1", ENV, setting, python, pattern:gsub("_compiled", ""), budget), b)
  end
  local c, d = {}, {}
  if ort then read(ort, c) end
  if blas then read(blas, d) end
  for name, s in pairs(a) do
    ours[name], peers[name], ratios[name] = ours[name] or {}, peers[name] or {}, ratios[name] or {}
    table.insert(ours[name], s)
    local peer = c[name] or d[name] or b[name] or b[name:gsub("_compiled$", "")]
    of[name] = c[name] and "ONNX Runtime" or d[name] and "OpenBLAS from C" or peer and "PyTorch"
    if peer then
      table.insert(peers[name], peer)
      table.insert(ratios[name], s / peer)
    end
  end
end
if blas_built then os.remove(blas_built) end

print(string.format("| workload | sconce | peer (%s%s) | | ratio |", version and "PyTorch " .. version or "PyTorch not installed",
  ort and ", ONNX Runtime" or ""))
print("|---|---|---|---|---|")
for _, name in ipairs(order) do
  local r = median(ratios[name])
  local ratio = r and string.format("%.2f", r) or ""
  print(string.format("| %s | %s | %s | %s | %s |", name, shown(median(ours[name])), shown(median(peers[name])), of[name] or "", ratio))
end
