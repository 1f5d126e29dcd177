"""Takes one GEMM of a linear and its operands; gives its output by LoKA's own kernels, each operand cast for it alone."""

from typing import Optional

import torch
from torch import Tensor

from .casts import MULTIPLE
from .catalogue import Numerics
from .delayed import Scale
from .native_ops import fp8_cast, fp8_gemm, static_gemm


def own_gemm(gemm: str, a: Tensor, b: Tensor, how: Numerics, static: Optional[Scale]) -> Tensor:
    """Operands as the model stores them: fprop x [m, k], W [n, k]; dgrad dy [m, n], W; wgrad dy, x. They are rounded to
    BF16 first, which is what the kernels read. BF16 [m, n], [m, k], [n, k]."""
    a, b = a.to(torch.bfloat16), b.to(torch.bfloat16)
    if gemm == "wgrad":
        # Zeros add nothing to what is reduced over the rows.
        short = (0, 0, 0, -a.shape[0] % MULTIPLE)
        a, b = (torch.nn.functional.pad(each, short) if short[3] else each for each in (a, b))
    straight = gemm == "fprop"
    cast_b = fp8_cast(b, how.b.granularity, how.b.format, how.b.power_of_two, straight, not straight)
    right = cast_b[:2] if straight else cast_b[2:]
    if how.a.granularity == "static":
        if static is None:
            raise RuntimeError(f"{gemm} by a static scale needs one: loka.apply takes it from a plan")
        return static_gemm(a, static.scale, *right, None, static.saturated)
    turned = gemm == "wgrad"
    cast_a = fp8_cast(a, how.a.granularity, how.a.format, how.a.power_of_two, not turned, turned)
    return fp8_gemm(*(cast_a[2:] if turned else cast_a[:2]), *right, how.fast)


__all__ = ["own_gemm"]
