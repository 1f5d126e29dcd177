"""What `loka probe` does on a whole trace, in fast numpy: the opponent of LoKA's throughput figure.

Takes a trace and the size of the sample; gives one JSON line: seconds, probed output elements, elements per second (also
per GEMM direction), where the time goes (seconds summed over threads), and what share of this machine's sgemm rate (2048^3,
one thread's rate times `workers`) the emulated GEMMs reach.

    python numpy_probe.py TRACE [--draws 16] [--rows 64] [--cols 64] [--workers N] [--cast ml_dtypes|arithmetic]

Work: every site, fprop and dgrad (`rows` rows of the output, all columns), wgrad (`rows` x `cols` outputs, all m rows
reduced), all kernels of the catalogue that have different numerics, `draws` draws; mere, rel_l2, median_rel, max_abs, zeros,
for fprop loss_cost and, where the site has a tail, the relative L2 after bias, tail and the next cast. An element counts
once for each draw and numerics that measured it.

How it is made fast: weights are cast once; each draw is sampled, cast and referenced once for all kernels; kernels with
equal casts share the partial products; wgrad samples only the columns it needs, from their own joint covariance; the
14-bit accumulation runs over whole arrays in place; sites run on `workers` threads (numpy releases the GIL), each with
single-threaded BLAS. `--workers 1` sets nothing and leaves both cores to BLAS. `--cast arithmetic` replaces ml_dtypes'
FP8 casts by three passes of FP32 arithmetic: several times faster, and equally exact. Needs tests/requirements.txt.
"""

import argparse
import json
import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="numpy's throughput on LoKA's probe")
    parser.add_argument("trace")
    parser.add_argument("--draws", type=int, default=16)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--cols", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cast", choices=["ml_dtypes", "arithmetic"], default="ml_dtypes")
    parser.add_argument("--errors", action="store_true", help="also print the errors, one JSON object a line")
    return parser.parse_args()


ARGS = parse()
if ARGS.workers > 1:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when numpy is imported

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "reference"))

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from reference import KERNELS, Cast, Numerics, numerics_of, runs_on  # noqa: E402
from safetensors import safe_open  # noqa: E402

Array = np.ndarray
GEMMS = ("fprop", "dgrad", "wgrad")
STEP, BLOCK = 32, 128
KEEP_14_BITS = np.uint32(0xFFFFFC00)
FP8 = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0, 3, -6), "e5m2": (ml_dtypes.float8_e5m2, 57344.0, 2, -14)}
DECODE = {name: np.arange(256, dtype=np.uint8).view(fp8[0]).astype(np.float32) for name, fp8 in FP8.items()}


class Clock:
    """Seconds per activity, summed over threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, activity: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[activity] += time.perf_counter() - start


# --- casts -------------------------------------------------------------------------------------------


@dataclass
class Operand:
    """Values on the grid [rows, depth]; `outer` scales a row, `block` [blocks, rows] a block of 128."""

    values: Array
    outer: Array | np.float32 | None = None
    block: Array | None = None


def to_grid(x: Array, name: str) -> Array:
    """Rounds `x`, which may be overwritten. Nothing exceeds the largest value by more than FP32's rounding, so no clip."""
    dtype, _, mantissa, lowest = FP8[name]
    if ARGS.cast == "ml_dtypes":
        return DECODE[name].take(x.astype(dtype).view(np.uint8))
    # Adding 1.5 * 2^23 steps of the value's binade leaves whole steps; FP32 rounds to nearest even.
    magic = (x.view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
    np.maximum(magic, np.float32(2.0**lowest), out=magic)
    magic *= np.float32(1.5 * 2.0 ** (23 - mantissa))
    x += magic
    x -= magic
    return x


def round_mantissa(x: Array, dropped: int) -> Array:
    bits = x.view(np.uint32)
    out = bits >> np.uint32(dropped)
    out &= np.uint32(1)
    out += bits
    out += np.uint32((1 << (dropped - 1)) - 1)
    out &= np.uint32(0xFFFFFFFF << dropped & 0xFFFFFFFF)
    return out.view(np.float32)


def to_bf16(x: Array) -> Array:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def scale_of(amax: Array, cast: Cast) -> Array:
    scale = np.maximum(amax / np.float32(FP8[cast.format][1]), np.float32(1e-12))
    if cast.pow2:
        mantissa, exponent = np.frexp(scale)
        scale = np.ldexp(np.float32(1), exponent - (mantissa == 0.5))
    return scale


def amax_of(x: Array, axis: int | tuple[int, ...] | None) -> Array:
    return np.maximum(x.max(axis=axis), -x.min(axis=axis))


def quantise(x: Array, cast: Cast, tensor_amax: float) -> Operand:
    """`tensor_amax`: of the whole tensor, of which `x` is a part."""
    if cast.format == "bf16":
        return Operand(to_bf16(x))
    if cast.format == "tf32":
        return Operand(round_mantissa(x, 13))
    rows, depth = x.shape
    if cast.granularity == "tensor":
        scale = scale_of(np.maximum(amax_of(x, None), np.float32(tensor_amax)), cast)
        return Operand(to_grid(x / scale, cast.format), outer=scale)
    if cast.granularity == "row":
        scale = scale_of(amax_of(x, 1), cast)
        return Operand(to_grid(x / scale[:, None], cast.format), outer=scale)
    blocks = x.reshape(rows, depth // BLOCK, BLOCK)
    amax = amax_of(blocks, 2)
    if cast.granularity == "128x128":
        starts = np.arange(0, rows, BLOCK)
        amax = np.repeat(np.maximum.reduceat(amax, starts, axis=0), BLOCK, axis=0)[:rows]
    scale = scale_of(amax, cast)
    return Operand(to_grid(blocks / scale[:, :, None], cast.format).reshape(rows, depth), block=np.ascontiguousarray(scale.T))


# --- the emulated GEMM -------------------------------------------------------------------------------


def partial_products(a: Operand, b: Operand) -> Array:
    """[depth / 32, rows, cols]: what one tensor-core instruction sums."""
    depth = a.values.shape[1]
    left, right = a.values, b.values
    if depth % BLOCK:
        padding = ((0, 0), (0, -depth % BLOCK))
        left, right = np.pad(left, padding), np.pad(right, padding)
    left, right = (v.reshape(len(v), -1, STEP) for v in (left, right))
    return left.transpose(1, 0, 2) @ right.transpose(1, 2, 0)


def truncated_sum(parts: Array) -> Array:
    """Sums over the axis before the last two, cut to 14 significant bits after each step."""
    register = parts[..., 0, :, :].copy()
    bits = register.view(np.uint32)
    bits &= KEEP_14_BITS
    for step in range(1, parts.shape[-3]):
        register += parts[..., step, :, :]
        bits &= KEEP_14_BITS
    return register


def accumulate(parts: Array, a: Operand, b: Operand, how: Numerics) -> Array:
    if how.accumulation == "fast":
        out = truncated_sum(parts)
    else:
        blocks = truncated_sum(parts.reshape(-1, BLOCK // STEP, *parts.shape[1:]))
        if a.block is not None and b.block is not None:
            blocks *= a.block[:, :, None]
            blocks *= b.block[:, None, :]
        out = blocks.sum(axis=0)
    return out


def finish(out: Array, a: Operand, b: Operand, how: Numerics) -> Array:
    if a.outer is not None and b.outer is not None:
        out *= a.outer[:, None] if np.ndim(a.outer) else a.outer
        out *= b.outer
    return to_bf16(out) if how.output == "bf16" else out


# --- what follows the linear -------------------------------------------------------------------------


def normalise(x: Array, op: dict[str, Any]) -> Array:
    if op["op"] == "layer_norm":
        x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + op.get("eps", 1e-5))


POINTWISE = {
    "relu": lambda x: np.maximum(x, 0),
    "swish": lambda x: x / (1 + np.exp(-x)),
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def run_tail(x: Array, site: "Site") -> Array:
    x = x if site.bias is None else x + site.bias
    for op in site.tail:
        if op["op"] in ("layer_norm", "rms_norm"):
            x = normalise(x, op)
            if site.gamma is not None:
                x = x * site.gamma + site.beta
        elif op["op"] in POINTWISE:
            x = POINTWISE[op["op"]](x)
        else:
            break
    return x


# --- a site and its samples --------------------------------------------------------------------------


class Site:
    def __init__(self, trace: Any, manifest: dict[str, Any], amax_of_next: float):
        self.id, self.m, self.k, self.n = (manifest[key] for key in ("id", "m", "k", "n"))
        self.tail, self.amax_of_next = manifest["tail"], amax_of_next
        names = set(trace.keys())

        def read(name: str) -> Array | None:
            full = f"{self.id}/{name}"
            return trace.get_tensor(full).astype(np.float32) if full in names else None

        self.weight, self.bias, self.cross = read("weight"), read("bias"), read("cross_cov")
        self.gamma, self.beta = read("tail.gamma"), read("tail.beta")
        self.mean, self.factor, self.diagonal, self.amax = {}, {}, {}, {}
        for kind in ("input", "grad_output"):
            if (mean := read(f"{kind}.mean")) is None:
                continue
            self.mean[kind] = mean
            full = read(f"{kind}.cov")
            if full is None:
                self.factor[kind], self.diagonal[kind] = read(f"{kind}.cov_factor"), read(f"{kind}.cov_diag")
            else:
                values, vectors = np.linalg.eigh(full.astype(np.float64))
                self.factor[kind] = (vectors * np.sqrt(np.maximum(values, 0))).astype(np.float32)
                self.diagonal[kind] = np.zeros(len(values), np.float32)
            amax = read(f"{kind}.amax")
            self.amax[kind] = 0.0 if amax is None else float(amax[0])
        self.amax["weight"] = float(np.abs(self.weight).max())
        self.rng = np.random.Generator(np.random.SFC64([ARGS.seed, *self.id.encode()]))

    def gemms(self) -> tuple[str, ...]:
        return GEMMS if "grad_output" in self.mean else GEMMS[:1]

    def sample_rows(self, kind: str, rows: int) -> Array:
        factor, diagonal = self.factor[kind], self.diagonal[kind]
        x = self.rng.standard_normal((rows, len(diagonal)), dtype=np.float32)
        x *= np.sqrt(diagonal)
        x += self.rng.standard_normal((rows, factor.shape[1]), dtype=np.float32) @ factor.T
        x += self.mean[kind]
        return x

    def sample_columns(self, rows: int, cols: int) -> tuple[Array, Array]:
        """`rows` columns of the gradient and `cols` of the input over the whole batch, transposed: [rows, m], [cols, m]."""
        picks = {"grad_output": self.rng.permutation(self.n)[:rows], "input": self.rng.permutation(self.k)[:cols]}
        blocks = []
        for kind, pick in picks.items():
            factor = self.factor[kind][pick].astype(np.float64)
            blocks.append(factor @ factor.T + np.diag(self.diagonal[kind][pick]))
        g, x = picks.values()
        cross = np.zeros((len(g), len(x))) if self.cross is None else self.cross[np.ix_(g, x)]
        values, vectors = np.linalg.eigh(np.block([[blocks[0], cross], [cross.T, blocks[1]]]))
        root = (vectors * np.sqrt(np.maximum(values, 0))).astype(np.float32)
        both = root @ self.rng.standard_normal((len(root), self.m), dtype=np.float32)
        both += np.concatenate([self.mean["grad_output"][g], self.mean["input"][x]])[:, None]
        return both[: len(g)], both[len(g) :]


# --- probing -----------------------------------------------------------------------------------------


class Reference:
    """One draw's exact output and what every kernel's error is measured with."""

    def __init__(self, a: Array, b64_t: Array, site: Site, gemm: str):
        self.exact = a.astype(np.float64) @ b64_t
        magnitude = np.abs(self.exact)
        self.used = None if magnitude.all() else magnitude != 0
        self.zeros = 0 if self.used is None else int(np.count_nonzero(~self.used))
        self.inverse = np.divide(1, magnitude, out=magnitude, where=True if self.used is None else self.used)
        self.norm = float(np.linalg.norm(self.exact))
        self.block = run_tail(self.exact, site) if gemm == "fprop" and site.tail else None
        self.block_norm = None if self.block is None else float(np.linalg.norm(self.block))

    def errors(self, out: Array, site: Site, gemm: str) -> dict[str, float]:
        error = out - self.exact
        magnitude = np.abs(error)
        relative = magnitude * self.inverse
        relative = relative.ravel() if self.used is None else relative[self.used]
        figures = {"mere": relative.mean(), "rel_l2": np.linalg.norm(error) / self.norm, "max_abs": magnitude.max(), "zeros": self.zeros}
        relative.partition(relative.size // 2)
        figures["median_rel"] = relative[relative.size // 2]  # the upper of the two middle ones
        if gemm == "fprop" and "grad_output" in site.mean:
            error = error.astype(np.float32)
            along = error @ site.factor["grad_output"]
            cost = np.vdot(along, along) + np.square(error).sum(axis=0) @ site.diagonal["grad_output"]
            shift = error @ site.mean["grad_output"]
            figures["loss_cost"] = 0.5 * float(cost + shift @ shift) / len(error)
        return figures

    def block_error(self, out: Array, site: Site, cast: Cast) -> float:
        y = run_tail(out, site)
        q = quantise(y, cast, site.amax_of_next) if y.shape[1] % BLOCK == 0 or "128" not in cast.granularity else Operand(y)
        values = q.values
        if q.outer is not None:
            values *= q.outer[:, None] if np.ndim(q.outer) else q.outer
        elif q.block is not None:
            values = (values.reshape(len(values), -1, BLOCK) * q.block.T[:, :, None]).reshape(values.shape)
        return float(np.linalg.norm(values - self.block)) / self.block_norm


def probe(site: Site, gemm: str, clock: Clock) -> tuple[int, int, float, list[dict[str, Any]]]:
    """(elements, elements if every kernel name counted, floating-point operations, rows of errors)."""
    shape = {"fprop": (site.k, site.n), "dgrad": (site.n, site.k), "wgrad": (site.m, site.k)}[gemm]
    kernels: dict[Numerics, list[str]] = defaultdict(list)
    for name, (recipe, fast) in KERNELS.items():
        how = numerics_of(recipe, fast, gemm)
        if runs_on(how, *shape):
            kernels[how].append(name)
    shared: dict[tuple[Cast, Cast], list[Numerics]] = defaultdict(list)
    for how in kernels:
        shared[how.a, how.b].append(how)
    kind_a = "input" if gemm == "fprop" else "grad_output"
    kind_b = "input" if gemm == "wgrad" else "weight"
    if gemm != "wgrad":
        with clock("cast"):
            b = np.ascontiguousarray(site.weight if gemm == "fprop" else site.weight.T)
            cast_b = {cast: quantise(b, cast, site.amax["weight"]) for _, cast in shared}
        b64_t = b.astype(np.float64).T
    draws: dict[Numerics, list[dict[str, float]]] = {how: [] for how in kernels}
    elements = by_name = 0
    operations = 0.0
    for _ in range(ARGS.draws):
        with clock("sample"):
            if gemm == "wgrad":
                a, b = site.sample_columns(ARGS.rows, ARGS.cols)
            else:
                a = site.sample_rows(kind_a, ARGS.rows)
        with clock("reference"):
            reference = Reference(a, b.astype(np.float64).T if gemm == "wgrad" else b64_t, site, gemm)
        with clock("cast"):
            cast_a = {cast: quantise(a, cast, site.amax[kind_a]) for cast in {cast for cast, _ in shared}}
            if gemm == "wgrad":
                cast_b = {cast: quantise(b, cast, site.amax[kind_b]) for cast in {cast for _, cast in shared}}
        for (left, right), group in shared.items():
            qa, qb = cast_a[left], cast_b[right]
            with clock("matmul"):
                plain = group[0].accumulation == "fp32"
                product = qa.values @ qb.values.T if plain else partial_products(qa, qb)
            for how in group:
                with clock("accumulate"):
                    out = finish(product if plain else accumulate(product, qa, qb, how), qa, qb, how)
                with clock("metrics"):
                    figures = reference.errors(out, site, gemm)
                if reference.block is not None:
                    with clock("block"):
                        figures["block_rel_l2"] = reference.block_error(out, site, how.a)
                draws[how].append(figures)
                elements += out.size
                by_name += out.size * len(kernels[how])
                operations += 2.0 * out.size * qa.values.shape[1]
    rows = [
        {"site": site.id, "gemm": gemm, "numerics": how.name(), "kernels": kernels[how]}
        | {metric: float(np.mean([draw[metric] for draw in all_draws])) for metric in all_draws[0]}
        for how, all_draws in draws.items()
    ]
    return elements, by_name, operations, rows


def sgemm_gflops(size: int = 2048, repeats: int = 5) -> float:
    """One BLAS call's best rate, on as many cores as BLAS was given."""
    a = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2e-9 * size**3 / best


def main() -> None:
    start = time.perf_counter()
    with safe_open(ARGS.trace, "numpy") as trace:
        manifests = json.loads(trace.metadata()["loka.trace"])["sites"]
        names = set(trace.keys())
        amax = {m["id"]: float(trace.get_tensor(f"{m['id']}/input.amax")[0]) for m in manifests if f"{m['id']}/input.amax" in names}
        sites = [Site(trace, m, amax.get(m["feeds"][0], 0.0) if m["feeds"] else 0.0) for m in manifests]
    clocks = [{gemm: Clock() for gemm in GEMMS} for _ in sites]

    def work(index: int) -> dict[str, tuple[int, int, float, list[dict[str, Any]]]]:
        return {gemm: probe(sites[index], gemm, clocks[index][gemm]) for gemm in sites[index].gemms()}

    with ThreadPoolExecutor(ARGS.workers) as pool:
        results = list(pool.map(work, range(len(sites))))
    seconds = time.perf_counter() - start

    threads = ARGS.workers if ARGS.workers > 1 else 1
    activity: dict[str, float] = defaultdict(float)
    per_gemm: dict[str, dict[str, float]] = {}
    for gemm in GEMMS:
        busy = sum(s for clock in clocks for s in clock[gemm].seconds.values())
        elements = sum(result[gemm][0] for result in results if gemm in result)
        per_gemm[gemm] = {"elements": elements, "thread_seconds": round(busy, 3), "elements_per_second": round(elements / (busy / threads)) if busy else 0}
        for clock in clocks:
            for name, value in clock[gemm].seconds.items():
                activity[name] += value
    elements, by_name, operations = (sum(r[i] for result in results for r in result.values()) for i in range(3))
    gemm_gflops = operations * 1e-9 * threads / (activity["matmul"] + activity["accumulate"])
    peak = sgemm_gflops() * threads
    print(json.dumps({
        "bench": "numpy_probe", "seconds": round(seconds, 3), "elements": elements, "elements_per_second": round(elements / seconds),
        "elements_by_kernel_name": by_name, "gemms": per_gemm, "thread_seconds": {k: round(v, 3) for k, v in sorted(activity.items())},
        "gemm_gflops": round(gemm_gflops, 1), "sgemm_gflops": round(peak, 1), "share_of_sgemm": round(gemm_gflops / peak, 4),
        "draws": ARGS.draws, "rows": ARGS.rows, "cols": ARGS.cols, "workers": ARGS.workers, "cast": ARGS.cast,
        "max_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__,
    }))  # fmt: skip
    if ARGS.errors:
        for result in results:
            for _, _, _, rows in result.values():
                for row in rows:
                    print(json.dumps(row))


if __name__ == "__main__":
    main()
