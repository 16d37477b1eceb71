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
