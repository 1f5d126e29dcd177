"""Takes the nn.Sequentials of a model, and the modules whose forward is as straight (`straight`), in which an activation follows a
linear whose backward goes by scales that are known beforehand; makes each one that in training runs the two as one: then the
backward of bias, BlockNorm, activation, dropout and the casts of dgrad and wgrad are one pass. Where the next linear, right
behind them, goes by such scales too, it gets FP8 codes, and their forward and its casts are one pass as well. And back.

Nobody but the nn.Sequential sees what lies between its modules while it runs them, whoever calls it and however; where a
forward does anything else, or somebody slices, they run for themselves. So they do while one of them has a hook, in steps
that are checked or recorded, and wherever a scale is not known yet. All modules stay the same objects.
"""

import warnings
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type

import torch
from torch import nn
from torch.nn.modules import module as of_all

from ..kernels import BLOCK as KERNEL
from ..kernels import HANDED_ROWS, KERNELS, NORMED, Scale, sound
from ..mods.norm import BLOCK, EPS
from ..names import linears, unwrapped
from .error import one_line
from .linear import Kernels, follows, kernels_of
from .straight import ACTIVATIONS, Step, steps_of

DELAYED = frozenset(kernel for kernel in KERNELS if follows(kernel))
"""Their scales are known beforehand, and follow what they are of."""

Links = Mapping[int, int]
"""Place of a linear in its nn.Sequential, those within it taken apart -> the place behind its activation."""

Straight = Mapping[int, Tuple[Step, ...]]
"""id of a module that is no nn.Sequential -> what its forward calls, one behind the other."""

_ACTIVATIONS = {nn.ReLU: "relu", nn.SiLU: "swish", nn.Hardswish: "hard_swish"}


class Handing(nn.Module):
    """An nn.Sequential, or a module as straight, that in training runs linears and what follows them as one where it can."""

    _loka_links: Links = {}
    _loka_parts: int = 0
    """How many there were when its links were made."""
    _loka_base: Type[nn.Module] = nn.Module

    def forward(self, input: Any) -> Any:
        links = self._loka_links
        # A tracer's stand-in for a tensor has no rows to ask for.
        if not (links and self.training and isinstance(input, torch.Tensor) and torch.is_grad_enabled()):
            return super().forward(input)
        modules: List[Any] = _flat(self)
        if len(modules) != self._loka_parts:
            # One within is hooked, or compiled by itself: each by itself has links of its own.
            return super().forward(input)
        at, takes = 0, False
        while at < len(modules):
            module, to = modules[at], links.get(at, 0)
            tail, dropout, gives = ("", 0.0, None) if not to else _now(modules[at:to], modules[to : to + 1], input)
            if not (takes or tail):
                input = module(input)
                at += 1
                continue
            # Not as a call: it has no hook.
            input = module._loka_product(input, module.bias, module._loka_kernels, takes, gives, tail, dropout)
            takes, at = gives is not None, to if tail else at + 1
        return input

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By the class it was made of: classes made while the program runs have no name to be loaded by."""
        return (_blank, (type(self)._loka_base,), *super().__reduce_ex__(2)[2:])


_CLASSES: Dict[Type[nn.Module], Type[Handing]] = {}


def _class_of(base: Type[nn.Module]) -> Type[Handing]:
    if base not in _CLASSES:
        members = {"_loka_base": base, "__module__": __name__, "__doc__": Handing.__doc__}
        _CLASSES[base] = type(base.__name__, (Handing, base), members)
    return _CLASSES[base]


def _blank(base: Type[nn.Module]) -> Handing:
    cls = _class_of(base)
    return cls.__new__(cls)


def tail_of(modules: Sequence[nn.Module]) -> Tuple[str, float]:
    """(which of `handed.TAILS` these modules are in training, what share a dropout behind it drops); ("", 0) where they are none."""
    kinds, dropout = [], 0.0
    for module in modules:
        share = _dropped(module)
        if share is None:
            kind = _kind(module)
            # Behind a dropout nothing follows.
            kinds += [kind if not dropout else "other"] if kind else []
        elif share:
            kinds += ["other"] if dropout or not kinds else []
            dropout = share
    if kinds == ["block_norm", "hard_swish"]:
        return NORMED, dropout
    return (kinds[0], dropout) if len(kinds) == 1 and kinds[0] not in ("block_norm", "other") else ("", 0.0)


def _dropped(module: nn.Module) -> Optional[float]:
    """The share that a dropout drops in training, which may be nothing; None for what is no dropout."""
    if type(module) is not nn.Dropout or "forward" in module.__dict__:
        return None
    share = float(module.p) if module.training else 0.0
    # All of it: there is no factor for what is left.
    return share if share < 1.0 else None


def _kind(module: nn.Module) -> str:
    """Nothing for a module that gives what it gets."""
    if not isinstance(module, nn.Module):
        return ACTIVATIONS.get(module, "other")
    if "forward" in module.__dict__:
        return "other"
    # Of the very class: a subclass may do anything.
    cls = type(module)
    if cls is nn.Identity:
        return ""
    if cls is nn.GELU:
        return "gelu_tanh" if getattr(module, "approximate") == "tanh" else "gelu"
    if cls in _ACTIVATIONS:
        return _ACTIVATIONS[cls]
    said: Any = getattr(module, "loka_op", None) or {}
    if said.get("op") == "hard_swish":
        return "hard_swish"
    if said.get("op") == "block_norm" and said["block"] == BLOCK and abs(said["eps"] / EPS - 1) < 1e-3:
        return "block_norm"
    return "other"


def _now(modules: Sequence[nn.Module], behind: Sequence[nn.Module], input: torch.Tensor) -> Tuple[str, float, Optional[Scale]]:
    """(tail, dropout, scale of the codes that it gives what is `behind`, if any) with which a linear runs in this call, the modules
    of its tail and itself as one; no tail where each runs for itself."""
    linear: Any = modules[0]
    apart: Tuple[str, float, Optional[Scale]] = ("", 0.0, None)
    if why_apart(modules) or not (_fits(linear, input) and _is_settled(linear)):
        return apart
    tail, dropout = tail_of(modules[1:])
    if behind and not why_not_given(linear, behind[0]) and _is_settled(behind[0]):
        reader: Any = behind[0]
        scale: Optional[Scale] = reader._loka_scales[0]
        if scale is not None and scale.scale.device == input.device:
            return tail, dropout, scale
    # In a loop of plain calls a norm by plain operations is slower than the module's own kernel.
    is_worth = tail != NORMED or torch.compiler.is_compiling()
    return (tail, dropout, None) if is_worth else apart


def _fits(linear: nn.Linear, input: torch.Tensor) -> bool:
    """Whether GEMMs of this call read codes of BF16 turned."""
    rows, device = 1, input.device.type
    for size in input.shape[:-1]:
        rows *= size
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else linear.weight.dtype
    return rows > 0 and rows % HANDED_ROWS == 0 and dtype == torch.bfloat16


def _is_settled(module: nn.Module) -> bool:
    """Whether it trains, all its scales are known, and nobody looks at what it reads in this step."""
    linear: Any = module
    if not (linear.training and linear._loka_options.settled and linear.weight.requires_grad):
        return False
    tap, watch = linear._loka_tap, linear._loka_watch
    return (tap is None or not tap.switch.active) and (watch is None or not watch.switch.active)


def why_apart(modules: Sequence[nn.Module]) -> str:
    """Why a linear and the modules of its tail each run for themselves, whatever the step; nothing where they run as one."""
    kernels = kernels_of(modules[0])
    if kernels is None or not _may_join(kernels):
        return "its backward runs by another kernel now"
    if not tail_of(modules[1:])[0]:
        return "what follows it was changed"
    for module in modules:
        if _is_seen(module):
            return _hooked(module)
    if (
        of_all._global_forward_pre_hooks or of_all._global_forward_hooks
        or of_all._global_backward_hooks or of_all._global_backward_pre_hooks
    ):  # fmt: skip
        return "hooks of all modules see what is in between"
    return ""


def why_not_given(linear: nn.Module, reader: nn.Module) -> str:
    """Why a linear that runs as one with its tail gives the module behind it no codes, whatever the step."""
    here, there = kernels_of(linear), kernels_of(reader)
    if here is None or there is None or not _may_give(here, there):
        return "who reads them runs by another kernel now"
    return _hooked(reader) if _is_seen(reader) else ""


def _hooked(module: nn.Module) -> str:
    kind = getattr(type(module), "_loka_base", type(module)).__name__
    return f"{kind} has hooks or is compiled by itself"


def _may_join(kernels: Sequence[str]) -> bool:
    return kernels[0] != KERNEL and {kernels[1], kernels[2]} <= DELAYED


def _may_give(here: Sequence[str], there: Sequence[str]) -> bool:
    return _may_join(here) and {there[0], there[2]} <= DELAYED


def straight_of(model: nn.Module) -> Dict[str, Tuple[Step, ...]]:
    """The modules with linears somewhere within whose forward is straight, by name."""
    found = {}
    for name, module in unwrapped(model).named_modules():
        has_linears = any(isinstance(part, nn.Linear) for part in module.modules())
        if has_linears and not isinstance(module, (nn.Linear, nn.Sequential)):
            steps = steps_of(module)
            if steps is not None:
                found[name] = steps
    return found


def links_of(
    model: nn.Module, planned: Mapping[str, Optional[Kernels]], emulate: bool, straight: Mapping[str, Tuple[Step, ...]]
) -> Dict[str, Dict[int, int]]:
    """The modules, by name, in which linears that have such kernels stand so. Tails whose kernels give something else on the model's GPU
    than plain operations do are left out, with a warning."""
    root = unwrapped(model)
    sites = {id(module): site for site, module in linears(model)}
    kernels = {key: planned.get(site) for key, site in sites.items()}
    steps = {id(root.get_submodule(name)): of_one for name, of_one in straight.items()}
    found: Dict[str, Dict[int, int]] = {}
    covered: Dict[str, List[Tuple[int, int]]] = {}
    # What is within first: who has no more than that stays as it is.
    for name, parent in reversed(list(root.named_modules())):
        if not _is_plain(parent, steps):
            continue
        modules, links = _flat(parent, steps), {}
        for at, module in enumerate(modules):
            of_one = kernels.get(id(module))
            if of_one is None or not _may_join(of_one):
                continue
            next_linear = next((to for to in range(at + 1, len(modules)) if isinstance(modules[to], nn.Linear)), len(modules))
            ends = [to for to in range(at + 2, next_linear + 1) if tail_of(modules[at + 1 : to])[0]]
            if ends and (emulate or _is_sound(tail_of(modules[at + 1 : ends[-1]])[0], module)):
                links[at] = ends[-1]
        pairs = [(id(modules[at]), _reader(modules, to, kernels)) for at, to in links.items()]
        within = [pair for other, of_one in covered.items() if other.startswith(f"{name}." if name else "") for pair in of_one]
        if not set(pairs) <= set(within):
            found[name], covered[name] = links, pairs
    return found


def _reader(modules: Sequence[nn.Module], to: int, kernels: Mapping[int, Optional[Kernels]]) -> int:
    """id of the linear of a plan at that place; 0 where there is none."""
    return id(modules[to]) if to < len(modules) and kernels.get(id(modules[to])) is not None else 0


def _is_sound(tail: str, linear: nn.Module) -> bool:
    device = next(linear.parameters()).device
    try:
        why_not = "" if sound(tail, device) else "they give something else than the steps apart"
    except Exception as error:
        why_not = f"{type(error).__name__}: {error}"
    if why_not:
        warnings.warn(
            f"LoKA's kernels for {tail} are not used on {device}, each step runs for itself: {one_line(why_not, limit=200)}", stacklevel=4
        )
    return not why_not


def readers(
    model: nn.Module, links: Mapping[str, Links], planned: Mapping[str, Optional[Kernels]], straight: Mapping[str, Tuple[Step, ...]]
) -> Dict[str, str]:
    """Site that gives codes -> site that gets them."""
    root, found = unwrapped(model), {}
    sites = {id(module): site for site, module in linears(model)}
    steps = {id(root.get_submodule(name)): of_one for name, of_one in straight.items()}
    for name, of_one in links.items():
        modules = _flat(root.get_submodule(name), steps)
        for at, to in of_one.items():
            site, reader = sites[id(modules[at])], sites.get(id(modules[to])) if to < len(modules) else None
            here, there = planned.get(site), planned.get(reader or "")
            if reader is not None and here and there and _may_give(here, there):
                found[site] = reader
    return found


def _flat(sequence: nn.Module, straight: Straight = {}) -> List[Any]:
    """What runs in it, in order, one that stands there twice too; of an nn.Sequential within it, what runs in that."""
    modules: List[Any] = []
    for part in _steps(sequence, straight):
        modules += _flat(part, straight) if _is_plain(part, straight) and not _is_seen(part) else [part]
    return modules


def _steps(module: nn.Module, straight: Straight) -> Iterable[Any]:
    steps = getattr(module, "_loka_steps", None) or straight.get(id(module))
    if steps is None:
        return [part for part in module._modules.values() if part is not None]
    return [getattr(module, step) if isinstance(step, str) else step for step in steps]


def _is_plain(module: Any, straight: Straight) -> bool:
    if not isinstance(module, nn.Module) or "forward" in module.__dict__:
        return False
    if getattr(module, "_loka_steps", None) is not None or id(module) in straight:
        return True
    return isinstance(module, nn.Sequential) and type(module).forward in (nn.Sequential.forward, Handing.forward)


def _is_seen(module: Any) -> bool:
    """Whether a call of it is more than its forward."""
    if not isinstance(module, nn.Module):
        return False
    hooks = module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks) or module._compiled_call_impl is not None


def put(model: nn.Module, links: Mapping[str, Links], straight: Mapping[str, Tuple[Step, ...]]) -> None:
    """From now on these modules hand codes on."""
    root = unwrapped(model)
    for name, of_one in links.items():
        module = root.get_submodule(name)
        module.__class__ = _class_of(type(module))
        module.__dict__["_loka_links"] = dict(of_one)
        module.__dict__["_loka_parts"] = len(_flat(module, {id(root.get_submodule(each)): steps for each, steps in straight.items()}))
        for within, steps in straight.items():
            if within == name or within.startswith(f"{name}." if name else ""):
                root.get_submodule(within).__dict__["_loka_steps"] = steps


def undo(model: nn.Module) -> None:
    """All modules are what they were."""
    for module in unwrapped(model).modules():
        for name in ("_loka_links", "_loka_parts", "_loka_steps"):
            module.__dict__.pop(name, None)
        cls = type(module)
        if issubclass(cls, Handing) and _CLASSES.get(cls._loka_base) is cls:
            module.__class__ = cls._loka_base


def held_apart(model: nn.Module) -> Dict[str, str]:
    """Site that would run as one with its tail, or give codes -> why it does not as the model stands."""
    sites, reasons = {id(module): site for site, module in linears(model)}, {}
    for module in unwrapped(model).modules():
        links = module.__dict__.get("_loka_links", {})
        modules = _flat(module) if links else []
        for at, to in links.items():
            if len(modules) != module.__dict__.get("_loka_parts") or id(modules[at]) not in sites:
                continue
            reason = why_apart(modules[at:to])
            if not reason and to < len(modules) and _is_seen(modules[to]) and kernels_of(modules[to]) is not None:
                reason = _hooked(modules[to])
            if reason:
                reasons[sites[id(modules[at])]] = reason
    return reasons


__all__ = ["Handing", "held_apart", "links_of", "put", "readers", "straight_of", "tail_of", "undo"]
