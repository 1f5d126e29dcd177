"""Takes a model that a plan was applied to; checks its FP8 GEMMs against BF16 in the first step and every so many.

In a checked step each linear sums, on its device, how far its GEMMs are from BF16 on a sample of their rows
(`kernels.watch`). When the step ends, one copy brings the sums of all to the host, where `gemm_health` judges them.
Other steps run what they ran before, and wait for nothing.
"""

import dataclasses
import datetime
import itertools
import math
import os
import weakref
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from ..capturing import is_capturing
from ..kernels import Overflow, numerics
from ..kernels.watch import FIELDS, Switch, Watch
from ..names import GEMMS, unwrapped
from ..steps import Steps
from ..weakly import weakly
from .document import Path
from .error import PlanError, listed, one_line
from .following import following
from .gemm_health import LEFT, Beyond, Health, HealthRow, Predicted, Seen, Verdict, json_lines, judge
from .host import host_watch
from .linear import Kernels, follows, holds, kernels_of, wanted_scales
from .parameters import is_read, linears
from .precision import HIGH_PRECISION, fp8_gemms
from .report import RECORD, Applied, applied_to, record_of
from .warned import CanaryWarning, say
from .weights import kept

CANARY = "_loka_canary"
"""The attribute of the model that holds what checks it; None in a copy."""

WATCH = "_loka_watch"
"""Key in a linear's `__dict__` of what it sums into."""

ON_VIOLATION = ("warn", "bf16", "raise")

RETRIES = 20
"""Steps that are checked in place of one that says nothing, as those in which a GradScaler finds its first scale."""

WORSE = 2.0
"""A GEMM that was warned of is warned of again when it is so many times further off."""

MAX_LINES = 12
"""Warnings of one check; the table has the others."""


class CanaryError(PlanError):
    """A GEMM is not as the plan predicted, and `on_violation` is "raise"."""


@dataclass(frozen=True)
class Options:
    """`every`: steps between checks, None for none; `log`: a file that JSON lines are appended to."""

    every: Optional[int]
    on_violation: str
    log: Optional[str]

    @staticmethod
    def checked(every: Optional[int], on_violation: str, log: Optional[Path]) -> "Options":
        """PlanError for what they cannot be."""
        if every is not None and (isinstance(every, bool) or not isinstance(every, int) or every < 0):
            raise PlanError(f"check_every is {every!r}, it must be a number of steps, or None for no check")
        if on_violation not in ON_VIOLATION:
            raise PlanError(f"on_violation is {on_violation!r}, it must be one of {', '.join(ON_VIOLATION)}")
        return Options(every or None, on_violation, None if log is None else os.fspath(log))


class _Switch(Switch):
    """One that a copied or pickled model does not take along: nobody would turn it off again."""

    def __reduce__(self) -> Any:
        return Switch, ()


class _Gemm(NamedTuple):
    """One FP8 GEMM, with what the plan says of it."""

    site: str
    gemm: str
    kernel: str
    predicted: Predicted

    @property
    def key(self) -> Tuple[str, str]:
        return self.site, self.gemm


def start(model: nn.Module, options: Options) -> None:
    """Has a model checked to which a plan is applied; if it is already, from now on by these options."""
    there = canary_of(model)
    if there is not None and there.options == options:
        return
    stop(model)
    if options.every is not None:
        unwrapped(model).__dict__[CANARY] = Canary(unwrapped(model), options)


def stop(model: nn.Module) -> None:
    """The model is no longer checked."""
    there = unwrapped(model).__dict__.pop(CANARY, None)
    if there is not None:
        there.stop()
    for _, module in linears(model):
        # Also in a copy, which takes along what its linears sum into, and nothing that reads it.
        module.__dict__.pop(WATCH, None)


def canary_of(model: nn.Module) -> Optional["Canary"]:
    return unwrapped(model).__dict__.get(CANARY)


def step(model: nn.Module) -> None:
    """Ends a training step by hand, for optimizers that are not torch.optim's: checks are then counted by it alone, and
    scales that follow their tensors move on, and
    weights are cast to FP8 anew. Call it on every rank alike. Raises PlanError where no plan is applied."""
    applied_to(model)
    scales, weights, checks, host = following(model), kept(model), canary_of(model), host_watch(model)
    if scales is not None:
        scales.advance()
    if weights is not None:
        weights.refresh()
    if checks is not None:
        checks.end_step()
    if host is not None:
        host.end_step()


def refresh(model: nn.Module) -> None:
    """Casts the model's weights to FP8 anew: call it after weights were changed by anything but a torch.optim optimizer or
    a loaded state_dict, before the next training step. Raises PlanError where no plan is applied."""
    applied_to(model)
    weights = kept(model)
    if weights is not None:
        weights.refresh()


def health(model: nn.Module) -> Health:
    """How each FP8 GEMM of a model was when it was last checked. Print it. Waits for nothing.

    Raises PlanError where no plan is applied, or where the model is not checked: `check_every=None`, or a copy."""
    applied_to(model)
    there = canary_of(model)
    if there is None:
        cause = "check_every is None, it is frozen, or it is a copy (loka.apply the plan to it again)"
        raise PlanError(f"this model is not checked: {cause}")
    host = host_watch(model)
    return there.health(() if host is None else host.notes)


_ordinals = itertools.count()


class Canary:
    """Checks one model. The model holds it, and nothing else does."""

    def __init__(self, model: nn.Module, options: Options) -> None:
        self.options = options
        self._model = weakref.ref(model)
        self._ordinal = next(_ordinals)
        self._rows: Dict[Tuple[str, str], HealthRow] = {}
        self._warned_at: Dict[Tuple[str, str], float] = {}
        self._notes: List[str] = []
        self._retries = 0
        self._checked_at = 0
        self._modules: Dict[str, Any] = {name: module for name, module in linears(model) if _runs_fp8(module)}
        switch = _Switch()
        # The hook of all optimizers holds these: by them alone a model would live as long as the process.
        steps = Steps(options.every or 1, switch, weakly(self._owns), weakly(self._ended), weakly(self._unowned))
        self._steps = steps
        for module in self._modules.values():
            # All three, in high precision or not: which of them are FP8 may change.
            module.__dict__[WATCH] = Watch(switch, _device(module), GEMMS)
        if self._modules:
            steps.start()
            weakref.finalize(self, steps.stop).atexit = False

    def __reduce__(self) -> Any:
        """A copy of the model, and one from a file, is checked once its plan is applied to it again."""
        return _nothing, ()

    def stop(self) -> None:
        self._steps.stop()

    def end_step(self) -> None:
        self._steps.end()

    def health(self, more: Sequence[str] = ()) -> Health:
        """`more` notes beside its own."""
        applied = self._record()
        checked = dict(self._rows)
        for one in self._gemms(applied):
            checked.setdefault(one.key, _of(one))
        order = {name: index for index, name in enumerate(self._modules)}
        rows = sorted(checked.values(), key=lambda row: (order.get(row.site, -1), GEMMS.index(row.gemm)))
        notes = [*self._notes, *more]
        if self._modules and not self._steps.finished:
            notes.append("no step has ended yet: without a torch.optim optimizer call loka.step(model)")
        return Health(applied.name, applied.digest, _rank(), self._steps.finished, tuple(rows), tuple(notes))

    # Steps

    def _owns(self, optimizer: Optimizer) -> bool:
        return holds(optimizer, self._modules.values())

    def _unowned(self) -> None:
        text = "other optimizers step, and none that holds a weight of the plan: call loka.step(model)"
        said = f"the plan's GEMMs are not checked: {text}"
        # A model that waits beside the one that trains, or serves, is not meant.
        if said not in self._notes and not is_capturing() and self._has_trained():
            self._note(said)

    def _has_trained(self) -> bool:
        """Whether a backward has run since the last check."""
        sums = _sums({name: module.__dict__[WATCH] for name, module in self._modules.items()})
        return any(seen[FIELDS.index("calls")] for (_, gemm), seen in sums.items() if gemm != "fprop")

    def _ended(self, checked: bool) -> None:
        if is_capturing():
            if checked:
                self._note(
                    "a step was captured in a CUDA graph while it was checked, and every replay pays for that: run the model for "
                    "three steps first, and capture a later one"
                )
            return
        if not checked:
            return
        try:
            broken = self._check(self._steps.finished - 1)
        except Exception as error:
            # Of a check and a training run, the latter goes on.
            self._note(f"a check failed: {type(error).__name__}: {one_line(error)}")
            return
        if broken and self.options.on_violation == "raise":
            raise CanaryError(listed(f"{len(broken)} GEMMs are not as the plan predicted", "", broken))

    def _check(self, step: int) -> List[str]:
        """Judges what the step that has ended has summed. A line for each GEMM that is off, on any rank."""
        applied = self._record()
        gemms, now = self._gemms(applied), datetime.datetime.now(datetime.timezone.utc)
        sums = _sums({name: module.__dict__[WATCH] for name, module in self._modules.items()}, reset=True)
        applied = self._counted(applied, sums, step)
        self._say_unseen({site for (site, gemm), seen in sums.items() if gemm == "fprop" and seen[FIELDS.index("calls")]})
        scales = following(self._alive())
        overflows = {} if scales is None else scales.take_overflows()
        moved = _moved(overflows) if step == 0 else {}
        found, beyond = [], self._beyond(gemms, overflows, step + 1)
        for one in gemms:
            seen = Seen(*sums[one.key])
            verdict = judge(one.kernel, one.gemm, one.predicted, seen, beyond.get(one.key, Beyond()))
            if verdict.word == "off" and one.site in moved and follows(one.kernel):
                # Of statistics of trained weights, say, and a model that begins. The next step says whether that was all.
                verdict = Verdict("unclear", f"{moved[one.site]}, which follows it from here on")
            found.append((one, seen, verdict))
        words = [verdict.word for _, _, verdict in found]
        *ranks_off, ranks_unclear = self._on_ranks([*(word == "off" for word in words), _says_nothing(words)])
        self._retry(ranks_unclear > 0)
        time = now.isoformat(timespec="seconds")
        rows = [_row(one, seen, verdict, step, time, beyond.get(one.key)) for one, seen, verdict in found]
        rows = [self._noted(row, num, step) for row, num in zip(rows, ranks_off)]
        for (one, _, _), row in zip(found, rows):
            before = self._rows.get(one.key, row)
            if row.verdict != "not run" or before.verdict == "not run":
                self._rows[one.key] = row
        self._log(rows, applied.digest)
        self._warn([(one, verdict) for one, _, verdict in found if verdict.word == "off"], step)
        if self.options.on_violation == "bf16":
            self._fall(applied, [(one, row) for (one, _, _), row, num in zip(found, rows, ranks_off) if num])
        return [_line(one, verdict, num) for (one, _, verdict), num in zip(found, ranks_off) if num]

    def _say_unseen(self, ran: Set[str]) -> None:
        """Of products with parameters it shows only here that they never come by."""
        unseen = [name for name, module in self._modules.items() if is_read(module) and name not in ran]
        if unseen and ran:
            more = f" and {len(unseen) - 1} more" if len(unseen) > 1 else ""
            self._note(
                f"'{one_line(unseen[0])}'{more}: no product with the parameter was seen, and where there is one it runs in BF16. "
                "Out of sight are compiled code that transposes it (F.linear does not), all compiled code before PyTorch 2.10, and "
                "checkpoints inside of the module that multiplies"
            )

    def _beyond(
        self, gemms: Sequence[_Gemm], seen: Mapping[Tuple[str, str], Overflow], steps: int
    ) -> Dict[Tuple[str, str], Beyond]:
        """Of each GEMM whose left operand has a scale that follows, the steps since the last check that went beyond it."""
        of, found = steps - self._checked_at, {}
        for one in gemms:
            overflow = seen.get((one.site, LEFT[one.gemm]))
            if overflow is not None and numerics(one.kernel, one.gemm).a.granularity == "static":
                found[one.key] = Beyond(overflow.steps, of, overflow.most)
        self._checked_at = steps
        return found

    def _counted(self, applied: Applied, sums: Dict[Tuple[str, str], List[float]], step: int) -> Applied:
        """Has `resolved` go by the rows of this step. What is no module is not watched, nor what runs no FP8."""
        at = FIELDS.index("rows")
        seen = {site: (sums[site, "fprop"][at], sums[site, "dgrad"][at], sums[site, "wgrad"][at]) for site in self._modules}
        if not any(map(any, seen.values())):
            return applied
        applied = replace(applied, seen_rows=seen, seen_step=step)
        setattr(self._model(), RECORD, applied)
        return applied

    def _retry(self, unclear: bool) -> None:
        """Checks the next step too where this one left something open."""
        if unclear and self._retries < RETRIES:
            self._retries += 1
            self._steps.again()
        else:
            self._retries = 0

    def _noted(self, row: HealthRow, ranks_off: int, step: int) -> HealthRow:
        said = [row.note] if row.note else []
        if ranks_off and row.verdict != "off":
            said.append("off on another rank")
        if ranks_off and self.options.on_violation == "bf16":
            said.append(f"in BF16 since step {step + 1}")
        return replace(row, note="; ".join(said))

    # What is done about it

    def _on_ranks(self, found: Sequence[bool]) -> List[int]:
        """On how many ranks each is so. Where nothing but a warning follows, each rank goes by itself: no collective
        that a rank with another model would not join."""
        flags = torch.tensor(found, dtype=torch.int32)
        if self.options.on_violation != "warn" and _world() > 1:
            device = next(iter(self._modules.values())).__dict__[WATCH].stats["fprop"].device
            flags = flags.to(device)
            dist.all_reduce(flags)
        return flags.tolist()

    def _fall(self, applied: Applied, fallen: Sequence[Tuple[_Gemm, HealthRow]]) -> None:
        """Puts BF16 under these GEMMs from the next step on, and into what `resolved` says."""
        if not fallen:
            return
        entries = dict(applied.entries)
        for one, row in fallen:
            entry, module = entries[one.site], self._modules[one.site]
            kernels = _with_high_precision(module._loka_kernels, one.gemm)
            # Past `route`, which would begin the other GEMMs' scales anew.
            scales = zip(wanted_scales(kernels), module._loka_scales)
            kept = tuple(scale if wanted else None for wanted, scale in scales)
            module.__dict__.update(_loka_kernels=kernels, _loka_scales=kept)
            note = f"{one.gemm} was planned by {one.kernel}: {row.note}"
            entries[one.site] = replace(entry, kernels=kernels, note="; ".join(filter(None, (entry.note, note))))
        setattr(self._model(), RECORD, replace(applied, entries=entries))

    def _warn(self, broken: Sequence[Tuple[_Gemm, Verdict]], step: int) -> None:
        if self.options.on_violation == "raise":
            return
        lines = [_line(one, verdict) for one, verdict in broken if self._is_news(one, verdict, step)]
        hint = {"warn": " (on_violation='bf16' would run it in BF16)", "bf16": "; it runs in BF16 from here on"}
        rank = f"rank {_rank()}: " if _world() > 1 else ""
        for line in lines[:MAX_LINES]:
            say(f"{rank}{line}{hint[self.options.on_violation]}")
        if len(lines) > MAX_LINES:
            say(f"{rank}{len(lines) - MAX_LINES} more GEMMs are off: print(loka.health(model))")

    def _is_news(self, one: _Gemm, verdict: Verdict, step: int) -> bool:
        """Whether it was not said before, nor by another rank."""
        before = self._warned_at.get(one.key)
        if before is not None and (verdict.severity < WORSE * before or before == math.inf):
            return False
        self._warned_at[one.key] = verdict.severity
        return _is_first_rank(f"loka/canary/{self._ordinal}/{step}/{one.site}/{one.gemm}")

    def _log(self, rows: Sequence[HealthRow], digest: str) -> None:
        if self.options.log is None:
            return
        try:
            # In one piece, so that ranks may share a file.
            file = os.open(self.options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(file, json_lines(rows, digest, _rank()).encode("utf-8", "replace"))
            finally:
                os.close(file)
        except OSError as error:
            self._note(f"health_log cannot be written: {error.strerror}: {one_line(self.options.log)}")

    def _note(self, text: str) -> None:
        """Warns of it once."""
        if text not in self._notes:
            self._notes.append(text)
            say(text)

    # What there is

    def _record(self) -> Applied:
        return applied_to(self._alive())

    def _alive(self) -> nn.Module:
        model = self._model()
        assert model is not None  # It holds this.
        return model

    def _gemms(self, applied: Applied) -> List[_Gemm]:
        """The GEMMs that run FP8 now."""
        found = []
        for site, module in self._modules.items():
            kernels, entry = kernels_of(module), applied.entries.get(site)
            if kernels is None or entry is None or WATCH not in module.__dict__:
                continue
            predicted = entry.predicted or (Predicted(),) * 3
            each = zip(GEMMS, kernels, predicted, fp8_gemms(kernels))
            found += [_Gemm(site, gemm, kernel, promise) for gemm, kernel, promise, is_fp8 in each if is_fp8]
        return found


def _nothing() -> None:
    return None


def _runs_fp8(module: nn.Module) -> bool:
    kernels = kernels_of(module)
    return kernels is not None and any(fp8_gemms(kernels))


def _with_high_precision(kernels: Kernels, gemm: str) -> Kernels:
    fprop, dgrad, wgrad = (HIGH_PRECISION if name == gemm else kernel for name, kernel in zip(GEMMS, kernels))
    return fprop, dgrad, wgrad


def _device(module: nn.Linear) -> torch.device:
    device = module.weight.device
    if device.type != "meta":
        return device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@torch.no_grad()
def _sums(watches: Dict[str, Watch], reset: bool = False) -> Dict[Tuple[str, str], List[float]]:
    """(site, gemm) -> its sums, by one copy from each device."""
    by_device: Dict[torch.device, List[Tuple[Tuple[str, str], Tensor]]] = {}
    for site, watch in watches.items():
        for gemm, sums in watch.stats.items():
            by_device.setdefault(sums.device, []).append(((site, gemm), sums))
    found: Dict[Tuple[str, str], List[float]] = {}
    for pairs in by_device.values():
        tensors = [sums for _, sums in pairs]
        found.update(zip((key for key, _ in pairs), torch.stack(tensors).tolist()))
        if reset:
            torch._foreach_zero_(tensors)
    return found


def _moved(overflows: Mapping[Tuple[str, str], Overflow]) -> Dict[str, str]:
    """Sites whose x lay beyond the scale that the plan has for it, with by how much."""
    return {
        site: f"x was {overflow.most:.2g} times as large as the plan's scale holds"
        for (site, operand), overflow in overflows.items() if operand == "x" and overflow.steps
    }


def _says_nothing(words: Sequence[str]) -> bool:
    """Of a GEMM that ran, or of any."""
    return "unclear" in words or (bool(words) and all(word == "not run" for word in words))


def _row(one: _Gemm, seen: Seen, verdict: Verdict, step: int, time: str, beyond: Optional[Beyond]) -> HealthRow:
    checked = dataclasses.replace(_of(one), step=step, time=time, verdict=verdict.word)
    if verdict.word == "not run":
        return checked
    overflow = None if beyond is None else beyond.steps
    return dataclasses.replace(
        checked, seen=seen.rel_l2, saturated=seen.saturated, flushed=seen.flushed, note=verdict.why, overflow_steps=overflow
    )


def _of(one: _Gemm) -> HealthRow:
    """Before it is checked."""
    lo, hi = one.predicted.interval
    return HealthRow(one.site, one.gemm, one.kernel, one.predicted.rel_l2, predicted_lo=lo, predicted_hi=hi)


def _line(one: _Gemm, verdict: Verdict, ranks_off: int = 0) -> str:
    why = verdict.why if verdict.word == "off" else f"on {ranks_off} of {_world()} ranks, not on this one"
    return f"{one_line(one.site)} {one.gemm} by {one.kernel} is off: {why}"


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _rank() -> int:
    return dist.get_rank() if _world() > 1 else 0


def _is_first_rank(key: str) -> bool:
    """Whether no other rank was here before: what all see, one says. By the process group's store: nobody waits."""
    if _world() == 1:
        return True
    try:
        return dist.distributed_c10d._get_default_store().add(key, 1) == 1
    except Exception:
        return True


__all__ = [
    "CANARY", "Canary", "CanaryError", "CanaryWarning", "ON_VIOLATION", "Options", "WATCH", "canary_of", "health",
    "start", "step", "stop",
]
