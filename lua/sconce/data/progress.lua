--- A bar that shows how far a loop is: count, rate, time left, and values such as the loss.
---   for x, t in bar do … bar:set{ loss = loss } end        bar = sc.data.progress(loader, { label = "epoch 1" })
---   bar:step(1, { loss = loss })                            bar = sc.data.progress(1000)
--- On a terminal one line is rewritten, at most ten times a second; elsewhere a plain line is printed every `every` seconds and at the end.
local sc = require "sconce"
local fault = require "sconce.fault"

local Bar = {}
Bar.__index = Bar

local terminal
--- Whether standard error is a terminal; asked once.
local function on_terminal()
  if terminal == nil then
    local term = os and os.getenv and os.getenv("TERM")
    local ok, yes = pcall(function() return term and term ~= "dumb" and os.execute("test -t 2 2>/dev/null") end)
    terminal = ok and yes == true
  end
  return terminal
end

local clock = sc.core.now

local function duration(s)
  s = math.floor(s + 0.5)
  if s < 3600 then return ("%d:%02d"):format(s // 60, s % 60) end
  return ("%d:%02d:%02d"):format(s // 3600, s // 60 % 60, s % 60)
end

local function text(self)
  local parts, elapsed = {}, clock() - self.started
  if self.label then parts[1] = self.label end
  if self.total then
    local width, part = 20, self.total > 0 and math.min(self.count / self.total, 1) or 1
    local full = math.floor(part * width)
    if self.terminal then parts[#parts + 1] = "[" .. ("="):rep(full) .. (" "):rep(width - full) .. "]" end
    parts[#parts + 1] = ("%d/%d"):format(self.count, self.total)
  else
    parts[#parts + 1] = tostring(self.count)
  end
  for _, name in ipairs(self.names) do
    local v = self.values[name]
    parts[#parts + 1] = name .. " " .. (math.type(v) == "float" and ("%.4g"):format(v) or tostring(v))
  end
  if elapsed > 0 then
    local rate = self.count / elapsed
    parts[#parts + 1] = (rate >= 1 or rate == 0) and ("%.1f it/s"):format(rate) or ("%.1f s/it"):format(1 / rate)
    if self.total and self.count < self.total and rate > 0 then parts[#parts + 1] = "ETA " .. duration((self.total - self.count) / rate)
    else parts[#parts + 1] = duration(elapsed) end
  end
  return table.concat(parts, "  ")
end

local function show(self, last)
  local now = clock()
  if not last and now - self.shown < self.every then return end
  if last and not self.terminal and self.shown_count == self.count then return end
  self.shown, self.shown_count = now, self.count
  local line = text(self)
  if self.terminal then
    self.out:write("\r", line, "\27[K", last and "\n" or "")
  else
    self.out:write(line, "\n")
  end
  self.out:flush()
end

--- Values to show: numbers, strings, or tensors of one element. Returns the bar.
function Bar:set(values)
  for name, v in pairs(values) do
    if self.values[name] == nil then
      self.names[#self.names + 1] = name
      table.sort(self.names)
    end
    self.values[name] = sc.is_tensor(v) and v:item() or v
  end
  return self
end

--- n further iterations (1 when not given).
function Bar:step(n, values)
  self.count = self.count + (n or 1)
  if values then self:set(values) end
  show(self, false)
  return self
end

--- Prints the last line; once.
function Bar:close()
  if self.closed then return end
  self.closed = true
  show(self, true)
end
Bar.__close = Bar.close

--- As an iterator: passes on what the thing inside gives. A step is counted when the next one is asked for.
function Bar:__call(state, control)
  if control == nil then
    self.count, self.started, self.shown, self.closed = 0, clock(), -math.huge, false
  else
    self:step()
  end
  local out = table.pack(self.source(state, control))
  if out[1] == nil then self:close() end
  return table.unpack(out, 1, out.n)
end

local read = fault.reader("progress", { "source", "label:string?", "total:int?", "every:number?", "out?", "terminal:boolean?" })

--- A progress bar around a loader, an iterator function or a list, or of a number of steps.
---@param source any
---@param options? { label?: string, total?: integer, every?: number, out?: file*, terminal?: boolean }
return function(source, options)
  local self = setmetatable(read(source, options), Bar)
  if self.terminal == nil then self.terminal = not self.out and on_terminal() end
  self.out = self.out or io.stderr
  self.every = self.every or (self.terminal and 0.1 or 10)
  self.count, self.values, self.names, self.started, self.shown = 0, {}, {}, clock(), clock()
  if math.type(source) == "integer" then
    self.total = source
  elseif type(source) == "table" and getmetatable(source) == nil then
    self.total = self.total or #source
    local i = 0
    self.source = function(_, control)
      i = control == nil and 1 or i + 1
      return source[i] ~= nil and source[i] or nil
    end
  else
    local meta = getmetatable(source)
    if type(source) ~= "function" and not (meta and meta.__call) then
      fault.raise("progress", "argument 1: expected a number, a list, a loader or an iterator, got %s", fault.describe(source))
    end
    self.source = source
    if not self.total and meta and meta.__len then self.total = #source end
  end
  return self
end
