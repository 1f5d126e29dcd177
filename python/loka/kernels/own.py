"""Takes one GEMM of a linear and its operands; gives its output by LoKA's own kernels, each operand cast for it alone."""

from typing import Optional, Tuple

import torch
from torch import Tensor

from .casts import Quantized
from ..catalogue import Numerics
from .delayed import Scale
from .native_ops import fp8_cast, fp8_gemm, static_gemm
from .padding import MULTIPLE


def own_gemm(
    gemm: str, a: Tensor, b: Tensor, how: Numerics, static: Optional[Scale], codes: Optional[Quantized] = None
) -> Tensor:
    """Operands as the model stores them: fprop x [m, k], W [n, k]; dgrad dy [m, n], W; wgrad dy, x. They are rounded to
    BF16 first, which is what the kernels read. `codes`: of W, as the GEMM reads it; then b is not looked at. BF16 [m, n],
    [m, k], [n, k]."""
    a = a.to(torch.bfloat16)
    right = _cast_b(gemm, b, how) if codes is None else codes
    if gemm == "wgrad":
        a = _whole_blocks(a)
    if how.a.granularity == "static":
        if static is None:
            raise RuntimeError(f"{gemm} by a static scale needs one: loka.apply takes it from a plan")
        return static_gemm(a, static.scale, *right, None, static.saturated)
    turned = gemm == "wgrad"
    cast_a = fp8_cast(a, how.a.granularity, how.a.format, how.a.power_of_two, not turned, turned)
    return fp8_gemm(*(cast_a[2:] if turned else cast_a[:2]), *right, how.fast)


def _cast_b(gemm: str, b: Tensor, how: Numerics) -> Tuple[Tensor, Tensor]:
    b = b.to(torch.bfloat16)
    straight = gemm == "fprop"
    b = _whole_blocks(b) if gemm == "wgrad" else b
    cast = fp8_cast(b, how.b.granularity, how.b.format, how.b.power_of_two, straight, not straight)
    return cast[:2] if straight else cast[2:]


def _whole_blocks(x: Tensor) -> Tensor:
    """With rows of zeros, which add nothing to what is reduced over them."""
    missing = -x.shape[0] % MULTIPLE
    return torch.nn.functional.pad(x, (0, 0, 0, missing)) if missing else x


__all__ = ["own_gemm"]
