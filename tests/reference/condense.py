"""What a comparison needs of reference.py's output: its JSON lines in on stdin, shorter ones out, six digits a number.

    python tests/reference/reference.py TRACE --sites ... --draws 12 --seed 11 --rows 0 --json | python tests/reference/condense.py > tests/reference/expected.jsonl
"""

import json
import sys

import ml_dtypes
import numpy as np

PER_DRAW = ("error_sq", "ref_sq", "mere", "mere_body", "mere_beyond", "median_rel", "loss_cost")


def condensed(row: dict) -> dict:
    short = {key: row[key] for key in ("site", "gemm", "m", "k", "n", "seed", "numerics", "kernels")}
    draws = {name: row[name]["draws"] for name in PER_DRAW if row[name]}
    return short | {name: [float(f"{value:.6g}") for value in values] for name, values in draws.items()}


if __name__ == "__main__":
    print(json.dumps({"numpy": np.__version__, "ml_dtypes": ml_dtypes.__version__}))
    for line in sys.stdin:
        print(json.dumps(condensed(json.loads(line)), separators=(",", ":")))
