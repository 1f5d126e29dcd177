"""Takes a weight and the kernel of a forward GEMM; gives the weight's codes, made once, and the GEMM's output by them:
inference, where weights stand still.

The codes are what the kernel makes of the weight at every call otherwise, and so are the outputs.
"""

from typing import Optional

import torch
from torch import Tensor

from . import emulate
from .casts import Quantized, by_known_scale, straight_and_turned
from ..catalogue import FORMAT_MAX, numerics
from .delayed import codes, stretched
from .gemms import route, scaled
from .scales import quantize, to_fp8


def why_not_once(kernel: str) -> Optional[str]:
    """Why the weight of a forward GEMM by this kernel is cast at every call, or not at all; None where it need not be."""
    if numerics(kernel, "fprop").b.format not in FORMAT_MAX:
        return "its forward is in high precision"
    how = route(kernel, "fprop", False)
    if how == "library":
        return f"{kernel.split('/')[0]} casts for itself"
    return None


def cast_weight(kernel: str, weight: Tensor, emulated: bool) -> Quantized:
    """The codes of weight [n, k], in the type that the GEMM is asked for in, with their scales in FP32."""
    cast = numerics(kernel, "fprop").b
    if emulated:
        bits, scale = quantize(weight, cast)
        return Quantized(bits.contiguous(), scale)
    if route(kernel, "fprop", False) == "own":
        from .native_ops import fp8_cast

        made = fp8_cast(weight.to(torch.bfloat16), cast.granularity, cast.format, cast.power_of_two, True, False)
        return Quantized(made[0], made[1])
    straight, _ = straight_and_turned(weight, cast, None)
    assert straight is not None, "it was asked for"
    return straight


def forward_by_codes(
    kernel: str, x: Tensor, weight: Quantized, x_scale: Optional[Tensor], emulated: bool, stretch: int = 0
) -> Tensor:
    """y [m, n] in BF16 of x [m, k], m at least 1. `stretch`: as of `linear.Options`. `x_scale`: of kernels whose scale of x is known beforehand; x may be
    E4M3 codes of it already. Nothing counts what saturates."""
    how = numerics(kernel, "fprop")
    if how.a.granularity == "static" and x_scale is None:
        raise RuntimeError(f"{kernel} wants a scale of x beforehand")
    if emulated:
        if x_scale is None:
            a = Quantized(*quantize(x, how.a))
        else:
            a = Quantized(x if x.dtype == torch.float8_e4m3fn else to_fp8(x, x_scale, how.a.format), x_scale)
        return emulate.product_of_codes(a, weight, how).to(torch.bfloat16)
    if x_scale is not None and x.dtype != torch.float8_e4m3fn and torch.compiler.is_compiling():
        # Plain operations: Inductor puts them into the kernel of whatever makes x, and nobody else wants its codes.
        x = codes(stretched(x, stretch), 1.0 / x_scale, how.a.format).view(x.shape)
    if route(kernel, "fprop", False) == "own":
        return _own(x, weight, x_scale, kernel)
    straight: Optional[Quantized]
    if x_scale is not None and x.dtype == torch.float8_e4m3fn:
        straight = Quantized(x, x_scale)
    elif x_scale is not None:
        straight, _, _ = by_known_scale(x, x_scale, 1.0 / x_scale, True, False, stretch)
    else:
        straight, _ = straight_and_turned(x, how.a, None, stretch)
    assert straight is not None, "it was asked for"
    return scaled(straight, weight, how)[: x.shape[0]]


def _own(x: Tensor, weight: Quantized, x_scale: Optional[Tensor], kernel: str) -> Tensor:
    from .native_ops import fp8_cast, fp8_gemm, static_gemm

    how = numerics(kernel, "fprop")
    if x_scale is None:
        made = fp8_cast(x.to(torch.bfloat16), how.a.granularity, how.a.format, how.a.power_of_two, True, False)
        return fp8_gemm(made[0], made[1], weight.bits, weight.scale, how.fast)
    if x.dtype == torch.float8_e4m3fn:
        return fp8_gemm(x, x_scale, weight.bits, weight.scale, True)
    uncounted = torch.zeros(1, dtype=torch.int64, device=x.device)
    return static_gemm(x.to(torch.bfloat16), x_scale, weight.bits, weight.scale, None, uncounted)


__all__ = ["cast_weight", "forward_by_codes", "why_not_once"]
