"""Takes operands of `loka/fp8-block+fast`; gives h = hard swish(BlockNorm(x W^T + bias)) and its gradient up to the GEMM's
own output z.

On a GPU by one kernel each way; `emulate`: the same numerics in plain PyTorch, on any device.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor

from . import emulate as emulated
from .cast_once import cast_weight, forward_by_codes
from .casts import Quantized
from ..catalogue import Cast, numerics
from .delayed import Scale
from .delayed import codes as known_codes
from .native_ops import BLOCK, EPS, block_backward, block_gemm, block_gradient, block_output, fp8_cast, fp8_gemm
from .scales import to_fp8
from .weight_codes import WeightCodes

KERNEL = "loka/fp8-block+fast"

UNFUSED = "loka/fp8-static+fast"
"""What runs the linear of a block that does not run as one: the same operands, rounded before the norm."""

ROWS = Cast("e4m3", "row", False)
"""How the block's backward casts its result."""

LONGEST = 16384
"""Columns that the backward takes."""


def block_forward(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], static: Optional[Scale], emulate: bool, keep_z: bool,
    h_scale: Optional[Tensor] = None, codes: Optional[Quantized] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """(h [m, n] in BF16, or in E4M3 by `h_scale`; z in BF16 or None) of x [m, k] and weight [n, k]. x may be E4M3 codes
    of that scale already. `codes`: of the weight, by rows."""
    if static is None:
        raise RuntimeError(f"{KERNEL} needs a scale of x: loka.apply takes it from a plan")
    bias = None if bias is None else bias.to(torch.bfloat16)
    if emulate:
        z = _emulated(x, weight, static, codes)
        z = z if bias is None else z + bias.float()
        h = block_output(z)
        h = h.to(torch.bfloat16) if h_scale is None else to_fp8(h, h_scale, "e4m3")
        return h, z.to(torch.bfloat16) if keep_z else None
    x = x if x.dtype == torch.float8_e4m3fn else _in_front(x, static, keep_z)
    w, w_scale = _by_rows(weight) if codes is None else codes
    h, z = block_gemm(x, static.scale, w, w_scale, bias, static.saturated, h_scale, keep_z)
    return h, z if keep_z else None


def _in_front(x: Tensor, static: Scale, keep_z: bool) -> Tensor:
    """x as the kernel gets it: in a compiled forward without a backward its codes, which Inductor writes instead of x
    where it makes x. Else BF16, which the kernel casts on its way in, and counts what saturates."""
    if keep_z or not torch.compiler.is_compiling():
        return x.to(torch.bfloat16)
    return known_codes(x, static.inverse, "e4m3")


def _by_rows(weight: Tensor) -> Tuple[Tensor, Tensor]:
    w, w_scale, _, _ = fp8_cast(weight.to(torch.bfloat16), "row", "e4m3", False, True, False)
    return w, w_scale


def _emulated(x: Tensor, weight: Tensor, static: Scale, codes: Optional[Quantized] = None) -> Tensor:
    if x.dtype == torch.float8_e4m3fn:
        # Codes times a power of two are exact in BF16, and their codes are themselves.
        x = x.float() * static.scale
    return emulated.multiply(x, weight, numerics(KERNEL, "fprop"), static, codes)


def in_codes(
    x: Tensor, weight: Tensor, bias: Optional[Tensor], kernel: str, static: Scale, emulate: bool,
    h_scale: Optional[Tensor], codes: Optional[WeightCodes] = None,
) -> Tensor:
    """A forward by `KERNEL`, or another whose scale of x is known beforehand, where x [..., k], the output [..., n] (by
    `h_scale`), or both are E4M3 codes. No gradients. `codes`: of the weight, if they were made before. An output that is no
    codes is in the type that F.linear gives."""
    device = x.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight.dtype
    rows = x.reshape(-1, x.shape[-1])
    fits = codes is not None and dtype == (torch.bfloat16 if codes.rounded else weight.dtype)
    kept = codes.for_fprop if codes is not None and fits else None
    weight = weight.to(dtype) if kept is None else weight
    with torch.autocast(device, enabled=False):
        if rows.shape[0] == 0:
            y = weight.new_empty(0, weight.shape[0], dtype=torch.bfloat16 if h_scale is None else torch.float8_e4m3fn)
        elif kernel == KERNEL:
            y, _ = block_forward(rows, weight, bias, static, emulate, False, h_scale, kept)
        else:
            y = _linear_of_codes(rows, weight, kernel, static, emulate, kept)
        y = y.view(*x.shape[:-1], weight.shape[0])
        if h_scale is not None:
            return y
        y = y.to(dtype)
        return y if bias is None or kernel == KERNEL else y + bias.to(dtype)


def _linear_of_codes(
    x: Tensor, weight: Tensor, kernel: str, static: Scale, emulate: bool, codes: Optional[Quantized]
) -> Tensor:
    if kernel != UNFUSED:
        return forward_by_codes(kernel, x, codes or cast_weight(kernel, weight, emulate), static.scale, emulate)
    if emulate:
        return _emulated(x, weight, static, codes).to(torch.bfloat16)
    w, w_scale = _by_rows(weight) if codes is None else codes
    return fp8_gemm(x, static.scale, w, w_scale, True)


def block_tail_gradient(dh: Tensor, z: Tensor, emulate: bool) -> Tuple[Tensor, Optional[Quantized]]:
    """dz [m, n] in BF16 from dh and z; and its codes by `ROWS`, which the kernel makes in the same pass."""
    dh = dh.to(torch.bfloat16)
    if emulate:
        return block_gradient(dh, z).to(torch.bfloat16), None
    dz, codes, scales = block_backward(dh.contiguous(), z)
    return dz, Quantized(codes, scales)


def dgrad_of_codes(dz: Quantized, weight: Tensor, fast: bool, codes: Optional[Quantized] = None) -> Tensor:
    """dx [m, k] in BF16 by LoKA's own kernel, both operands by rows. `codes`: of the weight turned."""
    if codes is None:
        codes = Quantized(*fp8_cast(weight.to(torch.bfloat16), "row", "e4m3", False, False, True)[2:])
    return fp8_gemm(*dz, *codes, fast)


__all__ = [
    "BLOCK", "EPS", "KERNEL", "LONGEST", "ROWS", "UNFUSED", "block_forward", "block_tail_gradient", "dgrad_of_codes",
    "in_codes",
]
