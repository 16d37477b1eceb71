"""Writes PyTorch's results for modules, optimisers and schedules: spec/reference/nn.lua and optim.lua, plain Lua tables.

    python3 spec/reference/make.py          (Debian: python3-torch 1.13.1)

Parameters, inputs and the weights of the loss come from a formula that the specs repeat (`fill`), so only results are stored: the
output, and the sums of the gradients weighted by another fill, per input and parameter. Index values are written 1-based."""
import math
import os

import torch
import torch.nn as nn

HERE = os.path.dirname(os.path.abspath(__file__))


def fill(shape, seed, scale=1.0):
    """Element i (from 0, row-major): scale * sin(seed + 1.7 i + 0.3 (i mod 7))."""
    n = 1
    for s in shape:
        n *= s
    return torch.tensor([scale * math.sin(seed + 1.7 * i + 0.3 * (i % 7)) for i in range(n)], dtype=torch.float64).reshape(shape)


def lua(v):
    if isinstance(v, torch.Tensor):
        v = v.detach().tolist()
    if isinstance(v, (list, tuple)):
        return "{" + ", ".join(lua(x) for x in v) + "}"
    if isinstance(v, dict):
        return "{" + ", ".join('["%s"] = %s' % (k, lua(x)) for k, x in v.items()) + "}"
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, float):
        if v == math.inf: return "1/0"
        return "%.9g" % v if v != int(v) or abs(v) > 1e15 else "%d.0" % int(v)
    if isinstance(v, int):
        return str(v)
    return '"%s"' % v


def set_parameters(net):
    for i, (name, p) in enumerate(net.named_parameters()):
        with torch.no_grad():
            p.copy_(fill(p.shape, 100 + i, 0.5))


def probe(name, net, inputs, call=None, extra=()):
    net = net.double()
    set_parameters(net)
    xs = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    out = (call or (lambda m, *a: m(*a)))(net, *xs)
    flat = []

    def collect(o):
        if isinstance(o, torch.Tensor):
            flat.append(o)
        elif o is not None:
            for x in o:
                collect(x)
    collect(out)
    loss = sum((o * fill(o.shape, 50 + k)).sum() for k, o in enumerate(flat))
    loss.backward()
    grads = {}
    for i, x in enumerate(xs):
        if x.grad is not None:
            grads["x%d" % (i + 1)] = float((x.grad * fill(x.shape, 70)).sum())
    for n, p in net.named_parameters():
        grads[n] = float((p.grad * fill(p.shape, 80)).sum()) if p.grad is not None else 0.0
    buffers = {n: b.double() for n, b in net.named_buffers()}
    return "  [%s] = { out = %s,\n    grad = %s,\n    buffers = %s }," % (lua(name), lua([o.flatten() for o in flat]), lua(grads), lua(
        {n: b.flatten() for n, b in buffers.items()}))


def modules():
    rows = []
    def add(*a, **k): rows.append(probe(*a, **k))
    add("Linear", nn.Linear(3, 2), [fill((2, 3), 1)])
    add("Bilinear", nn.Bilinear(2, 3, 2), [fill((2, 2), 1), fill((2, 3), 2)])
    add("Conv1d", nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), [fill((2, 2, 7), 1)])
    add("Conv2d", nn.Conv2d(2, 3, (3, 2), padding=(1, 0), dilation=(2, 1)), [fill((1, 2, 6, 5), 1)])
    add("Conv2d same reflect", nn.Conv2d(1, 2, (3, 4), padding="same", padding_mode="reflect"), [fill((1, 1, 5, 6), 1)])
    add("Conv3d", nn.Conv3d(1, 2, 2), [fill((1, 1, 3, 3, 3), 1)])
    add("ConvTranspose1d", nn.ConvTranspose1d(2, 3, 3, stride=2, output_padding=1), [fill((1, 2, 4), 1)])
    add("ConvTranspose2d size", nn.ConvTranspose2d(2, 2, 3, stride=2, padding=1), [fill((1, 2, 3, 3), 1)], lambda m, x: m(x, output_size=[6, 5]))
    add("MaxPool2d", nn.MaxPool2d(2, stride=1, padding=1), [fill((1, 1, 4, 4), 1)])
    add("AvgPool2d", nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False), [fill((1, 1, 5, 5), 1)])
    add("AdaptiveAvgPool2d", nn.AdaptiveAvgPool2d((2, 3)), [fill((1, 2, 5, 5), 1)])
    add("AdaptiveMaxPool1d", nn.AdaptiveMaxPool1d(3), [fill((1, 2, 7), 1)])
    add("BatchNorm1d", nn.BatchNorm1d(3), [fill((4, 3), 1)])
    add("BatchNorm2d cumulative", nn.BatchNorm2d(2, momentum=None), [fill((2, 2, 3, 3), 1)], lambda m, x: (m(x), m(x * 2)))
    add("BatchNorm1d eval", nn.BatchNorm1d(3).eval(), [fill((4, 3), 1)])
    add("LayerNorm", nn.LayerNorm([3, 4]), [fill((2, 3, 4), 1)])
    add("GroupNorm", nn.GroupNorm(2, 4), [fill((2, 4, 3), 1)])
    add("InstanceNorm1d", nn.InstanceNorm1d(2, affine=True, track_running_stats=True), [fill((2, 2, 5), 1)])
    add("LocalResponseNorm", nn.LocalResponseNorm(3), [fill((1, 4, 3), 1)])
    add("Embedding", nn.Embedding(5, 3, padding_idx=1), [torch.tensor([[0, 1], [4, 1]])])
    add("EmbeddingBag", nn.EmbeddingBag(5, 3, mode="sum"), [torch.tensor([0, 1, 4, 1]), torch.tensor([0, 3])])
    add("PReLU", nn.PReLU(2), [fill((2, 2, 3), 1)])
    add("Softmax", nn.Softmax(1), [fill((2, 4), 1)])
    add("RNN", nn.RNN(3, 2, nonlinearity="relu"), [fill((4, 2, 3), 1), fill((1, 2, 2), 2)])
    add("LSTM", nn.LSTM(3, 2, num_layers=2, bidirectional=True, batch_first=True), [fill((2, 4, 3), 1)])
    add("LSTM states", nn.LSTM(3, 2, bias=False), [fill((4, 2, 3), 1), fill((1, 2, 2), 2), fill((1, 2, 2), 3)], lambda m, x, h, c: m(x, (h, c)))
    add("LSTM proj", nn.LSTM(3, 4, proj_size=2, num_layers=2), [fill((3, 2, 3), 1)])
    add("LSTM single", nn.LSTM(3, 2), [fill((4, 3), 1)])
    add("GRU", nn.GRU(3, 2, num_layers=2, bidirectional=True), [fill((4, 2, 3), 1), fill((4, 2, 2), 2)])
    add("RNNCell", nn.RNNCell(3, 2), [fill((2, 3), 1), fill((2, 2), 2)])
    add("LSTMCell", nn.LSTMCell(3, 2), [fill((2, 3), 1)])
    add("GRUCell", nn.GRUCell(3, 2), [fill((2, 3), 1), fill((2, 2), 2)])
    add("MultiheadAttention", nn.MultiheadAttention(4, 2), [fill((3, 2, 4), 1), fill((5, 2, 4), 2), fill((5, 2, 4), 3)])
    mask = torch.zeros(3, 3, dtype=torch.bool)
    mask[0, 1:] = True
    mask[1, 2] = True
    pad = torch.tensor([[False, False, False], [False, False, True]])
    add("MultiheadAttention masks", nn.MultiheadAttention(4, 2, batch_first=True), [fill((2, 3, 4), 1)],
        lambda m, x: m(x, x, x, attn_mask=mask, key_padding_mask=pad, average_attn_weights=False))
    add("MultiheadAttention kdim", nn.MultiheadAttention(4, 2, kdim=3, vdim=2, add_bias_kv=False), [fill((2, 1, 4), 1), fill((3, 1, 3), 2), fill((3, 1, 2), 3)])
    add("MultiheadAttention bias_kv", nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True), [fill((2, 1, 4), 1)], lambda m, x: m(x, x, x))
    add("TransformerEncoderLayer", nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), [fill((3, 2, 4), 1)])
    add("TransformerEncoderLayer norm_first", nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation="gelu", norm_first=True, batch_first=True),
        [fill((2, 3, 4), 1)], lambda m, x: m(x, src_mask=torch.triu(torch.full((3, 3), -math.inf), 1).double()))
    add("TransformerEncoder", nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), 2, nn.LayerNorm(4)), [fill((3, 2, 4), 1)])
    add("TransformerDecoderLayer", nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0), [fill((3, 2, 4), 1), fill((5, 2, 4), 2)])
    add("Transformer", nn.Transformer(4, 2, 1, 1, 8, dropout=0.0), [fill((3, 2, 4), 1), fill((2, 2, 4), 2)])
    add("Upsample", nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), [fill((1, 1, 2, 3), 1)])
    add("PixelShuffle", nn.PixelShuffle(2), [fill((1, 4, 2, 2), 1)])
    add("CosineSimilarity", nn.CosineSimilarity(1), [fill((2, 3), 1), fill((2, 3), 2)])
    add("BCEWithLogitsLoss", nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 3.0])), [fill((3, 2), 1), fill((3, 2), 2).abs()])
    add("CrossEntropyLoss", nn.CrossEntropyLoss(label_smoothing=0.1), [fill((3, 4), 1), torch.tensor([0, 3, 1])])
    with open(os.path.join(HERE, "nn.lua"), "w") as f:
        f.write("-- Written by make.py with PyTorch %s.\nreturn {\n%s\n}\n" % (torch.__version__.split("+")[0], "\n".join(rows)))


class NAdam:
    """The definition (Dozat 2016) in plain tensors: PyTorch 1.13's own counts one factor of the momentum's product twice, later ones do not."""
    def __init__(self, ps, lr, weight_decay):
        self.ps, self.lr, self.wd, self.t, self.product = ps, lr, weight_decay, 0, 1.0
        self.m, self.v = [torch.zeros_like(p) for p in ps], [torch.zeros_like(p) for p in ps]

    def zero_grad(self):
        for p in self.ps:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.t += 1
        mu, nxt = (0.9 * (1 - 0.5 * 0.96 ** (k * 4e-3)) for k in (self.t, self.t + 1))
        self.product *= mu
        for p, m, v in zip(self.ps, self.m, self.v):
            g = p.grad + self.wd * p
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.999).add_(g * g, alpha=0.001)
            d = (v / (1 - 0.999 ** self.t)).sqrt() + 1e-8
            p -= self.lr * (1 - mu) / (1 - self.product) * g / d + self.lr * nxt / (1 - self.product * nxt) * m / d


def optimisers():
    rows = []
    O = torch.optim

    def run(name, make, steps=6, closure=False):
        ps = [fill((3, 2), 1).requires_grad_(True), fill((4,), 2).requires_grad_(True)]
        opt = make(ps)
        out = []
        for k in range(steps):
            def loss():
                opt.zero_grad()
                l = ((ps[0] * ps[0] - 0.5) ** 2).sum() + (ps[1] - fill((4,), 3 + (0 if closure else k))).pow(2).sum() * 0.7 + (ps[0].sum() * ps[1].sum()) * 0.1
                l.backward()
                return l
            if closure:
                opt.step(loss)
            else:
                loss()
                opt.step()
            out.append(torch.cat([p.detach().flatten() for p in ps]))
        rows.append("  [%s] = %s," % (lua(name), lua(out)))
    run("SGD", lambda p: O.SGD(p, lr=0.05))
    run("SGD momentum", lambda p: O.SGD(p, lr=0.05, momentum=0.9, dampening=0.2, weight_decay=0.01))
    run("SGD nesterov", lambda p: O.SGD(p, lr=0.05, momentum=0.9, nesterov=True))
    run("SGD maximize", lambda p: O.SGD(p, lr=0.01, maximize=True, weight_decay=0.1))
    run("Adam", lambda p: O.Adam(p, lr=0.05))
    run("Adam amsgrad", lambda p: O.Adam(p, lr=0.05, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.02, amsgrad=True))
    run("AdamW", lambda p: O.AdamW(p, lr=0.05, weight_decay=0.1))
    run("RMSprop", lambda p: O.RMSprop(p, lr=0.02))
    run("RMSprop centered", lambda p: O.RMSprop(p, lr=0.02, alpha=0.9, momentum=0.5, centered=True, weight_decay=0.01))
    run("Adagrad", lambda p: O.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1, weight_decay=0.01))
    run("Adadelta", lambda p: O.Adadelta(p, weight_decay=0.01))
    run("Adamax", lambda p: O.Adamax(p, lr=0.05, weight_decay=0.01))
    run("NAdam", lambda p: NAdam(p, lr=0.05, weight_decay=0.01))
    run("RAdam", lambda p: O.RAdam(p, lr=0.05, weight_decay=0.01), steps=9)
    run("groups", lambda p: O.SGD([{"params": [p[0]], "lr": 0.1}, {"params": [p[1]], "momentum": 0.5}], lr=0.01))
    run("LBFGS", lambda p: O.LBFGS(p, lr=0.5, max_iter=3, history_size=2), steps=3, closure=True)
    run("LBFGS strong_wolfe", lambda p: O.LBFGS(p, max_iter=4, line_search_fn="strong_wolfe"), steps=3, closure=True)
    S = O.lr_scheduler
    schedules = []

    def schedule(name, make, steps=14, metrics=None, momentum=0.0):
        p = fill((2,), 1).requires_grad_(True)
        opt = O.SGD([{"params": [p], "lr": 0.4}, {"params": [fill((1,), 2).requires_grad_(True)]}], lr=0.1, momentum=momentum)
        s = make(opt)
        rates = [[g["lr"] for g in opt.param_groups]]
        for k in range(steps - 1):
            opt.step()
            s.step(metrics[k]) if metrics else s.step()
            rates.append([g["lr"] for g in opt.param_groups])
        schedules.append("  [%s] = %s," % (lua(name), lua(rates)))
    schedule("StepLR", lambda o: S.StepLR(o, 3, 0.5))
    schedule("MultiStepLR", lambda o: S.MultiStepLR(o, [2, 5, 5], 0.5))
    schedule("ExponentialLR", lambda o: S.ExponentialLR(o, 0.9))
    schedule("ConstantLR", lambda o: S.ConstantLR(o, 0.5, 4))
    schedule("LinearLR", lambda o: S.LinearLR(o, 0.25, 0.75, 6))
    schedule("PolynomialLR", lambda o: S.PolynomialLR(o, 6, 2.0))
    schedule("LambdaLR", lambda o: S.LambdaLR(o, lambda e: 0.9 ** e))
    schedule("CosineAnnealingLR", lambda o: S.CosineAnnealingLR(o, 5, 0.01))
    schedule("CosineAnnealingWarmRestarts", lambda o: S.CosineAnnealingWarmRestarts(o, 3, 2, 0.01))
    schedule("OneCycleLR", lambda o: S.OneCycleLR(o, 0.5, total_steps=14), momentum=0.9)
    schedule("OneCycleLR three", lambda o: S.OneCycleLR(o, [0.5, 1.0], epochs=2, steps_per_epoch=7, anneal_strategy="linear", three_phase=True), momentum=0.9)
    schedule("SequentialLR", lambda o: S.SequentialLR(o, [S.ConstantLR(o, 0.1, 3), S.ExponentialLR(o, 0.9)], [4]))
    schedule("CyclicLR", lambda o: S.CyclicLR(o, 0.01, [0.1, 0.5], step_size_up=3, step_size_down=2), momentum=0.9)
    schedule("CyclicLR triangular2", lambda o: S.CyclicLR(o, 0.01, 0.1, step_size_up=2, mode="triangular2", cycle_momentum=False))
    schedule("CyclicLR exp_range", lambda o: S.CyclicLR(o, 0.01, 0.1, step_size_up=2, mode="exp_range", gamma=0.9, cycle_momentum=False))
    schedule("ChainedScheduler", lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.1, 3), S.ExponentialLR(o, 0.9)]))
    schedule("ReduceLROnPlateau", lambda o: S.ReduceLROnPlateau(o, "min", 0.5, 1, cooldown=1), metrics=[1, .9, .9, .9, .9, .8, .8, .8, .8, .8, .8, .7, .7])
    with open(os.path.join(HERE, "optim.lua"), "w") as f:
        f.write("-- Written by make.py with PyTorch %s.\nreturn { steps = {\n%s\n}, rates = {\n%s\n} }\n" % (
            torch.__version__.split("+")[0], "\n".join(rows), "\n".join(schedules)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    modules()
    optimisers()
