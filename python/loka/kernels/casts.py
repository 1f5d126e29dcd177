"""Takes an operand as the model stores it; gives it in FP8 straight and turned for the scaled matmuls, on a GPU.

An operand of two GEMMs is read once when both want the same format and granularity.
"""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from .catalogue import Cast

try:
    from . import triton_casts
except ImportError:  # No Triton: a build without CUDA, where `why_not` turns every FP8 kernel down first.
    triton_casts = None  # type: ignore[assignment]

STRETCH = 256
"""Under torch.compile, activations and gradients are written, and their maxima first taken, in stretches this long:
Inductor does both in the kernel that computes them when that one reduces as many (a block norm) or nothing."""

MULTIPLE = 16
"""FP8 tensor cores read 16 elements at a time along the reduced dimension: turned rows are padded to it."""


class Quantized(NamedTuple):
    """An FP8 operand [rows, reduced] with its scales: [1], [rows, 1], or of blocks as `triton_casts.cast_blocks` has
    them."""

    bits: Tensor
    scale: Tensor


Pair = Tuple[Optional[Quantized], Optional[Quantized]]
"""Straight and turned."""

Casts = Tuple[Optional[Cast], Optional[Cast]]
"""Of x and of the weight."""


def straight_and_turned(x: Tensor, straight: Optional[Cast], turned: Optional[Cast], fresh: bool = False) -> Pair:
    """x [rows, cols] cast as [rows, reduced] and, turned, as [cols, reduced]; None where none is asked for. Turned, the
    rows of x are padded with zeros to a multiple of 16, and in both to whole blocks where scales are of blocks.
    `fresh`: x was just computed, so that its maximum may be taken along with it."""
    x = _realized(x) if fresh else x.contiguous()
    kinds = [None if cast is None else _kind(cast) for cast in (straight, turned)]
    if straight is not None and turned is not None and kinds[0] != kinds[1]:
        return _one(x, straight, turned, fresh)
    cast = straight or turned
    if cast is None:
        return None, None
    if cast.granularity == "tensor":
        return _tensorwise(x, cast, straight is not None, turned is not None, fresh)
    if cast.granularity == "row":
        return _rowwise(x, cast, straight is not None, turned is not None)
    return _blockwise(x, straight, turned)


def input_and_weight(x: Tensor, weight: Tensor, straight: Casts, turned: Casts) -> Tuple[Pair, Pair]:
    """`straight_and_turned` of x and of the weight, both in the same two launches where all casts are alike."""
    one = straight[0]
    alike = straight == (one, one) and turned in ((one, one), (None, None))
    if one is None or not alike or one.granularity != "tensor" or x.element_size() != 2:
        first = straight_and_turned(x, straight[0], turned[0], True)
        return first, straight_and_turned(weight, straight[1], turned[1])
    x, weight, turn = _realized(x), weight.contiguous(), turned[0] is not None
    amax = triton_casts.amax_pair(_stretches(x), weight)
    made = triton_casts.cast_pair(x, amax[0], weight, amax[1], one.format, one.power_of_two, turn, MULTIPLE)
    pairs = []
    for bits, bits_turned, scale in (made[:3], made[3:]):
        pairs.append((Quantized(bits, scale), Quantized(bits_turned, scale) if turn else None))
    return pairs[0], pairs[1]


def _realized(x: Tensor) -> Tensor:
    """x, contiguous, in memory of its own. Inductor would compute and write a pointwise x anew for every kernel of ours
    that reads it; of a strided view there is one. In stretches, so that it has the loops of what reduces them."""
    x = x.contiguous()
    if not torch.compiler.is_compiling():
        return x
    rows, cols = x.shape
    size = _in_stretches(x)
    return torch.as_strided(x.view(size), size, (size[1], 1)).view(rows, cols)


def _in_stretches(x: Tensor) -> Tuple[int, int]:
    """x's shape cut into stretches; its own where they do not fit."""
    rows, cols = x.shape
    return (rows * (cols // STRETCH), STRETCH) if cols % STRETCH == 0 else (rows, cols)


def _kind(cast: Cast) -> Tuple[str, str, bool]:
    """Casts of one kind are made in one pass."""
    return cast.format, cast.granularity.split("_")[0], cast.power_of_two


def _one(x: Tensor, straight: Cast, turned: Cast, fresh: bool) -> Pair:
    """Two casts of different kinds."""
    return straight_and_turned(x, straight, None, fresh)[0], straight_and_turned(x, None, turned, fresh)[1]


def _tensorwise(x: Tensor, cast: Cast, straight: bool, turned: bool, fresh: bool) -> Pair:
    amax = triton_casts.amax(_stretches(x) if fresh else x)
    return _cast(x, amax, amax, cast, straight, turned)


def _stretches(x: Tensor) -> Tensor:
    """What has the same largest |x|, and less of it where Inductor makes it along with x."""
    if torch.compiler.is_compiling() and x.shape[1] % STRETCH == 0:
        return x.view(_in_stretches(x)).abs().amax(1)
    return x


def _rowwise(x: Tensor, cast: Cast, straight: bool, turned: bool) -> Pair:
    if straight and not turned and x.shape[1] <= triton_casts.LONGEST_ROW:
        return Quantized(*triton_casts.cast_rows(x, cast.format, cast.power_of_two)), None
    row_amax, col_amax = triton_casts.amax_rows_cols(x, straight, turned)
    return _cast(x, row_amax, col_amax, cast, straight, turned)


def _cast(x: Tensor, row_amax: Tensor, col_amax: Tensor, cast: Cast, straight: bool, turned: bool) -> Pair:
    if straight and turned and x.element_size() != 2:
        # Turned by bytes, as tiles of FP32 are, Triton 3.6 writes wrong values beside the straight ones.
        first, _ = _cast(x, row_amax, col_amax, cast, True, False)
        _, second = _cast(x, row_amax, col_amax, cast, False, True)
        return first, second
    tensorwise = cast.granularity == "tensor"
    bits, bits_turned, row_scale, col_scale = triton_casts.cast(
        x, row_amax, col_amax, tensorwise, cast.format, cast.power_of_two, straight, turned, MULTIPLE
    )
    first = Quantized(bits, row_scale) if straight else None
    second = Quantized(bits_turned, row_scale if tensorwise else col_scale) if turned else None
    return first, second


def _blockwise(x: Tensor, straight: Optional[Cast], turned: Optional[Cast]) -> Pair:
    if straight is not None and turned is not None and x.element_size() != 2:
        return _blockwise(x, straight, None)[0], _blockwise(x, None, turned)[1]
    kinds = [0 if cast is None else 1 if cast.granularity == "block_1x128" else 2 for cast in (straight, turned)]
    cast = straight or turned
    bits, bits_turned, scale, scale_turned = triton_casts.cast_blocks(x, cast.format, cast.power_of_two, *kinds)
    first = Quantized(bits, scale) if straight is not None else None
    return first, Quantized(bits_turned, scale_turned) if turned is not None else None


__all__ = ["Casts", "Pair", "Quantized", "input_and_weight", "straight_and_turned"]
