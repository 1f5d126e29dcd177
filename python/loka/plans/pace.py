"""Takes training steps on a GPU; tells in what share of them it had caught up with the host by the end of the backward.

Where the GPU waits for launches a faster GEMM gains nothing, and each launch that a plan adds costs: DCNv2's plan, whose GEMMs
save .93 of 5.9 ms of GPU time, made the step of a slower host .83x as fast, and 1.18x with the same launches in CUDA graphs
(H200, docs/engineering/training.md).
"""

from typing import Any, Callable

import torch

from ..lag import Lag
from ..steps import Steps

FIRST, WINDOW, EVERY = 50, 100, 1000
"""Looked at are WINDOW steps from FIRST on, when everything is compiled, and again EVERY steps later."""


class Pace:
    """Looks at the steps of one model, while it is `on_gpu`. `tell(share)` is called after each window."""

    def __init__(
        self, steps: Steps, on_gpu: Callable[[], bool], tell: Callable[[float], None],
        event: Callable[[], Any] = torch.cuda.Event,
    ) -> None:
        self._steps = steps
        self._on_gpu = on_gpu
        self._tell = tell
        self._looks = False
        self._seen = self._waited = 0
        self._lag = Lag(steps, self._wanted, event)

    def start(self) -> None:
        """Begins to listen."""
        self._lag.start()

    def stop(self) -> None:
        """Nothing is looked at from here on."""
        self._lag.stop()

    def _wanted(self) -> bool:
        at = self._steps.finished % EVERY - FIRST
        if at == 0:
            self._looks = self._on_gpu()
        return self._looks and 0 <= at < WINDOW

    def end_step(self) -> None:
        """Behind the optimizer's launches. Waits for nothing."""
        passed = self._lag.passed()
        if passed is None:
            return
        self._seen += 1
        self._waited += passed
        if self._seen == WINDOW:
            share = self._waited / self._seen
            self._seen = self._waited = 0
            self._tell(share)


__all__ = ["EVERY", "FIRST", "Pace", "WINDOW"]
