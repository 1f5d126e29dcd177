"""Takes the trace that a recorder wrote; gives what is in it, what is not, and the next command: `recorder.report()`."""

import json
import math
import pathlib
import shlex
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from loka.lag import BOUND
from loka.record.loss_weight import TOLERANCE
from loka.tables import html_table, text_table

MOST_COST = 0.01
"""Share of a run's time past which it is said what recording took."""

MOST_UNSEEN = 10
"""Places without a site that are listed; the rest are counted."""

HEAD = ("site", "m", "k", "n", "what follows")


@dataclass(frozen=True, repr=False)
class RecordReport:
    """What one rank recorded. `print` it; a notebook shows it as a table.

    `sites`: of the trace's manifest; `skipped`: linears of the model that are not among them; `coverage`: of the
    manifest, the share of a forward's matrix products that sites are, None where it was not counted; `warnings`: the
    recorder's; `cost`: the share of the run's time that recording took, 0 to 1, known where it runs on the host, as
    are the next two; `recorded`: steps that were, of how many; `recording_s`: what recording took a recorded step, its saves with it;
    `plain_s`: the median step in which nothing was recorded, None where there was none; `pace`: of the manifest, what launching
    such a step takes the host of a GPU, None where too few were timed; `loss_weight`: how many times the log loss of the heads'
    predictions the loss is, as their gradients tell, None where it is once or a loss of another kind."""

    path: pathlib.Path
    written: bool
    model: str
    steps: int
    sites: Tuple[Mapping[str, Any], ...]
    skipped: Tuple[str, ...]
    coverage: Optional[Mapping[str, Any]]
    warnings: Tuple[str, ...]
    cost: Optional[float] = None
    recorded: Tuple[int, int] = (0, 0)
    recording_s: Optional[float] = None
    plain_s: Optional[float] = None
    pace: Optional[Mapping[str, Any]] = None
    loss_weight: Optional[float] = None

    @property
    def share(self) -> Optional[float]:
        """Of a forward's matrix products in FLOPs, what the sites are: 0 to 1."""
        if not self.coverage or not self.coverage.get("flops"):
            return None
        return float(self.coverage["sites"] / self.coverage["flops"])

    @property
    def next_command(self) -> str:
        """What to type next."""
        results = f"{pathlib.PurePath(self.model).name}.results.parquet"
        return f"loka probe {shlex.quote(str(self.path.parent))} --out {shlex.quote(results)}"

    def __str__(self) -> str:
        table = text_table([HEAD, *self._rows()], numbers=(1, 2, 3))
        return "\n".join([self._title(), *(table if self.sites else ()), *self._said()])

    def __repr__(self) -> str:
        return f"RecordReport({self._title()}; print it for the table)"

    def _repr_html_(self) -> str:
        return html_table(self._title(), HEAD, self._rows(), self._said(), numbers=(1, 2, 3))

    def _title(self) -> str:
        if not self.written:
            return f"{self.model}: no trace was written yet: {self.path}"
        share = "" if self.share is None else f", {100 * self.share:.3g} % of the forward's matrix products"
        sites = "1 site" if len(self.sites) == 1 else f"{len(self.sites)} sites"
        return f"{self.model}: {sites} at step {self.steps}{share}: {self.path}"

    def _rows(self) -> List[Tuple[str, ...]]:
        return [
            (str(site["id"]), _rows_of(site), *(str(site[size]) for size in ("k", "n")), _tail(site)) for site in self.sites
        ]

    def _said(self) -> List[str]:
        said = [f"not recorded: {name}" for name in self.skipped]
        unseen = list((self.coverage or {}).get("unseen", ()))
        said += [_unseen(place, self.coverage or {}) for place in unseen[:MOST_UNSEEN]]
        if len(unseen) > MOST_UNSEEN:
            said.append(f"no site: {len(unseen) - MOST_UNSEEN} more places")
        said += [f"warning: {text}" for text in self.warnings]
        if self.loss_weight is not None:
            said.append(_weighted(self.loss_weight))
        if self.pace is not None and self.pace.get("waited", 0) >= BOUND * self.pace.get("steps", 1):
            said.append(_host(self.pace))
        # Of steps that nobody has ended it is not known how many there were.
        if self.cost is not None and all(self.recorded):
            said.append(self._costs(self.cost))
        in_python = f"results = loka.probe({str(self.path.parent)!r})"
        return [*said, f"next: {self.next_command}", f"in Python: {in_python}"] if self.sites else said

    def _costs(self, share: float) -> str:
        """What recording a step took beside a plain one, and what it was of the whole."""
        steps = "recording {:,} of {:,} steps took {:.2g} % of the run's time".format(*self.recorded, 100 * share)
        each = "" if self.recording_s is None else f", {_time(self.recording_s)} each"
        plain = "" if self.plain_s is None else f" (a step without takes {_time(self.plain_s)})"
        cheaper = f": {self._cheaper(share)}" if share > MOST_COST else ""
        return f"{steps}{each}{plain}{cheaper}"

    def _cheaper(self, share: float) -> str:
        """The `every` at which it takes MOST_COST of the time, at least."""
        # What one more recorded step costs, in plain steps: then share = steps / (every + steps).
        steps = share / max(1 - share, 1e-9) * self.recorded[1] / max(self.recorded[0], 1)
        wanted = steps * (1 / MOST_COST - 1)
        digit = 10 ** math.floor(math.log10(wanted))
        return f"every={math.ceil(wanted / digit) * digit:,} takes {100 * MOST_COST:g} %".replace(",", "_")


def _weighted(times: float) -> str:
    parts = round(1 / times)
    why = f"a mean over {parts} tasks or tokens?" if parts > 1 and abs(parts * times - 1) <= TOLERANCE else "a weight?"
    return f"the loss is {times:.3g} times the log loss of the heads' predictions ({why}): loss costs go by that"


def _host(pace: Mapping[str, Any]) -> str:
    step_ms = pace.get("period_ms", pace["step_ms"])
    took = f"{min(pace['host_ms'], step_ms):.3g} of {step_ms:.3g} ms a step are the host's"
    remedy = "compile with mode='reduce-overhead', which replays a step as CUDA graphs, before anything else"
    return f"the GPU waits for its host ({took}): faster GEMMs gain nothing there. {remedy[0].upper()}{remedy[1:]}"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 0.9995 else f"{1e3 * seconds:.3g} ms"


def _rows_of(site: Mapping[str, Any]) -> str:
    """m; of a routed expert, or where batches change, with the fewest and the most rows of a recorded step (micro-batches together,
    which is said: none of them has so many)."""
    rows, calls = site.get("rows"), site.get("calls", 1)
    if not rows:
        return str(site["m"])
    together = f" in {calls} calls" if calls > 1 else ""
    fewest, most = rows["min"], rows["max"]
    return f"{site['m']} ({most if fewest == most else f'{fewest} to {most}'}{together})"


def _tail(site: Mapping[str, Any]) -> str:
    parts = ["bias"] if site.get("bias") else []
    parts += [str(entry["op"]) for entry in site.get("tail", ())]
    return " · ".join([*parts, *(["head"] if site.get("head") else [])])


def _unseen(place: Mapping[str, Any], coverage: Mapping[str, Any]) -> str:
    share = 100 * place.get("flops", 0) / max(coverage.get("flops", 0), 1)
    what = " ".join(str(place[key]) for key in ("op", "name") if place.get(key))
    where = f" at {place['where']}" if place.get("where") else ""
    return f"no site: {what}{where}, {share:.3g} %: {place.get('reason', 'not recorded')}"


def report_of(
    path: pathlib.Path, model: str, known: Sequence[str], warnings: Sequence[str], cost: Optional[float] = None,
    recorded: Tuple[int, int] = (0, 0), seconds: Tuple[Optional[float], Optional[float]] = (None, None),
) -> RecordReport:
    """`path`: of the trace; `known`: every linear that there is to record; `seconds`: of recording one step, and of a
    plain one."""
    manifest = _manifest(path)
    sites: List[Dict[str, Any]] = manifest.get("sites", [])
    named = {site["id"] for site in sites}
    return RecordReport(
        path=path,
        written=bool(manifest),
        model=manifest.get("model", {}).get("name", model),
        steps=manifest.get("run", {}).get("step", 0),
        sites=tuple(sites),
        skipped=tuple(name for name in known if name not in named) if manifest else (),
        coverage=manifest.get("coverage"),
        loss_weight=manifest.get("loss", {}).get("weight"),
        warnings=tuple(warnings),
        cost=cost,
        recorded=recorded,
        recording_s=None if cost is None else seconds[0],
        plain_s=None if cost is None else seconds[1],
        pace=manifest.get("run", {}).get("pace"),
    )


def _manifest(path: pathlib.Path) -> Dict[str, Any]:
    """The trace's, of its header alone; nothing where there is no file."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
    except FileNotFoundError:
        return {}
    # A rank that keeps extremes alone has no trace.
    manifest: Dict[str, Any] = json.loads(header["__metadata__"].get("loka.trace", "{}"))
    return manifest


__all__ = ["RecordReport", "report_of"]
