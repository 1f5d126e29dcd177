"""Takes many weights on a GPU with the memory for their FP8 codes; casts all of them in two launches, maxima and codes.

A table on the device says where each weight and its codes lie, and which tile of which weight a program is: the number
of launches does not depend on the number of weights. The values are those of `scales.quantize`. Needs Triton.
"""

import contextlib
from typing import TYPE_CHECKING, List, Sequence, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from .catalogue import FORMAT_MAX, SCALE_FLOOR, Cast
from .triton_kernels import cast_tile, loaded, magnitude

if TYPE_CHECKING:
    from .weight_codes import WeightCodes

_TILE = (64, 128, 8)
"""Rows, columns and warps of a tile."""

_FIELDS = tl.constexpr(10)
"""Of a table's row: addresses of the weight, its codes, those turned, and the scales of both; rows, columns; the first
tile; and where the maxima of its rows and of its columns begin."""

_TYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16}
_CODES = {"e4m3": tl.float8e4nv, "e5m2": tl.float8e5}


@triton.jit
def _entry(table, tile_of):
    """(row of the table, tile of that weight) of this program."""
    entry = table + tl.load(tile_of + tl.program_id(0)).to(tl.int64) * _FIELDS
    return entry, (tl.program_id(0) - tl.load(entry + 7)).to(tl.int32)


@triton.jit
def weights_amax_kernel(
    table, tile_of, row_amax, col_amax, TYPE: tl.constexpr, ROWWISE: tl.constexpr, STRAIGHT: tl.constexpr,
    TURNED: tl.constexpr, ROUNDED: tl.constexpr, TILE_ROWS: tl.constexpr, TILE_COLS: tl.constexpr,
):
    """The largest |x| of every weight, or of each of its rows and columns, as bits, into memory that holds zeros."""
    entry, tile = _entry(table, tile_of)
    x = tl.load(entry).to(tl.pointer_type(TYPE))
    rows, cols = tl.load(entry + 5).to(tl.int32), tl.load(entry + 6).to(tl.int32)
    across_all = tl.cdiv(cols, TILE_COLS)
    row = tile // across_all * TILE_ROWS + tl.arange(0, TILE_ROWS)
    col = tile % across_all * TILE_COLS + tl.arange(0, TILE_COLS)
    inside = (row < rows)[:, None] & (col < cols)[None, :]
    at = row.to(tl.int64)[:, None] * cols + col[None, :]
    bits = magnitude(loaded(x, at, inside, ROUNDED))
    if ROWWISE:
        if STRAIGHT:
            to = row_amax + tl.load(entry + 8) + row
            tl.atomic_max(to, tl.max(bits, 1), mask=row < rows, sem="relaxed")
        if TURNED:
            to = col_amax + tl.load(entry + 9) + col
            tl.atomic_max(to, tl.max(bits, 0), mask=col < cols, sem="relaxed")
    else:
        tl.atomic_max(row_amax + tl.load(entry + 8), tl.max(tl.max(bits, 1), 0), sem="relaxed")


@triton.jit
def weights_cast_kernel(
    table, tile_of, row_amax, col_amax, TYPE: tl.constexpr, CODES: tl.constexpr,
    ROWWISE: tl.constexpr, LARGEST: tl.constexpr, FLOOR: tl.constexpr, POWER_OF_TWO: tl.constexpr,
    STRAIGHT: tl.constexpr, TURNED: tl.constexpr, ROUNDED: tl.constexpr, TILE_ROWS: tl.constexpr,
    TILE_COLS: tl.constexpr,
):
    """The tiles of all weights, by these maxima."""
    entry, tile = _entry(table, tile_of)
    x = tl.load(entry).to(tl.pointer_type(TYPE))
    out = tl.load(entry + 1).to(tl.pointer_type(CODES))
    turned = tl.load(entry + 2).to(tl.pointer_type(CODES))
    rows, cols = tl.load(entry + 5).to(tl.int32), tl.load(entry + 6).to(tl.int32)
    row_scale = tl.load(entry + 3).to(tl.pointer_type(tl.float32))
    col_scale = tl.load(entry + 4).to(tl.pointer_type(tl.float32))
    cast_tile(
        x, row_amax + tl.load(entry + 8), col_amax + tl.load(entry + 9), out, turned, row_scale, col_scale,
        rows, cols, rows, tile, 0 if ROWWISE else 1, LARGEST, FLOOR, POWER_OF_TWO, STRAIGHT, TURNED, TILE_ROWS,
        TILE_COLS, ROUNDED,
    )


class Launch:
    """Weights of one type and how they are cast. Called, it makes their codes and scales from what they are now."""

    def __init__(
        self, members: Sequence[Tuple[Tensor, "WeightCodes"]], cast: Cast, straight: bool, turned: bool
    ) -> None:
        self._keep = [tensor for weight, codes in members for tensor in (weight, *codes[:4])]
        first = members[0][0]
        device, rowwise = first.device, cast.granularity == "row"
        down, across, warps = _TILE
        table: List[List[int]] = []
        tile_of: List[Tensor] = []
        tiles = row_at = col_at = 0
        for index, (weight, codes) in enumerate(members):
            n, k = weight.shape
            parts = [codes.straight if straight else None, codes.turned if turned else None]
            # One scale a tensor is written once, whichever codes are made.
            both = rowwise or straight
            parts += [codes.straight_scale if both else codes.turned_scale, codes.turned_scale]
            addresses = [0 if part is None else part.data_ptr() for part in (weight, *parts)]
            table.append([*addresses, n, k, tiles, row_at, col_at])
            count = triton.cdiv(n, down) * triton.cdiv(k, across)
            tile_of.append(torch.full((count,), index, dtype=torch.int32))
            tiles += count
            row_at += n if rowwise else 1
            col_at += k if rowwise else 0
        self._table = torch.tensor(table, dtype=torch.int64, device=device)
        self._tile_of = torch.cat(tile_of).to(device)
        self._maxima = torch.zeros(row_at + col_at, dtype=torch.int32, device=device)
        self._arguments = (self._table, self._tile_of, *self._maxima.split([row_at, col_at]))
        self._grid, self._device = (tiles,), device
        self._options = dict(
            TYPE=_TYPES[first.dtype], ROWWISE=rowwise, STRAIGHT=straight, TURNED=turned,
            ROUNDED=members[0][1].rounded, TILE_ROWS=down, TILE_COLS=across, num_warps=warps,
        )
        self._cast_options = dict(
            CODES=_CODES[cast.format], LARGEST=FORMAT_MAX[cast.format], FLOOR=SCALE_FLOOR, POWER_OF_TWO=cast.power_of_two
        )

    def __call__(self) -> None:
        with torch.cuda.device(self._device) if self._device.type == "cuda" else contextlib.nullcontext():
            self._maxima.zero_()
            weights_amax_kernel[self._grid](*self._arguments, **self._options)
            weights_cast_kernel[self._grid](*self._arguments, **self._options, **self._cast_options)


__all__ = ["Launch", "weights_amax_kernel", "weights_cast_kernel"]
