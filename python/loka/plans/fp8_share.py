"""Takes the linears of a model as they run, and how many rows each has; gives which share of their FLOPs runs in FP8.

How many linears are in FP8 says little: a tower's three may be nine tenths of the work, or a hundredth. An FP8 GEMM counts
2 m k n like any other. m is known of a linear by the plan, and of one that runs FP8 by a checked step; never guessed.
"""

import math
from dataclasses import dataclass
from typing import Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..catalogue import GEMMS
from .document import Site
from .error import one_line

MOST_NAMES = 3
"""Linears that are named, of those that are not counted."""

Runs = Tuple[bool, bool, bool]
"""Of fprop, dgrad and wgrad."""


class Work(NamedTuple):
    """What a plan says of one linear's work in a step. `rows`: of all its calls together, None where it does not say;
    `runs`: which GEMMs training runs."""

    rows: Optional[int]
    k: Optional[int]
    n: Optional[int]
    runs: Runs

    @staticmethod
    def of(site: Site) -> "Work":
        fprop, dgrad, wgrad = (gemm not in site.never_runs for gemm in GEMMS)
        return Work(None if site.m is None else site.m * site.calls, site.k, site.n, (fprop, dgrad, wgrad))


class Now(NamedTuple):
    """One linear as it is now. `fp8`: which of its GEMMs are, `runs`: which may run at all."""

    site: str
    k: int
    n: int
    fp8: Runs
    runs: Runs


SeenRows = Mapping[str, Tuple[float, float, float]]
"""Site -> the rows that its fprop, dgrad and wgrad had in one step."""


@dataclass(frozen=True)
class Fp8Share:
    """FLOPs of a step's GEMMs of the model's linears. `step`: whose rows they are of, of the linears that run FP8;
    None: all rows are the plan's. `by_plan`: how many linears' rows are the plan's. `unknown`: linears that are not
    counted, since nothing says how many rows they have."""

    fp8: float
    flops: float
    step: Optional[int]
    by_plan: int
    unknown: Tuple[str, ...]

    @property
    def share(self) -> Optional[float]:
        """0 to 1; None where nothing is known."""
        return self.fp8 / self.flops if self.flops else None

    def __str__(self) -> str:
        if self.share is None:
            return "which share of FLOPs that is, is not known: the plan does not say how many rows a linear has"
        counted = " that are counted" if self.unknown else ""
        return f"{_percent(self.share)} of the FLOPs of the linears{counted} run in FP8, by {self._rows()}{self._left_out()}"

    def _rows(self) -> str:
        if self.step is None:
            return "the rows that were planned"
        beside = f", and the planned ones, in proportion, of {_many(self.by_plan)} without FP8" if self.by_plan else ""
        return f"the rows of step {self.step}{beside}"

    def _left_out(self) -> str:
        if not self.unknown:
            return ""
        names = ", ".join(one_line(name) for name in self.unknown[:MOST_NAMES])
        more = ", …" if len(self.unknown) > MOST_NAMES else ""
        return f"; {_many(len(self.unknown))} of unknown rows not: {names}{more}"


def share_of(
    linears: Sequence[Now], work: Mapping[str, Work], seen: SeenRows, step: Optional[int], others: Iterable[str]
) -> Fp8Share:
    """`others`: sites of the plan that no kernel is put under, since a function reads their weight; these stay in high
    precision. `seen`: rows of `step`, of linears that run FP8 or did when it began."""
    here = {linear.site: linear for linear in linears}
    for site in others:
        planned = work[site]
        if planned.k is not None and planned.n is not None:
            here.setdefault(site, Now(site, planned.k, planned.n, (False, False, False), planned.runs))
    scale = _scale(here, work, seen)
    fp8 = flops = 0.0
    by_plan, unknown = 0, []
    for site, linear in here.items():
        rows = seen.get(site) or _planned(work.get(site), scale)
        if rows is None:
            unknown.append(site)
            continue
        by_plan += site not in seen
        for m, is_fp8, runs in zip(rows, linear.fp8, linear.runs):
            each = 2.0 * m * linear.k * linear.n * runs
            flops += each
            fp8 += each * is_fp8
    return Fp8Share(fp8, flops, step, by_plan, tuple(unknown))


def _scale(here: Mapping[str, Now], work: Mapping[str, Work], seen: SeenRows) -> float:
    """How many times the planned rows a step had, over the linears of which both are known."""
    planned = came = 0.0
    for site, (rows, _, _) in seen.items():
        known = work.get(site)
        if site in here and known is not None and known.rows is not None:
            size = here[site].k * here[site].n
            planned += known.rows * size
            came += rows * size
    return came / planned if planned and came else 1.0


def _planned(work: Optional[Work], scale: float) -> Optional[Tuple[float, float, float]]:
    if work is None or work.rows is None:
        return None
    fprop, dgrad, wgrad = (work.rows * scale * runs for runs in work.runs)
    return fprop, dgrad, wgrad


def _percent(share: float) -> str:
    """Down to a tenth: what is short of all is never called all."""
    tenths = math.floor(1000 * share + 1e-9)
    if tenths == 0 and share > 0:
        return "under .1 %"
    return f"{tenths // 10} %" if tenths % 10 == 0 else f"{tenths / 10:.1f} %"


def _many(count: int) -> str:
    return "1 linear" if count == 1 else f"{count} linears"


def works_of(sites: Iterable[Site]) -> Dict[str, Work]:
    """By name."""
    return {site.site: Work.of(site) for site in sites}


__all__ = ["Fp8Share", "Now", "SeenRows", "Work", "share_of", "works_of"]
