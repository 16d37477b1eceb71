--- Ops written in Lua over other ops. `define` takes what a row of the C op table has: a signature, a help text, and here a
--- function instead of a kernel. The function gets one value per parameter (tensors, numbers, tables for lists, 1-based dims,
--- defaults filled in, nil for what is absent); arguments are read and checked by the same reader, with the same messages.
--- Gradients, graphs and errors need nothing: the ops it calls have them.
local core = require "sconce.core"

local define = { info = {} } -- name -> { signature =, help = }

--- Defines `name(…)` in `into`: the function, and a method of tensors when `method` is true.
---@param into table  # where the function goes, under the last part of the name
---@param signature string  # as in the op table; see csrc/ops/ops.h
---@param help string  # first line: what it computes; then shapes, errors, example, source
---@param fn function
---@param method? boolean
---@return function
local function add(into, signature, help, fn, method)
  local name = signature:match("^[%w_.]+")
  local short = name:match("[%w_]+$")
  local f = core.composite(signature, fn)
  into[short] = f
  if method then core.methods[short] = f end
  define.info[name] = { signature = core.signature_text(signature), help = help, fn = f }
  return f
end

return setmetatable(define, { __call = function(_, ...) return add(...) end })
