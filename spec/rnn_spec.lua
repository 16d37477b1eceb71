-- Whole-sequence recurrent layers against the cells they stand for, values and gradients.
local sc = require "sconce"
local F = sc.nn.functional

local function close(a, b, tol)
  assert.are.same(a.shape, b.shape)
  local worst = a:numel() > 0 and (a - b):abs():max():item() or 0
  if worst ~= worst or worst > tol then error(("differs by %g"):format(worst), 2) end
end

local KINDS = {
  lstm = { gates = 4, states = 2, layer = F.lstm_layer, cell = F.lstm_cell },
  gru = { gates = 3, states = 1, layer = F.gru_layer, cell = F.gru_cell },
  rnn_tanh = { gates = 1, states = 1, layer = F.rnn_tanh_layer, cell = F.rnn_tanh_cell },
  rnn_relu = { gates = 1, states = 1, layer = F.rnn_relu_layer, cell = F.rnn_relu_cell },
}

local function by_cells(kind, x, states, weights, reverse)
  local T, ys, now = x:size(1), {}, states
  for i = 1, T do
    local t = reverse and T + 1 - i or i
    local args = { x[t] }
    for _, s in ipairs(now) do args[#args + 1] = s end
    for k = 1, 4 do args[#args + 1] = weights[k] end
    now = { kind.cell(table.unpack(args, 1, 1 + kind.states + 4)) }
    ys[t] = now[1]
  end
  return sc.stack(ys), table.unpack(now)
end

for name, kind in pairs(KINDS) do
  describe(name, function()
    for _, dtype in ipairs { "float64", "float32" } do
      for _, reverse in ipairs { false, true } do
        it(("equals its cells, %s%s"):format(dtype, reverse and ", from the end" or ""), function()
          sc.manual_seed(5)
          local T, N, I, H = 5, 4, 3, 7
          local function leaf(...) return sc.randn({ ... }, { dtype = dtype }):requires_grad_(true) end
          local x, states = leaf(T, N, I), {}
          for i = 1, kind.states do states[i] = leaf(N, H) end
          local weights = { leaf(kind.gates * H, I), leaf(kind.gates * H, H), leaf(kind.gates * H), leaf(kind.gates * H) }
          local args, inputs = { x }, { x }
          for _, s in ipairs(states) do args[#args + 1] = s; inputs[#inputs + 1] = s end
          for _, w in ipairs(weights) do args[#args + 1] = w; inputs[#inputs + 1] = w end
          args[#args + 1] = reverse
          local got, want = { kind.layer(table.unpack(args)) }, { by_cells(kind, x, states, weights, reverse) }
          local tol = dtype == "float64" and 1e-12 or 1e-4
          local loss_got, loss_want = 0, 0
          for i = 1, #want do
            close(got[i]:detach(), want[i]:detach(), tol)
            local w = sc.randn(want[i].shape, { dtype = dtype })
            loss_got, loss_want = loss_got + (got[i] * w):sum(), loss_want + (want[i] * w):sum()
          end
          local a, b = { sc.grad(loss_got, inputs) }, { sc.grad(loss_want, inputs) }
          for i = 1, #inputs do close(a[i], b[i], tol * 50) end
        end)
      end
    end
  end)
end

it("lstm_layer refuses shapes that do not fit", function()
  local ok, message = pcall(F.lstm_layer, sc.ones(2, 3, 4), sc.ones(3, 5), sc.ones(3, 5), sc.ones(20, 3), sc.ones(20, 5))
  assert.is_false(ok)
  assert.is_truthy(message:find("expected shape {20, 4}", 1, true))
end)

describe("gradients of gradients of a whole layer", function()
  local function leaf(...) return sc.rand({ ... }, { dtype = "float64" }):mul(2):sub(1):requires_grad_(true) end

  for name, kind in pairs(KINDS) do
    for _, reverse in ipairs { false, true } do
      it(name .. (reverse and " backwards" or "") .. " agree with differences, and its gradients with those of one pass", function()
        local G = kind.gates
        local args = { leaf(3, 2, 2), leaf(2, 3) }
        if kind.states == 2 then args[#args + 1] = leaf(2, 3) end
        for _, w in ipairs { leaf(G * 3, 2), leaf(G * 3, 3), leaf(G * 3), leaf(G * 3) } do args[#args + 1] = w end
        local function call(...)
          local given = { ... }
          given[#given + 1] = { reverse = reverse }
          return kind.layer(table.unpack(given))
        end
        local function total()
          local y, h, c = call(table.unpack(args))
          return (y * y):sum() + h:sin():sum() + (c and c:cos():sum() or 0)
        end
        local a, b = { sc.grad(total(), args) }, { sc.grad(total(), args, { create_graph = true }) }
        for i = 1, #args do close(a[i], b[i]:detach(), 1e-12) end
        assert.is_true(sc.autograd.gradgradcheck(call, args))
      end)
    end
  end

  it("count a weight that stands twice twice", function()
    local w = leaf(3, 3)
    assert.is_true(sc.autograd.gradgradcheck(function(x, h, v) return (F.rnn_tanh_layer(x, h, v, v)) end, { leaf(2, 1, 3), leaf(1, 3), w }))
  end)

  it("make a gradient penalty that compiles", function()
    local lstm, head, x = sc.nn.LSTM(2, 4), sc.nn.Linear(4, 1), sc.rand({ 5, 3, 2 }, { requires_grad = true })
    local function penalty(v)
      local g = sc.grad(head(lstm(v)):sum(), v, { create_graph = true })
      return (g:pow(2):sum { dim = { 1, 3 } }:sqrt() - 1):pow(2):mean()
    end
    local want = penalty(x)
    want:backward()
    assert.is_true(lstm:parameters()[1].grad:abs():sum():item() > 0)
    assert.is_true(math.abs(sc.compile(penalty)(x):item() - want:item()) < 1e-5)
  end)
end)
