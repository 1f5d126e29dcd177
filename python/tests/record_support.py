"""What the recorder's tests share: a small model, a training loop, and reading traces back."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Any, Dict, Optional, Tuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch
from safetensors import safe_open
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]


def small_model(seed: int = 0) -> nn.Sequential:
    """Three linears, 6 -> 10 -> 8 -> 1, with an in-place activation after the second."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, 10), nn.LayerNorm(10), nn.SiLU(), nn.Linear(10, 8), nn.ReLU(inplace=True), nn.Linear(8, 1)
    )


def batch(size: int = 40, seed: int = 0, features: int = 6) -> Tuple[torch.Tensor, torch.Tensor]:
    """Inputs `[size, features]` and targets `[size, 1]`."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, features, generator=generator) * 2 + 1
    return x, (x[:, :1] > 1).float()


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The mean log loss."""
    return nn.functional.binary_cross_entropy_with_logits(output.float(), target)


def train(model: nn.Module, recorder: Any, steps: int = 4, size: int = 40, rate: float = 0.05) -> None:
    """`steps` steps of SGD, batch s with seed s."""
    optimizer = torch.optim.SGD(model.parameters(), rate)
    for step in range(steps):
        x, target = batch(size, step)
        recorder.loss(loss_of(model(x), target)).backward()
        optimizer.step()
        optimizer.zero_grad()


def read(path: pathlib.Path) -> Tuple[Dict[str, Any], Dict[str, torch.Tensor]]:
    """(manifest, tensors) of a trace."""
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["loka.trace"]), {name: file.get_tensor(name) for name in file.keys()}


def loka_binary() -> Optional[str]:
    """The `loka` program: LOKA_BIN, or what cargo built last."""
    if "LOKA_BIN" in os.environ:
        return os.environ["LOKA_BIN"]
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [target / kind / "loka" for kind in ("debug", "release")]
    built = [path for path in built if path.exists()]
    return str(max(built, key=lambda path: path.stat().st_mtime)) if built else shutil.which("loka")


def loka(*args: Any) -> subprocess.CompletedProcess:
    """Runs the program."""
    return subprocess.run([loka_binary(), *map(str, args)], capture_output=True, text=True, timeout=120)
