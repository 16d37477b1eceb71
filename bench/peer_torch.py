"""PyTorch's side of the workloads (Debian: python3-torch). Usage: peer_torch.py [pattern] [budget in seconds] [threads]
One JSON line a workload. Set OPENBLAS_NUM_THREADS and OMP_NUM_THREADS as bench/run.lua does: OpenBLAS has a pool of its own."""
import json
import math
import random
import re
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

exporting = sys.argv[2] if sys.argv[1:2] == ["--export"] else None   # a folder: the inference models are written there as ONNX files
pattern = re.compile("^$" if exporting else sys.argv[1] if len(sys.argv) > 1 else "")
budget = float(sys.argv[2]) if len(sys.argv) > 2 and not exporting else 0.5
torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
torch.manual_seed(1)
random.seed(1)
clock = time.process_time


def seconds(fn):
    fn()
    n, warm = 1, clock() + min(0.2, budget)
    while True:
        t = clock()
        for _ in range(n):
            fn()
        dt = clock() - t
        if dt >= 1e-3 and clock() >= warm:
            break
        if dt < 1e-3:
            n = max(n + 1, int(n * min(10, 1.2e-3 / max(dt, 1e-7))))
    got, stop = [], clock() + budget
    while clock() < stop or len(got) < 5:
        t = clock()
        for _ in range(n):
            fn()
        got.append((clock() - t) / n)
    return sorted(got)[len(got) // 2]


def run(name, make, per=1, grad=False):
    if not pattern.search(name):
        return
    with torch.set_grad_enabled(grad):
        s = seconds(make()) / per
    print(json.dumps({"peer": "torch", "workload": name, "seconds": s}), flush=True)


def repeat(body, n=100):
    def loop():
        for _ in range(n):
            body()
    return loop


# ---- A: the cost of one op ----
def add1(grad):
    a, b = torch.rand(1, requires_grad=grad), torch.rand(1)

    def loop():
        for _ in range(100):
            a + b
    return loop


run("add_1_nograd", lambda: add1(False), 100)
run("add_1_grad", lambda: add1(True), 100, True)


def chain():
    g, w, d = torch.rand(1, requires_grad=True), torch.rand(1), torch.rand(1)

    def step():
        g.grad = None
        t = g
        for _ in range(5):
            t = t * w
            t = t + d
        t.backward()
    return step


run("chain10_fwd_bwd", chain, 1, True)
m8 = torch.rand(8, 8), torch.rand(8, 8)
run("matmul_8x8", lambda: repeat(lambda: m8[0] @ m8[1]), 100)
lin = torch.rand(1, 64), torch.rand(64, 64), torch.rand(64)
run("linear_relu_1x64x64", lambda: repeat(lambda: torch.relu(F.linear(*lin))), 100)

# ---- B: element-wise, reductions, movement ----
N = 1000000
x, y, m, v = torch.randn(N), torch.randn(N), torch.randn(1000, 1000), torch.randn(1000)
for op in ("exp", "tanh", "sigmoid", "relu", "erf", "sin"):
    run(op + "_1e6", lambda f=getattr(torch, op): lambda: f(x))
pos = torch.rand(N) + 0.5
run("log_1e6", lambda: lambda: torch.log(pos))
run("add_1e6", lambda: lambda: x + y)
run("gelu_tanh_1e6", lambda: lambda: F.gelu(x, approximate="tanh"))
run("where_1e6", lambda: lambda: torch.where(x > 0, x, y))


def gelu12():
    t = x * x
    t = t * x
    t = t * 0.044715
    t = x + t
    t = t * 0.7978845608
    t = torch.tanh(t)
    t = t + 1.0
    t = t * x
    t = t * 0.5
    t = t + y
    t = torch.relu(t)
    return t * 1.1


run("gelu_chain12_1e6", lambda: gelu12)


def muladd12():
    t = x
    for _ in range(6):
        t = t * 0.9
        t = t + y
    return t


def softmax_hand():
    e = torch.exp(m - m.max(1, True)[0])
    return e / e.sum(1, True)


def layernorm_hand():
    u = m - m.mean(1, True)
    s = (u * u).mean(1, True)
    return u * torch.rsqrt(s + 1e-5) * v + v


run("muladd_chain12_1e6", lambda: muladd12)
run("softmax_hand_1000x1000", lambda: softmax_hand)
run("layernorm_hand_1000x1000", lambda: layernorm_hand)
rows = {"sum_all": lambda: m.sum(), "sum_dim0": lambda: m.sum(0), "sum_dim1": lambda: m.sum(1), "mean_all": lambda: m.mean(),
        "max_dim1": lambda: m.max(1), "argmax_dim1": lambda: m.argmax(1), "cumsum_dim1": lambda: m.cumsum(1),
        "cumsum_dim0": lambda: m.cumsum(0), "softmax": lambda: m.softmax(1)}
for name, f in rows.items():
    run(name + "_1000x1000", lambda f=f: f)
run("add_bcast_row_1000x1000", lambda: lambda: m + v)
run("layernorm_1000x1000", lambda: lambda: F.layer_norm(m, (1000,), v, v))
big = torch.randn(2000, 2000)
run("transpose_copy_2000x2000", lambda: lambda: big.t().contiguous())
run("sort_1e6", lambda: lambda: x.sort())
run("topk10_1e6", lambda: lambda: x.topk(10))
run("mask_select_1e6", lambda: lambda: x[x > 0])
table, idx = torch.randn(50000, 128), torch.randint(0, 50000, (8192,))
run("embedding_8192_of_50000x128", lambda: lambda: F.embedding(idx, table))
run("rand_1e6", lambda: lambda: torch.rand(N))
run("randn_1e6", lambda: lambda: torch.randn(N))
run("dropout_1e6", lambda: lambda: F.dropout(x, 0.1, True))
run("cat_2x_1e6", lambda: lambda: torch.cat((x, y)))


# ---- C: products and convolutions ----
def product(*shapes):
    a, b = (torch.rand(*s) for s in shapes)
    return lambda: a @ b


for n in (64, 128, 256, 512, 1024, 2048):
    run("matmul_f32_%d" % n, lambda n=n: product((n, n), (n, n)))
run("bmm_f32_64x64x64x64", lambda: product((64, 64, 64), (64, 64, 64)))
run("matmul_f32_1x1024x1024", lambda: product((1, 1024), (1024, 1024)))
wide = torch.rand(64, 784), torch.rand(256, 784), torch.rand(256)
run("linear_bias_64x784x256", lambda: lambda: F.linear(*wide))
for name, n, ci, h, co, k, pad in (("conv3x3_1x64x56x56_64", 1, 64, 56, 64, 3, 1), ("conv3x3_16x64x32x32_64", 16, 64, 32, 64, 3, 1),
                                   ("conv1x1_1x256x28x28_256", 1, 256, 28, 256, 1, 0), ("conv3x3_64x1x28x28_32", 64, 1, 28, 32, 3, 0)):
    args = torch.rand(n, ci, h, h), torch.rand(co, ci, k, k), torch.rand(co)
    run(name, lambda a=args, p=pad: lambda: F.conv2d(*a, padding=p))


# ---- D: training steps ----
class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.f1, self.f2, self.f3 = nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10)

    def forward(self, t):
        return self.f3(F.relu(self.f2(F.relu(self.f1(t)))))


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.f1, self.f2 = nn.Linear(1600, 128), nn.Linear(128, 10)

    def forward(self, t):
        t = F.max_pool2d(F.relu(self.c1(t)), 2)
        t = F.max_pool2d(F.relu(self.c2(t)), 2)
        return self.f2(F.relu(self.f1(t.flatten(1))))


class LSTMNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.fc = nn.LSTM(128, 256, batch_first=True), nn.Linear(256, 10)

    def forward(self, t):
        return self.fc(self.rnn(t)[0][:, -1])


D, HEADS, CONTEXT, VOCAB = 128, 4, 128, 65


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.proj = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        self.register_buffer("mask", torch.triu(torch.full((CONTEXT, CONTEXT), -math.inf), 1))

    def forward(self, t):
        b, n, _ = t.shape
        q, k, w = (p.view(b, n, HEADS, D // HEADS).transpose(1, 2) for p in self.qkv(self.l1(t)).split(D, 2))
        a = torch.softmax((q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(D // HEADS)) + self.mask[:n, :n], -1) @ w
        t = t + self.proj(a.transpose(1, 2).reshape(b, n, D))
        return t + self.down(F.gelu(self.up(self.l2(t)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, D), nn.Embedding(CONTEXT, D)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.ln, self.head = nn.LayerNorm(D), nn.Linear(D, VOCAB, bias=False)

    def forward(self, i):
        t = self.tok(i) + self.pos.weight[:i.shape[1]]
        for block in self.blocks:
            t = block(t)
        return self.head(self.ln(t)).view(-1, VOCAB)


class TreeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.w, self.out = nn.Embedding(100, 64), nn.Linear(128, 64), nn.Linear(64, 5)

    def node(self, t):
        if isinstance(t, torch.Tensor):
            return self.emb(t)
        return torch.tanh(self.w(torch.cat((self.node(t[0]), self.node(t[1])), 1)))

    def forward(self, t):
        return self.out(self.node(t))


def random_tree(leaves):
    if leaves == 1:
        return torch.tensor([random.randrange(100)])
    k = random.randrange(1, leaves)
    return random_tree(k), random_tree(leaves - k)


def train(name, make, data, labels, opt="sgd"):
    def start():
        net = make()
        xs, ys = data(), labels()
        many = isinstance(xs, list)
        p = net.parameters()
        o = {"sgd": lambda: torch.optim.SGD(p, lr=0.01, momentum=0.9), "adam": lambda: torch.optim.Adam(p, lr=1e-3),
             "adamw": lambda: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.1)}[opt]()
        i = [0]

        def step():
            i[0] = (i[0] + 1) % 64
            o.zero_grad(set_to_none=True)
            F.cross_entropy(net(xs[i[0]] if many else xs), ys[i[0]] if many else ys).backward()
            o.step()
        return step
    run(name, start, 1, True)


for n in (64, 1):
    for o in ("sgd", "adam"):
        train("mlp_train_%s_b%d" % (o, n), MLP, lambda n=n: torch.randn(n, 784), lambda n=n: torch.randint(0, 10, (n,)), o)
train("cnn_train_sgd_b64", CNN, lambda: torch.randn(64, 1, 28, 28), lambda: torch.randint(0, 10, (64,)))
train("lstm_train_sgd_b16", LSTMNet, lambda: torch.randn(16, 64, 128), lambda: torch.randint(0, 10, (16,)))
train("gpt_train_adamw_b8", GPT, lambda: torch.randint(0, VOCAB, (8, 128)), lambda: torch.randint(0, VOCAB, (1024,)), "adamw")
train("tree_train_sgd", TreeNet, lambda: [random_tree(16) for _ in range(64)],
      lambda: [torch.tensor([random.randrange(5)]) for _ in range(64)])


def small_step():
    net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    o, a, b = torch.optim.SGD(net.parameters(), lr=0.01), torch.rand(1, 4), torch.rand(1, 2)

    def step():
        o.zero_grad(set_to_none=True)
        F.mse_loss(net(a), b).backward()
        o.step()
    return step


run("mlp_4_32_32_2_train_b1", small_step, 1, True)


# ---- E: the inference models as ONNX files, for ONNX Runtime ----
class GPTStep(nn.Module):
    """One generation step; cache [layers, 2, batch, heads, tokens so far, d / heads] grows by concatenation."""

    def __init__(self, gpt):
        super().__init__()
        self.g = gpt

    def forward(self, idx, pos, cache):
        t, grown = self.g.tok(idx) + self.g.pos(pos), []
        for i, block in enumerate(self.g.blocks):
            q, k, w = (p.view(1, 1, HEADS, D // HEADS).transpose(1, 2) for p in block.qkv(block.l1(t)).split(D, 2))
            k, w = torch.cat((cache[i, 0], k), 2), torch.cat((cache[i, 1], w), 2)
            a = torch.softmax((q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(D // HEADS)), -1) @ w
            t = t + block.proj(a.transpose(1, 2).reshape(1, 1, D))
            t = t + block.down(F.gelu(block.up(block.l2(t)), approximate="tanh"))
            grown.append(torch.stack((k, w)))
        return self.g.head(self.g.ln(t)), torch.stack(grown)


if exporting:
    def export(name, net, args, inputs, outputs, axes=None):
        torch.onnx.export(net.eval(), args, "%s/%s.onnx" % (exporting, name), input_names=inputs, output_names=outputs, dynamic_axes=axes or {},
                          opset_version=14, do_constant_folding=True)

    export("mlp", MLP(), torch.randn(1, 784), ["x"], ["y"])
    export("cnn", CNN(), torch.randn(1, 1, 28, 28), ["x"], ["y"])
    export("lstm", LSTMNet(), torch.randn(1, 64, 128), ["x"], ["y"])
    gpt = GPT()
    export("gpt", gpt, torch.randint(0, VOCAB, (1, 128)), ["x"], ["y"])
    export("gpt_step", GPTStep(gpt), (torch.tensor([[1]]), torch.tensor([[3]]), torch.randn(4, 2, 1, HEADS, 3, D // HEADS)), ["tok", "pos", "cache"],
           ["y", "cache_out"], {"cache": {4: "t"}, "cache_out": {4: "t1"}})
