"""Takes a kernel of another library; gives its GEMM's output through the calls that `loka.worker` measures.

TorchAO is traced below Dynamo, so that Inductor fuses its casts; the others are ops that nothing looks into.
"""

import functools
from typing import Any, Dict, Optional

import torch
from torch import Tensor

from ..catalogue import multiple_of

PIP_NAMES: Dict[str, str] = {
    "torchao": "pip install torchao",
    "deepgemm": "DeepGEMM is built from its repository, deepseek-ai/DeepGEMM",
    "fbgemm": "pip install fbgemm-gpu-genai",
    "te": "pip install transformer-engine[pytorch]",
}
"""How each library is had."""


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
    if reason is not None and "not installed" in reason:
        return f"{reason} ({PIP_NAMES[library]})"
    return reason


def library_gemm(kernel: str, gemm: str, a: Tensor, b: Tensor) -> Tensor:
    """One GEMM on operands as the model stores them, in BF16; rows are padded with zeros where the library needs it."""
    rows = a.shape[0]
    short = -rows % multiple_of(kernel, gemm)
    pad = torch.nn.functional.pad
    if short:
        a = pad(a, (0, 0, 0, short))
        b = pad(b, (0, 0, 0, short)) if gemm == "wgrad" else b
    a, b = a.to(torch.bfloat16), b.to(torch.bfloat16)
    out = _torchao(kernel, gemm, a, b) if kernel.startswith("torchao/") else _opaque(kernel, gemm, a, b)
    return out if gemm == "wgrad" or not short else out[:rows]


def _run(kernel: str, gemm: str, a: Tensor, b: Tensor) -> Tensor:
    found = adapter(kernel.split("/")[0])
    assert found is not None, "why_not was asked first"
    return found.run(kernel, gemm, a, b).to(torch.bfloat16)


@torch._dynamo.allow_in_graph  # type: ignore[untyped-decorator]
def _torchao(kernel: str, gemm: str, a: Tensor, b: Tensor) -> Tensor:
    return _run(kernel, gemm, a, b)


@torch.library.custom_op("loka::library_gemm", mutates_args=())
def _opaque(kernel: str, gemm: str, a: Tensor, b: Tensor) -> Tensor:
    return _run(kernel, gemm, a, b).contiguous()


@_opaque.register_fake
def _(kernel: str, gemm: str, a: Tensor, b: Tensor) -> Tensor:
    rows, cols = (a.shape[1], b.shape[1]) if gemm == "wgrad" else (a.shape[0], b.shape[gemm == "dgrad"])
    return a.new_empty(rows, cols, dtype=torch.bfloat16)


__all__ = ["PIP_NAMES", "adapter", "library_gemm", "why_not"]
