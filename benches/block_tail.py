"""BlockNorm + hard swish by itself, forward and backward: kernels/cu/block_norm_hard_swish.cu and block_backward.cu;
and codes transposed, transpose_codes.cu.

    python benches/block_tail.py [--checks 60] [--rounds 30] [--out FILE.json]

Takes a GPU and PyTorch; gives, after the checks, median microseconds with a cold L2 and the share of a copy's bandwidth
(read and written bytes a second of torch's copy_, the same run). Checks: values against FP64, half a unit of the last
place and FP32's rounding allowed; codes of dz bit for bit those of a cast of dz, with their row scales and the count of
saturated elements; poison and guards around each output; outputs left out in turns; rows of 256 to 16,384; ragged codes
transposed. Exit 1, after the figures, where one failed.
"""

import argparse
import itertools
import json
import math
import pathlib
import random

import torch
import torch.nn.functional as F

import fp8_gemm as fp8
from blocks import (BLOCK, EPS, H_SCALE, Guarded, block_norm, cold_times, graph, norm_backward, norm_forward, tell,
                    transposes)  # fmt: skip
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


def backward_check(m: int, n: int, wants: tuple, is_static: bool) -> str:
    z, dh = inputs(m, n)
    exact, clear = gradient(z, dh)
    dz, codes = Guarded(m, n, torch.bfloat16), Guarded(m, n, torch.float8_e4m3fn)
    rows, saturated = Guarded(1, m, torch.float32), torch.full((1,), 7, dtype=torch.int64, device="cuda")
    magnitude = exact.abs().max().item()
    # So that some saturate.
    scale = torch.full((1,), 2.0 ** math.floor(math.log2(magnitude / 448) - 1), device="cuda") if is_static else None
    to = (dz.matrix if wants[0] else None, codes.matrix if wants[1] else None)
    norm_backward(dh, z, *to, rows.matrix, scale, saturated)()
    where = f"block_backward {m}x{n} {wants}{' static' if is_static else ''}"
    wants_rows = wants[1] and not is_static
    for output, is_wanted in zip((dz, codes, rows), (*wants, wants_rows)):
        if not (output.is_intact() if is_wanted else output.is_untouched()):
            return f"{where}: wrote what it should not"
    if wants[0]:
        got = dz.matrix.double().view(-1, BLOCK)
        allowed = exact.abs() * 0.00392 + 4e-6 * exact.abs().amax(1, keepdim=True)
        off = ((got - exact).abs() > allowed) & clear[:, None]
        if off.any() or not got.isfinite().all():
            return f"{where}: {int(off.sum())} of dz are off, relative L2 {fp8.relative_l2(got, exact):.3e}"
    if wants[1]:
        # Of the gradient in BF16, stored or not.
        if not wants[0]:
            kept = torch.empty_like(z)
            norm_backward(dh, z, kept, None, None, None, None)()
        values = (dz.matrix if wants[0] else kept).float()
        scales = scale if is_static else (values.abs().amax(1) / torch.full((), 448.0, device="cuda")).clamp(min=1e-12)
        expected = e4m3(values / (scales if is_static else scales[:, None]))
        if wants_rows and not torch.equal(rows.matrix[0], scales):
            return f"{where}: {int((rows.matrix[0] != scales).sum())} row scales differ"
        if not torch.equal(expected.view(torch.uint8), codes.matrix.view(torch.uint8)):
            return f"{where}: {int((expected.view(torch.uint8) != codes.matrix.view(torch.uint8)).sum())} codes differ"
        count = int(((values / scales).abs() > 448).sum()) if is_static else 0
        if int(saturated) - 7 != count:
            return f"{where}: {int(saturated) - 7} saturated, {count} expected"
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
        every = list(itertools.product(wants, (False, True)))
        for want, is_static in every if index < 8 else [random.choice(every)]:
            results.append(forward_check(m, n, want))
            results.append(backward_check(m, n, want, is_static))
        results.append(turn_check(m, n))
        results.append(turn_check(random.randint(1, 500), random.randint(1, 500)))
    return tell(results)


def measure(m: int, n: int, rounds: int) -> dict:
    """Microseconds and bytes of each."""
    z, dh = inputs(m, n)
    h, dz, codes = torch.empty_like(z), torch.empty_like(z), torch.empty(m, n, dtype=torch.float8_e4m3fn, device="cuda")
    turned = torch.empty(n, m, dtype=torch.float8_e4m3fn, device="cuda")
    rows, saturated = torch.empty(m, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    scale = torch.full((1,), H_SCALE, device="cuda")
    ways = {
        "copy": (4, lambda: h.copy_(z)),
        "h": (4, norm_forward(z, h, None, None)),
        "h codes": (3, norm_forward(z, None, codes, scale)),
        "h both": (5, norm_forward(z, h, codes, scale)),
        "dz": (6, norm_backward(dh, z, dz, None, None, None, None)),
        "dz rows": (7, norm_backward(dh, z, dz, codes, rows, None, None)),
        "dz static": (5, norm_backward(dh, z, None, codes, None, scale, saturated)),
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
