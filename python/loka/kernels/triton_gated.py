"""Takes what comes out of two linears that read the same x; gives FP8 codes of the product of what follows each, in both layouts, and of
both gradients, each in one pass, by `triton_gated_kernels`.

Apart, an element moves 8 bytes forward and 16 backward, and 4 more for gradients of biases; here 6 and 10.
"""

from typing import Optional, Tuple

import torch
import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton

from . import triton_gated_kernels
from .delayed import Notes
from .triton_casts import Wrap, both_layouts, noted, on, plain, told_of

_FORWARD = _BACKWARD = (64, 64, 4)
"""Rows, columns and warps of a tile."""

_Seven = Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def _output(
    z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, gate: int,
    other_gate: int, by: float, wrap: Wrap,
) -> Tuple[Tensor, Tensor]:
    down, across, warps = _FORWARD
    rows, cols = z.shape
    programs = int(triton.cdiv(rows, down) * triton.cdiv(cols, across))
    both = torch.empty((rows, 2 * cols), dtype=torch.float8_e4m3fn, device=z.device)
    partials = torch.empty(programs, dtype=torch.float32, device=z.device)
    wrap(triton_gated_kernels.gated_output_kernel)[(programs,)](
        z, z if bias is None else bias, other_z, z if other_bias is None else other_bias, z if keep is None else keep, inverse, both,
        partials, rows, cols, rows * cols, by, GATE=gate, OTHER_GATE=other_gate, BIASED=bias is not None,
        OTHER_BIASED=other_bias is not None, DROPPED=0 if keep is None else 1, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )  # fmt: skip
    return both, partials


def _gradient(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor,
    other_inverse: Tensor, gate: int, other_gate: int, sums: bool, by: float,
    amax: Optional[Tensor], first: Optional[Tensor], first_amax: Optional[Tensor], second: Optional[Tensor], second_amax: Optional[Tensor],
    other_amax: Optional[Tensor], third: Optional[Tensor], third_amax: Optional[Tensor], fourth: Optional[Tensor],
    fourth_amax: Optional[Tensor], wrap: Wrap,
) -> _Seven:
    down, across, warps = _BACKWARD
    rows, cols = z.shape
    tiles = int(triton.cdiv(rows, down))
    programs = tiles * int(triton.cdiv(cols, across))
    straight, turned = both_layouts(z)
    other_straight, other_turned = both_layouts(z)
    partials, told, count = noted(amax, first, first_amax, second, second_amax, programs, z.device)
    other_partials, other_told, other_count = noted(other_amax, third, third_amax, fourth, fourth_amax, programs, z.device)
    summed = torch.empty((2, tiles if sums else 0, cols), dtype=torch.float32, device=z.device)
    wrap(triton_gated_kernels.gated_gradient_kernel)[(programs,)](
        dh, z, z if bias is None else bias, other_z, z if other_bias is None else other_bias, z if keep is None else keep, inverse,
        other_inverse, straight, turned, other_straight, other_turned, partials, other_partials, summed, *told, *other_told, rows, cols,
        straight.stride(0), turned.stride(0), tiles * cols, by, GATE=gate, OTHER_GATE=other_gate, BIASED=bias is not None,
        OTHER_BIASED=other_bias is not None, DROPPED=0 if keep is None else 1, SUMS=sums, NOTED=count, OTHER_NOTED=other_count,
        TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )  # fmt: skip
    straight, turned, other_straight, other_turned = straight[:, :cols], turned[:, :rows], other_straight[:, :cols], other_turned[:, :rows]
    return straight, turned, partials, other_straight, other_turned, other_partials, summed


@triton_op("loka::gated_output", mutates_args=())
def _output_op(
    z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, gate: int,
    other_gate: int, by: float,
) -> Tuple[Tensor, Tensor]:
    return _output(z, bias, other_z, other_bias, keep, inverse, gate, other_gate, by, wrap_triton)


@triton_op("loka::gated_gradient", mutates_args=())
def _gradient_op(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor,
    other_inverse: Tensor, gate: int, other_gate: int, sums: bool, by: float,
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    told = (*told_of(None), *told_of(None))
    return _gradient(dh, z, bias, other_z, other_bias, keep, inverse, other_inverse, gate, other_gate, sums, by, *told, wrap_triton)


@triton_op("loka::gated_gradient_noted", mutates_args=("amax", "first_amax", "second_amax", "other_amax", "third_amax", "fourth_amax"))
def _gradient_noted_op(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor,
    other_inverse: Tensor, gate: int, other_gate: int, sums: bool, by: float,
    amax: Tensor, first: Optional[Tensor], first_amax: Optional[Tensor], second: Optional[Tensor], second_amax: Optional[Tensor],
    other_amax: Tensor, third: Optional[Tensor], third_amax: Optional[Tensor], fourth: Optional[Tensor],
    fourth_amax: Optional[Tensor],
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    straight, turned, _, other_straight, other_turned, _, summed = _gradient(
        dh, z, bias, other_z, other_bias, keep, inverse, other_inverse, gate, other_gate, sums, by, amax, first, first_amax, second,
        second_amax, other_amax, third, third_amax, fourth, fourth_amax, wrap_triton,
    )  # fmt: skip
    return straight, turned, other_straight, other_turned, summed


def output(
    z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, gate: int,
    other_gate: int, by: float,
) -> Tuple[Tensor, Tensor]:
    """(codes [rows, cols] and behind these [cols, rows], as FP8 [rows, 2 cols]; the largest of each tile) of BF16 z [rows, cols], both
    contiguous. `gate`: the place in `gated` of what follows; `keep`: what dropout leaves, times `by`."""
    if torch.compiler.is_compiling():
        return _output_op(z, bias, other_z, other_bias, keep, inverse, gate, other_gate, by)
    with on(z.device):
        return _output(z, bias, other_z, other_bias, keep, inverse, gate, other_gate, by, plain)


def gradient(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor,
    other_inverse: Tensor, gate: int, other_gate: int, sums: bool, by: float, notes: Optional[Notes] = None,
    other_notes: Optional[Notes] = None,
) -> Tuple[Tensor, Tensor, Optional[Tensor], Tensor, Tensor, Optional[Tensor], Tensor]:
    """(codes [rows, cols], turned [cols, rows], the largest of each tile, or None where they are noted) of the gradient of z, the same of
    that of the other; and with `sums` [2, tiles, cols] those over the rows of each tile. What comes in is contiguous."""
    told = (*told_of(notes), *told_of(other_notes))
    if torch.compiler.is_compiling():
        if notes is None or other_notes is None:
            return _gradient_op(dh, z, bias, other_z, other_bias, keep, inverse, other_inverse, gate, other_gate, sums, by)
        straight, turned, other_straight, other_turned, summed = _gradient_noted_op(
            dh, z, bias, other_z, other_bias, keep, inverse, other_inverse, gate, other_gate, sums, by, notes.amax, *told[1:5],
            other_notes.amax, *told[6:],
        )
        return straight, turned, None, other_straight, other_turned, None, summed
    with on(z.device):
        made = _gradient(dh, z, bias, other_z, other_bias, keep, inverse, other_inverse, gate, other_gate, sums, by, *told, plain)
    straight, turned, maxima, other_straight, other_turned, other_maxima, summed = made
    seen = (maxima, other_maxima) if notes is None else (None, None)
    return straight, turned, seen[0], other_straight, other_turned, seen[1], summed


__all__ = ["gradient", "output"]
