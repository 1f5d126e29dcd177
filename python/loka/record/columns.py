"""Takes rows on any device; gives the passes over them that `Moments` needs: Triton on CUDA, `columns_cpu` on the CPU,
operators that nobody waits for elsewhere.

`scan`       largest |value| of all rows, as the bits of a non-negative float (they order as floats do; NaN is last)
`histogram`  counts of floor(log2 |value|) in the trace's 82 bins
`shifted`    rows minus the mean so far, their column sums, and mean and squares brought up to date
`finish`     counts and largest values of a call
"""

from typing import Any, Dict, Optional, Tuple

import torch
from torch import Tensor

from loka.record import columns_cpu

INFINITE_BITS = 0x7F800000
"""Bits of infinity in FP32: smaller is finite."""

_LOWEST, _HIGHEST = -40, 39
"""Exponents of the first and the last bin of finite values."""


def _passes(tensor: Tensor) -> Optional[Any]:
    """The Triton kernels, where they run; what the host decides, on the CPU."""
    if tensor.device.type == "cpu":
        return columns_cpu
    if tensor.device.type != "cuda" or torch.version.hip is not None:
        return None
    return _kernels()


def _kernels() -> Optional[Any]:
    if "module" not in _loaded:
        try:
            from loka.record import columns_triton

            _loaded["module"] = columns_triton
        except ImportError:
            # PyTorch without Triton: the same statistics from more launches.
            _loaded["module"] = None
    return _loaded["module"]


_loaded: Dict[str, Any] = {}


def scan(values: Tensor, bits: Tensor) -> None:
    """`bits` `[1]` int32 becomes at least that of the largest |value|."""
    kernels = _passes(values)
    if kernels is not None:
        kernels.scan(values, bits)
    elif values.numel():
        # From FP64, a value past FP32's range is infinite here as it would be in any kernel.
        largest = values.abs().amax().float()
        torch.maximum(bits, torch.where(largest.isnan(), torch.inf, largest).view(torch.int32), out=bits)
        bits += largest.isnan().int()


def histogram(rows: Tensor, factor: Tensor, hist: Tensor) -> None:
    """Adds |rows * factor| to `hist` `[82]` int64."""
    kernels = _passes(rows)
    if kernels is not None:
        kernels.histogram(rows, factor, hist)
        return
    bins = hist_bins(rows.float() * factor.float())
    hist.scatter_add_(0, bins.flatten(), torch.ones((), dtype=torch.int64, device=hist.device).expand(bins.numel()))


def hist_bins(values: Tensor) -> Tensor:
    """The trace's bin of each FP32 value, int64: 0 for zeros, 81 for what is not finite, else floor(log2) + 41."""
    # The exponent field is floor(log2) exactly, which log2 in FP32 is not near a power of two.
    exponent = ((values.contiguous().view(torch.int32) >> 23) & 0xFF) - 127
    bins = exponent.clamp(_LOWEST, _HIGHEST) + (1 - _LOWEST)
    bins = torch.where(values == 0, 0, bins)
    return torch.where(torch.isfinite(values), bins, 81).long()


def shifted(
    rows: Tensor, factor: Tensor, finite: Tensor, counters: Tensor, mean: Tensor, square: Tensor, dtype: torch.dtype
) -> Tuple[Tensor, Tensor]:
    """`[b + 1, features]` of rows * factor - shift with their mean as the last row, and b^2 / n' times that mean.

    `counters[0]` is the number of rows so far and is not changed. `mean` and `square` (sums of squares about the
    mean), `[features]` FP64, are brought up to date. Not `finite`: zeros, and nothing is changed."""
    kernels = _passes(rows)
    if kernels is not None:
        more = (dtype,) if kernels is columns_cpu else ()
        return kernels.shifted(rows, factor, finite, counters, mean, square, *more)
    count = counters[0]
    added = finite.double() * len(rows)
    values = torch.where(finite, rows.to(dtype) * factor.to(dtype), 0.0)
    shift = torch.where(count > 0, mean, values[0].double()).to(dtype)
    shift = torch.where(finite, shift, 0.0)
    z = values.new_empty(len(rows) + 1, rows.shape[1])
    torch.sub(values, shift, out=z[:-1])
    sums = z[:-1].sum(0, dtype=torch.float64)
    share = added / (count + added).clamp(min=1.0)
    zbar = sums / len(rows)
    z[-1] = zbar
    correction = added * share * zbar
    square += torch.where(finite, z[:-1].double().square().sum(0) - correction * zbar, 0.0)
    start = torch.where(count > 0, mean, shift.double())
    # The shift was rounded to the rows' type; the mean is not moved by that.
    moved = start + share * (zbar + (shift.double() - start))
    mean.copy_(torch.where(finite, moved, mean))
    return z, correction.to(dtype)


def finish(counters: Tensor, bits: Tensor, seen: Tensor, count: int, factor: Tensor, finite: Tensor) -> None:
    """Adds `count` rows to `counters[0]`, or one to `counters[1]` if not `finite`; the largest value to
    `counters[2]` and, whatever it is, to `seen`; then clears `bits`."""
    kernels = _passes(counters)
    if kernels is not None:
        kernels.finish(counters, bits, seen, count, factor, finite)
        return
    largest = bits.view(torch.float32) * factor.abs().float()
    counters[0] += torch.where(finite, float(count), 0.0).squeeze()
    counters[1] += torch.where(finite, 0.0, 1.0).squeeze()
    counters[2] = torch.where(finite, torch.maximum(counters[2], largest.double()), counters[2]).squeeze()
    torch.maximum(seen, largest, out=seen)
    bits.zero_()
