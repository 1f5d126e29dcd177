"""Takes weights and how two GEMMs want each of them cast; keeps their FP8 codes, made again when somebody says so.

A weight changes once in an optimizer step and is read by every micro-batch, so its casts belong to the step and not to
the forward: two launches for all weights of a model, in place, at addresses that compiled code and CUDA graphs may keep.
"""

from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from .casts import Quantized
from ..catalogue import Cast
from .padding import MULTIPLE
from .replayed import Replayed
from .scales import fp8_dtype, quantize, spaced
from .still import still

Wanted = Tuple[Optional[Cast], Optional[Cast]]
"""How fprop reads the weight [n, k], and dgrad the weight turned, [k, n]. None: not from codes."""

_KINDS = ("tensor", "row")


class WeightCodes(NamedTuple):
    """FP8 of one weight, on its device; None where a GEMM does not read codes."""

    for_fprop: Optional[Quantized]
    """[n, k], each padded with zeros to a multiple of 16, with scale FP32 [1] or [n, 1]."""
    for_dgrad: Optional[Quantized]
    """Turned, [k, n], with scale [1] or [k, 1]."""
    rounded: bool
    """The weight is FP32 and was rounded to BF16 first, as autocast does."""

    def turned(self) -> "WeightCodes":
        """Of the same weight transposed."""
        return WeightCodes(self.for_dgrad, self.for_fprop, self.rounded)

    @property
    def tensors(self) -> List[Tensor]:
        return [part for one in (self.for_fprop, self.for_dgrad) if one is not None for part in one]


def can_keep(weight: Tensor, wanted: Wanted) -> bool:
    """Whether codes of the weight can be kept between steps: both readers want one scale a tensor or a row."""
    casts = [cast for cast in wanted if cast is not None]
    plain = type(weight) in (Tensor, torch.nn.Parameter) and weight.is_contiguous() and weight.numel() > 0
    floats = weight.dtype in (torch.float32, torch.bfloat16)
    return plain and floats and bool(casts) and all(cast.granularity in _KINDS for cast in casts)


class WeightCache:
    """Codes of some weights of one device, each as `wanted` says. They are not filled before the first `refresh`."""

    def __init__(self, weights: Sequence[Tensor], wanted: Sequence[Wanted]) -> None:
        self.weights = [weight.detach() for weight in weights]
        self.wanted = list(wanted)
        self.codes: List[WeightCodes] = [_empty(weight, casts) for weight, casts in zip(self.weights, self.wanted)]
        self._launch = _launch(self) if self.weights and self.weights[0].is_cuda else None

    @torch.no_grad()
    def refresh(self) -> None:
        """Makes all codes again from what the weights are now. Waits for nothing."""
        if self._launch is not None:
            self._launch()
        else:
            for index in range(len(self.weights)):
                self._make(index)
        self._mark(self.codes)

    @torch.no_grad()
    def refresh_one(self, index: int) -> None:
        """The same for the codes of one weight."""
        self._make(index)
        self._mark([self.codes[index]])

    def _make(self, index: int) -> None:
        codes = self.codes[index]
        for new, kept in zip(fresh(self.weights[index], self.wanted[index], codes.rounded), codes[:2]):
            if new is not None and kept is not None:
                # As bytes: not every device copies FP8.
                kept.bits.view(torch.uint8).copy_(new.bits.view(torch.uint8))
                kept.scale.copy_(new.scale)

    @staticmethod
    def _mark(made: Sequence[WeightCodes]) -> None:
        """A backward that saved the codes of the step before is an error, as it is where it saved the weight."""
        torch.autograd.graph.increment_version([part for codes in made for part in codes.tensors])

    def differing(self) -> List[int]:
        """Which weights have codes that are not theirs any more, by making them anew one by one. Waits for the device."""
        found = []
        for index, (weight, casts, codes) in enumerate(zip(self.weights, self.wanted, self.codes)):
            made = fresh(weight, casts, codes.rounded)
            pairs = zip(made, codes[:2])
            if not all(one is None or other is None or _equal(one, other) for one, other in pairs):
                found.append(index)
        return found


def fresh(weight: Tensor, wanted: Wanted, rounded: bool) -> Tuple[Optional[Quantized], Optional[Quantized]]:
    """The codes of one weight by plain tensor operations: the definition."""
    weight = weight.detach()
    weight = weight.to(torch.bfloat16) if rounded else weight
    made: List[Optional[Quantized]] = []
    for cast, operand in zip(wanted, (weight, weight.t())):
        if cast is None:
            made.append(None)
            continue
        bits, scale = quantize(operand, cast)
        made.append(_padded(Quantized(bits.contiguous(), scale.view(-1, 1) if cast.granularity == "row" else scale.view(1))))
    return made[0], made[1]


def _padded(made: Quantized) -> Quantized:
    """As `padding` wants the weight."""
    short_rows, short_cols = (-size % MULTIPLE for size in made.bits.shape)
    if not (short_rows or short_cols):
        return made
    # As bytes: not every device pads FP8.
    bits = pad(made.bits.view(torch.uint8), (0, short_cols, 0, short_rows)).view(made.bits.dtype)
    return Quantized(bits, pad(made.scale, (0, 0, 0, short_rows)) if made.scale.dim() == 2 else made.scale)


def _equal(one: Quantized, other: Quantized) -> bool:
    same = torch.equal(one.bits.view(torch.uint8) & 0x7F, other.bits.view(torch.uint8) & 0x7F)
    # -0 and 0 are the same: the fast casts keep no sign of zero. Other signs show in the values. What is no number is as it was.
    pairs = ((one.bits.float(), other.bits.float()), (one.scale, other.scale))
    return same and all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def _empty(weight: Tensor, wanted: Wanted) -> WeightCodes:
    (n, k), (first, second), rounded = weight.shape, wanted, weight.dtype == torch.float32
    straight = None if first is None else _memory(weight, first, n, k)
    turned = None if second is None else _memory(weight, second, k, n)
    if straight is not None and turned is not None and first == second and turned.scale.dim() == 1:
        turned = turned._replace(scale=straight.scale)
    return WeightCodes(straight, turned, rounded)


def _memory(weight: Tensor, cast: Cast, rows: int, cols: int) -> Quantized:
    dtype, device = fp8_dtype(cast.format), weight.device
    # What pads them stays zero.
    rows, cols = rows + -rows % MULTIPLE, cols + -cols % MULTIPLE
    bits = spaced(rows, cols, dtype, device).zero_() if weight.is_cuda else torch.zeros(rows, cols, dtype=dtype, device=device)
    shape = (rows, 1) if cast.granularity == "row" else (1,)
    return Quantized(still(bits), still(torch.zeros(shape, dtype=torch.float32, device=weight.device)))


def _launch(cache: WeightCache) -> Callable[[], None]:
    """A launch for each kind of cast, type of weight and whether rows are aligned: nearly always one or two in all."""
    from .triton_weights import Launch, is_aligned

    groups: Dict[Tuple[torch.dtype, bool, Cast, bool, bool], List[int]] = {}
    for index, (weight, wanted) in enumerate(zip(cache.weights, cache.wanted)):
        for part in _together(wanted):
            groups.setdefault((weight.dtype, is_aligned(weight, cache.codes[index]), *part), []).append(index)
    launches = [
        Launch([(cache.weights[index], cache.codes[index]) for index in members], cast, straight, turned)
        for (_, _, cast, straight, turned), members in groups.items()
    ]
    return Replayed(launches, cache.weights[0].device)


def _together(wanted: Wanted) -> List[Tuple[Cast, bool, bool]]:
    """(cast, straight, turned): both in one pass where they are alike."""
    first, second = wanted
    if first is not None and first == second:
        return [(first, True, True)]
    return [(cast, at == 0, at == 1) for at, cast in enumerate(wanted) if cast is not None]


__all__ = ["Wanted", "WeightCache", "WeightCodes", "can_keep", "fresh"]
