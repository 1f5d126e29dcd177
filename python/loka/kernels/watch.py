"""Takes one GEMM's operands and output in a checked step; sums how far FP8 is from BF16 on a sample of its rows.

Tensor operations into a few numbers a GEMM; nothing is read by the host, and nothing copied from it, so that they may be
part of a CUDA graph. Compiled code guards on the switch, and so has two variants: one with nothing of this in it.
"""

import math
from typing import Dict, Optional, Tuple

import torch
from torch import Tensor

from ..catalogue import FORMAT_MAX, Numerics, numerics
from .scales import quantize
from .still import still

try:
    from . import triton_watch as triton_watch
except ImportError:  # No Triton.
    triton_watch = None  # type: ignore[assignment]

ROWS = 64
"""Rows of the output that are computed a second time."""

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61)
_GOLDEN = 40503

FIELDS = (
    "error", "reference", "saturated", "flushed", "flushed_mass", "nonzero", "mass", "elements", "not_finite", "answers", "lost",
    "calls", "rows",
)
"""What is summed: squared errors against BF16 and squares of BF16; elements of the left operand (x or dy) that are
beyond the format's largest where the scale was known beforehand, nonzero ones that became zero and their magnitudes, nonzero ones and
theirs, and all that were looked at; outputs that are not finite, those that are not zero in BF16, and of them those that are in FP8;
calls; and the rows of all of them."""


class Switch:
    """Whether this step is checked. Shared by all linears of a model; the only thing compiled code looks at."""

    def __init__(self, active: bool = False) -> None:
        self.active = active


class Watch:
    """The sums of one linear, FP64 [len(FIELDS)] a GEMM, since the last `reset`."""

    def __init__(self, switch: Switch, device: torch.device, gemms: Tuple[str, ...]) -> None:
        self.switch = switch
        self.stats: Dict[str, Tensor] = {}
        for gemm in gemms:
            self.stats[gemm] = still(torch.zeros(len(FIELDS), dtype=torch.float64, device=device))

    def to(self, device: torch.device) -> None:
        """Follows the model to another device."""
        for gemm, sums in self.stats.items():
            if sums.device != device:
                self.stats[gemm] = still(sums.to(device))

    def reset(self) -> None:
        for sums in self.stats.values():
            sums.zero_()


def sample(rows: int, device: torch.device) -> Tensor:
    """Indices of ROWS different rows of so many, or of all, spread by a stride near the golden section of them.

    Rows come in periods: 11 positions of a sequence lie one after the other, and every eleventh row is always the same
    one. The stride has no factor in common with any number up to 64, so that each position of such a period is there;
    and it depends on the number of rows alone, so that every rank and every step takes the same ones."""
    if rows <= ROWS:
        return torch.arange(rows, device=device)
    stride = rows * _GOLDEN // 2**16
    # A row would come twice only where the stride and the number of rows share a prime beyond 64: both are that prime then.
    while stride == rows or any(stride % prime == 0 for prime in _PRIMES):
        stride += 1
    return torch.arange(0, ROWS * stride, stride, device=device) % rows


def observe(
    sums: Tensor, gemm: str, got: Tensor, a: Tensor, b: Tensor, kernel: str, scale: Optional[Tensor]
) -> None:
    """Adds one call of a GEMM by `kernel`: `got` is its output, a and b its operands as the model stores them (fprop x, W;
    dgrad dy, W; wgrad dy, x). `scale`: of a, where it was known beforehand."""
    # Past the dispatcher where nobody traces: an op written in Python costs the host more than two of those inside.
    (_observe_op if torch.compiler.is_compiling() else _observe)(sums, gemm, got, a, b, kernel, scale)


def _observe(
    sums: Tensor, gemm: str, got: Tensor, a: Tensor, b: Tensor, kernel: str, scale: Optional[Tensor]
) -> None:
    if got.numel() == 0:
        return
    if gemm == "wgrad":
        rows = sample(a.shape[1], a.device)
        left, right, whole = a[:, rows].t(), b.t(), a.t()
    else:
        rows = sample(a.shape[0], a.device)
        left, right, whole = a[rows], b if gemm == "fprop" else b.t(), a
    how = numerics(kernel, gemm)
    with torch.autocast(a.device.type, enabled=False):
        reference = left.bfloat16() @ right.bfloat16().t()
        if a.is_cuda and triton_watch is not None:
            static = scale if how.a.granularity == "static" else None
            stored = left if left.is_contiguous() else left.t()
            added = triton_watch.sums_of(got, rows, reference, stored, a.shape[0], static, *_limits(how))
            if static is None and how.a.format in FORMAT_MAX:
                added[3:5].copy_(_flushed(left, whole, how))
        else:
            added = _added(got[rows], reference, left, whole, a.shape[0], how, scale)
        sums.add_(added)


def _added(
    sampled: Tensor, reference: Tensor, left: Tensor, whole: Tensor, whole_rows: int, how: Numerics, scale: Optional[Tensor]
) -> Tensor:
    """What a call adds to the sums, by plain operations: the definition."""
    expected, found = reference.double(), sampled.double()
    nonzero, finite = torch.count_nonzero(left), torch.count_nonzero(torch.isfinite(found))
    saturated, flushed = torch.zeros_like(nonzero), torch.zeros(2, dtype=torch.float64, device=left.device)
    lives = expected != 0
    if how.a.granularity == "static":
        assert scale is not None, "a static cast has its scale"
        size, (largest, zero_to) = (left.float() / scale).abs(), _limits(how)
        saturated, flushed = (size > largest).sum(), _counted(left, size <= zero_to)
    elif how.a.format in FORMAT_MAX:
        flushed = _flushed(left, whole, how)
    counts = (
        (found - expected).square().sum(), expected.square().sum(), saturated, *flushed, nonzero, left.double().abs().sum(),
        torch.full_like(nonzero, left.numel()), found.numel() - finite, lives.sum(), (lives & (found == 0)).sum(),
        torch.ones_like(nonzero), torch.full_like(nonzero, whole_rows),
    )
    return torch.stack([count.double() for count in counts])


def _limits(how: Numerics) -> Tuple[float, float]:
    """Beyond what the left operand saturates, and up to what it becomes zero: half of the smallest code, which is a tie."""
    return FORMAT_MAX.get(how.a.format, math.inf), {"e4m3": 2.0**-10, "e5m2": 2.0**-17}.get(how.a.format, 0.0)


# An op that torch.compile does not look into. Traced, it was 75 operations a GEMM, more than the rest of a linear: compiling a Wukong
# for the step that is checked took three times as long as for all others.
@torch.library.custom_op("loka::observe", mutates_args=("sums",))
def _observe_op(
    sums: Tensor, gemm: str, got: Tensor, a: Tensor, b: Tensor, kernel: str, scale: Optional[Tensor]
) -> None:
    _observe(sums, gemm, got, a, b, kernel, scale)


@_observe_op.register_fake
def _(sums: Tensor, gemm: str, got: Tensor, a: Tensor, b: Tensor, kernel: str, scale: Optional[Tensor]) -> None:
    return None


def _flushed(left: Tensor, whole: Tensor, how: Numerics) -> Tensor:
    """Nonzero elements of the sampled rows that become zero by scales that are taken from the operand itself: how many, and the
    sum of their magnitudes."""
    rows = torch.cat([left, _edge(whole)]) if how.a.granularity == "tensor" else left
    bits = quantize(rows, how.a)[0][: left.shape[0]]
    return _counted(left, bits.float() == 0)


def _counted(left: Tensor, zero: Tensor) -> Tensor:
    gone = zero & (left != 0)
    return torch.stack([gone.sum().double(), torch.where(gone, left, 0).double().abs().sum()])


def _edge(whole: Tensor) -> Tensor:
    """A row as wide as the operand's that has its largest value in it, so that a scale of the tensor is that of all."""
    return torch.linalg.vector_norm(whole, math.inf).expand(1, whole.shape[1])


__all__ = ["FIELDS", "ROWS", "Switch", "Watch", "observe", "sample"]
