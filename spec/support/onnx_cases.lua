--- Runs folders of ONNX cases: a model and stored inputs and outputs.
---
---     lua5.4 spec/support/onnx_cases.lua FOLDER [-v] [name pattern]
---
--- FOLDER holds cases `<name>/model.onnx` with `<name>/test_data_set_<k>/input_<i>.pb` and `output_<i>.pb` (TensorProtos). An output
--- passes when its shape and dtype are equal and |got - want| <= 1e-7 + 1e-3 |want|, NaN equal to NaN.
local sc = require "sconce"
local core = require "sconce.core"

local cases = {}

local function exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end

local function flat(t)
  local n = t:numel()
  if t.dtype ~= "float64" and t.dtype:find "float" or t.dtype:find "int[24]$" then t = t:to("float32") end
  return n == 0 and {} or t:reshape { n }:totable()
end

function cases.same(got, want, rtol, atol)
  if not core.is_tensor(got) then return false, "nothing came" end
  if got.dtype ~= want.dtype then return false, "dtype " .. got.dtype .. ", expected " .. want.dtype end
  local p, q = table.concat(got.shape, ","), table.concat(want.shape, ",")
  if p ~= q then return false, "shape {" .. p .. "}, expected {" .. q .. "}" end
  local g, w = flat(got), flat(want)
  for i = 1, #w do
    local a, b = g[i], w[i]
    local ok = a == b or (a ~= a and b ~= b) or (type(a) == "number" and math.abs(a - b) <= atol + rtol * math.abs(b))
    if not ok then return false, string.format("element %d: %s, expected %s", i - 1, tostring(a), tostring(b)) end
  end
  return true
end

--- One case: true, or false and why.
function cases.run(folder, rtol, atol)
  local ok, run = pcall(sc.load_graph, folder .. "/model.onnx")
  if not ok then return false, run end
  for k = 0, 99 do
    local set = folder .. "/test_data_set_" .. k .. "/"
    if not exists(set .. "output_0.pb") then return k > 0, "no data" end
    local feeds = {}
    for i, input in ipairs(run.inputs) do
      local path = set .. "input_" .. (i - 1) .. ".pb"
      local fine, t = pcall(core.onnx_tensor, path)
      if not fine then return false, t end
      feeds[input.name] = t
    end
    local fine, results = pcall(run, feeds)
    if not fine then return false, results end
    for i, output in ipairs(run.outputs) do
      local path = set .. "output_" .. (i - 1) .. ".pb"
      if exists(path) then
        local read, want = pcall(core.onnx_tensor, path)
        if not read then return false, want end
        local same, why = cases.same(results[output.name], want, rtol or 1e-3, atol or 1e-7)
        if not same then return false, "output " .. output.name .. ": " .. why end
      end
    end
  end
  return true
end

if arg and arg[0] and arg[0]:find("onnx_cases.lua", 1, true) then
  local folder, verbose, pattern = arg[1], arg[2] == "-v", arg[arg[2] == "-v" and 3 or 2]
  local list, passed, failed, missing = io.popen("ls '" .. folder .. "'"), 0, 0, 0
  for name in list:lines() do
    if exists(folder .. "/" .. name .. "/model.onnx") and (not pattern or name:find(pattern)) then
      local ok, why = cases.run(folder .. "/" .. name)
      if ok then passed = passed + 1
      elseif tostring(why):find("not supported") then missing = missing + 1 else failed = failed + 1 end
      if verbose and not ok then print("FAIL " .. name .. ": " .. tostring(why)) end
    end
  end
  list:close()
  print(string.format("%d passed, %d failed, %d not supported", passed, failed, missing))
end

return cases
