--- Tensors in files: safetensors, .npy and .npz, and GGUF to read. See csrc/formats/.
local sc = require "sconce"
local core = require "sconce.core"
local fault = require "sconce.fault"

--- Reads a file; its content tells the format. safetensors, .npz and GGUF give a table of tensors by name (and the metadata of
--- safetensors, a table of strings, when there is any), .npy gives a tensor.
--- Errors: no such file, not a regular file, a file that breaks a rule of its format.
---@param path string
---@return table<string, sc.Tensor>|sc.Tensor
---@return table<string, string>|nil metadata
function sc.load(path)
  return core.load(path)
end

--- Writes tensors by name into a safetensors file, or a .npz file when the path says so; a single tensor into a .npy file.
--- The file is written beside its place, flushed and renamed: after a failure the old one is whole.
---@param path string
---@param tensors table<string, sc.Tensor>|sc.Tensor
---@param options? { metadata?: table<string, string> }  # safetensors only
function sc.save(path, tensors, options)
  fault.expect("save", 3, "options", options)
  for name in pairs(options or {}) do
    if name ~= "metadata" then fault.raise("save", 'there is no option "%s"; the options are metadata', tostring(name)) end
  end
  local model = type(path) == "table" and path or tensors
  if type(model) == "table" and type(model.state_dict) == "function" then
    fault.raise("save", "expected a table {name = tensor}, got a module: save what it holds, sc.save(path, model:state_dict())")
  end
  core.save(path, tensors, options and options.metadata)
end
