"""Takes the three families; trains each on drifting clicks under `loka.Recorder`, writes small traces and states.

A sample trace must be small enough to travel with the project, so widths stay at or below 512, weights are kept in
BF16, covariances as rank-16 factors, and the covariance of gradient with input only for small layers. The first part of
a run is one CUDA graph; the recorded part is eager. Statistics are those of the recorded part alone: a mean over the
chaos of the first steps would describe no model that anyone runs.
"""

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

import torch
from torch import Tensor

import loka
import stages
from arms import MODS, heads, kept
from clicks import Clicks, floor_of
from models import build
from train import Trainer, configs, device_of, sizes

SAMPLES: Dict[str, Tuple[str, List[str]]] = {
    "wukong-drift": ("wukong", ["--hidden", "256", "--layers", "4"]),
    "dhen-counters": ("dhen", ["--hidden", "256", "--layers", "3", "--counters", "16"]),
    "interformer-past": ("interformer", ["--hidden", "256", "--layers", "2"]),
}
"""Name of a sample: its family and sizes. The counters are raw, as they come from a log."""

RANKERS = {"dcnv2-ranker": "dcnv2", "dcnv2-mods": "dcnv2-mods", "dlrm-ranker": "dlrm"}
"""Name of a sample at real size: its model of `rankers.py`. Its weights are kept as their leading singular pairs."""

LIMIT_BYTES = 12 << 20
"""A sample that is larger is refused."""


def record(name: str, args: argparse.Namespace, extra: List[str]) -> dict:
    """Trains and records one sample; gives what became of it."""
    family, preset = SAMPLES[name]
    parser = argparse.ArgumentParser()
    sizes(parser)
    settings = parser.parse_args(["--family", family, *preset, *extra])
    device = device_of(settings)
    data, model_config, config = configs(settings)
    model = build(model_config, args.seed)
    if args.mods:
        print(loka.mods.apply(model, list(MODS), keep=kept(model)))
    trainer, clicks = Trainer(model, config, device), Clicks(data, args.seed, config.batch, device)
    first = config.steps - min(config.steps, args.recorded)
    losses, started = torch.zeros(config.steps, device=device), time.monotonic()
    note = f"synthetic clicks that drift, seed {args.seed}, steps {first} to {config.steps}; benches/training"
    recorder = loka.Recorder(
        trainer.model, out=args.out, name=name, every=args.every, save_every=config.steps * 2, rank=16, oversample=16,
        factor_above=32, weight_dtype=torch.bfloat16, held_out=32, cross_cov=16384, loss_name="log_loss",
        run_id=f"{name}-{args.seed}", family=family, note=note, heads=heads(model), seed=args.seed,
    )  # fmt: skip
    train_on(trainer, clicks, losses, range(first), None)
    with recorder:
        train_on(trainer, clicks, losses, range(first, config.steps), recorder.loss)
    trace = args.out / f"{name}.trace.safetensors"
    os.replace(recorder.path, trace)
    torch.save(
        {"data": asdict(data), "model": asdict(model_config), "train": asdict(config), "seed": args.seed,
         "mods": list(MODS) if args.mods else [], "state": trainer.model.state_dict()},
        args.out / f"{name}.pt",
    )  # fmt: skip
    held_out = list(clicks.held_out(config.steps, config.held_out))
    return {
        "name": name, "bytes": trace.stat().st_size, "steps": config.steps, "recorded": config.steps - first,
        "sites": len(recorder.sites), "warnings": recorder.warnings, "seconds": time.monotonic() - started,
        "last_tenth": float(losses[-max(1, config.steps // 10) :].mean()), "floor": floor_of(iter(held_out[:16])),
        "held_out": sum(trainer.evaluate(held_out)) / (len(held_out) * config.batch),
    }  # fmt: skip


def record_ranker(name: str, args: argparse.Namespace) -> dict:
    """Trains and records one sample at real size, as the `record` stage of `end_to_end.py` does: FP32 parameters under
    BF16 autocast."""
    started = time.monotonic()
    options = {"weights": "low_rank", "rank": 16, "oversample": 16, "factor_above": 32, "cross_rank": 8,
               "run_id": f"{name}-{args.seed}",
               "note": "synthetic clicks; benches/training/record_samples.py"}  # fmt: skip
    trace = args.out / "ranker" / f"{name}-rank0.trace.safetensors"
    spec = stages.Spec(
        stage="record", model=RANKERS[name], parameters="fp32", out="", small=args.small, cpu=args.small,
        compile=False, steps=args.ranker_steps, every=args.ranker_every, trace=str(trace),
        state=str(args.out / f"{name}.pt"), recorder=options,
    )  # fmt: skip
    told = stages.record(spec)
    sample = args.out / f"{name}.trace.safetensors"
    os.replace(trace, sample)
    return {
        "name": name, "bytes": sample.stat().st_size, "steps": spec.steps, "recorded": spec.steps,
        "sites": told["sites"], "warnings": told["warnings"], "seconds": time.monotonic() - started,
        "last_tenth": told["losses"][-1], "floor": None, "held_out": None,
    }  # fmt: skip


def train_on(trainer: Trainer, clicks: Clicks, losses: Tensor, steps: range, wrap: Optional[Callable]) -> None:
    """Trains on some steps, each loss into `losses`."""
    started = time.monotonic()
    for step in steps:
        losses[step].copy_(trainer.train(clicks.at(step), step, wrap))
        if step % 500 == 0:
            left = (time.monotonic() - started) / (step - steps.start + 1) * (steps.stop - step)
            what = "recording" if wrap else "training"
            print(f"{what}: step {step} of {steps.stop}, about {left:.0f} s left", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Records the sample traces, one a family, with the trained states that prediction.py reads.",
        epilog="Arguments after -- go to the training: see train.py --help.",
    )
    parser.add_argument("--out", type=Path, default=Path("samples"))
    parser.add_argument("--only", nargs="+", choices=sorted([*SAMPLES, *RANKERS]), default=list(SAMPLES))
    parser.add_argument("--ranker-steps", type=int, default=1000, help="of a sample at real size, all recorded")
    parser.add_argument("--ranker-every", type=int, default=20, help="statistics every so many of those")
    parser.add_argument("--small", action="store_true", help="a ranker at tens of features, on the CPU")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recorded", type=int, default=1000, help="steps at the end under the recorder")
    parser.add_argument("--every", type=int, default=5, help="statistics every so many of them")
    parser.add_argument("--mods", action="store_true", help="train with all three Mods, by loka.mods.apply")
    args, extra = parser.parse_known_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in args.only:
        given = [each for each in extra if each != "--"]
        rows.append(record_ranker(name, args) if name in RANKERS else record(name, args, given))
        torch._dynamo.reset()
    (args.out / "samples.json").write_text(json.dumps(rows, indent=1))
    print(f"{'sample':<18} {'MB':>6} {'sites':>6} {'last 10%':>9} {'held out':>9} {'floor':>7} {'s':>5}")
    for row in rows:
        held_out = "-" if row["held_out"] is None else f"{row['held_out']:.5f}"
        floor = "-" if row["floor"] is None else f"{row['floor']:.4f}"
        print(f"{row['name']:<18} {row['bytes'] / 1e6:>6.2f} {row['sites']:>6} {row['last_tenth']:>9.5f}"
              f" {held_out:>9} {floor:>7} {row['seconds']:>5.0f}")  # fmt: skip
        for warning in row["warnings"]:
            print(f"  {warning}")
    if any(row["bytes"] > LIMIT_BYTES for row in rows):
        raise SystemExit(f"a sample is over {LIMIT_BYTES} bytes")


if __name__ == "__main__":
    main()
