--- nn.utils: gradients kept in bounds, parameters as one vector.
local sc = require "sconce"
local fault = require "sconce.fault"
local core = sc.core
local is_module = require "sconce.nn.module".is_module

local utils = {}

local function list_of(what, parameters)
  if core.is_tensor(parameters) then return { parameters } end
  if type(parameters) ~= "table" then
    fault.raise(what, "argument 1 (parameters): expected a tensor or a list of tensors, got %s", fault.describe(parameters))
  end
  if is_module(parameters) then parameters = parameters:parameters() end
  for i = 1, #parameters do fault.expect(what, ("argument 1 (parameters): member %d"):format(i), "tensor", parameters[i]) end
  return parameters
end

local read_norm = fault.reader("clip_grad_norm_", { "max_norm:number", { "norm_type:number", 2 }, { "error_if_nonfinite:boolean", false } })

--- Scales all gradients together so that their norm is at most max_norm. Returns the norm before, a 0-d tensor.
---@param parameters sc.Tensor[]|sc.Tensor
function utils.clip_grad_norm_(parameters, ...)
  local o = read_norm(...)
  if o.max_norm ~= o.max_norm or o.max_norm < 0 then
    fault.raise("clip_grad_norm_", "max_norm: expected a number from 0, got %s", fault.describe(o.max_norm))
  end
  local _ <close> = core.grad_block(false)
  local grads, norms = {}, {}
  for _, p in ipairs(list_of("clip_grad_norm_", parameters)) do
    local g = p.grad
    if g then
      grads[#grads + 1] = g
      norms[#norms + 1] = sc.linalg.vector_norm(g, o.norm_type)
    end
  end
  if #grads == 0 then return sc.tensor(0.0) end
  local total = #norms == 1 and norms[1] or sc.linalg.vector_norm(sc.stack(norms, 1), o.norm_type)
  if o.error_if_nonfinite then
    local v = total:item()
    if v ~= v or v == math.huge then fault.raise("clip_grad_norm_", "the norm of the gradients is %s", tostring(v)) end
  end
  local scale = (o.max_norm / (total + 1e-6)):clamp(nil, 1.0)
  for _, g in ipairs(grads) do g:mul_(scale:to(g.dtype)) end
  return total
end

--- Clamps every gradient's elements to ±clip_value.
function utils.clip_grad_value_(parameters, clip_value)
  if type(clip_value) ~= "number" or clip_value ~= clip_value or clip_value < 0 then
    fault.raise("clip_grad_value_", "argument 2 (clip_value): expected a number from 0, got %s", fault.describe(clip_value))
  end
  local _ <close> = core.grad_block(false)
  for _, p in ipairs(list_of("clip_grad_value_", parameters)) do
    local g = p.grad
    if g then g:clamp_(-clip_value, clip_value) end
  end
end

--- All parameters one after the other, as a vector.
function utils.parameters_to_vector(parameters)
  local parts = {}
  for i, p in ipairs(list_of("parameters_to_vector", parameters)) do parts[i] = p:reshape { -1 } end
  return sc.cat(parts, 1)
end

--- The reverse: copies a vector's parts into the parameters.
function utils.vector_to_parameters(vector, parameters)
  local list, n = list_of("vector_to_parameters", parameters), 0
  for _, p in ipairs(list) do n = n + p:numel() end
  if not core.is_tensor(vector) or vector:numel() ~= n then
    fault.raise("vector_to_parameters", "argument 1 (vector): expected %d elements, got %s", n, core.is_tensor(vector) and
      vector:numel() or fault.describe(vector))
  end
  local _ <close> = core.grad_block(false)
  local at = 1
  for _, p in ipairs(list) do
    p:copy_(vector:narrow(1, at, p:numel()):view(p.shape))
    at = at + p:numel()
  end
end

return utils
