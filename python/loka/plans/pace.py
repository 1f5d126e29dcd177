"""Takes training steps on a GPU; tells in what share of them it had caught up with the host by the end of the backward.

Where the GPU waits for launches a faster GEMM gains nothing, and each launch that a plan adds costs: DCNv2's plan, whose GEMMs
save .93 of 5.9 ms of GPU time, made the step of a slower host .83x as fast, and 1.18x with the same launches in CUDA graphs
(H200, docs/engineering/training.md).
"""

from typing import Any, Callable, Optional

import torch
from torch.optim import Optimizer

from ..capturing import is_capturing
from ..listeners import Handle, before_steps
from ..steps import Steps

FIRST, WINDOW, EVERY = 50, 100, 1000
"""Looked at are WINDOW steps from FIRST on, when everything is compiled, and again EVERY steps later."""


class Pace:
    """Looks at the steps of one model, while it is `on_gpu`. `tell(share)` is called after each window.

    An event behind the backward, asked for behind the launches of the optimizer: if the GPU has passed it, it had less to
    do than the host takes to launch an optimizer. A loop that waits for the GPU in every step is judged no otherwise."""

    def __init__(
        self, steps: Steps, on_gpu: Callable[[], bool], tell: Callable[[float], None],
        event: Callable[[], Any] = torch.cuda.Event,
    ) -> None:
        self._steps = steps
        self._on_gpu = on_gpu
        self._tell = tell
        self._make = event
        self._looks = False
        self._event: Optional[Any] = None
        self._pending = False
        self._seen = self._waited = 0
        self._hook: Optional[Handle] = None

    def start(self) -> None:
        """Begins to listen."""
        self._hook = before_steps(self._before)

    def stop(self) -> None:
        """Nothing is looked at from here on."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _before(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        at = self._steps.finished % EVERY - FIRST
        self._pending = False
        if not 0 <= at < WINDOW or not self._steps.is_owner(optimizer) or is_capturing():
            return
        if at == 0:
            self._looks = self._on_gpu()
        if self._looks:
            self._event = self._event or self._make()
            self._event.record()
            self._pending = True

    def end_step(self) -> None:
        """Behind the optimizer's launches. Waits for nothing."""
        if not self._pending or self._event is None or is_capturing():
            return
        self._pending = False
        self._seen += 1
        self._waited += bool(self._event.query())
        if self._seen == WINDOW:
            share = self._waited / self._seen
            self._seen = self._waited = 0
            self._tell(share)


__all__ = ["EVERY", "FIRST", "Pace", "WINDOW"]
