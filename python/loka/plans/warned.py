"""Takes a text; warns of it, whatever a training job does with warnings."""

import warnings


class CanaryWarning(RuntimeWarning):
    """Something of an applied plan is not as it was planned: a GEMM, or what a step takes."""


def say(text: str) -> None:
    """A warning that cannot end a training job, even where warnings are errors. Of no line of anybody's code, which
    would be printed below it."""
    try:
        warnings.warn_explicit(f"loka: {text}", CanaryWarning, "loka.canary", 0)
    except Warning:
        pass


__all__ = ["CanaryWarning", "say"]
