"""Takes a model and a plan; gives where the host's time of a compiled training step goes, in BF16 and by the plan.

    python benches/training/host_time.py --model dcnv2 --plan docs/evidence/h200-dcnv2-balanced.plan.json

Where the host is slower than the GPU a plan's launches cost more than its GEMMs save. Host time is from an idle GPU until
everything is launched; then the functions that take most of it (cProfile, which makes Python look dearer than it is) and
the operators (PyTorch's profiler), a step. `--without scales,weights,canary`: the plan without what runs beside it.
"""

import argparse
import cProfile
import pstats
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import torch

import loka
from loka.plans import canary
from loka.plans.following import unfollow
from loka.plans.weights import drop
from stages import Arm, Spec, fresh, ready, timed

SETTLING, STEPS = 12, 30
"""Steps until everything is compiled and every scale is known, and steps that are looked at."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="dcnv2")
    parser.add_argument("--plan", required=True, type=Path)
    parser.add_argument("--parameters", default="fp32")
    parser.add_argument("--mode", help="of torch.compile")
    parser.add_argument("--without", default="", help="scales, weights, canary: the plan without these")
    parser.add_argument("--top", type=int, default=25)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64
    plans = {"plan": str(args.plan)}
    spec = Spec("speed", args.model, args.parameters, "", plans=plans, mode=args.mode)
    batches = ready(spec)
    told: Dict[str, Dict[str, Any]] = {}
    for name in ("bf16", "plan"):
        ranker = fresh(spec)
        if name == "plan":
            loka.apply(ranker, str(args.plan))
        arm = Arm(spec, ranker)

        def step(index: int, arm: Arm = arm) -> None:
            arm.step(batches[index % len(batches)])

        for index in range(SETTLING):
            step(index)
        if name == "plan":
            for part in filter(None, args.without.split(",")):
                {"scales": unfollow, "weights": drop, "canary": canary.stop}[part](ranker)
            for index in range(3):
                step(index)
        told[name] = looked_at(step, spec)
        print(f"== {name}: host {told[name]['host']:.2f} ms, GPU {told[name]['gpu']:.2f} ms a step back to back")
        table("functions, us of their own a step, calls", told[name]["functions"], args.top)
        table("operators, us of their own a step, calls", told[name]["operators"], args.top)
    print("== what the plan adds")
    for kind in ("functions", "operators"):
        before, after = told["bf16"][kind], told["plan"][kind]
        added = {key: tuple(a - b for a, b in zip(after[key], before.get(key, (0.0, 0.0)))) for key in after}
        table(f"{kind}, us of their own a step more, calls more", added, args.top)


def looked_at(step: Callable[[int], None], spec: Spec) -> Dict[str, Any]:
    """Host time, GPU time, functions and operators of a step."""
    host = statistics.median(alone(step, index) for index in range(STEPS))
    gpu = timed(step, STEPS, spec)
    profile = cProfile.Profile()
    for index in range(STEPS):
        torch.cuda.synchronize()
        profile.enable()
        step(index)
        profile.disable()
    functions = {}
    for (file, line, name), (_, calls, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        place = f"{'/'.join(Path(file).parts[-3:])}:{line}" if file != "~" else ""
        functions[f"{name} {place}"] = (own / STEPS * 1e6, calls / STEPS)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as watched:
        for index in range(10):
            torch.cuda.synchronize()
            step(index)
    operators = {row.key: (row.self_cpu_time_total / 10, row.count / 10) for row in watched.key_averages()}
    return {"host": host, "gpu": gpu, "functions": functions, "operators": operators}


def alone(step: Callable[[int], None], index: int) -> float:
    """Milliseconds until a step is launched."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    step(index)
    return (time.perf_counter() - started) * 1e3


def table(title: str, rows: Dict[str, Tuple[float, ...]], top: int) -> None:
    print(f"  {title}")
    most: List[Tuple[str, Tuple[float, ...]]] = sorted(rows.items(), key=lambda row: -row[1][0])[:top]
    for name, (own, calls) in most:
        print(f"    {own:8.0f} {calls:6.1f}  {name}")


if __name__ == "__main__":
    main()
