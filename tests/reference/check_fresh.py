"""The binary against reference.py on draws that nobody chose: one site, every numerics and direction, a new seed.

    python tests/reference/check_fresh.py LOKA TRACE [--site net.layers.1.fmb.mlp.0] [--draws 6] [--seed N]

tests/tests/numbers/reference.rs compares more, with stored draws of the reference. Here rel_l2, pooled: within 6 standard errors of
both (few draws: Student's t, and this runs daily) and 1.5 % where a scale follows the tensor's amax. Exit 1 with the rows that differ.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from reference import Site, probe
from safetensors import safe_open

OURS = 32
T_QUANTILE = 2.0395  # 97.5 % of Student's t with 31 degrees


def pooled(row: dict) -> tuple[float, float]:
    """sqrt(sum errors / sum references) and its standard error from the influence of each draw."""
    error, ref = np.array(row["error_sq"]["draws"]), np.array(row["ref_sq"]["draws"])
    value = np.sqrt(error.mean() / ref.mean())
    influence = (error - value**2 * ref) / (2 * value * ref.mean())
    return value, float(np.sqrt(np.sum(influence**2) / (len(error) * (len(error) - 1))))


def fresh(args: argparse.Namespace, gemm: str) -> list[dict]:
    with safe_open(args.trace, "numpy") as trace:
        manifest = json.loads(trace.metadata()["loka.trace"])["sites"]
        site = Site(trace, next(site for site in manifest if site["id"] == args.site))
        return probe(site, gemm, args.draws, args.seed, 2048)


def main() -> int:
    parser = argparse.ArgumentParser(description="loka probe against a fresh run of the reference")
    parser.add_argument("loka")
    parser.add_argument("trace")
    # Every numerics runs on its shape (256 and 512 features), and a draw is half of the work that it is at the sample's largest.
    parser.add_argument("--site", default="net.layers.1.fmb.mlp.0")
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        command = [args.loka, "probe", args.trace, "--out", str(Path(folder) / "r.results.parquet"), "--json", "--sites", args.site]
        command += ["--sampler", "gaussian", "--min-draws", str(OURS), "--max-draws", str(OURS), "--seed", str(args.seed)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    ours = {(row["gemm"], row["kernel"]): row["error"] for row in map(json.loads, lines) if "kernel" in row}
    with ProcessPoolExecutor() as pool:
        rows = [row for found in pool.map(partial(fresh, args), ("fprop", "dgrad", "wgrad")) for row in found]
    failed = 0
    for row in rows:
        estimate = ours[row["gemm"], row["kernels"][0]]["rel_l2"]
        value, error = pooled(row)
        allowed = 6 * np.hypot((estimate["hi"] - estimate["value"]) / T_QUANTILE, error) + (0.015 * value if ":tensor" in row["numerics"] else 0)
        if abs(estimate["value"] - value) > allowed:
            failed += 1
            print(f"{args.site} {row['gemm']} {row['numerics']}: rel_l2 {estimate['value']:.5g}, numpy {value:.5g}, more than {allowed:.2g} apart")
    print(f"seed {args.seed}: {len(rows) - failed} of {len(rows)} numerics of {args.site} agree with numpy")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
