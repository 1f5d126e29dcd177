"""Takes public Wukong shapes and plans; gives the time of a training step and of inference, compute only, by arm.

Arms: BF16 original, BF16 + Mods, then on the model with Mods each uniform TorchAO recipe (where torchao is installed),
LoKA's tensorwise kernel on every linear alike, and LoKA's plan. Everything is compiled first; then the arms take turns,
round after round, so that clocks and neighbours trouble all of them alike, and ratios are of one run. With `--trace`
the model with Mods is recorded instead: `loka bench --shapes`, `loka probe`, `loka plan` then make the plan.
"""

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, List, Optional

import torch
from torch import Tensor, nn
from torch.nn import functional

import loka
from arms import MODS
from public_wukong import PUBLIC_SHAPES, PublicShape, PublicWukong

TORCHAO = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
UNIFORM = "cublaslt/fp8-tensorwise+fast"
ORIGINAL, BASELINE = "bf16 original", "bf16 + mods"


@dataclass
class Arm:
    """One arm of a shape: the calls to time by kind ("train", "infer", the same as a CUDA graph), their times in ms."""

    name: str
    calls: Dict[str, Callable[[], None]]
    times: Dict[str, List[float]] = field(default_factory=lambda: defaultdict(list))
    digest: Optional[str] = None


def plain(shape: PublicShape, mods: bool) -> nn.Module:
    """The model in BF16 on the device, the same parameters each time."""
    torch.manual_seed(0)
    model = PublicWukong(shape)
    if mods:
        loka.mods.apply(model, list(MODS), keep=["top"], everywhere=True)
    return model


def wide(model: nn.Module) -> Dict[str, nn.Linear]:
    """The linears that uniform recipes convert: both dims at least 128 and multiples of 16, not the top."""
    found = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    sizes = {name: (part.in_features, part.out_features) for name, part in found.items()}
    return {
        name: part for name, part in found.items()
        if "top" not in name and min(sizes[name]) >= 128 and not any(size % 16 for size in sizes[name])
    }  # fmt: skip


def torchao_arm(model: nn.Module, recipe: str) -> None:
    """Converts by TorchAO; ImportError where it is not installed."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    chosen = wide(model)
    config = Float8LinearConfig.from_recipe_name(recipe)
    convert_to_float8_training(model, module_filter_fn=lambda _, name: name in chosen, config=config)


def uniform_arm(model: nn.Module) -> None:
    """One LoKA kernel on every wide linear, all three GEMMs."""
    from loka.plans.linear import route

    for part in wide(model).values():
        route(part, (UNIFORM, UNIFORM, UNIFORM), False)


def arms_of(
    shape: PublicShape, plan: Optional[Path], x: Tensor, label: Tensor, capture: bool, wanted: List[str]
) -> List[Arm]:
    """Every arm that can run here, compiled and warm. One that cannot is said and left out. `wanted`: name parts."""
    makers: Dict[str, Callable[[nn.Module], object]] = {ORIGINAL: lambda model: None, BASELINE: lambda model: None}
    for recipe in TORCHAO:
        makers[f"torchao/{recipe}"] = lambda model, recipe=recipe: torchao_arm(model, recipe)
    makers[f"loka uniform {UNIFORM}"] = uniform_arm
    if plan is not None:
        makers["loka plan"] = lambda model: loka.apply(model, str(plan))
    arms = []
    for name, make in makers.items():
        if wanted and not any(part in name for part in wanted):
            continue
        started = time.monotonic()
        model = plain(shape, mods=name != ORIGINAL).to(x.device, torch.bfloat16)
        try:
            made = make(model)
            arm = Arm(name, steps_of(model, x, label, capture))
        except Exception as error:
            print(f"  {name}: left out: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr, flush=True)
            continue
        if name == "loka plan" and plan is not None:
            print(made)
            arm.digest = json.loads(plan.read_text())["digest"]
        print(f"  {name}: ready after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        arms.append(arm)
    return arms


def steps_of(model: nn.Module, x: Tensor, label: Tensor, capture: bool) -> Dict[str, Callable[[], None]]:
    """A training step (forward, loss, backward) and inference, compiled and run; `capture`: also as CUDA graphs."""
    called = torch.compile(model, dynamic=False)
    parameters = list(model.parameters())

    def train() -> None:
        functional.binary_cross_entropy_with_logits(called(x).float(), label).backward()
        for parameter in parameters:
            parameter.grad = None

    def infer() -> None:
        with torch.no_grad():
            called(x)

    calls = {"train": warm(train), "infer": warm(infer)}
    if capture:
        calls.update({"train graph": captured(train), "infer graph": captured(infer)})
    return calls


def warm(call: Callable[[], None]) -> Callable[[], None]:
    """The same, after it has compiled."""
    for _ in range(3):
        call()
    return call


def captured(call: Callable[[], None]) -> Callable[[], None]:
    """The same as one CUDA graph: no launch gaps."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        warm(call)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def timed(call: Callable[[], None], count: int, device: torch.device) -> List[float]:
    """Milliseconds of each of `count` calls after one that is not counted (it pays for the change of arm)."""
    times = []
    for _ in range(count + 1):
        if device.type == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            started = time.perf_counter()
            call()
            times.append((time.perf_counter() - started) * 1e3)
    return times[1:]


def spread(times: List[float]) -> Dict[str, float]:
    """Median with p10 and p90."""
    cuts = statistics.quantiles(times, n=10, method="inclusive")
    return {"median": statistics.median(times), "p10": cuts[0], "p90": cuts[8]}


def measure(name: str, args: argparse.Namespace, plan: Optional[Path], device: torch.device) -> dict:
    """Times every arm of a shape and prints its table; with no rounds it only compiles (and fills the caches)."""
    shape = PUBLIC_SHAPES[name]
    x, label = inputs(shape, torch.Generator(device).manual_seed(1))
    torch._dynamo.reset()
    print(f"{name}: compiling", file=sys.stderr, flush=True)
    arms = arms_of(shape, plan, x, label, args.graphs, args.arms)
    for turn in range(args.rounds):
        for arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
            for kind, call in arm.calls.items():
                arm.times[kind] += timed(call, args.calls, device)
    if not args.rounds:
        return {}
    rows = [
        {"arm": arm.name, "plan_digest": arm.digest, "samples_ms": arm.times,
         **{kind: spread(times) for kind, times in arm.times.items()}}
        for arm in arms
    ]  # fmt: skip
    show(name, shape, rows)
    return {"shape": vars(shape), "rows": rows}


def show(name: str, shape: PublicShape, rows: List[dict]) -> None:
    """Prints medians, and the speed-up over BF16 + Mods."""
    base = next((row for row in rows if row["arm"] == BASELINE), rows[0])
    kinds = list(rows[0]["samples_ms"])
    print(f"\n{name}, batch {shape.batch}: ms (median, p10, p90), and speed-up over {base['arm']}")
    print(f"{'arm':<42}" + "".join(f" {kind:>12} {'p10':>7} {'p90':>7} {'x':>6}" for kind in kinds))
    for row in rows:
        cells = ""
        for kind in kinds:
            ratio = row[kind]["speedup"] = base[kind]["median"] / row[kind]["median"]
            cells += f" {row[kind]['median']:>12.3f} {row[kind]['p10']:>7.3f} {row[kind]['p90']:>7.3f} {ratio:>6.3f}"
        print(f"{row['arm']:<42}{cells}", flush=True)


def inputs(shape: PublicShape, generator: torch.Generator) -> "tuple[Tensor, Tensor]":
    """Random embeddings in BF16 and random labels, on the generator's device."""
    size, device = (shape.batch, shape.tokens, shape.dim), generator.device
    x = torch.randn(size, generator=generator, device=device, dtype=torch.bfloat16)
    return x, torch.rand(shape.batch, generator=generator, device=device).round()


def trace(name: str, out: Path, steps: int, device: torch.device) -> None:
    """Records the model with Mods over a few steps; inputs and labels are drawn anew each step, weights stay."""
    shape = PUBLIC_SHAPES[name]
    model = plain(shape, mods=True).to(device, torch.bfloat16)
    generator = torch.Generator(device).manual_seed(2)
    with loka.Recorder(model, out=out, name=f"wukong-{name}", every=1, family="wukong", heads=["top.2"]) as recorder:
        for _ in range(steps):
            x, label = inputs(shape, generator)
            recorder.loss(functional.binary_cross_entropy_with_logits(model(x).float(), label)).backward()
            recorder.step()
            model.zero_grad(set_to_none=True)
    print(f"{name}: {recorder.path}, {len(recorder.sites)} sites")
    for warning in recorder.warnings:
        print(f"  {warning}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Training-step and inference time of public Wukong shapes.")
    parser.add_argument("--configs", nargs="+", choices=sorted(PUBLIC_SHAPES), default=["2.1G", "5.6G"])
    parser.add_argument("--plan", nargs="*", default=[], metavar="CONFIG=FILE", help="LoKA's plan of a config")
    parser.add_argument("--arms", nargs="*", default=[], metavar="PART", help="only arms with one of these in the name")
    parser.add_argument("--rounds", type=int, default=12, help="turns of every arm")
    parser.add_argument("--calls", type=int, default=5, help="timed calls a turn")
    parser.add_argument("--graphs", action="store_true", help="also as CUDA graphs: without launch gaps")
    parser.add_argument("--trace", type=Path, metavar="FOLDER", help="record traces there instead of timing")
    parser.add_argument("--trace-steps", type=int, default=20)
    parser.add_argument("--gpu", action="store_true", help="run on the CUDA device")
    parser.add_argument("--out", type=Path, default=Path("wukong_step.json"))
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    # All arms share the code of one class: past this many, the compiler would give up and run the rest eagerly.
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 256
    device = torch.device("cuda" if args.gpu else "cpu")
    if args.trace:
        for name in args.configs:
            trace(name, args.trace, args.trace_steps, device)
        return
    plans = {each.split("=", 1)[0]: Path(each.split("=", 1)[1]) for each in args.plan}
    place = torch.cuda.get_device_name() if args.gpu else "cpu"
    report: dict = {"torch": torch.__version__, "device": place, "graphs": args.graphs, "configs": {}}
    for name in args.configs:
        report["configs"][name] = measure(name, args, plans.get(name), device)
        args.out.write_text(json.dumps(report))


if __name__ == "__main__":
    main()
