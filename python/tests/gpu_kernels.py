"""Proves loka.kernels on a GPU: casts bit for bit, every native kernel in all three GEMMs against FP64, compiled code,
CUDA graphs; `--time` also times the training step of single linears. Needs PyTorch and an NVIDIA GPU with FP8.

    python3 python/tests/gpu_kernels.py [--time] [CHECK]...

CHECK: gated, compiled, graph and so on, one of CHECKS; all of them without. Prints failures, a line a group, and last `N passed, N failed`. Exit 1 when one fails, 2 without a GPU.
"""

import copy
import itertools
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

from loka.kernels import KERNELS, linear, numerics, short_of, why_not
from loka.kernels import Switch, Watch, WeightCache, delayed, gated, handed, native_ops, norms
from loka.kernels.casts import Quantized, by_known_scale, input_and_weight, note, straight_and_turned
from loka.kernels.gemms import scaled
from loka.plans.following import follow, following
from loka.plans.linear import route, wanted_scales
from loka.catalogue import Cast, multiple_of
from loka.kernels.scales import LINE, quantize, to_fp8

NATIVE = [kernel for kernel in KERNELS if kernel.startswith(("cublaslt/", "pytorch/"))]
GEMMS = ("fprop", "dgrad", "wgrad")
LIMIT = 0.01
"""Relative L2 against FP64 on the operands as cast: BF16 output .002, fast accumulation to .005. FP8 itself is .03."""

TIMED_SHAPES = ((6144, 1536, 2048), (6144, 2048, 2048), (6144, 2048, 5120), (6144, 4096, 4096), (6144, 4096, 7680))
TIMED_MIXES = {
    "tensorwise+fast": ("cublaslt/fp8-tensorwise+fast",) * 3,
    "rowwise+fast": ("cublaslt/fp8-rowwise+fast",) * 3,
    "blockwise": ("cublaslt/fp8-blockwise",) * 3,
    "tensor, row, row": ("cublaslt/fp8-tensorwise+fast",) + ("cublaslt/fp8-rowwise+fast",) * 2,
    "tensor, tensor, bf16": ("cublaslt/fp8-tensorwise+fast",) * 2 + ("cublaslt/bf16",),
}


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def tell(self, good, text):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print("FAIL", text, flush=True)


def random(*shape, dtype=torch.bfloat16, seed=1, spread=3.0):
    """Values over many binades, some subnormal, some zero."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    x = torch.randn(*shape, device="cuda", generator=generator)
    x = x * torch.exp2(torch.randn(*shape, device="cuda", generator=generator) * spread)
    x = torch.where(torch.rand(*shape, device="cuda", generator=generator) < 0.05, torch.zeros_like(x), x)
    return x.to(dtype)


def operands(m, k=256, n=384):
    """x, weight and dy of a small linear."""
    return random(m, k, spread=1), random(n, k, seed=2, spread=1), random(m, n, seed=3, spread=1)


def same_bits(found, expected, scale):
    """Equal codes, but for the sign of zeros, and except where the scale is no number: there both dequantise to NaN."""
    found, expected = found.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8)
    zeros = ((found | expected) & 0x7F) == 0
    return bool(((found == expected) | zeros | ~torch.isfinite(scale).expand(expected.shape)).all())


def in_lines(*found):
    """Whether rows of all these codes begin at multiples of LINE bytes."""
    return all(codes.stride() == (-(-codes.shape[1] // LINE) * LINE, 1) and codes.data_ptr() % LINE == 0 for codes in found)


def same_scales(found, expected):
    return torch.equal(found.reshape(-1).nan_to_num(-1), expected.reshape(-1).nan_to_num(-1))


def cast_cases():
    """(name, operand)."""
    for rows, cols in ((128, 256), (1001, 1536), (1, 16), (33, 2064), (6144, 512), (400, 144), (144, 400), (2000, 1104)):
        for dtype in (torch.bfloat16, torch.float32):
            yield f"{rows}x{cols} {dtype}", random(rows, cols, dtype=dtype)
    tiny = torch.full((64, 64), 1e-40, device="cuda", dtype=torch.bfloat16)
    yield "subnormal", tiny
    yield "zeros", torch.zeros(64, 64, device="cuda", dtype=torch.bfloat16)
    yield "huge", random(64, 64) * 1e34
    # Every BF16 mantissa, so that ties of both formats occur under a scale that is a power of two.
    ties = torch.arange(0, 65536, device="cuda", dtype=torch.int32).to(torch.int16).view(torch.bfloat16).view(256, 256)
    yield "all finite BF16", torch.where(torch.isfinite(ties), ties, torch.zeros_like(ties))
    narrow = torch.where(ties.float().abs() < 448, ties, torch.zeros_like(ties))
    narrow[0, 0] = 448
    yield "ties", narrow
    for value in (float("nan"), float("inf"), -float("inf")):
        x = random(64, 96)
        x[5, 7] = value
        yield f"one {value}", x


def check_casts(checks):
    for name, x in cast_cases():
        for granularity in ("tensor", "row"):
            for format in ("e4m3", "e5m2"):
                for power_of_two in (False, True):
                    cast = Cast(format, granularity, power_of_two)
                    rows = x.shape[0]
                    straight, scale = quantize(x, cast)
                    turned, turned_scale = quantize(x.t(), cast)
                    for wanted in ((cast, None), (None, cast), (cast, cast)):
                        first, second = straight_and_turned(x, *wanted)
                        good = True
                        if first is not None:
                            good &= in_lines(first.bits) and same_bits(first.bits, straight, scale)
                            good &= same_scales(first.scale, scale)
                        if second is not None:
                            good &= in_lines(second.bits) and same_bits(second.bits[:, :rows], turned, turned_scale)
                            good &= same_scales(second.scale, turned_scale)
                            padding = second.bits[:, rows:].view(torch.uint8)
                            good &= padding.shape[1] == -rows % 16
                            good &= bool((padding == 0).all()) or not bool(torch.isfinite(scale).all())
                        checks.tell(good, f"cast {name} {cast} {['' if w is None else 'y' for w in wanted]}")


def check_pairs(checks):
    one, other = Cast("e4m3", "tensor", False), Cast("e4m3", "row", False)
    for m, k, n in ((128, 256, 384), (1001, 1536, 2048), (1, 16, 16), (6144, 2048, 512), (1001, 400, 144)):
        x, weight = random(m, k), random(n, k, seed=2, spread=1)
        for straight, turned in (((one, one), (one, one)), ((one, one), (None, None)), ((one, one), (other, one))):
            pairs = input_and_weight(x, weight, straight, turned)
            for operand, casts, pair in zip((x, weight), zip(straight, turned), pairs):
                for source, cast, found in zip((operand, operand.t()), casts, pair):
                    if cast is not None:
                        bits, scale = quantize(source, cast)
                        good = in_lines(found.bits) and same_bits(found.bits[:, : bits.shape[1]], bits, scale)
                        good &= same_scales(found.scale, scale)
                        checks.tell(good, f"input and weight {(m, k, n)} {cast}")


def check_block_casts(checks):
    for name, x in cast_cases():
        rows, cols = x.shape
        if cols % 128:
            continue
        for kinds in (("block_1x128", None), (None, "block_1x128"), ("block_1x128",) * 2, ("block_128x128",) * 2):
            for power_of_two in (False, True):
                wanted = [None if kind is None else Cast("e4m3", kind, power_of_two) for kind in kinds]
                for found, cast, source in zip(straight_and_turned(x, *wanted), wanted, (x, x.t())):
                    if cast is None:
                        continue
                    bits, scale = quantize(source, cast)
                    down, across = bits.shape
                    scales = found.scale.t() if cast.granularity == "block_1x128" else found.scale
                    scales = scales[: scale.shape[0], : scale.shape[1]]
                    tall = 1 if cast.granularity == "block_1x128" else 128
                    spread = scale.repeat_interleave(tall, 0)[:down].repeat_interleave(128, 1)[:, :across]
                    good = same_bits(found.bits[:down, :across], bits, spread) and same_scales(scales, scale)
                    checks.tell(good, f"block cast {name} {cast} of {kinds}")


def check_turned_and_rounded(checks):
    """Codes of one scale turned; FP32 weights that are rounded to BF16 on the way."""
    cast = Cast("e4m3", "tensor", False)
    for rows, cols in ((128, 256), (1001, 1536), (16, 48), (4096, 3584), (1, 16), (400, 144), (1001, 400)):
        x = random(rows, cols)
        x[0, 0] = torch.nan
        scale = torch.full((1,), 2.0**-4, device="cuda")
        for wanted in ((True, False), (False, True), (True, True)):
            first, second, maxima = by_known_scale(x, scale, 1 / scale, *wanted, 0)
            expected, good = to_fp8(x, scale, "e4m3").view(torch.uint8), bool(torch.isnan(maxima.amax()))
            good &= first is None or (in_lines(first.bits) and torch.equal(first.bits.view(torch.uint8), expected))
            if second is not None:
                good &= in_lines(second.bits)
                found = second.bits.view(torch.uint8)
                good &= torch.equal(found[:, :rows], expected.t()) and not bool(found[:, rows:].any())
                good &= found.shape[1] % 16 == 0
            checks.tell(good, f"a known scale {(rows, cols)} {wanted}")
        x[0, 0] = 0
        maxima = by_known_scale(x, scale, 1 / scale, True, True, 0)[2]
        checks.tell(float(maxima.amax()) == float(x.abs().amax()), f"maxima of {(rows, cols)}")
        wide = random(rows, cols, dtype=torch.float32)
        for wanted in ((cast, None), (None, cast), (cast, cast)):
            good = True
            expected, scale = quantize(wide.bfloat16(), cast)
            for found, source in zip(straight_and_turned(wide, *wanted, rounded=True), (expected, expected.t())):
                if found is not None:
                    good &= torch.equal(found.bits[:, : source.shape[1]].view(torch.uint8), source.view(torch.uint8))
                    good &= same_scales(found.scale, scale)
            checks.tell(good, f"FP32 {(rows, cols)} by way of BF16 {[each is not None for each in wanted]}")


def check_weights(checks):
    """All weights of a model in one launch: what plain operations give, from FP32 and from BF16, after a change too."""
    casts = [Cast("e4m3", "tensor", False), Cast("e4m3", "row", False)]
    wanted = [(a, b) for a in (*casts, None) for b in (*casts, None) if (a, b) != (None, None)]
    shapes = ((128, 256), (1008, 1536), (16, 48), (4096, 3584), (24, 16), (144, 400), (400, 1104), (429, 1077), (53, 37))
    weights = [random(*shape, dtype=dtype) for shape in shapes for dtype in (torch.float32, torch.bfloat16)]
    pairs = [(weight, casts) for weight in weights for casts in wanted]
    cache = WeightCache([weight for weight, _ in pairs], [casts for _, casts in pairs])
    kept = [one.bits for codes in cache.codes for one in codes[:2] if one is not None]
    checks.tell(in_lines(*kept) and not any(bool(bits.view(torch.uint8).any()) for bits in kept), "codes of weights lie in lines, zeros at first")
    # From the third time on a captured graph makes them.
    for _ in range(4):
        cache.refresh()
        off = cache.differing()
        checks.tell(not off, f"codes of weights {[(tuple(pairs[at][0].shape), pairs[at][1]) for at in off[:3]]}")
        for weight in weights:
            weight.mul_(1.25)
        checks.tell(len(cache.differing()) == len(pairs), "codes of changed weights differ")


def check_delayed(checks):
    """Scales that follow, on a GPU: outputs and gradients near FP64's in the first step and later, compiled or not, from
    FP32 weights under autocast; the watch sees what FP8 is off."""
    kernels = ("cublaslt/fp8-delayed+fast",) * 3
    for wrap in (lambda model: model, lambda model: torch.compile(model, fullgraph=True)):
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(256, 384), torch.nn.LayerNorm(384), torch.nn.SiLU(), torch.nn.Linear(384, 256)).cuda()
        plain = copy.deepcopy(model)
        switch = Switch(True)
        for part in (model[0], model[3]):
            route(part, kernels, False)
            part.__dict__["_loka_watch"] = Watch(switch, torch.device("cuda"), ("fprop", "dgrad", "wgrad"))
        follow(model)
        called = wrap(model)
        x = random(1000, 256, spread=0.5).float()
        for step_index in range(4):
            for each in (called, plain):
                each.zero_grad()
                with torch.autocast("cuda", torch.bfloat16):
                    out = each(x)
                (out.float().square().mean() * 2.0 ** (-3 * step_index)).backward()
            for name, parameter in model.named_parameters():
                error = rel_l2(parameter.grad, dict(plain.named_parameters())[name].grad.double())
                checks.tell(error < 0.1, f"delayed {step_index} {name}: gradient {error:.4f} from BF16's")
                checks.tell(parameter.grad.dtype == torch.float32, f"delayed {name}: gradient in FP32")
            if step_index == 0:
                for gemm, sums in model[3]._loka_watch.stats.items():
                    error = float((sums[0] / sums[1]).sqrt())
                    # wgrad adds rows up, whose errors average out.
                    least = 0.005 if gemm == "wgrad" else 0.01
                    checks.tell(least < error < 0.07, f"delayed {gemm}: the watch sees {error:.4f}")
            switch.active = False
            following(model).advance()
            checks.tell(model[0]._loka_options.settled, "the scales are settled after a step")


def check_scales(checks):
    """Scales move on, are found and noted in a launch or two as they are by plain operations."""
    known = [None if at % 3 == 0 else 2.0 ** -(at % 40) for at in range(200)]
    one, other = (delayed.History([delayed.Scale.of(scale, torch.device(where)) for scale in known]) for where in ("cuda", "cpu"))
    checks.tell(one._launch is not None, "one launch for all scales")
    for step_index in range(6):
        seen = torch.exp(20 * torch.randn(200)) * (torch.rand(200) > 0.3)
        seen[3], seen[70] = math.inf, math.nan
        for history in (one, other):
            for scale, value in zip(history.scales, seen):
                scale.amax.fill_(value)
            history.advance()
        for name in ("_scale", "_inverse", "decaying", "overflow"):
            checks.tell(torch.equal(getattr(one, name).cpu(), getattr(other, name)), f"scales {step_index} {name}")
    for dtype in (torch.float32, torch.bfloat16):
        for size in (0.0, 1e-38, 3e-7, 1.0, 223.99, 224.0, 224.01, 3e38, math.inf, math.nan):
            x = (torch.randn(4000, 520, device="cuda").clamp(-0.5, 0.5) * (size if math.isfinite(size) else 1.0)).to(dtype)
            x[3131, 7] = -size
            for at in (x, x.t()):
                for known in (None, torch.zeros(1, device="cuda"), torch.full((1,), 0.25, device="cuda")):
                    made, wanted = (find(at, known, "e4m3") for find in (delayed._scale_now, delayed._scale_by_parts))
                    same = all(torch.equal(a.nan_to_num(-1.0), b.nan_to_num(-1.0)) for a, b in zip(made, wanted))
                    checks.tell(same, f"scale of {dtype} up to {size}, known {known is not None}")
            for before in (0.0, 0.5, 1e38):
                for maxima in (x.abs().amax(-1), x.view(4000, 40, 13).abs().amax(-1), x.abs().t()[::2], x.abs().float()):
                    scales = [delayed.Scale.of(1.0, torch.device(where)) for where in ("cuda", "cpu")]
                    for scale, largest in zip(scales, (maxima, maxima.cpu())):
                        scale.amax.fill_(before)
                        note(scale.amax, largest)
                    noted = [scale.amax.cpu().nan_to_num(-1.0) for scale in scales]
                    checks.tell(torch.equal(*noted), f"noted {dtype} up to {size} after {before}")


def dequantized(x, cast):
    if cast.granularity == "none":
        if cast.format == "tf32":
            return x.double()
        return x.bfloat16().double()
    if cast.granularity == "static":
        scale = delayed.scale_for(x.abs().amax().float().view(1), cast.format)
        return to_fp8(x, scale, cast.format).double() * scale
    bits, scale = quantize(x, cast)
    scale = scale.double()
    if cast.granularity.startswith("block"):
        scale = scale.repeat_interleave(128, 1)[:, : x.shape[1]]
        if cast.granularity == "block_128x128":
            scale = scale.repeat_interleave(128, 0)[: x.shape[0]]
    return bits.double() * scale


def reference(kernels, x, weight, dy):
    """(y, dx, dw) in FP64 on the operands as each kernel casts them."""
    found = []
    for kernel, gemm, a, b in zip(kernels, GEMMS, (x, dy, dy.t()), (weight, weight.t(), x.t())):
        how = numerics(kernel, gemm)
        found.append(dequantized(a, how.a) @ dequantized(b, how.b).t())
    return found


def step(function, x, weight, dy):
    """(y, dx, dw)."""
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = function(x, weight)
    return (y.detach(), *torch.autograd.grad(y, (x, weight), dy))


def rel_l2(found, expected):
    return float((found.double() - expected).norm() / expected.norm())


def check_gemms(checks):
    mixes = [(kernel,) * 3 for kernel in NATIVE]
    mixes += [
        ("cublaslt/fp8-tensorwise+fast", "cublaslt/fp8-rowwise+fast", "cublaslt/bf16"),
        ("cublaslt/fp8-rowwise", "cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise+fast"),
        ("cublaslt/bf16", "cublaslt/fp8-blockwise", "cublaslt/fp8-tensorwise"),
    ]
    for kernels in mixes:
        reasons = [why_not(k, g, 256, 384, torch.device("cuda"), False) for k, g in zip(kernels, GEMMS)]
        checks.tell(not any(reasons), f"{kernels}: {reasons}")
        if any(reasons):
            continue
        for m in (1, 200, 1001, 2048):
            for dtype in (torch.bfloat16, torch.float32):
                x, weight = random(m, 256, dtype=dtype, spread=1) + 0.1, random(384, 256, dtype=dtype, seed=2, spread=1)
                dy = random(m, 384, dtype=dtype, seed=3, spread=1)
                found = step(lambda a, b: linear(a, b, None, kernels), x, weight, dy)
                for gemm, ours, expected in zip(("y", "dx", "dw"), found, reference(kernels, x, weight, dy)):
                    error = rel_l2(ours, expected)
                    good = error < LIMIT and ours.dtype == dtype
                    checks.tell(good, f"{kernels} m={m} {dtype} {gemm}: rel L2 {error}")
        y, dx, dw = step(lambda a, b: linear(a, b, None, kernels), x[:0], weight, dy[:0])
        checks.tell(y.shape == (0, 384) and dx.shape == (0, 256) and not dw.any(), f"{kernels}: empty batch")


def check_non_finite(checks):
    for kernel in [kernel for kernel in NATIVE if kernel.startswith("cublaslt/")]:
        granularity = numerics(kernel, "fprop").a.granularity
        for value in (float("nan"), float("inf")):
            x, weight, dy = operands(64)
            x[5, 7] = value
            y, dx, dw = step(lambda a, b: linear(a, b, None, (kernel,) * 3), x, weight, dy)
            bad = ~torch.isfinite(y)
            rows = bad.all(1) if granularity != "none" else bad.any(1)
            tensorwise = granularity in ("tensor", "static")
            expected = torch.ones_like(rows) if tensorwise else torch.arange(64, device="cuda") == 5
            checks.tell(torch.equal(rows, expected), f"{kernel}: {value} in row 5 of x reached {rows.nonzero()[:4]}")
            checks.tell(not torch.isfinite(dw[:, 7]).any(), f"{kernel}: {value} in column 7 of x must reach dw[:, 7]")
            checks.tell(bool(torch.isfinite(dx).all()), f"{kernel}: {value} in x must not reach dx")


def check_spaced(checks):
    """Products of codes whose rows are no multiples of a line are those of packed codes, tensorwise and rowwise, straight and turned; and
    compiled code gives what eager code gives, by any number of rows too."""
    for kernel in (f"cublaslt/fp8-{name}" for name in ("tensorwise", "tensorwise+fast", "rowwise", "rowwise+fast")):
        how = numerics(kernel, "fprop")
        for m, k, n in ((200, 400, 144), (1001, 144, 400), (6144, 1104, 272)):
            x, weight, dy = operands(m, k, n)
            cast = lambda each, how=how: straight_and_turned(each, how.a, how.a)
            (x_codes, x_turned), (weight_codes, _), (_, dy_turned) = cast(x), cast(weight), cast(dy)
            for what, pair in (("y", (x_codes, weight_codes)), ("dw", (dy_turned, x_turned))):
                packed = [Quantized(one.bits.contiguous(), one.scale) for one in pair]
                good = in_lines(*(one.bits for one in pair)) and all(one.bits.is_contiguous() for one in packed)
                checks.tell(good and torch.equal(scaled(*pair, how), scaled(*packed, how)), f"{kernel} {(m, k, n)} {what} as of packed codes")
        kernels = (kernel,) * 3
        for dynamic in (False, True):
            torch._dynamo.reset()
            compiled = torch.compile(lambda a, b: linear(a, b, None, kernels), fullgraph=True, dynamic=dynamic)
            for m in (200, 1001, 1024):
                x, weight, dy = operands(m, 400, 144)
                eager = step(lambda a, b: linear(a, b, None, kernels), x, weight, dy)
                for name, ours, expected in zip(("y", "dx", "dw"), step(compiled, x, weight, dy), eager):
                    error = rel_l2(ours, expected.double())
                    checks.tell(error < 1e-4, f"{kernel} compiled, dynamic {dynamic}, m={m} k=400 n=144 {name}: {error} from eager")


def check_padded(checks):
    """Widths that are no multiples of 16: what padding by hand gives, to the bit; compiled code gives what eager code gives."""
    device, pad = torch.device("cuda"), torch.nn.functional.pad
    triples = [(kernel,) * 3 for kernel in NATIVE if "block" not in kernel and multiple_of(kernel, "fprop") == 16]
    triples += [("loka/fp8-static+fast",) * 2 + ("cublaslt/fp8-rowwise",), ("loka/fp8-tensorwise",) * 3, ("cublaslt/bf16", "loka/fp8-rowwise+fast", "cublaslt/bf16")]
    for kernels, (m, k, n) in itertools.product(triples, ((1001, 429, 537), (2000, 1104, 537), (1024, 429, 512))):
        if any(why_not(*of, k, n, device, False) for of in zip(kernels, GEMMS)):
            checks.tell(False, f"{kernels} does not run at {(m, k, n)}")
            continue
        x, weight, dy = operands(m, k, n)
        short_n, short_k = short_of(kernels, n, k)
        scales = lambda kernels=kernels: tuple(delayed.Scale.of(2.0**-3, device) if wanted else None for wanted in wanted_scales(kernels))
        run = lambda a, b, kernels=kernels, scales=scales(): linear(a, b, None, kernels, False, scales, True)
        ours = step(run, x, weight, dy)
        by_hand = step(run, pad(x, (0, short_k)), pad(weight, (0, short_k, 0, short_n)), pad(dy, (0, short_n)))
        cut = by_hand[0][:, :n], by_hand[1][:, :k], by_hand[2][:n, :k]
        exact = (x.double() @ weight.double().t(), dy.double() @ weight.double(), dy.double().t() @ x.double())
        for name, one, other, wanted in zip(("y", "dx", "dw"), ours, cut, exact):
            # Of values over many binades one scale a tensor flushes some.
            far = rel_l2(one, wanted)
            checks.tell(torch.equal(one, other) and far < 0.15, f"{kernels} {(m, k, n)} {name}: {far} from FP64, padded by hand the same: {torch.equal(one, other)}")
        torch._dynamo.reset()
        for name, one, other in zip(("y", "dx", "dw"), step(torch.compile(run, fullgraph=True), x, weight, dy), ours):
            checks.tell(rel_l2(one, other.double()) < 1e-4, f"{kernels} {(m, k, n)} {name}: compiled {rel_l2(one, other.double())} from eager")


def check_compiled(checks):
    for kernel in [kernel for kernel in NATIVE if kernel.startswith("cublaslt/")]:
        torch._dynamo.reset()
        kernels = (kernel,) * 3
        compiled = torch.compile(lambda a, b: linear(a, b, None, kernels), fullgraph=True)
        for m in (256, 1008, 1001):
            x, weight, dy = operands(m)
            eager = step(lambda a, b: linear(a, b, None, kernels), x, weight, dy)
            for name, ours, expected in zip(("y", "dx", "dw"), step(compiled, x, weight, dy), eager):
                error = rel_l2(ours, expected.double())
                checks.tell(error < 1e-4, f"{kernel} compiled m={m} {name}: {error} from eager")


def check_checked(checks):
    """In a checked step a linear is two operators under torch.compile: what they give is what it gives without."""
    device = torch.device("cuda")
    for kernels in (
        *((kernel,) * 3 for kernel in KERNELS if kernel.split("/")[0] in ("cublaslt", "pytorch") and "block" not in kernel),
        ("loka/fp8-static+fast", "loka/fp8-static+fast", "cublaslt/bf16"), ("cublaslt/bf16", "cublaslt/fp8-delayed", "loka/fp8-rowwise+fast"),
    ):
        if any(why_not(*of, 768, 1024, device, False) for of in zip(kernels, ("fprop", "dgrad", "wgrad"))):
            continue
        for known in (2.0**-9,) if "loka/fp8-static+fast" in kernels else (0.0, 2.0**-9):
            found = []
            for compiled in (False, True):
                torch._dynamo.reset()
                torch.manual_seed(3)
                x, weight = (torch.randn(rows, 768, device=device, requires_grad=True) for rows in (2000, 1024))
                scales = tuple(delayed.Scale.of(known, device) if wanted else None for wanted in wanted_scales(kernels))
                watch = Watch(Switch(True), device, ("fprop", "dgrad", "wgrad"))
                run = lambda x, weight: linear(x, weight, None, kernels, False, scales, False, 0, watch)
                with torch.autocast("cuda", torch.bfloat16):
                    y = (torch.compile(run, fullgraph=True) if compiled else run)(x, weight)
                gradients = torch.autograd.grad(y, (x, weight), torch.randn(y.shape, device=device, dtype=y.dtype))
                amaxes = [scale.amax for scale in scales if scale is not None]
                found.append((y.detach(), *gradients, *watch.stats.values(), *amaxes))
            same = all(torch.equal(*pair) for pair in zip(*found))
            checks.tell(same, f"checked {' '.join(kernels)} known {known}: compiled as eager")


def check_graph(checks):
    kernels = ("cublaslt/fp8-tensorwise+fast", "cublaslt/fp8-rowwise+fast", "cublaslt/fp8-tensorwise+fast")
    x, weight, dy = operands(512)
    x, weight = x.requires_grad_(), weight.requires_grad_()
    run = lambda: torch.autograd.grad(linear(x, weight, None, kernels), (x, weight), dy)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    with torch.no_grad():
        x.mul_(4)
    graph.replay()
    torch.cuda.synchronize()
    expected = run()
    checks.tell(all(rel_l2(a, b.double()) < 1e-4 for a, b in zip(out, expected)), "a replayed graph follows its inputs")


def check_rest(checks):
    before = torch.backends.cuda.matmul.allow_tf32
    x, weight, dy = (tensor.float() for tensor in operands(512))
    # Values that TF32 cannot hold: those of BF16 would be multiplied exactly.
    x, weight = x * 1.0003, weight * 1.0003
    y, _, _ = step(lambda a, b: linear(a, b, None, ("cublaslt/tf32",) * 3), x, weight, dy)
    error = rel_l2(y, x.double() @ weight.double().t())
    checks.tell(1e-5 < error < 1e-3, f"TF32's own error is {error}")
    checks.tell(torch.backends.cuda.matmul.allow_tf32 == before, "the TF32 flag is as it was")
    kernels = ("cublaslt/fp8-tensorwise+fast",) * 3
    with torch.autocast("cuda", torch.bfloat16):
        y, dx, dw = step(lambda a, b: linear(a, b, None, kernels), x, weight, dy.bfloat16())
    checks.tell((y.dtype, dx.dtype, dw.dtype) == (torch.bfloat16, torch.float32, torch.float32), "types under autocast")
    x, weight = x.bfloat16().requires_grad_(), weight.bfloat16().requires_grad_()
    again = torch.utils.checkpoint.checkpoint(lambda a: linear(a, weight, None, kernels), x, use_reentrant=False)
    plain = linear(x, weight, None, kernels)
    found, expected = (torch.autograd.grad(y, (x, weight), dy.bfloat16()) for y in (again, plain))
    checks.tell(all(torch.equal(a, b) for a, b in zip(found, expected)), "checkpointing changes nothing")


def graph_us(calls, replays=10):
    """Median time in us of one call, of a graph that runs them all: each finds its operands out of the cache."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for call in calls:
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in calls:
                call()
    times = []
    for _ in range(replays + 2):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1000 / len(calls))
    return statistics.median(times[2:])


def time_sites():
    """Training step of one linear, not compiled, in a CUDA graph over 6 sets of operands."""
    print("m, k, n | BF16 us |", " | ".join(TIMED_MIXES))
    for m, k, n in TIMED_SHAPES:
        sets = [
            [t.requires_grad_() for t in (random(m, k, seed=i, spread=0), random(n, k, seed=i, spread=0))]
            + [random(m, n, seed=i)]
            for i in range(6)
        ]
        steps = lambda function: [lambda s=s: torch.autograd.grad(function(s[0], s[1]), s[:2], s[2]) for s in sets]
        base = graph_us(steps(torch.nn.functional.linear))
        cells = []
        for kernels in TIMED_MIXES.values():
            us = graph_us(steps(lambda x, w, kernels=kernels: linear(x, w, None, kernels)))
            cells.append(f"{us:.0f} {base / us:.2f}x")
        print(f"{m}, {k}, {n} | {base:.0f} |", " | ".join(cells), flush=True)


def time_weights():
    """The cast of all weights of a model, both layouts, beside a copy of as many bytes."""
    print("weights | us | of a copy's bandwidth")
    tensorwise = Cast("e4m3", "tensor", False)
    for shapes in (((4096, 3584), (4096, 4096), (2048, 4096)), ((4096, 4096),) * 24, ((512, 512),) * 64):
        for dtype in (torch.float32, torch.bfloat16):
            weights = [random(*shape, dtype=dtype, spread=0) for shape in shapes]
            cache = WeightCache(weights, [(tensorwise, tensorwise)] * len(weights))
            # Read twice, for maxima and for codes, and written in two layouts.
            moved = sum(weight.numel() * (2 * weight.element_size() + 2) for weight in weights)
            source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
            target = torch.empty_like(source)
            us, copy_us = graph_us([cache.refresh]), graph_us([lambda: target.copy_(source)])
            print(f"{len(shapes)} of {shapes[0]} {dtype} | {us:.0f} | {copy_us / us:.2f}", flush=True)


def magnitude(codes):
    """E4M3 codes as bytes, zeros of either sign alike."""
    return codes.view(torch.uint8).where(codes.float() != 0, torch.zeros_like(codes, dtype=torch.uint8))


def is_nan(codes):
    """Of such bytes."""
    return codes & 0x7F == 0x7F


def check_handed(checks):
    """What a linear gives the next one, and its gradient, against the steps apart by plain operations in FP32, but for the sign of
    zeros."""
    sizes = ((16, 256), (48, 512), (1040, 768), (6144, 4096), (16, 16384), (131072, 256))
    for tail, (rows, cols) in itertools.product(handed.TAILS, (*sizes, (80, 48), (336, 1200))):
        if tail == handed.NORMED and cols % 256:
            continue
        for value in (None, math.nan, math.inf, -math.inf, 1e30):
            z, dh = random(rows, cols, seed=rows), random(rows, cols, seed=cols, spread=0) * 1e-4
            bias = None if rows == 48 else random(cols, 1, seed=9, spread=0).view(-1).float()
            if value is not None:
                z[7, 9], dh[3, 5] = value, value
            of_h, of_dz = (torch.full((1,), 2.0**power, device="cuda") for power in (-5, -19))
            y = handed.biased(z, bias)
            h, dz = handed.after(y, tail), handed.before(dh, y, tail)
            packed, largest, _ = handed.output(z, bias, 1 / of_h, tail)
            of = (handed.gate(packed), None) if tail == "relu" else (z, bias)
            *gradient, largest_dz, sums, _, _ = handed.gradient(dh, *of, of_dz, 1 / of_dz, tail, True)
            if tail == "relu":
                # Where it was joined to its linear alone, by what comes out of it.
                again = handed.gradient(dh, h, None, of_dz, 1 / of_dz, tail)
                same = torch.equal(again.straight.bits.view(torch.uint8), gradient[0].bits.view(torch.uint8))
                checks.tell(same, f"handed {tail} by its result [{rows}, {cols}] with {value}")
            if value is None and rows in (48, 336):
                keep = torch.rand(z.shape, device="cuda") < 0.75
                dropped = handed.output(z, bias, 1 / of_h, tail, keep, 0.25).h
                wanted = delayed.codes(h * keep * (1 / 0.75), 1 / of_h, "e4m3")
                found = handed.taken(dropped, of_h)[0].bits
                good = float((magnitude(found) != magnitude(wanted)).float().mean()) < 0.003
                of = (handed.gate(dropped), None) if tail == "relu" else (z, bias)
                good &= in_lines(*(one.bits for one in gradient[:2]))
                through = handed.gradient(dh, *of, of_dz, 1 / of_dz, tail, False, None if tail == "relu" else keep, 0.25)
                wanted = delayed.codes(handed.before(dh * keep * (1 / 0.75), y, tail), 1 / of_dz, "e4m3")
                good &= float((magnitude(through.straight.bits) != magnitude(wanted)).float().mean()) < 0.003
                checks.tell(good, f"handed {tail} behind a dropout [{rows}, {cols}]")
            for what, exact, scale, (straight, turned), most in (
                ("h", h, of_h, handed.taken(packed, of_h), largest), ("dz", dz, of_dz, gradient, largest_dz)
            ):
                ours, wanted = magnitude(straight.bits), magnitude(delayed.codes(exact, 1 / scale, "e4m3"))
                # Of a ReLU, the sign of straight zeros says what passed.
                bits = straight.bits.view(torch.uint8) & (0x7F if what == "h" and tail == "relu" else 0xFF)
                good = torch.equal(bits.t(), turned.bits.view(torch.uint8))
                # PyTorch's gradient of hard swish at a NaN is what came, not NaN; an infinity times nothing may be a zero or no number.
                may_differ = (value in (math.inf, -math.inf) and tail != "relu") or (what == "dz" and tail == "hard_swish")
                same_nan = torch.equal(is_nan(ours), is_nan(wanted)) or may_differ
                good &= same_nan and float((ours != wanted).float().mean()) < 0.003
                if value is None:
                    good &= abs(float(most.max()) / float(exact.abs().max()) - 1) <= (0.0 if what == "h" or tail == handed.NORMED else 0.004)
                checks.tell(good, f"handed {tail} {what} [{rows}, {cols}] with {value}")
            if value is None:
                exact = dz.float().sum(0)
                good = float((sums - exact).norm()) <= 1e-3 * float(exact.norm())
                checks.tell(good, f"handed {tail} sums [{rows}, {cols}]")


def check_gated(checks):
    """Likewise the product of what follows two linears, and both its gradients, alone and noting."""
    pairs = [*((gate, "linear") for gate in sorted(gated.GATES)), ("linear", "sigmoid"), ("swish", "relu")]
    sizes = ((16, 256), (80, 48), (336, 1200), (1040, 768), (6144, 4096), (16, 16384), (131072, 256))
    for (gate, other), (rows, cols), value in itertools.product(pairs, sizes, (None, math.nan, math.inf, 1e30)):
        z, other_z, dh = random(rows, cols, seed=rows), random(rows, cols, seed=rows + 1), random(rows, cols, seed=cols, spread=0) * 1e-4
        bias = None if rows == 80 else random(cols, 1, seed=9, spread=0).view(-1).float()
        other_bias = None if rows == 336 else random(cols, 1, seed=10, spread=0).view(-1).float()
        if value is not None:
            z[7, 9], other_z[5, 11], dh[3, 5] = value, value, value
        keep = torch.rand(z.shape, device="cuda") < 0.75 if rows in (80, 1040) else None
        dropout = 0.0 if keep is None else 0.25
        of_h, of_dz, of_other = (torch.full((1,), 2.0**power, device="cuda") for power in (-3, -17, -16))
        first, second = gated.Half(z, bias, gate), gated.Half(other_z, other_bias, other)
        (y, a), (other_y, other_a) = gated._after(*first), gated._after(*second)
        g = handed.dropped(dh, keep, handed.enlarged(dropout))
        packed, largest = gated.output(first, second, 1 / of_h, keep, dropout)
        by = (of_dz, 1 / of_dz, of_other, 1 / of_other)
        made = gated.gradient(dh, first, second, *by, True, keep, dropout)
        in_rows = in_lines(*(one.bits for each in made for one in each[:2]))
        checks.tell(in_rows, f"{gate} * {other} [{rows}, {cols}]: codes of both gradients lie in lines")
        exact = gated._before(g * other_a, y, a, gate), gated._before(g * a, other_y, other_a, other)
        for what, wanted, scale, (straight, turned), most in (
            ("h", gated.joined(first, second, keep, dropout), of_h, handed.taken(packed, of_h), largest),
            ("dz", exact[0], of_dz, made[0][:2], made[0].maxima), ("the other dz", exact[1], of_other, made[1][:2], made[1].maxima),
        ):
            ours, codes = magnitude(straight.bits), magnitude(delayed.codes(wanted, 1 / scale, "e4m3"))
            good = torch.equal(straight.bits.view(torch.uint8).t(), turned.bits.view(torch.uint8))
            # As `check_handed`: hard swish at what is not finite, and an infinity times nothing.
            may_differ = value == math.inf or (value is not None and "hard_swish" in (gate, other))
            good &= torch.equal(is_nan(ours), is_nan(codes)) or may_differ
            good &= float((ours != codes).float().mean()) < 0.003
            if value is None:
                good &= abs(float(most.max()) / float(wanted.abs().max()) - 1) <= 0.008
            checks.tell(good, f"{gate} * {other}, {what} [{rows}, {cols}] with {value}")
        for what, wanted, one in zip(("dz", "the other dz"), exact, made) if value is None else ():
            wanted = wanted.float().sum(0)
            checks.tell(float((one.sums - wanted).norm()) <= 2e-3 * float(wanted.norm()), f"{gate} * {other}, sums of {what} [{rows}, {cols}]")
        seen, amaxes = [torch.rand(count, device="cuda") for count in (5000, 77)], [torch.zeros(1, device="cuda") for _ in range(5)]
        notes = delayed.Notes(amaxes[0], list(zip(seen, amaxes[1:3]))), delayed.Notes(amaxes[3], [(seen[0], amaxes[4])])
        again = gated.gradient(dh, first, second, *by, False, keep, dropout, *notes)
        wanted = torch.stack([each.max() for each in (made[0].maxima, *seen, made[1].maxima, seen[0])])
        same = torch.equal(torch.cat(amaxes).nan_to_num(-1.0, -2.0), wanted.nan_to_num(-1.0, -2.0))
        same &= all(torch.equal(one.straight.bits.view(torch.uint8), two.straight.bits.view(torch.uint8)) for one, two in zip(again, made))
        checks.tell(same and all(one.maxima is None for one in again), f"{gate} * {other} noted [{rows}, {cols}] with {value}")
    for gate, other in pairs:
        checks.tell(gated.sound(gate, other, torch.device("cuda", 0)), f"{gate} * {other} is sound")


def check_noted(checks):
    """What casts of dy note on their way, of dy and of others, is what a launch for each would have noted."""
    rows, cols = 336, 1200
    inverse, weight = torch.full((1,), 2.0**19, device="cuda"), torch.ones(cols, device="cuda")
    for value, others, before in itertools.product((0.5, math.inf, math.nan), (0, 1, 2), (0.0, 1e3)):
        dh, z = random(rows, cols, seed=1, spread=0) * 1e-4, random(rows, cols, seed=2)
        dh[11, 13] = value
        maxima = [torch.rand(count, device="cuda") * (at + 1) for at, count in enumerate((5000, 77))][:others]
        norm = norms.Norm(weight, weight, 1e-5)
        stats = handed.output(z, None, inverse, "layer_norm+swish", norm=norm).stats
        for what, run in {
            "cast": lambda notes: by_known_scale(dh, 1 / inverse, inverse, True, True, 0, notes)[2],
            "cast of FP32": lambda notes: by_known_scale(dh.float(), 1 / inverse, inverse, True, True, 0, notes)[2],
            "hard swish": lambda notes: handed.gradient(dh, z, None, 1 / inverse, inverse, "gelu", True, notes=notes).maxima,
            "norm": lambda notes: handed.gradient(
                dh, z, None, 1 / inverse, inverse, "layer_norm+swish", True, norm=norm, stats=stats, notes=notes
            ).maxima,
        }.items():
            amaxes = [torch.full((1,), before, device="cuda") for _ in range(3)]
            nothing = run(delayed.Notes(amaxes[0], list(zip(maxima, amaxes[1:]))))
            wanted = [torch.full((1,), before, device="cuda") for _ in range(3)]
            for amax, seen in zip(wanted, (run(None), *maxima)):
                delayed.note(amax, seen)
            same = all(torch.equal(a.nan_to_num(-1.0, -2.0), b.nan_to_num(-1.0, -2.0)) for a, b in zip(amaxes, wanted))
            checks.tell(nothing is None and same, f"noted by {what} with {value} and {others} others after {before}")


def check_normed(checks):
    """Likewise behind a norm over whole rows, with the gradients of its own parameters; rows far from zero, too."""
    sizes = ((16, 256), (80, 48), (1040, 768), (336, 1200), (8192, 4096), (16, 16384), (131072, 256))
    for norm, activation, (rows, cols) in itertools.product(norms.ROW_NORMS, ("", "relu", "swish", "gelu"), sizes):
        tail = handed.row_normed(norm, activation)
        for far in (0.0, 300.0):
            z, dh = random(rows, cols, seed=rows) + far, random(rows, cols, seed=cols, spread=0) * 1e-4
            z = z.bfloat16()
            bias = None if rows == 80 else random(cols, 1, seed=9, spread=0).view(-1).float()
            weight = None if rows == 336 else 1 + 0.1 * random(cols, 1, seed=10, spread=0).view(-1).float()
            shift = 0.1 * random(cols, 1, seed=11, spread=0).view(-1).float() if norm == "layer_norm" and weight is not None else None
            keep = torch.rand(z.shape, device="cuda") < 0.75 if rows in (80, 1040) else None
            dropout = 0.25 if keep is not None else 0.0
            of = norms.Norm(weight, shift, 1e-5)
            of_h, of_dz = (torch.full((1,), 2.0**power, device="cuda") for power in (-5, -19))
            y = handed.biased(z, bias).detach().requires_grad_()
            leaves = [y, *(part.requires_grad_() for part in (weight, shift) if part is not None)]
            behind = handed._behind_norm(y, tail, of)[0].bfloat16()
            h = behind if keep is None else behind * keep * (1 / 0.75)
            exact_dz, *exact_parts = torch.autograd.grad(h, leaves, dh)
            with torch.no_grad():
                made = handed.output(z, bias, 1 / of_h, tail, keep, dropout, of)
                found = handed.gradient(dh, z, bias, of_dz, 1 / of_dz, tail, True, keep, dropout, of, made.stats)
                checks.tell(in_lines(*(one.bits for one in found[:2])), f"{tail} [{rows}, {cols}]: codes of the gradient lie in lines")
                for what, exact, scale, (straight, turned), most in (
                    ("h", h, of_h, handed.taken(made.h, of_h), made.maxima), ("dz", exact_dz, of_dz, found[:2], found.maxima)
                ):
                    wanted = delayed.codes(exact, 1 / scale, "e4m3").float()
                    good = torch.equal(straight.bits.view(torch.uint8).t(), turned.bits.view(torch.uint8))
                    good &= float((straight.bits.float() != wanted).float().mean()) < 0.003
                    good &= abs(float(most.max()) / float(exact.abs().max()) - 1) <= 0.01
                    checks.tell(good, f"{tail} {what} [{rows}, {cols}] {far} from zero")
                sums = [found.sums, *(part for part in (found.norm_weight, found.norm_bias) if part is not None)]
                wanted = [exact_dz.float().sum(0), *exact_parts]
                # Of a layer norm dz adds up to nothing a row: of what rounding leaves, sums over rows are made.
                good = len(sums) == len(wanted) and all(float((a - b).norm()) <= 0.01 * float(b.norm()) for a, b in zip(sums, wanted))
                checks.tell(good, f"{tail} sums [{rows}, {cols}] {far} from zero")


CHECKS = {
    check.__name__.removeprefix("check_"): check
    for check in (
        check_casts, check_pairs, check_block_casts, check_turned_and_rounded, check_weights, check_scales, check_delayed, check_handed,
        check_gated, check_normed, check_noted, check_gemms, check_spaced, check_padded, check_non_finite, check_compiled, check_checked, check_graph, check_rest,
    )
}  # fmt: skip


def main():
    if not torch.cuda.is_available():
        print("skipped: no CUDA device")
        sys.exit(2)
    named = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    unknown = [name for name in named if name not in CHECKS]
    if unknown:
        print(f"no check is called {unknown[0]} (one of {', '.join(CHECKS)})")
        sys.exit(2)
    checks = Checks()
    for check in (CHECKS[name] for name in named or CHECKS):
        try:
            check(checks)
        except Exception as error:
            checks.tell(False, f"{check.__name__}: {type(error).__name__}: {str(error)[:1500]}")
        print(f"{check.__name__}: {checks.passed} passed, {checks.failed} failed so far", flush=True)
    if "--time" in sys.argv[1:]:
        time_sites()
        time_weights()
    print(f"{checks.passed} passed, {checks.failed} failed")
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
