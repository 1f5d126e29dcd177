"""Takes the nn.Sequentials of a model, and the modules with a forward or another method that is as straight (`straight`), in
which a norm or an activation follows a linear whose backward goes by scales that are known beforehand; makes each one that
in training runs the two as one: then the backward of bias, norm, activation, dropout and the casts of dgrad and wgrad are
one pass, or two of a norm over whole rows. Where the next linear, right behind them, goes by such scales too, it gets FP8
codes, and their forward and its casts are one pass as well. And back.

Nobody but the nn.Sequential sees what lies between its modules while it runs them, whoever calls it and however; where a
forward does anything else, or somebody slices, they run for themselves. So they do while one of them has a hook, in steps
that are checked or recorded, and wherever a scale is not known yet. All modules stay the same objects.
"""

import warnings
from functools import wraps
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ..kernels import BLOCK as KERNEL
from ..kernels import HANDED_ROWS, NORMED, TAILS, Norm, Scale, is_row_normed, norm_eps, row_normed, sound
from ..mods.norm import BLOCK, EPS
from ..names import linears, unwrapped
from .error import one_line
from .linear import DELAYED, Kernels, kernels_of
from .straight import ACTIVATIONS, Step, methods_of, steps_of
from .swapped import Over, hooks_of_all, put_over, take_off

Links = Mapping[int, int]
"""Place of a linear in its nn.Sequential, those within it taken apart -> the place behind its activation."""

Place = Tuple[str, str]
"""A module by name, and the method of it that runs such a row."""

Straight = Mapping[int, Mapping[str, Tuple[Step, ...]]]
"""id of a module -> name of its method, "forward" of one that is no nn.Sequential -> what that calls, one behind the other."""

_ACTIVATIONS = {nn.ReLU: "relu", nn.SiLU: "swish", nn.Hardswish: "hard_swish"}
_NORMS = {nn.LayerNorm: "layer_norm", nn.RMSNorm: "rms_norm"}
_ALONE = frozenset(TAILS) - {NORMED}
"""Tails that are one activation."""


class Handing(Over):
    """A module with rows that in training run linears and what follows them as one where they can: an nn.Sequential's forward, or
    straight methods."""

    _loka_links: Mapping[str, Links] = {}
    """By method."""
    _loka_parts: Mapping[str, int] = {}
    """How many there were when its links were made."""

    @staticmethod
    def _loka_method(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(own)
        def method(self: "Handing", *args: Any, **kwargs: Any) -> Any:
            run = _row(self, name, args, kwargs)
            return own(self, *args, **kwargs) if run is None else _run(self, name, *run)

        return method


def _row(module: Handing, method: str, args: Tuple[Any, ...], kwargs: Mapping[str, Any]) -> Optional[Tuple[List[Any], torch.Tensor]]:
    """The modules that it runs and what goes in; None where it is to run as it stands."""
    links = module._loka_links.get(method)
    # A tracer's stand-in for a tensor has no rows to ask for.
    fits = links and module.training and len(args) == 1 and not kwargs and isinstance(args[0], torch.Tensor)
    if not fits or not torch.is_grad_enabled():
        return None
    modules: List[Any] = _flat(module, method)
    # Else one within is hooked, or compiled by itself: each by itself has links of its own.
    return (modules, args[0]) if len(modules) == module._loka_parts[method] else None


def _run(module: Handing, method: str, modules: List[Any], input: Any) -> Any:
    links = module._loka_links[method]
    at, takes = 0, False
    while at < len(modules):
        part, to = modules[at], links.get(at, 0)
        tail, dropout, gives, norm = _APART if not to else _now(modules[at:to], modules[to : to + 1], input)
        if not (takes or tail):
            input = part(input)
            at += 1
            continue
        # Not as a call: it has no hook.
        wide = gives is None and tail.startswith("layer_norm") and _has_norms_wide(input)
        input = part._loka_product(input, part.bias, part._loka_kernels, takes, gives, tail, dropout, norm, wide)
        takes, at = gives is not None, to if tail else at + 1
    return input


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
    tail = row_normed(*kinds) if len(kinds) == 2 else kinds[0] if len(kinds) == 1 else ""
    return (tail, dropout) if tail in _ALONE or is_row_normed(tail) else ("", 0.0)


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
    if cls in _NORMS:
        # Over more than the last dimension it takes rows together.
        return _NORMS[cls] if len(getattr(module, "normalized_shape")) == 1 else "other"
    said: Any = getattr(module, "loka_op", None) or {}
    if said.get("op") == "hard_swish":
        return "hard_swish"
    if said.get("op") == "block_norm" and said["block"] == BLOCK and abs(said["eps"] / EPS - 1) < 1e-3:
        return "block_norm"
    return "other"


_Now = Tuple[str, float, Optional[Scale], Optional[Norm]]
_APART: _Now = ("", 0.0, None, None)


def _now(modules: Sequence[nn.Module], behind: Sequence[nn.Module], input: torch.Tensor) -> _Now:
    """(tail, dropout, scale of the codes that it gives what is `behind`, if any, norm over rows) with which a linear runs in this call, the
    modules of its tail and itself as one; no tail where each runs for itself."""
    linear: Any = modules[0]
    tail, dropout = tail_of(modules[1:])
    if not tail or why_apart(modules) or not (_fits(linear, input) and _is_settled(linear)):
        return _APART
    norm: Optional[Norm] = None
    if is_row_normed(tail):
        norm = _norm_of(modules, behind)
        if norm is None:
            return _APART
    if behind and not why_not_given(linear, behind[0]) and _is_settled(behind[0]):
        reader: Any = behind[0]
        scale: Optional[Scale] = reader._loka_scales[0]
        if scale is not None and scale.scale.device == input.device:
            return tail, dropout, scale, norm
    # In a loop of plain calls a norm by plain operations is slower than the module's own kernel.
    is_worth = (tail != NORMED and norm is None) or torch.compiler.is_compiling()
    return (tail, dropout, None, norm) if is_worth else _APART


def _norm_of(modules: Sequence[nn.Module], behind: Sequence[nn.Module]) -> Optional[Norm]:
    """The norm over rows that follows a linear; None where it does not fit."""
    norm: Any = next(module for module in modules[1:] if type(module) in _NORMS)
    if type(norm) is nn.RMSNorm and not (behind and isinstance(behind[0], nn.Linear) and not _is_seen(behind[0])):
        # Of BF16 and FP32 parameters versions of PyTorch make this or that: what reads it has to be something that does not mind.
        return None
    width = getattr(modules[0], "out_features")
    weight, bias = norm.weight, getattr(norm, "bias", None)
    plain = all(part is None or (type(part) in (nn.Parameter, torch.Tensor) and part.is_contiguous()) for part in (weight, bias))
    if not plain or norm.normalized_shape[0] != width or (weight is None and bias is not None):
        return None
    return Norm(weight, bias, norm_eps(norm.eps))


def _has_norms_wide(input: torch.Tensor) -> bool:
    """Whether a layer norm gives FP32 there, whatever it gets: by autocast on a GPU."""
    return input.device.type == "cuda" and torch.is_autocast_enabled("cuda")


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
    """Why a linear and the modules of its tail each run for themselves, whatever the step, as long as they are one; nothing where they
    run together."""
    kernels = kernels_of(modules[0])
    if kernels is None or not _may_join(kernels):
        return "its backward runs by another kernel now"
    for module in modules:
        if _is_seen(module):
            return _hooked(module)
    return "hooks of all modules see what is in between" if hooks_of_all() else ""


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


def straight_of(model: nn.Module) -> Straight:
    """The methods of modules with linears somewhere within that are straight."""
    found: Dict[int, Dict[str, Tuple[Step, ...]]] = {}
    for module in unwrapped(model).modules():
        has_linears = any(isinstance(part, nn.Linear) for part in module.modules())
        if has_linears and not isinstance(module, (nn.Linear, nn.Sequential)):
            for method in ("forward", *methods_of(type(module))):
                steps = steps_of(module, method)
                if steps is not None:
                    found.setdefault(id(module), {})[method] = steps
    return found


def links_of(
    model: nn.Module, planned: Mapping[str, Optional[Kernels]], emulate: bool, straight: Straight
) -> Dict[Place, Dict[int, int]]:
    """The modules and their methods in which linears that have such kernels stand so. Tails whose kernels give something else on the model's GPU
    than plain operations do are left out, with a warning."""
    sites = {id(module): site for site, module in linears(model)}
    kernels = {key: planned.get(site) for key, site in sites.items()}
    found: Dict[Place, Dict[int, int]] = {}
    covered: Dict[str, List[Tuple[int, int]]] = {}
    # What is within first: who has no more than that stays as it is.
    rows = [(name, method, parent) for name, parent in unwrapped(model).named_modules() for method in _methods(parent, straight)]
    for name, method, parent in reversed(rows):
        modules, links = _flat(parent, method, straight), {}
        for at, module in enumerate(modules):
            of_one = kernels.get(id(module))
            if of_one is None or not _may_join(of_one):
                continue
            next_linear = next((to for to in range(at + 1, len(modules)) if isinstance(modules[to], nn.Linear)), len(modules))
            ends = [to for to in range(at + 2, next_linear + 1) if tail_of(modules[at + 1 : to])[0]]
            tail = tail_of(modules[at + 1 : ends[-1]])[0] if ends else ""
            if is_row_normed(tail) and _norm_of(modules[at : ends[-1]], modules[ends[-1] : ends[-1] + 1]) is None:
                continue
            if ends and (emulate or _is_sound(tail, module)):
                links[at] = ends[-1]
        pairs = [(id(modules[at]), _reader(modules, to, kernels)) for at, to in links.items()]
        within = [pair for other, of_one in covered.items() if other.startswith(f"{name}." if name else "") for pair in of_one]
        if not set(pairs) <= set(within):
            found[name, method] = links
            covered.setdefault(name, []).extend(pairs)
    return found


def _methods(module: nn.Module, straight: Straight) -> List[str]:
    """Those that run a row."""
    named = [method for method in straight.get(id(module), ()) if method != "forward"]
    return ["forward", *named] if _is_plain(module, straight) else named


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
    model: nn.Module, links: Mapping[Place, Links], planned: Mapping[str, Optional[Kernels]], straight: Straight
) -> Dict[str, str]:
    """Site that gives codes -> site that gets them."""
    sites, found = {id(module): site for site, module in linears(model)}, {}
    for (name, method), of_one in links.items():
        modules = _flat(unwrapped(model).get_submodule(name), method, straight)
        for at, to in of_one.items():
            site, reader = sites[id(modules[at])], sites.get(id(modules[to])) if to < len(modules) else None
            here, there = planned.get(site), planned.get(reader or "")
            if reader is not None and here and there and _may_give(here, there):
                found[site] = reader
    return found


def _flat(module: nn.Module, method: str = "forward", straight: Straight = {}) -> List[Any]:
    """What runs in it, in order, one that stands there twice too; of an nn.Sequential within it, what runs in that."""
    modules: List[Any] = []
    for part in _steps(module, method, straight):
        modules += _flat(part, "forward", straight) if _is_plain(part, straight) and not _is_seen(part) else [part]
    return modules


def _steps(module: nn.Module, method: str, straight: Straight) -> Iterable[Any]:
    steps = _straight(module, straight).get(method)
    if steps is None:
        return [part for part in module._modules.values() if part is not None]
    return [getattr(module, step) if isinstance(step, str) else step for step in steps]


def _straight(module: nn.Module, straight: Straight) -> Mapping[str, Tuple[Step, ...]]:
    """Its straight methods, as it has them once a plan is applied, or as they were found."""
    return getattr(module, "_loka_steps", None) or straight.get(id(module), {})


def _is_plain(module: Any, straight: Straight) -> bool:
    """Whether a call of it runs a row."""
    if not isinstance(module, nn.Module) or "forward" in module.__dict__:
        return False
    if "forward" in _straight(module, straight):
        return True
    own = type(module)._loka_base if isinstance(module, Handing) else type(module)
    return isinstance(module, nn.Sequential) and own.forward is nn.Sequential.forward


def _is_seen(module: Any) -> bool:
    """Whether a call of it is more than its forward."""
    if not isinstance(module, nn.Module):
        return False
    hooks = module._forward_pre_hooks or module._forward_hooks or module._backward_hooks or module._backward_pre_hooks
    return bool(hooks) or module._compiled_call_impl is not None


def put(model: nn.Module, links: Mapping[Place, Links], straight: Straight) -> None:
    """From now on these modules hand codes on."""
    rows: Dict[str, Dict[str, Links]] = {}
    for (name, method), of_one in links.items():
        rows.setdefault(name, {})[method] = dict(of_one)
    for name, of_methods in rows.items():
        module = unwrapped(model).get_submodule(name)
        put_over(module, Handing, tuple(sorted(of_methods)))
        parts = {method: len(_flat(module, method, straight)) for method in of_methods}
        module.__dict__.update(_loka_links=of_methods, _loka_parts=parts)
        for within in module.modules():
            if id(within) in straight:
                within.__dict__["_loka_steps"] = dict(straight[id(within)])


def undo(model: nn.Module) -> None:
    """All modules are what they were."""
    for module in unwrapped(model).modules():
        for name in ("_loka_links", "_loka_parts", "_loka_steps"):
            module.__dict__.pop(name, None)
        take_off(module, Handing)


def held_apart(model: nn.Module) -> Dict[str, str]:
    """Site that would run as one with its tail, or give codes -> why it does not as the model stands."""
    sites, reasons = {id(module): site for site, module in linears(model)}, {}
    for module in unwrapped(model).modules():
        for method, links in module.__dict__.get("_loka_links", {}).items():
            modules = _flat(module, method)
            for at, to in links.items():
                if len(modules) != module.__dict__["_loka_parts"][method] or id(modules[at]) not in sites:
                    continue
                reason = why_apart(modules[at:to]) or ("" if tail_of(modules[at + 1 : to])[0] else "what follows it was changed")
                if not reason and to < len(modules) and _is_seen(modules[to]) and kernels_of(modules[to]) is not None:
                    reason = _hooked(modules[to])
                if reason:
                    reasons[sites[id(modules[at])]] = reason
    return reasons


__all__ = ["Handing", "held_apart", "links_of", "put", "readers", "straight_of", "tail_of", "undo"]
