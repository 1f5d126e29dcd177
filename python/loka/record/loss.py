"""Takes the training loss; gives it back, and keeps its mean and what the total loss is differentiated by it."""

import collections
from typing import Any, Deque, Optional, Tuple

import torch
from torch import Tensor

from loka.record import taps
from loka.record.options import Options
from loka.steps import Active

LOSS_STEPS = 100
"""Recorded steps that the manifest's loss is a mean of, at most: one step's loss is mostly noise."""


class _Tapped(torch.autograd.Function):
    """Identity on the loss; its backward, the first of all, records loss and d total / d loss."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, marker: Tensor) -> Tensor:
        ctx.save_for_backward(loss.detach(), marker)
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Tensor, None]:
        loss, marker = ctx.saved_tensors
        torch.ops.loka.record(loss, grad, marker, 0, 0)
        return grad, None


class LossTap:
    """The loss of recorded steps: `scale`, d total / d loss of the latest backward, and the latest steps' sums."""

    def __init__(self, options: Options, switch: Active) -> None:
        self._options = options
        self._switch = switch
        self._tap: Optional[taps.Tap] = None
        self._scale: Optional[Tensor] = None
        self._sums: Optional[Tensor] = None
        self._steps: Deque[Tensor] = collections.deque(maxlen=LOSS_STEPS)

    def open(self) -> None:
        """Begins to listen."""
        self._tap = taps.Tap(self._switch, self)

    def release(self) -> None:
        """Ends it."""
        if self._tap is not None:
            self._tap.release()
            self._tap = None

    def of(self, value: Tensor) -> Tensor:
        """`value`, tapped in recorded steps. ValueError unless it is one value."""
        tap = self._tap
        if tap is None or not tap.switch.active or not torch.is_grad_enabled() or not value.requires_grad:
            return value
        if value.numel() != 1:
            raise ValueError(f"recorder.loss: the loss has shape {list(value.shape)}, expected one value")
        return _Tapped.apply(value, tap.marker)

    def take(self, x: Tensor, grad: Optional[Tensor], _needs: int, _examples: int) -> None:
        """A loss and d total / d loss, from its backward."""
        if grad is not None:
            self._scale = grad.reshape(1).float()
            both = torch.stack([x.double().reshape(()), torch.ones((), dtype=torch.float64, device=x.device)])
            self._sums = both if self._sums is None else self._sums + both

    def called(self, _leading: int) -> taps.Batch:
        """Never asked: `of` is the only way in, and a loss has no rows of its own."""
        return taps.Batch()

    def scale(self, device: torch.device) -> Tensor:
        """d total / d loss, `[1]` FP32; one where the loss is not tapped."""
        if self._scale is None or self._scale.device != device:
            self._scale = torch.ones(1, device=device) if self._scale is None else self._scale.to(device)
        return self._scale

    def end_step(self, examples: int) -> None:
        """The end of a recorded step whose calls had so many examples."""
        if self._sums is not None:
            weight = torch.tensor([self._options.mean_loss(examples), 1.0], dtype=torch.float64)
            self._steps.append(self._sums * weight.to(self._sums.device, non_blocking=True))
        # A loss that is no longer tapped must not leave its scale behind.
        self._sums = self._scale = None

    def values(self) -> Optional[Tensor]:
        """`[steps, 2]`: sum and number of the mean losses of each of the latest recorded steps."""
        return torch.stack(list(self._steps)) if self._steps else None


__all__ = ["LOSS_STEPS", "LossTap"]
