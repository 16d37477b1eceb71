--- Datasets: tensors side by side, and parts and chains of other datasets.
local sc = require "sconce"
local fault = require "sconce.fault"

local D = {}

--- The length of any dataset.
local function length(ds)
  local meta = getmetatable(ds)
  if type(ds) == "table" and type(ds.len) == "function" then return ds:len() end
  if type(ds) == "table" or (meta and meta.__len) then return #ds end
  fault.raise("data", "expected a dataset, got %s", fault.describe(ds))
end

--- Sample i of any dataset: its parts.
local function sample(ds, i)
  if type(ds) ~= "table" and not sc.is_tensor(ds) then fault.raise("data", "expected a dataset, got %s", fault.describe(ds)) end
  if type(ds) == "table" and type(ds.get) == "function" then return ds:get(i) end
  local s = ds[i]
  if type(s) == "table" and getmetatable(s) == nil and #s > 0 then return table.unpack(s) end
  return s
end

local function class(name)
  local C = { __name = name }
  C.__index = function(self, i) -- ds[i]: sample i as a table of its parts
    if math.type(i) ~= "integer" then return C[i] end
    if i == self:len() + 1 then return nil end -- where ipairs ends
    local parts = table.pack(self:get(i))
    parts.n = nil
    return parts
  end
  C.__tostring = function(self) return ("%s: %d samples"):format(name, self:len()) end
  C.__len = function(self) return self:len() end
  return setmetatable(C, { __call = function(_, ...)
    local self = setmetatable({}, C)
    self:init(...)
    return self
  end })
end

local function check_index(self, i)
  local n = self:len()
  if math.type(i) ~= "integer" or i < 1 or i > n then fault.raise(self.__name, "sample %s is out of range 1 … %d", tostring(i), n) end
end

--- Tensors whose first dimension counts samples.
D.TensorDataset = class("TensorDataset")
function D.TensorDataset:init(...)
  local tensors = { ... }
  if #tensors == 1 and type(tensors[1]) == "table" then tensors = tensors[1] end
  if #tensors == 0 then fault.raise("TensorDataset", "expected at least one tensor") end
  for i, t in ipairs(tensors) do
    if not sc.is_tensor(t) then fault.raise("TensorDataset", "argument %d: expected a tensor, got %s", i, fault.describe(t)) end
    if t:dim() == 0 then fault.raise("TensorDataset", "argument %d: a 0-dimensional tensor has no samples", i) end
    if t:size(1) ~= tensors[1]:size(1) then
      fault.raise("TensorDataset", "argument %d has %d samples, argument 1 has %d", i, t:size(1), tensors[1]:size(1))
    end
  end
  self.tensors = tensors
end
function D.TensorDataset:len() return self.tensors[1]:size(1) end
function D.TensorDataset:get(i)
  check_index(self, i)
  local out = {}
  for k, t in ipairs(self.tensors) do out[k] = t:select(1, i) end
  return table.unpack(out)
end
--- All samples of a list of numbers at once.
function D.TensorDataset:batch(indices)
  local first, n = indices[1], #indices
  local run = n > 0
  for k = 2, n do
    if indices[k] ~= first + k - 1 then run = false break end
  end
  local ids = not run and sc.tensor(indices, { dtype = "int64" })
  local out = {}
  for k, t in ipairs(self.tensors) do out[k] = run and t:narrow(1, first, n):clone() or t:index_select(1, ids) end
  return table.unpack(out)
end

--- The samples of a dataset that a list of numbers names.
D.Subset = class("Subset")
function D.Subset:init(ds, indices)
  if sc.is_tensor(indices) then indices = indices:totable() end
  if type(indices) ~= "table" then fault.raise("Subset", "argument 2 (indices): expected a list, got %s", fault.describe(indices)) end
  local n = length(ds)
  for k, i in ipairs(indices) do
    if math.type(i) ~= "integer" or i < 1 or i > n then fault.raise("Subset", "index %d: %s is out of range 1 … %d", k, tostring(i), n) end
  end
  self.dataset, self.indices = ds, indices
end
function D.Subset:len() return #self.indices end
function D.Subset:get(i)
  check_index(self, i)
  return sample(self.dataset, self.indices[i])
end

--- Datasets one after the other.
D.ConcatDataset = class("ConcatDataset")
function D.ConcatDataset:init(list)
  if type(list) ~= "table" or #list == 0 then fault.raise("ConcatDataset", "argument 1: expected a list of datasets, got %s",
    fault.describe(list)) end
  self.datasets, self.ends = list, {}
  local n = 0
  for k, ds in ipairs(list) do
    n = n + length(ds)
    self.ends[k] = n
  end
end
function D.ConcatDataset:len() return self.ends[#self.ends] end
function D.ConcatDataset:get(i)
  check_index(self, i)
  local k = 1
  while i > self.ends[k] do k = k + 1 end
  return sample(self.datasets[k], i - (self.ends[k - 1] or 0))
end

--- Splits a dataset at random into parts of these lengths (numbers of samples, or fractions that sum to 1).
---@param ds any
---@param lengths number[]
---@param options? { seed?: integer, generator?: userdata }
---@return table[] subsets
function D.random_split(ds, lengths, options)
  local n, sum, fractions = length(ds), 0, false
  fault.expect("random_split", "argument 2 (lengths)", "table", lengths)
  options = fault.expect("random_split", 3, "options", options) or {}
  for name in pairs(options) do
    if name ~= "seed" and name ~= "generator" then
      fault.raise("random_split", "there is no option %q; the options are seed, generator", tostring(name))
    end
  end
  for k, l in ipairs(lengths) do
    if type(l) ~= "number" or l ~= l or l < 0 then
      fault.raise("random_split", "argument 2 (lengths): number %d: expected a number from 0, got %s", k, fault.describe(l))
    end
    sum = sum + l
    fractions = fractions or math.type(l) == "float"
  end
  local sizes = table.move(lengths, 1, #lengths, 1, {})
  if fractions and math.abs(sum - 1) < 1e-6 then
    local given = 0
    for k, l in ipairs(lengths) do
      sizes[k] = math.floor(l * n)
      given = given + sizes[k]
    end
    local k = 1
    while given < n do
      sizes[k], given, k = sizes[k] + 1, given + 1, k % #sizes + 1
    end
  elseif sum ~= n then
    fault.raise("random_split", "the lengths sum to %s, the dataset has %d samples", tostring(sum), n)
  end
  local g = options.generator or options.seed and sc.Generator(options.seed)
  local order = sc.randperm(n, { dtype = "int64", generator = g }):totable()
  local out, at = {}, 0
  for k, size in ipairs(sizes) do
    out[k] = D.Subset(ds, table.move(order, at + 1, at + math.tointeger(size), 1, {}))
    at = at + math.tointeger(size)
  end
  return out
end

D.length, D.sample = length, sample
return D
