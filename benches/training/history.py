"""The errors of a training step's GEMMs as `loka probe` says them, against those of real batches: from the statistics of all
recorded steps, and of the last half of them, which is what a Recorder keeps. And those of real batches against those of the
batches after them: nearer than two samples of the truth are to each other no prediction can be. CPU; own casts (PyTorch's float8), own products; of
LoKA only the recorder and the binary.

    PYTHONPATH=python python benches/training/history.py LOKA [--models mask,dcnv2,dlrm] [--kernels rowwise,tensorwise]
        [--steps 120] [--every 10] [--batches 8]

Small rankers, FP32 parameters under BF16 autocast, Adam, mean loss. Recorded from their first step on, at one of `every`; then
the batches that come next, each GEMM's operands as they are in that backward, against the exact product; rel L2 over all of them;
and once more for as many after them. Rowwise: cast row by row to E4M3; wgrad's rows are those of its operands turned: columns of x
and dy. Tensorwise: by one scale a tensor, dy to E5M2 and all else to E4M3.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Tuple

import loka
import torch
from clicks import Clicks
from rankers import build, config_of
from torch import Tensor, nn

FP8 = {"e4m3": (torch.float8_e4m3fn, 448.0), "e5m2": (torch.float8_e5m2, 57344.0)}
Key = Tuple[str, str, str]
"""Kernel, site and GEMM."""
# What is held against the first real batches: by the statistics of all steps, of the last half, and the next real batches.
COMPARED = ("all", "recent", "later")


class MaskBlock(nn.Module):
    def __init__(self, width: int, hidden: int, out: int) -> None:
        super().__init__()
        self.mask = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.ffn, self.norm = nn.Linear(width, out), nn.LayerNorm(out)

    def forward(self, x: Tensor, normed: Tensor) -> Tensor:
        return torch.relu(self.norm(self.ffn(self.mask(x) * normed)))


class MaskNet(nn.Module):
    """Parallel mask blocks over embeddings and dense features, then a tower with LayerNorm and SiLU."""

    def __init__(self, tables: int = 12, dim: int = 32, rows: int = 2000, dense: int = 48) -> None:
        super().__init__()
        width = tables * dim + 128
        self.tables = nn.ModuleList(nn.Embedding(rows, dim) for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(dense, 128), nn.ReLU(), nn.Linear(128, 128))
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(MaskBlock(width, 640, 288) for _ in range(2))
        self.top = nn.Sequential(
            nn.Linear(576, 704), nn.LayerNorm(704), nn.SiLU(), nn.Linear(704, 320), nn.LayerNorm(320), nn.SiLU(), nn.Linear(320, 1)
        )

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        parts = [table(ids[:, at]) for at, table in enumerate(self.tables)]
        x = torch.cat([*parts, self.dense(dense)], 1)
        normed = self.norm(x)
        return self.top(torch.cat([block(x, normed) for block in self.blocks], 1)).squeeze(1)


class Run:
    """A model with its batches."""

    def __init__(self, name: str) -> None:
        torch.manual_seed(1)
        self.is_mask = name == "mask"
        if self.is_mask:
            self.model: nn.Module = MaskNet()
            self.truth = [torch.randn(2000) * 0.5 for _ in range(12)]
        else:
            config = config_of(name, True)
            self.model = build(config, "fp32", 1, torch.device("cpu"))
            self.clicks = Clicks(config.data, 0, 768, torch.device("cpu"))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.loss = nn.BCEWithLogitsLoss()

    def batch(self, step: int) -> Tuple[Tensor, Tensor, Tensor]:
        if not self.is_mask:
            found = self.clicks.at(step)
            return found.dense, found.ids, found.label
        seeded = torch.Generator().manual_seed(step)
        dense = torch.randn(768, 48, generator=seeded)
        ids = (torch.rand(768, 12, generator=seeded) ** 3 * 2000).long()
        logit = sum(table[ids[:, at]] for at, table in enumerate(self.truth)) * 0.4 + dense[:, 0] * dense[:, 1] - 1
        return dense, ids, (torch.rand(768, generator=seeded) < torch.sigmoid(logit)).float()

    def step(self, step: int, recorder: Any = None) -> None:
        dense, ids, labels = self.batch(step)
        with torch.autocast("cpu", torch.bfloat16):
            loss = self.loss(self.model(dense, ids).float().view(-1), labels.float().view(-1))
        if recorder is not None:
            loss = recorder.loss(loss)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def cast(a: Tensor, kind: str, by_row: bool) -> Tensor:
    """`a` [rows, reduced] as FP8 with a scale a row, or one alone, holds it."""
    dtype, largest = FP8[kind]
    amax = a.abs().amax(1, keepdim=True) if by_row else a.abs().amax()
    scale = (amax / largest).clamp(min=1e-12)
    return (a / scale).to(dtype).float() * scale


def product(a: Tensor, b: Tensor, kernel: str, gemm: str) -> Tensor:
    """a [m, reduced] times b [n, reduced]^T, stored in BF16. Of dgrad and wgrad `a` is dy."""
    by_row = kernel == "rowwise"
    left = "e4m3" if by_row or gemm == "fprop" else "e5m2"
    return (cast(a, left, by_row) @ cast(b, "e4m3", by_row).T).bfloat16()


class Seen:
    """Sums of squares of errors and of exact products, over backwards while it is on."""

    def __init__(self, model: nn.Module, kernels: List[str]) -> None:
        self.kernels = kernels
        self.sums: Dict[Key, List[float]] = {}
        self.hooks = []
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                self.hooks.append(module.register_forward_hook(self._forward(name)))

    def _forward(self, name: str) -> Any:
        def hook(module: nn.Linear, given: Tuple[Tensor, ...], out: Tensor) -> None:
            x = given[0].detach().bfloat16().float().reshape(-1, module.in_features)
            weight = module.weight.detach().bfloat16().float()
            out.register_hook(lambda dy: self._add(name, x, weight, dy.detach().float().reshape(-1, module.out_features)))

        return hook

    def _add(self, name: str, x: Tensor, weight: Tensor, dy: Tensor) -> None:
        for gemm, a, b in (("fprop", x, weight), ("dgrad", dy, weight.T), ("wgrad", dy.T, x.T)):
            exact = a.double() @ b.double().T
            for kernel in self.kernels:
                error = product(a, b, kernel, gemm).double() - exact
                sums = self.sums.setdefault((kernel, name, gemm), [0.0, 0.0])
                sums[0] += float(error.square().sum())
                sums[1] += float(exact.square().sum())

    def stop(self) -> Dict[Key, float]:
        for hook in self.hooks:
            hook.remove()
        return {key: (error / exact) ** 0.5 for key, (error, exact) in self.sums.items() if exact > 0}


def predicted(binary: str, trace: Path, kernels: List[str]) -> Dict[Key, float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [binary, "probe", str(trace), "--out", f"{folder}/r.results.parquet", "--json", "--engine", "cpu"]
        command += [part for kernel in kernels for part in ("--kernels", f"cublaslt/fp8-{kernel}")]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [row for row in map(json.loads, lines) if row.get("error")]
    return {(row["kernel"].removeprefix("cublaslt/fp8-"), row["site"], row["gemm"]): row["error"]["rel_l2"]["value"] for row in rows}


def seen_in(run: Run, kernels: List[str], start: int, batches: int) -> Dict[Key, float]:
    """Of that many steps of training."""
    seen = Seen(run.model, kernels)
    for step in range(start, start + batches):
        run.step(step)
    return seen.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("loka")
    parser.add_argument("--models", default="mask,dcnv2,dlrm")
    parser.add_argument("--kernels", default="rowwise,tensorwise")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--batches", type=int, default=8)
    args = parser.parse_args()
    # Sums in the same order everywhere: on other numbers of threads another model comes of the same seed.
    torch.set_num_threads(1)
    kernels = args.kernels.split(",")
    ratios: Dict[Tuple[str, str, str], List[float]] = {}
    for name in args.models.split(","):
        found: Dict[str, Dict[Key, float]] = {}
        for history in ("all", "recent"):
            run = Run(name)
            with tempfile.TemporaryDirectory() as folder:
                with loka.Recorder(run.model, out=folder, every=args.every, history=history) as recorder:
                    for step in range(args.steps):
                        run.step(step, recorder)
                found[history] = predicted(args.loka, recorder.path, kernels)
        real, found["later"] = (seen_in(run, kernels, args.steps + start, args.batches) for start in (0, args.batches))
        for kernel in kernels:
            print_table(name, kernel, real, found, ratios)
    for kernel in kernels:
        print_summary(kernel, {key[1:]: shares for key, shares in ratios.items() if key[0] == kernel})


def print_table(
    name: str, kernel: str, real: Dict[Key, float], found: Dict[str, Dict[Key, float]], ratios: Dict[Tuple[str, str, str], List[float]]
) -> None:
    """Each GEMM of a model, by one kernel; `ratios`, by kernel, what is compared, and GEMM, get what the summary is of."""
    heads = " ".join(f"{history:>8}" for history in COMPARED) + " " + " ".join(f"{history:>6}" for history in COMPARED)
    print(f"{name}: rel L2 of cublaslt/fp8-{kernel}\n{'site':<28} {'GEMM':<6} {'real':>8} {heads}")
    for key, value in real.items():
        if key[0] == kernel and all(key in each for each in found.values()):
            shares = [found[history][key] / value for history in COMPARED]
            for history, share in zip(COMPARED, shares):
                ratios.setdefault((kernel, history, key[2]), []).append(share)
            values = " ".join(f"{found[history][key]:8.4f}" for history in COMPARED)
            print(f"{key[1]:<28} {key[2]:<6} {value:8.4f} {values} {' '.join(f'{share:6.2f}' for share in shares)}", flush=True)


def print_summary(kernel: str, ratios: Dict[Tuple[str, str], List[float]]) -> None:
    print(f"\n{kernel}: predicted over real (later: real batches over those before): GEMMs, median, least, most, within 10 %")
    near = {key: [abs(share - 1) <= 0.1 for share in shares] for key, shares in ratios.items()}
    for (history, gemm), shares in sorted(ratios.items()):
        count = sum(near[history, gemm])
        print(
            f"{history:<7} {gemm:<6} {len(shares):3} {statistics.median(shares):6.2f} {min(shares):6.2f} {max(shares):6.2f}   "
            f"{count} ({100 * count / len(shares):.0f} %)"
        )
    print("of the GEMMs that later batches repeat within 10 %, predicted within 10 %:")
    for gemm in sorted({gemm for _, gemm in ratios}):
        repeated = [hit for hit, again in zip(near["recent", gemm], near["later", gemm]) if again]
        print(f"recent  {gemm:<6} {sum(repeated)} of {len(repeated)}")


if __name__ == "__main__":
    main()
