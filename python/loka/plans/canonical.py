"""Takes the text of a JSON file, gives its value, the canonical text of a value and the SHA-256 of that.

To the byte what the Rust side writes and signs (core/src/plan/canonical.rs on serde_json): keys sorted by code
point, no spaces, text not escaped beyond need, numbers with the shortest digits that read back. Python's own
`json.dumps` prints other floats (1e-05 for 0.00001), so that a digest made by it fits no plan.
"""

import hashlib
import json
import math
from typing import Any, Callable, Dict, List

MAX_DEPTH = 127
"""Levels of arrays and objects that serde_json reads; a deeper one would be refused there."""

_string = json.JSONEncoder(ensure_ascii=False).encode


def parse(text: str) -> Any:
    """The value of a JSON text, read as strictly as serde_json reads it.

    Raises ValueError with the reason: not JSON, NaN or infinity, a number beyond FP64, nested too deep.
    """
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_refused)
    except RecursionError:
        raise ValueError("recursion limit exceeded") from None
    return value


def canonical_json(value: Any) -> str:
    """The text that stands for a value. Raises ValueError where it is nested too deep or holds what JSON cannot."""
    parts: List[str] = []
    _write(value, parts.append, MAX_DEPTH)
    return "".join(parts)


def digest_of(value: Any) -> str:
    """`sha256:` and 64 hex digits, over the canonical text. Raises ValueError as `canonical_json` does, and for
    half a surrogate pair, which no UTF-8 text can hold."""
    try:
        content = canonical_json(value).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a string holds half a surrogate pair") from None
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _refused(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("number out of range")
    return value


def _integer(text: str) -> Any:
    """An integer where 64 bits hold it, else FP64; -0 is FP64, or its sign would be lost (as in serde_json)."""
    if text == "-0" or len(text) > 20:
        return _float(text)
    value = int(text)
    return value if -(2**63) <= value < 2**64 else float(value)


def _write(value: Any, out: Callable[[str], None], depth: int) -> None:
    if isinstance(value, str):
        out(_string(value))
    elif value is None or isinstance(value, bool):
        out({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, int):
        out(str(value))
    elif isinstance(value, float):
        out(float_text(value))
    elif depth == 0:
        raise ValueError("recursion limit exceeded")
    elif isinstance(value, dict):
        _write_object(value, out, depth - 1)
    elif isinstance(value, (list, tuple)):
        _write_array(value, out, depth - 1)
    else:
        raise ValueError(f"{type(value).__name__} is not JSON")


def _write_object(value: Dict[str, Any], out: Callable[[str], None], depth: int) -> None:
    separator = "{"
    for key in sorted(value):
        out(separator + _string(key) + ":")
        _write(value[key], out, depth)
        separator = ","
    out("}" if value else "{}")


def _write_array(value: Any, out: Callable[[str], None], depth: int) -> None:
    separator = "["
    for item in value:
        out(separator)
        _write(item, out, depth)
        separator = ","
    out("]" if value else "[]")


def float_text(value: float) -> str:
    """A finite FP64 number as serde_json prints it: plain from 1e-5 up to below 1e16, else with an exponent
    of no leading zero. The digits are Python's own: both are the shortest that read back."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    power = int(exponent)
    if power != -5:
        return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power)}"
    sign = "-" if mantissa.startswith("-") else ""
    return sign + "0.0000" + mantissa.lstrip("-").replace(".", "")


__all__ = ["MAX_DEPTH", "canonical_json", "digest_of", "float_text", "parse"]
