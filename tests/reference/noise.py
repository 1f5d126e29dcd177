"""Noise share and bias of backward GEMMs, computed a second time: whole batches, every column, nothing shared with LoKA's Rust.

    python tests/reference/noise.py TRACE --site net.top.0 [--kernels GLOB] [--draws 4] [--seed 0]            the figures
    python tests/reference/noise.py TRACE --site net.top.0 --loka LOKA [...]                      held against loka probe

A batch of examples is drawn as reference.py draws it; each example's gradient is g x^T. From these rows themselves: the trace of
their covariance, E|x|^2|g|^2 - |E g x^T|^2 (the mean's square without its own noise), and of dx = g W the trace of its rows'.
The GEMM's error is of the whole output: wgrad |e|^2 over m times the first, dgrad |e|^2 over m times the second. LoKA draws
48 rows, or 60 x 64 columns, takes errors over products' squares, and multiplies by what the trace says of the noise. Exit 1 where the
two differ by more than 6 standard errors of both and 3 % of the share, or .0002 of the bias.
"""

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from reference import KERNELS, Site, emulate, numerics_of, quantise, runs_on
from safetensors import safe_open

OURS = 48
T_QUANTILE = 2.0117  # 97.5 % of Student's t with 47 degrees


def variance_of_mean_times_count(second: float, mean: np.ndarray, count: int) -> float:
    """tr Cov of one row from the mean of squares and the mean, whose square has 1/count of the covariance in it."""
    return (second - float(np.sum(mean.astype(np.float64) ** 2))) * count / (count - 1)


def batch(site: Site, gemm: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float]:
    """Left and right operand, and the noise of the output's sum over the batch."""
    a, b = site.operands(gemm, rng)
    if gemm == "wgrad":  # [n, m] and [k, m]
        products = np.sum(a.astype(np.float64) ** 2, axis=0) * np.sum(b.astype(np.float64) ** 2, axis=0)
        mean = a.astype(np.float64) @ b.astype(np.float64).T / site.m
        return a, b, site.m * variance_of_mean_times_count(float(products.mean()), mean, site.m)
    dx = a.astype(np.float64) @ b.astype(np.float64).T
    return a, b, site.m * variance_of_mean_times_count(float(np.mean(np.sum(dx**2, axis=1))), dx.mean(axis=0), site.m)


def figures(site: Site, gemm: str, wanted: str, draws: int, seed: int) -> list[dict]:
    kernels: dict = {}
    for kernel, (recipe, fast) in KERNELS.items():
        how = numerics_of(recipe, fast, gemm)
        possible = not (recipe == "static" and gemm == "wgrad") and runs_on(how, gemm, site.k, site.n)
        if fnmatch.fnmatchcase(kernel, wanted) and possible:
            kernels.setdefault(how, kernel)
    found: dict = {how: [] for how in kernels}
    for draw in range(draws):
        a, b, noise = batch(site, gemm, np.random.default_rng([seed, draw, 7, *site.id.encode()]))
        ref = a.astype(np.float64) @ b.astype(np.float64).T
        for how in kernels:
            left = quantise(a, how.a, site.static["grad_output"])
            right = quantise(b, how.b, site.static["input"] if gemm == "wgrad" else None)
            error = emulate(left, right, how).astype(np.float64) - ref
            found[how].append((np.vdot(error, error), noise, np.vdot(error, ref), np.vdot(ref, ref)))
    rows = []
    for how, kernel in kernels.items():
        error, noise, slope, square = np.array(found[how]).T
        share, bias = pooled(error, noise), pooled(slope, square)
        rows.append({"site": site.id, "gemm": gemm, "kernel": kernel, "noise_share": share, "bias": bias})
    return rows


def pooled(top: np.ndarray, bottom: np.ndarray) -> tuple[float, float]:
    value = top.mean() / bottom.mean()
    influence = (top - value * bottom) / bottom.mean()
    return float(value), float(np.sqrt(np.sum(influence**2) / (len(top) * (len(top) - 1))))


def probed(loka: str, trace: str, site: str, seed: int, kernels: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [loka, "probe", trace, "--out", str(Path(folder) / "r.results.parquet"), "--json", "--sites", site, "--kernels", kernels]
        command += ["--sampler", "gaussian", "--min-draws", str(OURS), "--max-draws", str(OURS), "--seed", str(seed)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {(row["gemm"], row["kernel"]): row["error"] for row in map(json.loads, lines) if "kernel" in row and row["error"]}


def main() -> int:
    parser = argparse.ArgumentParser(description="Independent computation of noise share and bias")
    parser.add_argument("trace")
    parser.add_argument("--site", default="net.top.0")
    parser.add_argument("--kernels", default="cublaslt/fp8-*wise*", metavar="GLOB")
    parser.add_argument("--gemms", nargs="+", default=["dgrad", "wgrad"], choices=["dgrad", "wgrad"])
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loka", help="the binary to hold against")
    args = parser.parse_args()
    with safe_open(args.trace, "numpy") as trace:
        manifest = json.loads(trace.metadata()["loka.trace"])["sites"]
        site = Site(trace, next(site for site in manifest if site["id"] == args.site))
    ours = probed(args.loka, args.trace, args.site, args.seed, args.kernels) if args.loka else None
    failed = 0
    for row in (row for gemm in args.gemms for row in figures(site, gemm, args.kernels, args.draws, args.seed)):
        (share, share_error), (bias, bias_error) = row["noise_share"], row["bias"]
        if ours is None:
            print(json.dumps(row), flush=True)
            continue
        error = ours[row["gemm"], row["kernel"]]
        found = {"noise_share": error["noise"]["share"], "bias": error["bias"]}
        wanted = {"noise_share": (share, share_error, 0.03 * share), "bias": (bias, bias_error, 2e-4)}
        for metric, (value, standard, allowance) in wanted.items():
            estimate = found[metric]
            allowed = 6 * np.hypot((estimate["hi"] - estimate["value"]) / T_QUANTILE, standard) + allowance
            far = abs(estimate["value"] - value) > allowed
            failed += far
            mark = "FAR " if far else ""
            print(f"{mark}{args.site} {row['gemm']} {row['kernel']}: {metric} {estimate['value']:.4e}, numpy {value:.4e} ± {standard:.1e}", flush=True)
    if ours is not None:
        print(f"{failed} of the figures of {args.site} differ from numpy" if failed else f"all figures of {args.site} agree with numpy")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
