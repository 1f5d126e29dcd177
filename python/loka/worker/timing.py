"""Takes an adapter's calls, gives raw samples in microseconds per call.

The rules of LoKA's own bench: a CUDA graph of the whole sequence, so that no launch gap is in a figure;
buffers rotate over more than three times the L2 cache; random data, never zeros; the BF16 baseline
interleaved in the same run; every sample kept.
"""

import gc
import math
from typing import Any, Callable, Dict, List, Optional, Tuple

from .adapters import Adapter, Calls, operand_shapes
from .protocol import Refused, Shape, reason_of

WARMUP_ROUNDS = 3
MAX_SETS = 1024
"""Of tiny operands more sets would be needed to pass the L2; the note says what was reached."""
LEAD_CYCLES = 400_000
"""The GPU waits about 0.2 ms while the host queues a round: no graph launch is inside a sample."""
BEFORE = "before "
"""Begins the name of a stage whose time is taken off another's."""
WRONG_FROM = 0.25
"""Relative L2 distance to BF16 from which a sequence is broken rather than inexact: FP8 has 0.04 on random data."""


class Stage:
    """One call on each of the operand sets, as a graph where it can be captured, else eagerly."""

    def __init__(self, torch: Any, name: str, call: Callable[..., Any], sets: List[Any]) -> None:
        self.torch = torch
        self.name = name
        self.call = call
        self.sets = sets
        self.graph = None
        self.eager_reason: Optional[str] = None
        self.repeats = 1
        self.samples: List[float] = []
        self.output: Any = None

    def warm(self) -> None:
        # All sets, so that whatever compiles or allocates per operand has done so before the capture.
        for index, operands in enumerate(self.sets):
            output = self.call(*operands)
            if index == 0:
                self.output = output
        self.torch.cuda.synchronize()

    def capture(self) -> None:
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(side):
                self.call(*self.sets[0])
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                for index, operands in enumerate(self.sets):
                    output = self.call(*operands)
                    if index == 0:
                        self.output = output
            graph.replay()
            torch.cuda.synchronize()
            self.graph = graph
        except Exception as error:
            self.graph = None
            self.eager_reason = reason_of(error)
            torch.cuda.synchronize()

    def once(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        for operands in self.sets:
            self.call(*operands)

    def queue(self) -> Tuple[Any, Any]:
        """Queues one sample; gives its two events."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(self.repeats):
            self.once()
        end.record()
        return begin, end

    def fit(self, target_us: int) -> None:
        """Repeats, so that a sample takes `target_us`: events tell about half a microsecond."""
        begin, end = self.queue()
        self.torch.cuda.synchronize()
        took_us = max(begin.elapsed_time(end) * 1e3, 1e-3)
        self.repeats = max(1, min(1000, math.ceil(target_us / took_us)))

    def keep(self, begin: Any, end: Any) -> None:
        self.samples.append(begin.elapsed_time(end) * 1e3 / (self.repeats * len(self.sets)))


def num_sets(bytes_per_set: int, l2_bytes: int) -> int:
    """How many sets pass three times the L2, and two at least."""
    return max(2, min(MAX_SETS, 3 * l2_bytes // max(bytes_per_set, 1) + 1))


def time_kernel(
    torch: Any, adapter: Adapter, baseline: Adapter, kernel: str, gemm: str, shape: Shape, options: Dict[str, int]
) -> Dict[str, Any]:
    """Raw samples of one kernel on one shape. Raises Refused when the library does not take it."""
    m, k, n = shape
    gc.collect()
    calls = adapter.calls(kernel, gemm, m, k, n)
    plain = baseline.calls("pytorch/bf16", gemm, m, k, n)
    shape_a, shape_b = operand_shapes(gemm, m, k, n)
    elements = math.prod(shape_a) + math.prod(shape_b)
    # FP8 operands fill the L2 with half the bytes: the sets are counted for them.
    count = num_sets(elements, options["l2_bytes"])
    notes = [calls.note]
    if count * elements < 3 * options["l2_bytes"]:
        notes.append(f"rotated over {count * elements / 1e6:.0f} MB only")
    with torch.no_grad():
        sets = _operands(torch, shape_a, shape_b, gemm, count)
        stages = _stages(torch, calls, sets, notes)
        stages["baseline"] = _ready(Stage(torch, "baseline", plain.full, sets))
        _check(torch, stages["latency"], stages["baseline"])
        _measure(torch, list(stages.values()), options)
    for stage in stages.values():
        if stage.graph is None:
            notes.append(f"{stage.name} eager: it cannot be captured ({stage.eager_reason})")
    samples = {name: stage.samples for name, stage in stages.items()}
    for name in ("latency", "cached"):
        if BEFORE + name in samples:
            samples[name] = _less(samples[name], samples[BEFORE + name])
    if kernel == "pytorch/bf16":
        samples["gemm"] = samples["cached"] = samples["latency"]
    result = {f"{name}_us": samples.get(name, []) for name in ("gemm", "latency", "cached", "baseline")}
    stages.clear()
    del sets
    gc.collect()
    torch.cuda.empty_cache()
    return {**result, "sets": count, "note": "; ".join(note for note in notes if note)}


def _operands(torch: Any, shape_a: Tuple[int, int], shape_b: Tuple[int, int], gemm: str, count: int) -> List[Any]:
    generator = torch.Generator(device="cuda").manual_seed(0)
    draw: Callable[..., Any] = lambda shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=generator)
    # Weights as a model has them, so that outputs stay near one.
    scale = 1.0 if gemm == "wgrad" else shape_b[1] ** -0.5
    return [(draw(shape_a), draw(shape_b) * scale) for _ in range(count)]


def _stages(torch: Any, calls: Calls, sets: List[Any], notes: List[str]) -> Dict[str, Stage]:
    """The stages that this library has. The whole sequence must run; the others may be missing, with a note."""
    stages = {}
    try:
        stages["latency"] = _ready(Stage(torch, "latency", calls.full, sets))
        if calls.before_full is not None:
            stages[BEFORE + "latency"] = _ready(Stage(torch, BEFORE + "latency", calls.before_full, sets))
            _alike(stages["latency"], stages[BEFORE + "latency"])
    except Exception as error:
        raise Refused(reason_of(error)) from None
    prepared = None
    for name, call in (("gemm", calls.gemm), ("cached", calls.cached)):
        if call is None:
            continue
        try:
            if prepared is None:
                assert calls.prepare_a is not None and calls.prepare_b is not None, "who has the one has the others"
                prepared = [(calls.prepare_a(a), calls.prepare_b(b)) for a, b in sets]
            pairs = prepared if name == "gemm" else [(a, b) for (a, _), (_, b) in zip(sets, prepared)]
            ready = {name: _ready(Stage(torch, name, call, pairs))}
            if name == "cached" and calls.before_cached is not None:
                ready[BEFORE + name] = _ready(Stage(torch, BEFORE + name, calls.before_cached, pairs))
                _alike(ready[name], ready[BEFORE + name])
            stages.update(ready)
        except Exception as error:
            torch.cuda.synchronize()
            notes.append(f"{name} not timed: {reason_of(error)}")
    return stages


def _alike(stage: Stage, before: Stage) -> None:
    """Launched eagerly a sequence takes its gaps along: a difference with one that has none would be no time."""
    if (stage.graph is None) != (before.graph is None):
        reason = stage.eager_reason or before.eager_reason
        raise Refused(f"only one of {stage.name} and what comes before it could be captured ({reason})")


def _less(samples: List[float], before: List[float]) -> List[float]:
    """Sample by sample: both were taken in the same round."""
    rest = [sample - other for sample, other in zip(samples, before)]
    if not all(us > 0 for us in rest):
        raise Refused("it takes no longer than what comes before it: not timed")
    return rest


def _ready(stage: Stage) -> Stage:
    stage.warm()
    stage.capture()
    return stage


def _check(torch: Any, stage: Stage, baseline: Stage) -> None:
    """A sequence that gives nonsense is not timed. A gate, not a figure: errors are computed by LoKA."""
    stage.once()
    baseline.once()
    torch.cuda.synchronize()
    out, reference = stage.output.float(), baseline.output.float()
    if out.shape != reference.shape:
        raise Refused(f"the library gave shape {list(out.shape)}, not {list(reference.shape)}")
    distance = float((out - reference).norm() / reference.norm())
    if not distance < WRONG_FROM:
        raise Refused(f"the library's output is {distance:.3g} away from BF16, relative L2: not timed")


def _measure(torch: Any, stages: List[Stage], options: Dict[str, int]) -> None:
    for stage in stages:
        stage.output = None
        stage.fit(options["target_us"])
    for round_number in range(WARMUP_ROUNDS + options["samples"]):
        # Queued together: the GPU never waits for the host between two stages.
        torch.cuda._sleep(LEAD_CYCLES)
        events = [(stage, *stage.queue()) for stage in stages]
        torch.cuda.synchronize()
        if round_number >= WARMUP_ROUNDS:
            for stage, begin, end in events:
                stage.keep(begin, end)
