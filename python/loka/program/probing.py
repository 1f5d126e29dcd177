"""`loka.probe`: takes a trace, gives results."""

import os
import pathlib
import sys
import warnings
from typing import TYPE_CHECKING, Iterable, List, Literal, Optional, Union

from .child import Path, run, scratch_file
from .options import Names, mods_option, option, repeated
from .progress import Progress, Shown
from .results import Results

if TYPE_CHECKING:
    from ..record import Recorder


def probe(
    trace: "Union[Path, Recorder]",
    out: Optional[Path] = None,
    *,
    engine: Literal["auto", "cpu", "cuda", "cluster"] = "auto",
    sites: Names = (),
    kernels: Names = (),
    mods: Names = (),
    min_draws: Optional[int] = None,
    max_draws: Optional[int] = None,
    confidence: Optional[float] = None,
    seed: Optional[int] = None,
    sampler: Optional[Literal["copula", "gaussian"]] = None,
    rows: Optional[int] = None,
    threads: Optional[int] = None,
    latencies: Iterable[Path] = (),
    sites_times: Iterable[Path] = (),
    measure: bool = False,
    runtimes: Names = (),
    minutes: Optional[float] = None,
    libraries: bool = False,
    python: Optional[Path] = None,
    progress: Progress = None,
) -> Results:
    """Measures the error of every kernel at every GEMM of a trace: `loka probe`, whose options these are.

    `trace`: a file, a folder of shards, or the recorder that wrote one. `out`: the results file to write; by default one that goes when this process
    ends (`Results.save` keeps it). `sites`, `kernels`: globs. `mods`: probe the model with these, too. `python`: whose
    PyTorch times sites with `measure`, for so many `minutes` at most, whose libraries run with `libraries`, and whose Ray knows
    the cluster with `engine="cluster"` (`loka.ray.probe` has more options); by default this one's.
    `progress`: True, False, or a function that is told the share that is done; by default shown on terminals and in
    notebooks. Ctrl+C, or a notebook's stop, ends the program and leaves no file.

    Raises LokaError, with the program's one line, for a trace that is none, and options that it refuses. What it warns
    of is a warning here."""
    written = pathlib.Path(scratch_file(".results.parquet") if out is None else out)
    arguments: List[Path] = [
        "probe", _trace_of(trace), *option("out", written), *option("engine", engine), "--progress",
        *repeated("sites", sites), *repeated("kernels", kernels), *mods_option(mods),
        *option("min-draws", min_draws), *option("max-draws", max_draws), *option("confidence", confidence),
        *option("seed", seed), *option("sampler", sampler), *option("rows", rows), *option("threads", threads),
        *repeated("latencies", latencies), *repeated("sites-times", sites_times),
        *option("measure", measure), *repeated("runtime", runtimes), *option("minutes", minutes),
        *option("libraries", libraries),
    ]  # fmt: skip
    if python is not None or measure or libraries or engine == "cluster":
        arguments += option("python", sys.executable if python is None else python)
    with Shown(progress) as on_progress:
        ended = run(arguments, on_progress)
    for text in ended.warnings:
        warnings.warn(text, stacklevel=2)
    return Results(written, notes=ended.notes, verdicts=ended.stdout)


def _trace_of(trace: "Union[Path, Recorder]") -> Path:
    """All ranks' shards, of a recorder."""
    if isinstance(trace, (str, os.PathLike)):
        return trace
    path = getattr(trace, "path", None)
    if not isinstance(path, pathlib.Path):
        raise TypeError(f"expected a trace's path or its recorder, not a {type(trace).__name__}")
    return path.parent


__all__ = ["probe"]
