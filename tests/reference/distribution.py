"""What the distribution and drift views show of a site, computed a second time: numpy and ml_dtypes, sharing nothing with LoKA's Rust.

Takes a trace (format version 1) and sites; gives one JSON object a site and operand: shares of real values that a cast turns
to zero, makes subnormal or cuts off, for every format and granularity; the smallest, median and largest scale; the features
that reach at least twice as far as the median one; and along the recorded series, with the body of the histogram fixed,
the shares under each step's tensor scale at the first, the middle and the last step (bins split along the slope of their neighbours).

    python tests/reference/distribution.py > tests/reference/distribution.jsonl

tests/tests/numbers/distribution.rs holds LoKA against the result. Needs numpy, ml_dtypes.
"""

import json
from pathlib import Path

import ml_dtypes
import numpy as np

TRACES = Path(__file__).resolve().parents[2] / "sample-traces"
SITES = [("wukong-clicks", "net.layers.0.fmb.mlp.3"), ("wukong-clicks", "net.top.2"), ("wukong-drift", "layers.2.fmb.mlp.6"),
         ("dhen-counters", "tokens.bottom.0")]  # fmt: skip
# dtype, largest, smallest normal, from where nearest-even would give more than the largest (a tie goes to even).
FORMATS = {
    "E4m3": (ml_dtypes.float8_e4m3fn, 448.0, 2.0**-6, lambda v: v > 464),
    "E5m2": (ml_dtypes.float8_e5m2, 57344.0, 2.0**-14, lambda v: v >= 61440),
}
GROUPS = {"Tensor": None, "Row": (1, None), "Block1x128": (1, 128), "Block128x128": (128, 128)}


def load(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    manifest = json.loads(header.pop("__metadata__")["loka.trace"])
    dtypes = {"F32": np.float32, "F64": np.float64, "BF16": ml_dtypes.bfloat16, "I64": np.int64}
    body = raw[8 + size :]
    read = lambda of: np.frombuffer(body[slice(*of["data_offsets"])], dtypes[of["dtype"]]).reshape(of["shape"])
    return manifest, {name: read(of) for name, of in header.items()}


def group_amax(x: np.ndarray, granularity: str, tensor_amax: np.float32) -> np.ndarray:
    if granularity == "Tensor":
        return np.array([[max(np.abs(x).max(), tensor_amax)]], np.float32)
    high, wide = GROUPS[granularity]
    amax = np.maximum.reduceat(np.abs(x), np.arange(0, x.shape[0], high), axis=0)
    return np.maximum.reduceat(amax, np.arange(0, x.shape[1], wide or x.shape[1]), axis=1)


def spread(scales: np.ndarray, granularity: str, shape: tuple[int, int]) -> np.ndarray:
    if granularity == "Tensor":
        return np.broadcast_to(scales, shape)
    high, wide = GROUPS[granularity]
    return np.repeat(np.repeat(scales, high, axis=0), wide or shape[1], axis=1)[: shape[0], : shape[1]]


def cast(x: np.ndarray, format: str, granularity: str, tensor_amax: np.float32) -> dict:
    dtype, largest, normal, cut = FORMATS[format]
    scale = np.ones((1, 1), np.float32)
    if granularity != "None":
        scale = np.maximum(group_amax(x, granularity, tensor_amax) / np.float32(largest), np.float32(1e-12))
    value = x / (spread(scale, granularity, x.shape) if granularity != "None" else scale)
    stored = np.abs(np.clip(value, -largest, largest).astype(dtype).astype(np.float32))
    some = np.sort(scale[scale > np.float32(1e-12)])
    return {
        "format": format, "granularity": granularity,
        "underflow": float(((stored == 0) & (x != 0)).mean()),
        "subnormal": float(((stored > 0) & (stored < normal)).mean()),
        "saturated": float(cut(np.abs(value)).mean()),
        "scales": [float(some[0]), float(some[len(some) // 2]), float(some[-1])] if some.size else None,
    }  # fmt: skip


def slope(hist: np.ndarray, i: int) -> float:
    """s of the density x^(s-1) in bin i of 80, from the bins beside it; 1 is even."""
    at = lambda j: hist[1 + j] if 0 <= j < 80 else 0
    if i and at(i - 1) and at(i + 1):
        found = np.log2(at(i + 1) / at(i - 1)) / 2
    elif i and at(i - 1) and at(i - 2):
        found = np.log2(at(i - 1) / at(i - 2))
    else:
        found = 1.0
    return float(np.clip(found, -6, 6))


def up_to(hist: np.ndarray, limit: float, amax: float) -> float:
    """Share of values other than zero whose magnitude is at most `limit`."""
    total, below = hist.sum(), 0.0
    for i, count in enumerate(hist[1:81]):
        low, high = (0.0 if i == 0 else 2.0 ** (i - 40)), 2.0 ** (i - 39)
        high = min(high, amax) if amax > low else high
        if limit >= high:
            below += count
        elif limit > low:
            s = slope(hist, i)
            whole, part = (np.log(high / low), np.log(limit / low)) if abs(s) < 1e-9 else (high**s - low**s, limit**s - low**s)
            below += count * part / whole
    return float(below / total)


def drift(hist: np.ndarray, amax: float, series: np.ndarray, format: str) -> list[dict]:
    _, largest, normal, _ = FORMATS[format]
    tiny = {"E4m3": 2.0**-9, "E5m2": 2.0**-16}[format]
    rows = []
    for at in (0, len(series) // 2, len(series) - 1):
        scale = float(max(np.float32(series[at]) / np.float32(largest), np.float32(1e-12)))
        zero = up_to(hist, tiny / 2 * scale, amax)
        rows.append({"at": at, "underflow": zero, "subnormal": up_to(hist, (normal - tiny / 2) * scale, amax) - zero})
    return rows


def outliers(quantiles: np.ndarray) -> list[list]:
    reach = np.maximum(np.abs(quantiles[:, 0]), np.abs(quantiles[:, -1])).astype(np.float64)
    typical = np.sort(reach)[len(reach) // 2]
    found = [int(i) for i in np.lexsort((np.arange(len(reach)), -reach)) if typical > 0 and reach[i] >= 2 * typical]
    return [[i, float(reach[i] / typical)] for i in found[:10]]


def main() -> None:
    for name, site in SITES:
        manifest, tensors = load(TRACES / f"{name}.trace.safetensors")
        of = lambda part: tensors[f"{site}/{part}"]  # noqa: B023
        for operand, rows, part, series in (
            ("input", "sample.input", "input", "input_amax"),
            ("weight", "weight", "weight", "weight_amax"),
            ("grad_output", "sample.grad_output", "grad_output", "grad_amax"),
        ):
            x = of(rows).astype(np.float32)
            amax = np.abs(x).max() if operand == "weight" else of(f"{part}.amax")[0]
            forms = [cast(x, f, g, np.float32(amax)) for f in FORMATS for g in ("None", *GROUPS)]
            format = "E5m2" if operand == "grad_output" else "E4m3"
            line = {
                "trace": name, "site": site, "operand": operand, "rows": len(x), "amax": float(amax), "casts": forms,
                "outliers": None if operand == "weight" else outliers(of(f"{part}.quantiles")),
                "drift": drift(of(f"{part}.hist"), float(amax), of(f"series.{series}"), format),
            }  # fmt: skip
            print(json.dumps(line, separators=(",", ":")))


if __name__ == "__main__":
    main()
