"""Takes z, what a linear gives before its bias and what follows it; gives FP8 codes of what comes behind these, for the linear
that alone reads it in training: straight for fprop and turned for wgrad, both in one tensor of the shape and the type
that h would have. So autograd, torch.compile and whatever else passes tensors on passes codes on. And the gradient of
z likewise, as dgrad and wgrad read it.

Numbers are those of the steps apart: z + bias, h, what dropout leaves of it and dz are rounded to BF16 before they are cast. Between
a norm and its activation nothing is, as in compiled code.
"""

from functools import lru_cache
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.nn import functional as F

from . import norms
from .casts import Quantized, note_all, triton_casts
from .delayed import Notes, codes, largest
from .native_ops import BLOCK, block_gradient, block_output
from .norms import ROW_NORMS, Norm

if triton_casts is not None:
    from . import triton_norms, triton_tails

ROWS = 16
"""Rows are a multiple of it: the reduced dimension of a GEMM that reads codes turned."""

NORMED = "block_norm+hard_swish"
"""BlockNorm(256) and hard swish."""

TAILS = (NORMED, "hard_swish", "relu", "swish", "gelu", "gelu_tanh")
"""What may follow a linear, by the words of a trace's tail; and a norm over its whole rows, alone or before one of these: `row_normed`."""


def row_normed(norm: str, activation: str = "") -> str:
    """The tail of a norm of `norms.ROW_NORMS` and of what follows it."""
    return f"{norm}+{activation}" if activation else norm


_ROW_NORMED: Dict[str, Tuple[str, str]] = {row_normed(norm, after): (norm, after) for norm in ROW_NORMS for after in ("", *TAILS[1:])}
"""Such a tail -> its norm and its activation."""


def is_row_normed(tail: str) -> bool:
    return tail in _ROW_NORMED


class Output(NamedTuple):
    """What comes behind z: as codes, in a tensor like z, or as it is; the largest |h| of codes; and what a backward reads of the rows."""

    h: Tensor
    maxima: Optional[Tensor]
    stats: Optional[norms.Stats]


class Gradient(NamedTuple):
    """Codes of dz [rows, cols], turned [cols, rows], maxima of |dz| that are not noted, and its sums over rows [cols] in FP32, if wanted;
    and gradients of a norm's own weight and bias, where it has these."""

    straight: Quantized
    turned: Quantized
    maxima: Optional[Tensor]
    sums: Optional[Tensor]
    norm_weight: Optional[Tensor] = None
    norm_bias: Optional[Tensor] = None


def kept(z: Tensor, dropout: float) -> Optional[Tensor]:
    """Which elements a dropout of that share leaves, drawn as nn.Dropout draws; None where there is none."""
    return torch.ops.aten.native_dropout(torch.ones_like(z), dropout, True)[1] if dropout else None


def output(
    z: Tensor, bias: Optional[Tensor], inverse: Tensor, tail: str, keep: Optional[Tensor] = None, dropout: float = 0.0,
    norm: Optional[Norm] = None,
) -> Output:
    """In codes, of z [rows, cols] in BF16, by a scale that is known beforehand. `keep`: `kept`; `norm`: of a tail with one over rows."""
    by = enlarged(dropout)
    if norm is not None:
        kind, activation = _ROW_NORMED[tail]
        layer, weight, shift, eps = kind == "layer_norm", norm.weight, norm.bias, norm.eps
        place = TAILS.index(activation) if activation else 0
        if z.is_cuda:
            both, maxima, mean, rstd = triton_norms.output(z.contiguous(), bias, keep, weight, shift, inverse, place, layer, eps, by)
            packed = both.view(z.dtype)
        else:
            normed = normed_by_parts if torch.compiler.is_compiling() else _normed
            packed, maxima, mean, rstd = normed(z, bias, keep, weight, shift, inverse, tail, eps, by)
        return Output(packed, maxima, norms.Stats(mean if layer else None, rstd))
    if z.is_cuda:
        both, maxima = triton_tails.output(z.contiguous(), bias, keep, inverse, TAILS.index(tail), by)
        return Output(both.view(z.dtype), maxima, None)
    by_parts = output_by_parts if torch.compiler.is_compiling() else _output
    packed, maxima = by_parts(z, bias, keep, inverse, tail, by)
    return Output(packed, maxima, None)


def joined(
    z: Tensor, bias: Optional[Tensor], tail: str, keep: Optional[Tensor], dropout: float, norm: Optional[Norm] = None, wide: bool = False
) -> Tuple[Output, Tensor]:
    """What comes behind z [rows, cols], in its type, or behind a norm FP32 where it is to be `wide`; and that before its dropout."""
    y, stats = biased(z, bias), None
    if norm is None:
        h = after(y, tail)
    else:
        h, stats = _behind_norm(y, tail, norm)
        h = h if wide else h.to(y.dtype)
    return Output(dropped(h, keep, enlarged(dropout)), None, stats), h


def _behind_norm(y: Tensor, tail: str, norm: Norm) -> Tuple[Tensor, norms.Stats]:
    """In FP32."""
    kind, activation = _ROW_NORMED[tail]
    out, stats = norms.normed(y, kind, norm)
    return after(out, activation) if activation else out, stats


def enlarged(dropout: float) -> float:
    """What is left is multiplied by."""
    return 1.0 / (1.0 - dropout)


def dropped(x: Tensor, keep: Optional[Tensor], by: float) -> Tensor:
    return x if keep is None else x * keep * by


def biased(z: Tensor, bias: Optional[Tensor]) -> Tensor:
    return z if bias is None else z + bias.to(z.dtype)


def _output(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], inverse: Tensor, tail: str, by: float
) -> Tuple[Tensor, Tensor]:
    h = dropped(after(biased(z, bias), tail), keep, by)
    return packed_codes(h, inverse, tail == "relu"), largest(h)


def packed_codes(h: Tensor, inverse: Tensor, signed: bool = False) -> Tensor:
    straight = codes(h, inverse, "e4m3").view(torch.uint8)
    if signed:
        straight = torch.where(h <= 0, straight | 0x80, straight)
    packed = torch.cat([straight.flatten(), straight.t().flatten()])
    return packed.view(h.dtype).view(h.shape)


def _normed(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor], inverse: Tensor,
    tail: str, eps: float, by: float,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    h, stats = _behind_norm(biased(z, bias), tail, Norm(weight, shift, eps))
    h = dropped(h.to(z.dtype), keep, by)
    return packed_codes(h, inverse), largest(h), stats.rstd.new_empty(0) if stats.mean is None else stats.mean, stats.rstd


def after(y: Tensor, tail: str) -> Tensor:
    if tail == NORMED:
        return block_output(y).to(y.dtype)
    if tail in ("gelu", "gelu_tanh"):
        return F.gelu(y, approximate="tanh" if tail == "gelu_tanh" else "none")
    return {"hard_swish": F.hardswish, "relu": F.relu, "swish": F.silu}[tail](y)


def before(dh: Tensor, y: Tensor, tail: str) -> Tensor:
    """The gradient of y from that of what `after` makes of it; of a ReLU, y may be that, or its `gate`."""
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


@torch.library.custom_op("loka::handed_normed_output", mutates_args=())
def normed_by_parts(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor], inverse: Tensor,
    tail: str, eps: float, by: float,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `output_by_parts`, with a norm over rows."""
    return _normed(z, bias, keep, weight, shift, inverse, tail, eps, by)


@normed_by_parts.register_fake
def _(
    z: Tensor, bias: Optional[Tensor], keep: Optional[Tensor], weight: Optional[Tensor], shift: Optional[Tensor], inverse: Tensor,
    tail: str, eps: float, by: float,
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    rows = z.shape[0]
    has_mean = _ROW_NORMED[tail][0] == "layer_norm"
    mean, rstd = (z.new_empty(size, dtype=torch.float32) for size in (rows if has_mean else 0, rows))
    return torch.empty_like(z), z.new_empty(rows), mean, rstd


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
    keep: Optional[Tensor] = None, dropout: float = 0.0, norm: Optional[Norm] = None, stats: Optional[norms.Stats] = None,
    notes: Optional[Notes] = None,
) -> Gradient:
    """Of z [rows, cols], from the gradient of h. `sums`: the bias's, too. z of a ReLU, which has no bias here: what came out of it, or
    its `gate`, which knows what was dropped. `stats`: what `output` knew of the rows of a `norm`. `notes`: as of a cast."""
    dh = dh.to(torch.bfloat16)
    by = enlarged(dropout)
    if norm is not None and stats is not None:
        return _norm_gradient(dh, z, bias, scale, inverse, tail, sums, keep, by, norm, stats, notes)
    summed: Optional[Tensor] = None
    # Not `is_cuda`, which PyTorch 2.6 cannot compile here.
    if dh.device.type == "cuda":
        straight, turned, maxima, parts = triton_tails.gradient(
            dh.contiguous(), z, bias, keep, inverse, TAILS.index(tail), sums, by, notes
        )
        summed = parts.sum(0) if sums else None
    else:
        dh = dh * by if dropout and keep is None else dropped(dh, keep, by)
        dz = before(dh, biased(z, bias), tail)
        straight, turned, maxima = coded(dz, inverse, notes)
        summed = dz.sum(0, dtype=torch.float32) if sums else None
    return Gradient(Quantized(straight, scale), Quantized(turned, scale), maxima, summed)


def coded(dz: Tensor, inverse: Tensor, notes: Optional[Notes]) -> Tuple[Tensor, Tensor, Optional[Tensor]]:
    """Codes straight and turned, and maxima, or None once they are noted."""
    straight, maxima = codes(dz, inverse, "e4m3"), largest(dz)
    if notes is not None:
        note_all(notes, maxima)
    return straight, straight.t().contiguous(), maxima if notes is None else None


def _norm_gradient(
    dh: Tensor, z: Tensor, bias: Optional[Tensor], scale: Tensor, inverse: Tensor, tail: str, sums: bool, keep: Optional[Tensor],
    by: float, norm: Norm, stats: norms.Stats, notes: Optional[Notes],
) -> Gradient:
    activation = _ROW_NORMED[tail][1]
    mean, rstd, weight, shift = stats.mean, stats.rstd, norm.weight, norm.bias
    if dh.device.type == "cuda":
        place = TAILS.index(activation) if activation else 0
        straight, turned, maxima, parts = triton_norms.gradient(
            dh.contiguous(), z, bias, keep, weight, shift, mean, rstd, inverse, place, sums, by, notes
        )
        added = parts.sum(0) if sums or weight is not None else parts[0]
        summed, by_weight, by_shift = added[0], added[1], added[2]
    else:
        dh = dropped(dh, keep, by).float()
        hat, out = norms.again(biased(z, bias), stats, norm)
        made = norms.gradient(before(dh, out, activation) if activation else dh, hat, stats, norm)
        dz = made.y.to(torch.bfloat16)
        straight, turned, maxima = coded(dz, inverse, notes)
        summed = dz.sum(0, dtype=torch.float32)
        by_weight, by_shift = made.weight, made.bias  # type: ignore[assignment]
    return Gradient(
        Quantized(straight, scale), Quantized(turned, scale), maxima, summed if sums else None,
        None if weight is None else by_weight, None if shift is None else by_shift,
    )  # fmt: skip


@lru_cache(maxsize=None)
def sound(tail: str, device: torch.device) -> bool:
    """Whether the kernels of a tail, compiled for this device, give what plain operations give there: on rows and columns that fill no
    tile, with a bias and a dropout. Tried once a process. The canary sees the steps apart, not these."""
    if device.type != "cuda":
        return True
    rows, cols, dropout = 80, 512, 0.25
    draw = torch.Generator(device).manual_seed(1)
    z, dh = (torch.randn(rows, cols, device=device, generator=draw).bfloat16() for _ in range(2))
    bias, weight, shift = (torch.randn(cols, device=device, generator=draw) for _ in range(3))
    keep = torch.rand(rows, cols, device=device, generator=draw) > dropout
    scale = torch.full((1,), 2.0**-6, device=device)
    norm = Norm(weight, shift if tail.startswith("layer_norm") else None, 1e-5) if is_row_normed(tail) else None
    leaves = [y.requires_grad_() for y in (biased(z, bias).detach(), weight.clone(), shift.clone())]
    if norm is None:
        h = dropped(after(leaves[0].detach(), tail), keep, enlarged(dropout))
        wanted: Tuple[Any, ...] = (before(dropped(dh, keep, enlarged(dropout)), leaves[0].detach(), tail), None, None)
    else:
        with torch.enable_grad():
            behind, _ = _behind_norm(leaves[0], tail, Norm(leaves[1], None if norm.bias is None else leaves[2], 1e-5))
            h = dropped(behind.to(z.dtype), keep, enlarged(dropout))
            wanted = torch.autograd.grad(h, leaves, dh, allow_unused=True)
        h = h.detach()
    dz = wanted[0]
    made_h = output(z, bias, 1 / scale, tail, keep, dropout, norm)
    if tail == "relu":
        made = gradient(dh, gate(made_h.h), None, scale, 1 / scale, tail, True, None, dropout)
    else:
        made = gradient(dh, z, bias, scale, 1 / scale, tail, True, keep, dropout, norm, made_h.stats)
    assert made.sums is not None and made_h.maxima is not None and made.maxima is not None
    found = [(h, *taken(made_h.h, scale), made_h.maxima), (dz, made.straight, made.turned, made.maxima)]
    good = all(is_coded(*each) for each in found)
    for ours, exact in ((made.sums, dz.float().sum(0)), (made.norm_weight, wanted[1]), (made.norm_bias, wanted[2])):
        if ours is not None and exact is not None:
            good &= float((ours - exact).norm()) <= 0.01 * float(exact.norm())
    return bool(good)


def is_coded(exact: Tensor, straight: Quantized, turned: Quantized, maxima: Tensor) -> bool:
    """Whether these are codes of it, and its maxima."""
    wanted = codes(exact, 1 / straight.scale, "e4m3").float()
    # Sums and exponentials in another order are neighbours in BF16, here and there in FP8, too.
    good = float((straight.bits.float() != wanted).float().mean()) < 0.01
    good &= torch.equal(straight.bits.float().t(), turned.bits.float())
    return good and abs(float(maxima.max() / exact.abs().max()) - 1) < 0.01


__all__ = [
    "BLOCK", "Gradient", "NORMED", "Norm", "Output", "ROWS", "TAILS", "after", "before", "biased", "coded", "dropped", "enlarged", "gate",
    "gradient", "is_coded", "is_row_normed", "joined", "kept", "output", "packed_codes", "row_normed", "sound", "taken",
]
