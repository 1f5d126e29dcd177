"""Takes shapes and kernels of the user's libraries; compiles what `loka bench --libraries` would compile for them, in
several processes, into the caches of Inductor, Triton and DeepGEMM. Nothing is timed here, and what Inductor found to be
fastest while others kept the GPU busy is forgotten: the bench looks again.

    python3 benches/library_casts.py --shapes SHAPES.csv --gemms fprop,dgrad,wgrad --kernels 'deepgemm/*' [--jobs 12]

On an H200's host a row takes 15 to 25 s where its casts are compiled anew, and about one where the caches have them.
"""

import argparse
import csv
import fnmatch
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))


def rows(args):
    """(kernel, gemm, m, k, n), those of one shape apart: neighbours in the list go to different processes."""
    from loka.worker.adapters import Environment, adapters

    shapes = []
    for path in args.shapes:
        with open(path, newline="") as file:
            shapes += [tuple(int(row[name]) for name in ("m", "k", "n")) for row in csv.DictReader(file)]
    every = adapters(Environment())
    kernels = [kernel for adapter in every for kernel in adapter.kernels]
    wanted = [kernel for kernel in kernels if any(fnmatch.fnmatch(kernel, pattern) for pattern in args.kernels)]
    return [(kernel, gemm, *shape) for shape in shapes for gemm in args.gemms for kernel in wanted]


def work(args, index):
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    import torch

    from loka.worker.adapters import Environment, adapters, operand_shapes
    from loka.worker.protocol import reason_of

    every = {kernel: adapter for adapter in adapters(Environment()) for kernel in adapter.kernels}
    for kernel, gemm, m, k, n in rows(args)[index :: args.jobs]:
        adapter, begin = every[kernel], time.monotonic()
        said = adapter.why_not(kernel) or adapter.refuses(kernel, gemm, m, k, n)
        if said is None:
            try:
                with torch.no_grad():
                    run(torch, adapter.calls(kernel, gemm, m, k, n), [
                        torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in operand_shapes(gemm, m, k, n)
                    ])
            except Exception as error:
                said = reason_of(error)
        print(f"{time.monotonic() - begin:6.1f} s  {kernel} {gemm} {m} x {k} x {n}{'' if said is None else ': ' + said}", flush=True)


def run(torch, calls, operands):
    """Each call once, as timing makes them."""
    a, b = operands
    calls.full(a, b)
    if calls.before_full is not None:
        calls.before_full(a, b)
    if calls.gemm is not None or calls.cached is not None:
        first, second = calls.prepare_a(a), calls.prepare_b(b)
        if calls.gemm is not None:
            calls.gemm(first, second)
        if calls.cached is not None:
            calls.cached(a, second)
    torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", action="append", required=True, metavar="CSV")
    parser.add_argument("--gemms", default="fprop,dgrad,wgrad", type=lambda text: text.split(","))
    parser.add_argument("--kernels", action="append", required=True, metavar="GLOB")
    parser.add_argument("--jobs", default=max(1, (os.cpu_count() or 2) - 2), type=int)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.only is not None:
        work(args, args.only)
        return
    begin = time.monotonic()
    others = [subprocess.Popen([sys.executable, *sys.argv, "--only", str(index)]) for index in range(args.jobs)]
    failed = sum(process.wait() != 0 for process in others)
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if cache:
        for path in pathlib.Path(cache).rglob("*.best_config"):
            path.unlink()
    print(f"{args.jobs} processes, {failed} of them failed, {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
