"""Takes what a linear saw on a rank that `ranks=` leaves out; gives its largest values and histograms, and nothing else.

Second moments of a few ranks are those of the run; a maximum is not: the one rank whose values reach beyond all others'
may be any. So with `extremes=True` every rank counts its own, at the recorded steps, and writes a small file beside the
shards of those that record. Counted by the same rule: the same rows, the same gradients of an example, nothing of a call
with a value that is not finite but its place in the histogram, the same last steps (`era`).
"""

import json
from typing import Any, Dict, Optional

import torch
from torch import Tensor

from loka.record import columns, era
from loka.record.moments import AMAX, COUNT, HIST_BINS, all_finite
from loka.record.site import SiteStats, rows_of
from loka.record.snapshot import HostCopies
from loka.record.writer import Content

SUFFIX = ".extremes.safetensors"


class OperandExtremes:
    """One operand's. `counters` as `Moments` has them, of which the count and the largest value are used."""

    def __init__(self, device: torch.device) -> None:
        self.bits = torch.zeros(1, dtype=torch.int32, device=device)
        self.counters = torch.zeros(4, dtype=torch.float64, device=device)
        self.hist = torch.zeros(HIST_BINS, dtype=torch.int64, device=device)
        self._seen = torch.zeros(1, device=device)

    def scan(self, values: Tensor) -> None:
        """Notes the largest |value| of a call."""
        columns.scan(values, self.bits)

    def add(self, rows: Tensor, factor: Tensor, finite: Tensor) -> None:
        """Takes in the call that was scanned, of which these are the rows that are counted."""
        columns.histogram(rows, factor, self.hist)
        columns.finish(self.counters, self.bits, self._seen, len(rows), factor, finite)

    def with_before(self, before: "Optional[OperandExtremes]") -> Dict[str, Tensor]:
        """Count, largest value and histogram of both."""
        if before is None:
            return {"counters": self.counters, "hist": self.hist}
        counters = self.counters + before.counters
        counters[AMAX] = torch.maximum(self.counters[AMAX], before.counters[AMAX])
        return {"counters": counters, "hist": self.hist + before.hist}


class SiteExtremes(SiteStats):
    """A site of such a rank."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.operands: Dict[str, OperandExtremes] = {}
        self.operands_before: Dict[str, OperandExtremes] = {}

    @property
    def ran(self) -> bool:
        return bool(self.operands or self.operands_before)

    def add(
        self, x: Tensor, grad: Optional[Tensor], index: int, scale: Tensor, examples: Optional[int] = None,
        needs: int = 0,
    ) -> None:  # fmt: skip
        """As of a rank that records: one call of recorded step `index`."""
        if x.numel() == 0 or (grad is not None and grad.numel() == 0):
            return
        leading = x.shape[0] if x.dim() > 1 else 1
        self.examples = leading if examples is None else examples
        unit = torch.ones_like(scale)
        factor = unit if grad is None else self.options.per_example(self.examples) / scale
        calls = {"input": (rows_of(x), unit)}
        if grad is not None:
            calls["grad_output"] = (rows_of(grad), factor)
        for name, (rows, _) in calls.items():
            if name not in self.operands:
                self.operands[name] = OperandExtremes(rows.device)
            self.operands[name].scan(rows)
        finite = all_finite(factor, *(self.operands[name] for name in calls))
        for name, (rows, its) in calls.items():
            self.operands[name].add(self._some(rows, index), its, finite)
        self.calls_this_step += 1
        self.calls_this_era += 1

    def end_step(self, index: int, examples: int) -> None:
        """The end of recorded step `index`."""
        self.calls_this_step = self.examples_this_step = 0
        if self.options.history == "recent" and era.begins(index + 1) and self.calls_this_era:
            self.operands_before, self.operands = self.operands, {}
            self.calls_this_era = 0

    def extremes(self) -> Dict[str, Dict[str, Tensor]]:
        """What is saved of each operand."""
        found: Dict[str, Dict[str, Tensor]] = {}
        for name in ("input", "grad_output"):
            now, before = self.operands.get(name), self.operands_before.get(name)
            if now is not None:
                found[name] = now.with_before(before)
            elif before is not None:
                found[name] = before.with_before(None)
        return found


class ExtremesSnapshot:
    """A rank's extremes on their way to the host. `run`: as in a trace's manifest."""

    def __init__(self, run: Dict[str, Any], sites: Dict[str, SiteStats]) -> None:
        self._run = {key: run[key] for key in ("id", "rank", "world_size", "step")}
        self._copies = HostCopies()
        self._sites = {
            name: {part: {key: self._copies.of(value) for key, value in of.items()} for part, of in stats.extremes().items()}
            for name, stats in sites.items()
            if isinstance(stats, SiteExtremes)
        }
        self._copies.seal()

    def content(self) -> Content:
        """The file. Runs on the writer's thread."""
        self._copies.wait()
        tensors: Dict[str, Tensor] = {}
        for name, parts in self._sites.items():
            for part, state in parts.items():
                # As of a rank that records: of one finite row nothing is told.
                if state["counters"][COUNT] >= 2:
                    tensors[f"{name}/{part}.amax"] = state["counters"][AMAX : AMAX + 1].float()
                    tensors[f"{name}/{part}.hist"] = state["hist"]
        return tensors, {"loka.extremes": json.dumps({"version": 1, "run": self._run})}


__all__ = ["SUFFIX", "ExtremesSnapshot", "OperandExtremes", "SiteExtremes"]
