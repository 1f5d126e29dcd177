"""Takes operands read as [rows, reduced]; gives FP8 values and the scales that multiply them back, in plain PyTorch.

The definition of every cast: amax / largest value in FP32, at least 1e-12, powers of two rounded up; the value
*divided* by its scale, clamped, rounded to nearest even. A NaN or an infinity turns its whole group into NaN once the
scale is multiplied back. The fast casts of `triton_casts` give the same values.
"""

from typing import Tuple

import torch
from torch import Tensor

from ..catalogue import BLOCK, Cast


def fp8_dtype(format: str) -> torch.dtype:
    """PyTorch's type of "e4m3" or "e5m2"."""
    return torch.float8_e4m3fn if format == "e4m3" else torch.float8_e5m2


LINE = 128
"""Bytes of a line of memory. A GEMM reads codes fastest whose rows begin with one: over a number of features that is no multiple of 32,
cuBLASLt's takes a tenth longer where they do not."""


def _pitch(cols: int) -> int:
    return (cols + LINE - 1) // LINE * LINE


def spaced(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory for codes [rows, cols], each row from a line of memory on. What lies between rows is nobody's."""
    return torch.empty_strided((rows, cols), (_pitch(cols), 1), dtype=dtype, device=device)


def room(rows: int, cols: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same with what lies between rows, for code that is compiled: a kernel writes into all of it, `[:, :cols]` are the codes.
    PyTorch 2.11 takes two `spaced` ones that are alike for one (`fx_graph_cse`), and copies it before each kernel that writes there."""
    return torch.empty((rows, _pitch(cols)), dtype=dtype, device=device)


def largest_of(format: str) -> float:
    """The format's largest value. From its type, as what follows is a literal: under torch.compile(dynamic=True) a number that a
    module keeps may change, and no autograd function may be given it (PyTorch 2.11)."""
    return torch.finfo(fp8_dtype(format)).max


def scale_from_amax(amax: Tensor, cast: Cast) -> Tensor:
    """The divisor that maps each amax to the format's largest value, FP32 of the same shape."""
    # By a tensor: CUDA multiplies by the reciprocal of a plain number, which rounds otherwise.
    largest = torch.full((), largest_of(cast.format), dtype=torch.float32, device=amax.device)
    # clamp keeps a NaN, as it must: its group has to come out as NaN.
    scale = (amax.float() / largest).clamp(min=1e-12)
    if not cast.power_of_two:
        return scale
    bits = scale.view(torch.int32)
    raised = ((bits + 0x7FFFFF) & ~0x7FFFFF).view(torch.float32)
    return torch.where(torch.isfinite(scale), raised, scale)


def to_fp8(x: Tensor, scale: Tensor, format: str) -> Tensor:
    """x / scale on the format's grid. Clamped first: PyTorch's own conversion does not saturate."""
    largest = largest_of(format)
    return (x.float() / scale).clamp(-largest, largest).to(fp8_dtype(format))


def quantize(x: Tensor, cast: Cast) -> Tuple[Tensor, Tensor]:
    """(FP8 [rows, reduced], scales in FP32: [] a tensor, [rows, 1] a row, [rows, blocks] 1x128, [row blocks, blocks]
    128x128). The last block of a row may be short."""
    if cast.granularity == "tensor":
        scale = scale_from_amax(x.abs().amax(), cast)
        return to_fp8(x, scale, cast.format), scale
    if cast.granularity == "row":
        scale = scale_from_amax(x.abs().amax(1, keepdim=True), cast)
        return to_fp8(x, scale, cast.format), scale
    rows, reduced = x.shape
    tall = 1 if cast.granularity == "block_1x128" else BLOCK
    padded = torch.nn.functional.pad(x, (0, -reduced % BLOCK, 0, -rows % tall))
    blocks = padded.reshape(padded.shape[0] // tall, tall, padded.shape[1] // BLOCK, BLOCK)
    scale = scale_from_amax(blocks.abs().amax((1, 3), keepdim=True), cast)
    bits = to_fp8(blocks, scale, cast.format).reshape(padded.shape)
    return bits[:rows, :reduced], scale.squeeze(3).squeeze(1)


__all__ = ["LINE", "fp8_dtype", "largest_of", "quantize", "room", "scale_from_amax", "spaced", "to_fp8"]
