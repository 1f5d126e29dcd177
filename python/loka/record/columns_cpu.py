"""Takes rows on the CPU; gives the passes of `columns.py` with decisions made by the host, which waits for nothing here.

On small models a recorded step is its number of operators, not their work: those that only choose (`torch.where` with a
flag that a device would have to be waited for) are most of them, and none is left here.
"""

import math
from typing import Tuple

import torch
from torch import Tensor

_INFINITE_BITS = 0x7F800000

_PIECE = 1 << 16
"""Values that are looked at together: temporaries of more go back to the system, and their pages are paid for anew."""


def scan(values: Tensor, bits: Tensor) -> None:
    """See `columns.scan`."""
    if values.numel():
        low, high = torch.aminmax(values)
        # From FP64, a value past FP32's range is infinite here as it would be in any kernel.
        largest = torch.maximum(-low, high).float()
        if math.isnan(float(largest)):
            bits.fill_(_INFINITE_BITS + 1)
        else:
            torch.maximum(bits, largest.abs().view(torch.int32), out=bits)


def histogram(rows: Tensor, factor: Tensor, hist: Tensor) -> None:
    """See `columns.histogram`."""
    scale = float(factor)
    exponents = torch.zeros(256, dtype=torch.int64)
    zeros = 0
    for part in rows.split(max(_PIECE // max(rows.shape[1], 1), 1)):
        values = part.float()
        values = values.contiguous() if scale == 1.0 else values * factor.float()
        fields = torch.bincount(((values.view(torch.int32) >> 23) & 0xFF).flatten(), minlength=256)
        if fields[0]:
            zeros += values.numel() - int(torch.count_nonzero(values))
        exponents += fields
    # Exponent -127 is zeros and what is next to nothing; 128 is what is not finite.
    hist[0] += zeros
    hist[1] += exponents[:88].sum() - zeros
    hist[2:80] += exponents[88:166]
    hist[80] += exponents[166:255].sum()
    hist[81] += exponents[255]


def shifted(
    rows: Tensor, factor: Tensor, finite: Tensor, counters: Tensor, mean: Tensor, square: Tensor, dtype: torch.dtype
) -> Tuple[Tensor, Tensor]:
    """See `columns.shifted`."""
    (size, features), count = rows.shape, float(counters[0])
    if not finite:
        return torch.zeros(size + 1, features, dtype=dtype), torch.zeros(features, dtype=dtype)
    z = torch.empty(size + 1, features, dtype=dtype)
    body, last = z[:-1], z[-1]
    scale = float(factor.to(dtype))
    torch.mul(rows, scale, out=body) if rows.dtype == dtype else body.copy_(rows).mul_(scale)
    shift = (mean if count > 0 else body[0].clone()).to(dtype)
    start = mean if count > 0 else shift.double()
    body -= shift
    torch.sum(body, 0, out=last)
    zbar = last.double() / size
    last.copy_(zbar)
    share = size / (count + size)
    correction = zbar * (size * share)
    square += torch.linalg.vector_norm(body, dim=0, dtype=torch.float64).square_() - correction * zbar
    # The shift was rounded to the rows' type; the mean is not moved by that.
    mean.copy_(start + share * (zbar + (shift.double() - start)))
    return z, correction.to(dtype)


def finish(counters: Tensor, bits: Tensor, seen: Tensor, count: int, factor: Tensor, finite: Tensor) -> None:
    """See `columns.finish`."""
    largest = bits.view(torch.float32) * factor.abs().float()
    if finite:
        counters[0] += count
        counters[2] = max(float(counters[2]), float(largest))
    else:
        counters[1] += 1
    torch.maximum(seen, largest, out=seen)
    bits.zero_()


def quantiles(rows: Tensor, below: Tensor, part: Tensor) -> Tensor:
    """`[features, q]` FP64: between the sorted rows `below` and the next ones, `part` `[q, 1]` of the way."""
    # A copy also where there is nothing to turn, as of one column: it is sorted in place.
    values = rows.T.clone(memory_format=torch.contiguous_format)
    values = _sorted(values if values.dtype in (torch.float32, torch.float64) else values.float())
    return torch.lerp(values[:, below].double(), values[:, below + 1].double(), part.T.double())


def _sorted(values: Tensor) -> Tensor:
    try:
        # NumPy's sort makes no indices and uses the widest registers: some ten times faster.
        values.numpy().sort(axis=1)
        return values
    except (ImportError, RuntimeError):
        # A PyTorch without NumPy.
        return values.sort(dim=1).values


__all__ = ["finish", "histogram", "quantiles", "scan", "shifted"]
