--- DataLoader: a dataset in batches. `for x, t in loader do` starts an epoch; leaving the loop early ends it.
---
--- The order of an epoch follows from one number, drawn when the epoch begins: from `seed` and the epoch's number, from `generator`, or
--- from the global generator. So the state is a few numbers, and a loader that takes over a state hands out the rest of the epoch in the
--- same order.
local sc = require "sconce"
local fault = require "sconce.fault"
local dataset = require "sconce.data.dataset"

--- A dataset in batches: `for x, t in loader do … end` goes through one epoch. dataset: a TensorDataset, or anything with len() and get(i).
--- shuffle: another order every epoch, which seed or generator decide. drop_last: no smaller batch at the end.
--- collate_fn(samples): makes a batch of a list of samples, each a list of its parts. sampler: a list of sample numbers.
local Loader = { __name = "DataLoader" }
Loader.__index = Loader

local read = fault.reader("DataLoader", { "dataset", { "batch_size:int", 1 }, { "shuffle:boolean", false }, "seed:int?", "generator?",
  { "drop_last:boolean", false }, "collate_fn?", "sampler?" })

--- Samples' k-th parts as one value: tensors stacked, numbers as a tensor, tables part by part, anything else as a list.
local function join(values)
  local v = values[1]
  if sc.is_tensor(v) then return sc.stack(values, 1) end
  if type(v) == "number" or type(v) == "boolean" then return sc.tensor(values) end
  if type(v) == "table" and getmetatable(v) == nil then
    local out = {}
    for key in pairs(v) do
      local column = {}
      for i, s in ipairs(values) do column[i] = s[key] end
      out[key] = join(column)
    end
    return out
  end
  return values
end

local function collate(samples)
  local columns = {}
  for k = 1, samples[1].n do
    local values = {}
    for i, s in ipairs(samples) do values[i] = s[k] end
    columns[k] = join(values)
  end
  return table.unpack(columns, 1, samples[1].n)
end

setmetatable(Loader, { __index = function(_, name)
  if math.type(name) == "integer" then fault.raise("DataLoader", "batches are not numbered; write for x, t in loader do … end") end
end, __call = function(_, ...)
  local self = setmetatable(read(...), Loader)
  if self.batch_size < 1 then fault.raise("DataLoader", "batch_size: expected a positive integer, got %d", self.batch_size) end
  self.n = self.sampler and #self.sampler or dataset.length(self.dataset)
  self.epoch, self.position, self.resumed = 0, 0, false     -- position: batches handed out in this epoch
  return self
end })

--- Batches in an epoch.
function Loader:__len()
  return self.drop_last and self.n // self.batch_size or (self.n + self.batch_size - 1) // self.batch_size
end

local function draw(self)
  if self.seed then return self.seed * 1000003 + self.epoch & 0x7fffffffffff end
  return sc.randint(0, 1 << 40, { 1 }, { dtype = "int64", generator = self.generator }):item()
end

--- The order of the current epoch.
local function arrange(self)
  if self.sampler then self.order = self.sampler
  elseif self.shuffle then
    self.order = sc.randperm(self.n, { dtype = "int64", generator = sc.Generator(self.epoch_seed) }):totable()
  else self.order = nil end
end

local function begin(self)
  if self.resumed then
    self.resumed = false
  else
    self.epoch, self.position = self.epoch + 1, 0
    self.epoch_seed = self.shuffle and not self.sampler and draw(self) or 0
  end
  arrange(self)
end

function Loader:__tostring()
  return ("DataLoader: %d samples in %d batches of %d%s"):format(self.n, #self, self.batch_size, self.shuffle and ", shuffled" or "")
end

-- `for x, t in loader() do` and `in pairs(loader)` are what people write as well.
function Loader:__pairs() return self end

--- The next batch's parts, nothing at the end.
function Loader:__call(...)
  if select("#", ...) == 0 then return self end
  if select(2, ...) == nil then begin(self) end
  if self.position >= #self then return nil end
  local first = self.position * self.batch_size
  local last = math.min(first + self.batch_size, self.n)
  self.position = self.position + 1
  local indices = {}
  for i = first + 1, last do indices[#indices + 1] = self.order and self.order[i] or i end
  local ds = self.dataset
  if type(ds) == "table" and type(ds.batch) == "function" and not self.collate_fn then return ds:batch(indices) end
  local samples = {}
  for k, i in ipairs(indices) do samples[k] = table.pack(dataset.sample(ds, i)) end
  if self.collate_fn then return self.collate_fn(samples) end
  return collate(samples)
end

--- Where the loader stands: numbers only.
function Loader:state_dict()
  return { epoch = self.epoch, position = self.position, epoch_seed = self.epoch_seed or 0, seed = self.seed, batch_size = self.batch_size,
    length = self.n }
end

--- The next loop goes on where the state was taken: with the batch after the last one handed out then, or with a new epoch when
--- that was the last.
function Loader:load_state_dict(sd)
  if type(sd) ~= "table" or not sd.epoch then fault.raise("DataLoader", "load_state_dict: expected a state, got %s", fault.describe(sd)) end
  if sd.batch_size ~= self.batch_size or sd.length ~= self.n then
    fault.raise("DataLoader", "load_state_dict: the state is of %d samples in batches of %d, the loader has %d in batches of %d", sd.length,
      sd.batch_size, self.n, self.batch_size)
  end
  self.epoch, self.position, self.epoch_seed, self.seed = sd.epoch, sd.position, sd.epoch_seed, sd.seed
  self.resumed = sd.epoch > 0 and sd.position < #self
end

return Loader
