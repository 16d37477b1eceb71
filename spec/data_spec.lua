-- Datasets, loaders, progress, checkpoints.
local sc = require "sconce"
local data = sc.data

local function numbers(n) return data.TensorDataset(sc.arange(1, n + 1), sc.arange(1, n + 1):float() * 0.5) end

local function epoch(loader)
  local seen = {}
  for x in loader do for _, v in ipairs(x:totable()) do seen[#seen + 1] = v end end
  return seen
end

describe("a dataset", function()
  it("of tensors hands out rows", function()
    local ds = numbers(5)
    assert.equal(5, #ds)
    local a, b = ds:get(4)
    assert.equal(4, a:item())
    assert.equal(2.0, b:item())
    assert.has_error(function() ds:get(6) end)
    assert.has_error(function() ds:get(0) end)
    assert.has_error(function() data.TensorDataset(sc.ones { 2 }, sc.ones { 3 }) end)
  end)
  it("can be split, chained and cut", function()
    local parts = data.random_split(numbers(10), { 7, 3 }, { seed = 1 })
    local all = {}
    for _, p in ipairs(parts) do for i = 1, #p do all[#all + 1] = (p:get(i)):item() end end
    table.sort(all)
    assert.same({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, all)
    assert.same({ 6, 2, 2 }, (function()
      local n = {}
      for i, p in ipairs(data.random_split(numbers(10), { 0.5, 0.25, 0.25 }, { seed = 1 })) do n[i] = #p end
      return n
    end)())
    assert.has_error(function() data.random_split(numbers(10), { 7, 2 }) end)
    local chain = data.ConcatDataset { numbers(3), numbers(2) }
    assert.equal(5, #chain)
    assert.equal(1, (chain:get(4)):item())
    assert.equal(3, (data.Subset(numbers(5), { 5, 3 }):get(2)):item())
    assert.has_error(function() data.Subset(numbers(5), { 6 }) end)
  end)
end)

describe("a loader", function()
  it("gives every sample once, in order or shuffled by its seed", function()
    assert.same({ 1, 2, 3, 4, 5, 6, 7 }, epoch(data.DataLoader(numbers(7), { batch_size = 3 })))
    local a = data.DataLoader(numbers(50), { batch_size = 8, shuffle = true, seed = 4 })
    local b = data.DataLoader(numbers(50), { batch_size = 8, shuffle = true, seed = 4 })
    local first, second = epoch(a), epoch(a)
    assert.same(first, epoch(b))
    assert.not_same(first, second)
    table.sort(first)
    for i = 1, 50 do assert.equal(i, first[i]) end
  end)
  it("follows the global seed when it has none", function()
    local a = data.DataLoader(numbers(50), { shuffle = true })
    sc.manual_seed(3)
    local one = epoch(a)
    sc.manual_seed(3)
    assert.same(one, epoch(a))
  end)
  it("counts batches and drops a short last one when told", function()
    assert.equal(3, #data.DataLoader(numbers(7), { batch_size = 3 }))
    local loader = data.DataLoader(numbers(7), { batch_size = 3, drop_last = true })
    assert.equal(2, #loader)
    assert.equal(6, #epoch(loader))
  end)
  it("collates samples of any dataset", function()
    local ds = { len = function() return 3 end, get = function(_, i) return sc.full({ 2 }, i + 0.0), i, { name = "s" .. i } end }
    for x, n, t in data.DataLoader(ds, 3) do
      assert.same({ { 1.0, 1.0 }, { 2.0, 2.0 }, { 3.0, 3.0 } }, x:totable())
      assert.same({ 1, 2, 3 }, n:totable())
      assert.same({ "s1", "s2", "s3" }, t.name)
    end
    local n = 0
    for batch in data.DataLoader({ "a", "b", "c" }, { batch_size = 2, collate_fn = function(s) return #s end }) do n = n + batch end
    assert.equal(3, n)
  end)
  it("starts anew after a break, and resumes mid-epoch from a state", function()
    local a = data.DataLoader(numbers(20), { batch_size = 4, shuffle = true, seed = 9 })
    local state, rest, count = nil, {}, 0
    for x in a do
      count = count + 1
      if state then for _, v in ipairs(x:totable()) do rest[#rest + 1] = v end end
      if count == 2 then state = a:state_dict() end
    end
    local following = epoch(a)
    local b = data.DataLoader(numbers(20), { batch_size = 4, shuffle = true, seed = 1 })
    b:load_state_dict(state)
    assert.same(rest, epoch(b))
    assert.same(following, epoch(b))
    for x in a do
      if x then break end
    end
    assert.equal(20, #epoch(a))
    assert.has_error(function() data.DataLoader(numbers(21), { batch_size = 4 }):load_state_dict(state) end)
  end)
  it("refuses wrong options", function()
    assert.has_error(function() data.DataLoader(numbers(3), { batch_size = 0 }) end)
    assert.has_error(function() data.DataLoader(numbers(3), { batchsize = 2 }) end)
    assert.has_error(function() data.DataLoader(7) end)
  end)
end)

describe("progress", function()
  local function sink()
    local out = { text = "" }
    function out:write(...) self.text = self.text .. table.concat({ ... }) end
    function out.flush() end
    return out
  end
  it("writes plain lines when it is not on a terminal", function()
    local out = sink()
    local bar = data.progress(data.DataLoader(numbers(6), 2), { label = "epoch 1", out = out, every = 0 })
    local n = 0
    for _ in bar do
      n = n + 1
      bar:set { loss = sc.tensor(0.25) }
    end
    assert.equal(3, n)
    assert.truthy(out.text:find("epoch 1  3/3  loss 0.25", 1, true))
    assert.falsy(out.text:find("\r", 1, true))
    assert.truthy(out.text:find("it/s", 1, true))
  end)
  it("rewrites one line on a terminal, with a bar and the time left", function()
    local out = sink()
    local bar = data.progress(4, { out = out, terminal = true, every = 0 })
    bar:step()
    assert.truthy(out.text:find("\r[=====               ]  1/4", 1, true))
    assert.truthy(out.text:find("ETA", 1, true))
    bar:step(3)
    bar:close()
    assert.truthy(out.text:find("4/4", 1, true))
    assert.equal("\n", out.text:sub(-1))
  end)
  it("walks plain lists", function()
    local sum = 0
    for v in data.progress({ 1, 2, 3 }, { out = sink() }) do sum = sum + v end
    assert.equal(6, sum)
  end)
end)

local RUN = [[
local sc = require "sconce"
local mode, path = arg[1], arg[2]
sc.manual_seed(3)
local nn = sc.nn
local x, t = sc.randn { 20, 4 }, sc.randint(1, 4, { 20 })
local loader = sc.data.DataLoader(sc.data.TensorDataset(x, t), { batch_size = 6, shuffle = true })
local net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
local opt = sc.optim.AdamW(net:parameters())
local sched = sc.optim.lr_scheduler.CosineAnnealingLR(opt, 7)
local things = { model = net, optimizer = opt, scheduler = sched, loader = loader }
local k = mode == "resume" and sc.load_checkpoint(path, things).k or 0
while k < 23 do
  for xb, tb in loader do
    opt:zero_grad()
    sc.nn.functional.cross_entropy(net(xb), tb):backward()
    opt:step()
    sched:step()
    k = k + 1
    if mode == "stop" and k == 10 then
      things.k = k
      sc.save_checkpoint(path, things)
      os.exit(0)
    end
    if k == 23 then break end
  end
end
local sd = net:state_dict()
local names = {}
for name in pairs(sd) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do print(name, (sd[name]:tostring_bytes():gsub(".", function(c) return ("%02x"):format(c:byte()) end))) end
]]

describe("a checkpoint", function()
  local path = os.tmpname()
  after_each(function() os.remove(path) end)

  it("lets training go on in another process with the same bits as if it had never stopped", function()
    local script = os.tmpname()
    local f = assert(io.open(script, "w"))
    f:write(RUN)
    f:close()
    local function run(mode)
      local environment = ("LUA_PATH='%s' LUA_CPATH='%s'"):format(package.path, package.cpath)
      local p = assert(io.popen(("%s lua5.4 %s %s %s 2>&1"):format(environment, script, mode, path)))
      local text = p:read("a")
      p:close()
      return text
    end
    local whole = run("full")
    assert.truthy(whole:find("3.weight", 1, true), whole)
    assert.equal("", run("stop"))
    assert.equal(whole, run("resume"))
    os.remove(script)
  end)

  it("keeps numbers to the last bit, any strings, and nested tables", function()
    local t = { a = 0.1 + 0.2, b = math.huge, c = -0.0, d = math.mininteger, e = "a\0b\255", f = { true, false, { deep = "ä" } }, g = 1.0,
      h = sc.tensor { 1, 2 } }
    sc.save_checkpoint(path, { extra = t })
    local got = sc.load_checkpoint(path).extra
    assert.equal("float", math.type(got.g))
    assert.equal(-math.huge, 1 / got.c)
    assert.same({ 1, 2 }, got.h:totable())
    got.h, t.h = nil, nil
    assert.same(t, got)
  end)

  it("refuses what cannot be saved, other files, damaged ones and names that are missing", function()
    assert.has_error(function() sc.save_checkpoint(path, { f = print }) end)
    assert.has_error(function() sc.save_checkpoint(path, { f = { [1.5] = 1 } }) end)
    sc.save(path, { w = sc.ones { 2 } })
    assert.has_error(function() sc.load_checkpoint(path) end)
    for _, text in ipairs { "", "t1:", "t9999999:", "t1:s1:ai5", "t1:s1:a#3:w/x", "t1:s1:aq", "t0:x", ("t1:i1;"):rep(5000) } do
      sc.save(path, { w = sc.ones { 2 } }, { metadata = { ["sconce.checkpoint"] = text } })
      local ok, message = pcall(sc.load_checkpoint, path)
      assert.is_false(ok, text)
      assert(message:find("damaged", 1, true), message)
    end
    sc.save_checkpoint(path, { epoch = 1 })
    assert.has_error(function() sc.load_checkpoint(path, { model = sc.nn.Linear(1, 1) }) end)
  end)

  it("brings the random numbers back", function()
    sc.manual_seed(8)
    sc.save_checkpoint(path, {})
    local a = sc.rand({ 3 }):totable()
    sc.load_checkpoint(path)
    assert.same(a, sc.rand({ 3 }):totable())
  end)
end)
