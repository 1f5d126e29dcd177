"""Takes the files that the stages of `end_to_end.py` left; gives a row per model, parameters and policy, with verdicts.

The bars are the project's own: losses within two standard errors of BF16's, first-step weight gradients within 1.5
times what was predicted, at least 85 % of the promised saving, never more than 1 % slower than BF16.
"""

import hashlib
import json
import math
import statistics
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

GEMMS = ("fprop", "dgrad", "wgrad")
PART = "+"
"""Between a policy and the GEMMs of its plan that an arm has in FP8, by their first letters: `balanced+fd`."""
GRADIENT_BAR, SAVING_BAR, SLOWER_BAR, LOSS_BAR = 1.5, 0.85, 1.01, 2.0
LEAP_BAR, LEAP_FROM = 1.1, 5
"""A run's loss leaps where a window of 20 steps, from the sixth on, has so many times the least loss before it."""

GRADIENT_FLOOR = 0.01
"""A weight's gradient that differs by less is not judged: BF16's own rounding is a part of it."""

HELD = {"launched": "step", "graph": "step graph", "inference": "infer graph"}
"""What a promise is held against, by the plan's runtime."""

Row = Dict[str, Any]


def loaded(path: Path) -> Optional[Row]:
    """A stage's file; None where the stage has not run."""
    return json.loads(path.read_text()) if path.exists() else None


def in_fp8(kernel: str) -> bool:
    """Whether a kernel computes in FP8."""
    return kernel.split("/")[-1] not in ("tf32", "bf16")


def fp8_gemms(plan: Row) -> Tuple[int, int]:
    """(GEMMs in FP8, all)."""
    kernels = [site[gemm]["kernel"] for site in plan["sites"] for gemm in GEMMS]
    return sum(map(in_fp8, kernels)), len(kernels)


def choices_digest(plan: Row) -> str:
    """The same for plans that run the same, whatever policy made them."""
    chosen = [[site["site"], *([site[gemm]["kernel"], site[gemm].get("static_scale")] for gemm in GEMMS)]
              for site in plan["sites"]]  # fmt: skip
    return hashlib.sha256(json.dumps([chosen, plan.get("runtime")]).encode()).hexdigest()


def promised_ms(plan: Row) -> Optional[float]:
    """What the plan says that a step saves; None where it knows no times."""
    totals = plan["totals"]
    saved = totals.get("saved_us")
    if saved is None and totals.get("baseline_us") is not None and totals.get("planned_us") is not None:
        saved = totals["baseline_us"] - totals["planned_us"]
    return None if saved is None else saved / 1e3


def mean_and_error(values: List[float]) -> Tuple[float, float]:
    """Mean and its standard error; infinite error from one value alone."""
    if len(values) < 2:
        return (values[0] if values else math.nan), math.inf
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def times_of(speed: Optional[Row], policy: str) -> Row:
    """Medians of both arms and what is saved."""
    if speed is None:
        return {}
    out: Row = {"device": speed["device"]}
    for kind in speed["ms"]["bf16"]:
        base, plan = (speed["ms"][arm][kind] for arm in ("bf16", policy))
        out[kind] = {
            "bf16_ms": base, "plan_ms": plan, "saved_ms": base["median"] - plan["median"],
            "speedup": base["median"] / plan["median"],
        }  # fmt: skip
    return out


def gradients_of(told: Optional[Row]) -> Row:
    """The worst weight of each state, by its ratio to what was predicted, of wgrad alone and under the whole plan."""
    out: Row = {}
    for state, found in (told or {}).items():
        if found.get("error"):
            out[state] = {"error": found["error"], "wgrad": None, "whole": None, "largest": None}
            continue
        wgrad, whole = [], []
        for row in found["rows"]:
            if row["wgrad"] is not None:
                wgrad.append((ratio(row, "wgrad"), row))
            whole.append((ratio(row, "whole"), row))
        out[state] = {
            "wgrad": worst(wgrad, "wgrad"), "whole": worst(whole, "whole"),
            "largest": max(found["rows"], key=lambda row: row["whole"]) if found["rows"] else None,
        }  # fmt: skip
    return out


def ratio(row: Row, key: str) -> float:
    """What was seen over what is to be expected: the prediction, and the rounding of BF16 in both arms, which a gradient that
    nearly cancels is full of."""
    predicted, own = row[f"{key}_predicted"], row.get("bf16") or 0.0
    if math.isnan(predicted):
        return math.nan
    return float(row[key] / max(math.hypot(predicted, math.sqrt(2) * own), GRADIENT_FLOOR / GRADIENT_BAR))


def worst(ratios: List[Tuple[float, Row]], key: str) -> Optional[Row]:
    """The pair of the largest ratio; a value that is no number is the worst of all."""
    if not ratios:
        return None
    most, row = max(ratios, key=lambda pair: math.inf if math.isnan(pair[0]) else pair[0])
    told = {"site": row["site"], "seen": row[key], "predicted": row[f"{key}_predicted"], "ratio": most}
    return {**told, "bf16": row["bf16"]} if "bf16" in row else told


def losses_of(base: Optional[Row], arm: Optional[Row]) -> Optional[Row]:
    """The paired difference of the loss over the second half of the runs, in percent."""
    if base is None or arm is None:
        return None
    shared = sorted(set(base["runs"]) & set(arm["runs"]))
    diverged = [seed for seed in shared if arm["runs"][seed]["second_half"] is None or arm["runs"][seed]["diverged_at"]]
    lost = [seed for seed in shared if base["runs"][seed]["second_half"] is None or base["runs"][seed]["diverged_at"]]
    paired = [seed for seed in shared if seed not in diverged and seed not in lost]
    pairs = [(base["runs"][seed]["second_half"], arm["runs"][seed]["second_half"]) for seed in paired]
    percent = [100 * (mine / theirs - 1) for theirs, mine in pairs]
    mean, error = mean_and_error(percent)
    leapt, bf16_leapt = ([seed for seed in shared if leaps(of["runs"][seed].get("losses") or [])] for of in (arm, base))
    return {
        "seeds": shared, "percent": percent, "mean": mean, "error": error, "diverged": diverged, "bf16_diverged": lost,
        "bf16": [theirs for theirs, _ in pairs], "leapt": leapt, "bf16_leapt": bf16_leapt,
    }  # fmt: skip


def leaps(losses: List[Optional[float]]) -> bool:
    """Whether a run's loss leapt up: a mean over seeds hides that behind the error it makes."""
    least = math.inf
    for at, loss in enumerate(losses):
        if loss is None or (at >= LEAP_FROM and loss > LEAP_BAR * least):
            return True
        least = min(least, loss)
    return False


def verdict(row: Row) -> List[str]:
    """What holds and what does not; a bar that was not measured is not mentioned."""
    if row["failed"]:
        return [f"FAILED at {stage}: {why}" for stage, why in row["failed"].items()]
    if row["fp8"] == 0:
        return ["nothing in FP8: it is BF16"]
    return [*_loss_verdict(row["loss"]), *_gradient_verdict(row["gradients"]), *_saving_verdict(row)]


def _loss_verdict(loss: Optional[Row]) -> List[str]:
    if loss is None:
        return []
    if loss["diverged"]:
        return [f"DIVERGED in {len(loss['diverged'])} of {len(loss['seeds'])} seeds"]
    if loss["bf16_diverged"]:
        return ["BF16 itself diverged"]
    if loss["leapt"] or loss["bf16_leapt"]:
        seeds = len(loss["seeds"])
        return [f"LOSS LEAPS in {len(loss['leapt'])} of {seeds} seeds, BF16's in {len(loss['bf16_leapt'])}"]
    if math.isinf(loss["error"]) or math.isnan(loss["mean"]):
        return ["loss: one seed proves nothing"]
    return ["loss ok" if loss["mean"] <= LOSS_BAR * loss["error"] else "LOSS WORSE"]


def _gradient_verdict(gradients: Row) -> List[str]:
    out = []
    for state, found in gradients.items():
        if found.get("error"):
            out.append(f"REFUSED ({state}): {found['error']}")
        for kind in ("wgrad", "whole"):
            one = found[kind]
            if one is not None and not one["ratio"] <= GRADIENT_BAR:
                out.append(f"GRADIENT {one['ratio']:.2g}x predicted ({kind}, {state}: {one['site']})")
    return out or (["gradients ok"] if gradients else [])


def _saving_verdict(row: Row) -> List[str]:
    times, promised = row["times"], row["promised_ms"]
    if not times or times["device"] == "CPU":
        # An emulated plan's time says nothing.
        return []
    out = []
    for kind in [kind for kind in times if kind != "device"]:
        slower = times[kind]["plan_ms"]["median"] / times[kind]["bf16_ms"]["median"]
        if slower > SLOWER_BAR:
            out.append(f"SLOWER ({kind}, {100 * (slower - 1):.1f} %)")
    if promised:
        share = held(row)["saved_ms"] / promised
        out.append("saving ok" if share >= SAVING_BAR else f"SAVES {100 * share:.0f} % of promised")
    return out


def held(row: Row) -> Row:
    """The times that the plan's promise is about."""
    found: Row = row["times"][HELD[row["runtime"] or "launched"]]
    return found


def row_of(folder: Path, model: str, parameters: str, policy: str) -> Optional[Row]:
    """Everything known of a plan; None before it is made. What ran for another policy with the same choices counts."""
    here = folder / f"{model}-{parameters}"
    failed = {path.stem: path.read_text().strip() for path in sorted(here.glob("*.failed")) if _of(path, policy)}
    plan = loaded(here / f"{policy}.plan.json")
    if plan is None:
        blank: Row = {"fp8": None, "gemms": None, "promised_ms": None, "times": {}, "gradients": {}, "loss": None}
        row = {"model": model, "parameters": parameters, "policy": policy, "failed": failed, **blank}
        return {**row, "verdict": verdict(row)} if failed else None
    twin = twin_of(here, policy)
    fp8, gemms = fp8_gemms(plan)
    told, speed = loaded(here / "apply.json"), loaded(here / f"speed-{twin}.json")
    row = {
        "model": model, "parameters": parameters, "policy": policy, "failed": failed, "fp8": fp8, "gemms": gemms,
        "plan_digest": plan["digest"], "same_choices_as": twin if twin != policy else None,
        "runtime": plan.get("runtime"), "totals": plan["totals"], "promised_ms": promised_ms(plan),
        "times": times_of(speed, twin), "account": account_of(speed, twin),
        "gradients": gradients_of(((told or {}).get("policies") or {}).get(policy)),
        "loss": losses_of(loaded(here / "quality-bf16.json"), loaded(here / f"quality-{twin}.json")),
    }  # fmt: skip
    return {**row, "verdict": verdict(row)}


def account_of(speed: Optional[Row], arm: str) -> Optional[str]:
    """What the host and the GPU do in a step, in words; None where nobody looked."""
    both = (speed or {}).get("account")
    if not both:
        return None
    parts = []
    for name in ("bf16", arm):
        step = next(iter(both[name].values()))
        parts.append(f"host {step['host_ms']:.2f} ms, GPU {step['gpu_ms']:.2f} ms, {step['launches']:.0f} launches")
    return f"{next(iter(both[arm]))} in BF16: {parts[0]}; by the plan: {parts[1]}"


def _of(path: Path, policy: str) -> bool:
    """Whether a failure is of this policy: named by it, or of a stage that all policies share."""
    stage, _, name = path.stem.partition("-")
    return name in ("", policy) or (stage == "quality" and name == "bf16")


def twin_of(here: Path, policy: str) -> str:
    """The first policy by name, itself included, whose plan makes the same choices."""
    mine = loaded(here / f"{policy}.plan.json")
    for path in sorted(here.glob("*.plan.json")):
        other = loaded(path)
        if mine is not None and other is not None and choices_digest(other) == choices_digest(mine):
            return path.name[: -len(".plan.json")]
    return policy


def parts_of(folder: Path, model: str, parameters: str) -> Row:
    """Losses of the arms that have a part of a plan in FP8, by the arm's name."""
    here = folder / f"{model}-{parameters}"
    base = loaded(here / "quality-bf16.json")
    found = {path.stem[len("quality-") :]: losses_of(base, loaded(path)) for path in sorted(here.glob(f"quality-*{PART}*.json"))}
    return {arm: loss for arm, loss in found.items() if loss is not None}


def control_of(folder: Path, model: str, parameters: str) -> Optional[Row]:
    """What chance alone does to a paired difference: BF16 from parameters that were moved a little."""
    here = folder / f"{model}-{parameters}"
    return losses_of(loaded(here / "quality-bf16.json"), loaded(here / "quality-bf16-again.json"))


def strict(value: Any) -> Any:
    """The same with None for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: strict(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number(value: Optional[float], form: str) -> str:
    """Formatted, or a dash."""
    return "-" if value is None else format(value, form)


def table(rows: List[Row]) -> List[str]:
    """The printed table."""
    heads = ["model", "parameters", "policy", "FP8 GEMMs", "promised ms", "saved ms", "of dense", "saved/promised",
             "speed-up", "of dense", "gradient / predicted", "loss % ± s.e.", "verdict"]  # fmt: skip
    cells = [heads, *(cells_of(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def cells_of(row: Row) -> List[str]:
    """One line of the table."""
    step, dense = (held(row), row["times"].get("dense")) if row["times"] else (None, None)
    if row["times"].get("device") == "CPU":
        step = dense = None
    saved = step["saved_ms"] if step else None
    share = saved / row["promised_ms"] if step and row["promised_ms"] else None
    loss, worst_gradient = row["loss"], gradient_cell(row["gradients"])
    told = "-"
    if loss is not None:
        told = "diverged" if loss["diverged"] else f"{loss['mean']:+.4f} ± {loss['error']:.4f}"
    fp8 = "-" if row["fp8"] is None else f"{row['fp8']} of {row['gemms']}"
    return [
        row["model"], row["parameters"], row["policy"], fp8, number(row["promised_ms"], ".3f"),
        number(saved, ".3f"), number(dense["saved_ms"] if dense else None, ".3f"), number(share, ".2f"),
        number(step["speedup"] if step else None, ".3f"), number(dense["speedup"] if dense else None, ".3f"),
        worst_gradient, told, "; ".join(row["verdict"]),
    ]  # fmt: skip


def gradient_cell(gradients: Row) -> str:
    """The worst error of wgrad alone over its prediction, and the worst under the whole plan."""
    found = gradients.get("fresh")
    if not found:
        return "-"
    cells = [f"{one['seen']:.3f}/{one['predicted']:.3f}" for one in (found["wgrad"], found["whole"]) if one]
    return ", ".join(cells)
