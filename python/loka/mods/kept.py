"""Takes what a user wants kept; gives the modules that are meant. A pattern that means nothing is an error."""

import difflib
from fnmatch import fnmatchcase
from typing import Iterable, List, Sequence, Set, Union

from torch import nn

from loka import names


def near(name: str, known: Iterable[str]) -> str:
    """The known names that look most like `name`, for an error's text."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.4)
    return f"; near: {', '.join(close)}" if close else ""


def kept_modules(root: nn.Module, keep: Sequence[Union[str, nn.Module]]) -> Set[nn.Module]:
    """Every module that a name, an fnmatch pattern or a module of `keep` means, with all that it holds."""
    named = [(names.clean(name), module) for name, module in root.named_modules(remove_duplicate=False) if name]
    kept: Set[nn.Module] = set()
    for wanted in keep:
        if isinstance(wanted, nn.Module):
            found = [module for module in root.modules() if module is names.unwrapped(wanted)]
            missing = f"keep: the {type(wanted).__name__} is not in the model"
        else:
            found = [module for name, module in named if name == wanted or fnmatchcase(name, wanted)]
            missing = f"keep: no module is named '{wanted}'{near(wanted, dict(named))}"
        if not found:
            raise ValueError(missing)
        for module in found:
            kept.update(module.modules())
    return kept


def checked_mods(mods: Iterable[str], known: Sequence[str]) -> List[str]:
    """The mods asked for; ValueError for one that there is not."""
    mods = list(mods)
    for mod in mods:
        if mod not in known:
            raise ValueError(f"there is no mod '{mod}'; there are {', '.join(known)}")
    return mods


__all__ = ["checked_mods", "kept_modules", "near"]
