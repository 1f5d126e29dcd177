"""Takes a parsed JSON value and where it stood; gives it back when it is of the right kind, else says what is wrong.

As strict as Rust's reader: an unknown key is an error, or a plan of a newer program would be half understood.
"""

from typing import Any, Dict, List, Optional, Sequence

from .error import one_line


class Malformed(ValueError):
    """What a file says that it must not."""


def record(
    value: Any, where: str, required: Optional[Sequence[str]] = None, optional: Sequence[str] = (), open: bool = False
) -> Dict[str, Any]:
    """An object with all `required` keys and no other than these and `optional` (any other where `open`).
    Without `required`: an object with any keys."""
    if not isinstance(value, dict):
        raise _wrong(value, where, "an object")
    if required is None:
        return value
    known = (*required, *optional)
    prefix = f"{where}: " if where else ""
    for key in () if open else value:
        if key not in known:
            raise Malformed(f"not a plan: {prefix}unknown field '{one_line(key)}', expected one of {', '.join(known)}")
    for key in required:
        if key not in value:
            raise Malformed(f"not a plan: {prefix}missing field '{key}'")
    return value


def items(value: Any, where: str) -> List[Any]:
    if not isinstance(value, list):
        raise _wrong(value, where, "an array")
    return value


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, where, "text")
    return value


def one_of(value: Any, where: str, known: Sequence[str]) -> str:
    word = text(value, where)
    if word not in known:
        raise Malformed(f"not a plan: {where}: unknown word '{one_line(word)}', expected one of {', '.join(known)}")
    return word


def boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(value, where, "true or false")
    return value


def number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(value, where, "a number")
    return float(value)


def integer(value: Any, where: str) -> int:
    """An integer of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(value, where, "an integer of at least 0")
    return value


def _wrong(value: Any, where: str, wanted: str) -> Malformed:
    kind = {dict: "an object", list: "an array", str: "text", type(None): "null", bool: "a boolean"}
    found = kind.get(type(value), f"{value}")
    return Malformed(f"not a plan: {where} is {one_line(found, limit=40)}, it must be {wanted}")


__all__ = ["Malformed", "boolean", "integer", "items", "number", "one_of", "record", "text"]
