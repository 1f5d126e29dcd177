"""Three blocks of linear + BlockNorm + hard swish in FP8, one kernel each, against PyTorch compiled in BF16.

    python benches/mlp_block.py [--checks 60] [--peers original,mods,layers] [--chains 7] [--budget 300] [--out FILE.json]

Takes a GPU of compute capability 9.0 and PyTorch; gives, after the checks, median microseconds of a forward pass of
seven three-block perceptrons, the one that takes least time first:

    original   linear with bias, LayerNorm, SiLU; BF16, torch.compile max-autotune
    mods       linear without bias, BlockNorm, hard swish; likewise
    layers     the original's LayerNorm and SiLU behind LoKA's bare FP8 GEMMs: one kernel of torch.compile each, which casts
               for the next one: what FP8 gives a model without the Mods
    gemms      LoKA's three bare FP8 GEMMs, operands already cast
    blocks     LoKA's three fused blocks: x in BF16 cast on its way in, FP8 between them, BF16 out

each a CUDA graph of its own, all of a line interleaved round by round, the L2 flushed before every run. Checks: every
kernel on ragged and random shapes against FP64 of the same codes; the chain's error against FP64 of the unquantised
values no more than 1.05 times that of the same recipe in separate steps. Exit 1, after the figures, where one failed.
"""

import argparse
import json
import math
import pathlib
import random
import time
import traceback

import torch
import torch.nn.functional as F

import fp8_gemm as fp8
import static_gemm as static
from blocks import (BLOCK, CHAINS, H_SCALE, Block, Guarded, block_norm, captured, casts_first, chosen, cold_times,
                    compiled, geomean, graph, perceptron, tell)  # fmt: skip
from static_gemm import e4m3


def one_check(block: Block, m: int, n: int, k: int, has_bias: bool) -> str:
    """Why a kernel is wrong, or nothing."""
    x = torch.randn(m, k, device="cuda").bfloat16()
    x_scale, h_scale = torch.full((1,), static.SCALE, device="cuda"), torch.full((1,), H_SCALE, device="cuda")
    (w, w_scales), saturated = fp8.codes(n, k), torch.zeros(1, dtype=torch.int64, device="cuda")
    codes = e4m3(x.float() / static.SCALE)
    exact = codes.double() @ w.double().t() * static.SCALE * w_scales.double()[None, :]
    bias = (exact.std() * torch.randn(n, device="cuda")).bfloat16() if has_bias else None
    exact = F.hardswish(block_norm(exact + bias.double() if has_bias else exact))
    h = Guarded(m, n, torch.float8_e4m3fn if block.gives_codes else torch.bfloat16)
    block.prepare(codes if block.is_codes else x, w, h.matrix, x_scale, w_scales, h_scale, saturated, bias)()
    where = f"{block.entry} {m}x{n}x{k}" + (" with a bias" if has_bias else "")
    if not h.is_intact():
        return f"{where}: wrote beyond its output"
    if block.gives_codes:
        got = h.matrix.double() * H_SCALE
        allowed = fp8.relative_l2(e4m3(exact.float() / H_SCALE).double() * H_SCALE, exact)
    else:
        got, allowed = h.matrix, fp8.relative_l2(exact.bfloat16(), exact)
    error = fp8.relative_l2(got, exact)
    # The tensor cores keep 13 bits of sums.
    if not error <= 1.05 * allowed + 1.5e-3:
        return f"{where}: relative L2 {error:.3e}, {allowed:.3e} of the type alone, {int(got.isnan().sum())} NaN"
    expected = 0 if block.is_codes else int(((x.float() / static.SCALE).abs() > 448).sum())
    if int(saturated) != expected:
        return f"{where}: {int(saturated)} saturated, {expected} expected"
    return ""


def checks(blocks: list, rounds: int) -> int:
    """How many failed."""
    random.seed(2)
    shapes = [(1, 256, 144), (100, 512, 272), (129, 256, 400), (1024, 1024, 1024), (2048, 2048, 2048)]
    for _ in range(rounds):
        shapes.append((random.randint(1, 3000), 256 * random.randint(1, 10), 16 * random.randint(1, 250)))
    return tell(one_check(block, m, n, k, index % 3 == 1)
                for index, (m, n, k) in enumerate(shapes) for block in blocks if block.suits(m, n, k))  # fmt: skip


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
            block = chosen(blocks, x_type, h_type, m, n, sizes[at])
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
            suited = [tiling for tiling in plain if tiling.suits(m, n, x.shape[1])]
            best = min(suited, key=lambda tiling: tiling.expected(m, n, x.shape[1]))
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


def peer(name: str, x, k: int, n: int):
    """Replays the model's forward pass, compiled."""
    call = compiled(perceptron(k, n, name == "mods").eval())

    @torch.no_grad()
    def forward() -> None:
        call(x)

    return captured(forward, call)


def layers(chain: Chain, n: int):
    """Replays the forward pass whose norms go over whole rows."""
    norm = torch.nn.LayerNorm(n, device="cuda")
    inverse = 1.0 / chain.h_scale

    def tail(y, h) -> None:
        found = F.silu(F.layer_norm(y.float(), (n,), norm.weight, norm.bias))
        gives_codes = h.dtype == torch.float8_e4m3fn
        # Into h itself: the GEMM behind has its address.
        h.copy_((found * inverse).clamp(-448, 448).to(h.dtype) if gives_codes else found.to(h.dtype))

    call = compiled(tail)

    @torch.no_grad()
    def forward() -> None:
        chain.cast()
        for bare, h in zip(chain.bare, chain.h):
            bare()
            call(chain.y, h)

    return captured(forward, call, norm)


def measure(blocks: list, plain: list, shape: tuple, peers: list, rounds: int) -> dict:
    m, k, n = shape
    chain = Chain(blocks, plain, m, k, n)
    fused, separate = chain.errors()
    row = {"m": m, "k": k, "n": n, "entries": list(chain.entries.values()), "casts_first": chain.casts_first,
           "rel_l2": fused, "rel_l2_separate": separate, "us": {}}  # fmt: skip
    # A graph does not keep what its kernels point to: `chain` stays until the times are taken.
    graphs = {"gemms": graph(chain.bare), "blocks": graph(chain.runs), "1": graph([chain.ways["cast"]]),
              "cast, 1": graph([chain.cast, chain.ways["codes"]]), "2": graph([chain.ways[1]]),
              "3": graph([chain.ways[2]])}  # fmt: skip
    start = time.monotonic()
    for name in peers:
        try:
            graphs[name] = layers(chain, n) if name == "layers" else peer(name, chain.x, k, n)
        except Exception:
            # The others are measured all the same.
            print(f"{name} {shape} was not compiled:\n{traceback.format_exc(limit=3)}", flush=True)
    row["compile_s"] = time.monotonic() - start
    row["us"] = cold_times({name: made.replay for name, made in graphs.items()}, rounds)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=60, help="random shapes that are checked first")
    parser.add_argument("--peers", default="", help="PyTorch compiled, too: original,mods,layers (minutes)")
    parser.add_argument("--chains", type=int, default=len(CHAINS), help="so many, the fastest first")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which no chain is begun")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    start = time.monotonic()
    blocks = [Block(x, h, rows) for x in ("bf16", "e4m3") for h in ("bf16", "e4m3") for rows in (64, 128)]
    plain = [tiling for tiling in fp8.tilings() if tiling.fast and not tiling.is_e5m2]
    failed = checks(blocks, arguments.checks)
    peers, kept = list(filter(None, arguments.peers.split(","))), []
    for shape in CHAINS[: arguments.chains]:
        if time.monotonic() - start > arguments.budget:
            print(f"{shape} and later ones left out: {arguments.budget:.0f} s are over", flush=True)
            break
        row = measure(blocks, plain, shape, peers, arguments.rounds)
        kept.append(row)
        text = "  ".join(f"{name} {value:.1f}" for name, value in row["us"].items())
        errors = f"rel L2 {row['rel_l2']:.4f} / {row['rel_l2_separate']:.4f}"
        print(f"{row['m']:6} {row['k']:5} {row['n']:5}  {text}  {errors}  ({row['compile_s']:.0f} s)", flush=True)
        if not row["rel_l2"] <= 1.05 * row["rel_l2_separate"]:
            failed += 1
            print(f"FAILED: chain {shape}: more than 1.05 times the error of separate steps", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(kept))
    for name in ("original", "mods", "layers", "gemms"):
        shares = [row["us"][name] / row["us"]["blocks"] for row in kept if name in row["us"]]
        if shares:
            print(f"{name} over blocks: {geomean(shares):.3f} (geomean of {len(shares)}), least {min(shares):.3f}")
    if failed:
        raise SystemExit(f"{failed} checks failed")


if __name__ == "__main__":
    main()
