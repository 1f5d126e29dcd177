"""Takes a model and a plan, puts the plan's kernels under the model's linears; and takes them away.

Everything is checked before anything is changed: a plan is applied whole, or the model stays as it was.
"""

import math
import warnings
from dataclasses import replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from .. import kernels as routing
from ..kernels.available import NEEDS_GPU
from ..mods.norm import BlockNorm
from ..names import GEMMS, unwrapped
from ..variants import make_room
from . import blocks, canary, handing
from .document import Choice, Path, Plan, Site, load_plan
from .error import PlanError, listed, one_line
from .following import follow, unfollow
from .fp8_share import works_of
from .frozen import refuse_dropped, thaw
from .functional import Functional, FunctionalLinear, Linear, Owner
from .functional import checked, claim, is_claimed, refuse_taken, release
from .gemm_health import predicted_of
from .host import WORDS as ON_SLOW_HOST
from .host import leave_host, watch_host
from .linear import Kernels, LokaLinear, follows, is_recorded, kernels_of, route, saturated_of, unroute
from .matching import Match, about_model, bypassed, match
from .modded import apply_mods, check_mods
from .parameters import is_projection, is_read, linears, put, remove
from .paused import is_paused
from .precision import HIGH_PRECISION, runs_fp8
from .report import RECORD, Applied, Entry, Resolved, record_of, resolved
from .weights import drop, keep

VARIANTS = 4
"""Of a compiled forward: the first step and those that are checked, the others, evaluation, and BF16 for a while."""

_OPTIONS = {
    "mods": ("check", "apply", "ignore"), "unavailable": ("error", "bf16"), "cast_weights": ("step", "forward"),
    "on_slow_host": ON_SLOW_HOST,
}
_UNSEEN = "did not run when the model was recorded, or got no gradient"


def apply(
    model: nn.Module,
    plan: Union[Path, Plan],
    *,
    strict: bool = True,
    emulate: bool = False,
    mods: str = "check",
    unavailable: str = "error",
    functional: Optional[Functional] = None,
    allow_draft: bool = False,
    check_every: Optional[int] = 1000,
    on_violation: str = "warn",
    health_log: Optional[Path] = None,
    cast_weights: str = "step",
    on_slow_host: str = "bf16",
) -> Resolved:
    """Puts the kernels of a plan under the linears of a model; returns what every linear became. Print it.

    A linear with an FP8 kernel becomes a `LokaLinear`: the same module with the same parameters, names, hooks and
    state_dict. One that the plan leaves in high precision is left alone. May come before or after DDP, FSDP2 and
    torch.compile.

    `strict`: the plan's sites and the model's linears must be the same; else what differs is warned of, and listed in
    `problems` of the result. Linears that did not run in the recorded model, or got no gradient there, are in no plan:
    where all else fits and the model has as many parameters, they stay in high precision, with a warning.
    `emulate`: FP8's numbers by slow arithmetic that runs anywhere, for tests.
    `mods`: of a plan that was made for the model with changes: "check" that the model has them, "apply" them to it
    (`loka.mods.apply`: before the optimizer is made; where it cannot reach them all, `strict` refuses as "check" does),
    or "ignore" them.
    `unavailable`: what to do with a kernel that cannot run here: "error", or "bf16" in its place, which the result
    says.
    `functional`: {name: weight} or {name: (weight, bias)} of each `loka.linear(..., name=name)` of the model, as
    `loka.Recorder` takes it: these names are sites of the model too, and `loka.linear` runs them by the plan's
    kernels. Names are of the whole process: one model's at a time, every `loka.linear` of that name is meant, until
    `loka.unapply` or the end of the model. A model that was loaded from a file needs its plan applied again.
    `allow_draft`: take a plan that calls itself a draft, or that has fewer approvals than its policy asks for. Who
    signed is not checked here: `loka verify` does that, before training.
    `check_every`: the first training step and one of so many are checked: each FP8 GEMM of the model's linears against
    BF16 on a sample of its rows, and that against what the plan predicts (`loka.health(model)`). None: never. A step
    ends with that of the torch.optim optimizer that holds the weights, or with `loka.step(model)`.
    `on_violation`: what to do about a GEMM that is not as predicted: "warn", "bf16" (from the next step on, which
    `loka.resolved` says), or "raise" CanaryError out of the optimizer's step. With the last two all ranks of
    torch.distributed must train the model alike: they agree.
    `health_log`: a file to which each check appends a JSON line for each GEMM.
    `cast_weights`: the FP8 of weights is made once a "step" and kept, one byte a parameter and layout, or in every
    "forward". Sharded weights are cast in every forward either way, and so is whatever runs in evaluation. What changes
    a weight beside torch.optim's optimizers and load_state_dict is followed by `loka.refresh(model)`; else a warning comes
    with the next step.

    `on_slow_host`: a GPU that waits for its host gains nothing by faster GEMMs, and loses by every launch that a plan adds.
    Steps 50 to 150 tell. "bf16": where it waits, 120 more steps take turns between the plan and BF16, and if the plan's are
    slower by more than 1 %, the model runs in BF16 from there on, and a warning says so, with the remedy: CUDA graphs, as
    by `torch.compile(mode="reduce-overhead")`. Each rank decides for itself. "warn": it is said, and no more.

    Raises PlanError, with the model unchanged, for a file that is no sound plan, a draft, sites that do not match (all
    are listed), a plan that matches nothing, kernels that cannot run here (all are listed), another plan applied before,
    a functional name that is a module's, that has no weight [n, k], or that another model has.
    The same plan twice is once, with the later call's checks.
    """
    for option, value in (
        ("mods", mods), ("unavailable", unavailable), ("cast_weights", cast_weights), ("on_slow_host", on_slow_host)
    ):
        if value not in _OPTIONS[option]:
            raise PlanError(f"{option} is {value!r}, it must be one of {', '.join(_OPTIONS[option])}")
    checks = canary.Options.checked(check_every, on_violation, health_log)
    loaded = plan if isinstance(plan, Plan) else load_plan(plan)
    if loaded.draft is not None and not allow_draft:
        cause = f"the plan is a draft ({one_line(loaded.draft)}): have it approved, or allow_draft=True"
        raise PlanError(listed(cause, loaded.path, []))
    named = checked(functional, model)
    if _is_applied(loaded, model, emulate, unavailable, named):
        _start(model, checks, cast_weights, on_slow_host)
        return resolved(model)
    refuse_taken(list(named))
    found = match(loaded, model, named)
    _refuse(found, loaded, model, strict)
    entries = _decided(found, loaded, emulate, unavailable)
    _note_bypassed(entries, model)
    if mods == "check":
        check_mods(loaded, model, named)
    problems = found.problems
    if mods == "apply":
        problems += tuple(apply_mods(loaded, model, named, strict))
    if problems:
        warnings.warn(listed("not all of the plan is applied", loaded.path, problems), stacklevel=2)
    if found.unseen:
        some = ", ".join(one_line(name) for name in found.unseen[:4]) + (", ..." if len(found.unseen) > 4 else "")
        warnings.warn(f"not in the plan, so in high precision: {some} ({_UNSEEN})", stacklevel=2)
    owner = Owner() if named else None
    made = blocks.planned(model, loaded, entries)
    entries, links = made.entries, {}
    straight: handing.Straight = {}
    if loaded.runtime != "inference":
        straight = handing.straight_of(model)
        planned = {site: entry.kernels for site, entry in entries.items()}
        links = handing.links_of(model, planned, emulate, straight)
        for site, reader in handing.readers(model, links, planned, straight).items():
            entries[site] = blocks.said(entries[site], f"in training '{one_line(reader)}' gets its activation in FP8")
    work = works_of(site for site in loaded.sites if site.site in entries or site.site in found.read)
    _put(model, Applied(
        loaded.name, loaded.digest, emulate, unavailable, entries, problems, _shapes(named), owner, work=work, read=found.read,
    ), {site.site: module for site, module in found.pairs if isinstance(module, nn.Linear) and is_read(module)})  # fmt: skip
    blocks.put(model, made)
    handing.put(model, links, straight)
    _start(model, checks, cast_weights, on_slow_host)
    return resolved(model)


def _start(model: nn.Module, checks: canary.Options, cast_weights: str, on_slow_host: str) -> None:
    """What goes on beside the training: the weights' casts before the checks, which look at them."""
    applied = record_of(model)
    if applied is not None:
        # Not once a plan, but in every process: a model may come from a file.
        make_room(VARIANTS * sum(entry.kernels is not None for entry in applied.entries.values()))
    drop(model)
    if cast_weights == "step":
        keep(model).rest(is_paused(model))
    canary.start(model, checks)
    # Last: what a step takes has all of this in it.
    watch_host(model, on_slow_host)


def unapply(model: nn.Module) -> None:
    """Gives every linear its own class back, and its functional ones are F.linear again, also in copies of the model;
    a model without a plan is left as it is. Model changes stay.

    Raises PlanError, with the model unchanged, while a Recorder is attached: it would give them the plan's back; and
    where the weights were dropped when it was frozen."""
    routed = [(name, module) for name, module in linears(model) if isinstance(module, LokaLinear)]
    taken = [name for name, module in routed if is_recorded(module)]
    if taken:
        raise PlanError(
            f"{len(taken)} linears of the plan are being recorded, '{one_line(taken[0])}' among them: "
            "detach the Recorder before the plan is unapplied"
        )
    refuse_dropped(model)
    leave_host(model)
    unfollow(model)
    drop(model)
    canary.stop(model)
    blocks.unfuse(model)
    handing.undo(model)
    for _, module in routed:
        thaw(module)
        unroute(module)
    remove(model)
    applied = unwrapped(model).__dict__.pop(RECORD, None)
    if applied is not None:
        release(applied.names, applied.owner)


def saturated(model: nn.Module) -> Dict[str, Dict[str, int]]:
    """Linear -> GEMM -> how many elements were beyond their static scale since the plan was applied, in this process.
    More than the plan's `saturation` promises says that the data has drifted. Waits for the device."""
    found = ((name, saturated_of(module)) for name, module in linears(model))
    return {name: counts for name, counts in found if counts}


def _is_applied(
    plan: Plan, model: nn.Module, emulate: bool, unavailable: str, named: Mapping[str, FunctionalLinear]
) -> bool:
    """True where this very plan is applied; PlanError where another is, to the model or to a part of it."""
    there = record_of(model)
    if there is not None:
        asked = (plan.digest, emulate, unavailable, _shapes(named))
        if (there.digest, there.emulate, there.unavailable, there.functional) == asked:
            if not is_claimed(there.names, there.owner):
                # A model from a file, or a copy of one that was unapplied.
                _claim(there)
            return True
        how = _differing(there, asked) if there.digest == plan.digest else ""
        how += "" if there.functional == asked[3] else ", with other functional linears"
        cause = f"plan '{one_line(there.name)}' {there.digest[:19]} is applied to this model{how}"
        raise PlanError(f"{cause}: loka.unapply(model) first")
    routed = next((name for name, module in linears(model) if kernels_of(module) is not None), None)
    if routed is not None:
        cause = f"a plan is applied to a part of this model, '{one_line(routed)}'"
        raise PlanError(f"{cause}: loka.unapply that part first")
    return False


def _differing(there: Applied, asked: Tuple[str, bool, str, Tuple[Tuple[str, int, int], ...]]) -> str:
    """The options under which this very plan is applied, where other ones are asked for."""
    options = (("emulate", there.emulate, asked[1]), ("unavailable", there.unavailable, asked[2]))
    differ = [f"{name}={has!r}, not {wanted!r}" for name, has, wanted in options if has != wanted]
    return f" with {' and '.join(differ)}" if differ else ""


def _refuse(found: Match, plan: Plan, model: nn.Module, strict: bool) -> None:
    if not found.pairs or (strict and found.problems):
        raise PlanError(_mismatch(found, plan, model))


def _mismatch(found: Match, plan: Plan, model: nn.Module) -> str:
    cause = "the plan does not fit the model" if found.pairs else "no site of the plan fits the model"
    counts = f" ({found.summary})" if found.summary else ""
    return listed(f"{cause}{counts}", plan.path, [*found.problems, about_model(plan, model)])


def _decided(found: Match, plan: Plan, emulate: bool, unavailable: str) -> Dict[str, Entry]:
    """What runs each site. PlanError with all the kernels that cannot run, unless BF16 may take their place."""
    refused: List[str] = []
    num_refused, without_gpu = 0, 0
    unfit = {**found.other_shape, **found.unroutable}
    entries = {site: Entry(None, (), f"left as it is: it {why}") for site, why in unfit.items()}
    entries.update({name: Entry(None, (), f"not in the plan: {_UNSEEN}") for name in found.unseen})
    for site, module in found.pairs:
        reasons = _reasons(site, module, emulate)
        for gemm, reason in reasons.items():
            num_refused += 1
            if NEEDS_GPU in reason:
                without_gpu += 1
            else:
                refused.append(f"'{one_line(site.site)}' {gemm}: {reason}")
        entries[site.site] = _entry(site, reasons, module)
    if num_refused and unavailable == "error":
        raise PlanError(_unavailable(num_refused, without_gpu, refused, plan))
    return entries


def _unavailable(num: int, without_gpu: int, others: Sequence[str], plan: Plan) -> str:
    """A missing GPU is one cause, however many GEMMs want it: it is said once."""
    bf16 = 'unavailable="bf16" runs them in BF16'
    here = "move the model there first" if torch.cuda.is_available() else "there is none here"
    slowly = "emulate=True runs their numerics slowly"
    if without_gpu == num:
        return listed(f"{num} GEMMs of the plan need a CUDA GPU: {here} ({slowly}, {bf16})", plan.path, [])
    lines = [*others, *([f"{without_gpu} more need a CUDA GPU: {here}, or {slowly}"] if without_gpu else [])]
    return listed(f"{num} GEMMs of the plan cannot run here ({bf16})", plan.path, lines)


def _reasons(site: Site, module: Linear, emulate: bool) -> Dict[str, str]:
    """GEMM -> why its kernel cannot run here. Of a linear that is left alone none has to."""
    reasons = {}
    if runs_fp8(site.kernels):
        where = (module.in_features, module.out_features, _device(module), emulate)
        for gemm, choice in zip(GEMMS, site.choices):
            kernel = choice.kernel
            reason = routing.why_not(kernel, gemm, *where) or _unscaled(choice, gemm, module)
            if reason is not None:
                reasons[gemm] = one_line(reason if kernel in reason else f"{kernel}: {reason}", limit=400)
    return reasons


def _unscaled(choice: Choice, gemm: str, module: Linear) -> Optional[str]:
    """Why a kernel that wants its scale beforehand has none to go by."""
    if not _is_static(choice.kernel, gemm):
        return None
    scale = choice.static_scale
    if isinstance(module, FunctionalLinear) and not follows(choice.kernel):
        return f"{choice.kernel} {gemm}: it counts what saturates in its module, and a loka.linear has none"
    if gemm != "fprop":
        # The scale of dy follows the gradients that come; a plan's is of single examples.
        return None
    if scale is None:
        return None if follows(choice.kernel) else f"{choice.kernel} {gemm}: the plan has no static_scale for it"
    if scale <= 0 or math.frexp(scale)[0] != 0.5 or not 2.0**-100 <= scale <= 2.0**100:
        return f"{choice.kernel} {gemm}: static_scale is {scale:g}, it must be a power of two from 2^-100 to 2^100"
    return None


def _is_static(kernel: str, gemm: str) -> bool:
    return kernel in routing.KERNELS and routing.numerics(kernel, gemm).a.granularity == "static"


def _device(module: Linear) -> torch.device:
    """Where it will run: a model that is still on the meta device goes to the GPU if there is one."""
    device = module.weight.device
    if device.type != "meta":
        return device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _entry(site: Site, reasons: Dict[str, str], module: Linear) -> Entry:
    planned = zip(GEMMS, site.kernels)
    fprop, dgrad, wgrad = (HIGH_PRECISION if gemm in reasons else kernel for gemm, kernel in planned)
    kernels: Kernels = (fprop, dgrad, wgrad)
    sources = tuple(choice.source for choice in site.choices)
    fallen = "; ".join(f"{gemm} in BF16: {reason}" for gemm, reason in reasons.items())
    if runs_fp8(kernels):
        x = site.fprop.static_scale if _is_static(fprop, "fprop") else None
        return Entry(kernels, sources, fallen, (x, None), tuple(map(predicted_of, site.choices)))
    why = fallen or one_line(site.fprop.reason).removeprefix("high precision: ")
    short_n, short_k = routing.short_of(kernels, module.out_features, module.in_features)
    is_called = isinstance(module, nn.Linear) and not (is_read(module) or is_projection(module))
    if kernels == routing.BF16 and (short_n or short_k) and is_called:
        widths = f"{module.in_features + short_k} x {module.out_features + short_n}"
        return Entry(kernels, sources, f"left in high precision, padded to {widths}: {why}")
    return Entry(None, sources, f"left in high precision: {why}")


def _note_bypassed(entries: Dict[str, Entry], model: nn.Module) -> None:
    for name in bypassed(model) & set(entries):
        entry = entries[name]
        if entry.kernels is not None:
            said = (entry.note, "in evaluation PyTorch's fused encoder layer runs it in high precision")
            entries[name] = replace(entry, note="; ".join(filter(None, said)))


def _put(model: nn.Module, applied: Applied, products: Mapping[str, nn.Linear]) -> None:
    """Afresh from the model: applying mods may have put other modules in."""
    _claim(applied)
    stretch = _stretch(model)
    for name, product in products.items():
        if name in applied.entries and applied.entries[name].kernels is not None:
            put(name, product, model)
    for name, module in linears(model):
        entry = applied.entries.get(name)
        if entry is not None and entry.kernels is not None:
            route(module, entry.kernels, applied.emulate, entry.scales, _device(module), stretch)
    setattr(unwrapped(model), RECORD, applied)
    follow(model)


def _stretch(model: nn.Module) -> int:
    """How many columns the model's norms go over at a time, where they are block norms."""
    blocks = {module.block for module in model.modules() if isinstance(module, BlockNorm)}
    return max(blocks, default=0)


def _claim(applied: Applied) -> None:
    if applied.owner is not None:
        refuse_taken(applied.names, applied.owner)
        claim(applied.names, applied.routes, applied.owner)


def _shapes(named: Mapping[str, FunctionalLinear]) -> Tuple[Tuple[str, int, int], ...]:
    """(name, k, n) of each, in the order of their names: however a mapping is written, it is the same one."""
    return tuple((name, linear.in_features, linear.out_features) for name, linear in sorted(named.items()))


__all__ = ["apply", "saturated", "unapply"]
