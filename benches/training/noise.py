"""What an error of the backward adds to a gradient's noise, and one of the forward to the loss, measured on small models with
real per-example gradients and held against `loka probe`. CPU; own casts (PyTorch's float8), own products; of LoKA only the
recorder and the binary.

    PYTHONPATH=python python benches/training/noise.py LOKA [--model cross dlrm tower tokens] [--steps 120] [--batch 1024] [--batches 24]

wgrad: the GEMM's own error over the noise of the same batch. dgrad: the site's dx is replaced by the FP8 one in a real backward,
and what that changes in the weight gradient of the next site upstream is held against *its* noise: that the share carries over
is a claim of docs/concepts/method.md. What stays of an error in the mean over batches, beside its slope on the gradient, is told apart from
the rest: it does not average out over steps, as noise does. fprop: 1/2 E[(sum of g . dy)^2] over an example's rows, by the same rows' g and error. The noise is from
per-example gradients, sums of g x^T, formed one by one for 64 examples of each batch as a check of the sums that are used for all.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import loka
import torch
from torch import Tensor, nn

BF16 = "cublaslt/bf16"
FP8 = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}


def cast(x: Tensor, kind: str, by_row: bool) -> Tensor:
    """`x` [rows, reduced] as FP8 holds it."""
    dtype, largest = FP8[kind]
    amax = x.abs().amax(dim=1, keepdim=True) if by_row else x.abs().amax()
    scale = (amax / largest).clamp(min=1e-12)
    return (x / scale).clamp(-largest, largest).to(dtype).to(torch.float32) * scale


def product(a: Tensor, b: Tensor, kernel: str) -> Tensor:
    """a [m, reduced] times b [n, reduced]^T, stored in BF16."""
    by_row = kernel.endswith("rowwise")
    left = cast(a, "e4m3" if by_row else "e5m2", by_row)
    return (left @ cast(b, "e4m3", by_row).T).bfloat16().float()


def forward_product(x: Tensor, weight: Tensor, kernel: str) -> Tensor:
    """x [m, k] times weight [n, k]^T, stored in BF16."""
    if kernel == BF16:
        return (x.bfloat16().float() @ weight.bfloat16().float().T).bfloat16().float()
    by_row = kernel.endswith("rowwise")
    return (cast(x, "e4m3", by_row) @ cast(weight, "e4m3", by_row).T).bfloat16().float()


class Backward(torch.autograd.Function):
    """A linear whose dx `wrong` may compute, and which keeps x and dy."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, bias: Tensor, seen: dict, wrong: Callable) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.seen, ctx.wrong = seen, wrong
        return x @ weight.T + bias

    @staticmethod
    def backward(ctx, dy: Tensor):
        x, weight = ctx.saved_tensors
        ctx.seen.update(x=x, dy=dy)
        rows, dy_rows = x.flatten(0, -2), dy.flatten(0, -2)
        dx = dy_rows @ weight if ctx.wrong is None else ctx.wrong(dy_rows, weight)
        return dx.view_as(x), dy_rows.T @ rows, dy_rows.sum(0), None, None


class Cross(nn.Module):
    """DCNv2: x0 * (W x) + x, where x and the gradient of W x depend on each other through x0."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x0: Tensor, x: Tensor) -> Tensor:
        return x0 * self.linear(x) + x


class Dlrm(nn.Module):
    """Raw counters into a bottom tower, embeddings by buckets of features, dot products of all of them, a top tower."""

    upstream = {"bottom.2": "bottom.0", "top.0": "bottom.2", "top.2": "top.0"}

    def __init__(self, features: int = 64, width: int = 32) -> None:
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, width))
        self.tables = nn.ModuleList([nn.Embedding(100, width) for _ in range(6)])
        self.top = nn.Sequential(nn.Linear(width + 16, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.head = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> Tensor:
        dense = self.bottom(x)
        buckets = (x[:, 10:16] * 25 + 50).long().clamp(0, 99)
        parts = torch.stack([dense, *(table(buckets[:, at]) for at, table in enumerate(self.tables))], 1)
        left, right = torch.triu_indices(7, 7, 1)[:, :16]
        dots = (parts @ parts.mT)[:, left, right]
        return self.head(self.top(torch.cat([dense, dots], 1))).squeeze(-1)


class Tower(nn.Module):
    """A tower on raw counters whose first norm is behind its first linear, then a residual."""

    upstream = {"first": "embed", "second": "first"}

    def __init__(self, features: int = 64, width: int = 96) -> None:
        super().__init__()
        self.embed, self.first, self.second = nn.Linear(features, width), nn.Linear(width, width), nn.Linear(width, width)
        self.norm, self.inner = nn.LayerNorm(width), nn.LayerNorm(width)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.nn.functional.silu(self.norm(self.embed(x)))
        return self.head(x + self.second(torch.nn.functional.gelu(self.inner(self.first(x))))).squeeze(-1)


class Ranker(nn.Module):
    """Cross layers and a tower of three, as rankers have them."""

    upstream = {"cross.1.linear": "cross.0.linear", "tower.0": "cross.1.linear", "tower.3": "tower.0", "tower.6": "tower.3"}

    def __init__(self, features: int = 64, width: int = 128) -> None:
        super().__init__()
        self.cross = nn.ModuleList([Cross(features) for _ in range(2)])
        self.tower = nn.Sequential(
            nn.Linear(features, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width),
            nn.SiLU(), nn.Linear(width, 64), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        crossed = x
        for layer in self.cross:
            crossed = layer(x, crossed)
        return self.head(self.tower(crossed)).squeeze(-1)


class Tokens(nn.Module):
    """Windows of the features as tokens: linears that all tokens of an example go through, and one across tokens, by feature."""

    upstream = {"inner": "embed"}

    def __init__(self, features: int = 64, width: int = 48) -> None:
        super().__init__()
        self.embed, self.inner = nn.Linear(16, width), nn.Linear(width, width)
        self.mix, self.top = nn.Linear(16, 16), nn.Linear(width, 64)
        self.place = nn.Parameter(torch.randn(16, width) * 0.3)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.nn.functional.silu(self.embed(x.unfold(1, 16, 3)[:, :16]) + self.place)
        tokens = self.norm(tokens + self.inner(tokens))
        tokens = tokens + torch.relu(self.mix(tokens.mT)).mT
        return self.head(torch.relu(self.top(tokens.mean(1)))).squeeze(-1)


MODELS = {"cross": Ranker, "dlrm": Dlrm, "tower": Tower, "tokens": Tokens}


def batches(count: int, batch: int, seed: int, features: int = 64):
    """Correlated features, a few of them heavy-tailed counters, and clicks that depend on products of them."""
    mix = torch.randn(features, features, generator=torch.Generator().manual_seed(1)) / features**0.5
    teacher = torch.randn(features, features, generator=torch.Generator().manual_seed(2)) / features
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        x = torch.randn(batch, features, generator=generator) @ mix
        x[:, :8] = torch.expm1(x[:, :8].abs() * 1.5)
        logit = ((x @ teacher) * x).sum(1).tanh() * 2 + x[:, 9] - 0.5
        yield x, (torch.rand(batch, generator=generator) < torch.sigmoid(logit)).float()


def train(model: nn.Module, steps: int, batch: int, trace: Path, history: str = "all") -> None:
    """By Adam; the last third of the steps is recorded."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    # history="all": what is recorded is one model already (below), and half of it would be half as many of the rare rows that decide.
    options = dict(every=2, save_every=10**6, cross_cov=True, held_out=32, heads=["head"], history=history)
    recorder = loka.Recorder(model, out=trace, name="noise", **options)

    def step(x: Tensor, y: Tensor, wrap: Callable) -> None:
        optimizer.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x), y)
        wrap(loss).backward()
        optimizer.step()

    data = list(batches(steps, batch, 3))
    first = 2 * steps // 3
    for x, y in data[:first]:
        step(x, y, lambda loss: loss)
    # A low learning rate: the recorded distribution is then that of one model.
    optimizer.param_groups[0]["lr"] = 1e-6
    with recorder:
        for x, y in data[first:]:
            step(x, y, recorder.loss)


class Swapped:
    """The model with `Backward` in place of its linears."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.seen: Dict[str, dict] = {name: {} for name, module in model.named_modules() if isinstance(module, nn.Linear)}
        self.wrong: Dict[str, Callable] = {}
        for name in self.seen:
            module = model.get_submodule(name)
            module.forward = self._forward(name, module)

    def _forward(self, name: str, module: nn.Linear) -> Callable:
        return lambda x: Backward.apply(x, module.weight, module.bias, self.seen[name], self.wrong.get(name))

    def run(self, x: Tensor, y: Tensor) -> Dict[str, Tuple[Tensor, Tensor]]:
        """x and each example's own dy of every site."""
        self.model.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(self.model(x), y, reduction="sum").backward()
        return {name: (by_example(of["x"]), by_example(of["dy"])) for name, of in self.seen.items()}


def by_example(rows: Tensor) -> Tensor:
    """[examples, rows of each, features]"""
    rows = rows.detach()
    return rows[:, None] if rows.dim() == 2 else rows.flatten(1, -2)


def noise_of(x: Tensor, dy: Tensor) -> float:
    """The noise of sum g x^T over the batch: m times the trace of one example's covariance, unbiased. x [m, rows of an example, k]."""
    m = len(x)
    x, dy = x.double(), dy.double()
    second = ((x @ x.mT) * (dy @ dy.mT)).sum((1, 2)).mean()
    mean = torch.einsum("btn,btk->nk", dy, x) / m
    some = torch.einsum("btn,btk->bnk", dy[:64], x[:64]).square().sum((1, 2)).mean()
    assert torch.allclose(some, ((x[:64] @ x[:64].mT) * (dy[:64] @ dy[:64].mT)).sum((1, 2)).mean())
    return float(m * (second - mean.square().sum()) * m / (m - 1))


class Means:
    """Errors of a gradient and the gradients, batch by batch."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: Tuple[Tensor, ...] = ()
        self.squares, self.product, self.noise = [0.0, 0.0], 0.0, 0.0

    def add(self, error: Tensor, gradient: Tensor, noise: float) -> None:
        both = (error, gradient)
        self.sums = both if not self.count else tuple(map(torch.add, self.sums, both))
        self.count += 1
        self.squares = [before + float(one.square().sum()) for before, one in zip(self.squares, both)]
        self.product += float((error * gradient).sum())
        self.noise += noise

    @property
    def slope(self) -> float:
        """Of the error on the gradient."""
        return self.product / self.squares[1]

    @property
    def share(self) -> float:
        """|E e|^2 of what the slope leaves of the error, over the noise of a batch; without what few batches make of it."""
        left, square = self.sums[0] - self.slope * self.sums[1], self._square_left()
        return (float(left.square().sum()) - square) / (self.count - 1) / self.noise

    @property
    def signal(self) -> float:
        """|E G|^2 over the noise of a batch, likewise."""
        return (float(self.sums[1].square().sum()) - self.squares[1]) / (self.count - 1) / self.noise

    def _square_left(self) -> float:
        return self.squares[0] - 2 * self.slope * self.product + self.slope**2 * self.squares[1]


Key = Tuple[str, str, str]


def measured(model: nn.Module, data: List, kernels: List[str]) -> Tuple[Dict[Key, float], Dict[Key, Means]]:
    """Noise shares and loss costs; and what stays of errors of gradients."""
    swapped = Swapped(model)
    upstream = model.upstream
    top: Dict[Key, float] = {}
    bottom: Dict[Key, float] = {}
    means: Dict[Key, Means] = {}

    def add(key: Key, error: float, noise: float) -> None:
        top[key], bottom[key] = top.get(key, 0.0) + error, bottom.get(key, 0.0) + noise

    def add_gradient(key: Key, error: Tensor, gradient: Tensor, noise: float) -> None:
        add(key, float(error.square().sum()), noise)
        means.setdefault(key, Means()).add(error, gradient, noise)

    for x, y in data:
        clean = swapped.run(x, y)
        noise = {name: noise_of(*pair) for name, pair in clean.items()}
        for kernel in kernels:
            for name, pair in clean.items():
                inputs, dy = (part.flatten(0, 1) for part in pair)
                if dy.shape[1] % 16:
                    continue
                weight = model.get_submodule(name).weight.detach()
                error = forward_product(inputs, weight, kernel).double() - inputs.double() @ weight.double().T
                # Of an example: its rows' together.
                costs = (error * dy.double()).view(*pair[1].shape).sum((1, 2))
                add((name, "fprop", kernel), 0.5 * float(costs.square().mean()), 1.0)
                if kernel == BF16:
                    continue
                gradient = dy.double().T @ inputs.double()
                error = product(dy.T.contiguous(), inputs.T.contiguous(), kernel).double() - gradient
                add_gradient((name, "wgrad", kernel), error, gradient, noise[name])
            for name, above in upstream.items() if kernel != BF16 else ():
                swapped.wrong = {name: lambda dy, weight: product(dy, weight.T.contiguous(), kernel)}
                changed = swapped.run(x, y)
                swapped.wrong = {}
                of_clean, of_changed = (torch.einsum("btn,btk->nk", of[above][1].double(), of[above][0].double()) for of in (clean, changed))
                add_gradient((name, "dgrad", kernel), of_changed - of_clean, of_clean, noise[above])
    return {key: top[key] / bottom[key] for key in top}, means


def predicted(binary: str, trace: Path, batch: int, kernels: List[str]) -> Dict[Key, Tuple[float, str]]:
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "probe", str(trace), "--out", f"{folder}/r.results.parquet", "--json", "--engine", "cpu", "--rows", str(batch)]
        command += [part for kernel in kernels for part in ("--kernels", kernel)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [row for row in map(json.loads, lines) if row.get("error")]
    found: Dict[Key, Tuple[float, str]] = {}
    for row in rows:
        noise, key = row["error"].get("noise"), (row["site"], row["gemm"], row["kernel"])
        if noise:
            found[key] = (noise["share"]["value"], noise["basis"])
        elif row["gemm"] == "fprop":
            found[key] = (row["error"]["loss_cost"]["value"], "loss cost")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Noise share: predicted by loka probe against measured from real gradients")
    parser.add_argument("loka")
    parser.add_argument("--model", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--history", choices=["all", "recent"], default="all", help="the Recorder's; its own default is recent")
    parser.add_argument("--out", type=Path, help="keep the traces in folders there")
    args = parser.parse_args()
    # Sums in the same order everywhere: on other numbers of threads another model comes of the same seed.
    torch.set_num_threads(1)
    kernels = ["cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise", BF16]
    ratios: Dict[str, List[float]] = {}
    for name in args.model:
        torch.manual_seed(0)
        model = MODELS[name]()
        with tempfile.TemporaryDirectory() as folder:
            out = (args.out or Path(folder)) / name
            train(model, args.steps, args.batch, out, args.history)
            trace = next(out.glob("*.trace.safetensors"), out)
            found, means = measured(model, list(batches(args.batches, args.batch, 9)), kernels)
            wanted = predicted(args.loka, trace, args.batch, kernels)
        print(f"{name}\n{'site':<16} {'gemm':<6} {'kernel':<24} {'measured':>10} {'predicted':>10} {'ratio':>6}")
        for key, value in sorted(found.items()):
            share, basis = wanted[key]
            ratios.setdefault("loss cost" if key[1] == "fprop" else key[1], []).append(share / value)
            print(f"{key[0]:<16} {key[1]:<6} {key[2]:<24} {value:>10.3e} {share:>10.3e} {share / value:>6.2f}  {basis}", flush=True)
        print_means(means, found)
    print(f"\npredicted over measured, {', '.join(args.model)}: GEMMs x kernels")
    for figure, all_of in sorted(ratios.items()):
        print(summary(figure, all_of))


def print_means(means: Dict[Key, Means], shares: Dict[Key, float]) -> None:
    """What stays of each error; `signal`: the gradient's own mean, in the same unit."""
    print(f"\n{'site':<16} {'gemm':<6} {'kernel':<24} {'slope':>10} {'stays':>10} {'of share':>9} {'signal':>9} {'stays/signal':>13}")
    for key, of in sorted(means.items()):
        told = f"{of.slope:>10.1e} {of.share:>10.1e} {of.share / shares[key]:>9.3f} {of.signal:>9.2e} {of.share / of.signal:>13.1e}"
        print(f"{key[0]:<16} {key[1]:<6} {key[2]:<24} {told}", flush=True)
    print()


def summary(figure: str, ratios: List[float]) -> str:
    """In one line; noise shares by the 25 % that is asked of them, loss costs by factors."""
    bounds = {"a factor of 2": 2.0, "4": 4.0} if figure == "loss cost" else {"25 %": 1.25}
    within = ", ".join(f"{sum(1 / most <= one <= most for one in ratios)} within {bound}" for bound, most in bounds.items())
    return f"{figure}: {len(ratios)}, median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}, {within}"


if __name__ == "__main__":
    main()
