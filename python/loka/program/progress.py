"""Takes how far a probe is, shows it on one line that rewrites itself, on terminals and in notebooks."""

import sys
from typing import Callable, Optional, Union

from .child import OnProgress

Progress = Union[None, bool, Callable[[float], None]]
"""None: shown where somebody sees it. A function is told the share that is done, 0 to 1."""


class Line:
    """A line of stderr that is written over, and how long it was last."""

    def __init__(self) -> None:
        self.length = 0

    def clear(self) -> None:
        if self.length:
            self.write("")
            sys.stderr.write("\r")

    def write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self.length))
        sys.stderr.flush()
        self.length = len(text)


class Shown:
    """Told of progress while a probe runs: `with Shown(progress) as on_progress`."""

    def __init__(self, progress: Progress) -> None:
        self._line: Optional[Line] = None
        self._told: Optional[Callable[[float], None]] = None
        if callable(progress):
            self._told = progress
        elif progress or (progress is None and is_seen()):
            self._line = Line()

    def __enter__(self) -> OnProgress:
        return self._take

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.clear()

    def _take(self, done: float, seconds: float) -> None:
        if self._told is not None:
            self._told(done)
        elif self._line is not None:
            left = f" · {seconds * (1 - done) / done:.0f} s left" if done > 0.02 else ""
            self._line.write(f"probing {100 * done:.0f} %{left}")


def is_seen() -> bool:
    """A terminal, or a notebook: that is no terminal, but rewrites a line all the same."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


__all__ = ["Line", "Progress", "Shown", "is_seen"]
