"""Tells in a hook that runs after a forward whether the forward raised: hooks of PyTorch are not told."""

import sys
from typing import Optional


class Raised:
    def __init__(self) -> None:
        self._handled: Optional[BaseException] = None

    def begin(self) -> None:
        """In the hook before the forward: the caller may be handling an error of its own."""
        self._handled = sys.exc_info()[1]

    def __bool__(self) -> bool:
        return sys.exc_info()[1] is not self._handled


__all__ = ["Raised"]
