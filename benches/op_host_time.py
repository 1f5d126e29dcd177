"""What one call of LoKA's native ops takes of the host: checks, outputs, PyTorch's dispatcher; by Python and ctypes, and
by libloka as the dispatcher calls it itself (PyTorch 2.10 or later).

    python benches/op_host_time.py              # on a GPU, at a size that takes it less time than the host
    python benches/op_host_time.py --stub       # without one: tensors on the CPU, a C library that does nothing

`--stub` compiles that library with cc, and lets the ops take CPU tensors for a GPU's: what is timed is all but the launch
(PyTorch's allocator is the CPU's), by Python alone. Median of many short rounds, microseconds.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

import torch
import torch.nn.functional as F

from loka.kernels import block, native, native_ops, static_linear


def stub(folder):
    """A library with libloka's symbols, which return 0."""
    lines = ["#include <stdint.h>", f"uint32_t loka_version(void) {{ return {native.ABI_VERSION}; }}"]
    lines += ['const char *loka_last_error(void) { return ""; }']
    lines += [f"int32_t {name}(void) {{ return 0; }}" for name in native.SIGNATURES if name != "loka_partials_bytes"]
    lines += ["int32_t loka_partials_bytes(int32_t d, uint32_t r, uint32_t c, uint64_t *b) { *b = 4096; return 0; }"]
    source, made = pathlib.Path(folder, "stub.c"), pathlib.Path(folder, "libloka.so")
    source.write_text("\n".join(lines))
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    return made


def take_cpu_for_gpu(folder):
    os.environ["LOKA_LIBRARY"] = str(stub(folder))
    native.runs = lambda x: True
    native.device_of = lambda x: 0
    native.stream_of = lambda device: 0


def median_us(call, rounds=200, calls=20):
    taken = []
    for index in range(rounds + 10):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        taken.append((time.perf_counter() - start) / calls * 1e6)
        if torch.cuda.is_available() and index % 8 == 0:
            torch.cuda.synchronize()
    return statistics.median(taken[10:])


def ways(device):
    m = k = n = 256 if device == "cuda" else 16
    n = 256
    x, w, z = (torch.randn(*shape, device=device).bfloat16() for shape in ((m, k), (n, k), (m, n)))
    one, count = torch.ones(1, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    codes, w_codes = (each.to(torch.float8_e4m3fn) for each in (x, w))
    row, w_row = torch.ones(m, 1, device=device), torch.ones(n, 1, device=device)
    xg, wg = (each.clone().requires_grad_() for each in (x, w))
    return {
        "F.linear, BF16": lambda: F.linear(x, w),
        "fp8_cast, rows": lambda: native_ops.fp8_cast(x, "row", "e4m3", False, True, False),
        "fp8_cast, tensor, both layouts": lambda: native_ops.fp8_cast(x, "tensor", "e4m3", False, True, True),
        "static_cast": lambda: native_ops.static_cast(x, one, count),
        "fp8_gemm": lambda: native_ops.fp8_gemm(codes, row, w_codes, w_row, True),
        "static_gemm": lambda: native_ops.static_gemm(x, one, w_codes, w_row, None, count),
        "block_gemm": lambda: native_ops.block_gemm(x, one, w_codes, w_row, None, count, None, True),
        "block_tail": lambda: native_ops.block_tail(z),
        "block_backward": lambda: native_ops.block_backward(z, z),
        "static_linear (two ops)": lambda: static_linear(x, w, one),
        "block (two ops)": lambda: block(x, w, one),
        "F.linear, BF16, forward and backward": lambda: F.linear(xg, wg).backward(z),
        "block, forward and backward (six ops)": lambda: block(xg, wg, one).backward(z),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stub", action="store_true")
    options = parser.parse_args()
    if not options.stub and not torch.cuda.is_available():
        sys.exit("no CUDA device: --stub times all but the launch")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        # Once registered, it is so for the rest of the process: Python's turn comes first.
        register, native.registered = native.registered, lambda *_: None
        if options.stub:
            take_cpu_for_gpu(folder)
        calls = ways("cpu" if options.stub else "cuda")
        by_python = {name: median_us(call) for name, call in calls.items()}
        why_not = "there is no GPU" if options.stub else register()
        print(f"{'':40s} {'Python':>7s} {'libloka' if why_not is None else why_not}, us")
        for name, taken in by_python.items():
            again = "" if why_not is not None else f"{median_us(calls[name]):7.1f}"
            print(f"{name:40s} {taken:7.1f} {again}", flush=True)


if __name__ == "__main__":
    main()
