"""Takes rows on a CUDA device; gives the passes of `columns.py` as Triton kernels, each one read of its rows."""

from typing import Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK_ROWS, _BLOCK_COLS = 32, 128
_STRIP = 32
"""Columns that one program of `_shifted` owns for all rows: it can then bring mean and squares up to date itself."""


def scan(values: Tensor, bits: Tensor) -> None:
    """See `columns.scan`."""
    rows, cols = values.shape
    if values.numel():
        grid = (triton.cdiv(rows, _BLOCK_ROWS), triton.cdiv(cols, _BLOCK_COLS))
        _scan[grid](values, bits, rows, cols, *values.stride(), _BLOCK_ROWS, _BLOCK_COLS)


@triton.jit
def _scan(
    values, bits, rows, cols, stride_row, stride_col, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col = tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]
    x = tl.load(values + row * stride_row + col * stride_col, mask=(row < rows) & (col < cols), other=0.0)
    # Without the sign, bits order as values do, NaN above infinity: an integer maximum loses none of them.
    magnitude = x.to(tl.float32).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.atomic_max(bits, tl.max(tl.max(magnitude, axis=1), axis=0))


def histogram(rows: Tensor, factor: Tensor, hist: Tensor) -> None:
    """See `columns.histogram`."""
    count, cols = rows.shape
    grid = (triton.cdiv(count, _BLOCK_ROWS), triton.cdiv(cols, _BLOCK_COLS))
    _histogram[grid](rows, factor, hist, count, cols, *rows.stride(), _BLOCK_ROWS, _BLOCK_COLS)


@triton.jit
def _histogram(
    rows, factor, hist, count, cols, stride_row, stride_col, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    col = tl.program_id(1).to(tl.int64) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)[None, :]
    inside = (row < count) & (col < cols)
    x = tl.load(rows + row * stride_row + col * stride_col, mask=inside, other=0.0).to(tl.float32) * tl.load(factor)
    exponent = ((x.to(tl.int32, bitcast=True) >> 23) & 0xFF) - 127
    bins = tl.minimum(tl.maximum(exponent, -40), 39) + 41
    bins = tl.where(x == 0.0, 0, bins)
    bins = tl.where(exponent == 128, 81, bins)
    # What lies outside goes to a bin that is not stored.
    bins = tl.where(inside, bins, 127)
    counts = tl.histogram(tl.reshape(bins, [BLOCK_ROWS * BLOCK_COLS]), 128)
    place = tl.arange(0, 128)
    tl.atomic_add(hist + place, counts.to(tl.int64), mask=(place < 82) & (counts > 0))


def shifted(
    rows: Tensor, factor: Tensor, finite: Tensor, counters: Tensor, mean: Tensor, square: Tensor
) -> Tuple[Tensor, Tensor]:
    """See `columns.shifted`; the result is FP32."""
    count, cols = rows.shape
    z = torch.empty(count + 1, cols, dtype=torch.float32, device=rows.device)
    correction = torch.empty(cols, dtype=torch.float32, device=rows.device)
    grid = (triton.cdiv(cols, _STRIP),)
    _shifted[grid](
        rows, factor, finite, counters, mean, square, z, correction, count, cols, *rows.stride(), 64, _STRIP
    )
    return z, correction


# A count of one must stay a number: Triton would make it a constant, which has no type to convert.
@triton.jit(do_not_specialize=["count"])
def _shifted(
    rows, factor, finite, counters, mean, square, z, correction, count, cols, stride_row, stride_col,
    BLOCK_ROWS: tl.constexpr, STRIP: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(0).to(tl.int64) * STRIP + tl.arange(0, STRIP)
    inside = col < cols
    scale = tl.load(factor)
    ok = tl.load(finite) != 0
    before = tl.load(counters)
    old = tl.load(mean + col, mask=inside, other=0.0)
    first = tl.load(rows + col * stride_col, mask=inside, other=0.0).to(tl.float32) * scale
    start = tl.where(before > 0, old, first.to(tl.float64))
    shift = tl.where(ok, start, 0.0).to(tl.float32)
    sums = tl.zeros([STRIP], tl.float64)
    squares = tl.zeros([STRIP], tl.float64)
    for begin in range(0, count, BLOCK_ROWS):
        row = begin + tl.arange(0, BLOCK_ROWS)[:, None].to(tl.int64)
        here = (row < count) & inside[None, :]
        x = tl.load(rows + row * stride_row + col[None, :] * stride_col, mask=here, other=0.0).to(tl.float32) * scale
        x = tl.where(ok & here, x - shift[None, :], 0.0)
        tl.store(z + row * cols + col[None, :], x, mask=here)
        sums += tl.sum(x, axis=0).to(tl.float64)
        squares += tl.sum(x * x, axis=0).to(tl.float64)
    added = tl.where(ok, count.to(tl.float64), 0.0)
    share = added / tl.maximum(before + added, 1.0)
    zbar = sums / count.to(tl.float64)
    corrected = added * share * zbar
    tl.store(z + count.to(tl.int64) * cols + col, zbar.to(tl.float32), mask=inside)
    tl.store(correction + col, corrected.to(tl.float32), mask=inside)
    held = tl.load(square + col, mask=inside, other=0.0)
    tl.store(square + col, tl.where(ok, held + squares - corrected * zbar, held), mask=inside)
    moved = start + share * (zbar + (shift.to(tl.float64) - start))
    tl.store(mean + col, tl.where(ok, moved, old), mask=inside)


def finish(counters: Tensor, bits: Tensor, seen: Tensor, count: int, factor: Tensor, finite: Tensor) -> None:
    """See `columns.finish`."""
    _finish[(1,)](counters, bits, seen, count, factor, finite)


@triton.jit(do_not_specialize=["count"])
def _finish(counters, bits, seen, count, factor, finite):
    largest = tl.load(bits).to(tl.float32, bitcast=True) * tl.abs(tl.load(factor))
    ok = tl.load(finite) != 0
    tl.store(counters, tl.load(counters) + tl.where(ok, count.to(tl.float64), 0.0))
    tl.store(counters + 1, tl.load(counters + 1) + tl.where(ok, 0.0, 1.0))
    kept = tl.load(counters + 2)
    tl.store(counters + 2, tl.where(ok, tl.maximum(kept, largest.to(tl.float64)), kept))
    known = tl.load(seen)
    # A comparison with NaN is false either way: one that is there stays, one that comes is kept.
    tl.store(seen, tl.where((known == known) & ((largest > known) | (largest != largest)), largest, known))
    tl.store(bits, 0)
