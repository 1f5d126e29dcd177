"""Takes what is to be done before a preempted job ends; does it on SIGTERM, then what was there to be done before.

Handlers chain: one that was there is called afterwards, the default ends the process, and one that is put over ours may
call ours. Where Python has no say (no main thread, a handler of C) nothing is installed.
"""

import os
import signal
import threading
from typing import Any, Callable, List

_waiting: List[Callable[[], bool]] = []
_previous: Any = None


def add(save: Callable[[], bool]) -> None:
    """From here on SIGTERM calls `save` first. It gives False where it cannot now, and raises the signal again later."""
    global _previous
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is None:
        return
    _waiting.append(save)
    if signal.getsignal(signal.SIGTERM) is not _handle:
        _previous = signal.signal(signal.SIGTERM, _handle)


def remove(save: Callable[[], bool]) -> None:
    """Ends it. With the last one the handler before is back, unless somebody has put another over ours."""
    if save in _waiting:
        _waiting.remove(save)
    main = threading.current_thread() is threading.main_thread()
    if main and not _waiting and signal.getsignal(signal.SIGTERM) is _handle:
        signal.signal(signal.SIGTERM, _previous)


def again() -> None:
    """Raises the signal that came at a bad moment."""
    signal.raise_signal(signal.SIGTERM)


def _handle(number: int, frame: Any) -> None:
    # All of them are asked, also where one is not ready: it will be asked again.
    if not all([save() for save in _waiting]):
        return
    if callable(_previous):
        _previous(number, frame)
    elif _previous == signal.SIG_DFL:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


__all__ = ["add", "again", "remove"]
