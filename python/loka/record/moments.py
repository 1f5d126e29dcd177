"""Takes batches of rows; gives their count, mean, scatter, histogram, largest value and quantiles, on the device.

Nothing here waits for the device. On CUDA rows become FP32 and the two long column passes are one Triton kernel
each (`columns.py`); elsewhere everything is FP64. Counts, means and variances are FP64 everywhere: they drift.
A call with a value that is not finite changes nothing but the histogram and the number of skipped calls.

Rows are shifted by the mean so far (the first row, at first): with z = x - shift, b new rows and n' = n + b rows in
all, Chan's update S' = S + S_b + (n b / n') d d^T becomes S' = S + Z^T Z - (b^2 / n') zbar zbar^T, one pass.
"""

import contextlib
import functools
from typing import Any, Dict, Iterator, NamedTuple, Optional, Protocol, Tuple

import torch
from torch import Tensor

from loka.record import columns, columns_cpu
from loka.record.options import QUANTILE_PROBS, QUANTILE_ROWS, Options
from loka.record.sketch import test_matrix

HIST_BINS = 82
COUNT, SKIPPED, AMAX, QUANTILE_ROWS_SEEN = range(4)
"""Places in `Moments.counters`."""

_SORTED_COLUMNS = 2048
"""Columns sorted at a time: a sort makes indices of eight bytes, which at 10,000 features would show in peak memory."""


class Batch(NamedTuple):
    """One call's rows after shift and scale, as other statistics of the same rows need them."""

    z: Tensor
    """`[rows + 1, features]`; the last row is their mean."""
    correction: Tensor
    """`[features]`: b^2 / n' times that mean; zero when the call is skipped."""


class Moments:
    """Running statistics of rows of `features` values on one device."""

    def __init__(self, features: int, options: Options, device: torch.device) -> None:
        self.features = features
        self.options = options
        self.wide = torch.float32 if device.type != "cpu" else torch.float64
        exact: Any = {"dtype": torch.float64, "device": device}
        self.counters = torch.zeros(4, **exact)
        self.mean = torch.zeros(features, **exact)
        self.square = torch.zeros(features, **exact)
        self.hist = torch.zeros(HIST_BINS, dtype=torch.int64, device=device)
        self.quantile_sum = torch.zeros(features, len(QUANTILE_PROBS), **exact)
        self.bits = torch.zeros(1, dtype=torch.int32, device=device)
        self.omega: Optional[Tensor] = None
        width = features
        if options.sketched(features):
            width = min(options.rank + options.oversample, features)
            self.omega = test_matrix(features, width, options.seed).to(device, self.wide)
        self.scatter = torch.zeros(features, width, dtype=self.wide, device=device)
        self.sorted = False
        """Whether any quantiles are in."""

    def fresh(self) -> "Moments":
        """The same without rows."""
        return Moments(self.features, self.options, self.counters.device)

    def scan(self, values: Tensor) -> None:
        """Notes the largest |value| of `values` `[rows, features]` in `bits`, NaN above infinity above all."""
        columns.scan(values, self.bits)

    def add(self, rows: Tensor, factor: Tensor, finite: Tensor) -> Batch:
        """Takes in `rows` `[b, features]` times `factor` (one value, on the device), if `finite`."""
        columns.histogram(rows, factor, self.hist)
        z, correction = columns.shifted(rows, factor, finite, self.counters, self.mean, self.square, self.wide)
        body, zbar = z[:-1], z[-1]
        with full_precision():
            if self.omega is None:
                self.scatter.addmm_(body.T, body)
                self.scatter.addcmul_(correction[:, None], zbar[None, :], value=-1.0)
            else:
                projected = z @ self.omega
                self.scatter.addmm_(body.T, projected[:-1])
                self.scatter.addcmul_(correction[:, None], projected[-1:], value=-1.0)
        return Batch(z, correction)

    def add_quantiles(self, rows: Tensor, factor: Tensor, finite: Tensor) -> None:
        """Adds the quantiles of at most QUANTILE_ROWS of `rows`, weighted by how many rows they are of.

        Of n sorted rows the p-quantile is at p (n + 1), unbiased in p for any distribution, so that a mean over
        batches comes closer to the truth with each."""
        rows = rows[:QUANTILE_ROWS]
        if len(rows) < 2:
            return
        self.sorted = True
        below, part = _places(len(rows), rows.device, self.wide)
        weight = finite.double() * len(rows)
        if rows.device.type == "cpu":
            if finite:
                found = columns_cpu.quantiles(rows, below, part)
                # Of a negative factor the order is the other way round.
                found = found if factor > 0 else found.flip(1)
                self.quantile_sum.addcmul_(found * factor.double(), weight)
                self.counters[QUANTILE_ROWS_SEEN] += len(rows)
            return
        for start in range(0, self.features, _SORTED_COLUMNS):
            some = slice(start, start + _SORTED_COLUMNS)
            values = torch.where(finite, rows[:, some].to(self.wide) * factor, 0.0).sort(dim=0).values
            found = torch.lerp(values[below], values[below + 1], part)
            self.quantile_sum[some].addcmul_(found.T.double(), weight)
        self.counters[QUANTILE_ROWS_SEEN : QUANTILE_ROWS_SEEN + 1] += weight

    def finish(self, count: int, factor: Tensor, finite: Tensor, seen: Tensor) -> None:
        """Ends a call of `count` rows: counts them, keeps the largest value, also in `seen` (one value of a
        series, negative as long as nothing was seen)."""
        columns.finish(self.counters, self.bits, seen, count, factor, finite)

    def state(self) -> Dict[str, Tensor]:
        """Everything that a save needs."""
        names = ("counters", "mean", "square", "hist", "quantile_sum", "scatter")
        return {name: getattr(self, name) for name in names}


@functools.lru_cache(maxsize=16)
def _places(count: int, device: torch.device, dtype: torch.dtype) -> Tuple[Tensor, Tensor]:
    """Of each quantile of `count` sorted rows the row below it `[q]`, and how far it is on to the next `[q, 1]`."""
    place = (torch.tensor(QUANTILE_PROBS, dtype=torch.float64) * (count + 1) - 1).clamp(0, count - 1)
    below = place.floor().long().clamp(max=count - 2)
    # Kept on the device: a copy from the host in every call would make it wait.
    return below.to(device), (place - below).to(device, dtype)[:, None]


class Scanned(Protocol):
    """What has noted the largest value of a call."""

    bits: Tensor


def all_finite(factor: Tensor, *moments: Optional[Scanned]) -> Tensor:
    """Whether all that was scanned is finite, and the factor too: one boolean on the device."""
    finite = torch.isfinite(factor)
    for each in moments:
        if each is not None:
            finite = finite & (each.bits < columns.INFINITE_BITS)
    return finite


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """FP32 products in FP32 whatever the run allows: TF32 keeps 10 bits, and a covariance is a difference."""
    backend = torch.backends.cuda.matmul
    name, value = ("fp32_precision", "ieee") if hasattr(backend, "fp32_precision") else ("allow_tf32", False)
    before = getattr(backend, name)
    if before == value:
        yield
        return
    setattr(backend, name, value)
    try:
        yield
    finally:
        setattr(backend, name, before)
