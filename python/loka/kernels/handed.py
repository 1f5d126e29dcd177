"""Takes z, what a linear gives before BlockNorm and hard swish; gives FP8 codes of what comes behind these, for the linear
that alone reads it in training: straight for fprop and turned for wgrad, both in one tensor of the shape and the type
that h would have. So autograd, torch.compile and whatever else passes tensors on passes codes on. And the gradient of
z likewise, as dgrad and wgrad read it.

Numbers are those of the steps apart: h and dz are rounded to BF16 before they are cast.
"""

from typing import Tuple

import torch
from torch import Tensor

from .casts import Quantized, triton_casts
from .delayed import codes, largest
from .native_ops import BLOCK, block_gradient, block_output

if triton_casts is not None:
    from . import triton_tails

ROWS = 16
"""Rows are a multiple of it: the reduced dimension of a GEMM that reads codes turned."""


def output(z: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor]:
    """(codes in a tensor like z, maxima of |h|) of z [rows, cols] in BF16, by a scale that is known beforehand."""
    if z.is_cuda:
        both, maxima = triton_tails.output(z.contiguous(), inverse)
        return both.view(z.dtype), maxima
    found: Tuple[Tensor, Tensor] = (output_by_parts if torch.compiler.is_compiling() else _output)(z, inverse)
    return found


def _output(z: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor]:
    h = block_output(z).to(z.dtype)
    straight = codes(h, inverse, "e4m3").view(torch.uint8)
    packed = torch.cat([straight.flatten(), straight.t().flatten()])
    return packed.view(z.dtype).view(z.shape), largest(h)


@torch.library.custom_op("loka::handed_output", mutates_args=())
def output_by_parts(z: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor]:
    """By plain operations, one behind the other, as `casts.known_by_parts`."""
    return _output(z, inverse)


@output_by_parts.register_fake
def _(z: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor]:
    return torch.empty_like(z), z.new_empty(z.shape[0])


def taken(h: Tensor, scale: Tensor) -> Tuple[Quantized, Quantized]:
    """What `output` has put into it: [rows, cols], and turned [cols, rows]."""
    rows, cols = h.size(0), h.size(1)
    both = h.view(torch.float8_e4m3fn).view(-1)
    return Quantized(both[: rows * cols].view(rows, cols), scale), Quantized(both[rows * cols :].view(cols, rows), scale)


def gradient(dh: Tensor, z: Tensor, scale: Tensor, inverse: Tensor) -> Tuple[Quantized, Quantized, Tensor]:
    """(codes of dz [rows, cols], turned [cols, rows], maxima of |dz|), from the gradient of h."""
    dh = dh.to(z.dtype)
    if z.is_cuda:
        straight, turned, maxima = triton_tails.gradient(dh.contiguous(), z, inverse)
    else:
        dz = block_gradient(dh, z).to(z.dtype)
        straight, maxima = codes(dz, inverse, "e4m3"), largest(dz)
        turned = straight.t().contiguous()
    return Quantized(straight, scale), Quantized(turned, scale), maxima


__all__ = ["BLOCK", "ROWS", "gradient", "output", "taken"]
