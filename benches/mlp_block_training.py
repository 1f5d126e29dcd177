"""Forward and backward of three blocks of linear + BlockNorm + hard swish in FP8 against PyTorch compiled in BF16.

    python benches/mlp_block_training.py [--checks 40] [--peers mods] [--skip 0] [--chains 7] [--budget 300] [--out FILE]

Takes a GPU of compute capability 9.0 and PyTorch; gives, after the checks, median microseconds of one step, from x and
the gradient of the last output to the output, the gradient of x and those of the weights, by:

    mods       linear without bias, BlockNorm, hard swish in BF16 (torch.nn), torch.compile max-autotune
    bf16 wgrad LoKA: weights cast by rows and, transposed, by columns; fused blocks that store z, h and its codes;
               block_backward to BF16 and to codes by rows; dgrad by the FP8 GEMM; wgrad in BF16 by torch.mm
    fp8 wgrad  the same with wgrad by the FP8 GEMM, gradient and input cast by columns
    static     one scale a tensor, a power of two known beforehand: of x, weights and gradients (here from a step
               before, with a factor of two to spare). One launch casts x and all weights, both layouts; blocks store
               z and codes, block_backward_static the gradient's codes and these transposed; largest magnitudes are
               noted for the next step's scales; wgrad takes both operands transposed

and the first one's parts. Each a CUDA graph of its own, all of a line interleaved round by round, the L2 flushed before
every run; results printed and written line by line. Checks: kernels that store all against those that store one, bit
for bit; outputs and gradients against FP64 autograd of the unquantised model, their relative L2 no more than 1.05 times
that of the same recipe in separate steps. Exit 1, after the figures, where one failed.
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
from blocks import (BLOCK, CHAINS, EPS, H_SCALE, Block, Guarded, block_norm, captured, casts_first, chosen, cold_times,
                    column_casts, column_operand, compiled, first_pass, geomean, gradient_codes, graph, norm_backward,
                    perceptron, row_operand, second_pass, static_casts, tell, transposes)  # fmt: skip
from static_gemm import e4m3

E4M3, BF16 = torch.float8_e4m3fn, torch.bfloat16
VARIANTS = ("bf16 wgrad", "fp8 wgrad", "static")


def one_check(blocks: list, x_type: str, rows: int, m: int, n: int, k: int, has_bias: bool) -> str:
    """What a kernel that stores all stores, against those that store one; why it is wrong, or nothing."""
    of = {kind: next(b for b in blocks if b.entry == f"sm90_{x_type}_block_{kind}_{rows}x256")
          for kind in ("bf16", "e4m3", "all")}  # fmt: skip
    if not of["all"].suits(m, n, k):
        return ""
    x_scale, h_scale = torch.full((1,), static.SCALE, device="cuda"), torch.full((1,), H_SCALE, device="cuda")
    (w, w_scales), saturated = fp8.codes(n, k), torch.zeros(1, dtype=torch.int64, device="cuda")
    x = torch.randn(m, k, device="cuda").bfloat16()
    codes = e4m3(x.float() / static.SCALE)
    exact = codes.double() @ w.double().t() * static.SCALE * w_scales.double()[None, :]
    bias = (exact.std() * torch.randn(n, device="cuda")).bfloat16() if has_bias else None
    exact = exact + bias.double() if has_bias else exact
    given = (codes if x_type == "e4m3" else x, w)
    scales = (x_scale, w_scales, h_scale, saturated, bias)
    one = {"h": torch.empty(m, n, dtype=BF16, device="cuda"), "codes": torch.empty(m, n, dtype=E4M3, device="cuda")}
    of["bf16"].prepare(*given, one["h"], *scales)()
    of["e4m3"].prepare(*given, one["codes"], *scales)()
    for wants in ("z h codes", "z codes", "z h", "codes", "h", "z"):
        outputs = {name: Guarded(m, n, E4M3 if name == "codes" else BF16) for name in ("z", "h", "codes")}
        z, h, h_codes = (each.matrix if name in wants.split() else None for name, each in outputs.items())
        of["all"].prepare(*given, h, *scales, z, h_codes)()
        where = f"{of['all'].entry} {m}x{n}x{k} storing {wants}{' with a bias' if has_bias else ''}"
        for name, output in outputs.items():
            if not (output.is_intact() if name in wants.split() else output.is_untouched()):
                return f"{where}: wrote what it should not of {name}"
        for name, got in (("h", h), ("codes", h_codes)):
            if got is not None and not torch.equal(got.view(torch.uint8), one[name].view(torch.uint8)):
                return f"{where}: {name} is not what the kernel that stores it alone gives"
        if z is not None:
            error, allowed = fp8.relative_l2(z, exact), fp8.relative_l2(exact.bfloat16(), exact)
            if not error <= 1.05 * allowed + 1.5e-3:
                return f"{where}: z has relative L2 {error:.3e}, {allowed:.3e} of the type alone"
    return ""


def checks(blocks: list, rounds: int) -> int:
    """How many failed."""
    random.seed(5)
    shapes = [(1, 256, 144), (129, 512, 400), (1024, 1024, 1024), (3000, 2048, 272)]
    for _ in range(rounds):
        shapes.append((random.randint(1, 3000), 256 * random.randint(1, 8), 16 * random.randint(1, 150)))
    kinds = (("bf16", 128), ("bf16", 64), ("e4m3", 128), ("e4m3", 64))
    return tell(one_check(blocks, x_type, rows, m, n, k, index % 3 == 1)
                for index, (m, n, k) in enumerate(shapes) for x_type, rows in kinds)  # fmt: skip


class Layer:
    """One block's weight, what it stores, and the launches of a step."""

    def __init__(self, blocks: list, plain: list, x, x_codes, x_scale, n: int, is_last: bool, saturated,
                 reads_bf16: bool) -> None:  # fmt: skip
        (m, k), empty = x.shape, lambda rows, cols, kind: torch.empty(rows, cols, dtype=kind, device="cuda")
        ones = lambda count: torch.empty(count, device="cuda")
        self.x, self.w = x, ((torch.rand(n, k, device="cuda") * 2 - 1) / math.sqrt(k)).bfloat16()
        self.w_codes, self.w_scales = empty(n, k, E4M3), ones(n)
        self.w_codes_t, self.w_scales_t = empty(k, n, E4M3), ones(k)
        # And by one scale: codes, codes transposed, the scale, what saturates, the largest magnitude.
        largest = torch.zeros(2, device="cuda")
        self.w_one = (empty(n, k, E4M3), empty(k, n, E4M3), ones(1), saturated, largest[:1])
        self.z, self.h = empty(m, n, BF16), empty(m, n, BF16)
        self.h_codes = None if is_last else empty(m, n, E4M3)
        self.h_scale, self.x_scale = torch.full((1,), H_SCALE, device="cuda"), x_scale
        block = chosen(blocks, "bf16" if reads_bf16 else "e4m3", "all", m, n, k)
        self.entry, scales = block.entry, (x_scale, self.w_scales, self.h_scale, saturated, None)
        outputs = (self.z, self.h_codes)
        self.forward = block.prepare(x if reads_bf16 else x_codes, self.w_codes, self.h, *scales, *outputs)
        # Of h, codes are enough, but at the end.
        block = chosen(blocks, "e4m3", "all", m, n, k)
        scales = (x_scale, self.w_one[2], self.h_scale, saturated, None)
        self.forward_static = block.prepare(x_codes, self.w_one[0], self.h if is_last else None, *scales, *outputs)
        # The gradients: of z, of x, of w.
        self.dz, self.dz_codes, self.dz_scales = empty(m, n, BF16), empty(m, n, E4M3), ones(m)
        self.dx, self.dw = empty(m, k, BF16), empty(n, k, BF16)
        best = lambda *sizes: min(
            (tiling for tiling in plain if tiling.suits(*sizes)), key=lambda tiling: tiling.expected(*sizes)
        )
        self.dgrad = best(m, k, n).prepare(self.dz_codes, self.w_codes_t, self.dx, self.dz_scales, self.w_scales_t,
                                           True)  # fmt: skip
        self.wgrad = lambda: torch.mm(self.dz.t(), self.x, out=self.dw)
        dz_t, dz_scales_t, x_t, x_scales_t = empty(n, m, E4M3), ones(n), empty(k, m, E4M3), ones(k)
        self.wgrad_casts = column_casts([(self.dz, dz_t, dz_scales_t), (x, x_t, x_scales_t)])
        self.wgrad_fp8 = best(n, k, m).prepare(dz_t, x_t, self.dw, dz_scales_t, x_scales_t, True)
        self.kept, self.saturated = (dz_t, dz_scales_t, x_t, x_scales_t), saturated
        self.dz_scale, self.dz_codes_t, self.dz_largest, self.x_codes_t = ones(1), dz_t, largest[1:2], x_t
        self.dgrad_static = best(m, k, n).prepare(self.dz_codes, self.w_one[1], self.dx, self.dz_scale, self.w_one[2],
                                                  False)  # fmt: skip
        self.x_codes = x_codes
        self.wgrad_static = best(n, k, m).prepare(dz_t, x_t, self.dw, self.dz_scale, x_scale, False)

    def calibrate(self) -> None:
        """The scales of dz and w, from those that are there."""
        for scale, values in ((self.dz_scale, self.dz), (self.w_one[2], self.w)):
            scale.fill_(2.0 ** math.ceil(math.log2(2 * values.float().abs().max().item() / 448)))

    def backward(self, dh) -> None:
        """The launches of block_backward, once it is known where dh lies."""
        to = (self.dz_codes, self.dz_codes_t, self.dz_scale, self.saturated, self.dz_largest)
        self.tail_static = gradient_codes(dh, self.z, None, *to)
        arguments = (dh, self.z, self.dz, self.dz_codes, self.dz_scales)
        self.tail = norm_backward(*arguments)
        # Behind work of PyTorch's, which may end in something else than a kernel.
        self.late_tail = norm_backward(*arguments, early=False)


class Step:
    """Three blocks on one x, forward and backward."""

    def __init__(self, blocks: list, plain: list, m: int, k: int, n: int) -> None:
        self.x = torch.randn(m, k, device="cuda", dtype=BF16)
        self.dy = torch.randn(m, n, device="cuda", dtype=BF16)
        self.x_scale = torch.full((1,), static.SCALE, device="cuda")
        self.saturated = torch.zeros(1, dtype=torch.int64, device="cuda")
        self.x_codes = torch.empty(m, k, dtype=E4M3, device="cuda")
        self.layers, given = [], (self.x, self.x_codes, self.x_scale)
        for at in range(3):
            reads_bf16 = at == 0 and not casts_first(m, n, k)
            layer = Layer(blocks, plain, *given, n, at == 2, self.saturated, reads_bf16)
            self.layers.append(layer)
            given = (layer.h, layer.h_codes, layer.h_scale)
        for at in range(3):
            self.layers[at].backward(self.dy if at == 2 else self.layers[at + 1].dx)
        first, second, third = self.layers
        # Two operands a launch: a weight's rows and its columns' amax; then two weights' columns.
        columns = [column_operand(layer.w, layer.w_codes_t, layer.w_scales_t) for layer in self.layers]
        rows = [row_operand(layer.w, layer.w_codes, layer.w_scales) for layer in self.layers]
        self.casts = [first_pass([row, column]) for row, column in zip(rows, columns)]
        self.casts += [second_pass(columns[:2]), second_pass(columns[2:])]
        x_codes_t, x_largest = first.x_codes_t, torch.zeros(1, device="cuda")
        operands = [(layer.w, *layer.w_one) for layer in self.layers]
        operands.append((self.x, self.x_codes, x_codes_t, self.x_scale, self.saturated, x_largest))
        self.casts_static = [static_casts(operands)]
        self.turns = [transposes([(layer.x_codes, layer.x_codes_t) for layer in (second, third)])]
        self.forward = [first.forward, second.forward, third.forward]
        x_cast = static.cast_static(self.x, self.x_codes, self.x_scale, self.saturated)
        if casts_first(m, n, k):
            self.forward.insert(0, x_cast)
        self.forward_static = [layer.forward_static for layer in self.layers]
        self.parts = {
            "casts": self.casts,
            "forward": self.forward,
            "tails": [layer.tail for layer in self.layers],
            "dgrads": [layer.dgrad for layer in self.layers],
            "wgrads": [layer.wgrad for layer in self.layers],
            "fp8 wgrads": [run for layer in self.layers for run in (*layer.wgrad_casts, layer.wgrad_fp8)],
            "static casts": self.casts_static,
            "static forward": self.forward_static,
            "static tails": [layer.tail_static for layer in self.layers],
            "static dgrads": [layer.dgrad_static for layer in self.layers],
            "static wgrads": [layer.wgrad_static for layer in self.layers],
            "turns": self.turns,
        }

    def runs(self, variant: str) -> list:
        if variant == "static":
            found = [*self.casts_static, *self.forward_static, *self.turns]
            for layer in reversed(self.layers):
                found += [layer.tail_static, layer.dgrad_static, layer.wgrad_static]
            return found
        found = [*self.casts, *self.forward]
        for layer in reversed(self.layers):
            if variant == "fp8 wgrad":
                found += [layer.tail, layer.dgrad, *layer.wgrad_casts, layer.wgrad_fp8]
            else:
                found += [layer.late_tail, layer.dgrad, layer.wgrad]
        return found

    def results(self) -> dict:
        """Copies of the output and the gradients."""
        first, second, third = self.layers
        found = {"y": third.h, "dx": first.dx, "dw1": first.dw, "dw2": second.dw, "dw3": third.dw}
        return {name: value.clone() for name, value in found.items()}

    def poison(self) -> None:
        for layer in self.layers:
            for to in (layer.z, layer.h, layer.dz, layer.dx, layer.dw, layer.dz_scales, layer.w_scales,
                       layer.w_scales_t):  # fmt: skip
                to.fill_(math.nan)
            codes = (layer.h_codes, layer.dz_codes, layer.w_codes, layer.w_codes_t, *layer.kept[::2], *layer.w_one[:2])
            for to in codes:
                if to is not None:
                    to.view(torch.uint8).fill_(0x7F)
        self.x_codes.view(torch.uint8).fill_(0x7F)

    def exact(self) -> dict:
        """By FP64 autograd of the unquantised model."""
        x, weights = self.x.double().requires_grad_(), [layer.w.double().requires_grad_() for layer in self.layers]
        y = x
        for w in weights:
            y = F.hardswish(block_norm(y @ w.t()))
        grads = torch.autograd.grad(y, [x, *weights], self.dy.double())
        return dict(zip(("y", "dx", "dw1", "dw2", "dw3"), (y.detach(), *grads)))

    def separate(self, variant: str) -> dict:
        """The same recipe in PyTorch's steps around the same products of codes, summed in FP64."""
        scaled = lambda x, scales: e4m3(x.float() / scales)
        by_rows = lambda x: (x.float().abs().amax(1, keepdim=True) / 448).clamp(min=1e-12)
        # Of a layer's weight, seen from either side.
        of_weight = lambda w, layer: layer.w_one[2].expand(w.shape[0], 1) if variant == "static" else by_rows(w)
        product = lambda a, a_scales, b, b_scales: (
            (a.double() * a_scales.double()) @ (b.double() * b_scales.double()).t()
        ).bfloat16()
        x, x_scales, kept = self.x, [static.SCALE, H_SCALE, H_SCALE], []
        for at, layer in enumerate(self.layers):
            scale, w_scales = x_scales[at], of_weight(layer.w, layer)
            codes = scaled(x, scale)
            z = product(codes, torch.full_like(w_scales[:1], scale), scaled(layer.w, w_scales), w_scales)
            z.requires_grad_()
            h = F.hardswish(F.rms_norm(z.view(-1, BLOCK), (BLOCK,), eps=EPS).view(z.shape))
            kept.append((x, z, h))
            x = h.detach()
        found, dh = {"y": x}, self.dy
        for at in (2, 1, 0):
            x, z, h = kept[at]
            (dz,) = torch.autograd.grad(h, z, dh)
            rows, columns = by_rows(dz), of_weight(self.layers[at].w.t(), self.layers[at])
            if variant == "static":
                rows = self.layers[at].dz_scale.view(1, 1)
                x_scale = torch.full_like(rows, x_scales[at])
                found[f"dw{at + 1}"] = product(scaled(dz, rows).t(), rows, scaled(x, x_scale).t(), x_scale)
            dh = product(scaled(dz, rows), rows, scaled(self.layers[at].w.t(), columns), columns)
            if variant == "fp8 wgrad":
                of_dz, of_x = by_rows(dz.t()), by_rows(x.t())
                found[f"dw{at + 1}"] = product(scaled(dz.t(), of_dz), of_dz, scaled(x.t(), of_x), of_x)
            elif variant == "bf16 wgrad":
                found[f"dw{at + 1}"] = torch.mm(dz.t(), x)
        return {**found, "dx": dh}


def errors(step: Step, shape: tuple) -> tuple:
    """Relative L2 by variant: of ours and of separate steps; and how many checks failed."""
    exact, found, failed = step.exact(), {}, 0
    for name in VARIANTS:
        if name == "static":
            for layer in step.layers:
                layer.calibrate()
        step.poison()
        for run in step.runs(name):
            run()
        ours, separate = step.results(), step.separate(name)
        found[name] = {of: [fp8.relative_l2(ours[of], exact[of]), fp8.relative_l2(separate[of], exact[of])]
                       for of in exact}  # fmt: skip
        for of, (error, allowed) in found[name].items():
            # Tensor cores keep 13 bits of sums; BF16's own rounding.
            if not error <= 1.05 * allowed + 1e-4:
                failed += 1
                print(f"FAILED: {shape} {name}: {of} has relative L2 {error:.4f}, {allowed:.4f} in separate steps")
    return found, failed


def peer(name: str, x, dy, k: int, n: int):
    """Replays a step of the model, compiled."""
    model = perceptron(k, n, name == "mods")
    call, x = compiled(model), x.detach().clone().requires_grad_()
    inputs = [x, *model.parameters()]
    return captured(lambda: torch.autograd.grad(call(x), inputs, dy), model)


def measure(blocks: list, plain: list, shape: tuple, peers: list, rounds: int) -> tuple:
    m, k, n = shape
    step = Step(blocks, plain, m, k, n)
    rel_l2, failed = errors(step, shape)
    row = {"m": m, "k": k, "n": n, "entries": [layer.entry for layer in step.layers], "rel_l2": rel_l2}
    # A graph does not keep what its kernels point to: `step` stays until the times are taken.
    graphs = {name: graph(step.runs(name)) for name in VARIANTS}
    graphs |= {name: graph(runs) for name, runs in step.parts.items()}
    start = time.monotonic()
    for name in peers:
        try:
            graphs[name] = peer(name, step.x, step.dy, k, n)
        except Exception:
            # The others are measured all the same.
            print(f"{name} {shape} was not compiled:\n{traceback.format_exc(limit=3)}", flush=True)
    row["compile_s"] = time.monotonic() - start
    row["us"] = cold_times({name: made.replay for name, made in graphs.items()}, rounds)
    return row, failed


def show(row: dict) -> None:
    text = "  ".join(f"{name} {value:.1f}" for name, value in row["us"].items())
    print(f"{row['m']:6} {row['k']:5} {row['n']:5}  {text}  ({row['compile_s']:.0f} s to compile)")
    for name, of in row["rel_l2"].items():
        text = "  ".join(f"{what} {ours:.4f} / {separate:.4f}" for what, (ours, separate) in of.items())
        print(f"{'':21}rel L2, ours / separate, {name}: {text}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=40, help="random shapes that are checked first")
    parser.add_argument("--peers", default="mods", help="mods,original (minutes), or nothing")
    parser.add_argument("--skip", type=int, default=0, help="so many chains, the fastest, are left out")
    parser.add_argument("--chains", type=int, default=len(CHAINS), help="so many, the fastest first")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--budget", type=float, default=300, help="seconds after which no chain is begun")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    start = time.monotonic()
    blocks = [Block(x, h, rows) for x in ("bf16", "e4m3") for h in ("bf16", "e4m3", "all") for rows in (64, 128)]
    plain = [tiling for tiling in fp8.tilings() if tiling.fast and not tiling.is_e5m2]
    failed, peers, kept = checks(blocks, arguments.checks), list(filter(None, arguments.peers.split(","))), []
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda}
    print(about, flush=True)
    for shape in CHAINS[arguments.skip : arguments.chains]:
        if time.monotonic() - start > arguments.budget:
            print(f"{shape} and later ones left out: {arguments.budget:.0f} s are over", flush=True)
            break
        row, wrong = measure(blocks, plain, shape, peers, arguments.rounds)
        failed += wrong
        kept.append(row)
        show(row)
        if arguments.out:
            arguments.out.write_text(json.dumps({**about, "chains": kept}))
    for name in peers:
        for ours in VARIANTS:
            shares = [row["us"][name] / row["us"][ours] for row in kept if name in row["us"]]
            if shares:
                print(f"{name} over {ours}: {geomean(shares):.3f} (geomean of {len(shares)}), least {min(shares):.3f}")
    if failed:
        raise SystemExit(f"{failed} checks failed")


if __name__ == "__main__":
    main()
