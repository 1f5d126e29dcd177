"""Writes a synthetic trace of one very wide linear, by default (2048 x 123200) -> 1024, as the widest of the
recommendation shapes: to see that a probe of it fits the memory that it should.

    python3 benches/wide_trace.py OUT.trace.safetensors [--m 2048 --k 123200 --n 1024 --rank 16]
"""

import argparse
import json

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    for name, default in (("m", 2048), ("k", 123_200), ("n", 1024), ("rank", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    m, k, n, rank = arguments.m, arguments.k, arguments.n, arguments.rank
    random = np.random.default_rng(0)
    normal = lambda *shape: random.standard_normal(shape, dtype=np.float32)
    site = {"id": "wide", "class": "torch.nn.Linear", "m": m, "k": k, "n": n, "dtype": "bf16", "bias": False,
            "head": False, "tail": [{"op": "layer_norm"}, {"op": "swish"}], "feeds": []}
    manifest = {
        "version": 1,
        "model": {"name": "wide", "family": "synthetic", "framework": "none", "parameters": k * n},
        "run": {"id": "wide", "rank": 0, "world_size": 1, "step": 1, "every": 1, "device": "none"},
        "loss": {"name": "none", "value": 0.5}, "quantile_probs": [0.01, 0.5, 0.99], "sites": [site],
    }
    tensors = {}
    for part, features, scale in (("input", k, 1.0), ("grad_output", n, 1e-4)):
        tensors |= {
            f"wide/{part}.count": np.array([1 << 20], dtype=np.int64),
            f"wide/{part}.mean": 0.2 * scale * normal(features),
            f"wide/{part}.cov_factor": scale * normal(features, rank) / np.float32(np.sqrt(2 * rank)),
            f"wide/{part}.cov_diag": np.full(features, 0.5 * scale**2, dtype=np.float32),
        }
    weight = normal(n, k)
    weight *= np.float32(k**-0.5)
    tensors["wide/weight"] = weight.astype(ml_dtypes.bfloat16)
    save_file(tensors, arguments.out, metadata={"loka.trace": json.dumps(manifest)})


if __name__ == "__main__":
    main()
