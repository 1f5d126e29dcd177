"""Takes a trained state, the probe's results of its trace, and a plan; gives predicted and measured change in log loss.

Each pair (site, kernel) runs that site's forward product alone by the kernel, all else in strict FP32, on the same
held-out examples as the reference: the mean of the per-example differences, and its standard error, in FP64. Three
such means are kept. `labels` takes the labels drawn. `truth` averages over them, since these clicks know their
probability: the same expected value, with far less noise; comparisons use it. `model` takes the reference's own
prediction for the truth: what is left is the curvature, all that a loss_cost can know; where it agrees and `truth` does
not, the model's own bias did it. Then uniform recipes on the whole model, and the plan. Prediction: the fprop rows'
`loss_cost`, summed over sites for a whole model.
"""

import argparse
import json
import math
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import loka
from arms import kept
from clicks import Batch, ClickConfig, Clicks
from loka import kernels as routing
from loka.plans.linear import route, unroute
from models import ModelConfig, build

HIGH = "cublaslt/bf16"
Costs = Dict[Tuple[str, str], float]


@dataclass
class Variant:
    """Sites with the kernel of their forward product; what the probe says it costs; sums of the differences."""

    name: str
    sites: Dict[str, str]
    predicted: float
    sums: Tensor
    call: Optional[Callable[[Batch], Tensor]] = None

    def measured(self, kind: int, count: int) -> Tuple[float, float]:
        """Mean difference of log loss and its standard error; kind 0 is `labels`, 1 `truth`, 2 `model`."""
        total, squares = self.sums[kind].tolist()
        mean = total / count
        return mean, math.sqrt(max(squares / count - mean * mean, 0.0) / count)


def probed(args: argparse.Namespace) -> Iterable[dict]:
    """Rows of the probe: from a file that `loka probe --json` printed, or by running it."""
    if args.results:
        lines = args.results.read_text().splitlines()
    else:
        results = str(args.out.with_suffix(".results.parquet"))
        command = [args.loka, "probe", str(args.trace), "--out", results, "--json", "--max-draws", str(args.max_draws)]
        for kernel in sorted({*args.kernels, *planned(args.plan)}):
            command += ["--kernels", kernel]
        print(" ".join(command), file=sys.stderr)
        lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
        args.out.with_suffix(".probe.jsonl").write_text("\n".join(lines))
    return [row for row in map(json.loads, lines) if "site" in row and "gemm" in row]


def planned(plan: Optional[Path]) -> List[str]:
    """Kernels of the forward products of a plan."""
    return [] if plan is None else sorted({site["fprop"]["kernel"] for site in json.loads(plan.read_text())["sites"]})


def costs_of(rows: Iterable[dict]) -> Costs:
    """loss_cost of each (site, kernel) in fprop, of the model as it was recorded: one trained with Mods has them in its
    trace, so that none are to be added."""
    found: Costs = {}
    for row in rows:
        cost = (row.get("error") or {}).get("loss_cost")
        if row["gemm"] == "fprop" and row["supported"] and not row["mods"] and cost is not None:
            found[row["site"], row["kernel"]] = cost["value"]
    return found


def why_not(module: nn.Linear, kernel: str, emulate: bool) -> Optional[str]:
    """Why a kernel cannot run the forward product of this linear here."""
    return routing.why_not(kernel, "fprop", module.in_features, module.out_features, module.weight.device, emulate)


def variants_of(
    model: nn.Module, costs: Costs, kernels: List[str], plan: Optional[Path], emulate: bool
) -> List[Variant]:
    """Each pair alone, each kernel on all sites that it can run, and the plan."""
    device = next(model.parameters()).device
    linears, out = dict(loka.names.linears(model)), []
    known = sorted({kernel for _, kernel in costs if kernel in kernels}, key=kernels.index)

    def add(name: str, sites: Dict[str, str]) -> None:
        predicted = sum(costs.get((site, kernel), math.nan) for site, kernel in sites.items())
        out.append(Variant(name, sites, predicted, torch.zeros(3, 2, dtype=torch.float64, device=device)))

    for kernel in known:
        fit = [site for site in linears if (site, kernel) in costs and why_not(linears[site], kernel, emulate) is None]
        for site in fit:
            add(f"{site} {kernel}", {site: kernel})
        if fit:
            add(f"whole model, {kernel}", dict.fromkeys(fit, kernel))
    if plan is not None:
        loka.apply(model, str(plan), emulate=emulate, mods="ignore")
        rows = [row for row in loka.resolved(model).rows if row.kernels is not None]
        add("plan", {row.site: row.kernels[0] for row in rows if row.kernels is not None})
        loka.unapply(model)
    return out


def forward_of(model: nn.Module, sites: Dict[str, str], emulate: bool, static: Batch) -> Callable[[Batch], Tensor]:
    """The model's logits with those sites routed. On CUDA one graph that reads `static`, for launches cost more than
    the products of a small model."""
    linears = dict(loka.names.linears(model))

    def forward(batch: Batch) -> Tensor:
        return model(batch.dense, batch.ids, batch.past)

    def routed(batch: Batch) -> Tensor:
        for site, kernel in sites.items():
            route(linears[site], (kernel, HIGH, HIGH), emulate)
        try:
            return forward(batch)
        finally:
            for site in sites:
                unroute(linears[site])

    if static.dense.device.type != "cuda":
        return routed
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        routed(static)
        routed(static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = routed(static)

    def replay(batch: Batch) -> Tensor:
        graph.replay()
        return logits

    return replay


def losses(logits: Tensor, reference: Tensor, batch: Batch) -> Tensor:
    """(3, B) log loss of each example in FP64, against its label, its true probability, the reference's prediction."""
    logits = logits.double()
    targets = torch.stack([batch.label.double(), batch.probability.double(), torch.sigmoid(reference.double())])
    return functional.softplus(logits) - targets * logits


def measure(
    model: nn.Module, clicks: Clicks, step: int, batches: int, variants: List[Variant], emulate: bool
) -> Tensor:
    """Adds up every variant's differences; gives the reference's mean losses (3,)."""
    static = next(iter(clicks.held_out(step, 1))).clone()
    total, started = torch.zeros(3, dtype=torch.float64, device=static.dense.device), time.monotonic()
    with torch.no_grad():
        reference_of = forward_of(model, {}, emulate, static)
        for variant in variants:
            variant.call = forward_of(model, variant.sites, emulate, static)
        for index, batch in enumerate(clicks.held_out(step, batches)):
            static.copy_from(batch)
            logits = reference_of(static)
            reference = losses(logits, logits, static)
            total += reference.mean(1)
            for variant in variants:
                assert variant.call is not None
                difference = losses(variant.call(static), logits, static) - reference
                variant.sums[:, 0] += difference.sum(1)
                variant.sums[:, 1] += difference.square().sum(1)
            if index % max(1, batches // 10) == 0:
                left = (time.monotonic() - started) / (index + 1) * (batches - index - 1)
                print(f"batch {index + 1}/{batches}, {left:.0f} s left", file=sys.stderr, flush=True)
    return total / batches


def ranks(values: List[float]) -> Tensor:
    """Ranks, ties at their mean."""
    ordered = sorted(values)
    mean = {value: (ordered.index(value) + len(ordered) - 1 - ordered[::-1].index(value)) / 2 for value in set(values)}
    return torch.tensor([mean[value] for value in values], dtype=torch.float64)


def spearman(a: List[float], b: List[float]) -> float:
    """Spearman's rank correlation; NaN for fewer than three pairs."""
    if len(a) < 3:
        return math.nan
    return float(torch.corrcoef(torch.stack([ranks(a), ranks(b)]))[0, 1])


def report_of(variants: List[Variant], count: int, reference: List[float]) -> dict:
    """Rows and the summary that is asked for: whole-model ratios, rank correlation where the change is certain."""
    rows = []
    for variant in variants:
        labels, truth, model = (variant.measured(kind, count) for kind in range(3))
        rows.append({
            "name": variant.name, "sites": len(variant.sites), "predicted": variant.predicted, "labels": labels,
            "truth": truth, "model": model, "certain": abs(truth[0]) > 3 * truth[1],
            "ratio": variant.predicted / truth[0] if truth[0] else math.nan,
        })  # fmt: skip
    every = [row for row in rows if row["sites"] == 1]
    pairs = [row for row in every if row["certain"]]
    gains = [row["name"] for row in pairs if row["truth"][0] < 0]
    return {
        "examples": count, "reference_loss": {"labels": reference[0], "truth": reference[1]}, "rows": rows,
        "certain_pairs": len(pairs), "pairs": len(every),
        "spearman": spearman([row["predicted"] for row in pairs], [row["truth"][0] for row in pairs]),
        "spearman_of_size": spearman([row["predicted"] for row in pairs], [abs(row["truth"][0]) for row in pairs]),
        "spearman_model": spearman([row["predicted"] for row in every], [row["model"][0] for row in every]),
        "certain_gains": gains,
    }  # fmt: skip


def show(report: dict) -> None:
    """Prints the table, the largest predictions first, and where the prediction fails."""
    print(f"{report['examples']} examples; reference log loss {report['reference_loss']}")
    heading = f"{'truth':>10} {'± s.e.':>8} {'labels':>10} {'± s.e.':>8} {'model':>9} {'ratio':>7}"
    print(f"{'':<52} {'predicted':>10} {heading}")
    for row in sorted(report["rows"], key=lambda row: (row["sites"] == 1, -row["predicted"])):
        truth, labels = (f"{row[kind][0]:>+10.2e} {row[kind][1]:>8.1e}" for kind in ("truth", "labels"))
        mark = "" if row["certain"] else " within 3 s.e."
        tail = f"{row['model'][0]:>9.2e} {row['ratio']:>7.2f}{mark}"
        print(f"{row['name']:<52} {row['predicted']:>10.2e} {truth} {labels} {tail}")
    print(f"Spearman {report['spearman']:.3f} over {report['certain_pairs']} of {report['pairs']} pairs past 3 s.e.;"
          f" of the size of the change {report['spearman_of_size']:.3f};"
          f" against `model`, all pairs, {report['spearman_model']:.3f}")  # fmt: skip
    for row in report["rows"]:
        if row["sites"] > 1 and row["certain"] and not 0.5 <= row["ratio"] <= 2:
            print(f"fails: {row['name']}: predicted over measured is {row['ratio']:.2f}")
    for name in report["certain_gains"]:
        print(f"fails: {name}: the loss fell, a cost cannot say so")


def loaded(state: dict, device: torch.device) -> nn.Module:
    """The trained model, with its Mods."""
    model = build(ModelConfig(**state["model"]), state["seed"])
    if state.get("mods"):
        loka.mods.apply(model, state["mods"], keep=kept(model))
    model.load_state_dict(state["state"])
    return model.to(device).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description="How well loss_cost predicts the paired change in log loss.")
    parser.add_argument("state", type=Path, help="NAME.pt of record_samples.py")
    parser.add_argument("--results", type=Path, help="what `loka probe --json` printed; else it is run on --trace")
    parser.add_argument("--trace", type=Path, help="NAME.trace.safetensors of record_samples.py")
    parser.add_argument("--loka", default="loka", help="the program")
    parser.add_argument("--max-draws", type=int, default=64, help="of the probe, at least 16")
    parser.add_argument("--plan", type=Path, help="a plan for this model")
    parser.add_argument("--millions", type=float, default=4.0, help="held-out examples")
    default = ["cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise", "cublaslt/fp8-blockwise"]
    parser.add_argument("--kernels", nargs="+", default=default, help="kernel names; without fast accumulation the same"
                        " numerics serve many libraries")  # fmt: skip
    parser.add_argument("--emulate", action="store_true", help="round as the kernels do, multiply in FP32")
    parser.add_argument("--gpu", action="store_true", help="run on the CUDA device")
    parser.add_argument("--out", type=Path, default=Path("prediction.json"))
    args = parser.parse_args()
    if not args.results and not args.trace:
        parser.error("give --results or --trace")
    torch.set_float32_matmul_precision("highest")
    device = torch.device("cuda" if args.gpu else "cpu")
    state = torch.load(args.state, map_location="cpu", weights_only=True)
    model, batch, steps = loaded(state, device), state["train"]["batch"], state["train"]["steps"]
    clicks = Clicks(ClickConfig(**state["data"]), state["seed"], batch, device)
    costs = costs_of(probed(args))
    variants = variants_of(model, costs, args.kernels, args.plan, args.emulate)
    batches = max(1, round(args.millions * 1e6 / batch))
    reference = measure(model, clicks, steps, batches, variants, args.emulate)
    report = report_of(variants, batches * batch, reference.tolist())
    args.out.write_text(json.dumps(report, indent=1))
    show(report)


if __name__ == "__main__":
    main()
