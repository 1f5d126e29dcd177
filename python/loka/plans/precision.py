"""Takes a linear's kernels, says whether any of them runs in FP8."""

from typing import Sequence, Tuple

from .. import catalogue
from ..catalogue import GEMMS

HIGH_PRECISION = "cublaslt/bf16"
"""What runs a GEMM whose planned kernel cannot run here."""


def fp8_gemms(kernels: Sequence[str]) -> Tuple[bool, ...]:
    """For fprop, dgrad and wgrad: whether its kernel reads FP8. One that is not known may: who asks next says so."""
    return tuple(_is_fp8(kernel, gemm) for kernel, gemm in zip(kernels, GEMMS))


def runs_fp8(kernels: Sequence[str]) -> bool:
    return any(fp8_gemms(kernels))


def _is_fp8(kernel: str, gemm: str) -> bool:
    if kernel not in catalogue.KERNELS:
        return True
    return catalogue.numerics(kernel, gemm).a.format in catalogue.FORMAT_MAX


__all__ = ["HIGH_PRECISION", "fp8_gemms", "runs_fp8"]
