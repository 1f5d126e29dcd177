"""Takes the rows of a site's input and output gradient; gives where the weight gradient's products lie below the amax.

A cast to FP8 errs by a share of each value that depends on how far the value is below the largest one under its scale.
In the weight gradient an error of x counts by |g|^2 of its row, and an error of g by |x|^2 of its row: where large
rows of x have small gradients (raw counters in front of a norm), statistics of x alone say nothing of that. So the
squares are summed by octaves below the amax, each with the weight that it has in the weight gradient.
"""

from typing import Dict, List, Tuple

import torch
from torch import Tensor

from loka.record.noise import EXAMPLES

BINS = 40
"""Bin 0: as large as the amax itself, which casts are exact at. Bin b: [2^-b, 2^(1-b)) of it; the last: all below."""

TENSOR, FEATURE, BLOCK, ALONE = range(4)
"""Rows of the sums: under one scale for the tensor, one a feature, one for 128 rows of a feature, each weighted by the
other operand's |row|^2; and under one for the tensor, not weighted."""

_BLOCK_ROWS = 128

_VALUES = 1 << 18
"""Values of a call that are looked at, about: in whole rows, evenly spread."""

_FEWEST_ROWS = 16

_PIECE = 1 << 16
"""Values of a piece, on a CPU. Temporaries of more are given back to the system, and every call pays for their pages
anew: two thirds of its time at 2^18 values."""

_LANES = 64
"""On a GPU so many copies of the bins are added to: atomic sums into 40 places would wait for one another."""

_FIELDS, _ONE = 256, 127
"""Exponent fields of FP32, and that of 1."""


class Magnitudes:
    """The running sums `[2, 4, BINS]` of one site on one device: input, then output gradient."""

    def __init__(self, device: torch.device, rows: int) -> None:
        self.sums = torch.zeros(2, 4, BINS, dtype=torch.float64, device=device)
        self.rows = rows

    def fresh(self) -> "Magnitudes":
        """The same without rows."""
        return Magnitudes(self.sums.device, self.rows)

    def add(self, x: Tensor, grad: Tensor, factor: Tensor, finite: Tensor, index: int) -> None:
        """Takes in a call's rows `[rows, k]` and `[rows, n]`; grad times `factor` is per example."""
        if finite.device.type == "cpu" and not finite:
            return
        rows = len(x)
        widest = max(x.shape[1], grad.shape[1])
        limit = max(min(self.rows, _VALUES // widest), _FEWEST_ROWS)
        stride = max(rows // limit, 1)
        some = torch.arange(index % stride, rows, stride, device=x.device)[:limit]
        scale = factor.double().square().reshape(())
        amaxes = [_amaxes(x), _amaxes(grad)]
        # A processor goes through what fits its cache; a GPU through all at once.
        step = max(_PIECE // widest, 1) if x.device.type == "cpu" else len(some)
        added = _bins(torch.stack([_of_rows(x, grad, amaxes, scale, part) for part in some.split(step)]).sum(0))
        added = added.reshape(2, 4, BINS) * (rows / len(some))
        self.sums += torch.where(finite.reshape(()), added, 0.0)


def _of_rows(x: Tensor, grad: Tensor, amaxes: List[Tuple[Tensor, Tensor, Tensor]], scale: Tensor, some: Tensor) -> Tensor:
    """The sums of rows `some`, `[8, ...]` for `_bins`. `scale`: the factor's square."""
    parts = [x[some].float(), grad[some].float()]
    squares = [part.double().square_() for part in parts]
    lengths = [square.sum(1, keepdim=True) for square in squares]
    found: List[Tensor] = []
    for operand, (tensor, feature, blocks) in enumerate(amaxes):
        part = parts[operand].abs_()
        # A gradient's own squares take the factor; a product of both takes it once.
        weighted = squares[operand] * (lengths[1 - operand] * scale)
        alone = squares[operand] * scale if operand == 1 else squares[operand]
        of_tensor, of_alone = _by_octave(part / tensor, weighted, alone)
        found += [of_tensor, *_by_octave(part / feature, weighted)]
        found += [*_by_octave(part / blocks[some // _BLOCK_ROWS], weighted), of_alone]
    return torch.stack(found)


def _amaxes(rows: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """The largest magnitudes: of all, of each feature, of each block of rows of a feature."""
    blocks = _block_amax(rows)
    feature = blocks.amax(0)
    return feature.amax(), feature, blocks


def _block_amax(rows: Tensor) -> Tensor:
    """`[ceil(rows / 128), features]` FP32: the largest magnitudes."""
    rows = rows.detach()
    whole = len(rows) // _BLOCK_ROWS * _BLOCK_ROWS
    parts = []
    if whole:
        blocks = rows[:whole].reshape(-1, _BLOCK_ROWS, rows.shape[1])
        parts.append(torch.maximum(blocks.amax(1), -blocks.amin(1)))
    if whole < len(rows):
        parts.append(rows[whole:].abs().amax(0, keepdim=True))
    return torch.cat(parts).float()


def _by_octave(ratios: Tensor, *values: Tensor) -> List[Tensor]:
    """Each of `values` `[rows, features]` summed by how far their `ratios` to the amax, none negative, are below 1: by
    bins, or on a CPU by the ratio's exponent field."""
    if ratios.device.type == "cpu":
        # `frexp` and indices of eight bytes would be most of it. 255 is 0 / 0, of a group of zeros: their values are 0.
        fields = ratios.view(torch.int32).bitwise_right_shift_(23).bitwise_and_(0xFF).flatten()
        return [torch.bincount(fields, each.flatten(), _FIELDS) for each in values]
    # Of a group of zeros the ratio is no number, and the value is 0 wherever it goes.
    bins = (1 - torch.frexp(ratios).exponent).clamp(0, BINS - 1).long()
    lanes = (torch.arange(len(bins), device=bins.device) % _LANES * BINS)[:, None]
    bins = (bins + lanes).flatten()
    empty = torch.zeros(_LANES * BINS, dtype=torch.float64, device=bins.device)
    return [empty.index_add(0, bins, each.flatten()).reshape(_LANES, BINS).sum(0) for each in values]


def _bins(sums: Tensor) -> Tensor:
    """`[8, BINS]` of what `_by_octave` gave."""
    if sums.device.type != "cpu":
        return sums
    last = _ONE - BINS + 2
    ends = (sums[:, _ONE:].sum(1, keepdim=True), sums[:, :last].sum(1, keepdim=True))
    return torch.cat([ends[0], sums[:, last:_ONE].flip(1), ends[1]], 1)


def tensors(sums: Tensor, noise: Tensor, missed: int) -> Dict[str, Tensor]:
    """The trace's tensors: `sums` as means over the examples of `noise` (the sums of a `Noise`) and those `missed`."""
    count = float(noise[EXAMPLES]) + missed
    if float(noise[EXAMPLES]) < 1 or not bool(torch.isfinite(sums).all()):
        return {}
    return {"noise.input_hist": sums[0] / count, "noise.grad_output_hist": sums[1] / count}


__all__ = ["ALONE", "BINS", "BLOCK", "FEATURE", "Magnitudes", "TENSOR", "tensors"]
