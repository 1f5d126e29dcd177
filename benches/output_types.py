"""Takes shapes; times an FP8 product that stores BF16, FP16 or FP32, and says how far each is from the exact one.

    python3 benches/output_types.py --shapes benches/lrm_shapes.csv --out output-types.csv

One scale a tensor (PyTorch stores rows' scales in BF16 alone), operands cast before, with fast and with promoted accumulation; of each
shape the three GEMMs of a training step. Every time is the median of graph replays that take turns with the other types', each over
operands that the L2 cache does not hold; quotients are over BF16's. Errors are relative L2 against FP64 of the operands before their
cast, of normal values.
"""

import argparse
import csv
import math
import statistics

import torch

STORED = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
# More than an H200 keeps in its L2 cache (50 MiB).
BEYOND_L2 = 160 << 20


def cast(values, dtype):
    scale = values.abs().max().float() / torch.finfo(dtype).max
    return (values.float() / scale).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype), scale


def products(m, k, n):
    """By GEMM: rows, reduced, columns, and the left operand's type."""
    return {"fprop": (m, k, n, E4M3), "dgrad": (m, n, k, E5M2), "wgrad": (n, m, k, E5M2)}


def operands(rows, reduced, columns, left):
    a = torch.randn(rows, reduced, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(columns, reduced, device="cuda", dtype=torch.bfloat16) / math.sqrt(reduced)
    return a, b, cast(a, left), cast(b, E4M3)


def multiply(made, dtype, fast):
    _, _, (a, scale_a), (b, scale_b) = made
    return torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=dtype, use_fast_accum=fast)


def graph_of(sets, dtype, fast):
    for _ in range(3):
        multiply(sets[0], dtype, fast)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for made in sets:
            multiply(made, dtype, fast)
    return graph


def times(graphs, calls, replays):
    """Microseconds a call, by graph; they take turns."""
    taken = {name: [] for name in graphs}
    for _ in range(replays):
        for name, graph in graphs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            taken[name].append(1e3 * begin.elapsed_time(end) / calls)
    return {name: statistics.median(of[2:]) for name, of in taken.items()}


def errors(made, fast, most=2048):
    """Relative L2 by stored type, of the first rows."""
    a, b, (codes, scale_a), right = made
    a, codes = a[:most], codes[:most]
    exact = a.double() @ b.double().t()
    cut = (a, b, (codes, scale_a), right)
    return {
        name: ((multiply(cut, dtype, fast).double() - exact).norm() / exact.norm()).item() for name, dtype in STORED.items()
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--replays", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    with open(args.shapes, newline="") as file:
        shapes = [tuple(int(row[name]) for name in ("m", "k", "n")) for row in csv.DictReader(file)]
    lines = []
    for m, k, n in shapes:
        for gemm, (rows, reduced, columns, left) in products(m, k, n).items():
            each = rows * reduced + reduced * columns + 4 * rows * columns
            sets = [operands(rows, reduced, columns, left) for _ in range(max(2, min(24, math.ceil(BEYOND_L2 / each))))]
            for fast in (True, False):
                graphs = {name: graph_of(sets, dtype, fast) for name, dtype in STORED.items()}
                us, error = times(graphs, len(sets), args.replays), errors(sets[0], fast)
                lines.append({"m": m, "k": k, "n": n, "gemm": gemm, "fast": fast}
                             | {f"{name}_us": round(us[name], 2) for name in STORED}
                             | {f"{name}_rel_l2": f"{error[name]:.6f}" for name in STORED})
            del sets, graphs
    with open(args.out, "w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, {len(shapes)} shapes")
    print("gemm   accumulation  fp16 / bf16 time  fp32 / bf16 time (worst)  rel L2: bf16, fp16, fp32 over bf16 (medians)")
    for gemm in ("fprop", "dgrad", "wgrad"):
        for fast in (True, False):
            of = [line for line in lines if line["gemm"] == gemm and line["fast"] is fast]
            ratio = {name: [line[f"{name}_us"] / line["bf16_us"] for line in of] for name in STORED}
            less = {name: [float(line[f"{name}_rel_l2"]) / float(line["bf16_rel_l2"]) for line in of] for name in STORED}
            mean = {name: statistics.geometric_mean(ratio[name]) for name in STORED}
            print(f"{gemm}  {'fast' if fast else 'promoted':12}  {mean['fp16']:.3f}  {mean['fp32']:.3f} ({max(ratio['fp32']):.2f})  "
                  f"{statistics.median(float(line['bf16_rel_l2']) for line in of):.5f}  "
                  f"{statistics.median(less['fp16']):.4f}  {statistics.median(less['fp32']):.4f}")


if __name__ == "__main__":
    main()
