"""Takes a plan whose kernels were measured on a changed model, and a model: says what it lacks, or changes it.

The plan's errors hold for the model with its mods (no bias, BlockNorm, hard swish); on another nobody measured them.
"""

from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from torch import nn

from .. import graph, mods
from ..names import linears
from .document import Plan
from .error import PlanError, listed, one_line
from .functional import FunctionalLinear, Linear


def check_mods(plan: Plan, model: nn.Module, functional: Mapping[str, FunctionalLinear]) -> None:
    """Raises PlanError where the model certainly lacks a mod of the plan. Only what can be read without running the
    model is looked at: biases, and the operations that follow a linear, as far as they can be traced."""
    lacking = lacks(plan, model, functional)
    if lacking:
        cause = f"the plan was made for the model with mods, {len(lacking)} linears lack them"
        raise PlanError(listed(f'{cause} (mods="apply" applies them)', plan.path, lacking))


def apply_mods(plan: Plan, model: nn.Module, functional: Mapping[str, FunctionalLinear], strict: bool) -> List[str]:
    """Changes the model as the plan says; a line for each linear that lacks a mod all the same: what is no module, such
    as a functional swish, and what functional linears read and feed, is out of reach. It must be trained so: its weights
    were not made for this.

    Raises PlanError, with the model unchanged, where it cannot be changed, as when it is in DDP already; and where any
    linear lacks a mod and `strict`."""
    here = {name for name, _ in linears(model)}
    wanted = {site: names for site, names in plan.mods.items() if site in here}
    before = _parts(model)
    try:
        if wanted:
            mods.apply(model, wanted)
    except ValueError as error:
        raise PlanError(one_line(f"the plan's mods cannot be applied: {error}", limit=1000)) from error
    lacking = lacks(plan, model, functional)
    if lacking and strict:
        _put_back(before)
        cause = f'{len(lacking)} linears lack mods of the plan that mods="apply" cannot give them (strict=False goes on)'
        raise PlanError(listed(cause, plan.path, lacking))
    return lacking


_Parts = List[Tuple[nn.Module, Dict[str, Optional[nn.Module]], Dict[str, Optional[nn.Parameter]]]]
"""What every module holds, as mods may change it."""


def _parts(model: nn.Module) -> _Parts:
    return [(module, dict(module._modules), dict(module._parameters)) for module in model.modules()]


def _put_back(parts: _Parts) -> None:
    for module, modules, parameters in parts:
        # In place: torch.compile and others hold these very dicts.
        module._modules.clear()
        module._modules.update(modules)
        module._parameters.clear()
        module._parameters.update(parameters)


def lacks(plan: Plan, model: nn.Module, functional: Mapping[str, FunctionalLinear]) -> List[str]:
    """A line for each linear that certainly lacks a mod of the plan."""
    if not plan.mods:
        return []
    facts = graph.read(model)
    lines = []
    every: Dict[str, Linear] = {**dict(linears(model)), **functional}
    for site, module in every.items():
        wanted = plan.mods.get(site, ())
        found = _still_there(module, wanted, facts.tail.get(site, []), site in facts.head)
        if found:
            lines.append(f"'{one_line(site)}' still has {', '.join(found)}")
    return lines


def _still_there(
    module: Linear, wanted: Sequence[str], tail: Sequence[Mapping[str, object]], is_head: bool
) -> List[str]:
    """What the mods would have taken away. Heads keep their bias under `no_bias`."""
    ops: Set[object] = {entry["op"] for entry in tail}
    found = []
    if "no_bias" in wanted and module.bias is not None and not is_head:
        found.append("a bias (no_bias)")
    if "block_norm" in wanted and ops & {"layer_norm", "rms_norm"}:
        found.append("a norm over whole rows (block_norm)")
    if "hard_swish" in wanted and "swish" in ops:
        found.append("a swish (hard_swish)")
    return found


__all__ = ["apply_mods", "check_mods", "lacks"]
