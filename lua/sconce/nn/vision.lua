--- Layers that move pixels: padding, upsampling, shuffling; and distances between vectors.
local sc = require "sconce"
local fault = require "sconce.fault"
local layer = require "sconce.nn.layer"

local F = sc.functional
local L = {}

for n = 1, 3 do
  for name, mode in pairs { ZeroPad = "constant", ConstantPad = "constant", ReflectionPad = "reflect", ReplicationPad = "replicate",
    CircularPad = "circular" } do
    local full = ("%s%dd"):format(name, n)
    local C = layer(full, name == "ConstantPad" and { "padding", "value:number" } or { "padding" })
    C._of = "pad" -- for the help
    L[full] = C
    --- padding: a number for all sides, or {left, right, top, bottom, …}, the last dimension first.
    function C:build(o) rawset(self, "padding", layer.ntuple(full, "padding", o.padding, 2 * n)) end
    function C:forward(x)
      if mode == "constant" then return F.pad(x, self.padding, mode, self.value or 0.0) end
      return F.pad(x, self.padding, mode)
    end
  end
end

--- Resizes [N, C, …]: mode nearest, linear, bilinear, bicubic, trilinear.
L.Upsample = layer("Upsample", { "size:sizes?", "scale_factor?", { "mode:string", "nearest" }, "align_corners:boolean?" })
function L.Upsample:forward(x)
  return F.interpolate(x, { size = self.size, scale_factor = self.scale_factor, mode = self.mode, align_corners = self.align_corners })
end
--- Resizes [N, C, H, W] by repeating the nearest element.
L.UpsamplingNearest2d = layer("UpsamplingNearest2d", { "size:sizes?", "scale_factor?" })
function L.UpsamplingNearest2d:forward(x) return F.interpolate(x, { size = self.size, scale_factor = self.scale_factor, mode =
  "nearest" }) end
--- Resizes [N, C, H, W] bilinearly, corners on corners.
L.UpsamplingBilinear2d = layer("UpsamplingBilinear2d", { "size:sizes?", "scale_factor?" })
function L.UpsamplingBilinear2d:forward(x)
  return F.interpolate(x, { size = self.size, scale_factor = self.scale_factor, mode = "bilinear", align_corners = true })
end

--- [N, C r², H, W] -> [N, C, H r, W r] and back.
L.PixelShuffle = layer("PixelShuffle", { "upscale_factor:int" })
function L.PixelShuffle:forward(x) return F.pixel_shuffle(x, self.upscale_factor) end
L.PixelUnshuffle = layer("PixelUnshuffle", { "downscale_factor:int" })
function L.PixelUnshuffle:forward(x) return F.pixel_unshuffle(x, self.downscale_factor) end
L.ChannelShuffle = layer("ChannelShuffle", { "groups:int" })
--- Channel c of group g goes to place (c - 1) · groups + g. Source: Zhang et al. 2018, "ShuffleNet".
function L.ChannelShuffle:forward(x)
  fault.expect("ChannelShuffle", 1, "tensor", x)
  local size, g = x.shape, self.groups
  if g < 1 or #size < 2 or size[2] % g ~= 0 then
    fault.raise("ChannelShuffle", "groups: %d does not divide the channels of shape {%s}", g, table.concat(size, ", "))
  end
  local split = table.move(size, 3, #size, 4, { size[1], g, size[2] // g })
  return x:reshape(split):transpose(2, 3):reshape(size)
end

--- Patches as columns, and columns added back.
L.Unfold = layer("Unfold", { "kernel_size:sizes", { "dilation:sizes", 1 }, { "padding:sizes", 0 }, { "stride:sizes", 1 } })
function L.Unfold:forward(x) return F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride) end
L.Fold = layer("Fold", { "output_size:sizes", "kernel_size:sizes", { "dilation:sizes", 1 }, { "padding:sizes", 0 }, { "stride:sizes", 1 } })
function L.Fold:forward(x) return F.fold(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride) end

L.CosineSimilarity = layer("CosineSimilarity", { { "dim:int", 2 }, { "eps:number", 1e-8 } })
function L.CosineSimilarity:forward(a, b) return F.cosine_similarity(a, b, self.dim, self.eps) end
L.PairwiseDistance = layer("PairwiseDistance", { { "p:number", 2 }, { "eps:number", 1e-6 }, { "keepdim:boolean", false } })
function L.PairwiseDistance:forward(a, b) return F.pairwise_distance(a, b, self.p, self.eps, self.keepdim) end

return L
