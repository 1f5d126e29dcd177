"""Takes when a recorder is attached and when it works; gives the share of the run that its work is."""

import contextlib
import time
from typing import Iterator, Optional


class Clock:
    """Of the host: where training runs on it, that is what recording costs; a GPU's time it does not see."""

    def __init__(self) -> None:
        self._attached = 0.0
        self._spent = 0.0
        self._since: Optional[float] = None

    def start(self) -> None:
        """A recorder is attached."""
        self._since = time.perf_counter()

    def stop(self) -> None:
        """It no longer is."""
        if self._since is not None:
            self._attached += time.perf_counter() - self._since
            self._since = None

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """It works."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._spent += time.perf_counter() - begin

    @property
    def share(self) -> Optional[float]:
        """Of the time that it was attached, 0 to 1; None before there is any."""
        running = 0.0 if self._since is None else time.perf_counter() - self._since
        whole = self._attached + running
        return self._spent / whole if whole else None


__all__ = ["Clock"]
