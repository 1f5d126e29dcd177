"""BlockNorm + hard swish by itself, forward and backward: kernels/cu/block_norm_hard_swish.cu, block_backward.cu and
block_backward_static.cu; codes transposed, transpose_codes.cu; casts by known scales, cast_static_turned.cu.

    python benches/block_tail.py [--checks 60] [--rounds 30] [--out FILE.json]

Takes a GPU and PyTorch; gives, after the checks, median microseconds with a cold L2 and the share of a copy's bandwidth
(read and written bytes a second of torch's copy_, the same run). Checks: values against FP64, half a unit of the last
place and FP32's rounding allowed; codes of dz bit for bit those of a cast of dz, with their row scales, or the count of
saturated elements and the largest magnitude; poison and guards around each output; outputs left out in turns; rows of
256 to 16,384; ragged codes transposed. Exit 1, after the figures, where one failed.
"""

import argparse
import json
import math
import pathlib
import random

import torch
import torch.nn.functional as F

import fp8_gemm as fp8
from blocks import (BLOCK, EPS, H_SCALE, Guarded, block_norm, cold_times, gradient_codes, graph, norm_backward,
                    norm_forward, static_casts, tell, transposes)  # fmt: skip
from static_gemm import e4m3

SHAPES = [(1024, 1024), (1024, 2048), (2048, 2048), (6144, 2048), (12288, 2048), (1024, 4096), (6144, 4096)]


def inputs(m: int, n: int):
    """z of different magnitudes from block to block, and one block of zeros; dh."""
    z = torch.randn(m * n // BLOCK, BLOCK, device="cuda")
    z *= 2.0 ** torch.randint(-12, 12, (len(z), 1), device="cuda")
    z[len(z) // 2] = 0
    return z.view(m, n).bfloat16(), torch.randn(m, n, device="cuda").bfloat16()


def gradient(z, dh):
    """In FP64, and of which blocks no element lies where the slope jumps, at -3 or 3."""
    blocks, g = z.double().view(-1, BLOCK), dh.double().view(-1, BLOCK)
    r = torch.rsqrt(blocks.square().mean(1, keepdim=True) + EPS)
    y = blocks * r
    slope = torch.where(y >= 3, torch.ones_like(y), torch.where(y <= -3, torch.zeros_like(y), y / 3 + 0.5))
    g = g * slope
    clear = ((y.abs() - 3).abs() > 1e-5).all(1)
    return r * (g - y * (g * y).mean(1, keepdim=True)), clear


def forward_check(m: int, n: int, wants: tuple) -> str:
    z, _ = inputs(m, n)
    exact = F.hardswish(block_norm(z.double()))
    h, codes = Guarded(m, n, torch.bfloat16), Guarded(m, n, torch.float8_e4m3fn)
    scale = torch.full((1,), H_SCALE, device="cuda")
    norm_forward(z, h.matrix if wants[0] else None, codes.matrix if wants[1] else None, scale if wants[1] else None)()
    where = f"block_norm_hard_swish {m}x{n} {wants}"
    for output, is_wanted in zip((h, codes), wants):
        if not (output.is_intact() if is_wanted else output.is_untouched()):
            return f"{where}: wrote what it should not"
    # Half a unit of BF16's last place, and FP32's rounding where hard swish is a small difference of larger values.
    if wants[0] and not ((h.matrix.double() - exact).abs() <= exact.abs() * 0.00392 + 3e-6).all():
        return f"{where}: h off by {(h.matrix.double() - exact).abs().max().item():.3e}"
    if wants[1]:
        expected, got = e4m3(exact.float() / H_SCALE), codes.matrix
        differs = (expected.view(torch.uint8) != got.view(torch.uint8)).double().mean().item()
        error, allowed = (fp8.relative_l2(value.double() * H_SCALE, exact) for value in (got, expected))
        # Where all is zero there is no relative error.
        if not (differs < 2e-3 and (exact.count_nonzero() == 0 or error <= 1.001 * allowed + 1e-5)):
            return f"{where}: {differs:.2e} of codes differ, relative L2 {error:.4e}, {allowed:.4e} of the type alone"
    return ""


def backward_check(m: int, n: int, wants: tuple) -> str:
    z, dh = inputs(m, n)
    exact, clear = gradient(z, dh)
    dz, codes = Guarded(m, n, torch.bfloat16), Guarded(m, n, torch.float8_e4m3fn)
    rows = Guarded(1, m, torch.float32)
    norm_backward(dh, z, dz.matrix if wants[0] else None, codes.matrix if wants[1] else None, rows.matrix)()
    where = f"block_backward {m}x{n} {wants}"
    for output, is_wanted in zip((dz, codes, rows), (*wants, wants[1])):
        if not (output.is_intact() if is_wanted else output.is_untouched()):
            return f"{where}: wrote what it should not"
    if wants[0]:
        got = dz.matrix.double().view(-1, BLOCK)
        allowed = exact.abs() * 0.00392 + 4e-6 * exact.abs().amax(1, keepdim=True)
        off = ((got - exact).abs() > allowed) & clear[:, None]
        if off.any() or not got.isfinite().all():
            return f"{where}: {int(off.sum())} of dz are off, relative L2 {fp8.relative_l2(got, exact):.3e}"
    if wants[1]:
        values = (dz.matrix if wants[0] else rounded_gradient(dh, z)).float()
        scales = (values.abs().amax(1) / torch.full((), 448.0, device="cuda")).clamp(min=1e-12)
        if not torch.equal(rows.matrix[0], scales):
            return f"{where}: {int((rows.matrix[0] != scales).sum())} row scales differ"
        return codes_differ(where, codes.matrix, e4m3(values / scales[:, None]))
    return ""


def rounded_gradient(dh, z):
    """dz in BF16, by block_backward, which is checked by itself."""
    kept = torch.empty_like(z)
    norm_backward(dh, z, kept, None, None)()
    return kept


def codes_differ(where: str, got, expected) -> str:
    differing = int((expected.view(torch.uint8) != got.view(torch.uint8)).sum())
    return f"{where}: {differing} codes differ" if differing else ""


def static_check(m: int, n: int) -> str:
    """block_backward_static: all outputs, and each by itself."""
    z, dh = inputs(m, n)
    values = rounded_gradient(dh, z)
    largest = values.float().abs().max()
    # So that some saturate.
    scale = torch.full((1,), 2.0 ** math.floor(math.log2(largest.item() / 448) - 1), device="cuda")
    expected = e4m3(values.float() / scale)
    count = int(((values.float() / scale).abs() > 448).sum())
    for wants in ("dz codes turned", "codes turned", "codes", "dz", "turned"):
        outputs = {"dz": Guarded(m, n, torch.bfloat16), "codes": Guarded(m, n, torch.float8_e4m3fn),
                   "turned": Guarded(n, m, torch.float8_e4m3fn)}  # fmt: skip
        wanted = [name for name in wants.split() if name != "turned" or m % 16 == 0]
        to = [output.matrix if name in wanted else None for name, output in outputs.items()]
        saturated, amax = torch.full((1,), 7, dtype=torch.int64, device="cuda"), torch.zeros(1, device="cuda")
        gradient_codes(dh, z, *to, scale, saturated, amax)()
        where = f"block_backward_static {m}x{n} {wanted}"
        for name, output in outputs.items():
            if not (output.is_intact() if name in wanted else output.is_untouched()):
                return f"{where}: wrote what it should not of {name}"
        if "dz" in wanted and not torch.equal(outputs["dz"].matrix, values):
            return f"{where}: dz is not block_backward's"
        for name, codes in (("codes", expected), ("turned", expected.t())):
            wrong = codes_differ(f"{where} {name}", outputs[name].matrix, codes) if name in wanted else ""
            if wrong:
                return wrong
        if int(saturated) - 7 != count or amax[0] != largest:
            return f"{where}: {int(saturated) - 7} saturated, {count} expected; amax {amax.item()}, {largest.item()}"
    return ""


def cast_check(shapes: list) -> str:
    """cast_static_turned of up to four matrices."""
    scale, operands, outputs = torch.full((1,), 2.0**-7, device="cuda"), [], []
    for m, n in shapes:
        x = torch.randn(m, n, device="cuda").bfloat16()
        codes, turned = Guarded(m, n, torch.float8_e4m3fn), Guarded(n, m, torch.float8_e4m3fn)
        saturated, amax = torch.full((1,), 7, dtype=torch.int64, device="cuda"), torch.zeros(1, device="cuda")
        operands.append((x, codes.matrix, turned.matrix if m % 16 == 0 else None, scale, saturated, amax))
        outputs.append((codes, turned))
    static_casts(operands)()
    for (x, _, to, _, saturated, amax), (codes, turned) in zip(operands, outputs):
        where, values = f"cast_static_turned {shapes}", x.float() / scale
        if not codes.is_intact() or not (turned.is_untouched() if to is None else turned.is_intact()):
            return f"{where}: wrote what it should not"
        wrong = codes_differ(where, codes.matrix, e4m3(values))
        if not wrong and to is not None:
            wrong = codes_differ(f"{where} transposed", turned.matrix, e4m3(values).t())
        if wrong:
            return wrong
        if int(saturated) - 7 != int((values.abs() > 448).sum()) or amax[0] != x.float().abs().max():
            return f"{where}: {int(saturated) - 7} saturated, amax {amax.item()}"
    return ""


def turn_check(m: int, n: int) -> str:
    """One operand, and two."""
    codes = [torch.randint(0, 256, shape, device="cuda").to(torch.uint8) for shape in ((m, n), (n, m))]
    turned = [Guarded(*each.t().shape, torch.uint8) for each in codes]
    for count in (1, 2):
        transposes([(each, to.matrix) for each, to in zip(codes[:count], turned[:count])])()
        for at, (each, to) in enumerate(zip(codes, turned)):
            if not (to.is_intact() if at < count else to.is_untouched()):
                return f"transpose_codes {m}x{n}: wrote what it should not"
            if at < count and not torch.equal(to.matrix, each.t()):
                return f"transpose_codes {m}x{n}: {int((to.matrix != each.t()).sum())} of operand {at + 1} are wrong"
    return ""


def checks(rounds: int) -> int:
    """How many failed."""
    random.seed(3)
    shapes = [(1, 256), (3, 512), (5, 768), (7, 16384), (100, 8192), (33, 4352), (2048, 2048), (1025, 1024)]
    for _ in range(rounds):
        shapes.append((random.randint(1, 2000), BLOCK * random.randint(1, 24)))
    wants, results = [(True, True), (True, False), (False, True)], []
    for index, (m, n) in enumerate(shapes):
        for want in wants if index < 8 else [random.choice(wants)]:
            results.append(forward_check(m, n, want))
            results.append(backward_check(m, n, want))
        results.append(static_check(m, n))
        results.append(static_check(16 * -(-m // 16), n))
        results.append(cast_check([(random.randint(1, 40) * random.choice([1, 16]), 8 * random.randint(1, 200))
                                   for _ in range(index % 4 + 1)]))  # fmt: skip
        results.append(turn_check(m, n))
        results.append(turn_check(random.randint(1, 500), random.randint(1, 500)))
    return tell(results)


def measure(m: int, n: int, rounds: int) -> dict:
    """Microseconds and bytes of each."""
    z, dh = inputs(m, n)
    h, dz, codes = torch.empty_like(z), torch.empty_like(z), torch.empty(m, n, dtype=torch.float8_e4m3fn, device="cuda")
    turned = torch.empty(n, m, dtype=torch.float8_e4m3fn, device="cuda")
    rows, saturated = torch.empty(m, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    # Nothing saturates, as in training.
    wide = torch.full((1,), 2.0**8, device="cuda")
    scale, amax = torch.full((1,), H_SCALE, device="cuda"), torch.zeros(1, device="cuda")
    ways = {
        "copy": (4, lambda: h.copy_(z)),
        "h": (4, norm_forward(z, h, None, None)),
        "h codes": (3, norm_forward(z, None, codes, scale)),
        "h both": (5, norm_forward(z, h, codes, scale)),
        "dz": (6, norm_backward(dh, z, dz, None, None)),
        "dz rows": (7, norm_backward(dh, z, dz, codes, rows)),
        "dz static": (5, gradient_codes(dh, z, None, codes, None, wide, saturated, amax)),
        "and turned": (6, gradient_codes(dh, z, None, codes, turned, wide, saturated, amax)),
        "cast both": (4, static_casts([(z, codes, turned, wide, saturated, amax)])),
        "turn": (2, transposes([(codes, turned)])),
    }
    graphs = {name: graph([run]) for name, (_, run) in ways.items()}
    us = cold_times({name: made.replay for name, made in graphs.items()}, rounds)
    return {name: {"us": us[name], "bytes": size * m * n} for name, (size, _) in ways.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=60, help="random shapes that are checked first")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    failed, kept = checks(arguments.checks), []
    for m, n in SHAPES:
        row = measure(m, n, arguments.rounds)
        kept.append({"m": m, "n": n, **row})
        rate = {name: way["bytes"] / way["us"] / 1e6 for name, way in row.items()}
        text = "  ".join(f"{name} {way['us']:.1f} us ({rate[name] / rate['copy']:.0%})" for name, way in row.items())
        print(f"{m:6} {n:5}  {text}  (of a copy's {rate['copy']:.2f} TB/s)", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(kept))
    if failed:
        raise SystemExit(f"{failed} checks failed")


if __name__ == "__main__":
    main()
