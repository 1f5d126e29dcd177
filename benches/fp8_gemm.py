"""LoKA's FP8 GEMMs against cuBLASLt with nothing of LoKA's engine in between: NVRTC and the driver through ctypes.

    python benches/fp8_gemm.py [--shapes benches/lrm_shapes.csv] [--gemms fprop,dgrad,wgrad] [--out FILE.json]

Takes a GPU of compute capability 9.0 and PyTorch (for memory, graphs and FP64 products); gives, after the checks, the
median microseconds of the bare product on random codes: ours by the kernel that kernels/src/gemm.rs expects to be
fastest, cuBLASLt by the fastest of its heuristics' eight. Graphs over more buffers than the L2 holds, all interleaved
round by round. Checks: every kernel on ragged and random shapes against FP64 (relative L2 no more than 5 % above
cuBLASLt's), poison and guards around the output, all kernels of a product equal to the bit.
"""

import argparse
import csv
import ctypes as C
import itertools
import json
import math
import pathlib
import random

import torch

import costs

ROOT = pathlib.Path(__file__).resolve().parent.parent
CU = ROOT / "kernels" / "cu"
GUARD, TILE_K, Y_BOX, THREADS = 4096, 128, (16, 64), 384
LONG = 4800
"""Of k: as far as the random shapes of the checks go."""
E4M3, E5M2, BF16, F32, COMPUTE_F32 = 28, 29, 14, 0, 68

torch.zeros(1, device="cuda")  # the context
cuda, nvrtc, lt = (C.CDLL(f"lib{name}") for name in ("cuda.so.1", "nvrtc.so.13", "cublasLt.so.13"))
SMS = torch.cuda.get_device_properties(0).multi_processor_count


def check(status: int, what: str) -> None:
    if status != 0:
        raise RuntimeError(f"{what}: status {status}")


class Attribute(C.Structure):
    _fields_ = [("id", C.c_int), ("pad", C.c_char * 4), ("value", C.c_uint * 16)]


class Config(C.Structure):
    _fields_ = [("grid", C.c_uint * 3), ("block", C.c_uint * 3), ("shared", C.c_uint), ("stream", C.c_void_p),
                ("attributes", C.POINTER(Attribute)), ("count", C.c_uint)]  # fmt: skip


class Map(C.Structure):
    _fields_ = [("words", C.c_uint64 * 16)]


class Shape(C.Structure):
    _fields_ = [(name, C.c_uint) for name in "m n k down across group x_step w_step".split()]


def load(entry: str, *defines: str) -> C.c_void_p:
    """The kernel's function, compiled here."""
    headers = {str(path.relative_to(CU)): path.read_bytes() for path in CU.glob("common/*.cuh")}
    names = (C.c_char_p * len(headers))(*(name.encode() for name in headers))
    texts = (C.c_char_p * len(headers))(*headers.values())
    program, size = C.c_void_p(), C.c_size_t()
    source = (CU / f"{entry}.cu").read_bytes()
    check(nvrtc.nvrtcCreateProgram(C.byref(program), source, entry.encode(), len(headers), texts, names), "create")
    wanted = ["--gpu-architecture=sm_90a", "--std=c++17", *(f"-D{name}" for name in defines)]
    options = (C.c_char_p * len(wanted))(*(option.encode() for option in wanted))
    check(nvrtc.nvrtcCompileProgram(program, len(wanted), options), f"compiling {entry}")
    check(nvrtc.nvrtcGetCUBINSize(program, C.byref(size)), "size")
    cubin = C.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetCUBIN(program, cubin), "cubin")
    module, function = C.c_void_p(), C.c_void_p()
    check(cuda.cuModuleLoadData(C.byref(module), cubin), "load")
    check(cuda.cuModuleGetFunction(C.byref(function), module, entry.encode()), "entry")
    return function


def tensor_map(matrix: torch.Tensor, box_rows: int, box_cols: int) -> Map:
    (rows, cols), size = matrix.shape, matrix.element_size()
    room = (C.c_uint64 * 32)()
    at = -(-C.addressof(room) // 64) * 64
    check(
        cuda.cuTensorMapEncodeTiled(
            C.c_void_p(at), {1: 0, 2: 9}[size], 2, C.c_void_p(matrix.data_ptr()), (C.c_uint64 * 2)(cols, rows),
            (C.c_uint64 * 1)(matrix.stride(0) * size), (C.c_uint * 2)(box_cols, box_rows), (C.c_uint * 2)(1, 1), 0, 3, 2, 0,
        ),
        "tensor map",
    )  # fmt: skip
    result = Map()
    C.memmove(C.byref(result), at, 128)
    return result


class Tiling:
    """One line of TILINGS in kernels/src/gemm.rs."""

    functions: dict = {}

    def __init__(self, told: costs.Told) -> None:
        self.told, self.entry, self.name = told, told.entry, told.name
        self.columns, self.splits = told.columns, told.splits
        self.fast, self.is_e5m2 = "_fast_" in told.entry, "_e5m2_" in told.entry
        if self.entry not in self.functions:
            self.functions[self.entry] = load(self.entry)
        self.function, stages, columns = self.functions[self.entry], told.stages, told.columns
        self.shared = stages * ((128 + columns) * TILE_K + 16) + 8 * 2 * 16 * 64 * 2 + 8 * columns
        check(cuda.cuFuncSetAttribute(self.function, 8, self.shared), "shared memory")

    def suits(self, m: int, n: int, k: int) -> bool:
        return self.told.suits(m, n, k, SMS)

    def expected(self, m: int, n: int, k: int) -> float:
        return self.told.expected(m, n, k, SMS)

    def prepare(self, x, w, y, x_scales, w_scales, by_rows: bool):
        (m, k), n = x.shape, w.shape[0]
        group = max(1, round(math.sqrt(SMS * self.columns / 128)))
        shape = Shape(m, n, k, -(-m // 128), -(-n // self.columns), group, by_rows, by_rows)
        arguments = [tensor_map(x, 128, TILE_K), tensor_map(w, self.columns, TILE_K), tensor_map(y, *Y_BOX),
                     C.c_uint64(x_scales.data_ptr()), C.c_uint64(w_scales.data_ptr()), shape]  # fmt: skip
        pointers = (C.c_void_p * 6)(*(C.addressof(argument) for argument in arguments))
        attributes = (Attribute * 2)()
        attributes[0].id, attributes[0].value[0] = 6, 1
        attributes[1].id, attributes[1].value[0], attributes[1].value[1], attributes[1].value[2] = 4, self.splits, 1, 1
        blocks, count = min(self.told.units(m, n), SMS), 1 if self.splits == 1 else 2
        config = Config((blocks, 1, 1), (THREADS, 1, 1), self.shared, None, attributes, count)

        def run(kept=(arguments, x, w, y, x_scales, w_scales)) -> None:
            config.stream = torch.cuda.current_stream().cuda_stream
            check(cuda.cuLaunchKernelEx(C.byref(config), self.function, pointers, None), self.entry)

        return run


def tilings() -> list:
    return [Tiling(told) for told in costs.gemms()]


HANDLE = C.c_void_p()
check(lt.cublasLtCreate(C.byref(HANDLE)), "cuBLASLt")
WORKSPACE = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")


class Library:
    """The same product by cuBLASLt: the fastest of eight algorithms once `algorithm` is set."""

    def __init__(self, m: int, n: int, k: int, by_rows: bool, fast: bool, is_e5m2: bool = False, packed: bool = False) -> None:
        """`packed`: rows of codes lie behind one another, else they are `spaced`."""
        pitch = k if packed else line(k)
        self.description, self.algorithm = C.c_void_p(), 0
        check(lt.cublasLtMatmulDescCreate(C.byref(self.description), COMPUTE_F32, F32), "description")
        mode = 3 if by_rows else 0
        any_address = C.c_uint64(1 << 20)
        settings = {3: C.c_int(1), 4: C.c_int(0), 25: C.c_int8(fast), 31: C.c_int(mode), 32: C.c_int(mode)}
        for attribute, value in {**settings, 17: any_address, 18: any_address}.items():
            self.set(attribute, value)
        x_type = E5M2 if is_e5m2 else E4M3
        self.w, self.x, self.y = self.layout(E4M3, k, n, pitch), self.layout(x_type, k, m, pitch), self.layout(BF16, n, m)
        preference, limit, found = C.c_void_p(), C.c_uint64(WORKSPACE.numel()), C.c_int()
        check(lt.cublasLtMatmulPreferenceCreate(C.byref(preference)), "preference")
        check(lt.cublasLtMatmulPreferenceSetAttribute(preference, 1, C.byref(limit), 8), "workspace")
        self.results = (C.c_uint64 * (12 * 8))()
        check(lt.cublasLtMatmulAlgoGetHeuristic(HANDLE, self.description, self.w, self.x, self.y, self.y, preference, 8,
                                                self.results, C.byref(found)), "heuristics")  # fmt: skip
        self.count = found.value

    def set(self, attribute: int, value) -> None:
        status = lt.cublasLtMatmulDescSetAttribute(self.description, attribute, C.byref(value), C.sizeof(value))
        check(status, "attribute")

    @staticmethod
    def layout(of: int, rows: int, cols: int, pitch: int = 0) -> C.c_void_p:
        made, sizes = C.c_void_p(), (C.c_uint64(rows), C.c_uint64(cols), C.c_int64(pitch or rows))
        check(lt.cublasLtMatrixLayoutCreate(C.byref(made), of, *sizes), "layout")
        return made

    def prepare(self, x, w, y, x_scales, w_scales):
        one, zero = C.c_float(1), C.c_float(0)

        def run(algorithm=None) -> None:
            self.set(17, C.c_uint64(w_scales.data_ptr()))
            self.set(18, C.c_uint64(x_scales.data_ptr()))
            chosen = C.c_void_p(C.addressof(self.results) + 96 * (self.algorithm if algorithm is None else algorithm))
            at = lambda tensor: C.c_void_p(tensor.data_ptr())
            stream = C.c_void_p(torch.cuda.current_stream().cuda_stream)
            check(lt.cublasLtMatmul(HANDLE, self.description, C.byref(one), at(w), self.w, at(x), self.x, C.byref(zero),
                                    at(y), self.y, at(y), self.y, chosen, at(WORKSPACE), C.c_size_t(WORKSPACE.numel()),
                                    stream), "matmul")  # fmt: skip

        return run


def line(cols: int) -> int:
    """`casts::pitch` of kernels/src/casts.rs: from one row of codes to the next."""
    return -(-cols // 128) * 128


def spaced(rows: int, cols: int, kind: torch.dtype = torch.float8_e4m3fn) -> torch.Tensor:
    """Room for codes whose rows begin at lines of memory."""
    return torch.empty_strided((rows, cols), (line(cols), 1), dtype=kind, device="cuda")


def codes(rows: int, cols: int, is_e5m2: bool = False):
    """Normals cast by rows: codes, `spaced`, and scales."""
    values = torch.randn(rows, cols, device="cuda")
    most, kind = (57344.0, torch.float8_e5m2) if is_e5m2 else (448.0, torch.float8_e4m3fn)
    scales = (values.abs().amax(1) / most).clamp(min=1e-12)
    return spaced(rows, cols, kind).copy_((values / scales[:, None]).to(kind)), scales.contiguous()


def relative_l2(y, exact) -> float:
    return ((y.double() - exact).norm() / exact.norm()).item()


def one_check(suited: list, m: int, n: int, k: int, by_rows: bool) -> str:
    """Every kernel of one product; why it is wrong, or nothing."""
    (x, x_scales), (w, w_scales) = codes(m, k, suited[0].is_e5m2), codes(n, k)
    if not by_rows:
        x_scales, w_scales = x_scales[:1].expand(m).contiguous(), w_scales[:1].expand(n).contiguous()
    exact = torch.zeros(m, n, dtype=torch.float64, device="cuda")
    for first in range(0, k, 16384):
        exact += x[:, first : first + 16384].double() @ w[:, first : first + 16384].double().t()
    exact *= x_scales.double()[:, None] * w_scales.double()[None, :]
    allowed = 3e-3
    if m % 16 == 0:
        theirs = torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
        Library(m, n, k, by_rows, suited[0].fast, suited[0].is_e5m2).prepare(x, w, theirs, x_scales, w_scales)()
        # cuBLASLt shares a long k among blocks itself: then what ours cut off without sharing it is no fault of theirs.
        allowed = 1.05 * relative_l2(theirs, exact) if k <= LONG else allowed
    first = {}
    for tiling in suited:
        if not tiling.suits(m, n, k):
            continue
        flat = torch.full((m * n + 2 * GUARD,), -1, dtype=torch.int16, device="cuda")
        y = flat[GUARD : GUARD + m * n].view(torch.bfloat16).view(m, n)
        tiling.prepare(x, w, y, x_scales, w_scales, by_rows)()
        error, where = relative_l2(y, exact), f"{tiling.name} {m}x{n}x{k}"
        if not error <= allowed:
            return f"{where}: relative L2 {error:.3e}, {allowed:.3e} allowed, {int(y.isnan().sum())} not written"
        if (flat[:GUARD] != -1).any() or (flat[GUARD + m * n :] != -1).any():
            return f"{where}: wrote beyond its output"
        # The order of the sums is another only where another number of blocks share k.
        if not torch.equal(first.setdefault(tiling.splits, y), y):
            return f"{where}: differs from the other kernels"
    return ""


def checks(all_tilings: list, rounds: int) -> None:
    random.seed(1)
    shapes = [(1, 16, 16), (17, 16, 16), (100, 48, 144), (129, 208, 80), (2048, 1024, 4096), (3000, 2048, 256)]
    # Where blocks share k: a stage each at least, parts that differ, ragged ends.
    shapes += [(256, 512, 8192), (130, 144, 1040), (128, 16, 2000), (1000, 400, 9440)]
    for _ in range(rounds):
        shapes.append((random.randint(1, 3000), 16 * random.randint(1, 150), 16 * random.randint(1, LONG // 16)))
    kinds = list(itertools.product((True, False), (False, True), (False, True)))
    done = 0
    for index, (m, n, k) in enumerate(shapes):
        for fast, is_e5m2, by_rows in kinds if index < 10 else [random.choice(kinds)]:
            suited = [tiling for tiling in all_tilings if (tiling.fast, tiling.is_e5m2) == (fast, is_e5m2)]
            wrong = one_check(suited, m, n, k, by_rows)
            if wrong:
                raise SystemExit(wrong)
            done += len(suited)
    print(f"{done} checks passed", flush=True)


def graph(runs: list, repeats: int):
    for run in runs[:2]:
        run()
    torch.cuda.synchronize()
    made = torch.cuda.CUDAGraph()
    with torch.cuda.graph(made):
        for run in runs * repeats:
            run()
    return made, repeats * len(runs)


def times(graphs: dict, rounds: int) -> dict:
    """Microseconds of one run: all rounds but the first two."""
    samples = {name: [] for name in graphs}
    first_graph = next(iter(graphs.values()))[0]
    for turn in range(rounds + 2):
        # Not timed: who comes first after a pause is some percent slower.
        first_graph.replay()
        events = {}
        for name, (made, _) in graphs.items():
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            made.replay()
            last.record()
            events[name] = (first, last)
        torch.cuda.synchronize()
        for name, (first, last) in events.items() if turn >= 2 else ():
            samples[name].append(first.elapsed_time(last) * 1e3 / graphs[name][1])
    return samples


def median(values: list) -> float:
    return sorted(values)[len(values) // 2]


VARIANTS = {
    "tensorwise": (False, False),
    "tensorwise+fast": (False, True),
    "rowwise": (True, False),
    "rowwise+fast": (True, True),
}
"""Scales by rows, fast accumulation."""


def measure(all_tilings: list, m: int, n: int, k: int, rounds: int, sample_us: float) -> dict:
    """Samples by (variant, "cublaslt" or "loka")."""
    sets = max(2, min(64, -(-180_000_000 // (m * k + n * k + 2 * m * n))))
    repeats = max(1, math.ceil(sample_us / (max(3.0, 2 * m * n * k / 1.3e9) * sets)))
    data = []
    for _ in range(sets):
        (x, x_scales), (w, w_scales) = codes(m, k), codes(n, k)
        data.append((x, w, torch.empty(m, n, dtype=torch.bfloat16, device="cuda"), x_scales, w_scales))
    graphs = {}
    for name, (by_rows, fast) in VARIANTS.items():
        library = Library(m, n, k, by_rows, fast)
        tried = {}
        for index in range(library.count):
            runs = [lambda run=library.prepare(*each), index=index: run(index) for each in data]
            tried[index] = graph(runs, max(1, repeats // 2))
        found = times(tried, 3)
        library.algorithm = min(found, key=lambda index: median(found[index]))
        graphs[name, "cublaslt"] = graph([library.prepare(*each) for each in data], repeats)
        suited = [tiling for tiling in all_tilings
                  if tiling.fast == fast and not tiling.is_e5m2 and tiling.suits(m, n, k)]
        best = min(suited, key=lambda tiling: tiling.expected(m, n, k))
        graphs[name, "loka"] = graph([best.prepare(*each, by_rows) for each in data], repeats)
    return times(graphs, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=pathlib.Path, default=ROOT / "benches" / "lrm_shapes.csv")
    parser.add_argument("--gemms", default="fprop")
    parser.add_argument("--checks", type=int, default=200, help="random shapes that are checked first")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    all_tilings = tilings()
    checks(all_tilings, arguments.checks)
    turned = {"fprop": (0, 2, 1), "dgrad": (0, 1, 2), "wgrad": (2, 1, 0)}
    with arguments.shapes.open() as file:
        shapes = [tuple(map(int, row)) for row in list(csv.reader(file))[1:]]
    print(f"us, cuBLASLt / LoKA, output [m, n] over k: {', '.join(VARIANTS)}")
    kept = []
    for gemm in arguments.gemms.split(","):
        shares = {name: [] for name in VARIANTS}
        for shape in shapes:
            m, n, k = (shape[place] for place in turned[gemm])
            samples = measure(all_tilings, m, n, k, arguments.rounds, 2000.0)
            us = {" ".join(name): taken for name, taken in samples.items()}
            kept.append({"gemm": gemm, "m": m, "n": n, "k": k, "us": us})
            pairs = {name: (median(samples[name, "cublaslt"]), median(samples[name, "loka"])) for name in VARIANTS}
            for name, (theirs, ours) in pairs.items():
                shares[name].append(theirs / ours)
            columns = "  ".join(f"{theirs:7.1f} / {ours:7.1f}" for theirs, ours in pairs.values())
            print(f"{gemm} {m:6} {n:6} {k:6}  {columns}", flush=True)
        for name, share in shares.items():
            mean = math.exp(sum(map(math.log, share)) / len(share))
            print(f"{gemm} {name}: {mean:.3f} of cuBLASLt's speed (geomean), worst {min(share):.3f}", flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
