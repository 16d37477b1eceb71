--- Two small pictures for the examples: curves as SVG, convolution filters as PNG.
local sc = require "sconce"

local plot = {}

local WIDTH, HEIGHT, LEFT, BOTTOM, RIGHT, TOP = 640, 360, 56, 40, 16, 16
local COLOURS = { "#1f6f8b", "#d1495b", "#66a182", "#edae49" }

--- At most 200 points: each the mean of its stretch, so that a noisy curve reads.
local function thinned(list)
  local stretch = math.max(1, #list // 200)
  local out = {}
  for first = 1, #list - stretch + 1, stretch do
    local sum = 0.0
    for i = first, first + stretch - 1 do sum = sum + list[i] end
    out[#out + 1] = { first + stretch // 2, sum / stretch }
  end
  return out
end

--- Writes curves { { label, list of numbers }, … } over their step number.
---@param path string
---@param curves table
function plot.curves(path, curves)
  local top, steps = 0.0, 1
  local lines = {}
  for i, c in ipairs(curves) do
    lines[i] = thinned(c[2])
    steps = math.max(steps, #c[2])
    for _, p in ipairs(lines[i]) do top = math.max(top, p[2]) end
  end
  local function x(step) return LEFT + (WIDTH - LEFT - RIGHT) * step / steps end
  local function y(value) return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top end
  local svg = {}
  local function put(...) svg[#svg + 1] = string.format(...) end
  put('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">', WIDTH, HEIGHT)
  put('<rect width="%d" height="%d" fill="white"/>', WIDTH, HEIGHT)
  for k = 0, 4 do
    local value = top * k / 4
    put('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>', LEFT, WIDTH - RIGHT, y(value), y(value))
    put('<text x="%d" y="%.1f" text-anchor="end">%.2f</text>', LEFT - 6, y(value) + 4, value)
    put('<text x="%.1f" y="%d" text-anchor="middle">%d</text>', x(steps * k / 4), HEIGHT - BOTTOM + 18, steps * k // 4)
  end
  put('<text x="%d" y="%d" text-anchor="middle">step</text>', (WIDTH + LEFT) // 2, HEIGHT - 6)
  for i, line in ipairs(lines) do
    local points = {}
    for k, p in ipairs(line) do points[k] = string.format("%.1f,%.1f", x(p[1]), y(p[2])) end
    local colour = COLOURS[(i - 1) % #COLOURS + 1]
    put('<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>', colour, table.concat(points, " "))
    put('<text x="%d" y="%d" fill="%s" text-anchor="end">%s</text>', WIDTH - RIGHT - 4, TOP + 16 * i, colour, curves[i][1])
  end
  put("</svg>")
  local f = assert(io.open(path, "w"))
  f:write(table.concat(svg, "\n"), "\n")
  f:close()
end

--- Writes the filters of a convolution's weight [C, 1, kh, kw] as a sheet of grey squares, eight to a row.
---@param path string
---@param weight sc.Tensor
function plot.filters(path, weight)
  local scale, gap = 12, 4
  local w = weight:detach()
  local count, kh, kw = w:size(1), w:size(3), w:size(4)
  local low, high = w:min():item(), w:max():item()
  local rows = (count + 7) // 8
  local sheet = sc.full({ rows * (kh * scale + gap) + gap, 8 * (kw * scale + gap) + gap }, 255, { dtype = "uint8" })
  for i = 0, count - 1 do
    local grey = ((w[i + 1][1] - low) * (255 / (high - low))):to("uint8")
    local big = grey:repeat_interleave(scale, 1):repeat_interleave(scale, 2)
    local top, left = gap + i // 8 * (kh * scale + gap), gap + i % 8 * (kw * scale + gap)
    sheet:narrow(1, top + 1, kh * scale):narrow(2, left + 1, kw * scale):copy_(big)
  end
  sc.core.write_png(path, sheet)
end

return plot
