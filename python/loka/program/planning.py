"""`loka.plan`: takes results and a policy, gives a plan."""

import os
import warnings
from typing import TYPE_CHECKING, Iterable, Literal, Mapping, Optional, Union

from .child import Path, run, scratch_file
from .options import Names, Policy, mods_option, option, policy_option, repeated
from .results import Results

if TYPE_CHECKING:
    from ..plans import Plan

Runtime = Literal["launched", "graph", "inference"]


def plan(
    results: Union[Results, Path],
    out: Optional[Path] = None,
    *,
    policy: Policy = "balanced",
    runtime: Runtime = "launched",
    device: Optional[str] = None,
    latencies: Union[Path, Iterable[Path]] = (),
    mods: Names = (),
    overrides: Optional[Mapping[str, str]] = None,
    rows: Optional[int] = None,
    name: Optional[str] = None,
    release: Optional[int] = None,
    authors: Names = (),
) -> "Plan":
    """Chooses a kernel for every GEMM: `loka plan`, whose options these are. `loka.apply` takes what it gives.

    `policy`: the name of a built-in one, a file, or a mapping. `out`: the plan file to write; by default one that goes
    when this process ends. `device`: plan for that type of GPU, by built-in times and those of the kernel databases
    `latencies`, whatever the results were timed on. `overrides`: {"SITE:GEMM": "library/recipe"}, chosen by hand.

    Raises LokaError, with the program's one line. What it warns of is a warning here."""
    from ..plans import load_plan

    written = scratch_file(".plan.json") if out is None else out
    by_hand = [f"{place}={kernel}" for place, kernel in (overrides or {}).items()]
    ended = run([
        "plan", path_of(results), *option("out", written), *policy_option(policy), *option("runtime", runtime),
        *option("device", device), *repeated("latencies", [latencies] if isinstance(latencies, os.PathLike) else latencies),
        *mods_option(mods), *repeated("override", by_hand), *option("rows", rows), *option("name", name),
        *option("release", release), *repeated("author", authors),
    ])  # fmt: skip
    for text in ended.warnings:
        warnings.warn(text, stacklevel=2)
    return load_plan(written)


def path_of(results: Union[Results, Path]) -> Path:
    return results.path if isinstance(results, Results) else results


__all__ = ["Runtime", "path_of", "plan"]
