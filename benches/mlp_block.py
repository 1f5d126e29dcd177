"""Three blocks of linear + BlockNorm + hard swish in FP8, one kernel each, against PyTorch compiled in BF16.

    python benches/mlp_block.py [--checks 60] [--peers original,mods] [--out FILE.json]

Takes a GPU of compute capability 9.0 and PyTorch; gives, after the checks, median microseconds of a forward pass of
seven three-block perceptrons:

    original   linear with bias, LayerNorm, SiLU; BF16, torch.compile max-autotune
    mods       linear without bias, BlockNorm, hard swish; likewise
    gemms      LoKA's three bare FP8 GEMMs, operands already cast
    blocks     LoKA's three fused blocks: x in BF16 cast on its way in, FP8 between them, BF16 out

all by triton.testing.do_bench, which flushes the L2, on CUDA graphs. Checks: every kernel on ragged and random shapes
against FP64 of the same codes; the chain's error against FP64 of the unquantised values no more than 1.05 times that
of the same recipe in separate steps.
"""

import argparse
import ctypes as C
import json
import math
import pathlib
import random

import torch
import torch.nn.functional as F
from torch import nn

import fp8_gemm as fp8
import static_gemm as static
from fp8_gemm import GUARD, SMS, TILE_K, Y_BOX, check, cuda
from static_gemm import address, e4m3, launcher

BLOCK, H_SCALE = 256, 2.0**-4
"""|BlockNorm| <= 16, and 448 * 2^-4 = 28."""
CHAINS = [(1024, 1024, 1024), (1024, 2048, 2048), (2048, 2048, 2048), (6144, 2048, 2048), (12288, 2048, 2048),
          (1024, 4096, 4096), (6144, 4096, 4096)]  # fmt: skip


class Block:
    """One kernel, sized as in kernels/src/gemm/block.rs."""

    def __init__(self, x_type: str, h_type: str, rows: int) -> None:
        self.entry, self.rows = f"sm90_{x_type}_block_{h_type}_{rows}x256", rows
        self.is_codes, self.gives_codes = x_type == "e4m3", h_type == "e4m3"
        stages = 4 if self.is_codes or rows == 64 else 3
        x_bytes = rows * TILE_K * (1 if self.is_codes else 2)
        squares = 0 if rows == 128 else 1024 if self.is_codes else 512
        self.shared = stages * (x_bytes + BLOCK * TILE_K + 32) + 8 * 2 * 16 * 64 * 2 + 8 * BLOCK + squares
        self.function = fp8.load(self.entry)
        check(cuda.cuFuncSetAttribute(self.function, 8, self.shared), "shared memory")

    def units(self, m: int, n: int) -> int:
        return -(-m // self.rows) * (n // BLOCK)

    def suits(self, m: int, n: int, k: int) -> bool:
        return self.rows == 128 or self.is_codes or (k > TILE_K and self.units(m, n) <= SMS)

    def prepare(self, x, w, h, x_scale, w_scales, h_scale, saturated):
        (m, k), n = x.shape, w.shape[0]
        group = max(1, round(math.sqrt(SMS * BLOCK / self.rows)))
        shape = static.Shape(m, n, k, -(-m // self.rows), n // BLOCK, group, 0, 1, 0)
        h_box = (16, 128) if self.gives_codes else Y_BOX
        arguments = [fp8.tensor_map(x, self.rows, TILE_K if self.is_codes else 64), fp8.tensor_map(w, BLOCK, TILE_K),
                     fp8.tensor_map(h, *h_box), address(x_scale), address(w_scales), address(h_scale),
                     address(saturated), shape]  # fmt: skip
        return launcher(self.function, min(self.units(m, n), SMS), 384, self.shared, arguments)


def casts_first(m: int, n: int, k: int) -> bool:
    """As in kernels/src/gemm/block.rs."""
    waves = -(-(-(-m // 128) * (n // BLOCK)) // SMS)
    return waves * -(-k // TILE_K) * 0.25 > 2.5 + 3 * m * k / 3.7e6


def block_norm(y):
    return (y.view(-1, BLOCK) * torch.rsqrt(y.view(-1, BLOCK).square().mean(1, keepdim=True) + 2.0**-23)).view(y.shape)


def one_check(block: Block, m: int, n: int, k: int) -> str:
    """Why a kernel is wrong, or nothing."""
    x = torch.randn(m, k, device="cuda").bfloat16()
    x_scale, h_scale = torch.full((1,), static.SCALE, device="cuda"), torch.full((1,), H_SCALE, device="cuda")
    (w, w_scales), saturated = fp8.codes(n, k), torch.zeros(1, dtype=torch.int64, device="cuda")
    codes = e4m3(x.float() / static.SCALE)
    exact = codes.double() @ w.double().t() * static.SCALE * w_scales.double()[None, :]
    exact = F.hardswish(block_norm(exact))
    kind = torch.float8_e4m3fn if block.gives_codes else torch.bfloat16
    size = 1 if block.gives_codes else 2
    flat = torch.full(((m * n + 2 * GUARD) * size,), -1, dtype=torch.int8, device="cuda")
    h = flat[GUARD * size : (GUARD + m * n) * size].view(kind).view(m, n)
    block.prepare(codes if block.is_codes else x, w, h, x_scale, w_scales, h_scale, saturated)()
    where = f"{block.entry} {m}x{n}x{k}"
    if (flat[: GUARD * size] != -1).any() or (flat[(GUARD + m * n) * size :] != -1).any():
        return f"{where}: wrote beyond its output"
    if block.gives_codes:
        got, allowed = h.double() * H_SCALE, fp8.relative_l2(e4m3(exact.float() / H_SCALE).double() * H_SCALE, exact)
    else:
        got, allowed = h, fp8.relative_l2(exact.bfloat16(), exact)
    error = fp8.relative_l2(got, exact)
    # The tensor cores keep 13 bits of sums.
    if not error <= 1.05 * allowed + 1.5e-3:
        return f"{where}: relative L2 {error:.3e}, {allowed:.3e} of the type alone, {int(got.isnan().sum())} NaN"
    expected = 0 if block.is_codes else int(((x.float() / static.SCALE).abs() > 448).sum())
    if int(saturated) != expected:
        return f"{where}: {int(saturated)} saturated, {expected} expected"
    return ""


def checks(blocks: list, rounds: int) -> None:
    random.seed(2)
    shapes = [(1, 256, 144), (100, 512, 272), (129, 256, 400), (1024, 1024, 1024), (2048, 2048, 2048)]
    for _ in range(rounds):
        shapes.append((random.randint(1, 3000), 256 * random.randint(1, 10), 16 * random.randint(1, 250)))
    done = 0
    for m, n, k in shapes:
        for block in blocks:
            if block.suits(m, n, k):
                wrong = one_check(block, m, n, k)
                if wrong:
                    raise SystemExit(wrong)
                done += 1
    print(f"{done} checks passed", flush=True)


class Chain:
    """Three blocks on one x; weights as a linear is initialised."""

    def __init__(self, blocks: list, plain: list, m: int, k: int, n: int) -> None:
        self.x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        sizes = [k, n, n]
        self.weights = [((torch.rand(n, d, device="cuda") * 2 - 1) / math.sqrt(d)).bfloat16() for d in sizes]
        scales = [(w.float().abs().amax(1) / 448).clamp(min=1e-12) for w in self.weights]
        self.codes = [e4m3(w.float() / s[:, None]) for w, s in zip(self.weights, scales)]
        self.scales = [s.contiguous() for s in scales]
        self.x_scale, self.h_scale = (torch.full((1,), s, device="cuda") for s in (static.SCALE, H_SCALE))
        self.saturated = torch.zeros(1, dtype=torch.int64, device="cuda")
        empty = lambda kind: torch.empty(m, n, dtype=kind, device="cuda")
        self.h = [empty(torch.float8_e4m3fn), empty(torch.float8_e4m3fn), empty(torch.bfloat16)]
        self.x_codes, self.y = e4m3(self.x.float() / static.SCALE), empty(torch.bfloat16)
        self.cast = static.cast_static(self.x, self.x_codes, self.x_scale, self.saturated)
        xs = {"cast": self.x, "codes": self.x_codes, 1: self.h[0], 2: self.h[1]}
        ways = {"cast": ("bf16", "e4m3"), "codes": ("e4m3", "e4m3"), 1: ("e4m3", "e4m3"), 2: ("e4m3", "bf16")}
        self.entries, self.ways = {}, {}
        for name, (x_type, h_type) in ways.items():
            at = name if name in (1, 2) else 0
            named = [b for b in blocks if b.entry.startswith(f"sm90_{x_type}_block_{h_type}_")]
            low = [b for b in named if b.rows == 64 and b.suits(m, n, sizes[at]) and b.units(m, n) <= SMS]
            block = (low or [b for b in named if b.rows == 128])[0]
            self.entries[name] = block.entry
            self.ways[name] = block.prepare(xs[name], self.codes[at], self.h[at], self.h_scale if at else self.x_scale,
                                            self.scales[at], self.h_scale, self.saturated)  # fmt: skip
        self.casts_first = casts_first(m, n, k)
        first = [self.cast, self.ways["codes"]] if self.casts_first else [self.ways["cast"]]
        self.runs = [*first, self.ways[1], self.ways[2]]
        # The bare products, and the same recipe step by step.
        self.spread = [s.expand(m).contiguous() for s in (self.x_scale, self.h_scale, self.h_scale)]
        self.bare = []
        for at, x in enumerate([self.x_codes, self.h[0], self.h[1]]):
            best = min(plain, key=lambda tiling: tiling.expected(m, n, x.shape[1]))
            self.bare.append(best.prepare(x, self.codes[at], self.y, self.spread[at], self.scales[at], True))

    def errors(self) -> tuple:
        """Relative L2 of the fused chain and of the separate steps."""
        exact = self.x.double()
        for w in self.weights:
            exact = F.hardswish(block_norm(exact @ w.double().t()))
        for run in self.runs:
            run()
        fused = fp8.relative_l2(self.h[2], exact)
        kept = self.h[0].clone(), self.h[1].clone()
        for at in range(3):
            self.bare[at]()
            y = F.hardswish(F.rms_norm(self.y.view(-1, BLOCK), (BLOCK,), eps=2.0**-23).view(self.y.shape))
            if at < 2:
                self.h[at].copy_(e4m3(y.float() / H_SCALE))
        for at in range(2):
            self.h[at].copy_(kept[at])
        return fused, fp8.relative_l2(y, exact)


def median_us(call) -> float:
    import triton

    return triton.testing.do_bench(call, warmup=20, rep=80, return_mode="median") * 1e3


def graph(runs: list):
    for run in runs:
        run()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for run in runs:
            run()
    return made


class BlockNorm(nn.Module):
    def forward(self, y):
        return F.rms_norm(y.view(-1, BLOCK), (BLOCK,)).view(y.shape)


def peer(k: int, n: int, is_modified: bool):
    layers = []
    for d in (k, n, n):
        layers.append(nn.Linear(d, n, bias=not is_modified))
        layers += [BlockNorm(), nn.Hardswish()] if is_modified else [nn.LayerNorm(n), nn.SiLU()]
    return torch.compile(nn.Sequential(*layers).cuda().bfloat16().eval(), mode="max-autotune")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=60, help="random shapes that are checked first")
    parser.add_argument("--peers", default="", help="PyTorch compiled, too: original,mods (minutes)")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    blocks = [Block(x, h, rows) for x in ("bf16", "e4m3") for h in ("bf16", "e4m3") for rows in (64, 128)]
    plain = [tiling for tiling in fp8.tilings() if tiling.fast and not tiling.is_e5m2]
    checks(blocks, arguments.checks)
    kept = []
    for m, k, n in CHAINS:
        chain, us = Chain(blocks, plain, m, k, n), {}
        fused, separate = chain.errors()
        if not fused <= 1.05 * separate:
            raise SystemExit(f"chain {m}x{k}x{n}: relative L2 {fused:.4f}, in separate steps {separate:.4f}")
        calls = {"gemms": graph(chain.bare).replay, "blocks": graph(chain.runs).replay}
        calls["1"] = graph([chain.ways["cast"]]).replay
        calls["cast, 1"] = graph([chain.cast, chain.ways["codes"]]).replay
        calls["2"], calls["3"] = graph([chain.ways[1]]).replay, graph([chain.ways[2]]).replay
        for name in filter(None, arguments.peers.split(",")):
            torch._dynamo.reset()
            compiled = peer(k, n, name == "mods")
            with torch.no_grad():
                for _ in range(5):
                    compiled(chain.x)
                us[name] = median_us(lambda: compiled(chain.x))
        # Twice, and the second counts: clocks have settled.
        for _ in range(2):
            for name, call in calls.items():
                us[name] = median_us(call)
        kept.append({"m": m, "k": k, "n": n, "us": us, "entries": list(chain.entries.values()),
                     "casts_first": chain.casts_first, "rel_l2": fused, "rel_l2_separate": separate})  # fmt: skip
        text = "  ".join(f"{name} {value:.1f}" for name, value in us.items())
        print(f"{m:6} {k:5} {n:5}  {text}  rel L2 {fused:.4f} / {separate:.4f}", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(kept))
    mean = lambda values: math.exp(sum(map(math.log, values)) / len(values))
    for name in ("original", "mods", "gemms"):
        shares = [row["us"][name] / row["us"]["blocks"] for row in kept if name in row["us"]]
        if shares:
            print(f"{name} over blocks: {mean(shares):.3f} (geomean), least {min(shares):.3f}")


if __name__ == "__main__":
    main()
