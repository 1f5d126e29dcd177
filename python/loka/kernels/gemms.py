"""Takes operands and a kernel; gives one GEMM's output: PyTorch's matmuls, scaled matmuls, or an installed library."""

from typing import Optional

import torch
from torch import Tensor

from . import emulate
from .casts import Quantized
from ..catalogue import FORMAT_MAX, Cast, Numerics, numerics
from .delayed import Scale
from .own import own_gemm

_NATIVE = ("cublaslt/", "pytorch/")


def route(kernel: str, gemm: str, emulated: bool) -> str:
    """Who runs it: "emulated", "library", "own" (LoKA's kernels), "mm", "tf32" or "scaled" (PyTorch's scaled matmul).
    Raises ValueError for an unknown kernel."""
    format = numerics(kernel, gemm).a.format
    if emulated:
        return "emulated"
    if kernel.startswith("loka/"):
        return "own"
    if not kernel.startswith(_NATIVE):
        return "library"
    return "tf32" if format == "tf32" else "mm" if format == "bf16" else "scaled"


def casts_before(kernel: str, gemm: str, emulated: bool) -> bool:
    """Whether its operands are cast before it, so that another GEMM may read the same codes; else it casts for itself."""
    how = numerics(kernel, gemm)
    is_delayed = how.a.granularity == "static" and how.b.granularity in ("tensor", "static")
    return is_delayed or route(kernel, gemm, emulated) == "scaled"


def reads_codes(kernel: str, gemm: str, emulated: bool) -> Optional[Cast]:
    """How the GEMM reads its right operand, where that may be codes that were made before: of one scale a tensor or a row,
    by kernels whose casts are ours."""
    cast = numerics(kernel, gemm).b
    ours = route(kernel, gemm, emulated) in ("scaled", "own", "emulated") and kernel.startswith((*_NATIVE, "loka/"))
    return cast if ours and cast.format in FORMAT_MAX and cast.granularity in ("tensor", "row") else None


def product(
    a: Quantized, b: Quantized, how: Numerics, emulated: bool, wanted: torch.dtype = torch.bfloat16
) -> Tensor:
    """a [rows, reduced] times b [cols, reduced] turned, both FP8 with their scales: [rows, cols] in BF16, or in FP32
    where that is `wanted` and the GEMM can: the gradient of an FP32 weight needs no rounding and no cast of its own."""
    wide = wanted == torch.float32 and how.b.granularity in ("tensor", "static")
    out_dtype = torch.float32 if wide else torch.bfloat16
    if emulated:
        return emulate.scaled_product(a, b, out_dtype)
    return scaled(a, b, how, out_dtype)


def scaled(a: Quantized, b: Quantized, how: Numerics, out_dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """The same by PyTorch's scaled matmul."""
    if how.a.granularity == "block_1x128":
        return blockwise_mm(a.bits, a.scale, b.bits, b.scale, how.b.granularity == "block_128x128")
    scale_b = b.scale.t() if how.b.granularity == "row" else b.scale
    return torch._scaled_mm(a.bits, b.bits.t(), a.scale, scale_b, out_dtype=out_dtype, use_fast_accum=how.fast)


def whole(
    kernel: str, gemm: str, a: Tensor, b: Tensor, emulated: bool, static: Optional[Scale] = None,
    codes: Optional[Quantized] = None, wanted: torch.dtype = torch.bfloat16,
) -> Tensor:
    """A GEMM that casts for itself alone. Operands as the model stores them: fprop x [m, k], W [n, k]; dgrad dy [m, n],
    W; wgrad dy, x. Output [m, n], [m, k], [n, k] in BF16 (FP32 of TF32's kernel, and where FP32 is
    `wanted` of a library that makes it). `static`: of a, for kernels whose
    scale is known beforehand. `codes`: of W as the GEMM reads it, where `reads_codes` says that it does."""
    how = route(kernel, gemm, emulated)
    if how == "own":
        return own_gemm(gemm, a, b, numerics(kernel, gemm), static, codes)
    if how == "library":
        from .libraries import library_gemm

        return library_gemm(kernel, gemm, a, b, wanted)
    if gemm == "wgrad":
        a, b = a.t(), b.t()
    elif gemm == "dgrad":
        b = b.t()
    if how == "emulated":
        return emulate.multiply(a, b, numerics(kernel, gemm), static, codes)
    if how == "mm":
        return torch.mm(a.to(torch.bfloat16), b.to(torch.bfloat16).t())
    return tf32_mm(a.float(), b.float())


@torch.library.custom_op("loka::tf32_mm", mutates_args=())
def tf32_mm(a: Tensor, b: Tensor) -> Tensor:
    """a [rows, reduced] times b [cols, reduced] turned in TF32, whatever the global flag says. An op of its own, so
    that the flag is on around this product alone, at run time, also inside compiled code. (An FP32 product that another
    thread launches in that moment is in TF32 too: PyTorch has one flag a process.)"""
    matmul = torch.backends.cuda.matmul
    name, on = ("fp32_precision", "tf32") if hasattr(torch.backends, "fp32_precision") else ("allow_tf32", True)
    before = getattr(matmul, name)
    setattr(matmul, name, on)
    try:
        return torch.mm(a, b.t())
    finally:
        setattr(matmul, name, before)


@tf32_mm.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[0])


@torch.library.custom_op("loka::blockwise_mm", mutates_args=())
def blockwise_mm(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor, square: bool) -> Tensor:
    """FP8 a [rows, reduced] with scales [blocks, rows] times b [cols, reduced] turned, with scales [blocks, cols] or,
    `square`, [col blocks, blocks padded to 4]; BF16. An op of its own: enums do not travel through a traced graph."""
    kind = torch.nn.functional.ScalingType
    kind_b = kind.BlockWise128x128 if square else kind.BlockWise1x128
    return torch.nn.functional.scaled_mm(
        a, b.t(), scale_a.t(), kind.BlockWise1x128, scale_b.t(), kind_b, output_dtype=torch.bfloat16
    )


@blockwise_mm.register_fake
def _(a: Tensor, scale_a: Tensor, b: Tensor, scale_b: Tensor, square: bool) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[0], dtype=torch.bfloat16)


__all__ = ["casts_before", "product", "reads_codes", "route", "scaled", "tf32_mm", "whole"]
