"""LoKA's GEMMs with a static scale against BF16 and against cast + FP8 GEMM: NVRTC and the driver through ctypes.

    python benches/static_gemm.py [--shapes benches/lrm_shapes.csv] [--all] [--out FILE.json]

Takes a GPU of compute capability 9.0 and PyTorch; gives, after the checks, median microseconds of y = x w^T for x in
BF16 and w in E4M3 with a scale a row:

    bf16      cuBLASLt in BF16, the fastest of its heuristics' eight
    bare      LoKA's FP8 GEMM, both operands already cast (rowwise, fast accumulation)
    cast      cast_e4m3_static of x, then that GEMM
    static    x cast on its way in (kernels/src/gemm/static_scale.rs chooses; --all times every tiling)
    w+static  cast_rowwise of w in front of it

Graphs over more buffers than the L2 holds, all interleaved round by round. Checks: codes against PyTorch's, sums equal
to the FP8 GEMM's to the bit (split k: relative L2 to FP64 no more than 5 % above), the same with a bias, the count of
saturated elements equal to PyTorch's, poison and guards around the output; ragged and random shapes. Exit 1, after the
figures, where one failed.
"""

import argparse
import csv
import ctypes as C
import json
import math
import pathlib
import random

import torch

import costs
import fp8_gemm as fp8
from fp8_gemm import BF16, COMPUTE_F32, F32, GUARD, HANDLE, ROOT, SMS, TILE_K, WORKSPACE, Y_BOX, check, cuda, lt

SCALE = 2.0**-6
"""A power of two; random normals reach about 5, so 448 * SCALE = 7 lets few saturate."""


def launcher(function, blocks: int, threads: int, shared: int, arguments: list, cluster: int = 1, early: bool = True):
    """A function that launches, keeping alive what it points to."""
    pointers = (C.c_void_p * len(arguments))(*(C.addressof(argument) for argument in arguments))
    attributes = (fp8.Attribute * 2)()
    count = 0
    if early:
        attributes[count].id, attributes[count].value[0] = 6, 1
        count += 1
    if cluster > 1:
        attributes[count].id = 4
        attributes[count].value[0], attributes[count].value[1], attributes[count].value[2] = cluster, 1, 1
        count += 1
    config = fp8.Config((blocks, 1, 1), (threads, 1, 1), shared, None, attributes, count)

    def run(kept=(arguments, attributes)) -> None:
        config.stream = torch.cuda.current_stream().cuda_stream
        check(cuda.cuLaunchKernelEx(C.byref(config), function, pointers, None), "launch")

    return run


def address(tensor) -> C.c_uint64:
    return C.c_uint64(tensor.data_ptr())


class Shape(C.Structure):
    """StaticShape of kernels/src/gemm/shapes.rs."""

    _fields_ = [(name, C.c_uint) for name in "m n k down across group stores w_step".split()] + [("bias", C.c_uint64)]


class StaticTiling:
    """One line of STATIC_TILINGS in kernels/src/gemm/static_scale.rs."""

    def __init__(self, told: costs.Told) -> None:
        self.entry, self.rows, self.columns, self.splits = told.entry, told.rows, told.columns, told.splits
        self.told, self.units = told, told.units
        self.shares_k = told.splits > 1 or told.rows < 128
        self.name = told.entry.removeprefix("sm90_bf16_gemm_")
        self.function = fp8.load(told.entry)
        ring = told.stages * ((2 * told.rows + told.columns) * TILE_K + 32)
        self.shared = ring + 8 * 2 * 16 * 64 * 2 + 8 * told.columns + 16
        check(cuda.cuFuncSetAttribute(self.function, 8, self.shared), "shared memory")

    def suits(self, m: int, n: int, k: int) -> bool:
        return self.told.suits(m, n, k, SMS)

    def expected(self, m: int, n: int, k: int) -> float:
        return self.told.expected(m, n, k, SMS)

    def prepare(self, x, w, y, x_scale, w_scales, saturated, bias=None):
        (m, k), n = x.shape, w.shape[0]
        group = max(1, round(math.sqrt(SMS * self.columns / self.rows)))
        bias_at = 0 if bias is None else bias.data_ptr()
        shape = Shape(m, n, k, -(-m // self.rows), -(-n // self.columns), group, 0, 1, bias_at)
        arguments = [fp8.tensor_map(x, self.rows, 64), fp8.tensor_map(w, self.columns, TILE_K),
                     fp8.tensor_map(y, *Y_BOX), address(x_scale), address(w_scales), address(saturated),
                     shape]  # fmt: skip
        return launcher(self.function, min(self.units(m, n), SMS), 384, self.shared, arguments, self.splits)


def static_tilings() -> list:
    return [StaticTiling(told) for told in costs.static_gemms()]


class Bf16(fp8.Library):
    """The product in BF16 by cuBLASLt."""

    def __init__(self, m: int, n: int, k: int) -> None:
        self.description, self.algorithm = C.c_void_p(), 0
        check(lt.cublasLtMatmulDescCreate(C.byref(self.description), COMPUTE_F32, F32), "description")
        fp8.Library.set(self, 3, C.c_int(1))
        self.w, self.x, self.y = self.layout(BF16, k, n), self.layout(BF16, k, m), self.layout(BF16, n, m)
        preference, limit, found = C.c_void_p(), C.c_uint64(WORKSPACE.numel()), C.c_int()
        check(lt.cublasLtMatmulPreferenceCreate(C.byref(preference)), "preference")
        check(lt.cublasLtMatmulPreferenceSetAttribute(preference, 1, C.byref(limit), 8), "workspace")
        self.results = (C.c_uint64 * (12 * 8))()
        check(lt.cublasLtMatmulAlgoGetHeuristic(HANDLE, self.description, self.w, self.x, self.y, self.y, preference, 8,
                                                self.results, C.byref(found)), "heuristics")  # fmt: skip
        self.count = found.value

    def set(self, attribute: int, value) -> None:
        """No scales in BF16: what prepare sets is left out."""


class CastOperand(C.Structure):
    _fields_ = [(name, C.c_uint64) for name in "x codes scales codes_t scales_t partials".split()]
    _fields_ += [(name, C.c_uint) for name in "rows cols blocks flags tiles tile_rows pitch pitch_t".split()]


CASTS = {}


def cast(entry: str):
    if entry not in CASTS:
        CASTS[entry] = fp8.load(entry)
    return CASTS[entry]


def cast_static(x, codes, scale, saturated):
    arguments = [address(x), address(scale), address(codes), address(saturated), C.c_uint64(x.numel())]
    arguments += [C.c_uint(x.shape[1]), C.c_uint(codes.stride(0))]
    return launcher(cast("cast_e4m3_static"), min(-(-x.numel() // 8192), 8 * SMS), 256, 0, arguments, early=False)


def cast_rowwise(w, codes, scales):
    """The launch of kernels/src/casts.rs for one operand."""
    rows, cols = w.shape
    operand = CastOperand(w.data_ptr(), codes.data_ptr(), scales.data_ptr(), 0, 0, 0, rows, cols, 0, 8, 0, 0, codes.stride(0))
    cluster, threads = 1, 256
    if cols <= 1024:
        lanes = min(32, 1 << (-(-cols // 8) - 1).bit_length())
        operand.blocks = -(-rows // (8 * (32 // lanes)))
    else:
        cluster = 1 << (-(-cols // 65536) - 1).bit_length()
        share = -(-(-(-cols // cluster)) // 128) * 128
        kept = 4 if cols <= 16384 else 8
        threads = min(1024, max(64, -(-(-(-share // (8 * kept))) // 32) * 32))
        operand.tile_rows = 4 if cols <= 32 * threads else 8
        if operand.tile_rows == 8:
            resident = 1024 // threads
            operand.tiles = 0 if resident > 2 else max(1, resident * SMS // cluster)
        operand.blocks = rows * (cluster if operand.tile_rows == 8 else 1)
    return launcher(cast("cast_rowwise"), operand.blocks, threads, 0, [operand, CastOperand()], cluster, early=True)


def e4m3(values):
    return values.clamp(-448, 448).to(torch.float8_e4m3fn)


def one_check(statics: list, plain: list, m: int, n: int, k: int, scale: float, special: bool) -> str:
    """Every kernel of one product; why it is wrong, or nothing."""
    x = torch.randn(m, k, device="cuda").bfloat16()
    if special:
        x[m // 2, k // 3], x[0, k - 1], x[m - 1, 0] = math.inf, -math.inf, math.nan
    (w, w_scales), x_scale = fp8.codes(n, k), torch.full((1,), scale, device="cuda")
    codes = fp8.spaced(m, k).copy_(e4m3(x.float() / scale))
    expected_count = int(((x.float() / scale).abs() > 448).sum())
    spread = x_scale.expand(m).contiguous()
    reference = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
    plain[0].prepare(codes, w, reference, spread, w_scales, True)()
    exact = codes.double() @ w.double().t() * x_scale.double() * w_scales.double()[None, :]
    allowed = 1.05 * fp8.relative_l2(reference.nan_to_num(0), exact.nan_to_num(0))
    bias = (4 * torch.randn(n, device="cuda")).bfloat16()
    for tiling in statics:
        if not tiling.suits(m, n, k):
            continue
        flat = torch.full((m * n + 2 * GUARD,), -1, dtype=torch.int16, device="cuda")
        y = flat[GUARD : GUARD + m * n].view(torch.bfloat16).view(m, n)
        saturated = torch.full((1,), 5, dtype=torch.int64, device="cuda")
        run = tiling.prepare(x, w, y, x_scale, w_scales, saturated)
        # The second time counters are as the first left them.
        run()
        flat.fill_(-1)
        run()
        where, count = f"{tiling.name} {m}x{n}x{k}", int(saturated) - 5
        if count != 2 * expected_count:
            return f"{where}: {count} saturated, {expected_count} expected"
        if (flat[:GUARD] != -1).any() or (flat[GUARD + m * n :] != -1).any():
            return f"{where}: wrote beyond its output"
        if not torch.equal(y.isnan(), exact.isnan()):
            return f"{where}: {int(y.isnan().sum())} are not written or NaN, {int(exact.isnan().sum())} expected"
        if not tiling.shares_k and not torch.equal(y.nan_to_num(0), reference.nan_to_num(0)):
            return f"{where}: differs from {plain[0].entry} by {fp8.relative_l2(y, reference.double()):.3e}"
        error = fp8.relative_l2(y.nan_to_num(0), exact.nan_to_num(0))
        if not error <= max(allowed, 1e-3):
            return f"{where}: relative L2 {error:.3e}, {allowed:.3e} allowed"
        flat.fill_(-1)
        tiling.prepare(x, w, y, x_scale, w_scales, saturated, bias)()
        error = fp8.relative_l2(y.nan_to_num(0), (exact + bias.double()).nan_to_num(0))
        if not error <= max(allowed, 2e-3):
            return f"{where} with a bias: relative L2 {error:.3e}, {max(allowed, 2e-3):.3e} allowed"
    return ""


def checks(statics: list, plain: list, rounds: int) -> int:
    """How many shapes failed."""
    random.seed(1)
    shapes = [(1, 16, 16), (17, 16, 144), (100, 48, 144), (129, 208, 80), (129, 272, 400), (2048, 1024, 4096),
              (3000, 2048, 256), (257, 4096, 1040), (2048, 512, 512), (1024, 2048, 2048)]  # fmt: skip
    for _ in range(rounds):
        shapes.append((random.randint(1, 3000), 16 * random.randint(1, 150), 16 * random.randint(1, 300)))
    done, failed = 0, 0
    for index, (m, n, k) in enumerate(shapes):
        wrong = one_check(statics, plain, m, n, k, 2.0 ** random.randint(-9, -5), index % 3 == 0 and m > 2)
        if wrong:
            print(f"FAILED: {wrong}", flush=True)
            failed += 1
        done += sum(tiling.suits(m, n, k) for tiling in statics)
    print(f"{done} kernels run on {len(shapes)} shapes, {failed} shapes failed", flush=True)
    return failed


def tuned(m: int, n: int, k: int, data: list, repeats: int) -> Bf16:
    library, tried = Bf16(m, n, k), {}
    for index in range(library.count):
        runs = [lambda run=library.prepare(x, w, y, x, x), index=index: run(index) for x, _, w, _, _, y in data]
        tried[index] = fp8.graph(runs, max(1, repeats // 2))
    found = fp8.times(tried, 3)
    library.algorithm = min(found, key=lambda index: fp8.median(found[index]))
    return library


def measure(statics: list, plain: list, m: int, n: int, k: int, rounds: int, sample_us: float, every: bool) -> dict:
    sets = max(2, min(64, -(-180_000_000 // (3 * m * k + 3 * n * k + 2 * m * n))))
    repeats = max(1, math.ceil(sample_us / (max(3.0, 2 * m * n * k / 1.3e9) * sets)))
    x_scale, saturated = torch.full((1,), SCALE, device="cuda"), torch.zeros(1, dtype=torch.int64, device="cuda")
    spread = x_scale.expand(m).contiguous()
    data = []
    for _ in range(sets):
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
        y = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        w_codes, w_scales = fp8.spaced(n, k), torch.empty(n, device="cuda")
        data.append((x, fp8.spaced(m, k).copy_(e4m3(x / SCALE)), w, w_codes, w_scales, y))
        cast_rowwise(w, w_codes, w_scales)()
        error = fp8.relative_l2(w_codes.float() * w_scales[:, None], w.double())
        if not error < 0.05:
            raise SystemExit(f"cast_rowwise {n}x{k}: relative L2 {error:.3e}")
    graphs = {}
    library = tuned(m, n, k, data, repeats)
    graphs["bf16"] = fp8.graph([library.prepare(x, w, y, x, x) for x, _, w, _, _, y in data], repeats)
    best = min((tiling for tiling in plain if tiling.suits(m, n, k)), key=lambda tiling: tiling.expected(m, n, k))
    bare = [best.prepare(x_codes, w_codes, y, spread, w_scales, True) for _, x_codes, _, w_codes, w_scales, y in data]
    graphs["bare"] = fp8.graph(bare, repeats)
    x_casts = [cast_static(x, x_codes, x_scale, saturated) for x, x_codes, _, _, _, _ in data]
    w_casts = [cast_rowwise(w, w_codes, w_scales) for _, _, w, w_codes, w_scales, _ in data]
    graphs["cast"] = fp8.graph([run for pair in zip(x_casts, bare) for run in pair], repeats)
    graphs["w+cast"] = fp8.graph([run for three in zip(w_casts, x_casts, bare) for run in three], repeats)
    suited = sorted((tiling for tiling in statics if tiling.suits(m, n, k)), key=lambda t: t.expected(m, n, k))
    # A graph does not keep what its kernels point to.
    alive = []
    least = suited[0].expected(m, n, k)
    for tiling in suited if every else [tiling for tiling in suited if tiling.expected(m, n, k) == least]:
        runs = [tiling.prepare(x, w_codes, y, x_scale, scales, saturated) for x, _, _, w_codes, scales, y in data]
        alive.append(runs)
        graphs[tiling.name] = fp8.graph(runs, repeats)
        graphs["w+" + tiling.name] = fp8.graph([run for pair in zip(w_casts, runs) for run in pair], repeats)
    # Graphs of pairs count each run: these are the ways that launch more than one kernel.
    launches = {"cast": 2, "w+cast": 3}
    samples = fp8.times(graphs, rounds)
    return {name: [us * launches.get(name, 2 if name.startswith("w+") else 1) for us in taken]
            for name, taken in samples.items()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=pathlib.Path, default=ROOT / "benches" / "lrm_shapes.csv")
    parser.add_argument("--checks", type=int, default=200, help="random shapes that are checked first")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--all", action="store_true", help="time every tiling")
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    statics = static_tilings()
    plain = [tiling for tiling in fp8.tilings() if tiling.fast and not tiling.is_e5m2]
    failed = checks(statics, plain, arguments.checks)
    with arguments.shapes.open() as file:
        shapes = [tuple(map(int, row)) for row in list(csv.reader(file))[1:]]
    kept, cached, counted = [], [], []
    for m, k, n in shapes:
        samples = measure(statics, plain, m, n, k, arguments.rounds, 1500.0, arguments.all)
        kept.append({"m": m, "n": n, "k": k, "us": samples})
        us = {name: fp8.median(taken) for name, taken in samples.items()}
        fused = {name: value for name, value in us.items() if name.startswith("static")}
        pairs = {name: value for name, value in us.items() if name.startswith("w+static")}
        cached.append([us["bf16"] / value for value in (us["bare"], us["cast"], min(fused.values()))])
        counted.append([us["bf16"] / value for value in (us["w+cast"], min(pairs.values()))])
        cached[-1].append(max(cached[-1][1:]))
        counted[-1].append(max(counted[-1]))
        text = "  ".join(f"{name.replace('static_', 's_')} {value:.1f}" for name, value in us.items())
        print(f"{m:6} {k:6} {n:6}  {text}", flush=True)
    mean = lambda column: math.exp(sum(map(math.log, column)) / len(column))
    for name, column in zip(("bare", "cast, then GEMM", "static", "best of both"), zip(*cached)):
        print(f"weight cast once, {name}: {mean(column):.3f} x BF16 (geomean), least {min(column):.3f}")
    for name, column in zip(("casts, then GEMM", "static", "best of both"), zip(*counted)):
        print(f"weight cast each time, {name}: {mean(column):.3f} x BF16 (geomean), least {min(column):.3f}")
    if arguments.out:
        arguments.out.write_text(json.dumps(kept))
    if failed:
        raise SystemExit(f"{failed} shapes failed their checks")


if __name__ == "__main__":
    main()
