"""Takes a method; gives a function that calls it while its object lives, for hooks that outlive what they serve."""

import weakref
from typing import Any, Callable


def weakly(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method of whatever object lives; False of one that does not."""
    weak = weakref.WeakMethod(method)

    def call(*args: Any) -> Any:
        alive = weak()
        return False if alive is None else alive(*args)

    return call


__all__ = ["weakly"]
