"""Takes one GEMM's operands and its numerics; gives the output that those numerics make, on any device, slowly.

Operands are cast exactly as the kernel casts them; products are added in FP32 and the output is rounded as the kernel
rounds it. The shorter accumulation of FP8 tensor cores is not emulated: it depends on the device.
"""

from typing import Optional

import torch
from torch import Tensor

from .casts import Quantized
from ..catalogue import BLOCK, Cast, Numerics
from .delayed import Scale
from .scales import largest_of, quantize, to_fp8


def multiply(
    a: Tensor, b: Tensor, numerics: Numerics, static: Optional[Scale] = None, codes: Optional[Quantized] = None
) -> Tensor:
    """a [rows, reduced] times b [cols, reduced] turned: [rows, cols] in BF16 (FP32 for TF32's kernel). `static`: of a,
    where its numerics have a scale known beforehand. `codes`: of b, with one scale a tensor or a row, if it was cast
    before."""
    with torch.autocast(a.device.type, enabled=False):
        out = _multiply(a, b, numerics, static, codes)
    return out if numerics.output == "f32" else out.to(torch.bfloat16)


def scaled_product(a: Quantized, b: Quantized, out_dtype: torch.dtype) -> Tensor:
    """a [rows, reduced] times b [cols, reduced] turned, of codes with a scale a tensor."""
    with torch.autocast(a.bits.device.type, enabled=False):
        return ((a.bits.float() @ b.bits.float().t()) * a.scale * b.scale).to(out_dtype)


def _multiply(
    a: Tensor, b: Tensor, numerics: Numerics, static: Optional[Scale], codes: Optional[Quantized]
) -> Tensor:
    if numerics.a.granularity == "none":
        return _unscaled(a, numerics.a) @ _unscaled(b, numerics.b).t()
    if numerics.a.granularity == "static":
        if static is None:
            raise RuntimeError("a static scale is wanted and none was given: loka.apply takes it from a plan")
        scale_a = static.scale
        static.saturated.add_(((a.float() / scale_a).abs() > largest_of(numerics.a.format)).sum())
        bits_a = to_fp8(a, scale_a, numerics.a.format)
    else:
        bits_a, scale_a = quantize(a, numerics.a)
    if codes is None:
        codes = Quantized(*quantize(b, numerics.b))
    return product_of_codes(Quantized(bits_a, scale_a), codes, numerics)


def product_of_codes(a: Quantized, b: Quantized, numerics: Numerics) -> Tensor:
    """a [rows, reduced] times b [cols, reduced] turned, of what `quantize` makes of them: FP32 [rows, cols]."""
    (bits_a, scale_a), (bits_b, scale_b) = a, b
    # FP8 values are exact in TF32 and BF16: left unscaled, they make the product proof against the global
    # precision flags, and the scales come after it as on the tensor core.
    bits_a, bits_b = bits_a.float(), bits_b.float()
    if numerics.a.granularity != "block_1x128":
        right = scale_b if scale_b.ndim < 2 else scale_b.t()
        return (bits_a @ bits_b.t()) * scale_a * right
    if numerics.b.granularity == "block_128x128":
        scale_b = scale_b.repeat_interleave(BLOCK, 0)[: bits_b.shape[0]]
    out = torch.zeros(bits_a.shape[0], bits_b.shape[0], dtype=torch.float32, device=bits_a.device)
    for block in range(scale_a.shape[1]):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        product = bits_a[:, part] @ bits_b[:, part].t()
        out = out + product * scale_a[:, block, None] * scale_b[None, :, block]
    return out


def _unscaled(x: Tensor, cast: Cast) -> Tensor:
    if cast.format == "bf16":
        return x.to(torch.bfloat16).float()
    bits = x.float().contiguous().view(torch.int32)
    # To nearest even at the 13th bit from the right. NaN and infinity have nothing to round: adding to their
    # mantissa would turn one into the other.
    rounded = ((bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)
    return torch.where(torch.isfinite(x), rounded, x.float())


__all__ = ["multiply", "product_of_codes", "scaled_product"]
