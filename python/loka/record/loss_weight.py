"""Takes what a head read and the gradient of what it gave; gives how many times the log loss of its predictions the loss is.

Of a log loss of logits z, labels 0 and 1, the gradient of z is sigmoid(z) or sigmoid(z) - 1: its sign says which, and how many times that
it is is what the log loss was multiplied by, in every row. A loss cost takes a gradient's square for the curvature, and so would be told
that many times too high: a reader divides it by what is in the manifest (docs/concepts/method.md, "What the loss is").
"""

from typing import Optional, Sequence

import torch
from torch import Tensor
from torch.nn import functional

WIDEST = 64
"""Outputs of what may be a head of log losses."""

TOLERANCE = 0.05
"""How far from 1 is worth telling: BF16 makes some .01."""

_ROWS = 1024
_SPREAD = 0.1
"""Between the tenth and the ninetieth of a hundred rows, over the median: logits and gradients in BF16 make some .02 of it. Other losses, and
examples that are weighted, have more."""

_LOGITS = 0.4
"""How far apart the logits of these rows have to be: of a model that tells no two examples apart yet, every loss has gradients of two values."""


class LossWeight:
    """Of one head, from the first rows of the last call that was finite. Waits for nothing."""

    def __init__(self) -> None:
        self._seen: Optional[Tensor] = None

    def add(self, x: Tensor, grad: Tensor, factor: Tensor, weight: Tensor, bias: Optional[Tensor]) -> None:
        """`x` [rows, k]; `grad` [rows, n], which times `factor` is per example; `weight` [n, k], `bias` [n]."""
        z = functional.linear(x[:_ROWS].float(), weight.detach().float(), None if bias is None else bias.detach().float())
        grad = grad[:_ROWS].float() * factor
        times = torch.where(grad > 0, grad / torch.sigmoid(z), -grad / torch.sigmoid(-z))
        # Of rows that a task leaves out there is no gradient.
        times = torch.where(grad != 0, times, torch.nan)
        share = torch.tensor([0.1, 0.5, 0.9], device=times.device)
        parts = (torch.nanquantile(times, share, dim=0), torch.quantile(z, share, dim=0), grad.square().mean(0, keepdim=True))
        seen = torch.cat(parts)
        self._seen = seen if self._seen is None else torch.where(torch.isfinite(seen).all(0), seen, self._seen)

    def of_outputs(self) -> Optional[Tensor]:
        """`[2, n]` on the CPU: how many times, and the mean square of the gradient; None where the loss is none of that kind, or that cannot be
        told yet."""
        if self._seen is None:
            return None
        low, middle, high, z_low, _, z_high, squares = self._seen.cpu().unbind()
        is_told = bool((z_high - z_low >= _LOGITS).all())
        is_log_loss = bool((middle > 0).all()) and bool((high - low <= _SPREAD * middle).all())
        return torch.stack([middle, squares]) if is_told and is_log_loss else None


def loss_weight(heads: Sequence[Optional[LossWeight]]) -> Optional[float]:
    """How many times too high loss costs of a model with these heads are told; None where the loss of one is of another kind."""
    found = [None if head is None else head.of_outputs() for head in heads]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    times, squares = torch.cat(known, 1)
    weight = float(squares.sum() / (squares / times).sum())
    return weight if weight > 0 else None


__all__ = ["LossWeight", "TOLERANCE", "WIDEST", "loss_weight"]
