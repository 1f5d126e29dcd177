"""Takes an operand as the model stores it; gives it in FP8 straight and turned for the scaled matmuls, on a GPU.

An operand of two GEMMs is read once when both want the same format and granularity.
"""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from ..catalogue import Cast
from .delayed import Notes, codes, largest, realized
from .delayed import note as note_by_parts
from .padding import MULTIPLE
from .scales import quantize

try:
    from . import triton_casts as triton_casts
except ImportError:  # No Triton: a build without CUDA, where `why_not` turns every FP8 kernel down first.
    triton_casts = None  # type: ignore[assignment]

class Quantized(NamedTuple):
    """An FP8 operand [rows, reduced] with its scales: [1], [rows, 1], or of blocks as `triton_casts.cast_blocks` has
    them."""

    bits: Tensor
    scale: Tensor


Pair = Tuple[Optional[Quantized], Optional[Quantized]]
"""Straight and turned."""

Casts = Tuple[Optional[Cast], Optional[Cast]]
"""Of x and of the weight."""


def straight_and_turned(
    x: Tensor, straight: Optional[Cast], turned: Optional[Cast], fresh: Optional[int] = None, rounded: bool = False
) -> Pair:
    """x [rows, cols] cast as [rows, reduced] and, turned, as [cols, reduced]; None where none is asked for. Turned, the
    rows of x are padded with zeros to a multiple of 16, and in both to whole blocks where scales are of blocks.
    `fresh`: x was just computed, so that its maximum may be taken along with it, over whole rows (0) or over as many
    columns as the norms before it go over. `rounded`: x is FP32 and rounded to
    BF16 first, for one scale a tensor."""
    x = x.contiguous() if fresh is None else realized(x, fresh)
    kinds = [None if cast is None else _kind(cast) for cast in (straight, turned)]
    if not x.is_cuda:
        x = x.to(torch.bfloat16) if rounded else x
        return _emulated(x, straight), _emulated(x.t(), turned)
    if straight is not None and turned is not None and kinds[0] != kinds[1]:
        return _one(x, straight, turned, fresh)
    cast = straight or turned
    if cast is None:
        return None, None
    if cast.granularity == "tensor":
        return _tensorwise(x, cast, straight is not None, turned is not None, fresh, rounded)
    if cast.granularity == "row":
        return _rowwise(x, cast, straight is not None, turned is not None)
    return _blockwise(x, straight, turned)


def input_and_weight(
    x: Tensor, weight: Tensor, straight: Casts, turned: Casts, fresh: int = 0
) -> Tuple[Pair, Pair]:
    """`straight_and_turned` of x and of the weight, both in the same two launches where all casts are alike. An FP32
    weight beside a BF16 x is rounded to BF16 on the way."""
    one = straight[0]
    alike = straight == (one, one) and turned in ((one, one), (None, None))
    alike = alike and x.dtype == weight.dtype and x.element_size() == 2 and x.is_cuda
    if one is None or not alike or one.granularity != "tensor":
        first = (None, None) if (straight[0], turned[0]) == (None, None) else straight_and_turned(
            x, straight[0], turned[0], fresh
        )
        return first, straight_and_turned(weight, straight[1], turned[1], rounded=weight.dtype != x.dtype)
    x, weight, turn = realized(x, fresh), weight.contiguous(), turned[0] is not None
    amax = triton_casts.amax_pair(_maxima(x, fresh), weight)
    made = triton_casts.cast_pair(x, amax[0], weight, amax[1], one.format, one.power_of_two, turn, MULTIPLE)
    pairs = []
    for bits, bits_turned, scale in (made[:3], made[3:]):
        pairs.append((Quantized(bits, scale), Quantized(bits_turned, scale) if turn else None))
    return pairs[0], pairs[1]


def _emulated(x: Tensor, cast: Optional[Cast]) -> Optional[Quantized]:
    """Of kernels whose codes two GEMMs share: one scale a tensor."""
    if cast is None:
        return None
    bits, scale = quantize(x, cast)
    return Quantized(bits.contiguous(), scale.view(1))


def by_known_scale(
    x: Tensor, scale: Tensor, inverse: Tensor, straight: bool, turned: bool, stretch: int, notes: Optional[Notes] = None
) -> Tuple[Optional[Quantized], Optional[Quantized], Optional[Tensor]]:
    """x [rows, cols] in E4M3 by a scale that is known beforehand, straight and turned as asked for, and maxima of |x|, or None where it
    has noted them. One pass over x. An op that Inductor does not look into: fused into whatever makes x, the codes would be made again
    in the backward, and a norm's backward, which goes over rows one behind the other, would take twice its time."""
    if x.device.type == "cuda":
        x = realized(x, stretch)
        apart = straight and turned and not _turns_beside(x)
        bits, bits_turned, maxima = triton_casts.cast_known(x, inverse, "e4m3", straight, turned and not apart, MULTIPLE, notes)
        if apart:
            _, bits_turned, _ = triton_casts.cast_known(x, inverse, "e4m3", False, True, MULTIPLE)
    else:
        by_parts = known_by_parts if torch.compiler.is_compiling() else _known
        bits, bits_turned, maxima = by_parts(x, inverse)
        if notes is not None:
            note_all(notes, maxima)
            maxima = None
    return Quantized(bits, scale) if straight else None, Quantized(bits_turned, scale) if turned else None, maxima


def note(amax: Tensor, maxima: Tensor) -> None:
    """`delayed.note`, in one launch on a GPU."""
    if maxima.device.type == "cuda" and triton_casts is not None:
        triton_casts.note(amax, maxima)
    else:
        note_by_parts(amax, maxima)


def note_all(notes: Notes, maxima: Tensor) -> None:
    """Of an operand whose cast has noted nothing."""
    note(notes.amax, maxima)
    for other, amax in notes.others:
        note(amax, other)


def _known(x: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    bits = codes(x, inverse, "e4m3")
    return bits, bits.t().clone(memory_format=torch.contiguous_format), largest(x)


@torch.library.custom_op("loka::known_by_parts", mutates_args=())
def known_by_parts(x: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """By plain operations, one behind the other: made one loop, what PyTorch 2.11 compiles for a CPU with AVX-512 turns a hard swish
    of a norm into NaN as it is turned and its maxima are taken."""
    return _known(x, inverse)


@known_by_parts.register_fake
def _(x: Tensor, inverse: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    bits = torch.empty_like(x, dtype=torch.float8_e4m3fn, memory_format=torch.contiguous_format)
    return bits, bits.new_empty(x.shape[1], x.shape[0]), x.new_empty(x.shape[0])


def _turns_beside(x: Tensor, rounded: bool = False) -> bool:
    """Whether one pass may write x in both layouts: turned by bytes, as tiles of FP32 are, Triton 3.6 writes wrong values
    beside the straight ones. `rounded`: to BF16 as it is loaded."""
    return x.element_size() == 2 or rounded


def _kind(cast: Cast) -> Tuple[str, str, bool]:
    """Casts of one kind are made in one pass."""
    return cast.format, cast.granularity.split("_")[0], cast.power_of_two


def _one(x: Tensor, straight: Cast, turned: Cast, fresh: Optional[int]) -> Pair:
    """Two casts of different kinds."""
    return straight_and_turned(x, straight, None, fresh)[0], straight_and_turned(x, None, turned, fresh)[1]


def _tensorwise(x: Tensor, cast: Cast, straight: bool, turned: bool, fresh: Optional[int], rounded: bool) -> Pair:
    amax = triton_casts.amax(_maxima(x, fresh), rounded)
    return _cast(x, amax, amax, cast, straight, turned, rounded)


def _maxima(x: Tensor, fresh: Optional[int]) -> Tensor:
    """What has the same largest |x|, and less of it where Inductor makes it along with x."""
    return x if fresh is None or not torch.compiler.is_compiling() else largest(x, fresh)


def _rowwise(x: Tensor, cast: Cast, straight: bool, turned: bool) -> Pair:
    if straight and not turned and x.shape[1] <= triton_casts.LONGEST_ROW:
        return Quantized(*triton_casts.cast_rows(x, cast.format, cast.power_of_two)), None
    row_amax, col_amax = triton_casts.amax_rows_cols(x, straight, turned)
    return _cast(x, row_amax, col_amax, cast, straight, turned)


def _cast(
    x: Tensor, row_amax: Tensor, col_amax: Tensor, cast: Cast, straight: bool, turned: bool, rounded: bool = False
) -> Pair:
    if straight and turned and not _turns_beside(x, rounded):
        first, _ = _cast(x, row_amax, col_amax, cast, True, False)
        _, second = _cast(x, row_amax, col_amax, cast, False, True)
        return first, second
    tensorwise = cast.granularity == "tensor"
    bits, bits_turned, row_scale, col_scale = triton_casts.cast(
        x, row_amax, col_amax, tensorwise, cast.format, cast.power_of_two, straight, turned, MULTIPLE, rounded
    )
    first = Quantized(bits, row_scale) if straight else None
    second = Quantized(bits_turned, row_scale if tensorwise else col_scale) if turned else None
    return first, second


def _blockwise(x: Tensor, straight: Optional[Cast], turned: Optional[Cast]) -> Pair:
    if straight is not None and turned is not None and not _turns_beside(x):
        return _blockwise(x, straight, None)[0], _blockwise(x, None, turned)[1]
    kinds = [0 if cast is None else 1 if cast.granularity == "block_1x128" else 2 for cast in (straight, turned)]
    cast = straight or turned
    assert cast is not None, "one of the two is asked for"
    bits, bits_turned, scale, scale_turned = triton_casts.cast_blocks(x, cast.format, cast.power_of_two, *kinds)
    first = Quantized(bits, scale) if straight is not None else None
    return first, Quantized(bits_turned, scale_turned) if turned is not None else None


__all__ = ["Casts", "Pair", "Quantized", "by_known_scale", "input_and_weight", "note", "note_all", "straight_and_turned"]
