"""Takes the plain steps of a run on a GPU; gives what launching one takes the host, what such a step takes in all, and what
one takes among others: from an idle GPU on a step is longer than one whose launches wait in line.

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

BEHIND = 6
"""Steps behind each that follow at their own pace."""

SHORTEST = 2
"""As many of them are worth a look, where the next one is recorded."""

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
        self._behind = 0
        """Steps since the last one that was timed, while they are counted."""
        self._last: Optional[Any] = None
        """The GPU's at the end of the latest of them."""
        self._spans: List[Tuple[int, Any, Any]] = []
        """So many steps, and the events at their two ends."""

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

    def end(self) -> Optional[bool]:
        """A step has ended in which nothing was recorded. None: it is of no interest here; False: the next one is, too; True: that
        was all for a while. Waits for nothing."""
        if self._last is not None:
            if is_capturing():
                self._last = None
                return True
            self._last.record()
            self._behind += 1
            if self._behind == BEHIND:
                self._keep_span()
            return self._last is None
        if self._begun is None:
            return None
        passed, (begun, before) = self._lag.passed(), self._begun
        seconds = time.perf_counter() - begun
        self.stop()
        if passed is None:
            return True
        after, self._last = self._event(enable_timing=True), self._event(enable_timing=True)
        after.record()
        self._taken.append((passed, seconds, before, after))
        self._behind = 0
        return False

    def stop(self) -> None:
        """The step that was begun is not timed, and those that are counted end here."""
        self._begun = None
        self._lag.stop()
        self._keep_span()

    def _keep_span(self) -> None:
        if self._last is not None and self._behind >= SHORTEST:
            self._spans.append((self._behind, self._taken[-1][3], self._last))
        self._last = None

    def found(self) -> Optional[Dict[str, Any]]:
        """For the manifest (`run.pace` of docs/reference/trace.md); None where too few steps were timed. Waits for nothing."""
        done = [each for each in self._taken if each[3].query()]
        if len(done) < LEAST:
            return None
        host_ms = statistics.median(1e3 * seconds for _, seconds, _, _ in done)
        step_ms = statistics.median(before.elapsed_time(after) for _, _, before, after in done)
        waited = sum(passed for passed, *_ in done)
        found: Dict[str, Any] = {"steps": len(done), "waited": waited, "host_ms": round(host_ms, 4), "step_ms": round(step_ms, 4)}
        spans = [first.elapsed_time(last) / count for count, first, last in self._spans if first.query() and last.query()]
        if len(spans) >= LEAST:
            found["period_ms"] = round(statistics.median(spans), 4)
        return found


__all__ = ["BEHIND", "HostPace", "LEAST", "MOST"]
