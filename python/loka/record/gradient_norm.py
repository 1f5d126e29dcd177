"""Takes a site's inputs and output gradients of one forward; gives how large its weight's gradient is in that step, and
how far from it casts to E4M3 and fast accumulation lead.

A relative error of wgrad is of a sum that cancels. Casts err by a share of every product g x^T; the gradient is what is
left of these when they are summed, much while examples agree, little more than noise near an optimum. Nor do errors of
different rows always average out: in the first step of a classifier a column of dy has two values, one of a click and one
of none, each rounded alike in all its rows. Draws from statistics of many steps have neither, so both are measured here,
on the rows themselves: sum g x^T is never formed, but |G|^2 = k / s E |G Omega|^2 with a fixed random Omega `[k, s]` of
orthonormal columns is exact where k is no larger than s.
"""

import functools
import math
from typing import Dict, List, Sequence, Tuple

import torch
from torch import Tensor

from loka.catalogue import FORMAT_MAX
from loka.kernels.delayed import power_of_two_above
from loka.kernels.scales import to_fp8
from loka.record.moments import full_precision
from loka.record.sketch import test_matrix
from loka.record.track import Track

WIDTH = 64
"""Columns of Omega: |G| is off by at most 9 % (one standard deviation, of a G of rank one)."""

SAMPLED = 512
"""Elements of G that fast accumulation is looked at in. Its error is another in each of them, with the means of x's features."""

_PRODUCTS, _BITS = 32, 13
"""Of one instruction of the tensor core, and below the leading bit of the largest among them and the sum (docs/concepts/method.md)."""

_LARGEST = 1 << 24
"""Values of a temporary, at most: rows are taken in pieces."""

_LARGEST_CPU = 1 << 16
"""Memory of larger ones goes back to the system, and its pages are paid for in every call."""


class GradientNorm:
    """The four series of one site on one device."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.seed = seed
        names = ("weight_grad_norm", "weight_grad_noise", "weight_grad_e4m3", "weight_grad_fast")
        self.tracks: Dict[str, Track] = {name: Track(1, device) for name in names}

    def add(
        self, pairs: Sequence[Tuple[Tensor, Tensor]], examples: int, squares: Tensor, factor: Tensor, finite: Tensor,
        index: int,
    ) -> None:  # fmt: skip
        """Takes in the calls `(x [..., k], g [..., n])` of one forward of `examples` examples in recorded step `index`;
        g times `factor` is per example. `squares`: sum_i |G_i|^2 of the same, without the factor. Of several forwards
        in a step the last one counts."""
        with full_precision():
            all_parts = [self._projected(x, grad) for x, grad in pairs]
        whole, error, cut = (torch.stack(parts).sum(0).double().square().sum().sqrt() for parts in zip(*all_parts))
        if finite.device.type == "cpu":
            # The host decides, and a few numbers are Python's: on small models their operators would be half of the time.
            numbers = (float(whole), float(squares), float(error), float(cut))
            self._known(index, bool(finite), float(factor) / examples, *numbers)
            return
        norm = factor.abs().reshape(()) / examples
        found = (whole * norm, squares.clamp(min=0.0).sqrt() * norm, error * norm, cut * norm)
        for track, value in zip(self.tracks.values(), found):
            row = track.row(index)
            row.copy_(torch.where(finite.reshape(()) & torch.isfinite(value), value.to(row.dtype), row))

    def _known(
        self, index: int, finite: bool, factor: float, whole: float, squares: float, error: float, cut: float
    ) -> None:
        found = (whole * abs(factor), max(squares, 0.0) ** 0.5 * abs(factor), error * abs(factor), cut * abs(factor))
        for track, value in zip(self.tracks.values(), found):
            if finite and math.isfinite(value):
                track.row(index).fill_(value)

    def _projected(self, x: Tensor, grad: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        """G Omega, or G^T Omega where the output has fewer features, the error of the same with both operands in E4M3, and
        what fast accumulation cuts off some elements of G; so scaled that the squares of their norms are those of the
        matrices."""
        sides: List[Tensor] = [side.detach().reshape(-1, side.shape[-1]) for side in (grad, x)]
        left, right = sides if x.shape[-1] <= grad.shape[-1] else sides[::-1]
        features = right.shape[1]
        width = min(WIDTH, features)
        omega = _omega(features, width, self.seed, x.device)
        largest = _LARGEST_CPU if x.device.type == "cpu" else _LARGEST
        step = max(largest // max(left.shape[1], features), 1)
        scales = [_scale(side) for side in (left, right)]
        whole = left.new_zeros(left.shape[1], width, dtype=torch.float32)
        cast = torch.zeros_like(whole)
        for start in range(0, len(left), step):
            a, b = left[start : start + step].float(), right[start : start + step].float()
            whole.addmm_(a.T, b @ omega)
            a, b = (_values(to_fp8(side, scale, "e4m3")) for side, scale in zip((a, b), scales))
            cast.addmm_(a.T, b @ omega)
        # Exact, since both are powers of two; their product might be too small.
        cast.mul_(scales[0]).mul_(scales[1])
        scale = (features / width) ** 0.5
        return whole * scale, (cast - whole) * scale, self._cut(left, right, scales)

    def _cut(self, left: Tensor, right: Tensor, scales: Sequence[Tensor]) -> Tensor:
        places = _places(left.shape[1], right.shape[1], self.seed, left.device)
        of_each = [side.index_select(1, chosen) for side, chosen in zip((left, right), places)]
        codes = [_values(to_fp8(side.float(), scale, "e4m3")) for side, scale in zip(of_each, scales)]
        cut = cut_by_fast_accumulation(*codes).mul_(scales[0]).mul_(scales[1])
        return cut * (left.shape[1] * right.shape[1] / cut.numel()) ** 0.5


def cut_by_fast_accumulation(a: Tensor, b: Tensor) -> Tensor:
    """What the sums over m of `a` times `b`, both FP32 `[m, s]`, lose where the tensor core adds up the products: each is cut
    to a multiple of 2^-13 of the power of two below the largest of its 32 and of the sum before them. To first order: the sum
    is taken to be the exact one, and cuts of the sum itself, which happen where it doubles, are left out."""
    cut = a.new_zeros(a.shape[1])
    before = torch.zeros_like(cut)
    piece = max(_LARGEST // (cut.numel() * _PRODUCTS), 1) * _PRODUCTS
    for start in range(0, len(a), piece):
        products = a[start : start + piece] * b[start : start + piece]
        missing = -len(products) % _PRODUCTS
        products = torch.nn.functional.pad(products, (0, 0, 0, missing)) if missing else products
        products = products.view(-1, _PRODUCTS, cut.numel())
        sums = products.sum(1)
        after = before + sums.cumsum(0)
        largest = torch.maximum((after - sums).abs(), products.abs().amax(1)).clamp_(min=2.0**-100)
        grid = ((largest.view(torch.int32) & 0x7F800000).view(torch.float32) * 2.0**-_BITS).unsqueeze(1)
        # Exact: the grid's steps are powers of two.
        cut += (products - (products / grid).trunc_().mul_(grid)).sum((0, 1))
        before = after[-1]
    return cut


def _scale(values: Tensor) -> Tensor:
    """A power of two with which nothing saturates, as scales that follow are: codes of values that repeat depend on it,
    and a scale that is the amax over 448 would round the largest of them not at all."""
    low, high = values.aminmax()
    return power_of_two_above(torch.maximum(-low, high).float() / FORMAT_MAX["e4m3"])


def _values(codes: Tensor) -> Tensor:
    """E4M3 codes, none a NaN, as FP32."""
    if codes.device.type != "cpu":
        return codes.float()
    # PyTorch's own goes value by value, ten times slower. An FP16 has the same bits, a wider exponent's with eight less.
    bits = codes.view(torch.int8).to(torch.int16).bitwise_left_shift_(7).bitwise_and_(~0x4000)
    return bits.view(torch.float16).float().mul_(256.0)


@functools.lru_cache(maxsize=64)
def _omega(features: int, width: int, seed: int, device: torch.device) -> Tensor:
    """Kept on the device, where copying it anew would wait."""
    return test_matrix(features, width, seed).to(device=device, dtype=torch.float32)


@functools.lru_cache(maxsize=64)
def _places(left: int, right: int, seed: int, device: torch.device) -> Tuple[Tensor, Tensor]:
    """Which features of both sides the elements are of, the same in every step and on every rank."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + left * right)
    chosen = torch.randint(left * right, (min(SAMPLED, left * right),), generator=generator)
    return (chosen // right).to(device), (chosen % right).to(device)


__all__ = ["GradientNorm", "SAMPLED", "WIDTH", "cut_by_fast_accumulation"]
