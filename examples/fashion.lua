--- Trains an MLP and a small CNN on Fashion-MNIST (70,000 real photographs of clothes), tests them, saves, reloads in a new process,
--- and draws the loss curve (SVG) and the CNN's first filters (PNG).
---
---   make demo                                       with Debian's dataset-fashion-mnist
---   make example NAME=fashion ARGS=FOLDER           with IDX files (plain or .gz) in a folder of yours
---   make example NAME=fashion ARGS=--digits         with the small digits in examples/data
---   … ARGS='--check FILE KIND [FOLDER]'             what the new process runs: load, test, print the accuracy
---
--- COMPILED=1: training steps and tests run as static graphs, the same code and the same losses.
require "examples.usage" { ["--digits"] = true, ["--check"] = true }
local sc = require "sconce"
local nn, F, optim = sc.nn, sc.nn.functional, sc.optim
local plot = require "examples.plot"

local OUT = os.getenv("OUT") or "build/demo"
local compiled = os.getenv("COMPILED") and sc.compile or function(fn) return fn end

-- ---------------------------------------------------------------- data

local function exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end

local function read(folder, name)
  for _, suffix in ipairs { "", ".gz" } do
    if exists(folder .. "/" .. name .. suffix) then return sc.core.read_idx(folder .. "/" .. name .. suffix) end
  end
  error("no " .. name .. " in " .. folder, 0)
end

--- Images as float32 [N, 1, H, W] with mean 0 and deviation 1 over the training set, labels as int64 1 … 10.
local function load_data(folder)
  local function part(stem) return read(folder, stem .. "-images-idx3-ubyte"), read(folder, stem .. "-labels-idx1-ubyte") end
  local train_x, train_y = part("train")
  local test_x, test_y = part("t10k")
  local function scaled(x) return x:to("float32"):unsqueeze(2) / 255.0 end
  local a, b = scaled(train_x), scaled(test_x)
  local mean, std = a:mean():item(), a:std():item()
  return { train_x = (a - mean) / std, train_y = train_y:to("int64") + 1, test_x = (b - mean) / std, test_y = test_y:to("int64") + 1,
    side = train_x:size(2) }
end

local function default_folder()
  local debian = "/usr/share/datasets/fashion-mnist"
  if exists(debian .. "/train-images-idx3-ubyte.gz") then return debian end
  return "examples/data"
end

-- ---------------------------------------------------------------- models

local MLP = nn.class("MLP")

function MLP:init(side)
  self.body = nn.Sequential(nn.Flatten(), nn.Linear(side * side, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
end

function MLP:forward(x) return self.body(x) end

local CNN = nn.class("CNN")

function CNN:init(side)
  local after = side // 2 // 2 -- two poolings
  self.conv1 = nn.Conv2d(1, 32, 3, { padding = 1 })
  self.conv2 = nn.Conv2d(32, 64, 3, { padding = 1 })
  self.fc1 = nn.Linear(64 * after * after, 128)
  self.fc2 = nn.Linear(128, 10)
end

function CNN:forward(x)
  x = F.max_pool2d(self.conv1(x):relu(), 2)
  x = F.max_pool2d(self.conv2(x):relu(), 2)
  return self.fc2(self.fc1(x:flatten(2)):relu())
end

local MODELS = { mlp = MLP, cnn = CNN }

-- ---------------------------------------------------------------- training and testing

local function accuracy(model, x, y)
  model:eval()
  local count = compiled(function(images, labels) return model(images):argmax(2):eq(labels):sum() end)
  local right = 0
  sc.no_grad(function()
    for first = 1, #x, 500 do
      local n = math.min(500, #x - first + 1)
      right = right + count(x:narrow(1, first, n), y:narrow(1, first, n)):item()
    end
  end)
  return right / #x
end

local function train(model, data, epochs, batch)
  local loader = sc.data.DataLoader(sc.data.TensorDataset(data.train_x, data.train_y), { batch_size = batch, shuffle = true, seed = 1 })
  local opt = optim.AdamW(model:parameters(), { lr = 2e-3, weight_decay = 1e-4 })
  local schedule = optim.lr_scheduler.OneCycleLR(opt, { max_lr = 4e-3, total_steps = epochs * #loader })
  local curve = {}
  local step = compiled(function(x, y)
    opt:zero_grad()
    local loss = F.cross_entropy(model(x), y)
    loss:backward()
    opt:step()
    return loss
  end)
  model:train()
  for epoch = 1, epochs do
    local bar = sc.data.progress(#loader, { label = string.format("epoch %d/%d", epoch, epochs) })
    local total, n = 0.0, 0
    for x, y in loader do
      local value = step(x, y):item()
      schedule:step()
      total, n = total + value, n + 1
      curve[#curve + 1] = value
      bar:step(1, { loss = total / n })
    end
    bar:close()
  end
  return curve
end

-- ---------------------------------------------------------------- main

if arg[1] == "--check" then
  if not (arg[2] and MODELS[arg[3]]) then error("--check FILE KIND: a file, and mlp or cnn", 0) end
  local data = load_data(arg[4] or default_folder())
  local model = MODELS[arg[3]](data.side)
  model:load_state_dict(sc.load(arg[2]))
  print(string.format("%.4f", accuracy(model, data.test_x, data.test_y)))
  return
end

local small = os.getenv("SMALL") ~= nil
local folder = arg[1] == "--digits" and "examples/data" or arg[1] or default_folder()
os.execute("mkdir -p '" .. OUT .. "'")
sc.manual_seed(1)
local clock = os.time()
local data = load_data(folder)
local fashion = data.side == 28
print(string.format("%s: %d training and %d test images of %d x %d", folder, #data.train_x, #data.test_x, data.side, data.side))

local curves, wanted = {}, { mlp = fashion and 0.88 or 0.85, cnn = fashion and 0.90 or 0.88 }
local plans = fashion and { mlp = { epochs = 5, batch = 128 }, cnn = { epochs = 2, batch = 64 } }
  or { mlp = { epochs = 30, batch = 32 }, cnn = { epochs = 20, batch = 32 } }
for _, kind in ipairs { "mlp", "cnn" } do
  local model = MODELS[kind](data.side)
  print(model)
  curves[kind] = train(model, data, small and 1 or plans[kind].epochs, plans[kind].batch)
  local acc = accuracy(model, data.test_x, data.test_y)
  local path = OUT .. "/" .. kind .. ".safetensors"
  sc.save(path, model:state_dict())
  local again = io.popen(string.format("%s %s --check '%s' %s '%s'", arg[-1], arg[0], path, kind, folder)):read("n")
  print(string.format("%s: test accuracy %.2f %%, %.2f %% after saving and a reload in a new process", kind, acc * 100, (again or 0) * 100))
  if again ~= tonumber(string.format("%.4f", acc)) then error("the reloaded model answers differently", 0) end
  if not small and acc < wanted[kind] then error(string.format("%s: expected at least %.0f %%", kind, wanted[kind] * 100), 0) end
  if kind == "cnn" then plot.filters(OUT .. "/filters.png", model.conv1.weight) end
end
plot.curves(OUT .. "/loss.svg", { { "MLP", curves.mlp }, { "CNN", curves.cnn } })
print(string.format("loss curve: %s/loss.svg   filters: %s/filters.png   %d seconds in all", OUT, OUT, os.time() - clock))
