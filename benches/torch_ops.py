"""LoKA's kernels as PyTorch ops on a GPU: are they right, and what do they take against torch.nn.functional.linear?

    python benches/torch_ops.py [--out FILE.json] [--no-times] [--no-compile]

Takes a GPU of compute capability 9.0, PyTorch and libloka.so (`cargo build --release -p loka_capi`; LOKA_LIBRARY names
one built elsewhere); gives a line a group of checks, then median microseconds of three shapes. Checked against the same
numerics in plain PyTorch on the same inputs: casts to the bit, products within what accumulation and BF16 allow,
gradients; the same under torch.compile, in a CUDA graph (captured twice, replayed on other inputs), on streams of their
own in threads, and through loka.apply. About a minute; exit 1 where a check fails.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tests")]

import torch
from torch.nn.functional import linear

import loka
from loka.kernels import Cast, block, native, native_ops, static_linear
from loka.kernels.scales import quantize

SHAPES = ((2048, 2048, 2048), (6144, 2048, 5120), (12288, 4096, 4096))
"""m, k, n that are timed."""
SCALE = 2.0**-6
"""Random normals reach about 5; 448 * SCALE = 7."""


class Checks:
    def __init__(self):
        self.passed, self.failed, self.start = 0, [], time.monotonic()

    def tell(self, good, text):
        if good:
            self.passed += 1
        else:
            self.failed.append(text)
            print("FAILED:", text, flush=True)

    def group(self, name, work):
        before = self.passed, len(self.failed)
        try:
            work(self)
        except Exception as error:  # The other groups are run all the same.
            self.tell(False, f"{name}: {type(error).__name__}: {error}")
        count = self.passed - before[0], len(self.failed) - before[1]
        print(f"{name}: {count[0]} passed, {count[1]} failed ({time.monotonic() - self.start:.0f} s)", flush=True)


def random(*shape, seed=0, spread=1.0):
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return (torch.randn(*shape, device="cuda", generator=generator) * spread).bfloat16()


def scale(value=SCALE):
    return torch.full((1,), value, device="cuda")


def counter():
    return torch.zeros(1, dtype=torch.int64, device="cuda")


def rel_l2(found, expected):
    expected = expected.detach().double().to(found.device)
    return float((found.detach().double() - expected).norm() / expected.norm().clamp(min=1e-30))


def codes_of(x, granularity="row", format="e4m3", turned=False):
    out = native_ops.fp8_cast(x, granularity, format, False, not turned, turned)
    return out[2:] if turned else out[:2]


def same_codes(found, expected):
    """But for the sign of zeros."""
    found, expected = (each.contiguous().view(torch.uint8) for each in (found, expected))
    return bool(((found == expected) | (((found | expected) & 0x7F) == 0)).all())


def casts(checks):
    for rows, cols in ((16, 16), (1000, 272), (129, 1040), (2048, 4096), (64, 70_000)):
        x = random(rows, cols, spread=3)
        x[0] = 0
        for granularity in ("row", "tensor"):
            for format in ("e4m3", "e5m2"):
                for power_of_two in (False, True):
                    out = native_ops.fp8_cast(x, granularity, format, power_of_two, True, True)
                    for operand, codes, found in ((x, *out[:2]), (x.t(), *out[2:])):
                        bits, expected = quantize(operand, Cast(format, granularity, power_of_two))
                        good = same_codes(codes, bits) and torch.equal(found.flatten(), expected.flatten())
                        checks.tell(good, f"cast {rows}x{cols} {granularity} {format} {power_of_two}")
        saturated, expected = counter(), counter()
        codes = native_ops.static_cast(x, scale(2.0**-8), saturated)
        bits = native_ops._static_codes(x, scale(2.0**-8), expected)
        checks.tell(same_codes(codes, bits) and torch.equal(saturated, expected), f"static cast {rows}x{cols}")


def near(found, a, a_scale, b, b_scale, bias=None):
    """Whether found [m, n] is the product in BF16: by relative L2, and no element beyond what short sums may lose."""
    right = b_scale if b_scale.ndim == 1 else b_scale.t()
    scales = (a_scale * right).double()
    exact = (a.double() @ b.double().t()) * scales
    exact = exact if bias is None else exact + bias.double()
    spread = (a.double().abs() @ b.double().abs().t()) * scales
    bound = exact.abs() * 2.0**-8 * 1.01 + spread * 2.0**-13 * (a.shape[1] / 32 + 1)
    return rel_l2(found, exact) < 0.01 and bool(((found.double() - exact).abs() <= bound).all())


def products(checks):
    for m, n, k in ((1, 16, 16), (129, 208, 144), (1000, 512, 2048), (2048, 1024, 4096)):
        x, w = random(m, k), random(n, k, seed=1, spread=0.1)
        right, by_tensor = codes_of(w), codes_of(w, "tensor")
        for format in ("e4m3", "e5m2"):
            for left in (codes_of(x, "row", format), codes_of(x, "tensor", format)):
                for other in (right, by_tensor):
                    for fast in (True, False):
                        for tiling in (-1, 0, 1, 2):
                            y = native_ops.fp8_gemm(*left, *other, fast, tiling)
                            where = f"fp8_gemm {m}x{n}x{k} {format} {left[1].ndim}{other[1].ndim} {fast} {tiling}"
                            checks.tell(near(y, *left, *other), where)
        for bias in (None, random(n, seed=2)):
            saturated, expected = counter(), counter()
            codes = native_ops._static_codes(x * 2, scale(), expected)
            y = native_ops.static_gemm(x * 2, scale(), *right, bias, saturated)
            good = near(y, codes, scale(), *right, bias) and torch.equal(saturated, expected)
            checks.tell(good, f"static_gemm {m}x{n}x{k} {int(saturated)} of {int(expected)} saturated")


def blocks(checks):
    for m, n, k in ((1, 256, 144), (300, 512, 2048), (2048, 1024, 1024)):
        x, w, bias = random(m, k), random(n, k, seed=1, spread=0.1), random(n, seed=2)
        right, where = codes_of(w), f"block {m}x{n}x{k}"
        codes = native_ops.static_cast(x, scale(), counter())
        for given in (None, bias):
            for left in (x, codes):
                arguments = (left, scale(), *right, given, counter())
                h, z = native_ops.block_gemm(*arguments, None, True)
                sums = native_ops._static_product(codes, scale(), *right, given, None)
                checks.tell(near(z, codes, scale(), *right, given), f"{where} z")
                checks.tell(rel_l2(h, native_ops.block_output(sums.double())) < 0.01, f"{where} h")
                alone, _ = native_ops.block_gemm(*arguments, None, False)
                checks.tell(torch.equal(alone, h), f"{where} h by itself")
                stored, _ = native_ops.block_gemm(*arguments, scale(2.0**-4), False)
                checks.tell(rel_l2(stored.float() * 2.0**-4, h) < 0.04, f"{where} codes")
        tail = native_ops.block_tail(z)
        checks.tell(rel_l2(tail, native_ops.block_output(z)) < 0.003, f"{where} tail")
        dh = random(m, n, seed=3)
        dz, dz_codes, scales = native_ops.block_backward(dh, z)
        bits, expected = quantize(dz, Cast("e4m3", "row", False))
        checks.tell(rel_l2(dz, native_ops.block_gradient(dh, z)) < 0.003, f"{where} dz")
        checks.tell(same_codes(dz_codes, bits) and torch.equal(scales, expected), f"{where} codes of dz")


def leaves(m, k, n, seed=0):
    return [each.requires_grad_() for each in (random(m, k, seed=seed), random(n, k, seed=1, spread=k**-0.5),
                                               random(n, seed=2, spread=0.1))]  # fmt: skip


def step(function, x, weight, bias, dy, saturated=None):
    y = function(x, weight, scale().to(x.device), saturated, bias)
    return [y.detach(), *torch.autograd.grad(y, (x, weight, bias), dy)]


def gradients(checks):
    """On the GPU and on the CPU, where the numerics are plain PyTorch; and how far from FP64 the step is."""
    for function in (static_linear, block):
        for m, k, n in ((136, 128, 256), (512, 512, 512)):
            given, dy = leaves(m, k, n), random(m, n, seed=3)
            ours = step(function, *given, dy)
            on_cpu = step(function, *(each.detach().cpu().requires_grad_() for each in given), dy.cpu())
            for name, found, expected in zip(("y", "dx", "dw", "db"), ours, on_cpu):
                error = rel_l2(found.cpu(), expected)
                # Codes of dz next to a boundary may fall to either side.
                checks.tell(error < 0.012, f"{function.__name__} {m}x{k}x{n} {name}: {error:.4f} off the emulation")


def compiled(checks):
    for function in (static_linear, block):

        def doubled(x, weight, bias, dy, saturated):
            y = function(x * 2, weight, scale_at, saturated, bias) * 0.5
            return [y, *torch.autograd.grad(y, (x, weight, bias), dy)]

        scale_at = scale()
        whole = torch.compile(lambda x, w, b, s: function(x * 2, w, scale_at, s, b) * 0.5, fullgraph=True)
        for seed in (0, 7):
            given, dy = leaves(512, 512, 512, seed), random(512, 512, seed=3)
            counts = counter(), counter()
            eager = doubled(*given, dy, counts[0])
            y = whole(*given, counts[1])
            found = [y, *torch.autograd.grad(y, given, dy)]
            for name, ours, plain in zip(("y", "dx", "dw", "db"), found, eager):
                checks.tell(rel_l2(ours, plain) < 0.002, f"{function.__name__} compiled {name} {rel_l2(ours, plain)}")
            checks.tell(torch.equal(*counts), f"{function.__name__} compiled counts {counts}")


def graphs(checks):
    for function in (static_linear, block):
        given, dy, saturated = leaves(512, 512, 512), random(512, 512, seed=3), counter()
        step(function, *given, dy, saturated)  # Compiles: a capture may not.
        made = []
        for _ in range(2):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                made.append((graph, step(function, *given, dy, saturated)))
        for seed in (11, 12):
            with torch.no_grad():
                given[0].copy_(random(512, 512, seed=seed, spread=2))
            saturated.zero_()
            expected = step(function, *given, dy, counter())
            for index, (graph, found) in enumerate(made):
                graph.replay()
                torch.cuda.synchronize()
                for name, ours, plain in zip(("y", "dx", "dw", "db"), found, expected):
                    checks.tell(torch.equal(ours, plain), f"{function.__name__} graph {index} {name}")
            beyond = 2 * int((given[0].float().abs() > 448 * SCALE).sum())
            checks.tell(int(saturated) == beyond, f"{function.__name__} graphs count {int(saturated)} of {beyond}")


def threads(checks):
    given, found = leaves(512, 512, 512), {}
    expected = static_linear(given[0], given[1], scale(), None, given[2])
    torch.cuda.synchronize()

    def work(name):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(20):
                found[name] = static_linear(given[0], given[1], scale(), None, given[2]).detach()
            torch.cuda.current_stream().synchronize()

    workers = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for act in (threading.Thread.start, threading.Thread.join):
        for worker in workers:
            act(worker)
    for name in range(4):
        checks.tell(name in found and torch.equal(found[name], expected), f"thread {name}")


def plans(checks):
    """A plan of all of LoKA's kernels under a model, against their emulation."""
    import tempfile

    import ranker

    kernels = {"bottom.0": ("loka/fp8-rowwise+fast",) * 3, "top.0": ("loka/fp8-tensorwise+fast",) * 3,
               "bottom.3": ("loka/fp8-static+fast", "loka/fp8-static+fast", "cublaslt/bf16")}  # fmt: skip

    def change(plan):
        for site in plan["sites"]:
            for gemm, kernel in zip(("fprop", "dgrad", "wgrad"), kernels.get(site["site"], ())):
                site[gemm]["kernel"] = kernel
                if "static" in kernel:
                    site[gemm].update(static_scale=2.0 ** (-5 if gemm == "fprop" else -20), saturation=0.0)

    with tempfile.TemporaryDirectory() as folder:
        path, found = ranker.forged(folder, change), []
        for emulate, wrap in ((True, None), (False, None), (False, "default"), (False, "reduce-overhead")):
            torch._dynamo.reset()
            model = ranker.Ranker().cuda()
            loka.apply(model, path, emulate=emulate)
            run = model if wrap is None else torch.compile(model, fullgraph=True, mode=wrap)
            x = ranker.batch(131).cuda()
            for _ in range(3):
                model.zero_grad()
                with torch.autocast("cuda", torch.bfloat16):
                    y = run(x)
                y.float().square().mean().backward()
            found.append([y.detach().clone(), *(each.grad.clone() for each in model.parameters())])
            checks.tell("bottom.3" in loka.saturated(model), f"counts of {wrap}")
    # Values that rounding puts on the other side of a code's edge part the two from the first layer on (plans of
    # PyTorch's kernels too), so each is held against the model in high precision.
    model, x = ranker.Ranker().cuda().double(), ranker.batch(131).cuda().double()
    y = model(x)
    y.square().mean().backward()
    exact = [y.detach(), *(each.grad for each in model.parameters())]
    emulated = [rel_l2(plain, right) for plain, right in zip(found[0], exact)]
    for index, name in ((1, "eager"), (2, "compiled"), (3, "compiled, reduce-overhead")):
        ours = [rel_l2(each, right) for each, right in zip(found[index], exact)]
        worst = max(one - 1.25 * other for one, other in zip(ours, emulated))
        checks.tell(worst < 0.02, f"plan {name}: errors {ours}, of its emulation {emulated}")


def planned_blocks(checks):
    """A plan with blocks and codes handed on, as loka.apply runs it, against its emulation."""
    import tempfile

    import test_apply_blocks as plans

    with tempfile.TemporaryDirectory() as folder:
        maker = plans.Blocks()
        maker.folder, found = folder, []
        path = maker.plan(dgrad="loka/fp8-rowwise+fast", wgrad="cublaslt/bf16", chains=plans.CHAINS)
        for emulate, wrap in ((True, None), (False, None), (False, "default"), (False, "reduce-overhead")):
            torch._dynamo.reset()
            model = plans.modded().cuda()
            loka.apply(model, path, emulate=emulate)
            run = model if wrap is None else torch.compile(model, fullgraph=True, mode=wrap)
            x = plans.batch(144).cuda()
            for _ in range(3):
                model.zero_grad()
                with torch.autocast("cuda", torch.bfloat16):
                    y = run(x)
                y.float().square().mean().backward()
            made = [y.detach().clone(), *(each.grad.clone() for each in model.parameters())]
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                for _ in range(3):
                    h = run(x)
            found.append([*made, h.clone()])
    model, x = plans.modded().cuda().double(), plans.batch(144).cuda().double()
    y = model(x)
    y.square().mean().backward()
    exact = [y.detach(), *(each.grad for each in model.parameters()), y.detach()]
    emulated = [rel_l2(plain, right) for plain, right in zip(found[0], exact)]
    for index, name in ((1, "eager"), (2, "compiled"), (3, "compiled, reduce-overhead")):
        ours = [rel_l2(each, right) for each, right in zip(found[index], exact)]
        worst = max(one - 1.25 * other for one, other in zip(ours, emulated))
        checks.tell(worst < 0.02, f"blocks {name}: errors {ours}, of its emulation {emulated}")
    print("  errors of blocks, emulated:", " ".join(f"{error:.4f}" for error in emulated))
    print("  by their kernels          :", " ".join(f"{error:.4f}" for error in ours))


def refusals(checks):
    x, w, ragged = random(16, 32), codes_of(random(32, 32)), codes_of(random(32, 24))
    for wanted, work in (
        ("multiples of 16 of w", lambda: native_ops.fp8_gemm(*ragged, *ragged, True)),
        ("this product has", lambda: native_ops.fp8_gemm(*codes_of(x), *w, True, 99)),
        ("a multiple of 256", lambda: native_ops.block_gemm(x, scale(), *w, None, counter(), None, False)),
    ):
        try:
            work()
            checks.tell(False, f"not refused: {wanted}")
        except RuntimeError as error:
            checks.tell(wanted in str(error), str(error))


def captured(calls):
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call() for call in calls]
    return graph, kept


def median_us(graphs, counts, rounds=15):
    samples = {name: [] for name in graphs}
    for round in range(rounds + 3):
        for name, (graph, _) in graphs.items():
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            graph.replay()
            last.record()
            last.synchronize()
            if round >= 3:
                samples[name].append(first.elapsed_time(last) * 1e3 / counts[name])
    return {name: statistics.median(taken) for name, taken in samples.items()}


def times(m, k, n):
    """Medians of CUDA graphs over more buffers than the L2 holds, interleaved."""
    sets = max(2, math.ceil(180e6 / (2 * (m * k + n * k + m * n))))
    x_scale, static, bare, data = scale(), (None, counter()), (None, False), []
    for at in range(sets):
        x, w = random(m, k, seed=at), random(n, k, seed=100 + at, spread=k**-0.5)
        data.append((x, w, codes_of(x), codes_of(w), random(m, n, seed=200 + at)))

    def trained(function, x, w, dy, *rest):
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        return torch.autograd.grad(function(x, w, *rest), (x, w), dy)

    ways = {
        "F.linear bf16": lambda x, w, *_: linear(x, w),
        "fp8_gemm, codes": lambda x, w, xc, wc, dy: native_ops.fp8_gemm(*xc, *wc, True),
        "static_gemm, weight cast": lambda x, w, xc, wc, _: native_ops.static_gemm(x, x_scale, *wc, *static),
        "static_linear": lambda x, w, *_: static_linear(x, w, x_scale),
        "F.linear bf16 + tail": lambda x, w, *_: native_ops.block_tail(linear(x, w)),
        "block_gemm, weight cast": lambda x, w, xc, wc, _: native_ops.block_gemm(x, x_scale, *wc, *static, *bare),
        "block": lambda x, w, *_: block(x, w, x_scale),
        "step: F.linear bf16": lambda x, w, xc, wc, dy: trained(linear, x, w, dy),
        "step: static_linear": lambda x, w, xc, wc, dy: trained(static_linear, x, w, dy, x_scale),
        "step: block": lambda x, w, xc, wc, dy: trained(block, x, w, dy, x_scale),
    }  # fmt: skip
    graphs = {}
    for name, way in ways.items():
        with torch.set_grad_enabled(name.startswith("step")):
            graphs[name] = captured([lambda way=way, row=row: way(*row) for row in data])
    return median_us(graphs, {name: sets for name in graphs})


def host_us():
    """What a call costs the host, eagerly, at a size that takes the GPU less."""
    given, taken = (random(256, 256), random(256, 256)), {}
    ways = {"F.linear bf16": (linear, given), "static_linear": (static_linear, (*given, scale())),
            "block": (block, (*given, scale()))}  # fmt: skip
    with torch.no_grad():
        for name, (function, arguments) in ways.items():
            for _ in range(50):
                function(*arguments)
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(500):
                function(*arguments)
            taken[name] = (time.perf_counter() - start) / 500 * 1e6
            torch.cuda.synchronize()
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--no-compile", action="store_true", help="leave out what needs Inductor, half of the minute")
    arguments = parser.parse_args()
    reason = native.why_not(torch.device("cuda")) if torch.cuda.is_available() else "skipped: no CUDA device"
    if reason is not None:
        sys.exit(reason)
    checks = Checks()
    for name, work in (("casts", casts), ("products", products), ("blocks", blocks), ("gradients", gradients),
                       ("CUDA graphs", graphs), ("threads", threads), ("refusals", refusals)):  # fmt: skip
        checks.group(name, work)
    if not arguments.no_compile:
        checks.group("torch.compile", compiled)
        checks.group("plans", plans)
        checks.group("plans with blocks", planned_blocks)
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "passed": checks.passed,
              "failed": checks.failed, "host_us": {}, "times_us": []}  # fmt: skip
    if not arguments.no_times:
        report["host_us"] = host_us()
        print("host, microseconds a call:", {name: round(us, 1) for name, us in report["host_us"].items()}, flush=True)
        for m, k, n in SHAPES:
            us = times(m, k, n)
            report["times_us"].append({"m": m, "k": k, "n": n, "us": us})
            print(f"{m}, {k}, {n}:", ", ".join(f"{name} {value:.1f}" for name, value in us.items()), flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1))
    print(f"{checks.passed} passed, {len(checks.failed)} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
