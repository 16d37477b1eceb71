--- Reads and writes through index tensors, sorting and running reductions, in ONNX.
local ops = {}

return ops
