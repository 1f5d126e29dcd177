"""Takes a model and a plan; gives what training steps take by all defaults, window by window, beside BF16 in turns.

    python benches/training/slow_host.py --model dcnv2 --plan docs/evidence/h200-dcnv2-balanced.plan.json

Where the host is the slower one, `loka.apply` finds it out and leaves the model in BF16 if the plan loses: the last windows
must be no slower than BF16's. `--on-slow-host warn` shows what the plan would have cost, `--mode reduce-overhead` what it
gains where steps are replayed. `--busy N` makes any host slow: its threads share one core with N processes that do nothing.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Iterator, List

import torch

import loka
from clicks import Clicks
from stages import Arm, Spec, fresh, place, ready
from verdicts import fp8_gemms

WINDOW = 30
"""Steps of one printed time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="dcnv2")
    parser.add_argument("--plan", required=True, type=Path)
    parser.add_argument("--parameters", default="fp32")
    parser.add_argument("--mode", help="of torch.compile")
    parser.add_argument("--on-slow-host", default="bf16")
    parser.add_argument("--windows", type=int, default=13)
    parser.add_argument("--busy", type=int, default=0)
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64
    spec = Spec("speed", args.model, args.parameters, "", mode=args.mode)
    chosen, gemms = fp8_gemms(json.loads(args.plan.read_text()))
    print(place(spec), f"{chosen} of {gemms} GEMMs in FP8", flush=True)
    plain = Arm(spec, fresh(spec))
    planned = Arm(spec, fresh(spec))
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("always")
        loka.apply(planned.ranker, str(args.plan), on_slow_host=args.on_slow_host)
        batches = ready(spec)
        for arm in (plain, planned):
            windows(arm, batches, 1)
        stack.enter_context(slowed(args.busy))
        for window in range(args.windows):
            by_plan, by_bf16 = windows(planned, batches, 1), windows(plain, batches, 1)
            running = loka.resolved(planned.ranker).num_fp8
            print(f"steps to {(window + 2) * WINDOW}: planned {by_plan[0]:.2f} ms ({running} linears in FP8), BF16 {by_bf16[0]:.2f} ms", flush=True)
        turns = [(windows(planned, batches, 1)[0], windows(plain, batches, 1)[0]) for _ in range(7)]
    by_plan, by_bf16 = (statistics.median(side) for side in zip(*turns))
    print(f"at the end: planned {by_plan:.2f} ms, BF16 {by_bf16:.2f} ms, {by_bf16 / by_plan:.3f}x")
    for note in loka.health(planned.ranker).notes:
        print("note:", note)


@contextlib.contextmanager
def slowed(busy: int) -> Iterator[None]:
    """All threads of this process on one core, beside so many others that want it. What is compiled meanwhile takes long."""
    if not busy:
        yield
        return
    core = min(os.sched_getaffinity(0))
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), {core})
    # They inherit the core.
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        yield
    finally:
        for other in others:
            other.kill()


def windows(arm: Arm, batches: List[Clicks], count: int) -> List[float]:
    """Milliseconds a step of each of so many windows, by the wall."""
    found = []
    for _ in range(count):
        torch.cuda.synchronize()
        started = time.perf_counter()
        for index in range(WINDOW):
            arm.step(batches[index % len(batches)])
        torch.cuda.synchronize()
        found.append((time.perf_counter() - started) / WINDOW * 1e3)
    return found


if __name__ == "__main__":
    main()
