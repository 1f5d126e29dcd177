"""Takes the nn.Sequentials of a model, and the modules with a forward or another method that is as straight (`straight`), in
which a norm or an activation follows a linear whose backward goes by scales that are known beforehand; makes each one that
in training runs the two as one: then the backward of bias, norm, activation, dropout and the casts of dgrad and wgrad are
one pass, or two of a norm over whole rows. Where the next linear, right behind them, goes by such scales too, it gets FP8
codes, and their forward and its casts are one pass as well. Likewise where two linears read the same and what follows them is multiplied:
then what they read is cast once. And back.

Nobody but the nn.Sequential sees what lies between its modules while it runs them, whoever calls it and however; where a
forward does anything else, or somebody slices, they run for themselves. So they do while one of them has a hook, in steps
that are checked or recorded, and wherever a scale is not known yet. All modules stay the same objects.
"""

import warnings
from functools import partial, wraps
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from ..kernels import BLOCK as KERNEL
from ..kernels import HANDED_ROWS, NORMED, Branch, Norm, Scale, gate_sound, gated_linear, is_row_normed, norm_eps, sound
from ..names import linears, unwrapped
from .error import one_line
from .linear import DELAYED, Kernels, is_transformed, kernels_of
from .straight import Call, Fork, Step, methods_of, steps_of
from .swapped import Over, hooks_of_all, put_over, take_off
from .tails import NORMS, Gate, gate_of, tail_of

Links = Mapping[int, int]
"""Place of a linear, or of a fork of two, in its nn.Sequential, those within it taken apart -> the place behind what follows it."""

Place = Tuple[str, str]
"""A module by name, and the method of it that runs such a row."""

Straight = Mapping[int, Mapping[str, Tuple[Step, ...]]]
"""id of a module -> name of its method, "forward" of one that is no nn.Sequential -> what that calls, one behind the other."""


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
    if not fits or not torch.is_grad_enabled() or is_transformed():
        return None
    modules: List[Any] = _flat(module, method)
    # Else one within is hooked, or compiled by itself: each by itself has links of its own.
    return (modules, args[0]) if len(modules) == module._loka_parts[method] else None


def _run(module: Handing, method: str, modules: List[Any], input: Any) -> Any:
    links = module._loka_links[method]
    at, takes = 0, False
    while at < len(modules):
        part, to = modules[at], links.get(at, 0)
        if isinstance(part, Fork):
            gate, gives = _gate_now(part, modules[at + 1 : to], modules[to : to + 1], input) if to else (None, None)
            input = _apart(part, input) if gate is None else _gated(part, input, gate, gives)
            takes, at = gives is not None, at + 1 if gate is None else to
            continue
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


def _apart(fork: Fork, input: Any) -> Any:
    """Each of its modules for itself."""
    first = second = input
    for part in fork.first:
        first = part(first)
    for part in fork.second:
        second = part(second)
    return first * second


def _gated(fork: Fork, input: torch.Tensor, gate: Gate, gives: Optional[Scale]) -> torch.Tensor:
    one, other = fork.first[0], fork.second[0]
    first = Branch(one.weight, one.bias, one._loka_kernels, one._loka_scales, one._loka_codes, gate.first, one.columns)
    second = Branch(other.weight, other.bias, other._loka_kernels, other._loka_scales, other._loka_codes, gate.second, other.columns)
    return gated_linear(input, first, second, one._loka_options.emulate, one._loka_options.stretch, gate.dropout, gives)


def _gate_now(fork: Fork, modules: Sequence[Any], behind: Sequence[Any], input: torch.Tensor) -> Tuple[Optional[Gate], Optional[Scale]]:
    """How a fork and the modules behind it run as one in this call, and the scale of the codes that it gives what is `behind`, if any;
    nothing where each runs for itself."""
    gate = gate_of(fork, modules)
    if gate is None or why_apart([fork, *modules]) or not all(_fits(one, input) and _is_settled(one) for one in _linears_of(fork)):
        return None, None
    if any(scale.scale.device != input.device for one in _linears_of(fork) for scale in one._loka_scales):
        return None, None
    return gate, _given(fork, behind, input)


def _given(part: Any, behind: Sequence[Any], input: torch.Tensor) -> Optional[Scale]:
    """The scale of the codes that a linear, or a fork, gives what is behind it in this call; None where it gives none."""
    if not behind or why_not_given(part, behind[0]) or not _is_settled(behind[0]):
        return None
    scale: Optional[Scale] = behind[0]._loka_scales[0]
    return scale if scale is not None and scale.scale.device == input.device else None


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
    scale = _given(linear, behind, input)
    if scale is not None:
        return tail, dropout, scale, norm
    # In a loop of plain calls a norm by plain operations is slower than the module's own kernel.
    is_worth = (tail != NORMED and norm is None) or torch.compiler.is_compiling()
    return (tail, dropout, None, norm) if is_worth else _APART


def _norm_of(modules: Sequence[nn.Module], behind: Sequence[nn.Module]) -> Optional[Norm]:
    """The norm over rows that follows a linear; None where it does not fit."""
    norm: Any = next(module for module in modules[1:] if type(module) in NORMS)
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


def _linears_of(part: Any) -> List[Any]:
    """The linears with which a row goes on at that part: itself, or both of a fork; none where it is something else."""
    found = [part.first[0], part.second[0]] if isinstance(part, Fork) else [part]
    return found if all(isinstance(module, nn.Linear) for module in found) else []


def why_apart(modules: Sequence[Any]) -> str:
    """Why a linear, or two, and the modules behind each run for themselves, whatever the step, as long as they are one; nothing where they
    run together."""
    first, linears = modules[0], _linears_of(modules[0])
    if not linears or not all(_may_join(kernels_of(linear), first) for linear in linears):
        return "its backward runs by another kernel now"
    for module in (*first.first, *first.second, *modules[1:]) if isinstance(first, Fork) else modules:
        if _is_seen(module):
            return _hooked(module)
    return "hooks of all modules see what is in between" if hooks_of_all() else ""


def why_not_given(part: Any, reader: Any) -> str:
    """Why a linear, or two, that run as one with what follows give the module behind that no codes, whatever the step."""
    here, there = kernels_of(_linears_of(part)[0]), kernels_of(reader)
    if here is None or there is None or not _may_give(here, there):
        return "who reads them runs by another kernel now"
    return _hooked(reader) if _is_seen(reader) else ""


def _hooked(module: nn.Module) -> str:
    kind = getattr(type(module), "_loka_base", type(module)).__name__
    return f"{kind} has hooks or is compiled by itself"


def _may_join(kernels: Optional[Sequence[str]], part: Any = None) -> bool:
    """Whether a linear with such kernels runs as one with what follows it, or follows a fork that it is of."""
    if kernels is None or (isinstance(part, Fork) and kernels[0].startswith("loka/")):
        # LoKA's own cast x for themselves, by a scale of their own, and count what is beyond it.
        return False
    return kernels[0] != KERNEL and {kernels[1], kernels[2]} <= DELAYED


def _is_ragged(part: Any) -> bool:
    """Whether what a linear, or a fork, gives is padded for FP8: tails go over what is there, and a fork over what it reads, too."""
    sizes = [size for one in _linears_of(part) for size in (one.out_features, *([one.in_features] if isinstance(part, Fork) else []))]
    return any(size % HANDED_ROWS for size in sizes)


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
            of_these = [kernels.get(id(linear)) for linear in _linears_of(module)]
            if not of_these or not all(_may_join(of_one, module) for of_one in of_these) or _is_ragged(module):
                continue
            next_linear = next((to for to in range(at + 1, len(modules)) if _linears_of(modules[to])), len(modules))
            ends = [to for to in range(at + 1, next_linear + 1) if _tail(modules[at:to])]
            tail = _tail(modules[at : ends[-1]]) if ends else ""
            if isinstance(tail, str) and is_row_normed(tail) and _norm_of(modules[at : ends[-1]], modules[ends[-1] : ends[-1] + 1]) is None:
                continue
            if ends and (emulate or _is_sound(tail, _linears_of(module)[0])):
                links[at] = ends[-1]
        pairs = [(id(_linears_of(modules[at])[0]), _reader(modules, to, kernels)) for at, to in links.items()]
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


def _tail(modules: Sequence[Any]) -> Union[str, Gate]:
    """The tail of a linear, or what a fork is; "" where what follows is none."""
    if not isinstance(modules[0], Fork):
        return tail_of(modules[1:])[0]
    return gate_of(modules[0], modules[1:]) or ""


def _is_sound(tail: Union[str, Gate], linear: nn.Module) -> bool:
    device = next(linear.parameters()).device
    try:
        good = sound(tail, device) if isinstance(tail, str) else gate_sound(tail.first, tail.second, device)
        why_not = "" if good else "they give something else than the steps apart"
    except Exception as error:
        why_not = f"{type(error).__name__}: {error}"
    if why_not:
        name = tail if isinstance(tail, str) else f"{tail.first} * {tail.second}"
        warnings.warn(
            f"LoKA's kernels for {name} are not used on {device}, each step runs for itself: {one_line(why_not, limit=200)}", stacklevel=4
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
            reader = sites.get(id(modules[to])) if to < len(modules) else None
            for linear in _linears_of(modules[at]):
                here, there = planned.get(sites[id(linear)]), planned.get(reader or "")
                if reader is not None and here and there and _may_give(here, there):
                    found[sites[id(linear)]] = reader
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
    of = partial(_called, module)
    return [Fork(tuple(map(of, step.first)), tuple(map(of, step.second))) if isinstance(step, Fork) else of(step) for step in steps]


def _called(module: nn.Module, call: Call) -> Any:
    return getattr(module, call) if isinstance(call, str) else call


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
                given = [sites.get(id(linear)) for linear in _linears_of(modules[at])] if at < len(modules) else []
                if len(modules) != module.__dict__["_loka_parts"][method] or not given or None in given:
                    continue
                reason = why_apart(modules[at:to]) or ("" if _tail(modules[at:to]) else "what follows it was changed")
                if not reason and to < len(modules) and _is_seen(modules[to]) and kernels_of(modules[to]) is not None:
                    reason = _hooked(modules[to])
                reasons.update({site: reason for site in given if site is not None and reason})
    return reasons


__all__ = ["Handing", "held_apart", "links_of", "put", "readers", "straight_of", "tail_of", "undo"]
