"""Takes a `loka` binary and seeds; gives what FP8 in each GEMM costs in training, beside what Probe predicted.

Arms are recipe x accumulation x the GEMMs that run in FP8: forward alone, with dgrad, with wgrad, all three; and LoKA's
own plan. Everything else stays in FP32 with TF32 products, in the reference too, so that a difference is FP8's alone. The
same linears are in FP8 in all arms but the own plan's: those that every recipe can run (k and n multiples of 128), but the
first layer and the head.

`--prepare` trains each model once under a Recorder, probes the trace, and has `loka plan` make the plan of every arm.
Training then takes the plans, seed by seed: the same examples and starting parameters in all arms, as in `quality.py`.
`--merge` makes the tables: each arm, differences between arms (what dgrad adds, what fast accumulation adds, ...),
predicted beside measured.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import loka
from arms import FIRST, MODS, heads, modified, plan_digest
from clicks import Batch, ClickConfig, Clicks
from loka.plans.linear import route
from prediction import spearman
from quality import Results, by_arm, mean_and_error, merged, save
from rankers import Dcn, DcnShape, FlatEmbeddings, Ranker
from record_samples import train_on
from train import Trainer, TrainConfig, configs, device_of, run, sizes

HIGH = "cublaslt/tf32"
"""What runs a GEMM that an arm does not have in FP8: the reference's products."""

KERNELS: Dict[str, str] = {
    "tensorwise": "cublaslt/fp8-tensorwise",
    "tensorwise+fast": "cublaslt/fp8-tensorwise+fast",
    "rowwise": "cublaslt/fp8-rowwise",
    "rowwise+fast": "cublaslt/fp8-rowwise+fast",
    "blockwise": "cublaslt/fp8-blockwise",
    "delayed": "cublaslt/fp8-delayed",
    "delayed+fast": "cublaslt/fp8-delayed+fast",
}
"""Recipe (`+fast`: fast accumulation) -> kernel. Blockwise GEMMs always accumulate in FP32, once a block of 128."""

PARTS: Dict[str, Tuple[str, ...]] = {
    "f": ("fprop",), "fd": ("fprop", "dgrad"), "fw": ("fprop", "wgrad"), "fdw": ("fprop", "dgrad", "wgrad"),
}  # fmt: skip

REFERENCE = "fp32"
CONTROLS: Dict[str, str] = {
    REFERENCE: "FP32 parameters, TF32 products",
    "again": "the same from parameters moved by a part in 10^6: what chance alone does",
    "bf16": "the three GEMMs of the same linears in BF16",
    "half": "the gradient of half of each batch: a noise share of 1",
}
NARROW = ("f", "fdw")
"""Parts of `delayed`: it is there to be held against `tensorwise`."""

OWN = "balanced"
"""LoKA's own plan: every GEMM that the default policy has in FP8 where each kernel saves what `SAVED` says. At these sizes
none would pay, and the plan would be empty."""

SAVED: Dict[str, float] = {
    "delayed+fast": 0.10, "tensorwise+fast": 0.095, "rowwise+fast": 0.09, "delayed": 0.085, "tensorwise": 0.08,
    "rowwise": 0.075, "blockwise": 0.07,
}  # fmt: skip
"""Recipe -> what one GEMM by it saves of its site's time in BF16: about what it is at 8192 x 4096 x 4096 on an H200, in the
order found there. Only the order matters: the first that the policy allows is chosen."""

ARMS: List[str] = [
    *CONTROLS, OWN, *(f"{recipe}/{parts}" for recipe in KERNELS for parts in (NARROW if "delayed" in recipe else PARTS)),
]  # fmt: skip

T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t, two-sided 95 %; the first is for one degree of freedom."""


def t95(freedom: int) -> float:
    """Beyond the table by its expansion about the normal distribution's: to within .003."""
    return T95[freedom - 1] if freedom <= len(T95) else 1.96 + 2.4 / freedom


@dataclass(frozen=True)
class Subject:
    """A model of the proof. `make`: a fresh one on the CPU; `keep`: linears that no arm has in FP8."""

    name: str
    data: ClickConfig
    train: TrainConfig
    make: Callable[[int], nn.Module]
    keep: Tuple[str, ...]

    def sites(self) -> List[str]:
        """The linears that arms have in FP8."""
        linears = [(name, part) for name, part in self.make(0).named_modules() if isinstance(part, nn.Linear)]
        fit = [name for name, part in linears if part.in_features % 128 == part.out_features % 128 == 0]
        return [name for name in fit if name not in self.keep]


class DcnOfClicks(Ranker):
    """The ranker, called as the other click models are."""

    def forward(self, dense: Tensor, ids: Tensor, past: Optional[Tensor] = None) -> Tensor:
        del past
        return super().forward(dense, ids)


def wukong(args: argparse.Namespace) -> Subject:
    """The one of `quality.py`: raw counters, the three Mods, the first layer as it was."""
    parser = argparse.ArgumentParser()
    sizes(parser)
    given = ["--counters", "16", "--lr", "4e-3", "--steps", str(args.steps), "--batch", str(args.batch)]
    given += ["--held-out", str(args.held_out)]
    data, model, train = configs(parser.parse_args([*given, *(["--small"] if args.small else [])]))
    model = replace(model, hidden=128) if args.small else model
    return Subject("wukong", data, train, lambda seed: modified(model, seed, list(MODS), "surgery"), (FIRST,))


def dcnv2(args: argparse.Namespace) -> Subject:
    """The DCNv2 of `rankers.py` at an eighth of its width."""
    small = args.small
    shape = DcnShape(64, (13, 256, 128), 256, 3, (1024, 1024, 512))
    shape = DcnShape(16, (13, 64, 96), 128, 2, (128, 128)) if small else shape
    data = ClickConfig(tables=26, dense=13, rows=512 if small else 8192)
    train = wukong(args).train

    def make(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return DcnOfClicks(FlatEmbeddings(data, shape.dim), Dcn(shape, data.tables))

    return Subject("dcnv2", data, replace(train, lr=1e-3), make, ("stack.bottom.0", "stack.bottom.2"))


SUBJECTS: Dict[str, Callable[[argparse.Namespace], Subject]] = {"wukong": wukong, "dcnv2": dcnv2}


# Traces, predictions, plans


def prepare(subject: Subject, args: argparse.Namespace) -> None:
    """Leaves MODEL.predicted.json and a plan an arm in the folder."""
    folder: Path = args.prepare
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    trace = recorded(subject, folder / subject.name, args)
    print(f"{subject.name}: recorded after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    results, times = folder / f"{subject.name}.results.parquet", folder / f"{subject.name}.sites.json"
    times.write_text(json.dumps(as_if_large(trace, args.loka)))
    command = [args.loka, "probe", str(trace), "--json", "--out", str(results), "--engine", "cuda" if args.gpu else "cpu",
               "--min-draws", str(min(16, args.max_draws)), "--max-draws", str(args.max_draws),
               "--sites-times", str(times)]  # fmt: skip
    for kernel in (*KERNELS.values(), HIGH, "cublaslt/bf16"):
        command += ["--kernels", kernel]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    rows = [row_of(row) for row in map(json.loads, lines) if row.get("error")]
    print(f"{subject.name}: probed after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    own = own_choices(results, folder / f"{subject.name}.default.plan.json")
    told = {"model": subject.name, "sites": subject.sites(), "rows": rows, OWN: own}
    (folder / f"{subject.name}.predicted.json").write_text(json.dumps(told))
    policy = Path(__file__).with_name("quality.policy.json")
    for arm in ARMS:
        if arm not in CONTROLS:
            overrides = {"*:*": HIGH, **(own if arm == OWN else choices_of(arm, subject.sites()))}
            with warnings.catch_warnings():
                # That overrides break the policy, and that nobody measured times: both are meant.
                warnings.simplefilter("ignore")
                out = plan_of(folder, subject.name, arm)
                loka.plan(results, out, policy=policy, overrides=overrides, name=arm)
    print(f"{subject.name}: planned after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def recorded(subject: Subject, folder: Path, args: argparse.Namespace) -> Path:
    """Trains on seed 0 and records the last steps, eager."""
    config = subject.train
    trainer = Trainer(subject.make(0), config, device_of(args))
    clicks = Clicks(subject.data, 0, config.batch, trainer.device)
    first = config.steps - min(config.steps, args.recorded)
    losses = torch.zeros(config.steps, device=trainer.device)
    recorder = loka.Recorder(trainer.model, out=folder, name=subject.name, every=args.every, save_every=config.steps * 2,
                             loss_name="log_loss", heads=heads(trainer.model))  # fmt: skip
    train_on(trainer, clicks, losses, range(first), None)
    with recorder:
        train_on(trainer, clicks, losses, range(first, config.steps), recorder.loss)
    for warning in recorder.warnings:
        print(f"{subject.name}: {warning}", file=sys.stderr)
    assert recorder.path is not None
    return Path(recorder.path)


def as_if_large(trace: Path, loka_program: str) -> dict:
    """A table of site times in which every GEMM pays in FP8, each kernel as much as `SAVED` says."""
    told = subprocess.run([loka_program, "--json", "info", str(trace)], check=True, stdout=subprocess.PIPE, text=True).stdout
    entries = [entry["site"] for entry in map(json.loads, told.splitlines()) if "site" in entry]
    shapes = sorted({tuple(entry[size] for size in "mkn") for entry in entries})
    saved = {"cublaslt/bf16": 0.0, **{KERNELS[recipe]: part for recipe, part in SAVED.items()}}
    spread = lambda us: {"us": us, "p10_us": us, "p90_us": us}
    rows = [
        {"shape": dict(zip("mkn", shape)), "runtime": "launched", "kernels": kernels, "bf16": spread(1000.0),
         "site": spread(1000.0 * (1 - sum(saved[kernel] for kernel in kernels))), "samples": 1}
        for shape in shapes for kernels in itertools.product(saved, repeat=3) if set(kernels) != {"cublaslt/bf16"}
    ]  # fmt: skip
    return {"format": "loka-site-times", "version": 1, "device": "assumed", "driver": "", "versions": "",
            "recorded_at": "2026-01-01T00:00:00Z", "rows": rows}  # fmt: skip


def own_choices(results: Path, out: Path) -> Dict[str, str]:
    """SITE:GEMM -> kernel of every GEMM that the default policy's plan has in FP8."""
    loka.plan(results, out)
    sites = json.loads(out.read_text())["sites"]
    chosen = {f"{site['site']}:{gemm}": site[gemm]["kernel"] for site in sites for gemm in PARTS["fdw"]}
    return {at: kernel for at, kernel in chosen.items() if kernel in KERNELS.values()}


def choices_of(arm: str, sites: List[str]) -> Dict[str, str]:
    """The same of a recipe's arm."""
    recipe, parts = arm.split("/")
    return {f"{site}:{gemm}": KERNELS[recipe] for site in sites for gemm in PARTS[parts]}


def row_of(row: dict) -> dict:
    """What is wanted of a row of `loka probe --json`."""
    error = row["error"]
    noise, value = error.get("noise"), lambda cell: None if cell is None else cell["value"]
    return {
        "site": row["site"], "gemm": row["gemm"], "kernel": row["kernel"], "rel_l2": value(error["rel_l2"]),
        "noise_share": None if noise is None else noise["share"]["value"], "basis": noise and noise["basis"],
        "bias": value(error["bias"]), "loss_cost": value(error["loss_cost"]), "flushed": row["flushed"],
    }  # fmt: skip


def plan_of(folder: Path, model: str, arm: str) -> Path:
    return folder / f"{model}.{arm.replace('/', '.')}.plan.json"


# Training


class HalfTrainer(Trainer):
    """Learns from half of each batch; the loss it tells is the whole batch's."""

    def _step(self, batch: Batch, wrap: Optional[Callable[[Tensor], Tensor]] = None) -> None:
        del wrap
        logits = self.called(batch.dense, batch.ids, batch.past).float()
        each = functional.binary_cross_entropy_with_logits(logits, batch.label, reduction="none")
        each[: len(each) // 2].mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.loss.copy_(each.detach().mean())


def trainer_of(subject: Subject, arm: str, args: argparse.Namespace) -> Trainer:
    """An arm, ready to be given a seed's parameters."""
    device = device_of(args)
    model = subject.make(0).to(device)
    if arm == "bf16":
        for site in subject.sites():
            route(model.get_submodule(site), ("cublaslt/bf16",) * 3, not args.gpu)  # type: ignore[arg-type]
    elif arm not in CONTROLS:
        plan = plan_of(args.plans, subject.name, arm)
        # A captured step casts weights itself: between seeds nobody else would. Nothing is checked in a replay.
        loka.apply(model, plan, emulate=not args.gpu, check_every=None, cast_weights="forward")
    return (HalfTrainer if arm == "half" else Trainer)(model, subject.train, device)


def state_of(subject: Subject, arm: str, seed: int) -> Dict[str, Tensor]:
    """Where an arm starts: the same numbers in every arm of a seed."""
    state = subject.make(seed).state_dict()
    if arm == "again":
        moved = torch.Generator().manual_seed(seed + 1)
        for value in state.values():
            value.mul_(1 + 1e-6 * torch.randn(value.shape, generator=moved)) if value.is_floating_point() else value
    return state


def train_units(subjects: Dict[str, Subject], args: argparse.Namespace) -> dict:
    """Runs this shard's arms, all their seeds, saving after each run."""
    settings = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if args.gpu else "CPU",
                **{name: {"data": asdict(one.data), "train": asdict(one.train)} for name, one in subjects.items()}}  # fmt: skip
    report: dict = {"settings": settings, "plans": {}, "runs": []}
    done = {(one["model"], one["arm"], one["seed"]) for path in args.done for one in json.loads(path.read_text())["runs"]}
    index, count = (int(part) for part in args.shard.split("/"))
    every = [(name, arm) for arm in args.arms for name in subjects]
    seeds = range(args.first_seed, args.seeds)
    left = [pair for pair in every if any((*pair, seed) not in done for seed in seeds)]
    ends = time.monotonic() + 60 * args.minutes
    # Arm by arm, so that one is compiled at a time; or this shard's seeds, every arm of one before the next.
    jobs = [([pair], seeds) for pair in left[index::count]] if not args.by_seed else [(left, seeds[index::count])]
    for pairs, mine in jobs:
        trainers: Dict[Tuple[str, str], Trainer] = {}
        took = 0.0
        for seed, (name, arm) in itertools.product(mine, pairs):
            if (name, arm, seed) in done or time.monotonic() + took > ends:
                continue
            began = time.monotonic()
            subject = subjects[name]
            if (name, arm) not in trainers:
                trainers[name, arm] = trainer_of(subject, arm, args)
            trainer = trainers[name, arm]
            clicks = Clicks(subject.data, seed, subject.train.batch, trainer.device)
            result = run(trainer, clicks, state_of(subject, arm, seed), f"{name} {arm} seed {seed}:")
            if arm not in CONTROLS:
                report["plans"][f"{name} {arm}"] = plan_digest(plan_of(args.plans, name, arm))
            kept = {key: value for key, value in asdict(result).items() if key != "held_out"}
            report["runs"].append({"model": name, "arm": arm, **kept})
            save(report, args.out)
            took = time.monotonic() - began
            print(f"{name} {arm} seed {seed}: whole {result.whole:.6f}, held out {result.held_out_loss:.6f};"
                  f" {result.seconds:.1f} of {took:.1f} s", file=sys.stderr, flush=True)  # fmt: skip
        trainers.clear()
        torch._dynamo.reset()
    return report


# Tables

KEYS = ("whole", "held_out_loss")
Terms = List[Tuple[float, str]]
"""Arms with weights: a difference of means over arms."""


def percent(results: Results, terms: Terms, key: str) -> List[float]:
    """The weighted sum of the arms' relative changes against the reference, by seed; seeds that any arm lacks are left
    out."""
    reference = results.get(REFERENCE, {})
    shared = set(reference)
    for _, arm in terms:
        shared &= set(results.get(arm, {}))
    return [
        sum(weight * 100 * (results[arm][seed][key] / reference[seed][key] - 1) for weight, arm in terms)
        for seed in sorted(shared)
    ]  # fmt: skip


def cell(values: List[float]) -> dict:
    """Mean, standard error, 95 % interval, seeds."""
    mean, error = mean_and_error(values)
    half = t95(len(values) - 1) * error if len(values) > 1 else math.inf
    return {"mean": mean, "error": error, "half": half, "seeds": len(values)}


def contrasts() -> Dict[str, Terms]:
    """Name -> what is held against what, each averaged over all arms that differ in nothing else."""
    full = ("tensorwise", "tensorwise+fast", "rowwise", "rowwise+fast", "blockwise")
    both = ("tensorwise", "rowwise")

    def less(pairs: List[Tuple[str, str]]) -> Terms:
        return [(sign / len(pairs), arm) for pair in pairs for sign, arm in zip((1.0, -1.0), pair)]

    def added(gemm: str, recipes: Tuple[str, ...]) -> Terms:
        return less([(f"{one}/{more}", f"{one}/{base}") for one in recipes
                     for more, base in ((f"f{gemm}", "f"), ("fdw", "fw" if gemm == "d" else "fd"))])  # fmt: skip

    out: Dict[str, Terms] = {"forward, five recipes": [(1 / len(full), f"{one}/f") for one in full]}
    for gemm, name in (("d", "dgrad"), ("w", "wgrad")):
        out[f"{name} added, five recipes"] = added(gemm, full)
        for one in full:
            out[f"{name} added, {one}"] = added(gemm, (one,))
    out["dgrad and wgrad added, five recipes"] = less([(f"{one}/fdw", f"{one}/f") for one in full])
    for name, some in (("promoted", full[::2]), ("fast", full[1::2])):
        out[f"dgrad and wgrad added, {name}"] = less([(f"{one}/fdw", f"{one}/f") for one in some])
    out["fast less promoted, forward"] = less([(f"{one}+fast/f", f"{one}/f") for one in both])
    for gemm, name in (("d", "dgrad"), ("w", "wgrad")):
        fast, slow = (added(gemm, tuple(f"{one}{suffix}" for one in both)) for suffix in ("+fast", ""))
        out[f"fast less promoted, {name}"] = fast + [(-weight, arm) for weight, arm in slow]
        for one in both:
            slow = [(-weight, arm) for weight, arm in added(gemm, (one,))]
            out[f"fast less promoted, {name}, {one}"] = added(gemm, (f"{one}+fast",)) + slow
    out["fast less promoted, all three"] = less([(f"{one}+fast/fdw", f"{one}/fdw") for one in both])
    out["fast less promoted, all three, with delayed"] = less(
        [(f"{one}+fast/fdw", f"{one}/fdw") for one in (*both, "delayed")]
    )
    out["fast less promoted, mean of the four"] = less([(f"{one}+fast/{part}", f"{one}/{part}")
                                                        for one in both for part in PARTS])  # fmt: skip
    suffixes = ("", "+fast")
    out["tensorwise less rowwise, forward"] = less([(f"tensorwise{end}/f", f"rowwise{end}/f") for end in suffixes])
    for gemm, name in (("d", "dgrad (E5M2)"), ("w", "wgrad (E5M2)")):
        mine, theirs = (added(gemm, (one, f"{one}+fast")) for one in both)
        out[f"tensorwise less rowwise, {name}"] = mine + [(-weight, arm) for weight, arm in theirs]

    def backward(recipe: str) -> Terms:
        return less([(f"{recipe}{end}/fdw", f"{recipe}{end}/f") for end in suffixes])

    for one, other in (("tensorwise", "rowwise"), ("delayed", "tensorwise"), ("delayed", "rowwise")):
        name = f"{one} less {other}, both backward GEMMs"
        out[name] = backward(one) + [(-weight, arm) for weight, arm in backward(other)]
    for other in both:
        out[f"delayed less {other}, all three"] = less([(f"delayed{end}/fdw", f"{other}{end}/fdw") for end in suffixes])
    out["delayed less tensorwise, forward"] = less([(f"delayed{end}/f", f"tensorwise{end}/f") for end in suffixes])
    return out


def predicted(told: dict, arm: str, loss: float) -> dict:
    """Sums over an arm's GEMMs in FP8. `noise`: shares of dgrad and wgrad; `worst`: at most this much in one weight, its
    own wgrad and every dgrad; `loss_cost` in percent of the loss."""
    chosen = told[OWN] if arm == OWN else choices_of(arm, told["sites"])
    rows = {(f"{row['site']}:{row['gemm']}", row["kernel"]): row for row in told["rows"]}
    mine: Dict[str, List[dict]] = {gemm: [] for gemm in PARTS["fdw"]}
    for at, kernel in chosen.items():
        mine[at.rsplit(":", 1)[1]].append(rows[at, kernel])

    def values(gemm: str, key: str) -> List[float]:
        return [row[key] for row in mine.get(gemm, []) if row[key] is not None]

    shares = {gemm: values(gemm, "noise_share") for gemm in ("dgrad", "wgrad")}
    bias = {gemm: values(gemm, "bias") for gemm in ("fprop", "dgrad", "wgrad")}
    return {
        "noise": sum(map(sum, shares.values())), "worst": sum(shares["dgrad"]) + max(shares["wgrad"], default=0.0),
        **{f"bias_{gemm}": sum(found) for gemm, found in bias.items()},
        "bias": sum(abs(one) for gemm in ("dgrad", "wgrad") for one in bias[gemm]),
        "largest_bias": max((one for gemm in ("dgrad", "wgrad") for one in bias[gemm]), key=abs, default=0.0),
        "loss_cost": 100 * sum(values("fprop", "loss_cost")) / loss,
    }  # fmt: skip


def table(report: dict) -> List[dict]:
    """Prints the tables of each model, gives what they say."""
    return [model_table(told, {"runs": [one for one in report["runs"] if one["model"] == told["model"]]})
            for told in report["predicted"]]  # fmt: skip


def model_table(told: dict, report: dict) -> dict:
    """One model's arms, differences, and predictions."""
    results = by_arm(report)
    means = {key: mean_and_error([one[key] for one in results[REFERENCE].values()])[0] for key in KEYS}
    print(f"\n{told['model']}: {len(told['sites'])} linears in FP8; {REFERENCE}: "
          + ", ".join(f"{key} {mean:.5f}" for key, mean in means.items()) + f", {len(results[REFERENCE])} seeds")  # fmt: skip
    arms = [arm_row(told, results, arm, means["whole"]) for arm in ARMS if arm in results and arm != REFERENCE]
    print(f"{'arm':<20} {'seeds':>5} {'whole %':>9} {'s.e.':>6} {'95 %':>17} {'held out %':>10} {'s.e.':>6}"
          f" {'more than f %':>13} {'s.e.':>6} | {'noise':>7} {'worst':>7} {'bias d':>8} {'bias w':>8} {'cost %':>7}")  # fmt: skip
    for row in arms:
        print(arm_line(row))
    differences = {}
    print(f"{'difference':<52} {'seeds':>5} {'whole %':>9} {'s.e.':>6} {'95 %':>17} {'held out %':>10} {'s.e.':>6}")
    for name, terms in contrasts().items():
        if all(arm in results for _, arm in terms):
            found = {key: cell(percent(results, terms, key)) for key in KEYS}
            differences[name] = found
            print(f"{name:<52} {found['whole']['seeds']:>5} {cells_of(found)}")
    ranked = ranks_of(arms)
    for name, one in ranked.items():
        print(f"Spearman of {name}: {one['spearman']:+.2f} over {one['certain']} arms past two standard errors;"
              f" {one['all']:+.2f} over all {one['arms']}")  # fmt: skip
    if "half" in results:
        slope = cell(percent(results, [(1.0, "half")], "whole"))
        print(f"a noise share of 1 costs {slope['mean']:+.3f} ± {slope['error']:.3f} %; at this rate the largest `worst`"
              f" of all arms, {max(row['predicted']['worst'] for row in arms if row['predicted']):.4f}, would cost"
              f" {slope['mean'] * max(row['predicted']['worst'] for row in arms if row['predicted']):.4f} %")  # fmt: skip
    return {"model": told["model"], "reference": means, "arms": arms, "differences": differences, "spearman": ranked}


def arm_row(told: dict, results: Results, arm: str, loss: float) -> dict:
    """Measured and predicted of an arm."""
    row: dict = {"arm": arm, **{key: cell(percent(results, [(1.0, arm)], key)) for key in KEYS}}
    row["finite"] = all(one["finite"] for one in results[arm].values())
    forward = f"{arm.split('/')[0]}/f"
    has_forward = arm not in CONTROLS and arm != forward and forward in results
    row["backward"] = cell(percent(results, [(1.0, arm), (-1.0, forward)], "whole")) if has_forward else None
    row["predicted"] = None if arm in CONTROLS else predicted(told, arm, loss)
    return row


def cells_of(found: dict) -> str:
    """Both losses."""
    whole, held = found["whole"], found["held_out_loss"]
    interval = f"{whole['mean'] - whole['half']:+.3f} to {whole['mean'] + whole['half']:+.3f}"
    return (f"{whole['mean']:>+9.4f} {whole['error']:>6.4f} {interval:>17}"
            f" {held['mean']:>+10.4f} {held['error']:>6.4f}")  # fmt: skip


def arm_line(row: dict) -> str:
    """An arm's line."""
    told, back = row["predicted"], row["backward"]
    more = f"{back['mean']:>+13.4f} {back['error']:>6.4f}" if back else f"{'-':>13} {'-':>6}"
    wanted = "" if told is None else (
        f"{told['noise']:>7.4f} {told['worst']:>7.4f} {told['bias_dgrad']:>+8.4f} {told['bias_wgrad']:>+8.4f}"
        f" {told['loss_cost']:>7.4f}"
    )  # fmt: skip
    return f"{row['arm']:<20} {row['whole']['seeds']:>5} {cells_of(row)} {more} | {wanted}"


def ranks_of(arms: List[dict]) -> Dict[str, dict]:
    """Rank correlations of what was predicted with what was measured: over arms that differ from the reference by two
    standard errors, and over all. Of the backward: arms against their own forward."""
    out = {}
    pairs = [(key, "backward") for key in ("noise", "worst", "bias")]
    pairs += [(key, "whole") for key in ("noise", "worst", "bias", "loss_cost")]
    for key, measured in pairs:
        rows = [row for row in arms if row["predicted"] and row[measured] and math.isfinite(row[measured]["error"])]
        certain = [row for row in rows if abs(row[measured]["mean"]) > 2 * row[measured]["error"]]
        found = [spearman([row["predicted"][key] for row in some], [row[measured]["mean"] for row in some])
                 for some in (certain, rows)]  # fmt: skip
        name = f"{key} with what the {'backward adds' if measured == 'backward' else 'whole arm loses'}"
        out[name] = {"spearman": found[0], "certain": len(certain), "all": found[1], "arms": len(rows)}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description="What FP8 costs in training, GEMM by GEMM, recipe by recipe, with fast and promoted accumulation.",
        epilog="arms: " + "; ".join(f"{name}: {text}" for name, text in CONTROLS.items())
        + f"; {OWN}: what the default policy has in FP8; RECIPE/PARTS with recipes {', '.join(KERNELS)} and parts {', '.join(PARTS)} (f: fprop, d: dgrad, w: wgrad)",
    )  # fmt: skip
    parser.add_argument("--models", nargs="+", choices=sorted(SUBJECTS), default=list(SUBJECTS))
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--held-out", type=int, default=128, help="held-out batches at the end")
    parser.add_argument("--small", action="store_true", help="tiny sizes, for trying things on a CPU")
    parser.add_argument("--gpu", action="store_true", help="run on the CUDA device; else FP8 is emulated")
    parser.add_argument("--prepare", type=Path, metavar="DIR", help="record, probe and plan into this folder")
    parser.add_argument("--recorded", type=int, default=400, help="steps at the end that --prepare records")
    parser.add_argument("--every", type=int, default=10, help="statistics every so many of them")
    parser.add_argument("--max-draws", type=int, default=24, help="of the probe")
    parser.add_argument("--loka", default=os.environ.get("LOKA_BIN", "loka"), help="the program")
    parser.add_argument("--plans", type=Path, metavar="DIR", default=Path("proof"), help="what --prepare made")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS, metavar="ARM")
    parser.add_argument("--seeds", type=int, default=6, help="seeds 0..S-1")
    parser.add_argument("--first-seed", type=int, default=0, help="instead of 0")
    parser.add_argument("--shard", default="0/1", help="i/n: this process's part of the arms")
    parser.add_argument("--by-seed", action="store_true", help="shards are of the seeds: all arms of one before the next")
    parser.add_argument("--done", type=Path, nargs="+", default=[], help="outputs whose runs are not done again")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no run that would end later than this")
    parser.add_argument("--merge", type=Path, nargs="+", help="print the tables of these outputs; trains nothing")
    parser.add_argument("--out", type=Path, default=Path("proof.json"))
    args = parser.parse_args()
    if not args.gpu:
        # Shards side by side, and products too small to share: threads would only wait for each other.
        torch.set_num_threads(1)
    subjects = {name: SUBJECTS[name](args) for name in args.models}
    if args.prepare:
        for subject in subjects.values():
            prepare(subject, args)
        return
    report = merged(args.merge) if args.merge else train_units(subjects, args)
    if args.merge or (args.shard == "0/1" and not args.done):
        # A merged file has them already.
        if "predicted" not in report:
            paths = [args.plans / f"{name}.predicted.json" for name in args.models]
            report["predicted"] = [json.loads(path.read_text()) for path in paths]
        report["table"] = table(report)
        save(report, args.out)


if __name__ == "__main__":
    main()
