"""Takes what Python calls options, gives the program's arguments. What is None or empty stays the program's default."""

import json
import os
from typing import Iterable, List, Mapping, Optional, Union

from .child import Path, scratch_file

Policy = Union[str, "os.PathLike[str]", Mapping[str, object]]
"""The name of a built-in policy, a file, or a policy itself."""

Names = Union[str, Iterable[str]]


def option(name: str, value: Union[None, bool, int, float, Path]) -> List[str]:
    """`--name value`; of True `--name` alone."""
    if value is None or value is False:
        return []
    return [f"--{name}"] if value is True else [f"--{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]


def repeated(name: str, values: Union[Names, Iterable[Path]]) -> List[str]:
    """`--name value` for each; a text is one."""
    values = [values] if isinstance(values, str) else values
    return [argument for value in values for argument in option(name, value)]


def mods_option(mods: Names) -> List[str]:
    names = mods if isinstance(mods, str) else ",".join(mods)
    return option("mods", names or None)


def policy_option(policy: Optional[Policy]) -> List[str]:
    if isinstance(policy, Mapping):
        path = scratch_file(".policy.json")
        path.write_text(json.dumps(policy), encoding="utf-8")
        policy = path
    return option("policy", policy)


__all__ = ["Names", "Policy", "mods_option", "option", "policy_option", "repeated"]
