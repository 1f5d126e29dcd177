"""Takes arms and seeds; trains each on the same drifting clicks, and gives the log loss lost against high precision.

Every arm of a seed sees the same examples and starts from the same parameters. The difference of log loss is paired by
seed (and by window), relative to the reference arm's; mean and standard error are over seeds. Work is cut into units
(arm, seed): `--shard i/n` runs a part, `--merge` makes the table of all parts.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Dict, List, Tuple

import torch

from arms import ARMS, MADE_BY, fresh_state, model_of, plan_digest
from clicks import Clicks
from train import Trainer, configs, device_of, run, sizes

Results = Dict[str, Dict[int, dict]]
BUDGET_PERCENT = 0.02
"""The loss that the paper allows, relative."""


def units(arms: List[str], seeds: int, shard: str) -> Dict[str, List[int]]:
    """The seeds of each arm that are this shard's. Neighbours share an arm, which compiles once a process."""
    index, count = (int(part) for part in shard.split("/"))
    every = [(arm, seed) for arm in arms for seed in range(seeds)]
    first, last = len(every) * index // count, len(every) * (index + 1) // count
    mine: Dict[str, List[int]] = {}
    for arm, seed in every[first:last]:
        mine.setdefault(arm, []).append(seed)
    return mine


def train_units(args: argparse.Namespace) -> dict:
    """Runs this shard's units, saving after each."""
    device = device_of(args)
    data, model, config = configs(args)
    settings = {"data": asdict(data), "model": asdict(model), "train": asdict(config), "torch": torch.__version__}
    settings["mods_by"] = args.mods_by
    report: dict = {"settings": settings, "plans": {}, "runs": []}
    work = units(args.arms, args.seeds, args.shard)
    total, done, started = sum(map(len, work.values())), 0, time.monotonic()
    for arm, seeds in work.items():
        plan = {"plan": args.plan, "mods_plan": args.mods_plan}.get(arm)
        report["plans"][arm] = plan_digest(plan)
        trainer = Trainer(model_of(model, arm, args.mods_by, device, plan), config, device)
        for seed in seeds:
            state = fresh_state(model, seed, arm, args.mods_by)
            result = run(trainer, Clicks(data, seed, config.batch, device), state, f"{arm} seed {seed}:")
            report["runs"].append({"arm": arm, **asdict(result)})
            done += 1
            left = (time.monotonic() - started) / done * (total - done)
            print(f"{arm} seed {seed}: whole {result.whole:.5f}, last tenth {result.last_tenth:.5f}, held out"
                  f" {result.held_out_loss:.5f}; {result.seconds:.0f} s; unit {done}/{total}, {left:.0f} s left",
                  file=sys.stderr, flush=True)  # fmt: skip
            save(report, args.out)
        del trainer
        torch._dynamo.reset()
    return report


def save(report: dict, out: Path) -> None:
    """Writes atomically: a shard that is stopped leaves what it had."""
    partial = out.with_suffix(".partial")
    partial.write_text(json.dumps(report))
    os.replace(partial, out)


def merged(paths: List[Path]) -> dict:
    """One report of several shards; they must have run the same thing."""
    reports = [json.loads(path.read_text()) for path in paths]
    first = reports[0]
    for path, report in zip(paths, reports):
        if report["settings"] != first["settings"]:
            raise SystemExit(f"settings differ: {path}")
        first["plans"].update(report["plans"])
    first["runs"] = [one for report in reports for one in report["runs"]]
    return first


def by_arm(report: dict) -> Results:
    """Runs by arm and seed."""
    results: Results = {}
    for one in report["runs"]:
        results.setdefault(one["arm"], {})[one["seed"]] = one
    return results


def mean_and_error(values: List[float]) -> Tuple[float, float]:
    """Mean and its standard error; infinite error from one value alone."""
    if len(values) < 2:
        return (values[0] if values else math.nan), math.inf
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def relative_percent(arm: Dict[int, dict], reference: Dict[int, dict], key: str) -> Tuple[float, float]:
    """Relative difference of log loss in percent over the seeds that both have, with its standard error."""
    shared = sorted(set(arm) & set(reference))
    return mean_and_error([100 * (arm[seed][key] / reference[seed][key] - 1) for seed in shared])


def window_percent(arm: Dict[int, dict], reference: Dict[int, dict]) -> List[Tuple[float, float]]:
    """The same for each window of the run."""
    shared = sorted(set(arm) & set(reference))
    curves = [[100 * (a / b - 1) for a, b in zip(arm[seed]["windows"], reference[seed]["windows"])] for seed in shared]
    return [mean_and_error(list(column)) for column in zip(*curves)]


def comparisons(results: Results) -> List[Tuple[str, str]]:
    """(arm, reference): each against the original, what has Mods against the Mods in high precision too."""
    pairs = [(arm, "fp32") for arm in ARMS if arm in results and arm != "fp32"]
    return pairs + [(arm, "mods") for arm in ARMS if arm in results and arm.startswith("mods_") and "mods" in results]


def table(report: dict) -> dict:
    """Prints the table, gives what it says."""
    results = by_arm(report)
    reference = results.get("fp32", {})
    spread = {}
    for key in ("whole", "last_tenth", "held_out_loss"):
        values = [one[key] for one in reference.values()]
        spread[key] = 100 * statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else math.nan
    losses = ", ".join(f"{key} {mean_and_error([one[key] for one in reference.values()])[0]:.5f}" for key in spread)
    print(f"fp32: {losses}; {len(reference)} seeds")
    print(f"spread between seeds of fp32, %: {', '.join(f'{key} {value:.3f}' for key, value in spread.items())}")
    print(f"{'arm':<12} {'against':<8} {'seeds':>5} {'whole %':>18} {'last tenth %':>18} {'held out %':>18}  verdict")
    rows = []
    for arm, against in comparisons(results):
        row: dict = {"arm": arm, "against": against, "seeds": len(set(results[arm]) & set(results.get(against, {})))}
        for key in spread:
            row[key] = relative_percent(results[arm], results.get(against, {}), key)
        row["windows"] = window_percent(results[arm], results.get(against, {}))
        row["finite"] = all(one["finite"] for one in results[arm].values())
        row["verdict"] = verdict(row)
        cells = " ".join(f"{row[key][0]:>+9.4f} ± {row[key][1]:<6.4f}" for key in spread)
        print(f"{arm:<12} {against:<8} {row['seeds']:>5} {cells}  {row['verdict']}")
        rows.append(row)
    return {"spread_percent": spread, "rows": rows}


def verdict(row: dict) -> str:
    """`within` the budget, within twice the `noise`, or a `loss`, over the whole run; a gain is within."""
    mean, error = row["whole"]
    if not row["finite"]:
        return "diverged"
    if mean <= BUDGET_PERCENT:
        return "within .02 %"
    return "within noise" if mean <= 2 * error else "loss"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Log loss of FP8 and of LoKA's Mods and plans against high precision, paired by seed.",
        epilog="arms: " + "; ".join(f"{name}: {text}" for name, text in ARMS.items()),
    )
    sizes(parser)
    default = ["fp32", "fp32_again", "naive", "no_bias", "block_norm", "hard_swish", "mods"]
    parser.add_argument("--arms", nargs="+", choices=sorted(ARMS), default=default)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0..S-1")
    parser.add_argument("--shard", default="0/1", help="i/n: this process's part of the units")
    parser.add_argument("--plan", type=Path, help="plan file of the arm `plan`")
    parser.add_argument("--mods-plan", type=Path, help="plan file of the arm `mods_plan`")
    parser.add_argument("--mods-by", choices=MADE_BY, default="surgery", help="loka.mods.apply on norms that follow a"
                        " linear, or on every norm; or Mods built into the model")  # fmt: skip
    parser.add_argument("--merge", type=Path, nargs="+", help="print the table of these shards; trains nothing")
    parser.add_argument("--out", type=Path, default=Path("quality.json"))
    args = parser.parse_args()
    report = merged(args.merge) if args.merge else train_units(args)
    if args.merge or args.shard == "0/1":
        report["table"] = table(report)
        save(report, args.out)


if __name__ == "__main__":
    main()
