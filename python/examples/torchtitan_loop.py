"""Record a run of a loop as torchtitan's: a loss of all tokens, divided by their number, over micro-batches.

    recorder = loka.Recorder(model, "traces/", loss_reduction=1 / examples)
    loss_fn = recorded_loss(loss_fn, recorder)
    with recorder:
        train()
    print(recorder.report())

`examples`: sequences of a micro-batch; their tokens are rows of the linears.
"""

import functools
from typing import Any, Callable

import torch

import loka

LossFunction = Callable[..., torch.Tensor]


def recorded_loss(loss_fn: LossFunction, recorder: loka.Recorder) -> LossFunction:
    """The same loss function. Where it is called is before anything divides by the number of micro-batches."""

    @functools.wraps(loss_fn)
    def wrapped(*args: Any, **kwargs: Any) -> torch.Tensor:
        return recorder.loss(loss_fn(*args, **kwargs))

    return wrapped
