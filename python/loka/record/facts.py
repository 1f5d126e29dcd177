"""Takes a model and what its user says of it; gives order, tail, feeds and head of each site for the manifest."""

import dataclasses
import inspect
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from torch import Tensor, nn

from loka.names import author_class, clean, unwrapped
from loka.record.options import Options
from loka.record.taps import plain_class


@dataclasses.dataclass
class Facts:
    """What the model's structure says of its sites."""

    order: List[str]
    tail: Dict[str, Sequence[Mapping[str, Any]]]
    feeds: Dict[str, Sequence[str]]
    head: Set[str]
    gamma: Dict[str, Optional[Tensor]]
    beta: Dict[str, Optional[Tensor]]
    notes: List[str]


def gather(found: Any, names: Sequence[str], options: Options) -> Facts:
    """What `found` (a `loka.graph.GraphFacts`, or None) says of the sites `names`, overridden by `options`."""
    facts = Facts(list(names), {}, {}, set(), {}, {}, [])
    if found is not None:
        known = [name for name in found.order if name in set(names)]
        facts.order = known + [name for name in names if name not in set(known)]
        facts.tail, facts.feeds, facts.head = dict(found.tail), dict(found.feeds), set(found.head)
        facts.gamma, facts.beta, facts.notes = dict(found.gamma), dict(found.beta), list(found.notes)
    facts.tail.update(options.tails)
    facts.feeds.update(options.feeds)
    facts.head.update(options.heads)
    asked = [*options.tails, *options.feeds, *options.heads]
    unknown = sorted(set(asked) - set(names))
    if unknown:
        facts.notes.append(f"no such site: {', '.join(unknown)}")
    return facts


def class_name(module: Optional[nn.Module]) -> str:
    """`torch.nn.Linear`, or the full name of another class of linear, or of none."""
    if module is None:
        return "torch.nn.functional.linear"
    cls = author_class(plain_class(type(module)))
    if cls is nn.Linear:
        return "torch.nn.Linear"
    return f"{cls.__module__}.{cls.__qualname__}"


def own_forward(module: nn.Module) -> bool:
    """Whether a linear computes by a forward that is not nn.Linear's."""
    if "forward" in module.__dict__:
        return True
    homes = (cls for cls in type(module).__mro__ if "forward" in cls.__dict__ and not cls.__module__.startswith("loka."))
    return next(homes, nn.Linear) is not nn.Linear


def sources(model: nn.Module) -> Dict[str, str]:
    """`file.py:line` of the innermost class outside of PyTorch that holds each module, where its source is there."""
    found: Dict[str, str] = {}
    places: Dict[type, Optional[Tuple[str, int]]] = {}
    for name, module in unwrapped(model).named_modules():
        cls = author_class(plain_class(type(module)))
        if cls not in places:
            places[cls] = _place(cls)
        place = places[cls]
        own = f"{place[0]}:{place[1]}" if place else found.get(clean(name).rpartition(".")[0])
        if own:
            found[clean(name)] = own
    return found


def _place(cls: type) -> Optional[Tuple[str, int]]:
    if cls.__module__.startswith("torch."):
        return None
    try:
        # The name alone: folders are of the machine it was recorded on.
        return os.path.basename(inspect.getsourcefile(cls) or ""), inspect.getsourcelines(cls)[1]
    except (OSError, TypeError):
        return None


__all__ = ["Facts", "class_name", "gather", "own_forward", "sources"]
