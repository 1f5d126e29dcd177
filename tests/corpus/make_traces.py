"""Makes the broken traces beside this file and traces.tsv, which says how each must be refused.

    python tests/corpus/make_traces.py        (needs numpy and ml_dtypes)

Every file is a trace of two sites that feed each other, broken in exactly one way. Where only one site is
broken, that is `net.top.0`; `net.top.2` must keep working. The bytes are laid out here and not by the
safetensors library, which would refuse to write most of them.

traces.tsv: file or folder, a tab, the error exactly as `loka` prints it, with paths relative to this folder.
"""

import copy
import json
import struct
from pathlib import Path

import ml_dtypes
import numpy as np

HERE = Path(__file__).parent
SITE = "net.top.0"
K, N = 4, 3
DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32"}

cases = {}  # file or folder -> expected error


def manifest(rank=0):
    def site(name, k, n, feeds):
        return {"id": name, "class": "torch.nn.Linear", "m": 8, "k": k, "n": n, "dtype": "f32", "bias": True,
                "tail": [{"op": "relu"}] if feeds else [], "feeds": feeds, "head": not feeds}

    return {
        "version": 1,
        "model": {"name": "corpus", "family": "mlp", "framework": "numpy", "parameters": 23},
        "run": {"id": "corpus-0", "rank": rank, "world_size": 1, "step": 10, "every": 1, "device": "cpu"},
        "loss": {"name": "log_loss", "value": 0.5},
        "quantile_probs": [0.1, 0.5, 0.9],
        "sites": [site(SITE, K, N, ["net.top.2"]), site("net.top.2", N, 2, [])],
    }


def tensors():
    out = {}
    for name, k, n, full in [(SITE, K, N, True), ("net.top.2", N, 2, False)]:
        for part, size in [("input", k), ("grad_output", n)]:
            out[f"{name}/{part}.count"] = np.array([100], np.int64)
            out[f"{name}/{part}.mean"] = np.arange(size, dtype=np.float32)
            if full:
                out[f"{name}/{part}.cov"] = (0.25 + 1.75 * np.eye(size)).astype(np.float32)
            else:
                out[f"{name}/{part}.cov_factor"] = np.full((size, 2), 0.5, np.float32)
                out[f"{name}/{part}.cov_diag"] = np.ones(size, np.float32)
            out[f"{name}/{part}.quantiles"] = np.arange(size)[:, None] + np.array([[-1, 0, 1]], np.float32)
            out[f"{name}/{part}.hist"] = np.zeros(82, np.int64)
            out[f"{name}/{part}.amax"] = np.array([5], np.float32)
        out[f"{name}/cross_cov"] = np.zeros((n, k), ml_dtypes.bfloat16)
        out[f"{name}/weight"] = np.ones((n, k), ml_dtypes.bfloat16)
        out[f"{name}/bias"] = np.zeros(n, np.float32)
        out[f"{name}/sample.input"] = np.zeros((5, k), np.float16)
        out[f"{name}/sample.grad_output"] = np.zeros((5, n), np.float16)
        out[f"{name}/series.step"] = np.array([0, 5], np.int64)
        out[f"{name}/series.bias_norm"] = np.array([0.1, 0.2], np.float32)
    out = {name: array if array.dtype.name in DTYPES else array.astype(np.float32) for name, array in out.items()}
    return {name: array.astype(np.float32) if "quantiles" in name else array for name, array in out.items()}


def entries_and_data(arrays):
    entries, data = {}, b""
    for name, array in arrays.items():
        raw = array.tobytes()
        entries[name] = {"dtype": DTYPES[array.dtype.name], "shape": list(array.shape),
                         "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    return entries, data


def to_file(entries, data, text):
    header = entries if isinstance(entries, bytes) else json.dumps({"__metadata__": {"loka.trace": text}, **entries}).encode()
    return struct.pack("<Q", len(header)) + header + data


def save(path, raw):
    path = HERE / path
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(raw)


def case(name, error, place=None, change_manifest=None, change_tensors=None, change_header=None, change_file=None):
    """One broken file; `error` without place and file."""
    m, arrays = manifest(), tensors()
    text = json.dumps(m)
    if change_manifest:
        changed = change_manifest(m)
        text = changed if isinstance(changed, str) else json.dumps(m)
    if change_tensors:
        change_tensors(arrays)
    entries, data = entries_and_data(arrays)
    if change_header:
        entries, data = change_header(entries, data) or (entries, data)
    raw = to_file(entries, data, text)
    file = f"{name}.trace.safetensors"
    save(file, change_file(raw) if change_file else raw)
    cases[file] = ": ".join(part for part in [error, place, file] if part)


def site_case(name, error, tensor=None, **changes):
    case(name, error, f"{SITE}/{tensor}" if tensor else SITE, **changes)


def put(tensor, value):
    """The tensor replaced, or changed by a function of it; None takes it out."""
    def change(arrays):
        key = f"{SITE}/{tensor}"
        new = value(arrays[key].copy()) if callable(value) else value
        if new is None:
            arrays.pop(key)
        else:
            arrays[key] = new
    return change


def at(index, value):
    def change(array):
        array[index] = value
        return array
    return change


def set_site(**values):
    return lambda m: m["sites"][0].update(values)


def offsets(tensor, change):
    def apply(entries, data):
        entry = entries[f"{SITE}/{tensor}"]
        entry["data_offsets"] = change(*entry["data_offsets"])
    return apply


def container():
    data_len = len(entries_and_data(tensors())[1])
    last = "net.top.2/series.bias_norm"
    case("short", "the file has 5 bytes, a header needs 8 or more", change_file=lambda raw: raw[:5])
    case("empty", "the file has 0 bytes, a header needs 8 or more", change_file=lambda raw: b"")
    case("header-too-long", "the header claims 100000001 bytes, over the limit of 100 MB",
         change_file=lambda raw: struct.pack("<Q", 100_000_001) + raw[8:])
    case("header-beyond-file", "the header ends at byte 1008, beyond the file's 208",
         change_file=lambda raw: struct.pack("<Q", 1000) + raw[8:208])
    case("header-not-json", "the header is not valid: EOF while parsing an object at line 1 column 1",
         change_header=lambda entries, data: (b"{", data))
    case("header-not-utf8", "the header is not valid: invalid unicode code point at line 1 column 3",
         change_header=lambda entries, data: (b'{"\xff":{}}', data))
    case("header-nested", "the header is not valid: invalid type: sequence, expected an object of tensors at line 1 column 0",
         change_header=lambda entries, data: (b"[" * 2000, data))
    case("tensor-twice", "extra is listed twice", "extra", change_header=lambda entries, data: (
        (b'{"extra":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"extra":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}', b"")))
    case("truncated", f"series.bias_norm ends at byte {data_len} of the data, which has {data_len - 3}: truncated", last,
         change_file=lambda raw: raw[:-3])
    case("trailing-bytes", f"bytes {data_len}..{data_len + 4} of the data belong to no tensor",
         change_file=lambda raw: raw + b"\0\0\0\0")
    case("hole", "bytes 0..16 of the data belong to no tensor", change_header=hole)
    case("overlapping", "input.mean overlaps net.top.0/input.count", f"{SITE}/input.mean",
         change_header=offsets("input.mean", lambda begin, end: [begin - 4, end - 4]))
    case("offsets-reversed", "input.mean has the data offsets [24, 8]", f"{SITE}/input.mean",
         change_header=offsets("input.mean", lambda begin, end: [end, begin]))
    case("size-differs", "input.mean takes 12 bytes, F32 [4] needs 16", f"{SITE}/input.mean",
         change_header=offsets("input.mean", lambda begin, end: [begin, end - 4]))
    case("shape-overflow", "weight has the shape [4294967296, 4294967296, 4], too large for any file", f"{SITE}/weight",
         change_header=lambda entries, data: entries[f"{SITE}/weight"].update(shape=[2**32, 2**32, 4]))


def hole(entries, data):
    for entry in entries.values():
        entry["data_offsets"] = [offset + 16 for offset in entry["data_offsets"]]
    return entries, b"\0" * 16 + data


def whole_manifest():
    case("no-manifest", "the metadata has no loka.trace: not a trace",
         change_header=lambda entries, data: (json.dumps(entries).encode(), data))
    case("manifest-not-json", "loka.trace is not valid: key must be a string at line 1 column 2", change_manifest=lambda m: "{nope")
    case("manifest-without-run", "loka.trace is not valid: missing field `run`", change_manifest=lambda m: m.pop("run") and None)
    case("manifest-without-sites", "loka.trace is not valid: sites is not a list", change_manifest=lambda m: m.pop("sites") and None)
    case("site-without-id", "loka.trace is not valid: site 0: missing field `id`",
         change_manifest=lambda m: m["sites"][0].pop("id") and None)
    case("version-2", "version is 2, expected 1", change_manifest=lambda m: m.update(version=2))
    case("version-missing", "version is missing, expected 1", change_manifest=lambda m: m.pop("version") and None)
    case("site-twice", "the site is listed twice", SITE, change_manifest=lambda m: m["sites"].append(copy.deepcopy(m["sites"][0])))
    case("quantile-probs", "quantile_probs are not ascending in (0, 1)", change_manifest=lambda m: m.update(quantile_probs=[0.5, 0.1, 0.9]))


def site_structure():
    for name in "mkn":
        site_case(f"zero-{name}", f"{name} = 0", change_manifest=set_site(**{name: 0}))
    site_case("negative-m", "the site's manifest is not valid: invalid value: integer `-8`, expected usize", change_manifest=set_site(m=-8))
    site_case("m-overflow", "m = 9223372036854775807, k = 4, n = 3 are too large", change_manifest=set_site(m=2**63 - 1))
    site_case("feeds-unknown", "feeds the unknown site net.top.9", change_manifest=set_site(feeds=["net.top.9"]))
    site_case("feeds-itself", "feeds net.top.0, which is not after it", change_manifest=set_site(feeds=[SITE]))
    for tensor in ["input.count", "input.mean", "input.cov", "weight", "bias", "grad_output.mean", "series.step"]:
        site_case(f"no-{tensor.replace('.', '-').replace('_', '-')}", f"{tensor} is missing", tensor, change_tensors=put(tensor, None))
    site_case("no-tail-gamma", "tail.gamma is missing", "tail.gamma",
              change_manifest=set_site(tail=[{"op": "layer_norm", "eps": 1e-5, "affine": True}]))
    site_case("mean-shape", "input.mean has shape [3], expected [4]", "input.mean", change_tensors=put("input.mean", np.zeros(3, np.float32)))
    site_case("mean-dtype", "input.mean has dtype I64, expected F64, F32, F16 or BF16", "input.mean",
              change_tensors=put("input.mean", np.zeros(4, np.int64)))
    site_case("dtype-unknown", "input.mean has dtype F7_X, expected F64, F32, F16 or BF16", "input.mean",
              change_header=lambda entries, data: entries[f"{SITE}/input.mean"].update(dtype="F7_X"))
    site_case("count-dtype", "input.count has dtype I32, expected I64", "input.count",
              change_tensors=put("input.count", np.array([9], np.int32)))
    site_case("cov-shape", "input.cov has shape [4, 3], expected [4, 4]", "input.cov",
              change_tensors=put("input.cov", np.zeros((4, 3), np.float32)))
    site_case("cov-both", "input.cov and input.cov_factor are both present", "input.cov",
              change_tensors=put("input.cov_factor", np.zeros((4, 2), np.float32)))
    site_case("weight-transposed", "weight has shape [4, 3], expected [3, 4]", "weight", change_tensors=put("weight", np.transpose))
    site_case("quantiles-shape", "input.quantiles has shape [4, 2], expected [4, 3]", "input.quantiles",
              change_tensors=put("input.quantiles", np.zeros((4, 2), np.float32)))
    site_case("hist-shape", "input.hist has shape [80], expected [82]", "input.hist", change_tensors=put("input.hist", np.zeros(80, np.int64)))
    site_case("sample-rows", "sample.grad_output has shape [6, 3], expected [5, 3]", "sample.grad_output",
              change_tensors=put("sample.grad_output", np.zeros((6, 3), np.float32)))
    site_case("series-length", "series.bias_norm has shape [3], expected [2]", "series.bias_norm",
              change_tensors=put("series.bias_norm", np.zeros(3, np.float32)))


def site_data():
    site_case("count-1", "input.count is 1, expected at least 2", "input.count", change_tensors=put("input.count", np.array([1], np.int64)))
    site_case("count-negative", "input.count is -5, expected at least 2", "input.count",
              change_tensors=put("input.count", np.array([-5], np.int64)))
    site_case("mean-nan", "input.mean is NaN at [2], not finite", "input.mean", change_tensors=put("input.mean", at(2, np.nan)))
    site_case("cov-inf", "input.cov is inf at [1, 3], not finite", "input.cov", change_tensors=put("input.cov", at((1, 3), np.inf)))
    site_case("cov-negative-diagonal", "input.cov is -2 at [2, 2], negative", "input.cov", change_tensors=put("input.cov", at((2, 2), -2)))
    site_case("cov-asymmetric", "input.cov is not symmetric: 0.25 at [0, 1], 0.26 at [1, 0]", "input.cov",
              change_tensors=put("input.cov", lambda cov: at((1, 0), 0.26)(cov.astype(np.float64))))
    site_case("grad-cov-asymmetric", "grad_output.cov is not symmetric: 1.5 at [0, 2], 0.25 at [2, 0]", "grad_output.cov",
              change_tensors=put("grad_output.cov", at((0, 2), 1.5)))
    site_case("cov-diag-negative", "input.cov_diag is -1 at [3], negative", "input.cov_diag", change_tensors=factored_with_negative_diag)
    site_case("weight-inf", "weight is -inf at [0, 1], not finite", "weight", change_tensors=put("weight", at((0, 1), -np.inf)))
    site_case("bias-nan", "bias is NaN at [0], not finite", "bias", change_tensors=put("bias", at(0, np.nan)))
    site_case("cross-cov-nan", "cross_cov is NaN at [2, 3], not finite", "cross_cov", change_tensors=put("cross_cov", at((2, 3), np.nan)))
    site_case("quantiles-descend", "input.quantiles descends at [1, 2]", "input.quantiles",
              change_tensors=put("input.quantiles", at((1, 2), -3)))
    site_case("hist-negative", "input.hist is -1 at [81], negative", "input.hist", change_tensors=put("input.hist", at(81, -1)))
    site_case("amax-negative", "input.amax is -5 at [0], negative", "input.amax", change_tensors=put("input.amax", at(0, -5)))


def factored_with_negative_diag(arrays):
    del arrays[f"{SITE}/input.cov"]
    arrays[f"{SITE}/input.cov_factor"] = np.zeros((K, 1), np.float32)
    arrays[f"{SITE}/input.cov_diag"] = np.array([1, 1, 1, -1], np.float32)


def folder(name, error, change=None, rank=1, change_tensors=None):
    """Two shards; `change` breaks the second one's manifest. `{a}`, `{b}` in `error`: their paths."""
    paths = [f"{name}/rank-{i}.trace.safetensors" for i in range(2)]
    for i, path in enumerate(paths):
        m, arrays = manifest(rank if i else 0), tensors()
        if i and change:
            change(m)
        if i and change_tensors:
            change_tensors(arrays)
        entries, data = entries_and_data(arrays)
        save(path, to_file(entries, data, json.dumps(m)))
    cases[name] = error.format(a=paths[0], b=paths[1])


def folders():
    folder("run-ids-differ", "run id is corpus-1, but corpus-0 in {a}: {b}", lambda m: m["run"].update(id="corpus-1"))
    folder("steps-differ", "step is 11, but 10 in {a}: {b}", lambda m: m["run"].update(step=11))
    folder("sites-differ", "site 1 is net.top.3, but net.top.2 in {a}: {b}", rename_second)
    folder("sizes-differ", "m is 16, but 8 in {a}: net.top.0: {b}", set_site(m=16))
    folder("rank-twice", "rank 0 is in {a} too: {b}", rank=0)
    folder("forms-differ", "input.cov is factored, but full in {a}: net.top.0/input.cov: {b}", change_tensors=factored)
    folder("bad-shard", "input.count is 0, expected at least 2: net.top.0/input.count: {b}",
           change_tensors=put("input.count", np.array([0], np.int64)))
    (HERE / "no-traces").mkdir(exist_ok=True)
    (HERE / "no-traces" / "README").write_text("A folder without a trace in it.\n")
    cases["no-traces"] = "the folder has no *.trace.safetensors file: no-traces"


def rename_second(m):
    m["sites"][0]["feeds"] = []
    m["sites"][1]["id"] = "net.top.3"


def factored(arrays):
    factored_with_negative_diag(arrays)
    arrays[f"{SITE}/input.cov_diag"] = np.ones(K, np.float32)


def main():
    container()
    whole_manifest()
    site_structure()
    site_data()
    folders()
    cases["missing.trace.safetensors"] = "no such file or folder: missing.trace.safetensors"
    lines = [f"{file}\t{error}\n" for file, error in sorted(cases.items())]
    (HERE / "traces.tsv").write_text("".join(lines))
    entries, data = entries_and_data(tensors())
    save("good.trace.safetensors", to_file(entries, data, json.dumps(manifest())))


if __name__ == "__main__":
    main()
