--- Pooling. x: [N, C, …] or [C, …].
local sc = require "sconce"
local layer = require "sconce.nn.layer"

local F = sc.functional
local L = {}

for n = 1, 3 do
  local function of(format) return format:format(n) end
  local Max = layer(of "MaxPool%dd", { "kernel_size:sizes", "stride:sizes?", { "padding:sizes", 0 }, { "dilation:sizes", 1 },
    { "return_indices:boolean", false }, { "ceil_mode:boolean", false } })
  L[of "MaxPool%dd"] = Max
  local max = of "max_pool%dd"
  function Max:forward(x)
    return F[max](x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)
  end

  local Unpool = layer(of "MaxUnpool%dd", { "kernel_size:sizes", "stride:sizes?", { "padding:sizes", 0 } })
  L[of "MaxUnpool%dd"] = Unpool
  local unpool = of "max_unpool%dd"
  function Unpool:forward(x, indices, output_size) return F[unpool](x, indices, self.kernel_size, self.stride, self.padding,
    output_size) end

  local params = { "kernel_size:sizes", "stride:sizes?", { "padding:sizes", 0 }, { "ceil_mode:boolean", false },
    { "count_include_pad:boolean", true } }
  if n > 1 then params[#params + 1] = "divisor_override:int?" end
  local Avg = layer(of "AvgPool%dd", params)
  L[of "AvgPool%dd"] = Avg
  local avg = of "avg_pool%dd"
  if n == 1 then
    function Avg:forward(x) return F[avg](x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad) end
  else
    function Avg:forward(x)
      return F[avg](x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override)
    end
  end

  local AdaptiveAvg = layer(of "AdaptiveAvgPool%dd", { "output_size:sizes" })
  L[of "AdaptiveAvgPool%dd"] = AdaptiveAvg
  local adaptive_avg = of "adaptive_avg_pool%dd"
  function AdaptiveAvg:forward(x) return F[adaptive_avg](x, self.output_size) end

  local AdaptiveMax = layer(of "AdaptiveMaxPool%dd", { "output_size:sizes", { "return_indices:boolean", false } })
  L[of "AdaptiveMaxPool%dd"] = AdaptiveMax
  local adaptive_max = of "adaptive_max_pool%dd"
  function AdaptiveMax:forward(x) return F[adaptive_max](x, self.output_size, self.return_indices) end
end

return L
