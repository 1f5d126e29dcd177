"""Makes the plans beside this file with the real `loka`, out of a small trace that it writes first.

    python python/tests/data/make_plans.py target/release/loka      (needs numpy, safetensors)

ranker.plan.json: the model of python/tests/ranker.py as it is; modded.plan.json: the same with all three mods.
draft.plan.json: the first under a policy that asks for two approvals, submitted as version 1; approved.plan.json: that one,
signed by two.
edited.plan.json: the first with two kernels changed by hand. digests.json: JSON of every kind, no plan, with the digest
that `loka` takes of it; and the one that it takes of the edited plan.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).parent
SITES = {"bottom.0": (128, 256), "bottom.3": (256, 128), "top.0": (128, 64), "top.2": (64, 1)}
TAIL = [{"op": "layer_norm", "eps": 1e-5, "affine": False}, {"op": "swish"}]
TAILS = {"bottom.0": TAIL, "bottom.3": TAIL, "top.0": [{"op": "relu"}], "top.2": []}
OVERRIDES = {
    "bottom.0": ("cublaslt/fp8-rowwise", "cublaslt/fp8-tensorwise", "cublaslt/fp8-rowwise+fast"),
    "bottom.3": ("cublaslt/fp8-blockwise", "cublaslt/fp8-blockwise", "cublaslt/fp8-blockwise"),
    "top.0": ("cublaslt/fp8-tensorwise+fast", "cublaslt/bf16", "cublaslt/bf16"),
}
NUMBERS = [
    -0.0, 0.0, 1.0, 1, -1, 0.1, 1 / 3, 2.5e-5, 1e-5, 9.999e-6, 3.1e-6, 1e-7, 1e-10, 6.6e-300, 5e-324, 1e15, 1e16,
    1.5e17, 123456789012345680.0, 9007199254740993, 1e22, 1e23, 1.7976931348623157e308, 2**63, 2**64 - 1, -(2**63),
    2**64,
]  # fmt: skip
STRINGS = ["", "é", "\U0001f600", "\u2028", "\x7f", "a\"b\\c/\n\r\t\b\f\x00\x1f", "\uffff"]


def write_trace(path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {}
    for name, (k, n) in SITES.items():
        for part, size in (("input", k), ("grad_output", n)):
            tensors[f"{name}/{part}.count"] = np.array([4096], np.int64)
            tensors[f"{name}/{part}.mean"] = rng.normal(0.2, 0.1, size).astype(np.float32)
            tensors[f"{name}/{part}.cov"] = np.eye(size, dtype=np.float32)
        tensors[f"{name}/weight"] = rng.normal(0, k**-0.5, (n, k)).astype(np.float32)
        tensors[f"{name}/bias"] = np.zeros(n, np.float32)
    manifest = {
        "version": 1,
        "model": {"name": "ranker “é”", "family": "mlp", "framework": "pytorch", "parameters": 74241},
        "run": {"id": "tiny", "step": 100, "every": 100},
        "loss": {"name": "log_loss", "value": 0.5},
        "sites": [
            {"id": name, "m": 256, "k": k, "n": n, "dtype": "f32", "bias": True, "tail": TAILS[name], "head": n == 1}
            for name, (k, n) in SITES.items()
        ],
    }
    save_file(tensors, path, metadata={"loka.trace": json.dumps(manifest)})


def make_plan(loka: str, trace: Path, mods: str, overrides: dict, out: Path) -> None:
    results = trace.parent / "r.results.parquet"
    draws = ["--kernels", "cublaslt/*", "--engine", "cpu", "--min-draws", "4", "--max-draws", "4"]
    probe = [loka, "probe", trace, "--out", results, "--mods", mods, *draws]
    subprocess.run(probe, check=True, stdout=subprocess.DEVNULL)
    asked = []
    for site, kernels in overrides.items():
        for gemm, kernel in zip(("fprop", "dgrad", "wgrad"), kernels):
            asked += ["--override", f"{site}:{gemm}={kernel}"]
    plan = [loka, "plan", results, "--out", out, "--policy", "paper", "--mods", mods, "--name", "ranker", *asked]
    subprocess.run(plan, check=True, stdout=subprocess.DEVNULL)


def make_signed(loka: str, folder: Path) -> None:
    """Keys of a moment: nobody has them afterwards."""
    results, policy, draft, approved = (
        folder / "r.results.parquet", folder / "two.policy.json", HERE / "draft.plan.json", HERE / "approved.plan.json"
    )
    two = {"name": "two", "metric": "mere", "max_error": 0.2, "approval": {"approvers": 2}}
    policy.write_text(json.dumps(two))
    put_up = ["--policy", policy, "--name", "ranker", "--release", "1", "--author", "Olga"]
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([loka, "plan", results, "--out", draft, *put_up], **quiet)
    plan = draft
    for name, note in (("Anna “é”", "looks right"), ("Bo", "")):
        key = folder / f"{name}.key.json"
        subprocess.run([loka, "key", "new", "--name", name, "--out", key], **quiet)
        subprocess.run([loka, "approve", plan, "--key", key, "--note", note, "--out", approved], **quiet)
        plan = approved


def digest_by(loka: str, path: Path, results: Path) -> str:
    """`loka check` says what digest it takes of a text, also when the text is no plan beyond its first keys."""
    said = subprocess.run([loka, "check", path, "--results", results], capture_output=True, text=True).stderr
    return re.search(r"content's is (sha256:[0-9a-f]{64})", said).group(1)


def make_digests(loka: str, folder: Path) -> None:
    results, path = folder / "r.results.parquet", folder / "n.json"
    top = {"format": "loka-plan", "version": 1}
    text = json.dumps({**top, "b": NUMBERS, "a": {key: [] for key in STRINGS}, "c": STRINGS})
    path.write_text(text)
    plan = (HERE / "ranker.plan.json").read_text(encoding="utf-8")
    edited = HERE / "edited.plan.json"
    plan = plan.replace('"kernel": "cublaslt/fp8-blockwise"', '"kernel": "cublaslt/fp8-rowwise"')
    edited.write_text(plan, encoding="utf-8")
    digests = {"text": text, "digest": digest_by(loka, path, results), "edited": digest_by(loka, edited, results)}
    (HERE / "digests.json").write_text(json.dumps(digests, indent=1) + "\n")


def main() -> None:
    loka = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "tiny.trace.safetensors"
        write_trace(trace)
        make_plan(loka, trace, "", OVERRIDES, HERE / "ranker.plan.json")
        make_signed(loka, Path(folder))
        make_plan(loka, trace, "no_bias,block_norm,hard_swish", OVERRIDES, HERE / "modded.plan.json")
        make_digests(loka, Path(folder))


if __name__ == "__main__":
    main()
