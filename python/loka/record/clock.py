"""Takes when a recorder is attached, when it works and when steps end; gives what its work costs the run."""

import contextlib
import statistics
import time
from collections import deque
from typing import Deque, Iterator, Optional

STEPS = 1000
"""The latest plain steps that were timed, of which the median is taken."""


class Clock:
    """Of the host: where training runs on it, that is what recording costs; a GPU's time it does not see."""

    def __init__(self) -> None:
        self._attached = 0.0
        self._spent = 0.0
        self._since: Optional[float] = None
        self._ended: Optional[float] = None
        self._plain: Deque[float] = deque(maxlen=STEPS)

    def start(self) -> None:
        """A recorder is attached."""
        self._since = time.perf_counter()

    def stop(self) -> None:
        """It no longer is."""
        if self._since is not None:
            self._attached += time.perf_counter() - self._since
            self._since = None
        # What comes before the next attach is no step.
        self._ended = None

    def plain_step(self) -> bool:
        """A step has ended in which nothing was recorded. True where it is known how long it was: then the next one's length
        is not asked, and some steps may pass unseen."""
        now = time.perf_counter()
        if self._ended is None:
            self._ended = now
            return False
        self._plain.append(now - self._ended)
        self._ended = None
        return True

    def other_step(self) -> None:
        """One has ended in which something was."""
        self._ended = time.perf_counter()

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """It works."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._spent += time.perf_counter() - begin

    @property
    def spent(self) -> float:
        """Seconds that it worked."""
        return self._spent

    @property
    def plain_s(self) -> Optional[float]:
        """Median seconds from the end of a step to that of a plain one: with what loads its batch."""
        return statistics.median(self._plain) if self._plain else None

    @property
    def share(self) -> Optional[float]:
        """Of the time that it was attached, 0 to 1; None before there is any."""
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        whole = self._attached + running
        return self._spent / whole if whole else None


__all__ = ["Clock"]
