"""Takes one stage of `end_to_end.py` as JSON, runs it in this process, and writes what it measured as JSON.

    python stages.py '{"stage": "record", "model": "dcnv2", "parameters": "fp32", "out": "record.json", ...}'

record   trains the model and records its trace; keeps the state that it ends in
apply    first-step gradients of every plan against BF16's on the same batch, from the fresh and from the recorded state
speed    one plan against BF16, taking turns, as the plan's runtime runs them: the training step and its dense part alone
         (launched), both as CUDA graphs (graph), or evaluation of a frozen model (inference)
quality  the losses of one arm, seed by seed

A process a stage: a plan that fails on the device takes nothing else with it, and no stage inherits another's compiled
code or memory.
"""

import copy
import json
import math
import os
import statistics
import subprocess
import sys
import time
import types
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import loka
from clicks import Batch, Clicks
from loka.kernels import Overflow
from loka.plans.following import following
from rankers import Ranker, RankerConfig, build, config_of
from verdicts import GEMMS, PART, in_fp8

BASELINE = "cublaslt/bf16"
WARMUP = 100
"""Steps over which the learning rate rises to its own."""

READY_BATCHES = 4
"""Batches made beforehand for timing, so that making clicks is not timed."""

WINDOW = 20
"""Steps whose mean loss is one number of the report."""

BURST_MS = 150.0
"""About how long one sample of a time takes: that many steps back to back, as training runs them."""


@dataclass(frozen=True)
class Spec:
    """What a stage is asked for; `plans` is policy -> plan file, `arm` a policy, a part of its plan, "bf16" or "bf16-again"."""

    stage: str
    model: str
    parameters: str
    out: str
    small: bool = False
    cpu: bool = False
    compile: bool = True
    steps: int = 300
    every: int = 10
    trace: str = ""
    state: str = ""
    plans: Dict[str, str] = field(default_factory=dict)
    arm: str = "bf16"
    runtime: str = "launched"
    rounds: int = 15
    seeds: int = 3
    batch: Optional[int] = None
    lr: Optional[float] = None
    mode: Optional[str] = None
    """Of torch.compile: "reduce-overhead" replays what is compiled as CUDA graphs."""
    recorder: Dict[str, Any] = field(default_factory=dict)
    """Options of `loka.Recorder` other than the defaults."""

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.cpu else "cuda")

    @property
    def config(self) -> RankerConfig:
        return config_of(self.model, self.small)


# What every stage needs


def autocast(spec: Spec) -> "AbstractContextManager[Any]":
    """BF16 autocast where the parameters are FP32."""
    return torch.autocast(spec.device.type, torch.bfloat16, enabled=spec.parameters == "fp32")


def log_loss(logits: Tensor, label: Tensor) -> Tensor:
    """Mean log loss in FP32."""
    return functional.binary_cross_entropy_with_logits(logits.float(), label)


def fresh(spec: Spec, seed: int = 0) -> Ranker:
    """The model with nothing applied."""
    return build(spec.config, spec.parameters, seed, spec.device)


def planned(spec: Spec, ranker: Ranker, arm: str) -> Any:
    """Applies the plan of a policy, as a user would, or the part of it that an arm names; emulated where there is no FP8."""
    policy, _, parts = arm.partition(PART)
    plan = only(loka.load_plan(spec.plans[policy]), parts) if parts else spec.plans[policy]
    return loka.apply(ranker, plan, emulate=spec.cpu)


def isolated(function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy with a code object of its own. Dynamo keeps what it compiled with the code object, and tries one arm's
    guards after the other's: sharing it, a later arm would pay for the earlier ones' in every step."""
    code = function.__code__
    name = f"{code.co_name}_{isolated.count}"
    isolated.count += 1
    closure = function.__closure__
    return types.FunctionType(code.replace(co_name=name), function.__globals__, name, function.__defaults__, closure)


isolated.count = 0  # type: ignore[attr-defined]


def embedded(ranker: Ranker, dense: Tensor, ids: Tensor) -> Tuple[Tensor, ...]:
    """What the dense part reads."""
    return ranker.embedded(dense, ids)


def dense_loss(stack: nn.Module, parts: Tuple[Tensor, ...], label: Tensor) -> Tensor:
    """The dense part and its loss."""
    return log_loss(stack(*parts), label)


def dense_answers(stack: nn.Module, parts: Tuple[Tensor, ...]) -> Tensor:
    """What the dense part gives."""
    return stack(*parts)


class Arm:
    """A model under training: embeddings and dense part compiled each for itself, fused Adam."""

    def __init__(self, spec: Spec, ranker: Ranker, code: "Optional[Code]" = None) -> None:
        self.spec, self.ranker, self.code = spec, ranker, code or Code(spec)
        self.lr = spec.lr or spec.config.lr
        self.parameters = [parameter for parameter in ranker.parameters() if parameter.requires_grad]
        in_graph = spec.runtime == "graph" and not spec.cpu
        self.optimizer = torch.optim.Adam(self.parameters, lr=self.lr, fused=True, capturable=in_graph)
        self.calls: Dict[str, Callable[[int], None]] = {}

    def step(self, batch: Batch) -> Tensor:
        """Forward, loss, backward, optimizer; gives the loss."""
        if self.spec.mode:
            torch.compiler.cudagraph_mark_step_begin()
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        # The next replay writes over what this one gave.
        return loss.detach().clone() if self.spec.mode else loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """Of a batch, to call backward on."""
        with autocast(self.spec):
            parts = self.code.embedded(self.ranker, batch.dense, batch.ids)
            return self.code.dense_loss(self.ranker.stack, parts, batch.label)

    def dense_step(self, parts: Tuple[Tensor, ...], label: Tensor) -> None:
        """Forward, loss and backward of the dense part alone, down to the gradient that embeddings would get."""
        if self.spec.mode:
            torch.compiler.cudagraph_mark_step_begin()
        with autocast(self.spec):
            loss = self.code.dense_loss(self.ranker.stack, parts, label)
        loss.backward()
        for tensor in (*self.parameters, *parts):
            tensor.grad = None

    def infer(self, parts: Tuple[Tensor, ...]) -> None:
        """The dense part's answers."""
        with torch.no_grad():
            self.code.dense_answers(self.ranker.stack, parts)

    def inputs(self, batch: Batch) -> Tuple[Tensor, ...]:
        """What `dense_step` reads of a batch: raw dense features need no gradient, embeddings do."""
        with torch.no_grad():
            parts = self.ranker.embedded(batch.dense, batch.ids)
        return tuple(part.clone().requires_grad_(part.shape != batch.dense.shape) for part in parts)

    def warm_up(self, step: int) -> None:
        """Sets the learning rate of a step."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * min(1.0, (step + 1) / WARMUP)


class Code:
    """The functions of an arm, compiled; models of one arm, one after the other, share it."""

    def __init__(self, spec: Spec) -> None:
        self.originals = tuple(isolated(function) for function in (embedded, dense_loss, dense_answers))
        called = (
            [torch.compile(function, dynamic=False, mode=spec.mode) for function in self.originals]
            if spec.compile
            else self.originals
        )
        self.embedded, self.dense_loss, self.dense_answers = called

    @property
    def variants(self) -> List[int]:
        """How many times Dynamo compiled each: one, or two where the leaf of the dense part is its own variant."""
        from torch._dynamo.eval_frame import _debug_get_cache_entry_list

        return [len(_debug_get_cache_entry_list(original.__code__)) for original in self.originals]


def health(ranker: Ranker) -> Dict[str, Any]:
    """What LoKA itself says of the model: its canary's table, what saturated, and what went beyond its scale."""
    told: Dict[str, Any] = {"saturated": loka.saturated(ranker), "health": str(loka.health(ranker))}
    found = sorted(beyond(ranker).items(), key=lambda pair: -pair[1].steps)
    told["overflows"] = [[site, operand, one.steps, one.most] for (site, operand), one in found if one.steps]
    return told


def beyond(ranker: Ranker) -> Dict[Tuple[str, str], Overflow]:
    """How often each operand lay beyond the scale that follows it."""
    scales = following(ranker)
    return {} if scales is None else scales.overflows()


def place(spec: Spec) -> Dict[str, Any]:
    """Where a figure is from."""
    told: Dict[str, Any] = {"device": "CPU", "torch": torch.__version__, "cuda": None, "driver": None}
    if not spec.cpu:
        told.update(device=torch.cuda.get_device_name(), cuda=torch.version.cuda, driver=driver())
    return told


def driver() -> Optional[str]:
    """The NVIDIA driver's version; None where nobody tells."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True)
    except OSError:
        return None
    return found.stdout.split("\n")[0].strip() or None


# Stages


def record(spec: Spec) -> Dict[str, Any]:
    """Trains while a Recorder listens. Eager: the recorder is the same, and two variants need not be compiled."""
    ranker, config = fresh(spec), spec.config
    arm = Arm(replace(spec, compile=False), ranker)
    clicks = Clicks(config.data, 0, config.batch, spec.device)
    trace, losses = Path(spec.trace), []
    trace.parent.mkdir(parents=True, exist_ok=True)
    options = dict(name=trace.name.split("-rank0")[0], every=spec.every, family=config.family, heads=[config.head])
    options.update(spec.recorder)
    with loka.Recorder(ranker, out=trace.parent, **options) as recorder:
        for step in range(spec.steps):
            arm.warm_up(step)
            batch = clicks.at(step)
            with autocast(spec):
                loss = log_loss(ranker(batch.dense, batch.ids), batch.label)
            recorder.loss(loss).backward()
            arm.optimizer.step()
            arm.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
    if recorder.path != trace:
        raise RuntimeError(f"the trace is {recorder.path}, expected {trace}")
    torch.save(ranker.state_dict(), spec.state)
    return {
        "steps": spec.steps, "batch": config.batch, "sites": len(recorder.sites), "warnings": recorder.warnings,
        "trace_bytes": trace.stat().st_size, "losses": windows(torch.stack(losses)),
    }  # fmt: skip


def apply(spec: Spec) -> Dict[str, Any]:
    """Gradients of a first step, by state and policy."""
    config = spec.config
    batch = Clicks(config.data, 0, config.batch, spec.device).at(0).clone()
    states: Dict[str, Optional[Dict[str, Tensor]]] = {"fresh": None}
    if spec.state and Path(spec.state).exists():
        states["recorded"] = torch.load(spec.state, map_location=spec.device)
    report: Dict[str, Any] = {"states": list(states), "policies": {policy: {} for policy in spec.plans}}
    for name, state in states.items():
        ranker = fresh(spec)
        if state is not None:
            ranker.load_state_dict(state)
        order: List[str] = []
        reference = gradients(spec, ranker, batch, order)
        own = distances(reference, in_fp32(spec, ranker, batch))
        for policy, plan in spec.plans.items():
            errors = Errors(json.loads(Path(plan).read_text()), order, name)
            try:
                told = gradients_under(spec, ranker, batch, policy, errors, reference)
                told["rows"] = [{**row, "bf16": own[f"{row['site']}.weight"]} for row in told["rows"]]
            except Exception as error:
                # A plan that is refused is a result: the other plans' gradients are wanted all the same.
                told = {"error": f"{type(error).__name__}: {error}".split("\n")[0], "rows": []}
                loka.unapply(ranker)
                ranker.zero_grad(set_to_none=True)
            report["policies"][policy][name] = told
    return report


def gradients(spec: Spec, ranker: Ranker, batch: Batch, order: Optional[List[str]] = None) -> Dict[str, Tensor]:
    """The gradient of every parameter, eager; fills `order` with the linears in the order of their calls."""
    handles = []
    if order is not None:
        for name, module in ranker.named_modules():
            if isinstance(module, nn.Linear):
                handles.append(module.register_forward_hook(lambda *_, name=name: order.append(name)))
    with autocast(spec):
        loss = log_loss(ranker(batch.dense, batch.ids), batch.label)
    loss.backward()
    for handle in handles:
        handle.remove()
    found = {name: parameter.grad for name, parameter in ranker.named_parameters() if parameter.grad is not None}
    ranker.zero_grad(set_to_none=True)
    return found


def in_fp32(spec: Spec, ranker: Ranker, batch: Batch) -> Dict[str, Tensor]:
    """The same gradients with nothing rounded below FP32: how far BF16 itself is off."""
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return gradients(replace(spec, parameters="plain"), copy.deepcopy(ranker).float(), batch)
    finally:
        torch.set_float32_matmul_precision(precision)


def gradients_under(
    spec: Spec, ranker: Ranker, batch: Batch, policy: str, errors: "Errors", reference: Dict[str, Tensor]
) -> Dict[str, Any]:
    """Errors under the whole plan, and with wgrad's kernels alone: x and dy are then BF16's in every linear, and what
    is left is just what Probe predicts of wgrad. The model is left without a plan."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        resolved = planned(spec, ranker, policy)
        whole = distances(gradients(spec, ranker, batch), reference)
        told = health(ranker)
    loka.unapply(ranker)
    own: Dict[str, float] = {}
    if errors.wgrad:
        loka.apply(ranker, only(loka.load_plan(spec.plans[policy]), "w"), emulate=spec.cpu)
        own = distances(gradients(spec, ranker, batch), reference)
        loka.unapply(ranker)
    sites = [name for name, module in ranker.named_modules() if isinstance(module, nn.Linear)]
    rows = [
        {"site": site, "whole": whole[f"{site}.weight"], "whole_predicted": errors.composed(site),
         "wgrad": own[f"{site}.weight"] if site in errors.wgrad else None, "wgrad_predicted": errors.wgrad.get(site)}
        for site in sites if f"{site}.weight" in whole
    ]  # fmt: skip
    weights = {f"{site}.weight" for site in sites}
    others = {name: value for name, value in whole.items() if name not in weights}
    said = sorted({str(one.message) for one in warned})
    return {"rows": rows, "others": others, "resolved": str(resolved), "warnings": said, **told}


def only(plan: Any, parts: str) -> Any:
    """The plan with these of its GEMMs, by their first letters, and all others in BF16."""
    sites = []
    for site in plan.sites:
        left = {gemm: replace(getattr(site, gemm), kernel=BASELINE) for gemm in GEMMS if gemm[0] not in parts}
        sites.append(replace(site, chain=None, **left))
    return replace(plan, sites=tuple(sites))


def distances(found: Dict[str, Tensor], reference: Dict[str, Tensor]) -> Dict[str, float]:
    """Relative L2 of each gradient; a parameter without one counts as zero."""
    out = {}
    for name, value in found.items():
        truth = reference[name].float()
        norm = truth.norm()
        out[name] = float((value.float() - truth).norm() / norm) if norm > 0 else 0.0
    return out


class Errors:
    """What a plan predicts, relative L2 by site, of its GEMMs in FP8. `state`: of wgrad in the first recorded step where
    the model is fresh, in the last ones where it is as recorded; plans of traces that do not tell have one figure."""

    def __init__(self, plan: Dict[str, Any], order: Sequence[str], state: str) -> None:
        self.order = list(dict.fromkeys(order))
        self.fprop, self.dgrad, self.wgrad = ({}, {}, {})  # type: Dict[str, float], Dict[str, float], Dict[str, float]
        for row in plan["sites"]:
            for gemm in ("fprop", "dgrad", "wgrad"):
                if in_fp8(row[gemm]["kernel"]):
                    known = row[gemm]["error"].get("rel_l2", math.nan)
                    in_state = row[gemm].get("rel_l2_first" if state == "fresh" else "rel_l2_last")
                    getattr(self, gemm)[row["site"]] = known if in_state is None else in_state

    def composed(self, site: str) -> float:
        """Of a weight's gradient under the whole plan, as if every error reached it whole and independently: its own
        wgrad's, fprop's of the linears before it (through x), dgrad's of those after it (through dy). Not a claim of
        Probe's: what a reader would expect who adds them up."""
        at = self.order.index(site) if site in self.order else 0
        reached = [self.wgrad.get(site, 0.0)]
        reached += [self.fprop.get(other, 0.0) for other in self.order[:at]]
        reached += [self.dgrad.get(other, 0.0) for other in self.order[at + 1 :]]
        return math.sqrt(sum(value * value for value in reached))


def speed(spec: Spec) -> Dict[str, Any]:
    """Times of BF16 and of one plan, round by round; the first of a round takes turns too."""
    arms: Dict[str, Arm] = {}
    batches = ready(spec)
    for name in ("bf16", spec.arm):
        started = time.monotonic()
        arms[name] = timed_arm(spec, name, batches)
        print(f"  {name}: ready after {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    kinds = list(arms["bf16"].calls)
    samples: Dict[str, Dict[str, List[float]]] = {name: {kind: [] for kind in kinds} for name in arms}
    for turn in range(spec.rounds):
        for kind in kinds:
            names = list(arms)
            for name in names if turn % 2 == 0 else names[::-1]:
                samples[name][kind].append(burst(arms[name].calls[kind], spec))
    return {
        "rounds": spec.rounds, "batch": spec.config.batch, "runtime": spec.runtime, "samples_ms": samples,
        "ms": {name: {kind: spread(times) for kind, times in found.items()} for name, found in samples.items()},
        "variants": {name: arm.code.variants if spec.compile else None for name, arm in arms.items()},
        "account": None if spec.cpu else {
            name: {kind: account(call) for kind, call in arm.calls.items()} for name, arm in arms.items()
        },
        **({} if spec.runtime == "inference" else health(arms[spec.arm].ranker)),
    }  # fmt: skip


def timed_arm(spec: Spec, name: str, batches: List[Batch]) -> Arm:
    """An arm, compiled and warm, with what is timed of it as its plan's runtime runs it. Inference is of BF16 parameters
    without autocast, as a model is served."""
    serves = spec.runtime == "inference"
    spec = replace(spec, parameters="bf16") if serves else spec
    ranker = fresh(spec)
    if name != "bf16":
        planned(spec, ranker, name)
    if serves:
        ranker.eval()
        if name != "bf16":
            print(loka.freeze(ranker, dtype=torch.bfloat16), file=sys.stderr)
    arm = Arm(spec, ranker)
    calls = calls_of(arm, batches)
    for call in calls.values():
        for index in range(6):
            call(index)
    if spec.runtime != "launched":
        graphs = {f"{kind} graph": call if spec.cpu else captured(call) for kind, call in calls.items()}
        calls = graphs if spec.runtime == "graph" else {**calls, **graphs}
    arm.calls = calls
    return arm


def captured(call: Callable[[int], None]) -> Callable[[int], None]:
    """The same as one CUDA graph: no launch gaps."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for index in range(3):
            call(index)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(0)
    return lambda index: graph.replay()


def account(call: Callable[[int], None], calls: int = 5) -> Dict[str, Any]:
    """What a call takes of host and GPU, each for itself: a faster GEMM gains nothing where the host is the slower one.
    `host_ms`: until the call returns, from an idle GPU. `gpu_ms`, `launches`, `kernels` [name, us, launches]: what runs
    on the GPU, by PyTorch's profiler."""
    host = []
    for index in range(10):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call(index)
        host.append((time.perf_counter() - started) * 1e3)
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for index in range(calls):
            call(index)
        torch.cuda.synchronize()
    times: Dict[str, List[float]] = {}
    for event in profile.events() or []:
        if event.device_type == torch.autograd.DeviceType.CUDA:
            times.setdefault(event.name, []).append(event.time_range.elapsed_us())
    kernels = [[name[:100], sum(us) / calls, len(us) / calls] for name, us in times.items()]
    kernels.sort(key=lambda row: -row[1])
    return {
        "host_ms": statistics.median(host), "gpu_ms": sum(row[1] for row in kernels) / 1e3,
        "launches": sum(row[2] for row in kernels), "kernels": kernels[:40],
    }  # fmt: skip


def ready(spec: Spec) -> List[Batch]:
    """A few batches on the device."""
    clicks = Clicks(spec.config.data, 0, spec.config.batch, spec.device)
    return [clicks.at(step).clone() for step in range(READY_BATCHES)]


def calls_of(arm: Arm, batches: List[Batch]) -> Dict[str, Callable[[int], None]]:
    """What is timed of an arm by its plan's runtime; each takes the number of the call."""
    inputs = [arm.inputs(batch) for batch in batches[:1]]

    def step(index: int) -> None:
        arm.step(batches[index % len(batches)])

    def dense(index: int) -> None:
        arm.dense_step(inputs[0], batches[0].label)

    def infer(index: int) -> None:
        arm.infer(inputs[0])

    by_runtime: Dict[str, Dict[str, Callable[[int], None]]] = {
        "launched": {"step": step, "dense": dense}, "graph": {"step": step, "dense": dense}, "inference": {"infer": infer},
    }  # fmt: skip
    return by_runtime[arm.spec.runtime]


def burst(call: Callable[[int], None], spec: Spec) -> float:
    """Milliseconds a call of a burst of them, launched back to back as training does. The first is not counted: it
    finds an idle device, so that its launches are all late."""
    once = timed(call, 2, spec)
    count = max(3, min(50, round(BURST_MS / max(once, 1e-3))))
    return timed(call, count, spec)


def timed(call: Callable[[int], None], count: int, spec: Spec) -> float:
    """Mean milliseconds of `count` calls after one that is not counted."""
    call(0)
    if spec.cpu:
        started = time.perf_counter()
        for index in range(count):
            call(index)
        return (time.perf_counter() - started) / count * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for index in range(count):
        call(index)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / count


def spread(times: List[float]) -> Dict[str, float]:
    """Median with p10 and p90."""
    if len(times) < 2:
        return {"median": times[0], "p10": times[0], "p90": times[0]}
    cuts = statistics.quantiles(times, n=10, method="inclusive")
    return {"median": statistics.median(times), "p10": cuts[0], "p90": cuts[8]}


def quality(spec: Spec) -> Dict[str, Any]:
    """Losses of one arm, every seed; those that `out` has are kept, so that a run that was stopped goes on."""
    out = Path(spec.out)
    report = json.loads(out.read_text()) if out.exists() else {"runs": {}}
    settings = {"steps": spec.steps, "batch": spec.batch or spec.config.quality_batch, "lr": spec.lr or spec.config.lr}
    if report.get("settings", settings) != settings:
        raise RuntimeError(f"other runs of this arm were made with {report['settings']}, not {settings}: {out}")
    report["settings"] = settings
    code = Code(spec)
    for seed in range(spec.seeds):
        if str(seed) not in report["runs"]:
            report["runs"][str(seed)] = trained(spec, seed, code, settings["batch"])
            report["variants"] = code.variants if spec.compile else None
            write(out, {**report, **place(spec)})
    return report


def trained(spec: Spec, seed: int, code: Code, size: int) -> Dict[str, Any]:
    """One run; it ends early once the loss is no longer a number or past any sense."""
    ranker = fresh(spec, seed)
    if spec.arm == "bf16-again":
        moved = torch.Generator(spec.device).manual_seed(seed + 1)
        with torch.no_grad():
            for parameter in ranker.parameters():
                parameter.mul_(1 + 1e-3 * torch.randn(parameter.shape, generator=moved, device=spec.device))
    elif spec.arm != "bf16":
        planned(spec, ranker, spec.arm)
    arm = Arm(spec, ranker, code)
    clicks = Clicks(spec.config.data, seed, size, spec.device)
    losses = torch.full((spec.steps,), math.nan, device=spec.device)
    started, diverged = time.monotonic(), None
    # Of a loss that leaps: what went first, a tensor beyond its scale or a gradient beyond its size?
    overflows: List[int] = []
    norms = torch.full((spec.steps,), math.nan, device=spec.device)

    def measured(*_: Any) -> None:
        norms[step].copy_(norm_of(arm.parameters))

    arm.optimizer.register_step_pre_hook(measured)
    for step in range(spec.steps):
        arm.warm_up(step)
        losses[step].copy_(arm.step(clicks.at(step)))
        if step % 50 == 49:
            overflows.append(sum(one.steps for one in beyond(ranker).values()))
            if not bool(losses[step - 49 : step + 1].amax() < 10):
                diverged = step + 1
                break
    done = losses[: diverged or spec.steps].double().cpu()
    seconds = time.monotonic() - started
    print(f"  {spec.arm} seed {seed}: {float(done[len(done) // 2 :].mean()):.5f} in {seconds:.0f} s"
          f"{', diverged' if diverged else ''}", file=sys.stderr, flush=True)  # fmt: skip
    told = {**health(ranker), "overflows_every_50": overflows} if spec.arm.partition(PART)[0] in spec.plans else {}
    told["largest_gradients"] = windows(norms[: len(done)].cpu(), largest=True)
    finite = bool(done.isfinite().all())
    return {
        "losses": windows(done), "whole": float(done.mean()) if finite else None,
        "second_half": float(done[len(done) // 2 :].mean()) if finite else None,
        "diverged_at": diverged, "seconds": seconds, **told,
    }  # fmt: skip


def norm_of(parameters: Sequence[nn.Parameter]) -> Tensor:
    """L2 norm of the whole gradient."""
    return norms_of(parameters).norm()


def norms_of(parameters: Sequence[nn.Parameter]) -> Tensor:
    """L2 norm of the gradient of each parameter that has one."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    return torch.stack([norm.float() for norm in torch._foreach_norm(grads)])


def windows(values: Tensor, largest: bool = False) -> List[Optional[float]]:
    """Mean of each window of steps, or the largest; None where one is not finite, which JSON has no word for."""
    parts = [part.double() for part in values.split(WINDOW)]
    found = [float(part.amax() if largest else part.mean()) for part in parts]
    return [value if math.isfinite(value) else None for value in found]


STAGES: Dict[str, Callable[[Spec], Dict[str, Any]]] = {
    "record": record, "apply": apply, "speed": speed, "quality": quality,
}  # fmt: skip


def write(path: Path, value: Dict[str, Any]) -> None:
    """Atomically: a stage that is stopped leaves no half of a file."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    os.replace(partial, path)


def main() -> None:
    spec = Spec(**json.loads(sys.argv[1]))
    if not spec.cpu and not torch.cuda.is_available():
        raise SystemExit("no CUDA device (--cpu runs the small models without one)")
    torch.set_float32_matmul_precision("high")
    if spec.cpu:
        # The small models are too small to share: threads would only wait for each other.
        torch.set_num_threads(1)
    # Four shapes of a model and two states of its inputs, at most: past the limit Dynamo would fall back to eager.
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 64
    started = time.monotonic()
    report = STAGES[spec.stage](copy.deepcopy(spec))
    write(Path(spec.out), {**report, **place(spec), "seconds": time.monotonic() - started})


if __name__ == "__main__":
    main()
