"""Takes what comes out of a linear; gives FP8 codes of what its bias, a BlockNorm and an activation make of it, in both
layouts, and of its gradient, each in one pass, by `triton_kernels`.

Apart, the activation writes BF16 and a cast reads it: 8 bytes an element forward and 10 backward, and 2 more for a bias's
gradient, where these move 4 and 6.
"""

from typing import Optional, Tuple

import torch
import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton

from . import triton_kernels
from .native_ops import BLOCK, EPS
from .delayed import Notes
from .triton_casts import Wrap, both_layouts, noted, on, plain, told_of

# Rows, columns and warps of a tile, forward and backward: what was fastest on an H200. A norm's columns are its own.
_NORMED = ((32, BLOCK, 8), (32, BLOCK, 16))
_PLAIN, _SLOWER = ((128, 64, 4),) * 2, ((64, 64, 4),) * 2
_TILES = (_NORMED, _PLAIN, _PLAIN, _SLOWER, _SLOWER, _SLOWER)
"""By a tail's place: the last three, which reckon with exponentials, want fewer rows."""


def _tile(tail: int, backward: int) -> Tuple[int, int, int]:
    return _TILES[tail][backward]


def _output(z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: int, by: float, wrap: Wrap) -> Tuple[Tensor, Tensor]:
    down, across, warps = _tile(tail, 0)
    rows, cols = z.shape
    programs = int(triton.cdiv(rows, down) * triton.cdiv(cols, across))
    both = torch.empty((rows, 2 * cols), dtype=torch.float8_e4m3fn, device=z.device)
    partials = torch.empty(programs, dtype=torch.float32, device=z.device)
    wrap(triton_kernels.tail_output_kernel)[(programs,)](
        z, z if bias is None else bias, z if keep is None else keep, inverse, both, partials, rows, cols, rows * cols, by,
        TAIL=tail, BIASED=bias is not None, DROPPED=0 if keep is None else 1, EPS=EPS, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )  # fmt: skip
    return both, partials


def _gradient(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: int, sums: bool, by: float,
    amax: Optional[Tensor], first: Optional[Tensor], first_amax: Optional[Tensor], second: Optional[Tensor], second_amax: Optional[Tensor],
    wrap: Wrap,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    down, across, warps = _tile(tail, 1)
    rows, cols = z.shape
    tiles = int(triton.cdiv(rows, down))
    programs = tiles * int(triton.cdiv(cols, across))
    straight, turned = both_layouts(z)
    partials, others, count = noted(amax, first, first_amax, second, second_amax, programs, z.device)
    summed = torch.empty((tiles if sums else 0, cols), dtype=torch.float32, device=z.device)
    wrap(triton_kernels.tail_gradient_kernel)[(programs,)](
        dh, z, z if bias is None else bias, z if keep is None else keep, inverse, straight, turned, partials, summed, *others, rows, cols,
        straight.stride(0), turned.stride(0), by,
        NOTED=count, TAIL=tail, BIASED=bias is not None, DROPPED=1 if keep is not None else 0 if by == 1.0 else 2, SUMS=sums, EPS=EPS, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )  # fmt: skip
    return straight[:, :cols], turned[:, :rows], partials, summed


@triton_op("loka::tail_output", mutates_args=())
def _output_op(z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: int, by: float) -> Tuple[Tensor, Tensor]:
    return _output(z, bias, keep, inverse, tail, by, wrap_triton)


@triton_op("loka::tail_gradient", mutates_args=())
def _gradient_op(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: int, sums: bool, by: float
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradient(dh, z, bias, keep, inverse, tail, sums, by, None, None, None, None, None, wrap_triton)


@triton_op("loka::tail_gradient_noted", mutates_args=("amax", "first_amax", "second_amax"))
def _gradient_noted_op(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: int, sums: bool, by: float,
    amax: Tensor, first: Optional[Tensor], first_amax: Optional[Tensor], second: Optional[Tensor], second_amax: Optional[Tensor],
) -> Tuple[Tensor, Tensor, Tensor]:
    straight, turned, _, summed = _gradient(
        dh, z, bias, keep, inverse, tail, sums, by, amax, first, first_amax, second, second_amax, wrap_triton
    )
    return straight, turned, summed


def output(z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: int, by: float) -> Tuple[Tensor, Tensor]:
    """(codes of what comes behind z + bias, [rows, cols] and behind these [cols, rows], as FP8 [rows, 2 cols]; the largest of each
    tile) of contiguous BF16 z [rows, cols], by a scale that is known beforehand. `tail`: its place in `handed.TAILS`; `keep`: what dropout leaves, times `by`."""
    if torch.compiler.is_compiling():
        return _output_op(z, bias, keep, inverse, tail, by)
    with on(z.device):
        return _output(z, bias, keep, inverse, tail, by, plain)


def gradient(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: int, sums: bool, by: float,
    notes: Optional[Notes] = None,
) -> Tuple[Tensor, Tensor, Optional[Tensor], Tensor]:
    """(codes [rows, cols], turned [cols, rows], the largest of each tile, or None where they are noted, with `sums` those over the rows of
    each tile) of the gradient of z, from that of what comes behind it; what comes in is contiguous. z of a ReLU: `handed.gate`, or what
    comes out of it."""
    told = told_of(notes)
    if torch.compiler.is_compiling():
        if notes is None:
            return _gradient_op(dh, z, bias, keep, inverse, tail, sums, by)
        straight, turned, summed = _gradient_noted_op(dh, z, bias, keep, inverse, tail, sums, by, notes.amax, *told[1:])
        return straight, turned, None, summed
    with on(z.device):
        straight, turned, maxima, summed = _gradient(dh, z, bias, keep, inverse, tail, sums, by, *told, plain)
    return straight, turned, maxima if notes is None else None, summed


__all__ = ["gradient", "output"]
