"""Takes what comes out of a linear; gives what a norm over its whole rows and an activation make of it, and its gradient, by plain
operations in FP32. The passes that make FP8 codes of these are in `triton_norms`.

Nothing is rounded between the norm and its activation, as in compiled code, and as autocast has a layer norm in FP32.
"""

from typing import List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

ROW_NORMS = ("layer_norm", "rms_norm")


class Norm(NamedTuple):
    """The parameters of a norm over rows, [cols] each, and what is added to the variance."""

    weight: Optional[Tensor]
    bias: Optional[Tensor]
    eps: float


class Stats(NamedTuple):
    """Of each row, FP32 [rows]: the mean, which only a layer norm has, and one over the standard deviation, or root of the mean square."""

    mean: Optional[Tensor]
    rstd: Tensor


class NormGradient(NamedTuple):
    """Of what goes in [rows, cols], and of the norm's own weight and bias [cols], FP32; None of what it has not."""

    y: Tensor
    weight: Optional[Tensor]
    bias: Optional[Tensor]


def _wide(x: Optional[Tensor]) -> Optional[Tensor]:
    return None if x is None else x.float()


def normed(y: Tensor, kind: str, norm: Norm) -> Tuple[Tensor, Stats]:
    """(what the norm makes of y [rows, cols], in FP32; what its backward knows of the rows)."""
    y, weight, bias = y.float(), _wide(norm.weight), _wide(norm.bias)
    if kind == "layer_norm":
        out, mean, rstd = torch.native_layer_norm(y, [y.size(1)], weight, bias, norm.eps)
        return out, Stats(mean.flatten(), rstd.flatten())
    rstd = torch.rsqrt(y.square().mean(1, keepdim=True) + norm.eps)
    out = y * rstd
    return out if weight is None else out * weight, Stats(None, rstd.flatten())


def again(y: Tensor, stats: Stats, norm: Norm) -> Tuple[Tensor, Tensor]:
    """(rows without mean and size, what the norm makes of them) by statistics that are known, in FP32."""
    hat = y.float() if stats.mean is None else y.float() - stats.mean[:, None]
    hat = hat * stats.rstd[:, None]
    out = hat if norm.weight is None else hat * norm.weight.float()
    return hat, out if norm.bias is None else out + norm.bias.float()


def gradient(d: Tensor, hat: Tensor, stats: Stats, norm: Norm) -> NormGradient:
    """From FP32 d, the gradient of what the norm gives."""
    by_hat = d if norm.weight is None else d * norm.weight.float()
    y = by_hat - hat * (by_hat * hat).mean(1, keepdim=True)
    if stats.mean is not None:
        y = y - by_hat.mean(1, keepdim=True)
    weight = None if norm.weight is None else (d * hat).sum(0)
    return NormGradient(y * stats.rstd[:, None], weight, None if norm.bias is None else d.sum(0))


def kept(stats: Stats, norm: Norm) -> List[Tensor]:
    """What a backward reads again, in a list; `found` knows what was there."""
    return [part for part in (stats.mean, stats.rstd, norm.weight, norm.bias) if part is not None]


def found(parts: List[Tensor], tail: str, eps: float) -> Tuple[Stats, Norm]:
    """What `kept` took apart, of a tail that begins with a norm."""
    first = 1 if tail.startswith("layer_norm") else 0
    rest = parts[first + 1 :]
    weight, bias = (rest[at] if len(rest) > at else None for at in (0, 1))
    return Stats(parts[0] if first else None, parts[first]), Norm(weight, bias, eps)


def eps_of(eps: Optional[float]) -> float:
    """That of an nn.RMSNorm, which may have none of its own."""
    return _DEFAULT if eps is None else float(eps)


def _default() -> float:
    """It is another in each version of PyTorch: of BF16 or of FP32."""
    tiny = torch.full((1, 1), 1e-5, dtype=torch.bfloat16)
    found = float((tiny.double() / torch.nn.functional.rms_norm(tiny, (1,)).double()).square())
    return min((torch.finfo(dtype).eps for dtype in (torch.float32, torch.bfloat16)), key=lambda each: abs(each - found))


_DEFAULT = _default()

__all__ = ["ROW_NORMS", "Norm", "NormGradient", "Stats", "again", "eps_of", "found", "gradient", "kept", "normed"]
