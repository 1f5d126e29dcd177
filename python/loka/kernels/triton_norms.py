"""Takes what comes out of a linear; gives FP8 codes of what its bias, a norm over whole rows and an activation make of it, in both
layouts, and of its gradient, by `triton_norm_kernels`: two passes each way, one for the rows and one for the codes.

Against the norm by Inductor and a cast behind it, microseconds on an H200 (PyTorch 2.11, Triton 3.6; L2 flushed, medians of 15), a
layer norm with both its parameters behind a linear with a bias, whose sum is of the backward:

    [rows, columns]                forward        backward
    8192, 4096, swish          74 + 39 -> 79      214 + 39 -> 197
    8192, 2048, relu           38 + 22 -> 38      109 + 22 ->  92
    32768, 1024, swish         43 + 40 -> 81      214 + 40 -> 203

In one pass over bands of 16 to 64 rows, each read twice, from memory once: 99 to 155 and 275 to 734 where the first line is.
"""

from typing import Optional, Tuple

import torch
import triton
from torch import Tensor
from torch.library import triton_op, wrap_triton

from . import triton_norm_kernels as kernels
from .delayed import Notes
from .triton_casts import Told, Wrap, both_layouts, noted, on, plain, told_of

# Rows, columns and warps of a tile.
_STATS, _MEANS = (4, 512, 4), (2, 1024, 4)
_OUTPUT, _GRADIENT = (64, 64, 4), (128, 64, 4)

_NOWHERE: Told = (None, None, None, None, None)


def _tiles(size: int, tile: int) -> int:
    return int(triton.cdiv(size, tile))


def _output(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor], inverse: Tensor,
    activation: int, layer: bool, eps: float, by: float, wrap: Wrap,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, cols = z.shape
    mean, rstd = (torch.empty(size, dtype=torch.float32, device=z.device) for size in (rows if layer else 0, rows))
    biases = z if bias is None else bias
    down, across, warps = _STATS
    wrap(kernels.row_stats_kernel)[(_tiles(rows, down),)](
        z, biases, mean, rstd, rows, cols, eps,
        LAYER=layer, BIASED=bias is not None, STEPS=_tiles(cols, across), TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )  # fmt: skip
    down, across, warps = _OUTPUT
    programs = _tiles(rows, down) * _tiles(cols, across)
    both = torch.empty((rows, 2 * cols), dtype=torch.float8_e4m3fn, device=z.device)
    partials = torch.empty(programs, dtype=torch.float32, device=z.device)
    wrap(kernels.row_output_kernel)[(programs,)](
        z, biases, z if keep is None else keep, z if weight is None else weight, z if shift is None else shift, mean, rstd, inverse,
        both, partials, rows, cols, rows * cols, by,
        ACTIVATION=activation, LAYER=layer, BIASED=bias is not None, WEIGHED=weight is not None, SHIFTED=shift is not None,
        DROPPED=0 if keep is None else 1, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )  # fmt: skip
    return both, partials, mean, rstd


def _gradient(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor],
    mean: Optional[Tensor], rstd: Tensor, inverse: Tensor, activation: int, sums: bool, by: float, amax: Optional[Tensor],
    first: Optional[Tensor], first_amax: Optional[Tensor], second: Optional[Tensor], second_amax: Optional[Tensor], wrap: Wrap,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    rows, cols = z.shape
    flags = dict(
        ACTIVATION=activation, LAYER=mean is not None, BIASED=bias is not None, WEIGHED=weight is not None, SHIFTED=shift is not None,
        DROPPED=0 if keep is None else 1,
    )  # fmt: skip
    parts = [dh, z, *(z if part is None else part for part in (bias, keep, weight, shift)), rstd if mean is None else mean, rstd]
    means = torch.empty((2, rows), dtype=torch.float32, device=z.device)
    down, across, warps = _MEANS if cols > _STATS[1] else _STATS
    wrap(kernels.row_means_kernel)[(_tiles(rows, down),)](
        *parts, means, rows, cols, by, **flags, STEPS=_tiles(cols, across), TILE_ROWS=down, TILE_COLS=across, num_warps=warps
    )
    down, across, warps = _GRADIENT
    programs = _tiles(rows, down) * _tiles(cols, across)
    straight, turned = both_layouts(z)
    partials, others, count = noted(amax, first, first_amax, second, second_amax, programs, z.device)
    summed = torch.empty((_tiles(rows, down), 3, cols), dtype=torch.float32, device=z.device)
    wrap(kernels.row_gradient_kernel)[(programs,)](
        *parts, means, inverse, straight, turned, partials, summed, *others, rows, cols, straight.stride(0), turned.stride(0), by,
        **flags, SUMS=sums, NOTED=count, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
    )  # fmt: skip
    return straight[:, :cols], turned[:, :rows], partials, summed


@triton_op("loka::normed_output", mutates_args=())
def _output_op(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor], inverse: Tensor,
    activation: int, layer: bool, eps: float, by: float,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    return _output(z, bias, keep, weight, shift, inverse, activation, layer, eps, by, wrap_triton)


@triton_op("loka::normed_gradient", mutates_args=())
def _gradient_op(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor],
    mean: Optional[Tensor], rstd: Tensor, inverse: Tensor, activation: int, sums: bool, by: float,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradient(dh, z, bias, keep, weight, shift, mean, rstd, inverse, activation, sums, by, *_NOWHERE, wrap_triton)


@triton_op("loka::normed_gradient_noted", mutates_args=("amax", "first_amax", "second_amax"))
def _gradient_noted_op(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor],
    mean: Optional[Tensor], rstd: Tensor, inverse: Tensor, activation: int, sums: bool, by: float, amax: Tensor,
    first: Optional[Tensor], first_amax: Optional[Tensor], second: Optional[Tensor], second_amax: Optional[Tensor],
) -> Tuple[Tensor, Tensor, Tensor]:
    told = amax, first, first_amax, second, second_amax
    straight, turned, _, summed = _gradient(
        dh, z, bias, keep, weight, shift, mean, rstd, inverse, activation, sums, by, *told, wrap_triton
    )
    return straight, turned, summed


def output(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor], inverse: Tensor,
    activation: int, layer: bool, eps: float, by: float,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """(codes, the largest of each tile: as of `triton_tails.output`; `norms.Stats` of z + bias, the mean empty where no layer norm wants
    it) of contiguous BF16 z [rows, cols]. `activation`: its place in `handed.TAILS`, 0 for none."""
    if torch.compiler.is_compiling():
        return _output_op(z, bias, keep, weight, shift, inverse, activation, layer, eps, by)
    with on(z.device):
        return _output(z, bias, keep, weight, shift, inverse, activation, layer, eps, by, plain)


def gradient(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor],
    mean: Optional[Tensor], rstd: Tensor, inverse: Tensor, activation: int, sums: bool, by: float, notes: Optional[Notes] = None,
) -> Tuple[Tensor, Tensor, Optional[Tensor], Tensor]:
    """(codes [rows, cols], turned [cols, rows], the largest of each tile, or None where they are noted, sums over the rows of each tile
    [tiles, 3, cols]: of the gradient of z where `sums`, and of the gradients of weight and shift where there are any) of
    the gradient of z, from that of what comes behind it; what comes in is contiguous."""
    told = told_of(notes)
    parts = dh, z, bias, keep, weight, shift, mean, rstd, inverse
    if torch.compiler.is_compiling():
        if notes is None:
            return _gradient_op(*parts, activation, sums, by)
        straight, turned, summed = _gradient_noted_op(*parts, activation, sums, by, notes.amax, *told[1:])
        return straight, turned, None, summed
    with on(z.device):
        straight, turned, maxima, summed = _gradient(*parts, activation, sums, by, *told, plain)
    return straight, turned, maxima if notes is None else None, summed


__all__ = ["gradient", "output"]
