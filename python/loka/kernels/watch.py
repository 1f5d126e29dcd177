"""Takes one GEMM's operands and output in a checked step; sums how far FP8 is from BF16 on a sample of its rows.

Plain tensor operations into a few numbers a GEMM, so that they work under torch.compile; nothing is read by the host
here. Compiled code guards on the switch, and so has two variants: one with nothing of this in it.
"""

from typing import Dict, Optional, Tuple

import torch
from torch import Tensor

from ..catalogue import FORMAT_MAX, Numerics
from .scales import quantize, to_fp8

ROWS = 64
"""Rows of the output that are computed a second time."""

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
_GOLDEN = 40503
_WINDOW = 2 * 132
"""Among 132 numbers in a row one has none of these primes (Jacobsthal's function of 18); twice that, as one is left out."""

FIELDS = ("error", "reference", "saturated", "flushed", "nonzero", "elements", "not_finite", "calls", "rows")
"""What is summed: squared errors against BF16 and squares of BF16; elements of the left operand (x or dy) that are
beyond the format's largest where the scale was known beforehand, nonzero ones that became zero, nonzero ones, and all that were
looked at; outputs that are not finite; calls; and the rows of all of them."""


class Switch:
    """Whether this step is checked. Shared by all linears of a model; the only thing compiled code looks at."""

    def __init__(self, active: bool = False) -> None:
        self.active = active


class Watch:
    """The sums of one linear, FP64 [9] a GEMM, since the last `reset`."""

    def __init__(self, switch: Switch, device: torch.device, gemms: Tuple[str, ...]) -> None:
        self.switch = switch
        self.stats: Dict[str, Tensor] = {}
        for gemm in gemms:
            sums = torch.zeros(len(FIELDS), dtype=torch.float64, device=device)
            torch._dynamo.mark_static_address(sums, guard=False)
            self.stats[gemm] = sums

    def to(self, device: torch.device) -> None:
        """Follows the model to another device."""
        for gemm, sums in self.stats.items():
            if sums.device != device:
                self.stats[gemm] = sums.to(device)
                torch._dynamo.mark_static_address(self.stats[gemm], guard=False)

    def reset(self) -> None:
        for sums in self.stats.values():
            sums.zero_()


def sample(rows: int, device: torch.device) -> Tensor:
    """Indices of ROWS different rows of so many, or of all, spread by a stride near the golden section of them.

    Rows come in periods: 11 positions of a sequence lie one after the other, and every eleventh row is always the same
    one. The stride has no factor in common with any number up to 64, so that each position of such a period is there;
    and it depends on the number of rows alone, so that every rank and every step takes the same ones. By tensors, since
    that number may be symbolic under torch.compile."""
    if rows <= ROWS:
        return torch.arange(rows, device=device)
    strides = rows * _GOLDEN // 2**16 + torch.arange(_WINDOW, device=device)
    coprime = (strides[:, None] % torch.tensor(_PRIMES, device=device) != 0).all(1)
    # A row would come twice only where the stride and the number of rows share a prime beyond 64: both are that prime then.
    stride = strides.masked_fill(~coprime | (strides == rows), 2**62).amin()
    return torch.arange(ROWS, device=device) * stride % rows


def observe(
    sums: Tensor, gemm: str, got: Tensor, a: Tensor, b: Tensor, how: Numerics, scale: Optional[Tensor]
) -> None:
    """Adds one call of a GEMM: `got` is its output, a and b its operands as the model stores them (fprop x, W; dgrad dy,
    W; wgrad dy, x). `scale`: of a, where it was known beforehand."""
    if got.numel() == 0:
        return
    if gemm == "wgrad":
        rows = sample(a.shape[1], a.device)
        left, right, whole = a[:, rows].t(), b.t(), a.t()
    else:
        rows = sample(a.shape[0], a.device)
        left, right, whole = a[rows], b if gemm == "fprop" else b.t(), a
    reference = (left.bfloat16() @ right.bfloat16().t()).double()
    error = got[rows].double() - reference
    saturated, flushed = _lost(left, whole, how, scale)
    counts = (
        error.square().sum(), reference.square().sum(), saturated, flushed, (left != 0).sum(),
        torch.full((), left.numel(), device=left.device), (~torch.isfinite(got[rows])).sum(),
        torch.ones((), device=left.device), torch.full((), a.shape[0], device=left.device),
    )
    sums.add_(torch.stack([count.double() for count in counts]))


def _lost(left: Tensor, whole: Tensor, how: Numerics, scale: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """(saturated, flushed to zero) of the sampled rows."""
    nothing = torch.zeros((), dtype=torch.int64, device=left.device)
    if how.a.format not in FORMAT_MAX:
        return nothing, nothing
    if how.a.granularity == "static":
        assert scale is not None, "a static cast has its scale"
        found = to_fp8(left, scale, how.a.format).float()
        beyond = (left.float() / scale).abs() > FORMAT_MAX[how.a.format]
        return beyond.sum(), ((found == 0) & (left != 0)).sum()
    if how.a.granularity == "tensor":
        bits = quantize(torch.cat([left, _edge(whole)]), how.a)[0][: left.shape[0]]
    else:
        bits = quantize(left, how.a)[0]
    return nothing, ((bits.float() == 0) & (left != 0)).sum()


def _edge(whole: Tensor) -> Tensor:
    """A row as wide as the operand's that has its largest value in it, so that a scale of the tensor is that of all."""
    return whole.abs().amax().expand(1, whole.shape[1])


__all__ = ["FIELDS", "ROWS", "Switch", "Watch", "observe", "sample"]
