"""Takes a linear's shape and three kernels, gives what the whole site takes in a compiled model, and what it takes in
BF16: raw samples in microseconds a step.

A site is what `loka.apply` makes of an nn.Linear with FP32 parameters under BF16 autocast: weights are cast once a step,
casts are shared where the kernels share them, and they may fuse into the cheap operations around it, as in a model: what
makes x is a SiLU of a tensor plus a parameter, what reads y is a SiLU whose gradient is a random BF16 tensor.

    graph       the cast of the weight, forward and backward as a CUDA graph
    launched    the same, and LAUNCH_US for each kernel of forward and backward: those of the weights' cast are one set for
                all of a model
    inference   forward alone, of a frozen model: the weight was cast once, no gradients, as a CUDA graph

One measurement is of the first two, whichever was asked for: samples are a graph's, and what launches take beyond them is told
beside. A site launched by itself says little of one among others in a compiled model: there the host runs ahead of the GPU, here
guards and autograd of a model of one linear take as long as its GEMMs (on an H200's host about 1 ms a step, and no two
runs alike).

Compiling and timing are requests of their own: workers compile side by side, which keeps the GPU busy too (Inductor tries
its kernels there), and one after the other they time.

A kernel that has the norm and activation behind a linear inside (`loka/fp8-block+fast`) is timed with them, in inference
alone, and held against the linear in BF16 with both behind it. Nothing fuses with what it stores: where that is BF16, the
cast by which the next linear reads it is in its time; `codes_us` is its time where it stores the codes itself.

BF16 of the same site is interleaved in the same run, sample by sample, of widths that are padded as `loka.apply` does: what
PyTorch compiles may leave them as they lie, or not, and then takes up to five times as long. x rotates past the L2. What counts is the
difference: launches, x's producer and y's reader are in both. On a CPU the same runs by wall clock and by emulated
kernels: for tests of the protocol, not for figures.
"""

import gc
import importlib
import itertools
import math
import os
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from .protocol import BadRequest, Refused, Request, Shape, reason_of

Alone = Dict[Tuple[int, str], float]
"""(place, kernel) -> times BF16's time of the site, with that GEMM alone in FP8."""

RUNTIMES = ("launched", "graph", "inference")
BF16 = "cublaslt/bf16"
LAUNCH_US = 4.0
"""What a kernel takes beyond its own time where kernels are launched one by one and the host keeps ahead: measured in
compiled training steps on an H200, 3.1 and 4.3 us (DCNv2, 145 and 154 kernels, BF16 and FP8), 5.6 and 2.7 us (Wukong
5.6G, 588 and 700 kernels)."""
WARMUP_STEPS = 3
WARMUP_ROUNDS = 2
MAX_SETS = 64
"""Of x: of a tiny site more would be needed to pass the L2, and launches rule there."""
MAX_STEPS = 2000
"""Steps of one sample."""
RECOMPILE_LIMIT = 256
"""Each site compiles for itself; at the default of eight the compiler would give up and run eagerly, saying nothing."""
BLOCK = "loka/fp8-block+fast"
HOPELESS = 1.25
"""Times BF16's time of the site, by one GEMM alone: not timed with others. What GEMMs share pays only together: at 2,048 x
2,048 x 2,048 in a graph on an H100 delayed scaling is .92, .95 and .97 times as fast as BF16 at one GEMM and 1.08 times at
all three."""
STATIC_SCALE = 2.0**-4
"""Of a kernel that wants its scale beforehand: SiLU of normal values stays far below 448 / 16. Times do not depend on it."""


_NUMBERS = itertools.count()
_kept: Dict[Tuple[Any, ...], Dict[str, Any]] = {}
"""By (m, k, n, runtime), of the shape that was asked for last: BF16's site, and what each GEMM did alone. A request has
one triple, so that what kills this process costs one."""


class Site:
    """One site on all of its inputs, compiled at its first step."""

    def __init__(
        self, torch: Any, model: Any, inputs: List[Any], gradients: List[Any], runtime: str, weights: Any = None
    ) -> None:
        self.torch = torch
        self.weights = weights
        """What casts the weight after an optimizer's step, if it is not cast in the forward."""
        self.inputs = inputs
        self.gradients = gradients
        self.runtime = runtime
        self.on_gpu = inputs[0].is_cuda
        self.parameters = list(model.parameters())
        # On a CPU nothing is timed in earnest: a C++ compiler need not be there.
        self.model = torch.compile(model, dynamic=False, backend="inductor" if self.on_gpu else "aot_eager")
        self.graph = None
        self.launch_us = 0.0
        """What launching a step's kernels one by one takes beyond the samples."""
        self.is_counting = False
        self.is_ready = False
        self.repeats = 1
        self.samples: List[float] = []

    @property
    def sites(self) -> List["Site"]:
        return [self]

    def row(self, plain: "Site") -> Dict[str, Union[float, List[float]]]:
        """What is told of it, beside BF16's site."""
        return {"site_us": self.samples, "bf16_us": plain.samples, "launch_us": self.launch_us, "bf16_launch_us": plain.launch_us}

    def step(self, index: int) -> Any:
        """Forward, and backward where the runtime has one. Gradients are made afresh, as after zero_grad(None)."""
        torch, x = self.torch, self.inputs[index]
        device = "cuda" if self.on_gpu else "cpu"
        if self.runtime == "inference":
            with torch.no_grad(), torch.autocast(device, torch.bfloat16):
                return self.model(x)
        if self.weights is not None and not self.is_counting:
            self.weights.refresh()
        x.grad = None
        for parameter in self.parameters:
            parameter.grad = None
        with torch.autocast(device, torch.bfloat16):
            y = self.model(x)
        y.backward(self.gradients[index % len(self.gradients)])
        return y

    def steps(self) -> None:
        for index in range(len(self.inputs)):
            self.step(index)

    def compile(self) -> None:
        """One step: the compiler works at the first forward and at the first backward."""
        self.step(0)
        self.wait()

    def prepare(self) -> None:
        """Warms; captures where a graph is asked for."""
        for _ in range(WARMUP_STEPS):
            self.steps()
        self.wait()
        if self.on_gpu:
            self.launch_us = LAUNCH_US * self.kernels() if self.runtime != "inference" else 0.0
            self.capture()
        self.is_ready = True

    def kernels(self) -> int:
        """Launches of a forward and its backward."""
        profiler = importlib.import_module("torch.profiler")
        self.is_counting = True
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as seen:
            self.step(0)
            self.wait()
        self.is_counting = False
        on_device = self.torch.autograd.DeviceType.CUDA
        return sum(event.device_type == on_device for event in seen.events())

    def capture(self) -> None:
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.steps()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.steps()
        graph.replay()
        torch.cuda.synchronize()
        self.graph = graph

    def wait(self) -> None:
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def once(self) -> None:
        self.graph.replay() if self.graph is not None else self.steps()

    def sample_us(self) -> float:
        """Of one step."""
        if not self.on_gpu:
            begin = time.perf_counter()
            for _ in range(self.repeats):
                self.once()
            return (time.perf_counter() - begin) * 1e6 / (self.repeats * len(self.inputs))
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(self.repeats):
            self.once()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / (self.repeats * len(self.inputs))

    def fit(self, target_us: int) -> None:
        """As many steps a sample as take `target_us`."""
        took_us = max(self.sample_us() * len(self.inputs), 1e-3)
        most = max(1, MAX_STEPS // len(self.inputs))
        self.repeats = max(1, min(most, math.ceil(target_us / took_us)))


class Block:
    """A site whose norm and activation are inside of its kernel: `apart`, where they are behind a linear in BF16; `fused`, where
    BF16 is stored, which is cast then; and `handing_on`, where codes are stored."""

    def __init__(self, apart: Site, fused: Site, handing_on: Site) -> None:
        self.apart, self.fused, self.handing_on = apart, fused, handing_on
        self.sites = [apart, fused, handing_on]

    def compile(self) -> None:
        for site in self.sites:
            site.compile()

    def row(self, plain: Site) -> Dict[str, Union[float, List[float]]]:
        """As of the other kernels of that shape, which have neither norm nor activation: what changes is added to their
        BF16."""
        beside: Callable[[Site], List[float]] = lambda site: [
            bf16 + us - apart for bf16, us, apart in zip(plain.samples, site.samples, self.apart.samples)
        ]
        return {"site_us": beside(self.fused), "codes_us": beside(self.handing_on), "bf16_us": plain.samples}


def compile_sites(torch: Any, request: Request, emulate: bool) -> Dict[str, Any]:
    """Takes the request that `time_sites` will get, and compiles what it will time. What fails is told there."""
    kept = _kept_of(torch, request)
    for triple in request["triples"]:
        try:
            _refuse_hopeless(triple, kept["alone"])
            kept["ready"][tuple(triple)] = _compiled(torch, tuple(triple), request, emulate, kept)
        except Exception as error:
            kept["ready"][tuple(triple)] = error
    return {}


def time_sites(torch: Any, request: Request, emulate: bool) -> Dict[str, Any]:
    """Answers a request: {shape m, k, n, runtime, triples: [[fprop, dgrad, wgrad], ...], samples, l2_bytes,
    target_us}. A triple that fails costs itself, with its reason."""
    kept, rows = _kept_of(torch, request), []
    if any(tuple(triple) not in kept["ready"] for triple in request["triples"]):
        compile_sites(torch, request, emulate)
    for triple in request["triples"]:
        ready = kept["ready"].pop(tuple(triple))
        try:
            if isinstance(ready, Exception):
                raise ready
            rows.append(_time(ready, tuple(triple), request, kept))
            _note_alone(rows[-1], kept["alone"])
        except Refused as error:
            rows.append({"kernels": list(triple), "reason": reason_of(error)})
        except Exception as error:
            # A sticky CUDA error comes back at once: this ends the worker, and LoKA starts another.
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            rows.append({"kernels": list(triple), "reason": reason_of(error)})
    return {"rows": rows}


def _kept_of(torch: Any, request: Request) -> Dict[str, Any]:
    """What is kept of that shape; of another, nothing any more."""
    runtime = request["runtime"]
    if runtime not in RUNTIMES:
        raise BadRequest(f"unknown runtime '{runtime}' ({', '.join(RUNTIMES)})")
    _find_library()
    key = tuple(request[name] for name in ("m", "k", "n", "runtime"))
    if key not in _kept:
        _kept.clear()
        _forget(torch)
        _kept[key] = {"alone": {}, "ready": {}}
    return _kept[key]


def _chosen(triple: Sequence[str]) -> List[Tuple[int, str]]:
    """(place, kernel) of those that are not BF16."""
    return [(at, kernel) for at, kernel in enumerate(triple) if kernel != BF16]


def _note_alone(row: Dict[str, Any], alone: Alone) -> None:
    chosen = _chosen(row["kernels"])
    if len(chosen) == 1:
        middle: Callable[[List[float]], float] = lambda samples: sorted(samples)[len(samples) // 2]
        us, bf16_us = middle(row["site_us"]), middle(row["bf16_us"])
        launched = (us + row.get("launch_us", 0.0)) / (bf16_us + row.get("bf16_launch_us", 0.0))
        # In every runtime that the row is of.
        alone[chosen[0]] = min(us / bf16_us, launched)


def _refuse_hopeless(triple: Sequence[str], alone: Alone) -> None:
    """A cast that is shared saves at most what it costs: a GEMM that makes the site a good deal slower by itself will not
    make it faster in company."""
    chosen = _chosen(triple)
    for at, kernel in chosen if len(chosen) > 1 else ():
        ratio = alone.get((at, kernel), 1.0)
        if ratio > HOPELESS:
            gemm = ("fprop", "dgrad", "wgrad")[at]
            raise Refused(f"{gemm} alone makes the site {ratio:.2f} times as slow as BF16")


def _forget(torch: Any) -> None:
    importlib.import_module("torch._dynamo").reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _compiled(
    torch: Any, triple: Sequence[str], request: Request, emulate: bool, kept: Dict[str, Any]
) -> Union[Site, Block]:
    """`kept`: of the shape, what its first triple made: BF16's site and the inputs."""
    config = importlib.import_module("torch._dynamo").config
    for name in ("recompile_limit", "cache_size_limit", "accumulated_recompile_limit"):
        if hasattr(config, name):
            setattr(config, name, max(RECOMPILE_LIMIT, getattr(config, name)))
    device = torch.device("cpu" if emulate else "cuda")
    shape = request["m"], request["k"], request["n"]
    _check(torch, triple, request, device, emulate)
    if "plain" not in kept:
        inputs, gradients = _tensors(torch, shape, request, device)
        plain = Site(torch, _model(torch, shape, device, (BF16,) * 3, emulate), inputs, gradients, request["runtime"])
        plain.compile()
        kept.update(plain=plain, inputs=inputs, gradients=gradients)
    if BLOCK in triple:
        models = (_fused_model(torch, shape, device, how, emulate) for how in (None, False, True))
        block = Block(*(Site(torch, model, kept["inputs"], [], request["runtime"]) for model in models))
        block.compile()
        return block
    model = _model(torch, shape, device, triple, emulate)
    weights = None
    if request["runtime"] == "inference":
        _freeze(torch, model.linear)
    else:
        weights = _kept_weights(model.linear)
    routed = Site(torch, model, kept["inputs"], kept["gradients"], request["runtime"], weights)
    routed.compile()
    return routed


def _time(
    routed: Union[Site, Block], triple: Sequence[str], request: Request, kept: Dict[str, Any]
) -> Dict[str, Any]:
    plain: Site = kept["plain"]
    plain.samples = []
    sites = [plain, *routed.sites]
    for site in sites:
        if not site.is_ready:
            site.prepare()
            site.fit(request["target_us"])
    for round_number in range(WARMUP_ROUNDS + request["samples"]):
        # By turns first, so that neither is always the one behind.
        for site in sites if round_number % 2 else reversed(sites):
            sample = site.sample_us()
            if round_number >= WARMUP_ROUNDS:
                site.samples.append(sample)
    return {"kernels": list(triple), **routed.row(plain), "sets": len(kept["inputs"])}


def _check(torch: Any, triple: Sequence[str], request: Request, device: Any, emulate: bool) -> None:
    from ..kernels import why_not

    gemms = ("fprop",) if request["runtime"] == "inference" else ("fprop", "dgrad", "wgrad")
    for gemm, kernel in zip(("fprop", "dgrad", "wgrad"), triple):
        if gemm not in gemms:
            if kernel != BF16:
                raise Refused(f"inference runs no {gemm}: its kernel is {BF16}")
            continue
        if kernel == BF16:
            continue
        if kernel == BLOCK and request["runtime"] != "inference":
            raise Refused(f"{kernel} is timed in inference alone")
        reason = why_not(kernel, gemm, request["k"], request["n"], device, emulate)
        if reason is not None:
            raise Refused(reason)


def _tensors(torch: Any, shape: Shape, request: Request, device: Any) -> Tuple[List[Any], List[Any]]:
    """x past three times the L2, by the bytes that FP8 leaves of it; a few gradients of y."""
    m, k, n = shape
    generator = torch.Generator(device=device).manual_seed(0)
    draw: Callable[..., Any] = lambda *size: torch.randn(size, device=device, dtype=torch.bfloat16, generator=generator)
    count = max(2, min(MAX_SETS, 3 * request["l2_bytes"] // max(m * (k + n), 1) + 1))
    training = request["runtime"] != "inference"
    inputs = [draw(m, k).requires_grad_(training) for _ in range(count)]
    # As of a mean over examples, so that small gradients are what is timed.
    gradients = [draw(m, n) / m for _ in range(count)] if training else []
    return inputs, gradients


def _model(torch: Any, shape: Shape, device: Any, triple: Sequence[str], emulate: bool) -> Any:
    """silu(x + p) -> linear -> silu, parameters in FP32; routed by `triple`, as `loka.apply` does."""
    from ..kernels import short_of

    _, k, n = shape
    torch.manual_seed(0)

    class Around(torch.nn.Module):  # type: ignore[misc]  # PyTorch is loaded when it runs
        def __init__(self) -> None:
            super().__init__()
            self.offset = torch.nn.Parameter(torch.zeros(k))
            self.linear = torch.nn.Linear(k, n, bias=True)

        def forward(self, x: Any) -> Any:
            x = torch.nn.functional.silu(x + self.offset.to(x.dtype))
            return torch.nn.functional.silu(self.linear(x))

    model = _made(Around, device)
    if any(kernel != BF16 for kernel in triple) or short_of(triple, n, k) != (0, 0):
        _route(model.linear, triple, emulate, device)
    return model


def _made(Around: Any, device: Any) -> Any:
    """One of that class. Dynamo keeps what it compiled by code object, and looks through all of it at every call: each has its
    own."""
    Around.forward.__code__ = Around.forward.__code__.replace(co_name=f"forward_{next(_NUMBERS)}")
    return Around().to(device)


def _fused_model(torch: Any, shape: Shape, device: Any, hands_on: Optional[bool], emulate: bool) -> Any:
    """silu(x + p) -> linear -> BlockNorm -> hard swish, and its codes; `hands_on`: as one kernel, which stores them or does
    not. None: in BF16, without codes."""
    from ..kernels import UNFUSED, Scale
    from ..kernels.delayed import codes
    from ..mods import BlockNorm
    from ..plans.blocks import fuse, hand_on
    from ..plans.frozen import keep_codes

    _, k, n = shape
    torch.manual_seed(0)

    class Around(torch.nn.Module):  # type: ignore[misc]  # PyTorch is loaded when it runs
        def __init__(self) -> None:
            super().__init__()
            self.offset = torch.nn.Parameter(torch.zeros(k))
            self.linear = torch.nn.Linear(k, n, bias=False)
            self.norm, self.activation = BlockNorm(n), torch.nn.Hardswish()

        def forward(self, x: Any) -> Any:
            x = torch.nn.functional.silu(x + self.offset.to(x.dtype))
            h = self.activation(self.norm(self.linear(x)))
            return codes(h, inverse, "e4m3") if hands_on is False else h

    model = _made(Around, device).eval()
    inverse = Scale.of(STATIC_SCALE, device).inverse
    if hands_on is None:
        return model
    _route(model.linear, (BLOCK, BF16, BF16), emulate, device)
    fuse(model, model.linear, model.norm, model.activation)
    keep_codes(model.linear)
    if hands_on:
        # It is asked what it runs by, and never called.
        reader = torch.nn.Linear(n, 16, device=device)
        _route(reader, (UNFUSED, BF16, BF16), emulate, device)
        hand_on(model.linear._loka_block, [reader], STATIC_SCALE)
    return model


def _find_library() -> None:
    """This package is a copy of the one that LoKA carries: libloka.so may lie beside the one that is installed."""
    if "LOKA_LIBRARY" in os.environ:
        return
    beside = (os.path.join(folder, "loka", "libloka.so") for folder in sys.path)
    found = next((path for path in beside if os.path.isfile(path)), None)
    if found is not None:
        os.environ["LOKA_LIBRARY"] = found


def _route(linear: Any, triple: Sequence[str], emulate: bool, device: Any) -> None:
    from ..plans.linear import route, settle

    fprop, dgrad, wgrad = triple
    route(linear, (fprop, dgrad, wgrad), emulate, (STATIC_SCALE, STATIC_SCALE), device)
    # As from the second step of a training on.
    settle(linear)


def _freeze(torch: Any, linear: Any) -> None:
    """As `loka.freeze` leaves it: the weight was cast once."""
    from ..kernels.cast_once import why_not_once
    from ..plans.frozen import freeze_linear

    kernels = getattr(linear, "_loka_kernels", None)
    if kernels is not None and why_not_once(kernels[0]) is None:
        linear.eval()
        freeze_linear(linear, torch.bfloat16)


def _kept_weights(linear: Any) -> Any:
    """What makes the codes of the weight once a step, which the linear reads from now on; None where it casts itself."""
    from ..kernels import WeightCache, can_keep, weight_casts

    kernels = getattr(linear, "_loka_kernels", None)
    wanted = None if kernels is None else weight_casts(kernels, linear._loka_options.emulate)
    if wanted is None or not can_keep(linear.weight, wanted):
        return None
    cache = WeightCache([linear.weight], [wanted])
    linear.__dict__["_loka_codes"] = cache.codes[0]
    return cache


__all__ = ["RUNTIMES", "compile_sites", "time_sites"]
