"""FP8 errors of a trace's GEMMs, computed a second time: simple numpy, sharing nothing with LoKA's Rust.

Takes a trace (format version 1) and site patterns; gives one JSON object a line for every (site, gemm, numerics):
per-draw lists with mean, median and standard error of mere, its part from errors up to 2 (mere_body), the share of outputs
beyond (mere_beyond), rel_l2, median_rel, max_abs, zeros, (fprop) loss_cost and the sums of squares behind rel_l2;
rel_l2_pooled, which does not depend on how outputs are split into draws; and the names of all catalogue kernels that have
these numerics at this GEMM. A standard error from a few draws is itself uncertain: use Student's t.

    python reference.py TRACE [--sites GLOB]... [--draws 4] [--seed 0] [--rows 2048] [--json]

Gaussian sampler: x = mean + F z + sqrt(d) e over all m rows; amax is over all of them; --rows of fprop's and dgrad's
output are compared (0: all). For wgrad x and g come from their joint correlations, eigen-decomposed with negative
eigenvalues set to 0 (`joint_clipped`: their share of the trace), or independently where the trace has no cross_cov.
Every recipe sees the same draws. References are FP64 products of the unquantised FP32 tensors. Needs numpy, ml_dtypes, safetensors.
"""

import argparse
import fnmatch
import json
import math
import os
from dataclasses import dataclass
from typing import Any

# Products of depth 32 are too small to share: a second BLAS thread only waits, badly so on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from safetensors import safe_open  # noqa: E402

Array = np.ndarray
FP8 = {"e4m3": (ml_dtypes.float8_e4m3fn, 448.0), "e5m2": (ml_dtypes.float8_e5m2, 57344.0)}
METRICS = ("mere", "mere_body", "mere_beyond", "rel_l2", "median_rel", "max_abs", "zeros", "loss_cost", "error_sq", "ref_sq")
BODY = 2.0  # relative errors up to here have a mean that a few draws find; the few beyond decide mere


@dataclass(frozen=True)
class Cast:
    """One operand: format, granularity (none, tensor, row, 1x128, 128x128, static), power-of-two scales."""

    format: str
    granularity: str = "none"
    pow2: bool = False


@dataclass(frozen=True)
class Numerics:
    a: Cast
    b: Cast
    accumulation: str  # fp32, promoted, fast
    output: str  # bf16, f32

    def name(self) -> str:
        part = lambda c: f"{c.format}:{c.granularity}{':pow2' if c.pow2 else ''}"
        return f"{part(self.a)} x {part(self.b)} {self.accumulation} -> {self.output}"


def numerics_of(recipe: str, fast: str, gemm: str) -> Numerics:
    """What a recipe does in a direction. `fast`: never, fprop or always."""
    mode = "fast" if fast == "always" or fast == gemm else "promoted"
    bf16 = Numerics(Cast("bf16"), Cast("bf16"), "fp32", "bf16")
    if recipe == "tf32":
        return Numerics(Cast("tf32"), Cast("tf32"), "fp32", "f32")
    if recipe == "bf16" or (recipe == "rowwise_gw_hp" and gemm == "wgrad"):
        return bf16
    if recipe == "tensorwise":
        gradient = "e4m3" if gemm == "fprop" else "e5m2"
        return Numerics(Cast(gradient, "tensor"), Cast("e4m3", "tensor"), mode, "bf16")
    if recipe == "static":  # no wgrad
        return Numerics(Cast("e4m3", "static", True), Cast("e4m3", "row"), mode, "bf16")
    if recipe == "delayed":
        known = Cast("e4m3", "static", True)
        return Numerics(known, known if gemm == "wgrad" else Cast("e4m3", "tensor"), mode, "bf16")
    pow2 = recipe.endswith("pow2") or recipe == "rowwise_gw_hp"
    if recipe.startswith("rowwise"):
        weight = "tensor" if recipe == "rowwise_gw_hp" and gemm == "dgrad" else "row"
        return Numerics(Cast("e4m3", "row", pow2), Cast("e4m3", weight, pow2), mode, "bf16")
    right = "1x128" if gemm == "wgrad" else "128x128"
    return Numerics(Cast("e4m3", "1x128", pow2), Cast("e4m3", right, pow2), mode, "bf16")


KERNELS = {
    "cublaslt/tf32": ("tf32", "never"), "cublaslt/bf16": ("bf16", "never"), "pytorch/bf16": ("bf16", "never"),
    "cublaslt/fp8-tensorwise": ("tensorwise", "never"), "loka/fp8-tensorwise": ("tensorwise", "never"),
    "cublaslt/fp8-tensorwise+fast": ("tensorwise", "always"), "loka/fp8-tensorwise+fast": ("tensorwise", "always"),
    "pytorch/fp8-tensorwise+fast": ("tensorwise", "always"), "torchao/tensorwise": ("tensorwise", "fprop"),
    "te/current": ("tensorwise", "fprop"), "cublaslt/fp8-rowwise": ("rowwise", "never"),
    "loka/fp8-rowwise": ("rowwise", "never"), "cublaslt/fp8-rowwise+fast": ("rowwise", "always"),
    "loka/fp8-rowwise+fast": ("rowwise", "always"), "pytorch/fp8-rowwise+fast": ("rowwise", "always"),
    "fbgemm/rowwise": ("rowwise", "always"), "torchao/rowwise": ("rowwise_pow2", "fprop"),
    "torchao/rowwise_with_gw_hp": ("rowwise_gw_hp", "fprop"), "cublaslt/fp8-blockwise": ("blockwise", "never"),
    "pytorch/fp8-blockwise": ("blockwise", "never"), "deepgemm/blockwise": ("blockwise", "never"),
    "te/blockwise": ("blockwise_pow2", "never"), "loka/fp8-static+fast": ("static", "always"),
    "cublaslt/fp8-delayed": ("delayed", "never"), "cublaslt/fp8-delayed+fast": ("delayed", "always"),
}  # fmt: skip


def runs_on(numerics: Numerics, gemm: str, k: int, n: int) -> bool:
    """Rows of the batch are padded with zeros; what wgrad stores may have any number of rows, but for blocks."""
    multiple = {"bf16": 1, "tf32": 1}.get(numerics.a.format, 128 if numerics.a.granularity == "1x128" else 16)
    sizes = (k,) if gemm == "wgrad" and multiple == 16 else (k, n)
    return all(size % multiple == 0 for size in sizes)


# --- casts and the emulated GEMM ---------------------------------------------------------------------


def round_bits(x: Array, dropped: int) -> Array:
    """FP32 to fewer mantissa bits, nearest even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.int64)
    bits += (1 << (dropped - 1)) - 1 + ((bits >> dropped) & 1)
    return (bits >> dropped << dropped).astype(np.uint32).view(np.float32)


def static_scale(mean: Array, variance: Array, count: int, amax: float | None, rows: int) -> float:
    """The smallest power of two s with P(a step of `rows` rows has a value beyond 448 s) <= .001: features normal and
    independent; a value that was recorded beyond it counts as one of `count` rows."""
    deviation = np.sqrt(np.maximum(variance, 1e-300))
    upper = np.vectorize(lambda z: 0.5 * math.erfc(z / math.sqrt(2)))
    for exponent in range(-39, 61):
        bound = 448 * 2.0**exponent
        outside = upper((bound - mean) / deviation) + upper((bound + mean) / deviation)
        modelled = -math.expm1(rows * np.sum(np.log1p(-np.minimum(outside, 1 - 1e-15))))
        seen = -math.expm1(rows * math.log1p(-1 / count)) if amax is not None and amax > bound else 0.0
        if max(modelled, seen) <= 1e-3:
            return 2.0**exponent
    raise ValueError("no scale is large enough")


def quantise(x: Array, cast: Cast, static: float | None = None) -> tuple[Array, Array]:
    """Values on the grid and their scales, both [rows, reduced]."""
    if cast.granularity == "static":
        codes = np.clip(x * np.float32(1 / static), -448, 448).astype(ml_dtypes.float8_e4m3fn)
        return codes.astype(np.float32), np.broadcast_to(np.float32(static), x.shape)
    if cast.format in ("bf16", "tf32"):
        return round_bits(x, 16 if cast.format == "bf16" else 13), np.broadcast_to(np.float32(1), x.shape)
    dtype, largest = FP8[cast.format]
    high, wide = {"tensor": x.shape, "row": (1, x.shape[1]), "1x128": (1, 128), "128x128": (128, 128)}[cast.granularity]
    amax = np.maximum.reduceat(np.abs(x), np.arange(0, x.shape[0], high), axis=0)
    amax = np.maximum.reduceat(amax, np.arange(0, x.shape[1], wide), axis=1)
    scale = np.maximum(amax / np.float32(largest), np.float32(1e-12))
    if cast.pow2:
        scale = np.exp2(np.ceil(np.log2(scale.astype(np.float64)))).astype(np.float32)
    scale = np.repeat(np.repeat(scale, high, axis=0), wide, axis=1)[: x.shape[0], : x.shape[1]]
    return np.clip(x / scale, -largest, largest).astype(dtype).astype(np.float32), scale


def truncate14(x: Array) -> None:
    """Towards zero, to 14 significant bits: 13 of FP32's 23 stored ones stay. In place."""
    bits = x.view(np.uint32)
    bits &= np.uint32(0xFFFFFC00)


def aligned_sum(register: Array, a: Array, b: Array) -> Array:
    """One instruction as an H200 does it: the 32 products and the accumulator are aligned to the largest exponent among
    them and each cut towards zero to a multiple of 2^-13 of it; their sum is exact (33 numbers below 2^14 units)."""
    columns = [(np.ascontiguousarray(a[:, d, None]), np.ascontiguousarray(b[None, :, d])) for d in range(a.shape[1])]
    largest, product = np.abs(register), np.empty_like(register)
    for left, right in columns:
        np.multiply(left, right, out=product)
        np.maximum(largest, np.abs(product, out=product), out=largest)
    exponent = np.where(largest > 0, np.frexp(largest)[1] - 1, 0)
    up, down = np.ldexp(np.float32(1), 13 - exponent), np.ldexp(np.float32(1), exponent - 13)
    units = np.trunc(register * up)
    for left, right in columns:
        np.multiply(left, right, out=product)
        product *= up
        units += np.trunc(product, out=product)
    return units * down


def emulate(a: tuple[Array, Array], b: tuple[Array, Array], how: Numerics) -> Array:
    """out[i, j] = sum_d a[i, d] b[j, d] as the tensor core sums it and the kernel stores it. Within the 128 of promoted
    accumulation the cheaper model (docs/concepts/method.md): 32 products exact, the running sum cut to 14 significant bits."""
    (qa, sa), (qb, sb) = a, b
    blocks = how.a.granularity == "1x128"
    if how.accumulation == "fp32":
        out = qa @ qb.T
    elif how.accumulation == "fast":
        out = np.empty((len(qa), len(qb)), np.float32)
        for first in range(0, len(qa), 64):  # rows enough that a tile of all columns stays in the cache
            rows = qa[first : first + 64]
            register = np.zeros((len(rows), len(qb)), np.float32)
            for start in range(0, qa.shape[1], 32):
                register = aligned_sum(register, rows[:, start : start + 32], qb[:, start : start + 32])
            out[first : first + 64] = register
    else:
        out = np.zeros((len(qa), len(qb)), np.float32)
        register = np.zeros_like(out)
        depth = qa.shape[1]
        for start in range(0, depth, 32):
            end = min(start + 32, depth)
            register += qa[:, start:end] @ qb[:, start:end].T
            truncate14(register)
            if end % 128 == 0 or end == depth:
                scales = sa[:, start, None] * sb[None, :, start] if blocks else np.float32(1)
                out += register * scales
                register[:] = 0
    if not blocks:
        out = out * sa[:, :1] * sb[:, 0]
    return round_bits(out, 16) if how.output == "bf16" else out


# --- statistics and samples --------------------------------------------------------------------------


class Site:
    """The tensors of one site in FP64, and draws from them."""

    def __init__(self, trace: Any, manifest: dict[str, Any]):
        self.id, self.m, self.k, self.n = (manifest[key] for key in ("id", "m", "k", "n"))
        names = set(trace.keys())
        read = lambda name: trace.get_tensor(f"{self.id}/{name}").astype(np.float64)
        has = lambda name: f"{self.id}/{name}" in names
        self.weight = read("weight").astype(np.float32)
        self.mean: dict[str, Array] = {}
        self.factor: dict[str, tuple[Array, Array]] = {}
        self.static: dict[str, float] = {}
        for kind in ("input", "grad_output"):
            if has(f"{kind}.mean"):
                self.mean[kind] = read(f"{kind}.mean")
                if has(f"{kind}.cov"):
                    values, vectors = np.linalg.eigh(read(f"{kind}.cov"))
                    self.factor[kind] = vectors * np.sqrt(np.maximum(values, 0)), np.zeros(len(values))
                else:
                    self.factor[kind] = read(f"{kind}.cov_factor"), read(f"{kind}.cov_diag")
                count, amax = (read(f"{kind}.{name}")[0] if has(f"{kind}.{name}") else None for name in ("count", "amax"))
                self.static[kind] = static_scale(self.mean[kind], np.diag(self.covariance(kind)), count, amax, self.m)
        self.joint, self.joint_clipped = None, None
        if has("cross_cov"):
            cross = read("cross_cov")
            covariance = np.block([[self.covariance("input"), cross.T], [cross, self.covariance("grad_output")]])
            # As correlations: eigenvectors of inputs near 1 beside gradients near 1e-5 would give features
            # that never vary (dead units) the rounding noise of the others.
            deviation = np.sqrt(np.diag(covariance))
            scale = np.divide(1, deviation, out=np.zeros_like(deviation), where=deviation > 0)
            values, vectors = np.linalg.eigh(covariance * scale[:, None] * scale)
            self.joint_clipped = float(np.abs(values[values < 0]).sum() / values.sum())
            self.joint = deviation[:, None] * vectors * np.sqrt(np.maximum(values, 0))

    def covariance(self, kind: str) -> Array:
        factor, diagonal = self.factor[kind]
        return factor @ factor.T + np.diag(diagonal)

    def second_moment(self, kind: str) -> Array:
        return self.covariance(kind) + np.outer(self.mean[kind], self.mean[kind])

    def sample(self, kind: str, rng: np.random.Generator) -> Array:
        factor, diagonal = self.factor[kind]
        z, e = rng.standard_normal((self.m, factor.shape[1])), rng.standard_normal((self.m, len(diagonal)))
        return (self.mean[kind] + z @ factor.T + np.sqrt(diagonal) * e).astype(np.float32)

    def sample_pair(self, rng: np.random.Generator) -> tuple[Array, Array]:
        if self.joint is None:
            return self.sample("input", rng), self.sample("grad_output", rng)
        both = rng.standard_normal((self.m, self.joint.shape[1])) @ self.joint.T
        both += np.concatenate([self.mean["input"], self.mean["grad_output"]])
        return both[:, : self.k].astype(np.float32), both[:, self.k :].astype(np.float32)

    def operands(self, gemm: str, rng: np.random.Generator) -> tuple[Array, Array]:
        """Left and right operand, both with the reduced dimension last."""
        if gemm == "fprop":
            return self.sample("input", rng), self.weight
        if gemm == "dgrad":
            return self.sample("grad_output", rng), np.ascontiguousarray(self.weight.T)
        x, g = self.sample_pair(rng)
        return np.ascontiguousarray(g.T), np.ascontiguousarray(x.T)


# --- metrics -----------------------------------------------------------------------------------------


def errors(out: Array, ref: Array, gradient_moment: Array | None) -> dict[str, float]:
    error = out.astype(np.float64) - ref
    used = ref != 0
    relative = np.abs(error[used]) / np.abs(ref[used])
    figures = {
        "mere": relative.mean(), "mere_body": relative[relative <= BODY].sum() / relative.size, "mere_beyond": (relative > BODY).mean(),
        "rel_l2": np.linalg.norm(error) / np.linalg.norm(ref), "median_rel": np.median(relative),
        "max_abs": np.abs(error).max(), "zeros": int((~used).sum()), "error_sq": np.vdot(error, error), "ref_sq": np.vdot(ref, ref),
    }  # fmt: skip
    if gradient_moment is not None:
        figures["loss_cost"] = 0.5 * float(np.sum(gradient_moment * (error.T @ error / len(error))))
    return figures


def summarise(draws: list[dict[str, float]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for metric in METRICS:
        values = [float(draw[metric]) for draw in draws if metric in draw]
        spread = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        out[metric] = {"draws": values, "mean": float(np.mean(values)), "median": float(np.median(values)), "se": spread} if values else None
    out["rel_l2_pooled"] = float(np.sqrt(sum(draw["error_sq"] for draw in draws) / sum(draw["ref_sq"] for draw in draws)))
    return out


def probe(site: Site, gemm: str, num_draws: int, seed: int, rows: int, wanted: str = "*") -> list[dict[str, Any]]:
    kernels: dict[Numerics, list[str]] = {}
    for kernel, (recipe, fast) in KERNELS.items():
        if (recipe == "static" and gemm == "wgrad") or not fnmatch.fnmatchcase(kernel, wanted):
            continue
        how = numerics_of(recipe, fast, gemm)
        if runs_on(how, gemm, site.k, site.n):
            kernels.setdefault(how, []).append(kernel)
    moment = site.second_moment("grad_output") if gemm == "fprop" and "grad_output" in site.mean else None
    draws: dict[Numerics, list[dict[str, float]]] = {how: [] for how in kernels}
    for draw in range(num_draws):
        rng = np.random.default_rng([seed, draw, "fprop dgrad wgrad".split().index(gemm), *site.id.encode()])
        a, b = site.operands(gemm, rng)
        keep = slice(rows if gemm != "wgrad" and rows else None)  # rows are independent: the first are a fair sample
        ref = a[keep].astype(np.float64) @ b.astype(np.float64).T
        static = site.static["input" if gemm == "fprop" else "grad_output"]
        right = site.static["input"] if gemm == "wgrad" else None
        cast_a = {cast: tuple(part[keep] for part in quantise(a, cast, static)) for cast in {how.a for how in kernels}}
        cast_b = {cast: quantise(b, cast, right) for cast in {how.b for how in kernels}}
        for how in kernels:
            draws[how].append(errors(emulate(cast_a[how.a], cast_b[how.b], how), ref, moment))
    common = {"site": site.id, "gemm": gemm, "m": site.m, "k": site.k, "n": site.n, "num_draws": num_draws, "seed": seed}
    common |= {"joint_clipped": site.joint_clipped if gemm == "wgrad" else None}
    return [common | {"numerics": how.name(), "kernels": kernels[how]} | summarise(draws[how]) for how in kernels]


def main() -> None:
    parser = argparse.ArgumentParser(description="Independent computation of LoKA's errors")
    parser.add_argument("trace")
    parser.add_argument("--sites", action="append", metavar="GLOB", help="may be given more than once; default all")
    parser.add_argument("--gemms", nargs="+", default=["fprop", "dgrad", "wgrad"], choices=["fprop", "dgrad", "wgrad"])
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=2048, help="output rows compared in fprop and dgrad; 0: all")
    parser.add_argument("--kernels", default="*", metavar="GLOB", help="draws do not depend on it; default all")
    parser.add_argument("--json", action="store_true", help="one object a line; without it a short table")
    args = parser.parse_args()
    with safe_open(args.trace, "numpy") as trace:
        for manifest in json.loads(trace.metadata()["loka.trace"])["sites"]:
            if not any(fnmatch.fnmatchcase(manifest["id"], glob) for glob in args.sites or ["*"]):
                continue
            site = Site(trace, manifest)
            for gemm in args.gemms if "grad_output" in site.mean else ["fprop"]:
                for row in probe(site, gemm, args.draws, args.seed, args.rows, args.kernels):
                    if args.json:
                        print(json.dumps(row), flush=True)
                    else:
                        cost = f"{row['loss_cost']['mean']:10.3g}" if row["loss_cost"] else ""
                        print(f"{site.id} {gemm} {row['numerics']:58} mere {row['mere']['median']:8.4g}"
                              f" rel_l2 {row['rel_l2']['mean']:8.4g} ± {row['rel_l2']['se'] or 0:.1g}{cost}", flush=True)


if __name__ == "__main__":
    main()
