"""Takes training steps on a GPU; tells of one at a time whether the GPU had passed the backward when the host had launched the optimizer.

An event behind the backward, asked for behind the launches of the optimizer: if the GPU has passed it, it had less to do than
the host takes to launch an optimizer. A loop that waits for the GPU in every step is judged no otherwise.
"""

from typing import Any, Callable, Optional

import torch
from torch.optim import Optimizer

from .capturing import is_capturing
from .listeners import Handle, before_steps
from .steps import Steps

BOUND = 0.9
"""Share of steps in which the GPU waits for the host, from which on it is the slower one."""


class Lag:
    """Looks at those steps for which `wanted()`, while it listens."""

    def __init__(
        self, steps: Steps, wanted: Callable[[], bool] = lambda: True, event: Callable[[], Any] = torch.cuda.Event
    ) -> None:
        self._steps = steps
        self._wanted = wanted
        self._make = event
        self._event: Optional[Any] = None
        self._pending = False
        self._hook: Optional[Handle] = None

    def start(self) -> None:
        """Begins to listen."""
        if self._hook is None:
            self._hook = before_steps(self._before)

    def stop(self) -> None:
        """Nothing is looked at from here on."""
        self._pending = False
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _before(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self._pending = False
        if self._wanted() and self._steps.is_owner(optimizer) and not is_capturing():
            self._event = self._event or self._make()
            self._event.record()
            self._pending = True

    def passed(self) -> Optional[bool]:
        """Behind the optimizer's launches: whether the GPU waits for the host there. None of a step that was not looked at.
        Waits for nothing."""
        if not self._pending or self._event is None or is_capturing():
            return None
        self._pending = False
        return bool(self._event.query())


__all__ = ["BOUND", "Lag"]
