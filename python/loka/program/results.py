"""`Results`: a results file, as a DataFrame and as the report's figures."""

import pathlib
import shutil
from html import escape
from typing import TYPE_CHECKING, Any, Iterable, List, Literal, Optional, overload

from .child import Path, run, scratch_file
from .figures import Figure
from .frames import DataFrame, Library, load_results
from .options import Names, Policy, mods_option, option, policy_option

if TYPE_CHECKING:
    import pandas
    import polars

    from ..plans import Plan

FigureName = Literal["heatmap", "quadrant", "frontier", "graph"]


class Results:
    """What `loka.probe` found, or an earlier `*.results.parquet`. `print` it, or show it in a notebook, for what became of
    each kernel. `notes`: what the program said beside it; `verdicts`: its table, "" of an earlier file.

    Figures are those of `loka report`, of the plan that `policy` makes of the results, or of `plan`, which must have
    been made from them."""

    def __init__(self, path: Path, *, notes: Iterable[str] = (), verdicts: str = "") -> None:
        self.path = pathlib.Path(path)
        self.notes = tuple(notes)
        self.verdicts = verdicts

    def save(self, path: Path) -> "Results":
        """Copies the file there."""
        shutil.copyfile(self.path, path)
        return Results(path, notes=self.notes, verdicts=self.verdicts)

    @overload
    def frame(self, library: Literal["polars"]) -> "polars.DataFrame": ...

    @overload
    def frame(self, library: Literal["pandas"]) -> "pandas.DataFrame": ...

    @overload
    def frame(self, library: None = None) -> DataFrame: ...

    def frame(self, library: Optional[Library] = None) -> Any:
        """One row for each site, GEMM, kernel and mods: `loka.load_results`."""
        return load_results(self.path, library)

    def heatmap(
        self, policy: Policy = "balanced", *, plan: "Optional[Plan]" = None, mods: Names = (), runtime: str = "launched"
    ) -> Figure:
        """The error of every kernel at every GEMM of every site."""
        return self._figure("heatmap", policy, plan, mods, runtime)

    def quadrant(
        self, policy: Policy = "balanced", *, plan: "Optional[Plan]" = None, mods: Names = (), runtime: str = "launched"
    ) -> Figure:
        """Error over speed-up."""
        return self._figure("quadrant", policy, plan, mods, runtime)

    def frontier(
        self, policy: Policy = "balanced", *, plan: "Optional[Plan]" = None, mods: Names = (), runtime: str = "launched"
    ) -> Figure:
        """What every threshold of a policy buys in time and costs in loss."""
        return self._figure("frontier", policy, plan, mods, runtime)

    def graph(
        self, policy: Policy = "balanced", *, plan: "Optional[Plan]" = None, mods: Names = (), runtime: str = "launched"
    ) -> Figure:
        """The forward chain: where a step's time goes, and what runs in FP8."""
        return self._figure("graph", policy, plan, mods, runtime)

    def _figure(
        self, which: FigureName, policy: Policy, plan: "Optional[Plan]", mods: Names, runtime: str
    ) -> Figure:
        path = self._planned(policy, mods, runtime) if plan is None else pathlib.Path(plan.path)
        written = scratch_file(".html")
        run(["report", path, "--results", self.path, "--figure", which, "--out", written])
        html = written.read_text(encoding="utf-8")
        written.unlink()
        return Figure(which, html)

    def _planned(self, policy: Policy, mods: Names, runtime: str) -> pathlib.Path:
        written = scratch_file(".plan.json")
        options = [*option("out", written), *policy_option(policy), *mods_option(mods), *option("runtime", runtime)]
        run(["plan", self.path, *options])
        return written

    def __str__(self) -> str:
        return "\n".join(self._said()) if self.verdicts else repr(self)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _said(self) -> List[str]:
        lines = [line for line in self.verdicts.splitlines() if not line.startswith("next: ")]
        return [*self.notes, *lines, f"next: plan = loka.plan({str(self.path)!r})"]

    def __repr__(self) -> str:
        return f"Results({str(self.path)!r})  # .frame() .heatmap() .quadrant() .frontier() .graph() .save(path)"


__all__ = ["Results"]
