"""A training step in BF16, by a plan whose linears run apart, and by one whose linears hand codes on.

    python benches/training/handed.py [--model 5.6G] [--turns 6] [--profile]       # a GPU
    python benches/training/handed.py --model relu
    python benches/training/handed.py --model tiny --cpu --turns 1                  # emulated: times mean nothing

`5.6G`, `2.1G`, `tiny`: public Wukong with the Mods, the interaction stack alone, on random embeddings. `relu`, `silu`, `gelu`: an MLP as
most are written, with biases and without a norm, 2,048-4,096-4,096-2,048-1,024, batch 32,768 or `--batch`. `layer_norm`, `rms_norm`: the same
with such a norm over whole rows in front of each SiLU. `swiglu`: two gated blocks without biases, 2,048-4,096-2,048-4,096-1,024. `tanh`:
what no linear runs as one with. FP32 parameters under BF16 autocast,
torch.compile, mean loss, Adam (fused). The plan is all linears but the head's by `cublaslt/fp8-delayed`, wgrad promoted. First,
gradients of three blocks in the third step against BF16's and against the blocks apart. Then milliseconds a step, launched, in turns in
one process, whole and without the optimizer, and memory; with --profile GPU time by kernel.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time
import types
from typing import Callable, Dict, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).resolve().parent)]

import torch
from torch import Tensor, nn

import loka
from loka.names import linears
from loka.plans.canonical import digest_of
from loka.plans.document import BESIDE
from public_wukong import PUBLIC_SHAPES, PublicWukong

SOURCE = ROOT / "docs" / "evidence" / "h200-wukong-2.1G.plan.json"
FAST, PROMOTED, BF16 = "cublaslt/fp8-delayed+fast", "cublaslt/fp8-delayed", "cublaslt/bf16"
MODS = ["block_norm", "hard_swish", "no_bias"]
ARMS = ("bf16", "apart", "handed")
STEPS_A_TURN = 10
MLPS: Dict[str, Callable[[int], List[nn.Module]]] = {
    "relu": lambda n: [nn.ReLU()], "silu": lambda n: [nn.SiLU()], "gelu": lambda n: [nn.GELU()], "tanh": lambda n: [nn.Tanh()],
    "layer_norm": lambda n: [nn.LayerNorm(n), nn.SiLU()], "rms_norm": lambda n: [nn.RMSNorm(n), nn.SiLU()],
}  # fmt: skip
"""What follows a linear of n columns."""
WIDTHS = (2048, 4096, 4096, 2048, 1024)
GATED, GATED_WIDTHS = "swiglu", ((2048, 4096, 2048), (2048, 4096, 1024))
MLP_BATCH = 32_768


def planned(model: nn.Module, arm: str, emulate: bool, head: str = "top") -> int:
    """Applies the plan of that arm; how many linears, or pairs of them, run as one with what follows."""
    if arm == "bf16":
        return 0
    document = json.loads(SOURCE.read_text(encoding="utf-8"))
    first, document["sites"] = document["sites"][0], []
    for name, module in linears(model):
        site = json.loads(json.dumps({**first, "site": name, "k": module.in_features, "n": module.out_features}))
        fits = module.in_features % 16 == 0 and module.out_features % 16 == 0 and not name.startswith(head)
        for gemm, kernel in (("fprop", FAST), ("dgrad", FAST), ("wgrad", PROMOTED)):
            site[gemm]["kernel"] = kernel if fits else BF16
        document["sites"].append(site)
    document["digest"] = digest_of({key: value for key, value in document.items() if key not in BESIDE})
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "all.plan.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        loka.apply(model, path, mods="ignore", emulate=emulate, on_slow_host="warn")
    links = [vars(module).pop("_loka_links", {}) if arm == "apart" else vars(module).get("_loka_links", {}) for module in model.modules()]
    return 0 if arm == "apart" else sum(len(row) for rows in links for row in rows.values())


class Arm:
    """A model, compiled by code objects of its own, and its optimizer."""

    def __init__(self, name: str, kind_of_model: str, device: str) -> None:
        torch.manual_seed(0)
        model = made(kind_of_model)
        self.model, kind = model.to(device), type(model)
        code = kind.forward.__code__.replace(co_name=f"forward_{name}")
        own = types.FunctionType(code, kind.forward.__globals__, "forward", None, kind.forward.__closure__)
        self.model.__class__ = type(kind.__name__, (kind,), {"forward": own})
        self.readers = planned(self.model, name, device == "cpu")
        self.run = torch.compile(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-4, fused=True)
        self.device, self.losses, self.ms, self.host_ms, self.dense_ms = device, [], [], [], []
        self.megabytes = 0

    def step(self, x: Tensor, y: Tensor, trains: bool = True) -> None:
        with torch.autocast(self.device, dtype=torch.bfloat16):
            loss = nn.functional.binary_cross_entropy_with_logits(self.run(x).float(), y)
        loss.backward()
        if trains:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        x.grad = None
        self.losses.append(loss.detach())

    def turn(self, inputs: List[Tensor], y: Tensor) -> None:
        for x in inputs:
            self.step(x, y)
        wait(self.device)
        begin = time.perf_counter()
        for at in range(STEPS_A_TURN):
            self.step(inputs[at % len(inputs)], y)
        self.host_ms.append((time.perf_counter() - begin) * 1e3 / STEPS_A_TURN)
        wait(self.device)
        self.ms.append((time.perf_counter() - begin) * 1e3 / STEPS_A_TURN)
        begin = time.perf_counter()
        for at in range(STEPS_A_TURN):
            self.step(inputs[at % len(inputs)], y, trains=False)
        wait(self.device)
        self.dense_ms.append((time.perf_counter() - begin) * 1e3 / STEPS_A_TURN)


class SwiGlu(nn.Module):
    def __init__(self, k: int, hidden: int, n: int) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(k, hidden, bias=False), nn.Linear(k, hidden, bias=False)
        self.w2 = nn.Linear(hidden, n, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))
        return y


class Mlp(nn.Module):
    def __init__(self, parts: List[nn.Module]) -> None:
        super().__init__()
        self.mlp, self.top = nn.Sequential(*parts), nn.Linear(WIDTHS[-1], 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.top(self.mlp(x)).squeeze(-1)
        return y


def made(kind: str) -> nn.Module:
    if kind == GATED:
        return Mlp([SwiGlu(*widths) for widths in GATED_WIDTHS])
    if kind in MLPS:
        return Mlp([part for k, n in zip(WIDTHS, WIDTHS[1:]) for part in (nn.Linear(k, n), *MLPS[kind](n))])
    model = PublicWukong(PUBLIC_SHAPES[kind])
    loka.mods.apply(model, MODS, keep=["top"], everywhere=True)
    return model


def drawn(kind: str, device: str, batch: int = MLP_BATCH) -> Tensor:
    """A batch; of an MLP, of that many rows."""
    shape = PUBLIC_SHAPES.get(kind)
    sizes = (batch, WIDTHS[0]) if shape is None else (shape.batch, shape.tokens, shape.dim)
    return torch.randn(*sizes, device=device, requires_grad=True)


def most_of(run: Callable[[], None], device: str) -> int:
    """Megabytes that a call takes at most beside what is there."""
    if device != "cuda":
        return 0
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    return (torch.cuda.max_memory_allocated() - before) // 2**20


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def gradients(arm: str, device: str, rows: int, kind: str, compiled: bool = True) -> List[Tensor]:
    """Of three linears of 512, each with what follows it, or as many gated blocks, and a linear behind them, in the third step."""
    torch.manual_seed(1)
    torch._dynamo.reset()
    parts: List[nn.Module] = []
    for _ in range(3):
        if kind == GATED:
            parts += [SwiGlu(512, 512, 512)]
        elif kind in MLPS:
            parts += [nn.Linear(512, 512), *MLPS[kind](512)]
        else:
            parts += [nn.Linear(512, 512, bias=False), loka.mods.BlockNorm(512), nn.Hardswish()]
    model = nn.Sequential(*parts, nn.Linear(512, 16)).to(device)
    planned(model, arm, device == "cpu", "none")
    run, optimizer = torch.compile(model) if compiled else model, torch.optim.SGD(model.parameters(), 1e-3)
    for step in range(3):
        generator = torch.Generator(device).manual_seed(step)
        x = torch.randn(rows, 512, device=device, generator=generator, requires_grad=True)
        weights = torch.randn(rows, 16, device=device, generator=generator)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = (run(x).float() * weights).mean()
        loss.backward()
        if step < 2:
            optimizer.step()
            optimizer.zero_grad()
    return [each for each in (x.grad, *(parameter.grad for parameter in model.parameters())) if each is not None]


def compare(device: str, rows: int, kind: str) -> None:
    found = {arm: gradients(arm, device, rows, kind) for arm in ARMS}
    found["handed, eager"] = gradients("handed", device, rows, kind, False)
    apart = lambda one, other: " ".join(f"{float((a - b).norm() / b.norm()):.4f}" for a, b in zip(one, other))
    for arm in found:
        print(f"gradients of x and of each parameter, {arm}: rel L2 {apart(found[arm], found['bf16'])} from BF16's, "
              f"{apart(found[arm], found['apart'])} from those apart", flush=True)  # fmt: skip
    torch._dynamo.reset()


def profile(arm: Arm, inputs: List[Tensor], y: Tensor, steps: int = 3) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    with profiled(activities=[ProfilerActivity.CUDA]) as seen:
        for at in range(steps):
            arm.step(inputs[at % len(inputs)], y)
        wait(arm.device)
    rows = [(event.self_device_time_total / steps, event.count / steps, event.key) for event in seen.key_averages()]
    rows = sorted((row for row in rows if row[0]), reverse=True)
    print(f"{sum(row[0] for row in rows):.0f} us of GPU time a step, {sum(row[1] for row in rows):.0f} launches")
    for us, count, name in rows[:24]:
        print(f"{us:9.1f} {count:6.1f} {name[:140]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*PUBLIC_SHAPES, *MLPS, GATED], default="5.6G")
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--batch", type=int, default=MLP_BATCH, help="rows of an MLP")
    parser.add_argument("--cpu", action="store_true", help="emulated")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    device = "cpu" if options.cpu else "cuda"
    compare(device, 256 if options.cpu else 4096, options.model)
    inputs = [drawn(options.model, device, options.batch) for _ in range(2)]
    y = (torch.rand(inputs[0].shape[0], device=device) < 0.4).float()
    arms: Dict[str, Arm] = {name: Arm(name, options.model, device) for name in ARMS}
    print(f"{arms['handed'].readers} linears, or pairs of them, run as one with what follows")
    for name, arm in arms.items():
        begin = time.perf_counter()
        for at in range(6):
            arm.step(inputs[at % 2], y)
        wait(device)
        print(f"{name}: {time.perf_counter() - begin:.1f} s for the first six steps", flush=True)
        arm.megabytes = most_of(lambda: arm.step(inputs[0], y), device)
    for turn in range(options.turns):
        for arm in list(arms.values())[:: 1 if turn % 2 == 0 else -1]:
            arm.turn(inputs, y)
    base, dense_base = statistics.median(arms["bf16"].ms), statistics.median(arms["bf16"].dense_ms)
    for name, arm in arms.items():
        times = " ".join(f"{ms:.2f}" for ms in arm.ms)
        middle, dense = statistics.median(arm.ms), statistics.median(arm.dense_ms)
        loss = float(torch.stack(arm.losses[-STEPS_A_TURN:]).mean())
        print(f"{name:6}  {middle:.2f} ms a step ({times}), {base / middle:.3f}x; without the optimizer {dense:.2f}, {dense_base / dense:.3f}x; "
              f"host {statistics.median(arm.host_ms):.1f}; loss {loss:.5f}; {arm.megabytes} MB at most in a step")  # fmt: skip
    for name in ARMS if options.profile and not options.cpu else ():
        print(f"== {name}")
        profile(arms[name], inputs, y)


if __name__ == "__main__":
    main()
