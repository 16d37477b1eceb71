--- Saves a small convolutional network for run.c. Usage: lua5.4 examples/embed/model.lua PATH.onnx
local sc = require "sconce"
local nn = sc.nn

sc.manual_seed(2)
local net = nn.Sequential(nn.Conv2d(3, 32, 3, { padding = 1 }), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
  nn.Conv2d(32, 64, 3, { padding = 1 }), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 8 * 8, 128), nn.ReLU(),
  nn.Linear(128, 10))
net:eval()
local g = sc.graph()
local image = g:input("image", { "batch", 3, 32, 32 })
g:output("probability", sc.no_grad(function() return net(image):softmax(2) end))
g:save((assert(arg[1], "a path, please")))
