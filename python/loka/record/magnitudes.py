"""Takes the rows of a site's input and output gradient; gives where the weight gradient's products lie below the amax.

A cast to FP8 errs by a share of each value that depends on how far the value is below the largest one under its scale.
In the weight gradient an error of x counts by |g|^2 of its row, and an error of g by |x|^2 of its row: where large
rows of x have small gradients (raw counters in front of a norm), statistics of x alone say nothing of that. So the
squares are summed by octaves below the amax, each with the weight that it has in the weight gradient.
"""

from typing import Dict, List

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

_LANES = 64
"""On a GPU so many copies of the bins are added to: atomic sums into 40 places would wait for one another."""


class Magnitudes:
    """The running sums `[2, 4, BINS]` of one site on one device: input, then output gradient."""

    def __init__(self, device: torch.device, rows: int) -> None:
        self.sums = torch.zeros(2, 4, BINS, dtype=torch.float64, device=device)
        self.rows = rows

    def add(self, x: Tensor, grad: Tensor, factor: Tensor, finite: Tensor, index: int) -> None:
        """Takes in a call's rows `[rows, k]` and `[rows, n]`; grad times `factor` is per example."""
        rows = len(x)
        limit = max(min(self.rows, _VALUES // max(x.shape[1], grad.shape[1])), _FEWEST_ROWS)
        stride = max(rows // limit, 1)
        some = torch.arange(index % stride, rows, stride, device=x.device)[:limit]
        parts = [x[some].float(), grad[some].float()]
        squares = [part.double().square() for part in parts]
        lengths = [square.sum(1, keepdim=True) for square in squares]
        scale = factor.double().square().reshape(())
        found: List[Tensor] = []
        for operand, whole in enumerate((x, grad)):
            blocks = _block_amax(whole)
            feature = blocks.amax(0)
            tensor = feature.amax()
            # A gradient's own squares take the factor; a product of both takes it once.
            weighted = squares[operand] * (lengths[1 - operand] * scale)
            alone = squares[operand] * scale if operand == 1 else squares[operand]
            for amax, values in (
                (tensor, weighted), (feature, weighted), (blocks[some // _BLOCK_ROWS], weighted), (tensor, alone),
            ):  # fmt: skip
                found.append(_by_octave(parts[operand].abs() / amax, values))
        added = torch.stack(found).reshape(2, 4, BINS) * (rows / len(some))
        self.sums += torch.where(finite.reshape(()), added, 0.0)


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


def _by_octave(ratios: Tensor, values: Tensor) -> Tensor:
    """`values` `[rows, features]` summed by how far their `ratios` to the amax are below 1."""
    # Of a group of zeros the ratio is no number, and the value is 0 wherever it goes.
    bins = (1 - torch.frexp(ratios).exponent).clamp(0, BINS - 1).long()
    if values.device.type == "cpu":
        return torch.bincount(bins.flatten(), values.flatten(), BINS)
    lanes = (torch.arange(len(bins), device=bins.device) % _LANES * BINS)[:, None]
    sums = torch.zeros(_LANES * BINS, dtype=torch.float64, device=bins.device)
    return sums.index_add_(0, (bins + lanes).flatten(), values.flatten()).reshape(_LANES, BINS).sum(0)


def tensors(sums: Tensor, noise: Tensor, missed: int) -> Dict[str, Tensor]:
    """The trace's tensors: `sums` as means over the examples of `noise` (the sums of a `Noise`) and those `missed`."""
    count = float(noise[EXAMPLES]) + missed
    if float(noise[EXAMPLES]) < 1 or not bool(torch.isfinite(sums).all()):
        return {}
    return {"noise.input_hist": sums[0] / count, "noise.grad_output_hist": sums[1] / count}


__all__ = ["ALONE", "BINS", "BLOCK", "FEATURE", "Magnitudes", "TENSOR", "tensors"]
