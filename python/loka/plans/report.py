"""Takes a model that a plan was applied to, gives what every one of its linears became."""

from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from torch import nn

from ..kernels.named import Route, routed
from ..names import GEMMS, unwrapped
from ..tables import html_table
from .error import PlanError, one_line
from .fp8_share import Fp8Share, Now, Runs, SeenRows, Work, share_of
from .functional import Owner
from .gemm_health import Predicted
from .handing import held_apart
from .linear import PAUSED, Kernels, Scales, kernels_of
from .parameters import READ, ParameterLinear, linears
from .precision import fp8_gemms

RECORD = "_loka_applied"
"""The attribute of the model that holds what was applied."""


@dataclass(frozen=True)
class Entry:
    """What was decided for one site. `kernels`: as they run, None where the linear was left as it is. `scales`: of x in
    fprop and of dy in dgrad, where these kernels want them beforehand. `predicted`: of fprop, dgrad and wgrad."""

    kernels: Optional[Kernels]
    sources: Tuple[str, ...]
    note: str = ""
    scales: Scales = (None, None)
    predicted: Tuple[Predicted, ...] = ()


@dataclass(frozen=True)
class Applied:
    """A plan as it was applied; kept on the model, so that it survives copies and pickles. `functional`: (name, k, n)
    of each functional linear; `owner`: of their names in this process, None where there are none."""

    name: str
    digest: str
    emulate: bool
    unavailable: str
    entries: Dict[str, Entry]
    problems: Tuple[str, ...]
    functional: Tuple[Tuple[str, int, int], ...] = ()
    owner: Optional[Owner] = None
    slower: str = ""
    """Why the whole of it runs in BF16; nothing where it runs as applied."""
    work: Dict[str, Work] = field(default_factory=dict)
    """Site -> what the plan says of its work in a step, of the plan's sites that the model has."""
    read: Tuple[str, ...] = ()
    """Those of them that are no modules but parameters that functions read."""
    seen_rows: SeenRows = field(default_factory=dict)
    """Of the linears that are checked, in the step that was checked last."""
    seen_step: Optional[int] = None
    forward_only: bool = False
    """It was frozen."""

    @property
    def names(self) -> List[str]:
        """Of the functional linears."""
        return [name for name, _, _ in self.functional]

    @property
    def routes(self) -> Dict[str, Route]:
        """How `loka.linear` runs those that the plan has kernels for."""
        found = ((name, k, n, self.entries.get(name)) for name, k, n in self.functional)
        return {name: (entry.kernels, self.emulate, (n, k)) for name, k, n, entry in found if entry and entry.kernels}


@dataclass(frozen=True)
class Row:
    """One linear y[m, n] = x[m, k] W[n, k]^T of the model as it is now. `kernels`, `sources` (`dispatch` or
    `override`): of fprop, dgrad and wgrad; None and empty where it is PyTorch's own linear, and `note` says why.
    `functional`: it is a `loka.linear` of that name, not a module."""

    site: str
    k: int
    n: int
    kernels: Optional[Kernels]
    sources: Tuple[str, ...]
    note: str
    functional: bool = False

    @property
    def runs_fp8(self) -> bool:
        return self.kernels is not None and any(fp8_gemms(self.kernels))


@dataclass(frozen=True, repr=False)
class Resolved:
    """What every linear of a model became. `print` it: silent mismatches are what makes a plan do nothing. A notebook
    shows it as a table."""

    plan: str
    digest: str
    emulate: bool
    rows: Tuple[Row, ...]
    problems: Tuple[str, ...]
    fp8_share: Fp8Share
    """Of the FLOPs of the model's linears: by the plan's rows at first, by a step's once one was checked."""

    @property
    def num_fp8(self) -> int:
        """Linears that run FP8 in at least one GEMM."""
        return sum(row.runs_fp8 for row in self.rows)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def __repr__(self) -> str:
        problems = f", {len(self.problems)} problems" if self.problems else ""
        return f"Resolved({_title(self)}: {_count(self)}{problems}; print it for the table)"

    def _repr_html_(self) -> str:
        notes = [*_problems(self), *_legend(self), _count(self), str(self.fp8_share)]
        return html_table(_title(self), _HEAD, [_cells(row) for row in self.rows], notes, numbers=(1, 2))


def record_of(model: nn.Module) -> Optional[Applied]:
    return getattr(unwrapped(model), RECORD, None)


def applied_to(model: nn.Module) -> Applied:
    """What was applied. PlanError where nothing is."""
    applied = record_of(model)
    if applied is None:
        raise PlanError("no plan is applied to this model (a plan stays with the model that loka.apply was given)")
    return applied


def resolved(model: nn.Module) -> Resolved:
    """Looks at the model as it is now, not as `loka.apply` left it. Raises PlanError where no plan is applied."""
    applied = applied_to(model)
    apart = held_apart(model)
    rows = tuple(_row(name, module, applied, apart.get(name, "")) for name, module in linears(model))
    rows += tuple(_functional_row(*linear, applied) for linear in applied.functional)
    problems = applied.problems + _vanished(rows, applied)
    return Resolved(applied.name, applied.digest, applied.emulate, rows, problems, _share(model, rows, applied))


def _share(model: nn.Module, rows: Sequence[Row], applied: Applied) -> Fp8Share:
    frozen = {name for name, module in linears(model) if module.weight is None or not module.weight.requires_grad}

    def now(row: Row) -> Now:
        fprop, dgrad, wgrad = fp8_gemms(row.kernels) if row.kernels else (False,) * 3
        backward = not applied.forward_only
        runs: Runs = (True, backward, backward and row.site not in frozen)
        return Now(row.site, row.k, row.n, (fprop, dgrad, wgrad), runs)

    return share_of([now(row) for row in rows], applied.work, applied.seen_rows, applied.seen_step, applied.read)


_TRIED = "in BF16 while that is timed: the host is slow"


def _row(name: str, module: nn.Linear, applied: Applied, apart: str) -> Row:
    """`apart`: why it gives no codes, where it would."""
    kernels = kernels_of(module)
    entry = applied.entries.get(name) or Entry(None, (), "not in the plan")
    note = entry.note
    if isinstance(module, ParameterLinear):
        note = "; ".join(filter(None, (READ, note)))
    block = module.__dict__.get("_loka_block")
    if entry.kernels is not None and module.__dict__.get(PAUSED):
        note = "; ".join(filter(None, (note, applied.slower or _TRIED)))
    elif kernels != entry.kernels:
        note = "changed after the plan was applied"
    elif block is not None and block.why_not():
        note = "; ".join(filter(None, (note, f"not one kernel with what follows: {block.why_not()}")))
    elif apart:
        note = "; ".join(filter(None, (note, f"not now: {apart}")))
    return Row(name, module.in_features, module.out_features, kernels, entry.sources if kernels else (), note)


def _functional_row(name: str, k: int, n: int, applied: Applied) -> Row:
    """As the name runs in this process: a model that was loaded from a file brings no kernels for its names."""
    entry = applied.entries.get(name) or Entry(None, (), "not in the plan")
    route = routed.get(name)
    kernels, note = None if route is None else route[0], entry.note
    if route is None and entry.kernels is not None and applied.slower:
        note = "; ".join(filter(None, (note, applied.slower)))
    elif route != applied.routes.get(name):
        note = "changed after the plan was applied: apply it again"
    return Row(name, k, n, kernels, entry.sources if kernels else (), note, functional=True)


def _vanished(rows: Sequence[Row], applied: Applied) -> Tuple[str, ...]:
    here = {row.site for row in rows}
    gone = [name for name, entry in applied.entries.items() if entry.kernels is not None and name not in here]
    return tuple(f"'{one_line(name)}' was removed from the model after the plan was applied" for name in gone)


_HEAD = ("linear", "k", "n", *GEMMS, "")


def _lines(resolved: Resolved) -> Iterator[str]:
    yield _title(resolved)
    yield from _aligned([_HEAD, *(_cells(row) for row in resolved.rows)])
    yield from _problems(resolved)
    yield from _legend(resolved)
    yield _count(resolved)
    yield str(resolved.fp8_share)


def _title(resolved: Resolved) -> str:
    how = ", emulated: slow, for tests" if resolved.emulate else ""
    return f"plan '{one_line(resolved.plan)}' {resolved.digest[:19]}{how}"


def _problems(resolved: Resolved) -> List[str]:
    return [f"problem: {problem}" for problem in resolved.problems]


def _legend(resolved: Resolved) -> List[str]:
    return ["* chosen by a person"] if any("override" in row.sources for row in resolved.rows) else []


def _count(resolved: Resolved) -> str:
    gemms = sum(sum(fp8_gemms(row.kernels)) for row in resolved.rows if row.kernels)
    num = len(resolved.rows)
    return f"{resolved.num_fp8} of {num} linears run FP8 in at least one GEMM ({gemms} GEMMs)"


def _cells(row: Row) -> Tuple[str, ...]:
    kernels: Sequence[str] = ("-",) * 3
    if row.kernels is not None:
        stars = ("*" if source == "override" else "" for source in row.sources)
        kernels = [kernel + star for kernel, star in zip(row.kernels, stars)]
    note = "; ".join(filter(None, ("functional" if row.functional else "", row.note)))
    return (one_line(row.site), str(row.k), str(row.n), *kernels, note)


def _aligned(table: List[Tuple[str, ...]]) -> Iterator[str]:
    """Text to the left, the two numbers to the right."""
    formats = []
    for column, cells in enumerate(zip(*table)):
        side = ">" if column in (1, 2) else "<"
        formats.append(f"{{:{side}{max(map(len, cells))}}}")
    for line in table:
        yield "  ".join(formats).format(*line).rstrip()


__all__ = ["Applied", "Entry", "RECORD", "Resolved", "Row", "applied_to", "record_of", "resolved"]
