--- Convolutions and transposed convolutions. x: [N, C, …] or [C, …]. Weight and bias begin uniform in ±1/√(in/groups · kernel).
local sc = require "sconce"
local fault = require "sconce.fault"
local layer = require "sconce.nn.layer"
local init = require "sconce.nn.initial"
local Parameter = require "sconce.nn.module".Parameter

local F = sc.functional
local L = {}

local function make_parameters(self, o, shape)
  local fan = 1
  for i = 2, #shape do fan = fan * shape[i] end
  local bound = fan > 0 and 1 / math.sqrt(fan) or 0
  self.weight = Parameter(init.uniform_(sc.empty(shape), -bound, bound))
  if o.bias then self.bias = Parameter(init.uniform_(sc.empty({ o.out_channels }), -bound, bound)) end
end

local function check(self, o, n)
  local name = self.__name
  layer.at_least(name, 1, o, "in_channels", "out_channels", "groups", "kernel_size", "stride", "dilation")
  if o.in_channels % o.groups ~= 0 then fault.raise(name, "groups: %d does not divide in_channels, %d", o.groups, o.in_channels) end
  if o.out_channels % o.groups ~= 0 then fault.raise(name, "groups: %d does not divide out_channels, %d", o.groups, o.out_channels) end
  for _, k in ipairs { "kernel_size", "stride", "dilation" } do rawset(self, k, layer.ntuple(name, k, o[k], n)) end
end

local MODES = { zeros = true, reflect = "reflect", replicate = "replicate", circular = "circular" }

for n = 1, 3 do
  local name, conv = ("Conv%dd"):format(n), F[("conv%dd"):format(n)]
  local Conv = layer(name, { "in_channels:int", "out_channels:int", "kernel_size:sizes", { "stride:sizes", 1 }, { "padding", 0 },
    { "dilation:sizes", 1 }, { "groups:int", 1 }, { "bias:boolean", true }, { "padding_mode:string", "zeros" } })
  L[name] = Conv
  function Conv:build(o)
    check(self, o, n)
    if not MODES[o.padding_mode] then
      fault.raise(name, "padding_mode: expected zeros, reflect, replicate or circular, got %q", o.padding_mode)
    end
    local padding = o.padding
    if padding == "same" then
      for _, s in ipairs(self.stride) do if s ~= 1 then fault.raise(name, "padding \"same\" needs a stride of 1") end end
    elseif padding ~= "valid" then
      if type(padding) == "string" then fault.raise(name, "padding: expected numbers, \"same\" or \"valid\", got %q", padding) end
      rawset(self, "padding", layer.ntuple(name, "padding", padding, n))
    end
    if o.padding_mode ~= "zeros" then
      local amounts = {} -- the last dim first, as F.pad wants them
      for i = n, 1, -1 do
        local total = self.dilation[i] * (self.kernel_size[i] - 1)
        local left = padding == "same" and total // 2 or padding == "valid" and 0 or self.padding[i]
        amounts[#amounts + 1] = left
        amounts[#amounts + 1] = padding == "same" and total - left or left
      end
      rawset(self, "_amounts", amounts)
    end
    make_parameters(self, o, { o.out_channels, o.in_channels // o.groups, table.unpack(self.kernel_size) })
  end
  function Conv:forward(x)
    if self._amounts then
      x = F.pad(x, self._amounts, MODES[self.padding_mode])
      return conv(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
    end
    return conv(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
  end

  local tname, transposed = ("ConvTranspose%dd"):format(n), F[("conv_transpose%dd"):format(n)]
  local Transposed = layer(tname, { "in_channels:int", "out_channels:int", "kernel_size:sizes", { "stride:sizes", 1 }, { "padding:sizes",
    0 },
    { "output_padding:sizes", 0 }, { "groups:int", 1 }, { "bias:boolean", true }, { "dilation:sizes", 1 }, { "padding_mode:string",
      "zeros" } })
  L[tname] = Transposed
  function Transposed:build(o)
    check(self, o, n)
    if o.padding_mode ~= "zeros" then fault.raise(tname, "padding_mode: only \"zeros\" is possible, got %q", o.padding_mode) end
    rawset(self, "padding", layer.ntuple(tname, "padding", o.padding, n))
    rawset(self, "output_padding", layer.ntuple(tname, "output_padding", o.output_padding, n))
    make_parameters(self, o, { o.in_channels, o.out_channels // o.groups, table.unpack(self.kernel_size) })
  end
  --- output_size: the spatial sizes wanted, where the stride leaves a choice.
  function Transposed:forward(x, output_size)
    local extra = self.output_padding
    fault.expect(tname, 1, "tensor", x)
    if output_size then
      fault.expect(tname, "output_size", "table", output_size)
      local first = x:dim() - n
      if #output_size == n + first then output_size = table.move(output_size, first + 1, first + n, 1, {}) end
      if #output_size ~= n then fault.raise(tname, "output_size: expected %d sizes, got %d", n, #output_size) end
      extra = {}
      for i = 1, n do
        local low = (x:size(first + i) - 1) * self.stride[i] - 2 * self.padding[i] + self.dilation[i] * (self.kernel_size[i] - 1) + 1
        extra[i] = output_size[i] - low
        if extra[i] < 0 or extra[i] >= self.stride[i] then
          fault.raise(tname, "output_size: size %d of dimension %d is not between %d and %d", output_size[i], i, low,
            low + self.stride[i] - 1)
        end
      end
    end
    return transposed(x, self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)
  end
end

return L
