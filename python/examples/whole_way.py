"""The whole way on one model: record, probe, plan by the default policy, apply, train on; what was promised, what came.

    python python/examples/whole_way.py OUT [--steps 400]

A mixture of experts with two tasks, FP32 parameters under BF16 autocast, torch.compile, Adam, mean loss. On a GPU every
site is timed by this Python's PyTorch, a few minutes in all; on a CPU the model is a sixteenth as wide, so
small that no GEMM gains by FP8 and the plan leaves all in BF16: it shows the way, not a gain. Needs `loka`, the program: `LOKA_BIN`, on PATH, or built in the checkout that the
package is in.
"""

import argparse
import time
from pathlib import Path
from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import loka

RECORDED_STEPS, EVERY = 60, 10


class Expert(nn.Module):
    """x [m, width] to the same, by way of a wider layer with batch norm."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.down(functional.gelu(self.norm(self.up(x)))))


class TwoTasks(nn.Module):
    """Three experts, mixed by a gate a task, and a tower a task: logits [m, 2]."""

    TABLES, IDS = 15, 1000

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        part = width // (self.TABLES + 1)
        self.tables = nn.ModuleList([nn.Embedding(self.IDS, part) for _ in range(self.TABLES)])
        self.dense = nn.Linear(32, part)
        self.experts = nn.ModuleList([Expert(width, hidden) for _ in range(3)])
        self.gates = nn.ModuleList([nn.Linear(width, 3) for _ in range(2)])
        self.towers = nn.ModuleList([
            nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, hidden // 2), nn.GELU(),
                          nn.Linear(hidden // 2, 1)) for _ in range(2)
        ])  # fmt: skip

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        x = torch.cat([self.dense(dense)] + [table(ids[:, at]) for at, table in enumerate(self.tables)], 1)
        experts = torch.stack([expert(x) for expert in self.experts], 1)
        mixed = [(gate(x).softmax(-1).unsqueeze(-1) * experts).sum(1) for gate in self.gates]
        return torch.cat([tower(of_task) for tower, of_task in zip(self.towers, mixed)], 1)


class Run:
    """Sizes, data and training on one device."""

    def __init__(self) -> None:
        self.on_gpu = torch.cuda.is_available()
        self.device = "cuda" if self.on_gpu else "cpu"
        self.rows, self.width, self.hidden = (12_288, 2048, 3072) if self.on_gpu else (256, 128, 256)
        # Made beforehand, so that making clicks is not timed.
        self.batches = [self.batch(step) for step in range(RECORDED_STEPS)]

    def batch(self, step: int) -> Tuple[Tensor, Tensor, Tensor]:
        """Dense features, ids, and clicks [m, 2] planted in a few of them."""
        generator = torch.Generator().manual_seed(step)
        dense = torch.randn(self.rows, 32, generator=generator)
        ids = torch.randint(0, TwoTasks.IDS, (self.rows, TwoTasks.TABLES), generator=generator)
        first = dense[:, 0] + 0.5 * (ids[:, 0] % 7 - 3) + 0.4 * ((ids[:, 1] + ids[:, 2]) % 5 - 2)
        chance = torch.sigmoid(torch.stack([first, dense[:, 1] - 0.5 * first], 1))
        clicks = (torch.rand(chance.shape, generator=generator) < chance).float()
        return dense.to(self.device), ids.to(self.device), clicks.to(self.device)

    def model(self) -> TwoTasks:
        torch.manual_seed(0)
        return TwoTasks(self.width, self.hidden).to(self.device)

    def train(self, model: nn.Module, steps: int, recorder: Optional["loka.Recorder"] = None) -> Tuple[float, float]:
        """(mean loss of the second half, milliseconds a step of the last two thirds)."""
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=self.on_gpu)
        compiled = torch.compile(model)
        losses, started = [], 0.0
        for step in range(steps):
            if step == steps // 3:
                started = self.now()
            dense, ids, clicks = self.batches[step % len(self.batches)]
            with torch.autocast(self.device, torch.bfloat16):
                logits = compiled(dense, ids)
            loss = functional.binary_cross_entropy_with_logits(logits.float(), clicks)
            (loss if recorder is None else recorder.loss(loss)).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
        took = (self.now() - started) * 1e3 / (steps - steps // 3)
        return float(torch.stack(losses)[steps // 2 :].mean()), took

    def now(self) -> float:
        if self.on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description="Record, probe, plan, apply and train one model.")
    parser.add_argument("out", type=Path, help="folder for the trace, the results and the plan")
    parser.add_argument("--steps", type=int, default=400, help="trained with and without the plan (default: 400)")
    parser.add_argument("--python", type=Path, help="whose PyTorch times sites (default: this one)")
    args = parser.parse_args()
    run = Run()

    model = run.model()
    with loka.Recorder(model, out=args.out, name="two-tasks", every=EVERY) as recorder:
        run.train(model, RECORDED_STEPS, recorder)
    print(recorder.report())

    # On a GPU, sites are timed as loka.apply will run them.
    results = loka.probe(recorder.path, args.out / "two-tasks.results.parquet", measure=run.on_gpu,
                         kernels=["cublaslt/*"] if run.on_gpu else [], python=args.python)  # fmt: skip
    plan = loka.plan(results, args.out / "two-tasks.plan.json")
    print(plan)

    plain = run.train(run.model(), args.steps)
    model = run.model()
    print(loka.apply(model, plan, emulate=not run.on_gpu))
    planned = run.train(model, args.steps)
    print(loka.health(model))
    print(f"BF16: {plain[1]:.2f} ms a step, loss {plain[0]:.5f}")
    print(f"plan: {planned[1]:.2f} ms a step ({plain[1] / planned[1]:.2f}x), loss {planned[0]:.5f}")


if __name__ == "__main__":
    main()
