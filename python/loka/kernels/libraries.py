"""Takes a kernel of another library; gives its GEMM's output through the calls that `loka.worker` measures.

TorchAO is traced below Dynamo, so that Inductor fuses its casts, and so are DeepGEMM's casts, whose GEMM is an op; the others are
ops that nothing looks into.
"""

import contextlib
import functools
from typing import Any, Iterator, Optional

import torch
from torch import Tensor

from ..catalogue import multiple_of

@functools.lru_cache(maxsize=None)
def adapter(library: str) -> Optional[Any]:
    """The worker's adapter of that library; None for one that it does not know. Imported when first asked for."""
    from ..worker.adapters import Environment, adapters

    return {found.library: found for found in adapters(Environment())}.get(library)


def why_not(kernel: str) -> Optional[str]:
    """Why the library does not run this kernel here, with how to get it; None when it does."""
    library = kernel.split("/")[0]
    found = adapter(library)
    if found is None:
        return f"no adapter for '{library}'"
    reason = found.why_not(kernel)
    remedy = found.remedy_of(kernel)
    return reason if reason is None or remedy is None else f"{reason} ({remedy})"


def library_gemm(kernel: str, gemm: str, a: Tensor, b: Tensor, wanted: torch.dtype = torch.bfloat16) -> Tensor:
    """One GEMM on operands as the model stores them, in BF16, or in FP32 where that is `wanted` and what the library makes;
    rows are padded with zeros where the library needs it."""
    rows = a.shape[0]
    short = -rows % multiple_of(kernel, gemm)
    pad = torch.nn.functional.pad
    if short:
        a = pad(a, (0, 0, 0, short))
        b = pad(b, (0, 0, 0, short)) if gemm == "wgrad" else b
    a, b = a.to(torch.bfloat16), b.to(torch.bfloat16)
    wide = wanted == torch.float32 and (kernel, gemm) in MADE_IN_FP32
    if kernel.startswith("torchao/"):
        out = _torchao(kernel, gemm, a, b)
    elif kernel.startswith("deepgemm/"):
        out = _cast_apart(kernel, gemm, a, b, wide)
    else:
        out = _opaque(kernel, gemm, a, b, wide)
    return out if gemm == "wgrad" or not short else out[:rows]


MADE_IN_FP32 = {("deepgemm/blockwise", "wgrad")}
"""Whose output needs a cast to become BF16: the gradient of an FP32 weight needs none."""


def _adapter_of(kernel: str) -> Any:
    found = adapter(kernel.split("/")[0])
    assert found is not None, "why_not was asked first"
    return found


def _run(kernel: str, gemm: str, a: Tensor, b: Tensor, wide: bool = False) -> Tensor:
    return _adapter_of(kernel).run(kernel, gemm, a, b).to(torch.float32 if wide else torch.bfloat16)


@torch._dynamo.allow_in_graph  # type: ignore[untyped-decorator]
def _torchao(kernel: str, gemm: str, a: Tensor, b: Tensor) -> Tensor:
    return _run(kernel, gemm, a, b)


@torch._dynamo.allow_in_graph  # type: ignore[untyped-decorator]
def _cast_apart(kernel: str, gemm: str, a: Tensor, b: Tensor, wide: bool) -> Tensor:
    """A dozen operations of PyTorch each, which Inductor makes a launch or two of."""
    cast_a, cast_b, _ = _adapter_of(kernel).parts(gemm)
    return _product(kernel, gemm, *cast_a(a), *cast_b(b), wide)


@torch.library.custom_op("loka::library_product", mutates_args=())
def _product(
    kernel: str, gemm: str, a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor, wide: bool
) -> Tensor:
    """a [rows, reduced] times b [cols, reduced] turned, both in the library's codes."""
    multiply = _adapter_of(kernel).parts(gemm)[2]
    out: Tensor = multiply((a, a_scales), (b, b_scales)).to(torch.float32 if wide else torch.bfloat16)
    return out


@_product.register_fake
def _(kernel: str, gemm: str, a: Tensor, a_scales: Tensor, b: Tensor, b_scales: Tensor, wide: bool) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[0], dtype=torch.float32 if wide else torch.bfloat16)


@contextlib.contextmanager
def _autograd_on() -> Iterator[None]:
    """Autograd inside an op of our own, which runs below it: Transformer Engine's gradients are had from its backward."""
    key = torch._C.DispatchKey
    autograd = torch._C.DispatchKeySet(key.AutogradCUDA)
    for other in (key.AutogradCPU, key.ADInplaceOrView):
        autograd = autograd | torch._C.DispatchKeySet(other)
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    with torch._C._ForceDispatchKeyGuard(included, excluded - autograd):
        yield


@torch.library.custom_op("loka::library_gemm", mutates_args=())
def _opaque(kernel: str, gemm: str, a: Tensor, b: Tensor, wide: bool) -> Tensor:
    with _autograd_on(), torch.no_grad():
        return _run(kernel, gemm, a.detach(), b.detach(), wide).contiguous()


@_opaque.register_fake
def _(kernel: str, gemm: str, a: Tensor, b: Tensor, wide: bool) -> Tensor:
    rows, cols = (a.shape[1], b.shape[1]) if gemm == "wgrad" else (a.shape[0], b.shape[gemm == "dgrad"])
    return a.new_empty(rows, cols, dtype=torch.float32 if wide else torch.bfloat16)


__all__ = ["MADE_IN_FP32", "adapter", "library_gemm", "why_not"]
