--- Normalisation. C: channels (dimension 2), N: batch.
--- Sources: Ioffe and Szegedy 2015 (batch), Ba et al. 2016 (layer), Wu and He 2018 (group), Ulyanov et al. 2016 (instance),
--- Zhang and Sennrich 2019 (root mean square).
local sc = require "sconce"
local fault = require "sconce.fault"
local layer = require "sconce.nn.layer"
local Parameter = require "sconce.nn.module".Parameter

local F = sc.functional
local L = {}

local function make_affine(self, shape, bias)
  self.weight = Parameter(sc.ones(shape))
  if bias ~= false then self.bias = Parameter(sc.zeros(shape)) end
end

local function make_running(self, n)
  self:register_buffer("running_mean", sc.zeros({ n }))
  self:register_buffer("running_var", sc.ones({ n }))
  self:register_buffer("num_batches_tracked", sc.zeros({}, { dtype = "int64" }))
end

local RANKS = { { 2, 3 }, { 4, 4 }, { 5, 5 } }

local function check_rank(self, x, low, high)
  fault.expect(self.__name, 1, "tensor", x)
  local d = x:dim()
  if d < low or d > high then
    local want = low == high and tostring(low) or ("%d or %d"):format(low, high)
    fault.raise(self.__name, "argument 1: expected %s dimensions, got shape {%s}", want, table.concat(x.shape, ", "))
  end
end

for n = 1, 3 do
  --- In training the batch's statistics normalise and are averaged into running_mean and running_var, which serve in eval.
  local name = ("BatchNorm%dd"):format(n)
  local Batch = layer(name, { "num_features:int", { "eps:number", 1e-5 }, { "momentum", 0.1 }, { "affine:boolean", true },
    { "track_running_stats:boolean", true } })
  L[name] = Batch
  function Batch:build(o)
    if o.affine then make_affine(self, { o.num_features }) end
    if o.track_running_stats then make_running(self, o.num_features) end
  end
  local low, high = RANKS[n][1], RANKS[n][2]
  function Batch:forward(x)
    check_rank(self, x, low, high)
    local mean, momentum = self.running_mean, self.momentum
    local batch = self.training or not mean
    if self.training and mean then
      self.num_batches_tracked:add_(1)
      if not momentum then momentum = 1 / self.num_batches_tracked:item() end -- false: the plain average so far
    end
    return F.batch_norm(x, mean, self.running_var, self.weight, self.bias, batch, momentum or 0.0, self.eps)
  end

  local iname = ("InstanceNorm%dd"):format(n)
  local Instance = layer(iname, { "num_features:int", { "eps:number", 1e-5 }, { "momentum:number", 0.1 }, { "affine:boolean", false },
    { "track_running_stats:boolean", false } })
  L[iname] = Instance
  function Instance:build(o)
    if o.affine then make_affine(self, { o.num_features }) end
    if o.track_running_stats then make_running(self, o.num_features) end
  end
  function Instance:forward(x)
    check_rank(self, x, n + 1, n + 2)
    local alone = x:dim() == n + 1
    if alone then x = x:unsqueeze(1) end
    local y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.training or not self.running_mean,
      self.momentum, self.eps)
    return alone and y:squeeze(1) or y
  end
end

local function shape_of(what, v)
  if type(v) == "number" then return { v } end
  if type(v) ~= "table" or #v == 0 then
    fault.raise(what, "normalized_shape: expected an integer or a list of them, got %s", fault.describe(v))
  end
  return v
end

--- Over the trailing dims `normalized_shape`.
L.LayerNorm = layer("LayerNorm", { "normalized_shape:sizes", { "eps:number", 1e-5 }, { "elementwise_affine:boolean", true },
  { "bias:boolean", true } })
function L.LayerNorm:build(o)
  rawset(self, "normalized_shape", shape_of("LayerNorm", o.normalized_shape))
  if o.elementwise_affine then make_affine(self, self.normalized_shape, o.bias) end
end
function L.LayerNorm:forward(x) return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps) end

--- x / √(mean x² + eps) · weight over the trailing dims. eps: the dtype's own unless given.
L.RMSNorm = layer("RMSNorm", { "normalized_shape:sizes", "eps:number?", { "elementwise_affine:boolean", true } })
function L.RMSNorm:build(o)
  rawset(self, "normalized_shape", shape_of("RMSNorm", o.normalized_shape))
  if o.elementwise_affine then self.weight = Parameter(sc.ones(self.normalized_shape)) end
end
function L.RMSNorm:forward(x) return F.rms_norm(x, self.normalized_shape, self.weight, self.eps) end

L.GroupNorm = layer("GroupNorm", { "num_groups:int", "num_channels:int", { "eps:number", 1e-5 }, { "affine:boolean", true } })
function L.GroupNorm:build(o)
  if o.num_groups < 1 or o.num_channels % o.num_groups ~= 0 then
    fault.raise("GroupNorm", "num_groups: %d does not divide num_channels, %d", o.num_groups, o.num_channels)
  end
  if o.affine then make_affine(self, { o.num_channels }) end
end
function L.GroupNorm:forward(x) return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps) end

--- Source: Krizhevsky et al. 2012, "ImageNet classification with deep convolutional neural networks", section 3.3.
L.LocalResponseNorm = layer("LocalResponseNorm", { "size:int", { "alpha:number", 1e-4 }, { "beta:number", 0.75 }, { "k:number", 1.0 } })
function L.LocalResponseNorm:forward(x) return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k) end

return L
