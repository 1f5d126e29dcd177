"""Many kinds of models and of training loops, all small: each is recorded, probed, planned with every GEMM in FP8 that can be, and
trained by that plan and in BF16. What is looked for is what breaks, not what is fast.

    python benches/training/kinds.py --loka target/debug/loka                      # on a CPU by emulation, on a GPU by its kernels
    python benches/training/kinds.py --loka target/debug/loka --only experts,two-views --mode reduce-overhead

One line a kind; ends with 1 where any fails: an error, a GEMM that the canary calls off, a loss away from BF16's.
"""

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import loka

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, WIDTH, STEPS = 128, 64, 12
KERNEL = "cublaslt/fp8-delayed"
APART = 0.05
"""How far the last step's loss may be from BF16's, of BF16's first."""

Batch = Tuple[Tuple[Tensor, ...], Tensor]


def batch(step: int, rows: int = ROWS) -> Batch:
    """x [rows, 64] and a click a row."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(rows, WIDTH, generator=generator)
    return (x.to(DEVICE),), (torch.rand(rows, generator=generator) > 0.5).float().to(DEVICE)


def with_ids(step: int, ids: int = 500, each: int = 3) -> Batch:
    (x,), clicks = batch(step)
    return (x, torch.randint(0, ids, (ROWS, each), generator=torch.Generator().manual_seed(step)).to(DEVICE)), clicks


def click_loss(out: Any, clicks: Tensor) -> Tensor:
    """Of logits, or of all of several tasks."""
    tasks = out if isinstance(out, (list, tuple)) else [out]
    return torch.stack([F.binary_cross_entropy_with_logits(task.float().flatten(), clicks) for task in tasks]).sum()


def in_batch(out: Tensor, _clicks: Tensor) -> Tensor:
    return F.cross_entropy(out.float(), torch.arange(len(out), device=out.device))


class Loop:
    """One training loop. `run` is the model as it is called, compiled or not."""

    def __init__(
        self, kind: "Kind", model: nn.Module, run: Callable[..., Any], recorder: Optional[Any], by_plan: bool
    ) -> None:
        self.kind, self.model, self.run, self.recorder, self.by_plan = kind, model, run, recorder, by_plan
        self.losses: List[float] = []

    def forward(self, step: int) -> Tensor:
        inputs, clicks = self.kind.batch(step)
        with torch.autocast(DEVICE, self.kind.autocast or torch.bfloat16, enabled=self.kind.autocast is not None):
            out = self.kind.call(self.run, *inputs)
        loss = self.kind.loss(out, clicks)
        self.losses.append(float(loss.detach()))
        return loss if self.recorder is None else self.recorder.loss(loss)


def plain(loop: Loop) -> None:
    optimizer = torch.optim.AdamW(loop.model.parameters(), lr=1e-3)
    for step in range(STEPS):
        loop.forward(step).backward()
        nn.utils.clip_grad_norm_(loop.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def accumulated(loop: Loop) -> None:
    optimizer = torch.optim.AdamW(loop.model.parameters(), lr=1e-3)
    for step in range(STEPS):
        for part in range(2):
            (loop.forward(2 * step + part) / 2).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def scaled(loop: Loop) -> None:
    optimizer, scaler = torch.optim.AdamW(loop.model.parameters(), lr=1e-3), torch.amp.GradScaler(DEVICE)
    for step in range(STEPS):
        scaler.scale(loop.forward(step)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def lbfgs(loop: Loop) -> None:
    optimizer = torch.optim.LBFGS(loop.model.parameters(), lr=0.02, max_iter=2)
    for step in range(STEPS // 3):

        def closure(step: int = step) -> Tensor:
            optimizer.zero_grad()
            loss = loop.forward(step)
            loss.backward()
            return loss.detach()

        optimizer.step(closure)


def perturbed(loop: Loop) -> None:
    """Sharpness-aware minimisation by hand."""
    optimizer = torch.optim.SGD(loop.model.parameters(), lr=0.05)
    for step in range(STEPS):
        loop.forward(step).backward()
        moved = [(each, 0.01 * each.grad) for each in loop.model.parameters() if each.grad is not None]
        with torch.no_grad():
            for each, by in moved:
                each.add_(by)
        optimizer.zero_grad()
        loop.forward(step).backward()
        with torch.no_grad():
            for each, by in moved:
                each.sub_(by)
        optimizer.step()
        optimizer.zero_grad()


def within_the_backward(loop: Loop) -> None:
    for parameter in loop.model.parameters():
        each = torch.optim.Adam([parameter], lr=1e-3)
        parameter.register_post_accumulate_grad_hook(lambda _, each=each: each.step() or each.zero_grad())
    for step in range(STEPS):
        loop.forward(step).backward()


def sparse_and_dense(loop: Loop) -> None:
    sparse = [module.weight for module in loop.model.modules() if isinstance(module, nn.EmbeddingBag)]
    dense = [each for each in loop.model.parameters() if all(each is not other for other in sparse)]
    optimizers = torch.optim.SparseAdam(sparse), torch.optim.AdamW(dense)
    for step in range(STEPS):
        loop.forward(step).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def no_optimizer(loop: Loop) -> None:
    for step in range(STEPS):
        loop.forward(step).backward()
        with torch.no_grad():
            for parameter in loop.model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad
                    parameter.grad = None
        if loop.recorder is not None:
            loop.recorder.step()
        elif loop.by_plan:
            loka.step(loop.model)


def averaged(loop: Loop) -> None:
    average = torch.optim.swa_utils.AveragedModel(loop.model)
    optimizer = torch.optim.AdamW(loop.model.parameters(), lr=1e-3)
    for step in range(STEPS):
        loop.forward(step).backward()
        optimizer.step()
        optimizer.zero_grad()
        average.update_parameters(loop.model)
        with torch.inference_mode():
            average.eval()(*loop.kind.batch(step)[0])


def taught(loop: Loop) -> None:
    teacher = copy.deepcopy(loop.model).requires_grad_(False)
    optimizer = torch.optim.AdamW(loop.model.parameters(), lr=1e-3)
    for step in range(STEPS):
        with torch.no_grad(), torch.autocast(DEVICE, torch.bfloat16):
            teacher(*loop.kind.batch(step)[0])
        loop.forward(step).backward()
        optimizer.step()
        optimizer.zero_grad()


@dataclass
class Kind:
    """One model and how it is trained. `compiled`: "", "whole", "parts", its children each by itself, or "dynamic", whole for any
    batch."""

    model: Callable[[], nn.Module]
    compiled: str = ""
    train: Callable[[Loop], None] = plain
    batch: Callable[[int], Batch] = batch
    loss: Callable[[Any, Tensor], Tensor] = click_loss
    autocast: Optional[torch.dtype] = torch.bfloat16
    call: Callable[..., Any] = lambda run, *inputs: run(*inputs)


def mlp(*widths: int) -> nn.Sequential:
    layers = [layer for k, n in zip(widths, widths[1:]) for layer in (nn.Linear(k, n), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def ranker() -> nn.Sequential:
    return mlp(WIDTH, 128, 128, 1)


class LowRankCross(nn.Module):
    """As torchrec's: kernels in lists, read by F.linear."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ParameterList([nn.Parameter(torch.randn(32, WIDTH) / 8) for _ in range(2)])
        self.up = nn.ParameterList([nn.Parameter(torch.randn(WIDTH, 32) / 6) for _ in range(2)])
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, first: Tensor) -> Tensor:
        x = first
        for down, up in zip(self.down, self.up):
            x = first * F.linear(F.linear(x, down), up) + x
        return self.head(x)


class Matmuls(nn.Module):
    """x @ w, of a square one and of another."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.randn(WIDTH, WIDTH) / 8), nn.Parameter(torch.randn(WIDTH, 128) / 8)
        self.head = nn.Linear(128, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(torch.mm(F.relu(x @ self.first), self.second)))


class Experts(nn.Module):
    """Data chooses the rows of each."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 1)
        self.experts = nn.ModuleList([mlp(WIDTH, 128, WIDTH) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        chance, chosen = self.gate(x).softmax(-1).max(-1)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (chosen == number).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, (expert(x[rows]) * chance[rows, None]).to(out.dtype))
        return self.head(out)


class Tasks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleDict({name: mlp(WIDTH, 128, WIDTH) for name in ("a", "b", "shared")})
        self.towers = nn.ModuleDict({name: mlp(WIDTH, WIDTH, 1) for name in ("a", "b")})

    def forward(self, x: Tensor) -> List[Tensor]:
        shared = self.experts["shared"](x)
        return [self.towers[name](self.experts[name](x) + shared) for name in ("a", "b")]


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.top = nn.EmbeddingBag(500, WIDTH, sparse=True, mode="sum"), mlp(2 * WIDTH, 128, 1)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return self.top(torch.cat([x, self.bag(ids)], 1))


class History(nn.Module):
    """Attention over a history, its projections linears."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(500, 32)
        self.query, self.key, self.value = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, WIDTH)
        self.top = mlp(2 * WIDTH, 128, 1)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        items = self.items(ids)
        seen = (self.query(items) @ self.key(items).transpose(1, 2) / 6).softmax(-1) @ self.value(items)
        return self.top(torch.cat([x, seen.mean(1)], 1))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x.view(-1, 4, 16)).flatten(1))


class Attention(nn.Module):
    """Attention over a history, its padding masked, and of the last item over it: of three kinds of PyTorch's attention."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(500, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.1, batch_first=True)
        self.last, self.apart = nn.MultiheadAttention(WIDTH, 4), nn.MultiheadAttention(WIDTH, 4, kdim=32, vdim=32, batch_first=True)
        self.top = mlp(2 * WIDTH, 128, 1)

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        items = self.layer(self.items(ids), src_key_padding_mask=F.pad(ids[:, 1:] < 100, (1, 0)))
        first = items.transpose(0, 1)
        items = items + self.apart(items, items[..., :32], items[..., 32:], need_weights=False)[0]
        seen, weights = self.last(first[-1:], first, first)
        return self.top(torch.cat([x + seen[0] + (weights @ items)[:, 0], items.mean(1)], 1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.top = nn.GRU(16, 32, batch_first=True), mlp(32, 128, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.top(self.cell(x.view(-1, 4, 16))[0][:, -1])


class Again(nn.Module):
    """One layer three times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.top = nn.Linear(WIDTH, WIDTH), mlp(WIDTH, 128, 1)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = F.silu(self.layer(x)) + x
        return self.top(x)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = mlp(WIDTH, 128, 128), nn.Linear(128, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(checkpoint(self.inner, x, use_reentrant=False)))


class Broken(nn.Module):
    """A graph that breaks, and a number that goes to the host."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(WIDTH, 128), nn.Linear(128, 128), nn.Linear(128, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = F.relu(self.second(x if float(x.detach().float().sum()) > 0 else 2 * x))
        torch._dynamo.graph_break()
        return self.head(x)


class Adapted(nn.Module):
    """Frozen, with a low-rank path beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(WIDTH, 128).requires_grad_(False)
        self.down, self.up, self.head = nn.Linear(WIDTH, 16, bias=False), nn.Linear(16, 128, bias=False), nn.Linear(128, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.base(x) + self.up(self.down(x))))


class Unused(nn.Module):
    """A tower that is frozen, run without gradients, and a head for another task, which does not run."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen, self.top, self.other = mlp(WIDTH, 128, WIDTH).requires_grad_(False), mlp(2 * WIDTH, 128, 1), mlp(2 * WIDTH, 64, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            known = self.frozen(x)
        return self.top(torch.cat([x, known], 1))


def activated() -> nn.Module:
    """What may follow a linear, dropouts and sequences within sequences among them."""
    inner = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, 256), nn.Hardswish())
    block = nn.Sequential(nn.Linear(256, 256, bias=False), loka.mods.BlockNorm(256), nn.Hardswish())
    return nn.Sequential(nn.Linear(WIDTH, 128), nn.SiLU(), inner, block, nn.Linear(256, 64), nn.ReLU(), nn.Identity(), nn.Linear(64, 1))


def normed() -> nn.Module:
    """Norms over whole rows, before an activation and alone."""
    first = [nn.Linear(WIDTH, 128), nn.LayerNorm(128), nn.SiLU(), nn.Linear(128, 96), nn.RMSNorm(96), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(*first, nn.Linear(96, 64), nn.LayerNorm(64), nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 1))


class SwiGlu(nn.Module):
    """A gated block, of SiLU or whatever else."""

    def __init__(self, k: int, hidden: int, n: int, gate: Callable[[], nn.Module] = nn.SiLU, bias: bool = False) -> None:
        super().__init__()
        self.w1, self.w3, self.w2 = (nn.Linear(*sizes, bias=bias) for sizes in ((k, hidden), (k, hidden), (hidden, n)))
        self.gate, self.drop = gate(), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.w2(self.drop(self.gate(self.w1(x)) * self.w3(x)))
        return h


def gated() -> nn.Module:
    return nn.Sequential(SwiGlu(WIDTH, 128, 96), SwiGlu(96, 128, 64, nn.Sigmoid, bias=True), nn.Linear(64, 1))


def normalised() -> nn.Module:
    model = ranker()
    nn.utils.parametrizations.spectral_norm(model[0])
    nn.utils.parametrizations.weight_norm(model[2])
    return model


def similar(run: Callable[..., Tensor], x: Tensor) -> Tensor:
    """Two views of each row by one tower, called twice."""
    first, second = F.normalize(run(x), dim=-1), F.normalize(run(x.roll(1, 1)), dim=-1)
    return first @ second.t() / 0.1


def ragged(step: int) -> Batch:
    return batch(step, (128, 128, 1, 7, 128, 64, 128, 0, 128, 33, 128, 128)[step % 12])


def summed(out: Tensor, clicks: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(out.float().flatten(), clicks, reduction="sum") / ROWS


WHOLE, PARTS, DYNAMIC = "whole", "parts", "dynamic"
KINDS: Dict[str, Kind] = {
    "mlp": Kind(ranker),
    "mlp-compiled": Kind(ranker, WHOLE),
    "parts-compiled": Kind(lambda: nn.Sequential(mlp(WIDTH, 128, 128), nn.ReLU(), nn.Linear(128, 1)), PARTS),
    "fp32": Kind(ranker, autocast=None),
    "fp16-scaler": Kind(ranker, train=scaled, autocast=torch.float16),
    "accumulated": Kind(ranker, WHOLE, accumulated),
    "lbfgs": Kind(ranker, train=lbfgs),
    "sharpness": Kind(ranker, train=perturbed),
    "within-the-backward": Kind(ranker, train=within_the_backward),
    "within-the-backward-compiled": Kind(ranker, WHOLE, within_the_backward),
    "no-optimizer": Kind(ranker, train=no_optimizer),
    "averaged": Kind(ranker, train=averaged),
    "taught": Kind(ranker, WHOLE, taught),
    "ragged": Kind(ranker, batch=ragged, loss=summed),
    "ragged-compiled": Kind(ranker, WHOLE, batch=ragged, loss=summed),
    "ragged-dynamic": Kind(ranker, DYNAMIC, batch=ragged, loss=summed),
    "two-views": Kind(lambda: mlp(WIDTH, 128, WIDTH), loss=in_batch, call=similar),
    "two-views-compiled": Kind(lambda: mlp(WIDTH, 128, WIDTH), WHOLE, loss=in_batch, call=similar),
    "cross": Kind(LowRankCross),
    "cross-compiled": Kind(LowRankCross, WHOLE),
    "matmuls": Kind(Matmuls),
    "matmuls-compiled": Kind(Matmuls, WHOLE),
    "experts": Kind(Experts),
    "experts-compiled": Kind(Experts, WHOLE),
    "tasks": Kind(Tasks, WHOLE),
    "bags": Kind(Bags, train=sparse_and_dense, batch=with_ids),
    "history": Kind(History, WHOLE, batch=with_ids),
    "encoder": Kind(Encoder),
    "encoder-compiled": Kind(Encoder, WHOLE),
    "attention": Kind(Attention, batch=with_ids),
    "attention-compiled": Kind(Attention, WHOLE, batch=with_ids),
    "recurrent": Kind(Recurrent),
    "again": Kind(Again),
    "again-compiled": Kind(Again, WHOLE),
    "checkpointed": Kind(Checkpointed),
    "checkpointed-compiled": Kind(Checkpointed, WHOLE),
    "graph-breaks": Kind(Broken, WHOLE),
    "activated": Kind(activated),
    "activated-compiled": Kind(activated, WHOLE),
    "gated": Kind(gated),
    "gated-compiled": Kind(gated, WHOLE),
    "normed": Kind(normed),
    "normed-compiled": Kind(normed, WHOLE),
    "unused": Kind(Unused),
    "unused-compiled": Kind(Unused, WHOLE),
    "adapted": Kind(Adapted),
    "parametrized": Kind(normalised),
}


def trained(
    kind: Kind, model: nn.Module, mode: Optional[str], recorder: Optional[Any] = None, by_plan: bool = False
) -> List[float]:
    run: Callable[..., Any] = model
    if kind.compiled in (WHOLE, DYNAMIC):
        run = torch.compile(model, mode=mode, dynamic=True if kind.compiled == DYNAMIC else None)
    elif kind.compiled == PARTS:
        for child in model.children():
            child.compile(mode=mode)
    loop = Loop(kind, model, run, recorder, by_plan)
    kind.train(loop)
    return loop.losses


def fresh(kind: Kind) -> nn.Module:
    torch._dynamo.reset()
    torch.manual_seed(0)
    return kind.model().to(DEVICE)


def planned(program: str, trace: Path, folder: Path) -> Path:
    """A plan with the kernel at every GEMM that it can run, but for sites that no kernel can be put under."""
    results, plan = folder / "k.results.parquet", folder / "k.plan.json"
    engine = "cuda" if DEVICE == "cuda" else "cpu"
    said = _called(program, "probe", str(trace), "--out", str(results), "--engine", engine, "--max-draws", "16",
                   "--kernels", "cublaslt/*", "--json")  # fmt: skip
    rows = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
    sites = {site["id"]: site for site in _manifest(trace)["sites"]}
    fits = (row for row in rows if row.get("kernel") == KERNEL and row["supported"] and not row["mods"])
    free = (row for row in fits if sites[row["site"]].get("forward") not in ("own", "parameter"))
    overrides = [part for row in free for part in ("--override", f"{row['site']}:{row['gemm']}={KERNEL}")]
    _called(program, "plan", str(results), "--out", str(plan), *overrides)
    return plan


def _manifest(trace: Path) -> Dict[str, Any]:
    with open(trace, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    manifest: Dict[str, Any] = json.loads(header["__metadata__"]["loka.trace"])
    return manifest


def _called(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:2])}: {done.stderr.strip()[-400:]}")
    return done.stdout


def judged(kind: Kind, program: str, mode: Optional[str], folder: Path) -> Tuple[str, List[str]]:
    """What came of it, and what is wrong with it."""
    model = fresh(kind)
    with loka.Recorder(model, out=folder, name="k", every=2) as recorder:
        trained(kind, model, mode, recorder)
    str(recorder.report())
    plan = planned(program, recorder.path, folder)
    model = fresh(kind)
    loka.apply(model, plan, emulate=DEVICE == "cpu")
    losses = trained(kind, model, mode, by_plan=True)
    health = loka.health(model)
    bf16 = trained(kind, fresh(kind), mode)
    off = [f"{row.site} {row.gemm} {row.verdict}" for row in health.rows if row.verdict.startswith("off")]
    wrong = [f"off: {', '.join(off)}"] if off else []
    if not abs(losses[-1] - bf16[-1]) <= APART * abs(bf16[0]):
        wrong.append(f"last loss {losses[-1]:.4f}, BF16 {bf16[-1]:.4f}")
    if not any(row.verdict == "ok" or row.verdict.startswith("above") for row in health.rows):
        wrong.append("nothing was checked")
    return f"{len(recorder.sites)} sites, {str(health).splitlines()[-1]}, loss {losses[-1]:.4f} (BF16 {bf16[-1]:.4f})", wrong


def results(names: List[str], program: str, mode: Optional[str]) -> Iterator[bool]:
    for name in names:
        try:
            with tempfile.TemporaryDirectory() as folder:
                said, wrong = judged(KINDS[name], program, mode, Path(folder))
        except Exception as error:  # Each kind by itself: the others go on.
            last = traceback.extract_tb(error.__traceback__)[-1]
            said, wrong = "", [f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {str(error)[:300]}"]
        print(f"{'ok  ' if not wrong else 'FAIL'}  {name:30} {'; '.join([*wrong, said])}", flush=True)
        yield not wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Record, probe, plan, apply and train many kinds of models.")
    parser.add_argument("--loka", required=True, help="the program")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, with commas between them")
    parser.add_argument("--mode", help="torch.compile's, such as reduce-overhead")
    parser.add_argument("--warnings", action="store_true", help="show them")
    args = parser.parse_args()
    unknown = [name for name in args.only.split(",") if name not in KINDS]
    if unknown:
        parser.error(f"unknown kinds: {', '.join(unknown)} (there are {', '.join(KINDS)})")
    if not args.warnings:
        warnings.simplefilter("ignore")
    good = list(results(args.only.split(","), args.loka, args.mode))
    print(f"{sum(good)} of {len(good)} kinds")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
