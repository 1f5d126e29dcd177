"""Takes a kernel for each GEMM of each site, gives a plan file that `loka` accepts, and what its kernels are.

No probe stands behind these plans: what is tested is what a framework makes of them.
"""

import json
import pathlib
import sys
from typing import Dict, Iterable, Mapping, Sequence, Tuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))

from loka.plans.canonical import digest_of
from loka.plans.document import load_plan

from toy import WIDTH

Kernels = Tuple[str, str, str]
"""Of fprop, dgrad and wgrad."""

HIGH: Kernels = ("cublaslt/bf16",) * 3


def whole(kernel: str) -> Kernels:
    """The same kernel in all three GEMMs."""
    return (kernel,) * 3


def granularity(kernel: str) -> str:
    """`high`, `tensor`, `row`, `block`, or `row-gw-hp` for torchao's recipe of that name."""
    recipe = kernel.split("/")[1].split("+")[0]
    known = {
        "bf16": "high", "tf32": "high", "current": "tensor", "rowwise": "row", "blockwise": "block",
        "tensorwise": "tensor", "rowwise_with_gw_hp": "row-gw-hp",
    }  # fmt: skip
    return known[recipe.removeprefix("fp8-")]


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
            "kernel": kernel, "source": "override", "reason": "override: chosen for the test", "error": {"mere": 0.01},
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
