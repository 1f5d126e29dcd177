"""Proves on a GPU that LoKA's ops give, as libloka registers them with PyTorch, what they give through Python, bit for bit.

    python3 python/tests/gpu_registered.py

Needs PyTorch 2.10 or later, libloka and a GPU of compute capability 9.0. Exit 1 where anything differs, 2 without a GPU.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import torch

from loka.kernels import native
from loka.kernels import native_ops as ops


def calls():
    """(name, call that takes a counter)."""
    for m, n, k in ((512, 768, 1024), (1000, 256, 512), (64, 1024, 208)):
        x, w, z, dh = (torch.randn(*size, device="cuda").bfloat16() for size in ((m, k), (n, k), (m, n), (m, n)))
        scale, h_scale = (torch.full((1,), power, device="cuda") for power in (2.0**-5, 2.0**-4))
        codes, w_scale, *_ = ops.fp8_cast(w, "row", "e4m3", False, True, True)
        x_codes, x_scale, *_ = ops.fp8_cast(x, "row", "e4m3", True, True, False)
        wide = ops.fp8_cast(x, "tensor", "e5m2", False, True, False)
        for kind in ("row", "tensor"):
            for format in ("e4m3", "e5m2"):
                for straight, turned in ((True, False), (False, True), (True, True)):
                    cast = (kind, format, straight == turned, straight, turned)
                    yield f"fp8_cast {cast}", lambda _: ops.fp8_cast(x, *cast)
        yield "fp8_cast, strided", lambda _: ops.fp8_cast(x.t(), "row", "e4m3", False, True, True)
        yield "static_cast", lambda count: ops.static_cast(x * 10, scale * 0.01, count)
        for fast in (False, True):
            yield "fp8_gemm", lambda _: ops.fp8_gemm(x_codes, x_scale, codes, w_scale, fast)
            yield "fp8_gemm, E5M2", lambda _: ops.fp8_gemm(wide[0], wide[1], codes, w_scale, fast)
            yield "fp8_gemm, another tiling", lambda _: ops.fp8_gemm(x_codes, x_scale, codes, w_scale, fast, 1)
        for bias in (None, torch.randn(n, device="cuda").bfloat16()):
            yield "static_gemm", lambda count: ops.static_gemm(x * 10, scale * 0.01, codes, w_scale, bias, count)
            for stored in (None, h_scale) if n % 256 == 0 else ():
                for keep in (False, True):
                    rest = (codes, w_scale, bias)
                    yield "block_gemm", lambda count: ops.block_gemm(x, scale, *rest, count, stored, keep)
                    yield "block_gemm of codes", lambda count: ops.block_gemm(x_codes, scale, *rest, count, stored, keep)
        if n % 256 == 0:
            yield "block_tail", lambda _: ops.block_tail(z)
            yield "block_backward", lambda _: ops.block_backward(dh, z)


def made():
    torch.manual_seed(0)
    found = []
    for name, call in calls():
        count = torch.zeros(1, dtype=torch.int64, device="cuda")
        given = call(count)
        given = given if isinstance(given, tuple) else (given,)
        found.append((name, [*given, count]))
    return found


def same(one, other):
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.numel() == 0 or torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def main():
    if not torch.cuda.is_available():
        print("no CUDA device")
        sys.exit(2)
    register, native.registered = native.registered, lambda *_: None
    by_python = made()
    why_not = register()
    if why_not is not None:
        sys.exit(f"not registered: {why_not}")
    wrong = []
    for (name, ours), (_, pythons) in zip(made(), by_python):
        if not all(same(one, other) for one, other in zip(ours, pythons)):
            wrong.append(name)
    z = torch.randn(512, 512, device="cuda").bfloat16()
    expected, graph = ops.block_tail(z), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        replayed = ops.block_tail(z)
    replayed.zero_()
    graph.replay()
    if not torch.equal(replayed, expected):
        wrong.append("in a CUDA graph")
    print("\n".join(wrong + [f"{len(by_python) + 1 - len(wrong)} passed, {len(wrong)} failed"]))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
