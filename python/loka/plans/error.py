"""The one exception of plans: a file that is no plan, a plan for another model, a kernel that cannot run."""

from typing import Sequence


class PlanError(ValueError):
    """Its first line is the cause, then the file if there is one. Where several things are wrong, one line
    for each follows, indented."""


def one_line(text: object, limit: int = 200) -> str:
    """Text of a file as a message may hold it: without control characters, so that a hostile name cannot
    break a line or a terminal, and clipped."""
    line = "".join(character if character.isprintable() else " " for character in str(text))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def listed(cause: str, path: str, lines: Sequence[str]) -> str:
    """`cause: file`, and a line for each thing that is wrong."""
    where = f": {one_line(path)}" if path else ""
    return "\n  ".join([cause + where, *lines])


__all__ = ["PlanError", "listed", "one_line"]
