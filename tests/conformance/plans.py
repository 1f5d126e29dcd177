"""Takes a kernel for each GEMM of each site, gives a plan file that `loka` accepts, and what its kernels are.

No probe stands behind these plans: what is tested is what a framework makes of them.
"""

import json
import pathlib
import sys
from dataclasses import dataclass
from typing import Dict, Iterable, Mapping, Sequence, Tuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from loka.plans.canonical import digest_of
from loka.plans.document import load_plan

from toy import WIDTH

Kernels = Tuple[str, str, str]
"""Of fprop, dgrad and wgrad."""

ERROR = 0.01
"""Of every GEMM."""

BF16 = "cublaslt/bf16"
HIGH: Kernels = (BF16, BF16, BF16)


def whole(kernel: str) -> Kernels:
    """The same kernel in all three GEMMs."""
    return (kernel,) * 3


@dataclass(frozen=True)
class Numerics:
    """Of one GEMM. `scheme`: `high`, `tensor`, `row`, `block`, or `row x tensor` where the weight has one scale."""

    scheme: str
    fast: bool = False
    power_of_two: bool = False


SCHEMES = {
    "bf16": "high", "tf32": "high", "current": "tensor", "tensorwise": "tensor", "rowwise": "row", "blockwise": "block",
}  # fmt: skip


def numerics(kernels: Kernels) -> Tuple[Numerics, Numerics, Numerics]:
    """What the kernels of a plan do: the columns of the table of kernels in docs/concepts/method.md, once more by hand."""
    return tuple(_numerics(kernel, gemm) for gemm, kernel in enumerate(kernels))


def _numerics(kernel: str, gemm: int) -> Numerics:
    library, recipe = kernel.split("/")
    name = recipe.removeprefix("fp8-").removesuffix("+fast")
    fast = recipe.endswith("+fast") or kernel == "fbgemm/rowwise"
    if library == "torchao" or kernel == "te/current":
        fast = gemm == 0
    if name == "rowwise_with_gw_hp":
        return Numerics("high") if gemm == 2 else Numerics(("row", "row x tensor")[gemm], fast, True)
    if SCHEMES[name] == "high":
        return Numerics("high")
    return Numerics(SCHEMES[name], fast, kernel in ("torchao/rowwise", "te/blockwise"))


def schemes(kernels: Kernels) -> Tuple[str, str, str]:
    return tuple(each.scheme for each in numerics(kernels))


def nearest(scheme: str, has: Sequence[str]) -> str:
    """What a lossy export may make of it: itself, the next finer one, or high precision, never a coarser one."""
    finer = ["tensor", "row", "block"]
    if scheme == "high":
        return scheme
    return next((other for other in finer[finer.index(scheme) :] if other in has), "high")


LOSSY = [
    HIGH, whole("te/current"), whole("torchao/rowwise"), whole("te/blockwise"), ("te/current", BF16, BF16),
    (BF16, "fbgemm/rowwise", "deepgemm/blockwise"), ("fbgemm/rowwise", "fbgemm/rowwise", BF16),
]  # fmt: skip
"""What no target can say all of."""


def rotated(names: Sequence[str], choices: Sequence[Kernels], by: int = 0) -> Dict[str, Kernels]:
    """Each name's choice, so that neighbours differ; `by` moves every name on to another of them."""
    return {name: choices[(index + by) % len(choices)] for index, name in enumerate(names)}


def write_plan(path: pathlib.Path, chosen: Mapping[str, Kernels]) -> pathlib.Path:
    """Writes it with the right digest, and reads it again with the checks that `loka.apply` makes."""
    plan = {
        "format": "loka-plan",
        "version": 1,
        "name": "toy",
        "created_at": "2026-11-21T00:00:00Z",
        "model": {"name": "toy", "family": "mlp", "framework": "pytorch", "parameters": len(chosen) * WIDTH * WIDTH},
        "trace_digest": digest_of("no trace"),
        "results_digest": digest_of("no results"),
        "policy": {"name": "paper", "metric": "mere", "max_error": 0.2},
        "mods": {},
        "sites": [_site(name, kernels) for name, kernels in chosen.items()],
        "totals": _totals(3 * len(chosen)),
    }
    path.write_text(json.dumps({**plan, "digest": digest_of(plan)}), encoding="utf-8")
    assert [site.site for site in load_plan(path).sites] == list(chosen)
    return path


def _site(name: str, kernels: Iterable[str]) -> dict:
    choices = {
        gemm: {
            "kernel": kernel, "source": "override", "reason": "override: chosen for the test", "error": {"mere": ERROR},
            "speedup": 1.2, "runners_up": ["cublaslt/bf16"],
        }
        for gemm, kernel in zip(("fprop", "dgrad", "wgrad"), kernels)
    }  # fmt: skip
    return {"site": name, **choices, "m": 4096, "k": WIDTH, "n": WIDTH}


def _totals(num_gemms: int) -> dict:
    return {
        "baseline_us": 0.0, "planned_us": 0.0, "speedup": None, "loss_cost": None, "loss_cost_hi": None,
        "num_gemms": num_gemms, "num_without_latency": num_gemms,
    }  # fmt: skip
