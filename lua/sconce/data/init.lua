--- data: datasets, batches, progress.
---   for x, t in sc.data.DataLoader(ds, { batch_size = 64, shuffle = true, seed = 1 }) do … end
---
--- A dataset is any table with a length (`#ds` or `ds:len()`) and `ds:get(i)`, i = 1 … length, which returns the sample's parts; one with
--- `ds:batch(indices)` (a list) hands out whole batches. A plain list of samples is a dataset too.
local data = {}

for name, member in pairs(require "sconce.data.dataset") do data[name] = member end
data.DataLoader = require "sconce.data.loader"
data.progress = require "sconce.data.progress"

return setmetatable(data, { __index = function(t, name) return require("sconce.help").missing("data", name, t) end })
