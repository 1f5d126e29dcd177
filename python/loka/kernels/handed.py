"""Takes z, what a linear gives before its bias and what follows it; gives FP8 codes of what comes behind these, for the linear
that alone reads it in training: straight for fprop and turned for wgrad, both in one tensor of the shape and the type
that h would have. So autograd, torch.compile and whatever else passes tensors on passes codes on. And the gradient of
z likewise, as dgrad and wgrad read it.

Numbers are those of the steps apart: z + bias, h, what dropout leaves of it and dz are rounded to BF16 before they are cast. Between
a norm and its activation nothing is, as in compiled code.
"""

from functools import lru_cache
from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .casts import Quantized, triton_casts
from .delayed import codes, largest
from .native_ops import BLOCK, block_gradient, block_output

if triton_casts is not None:
    from . import triton_tails

ROWS = 16
"""Rows are a multiple of it: the reduced dimension of a GEMM that reads codes turned."""

NORMED = "block_norm+hard_swish"
"""BlockNorm(256) and hard swish."""

TAILS = (NORMED, "hard_swish", "relu", "swish", "gelu", "gelu_tanh")
"""What may follow a linear, by the words of a trace's tail."""


class Gradient(NamedTuple):
    """Codes of dz [rows, cols], turned [cols, rows], maxima of |dz|, and its sums over rows [cols] in FP32, if wanted."""

    straight: Quantized
    turned: Quantized
    maxima: Tensor
    sums: Optional[Tensor]


def kept(z: Tensor, dropout: float) -> Optional[Tensor]:
    """Which elements a dropout of that share leaves, drawn as nn.Dropout draws; None where there is none."""
    return torch.ops.aten.native_dropout(torch.ones_like(z), dropout, True)[1] if dropout else None


def output(
    z: Tensor, bias: Optional[Tensor], inverse: Tensor, tail: str, keep: Optional[Tensor] = None, dropout: float = 0.0
) -> Tuple[Tensor, Tensor]:
    """(codes in a tensor like z, maxima of |h|) of z [rows, cols] in BF16, by a scale that is known beforehand. `keep`: `kept`."""
    if z.is_cuda:
        both, maxima = triton_tails.output(z.contiguous(), bias, keep, inverse, TAILS.index(tail), _enlarged(dropout))
        return both.view(z.dtype), maxima
    by_parts = output_by_parts if torch.compiler.is_compiling() else _output
    found: Tuple[Tensor, Tensor] = by_parts(z, bias, keep, inverse, tail, _enlarged(dropout))
    return found


def joined(
    z: Tensor, bias: Optional[Tensor], tail: str, keep: Optional[Tensor], dropout: float
) -> Tuple[Tensor, Tensor]:
    """What comes behind z [rows, cols], in its type, and that before its dropout."""
    h = _after(_biased(z, bias), tail)
    return _dropped(h, keep, _enlarged(dropout)), h


def _enlarged(dropout: float) -> float:
    """What is left is multiplied by."""
    return 1.0 / (1.0 - dropout)


def _dropped(x: Tensor, keep: Optional[Tensor], by: float) -> Tensor:
    return x if keep is None else x * keep * by


def _biased(z: Tensor, bias: Optional[Tensor]) -> Tensor:
    return z if bias is None else z + bias.to(z.dtype)


def _output(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: str, by: float
) -> Tuple[Tensor, Tensor]:
    h = _dropped(_after(_biased(z, bias), tail), keep, by)
    straight = codes(h, inverse, "e4m3").view(torch.uint8)
    if tail == "relu":
        straight = torch.where(h <= 0, straight | 0x80, straight)
    packed = torch.cat([straight.flatten(), straight.t().flatten()])
    return packed.view(z.dtype).view(z.shape), largest(h)


def _after(y: Tensor, tail: str) -> Tensor:
    if tail == NORMED:
        return block_output(y).to(y.dtype)
    if tail in ("gelu", "gelu_tanh"):
        return F.gelu(y, approximate="tanh" if tail == "gelu_tanh" else "none")
    return {"hard_swish": F.hardswish, "relu": F.relu, "swish": F.silu}[tail](y)


def _before(dh: Tensor, y: Tensor, tail: str) -> Tensor:
    """The gradient of y from that of what `_after` makes of it; of a ReLU, y may be that, or its `gate`."""
    aten = torch.ops.aten
    if tail == NORMED:
        return block_gradient(dh, y).to(y.dtype)
    if tail in ("gelu", "gelu_tanh"):
        found: Tensor = aten.gelu_backward(dh, y, approximate="tanh" if tail == "gelu_tanh" else "none")
        return found
    if tail == "relu":
        return dh.masked_fill(y < 0 if y.dtype == torch.int8 else y <= 0, 0)
    return {"hard_swish": aten.hardswish_backward, "swish": aten.silu_backward}[tail](dh, y)


@torch.library.custom_op("loka::handed_output", mutates_args=())
def output_by_parts(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: str, by: float
) -> Tuple[Tensor, Tensor]:
    """By plain operations, one behind the other, as `casts.known_by_parts`."""
    return _output(z, bias, keep, inverse, tail, by)


@output_by_parts.register_fake
def _(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: str, by: float
) -> Tuple[Tensor, Tensor]:
    return torch.empty_like(z), z.new_empty(z.shape[0])


def taken(h: Tensor, scale: Tensor) -> Tuple[Quantized, Quantized]:
    """What `output` has put into it: [rows, cols], and turned [cols, rows]."""
    rows, cols = h.size(0), h.size(1)
    both = h.view(torch.float8_e4m3fn).view(-1)
    return Quantized(both[: rows * cols].view(rows, cols), scale), Quantized(both[rows * cols :].view(cols, rows), scale)


def gate(h: Tensor) -> Tensor:
    """What says where a ReLU let through, of what `output` made of it: bytes [rows, cols], negative where it did not."""
    return h.view(torch.int8).view(-1)[: h.numel()].view(h.shape)


def gradient(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], scale: Tensor, inverse: Tensor, tail: str, sums: bool = False,
    keep: Optional[Tensor] = None, dropout: float = 0.0,
) -> Gradient:
    """Of z [rows, cols], from the gradient of h. `sums`: the bias's, too. z of a ReLU, which has no bias here: what came out of it, or
    its `gate`, which knows what was dropped."""
    dh = dh.to(torch.bfloat16)
    summed: Optional[Tensor] = None
    # Not `is_cuda`, which PyTorch 2.6 cannot compile here.
    if dh.device.type == "cuda":
        straight, turned, maxima, parts = triton_tails.gradient(
            dh.contiguous(), z, bias, keep, inverse, TAILS.index(tail), sums, _enlarged(dropout)
        )
        summed = parts.sum(0) if sums else None
    else:
        dh = dh * _enlarged(dropout) if dropout and keep is None else _dropped(dh, keep, _enlarged(dropout))
        dz = _before(dh, _biased(z, bias), tail)
        straight, maxima = codes(dz, inverse, "e4m3"), largest(dz)
        turned = straight.t().contiguous()
        summed = dz.sum(0, dtype=torch.float32) if sums else None
    return Gradient(Quantized(straight, scale), Quantized(turned, scale), maxima, summed)


@lru_cache(maxsize=None)
def sound(tail: str, device: torch.device) -> bool:
    """Whether the kernels of a tail, compiled for this device, give what plain operations give there: on rows and columns that fill no
    tile, with a bias and a dropout. Tried once a process. The canary sees the steps apart, not these."""
    if device.type != "cuda":
        return True
    rows, cols, dropout = 80, 512, 0.25
    draw = torch.Generator(device).manual_seed(1)
    z, dh = (torch.randn(rows, cols, device=device, generator=draw).bfloat16() for _ in range(2))
    bias = torch.randn(cols, device=device, generator=draw)
    keep = torch.rand(rows, cols, device=device, generator=draw) > dropout
    scale = torch.full((1,), 2.0**-6, device=device)
    y = _biased(z, bias)
    h = _dropped(_after(y, tail), keep, _enlarged(dropout))
    dz = _before(_dropped(dh, keep, _enlarged(dropout)), y, tail)
    packed, largest_h = output(z, bias, 1 / scale, tail, keep, dropout)
    if tail == "relu":
        made = gradient(dh, gate(packed), None, scale, 1 / scale, tail, True, None, dropout)
    else:
        made = gradient(dh, z, bias, scale, 1 / scale, tail, True, keep, dropout)
    assert made.sums is not None
    found = [(h, *taken(packed, scale), largest_h), (dz, made.straight, made.turned, made.maxima)]
    good = float((made.sums - dz.float().sum(0)).norm()) <= 0.01 * float(dz.float().sum(0).norm())
    for exact, straight, turned, maxima in found:
        wanted = codes(exact, 1 / scale, "e4m3").float()
        # Sums and exponentials in another order are neighbours in BF16, here and there in FP8, too.
        good &= float((straight.bits.float() != wanted).float().mean()) < 0.01
        good &= torch.equal(straight.bits.float().t(), turned.bits.float())
        good &= abs(float(maxima.max() / exact.abs().max()) - 1) < 0.01
    return bool(good)


__all__ = ["BLOCK", "NORMED", "ROWS", "TAILS", "Gradient", "gate", "gradient", "joined", "kept", "output", "sound", "taken"]
