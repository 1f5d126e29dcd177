"""Takes one GEMM of a linear and its operands; gives its output by LoKA's own kernels, each operand cast for it alone."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from .casts import MULTIPLE
from .catalogue import Numerics
from .native_ops import fp8_cast, fp8_gemm, static_gemm


class Static(NamedTuple):
    """What a GEMM needs whose left operand has a scale known beforehand. Both on the operands' device."""

    scale: Tensor
    """FP32 [1], a power of two: a code stands for code * scale."""
    saturated: Tensor
    """Int64 [1]: how many elements were beyond 448 * scale so far."""

    @staticmethod
    def of(scale: float, device: torch.device) -> "Static":
        """A scale that is a plan's number, and a count of zero."""
        made = torch.full((1,), scale, device=device), torch.zeros(1, dtype=torch.int64, device=device)
        for tensor in made:
            # One place as long as the model lives: CUDA graphs of torch.compile may keep its address.
            torch._dynamo.mark_static_address(tensor, guard=False)
        return Static(*made)

    def to(self, device: torch.device) -> "Static":
        return Static(self.scale.to(device), self.saturated.to(device))


Statics = Tuple[Optional[Static], Optional[Static]]
"""Of fprop (x) and of dgrad (dy); None where the kernel finds its scales itself."""


def own_gemm(gemm: str, a: Tensor, b: Tensor, how: Numerics, static: Optional[Static]) -> Tensor:
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


__all__ = ["Static", "Statics", "own_gemm"]
