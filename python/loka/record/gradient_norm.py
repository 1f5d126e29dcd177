"""Takes a site's inputs and output gradients of one forward; gives how large its weight's gradient is in that step, and
how far from it casts to E4M3 lead.

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

from loka.kernels.catalogue import FORMAT_MAX
from loka.kernels.delayed import power_of_two_above
from loka.kernels.scales import to_fp8
from loka.record.moments import full_precision
from loka.record.sketch import test_matrix
from loka.record.track import Track

WIDTH = 64
"""Columns of Omega: |G| is off by at most 9 % (one standard deviation, of a G of rank one)."""

_LARGEST = 1 << 24
"""Values of a temporary, at most: rows are taken in pieces."""

_LARGEST_CPU = 1 << 16
"""Memory of larger ones goes back to the system, and its pages are paid for in every call."""


class GradientNorm:
    """The three series of one site on one device."""

    def __init__(self, device: torch.device, seed: int) -> None:
        self.seed = seed
        names = ("weight_grad_norm", "weight_grad_noise", "weight_grad_e4m3")
        self.tracks: Dict[str, Track] = {name: Track(1, device) for name in names}

    def add(
        self, pairs: Sequence[Tuple[Tensor, Tensor]], examples: int, squares: Tensor, factor: Tensor, finite: Tensor,
        index: int,
    ) -> None:  # fmt: skip
        """Takes in the calls `(x [..., k], g [..., n])` of one forward of `examples` examples in recorded step `index`;
        g times `factor` is per example. `squares`: sum_i |G_i|^2 of the same, without the factor. Of several forwards
        in a step the last one counts."""
        with full_precision():
            both = [self._projected(x, grad) for x, grad in pairs]
        whole, error = (torch.stack(parts).sum(0).double().square().sum().sqrt() for parts in zip(*both))
        if finite.device.type == "cpu":
            # The host decides, and a few numbers are Python's: on small models their operators would be half of the time.
            self._known(index, bool(finite), float(factor) / examples, float(whole), float(squares), float(error))
            return
        norm = factor.abs().reshape(()) / examples
        found = (whole * norm, squares.clamp(min=0.0).sqrt() * norm, error * norm)
        for track, value in zip(self.tracks.values(), found):
            row = track.row(index)
            row.copy_(torch.where(finite.reshape(()) & torch.isfinite(value), value.to(row.dtype), row))

    def _known(self, index: int, finite: bool, factor: float, whole: float, squares: float, error: float) -> None:
        found = (whole * abs(factor), max(squares, 0.0) ** 0.5 * abs(factor), error * abs(factor))
        for track, value in zip(self.tracks.values(), found):
            if finite and math.isfinite(value):
                track.row(index).fill_(value)

    def _projected(self, x: Tensor, grad: Tensor) -> Tuple[Tensor, Tensor]:
        """G Omega, or G^T Omega where the output has fewer features, and the error of the same with both operands in
        E4M3; so scaled that the squares of their norms are those of the matrices."""
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
        return whole * scale, (cast - whole) * scale


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


__all__ = ["GradientNorm", "WIDTH"]
