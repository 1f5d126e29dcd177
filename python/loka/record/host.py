"""Takes the plain steps of a run on a GPU; gives what launching one takes the host, and what the step takes in all.

A plan's times are the GPU's. Where the GPU waits for its host faster GEMMs gain nothing, and that is known here, while the
model still trains as it will: `loka plan` says so before anybody applies a plan.
"""

import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

from ..capturing import is_capturing
from ..lag import Lag
from ..steps import Steps

MOST = 20
"""Steps that are timed. Before each the host waits for the GPU once, so that all of the step's launches are its own."""

LEAST = 3
"""As many are needed, of which the first few may have been compiled."""

_Taken = Tuple[bool, float, Any, Any]
"""Whether the GPU waited, the host's seconds, and the events at its two ends."""


class HostPace:
    """Of one model. `device`: where it is; None of one that is not on a GPU."""

    def __init__(
        self, steps: Steps, device: Callable[[], Optional[torch.device]], synchronize: Callable[[torch.device], None] = torch.cuda.synchronize,
        event: Callable[..., Any] = torch.cuda.Event,
    ) -> None:  # fmt: skip
        self._device, self._synchronize, self._event = device, synchronize, event
        self._lag = Lag(steps, event=event)
        self._begun: Optional[Tuple[float, Any]] = None
        self._taken: List[_Taken] = []

    def begin(self) -> bool:
        """A step has ended, and the next one may be timed: whether it is."""
        device = None if len(self._taken) >= MOST or is_capturing() else self._device()
        if device is None:
            return False
        self._synchronize(device)
        mark = self._event(enable_timing=True)
        mark.record()
        self._lag.start()
        self._begun = (time.perf_counter(), mark)
        return True

    def end(self) -> bool:
        """A step has ended in which nothing was recorded: whether it was one that was begun. Waits for nothing."""
        if self._begun is None:
            return False
        passed, (begun, before) = self._lag.passed(), self._begun
        if passed is not None:
            after = self._event(enable_timing=True)
            after.record()
            self._taken.append((passed, time.perf_counter() - begun, before, after))
        self.stop()
        return True

    def stop(self) -> None:
        """The step that was begun is not timed."""
        self._begun = None
        self._lag.stop()

    def found(self) -> Optional[Dict[str, Any]]:
        """For the manifest (`run.pace` of docs/reference/trace.md); None where too few steps were timed. Waits for nothing."""
        done = [each for each in self._taken if each[3].query()]
        if len(done) < LEAST:
            return None
        host_ms = statistics.median(1e3 * seconds for _, seconds, _, _ in done)
        step_ms = statistics.median(before.elapsed_time(after) for _, _, before, after in done)
        waited = sum(passed for passed, *_ in done)
        return {"steps": len(done), "waited": waited, "host_ms": round(host_ms, 4), "step_ms": round(step_ms, 4)}


__all__ = ["HostPace", "LEAST", "MOST"]
