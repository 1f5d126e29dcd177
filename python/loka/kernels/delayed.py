"""Takes a tensor and a scale that is known before the tensor is; gives its FP8 codes in plain operations (the fast cast
is in `triton_casts`), and moves such scales on by the largest values that a step has seen.

Delayed scaling: the scale of a step comes from the largest values of the steps before it. Nothing else holds under
every loss reduction, gradient accumulation, GradScaler and world size: a mean over 65,536 examples makes gradients
65,536 times smaller than those of one example, and they shrink by further orders of magnitude while a model trains.
"""

import functools
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from ..catalogue import FORMAT_MAX
from .replayed import Replayed
from .scales import fp8_dtype, largest_of
from .still import still

HEADROOM = 2.0
"""The largest value seen is put at most at half of the format's largest: the next step may double it, as GradScaler
does when it grows. A power of two costs no precision, only the lowest of E4M3's 18 octaves."""

DECAY = 0.9
"""What is remembered of the largest value a step later: half of it after seven steps, so that one outlier does not
press everything else towards zero for long."""

_ALIGNMENT = 16
"""Bytes. PyTorch's own allocations have more."""

RANGE = 1.0 / FORMAT_MAX["e4m3"]
"""Times a value over its scale: 1 at the edge of what the scale holds."""

LEAST, MOST = 2.0**-100, 2.0**100
"""Scales stay where neither they nor their inverses leave FP32."""


class Scale(NamedTuple):
    """The scale of one operand, FP32 [1] each, and Int64 [1]. All on the operand's device."""

    scale: Tensor
    """A power of two: a code stands for code * scale. 0: not known yet."""
    inverse: Tensor
    amax: Tensor
    """The largest |x| of the backward passes since the scale was last advanced."""
    saturated: Tensor
    """How many elements were beyond the format's largest value, by kernels that count them."""

    @staticmethod
    def of(scale: Optional[float], device: torch.device) -> "Scale":
        """A scale that is a plan's number, or one that is not known yet."""
        known = scale or 0.0
        inverse = 1.0 / known if known else 0.0
        made = [torch.full((1,), value, dtype=torch.float32, device=device) for value in (known, inverse, 0.0)]
        made.append(torch.zeros(1, dtype=torch.int64, device=device))
        return Scale(*map(still, made))

    @staticmethod
    def known(
        scale: Optional[Tensor], inverse: Optional[Tensor], amax: Optional[Tensor], saturated: Optional[Tensor]
    ) -> Optional["Scale"]:
        """Of its parts by themselves; None without the first. Of the others each may be missing where it is not looked at."""
        parts: Any = (scale, inverse, amax, saturated)
        return None if scale is None else Scale(*parts)

    def to(self, device: torch.device) -> "Scale":
        return Scale(*(still(part.to(device)) for part in self))


class Overflow(NamedTuple):
    """What lay beyond a scale that follows. `steps`: whose largest value did, so that codes saturated; `most`: the farthest, as a
    multiple of what the scale of that step held."""

    steps: int = 0
    most: float = 0.0

    def and_then(self, later: "Overflow") -> "Overflow":
        """Of both times together."""
        return Overflow(self.steps + later.steps, max(self.most, later.most))


Scales = Tuple[Optional[Scale], Optional[Scale]]
"""Of x (fprop and wgrad) and of dy (dgrad and wgrad); None where no kernel wants one beforehand."""


def _apart(values: Tensor) -> Tensor:
    """The same [n] values as the first column, so that 16 divides the address of each: cuBLASLt takes a scale from no
    other."""
    room = values.new_zeros(values.numel(), _ALIGNMENT // values.element_size())
    room[:, 0] = values
    return room


def power_of_two_above(x: Tensor) -> Tensor:
    """The smallest power of two above each x > 0."""
    bits = x.clamp(LEAST, MOST).view(torch.int32)
    return ((bits & 0x7F800000) + 0x00800000).view(torch.float32)


def scale_for(amax: Tensor, format: str) -> Tensor:
    """The scale that leaves HEADROOM above the largest value."""
    return power_of_two_above(amax * (HEADROOM / FORMAT_MAX[format]))


def current(x: Tensor, known: Optional[Scale], format: str, settled: bool) -> Tuple[Tensor, Tensor]:
    """(scale, its inverse) for x. Where there is none, or it may not be `settled` yet, an unknown one is taken from x
    itself, which costs a pass of its own. A scale by itself then: the model's moves on."""
    if known is not None and settled:
        return known.scale, known.inverse
    # As `watch.observe`: past the dispatcher where nobody traces.
    find = scale_now if torch.compiler.is_compiling() else _scale_now
    return find(x, None if known is None else known.scale, format)


def _scale_now(x: Tensor, known: Optional[Tensor], format: str) -> Tuple[Tensor, Tensor]:
    if x.is_cuda and (launches := _launches()) is not None:
        found: Tuple[Tensor, Tensor] = launches.find(x, known, format)
        return found
    return _scale_by_parts(x, known, format)


def _scale_by_parts(x: Tensor, known: Optional[Tensor], format: str) -> Tuple[Tensor, Tensor]:
    """By plain operations: the definition."""
    amax = x.abs().amax().float().view(1)
    # What is not finite makes everything that shares its scale NaN, as with every other scale of the moment.
    scale = torch.where(torch.isfinite(amax), scale_for(amax, format), torch.nan)
    if known is not None:
        scale = torch.where(known > 0, known, scale)
    return scale, 1.0 / scale


@torch.library.custom_op("loka::scale_now", mutates_args=())
def scale_now(x: Tensor, known: Optional[Tensor], format: str) -> Tuple[Tensor, Tensor]:
    """The scale [1] that `known` is, or where that is 0 the one of x itself, and its inverse. An op of its own: traced, it is a
    dozen operations a tensor."""
    return _scale_now(x, known, format)


@scale_now.register_fake
def _(x: Tensor, known: Optional[Tensor], format: str) -> Tuple[Tensor, Tensor]:
    made = x.new_empty(1, dtype=torch.float32)
    return made, torch.empty_like(made)


def codes(x: Tensor, inverse: Tensor, format: str) -> Tensor:
    """x over its scale on the format's grid, saturating. A NaN or an infinity becomes NaN, so that GradScaler sees it:
    an infinite gradient must not pass for a large one."""
    largest = largest_of(format)
    value = x.float() * inverse
    # value - value is 0, or NaN of what is not finite.
    return (value.clamp(-largest, largest) + (value - value)).to(fp8_dtype(format))


def largest(x: Tensor, stretch: int = 0) -> Tensor:
    """The largest |x| of each row, or of each stretch of it: what norms reduce over, so that Inductor takes the maximum
    in the same kernel."""
    return stretched(x, stretch).abs().amax(-1)


def stretched(x: Tensor, stretch: int) -> Tensor:
    """x [rows, cols] as [rows, stretches, stretch] where it divides: Inductor puts a pointwise operation into the kernel
    of the norm before it only where both go over the same three dimensions."""
    rows, cols = x.shape
    return x.reshape(rows, cols // stretch, stretch) if stretch and cols % stretch == 0 else x


def realized(x: Tensor, stretch: int) -> Tensor:
    """x, contiguous, in memory of its own under torch.compile: Inductor would compute and write a pointwise x anew for
    every kernel of ours that reads it; of a strided view there is one. In stretches, for the same reason as above."""
    x = x.contiguous()
    if not torch.compiler.is_compiling():
        return x
    view = stretched(x, stretch)
    return torch.as_strided(view, view.shape, view.stride()).view(x.shape)


class Notes(NamedTuple):
    """Where a cast notes the largest |x| that it sees, and what else is to be noted along with it: in a launch of its own each would cost a
    GPU little and a host as much as a GEMM. By itself each: nothing looks for tensors within tuples of an op."""

    amax: Tensor
    others: List[Tuple[Tensor, Tensor]]
    """Maxima of another operand, and where they are noted; two at most."""


def note(amax: Tensor, maxima: Tensor) -> None:
    """Remembers the largest of these for the next `advance`, which goes by none that is not finite. By plain operations: the definition."""
    amax.copy_(torch.maximum(amax, maxima.amax().float().view(1)))


class History:
    """The decaying maxima that the scales of one device follow. `advance` after every optimizer step: so all
    micro-batches of a step have the same scales, and a forward keeps the ones that its backward needs."""

    def __init__(self, scales: Iterable[Scale]) -> None:
        given = list(scales)
        known = torch.cat([one.scale for one in given])
        inverse = torch.cat([one.inverse for one in given])
        # In one place each, so that a step is little work for all of them: the host is what a fast GPU waits for. The
        # maxima are apart: compiled code writes to them, and to views of one tensor it could not.
        self._scale, self._inverse = _apart(known), _apart(inverse)
        self._seen = [one.amax for one in given]
        self.scales: List[Scale] = [
            Scale(still(self._scale[at, :1]), still(self._inverse[at, :1]), one.amax, one.saturated)
            for at, one in enumerate(given)
        ]
        # Steps beyond the scale, and how far: between two checks nothing else sees them.
        self.overflow = known.new_zeros(len(given), 2)
        # A scale that a plan gave is as good as a largest value at the edge of it.
        self.decaying = known * (FORMAT_MAX["e4m3"] / HEADROOM * 0.75)
        self._launch = _launch(self) if known.is_cuda else None

    @torch.no_grad()
    def advance(self) -> None:
        """Moves every scale on. Waits for nothing."""
        if self._launch is not None:
            self._launch()
            # A backward that saved the scale of the step before is an error, as it is behind plain operations.
            torch.autograd.graph.increment_version([self._scale, self._inverse])
        else:
            self._advance()

    def _advance(self) -> None:
        """By plain operations: the definition."""
        now = torch.cat(self._seen)
        # What is not finite is no size to go by.
        now = torch.where(torch.isfinite(now), now, 0.0)
        beyond = torch.where(self._scale[:, 0] > 0, now * self._inverse[:, 0] * RANGE, 0.0)
        self.overflow[:, 0] += beyond > 1
        self.overflow[:, 1] = torch.maximum(self.overflow[:, 1], beyond)
        followed = torch.maximum(now, self.decaying * DECAY)
        # A tensor that this step did not see, or saw only as zeros, keeps its scale.
        self.decaying.copy_(torch.where(now > 0, followed, self.decaying))
        bits = scale_for(self.decaying, "e4m3").view(torch.int32)
        self._scale[:, 0].view(torch.int32).copy_(bits * (self.decaying > 0))
        # The inverse of a power of two: its exponent the other way round.
        self._inverse[:, 0].view(torch.int32).copy_((254 << 23) - bits)
        torch._foreach_zero_(self._seen)


def _launch(history: History) -> Optional[Callable[[], None]]:
    """The same in one launch; None where there is no Triton."""
    launches = _launches()
    if launches is None:
        return None
    launch = launches.Launch(history._seen, history.decaying, history._scale, history._inverse, history.overflow)
    return Replayed([launch], history.decaying.device)


@functools.lru_cache(maxsize=None)
def _launches() -> Optional[Any]:
    """`triton_scales`; None where there is no Triton."""
    try:
        from . import triton_scales
    except ImportError:
        return None
    return triton_scales


__all__ = [
    "History", "Notes", "Overflow", "Scale", "Scales", "codes", "current", "largest", "note", "power_of_two_above", "realized",
    "scale_for", "stretched",
]
