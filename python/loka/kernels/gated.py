"""Takes z of two linears that read the same x; gives FP8 codes of the product of what follows each, for the linear that alone reads it
in training, as `handed.output` lays them out. And the gradients of both z, as their dgrads and wgrads read them.

    h = activation(z + bias) * other_activation(other_z + other_bias)

Numbers are those of the steps apart: z + bias, what an activation makes of it, the product, what dropout leaves, and the gradient of
each of these are rounded to BF16.
"""

from functools import lru_cache
from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from . import handed
from .casts import Quantized, triton_casts
from .delayed import Notes, largest
from .handed import NORMED, TAILS, Gradient

if triton_casts is not None:
    from . import triton_gated

SIGMOID, LINEAR = "sigmoid", "linear"
_PLACES = (*TAILS, SIGMOID, LINEAR)
GATES = frozenset(_PLACES) - {NORMED}
"""What may follow each of the two: an activation, or nothing, which is `linear`."""


class Half(NamedTuple):
    """What comes out of one of the two, BF16 [rows, cols], its bias [cols], and which of `GATES` follows it."""

    z: Tensor
    bias: Optional[Tensor]
    activation: str


def output(first: Half, second: Half, inverse: Tensor, keep: Optional[Tensor] = None, dropout: float = 0.0) -> Tuple[Tensor, Tensor]:
    """(codes by a scale that is known beforehand, in a tensor like z; the largest |h|). `keep`: `handed.kept`, of a dropout of that
    share."""
    by = handed.enlarged(dropout)
    if first.z.is_cuda:
        both, maxima = triton_gated.output(
            first.z, first.bias, second.z, second.bias, keep, inverse, _PLACES.index(first.activation), _PLACES.index(second.activation), by
        )
        return both.view(first.z.dtype), maxima
    by_parts = output_by_parts if torch.compiler.is_compiling() else _output
    return by_parts(first.z, first.bias, second.z, second.bias, keep, inverse, first.activation, second.activation, by)


def joined(first: Half, second: Half, keep: Optional[Tensor], dropout: float) -> Tensor:
    """h [rows, cols] as it is."""
    return handed.dropped(_after(*first)[1] * _after(*second)[1], keep, handed.enlarged(dropout))


def _after(z: Tensor, bias: Optional[Tensor], activation: str) -> Tuple[Tensor, Tensor]:
    """(z + bias, what comes behind it)."""
    y = handed.biased(z, bias)
    return y, y if activation == LINEAR else y.sigmoid() if activation == SIGMOID else handed.after(y, activation)


def _before(d: Tensor, y: Tensor, a: Tensor, activation: str) -> Tensor:
    """The gradient of y from that of a, which came behind it."""
    if activation == SIGMOID:
        # PyTorch's own rounds each step of it on a GPU, and none on a CPU.
        by = a.float()
        return (d.float() * by * (1.0 - by)).to(d.dtype)
    return d if activation == LINEAR else handed.before(d, y, activation)


def _output(
    z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor,
    activation: str, other_activation: str, by: float,
) -> Tuple[Tensor, Tensor]:
    h = handed.dropped(_after(z, bias, activation)[1] * _after(other_z, other_bias, other_activation)[1], keep, by)
    return handed.packed_codes(h, inverse), largest(h)


@torch.library.custom_op("loka::gated_by_parts", mutates_args=())
def output_by_parts(
    z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor,
    activation: str, other_activation: str, by: float,
) -> Tuple[Tensor, Tensor]:
    """By plain operations, one behind the other, as `handed.output_by_parts`."""
    return _output(z, bias, other_z, other_bias, keep, inverse, activation, other_activation, by)


@output_by_parts.register_fake
def _(
    z: Tensor, bias: Optional[Tensor], other_z: Tensor, other_bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor,
    activation: str, other_activation: str, by: float,
) -> Tuple[Tensor, Tensor]:
    return torch.empty_like(z), z.new_empty(z.shape[0])


def gradient(
    dh: Tensor, first: Half, second: Half, scale: Tensor, inverse: Tensor, other_scale: Tensor, other_inverse: Tensor, sums: bool = False,
    keep: Optional[Tensor] = None, dropout: float = 0.0, notes: Optional[Notes] = None, other_notes: Optional[Notes] = None,
) -> Tuple[Gradient, Gradient]:
    """Of both z [rows, cols], from the gradient of h, each by a scale of its own. `sums`: of both biases, too; `notes`: both or none."""
    dh, by = dh.to(torch.bfloat16), handed.enlarged(dropout)
    # Not `is_cuda`, which PyTorch 2.6 cannot compile here.
    if dh.device.type == "cuda":
        places = _PLACES.index(first.activation), _PLACES.index(second.activation)
        made = triton_gated.gradient(
            dh.contiguous(), first.z, first.bias, second.z, second.bias, keep, inverse, other_inverse, *places, sums, by, notes, other_notes
        )
        straight, turned, maxima, other_straight, other_turned, other_maxima, parts = made
        summed, other_summed = (parts[0].sum(0), parts[1].sum(0)) if sums else (None, None)
        return (
            Gradient(Quantized(straight, scale), Quantized(turned, scale), maxima, summed),
            Gradient(Quantized(other_straight, other_scale), Quantized(other_turned, other_scale), other_maxima, other_summed),
        )
    g = handed.dropped(dh, keep, by)
    y, a = _after(first.z, first.bias, first.activation)
    other_y, other_a = _after(second.z, second.bias, second.activation)
    dz, other_dz = _before(g * other_a, y, a, first.activation), _before(g * a, other_y, other_a, second.activation)
    return _coded(dz, scale, inverse, sums, notes), _coded(other_dz, other_scale, other_inverse, sums, other_notes)


def _coded(dz: Tensor, scale: Tensor, inverse: Tensor, sums: bool, notes: Optional[Notes]) -> Gradient:
    straight, turned, maxima = handed.coded(dz, inverse, notes)
    return Gradient(Quantized(straight, scale), Quantized(turned, scale), maxima, dz.sum(0, dtype=torch.float32) if sums else None)


@lru_cache(maxsize=None)
def sound(activation: str, other_activation: str, device: torch.device) -> bool:
    """As `handed.sound`, of such a product."""
    if device.type != "cuda":
        return True
    rows, cols, dropout = 80, 512, 0.25
    draw = torch.Generator(device).manual_seed(1)
    z, other_z, dh = (torch.randn(rows, cols, device=device, generator=draw).bfloat16() for _ in range(3))
    bias, other_bias = (torch.randn(cols, device=device, generator=draw) for _ in range(2))
    keep = torch.rand(rows, cols, device=device, generator=draw) > dropout
    scale = torch.full((1,), 2.0**-6, device=device)
    first, second = Half(z, bias, activation), Half(other_z, other_bias, other_activation)
    h = joined(first, second, keep, dropout)
    (y, a), (other_y, other_a) = _after(*first), _after(*second)
    g = handed.dropped(dh, keep, handed.enlarged(dropout))
    packed, maxima = output(first, second, 1 / scale, keep, dropout)
    straight, turned = handed.taken(packed, scale)
    good = handed.is_coded(h, straight, turned, maxima)
    exact = _before(g * other_a, y, a, activation), _before(g * a, other_y, other_a, other_activation)
    for dz, made in zip(exact, gradient(dh, first, second, scale, 1 / scale, scale, 1 / scale, True, keep, dropout)):
        assert made.maxima is not None and made.sums is not None
        good &= handed.is_coded(dz, made.straight, made.turned, made.maxima)
        good &= float((made.sums - dz.float().sum(0)).norm()) <= 0.01 * float(dz.float().sum(0).norm())
    return bool(good)


__all__ = ["GATES", "Half", "LINEAR", "SIGMOID", "gradient", "joined", "output", "sound"]
