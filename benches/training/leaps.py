"""Takes a ranker and a plan; trains seeds until one's loss leaps, and finds out whether FP8 made it.

A leap: a window of 20 steps whose mean loss is more than 1.1 times the least before it. Snapshots of parameters, optimizer and
scales are kept every 20 steps. Once a loss leaps, training goes back to snapshots before it and takes the same batches
again: by the plan, in BF16, and by parts of the plan (`--again`). Where BF16 leaps from there too, it is not the errors of these
steps. Then the last steps before the leap once more, each with what `loka.compare` says of its gradient: is what goes wrong in
BF16's too?

With `--again ""` every seed is trained to its end: how often an arm leaps, and what it loses.

    python leaps.py --model wukong-5.6G --plan balanced.plan.json --arm plan --seeds 0-9 --out plan.json
    python leaps.py --model wukong-5.6G --arm bf16 --seeds 0-9 --out bf16.json
"""

import argparse
import gc
import json
import math
import sys
import time
import warnings
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Deque, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn

import loka
from clicks import Clicks
from loka.kernels.delayed import RANGE
from loka.plans.following import following
from quality import mean_and_error
from stages import WINDOW, Arm, Code, Spec, fresh, norms_of, place, planned, windows, write
from verdicts import LEAP_BAR, LEAP_FROM

KEPT = 5
"""Snapshots, so many windows back."""


@dataclass
class Snapshot:
    """All that a step depends on, but for its batch."""

    step: int
    parameters: Dict[str, Tensor]
    moments: List[Dict[str, Tensor]]
    scales: List[Tuple[Tensor, Tensor, Tensor]]


def taken(arm: Arm, step: int) -> Snapshot:
    """Of an arm before a step."""
    parameters = {name: value.detach().clone() for name, value in arm.ranker.state_dict().items()}
    moments = [{name: value.clone() for name, value in arm.optimizer.state[one].items()} for one in arm.parameters]
    scales = [(one.decaying.clone(), one._scale.clone(), one._inverse.clone()) for one in histories(arm.ranker)]
    return Snapshot(step, parameters, moments, scales)


@torch.no_grad()
def put_back(arm: Arm, snapshot: Snapshot) -> None:
    """Into an arm of the same ranker, whatever kernels it runs. Scales that it does not have in common are left as they are."""
    own = arm.ranker.state_dict()
    for name, value in snapshot.parameters.items():
        own[name].copy_(value)
    for parameter, moments in zip(arm.parameters, snapshot.moments):
        arm.optimizer.state[parameter] = {name: value.clone() for name, value in moments.items()}
    for history, (decaying, scale, inverse) in zip(histories(arm.ranker), snapshot.scales):
        if history.decaying.shape == decaying.shape:
            history.decaying.copy_(decaying)
            history._scale.copy_(scale)
            history._inverse.copy_(inverse)
            torch._foreach_zero_(history._seen)
    if arm.spec.arm != "bf16":
        # Weights that are cast once a step have changed outside of one.
        loka.refresh(arm.ranker)


def histories(ranker: nn.Module) -> List[Any]:
    """Of the scales that follow."""
    found = following(ranker)
    return [] if found is None else found._histories


class Series:
    """What every step leaves, on the device: the loss, the norm of each parameter's gradient, and for each scale that follows how
    far its tensor went, as a multiple of what the scale holds."""

    def __init__(self, arm: Arm, steps: int) -> None:
        self.arm, self.step = arm, 0
        device = arm.spec.device
        self.losses = torch.full((steps,), math.nan, device=device)
        self.norms = torch.full((steps, len(arm.parameters)), math.nan, device=device)
        self.reach: Optional[Tensor] = None
        self.steps = steps
        arm.optimizer.register_step_pre_hook(self._before)

    @torch.no_grad()
    def _before(self, *_: Any) -> None:
        self.norms[self.step].copy_(norms_of(self.arm.parameters))
        reached = [torch.cat(one._seen) * one._inverse[:, 0] * RANGE for one in histories(self.arm.ranker)]
        if reached:
            now = torch.cat(reached)
            if self.reach is None or self.reach.shape[1] != now.numel():
                self.reach = now.new_full((self.steps, now.numel()), math.nan)
            self.reach[self.step].copy_(now)


class Bench:
    """The arms, each compiled once."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.spec = Spec(stage="quality", model=args.model, parameters="fp32", out=str(args.out), small=args.small, cpu=args.cpu,
                         compile=not args.eager, lr=args.lr, plans={"plan": args.plan} if args.plan else {})  # fmt: skip
        self.batch = args.batch or self.spec.config.quality_batch
        self.codes: Dict[str, Code] = {}
        self.others: Dict[str, Arm] = {}
        self.ends = time.monotonic() + 60 * args.minutes if args.minutes else math.inf

    def arm(self, name: str, seed: int) -> Arm:
        """Fresh, of a seed. "bf16", "plan", a part of it as "plan+d"; with "eager " before it: not compiled."""
        kernels = name.rsplit(" ", 1)[-1]
        spec = replace(self.spec, arm=kernels, compile=self.spec.compile and name == kernels)
        if name not in self.codes:
            self.codes[name] = Code(spec)
        ranker = fresh(spec, seed)
        if kernels != "bf16":
            planned(spec, ranker, kernels)
        return Arm(spec, ranker, self.codes[name])

    def clip(self, arm: Arm) -> None:
        """What reads gradients before has them as they were."""

        def clipped(*_: Any) -> None:
            nn.utils.clip_grad_norm_(arm.parameters, self.args.clip)

        if self.args.clip:
            arm.optimizer.register_step_pre_hook(clipped)

    def other(self, name: str, seed: int, first: int) -> Arm:
        """An arm to go on from snapshots with, made once; its first step finds what is found in first steps."""
        if name not in self.others:
            self.others[name] = arm = self.arm(name, seed)
            self.clip(arm)
            clicks = Clicks(arm.spec.config.data, seed, self.batch, arm.spec.device)
            for step in range(2):
                arm.warm_up(first)
                arm.step(clicks.at(first + step))
        return self.others[name]

    def run(self, seed: int) -> Dict[str, Any]:
        """Trains one seed to its end or to its first leap."""
        args, steps = self.args, self.args.steps
        # The run before is a circle of hooks: its snapshots are tens of gigabytes.
        gc.collect()
        arm = self.arm(args.arm, seed)
        series = Series(arm, steps)
        self.clip(arm)
        clicks = Clicks(arm.spec.config.data, seed, self.batch, arm.spec.device)
        kept: Deque[Snapshot] = deque(maxlen=KEPT)
        started, least, told = time.monotonic(), math.inf, {}  # type: float, float, Dict[str, Any]
        for step in range(steps):
            if step % WINDOW == 0 and step:
                # Before the step: the window is over.
                mean = float(series.losses[step - WINDOW : step].mean())
                if step // WINDOW > LEAP_FROM and not mean <= args.leap * least and "onset" not in told:
                    told = self.look_into(arm, series, kept, clicks, seed, step, least)
                    if args.again:
                        break
                least = min(least, mean)
                if args.again:
                    kept.append(taken(arm, step))
                if time.monotonic() > self.ends:
                    break
            arm.warm_up(step)
            series.step = step
            series.losses[step].copy_(arm.step(clicks.at(step)))
            done = step + 1
        losses = series.losses[:done].cpu()
        half = losses[done // 2 :].double()
        told.update(seed=seed, steps=done, losses=windows(losses), seconds=time.monotonic() - started,
                    second_half=float(half.mean()) if bool(half.isfinite().all()) else None,
                    largest_gradients=windows(series.norms[:done].norm(dim=1).cpu(), largest=True))  # fmt: skip
        return told

    def look_into(
        self, arm: Arm, series: Series, kept: Deque[Snapshot], clicks: Clicks, seed: int, step: int, least: float
    ) -> Dict[str, Any]:
        """All of a leap in the window that ends before `step`."""
        losses = series.losses[step - WINDOW : step]
        over = (losses > self.args.leap * least).nonzero()
        onset = step - WINDOW + int(over[0]) if len(over) else step - 1
        begin = kept[0].step if kept else step - WINDOW
        print(f"{self.args.arm} seed {seed}: leaps at step {onset}", file=sys.stderr, flush=True)
        told: Dict[str, Any] = {"onset": onset, "least": least, "from": begin, "step_losses": rounded(series.losses[begin:step]),
            "norms": rounded(series.norms[begin:step].norm(dim=1)), "largest": largest(arm, series.norms[onset]),
            "reach": None if series.reach is None else rounded(series.reach[begin:step].amax(1))}  # fmt: skip
        snapshots = [one for one in kept if one.step <= onset]
        if not snapshots:
            return told
        told["again"] = []
        near = next((one for one in reversed(snapshots) if one.step <= onset - 5), snapshots[0])
        far = snapshots[0]
        for name, times in self.args.again:
            for snapshot in [near, far] if far is not near else [near]:
                for _ in range(times):
                    again = self.again(self.other(name, seed, step), snapshot, clicks, step, least)
                    told["again"].append({"arm": name, **again})
                    print(f"  {name} from {snapshot.step}: onset {again['onset']}, worst {again['worst']:.3f}",
                          file=sys.stderr, flush=True)  # fmt: skip
        if self.args.arm != "bf16":
            told["compared"] = self.compared(near, clicks, seed, min(onset + 3, step))
        return told

    def again(self, arm: Arm, snapshot: Snapshot, clicks: Clicks, until: int, least: float) -> Dict[str, Any]:
        """The same batches from a snapshot on, to a window past the leap."""
        put_back(arm, snapshot)
        until += WINDOW
        losses = torch.full((until - snapshot.step,), math.nan, device=arm.spec.device)
        for step in range(snapshot.step, until):
            arm.warm_up(step)
            losses[step - snapshot.step].copy_(arm.step(clicks.at(step)))
        over = (losses > self.args.leap * least).nonzero()
        worst = max(value or math.inf for value in windows(losses.cpu()))
        return {"from": snapshot.step, "onset": snapshot.step + int(over[0]) if len(over) else None, "worst": worst}

    def compared(self, snapshot: Snapshot, clicks: Clicks, seed: int, until: int) -> List[Dict[str, Any]]:
        """The plan's steps once more, and of each what `loka.compare` says of it."""
        arm = self.other(self.args.arm, seed, until)
        put_back(arm, snapshot)
        rows = []
        for step in range(snapshot.step, until):
            batch = clicks.at(step)
            found = loka.compare(arm.ranker, lambda batch=batch: arm.loss(batch))
            first = [[row.parameter, float(f"{row.apart:.3g}")] for row in found.rows[:3]]
            rows.append({"step": step, "loss": found.loss, "in_bf16": found.reference_loss, "norm": found.norm,
                         "norm_in_bf16": found.reference_norm, "apart": found.apart, "most": first})  # fmt: skip
            arm.warm_up(step)
            arm.step(batch)
        return rows


def largest(arm: Arm, norms: Tensor) -> List[List[Any]]:
    """The parameters of the largest gradients of a step."""
    names = [name for name, one in arm.ranker.named_parameters() if one.requires_grad]
    order = norms.argsort(descending=True)[:5].tolist()
    return [[names[at], rounded(norms[at])] for at in order]


def rounded(values: Tensor) -> Any:
    """Four digits: files stay small."""
    return json.loads(json.dumps(values.tolist()), parse_float=lambda text: float(f"{float(text):.4g}"),
                      parse_constant=lambda _: None)  # fmt: skip


def table(reports: List[Dict[str, Any]]) -> List[str]:
    """How often each arm leapt, what it lost where BF16 has the same seeds, and who leapt from snapshots before a leap."""
    lines, groups = [], {}  # type: List[str], Dict[Tuple[Any, ...], Dict[int, Dict[str, Any]]]
    for report in reports:
        settings = report["settings"]
        key = (settings["model"], settings["batch"], settings["lr"], settings.get("clip"), settings["arm"])
        # One that time cut off has shown no leap, and no end either.
        ended = {run["seed"]: run for run in report["runs"] if "onset" in run or run["steps"] == settings["steps"]}
        groups.setdefault(key, {}).update(ended)
    for key, runs in sorted(groups.items(), key=str):
        model, batch, lr, clip, arm = key
        leapt = [run["onset"] for run in runs.values() if "onset" in run]
        where = f" (at step {', '.join(map(str, sorted(leapt)))})" if leapt else ""
        lines.append(f"{model}, batch {batch}, lr {lr:g}{f', clipped to {clip:g}' if clip else ''}, {arm}: {len(leapt)} of"
                     f" {len(runs)} runs leapt{where}{against(runs, groups.get((*key[:4], 'bf16'), {}), arm)}")  # fmt: skip
        again: Dict[Tuple[str, str], List[bool]] = {}
        for run in runs.values():
            last = max((one["from"] for one in run.get("again", [])), default=0)
            for one in run.get("again", []):
                snapshot = "the snapshot just before" if one["from"] == last else "one 60 to 80 steps earlier"
                again.setdefault((snapshot, one["arm"]), []).append(one["onset"] is not None)
        lines += [f"  from {snapshot}, {name}: {sum(found)} of {len(found)} leapt" for (snapshot, name), found in again.items()]
    return lines


def against(runs: Dict[int, Dict[str, Any]], truth: Dict[int, Dict[str, Any]], arm: str) -> str:
    """The mean loss of the second half over BF16's, paired by seed, of runs that neither ended at a leap."""
    def whole(one: Dict[str, Any]) -> bool:
        return one.get("second_half") is not None and not one.get("again")

    both = [seed for seed in runs if seed in truth and whole(runs[seed]) and whole(truth[seed])]
    if arm == "bf16" or len(both) < 2:
        return ""
    mean, error = mean_and_error([100 * (runs[seed]["second_half"] / truth[seed]["second_half"] - 1) for seed in both])
    return f"; loss of the second half {mean:+.3f} ± {error:.3f} % over BF16's, {len(both)} seeds"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains until a loss leaps, and looks into the leap.")
    parser.add_argument("--model", default="wukong-5.6G")
    parser.add_argument("--plan", help="plan file of the arms `plan`, `plan+f`, ...")
    parser.add_argument("--arm", default="plan", help="what trains: plan, a part of it as plan+fd, or bf16")
    parser.add_argument("--seeds", default="0-2", help="FIRST-LAST")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, help="instead of the model's own for losses")
    parser.add_argument("--lr", type=float, help="Adam's, instead of the model's own")
    parser.add_argument("--clip", type=float, help="the gradient's norm to so much; off without")
    parser.add_argument("--leap", type=float, default=LEAP_BAR, help="of a window's loss over the least before it")
    parser.add_argument("--again", default="plan:2,bf16:2", help="who goes on from the snapshots, and how often, as"
                        " 'plan:2,bf16:2,eager plan+d:1'")  # fmt: skip
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--table", type=Path, nargs="+", help="of these files; trains nothing")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.again = [(name, int(times)) for name, _, times in (part.partition(":") for part in args.again.split(",") if part)]
    return args


def main() -> None:
    args = arguments()
    if args.table:
        files = [json.loads(path.read_text()) for path in args.table]
        # Of one run, or such a table's own.
        reports = [report for file in files for report in file.get("reports", [file])]
        print("\n".join(table(reports)))
        write(args.out, {"reports": reports})
        return
    warnings.simplefilter("ignore")
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 64
    bench = Bench(args)
    first, _, last = args.seeds.partition("-")
    settings = {"model": args.model, "arm": args.arm, "steps": args.steps, "batch": bench.batch, "leap": args.leap,
                "lr": args.lr or bench.spec.config.lr, "clip": args.clip}  # fmt: skip
    report: Dict[str, Any] = {"settings": settings, **place(bench.spec), "runs": []}
    for seed in range(int(first), int(last or first) + 1):
        if time.monotonic() > bench.ends:
            break
        report["runs"].append(bench.run(seed))
        run = report["runs"][-1]
        print(f"{args.arm} seed {seed}: {run['steps']} steps, last {run['losses'][-1]}, leap {run.get('onset')},"
              f" {run['seconds']:.0f} s", file=sys.stderr, flush=True)  # fmt: skip
        write(args.out, report)


if __name__ == "__main__":
    main()
