"""Takes many weights on a GPU with the memory for their FP8 codes; casts all of them in two launches, maxima and codes.

A table on the device says where each weight and its codes lie, and which tile of which weight a program is: the number
of launches does not depend on the number of weights. The values are those of `scales.quantize`. Needs Triton.
"""

import contextlib
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import triton_kernels
from ..catalogue import FORMAT_MAX, SCALE_FLOOR, Cast

if TYPE_CHECKING:
    from .weight_codes import WeightCodes

_TILE = (64, 128, 8)
"""Rows, columns and warps of a tile."""

_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}
_CODES = {"e4m3": tl.float8e4nv, "e5m2": tl.float8e5}


class Launch:
    """Weights of one type and how they are cast. Called, it makes their codes and scales from what they are now."""

    def __init__(
        self, members: Sequence[Tuple[Tensor, "WeightCodes"]], cast: Cast, straight: bool, turned: bool
    ) -> None:
        self._keep = list(members)
        first = members[0][0]
        device, rowwise = first.device, cast.granularity == "row"
        down, across, warps = _TILE
        table: List[List[int]] = []
        tile_of: List[Tensor] = []
        tiles = row_at = col_at = 0
        for index, (weight, codes) in enumerate(members):
            n, k = weight.shape
            first_codes = codes.for_fprop if straight else None
            second_codes = codes.for_dgrad if turned else None
            # One scale a tensor is written once, whichever codes are made.
            scales = (first_codes, second_codes) if rowwise else (first_codes or second_codes, None)
            parts = [None if one is None else one.bits for one in (first_codes, second_codes)]
            parts += [None if one is None else one.scale for one in scales]
            addresses = [0 if part is None else part.data_ptr() for part in (weight, *parts)]
            pitches = [0 if part is None else part.stride(0) for part in parts[:2]]
            table.append([*addresses, n, k, tiles, row_at, col_at, *pitches])
            count = int(triton.cdiv(n, down) * triton.cdiv(k, across))
            tile_of.append(torch.full((count,), index, dtype=torch.int32))
            tiles += count
            row_at += n if rowwise else 1
            col_at += k if rowwise else 0
        self._table = torch.tensor(table, dtype=torch.int64, device=device)
        self._tile_of = torch.cat(tile_of).to(device)
        self._maxima = torch.zeros(row_at + col_at, dtype=torch.int32, device=device)
        of_rows, of_cols = self._maxima.split([row_at, col_at])
        self._arguments = (self._table, self._tile_of, of_rows, of_cols)
        self._grid, self._device = (tiles,), device
        self._options: Dict[str, Any] = dict(
            TYPE=_TYPES[first.dtype], ROWWISE=rowwise, STRAIGHT=straight, TURNED=turned,
            ROUNDED=members[0][1].rounded, ALIGNED=all(is_aligned(*member) for member in members), TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
        )
        self._cast_options: Dict[str, Any] = dict(
            CODES=_CODES[cast.format], LARGEST=FORMAT_MAX[cast.format], FLOOR=SCALE_FLOOR, POWER_OF_TWO=cast.power_of_two
        )

    def __call__(self) -> None:
        with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
            self._maxima.zero_()
            triton_kernels.weights_amax_kernel[self._grid](*self._arguments, **self._options)
            triton_kernels.weights_cast_kernel[self._grid](*self._arguments, **self._options, **self._cast_options)


def is_aligned(weight: Tensor, codes: "WeightCodes") -> bool:
    """Whether every row of the weight and of its codes begins at a multiple of 16 bytes, and has such a multiple of elements."""
    parts = [weight, *(one.bits for one in (codes.for_fprop, codes.for_dgrad) if one is not None)]
    sizes = [*weight.shape, *(part.stride(0) for part in parts)]
    return all(size % 16 == 0 for size in sizes) and all(part.data_ptr() % 16 == 0 for part in parts)


__all__ = ["Launch", "is_aligned"]
