"""Takes a plan, a model and its functional linears, gives which linear each site is, and everything that does not fit.

A name that matches nothing must never pass in silence: the model would train in high precision and nobody know.
"""

import difflib
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from torch import nn
from torch.nn.parameter import is_lazy

from ..names import clean, linears, unwrapped
from .document import Plan, Site
from .error import one_line
from .functional import FunctionalLinear, Linear, unnamed
from .linear import why_not_routable
from .parameters import found, is_projection, is_read
from .parameters import why_not as why_not_product
from .precision import runs_fp8

NUM_NEAREST = 10
"""Missing sites that get their nearest names: comparing all with all would take minutes on a large model."""

READ = "a parameter that a function reads: no kernel can be put under that"


@dataclass(frozen=True)
class Match:
    """`pairs`: the sites that fit, with their linears. The rest is one line of text for each thing that does not:
    sites that the model lacks, linears that the plan lacks, and by site those of another shape and those that no
    kernel can be put under."""

    pairs: Tuple[Tuple[Site, Linear], ...]
    missing: Tuple[str, ...]
    extra: Tuple[str, ...]
    other_shape: Dict[str, str]
    unroutable: Dict[str, str]
    hint: Tuple[str, ...] = ()
    read: Tuple[str, ...] = ()
    """Sites that are parameters which functions read."""
    unseen: Tuple[str, ...] = ()
    """Linears that the plan lacks though all of it fits, and the model is as large as the one that was recorded: they did not run
    there, or no gradient came by them. They are no problem."""

    @property
    def problems(self) -> Tuple[str, ...]:
        unfit = {**self.other_shape, **self.unroutable}
        return self.missing + self.hint + self.extra + tuple(f"{_quoted(site)} {why}" for site, why in unfit.items())

    @property
    def summary(self) -> str:
        """The counts of what does not fit."""
        counts = (
            (len(self.missing), "not in the model"),
            (len(self.extra), "not in the plan"),
            (len(self.other_shape), "of another shape"),
            (len(self.unroutable), "that cannot be replaced"),
        )
        return ", ".join(f"{count} {what}" for count, what in counts if count)


def match(plan: Plan, model: nn.Module, functional: Mapping[str, FunctionalLinear]) -> Match:
    """Compares by name, and by shape where the plan carries shapes. Changes nothing."""
    modules: Dict[str, Linear] = {**dict(linears(model)), **functional}
    for site in plan.sites:
        # In high precision what a function reads is left as it is.
        product = found(site, model) if site.site not in modules and runs_fp8(site.kernels) else None
        if product is not None:
            modules[site.site] = product
    planned = {site.site for site in plan.sites}
    unplanned = tuple(name for name, module in modules.items() if name not in planned and not is_projection(module))
    names = [site.site for site in plan.sites if site.site not in modules]
    names += [name for name in plan.mods if name not in modules and name not in planned]
    pairs: List[Tuple[Site, Linear]] = []
    shapes: Dict[str, str] = {}
    unroutable: Dict[str, str] = {}
    for site in plan.sites:
        module = modules.get(site.site)
        if module is None:
            continue
        reason = why_not(module, model)
        if not _fits(site, module):
            shapes[site.site] = _other_shape(site, module)
        elif reason is not None and runs_fp8(site.kernels):
            unroutable[site.site] = f"cannot be replaced: {reason}"
        else:
            pairs.append((site, module))
    unrouted, hint = unnamed(names, model)
    kernels = {site.site: site.kernels for site in plan.sites}
    read = {name for name in names if name in kernels and name not in unrouted and _is_parameter(name, model)}
    # In high precision what a function reads is left as it is; a kernel cannot be put under it.
    names = [name for name in names if name not in read or runs_fp8(kernels[name])]
    if not names:
        # Where what the model calls cannot be read, nothing is left that a reader would have to be told of.
        hint = ()
    unrouted.update({} if hint else {name: READ for name in read})
    is_whole = bool(pairs) and not (names or shapes or unroutable) and plan.model.get("parameters") == num_parameters(model)
    unseen = tuple(name for name in unplanned if is_whole and not isinstance(modules[name], FunctionalLinear))
    unplanned = tuple(name for name in unplanned if name not in unseen)
    return Match(
        pairs=tuple(pairs),
        missing=tuple(_missing(names, unplanned, list(modules), unrouted)),
        extra=tuple(f"{_quoted(name)} ({_shape(modules[name])}) is not in the plan" for name in unplanned),
        other_shape=shapes,
        unroutable=unroutable,
        hint=_hint(names, list(modules)) + hint,
        read=tuple(sorted(read)),
        unseen=unseen,
    )


def _is_parameter(site: str, model: nn.Module) -> bool:
    """Whether a site is named after a parameter of the model, or a part of one: `experts[3]`."""
    return site.partition("[")[0] in {clean(name) for name, _ in unwrapped(model).named_parameters()}


def why_not(module: Linear, model: nn.Module) -> Optional[str]:
    """Why kernels cannot be put under this linear; None where they can."""
    if isinstance(module, FunctionalLinear):
        return None
    return why_not_product(module, model) if is_read(module) else why_not_routable(module)


_OF_ENCODER_LAYER = ("linear1", "linear2", "self_attn.in_proj_weight", "self_attn.out_proj")


def bypassed(model: nn.Module) -> Set[str]:
    """Sites that nn.TransformerEncoderLayer's fused path leaves out in evaluation without gradients."""
    modules = unwrapped(model).named_modules()
    layers = [name for name, module in modules if isinstance(module, nn.TransformerEncoderLayer)]
    return {clean(f"{layer}.{each}" if layer else each) for layer in layers for each in _OF_ENCODER_LAYER}


def about_model(plan: Plan, model: nn.Module) -> str:
    """Whose plan it is and whose model, for the reader of a mismatch."""
    here = num_parameters(model)
    there = plan.model.get("parameters", 0)
    name = one_line(plan.model["name"], limit=60)
    as_many = "as many" if here == there else f"{here:,}"
    return f"the plan was made for '{name}' of {there:,} parameters, this model has {as_many}"


def num_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in unwrapped(model).parameters() if not is_lazy(parameter))


def _fits(site: Site, module: Linear) -> bool:
    asked = (site.k, site.n)
    return all(size is None or size == has for size, has in zip(asked, (module.in_features, module.out_features)))


def _other_shape(site: Site, module: Linear) -> str:
    planned = " -> ".join("?" if size is None else str(size) for size in (site.k, site.n))
    return f"is {planned} in the plan, {_shape(module)} in the model"


def _shape(module: Linear) -> str:
    return f"{module.in_features} -> {module.out_features}"


def _quoted(name: str) -> str:
    return f"'{one_line(name)}'"


def _missing(
    names: Sequence[str], unplanned: Sequence[str], known: List[str], unrouted: Mapping[str, str]
) -> List[str]:
    """A name that is off by a character is most likely one of those that the plan lacks. `unrouted`: name -> what it is
    when it is no module."""
    lines = []
    for index, name in enumerate(names):
        if name in unrouted:
            lines.append(f"{_quoted(name)} is not a module of the model but {unrouted[name]}")
            continue
        near = difflib.get_close_matches(name, unplanned or known, n=2) if index < NUM_NEAREST else []
        hint = f" (nearest: {', '.join(_quoted(other) for other in near)})" if near else ""
        lines.append(f"{_quoted(name)} is not in the model{hint}")
    return lines


def _hint(names: Sequence[str], known: Sequence[str]) -> Tuple[str, ...]:
    """For when the plan was made from a model around this one, or inside it."""
    if not names or not known:
        return ()
    there: Dict[str, None] = dict.fromkeys(known)
    for part, what in ((_head(names), "more"), (_head(known), "less")):
        moved = (name[len(part) :] if what == "more" else part + name for name in names)
        if part and all(name in there for name in moved):
            return (f"the plan's names have '{one_line(part)}' {what} in front than the model's",)
    return ()


def _head(names: Sequence[str]) -> str:
    """The first component of the names where all share one, with its dot."""
    head, dot, _ = names[0].partition(".")
    return head + dot if dot and all(name.startswith(head + dot) for name in names) else ""


__all__ = ["Match", "about_model", "bypassed", "match"]
