"""A model whose linears have names that matchers trip over, and the names of all that it holds.

Neighbours in `PLANNED` are what a careless pattern takes for each other. A plan gives neighbours different kernels, so
that each such mistake is seen.
"""

from typing import Dict, Iterable, List

import torch
from torch import nn

WIDTH = 128
"""A multiple of 16, as FP8 needs, and of 128, as blocks do."""

# What regular expressions, globs, substrings, prefixes and suffixes confuse.
_CONFUSED = [
    "m.layers.1.fc1", "m.layers.10.fc1", "m.layers.1.fc10", "m.layers.11.fc1", "mXlayersX1Xfc1",
    "fc1", "head.fc1", "head.Fc1", "head.fc1x", "deep.head.fc1",
    "linear_like.Linear.0", "linear_like.Linear.00", "linear_like.linear.0",
    "expert[0].up", "expert0.up", "expert[[]0].up", "star*.x", "starry.x", "q?", "qa", "[!a]b", "xb",
    "a+b", "aab", "b|c", "b", "c", "^top", "top", "end$", "end", "x{2}", "xx", "(par)", "par", "(half",
    "back\\slash", "backslash", "\\d", "7",
]  # fmt: skip

# What YAML, JSON and Python read as something else when it is not quoted.
_MISREAD = [
    "null", "~", "yes", "no", "1e3", "0", "key: value", "# hash", "- dash", "&anchor", "*alias", "!tag", "{map}",
    "[list]", ">fold", "%directive", "@at", "`tick", "quote'", 'quote"', "'", " space ", "sp ace", "é", "\U0001f600",
    "<<", "=", "{{x}}", "True", "None", "enabled", "layers", "*", "?",
]  # fmt: skip

SHARED = "tower.a.shared"
ALIAS = "tower.b.shared"
"""The same module as SHARED, under its second name: plans have the first only."""

PLANNED = [*_CONFUSED, *_MISREAD, SHARED]
UNPLANNED = ["unplanned.0", "x.m.layers.1.fc1", "m.layers.1.fc2", "fc"]
"""Linears of the model that no plan has, close in name to some that it has."""

ODD = ["Linear", "Module", "re:fc1", "re:.*", "_default", "fc1", "weight", "fc1_", "ReLU", "input_quantizer", "model"]
"""Names that are words of some format, for a model of their own."""

NESTED = ["m.layers.1", "m.layers.1.fc", "m.layers.10", "m.layers.10.fc"]
"""Linears inside of linears, for a model of their own: each is a prefix of the next one's name."""

RELU = "m.layers.1.act"
"""No linear, between two linears of the plan."""


def toy(names: Iterable[str] = (), dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model with a linear under each name; without names, all of the above, a shared one and a ReLU."""
    model = nn.Module()
    model.linear_names = list(names) or all_names()
    torch.manual_seed(0)
    for name in model.linear_names:
        put(model, name, nn.Linear(WIDTH, WIDTH, dtype=dtype) if name != ALIAS else model.get_submodule(SHARED))
    if RELU.split(".")[0] in model._modules:
        put(model, RELU, nn.ReLU())
    return model


class ScaledLinear(nn.Linear):
    """A linear that is more than one."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def put(model: nn.Module, name: str, module: nn.Module) -> None:
    """Registers the module under its full name, with plain modules on the way."""
    *path, last = name.split(".")
    for part in path:
        if part not in model._modules:
            model.add_module(part, nn.Module())
        model = model._modules[part]
    model.add_module(last, module)


def linears(model: nn.Module) -> Dict[str, nn.Module]:
    """What stands at each name where `toy` put a linear, whatever it is by now, aliases too."""
    modules = dict(model.named_modules(remove_duplicate=False))
    return {name: modules[name] for name in model.linear_names}


def listing(model: nn.Module) -> str:
    """Each module's name and class, a tab between them, a line each: the list that `loka export --modules` takes."""
    return "".join(f"{name}\t{type(module).__name__}\n" for name, module in model.named_modules() if name)


def all_names() -> List[str]:
    return [*PLANNED, *UNPLANNED, ALIAS]
