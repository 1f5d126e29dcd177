"""Takes `{name: weight}` of a model's functional linears; gives them checked, and puts kernels under their names.

A functional linear has no module that could hold its kernels: `loka.linear` looks them up by name, in this process. So
a name is one model's at a time, and its kernels go when that model, or the last copy of it, is gone.
"""

import gc
import weakref
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .. import graph
from ..kernels.named import Route, routed
from ..names import linears
from .error import PlanError, listed, one_line

Functional = Mapping[str, Union[Tensor, Sequence[Optional[Tensor]]]]
"""Weight [n, k], or (weight, bias [n] or None), of each `loka.linear(..., name=name)`: as `loka.Recorder` takes it."""


@dataclass(frozen=True)
class FunctionalLinear:
    """A linear y[..., n] = x[..., k] W[n, k]^T + bias[n] that runs without a module."""

    weight: Tensor
    bias: Optional[Tensor] = None

    @property
    def in_features(self) -> int:
        return self.weight.shape[1]

    @property
    def out_features(self) -> int:
        return self.weight.shape[0]


Linear = Union[nn.Linear, FunctionalLinear]


class Owner:
    """Lives as long as a model that a plan was applied to, or a copy of it: copies share it."""

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Owner":
        return self


_owners: Dict[str, "weakref.ref[Owner]"] = {}
"""Every functional name of a plan that is applied, also where its linear is left in high precision."""


def checked(given: Optional[Functional], model: nn.Module) -> Dict[str, FunctionalLinear]:
    """PlanError, with everything that is wrong, for what is no weight of a linear, and for names of modules."""
    modules = {name for name, _ in linears(model)}
    found: Dict[str, FunctionalLinear] = {}
    wrong: List[str] = []
    weight: Any
    bias: Any
    for name, value in (given or {}).items():
        weight, bias = [*value, None][:2] if isinstance(value, (tuple, list)) else (value, None)
        reason = "is a module of the model" if name in modules else _unsound(weight, bias)
        if reason is None:
            found[name] = FunctionalLinear(weight, bias)
        else:
            wrong.append(f"'{one_line(name)}' {reason}")
    if wrong:
        raise PlanError(listed("functional must map names of loka.linear to their weights", "", wrong))
    return found


def _unsound(weight: Any, bias: Any) -> Optional[str]:
    if not isinstance(weight, Tensor) or is_lazy(weight):
        return f"has no weight yet, but a {type(weight).__name__}"
    if weight.dim() != 2:
        return f"has a weight of {weight.dim()} dimensions, expected [n, k]: apply the plan before FSDP flattens it"
    if bias is not None and (not isinstance(bias, Tensor) or tuple(bias.shape) != (weight.shape[0],)):
        what = list(bias.shape) if isinstance(bias, Tensor) else type(bias).__name__
        return f"has a bias {what}, expected [{weight.shape[0]}]"
    return None


def refuse_taken(names: Sequence[str], owner: Optional[Owner] = None) -> None:
    """PlanError where a name is of another model that lives."""
    if _taken(names, owner):
        # A model that nobody holds may wait for the collector: modules are in cycles.
        gc.collect()
    taken = _taken(names, owner)
    if taken:
        raise PlanError(
            f"functional '{one_line(taken[0])}' is of another model that a plan is applied to: the names of "
            "loka.linear are of the whole process; loka.unapply that model first, or give each its own names"
        )


def _taken(names: Sequence[str], owner: Optional[Owner]) -> List[str]:
    return [name for name in names if name in _owners and _owners[name]() not in (None, owner)]


def claim(names: Sequence[str], routes: Mapping[str, Route], owner: Owner) -> None:
    """From now on `names` are of `owner`, and `loka.linear` runs those in `routes` so."""
    for name in names:
        _drop(name)
    mine = weakref.ref(owner, lambda dead: _drop_all(names, dead))
    for name in names:
        _owners[name] = mine
    routed.update(routes)


def is_claimed(names: Sequence[str], owner: Optional[Owner]) -> bool:
    """Whether all of the names are of `owner` now."""
    return all(name in _owners and _owners[name]() is owner for name in names)


def release(names: Sequence[str], owner: Optional[Owner]) -> None:
    """`loka.linear` is the plain function again for those of the names that are of `owner`."""
    for name in names:
        if name in _owners and _owners[name]() is owner:
            _drop(name)


def _drop_all(names: Sequence[str], owner: "weakref.ref[Owner]") -> None:
    for name in names:
        if _owners.get(name) is owner:
            _drop(name)


def _drop(name: str) -> None:
    _owners.pop(name, None)
    routed.pop(name, None)


def unnamed(missing: Sequence[str], model: nn.Module) -> Tuple[Dict[str, str], Tuple[str, ...]]:
    """Of sites that the model's modules lack: a hint for each that is a `loka.linear` of the model; and one for all
    where what the model calls cannot be read."""
    if not missing:
        return {}, ()
    facts = graph.read(model)
    names = set(facts.order).intersection(missing)
    found = {name: f"a loka.linear: give functional={{{one_line(name)!r}: weight}}" for name in names}
    if found or not facts.unread:
        return found, ()
    return {}, ("sites that run by loka.linear(..., name=...) are matched where functional={name: weight} is given",)


__all__ = [
    "Functional", "FunctionalLinear", "Linear", "Owner", "checked", "claim", "is_claimed", "refuse_taken", "release",
    "unnamed",
]
